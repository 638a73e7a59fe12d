/* Collectives on registered memory of GPUs (kolo_cuda_register): the same bits as without, in the
 * order of streams, in graphs; and ranks that die, are late, or use different places. On GPUs made
 * of threads, and on real ones by make check-cuda. */
#include "comm/core/comm.h"
#include "tests/cuda/gpu_ranks.h"
#include "tests/lib/trial.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank with `len` bytes that are registered. */
struct owner {
	struct rank me;
	char *memory;
	size_t len;
};

static struct owner own(struct rank me, size_t len)
{
	struct owner o = { .me = me, .len = len };

	CHECK(kolo_cuda_alloc(me.q, len, (void **)&o.memory) == 0);
	CHECK(kolo_cuda_register(me.c, me.q, o.memory, len) == 0);
	return o;
}

static void disown(struct owner *o)
{
	CHECK(kolo_cuda_deregister(o->me.c, o->memory) == 0);
	end(&o->me);
	CHECK(kolo_cuda_free(o->memory) == 0);
}

static void copy(void *arg, void *room, void *here, size_t len, bool there)
{
	(void)arg;
	t_gpu_copy(there ? room : here, there ? here : room, len);
}

/* ---- Results --------------------------------------------------------------------------------- */

static struct t_setup setup_of(const struct owner *o)
{
	return (struct t_setup){ o->me.c, { o->memory, o->memory + T_ROOM }, o->me.q, copy, NULL };
}

/* Some types only under sanitizers, and of many ranks on a GPU: processes take turns there. */
static unsigned share_of_types(int nranks)
{
#ifdef T_PLAIN
	return nranks > 4 ? 5 : 1;
#else
	return t_is_slow() ? 5 : nranks > 4 ? 3 : 1;
#endif
}

static void all_types_and_ops(struct t_rank *r)
{
	struct owner o = own(start_small(r), 2 * T_ROOM);
	struct t_setup setup = setup_of(&o);
	size_t n = (size_t)r->nranks, counts[] = { 0, 1, n + 1, 67 };

	for (int type = 0; type < VALUES_NTYPES; type++)
		for (int op = 0;
		     op <= T_PREMUL && t_sampled((uint64_t)type, share_of_types(r->nranks)); op++)
			for (size_t k = 0; k < ARRAY_LEN(counts); k++)
				t_try_all_calls(&setup,
						(struct t_trial){ .type = (enum kolo_type)type,
								  .op = op,
								  .n = counts[k] },
						6);
	CHECK(r->nranks == 1 || transport || o.me.c->counters.ops[KO_DIRECT] > 0);
	CHECK(!transport || o.me.c->counters.ops[KO_DIRECT] == 0);
	disown(&o);
}

static void every_type_and_op_equals_the_sequential_result(void **state)
{
	(void)state;
	for_every_number_of_ranks(all_types_and_ops);
	for_ranks_of_both_kinds(all_types_and_ops);
	transport = "shm"; /* where it is memory like other memory */
	t_processes(2, all_types_and_ops, NULL);
	transport = NULL;
}

/* Lengths that a block of a kernel is done with at once, and longer ones; what goes round the ring
 * in between. */
static void many_counts(struct t_rank *r)
{
	struct owner o = own(start_small(r), 2 * T_ROOM);
	struct t_setup setup = setup_of(&o), unregistered = setup;
	size_t n = (size_t)r->nranks, counts[] = { 2 * n + 1, 509, 8192 * n, 30011 };

	unregistered.room[0] = t_gpu_alloc(T_ROOM);
	unregistered.room[1] = t_gpu_alloc(T_ROOM);
	CHECK(kolo_barrier(o.me.c, NULL) ==
	      0); /* CUDA may keep who registers memory waiting for streams of its process */
	shake(23 + (unsigned)r->rank);
	for (size_t k = 0; k < ARRAY_LEN(counts); k++)
		for (int call = 0; call < T_NCALLS; call++) {
			struct t_trial t = { .call = (enum t_call)call,
					     .type = k % 2 ? KOLO_F32 : KOLO_BF16,
					     .op = KOLO_SUM,
					     .n = counts[k],
					     .root = (int)k % r->nranks,
					     .in_place = (k + (size_t)call) % 2 };

			if (call >= REDUCE_SCATTER)
				t.n = t.n / n + 1;
			t_try(call == 1 && k == 1 ? &unregistered : &setup, &t);
		}
	shake(0);
	t_gpu_free(unregistered.room[0]);
	t_gpu_free(unregistered.room[1]);
	disown(&o);
}

