/* Kolo: collectives on a ring.
 *
 * A communicator joins `nranks` ranks into a ring. Ranks may be processes or threads. Every rank calls the
 * same collectives in the same order. A collective blocks until its result may be read, or is left to a queue.
 *
 * Conventions, for every function unless it says otherwise:
 * - int results are 0 (KOLO_OK) or a negative enum kolo_status; the text is in kolo_last_error().
 * - `n` counts elements, `len` counts bytes. Buffers need no alignment.
 * - A communicator is used by one thread at a time; only kolo_comm_abort and kolo_comm_status may be called
 *   from other threads while it is in use.
 * - The library never prints, never ends the process and installs no signal handler.
 *
 * Memory: with the default slots a communicator takes at most KOLO_DEFAULT_MEMORY bytes per rank, shared
 * memory included; but 64 KiB more for each rank beyond 16 that it is just sending messages to. */
#ifndef KOLO_KOLO_H
#define KOLO_KOLO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define KOLO_VERSION_MAJOR  0
#define KOLO_VERSION_MINOR  1
#define KOLO_VERSION_PATCH  0
#define KOLO_DEFAULT_MEMORY (4 << 20)

enum kolo_status {
	KOLO_OK = 0,
	KOLO_EINVAL = -1,    /* an argument or an environment variable is wrong; nothing was done */
	KOLO_ENOMEM = -2,    /* out of memory */
	KOLO_ENOTSUP = -3,   /* this build or this machine can't do that */
	KOLO_EUNREACH = -4,  /* a rank could not be reached while the communicator was made */
	KOLO_ETIMEDOUT = -5, /* a rank was waited for longer than the timeout */
	KOLO_EPEER = -6,     /* a rank died or left */
	KOLO_EMISMATCH = -7, /* ranks called different collectives, or with different arguments */
	KOLO_ESYS = -8,      /* the operating system refused something; the text has its reason */
	KOLO_EABORTED = -9,  /* kolo_comm_abort was called */
	KOLO_EOVERFLOW =
		-10, /* a value became too large, and there is nothing left to make it smaller with */
};

/* Element types. Integers wrap. KOLO_F8E4M3 and KOLO_F8E5M2 are the OCP 8-bit formats; e4m3 has no infinity,
 * and what is too large for it becomes +-448. F16, BF16 and the 8-bit types are combined in float and rounded
 * to nearest even after each addition. */
enum kolo_type {
	KOLO_I8,
	KOLO_U8,
	KOLO_I32,
	KOLO_U32,
	KOLO_I64,
	KOLO_U64,
	KOLO_F16,
	KOLO_BF16,
	KOLO_F32,
	KOLO_F64,
	KOLO_F8E4M3,
	KOLO_F8E5M2,
};

/* How elements are combined. KOLO_MIN and KOLO_MAX return NaN where an element is NaN, and -0 < +0.
 * KOLO_AVG of floating types multiplies each rank's element by 1/nranks (in float; KOLO_F64 in double) before
 * it is added; of integers it divides the wrapped sum by nranks, towards zero. kolo_op_create_premul_sum makes
 * further values. */
enum kolo_op {
	KOLO_SUM,
	KOLO_PROD,
	KOLO_MIN,
	KOLO_MAX,
	KOLO_AVG,
	KOLO_OP_LAST = 0x7fffffff, /* keeps the enum wide enough for ops made at run time */
};

struct kolo_comm;  /* a communicator: one rank's view of its ring */
struct kolo_queue; /* work that a thread of its own does in order */
struct kolo_event; /* a place in a queue, which can be waited for */

/* ---- Versions, names, errors ---------------------------------------------------------------------------- */

/* The version of the library in use: major * 10000 + minor * 100 + patch. Never fails. */
int kolo_version(void);

/* The text of the last error on the calling thread; "" when there was none. Valid until the next Kolo call of
 * this thread. Names who (rank, host), where, what was tried, what came back and what to do. */
const char *kolo_last_error(void);

/* Sets the text of kolo_last_error on this thread, printf's way, and returns status: for layers on top of Kolo. At most 511
 * bytes of it are kept. Never fails. */
int kolo_error_set(int status, const char *format, ...);

/* What a code of enum kolo_status means, in a few words. Static storage, never NULL. */
const char *kolo_strerror(int status);

/* Bytes of one element; 0 when there is no such type. */
size_t kolo_type_size(enum kolo_type type);

