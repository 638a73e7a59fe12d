/* Kolo ZeRO devices: the memory that a model computes in, and what an engine of kolo_zero.h asks
 * of it.
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
 * Parameters, gradients and everything else of this engine are in the device's memory, except
 * what is offloaded.
 *
 * A device is a table of functions. Kolo has two. One is a CUDA GPU. The other is an *arena*:
 * host memory of a bounded size, with copies at a set bandwidth. An arena lets you try placement,
 * budgets and overlap on any machine. A program may bring its own device.
 *
 * The conventions of kolo.h hold here too. One thread at a time uses a device. A device belongs
 * to the process that opened it. */
#ifndef KOLO_KOLO_ZERO_DEVICE_H
#define KOLO_KOLO_ZERO_DEVICE_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- What is computed ------------------------------------------------------------------------ */

/* Elements in a block. Squares of a block are added apart from other blocks. So any number of
 * threads gives the same bits, on any device. */
#define KOLO_ZERO_BLOCK 4096

/* Lanes in a block: element i is in lane i % 16. Each lane adds its elements in their order; then
 * lanes 0 to 15 are added in this order. */
#define KOLO_ZERO_LANES 16

/* The factors of an update, in float. They are computed in double from the group's
 * hyper-parameters and the number of the step. */
struct kolo_zero_scalars {
	float keep;         /* AdamW, Lion: 1 - lr weight_decay */
	float decay;        /* weight_decay, for optimizers that add it to the gradient or update */
	float beta1, rest1; /* rest1 = 1 - beta1 */
	float beta2, rest2; /* rest2 = 1 - beta2 */
	/* lr. Adam and AdamW: lr / (1 - beta1^step). Adagrad: lr / (1 + (step - 1) lr_decay).
	 * Lamb: lr times the trust ratio */
	float rate;
	float root2; /* sqrt(1 - beta2^step) */
	float bias1; /* 1 - beta1^step */
	float eps;
	float momentum, rest; /* SGD; rest = 1 - dampening */
	int first, nesterov;  /* SGD; first: 1 in the first step, which sets the moment */
};

/* Kinds of work. */
enum kolo_zero_work_kind {
	/* to[i] = from[i] * factor, multiplied in float and rounded once. If a from[i] is not
	 * finite, *bad becomes 1; bad may be NULL. With equal types and factor 1 it is a copy */
	KOLO_ZERO_WORK_CAST,
	/* to[i] += from[i] * factor, with `to` of KOLO_F32; the product and the sum are rounded
	 * once each. If a from[i] is not finite, *bad becomes 1; bad may be NULL */
	KOLO_ZERO_WORK_ADD,
	KOLO_ZERO_WORK_CLEAR, /* to[i] = 0 */
	/* sums[b] = the sum of the squares of from[i] in block b, in double */
	KOLO_ZERO_WORK_SQUARES,
	/* The optimizer's step. Gradients are from[i] * factor. master and moments are updated in
	 * place. If `to` is not NULL, to[i] = master[i]. Lamb: moments are this step's already,
	 * and from is not read */
	KOLO_ZERO_WORK_UPDATE,
	/* Lamb: computes this step's moments. sums[2 b] and sums[2 b + 1] become the sums of the
	 * squares of masters and of updates in block b */
	KOLO_ZERO_WORK_LAMB,
	/* The sum of the squares of from[i] in block b, so that sums of such sums depend on no
	 * order (Demmel and Nguyen 2015). sums[4 b + 3] is its level k: the least one for which the
	 * unit 2^(26 (k + 1) - 300) is more than twice the largest square. sums[4 b] to sums[4 b +
	 * 2] are its digits, whole numbers of the units of k, k - 1 and k - 2. A square gives to
	 * each what remains of it, rounded to a whole number of units, half to even. k is -1000 if
	 * all squares are 0, and 1000 if one is not finite; then the digits are 0. A device that
	 * returns KOLO_EINVAL for it is asked for KOLO_ZERO_WORK_SQUARES instead; then the norm
	 * depends on the blocks */
	KOLO_ZERO_WORK_DIGITS,
};

/* One loop over n elements. All pointers are to the device's memory, except bad and sums. Those
 * are host memory that `pin` was called for; they are complete when the work was waited for. No
 * two areas overlap. */
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
	float *master, *moment[2]; /* NULL for a moment that the optimizer does not have */
};

/* ---- The table ------------------------------------------------------------------------------- */

/* Lanes of a device. Lanes run side by side; the work on one lane is done in order. */
enum kolo_zero_lane {
	KOLO_ZERO_COMPUTE, /* work */
	KOLO_ZERO_DOWN,    /* copies from the device to the host */
	KOLO_ZERO_UP,      /* copies from the host to the device */
	KOLO_ZERO_NLANES,
};

/* What a device reports of itself. */
struct kolo_zero_device_info {
	const char *kind;              /* "arena", "cuda" */
	const char *name;              /* of this device; valid until it is closed */
	size_t budget;                 /* bytes that may be in use in all */
	size_t used, peak;             /* bytes in use, with the model's: now, and the most */
	size_t pinned;                 /* bytes of host memory that are locked, in whole pages */
	uint64_t down_bytes, up_bytes; /* downloaded and uploaded since it was opened */
	uint64_t reserved[4];
};

