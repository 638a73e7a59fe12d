/* A file for state, through io_uring (zero_disk_read, zero_disk_write, zero_disk_wait).
 *
 * What was started for a buffer is its *job*. A job is cut into *requests* of one block, and at
 * most `depth` requests are under way at a time. Jobs with something left to cut stand in a queue,
 * in the order in which they were started.
 *
 * There is no thread. Each call takes what the system has done, and gives it as many new requests
 * as there is room for. */
#include "zero/offload/disk.h"

#include "zero/base/basics.h"
#include "zero/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
	LONGEST = 1 << 30, /* bytes of a request; the system's limit is 2 GiB - 4096 */
	NAME_LEN = 128,
	PATIENCE = 10000, /* ms; then a system without memory for a request is given up */
};

#define LOST "the state is lost from here: destroy the engine and load the last checkpoint"

/* The last job of a buffer. given <= len; it is queued as long as given < len. */
struct job {
	bool write;
	uint64_t offset;
	size_t len, given; /* given: bytes that were cut off as requests */
	int pending;       /* its requests under way */
	bool failed;       /* a request failed; the next three are about the first one that did */
	int error;         /* errno, or 0: the file ended */
	uint64_t error_at;
	size_t error_len;
};

/* What is left of a request: the bytes [at, at + len) of its job. */
struct request {
	int buffer;
	size_t at, len;
	bool direct; /* it may have been sent as direct access */
};

struct zero_disk {
	char path[ZERO_PATH_LEN], name[NAME_LEN]; /* name: in `dir` */
	DIR *dir;
	int fd; /* -1: none */
	bool direct;
	uint64_t bytes;
	int nbuffers, depth;
	size_t buffer_len, block;
	char *buffers;
	struct io_uring ring;
	bool has_ring, registered; /* registered: the system knows the buffers */
	int broken;                /* errno of a ring that takes no more requests; 0: none */
	int refusals;              /* in a row, because the system had no memory */
	struct job *jobs;          /* [nbuffers] */
	struct request *requests;  /* [depth] */
	struct request **idle;     /* [nidle] of them are not under way */
	int nidle;
	int *queue; /* [nbuffers], a ring: numbers of buffers, `queued` of them from `first` on */
	int first, queued;
	uint64_t read_bytes, written_bytes;
};

/* ---- The file -------------------------------------------------------------------------------- */

static void name_file(char *out, const char *what, int rank, uint64_t nonce)
{
	snprintf(out, NAME_LEN, "kolo-%s-rank%d-%016llx.state", what, rank,
		 (unsigned long long)nonce);
}

static bool is_our_name(const char *name)
{
	char what[32], again[NAME_LEN];
	unsigned long long nonce;
	int rank;

	if (sscanf(name, "kolo-%31[a-z]-rank%d-%llx", what, &rank, &nonce) != 3)
		return false;
	name_file(again, what, rank, nonce);
	return strcmp(name, again) == 0;
}

static int lock(int fd, int how)
{
	int rc;

	while ((rc = flock(fd, how)) < 0 && errno == EINTR)
		continue;
	return rc;
}

/* Removes Kolo's files that no process has locked. A file that can't be removed belongs to another
 * user; that is no error. */
