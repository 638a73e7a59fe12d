/* Kolo parallel: how a model is divided over ranks beside ZeRO, on kolo.h alone.
 *
 * - A grid gives each rank a place: tensor parallel, data parallel, pipeline stage.
 * - A partition divides layers over pipeline stages.
 * - A pipeline is a schedule as data: for each stage the list of what it computes, sends and
 *   receives. It is made by a rule, checked, timed on paper, printed, and run by an executor.
 * - Tensor parallelism divides the weights of layers over ranks that have the same samples.
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

/* ---- Tensor parallelism ---------------------------------------------------------------------- */

/* The T ranks of a tensor group have the same samples, and each has a part of the weights (Shoeybi
 * et al. 2019, Megatron-LM). A column-parallel layer divides its outputs, a row-parallel layer its
 * inputs. One of each follows the other, around what works on single columns: attention divides
 * its heads, an MLP its inner columns.
 *
 *     x -> column -> (heads, activation) -> row -> y
 *
 * Matrices are in rows, in host memory. w is [out, in], so a layer is y = x w' + bias. N rows are
 * the tokens of a micro-batch; e is the size of the type in bytes.
 *
 * With sequence parallelism (Korthikanti et al. 2022) each rank has N / T rows between a
 * row-parallel layer and the next column-parallel one, block `rank` of them. A matrix that is
 * divided so still has room for N rows, and the rank's own rows are at their place in it. Its other
 * rows are not read. A function that needs them gathers them there.
 *
 * Each rank sends for each layer and micro-batch in forward and backward:
 *
 *                      column-parallel             row-parallel
 *     forward          0; sequence (T-1)/T N in e  2 (T-1)/T N out e; sequence (T-1)/T N out e
 *     backward         2 (T-1)/T N in e;           0; sequence (T-1)/T N out e
 *                      sequence (T-1)/T N in e
 *
 * That is 8 (T-1)/T N h e for a transformer's block of hidden size h, with sequence parallelism
 * too. There others send 10 (T-1)/T N h e, as they gather the input of column-parallel layers again
 * in backward. Here the caller keeps it. What sends is collective over the group, and blocks.
 *
 * All functions have the errors of the collectives, and KOLO_EINVAL for sizes that do not fit; it
 * has the numbers. A rank that is out of memory returns KOLO_ENOMEM, and the others KOLO_EABORTED.
 */
struct kolo_tp;

/* A factor of a product: its rows are `stride` elements apart. If it is transposed, they are
 * columns. */
struct kolo_tp_matrix {
	const void *at;
	size_t stride;
	int transposed;
};

/* The caller's matrix product: c [m, n] = a b, or c + a b with `add`. a is [m, k], or transposed
 * [k, m]. b is [k, n], or transposed [n, k]. Rows of c are `stride` elements apart. All have the
 * type of the configuration. BLAS has it as gemm. */
typedef void kolo_tp_product_fn(void *arg, size_t m, size_t n, size_t k,
				const struct kolo_tp_matrix *a, const struct kolo_tp_matrix *b,
				int add, void *c, size_t stride);

struct kolo_tp_config {
	enum kolo_type type; /* of all matrices: KOLO_F32 or KOLO_F64 */
	int sequence;        /* 1: sequence parallelism */
	/* 0: a rank's part of a layer is one product, and results differ from those of one rank in
	 * rounding. Else a power of two, a multiple of T: all layers are computed in this many
	 * segments, whatever T is, and their sums are added as one binary tree. Then results have
	 * the same bits for each T, as long as `product` gives the same bits for the same sizes */
	int segments;
	kolo_tp_product_fn *product;
	void *arg;            /* of product */
	uint64_t reserved[4]; /* zero */
};

/* Sets up tensor parallelism on the ranks of `comm` (kolo_grid_comm). Collective; blocks. It splits
 * comm once if that has several ranks. comm NULL: this rank is alone. The caller gives *out to
 * kolo_tp_destroy.
 *
 * Errors: those of kolo_comm_split; KOLO_EINVAL (a setting that is wrong or does not fit),
 * KOLO_EMISMATCH (ranks passed different settings), KOLO_ENOMEM. Then *out is NULL. */
int kolo_tp_create(struct kolo_comm *comm, const struct kolo_tp_config *config,
		   struct kolo_tp **out);

/* Destroys what kolo_tp_create made. NULL is allowed. */
void kolo_tp_destroy(struct kolo_tp *tp);

/* The rows of N that are this rank's own: *first and the next ones. Returns their number. Without
 * sequence parallelism these are all. Never fails. */
size_t kolo_tp_rows(const struct kolo_tp *tp, size_t rows, size_t *first);

/* A layer as this rank has it. */
struct kolo_tp_layer {
	size_t rows;    /* N, of x and y */
	size_t in, out; /* columns of x and of y: of the part that this rank has, where divided */
	/* Column-parallel: the weights are those of this many layers, behind each other, like 3 for
	 * queries, keys and values; `out` is of all of them. 0: of one */
	size_t fused;
	uint64_t reserved[2]; /* zero */
};

/* y = x w' + bias of a column-parallel layer: x is whole, y is this rank's columns. bias [out];
 * NULL: none. It sends 0; with sequence parallelism it gathers x, and sends (T-1)/T N in e. */
int kolo_tp_column_forward(struct kolo_tp *tp, const struct kolo_tp_layer *layer, void *x,
			   const void *w, const void *bias, void *y);

