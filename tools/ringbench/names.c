/* The names of collectives and of kinds of memory. It also knows which collectives reduce, which
 * have a root, and which can be in place. */
#include "tools/ringbench/names.h"

#include <stddef.h>
#include <string.h>

static const char *const names[NCOLLECTIVES] = {
	[ALL_REDUCE] = "all_reduce", [BROADCAST] = "broadcast",
	[REDUCE] = "reduce",         [REDUCE_SCATTER] = "reduce_scatter",
	[ALL_GATHER] = "all_gather", [ALL_TO_ALL] = "all_to_all",
	[GATHER] = "gather",         [SCATTER] = "scatter",
	[SEND_RECV] = "send_recv",   [BARRIER] = "barrier",
};

const char *collective_name(enum collective coll)
{
	return names[coll];
}

bool collective_reduces(enum collective coll)
{
	return coll == ALL_REDUCE || coll == REDUCE || coll == REDUCE_SCATTER;
}

bool collective_has_root(enum collective coll)
{
	return coll == BROADCAST || coll == REDUCE || coll == GATHER || coll == SCATTER;
}

bool collective_is_per_rank(enum collective coll)
{
	return coll == REDUCE_SCATTER || coll == ALL_GATHER || coll == ALL_TO_ALL ||
	       coll == GATHER || coll == SCATTER;
}

bool collective_is_of_pairs(enum collective coll)
{
	return coll == ALL_TO_ALL || coll == GATHER || coll == SCATTER || coll == SEND_RECV;
}

bool collective_can_be_in_place(enum collective coll)
{
	return coll != ALL_TO_ALL && coll != SEND_RECV;
}

static const char *const memories[] = {
	[HOST] = "host", [ALLOC] = "alloc", [CUDA] = "cuda", [REGISTERED] = "cuda-registered"
};

const char *memory_name(enum memory memory)
{
	return memories[memory];
}

bool memory_find(const char *name, enum memory *out)
{
	for (size_t k = 0; k < sizeof(memories) / sizeof(memories[0]); k++)
		if (strcmp(memories[k], name) == 0) {
			*out = (enum memory)k;
			return true;
		}
	return false;
}
