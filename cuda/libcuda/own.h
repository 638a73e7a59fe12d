/* What the files of libkolo_cuda.so share: libcuda's functions, and a GPU. No other file sees
 * cuda.h. */
#ifndef CUDA_LIBCUDA_OWN_H
#define CUDA_LIBCUDA_OWN_H

#include "cuda/driver/driver.h"
#include "zero/optimizers/list.h"

#include <cuda.h>
#include <cudaTypedefs.h>

/* ---- libcuda (load.c) ------------------------------------------------------------------------ */

/* cuda.h defines these names as newer forms. The members below need the plain names. */
#undef cuStreamGetCaptureInfo
#undef cuStreamBatchMemOp
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuDevicePrimaryCtxRelease
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemGetInfo
#undef cuMemGetAddressRange
#undef cuMemcpyAsync
#undef cuMemsetD8Async
#undef cuIpcOpenMemHandle
#undef cuMemHostRegister
#undef cuMemHostGetDevicePointer
#undef cuEventDestroy
#undef cuStreamDestroy

struct ko_libcuda {
#define F(name, since) PFN_##name##_v##since name;
#include "cuda/libcuda/functions.h"
#undef F
};

/* The first call of ko_cuda_load fills it. Later calls return the same result. KOLO_ENOTSUP,
 * KOLO_ESYS. */
extern struct ko_libcuda ko_libcuda;
int ko_cuda_load(void);

/* Loads kernels that lie in this library as bytes. KOLO_ENOTSUP: they are not for this driver, or
 * not for the GPU of the current context. */
int ko_cuda_load_module(CUmodule *out, const void *code);

/* What the last failure on this thread was. */
const char *ko_cuda_text(void);

/* Makes this text the last failure of the thread, and returns code. */
int ko_cuda_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Turns the result of a call of libcuda into a code. */
int ko_cuda_check(CUresult result, const char *call);
#define CU(name, ...) ko_cuda_check(ko_libcuda.name(__VA_ARGS__), #name)

/* An attribute of the GPU. 0: the GPU lacks it, or the driver does not know it. */
int ko_cuda_attribute(const struct ko_gpu *gpu, CUdevice_attribute what);

/* ---- GPUs (cuda.c) --------------------------------------------------------------------------- */

enum { KO_CUDA_THREADS = 256 }; /* in a block of any kernel */

/* Kernels for work of a training step (zero.c). Types are f32, f16, bf16, in this order. */
enum { KO_CUDA_FLOATS = 3 };
struct ko_cuda_zero {
	CUmodule module; /* NULL: no device of kolo_zero_device.h has asked for it */
	CUfunction cast[KO_CUDA_FLOATS][KO_CUDA_FLOATS]; /* from, to */
	CUfunction add[KO_CUDA_FLOATS], squares[KO_CUDA_FLOATS], digits[KO_CUDA_FLOATS],
		lamb_moments[KO_CUDA_FLOATS];
	CUfunction update[ZERO_NOPTIMIZERS][KO_CUDA_FLOATS]; /* by the gradients' type */
};

/* A GPU: one for each context that is in use. */
struct ko_gpu {
	struct ko_gpu *next;
	int holders;
	CUcontext context;
	CUdevice device;
	bool retained; /* the context is the device's primary one, and must be released */
	CUmodule module;
	/* truth, and combine from KO_BAND on: of integer types */
	CUfunction copy[KO_NTYPES], scale[KO_NTYPES], truth[KO_NTYPES],
		combine[KO_NTYPES][KO_NCOMBINES], note;
	struct ko_cuda_zero zero;
	struct ko_gpu_info info;
	int processors;
	CUstream copies;  /* for `put` and `get` */
	bool descriptors; /* other processes get memory as descriptors */
	bool flushes;     /* a wait can flush what peers and cards have written */
};

static inline CUdeviceptr ko_cuda_address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* ---- Memory (memory.c): each is the entry of struct ko_driver with its name ------------------ */

int ko_cuda_alloc(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out);
int ko_cuda_alloc_own(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out);
int ko_cuda_free_bytes(struct ko_gpu *gpu, size_t *out);
int ko_cuda_export(struct ko_gpu *gpu, const void *at, size_t len, struct ko_gpu_export *out,
		   int *fd);
int ko_cuda_import(struct ko_gpu *gpu, const struct ko_gpu_export *memory, int fd,
		   struct ko_gpu_memory *out);
void ko_cuda_release(struct ko_gpu *gpu, struct ko_gpu_memory *memory);
int ko_cuda_reach(struct ko_gpu *gpu, const void *at, const struct ko_gpu_export *memory);
int ko_cuda_dmabuf(struct ko_gpu *gpu, const struct ko_gpu_memory *memory, int *fd);
int ko_cuda_flush(struct ko_gpu *gpu);
int ko_cuda_pin(struct ko_gpu *gpu, void *host, size_t len, void **out);
void ko_cuda_unpin(struct ko_gpu *gpu, void *host);
int ko_cuda_pointer(struct ko_gpu *gpu, const void *memory, struct kolo_cuda_pointer *out);
int ko_cuda_put(struct ko_gpu *gpu, void *to, const void *from, size_t len);

/* ---- Work of a training step (zero.c) -------------------------------------------------------- */

/* Loads all kernels for work, and launches each once. The GPU is entered. */
int ko_cuda_zero_load(struct ko_gpu *gpu);
void ko_cuda_zero_unload(struct ko_gpu *gpu);

/* The entry `zero` of struct ko_driver. */
int ko_cuda_zero(struct ko_gpu *gpu, void *stream, const struct kolo_zero_work *work);

#endif
