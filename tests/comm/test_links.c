/* The conformance suite: what every link must do, run unchanged on every transport in
 * ko_transports, and on a fifo whose two ends share one mapping, which lets the thread sanitizer
 * see both sides. */
#include "comm/base/error.h"
#include "comm/core/transports.h"
#include "comm/health/msg.h"
#include "comm/transport/fifo.h"
#include "comm/transport/link.h"
#include "comm/transport/shm.h"
#include "comm/transport/tcp.h"
#include "comm/transport/verbs/slots.h"
#include "tests/lib/t.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ko_limits limits = { .slot_len = KO_LENT_MIN, .nslots = 4 };
static const struct ko_place here; /* of no address: links stay on the loopback interface */

/* A connected link, both ends in this process. */
struct pair {
	struct ko_link *tx, *rx;
	bool apart; /* each end is used by a thread or process of its own */
};

static bool run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}

typedef int try_fn(struct ko_link *link, struct ko_slot *out);

/* Links may be asynchronous: polls for up to ten seconds. `other` may need calls meanwhile: it is
 * NULL, or the end that nobody else uses. */
static int poll_link(try_fn *try, struct ko_link *link, struct ko_slot *out, struct ko_link *other)
{
	int64_t deadline = t_now_ms() + 10000;
	int rc;

	while ((rc = try(link, out)) == KO_EAGAIN && t_now_ms() < deadline) {
		if (other)
			other->ops->progress(other);
		sched_yield();
	}
	return rc;
}

static int acquire(struct pair *p, struct ko_slot *s)
{
	return poll_link(p->tx->ops->acquire, p->tx, s, p->apart ? NULL : p->rx);
}

static int try_peek(struct ko_link *link, struct ko_slot *out)
{
	return link->ops->peek(link, NULL, 0, out);
}

static int peek(struct pair *p, struct ko_slot *s)
{
	return poll_link(try_peek, p->rx, s, p->apart ? NULL : p->tx);
}

/* Sends `len` bytes of value `fill` with the tag. */
static void put(struct pair *p, size_t len, unsigned char fill, uint32_t tag)
{
	struct ko_slot s;

	CHECK(acquire(p, &s) == 0);
	memset(s.ptr, fill, len);
	s.len = len;
	s.tag = tag;
	CHECK(p->tx->ops->commit(p->tx, &s) == 0);
}

