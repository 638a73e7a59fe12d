/* Transfers: messages between this rank and others, each to or from one of them, advanced by one loop until all are done.
 * Those between the same two ranks in the same direction are done in order; the others don't wait for each other. */
#ifndef KO_TRANSFER_H
#define KO_TRANSFER_H

#include "lane.h"
#include "run.h"

/* How far one is. */
enum ko_stage {
	KO_STAGE_WAITING, /* not begun */
	KO_STAGE_SLOTS,   /* in slots, the first of which has gone or come */
	KO_STAGE_OFFERED, /* both ends know of it, and copy pieces */
	KO_STAGE_DONE,    /* sent, in slots, while one before it may still be offered */
};

/* Pieces that an end copies, as bytes of the message. */
struct ko_claim {
	uint64_t pieces; /* 0: none */
	size_t first, len;
};

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

/* Does all of them. Errors: KOLO_EMISMATCH (the two ends differ in n or type, or belong to different operations; one end is
 * missing, where both are this rank), those of ko_wait, ko_lane_find, ko_peer_read and
 * ko_peer_write. */
int ko_transfers_do(struct ko_run *run, struct ko_transfer *all, size_t count);

/* What has come for the transfer belongs to another operation, or has another n or type. Returns KOLO_EMISMATCH. */
int ko_transfer_mismatch(struct ko_run *run, const struct ko_transfer *t, uint32_t tag, uint64_t n,
			 uint32_t their_type);

/* Is there still something to do with `rank`? See struct ko_run. */
bool ko_transfers_need(const struct ko_run *run, int rank);

#endif
