/* Plans an engine (kolo_zero_plan_create): describes it without its memory, and lets a model use
 * its tensors without a value being moved. An engine also asks here whether it fits
 * (zero_plan_fits). */
#include "zero/create/plan.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/create/check.h"
#include "zero/create/describe.h"
#include "zero/offload/shards.h"
#include "zero/optimizers/list.h"
#include "zero/step/gather.h"
#include "zero/step/gradients.h"
#include "zero/step/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kolo_zero_plan {
	struct kolo_zero zero;
	struct kolo_zero_traffic traffic;
};

/* ---- Gathered parameters --------------------------------------------------------------------- */

static int use_once(struct kolo_zero *z, int tensor)
{
	int rc = kolo_zero_use(z, tensor, NULL);

	return rc == 0 ? kolo_zero_release(z, tensor) : rc;
}

/* Plays a micro-step of a model that uses each tensor alone. */
static int use_all(struct kolo_zero *z)
{
	int rc = 0;

	z->phase = ZERO_FORWARD;
	for (int i = 0; rc == 0 && i < z->ntensors; i++)
		rc = use_once(z, i);
	z->phase = ZERO_BACKWARD;
	for (int i = z->ntensors; rc == 0 && i-- > 0;)
		rc = use_once(z, i);
	if (rc == 0)
		rc = zero_trace_end(z);
	z->phase = ZERO_IDLE;
	return rc;
}

int zero_plan_uses(struct kolo_zero *z, struct kolo_zero_traffic *of_one)
{
	int rc;

	z->dry = true;
	/* The first micro-step learns the order. */
	rc = use_all(z);
	z->traffic = (struct kolo_zero_traffic){ 0 };
	z->up_bytes = z->down_bytes = z->dry_read_bytes = 0;
	if (rc == 0)
		rc = use_all(z);
	zero_params_drop(z);
	if (rc == 0)
		rc = zero_param_buffers_forget(z);
	*of_one = z->traffic;
	of_one->up_bytes = z->up_bytes;
	of_one->read_bytes = z->dry_read_bytes;
	z->dry_gathered = z->most_gathered;
	z->dry = false;
	z->traffic = (struct kolo_zero_traffic){ 0 };
	z->up_bytes = z->dry_read_bytes = 0;
	z->most_gathered = z->most_used = 0;
	z->param_buffers.turn = 0;
	z->trace.n = z->trace.at = 0;
	z->trace.matches = false;
	z->trace.hash = ZERO_HASH;
	for (int i = 0; i < z->ntensors; i++)
		z->tensors[i].used = false;
	return rc;
}

/* ---- Does it pay? ---------------------------------------------------------------------------- */

void zero_plan_warn(struct kolo_zero *z)
{
	const struct zero_tensor *largest = NULL;
	size_t saved = 0;

	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		if (!t->sharded)
			continue;
		saved += (t->shard_place == ZERO_ON_DEVICE ? t->n - t->chunk : t->n) *
			 kolo_type_size(t->type);
		if (!largest || t->n > largest->n)
			largest = t;
	}
	if (!largest || z->dry_gathered < saved)
		return;
	snprintf(
		z->warning, sizeof(z->warning),
		"stage 3 shards %.1f MiB of each rank's parameters away and gathers up to %.1f MiB of them at a time (config.prefetch is %zu elements%s, the largest tensor '%.64s' has %zu): %s",
		(double)saved / 0x1p20, (double)z->dry_gathered / 0x1p20, z->config.prefetch,
		z->config.overlap ? "" : ", not used without overlap", largest->name, largest->n,
		z->config.prefetch > largest->n && z->config.overlap
			? "a smaller prefetch saves memory, stage 2 saves traffic"
			: "smaller tensors would save memory, stage 2 saves traffic");
}

const char *kolo_zero_warning(const struct kolo_zero *z)
{
	return z && *z->warning ? z->warning : NULL;
}

const char *kolo_zero_plan_warning(const struct kolo_zero_plan *plan)
{
	return plan ? kolo_zero_warning(&plan->zero) : NULL;
}

/* ---- Does it fit? ---------------------------------------------------------------------------- */

enum { TEXT = 300 };

/* Writes "parameters 12.0 MiB, moments 8.0 MiB" for what is at a place. Returns the sum, in whole
 * pages. */
static size_t list_kinds(const struct kolo_zero *z, enum zero_place place, char text[TEXT])
{
	size_t sum = 0, at = 0;

	text[0] = 0;
	for (int k = 0; k < ZERO_NKINDS; k++) {
		bool gathered = k == ZERO_GATHERED && place == ZERO_ON_DEVICE;
		size_t bytes =
			gathered ? z->dry_gathered : zero_whole_pages(z->arenas[place][k].used);

		sum += bytes;
		if (bytes && at < TEXT)
			at += (size_t)snprintf(text + at, TEXT - at, "%s%s %.1f MiB",
					       at ? ", " : "", zero_kind_name((enum zero_kind)k),
					       (double)bytes / 0x1p20);
	}
	return sum;
}

