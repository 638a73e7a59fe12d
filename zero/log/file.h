/* Files to which the log appends lines. */
#ifndef ZERO_LOG_FILE_H
#define ZERO_LOG_FILE_H

#include <stdbool.h>

struct zero_text;

struct zero_log_file {
	char *path;
	int fd;    /* -1: none */
	bool torn; /* a full disk left a part of a line that could not be cut off yet */
};

/* Opens or makes a file for appending. A file of the log begins with `begin`. If `begin` ends in a
 * newline, an empty file gets it as its first line. A last line without a newline is cut off. Close
 * it after an error too. Errors: KOLO_EINVAL (the file begins with something else), KOLO_ENOMEM,
 * KOLO_ESYS. */
int zero_log_file_open(struct zero_log_file *f, const char *path, const struct zero_text *begin);

/* Appends a line with its newline. After KOLO_ESYS nothing was written, and the caller may try
 * again. */
int zero_log_file_append(struct zero_log_file *f, const struct zero_text *line);

void zero_log_file_close(struct zero_log_file *f);

#endif
