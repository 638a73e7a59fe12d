/* Kolo on CUDA streams: the operations of kolo.h on GPU memory, in the order of a stream.
 *
 * Make a queue from a stream and pass it to the operations of kolo.h like any other queue. The
 * call puts the operation on the stream and returns. The operation starts when all earlier work
 * of the stream is done. Later work on the stream finds its result. src and dst are memory that
 * the stream's GPU can read and write: its own memory, managed memory, or host memory that was
 * registered with CUDA. While the operation runs it needs nothing on the host from the call, so
 * a stream may capture it for a graph.
 *
 * Programs need nothing of CUDA to compile or link this. The first queue loads libkolo_cuda.so
 * and the driver. */
#ifndef KOLO_KOLO_CUDA_H
#define KOLO_KOLO_CUDA_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct CUstream_st; /* CUstream and cudaStream_t of CUDA are pointers to it */

/* Makes a queue from a stream. `stream` NULL is the legacy default stream of the calling thread's
 * current context. The default stream of each thread (cudaStreamPerThread) is refused. The stream
 * stays the caller's. It must outlive the queue and may be used for anything else.
 *
 * The caller gives *out to kolo_queue_destroy, which does not wait for the stream.
 * kolo_queue_wait waits for all work on the stream and returns the first failure of a
 * communicator that was used with the queue. Events of kolo.h work as with other queues; an event
 * that was recorded while the stream is captured can't be waited for.
 *
 * All operations of kolo.h take such a queue. Reductions need the order of additions "ring" or
 * "grid" (kolo_comm_order), or they return KOLO_ENOTSUP.
 *
 * A send or recv needs GPUs that have joined: all ranks call kolo_cuda_connect, or a collective
 * with a stream, before it. From each rank to each other one four short messages may be on their
 * way before they are received. A send beyond that, or a long one, occupies the stream until its
 * turn comes. Sends and recvs of one group (kolo_group_begin) are one step on all streams that
 * they name: it begins when all of these have come to it. They don't wait for each other, with
 * exceptions. A group has two streams of Kolo's for sends to different ranks, and two for recvs. So
 * of three, one that nobody takes may hold up another. Communicators that use the same stream come
 * one after the other, in the order of their first calls. Sends and recvs with streams come before
 * those without. A send that is captured is for a recv that is captured.
 *
 * All ranks must call with such a queue. Each rank uses one GPU with a communicator: that of its
 * first queue. Several ranks may share a GPU. If calls on one communicator name several streams,
 * they are done in the order of the calls. A call without a queue, or with a queue from
 * kolo_queue_create, does not wait for work on streams.
 *
 * Blocking: the call returns when the operation is on the stream. If ranks are threads of one
 * process, it first waits, at most the timeout, until other ranks have called too: its
 * neighbours, all of these threads for registered memory, or the other ends of messages. So a
 * thread that uses several ranks calls for them in one group. A call may also block while more
 * than about 256 recorded steps are still waiting on the stream.
 *
 * Paths: GPUs of one host write into each other's memory. If neighbours in the ring can't reach
 * each other, or KOLO_CUDA_P2P is 0, bytes between all of them go by a thread of the communicator
 * over shared memory; if only others can't, messages alone do. Between hosts, bytes go by that
 * thread over the transport between hosts; so do all bytes if the communicator was made with a
 * transport by name. They come from and go to host memory, or, in a ring, the GPU's own memory if
 * the RDMA cards can use that.
 *
 * Failures: if a rank dies, or keeps others waiting on a stream for longer than the timeout, the
 * communicator fails (kolo_comm_status). Work on the streams of its ranks continues without
 * waiting. dst is undefined. Other ranks' registered memory is left alone, except by kernels that
 * already run or just begin. Between threads of one process the calls wait, so the calls fail.
 *
 * Graphs: a captured operation may be replayed any number of times. All ranks replay alike. Each
 * replay comes after the communicator's other work on a stream: the caller makes the order
 * between a graph and other streams. Replays must be over before the communicator is destroyed.
 * Threads of one process launch their graphs only after all of them have instantiated and
 * uploaded theirs (cuGraphUpload): CUDA may do neither while a launched graph waits.
 * kolo_comm_stats does not count replays. Call kolo_cuda_connect before the first capture.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM; KOLO_ENOTSUP: this build, driver or device can't do it. */
int kolo_cuda_queue_create(struct CUstream_st *stream, struct kolo_queue **out);

/* Joins the GPUs of a communicator's ranks. It makes memory for slots, which other ranks map, and a
 * thread that watches. On each GPU the slots have twice KOLO_CUDA_MEMORY bytes: for collectives,
 * and for messages between GPUs of a host. In the order "grid" it is five times as much. Slots
 * for messages between hosts have KOLO_CUDA_MEMORY bytes of pinned host memory. A collective;
 * blocks. Without it the first collective with such a queue does it. It returns KOLO_EINVAL in a
 * group. A failure on one rank is a failure on all ranks. The communicator then still works without
 * GPUs; kolo_comm_status reports whether it does.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ENOTSUP, KOLO_ESYS, and those of the collectives. */
