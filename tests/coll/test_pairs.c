/* Messages between pairs of ranks, what is made of them, and groups. That results are right in
 * every combination is test_random's business. */
#include "tests/lib/t.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint32_t *make_words(size_t n)
{
	uint32_t *words = calloc(n + 1, sizeof(*words));

	CHECK(words != NULL);
	return words;
}

/* Word i of a message from rank `from` to rank `to`. */
static uint32_t word(int from, int to, size_t i)
{
	return (uint32_t)i * 2654435761u + (uint32_t)from * 1000 + (uint32_t)to;
}

static void fill(uint32_t *words, int from, int to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		words[i] = word(from, to, i);
}

static bool is_from(const uint32_t *words, int from, int to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] != word(from, to, i))
			return false;
	return true;
}

static bool says(const char *text)
{
	return strstr(kolo_last_error(), text);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static const size_t lengths[] = { 0, 1, 10, 11, 1000, 1024, 1025, 5000, 40000, 300001 };

struct way {
	const char *algorithm;
	bool alloc;
};

/* Every rank to every other one, in every length. */
static void everyone_to_everyone(struct t_rank *r)
{
	const struct way *way = r->arg;
	size_t most = lengths[ARRAY_LEN(lengths) - 1];
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .algorithm = way->algorithm });
	uint32_t *src = make_words(2 * (most + 1)), *dst, *plain = src;
	void *memory;

	if (way->alloc) {
		CHECK(kolo_alloc(c, 2 * (most + 1) * sizeof(*src), &memory) == 0);
		src = memory;
	}
	dst = src + most + 1;
	for (size_t k = 0; k < ARRAY_LEN(lengths); k++) {
		size_t n = lengths[k];

		for (int pair = 0; pair < r->nranks * r->nranks; pair++) {
			int from = pair / r->nranks, to = pair % r->nranks;

			if (r->rank == from && from != to) {
				fill(src, from, to, n);
				CHECK(kolo_send(c, src, n, KOLO_U32, to, NULL) == 0);
			}
			if (r->rank == to && from != to) {
				memset(dst, 0, (n + 1) * sizeof(*dst));
				CHECK(kolo_recv(c, dst, n, KOLO_U32, from, NULL) == 0);
				CHECK(is_from(dst, from, to, n) && dst[n] == 0);
			}
		}
	}
	kolo_comm_destroy(c);
	free(plain);
}

static void messages_of_every_length_come_as_they_were_sent(void **state)
{
	static const char *const algorithms[] = { NULL, "ring", "direct" };

	(void)state;
	for (size_t k = 0; k < 2 * ARRAY_LEN(algorithms); k++) {
		struct way way = { algorithms[k / 2], k % 2 };

		t_processes(2, everyone_to_everyone, &way);
		t_processes(5, everyone_to_everyone, &way);
		t_threads(3, everyone_to_everyone, &way);
	}
}

/* As often as it takes until slots and offers, and both kinds of stores, have been tried, and the
 * better one has been done. */
static void much_and_often(struct t_rank *r)
{
	enum { TIMES = 30, WORDS = 400 * 1000 };
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ 0 });
	size_t all = (size_t)r->nranks * WORDS;
	uint32_t *src = make_words(all), *dst = make_words(all);

	for (int k = 0; k < TIMES; k++) {
		for (int to = 0; to < r->nranks; to++)
			fill(src + (size_t)to * WORDS, r->rank + k, to, WORDS);
		memset(dst, 0, all * sizeof(*dst));
		CHECK(kolo_all_to_all(c, src, dst, WORDS, KOLO_U32, NULL) == 0);
		for (int from = 0; from < r->nranks; from++)
			CHECK(is_from(dst + (size_t)from * WORDS, from + k, r->rank, WORDS));
	}
	kolo_comm_destroy(c);
	free(src);
	free(dst);
}

/* What went to the next rank through the link. */
static uint64_t through_link(struct kolo_comm *c)
{
	struct kolo_stats s;

	CHECK(kolo_comm_stats(c, &s) == 0 && s.sent_bytes == s.model_sent_bytes);
	return s.to_next.bytes;
}

/* The first ones are not by rendezvous. Between them are an all-reduce, which has the link's slots
 * before and behind it, and a message, which has none of them. */
