/* How fast state passes from a file through buffers and back, as in an update of what is offloaded
 * to files: while a unit is in memory the next ones are on their way here and the last ones on
 * their way there. What is done with a unit in memory costs nothing: one word of each page. Prints
 * the bytes read and written in a second of each of PASSES passes, and checks what comes back.
 *
 * usage: zero_disk DIR [MIB [UNIT_KIB [BUFFERS [BLOCK_KIB [DEPTH]]]]] */
#include "zero/offload/disk.h"

#include "perf/perf.h"

#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 5, PAGE = 4096 };

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_disk: %s\n", kolo_last_error());
	exit(1);
}

struct pass {
	struct zero_disk *disk;
	struct zero_disk_attr attr;
	uint64_t nunits;
};

/* The word of a page after so many passes. */
static uint64_t word_of(uint64_t offset, uint64_t passes)
{
	return offset + passes;
}

static void update(struct pass *p, uint64_t unit, uint64_t passes)
{
	size_t len = p->attr.buffer_len;
	char *buffer = p->attr.buffers + unit % (uint64_t)p->attr.nbuffers * len;

	for (size_t at = 0; at < len; at += PAGE) {
		uint64_t word, want = word_of(unit * len + at, passes);

		memcpy(&word, buffer + at, sizeof(word));
		if (passes > 0 && word != want)
			check(kolo_error_set(KOLO_ESYS,
					     "byte %llu of the file came back as something else",
					     (unsigned long long)(unit * len + at)));
		word = want + 1;
		memcpy(buffer + at, &word, sizeof(word));
	}
}

/* Half of the buffers read ahead; the rest is written behind. */
static void run_pass(struct pass *p, uint64_t passes)
{
	uint64_t n = (uint64_t)p->attr.nbuffers, ahead = n / 2, len = p->attr.buffer_len;

	for (uint64_t step = 0; step < p->nunits + ahead; step++) {
		int next = (int)(step % n), here = (int)((step - ahead) % n);

		if (step < p->nunits) {
			check(zero_disk_wait(p->disk, next));
			if (passes > 0)
				check(zero_disk_read(p->disk, next, step * len, len));
		}
		if (step < ahead)
			continue;
		check(zero_disk_wait(p->disk, here));
		update(p, step - ahead, passes);
		check(zero_disk_write(p->disk, here, (step - ahead) * len, len));
	}
	for (int i = 0; i < p->attr.nbuffers; i++)
		check(zero_disk_wait(p->disk, i));
}

int main(int argc, char **argv)
{
	size_t numbers[] = { 1024, 3072, 4, 1024, 8 };
	struct pass p = { 0 };

	for (int i = 2; i < argc && i < 7; i++)
		numbers[i - 2] = strtoul(argv[i], NULL, 10);
	p.attr = (struct zero_disk_attr){ .what = "perf",
					  .nbuffers = (int)numbers[2],
					  .buffer_len = numbers[1] << 10,
					  .block = numbers[3] << 10,
					  .depth = (int)numbers[4] };
	if (argc < 2 || numbers[1] % 4 || numbers[3] % 4 || numbers[1] < 4 || numbers[3] < 4 ||
	    numbers[2] < 2 || numbers[4] < 1 || numbers[0] << 10 < numbers[1]) {
		fprintf(stderr,
			"usage: zero_disk DIR [MIB [UNIT_KIB [BUFFERS [BLOCK_KIB [DEPTH]]]]]\n");
		return 2;
	}
	p.attr.dir = argv[1];
	p.nunits = ((uint64_t)numbers[0] << 10) / numbers[1];
	p.attr.bytes = p.nunits * p.attr.buffer_len;
	p.attr.buffers = aligned_alloc(PAGE, numbers[2] * p.attr.buffer_len);
	check(p.attr.buffers ? zero_disk_open(&p.attr, &p.disk)
			     : kolo_error_set(KOLO_ENOMEM, "out of memory"));
	memset(p.attr.buffers, 0, numbers[2] * p.attr.buffer_len);
	run_pass(&p, 0); /* only writes */
	for (uint64_t pass = 1; pass <= PASSES; pass++) {
		int64_t begin = ko_now_ns();

		run_pass(&p, pass);
		printf("%.1f MB/s\n", 2e3 * (double)p.attr.bytes / (double)(ko_now_ns() - begin));
	}
	zero_disk_close(p.disk);
	free(p.attr.buffers);
	return 0;
}
