/* Makes a rank's two edges (ko_edges_connect): chooses the transport, opens both ends here and
 * joins them with the neighbours' ends. Also moves slots near one of two NUMA nodes
 * (ko_edges_settle). */
#include "comm/core/edges.h"

#include "comm/core/transports.h"
#include "comm/core/wait.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ko_edge_fail(const struct kolo_comm *c, const struct ko_link *link, int peer, int code)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];

	return ko_fail(code, "%s, on its edge %s %s: %s", ko_comm_name(c, c->rank, me),
		       link->role == KO_SEND ? "to" : "from", ko_comm_name(c, peer, them),
		       kolo_last_error());
}

static int send_address(struct kolo_comm *c, struct ko_link *link, int to)
{
	struct ko_msg msg = { .type = KO_MSG_ADDRESS, .value = (int)link->role };
	struct ko_address address;
	int rc = link->ops->address(link, &address);

	if (rc < 0)
		return ko_edge_fail(c, link, to, rc);
	memcpy(msg.bytes, address.bytes, sizeof(address.bytes));
	return ko_lifelines_send(c->lifelines, to, &msg, address.fd);
}

/* Receives the address of the end with role `theirs` at rank `from`. out->fd is the caller's. */
static int recv_address(struct kolo_comm *c, int from, enum ko_role theirs, int64_t deadline,
			struct ko_address *out)
{
	struct ko_msg msg;
	int rc = ko_lifelines_recv(c->lifelines, from, KO_MSG_ADDRESS, (int)theirs, deadline, &msg,
				   &out->fd);

	if (rc == 0)
		memcpy(out->bytes, msg.bytes, sizeof(out->bytes));
	return rc;
}

struct joining {
	struct kolo_comm *comm;
	struct ko_end *ends;
	int n;
	const struct ko_end *awaited, *failed; /* failed NULL: none */
};

static int join_end(struct joining *j, struct ko_end *end)
{
	int rc = end->joined ? 0 : end->link->ops->connect(end->link, &end->address);

	end->joined = rc == 0;
	if (rc >= 0)
		return 0;
	j->failed = end;
	return ko_edge_fail(j->comm, end->link, end->peer, rc);
}

static int try_joining(void *what)
{
	struct joining *j = what;
	int rc = 0;

	for (int k = 0; rc == 0 && k < j->n; k++)
		rc = join_end(j, &j->ends[k]);
	return rc < 0 || j->awaited->joined ? rc : KO_EAGAIN;
}

/* A link failed with `code`. The rank at its other end may have given up because of another one. */
static int find_cause(const struct ko_waiter *waiter, const struct ko_end *failed, int code)
{
	char why[KO_TEXT];
	int rc;

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	rc = ko_wait_for_cause(waiter, failed->peer, failed->peer, failed->link->ops->name);
	return rc < 0 ? rc : ko_fail(code, "%s", why);
}

int ko_edges_join(struct kolo_comm *c, struct ko_end *ends, int n)
{
	const struct ko_desc none = { 0 };
	const struct ko_waiter waiter = { .comm = c, .desc = &none };
	struct joining j = { .comm = c, .ends = ends, .n = n };
	int rc = 0;

	for (int k = 0; rc == 0 && k < n; k++) {
		j.awaited = &ends[k];
		rc = ko_wait_for(&waiter, ends[k].peer, ends[k].link->ops->name, KO_TRACE_ROOM,
				 try_joining, &j);
	}
	return j.failed ? find_cause(&waiter, j.failed, rc) : rc;
}

/* Sends both addresses first and then waits for the neighbours'. Receivers' addresses go before
 * senders': of two ranks each is the other's prev and next, and would mix them up otherwise. */
static int swap_addresses(struct kolo_comm *c, const struct ko_edges *e, int64_t deadline,
			  struct ko_end *to, struct ko_end *from)
{
	int rc;

	if ((rc = send_address(c, e->from, e->prev)) < 0 ||
	    (rc = send_address(c, e->to, e->next)) < 0 ||
	    (rc = recv_address(c, e->next, KO_RECV, deadline, &to->address)) < 0)
		return rc;
	return recv_address(c, e->prev, KO_SEND, deadline, &from->address);
}

int ko_edge_transport(const struct kolo_comm *c, int from, int to, const struct ko_link_ops **out)
{
	const struct ko_place *a = &c->table[from].place, *b = &c->table[to].place;
	const struct ko_entry *first = &c->table[0];
	bool hosts = !*first->transport && !ko_place_same(a, b);

	return ko_transport_choose(hosts ? first->net : first->transport, a, b, out);
}

