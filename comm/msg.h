/* Messages between two ranks of one host: Unix sockets with abstract names that keep messages apart and carry
 * descriptors. */
#ifndef KO_MSG_H
#define KO_MSG_H

#include "boot.h"
#include "error.h"

enum ko_msg_type { KO_MSG_HELLO = 1, KO_MSG_ROSTER, KO_MSG_ADDRESS, KO_MSG_GOODBYE, KO_MSG_WINDOW };

struct ko_msg {
	uint32_t type; /* enum ko_msg_type */
	int32_t value; /* HELLO: the sender's rank; ADDRESS: enum ko_role; GOODBYE: why, 0 or a kolo_status */
	unsigned char bytes[KO_TEXT]; /* HELLO: the receiver's token; ADDRESS: the address; GOODBYE: a text */
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

/* A connection to the rank's listener, or -1 with errno; ECONNREFUSED when nobody listens there any more, EAGAIN
 * when its queue was full until the deadline. */
int ko_msg_dial(const struct ko_entry *to, int64_t deadline);

#endif
