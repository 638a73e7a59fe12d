/* Kolo: collectives on a ring.
 *
 * A communicator joins `nranks` ranks into a ring. A rank is a process or a thread. Every rank
 * calls the same collectives in the same order. A collective blocks until its result may be read,
 * or a queue does it later.
 *
 * Conventions, for every function unless it says otherwise:
 * - An int result is 0 (KOLO_OK) or a negative enum kolo_status. The text of an error is in
 *   kolo_last_error().
 * - `n` counts elements, `len` counts bytes. Buffers need no alignment.
 * - One thread at a time uses a communicator. Other threads may call kolo_comm_abort and
 *   kolo_comm_status at any time.
 * - The library never prints, never ends the process and installs no signal handler.
 *
 * Memory: with the default slots a communicator takes at most KOLO_DEFAULT_MEMORY bytes per rank,
 * shared memory included. Sending messages to more than 16 ranks at a time adds 64 KiB for each
 * further rank. If ranks are on several hosts, it is up to 72 KiB for each rank to which messages
 * go, and as much for each from which they come. Over RDMA and libfabric it is up to 320 KiB. Small
 * operations in the orders "tree" and "grid" send such messages: over TCP and on up to 16 hosts of
 * 8 ranks, those of the order "grid" are within KOLO_DEFAULT_MEMORY. Each group beyond 32 adds 32
 * KiB. */
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
#define KOLO_DEFAULT_MEMORY (8 << 20)

enum kolo_status {
	KOLO_OK = 0,
	KOLO_EINVAL = -1,     /* an argument or environment variable is wrong; nothing was done */
	KOLO_ENOMEM = -2,     /* out of memory */
	KOLO_ENOTSUP = -3,    /* this build or this machine can't do that */
	KOLO_EUNREACH = -4,   /* a rank could not be reached while a communicator was made */
	KOLO_ETIMEDOUT = -5,  /* another rank did not come within the timeout */
	KOLO_EPEER = -6,      /* another rank died or left */
	KOLO_EMISMATCH = -7,  /* ranks called different collectives, or with different arguments */
	KOLO_ESYS = -8,       /* the operating system refused something; the text has its reason */
	KOLO_EABORTED = -9,   /* some rank called kolo_comm_abort */
	KOLO_EOVERFLOW = -10, /* gradients overflowed, and the loss scale can't become smaller */
};

/* Element types.
 *
 * - Integers wrap.
 * - KOLO_F8E4M3 and KOLO_F8E5M2 are the OCP 8-bit formats. e4m3 has no infinity: values that are
 *   too large for it become +-448.
 * - KOLO_F16, KOLO_BF16 and the 8-bit types are combined in float and rounded to nearest even
 *   after each addition.
 * - KOLO_C64 and KOLO_C128 are complex numbers: the real part, then the imaginary part, each a
 *   KOLO_F32 or KOLO_F64.
 * - Those from KOLO_I32_I32 on are pairs of a value and an index, as in C
 *   `struct { double value; int32_t index; }`. Pairs of 8-byte values have 4 unused bytes at the
 *   end, which are copied like the rest.
 * - kolo_type_bytes makes further values: elements that only the program knows. */
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
	KOLO_I16,
	KOLO_U16,
	KOLO_C64,
	KOLO_C128,
	KOLO_I32_I32,
	KOLO_I64_I32,
	KOLO_F32_I32,
	KOLO_F64_I32,
	KOLO_TYPE_LAST = 0x7fffffff, /* keeps the enum wide enough for kolo_type_bytes */
};

/* How elements are combined.
 *
 * - KOLO_MIN and KOLO_MAX return NaN if an element is NaN. They take -0 as less than +0.
 * - KOLO_AVG of a floating type multiplies each rank's element by 1/nranks before it is added. It
 *   multiplies in float, for KOLO_F64 in double.
 * - KOLO_AVG of an integer type divides the wrapped sum by nranks, towards zero.
 * - KOLO_BAND, KOLO_BOR and KOLO_BXOR combine bits. KOLO_LAND, KOLO_LOR and KOLO_LXOR take an
 *   element for true if it is not 0, and make 0 or 1, also on one rank.
 * - KOLO_MINLOC and KOLO_MAXLOC take the pair with the smallest or largest value; of equal values
 *   the one with the smallest index. -0 equals +0. NaN counts as smaller and as larger than all
 *   numbers.
 * - kolo_op_create_premul_sum and kolo_op_create make further values.
 *
 * A call with an op that its type does not have returns KOLO_EINVAL:
 *
 *     integer types   all but KOLO_MINLOC and KOLO_MAXLOC
 *     floating types  KOLO_SUM, KOLO_PROD, KOLO_MIN, KOLO_MAX, KOLO_AVG
 *     complex types   KOLO_SUM, KOLO_PROD, KOLO_AVG
 *     pairs           KOLO_MINLOC, KOLO_MAXLOC
 *
 * A product of complex numbers is (ac - bd) + (ad + bc)i, each product and sum rounded. */
enum kolo_op {
	KOLO_SUM,
	KOLO_PROD,
	KOLO_MIN,
	KOLO_MAX,
	KOLO_AVG,
	KOLO_BAND,
	KOLO_BOR,
	KOLO_BXOR,
	KOLO_LAND,
	KOLO_LOR,
	KOLO_LXOR,
	KOLO_MINLOC,
	KOLO_MAXLOC,
	KOLO_OP_LAST = 0x7fffffff, /* keeps the enum wide enough for ops made at run time */
};

struct kolo_comm;  /* a communicator: one rank's view of its ring */
struct kolo_queue; /* a list of operations that one thread does in order */
struct kolo_event; /* a place in a queue; it can be waited for */

/* ---- Versions, names, errors ----------------------------------------------------------------- */

/* The version of the library in use: major * 10000 + minor * 100 + patch. Never fails. */
int kolo_version(void);

/* The text of the last error on the calling thread, or "" if there was none. It names the rank
 * and its host, what was tried, what came back and what to do. It is valid until the next Kolo
 * call on this thread. */
const char *kolo_last_error(void);

/* Sets the text of kolo_last_error on the calling thread and returns `status`. `format` and what
 * follows are as for printf. It keeps at most 511 bytes of the text. Layers on top of Kolo use
 * it. Never fails. */
