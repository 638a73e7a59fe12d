/* What changes from update to update beside the parameters: the loss scale and the learning rates,
 * against restatements of DeepSpeed's rules as objects that are told about each update. */
#include "kolo/kolo_zero.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"
#include "tests/zero/step/mlp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- A model of one element, which overflows when it is told to ------------------------------ */

static struct kolo_zero *create_one(struct kolo_comm *comm, const struct kolo_zero_config *config)
{
	struct kolo_zero_tensor tensor = { .name = "x",
					   .type = KOLO_F32,
					   .group = config->ngroups ? config->ngroups - 1 : 0 };
	struct kolo_zero *zero;

	CHECK(kolo_zero_create(comm, config, &tensor, 1, &zero) == 0);
	return zero;
}

static int step_one(struct kolo_zero *zero, bool overflow, struct kolo_zero_result *result)
{
	float gradient = overflow ? INFINITY : 0;

	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	CHECK(give(zero, 0, &gradient) == 0);
	return kolo_zero_step(zero, result);
}

static uint32_t random_state = 1;

static double random_number(void)
{
	random_state = random_state * 1664525 + 1013904223;
	return random_state / 4294967296.0;
}

/* ---- The loss scale -------------------------------------------------------------------------- */

/* DeepSpeed's dynamic scaler, with the names of its state. */
struct scaler {
	double cur_scale, min_scale;
	long cur_iter, last_overflow_iter, scale_window;
	int delayed_shift, cur_hysteresis;
	bool consecutive_hysteresis;
	bool raised;
};

static void update_scale(struct scaler *s, bool overflow)
{
	s->raised = false;
	if (overflow) {
		if (s->delayed_shift == 1 || s->cur_hysteresis == 1) {
			s->raised = s->cur_scale == s->min_scale;
			s->cur_scale = fmax(s->cur_scale / 2, s->min_scale);
		} else {
			s->cur_hysteresis--;
		}
		s->last_overflow_iter = s->cur_iter;
	} else {
		long stable = s->cur_iter - s->last_overflow_iter - 1;

		if (s->consecutive_hysteresis)
			s->cur_hysteresis = s->delayed_shift;
		if (stable > 0 && stable % s->scale_window == 0) {
			if (!s->consecutive_hysteresis)
				s->cur_hysteresis = s->delayed_shift;
			s->cur_scale *= 2;
		}
	}
	s->cur_iter++;
}

static struct kolo_zero_config scaled_config(double initial, long window, int hysteresis,
					     bool consecutive)
{
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.overlap = 0;
	c.loss_scale = 0;
	c.scaling.initial = initial;
	c.scaling.window = window;
	c.scaling.hysteresis = hysteresis;
	c.scaling.consecutive = consecutive;
	return c;
}

/* Returns how often the floor was reached. */
static long compare_scales(struct kolo_comm *comm, const struct kolo_zero_config *c, int nsteps,
			   double chance)
{
	struct scaler s = { .cur_scale = c->scaling.initial,
			    .min_scale = c->scaling.min,
			    .last_overflow_iter = -1,
			    .scale_window = c->scaling.window,
			    .delayed_shift = c->scaling.hysteresis,
			    .cur_hysteresis = c->scaling.hysteresis,
			    .consecutive_hysteresis = c->scaling.consecutive };
	struct kolo_zero_progress p;
	struct kolo_zero *zero = create_one(comm, c);
	long floors = 0, skipped = 0;

	for (int i = 0; i < nsteps; i++) {
		bool overflow = random_number() < chance || s.cur_scale > 0x1p100;
		double before = s.cur_scale;
		struct kolo_zero_result r;
		int rc = step_one(zero, overflow, &r);

		update_scale(&s, overflow);
		CHECK(rc == (s.raised ? KOLO_EOVERFLOW : 0));
		CHECK(r.skipped == overflow && r.updated == !overflow && r.loss_scale == before);
		CHECK(kolo_zero_loss_scale(zero) == s.cur_scale);
		floors += s.raised;
		skipped += overflow;
	}
	kolo_zero_progress_get(zero, &p);
	CHECK(p.skipped == skipped && p.step == nsteps - skipped && p.loss_scale == s.cur_scale &&
	      p.samples == (uint64_t)p.step);
	kolo_zero_destroy(zero);
	return floors;
}

