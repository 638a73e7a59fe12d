/* Several engines that train one model (config.world): one norm, one loss, and updates that all
 * make or none. */
#include "kolo/kolo_zero_device.h"
#include "tests/cuda/gpu.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ranks 0 and 1 have the first two tensors, ranks 2 and 3 the third; one engine has all of them. */
enum { A, B, C, TENSORS, LARGEST = 1500, UPDATES = 4, BAD = 2 };

static const size_t sizes[TENSORS] = { LARGEST, 7, 300 };

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

static bool has(int engine, int tensor)
{
	return engine < 0 || engine == (tensor == C);
}

/* engine -1: all tensors. */
static int create(struct kolo_comm *comm, struct kolo_comm *world, int engine, int stage,
		  struct kolo_zero_config *c, struct kolo_zero **out)
{
	static const char *const names[TENSORS] = { "a", "b", "c" };
	struct kolo_zero_tensor tensors[TENSORS];
	int n = 0;

	for (int t = 0; t < TENSORS; t++)
		if (has(engine, t))
			tensors[n++] = (struct kolo_zero_tensor){ .name = names[t],
								  .shape = { sizes[t] },
								  .ndims = 1,
								  .type = KOLO_F32 };
	c->stage = stage;
	c->world = world;
	return kolo_zero_create(comm, c, tensors, n, out);
}

static struct kolo_zero_config config_of(struct kolo_zero_group *group)
{
	struct kolo_zero_config c;

	kolo_zero_group_init(group, KOLO_ZERO_SGD);
	group->lr = 1;
	kolo_zero_config_init(&c);
	c.optimizer = KOLO_ZERO_SGD;
	c.groups = group;
	c.ngroups = 1;
	c.clip = 0.01;
	c.loss_scale = 0;
	c.scaling.hysteresis = 1;
	return c;
}

/* A step whose gradients are those of a formula. In update BAD that of C is infinite on the second
 * rank. Gives all gradients, except `missing`. */
static int step(struct kolo_zero *zero, int engine, int replica, int update, int missing,
		struct kolo_zero_result *out)
{
	double scale = kolo_zero_loss_scale(zero), loss = 0.5 * replica + update;
	static _Thread_local float gradient[LARGEST];
	int at = 0;

	CHECK(kolo_zero_forward(zero, 2) == 0);
	/* The engine of C knows the loss. */
	CHECK(kolo_zero_backward(zero, has(engine, C) ? loss : NAN) == 0);
	for (int t = 0; t < TENSORS; t++) {
		if (!has(engine, t))
			continue;
		for (size_t i = 0; i < sizes[t]; i++)
			gradient[i] = (float)(scale * sin((double)(i * 3 + (size_t)t * 7) +
							  replica * 5 + update));
		if (t == C && replica == 1 && update == BAD)
			gradient[5] = INFINITY;
		CHECK(t == missing || give(zero, at, gradient) == 0);
		at++;
	}
	return kolo_zero_step(zero, out);
}

