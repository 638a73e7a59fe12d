/* What an operation on streams is made of, one by one: kernels of the lengths that moves have, on
 * memory of the program and on memory that Kolo shares; the hop from stream to stream by an event;
 * what recording takes on the host. Uses the driver that libkolo_cuda.so has, without Kolo around
 * it. gpu_moves [FILE]: one JSON object for each line into FILE too. */
#include "perf/perf.h"

#include "cuda/driver/driver.h"

#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 9, TOGETHER = 20, HOPS = 200 };

ko_driver_fn kolo_cuda_driver;
static const struct ko_driver *d;
static struct ko_gpu *gpu;
static FILE *json;

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	printf("gpu_moves: %s: %s\n", what, d->text());
	exit(1);
}

static void must_cuda(CUresult rc, const char *what)
{
	const char *why = "unknown";

	if (rc == CUDA_SUCCESS)
		return;
	cuGetErrorString(rc, &why);
	printf("gpu_moves: %s: %s\n", what, why);
	exit(1);
}
#define MUST(call) must(call, #call)
#define CUDA(call) must_cuda(call, #call)

static void tell(const char *what, size_t bytes, double us, double moved)
{
	printf("%-44s %10zu B %9.2f us", what, bytes, us);
	if (moved > 0)
		printf(" %8.1f GB/s", moved / us / 1e3);
	printf("\n");
	fflush(stdout);
	if (json)
		fprintf(json, "{\"what\": \"%s\", \"bytes\": %zu, \"us\": %.3f, \"moved\": %.0f}\n",
			what, bytes, us, moved);
}

