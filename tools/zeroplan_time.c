/* How long an update takes, from bytes and bandwidths: arithmetic alone. Two phases follow each other: the passes of the model, and
 * the optimizer's; in each, ways of their own go side by side as far as there are cores for them. README.md has it in formulas. */
#include "zeroplan.h"

#include <math.h>

/* Seconds for so many bytes: none take none. */
static double seconds_of(double bytes, double rate)
{
	return bytes == 0 ? 0 : rate > 0 ? bytes / rate : NAN;
}

double pass_bytes(const struct work *w)
{
	double gradient = w->accumulation > 1 ? sizeof(float) : (double)w->size;
	double state = sizeof(float) * (1.0 + w->moments); /* master and moments */
	double bytes = 2 * gradient + 2 * state;           /* the norm reads gradients once more */

	if (w->size < sizeof(float))
		bytes += (double)w->size; /* the parameter beside its master */
	return w->lamb ? bytes + state : bytes;
}

/* ---- Phases --------------------------------------------------------------------------------------------- */

/* What goes on side by side: the longest of them takes its time, and what cores do takes the cores' time. */
struct phase {
	double longest, busy; /* busy: seconds of one core */
};

static void add_way(struct phase *p, double seconds, double busy)
{
	/* fmax ignores NaN; an unknown time makes all unknown. */
	p->longest = isnan(seconds) || seconds > p->longest ? seconds : p->longest;
	p->busy += busy;
}

/* Bandwidths are of what a rank has while others share its cores: less than one is one. */
static double cores_of(const struct bandwidths *b)
{
	return fmax(b->cores, 1);
}

static double end_phase(const struct phase *p, const struct bandwidths *b)
{
	if (isnan(p->longest) || isnan(p->busy))
		return NAN;
	return b->cores > 0 ? fmax(p->longest, p->busy / cores_of(b)) : p->longest;
}

/* ---- An update ------------------------------------------------------------------------------------------ */

/* Bytes of state that the optimizer reads from files and writes back; of what else is read, parameters are. */
static double state_in_files(const struct work *w, const struct setting *s)
{
	const struct kolo_zero_traffic *t = w->traffic;
	double all = 2 * sizeof(float) * (1.0 + w->moments) * w->own * s->ratio * (w->lamb ? 2 : 1);

	if (s->optimizer != KOLO_ZERO_ON_NVME)
		return 0;
	return s->param == KOLO_ZERO_ON_NVME ? fmin(all, (double)(t->read_bytes + t->written_bytes))
					     : (double)(t->read_bytes + t->written_bytes);
}

static struct seconds ways_of(const struct work *w, const struct setting *s, const struct bandwidths *b)
{
	const struct kolo_zero_traffic *t = w->traffic;
	bool apart = b->device > 0;
	double copy = apart ? b->device / 2 : b->copy; /* bytes that are read and written */
	double away = s->optimizer == KOLO_ZERO_ON_DEVICE ? 0 : w->own * s->ratio;
	double home = w->own - away, size = (double)w->size, share = w->own / w->all;
	double unpacked = s->stage == 1 || s->stage == 2 ? w->gathered * (1 + share) : 0;

	return (struct seconds){
		.compute = b->compute,
		.fill = seconds_of(w->accumulation * size * (w->all + w->reduced * share), copy),
		.reduce = seconds_of((double)t->gradient_bytes, b->ring),
		.gather = seconds_of((double)t->parameter_bytes, b->ring) + seconds_of(size * w->used, copy),
		.unpack = seconds_of(size * unpacked, copy),
		.down = seconds_of((double)t->down_bytes, b->copy),
		.up = seconds_of((double)t->up_bytes, b->copy),
		.update = seconds_of((away + (apart ? 0 : home)) * pass_bytes(w), b->memory),
		.home = apart ? seconds_of(home * pass_bytes(w), b->device) : 0,
		.files = seconds_of((double)(t->read_bytes + t->written_bytes), b->disk),
	};
}

struct seconds time_of(const struct work *w, const struct setting *s, const struct bandwidths *b)
{
	struct seconds x = ways_of(w, s, b);
	double state = seconds_of(state_in_files(w, s), b->disk), ring = x.reduce + x.gather;
	double model = x.compute + x.fill + (w->overlap ? 0 : ring);
	bool shards_away = s->param != KOLO_ZERO_ON_DEVICE;
	struct phase passes = { 0 }, update = { 0 };

	add_way(&passes, model, model);
	if (w->overlap)
		add_way(&passes, ring, ring);
	add_way(&passes, x.down, x.down);
	if (shards_away)
		add_way(&passes, x.up, x.up);
	add_way(&passes, x.files - state, 0);
	/* The pass is on all cores. */
	add_way(&update, x.update + x.unpack, x.update * cores_of(b) + x.unpack);
	add_way(&update, x.home, 0);
	if (!shards_away)
		add_way(&update, x.up, x.up);
	add_way(&update, state, 0);
	x.total = end_phase(&passes, b) + end_phase(&update, b);
	return x;
}
