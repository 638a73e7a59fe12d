/* The engine on a small model: the same bits at every stage and however it travels, one rank's
 * result, uneven batches, optimizer settings, and what goes wrong. */
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"
#include "tests/zero/step/mlp.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 12, STEPS = 50, SLOW_STEPS = 4, MOST_RANKS = 4 };

static int steps(void)
{
	return t_is_slow() ? SLOW_STEPS : STEPS;
}

static int most_ranks(void)
{
	return t_is_slowest() ? 2 : MOST_RANKS;
}

/* What a training run ends with. */
struct outcome {
	double losses[STEPS];
	double norms[STEPS];
	float masters[MLP_ROOM]; /* of all tensors */
};

/* Memory that the forked ranks and the test share. */
static void *shared(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static struct kolo_zero_config config_of(int stage)
{
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.stage = stage;
	c.overlap = 0;
	return c;
}

static struct kolo_zero *create(struct kolo_comm *comm, const struct kolo_zero_config *config,
				enum kolo_type type)
{
	struct kolo_zero_tensor tensors[MLP_TENSORS];
	struct kolo_zero *zero;

	mlp_tensors(tensors, type);
	CHECK(kolo_zero_create(comm, config, tensors, MLP_TENSORS, &zero) == 0);
	mlp_init(zero);
	return zero;
}

static void get_masters(struct kolo_zero *zero, float *out)
{
	for (int i = 0; i < MLP_TENSORS; out += mlp_size(i), i++)
		CHECK(kolo_zero_get(zero, i, out) == 0);
}

/* Trains on BATCH samples for each micro-step, split evenly over the ranks. */
static void train(struct kolo_comm *comm, const struct kolo_zero_config *config,
		  enum kolo_type type, int nsteps, struct outcome *out)
{
	size_t per_rank = BATCH / (size_t)kolo_comm_nranks(comm),
	       sample = (size_t)kolo_comm_rank(comm) * per_rank;
	struct kolo_zero_config c = *config;
	struct kolo_zero *zero;

	c.micro_batch = per_rank;
	zero = create(comm, &c, type);
	memset(out, 0, sizeof(*out));
	for (int step = 0; step < nsteps; step++) {
		for (int micro = 0; micro < c.accumulation; micro++, sample += BATCH) {
			struct kolo_zero_result result;

			CHECK(mlp_micro_step(zero, type, sample, per_rank, (float)c.loss_scale,
					     (unsigned)(step + kolo_comm_rank(comm))) == 0);
			CHECK(kolo_zero_step(zero, &result) == 0);
			CHECK(result.updated == (micro == c.accumulation - 1) && !result.skipped);
			out->losses[step] = result.loss;
			out->norms[step] = result.norm;
		}
	}
	get_masters(zero, out->masters);
	kolo_zero_destroy(zero);
}

/* ---- The same bits --------------------------------------------------------------------------- */

static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };

/* The first outcome for a number of ranks and a type, with which others are compared. */
struct references {
	struct outcome of[MOST_RANKS + 1][ARRAY_LEN(types)]
			 [2]; /* the last index: with accumulation, stages 0 and 1, or 2 and 3 */
	int have[MOST_RANKS + 1][ARRAY_LEN(types)][2];
	const char *transport;
	int accumulation;
};

static void compare_with_reference(struct kolo_comm *comm, struct references *refs, size_t type,
				   int pair, const struct outcome *out)
{
	int nranks = kolo_comm_nranks(comm), *have = &refs->have[nranks][type][pair];
	struct outcome *ref = &refs->of[nranks][type][pair];

	if (!*have) {
		CHECK(kolo_barrier(comm, NULL) == 0);
		if (kolo_comm_rank(comm) == 0)
			*ref = *out;
		CHECK(kolo_barrier(comm, NULL) == 0);
		*have = 1;
	}
	CHECK(memcmp(ref, out, sizeof(*out)) == 0);
}

/* Buckets of all sizes: the least, less than the largest tensor, and all of them together; on a
 * named transport the second alone. A sample: each stage with each type, for its overlaps and
 * buckets have four sums; so has each pair of those with each type. */
static void every_way(struct t_rank *t)
{
	static const size_t buckets[] = { 1024, 1500, 1 << 20 };
	struct references *refs = t->arg;
	struct kolo_comm *comm =
		t_comm_with(t, (struct kolo_comm_attr){ .transport = refs->transport,
							.timeout_s = T_PATIENCE / 2 });
	struct outcome out;

	for (size_t type = 0; type < ARRAY_LEN(types); type++) {
		for (int way = 0; way < 4 * 2 * 3; way++) {
			struct kolo_zero_config c = config_of(way % 4);

			if (refs->transport && way / 8 != 1)
				continue;
			if (!t_sampled((uint64_t)(way % 4 + way / 4 % 2 + way / 8 + t->nranks) +
					       type,
				       3))
				continue;
			c.overlap = way / 4 % 2;
			c.reduce_bucket = c.gather_bucket = buckets[way / 8];
			c.accumulation = refs->accumulation;
			train(comm, &c, types[type], steps() / refs->accumulation, &out);
			compare_with_reference(comm, refs, type, c.accumulation > 1 && c.stage >= 2,
					       &out);
		}
	}
	kolo_comm_destroy(comm);
}

static double relative(double a, double b)
{
	return fabs(a - b) / fabs(b);
}