static void through_slots_of_the_link(struct t_rank *r)
{
	enum { WORDS = 400 * 1001 };
	size_t bytes = WORDS * sizeof(uint32_t);
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .slot_len = *(const size_t *)r->arg });
	int n = r->nranks, next = (r->rank + 1) % n, prev = (r->rank + n - 1) % n;
	uint32_t *src = make_words((size_t)n * WORDS), *dst = make_words((size_t)n * WORDS);
	uint64_t before;

	for (int to = 0; to < n; to++)
		fill(src + (size_t)to * WORDS, r->rank, to, WORDS);
	before = through_link(c);
	CHECK(kolo_all_to_all(c, src, dst, WORDS, KOLO_U32, NULL) == 0);
	CHECK(through_link(c) == before + bytes);
	for (int from = 0; from < n; from++)
		CHECK(is_from(dst + (size_t)from * WORDS, from, r->rank, WORDS));
	CHECK(kolo_all_reduce(c, src, dst, WORDS, KOLO_U32, KOLO_MAX, NULL) == 0);
	before = through_link(c);
	CHECK(kolo_scatter(c, src, dst, WORDS, KOLO_U32, 0, NULL) == 0);
	CHECK(is_from(dst, 0, r->rank, WORDS));
	CHECK(through_link(c) == before + (r->rank == 0 ? bytes : 0));
	before = through_link(c);
	if (r->rank == 0)
		CHECK(kolo_send(c, src, WORDS, KOLO_U32, next, NULL) == 0);
	if (r->rank == 1)
		CHECK(kolo_recv(c, dst, WORDS, KOLO_U32, prev, NULL) == 0);
	CHECK(through_link(c) == before);
	CHECK(kolo_gather(c, src, dst, WORDS, KOLO_U32, 1, NULL) == 0);
	CHECK(through_link(c) == before + (r->rank == 0 ? bytes : 0));
	for (int from = 0; r->rank == 1 && from < n; from++)
		CHECK(is_from(dst + (size_t)from * WORDS, from, 0, WORDS));
	kolo_comm_destroy(c);
	free(src);
	free(dst);
}

static void long_messages_of_collectives_go_through_slots_of_the_link(void **state)
{
	(void)state;
	for (size_t slot_len = 0; slot_len <= 12288; slot_len += 12288) {
		t_processes(2, through_slots_of_the_link, &slot_len);
		t_processes(4, through_slots_of_the_link, &slot_len);
		t_threads(3, through_slots_of_the_link, &slot_len);
	}
}

/* In a group a rank sends to itself what lies partly where it receives it, as often. */
static void move_own(struct t_rank *r)
{
	enum { TIMES = 30, WORDS = 400 * 1000, STEP = 1000 };
	struct kolo_comm *c = t_comm(r);
	uint32_t *x = make_words(WORDS + STEP);

	for (int k = 0; k < TIMES; k++) {
		fill(x, r->rank, k, WORDS);
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_send(c, x, WORDS, KOLO_U32, r->rank, NULL) == 0);
		CHECK(kolo_recv(c, x + STEP, WORDS, KOLO_U32, r->rank, NULL) == 0);
		CHECK(kolo_group_end() == 0 && is_from(x + STEP, r->rank, k, WORDS));
	}
	kolo_comm_destroy(c);
	free(x);
}

static void what_a_rank_sends_to_itself_may_overlap(void **state)
{
	(void)state;
	t_processes(2, move_own, NULL);
}

static void large_messages_are_right_whatever_is_learnt_of_them(void **state)
{
	(void)state;
	t_processes(2, much_and_often, NULL);
	t_threads(3, much_and_often, NULL);
}

/* The receiver comes late: what is small, and as many as a lane has lines, waits for it there. */
static void early_sender(struct t_rank *r)
{
	enum { MESSAGES = 30 };
	struct kolo_comm *c = t_comm(r);
	uint32_t x;

	if (r->rank == 0) {
		for (uint32_t k = 0; k < MESSAGES; k++)
			CHECK(kolo_send(c, &k, 1, KOLO_U32, 1, NULL) == 0);
		kolo_comm_destroy(c); /* they arrive all the same */
		return;
	}
	usleep(200000);
	for (uint32_t k = 0; k < MESSAGES; k++)
		CHECK(kolo_recv(c, &x, 1, KOLO_U32, 0, NULL) == 0 && x == k);
	CHECK(kolo_recv(c, &x, 1, KOLO_U32, 0, NULL) == KOLO_EPEER && says("rank 0 (pid") &&
	      says("recv(n=1, u32"));
	kolo_comm_destroy(c);
}

static void small_messages_wait_for_a_late_receiver_and_outlive_their_sender(void **state)
{
	(void)state;
	t_processes(2, early_sender, NULL);
}

/* What has moved is what the model says, also through the board and with blocks of any size. */
static void check_model(struct kolo_comm *c)
{
	struct kolo_stats s;

	CHECK(kolo_comm_stats(c, &s) == 0);
	CHECK(s.model_sent_bytes == s.sent_bytes && s.model_received_bytes == s.received_bytes);
}

static void small_traffic(struct t_rank *r)
{
	const size_t counts[] = { 1, 5, 0, 2 };
	struct kolo_comm *c = t_comm(r);
	uint32_t *src = make_words(40), *dst = make_words(40);

	for (size_t n = 0; n < 10; n += 3) {
		CHECK(kolo_all_to_all(c, src, dst, n, KOLO_U32, NULL) == 0);
		check_model(c);
		CHECK(kolo_gather(c, src, dst, n, KOLO_U32, 2, NULL) == 0);
		check_model(c);
		CHECK(kolo_scatter(c, src, dst, n, KOLO_U32, 1, NULL) == 0);
		check_model(c);
	}
	CHECK(kolo_all_gather_v(c, src, dst, counts, KOLO_U32, NULL) == 0);
	check_model(c);
	CHECK(kolo_reduce_scatter_v(c, src, dst, counts, KOLO_U32, KOLO_SUM, NULL) == 0);
	check_model(c);
	free(src);
	free(dst);
	kolo_comm_destroy(c);
}

