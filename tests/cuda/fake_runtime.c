/* libcudart.so.13 for torch on GPUs made of threads (fake_cuda.c), as far as tensors, streams,
 * events and graphs need it. It has no kernels: a launch fails with cudaErrorNotSupported, so
 * tensors come from the CPU and are looked at there. Compiled with NVIDIA's header
 * (tests/lib/torch_gpus.py).
 *
 * All other functions of NVIDIA's library are in T_ABSENT, a file of ABSENT(name): whoever calls
 * one ends the process. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 8, NOT_READY = 600 };

typedef unsigned long long address;

int cuDeviceGetCount(int *out);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(address *out, size_t len);
int cuMemFree_v2(address memory);
int cuMemcpyAsync(address to, address from, size_t len, cudaStream_t stream);
int cuMemsetD8Async(address to, unsigned char value, size_t len, cudaStream_t stream);
int cuStreamCreate(cudaStream_t *out, unsigned flags);
int cuStreamDestroy_v2(cudaStream_t stream);
int cuStreamSynchronize(cudaStream_t stream);
int cuStreamQuery(cudaStream_t stream);
int cuStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
int cuStreamGetCaptureInfo(cudaStream_t stream, int *status, unsigned long long *id);
int cuStreamBeginCapture_v2(cudaStream_t stream, int mode);
int cuStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
int cuGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags);
int cuGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
int cuGraphExecDestroy(cudaGraphExec_t graph);
int cuGraphDestroy(cudaGraph_t graph);
int cuEventCreate(cudaEvent_t *out, unsigned flags);
int cuEventDestroy_v2(cudaEvent_t event);
int cuEventRecord(cudaEvent_t event, cudaStream_t stream);
int cuEventQuery(cudaEvent_t event);
int cuEventSynchronize(cudaEvent_t event);
int cuEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);

/* ---- Results --------------------------------------------------------------------------------- */

static _Thread_local cudaError_t last;

static cudaError_t give(cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last = error;
	return error;
}

/* The numbers of the driver's errors are the runtime's. */
static cudaError_t result(int of_driver)
{
	return give((cudaError_t)of_driver);
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last;

	last = cudaSuccess;
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error == cudaSuccess ? "cudaSuccess" : "an error of the runtime made of threads";
}

const char *cudaGetErrorString(cudaError_t error)
{
	static _Thread_local char text[64];

	snprintf(text, sizeof(text), "error %d of the runtime made of threads", (int)error);
	return text;
}

/* ---- Devices --------------------------------------------------------------------------------- */

static _Thread_local int device;

/* The driver's calls of this thread work on the device. */
static void enter(void)
{
	void *context;

	if (cuDevicePrimaryCtxRetain(&context, device) == 0)
		cuCtxSetCurrent(context);
}

cudaError_t cudaGetDeviceCount(int *out)
{
	return result(cuDeviceGetCount(out));
}

cudaError_t cudaSetDevice(int number)
{
	if (number < 0 || number >= MAX_DEVICES)
		return give(cudaErrorInvalidDevice);
	device = number;
	enter();
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *out)
{
	*out = device;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int number)
{
	if (number < 0 || number >= MAX_DEVICES)
		return give(cudaErrorInvalidDevice);
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "threads %d", number);
	out->major = 9;
	out->totalGlobalMem = 1 << 30;
	out->multiProcessorCount = 1;
	out->warpSize = 32;
	out->maxThreadsPerBlock = out->maxThreadsPerMultiProcessor = 1024;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int number)
{
	(void)number;
	*out = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int a, int b)
{
	*out = a != b;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	enter();
	return result(cuStreamSynchronize(NULL));
}

