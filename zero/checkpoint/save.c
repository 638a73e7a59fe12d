/* Saves checkpoints and weights (kolo_zero_save, kolo_zero_export). Rank 0 makes the files,
 * all ranks write their parts into them, and rank 0 gives them their name when all parts are
 * there. */
#include "zero/checkpoint/checkpoint.h"

#include "zero/base/basics.h"
#include "zero/base/files.h"
#include "zero/checkpoint/folders.h"
#include "zero/checkpoint/join.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/checkpoint/state.h"
#include "zero/core/engine.h"
#include "zero/core/guard.h"
#include "zero/optim/kernels.h"
#include "zero/step/gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that are summed and written at a time, and bytes that are copied or converted at a time. */
enum { STEP = 4 << 20, PIECE = 64 << 10 };

/* ---- A file of tensors ----------------------------------------------------------------------- */

static int create_file(const char *path, struct zero_table *table, long step)
{
	char *header;
	int rc = zero_safetensors_header(table, step, &header);

	if (rc < 0)
		return rc;
	rc = zero_file_create(path, header, table->header_len, table->header_len + table->bytes,
			      false);
	free(header);
	return rc;
}

/* Elements of a tensor in the type of the file: where they are, or copied. Makes *part shorter if
 * it must be copied in pieces. */
static int find_values(struct kolo_zero *z, enum zero_file file, const struct zero_entry *e,
		       struct zero_part *part, char *copy, char *converted, const char **out)
{
	enum { ROOM = PIECE / sizeof(float) };
	enum kolo_type type = zero_stored_type(&z->tensors[e->tensor], file);
	const char *at = zero_stored_at(z, e->tensor, file, part);
	int rc = 0;

	if ((!at || type != e->type) && part->n > ROOM)
		part->n = ROOM;
	if (!at)
		rc = zero_stored_get(z, e->tensor, file, *part, copy);
	*out = at ? at : copy;
	if (rc < 0 || type == e->type)
		return rc;
	rc = kolo_cast(*out, type, converted, e->type, part->n, 1);
	*out = converted;
	return rc;
}

/* Writes this rank's part of a tensor, and adds its checksum to the entry's. */
static int write_part(struct kolo_zero *z, enum zero_file file, uint64_t header_len,
		      struct zero_entry *e, struct zero_writer *w)
{
	const struct zero_tensor *t = &z->tensors[e->tensor];
	struct zero_part part = zero_stored_part(z, t);
	size_t size = kolo_type_size(e->type), step = STEP / size;
	char copy[PIECE], converted[PIECE];
	int rc = 0;

	for (size_t done = 0, n; rc == 0 && done < part.n; done += n) {
		struct zero_part some = { part.first + done, zero_min(part.n - done, step) };
		const char *from;

		size_t whole = zero_whole_index(t, some.first, &some.n);

		rc = find_values(z, file, e, &some, copy, converted, &from);
		n = some.n;
		if (rc < 0)
			break;
		e->sum += z->kernels->checksum(from, size, n, whole);
		rc = zero_writer_write(w, from, n * size, header_len + e->offset + whole * size);
	}
	return rc;
}

static int write_parts(struct kolo_zero *z, enum zero_file file, struct zero_table *table,
		       const char *path, struct zero_writer *w)
{
	int rc = zero_writer_open(w, path);

	for (int i = 0; rc == 0 && i < table->n; i++)
		if (table->entries[i].writes)
			rc = write_part(z, file, table->header_len, &table->entries[i], w);
	return rc;
}

/* ---- A checkpoint ---------------------------------------------------------------------------- */

struct saving {
	struct kolo_zero *z;
	const char *dir;
	char partial[ZERO_PATH_LEN];
	bool made;                              /* partial is there */
	char paths[ZERO_NFILES][ZERO_PATH_LEN]; /* of the files in it */
	struct zero_table tables[ZERO_NFILES];
};