static void traffic(struct t_rank *r)
{
	enum { N = 50000 };
	struct kolo_comm *c = t_comm(r);
	uint32_t *src = make_words(4 * N), *dst = make_words(4 * N);
	struct kolo_stats s;

	CHECK(kolo_all_to_all(c, src, dst, N, KOLO_U32, NULL) == 0);
	CHECK(kolo_comm_stats(c, &s) == 0);
	CHECK(s.sent_bytes == 3 * N * sizeof(*src) && s.received_bytes == s.sent_bytes);
	CHECK(s.model_sent_bytes == s.sent_bytes && s.model_received_bytes == s.received_bytes);
	CHECK(s.ops == 1 && s.pair_ops == 1);
	CHECK(kolo_gather(c, src, dst, N, KOLO_U32, 2, NULL) == 0);
	CHECK(kolo_comm_stats(c, &s) == 0);
	CHECK(s.sent_bytes == (r->rank == 2 ? 3 : 4) * N * sizeof(*src));
	CHECK(s.received_bytes == (r->rank == 2 ? 6 : 3) * N * sizeof(*src));
	CHECK(s.model_sent_bytes == s.sent_bytes && s.model_received_bytes == s.received_bytes);
	free(src);
	free(dst);
	kolo_comm_destroy(c);
}

static void traffic_is_what_the_model_says(void **state)
{
	(void)state;
	t_processes(4, small_traffic, NULL);
	t_processes(4, traffic, NULL);
}

/* Rank 0 has to do with all others, and keeps the slots of so many lanes only. */
static void many_lanes(struct t_rank *r)
{
	enum { N = 1000 };
	struct kolo_comm *c = t_comm(r);
	uint32_t *x = make_words(N);
	struct kolo_stats first, last;

	CHECK(kolo_comm_stats(c, &first) == 0);
	for (int lap = 0; lap < 3; lap++) {
		for (int k = 1; k < r->nranks; k++) {
			fill(x, 0, k, N);
			if (r->rank == 0)
				CHECK(kolo_send(c, x, N, KOLO_U32, k, NULL) == 0);
			if (r->rank == k)
				CHECK(kolo_recv(c, x, N, KOLO_U32, 0, NULL) == 0 &&
				      is_from(x, 0, k, N));
		}
		CHECK(kolo_barrier(c, NULL) == 0);
	}
	/* What was sent last may have been taken after that operation ended: one more comes after
	 * it. */
	if (r->rank == 0)
		CHECK(kolo_send(c, x, 1, KOLO_U32, 1, NULL) == 0);
	if (r->rank == 1)
		CHECK(kolo_recv(c, x, 1, KOLO_U32, 0, NULL) == 0);
	CHECK(kolo_comm_stats(c, &last) == 0);
	/* 64 KiB of slots in 16 lanes, and a page of each lane. */
	CHECK(r->rank != 0 || last.memory_bytes - first.memory_bytes <=
				      (16 << 16) + ((uint64_t)r->nranks - 1) * 4096);
	free(x);
	kolo_comm_destroy(c);
}

static void idle_lanes_give_their_memory_back(void **state)
{
	(void)state;
	t_processes(40, many_lanes, NULL);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Both send first, more than any lane holds. */
static void crossed(struct t_rank *r)
{
	size_t n = t_is_slow() ? 1 << 18 : 2 << 20;
	int other = 1 - r->rank;
	struct kolo_comm *c = t_comm(r);
	uint32_t *src = make_words(n), *dst = make_words(n);

	fill(src, r->rank, other, n);
	for (int k = 0; k < 3; k++) {
		memset(dst, 0, n * sizeof(*dst));
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_send(c, src, n, KOLO_U32, other, NULL) == 0);
		CHECK(kolo_recv(c, dst, n, KOLO_U32, other, NULL) == 0);
		CHECK(kolo_group_end() == 0);
		CHECK(is_from(dst, other, r->rank, n));
	}
	free(src);
	free(dst);
	kolo_comm_destroy(c);
}

