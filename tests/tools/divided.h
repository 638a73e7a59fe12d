/* Sequences that are divided over the ranks of a communicator (context parallelism), beside whole
 * ones: in float and in double. */
#ifndef TESTS_TOOLS_DIVIDED_H
#define TESTS_TOOLS_DIVIDED_H

#include "tests/tools/gpt.h"

struct divided {
	double loss, gradient; /* how far they are apart; the gradient, of all tensors, relative to
				  its size */
	size_t memory, whole;  /* activations of this rank, and of one that has all */
	struct model_around around;
	size_t e; /* bytes of the keys and values of its rows */
};

/* Forward and backward of two batches, on all ranks of comm and on this one alone. Collective.
 * False: something failed. */
bool divided_run(struct kolo_comm *comm, enum kind kind, enum spread spread, struct divided *out);

#endif
