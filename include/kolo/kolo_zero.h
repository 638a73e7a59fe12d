/* Kolo ZeRO: training with sharded optimizer state, gradients and parameters (ZeRO, stages 0 to
 * 3), on kolo.h alone.
 *
 * The model is a list of tensors. The program runs it forward and backward and reports to the
 * engine what it does:
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
 * Stages: what each rank keeps whole, and what it keeps only of the elements that it owns.
 *
 *     stage   parameters   gradients   optimizer state
 *     0       whole        whole       whole
 *     1       whole        whole       own
 *     2       whole        own         own
 *     3       own          own         own
 *
 * Owner: rank r owns elements [r c, (r+1) c) of a tensor of n elements, c = ceil(n / nranks), at
 * every stage. So a gradient is always added in the same order: all stages, bucket sizes and
 * transports give the same bits. config.order chooses the order; with "tree" ranks may be on any
 * hosts, too. With gradient accumulation, stages 0 and 1 agree with each
 * other, and stages 2 and 3 agree with each other. Stages 0 and 1 add micro-steps first and ranks
 * then; stages 2 and 3 add ranks first.
 *
 * The conventions of kolo.h hold here too. One thread at a time uses an engine. A call marked
 * collective is made by all ranks, in the same order. After a failure other than KOLO_EINVAL and
 * KOLO_EOVERFLOW the engine refuses all calls except kolo_zero_destroy. No call may be made
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

/* The optimizers, each with the definition that it follows. */
enum kolo_zero_optimizer {
	KOLO_ZERO_ADAMW,   /* torch.optim.AdamW: weight decay apart from the gradient */
	KOLO_ZERO_ADAM,    /* torch.optim.Adam: weight decay added to the gradient */
	KOLO_ZERO_SGD,     /* torch.optim.SGD, with momentum, dampening, nesterov */
	KOLO_ZERO_LION,    /* Chen et al. 2023: the sign of an interpolated gradient */
	KOLO_ZERO_ADAGRAD, /* torch.optim.Adagrad */
	KOLO_ZERO_LAMB,    /* You et al. 2020: Adam with a trust ratio ||p|| / ||u|| per tensor */
};

/* Schedules of the learning rate. */
enum kolo_zero_schedule_type {
	KOLO_ZERO_CONSTANT,      /* the group's lr */
	KOLO_ZERO_WARMUP,        /* from min_lr to max_lr over warmup_steps, then max_lr */
	KOLO_ZERO_WARMUP_DECAY,  /* like WARMUP, then linearly to min_lr at total_steps */
	KOLO_ZERO_WARMUP_COSINE, /* the group's lr times a ratio: a warm-up, then a cosine */
	/* Up and down between min_lr and max_lr, momentum the other way, then decay */
	KOLO_ZERO_ONE_CYCLE,
	KOLO_ZERO_RANGE_TEST, /* grows from min_lr, to find out how large a rate may be */
};

/* How the learning rate of a group changes from update to update. The rules are those of
 * DeepSpeed's schedules of these names. An update that is skipped does not count.
 * kolo_zero_schedule_init fills in the defaults. */
struct kolo_zero_schedule {
	enum kolo_zero_schedule_type type;
	/* WARMUP, WARMUP_DECAY, ONE_CYCLE: the least and the largest rate. RANGE_TEST: min_lr is
	 * its first rate. Default: 0 and 1e-3; min_lr of RANGE_TEST: 1e-3. */
	double min_lr, max_lr;
	/* WARMUP, WARMUP_DECAY, WARMUP_COSINE: updates of the warm-up; 0 and 1 count as 2.
	 * Default: 1000. */
	long warmup_steps;
	/* WARMUP_DECAY, WARMUP_COSINE: updates until the end; more than warmup_steps. Default: 0,
	 * so it must be set. */
	long total_steps;
	/* WARMUP, WARMUP_DECAY, WARMUP_COSINE: 1: the warm-up grows linearly; 0: as a logarithm.
	 * Default: 0. */
	int linear;
	/* WARMUP_COSINE: the ratio at the beginning of the warm-up. Default: 0. */
	double warmup_ratio;
	/* WARMUP_COSINE: the ratio at total_steps. Default: 1e-4. */
	double final_ratio;
	/* ONE_CYCLE: updates on the way up, and down again. second_steps 0: as many as
	 * first_steps. Default: 2000 and 0. */
	long first_steps, second_steps;
	/* ONE_CYCLE: in the k-th update after the cycle, lr = min_lr / (1 + decay_rate k /
	 * decay_steps). 0: lr stays min_lr. Default: 0. */
	long decay_steps;
	double decay_rate; /* ONE_CYCLE: see decay_steps. Default: 0. */
	/* ONE_CYCLE: 1: beta1 goes from max_momentum to min_momentum and back, and beta2 is 0.99.
	 * The first update has min_momentum. 0: both are the group's. Default: 1. */
	int cycle_momentum;
	double min_momentum, max_momentum; /* ONE_CYCLE. Default: 0.8 and 0.9. */
	/* ONE_CYCLE: after the cycle, momentum is max_momentum (1 + momentum_decay_rate k /
	 * decay_steps). It stays below 1: at most 0.999, or max_momentum if that is larger.
	 * Default: 0. */
	double momentum_decay_rate;
	/* RANGE_TEST: lr = min_lr (1 + range_rate k / range_steps) in update number k, from 0.
	 * Default: 2000. */
	long range_steps;
	double range_rate;    /* RANGE_TEST: see range_steps. Default: 1. */
	int staircase;        /* RANGE_TEST: 1: k / range_steps is rounded down. Default: 0. */
	uint64_t reserved[4]; /* zero */
};

