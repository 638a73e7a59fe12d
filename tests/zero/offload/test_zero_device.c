/* Devices: each passes every case of device_cases.c. Then what is the arena's own: memory that
 * traps, a bandwidth, limits of the system, and calls that fail. */
#include "tests/cuda/gpu.h"
#include "tests/lib/failing.h"
#include "tests/lib/t.h"
#include "tests/zero/offload/device_cases.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int open_arena(struct kolo_zero_device **out)
{
	return kolo_zero_arena_open((size_t)64 << 20, 0, out);
}

/* 200 MB a second, and no whole number of pages. */
static int open_slow_arena(struct kolo_zero_device **out)
{
	return kolo_zero_arena_open(((size_t)64 << 20) + 77, 2e8, out);
}

static int open_cuda(struct kolo_zero_device **out)
{
	t_gpu_use();
	return kolo_zero_cuda_open(0, out);
}

static const struct t_device rows[] = {
	{ "arena", open_arena, true },
	{ "arena with a bandwidth", open_slow_arena, true },
	{ "cuda, on threads", open_cuda, false },
};

static void every_device_passes_every_case(void **state)
{
	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(rows); k++)
		t_device_cases(&rows[k]);
}

/* ---- The arena ------------------------------------------------------------------------------- */

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

static struct kolo_zero_device *open_with(size_t budget, double bandwidth)
{
	struct kolo_zero_device *d = NULL;

	CHECK(kolo_zero_arena_open(budget, bandwidth, &d) == 0);
	return d;
}

static void *allocate(struct kolo_zero_device *d, size_t bytes, const char *what)
{
	void *memory = NULL;

	CHECK(kolo_zero_device_alloc(d, bytes, what, &memory) == 0);
	return memory;
}

static struct kolo_zero_device_info told(struct kolo_zero_device *d)
{
	struct kolo_zero_device_info info;

	kolo_zero_device_get(d, &info);
	return info;
}

static void opening_an_arena_checks_its_arguments(void **state)
{
	struct kolo_zero_device *d = (struct kolo_zero_device *)&d;

	(void)state;
	CHECK(says(kolo_zero_arena_open(1 << 20, 0, NULL), KOLO_EINVAL, "out"));
	CHECK(says(kolo_zero_arena_open(0, 0, &d), KOLO_EINVAL, "budget of 0 bytes") && !d);
	CHECK(says(kolo_zero_arena_open(1 << 20, -1, &d), KOLO_EINVAL, "-1 bytes a second") && !d);
	CHECK(says(kolo_zero_arena_open(1 << 20, NAN, &d), KOLO_EINVAL, "nan") && !d);
}

/* Nothing is reserved when it is opened, so that a plan can be made for any machine. */
static void a_budget_may_be_larger_than_the_machine(void **state)
{
	static const struct {
		size_t budget;
		const char *name;
	} machines[] = { { 512, "arena of 0.5 KiB" },
			 { (size_t)80 << 30, "arena of 80.0 GiB" },
			 { (size_t)5 << 40, "arena of 5.0 TiB" },
			 { SIZE_MAX, "arena of 16.0 EiB" } };

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(machines); k++) {
		struct kolo_zero_device *d = open_with(machines[k].budget, 0);
		void *memory;

		CHECK(told(d).budget == machines[k].budget &&
		      strcmp(told(d).name, machines[k].name) == 0);
		CHECK(strcmp(told(d).kind, "arena") == 0);
		/* More than there are addresses for */
		if (machines[k].budget == SIZE_MAX)
			CHECK(says(kolo_zero_device_alloc(d, SIZE_MAX / 2, "a dream", &memory),
				   KOLO_ENOMEM, "the host has no"));
		kolo_zero_device_close(d);
	}
}

static void a_refusal_says_what_is_missing_and_what_is_there(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct kolo_zero_device *d = open_with(8 << 20, 0);
	char text[256];
	void *memory;

	(void)state;
	CHECK(says(
		kolo_zero_device_alloc(d, 9 << 20, "x", &memory), KOLO_ENOMEM,
		"arena of 8.0 MiB: 9437184 bytes for 'x' need 1048576 more than is left of the budget (in "
		"use: nothing)"));
	allocate(d, 1 << 20, "masters");
	allocate(d, (3 << 20) - 1, "gradients");
	allocate(d, 1, "a flag");
	snprintf(text, sizeof(text), "for 'gathered parameters' need %zu more", page);
	CHECK(says(kolo_zero_device_alloc(d, 4 << 20, "gathered parameters", &memory), KOLO_ENOMEM,
		   text));
	snprintf(text, sizeof(text),
		 "(in use: %zu bytes, the largest piece 3145728 for 'gradients')",
		 ((size_t)4 << 20) + page);
	CHECK(strstr(kolo_last_error(), text));
	/* To the page. */
	allocate(d, (4 << 20) - page, "the rest");
	CHECK(told(d).used == told(d).budget);
	CHECK(says(kolo_zero_device_alloc(d, 1, "x", &memory), KOLO_ENOMEM, "1 bytes for 'x'"));
	kolo_zero_device_close(d);
}