/* A number that only this save has, from rank 0. */
static int share_number(struct kolo_zero *z, uint64_t *out)
{
	if (getrandom(out, sizeof(*out), 0) != sizeof(*out))
		*out = (uint64_t)getpid();
	return zero_failed(z, kolo_broadcast(zero_everyone(z), out, out, 1, KOLO_U64, 0, NULL));
}

/* Joins the paths of this save. Its number makes them unique: a rank that has another directory by
 * mistake does not find them there. */
static int name_files(struct saving *s, uint64_t number)
{
	char name[64];
	int rc;

	zero_partial_name(name, sizeof(name), s->z->step, number);
	rc = zero_path_join(s->partial, s->dir, name);
	for (int f = 0; rc == 0 && f < ZERO_NFILES; f++)
		rc = zero_path_join(s->paths[f], s->partial, zero_file_names[f]);
	return rc;
}

static int make_folders(struct saving *s)
{
	int rc = zero_dir_make(s->dir);

	if (rc == 0)
		rc = zero_folder_clean(s->dir);
	if (rc < 0)
		return rc;
	if (mkdir(s->partial, 0777) < 0)
		return kolo_error_set(KOLO_ESYS, "%s: making the directory: %s",
				      zero_path_end(s->partial), strerror(errno));
	s->made = true;
	return 0;
}

/* What rank 0 does before the others write. */
static int begin_save(struct saving *s)
{
	int rc = make_folders(s);
	uint64_t bytes = 0;

	/* This is known now, and not after an hour of writing. */
	for (int f = 0; f < ZERO_NFILES; f++)
		bytes += s->tables[f].bytes;
	if (rc == 0)
		rc = zero_disk_has_room(s->dir, bytes);
	for (int f = 0; rc == 0 && f < ZERO_NFILES; f++)
		if (s->tables[f].n > 0)
			rc = create_file(s->paths[f], &s->tables[f], s->z->step);
	return rc;
}

/* The headers of the other ranks have the same length. */
static int share_header_lengths(struct saving *s)
{
	uint64_t len[ZERO_NFILES];
	int rc;

	for (int f = 0; f < ZERO_NFILES; f++)
		len[f] = s->tables[f].header_len;
	rc = kolo_broadcast(zero_everyone(s->z), len, len, ZERO_NFILES, KOLO_U64, 0, NULL);
	for (int f = 0; f < ZERO_NFILES; f++)
		s->tables[f].header_len = len[f];
	return zero_failed(s->z, rc);
}

/* Writes all files before it waits for the first to be on the disk, so the disk always has work.
 * Neighbours begin with different files, because one process of a host writes a file at a time. */
static int write_all_parts(struct saving *s)
{
	struct zero_writer writers[ZERO_NFILES];
	int rank = kolo_comm_rank(zero_everyone(s->z)), rc = 0;

	for (int f = 0; f < ZERO_NFILES; f++)
		writers[f] = (struct zero_writer){ s->paths[f], -1, -1, NULL };
	for (int k = 0; rc == 0 && k < ZERO_NFILES; k++) {
		int f = (rank + k) % ZERO_NFILES;

		if (s->tables[f].n > 0)
			rc = write_parts(s->z, (enum zero_file)f, &s->tables[f], s->paths[f],
					 &writers[f]);
	}
	for (int f = 0; f < ZERO_NFILES; f++)
		rc = zero_writer_close(&writers[f], rc);
	return rc;
}

/* Adds up the checksums of parts to those of tensors. */
static int add_sums(struct kolo_zero *z, struct zero_table *table)
{
	uint64_t *sums = calloc((size_t)table->n + 1, sizeof(*sums));
	int rc = sums ? 0
		      : kolo_error_set(KOLO_ENOMEM,
				       "rank %d: checksums of %d tensors: out of memory", z->rank,
				       table->n);

	for (int i = 0; sums && i < table->n; i++)
		sums[i] = table->entries[i].sum;
	if (rc == 0)
		rc = kolo_all_reduce(zero_everyone(z), sums, sums, (size_t)table->n, KOLO_U64,
				     KOLO_SUM, NULL);
	for (int i = 0; rc == 0 && i < table->n; i++)
		table->entries[i].sum = sums[i];
	free(sums);
	return zero_failed(z, rc);
}

