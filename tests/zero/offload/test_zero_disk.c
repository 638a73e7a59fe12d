/* Requests to files for offloaded state (zero/offload/disk.h): what is read is what was written,
 * with sizes of all kinds, and where requests are short, repeated or refused; files that vanish or
 * shrink, and devices that fail, are told. */
#include "tests/zero/offload/failing_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BUFFERS = 8 };

/* ---- What is read is what was written -------------------------------------------------------- */

static void fill(char *at, size_t len, uint64_t *seed)
{
	for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t word = t_random(seed);

		memcpy(at + i, &word, sizeof(word));
	}
}

/* What is on its way for a buffer. */
struct transfer {
	bool busy, write;
	size_t offset, len;
};

struct model {
	struct fixture f;
	char *bytes; /* of the file, once all that was started is done */
	struct transfer transfers[MOST_BUFFERS];
	uint64_t read_bytes, written_bytes, seed;
};

static void wait_for(struct model *m, int i)
{
	struct transfer *t = &m->transfers[i];

	CHECK(zero_disk_wait(m->f.disk, i) == 0);
	if (t->busy && !t->write)
		CHECK(memcmp(buffer_of(&m->f, i), m->bytes + t->offset, t->len) == 0);
	t->busy = false;
}

/* One of two that are on their way in the same place must not be a write. */
static void start_any(struct model *m, int i)
{
	size_t npages = m->f.attr.bytes / PAGE, most = m->f.attr.buffer_len / PAGE;
	struct transfer *t = &m->transfers[i];
	size_t first = t_random(&m->seed) % npages, n = t_random(&m->seed) % (most + 1);

	n = first + n > npages ? npages - first : n;
	*t = (struct transfer){ true, t_random(&m->seed) % 2, first * PAGE, n * PAGE };
	for (int k = 0; k < m->f.attr.nbuffers; k++) {
		struct transfer *other = &m->transfers[k];

		if (k != i && other->busy && (t->write || other->write) &&
		    t->offset < other->offset + other->len && other->offset < t->offset + t->len)
			wait_for(m, k);
	}
	if (t->write) {
		fill(buffer_of(&m->f, i), t->len, &m->seed);
		memcpy(m->bytes + t->offset, buffer_of(&m->f, i), t->len);
		m->written_bytes += t->len;
		CHECK(zero_disk_write(m->f.disk, i, t->offset, t->len) == 0);
	} else {
		memset(buffer_of(&m->f, i), 0xee, t->len);
		m->read_bytes += t->len;
		CHECK(zero_disk_read(m->f.disk, i, t->offset, t->len) == 0);
	}
}

static void check_counts(struct model *m)
{
	uint64_t read_bytes, written_bytes;

	zero_disk_counts(m->f.disk, &read_bytes, &written_bytes);
	CHECK(read_bytes == m->read_bytes && written_bytes == m->written_bytes);
}

/* So many transfers to and from a file, which is all zero at first. */
static void compare_with_model(const struct zero_disk_attr *attr, int ntransfers, uint64_t seed)
{
	struct model m = { .seed = seed, .bytes = calloc(1, attr->bytes) };

	t_system.seed = seed;
	make_directory(&m.f, attr);
	CHECK(m.bytes && zero_disk_open(&m.f.attr, &m.f.disk) == 0);
	for (int k = 0; k < ntransfers; k++) {
		int i = (int)(t_random(&m.seed) % (uint64_t)attr->nbuffers);

		wait_for(&m, i);
		start_any(&m, i);
	}
	for (int i = 0; i < attr->nbuffers; i++)
		wait_for(&m, i);
	check_counts(&m);
	CHECK(zero_disk_check(m.f.disk) == 0);
	close_fixture(&m.f);
	free(m.bytes);
}

/* Each depth, block and number of buffers once. */
static void compare_all_sizes(int ntransfers)
{
	static const int depths[] = { 1, 3, 8 }, numbers[] = { 1, 2, 5 };
	static const size_t blocks[] = { PAGE, 3 * PAGE, 16 * PAGE, 1 << 20 };
	uint64_t seed = 1;

	for (size_t d = 0; d < ARRAY_LEN(depths); d++)
		for (size_t b = 0; b < ARRAY_LEN(blocks); b++)
			for (size_t n = 0; n < ARRAY_LEN(numbers); n++)
				compare_with_model(
					&(struct zero_disk_attr){ .what = "optimizer",
								  .rank = 3,
								  .bytes = 200 * PAGE,
								  .nbuffers = numbers[n],
								  .buffer_len = 33 * PAGE,
								  .block = blocks[b],
								  .depth = depths[d] },
					ntransfers, seed++);
}

