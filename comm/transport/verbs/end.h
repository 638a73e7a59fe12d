/* One end of a link through RDMA verbs. Private to verbs_nic.c, which finds ports, verbs.c, which moves slots, and
 * verbs_connect.c, which joins two ends and has the transport's table. Each calls only those named before it.
 *
 * Both ends have registered memory with the same layout: a word for credits, then a ring of bytes in which records lie
 * one after the other. A record is a slot with its head, which travels with it in one piece, and takes no more room than
 * it has bytes: small ones need few credits. The sender writes each to the same place of the receiver's memory, and the
 * immediate data of the write, its number, comes out of the receiver's completion queue. The receiver writes into the
 * sender's word how many it has released.
 *
 * Behind that word the receiver also writes an offer: where it wants the vector of the operation that begins with its next
 * slot. Slots that belong into it are written there, by a write of their own, and only their heads into the ring, whose
 * place for the rest stays empty. An offer is for one operation and is never taken back: it counts only while both ends
 * have begun at the same slot.
 *
 * A link has rails: reliable connections (RC queue pairs), spread over the ports of network cards. Record n travels on
 * rail n % nrails; credits on rail 0. */
#ifndef COMM_TRANSPORT_VERBS_END_H
#define COMM_TRANSPORT_VERBS_END_H

#include "comm/transport/link.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
	VERBS_NICS = 4, /* ports of an end, at most, */
	VERBS_QPS = 4,  /* and queue pairs on each */
	VERBS_RAILS = VERBS_NICS * VERBS_QPS,
	VERBS_NAME = 32,
	VERBS_RECORDS = 64, /* under way or not released, at most */
	VERBS_CREDITS = 16, /* writes of credits and offers under way */
	VERBS_OFFER = 64,   /* where the offer is; the word for credits is at 0 */
	VERBS_RING = 4096,  /* where the ring begins */
	VERBS_GAP = 64,     /* before a slot; its head is at the end of it */
};

/* What the environment says: see env.c. */
struct verbs_settings {
	int64_t gid_index; /* -1: choose */
	int64_t sl, traffic_class;
	int64_t timeout, retries; /* timeout: 4.096 us * 2^timeout */
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
	struct ibv_gid_entry gid; /* on RoCE the one whose network the bytes go through */
	uint8_t port;
	char name[VERBS_NAME]; /* "mlx5_0:1" */
};

/* What travels before a slot's bytes. */
struct verbs_head {
	uint32_t len;
	uint32_t tag;
	uint32_t number;  /* of the record, counted from 0 */
	uint32_t offered; /* 1: its bytes are in the memory offered, `belongs` - 1 bytes from its beginning */
	uint64_t belongs;
};

struct verbs_offer {
	uint64_t base, len;
	uint64_t began; /* the first slot of the operation that it is for */
	uint32_t keys[VERBS_NICS];
	uint64_t check; /* of the words before: while it is being written it is none */
};

/* Registered on all ports in use. */
struct verbs_lent {
	struct ko_lent lent; /* must be first */
	struct ibv_mr *mrs[VERBS_NICS];
};

/* How far it is: see verbs_connect.c. */
enum verbs_state { VERBS_APART, VERBS_KNOCKING, VERBS_WAITING, VERBS_JOINED };

struct verbs_end {
	struct ko_link link; /* must be first */
	struct ko_limits limits;
	struct verbs_settings settings;
	enum verbs_state state;
	int64_t give_up_ms; /* connecting, by this end's clock */
	struct verbs_nic nics[VERBS_NICS];
	uint32_t nnics, nqps; /* opened; when joined: that both ends have, nrails = nnics * nqps */
	uint32_t nrails;
	uint32_t psn;        /* of its first packet on each rail */
	uint32_t max_inline; /* bytes that a work request may carry itself */
	char *memory;        /* `len` bytes */
	size_t len;
	uint64_t base;             /* of the other end's memory, */
	uint32_t keys[VERBS_NICS]; /* and what opens it */
	/* Places in the ring are counted on and on: place p is p % ring_len bytes after its beginning. */
	uint64_t most;     /* bytes of a record */
	uint64_t ring_len; /* (nslots + 1) * most, so nslots records always fit */
	uint64_t at;       /* where the next record begins, for this end */
	/* Records, counted from the beginning. Sender: credited <= committed <= credited + VERBS_RECORDS. Receiver: told <=
	 * released <= told + VERBS_RECORDS. */
	uint64_t committed, credited;
	uint64_t released, told;
	uint64_t ends[VERBS_RECORDS]; /* Sender: the place after record n is at n % VERBS_RECORDS */
	uint64_t told_at;             /* Receiver: the place after those told */
	/* Sender, for each rail, the number after its last record that was posted, and that the card has done with; the last
	 * `unsignalled` won't say so. retired <= posted <= committed. */
	uint32_t unsignalled[VERBS_RAILS];
	uint64_t posted[VERBS_RAILS], retired[VERBS_RAILS];
	uint64_t borrowed[VERBS_RAILS]; /* the same of its last record that was not in the ring; <= posted */
	uint32_t credits_flying;        /* Receiver: posted on rail 0, offers too, and not known to be gone */
	struct verbs_offer offer;       /* Receiver: its last one. Sender: the last one it has found */
	bool has_arrived[VERBS_RECORDS];
	int broken; /* 0, or the code of what the link failed with */
	char why[512];
};

/* The word that the receiver writes into the sender's memory: 1 when it is ready, and 1 more for each slot released. */
static inline _Atomic uint64_t *verbs_credit_word(const struct verbs_end *e)
{
	return (_Atomic uint64_t *)(void *)e->memory;
}

/* Where the offer lies: what it is at the sender, and is written from at the receiver. */
static inline char *verbs_offer_at(const struct verbs_end *e)
{
	return e->memory + VERBS_OFFER;
}

/* The slot of the record at this place. */
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

/* ---- verbs.c -------------------------------------------------------------------------------------------- */

/* Functions of the table: see struct ko_link_ops. */
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

/* Receiver: posts a receive for this record. 0, or what the link failed with. */
int ko_verbs_expect(struct verbs_end *e, uint64_t number);

/* Receiver: tells the sender what it may fill again. */
int ko_verbs_tell(struct verbs_end *e);

/* Sender: waits for the last records to have arrived, for some seconds at most. */
void ko_verbs_linger(struct verbs_end *e);

/* Forgets what was lent. */
void ko_verbs_take_all_back(struct verbs_end *e);

/* ---- verbs_nic.c ---------------------------------------------------------------------------------------- */

int ko_verbs_settings(struct verbs_settings *out);

/* Opens the ports that the environment names, or else the best: e->nics, e->nnics. KOLO_ENOTSUP, KOLO_EINVAL, KOLO_ESYS. */
int ko_verbs_open_nics(struct verbs_end *e, const struct ko_place *here);

/* What failed on this port, with the reason of `err`, an errno. Returns KOLO_ENOMEM or KOLO_ESYS. */
int ko_verbs_fail(const struct verbs_nic *nic, const char *doing, int err);

#endif
