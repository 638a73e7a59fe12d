/* The algorithms "partials" (ko_partials_ops), "center" (ko_center_ops) and "shares"
 * (ko_shares_ops): into groups, between leaders, and out of groups.
 *
 * Elements are in the order of *places*: groups, and numbers in them. If groups are of successive
 * ranks, this is the vector's own order. */
#include "comm/coll/partials.h"

#include "comm/coll/leaders.h"
#include "comm/rings/rails.h"

enum {
	RADIX = 8,
	TOGETHER = 16 << 10, /* bytes of sums that root's leader gets at a time, if not only one */
	AHEAD = 60 << 10,    /* bytes that TCP takes in before they are read, as systems are set */
};

enum kind { PARTIALS, CENTER, SHARES };

/* An operation under way. */
struct partials {
	struct ko_run *run;
	struct ko_leaders l;
	struct ko_plan plan; /* a reduce has a block for each rank, too */
	enum kind kind;
	size_t shares;      /* of a group's elements, at most; 0: leaders exchange whole sums */
	ko_combine_fn *add; /* of sums */
	size_t *firsts;     /* the first element of each group, by place; NULL: see first_of */
	char **at;          /* where shares are */
	char *messages;     /* to pack shares in, and after that those that have come */
	char *sum;          /* of the group, by place */
	char *sums;         /* whole ones of this group and those after it, or shares */
	/* of the group's other ranks, by number, until they are added; then what is between
	 * leaders. What is after `sum` may be at the same place */
	char *values;
	const char *own; /* the leader's own values, of a reduction */
	int radix;       /* of the tree to root's leader, or from it */
};

static enum ko_coll coll_of(const struct partials *p)
{
	return (enum ko_coll)p->run->desc.coll;
}

/* ---- What a tree costs ----------------------------------------------------------------------- */

static int log2_up(int64_t n)
{
	int log = 0;

	while ((int64_t)1 << log < n)
		log++;
	return log;
}

/* Hops of a step in which a leader has messages from or to `n` others. They come together: each of
 * them takes about a quarter of a hop. */
static double hops_of(double n)
{
	return n > 0 ? 1 + (n - 1) / 4 : 0;
}

/* If bytes count, messages of a leader from or to `n` others take as long as so many in a row. */
static double in_a_row(const struct ko_costs *costs, double n)
{
	return costs->by_processors && n > 1 ? (1 + n) / 2 : n;
}

/* The time of so many bytes that one leader gets or sends while the others wait. */
static double lone(const struct ko_costs *costs, double bytes)
{
	return 2 * bytes / costs->lone_bytes_per_ns;
}

/* A tree in which leaders have up to RADIX - 1 others on each level: its hops, and vectors that one
 * after the other go through it if each leader gets the same one. */
struct tree {
	double hops, vectors;
};

static struct tree tree_of(const struct ko_costs *costs)
{
	struct tree t = { 0 };

	for (int64_t n = costs->groups; n > 1; n = (n - 1) / RADIX + 1) {
		double others = (double)(n < RADIX ? n : RADIX) - 1;

		t.hops += hops_of(others);
		t.vectors += in_a_row(costs, others);
	}
	return t;
}

/* Bytes from which on a vector is faster in a binomial tree: one that does not fit into the
 * connection waits for each of the receivers by itself. */
static double wide_end(const struct ko_costs *costs)
{
	struct tree t = tree_of(costs);
	double levels = log2_up(costs->groups), hops = levels - t.hops;
	double more = lone(costs, t.vectors) - 2 * levels / costs->bytes_per_ns;

	if (hops < 0)
		return 0;
	return more * AHEAD > hops * costs->rail_hop_ns ? hops * costs->rail_hop_ns / more : AHEAD;
}

/* ---- Where elements are ---------------------------------------------------------------------- */

/* What the grid's rounds need, and this does not at the same time, if that is more. */
static bool uses_rails(const struct kolo_comm *c)
{
	return c->rails && c->rails->memory > KO_SCRATCH;
}

static size_t memory_of(const struct kolo_comm *c)
{
	return uses_rails(c) ? c->rails->memory : KO_SCRATCH;
}

static struct ko_piece block_at(const struct partials *p, int group, int number)
{
	return ko_plan_block(&p->plan, ko_leaders_rank(&p->l, group, number));
}

/* The first element of a group's blocks, by place. */
static size_t first_of(const struct partials *p, int group)
{
	if (p->firsts)
		return p->firsts[group];
	return group == p->l.ngroups ? p->plan.count
				     : ko_plan_block(&p->plan, group * p->l.size).first;
}

static size_t count_of(const struct partials *p, int group)
{
	if (coll_of(p) == KO_ALL_TO_ALL)
		return p->shares;
	group = ko_shape_wrap(group, p->l.ngroups);
	return first_of(p, group + 1) - first_of(p, group);
}

