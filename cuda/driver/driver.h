/* The driver of GPUs: everything that Kolo asks of a GPU, as one table of functions.
 *
 * There are two such tables. cuda.c has the one on libcuda. It is in a shared object of its own,
 * libkolo_cuda.so, which is loaded when the first queue is made from a stream. Tests have another,
 * made of threads (tests/cuda/host_driver.c).
 *
 * Functions return 0 or a code of enum kolo_status. After a failure text() says, for the calling
 * thread, what went wrong. No function calls Kolo. All except those that open a GPU want it to be
 * entered on the calling thread. Pointers to GPU memory are addresses that the GPU sees.
 *
 * Only `finish` and `event_finish` wait for a stream. `put` may do so while streams have nothing to
 * do yet. Functions that make, map or free memory may wait for the whole GPU. So nobody calls them
 * while a stream of this rank waits for another rank. */
#ifndef CUDA_DRIVER_DRIVER_H
#define CUDA_DRIVER_DRIVER_H

#include "cuda/driver/kernel_args.h"

#include "kolo/kolo_cuda.h"
#include "kolo/kolo_zero_device.h"

enum { KO_DRIVER_VERSION = 3 }; /* of this table and the structs in it */

enum { KO_DRIVER_OPS = 64 }; /* largest number of flag operations in one call */

struct ko_gpu; /* one context of one device */

/* How messages describe a GPU. */
struct ko_gpu_info {
	char name[64];
	char bus[20]; /* "0000:17:00.0" */
	int ordinal;  /* its number in this process */
};

/* Memory of a GPU: allocated here, or mapped from another process. */
struct ko_gpu_memory {
	void *at; /* NULL: none */
	size_t len;
	uint64_t handle; /* the driver's own */
	bool mapped;     /* another process allocated it */
};

/* What another process needs to map memory. A descriptor may go with it. */
struct ko_gpu_export {
	uint64_t len;    /* bytes that are mapped */
	uint64_t offset; /* bytes from there to where the memory begins */
	uint32_t kind;   /* the driver's own */
	unsigned char bytes[64];
};

/* What a stream does with a flag, in the order of its other work. Whoever sees a written flag, on
 * any device or on the host, also sees what the stream has written before. What a stream reads
 * after a wait is what was written before the flag. */
struct ko_flag_op {
	enum ko_flag_kind {
		KO_FLAG_WRITE,  /* *flag = value */
		KO_FLAG_SET,    /* waits until *flag & value is not 0 */
		KO_FLAG_CLEARED /* waits until *flag & value is 0 */
	} kind;
	uint32_t value;
	void *flag; /* an address from `pin` */
};

struct ko_driver {
	unsigned version;          /* KO_DRIVER_VERSION */
	const char *(*text)(void); /* what the last failure on this thread was */

	/* Opens the GPU that the stream is on, and loads all that is needed later. NULL: the
	 * default stream of the thread's current context. The caller gives *out to `close`.
	 * KOLO_ENOTSUP: there is no driver, no device, or the device lacks what Kolo needs. */
	int (*open)(void *stream, struct ko_gpu **out);
	/* Opens the GPU of this number in its primary context, with what `zero` needs too. The
	 * process counts the GPUs. The caller gives *out to `close`. Errors: those of `open`. */
	int (*open_number)(int number, struct ko_gpu **out);
	void (*close)(struct ko_gpu *gpu);
	const struct ko_gpu_info *(*info)(const struct ko_gpu *gpu);

	/* Are they the same context of the same device? */
	bool (*same)(const struct ko_gpu *a, const struct ko_gpu *b);

	/* Between the two the thread works on this GPU. They nest. */
	int (*enter)(struct ko_gpu *gpu);
	void (*leave)(struct ko_gpu *gpu);

	/* Bytes of this GPU's memory that are free. */
	int (*free_bytes)(struct ko_gpu *gpu, size_t *out);

	/* Allocates memory for this process alone, aligned to at least 256 bytes. The caller gives
	 * it to `release`. KOLO_ENOMEM. */
	int (*alloc_own)(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out);

	/* Allocates memory on this GPU that other processes can map. KOLO_ENOMEM. */
	int (*alloc)(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out);

