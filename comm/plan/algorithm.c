/* Which algorithm runs at which size: ko_algorithm_decide compares the times that the rows of the
 * table estimate. */
#include "comm/plan/algorithm.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* What is decided: one collective, for one table. */
struct question {
	const struct ko_algorithm_ops *const *table;
	const struct ko_algorithm_ops *forced; /* the row that the user named; NULL: none */
	const struct ko_costs *costs;
	int nranks;
	enum ko_sums sums;
	enum ko_coll coll;
	enum ko_algorithm rest; /* ko_algorithm_rest */
};

static double lesser(double a, double b)
{
	return a < b ? a : b;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* The bytes from which on `a` is cheaper than `b`. */
static double crossing(struct ko_estimate a, struct ko_estimate b)
{
	if (a.slope >= b.slope)
		return a.fixed < b.fixed ? 0 : HUGE_VAL;
	return a.fixed <= b.fixed ? 0 : (a.fixed - b.fixed) / (b.slope - a.slope);
}

/* The same, if it stays cheaper. */
static double crossing_for_good(struct ko_estimate a, struct ko_estimate b)
{
	return a.slope > b.slope ? HUGE_VAL : crossing(a, b);
}

static uint64_t whole_bytes(double bytes)
{
	return bytes < 1e18 ? (uint64_t)bytes + (bytes > (double)(uint64_t)bytes) : UINT64_MAX;
}

static uint64_t end_of(const struct question *q, const struct ko_algorithm_ops *row, bool windows)
{
	return row->end(q->coll, q->costs, q->nranks, windows);
}

static struct ko_estimate cost_of(const struct question *q, const struct ko_algorithm_ops *row,
				  bool windows)
{
	return row->cost(q->coll, q->costs, q->nranks, windows);
}

/* Is the row a choice? With one rank there is none. It must add in the right order. A named
 * algorithm that needs shared memory may be unable to do a barrier. Another one that needs shared
 * memory does it then. */
static bool competes(const struct question *q, const struct ko_algorithm_ops *row)
{
	if (q->nranks == 1 || (ko_coll_reduces(q->coll) && !(row->sums >> q->sums & 1)))
		return false;
	if (!q->forced)
		return row->reach == KO_ANYWHERE || (row->reach == KO_NETWORK) == q->costs->network;
	if (q->coll == KO_BARRIER && q->forced->reach == KO_SHARED_MEMORY)
		return row->reach == KO_SHARED_MEMORY;
	return row == q->forced;
}

/* The bytes from which on row `k`, which has no `agree`, is no longer best among those without
 * `agree`. A barrier has no bytes, and takes the first row that can do it. */
static double find_end(const struct question *q, int k)
{
	const struct ko_algorithm_ops *row = q->table[k];
	uint64_t most = competes(q, row) ? end_of(q, row, false) : 0;
	double end = (double)most;

	if (k == (int)q->rest)
		return HUGE_VAL;
	for (int b = 0; b < KO_NALGORITHMS && most && q->coll != KO_BARRIER; b++) {
		const struct ko_algorithm_ops *other = q->table[b];

		if ((b == (int)q->rest || b > k) && !other->agree && competes(q, other) &&
		    end_of(q, other, false))
			end = lesser(end,
				     crossing(cost_of(q, other, false), cost_of(q, row, false)));
	}
	return end;
}

/* The bytes from which on the row, which has an `agree`, is better than whichever of the others
 * would run. */
static double better_from(const struct question *q, const struct ko_algorithm_ops *row,
			  bool windows)
{
	struct ko_costs costs = *q->costs;
	struct question of_few = *q;
	double begin = 0;

	of_few.costs = &costs;
	if (!windows && costs.board_few_bytes_per_ns > 0)
		costs.board_bytes_per_ns = costs.board_few_bytes_per_ns;
	for (int k = 0; k < KO_NALGORITHMS; k++) {
		const struct ko_algorithm_ops *other = q->table[k];

		if (!other->agree && competes(q, other))
			begin = larger(begin,
				       lesser(crossing_for_good(cost_of(q, row, windows),
								cost_of(&of_few, other, windows)),
					      find_end(q, k)));
	}
	return begin;
}

/* The bytes from which on the row is tried first. In plain memory that is from LARGE bytes on at
 * the latest, whatever was measured: later operations show what is better (learn.h). */
static double find_begin(const struct question *q, const struct ko_algorithm_ops *row, bool windows)
{
	enum { LARGE = 128 << 10, LARGE_SHARED = 1 << 20 };
	double begin;

	if (!competes(q, row) || !end_of(q, row, windows))
		return HUGE_VAL;
	if (q->forced)
		return 1;
	begin = better_from(q, row, windows);
	if (windows)
		return begin;
	return lesser(begin, q->costs->share > 1 ? LARGE_SHARED : LARGE);
}

/* Decides about one collective. */
static void decide_ranges(const struct question *q, struct ko_algorithms *out)
{
	for (int k = 0; k < KO_NALGORITHMS; k++) {
		struct ko_sizes *any = &out->any[k][q->coll], *windows = &out->windows[k][q->coll];

		*any = *windows = (struct ko_sizes){ UINT64_MAX, UINT64_MAX };
		if (q->table[k]->agree) {
			any->begin = whole_bytes(find_begin(q, q->table[k], false));
			windows->begin = whole_bytes(find_begin(q, q->table[k], true));
		} else {
			*any = (struct ko_sizes){ 0, whole_bytes(find_end(q, k)) };
		}
	}
}

/* Decides about messages between two ranks. In several slots half of the writing goes on while what
 * was written before is read. A rendezvous costs two turns: one to begin it, and one to end it. */
static void decide_messages(const struct ko_algorithm_ops *forced, const struct ko_costs *costs,
			    struct ko_algorithms *out)
{
	double turn = costs->turn_ns, byte = 1 / costs->bytes_per_ns;
	struct ko_estimate slot = { turn, 2 * byte }, slots = { turn, 1.5 * byte };
	struct ko_estimate window = { 2 * turn, byte / 2 };
	struct ko_estimate read = { 2 * turn + costs->read_ns, 1 / costs->read_bytes_per_ns };
	bool can_read = costs->read_bytes_per_ns > 0, must = forced && forced->agree;
	/* Longer messages fill their lane and wait for the receiver anyway. */
	uint64_t large = costs->lane_bytes + 1;
	double begin = crossing(read, slot);

	out->rndv_begin = out->rndv_window_begin = UINT64_MAX;
	if ((forced || costs->network) && !must)
		return;
	out->rndv_window_begin =
		must ? 1 : whole_bytes(lesser(crossing(window, slots), (double)large));
	if (begin > (double)costs->lane_slot_bytes)
		begin = crossing(read, slots);
	if (can_read && costs->share > 1 && !must) /* what fits into a lane need not wait */
		out->rndv_begin = large;
	else if (can_read)
		out->rndv_begin = must ? 1 : whole_bytes(lesser(begin, (double)large));
}

/* Decides to which size an all_to_all goes through leaders. If it consists of messages a rank
 * sends and receives one for each other rank; each after the first takes about half a hop. */
static uint64_t find_led_end(const struct question *q)
{
	const struct ko_algorithm_ops *row = q->table[KO_SHARES];
	uint64_t most = row->end(KO_ALL_TO_ALL, q->costs, q->nranks, false);
	double n = q->nranks, others = n - 1;
	struct ko_estimate messages = { q->costs->hop_ns * (1 + (others - 1) / 2),
					2 * others / n / q->costs->bytes_per_ns };

	if (q->forced)
		return q->forced == row ? most : 0;
	if (!most || !q->costs->network)
		return 0;
	return whole_bytes(
		lesser((double)most,
		       crossing(messages, row->cost(KO_ALL_TO_ALL, q->costs, q->nranks, false))));
}

/* Decides to which size an all_to_all goes over the board: like an all-gather; but a turn has to
 * have room for a whole vector. Messages that are read where they lie are copied once. */
static uint64_t find_parts_end(struct question *q, struct ko_sizes gathers)
{
	const struct ko_algorithm_ops *direct = q->table[KO_DIRECT];
	double end = (double)ko_min_size(gathers.end, q->costs->board_room + 1);

	q->coll = KO_ALL_GATHER;
	q->rest = ko_algorithm_rest(q->coll, q->sums);
	if (q->costs->share <= 1 && competes(q, direct) && end_of(q, direct, false))
		end = lesser(end, better_from(q, direct, false));
	return whole_bytes(end);
}

/* Decides to which size a gather or scatter goes over the board at most. One side only copies while
 * the other waits, as in a broadcast of what moves. Where ranks share processors as in an
 * all-gather (why: D175, D212 in comm/DECISIONS.md). */
static uint64_t find_rooted_end(const struct question *q, const struct ko_algorithms *out)
{
	const struct ko_sizes *reads = out->any[KO_DIRECT];
	double n = q->nranks;

	if (q->costs->share > 1)
		return reads[KO_ALL_GATHER].begin;
	return whole_bytes((double)reads[KO_BROADCAST].begin * n / (n - 1));
}

/* Times of what can't be done are computed too, and may divide by 0. The program may want to be
 * stopped by that, or told at its end: it is nothing of its own. */
void ko_algorithm_decide(const struct ko_algorithm_ops *const table[KO_NALGORITHMS],
			 const char *name, const struct ko_costs *costs, int nranks,
			 enum ko_sums sums, struct ko_algorithms *out)
{
	struct question q = { .table = table, .costs = costs, .nranks = nranks, .sums = sums };
	fenv_t the_programs;

	feholdexcept(&the_programs);
	for (int k = 0; k < KO_NALGORITHMS; k++)
		if (strcmp(name, table[k]->name) == 0)
			q.forced = table[k];
	out->must_read = q.forced && q.forced->agree;
	decide_messages(q.forced, costs, out);
	for (int coll = 0; coll < KO_NCOLLS; coll++) {
		q.coll = (enum ko_coll)coll;
		q.rest = ko_algorithm_rest(q.coll, sums);
		decide_ranges(&q, out);
	}
	out->parts_end = find_parts_end(&q, out->any[KO_BOARD][KO_ALL_GATHER]);
	out->rooted_end = ko_min_size(out->parts_end, find_rooted_end(&q, out));
	out->led_end = find_led_end(&q);
	fesetenv(&the_programs);
}
