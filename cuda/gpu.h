/* What a communicator has for queues that are CUDA streams: slots in this rank's GPU memory, flags that say which of them are
 * full, and a thread that watches over both. See README.md. */
#ifndef KO_GPU_H
#define KO_GPU_H

#include "driver.h"

#include "../comm/comm.h"

#include <pthread.h>
#include <stddef.h>

enum {
	KO_GPU_SLOTS = 4,        /* at most, in a link */
	KO_GPU_ALIGN = 256,      /* slots begin at multiples of it, as allocations of CUDA's do */
	KO_GPU_VECTOR = 16,      /* bytes that a kernel's thread loads and stores at once */
	KO_GPU_PACE = 128,       /* moves that are recorded ahead of what the stream has done, twice over */
	KO_GPU_CHAIN = 8,        /* slices of a vector that goes from rank to rank, */
	KO_GPU_LEAST = 64 << 10, /* but no shorter ones */
	KO_GPU_PEERS =
		KO_JOB_PLACES, /* ranks that work on each other's registered memory; with more all goes round the ring */
	KO_GPU_POSTS =
		1024 /* operations back that places are known of: more than streams let ranks be apart */
};

/* A flag says whether its slot is empty (0) or full. KO_SLOT_FAILED lets everyone pass: who waits for a full slot waits for the
 * first bit, who waits for an empty one for the absence of the second. */
enum { KO_SLOT_EMPTY = 0, KO_SLOT_FAILED = 1, KO_SLOT_TAKEN = 2, KO_SLOT_FULL = 3 };

/* What a rank's stream is at, in one flag that the stream itself writes: 0, or these. */
enum {
	KO_STAGE_ACTIVE = 1, /* an operation is under way */
	KO_STAGE_FULL = 2,  /* its next move waits for slot number (stage >> 8 & 255) from prev to be full, */
	KO_STAGE_EMPTY = 4, /* and for number (stage >> 16 & 255) to next to be empty */
	KO_STAGE_READY = 8, /* it waits until all others have come to the operation, */
	KO_STAGE_DONE = 16, /* or have done their part, */
	KO_STAGE_FLAGS = 32,    /* by flags for those of its own process too */
	KO_STAGE_MOVE = 1 << 24 /* moves before it, modulo 256 */
};

/* A rank's flags: host memory that all ranks of the host, and their GPUs, see. The GPU writes and waits; the host looks, and
 * writes KO_SLOT_FAILED. */
struct ko_gpu_flag {
	_Alignas(64) _Atomic uint32_t value;
	_Atomic uint32_t len; /* bytes in the slot, written before it is full; of staged edges */
};

struct ko_gpu_flags {
	struct ko_gpu_flag slot[KO_GPU_SLOTS];
	/* Of operations on registered memory, by the rank that writes them: it has come, it has done its part. KO_SLOT_FULL; 0 again
	 * by this rank's stream in the step behind that */
	struct ko_gpu_flag ready[KO_GPU_PEERS], done[KO_GPU_PEERS];
	struct ko_gpu_flag
		failed; /* 1: the communicator has, for good; kernels leave others' memory alone then */
	struct ko_gpu_flag stage;
	struct ko_gpu_flag
		looked; /* the stream writes 0 with each stage, who watches 1: the stage is the same one since */
};

/* A rank has two: of the link from prev to it, with its stage, and, should the one to next be staged, of its end of that. */
enum { KO_GPU_IN, KO_GPU_OUT, KO_GPU_ENDS };

/* An edge between two ranks of one process: there streams wait for each other's events, which CUDA knows of, and not for flags.
 * A wait must be recorded behind what it waits for, so each rank counts what it has recorded. Both ranks hold it; who leaves last
 * frees it. */
struct ko_gpu_pair {
	struct ko_gpu_pair *next;     /* in the list of those whose senders have not come */
	struct ko_gpu_comm *receiver; /* for the sender while they join */
	atomic_int holders;
	struct ko_gpu_memory
		memory; /* the slots: their sender may write there when their receiver has left */
	_Atomic uint64_t filled,
		emptied; /* slots, by the sender and the receiver; emptied <= filled <= emptied + nslots */
	void *full[KO_GPU_SLOTS];  /* events; recorded by the sender */
	void *empty[KO_GPU_SLOTS]; /* recorded by the receiver */
};

/* What the streams of a rank's process wait for instead of such flags, in the same way. */
struct ko_gpu_marks {
	struct ko_gpu_marks *next;
	int holders;
	struct ko_gpu_mark {
		_Atomic uint64_t count; /* how often it was recorded */
		void *event;
	} ready, done;
};

/* Where a buffer of a rank is, if in registered memory: the same on all ranks. */
struct ko_gpu_place {
	uint64_t at;     /* bytes from where the memory begins */
	uint32_t window; /* the number of its registration; 0: in none */
};

/* What an operation's ranks read and write of each other. */
struct ko_gpu_places {
	struct ko_gpu_place src, dst;
};

/* The same, where the ranks of a host see it. */
struct ko_gpu_post {
	_Atomic uint64_t seq;     /* of the operation; 0: it is being written */
	_Atomic uint64_t history; /* of all up to this one */
	_Atomic uint64_t src_at, dst_at;
	_Atomic uint32_t src, dst;
};

/* Bytes between the flags of a rank's two ends, behind which its posts are: they are registered in pages. */
enum {
	KO_GPU_FLAGS_LEN = 4096,
	KO_GPU_SHARED = KO_GPU_ENDS * KO_GPU_FLAGS_LEN + KO_GPU_POSTS * (int)sizeof(struct ko_gpu_post)
};

_Static_assert(sizeof(struct ko_gpu_flags) <= KO_GPU_FLAGS_LEN, "the flags of an end fit");

