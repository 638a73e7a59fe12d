/* Messages with tags: what matches what, in which order; kept messages and their bound; threads and
 * queues; deaths, aborts and mismatches. */
#include "kolo/kolo_mailbox.h"
#include "tests/lib/t.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ends {
	struct kolo_comm *comm;
	struct kolo_mailbox *box;
};

static struct ends open_ends(struct t_rank *r, struct kolo_comm_attr attr)
{
	struct ends e = { .comm = t_comm_with(r, attr) };

	CHECK(kolo_mailbox_create(e.comm, &e.box) == 0);
	return e;
}

static void close_ends(struct ends *e)
{
	CHECK(kolo_barrier(e->comm, NULL) == 0);
	kolo_mailbox_destroy(e->box);
	kolo_comm_destroy(e->comm);
}

static bool says(const char *text)
{
	return strstr(kolo_last_error(), text);
}

static uint32_t word(int from, int tag, size_t i)
{
	return (uint32_t)i * 2654435761u + (uint32_t)from * 1000 + (uint32_t)tag;
}

static uint32_t *make_words(size_t n)
{
	uint32_t *words = calloc(n + 1, sizeof(*words));

	CHECK(words != NULL);
	return words;
}

static void fill(uint32_t *words, int from, int tag, size_t n)
{
	for (size_t i = 0; i < n; i++)
		words[i] = word(from, tag, i);
}

static bool is_from(const uint32_t *words, int from, int tag, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] != word(from, tag, i))
			return false;
	return true;
}

/* ---- Matching -------------------------------------------------------------------------------- */

static const size_t lengths[] = { 0, 1, 10, 11, 1000, 2048, 2049, 5000, 40000, 300001 };

/* Everyone to everyone, itself too, all at once, in every length; received in the reverse order of
 * the tags. */
static void all_at_once(struct t_rank *r)
{
	enum { N = ARRAY_LEN(lengths) };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	struct kolo_request *sends[8][N], *recvs[8][N];
	uint32_t *out[N], *in[8][N];
	struct kolo_received got;

	for (int k = 0; k < N; k++)
		fill(out[k] = make_words(lengths[k]), r->rank, k, lengths[k]);
	for (int p = 0; p < r->nranks; p++)
		for (int k = 0; k < N; k++)
			CHECK(kolo_isend(e.box, out[k], lengths[k], KOLO_U32, p, k, &sends[p][k]) ==
			      0);
	for (int p = 0; p < r->nranks; p++)
		for (int k = N - 1; k >= 0; k--)
			CHECK(kolo_irecv(e.box, in[p][k] = make_words(lengths[k]), lengths[k],
					 KOLO_U32, p, k, &recvs[p][k]) == 0);
	for (int p = 0; p < r->nranks; p++) {
		for (int k = 0; k < N; k++) {
			CHECK(kolo_request_wait(recvs[p][k], &got) == 0);
			CHECK(got.peer == p && got.tag == k && got.n == lengths[k]);
			CHECK(is_from(in[p][k], p, k, lengths[k]));
			free(in[p][k]);
			CHECK(kolo_request_wait(sends[p][k], NULL) == 0);
		}
	}
	close_ends(&e);
	for (int k = 0; k < N; k++)
		free(out[k]);
}

static void every_message_finds_its_receive(void **state)
{
	(void)state;
	t_processes(1, all_at_once, NULL);
	t_processes(2, all_at_once, NULL);
	t_processes(5, all_at_once, NULL);
	t_threads(3, all_at_once, NULL);
}

