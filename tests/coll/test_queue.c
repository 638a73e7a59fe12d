/* Collectives in queues, events, and their order among each other and beside calls that don't use a
 * queue. */
#include "tests/lib/t.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static struct kolo_queue *make_queue(void)
{
	struct kolo_queue *q;

	CHECK(kolo_queue_create(&q) == 0);
	return q;
}

static struct kolo_event *make_event(void)
{
	struct kolo_event *e;

	CHECK(kolo_event_create(&e) == 0);
	return e;
}

static bool has_come(struct kolo_event *e)
{
	int done = -1;

	CHECK(kolo_event_query(e, &done) == 0 && (done == 0 || done == 1));
	return done;
}

/* What all processes of a test see. */
static _Atomic int *make_flag(void)
{
	void *flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(flag != MAP_FAILED);
	return flag;
}

static void wait_flag(_Atomic int *flag, int value)
{
	while (*flag < value)
		usleep(1000);
}

/* ---- Results --------------------------------------------------------------------------------- */

enum { NCALLS = 6, LARGE = 30011 };

/* Collective number k on buffers of n elements of each rank. */
static void call(struct kolo_comm *c, int k, const float *src, float *dst, size_t n,
		 struct kolo_queue *q)
{
	int root = kolo_comm_nranks(c) - 1, rc = 0;

	switch (k % NCALLS) {
	case 0: rc = kolo_all_reduce(c, src, dst, n, KOLO_F32, KOLO_SUM, q); break;
	case 1: rc = kolo_reduce_scatter(c, src, dst, n, KOLO_F32, KOLO_AVG, q); break;
	case 2: rc = kolo_all_gather(c, src, dst, n, KOLO_F32, q); break;
	case 3: rc = kolo_broadcast(c, src, dst, n, KOLO_F32, root, q); break;
	case 4: rc = kolo_reduce(c, src, dst, n, KOLO_F32, KOLO_MAX, root, q); break;
	default: rc = kolo_barrier(c, q);
	}
	CHECK(rc == 0);
}

/* All at once in a queue, and one after the other without one. */
static void the_same_bits(struct t_rank *r)
{
	static const size_t counts[] = { 0, 1, 100, LARGE };
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q = make_queue();
	size_t most = LARGE * (size_t)r->nranks;
	float *src = calloc(most, sizeof(*src)), *want = calloc(most, sizeof(*want)), *got[NCALLS];

	CHECK(src && want);
	for (size_t i = 0; i < most; i++)
		src[i] = 1 / (float)(i % 1000 + 1 + (size_t)r->rank);
	for (size_t k = 0; k < NCALLS; k++)
		CHECK((got[k] = malloc(most * sizeof(float))) != NULL);
	for (size_t s = 0; s < ARRAY_LEN(counts); s++) {
		for (int k = 0; k < NCALLS; k++) {
			memset(got[k], 0, most * sizeof(float));
			call(c, k, src, got[k], counts[s], q);
		}
		CHECK(kolo_queue_wait(q) == 0);
		for (int k = 0; k < NCALLS; k++) {
			memset(want, 0, most * sizeof(float));
			call(c, k, src, want, counts[s], NULL);
			CHECK(memcmp(want, got[k], most * sizeof(float)) == 0);
		}
	}
	for (int k = 0; k < NCALLS; k++)
		free(got[k]);
	free(src);
	free(want);
	kolo_queue_destroy(q);
	kolo_comm_destroy(c);
}

static void a_queue_gives_the_same_bits(void **state)
{
	(void)state;
	for (int n = 1; n <= 4; n++)
		t_processes(n, the_same_bits, NULL);
	t_threads(3, the_same_bits, NULL);
}

/* Each operation needs what those before it have left in one of two buffers, and no two of them may
 * change places. Each rank leaves its own choice to queues. */
