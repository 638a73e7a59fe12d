/* What a communicator has on its GPU, and what follows from that alone (gpu.c).
 *
 * A rank has slots in GPU memory, flags that say which slots are full, and a thread that watches
 * both. See README.md. */
#ifndef CUDA_GPU_GPU_H
#define CUDA_GPU_GPU_H

#include "cuda/driver/driver.h"

#include "comm/core/comm.h"

#include <pthread.h>
#include <stddef.h>

enum {
	KO_GPU_SLOTS = 4,   /* largest number of slots in a link */
	KO_GPU_ALIGN = 256, /* bytes: slots begin at multiples of it, as allocations of CUDA do */
	KO_GPU_VECTOR = 16, /* bytes that a thread of a kernel loads or stores at once */
	KO_GPU_PACE = 128,  /* moves: recording is one to two times as many ahead of the stream */
	/* A vector that goes from rank to rank is cut into so many slices, unless they would be
	 * shorter than KO_GPU_LEAST bytes. */
	KO_GPU_CHAIN = 8,
	KO_GPU_LEAST = 64 << 10,
	/* Largest number of ranks that work on each other's registered memory. With more ranks
	 * everything goes round the ring. */
	KO_GPU_PEERS = KO_LAUNCHER_PLACES,
	/* Operations whose places are kept. Streams of ranks are never so far apart. */
	KO_GPU_POSTS = 1024,
	KO_GPU_LANE_SLOTS = 4, /* in each bank of a lane */
	/* Messages of a lane that are kept for comparing. */
	KO_GPU_LANE_POSTS = 32,
	/* Streams that an operation may use: the caller's, number 0, and Kolo's own, on which
	 * messages of a group go side by side: four for lanes by flags, four for lanes by events.
	 */
	KO_GPU_WAYS_OF_KIND = 4,
	KO_GPU_WAYS = 2 * KO_GPU_WAYS_OF_KIND,
	KO_GPU_STREAMS = 1 + KO_GPU_WAYS
};

/* Values of a slot's flag. A wait for a full slot waits until bit 0 is set. A wait for an empty
 * slot waits until bit 1 is clear. So KO_SLOT_FAILED ends both waits. */
enum { KO_SLOT_EMPTY = 0, KO_SLOT_FAILED = 1, KO_SLOT_TAKEN = 2, KO_SLOT_FULL = 3 };

/* Bits of a stage: what a rank's stream is doing. The stream writes it. 0: nothing. */
enum {
	KO_STAGE_ACTIVE = 1, /* an operation is under way */
	KO_STAGE_FULL = 2, /* the next move waits until slot (stage >> 8 & 255) from prev is full */
	KO_STAGE_EMPTY = 4, /* it waits until slot (stage >> 16 & 255) to next is empty */
	KO_STAGE_READY = 8, /* it waits until all other ranks have come to the operation */
	KO_STAGE_DONE = 16, /* it waits until all other ranks have done their part */
	/* READY and DONE use flags also for ranks of this process; slots of a lane are those of
	 * graphs */
	KO_STAGE_FLAGS = 32,
	KO_STAGE_RING = 1 << 6, /* slots are those of the ring (stage >> 6 & 3), or of a lane */
	/* Of a lane: its other end is rank (stage >> 10 & 16383), the slot is (stage >> 8 & 3) */
	KO_STAGE_LANE_SLOT = 1 << 8,
	KO_STAGE_LANE_PEER = 1 << 10,
	KO_STAGE_LANE_PEERS = 1 << 14,
	KO_STAGE_MOVE = 1 << 24 /* one move; the top byte counts the moves before it, modulo 256 */
};

/* A flag lies in host memory that all ranks of the host, and their GPUs, see. Streams write it and
 * wait for it. The host reads it, and writes KO_SLOT_FAILED. */
struct ko_gpu_flag {
	_Alignas(64) _Atomic uint32_t value;
	/* Staged edges: bytes in the slot; written before it is full. Far lanes: elements and their
	 * type (KO_GPU_LANE_TYPE); at the receiver's end those that the stream waits for next, or
	 * 0 */
	_Atomic uint32_t len;
};

