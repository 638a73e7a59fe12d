/* CUDA's contexts. libcuda is asked which is current, because communicators are also made on
 * threads of our own, and for a factor that is in its memory. */
#include "cuda/nccl/inside.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
	int (*init)(unsigned flags);
	int (*get)(void **context);
	int (*set)(void *context);
	int (*device)(int *device);
	int (*retain)(void **context, int device);
	int (*copy)(unsigned long long to, unsigned long long from, size_t len,
		    cudaStream_t stream);
	int (*captured)(cudaStream_t stream, int *out);
	int (*finish)(cudaStream_t stream);
	int (*runtime)(int *device); /* cudaGetDevice; NULL: the program has no runtime */
	char why[256];               /* what was not found; empty: all was */
} cuda;

static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void *find(void *library, const char *name)
{
	void *function = library ? dlsym(library, name) : NULL;

	if (!function && !*cuda.why)
		snprintf(cuda.why, sizeof(cuda.why), "%s", dlerror());
	return function;
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	*(void **)&cuda.init = find(library, "cuInit");
	*(void **)&cuda.get = find(library, "cuCtxGetCurrent");
	*(void **)&cuda.set = find(library, "cuCtxSetCurrent");
	*(void **)&cuda.device = find(library, "cuCtxGetDevice");
	*(void **)&cuda.retain = find(library, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda.copy = find(library, "cuMemcpyAsync");
	*(void **)&cuda.captured = find(library, "cuStreamIsCapturing");
	*(void **)&cuda.finish = find(library, "cuStreamSynchronize");
	*(void **)&cuda.runtime = dlsym(RTLD_DEFAULT, "cudaGetDevice");
}

static ncclResult_t begin(void)
{
	pthread_once(&loaded, load);
	if (*cuda.why)
		return kn_fail(NULL, ncclUnhandledCudaError, "no CUDA driver: %s", cuda.why);
	return cuda.init(0) == 0 ? ncclSuccess
				 : kn_fail(NULL, ncclUnhandledCudaError, "cuInit failed");
}

ncclResult_t kn_context_of(int device, void **context)
{
	ncclResult_t result = begin();

	if (result == ncclSuccess && cuda.retain(context, device) != 0)
		result = kn_fail(NULL, ncclUnhandledCudaError, "CUDA device %d can't be used",
				 device);
	return result;
}

ncclResult_t kn_context_get(void **context, int *device)
{
	ncclResult_t result = begin();
	int chosen = 0;

	*context = NULL;
	if (result != ncclSuccess)
		return result;
	if (cuda.get(context) == 0 && *context)
		return cuda.device(device) == 0
			       ? ncclSuccess
			       : kn_fail(NULL, ncclUnhandledCudaError, "cuCtxGetDevice failed");
	/* The runtime's functions make a context current when they need one. */
	if (cuda.runtime && cuda.runtime(&chosen) != 0)
		return kn_fail(NULL, ncclUnhandledCudaError, "cudaGetDevice failed");
	*device = chosen;
	return kn_context_of(chosen, context);
}

void *kn_context_use(void *context)
{
	void *before = NULL;

	cuda.get(&before);
	if (context != before)
		cuda.set(context);
	return before;
}

ncclResult_t kn_context_read(void *host, const void *from, size_t len, cudaStream_t stream)
{
	int captured = 0;

	if (cuda.captured(stream, &captured) != 0 || captured)
		return kn_fail(NULL, ncclInvalidUsage,
			       "a factor in device memory is read when the operation is called, so "
			       "the stream must not be captured");
	if (cuda.copy((unsigned long long)(uintptr_t)host, (unsigned long long)(uintptr_t)from, len,
		      stream) != 0 ||
	    cuda.finish(stream) != 0)
		return kn_fail(NULL, ncclUnhandledCudaError,
			       "a factor in device memory, %p, can't be read", from);
	return ncclSuccess;
}
