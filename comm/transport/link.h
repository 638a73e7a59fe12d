/* A link is one edge of the ring in one direction: a bounded FIFO of slots from a rank to its next. This table is all that the
 * rest of Kolo knows of a transport. Every transport passes the same conformance suite, tests/test_links.c.
 *
 * A new transport writes the functions of struct ko_link_ops, none of which may be NULL, and gets a row in transports.c. It may
 * add struct ko_rma_ops if it can send from or receive into memory of others, and `settle` if both ends share the slots'
 * memory. Functions that say so return KO_EAGAIN, and the caller tries again. None blocks. All are called by the one thread
 * that uses the communicator. */
#ifndef COMM_TRANSPORT_LINK_H
#define COMM_TRANSPORT_LINK_H

#include "comm/sys/topo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ko_role { KO_SEND, KO_RECV };

enum { KO_MAX_SLOTS = 64, KO_MIN_SLOT = 4096, KO_MAX_SLOT = 64 << 20 };

/* What both ends must have equal; rank 0's are taken. */
struct ko_limits {
	uint64_t slot_len; /* bytes, a multiple of KO_MIN_SLOT up to KO_MAX_SLOT */
	uint32_t nslots; /* 2..KO_MAX_SLOTS: a piece is one slot, and a ring needs one more to keep moving */
	uint32_t single; /* 1: for single messages, each of which may be the last before the link is closed */
};

/* How a sender writes slots; its own business, at any time. */
enum ko_stores { KO_ORDINARY, KO_STREAMING };

/* A slot as lent to the caller. */
struct ko_slot {
	void *ptr;
	size_t len;   /* payload bytes */
	uint32_t tag; /* travels with the slot: which operation it belongs to */
	/* 1 + bytes before it in the vector that the receiver may have offered memory for; 0: it is in none (KO_SEND) */
	size_t belongs;
};

/* What one end tells the other before they connect. */
struct ko_address {
	unsigned char bytes[256];
	int fd; /* a descriptor that goes along, or -1 */
};

/* Memory that was lent to a link. */
struct ko_lent {
	struct ko_lent *next;
	const char *memory;
	size_t len;
	bool device; /* no processor may touch it */
};

/* One end of a link; a transport's own struct begins with it. The transport writes all fields but those said otherwise. */
struct ko_link {
	const struct ko_link_ops *ops; /* written by ko_link_open */
	enum ko_role role;
	uint64_t bytes,
		slots; /* payload and slots committed (KO_SEND) or released (KO_RECV); the caller may set them to 0 */
	size_t memory; /* bytes this end allocated for slots */
	/* What it goes through, for people: a card's port, a provider; "": nothing to name */
	char through[48];
	/* Written by open: commit takes bytes that are not in the slot, wherever they are (KO_SEND) */
	bool anywhere;
	/* Written by lend and take_back: if not anywhere, commit takes these (KO_SEND); these may be offered (KO_RECV) */
	struct ko_lent *lent;
	/* Written by ko_link_begin: `slots` when the operation under way began, or the last one with a vector */
	uint64_t began;
	/* Written by who measures the link, when nothing is under way (KO_SEND): the kind of stores that fills slots best, which
	 * commit must know to order them; and bytes of large slots in a nanosecond with that kind */
	enum ko_stores stores;
	double bytes_per_ns;
};

/* What a transport must have: a name and eleven functions. */
struct ko_link_ops {
	const char *name;

	/* Can this transport join the two places, and is it `asked` for by name? Both ends ask and must get the same
	 * answer. 0, or KOLO_ENOTSUP with the reason. */
	int (*probe)(const struct ko_place *a, const struct ko_place *b, bool asked);

	/* Makes one end, not connected yet, for a rank that is `here`. ko_link_open calls it and writes (*out)->ops. Errors: those
	 * of ko_link_open. */
	int (*open)(enum ko_role role, const struct ko_place *here, const struct ko_limits *limits,
		    struct ko_link **out);

	/* What the other end's connect needs. out->fd stays the link's, for as long as it is open. KOLO_ESYS. */
	int (*address)(struct ko_link *link, struct ko_address *out);

	/* Joins this end to the one that has the address `peer`; peer->fd stays the caller's. KO_EAGAIN while the other
	 * end has not done its part: to be called again, with the same peer. KOLO_EMISMATCH, KOLO_EUNREACH, KOLO_ENOMEM,
	 * KOLO_ESYS. */
	int (*connect)(struct ko_link *link, const struct ko_address *peer);

	/* Sender: the next free slot, lent until commit; out->ptr has room for slot_len bytes. Called again
	 * before commit it gives the same slot. KO_EAGAIN while the link is full. */
	int (*acquire)(struct ko_link *link, struct ko_slot *out);

