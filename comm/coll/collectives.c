/* A collective from beginning to end (ko_collective). With one rank the result is computed at
 * once. */
#include "comm/coll/collectives.h"

#include "comm/base/clock.h"
#include "comm/coll/algorithms.h"
#include "comm/core/learn.h"
#include "comm/core/ops.h"
#include "comm/memory/board.h"
#include "comm/memory/window.h"
#include "comm/rings/moves.h"

#include <stdint.h>

/* ---- Beginning and end ----------------------------------------------------------------------- */

static int end(struct ko_run *run, int rc)
{
	struct ko_counters *counters = &run->comm->counters;

	if (run->stores == KO_STREAMING) /* other threads of the caller may read dst next */
		ko_stream_fence();
	if (rc == 0) {
		counters->ops[run->algorithm]++;
		counters->model.sent += run->model.sent * run->size;
		counters->model.received += run->model.received * run->size;
		/* What new memory costs says nothing of later operations. */
		if ((run->reading || run->writing) &&
		    !(run->algorithm == KO_BOARD && run->comm->board->fresh))
			ko_learn(run);
	}
	return ko_run_end(run, rc);
}

/* Does this rank's own input lie where the same part of the result goes? */
static bool in_place(const struct ko_call *call, const struct ko_run *run)
{
	bool has_blocks = call->coll == KO_REDUCE_SCATTER || call->coll == KO_ALL_GATHER;
	size_t before =
		has_blocks ? ko_plan_block(&run->plan, call->comm->rank).first * run->size : 0;

	return (const char *)call->src + (call->coll == KO_REDUCE_SCATTER ? before : 0) ==
	       (const char *)call->dst + (call->coll == KO_ALL_GATHER ? before : 0);
}

/* Bytes that go to dst. Those that are read just before lie in the caches, and do not count. */
static size_t written_bytes(const struct ko_call *call, const struct ko_run *run)
{
	const struct ko_plan *p = &run->plan;
	int rank = call->comm->rank;

	switch (call->coll) {
	case KO_REDUCE: return rank == call->root && !run->in_place ? p->count * run->size : 0;
	case KO_BROADCAST: return rank == call->root && run->in_place ? 0 : p->count * run->size;
	case KO_ALL_GATHER: return p->count * run->size;
	case KO_REDUCE_SCATTER: return run->in_place ? 0 : ko_plan_block(p, rank).n * run->size;
	default: return run->in_place ? 0 : p->count * run->size;
	}
}

/* The first algorithm that has the size in its range and takes the operation. */
static enum ko_algorithm first_for(const struct ko_run *run, size_t bytes)
{
	const struct ko_algorithms *t = &run->comm->agreed.algorithms;

	for (int k = KO_RING + 1; k < KO_NALGORITHMS; k++)
		if (!ko_algorithm_table[k]->agree &&
		    ko_sizes_have(t->any[k][run->desc.coll], bytes) &&
		    ko_algorithm_table[k]->takes(run))
			return (enum ko_algorithm)k;
	return ko_algorithm_rest((enum ko_coll)run->desc.coll, run->comm->sums);
}

/* Chooses the algorithm that is tried before, if one has the size in its ranges. */
static void choose_tried(struct ko_run *run, size_t bytes)
{
	const struct kolo_comm *c = run->comm;
	const struct ko_algorithms *t = &c->agreed.algorithms;

	for (int k = 0; k < KO_NALGORITHMS && !run->offers; k++) {
		if (!ko_algorithm_table[k]->agree || !ko_algorithm_table[k]->takes(run))
			continue;
		run->tried = (enum ko_algorithm)k;
		run->may_read = ko_sizes_have(t->any[k][run->desc.coll], bytes);
		run->offers =
			run->may_read ||
			(c->windows->count && ko_sizes_have(t->windows[k][run->desc.coll], bytes));
	}
}

static void choose_algorithm(struct ko_run *run, const struct ko_call *call)
{
	const struct kolo_comm *c = call->comm;
	size_t bytes = run->plan.count * run->size;
	bool by_slots;

	if (ko_coll_has_messages(call->coll)) {
		run->algorithm = bytes < ko_parts_end(&c->agreed.algorithms, call->coll)
					 ? KO_BOARD
					 : KO_SHARES;
		return;
	}
	run->algorithm = first_for(run, bytes);
	choose_tried(run, bytes);
	run->in_place = in_place(call, run);
	by_slots = run->algorithm == KO_RING || run->algorithm == KO_GRID;
	run->written = by_slots ? written_bytes(call, run) : 0;
	ko_learn_find(run);
}

