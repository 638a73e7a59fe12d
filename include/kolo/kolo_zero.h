/* Kolo: training with sharded optimizer state, gradients and parameters (ZeRO, stages 0 to 3), on kolo.h alone.
 *
 * The model is a list of tensors. It runs forward and backward itself and tells the engine what it does:
 *
 *     kolo_zero_forward(zero, samples);       a micro-step begins
 *         kolo_zero_use(zero, i, &p);         before each use of tensor i
 *         kolo_zero_release(zero, i);         after it
 *     kolo_zero_backward(zero, loss);
 *         kolo_zero_use(zero, i, &p);         before each use of tensor i
 *         kolo_zero_release(zero, i);         after it
 *         kolo_zero_gradient(zero, i, g);     when a gradient is ready
 *     kolo_zero_step(zero, &result);          the micro-step ends; the last of
 *                                             `accumulation` ones updates
 *
 * Rank r owns elements [r c, (r+1) c) of a tensor of n elements, c = ceil(n / nranks), at every stage; so its gradient is
 * added in the same order, and all stages, bucket sizes and transports give the same bits; with accumulation stages 0 and 1
 * do, which add up micro-steps before ranks, and stages 2 and 3, which do so behind them. Stage 0 keeps everything on every
 * rank; stage 1 keeps optimizer state with the owner only, stage 2 gradients too, stage 3 parameters too.
 *
 * Conventions as in kolo.h. An engine is used by one thread at a time. Calls marked collective are made by all ranks in
 * the same order. After a failure other than KOLO_EINVAL the engine refuses all but kolo_zero_destroy. No call may be made
 * between kolo_group_begin and kolo_group_end. */
#ifndef KOLO_KOLO_ZERO_H
#define KOLO_KOLO_ZERO_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define KOLO_ZERO_DIMS 8

struct kolo_zero;

enum kolo_zero_optimizer {
	KOLO_ZERO_ADAMW,   /* torch.optim.AdamW: decay apart from the gradient */
	KOLO_ZERO_ADAM,    /* torch.optim.Adam: decay added to the gradient */
	KOLO_ZERO_SGD,     /* torch.optim.SGD, with momentum, dampening, nesterov */
	KOLO_ZERO_LION,    /* Chen et al. 2023: the sign of an interpolated gradient */
	KOLO_ZERO_ADAGRAD, /* torch.optim.Adagrad */
	KOLO_ZERO_LAMB,    /* You et al. 2020: Adam with a trust ratio ||p|| / ||u|| for each tensor */
};

enum kolo_zero_schedule_type {
	KOLO_ZERO_CONSTANT,      /* the group's lr */
	KOLO_ZERO_WARMUP,        /* from min_lr to max_lr over warmup_steps, then max_lr */
	KOLO_ZERO_WARMUP_DECAY,  /* the same, then linearly to 0 at total_steps */
	KOLO_ZERO_WARMUP_COSINE, /* the group's lr times a ratio, which falls as a cosine behind the warm-up */
	KOLO_ZERO_ONE_CYCLE,  /* up and down between min_lr and max_lr, momentum the other way, then decay */
	KOLO_ZERO_RANGE_TEST, /* grows from min_lr on, to find out how large it may be */
};

/* How the learning rate of a group goes from update to update, as DeepSpeed's schedules of these names do: an update that is
 * skipped does not count. kolo_zero_schedule_init fills in the defaults. */
struct kolo_zero_schedule {
	enum kolo_zero_schedule_type type;
	double min_lr, max_lr;          /* WARMUP, WARMUP_DECAY, ONE_CYCLE; RANGE_TEST: min_lr alone */
	long warmup_steps;              /* WARMUP...; less than 2 are 2; 1000 */
	long total_steps;               /* WARMUP_DECAY, WARMUP_COSINE; more than warmup_steps */
	int linear;                     /* WARMUP...: 1: grows linearly, 0: as a logarithm; 0 */
	double warmup_ratio;            /* WARMUP_COSINE: the ratio that the warm-up begins with; 0 */
	double final_ratio;             /* WARMUP_COSINE: the ratio at total_steps; 1e-4 */
	long first_steps, second_steps; /* ONE_CYCLE: up, and down again, 0: as many; 2000, 0 */
	long decay_steps; /* ONE_CYCLE: lr = min_lr / (1 + decay_rate k / decay_steps) in the k-th behind it; */
	double decay_rate; /* 0, 0: none */
	/* ONE_CYCLE: 1: beta1 goes from max_momentum to min_momentum and back, but is min_momentum in the first update; beta2 is
	 * 0.99. 1 */
	int cycle_momentum;
	double min_momentum, max_momentum; /* 0.8, 0.9 */
	double momentum_decay_rate; /* grows by 1 + momentum_decay_rate k / decay_steps behind the cycle, but stays below 1; 0 */
	long range_steps;     /* RANGE_TEST: lr = min_lr (1 + range_rate k / range_steps) in the k-th; 2000 */
	double range_rate;    /* 1 */
	int staircase;        /* RANGE_TEST: 1: k / range_steps is rounded down; 0 */
	uint64_t reserved[4]; /* zero */
};

