/* Minimum and maximum of pairs of a value and an index; types.h includes it once for each type of
 * pair. T: the pair. IS_NAN(x): is the value no number? No include guard. */

/* Of equal values the lower index. NaN is taken before all numbers, by both. */
KO_INLINE int FN(is_taken)(const T *a, const T *b, int less)
{
	int a_nan = IS_NAN(a->value), b_nan = IS_NAN(b->value);

	if (a_nan || b_nan ? a_nan && b_nan : a->value == b->value)
		return a->index <= b->index;
	if (a_nan || b_nan)
		return a_nan;
	return less ? a->value < b->value : a->value > b->value;
}

LOOP void FN(minloc)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	for (size_t i = 0; i < n; i++)
		c[i] = FN(is_taken)(&a[i], &b[i], 1) ? a[i] : b[i];
}

LOOP void FN(maxloc)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	for (size_t i = 0; i < n; i++)
		c[i] = FN(is_taken)(&a[i], &b[i], 0) ? a[i] : b[i];
}

#undef T
#undef IS_NAN
#undef NAME
