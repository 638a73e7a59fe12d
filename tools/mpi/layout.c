/* What elements of MPI's types are (km_type_of), and such elements as bytes side by side (km_pack,
 * km_unpack). */
#include "tools/mpi/inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* How a type was made: what MPI_Type_get_envelope says. */
struct envelope {
	MPI_Count nints, naddresses, ncounts, ntypes;
	int combiner;
};

/* Types that were made with large counts have it in the large form alone. */
static bool get_envelope(MPI_Datatype type, struct envelope *e)
{
	int nints, naddresses, ntypes;

#if MPI_VERSION >= 4
	if (km_real.Type_get_envelope_c)
		return km_real.Type_get_envelope_c(type, &e->nints, &e->naddresses, &e->ncounts,
						   &e->ntypes, &e->combiner) == MPI_SUCCESS;
#endif
	if (km_real.Type_get_envelope(type, &nints, &naddresses, &ntypes, &e->combiner) !=
	    MPI_SUCCESS)
		return false;
	*e = (struct envelope){ nints, naddresses, 0, ntypes, e->combiner };
	return true;
}

/* How a type repeats another one: `blocks` times `each` of its elements, `stride` bytes apart. */
struct repeat {
	MPI_Datatype inner;
	MPI_Aint blocks, each, stride;
	bool in_elements; /* the stride is one of elements */
};

enum { MOST_NUMBERS = 3 };

/* What MPI_Type_get_contents says. */
struct contents {
	int ints[MOST_NUMBERS];
	MPI_Count counts[MOST_NUMBERS];
	MPI_Aint addresses[1];
	MPI_Datatype inner;
};

static bool get_contents(MPI_Datatype type, const struct envelope *e, struct contents *c)
{
	if (e->nints > MOST_NUMBERS || e->ncounts > MOST_NUMBERS || e->naddresses > 1 ||
	    e->ntypes != 1)
		return false;
#if MPI_VERSION >= 4
	if (km_real.Type_get_contents_c)
		return km_real.Type_get_contents_c(type, e->nints, e->naddresses, e->ncounts, 1,
						   c->ints, c->addresses, c->counts,
						   &c->inner) == MPI_SUCCESS;
#endif
	return km_real.Type_get_contents(type, (int)e->nints, (int)e->naddresses, 1, c->ints,
					 c->addresses, &c->inner) == MPI_SUCCESS;
}

/* Number k of those that the type was made with, in whatever form. */
static MPI_Aint number(const struct envelope *e, const struct contents *c, int k)
{
	if (e->ncounts > k)
		return (MPI_Aint)c->counts[k];
	return e->nints > k ? c->ints[k] : (MPI_Aint)c->addresses[0];
}

static bool is_repeated(const struct envelope *e)
{
	return e->combiner == MPI_COMBINER_DUP || e->combiner == MPI_COMBINER_CONTIGUOUS ||
	       e->combiner == MPI_COMBINER_VECTOR || e->combiner == MPI_COMBINER_HVECTOR;
}

static bool get_repeat(MPI_Datatype type, const struct envelope *e, struct repeat *r)
{
	struct contents c;

	if (!get_contents(type, e, &c))
		return false;
	*r = (struct repeat){ .inner = c.inner, .blocks = 1, .each = 1 };
	if (e->combiner == MPI_COMBINER_CONTIGUOUS)
		r->each = number(e, &c, 0);
	if (e->combiner != MPI_COMBINER_VECTOR && e->combiner != MPI_COMBINER_HVECTOR)
		return true;
	r->blocks = number(e, &c, 0);
	r->each = number(e, &c, 1);
	r->stride = number(e, &c, 2);
	r->in_elements = e->combiner == MPI_COMBINER_VECTOR;
	return true;
}

/* Does it lie in memory as in a message? Tells by packing an element whose bytes are all different.
 * The type must be committed. */
static bool packs_as_it_is(MPI_Datatype type, size_t size)
{
	unsigned char element[256], packed[2 * sizeof(element)];
	int at = 0;

	for (size_t k = 0; k < sizeof(element); k++)
		element[k] = (unsigned char)k;
	return size <= sizeof(element) &&
	       km_real.Pack(element, 1, type, packed, (int)sizeof(packed), &at, MPI_COMM_WORLD) ==
		       MPI_SUCCESS &&
	       (size_t)at == size && memcmp(element, packed, size) == 0;
}

