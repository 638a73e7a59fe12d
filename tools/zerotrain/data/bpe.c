/* Byte-pair encoding. A pattern cuts text into words. Each word begins as one token for each byte.
 * Then the pair of neighbours that comes first in merges.txt becomes one token, again and again,
 * the left one of equal ones first.
 *
 * In both files a byte is written as a character: itself if it is printable, and otherwise one of
 * those from U+0100 on. */
#include "tools/zerotrain/data/bpe.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(KO_HAVE_PCRE2) && defined(KO_HAVE_JANSSON)
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

enum { MOST_VALUES = 1 << 16 };

/* Endings of English, letters, digits, other signs, each with the space before them; spaces but the
 * one before a word. */
static const char words[] =
	"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* A pair of tokens that becomes one. */
struct merge_pair {
	uint32_t pair; /* left << 16 | right */
	int32_t rank;  /* its line; -1: this place of the table is free */
	token result;
};

struct piece_of_text {
	char *bytes;
	size_t len;
};

struct bpe {
	struct piece_of_text *tokens; /* [values] */
	int values, end;
	int32_t of_byte[256];     /* -1: no token */
	struct merge_pair *table; /* [size], a power of two; by hash, the next free place */
	size_t size;
	pcre2_code *pattern;
	pcre2_match_data *match;
	/* A word, as it is merged: [room] */
	struct node *nodes;
	struct found *heap;
	size_t room;
};

/* ---- The table of pairs ---------------------------------------------------------------------- */

static struct merge_pair *look_up(const struct bpe *b, uint32_t pair)
{
	size_t i = (pair * 0x9e3779b1u) & (b->size - 1);

	while (b->table[i].rank >= 0 && b->table[i].pair != pair)
		i = (i + 1) & (b->size - 1);
	return &b->table[i];
}

static bool make_table(struct bpe *b, size_t lines)
{
	b->size = 16;
	while (b->size < 2 * lines)
		b->size *= 2;
	b->table = malloc(b->size * sizeof(*b->table));
	for (size_t i = 0; b->table && i < b->size; i++)
		b->table[i].rank = -1;
	return b->table != NULL;
}

/* ---- Characters that stand for bytes --------------------------------------------------------- */

static bool is_printable(int byte)
{
	return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
}

/* The byte that a character stands for; -1: none. */
static int byte_of(uint32_t character)
{
	int left = (int)character - 256;

	if (character < 256)
		return is_printable((int)character) ? (int)character : -1;
	for (int byte = 0; byte < 256; byte++)
		if (!is_printable(byte) && left-- == 0)
			return byte;
	return -1;
}

/* One character of UTF-8 that jansson has checked. */
static const char *read_character(const char *text, uint32_t *out)
{
	unsigned char first = (unsigned char)*text++;
	int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;

	*out = more ? first & (0x3fu >> more) : first;
	while (more--)
		*out = *out << 6 | ((unsigned char)*text++ & 0x3f);
	return text;
}

/* The bytes of a token. What does not stand for bytes, like a space or a letter of another script,
 * is itself; then *itself is true. */
