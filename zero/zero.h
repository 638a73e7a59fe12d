/* The engine within: what its files share. See README.md for the reading order. */
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H

#include "basics.h"
#include "disk.h"
#include "kernels.h"
#include "layout.h"
#include "memory.h"
#include "optimizer.h"
#include "scaler.h"
#include "threads.h"

#include <stdbool.h>
#include <time.h>

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
	int micro;                        /* micro-steps done towards the update */
	long step, skipped;               /* updates, and those that an overflow took */
	uint64_t total_samples;           /* of all ranks, in updates */
	struct zero_scaler scaler;        /* config.loss_scale is where it started */
	double predivide;                 /* config.predivide, or nranks */
	bool asks_micro_batch;            /* config.micro_batch was 0 */
	float weight;                     /* of this micro-step's gradients */
	size_t micro_samples;             /* of this micro-step on this rank; */
	double samples, loss;             /* and this update's on this rank, loss times samples */
	struct zero_culprit culprit;      /* in the gradients that this rank reported */
	struct kolo_zero_traffic traffic; /* but sent_bytes */
	uint64_t sent_before;             /* by data before the first step, and by kolo_zero_get */
	struct kolo_zero_times times;
	double phase_began; /* zero_now() */
};

/* Seconds, from any time on. */
static inline double zero_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- describe.c ---------------------------------------------------------------------------------------- */

/* An engine as far as arithmetic goes: tensors, what is where, buckets, and how much memory that takes. Needs no other rank; frees
 * by zero_undescribe. Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int zero_describe(struct kolo_zero *zero, const struct kolo_zero_config *config,
		  const struct kolo_zero_tensor *tensors, int ntensors, int rank, int nranks);
void zero_undescribe(struct kolo_zero *zero);

/* Whether host memory of a kind that is away is pinned. */
bool zero_is_pinned(const struct kolo_zero *zero, enum zero_kind kind);

/* Bytes of all buffers that are planned for. */
size_t zero_bucket_bytes(const struct kolo_zero *zero);

/* Gives each tensor its parts of the arenas; before these are open they are counted. */
void zero_take_memory(struct kolo_zero *zero);

/* ---- plan.c -------------------------------------------------------------------------------------------- */

/* Finds what a model gathers that uses its tensors one after the other, forward and back: dry_gathered, and the traffic of one such
 * micro-step. Behind zero_describe, before anything is opened. Errors: KOLO_ENOMEM. */
int zero_plan_uses(struct kolo_zero *zero, struct kolo_zero_traffic *of_one);

/* The rest is behind zero_plan_uses. Bytes of host memory that are needed, and what the system thinks that programs may still take;
 * SIZE_MAX: it does not say. */
size_t zero_plan_host_bytes(const struct kolo_zero *zero);
size_t zero_plan_available(void);

/* KOLO_ENOMEM where what was described does not fit into the device, or, beside `others` bytes of other ranks, into `available` ones of
 * the host (or, whatever these are, its budget). */
int zero_plan_fits(const struct kolo_zero *zero, size_t available, size_t others);

/* ---- home.c: where the model computes ------------------------------------------------------------------- */

/* Does work at home; on a device of its own that is done when zero_home_wait has returned. */
int zero_home_work(struct kolo_zero *zero, const struct kolo_zero_work *work);
int zero_home_wait(struct kolo_zero *zero);
/* n elements from here to there, both at home; work as above. */
int zero_home_copy(struct kolo_zero *zero, const void *from, enum kolo_type type, void *to, size_t n);
/* Bytes from home to the host, and to home; done when they return. */
int zero_home_get(struct kolo_zero *zero, void *host, const void *home, size_t bytes);
int zero_home_put(struct kolo_zero *zero, void *home, const void *host, size_t bytes);

