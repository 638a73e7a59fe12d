/* The engine: the structs that its files share, and who owns what. README.md has the reading order.
 *
 * "On the device" means where the model computes: in the memory of config.device, or in host memory
 * without one. "Offloaded" means kept elsewhere between updates: in host memory, or in files. */
#ifndef ZERO_CORE_ENGINE_H
#define ZERO_CORE_ENGINE_H

#include "zero/base/memory.h"
#include "zero/core/layout.h"
#include "zero/optim/scaler.h"
#include "zero/optim/squares.h"

struct zero_disk;
struct zero_kernels;
struct zero_threads;

/* With overlap: a place in the queue. A device of its own has another order, of collectives and
 * work. */
struct zero_mark {
	struct kolo_event *event; /* in a queue of the host's */
	uint64_t ticket;          /* on a device of its own: of work after the operation */
};

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Where a gathered tensor of stage 3 is. */
enum zero_state {
	ZERO_GONE,      /* it has no memory */
	ZERO_UPLOADING, /* this rank's part is being uploaded */
	ZERO_GATHERING,
	ZERO_HERE,
};

/* Offloaded state of a tensor. */
struct zero_offloaded {
	size_t n;     /* elements of `held`, its first ones: whole blocks, or all of them */
	size_t room;  /* the same on all ranks, n <= room */
	size_t first; /* their number among all that this rank offloads, in the order of updates */
	float *master,
		*moment[2]; /* in host memory; NULL in files. Elements of any type have a master */
	char *grad;         /* their reduced gradients, in host memory */
	enum kolo_type grad_type;
};

/* The larger tensor of which an engine has a part: runs of `run` elements are of parts 0, 1, .. and
 * again. */
struct zero_division {
	size_t shape[KOLO_ZERO_DIMS], n;
	size_t run, parts, part; /* parts 1: the tensor is whole */
};

/* One tensor, as this rank has it. Parts count elements of the engine's tensor. */
struct zero_tensor {
	char *name;
	enum kolo_type type;
	enum kolo_type given_type; /* of the gradients that are reported and reduced */
	int ndims;
	size_t shape[KOLO_ZERO_DIMS];
	struct zero_division whole; /* of which this engine has a part */
	size_t n, chunk;            /* elements; those of a rank (layout.h) */
	struct zero_part own;       /* this rank's */
	int group;
	bool trained; /* not frozen */
	bool counted; /* in the norm: of a replicated one the other copy is */
	bool tied;    /* with a tensor of another engine */
	int micros;   /* gradients that it has in a micro-step */
	bool sharded; /* stage 3, and not persistent: its values are gathered for use */

	char *param; /* n values on the device. Of a sharded tensor they are in region, unless state
			is ZERO_GONE */
	char *shard; /* of a sharded tensor: room for chunk values, own.n of them used. NULL in
			files */
	enum zero_place shard_place;
	uint64_t shard_offset; /* in the file of shards */
	uint64_t upload;   /* ticket of the last upload to param's own part; readers wait for it */
	uint64_t download; /* ticket of the last download of its gradient */
	size_t sums_at;    /* its own part's first block in the engine's sums */
	bool in_user;      /* param is the caller's memory */
	struct zero_region region;
	enum zero_state state;
	int last_gather; /* of one that other ranks update too: finished buckets of the gatherer
			    that it needs */
	bool ahead;      /* gathered before use, or being so */
	int uses;        /* kolo_zero_use without kolo_zero_release */
	struct zero_mark gathered; /* of a sharded one: state may become ZERO_HERE */

	/* The optimizer's state for elements `held`, in float: all of them at stage 0, else the own
	 * ones. The first are offloaded. The others have their master and moments here. An element
	 * of type KOLO_F32 on the device is its own master: then master is NULL. */
	struct zero_part held;
	struct zero_offloaded offloaded;
	float *master, *moment[2];

	/* Reduced gradients on the device, and with accumulation their sums: of elements
	 * grad_held. */
	char *grad;
	enum kolo_type grad_type;
	struct zero_part grad_held;
	size_t held_room, grad_room; /* elements of held and grad_held that there is memory for; the
					same on all ranks */
	/* Gradients that this rank adds up before they are reduced, n floats: of the micro-steps
	 * of an update, then it is grad, or of the micro-batches of a micro-step. NULL: it need
	 * not */
	char *sum;
	bool summed;  /* sum has a value */
	int reported; /* gradients in this micro-step */
	int given;    /* gradients in this update */
	bool used;    /* since the last update: its values are that update's */
	int first_piece, npieces, first_bucket; /* in the plan of reductions */
};

