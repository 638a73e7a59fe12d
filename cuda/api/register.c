/* Registering memory of GPUs: kolo_cuda_register and kolo_cuda_deregister. map.c maps it on the
 * other ranks. */
#include "cuda/api/stream.h"
#include "cuda/gpu/map.h"
#include "cuda/gpu/window.h"

#include "comm/api/group.h"
#include "comm/core/call.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Registering ----------------------------------------------------------------------------- */

static int check_memory(const struct ko_stream *s, const struct ko_gpu_comm *g, const void *memory,
			size_t bytes)
{
	struct kolo_cuda_pointer p;
	char why[KO_TEXT];
	int rc = ko_stream_ask(s, memory, &p);

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (rc < 0)
		return ko_fail(rc, "rank %d: %s", g->comm->rank, why);
	if (p.kind != KOLO_CUDA_DEVICE || !p.usable)
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_cuda_register: %p is not memory of GPU %d: want kolo_cuda_alloc's, or "
			"cudaMalloc's",
			g->comm->rank, memory, s->driver->info(s->gpu)->ordinal);
	for (int k = 0; k < g->nwindows; k++)
		if ((uintptr_t)memory < (uintptr_t)g->windows[k].mine + g->windows[k].len &&
		    (uintptr_t)g->windows[k].mine < (uintptr_t)memory + bytes)
			return ko_fail(
				KOLO_EINVAL,
				"rank %d: kolo_cuda_register: some of the %zu bytes at %p are registered already",
				g->comm->rank, bytes, memory);
	return 0;
}

static int register_memory(const struct ko_stream *s, struct ko_gpu_comm *g, void *memory,
			   size_t bytes)
{
	struct ko_gpu_window w = { .id = g->last_window + 1, .mine = memory, .len = bytes }, *more;
	int rc = g->driver->enter(g->gpu);

	if (rc < 0) /* the others wait in the next step */
		return ko_comm_fail(g->comm, ko_gpu_error(g, rc, "working on it"), "%s",
				    kolo_last_error());
	more = realloc(g->windows, ((size_t)g->nwindows + 1) * sizeof(*more));
	g->windows = more ? more : g->windows;
	ko_call_post(g->comm, KO_REGISTER, bytes);
	if (!more) {
		rc = ko_comm_fail(g->comm, KOLO_ENOMEM, "rank %d: no memory to register a buffer",
				  g->comm->rank);
	} else {
		rc = check_memory(s, g, memory, bytes);
		if (rc == 0)
			rc = ko_gpu_settle(g);
		rc = ko_gpu_map(g, g->comm, &w, ko_gpu_reaches_all(g), rc);
	}
	g->driver->leave(g->gpu);
	if (rc < 0)
		return rc;
	g->last_window = w.id;
	g->windows[g->nwindows++] = w;
	return 0;
}

int kolo_cuda_register(struct kolo_comm *comm, struct kolo_queue *queue, void *memory, size_t bytes)
{
	struct ko_stream *s = ko_stream_of(queue);
	struct ko_gpu_comm *g;
	int rc;

	if (!comm || !s || !memory || bytes == 0)
		return ko_fail(
			KOLO_EINVAL,
			"kolo_cuda_register: comm and memory must not be NULL, queue must be from "
			"kolo_cuda_queue_create, and bytes more than none");
	if ((rc = ko_group_refuse(comm, "kolo_cuda_register")) < 0)
		return rc;
	ko_order_settle(comm->order);
	rc = ko_stream_join(s, comm, &g);
	return rc < 0 ? rc : register_memory(s, g, memory, bytes);
}

/* ---- Deregistering --------------------------------------------------------------------------- */

int kolo_cuda_deregister(struct kolo_comm *comm, void *memory)
{
	struct ko_gpu_comm *g = comm ? ko_gpu_of(comm) : NULL;
	int k = 0, rc;

	if (!comm)
		return ko_fail(KOLO_EINVAL, "kolo_cuda_deregister: comm is NULL");
	if ((rc = ko_group_refuse(comm, "kolo_cuda_deregister")) < 0)
		return rc;
	ko_order_settle(comm->order);
	while (g && k < g->nwindows && g->windows[k].mine != memory)
		k++;
	if (!g || k == g->nwindows)
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: kolo_cuda_deregister: %p is nothing that was registered on this communicator",
			comm->rank, memory);
	ko_call_post(comm, KO_DEREGISTER, g->windows[k].id);
	if ((rc = g->driver->enter(g->gpu)) < 0)
		return ko_comm_fail(comm, ko_gpu_error(g, rc, "working on it"), "%s",
				    kolo_last_error());
	rc = ko_gpu_settle(g);
	if (rc < 0) /* the others wait for it */
		rc = ko_comm_fail(comm, rc, "%s", kolo_last_error());
	if (rc == 0)
		rc = kolo_barrier(comm, NULL); /* no stream waits for another one's any more */
	ko_gpu_window_close(g, &g->windows[k]);
	g->windows[k] = g->windows[--g->nwindows];
	g->driver->leave(g->gpu);
	return rc < 0 ? rc : kolo_barrier(comm, NULL);
}
