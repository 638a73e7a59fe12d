/* The grid: the place of each rank (kolo_grid_locate), groups along its axes, and their
 * communicators (kolo_grid_create). */
#include "zero/base/basics.h"
#include "zero/base/host.h"
#include "zero/parallel/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { AXES = KOLO_GRID_TIED + 1 };

struct kolo_grid {
	struct kolo_grid_place here;
	struct kolo_comm *comms[AXES];
};

/* ---- Places ---------------------------------------------------------------------------------- */

/* The place of a rank in a grid of these sizes. */
static struct kolo_grid_place place_of(const struct kolo_grid_place *sizes, int rank)
{
	struct kolo_grid_place p = *sizes;

	p.tensor = rank % p.tensor_size;
	p.data = rank / p.tensor_size % p.data_size;
	p.pipe = rank / p.tensor_size / p.data_size;
	return p;
}

int kolo_grid_locate(int nranks, int tensor_size, int pipe_size, int rank,
		     struct kolo_grid_place *out)
{
	int64_t model = (int64_t)tensor_size * pipe_size;
	struct kolo_grid_place sizes;

	if (!out || rank < 0 || rank >= nranks)
		return kolo_error_set(KOLO_EINVAL, "the place of rank %d of %d in a grid", rank,
				      nranks);
	if (tensor_size < 1 || pipe_size < 1)
		return kolo_error_set(KOLO_EINVAL,
				      "a grid of tensor %d x pipe %d: want at least 1 of each",
				      tensor_size, pipe_size);
	if (nranks % model)
		return kolo_error_set(
			KOLO_EINVAL,
			"a grid of tensor %d x pipe %d needs a multiple of %lld ranks, and there are %d",
			tensor_size, pipe_size, (long long)model, nranks);
	sizes = (struct kolo_grid_place){ .tensor_size = tensor_size,
					  .data_size = (int)(nranks / model),
					  .pipe_size = pipe_size };
	*out = place_of(&sizes, rank);
	return 0;
}

static int rank_at(const struct kolo_grid_place *p, int tensor, int data, int pipe)
{
	return (pipe * p->data_size + data) * p->tensor_size + tensor;
}

/* The number of ranks in the group of the rank at `place`. */
static int size_of(const struct kolo_grid_place *p, enum kolo_grid_axis axis)
{
	bool ends = p->pipe_size > 1 && (p->pipe == 0 || p->pipe == p->pipe_size - 1);

	switch (axis) {
	case KOLO_GRID_TENSOR: return p->tensor_size;
	case KOLO_GRID_DATA: return p->data_size;
	case KOLO_GRID_PIPE: return p->pipe_size;
	case KOLO_GRID_TIED: return ends ? 2 : 0;
	}
	return 0;
}

/* The i-th rank of that group. */
static int member(const struct kolo_grid_place *p, enum kolo_grid_axis axis, int i)
{
	switch (axis) {
	case KOLO_GRID_TENSOR: return rank_at(p, i, p->data, p->pipe);
	case KOLO_GRID_DATA: return rank_at(p, p->tensor, i, p->pipe);
	case KOLO_GRID_PIPE: return rank_at(p, p->tensor, p->data, i);
	case KOLO_GRID_TIED: return rank_at(p, p->tensor, p->data, i ? p->pipe_size - 1 : 0);
	}
	return 0;
}