/* Takes one slot and checks that it is what put sent. */
static void get(struct pair *p, size_t len, unsigned char fill, uint32_t tag)
{
	struct ko_slot s;

	CHECK(peek(p, &s) == 0 && s.len == len && s.tag == tag);
	for (size_t i = 0; i < len; i++)
		CHECK(((unsigned char *)s.ptr)[i] == fill);
	CHECK(p->rx->ops->release(p->rx) == 0);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void an_empty_link_has_nothing_to_peek(struct pair *p)
{
	struct ko_slot s;

	CHECK(try_peek(p->rx, &s) == KO_EAGAIN);
}

static void a_slot_arrives_with_its_bytes_length_and_tag(struct pair *p)
{
	put(p, 1000, 0x11, 42);
	get(p, 1000, 0x11, 42);
}

static void empty_and_full_slots_arrive(struct pair *p)
{
	put(p, 0, 0, 1);
	put(p, limits.slot_len, 0x77, 2);
	put(p, 1, 0x33, 3);
	get(p, 0, 0, 1);
	get(p, limits.slot_len, 0x77, 2);
	get(p, 1, 0x33, 3);
}

static void a_full_link_refuses(struct pair *p)
{
	struct ko_slot s;

	enum { FAR_TOO_MANY = 1000000 };
	unsigned n = 0;

	/* Some have the kernel's buffers beside their slots. */
	while (n < FAR_TOO_MANY && p->tx->ops->acquire(p->tx, &s) == 0)
		put(p, 1000, (unsigned char)n, n), n++;
	CHECK(n >= limits.nslots && n < FAR_TOO_MANY);
	for (unsigned i = 0; i < n; i++)
		get(p, 1000, (unsigned char)i, i);
	CHECK(acquire(p, &s) == 0);
}

static void acquire_and_peek_may_be_repeated(struct pair *p)
{
	struct ko_slot a, b;

	CHECK(acquire(p, &a) == 0 && acquire(p, &b) == 0 && a.ptr == b.ptr);
	put(p, 5, 0x44, 9);
	CHECK(peek(p, &a) == 0 && peek(p, &b) == 0);
	CHECK(a.ptr == b.ptr && b.len == 5 && b.tag == 9);
	get(p, 5, 0x44, 9);
}

static void slots_keep_their_order_over_many_laps(struct pair *p)
{
	for (unsigned i = 0; i < 1000; i++) {
		put(p, i % 100, (unsigned char)i, i);
		if (i % 3 == 2)
			for (unsigned k = i - 2; k <= i; k++)
				get(p, k % 100, (unsigned char)k, k);
	}
}

static void payload_and_slots_are_counted_on_both_ends(struct pair *p)
{
	put(p, 100, 1, 1);
	put(p, 0, 1, 2);
	CHECK(p->tx->bytes == 100 && p->tx->slots == 2 && p->rx->bytes == 0);
	get(p, 100, 1, 1);
	get(p, 0, 1, 2);
	CHECK(p->rx->bytes == 100 && p->rx->slots == 2);
}

static int try_drain(struct ko_link *link, struct ko_slot *out)
{
	(void)out;
	return link->ops->drain(link);
}

static void what_is_drained_outlives_its_sender(struct pair *p)
{
	put(p, 600, 0x66, 6);
	CHECK(poll_link(try_drain, p->tx, NULL, p->rx) == 0);
	p->tx->ops->close(p->tx, false);
	p->tx = NULL;
	get(p, 600, 0x66, 6);
}

static void lent_memory_is_sent_from_where_it_is(struct pair *p)
{
	enum { MANY = 10 };
	static char memory[2 * KO_LENT_MIN];
	struct ko_slot s;

	CHECK(ko_link_lend(p->tx, memory, sizeof(memory)) == 0);
	for (int k = 0; k < MANY; k++) {
		/* The second half of it, and what has none of it left or too little. */
		char *from = memory + KO_LENT_MIN;
		bool taken = ko_link_takes(p->tx, from, KO_LENT_MIN);

		CHECK(p->tx->anywhere || !ko_link_takes(p->tx, from + 1, KO_LENT_MIN));
		memset(from, k + 1, KO_LENT_MIN);
		CHECK(acquire(p, &s) == 0);
		if (taken)
			s.ptr = from;
		else
			memset(s.ptr, k + 1, KO_LENT_MIN);
		s.len = KO_LENT_MIN;
		s.tag = (uint32_t)k;
		CHECK(p->tx->ops->commit(p->tx, &s) == 0);
		get(p, KO_LENT_MIN, (unsigned char)(k + 1), (uint32_t)k);
		CHECK(poll_link(try_drain, p->tx, NULL, p->rx) == 0);
		put(p, 100, 0x55, 77);
		get(p, 100, 0x55, 77);
	}
	ko_link_take_back(p->tx, memory);
	ko_link_take_back(p->tx, memory); /* what was not lent is no mistake */
	CHECK(p->tx->anywhere || !ko_link_takes(p->tx, memory, KO_LENT_MIN));
}

/* Takes a full slot while there is a place for `len` bytes. */
static void get_into(struct pair *p, char *place, size_t len, bool *there)
{
	int64_t deadline = t_now_ms() + 10000;
	struct ko_slot s;
	int rc;

	while ((rc = p->rx->ops->peek(p->rx, place, len, &s)) == KO_EAGAIN &&
	       t_now_ms() < deadline) {
		p->tx->ops->progress(p->tx);
		sched_yield();
	}
	CHECK(rc == 0 && s.len == limits.slot_len);
	for (size_t i = 0; i < s.len; i++)
		CHECK(((char *)s.ptr)[i] == 0x2a);
	*there = s.ptr == place;
	CHECK(p->rx->ops->release(p->rx) == 0);
}

static void a_slot_may_come_to_a_place_for_its_bytes(struct pair *p)
{
	static char place[KO_LENT_MIN];
	bool there;

	put(p, limits.slot_len, 0x2a, 1);
	get_into(p, place, limits.slot_len, &there);
	put(p, limits.slot_len, 0x2a, 2);
	get_into(p, place, limits.slot_len - 1, &there);
	CHECK(!there);
	put(p, 100, 0x55, 3);
	get(p, 100, 0x55, 3);
}

/* The receiver may look at it before it has a place. */
static void what_is_longer_than_a_slot_comes_to_its_place(struct pair *p)
{
	static unsigned char from[3 * KO_LENT_MIN], to[sizeof(from)];
	struct ko_slot s;
	int64_t deadline = t_now_ms() + 10000;
	int rc;

	if (!p->tx->anywhere)
		return;
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 % 251);
	for (uint32_t round = 0; round < 3; round++) {
		put(p, 100, 0x55, 7);
		CHECK(acquire(p, &s) == 0);
		s.ptr = from;
		s.len = sizeof(from);
		s.tag = 8;
		CHECK(p->tx->ops->commit(p->tx, &s) == 0);
		put(p, 100, 0x66, 9);
		for (int k = 0; k < 10; k++)
			CHECK(p->rx->ops->progress(p->rx) == 0);
		get(p, 100, 0x55, 7);
		CHECK(p->rx->ops->progress(p->rx) == 0);
		while ((rc = p->rx->ops->peek(p->rx, to, sizeof(to), &s)) == KO_EAGAIN &&
		       t_now_ms() < deadline)
			CHECK(p->tx->ops->progress(p->tx) == 0);
		CHECK(rc == 0 && s.len == sizeof(to) && s.tag == 8 && s.ptr == to);
		CHECK(memcmp(to, from, sizeof(to)) == 0);
		CHECK(p->rx->ops->release(p->rx) == 0);
		memset(to, 0, sizeof(to));
		get(p, 100, 0x66, 9);
	}
	CHECK(acquire(p, &s) == 0);
	s.ptr = from;
	s.len = sizeof(from);
	CHECK(p->tx->ops->commit(p->tx, &s) == 0);
	CHECK(peek(p, &s) == KOLO_ESYS);
	CHECK(strstr(kolo_last_error(), "longer than a slot"));
}

