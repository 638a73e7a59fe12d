/* Elements of MPI's types as bytes side by side (km_pack, km_unpack). */
#include "tools/mpi/inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The thread's last predefined type. Another one its owner may have freed, and made anew as another
 * one: what is known of that hangs at an attribute of it. */
static _Thread_local struct {
	bool valid;
	MPI_Datatype type;
	struct km_type is;
} last;

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

/* The type that a copy, or a number of elements side by side, was made of. */
static bool get_inner(MPI_Datatype type, const struct envelope *e, MPI_Datatype *inner)
{
	MPI_Aint addresses[1];
	int ints[1];

	if (e->nints > 1 || e->naddresses > 0 || e->ncounts > 1 || e->ntypes != 1)
		return false;
#if MPI_VERSION >= 4
	MPI_Count counts[1];

	if (km_real.Type_get_contents_c)
		return km_real.Type_get_contents_c(type, e->nints, 0, e->ncounts, 1, ints,
						   addresses, counts, inner) == MPI_SUCCESS;
#endif
	return km_real.Type_get_contents(type, (int)e->nints, 0, 1, ints, addresses, inner) ==
	       MPI_SUCCESS;
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

static bool is_dense(MPI_Datatype type, const struct km_type *t, bool *predefined, bool committed);

static bool measure(MPI_Datatype type, struct km_type *out)
{
	MPI_Aint lb;
	int size;

	if (type == MPI_DATATYPE_NULL || km_real.Type_size(type, &size) != MPI_SUCCESS ||
	    size < 0 || km_real.Type_get_extent(type, &lb, &out->extent) != MPI_SUCCESS)
		return false;
	out->size = (size_t)size;
	return true;
}

/* A type that is n times another one is as dense as that. */
static bool inner_is_dense(MPI_Datatype type, const struct envelope *e)
{
	MPI_Datatype inner;
	struct km_type t;
	bool dense, predefined = true;

	if (!get_inner(type, e, &inner))
		return false;
	dense = measure(inner, &t) && is_dense(inner, &t, &predefined, false);
	if (!predefined)
		km_real.Type_free(&inner);
	return dense;
}

static bool is_dense(MPI_Datatype type, const struct km_type *t, bool *predefined, bool committed)
{
	struct envelope e;
	MPI_Aint lb, extent, true_lb, true_extent;

	*predefined = false;
	if (!get_envelope(type, &e))
		return false;
	*predefined = e.combiner == MPI_COMBINER_NAMED;
	if (km_real.Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
	    km_real.Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS || lb ||
	    true_lb || (size_t)extent != t->size || (size_t)true_extent != t->size)
		return false;
	if (e.combiner == MPI_COMBINER_DUP || e.combiner == MPI_COMBINER_CONTIGUOUS)
		return inner_is_dense(type, &e);
	return *predefined || (committed && packs_as_it_is(type, t->size));
}

/* ---- What is known of a type ----------------------------------------------------------------- */

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
	const struct km_type *known;
	int there = 0;

	if (key == MPI_KEYVAL_INVALID ||
	    km_real.Type_get_attr(type, key, &known, &there) != MPI_SUCCESS || !there)
		return false;
	*out = *known;
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

bool km_type_of(MPI_Datatype type, struct km_type *out)
{
	bool predefined;

	if (last.valid && last.type == type) {
		*out = last.is;
		return true;
	}
	if (type == MPI_DATATYPE_NULL)
		return false;
	if (find(type, out))
		return true;
	if (!measure(type, out))
		return false;
	out->dense = is_dense(type, out, &predefined, true);
	if (predefined) {
		last.valid = true;
		last.type = type;
		last.is = *out;
	} else {
		keep(type, out);
	}
	return true;
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