static bool is_in_order(const struct ko_shape *s)
{
	for (int k = 0; k < s->ngroups * s->size; k++)
		if (s->ranks[k] != k)
			return false;
	return true;
}

static void find_firsts(struct partials *p, size_t *firsts)
{
	size_t at = 0;

	for (int k = 0; k < p->l.ngroups; k++) {
		firsts[k] = at;
		for (int i = 0; i < p->l.size; i++)
			at += block_at(p, k, i).n;
	}
	firsts[p->l.ngroups] = at;
	p->firsts = firsts;
}

/* Leaders exchange entries: of this group, of the one after it, and so on round to the one before
 * it. An entry is a group's sum of the vector, or a group's elements. Returns the first element of
 * entry k. */
static size_t entry(const struct partials *p, int k)
{
	int group = p->l.group + k;
	size_t first = first_of(p, p->l.group);

	if (!p->shares && coll_of(p) != KO_ALL_GATHER)
		return (size_t)k * p->plan.count;
	if (group < p->l.ngroups)
		return first_of(p, group) - first;
	return p->plan.count - first + first_of(p, group - p->l.ngroups);
}

static char *bytes_at(const struct partials *p, char *base, size_t element)
{
	return base + element * p->run->size;
}

static struct partials describe(struct ko_run *run, enum kind kind)
{
	struct kolo_comm *c = run->comm;
	struct partials p = {
		.run = run, .l = ko_leaders_make(run, &c->shape, 0), .kind = kind, .radix = RADIX
	};
	size_t bytes = run->plan.count * run->size;
	char *at = uses_rails(c) ? c->rails->sums : c->scratch;

	p.plan = ko_plan_in_blocks(&run->plan, coll_of(&p), c->nranks);
	if (!is_in_order(&c->shape)) {
		find_firsts(&p, (size_t *)(void *)at);
		at += ((size_t)p.l.ngroups + 1) * sizeof(size_t);
	}
	if (kind == SHARES) {
		p.at = (char **)(void *)at;
		at += (size_t)p.l.ngroups * sizeof(*p.at);
	}
	p.sum = p.sums = p.values = p.messages = at;
	if (coll_of(&p) == KO_ALL_TO_ALL) {
		p.shares = (size_t)p.l.size * (size_t)p.l.size * p.plan.block;
		p.sums = at + (size_t)p.l.size * bytes + (size_t)c->nranks * run->size;
	} else if (kind == SHARES) {
		p.shares = (size_t)p.l.size * p.plan.block;
		p.values = p.sum + bytes;
		p.messages = p.values + bytes;
	} else if (coll_of(&p) != KO_ALL_GATHER) {
		p.values = p.sum + bytes;
	}
	return p;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

/* The values of a rank of the group, from an element on. */
static const char *values_of(const struct partials *p, int number, size_t element)
{
	if (number == p->l.me)
		return ko_at(p->run, p->own, element);
	return bytes_at(p, p->values, (size_t)number * p->plan.count + element);
}

/* The group's sum of a block, from the number after its owner's round to it. */
static void add_block(const struct partials *p, int owner, struct ko_piece q, char *to)
{
	const struct ko_run *run = p->run;
	const char *partial = values_of(p, ko_shape_wrap(owner + 1, p->l.size), q.first);

	if (run->red.first != run->copy || p->l.size == 1) {
		run->red.first(to, partial, q.n, &run->red.s);
		partial = to;
	}
	for (int k = 2; k <= p->l.size; k++) {
		run->red.combine(to, partial,
				 values_of(p, ko_shape_wrap(owner + k, p->l.size), q.first), q.n,
				 &run->red.s);
		partial = to;
	}
}

static void add_group(const struct partials *p)
{
	size_t at = 0;

	for (int k = 0; k < p->l.ngroups; k++)
		for (int i = 0; i < p->l.size; i++) {
			struct ko_piece q = block_at(p, k, i);

			if (q.n)
				add_block(p, i, q, bytes_at(p, p->sum, at));
			at += q.n;
		}
}

/* Adds up a group's elements, from the sum of the group after it round to its own; of a reduce,
 * after root's group round to that. NULL: the result takes the place of the first one. Returns
 * where it is. */
static char *add_sums(const struct partials *p, int group, char *to)
{
	const struct ko_run *run = p->run;
	size_t n = count_of(p, group), first = first_of(p, group);
	int last = coll_of(p) == KO_REDUCE ? p->l.root_group : group;
	const char *partial = NULL;

	for (int k = 1; n && k <= p->l.ngroups; k++) {
		int after = ko_shape_wrap(last + k - p->l.group, p->l.ngroups);
		char *sum = p->shares ? p->at[ko_shape_wrap(-after, p->l.ngroups)]
				      : bytes_at(p, p->sums, (size_t)after * p->plan.count + first);

		to = to ? to : sum;
		if (k > 1)
			p->add(to, partial, sum, n, &run->red.s);
		partial = k > 1 ? to : sum;
	}
	if (n)
		run->red.finish(to, to, n, &run->red.s);
	return to;
}

/* A group's elements go where they belong in dst. */
static void place_group(const struct partials *p, int group, const char *elements, void *dst)
{
	const struct ko_run *run = p->run;

	if (!p->firsts) {
		ko_run_copy(run, ko_at_mut(run, dst, first_of(p, group)), elements,
			    count_of(p, group) * run->size);
		return;
	}
	for (int i = 0; i < p->l.size; i++) {
		struct ko_piece q = block_at(p, group, i);

		if (q.n)
			run->copy(ko_at_mut(run, dst, q.first), elements, q.n, &run->red.s);
		elements += q.n * run->size;
	}
}

/* ---- Between leaders ------------------------------------------------------------------------- */

/* A message of the entries from `first` on, before `end`. */
static void add_entries(struct partials *p, int group, bool sends, char *entries, int first,
			int end)
{
	size_t n = entry(p, end) - entry(p, first);

	if (n)
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, group), sends,
			       bytes_at(p, entries, entry(p, first)), n);
}