static bool read_token(const char *key, struct piece_of_text *out, bool *itself)
{
	size_t len = strlen(key);
	uint32_t character;

	if (!(out->bytes = malloc(len + 1)))
		return false;
	out->len = 0;
	*itself = false;
	for (const char *at = key; *at;) {
		int byte;

		at = read_character(at, &character);
		if ((byte = byte_of(character)) < 0) {
			memcpy(out->bytes, key, len);
			out->len = len;
			*itself = true;
			return true;
		}
		out->bytes[out->len++] = (char)byte;
	}
	return true;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int refuse(const char *path, const char *why)
{
	fprintf(stderr, "zerotrain: %s: %s\n", path, why);
	return EXIT_WRONG;
}

/* A token of vocab.json. */
static int add_token(const char *path, const char *key, const json_t *value, struct bpe *b)
{
	json_int_t number = json_integer_value(value);
	struct piece_of_text *one;
	bool itself;

	if (!json_is_integer(value) || number < 0 || number >= MOST_VALUES)
		return refuse(path, "numbers of tokens must be from 0 to 65535");
	one = &b->tokens[number];
	if (one->bytes)
		return refuse(path, "two tokens have one number");
	if (!read_token(key, one, &itself))
		return refuse(path, "out of memory");
	if (one->len == 1 && !itself)
		b->of_byte[(unsigned char)*one->bytes] = (int32_t)number;
	if (number >= b->values)
		b->values = (int)number + 1;
	return EXIT_GOOD;
}

static int read_vocabulary(const char *path, json_t *vocabulary, struct bpe *b)
{
	const json_t *end = json_object_get(vocabulary, "<|endoftext|>");
	const char *key;
	json_t *value;
	int rc;

	if (!json_is_object(vocabulary))
		return refuse(path, "must be an object with the number of each token");
	b->tokens = calloc(MOST_VALUES, sizeof(*b->tokens));
	if (!b->tokens)
		return refuse(path, "out of memory");
	for (int byte = 0; byte < 256; byte++)
		b->of_byte[byte] = -1;
	json_object_foreach(vocabulary, key,
			    value) if ((rc = add_token(path, key, value, b))) return rc;
	b->end = end ? (int)json_integer_value(end) : -1;
	return EXIT_GOOD;
}

/* The number of a token that a line of merges.txt has. False: there is none. */
static bool find_number(const json_t *vocabulary, const char *text, uint32_t *out)
{
	const json_t *value = json_object_get(vocabulary, text);

	*out = (uint32_t)json_integer_value(value);
	return value != NULL;
}

/* "left right", without the end of the line. False: it is something else. */
static bool read_pair(const json_t *vocabulary, char *line, int32_t rank, struct merge_pair *out)
{
	char *space = strchr(line, ' ');
	uint32_t left, right, both;

	if (!space || !find_number(vocabulary, space + 1, &right))
		return false;
	*space = '\0';
	if (!find_number(vocabulary, line, &left))
		return false;
	memmove(space, space + 1, strlen(space + 1) + 1);
	if (!find_number(vocabulary, line, &both))
		return false;
	*out = (struct merge_pair){ left << 16 | right, rank, (token)both };
	return true;
}

static int refuse_line(const char *path, int number)
{
	fprintf(stderr,
		"zerotrain: %s: line %d: must be two tokens of vocab.json, which also has both as one\n",
		path, number);
	return EXIT_WRONG;
}

static int read_merges(const char *path, const json_t *vocabulary, struct bpe *b)
{
	FILE *f = fopen(path, "re");
	struct merge_pair pair;
	char *line = NULL;
	size_t room = 0;
	int32_t rank = 0;
	int rc = EXIT_GOOD;

	if (!f)
		return refuse(path, strerror(errno));
	if (!make_table(b, MOST_VALUES))
		rc = refuse(path, "out of memory");
	for (int number = 1; rc == EXIT_GOOD && getline(&line, &room, f) > 0; number++) {
		line[strcspn(line, "\r\n")] = '\0';
		if (!*line || (rank == 0 && strncmp(line, "#version", 8) == 0))
			continue;
		if (rank >= MOST_VALUES || !read_pair(vocabulary, line, rank++, &pair))
			rc = refuse_line(path, number);
		else if (look_up(b, pair.pair)->rank < 0)
			*look_up(b, pair.pair) = pair;
	}
	if (rc == EXIT_GOOD && ferror(f))
		rc = refuse(path, strerror(errno));
	free(line);
	fclose(f);
	return rc;
}

static int compile_pattern(struct bpe *b)
{
	int error;
	PCRE2_SIZE at;

	b->pattern = pcre2_compile((PCRE2_SPTR)words, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
				   &error, &at, NULL);
	if (b->pattern)
		b->match = pcre2_match_data_create(1, NULL);
	if (!b->match)
		return refuse("vocab.json", "out of memory");
	pcre2_jit_compile(b->pattern, PCRE2_JIT_COMPLETE); /* without it, it is slower */
	return EXIT_GOOD;
}

int bpe_open(const char *folder, struct bpe **out)
{
	struct bpe *b = *out = calloc(1, sizeof(*b));
	json_error_t error;
	json_t *vocabulary;
	char path[4096];
	int rc;

	snprintf(path, sizeof(path), "%s/vocab.json", folder);
	if (!b)
		return refuse(path, "out of memory");
	if (access(path, R_OK) < 0)
		return refuse(path, strerror(errno));
	if (!(vocabulary = json_load_file(path, 0, &error)))
		return refuse(path, error.text);
	rc = read_vocabulary(path, vocabulary, b);
	snprintf(path, sizeof(path), "%s/merges.txt", folder);
	if (rc == EXIT_GOOD)
		rc = read_merges(path, vocabulary, b);
	json_decref(vocabulary);
	return rc ? rc : compile_pattern(b);
}

void bpe_close(struct bpe *b)
{
	if (!b)
		return;
	for (int i = 0; b->tokens && i < MOST_VALUES; i++)
		free(b->tokens[i].bytes);
	free(b->tokens);
	free(b->table);
	free(b->nodes);
	free(b->heap);
	pcre2_match_data_free(b->match);
	pcre2_code_free(b->pattern);
	free(b);
}

/* ---- A word ---------------------------------------------------------------------------------- */

/* A token of the word; those that were merged into the one before them have no token. */
struct node {
	int32_t token;  /* -1: merged */
	int next, prev; /* -1: none */
};

/* A pair that can be merged: `at` and the node after it. It is out of date if their tokens are
 * others by now. */
struct found {
	int32_t rank;
	int at;
	uint32_t pair;
};

struct heap {
	struct found *at;
	size_t n;
};

static bool comes_before(const struct found *a, const struct found *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct heap *h, struct found one)
{
	size_t i = h->n++;

	for (; i > 0 && comes_before(&one, &h->at[(i - 1) / 2]); i = (i - 1) / 2)
		h->at[i] = h->at[(i - 1) / 2];
	h->at[i] = one;
}

static struct found pop(struct heap *h)
{
	struct found top = h->at[0], last = h->at[--h->n];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < h->n) {
		if (child + 1 < h->n && comes_before(&h->at[child + 1], &h->at[child]))
			child++;
		if (!comes_before(&h->at[child], &last))
			break;
		h->at[i] = h->at[child];
		i = child;
	}
	h->at[i] = last;
	return top;
}

