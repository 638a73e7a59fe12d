/* Who computes the products of matrices, and which of OpenBLAS's kernels. */
#ifndef TOOLS_ZEROTRAIN_MATH_KERNELS_H
#define TOOLS_ZEROTRAIN_MATH_KERNELS_H

#include "tools/zerotrain/math/products.h"

enum { KERNELS_TEXT = 160 };

/* By the processor alone, so that ranks on equal ones choose alike. oneDNN where it was measured to
 * be faster, Intel's processors with AVX-512 (perf/README.md), if it was built in. */
enum products best_products(void);

/* OpenBLAS chooses its kernels when it is loaded, by the processor's model. If it does not know the
 * model it takes kernels that any processor can run. Then this sets OPENBLAS_CORETYPE for what the
 * processor has, and starts the program anew. Nothing may be open yet, and no thread started.
 * OpenBLAS's choice stays if the user has set that variable, or if it is faster by a quarter: all
 * ranks on equal processors must choose alike, so a small difference decides nothing. `said` is
 * what to print, without a newline; empty if OpenBLAS's choice stays. */
void choose_kernels(char **argv, char said[KERNELS_TEXT]);

#endif
