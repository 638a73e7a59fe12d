/* Describes in which buckets an engine's tensors are reduced and gathered, and in which order they
 * are updated (zero_describe_buckets). */
#include "zero/create/buckets.h"

#include "zero/base/basics.h"
#include "zero/core/tensor.h"
#include "zero/optim/work.h"

#include <stdlib.h>

enum {
	/* Elements. Tensors of at least this size have operations of their own: their results and
	 * gathered parameters land in their places. Smaller tensors share operations, and are
	 * copied */
	WHOLE = 64 << 10,
};

/* Elements of each rank in a bucket of `bucket` elements. */
static size_t share(const struct kolo_zero *z, size_t bucket)
{
	return zero_max(bucket / (size_t)z->nranks, 1);
}

/* Large tensors travel alone. Small ones share buckets, by type. Those of a family follow each
 * other, so that no other tensor closes their bucket. */
enum { LARGE, SMALL_F32, SMALL_F16, SMALL_BF16, NFAMILIES };

static int family_of(const struct zero_tensor *t, enum kolo_type type, size_t alone)
{
	return t->chunk >= alone  ? LARGE
	       : type == KOLO_F32 ? SMALL_F32
	       : type == KOLO_F16 ? SMALL_F16
				  : SMALL_BF16;
}

/* Adds the trained tensors of a family: their gradients in the reverse order of the tensors, or the
 * values of those that are not sharded, in their order. */
static int add_family(const struct kolo_zero *z, struct zero_item *items, int n, int family,
		      size_t alone, bool gradients)
{
	for (int k = 0; k < z->ntensors; k++) {
		int i = gradients ? z->ntensors - 1 - k : k;
		const struct zero_tensor *t = &z->tensors[i];
		enum kolo_type type = gradients ? t->given_type : t->type;

		if (t->trained && (gradients || !t->sharded) && family_of(t, type, alone) == family)
			items[n++] = (struct zero_item){ i, t->chunk, type };
	}
	return n;
}

static bool downloads_from_buckets(const struct kolo_zero *z)
{
	for (int i = 0; i < z->ntensors; i++)
		if (z->device && z->tensors[i].offloaded.room)
			return !zero_sums_reduced(z);
	return false;
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

/* Counts what a gradient does when it comes. Returns how many buckets are open then, before those
 * are started whose turn it is. */
static int fill_pieces(const struct zero_plan *plan, const struct zero_tensor *t, int *missing,
		       int *open, int *started)
{
	int most = 0, bucket = t->first_bucket;

	for (int p = t->first_piece; p < t->first_piece + t->npieces; p++) {
		bucket += p == plan->buckets[bucket].first + plan->buckets[bucket].npieces;
		*open += missing[bucket] == plan->buckets[bucket].npieces;
		most = max_int(most, *open);
		missing[bucket]--;
		for (; *started < plan->nbuckets && missing[*started] == 0; ++*started)
			--*open;
	}
	return most;
}

/* Counts the buffers that are needed if gradients come in the reverse order of the tensors. Open
 * buckets need one each. Buckets of small tensors stay open until all others are started. With
 * overlap one more bucket is being reduced. */
static int count_buffers_of(const struct kolo_zero *z, const struct zero_plan *plan, int *out)
{
	int *missing = calloc((size_t)plan->nbuckets + 1, sizeof(*missing)), open = 0, started = 0,
	    most = 1;

	if (!missing)
		return kolo_error_set(KOLO_ENOMEM, "%d buckets: out of memory", plan->nbuckets);
	for (int b = 0; b < plan->nbuckets; b++)
		missing[b] = plan->buckets[b].npieces;
	for (int i = z->ntensors; i-- > 0;)
		most = max_int(most, fill_pieces(plan, &z->tensors[i], missing, &open, &started));
	free(missing);
	*out = most + z->config.overlap;
	return 0;
}

/* Plans reductions, in the reverse order of the tensors: backward makes gradients in that order.
 * Small tensors are last, when all have come. */
static int plan_reductions(struct kolo_zero *z, struct zero_item *items)
{
	struct zero_reducer *r = &z->reducer;
	size_t alone = z->config.contiguous ? share(z, WHOLE) : 1;
	int n = 0, rc;

	for (int family = 0; family < NFAMILIES; family++)
		n = add_family(z, items, n, family, alone, true);
	rc = zero_plan_make(&r->plan, items, n, share(z, z->config.reduce_bucket), alone);
	for (int p = 0, b = 0; rc == 0 && p < r->plan.npieces; p++) {
		struct zero_tensor *t = &z->tensors[r->plan.pieces[p].tensor];

		b += p == r->plan.buckets[b].first + r->plan.buckets[b].npieces;
		if (t->npieces++ == 0) {
			t->first_piece = p;
			t->first_bucket = b;
		}
	}
	r->buffer_len = zero_whole_lines((size_t)z->nranks * r->plan.largest);
	if (rc == 0)
		rc = count_buffers_of(z, &r->plan, &r->nplanned);
	/* One more buffer, from which gradients are downloaded. */
	r->nplanned += downloads_from_buckets(z);
	if (r->nplanned > r->plan.nbuckets)
		r->nplanned = r->plan.nbuckets;
	return rc;
}

/* Plans the gathers of trained tensors that every rank has whole and that have owners. Small
 * tensors come first, because others would wait for them. */
static int plan_gathers(struct kolo_zero *z, struct zero_item *items)
{
	struct zero_gatherer *g = &z->gatherer;
	size_t limit = share(z, z->config.gather_bucket), alone = share(z, WHOLE);
	int n = 0, rc;

	if (z->config.sub_group && z->config.sub_group < limit)
		limit = z->config.sub_group;
	for (int family = NFAMILIES; z->config.stage > 0 && family-- > 0;)
		n = add_family(z, items, n, family, alone, false);
	rc = zero_plan_make(&g->plan, items, n, limit, alone);
	g->buffer_len = zero_whole_lines((size_t)z->nranks * g->plan.largest_partial);
	g->nbuffers = g->buffer_len == 0 ? 0 : z->config.overlap ? 2 : 1;
	return rc;
}

/* Lists tensors with sharded state in the order of updates, and numbers their offloaded elements.
 * Each tensor begins a block of elements, so that sums over blocks do not depend on these
 * numbers. */
static void decide_order(struct kolo_zero *z)
{
	const struct zero_plan *gathers = &z->gatherer.plan;
	size_t offloaded = 0;

	for (int i = 0; z->config.stage > 0 && i < z->ntensors; i++)
		if (z->tensors[i].trained && z->tensors[i].sharded)
			z->order[z->norder++] = i;
	for (int p = 0; p < gathers->npieces; p++)
		if (p == 0 || gathers->pieces[p].tensor != gathers->pieces[p - 1].tensor)
			z->order[z->norder++] = gathers->pieces[p].tensor;
	for (int k = 0; k < z->norder; k++) {
		struct zero_tensor *t = &z->tensors[z->order[k]];

		t->offloaded.first = offloaded;
		offloaded += zero_blocks(t->offloaded.n) * KOLO_ZERO_BLOCK;
	}
	z->noffloaded = offloaded;
}

int zero_describe_buckets(struct kolo_zero *z)
{
	struct zero_item *items = calloc((size_t)z->ntensors, sizeof(*items));
	int rc = items ? plan_reductions(z, items)
		       : kolo_error_set(KOLO_ENOMEM, "plans of %d tensors: out of memory",
					z->ntensors);

	if (rc == 0)
		rc = plan_gathers(z, items);
	if (rc == 0)
		decide_order(z);
	free(items);
	return rc;
}
