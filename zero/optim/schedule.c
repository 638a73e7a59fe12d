/* Learning rate and momentum of an update (zero_schedule_lr, zero_schedule_momentum).
 *
 * A scheduler of DeepSpeed holds the number i of the last update, -1 before the first, and advances
 * after each update. So update number `step` has the rate of i = step - 1. */
#include "zero/optim/schedule.h"

#include "zero/base/basics.h"

#include <math.h>

enum { NSCHEDULES = KOLO_ZERO_RANGE_TEST + 1 };

/* A momentum that grows stays below 1: at 1 moments would never forget. */
static const double MOST_MOMENTUM = 0.999;

static const char *const names[NSCHEDULES] = {
	[KOLO_ZERO_CONSTANT] = "constant",          [KOLO_ZERO_WARMUP] = "WarmupLR",
	[KOLO_ZERO_WARMUP_DECAY] = "WarmupDecayLR", [KOLO_ZERO_WARMUP_COSINE] = "WarmupCosineLR",
	[KOLO_ZERO_ONE_CYCLE] = "OneCycle",         [KOLO_ZERO_RANGE_TEST] = "LRRangeTest",
};

const char *kolo_zero_schedule_name(enum kolo_zero_schedule_type type)
{
	return (unsigned)type < NSCHEDULES ? names[type] : NULL;
}

void kolo_zero_schedule_init(struct kolo_zero_schedule *out, enum kolo_zero_schedule_type type)
{
	*out = (struct kolo_zero_schedule){
		.type = type,
		.min_lr = type == KOLO_ZERO_RANGE_TEST ? 1e-3 : 0,
		.max_lr = 1e-3,
		.warmup_steps = 1000,
		.final_ratio = 1e-4,
		.first_steps = 2000,
		.cycle_momentum = 1,
		.min_momentum = 0.8,
		.max_momentum = 0.9,
		.range_steps = 2000,
		.range_rate = 1,
	};
}

/* ---- Checks ---------------------------------------------------------------------------------- */

struct field {
	const char *name, *want;
	double value;
	bool ok;
};

static bool not_negative(double x)
{
	return x >= 0 && x < __builtin_inf();
}

static bool is_flag(int x)
{
	return x == 0 || x == 1;
}

static int refuse_field(const struct kolo_zero_schedule *s, const struct field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!fields[i].ok)
			return kolo_error_set(KOLO_EINVAL, "schedule %s: %s is %g, and must be %s",
					      names[s->type], fields[i].name, fields[i].value,
					      fields[i].want);
	return 0;
}

#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define FIELD(name, want, ok)                                                                      \
	{                                                                                          \
#name, want, (double)s->name, ok                                                   \
	}

static int check_warmup(const struct kolo_zero_schedule *s)
{
	bool ends = s->type != KOLO_ZERO_WARMUP;
	const struct field fields[] = {
		FIELD(min_lr, "finite and at least 0", not_negative(s->min_lr)),
		FIELD(max_lr, "finite and at least 0", not_negative(s->max_lr)),
		FIELD(warmup_steps, "at least 0", s->warmup_steps >= 0),
		FIELD(linear, "0 or 1", is_flag(s->linear)),
		FIELD(total_steps, "more than warmup_steps",
		      !ends || s->total_steps > s->warmup_steps),
		FIELD(warmup_ratio, "finite and at least 0", not_negative(s->warmup_ratio)),
		FIELD(final_ratio, "finite and at least 0", not_negative(s->final_ratio)),
	};

	return refuse_field(s, fields, LEN(fields));
}

static int check_cycle(const struct kolo_zero_schedule *s)
{
	const struct field fields[] = {
		FIELD(min_lr, "finite and at least 0", not_negative(s->min_lr)),
		FIELD(max_lr, "finite and at least min_lr",
		      not_negative(s->max_lr) && s->max_lr >= s->min_lr),
		FIELD(first_steps, "at least 1", s->first_steps >= 1),
		FIELD(second_steps, "at least 0", s->second_steps >= 0),
		FIELD(decay_steps, "at least 0", s->decay_steps >= 0),
		FIELD(decay_rate, "finite and at least 0", not_negative(s->decay_rate)),
		FIELD(cycle_momentum, "0 or 1", is_flag(s->cycle_momentum)),
		FIELD(min_momentum, "in [0, 1)", s->min_momentum >= 0 && s->min_momentum < 1),
		FIELD(max_momentum, "at least min_momentum and below 1",
		      s->max_momentum >= s->min_momentum && s->max_momentum < 1),
		FIELD(momentum_decay_rate, "finite and at least 0",
		      not_negative(s->momentum_decay_rate)),
	};

	return refuse_field(s, fields, LEN(fields));
}

static int check_range(const struct kolo_zero_schedule *s)
{
	const struct field fields[] = {
		FIELD(min_lr, "finite and at least 0", not_negative(s->min_lr)),
		FIELD(range_steps, "at least 1", s->range_steps >= 1),
		FIELD(range_rate, "finite and at least 0", not_negative(s->range_rate)),
		FIELD(staircase, "0 or 1", is_flag(s->staircase)),
	};

	return refuse_field(s, fields, LEN(fields));
}

