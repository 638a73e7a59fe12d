/* Memory by kind, counted: what the engine holds is mapped in one piece for each kind, and each tensor has its part of it. */
#ifndef ZERO_MEMORY_H
#define ZERO_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

enum zero_kind {
	ZERO_PARAMETERS,
	ZERO_GRADIENTS,
	ZERO_MASTERS,
	ZERO_MOMENTS,
	ZERO_BUCKETS,
	ZERO_GATHERED,
	ZERO_NKINDS,
};

/* One kind. Parts are taken twice: first only counted, then, behind zero_arena_open, for real. */
struct zero_arena {
	char *base; /* NULL while counting */
	size_t used;
	size_t mapped;
};

/* The next `bytes` of an arena, which may be none; NULL while counting. Parts follow each other without a gap: those of types
 * with larger elements are taken first, so that all are aligned. */
void *zero_arena_take(struct zero_arena *arena, size_t bytes);

/* Maps what was counted, zeroed, and starts again. Errors: KOLO_ENOMEM. */
int zero_arena_open(struct zero_arena *arena, const char *kind);
void zero_arena_close(struct zero_arena *arena);

/* Addresses for one gathered tensor: without memory, and a touch of them traps, but between open and close, when they are zeroed
 * memory. */
struct zero_region {
	char *base;
	size_t len;
};

int zero_region_reserve(struct zero_region *region, size_t bytes, const char *name);
int zero_region_open(struct zero_region *region, const char *name);
void zero_region_close(struct zero_region *region);
void zero_region_free(struct zero_region *region);

#endif
