/* How fast a GPU does the work of a training step (cuda/zero_kernels.cu), beside what its memory
 * could: time, bytes a second, and the fraction of the bandwidth that its memory has on paper.
 * AdamW of 16-bit parameters can't do with less than 28 bytes for each: master and two moments read
 * and written, gradient read, parameter written. zero_cuda [FILE]: one JSON object for each line
 * into FILE too. */
#include "perf/perf.h"

#include "kolo/kolo_zero_device.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 1000000000, REPEATS = 9, WARM = 2, BYTES = 16, COPY = 1 << 30 };

/* Places on the device, for n parameters. */
static struct {
	struct kolo_zero_device *device;
	size_t n;
	void *gradients, *parameters; /* 16 bits */
	float *master, *moment[2];
	double *sums; /* on the host, pinned */
	double best;  /* bytes a second, on paper */
	FILE *json;
} at;

static double now(void)
{
	return (double)ko_now_ns() / 1e9;
}

static void must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_cuda: %s\n", kolo_last_error());
	exit(1);
}

static void tell(const char *what, size_t n, double bytes, double *seconds, double limit)
{
	double middle = perf_median(seconds, REPEATS),
	       rate = bytes / middle; /* in order from here on */

	printf("%-34s %9.3f ms %9.1f GB/s", what, middle * 1e3, rate / 1e9);
	if (limit > 0)
		printf(" %5.1f %% of %.0f GB/s", 100 * rate / limit, limit / 1e9);
	printf("  (%.3f to %.3f ms)\n", seconds[0] * 1e3, seconds[REPEATS - 1] * 1e3);
	fflush(stdout);
	if (at.json)
		fprintf(at.json,
			"{\"what\": \"%s\", \"n\": %zu, \"bytes\": %.0f, \"ms\": %.4f, \"least_ms\": %.4f, "
			"\"most_ms\": %.4f, \"fraction\": %.4f}\n",
			what, n, bytes, middle * 1e3, seconds[0] * 1e3, seconds[REPEATS - 1] * 1e3,
			limit > 0 ? rate / limit : 0);
}

/* ---- Work ------------------------------------------------------------------------------------ */

static double time_work(const struct kolo_zero_work *w)
{
	double begin = now();
	uint64_t ticket;

	must(at.device->ops->work(at.device, w, &ticket));
	must(at.device->ops->wait(at.device, KOLO_ZERO_COMPUTE, ticket));
	return now() - begin;
}

/* bytes: read and written, of each element. */
static void measure(const char *what, const struct kolo_zero_work *w, int bytes)
{
	double seconds[REPEATS];

	for (int k = -WARM; k < REPEATS; k++) {
		double s = time_work(w);

		if (k >= 0)
			seconds[k] = s;
	}
	tell(what, w->n, (double)w->n * bytes, seconds, at.best);
}

static struct kolo_zero_work work(enum kolo_zero_work_kind kind, enum kolo_zero_optimizer optimizer)
{
	return (struct kolo_zero_work){
		.kind = kind,
		.n = at.n,
		.from = at.gradients,
		.from_type = KOLO_BF16,
		.to = at.parameters,
		.to_type = KOLO_BF16,
		.factor = 0.5f,
		.sums = at.sums,
		.optimizer = optimizer,
		.scalars = { .keep = 0.999f,
			     .decay = 0.01f,
			     .beta1 = 0.9f,
			     .rest1 = 0.1f,
			     .beta2 = 0.99f,
			     .rest2 = 0.01f,
			     .rate = 1e-3f,
			     .root2 = 0.3f,
			     .bias1 = 0.4f,
			     .eps = 1e-6f,
			     .momentum = 0.9f,
			     .rest = 1 },
		.master = at.master,
		.moment = { at.moment[0], at.moment[1] },
	};
}

