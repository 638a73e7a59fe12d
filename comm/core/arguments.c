/* Checks the arguments of a call before anything is done (ko_call_check). */
#include "comm/core/call.h"
#include "comm/core/ops.h"
#include "comm/sys/queue.h"

/* What an operation reads and writes in this rank's buffers. */
struct extent {
	size_t src, dst; /* elements */
	/* The operation is in place if element src_at of src and element dst_at of dst are the
	 * same. SIZE_MAX: it can't be done in place */
	size_t src_at, dst_at;
};

static const char *name_of(const struct ko_call *call)
{
	return ko_coll_name((int)call->coll);
}

/* Elements of the parts of all ranks before `rank`, which may be nranks. counts NULL: n each. */
static size_t elements_before(const struct ko_call *call, const size_t *counts, int rank)
{
	size_t sum = 0;

	if (!counts)
		return (size_t)rank * call->n;
	for (int r = 0; r < rank; r++)
		sum += counts[r];
	return sum;
}

static struct extent extent_of(const struct ko_call *call)
{
	int rank = call->comm->rank, nranks = call->comm->nranks;
	bool is_root = rank == call->root;
	/* If only root has counts, the other ranks have n and need not know more. */
	bool whole = !call->uneven || call->counts;
	size_t all = whole ? elements_before(call, call->counts, nranks) : 0;
	size_t before = whole ? elements_before(call, call->counts, rank) : 0;
	size_t own = call->coll == KO_GATHER || call->coll == KO_SCATTER || !call->counts
			     ? call->n
			     : call->counts[rank];

	switch (call->coll) {
	case KO_BROADCAST: return (struct extent){ is_root ? own : 0, own, 0, 0 };
	case KO_REDUCE: return (struct extent){ own, is_root ? own : 0, 0, 0 };
	case KO_ALL_REDUCE: return (struct extent){ own, own, 0, 0 };
	case KO_REDUCE_SCATTER: return (struct extent){ all, own, before, 0 };
	case KO_ALL_GATHER: return (struct extent){ own, all, 0, before };
	case KO_GATHER: return (struct extent){ own, is_root ? all : 0, 0, before };
	case KO_SCATTER: return (struct extent){ is_root ? all : 0, own, before, 0 };
	case KO_ALL_TO_ALL:
		return (struct extent){ all, elements_before(call, call->received, nranks),
					SIZE_MAX, 0 };
	case KO_SEND_TO: return (struct extent){ own, 0, 0, 0 };
	case KO_RECV_FROM: return (struct extent){ 0, own, 0, 0 };
	default: return (struct extent){ 0, 0, 0, 0 };
	}
}

/* Are the buffers that this rank needs there, and do they overlap only as "in place" allows? */
static int check_buffers(const struct ko_call *call, const char *suffix)
{
	struct extent e = extent_of(call);
	size_t size = kolo_type_size(call->type);
	const char *src = call->src, *dst = call->dst;
	bool no_src = e.src && !src, no_dst = e.dst && !dst;

	if (no_src || no_dst)
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s%s: %s is NULL", call->comm->rank,
			       name_of(call), suffix, no_src ? "src" : "dst");
	if (!e.src || !e.dst || src >= dst + e.dst * size || dst >= src + e.src * size ||
	    (e.src_at != SIZE_MAX && src + e.src_at * size == dst + e.dst_at * size))
		return 0;
	return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s%s: src and dst overlap%s", call->comm->rank,
		       name_of(call), suffix,
		       e.src_at == SIZE_MAX ? "" : ", and not as the call allows in place");
}

/* Do all parts fit into half an address space? */
static bool fits(const struct ko_call *call, const size_t *counts)
{
	size_t nranks = (size_t)call->comm->nranks, sum = 0, bytes;

	for (size_t r = 0; counts && r < nranks; r++)
		if (__builtin_add_overflow(sum, counts[r], &sum))
			return false;
	if (!counts && __builtin_mul_overflow(call->n, nranks, &sum))
		return false;
	return !__builtin_mul_overflow(sum, kolo_type_size(call->type), &bytes) &&
	       bytes <= SIZE_MAX / 2;
}