/* Touches it in a process of its own: true when that is what ends it. */
static bool traps(const void *memory)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(const volatile char *)memory);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void what_was_released_traps_when_it_is_touched(void **state)
{
	static const size_t sizes[] = { 1, 5000, 7 << 20 };
	struct kolo_zero_device *d = open_with(16 << 20, 0);
	char *kept;

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		char *memory = allocate(d, sizes[k], "x");

		CHECK(!traps(memory) && !traps(memory + sizes[k] - 1));
		kolo_zero_device_free(d, memory, sizes[k]);
		CHECK(traps(memory) && traps(memory + sizes[k] - 1));
	}
	kept = allocate(d, 5 << 20, "x");
	CHECK((uintptr_t)kept % (2 << 20) == 0);
	kolo_zero_device_close(d);
	CHECK(traps(kept) && traps(kept + (5 << 20) - 1));
}

/* As a GPU's copies would not do with it. */
static void copies_of_other_memory_are_refused(void **state)
{
	struct kolo_zero_device *d = open_with(1 << 20, 0);
	char *memory = allocate(d, 8192, "x"), host[16384];
	uint64_t ticket;

	(void)state;
	memset(host, 1, sizeof(host));
	CHECK(says(kolo_zero_device_copy(d, KOLO_ZERO_UP, host, memory, 8), KOLO_EINVAL,
		   "copy up of 8 bytes"));
	CHECK(says(kolo_zero_device_copy(d, KOLO_ZERO_DOWN, memory, host, 8), KOLO_EINVAL,
		   "copy down"));
	CHECK(says(kolo_zero_device_copy(d, KOLO_ZERO_UP, memory + 1, host, 8192), KOLO_EINVAL,
		   "not memory of this device"));
	CHECK(kolo_zero_device_copy(d, KOLO_ZERO_UP, memory + 1, host, 8191) == 0);
	CHECK(says(d->ops->wait(d, KOLO_ZERO_UP, 2), KOLO_EINVAL,
		   "copy 2 of lane 2, which has had 1"));
	CHECK(says(d->ops->wait(d, KOLO_ZERO_NLANES, 0), KOLO_EINVAL, "lane 3"));
	CHECK(says(d->ops->copy(d, KOLO_ZERO_COMPUTE, memory, host, 8, &ticket), KOLO_EINVAL,
		   "lane 0"));
	CHECK(says(d->ops->work(d, NULL, &ticket), KOLO_EINVAL, "on_host"));
	kolo_zero_device_close(d);
}

/* ---- Bandwidth ------------------------------------------------------------------------------- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const enum kolo_zero_lane lanes[] = { KOLO_ZERO_DOWN, KOLO_ZERO_UP };

static uint64_t start(struct kolo_zero_device *d, enum kolo_zero_lane lane, void *memory,
		      char *host, size_t len)
{
	bool up = lane == KOLO_ZERO_UP;
	uint64_t ticket = 0;

	CHECK(d->ops->copy(d, lane, up ? memory : host, up ? host : memory, len, &ticket) == 0);
	return ticket;
}

static void a_copy_takes_as_long_as_the_bandwidth_says(void **state)
{
	static const size_t sizes[] = { 1, 4096, 300000, 1 << 20 };
	static char host[1 << 20];
	struct kolo_zero_device *d = open_with(4 << 20, 2e7);
	void *memory = allocate(d, sizeof(host), "x");

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(lanes) * ARRAY_LEN(sizes); k++) {
		size_t bytes = sizes[k / 2];
		double begin = now();

		d->ops->wait(d, lanes[k % 2], start(d, lanes[k % 2], memory, host, bytes));
		CHECK(now() - begin >= (double)bytes / 2e7);
	}
	kolo_zero_device_close(d);
}

/* However many there are: it is the lane's, each lane's own. */
static void copies_share_their_lanes_bandwidth(void **state)
{
	enum { N = 50, LEN = 10000 };
	static char host[2][N * LEN];
	struct kolo_zero_device *d = open_with(4 << 20, 5e6);
	char *memory[2] = { allocate(d, N * LEN, "a"), allocate(d, N * LEN, "b") };
	double begin = now();
	uint64_t tickets[2][N];

	(void)state;
	for (size_t k = 0; k < N; k++)
		for (int l = 0; l < 2; l++)
			tickets[l][k] =
				start(d, lanes[l], memory[l] + k * LEN, host[l] + k * LEN, LEN);
	for (size_t k = 0; k < N; k++)
		for (int l = 0; l < 2; l++) {
			CHECK(d->ops->wait(d, lanes[l], tickets[l][k]) == 0);
			CHECK(now() - begin >= (double)((k + 1) * LEN) / 5e6);
		}
	/* A time without copies is not saved up. */
	usleep(20000);
	begin = now();
	d->ops->wait(d, KOLO_ZERO_UP, start(d, KOLO_ZERO_UP, memory[0], host[0], 5 * LEN));
	CHECK(now() - begin >= 5 * LEN / 5e6);
	kolo_zero_device_close(d);
}