static const char AT_STAGE_0[] =
	"stage 1 shards master weights and moments, and lets offload_optimizer take them elsewhere";

static const char *advice(const struct kolo_zero *z)
{
	const struct kolo_zero_config *c = &z->config;

	if (c->stage == 0)
		return AT_STAGE_0;
	if (c->stage < 3 && c->offload_optimizer.place != KOLO_ZERO_ON_DEVICE && z->nranks > 1)
		return "a higher stage shards more of it";
	if (c->offload_optimizer.place == KOLO_ZERO_ON_DEVICE)
		return "offload_optimizer takes master weights and moments off it, stage 3 with offload_param parameters too";
	if (c->stage < 3 || c->offload_param.place == KOLO_ZERO_ON_DEVICE)
		return "stage 3 with offload_param takes parameters off it";
	return "smaller buckets and a smaller prefetch need less";
}

static int check_device(const struct kolo_zero *z)
{
	struct kolo_zero_device_info info = { 0 };
	char text[TEXT];
	size_t want = list_kinds(z, ZERO_ON_DEVICE, text), room;

	z->device->ops->get(z->device, &info);
	room = info.budget > info.used ? info.budget - info.used : 0;
	if (want <= room)
		return 0;
	return kolo_error_set(
		KOLO_ENOMEM,
		"rank %d: needs %.1f MiB on the device (%s), where %.1f MiB are free: %.1f MiB too much (%s); %s",
		z->rank, (double)want / 0x1p20, info.name, (double)room / 0x1p20,
		(double)(want - room) / 0x1p20, text, advice(z));
}

size_t zero_plan_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib;
	size_t bytes = SIZE_MAX;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			bytes = (size_t)kib << 10;
	if (file)
		fclose(file);
	return bytes;
}

static const char *advice_for_host(const struct kolo_zero *z)
{
	const struct kolo_zero_config *c = &z->config;

	if (c->stage == 0)
		return AT_STAGE_0;
	if (c->offload_optimizer.place != KOLO_ZERO_ON_NVME)
		return "offload_optimizer to nvme takes master weights and moments off it";
	if (c->stage < 3 && z->nranks > 1)
		return "a higher stage shards more of it";
	if (c->offload_param.place != KOLO_ZERO_ON_NVME)
		return "stage 3 with offload_param to nvme takes parameters off it";
	return "fewer and smaller buffers need less";
}

/* Lists what is in host memory: what the model computes with if there is no device, and what is
 * offloaded. Returns the bytes of both. */
static size_t list_host(const struct kolo_zero *z, char used[TEXT], char offloaded[TEXT])
{
	used[0] = 0;
	return (z->device ? 0 : list_kinds(z, ZERO_ON_DEVICE, used)) +
	       list_kinds(z, ZERO_ON_HOST, offloaded);
}

size_t zero_plan_host_bytes(const struct kolo_zero *z)
{
	char used[TEXT], offloaded[TEXT];

	return list_host(z, used, offloaded);
}

static int check_host(const struct kolo_zero *z, size_t available, size_t others)
{
	char used[TEXT], offloaded[TEXT], beside[64] = "";
	size_t want = list_host(z, used, offloaded), budget = z->config.host_budget;
	size_t room = budget ? budget : available;

	if (budget)
		others = 0;
	if (want <= room && others <= room - want)
		return 0;
	if (others)
		snprintf(beside, sizeof(beside), ", other ranks here %.1f MiB",
			 (double)others / 0x1p20);
	return kolo_error_set(
		KOLO_ENOMEM,
		"rank %d: needs %.1f MiB of host memory%s, and %.1f MiB %s: %.1f MiB too much (%s%s%s); %s",
		z->rank, (double)want / 0x1p20, beside, (double)room / 0x1p20,
		budget ? "are its budget" : "are available",
		((double)want + (double)others - (double)room) / 0x1p20, used,
		*used && *offloaded ? ", " : "", offloaded, advice_for_host(z));
}

int zero_plan_fits(const struct kolo_zero *z, size_t available, size_t others)
{
	int rc = z->device ? check_device(z) : 0;

	return rc == 0 ? check_host(z, available, others) : rc;
}

/* ---- Traffic of one update ------------------------------------------------------------------- */

/* Counts the traffic of a parameter server: it gets all gradients, with padding, and sends all
 * parameters to each rank. */
static void plan_server(struct kolo_zero *z)
{
	for (int b = 0; z->rank > 0 && b < z->reducer.plan.nbuckets; b++)
		z->traffic.gradient_bytes += (uint64_t)z->nranks * z->reducer.plan.buckets[b].n *
					     kolo_type_size(z->reducer.plan.buckets[b].type);
	z->traffic.reductions = (uint64_t)z->reducer.plan.nbuckets;
	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];

		z->traffic.gathers += t->trained;
		if (t->trained && z->rank == 0)
			z->traffic.parameter_bytes +=
				(uint64_t)(z->nranks - 1) * t->n * kolo_type_size(t->type);
	}
}

