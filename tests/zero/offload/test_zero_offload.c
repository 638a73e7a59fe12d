/* Offload: the same bits wherever state and parameters are, what crosses, what is held and pinned,
 * models larger than the device, files that fail. */
#include "kolo/kolo_zero_checkpoint.h"
#include "tests/cuda/gpu.h"
#include "tests/lib/t.h"
#include "tests/zero/offload/stack.h"
#include "tests/zero/step/give.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 50, SLOW_STEPS = 3, MIB = 1 << 20, ON_GPU = 1 };

static int steps(void)
{
	return t_is_slow() ? SLOW_STEPS : STEPS;
}

/* A directory that only this test has; removed with what is left in it, which must be nothing. */
static void make_directory(char out[64])
{
	strcpy(out, "/tmp/kolo-test-XXXXXX");
	CHECK(mkdtemp(out) != NULL);
}

static void remove_directory(const char *path)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -r '%s'", path);
	CHECK(system(command) == 0);
}

static bool has_files(struct kolo_comm *comm);

/* A model of equal layers. */
enum { LAYERS = 24, LAYER = 32768 };

static void describe_layers(struct kolo_zero_tensor out[LAYERS], char names[LAYERS][16]);

/* What a way of offloading sets. */
struct way {
	const char *name;
	size_t arena; /* bytes; 0: no device; ON_GPU: one made of threads */
	enum kolo_zero_place optimizer, param;
	double ratio;
	size_t bucket, buffer;
	int buffers, overlap, threads, pin;
	double bandwidth;
	size_t in_host;
};

static const struct way ways[] = {
	{ "a device alone", 64 * MIB, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0 },
	{ "optimizer on the host", 64 * MIB, 1, 0, 1, 0, 0, 0, 1, 2, 1, 0, 0 },
	{ "a third of it, small buckets", 64 * MIB, 1, 0, 0.3, 5000, 4096, 2, 1, 1, 0, 0, 0 },
	{ "none of it", 64 * MIB, 1, 0, 0, 1300, 0, 0, 0, 1, 1, 0, 0 },
	{ "without overlap, slow copies", 64 * MIB, 1, 1, 0.5, 3000, 5000, 3, 0, 3, 1, 1e9, 0 },
	{ "parameters on the host too", 64 * MIB, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0 },
	{ "parameters alone", 64 * MIB, 0, 1, 1, 20000, 4096, 2, 1, 1, 0, 0, 0 },
	{ "a third, and parameters", 64 * MIB, 1, 1, 0.3, 0, 4096, 2, 1, 2, 1, 0, 0 },
	{ "optimizer in files", 64 * MIB, 2, 0, 1, 0, 4096, 3, 1, 1, 1, 0, 0 },
	{ "a third in files", 64 * MIB, 2, 0, 0.3, 6000, 8192, 2, 0, 1, 1, 0, 0 },
	{ "all in files", 64 * MIB, 2, 2, 1, 0, 0, 0, 1, 2, 1, 0, 0 },
	{ "parameters in files alone", 64 * MIB, 0, 2, 1, 3000, 4096, 2, 1, 1, 1, 0, 0 },
	{ "some of them in host memory", 64 * MIB, 1, 2, 0.3, 0, 4096, 2, 1, 1, 0, 0, 9000 },
	{ "no device, optimizer in files", 0, 2, 0, 1, 0, 4096, 4, 1, 1, 1, 0, 0 },
	{ "no device, a third in files", 0, 2, 0, 0.3, 1100, 4096, 2, 0, 2, 1, 0, 0 },
	{ "no device, all in files", 0, 2, 2, 1, 0, 0, 0, 1, 1, 1, 0, 0 },
	{ "no device, parameters in files", 0, 1, 2, 0.5, 4000, 4096, 3, 1, 1, 1, 0, 12000 },
	{ "no device, nothing to do", 0, 1, 1, 0.3, 0, 0, 0, 1, 5, 1, 0, 0 },
};

static const struct way gpu_ways[] = {
	{ "a GPU alone", ON_GPU, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0 },
	{ "a GPU, optimizer on the host", ON_GPU, 1, 0, 1, 5000, 0, 0, 1, 1, 1, 0, 0 },
	{ "a GPU, a third of it on the host", ON_GPU, 1, 0, 0.3, 0, 4096, 2, 1, 1, 1, 0, 0 },
	{ "a GPU, parameters too", ON_GPU, 1, 1, 0.5, 0, 4096, 2, 1, 1, 0, 0, 0 },
	{ "a GPU, all in files", ON_GPU, 2, 2, 1, 0, 4096, 3, 1, 1, 1, 0, 0 },
	{ "a GPU, parameters in files alone", ON_GPU, 0, 2, 1, 3000, 4096, 2, 1, 1, 1, 0, 0 },
};

static bool uses_files(const struct way *w)
{
	return w->optimizer == KOLO_ZERO_ON_NVME || w->param == KOLO_ZERO_ON_NVME;
}

/* Fills a config; the device is the caller's to close. */
static void apply(const struct way *w, int stage, const char *path, struct kolo_zero_config *c)
{
	c->stage = stage;
	c->overlap = w->overlap;
	c->threads = w->threads;
	if (w->bucket)
		c->reduce_bucket = c->gather_bucket = w->bucket;
	c->offload_optimizer.place = w->optimizer;
	c->offload_optimizer.ratio = w->ratio;
	c->offload_optimizer.pin = c->offload_param.pin = w->pin;
	if (w->buffer)
		c->offload_optimizer.buffer = w->buffer;
	if (w->buffers)
		c->offload_optimizer.buffers = c->offload_param.buffers = w->buffers;
	c->offload_param.place = stage == 3 ? w->param : KOLO_ZERO_ON_DEVICE;
	c->offload_param.in_host = w->in_host;
	c->offload_optimizer.path = c->offload_param.path = path;
	c->prefetch = 20000;
	if (w->arena == ON_GPU) {
		t_gpu_use();
		CHECK(kolo_zero_cuda_open(0, &c->device) == 0);
	} else if (w->arena) {
		CHECK(kolo_zero_arena_open(w->arena, w->bandwidth, &c->device) == 0);
	}
}

