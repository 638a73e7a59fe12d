/* Rendezvous: how ranks that know nothing but a meeting point find each other. One process serves it: the maker of
 * the id, or rank 0 where a launcher's environment says where to meet (job.h). Every rank connects, shows the
 * secret, says who it is, and gets the table of all ranks when the last has come. After that the point is closed
 * and the ranks talk to each other directly (lifeline.h). */
#ifndef KO_BOOT_H
#define KO_BOOT_H

#include "kolo/kolo.h"
#include "link.h"
#include "ring.h"

#include <stdbool.h>

enum { KO_TOKEN = 16, KO_SECRET = 32, KO_NAME = 12, KO_MAX_RANKS = 65536 };

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
	char net[KO_NAME]; /* the transport between hosts, unless `transport` says; likewise */
};

/* Where ranks meet. Either an abstract Unix socket, or the ports [port, port + nports) of a host: the first that is
 * free is served, and the others are told apart by the tag in the greeting. */
struct ko_meeting {
	char what[96];                   /* for messages: "KOLO_ROOT=node7:5000" */
	unsigned char secret[KO_SECRET]; /* a rank shows it */
	unsigned char proof[KO_TOKEN];   /* who serves shows it to those who showed the secret */
	uint64_t tag;                    /* who serves shows it to everyone */
	char name[40];                   /* the abstract socket's; "": TCP */
	char host[256];                  /* a name or a number */
	int port, nports;
	bool by_rank_0; /* rank 0 serves it and may come last; false: an id, which is served or lost */
	int32_t pid;    /* the id's maker, whose death ends the wait, */
	uint64_t pidns; /* in this namespace of process ids; 0: not known */
};

/* The meeting point that an id names. Errors: KOLO_EINVAL (not an id). */
int ko_meeting_of_id(const struct kolo_id *id, struct ko_meeting *out);

/* Called when the meeting point has been reached, from the address `here`, before the others are told of *mine. Errors:
 * end the joining. */
typedef int ko_boot_reached_fn(void *arg, const union ko_net *here, struct ko_entry *mine);

/* Joins the meeting point, which is served first if that is this rank's part, and fills table[0..nranks) by rank;
 * `reached` is called with arg where that is a TCP one. Blocks until all have joined or timeout_ms have passed (0:
 * never). Errors: KOLO_EINVAL (ranks that contradict each other), KOLO_EUNREACH (nobody serves it, the port is taken), KOLO_ETIMEDOUT (names the missing), KOLO_EPEER,
 * KOLO_ENOTSUP (another version), KOLO_ESYS. */
int ko_boot_join(const struct ko_meeting *m, struct ko_entry *mine, int timeout_ms,
		 ko_boot_reached_fn *reached, void *arg, struct ko_entry *table);

/* The ring of the ranks of a table, by the hosts where they run. The caller frees it. Takes time n log n. Errors: KOLO_ENOMEM. */
int ko_boot_ring(const struct ko_entry *table, int nranks, struct ko_ring *out);

#endif
