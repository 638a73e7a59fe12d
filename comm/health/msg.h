/* Messages between two ranks. On one host they go through Unix sockets with abstract names, which
 * carry descriptors too; between hosts through TCP. All messages have the same length. */
#ifndef COMM_HEALTH_MSG_H
#define COMM_HEALTH_MSG_H

#include "comm/base/error.h"
#include "comm/bootstrap/entry.h"

#include <stdbool.h>

enum ko_msg_type {
	KO_MSG_HELLO = 1,
	KO_MSG_ROSTER,
	KO_MSG_BELLS,
	KO_MSG_ADDRESS,
	KO_MSG_GOODBYE,
	KO_MSG_WINDOW,
	KO_MSG_POST,  /* what the sender waits for: across hosts, and before there is a roster */
	KO_MSG_FAIL,  /* across hosts: what the communicator has failed with */
	KO_MSG_DIAL,  /* a call for a lane, from a rank that may have no lifeline */
	KO_MSG_MEMORY /* GPU memory, any time after the sender has said that it will come */
};

struct ko_msg {
	uint32_t type; /* enum ko_msg_type */
	/* HELLO, DIAL    the sender's rank
	 * ADDRESS        enum ko_role
	 * GOODBYE, FAIL  the cause: a kolo_status (GOODBYE: 0 if there is none) */
	int32_t value;
	/* DIAL           how many lanes the sender has joined before
	 * GOODBYE        the last operation that the sender has finished
	 * FAIL           1: the cause came after the communicator was made */
	uint64_t seq;
	/* HELLO, DIAL    the receiver's token
	 * ADDRESS        the address
	 * GOODBYE, FAIL  a text
	 * POST           a struct ko_said */
	unsigned char bytes[KO_TEXT];
};

/* Finds the process at the other end. *pidfd is -1 if it is this process, or it can't be seen.
 * KOLO_EPEER: it has ended, though a child of it may hold the socket. KOLO_EUNREACH: it belongs to
 * another user. Errors come without a text. */
int ko_msg_process(int sock, int *pidfd);

/* Sends one message, and the descriptor fd with it unless fd is -1. Returns 0, or -1 with errno.
 * Does not block: a socket's buffer holds more messages than are ever under way. */
int ko_msg_send(int sock, const struct ko_msg *msg, int fd);

enum ko_heard { KO_HEARD_MSG, KO_HEARD_END, KO_HEARD_TRUNCATED };

/* Receives one message; the socket must be ready to be read. *fd is the descriptor that came with
 * it, which the caller closes, or -1. */
enum ko_heard ko_msg_recv(int sock, struct ko_msg *out, int *fd);

/* Has a whole message come, or the end? Does not block. A kernel short of memory may report that a
 * socket can be read when only a part of a message has come. */
bool ko_msg_has_come(int sock);

/* Prepares a TCP socket for messages: it can then be read when a whole message is there. */
void ko_msg_prepare(int sock);

/* Connects a rank to another one's listener, on the same host or another. Returns the socket, or -1
 * with errno:
 *   ECONNREFUSED   nobody listens there any more
 *   EAGAIN         no answer until the deadline
 *   EDESTADDRREQ   that rank has no address that other hosts reach */
int ko_msg_dial(const struct ko_entry *from, const struct ko_entry *to, int64_t deadline);

/* Starts to connect without waiting, as ko_msg_dial does: the connection may still be under way. */
int ko_msg_start(const struct ko_entry *from, const struct ko_entry *to);

#endif