/* Fills in the defaults of a schedule. Never fails. */
void kolo_zero_schedule_init(struct kolo_zero_schedule *out, enum kolo_zero_schedule_type type);

/* Computes the learning rate of update number `step`, from 0, in a group whose rate is lr. If the
 * schedule cycles momentum, *momentum becomes beta1 of that update, otherwise NaN. out and
 * momentum may be NULL. Local.
 *
 * The first two updates of WARMUP and WARMUP_DECAY have the first rate of the warm-up, because
 * DeepSpeed advances a schedule after each update. The first update of WARMUP_COSINE has the rate
 * 0.
 *
 * Errors: KOLO_EINVAL (names the field). */
int kolo_zero_schedule_at(const struct kolo_zero_schedule *schedule, double lr, long step,
			  double *out, double *momentum);

/* The name of a schedule, like "WarmupLR"; NULL if there is no such schedule. The text has static
 * storage. */
const char *kolo_zero_schedule_name(enum kolo_zero_schedule_type type);

/* The hyper-parameters of a group of tensors. kolo_zero_group_init fills in torch's defaults, or
 * those of the papers if torch has none. kolo_zero_create checks all fields, even those that the
 * optimizer does not use. */
struct kolo_zero_group {
	double lr;                          /* the learning rate */
	double beta1, beta2;                /* AdamW, Adam, Lion, Lamb */
	double eps;                         /* AdamW, Adam, Adagrad, Lamb */
	double weight_decay;                /* all optimizers */
	double momentum;                    /* SGD; 0: no state */
	double dampening;                   /* SGD */
	double lr_decay;                    /* Adagrad */
	double initial;                     /* Adagrad: the sum of squares at the beginning */
	int nesterov;                       /* SGD */
	struct kolo_zero_schedule schedule; /* of lr. Default: KOLO_ZERO_CONSTANT. */
	uint64_t reserved[4];               /* zero */
};

/* How a loss scale adapts, by DeepSpeed's rule.
 *
 * - Each overflow skips the update and uses up one `hysteresis`. If only one is left, it halves
 *   the scale instead, but not below min.
 * - After window + 1 updates without overflow, counted from the start or from the last overflow,
 *   the scale doubles and `hysteresis` is restored. Then this repeats after every `window`
 *   further updates without overflow.
 * - With consecutive 1, every update without overflow restores `hysteresis`. */
struct kolo_zero_scaling {
	double initial;       /* the first scale. Default: 65536. */
	double min;           /* the least scale. Default: 1. */
	long window;          /* updates, at least 1. Default: 1000. */
	int hysteresis;       /* overflows, at least 1. Default: 2. */
	int consecutive;      /* 0 or 1. Default: 0. */
	uint64_t reserved[4]; /* zero */
};

/* Which part of a larger tensor an engine has: one of `parts` equal parts along a dimension. Its
 * shape is that of the part. Checkpoints have the whole tensor. */
struct kolo_zero_division {
	int dim;         /* of the shape */
	int parts, part; /* how many there are, and which this is, from 0 */
	/* The dimension has the rows of this many matrices behind each other, and of each the
	 * engine has its part: 3 for queries, keys and values. 0: one */
	int fused;
};

