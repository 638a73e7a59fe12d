/* Kolo: devices, whose memory a model computes in, and what an engine of kolo_zero.h asks of one.
 *
 *     struct kolo_zero_device *device;
 *
 *     kolo_zero_arena_open((size_t)256 << 20, 0, &device);    256 MiB
 *     config.device = device;
 *     config.offload_optimizer.place = KOLO_ZERO_ON_HOST;
 *     kolo_zero_create(comm, &config, tensors, ntensors, &zero);
 *     ...
 *     kolo_zero_destroy(zero);
 *     kolo_zero_device_close(device);
 *
 * A device is a table of functions. Kolo has two: a CUDA GPU, and an *arena*, host memory of a bounded size with copies of
 * a set bandwidth, with which placement, budgets and overlap can be tried on any machine. A program may bring its own.
 *
 * Conventions as in kolo.h. A device is used by one thread at a time; it belongs to the process that opened it. */
#ifndef KOLO_KOLO_ZERO_DEVICE_H
#define KOLO_KOLO_ZERO_DEVICE_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- What is computed ----------------------------------------------------------------------------------- */

/* Elements whose squares are added up apart from others, so that any number of threads, on any device, gives the same bits. */
#define KOLO_ZERO_BLOCK 4096

/* Of each block: element i is in lane i % 16; lanes add up in the order of their elements, then lane 0 to 15 in this order. */
#define KOLO_ZERO_LANES 16

/* What an update multiplies and adds in float, from the group's hyper-parameters in double and the number of the step. */
struct kolo_zero_scalars {
	float keep;         /* 1 - lr weight_decay: AdamW, Lion */
	float decay;        /* weight_decay, where it is added to the gradient or the update */
	float beta1, rest1; /* rest1 = 1 - beta1 */
	float beta2, rest2;
	float rate;  /* lr; Adam and AdamW: lr / (1 - beta1^step); Lamb: lr times the trust ratio */
	float root2; /* sqrt(1 - beta2^step) */
	float bias1; /* 1 - beta1^step */
	float eps;
	float momentum, rest; /* SGD; rest = 1 - dampening */
	int first, nesterov;  /* SGD; first: the moment begins */
};

enum kolo_zero_work_kind {
	/* to[i] = from[i] * factor, multiplied in float and rounded once; *bad becomes 1 where a from[i] is not finite, unless bad is
	 * NULL. With equal types and factor 1 a copy */
	KOLO_ZERO_WORK_CAST,
	KOLO_ZERO_WORK_ADD,   /* to[i] += from[i] * factor, to of KOLO_F32, each rounded once; bad as above */
	KOLO_ZERO_WORK_CLEAR, /* to[i] = 0 */
	KOLO_ZERO_WORK_SQUARES, /* sums[b]: of the squares of from[i] of block b, in double */
	/* The optimizer's step: gradients from[i] * factor; master and moments in place; to[i] = master[i] where to is not NULL.
	 * Lamb: moments are this step's already, and from is not read */
	KOLO_ZERO_WORK_UPDATE,
	/* Lamb: moments of this step; sums[2 b] and [2 b + 1]: of the squares of masters and of updates of block b */
	KOLO_ZERO_WORK_LAMB,
};

/* One loop over n elements. Everything is the device's memory, but for bad and sums: host memory that `pin` was called for, which
 * is complete when the work was waited for. Nothing overlaps. */
struct kolo_zero_work {
	enum kolo_zero_work_kind kind;
	size_t n;
	const void *from;
	enum kolo_type from_type;
	void *to;
	enum kolo_type to_type;
	float factor;
	uint32_t *bad;
	double *sums;
	enum kolo_zero_optimizer optimizer;
	struct kolo_zero_scalars scalars;
	float *master, *moment[2]; /* moments that the optimizer does not have are NULL */
};

/* ---- The table ------------------------------------------------------------------------------------------ */

/* Ways that go on side by side; what is put on one of them is done in order. */
enum kolo_zero_lane {
	KOLO_ZERO_COMPUTE, /* work */
	KOLO_ZERO_DOWN,    /* copies from the device to the host */
	KOLO_ZERO_UP,      /* copies from the host to the device */
	KOLO_ZERO_NLANES,
};

struct kolo_zero_device_info {
	const char *kind;              /* "arena", "cuda" */
	const char *name;              /* of this one; valid until it is closed */
	size_t budget;                 /* bytes that may be in use, those that are included */
	size_t used, peak;             /* bytes in use, the model's among them: now, and at most */
	size_t pinned;                 /* bytes of host memory that are locked, in whole pages */
	uint64_t down_bytes, up_bytes; /* copied since it was opened */
	uint64_t reserved[4];
};