/* The name of a type or an op, like "f32" or "sum"; NULL when there is no such type or op. Static storage. */
const char *kolo_type_name(enum kolo_type type);
const char *kolo_op_name(enum kolo_op op);

/* dst = src * scale, n elements, between any two of KOLO_F32, F16, BF16, F8E4M3 and F8E5M2: multiplied in float and rounded
 * once, to nearest even. dst may be src where both types are the same; else they must not overlap. Local.
 * Errors: KOLO_EINVAL. */
int kolo_cast(const void *src, enum kolo_type src_type, void *dst, enum kolo_type dst_type, size_t n,
	      float scale);

/* The cores that the calling thread may run on: for each the processor number (as sched_setaffinity wants it) of
 * one hardware thread, cores that share caches next to each other; in a build without hwloc, of every hardware
 * thread. Writes at most `max` of them to `cpus` and returns how many cores there are; never fails, at least 1. */
int kolo_cores(int *cpus, int max);

/* ---- What this library is ------------------------------------------------------------------------------- */

/* An environment variable of Kolo's own; launchers have others. Static storage, but for value: as getenv gives it. */
struct kolo_env_info {
	const char *name;
	const char *value;    /* NULL: unset */
	const char *help;     /* what it is, in a few words */
	char preset[24];      /* what counts while it is unset, as text; "" where that is nothing */
	char range[64];       /* the values it may have, in words */
	int secret;           /* 1: its value is not to be shown */
	int good;             /* 0: kolo_comm_create would refuse the value; 1 where only joining can tell */
	uint64_t reserved[4]; /* zero */
};

/* Tells about the variable number `index`, from 0. The values of KOLO_TIMEOUT, KOLO_SLOTS, KOLO_SLOT_LEN, KOLO_LOG
 * (whose file is opened) and KOLO_TRACE are tried as kolo_comm_create would; where good is 0, kolo_last_error says why.
 * Errors: KOLO_EINVAL where there is no further one, so that a loop ends. */
int kolo_env_get(int index, struct kolo_env_info *out);

/* A part of the library that may be missing from a build, or of no use on a machine. */
struct kolo_part_info {
	const char *kind;     /* "transport", "library" or "kernels"; static storage, as is name */
	const char *name;     /* "shm", "hwloc", "avx512", ... */
	int built;            /* 1: this build has it */
	int usable;           /* 1: it works in this process, on this machine */
	char reason[256];     /* why it is not built or not usable; "" when it is */
	uint64_t reserved[4]; /* zero */
};

/* Tells about the part number `index`, from 0: the transports, best first, then the libraries, then the kernels, the
 * fastest last; of the kernels the last that is usable is used. A transport is usable when it can be opened, which
 * is tried. Errors: KOLO_EINVAL where there is no further one. */
int kolo_part_get(int index, struct kolo_part_info *out);

/* ---- Communicators -------------------------------------------------------------------------------------- */

/* A meeting point. Plain bytes: copy, print as hex, send them to the ranks as you like. Who has them can
 * join, so treat them as a secret. */
struct kolo_id {
	unsigned char bytes[128];
};

/* Makes an id and starts to serve it on a background thread of this process, which need not become a rank but
 * must live until all ranks have joined. An id makes one communicator. An id that is never used up keeps its
 * thread (asleep) and its socket until the process ends. Ranks of other hosts reach it where KOLO_IFACE names an interface
 * that they reach; else it is for this host. May block for a few system calls.
 * Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int kolo_id_create(struct kolo_id *out);

/* Levels of the log, each with those above it. */
enum kolo_log_level {
	KOLO_LOG_ERROR = 1, /* a communicator has failed */
	KOLO_LOG_WARN,      /* a stranger was dropped, a trace can't be written */
	KOLO_LOG_INFO,      /* what was chosen, and why */
	KOLO_LOG_TRACE,     /* each operation, and how long it took */
};

/* Gets a line of the log, without a newline; it is valid during the call only. Must not call Kolo. */
typedef void kolo_log_fn(void *arg, enum kolo_log_level level, const char *line);

