/* Loops over one complex type, whose parts are of type T, named PART; types.h includes it once for
 * each. No include guard. */

LOOP void FN(sum)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	PASTE_EXPANDED(sum, PART)(out, in, own, 2 * n, s);
}

LOOP void FN(sum_scaled)(void *out, const void *in, const void *own, size_t n,
			 const union ko_scalar *s)
{
	PASTE_EXPANDED(sum_scaled, PART)(out, in, own, 2 * n, s);
}

LOOP void FN(scale)(void *out, const void *src, size_t n, const union ko_scalar *s)
{
	PASTE_EXPANDED(scale, PART)(out, src, 2 * n, s);
}

/* A block at a time, first products and then sums: of one loop with both, gcc 12 makes fused
 * multiply-adds for AVX-512, whatever -ffp-contract says. */
KO_INLINE void FN(prod_block)(T *c, const T *a, const T *b, size_t n)
{
	T real[2][BLOCK], imaginary[2][BLOCK];

	ELEMENTWISE
	for (size_t i = 0; i < n; i++) {
		real[0][i] = a[2 * i] * b[2 * i];
		real[1][i] = a[2 * i + 1] * b[2 * i + 1];
		imaginary[0][i] = a[2 * i] * b[2 * i + 1];
		imaginary[1][i] = a[2 * i + 1] * b[2 * i];
	}
	ELEMENTWISE
	for (size_t i = 0; i < n; i++) {
		c[2 * i] = real[0][i] - real[1][i];
		c[2 * i + 1] = imaginary[0][i] + imaginary[1][i];
	}
}

LOOP void FN(prod)(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s)
{
	const T *a = (const T *)in, *b = (const T *)own;
	T *c = (T *)out;
	size_t i = 0;

	(void)s;
	for (; n - i >= BLOCK; i += BLOCK)
		FN(prod_block)(c + 2 * i, a + 2 * i, b + 2 * i, BLOCK);
	FN(prod_block)(c + 2 * i, a + 2 * i, b + 2 * i, n - i);
}

#undef T
#undef PART
#undef NAME