/* A hundred messages to next, and from prev, of all sizes, in one group. */
static void ring_of_messages(struct t_rank *r)
{
	enum { MESSAGES = 100, MOST = 6000 };
	int next = (r->rank + 1) % r->nranks, prev = (r->rank + r->nranks - 1) % r->nranks;
	struct kolo_comm *c = t_comm(r);
	uint32_t *src = make_words(MOST), *dst = make_words(MESSAGES * MOST);

	fill(src, r->rank, next, MOST);
	CHECK(kolo_group_begin() == 0);
	for (size_t k = 0; k < MESSAGES; k++)
		CHECK(kolo_send(c, src, k * k % MOST, KOLO_U32, next, NULL) == 0);
	for (size_t k = 0; k < MESSAGES; k++)
		CHECK(kolo_recv(c, dst + k * MOST, k * k % MOST, KOLO_U32, prev, NULL) == 0);
	CHECK(kolo_group_end() == 0);
	for (size_t k = 0; k < MESSAGES; k++) {
		size_t n = k * k % MOST;

		CHECK(is_from(dst + k * MOST, prev, r->rank, n) && dst[k * MOST + n] == 0);
	}
	free(src);
	free(dst);
	kolo_comm_destroy(c);
}

static void all_to_all_of_much(struct t_rank *r)
{
	size_t n = (t_is_slow() ? 1 << 18 : 16 << 20) / (size_t)r->nranks;
	struct kolo_comm *c = t_comm(r);
	uint32_t *src = make_words(n * (size_t)r->nranks), *dst = make_words(n * (size_t)r->nranks);

	for (int k = 0; k < r->nranks; k++)
		fill(src + (size_t)k * n, r->rank, k, n);
	CHECK(kolo_all_to_all(c, src, dst, n, KOLO_U32, NULL) == 0);
	for (int k = 0; k < r->nranks; k++)
		CHECK(is_from(dst + (size_t)k * n, k, r->rank, n));
	free(src);
	free(dst);
	kolo_comm_destroy(c);
}

static void what_waits_for_each_other_does_not_in_a_group(void **state)
{
	(void)state;
	t_processes(2, crossed, NULL);
	t_processes(4, ring_of_messages, NULL);
	t_processes(1, ring_of_messages, NULL);
	t_processes(8, all_to_all_of_much, NULL); /* 64 MiB each */
}

/* A thread that has two ranks of one ring, which two threads have joined for it. */
struct joiner {
	struct kolo_comm_attr attr;
	struct kolo_comm *c;
};

static void *join(void *arg)
{
	struct joiner *j = arg;

	CHECK(kolo_comm_create(&j->attr, &j->c) == 0);
	return NULL;
}

static void one_thread_has_two_ranks(struct t_rank *r)
{
	enum { N = 20000 };
	struct joiner both[2];
	struct kolo_queue *queues[3] = { NULL };
	uint32_t *src[2], *dst[2], *sum[2];
	pthread_t threads[2];

	for (int k = 0; k < 2; k++) {
		both[k] = (struct joiner){
			.attr = { .id = &r->id, .rank = k, .nranks = 2, .slot_len = 4096 }
		};
		CHECK(pthread_create(&threads[k], NULL, join, &both[k]) == 0);
		src[k] = make_words(N);
		dst[k] = make_words(N);
		sum[k] = make_words(N);
		fill(src[k], k, 1 - k, N);
		CHECK(kolo_queue_create(&queues[k]) == 0);
	}
	for (int k = 0; k < 2; k++)
		CHECK(pthread_join(threads[k], NULL) == 0);
	/* Without queues, with one for each, with the same for both, and one of the two without. */
	for (int way = 0; way < 4; way++) {
		static const int queue[4][2] = { { 2, 2 }, { 0, 1 }, { 0, 0 }, { 2, 1 } };

		for (int k = 0; k < 2; k++) {
			memset(dst[k], 0, N * sizeof(uint32_t));
			memset(sum[k], 0, N * sizeof(uint32_t));
		}
		CHECK(kolo_group_begin() == 0);
		for (int k = 0; k < 2; k++) {
			struct kolo_queue *q = queues[queue[way][k]];

			CHECK(kolo_all_reduce(both[k].c, src[k], sum[k], N, KOLO_U32, KOLO_SUM,
					      q) == 0);
			CHECK(kolo_send(both[k].c, src[k], N, KOLO_U32, 1 - k, q) == 0);
			CHECK(kolo_barrier(both[k].c, q) == 0);
			CHECK(kolo_recv(both[k].c, dst[k], N, KOLO_U32, 1 - k, q) == 0);
		}
		CHECK(kolo_group_end() == 0);
		for (int k = 0; k < 2; k++)
			CHECK(kolo_queue_wait(queues[k]) == 0);
		for (int k = 0; k < 2; k++) {
			CHECK(is_from(dst[k], 1 - k, k, N));
			for (size_t i = 0; i < N; i++)
				CHECK(sum[k][i] == word(0, 1, i) + word(1, 0, i));
		}
	}
	for (int k = 0; k < 2; k++) {
		kolo_queue_destroy(queues[k]);
		kolo_comm_destroy(both[k].c);
		free(src[k]);
		free(dst[k]);
		free(sum[k]);
	}
}

static void two_communicators_of_one_thread_in_one_group(void **state)
{
	(void)state;
	t_processes(1, one_thread_has_two_ranks, NULL);
}

