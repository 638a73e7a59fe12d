/* What is said at the meeting point. Private to the boot files. A conversation: the server greets, the rank says
 * hello, the server replies when all ranks have come. */
#ifndef COMM_BOOTSTRAP_WIRE_H
#define COMM_BOOTSTRAP_WIRE_H

#include "comm/base/error.h"
#include "comm/bootstrap/entry.h"

#include <stdbool.h>

#define KO_BOOT_ID_MAGIC 0x3164696f6c6f6bULL /* "koloid1" */
#define KO_BOOT_MAGIC    0x31746f6f626f6bULL /* "koboot1" */
enum { KO_BOOT_VERSION = 13 };

/* The bytes of a struct kolo_id. */
struct ko_boot_id {
	uint64_t magic, tag;
	unsigned char secret[KO_SECRET];
	unsigned char proof[KO_TOKEN];
	char host[46]; /* a numeric address */
	uint16_t port;
	int32_t pid;    /* of the maker, */
	uint64_t pidns; /* in this namespace of process ids */
};
_Static_assert(sizeof(struct ko_boot_id) <= sizeof(struct kolo_id), "an id has 128 bytes");

/* The server's first words, to whoever connects. Other programs may own the ports that are tried, so the server
 * speaks first: nothing is ever said to a stranger. Stays as it is in every version. */
struct ko_boot_greeting {
	uint64_t magic, tag;
};

/* A rank's first words. magic, version and size stay where they are in every version. */
struct ko_boot_hello {
	uint64_t magic;
	uint32_t version, size;
	unsigned char secret[KO_SECRET];
	int32_t timeout_ms; /* 0: never */
	struct ko_entry entry;
};

/* The answer; nranks entries follow when code is 0. */
struct ko_boot_reply {
	uint64_t magic;
	unsigned char proof[KO_TOKEN];
	int32_t code;
	char text[KO_TEXT];
};

/* ---- boot_wire.c ---------------------------------------------------------------------------------------- */

/* A number that differs between namespaces of process ids; 0 when it can't be had. */
uint64_t ko_boot_pidns(void);

/* Makes what came from outside safe to use: texts end, lengths fit. False when it makes no sense at all. */
bool ko_boot_check(struct ko_entry *entry);

/* The name of an abstract Unix socket as an address; its length. */
struct sockaddr_un;
unsigned ko_boot_address(const struct ko_meeting *m, struct sockaddr_un *out);

/* ---- boot_dial.c, boot_listen.c, boot_server.c ------------------------------------------------------------ */

/* A connection to who serves `m`, whose greeting was right; waits until the deadline for rank 0 to serve
 * it. `rank` is who dials, `maker` the pidfd of an id's maker or -1. Errors: KOLO_EUNREACH, KOLO_ETIMEDOUT, KOLO_EPEER, KOLO_EINVAL,
 * KOLO_ESYS. */
int ko_boot_dial(const struct ko_meeting *m, int rank, int maker, int64_t deadline, int *out);

/* A listening, non-blocking socket for rank 0's meeting point. Errors: KOLO_EUNREACH (the name or all
 * ports are taken; not an address of this host), KOLO_EINVAL, KOLO_ESYS. */
int ko_boot_listen(const struct ko_meeting *m, int *out);

/* Serves m on a thread of its own until all have joined or joining has failed; takes over the
 * listener, on errors too. Errors: KOLO_ESYS, KOLO_ENOMEM. */
int ko_boot_serve(const struct ko_meeting *m, int listener);

#endif