static void stages_buckets_overlap_and_transports_give_the_same_bits(void **state)
{
	static const char *const transports[] = { NULL, "ofi" };
	struct references *refs = shared(sizeof(*refs));

	(void)state;
	refs->accumulation = 1;
	for (int nranks = 1; nranks <= most_ranks(); nranks++) {
		for (size_t i = 0; i < ARRAY_LEN(transports); i++) {
			if (i && (nranks == 1 || t_is_slow() || !t_has_transport("ofi")))
				continue;
			refs->transport = transports[i];
			t_processes(nranks, every_way, refs);
		}
		/* One rank on the same samples. */
		CHECK(relative(refs->of[nranks][0][0].losses[steps() - 1],
			       refs->of[1][0][0].losses[steps() - 1]) < 1e-4);
	}
	munmap(refs, sizeof(*refs));
}

static void with_accumulation_stages_agree_in_pairs(void **state)
{
	struct references *refs = shared(sizeof(*refs));

	(void)state;
	refs->accumulation = 4;
	for (int nranks = t_is_slowest() ? 2 : 1; nranks <= most_ranks();
	     nranks += t_is_slow() ? 2 : 1) {
		refs->transport = NULL;
		t_processes(nranks, every_way, refs);
		refs->transport = "ofi";
		if (nranks == 2 && !t_is_slow() && t_has_transport("ofi"))
			t_processes(nranks, every_way, refs);
		for (size_t type = 0; type < ARRAY_LEN(types); type++) {
			const struct outcome *first = refs->of[nranks][type];
			double most = 0;

			for (int s = 0; s < steps() / refs->accumulation; s++)
				most = fmax(most, relative(first[0].losses[s], first[1].losses[s]));
			printf("# %d ranks, %s: stages 0 and 1 against 2 and 3: %.2g of the loss\n",
			       nranks, kolo_type_name(types[type]), most);
			CHECK(types[type] != KOLO_F32 || most < 1e-6);
		}
	}
	munmap(refs, sizeof(*refs));
}

/* The ways that DeepSpeed's keys name beside the plain one, and limits of all kinds. */
static void other_ways(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	static _Thread_local struct outcome plain, out;

	for (size_t type = 0; type < 2; type++) {
		struct kolo_zero_config c = config_of(0);

		train(comm, &c, types[type], steps(), &plain);
		for (int way = 0; way < 10; way++) {
			c = config_of(way < 5 ? 2 : 3);
			c.overlap = way != 2;
			c.contiguous = way != 0;
			c.reduce_scatter = way != 1;
			c.allgather = way != 2;
			c.sub_group = way == 3 ? 5 : 0;
			c.reduce_bucket = way == 4 ? 1024 : 1100;
			c.persistence = way == 5 ? 20 : way == 6 ? 1000 : 0;
			c.prefetch = way == 7 ? 0 : way == 8 ? 100 : 1000;
			c.max_live = way == 8 ? 250 : 1000;
			c.reuse_distance = way == 9 ? 100 : 0;
			train(comm, &c, types[type], steps(), &out);
			CHECK(memcmp(&plain, &out, sizeof(out)) == 0);
		}
	}
	kolo_comm_destroy(comm);
}

static void slower_ways_and_limits_give_the_same_bits(void **state)
{
	(void)state;
	t_processes(3, other_ways, NULL);
	t_threads(2, other_ways, NULL);
}

/* Tensors that have operations of their own, even and uneven, between small ones, of two types: a
 * step of SGD on gradients that a formula gives. */
enum { NLARGE = 6, LARGEST = 131072 };
static const size_t large_sizes[NLARGE] = { 65536 + 3, 100, LARGEST, 7, 66000, 31 };

static float large_gradient(int rank, int tensor, size_t i)
{
	return (float)((i * 7 + (size_t)tensor * 3 + (size_t)rank * 5) % 64) / 64;
}

static void step_large(struct kolo_zero *zero, int rank, const enum kolo_type *of, float *room,
		       void *gradient)
{
	CHECK(kolo_zero_forward(zero, 1) == 0);
	for (int i = 0; i < NLARGE; i++) {
		CHECK(kolo_zero_use(zero, i, NULL) == 0 && kolo_zero_release(zero, i) == 0);
	}
	CHECK(kolo_zero_backward(zero, 0) == 0);
	for (int k = 0; k < NLARGE; k++) {
		int i = (k * 5 + rank) % NLARGE;

		for (size_t e = 0; e < large_sizes[i]; e++)
			room[e] = large_gradient(rank, i, e);
		kolo_cast(room, KOLO_F32, gradient, of[i], large_sizes[i], 1);
		CHECK(kolo_zero_gradient(zero, i, gradient) == 0);
	}
	CHECK(kolo_zero_step(zero, NULL) == 0);
}

static void check_large(struct kolo_zero *zero, int nranks, const enum kolo_type *of, float *room)
{
	for (int i = 0; i < NLARGE; i++) {
		const void *p;
		float value;

		CHECK(kolo_zero_get(zero, i, room) == 0 && kolo_zero_use(zero, i, &p) == 0);
		for (size_t e = 0; e < large_sizes[i]; e++) {
			float want = 0;

			for (int r = 0; r < nranks; r++)
				want -= large_gradient(r, i, e) / (float)nranks;
			CHECK(fabsf(room[e] - want) <= (of[i] == KOLO_F32 ? 1e-6f : 1e-2f));
			/* The parameter is its master, rounded. */
			kolo_cast((const char *)p + e * kolo_type_size(of[i]), of[i], &value,
				  KOLO_F32, 1, 1);
			CHECK(fabsf(value - room[e]) <=
			      (of[i] == KOLO_F32 ? 0 : fabsf(room[e]) / 256));
		}
		CHECK(kolo_zero_release(zero, i) == 0);
	}
}

