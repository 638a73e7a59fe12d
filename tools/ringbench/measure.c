/* Measures one job: runs it once to check its result, then warms up, then times it. Before each
 * timed run there is a barrier. */
#include "tools/ringbench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What lies in a buffer here, there. */
static void *where_calls_find(const struct bench *b, const void *here)
{
	const char *p = here;

	if (!b->gpu)
		return (void *)here;
	return p >= b->src && p < b->src + b->options->max + 64 ? b->gpu_src + (p - b->src)
								: b->gpu_dst + (p - b->dst);
}

/* Copies both buffers to the memory that calls use, or back. */
static int copy_buffers(const struct bench *b, const struct job *j, bool there)
{
	size_t len = j->bytes;
	int rc;

	if (!b->gpu || len == 0)
		return 0;
	rc = there ? gpu_put(b->gpu, b->gpu_src, b->src, len) |
			     gpu_put(b->gpu, b->gpu_dst, b->dst, len)
		   : gpu_get(b->gpu, b->src, b->gpu_src, len) |
			     gpu_get(b->gpu, b->dst, b->gpu_dst, len);
	return rc < 0 ? KOLO_ESYS : 0;
}

/* In the queue if there is one. */
static int call(const struct bench *b, const struct job *j, bool in_place)
{
	struct kolo_queue *q = b->queue;
	const void *src = where_calls_find(b, job_src(b, j, in_place));
	void *dst = where_calls_find(b, job_dst(b, j));

	switch (j->coll) {
	case ALL_REDUCE: return kolo_all_reduce(b->comm, src, dst, j->n, j->type, j->op, q);
	case BROADCAST: return kolo_broadcast(b->comm, src, dst, j->n, j->type, j->root, q);
	case REDUCE: return kolo_reduce(b->comm, src, dst, j->n, j->type, j->op, j->root, q);
	case REDUCE_SCATTER: return kolo_reduce_scatter(b->comm, src, dst, j->n, j->type, j->op, q);
	case ALL_GATHER: return kolo_all_gather(b->comm, src, dst, j->n, j->type, q);
	case ALL_TO_ALL: return kolo_all_to_all(b->comm, src, dst, j->n, j->type, q);
	case GATHER: return kolo_gather(b->comm, src, dst, j->n, j->type, j->root, q);
	case SCATTER: return kolo_scatter(b->comm, src, dst, j->n, j->type, j->root, q);
	default: return kolo_barrier(b->comm, q);
	}
}

/* Operations that are called before the first one is waited for. */
static int in_flight(const struct bench *b)
{
	return b->queue ? b->options->in_flight : 1;
}

/* ---- Messages -------------------------------------------------------------------------------- */

enum { ROUND_TRIPS = 10 };

/* One message, to the partner or from it. */
static int pass(const struct bench *b, const struct job *j, bool send)
{
	struct kolo_queue *queue = b->gpu ? b->queue : NULL;

	return send ? kolo_send(b->comm, where_calls_find(b, b->src), j->n, j->type, partner(b),
				queue)
		    : kolo_recv(b->comm, where_calls_find(b, b->dst), j->n, j->type, partner(b),
				queue);
}

/* To and fro, so many times. */
static int ping_pong(const struct bench *b, const struct job *j, int round_trips)
{
	bool first = b->rank < partner(b);
	int rc = 0;

	for (int k = 0; rc == 0 && k < 2 * round_trips; k++)
		rc = pass(b, j, (k % 2 == 0) == first);
	return rc;
}

/* As many one way as are in flight, together, then an empty one the other way. */
static int window(const struct bench *b, const struct job *j)
{
	struct kolo_queue *queue = b->gpu ? b->queue : NULL;
	bool first = b->rank < partner(b);
	int rc = kolo_group_begin(), ended;

	for (int k = 0; rc == 0 && k < in_flight(b); k++)
		rc = pass(b, j, first);
	ended = kolo_group_end();
	if (rc < 0 || ended < 0)
		return rc < 0 ? rc : ended;
	return first ? kolo_recv(b->comm, NULL, 0, KOLO_U8, partner(b), queue)
		     : kolo_send(b->comm, NULL, 0, KOLO_U8, partner(b), queue);
}

/* Messages in what is timed at once, and of these what this rank sends. */
static int messages(const struct bench *b)
{
	return b->queue ? in_flight(b) : 2 * ROUND_TRIPS;
}

