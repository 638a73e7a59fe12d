/* A libcuda of threads (gpu.h), as far as ringbench, the programs for NCCL and fake_runtime.c ask
 * for it, and a libkolo_cuda.so beside it: one shared object under both names, so that tools with
 * buffers on GPUs run on any machine. A stream NULL is the default one of the current context. */
#include "tests/cuda/gpu.h"

#include "cuda/driver/driver.h"

#include "comm/base/error.h"

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

enum { INVALID_VALUE = 1, OUT_OF_MEMORY, NO_DEVICE = 101, NO_CONTEXT = 201, NOT_READY = 600 };

struct event {
	struct ko_gpu *gpu;
	void *kolos;        /* the driver's event */
	_Atomic int64_t ns; /* when it was reached; 0: not yet */
	atomic_int holders; /* the program, and streams that will note the time */
};

const struct ko_driver *kolo_cuda_driver(void) EXPORTED;
int cuInit(unsigned flags) EXPORTED;
int cuGetErrorString(int result, const char **out) EXPORTED;
int cuDeviceGetCount(int *out) EXPORTED;
int cuDeviceGet(int *out, int number) EXPORTED;
int cuDeviceGetName(char *out, int len, int device) EXPORTED;
int cuDevicePrimaryCtxRetain(void **context, int device) EXPORTED;
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) EXPORTED;
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
int cuStreamQuery(struct t_stream *stream) EXPORTED;
int cuStreamWaitEvent(struct t_stream *stream, struct event *event, unsigned flags) EXPORTED;
int cuStreamIsCapturing(struct t_stream *stream, int *out) EXPORTED;
int cuStreamGetCaptureInfo(struct t_stream *stream, int *status, unsigned long long *id) EXPORTED;
int cuStreamBeginCapture_v2(struct t_stream *stream, int mode) EXPORTED;
int cuStreamEndCapture(struct t_stream *stream, struct t_graph **out) EXPORTED;
int cuGraphInstantiateWithFlags(struct t_graph **out, struct t_graph *graph,
				unsigned long long flags) EXPORTED;
int cuGraphUpload(struct t_graph *graph, struct t_stream *stream) EXPORTED;
int cuGraphLaunch(struct t_graph *graph, struct t_stream *stream) EXPORTED;
int cuGraphExecDestroy(struct t_graph *graph) EXPORTED;
int cuGraphDestroy(struct t_graph *graph) EXPORTED;
int cuEventCreate(struct event **out, unsigned flags) EXPORTED;
int cuEventDestroy_v2(struct event *event) EXPORTED;
int cuEventRecord(struct event *event, struct t_stream *stream) EXPORTED;
int cuEventQuery(struct event *event) EXPORTED;
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
	*out = result == OUT_OF_MEMORY ? "out of memory" : "fake";
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
	return number < COUNT ? 0 : NO_DEVICE;
}

int cuDeviceGetName(char *out, int len, int device)
{
	snprintf(out, (size_t)len, "threads %d", device);
	return 0;
}

static int contexts[COUNT] = { 0, 1, 2, 3, 4, 5, 6, 7 };

