/* Kolo parallel: how a model is divided over ranks beside ZeRO, on kolo.h alone.
 *
 * - A grid gives each rank a place: tensor parallel, data parallel, pipeline stage.
 * - A partition divides layers over pipeline stages.
 * - A pipeline is a schedule as data: for each stage the list of what it computes, sends and
 *   receives. It is made by a rule, checked, timed on paper, printed, and run by an executor.
 *
 * The conventions of kolo.h hold here too. Functions are local and do not block unless their
 * comment says so. No call may be made between kolo_group_begin and kolo_group_end. */
#ifndef KOLO_KOLO_PARALLEL_H
#define KOLO_KOLO_PARALLEL_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- The grid -------------------------------------------------------------------------------- */

/* The axes of a grid. A group along an axis has the ranks that differ in their place on it
 * alone. */
enum kolo_grid_axis {
	KOLO_GRID_TENSOR, /* parts of the same layers, for the same samples */
	KOLO_GRID_DATA,   /* the same parameters, other samples: the ranks of kolo_zero_create */
	KOLO_GRID_PIPE,   /* pipeline stages, in order */
	/* The first and the last stage, which may share an embedding. Other stages, and all ranks
	 * if there is one stage, have no such group */
	KOLO_GRID_TIED
};

/* The sizes of a grid, and the place of one rank in it. Ranks count along the tensor
 * axis first, then along the data axis, then along the pipe: rank = (pipe * data_size + data) *
 * tensor_size + tensor. */
struct kolo_grid_place {
	int tensor_size, data_size, pipe_size;
	int tensor, data, pipe; /* each from 0 */
};

/* Finds the place of a rank in a grid of nranks ranks. The data axis gets what the other two
 * leave.
 *
 * Errors: KOLO_EINVAL: a size below 1, tensor_size times pipe_size does not divide nranks, or there
 * is no such rank; has the numbers. */
int kolo_grid_locate(int nranks, int tensor_size, int pipe_size, int rank,
		     struct kolo_grid_place *out);

/* Lists the ranks of the group along an axis to which the rank at `place` belongs, in the order of
 * the axis. ranks has room for as many as the axis is long, 2 for KOLO_GRID_TIED. Returns their
 * number; 0: the rank has no such group. Never fails. */
int kolo_grid_group(const struct kolo_grid_place *place, enum kolo_grid_axis axis, int *ranks);

/* Writes all groups as text, a line for each axis, like "tensor: {0 1} {2 3}". Lines of axes that
 * have no group are left out. out[len] is cut if it is too short. Returns the length of the whole
 * text. Never fails. */
size_t kolo_grid_text(const struct kolo_grid_place *place, char *out, size_t len);

/* A grid with its communicators. */
struct kolo_grid;

/* Makes a grid of the ranks of comm. Collective; blocks. It splits comm once for each axis. All
 * ranks of a group along the tensor axis must be on one host, because they communicate in each
 * layer. The caller gives *out to kolo_grid_destroy before it destroys comm.
 *
 * Errors: those of kolo_comm_split and of the collectives, and:
 * - KOLO_EINVAL: the sizes do not fit the number of ranks, or a tensor group is on several hosts;
 *   names the ranks.
 * - KOLO_EMISMATCH: ranks passed different sizes.
 * - KOLO_ENOMEM: out of memory.
 *
 * Then *out is NULL. */
int kolo_grid_create(struct kolo_comm *comm, int tensor_size, int pipe_size,
		     struct kolo_grid **out);

/* Destroys a grid and its communicators. NULL is allowed. */
void kolo_grid_destroy(struct kolo_grid *grid);

/* The place of this rank. Lives as long as the grid. Never fails. */
const struct kolo_grid_place *kolo_grid_here(const struct kolo_grid *grid);

/* The communicator of this rank's group along an axis. Its ranks count in the order of the axis.
 * NULL: the rank has no such group. It belongs to the grid. Never fails. */
struct kolo_comm *kolo_grid_comm(const struct kolo_grid *grid, enum kolo_grid_axis axis);

