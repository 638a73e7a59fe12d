/* Sends and recvs on CUDA streams: random programs of them, in groups and alone, crossed, to
 * themselves, on several streams, in graphs; and ranks that disagree, die, or come late. On GPUs
 * made of threads, and on real ones by make check-cuda. */
#include "comm/core/comm.h"
#include "tests/cuda/gpu_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank that has joined its GPU, in place of slots of a few KiB. */
static struct rank join_small(struct t_rank *r)
{
	struct rank me = start_small(r);

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	return me;
}

/* Element i of a message with this number. */
static int element(int message, size_t i)
{
	return message * 100003 + (int)i;
}

static void fill(int *x, int message, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = element(message, i);
}

static void check(const int *x, int message, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(x[i] == element(message, i));
}

/* ---- Random programs ------------------------------------------------------------------------- */

enum { STEPS = 40, MESSAGES = 6, MOST = 9000 };

/* A message of a program that all ranks know. */
struct message {
	int from, to, number;
	size_t n;
};

struct program {
	struct rank *me;
	struct kolo_queue *q[2];
	int rank, nranks;
	uint64_t all, mine; /* seeds: of what all ranks do, and of what this one chooses */
	int *src, *dst;     /* MOST elements for each message */
};

static struct message draw(struct program *p, int number)
{
	static const size_t lengths[] = { 0, 1, 5, 1000, MOST / 2, MOST };
	struct message m = { .number = number };

	m.from = (int)(t_random(&p->all) % (uint64_t)p->nranks);
	m.to = (int)(t_random(&p->all) % (uint64_t)p->nranks);
	m.n = lengths[t_random(&p->all) % ARRAY_LEN(lengths)];
	return m;
}

static void start_end(struct program *p, const struct message *m, bool sends)
{
	struct kolo_queue *q = p->q[t_random(&p->mine) % 2];
	size_t at = (size_t)m->number * MOST;

	if (sends)
		CHECK(kolo_send(p->me->c, p->src + at, m->n, KOLO_I32, m->to, q) == 0);
	else
		CHECK(kolo_recv(p->me->c, p->dst + at, m->n, KOLO_I32, m->from, q) == 0);
}

/* Starts this rank's ends of the messages, those of one rank after those of another, in an order of
 * its own; ends of the same two ranks in the order of the messages. */
static void start_ends(struct program *p, const struct message *all, int n)
{
	int first = (int)(t_random(&p->mine) % (uint64_t)p->nranks);
	bool sends_first = t_random(&p->mine) % 2;

	for (int k = 0; k < p->nranks; k++)
		for (int turn = 0; turn < 2; turn++)
			for (int i = 0; i < n; i++) {
				const struct message *m = &all[i];
				bool sends = (turn == 0) == sends_first;
				int peer = (first + k) % p->nranks;

				if ((sends ? m->from : m->to) == p->rank &&
				    (sends ? m->to : m->from) == peer)
					start_end(p, m, sends);
			}
}

static void take_step(struct program *p, int step)
{
	struct message all[MESSAGES];
	int n = 1 + (int)(t_random(&p->all) % MESSAGES);
	bool alone = t_random(&p->all) % 4 == 0;

	for (int i = 0; i < n; i++)
		all[i] = draw(p, step * MESSAGES + i);
	for (int i = 0; i < n && alone; i++) /* one after the other; nobody waits for itself */
		if (all[i].from != all[i].to && (all[i].from == p->rank || all[i].to == p->rank))
			start_end(p, &all[i], all[i].from == p->rank);
	if (!alone) {
		CHECK(kolo_group_begin() == 0);
		start_ends(p, all, n);
		CHECK(kolo_group_end() == 0);
	}
	for (int i = 0; i < n; i++) /* what did not go is as if it had */
		if (alone && all[i].from == all[i].to && all[i].to == p->rank)
			memcpy(p->dst + (size_t)all[i].number * MOST,
			       p->src + (size_t)all[i].number * MOST, all[i].n * sizeof(int));
}

/* What all messages have brought. */
static void check_program(struct program *p, uint64_t seed)
{
	p->all = seed;
	for (int step = 0; step < STEPS; step++) {
		int n = 1 + (int)(t_random(&p->all) % MESSAGES);

		t_random(&p->all);
		for (int i = 0; i < n; i++) {
			struct message m = draw(p, step * MESSAGES + i);
			const int *at = p->dst + (size_t)m.number * MOST;

			if (m.to == p->rank)
				check(at, m.number, m.n);
			CHECK(at[m.to == p->rank ? m.n : 0] == -1 || m.n == MOST);
		}
		if (step % 5 == 0)
			t_random(&p->all);
	}
}

