/* What ringbench measures: the collectives with what is true of each, and the kinds of memory. */
#ifndef TOOLS_RINGBENCH_NAMES_H
#define TOOLS_RINGBENCH_NAMES_H

#include <stdbool.h>

enum collective {
	ALL_REDUCE,
	BROADCAST,
	REDUCE,
	REDUCE_SCATTER,
	ALL_GATHER,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	SEND_RECV, /* messages between two ranks: rank r and r + nranks / 2 */
	BARRIER,
	NCOLLECTIVES
};

/* Memory of the buffers. The last two kinds are memory of GPUs. */
enum memory { HOST, ALLOC, CUDA, REGISTERED };

const char *collective_name(enum collective coll);
bool collective_reduces(enum collective coll);
bool collective_has_root(enum collective coll);
bool collective_is_per_rank(enum collective coll); /* n counts the elements of one rank's part */
bool collective_is_of_pairs(enum collective coll); /* of messages from rank to rank */
bool collective_can_be_in_place(enum collective coll);

/* "host", "alloc", "cuda", "cuda-registered"; the kind of this name, false if there is none. */
const char *memory_name(enum memory memory);
bool memory_find(const char *name, enum memory *out);

#endif
