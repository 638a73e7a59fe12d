/* Kolo's queues for CUDA's streams (kn_queue_of). NCCL's callers name a stream in each call. */
#include "cuda/nccl/inside.h"

#include <stdlib.h>

/* The one that was used with this stream; NULL: none was. Handles of streams are used again after a
 * stream was destroyed, so there are not more than streams at one time. */
static struct kn_queue *find(struct kn_queues *queues, cudaStream_t stream)
{
	for (size_t k = 0; k < queues->n; k++)
		if (queues->at[k].stream == stream)
			return &queues->at[k];
	return NULL;
}

int kn_queue_of(struct kn_queues *queues, cudaStream_t stream, struct kolo_queue **out)
{
	struct kn_queue *q = find(queues, stream), *more;
	int rc;

	if (q) {
		*out = q->queue;
		return 0;
	}
	more = realloc(queues->at, (queues->n + 1) * sizeof(*more));
	if (!more)
		return kolo_error_set(KOLO_ENOMEM, "no memory for a queue");
	queues->at = more;
	rc = kolo_cuda_queue_create(stream, out);
	if (rc == 0)
		queues->at[queues->n++] = (struct kn_queue){ stream, *out };
	return rc;
}

void kn_queues_close(struct kn_queues *queues)
{
	for (size_t k = 0; k < queues->n; k++)
		kolo_queue_destroy(queues->at[k].queue); /* what was recorded with it goes on */
	free(queues->at);
	*queues = (struct kn_queues){ 0 };
}
