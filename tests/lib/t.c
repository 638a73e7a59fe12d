/* See t.h. */
#include "tests/lib/t.h"

#include "comm/core/transports.h"
#include "comm/transport/link.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* gcc says so by macros, clang by features. */
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { T_SANITIZED = 1, T_SEES_RACES = 1 };
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { T_SANITIZED = 1, T_SEES_RACES = 0 };
#else
enum { T_SANITIZED = 0, T_SEES_RACES = 0 };
#endif

static pid_t main_process;
static _Thread_local int my_rank = -1;

#ifdef T_PLAIN
static jmp_buf failed;

static void fail_test(const char *file, int line)
{
	(void)file, (void)line;
	longjmp(failed, 1);
}
#else
static void fail_test(const char *file, int line)
{
	_fail(file, line);
}
#endif

static void show_stack(int sig)
{
	void *frames[64];

	fprintf(stderr, "# process %d: signal %d\n", (int)getpid(), sig);
	backtrace_symbols_fd(frames, backtrace(frames, ARRAY_LEN(frames)), STDERR_FILENO);
	_exit(99);
}

void t_check(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "# %s:%d: rank %d: not true: %s (last error: %s; T_SEED=%llu%s)\n", file,
		line, my_rank, what, kolo_last_error(), (unsigned long long)t_seed(),
		t_is_long() ? " T_LONG=1" : "");
	if (getpid() == main_process && my_rank < 0)
		fail_test(file, line);
	_exit(1);
}

bool t_has_transport(const char *name)
{
	for (size_t i = 0; ko_transports[i]; i++)
		if (strcmp(ko_transports[i]->name, name) == 0)
			return true;
	return false;
}

