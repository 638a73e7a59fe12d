/* Collectives on CUDA streams (gpu.h): what Kolo records is right in any order that streams may run
 * in; ranks that disagree, and a driver that fails. Part of make check on a driver made of
 * threads; make check-cuda runs it on a GPU, without cmocka (T_PLAIN). */
#include "comm/core/comm.h"
#include "cuda/gpu/gpu.h"
#include "tests/cuda/gpu_ranks.h"
#include "tests/lib/trial.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Results --------------------------------------------------------------------------------- */

static void all_types_and_ops(struct t_rank *r)
{
	struct rank me = start_small(r);
	struct t_setup setup = {
		me.c, { t_gpu_alloc(T_ROOM), t_gpu_alloc(T_ROOM) }, me.q, NULL, NULL
	};
	size_t n = (size_t)r->nranks, counts[] = { 0, 1, n + 1, 67 };

	for (int type = 0; type < VALUES_NTYPES; type++)
		for (int op = 0; op <= T_PREMUL; op++)
			for (size_t k = 0; k < ARRAY_LEN(counts); k++)
				if (t_sampled((uint64_t)(type + op) + k, 2))
					t_try_all_calls(
						&setup,
						(struct t_trial){ .type = (enum kolo_type)type,
								  .op = op,
								  .n = counts[k] },
						6);
	end(&me);
	t_gpu_free(setup.room[0]);
	t_gpu_free(setup.room[1]);
}

static void every_type_and_op_equals_the_sequential_result(void **state)
{
	(void)state;
	for_every_number_of_ranks(all_types_and_ops);
	if (t_is_slow())
		return;
	for_every_shape(all_types_and_ops, NULL);
	for_every_proxy(all_types_and_ops, NULL);
}

/* Slots hold 8316 f32 of a ring, 4156 of a chain. */
static void many_counts(struct t_rank *r)
{
	struct rank me = start_small(r);
	struct t_setup setup = {
		me.c, { t_gpu_alloc(T_ROOM), t_gpu_alloc(T_ROOM) }, me.q, NULL, NULL
	};
	size_t n = (size_t)r->nranks,
	       counts[] = { 2 * n + 1, 509, 8316, 8317, n > 4 ? 8323 : 8316 * n + 1, 20481 };

	shake(17 + (unsigned)r->rank);
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		struct t_trial t = { .type = k % 2 ? KOLO_F32 : KOLO_BF16,
				     .op = KOLO_SUM,
				     .n = counts[k] };

		for (int call = 0; call < T_NCALLS; call++) {
			t.call = (enum t_call)call;
			t.root = (int)k % r->nranks;
			t.in_place = (k + (size_t)call) % 2;
			t_try(&setup, &t);
		}
	}
	shake(0);
	end(&me);
	t_gpu_free(setup.room[0]);
	t_gpu_free(setup.room[1]);
}

static void every_count_equals_the_sequential_result(void **state)
{
	(void)state;
	for_every_number_of_ranks(many_counts);
	for_every_shape(many_counts, NULL);
	if (!t_is_slow())
		for_every_proxy(many_counts, NULL);
}

