/* Tracks: lists of steps (step.h), each along a ring of its own, which one thread does at the same
 * time. A step that can't be done yet does not keep the other tracks from theirs. */
#ifndef COMM_RINGS_TRACKS_H
#define COMM_RINGS_TRACKS_H

#include "comm/rings/step.h"

/* What the next step of a track waits for. */
enum ko_track_state {
	KO_TRACK_GOES, /* nothing */
	KO_TRACK_HELD, /* what other tracks have to do first */
	KO_TRACK_DATA, /* a slot from prev */
	KO_TRACK_ROOM, /* a free slot to next */
	KO_TRACK_OVER, /* there is none left */
};

struct ko_track {
	const struct ko_edges *edges;
	const char *name; /* for traces */
	void *of;         /* whose track it is, for the functions */
	/* Makes t->step. Returns GOES; HELD; or OVER. Called again after HELD */
	enum ko_track_state (*next)(struct ko_track *t);
	/* The step has been done */
	void (*done)(struct ko_track *t);
	struct ko_step step; /* under way, if `state` is DATA or ROOM */
	enum ko_track_state state;
	int64_t since; /* when the step was made, if it is traced */
};

/* Does all steps of n tracks. Blocks. Errors: those of the moves. */
int ko_tracks_do(struct ko_run *run, struct ko_track *tracks, int n);

#endif
