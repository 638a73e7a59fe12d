/* Knows the processor (best_products), and compares what OpenBLAS takes it for with what it has
 * (choose_kernels). */
#include "tools/zerotrain/math/kernels.h"

#include "tools/zerotrain/math/loops.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CORE   "OPENBLAS_CORETYPE"
#define BEFORE "ZEROTRAIN_KERNELS_BEFORE" /* from the start before: "Haswell 124.3" */

/* What OpenBLAS calls the processors whose kernels do without AVX-512. Others may be newer than
 * this list. */
static const struct {
	const char *name;
	enum level level;
} cores[] = {
	{ "Prescott", PLAIN },    { "Core2", PLAIN },     { "Penryn", PLAIN },
	{ "Dunnington", PLAIN },  { "Nehalem", PLAIN },   { "Atom", PLAIN },
	{ "Athlon", PLAIN },      { "Opteron", PLAIN },   { "Opteron_SSE3", PLAIN },
	{ "Barcelona", PLAIN },   { "Bobcat", PLAIN },    { "Nano", PLAIN },
	{ "Sandybridge", PLAIN }, { "Bulldozer", PLAIN }, { "Piledriver", PLAIN },
	{ "Steamroller", PLAIN }, { "Excavator", AVX2 },  { "Haswell", AVX2 },
	{ "Zen", AVX2 },
};

enum products best_products(void)
{
#ifdef KO_HAVE_X86_KERNELS
	if (has_onednn() && processor_level() == AVX512 && __builtin_cpu_is("intel"))
		return ONEDNN;
#endif
	return OPENBLAS;
}

static enum level level_of(const char *core)
{
	for (size_t k = 0; k < sizeof(cores) / sizeof(*cores); k++)
		if (strcmp(cores[k].name, core) == 0)
			return cores[k].level;
	return AVX512;
}

/* In 1e9 operations a second, of the fastest of some products; 0: no memory. */
static double product_speed(void)
{
	enum { N = 256, TIMES = 12 };
	real *abc = calloc(3, N * N * sizeof(*abc));
	const struct matrix a = { abc, N, false }, b = { abc + N * N, N, false };
	double least = 0;

	for (int k = 0; abc && k < TIMES; k++) {
		struct timespec begin, end;
		double took;

		clock_gettime(CLOCK_MONOTONIC, &begin);
		multiply(N, N, N, 1, a, b, 0, abc + (size_t)2 * N * N, N);
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (double)(end.tv_sec - begin.tv_sec) * 1e9 +
		       (double)(end.tv_nsec - begin.tv_nsec);
		least = k == 0 || took < least ? took : least;
	}
	free(abc);
	return least > 0 ? 2.0 * N * N * N / least : 0;
}

/* Executes this program again, by the path of its file: the process is named after it, and ps and
 * pkill know it. Returns only if it fails. */
static void execute_again(char **argv)
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (len > 0) {
		path[len] = 0;
		execv(path, argv);
	}
	execv("/proc/self/exe", argv); /* the file has been moved or deleted */
}

/* Returns only if it fails. `before` is empty if the choice is final. */
static void start_anew(char **argv, const char *core, const char *before)
{
	if (setenv(CORE, core, 1) == 0 && setenv(BEFORE, before, 1) == 0)
		execute_again(argv);
	unsetenv(CORE);
	unsetenv(BEFORE);
}

/* The program was started anew: `before` has the kernels of before, and their speed. */
static void judge(char **argv, const char *before, char said[KERNELS_TEXT])
{
	double speed = product_speed(), speed_before = 0;
	char core[32] = "";

	if (sscanf(before, "%31s %lf", core, &speed_before) != 2)
		return;
	if (speed < 0.8 * speed_before) {
		start_anew(argv, core, "");
		return;
	}
	snprintf(said, KERNELS_TEXT,
		 "OpenBLAS takes the processor for %s, %.0f GFLOP/s; with its kernels for %s: %.0f",
		 core, speed_before, product_kernels(), speed);
}

void choose_kernels(char **argv, char said[KERNELS_TEXT])
{
	static const char *const best[] = { [AVX2] = "Haswell", [AVX512] = "SkylakeX" };
	const char *set = getenv(CORE), *handed = getenv(BEFORE);
	enum level level = processor_level();
	char before[64];

	said[0] = 0;
	use_one_thread();
	if (handed) {
		snprintf(before, sizeof(before), "%s", handed);
		unsetenv(BEFORE);
		judge(argv, before, said);
		return;
	}
	if ((set && *set) || level_of(product_kernels()) >= level)
		return;
	snprintf(before, sizeof(before), "%s %.1f", product_kernels(), product_speed());
	start_anew(argv, best[level], before);
}
