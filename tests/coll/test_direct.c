/* Collectives that read other ranks' buffers where they are: memory from kolo_alloc, plain memory,
 * and both at once; what becomes of them when ranks disagree, die, or pass an address where nothing
 * is. */
#include "tests/lib/t.h"
#include "comm/memory/cma.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { N = 700 }; /* elements of a rank in the tests of small ones */

static struct kolo_comm *join(struct t_rank *r, const char *algorithm)
{
	return t_comm_with(r, (struct kolo_comm_attr){ .slot_len = 4096,
						       .timeout_s = T_PATIENCE / 2,
						       .algorithm = algorithm });
}

/* ---- Memory of several kinds at once --------------------------------------------------------- */

static int32_t value(int rank, size_t i)
{
	return (int32_t)(i * 5 + (size_t)rank * 1000);
}

/* One collective from src to dst, with room for N elements of each rank, and its check. */
static void run_and_check(struct t_rank *r, struct kolo_comm *c, int coll, int root, int32_t *src,
			  int32_t *dst)
{
	int n = r->nranks, sum = n * (n - 1) / 2 * 1000, first = 0;
	size_t len = coll == 1 || coll == 4 ? N * (size_t)n : N;

	for (size_t i = 0; i < N * (size_t)n; i++) {
		src[i] = value(r->rank, i);
		if (dst != src)
			dst[i] = -1;
	}
	switch (coll) {
	case 0: CHECK(kolo_all_reduce(c, src, dst, N, KOLO_I32, KOLO_SUM, NULL) == 0); break;
	case 1: CHECK(kolo_all_gather(c, src, dst, N, KOLO_I32, NULL) == 0); break;
	case 2: CHECK(kolo_broadcast(c, src, dst, N, KOLO_I32, root, NULL) == 0); break;
	case 3: CHECK(kolo_reduce(c, src, dst, N, KOLO_I32, KOLO_SUM, root, NULL) == 0); break;
	default:
		CHECK(kolo_reduce_scatter(c, src, dst, N, KOLO_I32, KOLO_SUM, NULL) == 0);
		len = N;
		first = r->rank * N;
	}
	for (size_t i = 0; i < len; i++) {
		int32_t all = value(0, i + (size_t)first) * n + sum;

		if (coll == 1)
			CHECK(dst[i] == value((int)(i / N), i % N));
		else if (coll == 2)
			CHECK(dst[i] == value(root, i));
		else if (coll != 3 || r->rank == root)
			CHECK(dst[i] == all);
		else
			CHECK(dst[i] == (dst == src ? value(r->rank, i) : -1));
	}
}

/* Each rank takes its buffers from wherever it likes. */
static void mixed_memory(struct t_rank *r)
{
	struct kolo_comm *c = join(r, r->arg);
	size_t len = sizeof(int32_t) * N * (size_t)r->nranks;
	uint64_t seed = 3, own = 17 + (uint64_t)r->rank;
	void *memory[4] = { malloc(len), malloc(len) };
	struct kolo_stats s;

	CHECK(memory[0] && memory[1]);
	CHECK(kolo_alloc(c, len, &memory[2]) == 0 && kolo_alloc(c, len + 12345, &memory[3]) == 0);
	for (int k = 0; k < (t_is_slow() ? 100 : 400); k++) {
		uint64_t dice = t_random(&seed),
			 mine = t_random(&own); /* the same on all ranks, and not */
		int coll = (int)(dice % 5), src = (int)(mine % 4), dst = (int)(mine >> 8 & 3);

		if (dice >> 16 & 1) /* everyone's in windows, which is rare otherwise */
			src |= 2, dst |= 2;
		if (coll == 1 || coll == 4) /* in place means something else there */
			dst = dst == src ? src ^ 1 : dst;
		if ((mine >> 20) % 64 == 0)
			usleep((unsigned)(mine >> 50) % 500);
		run_and_check(r, c, coll, (int)(dice >> 33) % r->nranks, memory[src], memory[dst]);
	}
	CHECK(kolo_comm_stats(c, &s) == 0 && s.sent_bytes == s.model_sent_bytes &&
	      s.received_bytes == s.model_received_bytes);
	CHECK(kolo_free(c, memory[2]) == 0);
	run_and_check(r, c, 0, 0, memory[3], memory[0]);
	free(memory[0]);
	free(memory[1]);
	kolo_comm_destroy(c); /* and what was not freed */
}

