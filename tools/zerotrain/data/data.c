/* Maps the file of text and finds the tokens of a sample. */
#include "tools/zerotrain/data/data.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/math/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_VALIDATION = 64 };

/* ---- Files ----------------------------------------------------------------------------------- */

static int map_file(const struct source *source, struct data *d)
{
	int fd = open(source->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes = MAP_FAILED;

	if (fd >= 0 && fstat(fd, &st) == 0) {
		d->mapped = (size_t)st.st_size;
		d->len = d->mapped / d->width;
		if (S_ISREG(st.st_mode) && d->len > 0 && d->mapped % d->width == 0)
			bytes = mmap(NULL, d->mapped, PROT_READ, MAP_PRIVATE, fd, 0);
		else
			errno = S_ISREG(st.st_mode) && d->len == 0 ? ENODATA : EINVAL;
	}
	if (bytes == MAP_FAILED)
		fprintf(stderr, "zerotrain: --data %s: %s: must be a file of %s\n", source->path,
			strerror(errno), d->width == 1 ? "text" : "tokens of two bytes");
	else
		d->bytes = bytes;
	if (fd >= 0)
		close(fd);
	return d->bytes ? EXIT_GOOD : EXIT_WRONG;
}

static void unmap(struct data *d)
{
	if (d->bytes)
		munmap((void *)d->bytes, d->mapped);
	d->bytes = NULL;
}

/* Replaces the mapped text by its tokens. */
static int tokenize_file(const struct source *source, struct data *d)
{
	size_t bad;
	long n;

	if (!source->tokenizer.bpe)
		return EXIT_GOOD;
	d->tokens = malloc(d->len * sizeof(*d->tokens));
	n = d->tokens
		    ? tokenize(&source->tokenizer, (const char *)d->bytes, d->len, d->tokens, &bad)
		    : -1;
	unmap(d);
	if (n >= 0) {
		d->len = (size_t)n;
		return EXIT_GOOD;
	}
	if (n == -1)
		fprintf(stderr, "zerotrain: --data %s: out of memory for its tokens\n",
			source->path);
	else
		fprintf(stderr,
			"zerotrain: --data %s: must be UTF-8 of bytes that --bpe has, and byte %zu is not\n",
			source->path, bad);
	return n == -1 ? EXIT_FAILED : EXIT_WRONG;
}

void data_read(const struct data *d, size_t first, size_t n, token *out)
{
	const uint8_t *from = d->bytes + first * d->width;

	if (d->tokens)
		memcpy(out, d->tokens + first, n * sizeof(*out));
	else
		for (size_t i = 0; i < n; i++, from += d->width)
			out[i] = (token)(d->width == 1 ? *from : from[0] | from[1] << 8);
}

/* A token without a row of the embedding. */
static int check_tokens(const struct source *source, const struct data *d)
{
	for (size_t i = 0; i < d->len; i++) {
		token one;

		data_read(d, i, 1, &one);
		if (one < source->values)
			continue;
		fprintf(stderr,
			"zerotrain: --data %s: token number %zu is %d, and --vocab %d has those below it\n",
			source->path, i, one, source->values);
		return EXIT_WRONG;
	}
	return EXIT_GOOD;
}

static bool has_all(const struct source *source)
{
	return source->width == 1 && !source->tokenizer.bpe && source->values >= 256;
}

/* ---- Documents ------------------------------------------------------------------------------- */

bool data_is_jsonl(const char *path)
{
	size_t len = strlen(path);

	return len > 6 && strcmp(path + len - 6, ".jsonl") == 0;
}

/* Cuts a stream where documents end. */
static int split(const struct source *source, struct data *d)
{
	size_t first = 0;
	bool good = true;

	for (size_t i = 0; good && i < d->len; i++) {
		token one;

		data_read(d, i, 1, &one);
		good = documents_add(&d->documents, &one, 1, true);
		if (good && (one == source->tokenizer.end || i + 1 == d->len)) {
			good = documents_end(&d->documents, first, d->context);
			first = d->documents.ntokens;
		}
	}
	if (good)
		return EXIT_GOOD;
	fprintf(stderr, "zerotrain: --data %s: out of memory for its documents\n", source->path);
	return EXIT_FAILED;
}

/* Windows of the first n in which something counts. */
static size_t count_heard(const struct data *d, size_t n)
{
	size_t heard = 0;

	for (size_t w = 0; w < n; w++)
		heard += documents_count(&d->documents, w);
	return heard;
}

static bool validation_counts(const struct data *d)
{
	for (uint64_t w = 0; w < d->validation; w++)
		if (documents_count(&d->documents, data_validation(d, w)))
			return true;
	return false;
}

static int refuse_silence(const struct source *source, const char *what)
{
	fprintf(stderr,
		"zerotrain: --data %s: no token of the windows for %s counts: use a larger --context, or more data\n",
		source->path, what);
	return EXIT_WRONG;
}

static int open_documents(const struct source *source, struct data *d)
{
	size_t n, held;

	if (!documents_pack(&d->documents, d->packing, d->context)) {
		fprintf(stderr, "zerotrain: --data %s: out of memory\n", source->path);
		return EXIT_FAILED;
	}
	n = d->documents.nwindows;
	held = n / 10 ? n / 10 : 1;
	if (n < 2) {
		fprintf(stderr,
			"zerotrain: --data %s: its %zu documents fill %zu windows of --context %zu, and two are needed: one is for validation\n",
			source->path, d->documents.n, n, d->context);
		return EXIT_WRONG;
	}
	/* They are what is read from now on. */
	unmap(d);
	free(d->tokens);
	d->tokens = d->documents.tokens;
	d->len = d->documents.ntokens;
	d->windows = n - held;
	d->ntrain = d->documents.cuts[d->documents.windows[d->windows]].first;
	d->validation = held < MOST_VALIDATION ? held : MOST_VALIDATION;
	d->heard = count_heard(d, d->windows);
	if (d->heard == 0)
		return refuse_silence(source, "training");
	return validation_counts(d) ? EXIT_GOOD : refuse_silence(source, "validation");
}

/* ---- Open and close -------------------------------------------------------------------------- */

static int open_stream(const struct source *source, struct data *d)
{
	size_t t = d->context, tenth = d->len / 10, held = tenth > t + 1 ? tenth : t + 1;

	if (d->len < 3 * t + 1) {
		fprintf(stderr,
			"zerotrain: --data %s has %zu %s, and --context %d needs %zu: use a longer file or a "
			"smaller --context\n",
			source->path, d->len,
			d->width == 1 && !source->tokenizer.bpe ? "bytes" : "tokens",
			source->context, 3 * t + 1);
		return EXIT_WRONG;
	}
	d->ntrain = d->len - held;
	/* An epoch begins up to t - 1 tokens late, and needs one more. */
	d->windows = (d->ntrain - t) / t;
	d->validation = (held - 1) / t < MOST_VALIDATION ? (held - 1) / t : MOST_VALIDATION;
	return EXIT_GOOD;
}

/* All tokens, as one stream or as documents. */
static int read_source(const struct source *source, struct data *d)
{
	int rc;

	if (data_is_jsonl(source->path))
		return jsonl_read(source->path, &source->tokenizer, d->context, &d->documents);
	if ((rc = map_file(source, d)) || (rc = tokenize_file(source, d)))
		return rc;
	return d->packing == NO_DOCUMENTS ? EXIT_GOOD : split(source, d);
}

int data_open(const struct source *source, struct data *d)
{
	int rc;

	d->width = source->width;
	d->context = (size_t)source->context;
	d->seed = make_key(source->seed, 0x64617461);
	d->packing = source->packing;
	if ((rc = read_source(source, d)) ||
	    (rc = d->packing == NO_DOCUMENTS ? open_stream(source, d) : open_documents(source, d)))
		return rc;
	return has_all(source) ? EXIT_GOOD : check_tokens(source, d);
}

void data_close(struct data *d)
{
	unmap(d);
	if (d->tokens != d->documents.tokens)
		free(d->tokens);
	documents_free(&d->documents);
	d->tokens = NULL;
}

/* ---- Samples --------------------------------------------------------------------------------- */

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

	if (d->packing != NO_DOCUMENTS)
		return (size_t)permute(k % d->windows, d->windows, key);
	return start + d->context * permute(k % d->windows, d->windows, key);
}

size_t data_validation(const struct data *d, uint64_t w)
{
	uint64_t all = (d->len - d->ntrain - 1) / d->context;

	if (d->packing != NO_DOCUMENTS)
		return d->windows +
		       (size_t)(w * (d->documents.nwindows - d->windows) / d->validation);
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
	/* Of documents also what counts, and where windows are. */
	for (size_t i = 0; i < d->documents.ntokens; i++)
		sum = d->documents.counted[i] ? sum : make_key(sum, i);
	for (size_t i = 0; i < d->documents.nwindows; i++)
		sum = make_key(sum, d->documents.cuts[d->documents.windows[i]].first);
	return sum;
}
