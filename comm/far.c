/* See far.h. A message is a slot with its head, and behind that, where it is short, the message itself; where it is not,
 * slots with nothing but the message, so that transports that can send and receive in place do. */
#include "far.h"

#include "clock.h"
#include "edges.h"
#include "transfer.h"
#include "watch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SLOT_LEN = 64 << 10,
	NSLOTS = 4,
	AGAIN_MS = 20, /* between two calls that are not answered */
	LISTEN_MS = 1, /* between looks for calls, while there is nothing to join */
};

static const struct ko_limits limits = { .slot_len = SLOT_LEN, .nslots = NSLOTS };

enum state {
	APART,
	CALLING, /* there is a connection, and the other end's address is not known yet, */
	JOINING, /* and now it is */
	JOINED,
	LEAVING, /* the sender has said that nothing more comes */
};

struct ko_far {
	enum state state;
	struct ko_link *link; /* from CALLING on; of a receiver from JOINING on */
	int call; /* where the ends tell each other their addresses, -1: nowhere. JOINED: of the next link */
	struct ko_address peer; /* its fd is owned */
	int64_t called_ms;      /* when, last */
};

struct head {
	uint64_t n;
	uint32_t type; /* enum kolo_type */
	uint32_t over; /* 1: this is no message; the sender closes the lane */
};

/* ---- Opening and closing -------------------------------------------------------------------------------- */

int ko_far_open(struct ko_lane_end *end)
{
	end->far = malloc(sizeof(*end->far));
	if (!end->far)
		return ko_fail(KOLO_ENOMEM, "no memory for a lane to or from rank %d", end->peer);
	*end->far = (struct ko_far){ .call = -1, .peer.fd = -1 };
	return 0;
}

static void end_call(struct ko_far *far)
{
	if (far->call >= 0)
		close(far->call);
	if (far->peer.fd >= 0)
		close(far->peer.fd);
	far->call = far->peer.fd = -1;
}

static void close_link(struct ko_far *far, bool obsolete)
{
	if (far->link) {
		far->link->obsolete = obsolete;
		far->link->ops->close(far->link);
	}
	far->link = NULL;
	far->state = APART;
}

void ko_far_close_all(struct kolo_comm *c, bool failed)
{
	for (int k = 0; c->lanes.ends && k < 2 * c->nranks; k++) {
		struct ko_far *far = c->lanes.ends[k].far;

		if (!far)
			continue;
		end_call(far);
		close_link(far, failed);
		free(far);
		c->lanes.ends[k].far = NULL;
	}
}

size_t ko_far_memory(const struct kolo_comm *c)
{
	size_t bytes = 0;

	for (int k = 0; c->lanes.ends && k < 2 * c->nranks; k++)
		if (c->lanes.ends[k].far && c->lanes.ends[k].far->link)
			bytes += c->lanes.ends[k].far->link->memory;
	return bytes;
}

/* ---- Joining -------------------------------------------------------------------------------------------- */

/* This end of the link, whose address the other one is told. */
static int open_link(struct kolo_comm *c, struct ko_lane_end *end)
{
	const struct ko_place *here = &c->table[c->rank].place;
	int from = end->sends ? c->rank : end->peer, to = end->sends ? end->peer : c->rank;
	struct ko_msg msg = { .type = KO_MSG_ADDRESS, .value = end->sends ? KO_SEND : KO_RECV };
	struct ko_far *far = end->far;
	const struct ko_link_ops *ops;
	struct ko_address address;
	int rc = ko_edge_transport(c, from, to, &ops);

	if (rc == 0)
		rc = ops->open(end->sends ? KO_SEND : KO_RECV, here, &limits, &far->link);
	if (rc < 0)
		return rc;
	if ((rc = ops->address(far->link, &address)) < 0)
		return rc;
	memcpy(msg.bytes, address.bytes, sizeof(address.bytes));
	ko_msg_send(far->call, &msg, address.fd); /* who is gone says so when it is heard */
	return 0;
}

