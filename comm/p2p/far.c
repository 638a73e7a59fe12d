/* Far lanes: joins their links (ko_far_listen answers ranks that dial), closes idle ones, and sends
 * and receives messages (ko_far_ops).
 *
 * A message begins with a slot that has its head. A short message follows the head in the same
 * slot. Of a longer one as much as there is room for; but if the transport can send and receive in
 * place it follows in slots of its own. If a link can do so with any memory, its slots hold only
 * what is short. */
#include "comm/p2p/far.h"

#include "comm/base/clock.h"
#include "comm/core/edges.h"
#include "comm/core/wait.h"
#include "comm/reduce/reduce.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SLOT_LEN = 64 << 10,
	/* in shared memory: the slots hold a message of 64 KiB and its head. Then its sender, which
	 * may share the processor with its receiver, need not wait for that */
	SHARED_LEN = (16 << 10) + 64,
	ANYWHERE_LEN = 8 << 10,
	PACKETS = 2, /* of a long message at a time, if it needs no slot */
	/* bytes of a message from which on its head is read by itself, and then the message to its
	 * place: another call of the system takes less time than copying it */
	HEAD_ALONE = 16 << 10,
	NSLOTS = 4,
	AGAIN_MS = 20, /* until a rank that did not answer is dialled again */
	LISTEN_MS = 1, /* between looks for ranks that dial this one, if no lane is being joined */
	PEEK_MS = 10,  /* between looks into sockets of lanes that nothing waits for */
};

enum state {
	APART,
	CONNECTED, /* there is a connection; the other end's address is not known yet */
	JOINING,   /* the other end's address is known */
	JOINED,
	LEAVING, /* the sender has said that nothing more comes */
};

/* A lane has one link after the other. A sender that closes its link says so in the link, and dials
 * again when it has another message. It also dials again if a connection ended before the two were
 * joined. With each dial it says how many links it has joined so far (`joined`). A receiver that
 * has read as many links to their ends (`over`) has nothing more to read in the link that it
 * has. */
struct ko_far {
	enum state state;
	size_t long_from;       /* bytes: shorter messages go with their head */
	size_t along;           /* bytes of a longer one that do */
	size_t piece;           /* bytes of a longer one that go in a slot */
	size_t slot;            /* bytes of a slot */
	struct ko_link *link;   /* sender: from CONNECTED on; receiver: from JOINING on */
	int conn;               /* the connection for the ends' addresses; -1: none */
	struct ko_address peer; /* the other end's; its fd is owned */
	int64_t dialled_ms;     /* sender: ko_now_ms() when its last connection ended */
	uint64_t joined;        /* links that this end has joined */
	uint64_t over;          /* receiver: links that it has read to their end */
	int next_conn;          /* receiver: a connection for the next link; -1: none */
};

/* The head of a message. */
struct head {
	uint64_t n;
	uint32_t type; /* enum kolo_type */
	uint32_t over; /* 1: no message; the sender closes the link */
};

_Static_assert(sizeof(struct head) <= KO_MIN_SLOT, "a short message and its head fit");

/* ---- Opening and closing --------------------------------------------------------------------- */

static int far_open(struct kolo_comm *c, struct ko_lane_end *end)
{
	end->far = malloc(sizeof(*end->far));
	if (!end->far)
		return ko_fail(KOLO_ENOMEM, "no memory for a lane to or from rank %d", end->peer);
	*end->far = (struct ko_far){ .conn = -1, .peer.fd = -1, .next_conn = -1 };
	c->lanes->nfar += end->sends;
	return 0;
}

static void close_conn(struct ko_far *far)
{
	if (far->conn >= 0)
		close(far->conn);
	if (far->peer.fd >= 0)
		close(far->peer.fd);
	far->conn = far->peer.fd = -1;
}

static void close_link(struct ko_far *far, bool obsolete)
{
	if (far->link)
		far->link->ops->close(far->link, obsolete);
	far->link = NULL;
	far->state = APART;
}

static void far_close(struct ko_lane_end *end, bool failed)
{
	struct ko_far *far = end->far;

	if (!far)
		return;
	close_conn(far);
	close_link(far, failed);
	if (far->next_conn >= 0)
		close(far->next_conn);
	free(far);
	end->far = NULL;
}

