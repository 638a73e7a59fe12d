/* The tables of a checkpoint (zero_table_make), which part of each tensor this rank writes and
 * reads (zero_stored_part), and one outcome for all ranks (zero_all_well). */
#include "zero/checkpoint/checkpoint.h"

#include "zero/base/basics.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/core/tensor.h"
#include "zero/offload/offload.h"
#include "zero/offload/shards.h"
#include "zero/optim/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const zero_file_names[ZERO_NFILES] = { "weights.safetensors", "moment1.safetensors",
						   "moment2.safetensors" };

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Whether the file has an entry for a tensor, because some rank has such values. *type: their
 * type. */
static bool is_stored(const struct kolo_zero *z, const struct zero_tensor *t, enum zero_file file,
		      enum kolo_type *type)
{
	*type = zero_stored_type(t, file);
	if (file == ZERO_WEIGHTS)
		return true;
	return t->trained && (int)file <= zero_optimizer_moments(z->config.optimizer,
								 &z->config.groups[t->group]);
}

static int fill_entry(struct zero_entry *e, const struct zero_tensor *t, enum kolo_type type,
		      int tensor)
{
	e->name = malloc(strlen(t->name) + 1);
	if (!e->name)
		return kolo_error_set(KOLO_ENOMEM, "name of tensor '%s': out of memory", t->name);
	strcpy(e->name, t->name);
	e->type = type;
	e->ndims = t->ndims;
	memcpy(e->shape, t->whole.shape, sizeof(e->shape));
	e->n = t->whole.n;
	e->tensor = tensor;
	e->writes = true;
	return 0;
}

struct zero_entry *zero_table_find(const struct zero_table *table, const char *name)
{
	for (int i = 0; i < table->n; i++)
		if (strcmp(table->entries[i].name, name) == 0)
			return &table->entries[i];
	return NULL;
}

void zero_table_place(struct zero_table *table)
{
	table->bytes = 0;
	for (int i = 0; i < table->n; i++) {
		table->entries[i].offset = table->bytes;
		table->bytes += table->entries[i].n * kolo_type_size(table->entries[i].type);
	}
}

int zero_table_make(const struct kolo_zero *z, enum zero_file file, bool as_is, enum kolo_type type,
		    struct zero_table *out)
{
	int rc = 0;

	*out = (struct zero_table){ .entries = calloc((size_t)z->ntensors, sizeof(*out->entries)) };
	if (!out->entries)
		return kolo_error_set(KOLO_ENOMEM, "a table of %d tensors: out of memory",
				      z->ntensors);
	for (int i = 0; rc == 0 && i < z->ntensors; i++) {
		enum kolo_type stored;

		if (is_stored(z, &z->tensors[i], file, &stored))
			rc = fill_entry(&out->entries[out->n++], &z->tensors[i],
					as_is ? stored : type, i);
	}
	zero_table_place(out);
	return rc;
}

void zero_table_free(struct zero_table *table)
{
	for (int i = 0; table->entries && i < table->n; i++)
		free(table->entries[i].name);
	free(table->entries);
	*table = (struct zero_table){ 0 };
}

/* ---- Parts ----------------------------------------------------------------------------------- */

enum kolo_type zero_stored_type(const struct zero_tensor *t, enum zero_file file)
{
	return file == ZERO_WEIGHTS && !t->trained ? t->type : KOLO_F32;
}

/* The moments of a tensor in memory: on the device, or offloaded to the host. NULL: there are
 * none. */
static char *state_at(const struct kolo_zero *z, const struct zero_tensor *t, int state,
		      struct zero_part *part)
{
	struct zero_part offloaded = zero_part_offloaded(t, *part);
	float *at;

	if (offloaded.n) {
		*part = offloaded;
		at = state == 0 ? t->offloaded.master : t->offloaded.moment[state - 1];
		return at ? (char *)(at + (offloaded.first - t->held.first)) : NULL;
	}
	if (!z->on_host)
		return NULL;
	return (char *)(state == 0 ? zero_master_at(t, part->first)
				   : zero_moment_at(t, state - 1, part->first));
}

char *zero_stored_at(const struct kolo_zero *z, int tensor, enum zero_file file,
		     struct zero_part *part)
{
	const struct zero_tensor *t = &z->tensors[tensor];

	if (file != ZERO_WEIGHTS || t->trained)
		return state_at(z, t, (int)file, part);
	if (!t->sharded)
		return z->on_host ? zero_at(t->param, t->type, part->first) : NULL;
	if (!t->shard || (t->shard_place == ZERO_ON_DEVICE && !z->on_host))
		return NULL;
	return zero_at(t->shard, t->type, part->first - t->own.first);
}

int zero_stored_get(struct kolo_zero *z, int tensor, enum zero_file file, struct zero_part part,
		    void *out)
{
	struct zero_tensor *t = &z->tensors[tensor];

	return file == ZERO_WEIGHTS && !t->trained ? zero_values_get(z, tensor, part, out)
						   : zero_state_get(z, t, (int)file, part, out);
}

int zero_stored_put(struct kolo_zero *z, int tensor, enum zero_file file, struct zero_part part,
		    const void *from)
{
	struct zero_tensor *t = &z->tensors[tensor];

	return file == ZERO_WEIGHTS && !t->trained ? zero_values_put(z, tensor, part, from)
						   : zero_state_put(z, t, (int)file, part, from);
}

struct zero_part zero_stored_part(const struct kolo_zero *z, const struct zero_tensor *t)
{
	if (!z->config.parameter_server)
		return t->own;
	return z->rank == 0 ? (struct zero_part){ 0, t->n } : (struct zero_part){ t->n, 0 };
}

size_t zero_whole_index(const struct zero_tensor *t, size_t first, size_t *n)
{
	const struct zero_division *w = &t->whole;
	size_t within = first % w->run;

	if (w->parts == 1)
		return first;
	*n = zero_min(*n, w->run - within);
	return (first / w->run * w->parts + w->part) * w->run + within;
}

/* ---- Text ------------------------------------------------------------------------------------ */

void zero_shape_text(char *out, size_t len, int ndims, const size_t *shape)
{
	size_t at = (size_t)snprintf(out, len, "[");

	for (int d = 0; d < ndims && at < len; d++)
		at += (size_t)snprintf(out + at, len - at, "%s%zu", d ? ", " : "", shape[d]);
	if (at < len)
		snprintf(out + at, len - at, "]");
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

struct kolo_comm *zero_everyone(const struct kolo_zero *z)
{
	return z->world ? z->world : z->control;
}

bool zero_is_root(const struct kolo_zero *z)
{
	return kolo_comm_rank(zero_everyone(z)) == 0;
}

int zero_all_well(struct kolo_zero *z, int rc)
{
	int told = zero_share_failure(zero_everyone(z), rc);

	/* Only a failure of the collectives is a failure of the engine. */
	return kolo_comm_status(zero_everyone(z)) < 0 ? zero_failed(z, told) : told;
}