static void every_rank_may_pass_another_kind_of_memory(void **state)
{
	(void)state;
	for (int n = 1; n <= 5; n++) {
		t_processes(n, mixed_memory, "direct");
		t_processes(n, mixed_memory, NULL);
	}
	t_processes(3, mixed_memory, "ring");
	t_processes(3, mixed_memory, "board");
	t_threads(3, mixed_memory, "direct");
}

/* The ring and reading take turns until the better one is known; so do two kinds of stores. */
static void learning(struct t_rank *r)
{
	enum { TIMES = 30, LARGE = 600001 };
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2 });
	float *x = malloc(4 * LARGE), *y = malloc(4 * LARGE);
	struct kolo_stats before, after;

	CHECK(x && y && kolo_comm_stats(c, &before) == 0);
	for (int k = 0; k < TIMES; k++) {
		for (size_t i = 0; i < LARGE; i++)
			x[i] = (float)(i % 1000) + (float)r->rank;
		CHECK(kolo_broadcast(c, x, y, LARGE, KOLO_F32, 0, NULL) == 0);
		for (size_t i = 0; i < LARGE; i++)
			CHECK(y[i] == (float)(i % 1000));
		CHECK(kolo_all_reduce(c, x, x, LARGE, KOLO_F32, KOLO_SUM, NULL) == 0);
		for (size_t i = 0; i < LARGE; i++)
			CHECK(x[i] == (float)(i % 1000) * (float)r->nranks +
					      (float)(r->nranks * (r->nranks - 1) / 2));
	}
	CHECK(kolo_comm_stats(c, &after) == 0);
	/* At least the turns that each gets at first. */
	CHECK(after.ring_ops - before.ring_ops >= 6 && after.direct_ops - before.direct_ops >= 6);
	CHECK(after.ring_ops + after.board_ops + kolo_algorithm_ops(c, "slices") +
		      after.direct_ops + after.exchange_ops ==
	      after.ops);
	CHECK(after.received_bytes == after.model_received_bytes &&
	      after.sent_bytes == after.model_sent_bytes);
	free(x);
	free(y);
	kolo_comm_destroy(c);
}

static void what_is_learnt_changes_no_result(void **state)
{
	(void)state;
	t_processes(2, learning, NULL);
	if (!t_is_slowest())
		t_processes(3, learning, NULL);
}

/* ---- kolo_alloc and kolo_free ---------------------------------------------------------------- */

/* Over and over, ranks coming late, memory used and zeroed anew. */
static void alloc_and_free(struct t_rank *r)
{
	struct kolo_comm *c = join(r, "direct");

	for (int k = 0; k < 30; k++) {
		size_t bytes = 1 + (size_t)k * 4000;
		unsigned char *x;
		void *memory;

		if (k % 8 == r->rank)
			usleep(30000);
		CHECK(kolo_alloc(c, bytes, &memory) == 0 && (uintptr_t)memory % 4096 == 0);
		x = memory;
		for (size_t i = 0; i < bytes; i++)
			CHECK(x[i] == 0);
		memset(x, r->rank + 1, bytes);
		CHECK(kolo_all_reduce(c, x, x, bytes, KOLO_U8, KOLO_SUM, NULL) == 0);
		for (size_t i = 0; i < bytes; i++)
			CHECK(x[i] == r->nranks * (r->nranks + 1) / 2);
		CHECK(kolo_free(c, memory) == 0);
	}
	CHECK(kolo_free(c, NULL) == 0);
	kolo_comm_destroy(c);
}

