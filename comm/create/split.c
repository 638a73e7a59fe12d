/* Makes communicators of the ranks of another one (kolo_comm_split, kolo_comm_dup). The ranks learn
 * who the others are by an all_gather of the parent, and need no meeting point. ko_comm_complete
 * does the rest, as for any communicator. */
#include "comm/api/group.h"
#include "comm/base/clock.h"
#include "comm/core/wait.h"
#include "comm/create/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct member {
	struct ko_entry entry; /* rank: in the parent, until sorted; status: 0 or an error */
	int32_t color, key;
};

static int by_key(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->entry.rank - y->entry.rank;
}

/* Moves the members of `color` to the front, in their new order. Returns how many there are. */
static int pick_members(struct member *all, int nranks, int color)
{
	int n = 0;

	for (int r = 0; r < nranks; r++)
		if (all[r].color == color)
			all[n++] = all[r];
	qsort(all, (size_t)n, sizeof(*all), by_key);
	return n;
}

/* What is wanted. */
struct wish {
	const char *function; /* that the caller called, for error texts */
	int color, key;
	const char *order; /* of additions; NULL: the parent's */
	bool alike;        /* the same ranks in the same order: what the parent measured holds */
};

/* Connects `half`, the communicator of this rank's color, by what all ranks of the parent have
 * said. */
static int join_members(const struct kolo_comm *parent, const struct wish *w, struct member *all,
			struct kolo_comm *half)
{
	int n = pick_members(all, parent->nranks, w->color);

	for (int r = 0; r < n; r++) {
		if (all[r].entry.status < 0)
			return ko_fail(
				all[r].entry.status,
				"rank %d could not take part in %s (%s); its own error says why",
				all[r].entry.rank, w->function, kolo_strerror(all[r].entry.status));
		half->table[r] = all[r].entry;
		half->table[r].rank = r;
		half->table[r].nranks = n;
	}
	return ko_comm_complete(half, w->alike ? parent : NULL,
				parent->timeout_ms ? ko_now_ms() + parent->timeout_ms : INT64_MAX);
}

/* Finds this rank's new rank and the number of members. They are needed before the new communicator
 * can listen, because they decide how many lifelines it has. */
static int count_members(struct kolo_comm *comm, int color, int key, struct member *all, int *rank,
			 int *n)
{
	struct member mine = { .entry.rank = comm->rank, .color = color, .key = key };
	int rc = kolo_all_gather(comm, &mine, all, sizeof(mine), KOLO_U8, NULL);

	if (rc < 0)
		return rc;
	*n = pick_members(all, comm->nranks, color);
	for (int r = 0; r < *n; r++)
		if (all[r].entry.rank == comm->rank)
			*rank = r;
	return 0;
}

/* Makes the new communicator. If other hosts can reach the parent, it listens at the same address
 * for them. */
static int start(const struct kolo_comm *parent, struct ko_entry *mine, struct kolo_comm **out)
{
	const union ko_net *net = &parent->table[parent->rank].place.net;
	int rc = ko_comm_start(parent->timeout_ms, &parent->log, parent->progress, parent->roster,
			       mine, out);

	return rc == 0 && net->any.sa_family ? ko_lifelines_listen((*out)->lifelines, net, mine)
					     : rc;
}

/* A rank gives up if the parent fails. Others may see that before the parent's failure. */
static int parents_failure(struct kolo_comm *parent)
{
	enum { ELSEWHERE_MS = 1500, STEP_MS = 10 };
	int64_t until = ko_now_ms() + (parent->spread ? ELSEWHERE_MS : 0);
	int rc;

	while ((rc = ko_wait_hear(parent)) == 0 && ko_now_ms() < until)
		nanosleep(&(struct timespec){ .tv_nsec = STEP_MS * 1000000 }, NULL);
	return rc;
}

