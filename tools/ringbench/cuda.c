/* Buffers on a GPU, with the functions that libcuda has had since CUDA 4. A CUresult of 0 is
 * success. */
#include "tools/ringbench/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address; /* CUdeviceptr */

static struct {
	int (*init)(unsigned flags);
	int (*error_text)(int result, const char **out);
	int (*device_count)(int *out);
	int (*device_get)(int *out, int number);
	int (*device_name)(char *out, int len, int device);
	int (*retain)(void **context, int device);
	int (*set_current)(void *context);
	int (*alloc)(address *out, size_t len);
	int (*free)(address memory);
	int (*copy)(address to, address from, size_t len, struct CUstream_st *stream);
	int (*set)(address to, unsigned char value, size_t len, struct CUstream_st *stream);
	int (*stream_create)(struct CUstream_st **out, unsigned flags);
	int (*stream_destroy)(struct CUstream_st *stream);
	int (*stream_wait)(struct CUstream_st *stream);
	int (*event_create)(void **out, unsigned flags);
	int (*event_destroy)(void *event);
	int (*event_record)(void *event, struct CUstream_st *stream);
	int (*event_wait)(void *event);
	int (*event_time)(float *ms, void *begin, void *end);
} cu;

static const struct {
	const char *name;
	void **out;
} wanted[] = {
	{ "cuInit", (void **)&cu.init },
	{ "cuGetErrorString", (void **)&cu.error_text },
	{ "cuDeviceGetCount", (void **)&cu.device_count },
	{ "cuDeviceGet", (void **)&cu.device_get },
	{ "cuDeviceGetName", (void **)&cu.device_name },
	{ "cuDevicePrimaryCtxRetain", (void **)&cu.retain },
	{ "cuCtxSetCurrent", (void **)&cu.set_current },
	{ "cuMemAlloc_v2", (void **)&cu.alloc },
	{ "cuMemFree_v2", (void **)&cu.free },
	{ "cuMemcpyAsync", (void **)&cu.copy },
	{ "cuMemsetD8Async", (void **)&cu.set },
	{ "cuStreamCreate", (void **)&cu.stream_create },
	{ "cuStreamDestroy_v2", (void **)&cu.stream_destroy },
	{ "cuStreamSynchronize", (void **)&cu.stream_wait },
	{ "cuEventCreate", (void **)&cu.event_create },
	{ "cuEventDestroy_v2", (void **)&cu.event_destroy },
	{ "cuEventRecord", (void **)&cu.event_record },
	{ "cuEventSynchronize", (void **)&cu.event_wait },
	{ "cuEventElapsedTime", (void **)&cu.event_time },
};

enum { NON_BLOCKING = 1, MOST_BUFFERS = 2 };

struct gpu {
	int number;
	char name[64];
	struct CUstream_st *stream;
	void *begin, *end; /* events */
	address buffers[MOST_BUFFERS];
	int nbuffers;
};

static int must(int result, const char *call)
{
	const char *why = "unknown";

	if (result == 0)
		return 0;
	cu.error_text(result, &why);
	fprintf(stderr, "ringbench: %s: %s (%d)\n", call, why, result);
	return -1;
}

static int load_once(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		fprintf(stderr, "ringbench: --memory cuda: no NVIDIA driver on this machine: %s\n",
			dlerror());
		return -1;
	}
	for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]); k++) {
		*wanted[k].out = dlsym(library, wanted[k].name);
		if (!*wanted[k].out) {
			fprintf(stderr,
				"ringbench: --memory cuda: the NVIDIA driver lacks %s: install a newer one\n",
				wanted[k].name);
			return -1;
		}
	}
	return must(cu.init(0), "cuInit");
}

/* Ranks may be threads. */
static int load(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool done;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!done)
		rc = load_once();
	done = rc == 0;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* The device number of this rank's. -1: the list is wrong. */
