/* The kernels of collectives. They call the host's loops over elements (comm/reduce/types.h), a
 * few elements at a time. Loads and stores around them have 16 bytes if all pointers allow it.
 * Compiled without fused multiply-adds, so the bits are the host's. */
#define KO_INLINE static __device__ __forceinline__
#include "cuda/driver/kernel_args.h"

#include "comm/reduce/convert.h"

typedef int8_t any_i8;
typedef uint8_t any_u8;
typedef int16_t any_i16;
typedef uint16_t any_u16;
typedef int32_t any_i32;
typedef uint32_t any_u32;
typedef int64_t any_i64;
typedef uint64_t any_u64;
typedef float any_f32;
typedef double any_f64;

#define LOOP                 static __device__ __forceinline__
#define ELEMENTWISE          _Pragma("unroll")
#define PASTE(a, b)          a##_##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)
#define FN(verb)             PASTE_EXPANDED(verb, NAME)

enum { BLOCK = 8 };

#define CONVERSIONS(name, type)                                                                              \
	LOOP void widen_##name(float *out, const type *in)                                                   \
	{                                                                                                    \
		_Pragma("unroll") for (int i = 0; i < BLOCK; i++) out[i] = ko_float_of_##name(in[i]);        \
	}                                                                                                    \
	LOOP void narrow_##name(type *out, const float *in)                                                  \
	{                                                                                                    \
		_Pragma("unroll") for (int i = 0; i < BLOCK; i++) out[i] = ko_##name##_of_float(in[i]);      \
	}
CONVERSIONS(f16, uint16_t)
CONVERSIONS(bf16, uint16_t)
CONVERSIONS(f8e4m3, uint8_t)
CONVERSIONS(f8e5m2, uint8_t)

#include "comm/reduce/types.h"

/* ---- Vectors --------------------------------------------------------------------------------- */

enum { VECTOR = 16 };

static __device__ __forceinline__ bool is_aligned(const void *p, size_t unit)
{
	return (uintptr_t)p % unit == 0;
}

/* From an address of any alignment. */
template <typename T> static __device__ __forceinline__ void load_one(T *x, const void *from)
{
	if (is_aligned(from, sizeof(T))) {
		*x = *(const T *)from;
		return;
	}
#pragma unroll
	for (size_t i = 0; i < sizeof(T); i++)
		((unsigned char *)x)[i] = ((const unsigned char *)from)[i];
}

template <typename T> static __device__ __forceinline__ void store_one(void *to, const T *x)
{
	if (is_aligned(to, sizeof(T))) {
		*(T *)to = *x;
		return;
	}
#pragma unroll
	for (size_t i = 0; i < sizeof(T); i++)
		((unsigned char *)to)[i] = ((const unsigned char *)x)[i];
}

/* N elements: one, or as many as 16 bytes hold, which lie at a multiple of those. */
template <typename T, size_t N>
static __device__ __forceinline__ void load(T *x, const void *from, size_t first)
{
	if (N == 1)
		load_one<T>(x, (const T *)from + first);
	else
		*(uint4 *)x = *(const uint4 *)((const T *)from + first);
}

/* The compiler makes a store of each element otherwise, and to another GPU's memory each goes alone. */
static __device__ __forceinline__ void store_vector(void *to, const uint4 &x)
{
#ifdef __CUDA_ARCH__
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(x.x),
		     "r"(x.y), "r"(x.z), "r"(x.w)
		     : "memory");
#else
	*(uint4 *)to = x;
#endif
}

template <typename T, size_t N>
static __device__ __forceinline__ void store(void *to, size_t first, const T *x)
{
	if (N == 1)
		store_one<T>((T *)to + first, x);
	else
		store_vector((T *)to + first, *(const uint4 *)x);
}

/* ---- One kernel for each type and way -------------------------------------------------------- */

typedef void combine_fn(void *out, const void *in, const void *own, size_t n, const union ko_scalar *s);
typedef void fill_fn(void *out, const void *src, size_t n, const union ko_scalar *s);

/* Combines two or more places. The next place is loaded while two are combined. */
template <combine_fn *COMBINE, fill_fn *FIRST, fill_fn *LAST> struct combination {
	template <typename T, size_t N>
	static __device__ __forceinline__ void make(T *z, const struct ko_gpu_job &j, size_t first)
	{
		__align__(VECTOR) T x[N], y[N];

		load<T, N>(z, j.ins[0], first);
		load<T, N>(x, j.ins[1], first);
		if (j.scales)
			FIRST(z, z, N, &j.s);
		_Pragma("unroll 1") for (int k = 2;; k++)
		{
			if (k < j.nins)
				load<T, N>(y, j.ins[k], first);
			COMBINE(z, z, x, N, &j.s);
			if (k >= j.nins)
				break;
			memcpy(x, y, sizeof(x));
		}
		if (j.divides)
			LAST(z, z, N, &j.s);
	}
};

/* Reads one place. */
template <fill_fn *FILL> struct filling {
	template <typename T, size_t N>
	static __device__ __forceinline__ void make(T *z, const struct ko_gpu_job &j, size_t first)
	{
		load<T, N>(z, j.ins[0], first);
		FILL(z, z, N, &j.s);
	}
};

template <typename T, typename What, size_t N>
static __device__ __forceinline__ void do_some(const struct ko_gpu_job &j, size_t first)
{
	__align__(VECTOR) T z[N];

	What::template make<T, N>(z, j, first);
	_Pragma("unroll 1") for (int k = 0; k < j.nouts; k++)
		store<T, N>(j.outs[k], first, z);
}

