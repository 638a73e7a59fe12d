/* The README's training loop: y = 3 x0 - 2 x1 + 0.5 is learnt at stage 3, from samples of each
 * rank's own. tests/install/install.sh checks that the README shows the same text. */
#include <kolo/kolo_zero.h>
#include <stdio.h>
#include <stdlib.h>

enum { W, B, SAMPLES = 16, STEPS = 400 };

static void must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", kolo_last_error());
	exit(1);
}

int main(void)
{
	struct kolo_zero_tensor tensors[] = {
		[W] = { .name = "w", .shape = { 2 }, .ndims = 1, .type = KOLO_F32 },
		[B] = { .name = "b", .shape = { 1 }, .ndims = 1, .type = KOLO_F32 },
	};
	struct kolo_zero_result result = { 0 };
	struct kolo_zero_config config;
	struct kolo_zero *zero;
	struct kolo_comm *comm;

	must(kolo_comm_create(NULL, &comm)); /* rank and size come from the launcher */
	kolo_zero_config_init(&config);
	config.stage = 3;
	must(kolo_zero_create(comm, &config, tensors, 2, &zero));
	must(kolo_zero_set_lr(zero, 0, 0.03));
	srand((unsigned)kolo_comm_rank(comm));
	while (result.step < STEPS) {
		float x[SAMPLES][2], error[SAMPLES], loss = 0, dw[2] = { 0 }, db = 0;
		const void *w, *b;

		must(kolo_zero_forward(zero, SAMPLES));
		must(kolo_zero_use(zero, W, &w)); /* gathers it from all ranks */
		must(kolo_zero_use(zero, B, &b));
		for (int s = 0; s < SAMPLES; s++) {
			const float *p = w, *q = b, scale = (float)RAND_MAX / 2;

			x[s][0] = (float)rand() / scale - 1;
			x[s][1] = (float)rand() / scale - 1;
			error[s] = p[0] * x[s][0] + p[1] * x[s][1] + q[0] -
				   (3 * x[s][0] - 2 * x[s][1] + 0.5f);
			loss += error[s] * error[s] / SAMPLES;
		}
		must(kolo_zero_release(zero, W)); /* and now it may go */
		must(kolo_zero_release(zero, B));
		must(kolo_zero_backward(zero, (double)loss));
		for (int s = 0; s < SAMPLES; s++) {
			dw[0] += 2 * error[s] * x[s][0] / SAMPLES;
			dw[1] += 2 * error[s] * x[s][1] / SAMPLES;
			db += 2 * error[s] / SAMPLES;
		}
		must(kolo_zero_gradient(zero, B, &db));
		must(kolo_zero_gradient(zero, W, dw));
		must(kolo_zero_step(zero, &result)); /* of all ranks' samples */
	}
	if (kolo_comm_rank(comm) == 0)
		printf("step %ld: loss %g\n", result.step, result.loss);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	return result.loss < 1e-3 ? 0 : 1;
}
