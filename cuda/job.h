/* What a kernel is to do: in C for who asks for it, in C++ for the kernel itself. */
#ifndef KO_JOB_H
#define KO_JOB_H

#include "../comm/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* out[i] = also[i] = what becomes of in[i] and own[i]; one kernel. */
struct ko_gpu_job {
	void *out;
	void *also;      /* NULL: there is no second place */
	const void *in;  /* NULL: nothing came in: own[i] alone, copied, or multiplied by s */
	const void *own; /* NULL: in[i] alone, copied. out may be own */
	size_t n;
	enum kolo_type type;
	enum ko_combine how; /* with in and own */
	bool scales;         /* without in */
	bool divides;        /* the result of in and own, by s.u64 (integers) */
	union ko_scalar s;
};

#endif
