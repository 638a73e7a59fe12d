/* One end of a link through libfabric. Private to two files: slots.c moves slots; connect.c joins
 * two ends and has the transport's table. connect.c calls slots.c, never the other way.
 *
 * Both ends have registered memory with the same layout: notes, then slots, each after its head,
 * with which it travels in one piece. The sender writes a slot into the receiver's memory, if the
 * provider can report that to the receiver. Otherwise it sends the slot as a message, and the
 * receiver has posted a receive for each free slot. The receiver sends notes: how many slots it has
 * released so far. */
#ifndef COMM_TRANSPORT_OFI_END_H
#define COMM_TRANSPORT_OFI_END_H

#include "comm/transport/link.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>

/* The functions that are looked up by name. All others hang on what these return. */
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
	uint32_t number; /* the slot's number, from 0 */
};

enum ofi_state { OFI_APART, OFI_JOINING, OFI_JOINED };

struct ofi_end {
	struct ko_link link; /* must be first */
	struct ko_limits limits;
	enum ofi_state state;
	uint64_t secret; /* the receiver's; the sender shows it */
	bool writes;     /* true: slots are written; false: they are sent as messages */
	struct ofi_library lib;
	struct fi_info *info; /* the provider that was chosen */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;   /* for endpoints with connections: their events */
	struct fid_pep *pep; /* for endpoints with connections: the listening endpoint */
	struct fid_av *av;   /* for endpoints without connections: their addresses */
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t peer;     /* for endpoints without connections: the other end */
	uint64_t base, key; /* sender: the address and key of the receiver's memory */
	char *memory;       /* `len` bytes */
	size_t len;
	uint32_t at; /* this end's next slot; < nslots */
	/* Counts of slots, from the beginning of the link.
	 *   Sender: credited <= committed <= credited + nslots, posted <= committed.
	 *   Receiver: told <= released <= renewed <= released + nslots.
	 * `renewed` counts the receives that were posted for messages. */
	uint64_t committed, posted, credited;
	uint64_t released, renewed, told;
	uint32_t flying;              /* how many slots the provider still needs */
	bool is_flying[KO_MAX_SLOTS]; /* which slots the provider still needs */
	bool has_arrived[KO_MAX_SLOTS];
	int broken; /* 0, or the code of the link's failure */
	char why[256];
	/* libfabric's while an operation is under way: on a slot, on a note, on the sender's first
	 * message */
	struct fi_context2 of_slot[KO_MAX_SLOTS], of_note[KO_MAX_SLOTS], of_hello;
};

/* The first message of a sender without a connection: it says who it is. */
struct ofi_hello {
	uint64_t secret, len;
	unsigned char name[128];
};

/* bytes for notes, and bytes before each slot, with its head at their end */
enum { OFI_NOTES = 4096, OFI_GAP = 64 };

_Static_assert(KO_MAX_SLOTS * sizeof(uint64_t) + sizeof(struct ofi_hello) <= OFI_NOTES,
	       "notes, then a hello");

static inline size_t ofi_slot_offset(const struct ofi_end *e, uint32_t k)
{
	return OFI_NOTES + k * (e->limits.slot_len + OFI_GAP) + OFI_GAP;
}

static inline struct ofi_head *ofi_head_at(const struct ofi_end *e, uint32_t k)
{
	return (struct ofi_head *)(void *)(e->memory + ofi_slot_offset(e, k) -
					   sizeof(struct ofi_head));
}

static inline uint64_t *ofi_note_at(const struct ofi_end *e, uint32_t k)
{
	return (uint64_t *)(void *)e->memory + k;
}

static inline struct ofi_hello *ofi_hello_of(const struct ofi_end *e)
{
	return (struct ofi_hello *)(void *)(e->memory + KO_MAX_SLOTS * sizeof(uint64_t));
}

/* ---- slots.c --------------------------------------------------------------------------------- */

/* Functions of the transport's table: see struct ko_link_ops. */
int ko_ofi_acquire(struct ko_link *link, struct ko_slot *out);
int ko_ofi_commit(struct ko_link *link, const struct ko_slot *slot);
int ko_ofi_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out);
int ko_ofi_release(struct ko_link *link);
int ko_ofi_progress(struct ko_link *link);
int ko_ofi_drain(struct ko_link *link);

/* Posts the receives that a new endpoint needs. */
int ko_ofi_begin(struct ofi_end *e);

/* Handles all completions that have come. 0, or the link's failure. */
int ko_ofi_reap(struct ofi_end *e);

/* Keeps the link's first failure, with libfabric's text for `err` (positive). Returns its code. */
int ko_ofi_fail(struct ofi_end *e, const char *doing, int err);

#endif
