/* Kolo on CUDA streams: the collectives of kolo.h on GPU memory, in the order of a stream.
 *
 * A queue made from a stream is given to the collectives of kolo.h like any other queue. Then the call puts the collective on
 * the stream and returns: it starts when all is done that the stream had to do before, and what is put on the stream later
 * finds its result. src and dst are memory that the stream's GPU can read and write: its own, managed, or host memory that was
 * registered with CUDA. Nothing of the call is needed to be on the host when it runs, so a stream may capture it for a graph.
 *
 * Nothing of CUDA is needed to compile or link this; libkolo_cuda.so and the driver are loaded with the first queue. */
#ifndef KOLO_KOLO_CUDA_H
#define KOLO_KOLO_CUDA_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct CUstream_st; /* CUstream of cuda.h and cudaStream_t of cuda_runtime.h are pointers to it */

/* Makes a queue from a stream, NULL: the legacy default stream of the calling thread's current context; not a default stream of
 * each thread (cudaStreamPerThread). The stream stays the caller's, must outlive the queue, and may be used for all else. The
 * caller gives *out to kolo_queue_destroy, which does not wait for the stream; kolo_queue_wait waits for all that is on it, and
 * returns the first failure of a communicator that was used with the queue. Events (kolo_event_record) can't be recorded on it
 * (KOLO_ENOTSUP): the stream has its own.
 *
 * Collectives that take it: all_reduce, reduce, broadcast, reduce_scatter, reduce_scatter_v, all_gather, all_gather_v and
 * barrier; and where up to 16 ranks are on one host, without a transport by name, all_to_all, gather and scatter, of which the
 * first on a communicator blocks, since it makes memory, and can't be captured. Others return KOLO_ENOTSUP. All ranks must call
 * with such a queue, each with one on the GPU that it used first with the communicator; several ranks may share a GPU. Where
 * calls on one communicator name several streams, they are done in the order of the calls. A call without a queue, or with one
 * of kolo_queue_create, does not wait for what is on streams.
 *
 * The call returns when the collective is on the stream. It waits, as long as the timeout at most, for ranks that are threads
 * of the same process to call as well: for neighbours, and for all of them with all_to_all, gather, scatter and registered
 * memory. So a thread that uses several ranks calls for them in one group. What is more than some 256 steps of a rank ahead of
 * its stream is put there as the stream proceeds.
 *
 * GPUs of one host that are neighbours in the ring must reach each other's memory. Between hosts, and where the communicator was
 * made with a transport by name ("shm" where they don't), bytes go by a thread of the communicator's over that transport, from
 * and to host memory, or, over RDMA cards that can, the GPU's own.
 *
 * When a rank dies, or keeps the others waiting on a stream for longer than the timeout, the communicator fails
 * (kolo_comm_status): what is on the streams of its ranks goes on without waiting, and leaves anything in dst; in registered
 * memory of other ranks only kernels that run already, or begin just then. Between threads of a process it is calls that wait,
 * and fail.
 *
 * Graphs: a captured collective may be replayed any number of times, by all ranks alike, each replay behind what else of the
 * communicator is on a stream; the order between a graph and other streams is the caller's to make, and replays are over before
 * the communicator is destroyed. Threads of one process launch theirs when all of them have instantiated and uploaded
 * (cuGraphUpload), for CUDA may do neither while a graph that was launched waits. kolo_comm_stats does not count replays.
 * kolo_cuda_connect comes before the first capture.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM; KOLO_ENOTSUP: this build, driver or device can't do it. */
int kolo_cuda_queue_create(struct CUstream_st *stream, struct kolo_queue **out);

/* Joins the GPUs of a communicator's ranks: memory for slots (KOLO_CUDA_MEMORY), mapped by the neighbours, and a thread that
 * watches. A collective; blocks. Without it the first collective with such a queue does it. What goes wrong on one rank is a
 * failure on all, and the communicator works on without GPUs; kolo_comm_status tells.
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ENOTSUP, KOLO_ESYS, and those of the collectives. */
int kolo_cuda_connect(struct kolo_comm *comm, struct kolo_queue *queue);