/* One end of an edge. The slots are in the receiver's GPU memory. */
struct ko_gpu_link {
	int peer;
	struct ko_gpu_memory memory;
	struct ko_gpu_flags *flags; /* of the receiver, as the host sees them, */
	char *gpu_flags;            /* and as this rank's GPU does */
	/* Slots in host memory, as the host sees them, that a proxy fills or empties (proxy.c); NULL: the sender's GPU writes into
	 * the receiver's */
	char *staged;
	bool device; /* they are in GPU memory instead, which cards read and write (dmabuf); the host does not touch it */
	struct ko_gpu_pair *pair; /* NULL: the peer is another process */
};

struct ko_gpu_comm;

/* Memory that all ranks have mapped: window.h. */
struct ko_gpu_window {
	uint32_t id; /* counts the communicator's from 1; the same on all ranks */
	char *mine;
	size_t len;
	/* By rank: where this GPU sees it, and what was mapped for that. NULL: ranks don't reach each other's memory, and this is
	 * memory like other memory */
	char **at;
	struct ko_gpu_memory *mapped;
};

/* Hangs at kolo_comm.attached. */
struct ko_gpu_comm {
	struct ko_attached attached;
	struct kolo_comm *comm;
	/* The same ranks; for the thread below alone: its lifelines and roster. NULL with one rank */
	struct kolo_comm *inner;
	const struct ko_driver *driver;
	struct ko_gpu *gpu;
	size_t arena; /* bytes of a link's slots, with room for their places in vectors; agreed */
	bool cards;   /* some rank has slots in GPU memory that cards read and write */
	bool fixed;   /* an edge is staged: slots have one length, a part of KO_GPU_SLOTS of it */
	struct ko_gpu_proxy *proxy; /* NULL: both edges of this rank are without */
	struct ko_gpu_link out, in;
	struct kolo_comm *
		local; /* the ranks of this host, whose flags are in memory of its own; `inner` where that is all */
	int *places;                   /* a rank's number in that, -1 for those of other hosts */
	int *process;                  /* the first rank of a rank's process, where that is on this host */
	char *flags;                   /* of all ranks of this host, by place */
	size_t flags_len;              /* bytes between two ranks' */
	char *gpu_flags;               /* as this GPU sees them */
	struct ko_gpu_marks **marks;   /* by rank, its own too; NULL: it is another process */
	struct ko_gpu_window *windows; /* nwindows of them, which are registered */
	int nwindows;
	uint32_t last_window;         /* its number */
	struct ko_gpu_window staging; /* of Kolo's own, for blocks on their way (exchange.h) */
	struct ko_gpu_memory staging_memory;
	bool paths_checked; /* the paths to all ranks' memory */
	uint64_t history;   /* of the places of all operations */
	/* The last operation, and the last one that went into a graph: what comes next, of the same kind, waits for it */
	struct ko_gpu_last {
		void *event;
		uint64_t capture; /* that has recorded it; 0: none */
		bool recorded;
	} last, captured;
	unsigned moves;   /* recorded, but for those in graphs */
	void *pace[2];    /* events: every KO_GPU_PACE of them */
	pthread_t thread; /* watches (watchdog.c) */
	bool watched;
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t changed;
	bool joined, closing;
	struct ko_desc desc;       /* the last operation recorded */
	struct ko_gpu_uses **uses; /* nuses of them, of the queues; this rank's calls alone touch them */
	int nuses;
};

/* NULL: not joined yet. */
struct ko_gpu_comm *ko_gpu_of(struct kolo_comm *comm);

/* Is the edge from a rank to its next staged: between hosts, or because a transport was asked for by name? */
bool ko_gpu_is_staged(const struct kolo_comm *comm, int rank);

/* The flags of one end of a rank's, KO_GPU_IN or KO_GPU_OUT; NULL: it is on another host. And of a rank of this host, as this
 * GPU sees them. */
struct ko_gpu_flags *ko_gpu_flags_of(const struct ko_gpu_comm *g, int rank, int end);
char *ko_gpu_flags_there(const struct ko_gpu_comm *g, int rank, int end);

/* What a rank of this host posts of operation `seq`. */
struct ko_gpu_post *ko_gpu_post_of(const struct ko_gpu_comm *g, int rank, uint64_t seq);

/* The flag that is set when the communicator has failed, as the GPU sees it. */
static inline const uint32_t *ko_gpu_failed_flag(const struct ko_gpu_comm *g)
{
	return (const uint32_t *)(const void *)(g->in.gpu_flags + offsetof(struct ko_gpu_flags, failed));
}

/* May memory that other ranks have mapped be freed, which they may still work on when the communicator has failed? Threads of this
 * process see it where it is: then it is left to the process. */
bool ko_gpu_may_release(const struct ko_gpu_comm *g);

/* So much of a pattern goes over a staged edge that the last of it comes behind an offer: more than the link's own slots hold. */
size_t ko_gpu_path_check_len(const struct ko_gpu_comm *g);

/* What ranks send each other to try a path: a different byte of each rank's at each place. */
static inline unsigned char ko_gpu_path_pattern(int rank, size_t k)
{
	return (unsigned char)((k ^ k >> 8) + (size_t)rank);
}

/* It did not come from that rank as it was; over a staged edge. Returns KOLO_ESYS. */
int ko_gpu_path_lies(const struct ko_gpu_comm *g, int rank, bool staged);

/* A driver's failure as the thread's error: "rank 1 (pid 7 on h): GPU 0 (...): WHAT: what the driver says". Returns code. */
int ko_gpu_error(const struct ko_gpu_comm *g, int code, const char *what);

#endif