int kolo_error_set(int status, const char *format, ...);

/* Describes a code of enum kolo_status in a few words. The text has static storage and is never
 * NULL. */
const char *kolo_strerror(int status);

/* Bytes of one element; 0 if there is no such type. */
size_t kolo_type_size(enum kolo_type type);

/* The type of elements of `size` bytes, 1 to KOLO_MOST_BYTES, that Kolo knows nothing of.
 * Reductions with ops from kolo_op_create take it. Its name is "bytes". Other collectives do not
 * take it: move such elements as KOLO_U8, `size` times as many. Never fails; for other sizes
 * kolo_type_size of the result is 0. */
enum { KOLO_MOST_BYTES = 256 };
enum kolo_type kolo_type_bytes(size_t size);

/* The name of a type or an op, like "f32" or "sum"; NULL if there is no such type or op. The text
 * has static storage. */
const char *kolo_type_name(enum kolo_type type);
const char *kolo_op_name(enum kolo_op op);

/* Converts n elements: dst = src * scale. The types are any two of KOLO_F32, KOLO_F16, KOLO_BF16,
 * KOLO_F8E4M3 and KOLO_F8E5M2. It multiplies in float and rounds once, to nearest even. If both
 * types are equal dst may be src; otherwise src and dst must not overlap. Local.
 *
 * Errors: KOLO_EINVAL. */
int kolo_cast(const void *src, enum kolo_type src_type, void *dst, enum kolo_type dst_type,
	      size_t n, float scale);

/* Lists the cores that the calling thread may run on. For each core it gives the number of one
 * hardware thread, as sched_setaffinity takes it. Cores that share caches are next to each other.
 * A build without hwloc lists every hardware thread.
 *
 * Writes at most `max` numbers to `cpus`. Returns how many cores there are, at least 1. Never
 * fails. */
int kolo_cores(int *cpus, int max);

/* ---- What this library is -------------------------------------------------------------------- */

/* An environment variable of Kolo's own. Variables of launchers are not listed. All texts have
 * static storage, except `value`. */
struct kolo_env_info {
	const char *name;
	const char *value;    /* as getenv returns it; NULL: unset */
	const char *help;     /* what the variable sets, in a few words */
	char preset[24];      /* the default, as text; "": there is none */
	char range[64];       /* the values that it may have, in words */
	int secret;           /* 1: do not show its value to others */
	int good;             /* 0: kolo_comm_create refuses the value; 1: all other cases */
	uint64_t reserved[4]; /* zero */
};

/* Describes one environment variable: number `index`, from 0. It checks values that are numbers,
 * and those of KOLO_NET, KOLO_LOG and KOLO_TRACE, by the same rules as the library's own use of
 * them. For KOLO_LOG it opens the file. If `good` is 0, kolo_last_error has the reason. A value
 * that says where ranks meet is not checked: only joining can do that.
 *
 * Errors: KOLO_EINVAL if there is no variable of this number, so that a loop ends. */
int kolo_env_get(int index, struct kolo_env_info *out);

/* A part of the library. A build may lack it, or a machine may be unable to use it. */
struct kolo_part_info {
	const char *kind;     /* "transport", "library" or "kernels"; static storage */
	const char *name;     /* "shm", "hwloc", "avx512", ...; static storage */
	int built;            /* 1: this build has it */
	int usable;           /* 1: it works in this process, on this machine */
	char reason[256];     /* why it is not built or not usable; "": it is usable */
	uint64_t reserved[4]; /* zero */
};

/* Describes one part of the library: number `index`, from 0. The order is: transports, the
 * preferred one first; then libraries; then kernels, the fastest last. Kolo uses the last usable
 * row of kernels. To find whether a transport is usable, the call opens one end of a link.
 *
 * Errors: KOLO_EINVAL if there is no part of this number, so that a loop ends. */
int kolo_part_get(int index, struct kolo_part_info *out);

/* ---- Communicators --------------------------------------------------------------------------- */

/* A meeting point of ranks. It is plain bytes: copy it, print it as hex, send it to the ranks in
 * any way. Whoever has these bytes can join, so treat them as a secret. */
struct kolo_id {
	unsigned char bytes[128];
};

/* Makes an id and serves it on a background thread of this process. The process need not become a
 * rank, but it must live until all ranks have joined.
 *
 * One id makes one communicator. An id that is never used up keeps its thread (asleep) and its
 * socket until the process ends. Ranks of other hosts reach the id only if KOLO_IFACE names an
 * interface that they can reach. Otherwise the id is for this host. May block for a few system
 * calls.
 *
 * Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int kolo_id_create(struct kolo_id *out);

/* Makes the id of a meeting point at an address of rank 0's host: "HOST:PORT" or "[IPv6]:PORT", at
 * most 119 characters. The same text gives the same bytes, so each rank can make it, and nothing
 * need be sent. Rank 0 serves it in kolo_comm_create; the others wait for that within their
 * timeout. Whoever knows the address can join. It makes one communicator at a time. Returns at
 * once; looks up no name.
 *
 * Errors: KOLO_EINVAL. */
int kolo_id_at(const char *address, struct kolo_id *out);

/* Ends what kolo_comm_create of this process waits for, in all calls with this id that have not
 * returned: within 200 ms they return KOLO_EABORTED. If this rank had joined, the other ranks
 * return an error too, which names it; if not, they go on waiting for it. A call that is made later
 * is not ended. Any thread may call it, except inside a kolo_log_fn; id may be NULL. Never blocks.
 */
void kolo_id_abort(const struct kolo_id *id);

/* Levels of the log. Each includes the levels above it. */
enum kolo_log_level {
	KOLO_LOG_ERROR = 1, /* a communicator has failed */
	KOLO_LOG_WARN,      /* a stranger's connection was dropped, a trace can't be written, ... */
	KOLO_LOG_INFO,      /* what was chosen, and why */
	KOLO_LOG_TRACE,     /* each operation, and how long it took */
};

/* Receives a line of the log, without a newline. The line is valid only during the call. The
 * function must not call Kolo. */
typedef void kolo_log_fn(void *arg, enum kolo_log_level level, const char *line);

/* Lets another library on the calling thread go on. The function must not block, nor call Kolo. */
typedef void kolo_progress_fn(void *arg);