static uint32_t pair_at(const struct bpe *b, int at)
{
	return (uint32_t)b->nodes[at].token << 16 | (uint32_t)b->nodes[b->nodes[at].next].token;
}

/* Notes the pair that begins with a node, if it is one. */
static void note(struct bpe *b, struct heap *h, int at)
{
	const struct merge_pair *p;

	if (at < 0 || b->nodes[at].next < 0)
		return;
	p = look_up(b, pair_at(b, at));
	if (p->rank >= 0)
		push(h, (struct found){ p->rank, at, p->pair });
}

static void join(struct bpe *b, struct heap *h, const struct found *f)
{
	struct node *left = &b->nodes[f->at], *right = &b->nodes[left->next];

	left->token = look_up(b, f->pair)->result;
	right->token = -1;
	left->next = right->next;
	if (left->next >= 0)
		b->nodes[left->next].prev = f->at;
	note(b, h, left->prev);
	note(b, h, f->at);
}

/* Each merge adds two pairs at most. */
static bool make_room(struct bpe *b, size_t len)
{
	if (len <= b->room)
		return true;
	free(b->nodes);
	free(b->heap);
	b->nodes = malloc(len * sizeof(*b->nodes));
	b->heap = malloc(3 * len * sizeof(*b->heap));
	b->room = b->nodes && b->heap ? len : 0;
	return b->room > 0;
}

/* -1: out of memory; -2: a byte at *bad has no token. */
static long encode_word(struct bpe *b, const char *text, size_t len, token *out, size_t *bad)
{
	struct heap h;
	long n = 0;

	if (!make_room(b, len))
		return -1;
	for (*bad = 0; *bad < len; (*bad)++)
		if (b->of_byte[(unsigned char)text[*bad]] < 0)
			return -2;
	h = (struct heap){ b->heap, 0 };
	for (int i = 0; i < (int)len; i++)
		b->nodes[i] = (struct node){ b->of_byte[(unsigned char)text[i]],
					     i + 1 < (int)len ? i + 1 : -1, i - 1 };
	for (int i = 0; i < (int)len; i++)
		note(b, &h, i);
	while (h.n > 0) {
		struct found f = pop(&h);

		if (b->nodes[f.at].token >= 0 && b->nodes[f.at].next >= 0 &&
		    pair_at(b, f.at) == f.pair)
			join(b, &h, &f);
	}
	for (int i = 0; i >= 0; i = b->nodes[i].next)
		out[n++] = (token)b->nodes[i].token;
	return n;
}

/* ---- A text ---------------------------------------------------------------------------------- */

long bpe_encode(struct bpe *b, const char *text, size_t len, token *out, size_t *bad)
{
	uint32_t options = 0; /* the first time it checks whether all is UTF-8 */
	long n = 0, more;

	*bad = 0;
	for (size_t at = 0; at < len; options = PCRE2_NO_UTF_CHECK) {
		int rc =
			pcre2_match(b->pattern, (PCRE2_SPTR)text, len, at, options, b->match, NULL);
		const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(b->match);

		if (rc < 0) {
			*bad = rc == PCRE2_ERROR_NOMATCH ? at : pcre2_get_startchar(b->match);
			return -2;
		}
		more = encode_word(b, text + ends[0], ends[1] - ends[0], out + n, bad);
		if (more < 0) {
			*bad += ends[0];
			return more;
		}
		n += more;
		at = ends[1];
	}
	return n;
}

int bpe_values(const struct bpe *b)
{
	return b->values;
}

int bpe_end(const struct bpe *b)
{
	return b->end;
}

const char *bpe_bytes(const struct bpe *b, int number, size_t *len)
{
	*len = number < b->values ? b->tokens[number].len : 0;
	return *len ? b->tokens[number].bytes : "";
}
#else
int bpe_open(const char *folder, struct bpe **out)
{
	*out = NULL;
	fprintf(stderr,
		"zerotrain: --bpe %s: this build has no tokenizer: it lacks the library pcre2 or jansson\n",
		folder);
	return EXIT_USAGE;
}

void bpe_close(struct bpe *b)
{
	(void)b;
}

int bpe_values(const struct bpe *b)
{
	(void)b;
	return 0;
}

int bpe_end(const struct bpe *b)
{
	(void)b;
	return -1;
}

long bpe_encode(struct bpe *b, const char *text, size_t len, token *out, size_t *bad)
{
	(void)b;
	(void)text;
	(void)len;
	(void)out;
	*bad = 0;
	return -1;
}

const char *bpe_bytes(const struct bpe *b, int number, size_t *len)
{
	(void)b;
	(void)number;
	*len = 0;
	return "";
}
#endif
