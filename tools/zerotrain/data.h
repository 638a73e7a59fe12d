/* The text: the tokens of a file, which are bytes, or 16-bit numbers with the low byte first. The
 * last tenth of them is for validation.
 *
 * Training reads windows of `context` tokens and the token after each. The windows of an epoch
 * touch, and do not overlap. The epoch's number draws where the first one begins, and their order.
 * Sample k, counted from the start of training over all ranks, is window k % windows of epoch k /
 * windows: a checkpoint needs k only. */
#ifndef TOOLS_ZEROTRAIN_DATA_H
#define TOOLS_ZEROTRAIN_DATA_H

#include "tools/zerotrain/math/real.h"

#include <stddef.h>

struct data {
	const uint8_t *bytes; /* mapped: `width` for each token */
	size_t width;
	size_t len, ntrain; /* tokens; [0, ntrain) are for training */
	size_t context;
	uint64_t windows;    /* of an epoch */
	uint64_t validation; /* windows of the others that are looked at, some 64 at most, evenly
				spread */
	uint64_t seed;
};

/* Opens a file of tokens of `width` 1 or 2, all of which must be below `values`. 0, or an exit
 * status after a message. data_close accepts one that was not opened. */
int data_open(const char *path, size_t width, int values, int context, uint64_t seed,
	      struct data *out);
void data_close(struct data *d);

/* Where sample k begins, and window w of the validation: `context` tokens, and the token after
 * each. */
size_t data_sample(const struct data *d, uint64_t k);
size_t data_validation(const struct data *d, uint64_t w);

/* Reads tokens [first, first + n). */
void data_read(const struct data *d, size_t first, size_t n, token *out);

/* A number that another text most probably has not. */
uint64_t data_fingerprint(const struct data *d);

#endif