/* Blocks of any size, which is what the host makes of them. */
static void uneven(struct t_rank *r)
{
	enum { ALL = 30000 };
	struct rank me = start_small(r);
	size_t counts[MAX_RANKS] = { 0 }, sum = 0;
	int *x = t_gpu_alloc(ALL * sizeof(*x)), *y = t_gpu_alloc(ALL * sizeof(*y)),
	    *z = t_gpu_alloc(ALL * sizeof(*z));

	for (int k = 0; k < r->nranks; k++)
		sum += counts[k] = k == 1 ? 0 : 17 + 9000 / (size_t)(k + 1);
	for (size_t i = 0; i < sum; i++)
		x[i] = (int)i * (r->rank + 3);
	CHECK(kolo_reduce_scatter_v(me.c, x, y, counts, KOLO_I32, KOLO_SUM, me.q) == 0);
	CHECK(kolo_reduce_scatter_v(me.c, x, z, counts, KOLO_I32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_queue_wait(me.q) == 0 && memcmp(y, z, ALL * sizeof(*y)) == 0);
	CHECK(kolo_all_gather_v(me.c, x, y, counts, KOLO_I32, me.q) == 0);
	CHECK(kolo_all_gather_v(me.c, x, z, counts, KOLO_I32, NULL) == 0);
	CHECK(kolo_queue_wait(me.q) == 0 && memcmp(y, z, ALL * sizeof(*y)) == 0);
	t_gpu_free(x);
	t_gpu_free(y);
	t_gpu_free(z);
	end(&me);
}

static void blocks_may_be_uneven(void **state)
{
	(void)state;
	t_processes(3, uneven, NULL);
	t_threads(4, uneven, NULL);
	for_every_proxy(uneven, NULL);
	for_every_shape(uneven, NULL);
}

static void traffic(struct t_rank *r)
{
	struct rank me = start_small(r);
	struct kolo_stats before, after;
	int *x = t_gpu_alloc(60000 * sizeof(*x));

	CHECK(kolo_cuda_connect(me.c, me.q) == 0 && kolo_comm_stats(me.c, &before) == 0);
	CHECK(kolo_all_reduce(me.c, x, x, 4200 * (size_t)r->nranks, KOLO_I32, KOLO_SUM, me.q) == 0);
	CHECK(kolo_comm_stats(me.c, &after) == 0 && after.ops == before.ops + 1);
	CHECK(after.sent_bytes - before.sent_bytes ==
	      (size_t)2 * 4200 * 4 * ((size_t)r->nranks - 1));
	for (size_t k = 0; k < 10; k++) {
		CHECK(kolo_broadcast(me.c, x, x, k * 1100, KOLO_I32, (int)k % r->nranks, me.q) ==
		      0);
		CHECK(kolo_reduce(me.c, x, x, k * 1133, KOLO_I32, KOLO_MAX, (int)k % r->nranks,
				  me.q) == 0);
		CHECK(kolo_barrier(me.c, me.q) == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0 && kolo_comm_stats(me.c, &after) == 0);
	CHECK(after.sent_bytes - before.sent_bytes ==
	      after.model_sent_bytes - before.model_sent_bytes);
	CHECK(after.received_bytes - before.received_bytes ==
	      after.model_received_bytes - before.model_received_bytes);
	t_gpu_free(x);
	end(&me);
}

static void traffic_is_what_the_model_says(void **state)
{
	(void)state;
	for_every_number_of_ranks(traffic);
	for_every_proxy(traffic, NULL);
	for_every_shape(traffic, NULL);
}

/* ---- Order ----------------------------------------------------------------------------------- */

static void producer_and_consumer(struct t_rank *r)
{
	const int *steps = r->arg;
	struct rank me = start_small(r);

	produce_and_consume(&me, r, *steps, NULL);
	end(&me);
}

static void a_collective_comes_between_the_kernels_around_it(void **state)
{
#ifdef T_PLAIN
	int many = 10000, steps = 1000;
#else
	int many = 300, steps = 300;
#endif

	(void)state;
	t_processes(2, producer_and_consumer, &many);
	t_processes(4, producer_and_consumer, &steps);
	t_threads(3, producer_and_consumer, &many);
	for_every_proxy(producer_and_consumer, &steps);
	group_size = 2;
	t_processes(4, producer_and_consumer, &steps);
	t_threads(4, producer_and_consumer, &steps);
	group_size = 0;
}

/* Operations of one communicator on streams that each rank chooses for itself; each needs what the
 * one before has left. */
static void one_order(struct t_rank *r)
{
	enum { N = 50, TIMES = 150, NSTREAMS = 3 };
	struct rank me = start_small(r);
	struct t_stream *streams[NSTREAMS] = { me.stream };
	struct kolo_queue *q[NSTREAMS] = { me.q };
	uint64_t own = 11 + (uint64_t)r->rank, *x = t_gpu_alloc(N * sizeof(*x)), want[N];

	for (int k = 1; k < NSTREAMS; k++) {
		streams[k] = t_stream_create(r->rank % 2);
		CHECK(kolo_cuda_queue_create(t_stream_handle(streams[k]), &q[k]) == 0);
	}
	shake(5);
	for (int i = 0; i < N; i++)
		x[i] = want[i] = (uint64_t)i;
	for (int k = 0; k < TIMES; k++) {
		CHECK(kolo_all_reduce(me.c, x, x, N, KOLO_U64, k % 3 ? KOLO_SUM : KOLO_PROD,
				      q[t_random(&own) % NSTREAMS]) == 0);
		for (int i = 0; i < N; i++) {
			uint64_t all = k % 3 ? 0 : 1;

			for (int p = 0; p < r->nranks; p++)
				all = k % 3 ? all + want[i] : all * want[i];
			want[i] = all;
		}
	}
	for (int k = 0; k < NSTREAMS; k++)
		CHECK(kolo_queue_wait(q[k]) == 0);
	CHECK(memcmp(x, want, sizeof(want)) == 0);
	shake(0);
	end(&me);
	t_gpu_free(x);
	for (int k = 1; k < NSTREAMS; k++) {
		kolo_queue_destroy(q[k]);
		t_stream_destroy(streams[k]);
	}
}

/* A call after a capture still comes after the call before it. */
static void around_a_capture(struct t_rank *r)
{
	enum { N = 3000 };
	struct rank me = start_small(r);
	struct t_stream *other = t_stream_create(r->rank % 2);
	struct own_work *work = t_gpu_alloc(sizeof(*work));
	long *x = t_gpu_alloc(N * sizeof(*x)), *y = t_gpu_alloc(N * sizeof(*y));
	struct kolo_queue *q;
	struct t_graph *graph;

	CHECK(kolo_cuda_queue_create(t_stream_handle(other), &q) == 0 &&
	      kolo_cuda_connect(me.c, q) == 0);
	for (int i = 0; i < N; i++)
		x[i] = i;
	*work = (struct own_work){ y, 1, 50000 };
	t_stream_run(me.stream, scale, work); /* the first one comes late */
	CHECK(kolo_all_reduce(me.c, x, x, N, KOLO_I64, KOLO_SUM, me.q) == 0);
	t_capture_begin(other);
	CHECK(kolo_all_reduce(me.c, y, y, N, KOLO_I64, KOLO_SUM, q) == 0);
	graph = t_capture_end(other);
	CHECK(kolo_all_reduce(me.c, x, x, N, KOLO_I64, KOLO_SUM, q) == 0);
	CHECK(kolo_queue_wait(q) == 0);
	for (int i = 0; i < N; i++)
		CHECK(x[i] == (long)i * r->nranks * r->nranks);
	t_graph_destroy(graph);
	end(&me);
	kolo_queue_destroy(q);
	t_stream_destroy(other);
	t_gpu_free(x);
	t_gpu_free(y);
	t_gpu_free(work);
}

static void streams_of_a_communicator_keep_the_order_of_calls(void **state)
{
	(void)state;
	t_processes(3, one_order, NULL);
	t_threads(3, one_order, NULL);
	for_every_proxy(one_order, NULL);
	t_processes(3, around_a_capture, NULL);
	t_threads(2, around_a_capture, NULL);
}

/* Two communicators of one thread, each with a stream, alone and in groups. */
static void two_communicators(struct t_rank *r)
{
	enum { N = 3000, TIMES = 40 };
	struct rank me = start_small(r);
	struct t_stream *other = t_stream_create(r->rank % 2);
	struct kolo_queue *q;
	struct kolo_comm *d;
	int *x = t_gpu_alloc(N * sizeof(*x)), *y = t_gpu_alloc(N * sizeof(*y)), power = 1;

	CHECK(kolo_cuda_queue_create(t_stream_handle(other), &q) == 0);
	CHECK(kolo_comm_split(me.c, 0, -r->rank, &d) == 0);
	for (int i = 0; i < N; i++)
		x[i] = y[i] = i % 7;
	for (int k = 0; k < TIMES; k++) {
		bool grouped = k % 4 == 1;

		CHECK(!grouped || kolo_group_begin() == 0);
		CHECK(kolo_all_reduce(me.c, x, x, N, KOLO_I32, KOLO_SUM, me.q) == 0);
		CHECK(kolo_all_reduce(d, y, y, N, KOLO_I32, KOLO_SUM, q) == 0);
		CHECK(!grouped || kolo_group_end() == 0);
		power = (int)((unsigned)power * (unsigned)r->nranks);
	}
	CHECK(kolo_queue_wait(me.q) == 0 && kolo_queue_wait(q) == 0);
	for (int i = 0; i < N; i++)
		CHECK(x[i] == (int)((unsigned)power * (unsigned)(i % 7)) && y[i] == x[i]);
	kolo_comm_destroy(d);
	kolo_queue_destroy(q);
	end(&me);
	t_stream_destroy(other);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void a_thread_uses_two_communicators(void **state)
{
	(void)state;
	t_processes(2, two_communicators, NULL);
	t_processes(3, two_communicators, NULL);
	t_threads(3, two_communicators, NULL);
}

/* One thread that has all ranks of a ring, and calls for them in one group. */
struct all_ranks {
	struct rank ranks[4];
	int *x[4];
};

static struct all_ranks everyone;
static atomic_int made; /* ranks whose threads use them no more */

static void make_one(struct t_rank *r)
{
	everyone.ranks[r->rank] = start_small(r);
	everyone.x[r->rank] = t_gpu_alloc(9000 * sizeof(int));
	atomic_fetch_add(&made, 1);
	if (r->rank != 0)
		return;
	while (atomic_load(&made) < r->nranks)
		usleep(1000);
	for (int k = 0; k < 10; k++) {
		CHECK(kolo_group_begin() == 0);
		for (int p = 0; p < r->nranks; p++) {
			if (k == 0)
				everyone.x[p][8999] = p + 1;
			CHECK(kolo_all_reduce(everyone.ranks[p].c, everyone.x[p], everyone.x[p],
					      9000, KOLO_I32, KOLO_SUM, everyone.ranks[p].q) == 0);
		}
		CHECK(kolo_group_end() == 0);
	}
	for (int p = 0; p < r->nranks; p++) {
		CHECK(kolo_queue_wait(everyone.ranks[p].q) == 0);
		CHECK(everyone.x[p][8999] == 10 << 2 * 9);
	}
	for (int p = 0; p < r->nranks; p++) {
		end(&everyone.ranks[p]);
		t_gpu_free(everyone.x[p]);
	}
}

static void a_thread_calls_for_all_ranks_in_a_group(void **state)
{
	(void)state;
	t_threads(4, make_one, NULL);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* A sequence of all collectives, as a graph and as calls. */
static void sequence(struct rank *me, int nranks, int *x, int *y, int *z, struct kolo_queue *q)
{
	enum { N = 20000, PART = 2500 };

	CHECK(kolo_all_reduce(me->c, x, y, N, KOLO_I32, KOLO_SUM, q) == 0);
	CHECK(kolo_reduce_scatter(me->c, y, z, PART, KOLO_I32, KOLO_AVG, q) == 0);
	CHECK(kolo_all_gather(me->c, z, y, PART, KOLO_I32, q) == 0);
	CHECK(kolo_barrier(me->c, q) == 0);
	CHECK(kolo_reduce(me->c, y, z, N, KOLO_I32, KOLO_MAX, nranks - 1, q) == 0);
	CHECK(kolo_broadcast(me->c, z, y, N, KOLO_I32, nranks - 1, q) == 0);
	CHECK(kolo_all_reduce(me->c, y, y, 3, KOLO_I32, KOLO_PROD, q) == 0);
}

static void replay(struct t_rank *r)
{
	enum { N = 20000, TIMES = 3 };
	struct rank me = start_small(r);
	int *x = t_gpu_alloc(N * sizeof(*x)), *y = t_gpu_alloc(N * sizeof(*y)),
	    *z = t_gpu_alloc(N * sizeof(*z));
	int *want = t_gpu_alloc(N * sizeof(*want)), *scratch = t_gpu_alloc(N * sizeof(*scratch));
	struct t_graph *graph;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	CHECK(kolo_all_reduce(me.c, x, y, N, KOLO_I32, KOLO_SUM, me.q) == 0);
	t_capture_begin(me.stream);
	sequence(&me, r->nranks, x, y, z, me.q);
	graph = t_capture_end(me.stream);
	t_stream_finish(me.stream);
	CHECK(kolo_barrier(me.c, NULL) == 0); /* threads launch when all have made theirs */
	shake(9);
	for (int k = 0; k < TIMES; k++) {
		for (int i = 0; i < N; i++)
			x[i] = i * (k + 1) + r->rank;
		t_graph_launch(graph, me.stream);
		if (k == 1) /* something else in between */
			CHECK(kolo_barrier(me.c, me.q) == 0);
		t_stream_finish(me.stream);
		sequence(&me, r->nranks, x, want, scratch, NULL);
		CHECK(memcmp(y, want, N * sizeof(*y)) == 0);
	}
	shake(0);
	CHECK(kolo_queue_wait(me.q) == 0);
	t_graph_destroy(graph);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
	t_gpu_free(z);
	t_gpu_free(want);
	t_gpu_free(scratch);
}

static void a_graph_is_replayed_three_times(void **state)
{
	(void)state;
	for_every_number_of_ranks(replay);
	for_every_proxy(replay, NULL);
	for_every_shape(replay, NULL);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void disagree(struct t_rank *r)
{
	const int *how = r->arg;
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 20 });
	int *x = t_gpu_alloc(20 * sizeof(*x)), rc;
	size_t n = *how == 0 && r->rank == 1 ? 11 : 10;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	rc = kolo_all_reduce(me.c, x, x, n, KOLO_I32, KOLO_SUM,
			     *how == 1 && r->rank == 1 ? NULL : me.q);
	if (rc == 0)
		rc = kolo_queue_wait(me.q);
	CHECK(rc == KOLO_EMISMATCH && strstr(kolo_last_error(), *how ? "on a stream" : "n=11"));
	end(&me);
	t_gpu_free(x);
}

static void ranks_that_disagree_are_told_both_values(void **state)
{
	(void)state;
	for (int how = 0; how < 2; how++) {
		t_processes(2, disagree, &how);
		t_processes(3, disagree, &how);
		t_threads(3, disagree, &how);
		for_every_proxy(disagree, &how);
	}
}

#ifndef T_PLAIN
/* Each call of the driver fails once on one rank while GPUs are joined: then they are on none, and
 * all else works. */
static void fail_to_join(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	int *x = t_gpu_alloc(sizeof(*x)), rc = -1;
	long k = 0;

	*x = 1;
	for (; rc != 0; k++) {
		CHECK(k < 200);
		t_driver_fail(r->rank == 1 ? k + 1 : 0);
		rc = kolo_cuda_connect(me.c, me.q);
		t_driver_fail(0);
		CHECK(rc == 0 || rc == KOLO_ESYS);
		CHECK(rc == 0 || t_driver_live() == 1 ||
		      r->arg); /* the queue's GPU; threads share the count */
		CHECK(rc == 0 || strstr(kolo_last_error(), "rank 1"));
		CHECK(kolo_comm_status(me.c) == 0);
		CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_MAX, NULL) == 0 && *x == 1);
	}
	CHECK(k > 10);
	CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == 0 &&
	      kolo_queue_wait(me.q) == 0);
	CHECK(*x == r->nranks);
	end(&me);
	t_gpu_free(x);
}

