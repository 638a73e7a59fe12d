/* Byte-pair encoding as GPT-2 has it, of the files that such models ship: vocab.json numbers
 * tokens, merges.txt lists pairs that become one token, the most important first. */
#ifndef TOOLS_ZEROTRAIN_DATA_BPE_H
#define TOOLS_ZEROTRAIN_DATA_BPE_H

#include "tools/zerotrain/math/real.h"

#include <stdbool.h>
#include <stddef.h>

struct bpe;

/* Reads the two files of a folder. 0, or an exit status after a message. Give *out to bpe_close,
 * which accepts NULL, in both cases. */
int bpe_open(const char *folder, struct bpe **out);
void bpe_close(struct bpe *b);

/* One more than the largest number of a token. */
int bpe_values(const struct bpe *b);

/* The tokens of len bytes of UTF-8, which are at most len: out has room for them. Returns their
 * number; -1: out of memory; -2: no UTF-8, or no token, at byte *bad. */
long bpe_encode(struct bpe *b, const char *text, size_t len, token *out, size_t *bad);

/* The bytes of a token; none, if there is no token of this number. */
const char *bpe_bytes(const struct bpe *b, int number, size_t *len);

/* The number of the token that ends documents, <|endoftext|>; -1: there is none. */
int bpe_end(const struct bpe *b);

#endif