/* What the queues had before comes first, and what they get later comes after: each step needs the
 * one before. */
static void several_queues(struct t_rank *r)
{
	enum { LAPS = 50 };
	struct kolo_comm *c = t_comm(r);
	struct kolo_queue *q[2];
	int next = (r->rank + 1) % r->nranks, prev = (r->rank + r->nranks - 1) % r->nranks;
	uint32_t x = (uint32_t)r->rank, y = 0;

	for (int k = 0; k < 2; k++)
		CHECK(kolo_queue_create(&q[k]) == 0);
	for (int lap = 0; lap < LAPS; lap++) {
		CHECK(kolo_all_reduce(c, &x, &x, 1, KOLO_U32, KOLO_MAX, q[lap % 2]) == 0);
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_send(c, &x, 1, KOLO_U32, next, q[0]) == 0);
		CHECK(kolo_recv(c, &y, 1, KOLO_U32, prev, q[1]) == 0);
		CHECK(kolo_group_end() == 0);
		CHECK(kolo_all_reduce(c, &y, &x, 1, KOLO_U32, KOLO_SUM, q[lap % 2]) == 0);
	}
	for (int k = 0; k < 2; k++)
		CHECK(kolo_queue_wait(q[k]) == 0);
	/* Everyone has the largest; then three times that. */
	for (uint32_t lap = 0, want = (uint32_t)r->nranks - 1; lap < LAPS; lap++) {
		want *= (uint32_t)r->nranks;
		CHECK(lap < LAPS - 1 || x == want);
	}
	for (int k = 0; k < 2; k++)
		kolo_queue_destroy(q[k]);
	kolo_comm_destroy(c);
}

static void a_group_joins_the_queues_of_its_calls(void **state)
{
	(void)state;
	t_processes(3, several_queues, NULL);
}

/* Both communicators in one group, all the time, some of them in a queue: each does the groups in
 * their order. */
static void groups_in_a_row(struct t_rank *r)
{
	struct kolo_comm *a = t_comm(r), *b;
	struct kolo_queue *q = NULL;
	uint32_t x = 1, y[2], z[2];

	CHECK(kolo_comm_split(a, 0, -r->rank, &b) == 0 && kolo_queue_create(&q) == 0);
	for (int lap = 0; lap < 200; lap++) {
		for (int k = 0; k < 2; k++) {
			struct kolo_queue *where = k == 0 ? q : NULL;

			CHECK(kolo_group_begin() == 0);
			CHECK(kolo_all_reduce(a, &x, &y[k], 1, KOLO_U32, KOLO_SUM, where) == 0);
			CHECK(kolo_all_reduce(b, &x, &z[k], 1, KOLO_U32, KOLO_SUM, where) == 0);
			CHECK(kolo_group_end() == 0);
		}
		CHECK(kolo_queue_wait(q) == 0);
		for (int k = 0; k < 2; k++)
			CHECK(y[k] == (uint32_t)r->nranks && z[k] == (uint32_t)r->nranks);
	}
	/* A failure of another communicator in the same queue is not the group's. */
	CHECK(kolo_barrier(a, NULL) == 0); /* everyone is through with b */
	kolo_comm_abort(b);
	CHECK(kolo_barrier(b, q) == 0);
	CHECK(kolo_group_begin() == 0);
	CHECK(kolo_all_reduce(a, &x, &y[0], 1, KOLO_U32, KOLO_SUM, q) == 0);
	CHECK(kolo_all_reduce(a, &x, &y[1], 1, KOLO_U32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_group_end() == 0);
	CHECK(kolo_queue_wait(q) == KOLO_EABORTED);
	kolo_queue_destroy(q);
	kolo_comm_destroy(b);
	kolo_comm_destroy(a);
}

/* Of two communicators in a group one is done, and gone, while the other one waits. */
static void one_of_two_is_done(struct t_rank *r)
{
	struct kolo_comm *a = t_comm(r), *b;
	struct kolo_queue *q = NULL;
	uint32_t x = 1, y = 0, z = 0;

	CHECK(kolo_comm_split(a, 0, r->rank, &b) == 0 && kolo_queue_create(&q) == 0);
	if (r->rank == 0) {
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_all_reduce(a, &x, &y, 1, KOLO_U32, KOLO_SUM, q) == 0);
		CHECK(kolo_all_reduce(b, &x, &z, 1, KOLO_U32, KOLO_SUM, q) == 0);
		CHECK(kolo_group_end() == 0);
		kolo_comm_destroy(b);
		CHECK(kolo_queue_wait(q) == 0);
	} else {
		CHECK(kolo_all_reduce(b, &x, &z, 1, KOLO_U32, KOLO_SUM, NULL) == 0);
		usleep(300000);
		CHECK(kolo_all_reduce(a, &x, &y, 1, KOLO_U32, KOLO_SUM, NULL) == 0);
		kolo_comm_destroy(b);
	}
	CHECK(y == 2 && z == 2);
	kolo_queue_destroy(q);
	kolo_comm_destroy(a);
}