/* What kolo_comm_create needs. Zero means the default, everywhere. */
struct kolo_comm_attr {
	const struct kolo_id *id; /* read during the call only */
	int rank;                 /* 0 <= rank < nranks; each taken by exactly one */
	int nranks;               /* from 1 to 65536 */
	int timeout_s;   /* seconds until a silent rank is given up; 0: KOLO_TIMEOUT (300), < 0: never */
	int nslots;      /* slots in a link, 2..64; 0: KOLO_SLOTS (4). Rank 0's value counts */
	size_t slot_len; /* bytes of a slot, a multiple of 4096 up to 64 MiB; 0: KOLO_SLOT_LEN. As above */
	/* Its name: "shm"; "verbs" (RDMA), "tcp" or "ofi" (libfabric), through which then all bytes of collectives go but those
	 * of all_to_all, gather and scatter; NULL: shm inside a host, KOLO_NET between hosts. Rank 0's value counts */
	const char *transport;
	/* Its name: "ring"; "board", "exchange" or "direct" where they can be; NULL: the best for each size. Rank 0's value
	 * counts */
	const char *algorithm;
	/* Called with log_arg on the threads that call Kolo with this communicator or one split from it, and on those of
	 * the queues given, until they are destroyed; KOLO_LOG goes on beside it. NULL: none */
	kolo_log_fn *log;
	void *log_arg;
	enum kolo_log_level log_level; /* the highest that it gets; 0: KOLO_LOG_WARN */
	uint64_t reserved[5];          /* must be zero */
};

/* The job that the environment describes. */
struct kolo_job {
	/* "kolo" (ringrun, or by hand), "torchrun", "openmpi", "pmi", "slurm"; NULL: no job */
	const char *launcher;
	int rank, nranks;     /* this rank's number, from 0, and how many there are */
	uint64_t reserved[4]; /* 0 */
};

/* Tells which rank of which job this process is, as kolo_comm_create finds it when it is called without a rank
 * and an id. launcher is static storage. Reads the environment only; never blocks. Errors: KOLO_EINVAL when it
 * describes half a job, or two that contradict each other. */
int kolo_job_get(struct kolo_job *out);

/* Joins the ring and returns when this rank is connected to its neighbours; blocks at most the timeout for all
 * ranks to join, once more to connect, and as long again in each step of measuring the links. With attr NULL, or
 * with its id NULL and nranks 0, rank, nranks and the meeting point come from the environment that a launcher made:
 * ringrun, mpirun (Open MPI), mpiexec (MPICH, PMI), srun (Slurm), torchrun; or from KOLO_RANK and KOLO_NRANKS set
 * by hand. KOLO_ROOT=host:port or KOLO_JOB=text say where the ranks meet, instead of what the launcher offers
 * (kolo(7)).
 *
 * A process may have any number of communicators; a communicator belongs to the process that made it, and a
 * child of fork must not use it. At most 65536 ranks. The caller owns *out and gives it to kolo_comm_destroy.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_EUNREACH, KOLO_ETIMEDOUT (names the ranks that are missing),
 * KOLO_EPEER, KOLO_EMISMATCH, KOLO_ENOTSUP, KOLO_ESYS; then *out is NULL. */
int kolo_comm_create(const struct kolo_comm_attr *attr, struct kolo_comm **out);

/* For kolo_comm_split: this rank takes part but gets no communicator. */
#define KOLO_NOCOLOR (-1)

/* Splits a communicator. A collective over all ranks of `comm`: those with the same color (>= 0) get a
 * communicator of their own, in order of key, ties in order of their rank in `comm`. KOLO_NOCOLOR gives *out NULL
 * and success. Timeout, slots and algorithm are those of `comm`, which stays as it was. Errors as kolo_comm_create
 * and the collectives. */
int kolo_comm_split(struct kolo_comm *comm, int color, int key, struct kolo_comm **out);

/* Leaves the ring, when what queues have to do on comm is done. Else it does not wait for the other ranks: those that
 * still need this one get KOLO_EPEER. NULL is allowed. No call on comm may be running or follow. */
void kolo_comm_destroy(struct kolo_comm *comm);

/* Ends all work on a communicator. From any thread, at any time between create and destroy: every rank's running
 * and later calls on it return KOLO_EABORTED. Returns at once. comm must still be destroyed. */
void kolo_comm_abort(struct kolo_comm *comm);

/* Tells whether a communicator works: 0, else the enum kolo_status with which it failed, the text in
 * kolo_last_error(). From any thread. A failed communicator stays failed. Does not look at the other ranks' health. */
int kolo_comm_status(struct kolo_comm *comm);

