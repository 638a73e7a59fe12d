/* Texts that consist of documents, which do not see each other: cut into pieces that fit into a
 * context, and put into windows. */
#ifndef TOOLS_ZEROTRAIN_DATA_DOCUMENTS_H
#define TOOLS_ZEROTRAIN_DATA_DOCUMENTS_H

#include "tools/zerotrain/data/bpe.h"

#include <stdint.h>

/* How documents come into windows: as many of those that follow each other as fit, or one each. */
enum packing { NO_DOCUMENTS, PACKED, PADDED };

/* Tokens [first, first + n) of a document: n - 1 places, each with the token after it. */
struct cut {
	size_t first, n;
};

struct documents {
	token *tokens;           /* [ntokens] of all documents, each with its end */
	uint8_t *counted;        /* [ntokens] whether the loss counts the token */
	size_t ntokens, room, n; /* n documents */
	struct cut *cuts;
	size_t ncuts, cuts_room;
	size_t *windows; /* [nwindows + 1] the first cut of each */
	size_t nwindows;
};

/* How text becomes tokens: by bpe, or, if that is NULL, a token is a byte. `end` follows each
 * document. */
struct tokenizer {
	struct bpe *bpe;
	int end;
};

/* Tokens of a text: as many as it has bytes, at most. As bpe_encode. */
long tokenize(const struct tokenizer *t, const char *text, size_t len, token *out, size_t *bad);

/* Begins as zeros. documents_free accepts half of them. */
void documents_free(struct documents *d);

/* Adds tokens to the last document, and whether they count. False: out of memory. */
bool documents_add(struct documents *d, const token *tokens, size_t n, bool counted);

/* Ends the last document: cuts it for contexts of `context` tokens. False: out of memory. */
bool documents_end(struct documents *d, size_t first, size_t context);

/* Puts all documents into windows. False: out of memory. */
bool documents_pack(struct documents *d, enum packing packing, size_t context);

/* Whether the loss counts any token of a window. */
bool documents_count(const struct documents *d, size_t window);

/* A window: at each of `context` places a token, the one after it, whether that counts, and the
 * place where its document began. What is left over is token 0, does not count, and is a document
 * of its own. */
void documents_fill(const struct documents *d, size_t window, size_t context, token *in,
		    token *targets, uint8_t *counted, int32_t *begins);

/* Reads lines of JSON: {"text": T}, or {"prompt": P, "completion": C}, of which the loss counts the
 * completion (jsonl.c). 0, or an exit status after a message. */
int jsonl_read(const char *path, const struct tokenizer *t, size_t context, struct documents *out);

#endif
