/* The sizes of the model: those of --import, or what was given, or the defaults. */
#include "tools/common/tool.h"
#include "tools/zerotrain/data/bpe.h"
#include "tools/zerotrain/foreign/foreign.h"
#include "tools/zerotrain/setup/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_PLACES = 1 << 16 };

/* A size that was not given is the one that was found, and with --import no other may be given. */
static void take_size(const struct options *o, const char *name, int found, int *given)
{
	if (*given == UNSET)
		*given = found;
	if (!o->import || *given == found)
		return;
	fprintf(stderr, "zerotrain: --%s %d: --import %s has %d: leave the option out\n", name,
		*given, o->import, found);
	exit(EXIT_USAGE);
}

static void take_number(const struct options *o, const char *name, double found, double *given)
{
	char text[32];

	if (isnan(*given))
		*given = found;
	snprintf(text, sizeof(text), "%g", *given);
	if (!(*given > 0 && *given < MOST_REAL))
		tool_refuse_option("zerotrain", name, text, REAL_RANGE);
	if (!o->import || *given == found)
		return;
	fprintf(stderr, "zerotrain: --%s %g: --import %s has %g: leave the option out\n", name,
		*given, o->import, found);
	exit(EXIT_USAGE);
}

/* That of a file may be shorter here. */
static void take_context(const struct options *o, int found, int *given)
{
	if (*given == UNSET)
		*given = found;
	if (*given <= MOST_PLACES && (!o->import || *given <= found))
		return;
	fprintf(stderr, "zerotrain: --context %d: must be at most %d%s%s\n", *given,
		o->import && found < MOST_PLACES ? found : MOST_PLACES,
		o->import ? ", with --import " : "", o->import ? o->import : "");
	exit(EXIT_USAGE);
}

/* 8/3 D has as many elements in three matrices as 4 D in two. */
static int usual_inner(const struct sizes *s)
{
	return s->kind == LLAMA ? (8 * s->dim / 3 + 31) / 32 * 32 : 4 * s->dim;
}

static void take_llama(const struct options *o, const struct sizes *found, struct sizes *s)
{
	const char *only = s->kv_heads != UNSET ? "kv-heads"
			   : s->untied          ? "untied"
			   : !isnan(s->theta)   ? "rope-theta"
						: NULL;

	if (s->kind != LLAMA && only) {
		fprintf(stderr, "zerotrain: --%s: needs --model llama\n", only);
		exit(EXIT_USAGE);
	}
	if (o->import && s->untied && !found->untied) {
		fprintf(stderr, "zerotrain: --untied: the head of --import %s is the embedding\n",
			o->import);
		exit(EXIT_USAGE);
	}
	s->untied = s->untied || found->untied;
	take_size(o, "kv-heads", o->import ? found->kv_heads : s->heads, &s->kv_heads);
	take_number(o, "rope-theta", o->import && s->kind == LLAMA ? found->theta : 10000,
		    &s->theta);
}

/* How many tokens there are: with a tokenizer its own, or more: in a file, or as --vocab says. */
static int count_tokens(const struct options *o, int found)
{
	struct bpe *bpe = NULL;
	int rc = bpe_open(o->bpe, &bpe), n = rc ? 0 : bpe_values(bpe);

	bpe_close(bpe);
	if (rc)
		exit(rc);
	if (!o->import && o->model.values != UNSET && o->model.values < n) {
		fprintf(stderr,
			"zerotrain: --vocab %d: --bpe %s has %d tokens: leave --vocab out\n",
			o->model.values, o->bpe, n);
		exit(EXIT_USAGE);
	}
	if (!o->import)
		return o->model.values != UNSET ? o->model.values : n;
	if (n > found) {
		fprintf(stderr,
			"zerotrain: --bpe %s has tokens up to %d, and --import %s those below %d: use the tokenizer that the model was made with\n",
			o->bpe, n - 1, o->import, found);
		exit(EXIT_USAGE);
	}
	return found;
}

static void check_values(const struct options *o)
{
	if (o->tokens ? o->model.values != UNSET : o->model.values == BYTE_VALUES)
		return;
	fprintf(stderr, "zerotrain: %s\n",
		o->tokens   ? "--tokens: needs --vocab V: how many there are"
		: o->import ? "--import: needs --tokens or --bpe: that model has others than bytes"
			    : "--vocab: needs --tokens or --bpe: bytes have 256 values");
	exit(EXIT_USAGE);
}

static void check_heads(const struct sizes *s)
{
	if (s->dim % s->heads)
		fprintf(stderr,
			"zerotrain: --dim %d must be a multiple of --heads %d: all heads have the same size\n",
			s->dim, s->heads);
	else if (s->heads % s->kv_heads)
		fprintf(stderr, "zerotrain: --kv-heads %d must divide --heads %d\n", s->kv_heads,
			s->heads);
	else if (s->kind == LLAMA && s->dim / s->heads % 2)
		fprintf(stderr,
			"zerotrain: --dim %d: its %d heads have %d elements each, and turns need pairs\n",
			s->dim, s->heads, s->dim / s->heads);
	else
		return;
	exit(EXIT_USAGE);
}

void sizes_take(struct options *o)
{
	struct sizes found = { .layers = 5,
			       .dim = 128,
			       .heads = 4,
			       .context = 128,
			       .values = BYTE_VALUES,
			       .eps = 1e-5 };
	struct sizes *s = &o->model;
	int rc = o->import ? foreign_read_sizes(o->import, &found) : EXIT_GOOD;

	if (rc)
		exit(rc);
	if (s->kind == (enum kind)UNSET)
		s->kind = found.kind;
	if (o->import && s->kind != found.kind) {
		fprintf(stderr,
			"zerotrain: --model: --import %s has the other kind: leave it out\n",
			o->import);
		exit(EXIT_USAGE);
	}
	take_size(o, "layers", found.layers, &s->layers);
	take_size(o, "dim", found.dim, &s->dim);
	take_size(o, "heads", found.heads, &s->heads);
	take_context(o, found.context, &s->context);
	/* Of tokens there is no usual number. */
	if (o->bpe)
		found.values = count_tokens(o, found.values);
	take_size(o, "vocab", o->tokens && !o->bpe && !o->import ? UNSET : found.values,
		  &s->values);
	take_size(o, "ffn", o->import ? found.inner : usual_inner(s), &s->inner);
	take_llama(o, &found, s);
	take_number(o, "norm-eps", found.eps, &s->eps);
	check_values(o);
	check_heads(s);
}

int segments_of(const struct options *o)
{
	int n = o->exact ? 8 : 0;

	while (n > 0 && o->model.kv_heads % n)
		n /= 2;
	return n;
}