static void remove_leftovers(DIR *dir)
{
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		int fd;

		if (!is_our_name(entry->d_name))
			continue;
		fd = openat(dirfd(dir), entry->d_name,
			    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (lock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(dirfd(dir), entry->d_name, 0);
		close(fd);
	}
}

/* Whether the directory's entry of this name is still this file. */
static bool has_its_name(const struct zero_disk *disk)
{
	struct stat file, named;

	return fstat(disk->fd, &file) == 0 &&
	       fstatat(dirfd(disk->dir), disk->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       file.st_dev == named.st_dev && file.st_ino == named.st_ino;
}

/* Makes the file under a name that does not exist yet. */
static int create_named(struct zero_disk *disk, const struct zero_disk_attr *attr)
{
	uint64_t nonce;
	int rc;

	if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
		return zero_system_error("a random number for a file's name", attr->dir);
	name_file(disk->name, attr->what, attr->rank, nonce);
	if ((rc = zero_path_join(disk->path, attr->dir, disk->name)) < 0)
		return rc;
	disk->fd = openat(dirfd(disk->dir), disk->name,
			  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (disk->fd >= 0)
		return 0;
	return kolo_error_set(KOLO_ESYS,
			      "%s: creating it: %s: is the directory (nvme_path) writable?",
			      zero_path_end(disk->path), strerror(errno));
}

static int create_file(struct zero_disk *disk, const struct zero_disk_attr *attr)
{
	enum { TRIES = 1000 };

	for (int i = 0; i < TRIES; i++) {
		int rc = create_named(disk, attr);

		if (rc < 0)
			return rc;
		/* On a file system without locks nobody gets one, so nobody removes the file as a
		 * leftover. */
		lock(disk->fd, LOCK_EX);
		/* Another rank may have removed it as a leftover before it was locked. */
		if (has_its_name(disk))
			return 0;
		close(disk->fd);
		disk->fd = -1;
	}
	return kolo_error_set(KOLO_ESYS,
			      "%s: files vanish as soon as they are made: who removes them?",
			      zero_path_end(attr->dir));
}

/* For a file system that can't reserve room: checks that it has enough, and sets the length. */
static int lengthen(struct zero_disk *disk, uint64_t free_bytes)
{
	if (free_bytes >= disk->bytes)
		return ftruncate(disk->fd, (off_t)disk->bytes);
	errno = ENOSPC;
	return -1;
}

static int make_room(struct zero_disk *disk)
{
	struct statvfs s = { 0 };
	uint64_t free_bytes;
	int rc = 0;

	if (fstatvfs(disk->fd, &s) < 0)
		return zero_system_error("statvfs", disk->path);
	free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
	while (disk->bytes > 0 && (rc = fallocate(disk->fd, 0, 0, (off_t)disk->bytes)) < 0 &&
	       errno == EINTR)
		continue;
	if (rc < 0 && errno == EOPNOTSUPP)
		rc = lengthen(disk, free_bytes);
	if (rc == 0)
		return 0;
	return kolo_error_set(
		KOLO_ESYS,
		"%s: %s: %llu MiB are wanted and %llu MiB are free there: name a directory with more room (nvme_path) or offload less (a smaller ratio of the optimizer, a larger max_in_cpu of parameters)",
		zero_path_end(disk->path), strerror(errno),
		(unsigned long long)((disk->bytes + (1 << 20) - 1) >> 20),
		(unsigned long long)(free_bytes >> 20));
}

static void set_direct(struct zero_disk *disk, bool direct)
{
	int flags = fcntl(disk->fd, F_GETFL);

	/* F_SETFL fails if the file system has no direct access. Opening a file with O_DIRECT there
	 * would make it and then fail. */
	disk->direct =
		fcntl(disk->fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 &&
		direct;
}

static int open_file(struct zero_disk *disk, const struct zero_disk_attr *attr)
{
	int rc;

	disk->dir = opendir(attr->dir);
	if (!disk->dir)
		return kolo_error_set(
			KOLO_ESYS,
			"%s: %s: files for the %s need a directory that is there (nvme_path)",
			zero_path_end(attr->dir), strerror(errno), attr->what);
	remove_leftovers(disk->dir);
	if ((rc = create_file(disk, attr)) < 0 || (rc = make_room(disk)) < 0)
		return rc;
	set_direct(disk, true);
	return 0;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static int open_ring(struct zero_disk *disk)
{
	int rc = io_uring_queue_init((unsigned)disk->depth, &disk->ring, 0);

	disk->has_ring = rc == 0;
	/* This feature came with the reads and writes that are used here. */
	if (rc == -ENOSYS || (rc == 0 && !(disk->ring.features & IORING_FEAT_RW_CUR_POS)))
		return kolo_error_set(
			KOLO_ENOTSUP,
			"files for offloaded state need io_uring, which this kernel does not have (Linux 5.6 does), or a container's seccomp filter hides: offload to host memory");
	if (rc == -EPERM || rc == -EACCES)
		return kolo_error_set(
			KOLO_ENOTSUP,
			"files for offloaded state need io_uring, which is forbidden here (sysctl kernel.io_uring_disabled, or a container's seccomp filter): allow it, or offload to host memory");
	if (rc == -ENOMEM)
		return kolo_error_set(
			KOLO_ENOMEM,
			"io_uring for %d requests: %s: is the limit of locked memory too low (ulimit -l)?",
			disk->depth, strerror(-rc));
	return rc < 0 ? kolo_error_set(KOLO_ESYS, "io_uring for %d requests: %s", disk->depth,
				       strerror(-rc))
		      : 0;
}

/* Registers the buffers, so that the system need not look up their pages for each request. That
 * takes more than half of the processor's time for requests, and a tenth of the whole time. The
 * system may refuse, for example if the limit of locked memory is low (ulimit -l). Then it looks
 * the pages up. */
static int register_buffers(struct zero_disk *disk)
{
	struct iovec *each = calloc((size_t)disk->nbuffers, sizeof(*each));

	if (!each)
		return kolo_error_set(KOLO_ENOMEM, "%d buffers: out of memory", disk->nbuffers);
	for (int i = 0; i < disk->nbuffers; i++)
		each[i] = (struct iovec){ disk->buffers + (size_t)i * disk->buffer_len,
					  disk->buffer_len };
	disk->registered =
		io_uring_register_buffers(&disk->ring, each, (unsigned)disk->nbuffers) == 0;
	free(each);
	return 0;
}

/* The ring has room for all requests, so there is always an entry. */
static void prepare(struct zero_disk *disk, struct request *request)
{
	static const int ops[2][2] = { { IORING_OP_READ, IORING_OP_WRITE },
				       { IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED } };
	struct job *job = &disk->jobs[request->buffer];
	struct io_uring_sqe *entry = io_uring_get_sqe(&disk->ring);
	char *at = disk->buffers + (size_t)request->buffer * disk->buffer_len + request->at;

	io_uring_prep_rw(ops[disk->registered][job->write], entry, disk->fd, at,
			 (unsigned)request->len, job->offset + request->at);
	entry->buf_index = (uint16_t)request->buffer;
	io_uring_sqe_set_data(entry, request);
	request->direct = disk->direct;
}

/* Cuts requests off the queued jobs, as long as there are idle ones. */
static void cut(struct zero_disk *disk)
{
	while (disk->nidle > 0 && disk->queued > 0) {
		int buffer = disk->queue[disk->first];
		struct job *job = &disk->jobs[buffer];
		size_t left = job->len - job->given, len = zero_min(left, disk->block);

		if (len > 0) {
			struct request *request = disk->idle[--disk->nidle];

			*request =
				(struct request){ .buffer = buffer, .at = job->given, .len = len };
			prepare(disk, request);
			job->given += len;
			job->pending++;
		}
		if (len == left) {
			disk->first = (disk->first + 1) % disk->nbuffers;
			disk->queued--;
		}
	}
}

/* Fails a job. What is not a request yet never becomes one. */
static void fail(struct job *job, const struct request *request, int error)
{
	job->len = job->given;
	if (job->failed)
		return;
	job->failed = true;
	job->error = error;
	job->error_at = job->offset + request->at;
	job->error_len = request->len;
}

/* Counts what is done of a request. The rest may begin at a place that direct access refuses, for
 * example after the end of a file that got shorter. Then the next answer is EINVAL, and the rest
 * goes through the cache. */
static size_t advance(struct zero_disk *disk, struct request *request, int result)
{
	size_t done = result < 0 ? 0 : (size_t)result;

	request->at += done;
	request->len -= done;
	if (disk->jobs[request->buffer].write)
		disk->written_bytes += done;
	else
		disk->read_bytes += done;
	return done;
}

/* Takes the end of a request. If a part is left and may succeed, the request goes on. */
static void take(struct zero_disk *disk, struct request *request, int result)
{
	struct job *job = &disk->jobs[request->buffer];
	size_t done = advance(disk, request, result);
	bool again = result == -EINTR || result == -EAGAIN || done > 0;

	if (result == -EINVAL && request->direct) { /* some file systems refuse it only now */
		set_direct(disk, false);
		again = true;
	}
	if (request->len > 0 && again) {
		prepare(disk, request);
		return;
	}
	if (request->len > 0)
		fail(job, request, result < 0 ? -result : 0);
	job->pending--;
	disk->idle[disk->nidle++] = request;
}

/* Takes all requests that are done, and prepares new ones. */
static void turn(struct zero_disk *disk)
{
	struct io_uring_cqe *done;

	while (io_uring_peek_cqe(&disk->ring, &done) == 0) {
		struct request *request = io_uring_cqe_get_data(done);
		int result = done->res;

		io_uring_cqe_seen(&disk->ring, done);
		take(disk, request, result);
	}
	cut(disk);
}

/* Called if the system has no memory for requests: sleeps until a request under way is done. If
 * there is none, it sleeps for 1 ms. */
static int wait_for_memory(struct zero_disk *disk)
{
	int on_their_way = disk->depth - disk->nidle - (int)io_uring_sq_ready(&disk->ring);
	struct io_uring_cqe *done;

	if (on_their_way > 0)
		return io_uring_wait_cqe(&disk->ring, &done);
	usleep(1000);
	return ++disk->refusals < PATIENCE ? 0 : -ENOMEM;
}

/* Gives prepared requests to the system. Those that it can't take now stay for a later call. With
 * `sleep`, if something is under way, it returns when something is done, or earlier. false: the
 * ring is broken. */
static bool submit(struct zero_disk *disk, bool sleep)
{
	int rc;

	if (disk->broken)
		return false;
	rc = sleep ? io_uring_submit_and_wait(&disk->ring, 1) : io_uring_submit(&disk->ring);
	if (rc == -EAGAIN || rc == -EBUSY)
		rc = sleep ? wait_for_memory(disk) : 0;
	else
		disk->refusals = 0;
	if (rc < 0 && rc != -EINTR)
		disk->broken = -rc;
	return disk->broken == 0;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static int tell_broken(const struct zero_disk *disk)
{
	return kolo_error_set(KOLO_ESYS, "%s: io_uring: %s: " LOST, zero_path_end(disk->path),
			      strerror(disk->broken));
}

static int tell_failed(const struct zero_disk *disk, const struct job *job)
{
	const char *way = job->write ? "writing" : "reading", *path = zero_path_end(disk->path);
	unsigned long long at = job->error_at;
	struct stat s = { 0 };

	if (job->error)
		return kolo_error_set(KOLO_ESYS, "%s: %s %zu bytes at %llu: %s: " LOST, path, way,
				      job->error_len, at, strerror(job->error));
	fstat(disk->fd, &s);
	return kolo_error_set(KOLO_ESYS,
			      "%s: %s %zu bytes at %llu: truncated: has %llu bytes of %llu: " LOST,
			      path, way, job->error_len, at, (unsigned long long)s.st_size,
			      (unsigned long long)disk->bytes);
}

/* ---- The interface --------------------------------------------------------------------------- */

static int allocate(const struct zero_disk_attr *attr, struct zero_disk **out)
{
	struct zero_disk *disk = calloc(1, sizeof(*disk));
	size_t nbuffers = (size_t)attr->nbuffers, depth = (size_t)attr->depth;
	size_t block = zero_min(attr->block, LONGEST);

	if (!disk)
		return kolo_error_set(KOLO_ENOMEM, "a file for the %s: out of memory", attr->what);
	*out = disk;
	*disk = (struct zero_disk){ .fd = -1,
				    .bytes = attr->bytes,
				    .nbuffers = attr->nbuffers,
				    .depth = attr->depth,
				    .buffer_len = attr->buffer_len,
				    .block = block,
				    .buffers = attr->buffers };
	disk->jobs = calloc(nbuffers, sizeof(*disk->jobs));
	disk->queue = calloc(nbuffers, sizeof(*disk->queue));
	disk->requests = calloc(depth, sizeof(*disk->requests));
	disk->idle = calloc(depth, sizeof(struct request *));
	if (!disk->jobs || !disk->queue || !disk->requests || !disk->idle)
		return kolo_error_set(KOLO_ENOMEM, "requests to a file for the %s: out of memory",
				      attr->what);
	while (disk->nidle < disk->depth) {
		disk->idle[disk->nidle] = &disk->requests[disk->nidle];
		disk->nidle++;
	}
	return 0;
}

int zero_disk_open(const struct zero_disk_attr *attr, struct zero_disk **out)
{
	struct zero_disk *disk = NULL;
	int rc;

	*out = NULL;
	if ((rc = allocate(attr, &disk)) < 0 || (rc = open_ring(disk)) < 0 ||
	    (rc = register_buffers(disk)) < 0 || (rc = open_file(disk, attr)) < 0) {
		zero_disk_close(disk);
		return rc;
	}
	*out = disk;
	return 0;
}

void zero_disk_close(struct zero_disk *disk)
{
	if (!disk)
		return;
	/* Waits, because a buffer must be at rest before the caller has it back. */
	for (int i = 0; disk->jobs && i < disk->nbuffers; i++)
		disk->jobs[i].len = disk->jobs[i].given;
	while (disk->has_ring && disk->nidle < disk->depth && submit(disk, true))
		turn(disk);
	if (disk->registered) /* at once, so that the next ring may lock as much */
		io_uring_unregister_buffers(&disk->ring);
	if (disk->has_ring)
		io_uring_queue_exit(&disk->ring);
	if (disk->fd >= 0 && has_its_name(disk))
		unlinkat(dirfd(disk->dir), disk->name, 0);
	if (disk->fd >= 0)
		close(disk->fd);
	if (disk->dir)
		closedir(disk->dir);
	free(disk->idle);
	free(disk->requests);
	free(disk->queue);
	free(disk->jobs);
	free(disk);
}

static int start(struct zero_disk *disk, int i, struct job job)
{
	disk->jobs[i] = job;
	if (job.len > 0)
		disk->queue[(disk->first + disk->queued++) % disk->nbuffers] = i;
	turn(disk);
	return submit(disk, false) ? 0 : tell_broken(disk);
}

int zero_disk_read(struct zero_disk *disk, int i, uint64_t offset, size_t len)
{
	return start(disk, i, (struct job){ .offset = offset, .len = len });
}

int zero_disk_write(struct zero_disk *disk, int i, uint64_t offset, size_t len)
{
	return start(disk, i, (struct job){ .write = true, .offset = offset, .len = len });
}

int zero_disk_wait(struct zero_disk *disk, int i)
{
	struct job *job = &disk->jobs[i];
	bool busy;

	do {
		turn(disk);
		busy = job->pending > 0 || job->given < job->len;
		/* This also sends what was prepared for other buffers. */
		if (!submit(disk, busy))
			return tell_broken(disk);
	} while (busy);
	return job->failed ? tell_failed(disk, job) : 0;
}

int zero_disk_check(const struct zero_disk *disk)
{
	struct stat s;

	if (!has_its_name(disk))
		return kolo_error_set(KOLO_ESYS,
				      "%s: it was removed or replaced while it was in use: " LOST,
				      zero_path_end(disk->path));
	if (fstat(disk->fd, &s) == 0 && (uint64_t)s.st_size < disk->bytes)
		return kolo_error_set(KOLO_ESYS, "%s: truncated: has %llu bytes of %llu: " LOST,
				      zero_path_end(disk->path), (unsigned long long)s.st_size,
				      (unsigned long long)disk->bytes);
	return 0;
}

void zero_disk_counts(const struct zero_disk *disk, uint64_t *read_bytes, uint64_t *written_bytes)
{
	*read_bytes = disk->read_bytes;
	*written_bytes = disk->written_bytes;
}