static void train(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t), *half, *few;
	struct kolo_zero_result want[UPDATES], got;
	float *whole = calloc(TENSORS * LARGEST, sizeof(*whole)),
	      *mine = calloc(LARGEST, sizeof(*mine));
	int engine = t->rank / 2, replica = t->rank % 2;
	struct kolo_zero_group group;
	struct kolo_zero_config c = config_of(&group);
	struct kolo_zero *zero;

	CHECK(whole && mine);
	CHECK(kolo_comm_split(comm, t->rank / 2, 0, &half) == 0);
	CHECK(kolo_comm_split(comm, t->rank < 2 ? 0 : KOLO_NOCOLOR, 0, &few) == 0);
	if (few) {
		CHECK(create(few, NULL, -1, 1, &c, &zero) == 0);
		for (int u = 0; u < UPDATES; u++)
			CHECK(step(zero, -1, replica, u, -1, &want[u]) == 0);
		for (int i = 0; i < TENSORS; i++)
			CHECK(kolo_zero_get(zero, i, whole + i * LARGEST) == 0);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(few);
	CHECK(kolo_broadcast(comm, want, want, sizeof(want), KOLO_U8, 0, NULL) == 0);
	CHECK(kolo_broadcast(comm, whole, whole, TENSORS * LARGEST, KOLO_F32, 0, NULL) == 0);
	for (int way = 0; way < 4 * 2; way++) {
		c.overlap = way / 4;
		CHECK(create(half, comm, engine, way % 4, &c, &zero) == 0);
		for (int u = 0; u < UPDATES; u++) {
			CHECK(step(zero, engine, replica, u, -1, &got) == 0);
			CHECK(got.updated == (u != BAD) && got.skipped == (u == BAD));
			CHECK(got.loss == want[u].loss && got.samples == want[u].samples);
			CHECK(u == BAD || fabs(got.norm - want[u].norm) < 1e-12 * want[u].norm);
			CHECK(got.loss_scale == want[u].loss_scale && got.step == want[u].step);
			/* Of the rank in world, also where the engine has no such tensor. */
			CHECK(u != BAD ||
			      strcmp(got.overflow,
				     "gradient of tensor 'c' at index 5 is inf on rank 3, micro-step 0") ==
				      0);
		}
		for (int i = 0, at = 0; i < TENSORS; i++) {
			if (!has(engine, i))
				continue;
			CHECK(kolo_zero_get(zero, at++, mine) == 0);
			for (size_t x = 0; x < sizes[i]; x++)
				CHECK(fabs((double)(mine[x] - whole[(size_t)i * LARGEST + x])) <
				      1e-6 * (1e-3 + fabs((double)mine[x])));
		}
		kolo_zero_destroy(zero);
	}
	free(whole);
	free(mine);
	kolo_comm_destroy(half);
	kolo_comm_destroy(comm);
}

static void engines_of_one_model_have_one_norm_and_one_loss(void **state)
{
	(void)state;
	t_processes(4, train, NULL);
}

/* ---- Tied and replicated tensors ------------------------------------------------------------- */

/* More elements than a few blocks, so that a part of a shard is offloaded. */
enum { E, R, OWN, KINDS, EACH = 20001 };

/* Both engines have e, which is tied, and r, which is replicated; each has a tensor of its own.
 * engine -1 has e, r and both of the others. */
static void create_tied(struct kolo_comm *comm, struct kolo_comm *world, struct kolo_comm *tied,
			int engine, struct kolo_zero_config *c, struct kolo_zero **out)
{
	static const char *const names[] = { "e", "r", "0", "1" };
	struct kolo_zero_tensor tensors[KINDS + 1];
	int n = 0;

	for (int k = 0; k < KINDS + 1; k++) {
		if (k >= OWN && engine >= 0 && k - OWN != engine)
			continue;
		tensors[n++] = (struct kolo_zero_tensor){ .name = names[k],
							  .shape = { EACH },
							  .ndims = 1,
							  .type = KOLO_F32,
							  .tied = k == E && engine >= 0,
							  .replicated = k <= R && engine == 1 };
	}
	c->world = world;
	c->tied = tied;
	CHECK(kolo_zero_create(comm, c, tensors, n, out) == 0);
}

/* Where a model computes: in host memory, in an arena, or on a GPU of threads, which may be older
 * than KOLO_ZERO_WORK_DIGITS. */
enum { ON_HOST, IN_ARENA, ON_GPU, ON_OLDER_GPU, PLACES };

static _Thread_local struct kolo_zero_device_ops older;
static _Thread_local int (*does)(struct kolo_zero_device *, const struct kolo_zero_work *,
				 uint64_t *);

static int do_older_work(struct kolo_zero_device *d, const struct kolo_zero_work *w,
			 uint64_t *ticket)
{
	return w->kind == KOLO_ZERO_WORK_DIGITS ? KOLO_EINVAL : does(d, w, ticket);
}