/* Two tags and two senders; the receiver takes them by tag, then by sender, then all others. */
static void any(struct t_rank *r)
{
	enum { EACH = 20 };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	int last[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
	struct kolo_received got;
	int value;

	for (int k = 0; r->rank > 0 && k < 2 * EACH; k++)
		CHECK(kolo_send_tag(e.box, &k, 1, KOLO_I32, 0, k % 2, NULL) == 0);
	for (int k = 0; r->rank == 0 && k < 4 * EACH; k++) {
		int from = k < EACH ? 2 : KOLO_ANY_RANK, tag = k < 2 * EACH ? 1 : KOLO_ANY_TAG;

		CHECK(kolo_recv_tag(e.box, &value, 1, KOLO_I32, from, tag, &got, NULL) == 0);
		CHECK(from == KOLO_ANY_RANK || got.peer == from);
		CHECK(tag == KOLO_ANY_TAG || got.tag == tag);
		CHECK(got.n == 1 && value % 2 == got.tag && value > last[got.peer][got.tag]);
		last[got.peer][got.tag] = value;
	}
	close_ends(&e);
}

static void any_rank_and_any_tag_keep_the_order_of_each(void **state)
{
	(void)state;
	t_processes(3, any, NULL);
}

/* Messages cross collectives, which have an order of their own. */
static void apart(struct t_rank *r)
{
	enum { N = 100000 };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	int other = 1 - r->rank, one = 1, sum;
	uint32_t *out = make_words(N), *in = make_words(N);
	struct kolo_request *send, *recv;
	struct kolo_queue *queue;

	CHECK(kolo_queue_create(&queue) == 0);
	fill(out, r->rank, 7, N);
	CHECK(kolo_all_reduce(e.comm, &one, &sum, 1, KOLO_I32, KOLO_SUM, queue) == 0);
	CHECK(kolo_irecv(e.box, in, N, KOLO_U32, other, 7, &recv) == 0);
	CHECK(kolo_barrier(e.comm, NULL) == 0);
	CHECK(kolo_isend(e.box, out, N, KOLO_U32, other, 7, &send) == 0);
	if (r->rank == 0)
		CHECK(kolo_request_wait(send, NULL) == 0);
	CHECK(kolo_barrier(e.comm, queue) == 0);
	CHECK(kolo_request_wait(recv, NULL) == 0);
	if (r->rank == 1)
		CHECK(kolo_request_wait(send, NULL) == 0);
	CHECK(kolo_queue_wait(queue) == 0 && sum == 2 && is_from(in, other, 7, N));
	kolo_queue_destroy(queue);
	close_ends(&e);
	free(in);
	free(out);
}

static void messages_are_apart_from_collectives(void **state)
{
	(void)state;
	t_processes(2, apart, NULL);
}

/* ---- What is kept ---------------------------------------------------------------------------- */

/* Far more short messages than may be kept; then they are received, the last one first. */
static void flood(struct t_rank *r)
{
	enum { COUNT = 3000, N = 25 };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	static struct kolo_request *requests[COUNT];
	static uint32_t words[COUNT][N];
	size_t before = kolo_mailbox_memory(e.box);

	for (int k = 0; r->rank == 1 && k < COUNT; k++) {
		fill(words[k], 1, k, N);
		CHECK(kolo_isend(e.box, words[k], N, KOLO_U32, 0, k, &requests[k]) == 0);
	}
	CHECK(kolo_barrier(e.comm, NULL) == 0);
	if (r->rank == 0) {
		/* This one comes after all others, which are therefore kept here, or there. */
		for (int k = COUNT - 1; k >= 0; k--) {
			uint32_t in[N];

			CHECK(kolo_recv_tag(e.box, in, N, KOLO_U32, KOLO_ANY_RANK, k, NULL, NULL) ==
			      0);
			CHECK(is_from(in, 1, k, N));
			if (k == COUNT - 1) /* announcements of what its sender keeps count, too */
				CHECK(kolo_mailbox_memory(e.box) <
				      before + 2 * KOLO_MAILBOX_KEPT + COUNT * 128);
		}
	}
	for (int k = 0; r->rank == 1 && k < COUNT; k++)
		CHECK(kolo_request_wait(requests[k], NULL) == 0);
	CHECK(kolo_barrier(e.comm, NULL) == 0);
	CHECK(kolo_mailbox_memory(e.box) <= before + (128 << 10)); /* the lanes */
	close_ends(&e);
}

static void what_matches_nothing_is_kept_and_bounded(void **state)
{
	(void)state;
	t_processes(2, flood, NULL);
}

static void mismatched(struct t_rank *r)
{
	enum { N = 20000 };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	uint32_t *words = make_words(N);
	struct kolo_request *request;
	int64_t since;
	int done;

	if (r->rank == 0) {
		for (int k = 0; k < 3; k++)
			CHECK(kolo_send_tag(e.box, words, k == 1 ? N : 3, KOLO_U32, 1, 5, NULL) ==
			      0);
	} else {
		CHECK(kolo_recv_tag(e.box, words, 2, KOLO_U32, 0, 5, NULL, NULL) == KOLO_EMISMATCH);
		CHECK(says("rank 0 (pid ") && says("sends n=3 u32 with tag 5") &&
		      says("waits for at most n=2 u32") && says("is dropped"));
		CHECK(kolo_recv_tag(e.box, words, N, KOLO_F32, 0, 5, NULL, NULL) == KOLO_EMISMATCH);
		CHECK(says("n=20000 u32") && says("n=20000 f32"));
		CHECK(kolo_recv_tag(e.box, words, 3, KOLO_U32, 0, 5, NULL, NULL) == 0);
	}
	CHECK(kolo_irecv(e.box, words, 1, KOLO_U32, KOLO_ANY_RANK, 9, &request) == 0);
	CHECK(kolo_request_test(request, &done) == 0 && !done);
	since = t_now_ms();
	CHECK(kolo_request_poll(request, 100, &done) == 0 && !done && t_now_ms() - since >= 99);
	CHECK(kolo_request_cancel(request) == 0);
	CHECK(kolo_request_test(request, &done) == 0 && done);
	CHECK(kolo_request_wait(request, NULL) == KOLO_EABORTED && says("kolo_request_cancel"));
	CHECK(kolo_isend(e.box, words, 1, KOLO_U32, 2, 0, &request) == KOLO_EINVAL &&
	      says("peer 2: want 0 to 1") && !request);
	CHECK(kolo_isend(e.box, words, 1, KOLO_U32, 0, -1, &request) == KOLO_EINVAL &&
	      says("tag -1: want 0 or more"));
	CHECK(kolo_isend(e.box, NULL, 1, KOLO_U32, 0, 0, &request) == KOLO_EINVAL);
	CHECK(kolo_isend(NULL, words, 1, KOLO_U32, 0, 0, &request) == KOLO_EINVAL);
	close_ends(&e);
	free(words);
}

static void what_does_not_fit_is_dropped_and_named(void **state)
{
	(void)state;
	t_processes(2, mismatched, NULL);
}

/* ---- Threads and queues ---------------------------------------------------------------------- */

enum { THREADS = 4, TIMES = 60 };

struct talker {
	struct ends *ends;
	int rank, nranks, number;
};

/* Passes messages of growing length round the ranks, with a tag of its own. */
static void *talk(void *arg)
{
	const struct talker *t = arg;
	int next = (t->rank + 1) % t->nranks, prev = (t->rank + t->nranks - 1) % t->nranks;
	size_t most = 1 + TIMES * 700;
	uint32_t *out = make_words(most), *in = make_words(most);
	struct kolo_request *send;
	struct kolo_received got;

	for (size_t k = 0; k < TIMES; k++) {
		size_t n = 1 + k * 700;
		int done = 0;

		fill(out, t->rank, t->number, n);
		CHECK(kolo_isend(t->ends->box, out, n, KOLO_U32, next, t->number, &send) == 0);
		CHECK(kolo_recv_tag(t->ends->box, in, most, KOLO_U32, prev, t->number, &got,
				    NULL) == 0);
		CHECK(got.n == n && is_from(in, prev, t->number, n));
		while (!done && k % 2)
			CHECK((k % 4 == 1 ? kolo_request_test(send, &done)
					  : kolo_request_poll(send, 1, &done)) == 0);
		CHECK(kolo_request_wait(send, NULL) == 0);
	}
	free(in);
	free(out);
	return NULL;
}

static void threads(struct t_rank *r)
{
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	struct talker talkers[THREADS];
	pthread_t ids[THREADS];

	for (int k = 0; k < THREADS; k++) {
		talkers[k] = (struct talker){ &e, r->rank, r->nranks, k };
		CHECK(pthread_create(&ids[k], NULL, talk, &talkers[k]) == 0);
	}
	for (int k = 0; k < THREADS; k++)
		CHECK(pthread_join(ids[k], NULL) == 0);
	close_ends(&e);
}

static void several_threads_share_a_mailbox(void **state)
{
	(void)state;
	t_processes(3, threads, NULL);
}

/* Two large messages cross, each in a queue of its own, the sends first. */
static void crossing(struct t_rank *r)
{
	enum { N = 1 << 20 };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	uint32_t *out = make_words(N), *in = make_words(N);
	struct kolo_queue *sends, *recvs;
	struct kolo_received got;
	int other = 1 - r->rank;

	CHECK(kolo_queue_create(&sends) == 0 && kolo_queue_create(&recvs) == 0);
	fill(out, r->rank, 3, N);
	CHECK(kolo_send_tag(e.box, out, N, KOLO_U32, other, 3, sends) == 0);
	CHECK(kolo_recv_tag(e.box, in, N, KOLO_U32, other, 3, &got, recvs) == 0);
	CHECK(kolo_queue_wait(recvs) == 0 && kolo_queue_wait(sends) == 0);
	CHECK(got.n == N && is_from(in, other, 3, N));
	kolo_queue_destroy(sends);
	kolo_queue_destroy(recvs);
	close_ends(&e);
	free(in);
	free(out);
}

static void sends_and_recvs_in_two_queues_cross(void **state)
{
	(void)state;
	t_processes(2, crossing, NULL);
}

/* ---- When things go wrong -------------------------------------------------------------------- */

struct trouble {
	bool aborts, tests, any;
};

/* Rank 1 dies or aborts while rank 0 waits for its message. */
static void troubled(struct t_rank *r)
{
	const struct trouble *t = r->arg;
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	struct kolo_request *request;
	int64_t since = t_now_ms();
	int value, done = 0;

	if (r->rank == 1) {
		usleep(200000);
		if (!t->aborts)
			raise(SIGKILL);
		kolo_comm_abort(e.comm);
		usleep(1500000); /* without leaving */
	} else {
		CHECK(kolo_irecv(e.box, &value, 1, KOLO_I32, t->any ? KOLO_ANY_RANK : 1, 0,
				 &request) == 0);
		while (t->tests && !done)
			CHECK(kolo_request_test(request, &done) == 0);
		CHECK(kolo_request_wait(request, NULL) == (t->aborts ? KOLO_EABORTED : KOLO_EPEER));
		CHECK(says("rank 1 (pid ") && says(t->aborts ? "kolo_comm_abort" : "died"));
		CHECK(t_now_ms() - since < (t->aborts ? 1600 : 2200));
	}
	kolo_mailbox_destroy(e.box);
	kolo_comm_destroy(e.comm);
}

static void deaths_and_aborts_end_a_wait(void **state)
{
	(void)state;
	for (int k = 0; k < 8; k++) {
		struct trouble t = { k & 1, k & 2, k & 4 };
		int pids[2];

		t_start(2, troubled, &t, pids);
		t_wait(2, pids, 1);
	}
}

static void silent(struct t_rank *r)
{
	struct ends e = open_ends(r, (struct kolo_comm_attr){ .timeout_s = 1 });
	int value;

	if (r->rank == 0) {
		CHECK(kolo_recv_tag(e.box, &value, 1, KOLO_I32, 1, 0, NULL, NULL) ==
		      KOLO_ETIMEDOUT);
		CHECK(says("rank 1 (pid ") && says("kept the others waiting for 1 s") &&
		      says("through a mailbox in recv(n=1, i32, peer 1)"));
	} else {
		sleep(2);
	}
	kolo_mailbox_destroy(e.box);
	kolo_comm_destroy(e.comm);
}

static void a_silent_rank_is_named(void **state)
{
	(void)state;
	t_processes(2, silent, NULL);
}

/* ---- At random ------------------------------------------------------------------------------- */

/* All ranks know all messages: sender, receiver, tag, length. Each starts its sends and receives in
 * an order of its own, and waits for them in another one. */
static void at_random(struct t_rank *r)
{
	enum { COUNT = 300, TAGS = 5 };
	struct ends e = open_ends(r, (struct kolo_comm_attr){ 0 });
	uint64_t all = t_seed() + (uint64_t)(uintptr_t)r->arg, mine = all + (uint64_t)r->rank + 1;
	struct kolo_request *requests[2 * COUNT];
	uint32_t *words[2 * COUNT];
	size_t n[COUNT];
	int from[COUNT], to[COUNT], tag[COUNT], order[2 * COUNT], left = 0;

	for (int k = 0; k < COUNT; k++) {
		from[k] = (int)(t_random(&all) % (uint64_t)r->nranks);
		to[k] = (int)(t_random(&all) % (uint64_t)r->nranks);
		tag[k] = (int)(t_random(&all) % TAGS);
		n[k] = (size_t)(t_random(&all) % 4 ? t_random(&all) % 3000
						   : t_random(&all) % 100000);
		if (from[k] == r->rank)
			order[left++] = k;
		if (to[k] == r->rank)
			order[left++] = COUNT + k;
	}
	/* Those of one pair and tag stay in order: what is shuffled are neighbours of others. */
	for (int k = 0; k + 1 < left; k++) {
		int a = order[k] % COUNT, b = order[k + 1] % COUNT;

		if (t_random(&mine) % 2 ||
		    (from[a] == from[b] && to[a] == to[b] && tag[a] == tag[b] &&
		     order[k] / COUNT == order[k + 1] / COUNT))
			continue;
		order[k] ^= order[k + 1];
		order[k + 1] ^= order[k];
		order[k] ^= order[k + 1];
	}
	for (int k = 0; k < left; k++) {
		int i = order[k] % COUNT;
		bool sends = order[k] < COUNT;

		words[k] = make_words(n[i]);
		if (sends)
			fill(words[k], i, tag[i], n[i]);
		CHECK((sends ? kolo_isend(e.box, words[k], n[i], KOLO_U32, to[i], tag[i],
					  &requests[k])
			     : kolo_irecv(e.box, words[k], n[i], KOLO_U32, from[i], tag[i],
					  &requests[k])) == 0);
	}
	for (int step = 7, k = 0, done = 0; done < left; k = (k + step) % left) {
		while (!requests[k])
			k = (k + 1) % left;
		CHECK(kolo_request_wait(requests[k], NULL) == 0);
		CHECK(is_from(words[k], order[k] % COUNT, tag[order[k] % COUNT],
			      n[order[k] % COUNT]));
		free(words[k]);
		requests[k] = NULL;
		done++;
	}
	close_ends(&e);
}

static void random_messages_arrive(void **state)
{
	(void)state;
	for (uintptr_t k = 0; k < (t_is_slow() ? 2 : 6); k++)
		t_processes(2 + (int)k % 3, at_random, (void *)(k * 1000));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_finds_its_receive),
		cmocka_unit_test(any_rank_and_any_tag_keep_the_order_of_each),
		cmocka_unit_test(messages_are_apart_from_collectives),
		cmocka_unit_test(what_matches_nothing_is_kept_and_bounded),
		cmocka_unit_test(what_does_not_fit_is_dropped_and_named),
		cmocka_unit_test(several_threads_share_a_mailbox),
		cmocka_unit_test(sends_and_recvs_in_two_queues_cross),
		cmocka_unit_test(deaths_and_aborts_end_a_wait),
		cmocka_unit_test(a_silent_rank_is_named),
		cmocka_unit_test(random_messages_arrive),
	};

	return t_main(tests, ARRAY_LEN(tests));
}
