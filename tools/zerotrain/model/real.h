/* The type that the model computes in: float, or double if a test compares gradients with finite
 * differences. */
#ifndef TOOLS_ZEROTRAIN_MODEL_REAL_H
#define TOOLS_ZEROTRAIN_MODEL_REAL_H

#ifdef ZEROTRAIN_F64
typedef double real;
#else
typedef float real;
#endif

#endif