/* Kinds of memory, as CUDA sees them. */
enum kolo_cuda_kind {
	KOLO_CUDA_ORDINARY,   /* it knows nothing of it: of malloc, say; some GPUs can use it */
	KOLO_CUDA_REGISTERED, /* host memory that was registered with it, or allocated by it */
	KOLO_CUDA_MANAGED,    /* it moves between host and devices by itself */
	KOLO_CUDA_DEVICE,     /* a GPU's */
};

/* What a pointer leads to. */
struct kolo_cuda_pointer {
	int kind;        /* enum kolo_cuda_kind */
	int device;      /* the number of the GPU that has it, as this process counts; -1: none */
	int usable;      /* 1: collectives with the queue can use it */
	int reserved[5]; /* 0 */
};

/* Tells what kind of memory a pointer leads to, and whether collectives with `queue`, one from kolo_cuda_queue_create, can use
 * it. They look themselves, and return KOLO_EINVAL where they can't: a kernel that touched it would end all work on the GPU.
 * Errors: KOLO_EINVAL, KOLO_ESYS. */
int kolo_cuda_pointer_get(struct kolo_queue *queue, const void *pointer, struct kolo_cuda_pointer *out);

/* Gets memory on the GPU of `queue`, one from kolo_cuda_queue_create, which others can map: see kolo_cuda_register. Local; CUDA
 * may wait for the GPU. The caller gives it to kolo_cuda_free; it may be used with any queue on that GPU, and by kernels.
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_cuda_alloc(struct kolo_queue *queue, size_t bytes, void **out);

/* Frees what kolo_cuda_alloc gave, when nothing uses it any more, and it is registered nowhere. NULL is allowed.
 * Errors: KOLO_EINVAL (it is none, or was freed before), KOLO_ESYS (the GPU has failed; its memory stays with the process). */
int kolo_cuda_free(void *memory);

/* Registers a buffer: memory of the queue's GPU, from kolo_cuda_alloc, cudaMalloc, or cuMemCreate if it can be handed to others
 * as a descriptor. Collectives with such queues then work on it where it is: each rank reads and writes that of all others in
 * one kernel, in two steps instead of twice as many as there are ranks, and nothing is copied on the way. That needs, on all
 * ranks, the same place, counted from the beginning, of the same registration, of
 *   - src and dst for all_reduce, src for reduce_scatter (also with counts), dst for all_gather (also with counts);
 *   - dst for broadcast, and src for reduce, of up to 1 MiB in all that root moves, or with two ranks;
 * other than with ops from kolo_op_create_premul_sum. Ranks that use different places are told so (KOLO_EMISMATCH). The results
 * are those without: any part may be registered, none, or all. Beyond 16 ranks, between hosts, and where the communicator was
 * made with a transport by name it is memory like other memory.
 *
 * A collective: every rank calls with the same number of bytes, on a queue on the GPU that it uses with comm, in the same place
 * between its collectives. Blocks until what was called before is done and all have it; graphs that run are the caller's to
 * wait for. A buffer overlaps no other one that is registered on comm, but may be registered on several communicators.
 * kolo_cuda_deregister or kolo_comm_destroy ends it. It may be freed when deregister has returned 0, or all ranks'
 * kolo_comm_destroy have returned.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ENOTSUP (memory that others can't map), KOLO_ESYS, those of the collectives. Nobody's
 * is registered then; kolo_comm_status tells whether comm still works. */
int kolo_cuda_register(struct kolo_comm *comm, struct kolo_queue *queue, void *memory, size_t bytes);

/* Ends the registration of the buffer that begins there. A collective, like kolo_cuda_register. Graphs that were captured with it
 * must not be launched any more. When it returns the buffer may be freed. Errors: KOLO_EINVAL, those of the collectives. */
int kolo_cuda_deregister(struct kolo_comm *comm, void *memory);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
