/* Links through TCP (ko_tcp_ops). Each edge has a connection that carries slots in one direction,
 * each after its head. Two ranks that are each other's next have one connection for both edges:
 * bytes of one direction take the other's acknowledgements along. The kernel's buffers bound what
 * is under way. A rank that has read everything delivers all it has sent when it closes.
 *
 * The sender's slot is free once the kernel has taken its bytes. The receiver reads into its slots
 * when it peeks. */
#include "comm/transport/tcp.h"

#include "comm/base/error.h"
#include "comm/reduce/reduce.h"
#include "comm/sys/net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	SECRET = 16,
	GAP = 64,         /* bytes before each slot; its head is at their end */
	AHEAD = 64 << 10, /* bytes read at once, perhaps of several small slots, at most */
	/* bytes: if at least so many are missing, they are read straight to their place */
	DIRECT = 16 << 10,
	/* connections that have not shown the secret; if one more comes the oldest is dropped */
	MAX_STRANGERS = 16,
	AT_ONCE = 4,     /* slots in a system call */
	SHORT = 1 << 10, /* bytes: reads of no more are acknowledged later */
	ASK_EVERY = 4,   /* of them */
	/* bytes: the kernel gives a card at most 45 segments of 1448 bytes at a time, or 7 of 8948;
	 * whole pages, and a head, fit in both */
	PACKET = 60 << 10,
};

/* What travels before a slot's bytes. */
struct tcp_head {
	uint64_t len;
	uint32_t tag;
	uint32_t number; /* the slot's number, from 0 */
};

struct tcp_address {
	uint64_t slot_len;
	uint32_t nslots;
	unsigned char secret[SECRET];
	union ko_net at;
};

_Static_assert(sizeof(struct tcp_address) <= sizeof(((struct ko_address *)0)->bytes), "it fits");

struct tcp_link {
	struct ko_link link; /* must be first */
	struct ko_limits limits;
	int fd;       /* the connection; -1: not made yet */
	int listener; /* the receiver's, until it has its connection */
	int strangers[MAX_STRANGERS], nstrangers;
	unsigned char secret[SECRET]; /* the receiver's; the sender shows it */
	union ko_net at;              /* where the one that was dialled listens */
	bool accepted;                /* this rank was dialled */
	bool paired;                  /* the connection has bytes in both directions */
	struct ko_iface by;           /* the interface that this end must use, if it has a name */
	char *memory;                 /* `len` bytes: the slots, each after its gap */
	const char *payload[KO_MAX_SLOTS]; /* sender: where the bytes of each slot are */
	size_t len;
	/* Counts of slots, from the beginning of the link.
	 *   Sender: posted <= committed <= posted + nslots.
	 *   Receiver: released <= filled <= released + nslots.
	 * `moved`: bytes of the slot under way that were sent (slot `posted`) or have come (slot
	 * `filled`), its head included. */
	uint64_t committed, posted, released, filled;
	size_t moved;
	/* receiver: where the bytes of slot `filled` go, once its head has come; NULL: not known */
	char *place;
	/* receiver: where the bytes of slot `released` are, if not in the slot; else NULL */
	char *peeked;
	char *ahead; /* receiver: bytes of which [from, to) are not in their slots yet */
	size_t ahead_len, from, to;
	unsigned shorts; /* receiver: short reads */
	int broken;      /* 0, or the code of the link's failure */
	char why[160];
};

static struct tcp_link *of(struct ko_link *link)
{
	return (struct tcp_link *)link;
}

/* The head of the slot with this number; the slot follows it. */
static struct tcp_head *head_at(const struct tcp_link *t, uint64_t number)
{
	size_t stride = GAP + t->limits.slot_len;

	return (struct tcp_head *)(void *)(t->memory + number % t->limits.nslots * stride + GAP -
					   sizeof(struct tcp_head));
}