/* ---- Partitions ------------------------------------------------------------------------------ */

/* How layers are divided over stages. */
enum kolo_partition_method {
	KOLO_PARTITION_UNIFORM,  /* equally many layers; the first stages have one more */
	KOLO_PARTITION_BALANCED, /* as DeepSpeed's "parameters": the largest and the smallest stage
				    differ little */
	KOLO_PARTITION_LARGEST,  /* the largest stage is smallest; it decides how long a step takes
				  */
};

/* Divides n layers over `parts` stages. costs[n] are what the layers cost, in any unit; they are
 * not read for KOLO_PARTITION_UNIFORM, and may then be NULL. Stage p gets layers bounds[p] to
 * bounds[p + 1] - 1; bounds has room for parts + 1 numbers. If there are fewer layers than stages,
 * the last stages have none. n and parts are at most 65536. It takes time in proportion to parts
 * times n^2.
 *
 * KOLO_PARTITION_BALANCED follows DeepSpeed's rule: dynamic programming over one stage after the
 * other, which does not always find the least difference. Of equal cuts it takes the latest.
 * KOLO_PARTITION_LARGEST is exact. Of equal results it takes the one that gives the last stages
 * most, because the first stages keep more micro-batches.
 *
 * Errors: KOLO_EINVAL (a cost that is negative or not finite, costs whose sum is infinite, a number
 * that is out of range), KOLO_ENOMEM. */
int kolo_partition(enum kolo_partition_method method, const double *costs, int n, int parts,
		   int *bounds);

/* ---- Pipelines ------------------------------------------------------------------------------- */

/* Schedules. There are p stages and m micro-batches. F, I and W are the seconds that all parts of a
 * stage take together for a micro-batch: forward, backward for inputs, backward for weights. The
 * idle time of a stage is that with messages that take no time. */
enum kolo_pipeline_schedule {
	/* Huang et al. 2019: all forwards, then all backwards. Idle (p - 1) (F + I + W); keeps m
	 * micro-batches */
	KOLO_PIPELINE_GPIPE,
	/* Narayanan et al. 2019: one forward, one backward. Idle as GPipe; stage s keeps min(p - s,
	 * m) micro-batches */
	KOLO_PIPELINE_1F1B,
	/* Narayanan et al. 2021: each stage has v chunks of the model. Idle (p - 1) (F + I + W) /
	 * v; m must be a multiple of p */
	KOLO_PIPELINE_INTERLEAVED,
	/* Qi et al. 2023, ZB-H1: backward for weights fills the gaps. Idle (p - 1) (F + I - W) if
	 * m >= p, W <= F and W <= I; keeps at most p micro-batches */
	KOLO_PIPELINE_ZB_H1
};

/* The name of a schedule, like "1f1b"; NULL if there is no such schedule. Static storage. */
const char *kolo_pipeline_schedule_name(enum kolo_pipeline_schedule schedule);

/* What a stage does. The model has stages times chunks parts, in order; stage s has parts s,
 * s + stages, s + 2 stages and so on. */
enum kolo_action_type {
	KOLO_ACTION_FORWARD,         /* of one part and micro-batch */
	KOLO_ACTION_BACKWARD,        /* for inputs and weights */
	KOLO_ACTION_BACKWARD_INPUT,  /* for inputs alone; then BACKWARD_WEIGHT follows later */
	KOLO_ACTION_BACKWARD_WEIGHT, /* for weights alone */
	KOLO_ACTION_SEND_ACTIVATION, /* the part's output, to the next part */
	KOLO_ACTION_RECV_ACTIVATION, /* the part's input, from the part before it */
	KOLO_ACTION_SEND_GRADIENT,   /* of the part's input, to the part before it */
	KOLO_ACTION_RECV_GRADIENT    /* of the part's output, from the next part */
};