static void random_program(struct t_rank *r)
{
	enum { ALL = STEPS * MESSAGES };
	struct rank me = join_small(r);
	struct t_stream *second = t_stream_create(r->rank % 2);
	struct program p = { .me = &me, .q = { me.q, NULL }, .rank = r->rank, .nranks = r->nranks };
	size_t bytes = (ALL * MOST + 1) * sizeof(int);
	struct kolo_stats stats;
	uint64_t seed = 0;

	for (int times = 0; times < 2; times++) {
		seed = t_seed() * 31 + (uint64_t)(r->nranks * 10 + times);
		p.all = seed;
		p.mine = seed * 7919 + (uint64_t)r->rank;
		p.src = t_gpu_alloc(bytes);
		p.dst = t_gpu_alloc(bytes);
		memset(p.dst, 0xff, bytes);
		for (int k = 0; k < ALL; k++)
			fill(p.src + (size_t)k * MOST, k, MOST);
		CHECK(times > 0 || kolo_cuda_queue_create(t_stream_handle(second), &p.q[1]) == 0);
		shake(17 + (unsigned)r->rank);
		for (int step = 0; step < STEPS; step++) {
			take_step(&p, step);
			if (step % 5 == 0) {
				int root = (int)(t_random(&p.all) % (uint64_t)r->nranks);

				CHECK(kolo_broadcast(me.c, p.src, p.src, 100, KOLO_I32, root,
						     p.q[step % 2]) == 0);
			}
		}
		CHECK(kolo_queue_wait(p.q[0]) == 0 && kolo_queue_wait(p.q[1]) == 0);
		shake(0);
		check_program(&p, seed);
		t_gpu_free(p.src);
		t_gpu_free(p.dst);
	}
	CHECK(kolo_comm_stats(me.c, &stats) == 0);
	CHECK(stats.sent_bytes == stats.model_sent_bytes &&
	      stats.received_bytes == stats.model_received_bytes);
	kolo_queue_destroy(p.q[1]);
	end(&me);
	t_stream_destroy(second);
}