/* ---- Reductions and gathers ------------------------------------------------------------------ */

/* Memory in which a bucket of gradients is filled and reduced. */
struct zero_buffer {
	char *memory;
	int bucket;               /* -1: free */
	struct zero_mark reduced; /* its operation is done */
	uint64_t download;        /* of the last download from it; wait for it before filling */
};

/* The buckets of one micro-step: filled in any order, reduced in the order of their numbers, stored
 * in that order. stored <= started <= plan.nbuckets. */
struct zero_reducer {
	/* The engine's own, or apart: at stage 3 ranks reduce and gather in different orders. */
	struct kolo_comm *comm;
	struct kolo_queue *queue;
	bool apart;
	double patience; /* if apart: seconds to wait for a buffer before one is added, */
	int grant;       /* and buffers that may be added at once */
	struct zero_plan plan;
	int *missing;   /* of each bucket: pieces not filled yet */
	int *buffer_of; /* of each bucket: its buffer; -1: none */
	int started, stored;
	struct zero_buffer *buffers;
	int nplanned; /* buffers made at creation */
	int nbuffers; /* with those that an unusual order of gradients added */
	size_t buffer_len;
	char *incoming; /* one more buffer, for what a parameter server receives */
};

/* All-gathers of updated parameters, in the order of the plan. finished <= started <=
 * plan.nbuckets. */
struct zero_gatherer {
	struct zero_plan plan;
	char *buffers[2]; /* for buckets that are not whole: two with overlap, else one; taken in
			     turns */
	int nbuffers;
	size_t buffer_len;
	int *buffer_of;          /* of each bucket that was started and is not whole */
	struct zero_mark *marks; /* of each bucket: it is gathered */
	int started, finished;
	size_t *counts; /* [nranks], for a tensor that does not divide */
};

/* Stage 3: the order in which sharded tensors are used in a micro-step, learnt from the first
 * one. */
struct zero_trace {
	int *tensors; /* n of them: those of the last micro-step, or of this one so far */
	int n, room;
	int at;           /* uses of this micro-step so far */
	bool matches;     /* this micro-step was like the last one so far */
	size_t live;      /* elements that are not ZERO_GONE */
	size_t ahead;     /* of these, gathered before use */
	size_t uploading; /* of these, being uploaded and not gathered yet */
	uint64_t hash;    /* of the uses of this update, compared between ranks */
};

/* Where a value was found that is not finite. */
struct zero_nonfinite {
	int32_t tensor; /* -1: none */
	int32_t micro;  /* the micro-step, from 0 */
	uint64_t index;
	double value;
	int64_t reduced; /* 1: found in the sum over ranks, when no rank's own gradient had one */
};

/* ---- Offload --------------------------------------------------------------------------------- */

/* State in a file: nblocks blocks of `elements` elements each, in the order of updates. Each
 * element has `states` floats; in a block those of one kind are contiguous. A pass goes over all
 * blocks once, in order. */
struct zero_state_blocks {
	struct zero_disk *disk; /* NULL: nothing is in files */
	size_t elements, nblocks;
	int states;
	int nbuffers;
	size_t buffer_len;
	char *buffers;
	size_t asked; /* blocks of which reads were started in this pass */
	size_t at;    /* the open block; SIZE_MAX: none */
};

/* Buffers in turns. Each is free again when its last copy is done. */
struct zero_staging {
	char *memory; /* n times len bytes */
	size_t len;
	int n, turn; /* turn: the next one */
	uint64_t *tickets;
};

/* Buffers for shards that are in files. */
struct zero_param_buffers {
	struct zero_disk *disk; /* NULL: no shard is in a file */
	char *buffers;
	size_t len;        /* of one buffer */
	int n, turn;       /* turn: the next one */
	int *tensor;       /* in each buffer, or being read into it; -1: none; -2 - tensor: being
			    * written */
	uint64_t *tickets; /* of the last copy from each */
};

/* ---- The engine ------------------------------------------------------------------------------ */

/* What part of a micro-step the engine is in. */
enum zero_phase { ZERO_IDLE, ZERO_FORWARD, ZERO_BACKWARD };

