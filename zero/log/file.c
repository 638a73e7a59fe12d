/* Appends whole lines to a file of the log, or nothing (zero_log_file_append). */
#include "zero/log/file.h"

#include "zero/base/basics.h"
#include "zero/log/text.h"

#include "kolo/kolo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Cuts off a last line without a newline. */
static int mend_file(const struct zero_log_file *f)
{
	char tail[ZERO_LINE];
	off_t size = lseek(f->fd, 0, SEEK_END), from = size > ZERO_LINE ? size - ZERO_LINE : 0;
	ssize_t n = size > 0 ? pread(f->fd, tail, (size_t)(size - from), from) : 0;

	while (n > 0 && tail[n - 1] != '\n')
		n--;
	/* The log wrote no line as long as this, so it leaves it alone. */
	if (n < 0 || size <= 0 || from + n == size || (n == 0 && from > 0))
		return n < 0 ? -1 : 0;
	return ftruncate(f->fd, from + n);
}

/* One write is enough, unless something cuts it short. Then the next write reports the reason. */
int zero_log_file_append(struct zero_log_file *f, const struct zero_text *line)
{
	size_t done = 0;
	ssize_t n;
	int why;

	if (f->torn && mend_file(f) < 0)
		return kolo_error_set(KOLO_ESYS, "log %s: cutting off half a line: %s", f->path,
				      strerror(errno));
	do {
		n = write(f->fd, line->bytes + done, line->len - done);
		done += n > 0 ? (size_t)n : 0;
	} while (done < line->len && (n > 0 || (n < 0 && errno == EINTR)));
	why = n < 0 ? errno : ENOSPC;
	f->torn = done > 0 && done < line->len && mend_file(f) < 0;
	if (done == line->len)
		return 0;
	return kolo_error_set(KOLO_ESYS, "log %s: a line could not be written: %s", f->path,
			      strerror(why));
}

/* The file must be empty, or begin with `begin`. It may also be a part of `begin`, which mend_file
 * cuts off then. */
static int check_beginning(const struct zero_log_file *f, const struct zero_text *begin)
{
	char found[ZERO_LINE];
	ssize_t n = pread(f->fd, found, begin->len, 0);

	if (n <= 0 || memcmp(found, begin->bytes, (size_t)n) == 0)
		return 0;
	return kolo_error_set(KOLO_EINVAL,
			      "log %s: the file exists and begins with something else than '%.*s'",
			      f->path, (int)strcspn(begin->bytes, "\n"), begin->bytes);
}

/* Opens the file and mends it. *empty: whether nothing is left. */
static int open_fd(struct zero_log_file *f, const struct zero_text *begin, bool *empty)
{
	struct stat st;
	int rc;

	f->fd = open(f->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (f->fd < 0 || fstat(f->fd, &st) < 0)
		return kolo_error_set(KOLO_ESYS, "log %s: opening it: %s", f->path,
				      strerror(errno));
	if (S_ISREG(st.st_mode) && (rc = check_beginning(f, begin)) < 0)
		return rc;
	if (mend_file(f) < 0 || fstat(f->fd, &st) < 0)
		return kolo_error_set(KOLO_ESYS, "log %s: reading its end: %s", f->path,
				      strerror(errno));
	*empty = st.st_size == 0;
	return 0;
}

int zero_log_file_open(struct zero_log_file *f, const char *path, const struct zero_text *begin)
{
	size_t len = strlen(path) + 1;
	bool empty = false;
	int rc;

	f->path = malloc(len);
	if (!f->path)
		return kolo_error_set(KOLO_ENOMEM, "log %s: out of memory", path);
	memcpy(f->path, path, len);
	rc = open_fd(f, begin, &empty);
	if (rc == 0 && empty && begin->bytes[begin->len - 1] == '\n')
		rc = zero_log_file_append(f, begin);
	return rc;
}

void zero_log_file_close(struct zero_log_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
}
