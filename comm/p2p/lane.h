/* Lanes. A lane carries the messages from one rank to another one, in order. There are two kinds:
 * near lanes (near.c), and far lanes if the ranks are on several hosts (far.c). struct ko_lane_ops
 * is what both can do. The loop over all lanes is in transfer.c.
 *
 * A near lane is a small place in shared memory. All near lanes lie in one sparse file, which every
 * rank has from the beginning. A lane is mapped when it is first used, and takes memory where it is
 * touched. So there is nothing to connect or to accept.
 *
 * A message in a near lane is one line or several, by its size. A small payload lies in the line
 * itself. A larger one lies in slots, one for each line. A large one goes by rendezvous: the line
 * says where it lies, and both ends copy pieces of it, each the next piece that nobody has claimed.
 * Or it goes through slots of the link between the two ranks (by_link.h).
 *
 * A far lane is a link (comm/transport/link.h). */
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
	KO_LANE_SLOTS = 8,      /* fewer than lines: not each line needs a slot */
	KO_LANE_SLOT = 8 << 10, /* bytes of a slot */
	KO_LANE_SMALL = 40,     /* bytes of payload in a line */
	KO_LANES_KEPT = 16      /* lanes of a rank whose slots keep their memory while idle */
};

enum ko_line_kind {
	KO_LINE_SMALL, /* a whole message */
	KO_LINE_SLOT,  /* the beginning of a message in slots */
	KO_LINE_MORE,  /* more of it */
	KO_LINE_LINK,  /* a whole message, which goes through slots of the link (by_link.h) */
	KO_LINE_RNDV,  /* a message by rendezvous; `small` has a struct ko_where: where it lies */
};

struct ko_line {
	/* Number of the line in its lane, from 1. The sender writes it last, so a receiver that
	 * sees it also sees the rest of the line and the slot */
	_Alignas(64) _Atomic uint32_t number;
	uint32_t tag; /* of the message's operation; 0: a send or a group */
	uint64_t n;   /* elements of the message */
	uint8_t kind; /* enum ko_line_kind */
	uint8_t type; /* enum kolo_type */
	char small[KO_LANE_SMALL];
};

struct ko_lane {
	struct ko_line line[KO_LANE_LINES]; /* line number k lies at k % KO_LANE_LINES */
	/* Number of the last line that the receiver has read; the sender may write up to it
	 * again */
	_Alignas(64) _Atomic uint32_t taken;
	/* Number of the KO_LINE_RNDV line that the receiver has answered last */
	_Alignas(64) _Atomic uint32_t answered;
	struct ko_where answer; /* the receiver's buffer for that message */
	/* Pieces of rendezvous messages that an end has claimed, to copy them; counted since the
	 * beginning */
	_Alignas(64) _Atomic uint64_t claimed;
	_Atomic uint64_t copied; /* pieces that are copied; <= claimed */

	/* From KO_LANE_HEAD on: the slots */
};

enum { KO_LANE_HEAD = 4096, KO_LANE_LEN = KO_LANE_HEAD + KO_LANE_SLOTS * KO_LANE_SLOT };

/* How far a transfer is. */
enum ko_stage {
	KO_STAGE_WAITING, /* not begun */
	KO_STAGE_SLOTS,   /* its first slot has gone or come */
	KO_STAGE_LINK,    /* through slots of the link: its line has gone or come */
	KO_STAGE_RNDV,    /* by rendezvous: its line has gone or come, and both ends copy pieces */
	KO_STAGE_DONE,    /* all of it is in the lane; one before it may not be copied yet */
};

/* Pieces of a rendezvous message that an end has claimed. */
struct ko_claim {
	uint64_t pieces;   /* 0: none */
	size_t first, len; /* bytes of the message */
};

/* A message of this rank to or from another one. */
struct ko_transfer {
	/* What the operation asks for */
	int peer; /* may be this rank; then another transfer is the other end */
	bool sends;
	enum kolo_type type;
	char *buffer; /* n elements; only read if it sends */
	size_t n;

	/* How far it is */
	struct ko_transfer *next; /* in its lane */
	enum ko_stage stage;
	size_t bytes;          /* of the message */
	size_t moved;          /* bytes that went or came in lines and slots */
	bool by_link;          /* in slots of the link, which counts them */
	uint32_t line;         /* sender: number of its last line so far */
	struct ko_where there; /* receiver: the sender's buffer of a rendezvous message */
	struct ko_claim mine;  /* receiver: pieces claimed with the line, not copied yet */
};

/* One rank's end of a lane. */
struct ko_lane_end {
	struct ko_lane *lane; /* a near lane; NULL: not mapped yet */
	struct ko_far *far;   /* a far lane; NULL: not made yet */
	int peer;
	bool sends;
	uint64_t used; /* when it was last used, counted in uses of all lanes */

	/* A near lane */
	uint32_t next;   /* number of the line that this end writes or reads next */
	uint32_t taken;  /* sender: the lane's `taken` as it saw it last */
	uint64_t pieces; /* of all rendezvous messages that are over */
	bool has_slots;  /* sender: it has used slots, so they have memory */