static int choose(int rank, const char *devices, int count)
{
	int numbers[64], n = 0;

	if (count == 0) {
		fprintf(stderr, "ringbench: --memory cuda: the NVIDIA driver knows no GPU\n");
		return -1;
	}
	for (const char *at = devices; at; at = *at == ',' ? at + 1 : NULL) {
		char *end;
		long number = strtol(at, &end, 10);

		if (n == 64 || end == at || (*end && *end != ',') || number < 0 ||
		    number >= count) {
			fprintf(stderr,
				"ringbench: --device %s: must be numbers from 0 to %d, separated by commas\n",
				devices, count - 1);
			return -1;
		}
		numbers[n++] = (int)number;
		at = end;
	}
	return n ? numbers[rank % n] : rank % count;
}

struct gpu *gpu_open(int rank, const char *devices)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	void *context;
	int count, device;

	if (gpu && load() == 0 && must(cu.device_count(&count), "cuDeviceGetCount") == 0 &&
	    (gpu->number = choose(rank, devices, count)) >= 0 &&
	    must(cu.device_get(&device, gpu->number), "cuDeviceGet") == 0 &&
	    must(cu.device_name(gpu->name, sizeof(gpu->name), device), "cuDeviceGetName") == 0 &&
	    must(cu.retain(&context, device), "cuDevicePrimaryCtxRetain") == 0 &&
	    must(cu.set_current(context), "cuCtxSetCurrent") == 0 &&
	    must(cu.stream_create(&gpu->stream, NON_BLOCKING), "cuStreamCreate") == 0 &&
	    must(cu.event_create(&gpu->begin, 0), "cuEventCreate") == 0 &&
	    must(cu.event_create(&gpu->end, 0), "cuEventCreate") == 0)
		return gpu;
	gpu_close(gpu);
	return NULL;
}

void gpu_close(struct gpu *gpu)
{
	if (!gpu)
		return;
	for (int k = 0; k < gpu->nbuffers; k++)
		cu.free(gpu->buffers[k]);
	if (gpu->begin)
		cu.event_destroy(gpu->begin);
	if (gpu->end)
		cu.event_destroy(gpu->end);
	if (gpu->stream)
		cu.stream_destroy(gpu->stream);
	free(gpu);
}

const char *gpu_name(const struct gpu *gpu)
{
	return gpu->name;
}

int gpu_number(const struct gpu *gpu)
{
	return gpu->number;
}

struct CUstream_st *gpu_stream(const struct gpu *gpu)
{
	return gpu->stream;
}

static address at(const void *p)
{
	return (address)(size_t)p;
}

/* On the rank's own stream, which waits for no other one, and to its end. */
int gpu_zero(struct gpu *gpu, void *to, size_t len)
{
	return must(cu.set(at(to), 0, len, gpu->stream), "cuMemsetD8Async") < 0 ||
			       must(cu.stream_wait(gpu->stream), "cuStreamSynchronize") < 0
		       ? -1
		       : 0;
}

int gpu_put(struct gpu *gpu, void *to, const void *from, size_t len)
{
	return must(cu.copy(at(to), at(from), len, gpu->stream), "cuMemcpyAsync") < 0 ||
			       must(cu.stream_wait(gpu->stream), "cuStreamSynchronize") < 0
		       ? -1
		       : 0;
}

int gpu_get(struct gpu *gpu, void *to, const void *from, size_t len)
{
	return gpu_put(gpu, to, from, len); /* the driver sees the direction from the addresses */
}

void *gpu_alloc(struct gpu *gpu, size_t len)
{
	address memory;

	if (gpu->nbuffers == MOST_BUFFERS || must(cu.alloc(&memory, len), "cuMemAlloc") < 0)
		return NULL;
	gpu->buffers[gpu->nbuffers++] = memory;
	return gpu_zero(gpu, (void *)(size_t)memory, len) < 0 ? NULL : (void *)(size_t)memory;
}

int gpu_begin(struct gpu *gpu)
{
	return must(cu.event_record(gpu->begin, gpu->stream), "cuEventRecord");
}

int gpu_end(struct gpu *gpu, double *us)
{
	float ms;

	if (must(cu.event_record(gpu->end, gpu->stream), "cuEventRecord") < 0 ||
	    must(cu.event_wait(gpu->end), "cuEventSynchronize") < 0 ||
	    must(cu.event_time(&ms, gpu->begin, gpu->end), "cuEventElapsedTime") < 0)
		return -1;
	*us = (double)ms * 1e3;
	return 0;
}
