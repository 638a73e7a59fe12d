/* all_to_all, gather and scatter on CUDA streams, with counts and without: each block comes where
 * it belongs, in the order of streams, in graphs, over every transport; and ranks that die. On GPUs
 * made of threads, and on real ones by make check-cuda. */
#include "comm/core/comm.h"
#include "tests/cuda/gpu_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 20000, ELEMENTS = MAX_RANKS * MOST }; /* slots of 64 KiB hold a part of it */

struct vectors {
	int *src, *dst;
};

static struct vectors make(void)
{
	return (struct vectors){ t_gpu_alloc(ELEMENTS * sizeof(int)),
				 t_gpu_alloc(ELEMENTS * sizeof(int)) };
}

static void give_back(struct vectors *v)
{
	t_gpu_free(v->src);
	t_gpu_free(v->dst);
}

/* Element i of the block that `from` has for `to`. */
static int element(int from, int to, size_t i)
{
	return from * 1000003 + to * 10007 + (int)i;
}

static void fill(int *x, int from, int to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = element(from, to, i);
}

static void check(const int *x, int from, int to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(x[i] == element(from, to, i));
}

static void all_to_all(const struct rank *me, int rank, int nranks, struct vectors v, size_t n)
{
	for (int r = 0; r < nranks; r++)
		fill(v.src + (size_t)r * n, rank, r, n);
	memset(v.dst, 0xa5, ((size_t)nranks * n + 1) * sizeof(int));
	CHECK(kolo_all_to_all(me->c, v.src, v.dst, n, KOLO_I32, me->q) == 0 &&
	      kolo_queue_wait(me->q) == 0);
	for (int r = 0; r < nranks; r++)
		check(v.dst + (size_t)r * n, r, rank, n);
	memset(v.src, 0xa5, sizeof(int));
	CHECK(v.dst[(size_t)nranks * n] == v.src[0]);
}

static void gather(const struct rank *me, int rank, int nranks, struct vectors v, size_t n,
		   int root)
{
	bool in_place = rank == root && n % 2;
	int *src = in_place ? v.dst + (size_t)rank * n : v.src;

	memset(v.dst, 0xa5, (size_t)nranks * n * sizeof(int));
	fill(src, rank, root, n);
	CHECK(kolo_gather(me->c, src, rank == root ? v.dst : NULL, n, KOLO_I32, root, me->q) == 0);
	CHECK(kolo_queue_wait(me->q) == 0);
	for (int r = 0; r < nranks && rank == root; r++)
		check(v.dst + (size_t)r * n, r, root, n);
}

static void scatter(const struct rank *me, int rank, int nranks, struct vectors v, size_t n,
		    int root)
{
	bool in_place = rank == root && n % 2;
	int *dst = in_place ? v.src + (size_t)rank * n : v.dst;

	memset(v.dst, 0xa5, n * sizeof(int));
	for (int r = 0; r < nranks; r++)
		fill(v.src + (size_t)r * n, root, r, n);
	CHECK(kolo_scatter(me->c, rank == root ? v.src : NULL, dst, n, KOLO_I32, root, me->q) == 0);
	CHECK(kolo_queue_wait(me->q) == 0);
	check(dst, root, rank, n);
}

static void every_block(struct t_rank *r)
{
	static const size_t counts[] = { 0, 1, 7, 1000, MOST - 1, MOST / 3 };
	struct rank me = start_small(r);
	struct vectors v = make();
	struct kolo_stats stats;

	shake(31 + (unsigned)r->rank);
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		all_to_all(&me, r->rank, r->nranks, v, counts[k] < MOST ? counts[k] : MOST - 1);
		for (int root = 0; root < r->nranks; root++) {
			gather(&me, r->rank, r->nranks, v, counts[k], root);
			scatter(&me, r->rank, r->nranks, v, counts[k], root);
		}
		CHECK(kolo_all_reduce(me.c, v.src, v.dst, 100, KOLO_I32, KOLO_SUM, me.q) == 0);
		CHECK(kolo_queue_wait(me.q) == 0);
	}
	shake(0);
	CHECK(kolo_comm_stats(me.c, &stats) == 0);
	CHECK(stats.sent_bytes == stats.model_sent_bytes &&
	      stats.received_bytes == stats.model_received_bytes);
	end(&me);
	give_back(&v);
}

