/* Files for offloaded state (zero/offload/disk.h): room, names, locks and leftovers, and systems
 * that lack something. */
#include "tests/lib/failing.h"
#include "tests/zero/offload/failing_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Room ------------------------------------------------------------------------------------ */

/* With 8 MiB in all. */
static void check_small_disk(struct fixture *f)
{
	char path[256];
	int fd;

	for (int k = 0; k < 2; k++) {
		t_system.no_fallocate = k == 1;
		f->attr.bytes = 64 << 20;
		check_error(zero_disk_open(&f->attr, &f->disk), KOLO_ESYS, f->dir,
			    "No space left on device: 64 MiB are wanted and 8 MiB are free");
		CHECK(strstr(kolo_last_error(), "nvme_path") &&
		      strstr(kolo_last_error(), "a smaller ratio"));
		CHECK(!f->disk && look_into(f->dir, path, sizeof(path)) == 0);
	}
	/* There is room when it is opened, and there is none when it is written. */
	f->attr.bytes = 6 << 20;
	CHECK(zero_disk_open(&f->attr, &f->disk) == 0);
	path_of_file(f, path, sizeof(path));
	strcat(path, ".other");
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(__real_fallocate(fd, 0, 0, 7 << 20) == 0 && close(fd) == 0);
	CHECK(zero_disk_write(f->disk, 0, 1 << 20, 2 << 20) == 0);
	check_error(zero_disk_wait(f->disk, 0), KOLO_ESYS, "/kolo-optimizer-rank3-",
		    "No space left on device");
	CHECK(unlink(path) == 0);
	zero_disk_close(f->disk);
	f->disk = NULL;
	CHECK(look_into(f->dir, path, sizeof(path)) == 0);
}

static void a_full_disk_is_told_with_what_is_wanted_and_what_is_there(void **state)
{
	struct fixture f;
	bool mounted;

	(void)state;
	make_fixture(&f, 64 << 20, 1, 2 << 20);
	mounted = unshare(CLONE_NEWNS) == 0 &&
		  mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		  mount("kolo", f.dir, "tmpfs", 0, "size=8m") == 0;
	if (mounted) {
		check_small_disk(&f);
		CHECK(umount2(f.dir, MNT_DETACH) == 0);
	}
	close_fixture(&f);
	if (!mounted)
		skip();
}

static void grow_beyond_limit(struct t_rank *t)
{
	struct fixture f = *(struct fixture *)t->arg;
	struct rlimit limit = { 10 * PAGE, 10 * PAGE };
	char path[256];

	signal(SIGXFSZ, SIG_IGN);
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	check_error(zero_disk_open(&f.attr, &f.disk), KOLO_ESYS, "/kolo-optimizer-rank3-",
		    "File too large");
	CHECK(!f.disk && look_into(f.dir, path, sizeof(path)) == 0);
	free(f.attr.buffers);
}

static void a_limit_of_file_sizes_is_told(void **state)
{
	struct fixture f;

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	t_processes(1, grow_beyond_limit, &f);
	close_fixture(&f);
}

static void room_is_taken_when_a_file_is_opened(void **state)
{
	struct fixture f;
	struct stat s;
	char path[256];

	open_fixture(&f, 1 << 20, 1, PAGE);
	(void)state;
	path_of_file(&f, path, sizeof(path));
	CHECK(stat(path, &s) == 0 && s.st_size == 1 << 20 && (s.st_mode & 0777) == 0600);
	CHECK((uint64_t)s.st_blocks * 512 >= 1 << 20);
	zero_disk_close(f.disk);
	t_system.no_fallocate = true;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
	path_of_file(&f, path, sizeof(path));
	CHECK(stat(path, &s) == 0 && s.st_size == 1 << 20);
	close_fixture(&f);
}

/* ---- Names, locks and leftovers -------------------------------------------------------------- */

static void die_at_work(struct t_rank *t)
{
	struct fixture f = *(struct fixture *)t->arg;

	f.attr.rank = 7;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(zero_disk_write(f.disk, i, (uint64_t)i * 8 * PAGE, 8 * PAGE) == 0);
	kill(getpid(), SIGKILL);
}

static void what_a_killed_process_left_is_removed(void **state)
{
	int64_t deadline = t_now_ms() + 20000;
	struct fixture f;
	char path[256];
	int pid;

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	t_start(1, die_at_work, &f, &pid);
	t_wait(1, &pid, 0);
	CHECK(look_into(f.dir, path, sizeof(path)) == 1 && strstr(path, "-rank7-"));
	/* Once the system has ended what was on its way. */
	do {
		zero_disk_close(f.disk);
		CHECK(t_now_ms() < deadline && zero_disk_open(&f.attr, &f.disk) == 0);
	} while (look_into(f.dir, path, sizeof(path)) > 1);
	path_of_file(&f, path, sizeof(path));
	close_fixture(&f);
}