int ko_edges_pair(const struct kolo_comm *c, const struct ko_edges *e)
{
	const struct ko_link_ops *ops = e->to->ops;
	int rc = e->next == e->prev && e->from->ops == ops && ops->pair
			 ? ops->pair(e->to, e->from, c->rank < e->next)
			 : 0;

	return rc < 0 ? ko_edge_fail(c, e->to, e->next, rc) : 0;
}

int ko_edges_make(struct kolo_comm *c, const struct ko_place *here, const struct ko_limits *limits,
		  struct ko_edges *e, int64_t deadline)
{
	const struct ko_link_ops *in, *out;
	struct ko_end ends[2];
	int rc;

	if ((rc = ko_edge_transport(c, e->prev, c->rank, &in)) < 0 ||
	    (rc = ko_edge_transport(c, c->rank, e->next, &out)) < 0 ||
	    (rc = ko_link_open(in, KO_RECV, here, limits, &e->from)) < 0 ||
	    (rc = ko_link_open(out, KO_SEND, here, limits, &e->to)) < 0)
		return rc;
	ends[0] = (struct ko_end){ .link = e->to, .peer = e->next, .address.fd = -1 };
	ends[1] = (struct ko_end){ .link = e->from, .peer = e->prev, .address.fd = -1 };
	rc = swap_addresses(c, e, deadline, &ends[0], &ends[1]);
	if (rc == 0)
		rc = ko_edges_join(c, ends, 2);
	if (rc == 0)
		rc = ko_edges_pair(c, e);
	for (int k = 0; k < 2; k++)
		if (ends[k].address.fd >= 0)
			close(ends[k].address.fd);
	return rc;
}

int ko_edges_connect(struct kolo_comm *c, int64_t deadline)
{
	struct ko_edges *e = &c->edges;
	const struct ko_link_ops *ops;

	e->next = ko_ring_next(&c->ring, c->rank);
	e->prev = ko_ring_prev(&c->ring, c->rank);
	if (c->nranks == 1)
		return *c->table[0].transport ? ko_edge_transport(c, 0, 0, &ops) : 0;
	return ko_edges_make(c, &c->table[c->rank].place, &c->agreed.limits, e, deadline);
}

/* ---- NUMA ------------------------------------------------------------------------------------ */

/* Do the two ends of the edge from `from` lie near different NUMA nodes, and can its slots be
 * moved? Every rank gets the same answer. */
static bool edge_differs(const struct kolo_comm *c, int from)
{
	int to = ko_ring_next(&c->ring, from);
	const struct ko_link_ops *ops;

	return ko_place_differ(&c->table[from].place, &c->table[to].place) &&
	       ko_edge_transport(c, from, to, &ops) == 0 && ops->settle;
}

bool ko_edges_differ(const struct kolo_comm *c)
{
	for (int r = 0; r < c->nranks; r++)
		if (edge_differs(c, r))
			return true;
	return false;
}

const char *ko_edges_slots_near(const struct kolo_comm *c)
{
	if (!ko_edges_differ(c))
		return "";
	return c->agreed.slots_near == KO_SEND ? "sender" : "receiver";
}

struct settling {
	struct kolo_comm *comm;
	enum ko_role near;
	bool next, prev; /* the slots of the link to next, or from prev, are settled */
};

static int settle_one(struct settling *s, struct ko_link *link, int peer, bool *done)
{
	int rc = *done ? 0 : link->ops->settle(link, s->near);

	*done = rc == 0;
	return rc < 0 ? ko_edge_fail(s->comm, link, peer, rc) : 0;
}

static int try_settling(void *what)
{
	struct settling *s = what;
	const struct ko_edges *e = &s->comm->edges;
	int rc;

	if ((rc = settle_one(s, e->to, e->next, &s->next)) < 0 ||
	    (rc = settle_one(s, e->from, e->prev, &s->prev)) < 0)
		return rc;
	return s->next && s->prev ? 0 : KO_EAGAIN;
}

int ko_edges_settle(struct ko_run *run, enum ko_role near)
{
	struct kolo_comm *c = run->comm;
	const struct ko_edges *e = &c->edges;
	struct settling s = { .comm = c,
			      .near = near,
			      .next = !edge_differs(c, c->rank),
			      .prev = !edge_differs(c, e->prev) };

	return ko_wait(run, e->next, e->to->ops->name, KO_TRACE_ROOM, try_settling, &s);
}
