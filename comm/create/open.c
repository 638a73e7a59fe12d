/* The first steps of making a communicator (ko_comm_start, ko_comm_connect), and its end
 * (ko_comm_give_up, kolo_comm_destroy). */
#include "comm/create/open.h"

#include "comm/base/env.h"
#include "comm/base/error.h"
#include "comm/base/fork.h"
#include "comm/core/call.h"
#include "comm/core/edges.h"
#include "comm/core/learn.h"
#include "comm/memory/board.h"
#include "comm/memory/cma.h"
#include "comm/memory/window.h"
#include "comm/p2p/far.h"
#include "comm/p2p/near.h"
#include "comm/rings/bruck.h"
#include "comm/rings/rails.h"
#include "comm/sys/shmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Making ---------------------------------------------------------------------------------- */

static size_t whole_pages(size_t len)
{
	enum { PAGE = 4096 };

	return (len + PAGE - 1) / PAGE * PAGE;
}

/* Where the board begins in the memory that the ranks share, behind roster and bells. */
static size_t board_at(int nranks)
{
	return whole_pages(ko_roster_len(nranks) + ko_bells_len(nranks));
}

/* A communicator and its parts, in one block. */
struct whole {
	struct kolo_comm comm;
	struct ko_board board;
	struct ko_windows windows;
	struct ko_readable readable;
	struct ko_lanes lanes;
	struct ko_tuning tuning;
	struct ko_known known[KO_NKINDS];
};

/* A communicator of zeroes that knows its parts. NULL: no memory. */
static struct kolo_comm *allocate(int nranks)
{
	struct whole *w = calloc(1, sizeof(*w));
	struct kolo_comm *c;

	if (!w)
		return NULL;
	c = &w->comm;
	c->generation = ko_generation;
	c->nranks = c->ring.nranks = nranks;
	c->board = &w->board;
	c->windows = &w->windows;
	c->readable = &w->readable;
	c->lanes = &w->lanes;
	c->tuning = &w->tuning;
	c->known = w->known;
	c->memory = sizeof(*w) + KO_SCRATCH + (size_t)nranks * sizeof(*c->table);
	w->lanes.fd = -1;
	w->lanes.ops = &ko_near_ops;
	return c;
}

