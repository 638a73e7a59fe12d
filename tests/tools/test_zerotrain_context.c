/* Sequences over several ranks (context parallelism), in float: loss and gradients are those of one
 * rank, and traffic is what the formulas say. test_zerotrain.c has the gradients in double. */
#include "tests/lib/t.h"
#include "tests/tools/divided.h"

#include <stdio.h>

#define CLOSE 1e-6

/* Bytes of two batches through all blocks, forward and backward. */
static uint64_t formula(const struct divided *d, enum kind kind, enum spread spread, uint64_t ranks)
{
	/* Q and D of a row, in keys and values */
	uint64_t exchanged = kind == LLAMA ? d->e * 2 + d->e : (d->e * 3 + d->e) / 2;

	if (spread == RING)
		return 2 * GPT_LAYERS * d->e * (3 * ranks - 2) * (ranks > 1);
	return 2 * GPT_LAYERS * 2 * exchanged * (ranks - 1) / ranks;
}

static void compare(struct kolo_comm *comm, enum kind kind, enum spread spread)
{
	uint64_t ranks = (uint64_t)kolo_comm_nranks(comm);
	struct divided d;

	CHECK(divided_run(comm, kind, spread, &d));
	if (kolo_comm_rank(comm) == 0)
		printf("# %d ranks, %s, %s: loss %.2g, gradients %.2g apart\n", (int)ranks,
		       kind == LLAMA ? "Llama" : "GPT-2", spread == RING ? "ring" : "Ulysses",
		       d.loss, d.gradient);
	CHECK(d.loss < CLOSE && d.gradient < CLOSE);
	CHECK(d.around.sent_bytes == formula(&d, kind, spread, ranks));
}

static void compare_all(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	compare(comm, GPT2, RING);
	compare(comm, LLAMA, RING);
	if (kolo_comm_nranks(comm) > 1)
		compare(comm, GPT2, ULYSSES);
	/* As many ranks as heads of keys, at most. */
	if (kolo_comm_nranks(comm) == 2 || kolo_comm_nranks(comm) == 4)
		compare(comm, LLAMA, ULYSSES);
	kolo_comm_destroy(comm);
}

static void gradients_are_those_of_one_rank(void **state)
{
	(void)state;
	for (int n = 1; n <= 8; n *= 2)
		t_processes(n, compare_all, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(gradients_are_those_of_one_rank),
};

T_MAIN(tests)