/* One tensor of the model. */
struct kolo_zero_tensor {
	const char *name;             /* unique; copied */
	size_t shape[KOLO_ZERO_DIMS]; /* row-major; ndims numbers, each at least 1 */
	int ndims;                    /* 0 to KOLO_ZERO_DIMS; 0: one element */
	enum kolo_type type;          /* KOLO_F32, KOLO_F16 or KOLO_BF16 */
	int group;                    /* index into the config's groups */
	int frozen;                   /* 1: has no gradient and is not updated */
	/* The caller's memory with the first values; rank 0's values count. No two tensors share
	 * memory; kolo_zero_create refuses it. Stages 0 to 2 train in it: keep it until
	 * kolo_zero_destroy. Read it only between kolo_zero_use and kolo_zero_release, or after
	 * kolo_zero_destroy. Stage 3 reads it in kolo_zero_create only. NULL: the engine makes
	 * memory, zeroed */
	void *data;
	/* The type of its gradients, on their way between ranks too: KOLO_F32, or `type`. 0: as
	 * `type` */
	enum kolo_type gradient_type;
	/* With config.world. 1: another engine has the same tensor with the same gradients, and
	 * that one counts in the norm */
	int replicated;
	/* With config.tied. 1: the engine at the other end has this tensor, too, like an embedding
	 * of the first and the last stage. Their gradients are added up, and both copies are
	 * updated alike; give them the same first values. One of the two is also `replicated`. The
	 * tied tensors of both engines have the same order, sizes and types */
	int tied;
	/* With config.micros. 1: the program itself adds up this tensor's gradients of
	 * micro-batches, and reports the sum, once. The engine has no memory for it */
	int summed;
	/* With config.world. Other engines have the other parts, under the same name. Read in
	 * kolo_zero_create. NULL: the tensor is whole */
	const struct kolo_zero_division *division;
	uint64_t reserved[1]; /* zero */
};

struct kolo_zero_device; /* kolo_zero_device.h */

/* Where something is kept. */
enum kolo_zero_place {
	/* With the model: in config.device's memory, or in host memory if there is no device */
	KOLO_ZERO_ON_DEVICE,
	/* In host memory. Without a device this is the same as KOLO_ZERO_ON_DEVICE */
	KOLO_ZERO_ON_HOST,
	KOLO_ZERO_ON_NVME, /* in files (io_uring, past the system's cache) */
};

/* What is offloaded from the device. Results have the same bits wherever state is.
 * kolo_zero_offload_init fills in the defaults. */
struct kolo_zero_offload {
	enum kolo_zero_place place; /* Default: KOLO_ZERO_ON_DEVICE. */
	/* Optimizer: the share of its elements that is offloaded, 0 to 1, in whole blocks of each
	 * tensor. Default: 1. */
	double ratio;
	/* 1: host memory that copies use is locked and registered with the device. Default: 1. */
	int pin;
	/* Buffers, 2 to 4096. Updates overlap with copies and file requests between them.
	 * Default: 4 for the optimizer, 5 for parameters. */
	int buffers;
	/* Optimizer: the most elements in one buffer, in whole blocks of 4096. Default: 512 Ki.
	 * Parameters: not used, since a buffer holds any shard */
	size_t buffer;
	/* Parameters in files: the most elements, of whole shards together, that stay in host
	 * memory. Shards are taken in the order of tensors, as they fit. Default: 0. */
	size_t in_host;
	/* KOLO_ZERO_ON_NVME: a directory that exists; copied. The engine removes its files at the
	 * end */
	const char *path;
	uint64_t reserved[4]; /* zero */
};

/* What kolo_zero_create needs. kolo_zero_config_init fills in the defaults. All ranks must pass
 * the same values, which is checked. Ranks may differ in host_budget, threads, io_block, io_depth
 * and paths. Of `device` only its presence must be the same. */
