/* Collectives on CUDA streams end when ranks die, stop, are late or leave. Part of make check on a
 * driver made of threads; make check-cuda runs it on a GPU, without cmocka (T_PLAIN). */
#include "comm/core/comm.h"
#include "tests/cuda/gpu_ranks.h"
#include "tests/lib/trial.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rank 1 dies, or stops, with work of all of them under way on streams. */
static void lose_rank(struct t_rank *r)
{
	enum { N = 5000 };
	const int *sig = r->arg;
	struct rank me;
	int *x, rc = 0;

	setenv("KOLO_CUDA_MEMORY", "65536", 1);
	me = start(r, (struct kolo_comm_attr){ .timeout_s = *sig == SIGSTOP ? TIMEOUT_S : 60 });
	x = t_gpu_alloc(N * sizeof(*x));
	CHECK(kolo_all_reduce(me.c, x, x, N, KOLO_I32, KOLO_SUM, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0 && kolo_barrier(me.c, NULL) == 0);
	if (r->rank == GONE && *sig == SIGKILL)
		usleep(100000);
	if (r->rank == GONE)
		kill(getpid(), *sig);
	for (int k = 0; k < 5 && rc == 0; k++)
		rc = kolo_all_reduce(me.c, x, x, N, KOLO_I32, KOLO_SUM, me.q);
	if (r->rank != GONE)
		wait_for_failure(&me, *sig == SIGKILL ? KOLO_EPEER : KOLO_ETIMEDOUT, "rank 1 ");
	end(&me);
#ifndef T_PLAIN
	CHECK(r->rank == GONE || t_driver_live() == 0);
#endif
	t_gpu_free(x);
}

static void a_killed_rank_is_named_and_streams_go_on(void **state)
{
	int pids[5], sig = SIGKILL;

	(void)state;
	for (int n = 2; n <= 8; n++) {
		transport = n == 6                             ? "shm"
			    : n == 7                           ? "tcp"
			    : n == 8 && t_has_transport("ofi") ? "ofi"
							       : NULL;
		t_start(n > 5 ? 3 : n, lose_rank, &sig, pids);
		t_wait(n > 5 ? 3 : n, pids, GONE);
	}
	transport = NULL;
	for (group_size = 2; group_size >= -2; group_size -= 4) {
		t_start(4, lose_rank, &sig, pids);
		t_wait(4, pids, GONE);
		transport = "tcp";
	}
	transport = NULL;
	group_size = 0;
}

static void a_stopped_rank_is_named_after_the_timeout(void **state)
{
	static const struct {
		int n, group_size;
		const char *transport;
	} cases[] = { { 2, 0, NULL }, { 4, 0, "shm" }, { 4, 2, "shm" } };
	int pids[4], sig = SIGSTOP, status;

	(void)state;
	for (size_t k = t_is_slow() ? 1 : 0; k < ARRAY_LEN(cases); k++) {
		int n = cases[k].n;

		transport = cases[k].transport;
		group_size = cases[k].group_size;
		t_start(n, lose_rank, &sig, pids);
		CHECK(waitpid(pids[GONE], &status, WUNTRACED) == pids[GONE] && WIFSTOPPED(status));
		sleep(TIMEOUT_S + 1);
		kill(pids[GONE], SIGCONT);
		kill(pids[GONE], SIGKILL);
		t_wait(n, pids, GONE);
	}
	transport = NULL;
	group_size = 0;
}

/* A rank that does not come: the others' streams wait, and it is named. */
static void one_is_late(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S });
	int *x = t_gpu_alloc(sizeof(*x));

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	if (r->rank == GONE)
		sleep(TIMEOUT_S + 1);
	else
		CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == 0);
	if (r->rank != GONE)
		wait_for_failure(&me, KOLO_ETIMEDOUT, "rank 1 ");
	CHECK(r->rank != GONE || kolo_comm_status(me.c) == KOLO_ETIMEDOUT);
	end(&me);
	t_gpu_free(x);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
	(void)state;
	t_processes(3, one_is_late, NULL);
}

/* A thread leaves; the others' calls wait for it. */
static void one_thread_leaves(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 20 });
	int *x = t_gpu_alloc(sizeof(*x));

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	if (r->rank != GONE)
		CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == KOLO_EPEER &&
		      strstr(kolo_last_error(), "rank 1 "));
	end(&me);
	t_gpu_free(x);
}

static void a_thread_that_leaves_ends_the_wait(void **state)
{
	(void)state;
	t_threads(2, one_thread_leaves, NULL);
	t_threads(4, one_thread_leaves, NULL);
}

