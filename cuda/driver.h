/* The driver of GPUs: all that Kolo asks of one, in its own flags. There are two: cuda.c on libcuda, in a shared object of
 * its own (libkolo_cuda.so) that is loaded when the first queue is made from a stream; and, in the tests, one that does it all
 * on threads (tests/host_driver.c).
 *
 * Functions return 0 or a code of enum kolo_status, and text() then says for the calling thread what came back. None of them
 * calls Kolo. But for those that open they want the GPU to be entered on the calling thread. Pointers to a GPU's memory
 * are where the GPU sees it. None but `finish` and `event_finish` waits for a stream, and `put`, when streams are at nothing
 * yet; those that make, map or free memory may do so, and are not called while one of this rank's streams waits for another
 * rank. */
#ifndef KO_DRIVER_H
#define KO_DRIVER_H

#include "job.h"

#include "kolo/kolo_cuda.h"
#include "kolo/kolo_zero_device.h"

enum { KO_DRIVER_VERSION = 3 }; /* of this table and what is in it */

enum { KO_DRIVER_OPS = 64 }; /* on flags, in one call at most */

struct ko_gpu; /* one context of one device */

/* What people are told of a GPU. */
struct ko_gpu_info {
	char name[64];
	char bus[20]; /* "0000:17:00.0" */
	int ordinal;  /* the number that this process knows it by */
};

/* Memory of a GPU: made here, or somebody else's, mapped. */
struct ko_gpu_memory {
	void *at; /* NULL: none */
	size_t len;
	uint64_t handle; /* the driver's own */
	bool mapped;     /* another process made it */
};

/* Memory as another process can map it. The descriptor travels beside it, -1 where there is none. */
struct ko_gpu_export {
	uint64_t len;    /* of what is mapped, */
	uint64_t offset; /* in which the memory begins here */
	uint32_t kind;   /* the driver's own */
	unsigned char bytes[64];
};

/* What a stream does with a flag, in the order of its other work. A write comes after all that the stream has written before,
 * for whoever reads the flag, on any device and on the host; and what it reads behind a wait is what was written before the
 * flag. */
struct ko_flag_op {
	enum ko_flag_kind {
		KO_FLAG_WRITE,  /* *flag = value */
		KO_FLAG_SET,    /* waits until *flag & value is not 0 */
		KO_FLAG_CLEARED /* waits until *flag & value is 0 */
	} kind;
	uint32_t value;
	void *flag; /* as `pin` gave it */
};

struct ko_driver {
	unsigned version;          /* KO_DRIVER_VERSION */
	const char *(*text)(void); /* what the last failure on this thread was */

	/* The GPU that the stream is on, NULL: the default stream of the thread's current context. All that it needs later is
	 * loaded now. The caller gives it to `close`. KOLO_ENOTSUP: no driver, no device, or one that can't do what Kolo needs. */
	int (*open)(void *stream, struct ko_gpu **out);
	/* The GPU of this number, as the process counts, in its primary context, with all that `zero` needs too. The same of *out. */
	int (*open_number)(int number, struct ko_gpu **out);
	void (*close)(struct ko_gpu *gpu);
	const struct ko_gpu_info *(*info)(const struct ko_gpu *gpu);

	/* Are they the same context of the same device? */
	bool (*same)(const struct ko_gpu *a, const struct ko_gpu *b);

	/* From here to `leave` the thread works on this GPU. They nest. */
	int (*enter)(struct ko_gpu *gpu);
	void (*leave)(struct ko_gpu *gpu);

	/* Bytes of this GPU's memory that nobody has. */
	int (*free_bytes)(struct ko_gpu *gpu, size_t *out);

	/* Memory for this process alone, aligned to 256 bytes at least; for `release`. KOLO_ENOMEM. */
	int (*alloc_own)(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out);

	/* Memory on this GPU that other processes can map. KOLO_ENOMEM. */
	int (*alloc)(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out);