static void every_setting_of_the_scaler(struct t_rank *t)
{
	static const long windows[] = { 1, 3, 1000 };
	static const double chances[] = { 0.0008, 0.25, 0.6 };
	struct kolo_comm *comm = t_comm(t);
	int nsteps = t_is_slow() ? 1000 : 10000;
	long floors = 0;

	for (int hysteresis = 1; hysteresis <= 3; hysteresis++)
		for (int consecutive = 0; consecutive < 2; consecutive++)
			for (size_t w = 0; w < ARRAY_LEN(windows); w++)
				for (size_t k = 0; k < ARRAY_LEN(chances); k++) {
					struct kolo_zero_config c = scaled_config(
						65536, windows[w], hysteresis, consecutive);

					floors += compare_scales(comm, &c, nsteps, chances[k]);
				}
	CHECK(floors > 0);
	kolo_comm_destroy(comm);
}

static void the_loss_scale_is_that_of_deepspeed_after_every_step(void **state)
{
	(void)state;
	t_processes(1, every_setting_of_the_scaler, NULL);
}

/* Scales after each step, from the rule by hand: X is an overflow. */
static void trace_by_hand(struct t_rank *t)
{
	static const char pattern[] = "..X.X...X....XX.....";
	static const double scales[] = { 16, 16, 16, 16, 8, 8, 8, 8, 4, 4,
					 4,  4,  8,  8,  4, 4, 4, 4, 8, 8 };
	struct kolo_zero_config c = scaled_config(16, 3, 2, false);
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create_one(comm, &c);

	for (size_t i = 0; i < ARRAY_LEN(scales); i++) {
		CHECK(step_one(zero, pattern[i] == 'X', NULL) == 0);
		CHECK(kolo_zero_loss_scale(zero) == scales[i]);
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_trace_by_hand_holds(void **state)
{
	(void)state;
	t_processes(1, trace_by_hand, NULL);
}

/* Trains on the same samples; returns all parameters. */
static void train(struct kolo_comm *comm, const struct kolo_zero_config *config, int nsteps,
		  float *out)
{
	struct kolo_zero_tensor tensors[MLP_TENSORS];
	struct kolo_zero *zero;

	mlp_tensors(tensors, KOLO_F32);
	CHECK(kolo_zero_create(comm, config, tensors, MLP_TENSORS, &zero) == 0);
	mlp_init(zero);
	for (int i = 0; i < nsteps; i++) {
		size_t sample = 8 * (size_t)i + 4 * (size_t)kolo_comm_rank(comm);

		CHECK(mlp_micro_step(zero, KOLO_F32, sample, 4, (float)kolo_zero_loss_scale(zero),
				     0) == 0);
		CHECK(kolo_zero_step(zero, NULL) == 0);
	}
	for (int i = 0; i < MLP_TENSORS; out += mlp_size(i), i++)
		CHECK(kolo_zero_get(zero, i, out) == 0);
	kolo_zero_destroy(zero);
}

/* Powers of two cost no bit in float, so that a scale that grew must not show. */
static void growing_scale(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	float plain[MLP_ROOM] = { 0 }, scaled[MLP_ROOM] = { 0 };

	for (int stage = 0; stage < 4; stage++) {
		for (int clipped = 0; clipped < 2; clipped++) {
			struct kolo_zero_config c = scaled_config(16, 1, 2, false), fixed = c;

			fixed.loss_scale = 1;
			c.stage = fixed.stage = stage;
			c.micro_batch = fixed.micro_batch = 4;
			c.clip = fixed.clip = clipped ? 0.05 : 0;
			train(comm, &c, 40, scaled);
			train(comm, &fixed, 40, plain);
			CHECK(memcmp(plain, scaled, sizeof(plain)) == 0);
		}
	}
	kolo_comm_destroy(comm);
}

static void a_scale_that_grows_does_not_change_gradients(void **state)
{
	(void)state;
	t_processes(2, growing_scale, NULL);
}

static void at_the_floor(struct t_rank *t)
{
	struct kolo_zero_config c = scaled_config(2, 1000, 1, false);
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create_one(comm, &c);
	struct kolo_zero_result r;
	float before, after;

	CHECK(step_one(zero, false, NULL) == 0 && kolo_zero_get(zero, 0, &before) == 0);
	CHECK(step_one(zero, true, &r) == 0 && r.skipped && kolo_zero_loss_scale(zero) == 1);
	CHECK(step_one(zero, true, &r) == KOLO_EOVERFLOW && r.skipped && !r.updated &&
	      r.loss_scale == 1);
	CHECK(strstr(kolo_last_error(), "loss scale is 1") != NULL);
	CHECK(strstr(kolo_last_error(), "tensor 'x' at index 0 is inf on rank 0") != NULL);
	CHECK(kolo_zero_get(zero, 0, &after) == 0 && memcmp(&before, &after, sizeof(before)) == 0);
	CHECK(step_one(zero, false, &r) == 0 && r.updated && r.step == 2);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void an_overflow_at_the_least_scale_is_told_and_harms_nothing(void **state)
{
	(void)state;
	t_processes(2, at_the_floor, NULL);
}

/* ---- Learning rates -------------------------------------------------------------------------- */

/* DeepSpeed's schedulers: told when an update was made, and holding its number. */
struct scheduler {
	struct kolo_zero_schedule s;
	double group_lr, lr, momentum;
	long last_batch_iteration;
};

static double gamma_of(const struct scheduler *x, long n)
{
	long i = x->last_batch_iteration;

	if (i >= n)
		return 1;
	return x->s.linear ? (double)i / (double)n : 1.0 / log((double)n) * log((double)(i + 1));
}

static void warm_up(struct scheduler *x)
{
	long n = x->s.warmup_steps < 2 ? 2 : x->s.warmup_steps, i = x->last_batch_iteration;
	double gamma = gamma_of(x, n), total = (double)x->s.total_steps;

	if (x->s.type == KOLO_ZERO_WARMUP_COSINE) {
		double ratio = x->s.warmup_ratio + gamma * (1 - x->s.warmup_ratio);

		if (i >= n) {
			double through = fmin(1, (double)(i - n + 1) / fmax(1, total - (double)n));

			ratio = x->s.final_ratio +
				(1 - x->s.final_ratio) * ((1 + cos(acos(-1) * through)) / 2);
		}
		x->lr = x->group_lr * fmax(0, ratio);
		return;
	}
	if (x->s.type == KOLO_ZERO_WARMUP_DECAY && i >= n)
		gamma = fmax(0, (total - (double)i) / fmax(1, total - (double)n));
	x->lr = x->s.min_lr + (x->s.max_lr - x->s.min_lr) * gamma;
}

static void cycle(struct scheduler *x)
{
	double first = (double)x->s.first_steps,
	       second = x->s.second_steps ? (double)x->s.second_steps : first;
	double total = first + second, ratio = first / total,
	       batch = (double)x->last_batch_iteration + 1;
	double at = 1 + batch / total - floor(1 + batch / total);
	double scale = at <= ratio ? at / ratio : (at - 1) / (ratio - 1);

	if ((double)x->last_batch_iteration >= total) {
		double k = (double)x->last_batch_iteration - total + 1;
		double interval = x->s.decay_steps ? k / (double)x->s.decay_steps : 0;

		x->lr = x->s.min_lr / (1 + x->s.decay_rate * interval);
		x->momentum =
			fmin(0.999, x->s.max_momentum * (1 + x->s.momentum_decay_rate * interval));
		return;
	}
	x->lr = x->s.min_lr + (x->s.max_lr - x->s.min_lr) * scale;
	x->momentum = x->s.max_momentum - (x->s.max_momentum - x->s.min_momentum) * scale;
}

static void advance(struct scheduler *x)
{
	double part = ((double)++x->last_batch_iteration + 1) / (double)x->s.range_steps;

	switch (x->s.type) {
	case KOLO_ZERO_CONSTANT: break;
	case KOLO_ZERO_ONE_CYCLE: cycle(x); break;
	case KOLO_ZERO_RANGE_TEST:
		x->lr = x->s.min_lr * (1 + x->s.range_rate * (x->s.staircase ? floor(part) : part));
		break;
	default: warm_up(x);
	}
}

static struct scheduler scheduler_of(const struct kolo_zero_group *g)
{
	struct scheduler x = { .s = g->schedule, .group_lr = g->lr, .last_batch_iteration = -1 };

	x.lr = x.s.type == KOLO_ZERO_CONSTANT        ? g->lr
	       : x.s.type == KOLO_ZERO_WARMUP_COSINE ? 0
						     : x.s.min_lr;
	x.momentum = x.s.min_momentum;
	return x;
}

/* Schedules of all types, with what distinguishes their branches. */
static int make_schedules(struct kolo_zero_schedule *out)
{
	int n = 0;

	for (int type = KOLO_ZERO_CONSTANT; type <= KOLO_ZERO_RANGE_TEST; type++) {
		for (int variant = 0; variant < 3; variant++) {
			struct kolo_zero_schedule *s = &out[n++];

			kolo_zero_schedule_init(s, (enum kolo_zero_schedule_type)type);
			s->min_lr = variant ? 1e-5 : s->min_lr;
			s->max_lr = 3e-4;
			s->warmup_steps = variant == 2 ? 1 : 700;
			s->total_steps = variant == 1 ? 2000 : 4500;
			s->linear = variant == 1;
			s->warmup_ratio = variant ? 0.1 : 0;
			s->first_steps = variant ? 900 : 2000;
			s->second_steps = variant == 1 ? 1700 : 0;
			s->decay_steps = variant ? 50 : 0;
			s->decay_rate = variant ? 0.25 : 0;
			s->momentum_decay_rate = variant == 2 ? 0.001 : 0;
			s->range_steps = variant == 2 ? 333 : 2000;
			s->staircase = variant == 2;
		}
	}
	return n;
}

static bool close_to(double a, double b)
{
	return fabs(a - b) <= 1e-12;
}

/* The second group of two has the schedule; now and then an update is skipped. */
static void every_schedule(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_schedule schedules[32];
	int n = make_schedules(schedules), nsteps = t_is_slow() ? 500 : 5000;

	for (int i = 0; i < n; i++) {
		struct kolo_zero_group groups[2];
		struct kolo_zero_config c = scaled_config(1, 1000, 1, false);
		struct kolo_zero *zero;
		struct scheduler x;

		kolo_zero_group_init(&groups[0], c.optimizer);
		groups[1] = groups[0];
		groups[1].lr = 2e-4;
		groups[1].schedule = schedules[i];
		c.loss_scale = 1;
		c.groups = groups;
		c.ngroups = 2;
		zero = create_one(comm, &c);
		x = scheduler_of(&groups[1]);
		for (int k = 0; k < nsteps; k++) {
			bool overflow = random_number() < 0.1;
			struct kolo_zero_result r;
			double lr, momentum;

			CHECK(kolo_zero_lr_get(zero, 1, &lr, &momentum) == 0 && close_to(lr, x.lr));
			CHECK(close_to(momentum,
				       x.s.type == KOLO_ZERO_ONE_CYCLE ? x.momentum : 0.9));
			CHECK(step_one(zero, overflow, &r) == 0 && r.lr == groups[0].lr);
			if (!overflow)
				advance(&x);
		}
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void schedules_are_those_of_deepspeed_and_stand_still_in_skipped_updates(void **state)
{
	(void)state;
	t_processes(1, every_schedule, NULL);
}

/* The first rates of a warm-up of ten updates to 1e-3. */
static void a_warm_up_by_hand_holds(void **state)
{
	static const double expected[] = { 0,         0,          3.0103e-4,  4.77121e-4,
					   6.0206e-4, 6.9897e-4,  7.78151e-4, 8.45098e-4,
					   9.0309e-4, 9.54243e-4, 1e-3,       1e-3 };
	struct kolo_zero_schedule s;

	(void)state;
	kolo_zero_schedule_init(&s, KOLO_ZERO_WARMUP);
	s.warmup_steps = 10;
	for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
		double lr, momentum;

		CHECK(kolo_zero_schedule_at(&s, 5, (long)i, &lr, &momentum) == 0);
		CHECK(fabs(lr - expected[i]) < 1e-9 && isnan(momentum));
		s.linear = 1;
		CHECK(kolo_zero_schedule_at(&s, 5, (long)i, &lr, NULL) == 0);
		CHECK(fabs(lr - fmin(1e-3, i < 1 ? 0 : (double)(i - 1) * 1e-4)) < 1e-12);
		s.linear = 0;
	}
	CHECK(kolo_zero_schedule_at(&s, 5, 1L << 60, NULL, NULL) == 0);
}

/* What the schedule says is what the optimizer does: SGD moves x by lr times the gradient. */
static void moves_by_the_rate(struct t_rank *t)
{
	struct kolo_zero_tensor tensor = { .name = "x", .type = KOLO_F32 };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c;
	struct kolo_zero_group g;
	struct kolo_zero *zero;
	float gradient = 1, before = 0, after;

	kolo_zero_config_init(&c);
	kolo_zero_group_init(&g, KOLO_ZERO_SGD);
	kolo_zero_schedule_init(&g.schedule, KOLO_ZERO_RANGE_TEST);
	g.schedule.min_lr = 0.25;
	g.schedule.range_steps = 4;
	c.optimizer = KOLO_ZERO_SGD;
	c.groups = &g;
	c.ngroups = 1;
	CHECK(kolo_zero_create(comm, &c, &tensor, 1, &zero) == 0);
	for (int i = 0; i < 8; i++) {
		struct kolo_zero_result r;

		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
		CHECK(give(zero, 0, &gradient) == 0 && kolo_zero_step(zero, &r) == 0);
		CHECK(kolo_zero_get(zero, 0, &after) == 0);
		CHECK(r.lr == 0.25 * (1 + i / 4.0) && before - after == (float)r.lr);
		before = after;
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void the_optimizer_has_the_rate_of_the_schedule(void **state)
{
	(void)state;
	t_processes(2, moves_by_the_rate, NULL);
}

/* ---- What an optimizer is -------------------------------------------------------------------- */

static void an_optimizer_says_what_it_keeps(void **state)
{
	static const int moments[] = { 2, 2, 0, 1, 1, 2 };
	struct kolo_zero_optimizer_info info;
	struct kolo_zero_group group;
	int n = 0;

	(void)state;
	for (; kolo_zero_optimizer_name((enum kolo_zero_optimizer)n); n++) {
		enum kolo_zero_optimizer optimizer = (enum kolo_zero_optimizer)n;

		kolo_zero_group_init(&group, optimizer);
		CHECK(group.lr > 0);
		CHECK(kolo_zero_optimizer_get(optimizer, &group, &info) == 0);
		CHECK(info.moments == moments[n]);
		CHECK(info.passes == (optimizer == KOLO_ZERO_LAMB ? 2 : 1));
	}
	CHECK(n == 6);
	kolo_zero_group_init(&group, KOLO_ZERO_SGD);
	group.momentum = 0.9;
	CHECK(kolo_zero_optimizer_get(KOLO_ZERO_SGD, &group, &info) == 0 && info.moments == 1);
	CHECK(kolo_zero_optimizer_get((enum kolo_zero_optimizer)n, &group, &info) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "optimizer 6") != NULL);
}

/* ---- Dividing before the sum ----------------------------------------------------------------- */

static void one_f16_step(struct kolo_comm *comm, double predivide, float value,
			 struct kolo_zero_result *out)
{
	struct kolo_zero_tensor tensor = { .name = "x", .type = KOLO_F16 };
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	uint16_t gradient;

	kolo_zero_config_init(&c);
	c.predivide = predivide;
	c.micro_batch = 1;
	CHECK(kolo_cast(&value, KOLO_F32, &gradient, KOLO_F16, 1, 1) == 0);
	CHECK(kolo_zero_create(comm, &c, &tensor, 1, &zero) == 0);
	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	CHECK(give(zero, 0, &gradient) == 0 && kolo_zero_step(zero, out) == 0);
	kolo_zero_destroy(zero);
}

static void predivided(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_result r;

	/* 4 x 20000 is too much for 16 bits, unless it is divided before. */
	one_f16_step(comm, 0, 20000, &r);
	CHECK(r.updated && r.norm == 20000);
	one_f16_step(comm, 2, 20000, &r);
	CHECK(r.updated && r.norm == 20000);
	one_f16_step(comm, 1, 20000, &r);
	CHECK(r.skipped && strstr(r.overflow, "in the sum over ranks") != NULL);
	/* The smallest number there is, divided by 4, is none. */
	one_f16_step(comm, 0, 0x1p-24f, &r);
	CHECK(r.updated && r.norm == 0);
	one_f16_step(comm, 1, 0x1p-24f, &r);
	CHECK(r.updated && r.norm == 0x1p-24);
	kolo_comm_destroy(comm);
}

static void what_gradients_are_divided_by_first_is_made_up_for_later(void **state)
{
	(void)state;
	t_processes(4, predivided, NULL);
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

static void refuses(struct kolo_zero_schedule s, const char *text)
{
	CHECK(kolo_zero_schedule_at(&s, 1, 0, NULL, NULL) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), text) != NULL);
}

static void wrong_schedules_are_refused_by_name(void **state)
{
	struct kolo_zero_schedule warmup, decay, cycle, range;

	(void)state;
	kolo_zero_schedule_init(&warmup, KOLO_ZERO_WARMUP);
	kolo_zero_schedule_init(&decay, KOLO_ZERO_WARMUP_DECAY);
	kolo_zero_schedule_init(&cycle, KOLO_ZERO_ONE_CYCLE);
	kolo_zero_schedule_init(&range, KOLO_ZERO_RANGE_TEST);
	refuses(decay, "WarmupDecayLR: total_steps is 0, and must be more than warmup_steps");
#define WITH(s, field, value, text)                                                                \
	do {                                                                                       \
		struct kolo_zero_schedule changed = s;                                             \
		changed.field = value;                                                             \
		refuses(changed, text);                                                            \
	} while (0)
	WITH(warmup, min_lr, NAN, "WarmupLR: min_lr is nan");
	WITH(warmup, max_lr, -1, "WarmupLR: max_lr is -1");
	WITH(warmup, warmup_steps, -1, "warmup_steps is -1");
	WITH(warmup, linear, 2, "linear is 2");
	WITH(warmup, warmup_ratio, -1, "warmup_ratio is -1");
	WITH(warmup, final_ratio, INFINITY, "final_ratio is inf");
	WITH(warmup, reserved[1], 1, "kolo_zero_schedule_init");
	WITH(warmup, type, (enum kolo_zero_schedule_type)9, "schedule.type is 9");
	WITH(cycle, max_lr, -1, "OneCycle: max_lr is -1");
	WITH(cycle, first_steps, 0, "first_steps is 0");
	WITH(cycle, second_steps, -1, "second_steps is -1");
	WITH(cycle, decay_steps, -1, "decay_steps is -1");
	WITH(cycle, decay_rate, -1, "decay_rate is -1");
	WITH(cycle, cycle_momentum, 3, "cycle_momentum is 3");
	WITH(cycle, min_momentum, 1, "min_momentum is 1");
	WITH(cycle, max_momentum, 0.5, "max_momentum is 0.5");
	WITH(cycle, momentum_decay_rate, -1, "momentum_decay_rate is -1");
	WITH(range, range_steps, 0, "LRRangeTest: range_steps is 0");
	WITH(range, range_rate, -1, "range_rate is -1");
	WITH(range, staircase, -1, "staircase is -1");
#undef WITH
	CHECK(kolo_zero_schedule_at(NULL, 1, 0, NULL, NULL) == KOLO_EINVAL);
	CHECK(kolo_zero_schedule_at(&warmup, 1, -1, NULL, NULL) == KOLO_EINVAL);
	CHECK(strcmp(kolo_zero_schedule_name(KOLO_ZERO_WARMUP_COSINE), "WarmupCosineLR") == 0);
	CHECK(kolo_zero_schedule_name((enum kolo_zero_schedule_type)6) == NULL);
}

static void refuses_config(struct kolo_comm *comm, const struct kolo_zero_config *c,
			   const char *text)
{
	struct kolo_zero_tensor tensor = { .name = "x", .type = KOLO_F32 };
	struct kolo_zero *zero;

	CHECK(kolo_zero_create(comm, c, &tensor, 1, &zero) == KOLO_EINVAL && zero == NULL);
	CHECK(strstr(kolo_last_error(), text) != NULL);
}

static void wrong_settings(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensor = { .name = "x", .type = KOLO_F32 };
	struct kolo_zero_config c;
	struct kolo_zero_group g;
	struct kolo_zero *zero;

	c = scaled_config(0, 1000, 2, false);
	refuses_config(comm, &c, "initial 0");
	c = scaled_config(0.5, 1000, 2, false);
	refuses_config(comm, &c, "min is 1 and initial 0.5");
	c = scaled_config(16, 0, 2, false);
	refuses_config(comm, &c, "window is 0");
	c = scaled_config(16, 1, 0, false);
	refuses_config(comm, &c, "hysteresis 0");
	c = scaled_config(16, 1, 1, 2);
	c.scaling.consecutive = 2;
	refuses_config(comm, &c, "consecutive is 2");
	c.loss_scale = -1;
	refuses_config(comm, &c, "loss_scale is -1");
	c.loss_scale = 1;
	c.predivide = -2;
	refuses_config(comm, &c, "predivide is -2");
	c.predivide = 0;
	c.scaling.consecutive = 0;
	kolo_zero_group_init(&g, c.optimizer);
	kolo_zero_schedule_init(&g.schedule, KOLO_ZERO_WARMUP);
	c.groups = &g;
	c.ngroups = 1;
	CHECK(kolo_zero_create(comm, &c, &tensor, 1, &zero) == 0);
	CHECK(kolo_zero_set_lr(zero, 0, 1) == KOLO_EINVAL);
	CHECK(strstr(kolo_last_error(), "WarmupLR") != NULL);
	CHECK(kolo_zero_lr_get(zero, 1, NULL, NULL) == KOLO_EINVAL);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void wrong_settings_are_refused_by_name(void **state)
{
	(void)state;
	t_processes(1, wrong_settings, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_loss_scale_is_that_of_deepspeed_after_every_step),
	cmocka_unit_test(a_trace_by_hand_holds),
	cmocka_unit_test(a_scale_that_grows_does_not_change_gradients),
	cmocka_unit_test(an_overflow_at_the_least_scale_is_told_and_harms_nothing),
	cmocka_unit_test(schedules_are_those_of_deepspeed_and_stand_still_in_skipped_updates),
	cmocka_unit_test(a_warm_up_by_hand_holds),
	cmocka_unit_test(the_optimizer_has_the_rate_of_the_schedule),
	cmocka_unit_test(an_optimizer_says_what_it_keeps),
	cmocka_unit_test(what_gradients_are_divided_by_first_is_made_up_for_later),
	cmocka_unit_test(wrong_schedules_are_refused_by_name),
	cmocka_unit_test(wrong_settings_are_refused_by_name),
};

T_MAIN(tests)
