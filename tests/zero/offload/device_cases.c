/* See device_cases.h. */
#include "tests/zero/offload/device_cases.h"

#include "tests/lib/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- What cases need ------------------------------------------------------------------------- */

struct device {
	const struct t_device *row;
	struct kolo_zero_device *d;
};

static struct kolo_zero_device_info told(struct device *v)
{
	struct kolo_zero_device_info info;

	memset(&info, 0xff, sizeof(info));
	kolo_zero_device_get(v->d, &info);
	CHECK(info.used <= info.peak && info.peak <= info.budget);
	return info;
}

static char *allocate(struct device *v, size_t bytes)
{
	void *memory = NULL;

	CHECK(kolo_zero_device_alloc(v->d, bytes, "a test", &memory) == 0 && memory);
	CHECK((uintptr_t)memory % 256 == 0);
	return memory;
}

static void release(struct device *v, void *memory, size_t bytes)
{
	kolo_zero_device_free(v->d, memory, bytes);
}

static void put(struct device *v, void *device, const void *host, size_t bytes)
{
	CHECK(kolo_zero_device_copy(v->d, KOLO_ZERO_UP, device, host, bytes) == 0);
}

static void get(struct device *v, void *host, const void *device, size_t bytes)
{
	CHECK(kolo_zero_device_copy(v->d, KOLO_ZERO_DOWN, host, device, bytes) == 0);
}

static uint64_t start(struct device *v, enum kolo_zero_lane lane, void *to, const void *from,
		      size_t bytes)
{
	uint64_t ticket = 0;

	CHECK(v->d->ops->copy(v->d, lane, to, from, bytes, &ticket) == 0);
	return ticket;
}

static void wait(struct device *v, enum kolo_zero_lane lane, uint64_t ticket)
{
	CHECK(v->d->ops->wait(v->d, lane, ticket) == 0);
}

/* Host memory in pages of its own, filled with random bytes. */
static void *make_host(size_t bytes, uint64_t seed)
{
	unsigned char *memory = NULL;

	CHECK(posix_memalign((void **)&memory, 4096, bytes) == 0);
	for (size_t i = 0; i < bytes; i++)
		memory[i] = (unsigned char)(i % 8 == 0 ? t_random(&seed) : memory[i - 1] * 5 + i);
	return memory;
}

static bool is_zero(struct device *v, const void *device, size_t bytes)
{
	unsigned char *host = make_host(bytes, 1);
	size_t n = 0;

	get(v, host, device, bytes);
	while (n < bytes && host[n] == 0)
		n++;
	free(host);
	return n == bytes;
}

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

size_t t_locked_bytes(void)
{
	char line[256];
	size_t kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmLck: %zu", &kib);
	fclose(f);
	return kib << 10;
}

bool t_can_lock(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before = t_locked_bytes(), locked;

	CHECK(page != MAP_FAILED);
	mlock(page, 4096);
	locked = t_locked_bytes() - before;
	munmap(page, 4096);
	return locked > 0;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void a_device_tells_what_it_is(struct device *v)
{
	struct kolo_zero_device_info info = told(v);

	CHECK(info.kind && *info.kind && info.name && *info.name && info.budget > 0);
	CHECK(info.used == 0 && info.peak == 0 && info.pinned == 0);
	CHECK(info.down_bytes == 0 && info.up_bytes == 0);
	for (size_t i = 0; i < ARRAY_LEN(info.reserved); i++)
		CHECK(info.reserved[i] == 0);
	CHECK(v->d->ops->on_host == 0 || v->d->ops->on_host == 1);
}

/* Also where others wrote before. */
static void memory_is_zeroed_and_aligned(struct device *v)
{
	static const size_t sizes[] = { 1,    255,     4095,          4096,
					4097, 1 << 20, (2 << 20) + 1, (5 << 20) - 3 };

	for (size_t k = 0; k < 2 * ARRAY_LEN(sizes); k++) {
		size_t bytes = sizes[k / 2];
		char *memory = allocate(v, bytes), *dirt = make_host(bytes, k);

		CHECK(is_zero(v, memory, bytes));
		put(v, memory, dirt, bytes);
		free(dirt);
		release(v, memory, bytes);
	}
}

static void what_is_in_use_is_counted(struct device *v)
{
	static const size_t sizes[] = { 1, 10000, 3 << 20, 4096 };
	size_t used = told(v).used, most = 0;
	void *memory[ARRAY_LEN(sizes)];

	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		size_t before = told(v).used;

		memory[k] = allocate(v, sizes[k]);
		CHECK(told(v).used >= before + sizes[k] && told(v).peak == told(v).used);
	}
	most = told(v).used;
	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		size_t i = (k + 2) % ARRAY_LEN(sizes), before = told(v).used;

		release(v, memory[i], sizes[i]);
		CHECK(told(v).used <= before - sizes[i] && told(v).peak == most);
	}
	CHECK(told(v).used == used);
	release(v, allocate(v, 1), 1);
	CHECK(told(v).used == used && told(v).peak == most);
	release(v, NULL, 0);
}

