/* Making and ending communicators. Making one is: say who I am (boot.c; split.c has another way), connect the
 * lifelines, map the roster, connect the two links (edges.c). What must be equal on all ranks is taken from rank 0's
 * entry in the table. */
#include "call.h"
#include "edges.h"
#include "far.h"
#include "pairs.h"
#include "shortcuts.h"

#include "error.h"
#include "shmem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRACE_MS = 2000 }; /* between rank 0's deadline for the roster and that of those who wait for it */

/* ---- Making --------------------------------------------------------------------------------------------- */

static size_t whole_pages(size_t len)
{
	enum { PAGE = 4096 };

	return (len + PAGE - 1) / PAGE * PAGE;
}

int ko_comm_start(int timeout_ms, const struct ko_log *log, const struct ko_roster *parent,
		  struct ko_entry *mine, struct kolo_comm **out)
{
	struct kolo_comm *c = calloc(1, sizeof(*c));
	int rank = mine->rank, nranks = mine->nranks, rc;

	*out = NULL;
	if (!c)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for a communicator", rank);
	c->rank = rank;
	c->nranks = c->ring.nranks = nranks;
	c->timeout_ms = timeout_ms;
	c->parent = parent;
	c->shared_len = whole_pages(ko_roster_len(nranks) + ko_board_len(nranks));
	c->lanes.fd = -1;
	c->log = *log;
	c->log.rank = rank;
	mine->pid = getpid();
	ko_place_get(&mine->place);
	c->table = calloc((size_t)nranks, sizeof(*c->table));
	c->firsts = calloc((size_t)nranks + 1, sizeof(*c->firsts));
	c->scratch = malloc(KO_SCRATCH);
	c->known = calloc(KO_NKINDS, sizeof(*c->known));
	c->order = ko_order_create();
	if (!c->table || !c->firsts || !c->scratch || !c->known || !c->order)
		rc = ko_fail(KOLO_ENOMEM, "rank %d: no memory for a table of %d ranks", rank, nranks);
	else
		rc = ko_lifelines_open(rank, nranks, &c->log, parent, mine, &c->lifelines);
	if (rc < 0) {
		kolo_comm_destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

/* Rank 0 makes the shared memory, lanes included, and hands it to everyone. */
static int share_roster(struct kolo_comm *c, int64_t deadline)
{
	uint64_t len = c->shared_len + ko_lanes_len(c->nranks);
	struct ko_msg msg = { .type = KO_MSG_ROSTER };
	void *memory = NULL;
	int rc;

	if (c->rank == 0) {
		rc = ko_shmem_create(len, c->shared_len, true, &c->lanes.fd, &memory);
		for (int r = 1; rc == 0 && r < c->nranks; r++)
			rc = ko_lifelines_send(c->lifelines, r, &msg, c->lanes.fd);
	} else {
		/* When another rank keeps rank 0 waiting, rank 0 knows which: let it say so first. */
		int64_t later = deadline == INT64_MAX ? deadline : deadline + GRACE_MS;

		rc = ko_lifelines_recv(c->lifelines, 0, KO_MSG_ROSTER, 0, later, &msg, &c->lanes.fd);
		if (rc == 0)
			rc = ko_shmem_map(c->lanes.fd, len, c->shared_len, true, &memory);
	}
	c->roster = memory;
	if (memory)
		c->board = ko_board_view((char *)memory + ko_roster_len(c->nranks), c->nranks);
	return rc;
}

/* Ranks of several hosts tell each other what they post (lifeline.h). */
static int make_own_roster(struct kolo_comm *c)
{
	void *memory;

	c->shared_len = whole_pages(ko_roster_len(c->nranks));
	memory = mmap(NULL, c->shared_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for what %d ranks post", c->rank, c->nranks);
	c->roster = memory;
	ko_lifelines_keep(c->lifelines, c->roster);
	return 0;
}

int ko_comm_connect(struct kolo_comm *c, int64_t deadline)
{
	int rc;

	c->limits = c->table[0].limits;
	for (int r = 1; r < c->nranks; r++)
		c->spread = c->spread || !ko_place_same(&c->table[0].place, &c->table[r].place);
	if ((rc = ko_ring_make(c->table, c->nranks, &c->ring)) < 0 ||
	    (rc = ko_lifelines_connect(c->lifelines, c->table, &c->ring, deadline)) < 0)
		return rc;
	if (!c->spread)
		return share_roster(c, deadline);
	c->while_waiting = ko_far_listen;
	return make_own_roster(c);
}

void ko_comm_give_up(struct kolo_comm *c, int code)
{
	char why[KO_TEXT];

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (c->roster)
		ko_roster_fail(c->roster, c->rank, code, why, false);
	ko_lifelines_close(c->lifelines, code, why);
	c->lifelines = NULL;
	kolo_comm_destroy(c);
	ko_fail(code, "%s", why);
}

/* ---- Ending --------------------------------------------------------------------------------------------- */

/* Closing may take long: whoever sees it knows that all was done. So does this rank of next, which may have left. */
static void close_links(struct kolo_comm *c)
{
	const struct ko_roster *roster = c->roster;
	int next = ko_ring_next(&c->ring, c->rank);
	bool failed = roster && ko_roster_cause(roster) < 0;

	if (c->spread && c->lifelines) {
		ko_lifelines_say(c->lifelines);
		ko_lifelines_look(c->lifelines);
	}
	ko_shortcuts_close(c->shortcuts, failed);
	ko_far_close_all(c, failed);
	if (c->to_next) {
		c->to_next->obsolete =
			failed || (roster && atomic_load_explicit(&roster->post[next].finished,
								  memory_order_acquire) >= c->seq);
		c->to_next->ops->close(c->to_next);
	}
	if (c->from_prev)
		c->from_prev->ops->close(c->from_prev);
}

void kolo_comm_destroy(struct kolo_comm *c)
{
	int code = 0;

	if (!c)
		return;
	if (c->order)
		ko_order_settle(c->order);
	kolo_queue_destroy(c->worker);
	if (c->attached)
		c->attached->close(c->attached);
	close_links(c);
	if (c->roster)
		code = ko_roster_cause(c->roster);
	ko_lifelines_close(c->lifelines, code, kolo_last_error());
	if (c->roster)
		munmap(c->roster, c->shared_len);
	ko_trace_close(c->trace);
	ko_ring_free(&c->ring);
	free(c->table);
	ko_windows_close(c);
	ko_lanes_close(c);
	free(c->transfers);
	free(c->firsts);
	free(c->scratch);
	free(c->known);
	free(c->premuls);
	ko_order_destroy(c->order);
	free(c);
}

int ko_comm_fail(struct kolo_comm *c, int code, const char *fmt, ...)
{
	bool later = ko_roster_complete(c->roster, c->rank);
	char text[KO_TEXT];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (ko_roster_fail(c->roster, c->rank, code, text, later)) {
		ko_log(&c->log, KOLO_LOG_ERROR, "%s", text);
		if (c->spread)
			ko_lifelines_fail(c->lifelines, code, text, later);
	}
	return ko_roster_cause(c->roster);
}

void kolo_comm_abort(struct kolo_comm *comm)
{
	char name[KO_RANK_TEXT];

	if (comm)
		ko_comm_fail(comm, KOLO_EABORTED, "%s called kolo_comm_abort",
			     ko_comm_name(comm, comm->rank, name));
}

int kolo_comm_status(struct kolo_comm *comm)
{
	return comm ? ko_roster_cause(comm->roster) : ko_fail(KOLO_EINVAL, "kolo_comm_status: comm is NULL");
}

/* ---- Asking --------------------------------------------------------------------------------------------- */

int kolo_comm_rank(const struct kolo_comm *comm)
{
	return comm->rank;
}

int kolo_comm_nranks(const struct kolo_comm *comm)
{
	return comm->nranks;
}

const char *ko_comm_name(const struct kolo_comm *c, int rank, char out[KO_RANK_TEXT])
{
	snprintf(out, KO_RANK_TEXT, "rank %d (pid %d on %s)", rank, c->table[rank].pid,
		 c->table[rank].place.host);
	return out;
}

static struct kolo_link_stats link_stats(const struct ko_link *link, int peer)
{
	struct kolo_link_stats s = { .peer = link ? peer : -1 };

	if (!link)
		return s;
	snprintf(s.transport, sizeof(s.transport), "%s", link->ops->name);
	s.bytes = link->bytes;
	s.slots = link->slots;
	if (link->role == KO_SEND) {
		snprintf(s.stores, sizeof(s.stores), "%s", ko_stores_name(link->stores));
		s.rate = link->bytes_per_ns;
	}
	return s;
}

int kolo_comm_stats(const struct kolo_comm *comm, struct kolo_stats *out)
{
	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_stats: comm and out must not be NULL");
	ko_order_settle(comm->order);
	*out = (struct kolo_stats){
		.ops = comm->ops[KO_RING] + comm->ops[KO_BOARD] + comm->ops[KO_DIRECT] +
		       comm->ops[KO_EXCHANGE] + comm->pair_ops,
		.pair_ops = comm->pair_ops,
		.ring_ops = comm->ops[KO_RING],
		.board_ops = comm->ops[KO_BOARD],
		.direct_ops = comm->ops[KO_DIRECT],
		.exchange_ops = comm->ops[KO_EXCHANGE],
		.model_sent_bytes = comm->model.sent,
		.model_received_bytes = comm->model.received,
		.slot_len = comm->limits.slot_len,
		.nslots = comm->limits.nslots,
		.hop_us = comm->costs.hop_ns / 1e3,
		.to_next = link_stats(comm->to_next, ko_ring_next(&comm->ring, comm->rank)),
		.from_prev = link_stats(comm->from_prev, ko_ring_prev(&comm->ring, comm->rank)),
	};
	snprintf(out->slots_near, sizeof(out->slots_near), "%s", ko_edges_slots_near(comm));
	snprintf(out->algorithm, sizeof(out->algorithm), "%s",
		 *comm->table[0].algorithm ? comm->table[0].algorithm : "best");
	out->sent_bytes = out->to_next.bytes + (comm->attached ? comm->attached->sent : 0) +
			  comm->board.sent + comm->direct.sent + comm->lanes.sent + ko_shortcuts_sent(comm);
	out->received_bytes = out->from_prev.bytes + (comm->attached ? comm->attached->received : 0) +
			      comm->board.received + comm->direct.received + comm->lanes.received +
			      ko_shortcuts_received(comm);
	out->memory_bytes = sizeof(*comm) + KO_SCRATCH + KO_NKINDS * sizeof(*comm->known) +
			    (size_t)comm->nranks * sizeof(*comm->table) +
			    (comm->from_prev ? comm->from_prev->memory + comm->to_next->memory : 0) +
			    comm->lanes.mapped * KO_LANE_HEAD +
			    comm->lanes.with_slots * (KO_LANE_LEN - KO_LANE_HEAD) +
			    ko_shortcuts_memory(comm) + ko_far_memory(comm) +
			    (comm->rank == 0 || comm->spread ? comm->shared_len : 0);
	return 0;
}

enum { MOST_ROWS = 6 };

/* A barrier, which has no bytes, goes one way always. */
static uint64_t all_of(int coll, uint64_t end)
{
	return coll == KO_BARRIER && end ? UINT64_MAX : end;
}

/* The rows of a collective, which are not empty. Returns how many there are. */
static int algorithm_rows(const struct ko_algorithms *t, int coll, struct kolo_algorithm rows[MOST_ROWS])
{
	const char *name = ko_coll_name(coll);
	uint64_t board = all_of(coll, t->board_end[coll]), exchange = all_of(coll, t->exchange_end[coll]);
	uint64_t read = t->read_begin[coll], ring_end = read == UINT64_MAX ? read : read - 1;
	int n = 0;

	exchange = exchange > board ? exchange : board;
	if (t->window_begin[coll] != UINT64_MAX)
		rows[n++] =
			(struct kolo_algorithm){ name, "direct", "alloc", t->window_begin[coll], UINT64_MAX };
	if (board)
		rows[n++] = (struct kolo_algorithm){ name, "board", "any", 0,
						     board == UINT64_MAX ? board : board - 1 };
	if (exchange > board)
		rows[n++] = (struct kolo_algorithm){ name, "exchange", "any", board,
						     exchange == UINT64_MAX ? exchange : exchange - 1 };
	if (exchange < read || exchange == 0)
		rows[n++] = (struct kolo_algorithm){ name, "ring", "any", exchange, ring_end };
	if (read != UINT64_MAX)
		rows[n++] = (struct kolo_algorithm){ name, "direct", "any", read, UINT64_MAX };
	return n;
}

/* Those of messages between two ranks, and of what is made of such when it is too large for the board. */
static int pair_rows(const struct kolo_comm *c, struct kolo_algorithm rows[MOST_ROWS])
{
	const struct ko_algorithms *t = &c->algorithms;
	uint64_t begin = t->offer_begin, window = t->offer_window_begin, board = ko_pairs_board_end(c);
	int n = 0;

	for (int coll = KO_ALL_TO_ALL; board && coll <= KO_SCATTER; coll++)
		rows[n++] = (struct kolo_algorithm){ ko_coll_name(coll), "board", "any", 0, board - 1 };
	if (window != UINT64_MAX)
		rows[n++] = (struct kolo_algorithm){ "send_recv", "direct", "alloc", window, UINT64_MAX };
	rows[n++] = (struct kolo_algorithm){ "send_recv", "lane", "any", 0,
					     begin == UINT64_MAX ? begin : begin - 1 };
	if (begin != UINT64_MAX)
		rows[n++] = (struct kolo_algorithm){ "send_recv", "direct", "any", begin, UINT64_MAX };
	return n;
}

int kolo_algorithm_get(const struct kolo_comm *comm, int index, struct kolo_algorithm *out)
{
	struct kolo_algorithm rows[MOST_ROWS];
	int at = 0, n;

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_algorithm_get: comm and out must not be NULL");
	for (int coll = 0; comm->nranks > 1 && coll <= KO_NCOLLS; coll++) {
		n = coll < KO_NCOLLS ? algorithm_rows(&comm->algorithms, coll, rows) : pair_rows(comm, rows);
		if (index >= at && index < at + n) {
			*out = rows[index - at];
			return 0;
		}
		at += n;
	}
	return ko_fail(KOLO_EINVAL, "kolo_algorithm_get: index %d: want 0 to %d", index, at - 1);
}

/* ---- Ops made at run time ------------------------------------------------------------------------------- */

const struct ko_reducer *ko_comm_premul(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type)
{
	long k = (long)op - KO_OP_FIRST;

	return k >= 0 && k < c->npremuls && c->premuls[k].type == (int)type ? &c->premuls[k].red : NULL;
}

int kolo_op_create_premul_sum(struct kolo_comm *comm, const void *scalar, enum kolo_type type,
			      enum kolo_op *out)
{
	struct ko_premul *more;
	int k = 0;

	if (!comm || !scalar || !out || !kolo_type_size(type))
		return ko_fail(KOLO_EINVAL,
			       "kolo_op_create_premul_sum: type %d: want one of enum kolo_type; comm, scalar "
			       "and out must not be NULL",
			       (int)type);
	while (k < comm->npremuls && comm->premuls[k].type >= 0)
		k++;
	if (k == comm->npremuls) {
		more = realloc(comm->premuls, ((size_t)k + 1) * sizeof(*more));
		if (!more)
			return ko_fail(KOLO_ENOMEM, "rank %d: no memory for an op", comm->rank);
		comm->premuls = more;
		comm->npremuls = k + 1;
	}
	comm->premuls[k] = (struct ko_premul){ .type = (int)type, .red = ko_reducer_premul(type, scalar) };
	*out = (enum kolo_op)(KO_OP_FIRST + k);
	return 0;
}

int kolo_op_destroy(struct kolo_comm *comm, enum kolo_op op)
{
	long k = (long)op - KO_OP_FIRST;

	if (!comm || k < 0 || k >= comm->npremuls || comm->premuls[k].type < 0)
		return ko_fail(KOLO_EINVAL,
			       "kolo_op_destroy: %d is no op made by kolo_op_create_premul_sum on this "
			       "communicator",
			       (int)op);
	comm->premuls[k].type = -1;
	return 0;
}
