/* Every call of a device fails once, on one rank: an error comes back on all of them, in time, and
 * nothing is left on the device, nor is any memory given back while its lanes have work. */
#include "kolo/kolo_zero_checkpoint.h"
#include "tests/cuda/gpu.h"
#include "tests/lib/t.h"
#include "tests/zero/offload/stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An arena, or a GPU, of which one call fails. */
struct failing {
	struct kolo_zero_device device;
	struct kolo_zero_device_ops ops;
	struct kolo_zero_device *arena;
	long left; /* calls up to that one; 0: none fails any more */
	bool failed;
	bool full;   /* it was for memory, which there is none of from then on */
	bool ending; /* the engine is going */
	uint64_t put[KOLO_ZERO_NLANES],
		done[KOLO_ZERO_NLANES]; /* tickets: the last one, and what was waited for */
};

static struct kolo_zero_device *arena_of(struct kolo_zero_device *device)
{
	return ((struct failing *)device)->arena;
}

/* 0, or the error of the call. */
static int turn(struct kolo_zero_device *device, int error)
{
	struct failing *f = (struct failing *)device;

	if (f->left == 0 || --f->left > 0)
		return 0;
	f->failed = true;
	return kolo_error_set(error, "the device fails");
}

static void get(struct kolo_zero_device *d, struct kolo_zero_device_info *out)
{
	kolo_zero_device_get(arena_of(d), out);
}

static int allocate(struct kolo_zero_device *d, size_t bytes, const char *what, void **out)
{
	struct failing *f = (struct failing *)d;
	int rc = f->full ? kolo_error_set(KOLO_ENOMEM, "the device fails") : turn(d, KOLO_ENOMEM);

	f->full |= rc < 0;
	return rc == 0 ? arena_of(d)->ops->allocate(arena_of(d), bytes, what, out) : rc;
}

static void release(struct kolo_zero_device *d, void *memory, size_t bytes)
{
	const struct failing *f = (struct failing *)d;

	for (int lane = 0; f->ending && lane < KOLO_ZERO_NLANES; lane++)
		CHECK(f->done[lane] >= f->put[lane]);
	arena_of(d)->ops->release(arena_of(d), memory, bytes);
}

static int pin(struct kolo_zero_device *d, void *host, size_t bytes)
{
	int rc = turn(d, KOLO_ESYS);

	return rc == 0 ? arena_of(d)->ops->pin(arena_of(d), host, bytes) : rc;
}

static void unpin(struct kolo_zero_device *d, void *host, size_t bytes)
{
	arena_of(d)->ops->unpin(arena_of(d), host, bytes);
}

static int copy(struct kolo_zero_device *d, enum kolo_zero_lane lane, void *to, const void *from,
		size_t bytes, uint64_t *ticket)
{
	int rc = turn(d, KOLO_ESYS);

	if (rc == 0)
		rc = arena_of(d)->ops->copy(arena_of(d), lane, to, from, bytes, ticket);
	if (rc == 0)
		((struct failing *)d)->put[lane] = *ticket;
	return rc;
}

static int work(struct kolo_zero_device *d, const struct kolo_zero_work *w, uint64_t *ticket)
{
	int rc = turn(d, KOLO_ESYS);

	if (rc == 0)
		rc = arena_of(d)->ops->work(arena_of(d), w, ticket);
	if (rc == 0)
		((struct failing *)d)->put[KOLO_ZERO_COMPUTE] = *ticket;
	return rc;
}

/* One that fails has waited too: what was waited for failed. */
static int wait(struct kolo_zero_device *d, enum kolo_zero_lane lane, uint64_t ticket)
{
	struct failing *f = (struct failing *)d;
	int rc = f->arena->ops->wait(f->arena, lane, ticket);

	if (ticket > f->done[lane])
		f->done[lane] = ticket;
	return rc == 0 ? turn(d, KOLO_ESYS) : rc;
}

static int queue(struct kolo_zero_device *d, struct kolo_queue **out)
{
	int rc = turn(d, KOLO_ESYS);

	return rc == 0 ? arena_of(d)->ops->queue(arena_of(d), out) : rc;
}

static const struct kolo_zero_device_ops ops = {
	.get = get,
	.allocate = allocate,
	.release = release,
	.pin = pin,
	.unpin = unpin,
	.copy = copy,
	.work = work,
	.wait = wait,
	.queue = queue,
	.close = kolo_zero_device_close,
};

/* ---- A training run -------------------------------------------------------------------------- */

enum { GPU_CASES = 2, CASES = 5, MIB = 1 << 20 }; /* the first ones are on a GPU too */