static void more_than_the_budget_is_refused_with_numbers(struct device *v)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *held = allocate(v, 100000);
	struct kolo_zero_device_info before = told(v);
	const size_t sizes[] = { before.budget - before.used + 1, before.budget + page,
				 SIZE_MAX - 1, SIZE_MAX };

	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		void *memory = &memory;
		char number[32];

		snprintf(number, sizeof(number), "%zu", sizes[k]);
		CHECK(says(kolo_zero_device_alloc(v->d, sizes[k], "all there is", &memory),
			   KOLO_ENOMEM, "'all there is'"));
		CHECK(strstr(kolo_last_error(), number) && !memory);
		CHECK(told(v).used == before.used && told(v).peak == before.peak);
	}
	release(v, allocate(v, 1000), 1000);
	release(v, held, 100000);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void waiting_for_nothing_returns(struct device *v)
{
	for (int lane = 0; lane < KOLO_ZERO_NLANES; lane++)
		wait(v, (enum kolo_zero_lane)lane, 0);
}

enum { TURNS = 500 };

/* All of them write the same word: the last one stays. */
static void copies_are_done_in_their_order(struct device *v)
{
	uint64_t *host = make_host(TURNS * sizeof(*host), 3), last = 0;
	char *device = allocate(v, sizeof(*host));

	for (uint64_t k = 0; k < TURNS; k++) {
		CHECK(start(v, KOLO_ZERO_UP, device, &host[k], sizeof(*host)) == k + 1);
		if (k % 100 == 99) {
			wait(v, KOLO_ZERO_UP, k + 1);
			CHECK(start(v, KOLO_ZERO_DOWN, &last, device, sizeof(last)) == k / 100 + 1);
			wait(v, KOLO_ZERO_DOWN, k / 100 + 1);
			CHECK(last == host[k]);
		}
	}
	wait(v, KOLO_ZERO_UP, 1);
	release(v, device, sizeof(*host));
	free(host);
}

/* What was waited for, and all before it, may be read and freed. */
static void a_ticket_stands_for_all_before_it(struct device *v)
{
	uint64_t *host = make_host(TURNS * sizeof(*host), 4),
		 *back = make_host(TURNS * sizeof(*host), 5);
	uint64_t tickets[TURNS];
	uint64_t *device = (uint64_t *)allocate(v, TURNS * sizeof(*host));

	put(v, device, host, TURNS * sizeof(*host));
	for (size_t k = 0; k < TURNS; k++)
		tickets[k] = start(v, KOLO_ZERO_DOWN, &back[k], &device[k], sizeof(*host));
	for (size_t k = 0, seen = 0; k < TURNS; k += 7) {
		wait(v, KOLO_ZERO_DOWN, tickets[k]);
		for (; seen <= k; seen++)
			CHECK(back[seen] == host[seen]);
	}
	wait(v, KOLO_ZERO_DOWN, tickets[TURNS - 1]);
	release(v, device, TURNS * sizeof(*host));
	free(host);
	free(back);
}

enum { SMALL = 20000, STRIDE = 80 };

/* More than any queue begins with, at any alignment. */
static void many_small_copies_arrive(struct device *v)
{
	size_t bytes = (size_t)SMALL * STRIDE, at = 0;
	char *host = make_host(bytes, 6), *back = calloc(1, bytes), *device = allocate(v, bytes);
	uint64_t up = 0, down = 0;

	CHECK(back);
	for (int k = 0; k < SMALL; k++, at += STRIDE)
		up = start(v, KOLO_ZERO_UP, device + at + k % 11, host + at + k % 7,
			   (size_t)(k % 65));
	wait(v, KOLO_ZERO_UP, up);
	at = 0;
	for (int k = 0; k < SMALL; k++, at += STRIDE)
		down = start(v, KOLO_ZERO_DOWN, back + at + k % 13, device + at + k % 11,
			     (size_t)(k % 65));
	CHECK(down == SMALL);
	wait(v, KOLO_ZERO_DOWN, down);
	at = 0;
	for (int k = 0; k < SMALL; k++, at += STRIDE)
		CHECK(memcmp(back + at + k % 13, host + at + k % 7, (size_t)(k % 65)) == 0 &&
		      back[at + (size_t)(k % 13) + (size_t)(k % 65)] == 0);
	release(v, device, bytes);
	free(host);
	free(back);
}