/* Starts a copy; *ticket is what zero_wait_down, or zero_wait_up, waits for. Without a device it is done at once. */
int zero_copy_down(struct kolo_zero *zero, void *host, const void *home, size_t bytes, uint64_t *ticket);
int zero_copy_up(struct kolo_zero *zero, void *home, const void *host, size_t bytes, uint64_t *ticket);
int zero_wait_down(struct kolo_zero *zero, uint64_t ticket);
int zero_wait_up(struct kolo_zero *zero, uint64_t ticket);

/* The next buffer of a staging; what was copied from it is done. */
int zero_staging_take(struct kolo_zero *zero, struct zero_staging *staging, bool up, char **out,
		      uint64_t **ticket);

/* What is in the queue now, and waiting for that; nothing without overlap. */
int zero_mark_open(struct kolo_zero *zero, struct zero_mark *mark);
void zero_mark_close(struct zero_mark *mark);
int zero_mark_set(struct kolo_zero *zero, struct zero_mark *mark);
int zero_mark_wait(struct kolo_zero *zero, struct zero_mark *mark);
/* Whether that would not block; where a device has its own order it is not known. */
bool zero_mark_passed(struct kolo_zero *zero, struct zero_mark *mark);

/* The queue for a collective on memory at home that is waited for at once, and that wait. */
struct kolo_queue *zero_queue_now(struct kolo_zero *zero);
int zero_queue_done(struct kolo_zero *zero, int rc);

/* ---- away.c: state that is not at home ------------------------------------------------------------------ */

/* Elements of a tensor with their state in host memory; values: where the updated ones go to, in the tensor's type. */
struct zero_slice {
	struct zero_part part;
	float *master, *moment[2];
	const char *grad;
	char *values;
};

/* Goes over elements of a tensor that are away, in slices. Passes over state in files are between begin and end, and in the order of
 * updates; values are not NULL where `update` says so, and then go to where they belong. */
typedef int zero_slice_fn(struct kolo_zero *zero, int tensor, const struct zero_slice *slice, void *arg);
int zero_away_begin(struct kolo_zero *zero);
int zero_away_walk(struct kolo_zero *zero, int tensor, struct zero_part part, bool update, zero_slice_fn *fn,
		   void *arg);
int zero_away_end(struct kolo_zero *zero);

/* Elements of the state of a tensor to floats of the host, and from them: 0: masters, 1 and 2: moments. Wherever they are; outside
 * of passes. */
int zero_state_get(struct kolo_zero *zero, const struct zero_tensor *t, int state, struct zero_part part,
		   float *out);
int zero_state_put(struct kolo_zero *zero, struct zero_tensor *t, int state, struct zero_part part,
		   const float *from);

/* Bytes of a file from any place to the host, or back, through a buffer of the file that is idle. */
int zero_file_window_get(struct zero_disk *disk, char *buffer, size_t len, uint64_t offset, void *out,
			 size_t bytes);
int zero_file_window_put(struct zero_disk *disk, char *buffer, size_t len, uint64_t offset, const void *from,
			 size_t bytes);

/* Bytes of all files that were read and written since the engine was made. */
void zero_files_counts(const struct kolo_zero *zero, uint64_t *read_bytes, uint64_t *written_bytes);

/* Files and buffers for what is away. Errors: KOLO_ESYS, KOLO_ENOMEM, KOLO_ENOTSUP. */
int zero_away_open(struct kolo_zero *zero);
void zero_away_close(struct kolo_zero *zero);

/* ---- shards.c: values of tensors, wherever they are ------------------------------------------------------ */

/* Elements of a tensor's values, of a sharded one of its own part, to the host and from it. Between updates. */
int zero_values_get(struct kolo_zero *zero, int tensor, struct zero_part part, void *out);
int zero_values_put(struct kolo_zero *zero, int tensor, struct zero_part part, const void *from);

int zero_shelf_describe(struct kolo_zero *zero);
int zero_shelf_open(struct kolo_zero *zero);
void zero_shelf_close(struct kolo_zero *zero);
/* What was read ahead of shards that are about to change. */
int zero_shelf_forget(struct kolo_zero *zero);