/* Sends KO_LENT_MIN bytes that belong into the second half of the receiver's vector. Were they put
 * there? */
static bool put_offered(struct pair *p, char *vector, int value)
{
	struct ko_slot s;
	bool there;

	CHECK(acquire(p, &s) == 0);
	memset(s.ptr, value, KO_LENT_MIN);
	s.len = KO_LENT_MIN;
	s.tag = 7;
	s.belongs = 1 + KO_LENT_MIN;
	CHECK(p->tx->ops->commit(p->tx, &s) == 0);
	CHECK(peek(p, &s) == 0 && s.len == KO_LENT_MIN && s.tag == 7);
	for (size_t i = 0; i < s.len; i++)
		CHECK(((char *)s.ptr)[i] == (char)value);
	there = s.ptr == vector + KO_LENT_MIN;
	CHECK(there || (char *)s.ptr < vector || (char *)s.ptr >= vector + 2 * KO_LENT_MIN);
	CHECK(p->rx->ops->release(p->rx) == 0);
	return there;
}

/* The offer takes some time to come. It is for slots from where both ends began, and for no
 * others. */
static void what_belongs_into_an_offered_vector_may_be_put_there(struct pair *p)
{
	static char vector[2 * KO_LENT_MIN];
	int64_t deadline = t_now_ms() + 10000;
	bool always = strcmp(p->tx->ops->name, "verbs") == 0, there = false;

	CHECK(ko_link_lend(p->rx, vector, sizeof(vector)) == 0);
	if (!p->rx->anywhere && ko_link_takes(p->rx, vector, sizeof(vector)))
		p->rx->ops->rma->offer(p->rx, vector, sizeof(vector));
	do
		there = put_offered(p, vector, 0x11);
	while (always && !there && t_now_ms() < deadline);
	CHECK(there == always);
	put(p, 100, 0x55, 77);
	get(p, 100, 0x55, 77);
	CHECK(put_offered(p, vector, 0x22) == always);
	ko_link_begin(p->tx);
	CHECK(!put_offered(p, vector, 0x33));
	ko_link_take_back(p->rx, vector);
}

