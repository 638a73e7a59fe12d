/* The shape of a communicator: its ranks in groups of equally many, for the order of additions
 * "grid". Mostly a group is a host. It is fixed when the communicator is made, and says nothing of
 * where ranks are. Pure.
 *
 * Each rank has a number in its group. Ranks with the same number, one in each group, are a
 * *rail*. */
#ifndef COMM_PLAN_SHAPE_H
#define COMM_PLAN_SHAPE_H

struct ko_shape {
	int ngroups, size; /* size: ranks of a group. 0: there is no shape */
	int *ranks;        /* by group, and by number in the group */
	int *places;       /* of each rank: its group times size, plus its number there */
};

/* Makes the shape of ranks [0, nranks). group[r] names the group of rank r: any number. Groups are
 * in the order of these, and ranks of a group in the order of their own. The caller frees *out with
 * ko_shape_free. Errors: KOLO_ENOTSUP: the groups do not have equally many ranks; KOLO_ENOMEM. */
int ko_shape_make(const int *group, int nranks, struct ko_shape *out);
void ko_shape_free(struct ko_shape *shape);

/* Reads "4x2", 4 groups of 2 successive ranks each, and finds the group of a rank. Errors:
 * KOLO_EINVAL: it is no shape of nranks ranks. */
int ko_shape_read(const char *text, int rank, int nranks, int *group);

/* A number that is at most one turn below 0 or above. */
static inline int ko_shape_wrap(int number, int n)
{
	return number < 0 ? number + n : number >= n ? number - n : number;
}

/* The rank in a group and a rail, which may be up to one turn below 0 or above. */
static inline int ko_shape_rank(const struct ko_shape *s, int group, int rail)
{
	return s->ranks[ko_shape_wrap(group, s->ngroups) * s->size + ko_shape_wrap(rail, s->size)];
}

static inline int ko_shape_group(const struct ko_shape *s, int rank)
{
	return s->places[rank] / s->size;
}

static inline int ko_shape_rail(const struct ko_shape *s, int rank)
{
	return s->places[rank] % s->size;
}

#endif