static void every_block_comes_where_it_belongs(void **state)
{
	(void)state;
	for_every_number_of_ranks(every_block);
	for_ranks_of_both_kinds(every_block);
	for_every_proxy(every_block, NULL);
}

/* Elements that `from` has for `to` in round k; all ranks know. */
static size_t count_of(int k, int from, int to)
{
	uint64_t seed = (uint64_t)(k * 1009 + from * 97 + to * 13 + 1);

	t_random(&seed);
	return t_random(&seed) % 4 ? t_random(&seed) % 3000 : 0;
}

static size_t fill_parts(int *x, int from, const size_t *counts, int nranks)
{
	size_t at = 0;

	for (int to = 0; to < nranks; to++) {
		fill(x + at, from, to, counts[to]);
		at += counts[to];
	}
	return at;
}

static void all_to_all_v(const struct rank *me, int rank, int nranks, struct vectors v, int k)
{
	size_t sent[MAX_RANKS], received[MAX_RANKS], at = 0;

	for (int r = 0; r < nranks; r++) {
		sent[r] = count_of(k, rank, r);
		received[r] = count_of(k, r, rank);
	}
	fill_parts(v.src, rank, sent, nranks);
	CHECK(kolo_all_to_all_v(me->c, v.src, sent, v.dst, received, KOLO_I32, me->q) == 0);
	memset(sent, 0xff, sizeof(sent)); /* they were read during the call */
	CHECK(kolo_queue_wait(me->q) == 0);
	for (int r = 0; r < nranks; r++) {
		check(v.dst + at, r, rank, received[r]);
		at += received[r];
	}
}

static void gather_and_scatter_v(const struct rank *me, int rank, int nranks, struct vectors v,
				 int k, int root)
{
	size_t counts[MAX_RANKS], at = 0, n = count_of(k, rank, rank);
	const size_t *its = rank == root ? counts : NULL;

	for (int r = 0; r < nranks; r++)
		counts[r] = count_of(k, r, r);
	fill(v.src, rank, root, n);
	CHECK(kolo_gather_v(me->c, v.src, n, rank == root ? v.dst : NULL, its, KOLO_I32, root,
			    me->q) == 0 &&
	      kolo_queue_wait(me->q) == 0);
	for (int r = 0; r < nranks && rank == root; r++) {
		check(v.dst + at, r, root, counts[r]);
		at += counts[r];
	}
	fill_parts(v.src, root, counts, nranks);
	CHECK(kolo_scatter_v(me->c, rank == root ? v.src : NULL, its, v.dst, n, KOLO_I32, root,
			     me->q) == 0 &&
	      kolo_queue_wait(me->q) == 0);
	check(v.dst, root, rank, n);
}

static void every_part(struct t_rank *r)
{
	struct rank me = start_small(r);
	struct vectors v = make();
	struct kolo_stats stats;

	shake(7 + (unsigned)r->rank);
	for (int k = 0; k < 6; k++) {
		all_to_all_v(&me, r->rank, r->nranks, v, k);
		for (int root = 0; root < r->nranks; root++)
			gather_and_scatter_v(&me, r->rank, r->nranks, v, k, root);
	}
	shake(0);
	CHECK(kolo_comm_stats(me.c, &stats) == 0);
	CHECK(stats.sent_bytes == stats.model_sent_bytes &&
	      stats.received_bytes == stats.model_received_bytes);
	end(&me);
	give_back(&v);
}

static void parts_of_different_lengths_do_too(void **state)
{
	(void)state;
	for_every_number_of_ranks(every_part);
	for_ranks_of_both_kinds(every_part);
	for_every_proxy(every_part, NULL);
}