static void a_driver_that_fails_in_joining_harms_nobody(void **state)
{
	(void)state;
	t_processes(3, fail_to_join, NULL);
	transport = "shm";
	t_processes(2, fail_to_join, NULL);
	transport = NULL;
}

/* All ranks' bytes go through host memory if one can't reach others, or rank 0 says so. */
static void work_apart(struct t_rank *r)
{
	const bool *by_rank_0 = r->arg; /* NULL: of threads */
	bool asked = by_rank_0 && *by_rank_0;
	struct rank me;
	void *memory;
	int *x, *y;

	if (asked && r->rank == 0)
		setenv("KOLO_CUDA_P2P", "0", 1);
	me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	CHECK(kolo_cuda_alloc(me.q, 8 * sizeof(*x), &memory) == 0);
	x = memory;
	y = x + 4;
	if (!asked && r->rank == 1)
		t_driver_apart(true);
	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	CHECK(kolo_cuda_register(me.c, me.q, memory, 8 * sizeof(*x)) == 0);
	t_driver_apart(false);
	CHECK(ko_gpu_of(me.c)->apart);
	for (int k = 0; k < r->nranks; k++)
		x[k] = r->rank + 1;
	CHECK(kolo_all_to_all(me.c, x, y, 1, KOLO_I32, me.q) == 0);
	CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0);
	CHECK(x[0] == r->nranks * (r->nranks + 1) / 2);
	for (int k = 0; k < r->nranks; k++)
		CHECK(y[k] == k + 1);
	end(&me);
	CHECK(kolo_cuda_free(memory) == 0);
	CHECK(t_driver_live() == 0 || !by_rank_0);
}

