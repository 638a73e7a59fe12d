/* Kolo's queues for CUDA's streams (kn_queue_of). NCCL's callers name a stream in each call. */
#include "cuda/nccl/inside.h"

/* The one that was used with this stream, or else the one to give away: free, or not used for
 * longest. */
static struct kn_queue *choose(struct kn_queues *queues, cudaStream_t stream)
{
	struct kn_queue *oldest = &queues->at[0];

	for (int k = 0; k < KN_QUEUES; k++) {
		struct kn_queue *q = &queues->at[k];

		if (q->queue && q->stream == stream)
			return q;
		if (q->used < oldest->used)
			oldest = q;
	}
	return oldest;
}

int kn_queue_of(struct kn_queues *queues, cudaStream_t stream, struct kolo_queue **out)
{
	struct kn_queue *q = choose(queues, stream);
	int rc = 0;

	if (!q->queue || q->stream != stream) {
		kolo_queue_destroy(q->queue); /* what was recorded with it goes on */
		*q = (struct kn_queue){ .stream = stream };
		rc = kolo_cuda_queue_create(stream, &q->queue);
	}
	q->used = rc == 0 ? ++queues->uses : 0;
	*out = q->queue;
	return rc;
}

int kn_queues_wait(struct kn_queues *queues)
{
	int rc = 0;

	for (int k = 0; k < KN_QUEUES; k++)
		if (queues->at[k].queue && rc == 0)
			rc = kolo_queue_wait(queues->at[k].queue);
	return rc;
}

void kn_queues_close(struct kn_queues *queues)
{
	for (int k = 0; k < KN_QUEUES; k++)
		kolo_queue_destroy(queues->at[k].queue);
	*queues = (struct kn_queues){ 0 };
}
