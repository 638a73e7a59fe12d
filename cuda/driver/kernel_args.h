/* What a kernel is to do. The host reads this as C, the kernel itself as C++. */
#ifndef CUDA_DRIVER_KERNEL_ARGS_H
#define CUDA_DRIVER_KERNEL_ARGS_H

#include "comm/reduce/reduce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	KO_LAUNCHER_PLACES = 16
}; /* largest number of places that a kernel reads, and that it writes */

/* Computes n elements in one kernel: ins[0] combined with ins[1], the result with ins[2], and so
 * on. Every outs[k] gets the result. `scales` multiplies ins[0] by s first. `divides` divides the
 * result by s.u64 at the end (integers).
 *
 * With several ins `scales` goes with KO_SUM_SCALED, and `divides` with KO_SUM. An out may be the
 * same as an in; otherwise they don't overlap. */
struct ko_gpu_job {
	size_t n;
	enum kolo_type type;
	enum ko_combine how;
	bool scales, divides;
	int nins, nouts; /* at least 1 */
	union ko_scalar s;
	/* A flag in host memory: the kernel does nothing if it is not 0 when the kernel begins.
	 * NULL: no flag. Blocks would read it one after the other, so large kernels look at `noted`
	 * instead: a word in the GPU's memory that is 0, and 1 after a kernel has seen the flag. */
	const uint32_t *unless;
	uint32_t *noted;
	const void *ins[KO_LAUNCHER_PLACES];
	void *outs[KO_LAUNCHER_PLACES];
};

#endif