static void gpus_that_can_not_reach_each_other_go_through_host_memory(void **state)
{
	bool asked[] = { false, true };

	(void)state;
	for (int k = 0; k < 2; k++) {
		t_processes(2, work_apart, &asked[k]);
		t_processes(4, work_apart, &asked[k]);
	}
	t_threads(3, work_apart, NULL);
}

/* And while an operation is recorded: the communicator fails on all. */
static void fail_to_record(struct t_rank *r)
{
	const long *k = r->arg;
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	int *x = t_gpu_alloc(sizeof(*x)), rc;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	t_driver_fail(r->rank == 1 ? *k : 0);
	rc = kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q);
	t_driver_fail(0);
	if (rc == 0)
		rc = kolo_queue_wait(me.q);
	CHECK(rc == KOLO_ESYS && strstr(kolo_last_error(), "rank 1"));
	end(&me);
	CHECK(t_driver_live() == 0);
	t_gpu_free(x);
}

static void a_driver_that_fails_in_recording_fails_all(void **state)
{
	(void)state;
	for (long k = 1; k < 10; k++) {
		t_processes(3, fail_to_record, &k);
		transport = "shm";
		t_processes(3, fail_to_record, &k);
		transport = NULL;
	}
}

/* ---- Speed ----------------------------------------------------------------------------------- */

