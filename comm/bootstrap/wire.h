/* What is said at a meeting point. Only the files of this folder include it. The server greets; the
 * rank says hello; when all ranks have come the server replies. */
#ifndef COMM_BOOTSTRAP_WIRE_H
#define COMM_BOOTSTRAP_WIRE_H

#include "comm/base/error.h"
#include "comm/bootstrap/entry.h"
#include "comm/sys/progress.h"

#include <stdbool.h>

#define KO_BOOT_ID_MAGIC 0x3164696f6c6f6bULL /* "koloid1" */
#define KO_BOOT_AT_MAGIC 0x317461646f6bULL   /* "kodat1" */
#define KO_BOOT_MAGIC    0x31746f6f626f6bULL /* "koboot1" */
enum { KO_BOOT_VERSION = 16 };

/* The layout of a struct kolo_id. */
struct ko_boot_id {
	uint64_t magic, tag;
	unsigned char secret[KO_SECRET];
	unsigned char proof[KO_TOKEN];
	char host[46]; /* a numeric address */
	uint16_t port;
	int32_t pid;    /* the process that made the id */
	uint64_t pidns; /* the namespace of process ids in which `pid` counts */
};
_Static_assert(sizeof(struct ko_boot_id) <= sizeof(struct kolo_id), "an id has 128 bytes");

/* The layout of an id that kolo_id_at made. */
struct ko_boot_at {
	uint64_t magic;
	char address[120];
};
_Static_assert(sizeof(struct ko_boot_at) == sizeof(struct kolo_id), "an id has 128 bytes");

/* The server's first words, to everybody who connects. The server speaks first because another
 * program may own a port that is tried: so nothing is said to a stranger. This struct is the same
 * in every version. */
struct ko_boot_greeting {
	uint64_t magic, tag;
};

/* A rank's first words. magic, version and size are in the same place in every version. */
struct ko_boot_hello {
	uint64_t magic;
	uint32_t version, size;
	unsigned char secret[KO_SECRET];
	int32_t timeout_ms; /* 0: no limit */
	struct ko_entry entry;
};

/* The server's answer. If code is 0, nranks entries follow. */
struct ko_boot_reply {
	uint64_t magic;
	unsigned char proof[KO_TOKEN];
	int32_t code;
	char text[KO_TEXT];
};

/* ---- wire.c ---------------------------------------------------------------------------------- */

/* A number that differs between namespaces of process ids; 0: not known. */
uint64_t ko_boot_pidns(void);

/* Makes an entry from outside safe to use: its texts end, its lengths fit. False if it makes no
 * sense. */
bool ko_boot_check(struct ko_entry *entry);

/* Parses all of `text` as a decimal number in [min, max]. 0 or KOLO_EINVAL, without a text. */
int ko_boot_number(const char *text, long min, long max, int *out);

/* Hashes a text (FNV-1a, 64 bits). It keeps jobs apart. It is no protection: who knows the text
 * knows the hash. */
uint64_t ko_boot_hash(const char *text, uint64_t salt);

/* Sets what all ranks of a job derive from the text that identifies it. Rank 0 serves the point. */
void ko_boot_identify(struct ko_meeting *m, const char *identity);

/* Fails because this rank called kolo_id_abort. Returns KOLO_EABORTED. */
int ko_boot_stopped(int rank);

/* Writes the address of the meeting point's abstract socket. Returns its length in bytes. */
struct sockaddr_un;
unsigned ko_boot_address(const struct ko_meeting *m, struct sockaddr_un *out);

/* ---- dial.c, listen.c, server.c -------------------------------------------------------------- */

/* Connects to the server of `m`, and checks its greeting. Waits until `deadline` (ko_now_ms()) for
 * rank 0 to serve it. `rank` is this rank, for error texts. `maker` is the pidfd of the process
 * that made the id, or -1. Calls `progress` meanwhile.
 *
 * Errors: KOLO_EUNREACH, KOLO_ETIMEDOUT, KOLO_EPEER, KOLO_EABORTED, KOLO_EINVAL, KOLO_ESYS. */
int ko_boot_dial(const struct ko_meeting *m, int rank, int maker, int64_t deadline,
		 const struct ko_progress *progress, int *out);

/* Opens the listening, non-blocking socket of rank 0's meeting point. Errors: KOLO_EUNREACH if the
 * name or all ports are taken, or it is no address of this host; KOLO_EINVAL; KOLO_ESYS. */
int ko_boot_listen(const struct ko_meeting *m, int *out);

/* Serves `m` on a thread of its own, until all ranks have joined or joining has failed. Takes over
 * the listener, even if it fails. Errors: KOLO_ESYS, KOLO_ENOMEM. */
int ko_boot_serve(const struct ko_meeting *m, int listener);

#endif