static size_t far_memory(const struct ko_lane_end *end)
{
	return end->far && end->far->link ? end->far->link->memory : 0;
}

/* ---- Joining --------------------------------------------------------------------------------- */

/* The connection has ended before the two were joined. The sender dials again. */
static int hang_up(struct ko_far *far)
{
	close_conn(far);
	close_link(far, true);
	far->dialled_ms = ko_now_ms();
	return KO_EAGAIN;
}

/* How messages go through a link of this transport. Returns the bytes of its slots. */
static size_t choose_sizes(struct ko_far *far, const struct ko_link_ops *ops)
{
	size_t slot = ops->anywhere ? ANYWHERE_LEN : ops->settle ? SHARED_LEN : SLOT_LEN;

	far->long_from = ops->rma ? KO_LENT_MIN : slot - sizeof(struct head) + 1;
	far->along = ops->rma || ops->anywhere ? 0 : slot - sizeof(struct head);
	far->piece = ops->anywhere ? PACKETS * ops->packet : slot;
	far->slot = slot;
	return slot;
}

/* Opens this end of the link and sends its address to the other end. */
static int open_link(struct kolo_comm *c, struct ko_lane_end *end)
{
	const struct ko_place *here = &c->table[c->rank].place;
	int from = end->sends ? c->rank : end->peer, to = end->sends ? end->peer : c->rank;
	struct ko_msg msg = { .type = KO_MSG_ADDRESS, .value = end->sends ? KO_SEND : KO_RECV };
	struct ko_far *far = end->far;
	struct ko_limits limits = { .nslots = NSLOTS, .single = 1 };
	const struct ko_link_ops *ops;
	struct ko_address address;
	int rc = ko_edge_transport(c, from, to, &ops);

	if (rc == 0) {
		limits.slot_len = choose_sizes(far, ops);
		rc = ko_link_open(ops, end->sends ? KO_SEND : KO_RECV, here, &limits, &far->link);
	}
	if (rc < 0 || (rc = ops->address(far->link, &address)) < 0)
		return rc;
	memcpy(msg.bytes, address.bytes, sizeof(address.bytes));
	return ko_msg_send(far->conn, &msg, address.fd) < 0 ? hang_up(far) : 0;
}

