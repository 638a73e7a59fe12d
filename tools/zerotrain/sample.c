/* Generates text with the model. */
#include "tools/common/tool.h"
#include "tools/zerotrain/model/random.h"
#include "tools/zerotrain/run.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>
#include <wctype.h>

/* Draws a byte by its share. Shares are the softmax of logits / temperature: below 1 likely bytes
 * become likelier. */
static uint8_t choose_byte(const real *logits, double uniform)
{
	const double temperature = 0.8;
	double shares[VALUES], sum = 0, max = logits[0];
	int i = 0;

	for (int k = 1; k < VALUES; k++)
		max = fmax(max, (double)logits[k]);
	for (int k = 0; k < VALUES; k++)
		sum += shares[k] = exp(((double)logits[k] - max) / temperature);
	for (double left = uniform * sum - shares[0]; left > 0 && i < VALUES - 1;
	     left -= shares[++i])
		;
	return (uint8_t)i;
}

/* All ranks compute the same bytes, since at stage 3 they need each other's weights. They go on
 * after the text's first byte, which the model has seen, whatever the text is. */
static int choose_text(struct run *r, uint8_t *text, size_t n)
{
	uint64_t key = make_key((uint64_t)r->options->seed, 0x73616d70);
	real logits[VALUES];
	int rc = 0;

	text[0] = r->data.bytes[0];
	for (size_t at = 1; rc == 0 && at <= n; at++) {
		size_t length = at < r->data.context ? at : r->data.context;

		rc = predict(r, text + at - length, (int)length, logits);
		text[at] = choose_byte(logits, draw_uniform(key, at));
	}
	return rc;
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

int write_sample(struct run *r)
{
	size_t n = (size_t)r->options->sample;
	uint8_t *text = calloc(n + 1, 1);
	int rc = text ? choose_text(r, text, n) : kolo_error_set(KOLO_ENOMEM, "out of memory");

	if (rc == 0 && r->rank == 0) {
		printf("\n");
		print_text(text + 1, n);
		printf("\n");
	}
	free(text);
	return rc < 0 ? engine_failed(r->comm, "--sample", rc) : EXIT_GOOD;
}
