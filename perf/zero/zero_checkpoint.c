/* How fast a checkpoint goes to the disk and comes back beside dd, which writes and reads one file
 * of as many bytes: both until fsync has returned, both from a disk whose pages are in no cache.
 * Rounds of all four; the medians, and those of the rounds' ratios: above 1 the checkpoint is
 * faster. LAYERS bf16 tensors with AdamW: 12 bytes for each parameter.
 *
 * usage: ringrun -n N zero_checkpoint DIR [PARAMETERS [STAGE]] */
#include "perf/perf.h"

#include <kolo/kolo_zero_checkpoint.h>

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 50, ROUNDS = 7, PATH = 4096, MIB = 1 << 20 };

static const char *const files[] = { "weights.safetensors", "moment1.safetensors",
				     "moment2.safetensors" };

enum what { SAVE, DD_WRITE, LOAD, DD_READ, NWHAT };

static void check(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "zero_checkpoint: %s\n", kolo_last_error());
	exit(1);
}

static struct kolo_zero *create(struct kolo_comm *comm, size_t n, int stage)
{
	struct kolo_zero_tensor tensors[LAYERS];
	struct kolo_zero_config config;
	char names[LAYERS][16];
	struct kolo_zero *zero;

	kolo_zero_config_init(&config);
	config.stage = stage;
	for (int i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { n / LAYERS }, .ndims = 1, .type = KOLO_BF16
		};
	}
	check(kolo_zero_create(comm, &config, tensors, LAYERS, &zero));
	return zero;
}

/* One update, so that the moments are more than pages that were never written. */
static void update(struct kolo_zero *zero, size_t n)
{
	uint16_t *gradient = malloc(n / LAYERS * sizeof(*gradient));

	check(gradient ? kolo_zero_forward(zero, 1) : kolo_error_set(KOLO_ENOMEM, "out of memory"));
	for (size_t i = 0; i < n / LAYERS; i++)
		gradient[i] = (uint16_t)(0x3c00 + i % 500);
	for (int i = 0; i < LAYERS; i++) {
		check(kolo_zero_use(zero, i, NULL));
		check(kolo_zero_release(zero, i));
	}
	check(kolo_zero_backward(zero, 0));
	for (int i = LAYERS; i-- > 0;)
		check(kolo_zero_gradient(zero, i, gradient));
	check(kolo_zero_step(zero, NULL));
	free(gradient);
}

/* What was written is read from the disk next time. */
static void forget(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd >= 0 && (fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0))
		perror(path);
	if (fd >= 0)
		close(fd);
}

static void forget_checkpoint(const char *dir)
{
	char path[PATH + 64];

	for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
		snprintf(path, sizeof(path), "%s/step-000000001/%s", dir, files[f]);
		forget(path);
	}
}

static void run_dd(const char *from, const char *to, size_t mib)
{
	extern char **environ;
	char in[PATH + 8], out[PATH + 8], count[32];
	char *args[] = { "dd", in, out, "bs=4M", count, "conv=fsync", "status=none", NULL };
	int status;
	pid_t pid;

	snprintf(in, sizeof(in), "if=%s", from);
	snprintf(out, sizeof(out), "of=%s", to);
	snprintf(count, sizeof(count), "count=%zu", mib / 4);
	if (strcmp(to, "/dev/null") == 0)
		args[5] = "iflag=fullblock"; /* nothing to sync */
	if (posix_spawnp(&pid, "dd", NULL, NULL, args, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status)
		check(kolo_error_set(KOLO_ESYS, "dd %s %s failed", in, out));
}

/* What rank 0 does for dd, or all do. */
static void act(struct kolo_zero *zero, enum what what, const char *dir, size_t mib, bool root)
{
	char file[PATH];

	snprintf(file, sizeof(file), "%s/dd", dir);
	if (what == SAVE)
		check(kolo_zero_save(zero, dir, 1, NULL, 0));
	else if (what == LOAD)
		check(kolo_zero_load(zero, dir, KOLO_ZERO_LOAD_ALL, NULL, NULL));
	else if (root && what == DD_WRITE)
		run_dd("/dev/zero", file, mib);
	else if (root)
		run_dd(file, "/dev/null", mib);
	if (root && what == SAVE)
		forget_checkpoint(dir);
	if (root && what == DD_WRITE)
		forget(file);
}

static double measure(struct kolo_comm *comm, struct kolo_zero *zero, enum what what,
		      const char *dir, size_t mib)
{
	int64_t begin;

	check(kolo_barrier(comm, NULL));
	begin = ko_now_ns();
	act(zero, what, dir, mib, kolo_comm_rank(comm) == 0);
	check(kolo_barrier(comm, NULL));
	return (double)(ko_now_ns() - begin) * 1e-9;
}

static void report(double seconds[NWHAT][ROUNDS], size_t mib)
{
	static const char *const names[NWHAT] = { "save", "dd, writing", "load", "dd, reading" };
	double ratios[2][ROUNDS];

	for (int r = 0; r < ROUNDS; r++)
		for (int k = 0; k < 2; k++)
			ratios[k][r] = seconds[2 * k + 1][r] / seconds[2 * k][r];
	for (int w = 0; w < NWHAT; w++) {
		double s = perf_median(seconds[w], ROUNDS);

		printf("%-12s %7.2f s %8.0f MiB/s", names[w], s, (double)mib / s);
		if (w % 2)
			printf("   ratio %.2f", perf_median(ratios[w / 2], ROUNDS));
		printf("\n");
	}
}

int main(int argc, char **argv)
{
	size_t n = argc > 2 ? strtoul(argv[2], NULL, 10) : 200000000, mib = n * 12 / MIB;
	int stage = argc > 3 ? atoi(argv[3]) : 2;
	double seconds[NWHAT][ROUNDS];
	struct kolo_zero *zero;
	struct kolo_comm *comm;

	if (argc < 2 || strlen(argv[1]) > PATH / 2 || n < LAYERS) {
		fprintf(stderr, "usage: ringrun -n N zero_checkpoint DIR [PARAMETERS [STAGE]]\n");
		return 2;
	}
	check(kolo_comm_create(NULL, &comm));
	zero = create(comm, n, stage);
	update(zero, n);
	if (kolo_comm_rank(comm) == 0)
		printf("# %zu parameters, %zu MiB, %d ranks, stage %d, %s\n", n, mib,
		       kolo_comm_nranks(comm), stage, argv[1]);
	measure(comm, zero, SAVE, argv[1], mib); /* makes the directory */
	for (int r = 0; r < ROUNDS; r++)
		for (int w = 0; w < NWHAT; w++)
			seconds[w][r] = measure(comm, zero, (enum what)w, argv[1], mib);
	if (kolo_comm_rank(comm) == 0)
		report(seconds, mib);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	return 0;
}