/* The rings that a rank stands in: all ranks; and in the order of additions "grid" its group and
 * its rail (comm/plan/shape.h). */
enum { KO_GPU_ALL, KO_GPU_GROUP, KO_GPU_RAIL, KO_GPU_RINGS };

/* In a stage, in place of a ring: the slots are a lane's. */
enum { KO_GPU_LANE = KO_GPU_RINGS };

/* A lane's slots, for what is recorded directly and into graphs (lanes.h). */
enum { KO_GPU_RECORDED, KO_GPU_CAPTURED, KO_GPU_LANE_BANKS };

/* The type of a far lane's elements is in the top bits of `len`. */
enum { KO_GPU_LANE_TYPE = 27 };

/* Where one of a rank's streams is. */
struct ko_gpu_where {
	struct ko_gpu_flag stage; /* KO_STAGE_... */
	/* The stream writes 0 with each stage, the watching thread writes 1. So 1 means that the
	 * stage is the one that was seen before. */
	struct ko_gpu_flag looked;
};

/* The flags of one end of a rank's links. */
struct ko_gpu_flags {
	struct ko_gpu_flag slot[KO_GPU_RINGS][KO_GPU_SLOTS];
	/* Operations on registered memory: the rank with this number has come, or has done its
	 * part. That rank writes KO_SLOT_FULL. The owner's stream writes 0 again in the step
	 * after. */
	struct ko_gpu_flag ready[KO_GPU_PEERS], done[KO_GPU_PEERS];
	struct ko_gpu_flag failed; /* 1: the communicator has failed; kernels do nothing */
	struct ko_gpu_where where[KO_GPU_STREAMS];
};

/* A rank has two ends. IN: the links from prev, and the stage. OUT: the links to next, if staged.
 */
enum { KO_GPU_IN, KO_GPU_OUT, KO_GPU_ENDS };

/* An edge between two ranks of one process (threads.h). Streams wait for each other's events. A
 * wait must be recorded after the event, so each rank counts what it has recorded. Both ranks hold
 * the pair. The last to leave frees it. */
struct ko_gpu_pair {
	struct ko_gpu_pair *next; /* in the list of pairs whose sender has not come */
	atomic_int holders;
	/* The slots. The sender may write them after the receiver has left. */
	struct ko_gpu_memory memory;
	/* Slots filled by the sender, and emptied by the receiver. emptied <= filled <= emptied +
	 * nslots */
	_Atomic uint64_t filled, emptied;
	void *full[KO_GPU_SLOTS];  /* events that the sender records */
	void *empty[KO_GPU_SLOTS]; /* events that the receiver records */
};

/* The events of a lane between ranks of one process. */
struct ko_gpu_crossing {
	/* Slots filled by the sender, and emptied by the receiver, since the beginning.
	 * emptied <= filled */
	_Atomic uint64_t filled, emptied;
	/* The sender's: what `filled` was after a slot was filled last; 0: never. */
	uint64_t last[KO_GPU_LANE_SLOTS];
	void *full[KO_GPU_LANE_SLOTS];  /* events that the sender records */
	void *empty[KO_GPU_LANE_SLOTS]; /* events that the receiver records */
};

/* What a rank shares with other ranks of its process: the events that stand for `ready` and `done`,
 * and its lanes' slots and events. */
struct ko_gpu_marks {
	struct ko_gpu_marks *next;
	int holders;
	struct ko_gpu_mark {
		_Atomic uint64_t count; /* how often it was recorded */
		void *event;
	} ready, done;
	struct ko_gpu_memory lanes;   /* senders may write it after the rank has left */
	struct ko_gpu_crossing *from; /* by sender, nranks of them */
	int nranks;
};

/* A message as one of its ends was called with it: compared with what the other end says. */
struct ko_gpu_lane_post {
	/* Of the message in its bank of the lane, from 1; 0: it is being written */
	_Atomic uint64_t number;
	_Atomic uint64_t n, type;
	_Atomic uint64_t history; /* hash of n and type of all messages up to this one */
};

