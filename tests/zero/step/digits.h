/* KOLO_ZERO_WORK_DIGITS of one block, as kolo_zero_device.h defines it. */
#ifndef TESTS_ZERO_STEP_DIGITS_H
#define TESTS_ZERO_STEP_DIGITS_H

#include <math.h>
#include <stddef.h>

static inline void define_digits(const float *x, size_t n, double out[4])
{
	double most = 0;
	int k = -20;

	for (int l = 0; l < 4; l++)
		out[l] = 0;
	for (size_t i = 0; i < n; i++) {
		double square = (double)x[i] * (double)x[i];

		if (!isfinite(square)) {
			out[3] = 1000;
			return;
		}
		most = square > most ? square : most;
	}
	while (ldexp(1, 26 * (k + 1) - 300) <= 2 * most)
		k++;
	out[3] = most > 0 ? k : -1000;
	for (size_t i = 0; most > 0 && i < n; i++) {
		double rest = (double)x[i] * (double)x[i];

		for (int l = 0; l < 3; l++) {
			double unit = ldexp(1, 26 * (k - l) - 300), digit = nearbyint(rest / unit);

			rest -= digit * unit;
			out[l] += digit;
		}
	}
}

#endif