int zero_schedule_check(const struct kolo_zero_schedule *s)
{
	if (!kolo_zero_schedule_name(s->type))
		return kolo_error_set(KOLO_EINVAL,
				      "schedule.type is %d, and there is none of that number",
				      (int)s->type);
	for (size_t i = 0; i < LEN(s->reserved); i++)
		if (s->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"schedule %s: reserved is not zero: use kolo_zero_schedule_init",
				names[s->type]);
	switch (s->type) {
	case KOLO_ZERO_CONSTANT: return 0;
	case KOLO_ZERO_ONE_CYCLE: return check_cycle(s);
	case KOLO_ZERO_RANGE_TEST: return check_range(s);
	default: return check_warmup(s);
	}
}

/* ---- Rates ----------------------------------------------------------------------------------- */

static double max_double(double a, double b)
{
	return a > b ? a : b;
}

/* The part of the warm-up of n updates that is done: 0 to 1. */
static double warmed_up(const struct kolo_zero_schedule *s, double i, double n)
{
	return s->linear ? i / n : log(i + 1) / log(n);
}

static double warmup_at(const struct kolo_zero_schedule *s, double i)
{
	double n = max_double(2, (double)s->warmup_steps), total = (double)s->total_steps,
	       gamma = 1;

	if (i < 0)
		gamma = 0;
	else if (i < n)
		gamma = warmed_up(s, i, n);
	else if (s->type == KOLO_ZERO_WARMUP_DECAY)
		gamma = max_double(0, (total - i) / max_double(1, total - n));
	return s->min_lr + (s->max_lr - s->min_lr) * gamma;
}

/* The factor of the group's rate. */
static double cosine_at(const struct kolo_zero_schedule *s, double i)
{
	double n = max_double(2, (double)s->warmup_steps);
	double part = (i - n + 1) / max_double(1, (double)s->total_steps - n);

	if (i < 0)
		return 0;
	if (i < n)
		return s->warmup_ratio + (1 - s->warmup_ratio) * warmed_up(s, i, n);
	part = part < 1 ? part : 1;
	return max_double(0, s->final_ratio + (1 - s->final_ratio) * (1 + cos(M_PI * part)) / 2);
}

/* The height in a cycle: 0 at its ends, 1 at its top. *behind: how many updates ago the cycle
 * ended; 0: it has not ended. */
static double height_at(const struct kolo_zero_schedule *s, double step, double *behind)
{
	double first = (double)s->first_steps,
	       second = s->second_steps ? (double)s->second_steps : first;

	*behind = max_double(0, step - first - second);
	if (*behind > 0)
		return 0;
	return step <= first ? step / first : (first + second - step) / second;
}

static double cycle_at(const struct kolo_zero_schedule *s, double step)
{
	double behind, height = height_at(s, step, &behind);

	if (behind > 0 && s->decay_steps)
		return s->min_lr / (1 + s->decay_rate * behind / (double)s->decay_steps);
	return s->min_lr + (s->max_lr - s->min_lr) * height;
}

static double momentum_at(const struct kolo_zero_schedule *s, double step)
{
	double behind, height = height_at(s, step, &behind), momentum;

	/* The value with which DeepSpeed starts, before the first call of its scheduler. */
	if (step == 0)
		return s->min_momentum;
	if (behind == 0 || !s->decay_steps)
		return s->max_momentum - (s->max_momentum - s->min_momentum) * height;
	momentum = s->max_momentum * (1 + s->momentum_decay_rate * behind / (double)s->decay_steps);
	return momentum < MOST_MOMENTUM ? momentum : max_double(MOST_MOMENTUM, s->max_momentum);
}

static double range_at(const struct kolo_zero_schedule *s, double step)
{
	double part = step / (double)s->range_steps;

	return s->min_lr * (1 + s->range_rate * (s->staircase ? floor(part) : part));
}

double zero_schedule_lr(const struct kolo_zero_schedule *s, double lr, long step)
{
	switch (s->type) {
	case KOLO_ZERO_CONSTANT: return lr;
	case KOLO_ZERO_WARMUP_COSINE: return lr * cosine_at(s, (double)step - 1);
	case KOLO_ZERO_ONE_CYCLE: return cycle_at(s, (double)step);
	case KOLO_ZERO_RANGE_TEST: return range_at(s, (double)step);
	default: return warmup_at(s, (double)step - 1);
	}
}

double zero_schedule_momentum(const struct kolo_zero_schedule *s, long step)
{
	if (s->type != KOLO_ZERO_ONE_CYCLE || !s->cycle_momentum)
		return __builtin_nan("");
	return momentum_at(s, (double)step);
}

int kolo_zero_schedule_at(const struct kolo_zero_schedule *s, double lr, long step, double *out,
			  double *momentum)
{
	int rc;

	if (!s || step < 0)
		return kolo_error_set(KOLO_EINVAL, "a schedule at update %ld%s", step,
				      s ? "" : ": NULL");
	if ((rc = zero_schedule_check(s)) < 0)
		return rc;
	if (out)
		*out = zero_schedule_lr(s, lr, step);
	if (momentum)
		*momentum = zero_schedule_momentum(s, step);
	return 0;
}