static void every_count_equals_the_sequential_result(void **state)
{
	(void)state;
	for_every_number_of_ranks(many_counts);
	for_ranks_of_both_kinds(many_counts);
}

/* With counts; only src, or dst, is registered; and traffic. */
static void uneven(struct t_rank *r)
{
	struct owner o = own(start_small(r), 100000);
	size_t counts[MAX_RANKS] = { 0 }, sum = 0;
	int *x = (int *)o.memory, *y = t_gpu_alloc(o.len), *z = t_gpu_alloc(o.len),
	    *w = t_gpu_alloc(o.len);
	struct kolo_stats before, after;

	for (int k = 0; k < r->nranks; k++)
		sum += counts[k] = k == 1 ? 0 : 17 + 9000 / (size_t)(k + 1);
	for (size_t i = 0; i < sum; i++)
		y[i] = (int)i * (r->rank + 3);
	t_gpu_copy(x, y, sum * sizeof(*x));
	CHECK(kolo_barrier(o.me.c, NULL) == 0 && kolo_comm_stats(o.me.c, &before) == 0);
	CHECK(kolo_reduce_scatter_v(o.me.c, x, w, counts, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	CHECK(kolo_reduce_scatter_v(o.me.c, y, z, counts, KOLO_I32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_queue_wait(o.me.q) == 0 && memcmp(w, z, counts[r->rank] * sizeof(*w)) == 0);
	CHECK(kolo_all_gather_v(o.me.c, w, x, counts, KOLO_I32, o.me.q) == 0);
	CHECK(kolo_all_gather_v(o.me.c, w, z, counts, KOLO_I32, NULL) == 0);
	CHECK(kolo_queue_wait(o.me.q) == 0);
	t_gpu_copy(y, x, sum * sizeof(*x));
	CHECK(memcmp(y, z, sum * sizeof(*y)) == 0);
	for (int root = 0; root < r->nranks; root++) {
		CHECK(kolo_broadcast(o.me.c, y, x, 5000, KOLO_I32, root, o.me.q) == 0);
		CHECK(kolo_reduce(o.me.c, x, y, 5000, KOLO_I32, KOLO_SUM, root, o.me.q) == 0);
	}
	CHECK(kolo_all_reduce(o.me.c, x, x, 5000, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	CHECK(kolo_queue_wait(o.me.q) == 0 && kolo_comm_stats(o.me.c, &after) == 0);
	CHECK(after.sent_bytes - before.sent_bytes ==
	      after.model_sent_bytes - before.model_sent_bytes);
	CHECK(after.received_bytes - before.received_bytes ==
	      after.model_received_bytes - before.model_received_bytes);
	CHECK(o.me.c->counters.ops[KO_DIRECT] >= (uint64_t)(r->nranks > 1 ? 3 + 2 * r->nranks : 0));
	t_gpu_free(y);
	t_gpu_free(z);
	t_gpu_free(w);
	disown(&o);
}

static void blocks_may_be_uneven_and_traffic_is_the_models(void **state)
{
	(void)state;
	for_every_number_of_ranks(uneven);
	for_ranks_of_both_kinds(uneven);
}

/* ---- Order ----------------------------------------------------------------------------------- */

static void producer_and_consumer(struct t_rank *r)
{
#ifdef T_PLAIN
	int steps = r->nranks == 2 ? 10000 : 1000;
#else
	int steps = 300;
#endif
	struct owner o = own(start_small(r), CELLS * sizeof(long));

	produce_and_consume(&o.me, r, steps, (long *)o.memory);
	disown(&o);
}

static void a_collective_comes_between_the_kernels_around_it(void **state)
{
	(void)state;
	t_processes(2, producer_and_consumer, NULL);
	t_processes(4, producer_and_consumer, NULL);
	t_threads(3, producer_and_consumer, NULL);
	for_ranks_of_both_kinds(producer_and_consumer);
}

/* A graph of operations on registered memory and one round the ring, and calls in between. */
static void replay(struct t_rank *r)
{
	enum { N = 2000, TIMES = 3 };
	struct owner o = own(start_small(r), N * sizeof(int));
	struct t_stream *stream = o.me.stream;
	int *x = (int *)o.memory, *y = t_gpu_alloc(o.len), *z = t_gpu_alloc(o.len);
	struct t_graph *graph;

	t_capture_begin(stream);
	t_stream_copy(stream, x, y, o.len);
	CHECK(kolo_all_reduce(o.me.c, x, x, N, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	CHECK(kolo_broadcast(o.me.c, x, x, N / 2, KOLO_I32, r->nranks - 1, o.me.q) == 0);
	t_stream_copy(stream, z, x, o.len);
	CHECK(kolo_all_reduce(o.me.c, z, z, N, KOLO_I32, KOLO_MAX, o.me.q) == 0);
	graph = t_capture_end(stream);
	t_stream_finish(stream);
	CHECK(kolo_barrier(o.me.c, NULL) == 0); /* threads launch when all have made theirs */
	shake(9);
	for (int k = 0; k < TIMES; k++) {
		for (int i = 0; i < N; i++)
			y[i] = i * (k + 1) + r->rank;
		t_graph_launch(graph, stream);
		if (k == 1) /* something else in between */
			CHECK(kolo_all_reduce(o.me.c, x, x, N, KOLO_I32, KOLO_SUM, o.me.q) == 0);
		t_stream_finish(stream);
		for (int i = 0; i < N; i++)
			CHECK(z[i] == i * (k + 1) * r->nranks + r->nranks * (r->nranks - 1) / 2);
	}
	shake(0);
	CHECK(kolo_queue_wait(o.me.q) == 0 && kolo_barrier(o.me.c, NULL) == 0);
	t_graph_destroy(graph);
	t_gpu_free(y);
	t_gpu_free(z);
	disown(&o);
}

static void a_graph_is_replayed_three_times(void **state)
{
	(void)state;
	for_every_number_of_ranks(replay);
	for_ranks_of_both_kinds(replay);
}

/* Several buffers, one after another and at once, on two communicators; one of them within memory
 * that Kolo did not allocate. */
static void several(struct t_rank *r)
{
	enum { N = 1000, TIMES = 4, BEFORE = 256 };
	struct rank me = start_small(r);
	struct kolo_comm *c, *on;
	uint64_t direct;
	char *device = t_device_alloc(BEFORE + N * sizeof(int));
	int *x[3], *here = t_gpu_alloc(N * sizeof(*here)), sum = 0;

	CHECK(kolo_comm_split(me.c, 0, -r->rank, &c) == 0);
	for (int k = 0; k < 3; k++)
		if (k == 1)
			x[k] = (int *)(device + BEFORE);
		else
			CHECK(kolo_cuda_alloc(me.q, N * sizeof(*here), (void **)&x[k]) == 0);
	for (int p = 0; p < r->nranks; p++)
		sum += p;
	for (int t = 0; t < TIMES; t++) {
		for (int k = 0; k < 3; k++)
			CHECK(kolo_cuda_register(k == 2 ? c : me.c, me.q, x[k],
						 N * sizeof(*here)) == 0);
		CHECK(kolo_cuda_register(c, me.q, x[0], N * sizeof(*here)) == 0);
		for (int k = 0; k < 3; k++) {
			for (int i = 0; i < N; i++)
				here[i] = i * k + r->rank;
			t_gpu_copy(x[k], here, N * sizeof(*here));
			on = k == 2 ? c : me.c;
			direct = on->counters.ops[KO_DIRECT];
			CHECK(kolo_all_reduce(on, x[k], x[k], N, KOLO_I32, KOLO_SUM, me.q) == 0);
			CHECK(r->nranks == 1 || on->counters.ops[KO_DIRECT] == direct + 1);
			CHECK(kolo_queue_wait(me.q) == 0);
			t_gpu_copy(here, x[k], N * sizeof(*here));
			for (int i = 0; i < N; i++)
				CHECK(here[i] == i * k * r->nranks + sum);
		}
		for (int k = 0; k < 3; k++)
			CHECK(kolo_cuda_deregister(k == 2 ? c : me.c, x[k]) == 0);
		CHECK(kolo_cuda_deregister(c, x[0]) == 0);
	}
	kolo_comm_destroy(c);
	end(&me);
	for (int k = 0; k < 3; k += 2)
		CHECK(kolo_cuda_free(x[k]) == 0);
	t_device_free(device);
	t_gpu_free(here);
}

static void buffers_come_and_go(void **state)
{
	(void)state;
	for_every_number_of_ranks(several);
	for_ranks_of_both_kinds(several);
}

/* ---- Failures -------------------------------------------------------------------------------- */

enum { N = 5000 };

/* Rank 1 dies, or stops, with work of all of them under way. */
static void lose_rank(struct t_rank *r)
{
	const int *sig = r->arg;
	struct owner o = own(
		start(r, (struct kolo_comm_attr){ .timeout_s = *sig == SIGSTOP ? TIMEOUT_S : 60 }),
		N * sizeof(int));
	int rc = 0;

	CHECK(kolo_all_reduce(o.me.c, o.memory, o.memory, N, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	CHECK(kolo_queue_wait(o.me.q) == 0 && kolo_barrier(o.me.c, NULL) == 0);
	if (r->rank == GONE && *sig == SIGKILL)
		usleep(100000);
	if (r->rank == GONE)
		kill(getpid(), *sig);
	for (int k = 0; k < 5 && rc == 0; k++)
		rc = kolo_all_reduce(o.me.c, o.memory, o.memory, N, KOLO_I32, KOLO_SUM, o.me.q);
	if (r->rank != GONE)
		wait_for_failure(&o.me, *sig == SIGKILL ? KOLO_EPEER : KOLO_ETIMEDOUT, "rank 1 ");
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0);
#ifndef T_PLAIN
	CHECK(r->rank == GONE || t_driver_live() == 0);
#endif
}

static void a_killed_rank_is_named_and_streams_go_on(void **state)
{
	int pids[5], sig = SIGKILL;

	(void)state;
	for (int n = 2; n <= 5; n++) {
		t_start(n, lose_rank, &sig, pids);
		t_wait(n, pids, GONE);
	}
}

static void a_stopped_rank_is_named_after_the_timeout(void **state)
{
	int pids[4], sig = SIGSTOP, status;

	(void)state;
	t_start(4, lose_rank, &sig, pids);
	CHECK(waitpid(pids[GONE], &status, WUNTRACED) == pids[GONE] && WIFSTOPPED(status));
	sleep(TIMEOUT_S + 1);
	kill(pids[GONE], SIGCONT);
	kill(pids[GONE], SIGKILL);
	t_wait(4, pids, GONE);
}

/* Streams wait for a process, calls for a thread. */
static void one_is_late(struct t_rank *r)
{
	const bool *threads = r->arg;
	struct owner o =
		own(start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S }), N * sizeof(int));
	int rc = *threads ? KOLO_ETIMEDOUT : 0;

	if (r->rank == GONE)
		sleep(TIMEOUT_S + 1);
	else
		CHECK(kolo_all_reduce(o.me.c, o.memory, o.memory, N, KOLO_I32, KOLO_SUM, o.me.q) ==
		      rc);
	CHECK(r->rank == GONE || rc == 0 || strstr(kolo_last_error(), "rank 1 "));
	if (r->rank != GONE && !*threads)
		wait_for_failure(&o.me, KOLO_ETIMEDOUT, "rank 1 ");
	CHECK(kolo_comm_status(o.me.c) == KOLO_ETIMEDOUT);
	CHECK(kolo_cuda_deregister(o.me.c, o.memory) == KOLO_ETIMEDOUT);
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
	bool threads = false;

	(void)state;
	t_processes(3, one_is_late, &threads);
	threads = true;
	t_threads(3, one_is_late, &threads);
}

/* A rank that comes when all others have given up leaves their memory alone. */
static void one_comes_too_late(struct t_rank *r)
{
	enum { LATE_S = TIMEOUT_S + 2, REFILLED = 77 };
	struct owner o =
		own(start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S }), N * sizeof(int));
	struct own_work *late = t_gpu_alloc(sizeof(*late));
	long *cells = t_gpu_alloc(CELLS * sizeof(*cells));
	int *x = t_gpu_alloc(o.len);

	*late = (struct own_work){ cells, 1, LATE_S * 1000000 };
	if (r->rank == GONE)
		t_stream_run(o.me.stream, scale, late);
	CHECK(kolo_all_reduce(o.me.c, o.memory, o.memory, N, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	if (r->rank != GONE)
		wait_for_failure(&o.me, KOLO_ETIMEDOUT, "rank 1 ");
	else
		CHECK(kolo_queue_wait(o.me.q) == KOLO_ETIMEDOUT);
	kolo_comm_destroy(o.me.c);
	for (int i = 0; i < N; i++)
		x[i] = REFILLED;
	t_gpu_copy(o.memory, x, o.len);
	if (r->rank != GONE)
		sleep(LATE_S);
	t_gpu_copy(x, o.memory, o.len);
	for (int i = 0; i < N; i++)
		CHECK(x[i] == REFILLED);
	kolo_queue_destroy(o.me.q);
	t_stream_destroy(o.me.stream);
	CHECK(kolo_cuda_free(o.memory) == 0);
	t_gpu_free(late);
	t_gpu_free(cells);
	t_gpu_free(x);
}

static void who_comes_too_late_leaves_memory_alone(void **state)
{
	(void)state;
	t_processes(t_is_slow() ? 2 : 3, one_comes_too_late, NULL);
}

/* Until all others have begun the operation after this rank's last one: where one fails none is in
 * anything else. */
static void let_others_begin(const struct t_rank *r, const struct kolo_comm *c)
{
	struct ko_desc desc;

	for (int p = 0; p < r->nranks; p++)
		while (p != r->rank && !ko_roster_desc(c->roster, p, c->sequence.seq + 1, &desc))
			usleep(1000);
}

/* A rank leaves, or gives up, while the others' streams wait for it. */
static void one_leaves(struct t_rank *r)
{
	const int *abort_it = r->arg;
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = 60 }), N * sizeof(int));

	if (r->rank != GONE)
		CHECK(kolo_all_reduce(o.me.c, o.memory, o.memory, N, KOLO_I32, KOLO_SUM, o.me.q) ==
		      0);
	usleep(200000);
	if (r->rank == GONE && *abort_it)
		kolo_comm_abort(o.me.c);
	if (r->rank != GONE)
		wait_for_failure(&o.me, *abort_it ? KOLO_EABORTED : KOLO_EPEER, "rank 1 ");
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0);
}

static void a_rank_that_leaves_or_aborts_ends_the_wait(void **state)
{
	int abort_it = 0;

	(void)state;
	t_processes(2, one_leaves, &abort_it);
	t_processes(4, one_leaves, &abort_it);
	abort_it = 1;
	t_processes(3, one_leaves, &abort_it);
}

/* Rank 1 has its buffer elsewhere, or in none that is registered; or registers something else. */
static void disagree(struct t_rank *r)
{
	const int *how = r->arg;
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = 20 }), N * sizeof(int));
	int *other = t_gpu_alloc(N * sizeof(*other)), rc;
	bool odd = r->rank == GONE;
	char *x = !odd ? o.memory : *how == 0 ? o.memory + 16 : (char *)other;

	if (odd)
		let_others_begin(r, o.me.c);
	if (*how < 2)
		rc = kolo_all_reduce(o.me.c, x, x, 10, KOLO_I32, KOLO_SUM, o.me.q);
	else if (*how == 2)
		rc = kolo_cuda_register(o.me.c, o.me.q, o.memory, odd ? 4 : 8);
	else
		rc = odd ? kolo_cuda_deregister(o.me.c, o.memory) : kolo_barrier(o.me.c, NULL);
	if (rc == 0)
		rc = kolo_queue_wait(o.me.q);
	CHECK(rc == KOLO_EMISMATCH);
	CHECK(*how != 0 || strstr(kolo_last_error(), "at byte 16 of registration 1"));
	CHECK(*how != 1 || strstr(kolo_last_error(), "with buffers that are not all registered"));
	CHECK(*how != 2 || strstr(kolo_last_error(), "kolo_cuda_register of 4 bytes"));
	CHECK(*how != 3 ||
	      strstr(kolo_last_error(), "kolo_cuda_deregister of its registration number 1"));
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0);
	t_gpu_free(other);
}

