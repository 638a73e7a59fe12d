/* The optimizers' names, torch's defaults, checks of a group, and the factors of a step
 * (zero_optimizer_scalars). */
#include "zero/optim/optimizer.h"

#include "zero/base/basics.h"
#include "zero/optim/kernels.h"
#include "zero/optim/schedule.h"

/* What DeepSpeed's OneCycle gives Adam for its second moment. */
static const double ONE_CYCLE_BETA2 = 0.99;

static const char *const names[ZERO_NOPTIMIZERS] = {
	[KOLO_ZERO_ADAMW] = "AdamW", [KOLO_ZERO_ADAM] = "Adam",       [KOLO_ZERO_SGD] = "SGD",
	[KOLO_ZERO_LION] = "Lion",   [KOLO_ZERO_ADAGRAD] = "Adagrad", [KOLO_ZERO_LAMB] = "Lamb",
};

const char *kolo_zero_optimizer_name(enum kolo_zero_optimizer optimizer)
{
	return (unsigned)optimizer < ZERO_NOPTIMIZERS ? names[optimizer] : NULL;
}

void kolo_zero_group_init(struct kolo_zero_group *out, enum kolo_zero_optimizer optimizer)
{
	static const struct kolo_zero_group defaults[ZERO_NOPTIMIZERS] = {
		[KOLO_ZERO_ADAMW] = { .lr = 1e-3,
				      .beta1 = 0.9,
				      .beta2 = 0.999,
				      .eps = 1e-8,
				      .weight_decay = 1e-2 },
		[KOLO_ZERO_ADAM] = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
		[KOLO_ZERO_SGD] = { .lr = 1e-3 },
		[KOLO_ZERO_LION] = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99 },
		[KOLO_ZERO_ADAGRAD] = { .lr = 1e-2, .eps = 1e-10 },
		[KOLO_ZERO_LAMB] = { .lr = 1e-3,
				     .beta1 = 0.9,
				     .beta2 = 0.999,
				     .eps = 1e-6,
				     .weight_decay = 1e-2 },
	};

	*out = (unsigned)optimizer < ZERO_NOPTIMIZERS ? defaults[optimizer]
						      : (struct kolo_zero_group){ 0 };
}

int zero_optimizer_moments(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *group)
{
	switch (optimizer) {
	case KOLO_ZERO_SGD: return group->momentum != 0;
	case KOLO_ZERO_LION:
	case KOLO_ZERO_ADAGRAD: return 1;
	default: return 2;
	}
}

float zero_optimizer_initial(enum kolo_zero_optimizer optimizer,
			     const struct kolo_zero_group *group)
{
	return optimizer == KOLO_ZERO_ADAGRAD ? (float)group->initial : 0.0f;
}

/* Returns x to the power n >= 0. torch's Python multiplies n factors; this takes fewer products, so
 * the last bits of a double may differ. */
static double power(double x, long n)
{
	double y = 1;

	for (; n > 0; n /= 2, x *= x)
		if (n % 2)
			y *= x;
	return y;
}

struct kolo_zero_group zero_optimizer_scheduled(const struct kolo_zero_group *group, long step)
{
	double momentum = zero_schedule_momentum(&group->schedule, step - 1);
	struct kolo_zero_group g = *group;

	g.lr = zero_schedule_lr(&group->schedule, group->lr, step - 1);
	if (!__builtin_isnan(momentum)) {
		g.beta1 = momentum;
		g.beta2 = ONE_CYCLE_BETA2;
	}
	return g;
}

struct kolo_zero_scalars zero_optimizer_scalars(enum kolo_zero_optimizer optimizer,
						const struct kolo_zero_group *g, long step)
{
	double bias1 = 1 - power(g->beta1, step), rate = g->lr;
	bool adam = optimizer == KOLO_ZERO_ADAMW || optimizer == KOLO_ZERO_ADAM;

	if (adam)
		rate = g->lr / bias1;
	else if (optimizer == KOLO_ZERO_ADAGRAD)
		rate = g->lr / (1 + (double)(step - 1) * g->lr_decay);
	return (struct kolo_zero_scalars){
		.keep = (float)(1 - g->lr * g->weight_decay),
		.decay = (float)g->weight_decay,
		.beta1 = (float)g->beta1,
		.rest1 = (float)(1 - g->beta1),
		.beta2 = (float)g->beta2,
		.rest2 = (float)(1 - g->beta2),
		.rate = (float)rate,
		.root2 = (float)__builtin_sqrt(1 - power(g->beta2, step)),
		.bias1 = (float)bias1,
		.eps = (float)g->eps,
		.momentum = (float)g->momentum,
		.rest = (float)(1 - g->dampening),
		.first = step == 1,
		.nesterov = g->nesterov,
	};
}

/* Whether low <= x < high. False for NaN. */
static bool within(double x, double low, double high)
{
	return x >= low && x < high;
}

int zero_optimizer_check(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *g,
			 int index)
{
	const struct {
		const char *name, *want;
		double value;
		bool ok;
	} fields[] = {
		{ "lr", "finite and at least 0", g->lr, within(g->lr, 0, __builtin_inf()) },
		{ "beta1", "in [0, 1)", g->beta1, within(g->beta1, 0, 1) },
		{ "beta2", "in [0, 1)", g->beta2, within(g->beta2, 0, 1) },
		{ "eps", "finite and at least 0", g->eps, within(g->eps, 0, __builtin_inf()) },
		{ "weight_decay", "finite and at least 0", g->weight_decay,
		  within(g->weight_decay, 0, __builtin_inf()) },
		{ "momentum", "finite and at least 0", g->momentum,
		  within(g->momentum, 0, __builtin_inf()) },
		{ "dampening", "finite and at least 0", g->dampening,
		  within(g->dampening, 0, __builtin_inf()) },
		{ "lr_decay", "finite and at least 0", g->lr_decay,
		  within(g->lr_decay, 0, __builtin_inf()) },
		{ "initial", "finite and at least 0", g->initial,
		  within(g->initial, 0, __builtin_inf()) },
		{ "nesterov", "0 or 1, and 1 only with momentum and without dampening", g->nesterov,
		  g->nesterov == 0 || (g->nesterov == 1 && g->momentum > 0 && g->dampening == 0) },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!fields[i].ok)
			return kolo_error_set(
				KOLO_EINVAL, "group %d of %s: %s is %g, and must be %s", index,
				names[optimizer], fields[i].name, fields[i].value, fields[i].want);
	for (size_t i = 0; i < sizeof(g->reserved) / sizeof(g->reserved[0]); i++)
		if (g->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"group %d: reserved is not zero: use kolo_zero_group_init", index);
	return zero_schedule_check(&g->schedule);
}