static void closing_waits_for_copies_on_the_way(void **state)
{
	enum { N = 20, LEN = 10000 };
	static char host[N * LEN];
	struct kolo_zero_device *d = open_with(4 << 20, 5e6);
	char *memory = allocate(d, N * LEN, "x");

	(void)state;
	memset(memory, 3, N * LEN);
	for (size_t k = 0; k < N; k++)
		start(d, KOLO_ZERO_DOWN, memory + k * LEN, host + k * LEN, LEN);
	kolo_zero_device_close(d);
	for (size_t i = 0; i < sizeof(host); i++)
		CHECK(host[i] == 3);
}

/* A signal for the process is for the program's own threads, though those of the arena are idle. */
static void an_arenas_threads_get_no_signals(void **state)
{
	static const struct timespec at_once;
	struct kolo_zero_device *d = open_with(1 << 20, 0);
	sigset_t usr1, before;

	(void)state;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &usr1, &before) == 0 && !sigismember(&before, SIGUSR1));
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(sigtimedwait(&usr1, NULL, &at_once) == SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	kolo_zero_device_close(d);
}

/* ---- Locked memory --------------------------------------------------------------------------- */

/* The system would unlock a page for all. */
static void pins_that_share_pages_keep_them(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), before;
	struct kolo_zero_device *d = open_with(1 << 20, 0);
	bool locks = t_can_lock();
	char *host =
		mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct {
		bool pin;
		size_t at, bytes, pages; /* locked afterwards */
	} steps[] = { { true, 10, 4, 1 },
		      { true, 20, 2 * page, 3 },
		      { true, 2 * page + 100, page, 4 },
		      { false, 20, 2 * page, 3 }, /* the second page alone */
		      { true, 0, 4, 3 },
		      { false, 10, 4, 3 },
		      { false, 0, 4, 2 },
		      { false, 0, 4, 2 },
		      { true, 2 * page + 8, 0, 2 },
		      /* One within another, and one around others, in any order. */
		      { true, 0, 4 * page, 4 },
		      { false, 2 * page + 100, page, 4 },
		      { true, page + 5, 3, 4 },
		      { false, 0, 4 * page, 1 },
		      { true, 1, 4 * page - 1, 4 },
		      { false, page + 5, 3, 4 },
		      { false, 1, 4 * page - 1, 0 } };

	(void)state;
	CHECK(host != MAP_FAILED);
	before = t_locked_bytes();
	for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
		if (steps[k].pin)
			CHECK(d->ops->pin(d, host + steps[k].at, steps[k].bytes) == 0);
		else
			d->ops->unpin(d, host + steps[k].at, steps[k].bytes);
		CHECK(told(d).pinned == steps[k].pages * page);
		CHECK(!locks || t_locked_bytes() == before + told(d).pinned);
	}
	kolo_zero_device_close(d);
	CHECK(t_locked_bytes() == before);
	munmap(host, 4 * page);
}

/* Without root's rights. */
static void pin_beyond_the_limit(void)
{
	const struct rlimit limit = { 0, 0 };
	const struct passwd *nobody = getpwnam("nobody");
	struct kolo_zero_device *d = open_with(1 << 20, 0);
	static char host[20000];

	CHECK(nobody && setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setuid(nobody->pw_uid) == 0);
	CHECK(says(d->ops->pin(d, host, sizeof(host)), KOLO_ESYS, "RLIMIT_MEMLOCK is 0 bytes"));
	CHECK(strstr(kolo_last_error(), "ulimit -l") &&
	      strstr(kolo_last_error(), "\"pin_memory\": false"));
	CHECK(told(d).pinned == 0);
	d->ops->unpin(d, host, sizeof(host));
	CHECK(told(d).pinned == 0);
	kolo_zero_device_close(d);
	_exit(0);
}

