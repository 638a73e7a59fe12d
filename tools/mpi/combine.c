/* Reductions and the barrier (km_combine). */
#include "tools/mpi/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reductions ------------------------------------------------------------------------------ */

/* What a reduction needs. */
struct sums {
	enum kolo_type type;
	enum kolo_op op; /* not set yet, if MPI combines the elements */
	size_t size;     /* bytes of an element, as Kolo moves it */
	const void *src;
	void *dst;
	bool in_place;
	bool own;          /* MPI combines the elements: */
	struct km_type is; /* one of MPI's type */
};

/* An operation of the program, on any type; all ranks must have made it alike. */
static bool find_own(const struct km_comm *c, const struct km_args *a, struct sums *s)
{
	int commutes;

	if (km_real.Op_commutative(a->op, &commutes) != MPI_SUCCESS || !commutes ||
	    !(c->kolo ? km_type_of(a->tdst, &s->is) : km_measure(a->tdst, &s->is)))
		return false;
	s->own = true;
	s->size = s->is.size;
	s->type = kolo_type_bytes(s->size);
	return kolo_type_size(s->type);
}

/* Does Kolo do it? */
static bool find(const struct km_comm *c, const struct km_args *a, struct sums *s)
{
	struct km_rule rule = km_rule(a->tdst, a->op);

	if (rule.way == KM_OF_PROGRAM)
		return find_own(c, a, s);
	s->type = rule.type;
	s->op = rule.op;
	s->size = rule.size;
	s->own = rule.way == KM_WITH_GAPS;
	if (s->own)
		s->is = (struct km_type){ .size = s->size,
					  .extent = (MPI_Aint)s->size,
					  .dense = true };
	return rule.way != KM_LEFT;
}

/* In place MPI's input is all of dst and the result its beginning; Kolo's would be the own block.
 */
static int scatter_sums(const struct km_comm *c, const struct km_args *a, const struct sums *s,
			const size_t *counts, size_t own)
{
	bool blocks = a->call == KM_REDUCE_SCATTER_BLOCK;
	char *room = s->in_place && own ? malloc(own * s->size) : NULL;
	void *dst = s->in_place ? room : s->dst;
	int rc;

	if (s->in_place && own && !room)
		return KOLO_ENOMEM;
	rc = blocks ? kolo_reduce_scatter(c->kolo, s->src, dst, own, s->type, s->op, NULL)
		    : kolo_reduce_scatter_v(c->kolo, s->src, dst, counts, s->type, s->op, NULL);
	if (rc == 0 && room)
		memcpy(s->dst, room, own * s->size);
	free(room);
	return rc;
}

static int scatter_uneven(const struct km_comm *c, const struct km_args *a, const struct sums *s)
{
	size_t *counts = malloc((size_t)c->size * sizeof(*counts));
	int rc;

	if (!counts)
		return KOLO_ENOMEM;
	for (int r = 0; r < c->size; r++)
		counts[r] = km_number(a->dst_counts, r);
	rc = scatter_sums(c, a, s, counts, counts[c->rank]);
	free(counts);
	return rc;
}

static int reduce(const struct km_comm *c, const struct km_args *a, const struct sums *s)
{
	size_t n = (size_t)a->ndst;

	switch (a->call) {
	case KM_ALLREDUCE: return kolo_all_reduce(c->kolo, s->src, s->dst, n, s->type, s->op, NULL);
	case KM_REDUCE:
		return kolo_reduce(c->kolo, s->src, c->rank == a->root ? s->dst : NULL, n, s->type,
				   s->op, a->root, NULL);
	case KM_REDUCE_SCATTER_BLOCK: return scatter_sums(c, a, s, NULL, n);
	default: return scatter_uneven(c, a, s);
	}
}

/* Elements that a reduction reads and writes on this rank. */
struct elements {
	size_t src, dst;
};

static struct elements elements_of(const struct km_comm *c, const struct km_args *a)
{
	struct elements n = { (size_t)a->ndst, (size_t)a->ndst };

