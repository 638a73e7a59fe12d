/* Joins the tables of engines (zero_table_join). The first rank of each engine tells all ranks what
 * its entries are. So all ranks make the same table, and find the same mistakes. */
#include "zero/checkpoint/join.h"

#include "zero/base/basics.h"
#include "zero/checkpoint/checkpoint.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"

#include <stdlib.h>
#include <string.h>

/* An entry of an engine as others get it; its name follows, with a zero, up to a multiple of 8. */
struct told {
	int64_t family; /* of the engine */
	int64_t index;  /* in its table */
	int64_t type, ndims;
	uint64_t shape[KOLO_ZERO_DIMS];
	uint64_t part, parts, run;
	int64_t counted; /* 0: another engine's copy is the one that counts */
	uint64_t name_len;
};

/* The table that is made, and of each entry who writes its parts. */
struct joining {
	struct kolo_zero *z;
	const struct zero_table *own;
	struct zero_table all;
	const struct told ***writers; /* [entries][parts] */
	const struct told **first;    /* [entries] what the first engine told */
};

static size_t name_room(size_t len)
{
	return (len + 8) / 8 * 8;
}

/* ---- Telling --------------------------------------------------------------------------------- */

static size_t told_len(const struct zero_table *table)
{
	size_t len = 0;

	for (int i = 0; i < table->n; i++)
		len += sizeof(struct told) + name_room(strlen(table->entries[i].name));
	return len;
}

static void tell(const struct kolo_zero *z, const struct zero_table *table, char *out)
{
	for (int i = 0; i < table->n; i++) {
		const struct zero_entry *e = &table->entries[i];
		const struct zero_tensor *t = &z->tensors[e->tensor];
		struct told told = { .family = z->family,
				     .index = i,
				     .type = e->type,
				     .ndims = e->ndims,
				     .part = t->whole.part,
				     .parts = t->whole.parts,
				     .run = t->whole.run,
				     .counted = t->counted,
				     .name_len = strlen(e->name) };

		for (int d = 0; d < e->ndims; d++)
			told.shape[d] = e->shape[d];
		memcpy(out, &told, sizeof(told));
		memcpy(out + sizeof(told), e->name, told.name_len);
		out += sizeof(told) + name_room(told.name_len);
	}
}

/* What all engines tell: *out, which the caller frees, of *len bytes. */
static int share_told(struct kolo_zero *z, const struct zero_table *table, char **out, size_t *len)
{
	struct kolo_comm *comm = zero_everyone(z);
	size_t n = (size_t)kolo_comm_nranks(comm), own = z->rank == 0 ? told_len(table) : 0;
	size_t *counts = calloc(n, sizeof(*counts));
	char *mine = calloc(1, own + 1);
	int rc = counts && mine ? 0 : KOLO_ENOMEM;

	*out = NULL;
	*len = 0;
	if (rc == 0 && own)
		tell(z, table, mine);
	if (rc < 0)
		kolo_error_set(rc, "tables of %zu ranks: out of memory", n);
	rc = zero_all_well(z, rc);
	if (rc == 0)
		rc = zero_failed(z,
				 kolo_all_gather(comm, &own, counts, sizeof(own), KOLO_U8, NULL));
	for (size_t r = 0; rc == 0 && r < n; r++)
		*len += counts[r];
	if (rc == 0) {
		*out = malloc(*len + 1);
		rc = zero_all_well(z, *out ? 0
					   : kolo_error_set(KOLO_ENOMEM,
							    "tables of %zu bytes: out of memory",
							    *len));
	}
	if (rc == 0)
		rc = zero_failed(z, kolo_all_gather_v(comm, mine, *out, counts, KOLO_U8, NULL));
	free(mine);
	free(counts);
	return rc;
}

/* ---- Joining --------------------------------------------------------------------------------- */

static int add_entry(struct joining *j, const struct told *told, const char *name,
		     struct zero_entry **out)
{
	int i = j->all.n++;
	struct zero_entry *e = &j->all.entries[i];

