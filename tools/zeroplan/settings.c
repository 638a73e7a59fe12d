/* Asks the library what a setting needs and whether it fits, computes its time, and lists the
 * settings there are. */
#include "tools/zeroplan/zeroplan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const plan_place_words[NPLACES] = { "device", "host", "nvme" };

/* ---- One setting ----------------------------------------------------------------------------- */

static struct kolo_zero_config config_of(const struct run *r, const struct setting *s)
{
	struct kolo_zero_config c = r->config;

	c.stage = s->stage;
	c.device = r->device;
	c.offload_optimizer.place = s->optimizer;
	c.offload_optimizer.ratio = s->ratio;
	c.offload_param.place = s->param;
	return c;
}

/* What is not the engine's, where the model is computed. */
static void add_memory(const struct run *r, const char *kind, const char *formula, size_t bytes,
		       struct outcome *out)
{
	int place = r->device ? KOLO_ZERO_ON_DEVICE : KOLO_ZERO_ON_HOST;
	struct kolo_zero_memory m = { .kind = kind,
				      .place = plan_place_words[place],
				      .formula = formula,
				      .bytes = bytes,
				      .peak = bytes };

	if (bytes == 0 || out->nkinds == MOST_KINDS)
		return;
	out->bytes[place] += bytes;
	out->memory[out->nkinds++] = m;
}

/* Bytes of host memory: those that were given, else all of this machine's. */
static size_t host_memory(const struct options *o)
{
	long pages = sysconf(_SC_PHYS_PAGES), len = sysconf(_SC_PAGESIZE);

	if (o->host_memory)
		return o->host_memory;
	return pages > 0 && len > 0 ? (size_t)pages * (size_t)len : SIZE_MAX;
}

/* The engine fits, and beside it the model must. */
static void check_model(const struct run *r, struct outcome *out)
{
	bool device = r->device != NULL;
	size_t budget = device ? r->options->device_memory : host_memory(r->options);
	size_t used = out->bytes[device ? KOLO_ZERO_ON_DEVICE : KOLO_ZERO_ON_HOST];

	if (!out->fits || !r->grid.activations || used <= budget)
		return;
	out->fits = false;
	snprintf(out->reason, sizeof(out->reason),
		 "activations of %.1f MiB do not fit beside the engine: the %s lacks %.1f MiB",
		 (double)r->grid.activations / 1048576, device ? "device" : "host",
		 (double)(used - budget) / 1048576);
}

static void keep_memory(const struct kolo_zero_plan *plan, struct outcome *out)
{
	struct kolo_zero_memory m;

	while (out->nkinds < MOST_KINDS && kolo_zero_plan_memory_get(plan, out->nkinds, &m) == 0) {
		for (int p = 0; p < NPLACES; p++)
			if (strcmp(m.place, plan_place_words[p]) == 0)
				out->bytes[p] += m.peak;
		out->pinned += m.pinned;
		out->memory[out->nkinds++] = m;
	}
}

struct kolo_zero_optimizer_info optimizer_of(const struct kolo_zero_config *c)
{
	struct kolo_zero_optimizer_info info;

	kolo_zero_optimizer_get(c->optimizer, &c->groups[0], &info);
	return info;
}

/* Elements (WHOLE in zero/create/buckets.c). Tensors of this size, up to that of a bucket, have
 * operations of their own. If gradients are not contiguous, smaller ones have too. */
enum { OWN_OPERATION = 64 << 10 };

static double copied_elements(const struct tensors *t, size_t least, size_t most)
{
	double sum = 0;

	for (int i = 0; i < t->n; i++) {
		size_t n = tensor_elements(&t->list[i]);

		if (!t->list[i].frozen && (n < least || n > most))
			sum += (double)n;
	}
	return sum;
}

static struct work work_of(const struct run *r, const struct setting *s, const struct moved *moved)
{
	const struct kolo_zero_config *c = &r->config;
	size_t nranks = (size_t)r->grid.replicas, gathers = c->gather_bucket;
	struct work w = {
		.all = (double)r->tensors.trained,
		.reduced = copied_elements(&r->tensors, c->contiguous ? OWN_OPERATION : 0,
					   c->reduce_bucket),
		.size = kolo_type_size(r->type),
		.optimizer = optimizer_of(c),
		.device = r->device != NULL,
		.overlap = c->overlap,
		.accumulation = c->accumulation,
		.moved = moved,
		.bubble_ratio = r->grid.bubble_ratio,
	};

	if (c->sub_group && c->sub_group < gathers / nranks)
		gathers = c->sub_group * nranks;
	w.gathered = copied_elements(&r->tensors, OWN_OPERATION, gathers);
	w.own = s->stage == 0 ? w.all : ceil(w.all / (double)nranks);
	/* Forward and back. */
	if (s->stage == 3 &&
	    (s->param == KOLO_ZERO_ON_DEVICE || (s->param == KOLO_ZERO_ON_HOST && !r->device)))
		w.used =
			2.0 * w.accumulation * ceil((double)r->tensors.parameters / (double)nranks);
	return w;
}