static void groups_of_two_communicators_go_on_in_queues(void **state)
{
	(void)state;
	t_processes(3, groups_in_a_row, NULL);
	t_processes(2, one_of_two_is_done, NULL);
}

static void rules_of_groups(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r), *half;
	int me = r->rank, other = 1 - r->rank;
	uint32_t x = 7, y = 0, z = 0, own = 0;
	void *memory;

	CHECK(kolo_group_end() == KOLO_EINVAL && says("kolo_group_begin"));
	CHECK(kolo_group_begin() == 0 && kolo_group_end() == 0); /* empty */
	CHECK(kolo_send(c, &x, 1, KOLO_U32, me, NULL) == KOLO_EINVAL && says("same group"));
	CHECK(kolo_group_begin() == 0);
	CHECK(kolo_group_begin() == 0);
	CHECK(kolo_recv(c, &y, 1, KOLO_U32, other, NULL) == 0);
	CHECK(kolo_group_end() == 0);
	CHECK(y == 0); /* nothing yet */
	/* Wrong arguments spoil their call, and no other. */
	CHECK(kolo_send(c, &x, 1, KOLO_U32, 2, NULL) == KOLO_EINVAL && says("peer 2: want 0 to 1"));
	CHECK(kolo_all_reduce(c, &x, NULL, 1, KOLO_U32, KOLO_SUM, NULL) == KOLO_EINVAL);
	CHECK(kolo_alloc(c, 4096, &memory) == KOLO_EINVAL && says("kolo_alloc between"));
	CHECK(kolo_comm_split(c, 0, 0, &half) == KOLO_EINVAL && says("kolo_comm_split between"));
	CHECK(kolo_recv(c, &own, 1, KOLO_U32, me, NULL) == 0);
	CHECK(kolo_send(c, &x, 1, KOLO_U32, me, NULL) == 0);
	CHECK(kolo_all_reduce(c, &x, &z, 1, KOLO_U32, KOLO_SUM, NULL) == 0);
	CHECK(kolo_send(c, &x, 1, KOLO_U32, other, NULL) == 0);
	CHECK(kolo_group_end() == 0);
	CHECK(y == 7 && z == 14 && own == 7);
	CHECK(kolo_comm_status(c) == 0);
	/* Only seen at the end, where it fails the communicator: nobody sends what is waited
	 * for. */
	if (me == 0) {
		usleep(200000); /* the other one has ended its group */
		CHECK(kolo_group_begin() == 0);
		CHECK(kolo_recv(c, &own, 1, KOLO_U32, me, NULL) == 0);
		CHECK(kolo_group_end() == KOLO_EMISMATCH && says("recv from itself"));
	}
	while (kolo_comm_status(c) == 0)
		usleep(1000);
	CHECK(kolo_comm_status(c) == KOLO_EMISMATCH);
	kolo_comm_destroy(c);
}

