/* Models as transformers has them on disk: a folder with config.json and model.safetensors. GPT-2
 * and Llama have the layers of this model's two kinds. */
#ifndef TOOLS_ZEROTRAIN_FOREIGN_FOREIGN_H
#define TOOLS_ZEROTRAIN_FOREIGN_FOREIGN_H

#include "tools/zerotrain/foreign/names.h"

/* A folder that was opened, with the sizes of its model. */
struct foreign {
	const char *folder;
	struct sizes sizes; /* those that config.json has */
	struct safetensors *file;
};

/* What eps and theta may be, in config.json and as options. */
#define MOST_REAL  1e12
#define REAL_RANGE "must be a number above 0, below 1e12"

/* Reads the sizes, and checks that this model can be that one. 0, or an exit status after a
 * message. */
int foreign_read_sizes(const char *folder, struct sizes *out);

/* Writes config.json. 0, or a negative number with errno. */
int foreign_write_sizes(const char *folder, const struct sizes *sizes);

/* Opens the weights of a model of these sizes, and checks that all tensors are there. Its context
 * may be shorter than the file's. 0, or an exit status after a message. Give *out to foreign_close
 * in both cases. */
int foreign_open(const char *folder, const struct sizes *sizes, struct foreign *out);
void foreign_close(struct foreign *f);

/* Elements [first, first + n) of a rank's part of a tensor, as tensor_init gives them. */
void foreign_values(const struct foreign *f, const struct sizes *part, int tensor, size_t first,
		    size_t n, float *out);

/* Makes the folder of a model, if it is not there, and checks that it can be written to. 0, or an
 * exit status after a message. */
int foreign_make_folder(const char *folder);

/* Writes config.json into it, and the beginning of model.safetensors. *out is the open file for the
 * tensors, which foreign_write writes in their order. 0, or an exit status after a message. */
int foreign_create(const char *folder, const struct sizes *sizes, FILE **out);

/* Writes a whole tensor, whose elements are in the model's order. 0, or a negative number. */
int foreign_write(FILE *file, const struct sizes *sizes, int tensor, const float *values);

#endif