/* What kolo_comm_create needs. Zero means the default in every field. */
struct kolo_comm_attr {
	const struct kolo_id *id; /* read during the call only */
	int rank;                 /* 0 <= rank < nranks; exactly one rank has each number */
	int nranks;               /* 1 to 65536 */
	/* Seconds until a silent rank is given up, at most 1000000. 0: KOLO_TIMEOUT (default:
	 * 300). < 0: never */
	int timeout_s;
	/* Slots in a link, 2 to 64. 0: KOLO_SLOTS (default: 7). Rank 0's value counts */
	int nslots;
	/* Bytes of a slot, a multiple of 4096 up to 64 MiB. 0: KOLO_SLOT_LEN. If that is unset too:
	 * 256 KiB. Or 120 KiB if TCP between hosts waits between packets (congestion control bbr),
	 * and the order is not "grid". In that order slots of the ring have a quarter of it, those
	 * of groups and rails at most half. Rank 0's value counts */
	size_t slot_len;
	/* The name of a transport: "shm", "verbs" (RDMA), "tcp" or "ofi" (libfabric). Collectives
	 * then use this transport for everything, even inside a host; all_to_all, gather and
	 * scatter are not affected. NULL: shm inside a host, KOLO_NET between hosts. Rank 0's
	 * value counts */
	const char *transport;
	/* The name of an algorithm: "ring", "board", "slices", "exchange", "doubling", "partials",
	 * "center", "shares", "direct", "pairwise" or "grid". All but the ring run wherever they
	 * can; other operations use what has no limits. "board", "slices" and "direct" need all
	 * ranks on one host. It must add in the order below: "ring" does in its own alone,
	 * "doubling" and "pairwise" in the tree's alone, "partials", "center", "shares" and "grid"
	 * in the grid's alone. NULL: the best for each size. Rank 0's value counts */
	const char *algorithm;
	/* Receives lines of the log, with log_arg. It is called on the threads that use this
	 * communicator, or one split from it, and on the threads of their queues. This ends when
	 * these are destroyed. KOLO_LOG works independently of it. NULL: none */
	kolo_log_fn *log;
	void *log_arg;
	enum kolo_log_level log_level; /* the highest level for `log`; 0: KOLO_LOG_WARN */
	/* The order in which elements of all ranks are added: "ring", "tree" or "grid" (see
	 * kolo_all_reduce). NULL: KOLO_ORDER. If that is unset too: "grid" if the ranks are on
	 * several hosts, equally many on each and more than one, or if groups are given; else, or
	 * with an algorithm of another order, "ring". Rank 0's value counts. A communicator made
	 * by kolo_comm_split has its parent's wish, or another one (kolo_comm_split_order) */
	const char *order;
	/* Order "grid": 1 + the number of the group that this rank is in, at most 65536. 0:
	 * KOLO_SHAPE (default: the ranks of a host are a group). All ranks set it, or none. Groups
	 * must have equally many ranks. In a group ranks stand by their numbers */
	uint64_t group;
	/* A thread that waits in a call on this communicator calls it, with progress_arg: first
	 * after 20 us, then every 20 to 100 us. So another library that works only in its own
	 * calls, like most MPIs, goes on meanwhile. While communicators or memory are made it is
	 * called every ms, and threads of queues never call it. A communicator split from this one
	 * has it too. NULL: none */
	kolo_progress_fn *progress;
	void *progress_arg;
	uint64_t reserved[1]; /* must be zero */
};

/* The job that the environment describes. */
struct kolo_job {
	/* "kolo" (ringrun, or by hand), "torchrun", "openmpi", "pmi", "slurm"; NULL: no job */
	const char *launcher;
	int rank, nranks;     /* this rank's number, from 0, and the number of ranks */
	uint64_t reserved[4]; /* zero */
};

/* Finds which rank of which job this process is. kolo_comm_create finds the same if it is called
 * without a rank and an id. `launcher` has static storage. Reads the environment only; never
 * blocks.
 *
 * Errors: KOLO_EINVAL if the environment describes half a job, or two jobs that contradict each
 * other. */
int kolo_job_get(struct kolo_job *out);

/* Makes a communicator: joins the ring. Returns when this rank is connected to its neighbours.
 *
 * With attr NULL, or with its id NULL and its nranks 0, the environment gives rank, nranks and
 * the meeting point. A launcher sets it: ringrun, mpirun (Open MPI), mpiexec (MPICH, PMI), srun
 * (Slurm) or torchrun. Or you set KOLO_RANK and KOLO_NRANKS by hand. KOLO_ROOT=host:port or
 * KOLO_JOB=text replace the launcher's meeting point (kolo(7)).
 *
 * The call blocks at most the timeout until all ranks have joined. It may take the timeout again
 * to connect, and again in each step that measures the links.
 *
 * A process may have any number of communicators. A communicator belongs to the process that made
 * it. In a child of fork its functions return KOLO_EINVAL, kolo_comm_abort and kolo_comm_destroy
 * do nothing, and the parent goes on undisturbed. The caller owns *out and gives it to
 * kolo_comm_destroy.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_EUNREACH, KOLO_ETIMEDOUT (names the ranks that are
 * missing), KOLO_EPEER, KOLO_EMISMATCH, KOLO_EABORTED (kolo_id_abort), KOLO_ENOTSUP, KOLO_ESYS.
 * Then *out is NULL. */
int kolo_comm_create(const struct kolo_comm_attr *attr, struct kolo_comm **out);

/* For kolo_comm_split: this rank takes part but gets no communicator. */
#define KOLO_NOCOLOR (-1)

/* Splits a communicator. A collective over all ranks of `comm`; blocks. Ranks with the same color
 * (>= 0) get a communicator of their own. Its ranks are ordered by key; equal keys are ordered by
 * rank in `comm`. With KOLO_NOCOLOR *out becomes NULL and the call succeeds.
 *
 * The new communicator has the timeout, slots, transport, algorithm, order and log of `comm`. If
 * nobody named an order, it has the one that suits its own ranks (attr->order). In the order
 * "grid" they keep their groups if attr->group or KOLO_SHAPE gave them. Otherwise the ranks of a
 * host are a group. Groups of different sizes are refused: KOLO_ENOTSUP. `comm` does not change.
 * The caller gives *out to kolo_comm_destroy.
 *
 * Errors: those of kolo_comm_create and of the collectives. */