static void groups_nest_and_leave_wrong_calls_out(void **state)
{
	(void)state;
	t_processes(2, rules_of_groups, NULL);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static void wrong_arguments(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	size_t counts[2] = { 1, 1 }, wrong[2] = { 2, 2 }, mine[2] = { 1, 2 },
	       huge[2] = { SIZE_MAX / 8, SIZE_MAX / 8 };
	uint32_t x[4] = { 0 }, y[4] = { 0 };

	CHECK(kolo_send(NULL, x, 1, KOLO_U32, 1, NULL) == KOLO_EINVAL &&
	      says("kolo_send: comm is NULL"));
	CHECK(kolo_send(c, NULL, 1, KOLO_U32, 1 - r->rank, NULL) == KOLO_EINVAL &&
	      says("kolo_send: src is NULL"));
	CHECK(kolo_recv(c, NULL, 1, KOLO_U32, 1 - r->rank, NULL) == KOLO_EINVAL &&
	      says("dst is NULL"));
	CHECK(kolo_recv(c, x, 1, (enum kolo_type)99, 1 - r->rank, NULL) == KOLO_EINVAL &&
	      says("99 is no type"));
	CHECK(kolo_recv(c, x, SIZE_MAX / 2, KOLO_U32, 1 - r->rank, NULL) == KOLO_EINVAL &&
	      says("address space"));
	CHECK(kolo_all_to_all(c, x, x, 1, KOLO_U32, NULL) == KOLO_EINVAL && says("overlap"));
	CHECK(kolo_all_to_all_v(c, x, counts, y, NULL, KOLO_U32, NULL) == KOLO_EINVAL &&
	      says("counts are NULL"));
	CHECK(kolo_all_gather_v(c, x, y, NULL, KOLO_U32, NULL) == KOLO_EINVAL &&
	      says("counts are NULL"));
	CHECK(kolo_all_gather_v(c, x, y, huge, KOLO_U32, NULL) == KOLO_EINVAL &&
	      says("address space"));
	/* In place is where the own block of src is. */
	CHECK(kolo_reduce_scatter_v(c, x, x + 1 - r->rank, counts, KOLO_U32, KOLO_SUM, NULL) ==
	      KOLO_EINVAL);
	CHECK(kolo_gather(c, x, y, 1, KOLO_U32, 2, NULL) == KOLO_EINVAL &&
	      says("root 2: want 0 to 1"));
	if (r->rank == 1)
		CHECK(kolo_gather_v(c, x, 1, y, wrong, KOLO_U32, 1, NULL) == KOLO_EINVAL &&
		      says("n is 1"));
	mine[r->rank] = 2;
	mine[1 - r->rank] = 1;
	CHECK(kolo_all_to_all_v(c, x, counts, y, mine, KOLO_U32, NULL) == KOLO_EINVAL &&
	      says("sends 1 elements to itself"));
	/* Nobody but root looks at its counts. */
	CHECK(kolo_scatter_v(c, x, r->rank == 0 ? counts : huge, y, 1, KOLO_U32, 0, NULL) == 0);
	CHECK(kolo_comm_status(c) == 0);
	kolo_comm_destroy(c);
}

static void wrong_arguments_are_refused(void **state)
{
	(void)state;
	t_processes(2, wrong_arguments, NULL);
}

/* What the two ends say differs in each of these ways, and the receiver's error has both. */
static void two_minds(struct t_rank *r)
{
	int way = *(const int *)r->arg;
	struct kolo_comm *c = t_comm(r);
	static const size_t sends[] = { 5, 6 }, receives[] = { 7, 5 };
	uint32_t x[16] = { 0 }, y[16] = { 0 };
	int rc = 0;

	if (r->rank == 0) {
		rc = way == 2 ? kolo_all_to_all_v(c, x, sends, y, sends, KOLO_U32, NULL)
			      : kolo_send(c, x, 5, KOLO_U32, 1, NULL);
		CHECK(way == 2 ? rc == KOLO_EMISMATCH : rc == 0);
	} else {
		switch (way) {
		case 0: rc = kolo_recv(c, x, 6, KOLO_U32, 0, NULL); break;
		case 1: rc = kolo_recv(c, x, 5, KOLO_F32, 0, NULL); break;
		case 2: rc = kolo_all_to_all_v(c, x, receives, y, receives, KOLO_U32, NULL); break;
		default: rc = kolo_all_to_all_v(c, x, sends, y, sends, KOLO_U32, NULL); break;
		}
		CHECK(rc == KOLO_EMISMATCH);
		CHECK(way > 1 || (says("rank 0 (pid") && says("sends n=5 u32 to rank 1") &&
				  says(way == 0 ? "waits for n=6 u32" : "waits for n=5 f32")));
		CHECK(way != 2 || says("all_to_all_v"));
		CHECK(way != 3 || says("rank 0 (pid"));
	}
	while (kolo_comm_status(c) == 0)
		usleep(1000);
	CHECK(kolo_barrier(c, NULL) == KOLO_EMISMATCH);
	kolo_comm_destroy(c);
}

static void ends_that_disagree_are_told_both_sides(void **state)
{
	(void)state;
	for (int way = 0; way < 4; way++)
		t_processes(2, two_minds, &way);
}

/* Different counts of a collective that all ranks must give alike. */
static void different_counts(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	const size_t counts[2][2] = { { 1, 3 }, { 3, 1 } };
	uint32_t x[4] = { 0 }, y[4] = { 0 };
	int rc = kolo_all_gather_v(c, x, y, counts[r->rank], KOLO_U32, NULL);

	if (rc == 0)
		rc = kolo_barrier(c, NULL);
	CHECK(rc == KOLO_EMISMATCH && says("all_gather_v(n=4 in all, counts with hash"));
	kolo_comm_destroy(c);
}

static void counts_that_differ_are_a_disagreement(void **state)
{
	(void)state;
	t_processes(2, different_counts, NULL);
}

/* Both use the slots of the link. */
static void different_long_collectives(struct t_rank *r)
{
	enum { WORDS = 400 * 1000 };
	struct kolo_comm *c = t_comm(r);
	uint32_t *src = make_words(2 * WORDS), *dst = make_words(2 * WORDS);
	int rc = r->rank == 0 ? kolo_all_to_all(c, src, dst, WORDS, KOLO_U32, NULL)
			      : kolo_all_reduce(c, src, dst, 2 * WORDS, KOLO_U32, KOLO_SUM, NULL);

	CHECK(rc == KOLO_EMISMATCH && says("all_to_all(n=400000, u32)") &&
	      says("all_reduce(n=800000, u32, sum)"));
	kolo_comm_destroy(c);
	free(src);
	free(dst);
}

static void long_collectives_that_differ_are_a_disagreement(void **state)
{
	(void)state;
	t_processes(2, different_long_collectives, NULL);
}

/* ---- Accidents ------------------------------------------------------------------------------- */

struct accident {
	int sig, grouped, victim;
	_Atomic int *ready; /* ranks that are about to wait */
};

/* Rank 4 waits for the victim, which is no neighbour of it, and everyone for rank 4. */
static void wait_in_vain(struct t_rank *r)
{
	struct accident *a = r->arg;
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = a->sig == SIGSTOP ? 2 : 20 });
	struct kolo_queue *q = NULL;
	size_t n = 1 << 20;
	uint32_t *x = make_words(n), *y = make_words(n);
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "rank %d (pid", a->victim);
	if (a->grouped == 2)
		CHECK(kolo_queue_create(&q) == 0);
	CHECK(kolo_barrier(c, NULL) == 0);
	++*a->ready;
	if (r->rank == a->victim) {
		while (kolo_comm_status(c) == 0) /* until it is killed, or given up */
			usleep(1000);
	} else {
		int from = r->rank == 4 ? a->victim : 4;

		if (a->grouped) {
			CHECK(kolo_group_begin() == 0);
			for (int k = 0; k < r->nranks; k++)
				if (k != r->rank)
					CHECK(kolo_recv(c, x, n, KOLO_U32, k, q) == 0 &&
					      kolo_send(c, y, n, KOLO_U32, k, q) == 0);
			rc = kolo_group_end();
			if (q) {
				CHECK(rc == 0);
				rc = kolo_queue_wait(q);
			}
		} else {
			rc = kolo_recv(c, x, n, KOLO_U32, from, NULL);
		}
		CHECK(rc == (a->sig == SIGSTOP ? KOLO_ETIMEDOUT : KOLO_EPEER));
		CHECK(says(name));
	}
	kolo_queue_destroy(q);
	free(x);
	free(y);
	kolo_comm_destroy(c);
}