/* Everyone gets all entries: Bruck's all-gather, each hop doubles what a leader has. */
static int gather_all(struct partials *p, char *entries)
{
	int n = p->l.ngroups, rc = 0;

	for (int has = 1; rc == 0 && has < n; has *= 2) {
		int more = has < n - has ? has : n - has;

		add_entries(p, p->l.group - has, true, entries, 0, more);
		add_entries(p, p->l.group + has, false, entries, has, has + more);
		rc = ko_leaders_do(&p->l);
	}
	return rc;
}

/* Elements of share k of the group `before` this one, before the hop over `far` groups. Hops over
 * fewer have brought it from the group k % far before that. */
static size_t count_of_share(const struct partials *p, int before, int k, int far)
{
	return count_of(p, p->l.group - before + k - k % far);
}

/* Elements that such a group sends in the hop. */
static size_t count_of_hop(const struct partials *p, int before, int far)
{
	size_t n = 0;

	for (int k = far; k < p->l.ngroups; k++)
		if (k & far)
			n += count_of_share(p, before, k, far);
	return n;
}

/* Copies what the hop takes further into a message. */
static void pack(const struct partials *p, int far, char *message)
{
	for (int k = far; k < p->l.ngroups; k++) {
		size_t n = k & far ? count_of_share(p, 0, k, far) : 0;

		if (n)
			p->run->copy(message, p->at[k], n, &p->run->red.s);
		message += n * p->run->size;
	}
}

/* What has come stays where it is; of an all_to_all it takes the place of what has gone. */
static void unpack(struct partials *p, int far, char *message)
{
	for (int k = far; k < p->l.ngroups; k++) {
		size_t n = k & far ? count_of_share(p, far, k, far) : 0;

		if (n && coll_of(p) == KO_ALL_TO_ALL)
			p->run->copy(p->at[k], message, n, &p->run->red.s);
		else if (n)
			p->at[k] = message;
		message += n * p->run->size;
	}
}

/* Elements of a message, at most. */
static size_t most_of_hop(const struct partials *p)
{
	return (size_t)(p->l.ngroups / 2) * p->shares;
}

/* A hop. *in: where the message that comes may be. */
static int hop(struct partials *p, int far, char **in)
{
	size_t sends = count_of_hop(p, 0, far), gets = count_of_hop(p, far, far);
	int rc;

	pack(p, far, p->messages);
	if (sends)
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, p->l.group + far), true, p->messages,
			       sends);
	if (gets)
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, p->l.group - far), false, *in, gets);
	rc = ko_leaders_do(&p->l);
	if (rc < 0)
		return rc;
	unpack(p, far, *in);
	if (coll_of(p) != KO_ALL_TO_ALL)
		*in = bytes_at(p, *in, gets);
	return 0;
}

/* Bruck's all-to-all. Share k is at first for the group k after this one, and at the end from the
 * group k before it. */
static int exchange_shares(struct partials *p)
{
	char *in = bytes_at(p, p->messages, most_of_hop(p));
	int rc = 0;

	for (int far = 1; rc == 0 && far < p->l.ngroups; far *= 2)
		rc = hop(p, far, &in);
	return rc;
}

/* Each leader gets all groups' sums of its own group's elements. */
static int share_out(struct partials *p)
{
	for (int k = 0; k < p->l.ngroups; k++) {
		int group = ko_shape_wrap(p->l.group + k, p->l.ngroups);

		p->at[k] = bytes_at(p, p->sum, first_of(p, group));
	}
	return exchange_shares(p);
}