static void one_order(struct t_rank *r)
{
	enum { N = 50, TIMES = 400 };
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q[3] = { make_queue(), make_queue(), NULL };
	uint64_t seed = 5, own = 11 + (uint64_t)r->rank, x[2][N], want[2][N];
	uint64_t mine = r->rank ? 2 : 3,
		 all = 3 + 2 * (uint64_t)(r->nranks - 1); /* odd: nothing is lost */
	enum kolo_op op;

	for (uint64_t i = 0; i < 2 * N; i++)
		x[i / N][i % N] = want[i / N][i % N] =
			i; /* the same on all ranks: so are the results */
	CHECK(kolo_op_create_premul_sum(c, &mine, KOLO_U64, &op) == 0);
	for (int k = 0; k < (t_is_slow() ? TIMES / 4 : TIMES); k++) {
		uint64_t dice = t_random(&seed);
		int from = dice & 1, to = dice >> 1 & 1;

		CHECK(kolo_all_reduce(c, x[from], x[to], N, KOLO_U64, op, q[t_random(&own) % 3]) ==
		      0);
		for (int i = 0; i < N; i++)
			want[to][i] = want[from][i] * all;
		if (t_random(&own) % 50 == 0)
			usleep((unsigned)(t_random(&own) % 2000));
	}
	CHECK(kolo_queue_wait(q[0]) == 0 && kolo_queue_wait(q[1]) == 0);
	CHECK(memcmp(x, want, sizeof(x)) == 0);
	kolo_queue_destroy(q[0]);
	kolo_queue_destroy(q[1]);
	kolo_comm_destroy(c);
}

