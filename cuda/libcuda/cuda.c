/* The driver of NVIDIA's GPUs on libcuda (kolo_cuda_driver): GPUs, recording, events, streams. It
 * is part of libkolo_cuda.so, which is built if nvcc is there. Only the files of that library know
 * CUDA (own.h). */
#include "cuda/libcuda/own.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	KO_AGAIN = 1, /* KO_EAGAIN of comm/base/error.h */
	MAX_DEPTH = 8,
	READERS =
		2 /* blocks that read a flag in host memory themselves: 1 us each, in turn (D20) */
};

/* ---- GPUs ------------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t lock;
	struct ko_gpu *first;
} gpus = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What leave must undo, and the capture modes before enter: a call that makes memory must not go
 * into a graph. */
static _Thread_local struct {
	int depth;
	CUstreamCaptureMode mode[MAX_DEPTH];
} entered;

static int enter(struct ko_gpu *gpu)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int rc;

	if (entered.depth == MAX_DEPTH)
		return ko_cuda_fail(KOLO_ESYS, "GPUs entered %d times on one thread", MAX_DEPTH);
	rc = CU(cuCtxPushCurrent, gpu->context);
	if (rc < 0)
		return rc;
	rc = CU(cuThreadExchangeStreamCaptureMode, &mode);
	if (rc < 0) {
		ko_libcuda.cuCtxPopCurrent(&(CUcontext){ 0 });
		return rc;
	}
	entered.mode[entered.depth++] = mode;
	return 0;
}

static void leave(struct ko_gpu *gpu)
{
	CUstreamCaptureMode mode = entered.mode[--entered.depth];

	(void)gpu;
	ko_libcuda.cuThreadExchangeStreamCaptureMode(&mode);
	ko_libcuda.cuCtxPopCurrent(&(CUcontext){ 0 });
}

static int describe(struct ko_gpu *gpu)
{
	int rc;

	if ((rc = CU(cuCtxGetDevice, &gpu->device)) < 0 ||
	    (rc = CU(cuDeviceGetName, gpu->info.name, sizeof(gpu->info.name), gpu->device)) < 0 ||
	    (rc = CU(cuDeviceGetPCIBusId, gpu->info.bus, sizeof(gpu->info.bus), gpu->device)) < 0)
		return rc;
	gpu->info.ordinal = gpu->device;
	gpu->processors = ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	gpu->flushes = ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
	gpu->descriptors =
		ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
		ko_cuda_attribute(gpu,
				  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	if (!ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR))
		return ko_cuda_fail(
			KOLO_ENOTSUP,
			"GPU %d (%s) can't wait for flags in a stream (memory operations of streams, compute "
			"capability 7.0 and later)",
			gpu->info.ordinal, gpu->info.name);
	return 0;
}

/* kernels.cu, compiled for all GPUs; kernels.S puts it into the library. */
extern const char ko_gpu_kernels[];

static int find_kernel(struct ko_gpu *gpu, CUfunction *out, const char *what, enum kolo_type type)
{
	static const char *const types[KO_NTYPES] = {
		[KOLO_I8] = "i8",           [KOLO_U8] = "u8",           [KOLO_I32] = "i32",
		[KOLO_U32] = "u32",         [KOLO_I64] = "i64",         [KOLO_U64] = "u64",
		[KOLO_F16] = "f16",         [KOLO_BF16] = "bf16",       [KOLO_F32] = "f32",
		[KOLO_F64] = "f64",         [KOLO_F8E4M3] = "f8e4m3",   [KOLO_F8E5M2] = "f8e5m2",
		[KOLO_I16] = "i16",         [KOLO_U16] = "u16",         [KOLO_C64] = "c64",
		[KOLO_C128] = "c128",       [KOLO_I32_I32] = "i32_i32", [KOLO_I64_I32] = "i64_i32",
		[KOLO_F32_I32] = "f32_i32", [KOLO_F64_I32] = "f64_i32",
	};
	char name[40];

	snprintf(name, sizeof(name), "ko_%s_%s", what, types[type]);
	return CU(cuModuleGetFunction, out, gpu->module, name);
}