/* Bytes of the payload that this rank will write into its cell, as far as they are worth fetching.
 * An operation that takes another algorithm needs the first line at most, for an offer. */
static size_t cell_bytes(const struct ko_call *call, size_t size)
{
	const struct kolo_comm *c = call->comm;
	size_t mine = call->n * size, whole = mine;

	if (call->coll == KO_REDUCE_SCATTER || call->coll == KO_ALL_GATHER)
		whole = mine * (size_t)c->nranks;
	if (whole >= c->agreed.algorithms.any[KO_BOARD][call->coll].end ||
	    (ko_coll_has_root((int)call->coll) && !ko_expects_one_way(mine)))
		return 0;
	return call->coll == KO_REDUCE_SCATTER ? whole : mine;
}

/* Bytes of that payload in an all_to_all, gather or scatter. */
static size_t parts_bytes(const struct ko_call *call, size_t size)
{
	const struct kolo_comm *c = call->comm;
	size_t part = call->n * size, others = (size_t)c->nranks - 1;
	size_t bytes = call->coll == KO_GATHER ? part : others * part;
	bool fits = part * (size_t)c->nranks < ko_parts_end(&c->agreed.algorithms, call->coll);

	return !ko_expects_one_way(bytes) || !fits ? 0 : bytes;
}

/* Does this rank write its cell, in an operation over the board? */
static bool gives(const struct ko_call *call)
{
	bool root = call->comm->rank == call->root;

	switch (call->coll) {
	case KO_BROADCAST:
	case KO_SCATTER: return root;
	case KO_GATHER: return !root;
	default: return true;
	}
}

/* What is fetched for writing while the operation is prepared. */
static struct ko_expected expected(const struct ko_call *call)
{
	const struct kolo_comm *c = call->comm;
	size_t size = kolo_type_size(call->type);

	if (c->nranks == 1 || c->spread || call->uneven || !gives(call))
		return (struct ko_expected){ false, 0 };
	return (struct ko_expected){ true, ko_coll_has_messages(call->coll)
						   ? parts_bytes(call, size)
						   : cell_bytes(call, size) };
}

/* A hash of the counts. All ranks must have the same one. It is posted in place of a root. */
static int32_t hash_counts(const struct ko_call *call)
{
	uint32_t hash = 2166136261; /* FNV-1a, a count at a time */

	for (int r = 0; r < call->comm->nranks; r++)
		hash = (hash ^ (uint32_t)(call->counts[r] ^ call->counts[r] >> 32)) * 16777619;
	return (int32_t)hash;
}

/* How a descriptor names the op. */
static uint8_t op_of(const struct ko_call *call, const struct ko_reducer *red)
{
	if ((int)call->op < KO_OP_FIRST)
		return (uint8_t)call->op;
	return red->how == KO_MADE ? KO_DESC_MADE : KO_DESC_PREMUL;
}

void ko_collective_plan(struct ko_run *run, const struct ko_call *call,
			const struct ko_reducer *red, size_t slot_len)
{
	struct kolo_comm *c = call->comm;
	size_t size = kolo_type_size(call->type);

	*run = (struct ko_run){ .comm = c,
				.size = size,
				.red = red ? *red : ko_op_reducer(c, call->op, call->type),
				.moves = &ko_moves_now };
	run->copy = run->red.how == KO_MADE ? run->red.first : ko_copy(call->type);
	run->desc = (struct ko_desc){
		.n = call->n,
		.root = call->root,
		.coll = (uint8_t)call->coll,
		.type = (uint8_t)call->type,
		.op = op_of(call, &run->red),
		.how = call->uneven ? KO_UNEVEN : 0,
	};
	if (call->uneven) {
		ko_call_firsts(call, call->counts);
		run->plan = ko_plan_make_uneven(c->firsts, size, c->nranks, slot_len);
		run->desc.n = run->plan.count;
		run->desc.root = hash_counts(call);
	} else if (c->nranks == 1) { /* no rounds, and the fewest divisions */
		run->plan.count = call->n;
	} else {
		ko_plan_make(&run->plan, call->coll, call->n, size, c->nranks, slot_len);
	}
	if (ko_type_is_bytes(call->type)) {
		run->desc.type = KO_DESC_BYTES;
		run->desc.n |= (uint64_t)size << KO_DESC_SIZE;
	}
}