/* This rank as the others of the new communicator have to know it. */
static struct member describe(const struct kolo_comm *comm, const struct wish *w,
			      const struct ko_entry *started, int status)
{
	struct member m;

	memset(&m, 0, sizeof(m)); /* all of it is sent */
	memcpy(&m.entry, started, sizeof(m.entry));
	m.color = w->color;
	m.key = w->key;
	m.entry.rank = comm->rank;
	m.entry.status = status;
	m.entry.limits = comm->table[0].limits;
	memcpy(m.entry.transport, comm->table[0].transport, KO_NAME);
	memcpy(m.entry.algorithm, comm->table[0].algorithm, KO_NAME);
	memcpy(m.entry.net, comm->table[0].net, KO_NAME);
	snprintf(m.entry.order, KO_NAME, "%s", w->order ? w->order : comm->table[0].order);
	m.entry.group = comm->table[comm->rank].group;
	return m;
}

/* Makes *out, which may be there after an error, too. `all` has room for all ranks. */
static int make(struct kolo_comm *comm, const struct wish *w, struct member *all,
		struct kolo_comm **out)
{
	struct ko_entry started;
	struct member mine;
	int rc = 0, status = 0;
	char why[KO_TEXT];

	memset(&started, 0, sizeof(started));
	started.rank = comm->rank;
	started.nranks = comm->nranks;
	if (!w->alike)
		rc = count_members(comm, w->color, w->key, all, &started.rank, &started.nranks);
	if (rc == 0) {
		if (w->color != KOLO_NOCOLOR)
			status = start(comm, &started, out);
		snprintf(why, sizeof(why), "%s", kolo_last_error());
		mine = describe(comm, w, &started, status);
		rc = kolo_all_gather(comm, &mine, all, sizeof(mine), KOLO_U8, NULL);
	}
	if (rc == 0 && status < 0)
		rc = ko_fail(status, "%s", why);
	if (rc == 0 && w->color != KOLO_NOCOLOR)
		rc = join_members(comm, w, all, *out);
	return rc;
}

static int split(struct kolo_comm *comm, const struct wish *w, struct kolo_comm **out)
{
	struct kolo_comm *c = NULL;
	struct member *all;
	char why[KO_TEXT];
	int rc, failure;

	*out = NULL;
	if ((rc = ko_group_refuse(comm, w->function)) < 0)
		return rc;
	all = calloc((size_t)comm->nranks, sizeof(*all));
	if (!all) /* the others wait in the collective below and can't go on without this rank */
		return ko_comm_fail(comm, KOLO_ENOMEM,
				    "rank %d: no memory to split a communicator of %d ranks",
				    comm->rank, comm->nranks);
	rc = make(comm, w, all, &c);
	free(all);
	if (rc < 0) {
		snprintf(why, sizeof(why), "%s", kolo_last_error());
		failure = parents_failure(comm);
		rc = failure < 0 ? failure : ko_fail(rc, "%s", why);
	}
	if (rc < 0 && c)
		ko_comm_give_up(c, rc);
	else
		*out = c;
	return rc;
}

int kolo_comm_split(struct kolo_comm *comm, int color, int key, struct kolo_comm **out)
{
	return kolo_comm_split_order(comm, color, key, NULL, out);
}

int kolo_comm_split_order(struct kolo_comm *comm, int color, int key, const char *order,
			  struct kolo_comm **out)
{
	const struct wish w = { "kolo_comm_split", color, key, order, false };
	enum ko_sums sums;
	int rc;

	if (!comm || !out || (color < 0 && color != KOLO_NOCOLOR))
		return ko_fail(
			KOLO_EINVAL,
			"kolo_comm_split: color %d: want 0 or more, or KOLO_NOCOLOR; comm and out "
			"must not be NULL",
			color);
	*out = NULL;
	if (order && (rc = ko_sums_find(order, &sums)) < 0)
		return rc;
	return split(comm, &w, out);
}

int kolo_comm_dup(struct kolo_comm *comm, struct kolo_comm **out)
{
	const struct wish w = { "kolo_comm_dup", 0, 0, NULL, true };

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_dup: comm and out must not be NULL");
	return split(comm, &w, out);
}
