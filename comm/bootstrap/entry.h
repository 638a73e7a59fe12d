/* What ranks know of each other before there is a communicator: where they meet, and what each tells all the others there. */
#ifndef COMM_BOOTSTRAP_ENTRY_H
#define COMM_BOOTSTRAP_ENTRY_H

#include "comm/transport/link.h"
#include "kolo/kolo.h"

#include <stdbool.h>
#include <stdint.h>

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

#endif
