/* Packets of a mailbox. They go through the lanes of its communicator in the order in which they
 * were put there: through lines and slots of a near lane, through the link of a far one. */
#ifndef COMM_MAIL_PACKET_H
#define COMM_MAIL_PACKET_H

#include "comm/p2p/lane.h"

#include <stddef.h>
#include <stdint.h>

enum ko_mail_kind {
	KO_MAIL_WHOLE,   /* a short message: tag, type, n elements; payload */
	KO_MAIL_LONG,    /* a long one: tag, type, n elements, id, at */
	KO_MAIL_GO,      /* to the sender of `id`: send it as chunks */
	KO_MAIL_CHUNK,   /* the next n bytes of `id`; payload */
	KO_MAIL_DONE,    /* to the sender of `id`: the receiver has it, or has dropped it */
	KO_MAIL_MATCHED, /* to a sender: n bytes more of its short messages have matched */
};

struct ko_packet {
	uint64_t n;
	uint64_t id;
	uint64_t at; /* address in the sender's process; 0: nobody else can read it there */
	int32_t tag;
	uint8_t kind; /* enum ko_mail_kind */
	uint8_t type; /* enum kolo_type */
};

/* Bytes of payload. */
size_t ko_packet_payload(const struct ko_packet *p);

/* How many bytes of payload a packet to `peer` has room for. join: it may look after the connection
 * to another host; only the thread that drives may. Returns 0, or KO_EAGAIN: there is no connection
 * yet. Errors: those of ko_lane_find and of the link. */
int ko_packet_room(struct kolo_comm *c, int peer, bool join, size_t *out);

/* Puts a packet into the lane to `peer`, with its payload. Returns 0, or KO_EAGAIN: there is no
 * room, or no connection. Errors: those of ko_packet_room. */
int ko_packet_put(struct kolo_comm *c, int peer, const struct ko_packet *p, const void *payload,
		  bool join);

/* Returns 0 if everything that was put into the lane to `peer` will arrive without another call;
 * else KO_EAGAIN. Errors: those of the link. */
int ko_packet_drain(struct kolo_comm *c, int peer);

/* The next packet from `peer`. *payload is valid until ko_packet_take. Returns 0, or KO_EAGAIN:
 * none has come. Errors: those of ko_packet_room. */
int ko_packet_peek(struct kolo_comm *c, int peer, bool join, struct ko_packet *p,
		   const void **payload);

/* The packet has been read. Errors: those of the link. */
int ko_packet_take(struct kolo_comm *c, int peer);

/* Says in the near lane to `peer` that long messages of this rank are not there any more. Nothing
 * else is put into it afterwards. */
void ko_packet_leave(struct kolo_comm *c, int peer);

/* Has `peer` said so, in the near lane from it? */
bool ko_packet_left(const struct kolo_comm *c, int peer);

#endif
