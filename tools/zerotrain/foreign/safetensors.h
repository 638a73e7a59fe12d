/* Files of safetensors: 8 bytes with the length of a header, the header as JSON, and the elements
 * of all tensors. */
#ifndef TOOLS_ZEROTRAIN_FOREIGN_SAFETENSORS_H
#define TOOLS_ZEROTRAIN_FOREIGN_SAFETENSORS_H

#include "kolo/kolo.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A file that is mapped. */
struct safetensors;

/* A tensor in it. Its elements may lie at any address. */
struct stored {
	enum kolo_type type; /* KOLO_F32, KOLO_F16 or KOLO_BF16 */
	const uint8_t *at;
	int ndims;
	size_t shape[2];
};

/* Opens a file. 0, or an exit status after a message. Give *out to safetensors_close, which accepts
 * NULL. */
int safetensors_open(const char *path, struct safetensors **out);
void safetensors_close(struct safetensors *file);

/* Finds a tensor. False: there is none of this name, or of a type or shape that a struct stored can
 * say. */
bool safetensors_find(const struct safetensors *file, const char *name, struct stored *out);

/* Its element number i. */
float safetensors_value(const struct stored *tensor, size_t i);

/* A tensor of a file to be written. */
struct described {
	char name[64];
	int ndims;
	size_t shape[2];
};

/* Writes the header of a file of floats. The elements of the n tensors follow in this order.
 * Returns 0, or a negative number if the file could not be written. */
int safetensors_begin(FILE *file, const struct described *tensors, int n);

#endif
