/* The algorithm "grid" (ko_grid_ops). Two tracks (tracks.h), round the group and along the rail,
 * have up to two stages each. In a group the sums of all blocks of a rail come to that rail's rank.
 * Along the rail these sums are added, so that each rank has its block. Then blocks go along the
 * rail and round the group to all ranks.
 *
 * If there is a root, all blocks of a rail are added on the way to root's group, and go from there
 * to root; or a broadcast's go the other way about. */
#include "comm/coll/grid.h"

#include "comm/core/learn.h"
#include "comm/rings/moves.h"
#include "comm/rings/rails.h"
#include "comm/rings/tracks.h"

#include <stdlib.h>

enum stage {
	NOTHING,
	ADD,     /* the sum of each rank's pieces comes to it */
	SPREAD,  /* each rank's pieces come to all */
	COLLECT, /* each rank's pieces come to root */
	CHAIN, /* all pieces go to root, or to the rank of its group; or a broadcast's from there */
};

/* A track's place: the step that is next, of which round and stage. At each time the first stage of
 * one round is done, then the second stage of the round `lag` before. A stage goes round once for
 * each of its slots: if a rank sent several before it takes one, all links could be full. */
struct place {
	enum stage stages[2];
	size_t lag, time;
	bool second;
	int slot, slots, step;
	int me, n, root; /* number in this ring, ranks, and the number of root, or of its group */
	int after;       /* how many places this rank comes after the first one of a chain */
};

/* An operation under way. */
struct grid {
	struct ko_run *run;
	const struct ko_shape *shape;
	const char *src;
	char *dst;
	struct ko_plan plan;
	struct ko_grid_room room;
	size_t dst_first; /* the element of the vector that dst begins with */
	bool is_root;
	int pieces; /* in a slot of the group, at most */
	ko_combine_fn *add;
	struct ko_track tracks[2];
	struct place group, rail;
	struct ko_part *parts; /* of a step of the group */
	struct ko_part part;   /* of a step of the rail */
	/* What is complete. Slots with sums of the group; steps of a chain in it; rounds of the
	 * rail's sums; steps in which blocks came along the rail; rounds whose sums the rail needs
	 * no longer */
	size_t added, dealt, summed, came, freed;
};

static enum ko_coll coll_of(const struct grid *g)
{
	return (enum ko_coll)g->run->desc.coll;
}

/* ---- Where things are ------------------------------------------------------------------------ */

static struct ko_piece piece_of(const struct grid *g, int group, int rail, size_t round)
{
	return ko_plan_piece(&g->plan, ko_shape_rank(g->shape, group, rail), round);
}

static const void *in_src(const struct grid *g, struct ko_piece q)
{
	return ko_at(g->run, g->src, q.first);
}

static void *in_dst(const struct grid *g, struct ko_piece q)
{
	return ko_at_mut(g->run, g->dst, q.first - g->dst_first);
}

/* The sum of a piece of this rail's block in a group. Without room for sums it lies where the
 * result goes, which comes only once this rank has sent what it adds. */
static char *sum_at(const struct grid *g, size_t round, int group)
{
	const struct ko_grid_room *r = &g->room;
	size_t number = round % KO_RAILS_DEPTH * (size_t)g->shape->ngroups +
			(size_t)ko_shape_wrap(group, g->shape->ngroups);
	size_t skew = 0;

	if (!r->sums)
		return in_dst(g, piece_of(g, ko_shape_wrap(group, g->shape->ngroups), g->group.me,
					  round));
	if (r->align > 1)
		skew = piece_of(g, group, g->group.me, round).first * g->run->size % r->align;
	return r->sums + number * r->stride + skew;
}