/* The defaults of a schedule; min_lr 0 and max_lr 1e-3, of RANGE_TEST min_lr 1e-3. Never fails. */
void kolo_zero_schedule_init(struct kolo_zero_schedule *out, enum kolo_zero_schedule_type type);

/* The learning rate of update number `step`, from 0, in a group of rate lr; *momentum is the group's beta1 then where the schedule
 * cycles it, else NaN. Either may be NULL. As DeepSpeed advances a schedule behind each update, the first two updates of a
 * warm-up have its first rate, but a WARMUP_COSINE's first one has 0. Local. Errors: KOLO_EINVAL (names the field). */
int kolo_zero_schedule_at(const struct kolo_zero_schedule *schedule, double lr, long step, double *out,
			  double *momentum);

/* The name of a schedule, like "WarmupLR"; NULL when there is no such. Static storage. */
const char *kolo_zero_schedule_name(enum kolo_zero_schedule_type type);

/* The hyper-parameters of a group of tensors; kolo_zero_group_init fills in the defaults of torch (of the papers where torch
 * has none). All are checked, those too that an optimizer has no use for. */
struct kolo_zero_group {
	double lr;
	double beta1, beta2;                /* AdamW, Adam, Lion, Lamb */
	double eps;                         /* AdamW, Adam, Adagrad, Lamb */
	double weight_decay;                /* all */
	double momentum;                    /* SGD; 0: no state */
	double dampening;                   /* SGD */
	double lr_decay;                    /* Adagrad */
	double initial;                     /* Adagrad: what the sum of squares begins with */
	int nesterov;                       /* SGD */
	struct kolo_zero_schedule schedule; /* of lr; KOLO_ZERO_CONSTANT */
	uint64_t reserved[4];               /* zero */
};

/* How a loss scale adapts: DeepSpeed's rule. An update whose gradients overflowed is skipped, and takes one of `hysteresis`; where
 * only one is left it halves the scale, but not below min. The scale doubles behind window + 1 updates without overflow from
 * the start or from the last overflow on, then behind every window more; which also gives `hysteresis` back, as with
 * consecutive each such update does. */
struct kolo_zero_scaling {
	double initial;       /* 65536 */
	double min;           /* 1 */
	long window;          /* 1000 */
	int hysteresis;       /* 2 */
	int consecutive;      /* 0 */
	uint64_t reserved[4]; /* zero */
};

/* One tensor of the model. */
struct kolo_zero_tensor {
	const char *name;             /* unique; copied */
	size_t shape[KOLO_ZERO_DIMS]; /* row-major; ndims of them, each at least 1 */
	int ndims;                    /* 0: one element */
	enum kolo_type type;          /* KOLO_F32, KOLO_F16 or KOLO_BF16; of the gradient too */
	int group;                    /* index into the config's groups */
	int frozen;                   /* 1: has no gradient and is not updated */
	/* The caller's memory with the values to begin with, of which rank 0's count; no two tensors share any. Stages 0 to 2
	 * train in it: it must stay until kolo_zero_destroy, and is read behind kolo_zero_use, or behind that. Stage 3 reads it
	 * in kolo_zero_create only. NULL: memory of the engine's, zeroed */
	void *data;
	uint64_t reserved[4]; /* zero */
};

struct kolo_zero_device; /* kolo_zero_device.h */

/* Where something is. */
enum kolo_zero_place {
	KOLO_ZERO_ON_DEVICE, /* with the model: config.device's memory, or the host's where there is none */
	KOLO_ZERO_ON_HOST,   /* in host memory; the same where there is no device */
	KOLO_ZERO_ON_NVME,   /* in files (io_uring, past the system's cache) */
};

