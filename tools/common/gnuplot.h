/* Pictures by the program gnuplot, version 5 or later. It runs as a child and reads a script. */
#ifndef TOOLS_COMMON_GNUPLOT_H
#define TOOLS_COMMON_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

/* Does the name end as that of a picture should? */
bool gnuplot_draws(const char *name);

/* The height of a title's letters in the picture `name`, in points. */
int gnuplot_title_size(const char *name);

/* Begins a script: the kind of the picture `name` and its size in pixels. A PNG has twice as
 * many. */
void gnuplot_write_terminal(FILE *script, const char *name, int width, int height);

/* Writes a text in single quotes. Control characters become question marks. LC_CTYPE must be UTF-8:
 * if the text is not valid in it, bytes above 0x7f become question marks too. */
void gnuplot_write_quoted(FILE *script, const char *text);

/* Writes a script of what is to be drawn. */
typedef void gnuplot_script_fn(FILE *script, const char *name, const void *arg);

/* Draws the picture `name` of `tool`'s --plot into `out`. If out is NULL, the picture is thrown
 * away. Returns 0, or EXIT_FAILED after a message. */
int gnuplot_run(const char *tool, const char *name, gnuplot_script_fn *write, const void *arg,
		FILE *out);

/* Checks that there is a gnuplot that draws such a picture. Returns 0, or EXIT_FAILED after a
 * message. */
int gnuplot_look(const char *tool, const char *name);

#endif
