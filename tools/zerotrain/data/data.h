/* The text: the tokens of a file, which are bytes, 16-bit numbers with the low byte first, or what
 * a tokenizer makes of it. It is one stream, or documents. The last tenth of it is for validation.
 *
 * Training reads windows of `context` tokens and the token after each. Of a stream, the windows of
 * an epoch touch, and do not overlap. The epoch's number draws where the first one begins, and
 * their order. Of documents, windows are always the same, and only their order is drawn. Sample k,
 * counted from the start of training over all ranks, is window k % windows of epoch k / windows: a
 * checkpoint needs k only. */
#ifndef TOOLS_ZEROTRAIN_DATA_DATA_H
#define TOOLS_ZEROTRAIN_DATA_DATA_H

#include "tools/zerotrain/data/documents.h"

struct data {
	const uint8_t *bytes; /* mapped: `width` for each token, */
	token *tokens;        /* or in memory */
	size_t width, mapped; /* bytes of the file */
	size_t len, ntrain;   /* tokens; of a stream [0, ntrain) are for training */
	size_t context;
	enum packing packing; /* NO_DOCUMENTS: a stream */
	struct documents documents;
	uint64_t windows;    /* of an epoch */
	uint64_t heard;      /* of documents: in how many of these the loss counts a token */
	uint64_t validation; /* windows of the others that are looked at, some 64 at most, evenly
				spread */
	uint64_t seed;
};

/* What is to be opened. */
struct source {
	const char *path; /* of JSON lines, if it ends in .jsonl */
	size_t width;     /* bytes of a token in the file; with a tokenizer 1 */
	int values;       /* all tokens are below it */
	int context;
	uint64_t seed;
	enum packing packing;
	struct tokenizer tokenizer; /* its end is that of documents */
};

/* Opens a file. 0, or an exit status after a message. Give *out to data_close in both cases; it
 * accepts zeros. */
int data_open(const struct source *source, struct data *out);
void data_close(struct data *d);

/* Whether documents are lines of JSON, by the name of the file. */
bool data_is_jsonl(const char *path);

/* The window of sample k, and window w of the validation. Of a stream it is where it begins. */
size_t data_sample(const struct data *d, uint64_t k);
size_t data_validation(const struct data *d, uint64_t w);

/* Reads tokens [first, first + n) of a stream. */
void data_read(const struct data *d, size_t first, size_t n, token *out);

/* A number that another text most probably has not. */
uint64_t data_fingerprint(const struct data *d);

#endif