static uint64_t train(struct kolo_comm *comm, const struct kolo_zero_config *c, enum kolo_type type,
		      int nsteps)
{
	struct kolo_zero_result result = { 0 };
	struct kolo_zero *zero;
	uint64_t hash;

	CHECK(stack_create(comm, c, type, &zero) == 0);
	for (int i = 0; i < nsteps * c->accumulation; i++)
		CHECK(stack_step(zero, c, type, kolo_comm_rank(comm), i, &result) == 0);
	CHECK(result.step == nsteps && result.updated);
	hash = stack_hash(zero, c->device, type);
	kolo_zero_destroy(zero);
	return hash;
}

/* ---- The same bits --------------------------------------------------------------------------- */

struct bits {
	enum kolo_type type;
	int accumulation;
	enum kolo_zero_optimizer optimizer;
	char path[64];
	const struct way *ways;
	size_t n;
	int steps; /* 0: steps() */
};

static struct kolo_zero_config config_of(const struct bits *b)
{
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.accumulation = b->accumulation;
	c.optimizer = b->optimizer;
	c.clip = 1;
	c.loss_scale = b->type == KOLO_F16 ? 128 : 1;
	c.micro_batch = 1;
	return c;
}

/* Not for this system, or not in the sample. The key counts ways, stages and more: of three stages
 * one has a way, and each stage has one of three ways; with the thread sanitizer one of nine. */
static bool leaves_out(const struct way *w, uint64_t key, bool files)
{
	return (uses_files(w) && !files) || !t_sampled(key, t_is_slowest() ? 9 : 3);
}

static void every_way(struct t_rank *t)
{
	const struct bits *b = t->arg;
	struct kolo_comm *comm =
		t_comm_with(t, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2 });
	bool files = has_files(comm);
	int nsteps = b->steps ? b->steps : steps();

	for (int stage = 1; stage <= 3; stage++) {
		struct kolo_zero_config plain = config_of(b);
		uint64_t want;

		plain.stage = stage;
		want = train(comm, &plain, b->type, nsteps);
		for (size_t i = 0; i < b->n; i++) {
			uint64_t got,
				key = i + (uint64_t)(stage + t->nranks) + b->type + b->optimizer;
			struct kolo_zero_config c = config_of(b);

			if (leaves_out(&b->ways[i], key, files))
				continue;
			apply(&b->ways[i], stage, b->path, &c);
			got = train(comm, &c, b->type, nsteps);
			kolo_zero_device_close(c.device);
			if (got != want)
				fprintf(stderr,
					"# %s, stage %d, %d ranks, %s, %s, %d micro-steps\n",
					b->ways[i].name, stage, t->nranks, kolo_type_name(b->type),
					kolo_zero_optimizer_name(b->optimizer), b->accumulation);
			CHECK(got == want);
		}
	}
	kolo_comm_destroy(comm);
}

/* Whether this build and this system have files for state. */
static bool has_files(struct kolo_comm *comm)
{
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	int rc;

	kolo_zero_config_init(&c);
	c.stage = 1;
	c.offload_optimizer.place = KOLO_ZERO_ON_NVME;
	c.offload_optimizer.path = "/tmp";
	rc = stack_create(comm, &c, KOLO_F32, &zero);
	CHECK(rc == 0 || rc == KOLO_ENOTSUP);
	if (rc == 0)
		kolo_zero_destroy(zero);
	return rc == 0;
}

static void compare(enum kolo_type type, int accumulation, enum kolo_zero_optimizer optimizer,
		    int nranks)
{
	bool all_steps = t_is_slow() || (type == KOLO_BF16 && optimizer == KOLO_ZERO_ADAMW);
	struct bits b = { type, accumulation,    optimizer,         "",
			  ways, ARRAY_LEN(ways), all_steps ? 0 : 10 };

	make_directory(b.path);
	t_processes(nranks, every_way, &b);
	CHECK(rmdir(b.path) == 0); /* no file is left */
}

static void the_same_bits_wherever_f32_is(void **state)
{
	(void)state;
	compare(KOLO_F32, 1, KOLO_ZERO_ADAMW, 3);
}

static void the_same_bits_wherever_bf16_is(void **state)
{
	(void)state;
	for (int n = 1; n <= 4; n++)
		if (n == 2 || !t_is_slow())
			compare(KOLO_BF16, 1, KOLO_ZERO_ADAMW, n);
}

static void the_same_bits_wherever_f16_is_added_up(void **state)
{
	(void)state;
	compare(KOLO_F16, 3, KOLO_ZERO_ADAMW, 2);
}

static void the_same_bits_on_a_gpu(void **state)
{
	(void)state;
	for (int n = t_is_slow() ? 2 : 1; n <= (t_is_slow() ? 2 : 3); n++) {
		struct bits b = { n == 2 ? KOLO_F16 : KOLO_BF16, n, KOLO_ZERO_ADAMW, "", gpu_ways,
				  ARRAY_LEN(gpu_ways),           5 };

		make_directory(b.path);
		t_processes(n, every_way, &b);
		CHECK(rmdir(b.path) == 0);
	}
}

static void the_same_bits_with_every_optimizer(void **state)
{
	(void)state;
	for (int o = KOLO_ZERO_ADAM; kolo_zero_optimizer_name((enum kolo_zero_optimizer)o);
	     o += t_is_slowest() ? 2 : 1)
		compare(KOLO_BF16, 1, (enum kolo_zero_optimizer)o,
			o == KOLO_ZERO_LAMB ? 3 : 1); /* Lamb's norms are over ranks */
}

/* ---- Between updates ------------------------------------------------------------------------- */