bool km_measure(MPI_Datatype type, struct km_type *out)
{
	MPI_Aint lb;
	int size;

	if (type == MPI_DATATYPE_NULL || km_real.Type_size(type, &size) != MPI_SUCCESS ||
	    size < 0 || km_real.Type_get_extent(type, &lb, &out->extent) != MPI_SUCCESS)
		return false;
	*out = (struct km_type){ .size = (size_t)size, .extent = out->extent };
	return true;
}

/* Do elements follow each other, and have no gaps? Their parts may have another order. */
static bool is_compact(MPI_Datatype type, const struct km_type *t)
{
	MPI_Aint lb, extent, true_lb, true_extent;

	return (size_t)t->extent == t->size &&
	       km_real.Type_get_extent(type, &lb, &extent) == MPI_SUCCESS &&
	       km_real.Type_get_true_extent(type, &true_lb, &true_extent) == MPI_SUCCESS &&
	       lb == 0 && true_lb == 0 && (size_t)true_extent == t->size;
}

/* ---- What is known of a type ----------------------------------------------------------------- */

/* The thread's predefined types. Others their owners may have freed, and made anew as other ones:
 * what takes long to find out of these hangs at an attribute of them. */
static _Thread_local struct {
	bool valid;
	MPI_Datatype type;
	struct km_type is;
} known[8];

static unsigned place_of(MPI_Datatype type)
{
	return (unsigned)((uint64_t)(uintptr_t)type * 0x9e3779b97f4a7c15 >> 61);
}

static int key = MPI_KEYVAL_INVALID;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int copy(MPI_Datatype type, int keyval, void *extra, void *value, void *out, int *flag)
{
	(void)type, (void)keyval, (void)extra, (void)value, (void)out;
	*flag = 0;
	return MPI_SUCCESS;
}

static int drop(MPI_Datatype type, int keyval, void *value, void *extra)
{
	(void)type, (void)keyval, (void)extra;
	free(value);
	return MPI_SUCCESS;
}

static bool find(MPI_Datatype type, struct km_type *out)
{
	const struct km_type *kept;
	int there = 0;

	if (key == MPI_KEYVAL_INVALID ||
	    km_real.Type_get_attr(type, key, &kept, &there) != MPI_SUCCESS || !there)
		return false;
	*out = *kept;
	return true;
}

/* It is a matter of speed alone: what cannot be kept is found out again. */
static void keep(MPI_Datatype type, const struct km_type *t)
{
	struct km_type *copied = malloc(sizeof(*copied));

	if (!copied)
		return;
	*copied = *t;
	pthread_mutex_lock(&lock);
	if (key == MPI_KEYVAL_INVALID)
		km_real.Type_create_keyval(copy, drop, &key, NULL);
	if (key == MPI_KEYVAL_INVALID || km_real.Type_set_attr(type, key, copied) != MPI_SUCCESS)
		free(copied);
	pthread_mutex_unlock(&lock);
}

static bool is_known(MPI_Datatype type, struct km_type *out)
{
	unsigned k = place_of(type);

	if (!known[k].valid || known[k].type != type)
		return false;
	*out = known[k].is;
	return true;
}

static void find_predefined(MPI_Datatype type, struct km_type *t)
{
	unsigned k = place_of(type);

	t->dense = is_compact(type, t);
	known[k].valid = true;
	known[k].type = type;
	known[k].is = *t;
}

static void find_repeated(MPI_Datatype type, const struct envelope *e, struct km_type *t);

/* Is a type dense that another one was made of? It may be uncommitted. The caller has no more use
 * for it. */
static bool inner_is_dense(MPI_Datatype inner, struct km_type *t)
{
	struct envelope e;

	if (is_known(inner, t))
		return t->dense;
	if (!get_envelope(inner, &e))
		return false;
	if (km_measure(inner, t) && e.combiner == MPI_COMBINER_NAMED)
		find_predefined(inner, t);
	else if (is_repeated(&e))
		find_repeated(inner, &e, t);
	if (e.combiner != MPI_COMBINER_NAMED)
		km_real.Type_free(&inner);
	return t->dense;
}

