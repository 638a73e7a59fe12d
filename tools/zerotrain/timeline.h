/* When this rank computed what, in the last update: for --timeline. */
#ifndef TOOLS_ZEROTRAIN_TIMELINE_H
#define TOOLS_ZEROTRAIN_TIMELINE_H

#include "kolo/kolo_parallel.h"

#include <stdio.h>

/* Microseconds of the host's clock. In the file they begin with the update: on rank 0, and on other
 * hosts, whose clocks are others, with that of the rank itself. */
struct moment {
	int type, part, micro, stage, rank;
	double began, ended;
};

struct timeline {
	struct moment *at; /* [room]; NULL: none is wanted */
	int n, room;
	double zero; /* when the update began */
	const char *path;
	FILE *file; /* on rank 0 */
};

/* Room for the actions of one update; rank 0 also opens the file, so that a wrong path is told
 * before training. Returns an exit status, after a message if it failed. timeline_close in any
 * case. */
int timeline_open(struct timeline *t, int room, int rank, const char *path);
void timeline_close(struct timeline *t);

/* An update begins; an action was computed. */
void timeline_begin(struct timeline *t);
void timeline_note(struct timeline *t, const struct kolo_action *action, double began,
		   double ended);

/* Writes what all ranks of comm noted to the file, on rank 0. `stage` is this rank's. Collective.
 * Returns an exit status, after a message if it failed. */
int timeline_write(struct timeline *t, struct kolo_comm *comm, int stage);

#endif
