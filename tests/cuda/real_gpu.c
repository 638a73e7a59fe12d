/* See gpu.h: on CUDA's driver, for make check-cuda. A rank has the primary context of its device,
 * on the thread that made its stream, until the process ends. What it can't do it ends the process
 * for: the test wants it. */
#include "tests/cuda/gpu.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct t_stream {
	CUstream stream;
};

/* Of a thread, for copies: made with its stream, before Kolo has any. */
static _Thread_local CUstream copies;

struct t_graph {
	CUgraphExec exec;
};

static void must(CUresult result, const char *call)
{
	const char *why = "unknown";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorString(result, &why);
	fprintf(stderr, "# %s: %s\n", call, why);
	_Exit(1);
}
#define MUST(call) must(call, #call)

void t_gpu_use(void)
{
}

struct t_stream *t_stream_create(int device)
{
	struct t_stream *s = calloc(1, sizeof(*s));
	CUcontext context;
	CUdevice which;
	int n;

	if (!s)
		abort();
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&n));
	MUST(cuDeviceGet(&which, device % n));
	MUST(cuDevicePrimaryCtxRetain(&context, which));
	MUST(cuCtxSetCurrent(context));
	MUST(cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
	if (!copies)
		MUST(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
	return s;
}

struct CUstream_st *t_stream_handle(struct t_stream *s)
{
	return s->stream;
}

void t_stream_destroy(struct t_stream *s)
{
	MUST(cuStreamSynchronize(s->stream));
	MUST(cuStreamDestroy(s->stream));
	free(s);
}

/* Host memory that is registered: unlike managed memory it stays where it is, and other processes
 * can read it. Its length, which t_gpu_free needs, is in the page before it. */
void *t_gpu_alloc(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), all = page + (len + page - 1) / page * page;
	char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr at;

	if (memory == MAP_FAILED)
		abort();
	*(size_t *)memory = all;
	MUST(cuMemHostRegister(memory + page, all - page,
			       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer(&at, memory + page, 0));
	if (at != (CUdeviceptr)(memory + page)) {
		fprintf(stderr, "# this GPU sees registered memory elsewhere than the host\n");
		_Exit(1);
	}
	return memory + page;
}

void t_gpu_free(void *memory)
{
	char *first = (char *)memory - sysconf(_SC_PAGESIZE);

	MUST(cuMemHostUnregister(memory));
	munmap(first, *(size_t *)first);
}

void *t_device_alloc(size_t len)
{
	CUdeviceptr at;

	MUST(cuMemAlloc(&at, len));
	return (void *)(uintptr_t)at;
}

void t_device_free(void *memory)
{
	MUST(cuMemFree((CUdeviceptr)(uintptr_t)memory));
}

void t_stream_run(struct t_stream *s, void (*fn)(void *arg), void *arg)
{
	MUST(cuLaunchHostFunc(s->stream, fn, arg));
}

static CUdeviceptr address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

void t_stream_copy(struct t_stream *s, void *to, const void *from, size_t len)
{
	MUST(cuMemcpyAsync(address(to), address(from), len, s->stream));
}

void t_gpu_copy(void *to, const void *from, size_t len)
{
	MUST(cuMemcpyAsync(address(to), address(from), len, copies));
	MUST(cuStreamSynchronize(copies));
}

void t_stream_finish(struct t_stream *s)
{
	MUST(cuStreamSynchronize(s->stream));
}

void t_capture_begin(struct t_stream *s)
{
	MUST(cuStreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

/* While the thread captures another stream, too, which CUDA allows in the relaxed mode only. */
struct t_graph *t_capture_end(struct t_stream *s)
{
	struct t_graph *g = calloc(1, sizeof(*g));
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph graph;

	if (!g)
		abort();
	MUST(cuStreamEndCapture(s->stream, &graph));
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	MUST(cuGraphInstantiate(&g->exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphUpload(g->exec, s->stream));
	MUST(cuStreamSynchronize(s->stream));
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	return g;
}

void t_graph_launch(struct t_graph *g, struct t_stream *s)
{
	MUST(cuGraphLaunch(g->exec, s->stream));
}

void t_graph_destroy(struct t_graph *g)
{
	MUST(cuGraphExecDestroy(g->exec));
	free(g);
}
