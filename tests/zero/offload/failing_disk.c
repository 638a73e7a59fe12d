/* See failing_disk.h. */
#include "tests/zero/offload/failing_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct disk_system t_system;

int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __real_io_uring_register_buffers(struct io_uring *ring, const struct iovec *each, unsigned n);
int __real_io_uring_submit(struct io_uring *ring);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_register_buffers(struct io_uring *ring, const struct iovec *each, unsigned n);
int __wrap_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t len);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_flock(int fd, int how);
int __real_flock(int fd, int how);

static bool chance(void)
{
	return t_random(&t_system.seed) % 3 == 0;
}

int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	return t_system.setup ? -t_system.setup : __real_io_uring_queue_init(entries, ring, flags);
}

int __wrap_io_uring_register_buffers(struct io_uring *ring, const struct iovec *each, unsigned n)
{
	return t_system.no_registered ? -ENOMEM : __real_io_uring_register_buffers(ring, each, n);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (!t_system.no_fallocate)
		return __real_fallocate(fd, mode, offset, len);
	errno = EOPNOTSUPP;
	return -1;
}

int __wrap_fcntl(int fd, int command, ...)
{
	va_list args;
	int flags;

	va_start(args, command);
	flags = va_arg(args, int);
	va_end(args);
	if (!t_system.no_direct || command != F_SETFL || !(flags & O_DIRECT))
		return __real_fcntl(fd, command, flags);
	errno = EINVAL;
	return -1;
}

int __wrap_flock(int fd, int how)
{
	char link[64], path[256];

	if (t_system.vanish > 0 && how == LOCK_EX) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, path, sizeof(path) - 1);
		path[len < 0 ? 0 : len] = 0;
		CHECK(unlink(path) == 0);
		t_system.vanish--;
	}
	return __real_flock(fd, how);
}

/* Requests under way that are answered as a file system does which refuses direct access late. */
static uint64_t refused[16];

/* The place of the request among those that are refused; -1: it is not refused. */
static int find_refused(uint64_t request)
{
	for (int k = 0; k < (int)ARRAY_LEN(refused); k++)
		if (refused[k] == request)
			return k;
	return -1;
}

static void refuse_if_direct(const struct io_uring_sqe *entry)
{
	int free = find_refused(0);

	if (!(__real_fcntl(entry->fd, F_GETFL, 0) & O_DIRECT) ||
	    find_refused(entry->user_data) >= 0)
		return;
	CHECK(free >= 0);
	refused[free] = entry->user_data;
}

/* What is prepared and not yet the system's. */
static void change_requests(struct io_uring *ring)
{
	for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
		struct io_uring_sqe *entry = &ring->sq.sqes[i & *ring->sq.kring_mask];

		if (t_system.shorten && entry->len > PAGE && chance())
			entry->len =
				(unsigned)(1 + t_random(&t_system.seed) % (entry->len / PAGE)) *
				PAGE;
		if (t_system.bad_files > 0 && --t_system.bad_file <= 0) {
			t_system.bad_files--;
			entry->fd = -1;
		}
		if (t_system.refuse_direct)
			refuse_if_direct(entry);
	}
}

/* What is done and not yet taken up. */
static void change_answers(struct io_uring *ring)
{
	unsigned end = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);

	for (unsigned i = *ring->cq.khead; i != end; i++) {
		struct io_uring_cqe *done = &ring->cq.cqes[i & *ring->cq.kring_mask];
		int k = find_refused(done->user_data);

		if (t_system.repeat && chance())
			done->res = chance() ? -EINTR : -EAGAIN;
		if (t_system.answers > 0) {
			t_system.answers--;
			done->res = -t_system.answer;
		}
		if (k >= 0) {
			refused[k] = 0;
			done->res = -EINVAL;
		}
	}
}