/* The sender is on processor `tx`, the receiver on `rx`; -1: wherever this thread is. */
static void settle(struct pair *p, enum ko_role near, int tx, int rx)
{
	struct ko_link *ends[] = { p->tx, p->rx };
	int64_t deadline = t_now_ms() + 10000;
	const int cpus[] = { tx, rx };
	int rc[] = { KO_EAGAIN, KO_EAGAIN };

	while ((rc[0] == KO_EAGAIN || rc[1] == KO_EAGAIN) && t_now_ms() < deadline) {
		for (int i = 0; i < 2; i++) {
			if (cpus[i] >= 0)
				CHECK(run_on(cpus[i]));
			if (rc[i] == KO_EAGAIN)
				rc[i] = ends[i]->ops->settle ? ends[i]->ops->settle(ends[i], near)
							     : 0;
		}
	}
	CHECK(rc[0] == 0 && rc[1] == 0);
}

static void settled_slots_carry_what_comes_after(struct pair *p)
{
	static const enum ko_role sides[] = { KO_RECV, KO_SEND, KO_SEND, KO_RECV, KO_RECV };

	for (size_t k = 0; k < ARRAY_LEN(sides); k++) {
		settle(p, sides[k], -1, -1);
		for (unsigned i = 0; i < 11; i++) {
			put(p, i * 100, (unsigned char)i, i);
			get(p, i * 100, (unsigned char)i, i);
		}
	}
}

enum { STREAM = 20000 };

static void *send_stream(void *arg)
{
	struct pair *p = arg;

	for (unsigned i = 0; i < STREAM; i++)
		put(p, i % 257, (unsigned char)i, i);
	return NULL;
}

static void a_stream_between_threads_arrives_whole(struct pair *p)
{
	pthread_t thread;

	p->apart = true;
	CHECK(pthread_create(&thread, NULL, send_stream, p) == 0);
	for (unsigned i = 0; i < STREAM; i++)
		get(p, i % 257, (unsigned char)i, i);
	pthread_join(thread, NULL);
}

static const struct {
	const char *name;
	void (*run)(struct pair *p);
} cases[] = {
#define CASE(fn)                                                                                   \
	{                                                                                          \
#fn, fn                                                                            \
	}
	CASE(an_empty_link_has_nothing_to_peek),
	CASE(a_slot_arrives_with_its_bytes_length_and_tag),
	CASE(empty_and_full_slots_arrive),
	CASE(a_full_link_refuses),
	CASE(acquire_and_peek_may_be_repeated),
	CASE(slots_keep_their_order_over_many_laps),
	CASE(payload_and_slots_are_counted_on_both_ends),
	CASE(what_is_drained_outlives_its_sender),
	CASE(lent_memory_is_sent_from_where_it_is),
	CASE(what_belongs_into_an_offered_vector_may_be_put_there),
	CASE(a_slot_may_come_to_a_place_for_its_bytes),
	CASE(what_is_longer_than_a_slot_comes_to_its_place),
	CASE(settled_slots_carry_what_comes_after),
	CASE(a_stream_between_threads_arrives_whole),
};

/* ---- Transports ------------------------------------------------------------------------------ */

/* The two ends on one piece of ordinary memory; closed with their test. */
static const struct ko_link_ops one_memory_ops;