/* In a process of threads it is the call that waits. */
static void one_thread_is_late(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S });
	int *x = t_gpu_alloc(sizeof(*x)), rc;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	if (r->rank == GONE)
		sleep(TIMEOUT_S + 1);
	else
		CHECK((rc = kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q)) ==
			      KOLO_ETIMEDOUT &&
		      strstr(kolo_last_error(), "rank 1 "));
	CHECK(kolo_comm_status(me.c) == KOLO_ETIMEDOUT);
	end(&me);
	t_gpu_free(x);
}

static void a_thread_that_does_not_come_is_named(void **state)
{
	(void)state;
	t_threads(3, one_thread_is_late, NULL);
}

/* A rank leaves, or gives up, while the others' streams wait for it. */
static void one_leaves(struct t_rank *r)
{
	const int *abort_it = r->arg;
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 60 });
	int *x = t_gpu_alloc(sizeof(*x));

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	if (r->rank != GONE)
		CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == 0);
	usleep(200000);
	if (r->rank == GONE && *abort_it)
		kolo_comm_abort(me.c);
	if (r->rank != GONE)
		wait_for_failure(&me, *abort_it ? KOLO_EABORTED : KOLO_EPEER, "rank 1 ");
	end(&me);
	t_gpu_free(x);
}

static void a_rank_that_leaves_or_aborts_ends_the_wait(void **state)
{
	int abort_it = 0;

	(void)state;
	t_processes(2, one_leaves, &abort_it);
	t_processes(4, one_leaves, &abort_it);
	abort_it = 1;
	t_processes(3, one_leaves, &abort_it);
	for_every_proxy(one_leaves, &abort_it);
	abort_it = 0;
	transport = "tcp";
	t_processes(3, one_leaves, &abort_it);
	transport = NULL;
}

/* Streams that wait most of the time, and never for long. */
static void wait_often(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S });
	int *x = t_gpu_alloc(sizeof(*x));

	for (int k = 0; k < 25 * TIMEOUT_S; k++) {
		if (r->rank == 0)
			usleep(100000);
		CHECK(kolo_broadcast(me.c, x, x, 1, KOLO_I32, 0, me.q) == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	end(&me);
	t_gpu_free(x);
}

static void who_waits_often_is_not_who_waits_long(void **state)
{
	(void)state;
	t_processes(3, wait_often, NULL);
}

/* What a rank has sent before it left comes, however much it is. */
static void send_much_and_leave(struct t_rank *r)
{
	int n = t_is_slowest() ? 1 << 20 : 6 << 20;
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 60 });
	int *x = t_gpu_alloc((size_t)n * sizeof(*x));

	for (int i = 0; i < n && r->rank == 0; i++)
		x[i] = i;
	CHECK(kolo_broadcast(me.c, x, x, (size_t)n, KOLO_I32, 0, me.q) == 0);
	CHECK(r->rank == 0 || kolo_queue_wait(me.q) == 0);
	for (int i = 0; i < n && r->rank > 0; i++)
		CHECK(x[i] == i);
	end(&me);
	t_gpu_free(x);
}

static void what_was_sent_before_leaving_arrives(void **state)
{
	(void)state;
	for_every_proxy(send_much_and_leave, NULL);
	t_processes(3, send_much_and_leave, NULL);
}

/* Ranks that are done leave at once, whoever else is not. */
static void leave_early(struct t_rank *r)
{
	struct rank me = start_small(r);
	int *x = t_gpu_alloc(100000 * sizeof(*x));

	CHECK(kolo_broadcast(me.c, x, x, 100000, KOLO_I32, 0, me.q) == 0);
	if (r->rank == 2)
		usleep(300000);
	end(&me); /* waits for the stream, as far as the communicator needs it */
	t_gpu_free(x);
}

static void who_has_done_its_part_may_leave(void **state)
{
	(void)state;
	t_processes(4, leave_early, NULL);
	t_threads(4, leave_early, NULL);
	for_every_proxy(leave_early, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_killed_rank_is_named_and_streams_go_on),
	cmocka_unit_test(a_stopped_rank_is_named_after_the_timeout),
	cmocka_unit_test(a_rank_that_does_not_come_is_named),
	cmocka_unit_test(a_thread_that_leaves_ends_the_wait),
	cmocka_unit_test(a_thread_that_does_not_come_is_named),
	cmocka_unit_test(a_rank_that_leaves_or_aborts_ends_the_wait),
	cmocka_unit_test(who_waits_often_is_not_who_waits_long),
	cmocka_unit_test(what_was_sent_before_leaving_arrives),
	cmocka_unit_test(who_has_done_its_part_may_leave),
};

T_MAIN(tests)
