/* What ranks tell each other before there is a communicator: the meeting point, and each rank's
 * entry. */
#ifndef COMM_BOOTSTRAP_ENTRY_H
#define COMM_BOOTSTRAP_ENTRY_H

#include "comm/transport/link.h"
#include "kolo/kolo.h"

#include <stdbool.h>
#include <stdint.h>

enum { KO_TOKEN = 16, KO_SECRET = 32, KO_NAME = 12, KO_MAX_RANKS = 65536 };

/* What a rank tells all others at the meeting point. Plain bytes of one architecture: ranks send it
 * as it is. */
struct ko_entry {
	int32_t rank, nranks;
	int32_t pid;
	/* 0, or the code of why this rank can't take part (kolo_comm_split) */
	int32_t status;
	/* a rank that connects shows it: so it is one of this communicator */
	unsigned char token[KO_TOKEN];
	/* bytes of `socket`, the abstract name of the rank's Unix socket */
	uint32_t socket_len;
	char socket[12];
	struct ko_place place;
	/* All ranks use what rank 0's entry says in these fields. Slots of 0 bytes: of as many as
	 * suit the links */
	struct ko_limits limits;
	char transport[KO_NAME], algorithm[KO_NAME]; /* "": the best one */
	char net[KO_NAME]; /* the transport between hosts, if `transport` is ""; "": the best one */
	char order[KO_NAME]; /* of additions; "": the one that suits hosts and ranks */
	/* 1 + the number of this rank's group (comm/plan/shape.h); 0: a group is a host */
	int32_t group;
	int32_t names_rails; /* 1: this rank's KOLO_IFACE lists several interfaces */
	int32_t paces;       /* 1: TCP spaces what this rank sends (ko_net_paces) */
};

/* A meeting point. It is an abstract Unix socket, or the ports [port, port + nports) of a host.
 * Rank 0 listens on the first free port. Another program may own one of the ports: the tag in the
 * greeting tells them apart. */
struct ko_meeting {
	char what[96];                   /* for error texts, for example "KOLO_ROOT=node7:5000" */
	unsigned char secret[KO_SECRET]; /* a rank shows it to the server */
	/* the server shows it to ranks that have shown the secret */
	unsigned char proof[KO_TOKEN];
	uint64_t tag;   /* the server shows it to everybody who connects */
	char name[40];  /* the abstract socket's name; "": TCP */
	char host[256]; /* a name or a numeric address */
	int port, nports;
	/* true: rank 0 serves it, and may start last. False: an id; the process that made it serves
	 * it, and once it is gone nobody will */
	bool by_rank_0;
	int32_t pid;    /* the process that made the id, whose death ends the wait */
	uint64_t pidns; /* the namespace of process ids in which `pid` counts; 0: not known */
};

#endif