static void close_nothing(struct ko_link *link, bool obsolete)
{
	(void)link;
	(void)obsolete;
}

static const struct ko_link_ops one_memory_ops = {
	.name = "fifo",
	.acquire = ko_fifo_acquire,
	.commit = ko_fifo_commit,
	.peek = ko_fifo_peek,
	.release = ko_fifo_release,
	.progress = ko_fifo_progress,
	.drain = ko_fifo_drain,
	.close = close_nothing,
	.settle = ko_fifo_settle,
};

static void run_one_memory(size_t k)
{
	struct ko_fifo *fifo = aligned_alloc(4096, ko_fifo_len(&limits));
	struct ko_fifo_end ends[2] = {
		{ .link = { .ops = &one_memory_ops, .role = KO_SEND }, .fifo = fifo },
		{ .link = { .ops = &one_memory_ops, .role = KO_RECV }, .fifo = fifo }
	};
	struct pair p = { &ends[0].link, &ends[1].link, false };

	CHECK(fifo != NULL);
	memset(fifo, 0, ko_fifo_len(&limits));
	ko_fifo_init(fifo, &limits, 1);
	cases[k].run(&p);
	free(fifo);
}

/* Some need what this machine may not have: a card, a library. The rig gives verbs a machine that
 * has. */
static bool is_here(const struct ko_link_ops *ops)
{
	struct ko_link *link;
	int rc = ko_link_open(ops, KO_RECV, &here, &limits, &link);

	if (rc < 0)
		printf("# %s is left out: %s\n", ops->name, kolo_last_error());
	CHECK(rc == 0 || strcmp(ops->name, "verbs") == 0 || strcmp(ops->name, "ofi") == 0);
	ops->close(link, false);
	return rc == 0;
}

/* Calls connect until the end is there. false: not yet. */
static bool connect_end(struct ko_link *link, const struct ko_address *peer)
{
	int rc = link->ops->connect(link, peer);

	if (rc < 0)
		printf("# %s\n", kolo_last_error());
	CHECK(rc == 0 || rc == KO_EAGAIN);
	return rc == 0;
}

static struct pair connect_pair(const struct ko_link_ops *ops, const struct ko_limits *of)
{
	struct ko_address of_tx, of_rx;
	struct pair p = { .apart = false };
	bool tx = false, rx = false;

	CHECK(ko_link_open(ops, KO_RECV, &here, of, &p.rx) == 0 &&
	      ko_link_open(ops, KO_SEND, &here, of, &p.tx) == 0);
	CHECK(p.rx->role == KO_RECV && p.tx->role == KO_SEND && p.rx->ops == ops);
	CHECK(ops->address(p.rx, &of_rx) == 0 && ops->address(p.tx, &of_tx) == 0);
	for (int64_t deadline = t_now_ms() + 10000; !(tx && rx); sched_yield()) {
		CHECK(t_now_ms() < deadline);
		tx = tx || connect_end(p.tx, &of_rx);
		rx = rx || connect_end(p.rx, &of_tx);
	}
	return p;
}

/* One end of a link; the other one is made by the process at the other end of `sock`. */
static struct ko_link *connect_across(const struct ko_link_ops *ops, enum ko_role role, int sock)
{
	struct ko_msg msg = { .type = KO_MSG_ADDRESS };
	int64_t deadline = t_now_ms() + 10000;
	struct ko_address mine, theirs;
	struct ko_link *link;

	CHECK(ko_link_open(ops, role, &here, &limits, &link) == 0 &&
	      ops->address(link, &mine) == 0);
	memcpy(msg.bytes, mine.bytes, sizeof(mine.bytes));
	CHECK(ko_msg_send(sock, &msg, mine.fd) == 0);
	while (recv(sock, &msg, 1, MSG_PEEK) < 0) /* blocks; ko_msg_recv doesn't */
		CHECK(errno == EINTR);
	CHECK(ko_msg_recv(sock, &msg, &theirs.fd) == KO_HEARD_MSG);
	memcpy(theirs.bytes, msg.bytes, sizeof(theirs.bytes));
	for (; !connect_end(link, &theirs); sched_yield())
		CHECK(t_now_ms() < deadline);
	if (theirs.fd >= 0)
		close(theirs.fd);
	return link;
}