/* Receives the other end's address. */
static int hear_address(struct ko_lane_end *end)
{
	struct ko_far *far = end->far;
	enum ko_heard heard;
	struct ko_msg msg;
	int fd;

	if (!ko_msg_has_come(far->conn))
		return KO_EAGAIN;
	heard = ko_msg_recv(far->conn, &msg, &fd);
	if (heard == KO_HEARD_TRUNCATED)
		return ko_fail(KOLO_ESYS, "out of descriptors (ulimit -n) for a lane");
	if (heard == KO_HEARD_MSG && msg.type == KO_MSG_ADDRESS &&
	    msg.value == (end->sends ? KO_RECV : KO_SEND)) {
		memcpy(far->peer.bytes, msg.bytes, sizeof(far->peer.bytes));
		far->peer.fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return hang_up(far);
}

/* Sender: dials the receiver. */
static int dial(struct kolo_comm *c, struct ko_lane_end *end)
{
	struct ko_far *far = end->far;
	int rc;

	if (far->conn < 0 && ko_now_ms() - far->dialled_ms < AGAIN_MS)
		return KO_EAGAIN;
	rc = ko_lifelines_dial(c->lifelines, end->peer, far->joined, &far->conn);
	if (rc == KO_EAGAIN && far->conn < 0)
		far->dialled_ms = ko_now_ms();
	if (rc == 0)
		rc = open_link(c, end);
	if (rc == 0)
		far->state = CONNECTED;
	return rc;
}

/* Receiver: takes the connection that waits. */
static int take_next_conn(struct ko_far *far)
{
	if (far->next_conn < 0)
		return KO_EAGAIN;
	far->conn = far->next_conn;
	far->next_conn = -1;
	far->state = CONNECTED;
	return 0;
}

/* Takes the next step to join the two ends. Returns 0, KO_EAGAIN or an error. */
static int step(struct kolo_comm *c, struct ko_lane_end *end)
{
	struct ko_far *far = end->far;
	int rc;

	switch (far->state) {
	case APART: return end->sends ? dial(c, end) : take_next_conn(far);
	case CONNECTED:
		rc = hear_address(end);
		if (rc == 0 && !end->sends)
			rc = open_link(c, end);
		if (rc == 0)
			far->state = JOINING;
		return rc;
	default:
		rc = far->link->ops->connect(far->link, &far->peer);
		if (rc == 0) {
			far->state = JOINED;
			far->joined++;
			close_conn(far);
		}
		return rc;
	}
}

static int join(struct kolo_comm *c, struct ko_lane_end *end)
{
	int rc = 0;

	while (rc == 0 && end->far->state < JOINED)
		rc = step(c, end);
	return rc;
}

int ko_far_link(struct kolo_comm *c, struct ko_lane_end *end, bool join_it, struct ko_link **out)
{
	struct ko_far *far = end->far;
	int rc = far->state >= JOINED ? 0 : join_it ? join(c, end) : KO_EAGAIN;

	if (rc == KO_EAGAIN && far->state != APART)
		c->lanes->joining = true;
	if (rc < 0)
		c->lanes->failed = end;
	*out = far->link;
	return rc;
}

size_t ko_far_slot(const struct ko_lane_end *end)
{
	return end->far->slot;
}

/* ---- Listening ------------------------------------------------------------------------------- */

/* If the slot says that the sender closes the link, closes this end too and returns true. */
static bool take_leave(struct ko_far *far, const struct ko_slot *in)
{
	struct head head;

	if (in->len < sizeof(head))
		return false;
	memcpy(&head, in->ptr, sizeof(head));
	if (!head.over)
		return false;
	far->over++;
	close_link(far, true);
	return true;
}

/* Answers a rank that has dialled this one. */
static int answer(struct kolo_comm *c, const struct ko_incoming *in)
{
	struct ko_lane_end *end;
	struct ko_far *far;
	int rc = in->rank == c->rank ? KO_EAGAIN : ko_lane_find(c, in->rank, false, &end);

	if (rc) {
		close(in->fd);
		return rc < 0 ? rc : 0;
	}
	far = end->far;
	if (far->next_conn >= 0)
		close(far->next_conn);
	far->next_conn = in->fd;
	if (far->over == in->lanes) {
		close_conn(far);
		close_link(far, true);
	}
	return 0;
}

/* Moves on an end that nothing here waits for: its sender may wait. A failure is reported when the
 * end is needed. peeks: looks into a socket too, whether the sender has closed the link. */
static void look_after(struct kolo_comm *c, struct ko_lane_end *end, bool peeks)
{
	struct ko_far *far = end->far;
	struct ko_slot in;

	/* The system takes in what comes to a socket; other transports may need the call. */
	if (far->state == JOINED && (peeks || far->next_conn >= 0 || !far->link->anywhere) &&
	    far->link->ops->peek(far->link, NULL, 0, &in) == 0)
		take_leave(far, &in);
	if (join(c, end) < 0 && far->state < JOINING)
		hang_up(far);
}

static int listen_now(struct kolo_comm *c, int64_t now)
{
	bool peeks = now - c->lanes->peeked_ms >= PEEK_MS;
	int rc = ko_lifelines_listen_for_calls(c->lifelines);
	struct ko_incoming in;

	while (rc == 0 && ko_lifelines_answer(c->lifelines, &in))
		rc = answer(c, &in);
	if (peeks)
		c->lanes->peeked_ms = now;
	c->lanes->joining = false;
	for (int r = 0; rc == 0 && c->lanes->ends && r < c->nranks; r++) {
		struct ko_lane_end *end = &c->lanes->ends[c->nranks + r];

		if (!end->far)
			continue;
		if (!end->first)
			look_after(c, end, peeks);
		if (end->far->state == CONNECTED || end->far->state == JOINING)
			c->lanes->joining = true;
	}
	return rc;
}

int ko_far_listen(struct kolo_comm *c)
{
	int64_t now = ko_now_ms();

	if (!c->lanes->joining && now - c->lanes->listened_ms < LISTEN_MS)
		return 0;
	c->lanes->listened_ms = now;
	return listen_now(c, now);
}

/* ---- Idle lanes ------------------------------------------------------------------------------ */

static bool is_open(const struct ko_lane_end *end)
{
	return end->far && end->far->state == JOINED;
}

/* Sender: says in the link that it closes it. Returns false if the receiver has not read enough. */
static bool say_over(struct ko_lane_end *end)
{
	const struct head head = { .over = 1 };
	struct ko_link *link = end->far->link;
	struct ko_slot slot;

	if (link->ops->acquire(link, &slot) != 0)
		return false;
	memcpy(slot.ptr, &head, sizeof(head));
	slot.len = sizeof(head);
	slot.tag = 0;
	link->ops->commit(link, &slot);
	end->far->state = LEAVING;
	return true;
}

/* Closes the idle end that was used longest ago, of those used after `since`. Returns when that
 * was; 0: there is none. *gone: it could be closed. */
static uint64_t let_go(struct kolo_comm *c, uint64_t since, bool *gone)
{
	struct ko_lane_end *idle = NULL;

	for (int r = 0; r < c->nranks; r++) {
		struct ko_lane_end *end = &c->lanes->ends[r];

		if (is_open(end) && !end->first && end->used > since &&
		    (!idle || end->used < idle->used))
			idle = end;
	}
	*gone = idle && say_over(idle);
	return idle ? idle->used : 0;
}

static void trim_now(struct kolo_comm *c)
{
	int open = 0;
	bool gone;

	for (int r = 0; r < c->nranks; r++)
		open += is_open(&c->lanes->ends[r]);
	for (uint64_t since = 0; open > c->lanes->kept && (since = let_go(c, since, &gone));)
		open -= gone;
	for (int r = 0; r < c->nranks; r++) {
		struct ko_far *far = c->lanes->ends[r].far;

		if (far && far->state == LEAVING && far->link->ops->drain(far->link) != KO_EAGAIN)
			close_link(far, false);
	}
}

static void far_trim(struct kolo_comm *c)
{
	if (c->lanes->nfar > c->lanes->kept)
		trim_now(c);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Bytes of the message that go in one slot with its head. */
static size_t with_head(const struct ko_far *far, const struct ko_transfer *t)
{
	return t->bytes < far->long_from ? t->bytes : far->along;
}

static int send_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	const struct head head = { .n = t->n, .type = (uint32_t)t->type };
	struct ko_link *link = end->far->link;
	size_t rest = t->bytes - t->moved;
	size_t first = with_head(end->far, t);
	struct ko_slot slot;
	int rc = link->ops->acquire(link, &slot);

	if (rc)
		return rc;
	slot.tag = run->tag;
	if (t->stage == KO_STAGE_WAITING) {
		t->stage = KO_STAGE_SLOTS;
		memcpy(slot.ptr, &head, sizeof(head));
		if (first)
			ko_copy_bytes((char *)slot.ptr + sizeof(head), t->buffer, first);
		t->moved = first;
		slot.len = sizeof(head) + first;
		slot.more = first < rest;
	} else {
		slot.len = ko_min_size(rest, end->far->piece);
		if (ko_link_takes(link, t->buffer + t->moved, slot.len))
			slot.ptr = t->buffer + t->moved;
		else
			ko_copy_bytes(slot.ptr, t->buffer + t->moved, slot.len);
		t->moved += slot.len;
	}
	return link->ops->commit(link, &slot);
}

/* All transfers are done when the link needs neither their memory nor another call of its
 * functions. */
static int advance_send(struct ko_run *run, struct ko_lane_end *end)
{
	struct ko_link *link = end->far->link;
	int rc = 0, moved = KO_EAGAIN;

	while (rc == 0 && end->unposted) {
		struct ko_transfer *t = end->unposted;

		rc = send_slot(run, end, t);
		if (rc == 0 && t->moved == t->bytes)
			end->unposted = t->next;
		if (rc == 0)
			moved = 0;
	}
	if (rc == 0)
		rc = link->ops->drain(link);
	else
		link->ops->progress(link);
	if (rc)
		return rc < 0 ? rc : moved;
	for (; end->first; end->first = end->first->next)
		run->comm->lanes->sent += end->first->bytes;
	return 0;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Receives the first slot of a message. */
static int begin(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t,
		 const struct ko_slot *in)
{
	size_t bytes = with_head(end->far, t);
	struct head head = { 0 };

	if (take_leave(end->far, in))
		return KO_EAGAIN;
	if (in->len >= sizeof(head))
		memcpy(&head, in->ptr, sizeof(head));
	if (in->tag != run->tag || head.n != t->n || head.type != (uint32_t)t->type ||
	    in->len != sizeof(head) + bytes)
		return ko_lane_mismatch(run, t, in->tag, head.n, head.type);
	if (bytes)
		ko_copy_bytes(t->buffer, (const char *)in->ptr + sizeof(head), bytes);
	t->moved = bytes;
	t->stage = KO_STAGE_SLOTS;
	return 0;
}

static int go_on(struct ko_transfer *t, const struct ko_slot *in, size_t len)
{
	if (in->len != len)
		return ko_fail(KOLO_ESYS, "%zu bytes of a message came, and %zu were expected",
			       in->len, len);
	if (in->ptr != t->buffer + t->moved)
		ko_copy_bytes(t->buffer + t->moved, in->ptr, len);
	t->moved += len;
	return 0;
}

static int recv_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_link *link = end->far->link;
	size_t rest = t->bytes - t->moved, len = ko_min_size(rest, end->far->piece);
	bool begins = t->stage == KO_STAGE_WAITING;
	struct ko_slot in;
	int rc;

	link->alone = begins && t->bytes >= HEAD_ALONE;
	rc = link->ops->peek(link, begins ? NULL : t->buffer + t->moved,
			     begins ? sizeof(struct head) : len, &in);
	if (rc)
		return rc;
	rc = begins ? begin(run, end, t, &in) : go_on(t, &in, len);
	return rc ? rc : link->ops->release(link);
}

static int advance_recv(struct ko_run *run, struct ko_lane_end *end)
{
	int rc = 0, moved = KO_EAGAIN;

	while (rc == 0 && end->first) {
		struct ko_transfer *t = end->first;

		rc = recv_slot(run, end, t);
		if (rc == 0)
			moved = 0;
		if (rc < 0 || t->stage == KO_STAGE_WAITING || t->moved < t->bytes)
			continue;
		run->comm->lanes->received += t->bytes;
		end->first = t->next;
	}
	return rc < 0 ? rc : moved;
}

static int far_advance(struct ko_run *run, struct ko_lane_end *end, bool may_help)
{
	struct kolo_comm *c = run->comm;
	struct ko_far *far = end->far;
	int rc;

	(void)may_help;            /* for near lanes only */
	if (far->state == LEAVING) /* it was idle and is needed again */
		trim_now(c);
	rc = far->state == LEAVING ? KO_EAGAIN : join(c, end);
	if (rc == 0)
		rc = end->sends ? advance_send(run, end) : advance_recv(run, end);
	else if (far->state != APART)
		c->lanes->joining = true;
	if (rc < 0 && rc != KOLO_EMISMATCH)
		c->lanes->failed = end;
	return rc;
}

static int far_explain(struct ko_run *run, int code)
{
	const struct ko_waiter waiter = ko_run_waiter(run);
	struct ko_lane_end *end = run->comm->lanes->failed;
	char why[KO_TEXT];
	int rc;

	if (!end || !end->far->link)
		return code;
	ko_edge_fail(run->comm, end->far->link, end->peer, code);
	memcpy(why, kolo_last_error(), sizeof(why));
	rc = ko_wait_for_cause(&waiter, end->peer, end->peer, end->far->link->ops->name);
	return rc < 0 ? rc : ko_fail(code, "%s", why);
}

const struct ko_lane_ops ko_far_ops = {
	.open = far_open,
	.advance = far_advance,
	.explain = far_explain,
	.trim = far_trim,
	.memory = far_memory,
	.close = far_close,
};