static void random_transfers_of_all_sizes_match_a_model_in_memory(void **state)
{
	(void)state;
	memset(&t_system, 0, sizeof(t_system));
	compare_all_sizes(t_is_slow() ? 40 : 100);
	t_system.no_registered = true;
	compare_all_sizes(30);
	t_system.no_direct = true;
	compare_all_sizes(30);
}

static void short_repeated_and_refused_requests_are_continued(void **state)
{
	(void)state;
	memset(&t_system, 0, sizeof(t_system));
	t_system.shorten = true;
	compare_all_sizes(30);
	t_system.repeat = true;
	compare_all_sizes(30);
	t_system.no_direct = true;
	compare_all_sizes(30);
	memset(&t_system, 0, sizeof(t_system));
	t_system.refuse = true;
	compare_all_sizes(20);
}

static void a_pass_that_reads_ahead_and_writes_behind_gives_what_was_written(void **state)
{
	struct fixture f;

	open_fixture(&f, 20 * 9 * PAGE, 4, 9 * PAGE);
	(void)state;
	for (uint64_t pass = 0; pass < 5; pass++)
		pass_through(&f, 20, pass, 0);
	close_fixture(&f);
}

/* Opens and closes often: what is being made by one rank is no leftover for another. */
static void pass_in_common_directory(struct t_rank *t)
{
	struct fixture f = *(struct fixture *)t->arg;

	f.attr.rank = t->rank;
	f.attr.buffers = aligned_alloc(PAGE, 4 * 9 * PAGE);
	CHECK(f.attr.buffers);
	for (int round = 0; round < (t_is_slow() ? 10 : 50); round++) {
		CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
		CHECK(zero_disk_check(f.disk) == 0);
		for (uint64_t pass = 0; pass < 2; pass++)
			pass_through(&f, 6, pass, (uint64_t)t->rank << 32);
		CHECK(zero_disk_check(f.disk) == 0);
		zero_disk_close(f.disk);
	}
	free(f.attr.buffers);
}

static void ranks_share_a_directory(void **state)
{
	struct fixture f;

	(void)state;
	make_fixture(&f, 6 * 9 * PAGE, 4, 9 * PAGE);
	t_processes(5, pass_in_common_directory, &f);
	close_fixture(&f);
}

static void two_files_of_a_rank_are_apart(void **state)
{
	struct fixture f, g;
	char path[256];

	(void)state;
	open_fixture(&f, 6 * 9 * PAGE, 4, 9 * PAGE);
	g = f;
	g.attr.what = "parameters";
	g.attr.buffers = aligned_alloc(PAGE, 4 * 9 * PAGE);
	CHECK(g.attr.buffers && zero_disk_open(&g.attr, &g.disk) == 0);
	CHECK(look_into(f.dir, path, sizeof(path)) == 2);
	for (uint64_t pass = 0; pass < 2; pass++) {
		pass_through(&f, 6, pass, 0);
		pass_through(&g, 6, pass, 1 << 30);
	}
	zero_disk_close(g.disk);
	CHECK(zero_disk_check(f.disk) == 0);
	free(g.attr.buffers);
	close_fixture(&f);
}

static void what_had_to_queue_is_started_by_whoever_waits_for_others(void **state)
{
	int64_t deadline = t_now_ms() + 20000;
	const size_t len = 1 << 20;
	volatile char *last;
	struct fixture f;

	(void)state;
	make_fixture(&f, 2 * len, 2, len);
	f.attr.depth = 1;
	f.attr.block = len; /* long enough for the other one to come before it is done */
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
	last = buffer_of(&f, 1) + len - 1;
	*last = 1;
	CHECK(zero_disk_write(f.disk, 0, 0, len) == 0 && zero_disk_read(f.disk, 1, len, len) == 0);
	CHECK(zero_disk_wait(f.disk, 0) == 0);
	/* Nobody calls any more. */
	while (*last != 0 && t_now_ms() < deadline)
		usleep(1000);
	CHECK(*last == 0 && zero_disk_wait(f.disk, 1) == 0);
	close_fixture(&f);
}