/* Launches it with nothing to do, so that the driver gets now what it needs for it. */
static int try_kernel(CUfunction kernel, CUstream stream)
{
	struct ko_gpu_job job = { .n = 0 };
	void *params[] = { &job };

	return CU(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static int try_kernels(const struct ko_gpu *gpu)
{
	CUstream stream = gpu->copies;
	const void *nothing = NULL;
	void *params[] = { &nothing, &nothing };
	int rc = CU(cuLaunchKernel, gpu->note, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);

	for (int t = 0; rc == 0 && t < KO_NTYPES; t++) {
		rc = try_kernel(gpu->copy[t], stream);
		if (rc == 0 && gpu->scale[t])
			rc = try_kernel(gpu->scale[t], stream);
		if (rc == 0 && gpu->truth[t])
			rc = try_kernel(gpu->truth[t], stream);
		for (int k = 0; rc == 0 && k < KO_NCOMBINES; k++)
			if (gpu->combine[t][k])
				rc = try_kernel(gpu->combine[t][k], stream);
	}
	return rc < 0 ? rc : CU(cuStreamSynchronize, stream);
}

/* Loads all kernels now. Loading one later may wait for a stream that waits for another rank. */
static int load_kernels(struct ko_gpu *gpu)
{
	static const char *const ways[KO_NCOMBINES] = {
		[KO_SUM] = "sum",
		[KO_PROD] = "prod",
		[KO_MIN] = "min",
		[KO_MAX] = "max",
		[KO_SUM_SCALED] = "sum_scaled",
		[KO_BAND] = "band",
		[KO_BOR] = "bor",
		[KO_BXOR] = "bxor",
		[KO_LAND] = "land",
		[KO_LOR] = "lor",
		[KO_LXOR] = "lxor",
		[KO_MINLOC] = "minloc",
		[KO_MAXLOC] = "maxloc",
	};
	int rc = ko_cuda_load_module(&gpu->module, ko_gpu_kernels);

	if (rc == 0)
		rc = CU(cuModuleGetFunction, &gpu->note, gpu->module, "ko_note");
	for (int t = 0; rc == 0 && t < KO_NTYPES; t++) {
		rc = find_kernel(gpu, &gpu->copy[t], "copy", (enum kolo_type)t);
		if (rc == 0 && ko_type_combines((enum kolo_type)t, KO_SUM_SCALED))
			rc = find_kernel(gpu, &gpu->scale[t], "scale", (enum kolo_type)t);
		if (rc == 0 && ko_type_is_integer((enum kolo_type)t))
			rc = find_kernel(gpu, &gpu->truth[t], "truth", (enum kolo_type)t);
		for (int k = 0; rc == 0 && k < KO_NCOMBINES; k++)
			if (ko_type_combines((enum kolo_type)t, (enum ko_combine)k))
				rc = find_kernel(gpu, &gpu->combine[t][k], ways[k],
						 (enum kolo_type)t);
	}
	return rc < 0 ? rc : try_kernels(gpu);
}

/* Makes a stream of the highest priority. So it is in no hardware queue with a stream that waits
 * for its copies. */
static int make_stream(struct ko_gpu *gpu)
{
	int least, greatest, rc = CU(cuCtxGetStreamPriorityRange, &least, &greatest);

	return rc < 0 ? rc
		      : CU(cuStreamCreateWithPriority, &gpu->copies, CU_STREAM_NON_BLOCKING,
			   greatest);
}

static void free_gpu(struct ko_gpu *gpu)
{
	if (gpu->copies && enter(gpu) == 0) {
		if (gpu->module) {
			ko_cuda_zero_unload(gpu);
			ko_libcuda.cuModuleUnload(gpu->module);
		}
		ko_libcuda.cuStreamDestroy(gpu->copies);
		leave(gpu);
	}
	if (gpu->retained)
		ko_libcuda.cuDevicePrimaryCtxRelease(gpu->device);
	free(gpu);
}

/* With the lock. */
static int make_gpu(CUcontext context, struct ko_gpu **out)
{
	struct ko_gpu *gpu = calloc(1, sizeof(*gpu));
	int rc;

	if (!gpu)
		return ko_cuda_fail(KOLO_ENOMEM, "no memory");
	gpu->context = context;
	if ((rc = enter(gpu)) == 0) {
		if ((rc = describe(gpu)) == 0 && (rc = make_stream(gpu)) == 0)
			rc = load_kernels(gpu);
		leave(gpu);
	}
	if (rc < 0) {
		free_gpu(gpu);
		return rc;
	}
	gpu->next = gpus.first;
	gpus.first = gpu;
	*out = gpu;
	return 0;
}

/* The GPU of this context, one more time. With the lock. */
static int hold_gpu(CUcontext context, struct ko_gpu **out)
{
	int rc = 0;

	for (*out = gpus.first; *out && (*out)->context != context; *out = (*out)->next)
		;
	if (!*out)
		rc = make_gpu(context, out);
	if (rc == 0)
		(*out)->holders++;
	return rc;
}

static int open_gpu(void *stream, struct ko_gpu **out)
{
	CUcontext context = NULL;
	int rc = ko_cuda_load();

	if (rc == 0)
		rc = CU(cuStreamGetCtx, stream, &context);
	if (rc == 0 && !context)
		rc = ko_cuda_fail(KOLO_EINVAL,
				  "the default stream of a thread that has no current context");
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&gpus.lock);
	rc = hold_gpu(context, out);
	pthread_mutex_unlock(&gpus.lock);
	return rc;
}

/* With the lock. */
static void let_go(struct ko_gpu *gpu)
{
	struct ko_gpu **at = &gpus.first;

	if (--gpu->holders > 0)
		return;
	while (*at != gpu)
		at = &(*at)->next;
	*at = gpu->next;
	free_gpu(gpu);
}

static void close_gpu(struct ko_gpu *gpu)
{
	pthread_mutex_lock(&gpus.lock);
	let_go(gpu);
	pthread_mutex_unlock(&gpus.lock);
}

/* With the lock. The context may be retained several times; the GPU keeps one. */
static int hold_primary(CUdevice device, struct ko_gpu **out)
{
	CUcontext context;
	int rc = CU(cuDevicePrimaryCtxRetain, &context, device);

	if (rc < 0)
		return rc;
	rc = hold_gpu(context, out);
	if (rc < 0 || (*out)->retained)
		ko_libcuda.cuDevicePrimaryCtxRelease(device);
	if (rc < 0)
		return rc;
	(*out)->retained = true;
	rc = (*out)->zero.module ? 0 : enter(*out);
	if (rc == 0 && !(*out)->zero.module) {
		rc = ko_cuda_zero_load(*out);
		leave(*out);
	}
	if (rc < 0)
		let_go(*out);
	return rc;
}

static int open_number(int number, struct ko_gpu **out)
{
	CUdevice device = 0;
	int rc = ko_cuda_load(), n = 0;

	if (rc == 0)
		rc = CU(cuDeviceGetCount, &n);
	if (rc == 0 && (number < 0 || number >= n))
		rc = ko_cuda_fail(KOLO_ENOTSUP,
				  "this process has GPUs 0 to %d (CUDA_VISIBLE_DEVICES)", n - 1);
	if (rc == 0)
		rc = CU(cuDeviceGet, &device, number);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&gpus.lock);
	rc = hold_primary(device, out);
	pthread_mutex_unlock(&gpus.lock);
	return rc;
}