static int describe_state(const struct kolo_zero *z, const void *user, size_t user_len,
			  struct zero_saved *out)
{
	*out = (struct zero_saved){
		.step = z->step,
		.skipped = z->skipped,
		.attempts = z->attempts,
		.samples = z->total_samples,
		.micro_batch = z->micro_batch,
		.scaler = z->scaler,
		.optimizer = z->config.optimizer,
		.ngroups = z->config.ngroups,
		.lr = calloc((size_t)z->config.ngroups, sizeof(*out->lr)),
		.user_len = user_len,
		.user_sum = zero_hash(ZERO_HASH, user, user_len),
	};
	if (!out->lr)
		return kolo_error_set(KOLO_ENOMEM, "%d learning rates: out of memory",
				      z->config.ngroups);
	for (int i = 0; i < z->config.ngroups; i++)
		out->lr[i] = z->config.groups[i].lr;
	return 0;
}

static int write_state_file(struct saving *s, const void *user, size_t user_len)
{
	char path[ZERO_PATH_LEN], *text = NULL;
	struct zero_saved state;
	size_t len = 0;
	int rc = describe_state(s->z, user, user_len, &state);

	if (rc == 0)
		rc = zero_state_write(&state, s->tables, &text, &len);
	if (rc == 0 && (rc = zero_path_join(path, s->partial, "user")) == 0)
		rc = zero_file_create(path, user, user_len, user_len, true);
	if (rc == 0 && (rc = zero_path_join(path, s->partial, "state")) == 0)
		rc = zero_file_create(path, text, len, len, true);
	free(text);
	free(state.lr);
	return rc;
}

/* What rank 0 does when all ranks have written. */
static int finish_save(struct saving *s, int keep, const void *user, size_t user_len)
{
	int rc = write_state_file(s, user, user_len);

	if (rc == 0)
		rc = zero_dir_sync(s->partial);
	if (rc == 0)
		rc = zero_folder_publish(s->dir, s->partial, s->z->step);
	if (rc == 0)
		rc = zero_folder_prune(s->dir, keep);
	return rc;
}

static int save(struct saving *s, int keep, const void *user, size_t user_len)
{
	bool root = zero_is_root(s->z);
	uint64_t number;
	int rc = 0;

	for (int f = 0; rc == 0 && f < ZERO_NFILES; f++)
		rc = zero_table_join(s->z, &s->tables[f]);
	if (rc == 0)
		rc = share_number(s->z, &number);
	if (rc == 0)
		rc = zero_all_well(s->z, name_files(s, number));
	if (rc == 0)
		rc = zero_all_well(s->z, root ? begin_save(s) : 0);
	if (rc == 0)
		rc = share_header_lengths(s);
	if (rc == 0)
		rc = zero_all_well(s->z, write_all_parts(s));
	for (int f = 0; rc == 0 && f < ZERO_NFILES; f++)
		rc = add_sums(s->z, &s->tables[f]);
	if (rc == 0)
		rc = zero_all_well(s->z, root ? finish_save(s, keep, user, user_len) : 0);
	return rc;
}

static int prepare_save(struct saving *s, int keep, const void *user, size_t user_len)
{
	int rc = 0;

	if (!s->dir || !*s->dir || keep < 0 || (!user && user_len))
		return kolo_error_set(KOLO_EINVAL, "saving in '%s', keep %d, %zu bytes of user %s",
				      s->dir ? zero_path_end(s->dir) : "", keep, user_len,
				      user ? "" : "NULL");
	for (int f = 0; rc == 0 && f < ZERO_NFILES; f++)
		rc = zero_table_make(s->z, (enum zero_file)f, true, KOLO_F32, &s->tables[f]);
	return rc;
}

