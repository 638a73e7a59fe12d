/* A link is one edge of the ring, in one direction: a bounded FIFO of slots from a rank to its
 * next. This table is all that the rest of Kolo knows of a transport. Every transport passes the
 * same conformance suite, tests/comm/test_links.c.
 *
 * A new transport writes the functions of struct ko_link_ops, none of which may be NULL, and gets a
 * row in comm/core/transports.c. It adds struct ko_rma_ops if it can send from or receive into
 * memory of others. It adds `settle` if both ends share the slots' memory, and `pair` if two links
 * may share a connection.
 *
 * A function that may return KO_EAGAIN says so; the caller then calls it again. No function blocks.
 * The one thread that uses the communicator calls them all. */
#ifndef COMM_TRANSPORT_LINK_H
#define COMM_TRANSPORT_LINK_H

#include "comm/sys/topo.h"
#include "comm/transport/stores.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ko_role { KO_SEND, KO_RECV };

enum { KO_MAX_SLOTS = 64, KO_MIN_SLOT = 4096, KO_MAX_SLOT = 64 << 20 };

/* What must be equal at both ends; rank 0's values are used. */
struct ko_limits {
	uint64_t slot_len; /* bytes of a slot: a multiple of KO_MIN_SLOT, at most KO_MAX_SLOT */
	/* 2 to KO_MAX_SLOTS: a piece takes one slot, and a ring needs one more to keep moving */
	uint32_t nslots;
	/* 1: the link is for single messages, each of which may be the last before it is closed */
	uint32_t single;
};

/* A slot, lent to the caller. */
struct ko_slot {
	void *ptr;
	size_t len;   /* payload bytes */
	uint32_t tag; /* travels with the slot: the operation that the slot is for */
	/* Sender: where the slot's bytes belong in the vector for which the receiver may have
	 * offered memory, in bytes from its beginning, plus 1. 0: they are in no vector */
	size_t belongs;
	/* Sender: the caller acquires another slot at once, and the two may go together */
	bool more;
};

/* What one end tells the other one before they connect. */
struct ko_address {
	unsigned char bytes[256];
	int fd; /* a descriptor that travels with it; -1: none */
};

/* Memory that was lent to a link. */
struct ko_lent {
	struct ko_lent *next;
	const char *memory;
	size_t len;
	bool device; /* memory of a device, which no processor may touch */
};

/* One end of a link. A transport's own struct begins with it. The transport writes all fields,
 * except where a comment names another writer. */
struct ko_link {
	const struct ko_link_ops *ops; /* written by ko_link_open */
	enum ko_role role;
	/* payload bytes, and slots, that were committed (KO_SEND) or released (KO_RECV); the caller
	 * may set both to 0 */
	uint64_t bytes, slots;
	size_t memory; /* bytes that this end has allocated for slots */
	/* What it goes through, for people: a card's port, a provider; "": nothing to name */
	char through[48];
	bool anywhere; /* that of `ops`, written by ko_link_open */
	/* Receiver, if `anywhere`: peek reads one slot, of `len` bytes, and not what follows it,
	 * which has a place of its own */
	bool alone;
	/* Changed by lend and take_back: memory lent to this link. Unless `anywhere`, commit takes
	 * bytes from it (KO_SEND). It may be offered (KO_RECV) */
	struct ko_lent *lent;
	/* Written by ko_link_begin: `slots` when the last operation with a vector began */
	uint64_t began;
	/* KO_SEND. Written by the code that measures the link: the kind of stores that fills slots
	 * fastest, which commit must order, and the bytes per ns of large slots with that kind. The
	 * kind may also change when a slot that was acquired is about to be filled */
	struct ko_writer writer;
	double bytes_per_ns;
};

/* What a transport must have: a name and eleven functions. */
struct ko_link_ops {
	const char *name;

	/* Can this transport join the two places? `asked`: the user named this transport. Both ends
	 * ask, and must get the same answer. 0, or KOLO_ENOTSUP with the reason. */
	int (*probe)(const struct ko_place *a, const struct ko_place *b, bool asked);

	/* Makes one end, not connected yet, for a rank at the place `here`. Only ko_link_open calls
	 * it, and writes (*out)->ops. Errors: those of ko_link_open. */
	int (*open)(enum ko_role role, const struct ko_place *here, const struct ko_limits *limits,
		    struct ko_link **out);

	/* Writes what the other end's connect needs. The link keeps out->fd until it is closed.
	 * Errors: KOLO_ESYS. */
	int (*address)(struct ko_link *link, struct ko_address *out);

	/* Joins this end to the end with the address `peer`. peer->fd stays the caller's.
	 * KO_EAGAIN: the other end has not done its part yet; call again with the same peer.
	 * Errors: KOLO_EMISMATCH, KOLO_EUNREACH, KOLO_ENOMEM, KOLO_ESYS. */
	int (*connect)(struct ko_link *link, const struct ko_address *peer);

	/* Sender: lends the next free slot until commit. out->ptr has room for slot_len bytes.
	 * Gives the same slot if it is called again before commit. KO_EAGAIN: the link is full. */
	int (*acquire)(struct ko_link *link, struct ko_slot *out);

	/* Sender: sends slot->len bytes of the acquired slot, with slot->tag. It orders all earlier
	 * stores to the slot. The sender may read the slot's bytes until it acquires again.
	 *
	 * slot->ptr may point to other bytes that the link takes (ko_link_takes). They must not
	 * change until the receiver has them, or the link is drained. If this fails, the next
	 * acquire or drain reports it. */
	int (*commit)(struct ko_link *link, const struct ko_slot *slot);