static void both_lanes_go_at_once(struct device *v)
{
	enum { N = 40, LEN = 30000 };
	char *host = make_host(2 * N * LEN, 7), *back = calloc(N, LEN);
	char *device = allocate(v, 2 * N * LEN);
	uint64_t up = 0, down = 0;

	CHECK(back);
	put(v, device, host, N * LEN);
	for (size_t k = 0; k < N; k++) {
		up = start(v, KOLO_ZERO_UP, device + (N + k) * LEN, host + (N + k) * LEN, LEN);
		down = start(v, KOLO_ZERO_DOWN, back + k * LEN, device + k * LEN, LEN);
	}
	wait(v, KOLO_ZERO_DOWN, down);
	CHECK(memcmp(back, host, N * LEN) == 0);
	wait(v, KOLO_ZERO_UP, up);
	get(v, back, device + N * LEN, N * LEN);
	CHECK(memcmp(back, host + N * LEN, N * LEN) == 0);
	release(v, device, 2 * N * LEN);
	free(host);
	free(back);
}

static void a_large_copy_arrives_whole(struct device *v)
{
	size_t bytes = (20 << 20) + 3;
	char *host = make_host(bytes, 8), *back = calloc(1, bytes), *device = allocate(v, bytes);

	CHECK(back);
	put(v, device, host, bytes);
	get(v, back, device, bytes);
	CHECK(memcmp(back, host, bytes) == 0);
	release(v, device, bytes);
	free(host);
	free(back);
}

static void copied_bytes_are_counted(struct device *v)
{
	char *host = make_host(10000, 9), *device = allocate(v, 10000);

	put(v, device, host, 10000);
	put(v, device + 1, host, 77);
	put(v, device, host, 0);
	get(v, host, device, 3);
	wait(v, KOLO_ZERO_UP, start(v, KOLO_ZERO_UP, device, host, 0));
	CHECK(told(v).up_bytes == 10077 && told(v).down_bytes == 3);
	release(v, device, 10000);
	free(host);
}

/* ---- Pinned memory, queues, mistakes --------------------------------------------------------- */

static void pinned_memory_is_counted_by_whole_pages(struct device *v)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), before = t_locked_bytes();
	bool locks = v->row->locks && t_can_lock();
	char *host = make_host(64 * page, 10), *same = make_host(64 * page, 10);
	char *device = allocate(v, 64 * page);
	const struct {
		size_t at, bytes, pages;
	} parts[] = { { 1, 100, 1 },
		      { 2 * page - 1, 2, 2 },
		      { 4 * page, 20 * page, 20 },
		      { 30 * page + 5, page, 2 } };
	size_t pages = 0;

	for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
		CHECK(v->d->ops->pin(v->d, host + parts[k].at, parts[k].bytes) == 0);
		pages += parts[k].pages;
		CHECK(told(v).pinned == pages * page);
		CHECK(!locks || t_locked_bytes() == before + pages * page);
	}
	put(v, device, host, 64 * page); /* pinned memory and other together */
	memset(host, 0, 64 * page);
	get(v, host, device, 64 * page);
	CHECK(memcmp(host, same, 64 * page) == 0);
	for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
		v->d->ops->unpin(v->d, host + parts[k].at, parts[k].bytes);
		pages -= parts[k].pages;
		CHECK(told(v).pinned == pages * page);
		CHECK(!locks || t_locked_bytes() == before + pages * page);
	}
	release(v, device, 64 * page);
	free(host);
	free(same);
}

static void it_has_queues_for_collectives(struct device *v)
{
	struct kolo_queue *queues[2] = { NULL };

	for (size_t k = 0; k < ARRAY_LEN(queues); k++)
		CHECK(v->d->ops->queue(v->d, &queues[k]) == 0 && queues[k]);
	for (size_t k = 0; k < ARRAY_LEN(queues); k++) {
		CHECK(kolo_queue_wait(queues[k]) == 0);
		kolo_queue_destroy(queues[k]);
	}
}

