/* Minimum and maximum of one floating type, by its bits; types.h includes it once for each type. If
 * the bits below the sign of negative numbers are flipped, the bits are integers in the same order,
 * with -0 < +0. No include guard. */

KO_INLINE S FN(key)(T x)
{
	T sign = (T)((T)1 << (sizeof(T) * 8 - 1));

	return (S)(x & sign ? (T)(x ^ (T)(sign - 1)) : x);
}

KO_INLINE int FN(is_nan)(T x)
{
	T sign = (T)((T)1 << (sizeof(T) * 8 - 1));

	return (T)(x & (T)(sign - 1)) > (T)INF;
}

LOOP void FN(min)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++) {
		T less = FN(key)(a[i]) < FN(key)(b[i]) ? a[i] : b[i];

		less = FN(is_nan)(b[i]) ? b[i] : less;
		c[i] = FN(is_nan)(a[i]) ? a[i] : less;
	}
}

LOOP void FN(max)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++) {
		T more = FN(key)(a[i]) > FN(key)(b[i]) ? a[i] : b[i];

		more = FN(is_nan)(b[i]) ? b[i] : more;
		c[i] = FN(is_nan)(a[i]) ? a[i] : more;
	}
}

#undef T
#undef S
#undef INF
#undef NAME
