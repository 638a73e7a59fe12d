/* Maps the file of text and finds the bytes of a sample. */
#include "tools/zerotrain/data.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/model/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_VALIDATION = 64 };

static int map_file(const char *path, struct data *d)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes = MAP_FAILED;

	if (fd >= 0 && fstat(fd, &st) == 0) {
		d->len = (size_t)st.st_size;
		if (S_ISREG(st.st_mode) && d->len > 0)
			bytes = mmap(NULL, d->len, PROT_READ, MAP_PRIVATE, fd, 0);
		else
			errno = S_ISREG(st.st_mode) ? ENODATA : EINVAL;
	}
	if (bytes == MAP_FAILED)
		fprintf(stderr, "zerotrain: --data %s: %s: must be a file of text\n", path,
			strerror(errno));
	else
		d->bytes = bytes;
	if (fd >= 0)
		close(fd);
	return d->bytes ? EXIT_GOOD : EXIT_WRONG;
}

int data_open(const char *path, int context, uint64_t seed, struct data *d)
{
	size_t t = (size_t)context, tenth, held;
	int rc = map_file(path, d);

	if (rc)
		return rc;
	tenth = d->len / 10;
	held = tenth > t + 1 ? tenth : t + 1;
	if (d->len < 3 * t + 1) {
		fprintf(stderr,
			"zerotrain: --data %s has %zu bytes, and --context %d needs %zu: use a longer file or a "
			"smaller --context\n",
			path, d->len, context, 3 * t + 1);
		return EXIT_WRONG;
	}
	d->context = t;
	d->seed = make_key(seed, 0x64617461);
	d->ntrain = d->len - held;
	d->windows = (d->ntrain - t) /
		     t; /* an epoch begins up to t - 1 bytes late, and needs one byte more */
	d->validation = (held - 1) / t;
	if (d->validation > MOST_VALIDATION)
		d->validation = MOST_VALIDATION;
	return EXIT_GOOD;
}

void data_close(struct data *d)
{
	if (d->bytes)
		munmap((void *)d->bytes, d->len);
	d->bytes = NULL;
}

/* A permutation of [0, n), by its key. It is a Feistel network on as many bits as n takes, or one
 * more. The rounds repeat until the result is below n. */
static uint64_t permute(uint64_t i, uint64_t n, uint64_t key)
{
	unsigned half = 1;
	uint64_t mask;

	while (n > (uint64_t)1 << 2 * half)
		half++;
	mask = ((uint64_t)1 << half) - 1;
	do {
		uint64_t left = i >> half, right = i & mask;

		for (uint64_t round = 0; round < 4; round++) {
			uint64_t next = left ^ (make_key(key + round, right) & mask);

			left = right;
			right = next;
		}
		i = left << half | right;
	} while (i >= n);
	return i;
}

const uint8_t *data_sample(const struct data *d, uint64_t k)
{
	uint64_t epoch = k / d->windows, key = make_key(d->seed, epoch);
	size_t start = (size_t)(key % d->context);

	return d->bytes + start + d->context * permute(k % d->windows, d->windows, key);
}

const uint8_t *data_validation(const struct data *d, uint64_t w)
{
	uint64_t all = (d->len - d->ntrain - 1) / d->context;

	return d->bytes + d->ntrain + d->context * (w * all / d->validation);
}

uint64_t data_fingerprint(const struct data *d)
{
	const size_t looks = 4096;
	uint64_t sum = d->len;

	for (size_t i = 0; i < looks; i++)
		sum = make_key(sum, d->bytes[(size_t)((double)d->len / (double)looks * (double)i)]);
	return sum;
}
