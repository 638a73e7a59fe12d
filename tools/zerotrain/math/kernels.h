/* Which of OpenBLAS's kernels compute the products. */
#ifndef TOOLS_ZEROTRAIN_MATH_KERNELS_H
#define TOOLS_ZEROTRAIN_MATH_KERNELS_H

enum { KERNELS_TEXT = 160 };

/* OpenBLAS chooses its kernels when it is loaded, by the processor's model. If it does not know the
 * model it takes kernels that any processor can run. Then this sets OPENBLAS_CORETYPE for what the
 * processor has, and starts the program anew. Nothing may be open yet, and no thread started.
 * OpenBLAS's choice stays if the user has set that variable, or if it is faster by a quarter: all
 * ranks on equal processors must choose alike, so a small difference decides nothing. `said` is
 * what to print, without a newline; empty if OpenBLAS's choice stays. */
void choose_kernels(char **argv, char said[KERNELS_TEXT]);

#endif