/* Of vectors that begin at a multiple of 16 bytes kernels load and store 16 at once, wherever they
 * are cut. */
static void alike(struct t_rank *r)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_BF16, KOLO_U8, KOLO_F64 };
	struct rank me = start_small(r);
	float *x = t_gpu_alloc(T_ROOM), *y = t_gpu_alloc(T_ROOM);

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	t_driver_unlike();
	for (size_t k = 0; k < ARRAY_LEN(types); k++) {
		size_t n = T_ROOM / 16 - 3 * k - 1;

		CHECK(kolo_all_reduce(me.c, x, y, n, types[k], KOLO_SUM, me.q) == 0);
		CHECK(kolo_all_reduce(me.c, x, x, n, types[k], KOLO_AVG, me.q) == 0);
		CHECK(kolo_broadcast(me.c, x, y, n, types[k], 1, me.q) == 0);
		CHECK(kolo_reduce(me.c, x, y, n, types[k], KOLO_MAX, 2, me.q) == 0);
		n = n / (size_t)r->nranks / 16 * 16;
		CHECK(kolo_all_gather(me.c, y, x, n, types[k], me.q) == 0);
		CHECK(kolo_reduce_scatter(me.c, x, y, n, types[k], KOLO_SUM, me.q) == 0);
	}
	CHECK(t_driver_unlike() == 0);
	CHECK(kolo_all_reduce(me.c, x + 1, y, 1000, KOLO_F32, KOLO_SUM, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0 && t_driver_unlike() > 0);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void wherever_a_vector_is_cut_places_lie_alike(void **state)
{
	(void)state;
	t_processes(3, alike, NULL);
}

/* ---- Events of kolo.h ------------------------------------------------------------------------ */

static void twice(void *arg)
{
	int *x = arg;

	usleep(20000);
	*x *= 2;
}

static void events(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	struct t_stream *second = t_stream_create(r->rank % 2);
	struct kolo_queue *other, *host;
	struct kolo_event *event;
	int *x = t_gpu_alloc(sizeof(*x)), y = 0, done;

	*x = 1;
	CHECK(kolo_cuda_queue_create(t_stream_handle(second), &other) == 0 &&
	      kolo_queue_create(&host) == 0 && kolo_event_create(&event) == 0);
	/* from stream to stream, and to the host */
	t_stream_run(me.stream, twice, x);
	CHECK(kolo_event_record(event, me.q) == 0 && kolo_event_query(event, &done) == 0);
	CHECK(!done && kolo_queue_wait_event(other, event) == 0);
	t_stream_run(second, twice, x);
	CHECK(kolo_event_record(event, other) == 0 && kolo_event_wait(event) == 0 && *x == 4);
	CHECK(kolo_event_query(event, &done) == 0 && done);
	/* a queue with a thread comes after a stream's collective */
	t_stream_run(me.stream, twice, x);
	CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_MAX, me.q) == 0);
	CHECK(kolo_event_record(event, me.q) == 0 && kolo_queue_wait_event(host, event) == 0);
	CHECK(kolo_all_reduce(me.c, x, &y, 1, KOLO_I32, KOLO_SUM, host) == 0);
	CHECK(kolo_queue_wait(host) == 0 && y == 8 * r->nranks);
	/* and a stream after that */
	CHECK(kolo_event_record(event, host) == 0 && kolo_queue_wait_event(me.q, event) == 0);
	CHECK(kolo_broadcast(me.c, x, x, 1, KOLO_I32, 0, me.q) == 0 && kolo_queue_wait(me.q) == 0);
	/* an event outlives its queue */
	t_stream_run(second, twice, x);
	CHECK(kolo_event_record(event, other) == 0);
	kolo_queue_destroy(other);
	CHECK(kolo_event_wait(event) == 0 && *x == 16);
	kolo_event_destroy(event);
	kolo_queue_destroy(host);
	end(&me);
