/* Finds buffers in windows (ko_window_find, ko_window_at) and unmaps windows. comm/api/alloc.c
 * makes them. */
#include "comm/memory/window.h"

#include "comm/core/comm.h"

#include <stdlib.h>
#include <sys/mman.h>

struct ko_where ko_window_find(const struct kolo_comm *c, const void *buffer, size_t len)
{
	uintptr_t at = (uintptr_t)buffer;

	for (int k = 0; k < c->windows->count; k++) {
		uintptr_t mine = (uintptr_t)ko_window_part(&c->windows->all[k], c->rank);

		if (at >= mine && at - mine <= c->windows->all[k].part_len &&
		    len <= c->windows->all[k].part_len - (at - mine))
			return (struct ko_where){ .at = at - mine,
						  .window = c->windows->all[k].id };
	}
	return (struct ko_where){ .at = at };
}

void *ko_window_at(const struct kolo_comm *c, int rank, struct ko_where where)
{
	for (int k = 0; where.window && k < c->windows->count; k++)
		if (c->windows->all[k].id == where.window)
			return ko_window_part(&c->windows->all[k], rank) + where.at;
	return NULL;
}

void ko_window_unmap(const struct kolo_comm *c, const struct ko_window *w)
{
	munmap(w->memory, w->part_len * (size_t)c->nranks);
}

void ko_windows_close(struct kolo_comm *c)
{
	for (int k = 0; k < c->windows->count; k++)
		ko_window_unmap(c, &c->windows->all[k]);
	free(c->windows->all);
}
