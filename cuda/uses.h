/* Which communicators a queue has been used with, and what those that are gone had failed with. */
#ifndef KO_GPU_USES_H
#define KO_GPU_USES_H

#include "gpu.h"

/* Which communicators a queue has been used with, and what those that are gone had failed with. Both hold it. */
struct ko_gpu_uses {
	pthread_mutex_t lock;
	int holders;
	struct ko_gpu_use {
		struct ko_gpu_comm *g;
		bool told; /* its failure */
	} * use;
	int n;
	int code; /* 0: nothing that was not told yet */
	char text[KO_TEXT];
};

struct ko_gpu_uses *ko_gpu_uses_create(void);
void ko_gpu_uses_let_go(struct ko_gpu_uses *uses);

/* The communicator is used with a queue; it is not any more, with none. KOLO_ENOMEM. */
int ko_gpu_use(struct ko_gpu_comm *g, struct ko_gpu_uses *uses);
void ko_gpu_use_no_more(struct ko_gpu_comm *g);

/* The first failure of any of them that was not told yet, as the thread's error; 0: there is none. */
int ko_gpu_uses_failure(struct ko_gpu_uses *uses);

#endif
