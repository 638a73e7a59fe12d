/* Loads checkpoints (kolo_zero_load). Rank 0 finds the checkpoint and checks what is not in
 * tensors. Each rank reads its own parts. What a stage keeps beyond these comes from the owners. */
#include "zero/checkpoint/checkpoint.h"

#include "zero/base/basics.h"
#include "zero/base/files.h"
#include "zero/checkpoint/folders.h"
#include "zero/checkpoint/join.h"
#include "zero/checkpoint/state.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/core/tensor.h"
#include "zero/offload/compute.h"
#include "zero/offload/shards.h"
#include "zero/optim/kernels.h"
#include "zero/step/gather.h"
#include "zero/step/values.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 256 << 10 }; /* bytes read and summed at a time; a cache holds them */

struct loading {
	struct kolo_zero *z;
	enum kolo_zero_load_what what;
	char dir[ZERO_PATH_LEN]; /* the checkpoint */
	char *text;              /* its state file; */
	uint64_t len;
	struct zero_saved state;
	struct zero_table tables[ZERO_NFILES], wanted[ZERO_NFILES];
};

static int count_files(const struct loading *l)
{
	return l->what == KOLO_ZERO_LOAD_ALL ? ZERO_NFILES : ZERO_MOMENT1;
}

/* ---- What is there --------------------------------------------------------------------------- */

/* The checkpoint that a path names: itself, or the newest one in it. */
static int find_checkpoint(const char *path, char *out)
{
	char state[ZERO_PATH_LEN], name[64];
	struct stat s;
	long newest;
	int rc;

	if (snprintf(out, ZERO_PATH_LEN, "%s", path) >= ZERO_PATH_LEN)
		return kolo_error_set(KOLO_EINVAL, "%.60s...: a path of more than %d bytes", path,
				      ZERO_PATH_LEN - 1);
	if ((rc = zero_path_join(state, path, "state")) < 0)
		return rc;
	if (stat(state, &s) == 0)
		return 0;
	if ((rc = kolo_zero_newest(path, &newest)) < 0)
		return rc;
	if (newest < 0)
		return kolo_error_set(
			KOLO_ESYS, "%s: is no checkpoint and has none (step-NUMBER) in it", path);
	zero_checkpoint_name(name, sizeof(name), newest);
	return zero_path_join(out, path, name);
}

static int check_header(int fd, const char *path, const struct zero_table *table)
{
	char *header = malloc(table->header_len);
	int rc;

	if (!header)
		return kolo_error_set(KOLO_ENOMEM, "%s: its header of %llu bytes: out of memory",
				      zero_path_end(path), (unsigned long long)table->header_len);
	rc = zero_file_read(fd, header, table->header_len, 0, path);
	if (rc == 0 && zero_hash(ZERO_HASH, header, table->header_len) != table->header_sum)
		rc = kolo_error_set(KOLO_ESYS,
				    "%s: damaged: its header does not match its checksum",
				    zero_path_end(path));
	free(header);
	return rc;
}

/* Checks that a file of tensors has its length, and that its header has not changed. */
static int check_file(const char *path, const struct zero_table *table)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
	struct stat s;

	if (fd < 0)
		return kolo_error_set(KOLO_ESYS, "%s: opening: %s", zero_path_end(path),
				      strerror(errno));
	if (fstat(fd, &s) < 0)
		rc = kolo_error_set(KOLO_ESYS, "%s: stat: %s", zero_path_end(path),
				    strerror(errno));
	else if ((uint64_t)s.st_size != table->header_len + table->bytes)
		rc = kolo_error_set(KOLO_ESYS,
				    "%s: truncated or changed: it has %lld bytes of %llu",
				    zero_path_end(path), (long long)s.st_size,
				    (unsigned long long)(table->header_len + table->bytes));
	else
		rc = check_header(fd, path, table);
	close(fd);
	return rc;
}

static int check_files(struct loading *l)
{
	char path[ZERO_PATH_LEN];
	int rc = 0;

	for (int f = 0; rc == 0 && f < count_files(l); f++)
		if (l->tables[f].n > 0 &&
		    (rc = zero_path_join(path, l->dir, zero_file_names[f])) == 0)
			rc = check_file(path, &l->tables[f]);
	return rc;
}

