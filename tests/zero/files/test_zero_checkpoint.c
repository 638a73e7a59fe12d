/* Checkpoints: on any number of ranks at any stage the same, resumed training the bits of
 * uninterrupted training, every bit under a checksum, and nothing lost when writing fails.
 * tests/zero/files/test_zero_checkpoint.py kills who writes. */
#include "tests/lib/t.h"
#include "kolo/kolo_zero_checkpoint.h"
#include "tests/zero/step/give.h"
#include "tests/zero/step/mlp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 60, MOST_FILE = 64 << 10 };

static const char *const files[] = { "state", "user", "weights.safetensors", "moment1.safetensors",
				     "moment2.safetensors" };

/* ---- Directories ----------------------------------------------------------------------------- */

static char *new_directory(void)
{
	static char dir[] = "/tmp/kolo-test-XXXXXX";

	strcpy(dir + sizeof(dir) - 7, "XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
	return dir;
}

static void remove_tree(const char *path)
{
	struct dirent *e;
	DIR *d = opendir(path);

	while (d && (e = readdir(d))) {
		char inner[1024];

		snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name);
		if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 &&
		    strcmp(e->d_name, "..") != 0)
			remove_tree(inner);
		else if (e->d_type != DT_DIR)
			CHECK(unlink(inner) == 0);
	}
	if (d)
		closedir(d);
	CHECK(rmdir(path) == 0);
}

static size_t read_file(const char *dir, const char *name, char *out)
{
	char path[1024];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	n = read(fd, out, MOST_FILE);
	CHECK(n >= 0 && n < MOST_FILE);
	close(fd);
	return (size_t)n;
}

static bool same_files(const char *a, const char *b)
{
	static _Thread_local char of_a[MOST_FILE], of_b[MOST_FILE];

	for (size_t f = 0; f < ARRAY_LEN(files); f++) {
		size_t n = read_file(a, files[f], of_a), m = read_file(b, files[f], of_b);

		if (n != m || memcmp(of_a, of_b, n) != 0) {
			printf("# %s differs: %zu and %zu bytes\n", files[f], n, m);
			return false;
		}
	}
	return true;
}

static int count_entries(const char *dir, const char *prefix)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	int n = 0;

	CHECK(d != NULL);
	while ((e = readdir(d)))
		n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
	closedir(d);
	return n;
}

/* ---- Training -------------------------------------------------------------------------------- */

struct run {
	enum kolo_type type;
	int stage, accumulation, parameter_server;
	enum kolo_zero_optimizer optimizer;
	char dir[64];
};

static struct kolo_zero *create(struct kolo_comm *comm, const struct run *run)
{
	struct kolo_zero_tensor tensors[MLP_TENSORS];
	struct kolo_zero_group groups[2];
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	c.optimizer = run->optimizer;
	c.stage = run->stage;
	c.accumulation = run->accumulation;
	c.parameter_server = run->parameter_server;
	c.overlap = !run->parameter_server && run->stage % 2;
	c.reduce_bucket = 1024;
	c.gather_bucket = 150;
	c.persistence = 8;
	c.loss_scale = 0;
	c.scaling.initial = run->type == KOLO_F16 ? 0x1p20 : 1024;
	c.scaling.window = 2;
	kolo_zero_group_init(&groups[0], c.optimizer);
	groups[0].momentum = 0.9;
	groups[1] = groups[0];
	kolo_zero_schedule_init(&groups[1].schedule, KOLO_ZERO_WARMUP_COSINE);
	groups[1].schedule.warmup_steps = 4;
	groups[1].schedule.total_steps = 30;
	c.groups = groups;
	c.ngroups = 2;
	mlp_tensors(tensors, run->type);
	for (int i = 1; i < MLP_TENSORS; i += 2)
		tensors[i].group = 1;
	CHECK(kolo_zero_create(comm, &c, tensors, MLP_TENSORS, &zero) == 0);
	mlp_init(zero);
	return zero;
}

/* Micro-steps [first, last) of training; the samples of each are split over the ranks. */
static void train(struct kolo_comm *comm, struct kolo_zero *zero, const struct run *run, int first,
		  int last)
{
	size_t per_rank = BATCH / (size_t)kolo_comm_nranks(comm);

	for (int i = first; i < last; i++) {
		size_t sample = (size_t)i * BATCH + (size_t)kolo_comm_rank(comm) * per_rank;

		CHECK(mlp_micro_step(zero, run->type, sample, per_rank,
				     (float)kolo_zero_loss_scale(zero), 0) == 0);
		CHECK(kolo_zero_step(zero, NULL) == 0);
	}
}

enum { PATH = 256 };

