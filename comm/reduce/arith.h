/* Sums, products and scaling of a type that is computed in itself: integers in U, where they wrap;
 * f32 and f64 as they are. int.h and float.h include it. No include guard. */

LOOP void FN(sum)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] + (U)b[i]);
}

LOOP void FN(prod)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] * (U)b[i]);
}

LOOP void FN(sum_scaled)(void *out, const void *in, const void *own, size_t n,
			 const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	U factor = (U)s->FACTOR;
	T *c = (T *)out;

	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] + (U)((U)b[i] * factor));
}

LOOP void FN(scale)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)src;
	U factor = (U)s->FACTOR;
	T *c = (T *)out;

	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((U)a[i] * factor);
}