/* This rank's number (from 0) and the number of ranks. Never fail. */
int kolo_comm_rank(const struct kolo_comm *comm);
int kolo_comm_nranks(const struct kolo_comm *comm);

/* One direction of one edge of the ring, as seen by this rank. */
struct kolo_link_stats {
	int peer;           /* the rank at the other end; -1 when there is no link (one rank) */
	char transport[12]; /* its name, like "shm" */
	uint64_t bytes;     /* payload through this link, both directions counted apart */
	uint64_t slots;     /* slots that carried it, empty ones included */
	/* Of to_next, else "" and 0: how slots are written, "ordinary" or "streaming" (past the caches), whichever was
	 * faster when the communicator was made, and the rate with it, in 10^9 bytes a second, one way */
	char stores[12];
	double rate;
};

/* Of one rank and one communicator, since it was made. */
struct kolo_stats {
	uint64_t ops; /* operations finished; */
	/* of these by each algorithm (kolo_algorithm_get) */
	uint64_t ring_ops, board_ops, direct_ops, exchange_ops;
	/* Of these, between pairs of ranks: send, recv, group of them; all_to_all, gather, scatter but through the board */
	uint64_t pair_ops;
	/* Payload, counted slot by slot; through the board what was written into the own cells and read in the others';
	 * directly what was written into the others' buffers and read there; between pairs of ranks the messages */
	uint64_t sent_bytes, received_bytes;
	/* What the model says for these ops: for K bytes on N ranks an all-reduce round the ring sends 2K(N-1)/N where
	 * N divides, one through the board K, an exchange (N-1)K. */
	uint64_t model_sent_bytes;
	uint64_t model_received_bytes;
	uint64_t memory_bytes;     /* this rank's share of the memory the communicator took */
	uint64_t slot_len, nslots; /* agreed at creation */
	char algorithm[16];        /* the name that was asked for, "best" without one */
	double hop_us;             /* of a small message from a rank to its next, as rank 0 measured */
	struct kolo_link_stats to_next, from_prev; /* this rank's two links */
	/* Where neighbours are bound to different NUMA nodes of a host: "receiver" or "sender", near whom slots measured
	 * faster when the communicator was made, and now lie; "" where there are none such */
	char slots_near[16];
	uint64_t reserved[2]; /* 0 */
};

/* Counts what went through a communicator since it was made. On the thread that uses comm, between operations.
 * Blocks until what is left to queues on comm is done.
 *
 * Errors: KOLO_EINVAL. */
int kolo_comm_stats(const struct kolo_comm *comm, struct kolo_stats *out);

/* A row of the table that says which algorithm runs. */
struct kolo_algorithm {
	/* "all_reduce", ... "barrier"; "send_recv": of messages between two ranks, of which all_to_all, gather and scatter
	 * consist where no row of theirs says else */
	const char *collective;
	/* "ring": round the ring in slices. "lane": through a small place in shared memory that the two ranks have for it.
	 * "board": each rank writes its vector where all others read it, in one hop.
	 * "exchange": each rank's vector goes to all others whole, and all add up all of them.
	 * "direct": each rank reads and writes the others' buffers where they are; of any memory only where earlier operations of
	 * this collective and size were faster so than round the ring, or in a lane */
	const char *name;
	/* Of the buffers: "any", or "alloc" where all ranks pass memory from kolo_alloc: then such rows come first */
	const char *memory;
	uint64_t min_bytes,
		max_bytes; /* of the whole vector, or the message, both included; UINT64_MAX: no bound */
};

/* Fills *out with row `index`, 0 and up, of the table of `comm`: each collective has its rows together; the first one
 * that fits size and memory counts. Rank 0 made the table when comm was made, from what all ranks had measured; all have the same. A communicator of
 * one rank has none. Never blocks.
 *
 * Errors: KOLO_EINVAL (no such row). */
int kolo_algorithm_get(const struct kolo_comm *comm, int index, struct kolo_algorithm *out);

/* ---- Memory that the others can reach -------------------------------------------------------------------- */

/* Gets memory in which the others read and write a collective's buffers directly. Any part of it serves as src or dst
 * of collectives on comm, like other memory; where all ranks pass such memory for whatever the others need, nothing is
 * copied on the way (kolo_algorithm_get: "direct"); where ranks are on several hosts it is memory like other memory. A collective: every rank calls with the same number of bytes and
 * gets as many of its own in *out, zeroed, at the start of a page. Blocks until all have it. Communicators split from
 * comm take it for plain memory. The caller gives it to kolo_free, or kolo_comm_destroy frees it.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS, and those of the collectives. Nobody got any; kolo_comm_status tells
 * whether comm still works. */
