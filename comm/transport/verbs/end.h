/* One end of a link through RDMA verbs. Private to three files: nic.c finds ports; slots.c moves
 * slots; connect.c joins two ends and has the transport's table. Each calls only the files named
 * before it.
 *
 * Both ends have registered memory with the same layout: a word for credits, then a ring of bytes
 * with records one after the other. A record is a slot after its head, with which it travels in one
 * piece. It takes no more room than it has bytes, so small records need few credits. The sender
 * writes each record to the same place of the receiver's memory. The write has immediate data, the
 * record's number, which comes out of the receiver's completion queue. The receiver writes into the
 * sender's word how many records it has released.
 *
 * After that word the receiver also writes an offer: the memory for the vector of the operation
 * that begins with its next slot. Slots that belong into the vector are written there, by a write
 * of their own. Only their heads go into the ring, where the place for their bytes stays empty. An
 * offer is for one operation and is never taken back: it counts only if both ends have begun at the
 * same slot.
 *
 * A link has rails: reliable connections (RC queue pairs), spread over the ports of network cards.
 * Record n travels on rail n % nrails; credits travel on rail 0. */
#ifndef COMM_TRANSPORT_VERBS_END_H
#define COMM_TRANSPORT_VERBS_END_H

#include "comm/transport/link.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
	VERBS_NICS = 4, /* ports of an end, at most */
	VERBS_QPS = 4,  /* queue pairs on each port, at most */
	VERBS_RAILS = VERBS_NICS * VERBS_QPS,
	VERBS_NAME = 32,
	VERBS_RECORDS = 64, /* records under way or not released, at most */
	VERBS_CREDITS = 16, /* writes of credits and offers under way, at most */
	VERBS_OFFER = 64,   /* byte at which the offer is; the word for credits is at 0 */
	VERBS_RING = 4096,  /* byte at which the ring begins */
	VERBS_GAP = 64,     /* bytes before a slot, with its head at their end */
};

/* The values of the environment's variables KOLO_VERBS_*: see comm/base/env.c. */
struct verbs_settings {
	int64_t gid_index; /* -1: choose one */
	int64_t sl, traffic_class;
	/* a lost packet is sent again after 4.096 us * 2^timeout, `retries` times */
	int64_t timeout, retries;
	int64_t nqps;
};

/* One port in use. */
struct verbs_nic {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qps[VERBS_QPS];
	struct ibv_port_attr attr;
	struct ibv_gid_entry gid; /* on RoCE, the address whose network the bytes go through */
	uint8_t port;
	char name[VERBS_NAME]; /* for example "mlx5_0:1" */
};

/* What travels before a slot's bytes. */
struct verbs_head {
	uint32_t len;
	uint32_t tag;
	uint32_t number; /* the record's number, from 0 */
	/* 1: its bytes are in the offered memory, at `belongs`; 0: they follow in the ring */
	uint32_t offered;
	uint64_t belongs; /* see struct ko_slot */
};

struct verbs_offer {
	uint64_t base, len;
	uint64_t began; /* the number of the first slot of the operation that it is for */
	uint32_t keys[VERBS_NICS];
	/* a checksum of the words before it: wrong while the offer is being written */
	uint64_t check;
};

/* Lent memory, registered on all ports in use. */
struct verbs_lent {
	struct ko_lent lent; /* must be first */
	struct ibv_mr *mrs[VERBS_NICS];
};

/* How far connecting has come: see connect.c. */
enum verbs_state { VERBS_APART, VERBS_KNOCKING, VERBS_WAITING, VERBS_JOINED };