cudaError_t cudaDriverGetVersion(int *out)
{
	*out = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
	*out = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
					     unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *found)
{
	(void)name, (void)version, (void)flags;
	*out = NULL;
	if (found)
		*found = cudaDriverEntryPointSymbolNotFound;
	return cudaSuccess;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* What is not here is pageable. */
static struct memory {
	char *at;
	size_t len;
	int device; /* -1: the host's */
	struct memory *next;
} * memories;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(void *at, size_t len, int where)
{
	struct memory *m = malloc(sizeof(*m));

	if (!m)
		abort();
	*m = (struct memory){ at, len, where, NULL };
	pthread_mutex_lock(&memory_lock);
	m->next = memories;
	memories = m;
	pthread_mutex_unlock(&memory_lock);
}

static void forget(const void *at)
{
	struct memory **where = &memories, *m;

	pthread_mutex_lock(&memory_lock);
	while (*where && (*where)->at != at)
		where = &(*where)->next;
	m = *where;
	if (m)
		*where = m->next;
	pthread_mutex_unlock(&memory_lock);
	free(m);
}

/* The one that has this byte. */
static bool find(const void *at, struct memory *out)
{
	struct memory *m;

	pthread_mutex_lock(&memory_lock);
	m = memories;
	while (m && ((const char *)at < m->at || (const char *)at >= m->at + m->len))
		m = m->next;
	if (m)
		*out = *m;
	pthread_mutex_unlock(&memory_lock);
	return m;
}

cudaError_t cudaMalloc(void **out, size_t len)
{
	address memory;
	cudaError_t error;

	enter();
	error = result(cuMemAlloc_v2(&memory, len));
	if (error != cudaSuccess)
		return error;
	*out = (void *)(size_t)memory;
	note(*out, len, device);
	return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
	if (!memory)
		return cudaSuccess;
	forget(memory);
	return result(cuMemFree_v2((address)(size_t)memory));
}

cudaError_t cudaHostAlloc(void **out, size_t len, unsigned flags)
{
	address memory;
	cudaError_t error;

	(void)flags;
	enter();
	error = result(cuMemAlloc_v2(&memory, len));
	if (error != cudaSuccess)
		return error;
	*out = (void *)(size_t)memory;
	note(*out, len, -1);
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
	return cudaFree(memory);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
	*left = *total = 1 << 30;
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *at)
{
	struct memory m;

	memset(out, 0, sizeof(*out));
	out->type = cudaMemoryTypeUnregistered;
	out->device = -1;
	if (!find(at, &m))
		return cudaSuccess;
	out->type = m.device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
	out->device = m.device;
	out->devicePointer = (void *)(size_t)at;
	out->hostPointer = m.device < 0 ? (void *)(size_t)at : NULL;
	return cudaSuccess;
}

/* A copy of pageable memory is over when the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t len, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	struct memory m;
	bool waits = !find(to, &m) || !find(from, &m);
	cudaError_t error;

	(void)kind;
	enter();
	error = result(cuMemcpyAsync((address)(size_t)to, (address)(size_t)from, len, stream));
	return error == cudaSuccess && waits ? result(cuStreamSynchronize(stream)) : error;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t len, enum cudaMemcpyKind kind)
{
	cudaError_t error = cudaMemcpyAsync(to, from, len, kind, NULL);

	return error == cudaSuccess ? result(cuStreamSynchronize(NULL)) : error;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t len, cudaStream_t stream)
{
	enter();
	return result(cuMemsetD8Async((address)(size_t)at, (unsigned char)value, len, stream));
}

/* ---- Streams and events ---------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
	(void)priority;
	enter();
	return result(cuStreamCreate(out, flags));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	return result(cuStreamDestroy_v2(stream));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *out)
{
	(void)stream;
	*out = 0;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	enter();
	return result(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	enter();
	return result(cuStreamQuery(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	enter();
	return result(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *out,
				     unsigned long long *id, cudaGraph_t *graph,
				     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
				     size_t *n)
{
	unsigned long long number;
	cudaError_t error;
	int status;

	(void)graph, (void)nodes, (void)edges, (void)n;
	enter();
	error = result(cuStreamGetCaptureInfo(stream, &status, &number));
	*out = status ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	if (id)
		*id = number;
	return error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
	return cudaStreamGetCaptureInfo(stream, out, NULL, NULL, NULL, NULL, NULL);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	enter();
	return result(cuStreamBeginCapture_v2(stream, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
	enter();
	return result(cuStreamEndCapture(stream, out));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	/* No graph allocates, and all streams have one priority. */
	const unsigned long long meaningless =
		cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;

	return result(cuGraphInstantiateWithFlags(out, graph, flags & ~meaningless));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
					  unsigned long long flags)
{
	return cudaGraphInstantiate(out, graph, flags);
}

/* What a graph keeps is kept for ever. */
cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *kept, cudaHostFn_t destroy,
				 unsigned references, unsigned flags)
{
	(void)destroy, (void)references, (void)flags;
	*out = kept;
	return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t kept, unsigned n,
				      unsigned flags)
{
	(void)graph, (void)kept, (void)n, (void)flags;
	return cudaSuccess;
}

/* None is empty. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
	if (!graph || nodes)
		return give(cudaErrorNotSupported);
	*n = 1;
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
	enter();
	return result(cuGraphLaunch(graph, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
	return result(cuGraphExecDestroy(graph));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	return result(cuGraphDestroy(graph));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	*mode = cudaStreamCaptureModeGlobal;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	enter();
	return result(cuEventCreate(out, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
	return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return result(cuEventDestroy_v2(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	enter();
	return result(cuEventRecord(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
	(void)flags;
	return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return result(cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return result(cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
	return result(cuEventElapsedTime(ms, begin, end));
}

/* ---- Kernels, which are not there ------------------------------------------------------------ */

void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	(void)binary;
	return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

void __cudaRegisterFunction(void **handle, const char *function, char *name,
			    const char *device_name, int limit, uint3 *tid, uint3 *bid, dim3 *block,
			    dim3 *grid, int *size)
{
	(void)handle, (void)function, (void)name, (void)device_name, (void)limit;
	(void)tid, (void)bid, (void)block, (void)grid, (void)size;
}

void __cudaRegisterVar(void **handle, char *var, char *address, const char *name, int external,
		       size_t size, int constant, int global)
{
	(void)handle, (void)var, (void)address, (void)name, (void)external;
	(void)size, (void)constant, (void)global;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	(void)grid, (void)block, (void)shared, (void)stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	(void)grid, (void)block, (void)shared, (void)stream;
	return give(cudaErrorNotSupported);
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function)
{
	(void)out, (void)function;
	return give(cudaErrorNotSupported);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
			       size_t shared, cudaStream_t stream)
{
	(void)kernel, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
	return give(cudaErrorNotSupported);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
			     size_t shared, cudaStream_t stream)
{
	(void)function, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
	return give(cudaErrorNotSupported);
}

/* ---- What is not here ------------------------------------------------------------------------ */

#define ABSENT(name)                                                                               \
	__attribute__((noreturn)) void absent_##name(void) __asm__(#name);                         \
	void absent_##name(void)                                                                   \
	{                                                                                          \
		fputs("the runtime made of threads has no " #name "\n", stderr);                   \
		abort();                                                                           \
	}
#include T_ABSENT