static CUstream make_stream(void)
{
	CUstream s;

	CUDA(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static CUevent make_event(void)
{
	CUevent e;

	CUDA(cuEventCreate(&e, CU_EVENT_DEFAULT));
	return e;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* Microseconds of one of several kernels that follow each other. */
static double time_kernel(CUstream stream, const struct ko_gpu_job *job)
{
	static CUevent begin, end;
	double us[REPEATS];

	if (!begin) {
		begin = make_event();
		end = make_event();
	}
	for (int k = -2; k < REPEATS; k++) {
		float ms;

		CUDA(cuEventRecord(begin, stream));
		for (int i = 0; i < TOGETHER; i++)
			MUST(d->compute(gpu, stream, job));
		CUDA(cuEventRecord(end, stream));
		CUDA(cuEventSynchronize(end));
		CUDA(cuEventElapsedTime(&ms, begin, end));
		if (k >= 0)
			us[k] = ms * 1e3 / TOGETHER;
	}
	return perf_median(us, REPEATS);
}

static void kernels(CUstream stream)
{
	static const size_t lengths[] = { 8192, 131072, 2 << 20, 16 << 20, 64 << 20 };
	static const struct {
		const char *what;
		enum kolo_type type;
		int nins, nouts;
		bool shared; /* the second of either */
	} cases[] = {
		{ "copy, f32", KOLO_F32, 1, 1, false },
		{ "copy into shared memory, f32", KOLO_F32, 1, 1, true },
		{ "sum of two, f32", KOLO_F32, 2, 1, true },
		{ "sum of two to two, f32", KOLO_F32, 2, 2, true },
		{ "sum of two to two, bf16", KOLO_BF16, 2, 2, true },
	};
	const size_t most = 64 << 20;
	struct ko_gpu_memory own[2], shared[2];

	for (int k = 0; k < 2; k++) {
		MUST(d->alloc_own(gpu, most, &own[k]));
		MUST(d->alloc(gpu, most, &shared[k]));
	}
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			size_t len = lengths[l], places = (size_t)(cases[c].nins + cases[c].nouts);
			struct ko_gpu_job job = {
				.n = len / (cases[c].type == KOLO_F32 ? 4 : 2),
				.type = cases[c].type,
				.how = KO_SUM,
				.nins = cases[c].nins,
				.nouts = cases[c].nouts,
				.ins = { own[0].at, shared[0].at },
				.outs = { cases[c].shared && cases[c].nouts == 1 ? shared[1].at
										 : own[1].at,
					  shared[1].at },
			};

			tell(cases[c].what, len, time_kernel(stream, &job), (double)(places * len));
		}
	for (int k = 0; k < 2; k++) {
		d->release(gpu, &own[k]);
		d->release(gpu, &shared[k]);
	}
}

/* ---- Hops, recording ------------------------------------------------------------------------- */

/* To and fro between two streams of this process, an empty kernel on each side. */
static void hops(CUstream a, CUstream b, size_t len)
{
	struct ko_gpu_memory memory[2];
	void *there, *back;
	double begin = (double)ko_now_ns(), recorded, done;
	struct ko_gpu_job job = { .n = len / 4, .type = KOLO_F32, .nins = 1, .nouts = 1 };

	MUST(d->event_create(gpu, &there));
	MUST(d->event_create(gpu, &back));
	for (int k = 0; k < 2; k++)
		MUST(d->alloc(gpu, len, &memory[k]));
	job.ins[0] = memory[0].at;
	job.outs[0] = memory[1].at;
	for (int round = 0; round < 2; round++) {
		begin = (double)ko_now_ns();
		for (int k = 0; k < HOPS; k++) {
			CUstream s = k % 2 ? b : a;

			if (k > 0)
				MUST(d->event_await(gpu, s, k % 2 ? there : back));
			MUST(d->compute(gpu, s, &job));
			MUST(d->event_record(gpu, k % 2 ? back : there, s));
		}
		recorded = (double)ko_now_ns();
		MUST(d->finish(gpu, a));
		MUST(d->finish(gpu, b));
		done = (double)ko_now_ns();
	}
	tell("a kernel and a hop by an event", len, (done - begin) / 1e3 / HOPS, 0);
	tell("the same, recording it", len, (recorded - begin) / 1e3 / HOPS, 0);
	for (int k = 0; k < 2; k++)
		d->release(gpu, &memory[k]);
	d->event_destroy(gpu, there);
	d->event_destroy(gpu, back);
}

/* A kernel, and the host waits. */
static void waits(CUstream s)
{
	struct ko_gpu_memory memory;
	struct ko_gpu_job job = { .n = 1024, .type = KOLO_F32, .nins = 1, .nouts = 1 };
	struct kolo_cuda_pointer pointer;
	double us[REPEATS];
	int64_t begin;

	MUST(d->alloc(gpu, 8192, &memory));
	job.ins[0] = memory.at;
	job.outs[0] = (char *)memory.at + 4096;
	for (int k = -2; k < REPEATS; k++) {
		begin = ko_now_ns();
		MUST(d->compute(gpu, s, &job));
		MUST(d->finish(gpu, s));
		if (k >= 0)
			us[k] = (double)(ko_now_ns() - begin) / 1e3;
	}
	tell("a kernel, and the host waits for it", 4096, perf_median(us, REPEATS), 0);
	begin = ko_now_ns();
	for (int k = 0; k < 1000; k++)
		MUST(d->pointer(gpu, memory.at, &pointer));
	tell("asking what memory is", 4096, (double)(ko_now_ns() - begin) / 1e6, 0);
	begin = ko_now_ns();
	for (int k = 0; k < 1000; k++) {
		MUST(d->enter(gpu));
		d->leave(gpu);
	}
	tell("entering and leaving a GPU", 0, (double)(ko_now_ns() - begin) / 1e6, 0);
	d->release(gpu, &memory);
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUdevice device;
	CUstream a, b;

	if (access("/dev/nvidiactl", F_OK) != 0) {
		printf("gpu_moves: skipped: no GPU here (/dev/nvidiactl)\n");
		return 0;
	}
	json = argc > 1 ? fopen(argv[1], "a") : NULL;
	if (argc > 1 && !json) {
		perror(argv[1]);
		return 1;
	}
	d = kolo_cuda_driver();
	CUDA(cuInit(0));
	CUDA(cuDeviceGet(&device, 0));
	CUDA(cuDevicePrimaryCtxRetain(&context, device));
	CUDA(cuCtxSetCurrent(context));
	a = make_stream();
	b = make_stream();
	MUST(d->open(a, &gpu));
	MUST(d->enter(gpu));
	kernels(a);
	hops(a, b, 8192);
	hops(a, b, 2 << 20);
	waits(a);
	d->leave(gpu);
	d->close(gpu);
	return json && fclose(json) != 0;
}
