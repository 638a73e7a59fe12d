/* What is said at the meeting point. Private to boot.c and boot_server.c. */
#ifndef KO_BOOT_WIRE_H
#define KO_BOOT_WIRE_H

#include "boot.h"
#include "error.h"

#include <stdbool.h>

#define KO_BOOT_ID_MAGIC 0x3164696f6c6f6bULL /* "koloid1" */
#define KO_BOOT_MAGIC    0x31746f6f626f6bULL /* "koboot1" */
enum { KO_BOOT_VERSION = 1, KO_BOOT_SECRET = 32 };

/* The bytes of a struct kolo_id. */
struct ko_boot_id {
	uint64_t magic;
	unsigned char secret[KO_BOOT_SECRET]; /* a rank shows it */
	unsigned char proof[KO_TOKEN];        /* who serves the id shows it */
	char host[46];                        /* a numeric address */
	uint16_t port;
	int32_t pid;    /* of the maker, */
	uint64_t pidns; /* in this namespace of process ids */
};
_Static_assert(sizeof(struct ko_boot_id) <= sizeof(struct kolo_id), "an id has 128 bytes");

/* A rank's first words. magic, version and size stay where they are in every version. */
struct ko_boot_hello {
	uint64_t magic;
	uint32_t version, size;
	unsigned char secret[KO_BOOT_SECRET];
	int32_t timeout_ms; /* 0: never */
	struct ko_entry entry;
};

/* A number that differs between namespaces of process ids; 0 when it can't be had. */
uint64_t ko_boot_pidns(void);

/* Makes what came from outside safe to use: texts end, lengths fit. False when it makes no sense at all. */
bool ko_boot_check(struct ko_entry *entry);

/* The answer; nranks entries follow when code is 0. */
struct ko_boot_reply {
	uint64_t magic;
	unsigned char proof[KO_TOKEN];
	int32_t code;
	char text[KO_TEXT];
};

#endif