/* A micro-step without samples that ends early: what was read ahead is not used. */
static void stop_early(struct kolo_zero *zero)
{
	CHECK(kolo_zero_forward(zero, 0) == 0);
	CHECK(kolo_zero_use(zero, 0, NULL) == 0 && kolo_zero_release(zero, 0) == 0);
	CHECK(kolo_zero_backward(zero, 0) == 0 && kolo_zero_step(zero, NULL) == 0);
}

static uint64_t get_between(struct kolo_comm *comm, const struct kolo_zero_config *c)
{
	float *frozen = malloc(stack_size(STACK_TENSORS - 1) * sizeof(*frozen));
	struct kolo_zero *zero;
	uint64_t hash;

	CHECK(frozen && stack_create(comm, c, KOLO_BF16, &zero) == 0);
	for (int k = 0; k < 4; k++) {
		CHECK(stack_step(zero, c, KOLO_BF16, kolo_comm_rank(comm), k, NULL) == 0);
		stop_early(zero);
		CHECK(kolo_zero_get(zero, STACK_TENSORS - 1, frozen) == 0);
	}
	hash = stack_hash(zero, c->device, KOLO_BF16);
	kolo_zero_destroy(zero);
	free(frozen);
	return hash;
}

static void get_from_files(struct t_rank *t)
{
	struct bits b = { KOLO_BF16, 1, KOLO_ZERO_ADAMW, "", NULL, 0, 0 };
	struct kolo_zero_config plain = config_of(&b);
	struct kolo_comm *comm = t_comm(t);
	uint64_t want;

	plain.stage = 3;
	want = get_between(comm, &plain);
	for (size_t i = 0; has_files(comm) && i < ARRAY_LEN(ways); i++) {
		struct kolo_zero_config c = config_of(&b);

		if (ways[i].param != KOLO_ZERO_ON_NVME ||
		    (t_is_slowest() && !t_sampled(i + (uint64_t)t->nranks, 2)))
			continue;
		apply(&ways[i], 3, t->arg, &c);
		c.prefetch = 1;
		CHECK(get_between(comm, &c) == want);
		kolo_zero_device_close(c.device);
	}
	kolo_comm_destroy(comm);
}

static void values_come_from_files_beside_what_was_read_ahead(void **state)
{
	char path[64];

	(void)state;
	make_directory(path);
	t_processes(1, get_from_files, path);
	t_processes(2, get_from_files, path);
	CHECK(rmdir(path) == 0);
}

/* ---- What crosses ---------------------------------------------------------------------------- */

static uint64_t trained_bytes(const struct t_rank *t, size_t size)
{
	uint64_t n = 0;

	for (int i = 0; i < STACK_TENSORS - 1; i++) {
		size_t chunk = (stack_size(i) + (size_t)t->nranks - 1) / (size_t)t->nranks;
		size_t first = chunk * (size_t)t->rank;

		n += first >= stack_size(i)          ? 0
		     : stack_size(i) - first < chunk ? stack_size(i) - first
						     : chunk;
	}
	return n * size;
}

/* Each gradient once down and each parameter once up in an update, in 16 bits; sums of micro-steps
 * in float. */
static void cross(struct kolo_comm *comm, struct t_rank *t, int stage, int accumulation)
{
	struct kolo_zero_traffic before, after;
	struct kolo_zero_device_info info;
	uint64_t once = trained_bytes(t, sizeof(uint16_t));
	uint64_t down = stage >= 2 && accumulation > 1 ? 2 * once : once;
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	c.stage = stage;
	c.accumulation = accumulation;
	c.offload_optimizer.place = KOLO_ZERO_ON_HOST;
	CHECK(kolo_zero_arena_open(64 * MIB, 0, &c.device) == 0);
	CHECK(stack_create(comm, &c, KOLO_BF16, &zero) == 0);
	CHECK(kolo_zero_traffic_get(zero, &before) == 0);
	CHECK(before.down_bytes == 0 && before.up_bytes == 0);
	for (int update = 1; update <= 3; update++) {
		for (int micro = 0; micro < accumulation; micro++)
			CHECK(stack_step(zero, &c, KOLO_BF16, t->rank, micro, NULL) == 0);
		CHECK(kolo_zero_traffic_get(zero, &after) == 0);
		CHECK(after.down_bytes == (uint64_t)update * down);
		CHECK(after.up_bytes == (uint64_t)update * once);
		CHECK(after.read_bytes == 0 && after.written_bytes == 0);
	}
	/* The device has counted the same. */
	kolo_zero_device_get(c.device, &info);
	CHECK(info.down_bytes == 3 * down && info.up_bytes == 3 * once);
	kolo_zero_destroy(zero);
	kolo_zero_device_close(c.device);
}

static void cross_each_way(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int stage = 1; stage <= 3; stage++)
		for (int accumulation = 1; accumulation <= 4; accumulation++)
			cross(comm, t, stage, accumulation);
	kolo_comm_destroy(comm);
}

/* First values are no traffic, and take none of the model's time. */
static void begin(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_times times, no_times = { 0 };
	struct kolo_zero_traffic traffic;
	struct kolo_zero_tensor tensors[LAYERS];
	char names[LAYERS][16];
	bool files = has_files(comm);

	describe_layers(tensors, names);
	for (enum kolo_zero_place place = KOLO_ZERO_ON_DEVICE; place <= KOLO_ZERO_ON_NVME;
	     place++) {
		struct kolo_zero_config c;
		struct kolo_zero *zero;

		if (place == KOLO_ZERO_ON_NVME && !files)
			continue;
		kolo_zero_config_init(&c);
		c.stage = 3;
		c.offload_optimizer.place = c.offload_param.place = place;
		c.offload_optimizer.path = c.offload_param.path = "/tmp";
		CHECK(kolo_zero_arena_open(64 * MIB, 0, &c.device) == 0);
		CHECK(kolo_zero_create(comm, &c, tensors, LAYERS, &zero) == 0);
		CHECK(kolo_barrier(comm, NULL) == 0 && usleep(20000) == 0);
		CHECK(kolo_zero_traffic_get(zero, &traffic) == 0);
		CHECK(traffic.read_bytes == 0 && traffic.written_bytes == 0 &&
		      traffic.sent_bytes == 0);
		CHECK(traffic.up_bytes == 0 && traffic.down_bytes == 0);
		kolo_zero_times_get(zero, &times);
		CHECK(memcmp(&times, &no_times, sizeof(times)) == 0);
		kolo_zero_destroy(zero);
		kolo_zero_device_close(c.device);
	}
	kolo_comm_destroy(comm);
}