static int device_now(void)
{
	return current ? *current : 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &contexts[device % COUNT];
	return device < COUNT ? 0 : NO_DEVICE;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	*flags = 0;
	*active = device == device_now();
	return 0;
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
	return current ? 0 : NO_CONTEXT;
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

static struct t_stream *stream_of(struct t_stream *stream)
{
	return stream ? stream : t_stream_default(device_now());
}

int cuMemcpyAsync(address to, address from, size_t len, struct t_stream *stream)
{
	t_stream_copy(stream_of(stream), (void *)(size_t)to, (const void *)(size_t)from, len);
	return 0;
}

int cuMemsetD8Async(address to, unsigned char value, size_t len, struct t_stream *stream)
{
	t_stream_set(stream_of(stream), (void *)(size_t)to, value, len);
	return 0;
}

/* ---- Streams and graphs ---------------------------------------------------------------------- */

int cuStreamCreate(struct t_stream **out, unsigned flags)
{
	*out = t_stream_create(device_now());
	return flags == 1 ? 0 : INVALID_VALUE;
}

int cuStreamDestroy_v2(struct t_stream *stream)
{
	t_stream_destroy(stream);
	return 0;
}

int cuStreamSynchronize(struct t_stream *stream)
{
	t_stream_finish(stream_of(stream));
	return 0;
}

int cuStreamQuery(struct t_stream *stream)
{
	return t_stream_is_idle(stream_of(stream)) ? 0 : NOT_READY;
}

int cuStreamIsCapturing(struct t_stream *stream, int *out)
{
	*out = t_stream_capture(stream_of(stream)) != 0;
	return 0;
}

int cuStreamGetCaptureInfo(struct t_stream *stream, int *status, unsigned long long *id)
{
	*id = t_stream_capture(stream_of(stream));
	*status = *id != 0;
	return 0;
}

int cuStreamBeginCapture_v2(struct t_stream *stream, int mode)
{
	(void)mode; /* nothing here breaks a capture */
	if (!stream || t_stream_capture(stream))
		return INVALID_VALUE;
	t_capture_begin(stream);
	return 0;
}

int cuStreamEndCapture(struct t_stream *stream, struct t_graph **out)
{
	if (!stream || !t_stream_capture(stream))
		return INVALID_VALUE;
	*out = t_capture_end(stream);
	return 0;
}

/* A graph is instantiated once here, and is its instance. */
int cuGraphInstantiateWithFlags(struct t_graph **out, struct t_graph *graph,
				unsigned long long flags)
{
	*out = graph;
	return flags ? INVALID_VALUE : 0;
}

int cuGraphUpload(struct t_graph *graph, struct t_stream *stream)
{
	(void)stream;
	return graph ? 0 : INVALID_VALUE;
}

int cuGraphLaunch(struct t_graph *graph, struct t_stream *stream)
{
	t_graph_launch(graph, stream_of(stream));
	return 0;
}

int cuGraphExecDestroy(struct t_graph *graph)
{
	t_graph_destroy(graph);
	return 0;
}

int cuGraphDestroy(struct t_graph *graph)
{
	return graph ? 0 : INVALID_VALUE; /* its instance has it */
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Calls the driver with the event's GPU. */
static int with_gpu(struct event *event,
		    int (*call)(const struct ko_driver *, struct event *, void *), void *arg)
{
	const struct ko_driver *driver = kolo_cuda_driver();
	int rc = driver->enter(event->gpu);

	if (rc == 0) {
		rc = call(driver, event, arg);
		driver->leave(event->gpu);
	}
	return rc == KO_EAGAIN ? NOT_READY : rc < 0 ? INVALID_VALUE : 0;
}

static int make(const struct ko_driver *driver, struct event *event, void *arg)
{
	(void)arg;
	return driver->event_create(event->gpu, &event->kolos);
}

static int destroy(const struct ko_driver *driver, struct event *event, void *arg)
{
	(void)arg;
	driver->event_destroy(event->gpu, event->kolos);
	return 0;
}

static int record(const struct ko_driver *driver, struct event *event, void *stream)
{
	return driver->event_record(event->gpu, event->kolos, stream);
}

static int await(const struct ko_driver *driver, struct event *event, void *stream)
{
	return driver->event_await(event->gpu, stream, event->kolos);
}

static int poll(const struct ko_driver *driver, struct event *event, void *arg)
{
	(void)arg;
	return driver->event_poll(event->gpu, event->kolos);
}

static int finish(const struct ko_driver *driver, struct event *event, void *arg)
{
	(void)arg;
	return driver->event_finish(event->gpu, event->kolos);
}

int cuEventCreate(struct event **out, unsigned flags)
{
	const struct ko_driver *driver = kolo_cuda_driver();
	struct event *event = calloc(1, sizeof(*event));

	(void)flags; /* each can wait and takes the time */
	if (!event)
		return OUT_OF_MEMORY;
	if (driver->open_number(device_now(), &event->gpu) < 0 || with_gpu(event, make, NULL)) {
		free(event);
		return INVALID_VALUE;
	}
	event->holders = 1;
	*out = event;
	return 0;
}

static void let_go(struct event *event)
{
	if (atomic_fetch_sub(&event->holders, 1) == 1)
		free(event);
}

int cuEventDestroy_v2(struct event *event)
{
	with_gpu(event, destroy, NULL);
	kolo_cuda_driver()->close(event->gpu);
	let_go(event);
	return 0;
}

static void note_time(void *arg)
{
	struct event *event = arg;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	event->ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
	let_go(event);
}

int cuEventRecord(struct event *event, struct t_stream *stream)
{
	if (!t_stream_capture(stream_of(stream))) {
		event->ns = 0;
		atomic_fetch_add(&event->holders, 1);
		t_stream_run(stream_of(stream), note_time, event);
	}
	return with_gpu(event, record, stream_of(stream));
}

int cuStreamWaitEvent(struct t_stream *stream, struct event *event, unsigned flags)
{
	return flags ? INVALID_VALUE : with_gpu(event, await, stream_of(stream));
}

int cuEventQuery(struct event *event)
{
	return with_gpu(event, poll, NULL);
}

int cuEventSynchronize(struct event *event)
{
	return with_gpu(event, finish, NULL);
}

int cuEventElapsedTime(float *ms, struct event *begin, struct event *end)
{
	*ms = (float)((double)(end->ns - begin->ns) / 1e6);
	return begin->ns && end->ns ? 0 : NOT_READY;
}
