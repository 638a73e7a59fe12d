/* A micro-step: kolo_zero_forward, kolo_zero_backward and kolo_zero_step, and the record that ranks
 * exchange at the end of an update. */
#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/optim/optimizer.h"
#include "zero/step/given.h"
#include "zero/step/gradients.h"
#include "zero/step/norm.h"
#include "zero/step/params.h"
#include "zero/step/tied.h"
#include "zero/step/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Forward and backward -------------------------------------------------------------------- */

/* The largest number of samples of any rank in the first micro-step weighs 1 / nranks. */
static int agree_on_micro_batch(struct kolo_zero *z, size_t samples)
{
	uint64_t most = samples > 1 ? samples : 1;
	int rc = kolo_all_reduce(z->control, &most, &most, 1, KOLO_U64, KOLO_MAX, NULL);

	z->micro_batch = most;
	return rc;
}

int kolo_zero_forward(struct kolo_zero *z, size_t samples)
{
	int rc = zero_check(z);

	if (rc < 0)
		return rc;
	if (z->phase != ZERO_IDLE)
		return zero_misuse(z, "forward in a micro-step that kolo_zero_step has not ended");
	if (z->micro_batch == 0 && (rc = agree_on_micro_batch(z, samples)) < 0)
		return zero_failed_at(z, rc, -1);
	z->phase = ZERO_FORWARD;
	z->told = false;
	z->phase_began = zero_now();
	z->micro_samples = samples;
	z->weight = (float)((double)samples / ((double)z->micro_batch * z->predivide));
	zero_reducer_begin(z);
	return 0;
}

/* Ends a phase and begins the next one. Returns how long the phase took, in seconds. */
static double end_phase(struct kolo_zero *z)
{
	double began = z->phase_began;

	z->phase_began = zero_now();
	return z->phase_began - began;
}

int kolo_zero_backward(struct kolo_zero *z, double loss)
{
	int rc = zero_check(z);

	if (rc < 0)
		return rc;
	if (z->phase == ZERO_IDLE || z->told)
		return zero_misuse(z, "backward without kolo_zero_forward before it");
	zero_begin_backward(z);
	z->told = true;
	/* Without samples there is no mean loss. */
	if (z->micro_samples) {
		z->learnt++;
		z->samples += (double)z->micro_samples;
		z->loss += loss * (double)z->micro_samples;
	}
	return 0;
}

/* ---- What ranks tell each other -------------------------------------------------------------- */

struct record {
	struct zero_squares squares;
	double loss, samples;
	int64_t family;    /* of the engine */
	uint64_t uses;     /* hash of the order of uses and releases */
	uint64_t settings; /* hash of learning rates, the loss scale, and the unit of gradients */
	uint64_t lacks;    /* 1: this rank did not give all gradients */
	struct zero_nonfinite nonfinite;
};

/* The records of all ranks, added up. */
struct summary {
	struct zero_squares squares;
	double loss, known;  /* times samples; samples of the ranks that know it */
	double samples;      /* of this engine's ranks */
	bool lacks;          /* some rank of this engine did not give all gradients */
	int lacks_elsewhere; /* the first rank of another engine that did not; -1: none */
	int nonfinite_rank;
	struct zero_nonfinite nonfinite;
	char overflow[sizeof(((struct kolo_zero_result *)0)->overflow)];
};

/* Ranks of this engine use their tensors in the same order. All have the same settings. */
static int compare(const struct kolo_zero *z, const struct record *records, int n)
{
	const struct record *first = &records[z->family];

	for (int r = 0; r < n; r++) {
		if (records[r].family == first->family && records[r].uses != first->uses)
			return kolo_error_set(
				KOLO_EMISMATCH,
				"rank %d used or released its tensors in another order than rank %d since the last update",
				r, (int)(first - records));
		if (records[r].settings != records[0].settings)
			return kolo_error_set(
				KOLO_EMISMATCH,
				"rank %d has other learning rates, or another loss scale%s, than rank 0",
				r, z->world ? ", micro-batch, division or accumulation" : "");
	}
	return 0;
}

/* Adds up the records in the order of ranks. The value that is not finite is that of the first rank
 * whose own gradient had one. If there is none, it is that of the first rank that found one in a
 * sum. */
