/* A driver of GPUs (cuda/driver.h) that is made of threads: each stream is one, its GPU's memory is shared memory, and kernels
 * are the host's loops. It does what CUDA promises about order, and no more: so what Kolo records can be tried, and looked
 * at by the thread sanitizer, on any machine. And what a program does beside Kolo: streams, work of its own, graphs. */
#ifndef HOST_DRIVER_H
#define HOST_DRIVER_H

#include "../cuda/driver.h"

/* To be given to ko_driver_use. */
extern const struct ko_driver t_driver;

struct t_stream;
struct t_graph;

/* A stream on the device of this number; ends when it has nothing to do. */
struct t_stream *t_stream_create(int device);
void t_stream_destroy(struct t_stream *s);

/* The stream calls fn(arg), like a kernel of the program's. */
void t_stream_run(struct t_stream *s, void (*fn)(void *arg), void *arg);

/* Blocks until it has done everything. */
void t_stream_finish(struct t_stream *s);

/* What is put on the stream in between goes into a graph, which may be launched on any stream of the device, several times. */
void t_capture_begin(struct t_stream *s);
struct t_graph *t_capture_end(struct t_stream *s);
void t_graph_launch(struct t_graph *g, struct t_stream *s);
void t_graph_destroy(struct t_graph *g);

/* Streams stop for a moment now and then, and kernels come late. */
void t_driver_shake(unsigned seed);

/* The k-th call of the driver from here on that may fail does; 0: none. Returns how many there have been since the last time. */
long t_driver_fail(long k);

/* What is in use: memory, mappings, events, streams of Kolo's, pinned ranges, GPUs. */
long t_driver_live(void);

#endif