struct kolo_zero_config {
	int stage;        /* 0 to 3. Default: 0. */
	int accumulation; /* micro-steps for each update, at least 1. Default: 1. */
	/* The number of samples of a micro-step on one rank that gives its gradient the weight 1
	 * / nranks. Other numbers weigh in proportion. The weight is applied in the gradient's
	 * type, so far larger numbers may overflow. 0: the largest number of any rank in the
	 * first micro-step. Default: 0. */
	size_t micro_batch;
	/* The largest norm of the gradient over all tensors. A larger gradient is scaled down to
	 * it. 0: no limit. Default: 0. */
	double clip;
	/* What the model multiplies its loss by, so that small gradients survive in 16 bits. 0:
	 * the scale adapts, and kolo_zero_loss_scale returns it. Default: 1. */
	double loss_scale;
	struct kolo_zero_scaling scaling; /* used if loss_scale is 0 */
	/* Gradients are divided by this before the sum over ranks, and by nranks / predivide
	 * after it. Use it if 16 bits can't hold the sum. 0: nranks, so all of it before.
	 * Default: 0. */
	double predivide;
	enum kolo_zero_optimizer optimizer;   /* Default: KOLO_ZERO_ADAMW. */
	const struct kolo_zero_group *groups; /* copied; NULL: one group with the defaults */
	int ngroups;                          /* number of groups; 0 if groups is NULL */
	/* 1: communication runs on a queue beside the model's work. Default: 1. */
	int overlap;
	/* The most elements in one reduction of gradients, over all ranks; at least 1024, which
	 * are a page of floats. Default: 2 Mi. */
	size_t reduce_bucket;
	/* Stages 1 to 3: the most elements in one all-gather of updated parameters. Default: 2
	 * Mi. */
	size_t gather_bucket;
	/* 1: small tensors share buckets; 0: each tensor is reduced by itself. Default: 1. */
	int contiguous;
	/* Stages 1 to 3: 1: gradients are reduce-scattered; 0: they are all-reduced, with the
	 * same bits and twice the traffic. Default: 1. */
	int reduce_scatter;
	/* 1: updated parameters are all-gathered; 0: their owners broadcast them. Stage 3 always
	 * gathers parameters for use. Default: 1. */
	int allgather;
	/* The most own elements that are updated before they are gathered. 0: gather_bucket /
	 * nranks. Default: 0. */
	size_t sub_group;
	/* Stage 3: tensors of at most so many elements stay whole on all ranks. Default: 0. */
	size_t persistence;
	/* Stage 3 with overlap: the most elements gathered ahead of use, or one tensor if it is
	 * larger. 0: none. Default: 4 Mi. */
	size_t prefetch;
	/* Stage 3: beyond so many gathered elements nothing is gathered ahead, and nothing is
	 * kept for reuse. Default: 2^30. */
	size_t max_live;
	/* Stage 3: keep a released tensor if it is used again within so many elements of other
	 * tensors. 0: keep none. Default: 0. */
	size_t reuse_distance;
	/* 1: rank 0 alone updates; the others send gradients to it and receive parameters from
	 * it. Needs stage 0, overlap 0 and no device. Default: 0. */
	int parameter_server;
	/* The memory that the model computes in; it must outlive the engine. NULL: host memory.
	 * With a device, kolo_zero_use gives device memory, kolo_zero_gradient reads device
	 * memory, and a tensor's data is host memory that only kolo_zero_create reads. A device
	 * whose memory the host can't use as its own needs overlap 1. Default: NULL. */
	struct kolo_zero_device *device;
	/* Stages 1 to 3: where master weights and moments are. They are updated in place; state
	 * in files passes through host buffers. Gradients of offloaded state are downloaded */
	struct kolo_zero_offload offload_optimizer;
	/* Stage 3: where this rank's shards are. They are uploaded for each gather */
	struct kolo_zero_offload offload_param;
	/* Threads that update in host memory, at most 4096. 0: the cores that this rank may use,
	 * divided by the number of ranks that may use the same cores. Default: 0. */
	int threads;
	/* Bytes of host memory that this rank may plan for. 0: what its host has available, for
	 * all ranks there together. Default: 0. */
	size_t host_budget;
	/* Bytes of one file request, a multiple of 4096 up to 2^30. Default: 1 Mi. */
	size_t io_block;
	int io_depth; /* file requests at a time, 1 to 4096. Default: 8. */
	/* The order in which gradients of all ranks are added: "ring", "tree" or "grid" (see
	 * kolo_all_reduce). With the tree the bits of a training depend on the number of ranks,
	 * and not on how many a host has. NULL: as kolo_comm_split of comm. Default: NULL. */
	const char *order;
	/* 1: an update without all gradients is refused (see kolo_zero_gradient). Default: 0. */
	int strict;
	/* All ranks of several engines that train one model together, for example those of the
	 * stages of a pipeline; its ranks include those of comm. All engines are made at the same
	 * time, and step at the same time. An update is made by all or by none. The norm is
	 * that of the tensors of all engines. The loss is that of the
	 * ranks that know it: others pass NaN to kolo_zero_backward. Samples are those of one
	 * engine; all have the same number. Checkpoints have the tensors of all engines. NULL: one
	 * engine. Default: NULL. */
	struct kolo_comm *world;
	/* This rank, and the rank that owns the same elements of tied tensors in another engine of
	 * world (kolo_grid_comm, KOLO_GRID_TIED). The engine uses it in kolo_zero_create and
	 * kolo_zero_step, and aborts it if it fails; it must outlive the engine. Needs world.
	 * Both engines have a device, or neither; then the gradients pass through the host. NULL:
	 * no tensor is tied. Default: NULL. */
	struct kolo_comm *tied;
	/* Micro-batches of a micro-step, whose forward and backward passes alternate as in a
	 * pipeline. 0: a tensor has one gradient in a micro-step, after kolo_zero_backward. m: it
	 * has up to m, at any time between kolo_zero_forward and kolo_zero_step. They add up to
	 * the gradient of the micro-step. The engine adds them as floats, in the order of the
	 * calls, and reduces the sum when the m-th has come, so traffic does not grow with m. If m
	 * is more than 1, it has memory for the sums of whole tensors. Default: 0. */
	int micros;
	uint64_t reserved[3]; /* zero */
};

