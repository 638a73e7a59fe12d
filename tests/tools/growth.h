/* Texts that grow in zerotrain's model, beside batches of the same texts, in float or double. */
#ifndef TESTS_TOOLS_GROWTH_H
#define TESTS_TOOLS_GROWTH_H

#include "tests/tools/gpt.h"

enum { GROWING = 3 };

/* What the growing texts are, and the logits [V / G] of each place that were asked for; others are
 * 0. */
struct growth {
	token text[GROWING][GPT_LONG];
	real logits[GROWING][GPT_LONG][GPT_VALUES];
};

/* The texts through both parts of a model of gpt_open_growing: text i has 5 i places at once where
 * it begins, and where it comes to the end of a piece; one begins later. False: something failed.
 */
bool growth_run(struct gpt *g, struct growth *out);

/* How far these logits are from those of a batch, relative to the largest; *same: they have the
 * same bits. Negative: something failed. */
double growth_compare(struct gpt *g, const struct growth *grown, bool *same);

/* The values that this rank has logits of. */
size_t growth_values(const struct gpt *g);

#endif
