/* zerotrain's model with weights in plain arrays, in float or double
 * (tools/zerotrain/model/real.h). */
#ifndef TESTS_TOOLS_GPT_H
#define TESTS_TOOLS_GPT_H

#include "tools/zerotrain/model/model.h"

#include <stdbool.h>

enum { GPT_LAYERS = 3, GPT_DIM = 24, GPT_CONTEXT = 40, GPT_BATCH = 3, GPT_HEADS = 2 };

struct gpt {
	struct sizes sizes;
	struct kolo_tp *group;
	struct model *model;
	int ntensors;
	real **values, **gradients; /* [ntensors] */
	int *reports;               /* [ntensors] how often a gradient came */
	int in_use;                 /* tensors, now */
	uint8_t text[GPT_BATCH * GPT_CONTEXT + 1];
	uint64_t keys[GPT_BATCH];
};

/* Weights that are the same floats in both types, far from where training begins: there attention
 * is nearly even, and its gradients vanish. More places than attention takes at a time. */
struct gpt *gpt_open(int segment, double dropout);
void gpt_close(struct gpt *g);

/* The loss; NaN where a tensor was not released. */
double gpt_forward(struct gpt *g, double scale);

/* Fills gradients in. False: not each tensor's came once. */
bool gpt_backward(struct gpt *g);

#endif