static const struct ko_gpu_info *info(const struct ko_gpu *gpu)
{
	return &gpu->info;
}

/* A context has one. */
static bool same(const struct ko_gpu *a, const struct ko_gpu *b)
{
	return a == b;
}

/* ---- Recording ------------------------------------------------------------------------------- */

/* A write has a barrier of the whole system before it, by default. */
static CUstreamBatchMemOpParams memory_operation(const struct ko_gpu *gpu,
						 const struct ko_flag_op *op)
{
	CUstreamBatchMemOpParams p;

	memset(&p, 0, sizeof(p));
	if (op->kind == KO_FLAG_WRITE) {
		p.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		p.writeValue.address = ko_cuda_address(op->flag);
		p.writeValue.value = op->value;
		p.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
		return p;
	}
	p.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	p.waitValue.address = ko_cuda_address(op->flag);
	p.waitValue.value = op->kind == KO_FLAG_SET ? op->value : ~op->value;
	p.waitValue.flags =
		op->kind == KO_FLAG_SET ? CU_STREAM_WAIT_VALUE_AND : CU_STREAM_WAIT_VALUE_NOR;
	if (gpu->flushes)
		p.waitValue.flags |= CU_STREAM_WAIT_VALUE_FLUSH;
	return p;
}

static int flags(struct ko_gpu *gpu, void *stream, const struct ko_flag_op *ops, int n)
{
	CUstreamBatchMemOpParams params[KO_DRIVER_OPS];

	if (n > KO_DRIVER_OPS)
		return ko_cuda_fail(KOLO_ESYS, "%d operations on flags at once: want %d at most", n,
				    KO_DRIVER_OPS);
	for (int k = 0; k < n; k++)
		params[k] = memory_operation(gpu, &ops[k]);
	return CU(cuStreamBatchMemOp, stream, (unsigned)n, params, 0);
}

