/* Where memory, traffic and time went. See run.h. */
#include "run.h"
#include "tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static double in_mb(uint64_t bytes)
{
	return (double)bytes / 1e6;
}

/* The most that any rank has. */
static int most_of(struct run *r, uint64_t *bytes)
{
	return kolo_all_reduce(r->comm, bytes, bytes, 1, KOLO_U64, KOLO_MAX, NULL);
}

static int print_bytes(struct run *r, const char *kind, const char *formula, uint64_t bytes)
{
	int rc = most_of(r, &bytes);

	if (rc == 0 && r->rank == 0 && bytes)
		printf("  %-22s %10.2f MB%s%s\n", kind, in_mb(bytes), *formula ? "  " : "", formula);
	return rc;
}

static int print_memory(struct run *r)
{
	struct kolo_zero_memory memory;
	struct rusage usage;
	int rc = 0;

	if (r->rank == 0)
		printf("memory, at most, of the rank that has most (P parameters of e bytes, N ranks):\n");
	for (int i = 0; rc == 0 && kolo_zero_memory_get(r->engine.zero, i, &memory) == 0; i++)
		rc = print_bytes(r, memory.kind, memory.formula, memory.peak);
	if (rc == 0)
		rc = print_bytes(r, "activations", "", model_memory(r->model));
	if (rc == 0)
		rc = print_bytes(r, "tensors as floats", "", r->engine.scratch_len);
	getrusage(RUSAGE_SELF, &usage);
	if (rc == 0)
		rc = print_bytes(r, "resident", "", (uint64_t)usage.ru_maxrss * 1024);
	return rc;
}

static int print_traffic(struct run *r, long steps)
{
	struct kolo_zero_traffic t;
	int rc = kolo_zero_traffic_get(r->engine.zero, &t);

	if (rc < 0 || r->rank != 0)
		return rc;
	printf("sent by rank 0 in %ld updates:\n", steps);
	printf("  %-22s %10.2f MB in %" PRIu64 " reductions\n", "gradients", in_mb(t.gradient_bytes),
	       t.reductions);
	printf("  %-22s %10.2f MB in %" PRIu64 " gathers\n", "parameters", in_mb(t.parameter_bytes),
	       t.gathers);
	printf("  %-22s %10.2f MB\n", "control", in_mb(t.control_bytes));
	return 0;
}

static void print_times(const struct run *r)
{
	struct kolo_zero_times t;

	kolo_zero_times_get(r->engine.zero, &t);
	printf("time of rank 0: %.2f s of training, validation and checkpoints; %.0f tokens/s of all ranks\n",
	       r->seconds, (double)r->bytes / fmax(r->seconds, 1e-6));
	printf("  %-22s %10.2f s\n", "forward", t.forward);
	printf("  %-22s %10.2f s\n", "backward", t.backward);
	printf("  %-22s %10.2f s\n", "step", t.step);
	printf("  %-22s %10.2f s\n", "of it waiting to reduce", t.reduce);
	printf("  %-22s %10.2f s\n", "of it waiting to gather", t.gather);
}

int print_report(struct run *r)
{
	int rc;

	if (r->rank == 0)
		printf("\n");
	if ((rc = print_memory(r)) < 0 || (rc = print_traffic(r, (long)r->trained.n)) < 0)
		return engine_failed(r->comm, "--report", rc);
	if (r->rank == 0)
		print_times(r);
	return EXIT_GOOD;
}
