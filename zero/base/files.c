/* Files and directories that last (zero_writer_write, zero_file_publish). Long writes go past the
 * cache (O_DIRECT). Bytes whose place in memory is not that on the disk pass through a bounce
 * buffer. */
#include "zero/base/files.h"

#include "zero/base/basics.h"

#include "kolo/kolo_zero.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int zero_system_error(const char *what, const char *path)
{
	return kolo_error_set(KOLO_ESYS, "%s: %s: %s", zero_path_end(path), what, strerror(errno));
}

const char *zero_path_end(const char *path)
{
	enum { SHOWN = 200 };
	size_t len = strlen(path);

	return len > SHOWN ? path + (len - SHOWN) : path;
}

int zero_path_join(char *out, const char *dir, const char *name)
{
	if (snprintf(out, ZERO_PATH_LEN, "%s/%s", dir, name) < ZERO_PATH_LEN)
		return 0;
	out[0] = 0;
	return kolo_error_set(KOLO_EINVAL, "%.60s...: a path of more than %d bytes", dir,
			      ZERO_PATH_LEN - 1);
}

/* ---- Files ----------------------------------------------------------------------------------- */

int zero_file_read(int fd, void *out, size_t len, uint64_t offset, const char *path)
{
	while (len > 0) {
		ssize_t n = pread(fd, out, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return zero_system_error("reading", path);
		if (n == 0)
			return kolo_error_set(KOLO_ESYS, "%s: truncated: it ends before byte %llu",
					      zero_path_end(path),
					      (unsigned long long)(offset + len));
		out = (char *)out + n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int zero_file_write(int fd, const void *src, size_t len, uint64_t offset, const char *path)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, src, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return zero_system_error("writing", path);
		src = (const char *)src + n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

enum { BOUNCE = 4 << 20 }; /* bytes written past the cache at a time */

/* Writes past the cache have whole pages. No block of a disk is larger. */
static size_t block_len(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

int zero_writer_open(struct zero_writer *w, const char *path)
{
	*w = (struct zero_writer){ path, open(path, O_WRONLY | O_CLOEXEC), -1, NULL };
	if (w->fd < 0)
		return kolo_error_set(KOLO_ESYS, "%s: opening what rank 0 has made: %s%s",
				      zero_path_end(path), strerror(errno),
				      errno == ENOENT ? ": do all hosts see the same directory?"
						      : "");
	w->bounce = malloc(BOUNCE + block_len());
	if (!w->bounce)
		return kolo_error_set(KOLO_ENOMEM, "%s: a buffer of %d bytes: out of memory",
				      zero_path_end(path), BOUNCE);
	/* If this is refused, for example by tmpfs, the cache is used. */
	w->direct = open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
	return 0;
}

/* Writes whole blocks past the cache. */
static int write_direct(struct zero_writer *w, const char *src, size_t len, uint64_t offset)
{
	size_t block = block_len();
	char *aligned = w->bounce + -(uintptr_t)w->bounce % block;
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < len; done += n) {
		const char *from = src + done;

		n = zero_min(len - done, BOUNCE);
		if ((uintptr_t)from % block != 0)
			from = memcpy(aligned, from, n);
		if (pwrite(w->direct, from, n, (off_t)(offset + done)) == (ssize_t)n)
			continue;
		/* Some file systems refuse direct access only now, or write a part. Other errors
		 * come again with the cache, and are reported then. */
		rc = zero_file_write(w->fd, src + done, n, offset + done, w->path);
	}
	return rc;
}

int zero_writer_write(struct zero_writer *w, const void *src, size_t len, uint64_t offset)
{
	size_t block = block_len(), head = (size_t)(-offset % block);
	size_t body = len > head ? (len - head) / block * block : 0;
	const char *from = src;
	int rc;

	/* A block of which two processes write parts goes through the cache, which joins them. */
	if (w->direct < 0 || body < BOUNCE / 4)
		return zero_file_write(w->fd, src, len, offset, w->path);
	rc = zero_file_write(w->fd, from, head, offset, w->path);
	if (rc == 0)
		rc = write_direct(w, from + head, body, offset + head);
	if (rc == 0)
		rc = zero_file_write(w->fd, from + head + body, len - head - body,
				     offset + head + body, w->path);
	return rc;
}

int zero_writer_close(struct zero_writer *w, int rc)
{
	if (w->fd >= 0 && rc == 0 && fsync(w->fd) < 0)
		rc = zero_system_error("fsync", w->path);
	if (w->fd >= 0 && close(w->fd) < 0 && rc == 0)
		rc = zero_system_error("closing", w->path);
	if (w->direct >= 0)
		close(w->direct);
	free(w->bounce);
	*w = (struct zero_writer){ w->path, -1, -1, NULL };
	return rc;
}

int zero_file_create(const char *path, const void *head, size_t head_len, uint64_t len, bool sync)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), rc = 0;

	if (fd < 0)
		return zero_system_error("creating", path);
	if (ftruncate(fd, (off_t)len) < 0)
		rc = zero_system_error("making room", path);
	if (rc == 0)
		rc = zero_file_write(fd, head, head_len, 0, path);
	if (rc == 0 && sync && fsync(fd) < 0)
		rc = zero_system_error("fsync", path);
	if (close(fd) < 0 && rc == 0)
		rc = zero_system_error("closing", path);
	return rc;
}

static int read_whole(int fd, char **out, size_t *len, const char *path)
{
	struct stat s;
	char *text;
	int rc;

	if (fstat(fd, &s) < 0)
		return zero_system_error("stat", path);
	text = malloc((size_t)s.st_size + 1);
	if (!text)
		return kolo_error_set(KOLO_ENOMEM, "%s: %lld bytes: out of memory",
				      zero_path_end(path), (long long)s.st_size);
	if ((rc = zero_file_read(fd, text, (size_t)s.st_size, 0, path)) < 0) {
		free(text);
		return rc;
	}
	text[s.st_size] = 0;
	*out = text;
	*len = (size_t)s.st_size;
	return 0;
}

int zero_file_load(const char *path, char **out, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return zero_system_error("opening", path);
	rc = read_whole(fd, out, len, path);
	close(fd);
	return rc;
}

static int sync_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	char parent[ZERO_PATH_LEN] = ".";

	if (slash && (size_t)(slash - path) < sizeof(parent)) {
		size_t len = slash == path ? 1 : (size_t)(slash - path);

		memcpy(parent, path, len);
		parent[len] = 0;
	}
	return zero_dir_sync(parent);
}

