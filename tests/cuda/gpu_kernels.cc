/* The kernels of cuda/libcuda/kernels.cu as the host's C++ has them. */
#include "tests/cuda/gpu_host.h"

#include "cuda/libcuda/kernels.cu"

typedef void kernel_fn(const struct ko_gpu_job j);

#define ALL(name)                                                                                            \
	ko_scale_##name, ko_copy_##name, ko_sum_##name, ko_prod_##name, ko_min_##name, ko_max_##name,        \
		ko_sum_scaled_##name
#define FLOAT(name)                                                                                          \
	{                                                                                                    \
		ALL(name)                                                                                    \
	}
#define INTEGER(name)                                                                                        \
	{                                                                                                    \
		ALL(name), ko_band_##name, ko_bor_##name, ko_bxor_##name, ko_land_##name, ko_lor_##name,     \
			ko_lxor_##name, NULL, NULL, ko_truth_##name                                                      \
	}

#define COMPLEX(name)                                                                                        \
	{                                                                                                    \
		ko_scale_##name, ko_copy_##name, ko_sum_##name, ko_prod_##name, NULL, NULL,                  \
			ko_sum_scaled_##name                                                                 \
	}
#define PAIR(name)                                                                                           \
	{                                                                                                    \
		NULL, ko_copy_##name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,      \
			ko_minloc_##name, ko_maxloc_##name                                                   \
	}

/* By enum kolo_type; scale and copy, then by enum ko_combine, then truth. */
enum { SCALE, COPY, FIRST_WAY, TRUTH = FIRST_WAY + KO_NCOMBINES };
static kernel_fn *const kernels[][TRUTH + 1] = {
	INTEGER(i8), INTEGER(u8), INTEGER(i32), INTEGER(u32), INTEGER(i64), INTEGER(u64), FLOAT(f16),
	FLOAT(bf16), FLOAT(f32),  FLOAT(f64),   FLOAT(f8e4m3), FLOAT(f8e5m2), INTEGER(i16), INTEGER(u16),
	COMPLEX(c64), COMPLEX(c128), PAIR(i32_i32), PAIR(i64_i32), PAIR(f32_i32), PAIR(f64_i32),
};

extern "C" void t_note(const uint32_t *flag, uint32_t *noted)
{
	ko_note(flag, noted);
}

/* Launches the job's kernel. */
extern "C" void t_launch(const struct ko_gpu_job *j)
{
	int which = j->nins > 1 ? FIRST_WAY + j->how : COPY;

	if (j->nins == 1 && j->scales)
		which = ko_is_logical(j->how) ? TRUTH : SCALE;
	launch(kernels[j->type][which], *j);
}
