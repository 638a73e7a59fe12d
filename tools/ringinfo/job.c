/* Gathers what each rank knows of itself, and measures the edges between ranks. An edge is
 * measured in a communicator of its two ranks. */
#include "tools/ringinfo/ringinfo.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Facts ----------------------------------------------------------------------------------- */

/* The processors of `set` as "0-3,8", as many as there is room for. */
static void list_cpus(const cpu_set_t *set, char *out, size_t room)
{
	static const char more[] = ",...";
	char text[32];
	size_t at = 0, len;

	out[0] = 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int last = cpu;

		if (!CPU_ISSET(cpu, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		len = (size_t)snprintf(text, sizeof(text), last > cpu ? "%s%d-%d" : "%s%d",
				       at ? "," : "", cpu, last);
		if (at + len + sizeof(more) > room) {
			strcpy(out + at, more);
			return;
		}
		memcpy(out + at, text, len + 1);
		at += len;
		cpu = last;
	}
}

static void tell_own_facts(const struct job *j, struct rank_facts *out)
{
	cpu_set_t set;

	memset(out, 0, sizeof(*out));
	out->pid = (int)getpid();
	out->next = j->agreed.to_next.peer;
	out->processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
	gethostname(out->host, sizeof(out->host) - 1);
	snprintf(out->transport, sizeof(out->transport), "%s",
		 j->nranks > 1 ? j->agreed.to_next.transport : "none");
	snprintf(out->stores, sizeof(out->stores), "%s", j->agreed.to_next.stores);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		strcpy(out->cpus, "unknown");
	else if (CPU_COUNT(&set) == out->processors)
		strcpy(out->cpus, "all");
	else
		list_cpus(&set, out->cpus, sizeof(out->cpus));
}

int join_job(struct job *j)
{
	struct rank_facts mine;

	if (kolo_comm_create(NULL, &j->comm) < 0 || kolo_comm_stats(j->comm, &j->agreed) < 0) {
		fprintf(stderr, "ringinfo: joining the job: %s\n", kolo_last_error());
		return EXIT_FAILED;
	}
	j->order = kolo_comm_order(j->comm);
	j->rank = kolo_comm_rank(j->comm);
	j->nranks = kolo_comm_nranks(j->comm);
	j->ranks = info_allocate((size_t)j->nranks, sizeof(*j->ranks));
	tell_own_facts(j, &mine);
	if (kolo_all_gather(j->comm, &mine, j->ranks, sizeof(mine), KOLO_U8, NULL) < 0) {
		fprintf(stderr, "ringinfo: rank %d: gathering what the ranks report: %s\n", j->rank,
			kolo_last_error());
		return EXIT_FAILED;
	}
	return 0;
}

/* ---- One edge -------------------------------------------------------------------------------- */

enum {
	SENDER = 0, /* the ranks in a communicator of an edge */
	RECEIVER = 1,
	RATE_WORDS = 1 << 20, /* 8 MiB: beyond what slots and most caches hold, and still quick */
	RATE_ROUNDS = 6,
	ROUND_TRIPS = 200,
	LATENCY_ROUNDS = 5,
};

/* The word that goes at `i` in a round: another one in each place and round. */
static uint64_t word_of(uint64_t round, uint64_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15u + round;
}

/* The receiver's clock runs from a barrier to the last byte. */
static int measure_rate(struct kolo_comm *pair, uint64_t *words, struct edge *out)
{
	bool sends = kolo_comm_rank(pair) == SENDER;
	double begin, rate;
	int rc = 0;

	for (uint64_t round = 0; rc == 0 && round < RATE_ROUNDS; round++) {
		for (uint64_t i = 0; sends && i < RATE_WORDS; i++)
			words[i] = word_of(round, i);
		rc = kolo_barrier(pair, NULL);
		begin = tool_now_us();
		if (rc == 0)
			rc = kolo_broadcast(pair, words, words, RATE_WORDS, KOLO_U64, SENDER, NULL);
		rate = RATE_WORDS * sizeof(*words) / (tool_now_us() - begin) / 1e3;
		out->rate = rate > out->rate ? rate : out->rate;
		for (uint64_t i = 0; rc == 0 && !sends && i < RATE_WORDS; i++)
			out->wrong += words[i] != word_of(round, i);
	}
	return rc;
}

/* A word there, and the next one back. */
static int round_trip(struct kolo_comm *pair, uint64_t round, uint64_t *wrong)
{
	uint64_t there = word_of(round, 0), back = word_of(round, 1), ball = 0;
	int rank = kolo_comm_rank(pair);
	int rc = kolo_broadcast(pair, &there, &ball, 1, KOLO_U64, SENDER, NULL);

	*wrong += ball != there;
	if (rc == 0)
		rc = kolo_broadcast(pair, rank == RECEIVER ? &back : NULL, &ball, 1, KOLO_U64,
				    RECEIVER, NULL);
	*wrong += ball != back;
	return rc;
}

static int measure_latency(struct kolo_comm *pair, struct edge *out)
{
	double begin, latency;
	int rc = 0;

	for (uint64_t round = 0; rc == 0 && round < LATENCY_ROUNDS; round++) {
		rc = kolo_barrier(pair, NULL);
		begin = tool_now_us();
		for (uint64_t i = 0; rc == 0 && i < ROUND_TRIPS; i++)
			rc = round_trip(pair, round * ROUND_TRIPS + i, &out->wrong);
		latency = (tool_now_us() - begin) / ROUND_TRIPS / 2;
		out->latency = round && out->latency < latency ? out->latency : latency;
	}
	return rc;
}

/* On both ranks of the edge; the receiver's *out is the result. */
static int measure_edge(struct kolo_comm *pair, uint64_t *words, struct edge *out)
{
	int rc = measure_rate(pair, words, out);

	if (rc == 0)
		rc = measure_latency(pair, out);
	if (rc == 0)
		rc = kolo_all_reduce(pair, &out->wrong, &out->wrong, 1, KOLO_U64, KOLO_SUM, NULL);
	return rc;
}

/* ---- All edges ------------------------------------------------------------------------------- */

/* Measures the edge that begins at this rank. Edges of one phase share no rank: every second edge
 * of the ring. If their number is odd, the last edge has a phase of its own. */
static int phase_of(const struct job *j, int rank)
{
	int edge = 0;

	for (int r = 0; r != rank; r = j->ranks[r].next)
		edge++;
	return j->nranks % 2 && edge == j->nranks - 1 ? 2 : edge % 2;
}

/* The edges of one phase. *in becomes the edge that ends at this rank, if it is one of them. */
static int probe_phase(struct job *j, int phase, uint64_t *words, struct edge *in)
{
	int prev = j->agreed.from_prev.peer;
	bool sends = phase_of(j, j->rank) == phase, receives = phase_of(j, prev) == phase;
	struct edge as_sender = { 0 };
	int color = sends ? j->rank : receives ? prev : KOLO_NOCOLOR; /* the edge */
	struct kolo_comm *pair = NULL;
	int rc = kolo_comm_split(j->comm, color, sends ? SENDER : RECEIVER, &pair);

	if (rc == 0 && pair)
		rc = measure_edge(pair, words, sends ? &as_sender : in);
	kolo_comm_destroy(pair);
	return rc;
}

/* in: the edge that ends at this rank. */
static int gather_edges(struct job *j, const struct edge *in)
{
	struct edge *by_receiver = info_allocate((size_t)j->nranks, sizeof(*by_receiver));
	int rc = kolo_all_gather(j->comm, in, by_receiver, sizeof(*in), KOLO_U8, NULL);

	j->edges = info_allocate((size_t)j->nranks, sizeof(*j->edges));
	for (int r = 0; r < j->nranks; r++)
		j->edges[r] = by_receiver[j->ranks[r].next];
	free(by_receiver);
	return rc;
}

int probe_edges(struct job *j)
{
	uint64_t *words;
	struct edge in = { 0 };
	int rc = 0;

	j->probed = true;
	if (j->nranks == 1)
		return 0;
	words = info_allocate(RATE_WORDS, sizeof(*words));
	for (int phase = 0; rc == 0 && phase < 2 + j->nranks % 2; phase++)
		rc = probe_phase(j, phase, words, &in);
	free(words);
	return rc ? rc : gather_edges(j, &in);
}

uint64_t count_wrong(const struct job *j)
{
	uint64_t n = 0;

	for (int r = 0; j->edges && r < j->nranks; r++)
		n += j->edges[r].wrong;
	return n;
}