int kolo_cuda_connect(struct kolo_comm *comm, struct kolo_queue *queue);

/* Kinds of memory, as CUDA sees them. */
enum kolo_cuda_kind {
	KOLO_CUDA_ORDINARY,   /* unknown to CUDA, for example from malloc; some GPUs can use it */
	KOLO_CUDA_REGISTERED, /* host memory that CUDA allocated or that was registered with it */
	KOLO_CUDA_MANAGED,    /* memory that moves between host and devices by itself */
	KOLO_CUDA_DEVICE,     /* memory of a GPU */
};

/* What a pointer points to. */
struct kolo_cuda_pointer {
	int kind;        /* enum kolo_cuda_kind */
	int device;      /* the number of the GPU that has it, as this process counts; -1: none */
	int usable;      /* 1: collectives with the queue can use it */
	int reserved[5]; /* zero */
};

/* Reports what kind of memory a pointer points to, and whether collectives with `queue` can use
 * it. `queue` is from kolo_cuda_queue_create. Collectives make the same check and return
 * KOLO_EINVAL for memory that they can't use: a kernel that touched it would end all work on the
 * GPU. Local.
 *
 * Errors: KOLO_EINVAL, KOLO_ESYS. */
int kolo_cuda_pointer_get(struct kolo_queue *queue, const void *pointer,
			  struct kolo_cuda_pointer *out);

/* Allocates memory on the GPU of `queue`. Other ranks can map it (kolo_cuda_register). `queue` is
 * from kolo_cuda_queue_create. Local, but CUDA may wait for the GPU. The caller gives *out to
 * kolo_cuda_free. Any queue on that GPU and any kernel may use the memory.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ESYS. */
int kolo_cuda_alloc(struct kolo_queue *queue, size_t bytes, void **out);

/* Frees memory from kolo_cuda_alloc. Nothing may use it any more, and it must not be registered
 * anywhere. NULL is allowed.
 *
 * Errors: KOLO_EINVAL (it is not from kolo_cuda_alloc, or was freed before), KOLO_ESYS (the GPU
 * has failed; its memory stays with the process). */
int kolo_cuda_free(void *memory);

/* Registers a buffer of GPU memory, so that all ranks can reach it. It is memory of the queue's
 * GPU: from kolo_cuda_alloc, from cudaMalloc, or from cuMemCreate if it can be handed to others
 * as a descriptor. Collectives with such queues then work on it in place. One kernel reads and
 * writes the memory of all ranks, in 2 steps instead of 2 * (nranks - 1), and nothing is copied
 * on the way.
 *
 * A collective takes this fast path if every rank passes the same offset into the same
 * registration. These buffers must be registered:
 *
 *     collective                        src         dst
 *     all_reduce                        registered  registered
 *     reduce_scatter, reduce_scatter_v  registered  any
 *     all_gather, all_gather_v          any         registered
 *     broadcast [1]                     any         registered
 *     reduce [1]                        registered  any
 *
 * [1] Only with two ranks, or if the n elements times (nranks - 1) are at most 1 MiB.
 *
 * Ops from kolo_op_create_premul_sum do not take it. If ranks pass different offsets or
 * registrations, they get KOLO_EMISMATCH. The results are the same with and without registration:
 * any part of the buffers may be registered, none, or all. Registered memory is treated like
 * other memory with more than 16 ranks, between hosts, if GPUs can't reach each other, and if the
 * communicator was made with a transport by name.
 *
 * A collective: every rank calls with the same number of bytes, in the same place between its
 * collectives, not in a group. `queue` is on the GPU that the rank uses with comm. Blocks until
 * earlier work of the communicator is done and all ranks have the registration. The caller waits
 * for graphs that run. A buffer must not overlap another one that is registered on comm, but it
 * may be registered on several communicators.
 *
 * kolo_cuda_deregister or kolo_comm_destroy ends the registration. The buffer may be freed when
 * kolo_cuda_deregister has returned 0, or when kolo_comm_destroy has returned on all ranks.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, KOLO_ENOTSUP (other ranks can't map the memory), KOLO_ESYS,
 * and those of the collectives. Then no rank's buffer is registered; kolo_comm_status reports
 * whether comm still works. */
int kolo_cuda_register(struct kolo_comm *comm, struct kolo_queue *queue, void *memory,
		       size_t bytes);

/* Ends the registration of the buffer that begins at `memory`. A collective, like
 * kolo_cuda_register; blocks; not in a group. Graphs that were captured with the buffer must not
 * be launched any more. When it has returned 0 the buffer may be freed.
 *
 * Errors: KOLO_EINVAL, and those of the collectives. */
int kolo_cuda_deregister(struct kolo_comm *comm, void *memory);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