struct place {
	struct kolo_zero_device *device;
	void *gradient; /* memory for one; NULL: the host's will do */
};

/* What is offloaded of a tied tensor is another part of it in each engine. */
static void take_place(int kind, int engine, struct kolo_zero_config *c, struct place *out)
{
	*out = (struct place){ 0 };
	if (kind >= ON_GPU) {
		t_gpu_use();
		CHECK(kolo_zero_cuda_open(0, &out->device) == 0);
		CHECK(kolo_zero_device_alloc(out->device, EACH * sizeof(float), "a gradient",
					     &out->gradient) == 0);
	} else if (kind == IN_ARENA) {
		CHECK(kolo_zero_arena_open(64 << 20, 0, &out->device) == 0);
	}
	if (kind == ON_OLDER_GPU) {
		older = *out->device->ops;
		does = older.work;
		older.work = do_older_work;
		out->device->ops = &older;
	}
	c->device = out->device;
	if (kind == ON_HOST)
		return;
	c->overlap = 1;
	if (c->stage == 0)
		return;
	c->offload_optimizer.place = KOLO_ZERO_ON_HOST;
	c->offload_optimizer.ratio = engine ? 0.8 : 0.3;
}

static void leave_place(struct kolo_zero_config *c, struct place *p)
{
	kolo_zero_device_free(p->device, p->gradient, EACH * sizeof(float));
	kolo_zero_device_close(p->device);
	c->device = NULL;
	kolo_zero_offload_init(&c->offload_optimizer);
}

/* Gradients whose sums are exact. Of e each engine has another one; the one engine has their
 * sum. */
static void step_tied(struct kolo_zero *zero, int engine, int replica, int micro,
		      const struct place *place, struct kolo_zero_result *out)
{
	static _Thread_local float gradient[EACH];

	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 1) == 0);
	for (int k = 0, at = 0; k < KINDS + 1; k++) {
		if (k >= OWN && engine >= 0 && k - OWN != engine)
			continue;
		for (int i = 0; i < EACH; i++) {
			int of_0 = (i * 7 + k * 3 + replica * 5 + micro) % 64;
			int of_1 = (i * 5 + replica * 3 + micro * 2) % 32;

			gradient[i] = (float)(k != E        ? of_0
					      : engine == 0 ? of_0
					      : engine == 1 ? of_1
							    : of_0 + of_1) /
				      64;
		}
		if (place->gradient)
			CHECK(kolo_zero_device_copy(place->device, KOLO_ZERO_UP, place->gradient,
						    gradient, sizeof(gradient)) == 0);
		CHECK(give(zero, at++, place->gradient ? place->gradient : gradient) == 0);
	}
	CHECK(kolo_zero_step(zero, out) == 0);
}