/* Elements before the first that lies at a multiple of 16 bytes in all places; n: none does. */
template <typename T> static __device__ __forceinline__ size_t head_of(const struct ko_gpu_job &j)
{
	uintptr_t at = (uintptr_t)j.outs[0] % VECTOR;
	size_t head = (VECTOR - at) % VECTOR / sizeof(T);
	bool alike = at % sizeof(T) == 0;

	_Pragma("unroll 1") for (int k = 0; k < j.nins; k++)
		alike = alike && (uintptr_t)j.ins[k] % VECTOR == at;
	_Pragma("unroll 1") for (int k = 1; k < j.nouts; k++)
		alike = alike && (uintptr_t)j.outs[k] % VECTOR == at;
	return alike && head < j.n ? head : j.n;
}

/* Notes a flag in host memory, for all blocks of the next kernel. */
extern "C" __global__ void ko_note(const uint32_t *flag, uint32_t *noted)
{
	if (flag && *(const volatile uint32_t *)flag)
		*noted = 1;
}

/* Reads a flag: one thread of a block reads it for all. */
static __device__ __forceinline__ bool is_set(const uint32_t *flag)
{
	__shared__ uint32_t value;

	if (threadIdx.x == 0)
		value = *(const volatile uint32_t *)flag;
	__syncthreads();
	return value != 0;
}

/* Neighbouring threads do neighbouring elements, so that a warp makes few loads and stores, also of
 * single elements. */
template <typename T, typename What> static __device__ __forceinline__ void do_job(const struct ko_gpu_job &j)
{
	constexpr size_t N = VECTOR / sizeof(T);
	size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
	size_t head = head_of<T>(j), vectors = (j.n - head) / N;

	if (j.unless && is_set(j.unless))
		return;
	for (size_t k = thread; k < vectors; k += step)
		do_some<T, What, N>(j, head + k * N);
	/* The elements before them and after them. */
	for (size_t k = thread; k < j.n - vectors * N; k += step)
		do_some<T, What, 1>(j, k < head ? k : k + vectors * N);
}

#define KERNEL(name, type, ...)                                                                              \
	extern "C" __global__ void __launch_bounds__(256)                                                    \
		ko_##name(const __grid_constant__ struct ko_gpu_job j)                                       \
	{                                                                                                    \
		do_job<type, __VA_ARGS__>(j);                                                                \
	}

template <typename T>
static __device__ __forceinline__ void copy(void *out, const void *src, size_t n, const union ko_scalar *)
{
	memcpy(out, src, n * sizeof(T));
}

static __device__ __forceinline__ void nothing(void *, const void *, size_t, const union ko_scalar *)
{
}

#define INTEGERS(name, type)                                                                                 \
	KERNELS(name, type, divide_##name)                                                                   \
	KERNEL(band_##name, type, combination<band_##name, nothing, nothing>)                                \
	KERNEL(bor_##name, type, combination<bor_##name, nothing, nothing>)                                  \
	KERNEL(bxor_##name, type, combination<bxor_##name, nothing, nothing>)                                \
	KERNEL(land_##name, type, combination<land_##name, truth_##name, nothing>)                           \
	KERNEL(lor_##name, type, combination<lor_##name, truth_##name, nothing>)                             \
	KERNEL(lxor_##name, type, combination<lxor_##name, truth_##name, nothing>)                           \
	KERNEL(truth_##name, type, filling<truth_##name>)

#define KERNELS(name, type, divide)                                                                          \
	KERNEL(sum_##name, type, combination<sum_##name, nothing, divide>)                                   \
	KERNEL(prod_##name, type, combination<prod_##name, nothing, nothing>)                                \
	KERNEL(min_##name, type, combination<min_##name, nothing, nothing>)                                  \
	KERNEL(max_##name, type, combination<max_##name, nothing, nothing>)                                  \
	KERNEL(sum_scaled_##name, type, combination<sum_scaled_##name, scale_##name, nothing>)               \
	KERNEL(scale_##name, type, filling<scale_##name>)                                                    \
	KERNEL(copy_##name, type, filling<copy<type>>)

struct __align__(8) c64 {
	float real, imaginary;
};
struct __align__(16) c128 {
	double real, imaginary;
};

#define COMPLEXES(name, type)                                                                                \
	KERNEL(sum_##name, type, combination<sum_##name, nothing, nothing>)                                  \
	KERNEL(prod_##name, type, combination<prod_##name, nothing, nothing>)                                \
	KERNEL(sum_scaled_##name, type, combination<sum_scaled_##name, scale_##name, nothing>)               \
	KERNEL(scale_##name, type, filling<scale_##name>)                                                    \
	KERNEL(copy_##name, type, filling<copy<type>>)

#define PAIRS(name)                                                                                          \
	KERNEL(minloc_##name, struct pair_##name, combination<minloc_##name, nothing, nothing>)              \
	KERNEL(maxloc_##name, struct pair_##name, combination<maxloc_##name, nothing, nothing>)              \
	KERNEL(copy_##name, struct pair_##name, filling<copy<struct pair_##name>>)

INTEGERS(i8, int8_t)
INTEGERS(u8, uint8_t)
INTEGERS(i16, int16_t)
INTEGERS(u16, uint16_t)
INTEGERS(i32, int32_t)
INTEGERS(u32, uint32_t)
INTEGERS(i64, int64_t)
INTEGERS(u64, uint64_t)
KERNELS(f16, uint16_t, nothing)
KERNELS(bf16, uint16_t, nothing)
KERNELS(f32, float, nothing)
KERNELS(f64, double, nothing)
KERNELS(f8e4m3, uint8_t, nothing)
KERNELS(f8e5m2, uint8_t, nothing)
COMPLEXES(c64, struct c64)
COMPLEXES(c128, struct c128)
PAIRS(i32_i32)
PAIRS(i64_i32)
PAIRS(f32_i32)
PAIRS(f64_i32)