/* A lane as others see it, in its receiver's shared memory: flags of its slots, and what both ends
 * were called with. Each end of a far lane has its own. */
struct ko_gpu_lane_board {
	struct ko_gpu_flag slot[KO_GPU_LANE_BANKS][KO_GPU_LANE_SLOTS];
	struct ko_gpu_lane_post sent[KO_GPU_LANE_BANKS][KO_GPU_LANE_POSTS];
	struct ko_gpu_lane_post received[KO_GPU_LANE_BANKS][KO_GPU_LANE_POSTS];
};

/* One end of a lane: messages from one rank to another go through it in their order. */
struct ko_gpu_lane {
	int peer;
	bool sends;
	bool far;      /* it goes by the host (far.h) */
	char *slots;   /* in the receiver's GPU memory, or far: in pinned host memory of this end */
	char *host;    /* far: the slots as the host sees them */
	size_t stride; /* bytes from slot to slot */
	struct ko_gpu_lane_board *board;
	char *gpu_board;                      /* the same, as this GPU sees it */
	struct ko_gpu_crossing *crossing;     /* NULL: the other end is in another process */
	uint64_t messages[KO_GPU_LANE_BANKS]; /* so far */
	uint64_t history[KO_GPU_LANE_BANKS];  /* hash of them */
	int next[KO_GPU_LANE_BANKS];          /* the slot that comes next */
	/* While messages are recorded (stream/messages.c): what is left, in order; the stream that
	 * it goes on; and the next lane with something left. */
	struct ko_gpu_message *first, *last;
	struct ko_tape *tape;
	struct ko_gpu_lane *busy;
};

/* A place in registered memory. It must be the same on all ranks. */
struct ko_gpu_place {
	uint64_t at;     /* bytes from the beginning of the registration */
	uint32_t window; /* number of the registration; 0: the buffer is not registered */
};

/* What an operation's ranks read and write in each other's memory. */
struct ko_gpu_places {
	struct ko_gpu_place src, dst;
};

/* The places of an operation, in memory that the other ranks of the host read. */
struct ko_gpu_post {
	_Atomic uint64_t seq;     /* number of the operation; 0: the post is being written */
	_Atomic uint64_t history; /* hash of the places of all operations up to this one */
	_Atomic uint64_t src_at, dst_at;
	_Atomic uint32_t src, dst;
};

/* A rank's part of the shared host memory, in bytes: the flags of its ends, each in pages of their
 * own so that they can be pinned, and its posts. Then come the boards of the lanes to it, and of
 * its own ends of far lanes from it. */
enum {
	KO_GPU_FLAGS_LEN = 4096,
	KO_GPU_SHARED =
		KO_GPU_ENDS * KO_GPU_FLAGS_LEN + KO_GPU_POSTS * (int)sizeof(struct ko_gpu_post)
};

_Static_assert(sizeof(struct ko_gpu_flags) <= KO_GPU_FLAGS_LEN, "the flags of an end fit");

/* One end of an edge. The slots are in the receiver's GPU memory, unless the edge is staged. */
struct ko_gpu_link {
	int peer;
	struct ko_gpu_memory memory;
	struct ko_gpu_flag *flags; /* the receiver's, of each slot, as the host sees them */
	char *gpu_flags;           /* the same, as this rank's GPU sees them */
	/* Slots that the proxy fills or empties (staged.h), as the host sees them. NULL: not
	 * staged. */
	char *staged;
	bool device; /* the staged slots are in GPU memory (dmabuf); the host does not touch them */
	struct ko_gpu_pair *pair; /* NULL: the peer is another process */
};

struct ko_gpu_comm;

/* A rank's edges in one of its rings. */
struct ko_gpu_ring {
	int kind; /* KO_GPU_ALL, ... */
	struct ko_gpu_link out, in;
	/* The inner communicator's edges, which carry what is staged. NULL: there is no such ring,
	 * or it has one rank. Then the bytes of their slots. */
	const struct ko_edges *over;
	size_t over_len;
	struct ko_gpu_proxy *proxy; /* NULL: neither edge of this rank is staged */
};