static int summarize(struct kolo_zero *z, const struct record *records, int n, struct summary *out)
{
	int rc = compare(z, records, n);

	*out = (struct summary){ .squares = zero_squares_none(),
				 .nonfinite = { .tensor = -1 },
				 .lacks_elsewhere = -1 };
	for (int r = 0; rc == 0 && r < n; r++) {
		const struct record *record = &records[r];
		bool here = record->family == z->family;
		bool first = out->nonfinite.tensor < 0 ||
			     (out->nonfinite.reduced && !record->nonfinite.reduced);

		zero_squares_add(&out->squares, &record->squares);
		if (!z->world || !__builtin_isnan(record->loss)) {
			out->loss += record->loss;
			out->known += record->samples;
		}
		if (here)
			out->samples += record->samples;
		out->lacks = out->lacks || (here && record->lacks);
		if (!here && record->lacks && out->lacks_elsewhere < 0)
			out->lacks_elsewhere = r;
		if (record->nonfinite.tensor >= 0 && first) {
			out->nonfinite = record->nonfinite;
			out->nonfinite_rank = r;
		}
	}
	return rc;
}

static uint64_t hash_settings(const struct kolo_zero *z)
{
	uint64_t hash = zero_hash(ZERO_HASH, &z->scaler.scale, sizeof(z->scaler.scale));

	for (int i = 0; i < z->config.ngroups; i++)
		hash = zero_hash(hash, &z->config.groups[i].lr, sizeof(z->config.groups[i].lr));
	/* Of several engines squares are added up in the same unit. */
	if (z->world) {
		const double unit[] = { (double)z->micro_batch * z->predivide, z->config.clip,
					z->config.accumulation, z->config.stage < 2 };

		hash = zero_hash(hash, unit, sizeof(unit));
	}
	return hash;
}

static void describe_overflow(const struct kolo_zero *z, const struct summary *s, char *out,
			      size_t len)
{
	const struct zero_nonfinite *c = &s->nonfinite;
	const char *name = z->tensors[c->tensor].name;

	if (c->reduced)
		snprintf(
			out, len,
			"gradient of tensor '%s' at index %llu is %g in the sum over ranks (found by its owner, rank %d; "
			"each rank's own was finite)",
			name, (unsigned long long)c->index, c->value, s->nonfinite_rank);
	else
		snprintf(out, len,
			 "gradient of tensor '%s' at index %llu is %g on rank %d, micro-step %d",
			 name, (unsigned long long)c->index, c->value, s->nonfinite_rank, c->micro);
}

/* The rank that has the tensor tells all others what it is called. */
static int share_overflow(struct kolo_zero *z, struct summary *s)
{
	if (!z->world || kolo_comm_rank(z->world) == s->nonfinite_rank)
		describe_overflow(z, s, s->overflow, sizeof(s->overflow));
	return z->world ? kolo_broadcast(z->world, s->overflow, s->overflow, sizeof(s->overflow),
					 KOLO_U8, s->nonfinite_rank, NULL)
			: 0;
}

static int exchange(struct kolo_zero *z, struct summary *out)
{
	struct kolo_comm *comm = z->world ? z->world : z->control;
	struct record own = {
		.loss = z->loss,
		.samples = z->samples,
		.family = z->family,
		.uses = z->trace.hash,
		.settings = hash_settings(z),
		.lacks = !zero_given_all(z),
		.nonfinite = z->nonfinite,
	};
	int n = kolo_comm_nranks(comm), rc;
	struct record *all = calloc((size_t)n, sizeof(*all));

	if (!all)
		return kolo_error_set(KOLO_ENOMEM, "rank %d: records of %d ranks: out of memory",
				      z->rank, n);
	rc = zero_square_sum(z, &own.squares);
	if (rc == 0 && own.squares.level == ZERO_NOT_FINITE && own.nonfinite.tensor < 0)
		rc = zero_find_nonfinite(z, &own.nonfinite);
	if (rc == 0)
		rc = kolo_all_gather(comm, &own, all, sizeof(own), KOLO_U8, NULL);
	z->traffic.control_bytes += (uint64_t)(n - 1) * sizeof(own);
	if (rc == 0)
		rc = summarize(z, all, n, out);
	if (rc == 0 && out->nonfinite.tensor >= 0)
		rc = share_overflow(z, out);
	free(all);
	return rc;
}

/* ---- The update ------------------------------------------------------------------------------ */

/* Unscales, clips and updates, or skips the update. In the sums a sample weighs 1 / (micro_batch
 * predivide). */
