/* What programs find in place of their MPI's functions: PMPI_X, which Fortran and MPI's own layers
 * call, and MPI_X, which C calls. Each fills a struct km_args and goes to Kolo, or else to the MPI.
 */
#include "tools/mpi/inside.h"

#define SHOWN __attribute__((visibility("default")))

/* A call that Kolo could have done counts, and each LARGE bytes as much as a call. */
static void weigh(struct km_comm *c, const struct km_done *d)
{
	enum { LARGE = 4096 };

	c->weight += d->could ? 1 + d->bytes / LARGE : 0;
}

static void count(struct km_comm *c, const struct km_args *a, const struct km_done *d, bool taken)
{
	struct km_tally *t = &c->tally[a->call];

	if (!c->kolo)
		weigh(c, d);
	if (!km_timed)
		return;
	t->calls++;
	t->taken += taken;
	t->could += d->could;
	t->bytes += (double)d->bytes;
	t->ns += km_now() - d->since;
}

/* Does the call on Kolo. false: MPI is to do it. */
static bool begin(struct km_comm *c, const struct km_args *a, struct km_done *d)
{
	bool taken;

	*d = (struct km_done){ .since = km_timed ? km_now() : 0 };
	taken = a->call <= KM_REDUCE_SCATTER_BLOCK && a->call != KM_BCAST ? km_combine(c, a, d)
									  : km_move(c, a, d);
	if (taken)
		count(c, a, d, true);
	return taken;
}

/* MPI has done it. */
static int end(struct km_comm *c, const struct km_args *a, const struct km_done *d, int rc)
{
	count(c, a, d, false);
	return rc;
}