static void counting_begins_with_the_first_step(void **state)
{
	(void)state;
	t_processes(1, begin, NULL);
	t_processes(2, begin, NULL);
}

static void each_byte_crosses_once_in_an_update(void **state)
{
	(void)state;
	for (int n = t_is_slow() ? 2 : 1; n <= (t_is_slow() ? 2 : 4); n++)
		t_processes(n, cross_each_way, NULL);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static void describe_stack(enum kolo_type type, struct kolo_zero_tensor out[STACK_TENSORS])
{
	static const char *const names[STACK_TENSORS] = { "a", "b", "c", "d", "e", "f" };

	for (int i = 0; i < STACK_TENSORS; i++)
		out[i] = (struct kolo_zero_tensor){ .name = names[i],
						    .shape = { stack_size(i) },
						    .ndims = 1,
						    .type = type,
						    .frozen = i == STACK_TENSORS - 1 };
}

/* The plan's bytes are the engine's, of all kinds and places. */
static void compare_memory(const struct kolo_zero_plan *plan, const struct kolo_zero *zero)
{
	struct kolo_zero_memory planned, held;
	int row = 0;

	for (; kolo_zero_plan_memory_get(plan, row, &planned) == 0; row++) {
		CHECK(kolo_zero_memory_get(zero, row, &held) == 0);
		CHECK(strcmp(planned.kind, held.kind) == 0 &&
		      strcmp(planned.place, held.place) == 0);
		if (planned.peak != held.peak || held.peak > held.expected)
			fprintf(stderr, "# %s %s: planned %zu, held %zu, expected %zu\n",
				held.place, held.kind, planned.peak, held.peak, held.expected);
		CHECK(planned.peak == held.peak && held.peak <= held.expected);
		CHECK(planned.pinned == held.pinned);
	}
	CHECK(kolo_zero_memory_get(zero, row, &held) == KOLO_EINVAL);
}

/* So is its traffic, between two counts. */
static void compare_traffic(const struct kolo_zero_plan *plan, const struct kolo_zero_traffic *a,
			    const struct kolo_zero_traffic *b)
{
	struct kolo_zero_traffic want;

	kolo_zero_plan_traffic_get(plan, &want);
	CHECK(want.sent_bytes == b->sent_bytes - a->sent_bytes);
	CHECK(want.gradient_bytes == b->gradient_bytes - a->gradient_bytes);
	CHECK(want.parameter_bytes == b->parameter_bytes - a->parameter_bytes);
	CHECK(want.padding_bytes == b->padding_bytes - a->padding_bytes);
	CHECK(want.reductions == b->reductions - a->reductions &&
	      want.gathers == b->gathers - a->gathers);
	CHECK(want.down_bytes == b->down_bytes - a->down_bytes &&
	      want.up_bytes == b->up_bytes - a->up_bytes);
	CHECK(want.read_bytes == b->read_bytes - a->read_bytes);
	CHECK(want.written_bytes == b->written_bytes - a->written_bytes);
}

/* In the first update the order of uses is learnt. */
static void plan_and_train(struct kolo_comm *comm, struct t_rank *t,
			   const struct kolo_zero_config *c)
{
	struct kolo_zero_tensor tensors[STACK_TENSORS];
	struct kolo_zero_traffic traffic[2];
	struct kolo_zero_plan *plan;
	struct kolo_zero *zero;

	describe_stack(KOLO_BF16, tensors);
	CHECK(kolo_zero_plan_create(c, tensors, STACK_TENSORS, t->rank, t->nranks, &plan) == 0);
	CHECK(kolo_zero_plan_check(plan) == 0);
	CHECK(kolo_zero_create(comm, c, tensors, STACK_TENSORS, &zero) == 0);
	for (int update = 0; update < 2; update++) {
		for (int micro = 0; micro < c->accumulation; micro++)
			CHECK(stack_step(zero, c, KOLO_BF16, t->rank, micro, NULL) == 0);
		CHECK(kolo_zero_traffic_get(zero, &traffic[update]) == 0);
	}
	compare_memory(plan, zero);
	compare_traffic(plan, &traffic[0], &traffic[1]);
	kolo_zero_destroy(zero);
	kolo_zero_plan_destroy(plan);
}

static void plan_every_way(struct t_rank *t)
{
	const char *path = t->arg;
	struct kolo_comm *comm = t_comm_with(
		t, (struct kolo_comm_attr){ .algorithm = "ring", .timeout_s = T_PATIENCE / 2 });
	bool files = has_files(comm);

	for (int stage = 1; stage <= 3; stage++)
		for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
			struct bits b = { KOLO_BF16, 1 + (int)(i % 2), KOLO_ZERO_ADAMW, "", NULL, 0,
					  0 };
			struct kolo_zero_config c = config_of(&b);

			if (leaves_out(&ways[i], i + (uint64_t)(stage + t->nranks), files))
				continue;
			apply(&ways[i], stage, path, &c);
			plan_and_train(comm, t, &c);
			kolo_zero_device_close(c.device);
		}
	kolo_comm_destroy(comm);
}

static void a_plan_is_what_the_engine_does(void **state)
{
	char path[64];

	(void)state;
	for (int n = t_is_slow() ? 2 : 1; n <= (t_is_slow() ? 2 : 3); n++) {
		make_directory(path);
		t_processes(n, plan_every_way, path);
		CHECK(rmdir(path) == 0);
	}
}