static void plan_reductions(struct kolo_zero *z)
{
	const struct zero_plan *p = &z->reducer.plan;
	uint64_t times = z->config.stage >= 2 ? (uint64_t)z->config.accumulation : 1;

	for (int b = 0; b < p->nbuckets; b++)
		zero_count_reduction(z, &p->buckets[b]);
	z->traffic.reductions *= times;
	z->traffic.gradient_bytes *= times;
	z->traffic.padding_bytes *= times;
}

static void plan_gathers(struct kolo_zero *z)
{
	const struct zero_plan *p = &z->gatherer.plan;

	for (int b = 0; b < p->nbuckets; b++)
		zero_count_gather(z, &p->buckets[b]);
}

/* Counts what an update copies, reads and writes, except gathers for use. */
static void plan_crossings(struct kolo_zero *z, struct kolo_zero_traffic *out)
{
	const struct zero_state_blocks *u = &z->state_blocks;
	uint64_t pass = u->nblocks * (uint64_t)u->buffer_len *
			(zero_optimizer_has_ratios(z->config.optimizer) ? 2 : 1);

	out->read_bytes += pass;
	out->written_bytes += pass;
	for (int i = 0; i < z->ntensors; i++) {
		const struct zero_tensor *t = &z->tensors[i];
		size_t size = kolo_type_size(t->type);

		if (!t->trained)
			continue;
		if (t->shard_place == ZERO_IN_FILES && t->own.n)
			out->written_bytes += zero_whole_pages(t->own.n * size);
		if (!z->device)
			continue;
		out->down_bytes += t->offloaded.n * kolo_type_size(t->offloaded.grad_type);
		if (t->shard_place == ZERO_ON_DEVICE)
			out->up_bytes += t->offloaded.n * size;
		else
			out->down_bytes += (t->held.n - t->offloaded.n) * size;
	}
}

static int plan_traffic(struct kolo_zero_plan *plan)
{
	struct kolo_zero *z = &plan->zero;
	struct kolo_zero_traffic uses = { 0 }, *out = &plan->traffic;
	uint64_t times = (uint64_t)z->config.accumulation;
	int rc = zero_plan_uses(z, &uses);

	zero_plan_warn(z);
	if (z->config.parameter_server)
		plan_server(z);
	else
		plan_reductions(z);
	plan_gathers(z);
	*out = z->traffic;
	out->gathers += times * uses.gathers;
	out->parameter_bytes += times * uses.parameter_bytes;
	out->padding_bytes += times * uses.padding_bytes;
	out->up_bytes = times * uses.up_bytes;
	out->read_bytes = times * uses.read_bytes;
	plan_crossings(z, out);
	out->sent_bytes = out->gradient_bytes + out->parameter_bytes;
	return rc;
}

/* ---- Public ---------------------------------------------------------------------------------- */

int kolo_zero_plan_create(const struct kolo_zero_config *config,
			  const struct kolo_zero_tensor *tensors, int ntensors, int rank,
			  int nranks, struct kolo_zero_plan **out)
{
	struct kolo_zero_plan *plan;
	int rc;

	if (!out)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_plan_create without out");
	*out = NULL;
	if (nranks < 1 || rank < 0 || rank >= nranks)
		return kolo_error_set(KOLO_EINVAL, "a plan for rank %d of %d", rank, nranks);
	if ((rc = zero_check_arguments(config, tensors, ntensors)) < 0)
		return rc;
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return kolo_error_set(KOLO_ENOMEM, "a plan: out of memory");
	rc = zero_describe(&plan->zero, config, tensors, ntensors, rank, nranks);
	if (rc == 0)
		rc = plan_traffic(plan);
	if (rc < 0) {
		kolo_zero_plan_destroy(plan);
		return rc;
	}
	*out = plan;
	return 0;
}

void kolo_zero_plan_destroy(struct kolo_zero_plan *plan)
{
	if (!plan)
		return;
	free(plan->zero.trace.tensors);
	zero_undescribe(&plan->zero);
	free(plan);
}

int kolo_zero_plan_memory_get(const struct kolo_zero_plan *plan, int index,
			      struct kolo_zero_memory *out)
{
	int rc = kolo_zero_memory_get(plan ? &plan->zero : NULL, index, out);

	if (rc < 0)
		return rc;
	if (strcmp(out->kind, zero_kind_name(ZERO_GATHERED)) == 0)
		out->expected = plan->zero.dry_gathered;
	out->bytes = out->peak = out->expected;
	return 0;
}

void kolo_zero_plan_traffic_get(const struct kolo_zero_plan *plan, struct kolo_zero_traffic *out)
{
	*out = plan->traffic;
}

int kolo_zero_plan_check(const struct kolo_zero_plan *plan)
{
	if (!plan)
		return kolo_error_set(KOLO_EINVAL, "the plan is NULL");
	return zero_plan_fits(&plan->zero, zero_plan_available(), 0);
}
