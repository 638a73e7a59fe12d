/* Generates text with the model. */
#include "tools/common/tool.h"
#include "tools/zerotrain/math/random.h"
#include "tools/zerotrain/run.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

/* ---- Choosing -------------------------------------------------------------------------------- */

/* A token, and how likely it is. */
struct share {
	double share;
	int token;
};

/* What drawing needs: the shares of all tokens, in their order, and, of those that remain, sorted.
 */
struct drawing {
	const struct options *options;
	int values;
	double *shares;
	struct share *sorted;
};

/* Likely ones first, and of equal ones the lower token. */
static int compare_shares(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	return x->share == y->share ? x->token - y->token : x->share < y->share ? 1 : -1;
}

static int likeliest(const real *logits, int values)
{
	int best = 0;

	for (int k = 1; k < values; k++)
		best = logits[k] > logits[best] ? k : best;
	return best;
}

/* Only the likeliest tokens keep their shares: the top k of them, and of these the fewest that have
 * a part p of all. */
static void keep_top(struct drawing *d)
{
	const struct options *o = d->options;
	int n = o->top_k && o->top_k < d->values ? o->top_k : d->values, kept = 0;
	double sum = 0, some = 0;

	for (int k = 0; k < d->values; k++)
		d->sorted[k] = (struct share){ d->shares[k], k };
	qsort(d->sorted, (size_t)d->values, sizeof(*d->sorted), compare_shares);
	for (int i = 0; i < n; i++)
		sum += d->sorted[i].share;
	while (kept < n && (kept == 0 || o->top_p >= 1 || some < o->top_p * sum))
		some += d->sorted[kept++].share;
	for (int i = kept; i < d->values; i++)
		d->shares[d->sorted[i].token] = 0;
}

/* Draws a token by its share, the softmax of logits / temperature: below 1 likely tokens become
 * likelier, at 0 the likeliest is taken. */
static token choose_token(struct drawing *d, const real *logits, double uniform)
{
	const struct options *o = d->options;
	int best = likeliest(logits, d->values), i = 0;
	double sum = 0, left;

	if (o->temperature == 0)
		return (token)best;
	for (int k = 0; k < d->values; k++)
		d->shares[k] = exp(((double)logits[k] - (double)logits[best]) / o->temperature);
	if (o->top_k || o->top_p < 1)
		keep_top(d);
	for (int k = 0; k < d->values; k++)
		sum += d->shares[k];
	for (left = uniform * sum - d->shares[0]; left > 0 && i < d->values - 1;
	     left -= d->shares[++i])
		;
	return (token)i;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Reads "1 22 3" into tokens. Negative: some are none. */
static long read_tokens(const char *text, int values, token *out)
{
	long n = 0;
	char *end;

	for (; *text; text = end) {
		unsigned long value = strtoul(text, &end, 10);

		if (end == text || value >= (unsigned long)values || (*end && *end != ' ') ||
		    strchr(text, '-'))
			return -1;
		out[n++] = (token)value;
	}
	return n;
}

/* The tokens that texts begin with, which are at most as many as the prompt has bytes. Without
 * --prompt it is the first token of the data, which the model has seen, whatever it is. Negative:
 * the prompt is none. */
static long read_prompt(const struct run *r, token *out)
{
	const struct options *o = r->options;
	const struct tokenizer tokenizer = { r->bpe, 0 };
	size_t bad;

	if (!o->prompt) {
		data_read(&r->data, 0, 1, out);
		return 1;
	}
	if (o->tokens && !r->bpe)
		return read_tokens(o->prompt, o->model.values, out);
	return tokenize(&tokenizer, o->prompt, strlen(o->prompt), out, &bad);
}

int check_prompt(const struct run *r)
{
	const char *prompt = r->options->prompt;
	token *tokens = prompt ? malloc((strlen(prompt) + 1) * sizeof(*tokens)) : NULL;
	long n = tokens ? read_prompt(r, tokens) : 1;

	for (long i = 0; tokens && i < n; i++)
		if (tokens[i] >= r->options->model.values)
			n = -1;
	free(tokens);
	if (n > 0)
		return EXIT_GOOD;
	if (r->bpe)
		fprintf(stderr,
			"zerotrain: --prompt %s: with --bpe it must be UTF-8 of bytes that this has\n",
			prompt);
	else
		fprintf(stderr,
			"zerotrain: --prompt %s: with --tokens it must be numbers below --vocab %d, with a space between them\n",
			prompt, r->options->model.values);
	return EXIT_USAGE;
}

static int begin_texts(const struct run *r, struct text *texts, size_t *prompt)
{
	const struct options *o = r->options;

	size_t most = o->prompt ? strlen(o->prompt) : 1;

	for (int i = 0; i < o->samples; i++) {
		texts[i].tokens = malloc((most + (size_t)o->sample) * sizeof(token));
		if (!texts[i].tokens)
			return kolo_error_set(KOLO_ENOMEM, "%d texts of %d tokens: out of memory",
					      o->samples, o->sample);
		*prompt = (size_t)read_prompt(r, texts[i].tokens);
		texts[i].len = *prompt;
	}
	return 0;
}

/* Draws a text's next token. What ends documents ends it. */
static void choose_next(const struct run *r, struct text *text, struct drawing *d,
			const real *logits, double uniform)
{
	token next = choose_token(d, logits, uniform);

	text->tokens[text->len++] = next;
	text->ended = next == r->end_token;
}

/* All ranks compute the same tokens, since at stage 3 they need each other's weights. These are
 * gathered once. */
static int grow_texts(struct run *r, struct text *texts, struct drawing *d, real *logits)
{
	const struct options *o = r->options;
	long seed = o->sample_seed == UNSET ? o->seed : o->sample_seed;
	uint64_t key = make_key((uint64_t)seed, 0x73616d70);
	int rc = weights_hold(&r->engine), growing = o->samples, released;

	for (int at = 1; rc == 0 && at <= o->sample && growing > 0; at++) {
		rc = predict(r, texts, logits);
		for (int i = 0; rc == 0 && i < o->samples; i++) {
			uint64_t of_text = i ? make_key(key, (uint64_t)i) : key;

			if (texts[i].ended)
				continue;
			choose_next(r, &texts[i], d, logits + (size_t)i * (size_t)d->values,
				    draw_uniform(of_text, (uint64_t)at));
			growing -= texts[i].ended;
			r->sampled++;
		}
	}
	released = rc == 0 ? weights_release(&r->engine) : 0;
	return rc ? rc : released;
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* As UTF-8; what is none, and what a terminal might obey, is a question mark. */
static void print_bytes(const char *text, size_t n)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	for (size_t at = 0; at < n;) {
		mbstate_t state = { 0 };
		wchar_t letter;
		size_t len = mbrtowc(&letter, text + at, n - at, &state);
		bool good = len > 0 && len <= n - at &&
			    (iswprint((wint_t)letter) || letter == '\n' || letter == '\t');

		if (good)
			fwrite(text + at, 1, len, stdout);
		else
			putchar('?');
		at += good ? len : 1;
	}
}

static void print_numbers(const token *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%s%d", i ? " " : "", text[i]);
}

/* The text that tokens stand for: bytes, or those that the tokenizer has for them. */
static int print_decoded(const struct run *r, const token *text, size_t n)
{
	char *bytes = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&bytes, &len);

	for (size_t i = 0; f && i < n; i++) {
		char byte = (char)text[i];
		size_t part = 1;
		const char *from = r->bpe ? bpe_bytes(r->bpe, text[i], &part) : &byte;

		fwrite(from, 1, part, f);
	}
	if (!f || fclose(f)) {
		free(bytes);
		return kolo_error_set(KOLO_ENOMEM, "a text of %zu tokens: out of memory", n);
	}
	print_bytes(bytes, len);
	free(bytes);
	return 0;
}