static void ranks_that_disagree_are_told_both_places(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		t_processes(2, disagree, &how);
		t_processes(3, disagree, &how);
		t_threads(3, disagree, &how);
	}
}

/* In graphs ranks may be far apart: the first of many operations differs. */
static void disagree_long_ago(struct t_rank *r)
{
	enum { MANY = 1200 };
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = 20 }), N * sizeof(int));
	struct t_graph *graph;
	int rc = 0;

	if (r->rank == GONE) /* others are through with it */
		for (struct ko_desc d;
		     !ko_roster_desc(o.me.c->roster, 0, o.me.c->sequence.seq + MANY, &d);)
			usleep(1000);
	t_capture_begin(o.me.stream);
	for (int k = 0; rc == 0 && k < MANY; k++)
		rc = kolo_all_reduce(o.me.c, o.memory + (k == 0 && r->rank == GONE ? 64 : 0),
				     o.memory, 10, KOLO_I32, KOLO_SUM, o.me.q);
	graph = t_capture_end(o.me.stream);
	CHECK(r->rank != GONE ||
	      (rc == KOLO_EMISMATCH && strstr(kolo_last_error(), "in some operation before")));
	t_graph_destroy(graph);
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0);
}

static void so_they_are_when_that_was_long_ago(void **state)
{
	(void)state;
	t_processes(2, disagree_long_ago, NULL);
}