int kolo_grid_group(const struct kolo_grid_place *p, enum kolo_grid_axis axis, int *ranks)
{
	int n = size_of(p, axis);

	for (int i = 0; i < n; i++)
		ranks[i] = member(p, axis, i);
	return n;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* Each group is written when its first rank comes. */
static void put_axis(struct zero_room *room, const struct kolo_grid_place *p,
		     enum kolo_grid_axis axis)
{
	static const char *const names[AXES] = { "tensor", "data", "pipe", "tied" };
	int nranks = p->tensor_size * p->data_size * p->pipe_size, groups = 0;

	for (int r = 0; r < nranks; r++) {
		struct kolo_grid_place other = place_of(p, r);
		int n = size_of(&other, axis);

		if (n == 0 || member(&other, axis, 0) != r)
			continue;
		zero_room_put(room, groups++ ? "" : names[axis]);
		zero_room_put(room, groups == 1 ? ": " : " ");
		for (int i = 0; i < n; i++) {
			char number[16];

			snprintf(number, sizeof(number), "%s%d", i ? " " : "{",
				 member(&other, axis, i));
			zero_room_put(room, number);
		}
		zero_room_put(room, "}");
	}
	zero_room_put(room, groups ? "\n" : "");
}

size_t kolo_grid_text(const struct kolo_grid_place *p, char *out, size_t len)
{
	struct zero_room room = { out, len, 0 };

	for (int axis = 0; axis < AXES; axis++)
		put_axis(&room, p, (enum kolo_grid_axis)axis);
	return zero_room_end(&room);
}

/* ---- Communicators --------------------------------------------------------------------------- */

/* The first rank of this rank's group is its colour, since no other group has it. */
static int split(struct kolo_comm *comm, struct kolo_grid *g, enum kolo_grid_axis axis, int *ranks)
{
	int n = kolo_grid_group(&g->here, axis, ranks), rank = kolo_comm_rank(comm), key = 0;

	for (int i = 0; i < n; i++)
		if (ranks[i] == rank)
			key = i;
	return kolo_comm_split(comm, n ? ranks[0] : KOLO_NOCOLOR, key, &g->comms[axis]);
}

/* What ranks compare. */
struct record {
	uint64_t host;
	int64_t tensor_size, pipe_size;
};

/* Ranks of a tensor group communicate in each layer. */
static int compare(const struct record *all, int nranks)
{
	int size = (int)all[0].tensor_size;

	for (int r = 0; r < nranks; r++)
		if (all[r].tensor_size != size || all[r].pipe_size != all[0].pipe_size)
			return kolo_error_set(
				KOLO_EMISMATCH,
				"rank %d makes a grid of tensor %lld x pipe %lld, and rank 0 one of %d x %lld",
				r, (long long)all[r].tensor_size, (long long)all[r].pipe_size, size,
				(long long)all[0].pipe_size);
	for (int r = 0; r < nranks; r++)
		if (all[r].host != all[r - r % size].host)
			return kolo_error_set(
				KOLO_EINVAL,
				"ranks %d and %d of the tensor group %d to %d are on different hosts: give each host a multiple of %d successive ranks",
				r - r % size, r, r - r % size, r - r % size + size - 1, size);
	return 0;
}

static int check_others(struct kolo_comm *comm, const struct kolo_grid *g)
{
	int nranks = kolo_comm_nranks(comm);
	struct record own = { zero_hash_host(), g->here.tensor_size, g->here.pipe_size };
	struct record *all = calloc((size_t)nranks, sizeof(*all));
	int rc = zero_share_failure(
		comm,
		all ? 0
		    : kolo_error_set(KOLO_ENOMEM, "records of %d ranks: out of memory", nranks));

	if (rc == 0)
		rc = kolo_all_gather(comm, &own, all, sizeof(own), KOLO_U8, NULL);
	if (rc == 0)
		rc = compare(all, nranks);
	free(all);
	return rc;
}

static int open_grid(struct kolo_comm *comm, struct kolo_grid *g)
{
	size_t most =
		(size_t)g->here.tensor_size + (size_t)g->here.data_size + (size_t)g->here.pipe_size;
	int *ranks = calloc(most + 2, sizeof(*ranks));
	int rc = zero_share_failure(
		comm, ranks ? 0 : kolo_error_set(KOLO_ENOMEM, "a grid: out of memory"));

	if (rc == 0)
		rc = check_others(comm, g);
	for (int axis = 0; rc == 0 && axis < AXES; axis++)
		rc = split(comm, g, (enum kolo_grid_axis)axis, ranks);
	free(ranks);
	return rc;
}

int kolo_grid_create(struct kolo_comm *comm, int tensor_size, int pipe_size, struct kolo_grid **out)
{
	struct kolo_grid_place here = { 0 };
	struct kolo_grid *g = NULL;
	int rc;

	if (!comm || !out)
		return kolo_error_set(KOLO_EINVAL,
				      "kolo_grid_create without a communicator, or without out");
	*out = NULL;
	rc = kolo_grid_locate(kolo_comm_nranks(comm), tensor_size, pipe_size, kolo_comm_rank(comm),
			      &here);
	if (rc == 0 && !(g = calloc(1, sizeof(*g))))
		rc = kolo_error_set(KOLO_ENOMEM, "a grid: out of memory");
	rc = zero_share_failure(comm, rc);
	if (rc == 0) {
		g->here = here;
		rc = open_grid(comm, g);
	}
	if (rc < 0) {
		kolo_grid_destroy(g);
		return rc;
	}
	*out = g;
	return 0;
}

void kolo_grid_destroy(struct kolo_grid *g)
{
	for (int axis = 0; g && axis < AXES; axis++)
		kolo_comm_destroy(g->comms[axis]);
	free(g);
}

const struct kolo_grid_place *kolo_grid_here(const struct kolo_grid *g)
{
	return &g->here;
}

struct kolo_comm *kolo_grid_comm(const struct kolo_grid *g, enum kolo_grid_axis axis)
{
	return (unsigned)axis < AXES ? g->comms[axis] : NULL;
}
