/* Generates text with the model. */
#include "tools/common/tool.h"
#include "tools/zerotrain/model/random.h"
#include "tools/zerotrain/run.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

/* ---- Choosing -------------------------------------------------------------------------------- */

/* A byte, and how likely it is. */
struct share {
	double share;
	int byte;
};

/* Likely ones first, and of equal ones the lower byte. */
static int compare_shares(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	return x->share == y->share ? x->byte - y->byte : x->share < y->share ? 1 : -1;
}

/* How many of the likeliest bytes remain: the top k of them, and of these the fewest that have a
 * part p of their shares. */
static int count_top(const struct options *o, const struct share sorted[VALUES])
{
	int n = o->top_k && o->top_k < VALUES ? o->top_k : VALUES, kept = 0;
	double sum = 0, some = 0;

	for (int i = 0; i < n; i++)
		sum += sorted[i].share;
	while (kept < n && (kept == 0 || some < o->top_p * sum))
		some += sorted[kept++].share;
	return o->top_p < 1 ? kept : n;
}

/* Draws a byte by its share, the softmax of logits / temperature: below 1 likely bytes become
 * likelier, at 0 the likeliest is taken. */
static uint8_t choose_byte(const struct options *o, const real *logits, double uniform)
{
	double shares[VALUES] = { 0 }, sum = 0, left;
	struct share sorted[VALUES];
	int i = 0, n;

	for (int k = 0; k < VALUES; k++)
		sorted[k] = (struct share){ (double)logits[k], k };
	qsort(sorted, VALUES, sizeof(*sorted), compare_shares);
	if (o->temperature == 0)
		return (uint8_t)sorted[0].byte;
	for (int k = VALUES; k-- > 0;)
		sorted[k].share = exp((sorted[k].share - sorted[0].share) / o->temperature);
	n = count_top(o, sorted);
	for (int k = 0; k < n; k++)
		shares[sorted[k].byte] = sorted[k].share;
	for (int k = 0; k < VALUES; k++)
		sum += shares[k];
	for (left = uniform * sum - shares[0]; left > 0 && i < VALUES - 1; left -= shares[++i])
		;
	return (uint8_t)i;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Without --prompt a text goes on after the first byte of the data, which the model has seen,
 * whatever it is. */
static int begin_texts(const struct run *r, struct text *texts, size_t *prompt)
{
	const struct options *o = r->options;
	const uint8_t *bytes = o->prompt ? (const uint8_t *)o->prompt : r->data.bytes;

	*prompt = o->prompt ? strlen(o->prompt) : 1;
	for (int i = 0; i < o->samples; i++) {
		texts[i].bytes = malloc(*prompt + (size_t)o->sample);
		if (!texts[i].bytes)
			return kolo_error_set(KOLO_ENOMEM, "%d texts of %d bytes: out of memory",
					      o->samples, o->sample);
		memcpy(texts[i].bytes, bytes, *prompt);
		texts[i].len = *prompt;
	}
	return 0;
}

/* All ranks compute the same bytes, since at stage 3 they need each other's weights. These are
 * gathered once. */
static int grow_texts(struct run *r, struct text *texts, real *logits)
{
	const struct options *o = r->options;
	long seed = o->sample_seed == UNSET ? o->seed : o->sample_seed;
	uint64_t key = make_key((uint64_t)seed, 0x73616d70);
	int rc = weights_hold(&r->engine), released;

	for (int at = 1; rc == 0 && at <= o->sample; at++) {
		rc = predict(r, texts, logits);
		for (int i = 0; rc == 0 && i < o->samples; i++) {
			uint64_t of_text = i ? make_key(key, (uint64_t)i) : key;

			texts[i].bytes[texts[i].len++] =
				choose_byte(o, logits + (size_t)i * VALUES,
					    draw_uniform(of_text, (uint64_t)at));
		}
	}
	released = rc == 0 ? weights_release(&r->engine) : 0;
	return rc ? rc : released;
}

/* As UTF-8; what is none, and what a terminal might obey, is a question mark. */
static void print_text(const uint8_t *text, size_t n)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	for (size_t at = 0; at < n;) {
		mbstate_t state = { 0 };
		wchar_t letter;
		size_t len = mbrtowc(&letter, (const char *)text + at, n - at, &state);
		bool good = len > 0 && len <= n - at &&
			    (iswprint((wint_t)letter) || letter == '\n' || letter == '\t');

		if (good)
			fwrite(text + at, 1, len, stdout);
		else
			putchar('?');
		at += good ? len : 1;
	}
}

static void print_texts(const struct run *r, const struct text *texts, size_t prompt)
{
	const struct options *o = r->options;
	size_t skipped = o->prompt ? 0 : prompt;

	for (int i = 0; i < o->samples; i++) {
		printf("\n");
		if (o->samples > 1)
			printf("text %d:\n", i + 1);
		print_text(texts[i].bytes + skipped, texts[i].len - skipped);
		printf("\n");
	}
}

int write_sample(struct run *r)
{
	size_t n = (size_t)r->options->samples, prompt = 0;
	struct text *texts = calloc(n, sizeof(*texts));
	real *logits = malloc(n * VALUES * sizeof(*logits));
	double began = tool_now_us();
	int rc = texts && logits ? begin_texts(r, texts, &prompt)
				 : kolo_error_set(KOLO_ENOMEM, "%zu texts: out of memory", n);

	if (rc == 0)
		rc = grow_texts(r, texts, logits);
	r->sampled_us += tool_now_us() - began;
	r->sampled += n * (uint64_t)r->options->sample;
	if (rc == 0 && r->rank == 0)
		print_texts(r, texts, prompt);
	for (size_t i = 0; texts && i < n; i++)
		free(texts[i].bytes);
	free(texts);
	free(logits);
	return rc < 0 ? engine_failed(r->comm, "--sample", rc) : EXIT_GOOD;
}