int kolo_comm_split(struct kolo_comm *comm, int color, int key, struct kolo_comm **out);

/* Makes another communicator of the same ranks. A collective over all ranks of `comm`; blocks. It
 * is as kolo_comm_split with one color and no key, but measures nothing: it has what was measured
 * and chosen when `comm` was made. So it takes less time. Operations on the two are independent:
 * two threads, or two parts of a program that do not know of each other, need not agree on an
 * order. `comm` does not change. The caller gives *out to kolo_comm_destroy.
 *
 * Errors: those of kolo_comm_split. */
int kolo_comm_dup(struct kolo_comm *comm, struct kolo_comm **out);

/* Splits a communicator as kolo_comm_split does, into ones that add in another order: `order`, as
 * in struct kolo_comm_attr; NULL: as kolo_comm_split. All ranks pass the same one. If rank 0 asked
 * for an algorithm when `comm` was made, that must add in this order too.
 *
 * Errors: those of kolo_comm_split; KOLO_ENOTSUP (no such order, or the algorithm has another). */
int kolo_comm_split_order(struct kolo_comm *comm, int color, int key, const char *order,
			  struct kolo_comm **out);

/* Leaves the ring and frees a communicator. First it waits for this rank's queued operations on
 * comm. It does not wait for other ranks: a rank that still needs this one gets KOLO_EPEER. Links
 * through RDMA may wait up to 5 s until their last bytes are sent. NULL is allowed. No other call
 * on comm may be running or follow. */
void kolo_comm_destroy(struct kolo_comm *comm);

/* Ends all work on a communicator. On every rank, running and later calls on it return
 * KOLO_EABORTED, unless it had failed before. Their text has kolo_last_error of the calling thread,
 * if there is one: the cause, after a failed call. Any thread may call it, at any time between
 * create and destroy. Returns at once. comm must still be destroyed. */
void kolo_comm_abort(struct kolo_comm *comm);

/* Writes a line to the logs of a communicator: where KOLO_LOG says, and to attr->log. Each gets it
 * if its level includes `level`. It is for libraries that are built on Kolo. A line is cut after
 * 511 bytes. Returns at once; never fails. */
void kolo_comm_log(const struct kolo_comm *comm, enum kolo_log_level level, const char *line);

/* Reports whether a communicator works: 0, or the enum kolo_status with which it failed and the
 * text in kolo_last_error(). Any thread may call it. A failed communicator stays failed. The call
 * does not look at the health of other ranks. Across hosts it knows of a failure elsewhere only
 * after this rank's next call. Errors: KOLO_EINVAL if comm is NULL. */
int kolo_comm_status(struct kolo_comm *comm);

/* Sets this rank's timeout on a communicator: `seconds` is as timeout_s of struct kolo_comm_attr,
 * except 0. Other ranks keep theirs, and communicators that were split from this one, too. A wait
 * that goes on sees it. Any thread may call it, at any time between create and destroy. Returns at
 * once.
 *
 * Errors: KOLO_EINVAL. */
int kolo_timeout_set(struct kolo_comm *comm, int seconds);

/* The number of this rank and the number of ranks. Ranks count from 0. Never fail. */
int kolo_comm_rank(const struct kolo_comm *comm);
int kolo_comm_nranks(const struct kolo_comm *comm);

/* The number of ranks on this rank's host, itself included. It equals kolo_comm_nranks if all ranks
 * are on one host. Containers with different network namespaces count as hosts. Never fails. */
int kolo_comm_local_ranks(const struct kolo_comm *comm);

/* The name of the order of additions: "ring", "tree" or "grid". It has static storage. Never
 * fails. */
const char *kolo_comm_order(const struct kolo_comm *comm);

/* The number of groups of the order "grid", each of nranks / groups ranks. 0: the order is another
 * one. Never fails. */
int kolo_comm_groups(const struct kolo_comm *comm);

/* The rank with this number in a group of the order "grid". Both count from 0. -1: there is none.
 * Never fails. */
int kolo_comm_group_rank(const struct kolo_comm *comm, int group, int number);

/* One direction of one edge of the ring, as this rank counts it. */
struct kolo_link_stats {
	int peer;           /* the rank at the other end; -1: there is no link (one rank) */
	char transport[12]; /* the name of its transport, like "shm" */
	uint64_t bytes;     /* payload through this link, in this direction alone */
	uint64_t slots;     /* slots that carried it, empty ones included */
	/* How slots are written now: "ordinary", or "streaming" (past the caches). At first it is
	 * the way that measured better when the communicator was made. It changes if later writes
	 * take longer or shorter. Set for to_next alone; otherwise "" */
	char stores[12];
	/* The rate measured when the communicator was made, in 10^9 bytes per second, one way. Set
	 * for to_next alone; otherwise 0 */
	double rate;
};

/* Counts of one rank and one communicator, since it was made. */
struct kolo_stats {
	/* Operations finished: the sum of the counts below, and of those of other algorithms
	 * (kolo_algorithm_ops) */
	uint64_t ops;
	/* Operations by each algorithm (kolo_algorithm_get) */
	uint64_t ring_ops, board_ops, direct_ops, exchange_ops;
	/* Operations between pairs of ranks: each send and recv, each group of these, and each
	 * all_to_all, gather or scatter that no algorithm counts */
	uint64_t pair_ops;
	/* Payload. Ring and exchange: counted slot by slot. Board: sent is written for others into
	 * this rank's cells, received is read from other ranks' cells. Direct: sent is written into
	 * other ranks' buffers, received is read from them. Pairwise, and between pairs of ranks:
	 * the messages */
	uint64_t sent_bytes, received_bytes;
	/* What the formulas give for these operations: for collectives the table at
	 * kolo_all_reduce, for messages their bytes */
	uint64_t model_sent_bytes;
	uint64_t model_received_bytes;
	uint64_t memory_bytes;     /* this rank's share of the communicator's memory */
	uint64_t slot_len, nslots; /* of the ring, agreed when the communicator was made */
	char algorithm[16];        /* the name that rank 0 asked for; "best": none */
	double hop_us;             /* microseconds of a small message to the next rank, by rank 0 */
	struct kolo_link_stats to_next, from_prev; /* this rank's two links */
	/* If neighbours of one host are bound to different NUMA nodes: "receiver" or "sender".
	 * Slots lie near that end, because it measured faster when the communicator was made.
	 * Otherwise "" */
	char slots_near[16];
	uint64_t reserved[2]; /* zero */
};

