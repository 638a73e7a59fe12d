/* Runs the program gnuplot as a child, which draws a picture from a script. Script and picture are
 * files in memory: gnuplot is silent if it cannot write its output, and pipes would need a reader
 * at each end at once. */
#include "tools/common/gnuplot.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A PNG has twice the pixels, for slides. cairo counts the height of letters in points, 3/4 of a
 * pixel. */
static const struct format {
	const char *ending, *terminal;
	int scale, text, title; /* text, title: height of letters, in pixels */
} formats[] = {
	{ ".svg", "svg", 1, 14, 18 },
	{ ".png", "pngcairo", 2, 21, 27 },
};

static const struct format *format_of(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		size_t ending = strlen(formats[i].ending);

		if (len > ending && strcmp(name + len - ending, formats[i].ending) == 0)
			return &formats[i];
	}
	return NULL;
}

bool gnuplot_draws(const char *name)
{
	return format_of(name) != NULL;
}

int gnuplot_title_size(const char *name)
{
	return format_of(name)->title;
}

/* gnuplot passes bytes on as they are, and an SVG must be UTF-8 without control characters. */
void gnuplot_write_quoted(FILE *out, const char *text)
{
	bool utf8 = mbstowcs(NULL, text, 0) != (size_t)-1;

	fputc('\'', out);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '\'')
			fputc('\'', out);
		fputc(*c < ' ' || *c == 0x7f || (*c > 0x7f && !utf8) ? '?' : *c, out);
	}
	fputc('\'', out);
}

void gnuplot_write_terminal(FILE *out, const char *name, int width, int height)
{
	const struct format *f = format_of(name);

	fprintf(out,
		"set encoding utf8\nset pointsize %g\n"
		"set terminal %s size %d,%d noenhanced font 'sans-serif,%d' linewidth %d background 'white'\n",
		0.7 * f->scale, f->terminal, width * f->scale, height * f->scale, f->text,
		f->scale);
}

/* ---- Child ----------------------------------------------------------------------------------- */

static FILE *open_memory(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "w+") : NULL;

	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* A process that reads `in` and writes `out`. 0, or an errno. */
static int start_gnuplot(int in, int out, pid_t *pid)
{
	char *args[] = { "gnuplot", "--default-settings", "-", NULL };
	posix_spawn_file_actions_t actions;
	int rc = posix_spawn_file_actions_init(&actions);

	if (rc)
		return rc;
	if ((rc = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO)) == 0 &&
	    (rc = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO)) == 0)
		rc = posix_spawnp(pid, args[0], &actions, NULL, args, environ);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

/* Returns when gnuplot has read `script` and ended. 0, or EXIT_FAILED after a message. */
static int run_child(const char *tool, const char *name, FILE *script, FILE *picture)
{
	int status, rc;
	pid_t pid;

	rewind(script);
	if ((rc = start_gnuplot(fileno(script), fileno(picture), &pid))) {
		fprintf(stderr, "%s: --plot %s: starting gnuplot: %s%s\n", tool, name, strerror(rc),
			rc == ENOENT ? ": install it (gnuplot-nox in Debian)" : "");
		return EXIT_FAILED;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return 0;
	fprintf(stderr,
		"%s: --plot %s: gnuplot failed, with the reason above; it must be version 5 or later "
		"and have the terminal %s\n",
		tool, name, format_of(name)->terminal);
	return EXIT_FAILED;
}

static int copy_picture(const char *tool, const char *name, FILE *picture, FILE *out)
{
	char bytes[4096];
	size_t n, all = 0;

	rewind(picture);
	for (; (n = fread(bytes, 1, sizeof(bytes), picture)) > 0; all += n)
		fwrite(bytes, 1, n, out);
	if (all > 0)
		return 0;
	fprintf(stderr, "%s: --plot %s: gnuplot drew nothing\n", tool, name);
	return EXIT_FAILED;
}

int gnuplot_run(const char *tool, const char *name, gnuplot_script_fn *write, const void *arg,
		FILE *out)
{
	FILE *script = open_memory("script"), *picture = open_memory("picture");
	int rc = EXIT_FAILED;

	if (!script || !picture) {
		fprintf(stderr, "%s: --plot %s: a file in memory: %s\n", tool, name,
			strerror(errno));
	} else {
		write(script, name, arg);
		rc = run_child(tool, name, script, picture);
		if (rc == 0 && out)
			rc = copy_picture(tool, name, picture, out);
	}
	if (script)
		fclose(script);
	if (picture)
		fclose(picture);
	return rc;
}

static void write_nothing(FILE *script, const char *name, const void *arg)
{
	(void)arg;
	gnuplot_write_terminal(script, name, 100, 100);
}

int gnuplot_look(const char *tool, const char *name)
{
	return gnuplot_run(tool, name, write_nothing, NULL, NULL);
}
