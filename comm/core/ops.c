/* Makes ops at run time (kolo_op_create), and finds what an op does (ko_op_reducer). */
#include "comm/core/ops.h"

#include "comm/base/error.h"
#include "comm/core/call.h"

#include <stdlib.h>

/* type -1: the place is free. */
struct ko_op {
	int type;
	struct ko_reducer red;
	struct ko_made made; /* if red calls a function of the program */
};

static const struct ko_op *find(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type)
{
	long k = (long)op - KO_OP_FIRST;

	return k >= 0 && k < c->nops && c->ops[k].type == (int)type ? &c->ops[k] : NULL;
}

bool ko_op_is_made(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type)
{
	return find(c, op, type);
}

bool ko_op_calls(const struct kolo_comm *c, enum kolo_op op)
{
	return c->ops[(int)op - KO_OP_FIRST].red.how == KO_MADE;
}

struct ko_reducer ko_op_reducer(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type)
{
	const struct ko_op *made = find(c, op, type);
	struct ko_reducer r = made ? made->red : ko_reducer_make(type, op, c->nranks);

	if (r.how == KO_MADE)
		r.s.made = &made->made;
	return c->sums == KO_SUMS_TREE ? ko_reducer_of_sums(r, type) : r;
}

/* Finds room for an op. */
static int add(struct kolo_comm *c, struct ko_op op, enum kolo_op *out)
{
	struct ko_op *more;
	int k = 0;

	while (k < c->nops && c->ops[k].type >= 0)
		k++;
	if (k == c->nops) {
		more = realloc(c->ops, ((size_t)k + 1) * sizeof(*more));
		if (!more)
			return ko_fail(KOLO_ENOMEM, "rank %d: no memory for an op", c->rank);
		c->ops = more;
		c->nops = k + 1;
	}
	c->ops[k] = op;
	ko_call_forget(c); /* what is known points to ops that may have moved */
	*out = (enum kolo_op)(KO_OP_FIRST + k);
	return 0;
}

int kolo_op_create_premul_sum(struct kolo_comm *comm, const void *scalar, enum kolo_type type,
			      enum kolo_op *out)
{
	if (!comm || !scalar || !out || !ko_type_has_premul(type))
		return ko_fail(
			KOLO_EINVAL,
			"kolo_op_create_premul_sum: type %d: want an integer or floating type; comm, "
			"scalar and out must not be NULL",
			(int)type);
	return add(comm,
		   (struct ko_op){ .type = (int)type, .red = ko_reducer_premul(type, scalar) },
		   out);
}

/* Does the communicator add in an order that the op can stand? */
static int check_order(const struct kolo_comm *c, enum kolo_type type, int commutative)
{
	size_t size = kolo_type_size(type);

	if (!commutative && c->nranks > 1 && c->sums != KO_SUMS_TREE)
		return ko_fail(
			KOLO_ENOTSUP,
			"rank %d: kolo_op_create: the op is not commutative, and the order of "
			"additions '%s' does not keep ranks in order: want attr->order \"tree\"",
			c->rank, ko_sums_name(c->sums));
	if (c->sums == KO_SUMS_TREE && KO_SCRATCH / ((size_t)c->nranks + 1) < size)
		return ko_fail(KOLO_ENOTSUP,
			       "rank %d: kolo_op_create: elements of %zu bytes are too large for "
			       "%d ranks in the order 'tree': want at most %zu",
			       c->rank, size, c->nranks, KO_SCRATCH / ((size_t)c->nranks + 1));
	return 0;
}

int kolo_op_create(struct kolo_comm *comm, enum kolo_type type, kolo_combine_fn *combine, void *arg,
		   int commutative, enum kolo_op *out)
{
	const struct ko_made made = { combine, arg, kolo_type_size(type) };
	int rc;

	if (!comm || !combine || !out || !made.size)
		return ko_fail(
			KOLO_EINVAL,
			"kolo_op_create: type %d: want one of enum kolo_type or kolo_type_bytes of 1 to "
			"%d; comm, combine and out must not be NULL",
			(int)type, KOLO_MOST_BYTES);
	rc = check_order(comm, type, commutative);
	if (rc < 0)
		return rc;
	return add(
		comm,
		(struct ko_op){ .type = (int)type, .red = ko_reducer_of_made(NULL), .made = made },
		out);
}

int kolo_op_destroy(struct kolo_comm *comm, enum kolo_op op)
{
	long k = (long)op - KO_OP_FIRST;

	if (!comm || k < 0 || k >= comm->nops || comm->ops[k].type < 0)
		return ko_fail(KOLO_EINVAL,
			       "kolo_op_destroy: %d is no op made by kolo_op_create or "
			       "kolo_op_create_premul_sum on this communicator",
			       (int)op);
	comm->ops[k].type = -1;
	ko_call_forget(comm);
	return 0;
}