/* Fills in the defaults of an offload of the optimizer. kolo_zero_config_init fills in those of
 * both offloads. Never fails. */
void kolo_zero_offload_init(struct kolo_zero_offload *out);

/* Fill in the defaults: of a group for an optimizer, and of a config. Never fail. */
void kolo_zero_group_init(struct kolo_zero_group *out, enum kolo_zero_optimizer optimizer);
void kolo_zero_config_init(struct kolo_zero_config *out);

/* Makes an engine for `ntensors` tensors on the ranks of comm. Collective; blocks. It splits comm
 * twice, for config.order: one communicator is for gradients and parameters, one for a few control
 * bytes in each update. At stage 3 with overlap it splits a third one, for gradients alone. With
 * config.world it is collective over that, too, and splits it once. It does not use comm itself
 * afterwards. Parameters become rank 0's on all ranks. The caller gives *out to kolo_zero_destroy.
 *
 * All ranks get the error of the first rank that failed, with its number. Then *out is NULL.
 *
 * Errors: those of kolo_comm_split_order and of the collectives, and:
 * - KOLO_EINVAL: an argument is wrong; names the tensor or the field.
 * - KOLO_ENOMEM: out of memory, or the engine does not fit into the device or the host. Then the
 *   text has the bytes of each kind.
 * - KOLO_EMISMATCH: ranks passed different tensors or configs.
 * - KOLO_ENOTSUP: files in a build without liburing, or on a system without io_uring.
 * - KOLO_ESYS: files, locked memory or threads. */
int kolo_zero_create(struct kolo_comm *comm, const struct kolo_zero_config *config,
		     const struct kolo_zero_tensor *tensors, int ntensors, struct kolo_zero **out);

/* A sentence about settings that cost more than they give: a stage 3 that gathers as much at a
 * time as it shards away. NULL: there is none. The text lives as long as the engine and is the
 * same on all ranks. kolo_zero_create also writes it to comm's log, as KOLO_LOG_WARN, on rank 0.
 * Never fails. */
const char *kolo_zero_warning(const struct kolo_zero *zero);

/* Ends an engine. Blocks until the last update is gathered into the caller's memory. Ranks that
 * still need this rank get KOLO_EPEER. NULL is allowed. */
void kolo_zero_destroy(struct kolo_zero *zero);

/* Begins a micro-step on `samples` samples of this rank; 0 is allowed. Ranks may have different
 * numbers. Gradients and loss become means over all samples of all ranks and micro-steps. Local,
 * except the first call if config.micro_batch is 0: that one is collective and blocks.
 *
 * Errors: KOLO_EINVAL, and those of the collectives. */
int kolo_zero_forward(struct kolo_zero *zero, size_t samples);

/* Ends the forward part and begins the backward part. `loss` is this rank's mean over its
 * samples, not scaled. With config.world, NaN says that this rank does not know it. With
 * config.micros the parts alternate: then call it once, at any time before kolo_zero_step. Local.
 *
 * Errors: KOLO_EINVAL. */
int kolo_zero_backward(struct kolo_zero *zero, double loss);

/* Begins a use of a tensor. *out becomes the tensor's values, in its own type. They may be read
 * until kolo_zero_release; they must not be written. out may be NULL. Uses may be nested; each
 * one is released. A use outside of a micro-step is allowed too, for an evaluation for example.
 *
 * Blocks until the values are gathered. At stages 1 and 2 the gathers of the last update go on
 * after kolo_zero_step, and this call waits for those of the tensor. Who reads a tensor without
 * it may read older values. kolo_zero_gradient finds that, at every stage.
 *
 * Stage 3: collective. All ranks use tensors and release them in the same order, also ranks
 * without samples. kolo_zero_step finds differences before anything is updated.
 *
 * Errors: KOLO_EINVAL, and those of the collectives. */
