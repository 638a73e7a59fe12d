/* The order of the tree (ko_tree_add): a stack of sums, as in a counter in base 2. */
#include "comm/coll/tree.h"

enum {
	CHUNK = 16 << 10
}; /* bytes of a value that are added up at a time: partial sums stay in
      the first-level cache */

struct ko_tree ko_tree_begin(const struct ko_run *run, size_t n, char *rooms, void *out)
{
	return (struct ko_tree){ .red = &run->red,
				 .n = n,
				 .size = run->size,
				 .out = out,
				 .rooms = rooms,
				 .nranks = run->comm->nranks };
}

struct ko_tree ko_tree_begin_part(const struct ko_run *run, int nranks, size_t n, char *rooms,
				  void *out)
{
	struct ko_tree t = ko_tree_begin(run, n, rooms, out);

	t.nranks = nranks;
	t.part = true;
	return t;
}

char *ko_tree_room(const struct ko_tree *t)
{
	return t->rooms + (size_t)t->height * t->n * t->size;
}

/* Adds the two uppermost sums. */
static void join(struct ko_tree *t)
{
	const char *right = t->at[--t->height], *left = t->at[t->height - 1];
	char *to;

	if (t->count == t->nranks && t->height == 1)
		to = t->out;
	else if (t->rooms)
		to = t->rooms + (size_t)(t->height - 1) * t->n * t->size;
	else
		to = (char *)(uintptr_t)left;
	t->red->combine(to, left, right, t->n, &t->red->s);
	t->at[t->height - 1] = to;
}

void ko_tree_add(struct ko_tree *t, const void *value, const union ko_scalar *s)
{
	char *room = t->rooms ? ko_tree_room(t) : (char *)(uintptr_t)value;

	if (t->red->scales && !t->part) {
		t->red->first(room, value, t->n, s);
		value = room;
	}
	t->at[t->height++] = value;
	t->count++;
	for (int k = ko_tree_joins(t->count, t->nranks); k > 0; k--)
		join(t);
	if (t->count == t->nranks && !t->part)
		t->red->finish(t->out, t->out, t->n, &t->red->s);
}

/* Adds all values of elements [first, first + n). */
static void add_all(const struct ko_run *run, const struct ko_vectors *v, size_t first, size_t n,
		    char *rooms, void *dst)
{
	struct ko_tree t = ko_tree_begin(run, n, rooms, dst);

	for (size_t r = 0; r < (size_t)t.nranks; r++)
		ko_tree_add(&t, ko_at(run, v->first + r * v->stride, first),
			    (const void *)((const char *)v->scalar + r * v->scalar_stride));
}

void ko_tree_add_up(const struct ko_run *run, const struct ko_vectors *v, struct ko_piece q,
		    void *dst)
{
	size_t most = KO_SCRATCH / (size_t)ko_tree_height(run->comm->nranks);
	size_t chunk = ko_min_size(CHUNK, most) / run->size;

	for (size_t at = 0; at < q.n; at += chunk)
		add_all(run, v, q.first + at, ko_min_size(chunk, q.n - at), run->comm->scratch,
			ko_at_mut(run, dst, at));
}

void ko_tree_add_in_place(const struct ko_run *run, const struct ko_vectors *v, size_t n, void *dst)
{
	if (n)
		add_all(run, v, 0, n, NULL, dst);
}