/* What leaves the device. Bits are the same wherever state is. kolo_zero_offload_init fills in the defaults. */
struct kolo_zero_offload {
	enum kolo_zero_place place; /* KOLO_ZERO_ON_DEVICE */
	double ratio; /* of the optimizer: the share of its elements that is there, in whole blocks of each tensor; 1 */
	int pin; /* 1: host memory that copies use is locked and registered with the device; 1 */
	int buffers; /* 2 to 4096: of the optimizer 4, of parameters 5. Updates and copies, or files, go on between them */
	/* Elements in one of the optimizer's at most, in whole blocks of 4096; 512 Ki. Of parameters it is not looked at: a buffer
	 * there holds any shard */
	size_t buffer;
	/* Of parameters in files: whole shards, in the order of tensors as they fit, of at most so many elements together stay in host
	 * memory; 0 */
	size_t in_host;
	const char *
		path; /* KOLO_ZERO_ON_NVME: a directory that is there; copied. Files are removed at the end */
	uint64_t reserved[4]; /* zero */
};

/* What kolo_zero_create needs; kolo_zero_config_init fills in the defaults. The same on all ranks, which is checked, but for
 * host_budget, threads, io_block, io_depth and paths; of device whether there is one. */
struct kolo_zero_config {
	int stage;        /* 0 to 3; 0 */
	int accumulation; /* micro-steps for each update; 1 */
	/* Samples of a micro-step on a rank that give its gradient the weight 1 / nranks; other numbers weigh in proportion, which
	 * is done in the gradient's type: far larger ones may overflow. 0: the most of any rank in the first micro-step, for
	 * which ranks are asked then; 0 */
	size_t micro_batch;
	double clip; /* the gradient's norm over all tensors is made at most so large; 0: no limit. 0 */
	/* What the model multiplies its loss by, so that small gradients survive in 16 bits. 0: it adapts, and
	 * kolo_zero_loss_scale tells it; 1 */
	double loss_scale;
	struct kolo_zero_scaling scaling; /* where loss_scale is 0 */
	/* What gradients are divided by before ranks add them, where 16 bits could not hold the sum; what is left of nranks
	 * afterwards. 0: nranks. 0 */
	double predivide;
	enum kolo_zero_optimizer optimizer;   /* KOLO_ZERO_ADAMW */
	const struct kolo_zero_group *groups; /* ngroups of them; NULL: one, of the defaults. Copied */
	int ngroups;
	int overlap;          /* 1: communication runs on a queue beside the model's work; 1 */
	size_t reduce_bucket; /* elements in one reduction at most, of all ranks; 2 Mi */
	size_t gather_bucket; /* elements in one all-gather of updated parameters at most; 2 Mi, stages 1 to 3 */
	int contiguous; /* 0: each tensor is reduced by itself, not small ones in buckets with others; 1 */
	int reduce_scatter; /* 0: gradients are all-reduced: the same bits, twice the traffic; 1. Stages 1 to 3 */
	/* 0: updated parameters are broadcast by their owners, not all-gathered; 1. What stage 3 gathers for use is gathered */
	int allgather;
	size_t sub_group; /* own elements at most that are updated before they are gathered; 0: gather_bucket / nranks */
	size_t persistence; /* stage 3: tensors of at most so many elements stay on all ranks; 0 */
	/* Stage 3, overlap: elements gathered ahead of use at most, but one tensor of any size; 0: nothing. 4 Mi */
	size_t prefetch;
	size_t max_live; /* stage 3: no prefetch, and nothing kept, beyond so many gathered elements; 2^30 */
	size_t reuse_distance; /* stage 3: keep what is used again before so many other elements are; 0: nothing */
	int parameter_server; /* 1, stage 0: rank 0 alone updates, and the others send to it and receive from it; 0 */
	/* The memory that the model computes in, which must outlive the engine; NULL: the host's. With a device kolo_zero_use gives
	 * its memory, kolo_zero_gradient reads it, and a tensor's data is host memory that is read in kolo_zero_create only. Not with
	 * parameter_server; with overlap alone where the host does not use that memory as its own */
	struct kolo_zero_device *device;
	/* Master weights and moments, which are updated where they are: those in files pass through buffers of the host, and
	 * gradients of what is not on the device come down. Stages 1 to 3 */
	struct kolo_zero_offload offload_optimizer;
	struct kolo_zero_offload offload_param; /* a rank's shards, which come up for each gather. Stage 3 */
	/* That update in host memory, at most 4096; 0: the cores that this rank may use, divided by the ranks that have the same. 0 */
	int threads;
	size_t host_budget; /* bytes of host memory that a rank may plan for; 0: what its host has available, for all ranks there. 0 */
	size_t io_block;      /* bytes of one request to files, a multiple of 4096 up to 2^30; 1 Mi */
	int io_depth;         /* requests to a file at a time, 1 to 4096; 8 */
	uint64_t reserved[8]; /* zero */
};

