/* What transformers calls the tensors of a model, and how it has them: one of this model's may be
 * several of its. */
#ifndef TOOLS_ZEROTRAIN_FOREIGN_NAMES_H
#define TOOLS_ZEROTRAIN_FOREIGN_NAMES_H

#include "tools/zerotrain/foreign/safetensors.h"
#include "tools/zerotrain/model/tensors.h"

/* Its tensors that one of this model's is, 3 at most; 0 if this model has no such tensor. */
enum { MOST_PARTS = 3 };
int foreign_parts(const struct sizes *s, int tensor);

/* One of them, whole. */
struct described foreign_describe(const struct sizes *s, int tensor, int part);

/* Where element i of this model's whole tensor is there: in which of them, and where in it. `whole`
 * is the tensor's shape, by foreign_whole. */
struct spot {
	int part;
	size_t at;
};
struct tensor_shape foreign_whole(const struct sizes *s, int tensor);
struct spot foreign_locate(const struct sizes *s, int tensor, const struct tensor_shape *whole,
			   size_t i);

#endif
