/* Matrix products. products.c is the only file that includes CBLAS, which is that of OpenBLAS, and
 * oneDNN. */
#ifndef TOOLS_ZEROTRAIN_MATH_PRODUCTS_H
#define TOOLS_ZEROTRAIN_MATH_PRODUCTS_H

#include "tools/zerotrain/math/real.h"

#include <stdbool.h>
#include <stddef.h>

/* A factor: its rows are `stride` apart; turned, they are columns. */
struct matrix {
	const real *at;
	size_t stride;
	bool turned;
};

/* c [m, n] = factor a b + keep c. a is [m, k], or turned [k, m]. b is [k, n], or turned. Rows of c
 * are `stride` apart. */
void multiply(size_t m, size_t n, size_t k, real factor, struct matrix a, struct matrix b,
	      real keep, real *c, size_t stride);

/* Who computes products of matrices. Products of one row are always OpenBLAS's. */
enum products { OPENBLAS, ONEDNN };

/* Was oneDNN built in? It computes floats alone. */
bool has_onednn(void);

/* From now on it computes them. At first OpenBLAS does. */
void use_products(enum products products);

/* From now on the calling thread alone computes products. So their bits do not depend on the number
 * of cores. */
void use_one_thread(void);

/* OpenBLAS's name of the processor whose kernels it uses. */
const char *product_kernels(void);

#endif