static void refuse(struct t_rank *r)
{
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = 30 }), 8192);
	void *ordinary = t_gpu_alloc(4096), *more, *none = ordinary;

	CHECK(kolo_cuda_alloc(o.me.q, 4096, &more) == 0);
	CHECK(kolo_cuda_alloc(o.me.q, 0, &none) == KOLO_EINVAL &&
	      kolo_cuda_alloc(NULL, 1, &none) == KOLO_EINVAL);
	CHECK(kolo_cuda_free(ordinary) == KOLO_EINVAL && kolo_cuda_free(NULL) == 0);
	CHECK(kolo_cuda_register(NULL, o.me.q, more, 1) == KOLO_EINVAL);
	CHECK(kolo_cuda_register(o.me.c, NULL, more, 1) == KOLO_EINVAL);
	CHECK(kolo_cuda_register(o.me.c, o.me.q, NULL, 1) == KOLO_EINVAL);
	CHECK(kolo_cuda_register(o.me.c, o.me.q, more, 0) == KOLO_EINVAL);
	CHECK(kolo_cuda_deregister(o.me.c, more) == KOLO_EINVAL &&
	      kolo_cuda_deregister(NULL, more) == KOLO_EINVAL);
	/* What is wrong on one rank is so on all. */
	CHECK(kolo_cuda_register(o.me.c, o.me.q, r->rank ? more : ordinary, 4096) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), r->rank ? "rank 0 " : "is not memory of GPU"));
	CHECK(kolo_cuda_register(o.me.c, o.me.q, r->rank ? more : o.memory + 4096, 4096) ==
	      KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), r->rank ? "rank 0 " : "registered already"));
	CHECK(kolo_cuda_register(o.me.c, o.me.q, more, 4096) == 0);
	CHECK(kolo_cuda_deregister(o.me.c, more) == 0 &&
	      kolo_cuda_deregister(o.me.c, more) == KOLO_EINVAL);
	CHECK(kolo_cuda_free(more) == 0 && kolo_cuda_free(more) == KOLO_EINVAL);
	CHECK(kolo_comm_status(o.me.c) == 0);
	t_gpu_free(ordinary);
	disown(&o);
}

