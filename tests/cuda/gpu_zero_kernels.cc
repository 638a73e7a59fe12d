/* See gpu_zero_kernels.h. */
#include "tests/cuda/gpu_zero_kernels.h"
#include "tests/cuda/gpu_host.h"

#include "cuda/libcuda/zero_kernels.cu"

typedef void kernel_fn(const struct kolo_zero_work w);

/* By the type that is read: f32, f16, bf16. */
struct kernels {
	kernel_fn *cast[3], *add, *squares, *digits, *lamb_moments;
};

#define READING(type)                                                                              \
	{                                                                                          \
		{ ko_zero_cast_##type##_f32, ko_zero_cast_##type##_f16,                            \
		  ko_zero_cast_##type##_bf16 },                                                    \
			ko_zero_add_##type, ko_zero_squares_##type, ko_zero_digits_##type,         \
			ko_zero_lamb_moments_##type,                                               \
	}

static const struct kernels all[] = { READING(f32), READING(f16), READING(bf16) };

#define UPDATING(value, name, moments, whole)                                                      \
	{ ko_zero_##name##_f32, ko_zero_##name##_f16, ko_zero_##name##_bf16 },
static kernel_fn *const updates[ZERO_NOPTIMIZERS][3] = { ZERO_OPTIMIZERS(UPDATING) };

static int number_of(enum kolo_type type)
{
	return type == KOLO_F16 ? 1 : type == KOLO_BF16 ? 2 : 0;
}

static kernel_fn *kernel_of(const struct kolo_zero_work *work)
{
	int from = number_of(work->from_type);
	const struct kernels *k = &all[from];

	switch (work->kind) {
	case KOLO_ZERO_WORK_CAST: return k->cast[number_of(work->to_type)];
	case KOLO_ZERO_WORK_ADD: return k->add;
	case KOLO_ZERO_WORK_SQUARES: return k->squares;
	case KOLO_ZERO_WORK_DIGITS: return k->digits;
	case KOLO_ZERO_WORK_LAMB: return k->lamb_moments;
	default: return updates[work->optimizer][from];
	}
}

/* Few threads, so that each goes round several times; blocks of elements have threads of their own.
 */
void t_zero_launch(const struct kolo_zero_work *work)
{
	bool blocks = work->kind == KOLO_ZERO_WORK_SQUARES || work->kind == KOLO_ZERO_WORK_LAMB ||
		      work->kind == KOLO_ZERO_WORK_DIGITS;
	size_t threads = (work->n + KOLO_ZERO_BLOCK - 1) / KOLO_ZERO_BLOCK * KOLO_ZERO_LANES;

	gridDim.x = blocks ? (unsigned)((threads + blockDim.x - 1) / blockDim.x) : 3;
	launch(kernel_of(work), *work);
}