/* The other end's address. KO_EAGAIN: not yet, or the connection is gone: the sender calls again. */
static int hear_address(struct ko_lane_end *end)
{
	struct ko_far *far = end->far;
	struct ko_msg msg;
	int fd;

	if (!ko_msg_has_come(far->call))
		return KO_EAGAIN;
	if (ko_msg_recv(far->call, &msg, &fd) == KO_HEARD_MSG && msg.type == KO_MSG_ADDRESS &&
	    msg.value == (end->sends ? KO_RECV : KO_SEND)) {
		memcpy(far->peer.bytes, msg.bytes, sizeof(far->peer.bytes));
		far->peer.fd = fd;
		far->state = JOINING;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	end_call(far);
	close_link(far, true);
	return KO_EAGAIN;
}

static int call(struct kolo_comm *c, struct ko_lane_end *end)
{
	struct ko_far *far = end->far;
	int64_t now = ko_now_ms();
	int rc;

	if (now - far->called_ms < AGAIN_MS)
		return KO_EAGAIN;
	far->called_ms = now;
	rc = ko_lifelines_call(c->lifelines, end->peer, &far->call);
	if (rc == 0)
		rc = open_link(c, end);
	if (rc == 0)
		far->state = CALLING;
	return rc;
}

/* The next step of the end towards the other one, 0, KO_EAGAIN, or an error; from JOINED on there is none. */
static int step(struct kolo_comm *c, struct ko_lane_end *end)
{
	struct ko_far *far = end->far;
	int rc;

	switch (far->state) {
	case APART: return end->sends ? call(c, end) : KO_EAGAIN;
	case CALLING: rc = hear_address(end); return rc == 0 && !end->sends ? open_link(c, end) : rc;
	default:
		rc = far->link->ops->connect(far->link, &far->peer);
		if (rc == 0) {
			far->state = JOINED;
			end_call(far);
		}
		return rc;
	}
}

static int join(struct kolo_comm *c, struct ko_lane_end *end)
{
	int rc = 0;

	while (rc == 0 && end->far->state < JOINED)
		rc = step(c, end);
	if (rc < 0)
		c->lanes.failed = end;
	return rc;
}

/* ---- Listening ------------------------------------------------------------------------------------------ */

/* A sender that calls again has given up the call before, or closed its lane, of which there may still be something to
 * read. */
static int answer(struct kolo_comm *c, int rank, int fd)
{
	struct ko_lane_end *end;
	int rc = rank == c->rank ? KO_EAGAIN : ko_lane_find(c, rank, false, &end);

	if (rc) {
		close(fd);
		return rc < 0 ? rc : 0;
	}
	end_call(end->far);
	if (end->far->state != JOINED) {
		close_link(end->far, true);
		end->far->state = CALLING;
	}
	end->far->call = fd;
	return 0;
}

/* The sender has closed the lane, and may have called again. */
static void take_leave(struct ko_far *far)
{
	close_link(far, true);
	if (far->call >= 0)
		far->state = CALLING;
}

static struct head head_of(const struct ko_slot *in)
{
	struct head head = { 0 };

	if (in->len >= sizeof(head))
		memcpy(&head, in->ptr, sizeof(head));
	return head;
}

/* A sender that calls again has closed its lane. */
static void look_for_leave(struct ko_far *far)
{
	struct ko_slot in;

	if (far->link->ops->peek(far->link, &in) == 0 && head_of(&in).over)
		take_leave(far);
}

static int listen_now(struct kolo_comm *c)
{
	int rc = ko_lifelines_listen_for_calls(c->lifelines), rank, fd;

	while (rc == 0 && (fd = ko_lifelines_answer(c->lifelines, &rank)) >= 0)
		rc = answer(c, rank, fd);
	c->lanes.joining = false;
	for (int r = 0; rc == 0 && c->lanes.ends && r < c->nranks; r++) {
		struct ko_lane_end *end = &c->lanes.ends[c->nranks + r];

		if (!end->far || end->far->call < 0)
			continue;
		if (end->far->state == JOINED && !end->first)
			look_for_leave(end->far);
		rc = join(c, end);
		c->lanes.joining = c->lanes.joining || rc == KO_EAGAIN;
		rc = rc < 0 ? rc : 0;
	}
	return rc;
}

int ko_far_listen(struct kolo_comm *c)
{
	int64_t now = ko_now_ms();

	if (!c->lanes.joining && now - c->lanes.listened_ms < LISTEN_MS)
		return 0;
	c->lanes.listened_ms = now;
	return listen_now(c);
}

/* ---- Sending -------------------------------------------------------------------------------------------- */

/* A short message goes in one piece with its head. */
static bool is_short(const struct ko_transfer *t)
{
	return t->bytes < KO_LENT_MIN;
}

static int send_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	const struct head head = { .n = t->n, .type = (uint32_t)t->type };
	struct ko_link *link = end->far->link;
	size_t rest = t->bytes - t->moved;
	struct ko_slot slot;
	int rc = link->ops->acquire(link, &slot);

	if (rc)
		return rc;
	slot.tag = run->tag;
	if (t->stage == KO_STAGE_WAITING) {
		t->stage = KO_STAGE_SLOTS;
		memcpy(slot.ptr, &head, sizeof(head));
		if (is_short(t) && rest)
			memcpy((char *)slot.ptr + sizeof(head), t->buffer, rest);
		t->moved = is_short(t) ? rest : 0;
		slot.len = sizeof(head) + t->moved;
	} else {
		slot.len = rest < SLOT_LEN ? rest : SLOT_LEN;
		if (ko_link_takes(link, t->buffer + t->moved, slot.len))
			slot.ptr = t->buffer + t->moved;
		else
			memcpy(slot.ptr, t->buffer + t->moved, slot.len);
		t->moved += slot.len;
	}
	return link->ops->commit(link, &slot);
}