static void what_can_not_be_registered_is_refused(void **state)
{
	(void)state;
	t_processes(2, refuse, NULL);
	t_threads(2, refuse, NULL);
}

#ifndef T_PLAIN
/* Each call of the driver fails once on one rank while memory is registered: then it is on none,
 * and all else works. */
static void fail_to_register(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	void *memory = NULL;
	long k = 0, live;
	uint64_t direct;
	int *x, good = 0; /* registrations */

	CHECK(kolo_cuda_connect(me.c, me.q) == 0 && kolo_cuda_alloc(me.q, 4096, &memory) == 0);
	x = memory;
	live = t_driver_live();
	for (long call = 1; good < 2; call++, k++) {
		int rc;

		CHECK(k < 100);
		*x = r->rank + 1;
		t_driver_fail(r->rank == 1 ? call : 0);
		rc = kolo_cuda_register(me.c, me.q, memory, 4096);
		t_driver_fail(0);
		CHECK(rc == 0 || (rc == KOLO_ESYS && strstr(kolo_last_error(), "rank 1")));
		CHECK(rc == 0 || t_driver_live() == live);
		CHECK(kolo_comm_status(me.c) == 0);
		direct = me.c->counters.ops[KO_DIRECT];
		CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_MAX, me.q) == 0);
		CHECK(me.c->counters.ops[KO_DIRECT] == direct + (rc == 0));
		CHECK(kolo_queue_wait(me.q) == 0 && *x == r->nranks);
		good += rc == 0;
		CHECK(rc < 0 || good == 2 || kolo_cuda_deregister(me.c, memory) == 0);
		call = rc == 0 ? 0 : call;
	}
	CHECK(k > 5);
	end(&me); /* with a registration */
	CHECK(kolo_cuda_free(memory) == 0);
	CHECK(t_driver_live() == 0);
}