/* Reports what went through a communicator since it was made. Call it on the thread that uses
 * comm, between operations. Blocks until this rank's queued operations on comm are done.
 *
 * Errors: KOLO_EINVAL. */
int kolo_comm_stats(const struct kolo_comm *comm, struct kolo_stats *out);

/* A row of the table that says which algorithm runs. The algorithms are:
 *
 * - "ring": slices go round the ring, from rank to rank.
 * - "board": each rank writes its vector where all other ranks read it, in one hop.
 * - "slices": each rank writes its vector there slice by slice. Of a reduction each rank adds up a
 *   part of every slice, and writes the sums for the others.
 * - "exchange": each rank's whole vector goes to all others, and every rank adds all of them.
 * - "direct": each rank reads and writes the other ranks' buffers in place. In memory that is not
 *   from kolo_alloc it must have been faster than what runs else, in earlier operations of
 *   this kind and size.
 * - "doubling" and "pairwise", of the order "tree", and "partials", "center", "shares" and "grid",
 * of the order "grid": see kolo_all_reduce.
 * - "lane": a message goes through a small place in shared memory that only its two ranks use. */
struct kolo_algorithm {
	/* "all_reduce", ... "barrier"; or "send_recv" for messages between two ranks. all_to_all,
	 * gather and scatter are such messages if no row of their own fits */
	const char *collective;
	const char *name; /* of the algorithm */
	/* Which buffers it is for: "any", or "alloc" if all ranks pass memory from kolo_alloc.
	 * Rows with "alloc" come first */
	const char *memory;
	/* Bytes of the whole vector, or of the message. Both bounds are included. UINT64_MAX: no
	 * bound */
	uint64_t min_bytes, max_bytes;
};

/* Describes one row of the table of algorithms of `comm`: number `index`, from 0. The rows of a
 * collective stand together; the first row that fits size and memory counts. Rank 0 made the
 * table when comm was made, from what all ranks had measured. Every rank has the same table. A
 * communicator of one rank has no rows. Never blocks.
 *
 * Errors: KOLO_EINVAL if there is no such row. */
int kolo_algorithm_get(const struct kolo_comm *comm, int index, struct kolo_algorithm *out);

/* Tells how long a row's algorithm was expected to take. Returns microseconds for a vector of
 * `bytes`; the row's range need not have them. The table rests on these estimates: hops, and bytes
 * that cross between ranks, at the rates that were measured when comm was made. Below 0: there is
 * none. That is so for messages and barriers, for what the algorithm can't do, and if a pointer is
 * NULL. Never blocks. */
double kolo_algorithm_time(const struct kolo_comm *comm, const struct kolo_algorithm *row,
			   uint64_t bytes);

/* The number of collectives that the algorithm of this name has done on comm; 0 if there is no such
 * algorithm. Call it as you call kolo_comm_stats. */
uint64_t kolo_algorithm_ops(const struct kolo_comm *comm, const char *name);

/* ---- Memory that the others can reach -------------------------------------------------------- */

/* Allocates memory that the other ranks can reach. Any part of it may be src or dst of
 * collectives on comm, like other memory. Inside a host, if all ranks pass such memory for the
 * buffers that others need, nothing is copied on the way (kolo_algorithm_get: "direct"). Across
 * hosts, links through RDMA send from it and receive into it without a copy; other links treat it
 * like other memory.
 *
 * A collective: every rank calls with the same number of bytes. *out is this rank's own memory of
 * that size, zeroed, at the start of a page. Waits for this rank's queued operations on comm,
 * then blocks until all ranks have their memory. Communicators split from comm treat it like
 * other memory. The caller gives *out to kolo_free, or kolo_comm_destroy frees it.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS, and those of the collectives. After an error no
 * rank has got memory; kolo_comm_status reports whether comm still works. */
int kolo_alloc(struct kolo_comm *comm, size_t bytes, void **out);

/* Frees memory from kolo_alloc. Every rank calls it in the same place between its collectives. It
 * waits for this rank's queued operations on comm, but not for other ranks. NULL is allowed.
 *
 * Errors: KOLO_EINVAL. */
int kolo_free(struct kolo_comm *comm, void *memory);

/* ---- Queues ---------------------------------------------------------------------------------- */

/* A call with a queue returns at once. The queue's thread does the operations in the queue one
 * after the other. Without any it looks for more for 50 us, giving its core away, and then sleeps.
 * The call checks the arguments. If they are wrong it returns the error, and nothing is queued.
 * Until the operation is done, src and dst must stay valid, src must not be written, and dst must
 * not be read or written.
 *
 * Order: operations on one communicator are done in the order of their calls, over all queues and
 * calls without a queue. A queue waits for the turn of its operation, and so does a call with
 * `queue` NULL. Ranks need not use queues alike.
 *
 * Example of a deadlock: rank 0 puts an operation on communicator A and then one on B into one
 * queue. Rank 1 puts B first and then A. Each rank waits for the other until the timeout.
 *
 * If an operation fails while it is done, its communicator fails, as without a queue. The queue
 * goes on with the next operation. It keeps the first failure for kolo_queue_wait.
 *
 * Any thread may use queues and events, except inside a kolo_log_fn. In a child of fork their
 * functions return KOLO_EINVAL. A queue with nothing to do sleeps. */

/* Makes a queue and its thread. The thread gets no signals, except those that it causes itself.
 * The caller gives *out to kolo_queue_destroy.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_queue_create(struct kolo_queue **out);

/* Ends a queue. Blocks until all operations in it are done. Failures that no kolo_queue_wait
 * returned appear only in the log. NULL is allowed. No other call on `queue` may be running or
 * follow. Events recorded on it stay valid. */
void kolo_queue_destroy(struct kolo_queue *queue);

/* Blocks until the operations are done that were in the queue when it was called.
 *
 * Errors: KOLO_EINVAL; or the first failure of the queue since the last kolo_queue_wait, with its
 * text. Failures of events that the queue waited for count too. */
