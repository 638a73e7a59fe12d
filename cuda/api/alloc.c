/* Memory of GPUs for the program, which other processes can map: kolo_cuda_alloc and
 * kolo_cuda_free. */
#include "cuda/api/stream.h"

#include "comm/base/error.h"

#include <stdlib.h>

struct allocation {
	struct allocation *next;
	const struct ko_driver *driver;
	struct ko_gpu *gpu;
	struct ko_gpu_memory memory;
};

static struct {
	pthread_mutex_t lock;
	struct allocation *first;
} allocated = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The GPU stays open as long as its memory exists. It is entered first: a default stream is that of
 * the current context. */
static int allocate(const struct ko_stream *s, size_t bytes, struct allocation *a)
{
	int rc = a->driver->enter(s->gpu);

	if (rc < 0)
		return rc;
	if ((rc = a->driver->open(s->stream, &a->gpu)) == 0 &&
	    (rc = a->driver->alloc(a->gpu, bytes, &a->memory)) < 0)
		a->driver->close(a->gpu);
	a->driver->leave(s->gpu);
	return rc;
}

int kolo_cuda_alloc(struct kolo_queue *queue, size_t bytes, void **out)
{
	struct ko_stream *s = ko_stream_of(queue);
	struct allocation *a;
	int rc;

	if (!s || bytes == 0 || !out)
		return ko_fail(KOLO_EINVAL,
			       "kolo_cuda_alloc: out must not be NULL, queue must be from "
			       "kolo_cuda_queue_create, and bytes more than none");
	*out = NULL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return ko_fail(KOLO_ENOMEM, "kolo_cuda_alloc: no memory to remember it");
	a->driver = s->driver;
	rc = allocate(s, bytes, a);
	if (rc < 0) {
		free(a);
		return ko_fail(rc, "kolo_cuda_alloc: %zu bytes on GPU %d: %s", bytes,
			       s->driver->info(s->gpu)->ordinal, s->driver->text());
	}
	pthread_mutex_lock(&allocated.lock);
	a->next = allocated.first;
	allocated.first = a;
	pthread_mutex_unlock(&allocated.lock);
	*out = a->memory.at;
	return 0;
}

static struct allocation *take(const void *memory)
{
	struct allocation **at, *found;

	pthread_mutex_lock(&allocated.lock);
	for (at = &allocated.first; *at && (*at)->memory.at != memory; at = &(*at)->next)
		;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&allocated.lock);
	return found;
}

int kolo_cuda_free(void *memory)
{
	struct allocation *a = memory ? take(memory) : NULL;
	int rc;

	if (!memory)
		return 0;
	if (!a)
		return ko_fail(KOLO_EINVAL, "kolo_cuda_free: %p is no memory from kolo_cuda_alloc",
			       memory);
	if ((rc = a->driver->enter(a->gpu)) < 0)
		rc = ko_fail(rc, "kolo_cuda_free: GPU %d: %s", a->driver->info(a->gpu)->ordinal,
			     a->driver->text());
	else {
		a->driver->release(a->gpu, &a->memory);
		a->driver->leave(a->gpu);
	}
	a->driver->close(a->gpu);
	free(a);
	return rc;
}