int kolo_alloc(struct kolo_comm *comm, size_t bytes, void **out);

/* Frees what kolo_alloc gave. Every rank calls, in the same place between its collectives; nobody waits. NULL is allowed.
 * Errors: KOLO_EINVAL. */
int kolo_free(struct kolo_comm *comm, void *memory);

/* ---- Queues --------------------------------------------------------------------------------------------- */

/* An operation that gets a queue is left to the queue's thread, which does what is in the queue one after the other; the
 * call returns at once. Arguments are checked in the call; what is wrong with them is its error, and nothing is
 * queued. Until the operation is done src and dst must stay, src must not be written, and dst not be touched.
 *
 * Operations on one communicator are done in the order of their calls, across all queues and NULL: a queue waits for the
 * turn of its operation, and so does a call with NULL. Ranks need not use queues alike. Two communicators whose operations
 * are queued in different orders on different ranks, in one queue each, wait for each other until the timeout.
 *
 * An operation that fails while it is done fails its communicator, as it would without a queue; the queue goes on with
 * what is left. The first failure is kept for kolo_queue_wait.
 *
 * Queues and events may be used from any thread, but not from a kolo_log_fn, and not in a child of fork. A queue that
 * has nothing to do sleeps. */

/* Makes a queue and its thread, which gets no signals but those that it causes itself. The caller gives it to kolo_queue_destroy.
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_queue_create(struct kolo_queue **out);

/* Ends a queue when all in it is done: blocks until then. What failed and no wait told is only in the log. NULL is
 * allowed. No call on queue may be running or follow; events recorded on it stay good. */
void kolo_queue_destroy(struct kolo_queue *queue);

/* Blocks until all is done that was in the queue when it was called.
 * Errors: KOLO_EINVAL; the first failure of the queue since the last wait, with its text, and those of events that it
 * waited for. */
int kolo_queue_wait(struct kolo_queue *queue);

/* An event, not recorded yet. The caller gives it to kolo_event_destroy. Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int kolo_event_create(struct kolo_event **out);

/* Frees an event, at any time: queues that wait for it go on to do so. NULL is allowed. */
void kolo_event_destroy(struct kolo_event *event);

/* Sets an event: it comes when all is done that is in the queue now. What waits for an earlier record goes on to wait for
 * that one. Returns at once. Errors: KOLO_EINVAL, KOLO_ENOMEM; the event stays as it was. */
int kolo_event_record(struct kolo_event *event, struct kolo_queue *queue);

/* Tells whether an event has come: *done = 1 then, or if it was never recorded; 0: not yet. Never blocks. Errors: KOLO_EINVAL. */
int kolo_event_query(struct kolo_event *event, int *done);

/* Blocks until an event has come; returns at once where it was never recorded. Errors: KOLO_EINVAL; what its queue had failed
 * with until then, unless a kolo_queue_wait had told it. */
int kolo_event_wait(struct kolo_event *event);

/* Lets a queue wait for an event as it is recorded now, before what is put in from now on. Returns at once. If the event comes
 * with a failure, that is a failure of this queue too. Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int kolo_queue_wait_event(struct kolo_queue *queue, struct kolo_event *event);

/* ---- Operations made at run time ------------------------------------------------------------------------ */

/* Makes a sum to which each rank's elements go multiplied by *scalar, one element of `type` that is read during
 * the call; floating types multiply as KOLO_AVG does, integers wrap. Ranks may use different scalars. The op is good
 * on this communicator and for this type only. Local. Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int kolo_op_create_premul_sum(struct kolo_comm *comm, const void *scalar, enum kolo_type type,
			      enum kolo_op *out);

/* Frees an op made by kolo_op_create_premul_sum. Errors: KOLO_EINVAL. */
int kolo_op_destroy(struct kolo_comm *comm, enum kolo_op op);

/* ---- Collectives ---------------------------------------------------------------------------------------- */