int plan_report_failure(int rc)
{
	fprintf(stderr, "zeroplan: %s\n", kolo_last_error());
	return rc == KOLO_EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

static int keep_plan(const struct run *r, const struct kolo_zero_plan *plan, struct outcome *out)
{
	struct work work;
	int rc = kolo_zero_plan_check(plan);

	if (rc < 0 && rc != KOLO_ENOMEM)
		return plan_report_failure(rc);
	if (kolo_zero_plan_warning(plan))
		snprintf(out->warning, sizeof(out->warning), "%s", kolo_zero_plan_warning(plan));
	out->fits = rc == 0;
	if (rc < 0)
		snprintf(out->reason, sizeof(out->reason), "%s", kolo_last_error());
	keep_memory(plan, out);
	add_memory(r, "activations", "", r->grid.activations, out);
	add_memory(r, "the embedding's sums", "", r->grid.sums, out);
	check_model(r, out);
	kolo_zero_plan_traffic_get(plan, &out->moved.engine);
	out->moved.tensor_bytes = r->grid.tensor_bytes;
	out->moved.pipe_bytes = r->grid.pipe_bytes;
	work = work_of(r, &out->setting, &out->moved);
	out->seconds = time_of(&work, &out->setting, &r->bandwidths);
	return EXIT_GOOD;
}

int plan_setting(const struct run *r, const struct setting *s, struct outcome *out)
{
	struct kolo_zero_config config = config_of(r, s);
	struct kolo_zero_plan *plan;
	int rc;

	*out = (struct outcome){ .setting = *s, .seconds.total = NAN };
	out->status = kolo_zero_plan_create(&config, r->tensors.list, r->tensors.n, 0,
					    r->grid.replicas, &plan);
	if (out->status == KOLO_EINVAL) {
		snprintf(out->reason, sizeof(out->reason), "%s", kolo_last_error());
		return EXIT_GOOD;
	}
	if (out->status < 0)
		return plan_report_failure(out->status);
	rc = keep_plan(r, plan, out);
	kolo_zero_plan_destroy(plan);
	return rc;
}

/* ---- Which there are ------------------------------------------------------------------------- */

int list_asked(const struct run *r, struct setting out[ALL_STAGES])
{
	const struct kolo_zero_config *c = &r->config;
	bool all = r->options->stage == ALL_STAGES || (r->options->stage == UNSET && !r->settings);
	struct setting s = { c->stage, c->offload_optimizer.place, c->offload_param.place, 1 };

	if (s.optimizer != KOLO_ZERO_ON_DEVICE)
		s.ratio = c->offload_optimizer.ratio;
	out[0] = s;
	/* Each stage with what it has of the offload. */
	for (int stage = 0; all && stage < ALL_STAGES; stage++) {
		out[stage] = s;
		out[stage].stage = stage;
		if (stage == 0) {
			out[stage].optimizer = KOLO_ZERO_ON_DEVICE;
			out[stage].ratio = 1;
		}
		if (stage < 3)
			out[stage].param = KOLO_ZERO_ON_DEVICE;
	}
	return all ? ALL_STAGES : 1;
}

/* Host memory is a place of its own only if there is a device. */
static bool skips(const struct run *r, int place)
{
	return place == KOLO_ZERO_ON_HOST && !r->device;
}

int list_settings(const struct run *r, struct setting *out)
{
	static const double ratios[] = { 1, 0.75, 0.5, 0.25 };
	int n = 0;

	for (int stage = 0; stage < ALL_STAGES; stage++)
		for (int param = 0; param < (stage == 3 ? NPLACES : 1); param++)
			for (int place = 0; place < (stage > 0 ? NPLACES : 1); place++)
				for (int i = 0; i < (place == KOLO_ZERO_ON_DEVICE ? 1 : 4); i++) {
					if (skips(r, param) || skips(r, place))
						continue;
					if (out)
						out[n] = (struct setting){
							stage, (enum kolo_zero_place)place,
							(enum kolo_zero_place)param, ratios[i]
						};
					n++;
				}
	return n;
}

/* ---- Which is best --------------------------------------------------------------------------- */

static bool is_better(const struct outcome *a, const struct outcome *b)
{
	double x = a->seconds.total, y = b->seconds.total;

	if (a->fits != b->fits)
		return a->fits;
	return a->fits && !isnan(x) && (isnan(y) || x < y);
}

/* By insertion: equal ones keep their order. */
void sort_outcomes(struct outcome *outcomes, int n)
{
	for (int i = 1; i < n; i++) {
		struct outcome x = outcomes[i];
		int k = i;

		for (; k > 0 && is_better(&x, &outcomes[k - 1]); k--)
			outcomes[k] = outcomes[k - 1];
		outcomes[k] = x;
	}
}
