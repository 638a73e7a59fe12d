/* The engine within: what its files share. See README.md for the reading order. */
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H

#include "basics.h"
#include "kernels.h"
#include "layout.h"
#include "memory.h"
#include "optimizer.h"
#include "scaler.h"

#include <stdbool.h>
#include <time.h>

/* Where a gathered tensor of stage 3 is. */
enum zero_state {
	ZERO_AWAY,   /* its region traps */
	ZERO_COMING, /* being gathered */
	ZERO_HERE,
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

	char *param;  /* n values; of a sharded tensor in region, and there while state is not ZERO_AWAY */
	char *shard;  /* of a sharded tensor: the own values, always there; own.n of chunk are used */
	bool in_user; /* param is the caller's memory */
	struct zero_region region;
	enum zero_state state;
	int last_gather; /* of one that is updated elsewhere too: so many buckets of the gatherer have to be finished for it */
	bool ahead;                  /* gathered, or being so, before use */
	int uses;                    /* kolo_zero_use without kolo_zero_release */
	struct kolo_event *gathered; /* of a sharded one, with overlap: state may become ZERO_HERE */

	/* State of the optimizer for elements `held`, all in float: all of them at stage 0, else the own ones. An element of type
	 * KOLO_F32 is its own master, which then is NULL. */
	struct zero_part held;
	float *master, *moment[2];

	/* Reduced gradients, and with accumulation sums of them: of type grad_type, elements grad_held */
	char *grad;
	enum kolo_type grad_type;
	struct zero_part grad_held;
	bool reported;            /* in this micro-step */
	bool summed;              /* grad has a sum of earlier micro-steps */
	int first_piece, npieces; /* in the plan of reductions */
};

/* Memory in which a bucket of gradients is filled and reduced. */
struct zero_buffer {
	char *memory;
	int bucket;               /* -1: free */
	struct kolo_event *event; /* with overlap: its operation is done */
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
	int *buffer_of;             /* of each bucket that was started and is not whole */
	struct kolo_event **events; /* with overlap: of each bucket, when it is gathered */
	int started, finished;
	size_t *counts; /* of the ranks, for a tensor that does not divide; nranks */
};

/* Stage 3: the order in which sharded tensors are used in a micro-step, learnt from the first. */
struct zero_trace {
	int *tensors; /* n of the last micro-step, or of this one up to now */
	int n, room;
	int at;        /* uses of this micro-step so far */
	bool matches;  /* this micro-step was like it so far */
	size_t live;   /* elements that are not ZERO_AWAY */
	size_t ahead;  /* of these, gathered before use */
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
	struct zero_arena arenas[ZERO_NKINDS];
	size_t extra_buckets;           /* bytes of buffers beyond nplanned */
	size_t gathered, most_gathered; /* bytes of regions that are open, now and at most; */
	size_t used, most_used;         /* of these, that are in use */
	size_t user_bytes;              /* of parameters in the caller's memory */

	enum zero_phase phase;
	int micro;                   /* micro-steps done towards the update */
	long step, skipped;          /* updates, and those that an overflow took */
	uint64_t total_samples;      /* of all ranks, in updates */
	struct zero_scaler scaler;   /* config.loss_scale is where it started */
	double predivide;            /* config.predivide, or nranks */
	bool asks_micro_batch;       /* config.micro_batch was 0 */
	float weight;                /* of this micro-step's gradients */
	size_t micro_samples;        /* of this micro-step on this rank; */
	double samples, loss;        /* and this update's on this rank, loss times samples */
	bool suspect;                /* the gradient that is being reported has a value that is not finite */
	struct zero_culprit culprit; /* in the gradients that this rank reported */
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

/* ---- step.c -------------------------------------------------------------------------------------------- */

/* 0, or what the engine failed with earlier. */
int zero_check(struct kolo_zero *zero);

/* Keeps a failure for later calls, but KOLO_EINVAL; returns rc. */
int zero_failed(struct kolo_zero *zero, int rc);

/* The tensor of this number; NULL and the error text of `what` where there is none. */
struct zero_tensor *zero_tensor_get(struct kolo_zero *zero, int tensor, const char *what);

/* Whether ranks have a sum to reduce in this micro-step: at stages 0 and 1 in the last of an update only. */
bool zero_reduces_now(const struct kolo_zero *zero);

/* ---- gradients.c --------------------------------------------------------------------------------------- */

/* Buffers, events and counts for the plan. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int zero_reducer_open(struct kolo_zero *zero);
void zero_reducer_close(struct kolo_zero *zero);
/* A new micro-step. */
void zero_reducer_begin(struct kolo_zero *zero);
/* Fills what is missing with zeros or earlier sums, and waits until all is reduced and stored. */
int zero_reducer_finish(struct kolo_zero *zero);

/* The n-th of the elements that `held` begins with, of a type. */
static inline char *zero_at(char *base, enum kolo_type type, size_t n)
{
	return base + n * kolo_type_size(type);
}

/* ---- params.c ------------------------------------------------------------------------------------------ */

/* Memory for the values of a sharded tensor, which then is ZERO_COMING; and none any more. */
int zero_params_open(struct kolo_zero *zero, struct zero_tensor *tensor);
void zero_params_close(struct kolo_zero *zero, struct zero_tensor *tensor);
/* Lets all gathered tensors go, before an update. */
void zero_params_drop(struct kolo_zero *zero);
/* The end of a micro-step: its uses are the order to expect from now on, and what was gathered for nothing goes. */
int zero_trace_end(struct kolo_zero *zero);

/* ---- gather.c ------------------------------------------------------------------------------------------ */

int zero_gatherer_open(struct kolo_zero *zero);
void zero_gatherer_close(struct kolo_zero *zero);

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

/* The sum of squares of this rank's part of the reduced gradients, and the first of them that is not finite. */
double zero_square_sum(const struct kolo_zero *zero);
void zero_find_culprit(const struct kolo_zero *zero, struct zero_culprit *out);

/* The floats that element `first` of a trained tensor, which is held, is updated in; and its moments, NULL where it has none. */
float *zero_master_at(const struct zero_tensor *t, size_t first);
float *zero_moment_at(const struct zero_tensor *t, int moment, size_t first);

/* The values of elements [first, first + n) from their masters, where those are apart. */
void zero_write_parameters(const struct zero_tensor *t, size_t first, size_t n);

/* Updates all tensors with gradients times factor, and gathers what the stage keeps whole. */
int zero_update(struct kolo_zero *zero, float factor);

/* ---- values.c ------------------------------------------------------------------------------------------ */

/* 0, or KOLO_EINVAL where `what` comes in the middle of an update. */
int zero_check_between_updates(struct kolo_zero *zero, const char *what);

/* ---- report.c ------------------------------------------------------------------------------------------ */

/* Bytes of all buffers that are planned for. */
size_t zero_bucket_bytes(const struct kolo_zero *zero);

/* Elements in a bucket, of all ranks, without padding. */
size_t zero_bucket_elements(const struct kolo_zero *zero, const struct zero_plan *plan,
			    const struct zero_bucket *bucket);

/* ---- server.c ------------------------------------------------------------------------------------------ */

/* The parameter server's way to reduce a bucket, and to give rank 0's parameters to all. */
int zero_server_reduce(struct kolo_zero *zero, const struct zero_bucket *bucket, char *memory);
int zero_server_share(struct kolo_zero *zero);

#endif