static void closing_waits_for_what_is_on_its_way(void **state)
{
	size_t len = 4 * 64 * PAGE;
	char *same = malloc(len);
	struct fixture f;

	(void)state;
	open_fixture(&f, 4 * 64 * PAGE, 4, 64 * PAGE);
	CHECK(same);
	for (int i = 0; i < 4; i++)
		CHECK(zero_disk_write(f.disk, i, (uint64_t)i * 64 * PAGE, 64 * PAGE) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(zero_disk_wait(f.disk, i) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(zero_disk_read(f.disk, i, (uint64_t)i * 64 * PAGE, 64 * PAGE) == 0);
	zero_disk_close(f.disk);
	f.disk = NULL;
	memset(f.attr.buffers, 0xaa, len);
	memset(same, 0xaa, len);
	usleep(50000);
	CHECK(memcmp(f.attr.buffers, same, len) == 0);
	free(same);
	close_fixture(&f);
}

static void a_file_without_bytes_is_possible(void **state)
{
	struct fixture f;

	open_fixture(&f, 0, 1, PAGE);
	(void)state;
	CHECK(zero_disk_read(f.disk, 0, 0, 0) == 0 && zero_disk_wait(f.disk, 0) == 0);
	CHECK(zero_disk_check(f.disk) == 0);
	close_fixture(&f);
}

/* ---- What goes wrong meanwhile --------------------------------------------------------------- */

static void a_truncated_file_is_told(void **state)
{
	static const struct {
		off_t len;
		bool no_direct;
		const char *has;
	} cases[] = { { 0, false, "has 0 bytes of 65536" },
		      { 20 * 512 + 7, false, "has 10247 bytes of 65536" },
		      { 20 * 512 + 7, true, "has 10247 bytes of 65536" },
		      { 2 * PAGE, true, "has 8192 bytes of 65536" } };
	char path[256];

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		struct fixture f;

		make_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
		t_system.no_direct = cases[k].no_direct;
		CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
		path_of_file(&f, path, sizeof(path));
		CHECK(truncate(path, cases[k].len) == 0);
		check_error(zero_disk_check(f.disk), KOLO_ESYS, path, cases[k].has);
		CHECK(zero_disk_read(f.disk, 0, 0, 8 * PAGE) == 0);
		check_error(zero_disk_wait(f.disk, 0), KOLO_ESYS, path, cases[k].has);
		check_error(zero_disk_wait(f.disk, 0), KOLO_ESYS, "truncated",
			    "load the last checkpoint");
		close_fixture(&f);
	}
}

static void a_removed_or_replaced_file_is_told(void **state)
{
	struct fixture f;
	char path[256];

	open_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	(void)state;
	path_of_file(&f, path, sizeof(path));
	CHECK(zero_disk_check(f.disk) == 0);
	CHECK(unlink(path) == 0);
	check_error(zero_disk_check(f.disk), KOLO_ESYS, path, "removed or replaced");
	close(open(path, O_CREAT | O_WRONLY, 0600));
	check_error(zero_disk_check(f.disk), KOLO_ESYS, path, "removed or replaced");
	zero_disk_close(f.disk);
	f.disk = NULL;
	CHECK(unlink(path) == 0); /* it is not the file's end that removes somebody else's */
	close_fixture(&f);
}

static void the_first_error_of_a_buffer_is_its_own(void **state)
{
	struct fixture f;
	char path[256];

	open_fixture(&f, 64 * PAGE, 2, 32 * PAGE);
	(void)state;
	path_of_file(&f, path, sizeof(path));
	t_system.bad_file = t_system.bad_files = 2;
	CHECK(zero_disk_write(f.disk, 0, 8 * PAGE, 32 * PAGE) == 0);
	CHECK(zero_disk_write(f.disk, 1, 40 * PAGE, 16 * PAGE) == 0);
	CHECK(zero_disk_wait(f.disk, 1) == 0);
	check_error(zero_disk_wait(f.disk, 0), KOLO_ESYS, path,
		    "writing 16384 bytes at 49152: Bad file descriptor");
	CHECK(strstr(kolo_last_error(), "destroy the engine and load the last checkpoint"));
	CHECK(zero_disk_write(f.disk, 0, 8 * PAGE, 32 * PAGE) == 0 &&
	      zero_disk_wait(f.disk, 0) == 0);
	t_system.bad_file = t_system.bad_files = 1;
	CHECK(zero_disk_read(f.disk, 1, 0, 32 * PAGE) == 0);
	check_error(zero_disk_wait(f.disk, 1), KOLO_ESYS, path, "reading 16384 bytes at 0: ");
	close_fixture(&f);
}

/* 5 buffers of 8 requests; the one of number `bad`, from 0 on, fails. */
static void drop_rest(int depth, int bad)
{
	uint64_t read_bytes, written_bytes;
	struct fixture f;

	make_fixture(&f, 5 * 32 * PAGE, 5, 32 * PAGE);
	f.attr.depth = depth;
	t_system.bad_file = bad + 1;
	t_system.bad_files = 1;
	CHECK(zero_disk_open(&f.attr, &f.disk) == 0);
	for (int i = 0; i < 5; i++)
		CHECK(zero_disk_write(f.disk, i, (uint64_t)i * 32 * PAGE, 32 * PAGE) == 0);
	for (int i = 0; i < 5; i++)
		CHECK(zero_disk_wait(f.disk, i) == (i == bad / 8 ? KOLO_ESYS : 0));
	zero_disk_counts(f.disk, &read_bytes, &written_bytes);
	CHECK(read_bytes == 0 && written_bytes <= 39 * 4 * PAGE);
	CHECK(depth > 1 || written_bytes == (uint64_t)(32 + bad % 8) * 4 * PAGE);
	/* It can be started again. */
	CHECK(zero_disk_write(f.disk, bad / 8, 0, 32 * PAGE) == 0 &&
	      zero_disk_wait(f.disk, bad / 8) == 0);
	close_fixture(&f);
}

static void an_error_drops_what_is_left_of_a_buffer_and_nothing_else(void **state)
{
	(void)state;
	for (int depth = 1; depth <= 3; depth++)
		for (int bad = 0; bad < 40; bad++)
			drop_rest(depth, bad);
}

static void a_ring_that_takes_no_more_is_told_and_never_waited_for(void **state)
{
	struct fixture f;
	char path[256];

	open_fixture(&f, 16 * PAGE, 2, 8 * PAGE);
	(void)state;
	path_of_file(&f, path, sizeof(path));
	t_system.broken = ENXIO;
	check_error(zero_disk_read(f.disk, 0, 0, 8 * PAGE), KOLO_ESYS, path,
		    "io_uring: No such device or address");
	t_system.broken = 0;
	check_error(zero_disk_wait(f.disk, 0), KOLO_ESYS, path, "load the last checkpoint");
	check_error(zero_disk_write(f.disk, 1, 0, 8 * PAGE), KOLO_ESYS, path, "io_uring");
	close_fixture(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(random_transfers_of_all_sizes_match_a_model_in_memory),
	cmocka_unit_test(short_repeated_and_refused_requests_are_continued),
	cmocka_unit_test(a_pass_that_reads_ahead_and_writes_behind_gives_what_was_written),
	cmocka_unit_test(ranks_share_a_directory),
	cmocka_unit_test(two_files_of_a_rank_are_apart),
	cmocka_unit_test(what_had_to_queue_is_started_by_whoever_waits_for_others),
	cmocka_unit_test(closing_waits_for_what_is_on_its_way),
	cmocka_unit_test(a_file_without_bytes_is_possible),
	cmocka_unit_test(a_truncated_file_is_told),
	cmocka_unit_test(a_removed_or_replaced_file_is_told),
	cmocka_unit_test(the_first_error_of_a_buffer_is_its_own),
	cmocka_unit_test(an_error_drops_what_is_left_of_a_buffer_and_nothing_else),
	cmocka_unit_test(a_ring_that_takes_no_more_is_told_and_never_waited_for),
};

T_MAIN(tests)
