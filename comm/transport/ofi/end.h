/* One end of a link through libfabric. Private to ofi.c, which moves slots, and ofi_connect.c, which joins two ends and has the
 * transport's table. ofi_connect.c calls ofi.c, never the other way.
 *
 * Both ends have registered memory with the same layout: notes, then slots, each with its head before it, which travels
 * with it in one piece. The sender writes a slot into the receiver's memory where the provider can tell the receiver of
 * it, or else sends it as a message, for which the receiver has a receive posted in each free slot. The receiver sends
 * notes: how many slots it has released so far. */
#ifndef COMM_TRANSPORT_OFI_END_H
#define COMM_TRANSPORT_OFI_END_H

#include "comm/transport/link.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>

/* What is called by name; all else hangs on what these give. */
struct ofi_library {
	void *handle;
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	void (*freeinfo)(struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int errnum);
};

/* What travels before a slot's bytes. */
struct ofi_head {
	uint64_t len;
	uint32_t tag;
	uint32_t number; /* of the slot, counted from 0 */
};

enum ofi_state { OFI_APART, OFI_JOINING, OFI_JOINED };

struct ofi_end {
	struct ko_link link; /* must be first */
	struct ko_limits limits;
	enum ofi_state state;
	uint64_t secret; /* the receiver's; the sender shows it */
	bool writes;     /* slots are written, else they are messages */
	struct ofi_library lib;
	struct fi_info *info; /* what was chosen */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;   /* of endpoints that are connected, */
	struct fid_pep *pep; /* and who listens for that */
	struct fid_av *av;   /* of endpoints that are not */
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t peer;     /* of endpoints that are not connected */
	uint64_t base, key; /* of the receiver's memory, for the sender */
	char *memory;       /* `len` bytes */
	size_t len;
	uint32_t at; /* the slot that this end comes to next; < nslots */
	/* Slots, counted from the beginning. Sender: credited <= committed <= credited + nslots, posted <= committed.
	 * Receiver: told <= released <= renewed <= released + nslots; renewed are the receives for messages. */
	uint64_t committed, posted, credited;
	uint64_t released, renewed, told;
	uint32_t flying;              /* slots that the provider still needs, */
	bool is_flying[KO_MAX_SLOTS]; /* and which */
	bool has_arrived[KO_MAX_SLOTS];
	int broken; /* 0, or the code of what the link failed with */
	char why[256];
	/* libfabric's while the operation is under way: on a slot, a note, and a sender's first message */
	struct fi_context2 of_slot[KO_MAX_SLOTS], of_note[KO_MAX_SLOTS], of_hello;
};

/* A rank that has no connection says by it who it is. */
struct ofi_hello {
	uint64_t secret, len;
	unsigned char name[128];
};

enum { OFI_NOTES = 4096, OFI_GAP = 64 }; /* bytes for notes, and before each slot for its head */

_Static_assert(KO_MAX_SLOTS * sizeof(uint64_t) + sizeof(struct ofi_hello) <= OFI_NOTES,
	       "notes, then a hello");

static inline size_t ofi_slot_offset(const struct ofi_end *e, uint32_t k)
{
	return OFI_NOTES + k * (e->limits.slot_len + OFI_GAP) + OFI_GAP;
}

static inline struct ofi_head *ofi_head_at(const struct ofi_end *e, uint32_t k)
{
	return (struct ofi_head *)(void *)(e->memory + ofi_slot_offset(e, k) - sizeof(struct ofi_head));
}

static inline uint64_t *ofi_note_at(const struct ofi_end *e, uint32_t k)
{
	return (uint64_t *)(void *)e->memory + k;
}

static inline struct ofi_hello *ofi_hello_of(const struct ofi_end *e)
{
	return (struct ofi_hello *)(void *)(e->memory + KO_MAX_SLOTS * sizeof(uint64_t));
}

/* ---- ofi.c ---------------------------------------------------------------------------------------------- */

/* Functions of the table: see struct ko_link_ops. */
int ko_ofi_acquire(struct ko_link *link, struct ko_slot *out);
int ko_ofi_commit(struct ko_link *link, const struct ko_slot *slot);
int ko_ofi_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out);
int ko_ofi_release(struct ko_link *link);
int ko_ofi_progress(struct ko_link *link);
int ko_ofi_drain(struct ko_link *link);

/* Posts the receives that a fresh endpoint needs. */
int ko_ofi_begin(struct ofi_end *e);

/* Takes what has come. 0, or what the link failed with. */
int ko_ofi_reap(struct ofi_end *e);

/* Keeps the first failure of the link, with libfabric's word for `err` (positive). Returns its code. */
int ko_ofi_fail(struct ofi_end *e, const char *doing, int err);

#endif
