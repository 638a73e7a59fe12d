/* Memory by kind (zero_arena_take), and addresses for gathered tensors (zero_region_open). Memory
 * is mapped from the system, not taken from malloc: freed memory goes back at once, and is counted
 * to the page. */
#include "zero/base/memory.h"

#include "zero/base/basics.h"

#include "kolo/kolo_zero.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *zero_kind_name(enum zero_kind kind)
{
	static const char *const names[ZERO_NKINDS] = {
		[ZERO_PARAMETERS] = "parameters",
		[ZERO_GRADIENTS] = "gradients",
		[ZERO_MASTERS] = "master weights",
		[ZERO_MOMENTS] = "moments",
		[ZERO_BUCKETS] = "buckets",
		[ZERO_GATHERED] = "gathered",
		[ZERO_STAGING] = "copies",
		[ZERO_STATE_BLOCKS] = "units of state",
		[ZERO_PARAM_BUFFERS] = "shards read",
		[ZERO_SUMS] = "sums",
	};

	return names[kind];
}

size_t zero_whole_pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

void *zero_arena_take(struct zero_arena *arena, size_t bytes)
{
	char *part = arena->base ? arena->base + arena->used : NULL;

	arena->used += bytes;
	return part;
}

/* Asks for huge pages if one fits: memory that is mapped for each use costs less than a third
 * then. */
enum { HUGE_PAGE = 2 << 20 };

char *zero_map(size_t len, int protection)
{
	size_t more = len >= HUGE_PAGE ? HUGE_PAGE : 0, skip;
	char *base = mmap(NULL, len + more, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	skip = more ? -(uintptr_t)base % HUGE_PAGE : 0;
	if (skip)
		munmap(base, skip);
	if (more > skip)
		munmap(base + skip + len, more - skip);
	if (more)
		madvise(base + skip, len, MADV_HUGEPAGE); /* if it can't, pages are small */
	return base + skip;
}

int zero_arena_open(struct zero_arena *arena, const char *kind, struct kolo_zero_device *device)
{
	size_t len = zero_whole_pages(arena->used);
	void *memory = NULL;
	char *base = NULL;
	int rc = 0;

	if (len == 0)
		return 0;
	if (device)
		rc = device->ops->allocate(device, len, kind, &memory);
	else if (!(base = zero_map(len, PROT_READ | PROT_WRITE)))
		rc = kolo_error_set(KOLO_ENOMEM, "%zu bytes for %s: %s", len, kind,
				    strerror(errno));
	if (rc == 0)
		*arena = (struct zero_arena){ .base = device ? memory : base,
					      .mapped = len,
					      .device = device,
					      .on_device = device != NULL };
	return rc;
}

int zero_arena_pin(struct zero_arena *arena, struct kolo_zero_device *device)
{
	int rc = arena->base ? device->ops->pin(device, arena->base, arena->mapped) : 0;

	if (rc == 0 && arena->base) {
		arena->pinned = arena->mapped;
		arena->device = device;
	}
	return rc;
}

void zero_arena_close(struct zero_arena *arena)
{
	if (arena->pinned)
		arena->device->ops->unpin(arena->device, arena->base, arena->pinned);
	if (arena->base && arena->on_device)
		arena->device->ops->release(arena->device, arena->base, arena->mapped);
	else if (arena->base)
		munmap(arena->base, arena->mapped);
	*arena = (struct zero_arena){ 0 };
}

int zero_region_reserve(struct zero_region *region, size_t bytes, const char *name)
{
	size_t len = zero_whole_pages(bytes);
	char *base = zero_map(len, PROT_NONE);

	if (!base)
		return kolo_error_set(KOLO_ENOMEM, "%zu bytes of addresses for tensor '%s': %s",
				      len, name, strerror(errno));
	*region = (struct zero_region){ base, len };
	return 0;
}

int zero_region_open(struct zero_region *region, const char *name)
{
	if (mprotect(region->base, region->len, PROT_READ | PROT_WRITE) < 0)
		return kolo_error_set(KOLO_ENOMEM, "%zu bytes for tensor '%s': %s", region->len,
				      name, strerror(errno));
#ifdef MADV_POPULATE_WRITE /* all pages in one call; older systems bring them one by one */
	madvise(region->base, region->len, MADV_POPULATE_WRITE);
#endif
	return 0;
}

/* Moves the pages; the addresses at `from` stay reserved. A failure may leave a hole at `to`, which
 * anything may take. */
static bool move_pages(char *to, const char *from, size_t len)
{
#ifdef MREMAP_DONTUNMAP
	return mremap((void *)from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
		      to) == to;
#else
	(void)to, (void)from, (void)len;
	return false;
#endif
}

/* Moves pages by way of `passage`. Moving may fail on old systems, or if some of the pages are
 * locked. Then only the addresses of `passage` may be lost, and it is not used again. */
static bool move_through(struct zero_region *to, const struct zero_region *from,
			 struct zero_region *passage)
{
	if (!passage->base)
		return false;
	if (!move_pages(passage->base, from->base, from->len)) {
		passage->base = NULL;
		return false;
	}
	if (!move_pages(to->base, passage->base, to->len))
		to->base = NULL;
	return true;
}

int zero_region_move(struct zero_region *to, const struct zero_region *from,
		     struct zero_region *passage, const char *name)
{
	if (to->base != from->base && !move_through(to, from, passage)) {
		zero_region_drop(from);
		return zero_region_open(to, name);
	}
	if (!to->base || mprotect(to->base, to->len, PROT_READ | PROT_WRITE) < 0)
		return kolo_error_set(KOLO_ENOMEM, "%zu bytes for tensor '%s': %s", to->len, name,
				      strerror(errno));
	return 0;
}

void zero_region_close(const struct zero_region *region)
{
	mprotect(region->base, region->len, PROT_NONE);
}

void zero_region_drop(const struct zero_region *region)
{
	madvise(region->base, region->len, MADV_DONTNEED);
}

void zero_region_free(struct zero_region *region)
{
	if (region->base)
		munmap(region->base, region->len);
	*region = (struct zero_region){ 0 };
}
