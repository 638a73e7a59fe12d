/* See window.h. Rank 0 makes a window and hands it to everyone over the lifelines, as it did with the roster. */
#include "window.h"

#include "clock.h"
#include "comm.h"
#include "shmem.h"
#include "turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* ---- Finding -------------------------------------------------------------------------------------------- */

static char *part(const struct ko_window *w, int rank)
{
	return w->memory + (size_t)rank * w->part_len;
}

struct ko_where ko_window_find(const struct kolo_comm *c, const void *buffer, size_t len)
{
	uintptr_t at = (uintptr_t)buffer;

	for (int k = 0; k < c->nwindows; k++) {
		uintptr_t mine = (uintptr_t)part(&c->windows[k], c->rank);

		if (at >= mine && at - mine <= c->windows[k].part_len &&
		    len <= c->windows[k].part_len - (at - mine))
			return (struct ko_where){ .at = at - mine, .window = c->windows[k].id };
	}
	return (struct ko_where){ .at = at };
}

void *ko_window_at(const struct kolo_comm *c, int rank, struct ko_where where)
{
	for (int k = 0; where.window && k < c->nwindows; k++)
		if (c->windows[k].id == where.window)
			return part(&c->windows[k], rank) + where.at;
	return NULL;
}

/* ---- Making --------------------------------------------------------------------------------------------- */

/* What ranks tell each other of a window that is to be. */
struct wish {
	uint64_t bytes;
	int64_t status;
};

/* Equal wishes of all ranks, each of which has come so far without an error. */
static int check_wishes(const struct kolo_comm *c, const struct wish *all)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];

	for (int r = 0; r < c->nranks; r++) {
		if (all[r].status < 0)
			return ko_fail((int)all[r].status,
				       "kolo_alloc of %llu bytes: %s could not take part (%s); its own error "
				       "says why",
				       (unsigned long long)all[c->rank].bytes, ko_comm_name(c, r, them),
				       kolo_strerror((int)all[r].status));
		if (all[r].bytes != all[c->rank].bytes)
			return ko_fail(KOLO_EMISMATCH,
				       "ranks disagree: %s called kolo_alloc for %llu bytes, %s for %llu",
				       ko_comm_name(c, c->rank, me), (unsigned long long)all[c->rank].bytes,
				       ko_comm_name(c, r, them), (unsigned long long)all[r].bytes);
	}
	return 0;
}

/* Tells the others how far this rank has come; fails where one of them has failed. */
static int exchange(struct kolo_comm *c, uint64_t bytes, int status)
{
	struct wish mine = { bytes, status }, *all = calloc((size_t)c->nranks, sizeof(*all));
	char why[KO_TEXT];
	int rc;

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (!all) /* the others wait in the collective below: there is no way to go on without this rank */
		return ko_comm_fail(c, KOLO_ENOMEM, "rank %d: no memory for what %d ranks say", c->rank,
				    c->nranks);
	rc = kolo_all_gather(c, &mine, all, sizeof(mine), KOLO_U8, NULL);
	if (rc == 0)
		rc = status < 0 ? ko_fail(status, "%s", why) : check_wishes(c, all);
	free(all);
	return rc;
}

/* Rank 0 has made the memory, and everyone has agreed to it. A rank that has finished that operation is in no wait, where
 * it would not know what comes over its lifeline. */
static int hand_out(struct kolo_comm *c, int fd)
{
	struct ko_run run = { .comm = c };
	struct ko_msg msg = { .type = KO_MSG_WINDOW };
	int rc = 0;

	ko_roster_desc(c->roster, c->rank, c->seq, &run.desc);
	for (int r = 1; rc == 0 && r < c->nranks; r++)
		if ((rc = ko_turn_wait_finished(&run, r)) == 0)
			rc = ko_lifelines_send(c->lifelines, r, &msg, fd);
	return rc;
}

