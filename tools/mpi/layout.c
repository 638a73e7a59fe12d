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

static bool is_dense(MPI_Datatype type, const struct km_type *t, bool *predefined);

/* A type that is n times another one is as dense as that. */
static bool inner_is_dense(MPI_Datatype type, int nints, int naddresses, int ntypes)
{
	MPI_Aint addresses[1];
	MPI_Datatype inner;
	struct km_type t;
	int ints[1];
	bool dense, predefined;

	if (nints > 1 || naddresses > 0 || ntypes != 1 ||
	    km_real.Type_get_contents(type, nints, naddresses, ntypes, ints, addresses, &inner) !=
		    MPI_SUCCESS)
		return false;
	dense = km_type_of(inner, &t) && is_dense(inner, &t, &predefined);
	if (!predefined)
		km_real.Type_free(&inner);
	return dense;
}

static bool is_dense(MPI_Datatype type, const struct km_type *t, bool *predefined)
{
	int nints, naddresses, ntypes, combiner;
	MPI_Aint lb, extent, true_lb, true_extent;

	*predefined = true;
	if (km_real.Type_get_envelope(type, &nints, &naddresses, &ntypes, &combiner) != MPI_SUCCESS)
		return false;
	*predefined = combiner == MPI_COMBINER_NAMED;
	if (km_real.Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
	    km_real.Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS || lb ||
	    true_lb || (size_t)extent != t->size || (size_t)true_extent != t->size)
		return false;
	if (combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_CONTIGUOUS)
		return inner_is_dense(type, nints, naddresses, ntypes);
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