	if (a->call == KM_REDUCE && c->rank != a->root)
		n.dst = 0;
	if (a->call == KM_REDUCE_SCATTER_BLOCK)
		n.src *= (size_t)c->size;
	if (a->call == KM_REDUCE_SCATTER) {
		n.src = 0;
		n.dst = km_number(a->dst_counts, c->rank);
		for (int r = 0; r < c->size; r++)
			n.src += km_number(a->dst_counts, r);
	}
	return n;
}

/* Elements that do not lie side by side are packed, and unpacked after. */
static int reduce_packed(struct km_comm *c, const struct km_args *a, struct sums *s)
{
	struct elements n = elements_of(c, a);
	char *room = malloc((n.src + n.dst) * s->size + 1);
	int rc = room ? 0 : KOLO_ENOMEM;

	if (rc == 0 && km_pack(s->src, n.src, a->tdst, s->is, room, c) != MPI_SUCCESS)
		rc = KOLO_EINVAL;
	s->src = room;
	s->dst = room + n.src * s->size;
	s->in_place = false;
	if (rc == 0)
		rc = reduce(c, a, s);
	if (rc == 0 && km_unpack(s->dst, n.dst, a->tdst, s->is, a->dst, c) != MPI_SUCCESS)
		rc = KOLO_EINVAL;
	free(room);
	return rc;
}

/* KOLO_ENOTSUP: MPI is to do it, on all ranks. */
static int reduce_own(struct km_comm *c, const struct km_args *a, struct sums *s)
{
	int rc = km_own_begin(c, a, s->is, &s->op);

	if (rc == KOLO_ENOTSUP)
		return rc;
	if (rc < 0) /* the others must not wait */
		kolo_comm_abort(c->kolo);
	else
		rc = s->is.dense ? reduce(c, a, s) : reduce_packed(c, a, s);
	return rc;
}

static bool is_valid(const struct km_comm *c, const struct km_args *a)
{
	if (a->call == KM_REDUCE_SCATTER) {
		for (int r = 0; r < c->size; r++)
			if ((int64_t)km_number(a->dst_counts, r) < 0)
				return false;
		return true;
	}
	return a->ndst >= 0 && (a->call != KM_REDUCE || (a->root >= 0 && a->root < c->size));
}

/* For the report, and to weigh the call: bytes that this rank has, of whatever type. */
static size_t bytes_of(const struct km_comm *c, const struct km_args *a, const struct sums *s,
		       bool could)
{
	struct km_type type = { .size = 0 };

	if (could)
		type.size = s->size;
	else if (!km_timed || !km_measure(a->tdst, &type))
		return 0;
	return elements_of(c, a).src * type.size;
}

bool km_all_reduce_now(struct km_comm *c, const void *src, void *dst, MPI_Count n,
		       MPI_Datatype type, MPI_Op op, int *rc)
{
	struct km_rule rule;

	if (!c->kolo || km_timed || n < 0)
		return false;
	rule = km_rule(type, op);
	if (rule.way != KM_TAKEN)
		return false;
	*rc = km_result(c, KM_ALLREDUCE,
			kolo_all_reduce(c->kolo, src == MPI_IN_PLACE ? dst : src, dst, (size_t)n,
					rule.type, rule.op, NULL));
	return true;
}

bool km_barrier_now(struct km_comm *c, int *rc)
{
	if (!c->kolo || km_timed)
		return false;
	*rc = km_result(c, KM_BARRIER, kolo_barrier(c->kolo, NULL));
	return true;
}

bool km_combine(struct km_comm *c, const struct km_args *a, struct km_done *d)
{
	struct sums s;
	int code;

	if (a->call == KM_BARRIER) {
		d->could = true;
		if (c->kolo)
			d->rc = km_result(c, a->call, kolo_barrier(c->kolo, NULL));
		return c->kolo;
	}
	if (!is_valid(c, a))
		return false;
	d->could = find(c, a, &s);
	if (!c->kolo || km_timed)
		d->bytes = bytes_of(c, a, &s, d->could);
	if (!c->kolo || !d->could)
		return false;
	s.in_place = a->src == MPI_IN_PLACE;
	s.src = s.in_place ? a->dst : a->src;
	s.dst = a->dst;
	code = s.own ? reduce_own(c, a, &s) : reduce(c, a, &s);
	if (code == KOLO_ENOTSUP)
		return false;
	d->rc = km_result(c, a->call, code);
	return true;
}
