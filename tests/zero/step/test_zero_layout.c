/* Who owns what, and what travels together: for every number of ranks, tensors of random sizes. */
#include "tests/lib/t.h"
#include "kolo/kolo_zero_config.h"
#include "kolo/kolo_zero_device.h"
#include "zero/core/layout.h"

#include <stdlib.h>
#include <string.h>

/* What was built against an earlier header keeps running: a new field takes reserved words. */
#define SIZE(name, bytes) _Static_assert(sizeof(struct name) == (bytes), #name)
SIZE(kolo_comm_attr, 112);
SIZE(kolo_stats, 272);
SIZE(kolo_zero_tensor, 128);
SIZE(kolo_zero_config, 472);
SIZE(kolo_zero_result, 344);
SIZE(kolo_zero_progress, 64);
SIZE(kolo_zero_group, 296);
SIZE(kolo_zero_schedule, 184);
SIZE(kolo_zero_offload, 80);
SIZE(kolo_zero_memory, 88);
SIZE(kolo_zero_traffic, 120);
SIZE(kolo_zero_times, 96);
SIZE(kolo_zero_scaling, 64);
SIZE(kolo_zero_model, 184);
SIZE(kolo_zero_settings, 592);
SIZE(kolo_zero_device_info, 96);

enum { MOST_RANKS = 17, MOST_TENSORS = 12, MOST_ELEMENTS = 300 };

static void every_element_has_one_owner(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
		for (size_t n = 0; n < MOST_ELEMENTS; n++) {
			size_t next = 0;

			for (int r = 0; r < nranks; r++) {
				struct zero_part own = zero_owned(n, nranks, r);

				CHECK(own.n <= zero_chunk(n, nranks));
				CHECK(own.n == 0 || own.first == next);
				next += own.n;
			}
			CHECK(next == n);
			/* As all_reduce and reduce_scatter have it: element i belongs to rank i /
			 * ceil(n / nranks). */
			for (size_t i = 0; i < n; i++) {
				struct zero_part own =
					zero_owned(n, nranks, (int)(i / zero_chunk(n, nranks)));

				CHECK(i >= own.first && i < own.first + own.n);
			}
		}
	}
}

struct model {
	struct zero_item items[MOST_TENSORS];
	size_t sizes[MOST_TENSORS];
	int n;
};

static struct model random_model(uint64_t *seed, int nranks)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
	struct model m = { .n = 1 + (int)(t_random(seed) % MOST_TENSORS) };

	for (int i = 0; i < m.n; i++) {
		m.sizes[i] = 1 + t_random(seed) % MOST_ELEMENTS;
		m.items[i] = (struct zero_item){
			i, zero_chunk(m.sizes[i], nranks),
			types[t_random(seed) % 40 < 36 ? 0 : t_random(seed) % 3]
		};
	}
	return m;
}

/* Each element of each tensor is in one piece of its owner's, and pieces fill buckets without gaps
 * or overlaps. */
static void check_plan(const struct zero_plan *p, const struct model *m, int nranks, size_t limit,
		       size_t alone)
{
	unsigned char seen[MOST_TENSORS][MOST_ELEMENTS] = { { 0 } };
	int piece = 0;

	for (int b = 0; b < p->nbuckets; b++) {
		const struct zero_bucket *bucket = &p->buckets[b];
		size_t at = 0;

		CHECK(bucket->first == piece && bucket->n >= 1 && bucket->n <= limit);
		for (; piece < bucket->first + bucket->npieces; piece++) {
			const struct zero_piece *q = &p->pieces[piece];

			CHECK(q->at == at && m->items[q->tensor].type == bucket->type);
			CHECK(m->items[q->tensor].chunk < alone || bucket->npieces == 1);
			at += q->n;
			for (int r = 0; r < nranks; r++) {
				struct zero_part part = zero_part_of(m->sizes[q->tensor], nranks, r,
								     q->first, q->n);

				for (size_t i = part.first; i < part.first + part.n; i++)
					CHECK(seen[q->tensor][i]++ == 0);
			}
			CHECK(bucket->whole ==
			      (bucket->npieces == 1 && q->n == m->items[q->tensor].chunk));
		}
		CHECK(at == bucket->n);
		CHECK(p->largest >= bucket->n * kolo_type_size(bucket->type));
	}
	CHECK(piece == p->npieces);
	for (int i = 0; i < m->n; i++)
		for (size_t k = 0; k < m->sizes[i]; k++)
			CHECK(seen[i][k] == 1);
}