static void have_accident(int sig, int grouped, int victim)
{
	struct accident a = { .sig = sig, .grouped = grouped, .victim = victim };
	int pids[6];
	int64_t since;

	a.ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(a.ready != MAP_FAILED);
	t_start(6, wait_in_vain, &a, pids);
	while (*a.ready < 6)
		usleep(1000);
	usleep(100000);
	since = t_now_ms();
	kill(pids[victim], sig);
	if (sig == SIGSTOP) {
		usleep(3500000);
		kill(pids[victim], SIGCONT);
	}
	t_wait(6, pids, sig == SIGKILL ? victim : -1);
	CHECK(t_now_ms() - since < (sig == SIGKILL ? 2000 : 6000));
	munmap((void *)(uintptr_t)a.ready, 4096);
}

static void a_killed_or_stopped_rank_ends_messages_and_groups(void **state)
{
	(void)state;
	for (int grouped = 0; grouped < 3;
	     grouped++) { /* one message, a group, a group in a queue */
		have_accident(SIGKILL, grouped, 1);
		have_accident(SIGKILL, grouped, 5);
		have_accident(SIGSTOP, grouped, 1);
	}
}

static void aborted(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	uint32_t x;

	if (r->rank == 0) {
		usleep(100000);
		kolo_comm_abort(c);
		usleep(1500000); /* without leaving */
	} else {
		int64_t since = t_now_ms();

		CHECK(kolo_recv(c, &x, 1, KOLO_U32, 0, NULL) == KOLO_EABORTED);
		CHECK(t_now_ms() - since < 1500);
	}
	kolo_comm_destroy(c);
}

static void an_abort_ends_a_recv(void **state)
{
	(void)state;
	t_processes(3, aborted, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(messages_of_every_length_come_as_they_were_sent),
	cmocka_unit_test(what_a_rank_sends_to_itself_may_overlap),
	cmocka_unit_test(large_messages_are_right_whatever_is_learnt_of_them),
	cmocka_unit_test(long_messages_of_collectives_go_through_slots_of_the_link),
	cmocka_unit_test(small_messages_wait_for_a_late_receiver_and_outlive_their_sender),
	cmocka_unit_test(traffic_is_what_the_model_says),
	cmocka_unit_test(idle_lanes_give_their_memory_back),
	cmocka_unit_test(what_waits_for_each_other_does_not_in_a_group),
	cmocka_unit_test(two_communicators_of_one_thread_in_one_group),
	cmocka_unit_test(a_group_joins_the_queues_of_its_calls),
	cmocka_unit_test(groups_of_two_communicators_go_on_in_queues),
	cmocka_unit_test(groups_nest_and_leave_wrong_calls_out),
	cmocka_unit_test(wrong_arguments_are_refused),
	cmocka_unit_test(ends_that_disagree_are_told_both_sides),
	cmocka_unit_test(counts_that_differ_are_a_disagreement),
	cmocka_unit_test(long_collectives_that_differ_are_a_disagreement),
	cmocka_unit_test(a_killed_or_stopped_rank_ends_messages_and_groups),
	cmocka_unit_test(an_abort_ends_a_recv),
};

T_MAIN(tests)