static void a_driver_that_fails_in_registering_harms_nobody(void **state)
{
	(void)state;
	t_processes(3, fail_to_register, NULL);
}

/* Who fails to deregister says so to the others, who wait. */
static void fail_to_deregister(struct t_rank *r)
{
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = 30 }), 4096);
	int rc;

	CHECK(kolo_all_reduce(o.me.c, o.memory, o.memory, 1, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	if (r->rank == GONE)
		let_others_begin(r, o.me.c);
	t_driver_fail(r->rank == GONE ? 1 : 0);
	rc = kolo_cuda_deregister(o.me.c, o.memory);
	t_driver_fail(0);
	CHECK(rc == KOLO_ESYS && strstr(kolo_last_error(), "rank 1"));
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0 && t_driver_live() == 0);
}

static void a_driver_that_fails_in_deregistering_fails_all(void **state)
{
	(void)state;
	t_processes(3, fail_to_deregister, NULL);
}

/* Whoever's kernel takes too long is to blame, and nobody who waits for it. */
static void slow_kernel(struct t_rank *r)
{
	const int *slow = r->arg;
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S }), 4096);
	char name[16];

	snprintf(name, sizeof(name), "rank %d ", *slow);
	t_driver_slow(r->rank == *slow ? (TIMEOUT_S + 1) * 1000 : 0);
	CHECK(kolo_all_reduce(o.me.c, o.memory, o.memory, 1000, KOLO_I32, KOLO_SUM, o.me.q) == 0);
	CHECK(kolo_queue_wait(o.me.q) == KOLO_ETIMEDOUT);
	CHECK(strncmp(kolo_last_error(), name, strlen(name)) == 0);
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0);
}

