/* kolo_alloc and kolo_free. Rank 0 makes a window and sends its descriptor to all ranks over the
 * lifelines, as it did with the roster's. */
#include "comm/api/group.h"
#include "comm/base/clock.h"
#include "comm/core/call.h"
#include "comm/memory/turns.h"
#include "comm/memory/window.h"
#include "comm/sys/shmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, GRACE_MS = 2000 };

/* ---- Making ---------------------------------------------------------------------------------- */

/* Sends this rank's status to all ranks. Returns the first error that a rank has. */
static int compare_status(struct kolo_comm *c, int32_t status)
{
	int32_t *all = calloc((size_t)c->nranks, sizeof(*all));
	char why[KO_TEXT], them[KO_RANK_TEXT];
	int rc;

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (!all) /* the others wait in the collective below and can't go on without this rank */
		return ko_comm_fail(c, KOLO_ENOMEM, "rank %d: no memory for the status of %d ranks",
				    c->rank, c->nranks);
	rc = kolo_all_gather(c, &status, all, 1, KOLO_I32, NULL);
	if (rc == 0 && status < 0)
		rc = ko_fail(status, "%s", why);
	for (int r = 0; rc == 0 && r < c->nranks; r++)
		if (all[r] < 0)
			rc = ko_fail(
				all[r],
				"kolo_alloc: %s could not take part (%s); its own error says why",
				ko_comm_name(c, r, them), kolo_strerror(all[r]));
	free(all);
	return rc;
}

/* Rank 0, after compare_status: sends the descriptor to all ranks. First it waits until each has
 * finished that operation. In a wait a rank would not know what to do with the message. */
static int hand_out(struct kolo_comm *c, int fd)
{
	struct ko_desc desc = { 0 };
	const struct ko_waiter waiter = { .comm = c,
					  .desc = &desc,
					  .since = c->traced ? ko_now_ns() : 0 };
	struct ko_msg msg = { .type = KO_MSG_WINDOW };
	int rc = 0;

	ko_roster_desc(c->roster, c->rank, c->sequence.seq, &desc);
	for (int r = 1; rc == 0 && r < c->nranks; r++)
		if ((rc = ko_turn_wait_finished(&waiter, r)) == 0)
			rc = ko_lifelines_send(c->lifelines, r, &msg, fd);
	return rc;
}

/* The other ranks: receives the descriptor from rank 0. */
static int take_over(struct kolo_comm *c, int *fd)
{
	/* If another rank keeps rank 0 waiting, rank 0 knows which one and shall report it
	 * first. */
	int64_t deadline = c->timeout_ms ? ko_now_ms() + c->timeout_ms + GRACE_MS : INT64_MAX;
	struct ko_msg msg;

	return ko_lifelines_recv(c->lifelines, 0, KO_MSG_WINDOW, 0, deadline, &msg, fd);
}

/* Makes the window: mapped on all ranks, or an error on all ranks. */
static int make_window(struct kolo_comm *c, size_t part_len, void **memory)
{
	size_t len = part_len * (size_t)c->nranks;
	int fd = -1, rc = 0;

	/* If the ranks are on several hosts each makes memory of its own. The others' parts of it
	 * stay unused. */
	if (c->rank == 0 || c->spread)
		rc = ko_shmem_create(len, len, false, &fd, memory);
	rc = compare_status(c, rc);
	if (rc == 0 && !c->spread) {
		rc = c->rank == 0 ? hand_out(c, fd) : take_over(c, &fd);
		if (rc < 0) /* other ranks may still wait for it */
			rc = ko_comm_fail(c, rc, "%s", kolo_last_error());
	}
	if (rc == 0) {
		if (c->rank != 0 && !c->spread)
			rc = ko_shmem_map(fd, len, len, false, memory);
		if (rc == 0) /* each rank touches its own part, so that its pages lie near it */
			rc = ko_shmem_touch((char *)*memory + (size_t)c->rank * part_len, part_len);
		rc = compare_status(c, rc);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Lends the memory to a link, which may then send from it or receive into it without a copy. After
 * an error the link copies. */
static void lend(struct kolo_comm *c, struct ko_link *link, void *memory, size_t len)
{
	if (link && ko_link_lend(link, memory, len) < 0)
		ko_log(&c->log, KOLO_LOG_WARN,
		       "rank %d: %zu bytes from kolo_alloc will be copied: %s", c->rank, len,
		       kolo_last_error());
}

static void take_back(struct ko_link *link, void *memory)
{
	if (link)
		ko_link_take_back(link, memory);
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
			"rank %d: kolo_alloc: %zu bytes: want at least 1, and no more than an address space holds",
			comm->rank, bytes);
	if ((rc = ko_group_refuse(comm, "kolo_alloc")) < 0)
		return rc;
	ko_order_settle(comm->order); /* operations in queues come first */
	made = (struct ko_window){ .part_len = (bytes + PAGE - 1) / PAGE * PAGE,
				   .id = comm->windows->last + 1 };
	len = made.part_len * (size_t)comm->nranks;
	more = realloc(comm->windows->all, ((size_t)comm->windows->count + 1) * sizeof(*more));
	if (!more)
		return ko_comm_fail(comm, KOLO_ENOMEM, "rank %d: no memory to remember a window",
				    comm->rank);
	comm->windows->all = more;
	ko_call_post(comm, KO_ALLOC, bytes);
	rc = make_window(comm, made.part_len, &memory);
	if (rc < 0) {
		if (memory)
			munmap(memory, len);
		return rc;
	}
	made.memory = memory;
	comm->windows->last = made.id;
	comm->windows->all[comm->windows->count++] = made;
	ko_call_forget(comm);
	*out = ko_window_part(&made, comm->rank);
	lend(comm, comm->edges.to, *out, made.part_len);
	lend(comm, comm->edges.from, *out, made.part_len);
	return 0;
}

/* ---- Freeing --------------------------------------------------------------------------------- */

/* Operations may go other ways afterwards. So kolo_free is posted like an operation: ranks that
 * call it at different places get an error. */
int kolo_free(struct kolo_comm *comm, void *memory)
{
	int k = 0, rc;

	if (!comm)
		return ko_fail(KOLO_EINVAL, "kolo_free: comm is NULL");
	if (!memory)
		return 0;
	if ((rc = ko_group_refuse(comm, "kolo_free")) < 0)
		return rc;
	ko_order_settle(comm->order);
	if (atomic_exchange_explicit(&comm->sequence.busy, true, memory_order_acquire))
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_free: another thread is in an operation on this communicator",
			comm->rank);
	while (k < comm->windows->count &&
	       ko_window_part(&comm->windows->all[k], comm->rank) != memory)
		k++;
	if (k < comm->windows->count) {
		ko_call_post(comm, KO_FREE, comm->windows->all[k].id);
		take_back(comm->edges.to, memory);
		take_back(comm->edges.from, memory);
		ko_window_unmap(comm, &comm->windows->all[k]);
		comm->windows->all[k] = comm->windows->all[--comm->windows->count];
		ko_call_forget(comm);
		k = -1;
	}
	atomic_store_explicit(&comm->sequence.busy, false, memory_order_release);
	return k < 0 ? 0
		     : ko_fail(KOLO_EINVAL,
			       "rank %d: kolo_free: %p is no memory from kolo_alloc on this communicator",
			       comm->rank, memory);
}