static void measure_all(void)
{
	struct kolo_zero_work w = work(KOLO_ZERO_WORK_CAST, 0);

	w.from = at.master;
	w.to = at.moment[0];
	w.from_type = w.to_type = KOLO_F32;
	measure("f32 to f32: what memory gives", &w, 8);
	w = work(KOLO_ZERO_WORK_UPDATE, KOLO_ZERO_ADAMW);
	measure("AdamW, bf16", &w, 28);
	/* Masters lie off a multiple of 16 bytes with regard to gradients: element by element. */
	w.master++;
	w.n--;
	measure("AdamW, bf16, off alignment", &w, 28);
	w = work(KOLO_ZERO_WORK_UPDATE, KOLO_ZERO_LION);
	w.moment[1] = NULL;
	measure("Lion, bf16", &w, 20);
	w = work(KOLO_ZERO_WORK_LAMB, KOLO_ZERO_LAMB);
	measure("Lamb's moments and squares, bf16", &w, 22);
	w = work(KOLO_ZERO_WORK_UPDATE, KOLO_ZERO_LAMB);
	measure("Lamb's step, bf16", &w, 18);
	w = work(KOLO_ZERO_WORK_SQUARES, 0);
	measure("squares, bf16", &w, 2);
	w.from = at.master;
	w.from_type = KOLO_F32;
	measure("squares, f32", &w, 4);
	w = work(KOLO_ZERO_WORK_ADD, 0);
	w.to = at.master;
	w.to_type = KOLO_F32;
	measure("gradients added up, bf16", &w, 10);
	w = work(KOLO_ZERO_WORK_CAST, 0);
	measure("gradients weighed, bf16", &w, 4);
	w = work(KOLO_ZERO_WORK_CLEAR, 0);
	measure("clear, bf16", &w, 2);
	/* What it takes to ask for it. */
	w = work(KOLO_ZERO_WORK_UPDATE, KOLO_ZERO_ADAMW);
	w.n = 4096;
	measure("AdamW of 4096 elements", &w, 28);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static uint64_t put_copy(enum kolo_zero_lane lane, void *host, void *gpu, size_t len)
{
	bool down = lane == KOLO_ZERO_DOWN;
	uint64_t ticket;

	must(at.device->ops->copy(at.device, lane, down ? host : gpu, down ? gpu : host, len,
				  &ticket));
	return ticket;
}

/* Down, up, or both at a time. */
static void measure_copies(const char *what, bool down, bool up, char *host, size_t len)
{
	double seconds[REPEATS];

	for (int k = -WARM; k < REPEATS; k++) {
		double begin = now();
		uint64_t d = down ? put_copy(KOLO_ZERO_DOWN, host, at.gradients, len) : 0;
		uint64_t u = up ? put_copy(KOLO_ZERO_UP, host + len, at.parameters, len) : 0;

		must(at.device->ops->wait(at.device, KOLO_ZERO_DOWN, d));
		must(at.device->ops->wait(at.device, KOLO_ZERO_UP, u));
		if (k >= 0)
			seconds[k] = now() - begin;
	}
	tell(what, len, (double)len * (down + up), seconds, 0);
}

static void measure_lanes(void)
{
	size_t len = at.n * 2 < COPY ? at.n * 2 / 4096 * 4096 : COPY;
	char *host =
		mmap(NULL, 2 * len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (host == MAP_FAILED) {
		perror("zero_cuda: host memory");
		exit(1);
	}
	memset(host, 1, 2 * len);
	measure_copies("copy down, host memory not pinned", true, false, host, len);
	must(at.device->ops->pin(at.device, host, 2 * len));
	measure_copies("copy down, pinned", true, false, host, len);
	measure_copies("copy up, pinned", false, true, host, len);
	measure_copies("copies down and up, pinned", true, true, host, len);
	at.device->ops->unpin(at.device, host, 2 * len);
	munmap(host, 2 * len);
}

/* ---- The program ----------------------------------------------------------------------------- */

/* Two transfers in each cycle of the memory's clock. */
static double bandwidth(void)
{
	int khz = 0, bits = 0;
	CUdevice gpu;

	if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&gpu, 0) != CUDA_SUCCESS ||
	    cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, gpu) !=
		    CUDA_SUCCESS ||
	    cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, gpu) !=
		    CUDA_SUCCESS)
		return 0;
	return 2e3 * khz * bits / 8;
}

static void *allocate(size_t bytes, const char *what)
{
	void *out;

	must(at.device->ops->allocate(at.device, bytes, what, &out));
	return out;
}

static void open_all(void)
{
	struct kolo_zero_device_info info;
	size_t fits, sums;

	must(kolo_zero_cuda_open(0, &at.device));
	at.device->ops->get(at.device, &info);
	fits = info.budget / 10 * 9 / BYTES / 4096 * 4096;
	at.n = fits < MOST ? fits : MOST;
	printf("# %s: %zu parameters\n", info.name, at.n);
	at.gradients = allocate(2 * at.n, "gradients");
	at.parameters = allocate(2 * at.n, "parameters");
	at.master = allocate(4 * at.n, "masters");
	at.moment[0] = allocate(4 * at.n, "moments");
	at.moment[1] = allocate(4 * at.n, "moments");
	sums = (2 * sizeof(double) * (at.n / KOLO_ZERO_BLOCK + 1) + 4095) / 4096 * 4096;
	at.sums = aligned_alloc(4096, sums);
	if (!at.sums)
		exit(1);
	must(at.device->ops->pin(at.device, at.sums, sums));
}

int main(int argc, char **argv)
{
	if (access("/dev/nvidiactl", F_OK) != 0) {
		printf("zero_cuda: skipped: no GPU here (/dev/nvidiactl)\n");
		return 0;
	}
	at.json = argc > 1 ? fopen(argv[1], "a") : NULL;
	if (argc > 1 && !at.json) {
		perror(argv[1]);
		return 1;
	}
	at.best = bandwidth();
	open_all();
	measure_all();
	measure_lanes();
	at.device->ops->close(at.device);
	free(at.sums);
	return at.json && fclose(at.json) != 0;
}
