/* Files and directories that last: whole reads and writes, and names that appear when their content
 * is complete. Errors are KOLO_ESYS with the path and the reason, and KOLO_EINVAL for paths that
 * are too long. */
#ifndef ZERO_BASE_FILES_H
#define ZERO_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZERO_PATH_LEN = 4096 };

/* Sets "PATH: WHAT: " and errno's text; returns KOLO_ESYS. */
int zero_system_error(const char *what, const char *path);

/* dir/name, checked for length; "" if that fails. */
int zero_path_join(char *out, const char *dir, const char *name);

/* The last part of a path that is so long that an error's reason would not fit after it. */
const char *zero_path_end(const char *path);

/* pread and pwrite until done. Errors: KOLO_ESYS; what ends early is "truncated". */
int zero_file_read(int fd, void *out, size_t len, uint64_t offset, const char *path);
int zero_file_write(int fd, const void *src, size_t len, uint64_t offset, const char *path);

/* A file that exists and is written in parts, by several processes at once. What is long goes to
 * the disk without a copy in the system's cache, if the file system can do that. */
struct zero_writer {
	const char *path; /* the caller's */
	int fd, direct;   /* -1: not open; direct: past the cache */
	char *bounce;     /* for bytes that do not lie in memory as on the disk */
};

/* Errors: KOLO_ENOMEM, KOLO_ESYS. To be closed after errors too. */
int zero_writer_open(struct zero_writer *writer, const char *path);
int zero_writer_write(struct zero_writer *writer, const void *src, size_t len, uint64_t offset);
/* With rc 0 all that was written is on the disk when this returns; else it returns rc. */
int zero_writer_close(struct zero_writer *writer, int rc);

/* Gives a complete file its name, in place of one that had it, to stay. */
int zero_file_publish(const char *from, const char *to);

/* Makes a file of len bytes that begins with head[head_len]; with sync it is on the disk when this
 * returns. */
int zero_file_create(const char *path, const void *head, size_t head_len, uint64_t len, bool sync);

/* A whole file, in memory that the caller frees. */
int zero_file_load(const char *path, char **out, size_t *len);

/* KOLO_ESYS if the disk of a path has no room for so many bytes. */
int zero_disk_has_room(const char *path, uint64_t bytes);

/* Makes a directory that may be there already; and fsync of what one lists. */
int zero_dir_make(const char *path);
int zero_dir_sync(const char *path);

#endif
