/* A trial: one call of a collective on all ranks, whose result is compared, bit for bit, with what
 * the definition says of it; with guards around the buffers, which lie off alignment.
 *
 * Element i of rank r is random but known to all, so that every rank can compute everyone's
 * data. */
#ifndef TESTS_LIB_TRIAL_H
#define TESTS_LIB_TRIAL_H

#include "tools/common/values.h"

#include <stdbool.h>
#include <stddef.h>

/* What is called. op is KOLO_SUM where there is none, T_PREMUL for a sum of scaled elements. */
enum t_call { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, T_NCALLS };
enum { T_PREMUL = VALUES_NOPS };

struct t_trial {
	enum t_call call;
	enum kolo_type type;
	int op, root;
	size_t n; /* as the call counts */
	bool in_place;
};

enum { T_ROOM = 1 << 20 };

/* Where it takes place. */
struct t_setup {
	struct kolo_comm *c;
	void *room[2]; /* T_ROOM bytes for each of the buffers; NULL: malloc */
	struct kolo_queue *queue;
	/* Copies len bytes from here to a room, or back; NULL: they are used where they are */
	void (*copy)(void *arg, void *room, void *here, size_t len, bool there);
	void *arg;
};

void t_try(const struct t_setup *setup, const struct t_trial *t);

/* Tries t's type, op and n with every call, in place and out of place, with every root: a sample of
 * them (t_sampled), 1 of `share`, which is 6 at most.
 *
 * Ops that the type does not have are left out. Each other type, op and n is tried, since each has
 * at least six ways. A caller that goes through all ops tries each call that reduces with each
 * type, root and place. A caller that goes through six types or more tries the other calls with
 * each root and place. */
void t_try_all_calls(const struct t_setup *setup, struct t_trial t, unsigned share);

#endif
