/* Elements of MPI's types as bytes side by side (km_pack, km_unpack). */
#include "tools/mpi/inside.h"

#include <stdlib.h>
#include <string.h>

/* A type that its owner may have freed and made anew as another one has no place here. */
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

static bool is_dense(MPI_Datatype type, const struct km_type *t, bool *predefined);

/* A type that is n times another one is as dense as that. */
static bool inner_is_dense(MPI_Datatype type, const struct envelope *e)
{
	MPI_Datatype inner;
	struct km_type t;
	bool dense, predefined = true;

	if (!get_inner(type, e, &inner))
		return false;
	dense = km_type_of(inner, &t) && is_dense(inner, &t, &predefined);
	if (!predefined)
		km_real.Type_free(&inner);
	return dense;
}

static bool is_dense(MPI_Datatype type, const struct km_type *t, bool *predefined)
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
	return *predefined;
}

bool km_type_of(MPI_Datatype type, struct km_type *out)
{
	MPI_Aint lb;
	bool predefined;
	int size;

	if (last.valid && last.type == type) {
		*out = last.is;
		return true;
	}
	if (type == MPI_DATATYPE_NULL || km_real.Type_size(type, &size) != MPI_SUCCESS ||
	    size < 0 || km_real.Type_get_extent(type, &lb, &out->extent) != MPI_SUCCESS)
		return false;
	out->size = (size_t)size;
	out->dense = is_dense(type, out, &predefined);
	if (predefined) {
		last.valid = true;
		last.type = type;
		last.is = *out;
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