/* The path of the checkpoint of the step that an engine has reached. */
static void path_of(char *out, const char *dir, const struct kolo_zero *zero)
{
	struct kolo_zero_progress p;

	kolo_zero_progress_get(zero, &p);
	CHECK(snprintf(out, PATH, "%s/step-%09ld", dir, p.step) < PATH);
}

/* ---- The same everywhere --------------------------------------------------------------------- */

/* Every parameter is its master, rounded. */
static void parameters_are_masters(struct kolo_zero *zero, const struct run *run)
{
	for (int i = 0; i < MLP_TENSORS; i++) {
		float masters[MLP_ROOM];
		char rounded[MLP_ROOM * 4];
		const void *values;
		size_t n = mlp_size(i);

		CHECK(kolo_zero_get(zero, i, masters) == 0);
		CHECK(kolo_cast(masters, KOLO_F32, rounded, run->type, n, 1) == 0);
		CHECK(kolo_zero_use(zero, i, &values) == 0);
		CHECK(memcmp(values, rounded, n * kolo_type_size(run->type)) == 0);
		CHECK(kolo_zero_release(zero, i) == 0);
	}
}

static void write_first(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);

	train(comm, zero, run, 0, 12);
	CHECK(kolo_zero_set_lr(zero, 0, 0.0123) == 0);
	CHECK(kolo_zero_save(zero, run->dir, 0, "place", 5) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

/* Loads the newest, and writes it again: the files say all there is. */
static void load_and_write(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char user[8] = "", again[PATH], there[PATH], here[PATH];
	size_t user_len = sizeof(user);
	double lr;

	CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, user, &user_len) == 0);
	CHECK(user_len == 5 && memcmp(user, "place", 5) == 0);
	CHECK(kolo_zero_lr_get(zero, 0, &lr, NULL) == 0 && lr == 0.0123);
	parameters_are_masters(zero, run);
	snprintf(again, sizeof(again), "%s/again", run->dir);
	CHECK(kolo_zero_save(zero, again, 0, user, user_len) == 0);
	path_of(there, run->dir, zero);
	path_of(here, again, zero);
	CHECK(kolo_comm_rank(comm) > 0 || same_files(there, here));
	/* And it is an engine. */
	train(comm, zero, run, 12, 14);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void loads_everywhere(struct run *run)
{
	static const int sizes[] = { 1, 2, 3, 5 };

	strcpy(run->dir, new_directory());
	run->stage = 3;
	run->parameter_server = 0;
	t_processes(4, write_first, run);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		/* Each number of ranks at one stage of two, or of four. */
		for (run->stage = 0; run->stage < 4; run->stage++)
			if (t_sampled(i + (uint64_t)run->stage + (uint64_t)run->optimizer,
				      t_is_slow() ? 4 : 2))
				t_processes(sizes[i], load_and_write, run);
		run->stage = 0;
		run->parameter_server = 1;
		t_processes(sizes[i], load_and_write, run);
		run->parameter_server = 0;
	}
	remove_tree(run->dir);
}

static void what_four_ranks_wrote_at_stage_3_is_the_same_on_any_number_at_any_stage(void **state)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
	struct run run = { .accumulation = 1 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		run.type = types[i];
		loads_everywhere(&run);
	}
	for (int optimizer = KOLO_ZERO_ADAM;
	     kolo_zero_optimizer_name((enum kolo_zero_optimizer)optimizer); optimizer++) {
		run.optimizer = (enum kolo_zero_optimizer)optimizer;
		run.type = KOLO_BF16;
		if (!t_is_slow() || t_is_long())
			loads_everywhere(&run);
	}
}

/* ---- As if it had never stopped -------------------------------------------------------------- */