static void tie(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t), *half, *few, *tied;
	int engine = t->rank / 2, replica = t->rank % 2;
	static _Thread_local float want[KINDS + 1][EACH], got[EACH];
	struct kolo_zero_group group;
	struct kolo_zero_config c = config_of(&group);
	struct kolo_zero_result r, whole;
	struct place place, host = { 0 };
	struct kolo_zero *zero;

	c.loss_scale = 1;
	c.clip = 0.5;
	CHECK(kolo_comm_split(comm, engine, 0, &half) == 0);
	CHECK(kolo_comm_split(comm, replica, 0, &tied) == 0);
	CHECK(kolo_comm_split(comm, t->rank < 2 ? 0 : KOLO_NOCOLOR, 0, &few) == 0);
	for (int way = 0; way < 4 * 2 * 2 * PLACES; way++) {
		c.stage = way % 4;
		c.overlap = way / 4 % 2;
		c.accumulation = 1 + way / 8 % 2;
		if (few) {
			create_tied(few, NULL, NULL, -1, &c, &zero);
			for (int micro = 0; micro < 2 * c.accumulation; micro++)
				step_tied(zero, -1, replica, micro, &host, &whole);
			for (int k = 0; k < KINDS + 1; k++)
				CHECK(kolo_zero_get(zero, k, want[k]) == 0);
			kolo_zero_destroy(zero);
		}
		CHECK(kolo_broadcast(comm, want, want, sizeof(want), KOLO_U8, 0, NULL) == 0);
		CHECK(kolo_broadcast(comm, &whole, &whole, sizeof(whole), KOLO_U8, 0, NULL) == 0);
		take_place(way / 16, engine, &c, &place);
		create_tied(half, comm, tied, engine, &c, &zero);
		for (int micro = 0; micro < 2 * c.accumulation; micro++)
			step_tied(zero, engine, replica, micro, &place, &r);
		CHECK(r.step == 2 && fabs(r.norm - whole.norm) < 1e-12 * whole.norm);
		/* Places and parts don't show. */
		CHECK(way / 16 == ON_OLDER_GPU || r.norm == whole.norm);
		for (int k = 0; k < KINDS; k++) {
			const float *of = want[k == OWN ? OWN + engine : k];

			CHECK(kolo_zero_get(zero, k, got) == 0);
			for (int i = 0; i < EACH; i++)
				CHECK(fabs((double)(got[i] - of[i])) < 1e-6);
			/* Both copies have the same bits. */
			if (k == E) {
				memcpy(want[E], got, sizeof(got));
				CHECK(kolo_broadcast(tied, want[E], want[E], EACH, KOLO_F32, 0,
						     NULL) == 0);
				CHECK(memcmp(want[E], got, sizeof(got)) == 0);
			}
		}
		kolo_zero_destroy(zero);
		leave_place(&c, &place);
		c.world = c.tied = NULL;
	}
	kolo_comm_destroy(few);
	kolo_comm_destroy(tied);
	kolo_comm_destroy(half);
	kolo_comm_destroy(comm);
}

static void tied_tensors_are_one_and_replicated_ones_count_once(void **state)
{
	(void)state;
	t_processes(4, tie, NULL);
}

/* Three engines of one rank each; the first and the last are tied. */
static void tie_the_ends(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t), *alone, *ends;
	struct kolo_zero_tensor x = { .name = "x", .shape = { 8 }, .ndims = 1, .type = KOLO_F32 };
	float gradient[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, got[8];
	struct kolo_zero_group group;
	struct kolo_zero_config c = config_of(&group);
	struct kolo_zero *zero;

	CHECK(kolo_comm_split(comm, t->rank, 0, &alone) == 0);
	CHECK(kolo_comm_split(comm, t->rank == 1 ? KOLO_NOCOLOR : 0, 0, &ends) == 0);
	c.loss_scale = 1;
	c.clip = 0;
	c.world = comm;
	c.tied = ends;
	x.tied = t->rank != 1;
	x.replicated = t->rank == 2;
	CHECK(kolo_zero_create(alone, &c, &x, 1, &zero) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 1) == 0);
		CHECK(give(zero, 0, gradient) == 0 && kolo_zero_step(zero, NULL) == 0);
	}
	CHECK(kolo_zero_get(zero, 0, got) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(got[i] == -2 * (t->rank == 1 ? 1.0f : 2.0f) * gradient[i]);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(ends);
	kolo_comm_destroy(alone);
	kolo_comm_destroy(comm);
}

static void an_engine_between_tied_ones_takes_no_part(void **state)
{
	(void)state;
	t_processes(3, tie_the_ends, NULL);
}