int ko_comm_start(int timeout_ms, const struct ko_log *log, struct ko_progress progress,
		  const struct ko_roster *parent, struct ko_entry *mine, struct kolo_comm **out)
{
	struct kolo_comm *c = allocate(mine->nranks);
	int rank = mine->rank, nranks = mine->nranks, rc;
	bool paces = false;

	*out = NULL;
	if (!c)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for a communicator", rank);
	c->rank = rank;
	c->timeout_ms = timeout_ms;
	c->progress = progress;
	c->parent = parent;
	c->shared_len = whole_pages(board_at(nranks) + ko_board_len(nranks));
	c->log = *log;
	c->log.rank = rank;
	mine->pid = getpid();
	ko_place_get(&mine->place);
	mine->names_rails = ko_net_names_rails();
	c->table = calloc((size_t)nranks, sizeof(*c->table));
	c->firsts = calloc((size_t)nranks + 1, sizeof(*c->firsts));
	c->scratch = malloc(KO_SCRATCH);
	c->order = ko_order_create();
	if (!c->table || !c->firsts || !c->scratch || !c->order)
		rc = ko_fail(KOLO_ENOMEM, "rank %d: no memory for a table of %d ranks", rank,
			     nranks);
	else if ((rc = ko_net_paces(&paces)) == 0)
		rc = ko_lifelines_open(rank, nranks, &c->log, &c->progress, parent, mine,
				       &c->lifelines);
	mine->paces = paces;
	if (rc < 0) {
		kolo_comm_destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

/* Maps roster and board. Rank 0 makes the shared memory, with room for the lanes, and sends its
 * descriptor to all ranks. */
static int share_roster(struct kolo_comm *c, int64_t deadline)
{
	uint64_t len = c->shared_len + ko_lanes_len(c->nranks);
	struct ko_msg msg = { .type = KO_MSG_ROSTER };
	void *memory = NULL;
	int rc;

	if (c->rank == 0) {
		rc = ko_shmem_create(len, c->shared_len, false, &c->lanes->fd, &memory);
		for (int r = 1; rc == 0 && r < c->nranks; r++)
			rc = ko_lifelines_send(c->lifelines, r, &msg, c->lanes->fd);
	} else {
		rc = ko_lifelines_recv(c->lifelines, 0, KO_MSG_ROSTER, 0, deadline, &msg,
				       &c->lanes->fd);
		if (rc == 0)
			rc = ko_shmem_map(c->lanes->fd, len, c->shared_len, false, &memory);
	}
	if (rc == 0) /* the board takes memory where it is used */
		rc = ko_shmem_touch(memory, board_at(c->nranks));
	c->roster = memory;
	ko_lifelines_keep(c->lifelines, c->roster, false);
	if (!memory)
		return rc;
	c->bells = (struct ko_bells *)((char *)memory + ko_roster_len(c->nranks));
	*c->board = ko_board_view((char *)memory + board_at(c->nranks), c->nranks);
	return rc;
}

/* If the ranks are on several hosts, those of one share bells. They follow each other in the ring:
 * the first one makes the memory, and each passes its descriptor on to the next. */
static int share_bells(struct kolo_comm *c, int64_t deadline)
{
	int prev = ko_ring_prev(&c->ring, c->rank), next = ko_ring_next(&c->ring, c->rank);
	uint64_t len = whole_pages(ko_bells_len(c->nranks));
	struct ko_msg msg = { .type = KO_MSG_BELLS };
	void *memory = NULL;
	int fd = -1, rc;

	if (ko_comm_is_here(c, prev)) {
		rc = ko_lifelines_recv(c->lifelines, prev, KO_MSG_BELLS, 0, deadline, &msg, &fd);
		if (rc == 0)
			rc = ko_shmem_map(fd, len, len, true, &memory);
	} else {
		rc = ko_shmem_create(len, len, true, &fd, &memory);
		c->memory += len;
	}
	c->bells = memory;
	if (rc == 0 && ko_comm_is_here(c, next))
		rc = ko_lifelines_send(c->lifelines, next, &msg, fd);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* If the ranks are on several hosts each has a roster of its own, and sends what it posts over the
 * lifelines (comm/health/lifeline.h). */
static int make_own_roster(struct kolo_comm *c)
{
	void *memory;

	c->shared_len = whole_pages(ko_roster_len(c->nranks));
	memory = mmap(NULL, c->shared_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (memory == MAP_FAILED)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for the roster of %d ranks",
			       c->rank, c->nranks);
	c->roster = memory;
	ko_lifelines_keep(c->lifelines, c->roster, true);
	return 0;
}

static int connect_lifelines(struct kolo_comm *c, int64_t deadline)
{
	int neighbours[KO_LIFE_NEIGHBOURS] = { ko_ring_prev(&c->ring, c->rank),
					       ko_ring_next(&c->ring, c->rank) };
	int n = 2;

	if (c->shape.size) {
		int group = ko_shape_group(&c->shape, c->rank),
		    rail = ko_shape_rail(&c->shape, c->rank);

		neighbours[n++] = ko_shape_rank(&c->shape, group, rail - 1);
		neighbours[n++] = ko_shape_rank(&c->shape, group, rail + 1);
		neighbours[n++] = ko_shape_rank(&c->shape, group - 1, rail);
		neighbours[n++] = ko_shape_rank(&c->shape, group + 1, rail);
	}
	return ko_lifelines_connect(c->lifelines, c->table, neighbours, n, deadline);
}

/* Of the first pair of ranks on different hosts. If no transport joins them, they say so later. */
static size_t find_packet(const struct kolo_comm *c)
{
	const struct ko_link_ops *ops;

	for (int r = 1; r < c->nranks; r++)
		if (!ko_place_same(&c->table[0].place, &c->table[r].place))
			return ko_edge_transport(c, 0, r, &ops) == 0 ? ops->packet : 0;
	return 0;
}

static bool some_rank_paces(const struct kolo_comm *c)
{
	for (int r = 0; r < c->nranks; r++)
		if (c->table[r].paces)
			return true;
	return false;
}

/* Slots of more than two packets come late if there are waits between them. Links of a shape have
 * shorter ones anyway. */
static size_t choose_slot_len(const struct kolo_comm *c)
{
	size_t asked = c->table[0].limits.slot_len;

	if (asked)
		return asked;
	if (c->agreed.paced && !c->shape.size)
		return 2 * c->agreed.packet;
	return (size_t)ko_env_row(KO_ENV_SLOT_LEN)->preset;
}

int ko_comm_connect(struct kolo_comm *c, int64_t deadline)
{
	int rc;

	for (int r = 1; r < c->nranks; r++)
		c->spread = c->spread || !ko_place_same(&c->table[0].place, &c->table[r].place);
	c->agreed.packet = find_packet(c);
	c->agreed.paced = c->agreed.packet && some_rank_paces(c);
	c->agreed.slot_len = choose_slot_len(c);
	c->agreed.limits = c->table[0].limits;
	c->agreed.limits.slot_len = c->agreed.slot_len;
	if (c->shape.size)
		c->agreed.limits.slot_len = ko_rails_ring_slot(c);
	if ((rc = ko_boot_ring(c->table, c->nranks, &c->ring)) < 0 ||
	    (rc = connect_lifelines(c, deadline)) < 0)
		return rc;
	if (!c->spread)
		return share_roster(c, deadline);
	c->lanes->ops = &ko_far_ops;
	c->while_waiting = ko_far_listen;
	rc = make_own_roster(c);
	return rc < 0 ? rc : share_bells(c, deadline);
}

void ko_comm_give_up(struct kolo_comm *c, int code)
{
	char why[KO_TEXT];

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (c->roster)
		ko_roster_fail(c->roster, c->rank, code, why, false);
	ko_lifelines_give_up(c->lifelines, code, why);
	c->lifelines = NULL;
	kolo_comm_destroy(c);
	ko_fail(code, "%s", why);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Closes all links. The link to next need not wait for its last bytes if next has finished all
 * operations, or the communicator has failed. First, across hosts, both sides learn what the other
 * has finished. */
static void close_links(struct kolo_comm *c)
{
	const struct ko_roster *roster = c->roster;
	bool failed = roster && ko_roster_cause(roster) < 0;

	if (c->spread && c->lifelines) {
		ko_lifelines_say(c->lifelines);
		ko_lifelines_look(c->lifelines);
	}
	ko_bruck_close(c->bruck, failed);
	ko_rails_close(c->rails, failed);
	ko_lanes_close(c, failed);
	if (c->edges.to) {
		bool done = roster && atomic_load_explicit(&roster->post[c->edges.next].finished,
							   memory_order_acquire) >= c->sequence.seq;

		c->edges.to->ops->close(c->edges.to, failed || done);
	}
	if (c->edges.from)
		c->edges.from->ops->close(c->edges.from, failed);
}

void kolo_comm_destroy(struct kolo_comm *c)
{
	int code = 0;

	if (!c || c->generation != ko_generation)
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
	if (c->bells && c->spread)
		munmap(c->bells, whole_pages(ko_bells_len(c->nranks)));
	ko_trace_close(c->trace);
	ko_ring_free(&c->ring);
	ko_shape_free(&c->shape);
	free(c->table);
	ko_windows_close(c);
	free(c->firsts);
	free(c->scratch);
	free(c->ops);
	ko_order_destroy(c->order);
	free(c);
}
