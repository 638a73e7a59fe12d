/* Messages between two ranks: on one host through Unix sockets with abstract names, which carry descriptors too, else
 * through TCP. All have the same length. */
#ifndef COMM_HEALTH_MSG_H
#define COMM_HEALTH_MSG_H

#include "comm/base/error.h"
#include "comm/bootstrap/entry.h"

#include <stdbool.h>

enum ko_msg_type {
	KO_MSG_HELLO = 1,
	KO_MSG_ROSTER,
	KO_MSG_ADDRESS,
	KO_MSG_GOODBYE,
	KO_MSG_WINDOW,
	KO_MSG_POST,  /* across hosts: what the sender waits for, */
	KO_MSG_FAIL,  /* and what the communicator has failed with */
	KO_MSG_DIAL,  /* for a lane, by someone who may have no lifeline */
	KO_MSG_MEMORY /* of a GPU, at any time after the sender has said that it will come */
};

struct ko_msg {
	uint32_t type; /* enum ko_msg_type */
	/* HELLO, CALL: the sender's rank; ADDRESS: enum ko_role; GOODBYE: why, 0 or a kolo_status; FAIL: the same */
	int32_t value;
	uint64_t
		seq; /* CALL: lanes that the sender has joined before; GOODBYE: the last operation that the sender has finished; FAIL: 1 if that came after it had been made */
	/* HELLO, CALL: the receiver's token; ADDRESS: the address; GOODBYE, FAIL: a text; POST: a ko_said */
	unsigned char bytes[KO_TEXT];
};

/* Whose process is at the other end. *pidfd is -1 where it is this one or can't be seen. KOLO_EPEER when it has
 * ended (a child it forked may hold the socket), KOLO_EUNREACH when it is another user's; without a text. */
int ko_msg_process(int sock, int *pidfd);

/* One message, and a descriptor with it unless fd is -1; -1 with errno. Does not block: a socket's buffer holds
 * more messages than are ever under way. */
int ko_msg_send(int sock, const struct ko_msg *msg, int fd);

enum ko_heard { KO_HEARD_MSG, KO_HEARD_END, KO_HEARD_TRUNCATED };

/* What the socket, which is ready to be read, has to say. *fd is the caller's, -1 when no descriptor came along. */
enum ko_heard ko_msg_recv(int sock, struct ko_msg *out, int *fd);

/* Has a whole message come, or the end? Does not block. The kernel may say that a socket can be read when only a part of a
 * message has come, where it lacks memory. */
bool ko_msg_has_come(int sock);

/* Makes a TCP socket ready for messages: it can be read when there is a whole one. */
void ko_msg_prepare(int sock);

/* A connection from one rank to another's listener, on the same host or another, or -1 with errno; ECONNREFUSED when nobody
 * listens there any more, EAGAIN when there was no answer until the deadline, EDESTADDRREQ when it has no address that
 * other hosts reach. */
int ko_msg_dial(const struct ko_entry *from, const struct ko_entry *to, int64_t deadline);

/* The same without waiting: the connection may still be under way. */
int ko_msg_start(const struct ko_entry *from, const struct ko_entry *to);

#endif
