/* What the files of libkolo_mpi share. Names begin with km_. */
#ifndef TOOLS_MPI_INSIDE_H
#define TOOLS_MPI_INSIDE_H

#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include "kolo/kolo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- load.c: the MPI below ------------------------------------------------------------------- */

#ifdef OMPI_PREDEFINED_GLOBAL
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) ((type)km_at_##global)
#define S(symbol)                            extern void *km_at_##symbol;
#include "tools/mpi/symbols.h"
#undef S
#endif

/* Its functions. NULL: it has none of this name. */
struct km_real {
#define F(name) __typeof__(&MPI_##name) name;
#include "tools/mpi/functions.h"
#undef F
};
extern struct km_real km_real;

enum km_mode { KM_OFF, KM_COUNT, KM_ON };

/* Finds all of that, and reads the environment, once. `mode` is what to do. */
extern _Atomic int km_loaded;
extern enum km_mode km_mode;
extern long km_calls; /* KOLO_MPI_CALLS; -1: it is not set */
extern bool km_share; /* KOLO_MPI_SHARE */
void km_load(void);

static inline void km_ready(void)
{
	if (!km_loaded)
		km_load();
}

/* Lets the MPI go on, if it has a function for that. false: it has none. */
extern void (*km_mpi_progress)(void);

/* ---- comm.c ---------------------------------------------------------------------------------- */

enum km_call {
	KM_BARRIER,
	KM_BCAST,
	KM_REDUCE,
	KM_ALLREDUCE,
	KM_REDUCE_SCATTER,
	KM_REDUCE_SCATTER_BLOCK,
	KM_ALLGATHER,
	KM_ALLGATHERV,
	KM_GATHER,
	KM_GATHERV,
	KM_SCATTER,
	KM_SCATTERV,
	KM_ALLTOALL,
	KM_ALLTOALLV,
	KM_NCALLS
};

/* Of one kind of call on one communicator, if there will be a report. */
struct km_tally {
	long calls, taken, could; /* all; done on Kolo; of a kind that Kolo does */
	double bytes;             /* of the larger buffer of this rank */
	int64_t ns;
};

/* What belongs to a communicator of MPI. */
struct km_comm {
	MPI_Comm comm;
	int rank, size;
	long calls, due;        /* collectives so far, and at the next try to join: on all ranks */
	uint64_t weight;        /* of those that Kolo could have done */
	struct kolo_comm *kolo; /* the ring's; NULL: it has not joined */
	struct km_ring *ring;
	struct km_own *own; /* own.c; NULL: none yet */
	const char *why;    /* why it never will; NULL: it may, or has */
	bool joined;        /* a ring, now or before it was freed */
	bool told;          /* a failure was printed */
	long nfreed;        /* communicators that are added up here */
	char name[MPI_MAX_OBJECT_NAME];
	struct km_tally tally[KM_NCALLS];
	struct km_comm *next;
};

/* All that are there, and those that were freed: these are added up if they were of one size and
 * came equally far. With the lock. */
struct km_comms {
	struct km_comm *first, *freed;
};
struct km_comms *km_comms_lock(void);
void km_comms_unlock(void);

/* The thread's last communicator: most calls are on one. */
struct km_last {
	MPI_Comm comm;
	unsigned freed;
	struct km_comm *c;
};
extern _Thread_local struct km_last km_last;
extern _Atomic unsigned km_freed; /* communicators: handles may come again */

/* A collective has been called. Returns what belongs to the communicator, or NULL: MPI does the
 * call, and nobody wants to know. The caller asks `kolo`, which may have been joined just now. */
struct km_comm *km_enter_other(MPI_Comm comm);

/* The same, of one that has no ring. */
struct km_comm *km_enter_ringless(struct km_comm *c);

static inline struct km_comm *km_enter(MPI_Comm comm)
{
	struct km_comm *c = km_last.c;

	if (!c || km_last.comm != comm || km_last.freed != km_freed)
		return km_enter_other(comm);
	return c->kolo ? c : km_enter_ringless(c);
}

/* Ends all of Kolo's communicators, before MPI ends. */
void km_leave_all(void);

/* The result of a call on Kolo as MPI's: a failure is printed and goes through the error handler.
 */
int km_fail(struct km_comm *c, enum km_call call);

static inline int km_result(struct km_comm *c, enum km_call call, int rc)
{
	return rc == 0 ? MPI_SUCCESS : km_fail(c, call);
}

/* ---- rings.c: Kolo's communicators --------------------------------------------------------------
 */

/* All ranks of a communicator are in the same collective. If others of the same ranks have a ring,
 * it gets that. Else it gets a new one if its rank of least weight has done enough, or if
 * KOLO_MPI_CALLS is set. Whatever fails, all ranks stay with MPI. */
void km_try_to_join(struct km_comm *c);

/* A communicator no longer uses its ring; NULL is none. Waits for no other rank. */
void km_leave_ring(struct km_ring *r);

/* Ends all rings, before MPI ends. */
void km_end_rings(void);

/* ---- layout.c -------------------------------------------------------------------------------- */

/* A type: bytes of an element, from one element to the next, and whether elements are these bytes
 * and nothing else, in this order. */
struct km_type {
	size_t size;
	MPI_Aint extent;
	bool dense;
	/* Or they are so many blocks of so many bytes, and from one to the next; 0: other ones */
	size_t blocks, block;
	MPI_Aint stride;
};

/* false: it is no type. km_measure does not find out whether it is dense, which takes longer. */
bool km_type_of(MPI_Datatype type, struct km_type *out);
bool km_measure(MPI_Datatype type, struct km_type *out);

/* Does packing give the bytes of an element, and nothing else? */
bool km_packs_plainly(void);

/* Elements of a buffer as bytes side by side: they are packed into `to`, or found in place. */
int km_pack(const void *from, size_t n, MPI_Datatype type, struct km_type t, char *to,
	    struct km_comm *c);
int km_unpack(const char *from, size_t n, MPI_Datatype type, struct km_type t, void *to,
	      struct km_comm *c);

/* ---- rule.c ---------------------------------------------------------------------------------- */

/* How a reduction is done. */
enum km_way {
	KM_OF_PROGRAM, /* the operation is the program's: if it commutes MPI combines, Kolo moves */
	KM_LEFT,       /* by MPI */
	KM_TAKEN,      /* by Kolo */
	KM_WITH_GAPS   /* MPI combines, Kolo moves elements with what is between them */
};

struct km_rule {
	enum km_way way;
	/* Of the last two: */
	enum kolo_type type;
	enum kolo_op op;
	unsigned size; /* bytes of an element, as Kolo moves it */
};

struct km_rule km_rule(MPI_Datatype type, MPI_Op op);

/* ---- combine.c, move.c: the collectives ------------------------------------------------------ */

/* Numbers for each rank, as the call has them. */
struct km_numbers {
	const void *of;
	bool large;
};

static inline size_t km_number(struct km_numbers n, int rank)
{
	return n.large ? (size_t)((const MPI_Count *)n.of)[rank]
		       : (size_t)((const int *)n.of)[rank];
}

/* A call, with what its form has; the rest is 0. */
struct km_args {
	enum km_call call;
	MPI_Comm comm;
	const void *src;
	void *dst;
	MPI_Count nsrc, ndst; /* elements, for each rank if it has parts */
	MPI_Datatype tsrc, tdst;
	struct km_numbers src_counts, src_displs, dst_counts, dst_displs;
	MPI_Op op;
	int root;
};

/* What became of a call. */
struct km_done {
	size_t bytes;  /* of the larger buffer of this rank */
	bool could;    /* Kolo does such calls, once the communicator has joined */
	int64_t since; /* 0: times are not wanted */
	int rc;        /* if Kolo did it */
};

/* The calls that programs make most, on a communicator that has joined and if there will be no
 * report: true if it was done, with the result in *rc. false: it needs more. */
bool km_all_reduce_now(struct km_comm *c, const void *src, void *dst, MPI_Count n,
		       MPI_Datatype type, MPI_Op op, int *rc);
bool km_broadcast_now(struct km_comm *c, void *buffer, MPI_Count n, MPI_Datatype type, int root,
		      int *rc);
bool km_barrier_now(struct km_comm *c, int *rc);

/* Does the call on Kolo. false: MPI is to do it, on all ranks. */
bool km_move(struct km_comm *c, const struct km_args *a, struct km_done *d);
bool km_combine(struct km_comm *c, const struct km_args *a, struct km_done *d);

/* ---- own.c ----------------------------------------------------------------------------------- */

/* Gets ready for a reduction whose elements MPI combines, by MPI_Reduce_local. `is` has the size of
 * an element as Kolo moves it. *op is Kolo's, for kolo_type_bytes of that size. Returns 0,
 * KOLO_ENOMEM, or KOLO_ENOTSUP on all ranks alike. */
int km_own_begin(struct km_comm *c, const struct km_args *a, struct km_type is, enum kolo_op *op);

/* The communicator goes, or its ring. */
void km_own_close(struct km_comm *c);

/* ---- report.c -------------------------------------------------------------------------------- */

/* Will there be a report? */
extern bool km_timed;
void km_report_open(void);

const char *km_call_name(enum km_call call);
int64_t km_now(void);

/* Writes the report of this rank, if one is wanted. */
void km_report(void);

#endif
