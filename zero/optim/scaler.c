/* The loss scale. zero_scaler_update has the rule: halve after an overflow, double after a window
 * of clean updates. */
#include "zero/optim/scaler.h"

#include "zero/base/basics.h"

static bool is_scale(double x)
{
	return x > 0 && x < __builtin_inf();
}

int zero_scaler_check(const struct kolo_zero_config *c)
{
	const struct kolo_zero_scaling *s = &c->scaling;

	if (c->loss_scale != 0 && !is_scale(c->loss_scale))
		return kolo_error_set(
			KOLO_EINVAL,
			"config.loss_scale is %g, and must be finite and above 0, or 0: one that adapts",
			c->loss_scale);
	for (size_t i = 0; i < sizeof(s->reserved) / sizeof(s->reserved[0]); i++)
		if (s->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"config.scaling.reserved is not zero: use kolo_zero_config_init");
	if (c->loss_scale != 0)
		return 0;
	if (!is_scale(s->initial) || !is_scale(s->min) || s->min > s->initial)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.scaling: min is %g and initial %g; they must be finite, above 0, and min not above initial",
			s->min, s->initial);
	if (s->window < 1 || s->hysteresis < 1)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.scaling: window is %ld and hysteresis %d, and both must be at least 1",
			s->window, s->hysteresis);
	if (s->consecutive != 0 && s->consecutive != 1)
		return kolo_error_set(KOLO_EINVAL,
				      "config.scaling.consecutive is %d, and must be 0 or 1",
				      s->consecutive);
	return 0;
}

void zero_scaler_init(struct zero_scaler *out, const struct kolo_zero_config *c)
{
	bool adapts = c->loss_scale == 0;

	*out = (struct zero_scaler){
		.adapts = adapts,
		.scale = adapts ? c->scaling.initial : c->loss_scale,
		.last_overflow = -1,
		.left = c->scaling.hysteresis,
	};
}

/* Halves the scale if the hysteresis is used up. */
static bool shrink(struct zero_scaler *s, const struct kolo_zero_scaling *c)
{
	bool at_min = s->scale == c->min;

	s->last_overflow = s->updates;
	if (s->left > 1) {
		s->left--;
		return true;
	}
	s->scale = s->scale / 2 > c->min ? s->scale / 2 : c->min;
	return !at_min;
}

static void grow(struct zero_scaler *s, const struct kolo_zero_scaling *c)
{
	int64_t clean = s->updates - s->last_overflow - 1;

	if (c->consecutive)
		s->left = c->hysteresis;
	if (clean == 0 || clean % c->window != 0)
		return;
	s->left = c->hysteresis;
	if (is_scale(s->scale * 2))
		s->scale *= 2;
}

bool zero_scaler_update(struct zero_scaler *s, const struct kolo_zero_scaling *c, bool overflow)
{
	bool good = true;

	if (!s->adapts)
		return true;
	if (overflow)
		good = shrink(s, c);
	else
		grow(s, c);
	s->updates++;
	return good;
}