/* The defaults of an offload of the optimizer; kolo_zero_config_init has those of both. Never fails. */
void kolo_zero_offload_init(struct kolo_zero_offload *out);

/* The defaults of an optimizer. Never fails. */
void kolo_zero_group_init(struct kolo_zero_group *out, enum kolo_zero_optimizer optimizer);
void kolo_zero_config_init(struct kolo_zero_config *out);

/* Makes an engine for `ntensors` tensors on the ranks of comm. Collective; blocks. Splits comm twice,
 * for gradients and parameters, and for a few control bytes in each update; comm itself is not used afterwards. Parameters
 * become rank 0's on all ranks. The caller gives *out to kolo_zero_destroy.
 *
 * Errors: KOLO_EINVAL (names the tensor or the field), KOLO_ENOMEM (also: it does not fit into the device or the host, with the
 * bytes of each kind), KOLO_EMISMATCH (ranks passed different tensors or configs), KOLO_ENOTSUP (files in a build without liburing,
 * or on a system without io_uring), KOLO_ESYS (files, locked memory, threads), and those of kolo_comm_split and the collectives;
 * then *out is NULL. All ranks have the error of the first that
 * failed, with its number. */
int kolo_zero_create(struct kolo_comm *comm, const struct kolo_zero_config *config,
		     const struct kolo_zero_tensor *tensors, int ntensors, struct kolo_zero **out);

/* Ends an engine, when the last update is gathered into the caller's memory: blocks until then. The others get
 * KOLO_EPEER where they still need this rank. NULL is allowed. */
void kolo_zero_destroy(struct kolo_zero *zero);

/* Begins a micro-step on `samples` samples of this rank, which may be none. Ranks may have different numbers: gradients and
 * loss become means over all samples of all ranks and micro-steps. Local, but the first one, where config.micro_batch is 0, is
 * collective. Errors: KOLO_EINVAL, those of the collectives. */
int kolo_zero_forward(struct kolo_zero *zero, size_t samples);

/* Ends the forward part; `loss` is this rank's mean over its samples, not scaled. Local. Errors: KOLO_EINVAL. */
int kolo_zero_backward(struct kolo_zero *zero, double loss);

/* Says that a tensor is about to be read: *out is its values, in its own type, which may be read until kolo_zero_release and
 * not be written. Blocks until they are gathered: at stages 1 and 2 that is what the last update had to gather, which goes on
 * beside what follows kolo_zero_step. May be nested; each use is released. Outside of a micro-step too, as for an evaluation.
 * out may be NULL.
 *
 * At stage 3 collective: all ranks use, release and report gradients of tensors in the same order, also ranks without
 * samples; a rank that alone has no gradient for a tensor reports zeros. What differs in uses and releases is told by
 * kolo_zero_step at the latest, before anything is updated.
 *
 * Errors: KOLO_EINVAL, those of the collectives. */
int kolo_zero_use(struct kolo_zero *zero, int tensor, const void **out);

/* Says that a tensor is done with. At stage 3 it then traps when it is touched (SIGSEGV) until it is gathered again, at the same
 * address; but not where it is of at most config.persistence elements, or kept by reuse_distance. Its memory is kept for the
 * next tensor of its length, as long as no more is held than kolo_zero_plan_memory_get tells of, and counts as "gathered". With
 * a device it does not trap: what reads it there must have ended, and the next use may give another address. Does not block.
 * Errors: KOLO_EINVAL (not in use). */
int kolo_zero_release(struct kolo_zero *zero, int tensor);