/* The reducer of the last call of this collective, if it had the same type and op; else NULL. */
static const struct ko_reducer *known_reducer(const struct ko_call *call)
{
	const struct ko_known *known = &call->comm->known[call->coll];

	return known->call.comm && known->call.type == call->type && known->call.op == call->op
		       ? &known->red
		       : NULL;
}

static void prepare(struct ko_run *run, const struct ko_call *call, const struct ko_reducer *red)
{
	const struct ko_agreed *agreed = &call->comm->agreed;

	ko_collective_plan(run, call, red ? red : known_reducer(call), agreed->limits.slot_len);
	if (call->comm->nranks == 1)
		return;
	if (agreed->paced)
		ko_plan_in_packets(&run->plan, run->size, agreed->packet);
	choose_algorithm(run, call);
	run->model = ko_algorithm_table[run->algorithm]->model(run);
}

/* Keeps what the next call may need again. The run only of a call that has come twice: most of
 * those that differ come once. */
static void keep_known(struct ko_known *known, const struct ko_call *call, const struct ko_run *run,
		       struct ko_expected cell)
{
	known->prepared = ko_call_is_known(call);
	if (known->prepared) {
		known->run = *run;
		known->cell = cell;
		return;
	}
	if (!known->call.comm || known->call.type != call->type || known->call.op != call->op)
		known->red = run->red;
	known->call = *call;
}

/* A call whose run is not prepared. `red` NULL: the reducer is made here, and the arguments are not
 * checked yet. */
static int begin_new(struct ko_run *run, const struct ko_call *call, const struct ko_reducer *red)
{
	struct kolo_comm *c = call->comm;
	struct ko_expected cell = expected(call);
	int rc;

	if (cell.used)
		ko_board_expect(c->board, c->rank, cell.bytes);
	rc = red ? 0 : ko_call_check(call);
	if (rc < 0)
		return rc;
	prepare(run, call, red);
	cell.used = cell.used && (run->algorithm == KO_BOARD || run->offers);
	if (!red && !call->uneven) /* counts may change unseen */
		keep_known(&c->known[call->coll], call, run, cell);
	return 0;
}

/* A known call's run is copied. gcc copies a larger one by a loop or a call, which takes longer. */
_Static_assert(sizeof(struct ko_run) <= 256, "a run is copied inline");

static int begin(struct ko_run *run, const struct ko_call *call, const struct ko_reducer *red)
{
	struct kolo_comm *c = call->comm;
	const struct ko_known *known = &c->known[call->coll];
	int rc = ko_run_claim(c, call->coll);

	if (rc < 0)
		return rc;
	if (!red && known->prepared && ko_call_is_known(call)) {
		if (known->cell.used)
			ko_board_expect(c->board, c->rank, known->cell.bytes);
		*run = known->run;
	} else {
		rc = begin_new(run, call, red);
		if (rc < 0) {
			ko_run_release(c);
			return rc;
		}
	}
	if (run->may_read)
		run->began_ns = ko_now_ns();
	rc = ko_run_begin(run);
	return rc < 0 ? end(run, rc) : 0;
}

/* The result with one rank. */
static void compute_alone(struct ko_run *run, const void *src, void *dst)
{
	size_t n = run->plan.count;

	if (n == 0)
		return;
	if (ko_coll_reduces(run->desc.coll)) {
		run->red.first(dst, src, n, &run->red.s);
		run->red.finish(dst, dst, n, &run->red.s);
	} else {
		run->copy(dst, src, n, &run->red.s);
	}
}

static int perform(struct ko_run *run, const void *src, void *dst)
{
	int rc = run->offers ? ko_algorithm_table[run->tried]->agree(run, src, dst) : 0;

	if (rc < 0)
		return rc;
	if (rc > 0) {
		run->algorithm = run->tried;
		run->model = ko_algorithm_table[run->tried]->model(run);
	}
	return ko_algorithm_table[run->algorithm]->run(run, src, dst);
}

int ko_collective(const struct ko_call *call, const struct ko_reducer *red)
{
	struct ko_run run;
	int rc = begin(&run, call, red);

	if (rc < 0)
		return rc;
	if (call->comm->nranks == 1)
		compute_alone(&run, call->src, call->dst);
	else
		rc = perform(&run, call->src, call->dst);
	return end(&run, rc);
}
