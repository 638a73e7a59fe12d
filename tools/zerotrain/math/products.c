/* Matrix products by CBLAS and by oneDNN. */
#include "tools/zerotrain/math/products.h"

#include <cblas.h>
#if defined KO_HAVE_ONEDNN && !defined ZEROTRAIN_F64
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#define HAS_ONEDNN
#endif

#ifdef ZEROTRAIN_F64
#define GEMM cblas_dgemm
#define GEMV cblas_dgemv
#else
#define GEMM cblas_sgemm
#define GEMV cblas_sgemv
#endif

#ifdef HAS_ONEDNN
/* OpenMP's, where oneDNN has its threads from. Not every compiler here has its header. */
void omp_set_num_threads(int n);

static void multiply_by_onednn(size_t m, size_t n, size_t k, real factor, struct matrix a,
			       struct matrix b, real keep, real *c, size_t stride)
{
	dnnl_status_t status =
		dnnl_sgemm(a.turned ? 'T' : 'N', b.turned ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n,
			   (dnnl_dim_t)k, factor, a.at, (dnnl_dim_t)a.stride, b.at,
			   (dnnl_dim_t)b.stride, keep, c, (dnnl_dim_t)stride);

	if (status == dnnl_success)
		return;
	fprintf(stderr,
		"zerotrain: oneDNN's product of [%zu, %zu] and [%zu, %zu] ended with status %d%s\n",
		m, k, k, n, (int)status, status == dnnl_out_of_memory ? ": out of memory" : "");
	abort();
}
#endif

static enum products chosen = OPENBLAS;

bool has_onednn(void)
{
#ifdef HAS_ONEDNN
	return true;
#else
	return false;
#endif
}

void use_products(enum products products)
{
	chosen = products;
}

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
#ifdef HAS_ONEDNN
	if (chosen == ONEDNN) {
		multiply_by_onednn(m, n, k, factor, a, b, keep, c, stride);
		return;
	}
#endif
	GEMM(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans,
	     b.turned ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, factor, a.at,
	     (int)a.stride, b.at, (int)b.stride, keep, c, (int)stride);
}

void use_one_thread(void)
{
	openblas_set_num_threads(1);
#ifdef HAS_ONEDNN
	omp_set_num_threads(1);
#endif
}

const char *product_kernels(void)
{
	return openblas_get_corename();
}
