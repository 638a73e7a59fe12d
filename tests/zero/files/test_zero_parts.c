/* Checkpoints of several engines (config.world) that have parts of tensors: they have the bytes of
 * one engine's, one loads the other's, and what does not fit together is refused. */
#include "kolo/kolo_zero_checkpoint.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whole tensors, and how two engines divide them: rows of three matrices, columns, the rows of one;
 * or both have all, as the first counts. The last is in the second engine alone. */
enum { FUSED, COLUMNS, ROWS, BOTH, FROZEN, ALONE, TENSORS, LARGEST = 720, UPDATES = 3 };

static const struct {
	const char *name;
	size_t shape[2];
	int dim, fused;
	bool divided;
} tensors[TENSORS] = {
	[FUSED] = { "fused", { 12, 60 }, 0, 3, true },
	[COLUMNS] = { "columns", { 7, 10 }, 1, 0, true },
	[ROWS] = { "rows", { 4, 33 }, 0, 1, true },
	[BOTH] = { "both", { 5, 3 }, 0, 0, false },
	[FROZEN] = { "frozen", { 9, 1 }, 0, 0, false },
	[ALONE] = { "alone", { 11, 2 }, 0, 0, false },
};

/* Mistakes that engine 1 makes. */
enum mistake { NONE, SAME_PART, OTHER_SHAPE, OTHER_CUT };

struct engine {
	int number; /* 0 or 1; -1: the one that has all */
	int stage, replica;
	struct kolo_zero *zero;
	int list[TENSORS], n; /* the tensors that it has */
};

static size_t elements(int t)
{
	return tensors[t].shape[0] * tensors[t].shape[1];
}

/* The index in the whole tensor of element i of a part, by its place in each dimension. */
static size_t whole_index(const struct engine *e, int t, size_t i)
{
	size_t rows = tensors[t].shape[0], columns = tensors[t].shape[1], row, column, each;

	if (e->number < 0 || !tensors[t].divided)
		return i;
	if (tensors[t].dim == 1) {
		each = columns / 2;
		return i / each * columns + (size_t)e->number * each + i % each;
	}
	row = i / columns;
	column = i % columns;
	each = rows / (size_t)(tensors[t].fused ? tensors[t].fused : 1) / 2;
	return ((row / each * 2 + (size_t)e->number) * each + row % each) * columns + column;
}

static size_t here(const struct engine *e, int t)
{
	return e->number >= 0 && tensors[t].divided ? elements(t) / 2 : elements(t);
}

static float value(int t, size_t i)
{
	return (float)sin((double)(i * 3 + (size_t)t * 7));
}

/* ---- Engines --------------------------------------------------------------------------------- */

static int create(struct kolo_comm *comm, struct kolo_comm *world, enum mistake mistake,
		  struct engine *e)
{
	struct kolo_zero_tensor list[TENSORS];
	struct kolo_zero_division divisions[TENSORS];
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.stage = e->stage;
	c.world = world;
	e->n = 0;
	for (int t = 0; t < TENSORS; t++) {
		bool parts = e->number >= 0 && tensors[t].divided;
		struct kolo_zero_tensor *to = &list[e->n];

		if (e->number == 0 && t == ALONE)
			continue;
		divisions[t] = (struct kolo_zero_division){
			.dim = tensors[t].dim,
			.parts = 2,
			.part = mistake == SAME_PART && t == ROWS ? 0 : e->number,
			.fused = mistake == OTHER_CUT && t == FUSED ? 1 : tensors[t].fused,
		};
		*to = (struct kolo_zero_tensor){
			.name = tensors[t].name,
			.shape = { tensors[t].shape[0], tensors[t].shape[1] },
			.ndims = 2,
			.type = t == FROZEN ? KOLO_BF16 : KOLO_F32,
			.frozen = t == FROZEN,
			.replicated = t == BOTH && e->number == 1,
			.division = parts ? &divisions[t] : NULL,
		};
		if (parts)
			to->shape[tensors[t].dim] /= 2;
		if (mistake == OTHER_SHAPE && t == COLUMNS)
			to->shape[0]++;
		e->list[e->n++] = t;
	}
	return kolo_zero_create(comm, &c, list, e->n, &e->zero);
}

