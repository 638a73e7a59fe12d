/* GPT-2 as transformers has it on disk: a folder with config.json and model.safetensors.
 * zerotrain's GPT has the same layers; names differ, and matrices are turned. */
#ifndef TOOLS_ZEROTRAIN_FOREIGN_GPT2_H
#define TOOLS_ZEROTRAIN_FOREIGN_GPT2_H

#include "tools/zerotrain/foreign/safetensors.h"
#include "tools/zerotrain/model/tensors.h"

/* A folder that was opened, with the sizes of its model. */
struct gpt2 {
	const char *folder;
	struct sizes sizes; /* layers, dim, heads, context and values */
	struct safetensors *file;
};

/* Reads the sizes, and checks that this GPT can be that model. 0, or an exit status after a
 * message. */
int gpt2_read_sizes(const char *folder, struct sizes *out);

/* Opens the weights of a model of these sizes, and checks that all tensors are there. 0, or an exit
 * status after a message. Give *out to gpt2_close in both cases. */
int gpt2_open(const char *folder, const struct sizes *sizes, struct gpt2 *out);
void gpt2_close(struct gpt2 *g);

/* Elements [first, first + n) of a rank's part of a tensor, as tensor_init gives them. */
void gpt2_values(const struct gpt2 *g, const struct sizes *part, int tensor, size_t first, size_t n,
		 float *out);

/* Makes the folder of a model, if it is not there, and checks that it can be written to. 0, or an
 * exit status after a message. */
int gpt2_make_folder(const char *folder);

/* Writes config.json into it, and the beginning of model.safetensors. *out is the open file for the
 * tensors, which gpt2_write writes in their order. 0, or an exit status after a message. */
int gpt2_create(const char *folder, const struct sizes *sizes, FILE **out);

/* Writes a whole tensor, whose elements are in the model's order. 0, or a negative number. */
int gpt2_write(FILE *file, const struct sizes *sizes, int tensor, const float *values);

#endif