/* What nobody has locked yet may be taken for a leftover: then there is another one. */
static void a_file_that_vanishes_before_it_is_locked_is_made_again(void **state)
{
	struct fixture f;

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	t_system.vanish = 3;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
	CHECK(t_system.vanish == 0 && zero_disk_check(f.disk) == 0);
	zero_disk_close(f.disk);
	t_system.vanish = 1 << 20;
	check_error(zero_disk_open(&f.attr, &f.disk), KOLO_ESYS, f.dir,
		    "vanish as soon as they are made");
	CHECK(!f.disk);
	close_fixture(&f);
}

static void open_beside(struct t_rank *t)
{
	struct fixture f = *(struct fixture *)t->arg;

	f.attr.rank = 8;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
	zero_disk_close(f.disk);
	free(f.attr.buffers);
}

static void what_is_in_use_or_not_ours_stays(void **state)
{
	static const char *const others[] = { "kolo-optimizer-rank3-0123456789abcde.state",
					      "kolo-optimizer-rank3-0123456789abcdeg.state",
					      "kolo-optimizer-rank3-0123456789abcdef.state.bak",
					      "kolo-optimizer-rank03-0123456789abcdef.state",
					      "kolo-optimizer-rank3-0123456789ABCDEF.state",
					      "optimizer.state" };
	struct fixture f;
	char path[256], link[256];

	open_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(others); k++) {
		snprintf(path, sizeof(path), "%s/%s", f.dir, others[k]);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	/* A name of ours that is no file */
	snprintf(link, sizeof(link), "%s/kolo-optimizer-rank3-0123456789abcdef.state", f.dir);
	CHECK(symlink("optimizer.state", link) == 0);
	t_processes(2, open_beside, &f);
	CHECK(zero_disk_check(f.disk) == 0);
	CHECK(unlink(link) == 0);
	for (size_t k = 0; k < ARRAY_LEN(others); k++) {
		snprintf(path, sizeof(path), "%s/%s", f.dir, others[k]);
		CHECK(unlink(path) == 0);
	}
	close_fixture(&f);
}

static void a_file_stays_its_own_where_the_process_goes_elsewhere(void **state)
{
	struct fixture f;
	char before[4096];

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	CHECK(getcwd(before, sizeof(before)) && chdir(f.dir) == 0);
	f.attr.dir = ".";
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0 && chdir("/") == 0);
	CHECK(zero_disk_check(f.disk) == 0);
	CHECK(chdir(before) == 0);
	close_fixture(&f);
}

/* As somebody who may not write there. */
static void open_as_nobody(struct t_rank *t)
{
	struct fixture f = *(struct fixture *)t->arg;

	CHECK(geteuid() != 0 || seteuid(65534) == 0);
	check_error(zero_disk_open(&f.attr, &f.disk), KOLO_ESYS, f.dir, "Permission denied");
	CHECK(!f.disk && strstr(kolo_last_error(), "nvme_path"));
	/* As before, so that leaks can be looked for. */
	CHECK(seteuid(getuid()) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
	free(f.attr.buffers);
}

static void a_directory_that_can_not_be_used_is_told(void **state)
{
	struct fixture f;
	char file[128], path[5000];

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	CHECK(chmod(f.dir, 0555) == 0);
	t_processes(1, open_as_nobody, &f);
	CHECK(chmod(f.dir, 0700) == 0);
	snprintf(file, sizeof(file), "%s/none", f.dir);
	f.attr.dir = file;
	check_error(zero_disk_open(&f.attr, &f.disk), KOLO_ESYS, file, "No such file or directory");
	close(open(file, O_CREAT | O_WRONLY, 0600));
	check_error(zero_disk_open(&f.attr, &f.disk), KOLO_ESYS, file, "Not a directory");
	CHECK(unlink(file) == 0);
	/* It can be opened, and a name in it is too long; then that itself. */
	for (int len = 4080; len <= 4900; len += 820) {
		int at = snprintf(path, sizeof(path), "%s", f.dir);

		for (; at < len; at++)
			path[at] = at % 2 ? '/' : '.';
		path[at] = 0;
		f.attr.dir = path;
		check_error(zero_disk_open(&f.attr, &f.disk), len < 4096 ? KOLO_EINVAL : KOLO_ESYS,
			    "/",
			    len < 4096 ? "a path of more than 4095 bytes" : "File name too long");
		CHECK(!f.disk);
	}
	close_fixture(&f);
}

/* ---- Systems that lack something ------------------------------------------------------------- */

static void a_system_without_io_uring_is_told(void **state)
{
	static const struct {
		int error, rc;
		const char *why;
	} cases[] = { { ENOSYS, KOLO_ENOTSUP, "this kernel does not have" },
		      { EPERM, KOLO_ENOTSUP, "kernel.io_uring_disabled" },
		      { EACCES, KOLO_ENOTSUP, "seccomp" },
		      { ENOMEM, KOLO_ENOMEM, "ulimit -l" },
		      { EMFILE, KOLO_ESYS, "Too many open files" } };
	struct fixture f;

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		t_system.setup = cases[k].error;
		check_error(zero_disk_open(&f.attr, &f.disk), cases[k].rc, "io_uring",
			    cases[k].why);
		CHECK(!f.disk);
	}
	close_fixture(&f);
}