/* The backward pass of a column-parallel layer. dx = dy w, the sum over the group; dw = dy' x. dx
 * NULL or dw NULL: that is not computed, and w or x may be NULL. With dx it sends 2 (T-1)/T N in e;
 * with sequence parallelism (T-1)/T N in e. Then x must still be gathered. The gradient of the bias
 * is the sum of rows of dy. */
int kolo_tp_column_backward(struct kolo_tp *tp, const struct kolo_tp_layer *layer, const void *x,
			    const void *w, const void *dy, void *dx, void *dw);

/* y = x w' + bias of a row-parallel layer: x is this rank's columns, y is whole. bias [out] is
 * added once, to the sum; NULL: none. It sends 2 (T-1)/T N out e; with sequence parallelism
 * (T-1)/T N out e. */
int kolo_tp_row_forward(struct kolo_tp *tp, const struct kolo_tp_layer *layer, const void *x,
			const void *w, const void *bias, void *y);

/* The backward pass of a row-parallel layer. dx = dy w; dw = dy' x. dx NULL or dw NULL: that is not
 * computed, and w or x may be NULL. It sends 0. With sequence parallelism and dx it gathers dy, and
 * sends (T-1)/T N out e; without dx, dy is taken as gathered. The gradient of the bias is the sum
 * of all rows of dy, after that. */
int kolo_tp_row_backward(struct kolo_tp *tp, const struct kolo_tp_layer *layer, const void *x,
			 const void *w, void *dy, void *dx, void *dw);

/* The pair around these layers, for a caller who computes them himself. kolo_tp_gather is before a
 * column-parallel layer, and for the derivative before the backward pass of a row-parallel one.
 * kolo_tp_reduce adds up over the group: the result of a row-parallel layer, and the derivative of
 * a column-parallel layer's input. x is [rows, columns].
 *
 * gather sends 0; with sequence parallelism (T-1)/T rows columns e. reduce sends 2 (T-1)/T rows
 * columns e; with sequence parallelism half of it. */
int kolo_tp_gather(struct kolo_tp *tp, void *x, size_t rows, size_t columns);
int kolo_tp_reduce(struct kolo_tp *tp, void *x, size_t rows, size_t columns);

/* Adds up the gradient of a tensor that all ranks have whole: a gain or a bias that works on rows,
 * between a row-parallel and a column-parallel layer. gradient is kolo_tp_row_segments vectors of n
 * behind each other, one for each segment of the rank's own rows; the first becomes the sum.
 * Segment i of r has rows from i * own / r to (i + 1) * own / r - 1.
 *
 * Without sequence parallelism all ranks have all rows: it adds up the vectors, and sends 0. With
 * it, it adds up over the group, too, and sends 2 (T-1)/T n e. */
int kolo_tp_sum(struct kolo_tp *tp, void *gradient, size_t n);

/* The segments of this rank's own rows. Without config.segments 1. Never fails. */
size_t kolo_tp_row_segments(const struct kolo_tp *tp);

/* An embedding of `vocabulary` rows, of which this rank has the same share as the others: `table`
 * [vocabulary / T, columns], from row rank * vocabulary / T on. ids[rows] choose rows.
 *
 * y [rows, columns] is looked up, where ranks give zeros for what they don't have, and added up.
 * It sends what kolo_tp_reduce does. An id that is not below vocabulary is KOLO_EINVAL, on all
 * ranks. */
int kolo_tp_embedding_forward(struct kolo_tp *tp, const void *table, size_t vocabulary,
			      const int32_t *ids, size_t rows, size_t columns, void *y);

/* Adds the rows of dy to those of dtable that were looked up. It sends what kolo_tp_gather does. */
int kolo_tp_embedding_backward(struct kolo_tp *tp, size_t vocabulary, const int32_t *ids,
			       size_t rows, size_t columns, void *dy, void *dtable);

/* As a target: the loss does not count the row. */
enum { KOLO_TP_UNCOUNTED = -1 };

/* Cross-entropy of logits [rows, vocabulary / T]: this rank has the columns from rank * vocabulary
 * / T on. *loss becomes the sum over rows of -log(softmax(logits)[target]), the same on all ranks.
 * The logits are replaced by its derivative, times `factor`. A row whose target is
 * KOLO_TP_UNCOUNTED adds nothing to the loss, and its derivative is 0. Any other target that is not
 * below vocabulary is KOLO_EINVAL, on all ranks.
 *
 * Three sums or maxima for each row go over the group, not the logits: it sends 6 (T-1)/T rows
 * elements of 8 bytes. */
int kolo_tp_cross_entropy(struct kolo_tp *tp, void *logits, size_t vocabulary,
			  const int32_t *targets, size_t rows, double factor, double *loss);

/* What tensor parallelism has done, and holds. */
struct kolo_tp_report {
	uint64_t sent_bytes;          /* by this rank, as kolo_comm_stats counts */
	uint64_t model_sent_bytes;    /* what the formulas above give for the same calls */
	uint64_t gathers, reductions; /* collectives of the group */
	size_t memory_bytes;          /* of sums of segments, and of cross-entropy */
	double wait;                  /* seconds in collectives */
	uint64_t reserved[4];         /* zero */
};

/* Reports what tensor parallelism has done since it was set up. Local. Never fails. */
void kolo_tp_report_get(const struct kolo_tp *tp, struct kolo_tp_report *out);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