static void a_rank_whose_kernel_runs_is_named(void **state)
{
	(void)state;
	for (int slow = 0; slow < (t_is_slow() ? 1 : 3); slow += 2)
		t_processes(3, slow_kernel, &slow);
	for (int slow = 1; slow < (t_is_slow() ? 1 : 2); slow++)
		t_processes(2, slow_kernel, &slow);
}

/* Joining finds a path that loses bytes. */
static void lose_bytes(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	void *memory;
	int x = r->rank;

	CHECK(kolo_cuda_alloc(me.q, 4096, &memory) == 0);
	t_driver_lose(r->rank == GONE);
	CHECK(kolo_cuda_connect(me.c, me.q) == KOLO_ESYS);
	CHECK(strstr(kolo_last_error(), "the path between the two GPUs lies") ||
	      strstr(kolo_last_error(), "its own error"));
	t_driver_lose(false);
	CHECK(kolo_all_reduce(me.c, &x, &x, 1, KOLO_I32, KOLO_MAX, NULL) == 0 &&
	      x == r->nranks - 1);
	CHECK(kolo_cuda_register(me.c, me.q, memory, 4096) == 0);
	end(&me);
	CHECK(kolo_cuda_free(memory) == 0 && t_driver_live() == 0);
}

static void a_path_that_loses_bytes_is_found(void **state)
{
	(void)state;
	t_processes(3, lose_bytes, NULL);
}