static void operations_keep_the_order_of_their_calls(void **state)
{
	(void)state;
	for (int n = 1; n <= 4; n++)
		t_processes(n, one_order, NULL);
	t_threads(2, one_order, NULL);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void an_event(struct t_rank *r)
{
	_Atomic int *flag = r->arg;
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q = make_queue();
	struct kolo_event *e = make_event();

	CHECK(has_come(e) && kolo_event_wait(e) == 0); /* never recorded */
	if (r->rank == 0) {
		CHECK(kolo_barrier(c, q) == 0 && kolo_event_record(e, q) == 0);
		CHECK(!has_come(e)); /* rank 1 waits for the flag */
		*flag = 1;
		CHECK(kolo_event_wait(e) == 0 && has_come(e));
	} else {
		wait_flag(flag, 1);
		CHECK(kolo_barrier(c, NULL) == 0);
	}
	kolo_event_destroy(e);
	kolo_queue_destroy(q);
	kolo_comm_destroy(c);
}

static void an_event_comes_when_what_is_before_it_is_done(void **state)
{
	_Atomic int *flag = make_flag();

	(void)state;
	t_processes(2, an_event, flag);
	munmap(flag, 4096);
}

/* The second communicator's operation reads what the first one's writes, in another queue. The
 * event is recorded again, and then destroyed, while that queue still waits for its first
 * record. */
static void one_queue_after_another(struct t_rank *r)
{
	enum { N = 5000 };
	_Atomic int *flag = r->arg;
	struct kolo_comm *a = t_comm(r), *b;
	struct kolo_queue *qa = make_queue(), *qb = make_queue();
	struct kolo_event *e = make_event();
	int32_t *x = malloc(N * sizeof(*x)), *sum = malloc(N * sizeof(*sum)),
		*all = malloc(N * sizeof(*all));

	CHECK(x && sum && all && kolo_comm_split(a, 0, -r->rank, &b) == 0);
	for (int i = 0; i < N; i++) {
		x[i] = i + r->rank;
		sum[i] = all[i] = -1;
	}
	if (r->rank == 1)
		wait_flag(flag, 1);
	CHECK(kolo_all_reduce(a, x, sum, N, KOLO_I32, KOLO_SUM, qa) == 0);
	CHECK(kolo_event_record(e, qa) == 0 && kolo_queue_wait_event(qb, e) == 0);
	CHECK(kolo_all_reduce(b, sum, all, N, KOLO_I32, KOLO_MAX, qb) == 0);
	CHECK(kolo_event_record(e, qb) == 0);
	if (r->rank == 0) {
		CHECK(!has_come(e));
		*flag = 1;
	}
	kolo_event_destroy(e);
	CHECK(kolo_queue_wait(qb) == 0);
	for (int i = 0; i < N; i++)
		CHECK(all[i] == 2 * i + 1 && sum[i] == all[i]);
	kolo_queue_destroy(qa);
	kolo_queue_destroy(qb);
	kolo_comm_destroy(b);
	kolo_comm_destroy(a);
	free(x);
	free(sum);
	free(all);
}

static void a_queue_waits_for_an_event_as_it_was_recorded(void **state)
{
	_Atomic int *flag = make_flag();

	(void)state;
	t_processes(2, one_queue_after_another, flag);
	*flag = 0;
	t_threads(2, one_queue_after_another, flag);
	munmap(flag, 4096);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* Work left in a queue is done before the queue, the communicator, an op or a window goes. */
static void early_ends(struct t_rank *r)
{
	enum { N = 3000, TIMES = 20 };
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q = make_queue(), *other = make_queue();
	float half = 0.5f, *x = malloc(N * sizeof(*x)), *y = malloc(N * sizeof(*y));
	struct kolo_stats s;
	enum kolo_op op;
	void *window;

	CHECK(x && y);
	for (int i = 0; i < N; i++)
		x[i] = (float)i;
	CHECK(kolo_op_create_premul_sum(c, &half, KOLO_F32, &op) == 0);
	CHECK(kolo_all_reduce(c, x, y, N, KOLO_F32, op, q) == 0);
	CHECK(kolo_op_destroy(c, op) == 0);
	CHECK(kolo_alloc(c, N * sizeof(float), &window) == 0);
	CHECK(kolo_all_reduce(c, x, window, N, KOLO_F32, KOLO_SUM, other) == 0);
	CHECK(kolo_broadcast(c, window, x, N, KOLO_F32, 0, q) == 0);
	kolo_queue_destroy(q);
	for (int i = 0; i < N; i++)
		CHECK(y[i] == (float)(i * r->nranks) / 2 && x[i] == 2 * y[i]);
	CHECK(kolo_free(c, window) == 0);
	for (int k = 0; k < TIMES; k++)
		CHECK(kolo_all_reduce(c, x, y, N, KOLO_F32, KOLO_MAX, other) == 0);
	CHECK(kolo_comm_stats(c, &s) == 0 && s.ops >= TIMES + 3);
	CHECK(s.sent_bytes == s.model_sent_bytes);
	memset(y, 0, N * sizeof(*y));
	CHECK(kolo_all_reduce(c, x, y, N, KOLO_F32, KOLO_MIN, other) == 0);
	kolo_comm_destroy(c);
	CHECK(memcmp(x, y, N * sizeof(*y)) == 0);
	CHECK(kolo_queue_wait(other) == 0);
	kolo_queue_destroy(other);
	kolo_queue_destroy(NULL);
	kolo_event_destroy(NULL);
	free(x);
	free(y);
}

static void what_is_queued_is_done_before_anything_goes(void **state)
{
	(void)state;
	t_processes(1, early_ends, NULL);
	t_processes(3, early_ends, NULL);
	t_threads(2, early_ends, NULL);
}

/* A hundred threads that sleep: nobody runs while nothing is queued. */
static void idle_queues_sleep(void **state)
{
	enum { QUEUES = 100 };
	struct kolo_queue *q[QUEUES];
	struct rusage before, after;

	(void)state;
	for (int k = 0; k < QUEUES; k++)
		q[k] = make_queue();
	for (int k = 0; k < QUEUES; k++)
		CHECK(kolo_queue_wait(q[k]) == 0);
	usleep(200000); /* all have gone to sleep */
	getrusage(RUSAGE_SELF, &before);
	usleep(500000);
	getrusage(RUSAGE_SELF, &after);
	CHECK(after.ru_nvcsw - before.ru_nvcsw < QUEUES / 4); /* this thread alone has slept */
	for (int k = 0; k < QUEUES; k++)
		kolo_queue_destroy(q[k]);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void check_refused(int rc, const char *text)
{
	CHECK(rc == KOLO_EINVAL && strstr(kolo_last_error(), text) != NULL);
}

static void bad_arguments(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q = make_queue(), *none = NULL;
	struct kolo_event *e = make_event();
	int x[2] = { 1, 2 }, done;

	check_refused(kolo_queue_create(NULL), "out");
	check_refused(kolo_queue_wait(NULL), "queue");
	check_refused(kolo_event_create(NULL), "out");
	check_refused(kolo_event_record(e, NULL), "queue");
	check_refused(kolo_event_record(NULL, q), "event");
	check_refused(kolo_event_query(e, NULL), "done");
	check_refused(kolo_event_query(NULL, &done), "event");
	check_refused(kolo_event_wait(NULL), "event");
	check_refused(kolo_queue_wait_event(q, NULL), "event");
	check_refused(kolo_queue_wait_event(NULL, e), "queue");
	check_refused(kolo_all_reduce(c, x, NULL, 1, KOLO_I32, KOLO_SUM, q), "dst");
	CHECK(kolo_queue_wait(q) == 0 && kolo_comm_status(c) == 0); /* nothing was queued */
	CHECK(kolo_all_reduce(c, x, x, 2, KOLO_I32, KOLO_SUM, q) == 0 && kolo_queue_wait(q) == 0);
	CHECK(x[1] == 2 * r->nranks && kolo_queue_create(&none) == 0);
	kolo_queue_destroy(none);
	kolo_event_destroy(e);
	kolo_queue_destroy(q);
	kolo_comm_destroy(c);
}

static void arguments_are_checked_in_the_call(void **state)
{
	(void)state;
	t_processes(2, bad_arguments, NULL);
}

/* Ranks disagree. The queue goes on with another communicator. */
static void disagreement(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *good;
	struct kolo_queue *q = make_queue(), *later = make_queue();
	struct kolo_event *e = make_event();
	int x = 1, y = 1;

	CHECK(kolo_comm_split(c, 0, 0, &good) == 0);
	CHECK(kolo_all_reduce(c, &x, &x, 1, KOLO_I32, r->rank ? KOLO_SUM : KOLO_MIN, q) == 0);
	CHECK(kolo_barrier(c, q) == 0);
	CHECK(kolo_event_record(e, q) == 0 && kolo_queue_wait_event(later, e) == 0);
	CHECK(kolo_event_wait(e) == KOLO_EMISMATCH && strstr(kolo_last_error(), "disagree"));
	CHECK(kolo_all_reduce(good, &y, &y, 1, KOLO_I32, KOLO_SUM, later) == 0);
	CHECK(kolo_queue_wait(later) == KOLO_EMISMATCH && strstr(kolo_last_error(), "all_reduce"));
	CHECK(y == r->nranks && kolo_queue_wait(later) == 0);
	CHECK(kolo_queue_wait(q) == KOLO_EMISMATCH && strstr(kolo_last_error(), "disagree"));
	CHECK(kolo_queue_wait(q) == 0 && kolo_event_wait(e) == KOLO_EMISMATCH);
	CHECK(kolo_comm_status(c) == KOLO_EMISMATCH);
	CHECK(kolo_barrier(c, q) == 0 && kolo_queue_wait(q) == KOLO_EMISMATCH);
	CHECK(kolo_barrier(good, q) == 0 && kolo_queue_wait(q) == 0);
	kolo_event_destroy(e);
	kolo_queue_destroy(q);
	kolo_queue_destroy(later);
	kolo_comm_destroy(good);
	kolo_comm_destroy(c);
}

static void a_failure_comes_with_the_wait_and_its_text(void **state)
{
	(void)state;
	t_processes(2, disagreement, NULL);
	t_processes(4, disagreement, NULL);
}

/* ---- Accidents ------------------------------------------------------------------------------- */

enum { VICTIM = 1 };

struct accident {
	int sig, code;
	_Atomic int *started;
};

/* Always some hundred operations ahead, until one fails. */
static void queue_until_it_fails(struct t_rank *r)
{
	enum { N = 100000, AHEAD = 200 };
	const struct accident *a = r->arg;
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = 3 });
	struct kolo_queue *q = make_queue();
	float *x = calloc(N, sizeof(*x));
	char name[32];
	int rc = 0;

	CHECK(x != NULL);
	snprintf(name, sizeof(name), "rank %d (pid", VICTIM);
	while (rc == 0) {
		for (int k = 0; k < AHEAD; k++)
			CHECK(kolo_all_reduce(c, x, x, N, KOLO_F32, KOLO_SUM, q) == 0);
		++*a->started;
		rc = kolo_queue_wait(q);
	}
	if (r->rank != VICTIM)
		CHECK(rc == a->code && strstr(kolo_last_error(), name) == kolo_last_error());
	kolo_queue_destroy(q);
	kolo_comm_destroy(c);
	free(x);
}

static void have_accident(int sig, int code)
{
	struct accident a = { sig, code, make_flag() };
	int pids[3];

	t_start(3, queue_until_it_fails, &a, pids);
	wait_flag(a.started, 6);
	kill(pids[VICTIM], sig);
	if (sig == SIGSTOP) {
		usleep(6000000); /* the others give it up; then it learns that */
		kill(pids[VICTIM], SIGCONT);
	}
	t_wait(3, pids, sig == SIGKILL ? VICTIM : -1);
	munmap(a.started, 4096);
}

static void a_killed_or_stopped_rank_ends_what_is_queued(void **state)
{
	(void)state;
	have_accident(SIGKILL, KOLO_EPEER);
	have_accident(SIGSTOP, KOLO_ETIMEDOUT);
}

/* Nobody is in an operation any more: whoever aborts ends none that another one has not come out of
 * yet. */
static void come_together(struct t_rank *r)
{
	_Atomic int *here = r->arg;

	++*here;
	wait_flag(here, r->nranks);
}

static void aborted(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q = make_queue();

	come_together(r);
	if (r->rank == 0) {
		for (int k = 0; k < 100; k++)
			CHECK(kolo_barrier(c, q) == 0); /* rank 1 never comes */
		kolo_comm_abort(c);
		CHECK(kolo_queue_wait(q) == KOLO_EABORTED);
	} else {
		while (kolo_comm_status(c) == 0)
			usleep(1000);
	}
	kolo_queue_destroy(q);
	kolo_comm_destroy(c);
}

/* What waits for its turn after another communicator's operation, which nobody ends. */
static void aborted_behind(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *other;
	struct kolo_queue *q = make_queue(), *later = make_queue();

	CHECK(kolo_comm_split(c, 0, 0, &other) == 0);
	come_together(r);
	if (r->rank == 0) {
		CHECK(kolo_barrier(other, q) == 0 &&
		      kolo_barrier(c, q) == 0); /* rank 1 never comes */
		CHECK(kolo_barrier(c, later) == 0);
		kolo_comm_abort(c);
		CHECK(kolo_barrier(c, NULL) == KOLO_EABORTED);
		CHECK(kolo_queue_wait(later) == KOLO_EABORTED);
		kolo_comm_abort(other);
		CHECK(kolo_queue_wait(q) == KOLO_EABORTED);
	} else {
		while (kolo_comm_status(other) == 0)
			usleep(1000);
	}
	kolo_queue_destroy(q);
	kolo_queue_destroy(later);
	kolo_comm_destroy(other);
	kolo_comm_destroy(c);
}

static void an_abort_ends_what_is_queued(void **state)
{
	_Atomic int *here[2] = { make_flag(), make_flag() };

	(void)state;
	t_processes(2, aborted, (void *)(uintptr_t)here[0]);
	t_processes(2, aborted_behind, (void *)(uintptr_t)here[1]);
	munmap((void *)(uintptr_t)here[0], 4096);
	munmap((void *)(uintptr_t)here[1], 4096);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_queue_gives_the_same_bits),
	cmocka_unit_test(operations_keep_the_order_of_their_calls),
	cmocka_unit_test(an_event_comes_when_what_is_before_it_is_done),
	cmocka_unit_test(a_queue_waits_for_an_event_as_it_was_recorded),
	cmocka_unit_test(what_is_queued_is_done_before_anything_goes),
	cmocka_unit_test(idle_queues_sleep),
	cmocka_unit_test(arguments_are_checked_in_the_call),
	cmocka_unit_test(a_failure_comes_with_the_wait_and_its_text),
	cmocka_unit_test(a_killed_or_stopped_rank_ends_what_is_queued),
	cmocka_unit_test(an_abort_ends_what_is_queued),
};

T_MAIN(tests)
