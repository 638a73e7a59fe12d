/* How much of a training step's communication the engine hides behind the model's work, at each
 * stage. A model of LAYERS tensors that works by sleeping, in forward and in backward as long as
 * what the engine can communicate beside them takes by itself: reductions beside backward, gathers
 * of updated parameters beside forward, stage 3's gathers beside both. So all could be hidden, and
 * nothing longer hides it. Times of the slowest rank, medians of interleaved rounds:
 *
 * - communication: the same collectives, of the same bytes, and nothing else;
 * - work: the model alone;
 * - steps of the engine, without overlap and with it, and the latter divided by the longer of the
 * two above.
 *
 * What can't be hidden: copying gradients into buckets, the reduction of the last one, and the
 * update, which needs all of them.
 *
 * usage: ringrun -n N zero_overlap [shm|tcp|ofi] */
#include "perf/perf.h"

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

static double seconds_since(int64_t begin)
{
	return (double)(ko_now_ns() - begin) * 1e-9;
}

/* A step of a model that works for so long, this share of it in forward. zero may be NULL: the
 * model alone. */
static double step(struct kolo_zero *zero, double work, double forward, const float *gradient)
{
	int64_t begin = ko_now_ns();

	check(zero ? kolo_zero_forward(zero, 1) : 0);
	for (int i = 0; i < LAYERS; i++) {
		check(zero ? kolo_zero_use(zero, i, NULL) : 0);
		compute(work * forward / LAYERS);
		check(zero ? kolo_zero_release(zero, i) : 0);
	}
	check(zero ? kolo_zero_backward(zero, 0) : 0);
	for (int i = LAYERS; i-- > 0;) {
		check(zero ? kolo_zero_use(zero, i, NULL) : 0);
		compute(work * (1 - forward) / LAYERS);
		check(zero ? kolo_zero_gradient(zero, i, gradient) : 0);
		check(zero ? kolo_zero_release(zero, i) : 0);
	}
	check(zero ? kolo_zero_step(zero, NULL) : 0);
	return seconds_since(begin);
}

/* What a step sends: gradients are reduced, and all parameters gathered, at stage 3 twice. */
static double communicate(struct kolo_comm *comm, int stage, float *from, float *to)
{
	size_t own = ELEMENTS / (size_t)kolo_comm_nranks(comm);
	int64_t begin = ko_now_ns();

	for (int i = 0; i < LAYERS; i++) {
		if (stage == 0)
			check(kolo_all_reduce(comm, from, to, ELEMENTS, KOLO_F32, KOLO_SUM, NULL));
		else
			check(kolo_reduce_scatter(comm, from, to, own, KOLO_F32, KOLO_SUM, NULL));
		for (int k = 0; k < (stage == 3 ? 2 : stage > 0); k++)
			check(kolo_all_gather(comm, from, to, own, KOLO_F32, NULL));
	}
	return seconds_since(begin);
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

/* Behind a barrier, so that all begin together. */
static double slowest(struct kolo_comm *comm, double mine)
{
	check(kolo_all_reduce(comm, &mine, &mine, 1, KOLO_F64, KOLO_MAX, NULL));
	return mine;
}

static void measure(struct kolo_comm *comm, int stage, float *gradient, float *room)
{
	struct kolo_zero *plain = create(comm, stage, 0), *overlapped = create(comm, stage, 1);
	const double forward = stage == 0 ? 0 : stage < 3 ? 0.5 : 1.0 / 3;
	double alone[ROUNDS], work[ROUNDS], after[ROUNDS], beside[ROUNDS], ratio[ROUNDS];

	for (int i = -2; i < ROUNDS; i++) {
		int at = i < 0 ? 0 : i;

		alone[at] = slowest(comm, communicate(comm, stage, gradient, room));
		work[at] = slowest(comm, step(NULL, alone[at], forward, gradient));
		after[at] = slowest(comm, step(plain, alone[at], forward, gradient));
		beside[at] = slowest(comm, step(overlapped, alone[at], forward, gradient));
		ratio[at] = beside[at] / work[at];
	}
	if (kolo_comm_rank(comm) == 0)
		printf("%5d  %17.1f  %8.1f  %19.1f  %16.1f  %5.2f\n", stage,
		       perf_median(alone, ROUNDS) * 1e3, perf_median(work, ROUNDS) * 1e3,
		       perf_median(after, ROUNDS) * 1e3, perf_median(beside, ROUNDS) * 1e3,
		       perf_median(ratio, ROUNDS));
	kolo_zero_destroy(plain);
	kolo_zero_destroy(overlapped);
}

int main(int argc, char **argv)
{
	struct kolo_comm_attr attr = { .transport = argc > 1 ? argv[1] : NULL };
	float *gradient = calloc(ELEMENTS, sizeof(*gradient)),
	      *room = calloc(ELEMENTS, sizeof(*room));
	struct kolo_comm *comm;

	if (!gradient || !room)
		return 1;
	check(kolo_comm_create(&attr, &comm));
	if (kolo_comm_rank(comm) == 0)
		printf("# %d tensors of %d f32, SGD, %d ranks, %s; times in ms\n"
		       "# stage  communication      work  step without overlap  with it  over the work\n",
		       LAYERS, ELEMENTS, kolo_comm_nranks(comm), argc > 1 ? argv[1] : "shm");
	for (int stage = 0; stage < 4; stage++)
		measure(comm, stage, gradient, room);
	kolo_comm_destroy(comm);
	free(gradient);
	free(room);
	return 0;
}