static int apply(struct kolo_zero *z, const struct summary *s, struct kolo_zero_result *out)
{
	double unit = (double)z->micro_batch * z->predivide;
	/* Sums of micro-steps were divided by the number of micro-steps before they were
	 * reduced. */
	int summed = z->config.stage < 2 ? z->config.accumulation : 1;
	double mean = s->samples > 0 ? unit * summed / s->samples / z->scaler.scale : 0;
	double clip = 1;
	int rc;

	out->samples = (size_t)s->samples;
	out->loss = s->known > 0 ? s->loss / s->known : 0;
	out->norm = __builtin_sqrt(zero_squares_value(&s->squares)) * mean;
	out->loss_scale = z->scaler.scale;
	out->lr = zero_optimizer_scheduled(&z->config.groups[0], z->step + 1).lr;
	if (s->nonfinite.tensor >= 0) {
		out->skipped = 1;
		memcpy(out->overflow, s->overflow, sizeof(out->overflow));
		z->skipped++;
		return 0;
	}
	/* Without a sample there is nothing to learn from. */
	if (s->samples == 0)
		return 0;
	/* torch.nn.utils.clip_grad_norm_ */
	if (z->config.clip > 0 && z->config.clip / (out->norm + 1e-6) < 1)
		clip = z->config.clip / (out->norm + 1e-6);
	rc = zero_update(z, (float)(mean * clip));
	if (rc == 0) {
		z->step++;
		z->total_samples += out->samples;
		out->updated = 1;
	}
	return rc;
}

static void begin_update(struct kolo_zero *z)
{
	z->micro = 0;
	z->samples = z->loss = 0;
	z->nonfinite.tensor = -1;
	z->trace.hash = ZERO_HASH;
	zero_given_forget(z);
	for (int i = 0; i < z->ntensors; i++)
		z->tensors[i].summed = z->tensors[i].used = false;
}

static int finish_update(struct kolo_zero *z, struct kolo_zero_result *out)
{
	double began = zero_now(), gather = z->times.gather;
	struct summary summary = { 0 };
	int rc;

	zero_params_drop(z);
	rc = z->config.tied ? zero_tied_add(z) : 0;
	if (rc == 0)
		rc = exchange(z, &summary);
	if (rc == 0 && summary.lacks)
		rc = zero_given_count(z, out);
	if (rc == 0 && z->config.strict && summary.lacks_elsewhere >= 0)
		rc = zero_misuse(
			z,
			"rank %d, of another engine, gave too few gradients; config.strict refuses this update",
			summary.lacks_elsewhere);
	if (rc == 0)
		rc = apply(z, &summary, out);
	/* An update that is refused is over, too. */
	if (rc == 0 || rc == KOLO_EINVAL) {
		z->attempts++;
		begin_update(z);
	}
	z->times.update += zero_now() - began - (z->times.gather - gather);
	return rc;
}

/* Called after the update: its gradients had the old scale. */
static int adapt_scale(struct kolo_zero *z, const struct kolo_zero_result *r)
{
	bool good = r->updated || r->skipped
			    ? zero_scaler_update(&z->scaler, &z->config.scaling, r->skipped)
			    : true;

	if (good)
		return 0;
	return kolo_error_set(KOLO_EOVERFLOW,
			      "rank %d: the loss scale is %g, the least it may be, and yet %s",
			      z->rank, z->scaler.scale, r->overflow);
}

static int check_step(struct kolo_zero *z)
{
	int rc = zero_check(z);

	if (rc < 0)
		return rc;
	if (z->phase == ZERO_IDLE || !z->told)
		return zero_misuse(z, "step without kolo_zero_backward before it");
	for (int i = 0; i < z->ntensors; i++)
		if (z->tensors[i].uses)
			return zero_misuse(z, "step while tensor '%s' is in use: release it first",
					   z->tensors[i].name);
	return 0;
}

int kolo_zero_step(struct kolo_zero *z, struct kolo_zero_result *out)
{
	struct kolo_zero_result result = { 0 };
	int rc = check_step(z);

	if (rc < 0)
		return rc;
	z->times.backward += end_phase(z);
	if (zero_reduces_now(z))
		rc = zero_reducer_finish(z);
	if (rc == 0) {
		rc = zero_trace_end(z);
		z->phase = ZERO_IDLE;
		z->micro++;
		if (rc == 0 && z->micro == z->config.accumulation)
			rc = finish_update(z, &result);
		if (rc == 0)
			rc = adapt_scale(z, &result);
		z->times.step += end_phase(z);
		z->times.micro_steps++;
	}
	result.step = z->step;
	if (out)
		*out = result;
	return zero_failed_at(z, rc, -1);
}