/* ---- More than the device holds -------------------------------------------------------------- */

static void describe_layers(struct kolo_zero_tensor out[LAYERS], char names[LAYERS][16])
{
	for (int i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "layer %d", i);
		out[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { LAYER }, .ndims = 1, .type = KOLO_BF16
		};
	}
}

static void train_layers(struct kolo_zero *zero, struct kolo_zero_device *device)
{
	void *gradient;

	CHECK(kolo_zero_device_alloc(device, LAYER * sizeof(uint16_t), "a gradient", &gradient) ==
	      0);
	for (int step = 0; step < 3; step++) {
		struct kolo_zero_result result;

		CHECK(kolo_zero_forward(zero, 1) == 0);
		for (int i = 0; i < LAYERS; i++)
			CHECK(kolo_zero_use(zero, i, NULL) == 0 && kolo_zero_release(zero, i) == 0);
		CHECK(kolo_zero_backward(zero, 1) == 0);
		for (int i = LAYERS; i-- > 0;) {
			CHECK(kolo_zero_use(zero, i, NULL) == 0);
			CHECK(kolo_zero_gradient(zero, i, gradient) == 0);
			CHECK(kolo_zero_release(zero, i) == 0);
		}
		CHECK(kolo_zero_step(zero, &result) == 0 && result.updated);
	}
	kolo_zero_device_free(device, gradient, LAYER * sizeof(uint16_t));
}

static void four_times_the_arena(struct t_rank *t)
{
	/* 2 + 2 + 12 bytes of each parameter, of which a quarter fits. */
	size_t all = (size_t)16 * LAYERS * LAYER, budget = all / 4 / (size_t)t->nranks;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[LAYERS];
	struct kolo_zero_device_info info;
	struct kolo_zero_plan *plan;
	char names[LAYERS][16];
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	describe_layers(tensors, names);
	kolo_zero_config_init(&c);
	c.stage = 3;
	c.reduce_bucket = LAYER;
	c.prefetch = LAYER;
	CHECK(kolo_zero_arena_open(budget, 0, &c.device) == 0);
	CHECK(kolo_zero_create(comm, &c, tensors, LAYERS, &zero) == KOLO_ENOMEM && zero == NULL);
	CHECK(strstr(kolo_last_error(), "too much") && strstr(kolo_last_error(), "moments") &&
	      strstr(kolo_last_error(), "offload_optimizer"));
	CHECK(strncmp(kolo_last_error(), "rank 0: needs", strlen("rank 0: needs")) == 0);
	c.offload_optimizer.place = KOLO_ZERO_ON_HOST;
	c.offload_param.place = KOLO_ZERO_ON_HOST;
	CHECK(kolo_zero_create(comm, &c, tensors, LAYERS, &zero) == 0);
	train_layers(zero, c.device);
	kolo_zero_device_get(c.device, &info);
	CHECK(info.peak <= budget && info.peak > 0);
	kolo_zero_destroy(zero);
	kolo_zero_device_get(c.device, &info);
	CHECK(info.used == 0 && info.pinned == 0);
	/* The host's memory has a budget too. */
	c.host_budget = 4 * MIB / 4;
	CHECK(kolo_zero_create(comm, &c, tensors, LAYERS, &zero) == KOLO_ENOMEM && zero == NULL);
	CHECK(strstr(kolo_last_error(), "host memory") &&
	      strstr(kolo_last_error(), "offload_optimizer to nvme"));
	/* Nobody is told to do what is done already. */
	c.offload_optimizer.place = c.offload_param.place = KOLO_ZERO_ON_NVME;
	c.offload_optimizer.path = c.offload_param.path = "/tmp";
	CHECK(kolo_zero_plan_create(&c, tensors, LAYERS, 0, 1, &plan) == 0);
	CHECK(kolo_zero_plan_check(plan) == KOLO_ENOMEM &&
	      strstr(kolo_last_error(), "smaller buffers"));
	kolo_zero_plan_destroy(plan);
	kolo_zero_device_close(c.device);
	kolo_comm_destroy(comm);
}

/* In one tensor of so many elements. Returns what it comes to in host memory. */
static size_t plan_host(size_t n, struct kolo_zero_plan **out)
{
	struct kolo_zero_tensor tensor = {
		.name = "large", .shape = { n }, .ndims = 1, .type = KOLO_F32
	};
	struct kolo_zero_memory m;
	struct kolo_zero_config c;
	size_t sum = 0;

	kolo_zero_config_init(&c);
	CHECK(kolo_zero_plan_create(&c, &tensor, 1, 0, 4, out) == 0);
	for (int k = 0; kolo_zero_plan_memory_get(*out, k, &m) == 0; k++)
		sum += strcmp(m.place, "host") == 0 ? m.expected : 0;
	return sum;
}

/* What fits for one fits not for four of a host. */
static void share_the_host(struct t_rank *t)
{
	const size_t *n = t->arg;
	struct kolo_zero_tensor tensor = {
		.name = "large", .shape = { *n }, .ndims = 1, .type = KOLO_F32
	};
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	CHECK(kolo_zero_create(comm, &c, &tensor, 1, &zero) == KOLO_ENOMEM && !zero);
	CHECK(strncmp(kolo_last_error(), "rank 0: needs", strlen("rank 0: needs")) == 0);
	CHECK(strstr(kolo_last_error(), "of host memory, other ranks here") &&
	      strstr(kolo_last_error(), "are available") &&
	      strstr(kolo_last_error(), "stage 1 shards"));
	/* A budget is a rank's own. */
	c.host_budget = 1;
	CHECK(kolo_zero_create(comm, &c, &tensor, 1, &zero) == KOLO_ENOMEM && !zero);
	CHECK(!strstr(kolo_last_error(), "other ranks") &&
	      strstr(kolo_last_error(), "are its budget"));
	kolo_comm_destroy(comm);
}

