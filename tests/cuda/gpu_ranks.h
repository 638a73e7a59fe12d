/* Ranks with streams, for the tests of collectives on GPUs (gpu.h). */
#ifndef TESTS_CUDA_GPU_RANKS_H
#define TESTS_CUDA_GPU_RANKS_H

#include "kolo/kolo_cuda.h"
#include "tests/cuda/gpu.h"
#include "tests/lib/t.h"

enum { MAX_RANKS = 8 };

/* Of tests that wait for one. GPUs take a while to start, and processes that start together not the
 * same. */
#ifdef T_PLAIN
enum { TIMEOUT_S = 5 };
#else
enum { TIMEOUT_S = 1 };
#endif

/* The rank that dies, stops, leaves or is late. */
enum { GONE = 1 };

/* A rank with a stream, all ranks on one GPU, or each on its own. */
struct rank {
	struct kolo_comm *c;
	struct t_stream *stream;
	struct kolo_queue *q;
};

/* Through which all that goes from GPU to GPU is staged; NULL: none, they reach each other. */
extern const char *transport;

/* Ranks in a group, for the order of additions "grid"; 0: the order is "ring". If it is negative,
 * neighbours are in different groups. */
extern int group_size;

struct rank start(struct t_rank *r, struct kolo_comm_attr attr);

/* With little memory for slots, so that little data makes many rounds. */
struct rank start_small(struct t_rank *r);

void end(struct rank *me);

void for_every_number_of_ranks(t_rank_fn *fn);

/* Processes of two threads each: ranks meet in both ways at once. */
void for_ranks_of_both_kinds(t_rank_fn *fn);

/* Staged through what a proxy may have between two ranks. */
void for_every_proxy(t_rank_fn *fn, void *arg);

/* In the order "grid", in several shapes: processes, threads and both, and staged. */
void for_every_shape(t_rank_fn *fn, void *arg);

/* t_driver_shake, on the driver made of threads. */
void shake(unsigned seed);

/* The communicator has failed with `code`, for what `culprit` did, soon; and says so whatever it is
 * called with. */
void wait_for_failure(struct rank *me, int code, const char *culprit);

/* What a program's own kernels do before and after a collective. */
enum { CELLS = 500 };
struct own_work {
	long *x;
	long factor;
	unsigned delay_us;
};
void scale(void *own_work);

/* A kernel, a collective, a kernel, on and on, without ever waiting on the host. In `device` the
 * collective is done, CELLS longs that are copied there and back by the stream; NULL: where the
 * kernels work. */
void produce_and_consume(const struct rank *me, const struct t_rank *r, int steps, long *device);

#endif