/* Starts to read a tensor's shard, if it is in a file and a buffer is free. */
int zero_shelf_ask(struct kolo_zero *zero, int tensor);
/* Starts the copy of a shard that is away to its place among the gathered values. */
int zero_shard_rise(struct kolo_zero *zero, int tensor);
/* Before and behind an update of a tensor. Meanwhile `shard` of one that is away is memory of the host. */
int zero_shard_begin(struct kolo_zero *zero, int tensor);
int zero_shard_end(struct kolo_zero *zero, int tensor);

/* ---- gradients.c --------------------------------------------------------------------------------------- */

/* Buffers, events and counts for the plan. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int zero_reducer_open(struct kolo_zero *zero);
void zero_reducer_close(struct kolo_zero *zero);
/* A new micro-step. */
void zero_reducer_begin(struct kolo_zero *zero);
/* Whether ranks have a sum to reduce in this micro-step: at stages 0 and 1 in the last of an update only. */
bool zero_reduces_now(const struct kolo_zero *zero);
/* Counts the reduction of a bucket. */
void zero_count_reduction(struct kolo_zero *zero, const struct zero_bucket *bucket);
/* Fills what is missing with zeros or earlier sums, and waits until all is reduced and stored. */
int zero_reducer_finish(struct kolo_zero *zero);

/* ---- params.c ------------------------------------------------------------------------------------------ */

/* Memory for the values of a sharded tensor, which then is ZERO_RISING; and none any more. */
int zero_params_open(struct kolo_zero *zero, struct zero_tensor *tensor);
void zero_params_close(struct kolo_zero *zero, struct zero_tensor *tensor);
/* Memory of the device, for which those that no tensor has now are given back where it has none left. Errors: KOLO_ENOMEM and
 * the device's own. */
int zero_device_ask(struct kolo_zero *zero, size_t bytes, const char *what, void **out);
void zero_spares_close(struct kolo_zero *zero);
/* Lets all gathered tensors go, before an update. */
void zero_params_drop(struct kolo_zero *zero);
/* The end of a micro-step: its uses are the order to expect from now on, and what was gathered for nothing goes. */
int zero_trace_end(struct kolo_zero *zero);

/* ---- gather.c ------------------------------------------------------------------------------------------ */

int zero_gatherer_open(struct kolo_zero *zero);
void zero_gatherer_close(struct kolo_zero *zero);

/* Counts the gather of a bucket, or of a whole tensor. */
void zero_count_gather(struct kolo_zero *zero, const struct zero_bucket *bucket);
void zero_count_whole(struct kolo_zero *zero, const struct zero_tensor *t);

/* Gathers a tensor's chunks where it lies, out of src, NULL: out of the own part itself. queue as in kolo.h. */
int zero_gather_whole(struct kolo_zero *zero, struct zero_tensor *t, const void *src,
		      struct kolo_queue *queue);

/* Waits until so many buckets of the last update are gathered, or all. */
int zero_gather_finish(struct kolo_zero *zero, int nbuckets);
int zero_gather_finish_all(struct kolo_zero *zero);

/* Updates own chunks bucket by bucket (update, which gets a piece), and gathers each bucket behind it. */
typedef int zero_update_piece_fn(struct kolo_zero *zero, const struct zero_piece *piece, void *arg);
int zero_gather_updated(struct kolo_zero *zero, zero_update_piece_fn *update, void *arg);

/* ---- update.c ------------------------------------------------------------------------------------------ */

/* The values of elements of a tensor from their masters, wherever either is. Between updates. */
int zero_values_from_masters(struct kolo_zero *zero, int tensor, struct zero_part part);

/* Updates all tensors with gradients times factor, and gathers what the stage keeps whole. */
int zero_update(struct kolo_zero *zero, float factor);

/* ---- server.c ------------------------------------------------------------------------------------------ */

/* The parameter server's way to reduce a bucket, and to give rank 0's parameters to all. */
int zero_server_reduce(struct kolo_zero *zero, const struct zero_bucket *bucket, char *memory);
int zero_server_share(struct kolo_zero *zero);

#endif