	/* What another process needs to map memory of this GPU, this driver's or the program's own; *fd is the caller's. KOLO_ENOTSUP,
	 * with what memory can be mapped; KOLO_ESYS. And its mapping there: the descriptor stays the caller's; out->at is where
	 * what is mapped begins. KOLO_ENOMEM, KOLO_ENOTSUP, KOLO_ESYS. */
	int (*export)(struct ko_gpu *gpu, const void *at, size_t len, struct ko_gpu_export *out, int *fd);
	int (*import)(struct ko_gpu *gpu, const struct ko_gpu_export *memory, int fd,
		      struct ko_gpu_memory *out);

	/* The end of memory that was allocated or mapped, by any GPU of the process. */
	void (*release)(struct ko_gpu *gpu, struct ko_gpu_memory *memory);

	/* Lets this GPU use memory at `at` that another one of this process has, which said of it what `export` gave. KOLO_ENOTSUP. */
	int (*reach)(struct ko_gpu *gpu, const void *at, const struct ko_gpu_export *memory);

	/* A descriptor (dmabuf) by which cards read and write memory of alloc_own, whole pages of it; *fd is the caller's. And:
	 * what cards have written there is seen by what streams do from now on. KOLO_ENOTSUP, KOLO_ESYS. */
	int (*dmabuf)(struct ko_gpu *gpu, const struct ko_gpu_memory *memory, int *fd);
	int (*flush)(struct ko_gpu *gpu);

	/* Host memory, whole pages of it, for flag ops and kernels; *out is where the GPU sees it. */
	int (*pin)(struct ko_gpu *gpu, void *host, size_t len, void **out);
	void (*unpin)(struct ko_gpu *gpu, void *host);

	/* What kind of memory that is, and whether kernels on this GPU may use it. KOLO_ESYS. */
	int (*pointer)(struct ko_gpu *gpu, const void *memory, struct kolo_cuda_pointer *out);

	/* Recording. The stream does the ops in this order; or a kernel. */
	int (*flags)(struct ko_gpu *gpu, void *stream, const struct ko_flag_op *ops, int n);
	int (*compute)(struct ko_gpu *gpu, void *stream, const struct ko_gpu_job *job);

	/* Work of a training step that has elements, types among f32, f16 and bf16, and another kind than clear; bad and sums are as
	 * `pin` gave them. Memory that becomes 0. A copy between this GPU's memory and the host's, which stays until it is done. */
	int (*zero)(struct ko_gpu *gpu, void *stream, const struct kolo_zero_work *work);
	int (*clear)(struct ko_gpu *gpu, void *stream, void *memory, size_t len);
	int (*copy)(struct ko_gpu *gpu, void *stream, void *to, const void *from, size_t len);

	/* Events, as CUDA has them; any GPU of the process destroys one. `poll`: 0 when the last record has been reached, KO_EAGAIN. */
	int (*event_create)(struct ko_gpu *gpu, void **out);
	void (*event_destroy)(struct ko_gpu *gpu, void *event);
	int (*event_record)(struct ko_gpu *gpu, void *event, void *stream);
	int (*event_await)(struct ko_gpu *gpu, void *stream, void *event);
	int (*event_poll)(struct ko_gpu *gpu, void *event);
	int (*event_finish)(struct ko_gpu *gpu, void *event); /* blocks until then */

	/* A stream of Kolo's own. */
	int (*stream_create)(struct ko_gpu *gpu, void **out);
	void (*stream_destroy)(struct ko_gpu *gpu, void *stream);

	/* Which capture records what is put on the stream: a number, 0 for none. */
	int (*capture)(struct ko_gpu *gpu, void *stream, uint64_t *out);

	/* Blocks until all on the stream is done. */
	int (*finish)(struct ko_gpu *gpu, void *stream);

	/* Copies that are over when they return. */
	int (*put)(struct ko_gpu *gpu, void *to, const void *host, size_t len);
	int (*get)(struct ko_gpu *gpu, void *host, const void *from, size_t len);
};

/* The driver of this process; it is loaded with the first call. KOLO_ENOTSUP, with what was tried. */
int ko_driver_get(const struct ko_driver **out);

/* For tests: this one, from now on. */
void ko_driver_use(const struct ko_driver *driver);

/* The function that libkolo_cuda.so exports, under this name. */
typedef const struct ko_driver *ko_driver_fn(void);
#define KO_DRIVER_SYMBOL "kolo_cuda_driver"

#endif