#ifndef T_PLAIN
	CHECK(t_driver_live() == 0);
#endif
	t_stream_destroy(second);
	t_gpu_free(x);
}

static void events_order_streams_and_queues(void **state)
{
	(void)state;
	t_processes(2, events, NULL);
	t_threads(1, events, NULL);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void refuse(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	struct t_stream *far = t_stream_create(7);
	struct kolo_queue *on_other_gpu;
	struct kolo_cuda_pointer p;
	int *x = t_gpu_alloc(sizeof(*x)), y = 0;

	*x = 1;
	CHECK(kolo_all_reduce(me.c, NULL, x, 1, KOLO_I32, KOLO_SUM, me.q) == KOLO_EINVAL);
	CHECK(kolo_cuda_queue_create(t_stream_handle(me.stream), NULL) == KOLO_EINVAL);
	CHECK(kolo_cuda_connect(me.c, NULL) == KOLO_EINVAL &&
	      kolo_cuda_connect(NULL, me.q) == KOLO_EINVAL);
	CHECK(kolo_cuda_connect(me.c, me.q) == 0 && kolo_cuda_connect(me.c, me.q) == 0);
	CHECK(kolo_cuda_queue_create(t_stream_handle(far), &on_other_gpu) == 0);
	CHECK(kolo_barrier(me.c, on_other_gpu) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "GPU 7"));
	CHECK(kolo_all_reduce(me.c, (void *)16, x, 1, KOLO_I32, KOLO_SUM, me.q) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "src (0x10) is ordinary memory"));
	CHECK(kolo_broadcast(me.c, x, (void *)16, 1, KOLO_I32, 0, me.q) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "dst (0x10)"));
	CHECK(kolo_all_reduce(me.c, x, &y, 1, KOLO_I32, KOLO_SUM, me.q) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "dst (") && strstr(kolo_last_error(), "ordinary memory"));
	CHECK(kolo_cuda_pointer_get(me.q, x, &p) == 0 && p.kind == KOLO_CUDA_MANAGED && p.usable);
	CHECK(kolo_cuda_pointer_get(me.q, NULL, &p) == 0 && p.kind == KOLO_CUDA_ORDINARY &&
	      !p.usable);
	CHECK(kolo_cuda_pointer_get(NULL, x, &p) == KOLO_EINVAL);
	kolo_queue_destroy(on_other_gpu);
	CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == 0 &&
	      kolo_queue_wait(me.q) == 0);
	CHECK(*x == r->nranks);
	end(&me);
	t_gpu_free(x);
	t_stream_destroy(far);
}

