/* The text: the bytes of a file. The last tenth of them is for validation.
 *
 * Training reads windows of `context` bytes and the byte after each. The windows of an epoch touch,
 * and do not overlap. The epoch's number draws where the first one begins, and their order. Sample
 * k, counted from the start of training over all ranks, is window k % windows of epoch k / windows:
 * a checkpoint needs k only. */
#ifndef TOOLS_ZEROTRAIN_DATA_H
#define TOOLS_ZEROTRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

struct data {
	const uint8_t *bytes; /* [len], mapped */
	size_t len, ntrain;   /* bytes [0, ntrain) are for training */
	size_t context;
	uint64_t windows;    /* of an epoch */
	uint64_t validation; /* windows of the others that are looked at, some 64 at most, evenly
				spread */
	uint64_t seed;
};

/* Opens a file. 0, or an exit status after a message. data_close accepts one that was not
 * opened. */
int data_open(const char *path, int context, uint64_t seed, struct data *out);
void data_close(struct data *d);

/* The beginning of sample k, and of window w of the validation: `context` bytes, and the byte after
 * each. */
const uint8_t *data_sample(const struct data *d, uint64_t k);
const uint8_t *data_validation(const struct data *d, uint64_t w);

/* A number that another text most probably has not. */
uint64_t data_fingerprint(const struct data *d);

#endif