/* Each process opens its own end: not every transport survives a fork. */
static void a_stream_between_processes_arrives_whole(const struct ko_link_ops *ops)
{
	struct pair p = { .apart = true };
	int socks[2], status, pid;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		p.tx = connect_across(ops, KO_SEND, socks[0]);
		send_stream(&p);
		CHECK(poll_link(try_drain, p.tx, NULL, NULL) == 0);
		ops->close(p.tx, false);
		_exit(0);
	}
	p.rx = connect_across(ops, KO_RECV, socks[1]);
	for (unsigned i = 0; i < STREAM; i++)
		get(&p, i % 257, (unsigned char)i, i);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	ops->close(p.rx, false);
	close(socks[0]);
	close(socks[1]);
}

/* Both directions between two ranks share a connection. Each case runs on each of them, while a
 * slot waits in the other one. */
static void paired_links_pass_every_case_in(const struct ko_link_ops *ops, size_t k, bool forth)
{
	struct pair there = connect_pair(ops, &limits), back = connect_pair(ops, &limits);
	struct pair *tried = forth ? &there : &back, *other = forth ? &back : &there;

	CHECK(ops->pair(there.tx, back.rx, true) == 0 && ops->pair(back.tx, there.rx, false) == 0);
	printf("# %s, paired, %s: %s\n", ops->name, forth ? "there" : "back", cases[k].name);
	fflush(stdout);
	put(other, 30, 0x30, 30);
	cases[k].run(tried);
	get(other, 30, 0x30, 30);
	ops->close(back.tx, false);
	ops->close(there.rx, false);
	ops->close(there.tx, false);
	ops->close(back.rx, false);
}

static void paired_links_pass_every_case(void **state)
{
	(void)state;
	for (size_t i = 0; ko_transports[i]; i++)
		for (size_t k = 0; ko_transports[i]->pair && k < 2 * ARRAY_LEN(cases); k++)
			paired_links_pass_every_case_in(ko_transports[i], k / 2, k % 2);
}

static void every_link_passes_every_case(void **state)
{
	(void)state;
	for (size_t i = 0; ko_transports[i]; i++) {
		bool here_too = is_here(ko_transports[i]);

		for (size_t k = 0; here_too && k < ARRAY_LEN(cases); k++) {
			struct pair p = connect_pair(ko_transports[i], &limits);

			printf("# %s: %s\n", ko_transports[i]->name, cases[k].name);
			fflush(stdout);
			cases[k].run(&p);
			ko_transports[i]->close(p.tx, false);
			ko_transports[i]->close(p.rx, false);
		}
	}
}

/* A small slot comes after as many bytes as fill all buffers on the way. The receiver takes slots
 * till the sender has drained. */
static void drain_behind_full_buffers(struct pair *p, const struct ko_limits *of, size_t small)
{
	int64_t deadline = t_now_ms() + 10000;
	uint32_t took = 0;
	struct ko_slot s;
	int rc;

	for (uint32_t k = 0; k + 1 < of->nslots; k++)
		put(p, of->slot_len, (unsigned char)k, k);
	put(p, small, 0x55, of->nslots - 1);
	p->apart = true; /* from here on get() must not call the sender's end */
	while ((rc = p->tx->ops->drain(p->tx)) == KO_EAGAIN && t_now_ms() < deadline)
		if (try_peek(p->rx, &s) == 0)
			CHECK(s.tag == took && p->rx->ops->release(p->rx) == 0 &&
			      ++took <= of->nslots);
	CHECK(rc == 0);
	for (; took + 1 < of->nslots; took++)
		get(p, of->slot_len, (unsigned char)took, took);
	if (took < of->nslots)
		get(p, small, 0x55, took);
	p->apart = false;
}

