/* A CUDA GPU as a device of the engine, on a GPU made of threads (host_driver.c): what comes after
 * what, tickets, memory and what is pinned, refusals, a driver that fails at each call. On a GPU,
 * where make check-cuda runs it, without the last. */
#include "tests/cuda/gpu.h"
#include "tests/lib/t.h"

#include "cuda/driver/driver.h"

#include <stdlib.h>
#include <string.h>

enum { N = 50000, PAGES = 8192 };

static struct kolo_zero_device *open_device(void)
{
	struct kolo_zero_device *d;

	t_gpu_use();
	CHECK(kolo_zero_cuda_open(0, &d) == 0);
	return d;
}

static void *allocate(struct kolo_zero_device *d, size_t bytes)
{
	void *out;

	CHECK(d->ops->allocate(d, bytes, "a test's", &out) == 0 && out);
	return out;
}

static void *pages(size_t bytes)
{
	void *out = aligned_alloc(4096, bytes);

	CHECK(out);
	memset(out, 0xa5, bytes);
	return out;
}

static uint64_t copy(struct kolo_zero_device *d, enum kolo_zero_lane lane, void *to,
		     const void *from, size_t len)
{
	uint64_t ticket;

	CHECK(d->ops->copy(d, lane, to, from, len, &ticket) == 0);
	return ticket;
}

static void wait(struct kolo_zero_device *d, enum kolo_zero_lane lane, uint64_t ticket)
{
	CHECK(d->ops->wait(d, lane, ticket) == 0);
}

static uint64_t work(struct kolo_zero_device *d, struct kolo_zero_work w)
{
	uint64_t ticket;

	CHECK(d->ops->work(d, &w, &ticket) == 0);
	return ticket;
}

/* to += from, n floats. */
static struct kolo_zero_work add(float *to, const float *from, size_t n)
{
	return (struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_ADD,
					.n = n,
					.from = from,
					.from_type = KOLO_F32,
					.to = to,
					.to_type = KOLO_F32,
					.factor = 1 };
}

static bool all_are(const float *x, size_t n, float want)
{
	for (size_t i = 0; i < n; i++)
		if (x[i] != want)
			return false;
	return true;
}