/* Where the finished piece of a block of this rail is, on this rank. */
static void *result_at(const struct grid *g, size_t round, int group, struct ko_piece q)
{
	return coll_of(g) == KO_REDUCE && !g->is_root ? sum_at(g, round, group) : in_dst(g, q);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static enum stage stage_of(const struct place *p)
{
	return p->stages[p->second];
}

static size_t round_of(const struct place *p)
{
	return p->second ? p->time - p->lag : p->time;
}

/* Steps are numbered by how far before this rank the piece's owner is; those of a chain, by its
 * owner. */
static int first_step(const struct grid *g, const struct place *p)
{
	bool sent = p == &g->rail && coll_of(g) == KO_ALL_REDUCE; /* with the last addition */

	return stage_of(p) == ADD || sent || (stage_of(p) == COLLECT && p->me == p->root);
}

static bool is_first(const struct place *p)
{
	return p->after == 0;
}

static bool is_last(const struct place *p)
{
	return p->after == p->n - 1;
}

static int last_step(const struct place *p)
{
	switch (stage_of(p)) {
	case ADD: return p->n;
	case SPREAD: return p->n > 1 ? p->n - 1 : -1;
	case COLLECT: return p->after; /* root is the last */
	case CHAIN: return p->n - 1;   /* a piece for each rank of this ring, or of each rail */
	default: return -1;
	}
}

/* A round's slot of the group has pieces of this many groups' blocks. */
static int pieces_here(const struct grid *g)
{
	int left = g->shape->ngroups - g->group.slot * g->pieces;

	return left < g->pieces ? left : g->pieces;
}

/* The group of the block that piece number k of the slot is of. What the rail needs first is ready
 * first, and what comes first along it goes on while it is in cache: blocks go in the rail's order
 * (step_at). */
static int group_of(const struct grid *g, int k)
{
	int number = g->group.slot * g->pieces + k;

	if (g->rail.stages[0] == CHAIN)
		return number;
	return ko_shape_wrap(g->rail.me - (stage_of(&g->group) == ADD) - number, g->rail.n);
}

static void add_part(struct ko_part *parts, struct ko_step *s, const void *own, void *keep,
		     struct ko_piece q)
{
	parts[s->nparts++] = (struct ko_part){ own, keep, q.n, q.first };
}

static void add_in_group(struct grid *g, struct ko_step *s)
{
	const struct place *p = &g->group;
	size_t round = round_of(p);
	bool last = p->step == p->n;

	s->in = p->step > 1;
	s->out = !last;
	s->fill = g->run->red.first;
	s->combine = g->run->red.combine;
	s->stays = true;
	s->read_next = true;
	for (int k = 0; k < pieces_here(g); k++) {
		int group = group_of(g, k);
		struct ko_piece q = piece_of(g, group, p->me - p->step, round);

		add_part(g->parts, s, in_src(g, q), last ? sum_at(g, round, group) : NULL, q);
	}
}

static void add_on_rail(struct grid *g, struct ko_step *s)
{
	const struct place *p = &g->rail;
	size_t round = round_of(p);
	int from = p->me - p->step;
	struct ko_piece q = piece_of(g, from, g->group.me, round);
	bool last = p->step == p->n, passes = coll_of(g) == KO_ALL_REDUCE && p->n > 1;

	s->in = p->step > 1;
	s->out = !last || passes;
	s->fill = last ? g->run->red.finish : g->run->copy;
	s->combine = g->add;
	s->finish = last && s->in ? g->run->red.finish : NULL;
	s->stays = last;
	s->read_next = passes;
	add_part(&g->part, s, sum_at(g, round, from), last ? result_at(g, round, p->me, q) : NULL,
		 q);
}

/* A chain of additions, of sums of groups. */
static void add_in_chain(struct grid *g, struct ko_step *s, struct ko_piece q)
{
	const struct place *p = &g->rail;
	size_t round = round_of(p);
	void *keep = is_last(p) ? result_at(g, round, p->step, q) : NULL;

	s->in = !is_first(p);
	s->out = !is_last(p);
	s->fill = s->out ? g->run->copy : g->run->red.finish;
	s->combine = g->add;
	s->finish = s->in && !s->out ? g->run->red.finish : NULL;
	s->stays = !s->out;
	add_part(&g->part, s, sum_at(g, round, p->step), keep, q);
}

/* A chain of a broadcast, in root's group or along a rail. */
static void begin_pass(const struct grid *g, const struct place *p, struct ko_step *s)
{
	s->in = !is_first(p);
	s->out = !is_last(p);
	s->fill = g->run->copy;
	s->stays = true;
	s->read_next = p == &g->rail;
}

static void pass_part(const struct grid *g, struct ko_part *parts, struct ko_step *s,
		      struct ko_piece q)
{
	if (s->in)
		add_part(parts, s, NULL, in_dst(g, q), q);
	else
		add_part(parts, s, g->is_root ? in_src(g, q) : in_dst(g, q), NULL, q);
}

static void chain_in_group(struct grid *g, struct ko_step *s)
{
	begin_pass(g, &g->group, s);
	for (int k = 0; k < pieces_here(g); k++)
		pass_part(g, g->parts, s,
			  piece_of(g, group_of(g, k), g->group.step, round_of(&g->group)));
}

static void chain_on_rail(struct grid *g, struct ko_step *s)
{
	struct ko_piece q = piece_of(g, g->rail.step, g->group.me, round_of(&g->rail));

	if (coll_of(g) == KO_REDUCE) {
		add_in_chain(g, s, q);
		return;
	}
	begin_pass(g, &g->rail, s);
	pass_part(g, &g->part, s, q);
}

/* What is common to SPREAD and COLLECT. */
static void pass(const struct grid *g, const struct place *p, struct ko_step *s)
{
	s->in = p->step > 0;
	s->out = stage_of(p) == SPREAD ? p->step < p->n - 1 : p->me != p->root;
	s->fill = g->run->copy;
	s->stays = coll_of(g) != KO_REDUCE;
	s->read_next = p == &g->rail;
}

static void pass_in_group(struct grid *g, struct ko_step *s)
{
	const struct place *p = &g->group;
	size_t round = round_of(p);

	pass(g, p, s);
	for (int k = 0; k < pieces_here(g); k++) {
		int group = group_of(g, k);
		struct ko_piece q = piece_of(g, group, p->me - p->step, round);

		if (!s->in)
			add_part(g->parts, s, result_at(g, round, group, q), NULL, q);
		else
			add_part(g->parts, s, NULL,
				 stage_of(p) == SPREAD || g->is_root ? in_dst(g, q) : NULL, q);
	}
}

static void pass_on_rail(struct grid *g, struct ko_step *s)
{
	const struct place *p = &g->rail;
	size_t round = round_of(p);
	struct ko_piece q = piece_of(g, p->me - p->step, g->group.me, round);

	pass(g, p, s);
	add_part(&g->part, s, s->in ? NULL : in_dst(g, q), s->in ? in_dst(g, q) : NULL, q);
}

/* The step at the track's place. */
static struct ko_step step_at(struct grid *g, const struct place *p)
{
	bool on_rail = p == &g->rail;
	struct ko_step s = { .parts = on_rail ? &g->part : g->parts };

	if (stage_of(p) == ADD)
		(on_rail ? add_on_rail : add_in_group)(g, &s);
	else if (stage_of(p) == CHAIN)
		(on_rail ? chain_on_rail : chain_in_group)(g, &s);
	else
		(on_rail ? pass_on_rail : pass_in_group)(g, &s);
	return s;
}

/* ---- What waits for what --------------------------------------------------------------------- */

/* Has the finished piece of a group's block come along the rail? */
static bool has_come(const struct grid *g, size_t round, int group)
{
	int distance = ko_shape_wrap(g->rail.me - group, g->rail.n);

	if (g->rail.stages[0] == CHAIN)
		return g->came > round * (size_t)g->rail.n + (size_t)group;
	if (distance == 0)
		return coll_of(g) == KO_ALL_GATHER || g->summed > round;
	return g->came >= round * (size_t)(g->rail.n - 1) + (size_t)distance;
}

static bool may_go_in_group(const struct grid *g)
{
	const struct place *p = &g->group;
	size_t round = round_of(p);

	if (stage_of(p) == ADD)
		return p->step < p->n || g->freed + KO_RAILS_DEPTH > round;
	if (stage_of(p) == CHAIN)
		return true;
	for (int k = 0; p->step == 0 && k < pieces_here(g); k++)
		if (!has_come(g, round, group_of(g, k)))
			return false;
	return true;
}

static bool may_go_on_rail(const struct grid *g)
{
	const struct place *p = &g->rail;
	bool chain = stage_of(p) == CHAIN, adds = g->group.stages[0] == ADD;
	int number = chain ? p->step : p->step - 1; /* in the order of group_of */
	size_t slot = round_of(p) * (size_t)g->group.slots + (size_t)(number / g->pieces);

	if (chain && !adds) /* of a broadcast; root has everything */
		return !is_first(p) || g->is_root ||
		       g->dealt > slot * (size_t)g->group.n + (size_t)g->group.me;
	return (!chain && stage_of(p) != ADD) || g->added > slot;
}

/* ---- Tracks ---------------------------------------------------------------------------------- */

/* Goes on to the next stage that has a step left. False: all are done. */
static bool find_stage(struct grid *g, struct place *p)
{
	while (p->time < g->plan.rounds + p->lag) {
		bool is_time = p->second ? p->time >= p->lag : p->time < g->plan.rounds;

		if (is_time && p->slot < p->slots && p->step <= last_step(p))
			return true;
		if (is_time && p == &g->rail && p->second)
			g->freed = round_of(p) + 1;
		p->time += p->second;
		p->second = !p->second;
		p->slot = 0;
		p->step = first_step(g, p);
	}
	return false;
}

static enum ko_track_state next_step(struct ko_track *t)
{
	struct grid *g = t->of;
	bool on_rail = t->edges == &g->run->comm->rails->rail;
	struct place *p = on_rail ? &g->rail : &g->group;

	if (!find_stage(g, p))
		return KO_TRACK_OVER;
	if (!(on_rail ? may_go_on_rail : may_go_in_group)(g))
		return KO_TRACK_HELD;
	t->step = step_at(g, p);
	return KO_TRACK_GOES;
}

static void take_step(struct grid *g, struct place *p)
{
	if (++p->step <= last_step(p))
		return;
	p->step = first_step(g, p);
	p->slot++;
}

static void done_in_group(struct ko_track *t)
{
	struct grid *g = t->of;
	struct place *p = &g->group;

	g->added += stage_of(p) == ADD && p->step == p->n;
	g->dealt += stage_of(p) == CHAIN;
	take_step(g, p);
}

static void done_on_rail(struct ko_track *t)
{
	struct grid *g = t->of;
	struct place *p = &g->rail;

	if (stage_of(p) == ADD)
		g->summed += p->step == p->n;
	else if (stage_of(p) == CHAIN)
		g->came++;
	else
		g->came += t->step.in && t->step.parts[0].keep;
	take_step(g, p);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

static void cut(struct grid *g)
{
	const struct ko_run *run = g->run;
	const struct ko_grid_room *r = &g->room;
	size_t slice, fit = 1;

	g->plan = ko_plan_in_blocks(&run->plan, coll_of(g), run->comm->nranks);
	ko_plan_slice(&g->plan, run->size, r->piece);
	if (run->comm->agreed.packet)
		ko_plan_in_packets(&g->plan, run->size, run->comm->agreed.packet);
	slice = g->plan.slice;
	if (r->slot_len)
		fit = slice ? r->slot_len / (slice * run->size) : SIZE_MAX;
	g->pieces = (int)ko_min_size(fit, (size_t)g->shape->ngroups);
}

/* The stages of a reduce or broadcast. */
static void place_rooted(struct grid *g)
{
	struct place *group = &g->group, *rail = &g->rail;
	bool is_here = rail->me == rail->root, reduces = coll_of(g) == KO_REDUCE;
	int behind = reduces ? 1 : 0; /* a chain of additions begins behind its end */

	group->stages[0] = reduces ? ADD : is_here && group->n > 1 ? CHAIN : NOTHING;
	group->stages[1] = !reduces && !is_here ? SPREAD : reduces && is_here ? COLLECT : NOTHING;
	rail->stages[0] = reduces || rail->n > 1 ? CHAIN : NOTHING;
	rail->stages[1] = NOTHING;
	group->after = ko_shape_wrap(group->me - group->root - behind, group->n);
	rail->after = ko_shape_wrap(rail->me - rail->root - behind, rail->n);
}

static void place_tracks(struct grid *g)
{
	enum stage then = coll_of(g) == KO_REDUCE_SCATTER ? NOTHING : SPREAD;
	enum stage first = coll_of(g) == KO_ALL_GATHER ? NOTHING : ADD;
	const struct kolo_comm *c = g->run->comm;
	bool rooted = ko_coll_has_root((int)coll_of(g));
	int root = rooted ? g->run->desc.root : 0;

	g->group = (struct place){ .stages = { first, then },
				   .lag = KO_RAILS_DEPTH - 1,
				   .slots = (g->shape->ngroups - 1) / g->pieces + 1,
				   .me = ko_shape_rail(g->shape, c->rank),
				   .n = g->shape->size,
				   .root = ko_shape_rail(g->shape, root) };
	g->rail = (struct place){ .stages = { first, then },
				  .slots = 1,
				  .me = ko_shape_group(g->shape, c->rank),
				  .n = g->shape->ngroups,
				  .root = ko_shape_group(g->shape, root) };
	if (rooted)
		place_rooted(g);
	g->group.step = first_step(g, &g->group);
	g->rail.step = first_step(g, &g->rail);
	g->tracks[0] = (struct ko_track){ .edges = &c->rails->rail,
					  .name = "rail",
					  .of = g,
					  .next = next_step,
					  .done = done_on_rail };
	g->tracks[1] = (struct ko_track){ .edges = &c->rails->group,
					  .name = "group",
					  .of = g,
					  .next = next_step,
					  .done = done_in_group };
}

/* What this rank gives goes to its place in dst, too. */
static int keep_own(struct grid *g, struct ko_piece own)
{
	if (own.n == 0 || in_dst(g, own) == g->src)
		return 0;
	return g->run->moves->keep_own(g->run, in_dst(g, own), g->src, own.n);
}

/* After all steps: others need what root of a broadcast gives sooner. */
static int end_broadcast(struct grid *g)
{
	bool gives = coll_of(g) == KO_BROADCAST && g->is_root;

	return gives ? keep_own(g, (struct ko_piece){ 0, g->plan.count }) : 0;
}

/* g->run, shape, room, src and dst are set. The caller frees g->parts. */
static int begin(struct grid *g)
{
	struct ko_run *run = g->run;
	const struct kolo_comm *c = run->comm;

	g->add = ko_reducer_of_sums(run->red, (enum kolo_type)run->desc.type).combine;
	g->is_root = ko_coll_has_root((int)coll_of(g)) && c->rank == run->desc.root;
	if (coll_of(g) == KO_REDUCE_SCATTER)
		g->dst_first = ko_plan_block(&run->plan, c->rank).first;
	cut(g);
	place_tracks(g);
	g->parts = calloc((size_t)g->pieces, sizeof(*g->parts));
	if (!g->parts)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %d pieces", c->rank, g->pieces);
	return coll_of(g) == KO_ALL_GATHER ? keep_own(g, ko_plan_block(&g->plan, c->rank)) : 0;
}

static int grid(struct ko_run *run, const void *src, void *dst)
{
	struct kolo_comm *c = run->comm;
	const struct ko_rails *r = c->rails;
	struct grid g = { .run = run, .shape = &c->shape, .src = src, .dst = dst };
	int rc;

	g.room = (struct ko_grid_room){ r->sums, r->piece, r->piece, 1, r->group_slot };
	if (coll_of(&g) == KO_ALL_REDUCE)
		g.room.sums = NULL;
	rc = begin(&g); /* the rail may send from what this copies to dst: ordinary stores */
	ko_learn_stores(run);
	if (rc == 0)
		rc = ko_tracks_do(run, g.tracks, 2);
	free(g.parts);
	if (rc == 0 && c->rails->group.to)
		rc = ko_wait_sent(run, &c->rails->group);
	if (rc == 0 && c->rails->rail.to)
		rc = ko_wait_sent(run, &c->rails->rail);
	return rc < 0 ? rc : end_broadcast(&g);
}

/* ---- In order -------------------------------------------------------------------------------- */

/* Does a step of a stage, if this rank has it. */
static int do_step(struct grid *g, struct place *p, size_t round, bool second, int slot, int step)
{
	const struct ko_rails *r = g->run->comm->rails;
	struct ko_step s;

	if (round >= g->plan.rounds)
		return 0;
	p->lag = 0;
	p->time = round;
	p->second = second;
	p->slot = slot;
	p->step = step;
	if (step < first_step(g, p) || step > last_step(p))
		return 0;
	s = step_at(g, p);
	return g->run->moves->step(g->run, p == &g->rail ? &r->rail : &r->group, &s);
}

/* Step number i of a group at a time: of the second stage of the round two times before, then of
 * the first stage of a new round. Its sums take the place of that round's. */
static int do_in_group(struct grid *g, size_t time, int i)
{
	struct place *p = &g->group;
	int half = p->slots * p->n, slot = i % half / p->n, step = i % p->n;

	if (p->stages[0] == CHAIN) /* a step later on each rank than on the one before it */
		return i < p->after || i - p->after >= half
			       ? 0
			       : do_step(g, p, time, false, (i - p->after) / p->n,
					 (i - p->after) % p->n);
	if (i < half)
		return do_step(g, p, time - 2, true, slot, step);
	return do_step(g, p, time, false, slot, step + 1);
}

/* Step number i of a rail: of the two stages of the round between. */
static int do_on_rail(struct grid *g, size_t time, int i)
{
	struct place *p = &g->rail;

	if (p->stages[0] == CHAIN)
		return i < p->after ? 0 : do_step(g, p, time - 1, false, 0, i - p->after);
	if (i < p->n)
		return do_step(g, p, time - 1, false, 0, i + 1);
	return do_step(g, p, time - 1, true, 0, i - p->n);
}

/* At each time, group and rail do steps of different rounds, by turns. All ranks number these steps
 * alike, also those that some of them don't have. What a step gets was sent in a step with a lower
 * number, and so was the slot that it fills emptied. So the rank whose next step has the lowest
 * number never waits for ever. */
int ko_grid_in_order(struct ko_run *run, const struct ko_grid_room *room, const void *src,
		     void *dst)
{
	struct grid g = {
		.run = run, .shape = &run->comm->shape, .src = src, .dst = dst, .room = *room
	};
	int rc = begin(&g), in_group = 2 * g.group.slots * g.group.n, on_rail = 2 * g.rail.n;

	for (size_t time = 0; rc == 0 && time < g.plan.rounds + 2; time++)
		for (int i = 0, k = 0; rc == 0 && (i < in_group || k < on_rail);)
			rc = (int64_t)i * on_rail <= (int64_t)k * in_group
				     ? do_in_group(&g, time, i++)
				     : do_on_rail(&g, time, k++);
	free(g.parts);
	return rc < 0 ? rc : end_broadcast(&g);
}

/* ---- Formulas -------------------------------------------------------------------------------- */

/* Elements of all blocks of a rail. */
static size_t rail_count(const struct ko_plan *plan, const struct ko_shape *s, int rail)
{
	size_t n = 0;

	for (int k = 0; k < s->ngroups; k++)
		n += ko_plan_block(plan, ko_shape_rank(s, k, rail)).n;
	return n;
}

/* Of a chain of n ranks: one that is `after` others gets these elements, and passes them on. */
static struct ko_model chain(int after, int n, size_t elements)
{
	return (struct ko_model){ after < n - 1 ? elements : 0, after ? elements : 0 };
}

static struct ko_model sum_of(struct ko_model a, struct ko_model b)
{
	return (struct ko_model){ a.sent + b.sent, a.received + b.received };
}

/* Of the last stage of a reduce: all rails' blocks go to root. */
static struct ko_model collected(const struct ko_plan *plan, const struct ko_shape *s, int rail,
				 int root)
{
	struct ko_model m = { 0 };

	for (int k = ko_shape_wrap(root + 1, s->size); k != rail; k = ko_shape_wrap(k + 1, s->size))
		m.received += rail_count(plan, s, k);
	m.sent = rail == root ? 0 : m.received + rail_count(plan, s, rail);
	return m;
}

/* In a group: sums come to the ranks of their rails; or what these have comes to all. */
static struct ko_model added(const struct ko_plan *plan, const struct ko_shape *s, int rail)
{
	return (struct ko_model){ plan->count - rail_count(plan, s, rail),
				  plan->count -
					  rail_count(plan, s, ko_shape_wrap(rail - 1, s->size)) };
}

static struct ko_model spread(const struct ko_plan *plan, const struct ko_shape *s, int rail)
{
	return (struct ko_model){ plan->count -
					  rail_count(plan, s, ko_shape_wrap(rail + 1, s->size)),
				  plan->count - rail_count(plan, s, rail) };
}

static struct ko_model rooted(const struct ko_plan *plan, const struct ko_shape *s, int rank,
			      const struct ko_desc *desc)
{
	bool reduces = desc->coll == KO_REDUCE;
	int group = ko_shape_group(s, rank), rail = ko_shape_rail(s, rank);
	int to = ko_shape_group(s, desc->root), at = ko_shape_rail(s, desc->root);
	int after = ko_shape_wrap(group - to - (reduces ? 1 : 0), s->ngroups);
	struct ko_model on_rail = chain(after, s->ngroups, rail_count(plan, s, rail)), in_group;

	if (reduces)
		in_group = sum_of(added(plan, s, rail), group == to ? collected(plan, s, rail, at)
								    : (struct ko_model){ 0, 0 });
	else if (group == to)
		in_group = chain(ko_shape_wrap(rail - at, s->size), s->size, plan->count);
	else
		in_group = spread(plan, s, rail);
	return sum_of(in_group, on_rail);
}

static struct ko_model model(const struct ko_run *run)
{
	const struct kolo_comm *c = run->comm;
	const struct ko_shape *s = &c->shape;
	enum ko_coll coll = (enum ko_coll)run->desc.coll;
	struct ko_plan plan = ko_plan_in_blocks(&run->plan, coll, c->nranks);
	int group = ko_shape_group(s, c->rank), rail = ko_shape_rail(s, c->rank);
	size_t own = ko_plan_block(&plan, c->rank).n, mine = rail_count(&plan, s, rail);
	size_t before = ko_plan_block(&plan, ko_shape_rank(s, group - 1, rail)).n;
	size_t after = ko_plan_block(&plan, ko_shape_rank(s, group + 1, rail)).n;
	struct ko_model adds =
		sum_of(added(&plan, s, rail), (struct ko_model){ mine - own, mine - before });
	struct ko_model spreads =
		sum_of(spread(&plan, s, rail), (struct ko_model){ mine - after, mine - own });

	if (ko_coll_has_root((int)coll))
		return rooted(&plan, s, c->rank, &run->desc);
	if (coll == KO_REDUCE_SCATTER)
		return adds;
	return coll == KO_ALL_GATHER ? spreads : sum_of(adds, spreads);
}

/* ---- When ------------------------------------------------------------------------------------ */

static uint64_t end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	bool can = coll != KO_BARRIER && !ko_coll_has_messages(coll);

	(void)nranks, (void)windows;
	if (coll == KO_BROADCAST && costs->one_card) /* then a chain of all ranks is as good */
		can = false;
	return can && costs->groups ? UINT64_MAX : 0;
}

/* As round the ring, with fewer hops. With a root, rails share the vector out, and each message of
 * one slot is all in one rank, then all in the next. */
static struct ko_estimate cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			       bool windows)
{
	double n = nranks, groups = (double)costs->groups, rails = (double)costs->rails;
	double on_rail = (groups - 1) * costs->rail_hop_ns;
	double in_group = (rails - 1) * costs->group_hop_ns;
	double phases = coll == KO_ALL_REDUCE ? 2 : 1;

	(void)windows;
	if (ko_coll_has_root((int)coll))
		return (struct ko_estimate){ on_rail + 2 * in_group,
					     2 * ((groups - 1) / rails + rails - 1) /
						     costs->bytes_per_ns };
	return (struct ko_estimate){ phases * (on_rail + in_group),
				     phases * 2 * (n - 1) / n / costs->bytes_per_ns };
}

static bool takes(const struct ko_run *run)
{
	(void)run;
	return true;
}

const struct ko_algorithm_ops ko_grid_ops = {
	.name = "grid",
	.what = "slots round each group of ranks (a host), and along rails between groups",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = end,
	.cost = cost,
	.takes = takes,
	.run = grid,
	.model = model,
};