static int messages_sent(const struct bench *b)
{
	if (partner(b) < 0)
		return 0;
	return !b->queue ? ROUND_TRIPS : b->rank < partner(b) ? in_flight(b) : 0;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* So many operations, from the first call until all are done; a round trip to check messages, else
 * what is timed at once. */
static int call_and_wait(const struct bench *b, const struct job *j, bool in_place, int n)
{
	int rc = 0, waited;

	if (j->coll == SEND_RECV && partner(b) < 0)
		return 0;
	if (j->coll == SEND_RECV)
		rc = n == 0     ? ping_pong(b, j, 1)
		     : b->queue ? window(b, j)
				: ping_pong(b, j, ROUND_TRIPS);
	for (int k = 0; rc == 0 && k < n && j->coll != SEND_RECV; k++)
		rc = call(b, j, in_place);
	waited = b->queue ? kolo_queue_wait(b->queue) : 0;
	return rc < 0 ? rc : waited;
}

/* Wrong elements on all ranks together. */
static int check(struct bench *b, const struct job *j, bool in_place, uint64_t *wrong)
{
	int64_t mine;
	int rc;

	*wrong = 0;
	if (!b->options->check)
		return 0;
	fill_buffers(b, j, in_place);
	rc = copy_buffers(b, j, true);
	if (rc == 0)
		rc = call_and_wait(b, j, in_place, j->coll == SEND_RECV ? 0 : 1);
	if (rc == 0)
		rc = copy_buffers(b, j, false);
	if (rc < 0)
		return rc;
	mine = count_wrong(b, j);
	if (mine < 0)
		return KOLO_ENOMEM;
	*wrong = (uint64_t)mine;
	return kolo_all_reduce(b->comm, wrong, wrong, 1, KOLO_U64, KOLO_SUM, NULL);
}

/* The time by the GPU's clock, from just before the operations to just after them. */
static int time_stream(const struct bench *b, const struct job *j, bool in_place, double *us)
{
	int rc = gpu_begin(b->gpu);

	if (rc == 0 && j->coll == SEND_RECV && partner(b) >= 0)
		rc = window(b, j);
	for (int k = 0; rc == 0 && k < in_flight(b) && j->coll != SEND_RECV; k++)
		rc = call(b, j, in_place);
	if (rc == 0 && gpu_end(b->gpu, us) < 0)
		return KOLO_ESYS;
	*us /= in_flight(b);
	return rc < 0 ? rc : kolo_queue_wait(b->queue);
}

/* Waits for the next whole number of TICK_US on the host's clock, and returns it. Ranks that come
 * from a barrier find the same one, unless it lies between their times. */
static double wait_for_tick(void)
{
	enum { TICK_US = 4 };
	double tick = (double)((uint64_t)tool_now_us() / TICK_US + 1) * TICK_US;

	while (tool_now_us() < tick)
		;
	return tick;
}

/* Microseconds of one operation. */
static int time_once(struct bench *b, const struct job *j, bool in_place, double *us)
{
	double before = tool_now_us();
	int rc = kolo_barrier(b->comm, NULL);
	double begin = b->options->with_barrier   ? before
		       : b->options->common_start ? wait_for_tick()
						  : tool_now_us();

	if (rc == 0 && b->gpu)
		return time_stream(b, j, in_place, us);
	if (rc == 0)
		rc = call_and_wait(b, j, in_place, in_flight(b));
	*us = (tool_now_us() - begin) / (j->coll == SEND_RECV ? messages(b) : in_flight(b));
	return rc;
}

/* As many iterations as asked for, or as take about 0.1 s on the slowest rank. A root may be done
 * at once. */
static int choose_iterations(struct bench *b, const struct job *j, bool in_place, int *out)
{
	double us, n;
	int rc;

	*out = b->options->iterations;
	if (*out)
		return 0;
	rc = time_once(b, j, in_place, &us);
	if (rc < 0 || (rc = kolo_all_reduce(b->comm, &us, &us, 1, KOLO_F64, KOLO_MAX, NULL)) < 0)
		return rc;
	n = 100e3 / (us > 0.1 ? us : 0.1) / in_flight(b);
	if (j->coll == SEND_RECV && !b->queue)
		n /= messages(b);
	*out = n < 5 ? 5 : n > MAX_ITERATIONS ? MAX_ITERATIONS : (int)n;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static const char *const way_names[NWAYS] = {
	[RING] = "ring",         [BOARD] = "board",       [SLICES] = "slices",
	[DIRECT] = "direct",     [EXCHANGE] = "exchange", [DOUBLING] = "doubling",
	[PAIRWISE] = "pairwise", [PARTIALS] = "partials", [CENTER] = "center",
	[SHARES] = "shares",     [GRID] = "grid",
};

static struct counts count(const struct bench *b)
{
	struct kolo_stats s;
	struct counts now;

	kolo_comm_stats(b->comm, &s);
	now.sent = s.sent_bytes;
	now.model = s.model_sent_bytes;
	for (int k = 0; k < NWAYS; k++)
		now.ops[k] = kolo_algorithm_ops(b->comm, way_names[k]);
	return now;
}

/* What has been counted since the operations that are timed began, without the barriers between
 * them. */
static struct counts count_since(const struct bench *b, const struct counts *before,
				 const struct result *r)
{
	const char *barrier = algorithm_in_table(b, BARRIER, 0);
	struct counts now = count(b);
	int by = BOARD;

	now.sent -= before->sent;
	now.model -= before->model;
	for (int k = 0; k < NWAYS; k++) {
		now.ops[k] -= before->ops[k];
		by = strcmp(barrier, way_names[k]) == 0 ? k : by;
	}
	now.ops[by] -= (uint64_t)r->iterations;
	return now;
}

static const char *algorithm_of_most(const struct bench *b, const struct job *j,
				     const struct counts *s)
{
	int most = RING;

	if (b->nranks == 1)
		return "none";
	if (b->gpu && j->coll == SEND_RECV)
		return "direct";
	if (collective_is_of_pairs(j->coll) && !b->gpu && !s->ops[SHARES])
		return s->ops[BOARD] > 0 ? "board"
					 : algorithm_in_table(b, SEND_RECV, pair_bytes(b, j));
	for (int k = 1; k < NWAYS; k++)
		if (s->ops[k] > s->ops[most])
			most = k;
	return way_names[most];
}

/* Gathers the bytes of all ranks for one operation, and whether every rank sent what the model
 * says. */
static int compare_traffic(struct bench *b, const struct job *j, bool in_place,
			   const struct counts *s, struct result *r)
{
	uint64_t n = (uint64_t)r->iterations * (uint64_t)in_flight(b), mine, all, model;
	int32_t same;
	int rc;

	if (j->coll == SEND_RECV) {
		n = (uint64_t)r->iterations * (uint64_t)messages_sent(b);
		all = n * pair_bytes(b, j);
	} else {
		all = collective_is_of_pairs(j->coll) && !s->ops[SHARES]
			      ? n * pair_bytes(b, j)
			      : model_bytes(b, j, in_place, s);
	}
	mine = n ? s->sent / n : 0;
	model = n ? all / n : 0;
	same = s->sent == all;
	if ((rc = kolo_all_gather(b->comm, &mine, r->sent, 1, KOLO_U64, NULL)) < 0 ||
	    (rc = kolo_all_gather(b->comm, &model, r->model, 1, KOLO_U64, NULL)) < 0 ||
	    (rc = kolo_all_reduce(b->comm, &same, &same, 1, KOLO_I32, KOLO_MIN, NULL)) < 0)
		return rc;
	r->traffic_ok = same;
	return 0;
}

int measure(struct bench *b, const struct job *j, bool in_place, struct result *r)
{
	double unused;
	struct counts before, counted;
	int rc = check(b, j, in_place, &r->wrong);

	/* Zeros stay zeros, however often they are added: no denormals, no infinities to time. */
	memset(b->src, 0, j->bytes);
	memset(b->dst, 0, j->bytes);
	if (rc == 0 && b->gpu &&
	    (gpu_zero(b->gpu, b->gpu_src, j->bytes) < 0 ||
	     gpu_zero(b->gpu, b->gpu_dst, j->bytes) < 0))
		return KOLO_ESYS;
	for (int i = 0; rc == 0 && i < b->options->warmups; i++)
		rc = time_once(b, j, in_place, &unused);
	if (rc == 0)
		rc = choose_iterations(b, j, in_place, &r->iterations);
	if (rc < 0)
		return rc;
	before = count(b);
	for (int i = 0; rc == 0 && i < r->iterations; i++)
		rc = time_once(b, j, in_place, &b->times[i]);
	counted = count_since(b, &before, r);
	r->ran = algorithm_of_most(b, j, &counted);
	if (rc < 0 || (rc = kolo_all_reduce(b->comm, b->times, b->times, (size_t)r->iterations,
					    KOLO_F64, KOLO_MAX, NULL)) < 0)
		return rc;
	qsort(b->times, (size_t)r->iterations, sizeof(*b->times), ascending);
	r->min_us = b->times[0];
	r->median_us = b->times[r->iterations / 2];
	r->p99_us = b->times[(r->iterations * 99 + 99) / 100 -
			     1]; /* the least that 99 % don't exceed */
	return compare_traffic(b, j, in_place, &counted, r);
}
