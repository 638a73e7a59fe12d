/* Which rank owns which elements (zero_owned), and which pieces share a bucket (zero_plan_make). */
#include "zero/core/layout.h"

#include "zero/base/basics.h"

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
		return kolo_error_set(KOLO_ENOMEM, "a plan of %d buckets for %d tensors: out of memory",
				      out->nbuckets, nitems);
	out->npieces = out->nbuckets = 0;
	make(out, items, nitems, limit, alone);
	return 0;
}

void zero_plan_free(struct zero_plan *plan)
{
	free(plan->pieces);
	free(plan->buckets);
	*plan = (struct zero_plan){ 0 };
}