static void ranks_of_a_host_share_its_memory(void **state)
{
	size_t available = 0, n = (size_t)1 << 24;
	FILE *file = fopen("/proc/meminfo", "re");
	struct kolo_zero_plan *plan;
	char line[128];

	(void)state;
	CHECK(file);
	while (fgets(line, sizeof(line), file) &&
	       sscanf(line, "MemAvailable: %zu kB", &available) != 1)
		continue;
	fclose(file);
	CHECK(available);
	n = (size_t)(0.5 * (double)n * 1024 * (double)available / (double)plan_host(n, &plan));
	kolo_zero_plan_destroy(plan);
	plan_host(n, &plan);
	CHECK(kolo_zero_plan_check(plan) == 0);
	kolo_zero_plan_destroy(plan);
	t_processes(4, share_the_host, &n);
}

static void a_model_of_four_arenas_trains(void **state)
{
	(void)state;
	t_processes(1, four_times_the_arena, NULL);
	t_processes(2, four_times_the_arena, NULL);
}

/* ---- Pinned ---------------------------------------------------------------------------------- */

static size_t locked_bytes(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	size_t kib = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmLck: %zu", &kib) == 1)
			break;
	fclose(file);
	return kib << 10;
}

static void pin_to_the_page(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int pin = 0; pin < 2; pin++)
		for (int stage = 1; stage <= 3; stage++) {
			size_t before = locked_bytes(), pinned = 0;
			struct kolo_zero_device_info info;
			struct kolo_zero_memory m;
			struct kolo_zero_config c;
			struct kolo_zero *zero;

			kolo_zero_config_init(&c);
			c.stage = stage;
			c.offload_optimizer.place = KOLO_ZERO_ON_HOST;
			c.offload_param.place =
				stage == 3 ? KOLO_ZERO_ON_HOST : KOLO_ZERO_ON_DEVICE;
			c.offload_optimizer.pin = c.offload_param.pin = pin;
			CHECK(kolo_zero_arena_open(64 * MIB, 0, &c.device) == 0);
			CHECK(stack_create(comm, &c, KOLO_BF16, &zero) == 0);
			for (int row = 0; kolo_zero_memory_get(zero, row, &m) == 0; row++) {
				pinned += m.pinned;
				CHECK(m.pinned == 0 ||
				      (m.pinned >= m.bytes && m.pinned < m.bytes + 4096));
			}
			kolo_zero_device_get(c.device, &info);
			CHECK(info.pinned == pinned && (pinned > 0) == pin);
			if (!t_is_slow()) /* a sanitizer locks nothing */
				CHECK(locked_bytes() - before == pinned);
			kolo_zero_destroy(zero);
			CHECK(locked_bytes() == before);
			kolo_zero_device_close(c.device);
		}
	kolo_comm_destroy(comm);
}