	/* Receiver: lends the oldest slot until release. Gives the same slot if it is called again
	 * before release. KO_EAGAIN: the link is empty.
	 *
	 * `into`, unless it is NULL, is a place of the caller's for a slot of `len` bytes; out->ptr
	 * may then be that place. Once a caller has given a place, it gives the same one until the
	 * slot has come. What is longer than a slot comes to such a place only. */
	int (*peek)(struct ko_link *link, void *into, size_t len, struct ko_slot *out);

	/* Receiver: gives the peeked slot back to the sender. The sender learns it when half of the
	 * slots are free again, or at the next progress. If this fails, the next peek that finds
	 * nothing reports it. */
	int (*release)(struct ko_link *link);

	/* Advances work that needs calls (transports with manual progress). A rank that waits for
	 * one link calls it for its other link. 0, or the link's failure; a closed other end counts
	 * as one, and may be no error. */
	int (*progress)(struct ko_link *link);

	/* Sender: 0 once everything committed will arrive without another call on this link; else
	 * KO_EAGAIN. A collective returns after that only. */
	int (*drain)(struct ko_link *link);

	/* Frees this end, in any state; NULL is allowed. The other end may still read what was
	 * committed. A sender may wait a moment until drained bytes have arrived, unless the link
	 * is `obsolete`: the other end needs nothing more. */
	void (*close)(struct ko_link *link, bool obsolete);

	/* Commit takes bytes from any address, not only from the slot. If they lie elsewhere they
	 * may be longer than a slot; then the receiver must give a place for them. */
	bool anywhere;

	/* Bytes that go to the card together, if that is so; of slots of a little more the rest
	 * goes by itself, and late. 0: slots of any length do as well. */
	size_t packet;

	/* NULL if nothing is gained. Both links join the same two ranks, one in each direction;
	 * they are connected, and this rank has not used them. From now on they share a connection.
	 * Both ranks call it, one of them as the `first`. Errors: KOLO_ESYS. */
	int (*pair)(struct ko_link *to, struct ko_link *from, bool first);

	/* NULL if slots are always copied, or if the link is `anywhere`. */
	const struct ko_rma_ops *rma;

	/* NULL if the slots' memory is at one end anyway. Gets that memory anew, near the end
	 * `near`. Both ends call it before anything else is sent. KO_EAGAIN: the other end has not
	 * done its part yet; call again. Errors: KOLO_ENOMEM. */
	int (*settle)(struct ko_link *link, enum ko_role near);
};

/* What a transport has if cards read and write other memory than slots by themselves. */
struct ko_rma_ops {
	/* Lends memory to the link until it is taken back or the link is closed. Sender: commit
	 * takes bytes from it. Receiver: it may be offered. The memory stays the caller's. Errors
	 * (it is not lent): KOLO_ENOMEM, KOLO_ESYS. */
	int (*lend)(struct ko_link *link, void *memory, size_t len);

	/* Lends memory of a device, which a card then reads or writes without the host. `fd` is the
	 * descriptor of a dmabuf and stays the caller's. The memory is `len` bytes, `offset` bytes
	 * into the dmabuf, and has the address `memory` for the device. Errors: KOLO_ENOTSUP;
	 * KOLO_ENOMEM or KOLO_ESYS if the card's driver can't do it. */
	int (*lend_device)(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset);

	/* Receiver, right after ko_link_begin: offers memory for the operation's vector. It was
	 * lent, and has room for the vector. Slots that belong into the vector may then be written
	 * there: peek's out->ptr points into it. */
	void (*offer)(struct ko_link *link, void *vector, size_t len);

	/* Takes back memory that was lent, or may have been. Nothing of it may be under way. */
	void (*take_back)(struct ko_link *link, void *memory);
};

/* The link to one rank and the link from another. A rank that waits for one advances the other
 * one. */
struct ko_edges {
	struct ko_link *to, *from;
	int next, prev; /* the ranks at their other ends */
};

/* ---- link.c ---------------------------------------------------------------------------------- */

/* Makes one end of a link of this transport, not connected yet, for a rank at the place `here`. The
 * caller owns *out and closes it. *out is NULL after an error. Errors: KOLO_ENOMEM, KOLO_ENOTSUP,
 * KOLO_ESYS. */
int ko_link_open(const struct ko_link_ops *ops, enum ko_role role, const struct ko_place *here,
		 const struct ko_limits *limits, struct ko_link **out);

/* Marks that an operation with a vector begins at the next slot. Both ends call it at the same
 * slot. An offer holds for the slots from there until the next call. */
static inline void ko_link_begin(struct ko_link *link)
{
	link->began = link->slots;
}

/* Does commit take these bytes where they are, or may they be offered? Memory that was lent counts
 * from KO_LENT_MIN bytes on: draining waits for the other end's acknowledgement, which costs more
 * than copying less. */
bool ko_link_takes(const struct ko_link *link, const void *bytes, size_t len);

enum { KO_LENT_MIN = 16 << 10 };

/* Lend memory and take it back: see struct ko_rma_ops. They do nothing for transports without it.
 * Errors: KOLO_ENOMEM, KOLO_ESYS. */
int ko_link_lend(struct ko_link *link, void *memory, size_t len);
void ko_link_take_back(struct ko_link *link, void *memory);

#endif