/* Sends rank 0's text of the state file, and its path, to all ranks. */
static int share_state(struct loading *l)
{
	struct kolo_comm *comm = zero_everyone(l->z);
	int rc = kolo_broadcast(comm, l->dir, l->dir, sizeof(l->dir), KOLO_U8, 0, NULL);

	if (rc == 0)
		rc = kolo_broadcast(comm, &l->len, &l->len, 1, KOLO_U64, 0, NULL);
	if (rc < 0)
		return zero_failed(l->z, rc);
	if (!zero_is_root(l->z)) {
		l->text = calloc(1, l->len + 1);
		rc = l->text ? 0 : kolo_error_set(KOLO_ENOMEM, "a state file: out of memory");
	}
	if ((rc = zero_all_well(l->z, rc)) < 0)
		return rc;
	return zero_failed(l->z, kolo_broadcast(comm, l->text, l->text, l->len, KOLO_U8, 0, NULL));
}

static int parse_state(struct loading *l)
{
	char path[ZERO_PATH_LEN];
	int rc = zero_path_join(path, l->dir, "state");

	return rc == 0 ? zero_state_read(l->text, l->len, path, &l->state, l->tables) : rc;
}

static int open_checkpoint(struct loading *l, const char *path)
{
	char state[ZERO_PATH_LEN];
	size_t len = 0;
	int rc = find_checkpoint(path, l->dir);

	if (rc == 0)
		rc = zero_path_join(state, l->dir, "state");
	if (rc == 0)
		rc = zero_file_load(state, &l->text, &len);
	l->len = len;
	return rc;
}

/* ---- Whether it fits ------------------------------------------------------------------------- */

static int match_entry(const struct loading *l, const struct zero_entry *wanted,
		       struct zero_table *table, const char *file)
{
	struct zero_entry *e = zero_table_find(table, wanted->name);
	char there[100], here[100];

	if (!e)
		return kolo_error_set(KOLO_EINVAL,
				      "%s: has no tensor '%s' in %s, and the engine does",
				      zero_path_end(l->dir), wanted->name, file);
	if (e->ndims != wanted->ndims ||
	    memcmp(e->shape, wanted->shape, (size_t)e->ndims * sizeof(e->shape[0])) != 0) {
		zero_shape_text(there, sizeof(there), e->ndims, e->shape);
		zero_shape_text(here, sizeof(here), wanted->ndims, wanted->shape);
		return kolo_error_set(KOLO_EINVAL, "%s: tensor '%s' has shape %s, and here %s",
				      zero_path_end(l->dir), e->name, there, here);
	}
	e->tensor = wanted->tensor;
	e->writes = wanted->writes;
	e->wanted = true;
	return 0;
}

/* Checks that both tables have the same tensors. Each entry of the checkpoint gets the number of
 * its tensor in the engine. */
static int match_table(const struct loading *l, enum zero_file file, struct zero_table *table)
{
	const struct zero_table *wanted = &l->wanted[file];
	int rc = 0;

	for (int i = 0; rc == 0 && i < wanted->n; i++)
		rc = match_entry(l, &wanted->entries[i], table, zero_file_names[file]);
	for (int i = 0; rc == 0 && i < table->n; i++)
		if (!table->entries[i].wanted)
			rc = kolo_error_set(KOLO_EINVAL,
					    "%s: has tensor '%s' in %s, and the engine does not",
					    zero_path_end(l->dir), table->entries[i].name,
					    zero_file_names[file]);
	return rc;
}

/* The tables that all engines together want. */
static int make_wanted(struct loading *l)
{
	int rc = 0;

	for (int f = 0; rc == 0 && f < count_files(l); f++)
		rc = zero_table_make(l->z, (enum zero_file)f, true, KOLO_F32, &l->wanted[f]);
	rc = zero_all_well(l->z, rc);
	for (int f = 0; rc == 0 && f < count_files(l); f++)
		rc = zero_table_join(l->z, &l->wanted[f]);
	return rc;
}

