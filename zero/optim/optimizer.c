/* Asks the optimizers' rows for names, defaults and state; checks a group, and computes the factors
 * of a step (zero_optimizer_scalars). */
#include "zero/optim/optimizer.h"

#include "zero/base/basics.h"
#include "zero/optim/schedule.h"
#include "zero/optimizers/list.h"

/* What DeepSpeed's OneCycle gives Adam for its second moment. */
static const double ONE_CYCLE_BETA2 = 0.99;

const char *kolo_zero_optimizer_name(enum kolo_zero_optimizer optimizer)
{
	const struct zero_optimizer *row = zero_optimizer_row(optimizer);

	return row ? row->name : NULL;
}

void kolo_zero_group_init(struct kolo_zero_group *out, enum kolo_zero_optimizer optimizer)
{
	const struct zero_optimizer *row = zero_optimizer_row(optimizer);

	*out = row ? row->defaults : (struct kolo_zero_group){ 0 };
}

int kolo_zero_optimizer_get(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *group,
			    struct kolo_zero_optimizer_info *out)
{
	if (!zero_optimizer_row(optimizer))
		return kolo_error_set(KOLO_EINVAL, "optimizer %d: there is none of that number",
				      (int)optimizer);
	*out = (struct kolo_zero_optimizer_info){
		.moments = zero_optimizer_moments(optimizer, group),
		.passes = zero_optimizer_has_ratios(optimizer) ? 2 : 1,
	};
	return 0;
}

int zero_optimizer_moments(enum kolo_zero_optimizer optimizer, const struct kolo_zero_group *group)
{
	bool none = zero_optimizer_row(optimizer)->moves_with_momentum && group->momentum == 0;

	return none ? 0 : zero_optimizer_most(optimizer);
}

float zero_optimizer_initial(enum kolo_zero_optimizer optimizer,
			     const struct kolo_zero_group *group)
{
	return zero_optimizer_row(optimizer)->begins_with_initial ? (float)group->initial : 0.0f;
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
	const struct zero_optimizer *row = zero_optimizer_row(optimizer);

	return (struct kolo_zero_scalars){
		.keep = (float)(1 - g->lr * g->weight_decay),
		.decay = (float)g->weight_decay,
		.beta1 = (float)g->beta1,
		.rest1 = (float)(1 - g->beta1),
		.beta2 = (float)g->beta2,
		.rest2 = (float)(1 - g->beta2),
		.rate = (float)(row->rate ? row->rate(g, step) : g->lr),
		.root2 = (float)__builtin_sqrt(1 - zero_power(g->beta2, step)),
		.bias1 = (float)(1 - zero_power(g->beta1, step)),
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
			return kolo_error_set(KOLO_EINVAL,
					      "group %d of %s: %s is %g, and must be %s", index,
					      zero_optimizer_row(optimizer)->name, fields[i].name,
					      fields[i].value, fields[i].want);
	for (size_t i = 0; i < sizeof(g->reserved) / sizeof(g->reserved[0]); i++)
		if (g->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"group %d: reserved is not zero: use kolo_zero_group_init", index);
	return zero_schedule_check(&g->schedule);
}
