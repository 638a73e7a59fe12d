/* A libcuda of threads (gpu.h), as far as ringbench asks for it, and a libkolo_cuda.so beside it:
 * one shared object under both names, so that tools with buffers on GPUs run on any machine. */
#include "tests/cuda/gpu.h"

#include "cuda/driver/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long address;

#define EXPORTED __attribute__((visibility("default")))

enum { COUNT = 8 };

static _Thread_local int *current; /* the context; it has the number of its device */

struct event {
	_Atomic int64_t ns; /* 0: not reached */
	struct t_stream *stream;
};

const struct ko_driver *kolo_cuda_driver(void) EXPORTED;
int cuInit(unsigned flags) EXPORTED;
int cuGetErrorString(int result, const char **out) EXPORTED;
int cuDeviceGetCount(int *out) EXPORTED;
int cuDeviceGet(int *out, int number) EXPORTED;
int cuDeviceGetName(char *out, int len, int device) EXPORTED;
int cuDevicePrimaryCtxRetain(void **context, int device) EXPORTED;
int cuCtxSetCurrent(void *context) EXPORTED;
int cuCtxGetCurrent(void **context) EXPORTED;
int cuCtxGetDevice(int *device) EXPORTED;
int cuMemAlloc_v2(address *out, size_t len) EXPORTED;
int cuMemFree_v2(address memory) EXPORTED;
int cuMemcpyAsync(address to, address from, size_t len, struct t_stream *stream) EXPORTED;
int cuMemsetD8Async(address to, unsigned char value, size_t len, struct t_stream *stream) EXPORTED;
int cuStreamCreate(struct t_stream **out, unsigned flags) EXPORTED;
int cuStreamDestroy_v2(struct t_stream *stream) EXPORTED;
int cuStreamSynchronize(struct t_stream *stream) EXPORTED;
int cuEventCreate(struct event **out, unsigned flags) EXPORTED;
int cuEventDestroy_v2(struct event *event) EXPORTED;
int cuEventRecord(struct event *event, struct t_stream *stream) EXPORTED;
int cuEventSynchronize(struct event *event) EXPORTED;
int cuEventElapsedTime(float *ms, struct event *begin, struct event *end) EXPORTED;

const struct ko_driver *kolo_cuda_driver(void)
{
	const struct ko_driver *driver;

	t_gpu_use();
	return ko_driver_get(&driver) == 0 ? driver : NULL;
}

int cuInit(unsigned flags)
{
	return (int)flags;
}

int cuGetErrorString(int result, const char **out)
{
	*out = result == 2 ? "out of memory" : "fake";
	return 0;
}

int cuDeviceGetCount(int *out)
{
	*out = COUNT;
	return 0;
}

int cuDeviceGet(int *out, int number)
{
	*out = number;
	return number < COUNT ? 0 : 101;
}

int cuDeviceGetName(char *out, int len, int device)
{
	snprintf(out, (size_t)len, "threads %d", device);
	return 0;
}

static int contexts[COUNT] = { 0, 1, 2, 3, 4, 5, 6, 7 };

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &contexts[device % COUNT];
	return device < COUNT ? 0 : 101;
}

int cuCtxSetCurrent(void *context)
{
	current = context;
	t_device_choose(context ? *(int *)context : 0);
	return 0;
}

int cuCtxGetCurrent(void **context)
{
	*context = current;
	return 0;
}

int cuCtxGetDevice(int *device)
{
	*device = current ? *current : 0;
	return current ? 0 : 201;
}

int cuMemAlloc_v2(address *out, size_t len)
{
	*out = (address)(size_t)t_gpu_alloc(len);
	return 0;
}

int cuMemFree_v2(address memory)
{
	t_gpu_free((void *)(size_t)memory);
	return 0;
}

/* Bytes that a stream sets: to those at `from`, or, where that is NULL, to a value. */
struct bytes {
	void *to;
	const void *from;
	int value;
	size_t len;
};

static void set_bytes(void *arg)
{
	struct bytes *b = arg;

	if (b->from)
		memcpy(b->to, b->from, b->len);
	else
		memset(b->to, b->value, b->len);
	free(b);
}

static int give_bytes(struct t_stream *stream, struct bytes wanted)
{
	struct bytes *b = malloc(sizeof(*b));

	if (!b)
		return 2;
	*b = wanted;
	t_stream_run(stream, set_bytes, b);
	return 0;
}

int cuMemcpyAsync(address to, address from, size_t len, struct t_stream *stream)
{
	return give_bytes(stream,
			  (struct bytes){ (void *)(size_t)to, (const void *)(size_t)from, 0, len });
}

int cuMemsetD8Async(address to, unsigned char value, size_t len, struct t_stream *stream)
{
	return give_bytes(stream, (struct bytes){ (void *)(size_t)to, NULL, value, len });
}

int cuStreamCreate(struct t_stream **out, unsigned flags)
{
	*out = t_stream_create(current ? *current : 0);
	return flags == 1 ? 0 : 1;
}

int cuStreamDestroy_v2(struct t_stream *stream)
{
	t_stream_destroy(stream);
	return 0;
}

int cuStreamSynchronize(struct t_stream *stream)
{
	t_stream_finish(stream);
	return 0;
}

int cuEventCreate(struct event **out, unsigned flags)
{
	*out = calloc(1, sizeof(**out));
	return *out ? (int)flags : 2;
}

int cuEventDestroy_v2(struct event *event)
{
	free(event);
	return 0;
}

static void reach(void *arg)
{
	struct event *event = arg;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	event->ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int cuEventRecord(struct event *event, struct t_stream *stream)
{
	event->ns = 0;
	event->stream = stream;
	t_stream_run(stream, reach, event);
	return 0;
}

int cuEventSynchronize(struct event *event)
{
	t_stream_finish(event->stream);
	return 0;
}

int cuEventElapsedTime(float *ms, struct event *begin, struct event *end)
{
	*ms = (float)((double)(end->ns - begin->ns) / 1e6);
	return begin->ns && end->ns ? 0 : 600;
}