int kolo_zero_use(struct kolo_zero *zero, int tensor, const void **out);

/* Ends a use of a tensor. Does not block.
 *
 * Stage 3: after its last release the tensor is gone until it is gathered again, at the same
 * address. To touch it then is a SIGSEGV. Tensors of at most config.persistence elements stay,
 * and so do those that reuse_distance keeps. The memory is kept for the next tensor of the same
 * length, as long as no more is held than kolo_zero_plan_memory_get reports; it counts as
 * "gathered".
 *
 * With a device a released tensor does not trap. The device's reads of it must have ended before
 * the call, and the next use may give another address.
 *
 * Errors: KOLO_EINVAL (the tensor is not in use). */
int kolo_zero_release(struct kolo_zero *zero, int tensor);

/* Reports the gradient of a tensor: that of this rank's mean loss, times the loss scale. It has
 * as many elements as the tensor, of its gradient_type, and is read during the call. NULL is
 * allowed in a micro-step without samples.
 *
 * Call it at most once per tensor and micro-step, or with config.micros once per micro-batch. Ranks
 * may report in any order, at any time, each in its own. Only at stage 3 without overlap, or with
 * a device that does its own work, must they use the same order, at the same places between
 * uses; there a rank without a gradient of a tensor reports zeros if other ranks report it.
 *
 * A gradient that is not reported counts as zero, and the tensor is updated with it. At the end
 * of an update kolo_zero_result counts trained tensors that lack gradients: `missing` ones that
 * no rank gave, `partial` ones that only some ranks gave. A rank lacks one if it reported fewer
 * gradients of the tensor than it had micro-steps with samples, times micro-batches. With
 * config.strict such an update is refused.
 *
 * Returns when the gradient is in a bucket. With overlap it may first wait until an earlier
 * bucket is reduced. At stage 3 it waits for a second, or 8 times the longest wait before, and then
 * takes memory for one more bucket: another rank may be waiting for this one. Without overlap it
 * reduces full buckets itself.
 *
 * Errors: KOLO_EINVAL (once too often, a frozen tensor, not between backward and step, or, in a
 * micro-step with samples, without kolo_zero_use since the last update), KOLO_ENOMEM, and those
 * of the collectives. */
int kolo_zero_gradient(struct kolo_zero *zero, int tensor, const void *gradient);

/* What a step did. */
struct kolo_zero_result {
	/* 1: parameters were updated. 0: it was not the last micro-step of `accumulation`, or the
	 * update was skipped, or there was no sample at all */
	int updated;
	int skipped; /* 1: a gradient was infinite or NaN; nothing was changed, on any rank */
	long step;   /* updates so far */
	/* The mean over all samples of all ranks in this update's micro-steps, if updated or
	 * skipped */
	double loss;
	double norm;        /* of the mean gradient over all tensors, unscaled, before clipping */
	size_t samples;     /* of all ranks and micro-steps of this update */
	double loss_scale;  /* the scale of this update's gradients */
	double lr;          /* the learning rate of this update in group 0 */
	char overflow[256]; /* if skipped: tensor, rank and index of the first bad value */
	/* Trained tensors without a gradient in this update: on all ranks, and only on some (see
	 * kolo_zero_gradient). All ranks have the same numbers */
	uint64_t missing, partial;
	uint64_t reserved[2];
};

/* Ends a micro-step. Collective; blocks. out may be NULL.
 *
 * The last micro-step of config.accumulation updates: it finishes the reductions, divides
 * gradients by their loss scale, clips and updates. Then it starts the gathers of parameters that
 * the stage keeps whole; kolo_zero_use waits for these. At the end the loss scale and the
 * schedules advance. The norm of the gradient does not depend on the order of additions, nor on how
 * gradients are divided over threads, ranks, engines and devices.
 *
 * Errors: those of the collectives, and:
 * - KOLO_EINVAL: a tensor is still in use, or kolo_zero_backward is missing. With config.strict
 *   also, on all ranks, if gradients are missing; names the first such tensor and its rank. Then
 *   *out has the counts, nothing is updated, and the next update begins.
 * - KOLO_EOVERFLOW: gradients overflowed, and the adapting loss scale is already at its least.
 *   The update is skipped and *out is filled in. The engine still works: write a checkpoint, or
 *   continue training.
 * - KOLO_EMISMATCH: ranks used different tensors, or have different learning rates or loss
 *   scales.
 * - KOLO_ENOMEM: out of memory. */