static void refuse_ties(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor x = { .name = "x", .shape = { 8 }, .ndims = 1, .type = KOLO_F32 };
	struct kolo_zero_config c;
	struct kolo_zero *zero;
	struct kolo_comm *alone;

	kolo_zero_config_init(&c);
	x.tied = 1;
	CHECK(says(kolo_zero_create(comm, &c, &x, 1, &zero), KOLO_EINVAL,
		   "tensor 'x' is tied, and config.tied is NULL"));
	x.tied = 0;
	x.replicated = 1;
	CHECK(says(kolo_zero_create(comm, &c, &x, 1, &zero), KOLO_EINVAL,
		   "tensor 'x' is replicated, and config.world is NULL"));
	c.tied = comm;
	x.replicated = 0;
	CHECK(says(kolo_zero_create(comm, &c, &x, 1, &zero), KOLO_EINVAL,
		   "config.tied needs config.world"));
	c.world = comm;
	x.frozen = x.tied = 1;
	CHECK(says(kolo_zero_create(comm, &c, &x, 1, &zero), KOLO_EINVAL,
		   "tensor 'x' is frozen, and replicated or tied"));
	x.frozen = 0;
	x.tied = 2;
	CHECK(says(kolo_zero_create(comm, &c, &x, 1, &zero), KOLO_EINVAL, "tied of a tensor"));
	/* Two engines of one rank each, whose tied tensors differ. */
	x.tied = 1;
	x.shape[0] = t->rank ? 8 : 9;
	CHECK(kolo_comm_split(comm, t->rank, 0, &alone) == 0);
	CHECK(says(kolo_zero_create(alone, &c, &x, 1, &zero), KOLO_EMISMATCH,
		   "the tied tensors of the two engines have another number, size"));
	x.shape[0] = 8;
	if (t->rank)
		CHECK(kolo_zero_arena_open(1 << 20, 0, &c.device) == 0);
	CHECK(says(kolo_zero_create(alone, &c, &x, 1, &zero), KOLO_EMISMATCH,
		   "or one engine has a device"));
	kolo_zero_device_close(c.device);
	kolo_comm_destroy(alone);
	kolo_comm_destroy(comm);
}

static void ties_that_do_not_fit_are_refused(void **state)
{
	(void)state;
	t_processes(2, refuse_ties, NULL);
}

static void disagree(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t), *half;
	int engine = t->rank / 2, replica = t->rank % 2;
	struct kolo_zero_group group;
	struct kolo_zero_config c = config_of(&group);
	struct kolo_zero_result r;
	struct kolo_zero *zero;

	CHECK(kolo_comm_split(comm, t->rank / 2, 0, &half) == 0);
	/* One engine that can't be made: none is. */
	c.clip = t->rank == 3 ? -1 : 0;
	CHECK(says(create(half, comm, engine, 1, &c, &zero), KOLO_EINVAL, "config.clip is -1"));
	CHECK(!zero);
	/* One that lacks a gradient: none updates. */
	c = config_of(&group);
	c.strict = 1;
	CHECK(create(half, comm, engine, 2, &c, &zero) == 0);
	CHECK(says(step(zero, engine, replica, 0, replica ? C : -1, &r), KOLO_EINVAL,
		   engine ? "rank 1 gave fewer gradients of tensor 'c'"
			  : "rank 3, of another engine, gave too few gradients"));
	CHECK(!r.updated && r.step == 0 && r.partial == (unsigned)engine);
	CHECK(step(zero, engine, replica, 0, -1, &r) == 0 && r.updated && r.step == 1);
	/* Other settings are told on all. */
	CHECK(kolo_zero_set_lr(zero, 0, engine ? 1 : 2) == 0);
	CHECK(says(step(zero, engine, replica, 1, -1, &r), KOLO_EMISMATCH,
		   "rank 2 has other learning rates, or another loss scale, micro-batch"));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(half);
	kolo_comm_destroy(comm);
}

static void engines_that_disagree_are_told_on_all_ranks(void **state)
{
	(void)state;
	t_processes(4, disagree, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(engines_of_one_model_have_one_norm_and_one_loss),
	cmocka_unit_test(engines_that_disagree_are_told_on_all_ranks),
	cmocka_unit_test(tied_tensors_are_one_and_replicated_ones_count_once),
	cmocka_unit_test(an_engine_between_tied_ones_takes_no_part),
	cmocka_unit_test(ties_that_do_not_fit_are_refused),
};

T_MAIN(tests)
