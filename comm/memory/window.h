/* Windows: memory from kolo_alloc (comm/api/alloc.c). A window has a part for each rank, and all
 * ranks of the host map all of it. So other ranks read and write a buffer in a window in place. */
#ifndef COMM_MEMORY_WINDOW_H
#define COMM_MEMORY_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct kolo_comm;

struct ko_window {
	char *memory;    /* nranks parts, by rank */
	size_t part_len; /* bytes of a part, whole pages */
	uint32_t id;     /* counts the communicator's windows from 1; the same on all ranks */
};

/* The windows of a communicator. */
struct ko_windows {
	struct ko_window *all; /* in no order */
	int count;             /* of `all` */
	uint32_t last;         /* the id of the window made last; 0: none */
};

/* Where a buffer is, as other ranks are told. */
struct ko_where {
	uint64_t at;     /* in a window: its offset in its rank's part; else its address */
	uint64_t window; /* the window's id; 0: in none */
};

/* Where a buffer of this rank with `len` bytes is. */
struct ko_where ko_window_find(const struct kolo_comm *c, const void *buffer, size_t len);

/* The address in this process of a buffer of `rank`. NULL: it is in no window that is mapped
 * here. */
void *ko_window_at(const struct kolo_comm *c, int rank, struct ko_where where);

/* The part of `rank` in a window. */
static inline char *ko_window_part(const struct ko_window *w, int rank)
{
	return w->memory + (size_t)rank * w->part_len;
}

/* Unmaps a window of this communicator here. */
void ko_window_unmap(const struct kolo_comm *c, const struct ko_window *w);

/* Unmaps all windows that the user has not freed. */
void ko_windows_close(struct kolo_comm *c);

#endif