/* All of them are done when the link needs no memory of theirs any more, nor another call. */
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
		run->comm->lanes.sent += end->first->bytes;
	return 0;
}

/* ---- Receiving ------------------------------------------------------------------------------------------ */

/* What has come is the beginning of a message. */
static int begin(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t, const struct ko_slot *in)
{
	const struct head head = head_of(in);
	size_t bytes = is_short(t) ? t->bytes : 0;

	if (head.over) {
		take_leave(end->far);
		return KO_EAGAIN;
	}
	if (in->tag != run->tag || head.n != t->n || head.type != (uint32_t)t->type ||
	    in->len != sizeof(head) + bytes)
		return ko_transfer_mismatch(run, t, in->tag, head.n, head.type);
	if (bytes)
		memcpy(t->buffer, (const char *)in->ptr + sizeof(head), bytes);
	t->moved = bytes;
	t->stage = KO_STAGE_SLOTS;
	return 0;
}

static int go_on(struct ko_transfer *t, const struct ko_slot *in, size_t len)
{
	if (in->len != len)
		return ko_fail(KOLO_ESYS, "%zu bytes came where %zu were due", in->len, len);
	if (in->ptr != t->buffer + t->moved)
		memcpy(t->buffer + t->moved, in->ptr, len);
	t->moved += len;
	return 0;
}

static int recv_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_link *link = end->far->link;
	size_t rest = t->bytes - t->moved, len = rest < SLOT_LEN ? rest : SLOT_LEN;
	bool begins = t->stage == KO_STAGE_WAITING;
	struct ko_slot in;
	int rc;

	link->into = begins ? NULL : t->buffer + t->moved;
	link->into_len = len;
	rc = link->ops->peek(link, &in);
	link->into = NULL;
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
		run->comm->lanes.received += t->bytes;
		end->first = t->next;
	}
	return rc < 0 ? rc : moved;
}

int ko_far_advance(struct ko_run *run, struct ko_lane_end *end)
{
	struct kolo_comm *c = run->comm;
	struct ko_far *far = end->far;
	int rc;

	if (far->state == LEAVING) /* it was idle, and is needed again */
		ko_far_trim(c);
	rc = far->state == LEAVING ? KO_EAGAIN : join(c, end);
	if (rc) {
		c->lanes.joining = true;
		return rc;
	}
	rc = end->sends ? advance_send(run, end) : advance_recv(run, end);
	if (rc < 0 && rc != KOLO_EMISMATCH)
		c->lanes.failed = end;
	return rc;
}

int ko_far_explain(struct ko_run *run, int code)
{
	struct ko_lane_end *end = run->comm->lanes.failed;
	char why[KO_TEXT];
	int rc;

	if (!end || !end->far->link)
		return code;
	ko_edge_fail(run->comm, end->far->link, end->peer, code);
	memcpy(why, kolo_last_error(), sizeof(why));
	rc = ko_watch_for_cause(run, end->peer, end->peer, end->far->link->ops->name);
	return rc < 0 ? rc : ko_fail(code, "%s", why);
}

/* ---- Idle lanes ----------------------------------------------------------------------------------------- */

/* The idle end to send through that was not used for longest; *count: all that are open. */
static struct ko_lane_end *find_idle(const struct kolo_comm *c, int *count)
{
	struct ko_lane_end *idle = NULL;

	*count = 0;
	for (int r = 0; r < c->nranks; r++) {
		struct ko_lane_end *end = &c->lanes.ends[r];

		if (!end->far || end->far->state != JOINED)
			continue;
		++*count;
		if (!end->first && (!idle || end->used < idle->used))
			idle = end;
	}
	return idle;
}

/* False: its receiver has not read what it has. */
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

void ko_far_trim(struct kolo_comm *c)
{
	struct ko_lane_end *idle;
	int count;

	while ((idle = find_idle(c, &count)) && count > KO_FAR_KEPT && say_over(idle))
		;
	for (int r = 0; r < c->nranks; r++) {
		struct ko_far *far = c->lanes.ends[r].far;

		if (far && far->state == LEAVING && far->link->ops->drain(far->link) != KO_EAGAIN)
			close_link(far, false);
	}
}
