/* How much of the copies of an offloaded optimizer the engine hides behind its update. A bf16 model
 * on an arena, its masters and moments on the host. First the update alone, with copies as fast as
 * memory; then with a bandwidth that gives the parameters' way up as long as that update takes. The
 * longer of the two, and one bucket that comes down last, is what a step can't be shorter than.
 * Medians of interleaved rounds, for 1 and 2 threads.
 *
 * usage: ringrun -n N zero_offload [stage] */
#include "perf/perf.h"

#include <kolo/kolo_zero_device.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TENSORS = 16, ELEMENTS = 2 << 20, ROUNDS = 9 };

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_offload: %s\n", kolo_last_error());
	exit(1);
}

struct trial {
	struct kolo_zero_config config;
	struct kolo_zero *zero;
	void *gradient;
};

static void open_trial(struct kolo_comm *comm, int stage, int threads, double bandwidth,
		       struct trial *t)
{
	struct kolo_zero_tensor tensors[TENSORS];
	char names[TENSORS][16];

	kolo_zero_config_init(&t->config);
	t->config.stage = stage;
	t->config.threads = threads;
	t->config.offload_optimizer.place = KOLO_ZERO_ON_HOST;
	check(kolo_zero_arena_open((size_t)1 << 30, bandwidth, &t->config.device));
	for (int i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { ELEMENTS }, .ndims = 1, .type = KOLO_BF16
		};
	}
	check(kolo_zero_create(comm, &t->config, tensors, TENSORS, &t->zero));
	check(kolo_zero_device_alloc(t->config.device, ELEMENTS * sizeof(uint16_t), "a gradient",
				     &t->gradient));
}

static void close_trial(struct trial *t)
{
	kolo_zero_destroy(t->zero);
	kolo_zero_device_close(t->config.device);
}

static void compute(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

	nanosleep(&t, NULL);
}

/* Seconds of kolo_zero_step after a backward that takes about as long as gradients come down,
 * until parameters are home. */
static double step(struct trial *t, double backward)
{
	int64_t begin;

	check(kolo_zero_forward(t->zero, 1));
	for (int i = 0; i < TENSORS; i++) {
		check(kolo_zero_use(t->zero, i, NULL));
		check(kolo_zero_release(t->zero, i));
	}
	check(kolo_zero_backward(t->zero, 0));
	for (int i = TENSORS; i-- > 0;) {
		compute(backward / TENSORS);
		check(kolo_zero_gradient(t->zero, i, t->gradient));
	}
	begin = ko_now_ns();
	check(kolo_zero_step(t->zero, NULL));
	/* The last one to come home; what is gathered for other uses is the model's time. */
	check(kolo_zero_use(t->zero, TENSORS - 1, NULL));
	check(kolo_zero_release(t->zero, TENSORS - 1));
	return (double)(ko_now_ns() - begin) * 1e-9;
}

static double median_step(struct trial *t)
{
	double seconds[ROUNDS];

	for (int i = -2; i < ROUNDS; i++)
		seconds[i < 0 ? 0 : i] = step(t, 0.05);
	return perf_median(seconds, ROUNDS);
}

static void measure(struct kolo_comm *comm, int stage, int threads)
{
	double once = (double)TENSORS * ELEMENTS * sizeof(uint16_t) / kolo_comm_nranks(comm);
	double update, alone[ROUNDS], both[ROUNDS], ratio[ROUNDS], bucket, bandwidth;
	struct trial fast, slow;

	open_trial(comm, stage, threads, 0, &fast);
	update = median_step(&fast);
	bandwidth = once / update;
	open_trial(comm, stage, threads, bandwidth, &slow);
	bucket = (double)ELEMENTS * sizeof(uint16_t) / kolo_comm_nranks(comm) / bandwidth;
	for (int i = -2; i < ROUNDS; i++) {
		int at = i < 0 ? 0 : i;
		double longer;

		alone[at] = step(&fast, update);
		both[at] = step(&slow, update);
		longer = alone[at] > update ? alone[at] : update;
		ratio[at] = both[at] / (longer + bucket);
	}
	if (kolo_comm_rank(comm) == 0)
		printf("%5d  %7d  %12.1f  %10.1f  %9.2f  %6.1f  %6.1f  %5.2f\n", stage, threads,
		       perf_median(alone, ROUNDS) * 1e3, once / bandwidth * 1e3, bandwidth * 1e-9,
		       bucket * 1e3, perf_median(both, ROUNDS) * 1e3, perf_median(ratio, ROUNDS));
	close_trial(&fast);
	close_trial(&slow);
}

int main(int argc, char **argv)
{
	struct kolo_comm *comm;

	check(kolo_comm_create(NULL, &comm));
	if (kolo_comm_rank(comm) == 0)
		printf("# %d bf16 parameters in %d tensors on an arena, AdamW on the host, %d ranks; ms\n"
		       "# stage  threads  update alone  copy alone  GB/s up  bucket    step  over the longer and a bucket\n",
		       TENSORS * ELEMENTS, TENSORS, kolo_comm_nranks(comm));
	for (int stage = argc > 1 ? atoi(argv[1]) : 1; stage <= (argc > 1 ? atoi(argv[1]) : 3);
	     stage++)
		for (int threads = 1; threads <= 2; threads++)
			measure(comm, stage, threads);
	kolo_comm_destroy(comm);
	return 0;
}