static int submit(struct io_uring *ring, unsigned n)
{
	int rc;

	if (t_system.broken)
		return -t_system.broken;
	if (t_system.refuse && !chance())
		return chance() ? -EINTR : chance() ? -EBUSY : -EAGAIN;
	change_requests(ring);
	rc = n ? __real_io_uring_submit_and_wait(ring, n) : __real_io_uring_submit(ring);
	change_answers(ring);
	return rc;
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
	return submit(ring, 0);
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	return submit(ring, n);
}

/* ---- A directory, and a file in it ----------------------------------------------------------- */

void make_directory(struct fixture *f, const struct zero_disk_attr *attr)
{
	*f = (struct fixture){ .dir = "/var/tmp/kolo-test-XXXXXX",
			       .attr = *attr }; /* /tmp may be memory */
	CHECK(mkdtemp(f->dir));
	f->attr.dir = f->dir;
	f->attr.buffers = aligned_alloc(PAGE, (size_t)attr->nbuffers * attr->buffer_len);
	CHECK(f->attr.buffers);
	memset(f->attr.buffers, 0, (size_t)attr->nbuffers * attr->buffer_len);
}

void make_fixture(struct fixture *f, uint64_t bytes, int nbuffers, size_t buffer_len)
{
	memset(&t_system, 0, sizeof(t_system));
	make_directory(f, &(struct zero_disk_attr){ .what = "optimizer",
						    .rank = 3,
						    .bytes = bytes,
						    .nbuffers = nbuffers,
						    .buffer_len = buffer_len,
						    .block = 4 * PAGE,
						    .depth = 3 });
}

void open_fixture(struct fixture *f, uint64_t bytes, int nbuffers, size_t buffer_len)
{
	make_fixture(f, bytes, nbuffers, buffer_len);
	CHECK(zero_disk_open(&f->attr, &f->disk) == 0);
}

void close_fixture(struct fixture *f)
{
	zero_disk_close(f->disk);
	free(f->attr.buffers);
	CHECK(rmdir(f->dir) == 0);
}

char *buffer_of(const struct fixture *f, int i)
{
	return f->attr.buffers + (size_t)i * f->attr.buffer_len;
}

int look_into(const char *dir, char *path, size_t len)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	int n = 0;

	CHECK(d);
	while ((entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		CHECK(snprintf(path, len, "%s/%s", dir, entry->d_name) < (int)len);
		n++;
	}
	closedir(d);
	return n;
}

void path_of_file(const struct fixture *f, char *path, size_t len)
{
	CHECK(look_into(f->dir, path, len) == 1 && strstr(path, "/kolo-optimizer-rank3-"));
}

void check_error(int rc, int want, const char *a, const char *b)
{
	CHECK(rc == want);
	CHECK(strstr(kolo_last_error(), a));
	CHECK(strstr(kolo_last_error(), b));
}

void pass_through(const struct fixture *f, int nunits, uint64_t pass, uint64_t mine)
{
	int n = f->attr.nbuffers, ahead = n / 2;
	size_t len = f->attr.buffer_len;

	for (int step = 0; step < nunits + ahead; step++) {
		int unit = step - ahead, here = (unit + n) % n;
		uint64_t before = mine + pass * 1000 + (uint64_t)unit, after = before + 1000;
		uint64_t *words = (uint64_t *)buffer_of(f, here);

		if (step < nunits) {
			CHECK(zero_disk_wait(f->disk, step % n) == 0);
			if (pass > 0)
				CHECK(zero_disk_read(f->disk, step % n, (uint64_t)step * len,
						     len) == 0);
		}
		if (unit < 0)
			continue;
		CHECK(zero_disk_wait(f->disk, here) == 0);
		for (size_t w = 0; w < len / sizeof(*words); w++) {
			CHECK(pass == 0 || words[w] == before + w);
			words[w] = after + w;
		}
		CHECK(zero_disk_write(f->disk, here, (uint64_t)unit * len, len) == 0);
	}
	for (int i = 0; i < n; i++)
		CHECK(zero_disk_wait(f->disk, i) == 0);
}