/* Keeps the link's first failure. Returns its code. */
static int break_link(struct tcp_link *t, const char *what, const char *why)
{
	char at[KO_NET_TEXT];

	if (!t->broken)
		snprintf(t->why, sizeof(t->why), "tcp: the connection %s %s%s%s: %s: %s",
			 t->accepted ? "at" : "to", ko_net_text(&t->at, at),
			 *t->by.name ? " through " : "", t->by.name, what, why);
	t->broken = KOLO_ESYS;
	return ko_fail(t->broken, "%s", t->why);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int probe_places(const struct ko_place *a, const struct ko_place *b, bool asked)
{
	(void)a;
	(void)asked;
	(void)b; /* connecting shows whether they can reach each other */
	return 0;
}

static void close_link(struct ko_link *link, bool obsolete)
{
	struct tcp_link *t = of(link);

	(void)obsolete; /* it never waits */
	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	if (t->listener >= 0)
		close(t->listener);
	for (int k = 0; k < t->nstrangers; k++)
		close(t->strangers[k]);
	if (t->memory)
		munmap(t->memory, t->len);
	free(t->ahead);
	free(t);
}

/* Listens at the address where other hosts reach this rank. */
static int listen_there(struct tcp_link *t, const struct ko_place *here)
{
	char at[KO_NET_TEXT];

	t->at = here->net;
	if (t->at.any.sa_family == 0)
		t->at.v4 = (struct sockaddr_in){ .sin_family = AF_INET,
						 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	ko_net_set_port(&t->at, 0);
	t->listener = ko_net_listen(&t->at);
	if (t->listener < 0)
		return ko_fail(KOLO_ESYS, "tcp: opening a port at %s: %s", ko_net_text(&t->at, at),
			       strerror(errno));
	t->ahead = malloc(t->ahead_len);
	if (!t->ahead)
		return ko_fail(KOLO_ENOMEM, "tcp: no memory for a link");
	return getrandom(t->secret, sizeof(t->secret), 0) == sizeof(t->secret)
		       ? 0
		       : ko_fail(KOLO_ESYS, "tcp: getrandom: %s", strerror(errno));
}

static int open_link(enum ko_role role, const struct ko_place *here, const struct ko_limits *limits,
		     struct ko_link **out)
{
	struct tcp_link *t = calloc(1, sizeof(*t));
	int rc = 0;

	*out = NULL;
	if (!t)
		return ko_fail(KOLO_ENOMEM, "tcp: no memory for a link");
	t->link.role = role;
	t->limits = *limits;
	t->by.at = here->net;
	ko_net_set_port(&t->by.at, 0);
	memcpy(t->by.name, here->iface, sizeof(t->by.name));
	memcpy(t->link.through, here->iface, sizeof(t->by.name));
	t->fd = t->listener = -1;
	t->accepted = role == KO_RECV;
	t->len = limits->nslots * (GAP + limits->slot_len);
	t->ahead_len = role == KO_SEND ? 0 : t->len < AHEAD ? t->len : AHEAD;
	t->link.memory = t->len + t->ahead_len;
	t->memory = mmap(NULL, t->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t->memory == MAP_FAILED) {
		t->memory = NULL;
		rc = ko_fail(KOLO_ENOMEM, "tcp: no memory for %zu bytes of slots", t->len);
	}
	if (rc == 0 && role == KO_RECV)
		rc = listen_there(t, here);
	if (rc < 0) {
		close_link(&t->link, true);
		return rc;
	}
	*out = &t->link;
	return 0;
}

static int address_link(struct ko_link *link, struct ko_address *out)
{
	const struct tcp_link *t = of(link);
	struct tcp_address a = { .slot_len = t->limits.slot_len,
				 .nslots = t->limits.nslots,
				 .at = t->at };

	memcpy(a.secret, t->secret, sizeof(a.secret));
	*out = (struct ko_address){ .fd = -1 };
	memcpy(out->bytes, &a, sizeof(a));
	return 0;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void forget_stranger(struct tcp_link *t, int k)
{
	t->nstrangers--;
	memmove(&t->strangers[k], &t->strangers[k + 1], (size_t)(t->nstrangers - k) * sizeof(int));
}

/* Has stranger k shown the secret? A stranger that shows something else is dropped. */
static bool is_sender(struct tcp_link *t, int k)
{
	unsigned char shown[SECRET];
	ssize_t got = recv(t->strangers[k], shown, sizeof(shown), MSG_PEEK | MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got > 0 && memcmp(shown, t->secret, (size_t)got) == 0)
		return got == SECRET && recv(t->strangers[k], shown, sizeof(shown), 0) == SECRET;
	close(t->strangers[k]);
	forget_stranger(t, k);
	return false;
}

/* Makes the stranger that has shown the secret the sender. */
static bool find_sender(struct tcp_link *t)
{
	for (int k = t->nstrangers; k-- > 0;) {
		if (!is_sender(t, k))
			continue;
		t->fd = t->strangers[k];
		forget_stranger(t, k);
		return true;
	}
	return false;
}

static int accept_sender(struct tcp_link *t)
{
	int fd;

	while (!find_sender(t)) {
		fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
			return break_link(t, "accepting", strerror(errno));
		if (fd < 0) /* nobody, or one that has left again */
			return KO_EAGAIN;
		if (t->nstrangers == MAX_STRANGERS) {
			close(t->strangers[0]);
			forget_stranger(t, 0);
		}
		t->strangers[t->nstrangers++] = fd;
	}
	/* no keep-alive: lifelines notice a silent host, and a receiver may read late */
	ko_net_hurry(t->fd);
	close(t->listener);
	t->listener = -1;
	return 0;
}

static int dial_receiver(struct tcp_link *t)
{
	int through;

	if (t->fd < 0)
		t->fd = ko_net_start(&t->at, &t->by);
	through = t->fd < 0 ? -1 : ko_net_is_through(t->fd, 0);
	if (through <= 0)
		return through == 0 ? KO_EAGAIN : break_link(t, "connecting", strerror(errno));
	ko_net_hurry(t->fd);
	return send(t->fd, t->secret, sizeof(t->secret), MSG_NOSIGNAL) == sizeof(t->secret)
		       ? 0
		       : break_link(t, "greeting", strerror(errno));
}

static int connect_link(struct ko_link *link, const struct ko_address *peer)
{
	struct tcp_link *t = of(link);
	struct tcp_address a;

	memcpy(&a, peer->bytes, sizeof(a));
	if (a.slot_len != t->limits.slot_len || a.nslots != t->limits.nslots)
		return ko_fail(KOLO_EMISMATCH,
			       "tcp: the other end has %u slots of %llu bytes, this one %u of %llu",
			       a.nslots, (unsigned long long)a.slot_len, t->limits.nslots,
			       (unsigned long long)t->limits.slot_len);
	if (t->broken)
		return ko_fail(t->broken, "%s", t->why);
	if (link->role == KO_RECV)
		return accept_sender(t);
	t->at = a.at;
	memcpy(t->secret, a.secret, sizeof(t->secret));
	return dial_receiver(t);
}

/* The first rank's `to` keeps its connection, and so does the other one's `from`, its other end. */
static int pair_links(struct ko_link *to, struct ko_link *from, bool first)
{
	struct tcp_link *keeps = of(first ? to : from), *joins = of(first ? from : to);
	int fd = fcntl(keeps->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return break_link(joins, "joining the other direction's", strerror(errno));
	close(joins->fd);
	joins->fd = fd;
	joins->at = keeps->at;
	joins->accepted = keeps->accepted;
	joins->paired = keeps->paired = true;
	return 0;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Sends what is left of the slots that are committed, or of the first ones. */
static ssize_t send_rest(struct tcp_link *t)
{
	struct iovec parts[2 * AT_ONCE];
	struct msghdr message = { .msg_iov = parts };
	size_t gone = t->moved;

	for (uint64_t n = t->posted; n < t->committed && n < t->posted + AT_ONCE; n++) {
		struct tcp_head *head = head_at(t, n);
		char *payload = (char *)(uintptr_t)t->payload[n % t->limits.nslots];
		struct iovec whole[2] = { { head, sizeof(*head) }, { payload, head->len } };

		for (int k = 0; k < 2; k++) {
			size_t skip = gone < whole[k].iov_len ? gone : whole[k].iov_len;

			gone -= skip;
			parts[message.msg_iovlen++] =
				(struct iovec){ (char *)whole[k].iov_base + skip,
						whole[k].iov_len - skip };
		}
	}
	return sendmsg(t->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Bytes of the slot under way, its head included. */
static size_t bytes_posted(const struct tcp_link *t)
{
	return sizeof(struct tcp_head) + head_at(t, t->posted)->len;
}

/* Gives the kernel as much as it takes. 0, or the link's failure. */
static int flush(struct tcp_link *t)
{
	while (!t->broken && t->posted < t->committed) {
		ssize_t sent = send_rest(t);

		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (sent < 0)
			return break_link(t, "sending", strerror(errno));
		t->moved += (size_t)sent;
		while (t->posted < t->committed && t->moved >= bytes_posted(t)) {
			t->moved -= bytes_posted(t);
			t->posted++;
		}
	}
	return t->broken ? ko_fail(t->broken, "%s", t->why) : 0;
}

static int acquire_slot(struct ko_link *link, struct ko_slot *out)
{
	struct tcp_link *t = of(link);
	int rc = t->committed - t->posted < t->limits.nslots ? 0 : flush(t);

	if (rc < 0 || t->broken)
		return rc < 0 ? rc : ko_fail(t->broken, "%s", t->why);
	if (t->committed - t->posted == t->limits.nslots)
		return KO_EAGAIN;
	*out = (struct ko_slot){ .ptr = head_at(t, t->committed) + 1 };
	return 0;
}

static int commit_slot(struct ko_link *link, const struct ko_slot *slot)
{
	struct tcp_link *t = of(link);

	if (link->writer.stores == KO_STREAMING)
		ko_stream_fence();
	*head_at(t, t->committed) =
		(struct tcp_head){ slot->len, slot->tag, (uint32_t)t->committed };
	t->payload[t->committed % t->limits.nslots] = slot->len ? slot->ptr : t->memory;
	t->committed++;
	link->bytes += slot->len;
	link->slots++;
	if (!slot->more)
		flush(t);
	return 0;
}

static int drain_link(struct ko_link *link)
{
	struct tcp_link *t = of(link);
	int rc = flush(t);

	return rc < 0 || t->posted == t->committed ? rc : KO_EAGAIN;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Reads bytes from the connection. KO_EAGAIN: there are none now. */
static int read_some(struct tcp_link *t, void *to, size_t room, size_t *got)
{
	ssize_t n = recv(t->fd, to, room, MSG_DONTWAIT);

	*got = n > 0 ? (size_t)n : 0;
	if (n > 0)
		return 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return KO_EAGAIN;
	return break_link(t, "receiving", n < 0 ? strerror(errno) : "the sender closed it");
}

/* How many bytes slot `filled` lacks; its head comes first. */
static size_t lacks(const struct tcp_link *t, const struct tcp_head *head)
{
	return (t->moved < sizeof(*head) ? sizeof(*head) : sizeof(*head) + head->len) - t->moved;
}

/* Chooses the place for the bytes after a head: the caller's, if the slot is the one that the
 * caller waits for. A slot that is too long for the link's own memory has no other place. */
static void choose_place(struct tcp_link *t, struct tcp_head *head, void *into, size_t into_len)
{
	if (t->filled == t->released && into && into_len == head->len)
		t->place = t->peeked = into;
	else if (head->len <= t->limits.slot_len)
		t->place = (char *)(head + 1);
}

/* Where the next byte of the slot goes. */
static char *next_byte(const struct tcp_link *t, struct tcp_head *head)
{
	return t->moved < sizeof(*head) ? (char *)head + t->moved
					: t->place + (t->moved - sizeof(*head));
}

/* Bytes to read ahead: of a slot that is to come alone, its own and the next one's head. */
static size_t bytes_ahead(const struct tcp_link *t, size_t need, size_t into_len)
{
	size_t own = need + into_len + sizeof(struct tcp_head);

	return t->link.alone && own < t->ahead_len ? own : t->ahead_len;
}

/* The kernel acknowledges a short read at once, which takes longer than the read, unless bytes go
 * back too. It is asked again and again not to, since that is not permanent. */
static void acknowledge_later(struct tcp_link *t)
{
	if (!t->paired && !t->link.alone && t->to <= SHORT && t->shorts++ % ASK_EVERY == 0)
		ko_net_acknowledge_later(t->fd);
}

/* Fills the next slot, or the caller's place for it. KO_EAGAIN: not all of it has come, or it has
 * no place. */
static int fill_slot(struct tcp_link *t, void *into, size_t into_len)
{
	struct tcp_head *head = head_at(t, t->filled);
	int rc = t->broken ? ko_fail(t->broken, "%s", t->why) : 0;
	size_t need;

	while (rc == 0 && (need = lacks(t, head)) > 0) {
		size_t n = t->to - t->from < need ? t->to - t->from : need;

		if (t->moved == sizeof(*head) && !t->place)
			choose_place(t, head, into, into_len);
		if (t->moved >= sizeof(*head) && !t->place)
			return KO_EAGAIN;
		if (n) {
			memcpy(next_byte(t, head), t->ahead + t->from, n);
			t->from += n;
		} else if (need >= DIRECT) {
			rc = read_some(t, next_byte(t, head), need, &n);
		} else {
			t->from = 0;
			rc = read_some(t, t->ahead, bytes_ahead(t, need, into_len), &t->to);
			if (rc == 0)
				acknowledge_later(t);
		}
		t->moved += n;
		if (n && t->moved == sizeof(*head) && head->number != (uint32_t)t->filled)
			rc = break_link(t, "receiving",
					"what came is no slot, or not the next one");
	}
	if (rc)
		return rc;
	t->moved = 0;
	t->place = NULL;
	t->filled++;
	return 0;
}

static int peek_slot(struct ko_link *link, void *into, size_t len, struct ko_slot *out)
{
	struct tcp_link *t = of(link);
	struct tcp_head *head = head_at(t, t->released);
	int rc = t->released < t->filled ? 0 : fill_slot(t, into, len);

	if (rc == KO_EAGAIN && t->moved >= sizeof(*head) && !t->place)
		return break_link(t, "receiving", "what came is longer than a slot and its place");
	if (rc == 0)
		*out = (struct ko_slot){ .ptr = t->peeked ? t->peeked : (char *)(head + 1),
					 .len = head->len,
					 .tag = head->tag };
	return rc;
}

static int release_slot(struct ko_link *link)
{
	struct tcp_link *t = of(link);

	link->bytes += head_at(t, t->released)->len;
	link->slots++;
	t->released++;
	t->peeked = NULL;
	return 0;
}

static int progress_link(struct ko_link *link)
{
	struct tcp_link *t = of(link);
	int rc = 0;

	if (link->role == KO_SEND)
		rc = flush(t);
	else
		while (rc == 0 && t->filled - t->released < t->limits.nslots)
			rc = fill_slot(t, NULL, 0);
	return rc < 0 ? rc : 0;
}

const struct ko_link_ops ko_tcp_ops = {
	.name = "tcp",
	.probe = probe_places,
	.open = open_link,
	.address = address_link,
	.connect = connect_link,
	.acquire = acquire_slot,
	.commit = commit_slot,
	.peek = peek_slot,
	.release = release_slot,
	.progress = progress_link,
	.drain = drain_link,
	.close = close_link,
	.pair = pair_links,
	.anywhere = true,
	.packet = PACKET,
};
