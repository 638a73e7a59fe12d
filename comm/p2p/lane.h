/* Lanes: a small place in shared memory from each rank to each other one, for what the two have to do with each other
 * alone. All lanes lie in one sparse file, which every rank has from the beginning: a lane is mapped when it is first used
 * and takes memory where it is touched, so there is nothing to connect and nobody has to accept.
 *
 * A lane carries messages in order. A message is one line, or several: a small payload lies in the line itself, a larger
 * one in slots, one for a line; of a large one the line says where it lies, and both ends copy it, piece by piece, whoever
 * comes to a piece first. near.c does that.
 *
 * Where the ranks have no memory in common a lane is a link instead (far.c). What both have to do is in struct ko_lane_ops,
 * and the loop over all lanes in transfer.c. */
#ifndef COMM_P2P_LANE_H
#define COMM_P2P_LANE_H

#include "comm/base/error.h"
#include "comm/memory/window.h"

#include <stdatomic.h>
#include <stdbool.h>

struct ko_far;
struct ko_run;
struct kolo_comm;

enum {
	KO_LANE_LINES = 32,
	KO_LANE_SLOTS = 8, /* fewer: lines with a small payload, or none, need none */
	KO_LANE_SLOT = 8 << 10,
	KO_LANE_SMALL = 40, /* bytes in a line */
	KO_LANES_KEPT = 16  /* lanes of a rank whose slots keep their memory while idle */
};

enum ko_line_kind {
	KO_LINE_SMALL, /* a whole message */
	KO_LINE_SLOT,  /* the beginning of one in slots, */
	KO_LINE_MORE,  /* and the rest of it */
	KO_LINE_RNDV,  /* a whole one, which lies where `small`, a ko_where, says */
};

struct ko_line {
	/* Counts the lane's lines from 1. The sender writes it last: who sees it sees the rest, and the slot */
	_Alignas(64) _Atomic uint32_t number;
	uint32_t tag; /* of the operation that the message belongs to; 0: of a send */
	uint64_t n;   /* elements of the message */
	uint8_t kind; /* enum ko_line_kind */
	uint8_t type; /* enum kolo_type */
	char small[KO_LANE_SMALL];
};

struct ko_lane {
	struct ko_line line[KO_LANE_LINES]; /* by number */
	/* Number of the last line that the receiver has done with; what it has taken the sender may write again */
	_Alignas(64) _Atomic uint32_t taken;
	/* Number of the line whose offer the receiver has answered last: where it wants the message */
	_Alignas(64) _Atomic uint32_t answered;
	struct ko_where answer;
	/* Pieces of offered messages, all of them since the beginning: that an end has begun to copy, or copied. */
	_Alignas(64) _Atomic uint64_t claimed;
	_Atomic uint64_t copied;
	/* From KO_LANE_HEAD on: the slots. */
};

enum { KO_LANE_HEAD = 4096, KO_LANE_LEN = KO_LANE_HEAD + KO_LANE_SLOTS * KO_LANE_SLOT };

/* How far a transfer is. */
enum ko_stage {
	KO_STAGE_WAITING, /* not begun */
	KO_STAGE_SLOTS,   /* in slots, the first of which has gone or come */
	KO_STAGE_RNDV,    /* both ends know of it, and copy pieces */
	KO_STAGE_DONE,    /* sent, in slots, while one before it may still be offered */
};

/* Pieces that an end copies, as bytes of the message. */
struct ko_claim {
	uint64_t pieces; /* 0: none */
	size_t first, len;
};

/* A message of this rank to or from another one. */
struct ko_transfer {
	/* As the operation has it: */
	int peer; /* or this rank itself, where another transfer is the other end */
	bool sends;
	enum kolo_type type;
	char *buffer; /* n elements; only read where it sends */
	size_t n;
	/* While it is done: */
	struct ko_transfer *next; /* in its lane */
	enum ko_stage stage;
	size_t bytes, moved; /* moved counts those in slots */
	uint32_t line;       /* in which it was offered */
	struct ko_where there;
	struct ko_claim mine; /* that the receiver has not copied yet */
};

