/* Loops over one 16- or 8-bit floating type; types.h includes it once for each type. A block is
 * widened to float, combined, and narrowed. So every addition rounds once to float and once to the
 * type. No include guard. */

/* x[i] = the partial result x[i] combined with this rank's element y[i]. */
KO_INLINE void FN(mix)(float *x, const float *y, enum ko_combine how, float factor)
{
	for (int i = 0; i < BLOCK; i++)
		x[i] = how == KO_PROD  ? x[i] * y[i]
		       : how == KO_SUM ? x[i] + y[i]
				       : x[i] + y[i] * factor;
}

KO_INLINE void FN(combine)(void *out, const void *in, const void *own, size_t n,
			   enum ko_combine how, float factor)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out, rest[2][BLOCK] = { { 0 } };
	float x[BLOCK], y[BLOCK];
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		FN(widen)(x, a + i);
		FN(widen)(y, b + i);
		FN(mix)(x, y, how, factor);
		FN(narrow)(c + i, x);
	}
	memcpy(rest[0], a + i, (n - i) * sizeof(T));
	memcpy(rest[1], b + i, (n - i) * sizeof(T));
	FN(widen)(x, rest[0]);
	FN(widen)(y, rest[1]);
	FN(mix)(x, y, how, factor);
	FN(narrow)(rest[0], x);
	memcpy(c + i, rest[0], (n - i) * sizeof(T));
}

LOOP void FN(sum)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	(void)s;
	FN(combine)(out, in, own, n, KO_SUM, 0);
}

LOOP void FN(prod)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	(void)s;
	FN(combine)(out, in, own, n, KO_PROD, 0);
}

LOOP void FN(sum_scaled)(void *out, const void *in, const void *own, size_t n,
			 const union ko_scalar *s)
{
	FN(combine)(out, in, own, n, KO_SUM_SCALED, s->f32);
}

LOOP void FN(scale)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)src;
	T *c = (T *)out, rest[BLOCK] = { 0 };
	float x[BLOCK];
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		FN(widen)(x, a + i);
		for (int k = 0; k < BLOCK; k++)
			x[k] *= s->f32;
		FN(narrow)(c + i, x);
	}
	memcpy(rest, a + i, (n - i) * sizeof(T));
	FN(widen)(x, rest);
	for (int k = 0; k < BLOCK; k++)
		x[k] *= s->f32;
	FN(narrow)(rest, x);
	memcpy(c + i, rest, (n - i) * sizeof(T));
}

/* Converts the type to float, times s. */
LOOP void FN(to_float)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)src;
	any_f32 *c = (any_f32 *)out;
	T rest[BLOCK] = { 0 };
	float x[BLOCK];
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		FN(widen)(x, a + i);
		for (int k = 0; k < BLOCK; k++)
			c[i + k] = x[k] * s->f32;
	}
	memcpy(rest, a + i, (n - i) * sizeof(T));
	FN(widen)(x, rest);
	for (size_t k = 0; k < n - i; k++)
		c[i + k] = x[k] * s->f32;
}

LOOP void FN(of_float)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	const any_f32 *a = (const any_f32 *)src;
	T *c = (T *)out, rest[BLOCK];
	float x[BLOCK] = { 0 };
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		for (int k = 0; k < BLOCK; k++)
			x[k] = a[i + k] * s->f32;
		FN(narrow)(c + i, x);
	}
	for (size_t k = 0; k < n - i; k++)
		x[k] = a[i + k] * s->f32;
	FN(narrow)(rest, x);
	memcpy(c + i, rest, (n - i) * sizeof(T));
}

#undef T
#undef NAME
