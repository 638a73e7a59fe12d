/* Which communicators a queue has been used with, so that kolo_queue_wait reports their
 * failures. */
#ifndef CUDA_GPU_USES_H
#define CUDA_GPU_USES_H

#include "cuda/gpu/gpu.h"

/* A queue's communicators, and the failure of one that is gone. The queue and its communicators
 * hold it. */
struct ko_gpu_uses {
	pthread_mutex_t lock;
	int holders;
	struct ko_gpu_use {
		struct ko_gpu_comm *g;
		bool told; /* its failure has been reported */
	} * use;
	int n;
	int code; /* of a failure that was not reported; 0: there is none */
	char text[KO_TEXT];
};

/* NULL: no memory. */
struct ko_gpu_uses *ko_gpu_uses_create(void);
void ko_gpu_uses_let_go(struct ko_gpu_uses *uses);

/* Notes that the communicator is used with this queue. KOLO_ENOMEM. */
int ko_gpu_use(struct ko_gpu_comm *g, struct ko_gpu_uses *uses);

/* Notes that the communicator is used with no queue any more. */
void ko_gpu_use_no_more(struct ko_gpu_comm *g);

/* Returns the first failure that was not reported yet, as the thread's error. 0: there is none. */
int ko_gpu_uses_failure(struct ko_gpu_uses *uses);

#endif