	e->name = malloc(told->name_len + 1);
	j->writers[i] = calloc(told->parts, sizeof(**j->writers));
	j->first[i] = told;
	if (!e->name || !j->writers[i])
		return kolo_error_set(KOLO_ENOMEM, "an entry of tensor '%s': out of memory", name);
	strcpy(e->name, name);
	e->type = (enum kolo_type)told->type;
	e->ndims = (int)told->ndims;
	e->n = 1;
	for (int d = 0; d < e->ndims; d++) {
		e->shape[d] = told->shape[d];
		e->n *= e->shape[d];
	}
	e->tensor = -1;
	*out = e;
	return 0;
}

/* Whether both are parts of the same tensor, cut in the same way. */
static bool fits(const struct told *a, const struct told *b)
{
	bool same = a->type == b->type && a->ndims == b->ndims && a->parts == b->parts &&
		    a->run == b->run;

	for (int d = 0; same && d < a->ndims; d++)
		same = a->shape[d] == b->shape[d];
	return same;
}

static int refuse(const struct told *a, const struct told *b, const char *name)
{
	char one[100], other[100];

	zero_shape_text(one, sizeof(one), (int)a->ndims, a->shape);
	zero_shape_text(other, sizeof(other), (int)b->ndims, b->shape);
	return kolo_error_set(
		KOLO_EMISMATCH,
		"tensor '%s': the engine of rank %lld has one of %llu parts of %s %s, in runs of %llu elements, and that of rank %lld one of %llu parts of %s %s, in runs of %llu",
		name, (long long)a->family, (unsigned long long)a->parts,
		kolo_type_name((enum kolo_type)a->type), one, (unsigned long long)a->run,
		(long long)b->family, (unsigned long long)b->parts,
		kolo_type_name((enum kolo_type)b->type), other, (unsigned long long)b->run);
}

/* Of several copies that which counts in the norm is written; of several of these the first. */
static int join_entry(struct joining *j, const struct told *told, const char *name)
{
	struct zero_entry *e = zero_table_find(&j->all, name);
	const struct told **writer, *first;
	int rc = e ? 0 : add_entry(j, told, name, &e);

	if (rc < 0)
		return rc;
	first = j->first[e - j->all.entries];
	if (!fits(first, told))
		return refuse(first, told, name);
	writer = &j->writers[e - j->all.entries][told->part];
	if (!*writer || (told->counted && !(*writer)->counted))
		*writer = told;
	if (told->family == j->z->family)
		e->tensor = j->own->entries[told->index].tensor;
	return 0;
}

/* Each part must be somewhere. */
static int find_writers(struct joining *j)
{
	for (int i = 0; i < j->all.n; i++)
		for (size_t p = 0; p < j->first[i]->parts; p++) {
			const struct told *writer = j->writers[i][p];

			if (!writer)
				return kolo_error_set(
					KOLO_EINVAL, "tensor '%s': part %zu of %zu is in no engine",
					j->all.entries[i].name, p, (size_t)j->first[i]->parts);
			if (writer->family == j->z->family)
				j->all.entries[i].writes = true;
		}
	return 0;
}

static int join_all(struct joining *j, const char *told, size_t len)
{
	size_t most = len / sizeof(struct told) + 1;
	int rc = 0;

	j->all.entries = calloc(most, sizeof(*j->all.entries));
	j->writers = calloc(most, sizeof(*j->writers));
	j->first = calloc(most, sizeof(*j->first));
	if (!j->all.entries || !j->writers || !j->first)
		return kolo_error_set(KOLO_ENOMEM, "a table of all engines: out of memory");
	for (size_t at = 0; rc == 0 && at < len;) {
		const struct told *t = (const void *)(told + at);

		rc = join_entry(j, t, told + at + sizeof(*t));
		at += sizeof(*t) + name_room(t->name_len);
	}
	zero_table_place(&j->all);
	return rc == 0 ? find_writers(j) : rc;
}

int zero_table_join(struct kolo_zero *z, struct zero_table *table)
{
	struct joining j = { .z = z, .own = table };
	char *told;
	size_t len;
	int rc;

	if (!z->world)
		return 0;
	rc = share_told(z, table, &told, &len);
	if (rc == 0)
		rc = zero_all_well(z, join_all(&j, told, len));
	for (int i = 0; j.writers && i < j.all.n; i++)
		free(j.writers[i]);
	free(j.writers);
	free(j.first);
	free(told);
	if (rc == 0) {
		zero_table_free(table);
		*table = j.all;
	} else {
		zero_table_free(&j.all);
	}
	return rc;
}