/* And while an operation is recorded: the communicator fails on all. */
static void fail_to_record(struct t_rank *r)
{
	const long *k = r->arg;
	struct owner o = own(start(r, (struct kolo_comm_attr){ .timeout_s = 30 }), 4096);
	int rc;

	if (r->rank == GONE)
		let_others_begin(r, o.me.c);
	t_driver_fail(r->rank == GONE ? *k : 0);
	rc = kolo_all_reduce(o.me.c, o.memory, o.memory, 1, KOLO_I32, KOLO_SUM, o.me.q);
	t_driver_fail(0);
	if (rc == 0)
		rc = kolo_queue_wait(o.me.q);
	/* A call that fails after rank 1's kernel began may come after the others' end. */
	for (int64_t since = t_now_ms(); rc == 0 && t_now_ms() - since < 10000;)
		rc = kolo_comm_status(o.me.c);
	CHECK(rc == KOLO_ESYS && strstr(kolo_last_error(), "rank 1"));
	end(&o.me);
	CHECK(kolo_cuda_free(o.memory) == 0 && t_driver_live() == 0);
}

static void a_driver_that_fails_in_recording_fails_all(void **state)
{
	(void)state;
	for (long k = 1; k < 8; k++)
		t_processes(3, fail_to_record, &k);
}
#endif

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_type_and_op_equals_the_sequential_result),
	cmocka_unit_test(every_count_equals_the_sequential_result),
	cmocka_unit_test(blocks_may_be_uneven_and_traffic_is_the_models),
	cmocka_unit_test(a_collective_comes_between_the_kernels_around_it),
	cmocka_unit_test(a_graph_is_replayed_three_times),
	cmocka_unit_test(buffers_come_and_go),
	cmocka_unit_test(a_killed_rank_is_named_and_streams_go_on),
	cmocka_unit_test(a_stopped_rank_is_named_after_the_timeout),
	cmocka_unit_test(a_rank_that_does_not_come_is_named),
	cmocka_unit_test(who_comes_too_late_leaves_memory_alone),
	cmocka_unit_test(a_rank_that_leaves_or_aborts_ends_the_wait),
	cmocka_unit_test(ranks_that_disagree_are_told_both_places),
	cmocka_unit_test(so_they_are_when_that_was_long_ago),
	cmocka_unit_test(what_can_not_be_registered_is_refused),
#ifndef T_PLAIN
	cmocka_unit_test(a_driver_that_fails_in_registering_harms_nobody),
	cmocka_unit_test(a_driver_that_fails_in_deregistering_fails_all),
	cmocka_unit_test(a_rank_whose_kernel_runs_is_named),
	cmocka_unit_test(a_path_that_loses_bytes_is_found),
	cmocka_unit_test(a_driver_that_fails_in_recording_fails_all),
#endif
};

T_MAIN(tests)