int zero_file_publish(const char *from, const char *to)
{
	if (rename(from, to) < 0)
		return kolo_error_set(KOLO_ESYS, "%s: renaming to %s: %s", zero_path_end(from),
				      zero_path_end(to), strerror(errno));
	return sync_parent(to);
}

int zero_dir_sync(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return zero_system_error("opening", path);
	/* Some file systems can't do this. They keep their directories in order by themselves. */
	if (fsync(fd) < 0 && errno != EINVAL)
		rc = zero_system_error("fsync", path);
	close(fd);
	return rc;
}

int zero_dir_make(const char *path)
{
	if (mkdir(path, 0777) == 0)
		return sync_parent(path);
	return errno == EEXIST ? 0 : zero_system_error("making the directory", path);
}

int zero_disk_has_room(const char *path, uint64_t bytes)
{
	struct statvfs s;

	if (statvfs(path, &s) < 0)
		return zero_system_error("statvfs", path);
	if ((uint64_t)s.f_bavail * s.f_frsize >= bytes)
		return 0;
	return kolo_error_set(KOLO_ESYS, "%s: %s: %llu MiB are wanted and %llu there",
			      zero_path_end(path), strerror(ENOSPC),
			      (unsigned long long)(bytes >> 20),
			      (unsigned long long)((uint64_t)s.f_bavail * s.f_frsize >> 20));
}
