/* What a rank's lifelines are made of. Only lifeline.c and lifeline_connect.c look into struct ko_lifelines. */
#ifndef COMM_HEALTH_LIFE_H
#define COMM_HEALTH_LIFE_H

#include "comm/base/log.h"
#include "comm/bootstrap/entry.h"
#include "comm/health/msg.h"
#include "comm/health/roster.h"

enum ko_life_state { KO_LIFE_NONE, KO_LIFE_UP, KO_LIFE_LEFT, KO_LIFE_DEAD };

struct ko_life {
	int rank; /* who is at the other end */
	enum ko_life_state state;
	int fd;            /* -1 before it is connected */
	int pidfd;         /* the other process, -1 where it is this one or can't be had */
	bool far;          /* it is on another host */
	int64_t since;     /* LEFT, DEAD: ko_now_ms() when that was noticed */
	int unread;        /* posts that it was sent since it was heard of */
	int early;         /* 1 + a descriptor of KO_MSG_MEMORY that came before it was waited for; 0: none */
	char why[KO_TEXT]; /* LEFT: the text of its goodbye, "" when it just left */
};

/* A call of another rank. */
struct ko_incoming {
	int rank, fd;   /* fd is whose it is that was told of it */
	uint64_t lanes; /* that it has joined to this one before */
};

enum {
	KO_LIFE_STEP_MS = 100,   /* how often a wait looks whether those it waits for are still there */
	KO_LIFE_STRANGERS = 1024 /* connections that have not said who they are; then the oldest is dropped */
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
	int strangers[KO_LIFE_STRANGERS], nstrangers; /* oldest first */
	struct ko_incoming *calls;                    /* ncalls, oldest first, that nobody has answered yet */
	int ncalls;
	int n, gone; /* lifelines, and those of them whose ranks have left or died */
	struct ko_life life[];
};

#endif
