/* Memory of gathered tensors (zero_gathered_open, zero_gathered_close).
 *
 * New memory is slow: the system zeroes it page by page, and a GPU waits for all of its work. So
 * what one tensor leaves is kept for the next tensor of its length, as long as all of it is no more
 * than planned. Memory of a device stays at its addresses. On the host each tensor has addresses of
 * its own. Spare memory stays at those of the tensor that left it, until it moves. */
#include "zero/offload/regions.h"

#include "zero/core/engine.h"

#include <stdlib.h>

/* ---- Spare memory ---------------------------------------------------------------------------- */

static void let_go(struct kolo_zero *z, const struct zero_region *r)
{
	if (z->device)
		z->device->ops->release(z->device, r->base, r->len);
	else
		zero_region_drop(r);
}

static void give_back(struct kolo_zero *z)
{
	const struct zero_region *r = &z->spares[--z->nspares];

	z->spare -= r->len;
	let_go(z, r);
}

void zero_spares_close(struct kolo_zero *z)
{
	while (z->nspares)
		give_back(z);
	free(z->spares);
	z->spares = NULL;
}

/* Finds spare memory of this length. It prefers the tensor's own, then the last. -1: there is
 * none. */
static int find_spare(const struct kolo_zero *z, const struct zero_region *wanted)
{
	int found = -1;

	for (int i = 0; i < z->nspares; i++)
		if (z->spares[i].len == wanted->len &&
		    (found < 0 || z->spares[found].base != wanted->base))
			found = i;
	return found;
}

static bool take_spare(struct kolo_zero *z, const struct zero_region *wanted,
		       struct zero_region *out)
{
	int i = find_spare(z, wanted);

	if (i < 0)
		return false;
	*out = z->spares[i];
	z->spares[i] = z->spares[--z->nspares];
	z->spare -= out->len;
	return true;
}

int zero_device_ask(struct kolo_zero *z, size_t bytes, const char *what, void **out)
{
	int rc = z->device->ops->allocate(z->device, bytes, what, out);

	if (rc != KOLO_ENOMEM || !z->nspares)
		return rc;
	while (z->nspares)
		give_back(z);
	return z->device->ops->allocate(z->device, bytes, what, out);
}

/* ---- Memory of a tensor ---------------------------------------------------------------------- */

static int ask_for_memory(struct kolo_zero *z, struct zero_tensor *t)
{
	void *memory;
	int rc;

	if (!z->device)
		return zero_region_open(&t->region, t->name);
	rc = zero_device_ask(z, t->region.len, t->name, &memory);
	if (rc == 0)
		t->region.base = memory;
	return rc;
}

static int open_memory(struct kolo_zero *z, struct zero_tensor *t)
{
	struct zero_region spare;
	int rc = 0;

	if (take_spare(z, &t->region, &spare)) {
		if (z->device)
			t->region = spare;
		else
			rc = zero_region_move(&t->region, &spare, &z->passage, t->name);
	} else {
		while (z->nspares && z->gathered + z->spare + t->region.len > z->dry_gathered)
			give_back(z);
		rc = ask_for_memory(z, t);
	}
	if (rc == 0 && z->device)
		t->param = t->region.base;
	return rc;
}

/* The region still counts as gathered. */
static void close_memory(struct kolo_zero *z, const struct zero_region *r)
{
	if (!z->device)
		zero_region_close(r);
	if (z->keeps && z->gathered + z->spare <= z->dry_gathered) {
		z->spares[z->nspares++] = *r;
		z->spare += r->len;
	} else {
		let_go(z, r);
	}
}

int zero_gathered_open(struct kolo_zero *z, struct zero_tensor *t)
{
	int rc = z->dry ? 0 : open_memory(z, t);

	if (rc < 0)
		return rc;
	t->state = ZERO_UPLOADING;
	z->trace.live += t->n;
	z->gathered += t->region.len;
	if (z->gathered + z->spare > z->most_gathered)
		z->most_gathered = z->gathered + z->spare;
	return 0;
}

void zero_gathered_close(struct kolo_zero *z, struct zero_tensor *t)
{
	if (!z->dry)
		close_memory(z, &t->region);
	t->state = ZERO_GONE;
	z->trace.live -= t->n;
	z->gathered -= t->region.len;
}
