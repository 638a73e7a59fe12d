/* Writes the model as transformers reads it (--export). */
#include "tools/common/tool.h"
#include "tools/zerotrain/foreign/foreign.h"
#include "tools/zerotrain/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether what this rank has of a tensor goes into the file: of equal ones those of one rank. */
static bool contributes(const struct run *r, int tensor)
{
	const struct kolo_grid_place *here = &r->parallel.place;
	bool divided = tensor_shape_of(&r->engine.sizes, tensor).divided;

	return here->data == 0 && (divided || here->tensor == 0) &&
	       (tensor != BYTES || parallel_embeds(&r->parallel));
}

/* Puts a tensor together on rank 0: each rank gives its part, and zeros for all others. `part` has
 * room for a part. */
static int collect(struct run *r, int tensor, float *whole, size_t n, float *part)
{
	const struct engine *e = &r->engine;
	size_t own = tensor_shape_of(&e->sizes, tensor).n;
	bool here = parallel_has(&r->parallel, &e->sizes, tensor);
	int rc = here ? kolo_zero_get(e->zero, e->numbers[tensor], part) : 0;

	memset(whole, 0, n * sizeof(*whole));
	for (size_t i = 0; rc == 0 && here && contributes(r, tensor) && i < own; i++)
		whole[whole_index(&e->sizes, tensor, i)] = part[i];
	return rc < 0 ? rc : kolo_reduce(r->comm, whole, whole, n, KOLO_F32, KOLO_SUM, 0, NULL);
}

static int write_tensors(struct run *r, const struct sizes *sizes, FILE *file, int *status)
{
	int rc = 0;

	*status = EXIT_GOOD;
	for (int t = 0; rc == 0 && t < tensor_count(sizes); t++) {
		size_t n = tensor_shape_of(sizes, t).n;
		float *whole, *part;

		if (!tensor_is_there(sizes, t))
			continue;
		whole = malloc(n * sizeof(*whole));
		part = malloc(n * sizeof(*part));

		rc = whole && part
			     ? collect(r, t, whole, n, part)
			     : kolo_error_set(KOLO_ENOMEM, "a tensor of %zu: out of memory", n);
		if (rc == 0 && file && foreign_write(file, sizes, t, whole) < 0)
			*status = EXIT_FAILED;
		free(whole);
		free(part);
	}
	return rc;
}

int export_run(struct run *r)
{
	const char *folder = r->options->export;
	struct sizes whole = r->engine.sizes;
	int32_t status = EXIT_GOOD;
	FILE *file = NULL;
	int written = EXIT_GOOD, rc;

	whole.tensor_size = 1;
	if (r->rank == 0)
		status = foreign_create(folder, &whole, &file);
	rc = kolo_broadcast(r->comm, &status, &status, 1, KOLO_I32, 0, NULL);
	if (rc == 0 && status == EXIT_GOOD)
		rc = write_tensors(r, &whole, file, &written);
	if (file && (fclose(file) || written)) {
		fprintf(stderr, "zerotrain: %s/model.safetensors: cannot be written: %s\n", folder,
			strerror(errno));
		status = EXIT_FAILED;
	}
	return rc < 0 ? engine_failed(r->comm, "--export", rc) : status;
}