static int print_texts(const struct run *r, const struct text *texts, size_t prompt)
{
	const struct options *o = r->options;
	size_t skipped = o->prompt ? 0 : prompt;
	int rc = 0;

	for (int i = 0; rc == 0 && i < o->samples; i++) {
		const token *text = texts[i].tokens + skipped;
		size_t n = texts[i].len - skipped - texts[i].ended;

		printf("\n");
		if (o->samples > 1)
			printf("text %d:\n", i + 1);
		if (o->tokens && !r->bpe)
			print_numbers(text, n);
		else
			rc = print_decoded(r, text, n);
		printf("\n");
	}
	return rc;
}

/* Grows texts, and prints them. */
static int make_texts(struct run *r, struct text *texts, struct drawing *d, real *logits)
{
	size_t prompt = 0;
	int rc = begin_texts(r, texts, &prompt);

	if (rc == 0)
		rc = grow_texts(r, texts, d, logits);
	return rc == 0 && r->rank == 0 ? print_texts(r, texts, prompt) : rc;
}

int write_sample(struct run *r)
{
	size_t n = (size_t)r->options->samples, values = (size_t)r->options->model.values;
	struct text *texts = calloc(n, sizeof(*texts));
	real *logits = malloc(n * values * sizeof(*logits));
	struct drawing d = { r->options, (int)values, calloc(values, sizeof(*d.shares)),
			     calloc(values, sizeof(*d.sorted)) };
	double began = tool_now_us();
	int rc = texts && logits && d.shares && d.sorted
			 ? make_texts(r, texts, &d, logits)
			 : kolo_error_set(KOLO_ENOMEM, "%zu texts: out of memory", n);

	r->sampled_us += tool_now_us() - began;
	for (size_t i = 0; texts && i < n; i++)
		free(texts[i].tokens);
	free(texts);
	free(logits);
	free(d.shares);
	free(d.sorted);
	return rc < 0 ? engine_failed(r->comm, "--sample", rc) : EXIT_GOOD;
}