static void plans_cover_every_element_once(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
		for (int trial = 0; trial < 60; trial++) {
			struct model m = random_model(&seed, nranks);
			size_t limit = 1 + t_random(&seed) % (trial % 2 ? 20 : 400);
			size_t alone = trial % 3 ? SIZE_MAX : 1 + t_random(&seed) % 30;
			struct zero_plan plan = { 0 };

			CHECK(zero_plan_make(&plan, m.items, m.n, limit, alone) == 0);
			check_plan(&plan, &m, nranks, limit, alone);
			zero_plan_free(&plan);
		}
	}
}

/* No bucket could take the next piece: as few operations as the limit allows. */
static void buckets_are_as_full_as_they_can_be(void **state)
{
	struct zero_item items[] = { { 0, 10, KOLO_F32 }, { 1, 25, KOLO_F32 }, { 2, 5, KOLO_F32 } };
	struct zero_plan plan = { 0 };

	(void)state;
	CHECK(zero_plan_make(&plan, items, 3, 20, SIZE_MAX) == 0);
	CHECK(plan.nbuckets == 2 && plan.npieces == 4);
	CHECK(plan.buckets[0].n == 20 && plan.buckets[1].n == 20);
	CHECK(plan.pieces[1].tensor == 1 && plan.pieces[1].n == 10 && plan.pieces[1].at == 10);
	CHECK(plan.pieces[2].first == 10 && plan.pieces[2].n == 15 && plan.pieces[2].at == 0);
	zero_plan_free(&plan);
}

/* Adds 1 to a member, asks, and takes it back. */
static bool refuses(const struct zero_plan *plan, const struct zero_item *items, int *member)
{
	bool valid;

	++*member;
	valid = zero_layout_is_valid(plan, items, 3, 20);
	--*member;
	return !valid;
}

static bool refuses_size(const struct zero_plan *plan, const struct zero_item *items,
			 size_t *member)
{
	bool valid;

	++*member;
	valid = zero_layout_is_valid(plan, items, 3, 20);
	--*member;
	return !valid;
}

static void a_broken_layout_is_refused(void **state)
{
	struct zero_item items[] = { { 0, 10, KOLO_F32 }, { 1, 25, KOLO_F32 }, { 2, 5, KOLO_F32 } };
	struct zero_plan plan = { 0 };

	(void)state;
	CHECK(zero_plan_make(&plan, items, 3, 20, SIZE_MAX) == 0);
	CHECK(zero_layout_is_valid(&plan, items, 3, 20) &&
	      !zero_layout_is_valid(&plan, items, 3, 19));
	for (int b = 0; b < plan.nbuckets; b++) {
		struct zero_bucket *bucket = &plan.buckets[b];

		CHECK(refuses(&plan, items, &bucket->first) &&
		      refuses(&plan, items, &bucket->npieces));
		CHECK(refuses_size(&plan, items, &bucket->n));
		bucket->type = KOLO_I32;
		CHECK(!zero_layout_is_valid(&plan, items, 3, 20));
		bucket->type = KOLO_F32;
		bucket->whole = true;
		CHECK(!zero_layout_is_valid(&plan, items, 3, 20));
		bucket->whole = false;
	}
	for (int p = 0; p < plan.npieces; p++) {
		CHECK(refuses(&plan, items, &plan.pieces[p].tensor));
		CHECK(refuses_size(&plan, items, &plan.pieces[p].first));
		CHECK(refuses_size(&plan, items, &plan.pieces[p].n));
		CHECK(refuses_size(&plan, items, &plan.pieces[p].at));
	}
	for (int i = 0; i < 3; i++)
		CHECK(refuses_size(&plan, items, &items[i].chunk));
	CHECK(refuses(&plan, items, &plan.nbuckets) && refuses(&plan, items, &plan.npieces));
	CHECK(refuses_size(&plan, items, &plan.largest) &&
	      refuses_size(&plan, items, &plan.largest_partial));
	CHECK(zero_layout_is_valid(&plan, items, 3, 20));
	zero_plan_free(&plan);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_element_has_one_owner),
	cmocka_unit_test(plans_cover_every_element_once),
	cmocka_unit_test(buckets_are_as_full_as_they_can_be),
	cmocka_unit_test(a_broken_layout_is_refused),
};

T_MAIN(tests)
