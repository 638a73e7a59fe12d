/* Memory on a device while a model trains: what a gathered tensor leaves is for the next one of its
 * length, and buckets take as much as is planned. */
#include "kolo/kolo_zero_device.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"

#include <stdio.h>
#include <unistd.h>

static const void *use_and_release(struct kolo_zero *zero, int tensor)
{
	const void *values;

	CHECK(kolo_zero_use(zero, tensor, &values) == 0 && kolo_zero_release(zero, tensor) == 0);
	return values;
}

static size_t used_of(struct kolo_zero_device *device)
{
	struct kolo_zero_device_info info;

	kolo_zero_device_get(device, &info);
	return info.used;
}

enum { TENSORS = 4, BUDGET = 16 << 20 };

/* Two short tensors, a long one, and one between. The device is asked when the lengths differ only,
 * and keeps no more than the plan has. */
static void leave_memory(struct t_rank *t)
{
	static const char *const names[TENSORS] = { "a", "b", "c", "d" };
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), small = 4 * page, large = 3 * small;
	const size_t bytes[TENSORS] = { small, small, large, 2 * small };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	const void *values, *other = NULL;
	size_t before, rest;
	void *filler;

	for (int i = 0; i < TENSORS; i++)
		tensors[i] = (struct kolo_zero_tensor){ .name = names[i],
							.shape = { bytes[i] / sizeof(uint16_t) },
							.ndims = 1,
							.type = KOLO_BF16 };
	kolo_zero_config_init(&c);
	c.stage = 3;
	c.persistence = 0;
	c.overlap = 0;
	CHECK(kolo_zero_arena_open(BUDGET, 0, &c.device) == 0);
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
	before = used_of(c.device);
	values = use_and_release(zero, 0);
	CHECK(used_of(c.device) == before + small && use_and_release(zero, 1) == values);
	CHECK(use_and_release(zero, 0) == values && used_of(c.device) == before + small);
	use_and_release(zero, 2);
	CHECK(used_of(c.device) == before + large);
	/* Two at a time are more than the plan has, which are not kept. */
	CHECK(kolo_zero_use(zero, 2, &values) == 0 && kolo_zero_use(zero, 1, &other) == 0);
	CHECK(used_of(c.device) == before + large + small);
	CHECK(kolo_zero_release(zero, 2) == 0 && used_of(c.device) == before + small);
	CHECK(kolo_zero_release(zero, 1) == 0 && used_of(c.device) == before + small);
	CHECK(use_and_release(zero, 0) == other);
	/* Where the device has no more, what is kept is given back. */
	rest = BUDGET - used_of(c.device) - small;
	CHECK(kolo_zero_device_alloc(c.device, rest, "a filler", &filler) == 0);
	use_and_release(zero, 3);
	CHECK(used_of(c.device) == BUDGET);
	kolo_zero_device_free(c.device, filler, rest);
	kolo_zero_destroy(zero);
	CHECK(used_of(c.device) == 0);
	kolo_zero_device_close(c.device);
	kolo_comm_destroy(comm);
}

static void what_tensors_leave_on_a_device_is_for_others_of_their_length(void **state)
{
	(void)state;
	t_processes(1, leave_memory, NULL);
	t_processes(2, leave_memory, NULL);
}

/* ---- Buckets of small tensors ---------------------------------------------------------------- */

enum { SMALL = 30, SMALL_LEN = 1000, LARGE_LEN = 70000 };

static void describe_small(struct kolo_zero_tensor out[SMALL + 1], char names[SMALL + 1][16])
{
	for (int i = 0; i <= SMALL; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		out[i] = (struct kolo_zero_tensor){ .name = names[i],
						    .shape = { i ? SMALL_LEN : LARGE_LEN },
						    .ndims = 1,
						    .type = i % 2 ? KOLO_F32 : KOLO_BF16 };
	}
}

/* The large one's gradient comes last, and is reduced before those of all others, which fill many
 * buckets till then. */
static void fill_small_buckets(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[SMALL + 1];
	struct kolo_zero_device_info info;
	char names[SMALL + 1][16];
	struct kolo_zero_config c;
	size_t planned = 0;
	struct kolo_zero *zero;
	struct kolo_zero_memory m;
	void *gradient;

	describe_small(tensors, names);
	kolo_zero_config_init(&c);
	c.stage = 2;
	c.reduce_bucket = 4096;
	CHECK(kolo_zero_arena_open(16 << 20, 0, &c.device) == 0);
	CHECK(kolo_zero_device_alloc(c.device, LARGE_LEN * sizeof(float), "a gradient",
				     &gradient) == 0);
	CHECK(kolo_zero_create(comm, &c, tensors, SMALL + 1, &zero) == 0);
	planned = used_of(c.device);
	for (int step = 0; step < 2; step++) {
		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 1) == 0);
		for (int i = SMALL; i >= 0; i--)
			CHECK(give(zero, i, gradient) == 0);
		CHECK(kolo_zero_step(zero, NULL) == 0);
	}
	kolo_zero_device_get(c.device, &info);
	CHECK(info.peak == planned);
	for (int row = 0; kolo_zero_memory_get(zero, row, &m) == 0; row++)
		CHECK(m.peak == m.expected);
	kolo_zero_destroy(zero);
	kolo_zero_device_free(c.device, gradient, LARGE_LEN * sizeof(float));
	kolo_zero_device_close(c.device);
	kolo_comm_destroy(comm);
}

static void buckets_of_small_tensors_are_planned(void **state)
{
	(void)state;
	t_processes(1, fill_small_buckets, NULL);
	t_processes(2, fill_small_buckets, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_tensors_leave_on_a_device_is_for_others_of_their_length),
	cmocka_unit_test(buckets_of_small_tensors_are_planned),
};

T_MAIN(tests)