static void memory_comes_and_goes(void **state)
{
	(void)state;
	for (int n = 1; n <= (t_is_slow() ? 3 : 6); n++)
		t_processes(n, alloc_and_free, NULL);
	t_threads(3, alloc_and_free, NULL);
}

static void bad_arguments(struct t_rank *r)
{
	struct kolo_comm *c = join(r, NULL);
	void *memory, *none = &none;
	int x = 1;

	CHECK(kolo_alloc(NULL, 1, &memory) == KOLO_EINVAL && kolo_alloc(c, 1, NULL) == KOLO_EINVAL);
	CHECK(kolo_alloc(c, 0, &none) == KOLO_EINVAL && !none);
	CHECK(kolo_alloc(c, SIZE_MAX / 2, &none) == KOLO_EINVAL);
	/* More than there is room for: nobody gets any, and nothing else happens. */
	CHECK(kolo_alloc(c, (size_t)1 << 60, &none) < 0 && !none);
	CHECK(kolo_alloc(c, 100, &memory) == 0);
	CHECK(kolo_free(c, &x) == KOLO_EINVAL && kolo_free(c, (char *)memory + 1) == KOLO_EINVAL);
	CHECK(kolo_free(NULL, memory) == KOLO_EINVAL && kolo_free(c, memory) == 0);
	CHECK(kolo_free(c, memory) == KOLO_EINVAL);
	CHECK(kolo_all_reduce(c, &x, &x, 1, KOLO_I32, KOLO_SUM, NULL) == 0 && x == r->nranks);
	kolo_comm_destroy(c);
}

static void wrong_calls_are_refused_and_do_no_harm(void **state)
{
	(void)state;
	t_processes(3, bad_arguments, NULL);
}

/* Rank 0 frees before an operation, the others after it. */
static void free_elsewhere(struct t_rank *r)
{
	struct kolo_comm *c = join(r, r->arg);
	void *memory, *x = calloc(1, 1 << 16);
	int rc = kolo_alloc(
		c, 1 << 16,
		&memory); /* some may already wait in the next operation, and tell others */

	CHECK(x);
	if (rc == 0 && r->rank == 0)
		CHECK(kolo_free(c, memory) == 0);
	if (rc == 0)
		rc = kolo_all_reduce(c, x, x, 1 << 14, KOLO_F32, KOLO_SUM, NULL);
	if (rc == 0)
		rc = kolo_barrier(c, NULL);
	CHECK(rc == KOLO_EMISMATCH && strstr(kolo_last_error(), "kolo_free"));
	free(x);
	kolo_comm_destroy(c);
}

/* Sizes that differ, and a call that looks like what kolo_alloc does inside. */
static void alloc_elsewhere(struct t_rank *r)
{
	struct kolo_comm *c = join(r, NULL);
	int32_t x = 0, all[3];
	void *memory;
	int rc = r->rank == 0 ? kolo_alloc(c, 100, &memory)
		 : r->arg     ? kolo_alloc(c, 101, &memory)
			      : kolo_all_gather(c, &x, all, 1, KOLO_I32, NULL);

	if (rc == 0)
		rc = kolo_barrier(c, NULL);
	CHECK(rc == KOLO_EMISMATCH && strstr(kolo_last_error(), "kolo_alloc of 100 bytes"));
	kolo_comm_destroy(c);
}

static void ranks_that_allocate_differently_disagree(void **state)
{
	(void)state;
	t_processes(3, alloc_elsewhere, "sizes");
	t_processes(3, alloc_elsewhere, NULL);
}

static void freeing_in_different_places_is_a_disagreement(void **state)
{
	(void)state;
	t_processes(3, free_elsewhere, "direct");
	t_processes(3, free_elsewhere, "ring");
}