static void set_case(int number, struct kolo_zero_config *c)
{
	kolo_zero_config_init(c);
	c->stage = number < 3 ? 1 + number : 3;
	c->accumulation = number == 1 ? 2 : 1;
	c->overlap = number != 2;
	c->reduce_bucket = c->gather_bucket = c->prefetch = 20000;
	c->offload_optimizer.place = KOLO_ZERO_ON_HOST;
	c->offload_optimizer.ratio = number % 2 ? 0.5 : 1;
	c->offload_optimizer.buffer = 4096;
	c->offload_optimizer.buffers = 2;
	if (number >= 3)
		c->offload_param.place = number == 3 ? KOLO_ZERO_ON_HOST : KOLO_ZERO_ON_NVME;
	c->offload_param.path = "/tmp";
}

static int train(struct kolo_zero *zero, const struct kolo_zero_config *c, int rank)
{
	struct failing *f = (struct failing *)c->device;
	struct kolo_zero_config of_model = *c;
	float *values = malloc(stack_size(0) * sizeof(*values));
	int rc = 0;

	CHECK(values);
	of_model.device = f->arena;
	for (int k = 0; rc == 0 && k < 2 * c->accumulation; k++)
		rc = stack_step(zero, &of_model, KOLO_BF16, rank, k, NULL);
	/* Who failed in the end is missed by now. */
	if (rc == 0)
		rc = kolo_zero_get(zero, 0, values);
	free(values);
	return rc;
}

/* Returns whether there was such a call. */
static bool fail_at(struct kolo_comm *base, int number, bool gpu, long call)
{
	int rank = kolo_comm_rank(base), victim = kolo_comm_nranks(base) - 1, created, rc;
	struct failing f = { .device.ops = &f.ops, .ops = ops };
	struct kolo_zero_device_info info;
	struct kolo_zero_config c;
	int64_t failed;
	struct kolo_zero *zero;
	struct kolo_comm *comm;
	char error[512];

	CHECK(kolo_comm_split(base, 0, rank, &comm) == 0);
	CHECK((gpu ? kolo_zero_cuda_open(0, &f.arena)
		   : kolo_zero_arena_open(64 * MIB, 0, &f.arena)) == 0);
	f.ops.on_host = f.arena->ops->on_host;
	set_case(number, &c);
	c.device = &f.device;
	f.left = rank == victim ? call : 0;
	rc = created = stack_create(comm, &c, KOLO_BF16, &zero);
	snprintf(error, sizeof(error), "%s", kolo_last_error());
	failed = f.failed && !zero;
	CHECK(kolo_all_reduce(base, &failed, &failed, 1, KOLO_I64, KOLO_MAX, NULL) == 0);
	/* All have the victim's error, and its number. */
	if (failed)
		CHECK(created < 0 && !zero && strstr(error, "rank 1: ") &&
		      strstr(error, "the device fails"));
	if (rc == 0)
		rc = train(zero, &c, rank);
	failed = f.failed;
	CHECK(kolo_all_reduce(base, &failed, &failed, 1, KOLO_I64, KOLO_MAX, NULL) == 0);
	CHECK((rc < 0) == (failed != 0));
	f.left = 0;
	f.ending = true;
	kolo_zero_destroy(zero);
	kolo_zero_device_get(&f.device, &info);
	CHECK(info.used == 0 && info.pinned == 0);
	kolo_zero_device_close(f.arena);
	kolo_comm_destroy(comm);
	return failed;
}

/* Whether this build and this system have files for state. */
static bool has_files(struct kolo_comm *comm)
{
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	int rc;

	set_case(4, &c);
	rc = stack_create(comm, &c, KOLO_BF16, &zero);
	CHECK(rc == 0 || rc == KOLO_ENOTSUP);
	kolo_zero_destroy(zero);
	return rc == 0;
}

/* The call that fails after this one: of the first eight, which make the engine, each; of the
 * others a sample. */
static long next_call(long call, int number, bool gpu)
{
	unsigned share = t_is_slowest() ? 19 : t_is_slow() || gpu ? 7 : 3;

	do
		call++;
	while ((gpu || call > 8) && !t_sampled((uint64_t)(call + number), share));
	return call;
}

static void fail_each(struct t_rank *t)
{
	struct kolo_comm *comm;
	int cases;

	t_gpu_use();
	comm = t_comm(t);
	cases = has_files(comm) ? CASES : CASES - 1;
	for (int number = 0; number < cases + GPU_CASES; number++) {
		bool gpu = number >= cases;
		long call = 1;

		while (fail_at(comm, gpu ? number - cases : number, gpu, call))
			call = next_call(call, number, gpu);
		CHECK(call > 30);
	}
	kolo_comm_destroy(comm);
}

static void every_call_of_a_device_may_fail(void **state)
{
	(void)state;
	t_processes(2, fail_each, NULL);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(every_call_of_a_device_may_fail) };

T_MAIN(tests)
