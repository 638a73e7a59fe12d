/* Memory of gathered tensors on a device: what one leaves is for the next one of its length. */
#include "kolo/kolo_zero_device.h"
#include "t.h"

#include <unistd.h>

enum { SHORT = 8192, LONG = 3 * SHORT };

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

/* Two short tensors and a long one. The device is asked when the lengths differ only, and never for more than was open at once. */
static void leave_memory(struct t_rank *t)
{
	static const char *const names[] = { "a", "b", "c" };
	const size_t len[] = { SHORT, SHORT, LONG }, page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t small = SHORT * sizeof(uint16_t) / page * page,
		     large = LONG * sizeof(uint16_t) / page * page;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[3];
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	const void *values, *other;
	size_t before;

	for (int i = 0; i < 3; i++)
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { len[i] }, .ndims = 1, .type = KOLO_BF16
		};
	kolo_zero_config_init(&c);
	c.stage = 3;
	c.persistence = 0;
	c.overlap = 0;
	CHECK(kolo_zero_arena_open(16 << 20, 0, &c.device) == 0);
	CHECK(kolo_zero_create(comm, &c, tensors, 3, &zero) == 0);
	before = used_of(c.device);
	values = use_and_release(zero, 0);
	CHECK(used_of(c.device) == before + small && use_and_release(zero, 1) == values);
	CHECK(use_and_release(zero, 0) == values && used_of(c.device) == before + small);
	use_and_release(zero, 2);
	CHECK(used_of(c.device) == before + large);
	/* Two at a time are more than the plan has, which from now on may be kept. */
	CHECK(kolo_zero_use(zero, 2, &values) == 0 && kolo_zero_use(zero, 1, &other) == 0);
	CHECK(used_of(c.device) == before + large + small);
	CHECK(kolo_zero_release(zero, 2) == 0 && kolo_zero_release(zero, 1) == 0);
	CHECK(use_and_release(zero, 0) == other && use_and_release(zero, 2) == values);
	CHECK(used_of(c.device) == before + large + small);
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

static const struct CMUnitTest tests[] = { cmocka_unit_test(
	what_tensors_leave_on_a_device_is_for_others_of_their_length) };

T_MAIN(tests)