static void large_tensors(struct t_rank *t)
{
	static const char *const names[NLARGE] = { "a", "b", "c", "d", "e", "f" };
	static const enum kolo_type of[NLARGE] = { KOLO_F32, KOLO_BF16, KOLO_BF16,
						   KOLO_F32, KOLO_F32,  KOLO_F32 };
	struct kolo_comm *comm =
		t_comm_with(t, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2 });
	float *room = malloc(LARGEST * sizeof(*room)),
	      *gradient = malloc(LARGEST * sizeof(*gradient));

	for (int way = 0; way < 4 * 2 * 2; way += t_is_slowest() ? 3 : 1) {
		struct kolo_zero_tensor tensors[NLARGE];
		struct kolo_zero_config c = config_of(way % 4);
		struct kolo_zero_group group;
		struct kolo_zero *zero;

		kolo_zero_group_init(&group, KOLO_ZERO_SGD);
		group.lr = 1;
		c.optimizer = KOLO_ZERO_SGD;
		c.groups = &group;
		c.ngroups = 1;
		c.overlap = way / 4 % 2;
		c.reduce_bucket = c.gather_bucket = way / 8 ? 30000 : 1 << 20;
		for (int i = 0; i < NLARGE; i++)
			tensors[i] = (struct kolo_zero_tensor){ .name = names[i],
								.shape = { large_sizes[i] },
								.ndims = 1,
								.type = of[i] };
		CHECK(kolo_zero_create(comm, &c, tensors, NLARGE, &zero) == 0);
		step_large(zero, t->rank, of, room, gradient);
		check_large(zero, t->nranks, of, room);
		kolo_zero_destroy(zero);
	}
	free(room);
	free(gradient);
	kolo_comm_destroy(comm);
}

static void large_tensors_between_small_ones_are_updated(void **state)
{
	(void)state;
	t_processes(2, large_tensors, NULL);
	t_processes(3, large_tensors, NULL);
}

static void all_optimizers_on_all_stages(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	static _Thread_local struct outcome plain, out;

	for (int o = 0; kolo_zero_optimizer_name((enum kolo_zero_optimizer)o); o++) {
		for (int stage = 0; stage < 4; stage++) {
			struct kolo_zero_config c = config_of(stage);
			struct kolo_zero_group group;

			kolo_zero_group_init(&group, (enum kolo_zero_optimizer)o);
			group.momentum = o == KOLO_ZERO_SGD ? 0.9 : 0;
			group.weight_decay = 0.01;
			group.lr = o == KOLO_ZERO_LION ? 1e-3 : 1e-2;
			c.optimizer = (enum kolo_zero_optimizer)o;
			c.groups = &group;
			c.ngroups = 1;
			c.clip = 0.5;
			c.reduce_bucket = 1024;
			c.gather_bucket = 100;
			train(comm, &c, KOLO_BF16, steps(), stage ? &out : &plain);
			CHECK(stage == 0 || memcmp(&plain, &out, sizeof(out)) == 0);
			CHECK(t_is_slow() || plain.losses[STEPS - 1] < 0.7 * plain.losses[0]);
		}
	}
	kolo_comm_destroy(comm);
}

static void every_optimizer_learns_with_the_same_bits_at_every_stage(void **state)
{
	(void)state;
	t_processes(3, all_optimizers_on_all_stages, NULL);
}

static void server_and_ring(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	static struct outcome ring, server;
	struct kolo_zero_config c = config_of(0);

	train(comm, &c, KOLO_F32, steps(), &ring);
	c.parameter_server = 1;
	c.reduce_bucket = 1024;
	train(comm, &c, KOLO_F32, steps(), &server);
	for (int s = 0; s < steps(); s++)
		CHECK(relative(server.losses[s], ring.losses[s]) < 1e-5);
	kolo_comm_destroy(comm);
}

