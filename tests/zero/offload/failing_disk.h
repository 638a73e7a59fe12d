/* What tests of files for offloaded state (zero/offload/disk.h) share: a system that lacks
 * something or works badly, and a directory with a file of one rank's in it. The linker puts
 * failing_disk.c's versions in front of liburing's and the system's (tests.mk has the list). */
#ifndef TESTS_ZERO_OFFLOAD_FAILING_DISK_H
#define TESTS_ZERO_OFFLOAD_FAILING_DISK_H

#include "tests/lib/t.h"
#include "zero/offload/disk.h"

#include <sys/types.h>

enum { PAGE = 4096 };

extern struct disk_system {
	int setup;          /* errno of a ring that can't be made */
	bool no_registered; /* buffers */
	bool no_direct;     /* access */
	bool refuse_direct; /* access, by the answers to requests alone */
	bool no_fallocate;
	bool shorten;            /* requests do a part of what they are to do */
	bool repeat;             /* they end with EINTR and EAGAIN although done */
	bool refuse;             /* the system takes them the third time or so */
	int broken;              /* errno of a ring that takes nothing */
	int bad_file, bad_files; /* bad_file - 1 requests are good, and the next bad_files go to no
				    file */
	int answer, answers;     /* errno that the next `answers` requests end with although done */
	int vanish;              /* so many files are removed by others before they are locked */
	uint64_t seed;
} t_system;

int __real_fallocate(int fd, int mode, off_t offset, off_t len);
int __real_fcntl(int fd, int command, ...);

struct fixture {
	char dir[64];
	struct zero_disk_attr attr; /* with 3 requests of 16 KiB */
	struct zero_disk *disk;
};

/* A system that works well, an empty directory on a disk, and buffers; open_fixture: a file in it
 * too. */
void make_fixture(struct fixture *f, uint64_t bytes, int nbuffers, size_t buffer_len);
void open_fixture(struct fixture *f, uint64_t bytes, int nbuffers, size_t buffer_len);

/* The same of a given file, without a look at the system. */
void make_directory(struct fixture *f, const struct zero_disk_attr *attr);

/* Closes the file; nothing is left in the directory then. */
void close_fixture(struct fixture *f);

char *buffer_of(const struct fixture *f, int i);

/* How many entries a directory has; path: of one of them. */
int look_into(const char *dir, char *path, size_t len);

/* The only entry. */
void path_of_file(const struct fixture *f, char *path, size_t len);

/* Passes over `nunits` units of a buffer's size, as updates do: half of the buffers are read ahead,
 * the others written behind. Each pass checks what the one before wrote, from pass 0 on, which only
 * writes; `mine` makes values differ from others'. */
void pass_through(const struct fixture *f, int nunits, uint64_t pass, uint64_t mine);

/* The status is `want`, and the last error has both texts. */
void check_error(int rc, int want, const char *a, const char *b);

#endif
