/* Collectives that move data (km_move). Data is bytes, side by side: what does not lie so is packed
 * before and unpacked after, on each rank as it needs. */
#include "tools/mpi/inside.h"

#include <stdlib.h>
#include <string.h>

/* A buffer of the program's with parts for ranks, as Kolo sees it. */
struct side {
	void *buffer; /* the program's */
	struct km_type type;
	MPI_Datatype mpi;
	size_t n;                         /* elements of each part, without counts */
	struct km_numbers counts, displs; /* in elements; of NULL: none */
	int nparts;
	size_t *bytes; /* of each part, if it has counts */
	size_t all;    /* bytes of all parts */
	char *at;      /* where Kolo reads or writes: buffer, or room for packed elements */
	bool packed;
};

static size_t elements(const struct side *s, int part)
{
	return s->counts.of ? km_number(s->counts, part) : s->n;
}

/* Where a part begins in the program's buffer. */
static char *place(const struct side *s, int part)
{
	MPI_Aint from =
		s->displs.of ? (MPI_Aint)(s->displs.large ? ((const MPI_Aint *)s->displs.of)[part]
							  : ((const int *)s->displs.of)[part])
			     : (MPI_Aint)(s->n * (size_t)part);

	return (char *)s->buffer + from * s->type.extent;
}

/* Do the parts follow each other without gaps? Where they do, *first is the beginning. */
static bool in_order(const struct side *s, char **first)
{
	char *at = NULL;

	for (int k = 0; k < s->nparts; k++) {
		if (elements(s, k) == 0)
			continue;
		if (!at)
			*first = at = place(s, k);
		if (place(s, k) != at)
			return false;
		at += elements(s, k) * s->type.size;
	}
	return true;
}

/* Finds where Kolo reads or writes. Packs what is read. */
static int open_side(struct side *s, bool reads, struct km_comm *c)
{
	char *to;
	int rc = MPI_SUCCESS;

	s->at = s->buffer;
	if (s->counts.of) {
		s->bytes = malloc((size_t)s->nparts * sizeof(*s->bytes));
		if (!s->bytes)
			return MPI_ERR_NO_MEM;
	}
	for (int k = 0; s->bytes && k < s->nparts; k++)
		s->bytes[k] = elements(s, k) * s->type.size;
	if (s->all == 0 || (s->type.dense && in_order(s, &s->at)))
		return MPI_SUCCESS;
	s->at = malloc(s->all);
	if (!s->at)
		return MPI_ERR_NO_MEM;
	s->packed = true;
	to = s->at;
	for (int k = 0; reads && k < s->nparts && rc == MPI_SUCCESS; k++) {
		rc = km_pack(place(s, k), elements(s, k), s->mpi, s->type, to, c);
		to += elements(s, k) * s->type.size;
	}
	return rc;
}

/* Unpacks what was written, and gives back what opening took. */
static int close_side(struct side *s, bool wrote, struct km_comm *c)
{
	const char *from = s->at;
	int rc = MPI_SUCCESS;

	for (int k = 0; s->packed && wrote && k < s->nparts && rc == MPI_SUCCESS; k++) {
		rc = km_unpack(from, elements(s, k), s->mpi, s->type, place(s, k), c);
		from += elements(s, k) * s->type.size;
	}
	if (s->packed)
		free(s->at);
	free(s->bytes);
	return rc;
}

/* Where a rank's own part lies for Kolo. */
static char *own_part(const struct side *s, int rank)
{
	size_t before = 0;

	for (int k = 0; k < rank; k++)
		before += elements(s, k) * s->type.size;
	return s->at + before;
}

/* ---- What each call has ---------------------------------------------------------------------- */

static bool has_root(enum km_call call)
{
	return call == KM_BCAST || call == KM_GATHER || call == KM_GATHERV || call == KM_SCATTER ||
	       call == KM_SCATTERV;
}

/* Has each rank's buffer a part for each rank? Of gathers and scatters root's alone has. */
static int parts(const struct km_comm *c, enum km_call call, bool src)
{
	switch (call) {
	case KM_BCAST: return 1;
	case KM_ALLTOALL:
	case KM_ALLTOALLV: return c->size;
	case KM_SCATTER:
	case KM_SCATTERV: return src ? c->size : 1;
	default: return src ? 1 : c->size;
	}
}

/* Which buffers this rank has: of a gather root alone receives, of a scatter it alone sends. */
static bool has_side(const struct km_comm *c, const struct km_args *a, bool src)
{
	bool root = c->rank == a->root;

	switch (a->call) {
	case KM_BCAST: return src == root;
	case KM_GATHER:
	case KM_GATHERV: return src ? a->src != MPI_IN_PLACE : root;
	case KM_SCATTER:
	case KM_SCATTERV: return src ? root : a->dst != MPI_IN_PLACE;
	default: return !src || a->src != MPI_IN_PLACE;
	}
}

static bool fill_side(struct side *s, const struct km_comm *c, const struct km_args *a, bool src)
{
	*s = (struct side){ .buffer = src ? (void *)(uintptr_t)a->src : a->dst,
			    .mpi = src ? a->tsrc : a->tdst,
			    .counts = src ? a->src_counts : a->dst_counts,
			    .displs = src ? a->src_displs : a->dst_displs,
			    .nparts = parts(c, a->call, src) };
	if (!has_side(c, a, src)) { /* what the call has for it may be anything */
		s->nparts = 0;
		s->counts.of = s->displs.of = NULL;
		return true;
	}
	if ((src ? a->nsrc : a->ndst) < 0 ||
	    !(c->kolo ? km_type_of(s->mpi, &s->type) : km_measure(s->mpi, &s->type)))
		return false;
	s->n = (size_t)(src ? a->nsrc : a->ndst);
	for (int k = 0; s->counts.of && k < s->nparts; k++) {
		if ((int64_t)elements(s, k) < 0)
			return false;
		s->all += elements(s, k) * s->type.size;
	}
	if (!s->counts.of)
		s->all = (size_t)s->nparts * s->n * s->type.size;
	return true;
}

