/* Launching work of a training step on a GPU (ko_cuda_zero): which kernel, on how many threads. */
#include "cuda/libcuda/own.h"

#include <limits.h>
#include <stdio.h>

enum { TOGETHER = 4 }; /* elements of a thread, as in zero_kernels.cu */

/* zero_kernels.cu, compiled for all GPUs; kernels.S puts it into the library. */
extern const char ko_gpu_zero_kernels[];

static const char *const types[KO_CUDA_FLOATS] = { "f32", "f16", "bf16" };

#define NAME(value, name, moments, whole) [value] = #name,
static const char *const optimizers[] = { ZERO_OPTIMIZERS(NAME) };
#undef NAME

/* Finds the kernel ko_zero_WHAT_FROM or ko_zero_WHAT_FROM_TO, and launches it with nothing to do.
 * So the driver gets now what it needs for it. */
static int find(struct ko_gpu *gpu, CUstream stream, CUfunction *out, const char *what, int from,
		int to)
{
	struct kolo_zero_work nothing = { .n = 0 };
	void *params[] = { &nothing };
	char name[64];
	int rc;

	snprintf(name, sizeof(name), "ko_zero_%s_%s%s%s", what, types[from], to < 0 ? "" : "_",
		 to < 0 ? "" : types[to]);
	rc = CU(cuModuleGetFunction, out, gpu->zero.module, name);
	return rc < 0 ? rc
		      : CU(cuLaunchKernel, *out, 1, 1, 1, KO_CUDA_THREADS, 1, 1, 0, stream, params,
			   NULL);
}

/* Those that read this type. */
static int find_kernels(struct ko_gpu *gpu, CUstream stream, int from)
{
	struct ko_cuda_zero *z = &gpu->zero;
	int rc;

	if ((rc = find(gpu, stream, &z->add[from], "add", from, -1)) < 0 ||
	    (rc = find(gpu, stream, &z->squares[from], "squares", from, -1)) < 0 ||
	    (rc = find(gpu, stream, &z->digits[from], "digits", from, -1)) < 0 ||
	    (rc = find(gpu, stream, &z->lamb_moments[from], "lamb_moments", from, -1)) < 0)
		return rc;
	for (int to = 0; rc == 0 && to < KO_CUDA_FLOATS; to++)
		rc = find(gpu, stream, &z->cast[from][to], "cast", from, to);
	for (int o = 0; rc == 0 && o < ZERO_NOPTIMIZERS; o++)
		rc = find(gpu, stream, &z->update[o][from], optimizers[o], from, -1);
	return rc;
}

int ko_cuda_zero_load(struct ko_gpu *gpu)
{
	CUstream stream;
	int rc = CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);

	if (rc < 0)
		return rc;
	rc = ko_cuda_load_module(&gpu->zero.module, ko_gpu_zero_kernels);
	for (int from = 0; rc == 0 && from < KO_CUDA_FLOATS; from++)
		rc = find_kernels(gpu, stream, from);
	if (rc == 0)
		rc = CU(cuStreamSynchronize, stream);
	ko_libcuda.cuStreamDestroy(stream);
	if (rc < 0)
		ko_cuda_zero_unload(gpu);
	return rc;
}

void ko_cuda_zero_unload(struct ko_gpu *gpu)
{
	if (gpu->zero.module)
		ko_libcuda.cuModuleUnload(gpu->zero.module);
	gpu->zero.module = NULL;
}

static int number_of(enum kolo_type type)
{
	return type == KOLO_F16 ? 1 : type == KOLO_BF16 ? 2 : 0;
}

static CUfunction kernel_of(const struct ko_cuda_zero *z, const struct kolo_zero_work *work)
{
	int from = number_of(work->from_type);

	switch (work->kind) {
	case KOLO_ZERO_WORK_CAST: return z->cast[from][number_of(work->to_type)];
	case KOLO_ZERO_WORK_ADD: return z->add[from];
	case KOLO_ZERO_WORK_SQUARES: return z->squares[from];
	case KOLO_ZERO_WORK_DIGITS: return z->digits[from];
	case KOLO_ZERO_WORK_LAMB: return z->lamb_moments[from];
	default: return z->update[work->optimizer][from];
	}
}

static size_t threads_of(const struct kolo_zero_work *work)
{
	if (work->kind == KOLO_ZERO_WORK_SQUARES || work->kind == KOLO_ZERO_WORK_LAMB ||
	    work->kind == KOLO_ZERO_WORK_DIGITS)
		return (work->n + KOLO_ZERO_BLOCK - 1) / KOLO_ZERO_BLOCK * KOLO_ZERO_LANES;
	return (work->n + TOGETHER - 1) / TOGETHER;
}

/* Starts as many threads as there is work, instead of fewer that loop. So a GPU is busy to the end,
 * however many threads fit on it. */
int ko_cuda_zero(struct ko_gpu *gpu, void *stream, const struct kolo_zero_work *work)
{
	struct kolo_zero_work copy = *work;
	size_t blocks = (threads_of(work) + KO_CUDA_THREADS - 1) / KO_CUDA_THREADS;
	void *params[] = { &copy };

	return CU(cuLaunchKernel, kernel_of(&gpu->zero, work),
		  (unsigned)(blocks < INT_MAX ? blocks : INT_MAX), 1, 1, KO_CUDA_THREADS, 1, 1, 0,
		  stream, params, NULL);
}
