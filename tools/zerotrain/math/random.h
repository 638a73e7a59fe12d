/* Random numbers without state: each is a function of a key and a counter. So a run that is
 * resumed, a block that is computed twice and any number of ranks draw the same numbers. */
#ifndef TOOLS_ZEROTRAIN_MATH_RANDOM_H
#define TOOLS_ZEROTRAIN_MATH_RANDOM_H

#include <stdint.h>

/* 64 bits, each of which depends on all of x. */
static inline uint64_t mix_bits(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* A key from another one and a number: of a step, a layer, a tensor. */
static inline uint64_t make_key(uint64_t key, uint64_t number)
{
	return mix_bits(key ^ mix_bits(number));
}

/* Between 0 and 1, neither of them. */
static inline double draw_uniform(uint64_t key, uint64_t counter)
{
	return ((double)(make_key(key, counter) >> 12) + 0.5) / 4503599627370496.0;
}

/* Cheaper: 32 bits, in operations that vector units have. */
static inline uint32_t draw_word(uint64_t key, uint32_t counter)
{
	uint32_t x = counter * 0x9e3779b1u ^ (uint32_t)key;

	x = (x ^ x >> 16) * 0x85ebca6bu;
	x = (x ^ x >> 13) * 0xc2b2ae35u ^ (uint32_t)(key >> 32);
	x = (x ^ x >> 15) * 0x27d4eb2fu;
	return x ^ x >> 16;
}

#endif
