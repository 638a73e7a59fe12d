/* Files that the log's lines are appended to. */
#ifndef ZERO_LOG_FILE_H
#define ZERO_LOG_FILE_H

#include <stdbool.h>

struct zero_text;

struct zero_log_file {
	char *path;
	int fd;    /* -1: none */
	bool torn; /* a full disk left a part of a line, and it could not be cut off yet */
};

/* Opens the file, or makes it, for appending. `begin` is what a log's file begins with; all of it,
 * if that ends in a newline, is written to one that is empty. A last line that has no end is cut
 * off. To be closed also after an error. Errors: KOLO_EINVAL (it begins with something else),
 * KOLO_ENOMEM, KOLO_ESYS. */
int zero_log_file_open(struct zero_log_file *f, const char *path, const struct zero_text *begin);

/* Appends a line, newline included: all of it, or nothing and KOLO_ESYS; then it may be tried
 * again. */
int zero_log_file_append(struct zero_log_file *f, const struct zero_text *line);

void zero_log_file_close(struct zero_log_file *f);

#endif
