/* Cuts documents and packs them. */
#include "tools/zerotrain/data/documents.h"

#include <stdlib.h>
#include <string.h>

long tokenize(const struct tokenizer *t, const char *text, size_t len, token *out, size_t *bad)
{
	if (t->bpe)
		return bpe_encode(t->bpe, text, len, out, bad);
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)text[i];
	return (long)len;
}

void documents_free(struct documents *d)
{
	free(d->tokens);
	free(d->counted);
	free(d->cuts);
	free(d->windows);
	*d = (struct documents){ 0 };
}

/* Room for more of an array that grows twofold. */
static bool grow(void **array, size_t size, size_t n, size_t room)
{
	void *larger = n > room || !*array ? realloc(*array, (2 * n + 1) * size) : *array;

	if (larger)
		*array = larger;
	return larger != NULL;
}

bool documents_add(struct documents *d, const token *tokens, size_t n, bool counted)
{
	size_t all = d->ntokens + n;

	if (!grow((void **)&d->tokens, sizeof(*d->tokens), all, d->room) ||
	    !grow((void **)&d->counted, sizeof(*d->counted), all, d->room))
		return false;
	if (all > d->room)
		d->room = 2 * all;
	memcpy(d->tokens + d->ntokens, tokens, n * sizeof(*tokens));
	memset(d->counted + d->ntokens, counted, n);
	d->ntokens = all;
	return true;
}

/* Cuts share a token, so that each but the first is predicted once. */
bool documents_end(struct documents *d, size_t first, size_t context)
{
	d->n++;
	for (; d->ntokens - first > 1; first += context) {
		size_t n = d->ntokens - first < context + 1 ? d->ntokens - first : context + 1;

		if (!grow((void **)&d->cuts, sizeof(*d->cuts), d->ncuts + 1, d->cuts_room))
			return false;
		if (d->ncuts + 1 > d->cuts_room)
			d->cuts_room = 2 * (d->ncuts + 1);
		d->cuts[d->ncuts++] = (struct cut){ first, n };
		if (d->ntokens - first <= context + 1)
			break;
	}
	return true;
}

bool documents_count(const struct documents *d, size_t window)
{
	for (size_t i = d->windows[window]; i < d->windows[window + 1]; i++)
		for (size_t k = 1; k < d->cuts[i].n; k++)
			if (d->counted[d->cuts[i].first + k])
				return true;
	return false;
}

bool documents_pack(struct documents *d, enum packing packing, size_t context)
{
	size_t used = 0;

	d->windows = malloc((d->ncuts + 1) * sizeof(*d->windows));
	if (!d->windows)
		return false;
	for (size_t i = 0; i < d->ncuts; i++) {
		size_t n = d->cuts[i].n - 1;

		if (i == 0 || packing == PADDED || used + n > context) {
			d->windows[d->nwindows++] = i;
			used = 0;
		}
		used += n;
	}
	d->windows[d->nwindows] = d->ncuts;
	return true;
}

void documents_fill(const struct documents *d, size_t window, size_t context, token *in,
		    token *targets, uint8_t *counted, int32_t *begins)
{
	size_t t = 0;

	for (size_t i = d->windows[window]; i < d->windows[window + 1]; i++) {
		size_t first = d->cuts[i].first, n = d->cuts[i].n - 1;

		memcpy(in + t, d->tokens + first, n * sizeof(*in));
		memcpy(targets + t, d->tokens + first + 1, n * sizeof(*targets));
		memcpy(counted + t, d->counted + first + 1, n);
		for (size_t k = 0; k < n; k++)
			begins[t + k] = (int32_t)t;
		t += n;
	}
	memset(in + t, 0, (context - t) * sizeof(*in));
	memset(targets + t, 0, (context - t) * sizeof(*targets));
	memset(counted + t, 0, context - t);
	for (size_t k = t; k < context; k++)
		begins[k] = (int32_t)t;
}