struct verbs_end {
	struct ko_link link; /* must be first */
	struct ko_limits limits;
	struct verbs_settings settings;
	enum verbs_state state;
	int64_t give_up_ms; /* when connecting gives up: ko_now_ms() */
	struct verbs_nic nics[VERBS_NICS];
	/* those that are opened; once joined: those that both ends have. nrails = nnics * nqps */
	uint32_t nnics, nqps;
	uint32_t nrails;
	uint32_t psn;        /* number of this end's first packet on each rail */
	uint32_t max_inline; /* bytes that a work request may carry itself */
	char *memory;        /* `len` bytes */
	size_t len;
	uint64_t base;             /* the address of the other end's memory */
	uint32_t keys[VERBS_NICS]; /* the keys to the other end's memory, one for each port */
	/* Places in the ring are counted on and on: place p is byte p % ring_len of the ring. */
	uint64_t most;     /* most bytes of a record */
	uint64_t ring_len; /* (nslots + 1) * most, so nslots records always fit */
	uint64_t at;       /* the place of this end's next record */
	/* Counts of records, from the beginning of the link.
	 *   Sender: credited <= committed <= credited + VERBS_RECORDS.
	 *   Receiver: told <= released <= told + VERBS_RECORDS. */
	uint64_t committed, credited;
	uint64_t released, told;
	uint64_t ends[VERBS_RECORDS]; /* sender: the place after record n is at n % VERBS_RECORDS */
	/* receiver: the place after the records that the sender was told of */
	uint64_t told_at;
	/* Sender, for each rail: `posted` is the number after its last posted record. `retired` is
	 * the number after the last one that the card reported done. The last `unsignalled` records
	 * will not be reported. retired <= posted <= committed */
	uint32_t unsignalled[VERBS_RAILS];
	uint64_t posted[VERBS_RAILS], retired[VERBS_RAILS];
	/* sender, for each rail: the number after its last record whose bytes were not in the ring;
	 * <= posted */
	uint64_t borrowed[VERBS_RAILS];
	/* receiver: writes of credits and offers, posted on rail 0 and not known to be done */
	uint32_t credits_flying;
	/* receiver: its last offer; sender: the last offer that it has found */
	struct verbs_offer offer;
	bool has_arrived[VERBS_RECORDS];
	int broken; /* 0, or the code of the link's failure */
	char why[512];
};

/* The word that the receiver writes into the sender's memory: the slots it has released, plus 1. 0:
 * the receiver is not ready yet. */
static inline _Atomic uint64_t *verbs_credit_word(const struct verbs_end *e)
{
	return (_Atomic uint64_t *)(void *)e->memory;
}

/* Where the offer is: the sender reads it here; the receiver has its copy to write from here. */
static inline char *verbs_offer_at(const struct verbs_end *e)
{
	return e->memory + VERBS_OFFER;
}

/* The slot of the record at this place of the ring. */
static inline void *verbs_slot_at(const struct verbs_end *e, uint64_t place)
{
	return e->memory + VERBS_RING + place % e->ring_len + VERBS_GAP;
}

static inline struct verbs_head *verbs_head_at(const struct verbs_end *e, uint64_t place)
{
	return (struct verbs_head *)verbs_slot_at(e, place) - 1;
}

static inline struct verbs_nic *verbs_nic_of(struct verbs_end *e, uint32_t rail)
{
	return &e->nics[rail % e->nnics];
}

static inline struct ibv_qp *verbs_qp_of(const struct verbs_end *e, uint32_t rail)
{
	return e->nics[rail % e->nnics].qps[rail / e->nnics];
}

/* ---- slots.c --------------------------------------------------------------------------------- */

/* Functions of the transport's tables: see struct ko_link_ops and struct ko_rma_ops. */
int ko_verbs_acquire(struct ko_link *link, struct ko_slot *out);
int ko_verbs_commit(struct ko_link *link, const struct ko_slot *slot);
int ko_verbs_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out);
int ko_verbs_release(struct ko_link *link);
int ko_verbs_progress(struct ko_link *link);
int ko_verbs_drain(struct ko_link *link);
int ko_verbs_lend(struct ko_link *link, void *memory, size_t len);
int ko_verbs_lend_device(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset);
void ko_verbs_offer(struct ko_link *link, void *vector, size_t len);
void ko_verbs_take_back(struct ko_link *link, void *memory);

/* Receiver: posts a receive for this record. 0, or the link's failure. */
int ko_verbs_expect(struct verbs_end *e, uint64_t number);

/* Receiver: tells the sender what it may fill again. 0, or the link's failure. */
int ko_verbs_tell(struct verbs_end *e);

/* Sender: waits until the last records have arrived, 5 s at most. */
void ko_verbs_linger(struct verbs_end *e);

/* Takes back all memory that was lent. */
void ko_verbs_take_all_back(struct verbs_end *e);

/* ---- nic.c ----------------------------------------------------------------------------------- */

int ko_verbs_settings(struct verbs_settings *out);

/* Opens the ports that the environment names, or else the best ones, into e->nics and e->nnics.
 * Errors: KOLO_ENOTSUP, KOLO_EINVAL, KOLO_ESYS. */
int ko_verbs_open_nics(struct verbs_end *e, const struct ko_place *here);

/* Reports that `doing` failed on this port with `err`, an errno. Returns KOLO_ENOMEM or
 * KOLO_ESYS. */
int ko_verbs_fail(const struct verbs_nic *nic, const char *doing, int err);

#endif
