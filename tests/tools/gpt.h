/* zerotrain's model with weights in plain arrays, in float or double
 * (tools/zerotrain/math/real.h). */
#ifndef TESTS_TOOLS_GPT_H
#define TESTS_TOOLS_GPT_H

#include "tools/zerotrain/model/model.h"

#include <stdbool.h>

enum {
	GPT_LAYERS = 3,
	GPT_DIM = 24,
	GPT_CONTEXT = 40,
	GPT_BATCH = 3,
	GPT_HEADS = 2,
	GPT_VALUES = 256
};
enum { GPT_WIDE = 32, GPT_LONG = 64 };

struct gpt {
	struct sizes sizes;
	struct kolo_tp *group;
	struct model *model;
	int ntensors;
	real **values, **gradients; /* [ntensors], [ntensors + 1] with the head's */
	int *reports;               /* [ntensors] how often a gradient came */
	int in_use;                 /* tensors, now */
	token text[GPT_BATCH * GPT_CONTEXT + 2];
	token part[2][GPT_BATCH * GPT_LONG]; /* of sequences that are divided: tokens, targets */
	uint64_t keys[GPT_BATCH];
	/* If `documents`: each sequence has some, and some tokens do not count */
	bool documents;
	uint8_t counted[GPT_BATCH * GPT_CONTEXT];
	int32_t begins[GPT_BATCH * GPT_CONTEXT];
};

/* Weights that are the same floats in both types, far from where training begins: there attention
 * is nearly even, and its gradients vanish. More places than attention takes at a time. `segments`
 * as in struct sizes. */
struct gpt *gpt_open(int segment, double dropout, int segments);
void gpt_close(struct gpt *g);

/* Divides the sequences of gpt_open and gpt_open_llama into documents. */
void gpt_divide(struct gpt *g);

/* A LLAMA with one head of keys for all queries; segment as above. */
struct gpt *gpt_open_llama(int segment, bool untied);

/* A wider one, of which this rank has its part of sequences of GPT_LONG tokens; comm NULL: whole
 * sequences, and spread UNSPREAD. near: its weights are those that training begins with. */
struct gpt *gpt_open_spread(struct kolo_comm *comm, enum kind kind, enum spread spread, bool near);

/* The first one, as two stages of a pipeline have it: two parts that keep two batches each,
 * backward in halves, the head's gradient apart. */
struct gpt *gpt_open_parts(void);

/* A wider one of two parts, with longer contexts, that texts grow in; over the ranks of a group, if
 * it is not NULL. A LLAMA has half as many heads of keys as of queries. near: its weights are those
 * that training begins with. */
struct gpt *gpt_open_growing(struct kolo_comm *group, enum kind kind, int segments, int texts,
			     bool near);

/* Forward and backward of two batches, in another order for each part: the text, and the text
 * without its first byte. Adds up both gradients, of BYTES with the head's. NaN: failed. Else the
 * sum of losses. */
double gpt_run_parts(struct gpt *g);

/* The loss of one of these batches, or of this rank's part; NaN where a tensor was not released. */
double gpt_forward(struct gpt *g, int number, double scale);

/* Fills gradients in. False: not each tensor's came once. */
bool gpt_backward(struct gpt *g);

#endif