static void set_values(struct engine *e, float factor)
{
	float some[LARGEST];

	for (int k = 0; k < e->n; k++) {
		for (size_t i = 0; i < here(e, e->list[k]); i++)
			some[i] = factor * value(e->list[k], whole_index(e, e->list[k], i));
		CHECK(kolo_zero_set(e->zero, k, 0, here(e, e->list[k]), some) == 0);
	}
}

static void update(struct engine *e, int number)
{
	struct kolo_zero_result result;
	float some[LARGEST];

	CHECK(kolo_zero_forward(e->zero, 1) == 0);
	CHECK(kolo_zero_backward(e->zero, 1) == 0);
	for (int k = 0; k < e->n; k++) {
		int t = e->list[k];

		for (size_t i = 0; i < here(e, t); i++)
			some[i] = value(t, whole_index(e, t, i) + (size_t)number) *
				  (float)(1 + e->replica);
		CHECK(t == FROZEN || give(e->zero, k, some) == 0);
	}
	CHECK(kolo_zero_step(e->zero, &result) == 0 && result.updated);
}

/* Whether both have the same values. */
static bool same_values(struct engine *e, struct engine *one)
{
	float part[LARGEST], all[LARGEST];
	bool same = true;

	for (int t = 0, k = 0; t < TENSORS; t++) {
		CHECK(kolo_zero_get(one->zero, t, all) == 0);
		if (e->list[k] != t)
			continue;
		CHECK(kolo_zero_get(e->zero, k++, part) == 0);
		for (size_t i = 0; i < here(e, t); i++)
			same = same && part[i] == all[whole_index(e, t, i)];
	}
	return same;
}

/* Two engines of two ranks each, and one of the same replicas; the latter on a half of the ranks at
 * a time. */
struct setting {
	struct kolo_comm *all, *data, *half;
	struct engine parts, one;
	char dir[64];
};

static void open_setting(struct t_rank *t, struct kolo_comm *all, struct setting *s, int stage)
{
	int number = t->rank % 2, replica = t->rank / 2;

	s->all = all;
	CHECK(kolo_comm_split(s->all, number, replica, &s->data) == 0);
	CHECK(kolo_comm_split(s->all, number, replica, &s->half) == 0);
	s->parts = (struct engine){ .number = number, .stage = stage, .replica = replica };
	s->one = (struct engine){ .number = -1, .stage = 3 - stage, .replica = replica };
	if (t->rank == 0) {
		strcpy(s->dir, "/tmp/kolo-parts-XXXXXX");
		CHECK(mkdtemp(s->dir) != NULL);
	}
	CHECK(kolo_broadcast(s->all, s->dir, s->dir, sizeof(s->dir), KOLO_U8, 0, NULL) == 0);
}

static void close_setting(struct t_rank *t, struct setting *s)
{
	char command[128];

	kolo_zero_destroy(s->parts.zero);
	kolo_zero_destroy(s->one.zero);
	CHECK(kolo_barrier(s->all, NULL) == 0);
	snprintf(command, sizeof(command), "rm -rf %s", s->dir);
	CHECK(t->rank || system(command) == 0);
	kolo_comm_destroy(s->half);
	kolo_comm_destroy(s->data);
}

/* Whether two files in the folder have the same bytes. Entries come in the same order: the tensor
 * that engine 0 lacks is the last one. */
static bool equal_files(const struct setting *s, const char *a, const char *b)
{
	char command[512];

	snprintf(command, sizeof(command), "cmp -s %s/%s %s/%s", s->dir, a, s->dir, b);
	return system(command) == 0;
}

