/* What the files of a program that was built for NCCL share (nccl_client.c, nccl_program.c). */
#ifndef TESTS_NCCL_NCCL_PROGRAM_H
#define TESTS_NCCL_NCCL_PROGRAM_H

#include "cuda/nccl/types.h"

#include "cuda/nccl/functions.h"

#include <stdbool.h>
#include <stdint.h>

/* CUDA's driver, as far as it is used. */
typedef unsigned long long address;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(address *out, size_t len);
int cuMemFree_v2(address memory);
int cuMemcpyAsync(address to, address from, size_t len, cudaStream_t stream);
int cuStreamCreate(cudaStream_t *out, unsigned flags);
int cuStreamDestroy_v2(cudaStream_t stream);
int cuStreamSynchronize(cudaStream_t stream);
int cuStreamWaitEvent(cudaStream_t stream, void *event, unsigned flags);
int cuStreamBeginCapture_v2(cudaStream_t stream, int mode);
int cuStreamEndCapture(cudaStream_t stream, void **out);
int cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags);
int cuGraphLaunch(void *graph, cudaStream_t stream);
int cuGraphExecDestroy(void *graph);
int cuGraphDestroy(void *graph);
int cuEventCreate(void **out, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, cudaStream_t stream);

enum { MAX_RANKS = 8, MOST = 5000, STREAMS = 2, PARTS = 3 };

/* Ends the process with a line if it is not so. */
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			wrong(#what, __FILE__, __LINE__);                                          \
	} while (0)

/* Ends it if a call fails. */
#define MUST(call) must(call, #call, __FILE__, __LINE__)

void wrong(const char *what, const char *file, int line);
void must(ncclResult_t result, const char *what, const char *file, int line);

uint64_t draw(uint64_t *seed);
int number(const char *name, int otherwise); /* of the environment */

struct rank {
	ncclComm_t comm;
	int rank, nranks;
	void *context;
	cudaStream_t stream[STREAMS];
	uint8_t *src, *dst; /* PARTS + 1 times ROOM bytes each */
	bool blocks;        /* the communicator does */
};

/* MAX_RANKS blocks of MOST elements of the longest type, a few elements after the beginning. */
enum { SHIFT = 4, ROOM = (MAX_RANKS * MOST + SHIFT) * 8 };

/* Blocks until its streams have done everything. */
void finish(struct rank *r);

/* A step that all ranks know: an operation, or a group of messages. */
struct step {
	int kind, root, stream;
	size_t n;
	ncclDataType_t type;
	ncclRedOp_t op;
	bool in_place;
	size_t src_shift, dst_shift; /* elements before the first */
	uint64_t seed, turn;         /* of its elements; the first also of what is in its group */
};

/* What the rank has before it, putting it on the rank's stream, and what must be there afterwards.
 */
struct step step_draw(uint64_t *seed, int nranks);
void step_fill(struct rank *r, const struct step *s);
void step_start(struct rank *r, const struct step *s);
void step_check(struct rank *r, const struct step *s);

/* Up to PARTS steps that are put on the streams before anybody waits for any. */
struct bundle {
	enum { ALONE, GROUPED, EVENTS, CAPTURED, WAYS } way;
	int n;
	struct step steps[PARTS];
};

/* What the seed draws, and doing it: n ranks of this thread do it together, in groups. */
struct bundle bundle_draw(uint64_t *seed, int nranks);
void bundle_run(struct rank *ranks, int n, const struct bundle *b);

/* T_STEPS operations that the seed draws: all kinds, types, ops, streams, roots and lengths, in
 * place or not, aligned to 16 bytes or not; in groups, between events, captured and replayed; and
 * now and then on the parts of a split. */
void run_program(struct rank *r, uint64_t seed);

/* The same of all ranks of a communicator, which this thread has. */
void run_all_program(struct rank *ranks, int nranks, uint64_t seed);

/* Blocks until a communicator that does not block is ready. */
void await(ncclComm_t comm);

/* Means, and sums with a factor. */
void run_means(struct rank *r);

/* Operations on two streams with events between them and other work. */
void run_events(struct rank *r);

/* A captured group that is launched several times. */
void run_graph(struct rank *r);

#endif
