/* The engine within: the structs that its files share, and who owns what. See README.md for the reading order. */
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H

#include "layout.h"
#include "memory.h"
#include "scaler.h"

struct zero_disk;
struct zero_kernels;
struct zero_threads;

/* With overlap: where the queue is when it has done an operation. A device has its own order of collectives and work. */
struct zero_mark {
	struct kolo_event *event; /* of a queue of the host's; */
	uint64_t ticket;          /* of work behind the operation on a device of its own */
};

/* Where a gathered tensor of stage 3 is. */
enum zero_state {
	ZERO_GONE,   /* it has no memory */
	ZERO_RISING, /* this rank's part is being copied there */
	ZERO_COMING, /* being gathered */
	ZERO_HERE,
};

/* State that is not at home. */
struct zero_away {
	size_t n;     /* elements of `held`, its first: whole blocks, or all of them; */
	size_t room;  /* as many on all ranks */
	size_t first; /* their number among all of this rank's, in the order in which they are updated */
	float *master, *moment[2]; /* in host memory; NULL in files. Of any type there is a master */
	char *grad;                /* their reduced gradients, in host memory */
	enum kolo_type grad_type;
};

/* One tensor, as this rank has it. Parts count elements of the whole tensor. */
struct zero_tensor {
	char *name;
	enum kolo_type type;
	int ndims;
	size_t shape[KOLO_ZERO_DIMS];
	size_t n, chunk;      /* elements, and of them those of a rank (layout.h) */
	struct zero_part own; /* this rank's */
	int group;
	bool trained; /* not frozen */
	bool sharded; /* stage 3, and not persistent: its values are gathered for use */

	char *param; /* n values at home; of a sharded tensor in region, and there while state is not ZERO_GONE */
	char *shard; /* of a sharded tensor: the own values, always there; own.n of chunk are used. NULL in files */
	enum zero_place shard_place;
	uint64_t shard_offset; /* in the file of shards */
	uint64_t up;           /* the last copy to param's own part, which who reads it waits for; */
	uint64_t down;         /* and of its gradient, to where its state is away */
	size_t sums_at;        /* its own part's blocks in the engine's sums */
	bool in_user;          /* param is the caller's memory */
	struct zero_region region;
	enum zero_state state;
	int last_gather; /* of one that is updated elsewhere too: so many buckets of the gatherer have to be finished for it */
	bool ahead;                /* gathered, or being so, before use */
	int uses;                  /* kolo_zero_use without kolo_zero_release */
	struct zero_mark gathered; /* of a sharded one: state may become ZERO_HERE */

	/* State of the optimizer for elements `held`, all in float: all of them at stage 0, else the own ones. Of the first ones it is
	 * away; of the others master and moment. At home an element of type KOLO_F32 is its own master, which then is NULL. */
	struct zero_part held;
	struct zero_away away;
	float *master, *moment[2];

	/* Reduced gradients at home, and with accumulation sums of them: of type grad_type, elements grad_held */
	char *grad;
	enum kolo_type grad_type;
	struct zero_part grad_held;
	size_t held_room,
		grad_room; /* elements of held and grad_held that there is memory for: as many on all ranks */
	bool reported;     /* in this micro-step */
	bool summed;       /* grad has a sum of earlier micro-steps */
	int first_piece, npieces, first_bucket; /* in the plan of reductions */
};

/* Memory in which a bucket of gradients is filled and reduced. */
struct zero_buffer {
	char *memory;
	int bucket;               /* -1: free */
	struct zero_mark reduced; /* its operation is done */
	uint64_t down;            /* the last copy from it, which who fills it waits for */
};

/* The buckets of one micro-step: filled in any order, reduced in order of their numbers, stored in that order. stored <=
 * started <= plan.nbuckets. */
struct zero_reducer {
	struct zero_plan plan;
	int *missing;   /* of each bucket: pieces not filled yet */
	int *buffer_of; /* the buffer that it has, -1: none */
	int started, stored;
	struct zero_buffer *buffers;
	int nplanned; /* buffers made at creation; */
	int nbuffers; /* with those that a strange order of gradients added */
	size_t buffer_len;
	char *incoming; /* for what a parameter server receives: one more of them */
};

/* All-gathers of updated parameters, in order of the plan: finished <= started <= plan.nbuckets. */
struct zero_gatherer {
	struct zero_plan plan;
	char *buffers[2]; /* for buckets that are not whole: two with overlap, else one; taken in turns */
	int nbuffers;
	size_t buffer_len;
	int *buffer_of;          /* of each bucket that was started and is not whole */
	struct zero_mark *marks; /* of each bucket, when it is gathered */
	int started, finished;
	size_t *counts; /* of the ranks, for a tensor that does not divide; nranks */
};

/* Stage 3: the order in which sharded tensors are used in a micro-step, learnt from the first. */
struct zero_trace {
	int *tensors; /* n of the last micro-step, or of this one up to now */
	int n, room;
	int at;        /* uses of this micro-step so far */
	bool matches;  /* this micro-step was like it so far */
	size_t live;   /* elements that are not ZERO_GONE */
	size_t ahead;  /* of these, gathered before use, */
	size_t rising; /* and on their way up, not gathered yet */
	uint64_t hash; /* of the uses of this update, to be compared between ranks */
};

