/* How fast elements are combined, for each type and op, as a fraction of a copy with the same
 * traffic: a combination of n bytes reads 2n and writes n, as a copy of 1.5n does in all. In the
 * second-level cache, and in memory; medians of interleaved rounds, on one core. */
#include "perf/perf.h"

#include "comm/reduce/reduce.h"

#include <stdio.h>
#include <string.h>

struct work {
	ko_combine_fn *combine;
	union ko_scalar s;
	void *out, *in, *own;
	size_t n, bytes;
};

static void combine(void *arg)
{
	struct work *w = arg;

	w->combine(w->out, w->in, w->own, w->n, &w->s);
}

static void copy(void *arg)
{
	struct work *w = arg;

	memcpy(w->out, w->in, w->bytes);
	memcpy((char *)w->out + w->bytes, w->own, w->bytes / 2);
}

/* The median of copy's time over the combination's. */
static double fraction(struct work *w)
{
	double ratios[PERF_ROUNDS];

	for (int k = 0; k < PERF_ROUNDS; k++)
		ratios[k] = perf_time(copy, w) / perf_time(combine, w);
	return perf_median(ratios, PERF_ROUNDS);
}

int main(void)
{
	static const size_t sizes[] = { 128 << 10, 32 << 20 };
	size_t room = sizes[1];
	char *memory =
		aligned_alloc(4096, 4 * room); /* out has room for a copy of half as much again */

	if (!memory)
		return 1;
	memset(memory, 0, 4 * room);
	printf("# combining, as a fraction of a copy with the same traffic; one core, median of %d rounds\n"
	       "# type     op     %10s %10s\n",
	       PERF_ROUNDS, "128 KiB", "32 MiB");
	for (int type = 0; type < KO_NTYPES; type++)
		for (int op = 0; op < KO_NOPS; op++) {
			struct ko_reducer r;

			if (!ko_type_has_op((enum kolo_type)type, (enum kolo_op)op))
				continue;
			r = ko_reducer_make((enum kolo_type)type, (enum kolo_op)op, 2);

			printf("  %-8s %-6s", kolo_type_name((enum kolo_type)type),
			       kolo_op_name((enum kolo_op)op));
			for (int k = 0; k < 2; k++) {
				struct work w = { .combine = r.combine,
						  .s = r.s,
						  .out = memory,
						  .in = memory + 2 * room,
						  .own = memory + 3 * room,
						  .n = sizes[k] /
						       kolo_type_size((enum kolo_type)type),
						  .bytes = sizes[k] };

				printf(" %10.2f", fraction(&w));
			}
			printf("\n");
			fflush(stdout);
		}
	free(memory);
	return 0;
}
