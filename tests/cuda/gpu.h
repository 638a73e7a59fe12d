/* What a program does with a GPU beside Kolo, for the tests: streams, memory, work of its own,
 * graphs. There are two: host_driver.c, a driver of GPUs (cuda/driver/driver.h) that is made of
 * threads, so that what Kolo records can be tried, and looked at by the thread sanitizer, on any
 * machine; and real_gpu.c, on CUDA, for make check-cuda. */
#ifndef TESTS_CUDA_GPU_H
#define TESTS_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>

/* Lets Kolo use it. Before the first queue of a process. */
void t_gpu_use(void);

struct t_stream;
struct t_graph;

/* A stream on the device of this number, modulo how many there are; and what kolo_cuda_queue_create
 * takes. */
struct t_stream *t_stream_create(int device);
struct CUstream_st *t_stream_handle(struct t_stream *s);
void t_stream_destroy(struct t_stream *s);

/* Zeroed memory that the host and the GPU of this thread's last stream both use. */
void *t_gpu_alloc(size_t len);
void t_gpu_free(void *memory);

/* Memory of that GPU as programs get it; the host may not be able to touch it. */
void *t_device_alloc(size_t len);
void t_device_free(void *memory);

/* The stream calls fn(arg), like a kernel of the program's. */
void t_stream_run(struct t_stream *s, void (*fn)(void *arg), void *arg);

/* The stream copies; and a copy that is over when it returns. Of any memory. */
void t_stream_copy(struct t_stream *s, void *to, const void *from, size_t len);
void t_gpu_copy(void *to, const void *from, size_t len);

/* Blocks until it has done everything. */
void t_stream_finish(struct t_stream *s);

/* What is put on the stream in between goes into a graph, which may be launched on any stream of
 * the device, several times. */
void t_capture_begin(struct t_stream *s);
struct t_graph *t_capture_end(struct t_stream *s);
void t_graph_launch(struct t_graph *g, struct t_stream *s);
void t_graph_destroy(struct t_graph *g);

/* ---- Of the driver made of threads only ------------------------------------------------------ */

/* The device of this thread's default stream from here on; and that stream. */
void t_device_choose(int device);
struct t_stream *t_stream_default(int device);

/* The stream sets bytes. */
void t_stream_set(struct t_stream *s, void *to, unsigned char value, size_t len);

/* Has it done everything? And the number of the capture that takes what it is given; 0: none. */
bool t_stream_is_idle(struct t_stream *s);
unsigned long long t_stream_capture(struct t_stream *s);

/* Streams stop for a moment now and then, and kernels come late. */
void t_driver_shake(unsigned seed);

/* The k-th call of the driver from here on that may fail does; 0: none. Returns how many there have
 * been since the last time. */
long t_driver_fail(long k);

/* Kernels of Kolo's take so long, from here on, in this process. */
void t_driver_slow(int ms);

/* From here on this process's GPUs lose what they write to memory of other processes that they
 * map. */
void t_driver_lose(bool lose);

/* From here on this process's GPUs can't reach memory of other ranks' GPUs. */
void t_driver_apart(bool apart);

/* GPUs hand their memory to cards, from here on, as what is no dmabuf. */
void t_driver_for_cards(bool yes);

/* Kernels since the last time whose places lie at different distances after multiples of 16
 * bytes. */
long t_driver_unlike(void);

/* What is in use: memory, mappings, events, streams of Kolo's, pinned ranges, GPUs. */
long t_driver_live(void);

#endif
