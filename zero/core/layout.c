/* Which rank owns which elements (zero_owned), and which pieces share a bucket (zero_plan_make). */
#include "zero/core/layout.h"

#include "zero/base/basics.h"
#include "zero/base/check.h"

#include <stdlib.h>

size_t zero_chunk(size_t n, int nranks)
{
	return n / (size_t)nranks + (n % (size_t)nranks != 0);
}

struct zero_part zero_part_meet(struct zero_part a, struct zero_part b)
{
	size_t first = a.first > b.first ? a.first : b.first;
	size_t end = zero_min(a.first + a.n, b.first + b.n);

	return (struct zero_part){ first, end > first ? end - first : 0 };
}

struct zero_part zero_part_of(size_t len, int nranks, int rank, size_t first, size_t n)
{
	size_t start = zero_min(len, zero_chunk(len, nranks) * (size_t)rank + first);

	return (struct zero_part){ start, zero_min(n, len - start) };
}

struct zero_part zero_owned(size_t n, int nranks, int rank)
{
	return zero_part_of(n, nranks, rank, 0, zero_chunk(n, nranks));
}

/* Makes the plan. As long as it has no memory, it only counts. */
struct maker {
	struct zero_plan *plan;
	size_t limit, alone;
	struct zero_bucket open; /* being filled; n == 0: none */
};

static void close_bucket(struct maker *m)
{
	struct zero_plan *p = m->plan;
	size_t len = m->open.n * kolo_type_size(m->open.type);

	if (m->open.n == 0)
		return;
	if (p->buckets)
		p->buckets[p->nbuckets] = m->open;
	p->nbuckets++;
	p->largest = len > p->largest ? len : p->largest;
	if (!m->open.whole && len > p->largest_partial)
		p->largest_partial = len;
	m->open.n = 0;
}

static void put_piece(struct maker *m, const struct zero_item *item, size_t first, size_t n)
{
	struct zero_plan *p = m->plan;

	if (m->open.n == 0)
		m->open = (struct zero_bucket){ .first = p->npieces, .type = item->type };
	if (p->pieces)
		p->pieces[p->npieces] = (struct zero_piece){ item->tensor, first, n, m->open.n };
	p->npieces++;
	m->open.npieces++;
	m->open.n += n;
	m->open.whole = m->open.npieces == 1 && n == item->chunk;
}

static void put_item(struct maker *m, const struct zero_item *item)
{
	bool alone = item->chunk >= m->alone;
	size_t first = 0;

	if (alone || (m->open.n && m->open.type != item->type))
		close_bucket(m);
	while (first < item->chunk) {
		size_t n = zero_min(item->chunk - first, m->limit - m->open.n);

		if (n == 0) {
			close_bucket(m);
			continue;
		}
		put_piece(m, item, first, n);
		first += n;
	}
	if (alone)
		close_bucket(m);
}

static void make(struct zero_plan *plan, const struct zero_item *items, int nitems, size_t limit,
		 size_t alone)
{
	struct maker m = { .plan = plan, .limit = limit, .alone = alone };

	for (int i = 0; i < nitems; i++)
		put_item(&m, &items[i]);
	close_bucket(&m);
}

int zero_plan_make(struct zero_plan *out, const struct zero_item *items, int nitems, size_t limit,
		   size_t alone)
{
	make(out, items, nitems, limit, alone);
	out->pieces = calloc((size_t)out->npieces + 1, sizeof(*out->pieces));
	out->buckets = calloc((size_t)out->nbuckets + 1, sizeof(*out->buckets));
	if (!out->pieces || !out->buckets)
		return kolo_error_set(KOLO_ENOMEM,
				      "a plan of %d buckets for %d tensors: out of memory",
				      out->nbuckets, nitems);
	out->npieces = out->nbuckets = 0;
	make(out, items, nitems, limit, alone);
	zero_check(zero_layout_is_valid(out, items, nitems, limit), "a plan of buckets");
	return 0;
}

/* Do pieces of the plan from number `first` on fill the bucket without gaps? */
static bool is_filled(const struct zero_plan *plan, const struct zero_bucket *bucket, int first)
{
	size_t at = 0;

	if (bucket->first != first || bucket->npieces < 1 ||
	    bucket->npieces > plan->npieces - first)
		return false;
	for (int p = first; p < first + bucket->npieces; at += plan->pieces[p].n, p++)
		if (plan->pieces[p].n == 0 || plan->pieces[p].at != at)
			return false;
	return at == bucket->n;
}

/* Do the buckets have all pieces, and the plan the lengths of the largest ones? */
static bool buckets_are_valid(const struct zero_plan *plan, size_t limit)
{
	size_t largest = 0, partial = 0;
	int piece = 0;

	for (int b = 0; b < plan->nbuckets; b++) {
		const struct zero_bucket *bucket = &plan->buckets[b];
		size_t len = bucket->n * kolo_type_size(bucket->type);

		if (!is_filled(plan, bucket, piece) || bucket->n > limit)
			return false;
		piece += bucket->npieces;
		largest = zero_max(largest, len);
		partial = zero_max(partial, bucket->whole ? 0 : len);
	}
	return piece == plan->npieces && largest == plan->largest &&
	       partial == plan->largest_partial;
}

/* Does the bucket have the type of the item, and is it `whole` only if it is all of it? */
static bool is_bucket_of(const struct zero_bucket *bucket, const struct zero_item *item)
{
	return bucket->type == item->type &&
	       (!bucket->whole || (bucket->npieces == 1 && bucket->n == item->chunk));
}

/* Are the pieces the chunks of the items, in their order? The buckets are valid. */
static bool pieces_are_valid(const struct zero_plan *plan, const struct zero_item *items,
			     int nitems)
{
	const struct zero_bucket *bucket = plan->buckets;
	int p = 0;

	for (int i = 0; i < nitems; i++) {
		for (size_t at = 0; at < items[i].chunk; at += plan->pieces[p++].n) {
			const struct zero_piece *piece = &plan->pieces[p];

			if (p == plan->npieces || piece->tensor != items[i].tensor ||
			    piece->first != at || piece->n > items[i].chunk - at)
				return false;
			bucket += p == bucket->first + bucket->npieces;
			if (!is_bucket_of(bucket, &items[i]))
				return false;
		}
	}
	return p == plan->npieces;
}

bool zero_layout_is_valid(const struct zero_plan *plan, const struct zero_item *items, int nitems,
			  size_t limit)
{
	return buckets_are_valid(plan, limit) && pieces_are_valid(plan, items, nitems);
}

void zero_plan_free(struct zero_plan *plan)
{
	free(plan->pieces);
	free(plan->buckets);
	*plan = (struct zero_plan){ 0 };
}