/* The functions of a device. */
struct kolo_zero_device_ops {
	/* 1: the host uses this memory as its own and does the work; `work` is then never called */
	int on_host;

	/* Reports on the device. Never fails. */
	void (*get)(struct kolo_zero_device *device, struct kolo_zero_device_info *out);

	/* Allocates memory, zeroed, aligned to at least 256 bytes. `what` names it in errors. May
	 * wait for lanes. KOLO_ENOMEM: the text has how many bytes the budget lacks. */
	int (*allocate)(struct kolo_zero_device *device, size_t bytes, const char *what,
			void **out);
	/* Frees memory from allocate, with the same number of bytes. No work on a lane may use
	 * it. */
	void (*release)(struct kolo_zero_device *device, void *memory, size_t bytes);

	/* Locks whole pages of host memory, so that copies are direct. info.pinned counts these
	 * pages. Copies work without it. KOLO_ESYS (the text has the limit), KOLO_ENOMEM. */
	int (*pin)(struct kolo_zero_device *device, void *host, size_t bytes);
	/* Unlocks memory of pin. */
	void (*unpin)(struct kolo_zero_device *device, void *host, size_t bytes);

	/* Puts a copy on the lane DOWN or UP; does not wait for it. *ticket becomes its number on
	 * that lane. The copy comes after all work that is on COMPUTE already. Source and target
	 * must stay until it is done. KOLO_EINVAL (a lane or memory that is not the device's),
	 * KOLO_ENOMEM, KOLO_ESYS. */
	int (*copy)(struct kolo_zero_device *device, enum kolo_zero_lane lane, void *to,
		    const void *from, size_t bytes, uint64_t *ticket);

	/* Puts work on COMPUTE; does not wait for it. *ticket becomes its number there. The work
	 * does not come after copies: the caller waits for those that it needs. KOLO_EINVAL,
	 * KOLO_ESYS. */
	int (*work)(struct kolo_zero_device *device, const struct kolo_zero_work *work,
		    uint64_t *ticket);

	/* Blocks until the item with this ticket, and all items before it on the lane, are done.
	 * Ticket 0 is always done. KOLO_EINVAL (there is no such ticket), KOLO_ESYS. */
	int (*wait)(struct kolo_zero_device *device, enum kolo_zero_lane lane, uint64_t ticket);

	/* Makes a queue for collectives on this memory. An operation comes after all work that is
	 * on COMPUTE when it is called. The caller gives *out to kolo_queue_destroy. Errors:
	 * those of kolo_queue_create, and of the device. */
	int (*queue)(struct kolo_zero_device *device, struct kolo_queue **out);

	/* Frees the device and all memory that was not released. */
	void (*close)(struct kolo_zero_device *device);
};

/* The first member of every device. */
struct kolo_zero_device {
	const struct kolo_zero_device_ops *ops;
};

/* ---- Devices --------------------------------------------------------------------------------- */

/* Opens an arena: `budget` bytes of host memory that stand for a device's, counted in whole
 * pages. Two threads copy, one down and one up, at `bandwidth` bytes per second each; 0: as fast
 * as they can. Released memory traps when it is touched. The caller gives *out to
 * kolo_zero_device_close.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_zero_arena_open(size_t budget, double bandwidth, struct kolo_zero_device **out);

/* Opens the CUDA GPU number `ordinal`, as this process counts. The budget is all of its free
 * memory. The caller gives *out to kolo_zero_device_close.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOTSUP (no CUDA in this build, no driver, no such GPU), KOLO_ENOMEM,
 * KOLO_ESYS. */
int kolo_zero_cuda_open(int ordinal, struct kolo_zero_device **out);

/* Reports kind, name, budget, memory and traffic of a device. Local. Never fails. */
void kolo_zero_device_get(struct kolo_zero_device *device, struct kolo_zero_device_info *out);

/* Allocates device memory for the model itself, zeroed. The budget counts it too. `what` names it
 * in errors. May wait for the device. The caller gives *out to kolo_zero_device_free, with the
 * same number of bytes.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_zero_device_alloc(struct kolo_zero_device *device, size_t bytes, const char *what,
			   void **out);

/* Frees memory from kolo_zero_device_alloc. Nothing may use it any more. NULL is allowed. */
void kolo_zero_device_free(struct kolo_zero_device *device, void *memory, size_t bytes);

/* Copies `bytes` bytes between the host and the device. `lane` is KOLO_ZERO_DOWN (to the host) or
 * KOLO_ZERO_UP (to the device). Blocks until the copy is done.
 *
 * Errors: KOLO_EINVAL, KOLO_ESYS, KOLO_ENOMEM. */
int kolo_zero_device_copy(struct kolo_zero_device *device, enum kolo_zero_lane lane, void *to,
			  const void *from, size_t bytes);

/* Closes a device. Engines on it must be destroyed before. NULL is allowed. */
void kolo_zero_device_close(struct kolo_zero_device *device);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