/* Whether the last error has this in it. */
static bool told(const char *what)
{
	return strstr(kolo_last_error(), what) != NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static struct kolo_zero_device_info info(struct kolo_zero_device *d)
{
	struct kolo_zero_device_info out;

	d->ops->get(d, &out);
	return out;
}

static void memory_is_zeroed_counted_and_bounded(void **state)
{
	struct kolo_zero_device *d = open_device();
	size_t budget = info(d).budget;
	char *host = pages(PAGES), *a = allocate(d, PAGES), *b = allocate(d, 1000);
	void *none = &none;

	(void)state;
	CHECK(!d->ops->on_host && strcmp(info(d).kind, "cuda") == 0 &&
	      strncmp(info(d).name, "GPU 0 (", 7) == 0);
	CHECK((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0);
	wait(d, KOLO_ZERO_DOWN, copy(d, KOLO_ZERO_DOWN, host, a, PAGES));
	for (int i = 0; i < PAGES; i++)
		CHECK(host[i] == 0);
	CHECK(info(d).used == PAGES + 1000 && info(d).peak == PAGES + 1000);
	CHECK(d->ops->allocate(d, budget - PAGES, "masters", &none) == KOLO_ENOMEM && none == NULL);
	CHECK(told("for 'masters'") && told(" 1000 more than are left") && told("GPU 0 ("));
	CHECK(d->ops->allocate(d, SIZE_MAX - 1, "masters", &none) == KOLO_ENOMEM);
	d->ops->release(d, a, PAGES);
	CHECK(info(d).used == 1000 && info(d).peak == PAGES + 1000);
	CHECK(d->ops->allocate(d, 0, "nothing", &none) == 0 && none == NULL);
	d->ops->release(d, NULL, 0);
	d->ops->release(d, b, 1000);
	CHECK(info(d).used == 0);
	d->ops->close(d);
	free(host);
}

static void pages_are_pinned_counted_and_released(void **state)
{
	struct kolo_zero_device *d = open_device();
	char *host = pages(3 * 4096);

	(void)state;
	CHECK(d->ops->pin(d, host, 1) == 0 && info(d).pinned == 4096);
	CHECK(d->ops->pin(d, host + 4096, 4097) == 0 && info(d).pinned == 3 * 4096);
	d->ops->unpin(d, host, 1);
	CHECK(info(d).pinned == 2 * 4096);
	d->ops->unpin(d, host + 4096, 4097);
	CHECK(info(d).pinned == 0);
	d->ops->close(d);
	free(host);
}

/* Of CUDA's a copy is of pinned memory or of other. */
static void a_copy_may_be_of_memory_that_is_pinned_in_parts(void **state)
{
	struct kolo_zero_device *d = open_device();
	char *host = pages(8 * 4096), *down = pages(8 * 4096), *gpu = allocate(d, 8 * 4096);

	(void)state;
	CHECK(d->ops->pin(d, host + 4096, 4096) == 0 && d->ops->pin(d, host + 2 * 4096, 4096) == 0);
	CHECK(d->ops->pin(d, down, 3 * 4096) == 0 && d->ops->pin(d, down + 7 * 4096, 4096) == 0);
	for (int i = 0; i < 8 * 4096; i++)
		host[i] = (char)(i % 251);
	wait(d, KOLO_ZERO_UP, copy(d, KOLO_ZERO_UP, gpu, host, 8 * 4096));
	wait(d, KOLO_ZERO_DOWN, copy(d, KOLO_ZERO_DOWN, down, gpu, 8 * 4096));
	CHECK(memcmp(host, down, 8 * 4096) == 0);
	CHECK(info(d).up_bytes == 8 * 4096 && info(d).down_bytes == 8 * 4096);
	d->ops->close(d);
	free(host);
	free(down);
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Copies come after the work before them, pinned or not, and are counted. */
static void a_copy_comes_behind_the_work_before_it(void **state)
{
	struct kolo_zero_device *d = open_device();
	size_t len = N * sizeof(float), room = (len + 4095) / 4096 * 4096;
	float *first = pages(room), *other = pages(room), *down = pages(room);
	float *sum = allocate(d, len), *one = allocate(d, len);

	(void)state;
#ifndef T_PLAIN
	t_driver_shake(7);
#endif
	CHECK(d->ops->pin(d, first, room) == 0);
	for (int i = 0; i < N; i++) {
		first[i] = 1;
		other[i] = 5;
	}
	for (int k = 1; k <= 30; k++) {
		wait(d, KOLO_ZERO_UP, copy(d, KOLO_ZERO_UP, one, first, len));
		work(d, add(sum, one, N));
		copy(d, KOLO_ZERO_UP, one, other, len); /* when the work has read it */
		CHECK(copy(d, KOLO_ZERO_DOWN, down, sum, len) == (uint64_t)k);
		wait(d, KOLO_ZERO_DOWN, (uint64_t)k);
		CHECK(all_are(down, N, (float)k));
	}
	CHECK(info(d).down_bytes == 30 * len && info(d).up_bytes == 60 * len);
#ifndef T_PLAIN
	t_driver_shake(0);
#endif
	d->ops->unpin(d, first, room);
	d->ops->close(d);
	free(first);
	free(other);
	free(down);
}

/* Many more than a lane holds events for. */
static void tickets_of_any_age_can_be_waited_for(void **state)
{
	struct kolo_zero_device *d = open_device();
	float *sum = allocate(d, 40), *one = allocate(d, 40), x[10];
	uint64_t ticket = 0;

	(void)state;
	for (int i = 0; i < 10; i++)
		x[i] = 1;
	wait(d, KOLO_ZERO_COMPUTE, 0);
	CHECK(d->ops->wait(d, KOLO_ZERO_COMPUTE, 1) == KOLO_EINVAL && told("number 1"));
	wait(d, KOLO_ZERO_UP, copy(d, KOLO_ZERO_UP, one, x, sizeof(x)));
	for (uint64_t k = 1; k <= 1000; k++) {
		ticket = work(d, add(sum, one, 10));
		CHECK(ticket == k);
		if (k % 300 == 0)
			wait(d, KOLO_ZERO_COMPUTE, k - 250);
	}
	wait(d, KOLO_ZERO_COMPUTE, 1);
	wait(d, KOLO_ZERO_COMPUTE, ticket);
	CHECK(work(d, add(sum, one, 0)) == 1001); /* nothing has a ticket, too */
	CHECK(copy(d, KOLO_ZERO_DOWN, x, sum, 0) == 1);
	wait(d, KOLO_ZERO_DOWN, copy(d, KOLO_ZERO_DOWN, x, sum, sizeof(x)));
	CHECK(all_are(x, 10, 1000));
	d->ops->close(d);
}

/* Work, a collective, a copy, and nobody waits between them. */
static void be_a_rank_of_an_all_reduce(struct t_rank *r)
{
	struct kolo_zero_device *d = open_device();
	struct kolo_comm *comm = t_comm(r);
	float *x = pages(PAGES), *sum = allocate(d, PAGES), *one = allocate(d, PAGES);
	size_t n = PAGES / sizeof(*x);
	struct kolo_queue *queue;

	for (size_t i = 0; i < n; i++)
		x[i] = 1;
	CHECK(d->ops->queue(d, &queue) == 0);
	wait(d, KOLO_ZERO_UP, copy(d, KOLO_ZERO_UP, one, x, PAGES));
	for (int k = 0; k < 5; k++) {
		for (int j = 0; j <= r->rank; j++)
			work(d, add(sum, one, n));
		CHECK(kolo_all_reduce(comm, sum, sum, n, KOLO_F32, KOLO_SUM, queue) == 0);
		wait(d, KOLO_ZERO_DOWN, copy(d, KOLO_ZERO_DOWN, x, sum, PAGES));
		CHECK(all_are(x, n, 3));
		wait(d, KOLO_ZERO_COMPUTE,
		     work(d, (struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_CLEAR,
						      .n = n,
						      .to = sum,
						      .to_type = KOLO_F32 }));
	}
	CHECK(kolo_queue_wait(queue) == 0);
	kolo_queue_destroy(queue);
	kolo_comm_destroy(comm);
	d->ops->close(d);
	free(x);
}

static void collectives_of_its_queue_come_between_work_and_copies(void **state)
{
	(void)state;
	t_processes(2, be_a_rank_of_an_all_reduce, NULL);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static int refused(struct kolo_zero_device *d, struct kolo_zero_work w)
{
	uint64_t ticket = 77;
	int rc = d->ops->work(d, &w, &ticket);

	CHECK(rc == 0 || (ticket == 77 && told("GPU 0 (")));
	return rc;
}

static void work_that_no_kernel_does_is_refused(void **state)
{
	struct kolo_zero_device *d = open_device();
	float *a = allocate(d, PAGES), *b = allocate(d, PAGES);
	struct kolo_zero_work w = add(a, b, 10);
	char *host = pages(2 * PAGES);
	uint64_t ticket;

	(void)state;
	w.from_type = KOLO_I32;
	CHECK(refused(d, w) == KOLO_EINVAL && told("add: from is i32: want f32, f16 or bf16"));
	w.from_type = KOLO_F16;
	w.to_type = KOLO_F16;
	CHECK(refused(d, w) == KOLO_EINVAL && told("add: to is f16: want f32"));
	w.kind = KOLO_ZERO_WORK_CAST;
	w.to_type = KOLO_F64;
	CHECK(refused(d, w) == KOLO_EINVAL && told("cast: to is f64"));
	w.kind = (enum kolo_zero_work_kind)(KOLO_ZERO_WORK_DIGITS + 1);
	CHECK(refused(d, w) == KOLO_EINVAL && told("kind 7"));
	w.kind = KOLO_ZERO_WORK_UPDATE;
	w.optimizer = (enum kolo_zero_optimizer)(KOLO_ZERO_LAMB + 1);
	CHECK(refused(d, w) == KOLO_EINVAL && told("optimizer 6"));
	CHECK(d->ops->copy(d, KOLO_ZERO_COMPUTE, a, host, 8, &ticket) == KOLO_EINVAL &&
	      told("lane 0"));
	d->ops->close(d);
	free(host);
}

/* The first half of the pages is pinned. */
static void results_have_to_be_in_pinned_memory(void **state)
{
	struct kolo_zero_device *d = open_device();
	size_t n = 100 * KOLO_ZERO_BLOCK;
	float *a = allocate(d, n * sizeof(float));
	char *host = pages(2 * PAGES);
	struct kolo_zero_work w = add(a, a, 0);

	(void)state;
	CHECK(d->ops->pin(d, host, PAGES) == 0);
	w.bad = (uint32_t *)(void *)(host + PAGES);
	CHECK(refused(d, w) == KOLO_EINVAL &&
	      told("add: bad is not in host memory that was pinned"));
	w.bad = (uint32_t *)(void *)(host + PAGES - 4);
	CHECK(refused(d, w) == 0);
	w = (struct kolo_zero_work){ .kind = KOLO_ZERO_WORK_SQUARES,
				     .n = n,
				     .from = a,
				     .from_type = KOLO_F32,
				     .sums = (double *)(void *)(host + PAGES -
								99 * sizeof(double)) };
	CHECK(refused(d, w) == KOLO_EINVAL && told("squares: sums is not in"));
	w.sums--;
	CHECK(refused(d, w) == 0);
	d->ops->close(d); /* what was not released, and not unpinned, too */
	free(host);
}

static void a_gpu_that_there_is_not_is_refused(void **state)
{
	struct kolo_zero_device *d = (struct kolo_zero_device *)&d;

	(void)state;
	t_gpu_use();
	CHECK(kolo_zero_cuda_open(0, NULL) == KOLO_EINVAL);
	CHECK(kolo_zero_cuda_open(999, &d) == KOLO_ENOTSUP && d == NULL);
	CHECK(told("GPU 999: this process has GPUs 0 to "));
	CHECK(kolo_zero_cuda_open(-1, &d) == KOLO_ENOTSUP && told("GPU -1"));
}

#ifndef T_PLAIN

/* The real driver, which this machine may lack, and the build, too. */
static void open_the_real_one(struct t_rank *r)
{
	struct kolo_zero_device *d = (struct kolo_zero_device *)&d;
	int rc;

	(void)r;
	ko_driver_use(NULL);
	rc = kolo_zero_cuda_open(0, &d);
	CHECK(rc == 0 || (rc == KOLO_ENOTSUP && d == NULL && told("kolo_zero_cuda_open: GPU 0: ")));
	CHECK(rc == 0 || told("libkolo_cuda.so.0, which is built where nvcc is") ||
	      told("NVIDIA driver"));
}

static void a_machine_without_cuda_says_so(void **state)
{
	(void)state;
	t_processes(1, open_the_real_one, NULL);
}

/* ---- A driver that fails --------------------------------------------------------------------- */

/* All that a device does; the first failure. */
static int use_all(struct kolo_zero_device *d, char *host)
{
	struct kolo_zero_work w = add(NULL, NULL, 10);
	struct kolo_queue *queue;
	void *a, *b;
	uint64_t up, down, done;
	int rc;

	if ((rc = d->ops->allocate(d, 4096, "a", &a)) < 0 ||
	    (rc = d->ops->allocate(d, 4096, "b", &b)) < 0 ||
	    (rc = d->ops->pin(d, host, 4096)) < 0 || (rc = d->ops->queue(d, &queue)) < 0)
		return rc;
	kolo_queue_destroy(queue);
	w.to = a;
	w.from = b;
	w.bad = (uint32_t *)(void *)(host + 4000);
	for (int k = 0; k < 2; k++)
		if ((rc = d->ops->copy(d, KOLO_ZERO_UP, b, host, 40, &up)) < 0 ||
		    (rc = d->ops->wait(d, KOLO_ZERO_UP, up)) < 0 ||
		    (rc = d->ops->work(d, &w, &done)) < 0 ||
		    (rc = d->ops->copy(d, KOLO_ZERO_DOWN, host, a, 40, &down)) < 0 ||
		    (rc = d->ops->wait(d, KOLO_ZERO_DOWN, down)) < 0)
			return rc;
	d->ops->release(d, a, 4096);
	return 0;
}

static void a_driver_that_fails_is_told_and_leaves_nothing(void **state)
{
	char *host = pages(4096);
	int failures = 0;

	(void)state;
	t_gpu_use();
	for (long k = 1;; k++) {
		struct kolo_zero_device *d = NULL;
		long live = t_driver_live();
		int rc;

		t_driver_fail(k);
		rc = kolo_zero_cuda_open(0, &d);
		if (rc == 0)
			rc = use_all(d, host);
		CHECK(rc == 0 || (told("GPU 0") && told("the test wants it to fail")) ||
		      (rc == KOLO_ESYS && told("kolo_cuda_queue_create")));
		if (d)
			d->ops->close(d);
		CHECK(t_driver_live() == live);
		failures += rc < 0;
		if (t_driver_fail(0) < k)
			break;
	}
	CHECK(failures > 400);
	free(host);
}

#endif

/* Those with processes come first: who has used CUDA can't be forked. */
static const struct CMUnitTest tests[] = {
#ifndef T_PLAIN
	cmocka_unit_test(a_machine_without_cuda_says_so),
#endif
	cmocka_unit_test(collectives_of_its_queue_come_between_work_and_copies),
	cmocka_unit_test(memory_is_zeroed_counted_and_bounded),
	cmocka_unit_test(pages_are_pinned_counted_and_released),
	cmocka_unit_test(a_copy_may_be_of_memory_that_is_pinned_in_parts),
	cmocka_unit_test(a_copy_comes_behind_the_work_before_it),
	cmocka_unit_test(tickets_of_any_age_can_be_waited_for),
	cmocka_unit_test(work_that_no_kernel_does_is_refused),
	cmocka_unit_test(results_have_to_be_in_pinned_memory),
	cmocka_unit_test(a_gpu_that_there_is_not_is_refused),
#ifndef T_PLAIN
	cmocka_unit_test(a_driver_that_fails_is_told_and_leaves_nothing),
#endif
};

T_MAIN(tests)