/* Whether a descriptor of this process for a file in the directory has O_DIRECT. */
static bool is_direct(const struct fixture *f)
{
	char link[64], path[256];

	for (int fd = 0; fd < 100; fd++) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, path, sizeof(path) - 1);
		path[len < 0 ? 0 : len] = 0;
		if (strncmp(path, f->dir, strlen(f->dir)) == 0 && strstr(path, ".state"))
			return __real_fcntl(fd, F_GETFL, 0) & O_DIRECT;
	}
	CHECK(!"the file is open");
	return false;
}

static void a_file_system_without_direct_access_is_used_through_the_cache(void **state)
{
	struct fixture f;
	bool direct;

	(void)state;
	open_fixture(&f, 20 * 9 * PAGE, 4, 9 * PAGE);
	direct = is_direct(&f);
	zero_disk_close(f.disk);
	t_system.no_direct = true;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0 && !is_direct(&f));
	for (uint64_t pass = 0; pass < 2; pass++)
		pass_through(&f, 20, pass, 0);
	zero_disk_close(f.disk);
	/* It is refused by requests only, all that are on their way. */
	t_system.no_direct = false;
	t_system.refuse_direct = true;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0 && is_direct(&f) == direct);
	for (uint64_t pass = 0; pass < 2; pass++)
		pass_through(&f, 20, pass, 0);
	CHECK(!is_direct(&f));
	/* And what is wrong besides is told. */
	t_system.answer = EINVAL;
	t_system.answers = 1;
	CHECK(zero_disk_read(f.disk, 0, 0, PAGE) == 0);
	check_error(zero_disk_wait(f.disk, 0), KOLO_ESYS, f.dir,
		    "reading 4096 bytes at 0: Invalid argument");
	close_fixture(&f);
}

static void every_allocation_fails_once(void **state)
{
	struct fixture f;
	char path[256];
	long k, live;
	int rc;

	(void)state;
	make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	t_is_rank = true;
	live = t_live;
	for (k = 1;; k++) {
		t_countdown = k;
		rc = zero_disk_open(&f.attr, &f.disk);
		t_countdown = 0;
		if (rc == 0)
			break;
		CHECK(rc == KOLO_ENOMEM && !f.disk && strstr(kolo_last_error(), "out of memory"));
		CHECK(t_live == live && look_into(f.dir, path, sizeof(path)) == 0);
	}
	CHECK(k > 5);
	zero_disk_close(f.disk);
	f.disk = NULL;
	CHECK(t_live == live);
	zero_disk_close(NULL);
	close_fixture(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_full_disk_is_told_with_what_is_wanted_and_what_is_there),
	cmocka_unit_test(a_limit_of_file_sizes_is_told),
	cmocka_unit_test(room_is_taken_when_a_file_is_opened),
	cmocka_unit_test(what_a_killed_process_left_is_removed),
	cmocka_unit_test(a_file_that_vanishes_before_it_is_locked_is_made_again),
	cmocka_unit_test(what_is_in_use_or_not_ours_stays),
	cmocka_unit_test(a_file_stays_its_own_where_the_process_goes_elsewhere),
	cmocka_unit_test(a_directory_that_can_not_be_used_is_told),
	cmocka_unit_test(a_system_without_io_uring_is_told),
	cmocka_unit_test(a_file_system_without_direct_access_is_used_through_the_cache),
	cmocka_unit_test(every_allocation_fails_once),
};

T_MAIN(tests)