static void path_of(const struct setting *s, const char *name, char out[128])
{
	snprintf(out, 128, "%s/%s", s->dir, name);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void save_and_load(struct t_rank *t, struct kolo_comm *all, int stage)
{
	struct setting s = { 0 };
	char parts[128], one[128], half[8], user[8] = "";
	size_t len = sizeof(user);

	open_setting(t, all, &s, stage);
	CHECK(create(s.data, s.all, NONE, &s.parts) == 0);
	CHECK(create(s.half, NULL, NONE, &s.one) == 0);
	set_values(&s.parts, 1);
	set_values(&s.one, 1);
	for (int u = 0; u < UPDATES; u++) {
		update(&s.parts, u);
		update(&s.one, u);
	}
	CHECK(same_values(&s.parts, &s.one));

	snprintf(half, sizeof(half), "one%d", s.parts.number);
	path_of(&s, "parts", parts);
	path_of(&s, half, one);
	CHECK(kolo_zero_save(s.parts.zero, parts, 1, "place", 5) == 0);
	CHECK(kolo_zero_save(s.one.zero, one, 1, "other", 5) == 0);
	CHECK(kolo_barrier(s.all, NULL) == 0);
	CHECK(equal_files(&s, "parts/step-000000003/weights.safetensors",
			  "one0/step-000000003/weights.safetensors"));
	CHECK(equal_files(&s, "parts/step-000000003/moment2.safetensors",
			  "one0/step-000000003/moment2.safetensors"));

	/* Each loads the other's, after it has forgotten, and goes on with the same values. */
	update(&s.parts, 8);
	set_values(&s.one, 3);
	CHECK(!same_values(&s.parts, &s.one));
	path_of(&s, "one1", one);
	CHECK(kolo_zero_load(s.parts.zero, one, KOLO_ZERO_LOAD_ALL, user, &len) == 0);
	CHECK(len == 5 && memcmp(user, "other", 5) == 0);
	len = sizeof(user);
	CHECK(kolo_zero_load(s.one.zero, parts, KOLO_ZERO_LOAD_ALL, user, &len) == 0);
	CHECK(len == 5 && memcmp(user, "place", 5) == 0);
	CHECK(same_values(&s.parts, &s.one));
	update(&s.parts, 4);
	update(&s.one, 4);
	CHECK(same_values(&s.parts, &s.one));

	/* Weights alone, in another type. */
	path_of(&s, "parts.bf16", parts);
	path_of(&s, s.parts.number ? "one1.bf16" : "one0.bf16", one);
	CHECK(kolo_zero_export(s.parts.zero, parts, KOLO_BF16) == 0);
	CHECK(kolo_zero_export(s.one.zero, one, KOLO_BF16) == 0);
	CHECK(kolo_barrier(s.all, NULL) == 0 && equal_files(&s, "parts.bf16", "one0.bf16"));
	close_setting(t, &s);
}

static void all_stages(struct t_rank *t)
{
	struct kolo_comm *all = t_comm(t);

	for (int stage = 0; stage < 4; stage++)
		save_and_load(t, all, stage);
	kolo_comm_destroy(all);
}

static void one_engine_loads_what_several_wrote_and_the_reverse(void **state)
{
	(void)state;
	t_processes(4, all_stages, NULL);
}

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

/* Flips a byte of the data of tensor "alone", which the second engine has. */
static void damage(const char *dir)
{
	char path[256], byte = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/step-000000001/weights.safetensors", dir);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && pread(fd, &byte, 1, lseek(fd, 0, SEEK_END) - 1) == 1);
	byte ^= 1;
	CHECK(pwrite(fd, &byte, 1, lseek(fd, 0, SEEK_END) - 1) == 1);
	close(fd);
}

static void refuse(struct t_rank *t)
{
	struct kolo_comm *all = t_comm(t);

	for (int mistake = NONE; mistake <= OTHER_CUT; mistake++) {
		struct setting s = { 0 };
		char dir[128];
		int rc;

		open_setting(t, all, &s, 2);
		CHECK(create(s.data, s.all, s.parts.number ? (enum mistake)mistake : NONE,
			     &s.parts) == 0);
		path_of(&s, "x", dir);
		rc = kolo_zero_save(s.parts.zero, dir, 0, NULL, 0);
		if (mistake == SAME_PART)
			CHECK(says(rc, KOLO_EINVAL, "tensor 'rows': part 1 of 2 is in no engine"));
		else if (mistake == OTHER_SHAPE)
			CHECK(says(
				rc, KOLO_EMISMATCH,
				"tensor 'columns': the engine of rank 0 has one of 2 parts of f32 [7, 10], in runs of 5 elements, and that of rank 1 one of 2 parts of f32 [8, 10]"));
		else if (mistake == OTHER_CUT)
			CHECK(says(rc, KOLO_EMISMATCH,
				   "in runs of 120 elements, and that of rank 1"));
		else
			CHECK(rc == 0);
		if (mistake == NONE) {
			update(&s.parts, 0);
			CHECK(kolo_zero_save(s.parts.zero, dir, 0, NULL, 0) == 0);
			if (t->rank == 0)
				damage(dir);
			CHECK(kolo_barrier(s.all, NULL) == 0);
			rc = kolo_zero_load(s.parts.zero, dir, KOLO_ZERO_LOAD_ALL, NULL, NULL);
			CHECK(says(rc, KOLO_ESYS, "damaged: tensor 'alone' does not match"));
			path_of(&s, "x/step-000000000", dir);
			CHECK(kolo_zero_load(s.parts.zero, dir, KOLO_ZERO_LOAD_ALL, NULL, NULL) ==
			      0);
		}
		close_setting(t, &s);
	}
	kolo_comm_destroy(all);
}

static void parts_that_do_not_fit_together_are_refused(void **state)
{
	(void)state;
	t_processes(4, refuse, NULL);
}

static void create_with(struct kolo_comm *comm, struct kolo_zero_division d, bool world,
			const char *text)
{
	struct kolo_zero_tensor tensor = {
		.name = "x", .shape = { 4, 6 }, .ndims = 2, .type = KOLO_F32, .division = &d
	};
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	c.world = world ? comm : NULL;
	CHECK(says(kolo_zero_create(comm, &c, &tensor, 1, &zero), KOLO_EINVAL, text));
}

static void refuse_divisions(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	create_with(comm, (struct kolo_zero_division){ 0, 2, 0, 0 }, false, "config.world is NULL");
	create_with(comm, (struct kolo_zero_division){ 2, 2, 0, 0 }, true,
		    "part 0 of 2 along dimension 2, fused 0, and has 2 dimensions");
	create_with(comm, (struct kolo_zero_division){ 0, 2, 2, 0 }, true, "part 2 of 2");
	create_with(comm, (struct kolo_zero_division){ 0, 0, 0, 0 }, true, "part 0 of 0");
	create_with(comm, (struct kolo_zero_division){ 0, 65537, 0, 0 }, true, "part 0 of 65537");
	create_with(comm, (struct kolo_zero_division){ 0, 2, 0, 3 }, true,
		    "dimension 0 is 4, which 3 fused matrices do not divide");
	kolo_comm_destroy(comm);
}

static void divisions_that_make_no_sense_are_refused(void **state)
{
	(void)state;
	t_processes(1, refuse_divisions, NULL);
}

static const struct CMUnitTest cases[] = {
	cmocka_unit_test(one_engine_loads_what_several_wrote_and_the_reverse),
	cmocka_unit_test(parts_that_do_not_fit_together_are_refused),
	cmocka_unit_test(divisions_that_make_no_sense_are_refused),
};

T_MAIN(cases)
