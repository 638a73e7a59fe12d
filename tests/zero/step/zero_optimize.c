/* Runs an optimizer of the engine on a tensor of N elements with gradients that a formula gives,
 * for test_zero_optimizers.py:
 *
 *     zero_optimize OPTIMIZER STEPS N [field=value...]
 *
 * One rank; prints the parameters, one a line, as floats without loss. */
#include "tests/zero/step/give.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
	fprintf(stderr, "zero_optimize: %s: %s\n", what, kolo_last_error());
	return 1;
}

/* Exact in float: 24 bits of a product, between -0.5 and 0.5. golden_torch.py has the same. */
static float noise(uint32_t i)
{
	return (float)((i * 2654435761u) >> 8) / 16777216.0f - 0.5f;
}

static int set_field(struct kolo_zero_group *g, const char *text)
{
	const struct {
		const char *name;
		double *at;
	} fields[] = {
		{ "lr", &g->lr },
		{ "beta1", &g->beta1 },
		{ "beta2", &g->beta2 },
		{ "eps", &g->eps },
		{ "weight_decay", &g->weight_decay },
		{ "momentum", &g->momentum },
		{ "dampening", &g->dampening },
		{ "lr_decay", &g->lr_decay },
		{ "initial", &g->initial },
	};
	const char *value = strchr(text, '=');

	if (!value)
		return -1;
	if (strncmp(text, "nesterov=", 9) == 0) {
		g->nesterov = atoi(value + 1);
		return 0;
	}
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (strlen(fields[i].name) == (size_t)(value - text) &&
		    strncmp(fields[i].name, text, (size_t)(value - text)) == 0) {
			*fields[i].at = strtod(value + 1, NULL);
			return 0;
		}
	}
	return -1;
}

static int optimize(struct kolo_zero *zero, uint32_t steps, uint32_t n, float *x)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = noise(i);
	if (kolo_zero_set(zero, 0, 0, n, x) < 0)
		return fail("set");
	for (uint32_t step = 1; step <= steps; step++) {
		for (uint32_t i = 0; i < n; i++)
			x[i] = noise(step * 1000 + i);
		if (kolo_zero_forward(zero, 1) < 0 || kolo_zero_backward(zero, 0) < 0 ||
		    give(zero, 0, x) < 0 || kolo_zero_step(zero, NULL) < 0)
			return fail("step");
	}
	if (kolo_zero_get(zero, 0, x) < 0)
		return fail("get");
	for (uint32_t i = 0; i < n; i++)
		printf("%.9g\n", (double)x[i]);
	return 0;
}

int main(int argc, char **argv)
{
	struct kolo_zero_tensor tensor = { .name = "p", .ndims = 1, .type = KOLO_F32 };
	struct kolo_comm_attr attr = { .nranks = 1 };
	enum kolo_zero_optimizer optimizer = 0;
	struct kolo_zero_config config;
	struct kolo_zero_group group;
	struct kolo_comm *comm;
	struct kolo_zero *zero;
	struct kolo_id id;
	float *x;

	if (argc < 4)
		return fail("OPTIMIZER STEPS N [field=value...]");
	while (kolo_zero_optimizer_name(optimizer) &&
	       strcmp(kolo_zero_optimizer_name(optimizer), argv[1]) != 0)
		optimizer++;
	kolo_zero_group_init(&group, optimizer);
	for (int i = 4; i < argc; i++)
		if (set_field(&group, argv[i]) < 0)
			return fail(argv[i]);
	kolo_zero_config_init(&config);
	config.optimizer = optimizer;
	config.groups = &group;
	config.ngroups = 1;
	tensor.shape[0] = (size_t)atoi(argv[3]);
	attr.id = &id;
	x = calloc(tensor.shape[0] + 1, sizeof(*x));
	if (!x || kolo_id_create(&id) < 0 || kolo_comm_create(&attr, &comm) < 0)
		return fail("joining");
	if (kolo_zero_create(comm, &config, &tensor, 1, &zero) < 0)
		return fail("the engine");
	if (optimize(zero, (uint32_t)atoi(argv[2]), (uint32_t)tensor.shape[0], x))
		return 1;
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	free(x);
	return 0;
}