/* How many groups this one comes after root's. */
static int after_root(const struct partials *p)
{
	return ko_shape_wrap(p->l.group - p->l.root_group, p->l.ngroups);
}

/* In a tree in which each leader gets the entries of up to radix - 1 others on each level. Those of
 * a level are `far` groups apart, then radix times as far. Returns how far apart those are among
 * which this one sends; root's: at least all groups. */
static int level_of(const struct partials *p)
{
	int far = 1;

	while (far < p->l.ngroups && after_root(p) / far % p->radix == 0)
		far *= p->radix;
	return far;
}

/* The group whose leader is the next one on the way to root's. */
static int next_to_root(const struct partials *p)
{
	int level = level_of(p);

	return p->l.group - after_root(p) / level % p->radix * level;
}

/* Entries of this group and of those whose sums come by way of it. */
static int count_gathered(const struct partials *p)
{
	int rest = p->l.ngroups - after_root(p), level = level_of(p);

	return level < rest ? level : rest;
}

/* The end of the entries that come in one message with entry `first`. */
static int end_of_message(const struct partials *p, int first)
{
	int far = 1, n = p->l.ngroups;

	while (far <= first / p->radix)
		far *= p->radix;
	return first + far < n ? first + far : n;
}

/* Root's leader gets all entries. */
static int gather(struct partials *p, char *entries)
{
	int has = count_gathered(p), from = 1, rc = 0;

	for (int k = 1, end; rc == 0 && k < has; k = end) {
		end = end_of_message(p, k) < has ? end_of_message(p, k) : has;
		add_entries(p, p->l.group + k, false, entries, k, end);
		if ((entry(p, end) - entry(p, from)) * p->run->size <= TOGETHER)
			continue;
		rc = ko_leaders_do(&p->l);
		from = end;
	}
	if (rc == 0)
		rc = ko_leaders_do(&p->l);
	if (rc < 0 || after_root(p) == 0)
		return rc;
	add_entries(p, next_to_root(p), true, entries, 0, has);
	return ko_leaders_do(&p->l);
}

/* Gets the next sums, from entry `first` on: 1 to `to`, the others to `in`. Returns the end of
 * them, or an error. */
static int get_sums(struct partials *p, int first, char *to, char *in)
{
	size_t n = p->plan.count, got = 0;
	int end = first, rc;

	do {
		int next = end_of_message(p, end),
		    leader = ko_leaders_leader(&p->l, p->l.group + end);
		size_t more = (size_t)(next - end) * n;

		ko_leaders_add(&p->l, leader, false, end == 1 ? to : bytes_at(p, in, got), more);
		got += end == 1 ? 0 : more;
		end = next;
	} while (end < p->l.ngroups &&
		 (got + (size_t)(end_of_message(p, end) - end) * n) * p->run->size <= TOGETHER);
	rc = ko_leaders_do(&p->l);
	return rc < 0 ? rc : end;
}

/* Root's leader adds up whole sums as they come, from the group after its own round to that. */
static int add_as_they_come(struct partials *p, void *dst)
{
	const struct ko_run *run = p->run;
	size_t n = p->plan.count;
	char *to = p->firsts ? bytes_at(p, p->sum, n) : dst;
	char *in = bytes_at(p, p->sum, p->firsts ? 2 * n : n);
	int end;

	for (int k = 1; k < p->l.ngroups; k = end) {
		int first = k > 1 ? k : 2; /* in `in` */

		end = get_sums(p, k, to, in);
		if (end < 0)
			return end;
		for (int e = first; e < end; e++)
			p->add(to, to, bytes_at(p, in, (size_t)(e - first) * n), n, &run->red.s);
	}
	p->add(to, to, p->sum, n, &run->red.s);
	run->red.finish(to, to, n, &run->red.s);
	for (int k = 0; p->firsts && k < p->l.ngroups; k++)
		place_group(p, k, bytes_at(p, to, first_of(p, k)), dst);
	return 0;
}

/* From here on the tree is that from root's leader. */
static void begin_spread(struct partials *p)
{
	double bytes = (double)(p->plan.count * p->run->size);

	p->radix = bytes < wide_end(&p->run->comm->agreed.costs) ? RADIX : 2;
}

/* Root's leader has dst; all others get it. Who passes it on to most others gets it first. Of a
 * long one each gets all before the next one, and passes it on meanwhile. */
