/* The README's program: every rank contributes its rank + 1; all print the sum.
 * tests/install/install.sh checks that the README shows the same text. */
#include <kolo/kolo.h>
#include <stdio.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, kolo_last_error());
	return 1;
}

int main(void)
{
	struct kolo_comm *comm;
	float x[1000];

	/* Rank and size come from the launcher. */
	if (kolo_comm_create(NULL, &comm) < 0)
		return fail("joining");
	int rank = kolo_comm_rank(comm), nranks = kolo_comm_nranks(comm);

	for (int i = 0; i < 1000; i++)
		x[i] = (float)(rank + 1);
	if (kolo_all_reduce(comm, x, x, 1000, KOLO_F32, KOLO_SUM, NULL) < 0)
		return fail("all_reduce");
	printf("rank %d of %d: the sum is %g\n", rank, nranks, x[999]);
	kolo_comm_destroy(comm);
	/* 1 + 2 + ... + nranks */
	return x[999] == (float)(nranks * (nranks + 1) / 2) ? 0 : 1;
}