int kolo_zero_step(struct kolo_zero *zero, struct kolo_zero_result *out);

/* The loss scale: what the model must multiply its loss by now. Never fails. */
double kolo_zero_loss_scale(const struct kolo_zero *zero);

/* Reports the learning rate of a group in the next update. *momentum becomes its beta1, or for
 * SGD its momentum. lr and momentum may be NULL. Local.
 *
 * Errors: KOLO_EINVAL. */
int kolo_zero_lr_get(const struct kolo_zero *zero, int group, double *lr, double *momentum);

/* How far training has come. */
struct kolo_zero_progress {
	long step;         /* updates */
	long skipped;      /* updates that were skipped because of an overflow */
	uint64_t samples;  /* of all ranks, in updates that were not skipped */
	double loss_scale; /* the scale now */
	/* Updates that were tried: made, skipped, refused, or without a sample. A program that
	 * takes new data each time finds its place in them by this number */
	long attempts;
	uint64_t reserved[3]; /* zero */
};

/* Reports how far training has come. Local. Never fails. */
void kolo_zero_progress_get(const struct kolo_zero *zero, struct kolo_zero_progress *out);

/* Wall-clock seconds of this rank since the engine was made. forward, backward and step follow
 * each other. reduce, gather, update and transfer are parts of these three. */
struct kolo_zero_times {
	/* From kolo_zero_forward to kolo_zero_backward, or to the first gradient if that is
	 * earlier */
	double forward;
	double backward; /* from there to kolo_zero_step */
	double step;     /* in kolo_zero_step */
	double reduce;   /* waiting for reductions of gradients; without overlap, doing them */
	double gather;   /* waiting for gathers of parameters; without overlap, doing them */
	double update;   /* the optimizer's part of step: norm, clipping, the pass over the state */
	double transfer; /* waiting for copies between device and host, or for files */
	long micro_steps;
	uint64_t reserved[4]; /* zero */
};

/* Reports where time went. Local. Never fails. */
void kolo_zero_times_get(const struct kolo_zero *zero, struct kolo_zero_times *out);

/* Set the learning rate of a group, or the loss scale, from the next forward on. Call them
 * between updates only. A schedule that uses the group's lr continues from the new one; an
 * adapting loss scale continues from the new scale. Local; they return at once. All ranks must
 * set the same value, which the next update checks.
 *
 * Errors: KOLO_EINVAL (also a rate that the group's schedule does not use). */
int kolo_zero_set_lr(struct kolo_zero *zero, int group, double lr);
int kolo_zero_set_loss_scale(struct kolo_zero *zero, double loss_scale);

/* Sets elements [first, first + n) of a tensor from n floats. It changes the parameter and the
 * master weights, as far as this rank has them. All ranks call it alike, between updates, while
 * the tensor is not in use. Blocks until the gathers of the last update are done.
 *
 * Errors: KOLO_EINVAL, and those of the collectives. */
int kolo_zero_set(struct kolo_zero *zero, int tensor, size_t first, size_t n, const float *values);

/* Gets all elements of a tensor as floats: the master weights if it has some, otherwise the
 * parameter. out has room for as many floats as the tensor has elements. Call it between updates,
 * while the tensor is not in use. Collective at stages 1 to 3; blocks.
 *
 * Errors: KOLO_EINVAL, and those of the collectives. */
int kolo_zero_get(struct kolo_zero *zero, int tensor, float *out);

/* Finds the tensor at an address where the model reads tensors: in the caller's memory, or where a
 * tensor of stage 3 is gathered. Returns its name, which lives as long as the engine; NULL: no
 * tensor is there. *tensor becomes its number, and may be NULL.
 *
 * Without a device, a tensor of stage 3 keeps its address while it is released, and to touch it
 * then is a SIGSEGV. A handler of that signal may call this function, with siginfo's si_addr, if
 * the engine belongs to the thread that trapped. Local; sets no error text. */
const char *kolo_zero_tensor_at(const struct kolo_zero *zero, const void *address, int *tensor);

/* Memory of one kind on this rank, in bytes. */
struct kolo_zero_memory {
	const char *kind;    /* "parameters", "gradients", ...; static storage */
	const char *place;   /* "host", "device", "nvme"; static storage */
	const char *formula; /* the expected size in words, like "e P / N"; static storage */
	size_t bytes;        /* allocated now, with the caller's parameters */
	size_t peak;         /* the most at any time */
	size_t expected;     /* by the formula; for "gathered" the most that it allows */
	size_t pinned;       /* bytes of whole pages that are locked */
	uint64_t reserved[4];
};