struct kolo_action {
	enum kolo_action_type type;
	int part, micro; /* of the model, and of the batch; from 0 */
	/* Computations: the place where the part keeps this micro-batch's activations, from its
	 * forward to its last backward: a number below the number of micro-batches. Messages: 0 */
	int buffer;
	int peer; /* messages: the other stage; computations: -1 */
	/* Messages: neighbours in the list with the same number are one group. The stage starts
	 * the group when it comes to it, and goes on. A stage has two queues: one for groups of
	 * activations and one for groups of gradients. Each runs its groups one after the other.
	 * A computation waits for the group that has its input. It also waits for room for its
	 * result: a queue has room for as many results as the list leaves unsent at a time, and
	 * for one more. Computations: -1 */
	int group;
	int waits;            /* messages: 1: nothing follows before the group is done */
	uint64_t reserved[2]; /* zero */
};

struct kolo_pipeline;

/* Makes a pipeline by the rule of a schedule. `micros` micro-batches go through `stages` stages
 * with `chunks` parts each; only KOLO_PIPELINE_INTERLEAVED may have more than one. What it makes
 * passes kolo_pipeline_check.
 * The caller gives *out to kolo_pipeline_destroy.
 *
 * Errors: KOLO_EINVAL (has the numbers), KOLO_ENOMEM. Then *out is NULL. */
int kolo_pipeline_create(enum kolo_pipeline_schedule schedule, int stages, int chunks, int micros,
			 struct kolo_pipeline **out);

/* Makes a pipeline of the caller's own lists: lists[s][lengths[s]] for each stage s. They are
 * copied, and checked as by kolo_pipeline_check.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM. Then *out is NULL. */
int kolo_pipeline_from(int stages, int chunks, int micros, const struct kolo_action *const *lists,
		       const int *lengths, struct kolo_pipeline **out);

/* Destroys a pipeline. NULL is allowed. */
void kolo_pipeline_destroy(struct kolo_pipeline *pipeline);

/* The list of a stage, in the order in which it acts. *n becomes its length. It lives as long as
 * the pipeline. NULL: there is no such stage. */
const struct kolo_action *kolo_pipeline_list(const struct kolo_pipeline *pipeline, int stage,
					     int *n);

/* The number of buffers of a part: those of its computations are 0 to this number - 1. Of a rule's
 * lists this is the most micro-batches that the part keeps at a time. 0: there is no such part. */
int kolo_pipeline_buffers(const struct kolo_pipeline *pipeline, int part);

/* Checks lists as kolo_pipeline_from gets them, and says in kolo_last_error what is wrong: stage,
 * action, and why. It proves:
 *
 * - Each part has for each micro-batch one forward, and one backward or both of its halves.
 * - Each computation has its input before it, and each message what it sends.
 * - Each message has its counterpart, and messages between two stages arrive in the order in which
 *   they are sent.
 * - Micro-batches that share a buffer never keep it at the same time.
 * - There is no deadlock, even if each message waits until its sender and its receiver have both
 *   come to it (rendezvous).
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM. */
int kolo_pipeline_check(int stages, int chunks, int micros, const struct kolo_action *const *lists,
			const int *lengths);

/* Seconds that actions take: of one part and micro-batch, and of one message. */
struct kolo_pipeline_times {
	double forward, backward_input, backward_weight, message;
	uint64_t reserved[4]; /* zero */
};

/* How long a pipeline takes. */
struct kolo_pipeline_figures {
	double seconds; /* from the first action to the last one of all stages */
	double busy;    /* seconds that each stage computes */
	/* Two definitions of the bubble, both in use: the share of the time in which a stage is
	 * idle, 1 - busy / seconds; and idle seconds for each busy one, seconds / busy - 1 */
	double idle_share, bubble_ratio;
	uint64_t reserved[4]; /* zero */
};

/* Computes by arithmetic how long a pipeline takes, if all parts take the same times.
 *
 * Errors: KOLO_EINVAL (a time that is negative or not finite), KOLO_ENOMEM. */
int kolo_pipeline_estimate(const struct kolo_pipeline *pipeline,
			   const struct kolo_pipeline_times *times,
			   struct kolo_pipeline_figures *out);