int kolo_queue_wait(struct kolo_queue *queue);

/* Makes an event that is not recorded yet. The caller gives *out to kolo_event_destroy.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int kolo_event_create(struct kolo_event **out);

/* Frees an event. Queues that wait for it continue to wait for its last record. NULL is allowed. */
void kolo_event_destroy(struct kolo_event *event);

/* Records an event: it comes when all operations are done that are in the queue now. Whoever
 * waits for an earlier record still waits for that one. Returns at once. If the queue is a stream
 * (kolo_cuda.h), the event comes when all work on the stream is done, also the program's own.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, and for a stream KOLO_ESYS. Then the event is as it was. */
int kolo_event_record(struct kolo_event *event, struct kolo_queue *queue);

/* Reports whether an event has come. *done becomes 1 if it has come or was never recorded,
 * otherwise 0. Never blocks.
 *
 * Errors: KOLO_EINVAL; KOLO_ESYS if it is a stream's, and the GPU has failed. */
int kolo_event_query(struct kolo_event *event, int *done);

/* Blocks until an event has come. Returns at once if it was never recorded.
 *
 * Errors: KOLO_EINVAL; or the failure that its queue had when the event came, if no
 * kolo_queue_wait had returned it before. A stream's event carries no failure of a communicator
 * (kolo_comm_status). */
int kolo_event_wait(struct kolo_event *event);

/* Lets a queue wait for the last record of an event, before operations that are put into the
 * queue from now on. Returns at once. If the event comes with a failure, this queue has that
 * failure too. With two exceptions if the queue is a stream (kolo_cuda.h): for an event of a queue
 * from kolo_queue_create it blocks until the event has come, and returns that failure itself.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, and for a stream KOLO_ESYS. */
int kolo_queue_wait_event(struct kolo_queue *queue, struct kolo_event *event);

/* ---- Operations made at run time ------------------------------------------------------------- */

/* Makes an op that adds each rank's elements, multiplied by *scalar. *scalar is one element of
 * `type`, an integer or floating type; it is read during the call. Floating types multiply as
 * KOLO_AVG does; integers wrap. Ranks may use different scalars. The op is valid on this
 * communicator and for this type only. Local.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int kolo_op_create_premul_sum(struct kolo_comm *comm, const void *scalar, enum kolo_type type,
			      enum kolo_op *out);

/* Combines n elements: out[i] = a[i] combined with b[i]. `arg` is that of kolo_op_create. out may
 * be a, or b; otherwise the three do not overlap. They lie at multiples of 8 bytes if the elements
 * have a multiple of 8 bytes and the buffers of the calls lie so. The function must not call Kolo,
 * and must give the same result on every rank. It runs on the thread that does the operation: the
 * caller's, or that of its queue. */
typedef void kolo_combine_fn(void *arg, void *out, const void *a, const void *b, size_t n);

/* Makes an op that calls a function of the program. It must be associative: (x y) z = x (y z), as
 * far as the program cares.
 *
 * - type: any type. The op is valid on this communicator and for this type only.
 * - commutative: 1 if a and b may be exchanged. With 0, a always holds what comes from lower ranks
 *   than b. Only the order "tree" can promise that (attr->order).
 *
 * Every rank makes its own op, with a function that does the same. Local.
 *
 * Queues of CUDA streams (kolo_cuda.h) do not take such ops.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM; KOLO_ENOTSUP if the order of additions cannot keep the ranks in
 * order, or if comm has too many ranks for elements of this size in the order "tree". */
int kolo_op_create(struct kolo_comm *comm, enum kolo_type type, kolo_combine_fn *combine, void *arg,
		   int commutative, enum kolo_op *out);

/* Frees an op made by kolo_op_create_premul_sum or kolo_op_create. Local. Queued operations that
 * use it are not affected.
 *
 * Errors: KOLO_EINVAL. */
int kolo_op_destroy(struct kolo_comm *comm, enum kolo_op op);

/* ---- Collectives ----------------------------------------------------------------------------- */