static void a_parameter_server_learns_the_same(void **state)
{
	(void)state;
	t_processes(3, server_and_ring, NULL);
	t_processes(1, server_and_ring, NULL);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

static void the_models_gradient_is_that_of_its_loss(void **state)
{
	float p[MLP_ROOM], grad[MLP_ROOM], ignored[MLP_ROOM];
	uint64_t seed = 9;

	(void)state;
	for (size_t i = 0; i < mlp_total(); i++)
		p[i] = (float)(t_random(&seed) % 2000) / 2000 - 0.5f;
	mlp_loss(p, 3, 6, grad);
	for (size_t i = 0; i < mlp_total() - mlp_size(MLP_TENSORS - 1) - mlp_size(MLP_TENSORS - 2);
	     i++) {
		float kept = p[i], h = 1e-2f;
		double up, down;

		p[i] = kept + h;
		up = mlp_loss(p, 3, 6, ignored);
		p[i] = kept - h;
		down = mlp_loss(p, 3, 6, ignored);
		p[i] = kept;
		CHECK(fabs((up - down) / (2 * (double)h) - (double)grad[i]) <
		      1e-4 + 1e-2 * fabs((double)grad[i]));
	}
}

/* Samples of each rank, which one process has together. */
static const size_t uneven[MOST_RANKS] = { 5, 3, 1, 0 };

static void uneven_rank(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct outcome *one = t->arg;

	for (int stage = 0; stage < 4; stage++) {
		struct kolo_zero_config c = config_of(stage);
		struct kolo_zero *zero;
		float masters[MLP_ROOM];

		c.micro_batch = 4;
		c.overlap = stage % 2;
		zero = create(comm, &c, KOLO_F32);
		for (size_t step = 0, at = 0; step < SLOW_STEPS; step++, at += 9) {
			size_t n = t->nranks == 1 ? 9 : uneven[t->rank], first = at;
			struct kolo_zero_result result;

			for (int r = 0; r < t->rank; r++)
				first += uneven[r];
			CHECK(mlp_micro_step(zero, KOLO_F32, first, n, 1, 0) == 0);
			CHECK(kolo_zero_step(zero, &result) == 0 && result.updated &&
			      result.samples == 9);
			if (t->nranks == 1)
				one->losses[step] = result.loss;
			CHECK(relative(result.loss, one->losses[step]) < 1e-6);
		}
		get_masters(zero, t->nranks == 1 ? one->masters : masters);
		for (size_t i = 0; i < mlp_total() && t->nranks > 1; i++)
			CHECK(fabsf(masters[i] - one->masters[i]) < 1e-5f);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void uneven_batches_equal_the_mean_over_all_samples(void **state)
{
	struct outcome *one = shared(sizeof(*one));

	(void)state;
	t_processes(1, uneven_rank, one);
	t_processes(MOST_RANKS, uneven_rank, one);
	munmap(one, sizeof(*one));
}

/* One tensor that the test feeds by hand. */
static struct kolo_zero *create_one(struct kolo_comm *comm, struct kolo_zero_config *c,
				    enum kolo_type type, size_t n)
{
	struct kolo_zero_tensor tensor = { .name = "w", .shape = { n }, .ndims = 1, .type = type };
	struct kolo_zero *zero;

	CHECK(kolo_zero_create(comm, c, &tensor, 1, &zero) == 0);
	return zero;
}

/* A step in which every rank's gradient of every element is g, in `type`. */
static struct kolo_zero_result feed(struct kolo_zero *zero, enum kolo_type type, size_t n,
				    const float *g)
{
	struct kolo_zero_result result;
	uint32_t bits[64];

	CHECK(kolo_cast(g, KOLO_F32, bits, type, n, 1) == 0);
	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	CHECK(give(zero, 0, bits) == 0);
	CHECK(kolo_zero_step(zero, &result) == 0);
	return result;
}

static void clipping(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	float g[7] = { 3, 0, 0, 4, 0, 0, 0 }, p[7];

	for (int stage = 0; stage < 4; stage++) {
		struct kolo_zero_group group;
		struct kolo_zero_config c = config_of(stage);
		struct kolo_zero_result result;
		struct kolo_zero *zero;

		kolo_zero_group_init(&group, KOLO_ZERO_SGD);
		group.lr = 1;
		c.optimizer = KOLO_ZERO_SGD;
		c.groups = &group;
		c.ngroups = 1;
		c.clip = 0.5;
		c.loss_scale = 8;
		zero = create_one(comm, &c, KOLO_F32, 7);
		result = feed(zero, KOLO_F32, 7, g);
		CHECK(fabs(result.norm - 5.0 / 8) < 1e-6);
		CHECK(kolo_zero_get(zero, 0, p) == 0);
		CHECK(fabsf(p[0] + 0.3f) < 1e-5f && fabsf(p[3] + 0.4f) < 1e-5f && p[1] == 0);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void gradients_are_unscaled_and_clipped(void **state)
{
	(void)state;
	t_processes(3, clipping, NULL);
}

/* Two groups, of which one has its rate changed after the first step; and a frozen tensor. */
static void groups(struct t_rank *t)
{
	struct kolo_zero_tensor tensors[3] = {
		{ .name = "a", .shape = { 5 }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "b", .shape = { 3 }, .ndims = 1, .type = KOLO_F16, .group = 1 },
		{ .name = "c", .shape = { 4 }, .ndims = 1, .type = KOLO_F32, .frozen = 1 },
	};
	struct kolo_comm *comm = t_comm(t);

	for (int stage = 0; stage < 4; stage++) {
		static const float ones[5] = { 1, 1, 1, 1, 1 };
		static const uint16_t halves[3] = { 0x3c00, 0x3c00, 0x3c00 };
		struct kolo_zero_group of[2];
		struct kolo_zero_config c = config_of(stage);
		struct kolo_zero *zero;
		float got[5];

		for (int g = 0; g < 2; g++) {
			kolo_zero_group_init(&of[g], KOLO_ZERO_SGD);
			of[g].lr = g ? 0.5 : 0.25;
			of[g].weight_decay = g ? 0.5 : 0;
		}
		c.optimizer = KOLO_ZERO_SGD;
		c.groups = of;
		c.ngroups = 2;
		CHECK(kolo_zero_create(comm, &c, tensors, 3, &zero) == 0);
		CHECK(kolo_zero_set(zero, 2, 0, 4, ones) == 0);
		for (int step = 0; step < 2; step++) {
			CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
			CHECK(give(zero, 1, halves) == 0);
			CHECK(give(zero, 0, ones) == 0);
			CHECK(kolo_zero_step(zero, NULL) == 0);
			CHECK(kolo_zero_set_lr(zero, 0, 1) == 0);
		}
		CHECK(kolo_zero_get(zero, 0, got) == 0 && got[0] == -1.25f && got[4] == -1.25f);
		/* -0.5, then 0.5 (1 - 0.5 0.5) less. */
		CHECK(kolo_zero_get(zero, 1, got) == 0 && got[0] == -0.875f && got[2] == -0.875f);
		CHECK(kolo_zero_get(zero, 2, got) == 0 && got[0] == 1 && got[3] == 1);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void groups_have_their_own_settings_and_frozen_tensors_stay(void **state)
{
	(void)state;
	t_processes(2, groups, NULL);
}

/* The caller's memory with the first values, of which rank 0's count; and read between updates, as
 * for an evaluation. */
static void own_memory(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	/* The last one: stage 3, and the tensor small enough to be kept. */
	for (int stage = 0; stage < 5; stage++) {
		float values[6] = { 1, 2, 3, 4, 5, (float)t->rank };
		struct kolo_zero_tensor tensor = {
			.name = "w", .shape = { 2, 3 }, .ndims = 2, .type = KOLO_F32, .data = values
		};
		struct kolo_zero_config c = config_of(stage < 4 ? stage : 3);
		const float *p;
		const void *got;
		struct kolo_zero *zero;

		c.overlap = stage % 2;
		c.persistence = stage == 4 ? 6 : 0;
		CHECK(kolo_zero_create(comm, &c, &tensor, 1, &zero) == 0);
		for (int step = 0; step < 2; step++) {
			CHECK(kolo_zero_use(zero, 0, &got) == 0);
			p = got;
			CHECK((p == values) == (stage < 3));
			CHECK(step || (p[0] == 1 && p[4] == 5 && p[5] == 0));
			CHECK(!step || (p[0] < 1 && p[5] < 0));
			CHECK(kolo_zero_release(zero, 0) == 0);
			CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
			CHECK(kolo_zero_gradient(zero, 0, (const float[]){ 1, 1, 1, 1, 1, 1 }) ==
			      0);
			CHECK(kolo_zero_step(zero, NULL) == 0);
		}
		kolo_zero_destroy(zero);
		/* All elements have the last update. */
		for (int i = 0; i < 6 && stage < 3; i++)
			CHECK(fabsf(values[i] - (float)(i < 5 ? i + 1 : 0)) > 1e-4f);
		CHECK(stage < 3 || values[0] == 1);
	}
	kolo_comm_destroy(comm);
}

static void parameters_begin_with_rank_0s_and_may_be_read_between_updates(void **state)
{
	(void)state;
	t_processes(3, own_memory, NULL);
}

/* Of the tensors whose addresses are known. */
static int count_there(const void *const at[3])
{
	int n = 0;

	for (int i = 0; i < 3; i++)
		n += at[i] && t_is_there(at[i]);
	return n;
}

/* Three tensors of a page each. The first micro-step shows the order; then a use brings the next
 * one too, as far as allowed, and what is used again soon stays. */
static void learning(struct t_rank *t)
{
	enum { PAGE = 4096, N = PAGE / sizeof(float) };
	static const char *const names[3] = { "a", "b", "c" };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[3];
	struct kolo_zero_config c = config_of(3);
	const void *at[3] = { NULL };
	struct kolo_zero *zero;

	for (int i = 0; i < 3; i++)
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { N }, .ndims = 1, .type = KOLO_F32
		};
	c.overlap = 1;
	c.prefetch = N / 2; /* less than the next one: it comes, and no further one */
	c.reuse_distance = 1;
	CHECK(kolo_zero_create(comm, &c, tensors, 3, &zero) == 0);
	for (int step = 0; step < 3; step++) {
		/* Uses a, b, c, c; the third step another order, which is learnt anew. */
		static const int orders[3][4] = { { 0, 1, 2, 2 }, { 0, 1, 2, 2 }, { 1, 0, 2, 2 } };
		static const int in_use[3][4] = { { 1, 1, 1, 1 }, { 2, 2, 1, 1 }, { 1, 1, 1, 1 } };
		static const int left[3][4] = { { 0, 0, 0, 0 }, { 1, 1, 1, 0 }, { 0, 0, 0, 0 } };

		CHECK(kolo_zero_forward(zero, 1) == 0);
		for (int i = 0; i < 4; i++) {
			CHECK(kolo_zero_use(zero, orders[step][i], &at[orders[step][i]]) == 0);
			CHECK(count_there(at) == in_use[step][i]);
			CHECK(kolo_zero_release(zero, orders[step][i]) == 0);
			CHECK(count_there(at) == left[step][i]);
		}
		CHECK(kolo_zero_backward(zero, 0) == 0 && kolo_zero_step(zero, NULL) == 0);
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static bool memory_moves(void)
{
	char *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *b = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mremap(a, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, b) == b;
}

/* Behind a tensor's last element is a part of its page that nobody gathers. */
static void leave_a_mark(struct t_rank *t)
{
	enum { PAGE = 4096, N = 1000 };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[2] = {
		{ .name = "a", .shape = { N }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "b", .shape = { N }, .ndims = 1, .type = KOLO_F32 },
	};
	struct kolo_zero_config c = config_of(3);
	const void *a, *b;
	struct kolo_zero *zero;

	CHECK(kolo_zero_create(comm, &c, tensors, 2, &zero) == 0);
	CHECK(kolo_zero_use(zero, 0, &a) == 0);
	((char *)a)[PAGE - 1] = 77;
	CHECK(kolo_zero_release(zero, 0) == 0 && !t_is_there(a));
	CHECK(kolo_zero_use(zero, 1, &b) == 0 && a != b && !t_is_there(a));
	CHECK(((const char *)b)[PAGE - 1] == (memory_moves() ? 77 : 0));
	CHECK(kolo_zero_release(zero, 1) == 0 && !t_is_there(b));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void what_a_tensor_leaves_the_next_one_has(void **state)
{
	(void)state;
	t_processes(2, leave_a_mark, NULL);
}

static void what_comes_next_is_gathered_ahead_and_what_comes_soon_stays(void **state)
{
	(void)state;
	t_processes(2, learning, NULL);
}

/* Steps that are lost in 16 bits alone, and a gradient that survives by its scale. */
static void masters(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_group group;
	struct kolo_zero_config c = config_of(2);
	float one = 1, g = 1e-4f, p;
	struct kolo_zero *zero;

	kolo_zero_group_init(&group, KOLO_ZERO_SGD);
	group.lr = 1;
	c.optimizer = KOLO_ZERO_SGD;
	c.groups = &group;
	c.ngroups = 1;
	zero = create_one(comm, &c, KOLO_F16, 1);
	CHECK(kolo_zero_set(zero, 0, 0, 1, &one) == 0);
	for (int i = 0; i < 100; i++)
		feed(zero, KOLO_F16, 1, &g);
	CHECK(kolo_zero_get(zero, 0, &p) == 0 && fabsf(p - 0.99f) < 1e-4f);
	kolo_zero_destroy(zero);

	c.loss_scale = 65536;
	group.lr = 1e6;
	zero = create_one(comm, &c, KOLO_F16, 1);
	g = 1e-8f * 65536;
	feed(zero, KOLO_F16, 1, &g);
	CHECK(kolo_zero_get(zero, 0, &p) == 0 && fabsf(p + 0.01f) < 1e-5f);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void masters_keep_what_16_bits_lose(void **state)
{
	(void)state;
	t_processes(2, masters, NULL);
}

/* ---- Overflow -------------------------------------------------------------------------------- */

static void overflows(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int way = 0; way < 4 * 2; way++) {
		struct kolo_zero_config c = config_of(way % 4);
		struct kolo_zero_result result;
		float g[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, before[9], after[9];
		struct kolo_zero *zero;

		c.overlap = way / 4;
		zero = create_one(comm, &c, KOLO_F16, 9);
		CHECK(feed(zero, KOLO_F16, 9, g).updated);
		CHECK(kolo_zero_get(zero, 0, before) == 0);
		/* One rank's gradient has an infinity. */
		if (t->rank == 2)
			g[5] = INFINITY;
		result = feed(zero, KOLO_F16, 9, g);
		CHECK(result.skipped && !result.updated && result.step == 1);
		CHECK(strstr(result.overflow, "'w' at index 5 is inf on rank 2"));
		/* The sum has one: 3 ranks of 1/3 of the largest, each rounded up. */
		g[5] = 1;
		g[7] = 65504;
		result = feed(zero, KOLO_F16, 9, g);
		CHECK(result.skipped &&
		      strstr(result.overflow, "'w' at index 7 is inf in the sum"));
		g[7] = 1;
		kolo_zero_destroy(zero);

		/* A skipped step leaves no trace: the next one does what it would have done. */
		zero = create_one(comm, &c, KOLO_F16, 9);
		CHECK(feed(zero, KOLO_F16, 9, g).updated);
		g[8] = NAN;
		CHECK(feed(zero, KOLO_F16, 9, g).skipped);
		CHECK(kolo_zero_get(zero, 0, after) == 0 &&
		      memcmp(before, after, sizeof(after)) == 0);
		g[8] = 1;
		CHECK(feed(zero, KOLO_F16, 9, g).step == 2 && kolo_zero_get(zero, 0, after) == 0);
		kolo_zero_destroy(zero);
		zero = create_one(comm, &c, KOLO_F16, 9);
		CHECK(feed(zero, KOLO_F16, 9, g).updated && feed(zero, KOLO_F16, 9, g).updated);
		CHECK(kolo_zero_get(zero, 0, before) == 0 &&
		      memcmp(before, after, sizeof(after)) == 0);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

/* Sums of micro-steps, and batches of any size, need no more room in 16 bits than one gradient. */
static void no_overflow(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int stage = 0; stage < 4; stage++) {
		struct kolo_zero_config c = config_of(stage);
		struct kolo_zero_result result;
		struct kolo_zero *zero;
		uint16_t large = 0x7800; /* 32768 */

		c.accumulation = 8;
		zero = create_one(comm, &c, KOLO_F16, 1);
		for (int micro = 0; micro < 8; micro++) {
			CHECK(kolo_zero_forward(zero, 32) == 0 && kolo_zero_backward(zero, 2) == 0);
			CHECK(give(zero, 0, &large) == 0);
			CHECK(kolo_zero_step(zero, &result) == 0);
		}
		CHECK(result.updated && fabs(result.norm - 32768) < 1 && result.loss == 2);
		CHECK(result.samples == (size_t)t->nranks * 8 * 32);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void sums_of_micro_steps_need_no_more_room_than_one(void **state)
{
	(void)state;
	t_processes(2, no_overflow, NULL);
}

static void an_overflow_skips_on_all_ranks_and_is_named(void **state)
{
	(void)state;
	t_processes(3, overflows, NULL);
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

/* Touches a released parameter in a process of its own: true when that is what ends it. */
static bool traps(const void *released)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(const volatile char *)released);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

static void misuse(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(3);
	struct kolo_zero *zero = create(comm, &c, KOLO_F32);
	float g[MLP_ROOM] = { 0 };
	const void *p;

	CHECK(says(kolo_zero_backward(zero, 0), KOLO_EINVAL, "forward"));
	CHECK(says(kolo_zero_step(zero, NULL), KOLO_EINVAL, "backward"));
	CHECK(kolo_zero_forward(zero, 1) == 0);
	CHECK(says(kolo_zero_forward(zero, 1), KOLO_EINVAL, "has not ended"));
	CHECK(says(kolo_zero_gradient(zero, 0, g), KOLO_EINVAL, "outside"));
	CHECK(says(kolo_zero_use(zero, MLP_TENSORS, &p), KOLO_EINVAL, "the model has 0 to"));
	CHECK(says(kolo_zero_release(zero, 0), KOLO_EINVAL, "'0.weight'"));
	CHECK(kolo_zero_use(zero, 0, &p) == 0 && kolo_zero_backward(zero, 0) == 0);
	CHECK(kolo_zero_gradient(zero, 0, g) == 0);
	CHECK(says(kolo_zero_gradient(zero, 0, g), KOLO_EINVAL, "twice"));
	CHECK(says(kolo_zero_gradient(zero, 6, g), KOLO_EINVAL, "'scale', which is frozen"));
	CHECK(says(kolo_zero_gradient(zero, 1, NULL), KOLO_EINVAL, "NULL"));
	CHECK(says(kolo_zero_step(zero, NULL), KOLO_EINVAL, "'0.weight' is in use"));
	CHECK(says(kolo_zero_set_lr(zero, 0, 1), KOLO_EINVAL, "middle"));
	CHECK(kolo_zero_release(zero, 0) == 0);
	CHECK(t_is_slow() || traps(p));
	CHECK(kolo_zero_step(zero, NULL) == 0);
	CHECK(kolo_zero_use(zero, 0, &p) == 0);
	CHECK(says(kolo_zero_set(zero, 0, 0, 1, g), KOLO_EINVAL, "'0.weight', which is in use"));
	CHECK(kolo_zero_release(zero, 0) == 0);
	CHECK(says(kolo_zero_set_lr(zero, 1, 1), KOLO_EINVAL, "there are 1 groups"));
	CHECK(says(kolo_zero_set_lr(zero, 0, NAN), KOLO_EINVAL, "lr"));
	CHECK(says(kolo_zero_set_loss_scale(zero, 0), KOLO_EINVAL, "loss scale"));
	CHECK(says(kolo_zero_set(zero, 0, mlp_size(0), 1, g), KOLO_EINVAL, "which has"));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void mistakes_are_errors_and_released_memory_traps(void **state)
{
	(void)state;
	t_processes(2, misuse, NULL);
}

/* What rank 1 passes is wrong, or other than rank 0's; both are told. */
static void wrong_arguments(struct t_rank *t)
{
	static const struct {
		const char *text;
		int status;
	} ways[] = {
		{ "stage is 4", KOLO_EINVAL },
		{ "accumulation is 0", KOLO_EINVAL },
		{ "clip is nan", KOLO_EINVAL },
		{ "another config", KOLO_EMISMATCH },
		{ "'0.bias'", KOLO_EMISMATCH },
		{ "another number of tensors", KOLO_EMISMATCH },
		{ "'1.weight' is of type", KOLO_EINVAL },
		{ "group 3", KOLO_EINVAL },
		{ "two tensors are called", KOLO_EINVAL },
	};
	struct kolo_comm *comm = t_comm(t);

	for (size_t way = 0; way < ARRAY_LEN(ways); way++) {
		struct kolo_zero_tensor tensors[MLP_TENSORS];
		struct kolo_zero_config c = config_of(1);
		int n = MLP_TENSORS, rc, wrong = t->rank == 1;
		struct kolo_zero *zero;

		mlp_tensors(tensors, KOLO_F32);
		c.stage = wrong && way == 0 ? 4 : 1;
		c.accumulation = wrong && way == 1 ? 0 : 1;
		c.clip = wrong && way == 2 ? NAN : 0;
		c.reduce_bucket += wrong && way == 3;
		tensors[1].shape[0] += wrong && way == 4;
		n -= wrong && way == 5;
		tensors[2].type = wrong && way == 6 ? KOLO_I32 : KOLO_F32;
		tensors[3].group = wrong && way == 7 ? 3 : 0;
		tensors[3].name = wrong && way == 8 ? "0.bias" : "1.bias";
		rc = kolo_zero_create(comm, &c, tensors, n, &zero);
		CHECK(zero == NULL);
		CHECK(says(rc, ways[way].status, ways[way].text));
		CHECK(ways[way].status != KOLO_EINVAL || strstr(kolo_last_error(), "rank 1"));
	}
	kolo_comm_destroy(comm);
}

static void wrong_arguments_are_told_to_all_ranks(void **state)
{
	(void)state;
	t_processes(2, wrong_arguments, NULL);
}

/* Tensors of one size, so that only the order tells. */
static void disorder(struct t_rank *t)
{
	struct kolo_zero_tensor tensors[2] = {
		{ .name = "a", .shape = { 8 }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "b", .shape = { 8 }, .ndims = 1, .type = KOLO_F32 }
	};
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(3);
	struct kolo_zero *zero;

	CHECK(kolo_zero_create(comm, &c, tensors, 2, &zero) == 0);
	CHECK(kolo_zero_forward(zero, 1) == 0);
	for (int i = 0; i < 2; i++) {
		int tensor = t->rank == 1 ? 1 - i : i;

		CHECK(kolo_zero_use(zero, tensor, NULL) == 0 &&
		      kolo_zero_release(zero, tensor) == 0);
	}
	CHECK(kolo_zero_backward(zero, 0) == 0);
	CHECK(says(kolo_zero_step(zero, NULL), KOLO_EMISMATCH,
		   "rank 1 used or released its tensors in another order"));
	CHECK(says(kolo_zero_forward(zero, 1), KOLO_EMISMATCH, "another order"));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void ranks_that_use_tensors_in_different_orders_are_told(void **state)
{
	(void)state;
	t_processes(3, disorder, NULL);
}

static void other_rates(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(0);
	float g[1] = { 1 };

	for (int way = 0; way < 2; way++) {
		struct kolo_zero *zero = create_one(comm, &c, KOLO_F32, 1);

		CHECK((way ? kolo_zero_set_lr(zero, 0, 0.1 * t->rank)
			   : kolo_zero_set_loss_scale(zero, 1 + t->rank)) == 0);
		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
		CHECK(give(zero, 0, g) == 0);
		CHECK(says(kolo_zero_step(zero, NULL), KOLO_EMISMATCH,
			   "rank 1 has other learning rates"));
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void ranks_with_different_learning_rates_are_told(void **state)
{
	(void)state;
	t_processes(2, other_rates, NULL);
}

/* ---- Death ----------------------------------------------------------------------------------- */

struct death {
	int stage, overlap;
	_Atomic int64_t at;
};

/* Rank 1 is killed in its backward of the fourth step; the others are told within 2 s. */
static void dying(struct t_rank *t)
{
	struct death *death = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(death->stage);
	struct kolo_zero *zero;
	int rc = 0;

	c.overlap = death->overlap;
	c.reduce_bucket = 1024;
	zero = create(comm, &c, KOLO_F32);
	for (size_t step = 0; rc == 0; step++) {
		if (step == 3 && t->rank == 1) {
			CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
			death->at = t_now_ms();
			raise(SIGKILL);
		}
		rc = mlp_micro_step(zero, KOLO_F32, step * 3 + (size_t)t->rank, 1, 1, 0);
		if (rc == 0)
			rc = kolo_zero_step(zero, NULL);
	}
	CHECK(rc == KOLO_EPEER && strstr(kolo_last_error(), "rank 1"));
	CHECK(t_now_ms() - death->at < 2000);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_killed_rank_is_named_within_two_seconds(void **state)
{
	struct death *death = shared(sizeof(*death));
	int pids[3];

	(void)state;
	for (int way = 0; way < 4 * 2; way++) {
		death->stage = way % 4;
		death->overlap = way / 4;
		t_start(3, dying, death, pids);
		t_wait(3, pids, 1);
	}
	munmap(death, sizeof(*death));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_models_gradient_is_that_of_its_loss),
	cmocka_unit_test(stages_buckets_overlap_and_transports_give_the_same_bits),
	cmocka_unit_test(with_accumulation_stages_agree_in_pairs),
	cmocka_unit_test(slower_ways_and_limits_give_the_same_bits),
	cmocka_unit_test(large_tensors_between_small_ones_are_updated),
	cmocka_unit_test(every_optimizer_learns_with_the_same_bits_at_every_stage),
	cmocka_unit_test(a_parameter_server_learns_the_same),
	cmocka_unit_test(uneven_batches_equal_the_mean_over_all_samples),
	cmocka_unit_test(gradients_are_unscaled_and_clipped),
	cmocka_unit_test(groups_have_their_own_settings_and_frozen_tensors_stay),
	cmocka_unit_test(parameters_begin_with_rank_0s_and_may_be_read_between_updates),
	cmocka_unit_test(what_comes_next_is_gathered_ahead_and_what_comes_soon_stays),
	cmocka_unit_test(what_a_tensor_leaves_the_next_one_has),
	cmocka_unit_test(masters_keep_what_16_bits_lose),
	cmocka_unit_test(an_overflow_skips_on_all_ranks_and_is_named),
	cmocka_unit_test(sums_of_micro_steps_need_no_more_room_than_one),
	cmocka_unit_test(mistakes_are_errors_and_released_memory_traps),
	cmocka_unit_test(wrong_arguments_are_told_to_all_ranks),
	cmocka_unit_test(ranks_that_use_tensors_in_different_orders_are_told),
	cmocka_unit_test(ranks_with_different_learning_rates_are_told),
	cmocka_unit_test(a_killed_rank_is_named_within_two_seconds),
};

T_MAIN(tests)
