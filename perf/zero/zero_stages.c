/* What the stages and a parameter server send and hold, side by side: a model of LAYERS bf16
 * tensors with AdamW, a few steps of it. Bytes an update, of rank 0 and of the rank after it, over
 * P e (N-1)/N, the share of the parameters' bytes that all formulas have; bytes held for each
 * parameter, by kind; and the time of a step that only communicates and updates.
 *
 * usage: ringrun -n N zero_stages */
#include "perf/perf.h"

#include <kolo/kolo_zero.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 24, ELEMENTS = 840 << 10, STEPS = 7, KINDS = 6 };

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_stages: %s\n", kolo_last_error());
	exit(1);
}

static void step(struct kolo_zero *zero, const void *gradient)
{
	check(kolo_zero_forward(zero, 1));
	for (int i = 0; i < LAYERS; i++) {
		check(kolo_zero_use(zero, i, NULL));
		check(kolo_zero_release(zero, i));
	}
	check(kolo_zero_backward(zero, 0));
	for (int i = LAYERS; i-- > 0;) {
		check(kolo_zero_use(zero, i, NULL));
		check(kolo_zero_gradient(zero, i, gradient));
		check(kolo_zero_release(zero, i));
	}
	check(kolo_zero_step(zero, NULL));
}

static struct kolo_zero *create(struct kolo_comm *comm, int stage, int server)
{
	struct kolo_zero_tensor tensors[LAYERS];
	struct kolo_zero_config config;
	char names[LAYERS][16];
	struct kolo_zero *zero;

	kolo_zero_config_init(&config);
	config.stage = stage;
	config.parameter_server = server;
	config.overlap = !server;
	for (int i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { ELEMENTS }, .ndims = 1, .type = KOLO_BF16
		};
	}
	check(kolo_zero_create(comm, &config, tensors, LAYERS, &zero));
	return zero;
}

static void report(struct kolo_comm *comm, const char *name, struct kolo_zero *zero, double seconds)
{
	double nranks = kolo_comm_nranks(comm),
	       once = 2.0 * LAYERS * ELEMENTS * (nranks - 1) / nranks;
	struct kolo_zero_traffic traffic;
	struct kolo_zero_memory memory;
	double own[1 + KINDS], *all = calloc((size_t)nranks * (1 + KINDS), sizeof(*all));

	check(all ? kolo_zero_traffic_get(zero, &traffic)
		  : kolo_error_set(KOLO_ENOMEM, "out of memory"));
	own[0] = (double)(traffic.gradient_bytes + traffic.parameter_bytes) / STEPS / once;
	for (int k = 0; k < KINDS; k++) {
		check(kolo_zero_memory_get(zero, k, &memory));
		own[1 + k] = (double)memory.peak / LAYERS / ELEMENTS;
	}
	check(kolo_all_gather(comm, own, all, 1 + KINDS, KOLO_F64, NULL));
	if (kolo_comm_rank(comm) == 0) {
		printf("%-17s %7.3f %7.3f  ", name, all[0], all[1 + KINDS]);
		for (int k = 0; k < KINDS; k++)
			printf(" %6.2f", all[1 + KINDS + 1 + k]);
		printf("  %9.1f\n", seconds * 1e3);
	}
	free(all);
}

int main(void)
{
	static const char *const names[] = { "parameter server", "stage 0", "stage 1", "stage 2",
					     "stage 3" };
	void *gradient = calloc(ELEMENTS, 2);
	struct kolo_comm *comm;

	check(gradient ? kolo_comm_create(NULL, &comm)
		       : kolo_error_set(KOLO_ENOMEM, "out of memory"));
	if (kolo_comm_nranks(comm) < 2) {
		fprintf(stderr, "zero_stages: wants at least two ranks (ringrun -n 2 ...)\n");
		return 1;
	}
	if (kolo_comm_rank(comm) == 0)
		printf("# %d tensors of %d bf16, AdamW, %d ranks\n"
		       "#                  sends, times P e (N-1)/N    bytes held for each parameter, of rank 1      step\n"
		       "#                rank 0  rank 1   params  grads masters moments buckets gathered    ms\n",
		       LAYERS, ELEMENTS, kolo_comm_nranks(comm));
	for (int mode = 0; mode < 5; mode++) {
		struct kolo_zero *zero = create(comm, mode ? mode - 1 : 0, mode == 0);
		double seconds[STEPS];

		for (int i = 0; i < STEPS; i++) {
			int64_t begin;

			check(kolo_barrier(comm, NULL));
			begin = ko_now_ns();
			step(zero, gradient);
			seconds[i] = (double)(ko_now_ns() - begin) * 1e-9;
		}
		report(comm, names[mode], zero, perf_median(seconds, STEPS));
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
	free(gradient);
	return 0;
}