/* Reports the memory of kind number `index`, from 0. Local.
 *
 * Errors: KOLO_EINVAL if there is no kind of this number, so that a loop ends. */
int kolo_zero_memory_get(const struct kolo_zero *zero, int index, struct kolo_zero_memory *out);

/* Bytes that this rank sent since the engine was made. What kolo_zero_create and kolo_zero_get
 * send is not counted. */
struct kolo_zero_traffic {
	/* As the communicator counted. If it sends round the ring, this is gradient_bytes +
	 * parameter_bytes */
	uint64_t sent_bytes;
	uint64_t gradient_bytes;  /* by formula: reductions */
	uint64_t parameter_bytes; /* by formula: all-gathers or broadcasts */
	uint64_t padding_bytes;   /* the part of these two that fills buckets to equal parts */
	/* Norm, loss, overflow, order of use, and gradients of tied tensors. They go over other
	 * communicators */
	uint64_t control_bytes;
	uint64_t reductions, gathers;       /* operations */
	uint64_t down_bytes, up_bytes;      /* downloads and uploads between device and host */
	uint64_t read_bytes, written_bytes; /* of files of offloaded state, with padding */
	uint64_t reserved[4];
};

/* Reports what this rank sent. Call it outside of a micro-step. Blocks until pending
 * communication is done.
 *
 * Errors: KOLO_EINVAL, and those of the collectives. */
int kolo_zero_traffic_get(struct kolo_zero *zero, struct kolo_zero_traffic *out);

/* What an engine with certain arguments would hold and send on one rank. The same code computes
 * it, and the same rules check the arguments, but no engine is made. */
struct kolo_zero_plan;

/* Makes a plan for rank `rank` of `nranks`. If there is a device, it is asked for its budget
 * only. Local. The caller gives *out to kolo_zero_plan_destroy.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM. Then *out is NULL. */
int kolo_zero_plan_create(const struct kolo_zero_config *config,
			  const struct kolo_zero_tensor *tensors, int ntensors, int rank,
			  int nranks, struct kolo_zero_plan **out);

/* Frees a plan. NULL is allowed. */
void kolo_zero_plan_destroy(struct kolo_zero_plan *plan);

/* Reports the planned memory of kind number `index`, from 0, like kolo_zero_memory_get. bytes and
 * peak are the expected ones. For gathered parameters they assume a model that uses its tensors
 * one by one, forward and back. Local.
 *
 * Errors: KOLO_EINVAL if there is no kind of this number, so that a loop ends. */
int kolo_zero_plan_memory_get(const struct kolo_zero_plan *plan, int index,
			      struct kolo_zero_memory *out);

/* Reports the planned traffic of one update: `accumulation` micro-steps that use each tensor once
 * forward and once backward. Local. Never fails. */
void kolo_zero_plan_traffic_get(const struct kolo_zero_plan *plan, struct kolo_zero_traffic *out);

/* What kolo_zero_warning of such an engine would return. The text lives as long as the plan. */
const char *kolo_zero_plan_warning(const struct kolo_zero_plan *plan);

/* Checks whether the plan fits into the budgets of the device and the host. kolo_zero_create
 * makes the same check, and also counts what other ranks of the host need. Local.
 *
 * Errors: KOLO_ENOMEM if it does not fit. The text has the bytes of each kind, what is missing,
 * and what could be offloaded. */
int kolo_zero_plan_check(const struct kolo_zero_plan *plan);

/* The name of an optimizer, like "AdamW"; NULL if there is no such optimizer. The text has static
 * storage. */
const char *kolo_zero_optimizer_name(enum kolo_zero_optimizer optimizer);

/* What an optimizer keeps and does for each element. */
struct kolo_zero_optimizer_info {
	int moments;          /* 0 to 2 floats beside the master: its state */
	int passes;           /* how often an update reads the state. Lamb: 2; all others: 1 */
	uint64_t reserved[4]; /* zero */
};

/* Describes an optimizer for tensors of this group: SGD has a moment only with a momentum. The
 * group is read during the call only. Local; never blocks.
 *
 * Errors: KOLO_EINVAL if there is no such optimizer; *out is then left alone. */
int kolo_zero_optimizer_get(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *group,
			    struct kolo_zero_optimizer_info *out);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
