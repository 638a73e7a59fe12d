/* What a link does beside what the machine does: two threads on two cores, a sender that copies its
 * data into slots and a receiver that copies them out. Rate of each slot size with either kind of
 * stores, as a fraction of one memcpy of the same data; time of a hop of 8 bytes beside that of a
 * bare line that goes back and forth. Medians of interleaved rounds. */
#include "perf/perf.h"

#include "comm/base/error.h"
#include "comm/reduce/reduce.h"
#include "comm/transport/shm.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DATA = 8 << 20, HOPS = 2000, NSLOTS = 4 };

struct edge {
	struct ko_link *send, *recv;
};

/* One side of a measurement. */
struct side {
	struct edge out, in; /* my sender, my receiver */
	char *data;          /* DATA bytes */
	size_t slot_len;
	bool first;
	_Atomic int *line; /* shared by both */
	pthread_barrier_t *start;
	void (*run)(struct side *);
};

static int cpus[2];

static void pin(int which)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpus[which], &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void send_slot(struct side *s, const char *from, size_t len)
{
	struct ko_slot slot;

	while (s->out.send->ops->acquire(s->out.send, &slot) == KO_EAGAIN)
		;
	if (s->out.send->writer.stores == KO_STREAMING)
		ko_stream_copy(slot.ptr, from, len);
	else
		memcpy(slot.ptr, from, len);
	slot.len = len;
	s->out.send->ops->commit(s->out.send, &slot);
}

static void receive_slot(struct side *s, char *to)
{
	struct ko_slot slot;

	while (s->in.recv->ops->peek(s->in.recv, NULL, 0, &slot) == KO_EAGAIN)
		;
	memcpy(to, slot.ptr, slot.len);
	s->in.recv->ops->release(s->in.recv);
}

static void stream(struct side *s)
{
	for (size_t at = 0; at < DATA; at += s->slot_len)
		s->first ? send_slot(s, s->data + at, s->slot_len) : receive_slot(s, s->data + at);
}

static void ping_pong(struct side *s)
{
	for (int k = 0; k < HOPS; k++) {
		if (s->first)
			send_slot(s, s->data, 8);
		receive_slot(s, s->data);
		if (!s->first)
			send_slot(s, s->data, 8);
	}
}

static void bare_line(struct side *s)
{
	for (int k = 0; k < HOPS; k++) {
		while (atomic_load_explicit(s->line, memory_order_acquire) != 2 * k + !s->first)
			;
		atomic_store_explicit(s->line, 2 * k + 1 + !s->first, memory_order_release);
	}
}

static void *run_side(void *arg)
{
	struct side *s = arg;

	pin(!s->first);
	pthread_barrier_wait(s->start);
	s->run(s);
	pthread_barrier_wait(s->start);
	return NULL;
}

/* Nanoseconds until both have done it. */
static double time_both(struct side sides[2], void (*run)(struct side *))
{
	pthread_barrier_t start;
	_Atomic int line = 0;
	pthread_t second;
	int64_t begin;

	pthread_barrier_init(&start, NULL, 2);
	for (int k = 0; k < 2; k++) {
		sides[k].run = run;
		sides[k].start = &start;
		sides[k].line = &line;
	}
	if (pthread_create(&second, NULL, run_side, &sides[1]))
		exit(1);
	pin(0);
	pthread_barrier_wait(&start);
	begin = ko_now_ns();
	run(&sides[0]);
	pthread_barrier_wait(&start);
	begin = ko_now_ns() - begin;
	pthread_join(second, NULL);
	pthread_barrier_destroy(&start);
	return (double)begin;
}

static struct edge open_edge(size_t slot_len)
{
	static const struct ko_place here;
	struct ko_limits limits = { .slot_len = slot_len, .nslots = NSLOTS };
	struct ko_address address;
	struct edge e;

	if (ko_link_open(&ko_shm_ops, KO_RECV, &here, &limits, &e.recv) < 0 ||
	    ko_link_open(&ko_shm_ops, KO_SEND, &here, &limits, &e.send) < 0 ||
	    e.recv->ops->address(e.recv, &address) < 0 ||
	    e.send->ops->connect(e.send, &address) < 0) {
		fprintf(stderr, "%s\n", kolo_last_error());
		exit(1);
	}
	return e;
}

static void close_edge(struct edge e)
{
	e.send->ops->close(e.send, false);
	e.recv->ops->close(e.recv, false);
}

struct plain_copy {
	char *to, *from;
};

static void copy_all(void *arg)
{
	struct plain_copy *c = arg;

	memcpy(c->to, c->from, DATA);
}

int main(void)
{
	char *data[2] = { calloc(1, DATA), calloc(1, DATA) };
	struct plain_copy plain = { data[1], data[0] };
	double hops[PERF_ROUNDS], lines[PERF_ROUNDS], copies[PERF_ROUNDS], rates[2][PERF_ROUNDS];

	if (kolo_cores(cpus, 2) < 2 || !data[0] || !data[1]) {
		fprintf(stderr, "links: wants two cores, and %d MiB\n", 2 * DATA >> 20);
		return 1;
	}
	memset(data[0], 1, DATA);
	memset(data[1], 1, DATA);
	printf("# shm link, %d slots, one way, %d MiB, two cores: GB/s, and as a fraction of one core's memcpy of the same\n"
	       "# slot bytes %10s %10s %10s %10s %10s\n",
	       NSLOTS, DATA >> 20, "ordinary", "streaming", "memcpy", "fraction", "fraction");
	for (size_t len = 4096; len <= 1 << 20; len *= 4) {
		struct edge e = open_edge(len);
		struct side sides[2] = {
			{ .out = e, .data = data[0], .slot_len = len, .first = true },
			{ .in = e, .data = data[1], .slot_len = len }
		};
		double copy, rate[2];

		for (int k = 0; k < PERF_ROUNDS; k++) {
			copies[k] = DATA / perf_time(copy_all, &plain);
			for (int stores = 0; stores < 2; stores++) {
				ko_writer_set(&sides[0].out.send->writer, (enum ko_stores)stores,
					      0);
				rates[stores][k] = DATA / time_both(sides, stream);
			}
		}
		copy = perf_median(copies, PERF_ROUNDS);
		for (int stores = 0; stores < 2; stores++)
			rate[stores] = perf_median(rates[stores], PERF_ROUNDS);
		printf("  %10zu %10.2f %10.2f %10.2f %10.2f %10.2f\n", len, rate[0], rate[1], copy,
		       rate[0] / copy, rate[1] / copy);
		close_edge(e);
	}
	{
		struct edge there = open_edge(4096), back = open_edge(4096);
		struct side sides[2] = {
			{ .out = there, .in = back, .data = data[0], .first = true },
			{ .out = back, .in = there, .data = data[1] }
		};

		for (int k = 0; k < PERF_ROUNDS; k++) {
			lines[k] = time_both(sides, bare_line) / HOPS / 2;
			hops[k] = time_both(sides, ping_pong) / HOPS / 2;
		}
		printf("# a hop of 8 bytes %.0f ns, of a bare line %.0f ns\n",
		       perf_median(hops, PERF_ROUNDS), perf_median(lines, PERF_ROUNDS));
		close_edge(there);
		close_edge(back);
	}
	free(data[0]);
	free(data[1]);
	return 0;
}