/* Memory that all ranks have mapped (window.h, map.h). */
struct ko_gpu_window {
	uint32_t id; /* number of the registration, from 1; the same on all ranks */
	char *mine;
	size_t len;
	/* By rank: where this GPU sees that rank's memory, and what was mapped for it. Both are
	 * NULL if ranks don't reach each other's memory. */
	char **at;
	struct ko_gpu_memory *mapped;
};

/* A communicator's GPU. It hangs at kolo_comm.attached. */
struct ko_gpu_comm {
	struct ko_attached attached; /* first */
	struct kolo_comm *comm;
	/* The same ranks again, for the watching thread alone: it needs lifelines and a roster of
	 * its own. NULL with one rank. */
	struct kolo_comm *inner;
	const struct ko_driver *driver;
	struct ko_gpu *gpu;
	size_t arena; /* bytes of a link's slots; the same on all ranks */
	/* Nothing goes from GPU to GPU: some can't reach each other, or KOLO_CUDA_P2P or a
	 * transport that was asked for by name says so. The same on all ranks. */
	bool apart;
	bool cards; /* some rank has slots in GPU memory that cards read and write */
	bool fixed; /* some edge is staged: every slot has arena / KO_GPU_SLOTS bytes */
	struct ko_gpu_ring rings[KO_GPU_RINGS];
	bool proxies;              /* some edge of this rank is staged, or some lane far */
	struct ko_gpu_memory sums; /* as long as a link's slots: room for the order "grid" */
	/* The ranks of this host; the flags lie in a window of it. Is `inner` if that is all
	 * ranks. */
	struct kolo_comm *local;
	int *places;      /* a rank's number in `local`; -1: another host */
	int *process;     /* the first rank in the same process; itself for other hosts */
	char *flags;      /* of all ranks of this host, in the order of `local` */
	size_t flags_len; /* bytes from one rank's flags to the next one's */
	char *gpu_flags;  /* `flags` as this GPU sees them */
	/* This rank's own flags of the end IN, as the host and as this GPU see them. */
	struct ko_gpu_flags *own;
	char *gpu_own;
	struct ko_gpu_memory noted;    /* a word: own->failed as a kernel has seen it */
	struct ko_gpu_marks **marks;   /* by rank, its own too; NULL: another process */
	struct ko_gpu_window *windows; /* nwindows registrations */
	int nwindows;
	uint32_t last_window; /* number of the last registration */
	uint64_t history;     /* hash of the places of all operations */
	struct ko_gpu_lanes {
		struct ko_gpu_window window;  /* the slots of all ranks of this host */
		struct ko_gpu_lane *out, *in; /* by rank, nranks of each; NULL: none are made */
		void *ways[KO_GPU_WAYS];      /* streams of Kolo's own */
		void *captured_ways[KO_GPU_WAYS_OF_KIND]; /* which captures draw in */
		bool far; /* some GPUs of this host don't reach each other */
	} lanes;
	struct ko_gpu_far *far;          /* NULL: no lane is far */
	struct ko_gpu_message *messages; /* room for what is recorded */
	size_t room;
	/* The last operation, and the last one that a graph has captured. The next operation of the
	 * same kind waits for it. */
	struct ko_gpu_last {
		void *event;
		uint64_t capture; /* number of the capture that has recorded it; 0: none */
		bool recorded;
	} last, captured;
	struct ko_gpu_pace {
		unsigned moves; /* recorded, except into graphs */
		void *event[2]; /* one for every KO_GPU_PACE moves, in turn */
	} pace[KO_GPU_STREAMS];
	pthread_t thread; /* watches (watchdog.h) */
	bool watched;
	pthread_mutex_t lock; /* protects the fields up to desc */
	pthread_cond_t changed;
	bool joined, closing;
	struct ko_desc desc; /* the last operation recorded */
	struct ko_gpu_uses *
		*uses; /* nuses queues that comm was used with; this rank's calls alone touch it */
	int nuses;
};

