/* Rendezvous: how ranks that know nothing but an id find each other. The id's maker serves a TCP port; every
 * rank connects, shows the id's secret, says who it is, and gets the table of all ranks when the last has come.
 * After that the port is closed and the ranks talk to each other directly (lifeline.h). */
#ifndef KO_BOOT_H
#define KO_BOOT_H

#include "kolo/kolo.h"
#include "link.h"

enum { KO_TOKEN = 16, KO_NAME = 12, KO_MAX_RANKS = 65536 };

/* What a rank tells all the others. Plain bytes of one architecture: it travels as it is. */
struct ko_entry {
	int32_t rank, nranks;
	int32_t pid;
	int32_t status;                /* 0, or why this rank can't go on (kolo_comm_split) */
	unsigned char token[KO_TOKEN]; /* a caller that knows it is one of us */
	uint32_t socket_len;           /* of the abstract name of the rank's Unix socket */
	char socket[12];
	struct ko_place place;
	/* What rank 0's entry says of these is agreed by all. */
	struct ko_limits limits;
	char transport[KO_NAME], algorithm[KO_NAME]; /* "": the best */
};

/* Joins the meeting point that the id names and fills table[0..nranks) by rank; blocks until all have joined or
 * timeout_ms have passed (0: never). Errors: KOLO_EINVAL (not an id; ranks that contradict each other),
 * KOLO_EUNREACH (nobody serves it), KOLO_ETIMEDOUT (names the missing), KOLO_EPEER, KOLO_ENOTSUP (another
 * version), KOLO_ESYS. */
int ko_boot_join(const struct kolo_id *id, const struct ko_entry *mine, int timeout_ms,
		 struct ko_entry *table);

#endif
