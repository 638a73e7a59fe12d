/* How much of a training step's communication the engine hides behind the model's work, at each stage. A model of LAYERS tensors
 * that computes by sleeping, two thirds of it in backward. Times, medians of interleaved rounds, of the slowest rank:
 *
 * - alone: a step whose model takes no time, without overlap: reductions, gathers, copies and the update;
 * - both: the model sleeps as long as `alone` took, without overlap, and with it.
 *
 * With everything hidden `both` with overlap is `alone`; with nothing twice that. What can't be hidden is the last bucket's
 * reduction and the update, which needs all gradients.
 *
 * usage: ringrun -n N zero_overlap [shm|tcp|ofi] */
#include "perf.h"

#include <kolo/kolo_zero.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 32, ELEMENTS = 1 << 20, ROUNDS = 9 };

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_overlap: %s\n", kolo_last_error());
	exit(1);
}

static void compute(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

	if (seconds > 0)
		nanosleep(&t, NULL);
}

/* Seconds of a step of a model that computes for `work` seconds. */
static double step(struct kolo_zero *zero, double work, const float *gradient)
{
	int64_t begin = ko_now_ns();

	check(kolo_zero_forward(zero, 1));
	for (int i = 0; i < LAYERS; i++) {
		check(kolo_zero_use(zero, i, NULL));
		compute(work / 3 / LAYERS);
		check(kolo_zero_release(zero, i));
	}
	check(kolo_zero_backward(zero, 0));
	for (int i = LAYERS; i-- > 0;) {
		check(kolo_zero_use(zero, i, NULL));
		compute(work * 2 / 3 / LAYERS);
		check(kolo_zero_gradient(zero, i, gradient));
		check(kolo_zero_release(zero, i));
	}
	check(kolo_zero_step(zero, NULL));
	return (double)(ko_now_ns() - begin) * 1e-9;
}

static struct kolo_zero *create(struct kolo_comm *comm, int stage, int overlap)
{
	struct kolo_zero_tensor tensors[LAYERS];
	struct kolo_zero_config config;
	struct kolo_zero_group group;
	char names[LAYERS][16];
	struct kolo_zero *zero;

	kolo_zero_config_init(&config);
	kolo_zero_group_init(&group, KOLO_ZERO_SGD);
	config.optimizer = KOLO_ZERO_SGD;
	config.groups = &group;
	config.ngroups = 1;
	config.stage = stage;
	config.overlap = overlap;
	for (int i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { ELEMENTS }, .ndims = 1, .type = KOLO_F32
		};
	}
	check(kolo_zero_create(comm, &config, tensors, LAYERS, &zero));
	return zero;
}

static double slowest(struct kolo_comm *comm, double mine)
{
	check(kolo_all_reduce(comm, &mine, &mine, 1, KOLO_F64, KOLO_MAX, NULL));
	return mine;
}

static void measure(struct kolo_comm *comm, int stage, const float *gradient)
{
	struct kolo_zero *plain = create(comm, stage, 0), *overlapped = create(comm, stage, 1);
	double alone[ROUNDS], after[ROUNDS], beside[ROUNDS], work;

	for (int i = 0; i < 3; i++) {
		step(plain, 0, gradient);
		step(overlapped, 0, gradient);
	}
	for (int i = 0; i < ROUNDS; i++) {
		check(kolo_barrier(comm, NULL));
		alone[i] = slowest(comm, step(plain, 0, gradient));
		work = alone[i];
		after[i] = slowest(comm, step(plain, work, gradient));
		beside[i] = slowest(comm, step(overlapped, work, gradient));
		after[i] /= work;
		beside[i] /= work;
	}
	if (kolo_comm_rank(comm) == 0)
		printf("%5d  %9.2f  %15.2f  %12.2f\n", stage, perf_median(alone, ROUNDS) * 1e3,
		       perf_median(after, ROUNDS), perf_median(beside, ROUNDS));
	kolo_zero_destroy(plain);
	kolo_zero_destroy(overlapped);
}

int main(int argc, char **argv)
{
	struct kolo_comm_attr attr = { .transport = argc > 1 ? argv[1] : NULL };
	float *gradient = calloc(ELEMENTS, sizeof(*gradient));
	struct kolo_comm *comm;

	if (!gradient)
		return 1;
	check(kolo_comm_create(&attr, &comm));
	if (kolo_comm_rank(comm) == 0)
		printf("# %d tensors of %d f32, SGD, %d ranks, %s\n"
		       "# stage  alone, ms  without overlap  with overlap (times the work's length)\n",
		       LAYERS, ELEMENTS, kolo_comm_nranks(comm), argc > 1 ? argv[1] : "shm");
	for (int stage = 0; stage < 4; stage++)
		measure(comm, stage, gradient);
	kolo_comm_destroy(comm);
	free(gradient);
	return 0;
}