	/* Describes memory of this GPU for other processes, Kolo's or the program's. *fd becomes
	 * the caller's. KOLO_ENOTSUP, with which memory can be mapped; KOLO_ESYS. */
	int (*export)(struct ko_gpu *gpu, const void *at, size_t len, struct ko_gpu_export *out,
		      int *fd);
	/* Maps such memory of another process. The descriptor stays the caller's. out->at is where
	 * the mapping begins. KOLO_ENOMEM, KOLO_ENOTSUP, KOLO_ESYS. */
	int (*import)(struct ko_gpu *gpu, const struct ko_gpu_export *memory, int fd,
		      struct ko_gpu_memory *out);

	/* Frees memory that any GPU of the process has allocated, or unmaps it. */
	void (*release)(struct ko_gpu *gpu, struct ko_gpu_memory *memory);

	/* Lets this GPU use memory at `at` of another GPU of this process. `memory` is what
	 * `export` gave there. KOLO_ENOTSUP. */
	int (*reach)(struct ko_gpu *gpu, const void *at, const struct ko_gpu_export *memory);

	/* Makes a descriptor (dmabuf) by which cards read and write memory of alloc_own, in whole
	 * pages. *fd becomes the caller's. KOLO_ENOTSUP, KOLO_ESYS. */
	int (*dmabuf)(struct ko_gpu *gpu, const struct ko_gpu_memory *memory, int *fd);
	/* Makes what cards have written there visible to what streams do from now on. KOLO_ESYS. */
	int (*flush)(struct ko_gpu *gpu);

	/* Pins whole pages of host memory, for flags and kernels. *out is where the GPU sees
	 * them. */
	int (*pin)(struct ko_gpu *gpu, void *host, size_t len, void **out);
	void (*unpin)(struct ko_gpu *gpu, void *host);

	/* Reports which kind of memory that is, and whether kernels on this GPU may use it.
	 * KOLO_ESYS. */
	int (*pointer)(struct ko_gpu *gpu, const void *memory, struct kolo_cuda_pointer *out);

	/* Records n flag operations, in this order. */
	int (*flags)(struct ko_gpu *gpu, void *stream, const struct ko_flag_op *ops, int n);
	/* Records a kernel. */
	int (*compute)(struct ko_gpu *gpu, void *stream, const struct ko_gpu_job *job);

	/* Records work of a training step. It has elements of type f32, f16 or bf16, and is not of
	 * kind clear. bad and sums are addresses from `pin`. */
	int (*zero)(struct ko_gpu *gpu, void *stream, const struct kolo_zero_work *work);
	/* Records that memory becomes 0. */
	int (*clear)(struct ko_gpu *gpu, void *stream, void *memory, size_t len);
	/* Records a copy between this GPU's memory and the host's. Both stay until it is done. */
	int (*copy)(struct ko_gpu *gpu, void *stream, void *to, const void *from, size_t len);

	/* Events, as CUDA has them. Any GPU of the process may destroy one. */
	int (*event_create)(struct ko_gpu *gpu, void **out);
	void (*event_destroy)(struct ko_gpu *gpu, void *event);
	int (*event_record)(struct ko_gpu *gpu, void *event, void *stream);
	int (*event_await)(struct ko_gpu *gpu, void *stream, void *event);
	/* 0: the stream has reached the last record. KO_EAGAIN: it has not. */
	int (*event_poll)(struct ko_gpu *gpu, void *event);
	/* Blocks until the stream has reached the last record. */
	int (*event_finish)(struct ko_gpu *gpu, void *event);

	/* A stream of Kolo's own. */
	int (*stream_create)(struct ko_gpu *gpu, void **out);
	void (*stream_destroy)(struct ko_gpu *gpu, void *stream);

	/* The number of the capture that records what is put on the stream. 0: there is none. */
	int (*capture)(struct ko_gpu *gpu, void *stream, uint64_t *out);

	/* Blocks until all on the stream is done. */
	int (*finish)(struct ko_gpu *gpu, void *stream);

	/* Copies that are over when the call returns. */
	int (*put)(struct ko_gpu *gpu, void *to, const void *host, size_t len);
	int (*get)(struct ko_gpu *gpu, void *host, const void *from, size_t len);
};

/* Returns the driver of this process. The first call loads it. KOLO_ENOTSUP, with what was
 * tried. */
int ko_driver_get(const struct ko_driver **out);

/* For tests: makes this the driver from now on. */
void ko_driver_use(const struct ko_driver *driver);

/* The function that libkolo_cuda.so exports, under this name. */
typedef const struct ko_driver *ko_driver_fn(void);
#define KO_DRIVER_SYMBOL "kolo_cuda_driver"

#endif
