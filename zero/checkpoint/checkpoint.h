/* What the files of checkpoints share. kolo_zero_checkpoint.h describes what is on the disk.
 *
 * A table describes a file of tensors: the name, type, shape, place and checksum of each. A save
 * makes its tables from the engine. A load makes them from the state file, and matches them with
 * those of the engine. */
#ifndef ZERO_CHECKPOINT_CHECKPOINT_H
#define ZERO_CHECKPOINT_CHECKPOINT_H

#include "zero/core/layout.h"
#include "zero/optim/scaler.h"

#include "kolo/kolo_zero_checkpoint.h"

struct zero_tensor;

enum zero_file { ZERO_WEIGHTS, ZERO_MOMENT1, ZERO_MOMENT2, ZERO_NFILES };

extern const char *const zero_file_names[ZERO_NFILES];

struct zero_entry {
	char *name;
	enum kolo_type type;
	int ndims;
	size_t shape[KOLO_ZERO_DIMS];
	size_t n;        /* elements */
	uint64_t offset; /* bytes from the begin of data; entries follow each other without a gap */
	uint64_t sum;    /* of all its elements (checksum in zero/optim/kernels.h) */
	int tensor;      /* the engine's; -1: it has none */
	bool writes;     /* this engine's part is written, and its checksum counts */
	bool wanted;     /* of a load: some engine has it */
};

struct zero_table {
	struct zero_entry *entries;
	int n;
	uint64_t bytes;      /* of data */
	uint64_t header_len; /* bytes before the data */
	uint64_t header_sum; /* zero_hash of them */
};

/* What is not in tensors. */
struct zero_saved {
	long step, skipped, attempts;
	uint64_t samples, micro_batch;
	struct zero_scaler scaler;
	enum kolo_zero_optimizer optimizer;
	double *lr; /* of each group */
	int ngroups;
	uint64_t user_len, user_sum;
};

/* The table of one of the engine's files, with whole tensors; type is what weights are converted
 * to, with as_is false. Sums are 0. */
int zero_table_make(const struct kolo_zero *zero, enum zero_file file, bool as_is,
		    enum kolo_type type, struct zero_table *out);
void zero_table_free(struct zero_table *table);

/* The entry of this name; NULL: there is none. */
struct zero_entry *zero_table_find(const struct zero_table *table, const char *name);

/* Fills in where entries lie, one behind the other, and the bytes of all. */
void zero_table_place(struct zero_table *table);

/* The type of a tensor's values in a file. */
enum kolo_type zero_stored_type(const struct zero_tensor *t, enum zero_file file);

/* The place where the host can read and write elements of a tensor that a file has. Makes *part
 * shorter if they do not lie together. NULL: they are on a device or in a file. */
char *zero_stored_at(const struct kolo_zero *zero, int tensor, enum zero_file file,
		     struct zero_part *part);

/* Copies such elements to the host and from it, wherever they are. */
int zero_stored_get(struct kolo_zero *zero, int tensor, enum zero_file file, struct zero_part part,
		    void *out);
int zero_stored_put(struct kolo_zero *zero, int tensor, enum zero_file file, struct zero_part part,
		    const void *from);

/* The part of a tensor that this rank writes and reads: its own one; of a parameter server rank 0
 * has all. */
struct zero_part zero_stored_part(const struct kolo_zero *zero, const struct zero_tensor *t);

/* The index in the whole tensor of element `first` of the engine's. Makes *n, a number of elements
 * from there on, shorter if they do not lie together. */
size_t zero_whole_index(const struct zero_tensor *t, size_t first, size_t *n);

/* "[3, 4]", in out[len]. */
void zero_shape_text(char *out, size_t len, int ndims, const size_t *shape);

/* All ranks that save and load together: those of the engine, or of all engines; and whether this
 * one does what one rank does. */
struct kolo_comm *zero_everyone(const struct kolo_zero *zero);
bool zero_is_root(const struct kolo_zero *zero);

/* Collective over everyone. If rc of any rank is an error, all ranks return the error of the first
 * such rank, with its text. Otherwise returns 0. The engine stays usable. */
int zero_all_well(struct kolo_zero *zero, int rc);

#endif
