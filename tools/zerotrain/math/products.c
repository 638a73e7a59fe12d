/* Matrix products by CBLAS. */
#include "tools/zerotrain/math/products.h"

#include <cblas.h>

#ifdef ZEROTRAIN_F64
#define GEMM cblas_dgemm
#define GEMV cblas_dgemv
#else
#define GEMM cblas_sgemm
#define GEMV cblas_sgemv
#endif

/* One row, as of a text that grows: b is read once, where a product of matrices would copy it. */
static void multiply_row(size_t n, size_t k, real factor, struct matrix a, struct matrix b,
			 real keep, real *c)
{
	int step = a.turned ? (int)a.stride : 1;

	if (b.turned)
		GEMV(CblasRowMajor, CblasNoTrans, (int)n, (int)k, factor, b.at, (int)b.stride, a.at,
		     step, keep, c, 1);
	else
		GEMV(CblasRowMajor, CblasTrans, (int)k, (int)n, factor, b.at, (int)b.stride, a.at,
		     step, keep, c, 1);
}

void multiply(size_t m, size_t n, size_t k, real factor, struct matrix a, struct matrix b,
	      real keep, real *c, size_t stride)
{
	if (m == 1) {
		multiply_row(n, k, factor, a, b, keep, c);
		return;
	}
	GEMM(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans,
	     b.turned ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, factor, a.at,
	     (int)a.stride, b.at, (int)b.stride, keep, c, (int)stride);
}

void use_one_thread(void)
{
	openblas_set_num_threads(1);
}

const char *product_kernels(void)
{
	return openblas_get_corename();
}