static int check_root(const struct ko_call *call, const char *suffix)
{
	bool pair = ko_coll_is_message(call->coll);

	if ((!ko_coll_has_root((int)call->coll) && !pair) ||
	    (call->root >= 0 && call->root < call->comm->nranks))
		return 0;
	return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s%s: %s %d: want 0 to %d", call->comm->rank,
		       name_of(call), suffix, pair ? "peer" : "root", call->root,
		       call->comm->nranks - 1);
}

/* Are the counts there that this rank needs, and do they agree with each other? */
static int check_counts(const struct ko_call *call)
{
	bool needs = call->uneven &&
		     (!ko_coll_has_root((int)call->coll) || call->comm->rank == call->root);

	if (needs && (!call->counts || (call->coll == KO_ALL_TO_ALL && !call->received)))
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s_v: counts are NULL", call->comm->rank,
			       name_of(call));
	if (needs && call->coll == KO_ALL_TO_ALL &&
	    call->counts[call->comm->rank] != call->received[call->comm->rank])
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_all_to_all_v: it sends %zu elements to itself, but receives %zu",
			call->comm->rank, call->counts[call->comm->rank],
			call->received[call->comm->rank]);
	if (needs && ko_coll_has_root((int)call->coll) && call->counts[call->root] != call->n)
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s_v: n is %zu, but counts[%d], which is root's own, is %zu",
			call->comm->rank, name_of(call), call->n, call->root,
			call->counts[call->root]);
	return 0;
}

/* Does the type have the op? */
static int check_op(const struct ko_call *call, const char *suffix)
{
	const char *op = kolo_op_name(call->op), *type = kolo_type_name(call->type);
	int rank = call->comm->rank;

	if (!ko_coll_reduces((int)call->coll)) {
		if (!ko_type_is_bytes(call->type))
			return 0;
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s%s: a type of kolo_type_bytes is for reductions: want "
			"KOLO_U8, and %zu times as many elements",
			rank, name_of(call), suffix, kolo_type_size(call->type));
	}
	if (!op && !ko_op_is_made(call->comm, call->op, call->type))
		return ko_fail(KOLO_EINVAL,
			       "rank %d: kolo_%s%s: %d is no op for %s on this communicator", rank,
			       name_of(call), suffix, call->op, type);
	if (!op && call->queue && call->queue->stream && ko_op_calls(call->comm, call->op))
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s%s on a stream: an op of kolo_op_create runs on the "
			"host; call it without a stream",
			rank, name_of(call), suffix);
	if (op && !ko_type_has_op(call->type, call->op))
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s%s: %s has no op %s", rank,
			       name_of(call), suffix, type, op);
	return 0;
}

int ko_call_check(const struct ko_call *call)
{
	const char *suffix = call->uneven ? "_v" : "";
	int rc;

	if (!call->comm)
		return ko_fail(KOLO_EINVAL, "kolo_%s%s: comm is NULL", name_of(call), suffix);
	if (!kolo_type_size(call->type))
		return ko_fail(KOLO_EINVAL, "rank %d: kolo_%s%s: %d is no type", call->comm->rank,
			       name_of(call), suffix, (int)call->type);
	if ((rc = check_op(call, suffix)) < 0)
		return rc;
	if ((rc = check_root(call, suffix)) < 0 || (rc = check_counts(call)) < 0)
		return rc;
	if (!fits(call, call->counts) || (call->received && !fits(call, call->received)))
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_%s%s: %s elements are more than an address space holds",
			call->comm->rank, name_of(call), suffix, call->uneven ? "so many" : "n");
	return check_buffers(call, suffix);
}