/* All collectives: every rank calls with the same n, type, op and root. With `queue` NULL they block until dst may be
 * read; else the queue does them (kolo_queue_create). Other than in place as each one says, src and dst must not
 * overlap. n may be 0. Floating-point results depend on nranks, n, type, op, root (of a reduce) and the order of the
 * ring only, and have the same bits on every rank. In the ring ranks follow each other by their numbers, unless hosts
 * then met more often than need be: there the ranks of a host stand together, the lowest first, and hosts in the order
 * of their lowest ranks (to_next.peer of struct kolo_stats tells).
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM with a queue (nothing was done, comm still works); KOLO_EMISMATCH, KOLO_EPEER,
 * KOLO_ETIMEDOUT, KOLO_EABORTED, KOLO_ENOMEM, KOLO_ESYS: dst is undefined, and a rank that is just
 * writing there may finish that piece, in memory of kolo_alloc over RDMA several, until it knows; comm stays failed on
 * all ranks. A rank whose part was already over learns it at its next call; ranks that disagree in their very last call, without
 * waiting for each other in it (two roots of a broadcast, say), do not: a barrier behind it tells. */

/* dst = src combined over all ranks, on every rank; n elements each. In place: src == dst. Each element is
 * added in ring order, from the rank after its owner round to the owner: element i belongs to rank
 * i / ceil(n / nranks). Sends 2K(N-1)/N bytes per rank for K bytes and N ranks where N divides n; through
 * the board (kolo_algorithm_get) K; directly a rank writes K(N-1)/N and reads as much. */
int kolo_all_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		    enum kolo_op op, struct kolo_queue *queue);

/* dst on rank `root` = src combined over all ranks; n elements each. In place: src == dst on root. dst is not
 * touched elsewhere and may be NULL there. Added from the rank after root round to root. K bytes are sent by
 * every rank but root; through the board by root too; directly every rank but root writes K/N, but nothing below
 * 256 KiB in plain memory. */
int kolo_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		enum kolo_op op, int root, struct kolo_queue *queue);

/* dst on every rank = src on rank `root`; n elements each. In place: src == dst on root. src is not read
 * elsewhere and may be NULL there. K bytes are sent by every rank but the one before root;
 * through the board by root only; directly in plain memory by none, but in place from 32 KiB on root writes K/N to
 * each of the others, who read the rest. */
int kolo_broadcast(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		   int root, struct kolo_queue *queue);

/* dst = block `rank` of src combined over all ranks; dst has n elements, src nranks * n. In place:
 * dst == src + rank * n elements. Added as all_reduce of nranks * n elements does. Sends K(N-1)/N of src's K
 * bytes; through the board K. src is left as it was, except in place. */
int kolo_reduce_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
			enum kolo_op op, struct kolo_queue *queue);

/* kolo_reduce_scatter with blocks of any size: counts[r] elements for rank r, nranks of them, the same on all ranks; src has
 * as many as they are together, block after block, dst counts[rank]. In place: dst is where the own block of src is. */
int kolo_reduce_scatter_v(struct kolo_comm *comm, const void *src, void *dst, const size_t *counts,
			  enum kolo_type type, enum kolo_op op, struct kolo_queue *queue);

/* Block r of dst = src of rank r, on every rank; src has n elements, dst nranks * n. In place:
 * src == dst + rank * n elements. Sends K(N-1)/N of dst's K bytes; through the board K/N. */
int kolo_all_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		    struct kolo_queue *queue);

/* kolo_all_gather with blocks of any size: src of rank r has counts[r] elements, dst as many as all together, block after
 * block; counts are nranks, the same on all ranks. In place: src is where the own block of dst is. */
int kolo_all_gather_v(struct kolo_comm *comm, const void *src, void *dst, const size_t *counts,
		      enum kolo_type type, struct kolo_queue *queue);

/* Returns when every rank has called it. Moves no payload. */
int kolo_barrier(struct kolo_comm *comm, struct kolo_queue *queue);

/* ---- Between pairs of ranks ------------------------------------------------------------------------------ */

/* Messages from one rank to another, and the collectives that consist of them. A message is n elements of a type; both ends
 * must name the same, or the receiver gets KOLO_EMISMATCH. It goes through a lane (kolo_algorithm_get: "send_recv"), a place
 * of some KiB that two ranks have in shared memory from the first message on, or directly: then both ends copy a part of
 * it. A lane that is idle gives most of its memory back when a rank has many. Where the ranks of comm are on several hosts
 * lanes are connections (KOLO_LANES of them stay open while idle): the first message to a rank waits until that one
 * waits in any call on its communicator, and a large one needs its receiver. Of arrays of counts each has
 * nranks elements, which are read during the call; parts lie one after the other, without gaps. n and counts may be 0.
 * Between two ranks sends and these collectives come in one order: where one rank sends before a gather, the other must receive
 * before it, or gets KOLO_EMISMATCH or waits. A collective may wait until all ranks have come to
 * earlier ones, whoever sends or receives in them.
 * Conventions and errors are those of the collectives. */