/* ---- On Kolo --------------------------------------------------------------------------------- */

static int on_kolo(const struct km_comm *c, const struct km_args *a, struct side *src,
		   struct side *dst)
{
	size_t part = dst->nparts ? dst->n * dst->type.size : 0, own = src->n * src->type.size;

	switch (a->call) {
	case KM_BCAST:
		return kolo_broadcast(c->kolo, src->nparts ? src->at : dst->at,
				      src->nparts ? src->at : dst->at,
				      src->nparts ? src->all : dst->all, KOLO_U8, a->root, NULL);
	case KM_ALLGATHER:
		return kolo_all_gather(c->kolo, src->nparts ? src->at : own_part(dst, c->rank),
				       dst->at, part, KOLO_U8, NULL);
	case KM_ALLGATHERV:
		return kolo_all_gather_v(c->kolo, src->nparts ? src->at : own_part(dst, c->rank),
					 dst->at, dst->bytes, KOLO_U8, NULL);
	case KM_GATHER:
		return kolo_gather(c->kolo, src->nparts ? src->at : own_part(dst, c->rank), dst->at,
				   src->nparts ? own : part, KOLO_U8, a->root, NULL);
	case KM_GATHERV:
		return kolo_gather_v(c->kolo, src->nparts ? src->at : own_part(dst, c->rank),
				     src->nparts ? src->all : dst->bytes[c->rank], dst->at,
				     dst->bytes, KOLO_U8, a->root, NULL);
	case KM_SCATTER:
		return kolo_scatter(c->kolo, src->at,
				    dst->nparts ? dst->at : own_part(src, c->rank),
				    dst->nparts ? part : own, KOLO_U8, a->root, NULL);
	case KM_SCATTERV:
		return kolo_scatter_v(c->kolo, src->at, src->bytes,
				      dst->nparts ? dst->at : own_part(src, c->rank),
				      dst->nparts ? dst->all : src->bytes[c->rank], KOLO_U8,
				      a->root, NULL);
	case KM_ALLTOALL: return kolo_all_to_all(c->kolo, src->at, dst->at, part, KOLO_U8, NULL);
	default:
		return kolo_all_to_all_v(c->kolo, src->at, src->bytes, dst->at, dst->bytes, KOLO_U8,
					 NULL);
	}
}

/* In place: what goes lies where what comes will. So it is copied away. */
static int copy_away(struct side *src, const struct side *dst, struct km_comm *c)
{
	char *copy;
	int rc;

	*src = *dst;
	src->bytes = NULL;
	src->packed = false;
	rc = open_side(src, true, c);
	if (rc != MPI_SUCCESS || src->packed || src->all == 0)
		return rc;
	copy = malloc(src->all);
	if (!copy)
		return MPI_ERR_NO_MEM;
	memcpy(copy, src->at, src->all);
	src->at = copy;
	src->packed = true;
	return MPI_SUCCESS;
}

/* Where the program's own part is in place, Kolo has to find it among the packed ones. */
static bool reads_dst(const struct km_comm *c, const struct km_args *a)
{
	return a->call != KM_BCAST && a->src == MPI_IN_PLACE && has_side(c, a, false);
}

bool km_broadcast_now(struct km_comm *c, void *buffer, MPI_Count n, MPI_Datatype type, int root,
		      int *rc)
{
	struct km_type is;

	if (!c->kolo || km_timed || n < 0 || root < 0 || root >= c->size ||
	    !km_type_of(type, &is) || !is.dense)
		return false;
	*rc = km_result(
		c, KM_BCAST,
		kolo_broadcast(c->kolo, buffer, buffer, (size_t)n * is.size, KOLO_U8, root, NULL));
	return true;
}

bool km_move(struct km_comm *c, const struct km_args *a, struct km_done *d)
{
	bool all_to_all = a->call == KM_ALLTOALL || a->call == KM_ALLTOALLV;
	struct side src, dst;
	int closed, also;

	if (has_root(a->call) && (a->root < 0 || a->root >= c->size))
		return false;
	if (!fill_side(&src, c, a, true) || !fill_side(&dst, c, a, false))
		return false;
	d->could = true;
	d->bytes = src.all > dst.all ? src.all : dst.all;
	if (!c->kolo)
		return false;
	d->rc = open_side(&dst, reads_dst(c, a), c);
	if (d->rc == MPI_SUCCESS)
		d->rc = all_to_all && a->src == MPI_IN_PLACE ? copy_away(&src, &dst, c)
							     : open_side(&src, true, c);
	if (d->rc != MPI_SUCCESS) /* the others must not wait */
		kolo_comm_abort(c->kolo);
	else
		d->rc = km_result(c, a->call, on_kolo(c, a, &src, &dst));
	closed = close_side(&dst, d->rc == MPI_SUCCESS, c);
	also = close_side(&src, false, c);
	if (d->rc == MPI_SUCCESS)
		d->rc = closed != MPI_SUCCESS ? closed : also;
	return true;
}
