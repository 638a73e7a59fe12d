/* Maps the file of text and finds the tokens of a sample. */
#include "tools/zerotrain/data.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/math/random.h"

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
		d->len = (size_t)st.st_size / d->width;
		if (S_ISREG(st.st_mode) && d->len > 0 && (size_t)st.st_size % d->width == 0)
			bytes = mmap(NULL, d->len * d->width, PROT_READ, MAP_PRIVATE, fd, 0);
		else
			errno = S_ISREG(st.st_mode) && d->len == 0 ? ENODATA : EINVAL;
	}
	if (bytes == MAP_FAILED)
		fprintf(stderr, "zerotrain: --data %s: %s: must be a file of %s\n", path,
			strerror(errno), d->width == 1 ? "text" : "tokens of two bytes");
	else
		d->bytes = bytes;
	if (fd >= 0)
		close(fd);
	return d->bytes ? EXIT_GOOD : EXIT_WRONG;
}

void data_read(const struct data *d, size_t first, size_t n, token *out)
{
	const uint8_t *from = d->bytes + first * d->width;

	for (size_t i = 0; i < n; i++, from += d->width)
		out[i] = (token)(d->width == 1 ? *from : from[0] | from[1] << 8);
}

/* A token without a row of the embedding. */
static int check_tokens(const char *path, const struct data *d, int values)
{
	for (size_t i = 0; values < 1 << (8 * d->width) && i < d->len; i++) {
		token one;

		data_read(d, i, 1, &one);
		if (one < values)
			continue;
		fprintf(stderr,
			"zerotrain: --data %s: token number %zu is %d, and --vocab %d has those below it\n",
			path, i, one, values);
		return EXIT_WRONG;
	}
	return EXIT_GOOD;
}

int data_open(const char *path, size_t width, int values, int context, uint64_t seed,
	      struct data *d)
{
	size_t t = (size_t)context, tenth, held;
	int rc;

	d->width = width;
	if ((rc = map_file(path, d)) || (rc = check_tokens(path, d, values)))
		return rc;
	tenth = d->len / 10;
	held = tenth > t + 1 ? tenth : t + 1;
	if (d->len < 3 * t + 1) {
		fprintf(stderr,
			"zerotrain: --data %s has %zu %s, and --context %d needs %zu: use a longer file or a "
			"smaller --context\n",
			path, d->len, width == 1 ? "bytes" : "tokens", context, 3 * t + 1);
		return EXIT_WRONG;
	}
	d->context = t;
	d->seed = make_key(seed, 0x64617461);
	d->ntrain = d->len - held;
	d->windows = (d->ntrain - t) /
		     t; /* an epoch begins up to t - 1 tokens late, and needs one more */
	d->validation = (held - 1) / t;
	if (d->validation > MOST_VALIDATION)
		d->validation = MOST_VALIDATION;
	return EXIT_GOOD;
}

void data_close(struct data *d)
{
	if (d->bytes)
		munmap((void *)d->bytes, d->len * d->width);
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

size_t data_sample(const struct data *d, uint64_t k)
{
	uint64_t epoch = k / d->windows, key = make_key(d->seed, epoch);
	size_t start = (size_t)(key % d->context);

	return start + d->context * permute(k % d->windows, d->windows, key);
}

size_t data_validation(const struct data *d, uint64_t w)
{
	uint64_t all = (d->len - d->ntrain - 1) / d->context;

	return d->ntrain + d->context * (w * all / d->validation);
}

uint64_t data_fingerprint(const struct data *d)
{
	const size_t looks = 4096;
	uint64_t sum = d->len;

	for (size_t i = 0; i < looks; i++) {
		token one;

		data_read(d, (size_t)((double)d->len / (double)looks * (double)i), 1, &one);
		sum = make_key(sum, one);
	}
	return sum;
}