static void what_is_drained_needs_no_more_calls(void **state)
{
	static const struct ko_limits big = { .slot_len = 64 << 10, .nslots = 4 };

	(void)state;
	for (size_t i = 0; ko_transports[i]; i++) {
		struct pair p;

		if (!is_here(ko_transports[i]))
			continue;
		p = connect_pair(ko_transports[i], &big);
		for (size_t small = 1; small < 4096; small += 256)
			drain_behind_full_buffers(&p, &big, small);
		ko_transports[i]->close(p.tx, false);
		ko_transports[i]->close(p.rx, false);
	}
}

/* TCP segments that this process's connections have sent so far. */
static unsigned segments_sent(void)
{
	unsigned sent = 0;

	for (int fd = 0; fd < 256; fd++) {
		struct tcp_info info = { 0 };
		socklen_t len = sizeof(info);

		if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
			sent += info.tcpi_segs_out;
	}
	return sent;
}

/* Each slot is read before the next one comes, so a kernel left to itself acknowledges each one;
 * otherwise every second one. A pause may lead it back for up to 4 slots. */
static void few_short_slots_are_acknowledged_by_themselves(void **state)
{
	enum { SLOTS = 1000 };
	struct pair p = connect_pair(&ko_tcp_ops, &limits);
	unsigned before = segments_sent(), sent;

	(void)state;
	for (uint32_t k = 0; k < SLOTS; k++) {
		put(&p, 8, (unsigned char)k, k);
		get(&p, 8, (unsigned char)k, k);
	}
	sent = segments_sent() - before;
	printf("# %u segments for %d slots\n", sent, SLOTS);
	CHECK(sent >= SLOTS && sent < SLOTS * 7 / 4);
	ko_tcp_ops.close(p.tx, false);
	ko_tcp_ops.close(p.rx, false);
}

static void every_link_joins_processes(void **state)
{
	(void)state;
	for (size_t i = 0; ko_transports[i]; i++)
		if (is_here(ko_transports[i]))
			a_stream_between_processes_arrives_whole(ko_transports[i]);
}

static void a_fifo_in_one_memory_passes_every_case(void **state)
{
	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(cases); k++)
		run_one_memory(k);
}

static void closing_takes_null_and_half_built_ends(void **state)
{
	struct ko_link *link;

	(void)state;
	for (size_t i = 0; ko_transports[i]; i++) {
		bool here_too = is_here(ko_transports[i]);

		ko_transports[i]->close(NULL, false);
		for (int role = KO_SEND; here_too && role <= KO_RECV; role++) {
			CHECK(ko_link_open(ko_transports[i], (enum ko_role)role, &here, &limits,
					   &link) == 0);
			ko_transports[i]->close(link, false);
		}
	}
}

/* The node of the memory at `address`, which has been touched. */
static int node_of(void *address)
{
	int node = -1;

	CHECK(syscall(SYS_get_mempolicy, &node, NULL, 0UL, address, MPOL_F_NODE | MPOL_F_ADDR) ==
	      0);
	return node;
}

static void slots_lie_near_the_end_that_was_said(void **state)
{
	int first = -1, second = -1;
	unsigned node, other = 0;
	struct ko_slot s;
	struct pair p;
	cpu_set_t all;

	(void)state;
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && second < 0; cpu++) {
		if (!CPU_ISSET(cpu, &all) || !run_on(cpu) || getcpu(NULL, &node) < 0)
			continue;
		if (first < 0)
			first = cpu, other = node;
		else if (node != other)
			second = cpu;
	}
	if (second >= 0) {
		p = connect_pair(&ko_shm_ops, &limits);
		for (int near = KO_SEND; near <= KO_RECV; near++) {
			settle(&p, (enum ko_role)near, first, second);
			CHECK(acquire(&p, &s) == 0);
			CHECK(node_of(s.ptr) == (int)(near == KO_SEND ? other : node));
		}
		ko_shm_ops.close(p.tx, false);
		ko_shm_ops.close(p.rx, false);
	}
	sched_setaffinity(0, sizeof(all), &all);
	if (second < 0)
		skip(); /* one node */
}