/* The others' part of it. */
static int take_over(struct kolo_comm *c, int *fd)
{
	int64_t deadline = c->timeout_ms ? ko_now_ms() + c->timeout_ms : INT64_MAX;
	struct ko_msg msg;

	return ko_lifelines_recv(c->lifelines, 0, KO_MSG_WINDOW, 0, deadline, &msg, fd);
}

/* The window, mapped on all ranks, or on none. */
static int make_window(struct kolo_comm *c, size_t bytes, size_t part_len, void **memory)
{
	size_t len = part_len * (size_t)c->nranks;
	int fd = -1, rc = 0;

	if (c->rank == 0)
		rc = ko_shmem_create(len, false, &fd, memory);
	rc = exchange(c, bytes, rc);
	if (rc == 0) {
		rc = c->rank == 0 ? hand_out(c, fd) : take_over(c, &fd);
		if (rc < 0) /* others may still wait for it */
			rc = ko_comm_fail(c, rc, "%s", kolo_last_error());
	}
	if (rc == 0) {
		if (c->rank != 0)
			rc = ko_shmem_map(fd, len, false, memory);
		if (rc == 0) /* here and now: the pages of a part belong near its rank */
			rc = ko_shmem_touch((char *)*memory + (size_t)c->rank * part_len, part_len);
		rc = exchange(c, bytes, rc);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

int kolo_alloc(struct kolo_comm *comm, size_t bytes, void **out)
{
	struct ko_window *more, made;
	void *memory = NULL;
	size_t len;
	int rc;

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_alloc: comm and out must not be NULL");
	*out = NULL;
	if (bytes == 0 || bytes > SIZE_MAX / 4 / (size_t)comm->nranks)
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_alloc: %zu bytes: want more than none, and what an address space holds",
			comm->rank, bytes);
	made = (struct ko_window){ .part_len = (bytes + PAGE - 1) / PAGE * PAGE,
				   .id = comm->last_window + 1 };
	len = made.part_len * (size_t)comm->nranks;
	more = realloc(comm->windows, ((size_t)comm->nwindows + 1) * sizeof(*more));
	if (!more)
		return ko_comm_fail(comm, KOLO_ENOMEM, "rank %d: no memory to remember a window", comm->rank);
	comm->windows = more;
	rc = make_window(comm, bytes, made.part_len, &memory);
	if (rc < 0) {
		if (memory)
			munmap(memory, len);
		return rc;
	}
	made.memory = memory;
	comm->last_window = made.id;
	comm->windows[comm->nwindows++] = made;
	*out = part(&made, comm->rank);
	return 0;
}

/* ---- Freeing -------------------------------------------------------------------------------------------- */

static void unmap(const struct kolo_comm *c, const struct ko_window *w)
{
	munmap(w->memory, w->part_len * (size_t)c->nranks);
}

/* From here on operations go other ways: so it is one itself, in which nobody waits, and ranks that free in different
 * places disagree like any others. */
int kolo_free(struct kolo_comm *comm, void *memory)
{
	struct ko_desc desc;
	int k = 0;

	if (!comm)
		return ko_fail(KOLO_EINVAL, "kolo_free: comm is NULL");
	if (!memory)
		return 0;
	while (k < comm->nwindows && part(&comm->windows[k], comm->rank) != memory)
		k++;
	if (k == comm->nwindows)
		return ko_fail(KOLO_EINVAL,
			       "rank %d: kolo_free: %p is no memory from kolo_alloc on this communicator",
			       comm->rank, memory);
	desc = (struct ko_desc){ .seq = ++comm->seq, .n = comm->windows[k].id, .root = -1, .coll = KO_FREE };
	comm->history = ko_desc_history(comm->history, &desc);
	ko_roster_enter(comm->roster, comm->rank, &desc);
	ko_roster_finish(comm->roster, comm->rank, desc.seq);
	unmap(comm, &comm->windows[k]);
	comm->windows[k] = comm->windows[--comm->nwindows];
	return 0;
}

void ko_windows_close(struct kolo_comm *c)
{
	for (int k = 0; k < c->nwindows; k++)
		unmap(c, &c->windows[k]);
	free(c->windows);
}