static CUfunction kernel_of(const struct ko_gpu *gpu, const struct ko_gpu_job *job)
{
	if (job->nins > 1)
		return gpu->combine[job->type][job->how];
	if (!job->scales)
		return gpu->copy[job->type];
	return ko_is_logical(job->how) ? gpu->truth[job->type] : gpu->scale[job->type];
}

/* Notes the job's flag for all blocks, which read the note then. */
static int note(struct ko_gpu *gpu, CUstream stream, struct ko_gpu_job *job)
{
	void *params[] = { (void *)&job->unless, (void *)&job->noted };
	int rc = CU(cuLaunchKernel, gpu->note, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);

	job->unless = job->noted;
	return rc;
}

static int compute(struct ko_gpu *gpu, void *stream, const struct ko_gpu_job *wanted)
{
	struct ko_gpu_job job = *wanted; /* the driver wants it writable */
	CUfunction kernel = kernel_of(gpu, &job);
	void *params[] = { &job };
	size_t blocks = (job.n + KO_CUDA_THREADS - 1) / KO_CUDA_THREADS,
	       most = (size_t)gpu->processors * 8;
	int rc = job.unless && blocks > READERS ? note(gpu, stream, &job) : 0;

	return rc < 0 ? rc
		      : CU(cuLaunchKernel, kernel, (unsigned)(blocks < most ? blocks : most), 1, 1,
			   KO_CUDA_THREADS, 1, 1, 0, stream, params, NULL);
}

static int clear(struct ko_gpu *gpu, void *stream, void *memory, size_t len)
{
	(void)gpu;
	return CU(cuMemsetD8Async, ko_cuda_address(memory), 0, len, stream);
}

static int copy(struct ko_gpu *gpu, void *stream, void *to, const void *from, size_t len)
{
	(void)gpu;
	return CU(cuMemcpyAsync, ko_cuda_address(to), ko_cuda_address(from), len, stream);
}

/* ---- Events, streams ------------------------------------------------------------------------- */