/* All collectives: every rank calls the same function with the same n, type, op and root. With
 * `queue` NULL the call blocks until dst may be read; otherwise the queue does it
 * (kolo_queue_create). src and dst must not overlap, except in place as each function says. n may
 * be 0.
 *
 * Every rank gets the same bits. The result of floating types depends on the order of additions,
 * which belongs to the communicator (attr->order, kolo_comm_order). After each addition it is
 * rounded.
 *
 * - Order "ring": an element is added from the rank after its owner, round the ring, to its owner.
 *   The result depends only on nranks, n, type, op, the order of the ring and, for a reduce, root.
 * - Order "tree": ranks are added as a balanced tree of their numbers. The sum of m successive
 *   ranks is the sum of the first 2^k plus the sum of the rest, where 2^k is the largest power of
 *   two below m. So the result depends only on nranks, type and op: not on n, on how a vector is
 *   cut into calls, on root, on hosts or on the ring. AVG of floating types and sums with a factor
 *   (kolo_op_create_premul_sum) scale and round each element before it is added. Errors of
 *   rounding grow with log2(nranks), in the ring with nranks.
 * - Order "grid": ranks are in groups of equally many, mostly those of a host. In each group an
 *   element is added from the rank after its owner's number there, round the group, to that
 *   number. Then these sums are added from the group after the owner's, round all groups, to it.
 *   A reduce ends with root's group instead, whoever owns an element. The result depends only on
 *   the groups, n, type, op and, for a reduce, root's group. Errors of rounding grow with the
 *   number of groups plus that of ranks in one.
 *
 * No order depends on slots, transport or algorithm. The order "tree" has two algorithms of its
 * own. Doubling is for small vectors between hosts: ranks of a host add up, then hosts exchange
 * sums at distances 1, 2, 4, and so on. Pairwise does what no other one does: each rank gets its
 * block of everyone's vector, and sends the sum. In the order "grid" large vectors go round each
 * group, and between groups along *rails*, each of which joins the ranks of one number. So all
 * ranks of a host send to other hosts, each 1/g of it if a group has g ranks. A broadcast does so
 * if rails have cards of their own: over TCP those that KOLO_IFACE lists. Partials are
 * for small vectors, broadcasts too: one rank of each group adds up, exchanges sums with those of
 * other groups, and hands out the result. Two are for longer ones. Center: one of these ranks gets
 * all sums, and sends the result to the others. Shares: each gets sums of a part of the vector
 * alone, and passes on the result. Other calls that add nothing are as in the order "ring".
 *
 * The ring visits ranks by number. If that would cross between hosts more often than necessary,
 * ranks of a host are grouped. A group has its lowest rank first, and groups are ordered by their
 * lowest rank. to_next.peer of struct kolo_stats is a rank's next one.
 *
 * The algorithm (kolo_algorithm_get) determines how many bytes a rank sends. The table is for a
 * vector of K bytes on N ranks; K is all of src or dst, whichever is larger. "Direct" sends are
 * bytes that a rank writes into other ranks' buffers.
 *
 *     collective      ring [7]   board     direct, kolo_alloc  direct, other
 *     all_reduce      2K(N-1)/N  K         K(N-1)/N            K(N-1)/N
 *     reduce_scatter  K(N-1)/N   K(N-1)/N  0                   0
 *     all_gather      K(N-1)/N   K/N       K(N-1)/N            0
 *     reduce          K [1]      K [1]     K/N [1]             K/N [1] [2]
 *     broadcast       K [3]      K [4]     K(N-1)/N [5]        K(N-1)/N [6]
 *
 * - Ring: all_reduce, reduce_scatter and all_gather send exactly this if N divides n, else a
 *   little more or less.
 * - [1] Root sends 0.
 * - [2] Below 256 KiB every rank sends 0: root reads all vectors.
 * - [3] The rank before root in the ring sends 0.
 * - [4] Root alone sends.
 * - [5] In place, ranks other than root send K(N-2)/N.
 * - [6] Root alone sends, in place and from 32 KiB on; the others read the rest. Otherwise every
 *   rank sends 0.
 * - [7] Pairwise sends the same; root of a reduce K(N-1)/N. The grid sends what the ring does if
 *   there is no root. In a reduce each rank of a group of g sends K(g-1)/g in the group, and K/g
 *   along its rail. In root's group it sends on what came along rails instead. In a broadcast
 *   along rails each rank sends K/g, but for the last group, and in its group K(g-1)/g. In
 *   root's group that is K, and the rank before root sends none of it.
 * - Slices send what the board does, and root of a reduce K.
 * - Exchange: an all_reduce sends K(N-1).
 * - Doubling: an all_reduce sends K. Of g ranks of a host that add up together the first sends
 *   K(g - 1 + log2(N/g)) instead. The logarithm is rounded up. If N/g is no power of two, some
 *   give a sum to several ranks, and send more.
 * - Partials: an all_reduce sends K; in each of h groups of g ranks the first sends K(h + g - 2).
 *   Root of a broadcast sends K(log2(h) + g - 1), with the logarithm rounded up. Of a small one it
 *   sends up to 7K for each factor of 8 in h, instead of K log2(h).
 * - Center: an all_reduce sends K; the first of a group sends Kg, and that of the last group what
 *   root of a broadcast sends. If h is more than 8, or the vector is long, some pass on more.
 * - Shares: an all_reduce sends K; the first of a group K(g - 1 + log2(h)/2 + (h - 1)/h), and a
 *   little less if h is no power of two.
 *
 * Errors:
 * - KOLO_EINVAL, and KOLO_ENOMEM with a queue: nothing was done, and comm still works.
 * - KOLO_EMISMATCH, KOLO_EPEER, KOLO_ETIMEDOUT, KOLO_EABORTED, KOLO_ESYS, and KOLO_ENOMEM without
 *   a queue: comm has failed on all ranks and stays failed. dst is undefined. Other ranks may
 *   still write to dst for a short time after the error: one piece, or several over RDMA into
 *   kolo_alloc memory. A rank whose part was already done gets the error from its next call. A
 *   mismatch in the last call before kolo_comm_destroy may go unnoticed, for example two roots of
 *   a broadcast: its ranks need not wait for each other. Call kolo_barrier after it if you need
 *   to know. */

/* Combines src over all ranks and leaves the result in dst on every rank. src and dst have n
 * elements each. In place: src == dst.
 *
 * Element i belongs to rank i / ceil(n / nranks). */
int kolo_all_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		    enum kolo_type type, enum kolo_op op, struct kolo_queue *queue);

/* Combines src over all ranks and leaves the result in dst on rank `root`. src and dst have n
 * elements each. In place: src == dst on root. Other ranks do not touch dst; it may be NULL
 * there. All elements belong to root. */
int kolo_reduce(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		enum kolo_op op, int root, struct kolo_queue *queue);

/* Copies src of rank `root` to dst on every rank. src and dst have n elements each. In place:
 * src == dst on root. Other ranks do not read src; it may be NULL there. */
int kolo_broadcast(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		   enum kolo_type type, int root, struct kolo_queue *queue);

/* Combines src over all ranks and scatters the result: block r goes to dst on rank r. src has
 * nranks * n elements, dst has n. In place: dst == src + rank * n elements. Elements are added in
 * the same order as in kolo_all_reduce of nranks * n elements. src does not change, except in
 * place. */
int kolo_reduce_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n,
			enum kolo_type type, enum kolo_op op, struct kolo_queue *queue);

/* Does kolo_reduce_scatter with blocks of any size. counts[r] is the number of elements of rank
 * r's block; counts has nranks entries, the same on all ranks. src has the sum of all counts,
 * block after block; dst has counts[rank]. In place: dst is the place of this rank's block in
 * src. counts is read during the call. */
int kolo_reduce_scatter_v(struct kolo_comm *comm, const void *src, void *dst, const size_t *counts,
			  enum kolo_type type, enum kolo_op op, struct kolo_queue *queue);

/* Copies src of rank r to block r of dst, on every rank. src has n elements, dst has nranks * n.
 * In place: src == dst + rank * n elements. */
int kolo_all_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		    enum kolo_type type, struct kolo_queue *queue);

/* Does kolo_all_gather with blocks of any size. counts[r] is the number of elements in src of
 * rank r; counts has nranks entries, the same on all ranks. dst has the sum of all counts, block
 * after block. In place: src is the place of this rank's block in dst. counts is read during the
 * call. */
int kolo_all_gather_v(struct kolo_comm *comm, const void *src, void *dst, const size_t *counts,
		      enum kolo_type type, struct kolo_queue *queue);

