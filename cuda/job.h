/* What a kernel is to do: in C for who asks for it, in C++ for the kernel itself. */
#ifndef KO_JOB_H
#define KO_JOB_H

#include "../comm/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KO_JOB_PLACES = 16 }; /* that a kernel reads, and writes, at most */

/* Each outs[k][i] = what becomes of ins[0][i], which is multiplied by s first with `scales`, when it is combined with ins[1][i],
 * and the result with ins[2][i], and so on; and divided by s.u64 (integers) at last with `divides`. One kernel. With several
 * ins `scales` goes with KO_SUM_SCALED, and `divides` with KO_SUM. Any out may be any in; otherwise they don't overlap. */
struct ko_gpu_job {
	size_t n;
	enum kolo_type type;
	enum ko_combine how;
	bool scales, divides;
	int nins, nouts; /* 1 at least */
	union ko_scalar s;
	const uint32_t *
		unless; /* nothing is done where this flag is not 0 when the kernel begins; NULL: there is none */
	const void *ins[KO_JOB_PLACES];
	void *outs[KO_JOB_PLACES];
};

#endif