static int spread(struct partials *p, char *dst)
{
	bool by_turns = p->plan.count * p->run->size > TOGETHER;
	int has, rc = 0;

	begin_spread(p);
	has = count_gathered(p);
	if (after_root(p) > 0) {
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, next_to_root(p)), false, dst,
			       p->plan.count);
		rc = ko_leaders_do(&p->l);
	}
	for (int far = level_of(p) / p->radix; rc == 0 && far > 0; far /= p->radix)
		for (int k = far; rc == 0 && k < p->radix * far && k < has; k += far) {
			ko_leaders_add(&p->l, ko_leaders_leader(&p->l, p->l.group + k), true, dst,
				       p->plan.count);
			if (by_turns)
				rc = ko_leaders_do(&p->l);
		}
	return rc < 0 ? rc : ko_leaders_do(&p->l);
}

/* ---- Into and out of the group --------------------------------------------------------------- */

static void place_entries(const struct partials *p, char *entries, void *dst)
{
	for (int k = 0; k < p->l.ngroups; k++)
		place_group(p, ko_shape_wrap(p->l.group + k, p->l.ngroups),
			    bytes_at(p, entries, entry(p, k)), dst);
}

/* The leader has the sums of all groups, or of all elements. */
static void place_sums(const struct partials *p, void *dst)
{
	if (p->shares)
		place_entries(p, p->values, dst);
	for (int k = 0; !p->shares && k < p->l.ngroups; k++) {
		char *to = p->firsts ? NULL : ko_at_mut(p->run, dst, first_of(p, k));

		to = add_sums(p, k, to);
		if (p->firsts)
			place_group(p, k, to, dst);
	}
}

/* Elements of the result of a rank of this group. */
static size_t count_of_result(const struct partials *p, int number)
{
	return coll_of(p) == KO_ALL_TO_ALL ? p->plan.count : block_at(p, p->l.group, number).n;
}

/* Each rank of the group gets its result from the leader, which has them by number. */
static int scatter(struct partials *p, const char *results, void *dst)
{
	struct ko_leaders *l = &p->l;
	bool leads = ko_leaders_leads(l);
	size_t n = count_of_result(p, l->me);

	if (!leads && n)
		ko_leaders_add(l, ko_leaders_leader(l, l->group), false, dst, n);
	for (int i = 0; leads && i < l->size; i++) {
		n = count_of_result(p, i);
		if (n && i == l->me)
			p->run->copy(dst, results, n, &p->run->red.s);
		else if (n)
			ko_leaders_add(l, ko_leaders_rank(l, l->group, i), true, results, n);
		results += n * p->run->size;
	}
	return ko_leaders_do(l);
}

/* ---- The collectives ------------------------------------------------------------------------- */

/* One leader has the result, and sends it to the others. As nobody is root, it is that of the last
 * group. */
static int reduce_at_center(struct partials *p, void *dst)
{
	int rc;

	add_group(p);
	rc = gather(p, p->sums);
	if (rc == 0 && after_root(p) == 0)
		place_sums(p, dst);
	return rc < 0 ? rc : spread(p, dst);
}

/* The leader of a reduction. Afterwards the entries of all groups are in `values`, or whole sums in
 * `sums`, if it needs them. *own: the sum of its group's elements, for a reduce-scatter. */
static int reduce_between(struct partials *p, void *dst, char **own)
{
	bool scatters = coll_of(p) == KO_REDUCE_SCATTER, to_root = coll_of(p) == KO_REDUCE;
	int rc = 0;

	add_group(p);
	if (to_root && !p->shares && after_root(p) == 0)
		return add_as_they_come(p, dst);
	if (p->shares && (rc = share_out(p)) < 0)
		return rc;
	if (p->shares)
		*own = add_sums(p, p->l.group, p->values);
	if (!p->shares || !scatters)
		rc = (to_root ? gather : gather_all)(p, p->shares ? p->values : p->sums);
	if (rc == 0 && !p->shares && scatters)
		*own = add_sums(p, p->l.group, NULL);
	return rc;
}

static int reduction(struct partials *p, const void *src, void *dst)
{
	const struct ko_run *run = p->run;
	bool leads = ko_leaders_leads(&p->l), to_root = coll_of(p) == KO_REDUCE;
	char *own = NULL;
	int rc;

	p->own = src;
	rc = ko_leaders_collect(&p->l, src, p->values, p->plan.count);
	if (rc == 0 && leads)
		rc = p->kind == CENTER ? reduce_at_center(p, dst) : reduce_between(p, dst, &own);
	if (rc < 0)
		return rc;
	if (coll_of(p) == KO_REDUCE_SCATTER)
		return scatter(p, own, dst);
	if (to_root ? p->shares && run->comm->rank == run->desc.root : leads && p->kind != CENTER)
		place_sums(p, dst);
	return to_root ? 0 : ko_leaders_hand_out(&p->l, dst, p->plan.count);
}