/* Keeps the text of the first failure. */
static void remove_partial(const char *path, int rc)
{
	char text[400];

	snprintf(text, sizeof(text), "%s", kolo_last_error());
	zero_folder_remove(path);
	kolo_error_set(rc, "%s", text);
}

int kolo_zero_save(struct kolo_zero *z, const char *dir, int keep, const void *user,
		   size_t user_len)
{
	struct saving *s;
	int rc = zero_check_between_updates(z, "a checkpoint");

	if (rc < 0 || (rc = zero_failed(z, zero_gather_finish_all(z))) < 0)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s) {
		rc = kolo_error_set(KOLO_ENOMEM, "a checkpoint: out of memory");
	} else {
		s->z = z;
		s->dir = dir;
		rc = prepare_save(s, keep, user, user_len);
	}
	rc = zero_all_well(z, rc);
	if (rc == 0)
		rc = save(s, keep, user, user_len);
	if (rc < 0 && s && s->made)
		remove_partial(s->partial, rc);
	for (int f = 0; s && f < ZERO_NFILES; f++)
		zero_table_free(&s->tables[f]);
	free(s);
	return rc;
}

/* ---- Weights alone --------------------------------------------------------------------------- */

static int prepare_export(struct kolo_zero *z, const char *path, enum kolo_type type,
			  struct zero_table *table)
{
	if (!path || !*path || (type != KOLO_F32 && type != KOLO_F16 && type != KOLO_BF16))
		return kolo_error_set(KOLO_EINVAL,
				      "exporting to '%s' as %s: types are f32, f16 and bf16",
				      path ? zero_path_end(path) : "",
				      kolo_type_name(type) ? kolo_type_name(type) : "?");
	return zero_table_make(z, ZERO_WEIGHTS, false, type, table);
}

static int begin_export(const char *partial, struct zero_table *table, long step)
{
	int rc = create_file(partial, table, step);

	return rc == 0 ? zero_disk_has_room(partial, table->bytes) : rc;
}

/* Writes the weights into PATH.NUMBER.partial, which becomes PATH at the end. */
static int write_export(struct kolo_zero *z, const char *path, struct zero_table *table,
			char *partial)
{
	bool root = zero_is_root(z);
	struct zero_writer w;
	int rc = zero_all_well(z, root ? begin_export(partial, table, z->step) : 0);

	if (rc == 0)
		rc = zero_failed(z, kolo_broadcast(zero_everyone(z), &table->header_len,
						   &table->header_len, 1, KOLO_U64, 0, NULL));
	if (rc == 0)
		rc = zero_all_well(
			z, zero_writer_close(&w, write_parts(z, ZERO_WEIGHTS, table, partial, &w)));
	if (rc == 0)
		rc = zero_all_well(z, root ? zero_file_publish(partial, path) : 0);
	if (rc < 0 && root)
		unlink(partial);
	return rc;
}

static int name_export(const char *path, uint64_t number, char *out)
{
	if (snprintf(out, ZERO_PATH_LEN, "%s.%016llx.partial", path, (unsigned long long)number) <
	    ZERO_PATH_LEN)
		return 0;
	return kolo_error_set(KOLO_EINVAL, "%s: too long a path", zero_path_end(path));
}

int kolo_zero_export(struct kolo_zero *z, const char *path, enum kolo_type type)
{
	struct zero_table table = { 0 };
	char partial[ZERO_PATH_LEN];
	uint64_t number;
	int rc = zero_check_between_updates(z, "an export");

	if (rc < 0 || (rc = zero_failed(z, zero_gather_finish_all(z))) < 0)
		return rc;
	rc = zero_all_well(z, prepare_export(z, path, type, &table));
	if (rc == 0)
		rc = zero_table_join(z, &table);
	if (rc == 0)
		rc = share_number(z, &number);
	if (rc == 0)
		rc = zero_all_well(z, name_export(path, number, partial));
	if (rc == 0)
		rc = write_export(z, path, &table, partial);
	zero_table_free(&table);
	return rc;
}
