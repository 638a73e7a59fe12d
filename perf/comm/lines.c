/* What bytes cost between two cores, without Kolo: two processes exchange BYTES each way through
 * shared memory, again and again. Each writes its payload before the last one, walking through some
 * memory, and then reads the other's. Ordinary stores through 64 KiB, 512 KiB and 2 MiB, whose
 * first lines are fetched for writing before, and stores past the caches. Prints the median of the
 * slower process, in microseconds. By turns, so that a machine that changes its mood changes it for
 * all.
 *
 * usage: lines [BYTES ...]   (default: 1 KiB to 64 KiB by 4) */
#include "perf/perf.h"

#include "comm/reduce/reduce.h"

#include <kolo/kolo.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 2 << 20, ROUNDS = 9, WARMUP = 3 * MOST, LEAST_TURNS = 300, MAX_TURNS = 20000 };

struct way {
	size_t span;
	bool streams;
};

/* The columns. */
static const struct way ways[] = {
	{ 64 << 10, false },
	{ 512 << 10, false },
	{ MOST, false },
	{ MOST, true },
};

enum { NWAYS = sizeof(ways) / sizeof(*ways) };

struct side {
	_Alignas(128) _Atomic uint64_t come, given;
	double times[MAX_TURNS];
	_Alignas(4096) char payloads[MOST];
};

/* One process: its own side, the other's, and what it sends and receives. */
struct end {
	struct side *mine, *theirs;
	char *from, *to;
	uint64_t turn;
};

static void wait_for(_Atomic uint64_t *count, uint64_t turn)
{
	for (uint64_t k = 0; atomic_load_explicit(count, memory_order_acquire) < turn; k++)
		if (k % 4096 == 4095) /* the other process may have no core of its own */
			sched_yield();
}

/* One exchange, after both have come. */
static double exchange(struct end *e, const struct way *way, size_t at, size_t bytes)
{
	int64_t begin;

	e->turn++;
	atomic_store_explicit(&e->mine->come, e->turn, memory_order_release);
	wait_for(&e->theirs->come, e->turn);
	begin = ko_now_ns();
	if (way->streams) {
		ko_stream_copy(e->mine->payloads + at, e->from, bytes);
		ko_stream_fence();
	} else {
		ko_expect_to_write(e->mine->payloads + at, bytes);
		ko_copy_by_loop(e->mine->payloads + at, e->from, bytes);
	}
	atomic_store_explicit(&e->mine->given, e->turn, memory_order_release);
	wait_for(&e->theirs->given, e->turn);
	ko_copy_by_loop(e->to, e->theirs->payloads + at, bytes);
	return (double)(ko_now_ns() - begin) / 1e3;
}

/* All turns of a way. Payloads walk downwards, as on the board. */
static int measure(struct end *e, const struct way *way, size_t bytes)
{
	size_t span = way->span > 2 * bytes ? way->span : 2 * bytes;
	int warm = (int)(WARMUP / bytes), turns = LEAST_TURNS + (int)(span / bytes);
	size_t at = 0;

	for (int k = 0; k < warm + turns; k++) {
		double us;

		at = (at ? at : span / bytes * bytes) - bytes;
		us = exchange(e, way, at, bytes);
		if (k >= warm)
			e->mine->times[k - warm] = us;
	}
	return turns;
}

/* The slower of both counts in each turn. */
static double median_of_slower(const struct side *sides, int turns)
{
	static double slower[MAX_TURNS];

	for (int k = 0; k < turns; k++) {
		double a = sides[0].times[k], b = sides[1].times[k];

		slower[k] = a > b ? a : b;
	}
	return perf_median(slower, turns);
}

static void run(struct side *sides, int me, const size_t *sizes, int n)
{
	struct end e = { &sides[me], &sides[!me], malloc(MOST), malloc(MOST), 0 };

	if (!e.from || !e.to)
		exit(1);
	memset(e.from, 1, MOST);
	memset(e.to, 2, MOST);
	for (int i = 0; i < n; i++) {
		double medians[NWAYS][ROUNDS];

		for (int k = 0; k < ROUNDS * NWAYS; k++) {
			int turns = measure(&e, &ways[k % NWAYS], sizes[i]);

			e.turn++; /* the other's times are complete */
			atomic_store_explicit(&e.mine->come, e.turn, memory_order_release);
			wait_for(&e.theirs->come, e.turn);
			medians[k % NWAYS][k / NWAYS] = median_of_slower(sides, turns);
		}
		if (me != 0)
			continue;
		printf("%8zu", sizes[i]);
		for (int w = 0; w < NWAYS; w++)
			printf(" %10.2f", perf_median(medians[w], ROUNDS));
		printf("\n");
	}
}

int main(int argc, char **argv)
{
	size_t sizes[16] = { 1 << 10, 4 << 10, 16 << 10, 64 << 10 };
	int n = argc > 1 ? argc - 1 : 4, cpus[2], me, status = 0;
	struct side *sides;
	cpu_set_t set;

	for (int i = 1; i < argc && i <= 16; i++)
		sizes[i - 1] = strtoull(argv[i], NULL, 10);
	for (int i = 0; i < n; i++) {
		if (n <= 16 && sizes[i] >= 256 && sizes[i] <= MOST / 4)
			continue;
		fprintf(stderr, "usage: lines [BYTES ...]   (up to 16, from 256 to %d)\n",
			MOST / 4);
		return 2;
	}
	sides = mmap(NULL, 2 * sizeof(*sides), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	if (sides == MAP_FAILED || kolo_cores(cpus, 2) < 2) {
		fprintf(stderr, "lines: wants two cores, and %zu bytes\n", 2 * sizeof(*sides));
		return 1;
	}
	me = fork() == 0;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpus[me], &set);
	sched_setaffinity(0, sizeof(set), &set);
	if (!me)
		printf("#  bytes     64 KiB    512 KiB      2 MiB   streamed   (us)\n");
	run(sides, me, sizes, n);
	if (!me)
		wait(&status);
	return status != 0;
}