/* ---- What the system may do ------------------------------------------------------------------ */

static int reading_fails_with; /* an errno, -1: it stops half way, -2: of the own memory; 0: it
				  works */
static int writing_fails_with; /* an errno, -1, 0 */

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long nhere,
				const struct iovec *there, unsigned long nthere,
				unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long nhere,
				const struct iovec *there, unsigned long nthere,
				unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long nhere,
				const struct iovec *there, unsigned long nthere,
				unsigned long flags)
{
	struct iovec half = *there;

	if (reading_fails_with > 0 || (reading_fails_with == -2 && pid == getpid())) {
		errno = reading_fails_with > 0 ? reading_fails_with : EFAULT;
		return -1;
	}
	if (reading_fails_with == -1 && half.iov_len > 100)
		half.iov_len /= 2;
	return __real_process_vm_readv(pid, here, nhere, &half, nthere, flags);
}

ssize_t __real_process_vm_writev(pid_t pid, const struct iovec *here, unsigned long nhere,
				 const struct iovec *there, unsigned long nthere,
				 unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *here, unsigned long nhere,
				 const struct iovec *there, unsigned long nthere,
				 unsigned long flags);

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *here, unsigned long nhere,
				 const struct iovec *there, unsigned long nthere,
				 unsigned long flags)
{
	struct iovec half = *there;

	if (writing_fails_with > 0) {
		errno = writing_fails_with;
		return -1;
	}
	if (writing_fails_with == -1 && half.iov_len > 100)
		half.iov_len /= 2;
	return __real_process_vm_writev(pid, here, nhere, &half, nthere, flags);
}

/* One of the ranks is forbidden to: nobody does. */
static void forbidden(struct t_rank *r)
{
	struct kolo_comm *c;
	struct kolo_stats s;

	*(r->arg ? &writing_fails_with : &reading_fails_with) = r->rank == 1 ? EPERM : 0;
	c = join(r, "direct");
	for (int coll = 0; coll < 5; coll++) {
		int32_t x[3 * N], y[3 * N];

		run_and_check(r, c, coll, 1, x, y);
	}
	CHECK(kolo_comm_stats(c, &s) == 0 && s.direct_ops == 0 && s.ring_ops == 5);
	kolo_comm_destroy(c);
}

/* In place root writes a part of a large one itself. */
static void broadcast_large(struct t_rank *r, struct kolo_comm *c)
{
	enum { LARGE = 500001, ROOT = 1 };
	int32_t *x = malloc(LARGE * sizeof(*x));
	struct kolo_stats before, after;

	CHECK(x && kolo_comm_stats(c, &before) == 0);
	for (int k = 0; k < 3; k++) {
		for (size_t i = 0; i < LARGE; i++)
			x[i] = r->rank == ROOT ? value(k, i) : -1;
		CHECK(kolo_broadcast(c, x, x, LARGE, KOLO_I32, ROOT, NULL) == 0);
		for (size_t i = 0; i < LARGE; i++)
			CHECK(x[i] == value(k, i));
	}
	CHECK(kolo_comm_stats(c, &after) == 0 && after.direct_ops - before.direct_ops == 3);
	CHECK((after.sent_bytes - before.sent_bytes > 0) == (r->rank == ROOT));
	CHECK(after.sent_bytes == after.model_sent_bytes &&
	      after.received_bytes == after.model_received_bytes);
	free(x);
}

static void shares(struct t_rank *r)
{
	struct kolo_comm *c = join(r, "direct");

	broadcast_large(r, c);
	kolo_comm_destroy(c);
}

static void root_of_a_large_broadcast_takes_part(void **state)
{
	(void)state;
	for (int n = 2; n <= 4; n++)
		t_processes(n, shares, NULL);
	t_threads(2, shares, NULL);
}