/* Blocks of a dense type are dense if they follow each other, or else at least blocks. */
static void find_repeated(MPI_Datatype type, const struct envelope *e, struct km_type *t)
{
	struct km_type inner = { 0 };
	struct repeat r;

	if (!get_repeat(type, e, &r) || !inner_is_dense(r.inner, &inner))
		return;
	t->blocks = (size_t)r.blocks;
	t->block = (size_t)r.each * inner.size;
	t->stride = r.in_elements ? r.stride * inner.extent : r.stride;
	t->dense =
		(size_t)t->extent == t->size && (t->blocks <= 1 || t->stride == (MPI_Aint)t->block);
}

/* Of a type that was made in another way. */
static bool is_in_order(MPI_Datatype type, const struct km_type *t)
{
	struct km_type is;

	if (find(type, &is))
		return is.dense;
	is = *t;
	is.dense = is_compact(type, t) && packs_as_it_is(type, t->size);
	keep(type, &is);
	return is.dense;
}

bool km_type_of(MPI_Datatype type, struct km_type *out)
{
	struct envelope e;

	if (is_known(type, out))
		return true;
	if (!km_measure(type, out) || !get_envelope(type, &e))
		return false;
	if (e.combiner == MPI_COMBINER_NAMED)
		find_predefined(type, out);
	else if (is_repeated(&e))
		find_repeated(type, &e, out);
	else if ((size_t)out->extent == out->size)
		out->dense = is_in_order(type, out);
	return true;
}

/* ---- Packing --------------------------------------------------------------------------------- */

/* Copies n elements of blocks to or from bytes side by side. */
static void copy_blocks(char *elements, char *side_by_side, size_t n, const struct km_type *t,
			bool packs)
{
	for (size_t k = 0; k < n; k++)
		for (size_t b = 0; b < t->blocks; b++) {
			char *block = elements + (MPI_Aint)k * t->extent + (MPI_Aint)b * t->stride;

			memcpy(packs ? side_by_side : block, packs ? block : side_by_side,
			       t->block);
			side_by_side += t->block;
		}
}

/* As many elements at once as MPI's int counts bytes of. */
static size_t at_once(struct km_type t)
{
	enum { MOST = 1 << 30 };

	return t.size && t.size < MOST ? MOST / t.size : 1;
}

int km_pack(const void *from, size_t n, MPI_Datatype type, struct km_type t, char *to,
	    struct km_comm *c)
{
	size_t most = at_once(t);
	int rc = MPI_SUCCESS;

	if (t.blocks) {
		copy_blocks((char *)(uintptr_t)from, to, n, &t, true);
		return MPI_SUCCESS;
	}
	for (size_t k = 0; k < n && rc == MPI_SUCCESS && t.size; k += most) {
		size_t some = n - k < most ? n - k : most;
		int at = 0;

		rc = km_real.Pack((const char *)from + (MPI_Aint)k * t.extent, (int)some, type,
				  to + k * t.size, (int)(some * t.size), &at, c->comm);
	}
	return rc;
}

int km_unpack(const char *from, size_t n, MPI_Datatype type, struct km_type t, void *to,
	      struct km_comm *c)
{
	size_t most = at_once(t);
	int rc = MPI_SUCCESS;

	if (t.blocks) {
		copy_blocks(to, (char *)(uintptr_t)from, n, &t, false);
		return MPI_SUCCESS;
	}
	for (size_t k = 0; k < n && rc == MPI_SUCCESS && t.size; k += most) {
		size_t some = n - k < most ? n - k : most;
		int at = 0;

		rc = km_real.Unpack(from + k * t.size, (int)(some * t.size), &at,
				    (char *)to + (MPI_Aint)k * t.extent, (int)some, type, c->comm);
	}
	return rc;
}

bool km_packs_plainly(void)
{
	const int x[3] = { 0x01020304, 0x05060708, 0x090a0b0c };
	char out[64];
	int at = 0;

	return km_real.Pack(x, 3, MPI_INT, out, sizeof(out), &at, MPI_COMM_WORLD) == MPI_SUCCESS &&
	       at == sizeof(x) && memcmp(out, x, sizeof(x)) == 0;
}