static void a_limit_of_locked_memory_is_named(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0 || !t_can_lock())
		skip();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		pin_beyond_the_limit();
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* ---- What fails ------------------------------------------------------------------------------ */

/* All that an arena asks the system for. Copies go on where there is no memory for a longer
 * queue. */
static int use_arena(struct kolo_zero_device **out)
{
	enum { N = 300, LEN = 5000 };
	static char host[N * LEN];
	struct kolo_queue *queue = NULL;
	uint64_t ticket = 0;
	void *memory = NULL;
	int rc = kolo_zero_arena_open(8 << 20, 3e7, out);

	CHECK((*out == NULL) == (rc < 0));
	if (rc == 0)
		rc = kolo_zero_device_alloc(*out, 3 << 20, "x", &memory);
	for (size_t k = 0; k < N && rc == 0; k++)
		rc = (*out)->ops->copy(*out, KOLO_ZERO_UP, (char *)memory + k * LEN, host + k * LEN,
				       LEN, &ticket);
	if (rc == 0)
		rc = (*out)->ops->wait(*out, KOLO_ZERO_UP, N);
	if (rc == 0)
		CHECK(ticket == N && memcmp(memory, host, sizeof(host)) == 0);
	if (rc == 0)
		rc = (*out)->ops->pin(*out, host, sizeof(host));
	if (rc == 0)
		rc = (*out)->ops->queue(*out, &queue);
	kolo_queue_destroy(queue);
	return rc;
}

static void each_call_to_the_system_fails_once(void **state)
{
	long k = 0, before = t_live, failed = 0;

	(void)state;
	t_is_rank = true;
	for (bool all = false; !all;) {
		struct kolo_zero_device *d = NULL;
		int rc;

		t_countdown = ++k;
		kolo_error_set(0, "");
		rc = use_arena(&d);
		all = t_countdown > 0;
		t_countdown = 0;
		CHECK(rc == 0 || ((rc == KOLO_ENOMEM || rc == KOLO_ESYS) && *kolo_last_error()));
		failed += rc < 0;
		if (d)
			CHECK(told(d).used == (rc < 0 && told(d).peak == 0 ? 0 : (size_t)3 << 20));
		kolo_zero_device_close(d);
		CHECK(t_live == before);
	}
	t_is_rank = false;
	/* An arena, two lanes, two threads, a block, its memory, a pin, a queue and its thread; not
	 * the queues' growth */
	CHECK(failed >= 10 && k - 1 > failed);
}

/* The system has no pages for what it gave addresses for; tests.mk puts this one in front of its
 * own. */
static bool no_pages;

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);

int __wrap_madvise(void *at, size_t len, int advice)
{
#ifdef MADV_POPULATE_WRITE
	if (no_pages && advice == MADV_POPULATE_WRITE) {
		errno = ENOMEM;
		return -1;
	}
#endif
	return __real_madvise(at, len, advice);
}

static void memory_without_pages_is_refused(void **state)
{
#ifdef MADV_POPULATE_WRITE
	struct kolo_zero_device *d = open_with(8 << 20, 0);
	void *memory = &memory;
	int rc;

	(void)state;
	no_pages = true;
	rc = kolo_zero_device_alloc(d, 5 << 20, "masters", &memory);
	no_pages = false;
	CHECK(says(rc, KOLO_ENOMEM, "the host has no 5242880 bytes for 'masters'") && !memory);
	CHECK(told(d).used == 0 && told(d).peak == 0);
	allocate(d, 8 << 20, "masters");
	kolo_zero_device_close(d);
#else
	(void)state;
	skip();
#endif
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_device_passes_every_case),
	cmocka_unit_test(opening_an_arena_checks_its_arguments),
	cmocka_unit_test(a_budget_may_be_larger_than_the_machine),
	cmocka_unit_test(a_refusal_says_what_is_missing_and_what_is_there),
	cmocka_unit_test(what_was_released_traps_when_it_is_touched),
	cmocka_unit_test(copies_of_other_memory_are_refused),
	cmocka_unit_test(a_copy_takes_as_long_as_the_bandwidth_says),
	cmocka_unit_test(copies_share_their_lanes_bandwidth),
	cmocka_unit_test(closing_waits_for_copies_on_the_way),
	cmocka_unit_test(an_arenas_threads_get_no_signals),
	cmocka_unit_test(pins_that_share_pages_keep_them),
	cmocka_unit_test(a_limit_of_locked_memory_is_named),
	cmocka_unit_test(each_call_to_the_system_fails_once),
	cmocka_unit_test(memory_without_pages_is_refused),
};

T_MAIN(tests)