static void random_programs_bring_what_was_sent(void **state)
{
	(void)state;
	for_every_number_of_ranks(random_program);
	for_ranks_of_both_kinds(random_program);
	for_every_proxy(random_program, NULL);
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Round the ring without ever waiting on the host: what comes is sent on; in a group, or alone. */
static void relay(struct t_rank *r)
{
	enum { N = 3000, TIMES = 60 };
	struct rank me = join_small(r);
	int *x = t_gpu_alloc(N * sizeof(int)), *y = t_gpu_alloc(N * sizeof(int));
	int next = (r->rank + 1) % r->nranks, prev = (r->rank + r->nranks - 1) % r->nranks;

	fill(x, r->rank, N);
	for (int k = 0; k < TIMES; k++) {
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_send(me.c, x, N, KOLO_I32, next, me.q) == 0);
		CHECK(kolo_recv(me.c, y, N, KOLO_I32, prev, me.q) == 0);
		CHECK(kolo_group_end() == 0);
		t_stream_copy(me.stream, x, y, N * sizeof(int));
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	check(x, (r->rank + TIMES * (r->nranks - 1)) % r->nranks, N);
	for (int k = 0; k < TIMES; k++) { /* through all ranks, one after the other */
		if (r->rank > 0 || k > 0)
			CHECK(kolo_recv(me.c, x, N, KOLO_I32, prev, me.q) == 0);
		if (r->rank < r->nranks - 1 || k < TIMES - 1)
			CHECK(kolo_send(me.c, x, N, KOLO_I32, next, me.q) == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	check(x, (TIMES * (r->nranks - 1)) % r->nranks, N);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void a_stream_sends_on_what_came(void **state)
{
	(void)state;
	for (int n = 2; n <= 4; n++)
		t_processes(n, relay, NULL);
	t_threads(3, relay, NULL);
	for_ranks_of_both_kinds(relay);
	for_every_proxy(relay, NULL);
}

/* Nobody in a group waits for another member of it: neither long sends for recvs, nor long messages
 * to one rank for those to another. */
static void crossed(struct t_rank *r)
{
	enum { N = 200000 };
	struct rank me = join_small(r);
	int *x = t_gpu_alloc(2 * N * sizeof(int)), *y = t_gpu_alloc(2 * N * sizeof(int));
	int rank = r->rank;

	fill(x, rank, N);
	fill(x + N, 10 + rank, N);
	/* 0 sends to 1 and waits for 2, which waits for 1 */
	if (rank == 0)
		CHECK(kolo_group_begin() == 0);
	if (rank > 0)
		CHECK(kolo_recv(me.c, y, N, KOLO_I32, rank - 1, me.q) == 0);
	CHECK(kolo_send(me.c, x, N, KOLO_I32, (rank + 1) % 3, me.q) == 0);
	if (rank == 0)
		CHECK(kolo_recv(me.c, y, N, KOLO_I32, 2, me.q) == 0 && kolo_group_end() == 0);
	CHECK(kolo_queue_wait(me.q) == 0);
	check(y, (rank + 2) % 3, N);
	/* 0 sends to both others; one of them takes it only after it has what the other one has
	 * got before */
	if (rank == 0) {
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_send(me.c, x, N, KOLO_I32, 2, me.q) == 0);
		CHECK(kolo_send(me.c, x + N, N, KOLO_I32, 1, me.q) == 0);
		CHECK(kolo_group_end() == 0);
	} else if (rank == 1) {
		CHECK(kolo_recv(me.c, y, N, KOLO_I32, 0, me.q) == 0);
		CHECK(kolo_send(me.c, y, N, KOLO_I32, 2, me.q) == 0);
	} else {
		CHECK(kolo_recv(me.c, y, N, KOLO_I32, 1, me.q) == 0);
		CHECK(kolo_recv(me.c, y + N, N, KOLO_I32, 0, me.q) == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	check(y, rank == 0 ? 2 : 10, N);
	if (rank == 2)
		check(y + N, 0, N);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void messages_of_a_group_do_not_wait_for_each_other(void **state)
{
	(void)state;
	t_processes(3, crossed, NULL);
	t_threads(3, crossed, NULL);
	transport = "tcp";
	t_processes(3, crossed, NULL);
	transport = NULL;
}

/* Short ones are on their way before anybody receives them. */
static void short_ones(struct t_rank *r)
{
	struct rank me = join_small(r);
	int *x = t_gpu_alloc(8 * sizeof(int)), peer = 1 - r->rank;

	fill(x, r->rank, 4);
	for (int k = 0; k < 4; k++)
		CHECK(kolo_send(me.c, x + k, 1, KOLO_I32, peer, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0);
	CHECK(kolo_barrier(me.c, NULL) == 0);
	for (int k = 0; k < 4; k++)
		CHECK(kolo_recv(me.c, x + 4 + k, 1, KOLO_I32, peer, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0);
	check(x + 4, peer, 4);
	end(&me);
	t_gpu_free(x);
}

static void short_sends_do_not_wait_for_recvs(void **state)
{
	(void)state;
	t_processes(2, short_ones, NULL);
	transport = "tcp";
	t_processes(2, short_ones, NULL);
	transport = NULL;
}

/* Two communicators on one stream, in one group. */
static void two_communicators(struct t_rank *r)
{
	enum { N = 5000, TIMES = 30 };
	struct rank me = join_small(r);
	struct kolo_comm *second;
	int *x = t_gpu_alloc(N * sizeof(int)), *y = t_gpu_alloc(2 * N * sizeof(int));
	int next = (r->rank + 1) % r->nranks, prev = (r->rank + r->nranks - 1) % r->nranks;

	CHECK(kolo_comm_split(me.c, 0, r->rank, &second) == 0);
	CHECK(kolo_cuda_connect(second, me.q) == 0);
	fill(x, r->rank, N);
	for (int k = 0; k < TIMES; k++) {
		struct kolo_comm *c[] = { me.c, second };

		CHECK(kolo_group_begin() == 0);
		for (int i = 0; i < 2; i++) {
			CHECK(kolo_send(c[i], x, N, KOLO_I32, next, me.q) == 0);
			CHECK(kolo_recv(c[i], y + (size_t)i * N, N, KOLO_I32, prev, me.q) == 0);
		}
		CHECK(kolo_group_end() == 0);
		CHECK(kolo_group_begin() == 0);
		for (int i = 0; i < 2; i++)
			CHECK(kolo_broadcast(c[i], y + (size_t)i * N, y + (size_t)i * N, 100,
					     KOLO_I32, 0, me.q) == 0);
		CHECK(kolo_group_end() == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	check(y + 100, prev, 0);
	for (int i = 0; i < 2; i++)
		check(y + (size_t)i * N, r->nranks - 1, 100);
	kolo_comm_destroy(second);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
}

/* Three communicators in one group: one on each of two streams, and one that has both. */
static void three_communicators(struct t_rank *r)
{
	enum { N = 20000, TIMES = 30 };
	struct rank me = join_small(r);
	struct t_stream *stream = t_stream_create(r->rank % 2);
	struct kolo_comm *c[3] = { me.c };
	struct kolo_queue *q;
	int *x = t_gpu_alloc(N * sizeof(int)), *y = t_gpu_alloc(3 * N * sizeof(int));
	int next = (r->rank + 1) % r->nranks, prev = (r->rank + r->nranks - 1) % r->nranks;

	CHECK(kolo_cuda_queue_create(t_stream_handle(stream), &q) == 0);
	for (int i = 1; i < 3; i++) {
		CHECK(kolo_comm_split(me.c, 0, r->rank, &c[i]) == 0);
		CHECK(kolo_cuda_connect(c[i], me.q) == 0);
	}
	fill(x, r->rank, N);
	for (int k = 0; k < TIMES; k++) {
		CHECK(kolo_group_begin() == 0);
		for (int i = 0; i < 3; i++) {
			CHECK(kolo_send(c[i], x, N, KOLO_I32, next, i == 1 ? q : me.q) == 0);
			CHECK(kolo_recv(c[i], y + (size_t)i * N, N, KOLO_I32, prev,
					i == 0 ? me.q : q) == 0);
		}
		CHECK(kolo_group_end() == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0 && kolo_queue_wait(q) == 0);
	for (int i = 0; i < 3; i++)
		check(y + (size_t)i * N, prev, N);
	kolo_comm_destroy(c[2]);
	kolo_comm_destroy(c[1]);
	kolo_queue_destroy(q);
	end(&me);
	t_stream_destroy(stream);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void communicators_of_a_group_share_a_stream(void **state)
{
	(void)state;
	t_processes(2, two_communicators, NULL);
	t_processes(3, two_communicators, NULL);
	t_processes(3, three_communicators, NULL);
}

/* Ranks 0 to 2 are threads, 3 is another process. Rank 2 waits for two of the others at once, of
 * which one waits for 3, and that for the other. */
static void both_kinds(struct t_rank *r)
{
	enum { N = 20000 };
	struct rank me = join_small(r);
	int *x = t_gpu_alloc(N * sizeof(int)), *y = t_gpu_alloc(2 * N * sizeof(int));
	int rank = r->rank;

	fill(x, rank, N);
	if (rank == 0) {
		CHECK(kolo_recv(me.c, y, 10, KOLO_I32, 3, me.q) == 0);
		CHECK(kolo_send(me.c, y, 10, KOLO_I32, 2, me.q) == 0);
	} else if (rank == 1) {
		CHECK(kolo_send(me.c, x, N, KOLO_I32, 2, me.q) == 0);
		CHECK(kolo_send(me.c, x, 10, KOLO_I32, 3, me.q) == 0);
	} else if (rank == 2) {
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_recv(me.c, y, 10, KOLO_I32, 0, me.q) == 0);
		CHECK(kolo_recv(me.c, y + N, N, KOLO_I32, 1, me.q) == 0);
		CHECK(kolo_group_end() == 0);
	} else {
		CHECK(kolo_recv(me.c, y, 10, KOLO_I32, 1, me.q) == 0);
		CHECK(kolo_send(me.c, y, 10, KOLO_I32, 0, me.q) == 0);
	}
	CHECK(kolo_queue_wait(me.q) == 0);
	if (rank != 1)
		check(y, 1, 10);
	if (rank == 2)
		check(y + N, 1, N);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void *run_both_kinds(void *arg)
{
	both_kinds(arg);
	return NULL;
}

static void three_threads_or_one(struct t_rank *r)
{
	struct t_rank ranks[3];
	pthread_t ids[3];

	for (int k = 0; k < 3; k++) {
		ranks[k] = *r;
		ranks[k].nranks = 4;
		ranks[k].rank = r->rank == 0 ? k : 3;
	}
	if (r->rank == 1) {
		both_kinds(&ranks[0]);
		return;
	}
	for (int k = 0; k < 3; k++)
		CHECK(pthread_create(&ids[k], NULL, run_both_kinds, &ranks[k]) == 0);
	for (int k = 0; k < 3; k++)
		pthread_join(ids[k], NULL);
}

static void a_rank_of_this_process_that_waits_holds_up_nobody_else(void **state)
{
	(void)state;
	t_processes(2, three_threads_or_one, NULL);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static void replay(struct t_rank *r)
{
	enum { N = 5000 };
	struct rank me = join_small(r);
	size_t bytes = (size_t)r->nranks * N * sizeof(int);
	int *x = t_gpu_alloc(bytes), *y = t_gpu_alloc(bytes);
	struct t_graph *graph;

	t_capture_begin(me.stream);
	CHECK(kolo_group_begin() == 0);
	for (int p = 0; p < r->nranks; p++) {
		CHECK(kolo_send(me.c, x + (size_t)p * N, N, KOLO_I32, p, me.q) == 0);
		CHECK(kolo_recv(me.c, y + (size_t)p * N, N, KOLO_I32, p, me.q) == 0);
	}
	CHECK(kolo_group_end() == 0);
	graph = t_capture_end(me.stream);
	CHECK(kolo_barrier(me.c, NULL) == 0); /* threads launch when all have made theirs */
	for (int k = 0; k < 5; k++) {
		for (int p = 0; p < r->nranks; p++)
			fill(x + (size_t)p * N, r->rank * 100 + p * 10 + k, N);
		t_graph_launch(graph, me.stream);
		if (k % 2) /* and beside the graph */
			CHECK(kolo_send(me.c, x, 10, KOLO_I32, (r->rank + 1) % r->nranks, me.q) ==
				      0 &&
			      kolo_recv(me.c, x, 10, KOLO_I32,
					(r->rank + r->nranks - 1) % r->nranks, me.q) == 0);
		t_stream_finish(me.stream);
		for (int p = 0; p < r->nranks; p++)
			check(y + (size_t)p * N, p * 100 + r->rank * 10 + k, N);
	}
	CHECK(kolo_barrier(me.c, NULL) == 0);
	t_graph_destroy(graph);
	end(&me);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void a_graph_holds_a_group(void **state)
{
	(void)state;
	t_processes(2, replay, NULL);
	t_processes(3, replay, NULL);
	t_threads(3, replay, NULL);
	for_ranks_of_both_kinds(replay);
	for_every_proxy(replay, NULL);
}

/* Groups beside an open capture are none of it; and a second capture waits for the first to end. */
static void beside_a_capture(struct t_rank *r)
{
	struct rank me = join_small(r);
	struct t_stream *captured[2] = { t_stream_create(r->rank % 2),
					 t_stream_create(r->rank % 2) };
	struct kolo_queue *q[2];
	int *x = t_gpu_alloc(4 * sizeof(int)), peer = 1 - r->rank, rc[3];
	struct t_graph *graph;

	for (int k = 0; k < 2; k++)
		CHECK(kolo_cuda_queue_create(t_stream_handle(captured[k]), &q[k]) == 0);
	fill(x, r->rank, 1);
	t_capture_begin(captured[0]);
	t_capture_begin(captured[1]);
	for (int k = 0; k < 3; k++) {
		struct kolo_queue *on = k == 0 ? q[0] : k == 1 ? me.q : q[1];

		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_send(me.c, x, 1, KOLO_I32, peer, on) == 0);
		CHECK(kolo_recv(me.c, x + k + 1, 1, KOLO_I32, peer, on) == 0);
		rc[k] = kolo_group_end();
	}
	CHECK(rc[0] == 0 && rc[1] == 0 && rc[2] == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "another capture has messages of"));
	graph = t_capture_end(captured[0]);
	t_graph_destroy(t_capture_end(captured[1]));
	CHECK(kolo_queue_wait(me.q) == 0);
	check(x + 2, peer, 1);
	t_graph_launch(graph, captured[0]);
	t_stream_finish(captured[0]);
	check(x + 1, peer, 1);
	t_graph_destroy(graph);
	for (int k = 0; k < 2; k++)
		kolo_queue_destroy(q[k]);
	end(&me);
	for (int k = 0; k < 2; k++)
		t_stream_destroy(captured[k]);
	t_gpu_free(x);
}

static void a_capture_has_streams_of_its_own(void **state)
{
	(void)state;
	t_processes(2, beside_a_capture, NULL);
}

/* One thread for all ranks. */
static struct rank everyone[3];
static int *their[3];
static _Atomic int made;

static void all_in_a_group(struct t_rank *r)
{
	enum { N = 20000 };

	everyone[r->rank] = join_small(r);
	their[r->rank] = t_gpu_alloc(2 * N * sizeof(int));
	made++;
	if (r->rank != 0)
		return;
	while (made < r->nranks)
		usleep(1000);
	for (int k = 0; k < 3; k++) {
		CHECK(kolo_group_begin() == 0);
		for (int p = 0; p < r->nranks; p++) {
			fill(their[p], p + k, N);
			CHECK(kolo_send(everyone[p].c, their[p], N, KOLO_I32, (p + 1) % r->nranks,
					everyone[p].q) == 0);
			CHECK(kolo_recv(everyone[p].c, their[p] + N, N, KOLO_I32,
					(p + r->nranks - 1) % r->nranks, everyone[p].q) == 0);
		}
		CHECK(kolo_group_end() == 0);
		for (int p = 0; p < r->nranks; p++) {
			CHECK(kolo_queue_wait(everyone[p].q) == 0);
			check(their[p] + N, (p + r->nranks - 1) % r->nranks + k, N);
		}
	}
	for (int p = 0; p < r->nranks; p++) {
		end(&everyone[p]);
		t_gpu_free(their[p]);
	}
}

static void a_thread_calls_for_all_ranks_in_a_group(void **state)
{
	(void)state;
	t_threads(3, all_in_a_group, NULL);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

static void disagree(struct t_rank *r)
{
	const int *how = r->arg;
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	int *x = t_gpu_alloc(100 * sizeof(int)), rc;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	if (r->rank == 0)
		rc = kolo_send(me.c, x, 10, KOLO_I32, 1, me.q);
	else
		rc = kolo_recv(me.c, x, *how ? 10 : 11, *how ? KOLO_F32 : KOLO_I32, 0, me.q);
	for (int64_t since = t_now_ms(); rc == 0 && t_now_ms() - since < 10000;)
		rc = kolo_comm_status(me.c);
	CHECK(rc == KOLO_EMISMATCH);
	CHECK(strstr(kolo_last_error(), "10 elements of i32") ||
	      strstr(kolo_last_error(), "10 of i32") ||
	      strstr(kolo_last_error(), "of 10 elements from rank 0") ||
	      strstr(kolo_last_error(), "sends n=10 i32"));
	end(&me);
	t_gpu_free(x);
}

/* A difference is found also if one end is far ahead. */
static void disagree_behind(struct t_rank *r)
{
	enum { MESSAGES_AHEAD = 50 };
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	int *x = t_gpu_alloc(100 * sizeof(int)), rc = 0;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	for (int k = 0; k < MESSAGES_AHEAD && rc == 0 && r->rank == 0; k++)
		rc = kolo_send(me.c, x, 10, KOLO_I32, 1, me.q);
	CHECK(rc == 0);
	rc = kolo_barrier(me.c, NULL); /* the other one may have found it already */
	for (int k = 0; k < MESSAGES_AHEAD && rc == 0 && r->rank == 1; k++)
		rc = kolo_recv(me.c, x, 10, k == 3 ? KOLO_F32 : KOLO_I32, 0, me.q);
	for (int64_t since = t_now_ms(); rc == 0 && t_now_ms() - since < 10000;)
		rc = kolo_comm_status(me.c);
	CHECK(rc == KOLO_EMISMATCH && strstr(kolo_last_error(), "disagree on n or type"));
	end(&me);
	t_gpu_free(x);
}

static void ends_that_disagree_are_told(void **state)
{
	(void)state;
	for (int how = 0; how < 2; how++) {
		t_processes(2, disagree, &how);
		t_threads(2, disagree, &how);
	}
	t_processes(2, disagree_behind, NULL);
	transport = "tcp";
	for (int how = 0; how < 2; how++)
		t_processes(2, disagree, &how);
	transport = NULL;
}

/* Rank 2 does nothing. Rank 0 waits for it on a stream that comes after one where all wait for each
 * other only until it comes. */
static void wait_behind(struct t_rank *r)
{
	enum { N = 100000 };
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S });
	int *x = t_gpu_alloc(4 * N * sizeof(int));

	CHECK(kolo_cuda_connect(me.c, me.q) == 0 && kolo_barrier(me.c, NULL) == 0);
	if (r->rank == 0) {
		CHECK(kolo_group_begin() == 0);
		for (int from = 1; from < 4; from++)
			CHECK(kolo_recv(me.c, x + from * N, N, KOLO_I32, from, me.q) == 0);
		CHECK(kolo_group_end() == 0);
	} else if (r->rank == 1) {
		CHECK(kolo_recv(me.c, x, N, KOLO_I32, 3, me.q) == 0);
		CHECK(kolo_send(me.c, x, N, KOLO_I32, 0, me.q) == 0);
	} else if (r->rank == 3) {
		CHECK(kolo_send(me.c, x, N, KOLO_I32, 0, me.q) == 0);
		CHECK(kolo_send(me.c, x, N, KOLO_I32, 1, me.q) == 0);
	}
	while (kolo_comm_status(me.c) == 0)
		usleep(10000);
	CHECK(kolo_comm_status(me.c) == KOLO_ETIMEDOUT);
	CHECK(strncmp(kolo_last_error(), "rank 2 ", 7) == 0);
	end(&me);
	t_gpu_free(x);
}

/* Rank 1 dies, or does nothing, while rank 0 waits to receive from it, or to send to it, and rank 2
 * waits for rank 0. */
static void lose_rank(struct t_rank *r)
{
	enum { N = 3000000 };
	const int *how = r->arg; /* 0: it dies while it should send; 1: while it should receive */
	struct rank me =
		start(r, (struct kolo_comm_attr){ .timeout_s = *how < 2 ? 60 : TIMEOUT_S });
	int *x = t_gpu_alloc(N * sizeof(int)), rc = 0;

	setenv("KOLO_CUDA_MEMORY", "65536", 1);
	CHECK(kolo_cuda_connect(me.c, me.q) == 0 && kolo_barrier(me.c, NULL) == 0);
	if (r->rank == GONE && *how < 2) {
		usleep(200000);
		kill(getpid(), SIGKILL);
	}
	if (r->rank == 0 && *how == 1)
		rc = kolo_send(me.c, x, N, KOLO_I32, GONE, me.q);
	else if (r->rank == 0)
		rc = kolo_recv(me.c, x, N, KOLO_I32, GONE, me.q);
	if (r->rank == 0 && rc == 0)
		rc = kolo_send(me.c, x, N, KOLO_I32, 2, me.q);
	else if (r->rank == 2)
		rc = kolo_recv(me.c, x, N, KOLO_I32, 0, me.q);
	CHECK(rc == 0 || rc == (*how < 2 ? KOLO_EPEER : KOLO_ETIMEDOUT)); /* noticed already */
	if (r->rank != GONE)
		wait_for_failure(&me, *how < 2 ? KOLO_EPEER : KOLO_ETIMEDOUT, "rank 1 ");
	else
		while (kolo_comm_status(me.c) == 0)
			usleep(10000);
	end(&me);
#ifndef T_PLAIN
	CHECK(t_driver_live() == 0);
#endif
	t_gpu_free(x);
}

static void whoever_is_waited_for_is_named(void **state)
{
	int pids[3];

	(void)state;
	for (int how = 0; how < 2; how++) {
		t_start(3, lose_rank, &how, pids);
		t_wait(3, pids, GONE);
	}
	t_processes(3, lose_rank, &(int){ 2 });
	t_processes(4, wait_behind, NULL);
	transport = "tcp";
	for (int how = 0; how < 2; how++) {
		t_start(3, lose_rank, &how, pids);
		t_wait(3, pids, GONE);
	}
	t_processes(3, lose_rank, &(int){ 2 });
	transport = NULL;
}

#ifndef T_PLAIN
/* Each call of the driver fails once on one rank while a group is recorded: the communicator fails
 * on all. */
static void fail_to_record(struct t_rank *r)
{
	const long *k = r->arg;
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	int *x = t_gpu_alloc(3 * sizeof(*x)), *y = t_gpu_alloc(3 * sizeof(*x)), rc = 0;

	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	if (r->rank == GONE)
		usleep(30000); /* the others have left that */
	t_driver_fail(r->rank == GONE ? *k : 0);
	CHECK(kolo_group_begin() == 0);
	for (int p = 0; p < r->nranks && rc == 0; p++) {
		rc = kolo_send(me.c, x + p, 1, KOLO_I32, p, me.q);
		if (rc == 0)
			rc = kolo_recv(me.c, y + p, 1, KOLO_I32, p, me.q);
	}
	CHECK(rc == 0);
	rc = kolo_group_end();
	CHECK(r->rank != GONE || rc < 0 || t_driver_fail(0) < *k); /* else it did not come to it */
	t_driver_fail(0);
	for (int64_t since = t_now_ms(); rc == 0 && t_now_ms() - since < 10000;)
		rc = kolo_comm_status(me.c);
	CHECK(rc == KOLO_ESYS && strstr(kolo_last_error(), "rank 1"));
	end(&me);
	CHECK(t_driver_live() == 0);
	t_gpu_free(x);
	t_gpu_free(y);
}

static void a_driver_that_fails_in_recording_fails_all(void **state)
{
	(void)state;
	for (long k = 7; k < (t_is_slow() ? 12 : 40); k++)
		t_processes(3, fail_to_record, &k);
}
#endif

static void refuse(struct t_rank *r)
{
	struct rank me = start(r, (struct kolo_comm_attr){ .timeout_s = 30 });
	struct t_stream *other = t_stream_create(r->rank % 2);
	struct kolo_queue *q;
	int *x = t_gpu_alloc(2 * sizeof(int)), y = 0, peer = 1 - r->rank;

	CHECK(kolo_cuda_queue_create(t_stream_handle(other), &q) == 0);
	CHECK(kolo_send(me.c, x, 1, KOLO_I32, peer, me.q) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "kolo_cuda_connect on all ranks before"));
	CHECK(kolo_cuda_connect(me.c, me.q) == 0);
	CHECK(kolo_send(me.c, &y, 1, KOLO_I32, peer, me.q) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "ordinary memory"));
	CHECK(kolo_send(me.c, x, 1, KOLO_I32, r->rank, me.q) == KOLO_EINVAL &&
	      strstr(kolo_last_error(), "itself"));
	t_capture_begin(other);
	CHECK(kolo_group_begin() == 0);
	CHECK(kolo_send(me.c, x, 1, KOLO_I32, peer, me.q) == 0 &&
	      kolo_recv(me.c, x, 1, KOLO_I32, peer, q) == 0);
	CHECK(kolo_group_end() == KOLO_EINVAL && strstr(kolo_last_error(), "captured"));
	t_graph_destroy(t_capture_end(other));
	CHECK(kolo_all_reduce(me.c, x, x, 1, KOLO_I32, KOLO_SUM, me.q) == 0);
	CHECK(kolo_queue_wait(me.q) == 0);
	kolo_queue_destroy(q);
	end(&me);
	t_stream_destroy(other);
	t_gpu_free(x);
}

static void what_can_not_be_is_refused(void **state)
{
	(void)state;
	t_processes(2, refuse, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(random_programs_bring_what_was_sent),
	cmocka_unit_test(a_stream_sends_on_what_came),
	cmocka_unit_test(messages_of_a_group_do_not_wait_for_each_other),
	cmocka_unit_test(short_sends_do_not_wait_for_recvs),
	cmocka_unit_test(communicators_of_a_group_share_a_stream),
	cmocka_unit_test(a_rank_of_this_process_that_waits_holds_up_nobody_else),
	cmocka_unit_test(a_graph_holds_a_group),
	cmocka_unit_test(a_capture_has_streams_of_its_own),
	cmocka_unit_test(a_thread_calls_for_all_ranks_in_a_group),
	cmocka_unit_test(ends_that_disagree_are_told),
	cmocka_unit_test(whoever_is_waited_for_is_named),
#ifndef T_PLAIN
	cmocka_unit_test(a_driver_that_fails_in_recording_fails_all),
#endif
	cmocka_unit_test(what_can_not_be_is_refused),
};

T_MAIN(tests)