bool t_is_there(const void *p)
{
	int ends[2];
	bool there;

	CHECK(pipe(ends) == 0);
	/* The kernel looks. Behind the thread sanitizer's back: it may be filled just now. */
	there = syscall(SYS_write, ends[1], p, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return there;
}

int64_t t_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* xorshift64*, seeded so that 0 is as good as any state. */
uint64_t t_random(uint64_t *state)
{
	uint64_t x = *state + 0x9e3779b97f4a7c15;

	*state = x;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t t_seed(void)
{
	const char *seed = getenv("T_SEED");

	return seed ? strtoull(seed, NULL, 10) : 2026;
}

bool t_is_long(void)
{
	return getenv("T_LONG") != NULL;
}

bool t_sampled(uint64_t key, unsigned share)
{
	return t_is_long() || (key % share + t_seed() % share) % share == 0;
}

bool t_is_slow(void)
{
	return T_SANITIZED || getenv("T_SLOW") != NULL;
}

bool t_is_slowest(void)
{
	return T_SEES_RACES;
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

struct kolo_comm *t_comm_with(struct t_rank *t, struct kolo_comm_attr attr)
{
	struct kolo_comm *comm;

	attr.id = &t->id;
	attr.rank = t->rank;
	attr.nranks = t->nranks;
	CHECK(kolo_comm_create(&attr, &comm) == 0);
	return comm;
}

struct kolo_comm *t_comm(struct t_rank *t)
{
	return t_comm_with(
		t, (struct kolo_comm_attr){ .slot_len = 4096, .timeout_s = T_PATIENCE / 2 });
}

/* In a new process: it ends with the test's, and crashes are not cmocka's business there. */
static void leave_cmocka(void)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != main_process)
		_exit(1);
	for (size_t i = 0; i < ARRAY_LEN(crashes); i++)
		signal(crashes[i], show_stack);
}

static int server; /* the process that serves the ids of t_start; one at a time */

/* An id served by a process of its own: this one stays without threads, so that sanitizers survive
 * its forks. */
static void start_server(struct kolo_id *out)
{
	int fds[2];

	CHECK(pipe(fds) == 0);
	fflush(NULL);
	server = fork();
	CHECK(server >= 0);
	if (server == 0) {
		struct kolo_id id;

		leave_cmocka();
		CHECK(kolo_id_create(&id) == 0 && write(fds[1], &id, sizeof(id)) == sizeof(id));
		while (true)
			pause();
	}
	close(fds[1]);
	CHECK(read(fds[0], out, sizeof(*out)) == sizeof(*out));
	close(fds[0]);
}

static void stop_server(void)
{
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	server = 0;
}

void t_start(int n, t_rank_fn *fn, void *arg, int *pids)
{
	struct t_rank t = { .nranks = n, .arg = arg };

	start_server(&t.id);
	for (int rank = 0; rank < n; rank++) {
		t.rank = rank;
		pids[rank] = fork();
		CHECK(pids[rank] >= 0);
		if (pids[rank] > 0)
			continue;
		leave_cmocka();
		my_rank = rank;
		fn(&t);
		exit(0); /* not _exit: leaks are looked for on the way out */
	}
}

/* Seconds that ranks may take; a sample takes a tenth of the whole. */
static int patience(void)
{
	return t_is_long() ? 10 * T_PATIENCE : T_PATIENCE;
}

/* Waits for one of the processes until the deadline; then it has to show its stack. */
static int wait_one(int pid, int64_t deadline)
{
	int status;
	pid_t got;

	while ((got = waitpid(pid, &status, WNOHANG)) == 0 && t_now_ms() < deadline)
		usleep(1000);
	if (got == 0) {
		fprintf(stderr, "# process %d hangs; its stack:\n", pid);
		kill(pid, SIGCONT);
		kill(pid, SIGALRM);
		usleep(500000);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	return status;
}

void t_wait(int n, const int *pids, int may_die)
{
	int64_t deadline = t_now_ms() + patience() * 1000;
	bool good = true;

	for (int rank = 0; rank < n; rank++) {
		int status = wait_one(pids[rank], deadline);

		if (status == 0 ||
		    (rank == may_die && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			continue;
		fprintf(stderr, "# rank %d ended with status 0x%x\n", rank, status);
		good = false;
	}
	stop_server();
	CHECK(good);
}

void t_processes(int n, t_rank_fn *fn, void *arg)
{
	int pids[T_MAX_RANKS];

	CHECK(n <= T_MAX_RANKS);
	t_start(n, fn, arg, pids);
	t_wait(n, pids, -1);
}

void t_workers(int n, void (*fn)(int worker, void *arg), void *arg)
{
	int pids[T_MAX_RANKS];

	CHECK(n <= T_MAX_RANKS);
	fflush(NULL);
	for (int worker = 0; worker < n; worker++) {
		pids[worker] = fork();
		CHECK(pids[worker] >= 0);
		if (pids[worker] > 0)
			continue;
		leave_cmocka();
		main_process = getpid();
		my_rank = worker;
		fn(worker, arg);
		exit(0);
	}
	t_wait(n, pids, -1);
}

struct thread_part {
	struct t_rank t;
	t_rank_fn *fn;
	pthread_t thread;
};

static void *run_thread(void *arg)
{
	struct thread_part *part = arg;

	my_rank = part->t.rank;
	part->fn(&part->t);
	return NULL;
}

struct threads_job {
	int n;
	t_rank_fn *fn;
	void *arg;
};

static void run_threads(struct t_rank *t)
{
	struct threads_job *job = t->arg;
	struct thread_part *parts = calloc((size_t)job->n, sizeof(*parts));
	struct kolo_id id;

	CHECK(parts && kolo_id_create(&id) == 0);
	for (int r = 0; r < job->n; r++) {
		parts[r].t =
			(struct t_rank){ .rank = r, .nranks = job->n, .id = id, .arg = job->arg };
		parts[r].fn = job->fn;
		CHECK(pthread_create(&parts[r].thread, NULL, run_thread, &parts[r]) == 0);
	}
	for (int r = 0; r < job->n; r++)
		pthread_join(parts[r].thread, NULL);
	free(parts);
}

void t_threads(int n, t_rank_fn *fn, void *arg)
{
	struct threads_job job = { n, fn, arg };
	int pid;

	t_start(1, run_threads, &job, &pid);
	t_wait(1, &pid, -1);
}

#ifdef T_PLAIN
/* Those whose names begin with T_ONLY. */
static int run_all(const struct CMUnitTest *tests, size_t n)
{
	const char *only = getenv("T_ONLY");
	volatile int bad = 0, good = 0;

	for (volatile size_t k = 0; k < n; k++) {
		int64_t began = t_now_ms();

		if (only && strncmp(tests[k].name, only, strlen(only)) != 0)
			continue;
		alarm((unsigned)patience() * 10);
		if (setjmp(failed) == 0) {
			tests[k].test(NULL);
			good++;
			printf("ok %s (%.1f s)\n", tests[k].name,
			       (double)(t_now_ms() - began) / 1e3);
		} else {
			bad++;
			printf("not ok %s\n", tests[k].name);
		}
		fflush(stdout);
	}
	printf("%d passed, %d failed, 0 skipped\n", good, bad);
	return bad != 0;
}
#else
static int run_all(const struct CMUnitTest *tests, size_t n)
{
	if (getenv("T_ONLY")) /* a pattern of names */
		cmocka_set_test_filter(getenv("T_ONLY"));
	return _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
}
#endif

int t_main(const struct CMUnitTest *tests, size_t n)
{
	main_process = getpid();
	signal(SIGALRM, show_stack);
	signal(SIGPIPE, SIG_IGN);
	alarm((unsigned)patience() * 10);
	return run_all(tests, n);
}