/* Waits until every rank has called it. Moves no payload. */
int kolo_barrier(struct kolo_comm *comm, struct kolo_queue *queue);

/* ---- Between pairs of ranks ------------------------------------------------------------------ */

/* Messages from one rank to another, and the collectives that are made of messages. The
 * conventions and errors of the collectives hold here too. n and counts may be 0.
 *
 * A message is n elements of a type. Both ends must name the same n and type; otherwise the
 * receiver gets KOLO_EMISMATCH. An array of counts has nranks entries and is read during the
 * call; the parts of a buffer follow each other without gaps.
 *
 * How a message goes inside a host (kolo_algorithm_get: "send_recv"): through a lane, a place of
 * some KiB in shared memory that two ranks have from their first message on. Or directly: then
 * both ends copy a part of it. A long one of a collective to the next rank may go through the slots
 * of the ring, and counts there (to_next, from_prev). If a rank has many lanes, an idle one gives
 * most of its memory back.
 *
 * Across hosts: a lane is a connection. KOLO_LANES connections stay open while they are idle. The
 * first message to a rank completes only once that rank waits inside some call on this
 * communicator. Large messages always wait for the matching kolo_recv.
 *
 * Order: between two ranks, sends and these collectives have one order. If one rank sends before
 * a gather, the other must receive before that gather. Otherwise it gets KOLO_EMISMATCH, or
 * waits. A collective may wait until all ranks have come to earlier collectives, whichever ranks
 * send or receive in these. */

/* Sends n elements to rank `peer`, which must call kolo_recv with the same n and type. Messages
 * from one rank to another are received in the order in which they were sent.
 *
 * With `queue` NULL it blocks until src may be written again. A small message may still be on its
 * way then; a large one has been received. So two ranks that both send a large message before
 * they receive wait for each other until the timeout. Use kolo_group_begin for that. */
int kolo_send(struct kolo_comm *comm, const void *src, size_t n, enum kolo_type type, int peer,
	      struct kolo_queue *queue);

/* Receives n elements: the next message from rank `peer`. With `queue` NULL it blocks until dst
 * may be read. */
int kolo_recv(struct kolo_comm *comm, void *dst, size_t n, enum kolo_type type, int peer,
	      struct kolo_queue *queue);

/* Copies part `rank` of src on rank r to part r of dst, for each r. src and dst have nranks parts
 * of n elements each. src and dst must not overlap. It sends K(N-1)/N bytes for src of K bytes on
 * N ranks. In the order "grid" a small one between hosts goes through one rank of each host
 * ("shares"), in about log2 of their number of steps. A collective: every rank calls. */
int kolo_all_to_all(struct kolo_comm *comm, const void *src, void *dst, size_t n,
		    enum kolo_type type, struct kolo_queue *queue);

/* Does kolo_all_to_all with parts of any size. send_counts[r] elements of src go to rank r;
 * recv_counts[r] elements of dst come from rank r. recv_counts[r] must equal send_counts[rank] on
 * rank r. */
int kolo_all_to_all_v(struct kolo_comm *comm, const void *src, const size_t *send_counts, void *dst,
		      const size_t *recv_counts, enum kolo_type type, struct kolo_queue *queue);

/* Copies src of rank r to part r of dst on rank `root`. src has n elements, dst has nranks * n.
 * Other ranks do not touch dst; it may be NULL there. In place: src == dst + rank * n elements on
 * root. A collective. */
int kolo_gather(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		int root, struct kolo_queue *queue);

/* Does kolo_gather with parts of any size. Rank r gives n elements; counts[r] on root must be
 * that n. counts is read on root only and may be NULL elsewhere. In place: src is the place of
 * root's own part in dst. */
int kolo_gather_v(struct kolo_comm *comm, const void *src, size_t n, void *dst,
		  const size_t *counts, enum kolo_type type, int root, struct kolo_queue *queue);

/* Copies part r of src on rank `root` to dst on rank r. dst has n elements, src has nranks * n.
 * Other ranks do not read src; it may be NULL there. In place: dst == src + rank * n elements on
 * root. A collective. */
int kolo_scatter(struct kolo_comm *comm, const void *src, void *dst, size_t n, enum kolo_type type,
		 int root, struct kolo_queue *queue);

/* Does kolo_scatter with parts of any size. Rank r gets n elements; counts[r] on root must be
 * that n. counts is read on root only and may be NULL elsewhere. In place: dst is the place of
 * root's own part in src. */
int kolo_scatter_v(struct kolo_comm *comm, const void *src, const size_t *counts, void *dst,
		   size_t n, enum kolo_type type, int root, struct kolo_queue *queue);

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Calls of collectives, sends and recvs between kolo_group_begin and kolo_group_end are done
 * together, at the end. For each communicator all sends and recvs are done first, at once and in
 * any order. So they can't wait for each other in a circle. Then its collectives are done in the
 * order of their calls. In a group a rank may send to itself. Communicators don't wait for each
 * other: a thread that uses several ranks of one ring calls for all of them in one group.
 *
 * A group belongs to the thread that began it. Groups nest: only the outermost kolo_group_end
 * does anything. Arguments are checked in each call; a call that fails is left out, and the
 * others are done. Buffers must stay valid until the group ends, or, if calls have queues, until
 * its operations are done. The communicators and queues of its calls must stay until they are
 * done, too.
 *
 * Queues: if calls name several queues, the first one does the group, once all of them have come
 * to it. The other queues continue after the group. While a group is open, kolo_alloc, kolo_free
 * and kolo_comm_split return KOLO_EINVAL. Calls on queues and events are not part of a group. */

/* Begins a group. Never fails. */
int kolo_group_begin(void);

/* Ends a group; the outermost end does its calls. Blocks until they are done, unless all of them
 * have queues. If a call has no queue, it returns the first failure of any call. kolo_queue_wait
 * returns that failure for each queue.
 *
 * Errors:
 * - KOLO_EINVAL: no group was begun on this thread.
 * - KOLO_ENOMEM, KOLO_ESYS: nothing of the group was done.
 * - KOLO_EMISMATCH: this rank sends to itself and does not receive it in the group, or the
 *   reverse. comm has failed. */
int kolo_group_end(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