static void what_a_stream_can_not_do_is_refused(void **state)
{
	(void)state;
	t_processes(2, refuse, NULL);
}

static void slots_too_small(struct t_rank *r)
{
	struct rank me;

	setenv("KOLO_CUDA_MEMORY", r->rank == 0 ? "1000" : "65536", 1);
	me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	CHECK(kolo_cuda_connect(me.c, me.q) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), r->rank == 0 ? "KOLO_CUDA_MEMORY=1000" : "rank 0 "));
	CHECK(kolo_barrier(me.c, NULL) == 0);
	end(&me);
}

static void a_bad_variable_is_named_by_its_rank(void **state)
{
	(void)state;
	t_processes(2, slots_too_small, NULL);
}

/* The real driver, which this machine may lack, and the build, too. */
static void ask_for_a_queue(struct t_rank *r)
{
	struct kolo_queue *q;
	int rc = kolo_cuda_queue_create(NULL, &q);

	(void)r;
	CHECK(rc == 0 || (rc == KOLO_ENOTSUP && q == NULL && strlen(kolo_last_error()) > 20));
}

static void a_machine_without_a_driver_says_so(void **state)
{
	(void)state;
	t_processes(1, ask_for_a_queue, NULL);
}

#endif

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_type_and_op_equals_the_sequential_result),
	cmocka_unit_test(every_count_equals_the_sequential_result),
	cmocka_unit_test(blocks_may_be_uneven),
	cmocka_unit_test(traffic_is_what_the_model_says),
	cmocka_unit_test(a_collective_comes_between_the_kernels_around_it),
	cmocka_unit_test(streams_of_a_communicator_keep_the_order_of_calls),
	cmocka_unit_test(a_thread_uses_two_communicators),
	cmocka_unit_test(a_thread_calls_for_all_ranks_in_a_group),
	cmocka_unit_test(a_graph_is_replayed_three_times),
	cmocka_unit_test(ranks_that_disagree_are_told_both_values),
#ifndef T_PLAIN
	cmocka_unit_test(a_driver_that_fails_in_joining_harms_nobody),
	cmocka_unit_test(gpus_that_can_not_reach_each_other_go_through_host_memory),
	cmocka_unit_test(a_driver_that_fails_in_recording_fails_all),
	cmocka_unit_test(wherever_a_vector_is_cut_places_lie_alike),
	cmocka_unit_test(events_order_streams_and_queues),
	cmocka_unit_test(what_a_stream_can_not_do_is_refused),
	cmocka_unit_test(a_bad_variable_is_named_by_its_rank),
	cmocka_unit_test(a_machine_without_a_driver_says_so),
#endif
};

T_MAIN(tests)