static void stops_half_way(struct t_rank *r)
{
	struct kolo_comm *c = join(r, "direct");
	struct kolo_stats s;

	reading_fails_with = writing_fails_with = -1;
	broadcast_large(r, c);
	for (int coll = 0; coll < 5; coll++) {
		int32_t x[3 * N], y[3 * N];

		run_and_check(r, c, coll, 1, x, y);
	}
	CHECK(kolo_comm_stats(c, &s) == 0 && s.direct_ops == 5 + 3);
	kolo_comm_destroy(c);
}

/* One rank's buffers are such that the system does not read them for others. */
static void hidden(struct t_rank *r)
{
	enum { LARGE = 1 << 20 };
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2 });
	int32_t *x = calloc(LARGE, sizeof(*x));
	struct kolo_stats s;

	CHECK(x);
	reading_fails_with = r->rank == 1 ? -2 : 0;
	for (int k = 0; k < 20; k++) {
		x[LARGE - 1] = r->rank;
		CHECK(kolo_all_reduce(c, x, x, LARGE, KOLO_I32, KOLO_SUM, NULL) == 0 &&
		      x[LARGE - 1] == 3);
		x[LARGE - 1] = r->rank;
		CHECK(kolo_broadcast(c, x, x, LARGE, KOLO_I32, 1, NULL) == 0 && x[LARGE - 1] == 1);
	}
	CHECK(kolo_comm_stats(c, &s) == 0 && s.direct_ops == 0 && s.ring_ops == 40);
	free(x);
	kolo_comm_destroy(c);
}

static void memory_that_others_can_not_read_goes_round_the_ring(void **state)
{
	(void)state;
	t_processes(3, hidden, NULL);
}

static void reading_that_is_forbidden_is_not_done(void **state)
{
	(void)state;
	t_processes(3, forbidden, NULL);
	t_processes(3, forbidden, "to write");
}

static void reading_that_stops_half_way_goes_on(void **state)
{
	(void)state;
	t_processes(3, stops_half_way, NULL);
}

/* ---- When things go wrong -------------------------------------------------------------------- */

/* A rank that was stopped in an operation which the others have given up leaves their memory
 * alone. */
static void writes_late(struct t_rank *r)
{
	struct kolo_comm *c = join(r, NULL);
	uint64_t x = 5, seven = 7, address = (uintptr_t)&x, all[2];
	int rc;

	CHECK(kolo_all_gather(c, &address, all, 1, KOLO_U64, NULL) == 0);
	if (r->rank == 0)
		CHECK(ko_cma_write(c, 1, all[1], &seven, sizeof(seven)) == 0);
	rc = kolo_barrier(c, NULL);
	CHECK(rc == 0 || (r->rank == 0 && rc == KOLO_EABORTED));
	CHECK(x == (r->rank == 1 ? 7 : 5));
	if (r->rank == 1)
		kolo_comm_abort(c);
	while (kolo_comm_status(c) == 0)
		usleep(1000);
	seven = 8;
	CHECK(ko_cma_write(c, 1 - r->rank, all[1 - r->rank], &seven, sizeof(seven)) ==
	      KOLO_EABORTED);
	usleep(20000);
	CHECK(x == (r->rank == 1 ? 7 : 5));
	kolo_comm_destroy(c);
}

static void nothing_is_written_into_what_others_have_taken_back(void **state)
{
	(void)state;
	t_processes(2, writes_late, NULL);
}

static void die_before_alloc(struct t_rank *r)
{
	struct kolo_comm *c = join(r, NULL);
	int victim = *(int *)r->arg;
	void *memory;

	CHECK(kolo_barrier(c, NULL) == 0);
	if (r->rank == victim)
		raise(SIGKILL);
	CHECK(kolo_alloc(c, 1 << 20, &memory) == KOLO_EPEER && !memory);
	kolo_comm_destroy(c);
}