	/* Sender: hands slot->len bytes of the slot acquired to the other end, with slot->tag. Orders all stores
	 * to the slot before it. The sender may go on reading its bytes until it acquires again. slot->ptr may
	 * lead to other bytes that the link takes (ko_link_takes), which must stay as they are until the receiver has them, or
	 * the link has drained. A link that fails here says so at the next acquire or drain. */
	int (*commit)(struct ko_link *link, const struct ko_slot *slot);

	/* Receiver: the oldest slot, lent until release. Called again before release it gives the same slot. The caller may have a
	 * place for a slot of `len` bytes, `into` (NULL: none): then out->ptr may be that. A caller that gave a place once gives
	 * the same one until the slot has come. KO_EAGAIN while the link is empty. */
	int (*peek)(struct ko_link *link, void *into, size_t len, struct ko_slot *out);

	/* Receiver: the slot peeked may be written again by the sender, who learns it when half of the slots are free
	 * again, or at the next progress. A link that fails here says so at the next peek that finds nothing. */
	int (*release)(struct ko_link *link);

	/* Moves on what needs calls for it (transports with manual progress): whoever waits for one link calls it for the
	 * other one. 0, or what the link has failed with: also when its other end is closed, which may be all right. */
	int (*progress)(struct ko_link *link);

	/* Sender: 0 once everything committed will arrive without another call on this link; KO_EAGAIN till
	 * then. A collective does not return before. */
	int (*drain)(struct ko_link *link);

	/* Frees this end, in any state, NULL allowed. The other end may go on reading what was committed. A sender's may wait for
	 * a moment for what was drained to have arrived, unless it is `obsolete`: the other end needs nothing more. */
	void (*close)(struct ko_link *link, bool obsolete);

	/* Optional: NULL if slots are always copied, or bytes may be anywhere. */
	const struct ko_rma_ops *rma;

	/* Optional: NULL if the slots' memory lies with one end anyway. Both ends, before anything else is sent: gets that memory
	 * anew, near the end `near`. KO_EAGAIN while the other end has not done its part: to be called again. KOLO_ENOMEM. */
	int (*settle)(struct ko_link *link, enum ko_role near);
};

/* What a transport has if cards read and write memory of others by themselves. */
struct ko_rma_ops {
	/* Sender: commit takes bytes of this memory; receiver: it may be offered; until it is taken back, or the link closed.
	 * The memory stays the caller's. KOLO_ENOMEM, KOLO_ESYS: not lent. */
	int (*lend)(struct ko_link *link, void *memory, size_t len);

	/* Lends memory of a device, which a card then reads or writes without the host: `offset` bytes into the dmabuf
	 * whose descriptor is fd (the caller's) lie `len` bytes that have the address `memory` for the device. KOLO_ENOTSUP,
	 * KOLO_ENOMEM, KOLO_ESYS where the card's driver can't. */
	int (*lend_device)(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset);

	/* Receiver, right after ko_link_begin: what comes in that operation, and belongs into its vector, may be put into this
	 * memory, which was lent and has room for the vector: then peek's ptr leads there. */
	void (*offer)(struct ko_link *link, void *vector, size_t len);

	/* Takes back what was lent, or may have been; nothing of it is under way. */
	void (*take_back)(struct ko_link *link, void *memory);
};

/* The link to one rank and that from another. While one is waited for the other is looked after. */
struct ko_edges {
	struct ko_link *to, *from;
	int next, prev; /* the ranks at their other ends */
};

/* ---- link.c --------------------------------------------------------------------------------------------- */

/* Makes one end of a link of this transport, not connected yet, for a rank that is `here`. The caller owns *out and closes it;
 * *out is NULL after an error. KOLO_ENOMEM, KOLO_ENOTSUP, KOLO_ESYS. */
int ko_link_open(const struct ko_link_ops *ops, enum ko_role role, const struct ko_place *here,
		 const struct ko_limits *limits, struct ko_link **out);

/* An operation with a vector begins at the next slot. Both ends call it at the same slot: an offer counts for the slots after
 * it, until it is called again. */
static inline void ko_link_begin(struct ko_link *link)
{
	link->began = link->slots;
}

/* Does commit take these bytes where they are, or may they be offered? Below KO_LENT_MIN memory that was lent is not worth
 * it: whoever drains waits for the other end's acknowledgement. */
bool ko_link_takes(const struct ko_link *link, const void *bytes, size_t len);

enum { KO_LENT_MIN = 16 << 10 };

/* As ko_rma_ops has it; does nothing for transports without it. 0, KOLO_ENOMEM, KOLO_ESYS. */
int ko_link_lend(struct ko_link *link, void *memory, size_t len);
void ko_link_take_back(struct ko_link *link, void *memory);

/* "ordinary", "streaming". */
const char *ko_stores_name(enum ko_stores stores);

#endif
