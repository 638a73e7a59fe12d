/* Reductions that MPI's own functions combine: operations of the program, and MPI's on types that
 * Kolo does not know. MPI_Reduce_local calls the function, whatever language it is in. */
#include "tools/mpi/inside.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a communicator needs for that. */
struct km_own {
	enum kolo_op made; /* on the communicator's ring, for elements of `size` bytes */
	size_t size;       /* 0: there is none */
	/* Of the call under way */
	MPI_Op op;
	MPI_Datatype type;
	struct km_type is;
	struct km_comm *c;
	size_t at_once; /* elements in a room; 0: there are no rooms */
	char *room[2];  /* two operands as the program's type has them */
	char *memory;   /* of the rooms, and of those before; `len` bytes */
	size_t len;
};

/* Elements of a multiple of so many bytes may have to lie at one. Kolo promises half of it. */
enum { WIDE = 16 };

/* ---- One combination ------------------------------------------------------------------------- */

/* inout = in combined with inout. */
static void reduce_local(const struct km_own *o, const char *in, char *inout, size_t n)
{
	enum { MOST = 1 << 20 };

	for (size_t k = 0; k < n; k += MOST)
		km_real.Reduce_local(in + (MPI_Aint)k * o->is.extent,
				     inout + (MPI_Aint)k * o->is.extent,
				     (int)(n - k < MOST ? n - k : MOST), o->type, o->op);
}

/* To a room, or from it. */
static void lay_out(const struct km_own *o, const char *from, char *room, size_t n)
{
	if (o->is.dense)
		memcpy(room, from, n * o->is.size);
	else
		km_unpack(from, n, o->type, o->is, room, o->c);
}

static void put_together(const struct km_own *o, const char *room, char *to, size_t n)
{
	if (o->is.dense)
		memcpy(to, room, n * o->is.size);
	else
		km_pack(room, n, o->type, o->is, to, o->c);
}

static void combine_in_rooms(const struct km_own *o, char *out, const char *a, const char *b,
			     size_t n)
{
	for (size_t k = 0; k < n; k += o->at_once) {
		size_t some = n - k < o->at_once ? n - k : o->at_once, at = k * o->is.size;

		lay_out(o, a + at, o->room[0], some);
		lay_out(o, b + at, o->room[1], some);
		reduce_local(o, o->room[0], o->room[1], some);
		put_together(o, o->room[1], out + at, some);
	}
}

/* The operation is commutative: it does not matter which operand is where the result goes. */
static void combine(void *arg, void *out, const void *a, const void *b, size_t n)
{
	const struct km_own *o = arg;
	bool askew = ((uintptr_t)out | (uintptr_t)a | (uintptr_t)b) % WIDE;

	if (o->at_once && (!o->is.dense || askew)) {
		combine_in_rooms(o, out, a, b, n);
		return;
	}
	if (out != a && out != b)
		memcpy(out, b, n * o->is.size);
	reduce_local(o, out == a ? b : a, out, n);
}

/* ---- Before and after ------------------------------------------------------------------------ */

/* Rooms for elements that have gaps, or another order, or that may lie askew. */
static int make_rooms(struct km_own *o)
{
	enum { SOME = 64, ALIGN = 64 };
	MPI_Aint lb, extent;
	size_t len;

	o->at_once = 0;
	if (o->is.dense && o->is.size % WIDE)
		return MPI_SUCCESS;
	if (km_real.Type_get_true_extent(o->type, &lb, &extent) != MPI_SUCCESS)
		return MPI_ERR_TYPE;
	o->at_once = o->is.extent >= extent ? SOME : 1;
	len = o->at_once * (size_t)(o->at_once > 1 ? o->is.extent : extent);
	len = (len + ALIGN - 1) / ALIGN * ALIGN;
	if (o->len < 2 * len) {
		free(o->memory);
		o->memory = aligned_alloc(ALIGN, 2 * len);
		o->len = o->memory ? 2 * len : 0;
	}
	if (!o->memory)
		return MPI_ERR_NO_MEM;
	o->room[0] = o->memory - lb;
	o->room[1] = o->room[0] + len;
	return MPI_SUCCESS;
}

/* The op on the ring; made anew for elements of another size. */
static int make_op(struct km_own *o, struct km_comm *c, size_t size)
{
	int rc = 0;

	if (o->size == size)
		return 0;
	if (o->size)
		kolo_op_destroy(c->kolo, o->made);
	rc = kolo_op_create(c->kolo, kolo_type_bytes(size), combine, o, 1, &o->made);
	o->size = rc == 0 ? size : 0;
	return rc;
}

int km_own_begin(struct km_comm *c, const struct km_args *a, struct km_type is, enum kolo_op *op)
{
	struct km_own *o = c->own;
	int rc;

	if (!o)
		o = c->own = calloc(1, sizeof(*o));
	if (!o)
		return KOLO_ENOMEM;
	rc = make_op(o, c, is.size);
	if (rc < 0)
		return rc;
	o->op = a->op;
	o->type = a->tdst;
	o->is = is;
	o->c = c;
	*op = o->made;
	return make_rooms(o) == MPI_SUCCESS ? 0 : KOLO_ENOMEM;
}

void km_own_close(struct km_comm *c)
{
	if (c->own && c->own->size && c->kolo)
		kolo_op_destroy(c->kolo, c->own->made);
	if (c->own)
		free(c->own->memory);
	free(c->own);
	c->own = NULL;
}