/* Writes the list of a stage as text, like "0F0 {0SA0>1} 0F1". An action is the part, its letters
 * (F, B, I, W, SA, RA, SG, RG), and the micro-batch; a message also has ">" or "<" and the other
 * stage. Braces hold a group. A "!" behind a group says that nothing follows before the group is
 * done. out[len] is cut if it is too short. Returns the length of the whole text; 0: there is no
 * such stage. Never fails. */
size_t kolo_pipeline_text(const struct kolo_pipeline *pipeline, int stage, char *out, size_t len);

/* What a computation of one part and micro-batch reads and writes: boundary tensors of n elements.
 * A tensor is NULL if the action has none: at the ends of the model, and in actions that neither
 * read nor write it. With one stage all are NULL: its parts are the caller's to connect. */
struct kolo_pipeline_tensors {
	const void *input;           /* of the part; the same until its last backward */
	void *output;                /* FORWARD writes it */
	const void *output_gradient; /* the same until the last backward */
	void *input_gradient;        /* BACKWARD or BACKWARD_INPUT writes it */
	uint64_t reserved[4];        /* zero */
};

/* Computes one action. arg is that of kolo_pipeline_run. What the part keeps from its forward to
 * its backward is the caller's; action->buffer says where. Returns 0, or an enum kolo_status after
 * kolo_error_set: then the run fails on all stages. */
typedef int kolo_pipeline_compute_fn(void *arg, const struct kolo_action *action,
				     const struct kolo_pipeline_tensors *tensors);

/* Runs a pipeline on the ranks of a communicator. */
struct kolo_pipeline_executor;

/* Makes an executor. This rank of `pipe` (kolo_grid_comm) is the stage of its number. Collective;
 * blocks. It splits pipe twice, for activations and for gradients, and makes a queue for each.
 * Boundary tensors have n elements of a type, in host memory. The pipeline must live as long as the
 * executor. All stages pass the same lists, which is checked. The caller gives *out to
 * kolo_pipeline_executor_destroy.
 *
 * Errors: those of kolo_comm_split and of the collectives, and KOLO_EINVAL (there must be as many
 * ranks as stages), KOLO_ENOMEM, KOLO_EMISMATCH. Then *out is NULL. */
int kolo_pipeline_executor_create(struct kolo_comm *pipe, const struct kolo_pipeline *pipeline,
				  size_t n, enum kolo_type type,
				  struct kolo_pipeline_executor **out);

/* Destroys an executor. Blocks until its queues are empty. NULL is allowed. */
void kolo_pipeline_executor_destroy(struct kolo_pipeline_executor *executor);

/* Runs one batch: this stage's list from its beginning to its end. Collective; blocks until all of
 * the stage's messages are done. For each micro-batch n elements cross each boundary between
 * stages, and n elements come back.
 *
 * If a stage fails, all fail, also those that are at the end of their list. The error of a stage
 * that waited says in which action, for which micro-batch of which stage, and what the communicator
 * says of it. Then the executor can only be destroyed.
 *
 * A stage may wait for a message as long as the pipeline takes to fill or to empty. That must be
 * less than the communicator's timeout_s.
 *
 * Errors: those of messages, what `compute` returns, and KOLO_EINVAL (an earlier run has failed, or
 * `compute` returned a number above 0). */
int kolo_pipeline_run(struct kolo_pipeline_executor *executor, kolo_pipeline_compute_fn *compute,
		      void *arg);

/* What an executor holds and has done since it was made. */
struct kolo_pipeline_report {
	size_t buffer_bytes; /* of boundary tensors */
	int buffers;
	uint64_t sent_bytes;  /* of both queues */
	double compute, wait; /* seconds in `compute`, and waiting for messages */
	uint64_t reserved[4]; /* zero */
};

/* Reports what an executor holds and has done. Call it between runs. Local. Never fails. */
void kolo_pipeline_report_get(const struct kolo_pipeline_executor *e,
			      struct kolo_pipeline_report *out);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