/* Without waiting on the host: what comes is sent on, and comes back. */
static void rounds(struct t_rank *r)
{
	enum { N = 700, TIMES = 100 };
	struct rank me = start_small(r);
	struct vectors v = make();
	struct t_graph *graph;

	for (int p = 0; p < r->nranks; p++)
		fill(v.src + (size_t)p * N, r->rank, p, N);
	for (int k = 0; k < TIMES; k++) {
		CHECK(kolo_all_to_all(me.c, v.src, v.dst, N, KOLO_I32, me.q) == 0);
		CHECK(kolo_all_to_all(me.c, v.dst, v.src, N, KOLO_I32, me.q) == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	for (int p = 0; p < r->nranks; p++)
		check(v.src + (size_t)p * N, r->rank, p, N);
	t_capture_begin(me.stream);
	CHECK(kolo_all_to_all(me.c, v.src, v.dst, N, KOLO_I32, me.q) == 0);
	CHECK(kolo_scatter(me.c, v.dst, v.src, N, KOLO_I32, 0, me.q) == 0);
	CHECK(kolo_gather(me.c, v.src, v.dst, N, KOLO_I32, r->nranks - 1, me.q) == 0);
	graph = t_capture_end(me.stream);
	t_stream_finish(me.stream);
	CHECK(kolo_barrier(me.c, NULL) == 0); /* threads launch when all have made theirs */
	for (int k = 0; k < 3; k++) {
		for (int p = 0; p < r->nranks; p++)
			fill(v.src + (size_t)p * N, r->rank, p + k, N);
		t_graph_launch(graph, me.stream);
		t_stream_finish(me.stream);
		for (int p = 0; p < r->nranks && r->rank == r->nranks - 1; p++)
			check(v.dst + (size_t)p * N, p, k, N); /* what rank p had for rank 0 */
	}
	CHECK(kolo_barrier(me.c, NULL) == 0);
	t_graph_destroy(graph);
	end(&me);
	give_back(&v);
}

static void one_comes_behind_the_other(void **state)
{
	(void)state;
	t_processes(3, rounds, NULL);
	t_threads(3, rounds, NULL);
	for_ranks_of_both_kinds(rounds);
	for_every_proxy(rounds, NULL);
}

/* One thread for all ranks, in a group. */
static struct rank everyone[3];
static struct vectors their[3];
static _Atomic int made;

static void all_in_a_group(struct t_rank *r)
{
	everyone[r->rank] = start_small(r);
	their[r->rank] = make();
	made++;
	if (r->rank != 0)
		return;
	while (made < r->nranks)
		usleep(1000);
	for (int k = 0; k < 3; k++) {
		CHECK(kolo_group_begin() == 0);
		for (int p = 0; p < r->nranks; p++) {
			for (int to = 0; to < r->nranks; to++)
				fill(their[p].src + (size_t)to * 100, p, to + k, 100);
			CHECK(kolo_all_to_all(everyone[p].c, their[p].src, their[p].dst, 100,
					      KOLO_I32, everyone[p].q) == 0);
		}
		CHECK(kolo_group_end() == 0);
		for (int p = 0; p < r->nranks; p++) {
			CHECK(kolo_queue_wait(everyone[p].q) == 0);
			for (int from = 0; from < r->nranks; from++)
				check(their[p].dst + (size_t)from * 100, from, p + k, 100);
		}
	}
	for (int p = 0; p < r->nranks; p++) {
		end(&everyone[p]);
		give_back(&their[p]);
	}
}

static void a_thread_calls_for_all_ranks_in_a_group(void **state)
{
	(void)state;
	t_threads(3, all_in_a_group, NULL);
}

static void lose_rank(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 60 });
	struct vectors v = make();
	int rc = 0;

	CHECK(kolo_all_to_all(me.c, v.src, v.dst, 10, KOLO_I32, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0 && kolo_barrier(me.c, NULL) == 0);
	if (r->rank == GONE) {
		usleep(100000);
		kill(getpid(), SIGKILL);
	}
	for (int k = 0; k < 5 && rc == 0; k++)
		rc = kolo_all_to_all(me.c, v.src, v.dst, 10, KOLO_I32, me.q);
	wait_for_failure(&me, KOLO_EPEER, "rank 1 ");
	end(&me);
#ifndef T_PLAIN
	CHECK(t_driver_live() == 0);
#endif
	give_back(&v);
}

static void a_killed_rank_is_named_and_streams_go_on(void **state)
{
	int pids[4];

	(void)state;
	for (int n = 2; n <= 4; n++) {
		t_start(n, lose_rank, NULL, pids);
		t_wait(n, pids, GONE);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_block_comes_where_it_belongs),
	cmocka_unit_test(parts_of_different_lengths_do_too),
	cmocka_unit_test(one_comes_behind_the_other),
	cmocka_unit_test(a_thread_calls_for_all_ranks_in_a_group),
	cmocka_unit_test(a_killed_rank_is_named_and_streams_go_on),
};

T_MAIN(tests)