struct kolo_zero_device_ops {
	/* 1: the host reads and writes this memory as its own, and work is done there; `work` then is not called */
	int on_host;

	/* Never fails. */
	void (*get)(struct kolo_zero_device *device, struct kolo_zero_device_info *out);

	/* Memory, zeroed, aligned to 256 bytes at least; `what` names it in errors. KOLO_ENOMEM: how much is missing from the budget. It
	 * may wait for lanes. release: as many bytes; nothing on a lane may use it any more. */
	int (*allocate)(struct kolo_zero_device *device, size_t bytes, const char *what, void **out);
	void (*release)(struct kolo_zero_device *device, void *memory, size_t bytes);

	/* Locks whole pages of host memory, so that copies of them need no detour; they are what `pinned` counts. KOLO_ESYS, with
	 * the limit that was met, KOLO_ENOMEM. Copies work without it. */
	int (*pin)(struct kolo_zero_device *device, void *host, size_t bytes);
	void (*unpin)(struct kolo_zero_device *device, void *host, size_t bytes);

	/* Puts a copy on the lane DOWN or UP and returns at once; *ticket is its number there. A copy comes after all work that was
	 * put on COMPUTE before. Source and target must stay until it is done. KOLO_EINVAL (a
	 * lane, or memory, that is none of the device's), KOLO_ENOMEM, KOLO_ESYS. */
	int (*copy)(struct kolo_zero_device *device, enum kolo_zero_lane lane, void *to, const void *from,
		    size_t bytes, uint64_t *ticket);

	/* Puts work on COMPUTE. It does not come after copies that were not waited for. KOLO_EINVAL, KOLO_ESYS. */
	int (*work)(struct kolo_zero_device *device, const struct kolo_zero_work *work, uint64_t *ticket);

	/* Blocks until the one with this ticket, and all before it on the lane, are done; 0 is done. KOLO_EINVAL (there was none
	 * such), KOLO_ESYS. */
	int (*wait)(struct kolo_zero_device *device, enum kolo_zero_lane lane, uint64_t ticket);

	/* A queue for collectives on this memory, behind all work that was put on COMPUTE when an operation is called; for
	 * kolo_queue_destroy. Errors: those of kolo_queue_create, and of a device's own. */
	int (*queue)(struct kolo_zero_device *device, struct kolo_queue **out);

	/* Frees the device, with what was not released. */
	void (*close)(struct kolo_zero_device *device);
};

/* The first member of any device. */
struct kolo_zero_device {
	const struct kolo_zero_device_ops *ops;
};

/* ---- Those that there are ------------------------------------------------------------------------------- */

/* An arena: `budget` bytes of host memory that stand for a device's, counted by whole pages, and two threads that copy down and
 * up with `bandwidth` bytes a second each; 0: as fast as they can. What was released traps when it is touched. The caller gives
 * *out to kolo_zero_device_close. Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_zero_arena_open(size_t budget, double bandwidth, struct kolo_zero_device **out);

/* The CUDA GPU of this number, with all of its free memory as the budget. The same of *out.
 * Errors: KOLO_EINVAL, KOLO_ENOTSUP (no CUDA in this build, no driver, no such GPU), KOLO_ENOMEM, KOLO_ESYS. */
int kolo_zero_cuda_open(int ordinal, struct kolo_zero_device **out);

/* The device's own account of it. Never fails. */
void kolo_zero_device_get(struct kolo_zero_device *device, struct kolo_zero_device_info *out);

/* Memory for the model itself, which the budget counts too; zeroed. The caller gives it to kolo_zero_device_free, with as many
 * bytes. `what` names it in errors. May wait for what the device does. Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_zero_device_alloc(struct kolo_zero_device *device, size_t bytes, const char *what, void **out);

/* Gives it back, when nothing uses it any more. NULL is allowed. */
void kolo_zero_device_free(struct kolo_zero_device *device, void *memory, size_t bytes);

/* Copies between the host and the device, done when it returns. lane: KOLO_ZERO_DOWN or KOLO_ZERO_UP. Errors: KOLO_EINVAL, KOLO_ESYS. */
int kolo_zero_device_copy(struct kolo_zero_device *device, enum kolo_zero_lane lane, void *to,
			  const void *from, size_t bytes);

/* Ends a device, after the engines on it. NULL is allowed. */
void kolo_zero_device_close(struct kolo_zero_device *device);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
