/* Computes how long an update takes, from bytes and bandwidths alone. Three phases follow each
 * other: forward, backward, and the optimizer's pass. tools/zeroplan/README.md has the formula. */
#include "tools/zeroplan/zeroplan.h"

#include <math.h>

/* Seconds for so many bytes: none take none. */
static double seconds_of(double bytes, double rate)
{
	return bytes == 0 ? 0 : rate > 0 ? bytes / rate : NAN;
}

double pass_bytes(const struct work *w)
{
	double gradient = w->accumulation > 1 ? sizeof(float) : (double)w->size;
	double state = sizeof(float) * (1.0 + w->optimizer.moments); /* master and moments */
	double bytes = 2 * gradient + 2 * state; /* the norm reads gradients once more */

	if (w->size < sizeof(float))
		bytes += (double)w->size; /* the parameter beside its master */
	return bytes + (w->optimizer.passes - 1) * state;
}

/* ---- Phases ---------------------------------------------------------------------------------- */

/* What goes on side by side: the longest of them takes its time, and what cores do takes the cores'
 * time. */
struct phase {
	double longest, busy; /* busy: seconds of one core */
};

static void add_way(struct phase *p, double seconds, double busy)
{
	/* fmax ignores NaN; an unknown time makes all unknown. */
	p->longest = isnan(seconds) || seconds > p->longest ? seconds : p->longest;
	p->busy += busy;
}

static double end_phase(const struct phase *p, const struct bandwidths *b)
{
	if (isnan(p->longest) || isnan(p->busy))
		return NAN;
	/* Bandwidths are of what a rank has while others share its cores: less than one is one. */
	return b->cores > 0 ? fmax(p->longest, p->busy / fmax(b->cores, 1)) : p->longest;
}

/* ---- An update ------------------------------------------------------------------------------- */

/* Bytes of state that the optimizer reads from files and writes back; of what else is read,
 * parameters are. */
static double state_in_files(const struct work *w, const struct setting *s)
{
	const struct kolo_zero_traffic *t = &w->moved->engine;
	double all = 2 * sizeof(float) * (1.0 + w->optimizer.moments) * w->own * s->ratio *
		     w->optimizer.passes;

	if (s->optimizer != KOLO_ZERO_ON_NVME)
		return 0;
	return s->param == KOLO_ZERO_ON_NVME ? fmin(all, (double)(t->read_bytes + t->written_bytes))
					     : (double)(t->read_bytes + t->written_bytes);
}

static struct seconds ways_of(const struct work *w, const struct setting *s,
			      const struct bandwidths *b)
{
	const struct kolo_zero_traffic *t = &w->moved->engine;
	bool apart = b->device > 0;
	double copy = apart ? b->device / 2 : b->copy; /* bytes that are read and written */
	bool leaves = s->optimizer == KOLO_ZERO_ON_NVME ||
		      (s->optimizer == KOLO_ZERO_ON_HOST && w->device);
	double away = leaves ? w->own * s->ratio : 0, home = w->own - away, size = (double)w->size;
	double stored =
		w->device ? home
			  : w->own; /* elements whose gradients stay there; others are downloaded */
	double each = pass_bytes(w), each_away = each + (w->size < sizeof(float) ? 0 : size);
	double unpacked = s->stage == 1 || s->stage == 2 ? w->gathered : 0;

	return (struct seconds){
		.compute = b->compute,
		.bubble = b->compute * w->bubble_ratio,
		.tensor = seconds_of((double)w->moved->tensor_bytes, b->ring),
		.pipe = seconds_of((double)w->moved->pipe_bytes, b->ring),
		.fill = seconds_of(w->accumulation * size * (w->all + w->reduced * stored / w->all),
				   copy),
		.reduce = seconds_of((double)t->gradient_bytes, b->ring),
		.gather = seconds_of((double)t->parameter_bytes, b->ring) +
			  seconds_of(size * w->used, copy),
		.unpack = seconds_of(size * unpacked, copy),
		.down = seconds_of((double)t->down_bytes, b->copy),
		.up = seconds_of((double)t->up_bytes, b->copy),
		.update = seconds_of(away * each_away + (apart ? 0 : home * each), b->memory),
		.home = apart ? seconds_of(home * each, b->device) : 0,
		.files = seconds_of((double)(t->read_bytes + t->written_bytes), b->disk),
	};
}

/* The model's own work, with messages during it or after it. */
static void add_pass(struct phase *p, const struct work *w, double model, double messages)
{
	double behind = w->overlap ? 0 : messages;

	add_way(p, model + behind, model + behind);
	if (w->overlap)
		add_way(p, messages, messages);
}

struct seconds time_of(const struct work *w, const struct setting *s, const struct bandwidths *b)
{
	struct phase forward = { 0 }, backward = { 0 }, update = { 0 };
	struct seconds x = ways_of(w, s, b);
	double state = seconds_of(state_in_files(w, s), b->disk), shards = (x.files - state) / 2;
	double again =
		s->stage == 3 ? x.gather / 2 : 0; /* what is gathered for the backward pass too */
	bool shards_away = s->param != KOLO_ZERO_ON_DEVICE;
	double rise = shards_away ? x.up / 2 : 0;
	double model = x.compute + x.bubble + x.tensor;

	add_pass(&forward, w, model / 3, x.gather - again + x.pipe / 2);
	add_way(&forward, rise, rise);
	add_way(&forward, shards, 0);
	add_pass(&backward, w, model * 2 / 3 + x.fill, x.reduce + again + x.pipe / 2);
	add_way(&backward, rise, rise);
	add_way(&backward, x.down, x.down);
	add_way(&backward, shards, 0);
	/* The pass runs on all cores. Each of them waits for the core that copies. */
	add_way(&update, x.update + x.unpack + (b->cores > 0 ? x.up - 2 * rise : 0), 0);
	add_way(&update, x.home, 0);
	add_way(&update, x.up - 2 * rise, 0);
	add_way(&update, state, 0);
	x.total = end_phase(&forward, b) + end_phase(&backward, b) + end_phase(&update, b);
	return x;
}
