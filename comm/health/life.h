/* What a rank's lifelines consist of. Only lifeline.c and lifeline_connect.c look into struct
 * ko_lifelines. */
#ifndef COMM_HEALTH_LIFE_H
#define COMM_HEALTH_LIFE_H

#include "comm/base/log.h"
#include "comm/bootstrap/entry.h"
#include "comm/health/msg.h"
#include "comm/health/roster.h"
#include "comm/sys/progress.h"

enum ko_life_state { KO_LIFE_NONE, KO_LIFE_UP, KO_LIFE_LEFT, KO_LIFE_DEAD };

struct ko_life {
	int rank; /* the rank at the other end */
	enum ko_life_state state;
	int fd;        /* the socket; -1: not connected yet */
	int pidfd;     /* the other process; -1: it is this process, or it can't be seen */
	bool far;      /* the other rank is on another host */
	int64_t since; /* if LEFT or DEAD: ko_now_ms() when that was noticed */
	int unread;    /* posts sent to it since it last said anything */
	bool spoke;    /* it has said anything: it knows of this lifeline */
	/* The rank that it said it waits for, or KO_NOBODY, and ko_now_ms() of that; 0: never */
	int waits_for;
	int64_t heard;
	/* a descriptor of KO_MSG_MEMORY that came before anybody waited for it; -1: none */
	int early;
	/* If LEFT: what its goodbye said. why "": it left without a cause */
	int code;
	char why[KO_TEXT];
};

/* A call: a connection that another rank has dialled, for a lane. */
struct ko_incoming {
	/* the rank that dialled, and the connection, which whoever gets the call owns */
	int rank, fd;
	uint64_t lanes; /* how many lanes that rank has joined to this one before */
};

enum {
	/* ms between two looks whether the ranks waited for are still there */
	KO_LIFE_STEP_MS = 100,
	/* ms after which a rank that has not said that it waits is not waiting: it says so more
	 * often */
	KO_LIFE_SILENT_MS = 2000,
	/* connections that have not said who they are; if one more comes the oldest is dropped */
	KO_LIFE_STRANGERS = 1024
};

struct ko_lifelines {
	int rank;
	const struct ko_log *log;
	const struct ko_progress *progress;
	int listener;
	/* for ranks of other hosts; -1: none of them can reach this rank */
	int far_listener;
	/* The roster of the communicator that this one is split from; its failure ends the making.
	 * NULL: none, or made */
	const struct ko_roster *parent;
	struct ko_roster *roster; /* NULL: not there yet */
	bool own;                 /* no other rank writes the roster */
	bool made;                /* all of the communicator is */
	int64_t said;             /* ko_now_ms() when this rank last said that it waits */
	const struct ko_entry *table;
	unsigned char token[KO_TOKEN];
	int strangers[KO_LIFE_STRANGERS], nstrangers; /* oldest first */
	/* calls that nobody has taken yet, `ncalls` of them, oldest first */
	struct ko_incoming *calls;
	int ncalls;
	int n, gone; /* lifelines, and how many of their ranks have left or died */
	struct ko_life life[];
};

#endif