/* Gives the gradient of this rank's mean loss, times loss_scale, of a tensor: as many elements as it has, of its type, read
 * during the call. Once in each micro-step, in any order, and but at stage 3 ranks' orders need not be the same; a tensor
 * without one counts as zero, and is updated as such. NULL will do in a micro-step without samples. Returns when the gradient
 * is in a bucket, for which with overlap an earlier one may have to be reduced first; without overlap full buckets are
 * reduced here.
 *
 * Errors: KOLO_EINVAL (twice, frozen, not between backward and step), KOLO_ENOMEM, those of the collectives. */
int kolo_zero_gradient(struct kolo_zero *zero, int tensor, const void *gradient);

/* What a step did. */
struct kolo_zero_result {
	int updated; /* 1: parameters were updated; 0: not the last micro-step of `accumulation`, or skipped, or no sample at all */
	int skipped; /* 1: a gradient was infinite or NaN, and nothing was changed, on any rank */
	long step;   /* updates so far */
	double loss; /* the mean over all samples of all ranks, of this update's micro-steps; where updated or skipped */
	double norm;        /* of the mean gradient over all tensors, unscaled, before clipping */
	size_t samples;     /* of all ranks and micro-steps */
	double loss_scale;  /* that the gradients of this update were made with */
	double lr;          /* that this update had, of group 0 */
	char overflow[256]; /* where skipped: the tensor, the rank and the index of the first bad value */
	uint64_t reserved[4];
};

/* Ends a micro-step. The last of config.accumulation updates: reduces what is left to reduce, unscales with the scale that the
 * gradients were made with, clips, updates, and has parameters gathered where the stage keeps them whole (kolo_zero_use
 * waits for that); then the loss scale and the schedules go on. Collective; blocks. out may be NULL. The gradient's norm is
 * summed in an order that only the tensors' sizes and nranks determine.
 *
 * Errors: KOLO_EINVAL (a tensor is still in use; no backward), KOLO_EOVERFLOW (gradients overflowed, and the loss scale that
 * adapts is as small as it may be: the update is skipped, *out is filled in, and the engine is as good as before: a checkpoint
 * can be written, or training go on), KOLO_EMISMATCH (ranks used different tensors, or have
 * different learning rates or loss scales), KOLO_ENOMEM, those of the collectives. */
int kolo_zero_step(struct kolo_zero *zero, struct kolo_zero_result *out);

/* What the model has to multiply its loss by now. Never fails. */
double kolo_zero_loss_scale(const struct kolo_zero *zero);

/* The learning rate of a group in the next update; *momentum its beta1, or of SGD its momentum. Either may be NULL. Local.
 * Errors: KOLO_EINVAL. */
int kolo_zero_lr_get(const struct kolo_zero *zero, int group, double *lr, double *momentum);

/* How far training is. */
struct kolo_zero_progress {
	long step;            /* updates */
	long skipped;         /* updates that were skipped for an overflow */
	uint64_t samples;     /* of all ranks, in updates that were not skipped */
	double loss_scale;    /* now */
	uint64_t reserved[4]; /* zero */
};

/* Never fails. */
void kolo_zero_progress_get(const struct kolo_zero *zero, struct kolo_zero_progress *out);

/* Wall-clock seconds of this rank since the engine was made; forward, backward and step follow each other; reduce, gather, update
 * and transfer are parts of them. */
struct kolo_zero_times {
	double forward;  /* between kolo_zero_forward and kolo_zero_backward */
	double backward; /* between kolo_zero_backward and kolo_zero_step */
	double step;     /* in kolo_zero_step */
	double reduce;   /* waiting for reductions of gradients, or, without overlap, doing them */
	double gather;   /* the same of gathers of parameters */
	double update;   /* the optimizer's own part of step: norm, clipping, the pass over the state */
	double transfer; /* waiting for copies between device and host, or for files */
	long micro_steps;
	uint64_t reserved[4]; /* zero */
};

/* Never fails. */
void kolo_zero_times_get(const struct kolo_zero *zero, struct kolo_zero_times *out);

/* Sets the learning rate of a group, or the loss scale, from the next forward on; between updates only. A schedule that takes the
 * group's lr goes on from there, and one that adapts from the scale. Local and at once, the same on all ranks (checked at the
 * next update). Errors: KOLO_EINVAL (a rate that the schedule would not look at). */
int kolo_zero_set_lr(struct kolo_zero *zero, int group, double lr);
int kolo_zero_set_loss_scale(struct kolo_zero *zero, double loss_scale);

