/* Sums and products of a type as it is: integers in U, where they wrap, f32 and f64 in themselves. Included by
 * kernels_int.h and kernels_float.h; no include guard. */

static void FN(sum)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = in, *b = own;
	T *c = out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] + (U)b[i]);
}

static void FN(prod)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = in, *b = own;
	T *c = out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] * (U)b[i]);
}

static void FN(sum_scaled)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = in, *b = own;
	U factor = (U)s->FACTOR;
	T *c = out;

	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] + (U)((U)b[i] * factor));
}

static void FN(scale)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = src;
	U factor = (U)s->FACTOR;
	T *c = out;

	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] * factor);
}
