/* What the tests share: checks that work in forked ranks and threads, ranks as processes or
 * threads, and a stack instead of a stuck job when something hangs. cmocka runs the cases; each
 * writes TAP for prove. */
#ifndef TESTS_LIB_T_H
#define TESTS_LIB_T_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef T_PLAIN
#include <cmocka.h>
#else /* for a machine without it */
struct CMUnitTest {
	const char *name;
	void (*test)(void **state);
};
#define cmocka_unit_test(test)                                                                     \
	{                                                                                          \
#test, test                                                                        \
	}
#endif

#include "kolo/kolo.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Ends the test (in the test's own process) or the rank (in its process) with a message when `ok`
 * is false. The text of kolo_last_error() is part of it. */
#define CHECK(cond) t_check((cond), #cond, __FILE__, __LINE__)
void t_check(bool ok, const char *what, const char *file, int line);

/* One rank's part of a test. */
struct t_rank {
	int rank, nranks;
	struct kolo_id id;
	void *arg;
};
typedef void t_rank_fn(struct t_rank *t);

/* Runs fn on n ranks, each a process (or a thread of one process, which is not this one), and waits
 * for all. The test fails when a rank does, dies, or takes longer than T_PATIENCE seconds (ten
 * times that if t_is_long()), in which case it shows its stack. n <= T_MAX_RANKS for processes. */
void t_processes(int n, t_rank_fn *fn, void *arg);
void t_threads(int n, t_rank_fn *fn, void *arg);

/* Starts processes and leaves them to the caller; pids[n]. t_wait waits for processes, comes before
 * the next t_start, and ends what served the id; rank `may_die` (-1: none) may be killed by
 * SIGKILL. */
void t_start(int n, t_rank_fn *fn, void *arg, int *pids);
void t_wait(int n, const int *pids, int may_die);

/* Runs fn(worker, arg) in n processes at once. Each may start ranks. The test fails when one does.
 */
void t_workers(int n, void (*fn)(int worker, void *arg), void *arg);

/* The communicator of a rank, with small slots (4096 bytes), so that little data makes many
 * rounds. */
struct kolo_comm *t_comm(struct t_rank *t);

/* A communicator with these attributes; id, rank and nranks are filled in. */
struct kolo_comm *t_comm_with(struct t_rank *t, struct kolo_comm_attr attr);

/* Whether the library was built with a transport of this name. */
bool t_has_transport(const char *name);

int64_t t_now_ms(void);

/* Is there memory at that address, so that a touch would not trap? */
bool t_is_there(const void *p);

/* A pseudo-random number; state may start anywhere. */
uint64_t t_random(uint64_t *state);

/* Runs the cases; what main returns. */
int t_main(const struct CMUnitTest *tests, size_t n);
#define T_MAIN(tests)                                                                              \
	int main(void)                                                                             \
	{                                                                                          \
		return t_main(tests, ARRAY_LEN(tests));                                            \
	}

/* True under a sanitizer or valgrind: leave out what would take too long or too much memory
 * there. */
bool t_is_slow(void);

/* True with the thread sanitizer, by far the slowest: few ways of each kind show threads that
 * race. */
bool t_is_slowest(void);

/* The seed of samples: T_SEED in the environment, 2026 without it. */
uint64_t t_seed(void);

/* True in `make check-long` (T_LONG is set): every case of every matrix runs. */
bool t_is_long(void);

/* Whether to try the case `key` of a matrix of which a sample runs: 1 of `share` cases. True if
 * t_is_long().
 *
 * The sample is every share-th key, and t_seed() shifts it: share seeds in a row try all keys.
 * Ranks agree on it. With the sum of all indexes as key, no value of a dimension is left out: take
 * the values of all dimensions but one, and of any `share` neighbours in that dimension 1 is
 * tried. */
bool t_sampled(uint64_t key, unsigned share);

#ifdef T_PLAIN
enum { T_PATIENCE = 300 };
#else
enum { T_PATIENCE = 120 };
#endif
enum { T_MAX_RANKS = 64 };

#endif