/* Sets elements [first, first + n) of a tensor from floats, in the parameters and the master weights, as far as this rank has
 * them; all ranks call it alike, between updates, while the tensor is not in use. Blocks until gathers of the last update are
 * done. Errors: KOLO_EINVAL, those of the collectives. */
int kolo_zero_set(struct kolo_zero *zero, int tensor, size_t first, size_t n, const float *values);

/* Gets a whole tensor as floats: the master weights where it has such, else the parameter. Between updates, while it is not in
 * use. Collective at stages 1 to 3. Errors: KOLO_EINVAL, those of the collectives. */
int kolo_zero_get(struct kolo_zero *zero, int tensor, float *out);

/* Memory of one kind on this rank, in bytes. */
struct kolo_zero_memory {
	const char *kind;    /* "parameters", "gradients", ...; static storage */
	const char *place;   /* "host", "device", "nvme"; static storage */
	const char *formula; /* what it should be, in words, like "e P / N"; static storage */
	size_t bytes;        /* what is allocated now, the caller's parameters included */
	size_t peak;         /* the most there was */
	size_t expected;     /* what the formula gives; of gathered parameters the most that it allows */
	size_t pinned;       /* bytes of whole pages that are locked */
	uint64_t reserved[4];
};

/* Tells about the kind number `index`, from 0. Local. Errors: KOLO_EINVAL where there is no further one. */
int kolo_zero_memory_get(const struct kolo_zero *zero, int index, struct kolo_zero_memory *out);

/* Bytes that this rank sent since it was made, without what kolo_zero_create and kolo_zero_get send. */
struct kolo_zero_traffic {
	uint64_t sent_bytes; /* as the communicator counted; = the two below where it sends round the ring */
	uint64_t gradient_bytes;            /* by formula: reductions */
	uint64_t parameter_bytes;           /* by formula: all-gathers or broadcasts */
	uint64_t padding_bytes;             /* of these two, what fills buckets up to equal parts */
	uint64_t control_bytes;             /* norm, loss, overflow, order of use; on a communicator apart */
	uint64_t reductions, gathers;       /* operations */
	uint64_t down_bytes, up_bytes;      /* between device and host */
	uint64_t read_bytes, written_bytes; /* of files of offloaded state, padding included */
	uint64_t reserved[4];
};

/* Counts. Between updates; blocks until what is on the way is done. Errors: KOLO_EINVAL, those of the collectives. */
int kolo_zero_traffic_get(struct kolo_zero *zero, struct kolo_zero_traffic *out);

/* What an engine of these arguments would hold and send on one rank, without making it: by the same code, and checked by the same
 * rules. */
struct kolo_zero_plan;

/* Plans for rank `rank` of `nranks`. The device, if there is one, is asked for its budget only. Local. The caller gives *out to
 * kolo_zero_plan_destroy. Errors: KOLO_EINVAL, KOLO_ENOMEM; then *out is NULL. */
int kolo_zero_plan_create(const struct kolo_zero_config *config, const struct kolo_zero_tensor *tensors,
			  int ntensors, int rank, int nranks, struct kolo_zero_plan **out);

/* NULL is allowed. */
void kolo_zero_plan_destroy(struct kolo_zero_plan *plan);

/* As kolo_zero_memory_get, of the plan: bytes and peak are what is expected, of gathered parameters of a model that uses its
 * tensors one after the other, forward and back, each for itself. Errors: KOLO_EINVAL where there is no further one. */
int kolo_zero_plan_memory_get(const struct kolo_zero_plan *plan, int index, struct kolo_zero_memory *out);

/* What one update takes: `accumulation` micro-steps in which each tensor is used once forward and once backward. Never fails. */
void kolo_zero_plan_traffic_get(const struct kolo_zero_plan *plan, struct kolo_zero_traffic *out);

/* Whether it fits into the device's budget and the host's, as kolo_zero_create asks (which also counts what other ranks of the host
 * need): KOLO_ENOMEM, with the bytes of each kind, what is missing, and what could be offloaded. */
int kolo_zero_plan_check(const struct kolo_zero_plan *plan);

/* The name of an optimizer, like "AdamW"; NULL when there is no such. Static storage. */
const char *kolo_zero_optimizer_name(enum kolo_zero_optimizer optimizer);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