static int all_gather(struct partials *p, const void *src, void *dst)
{
	size_t own = p->plan.block;
	bool leads = ko_leaders_leads(&p->l);
	int rc;

	if (leads)
		p->run->copy(p->values, src, own, &p->run->red.s); /* it leads: its number is 0 */
	rc = ko_leaders_collect(&p->l, src, p->values, own);
	if (rc == 0 && leads)
		rc = gather_all(p, p->values);
	if (rc < 0)
		return rc;
	if (leads)
		place_entries(p, p->values, dst);
	return ko_leaders_hand_out(&p->l, dst, p->plan.count);
}

static int broadcast(struct partials *p, const void *src, void *dst)
{
	const struct ko_run *run = p->run;
	int rc = 0;

	if (run->comm->rank == run->desc.root && dst != src)
		ko_run_copy(run, dst, src, p->plan.count * run->size);
	if (ko_leaders_leads(&p->l))
		rc = spread(p, dst);
	return rc < 0 ? rc : ko_leaders_hand_out(&p->l, dst, p->plan.count);
}

/* What the group's ranks have for those of another one is a share, by receiver and then by sender.
 * Copies it from the ranks' vectors, or, when share k has come, to them. */
static void copy_share(const struct partials *p, int k, bool has_come)
{
	const struct ko_leaders *l = &p->l;
	char *at = p->at[k];

	for (int to = 0; to < l->size; to++)
		for (int from = 0; from < l->size; from++) {
			struct ko_piece q = has_come ? block_at(p, l->group - k, from)
						     : block_at(p, l->group + k, to);
			size_t vector = (size_t)(has_come ? to : from) * p->plan.count;
			char *block = bytes_at(p, p->values, vector + q.first);

			p->run->copy(has_come ? block : at, has_come ? at : block, q.n,
				     &p->run->red.s);
			at += q.n * p->run->size;
		}
}

static int all_to_all(struct partials *p, const void *src, void *dst)
{
	bool leads = ko_leaders_leads(&p->l);
	int rc;

	if (leads)
		p->run->copy(p->values, src, p->plan.count, &p->run->red.s); /* its number is 0 */
	rc = ko_leaders_collect(&p->l, src, p->values, p->plan.count);
	for (int k = 0; rc == 0 && leads && k < p->l.ngroups; k++) {
		p->at[k] = bytes_at(p, p->sums, (size_t)k * p->shares);
		copy_share(p, k, false);
	}
	if (rc == 0 && leads)
		rc = exchange_shares(p);
	for (int k = 0; rc == 0 && leads && k < p->l.ngroups; k++)
		copy_share(p, k, true);
	return rc < 0 ? rc : scatter(p, p->values, dst);
}

static int begin(struct ko_run *run, enum kind kind, const void *src, void *dst)
{
	struct partials p = describe(run, kind);
	int rc;

	if (p.plan.count == 0)
		return 0;
	p.add = ko_reducer_of_sums(run->red, (enum kolo_type)run->desc.type).combine;
	rc = ko_leaders_begin(&p.l);
	if (rc < 0)
		return rc;
	if (run->desc.coll == KO_ALL_GATHER)
		return all_gather(&p, src, dst);
	if (run->desc.coll == KO_BROADCAST)
		return broadcast(&p, src, dst);
	if (run->desc.coll == KO_ALL_TO_ALL)
		return all_to_all(&p, src, dst);
	return reduction(&p, src, dst);
}

static int partials(struct ko_run *run, const void *src, void *dst)
{
	return begin(run, PARTIALS, src, dst);
}

static int center(struct ko_run *run, const void *src, void *dst)
{
	return begin(run, CENTER, src, dst);
}

static int shares(struct ko_run *run, const void *src, void *dst)
{
	return begin(run, SHARES, src, dst);
}

/* ---- Formulas -------------------------------------------------------------------------------- */

static void count_gather_all(const struct partials *p, struct ko_model *m)
{
	int n = p->l.ngroups;

	for (int has = 1; has < n; has *= 2)
		m->sent += entry(p, has < n - has ? has : n - has);
	m->received += entry(p, n) - entry(p, 1);
}

static void count_gather(const struct partials *p, struct ko_model *m)
{
	int has = count_gathered(p);

	m->received += entry(p, has) - entry(p, 1);
	m->sent += after_root(p) ? entry(p, has) : 0;
}

static void count_spread(struct partials *p, struct ko_model *m)
{
	int has;

	begin_spread(p);
	has = count_gathered(p);
	m->received += after_root(p) ? p->plan.count : 0;
	for (int k = 1; k < has; k = end_of_message(p, k))
		m->sent += p->plan.count;
}