struct kolo_zero {
	struct kolo_comm *control; /* records that ranks exchange at the end of an update */
	struct kolo_comm *data;    /* gradients and parameters */
	struct kolo_comm
		*world; /* records of all engines that train one model; NULL: of this one */
	int64_t family; /* rank 0's number in world: that of this engine among others */
	struct kolo_queue *queue; /* NULL without overlap */
	int rank, nranks;
	struct kolo_zero_config config; /* groups: a copy */
	const struct zero_kernels *kernels;
	int failed; /* the status of all later calls, with failure as text */
	char failure[512];
	char warning[320]; /* empty: none */
	bool torn; /* a load has failed half way; another load may make the engine whole again */

	struct zero_tensor *tensors;
	int ntensors;
	struct zero_reducer reducer;
	struct zero_gatherer gatherer;
	struct zero_trace trace;
	struct zero_arena arenas[ZERO_NPLACES][ZERO_NKINDS];

	struct kolo_zero_device *device; /* NULL: the model computes in host memory */
	bool on_host; /* this process does the device's work: it is NULL or an arena */
	struct zero_threads *threads;
	int *order; /* norder trained tensors whose state is sharded, in the order of updates */
	int norder;
	enum zero_place state_place; /* of offloaded state; ZERO_ON_DEVICE: there is none */
	size_t noffloaded; /* elements of this rank in offloaded state, each tensor's in whole
			      blocks */
	struct zero_state_blocks state_blocks;
	struct zero_param_buffers param_buffers;
	struct zero_staging uploads; /* for values updated on the host that belong on the device */
	struct zero_staging
		downloads; /* for values updated on the device that belong to an offloaded shard */
	uint64_t computed, last_download, last_upload; /* tickets */
	size_t slice;  /* elements that are updated or copied at a time */
	uint32_t *bad; /* beside sums: work sets it if a value is not finite */
	float *spot;   /* on a device of its own: for work that only marks a place in its order */
	struct zero_squares squares; /* of this rank's gradients so far, in host memory */
	double *sums; /* of squares on a device of its own, of all blocks; of Lamb two for each */
	size_t nsums; /* in sums */
	bool digits;  /* a block's are KOLO_ZERO_WORK_DIGITS, not KOLO_ZERO_WORK_SQUARES */
	int squared;  /* pieces of this micro-step's reductions whose tensors' squares are in
			 squares, or in sums */
	uint64_t downloaded; /* the latest download that was waited for */
	uint64_t down_bytes, up_bytes;
	uint64_t read_before, written_before; /* bytes of files when the engine was made */

	/* A plan uses tensors without moving a value. */
	bool dry;
	size_t dry_gathered;     /* bytes that were gathered at most */
	uint64_t dry_read_bytes; /* of files */

	size_t extra_buckets; /* bytes of buffers beyond nplanned */
	size_t gathered,
		most_gathered;  /* bytes of open regions, now; with the spare ones, at most */
	size_t used, most_used; /* bytes of regions in use, now and at most */
	struct zero_region
		*spares; /* memory that no tensor has now: nspares of them, at most ntensors */
	int nspares;
	size_t spare; /* bytes of spares */
	struct zero_region
		passage;   /* through which memory goes from one tensor of the host to another */
	bool keeps;        /* spares are kept, from when the engine has been made */
	size_t user_bytes; /* of parameters in the caller's memory */

	enum zero_phase phase;
	int micro;                 /* micro-steps done towards the update */
	long step, skipped;        /* updates; updates that an overflow prevented */
	long attempts;             /* updates, made or not */
	uint64_t total_samples;    /* of all ranks, in updates */
	struct zero_scaler scaler; /* starts at config.loss_scale */
	double predivide;          /* config.predivide, or nranks */
	size_t micro_batch;   /* samples that weigh 1 / nranks: config.micro_batch, or agreed later;
				 0: not yet */
	float weight;         /* of this micro-step's gradients */
	size_t micro_samples; /* of this micro-step on this rank */
	bool told;            /* its loss, by kolo_zero_backward */
	double samples, loss; /* of this update on this rank; loss: times samples */
	int learnt;           /* micro-steps of this update with samples */
	struct zero_nonfinite nonfinite;  /* in the gradients that this rank reported */
	struct kolo_zero_traffic traffic; /* except sent_bytes */
	uint64_t sent_before; /* bytes sent by data before the first step, and by kolo_zero_get */
	struct kolo_zero_times times;
	double phase_began; /* zero_now() */
};

#endif