#define FILL(...)                                                                                  \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* at_once: true if the call was done the short way (km_all_reduce_now), with its result in rc. */
#define EXPORT_SHORT(name, params, at_once, fill, args)                                            \
	SHOWN int PMPI_##name params                                                               \
	{                                                                                          \
		struct km_comm *c = km_enter(comm);                                                \
                                                                                                   \
		if (!c)                                                                            \
			return km_real.name args;                                                  \
		int rc = MPI_SUCCESS;                                                              \
		if (at_once)                                                                       \
			return rc;                                                                 \
		struct km_args a = FILL fill;                                                      \
		struct km_done d;                                                                  \
                                                                                                   \
		return begin(c, &a, &d) ? d.rc : end(c, &a, &d, km_real.name args);                \
	}                                                                                          \
	SHOWN __typeof__(PMPI_##name) MPI_##name __attribute__((alias("PMPI_" #name)));

#define EXPORT(name, params, fill, args) EXPORT_SHORT(name, params, false, fill, args)

/* Both forms of each: with counts of type N and displacements of type D. */
#define COLLECTIVES(form, N, D, large)                                                             \
	EXPORT_SHORT(Bcast##form, (void *buf, N n, MPI_Datatype type, int root, MPI_Comm comm),    \
		     km_broadcast_now(c, buf, n, type, root, &rc),                                 \
		     (.call = KM_BCAST, .comm = comm, .src = buf, .dst = buf, .nsrc = n,           \
		      .ndst = n, .tsrc = type, .tdst = type, .root = root),                        \
		     (buf, n, type, root, comm))                                                   \
	EXPORT_SHORT(                                                                              \
		Allreduce##form,                                                                   \
		(const void *src, void *dst, N n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),    \
		km_all_reduce_now(c, src, dst, n, type, op, &rc),                                  \
		(.call = KM_ALLREDUCE, .comm = comm, .src = src, .dst = dst, .ndst = n,            \
		 .tdst = type, .op = op),                                                          \
		(src, dst, n, type, op, comm))                                                     \
	EXPORT(Reduce##form,                                                                       \
	       (const void *src, void *dst, N n, MPI_Datatype type, MPI_Op op, int root,           \
		MPI_Comm comm),                                                                    \
	       (.call = KM_REDUCE, .comm = comm, .src = src, .dst = dst, .ndst = n, .tdst = type,  \
		.op = op, .root = root),                                                           \
	       (src, dst, n, type, op, root, comm))                                                \
	EXPORT(Reduce_scatter_block##form,                                                         \
	       (const void *src, void *dst, N n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),     \
	       (.call = KM_REDUCE_SCATTER_BLOCK, .comm = comm, .src = src, .dst = dst, .ndst = n,  \
		.tdst = type, .op = op),                                                           \
	       (src, dst, n, type, op, comm))                                                      \
	EXPORT(Reduce_scatter##form,                                                               \
	       (const void *src, void *dst, const N counts[], MPI_Datatype type, MPI_Op op,        \
		MPI_Comm comm),                                                                    \
	       (.call = KM_REDUCE_SCATTER, .comm = comm, .src = src, .dst = dst,                   \
		.dst_counts = { counts, large }, .tdst = type, .op = op),                          \
	       (src, dst, counts, type, op, comm))                                                 \
	EXPORT(Allgather##form,                                                                    \
	       (const void *src, N nsrc, MPI_Datatype tsrc, void *dst, N ndst, MPI_Datatype tdst,  \
		MPI_Comm comm),                                                                    \
	       (.call = KM_ALLGATHER, .comm = comm, .src = src, .dst = dst, .nsrc = nsrc,          \
		.ndst = ndst, .tsrc = tsrc, .tdst = tdst),                                         \
	       (src, nsrc, tsrc, dst, ndst, tdst, comm))                                           \
	EXPORT(Alltoall##form,                                                                     \
	       (const void *src, N nsrc, MPI_Datatype tsrc, void *dst, N ndst, MPI_Datatype tdst,  \
		MPI_Comm comm),                                                                    \
	       (.call = KM_ALLTOALL, .comm = comm, .src = src, .dst = dst, .nsrc = nsrc,           \
		.ndst = ndst, .tsrc = tsrc, .tdst = tdst),                                         \
	       (src, nsrc, tsrc, dst, ndst, tdst, comm))                                           \
	EXPORT(Gather##form,                                                                       \
	       (const void *src, N nsrc, MPI_Datatype tsrc, void *dst, N ndst, MPI_Datatype tdst,  \
		int root, MPI_Comm comm),                                                          \
	       (.call = KM_GATHER, .comm = comm, .src = src, .dst = dst, .nsrc = nsrc,             \
		.ndst = ndst, .tsrc = tsrc, .tdst = tdst, .root = root),                           \
	       (src, nsrc, tsrc, dst, ndst, tdst, root, comm))                                     \
	EXPORT(Scatter##form,                                                                      \
	       (const void *src, N nsrc, MPI_Datatype tsrc, void *dst, N ndst, MPI_Datatype tdst,  \
		int root, MPI_Comm comm),                                                          \
	       (.call = KM_SCATTER, .comm = comm, .src = src, .dst = dst, .nsrc = nsrc,            \
		.ndst = ndst, .tsrc = tsrc, .tdst = tdst, .root = root),                           \
	       (src, nsrc, tsrc, dst, ndst, tdst, root, comm))                                     \
	EXPORT(Allgatherv##form,                                                                   \
	       (const void *src, N nsrc, MPI_Datatype tsrc, void *dst, const N counts[],           \
		const D displs[], MPI_Datatype tdst, MPI_Comm comm),                               \
	       (.call = KM_ALLGATHERV, .comm = comm, .src = src, .dst = dst, .nsrc = nsrc,         \
		.tsrc = tsrc, .tdst = tdst, .dst_counts = { counts, large },                       \
		.dst_displs = { displs, large }),                                                  \
	       (src, nsrc, tsrc, dst, counts, displs, tdst, comm))                                 \
	EXPORT(Gatherv##form,                                                                      \
	       (const void *src, N nsrc, MPI_Datatype tsrc, void *dst, const N counts[],           \
		const D displs[], MPI_Datatype tdst, int root, MPI_Comm comm),                     \
	       (.call = KM_GATHERV, .comm = comm, .src = src, .dst = dst, .nsrc = nsrc,            \
		.tsrc = tsrc, .tdst = tdst, .dst_counts = { counts, large },                       \
		.dst_displs = { displs, large }, .root = root),                                    \
	       (src, nsrc, tsrc, dst, counts, displs, tdst, root, comm))                           \
	EXPORT(Scatterv##form,                                                                     \
	       (const void *src, const N counts[], const D displs[], MPI_Datatype tsrc, void *dst, \
		N ndst, MPI_Datatype tdst, int root, MPI_Comm comm),                               \
	       (.call = KM_SCATTERV, .comm = comm, .src = src, .dst = dst, .ndst = ndst,           \
		.tsrc = tsrc, .tdst = tdst, .src_counts = { counts, large },                       \
		.src_displs = { displs, large }, .root = root),                                    \
	       (src, counts, displs, tsrc, dst, ndst, tdst, root, comm))                           \
	EXPORT(Alltoallv##form,                                                                    \
	       (const void *src, const N src_counts[], const D src_displs[], MPI_Datatype tsrc,    \
		void *dst, const N dst_counts[], const D dst_displs[], MPI_Datatype tdst,          \
		MPI_Comm comm),                                                                    \
	       (.call = KM_ALLTOALLV, .comm = comm, .src = src, .dst = dst, .tsrc = tsrc,          \
		.tdst = tdst, .src_counts = { src_counts, large },                                 \
		.src_displs = { src_displs, large }, .dst_counts = { dst_counts, large },          \
		.dst_displs = { dst_displs, large }),                                              \
	       (src, src_counts, src_displs, tsrc, dst, dst_counts, dst_displs, tdst, comm))

EXPORT_SHORT(Barrier, (MPI_Comm comm), km_barrier_now(c, &rc), (.call = KM_BARRIER, .comm = comm),
	     (comm))
COLLECTIVES(, int, int, false)
#if MPI_VERSION >= 4
COLLECTIVES(_c, MPI_Count, MPI_Aint, true)
#endif

/* Launchers don't give all variables to all hosts. What rank 0 has counts: otherwise one rank would
 * join while another one does not. */
static int agree(int rc)
{
	long wish[] = { km_mode, km_calls, km_share };

	if (rc != MPI_SUCCESS ||
	    (rc = km_real.Bcast(wish, 3, MPI_LONG, 0, MPI_COMM_WORLD)) != MPI_SUCCESS)
		return rc;
	km_mode = (enum km_mode)wish[0];
	km_calls = wish[1];
	km_share = wish[2];
	km_report_open();
	return rc;
}

SHOWN int PMPI_Init(int *argc, char ***argv)
{
	km_ready();
	return agree(km_real.Init(argc, argv));
}
SHOWN __typeof__(PMPI_Init) MPI_Init __attribute__((alias("PMPI_Init")));

SHOWN int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	km_ready();
	return agree(km_real.Init_thread(argc, argv, required, provided));
}
SHOWN __typeof__(PMPI_Init_thread) MPI_Init_thread __attribute__((alias("PMPI_Init_thread")));

SHOWN int PMPI_Finalize(void)
{
	km_ready();
	km_report();
	km_leave_all();
	return km_real.Finalize();
}
SHOWN __typeof__(PMPI_Finalize) MPI_Finalize __attribute__((alias("PMPI_Finalize")));