/* What leaders send each other. */
static void count_between(struct partials *p, struct ko_model *m)
{
	for (int far = 1; p->shares && far < p->l.ngroups; far *= 2) {
		m->sent += count_of_hop(p, 0, far);
		m->received += count_of_hop(p, far, far);
	}
	if (coll_of(p) == KO_BROADCAST) {
		count_spread(p, m);
	} else if (p->kind == CENTER) {
		count_gather(p, m);
		count_spread(p, m);
	} else if (coll_of(p) == KO_REDUCE) {
		count_gather(p, m);
	} else if (coll_of(p) != KO_ALL_TO_ALL && (!p->shares || coll_of(p) != KO_REDUCE_SCATTER)) {
		count_gather_all(p, m);
	}
}

/* What a rank gives its leader, and what it gets. */
static struct ko_model member(const struct partials *p, int number)
{
	size_t count = p->plan.count;

	switch (coll_of(p)) {
	case KO_REDUCE_SCATTER:
		return (struct ko_model){ count, block_at(p, p->l.group, number).n };
	case KO_ALL_GATHER: return (struct ko_model){ p->plan.block, count };
	case KO_BROADCAST: return (struct ko_model){ 0, count };
	case KO_REDUCE: return (struct ko_model){ count, 0 };
	default: return (struct ko_model){ count, count };
	}
}

static struct ko_model count(const struct ko_run *run, enum kind kind)
{
	struct ko_run copy = *run;
	struct partials p = describe(&copy, kind);
	struct ko_model m = { 0 };

	if (!ko_leaders_leads(&p.l))
		return member(&p, p.l.me);
	for (int i = 0; i < p.l.size; i++)
		if (i != p.l.me) {
			m.received += member(&p, i).sent;
			m.sent += member(&p, i).received;
		}
	count_between(&p, &m);
	return m;
}

static struct ko_model partials_model(const struct ko_run *run)
{
	return count(run, PARTIALS);
}

static struct ko_model center_model(const struct ko_run *run)
{
	return count(run, CENTER);
}

static struct ko_model shares_model(const struct ko_run *run)
{
	return count(run, SHARES);
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Sums in the largest message of `gather`. */
static int64_t largest_message(int64_t groups)
{
	int64_t far = 1;

	while (far * RADIX < groups)
		far *= RADIX;
	return far;
}

uint64_t ko_partials_room(const struct kolo_comm *c)
{
	uint64_t room = memory_of(c);
	uint64_t spare = ko_rails_spare(&c->shape);

	return c->shape.ngroups > 1 && spare < room ? room - spare : 0;
}

/* Bytes from which on a broadcast is faster in a chain of slots, which all ranks work on at the
 * same time. */
static double chain_begin(const struct ko_costs *costs, int nranks)
{
	double others = (double)costs->rails - 1;
	double more = log2_up(costs->groups) + others - 1; /* vectors in a row */
	double hops_ns = (nranks - 1) * costs->hop_ns -
			 log2_up(costs->groups) * costs->rail_hop_ns -
			 hops_of(others) * costs->group_hop_ns;
	double slots = (nranks - 2) * (double)costs->slot_bytes;
	double bytes = hops_ns * costs->bytes_per_ns / 2 + slots; /* that the chain takes longer */

	return more <= 0 ? 1e18 : bytes > 0 ? bytes / more : 0;
}

static uint64_t partials_end(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			     bool windows)
{
	uint64_t room = costs->leaders_room;
	int64_t sums = costs->groups, values = costs->rails + 1; /* at the same place */

	(void)windows;
	if (coll == KO_REDUCE && room > TOGETHER) {
		room -= TOGETHER;
		sums = 2 + largest_message(costs->groups);
	}
	if (room == 0 || coll == KO_BARRIER || ko_coll_has_messages(coll))
		return 0;
	if (coll == KO_BROADCAST)
		return (uint64_t)chain_begin(costs, nranks);
	if (coll == KO_ALL_GATHER)
		return room + 1;
	return room / (uint64_t)(sums > values ? sums : values) + 1;
}

/* With two groups partials send as many bytes in fewer hops. */
static uint64_t center_end(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			   bool windows)
{
	return coll == KO_ALL_REDUCE && costs->groups > 2
		       ? partials_end(coll, costs, nranks, windows)
		       : 0;
}

/* Vectors beside the group's sum: values of a group, later elements of all groups, what is sent,
 * and what has come. */
static double vectors_of_shares(const struct ko_costs *costs)
{
	double later = 1 + (1 + log2_up(costs->groups)) / 2.0, values = (double)costs->rails;

	return later > values ? later : values;
}

/* Two leaders have nothing to share. */
static uint64_t shares_end(enum ko_coll coll, const struct ko_costs *costs, int nranks,
			   bool windows)
{
	(void)nranks, (void)windows;
	if (costs->leaders_room && coll == KO_ALL_TO_ALL)
		return costs->leaders_room / (uint64_t)(2 * costs->rails) + 1;
	if (costs->leaders_room == 0 || costs->groups == 2 || !ko_coll_reduces(coll))
		return 0;
	return (uint64_t)((double)costs->leaders_room / (1 + vectors_of_shares(costs))) + 1;
}

/* With these hops between leaders, vectors that all of them send at the same time, and vectors of
 * one alone; and those into groups and out of them. */
static struct ko_estimate estimate(enum ko_coll coll, const struct ko_costs *costs, double hops,
				   double vectors, double alone)
{
	double others = (double)costs->rails - 1;
	double ways = coll == KO_REDUCE || coll == KO_BROADCAST ? 1 : 2;

	vectors += ways * others;
	return (struct ko_estimate){ hops * costs->rail_hop_ns +
					     ways * hops_of(others) * costs->group_hop_ns,
				     2 * vectors / costs->bytes_per_ns + lone(costs, alone) };
}

static struct ko_estimate partials_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
					bool windows)
{
	double h = (double)costs->groups, hops = log2_up(costs->groups), vectors = h - 1;

	(void)nranks, (void)windows;
	if (coll == KO_BROADCAST)
		vectors = hops;
	if (coll == KO_ALL_GATHER)
		vectors = (h - 1) / h;
	if (coll == KO_REDUCE)
		return estimate(coll, costs, tree_of(costs).hops, 0, in_a_row(costs, h - 1));
	return estimate(coll, costs, hops, vectors, 0);
}