/* NULL: the communicator has not joined its GPUs. */
struct ko_gpu_comm *ko_gpu_of(struct kolo_comm *comm);

/* The rank that comes `steps` after this one in a ring of its, 1 or -1. */
int ko_gpu_neighbour(const struct kolo_comm *comm, int ring, int rank, int steps);

/* Is the edge from a rank to its next rank in this ring staged? It is between hosts, and if GPUs
 * are apart. */
bool ko_gpu_is_staged(const struct ko_gpu_comm *g, int ring, int rank);

/* The flags of one end of a rank: KO_GPU_IN or KO_GPU_OUT. NULL: the rank is on another host. */
struct ko_gpu_flags *ko_gpu_flags_of(const struct ko_gpu_comm *g, int rank, int end);

/* The flags of a rank of this host, as this GPU sees them. */
char *ko_gpu_flags_there(const struct ko_gpu_comm *g, int rank, int end);

/* Is the lane between two ranks far? */
bool ko_gpu_is_far(const struct ko_gpu_comm *g, int a, int b);

/* The board of one end of the lane from rank `from` to rank `to`; and as this GPU sees it. If the
 * lane is far, the rank of that end is on this host. */
struct ko_gpu_lane_board *ko_gpu_board_of(const struct ko_gpu_comm *g, int from, int to,
					  bool sends);
char *ko_gpu_board_there(const struct ko_gpu_comm *g, int from, int to, bool sends);

/* Bytes of a rank's part of the shared host memory. */
size_t ko_gpu_shared_len(int nranks);

/* The flag of a lane's slot; and its place in the board. */
static inline struct ko_gpu_flag *ko_gpu_lane_flag(const struct ko_gpu_lane *lane, int bank,
						   int slot)
{
	return &lane->board->slot[bank][slot];
}

static inline size_t ko_gpu_lane_flag_at(int bank, int slot)
{
	return offsetof(struct ko_gpu_lane_board, slot) +
	       (size_t)(bank * KO_GPU_LANE_SLOTS + slot) * sizeof(struct ko_gpu_flag);
}

/* Where a rank of this host posts the places of operation `seq`. */
struct ko_gpu_post *ko_gpu_post_of(const struct ko_gpu_comm *g, int rank, uint64_t seq);

/* A kernel that does nothing after the communicator has failed. */
static inline struct ko_gpu_job ko_gpu_guarded(const struct ko_gpu_comm *g)
{
	const void *failed = g->own ? g->gpu_own + offsetof(struct ko_gpu_flags, failed) : NULL;

	return (struct ko_gpu_job){ .unless = failed, .noted = g->noted.at };
}

/* May memory that other ranks have mapped be freed? Threads of this process may still work on it
 * after the communicator has failed. Then it is left to the process. */
bool ko_gpu_may_release(const struct ko_gpu_comm *g);

/* Bytes of the pattern that checks a staged edge of the ring. They are more than the link's own
 * slots hold, so that the last of them are written by the card after an offer. */
size_t ko_gpu_path_check_len(const struct ko_gpu_comm *g, const struct ko_gpu_ring *ring);

/* The pattern that ranks send to check a path: byte k of this rank. It differs between neighbouring
 * ranks and places. */
static inline unsigned char ko_gpu_path_pattern(int rank, size_t k)
{
	return (unsigned char)((k ^ k >> 8) + (size_t)rank);
}

/* Reports that the pattern did not arrive from `rank` as it was sent. `staged`: over a staged edge.
 * Returns KOLO_ESYS. */
int ko_gpu_path_lies(const struct ko_gpu_comm *g, int rank, bool staged);

/* Makes a driver's failure the thread's error, and returns `code`. The text is
 * "rank 1 (pid 7 on h): GPU 0 (...): WHAT: what the driver says". */
int ko_gpu_error(const struct ko_gpu_comm *g, int code, const char *what);

#endif