static int match_engine(struct loading *l, const void *user, const size_t *user_len)
{
	const struct zero_saved *s = &l->state;
	int rc = 0;

	if (l->what == KOLO_ZERO_LOAD_ALL && s->optimizer != l->z->config.optimizer)
		return kolo_error_set(
			KOLO_EINVAL,
			"%s: written with optimizer %s, and the engine has %s: load weights alone",
			zero_path_end(l->dir), kolo_zero_optimizer_name(s->optimizer),
			kolo_zero_optimizer_name(l->z->config.optimizer));
	if (l->what == KOLO_ZERO_LOAD_ALL && s->ngroups != l->z->config.ngroups)
		return kolo_error_set(KOLO_EINVAL,
				      "%s: has %d groups of hyper-parameters, and the engine %d",
				      zero_path_end(l->dir), s->ngroups, l->z->config.ngroups);
	if (user && *user_len < s->user_len)
		return kolo_error_set(
			KOLO_EINVAL, "%s: has %llu bytes of user, and there is room for %zu",
			zero_path_end(l->dir), (unsigned long long)s->user_len, *user_len);
	for (int f = 0; rc == 0 && f < count_files(l); f++)
		rc = match_table(l, (enum zero_file)f, &l->tables[f]);
	return rc;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads elements of a tensor into their place. Makes *part shorter if they must be converted in
 * pieces. */
static int read_values(struct kolo_zero *z, enum zero_file file, uint64_t header_len,
		       struct zero_entry *e, struct zero_part *part, int fd, const char *path)
{
	enum { ROOM = STEP / 4 / sizeof(float) };
	enum kolo_type type = zero_stored_type(&z->tensors[e->tensor], file);
	size_t size = kolo_type_size(e->type);
	size_t whole = zero_whole_index(&z->tensors[e->tensor], part->first, &part->n);
	char *to = zero_stored_at(z, e->tensor, file, part), *raw = to;
	float read[ROOM], converted[ROOM];
	int rc;

	if (!to || type != e->type) {
		part->n = zero_min(part->n, ROOM);
		raw = (char *)read;
	}
	rc = zero_file_read(fd, raw, part->n * size, header_len + e->offset + whole * size, path);
	if (rc < 0)
		return rc;
	if (e->writes)
		e->sum -= z->kernels->checksum(raw, size, part->n, whole);
	if (raw == to)
		return 0;
	rc = kolo_cast(raw, e->type, to ? to : (char *)converted, type, part->n, 1);
	return rc == 0 && !to ? zero_stored_put(z, e->tensor, file, *part, converted) : rc;
}

/* Reads this rank's part of a tensor. The entry's sum is the expected checksum. The checksum of
 * what was read is subtracted from it. */
static int read_part(struct kolo_zero *z, enum zero_file file, uint64_t header_len,
		     struct zero_entry *e, int fd, const char *path)
{
	struct zero_part part = zero_stored_part(z, &z->tensors[e->tensor]);
	size_t step = STEP / kolo_type_size(e->type);
	int rc = 0;

	for (size_t done = 0; rc == 0 && done < part.n;) {
		struct zero_part some = { part.first + done, zero_min(part.n - done, step) };

		rc = read_values(z, file, header_len, e, &some, fd, path);
		done += some.n;
	}
	return rc;
}

static int read_parts(struct loading *l, enum zero_file file)
{
	struct zero_table *table = &l->tables[file];
	char path[ZERO_PATH_LEN];
	int rc = zero_path_join(path, l->dir, zero_file_names[file]), fd;

	if (rc < 0 || table->n == 0)
		return rc;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return kolo_error_set(
			KOLO_ESYS, "%s: opening: %s%s", zero_path_end(path), strerror(errno),
			errno == ENOENT ? ": do all hosts see the same directory?" : "");
	for (int i = 0; rc == 0 && i < table->n; i++)
		if (table->entries[i].tensor >= 0)
			rc = read_part(l->z, file, table->header_len, &table->entries[i], fd, path);
	close(fd);
	return rc;
}

/* Checks the checksums. Rank 0 has the expected sum minus its own part, every other rank minus its
 * part. So all of them add up to 0. */
static int check_sums(struct loading *l, enum zero_file file, uint64_t *missing)
{
	struct zero_table *table = &l->tables[file];
	int rc = zero_failed(l->z, kolo_all_reduce(zero_everyone(l->z), missing, missing,
						   (size_t)table->n, KOLO_U64, KOLO_SUM, NULL));

	for (int i = 0; rc == 0 && i < table->n; i++)
		if (missing[i])
			rc = kolo_error_set(
				KOLO_ESYS,
				"%s/%s: damaged: tensor '%s' does not match its checksum; load an earlier checkpoint",
				zero_path_end(l->dir), zero_file_names[file],
				table->entries[i].name);
	return rc;
}

static int read_file(struct loading *l, enum zero_file file)
{
	struct zero_table *table = &l->tables[file];
	uint64_t *missing = calloc((size_t)table->n + 1, sizeof(*missing));
	int rc = missing ? 0
			 : kolo_error_set(KOLO_ENOMEM, "checksums of %d tensors: out of memory",
					  table->n);

	for (int i = 0; !zero_is_root(l->z) && i < table->n; i++)
		table->entries[i].sum = 0;
	if (rc == 0)
		rc = read_parts(l, file);
	for (int i = 0; missing && i < table->n; i++)
		missing[i] = table->entries[i].sum;
	rc = zero_all_well(l->z, rc);
	if (rc == 0)
		rc = check_sums(l, file, missing);
	free(missing);
	return rc;
}

/* ---- From the owners to who else has it ------------------------------------------------------ */

/* Sends a tensor's parts, each from its owner, to all ranks. */
static int gather_parts(struct kolo_zero *z, const struct zero_tensor *t, char *base,
			enum kolo_type type)
{
	for (int r = 0; r < z->nranks; r++)
		z->gatherer.counts[r] = zero_owned(t->n, z->nranks, r).n;
	return zero_queue_done(
		z, kolo_all_gather_v(z->data, base + t->own.first * kolo_type_size(type), base,
				     z->gatherer.counts, type, zero_queue_now(z)));
}

/* Stage 0 has everything everywhere. */
static int spread_all(struct loading *l, int tensor)
{
	struct kolo_zero *z = l->z;
	struct zero_tensor *t = &z->tensors[tensor];
	struct zero_part all = { 0, t->n };
	int moments = l->what == KOLO_ZERO_LOAD_ALL ? 2 : 0, rc = 0;

	if (z->config.parameter_server) {
		if (z->rank == 0 && t->trained)
			rc = zero_values_from_masters(z, tensor, all);
		return rc < 0 ? rc
			      : kolo_broadcast(z->data, t->param, t->param, t->n, t->type, 0, NULL);
	}
	if (!t->trained)
		return gather_parts(z, t, t->param, t->type);
	rc = gather_parts(z, t, (char *)zero_master_at(t, 0), KOLO_F32);
	for (int m = 0; rc == 0 && m < moments; m++)
		if (t->moment[m])
			rc = gather_parts(z, t, (char *)t->moment[m], KOLO_F32);
	return rc == 0 ? zero_values_from_masters(z, tensor, all) : rc;
}

static int write_piece(struct kolo_zero *z, const struct zero_piece *piece, void *arg)
{
	const struct zero_tensor *t = &z->tensors[piece->tensor];

	(void)arg;
	return zero_values_from_masters(
		z, piece->tensor, zero_part_of(t->n, z->nranks, z->rank, piece->first, piece->n));
}

static int spread(struct loading *l)
{
	struct kolo_zero *z = l->z;
	int rc = zero_param_buffers_forget(z);

	for (int i = 0; rc == 0 && i < z->ntensors; i++) {
		struct zero_tensor *t = &z->tensors[i];

		if (z->config.stage == 0)
			rc = spread_all(l, i);
		else if (t->sharded && t->trained)
			rc = zero_values_from_masters(z, i, t->own);
		else if (!t->sharded && !t->trained)
			rc = gather_parts(z, t, t->param, t->type);
	}
	if (rc == 0 && z->config.stage > 0)
		rc = zero_gather_updated(z, write_piece, NULL);
	return rc == 0 ? zero_gather_finish_all(z) : rc;
}

/* Calls spread, and does not count what it sends as traffic of training. */
static int spread_uncounted(struct loading *l)
{
	struct kolo_zero_traffic traffic = l->z->traffic;
	struct kolo_stats before, after;
	int rc = kolo_comm_stats(l->z->data, &before);

	if (rc == 0)
		rc = spread(l);
	if (rc == 0)
		rc = kolo_comm_stats(l->z->data, &after);
	if (rc == 0)
		l->z->sent_before += after.sent_bytes - before.sent_bytes;
	l->z->traffic = traffic;
	return zero_failed(l->z, rc);
}

/* ---- The rest -------------------------------------------------------------------------------- */

static int read_user(struct loading *l, void *user)
{
	char path[ZERO_PATH_LEN], *bytes = NULL;
	size_t len = 0;
	int rc = zero_path_join(path, l->dir, "user");

	if (rc == 0)
		rc = zero_file_load(path, &bytes, &len);
	if (rc == 0 &&
	    (len != l->state.user_len || zero_hash(ZERO_HASH, bytes, len) != l->state.user_sum))
		rc = kolo_error_set(KOLO_ESYS, "%s: damaged: it does not match its checksum",
				    zero_path_end(path));
	if (rc == 0 && user && len)
		memcpy(user, bytes, len);
	free(bytes);
	return rc;
}

static void set_state(struct loading *l)
{
	const struct zero_saved *s = &l->state;
	struct kolo_zero *z = l->z;

	z->step = s->step;
	z->skipped = s->skipped;
	z->attempts = s->attempts;
	z->total_samples = s->samples;
	/* A micro-batch that the ranks agreed on is restored. */
	if (z->config.micro_batch == 0)
		z->micro_batch = s->micro_batch;
	/* An adapting scale continues. A fixed one comes from the config; a scale that was fixed in
	 * the checkpoint says nothing about it. */
	if (z->scaler.adapts && s->scaler.adapts)
		z->scaler = s->scaler;
	for (int i = 0; i < s->ngroups; i++)
		((struct kolo_zero_group *)z->config.groups)[i].lr = s->lr[i];
}

static int load_tensors(struct loading *l)
{
	int rc = 0;

	l->z->torn = true;
	for (int f = 0; rc == 0 && f < count_files(l); f++)
		rc = read_file(l, (enum zero_file)f);
	if (rc == 0)
		rc = spread_uncounted(l);
	if (rc < 0) {
		snprintf(l->z->failure, sizeof(l->z->failure), "%s", kolo_last_error());
		return rc;
	}
	l->z->torn = false;
	if (l->what == KOLO_ZERO_LOAD_ALL)
		set_state(l);
	return 0;
}

static int load(struct loading *l, const char *path, void *user, size_t *user_len)
{
	struct kolo_zero *z = l->z;
	bool root = zero_is_root(z);
	int rc = zero_all_well(z, root ? open_checkpoint(l, path) : 0);

	if (rc == 0)
		rc = share_state(l);
	if (rc == 0)
		rc = zero_all_well(z, parse_state(l));
	if (rc == 0)
		rc = make_wanted(l);
	if (rc == 0)
		rc = zero_all_well(z, match_engine(l, user, user_len));
	if (rc == 0)
		rc = zero_all_well(z, root ? check_files(l) : 0);
	/* If everything is loaded, the user's bytes are checked too, and each rank that wants them
	 * gets them. */
	if (rc == 0)
		rc = zero_all_well(z, user || (root && l->what == KOLO_ZERO_LOAD_ALL)
					      ? read_user(l, user)
					      : 0);
	if (rc == 0)
		rc = load_tensors(l);
	if (rc == 0 && user_len)
		*user_len = l->state.user_len;
	return rc;
}

/* After a failed load another load may follow. */
static int check_loadable(struct kolo_zero *z)
{
	bool torn = z && z->torn;
	int rc;

	if (torn)
		z->torn = false;
	rc = zero_check_between_updates(z, "loading a checkpoint");
	if (torn)
		z->torn = true;
	return rc == 0 ? zero_failed(z, zero_gather_finish_all(z)) : rc;
}

static int check_load(const struct kolo_zero *z, const char *path, enum kolo_zero_load_what what,
		      const void *user, const size_t *user_len)
{
	if (!path || !*path)
		return kolo_error_set(KOLO_EINVAL, "loading a checkpoint without a path");
	if (what != KOLO_ZERO_LOAD_ALL && what != KOLO_ZERO_LOAD_WEIGHTS)
		return kolo_error_set(KOLO_EINVAL, "loading %d, which is neither all nor weights",
				      (int)what);
	if (user && !user_len)
		return kolo_error_set(KOLO_EINVAL, "room for the user's bytes without its size");
	for (int i = 0; i < z->ntensors; i++)
		if (z->tensors[i].uses)
			return kolo_error_set(
				KOLO_EINVAL,
				"loading while tensor '%s' is in use: release it first",
				z->tensors[i].name);
	return 0;
}

int kolo_zero_load(struct kolo_zero *z, const char *path, enum kolo_zero_load_what what, void *user,
		   size_t *user_len)
{
	struct loading *l;
	int rc = check_loadable(z);

	if (rc < 0)
		return rc;
	l = calloc(1, sizeof(*l));
	rc = l ? check_load(z, path, what, user, user_len)
	       : kolo_error_set(KOLO_ENOMEM, "a checkpoint: out of memory");
	if (l) {
		l->z = z;
		l->what = what;
	}
	rc = zero_all_well(z, rc);
	if (rc == 0)
		rc = load(l, path, user, user_len);
	for (int f = 0; l && f < ZERO_NFILES; f++) {
		zero_table_free(&l->tables[f]);
		zero_table_free(&l->wanted[f]);
	}
	if (l) {
		free(l->text);
		free(l->state.lr);
	}
	free(l);
	return rc;
}
