/* A mailbox: messages with tags (kolo_mailbox.h).
 *
 * It has a communicator of its own, of the same ranks, whose lanes (comm/p2p/lane.h) carry nothing
 * but packets of the mailbox (packet.h). A short message is one packet. It may come before its
 * receive; then the receiver keeps a copy. A long message stays where it is until it has matched:
 *
 *     sender    KO_MAIL_LONG: a message of this tag, type and n, and where it lies
 *     receiver  after it has matched: reads it from there (CMA), then KO_MAIL_DONE
 *               or, if it can't read it: KO_MAIL_GO; the sender then sends KO_MAIL_CHUNK packets
 *
 * A sender sends short messages of up to KOLO_MAILBOX_KEPT bytes that the receiver has not matched
 * yet; KO_MAIL_MATCHED says how many bytes it has. What would be more goes as a long message.
 *
 * One lock guards all of a mailbox, held for a step that never blocks. Of the threads that wait,
 * one drives: it waits as any operation does (ko_wait_for), and looks after the connections to
 * other hosts. The others sleep until it has moved something of theirs, or leaves. */
#ifndef COMM_MAIL_MAIL_H
#define COMM_MAIL_MAIL_H

#include "comm/mail/packet.h"
#include "kolo/kolo_mailbox.h"

#include <pthread.h>

/* How far a request is. */
enum ko_mail_stage {
	KO_MAIL_QUEUED,   /* send: not in the lane yet; receive: not matched */
	KO_MAIL_UNDERWAY, /* a long message: send: announced; receive: matched */
	KO_MAIL_FLOWING,  /* a long message: its bytes go as chunks */
	KO_MAIL_OVER      /* done, or failed */
};

struct kolo_request {
	struct kolo_mailbox *mailbox;
	struct kolo_request *next;          /* in the list of its stage */
	struct kolo_request *newer, *older; /* of all requests of the mailbox */
	enum ko_mail_stage stage;
	bool sends;
	int peer, tag; /* of a receive also KOLO_ANY_RANK, KOLO_ANY_TAG */
	char *buffer;  /* only read if it sends */
	size_t n;
	enum kolo_type type;
	struct kolo_received got;

	/* Of a long message, from KO_MAIL_UNDERWAY on */
	uint64_t id;  /* the sender's number of it */
	uint64_t at;  /* receive: its address in the sender's process; 0: it goes as chunks */
	size_t bytes; /* of the message */
	size_t moved;

	int code;   /* of its failure; 0: none */
	char *text; /* of its failure; NULL: none */
};

/* A message that has come and matches no receive yet. */
struct ko_arrived {
	struct ko_arrived *next;
	int peer;
	struct ko_packet packet;  /* KO_MAIL_WHOLE or KO_MAIL_LONG */
	struct kolo_request *own; /* a message of this rank to itself: its send; else NULL */
	char bytes[];             /* of a KO_MAIL_WHOLE */
};

/* A packet without payload that waits for room in the lane. */
struct ko_mail_note {
	struct ko_mail_note *next;
	struct ko_packet packet;
	struct kolo_request *then; /* over when the packet is on its way; NULL: none */
};

/* First in, first out. `last` is valid if `first` is not NULL. */
struct ko_mail_list {
	struct kolo_request *first, *last;
};

/* What a mailbox has for one other rank. */
struct ko_mail_peer {
	struct ko_mail_note *notes, **notes_end;
	struct ko_mail_list queued;   /* sends not in the lane yet, in order */
	struct ko_mail_list underway; /* long sends that were announced, flowing ones too */
	struct ko_mail_list matched;  /* long receives that have matched */
	struct ko_mail_list leaving;  /* over as soon as what is in the lane is on its way */
	size_t unmatched; /* bytes of short messages to it that it has not said to have matched */
	size_t owed;      /* bytes of its short messages matched here that it does not know of */
	int awaited;      /* receives that name this rank and are not matched */
	bool closed;      /* its end of the lane from it is closed: it has left */
	bool put;         /* what was put into the lane to it may need another call to arrive */
};

struct kolo_mailbox {
	struct kolo_comm *comm;         /* the mailbox's own */
	const struct kolo_comm *parent; /* what it was made from */
	pthread_mutex_t lock;
	pthread_cond_t changed;        /* a request is over, or nobody drives any more */
	bool driven;                   /* a thread drives */
	int sleepers;                  /* threads that wait for `changed` */
	uint64_t ids;                  /* of long messages so far */
	struct kolo_request *requests; /* all, the newest first */
	struct ko_mail_list receives;  /* not matched, in the order of their calls */
	struct ko_arrived *arrived, **arrived_end;
	int anyones; /* receives from KOLO_ANY_RANK that are not matched */
	size_t kept; /* bytes allocated for what has arrived, and for requests */
	struct ko_mail_peer peers[];
};

/* ---- Lists and requests: request.c ----------------------------------------------------------- */

void ko_mail_append(struct ko_mail_list *list, struct kolo_request *r);

/* Takes r out of the list. False: it is not there. */
bool ko_mail_remove(struct ko_mail_list *list, const struct kolo_request *r);

/* Keeps a receive that is not matched, and takes it out again. False: it is not there. */
void ko_mail_await(struct kolo_mailbox *m, struct kolo_request *r);
bool ko_mail_cancel(struct kolo_mailbox *m, struct kolo_request *r);

/* What the mailbox, or the communicator that it was made from, has failed with; 0: it works. */
int ko_mail_cause(const struct kolo_mailbox *m);

/* A request, in the list of all. NULL: no memory. */
struct kolo_request *ko_mail_request(struct kolo_mailbox *m);

/* Takes the request out of the list of all, and frees it. */
void ko_mail_free(struct kolo_request *r);

/* The request has failed with `code`, whose text is the thread's error. It is not over yet. */
void ko_mail_refuse(struct kolo_request *r, int code);

/* The request is over. */
void ko_mail_finish(struct kolo_request *r);

/* ---- Matching: match.c ----------------------------------------------------------------------- */

/* A receive was called: gives it the first message that has arrived and matches it, else keeps it.
 * Errors: KOLO_ENOMEM. */
int ko_mail_receive(struct kolo_mailbox *m, struct kolo_request *r);

/* A message has come from `peer`, with this payload: gives it to the first receive that it matches,
 * else keeps it. `own`: it is from this rank, and this is its send. Errors: KOLO_ENOMEM. */
int ko_mail_arrive(struct kolo_mailbox *m, int peer, const struct ko_packet *packet,
		   const void *payload, struct kolo_request *own);

/* Frees what has arrived. */
void ko_mail_forget(struct kolo_mailbox *m);

/* Sends a packet without payload to `peer`, as soon as there is room. When it is on its way, the
 * request `then` is over; NULL: none is. Errors: KOLO_ENOMEM. */
int ko_mail_tell(struct kolo_mailbox *m, int peer, struct ko_packet packet,
		 struct kolo_request *then);

/* How many bytes of KOLO_MAILBOX_KEPT a short message takes. */
size_t ko_mail_cost(const struct ko_packet *packet);

/* ---- Moving: move.c -------------------------------------------------------------------------- */

/* Moves all on as far as it can without blocking. drives: the calling thread does. 0: something has
 * moved; KO_EAGAIN; or an error. *failed becomes the rank whose lane has failed. */
int ko_mail_move(struct kolo_mailbox *m, bool drives, int *failed);

/* Must `rank` still do something for a request here? */
bool ko_mail_needs(const struct kolo_mailbox *m, int rank);

#endif
