/* Memory from kolo_alloc: a shared window with a part for each rank, which all ranks of the host map. What lies in one
 * can be read and written by the others where it is. */
#ifndef COMM_MEMORY_WINDOW_H
#define COMM_MEMORY_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct kolo_comm;

struct ko_window {
	char *memory;    /* nranks parts, by rank; all mapped here */
	size_t part_len; /* bytes, whole pages */
	uint32_t id;     /* counts the communicator's windows from 1; the same on all ranks */
};

/* Those of a communicator. */
struct ko_windows {
	struct ko_window *all; /* count of them */
	int count;
	uint32_t last; /* the id of the one made last */
};

/* Where a buffer is, for the other ranks. */
struct ko_where {
	uint64_t at;     /* window 0: its address; else its offset in its rank's part */
	uint64_t window; /* the window's id; 0: in none */
};

/* Where `len` bytes of this rank are. */
struct ko_where ko_window_find(const struct kolo_comm *c, const void *buffer, size_t len);

/* `rank`'s buffer, as this rank sees it; NULL when it is in no window that is mapped here. */
void *ko_window_at(const struct kolo_comm *c, int rank, struct ko_where where);

/* The part of `rank`. */
static inline char *ko_window_part(const struct ko_window *w, int rank)
{
	return w->memory + (size_t)rank * w->part_len;
}

/* Takes it out of this rank's address space. */
void ko_window_unmap(const struct kolo_comm *c, const struct ko_window *w);

/* Unmaps all that the user has not freed. */
void ko_windows_close(struct kolo_comm *c);

#endif