/* One rank's end of a lane. */
struct ko_lane_end {
	struct ko_lane *lane; /* NULL: not mapped yet */
	struct ko_far *far;   /* where the ranks have no memory in common: instead of it (far.h) */
	int peer;
	bool sends;
	uint32_t next;   /* number of the line that it comes to next */
	uint32_t taken;  /* as the sender saw it last */
	uint64_t pieces; /* of all offered messages that are over */
	bool has_slots;  /* the sender has used slots, which have memory */
	uint64_t used;   /* when it was last used, in uses of all lanes */
	/* Of the operation under way: what is left to do in this lane, in order; NULL: nothing */
	struct ko_transfer *first, *last;
	struct ko_transfer
		*unposted; /* of the sender's: the first one that is not wholly in the lane; NULL: all are */
	struct ko_lane_end *busy; /* the next end with something to do */
};

/* What the lanes of a communicator are. */
struct ko_lane_ops {
	/* Makes this rank's end of one that is used for the first time. KOLO_ENOMEM, KOLO_ESYS. */
	int (*open)(struct kolo_comm *c, struct ko_lane_end *end);

	/* Moves the end's transfers on, as far as that goes without blocking. may_help: this rank has nothing else to do, and
	 * may do what is left to the receiver. KO_EAGAIN: they could not be moved; 0: they could. Errors: KOLO_EMISMATCH,
	 * those of ko_cma_read and ko_cma_write, or of the link and of ko_lifelines_dial. */
	int (*advance)(struct ko_run *run, struct ko_lane_end *end, bool may_help);

	/* An operation has failed with `code`, and its text. Returns a code, the text of which says more if the lane knows
	 * more. */
	int (*explain)(struct ko_run *run, int code);

	/* Where more lanes keep memory or links than shall, those that have been idle for longest give them back. */
	void (*trim)(struct kolo_comm *c);

	/* Bytes allocated for it. */
	size_t (*memory)(const struct ko_lane_end *end);

	/* Frees all that open and advance have made. failed: nobody waits for what is under way. */
	void (*close)(struct ko_lane_end *end, bool failed);
};

/* All lanes that end at a rank. */
struct ko_lanes {
	const struct ko_lane_ops *ops;
	int fd; /* the shared memory, -1: none */
	uint64_t uses;
	struct ko_lane_end *ends;      /* 2 * nranks: to each rank, then from each; NULL: none used yet */
	size_t with_slots;             /* lanes to others whose slots have memory */
	struct ko_lane_end *busy;      /* the ends with something to do */
	uint64_t sent, received;       /* bytes */
	struct ko_transfer *transfers; /* of the operation under way; room for so many */
	size_t room;
	/* Far ones: how many this rank has ever sent through, and keeps open; is one being joined; the last look for calls; the
	 * end whose link has failed */
	int nfar, kept;
	bool joining;
	int64_t listened_ms;
	struct ko_lane_end *failed;
};

/* Bytes of all lanes in the shared memory, most of which are never touched. */
uint64_t ko_lanes_len(int nranks);

/* This rank's end of the lane to `peer`, or from it. Blocks for system calls the first time. KOLO_ENOMEM, KOLO_ESYS. */
int ko_lane_find(struct kolo_comm *c, int peer, bool sends, struct ko_lane_end **out);

/* Sender: the next line, lent until commit, NULL while the lane is full; with its slot, or without. Receiver: the next
 * line, lent until taken, NULL while there is none. */
struct ko_line *ko_lane_acquire(struct ko_lane_end *end, bool with_slot);
void ko_lane_commit(struct ko_lane_end *end);
struct ko_line *ko_lane_peek(const struct ko_lane_end *end);
void ko_lane_take(struct ko_lane_end *end);

/* Sender: has the receiver done with everything up to the line of this number? */
bool ko_lane_is_taken(struct ko_lane_end *end, uint32_t line);

/* The line that the end comes to next, and the slot of it, whoever has them. */
struct ko_line *ko_lane_line(const struct ko_lane_end *end);
char *ko_lane_slot(const struct ko_lane_end *end);

/* What has come for the transfer belongs to another operation, or has another n or type. Returns KOLO_EMISMATCH. */
int ko_lane_mismatch(struct ko_run *run, const struct ko_transfer *t, uint32_t tag, uint64_t n,
		     uint32_t their_type);

/* Bytes allocated for all. */
size_t ko_lanes_memory(const struct kolo_comm *c);

/* Closes and frees all. Of a communicator that has failed nobody waits for what is under way. */
void ko_lanes_close(struct kolo_comm *c, bool failed);

#endif
