/* Loops over f32 and f64, which combine as they are; see kernels.c. No include guard. */

static void FN(sum)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = in, *b = own;
	T *c = out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] + b[i];
}

static void FN(prod)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = in, *b = own;
	T *c = out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] * b[i];
}

static void FN(sum_scaled)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = in, *b = own;
	T factor = s->NAME;
	T *c = out;

	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] + b[i] * factor;
}

static void FN(scale)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = src;
	T factor = s->NAME;
	T *c = out;

	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] * factor;
}

#undef T
#undef NAME