/* Sends n elements to rank `peer`, which must call kolo_recv with the same n and type; messages from one rank to another are
 * received in the order in which they were sent. With `queue` NULL it blocks until src may be written again: a small message
 * may still be on its way then, a large one has been received. Two ranks that first send large messages to each
 * other and then receive wait for each other until the timeout: kolo_group_begin is for that. */
int kolo_send(struct kolo_comm *comm, const void *src, size_t n, enum kolo_type type, int peer,
	      struct kolo_queue *queue);

/* Receives n elements, the next message from rank `peer`. With `queue` NULL it blocks until dst may be read. */
int kolo_recv(struct kolo_comm *comm, void *dst, size_t n, enum kolo_type type, int peer,
	      struct kolo_queue *queue);

/* Part r of dst = part `rank` of src on rank r; n elements in each of the nranks parts. src and dst must not overlap. Sends
 * K(N-1)/N of src's K bytes. A collective: every rank calls. */
int kolo_all_to_all(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		    struct kolo_queue *queue);

/* kolo_all_to_all with parts of any size: send_counts[r] elements of src go to rank r, recv_counts[r] of dst come from there,
 * where send_counts[rank] must be as many. */
int kolo_all_to_all_v(struct kolo_comm *comm, const void *src, const size_t *send_counts, void *dst,
		      const size_t *recv_counts, enum kolo_type type, struct kolo_queue *queue);

/* Part r of dst on rank `root` = src of rank r; src has n elements, dst nranks * n, and is not touched elsewhere, where it may
 * be NULL. In place: src == dst + rank * n elements on root. A collective. */
int kolo_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type, int root,
		struct kolo_queue *queue);

/* kolo_gather with parts of any size: rank r gives n elements, and counts[r] on root must be as many. counts are read on root
 * only, and may be NULL elsewhere. In place: src is where root's own part of dst is. */
int kolo_gather_v(struct kolo_comm *comm, const void *src, size_t n, void *dst, const size_t *counts,
		  enum kolo_type type, int root, struct kolo_queue *queue);

/* dst on rank r = part r of src on rank `root`; dst has n elements, src nranks * n, and is not read elsewhere, where it may be
 * NULL. In place: dst == src + rank * n elements on root. A collective. */
int kolo_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type, int root,
		 struct kolo_queue *queue);

/* kolo_scatter with parts of any size: rank r gets n elements, and counts[r] on root must be as many. counts are read on root
 * only, and may be NULL elsewhere. In place: dst is where root's own part of src is. */
int kolo_scatter_v(struct kolo_comm *comm, const void *src, const size_t *counts, void *dst, size_t n,
		   enum kolo_type type, int root, struct kolo_queue *queue);

/* ---- Groups --------------------------------------------------------------------------------------------- */

/* Calls of collectives, sends and recvs between these two are done together, at the end: of each communicator first all
 * sends and recvs at once, in any order without waiting for each other in a circle, then its collectives in the
 * order of their calls. A rank may send to itself there. Communicators don't wait for each other: a thread that uses several
 * ranks of one ring calls for all of them in one group.
 *
 * A group belongs to the thread that began it, and groups nest: only the outermost end does anything. Arguments are checked in
 * the call; one that fails is left out, and the others are done. Buffers must stay until the end, or, with a queue, until that is
 * done. Where calls name several queues, the group is done by the first one, when all have come to it, and they go on
 * behind it. kolo_alloc, kolo_free and kolo_comm_split are refused while a group is open; calls on queues and events are not part
 * of it. What its calls name, communicators and queues, must stay until its end. */

/* Begins a group. Never fails. */
int kolo_group_begin(void);

/* Ends it; the outermost end does its calls. Blocks until they are done, unless all have queues.
 * Errors: KOLO_EINVAL (no group was begun), KOLO_ENOMEM, KOLO_ESYS (nothing was done); the first failure of a call, where one
 * has no queue; kolo_queue_wait tells it for each queue. A send to this rank itself without its recv fails comm: KOLO_EMISMATCH. */
int kolo_group_end(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
