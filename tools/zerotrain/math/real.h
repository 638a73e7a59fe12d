/* The type that the model computes in: float, or double if a test compares gradients with finite
 * differences. And what a text is made of. */
#ifndef TOOLS_ZEROTRAIN_MATH_REAL_H
#define TOOLS_ZEROTRAIN_MATH_REAL_H

#include <stdint.h>

#ifdef ZEROTRAIN_F64
typedef double real;
#else
typedef float real;
#endif

typedef uint16_t token;

#endif
