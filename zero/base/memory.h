/* Memory by kind, counted. What the engine holds of a kind at a place is one arena; each tensor has
 * its parts of it. */
#ifndef ZERO_BASE_MEMORY_H
#define ZERO_BASE_MEMORY_H

#include "kolo/kolo_zero_device.h"

#include <stdbool.h>
#include <stddef.h>

enum zero_kind {
	ZERO_PARAMETERS,
	ZERO_GRADIENTS,
	ZERO_MASTERS,
	ZERO_MOMENTS,
	ZERO_BUCKETS,
	ZERO_GATHERED,
	ZERO_STAGING,       /* for values that were updated in one place and belong in the other */
	ZERO_STATE_BLOCKS,  /* for state that is in files */
	ZERO_PARAM_BUFFERS, /* for shards that are in files */
	ZERO_SUMS,          /* of squares, and other notes of a device */
	ZERO_NKINDS,
};

/* What kolo_zero_memory calls a kind. Static storage. */
const char *zero_kind_name(enum zero_kind kind);

/* Places in an engine. The last two are offloaded. */
enum zero_place {
	ZERO_ON_DEVICE, /* where the model computes: the device's memory, or the host's if the
			   config has no device */
	ZERO_ON_HOST,
	ZERO_IN_FILES,
	ZERO_NPLACES
};

/* One kind at one place. Parts are taken twice: first they are only counted; after zero_arena_open
 * they are given. */
struct zero_arena {
	char *base; /* NULL while counting, of files, and of nothing */
	size_t used;
	size_t mapped;
	size_t pinned;                   /* bytes of base that are */
	struct kolo_zero_device *device; /* whose memory it is, or with which it is pinned */
	bool on_device;
};

size_t zero_whole_pages(size_t bytes);

/* Rounds up to cache lines, at which buffers begin. */
static inline size_t zero_whole_lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* The next `bytes` of an arena; 0 is allowed. NULL while counting. Parts follow each other without
 * a gap: to be aligned, those of types with larger elements are taken first. */
void *zero_arena_take(struct zero_arena *arena, size_t bytes);

/* Makes what was counted, zeroed, and starts again. device NULL: host memory. Errors:
 * KOLO_ENOMEM. */
int zero_arena_open(struct zero_arena *arena, const char *kind, struct kolo_zero_device *device);
/* Pins an arena of host memory. Errors: KOLO_ESYS. */
int zero_arena_pin(struct zero_arena *arena, struct kolo_zero_device *device);
void zero_arena_close(struct zero_arena *arena);

/* Maps `len` bytes, whole pages, with mmap's protection. From 2 MiB on they begin at a huge page.
 * NULL with errno. */
char *zero_map(size_t len, int protection);

/* Addresses for one gathered tensor. A touch of them traps, except between open, or move, and
 * close. */
struct zero_region {
	char *base;
	size_t len;
};

int zero_region_reserve(struct zero_region *region, size_t bytes, const char *name);
/* Puts zeroed memory there. Errors: KOLO_ENOMEM. */
int zero_region_open(struct zero_region *region, const char *name);
/* Puts the memory of `from` there, with what is in it; zeroed, if the system can't move it. `from`
 * was closed, is as long, and may be the same region. `passage` is as long as any region and never
 * open; its base may become NULL. Errors: KOLO_ENOMEM. */
int zero_region_move(struct zero_region *to, const struct zero_region *from,
		     struct zero_region *passage, const char *name);
/* Closes a region: its memory stays until it is dropped, or moved. */
void zero_region_close(const struct zero_region *region);
void zero_region_drop(const struct zero_region *region);
void zero_region_free(struct zero_region *region);

#endif