	/* The operation under way */
	struct ko_transfer *first, *last; /* left to do in this lane, in order; NULL: nothing */
	struct ko_transfer *unposted;     /* sender: the first not wholly in the lane, or NULL */
	struct ko_lane_end *busy;         /* the next end with something to do */
};

/* What a kind of lanes does. All lanes of a communicator are of one kind. */
struct ko_lane_ops {
	/* Makes this rank's end of a lane when it is first used. Errors: KOLO_ENOMEM, KOLO_ESYS. */
	int (*open)(struct kolo_comm *c, struct ko_lane_end *end);

	/* Advances the end's transfers as far as it can without blocking. may_help: this rank has
	 * nothing else to do, so a sender may copy pieces of a rendezvous message too. Returns 0 if
	 * something has moved, else KO_EAGAIN. Errors: KOLO_EMISMATCH; near: those of ko_cma_read
	 * and ko_cma_write; far: those of the link and of ko_lifelines_dial. */
	int (*advance)(struct ko_run *run, struct ko_lane_end *end, bool may_help);

	/* An operation has failed with `code`; its text is the thread's error. Returns the code to
	 * report: `code`, or another one with a better text. May block, for the cause
	 * (ko_wait_for_cause). */
	int (*explain)(struct ko_run *run, int code);

	/* If too many lanes keep memory or links, those that have been idle for longest give theirs
	 * back. */
	void (*trim)(struct kolo_comm *c);

	/* Bytes allocated for a lane by this end. */
	size_t (*memory)(const struct ko_lane_end *end);

	/* Frees all that open and advance have made. failed: the communicator has; messages under
	 * way are dropped. */
	void (*close)(struct ko_lane_end *end, bool failed);
};

/* All lanes that begin or end at this rank. */
struct ko_lanes {
	const struct ko_lane_ops *ops;
	struct ko_lane_end *ends; /* 2 * nranks: to each rank, then from each; NULL: none yet */
	struct ko_lane_end *busy; /* list of the ends with something to do */
	uint64_t uses;            /* of all lanes so far */
	uint64_t sent, received;  /* bytes */

	/* Near lanes */
	size_t with_slots; /* lanes to other ranks whose slots have memory */
	int fd;            /* the file that they lie in; -1: none */

	/* The operation under way */
	struct ko_transfer *transfers;
	size_t room; /* transfers that have room there */

	/* Far lanes */
	int nfar;                   /* lanes that this rank has ever sent through */
	int kept;                   /* lanes to other ranks that stay open while idle */
	bool joining;               /* a lane is being joined */
	int64_t listened_ms;        /* ko_now_ms() of the last look for ranks that dial this one */
	int64_t peeked_ms;          /* the same, into sockets that nothing waits for */
	struct ko_lane_end *failed; /* the end whose link has failed; NULL: none */
};

/* Bytes of all near lanes in the file. Most of them are never touched. */
uint64_t ko_lanes_len(int nranks);

/* Finds this rank's end of the lane to `peer` (sends) or from it. Makes it at the first time, with
 * system calls. Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_lane_find(struct kolo_comm *c, int peer, bool sends, struct ko_lane_end **out);

/* Whether the end's counters agree with each other and with the lane's. True of an end that is a
 * link. At any time that this rank is in none of the functions below:
 *   sender:   next - 1 - KO_LANE_LINES <= taken <= the lane's taken <= next - 1
 *   receiver: the lane's taken == next - 1
 *   both:     pieces <= the lane's copied <= its claimed */
bool ko_lane_is_valid(const struct ko_lane_end *end);

/* Sender of a near lane: the next line, with its slot or without, to be filled before
 * ko_lane_commit. NULL: the lane is full. */
struct ko_line *ko_lane_acquire(struct ko_lane_end *end, bool with_slot);

/* Sender of a near lane: gives the line, and its slot, to the receiver. */
void ko_lane_commit(struct ko_lane_end *end);

/* Receiver of a near lane: the next line, which stays until ko_lane_take. NULL: none has come. */
struct ko_line *ko_lane_peek(const struct ko_lane_end *end);

/* Receiver of a near lane: the line and its slot have been read; the sender may write them
 * again. */
void ko_lane_take(struct ko_lane_end *end);

/* Sender of a near lane: has the receiver taken the line of this number? */
bool ko_lane_is_taken(struct ko_lane_end *end, uint32_t line);

/* The line that the end of a near lane comes to next, and its slot. The other end may have them. */
struct ko_line *ko_lane_line(const struct ko_lane_end *end);
char *ko_lane_slot(const struct ko_lane_end *end);

/* Reports that a message with this tag, n and type has come for the transfer, and one of them is
 * another one than the transfer's. Returns KOLO_EMISMATCH. */
int ko_lane_mismatch(struct ko_run *run, const struct ko_transfer *t, uint32_t tag, uint64_t n,
		     uint32_t their_type);

/* Bytes allocated for all lanes by this rank. */
size_t ko_lanes_memory(const struct kolo_comm *c);

/* Closes and frees all lanes. failed: the communicator has; messages under way are dropped. */
void ko_lanes_close(struct kolo_comm *c, bool failed);

#endif