/* Where a value was found that is not finite. */
struct zero_culprit {
	int32_t tensor; /* -1: none */
	int32_t micro;  /* the micro-step, from 0 */
	uint64_t index;
	double value;
	int64_t reduced; /* 1: found in the sum over ranks, when no rank's own gradient had one */
};

/* State in files: `nunits` units of `unit` elements each, in the order of updates, of each element `states` floats; those of one
 * kind stand together. A pass goes over all units once, in order: some are read ahead, some are written behind. */
struct zero_units {
	struct zero_disk *disk; /* NULL: nothing is in files */
	size_t unit, nunits;
	int states;
	int nbuffers;
	size_t buffer_len;
	char *buffers;
	size_t asked; /* units before it have been asked for in this pass; */
	size_t at;    /* the one that is open; SIZE_MAX: none */
};

/* Buffers in turns, each free again when its last copy is done. */
struct zero_staging {
	char *memory; /* n times len bytes */
	size_t len;
	int n, turn; /* turn: the one that is next */
	uint64_t *tickets;
};

/* Buffers for shards that are in files. */
struct zero_shelf {
	struct zero_disk *disk; /* NULL: no shard is in a file */
	char *buffers;
	size_t len;  /* of one; */
	int n, turn; /* turn: the one that is next */
	int *tensor; /* what is in it, or on its way to it; -1: nothing to be read; -2 - tensor: that is being written */
	uint64_t *tickets; /* of the last copy from it */
};

/* What part of a micro-step the engine is in. */
enum zero_phase { ZERO_IDLE, ZERO_FORWARD, ZERO_BACKWARD };

struct kolo_zero {
	struct kolo_comm *control; /* what ranks tell each other at the end of an update */
	struct kolo_comm *data;    /* gradients and parameters */
	struct kolo_queue *queue;  /* NULL without overlap */
	int rank, nranks;
	struct kolo_zero_config config; /* groups: a copy */
	const struct zero_kernels *kernels;
	int failed; /* the status that all later calls get, with failure as text */
	char failure[512];
	bool torn; /* a load has failed half way; another one may make it whole again */

	struct zero_tensor *tensors;
	int ntensors;
	struct zero_reducer reducer;
	struct zero_gatherer gatherer;
	struct zero_trace trace;
	struct zero_arena arenas[ZERO_NPLACES][ZERO_NKINDS];

	struct kolo_zero_device *device; /* NULL: home is host memory */
	bool on_host;                    /* work at home is done by this process */
	struct zero_threads *threads;
	int *order; /* norder trained tensors whose state is sharded, as they are updated; */
	int norder;
	enum zero_place state_place; /* of what is away; ZERO_HOME: nothing is */
	size_t naway;                /* elements of this rank that are, each tensor's in whole blocks */
	struct zero_units units;
	struct zero_shelf shelf;
	struct zero_staging rising;  /* what was updated away, on its way home; */
	struct zero_staging falling; /* and what was updated at home, on its way to a shard that is away */
	uint64_t computed, down, up; /* the last work at home, and the last copies */
	size_t slice;                /* elements that are updated away, or fall, at a time */
	uint32_t *bad;               /* with sums, what work at home notes */
	float *spot;  /* on a device of its own: for work that only marks a place in its order */
	double *sums; /* of squares of all blocks, or of Lamb's two kinds of them; */
	size_t nsums;
	int squared;     /* pieces of reductions of this micro-step whose tensors' squares are in sums */
	uint64_t landed; /* copies down that were waited for */
	uint64_t down_bytes, up_bytes;
	uint64_t read_before, written_before; /* of files, when the engine was made */

	/* A plan uses tensors without moving a value; what that came to */
	bool dry;
	size_t dry_gathered;
	uint64_t dry_read_bytes;
	size_t extra_buckets; /* bytes of buffers beyond nplanned */
	size_t gathered,
		most_gathered;  /* bytes of regions that are open, now, and with the spare ones at most; */
	size_t used, most_used; /* of these, that are in use */
	struct zero_region *spares; /* memory that no tensor has now: at most ntensors of them, */
	int nspares;
	size_t spare;               /* and their bytes; */
	struct zero_region passage; /* through which memory goes from one tensor of the host to another */
	bool keeps;                 /* which are kept when the engine has been made */
	size_t user_bytes;          /* of parameters in the caller's memory */

	enum zero_phase phase;
	int micro;                 /* micro-steps done towards the update */
	long step, skipped;        /* updates, and those that an overflow took */
	uint64_t total_samples;    /* of all ranks, in updates */
	struct zero_scaler scaler; /* config.loss_scale is where it started */
	double predivide;          /* config.predivide, or nranks */
	size_t micro_batch; /* so many samples weigh 1 / nranks: config.micro_batch, or agreed later; 0: not yet */
	float weight;       /* of this micro-step's gradients */
	size_t micro_samples;             /* of this micro-step on this rank; */
	double samples, loss;             /* and this update's on this rank, loss times samples */
	struct zero_culprit culprit;      /* in the gradients that this rank reported */
	struct kolo_zero_traffic traffic; /* but sent_bytes */
	uint64_t sent_before;             /* by data before the first step, and by kolo_zero_get */
	struct kolo_zero_times times;
	double phase_began; /* zero_now() */
};

#endif