static void pinned_bytes_are_those_that_are_told(void **state)
{
	(void)state;
	t_processes(2, pin_to_the_page, NULL);
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* Saved in one way and loaded in another one, training goes on to the same bits. */
static void resume_elsewhere(struct t_rank *t)
{
	static const size_t pairs[][2] = { { 10, 5 },  { 2, 9 },  { 7, 13 },
					   { 12, 16 }, { 14, 0 }, { 0, 11 } };
	struct kolo_comm *comm = t_comm(t);
	const char *path = t->arg;
	char saved[128];

	snprintf(saved, sizeof(saved), "%s/saved", path);
	for (size_t i = 0; has_files(comm) && i < ARRAY_LEN(pairs); i++) {
		struct bits b = { KOLO_BF16, 1,    i % 2 ? KOLO_ZERO_ADAGRAD : KOLO_ZERO_ADAMW,
				  "",        NULL, 0,
				  0 };
		struct kolo_zero_config from = config_of(&b), to = config_of(&b);
		int stage = 1 + (int)i % 3;
		struct kolo_zero *a, *z;
		uint64_t hash;

		apply(&ways[pairs[i][0]], stage, path, &from);
		apply(&ways[pairs[i][1]], 3 - (int)i % 3, path, &to);
		CHECK(stack_create(comm, &from, b.type, &a) == 0);
		for (int k = 0; k < 4; k++)
			CHECK(stack_step(a, &from, b.type, t->rank, k, NULL) == 0);
		CHECK(kolo_zero_save(a, saved, 1, NULL, 0) == 0);
		CHECK(stack_create(comm, &to, b.type, &z) == 0);
		CHECK(kolo_zero_load(z, saved, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
		for (int k = 4; k < 8; k++) {
			CHECK(stack_step(a, &from, b.type, t->rank, k, NULL) == 0);
			CHECK(stack_step(z, &to, b.type, t->rank, k, NULL) == 0);
		}
		hash = stack_hash(a, from.device, b.type);
		CHECK(stack_hash(z, to.device, b.type) == hash);
		kolo_zero_destroy(a);
		kolo_zero_destroy(z);
		kolo_zero_device_close(from.device);
		kolo_zero_device_close(to.device);
		CHECK(kolo_barrier(comm, NULL) == 0);
		if (t->rank == 0)
			remove_directory(saved);
		CHECK(kolo_barrier(comm, NULL) == 0);
	}
	kolo_comm_destroy(comm);
}

static void a_checkpoint_does_not_know_where_state_was(void **state)
{
	char path[64];

	(void)state;
	make_directory(path);
	for (int n = t_is_slowest() ? 2 : 1; n <= (t_is_slowest() ? 2 : 3); n += 2)
		t_processes(n, resume_elsewhere, path);
	CHECK(rmdir(path) == 0);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

/* The only file of state in a directory. */
static int open_state(const char *path)
{
	char command[256], name[200] = "";
	FILE *pipe;
	int fd;

	snprintf(command, sizeof(command), "ls %s/*.state", path);
	pipe = popen(command, "r");
	CHECK(pipe && fscanf(pipe, "%199s", name) == 1);
	pclose(pipe);
	fd = open(name, O_RDWR);
	CHECK(fd >= 0);
	return fd;
}

static void cut_file(const char *path)
{
	int fd = open_state(path);

	CHECK(ftruncate(fd, 3 * 4096) == 0);
	close(fd);
}

/* As on a disk that gives room when it is written: what the file had goes, and another file takes
 * all. */
static void fill_disk(const char *path)
{
	static const char bytes[1 << 16];
	int fd = open_state(path), other;
	struct stat s;
	char name[128];

	CHECK(fstat(fd, &s) == 0);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, s.st_size) == 0);
	close(fd);
	snprintf(name, sizeof(name), "%s/other", path);
	other = open(name, O_WRONLY | O_CREAT, 0600);
	CHECK(other >= 0);
	while (write(other, bytes, sizeof(bytes)) > 0)
		;
	close(other);
}

/* State is lost: the error names the file, the engine refuses, and another one goes on from the
 * checkpoint to the same bits. */
static void lose_state(struct kolo_comm *comm, const char *path, const char *saved,
		       void (*lose)(const char *path), const char *want)
{
	struct bits b = { KOLO_BF16, 1, KOLO_ZERO_ADAMW, "", NULL, 0, 0 };
	struct kolo_zero_config c = config_of(&b);
	char first[512], other[128];
	struct kolo_zero *zero;
	uint64_t hash;

	apply(&ways[13], 2, path, &c);
	CHECK(stack_create(comm, &c, b.type, &zero) == 0);
	for (int k = 0; k < 3; k++)
		CHECK(stack_step(zero, &c, b.type, 0, k, NULL) == 0);
	CHECK(kolo_zero_save(zero, saved, 1, NULL, 0) == 0);
	CHECK(stack_step(zero, &c, b.type, 0, 3, NULL) == 0);
	hash = stack_hash(zero, c.device, b.type);
	lose(path);
	CHECK(stack_step(zero, &c, b.type, 0, 4, NULL) == KOLO_ESYS);
	snprintf(first, sizeof(first), "%s", kolo_last_error());
	CHECK(strstr(first, path) && strstr(first, "optimizer") && strstr(first, want));
	CHECK(kolo_zero_forward(zero, 1) == KOLO_ESYS);
	kolo_zero_destroy(zero);
	snprintf(other, sizeof(other), "%s/other", path);
	unlink(other);
	CHECK(stack_create(comm, &c, b.type, &zero) == 0);
	CHECK(kolo_zero_load(zero, saved, KOLO_ZERO_LOAD_ALL, NULL, NULL) == 0);
	CHECK(stack_step(zero, &c, b.type, 0, 3, NULL) == 0);
	CHECK(stack_hash(zero, c.device, b.type) == hash);
	kolo_zero_destroy(zero);
	remove_directory(saved);
}

/* A disk of a few MiB takes the directory's place, for this process. */
static bool mount_disk(const char *path)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("kolo", path, "tmpfs", 0, "size=4m") == 0;
}

static void lose_files(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	const char *path = t->arg;
	char saved[128], disk[128];

	snprintf(saved, sizeof(saved), "%s/saved", path);
	snprintf(disk, sizeof(disk), "%s/disk", path);
	CHECK(mkdir(disk, 0700) == 0);
	if (has_files(comm))
		lose_state(comm, path, saved, cut_file, "truncated");
	if (!has_files(comm)) {
		printf("# this build has no files for state\n");
	} else if (mount_disk(disk)) {
		lose_state(comm, disk, saved, fill_disk, "No space left");
		CHECK(umount2(disk, MNT_DETACH) == 0);
	} else {
		printf("# a disk that fills up is left out: %s\n", strerror(errno));
	}
	CHECK(rmdir(disk) == 0);
	kolo_comm_destroy(comm);
}

static void a_lost_file_costs_the_steps_since_the_checkpoint(void **state)
{
	char path[64];

	(void)state;
	make_directory(path);
	t_processes(1, lose_files, path);
	CHECK(rmdir(path) == 0);
}

/* The tensor, rank and index of a value that is not finite are told, wherever its state is. */
static void overflow_away(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_result result;
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	float *gradient;
	void *memory;

	kolo_zero_config_init(&c);
	c.stage = 2;
	c.offload_optimizer.place = KOLO_ZERO_ON_HOST;
	c.offload_optimizer.ratio = 0.5;
	CHECK(kolo_zero_arena_open(64 * MIB, 0, &c.device) == 0);
	CHECK(stack_create(comm, &c, KOLO_F32, &zero) == 0);
	CHECK(kolo_zero_device_alloc(c.device, stack_size(0) * sizeof(float), "a gradient",
				     &memory) == 0);
	gradient = memory;
	for (int k = 0; k < 2; k++) {
		size_t bad = k ? stack_size(0) - 1 : 5;
		uint64_t hash = stack_hash(zero, c.device, KOLO_F32);

		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 1) == 0);
		/* Finite on each rank, not in the sum. */
		gradient[bad] = k ? __builtin_inff() : 3e38f;
		if (k == 0 && t->nranks > 1)
			gradient[bad] = 3.4e38f * (float)t->nranks;
		CHECK(give(zero, 0, gradient) == 0);
		gradient[bad] = 0;
		CHECK(kolo_zero_step(zero, &result) == 0);
		CHECK(result.skipped == (k == 1 || t->nranks > 1));
		if (result.skipped) {
			CHECK(strstr(result.overflow, "'wide'"));
			CHECK(stack_hash(zero, c.device, KOLO_F32) == hash);
		}
	}
	CHECK(strstr(result.overflow, "index 40960"));
	kolo_zero_device_free(c.device, memory, stack_size(0) * sizeof(float));
	kolo_zero_destroy(zero);
	kolo_zero_device_close(c.device);
	kolo_comm_destroy(comm);
}

static void an_overflow_is_found_wherever_it_is(void **state)
{
	(void)state;
	t_processes(1, overflow_away, NULL);
	t_processes(2, overflow_away, NULL);
}

