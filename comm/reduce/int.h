/* Loops over one integer type; types.h includes it once for each type. No include guard. */
#define FACTOR u64
#include "comm/reduce/arith.h"

LOOP void FN(min)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] < b[i] ? a[i] : b[i];
}

LOOP void FN(max)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] > b[i] ? a[i] : b[i];
}

LOOP void FN(band)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)(a[i] & b[i]);
}

LOOP void FN(bor)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)(a[i] | b[i]);
}

LOOP void FN(bxor)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)(a[i] ^ b[i]);
}

LOOP void FN(land)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((a[i] != 0) & (b[i] != 0));
}

LOOP void FN(lor)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((a[i] | b[i]) != 0);
}

LOOP void FN(lxor)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)((a[i] != 0) ^ (b[i] != 0));
}

LOOP void FN(truth)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)src;
	T *c = (T *)out;

	(void)s;
	ELEMENTWISE
	for (size_t i = 0; i < n; i++)
		c[i] = (T)(a[i] != 0);
}

/* Divides in the widest type: the divisor, a number of ranks, may be larger than T can hold. */
LOOP void FN(divide)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)src;
	W divisor = (W)s->u64;
	T *c = (T *)out;

	for (size_t i = 0; i < n; i++)
		c[i] = (T)((W)a[i] / divisor);
}

#undef T
#undef U
#undef W
#undef FACTOR
#undef NAME
