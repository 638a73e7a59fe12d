/* See growth.h. */
#include "tests/tools/growth.h"
#include "tools/zerotrain/math/random.h"

#include <math.h>
#include <string.h>

enum { LAST = 1 };

size_t growth_values(const struct gpt *g)
{
	return (size_t)GPT_VALUES / (size_t)(g->sizes.tensor_size > 1 ? g->sizes.tensor_size : 1);
}

/* The next piece of text i, which has `done` places. */
static struct piece next_piece(const struct growth *texts, int i, const int done[GROWING])
{
	int at = done[i], count = at == 0 || at == PIECE - 3 ? 1 + 5 * i : 1;
	int end = (at / PIECE + 1) * PIECE;

	if (at == GPT_LONG || (i == 2 && done[0] < 7))
		count = 0;
	if (count > end - at)
		count = end - at;
	return (struct piece){ at, count, texts->text[i] + at };
}

static bool extend(struct gpt *g, const struct piece *pieces)
{
	static real middle[GPT_WIDE * GROWING * PIECE];

	return model_extend(g->model, 0, pieces, NULL, middle) == 0 &&
	       model_extend(g->model, LAST, pieces, middle, NULL) == 0 && g->in_use == 0;
}

bool growth_run(struct gpt *g, struct growth *out)
{
	int done[GROWING] = { 0 }, left = GROWING * GPT_LONG;

	memset(out, 0, sizeof(*out));
	for (int i = 0; i < GROWING; i++)
		for (int k = 0; k < GPT_LONG; k++)
			out->text[i][k] =
				(token)(draw_word(5, (uint32_t)(i * 100 + k)) % GPT_VALUES);
	while (left > 0) {
		struct piece pieces[GROWING];

		for (int i = 0; i < GROWING; i++)
			pieces[i] = next_piece(out, i, done);
		if (!extend(g, pieces))
			return false;
		for (int i = 0; i < GROWING; i++) {
			done[i] += pieces[i].count;
			left -= pieces[i].count;
			if (pieces[i].count)
				memcpy(out->logits[i][done[i] - 1], model_next(g->model, LAST, i),
				       growth_values(g) * sizeof(real));
		}
	}
	return true;
}

double growth_compare(struct gpt *g, const struct growth *grown, bool *same)
{
	static real middle[GPT_WIDE * GROWING * GPT_LONG];
	struct batch batch = { .count = GROWING, .length = GPT_LONG, .in = grown->text[0] };
	double worst = 0, largest = 0, loss;

	*same = true;
	if (model_forward(g->model, 0, 0, &batch, 1, NULL, middle, &loss) ||
	    model_forward(g->model, LAST, 0, &batch, 1, middle, NULL, &loss))
		return -1;
	for (int row = 0; row < GROWING * GPT_LONG; row++) {
		const real *want = model_logits(g->model, LAST, 0, (size_t)row);
		const real *got = grown->logits[row / GPT_LONG][row % GPT_LONG];

		if (got[0] == 0 && got[1] == 0)
			continue;
		*same = *same && memcmp(want, got, growth_values(g) * sizeof(*got)) == 0;
		for (size_t v = 0; v < growth_values(g); v++) {
			worst = fmax(worst, fabs((double)(want[v] - got[v])));
			largest = fmax(largest, fabs((double)want[v]));
		}
	}
	return largest > 0 ? worst / largest : -1;
}