static void an_address_of_something_else_is_refused(void **state)
{
	struct ko_limits other = { .slot_len = 4096, .nslots = 4 };
	struct ko_address address;
	struct ko_link *tx, *rx;

	(void)state;
	for (size_t i = 0; ko_transports[i]; i++) {
		if (!is_here(ko_transports[i]))
			continue;
		CHECK(ko_link_open(ko_transports[i], KO_RECV, &here, &other, &rx) == 0 &&
		      ko_link_open(ko_transports[i], KO_SEND, &here, &limits, &tx) == 0);
		CHECK(ko_transports[i]->address(rx, &address) == 0);
		CHECK(ko_transports[i]->connect(tx, &address) < 0);
		ko_transports[i]->close(rx, false);
		ko_transports[i]->close(tx, false);
	}
}

static void opening_a_link_leaves_signals_alone(void **state)
{
	struct sigaction before[NSIG], after;

	(void)state;
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &before[s]);
	for (size_t i = 0; ko_transports[i]; i++)
		is_here(ko_transports[i]);
	for (int s = 1; s < NSIG; s++)
		CHECK(sigaction(s, NULL, &after) < 0 || after.sa_handler == before[s].sa_handler);
}

static void memory_of_no_device_is_refused(void **state)
{
#ifdef KO_HAVE_VERBS
	static char page[4096];
	struct ko_link *link;
	int fd = memfd_create("no dmabuf", MFD_CLOEXEC);

	(void)state;
	if (!is_here(&ko_verbs_ops))
		skip();
	CHECK(fd >= 0 && ftruncate(fd, sizeof(page)) == 0);
	CHECK(ko_link_open(&ko_verbs_ops, KO_SEND, &here, &limits, &link) == 0);
	CHECK(ko_verbs_ops.rma->lend_device(link, page, sizeof(page), fd, 0) == KOLO_ESYS &&
	      !link->lent);
	CHECK(strstr(kolo_last_error(), "dmabuf"));
	ko_verbs_ops.close(link, false);
	close(fd);
#else
	(void)state;
	skip();
#endif
}

static void transports_are_chosen_by_name_and_place(void **state)
{
	struct ko_place local, elsewhere;
	const struct ko_link_ops *ops;

	(void)state;
	ko_place_get(&local);
	elsewhere = local;
	elsewhere.machine[0] ^= 1;
	CHECK(ko_transport_choose("", &local, &local, &ops) == 0 && ops == ko_transports[0]);
	CHECK(ko_transport_choose("shm", &local, &local, &ops) == 0 &&
	      strcmp(ops->name, "shm") == 0);
	CHECK(ko_transport_choose("shm", &local, &elsewhere, &ops) == KOLO_ENOTSUP);
	CHECK(ko_transport_choose("pigeon", &local, &local, &ops) == KOLO_ENOTSUP);
	CHECK(strstr(kolo_last_error(), "shm") != NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(opening_a_link_leaves_signals_alone), /* before others have opened some */
	cmocka_unit_test(every_link_passes_every_case),
	cmocka_unit_test(paired_links_pass_every_case),
	cmocka_unit_test(what_is_drained_needs_no_more_calls),
	cmocka_unit_test(few_short_slots_are_acknowledged_by_themselves),
	cmocka_unit_test(every_link_joins_processes),
	cmocka_unit_test(a_fifo_in_one_memory_passes_every_case),
	cmocka_unit_test(closing_takes_null_and_half_built_ends),
	cmocka_unit_test(slots_lie_near_the_end_that_was_said),
	cmocka_unit_test(an_address_of_something_else_is_refused),
	cmocka_unit_test(memory_of_no_device_is_refused),
	cmocka_unit_test(transports_are_chosen_by_name_and_place),
};

T_MAIN(tests)
