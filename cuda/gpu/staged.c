/* The slots of a staged edge's end (ko_gpu_staged_make): in GPU memory if a card can use that, else
 * in pinned host memory. */
#include "cuda/gpu/staged.h"

#include "comm/base/env.h"

#include <sys/mman.h>
#include <unistd.h>

/* The link of the inner communicator that carries this end's slots. */
static struct ko_link *inner_link(const struct ko_gpu_ring *ring, const struct ko_gpu_link *link)
{
	return link == &ring->out ? ring->over->to : ring->over->from;
}

/* Makes slots in GPU memory, which a card reads or writes itself. The error says what does not
 * work. */
static int make_device_slots(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring,
			     struct ko_gpu_link *link)
{
	struct ko_link *over = inner_link(ring, link);
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = (g->arena + page - 1) / page * page;
	int fd = -1, rc;

	if (g->arena / KO_GPU_SLOTS < ko_gpu_path_check_len(g, ring) + KO_GPU_ALIGN)
		return ko_fail(KOLO_ENOTSUP,
			       "they are too short to try cards on them (KOLO_CUDA_MEMORY)");
	rc = g->driver->alloc_own(g->gpu, len, &link->memory);
	if (rc == 0)
		rc = g->driver->dmabuf(g->gpu, &link->memory, &fd);
	if (rc < 0)
		ko_gpu_error(g, rc, "memory that cards read and write");
	else
		rc = over->ops->rma->lend_device(over, link->memory.at, len, fd, 0);
	if (fd >= 0)
		close(fd);
	if (rc < 0)
		g->driver->release(g->gpu, &link->memory);
	link->device = rc == 0;
	link->staged = rc == 0 ? link->memory.at : NULL;
	return rc;
}

/* Makes slots in host memory. If the link can, bytes are sent from there and arrive there. Else it
 * copies. */
static int make_host_slots(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring,
			   struct ko_gpu_link *link)
{
	void *slots = mmap(NULL, g->arena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0),
	     *at;
	int rc;

	if (slots == MAP_FAILED)
		return ko_fail(KOLO_ENOMEM,
			       "rank %d: no memory for slots (KOLO_CUDA_MEMORY, %zu bytes)",
			       g->comm->rank, g->arena);
	rc = g->driver->pin(g->gpu, slots, g->arena, &at);
	if (rc < 0) {
		munmap(slots, g->arena);
		return ko_gpu_error(g, rc, "registering host memory for slots");
	}
	link->staged = slots;
	link->memory.at = at;
	if (ko_link_lend(inner_link(ring, link), slots, g->arena) < 0)
		ko_log(&g->comm->log, KOLO_LOG_WARN, "rank %d: slots of a GPU will be copied: %s",
		       g->comm->rank, kolo_last_error());
	return 0;
}

int ko_gpu_staged_make(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring,
		       struct ko_gpu_link *link)
{
	int64_t wanted;
	int rc = ko_env_get(KO_ENV_CUDA_DMABUF, &wanted);

	if (rc < 0)
		return rc;
	if (!inner_link(ring, link)->ops->rma)
		wanted = 0; /* allocating and freeing may wait for the whole GPU */
	if (wanted && make_device_slots(g, ring, link) == 0)
		return 0;
	if (wanted)
		ko_log(&g->comm->log, KOLO_LOG_INFO,
		       "rank %d: slots to or from rank %d are in host memory: %s", g->comm->rank,
		       link->peer, kolo_last_error());
	return make_host_slots(g, ring, link);
}

void ko_gpu_staged_free(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring,
			struct ko_gpu_link *link)
{
	if (!link->staged)
		return;
	ko_link_take_back(inner_link(ring, link), link->staged);
	if (link->device) {
		g->driver->release(g->gpu, &link->memory);
	} else {
		g->driver->unpin(g->gpu, link->staged);
		munmap(link->staged, g->arena);
	}
	link->staged = NULL;
	link->memory.at = NULL;
}
