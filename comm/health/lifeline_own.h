/* What a rank's lifelines are made of, and the functions of lifeline.c that lifeline_connect.c needs too. Private to these two
 * files. */
#ifndef KO_LIFELINE_OWN_H
#define KO_LIFELINE_OWN_H

#include "comm/health/lifeline.h"

enum {
	KO_LIFE_STEP_MS = 100, /* how often a wait looks whether those it waits for are still there */
	MAX_STRANGERS = 1024, /* connections that have not said who they are; beyond, the oldest is dropped */
};

struct ko_lifelines {
	int rank;
	const struct ko_log *log;
	int listener;
	int far_listener;               /* for ranks of other hosts; -1 where none can reach this one */
	const struct ko_roster *parent; /* while it works, waiting makes sense; may be NULL */
	struct ko_roster *own;          /* the roster, where no other rank writes it; else NULL */
	const struct ko_entry *table;
	unsigned char token[KO_TOKEN];
	int strangers[MAX_STRANGERS], nstrangers; /* oldest first */
	struct ko_incoming *calls;                /* ncalls, oldest first, that nobody has answered yet */
	int ncalls;
	int n, gone; /* lifelines, and those of them whose ranks have left or died */
	struct ko_life life[];
};

/* The lifeline to the rank; NULL: there is none. */
struct ko_life *ko_life_find(struct ko_lifelines *ll, int rank);

/* The rank has ended where it must not. Returns KOLO_EPEER. */
int ko_life_gone_early(struct ko_lifelines *ll, int rank);

/* A call to or from `rank` failed with errno. Returns the code that says so best. */
int ko_life_lost(struct ko_lifelines *ll, int rank, const char *what);

/* What those have failed with whose failure ends waits; 0: nothing. */
int ko_life_check_parent(const struct ko_lifelines *ll);

#endif