static void stop_and_go_on(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char whole[PATH], parts[PATH], a[PATH], b[PATH];

	snprintf(whole, sizeof(whole), "%s/whole", run->dir);
	snprintf(parts, sizeof(parts), "%s/parts", run->dir);
	train(comm, zero, run, 0, 12);
	CHECK(kolo_zero_save(zero, parts, 1, NULL, 0) == 0);
	train(comm, zero, run, 12, 24);
	CHECK(kolo_zero_save(zero, whole, 1, NULL, 0) == 0);
	kolo_zero_destroy(zero);

	zero = create(comm, run);
	CHECK(kolo_zero_load(zero, parts, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	train(comm, zero, run, 12, 24);
	CHECK(kolo_zero_save(zero, parts, 1, NULL, 0) == 0);
	path_of(a, whole, zero);
	path_of(b, parts, zero);
	CHECK(kolo_comm_rank(comm) > 0 || same_files(a, b));
	CHECK(kolo_comm_rank(comm) > 0 || count_entries(parts, "step-") == 1);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void resumed_training_has_the_bits_of_training_that_never_stopped(void **state)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
	struct run run = { 0 };

	(void)state;
	for (int nranks = 1; nranks <= 4; nranks++)
		for (run.stage = 0; run.stage < 4; run.stage++)
			for (size_t i = 0; i < ARRAY_LEN(types); i++)
				for (run.accumulation = 1; run.accumulation <= 3;
				     run.accumulation += 2) {
					/* Each number of ranks with each stage, and with each type;
					 * with the thread sanitizer once. */
					if (!t_sampled((uint64_t)(nranks + run.stage +
								  run.accumulation / 2) +
							       i,
						       t_is_slowest() ? 7 : 3))
						continue;
					run.type = types[i];
					strcpy(run.dir, new_directory());
					t_processes(nranks, stop_and_go_on, &run);
					remove_tree(run.dir);
				}
}

/* ---- Damage ---------------------------------------------------------------------------------- */

/* One bit of a byte, there and back. */
static void flip(int fd, off_t at, int bit)
{
	unsigned char byte;

	CHECK(pread(fd, &byte, 1, at) == 1);
	byte ^= (unsigned char)(1 << bit);
	CHECK(pwrite(fd, &byte, 1, at) == 1);
}

static bool names_damage(const char *text)
{
	return strstr(text, "damaged") || strstr(text, "truncated") ||
	       strstr(text, "another version");
}

static long sweep_file(struct kolo_zero *zero, const char *path, const char *name)
{
	char file[2 * PATH], user[8];
	struct stat s;
	size_t user_len;
	int fd, stride = t_is_slow() && !t_is_long() ? 97 : 1;
	long flips = 0;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	fd = open(file, O_RDWR);
	CHECK(fd >= 0 && fstat(fd, &s) == 0 && s.st_size > 0);
	for (off_t at = 0; at < s.st_size; at += stride, flips++) {
		flip(fd, at, (int)(at % 8));
		user_len = sizeof(user);
		CHECK(kolo_zero_load(zero, path, KOLO_ZERO_LOAD_ALL, user, &user_len) == KOLO_ESYS);
		CHECK(names_damage(kolo_last_error()) && strstr(kolo_last_error(), name));
		flip(fd, at, (int)(at % 8));
	}
	for (off_t len = 0; len < s.st_size; len += s.st_size / 7 + 1) {
		char saved[MOST_FILE];
		size_t n = read_file(path, name, saved);

		CHECK(ftruncate(fd, len) == 0);
		user_len = sizeof(user);
		CHECK(kolo_zero_load(zero, path, KOLO_ZERO_LOAD_ALL, user, &user_len) == KOLO_ESYS);
		CHECK(names_damage(kolo_last_error()) && strstr(kolo_last_error(), name));
		CHECK(pwrite(fd, saved, n, 0) == (ssize_t)n);
	}
	close(fd);
	return flips;
}

static void sweep(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char path[PATH], again[PATH], copy[PATH];
	long flips = 0;

	train(comm, zero, run, 0, 4);
	CHECK(kolo_zero_save(zero, run->dir, 0, "place", 5) == 0);
	path_of(path, run->dir, zero);
	for (size_t f = 0; f < ARRAY_LEN(files); f++)
		flips += sweep_file(zero, path, files[f]);
	printf("# %ld flipped bits noticed\n", flips);
	/* A good one makes the engine whole again. */
	CHECK(kolo_zero_load(zero, path, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	snprintf(again, sizeof(again), "%s/again", run->dir);
	CHECK(kolo_zero_save(zero, again, 0, "place", 5) == 0);
	path_of(copy, again, zero);
	CHECK(same_files(path, copy));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void every_flipped_bit_and_every_truncation_is_noticed(void **state)
{
	struct run run = { .type = KOLO_BF16, .accumulation = 1, .stage = 1 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(1, sweep, &run);
	remove_tree(run.dir);
}

static void refuses(int rc, int want, const char *text)
{
	CHECK(rc == want);
	CHECK(strstr(kolo_last_error(), text) != NULL);
}

/* The other ranks are told what the one that read it found; and the engine waits for a good one. */
static void torn(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char older[PATH], newest[PATH], file[2 * PATH];

	train(comm, zero, run, 0, 12);
	CHECK(kolo_zero_save(zero, run->dir, 2, NULL, 0) == 0);
	path_of(older, run->dir, zero);
	train(comm, zero, run, 12, 14);
	CHECK(kolo_zero_save(zero, run->dir, 2, NULL, 0) == 0);
	path_of(newest, run->dir, zero);
	if (t->rank == 0) {
		int fd;

		snprintf(file, sizeof(file), "%s/moment2.safetensors", newest);
		fd = open(file, O_RDWR);
		CHECK(fd >= 0);
		flip(fd, 4096 + 4, 3); /* the first weight's, which rank 0 owns */
		close(fd);
	}
	CHECK(kolo_barrier(comm, NULL) == 0);
	refuses(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_ESYS,
		"moment2.safetensors: damaged: tensor '0.weight'");
	refuses(kolo_zero_forward(zero, 1), KOLO_EINVAL, "only another kolo_zero_load helps");
	refuses(kolo_zero_save(zero, run->dir, 0, NULL, 0), KOLO_EINVAL,
		"only another kolo_zero_load helps");
	CHECK(kolo_zero_load(zero, older, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	train(comm, zero, run, 12, 14);
	CHECK(kolo_zero_save(zero, run->dir, 2, NULL, 0) == 0); /* in place of the damaged one */
	CHECK(kolo_zero_load(zero, newest, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_failed_load_is_told_to_all_and_an_earlier_checkpoint_helps(void **state)
{
	struct run run = { .type = KOLO_BF16, .accumulation = 1 };

	(void)state;
	for (run.stage = 0; run.stage < 4; run.stage++) {
		strcpy(run.dir, new_directory());
		t_processes(3, torn, &run);
		remove_tree(run.dir);
	}
}

/* ---- Disks and other models ------------------------------------------------------------------ */

static void on_a_full_disk(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char place[PATH], hog[PATH], newest[PATH], block[4096] = { 1 };
	int fd = -1;

	snprintf(place, sizeof(place), "%s/c", run->dir);
	train(comm, zero, run, 0, 2);
	CHECK(kolo_zero_save(zero, place, 1, NULL, 0) == 0);
	if (t->rank == 0) {
		snprintf(hog, sizeof(hog), "%s/hog", run->dir);
		fd = open(hog, O_WRONLY | O_CREAT, 0666);
		while (write(fd, block, sizeof(block)) > 0)
			;
		CHECK(errno == ENOSPC);
	}
	train(comm, zero, run, 2, 4);
	refuses(kolo_zero_save(zero, place, 1, NULL, 0), KOLO_ESYS, "rank 0: ");
	CHECK(strstr(kolo_last_error(), "No space left") != NULL &&
	      strstr(kolo_last_error(), place) != NULL);
	refuses(kolo_zero_export(zero, place, KOLO_F32), KOLO_ESYS, "rank 0: ");
	/* The old one is there, alone, and training goes on. */
	CHECK(t->rank > 0 ||
	      (count_entries(place, "step-") == 1 && count_entries(place, ".step-") == 0));
	train(comm, zero, run, 4, 6);
	if (t->rank == 0)
		CHECK(close(fd) == 0 && unlink(hog) == 0);
	CHECK(kolo_zero_save(zero, place, 1, NULL, 0) == 0);
	path_of(newest, place, zero);
	CHECK(kolo_zero_load(zero, newest, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_full_disk_is_told_and_loses_nothing(void **state)
{
	struct run run = { .type = KOLO_F32, .accumulation = 1, .stage = 2 };

	(void)state;
	strcpy(run.dir, new_directory());
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("kolo", run.dir, "tmpfs", 0, "size=256k") < 0) {
		remove_tree(run.dir);
		skip();
	}
	t_processes(2, on_a_full_disk, &run);
	CHECK(umount2(run.dir, MNT_DETACH) == 0);
	remove_tree(run.dir);
}

/* Scales that adapt go on; others are the config's. */
static void scales(struct t_rank *t)
{
	static const double fixed[] = { 0, 0, 8, 8 }, goes_on[] = { 0, 1, 0, 1 };
	struct kolo_comm *comm = t_comm(t);
	struct run *run = t->arg;

	for (int i = 0; i < 4; i++) {
		struct kolo_zero_tensor x = { .name = "x", .type = KOLO_F32 };
		struct kolo_zero_config c;
		struct kolo_zero *zero;
		float inf = INFINITY;

		kolo_zero_config_init(&c);
		c.loss_scale = fixed[i];
		c.scaling.hysteresis = 1;
		CHECK(kolo_zero_create(comm, &c, &x, 1, &zero) == 0);
		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
		CHECK(give(zero, 0, &inf) == 0 && kolo_zero_step(zero, NULL) == 0);
		CHECK(kolo_zero_save(zero, run->dir, 0, NULL, 0) == 0);
		kolo_zero_destroy(zero);
		c.loss_scale = goes_on[i] ? 0 : 4;
		CHECK(kolo_zero_create(comm, &c, &x, 1, &zero) == 0);
		CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
		CHECK(kolo_zero_loss_scale(zero) == (!goes_on[i] ? 4 : fixed[i] ? 65536 : 32768));
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void only_a_scale_that_adapts_goes_on_where_one_does(void **state)
{
	struct run run = { 0 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(1, scales, &run);
	remove_tree(run.dir);
}

static struct kolo_zero *create_one(struct kolo_comm *comm, const char *name, size_t n,
				    enum kolo_type type, int frozen,
				    enum kolo_zero_optimizer optimizer)
{
	struct kolo_zero_tensor t = {
		.name = name, .shape = { n }, .ndims = 1, .type = type, .frozen = frozen
	};
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	c.optimizer = optimizer;
	CHECK(kolo_zero_create(comm, &c, &t, 1, &zero) == 0);
	return zero;
}

/* An update is made, or has no samples: a checkpoint of the same step tells how many were tried. */
static void tried(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct run *run = t->arg;
	const float one = 1;

	for (int empty = 0; empty < 3; empty++) {
		struct kolo_zero *zero = create_one(comm, "x", 1, KOLO_F32, 0, KOLO_ZERO_ADAMW);
		struct kolo_zero_progress p;

		for (int i = 0; i <= empty; i++) {
			CHECK(kolo_zero_forward(zero, i == 0) == 0);
			CHECK(kolo_zero_backward(zero, 0) == 0 && give(zero, 0, &one) == 0);
			CHECK(kolo_zero_step(zero, NULL) == 0);
		}
		CHECK(kolo_zero_save(zero, run->dir, 0, NULL, 0) == 0);
		kolo_zero_destroy(zero);
		zero = create_one(comm, "x", 1, KOLO_F32, 0, KOLO_ZERO_ADAMW);
		CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
		kolo_zero_progress_get(zero, &p);
		CHECK(p.step == 1 && p.skipped == 0 && p.attempts == 1 + empty);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void a_checkpoint_knows_how_many_updates_were_tried(void **state)
{
	struct run run = { 0 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(2, tried, &run);
	remove_tree(run.dir);
}

static void load_into(struct kolo_comm *comm, const char *dir, const char *name, size_t n,
		      enum kolo_zero_optimizer optimizer, const char *text)
{
	struct kolo_zero *zero = create_one(comm, name, n, KOLO_F32, 0, optimizer);

	refuses(kolo_zero_load(zero, dir, KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_EINVAL, text);
	/* It is as it was. */
	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	kolo_zero_destroy(zero);
}

static void mistakes(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct run *run = t->arg;
	struct kolo_zero *zero = create_one(comm, "a", 6, KOLO_F32, 0, KOLO_ZERO_ADAMW);
	char user[4], file[128];
	size_t room = sizeof(user);
	const void *values;
	long step;

	CHECK(kolo_zero_newest(run->dir, &step) == 0 && step == -1);
	CHECK(kolo_zero_newest("/nowhere", &step) == 0 && step == -1);
	refuses(kolo_zero_newest("/dev/null", &step), KOLO_ESYS, "/dev/null: opening");
	refuses(kolo_zero_newest(NULL, &step), KOLO_EINVAL, "NULL");
	refuses(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_ESYS,
		"is no checkpoint");
	refuses(kolo_zero_load(zero, "/nowhere", KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_ESYS,
		"/nowhere: is no");
	CHECK(kolo_zero_save(zero, run->dir, 0, "place", 5) == 0);
	refuses(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, user, &room), KOLO_EINVAL,
		"has 5 bytes of user, and there is room for 4");
	room = 0;
	CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, &room) == 0 && room == 5);
	refuses(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, user, NULL), KOLO_EINVAL,
		"without its size");
	refuses(kolo_zero_load(zero, NULL, KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_EINVAL,
		"without a path");
	refuses(kolo_zero_load(zero, run->dir, (enum kolo_zero_load_what)7, NULL, NULL),
		KOLO_EINVAL, "7");
	refuses(kolo_zero_save(zero, run->dir, -1, NULL, 0), KOLO_EINVAL, "keep -1");
	refuses(kolo_zero_save(zero, NULL, 0, NULL, 0), KOLO_EINVAL, "saving in ''");
	refuses(kolo_zero_save(zero, run->dir, 0, NULL, 3), KOLO_EINVAL, "3 bytes of user NULL");
	refuses(kolo_zero_save(zero, "/nowhere/there", 0, NULL, 0), KOLO_ESYS,
		"/nowhere/there: making");
	snprintf(file, sizeof(file), "%s/w", run->dir);
	refuses(kolo_zero_export(zero, file, KOLO_I32), KOLO_EINVAL, "i32");
	refuses(kolo_zero_export(zero, "/nowhere/w", KOLO_F32), KOLO_ESYS, "/nowhere/w.");
	CHECK(kolo_zero_use(zero, 0, &values) == 0);
	refuses(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_EINVAL,
		"'a' is in use");
	CHECK(kolo_zero_release(zero, 0) == 0 && kolo_zero_forward(zero, 1) == 0);
	refuses(kolo_zero_save(zero, run->dir, 0, NULL, 0), KOLO_EINVAL,
		"in the middle of an update");
	refuses(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL), KOLO_EINVAL,
		"in the middle");
	kolo_zero_destroy(zero);
	load_into(comm, run->dir, "b", 6, KOLO_ZERO_ADAMW,
		  "has no tensor 'b' in weights.safetensors");
	load_into(comm, run->dir, "a", 7, KOLO_ZERO_ADAMW, "'a' has shape [6], and here [7]");
	load_into(comm, run->dir, "a", 6, KOLO_ZERO_LION,
		  "written with optimizer AdamW, and the engine has Lion");
	zero = create_one(comm, "\xff", 1, KOLO_F32, 0, KOLO_ZERO_ADAMW);
	refuses(kolo_zero_save(zero, run->dir, 0, NULL, 0), KOLO_EINVAL, "is no UTF-8");
	kolo_zero_destroy(zero);
	zero = create_one(comm, "__metadata__", 1, KOLO_F32, 0, KOLO_ZERO_ADAMW);
	refuses(kolo_zero_save(zero, run->dir, 0, NULL, 0), KOLO_EINVAL, "keeps for other things");
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void mistakes_are_told_and_change_nothing(void **state)
{
	struct run run = { 0 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(2, mistakes, &run);
	remove_tree(run.dir);
}

/* Weights alone go into an engine of another type, where they may be frozen, with another
 * optimizer. */
static void weights_alone(struct t_rank *t)
{
	static const char name[] = "a b%\"\\\n\xc3\xa9";
	struct kolo_comm *comm = t_comm(t);
	struct run *run = t->arg;
	float values[] = { 1, -2.5f, 0.3f, 1e-3f, 7 }, got[5], rounded[5];
	struct kolo_zero *zero = create_one(comm, name, 5, KOLO_F32, 0, KOLO_ZERO_ADAMW);
	struct kolo_zero_progress p;
	uint16_t narrow[5];

	CHECK(kolo_zero_set(zero, 0, 0, 5, values) == 0);
	CHECK(kolo_zero_save(zero, run->dir, 0, NULL, 0) == 0);
	kolo_zero_destroy(zero);
	kolo_cast(values, KOLO_F32, narrow, KOLO_BF16, 5, 1);
	kolo_cast(narrow, KOLO_BF16, rounded, KOLO_F32, 5, 1);
	for (int frozen = 0; frozen < 2; frozen++) {
		zero = create_one(comm, name, 5, KOLO_BF16, frozen, KOLO_ZERO_LION);
		CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_WEIGHTS, NULL, NULL) == 0);
		CHECK(kolo_zero_get(zero, 0, got) == 0);
		CHECK(memcmp(got, frozen ? rounded : values, sizeof(got)) == 0);
		kolo_zero_progress_get(zero, &p);
		CHECK(p.step == 0);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void weights_alone_go_into_engines_of_another_kind(void **state)
{
	struct run run = { 0 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(3, weights_alone, &run);
	remove_tree(run.dir);
}

/* Training goes back to an earlier checkpoint and on from there: what came after it is out of the
 * way, and not lost. */
static void gone_back(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char first[PATH], second[PATH], aside[2 * PATH];
	long newest;

	train(comm, zero, run, 0, 2);
	CHECK(kolo_zero_save(zero, run->dir, 0, NULL, 0) == 0);
	path_of(first, run->dir, zero);
	for (int times = 0; times < 2; times++) {
		train(comm, zero, run, 2, 6);
		CHECK(kolo_zero_save(zero, run->dir, 1 + times, NULL, 0) == 0);
		CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
		if (times == 0) /* pruned away: begin anew */
			kolo_zero_destroy(zero), zero = create(comm, run);
		else
			CHECK(kolo_zero_load(zero, first, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
		train(comm, zero, run, 0, times ? 1 : 2);
		CHECK(kolo_zero_save(zero, run->dir, 1, NULL, 0) == 0);
		path_of(second, run->dir, zero);
		CHECK(kolo_zero_newest(run->dir, &newest) == 0 && newest == 2 + times);
		CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
		snprintf(aside, sizeof(aside), "%s/later-step-00000000%s", run->dir,
			 times ? "6.1" : "6");
		CHECK(access(aside, F_OK) == 0 && access(second, F_OK) == 0);
		/* As many of them as of the others. */
		snprintf(aside, sizeof(aside), "%s/later-step-000000006", run->dir);
		CHECK((access(aside, F_OK) == 0) == (times == 0));
		/* Another's folder stays. */
		snprintf(aside, sizeof(aside), "%s/later-step-000000001.mine", run->dir);
		CHECK(times || t->rank || mkdir(aside, 0777) == 0);
		CHECK(kolo_barrier(comm, NULL) == 0 && access(aside, F_OK) == 0);
		CHECK(kolo_barrier(comm, NULL) == 0);
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void training_that_goes_back_finds_its_own_checkpoints(void **state)
{
	struct run run = { .type = KOLO_F32, .accumulation = 1 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(2, gone_back, &run);
	remove_tree(run.dir);
}

/* Links are removed, never what they point to; whatever else has such a name goes too. */
static void odd_folders(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char path[2 * PATH], kept[2 * PATH], newest[PATH];

	snprintf(kept, sizeof(kept), "%s/kept", run->dir);
	train(comm, zero, run, 0, 1);
	CHECK(kolo_zero_save(zero, run->dir, 0, NULL, 0) == 0);
	path_of(newest, run->dir, zero);
	if (t->rank ==
	    0) { /* moved elsewhere, with a link in its place; and leftovers of other kinds */
		CHECK(rename(newest, kept) == 0 && symlink(kept, newest) == 0);
		snprintf(path, sizeof(path), "%s/.step-dangling", run->dir);
		CHECK(symlink("/nowhere/at/all", path) == 0);
		snprintf(path, sizeof(path), "%s/.step-000000007", run->dir);
		CHECK(mkdir(path, 0777) == 0);
		snprintf(path, sizeof(path), "%s/.step-000000007/inner", run->dir);
		CHECK(mkdir(path, 0777) == 0);
		snprintf(path, sizeof(path), "%s/.step-file", run->dir);
		CHECK(close(creat(path, 0666)) == 0);
	}
	CHECK(kolo_barrier(comm, NULL) == 0);
	CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	CHECK(kolo_zero_save(zero, run->dir, 1, NULL, 0) == 0); /* in place of the link */
	train(comm, zero, run, 1, 2);
	CHECK(kolo_zero_save(zero, run->dir, 1, NULL, 0) == 0);
	CHECK(kolo_zero_load(zero, kept, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	CHECK(t->rank > 0 || count_entries(run->dir, ".step-") == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void links_and_leftovers_of_any_kind_are_in_nobodys_way(void **state)
{
	struct run run = { .type = KOLO_F32, .accumulation = 1 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(2, odd_folders, &run);
	remove_tree(run.dir);
}

/* A rank that names another directory, where there is a leftover of the same step. */
static void two_directories(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char mine[2 * PATH], path[3 * PATH], deep[4000] = "", *end;

	snprintf(mine, sizeof(mine), "%s/%d", run->dir, t->rank);
	CHECK(mkdir(mine, 0777) == 0);
	snprintf(path, sizeof(path), "%s/.step-000000000", mine);
	CHECK(mkdir(path, 0777) == 0);
	refuses(kolo_zero_save(zero, mine, 0, NULL, 0), KOLO_ESYS,
		"do all hosts see the same directory?");
	CHECK(t->rank > 0 || count_entries(mine, "step-") == 0);
	/* A path that is just too long for what comes after it harms nothing in it. */
	end = stpcpy(deep, mine);
	while (end - deep < (long)sizeof(deep) - 8)
		end = stpcpy(end, "/.");
	memset(path, 0, sizeof(path));
	snprintf(path, sizeof(path), "%s/precious", mine);
	CHECK(close(creat(path, 0666)) == 0);
	CHECK(kolo_barrier(comm, NULL) == 0);
	CHECK(kolo_zero_save(zero, deep, 0, NULL, 0) < 0);
	CHECK(access(path, F_OK) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void another_directory_on_one_rank_is_noticed(void **state)
{
	struct run run = { .type = KOLO_F32, .accumulation = 1, .stage = 2 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(2, two_directories, &run);
	remove_tree(run.dir);
}

/* Parts of several MiB, at odd places of the file, go past the system's cache. */
static struct kolo_zero *create_large(struct kolo_comm *comm, int stage)
{
	static const size_t sizes[] = { 7, 3000007, 1, 1500001, 3 };
	static const enum kolo_type types[] = { KOLO_F32, KOLO_BF16, KOLO_BF16, KOLO_F32,
						KOLO_F16 };
	static const char *const names[] = { "a", "b", "c", "d", "e" };
	struct kolo_zero_tensor tensors[ARRAY_LEN(sizes)];
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	c.stage = stage;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		tensors[i] = (struct kolo_zero_tensor){ .name = names[i],
							.shape = { sizes[i] },
							.ndims = 1,
							.type = types[i],
							.frozen = i == 2 };
	CHECK(kolo_zero_create(comm, &c, tensors, ARRAY_LEN(sizes), &zero) == 0);
	return zero;
}

static void write_large(struct t_rank *t)
{
	static const size_t sizes[] = { 3000007, 1500001 };
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create_large(comm, 0);

	for (int i = 0; i < 2; i++) {
		float *values = malloc(sizes[i] * sizeof(*values));

		CHECK(values != NULL);
		for (size_t k = 0; k < sizes[i]; k++)
			values[k] = (float)((k + 1) * 2654435761u % 1000003);
		CHECK(kolo_zero_set(zero, i ? 3 : 1, 0, sizes[i], values) == 0);
		free(values);
	}
	CHECK(kolo_zero_save(zero, run->dir, 0, NULL, 0) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void rewrite_large(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create_large(comm, run->stage);
	char again[2 * PATH];

	snprintf(again, sizeof(again), "%s/again", run->dir);
	CHECK(kolo_zero_load(zero, run->dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	CHECK(kolo_zero_save(zero, again, 0, NULL, 0) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void large_parts_at_odd_places_are_the_same_from_any_number_of_ranks(void **state)
{
	struct run run = { 0 };
	char command[2 * PATH];

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(1, write_large, &run);
	for (run.stage = t_is_slowest() ? 3 : 0; run.stage < 4; run.stage++) {
		t_processes(1 + run.stage, rewrite_large, &run);
		snprintf(command, sizeof(command),
			 "diff -r %s/step-000000000 %s/again/step-000000000", run.dir, run.dir);
		CHECK(system(command) == 0);
	}
	remove_tree(run.dir);
}

static void kept(struct t_rank *t)
{
	struct run *run = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = create(comm, run);
	char path[6][PATH];

	if (t->rank == 0) { /* what an earlier job left, and what is none of ours */
		snprintf(path[0], PATH, "%s/.step-000000999", run->dir);
		CHECK(mkdir(path[0], 0777) == 0);
		snprintf(path[0], PATH, "%s/step-1", run->dir);
		CHECK(mkdir(path[0], 0777) == 0);
	}
	CHECK(kolo_barrier(comm, NULL) == 0);
	for (int i = 0; i < 6; i++) {
		train(comm, zero, run, 2 * i, 2 * i + 2);
		CHECK(kolo_zero_save(zero, run->dir, 3, NULL, 0) == 0);
		path_of(path[i], run->dir, zero);
	}
	if (t->rank == 0) {
		CHECK(count_entries(run->dir, "step-") == 3 + 1 &&
		      count_entries(run->dir, ".step-") == 0);
		for (int i = 0; i < 6; i++)
			CHECK((access(path[i], F_OK) == 0) == (i >= 3));
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void old_checkpoints_go_and_what_was_not_completed_too(void **state)
{
	struct run run = { .type = KOLO_F32, .accumulation = 1, .stage = 1 };

	(void)state;
	strcpy(run.dir, new_directory());
	t_processes(2, kept, &run);
	remove_tree(run.dir);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_four_ranks_wrote_at_stage_3_is_the_same_on_any_number_at_any_stage),
	cmocka_unit_test(resumed_training_has_the_bits_of_training_that_never_stopped),
	cmocka_unit_test(every_flipped_bit_and_every_truncation_is_noticed),
	cmocka_unit_test(a_failed_load_is_told_to_all_and_an_earlier_checkpoint_helps),
	cmocka_unit_test(a_full_disk_is_told_and_loses_nothing),
	cmocka_unit_test(mistakes_are_told_and_change_nothing),
	cmocka_unit_test(weights_alone_go_into_engines_of_another_kind),
	cmocka_unit_test(training_that_goes_back_finds_its_own_checkpoints),
	cmocka_unit_test(links_and_leftovers_of_any_kind_are_in_nobodys_way),
	cmocka_unit_test(another_directory_on_one_rank_is_noticed),
	cmocka_unit_test(large_parts_at_odd_places_are_the_same_from_any_number_of_ranks),
	cmocka_unit_test(only_a_scale_that_adapts_goes_on_where_one_does),
	cmocka_unit_test(a_checkpoint_knows_how_many_updates_were_tried),
	cmocka_unit_test(old_checkpoints_go_and_what_was_not_completed_too),
};

T_MAIN(tests)
