/* Matrix products by CBLAS. */
#include "tools/zerotrain/model/products.h"

#include <cblas.h>

#ifdef ZEROTRAIN_F64
#define GEMM cblas_dgemm
#else
#define GEMM cblas_sgemm
#endif

void multiply(size_t m, size_t n, size_t k, real factor, struct matrix a, struct matrix b,
	      real keep, real *c, size_t stride)
{
	GEMM(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans,
	     b.turned ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, factor, a.at,
	     (int)a.stride, b.at, (int)b.stride, keep, c, (int)stride);
}

void use_one_thread(void)
{
	openblas_set_num_threads(1);
}