/* Somewhere in a stream of operations in one kind of memory. */
static void die_within(struct t_rank *r)
{
	enum { LARGE = 1 << 20 };
	bool alloc = *(int *)r->arg;
	struct kolo_comm *c = t_comm_with(
		r, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2, .algorithm = "direct" });
	void *x = alloc ? NULL : calloc(LARGE, 1),
	     *y = alloc ? NULL : calloc(LARGE, (size_t)r->nranks);
	int rc = 0;

	if (alloc)
		CHECK(kolo_alloc(c, LARGE, &x) == 0 &&
		      kolo_alloc(c, LARGE * (size_t)r->nranks, &y) == 0);
	CHECK(x && y);
	for (int k = 0; rc == 0; k++) {
		if (r->rank == 1 && k == 30 && fork() == 0) { /* in one of those to come */
			usleep(20000);
			kill(getppid(), SIGKILL);
			_exit(0);
		}
		rc = kolo_all_gather(c, x, y, LARGE, KOLO_U8, NULL);
		if (rc == 0)
			rc = kolo_all_reduce(c, y, y, LARGE / 4, KOLO_F32, KOLO_SUM, NULL);
	}
	CHECK(rc == KOLO_EPEER && strstr(kolo_last_error(), "rank 1 (pid"));
	if (!alloc) {
		free(x);
		free(y);
	}
	kolo_comm_destroy(c);
}

static void a_dead_rank_is_named(void **state)
{
	int pids[3];

	(void)state;
	for (int victim = 0; victim < 3; victim++) {
		t_start(3, die_before_alloc, &victim, pids);
		t_wait(3, pids, victim);
	}
	for (int alloc = 0; alloc <= 1; alloc++) {
		t_start(3, die_within, &alloc, pids);
		t_wait(3, pids, 1);
	}
}

/* Root says where its buffer is, but nothing is there. */
static void unreadable(struct t_rank *r)
{
	enum { LARGE = 1 << 20 };
	struct kolo_comm *c = join(r, "direct");
	void *hole = mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	     *x = malloc(LARGE);

	CHECK(hole != MAP_FAILED && x);
	if (r->rank == 0) /* in place: root itself does not touch it */
		CHECK(kolo_broadcast(c, hole, hole, LARGE, KOLO_U8, 0, NULL) == KOLO_ESYS);
	else
		CHECK(kolo_broadcast(c, NULL, x, LARGE, KOLO_U8, 0, NULL) == KOLO_ESYS);
	/* Told by who read there, or by root, which could not write it elsewhere. */
	CHECK(strstr(kolo_last_error(), "rank 0 (pid") && strstr(kolo_last_error(), "Bad address"));
	CHECK(kolo_comm_status(c) == KOLO_ESYS);
	munmap(hole, LARGE);
	free(x);
	kolo_comm_destroy(c);
}

static void a_buffer_that_is_not_there_is_an_error_on_all_ranks(void **state)
{
	(void)state;
	t_processes(3, unreadable, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_rank_may_pass_another_kind_of_memory),
	cmocka_unit_test(what_is_learnt_changes_no_result),
	cmocka_unit_test(root_of_a_large_broadcast_takes_part),
	cmocka_unit_test(memory_comes_and_goes),
	cmocka_unit_test(wrong_calls_are_refused_and_do_no_harm),
	cmocka_unit_test(ranks_that_allocate_differently_disagree),
	cmocka_unit_test(freeing_in_different_places_is_a_disagreement),
	cmocka_unit_test(reading_that_is_forbidden_is_not_done),
	cmocka_unit_test(memory_that_others_can_not_read_goes_round_the_ring),
	cmocka_unit_test(reading_that_stops_half_way_goes_on),
	cmocka_unit_test(nothing_is_written_into_what_others_have_taken_back),
	cmocka_unit_test(a_dead_rank_is_named),
	cmocka_unit_test(a_buffer_that_is_not_there_is_an_error_on_all_ranks),
};

T_MAIN(tests)