static void work_has_the_bits_of_the_plain_loops(struct device *v)
{
	if (!v->d->ops->on_host)
		t_device_work(v->d);
}

static void wrong_arguments_are_refused(struct device *v)
{
	void *memory = &memory;
	char host[8] = "";
	char *device = allocate(v, 8);
	struct kolo_zero_device nothing = { NULL };

	CHECK(says(kolo_zero_device_alloc(v->d, 8, "x", NULL), KOLO_EINVAL, "out"));
	CHECK(says(kolo_zero_device_alloc(NULL, 8, "x", &memory), KOLO_EINVAL, "no device") &&
	      !memory);
	CHECK(says(kolo_zero_device_alloc(&nothing, 8, "x", &memory), KOLO_EINVAL, "no device"));
	CHECK(says(kolo_zero_device_alloc(v->d, 0, "x", &memory), KOLO_EINVAL, "0 bytes for 'x'"));
	CHECK(says(kolo_zero_device_alloc(v->d, 8, NULL, &memory), KOLO_EINVAL, "a name"));
	CHECK(says(kolo_zero_device_copy(NULL, KOLO_ZERO_UP, device, host, 8), KOLO_EINVAL,
		   "no device"));
	CHECK(says(kolo_zero_device_copy(v->d, KOLO_ZERO_COMPUTE, device, host, 8), KOLO_EINVAL,
		   "lane 0"));
	CHECK(says(kolo_zero_device_copy(v->d, KOLO_ZERO_NLANES, device, host, 8), KOLO_EINVAL,
		   "lane 3"));
	CHECK(says(kolo_zero_device_copy(v->d, KOLO_ZERO_UP, NULL, host, 8), KOLO_EINVAL,
		   "to is NULL"));
	CHECK(says(kolo_zero_device_copy(v->d, KOLO_ZERO_DOWN, host, NULL, 8), KOLO_EINVAL,
		   "from is NULL"));
	CHECK(kolo_zero_device_copy(v->d, KOLO_ZERO_UP, NULL, NULL, 0) == 0);
	CHECK(told(v).up_bytes == 0 && told(v).down_bytes == 0);
	kolo_zero_device_free(NULL, device, 8);
	release(v, device, 8);
	CHECK(told(v).used == 0);
	kolo_zero_device_close(NULL);
}

/* The runner closes it. */
static void closing_frees_what_is_left(struct device *v)
{
	enum { LEN = 100000 };
	static char host[LEN];
	char *device = allocate(v, LEN);

	allocate(v, 3 << 20);
	CHECK(v->d->ops->pin(v->d, host, LEN) == 0);
	for (int k = 0; k < 20; k++) {
		start(v, KOLO_ZERO_UP, device, host, LEN / 2);
		start(v, KOLO_ZERO_DOWN, host + LEN / 2, device + LEN / 2, LEN / 2);
	}
}

/* ---- All ------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(struct device *v);
} cases[] = {
#define CASE(fn)                                                                                   \
	{                                                                                          \
#fn, fn                                                                            \
	}
	CASE(a_device_tells_what_it_is),
	CASE(memory_is_zeroed_and_aligned),
	CASE(what_is_in_use_is_counted),
	CASE(more_than_the_budget_is_refused_with_numbers),
	CASE(waiting_for_nothing_returns),
	CASE(copies_are_done_in_their_order),
	CASE(a_ticket_stands_for_all_before_it),
	CASE(many_small_copies_arrive),
	CASE(both_lanes_go_at_once),
	CASE(a_large_copy_arrives_whole),
	CASE(copied_bytes_are_counted),
	CASE(pinned_memory_is_counted_by_whole_pages),
	CASE(it_has_queues_for_collectives),
	CASE(work_has_the_bits_of_the_plain_loops),
	CASE(wrong_arguments_are_refused),
	CASE(closing_frees_what_is_left),
};

void t_device_cases(const struct t_device *row)
{
	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		struct device v = { .row = row };

		printf("# %s: %s\n", row->name, cases[k].name);
		fflush(stdout);
		CHECK(row->open(&v.d) == 0 && v.d);
		cases[k].run(&v);
		kolo_zero_device_close(v.d);
	}
}