static void refuse(struct kolo_comm *comm, const struct kolo_zero_config *c, int code,
		   const char *want)
{
	struct kolo_zero *zero;

	CHECK(stack_create(comm, c, KOLO_BF16, &zero) == code && zero == NULL);
	if (!strstr(kolo_last_error(), want))
		fprintf(stderr, "# want '%s', got '%s'\n", want, kolo_last_error());
	CHECK(strstr(kolo_last_error(), want));
}

static void make_mistakes(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config good, c;
	struct kolo_zero_plan *plan;
	struct kolo_zero_tensor tensors[STACK_TENSORS];

	kolo_zero_config_init(&good);
	good.stage = 2;
	good.offload_optimizer.place = KOLO_ZERO_ON_HOST;
	c = good, c.stage = 0;
	refuse(comm, &c, KOLO_EINVAL, "offload_optimizer at stage 0");
	c = good, c.offload_param.place = KOLO_ZERO_ON_HOST;
	refuse(comm, &c, KOLO_EINVAL, "offload_param at stage 2");
	c = good, c.offload_optimizer.place = KOLO_ZERO_ON_NVME;
	refuse(comm, &c, KOLO_EINVAL, "without a path");
	c.offload_optimizer.path = "/nowhere/at/all";
	if (has_files(comm))
		refuse(comm, &c, KOLO_ESYS, "/nowhere/at/all");
	c = good, c.offload_optimizer.place = (enum kolo_zero_place)7;
	refuse(comm, &c, KOLO_EINVAL, "place is 7");
	c = good, c.offload_optimizer.ratio = 1.5;
	refuse(comm, &c, KOLO_EINVAL, "ratio is 1.5");
	c = good, c.offload_optimizer.ratio = __builtin_nan("");
	refuse(comm, &c, KOLO_EINVAL, "ratio is");
	c = good, c.offload_optimizer.buffers = 1;
	refuse(comm, &c, KOLO_EINVAL, "buffers is 1");
	c = good, c.offload_optimizer.buffer = 0;
	refuse(comm, &c, KOLO_EINVAL, "buffer is 0");
	c = good, c.offload_param.pin = 2;
	refuse(comm, &c, KOLO_EINVAL, "offload_param.pin is 2");
	c = good, c.offload_param.reserved[2] = 1;
	refuse(comm, &c, KOLO_EINVAL, "reserved");
	c = good, c.threads = -1;
	refuse(comm, &c, KOLO_EINVAL, "threads is -1");
	c = good, c.io_block = 4097;
	refuse(comm, &c, KOLO_EINVAL, "io_block");
	describe_stack(KOLO_F32, tensors);
	CHECK(kolo_zero_plan_create(&good, tensors, STACK_TENSORS, 2, 2, &plan) == KOLO_EINVAL &&
	      !plan);
	CHECK(kolo_zero_plan_create(&c, tensors, STACK_TENSORS, 0, 2, &plan) == KOLO_EINVAL &&
	      !plan);
	CHECK(kolo_zero_plan_check(NULL) == KOLO_EINVAL);
	kolo_comm_destroy(comm);
}

static void mistakes_are_named(void **state)
{
	(void)state;
	t_processes(1, make_mistakes, NULL);
}

/* Copies are under way when an engine goes. */
static void leave_early(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int k = 0; k < 6; k++) {
		struct bits b = { KOLO_BF16, 1, KOLO_ZERO_ADAMW, "", NULL, 0, 0 };
		struct kolo_zero_config c = config_of(&b);
		struct kolo_zero *zero;
		void *gradient;

		apply(&ways[4], 1 + k % 3, "", &c);
		c.overlap = 1;
		kolo_zero_device_close(c.device);
		CHECK(kolo_zero_arena_open(64 * MIB, 2e7, &c.device) == 0);
		CHECK(stack_create(comm, &c, b.type, &zero) == 0);
		CHECK(stack_step(zero, &c, b.type, t->rank, 0, NULL) == 0);
		CHECK(kolo_zero_device_alloc(c.device, stack_size(0) * 2, "a gradient",
					     &gradient) == 0);
		if (k >= 3) {
			CHECK(kolo_zero_forward(zero, 1) == 0);
			CHECK(kolo_zero_use(zero, 0, NULL) == 0);
			CHECK(kolo_zero_backward(zero, 1) == 0);
			CHECK(kolo_zero_gradient(zero, 0, gradient) == 0);
		}
		CHECK(kolo_barrier(comm, NULL) == 0);
		kolo_zero_destroy(zero);
		kolo_zero_device_close(c.device);
	}
	kolo_comm_destroy(comm);
}

static void an_engine_may_go_while_copies_are_under_way(void **state)
{
	(void)state;
	t_processes(2, leave_early, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_same_bits_wherever_f32_is),
	cmocka_unit_test(the_same_bits_wherever_bf16_is),
	cmocka_unit_test(the_same_bits_wherever_f16_is_added_up),
	cmocka_unit_test(the_same_bits_with_every_optimizer),
	cmocka_unit_test(the_same_bits_on_a_gpu),
	cmocka_unit_test(values_come_from_files_beside_what_was_read_ahead),
	cmocka_unit_test(each_byte_crosses_once_in_an_update),
	cmocka_unit_test(counting_begins_with_the_first_step),
	cmocka_unit_test(a_plan_is_what_the_engine_does),
	cmocka_unit_test(a_model_of_four_arenas_trains),
	cmocka_unit_test(ranks_of_a_host_share_its_memory),
	cmocka_unit_test(pinned_bytes_are_those_that_are_told),
	cmocka_unit_test(a_checkpoint_does_not_know_where_state_was),
	cmocka_unit_test(a_lost_file_costs_the_steps_since_the_checkpoint),
	cmocka_unit_test(an_overflow_is_found_wherever_it_is),
	cmocka_unit_test(mistakes_are_named),
	cmocka_unit_test(an_engine_may_go_while_copies_are_under_way),
};

T_MAIN(tests)