static int event_create(struct ko_gpu *gpu, void **out)
{
	(void)gpu;
	return CU(cuEventCreate, (CUevent *)out, CU_EVENT_DISABLE_TIMING);
}

static void event_destroy(struct ko_gpu *gpu, void *event)
{
	(void)gpu;
	ko_libcuda.cuEventDestroy(event);
}

static int event_record(struct ko_gpu *gpu, void *event, void *stream)
{
	(void)gpu;
	return CU(cuEventRecord, event, stream);
}

static int event_await(struct ko_gpu *gpu, void *stream, void *event)
{
	(void)gpu;
	return CU(cuStreamWaitEvent, stream, event, 0);
}

static int event_poll(struct ko_gpu *gpu, void *event)
{
	CUresult result = ko_libcuda.cuEventQuery(event);

	(void)gpu;
	return result == CUDA_ERROR_NOT_READY ? KO_AGAIN : ko_cuda_check(result, "cuEventQuery");
}

static int event_finish(struct ko_gpu *gpu, void *event)
{
	(void)gpu;
	return CU(cuEventSynchronize, event);
}

static int stream_create(struct ko_gpu *gpu, void **out)
{
	(void)gpu;
	return CU(cuStreamCreate, (CUstream *)out, CU_STREAM_NON_BLOCKING);
}

static void stream_destroy(struct ko_gpu *gpu, void *stream)
{
	(void)gpu;
	ko_libcuda.cuStreamDestroy(stream);
}

static int capture(struct ko_gpu *gpu, void *stream, uint64_t *out)
{
	CUstreamCaptureStatus status;
	cuuint64_t id = 0;
	CUresult result = ko_libcuda.cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL);
	int rc;

	(void)gpu;
	if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		return ko_cuda_fail(
			KOLO_EINVAL,
			"the default stream can't be used while a stream is captured that waits for it "
			"(one made without CU_STREAM_NON_BLOCKING)");
	rc = ko_cuda_check(result, "cuStreamGetCaptureInfo");
	if (rc == 0 && status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return ko_cuda_fail(KOLO_EINVAL, "the capture of the stream is not valid any more");
	*out = rc == 0 && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
	return rc;
}

static int finish(struct ko_gpu *gpu, void *stream)
{
	(void)gpu;
	return CU(cuStreamSynchronize, stream);
}

/* ---- The table ------------------------------------------------------------------------------- */

__attribute__((visibility("default"))) ko_driver_fn kolo_cuda_driver;

const struct ko_driver *kolo_cuda_driver(void)
{
	static const struct ko_driver driver = {
		.version = KO_DRIVER_VERSION,
		.text = ko_cuda_text,
		.open = open_gpu,
		.open_number = open_number,
		.close = close_gpu,
		.info = info,
		.same = same,
		.enter = enter,
		.leave = leave,
		.free_bytes = ko_cuda_free_bytes,
		.alloc = ko_cuda_alloc,
		.alloc_own = ko_cuda_alloc_own,
		.export = ko_cuda_export,
		.import = ko_cuda_import,
		.release = ko_cuda_release,
		.reach = ko_cuda_reach,
		.dmabuf = ko_cuda_dmabuf,
		.flush = ko_cuda_flush,
		.pin = ko_cuda_pin,
		.unpin = ko_cuda_unpin,
		.pointer = ko_cuda_pointer,
		.flags = flags,
		.compute = compute,
		.zero = ko_cuda_zero,
		.clear = clear,
		.copy = copy,
		.event_create = event_create,
		.event_destroy = event_destroy,
		.event_record = event_record,
		.event_await = event_await,
		.event_poll = event_poll,
		.event_finish = event_finish,
		.stream_create = stream_create,
		.stream_destroy = stream_destroy,
		.capture = capture,
		.finish = finish,
		.put = ko_cuda_put,
		.get = ko_cuda_put, /* the addresses say from where and to where */
	};

	return &driver;
}