static struct ko_estimate center_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				      bool windows)
{
	struct tree t = tree_of(costs);
	double gathered = in_a_row(costs, (double)costs->groups - 1);

	(void)nranks, (void)windows;
	return estimate(coll, costs, 2 * t.hops, 0, gathered + t.vectors);
}

static struct ko_estimate shares_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				      bool windows)
{
	double h = (double)costs->groups, hops = log2_up(costs->groups);

	(void)nranks, (void)windows;
	if (coll == KO_ALL_TO_ALL)
		return estimate(coll, costs, hops, hops / 2 * (double)costs->rails, 0);
	if (coll == KO_REDUCE_SCATTER)
		return estimate(coll, costs, hops, hops / 2, 0);
	if (coll == KO_REDUCE)
		return estimate(coll, costs, hops + tree_of(costs).hops, hops / 2,
				in_a_row(costs, h - 1) / h);
	return estimate(coll, costs, 2 * hops, hops / 2 + (h - 1) / h, 0);
}

/* No factors are sent, parts of an all-gather may be uneven, and the room beside the vectors is for
 * elements of Kolo's types. */
static bool partials_takes(const struct ko_run *run)
{
	return run->desc.op != KO_DESC_PREMUL && run->size <= KO_MAX_SIZE &&
	       (run->desc.coll != KO_ALL_GATHER || !(run->desc.how & KO_UNEVEN));
}

/* Bytes that a leader needs to share out sums; see `describe`. */
static size_t memory_for_shares(const struct ko_run *run)
{
	const struct ko_shape *s = &run->comm->shape;
	struct ko_plan plan =
		ko_plan_in_blocks(&run->plan, (enum ko_coll)run->desc.coll, run->comm->nranks);
	size_t n = plan.count, groups = (size_t)s->ngroups, size = (size_t)s->size;
	size_t message = groups / 2 * size * plan.block;
	size_t values = size * n, later = n + (1 + (size_t)log2_up(s->ngroups)) * message;

	return (groups + 1) * sizeof(size_t) + groups * sizeof(char *) +
	       (n + (values > later ? values : later)) * run->size;
}

/* One group's elements may be all of an uneven vector. Of a vector shorter than the ranks are many,
 * the rounded parts may need more than there is. */
static bool shares_takes(const struct ko_run *run)
{
	return run->desc.op != KO_DESC_PREMUL && run->size <= KO_MAX_SIZE &&
	       !(run->desc.how & KO_UNEVEN) && memory_for_shares(run) <= memory_of(run->comm);
}

const struct ko_algorithm_ops ko_partials_ops = {
	.name = "partials",
	.what = "ranks of a group add up, and one of each group exchanges these sums",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = partials_end,
	.cost = partials_cost,
	.takes = partials_takes,
	.run = partials,
	.model = partials_model,
};

const struct ko_algorithm_ops ko_center_ops = {
	.name = "center",
	.what = "as partials, but one rank adds up all sums, and the result comes from there",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = center_end,
	.cost = center_cost,
	.takes = partials_takes,
	.run = center,
	.model = center_model,
};

const struct ko_algorithm_ops ko_shares_ops = {
	.name = "shares",
	.what = "as partials, but a group gets only what is for its own elements, and passes on sums",
	.sums = 1 << KO_SUMS_GRID,
	.reach = KO_ANYWHERE,
	.end = shares_end,
	.cost = shares_cost,
	.takes = shares_takes,
	.run = shares,
	.model = shares_model,
};
