/* Makes a communicator (kolo_comm_create): what the caller wants; who the other ranks are
 * (comm/bootstrap/boot.c); the connections (open.c, comm/core/edges.c); what they can do (probe.c).
 * ko_comm_complete does the last two. What must be equal on all ranks is taken from rank 0's entry
 * in the table, or decided by rank 0. */
#include "comm/create/create.h"

#include "comm/base/clock.h"
#include "comm/base/env.h"
#include "comm/base/error.h"
#include "comm/bootstrap/launcher.h"
#include "comm/coll/algorithms.h"
#include "comm/core/edges.h"
#include "comm/core/transports.h"
#include "comm/create/joining.h"
#include "comm/create/probe.h"
#include "comm/memory/board.h"
#include "comm/p2p/lane.h"
#include "comm/rings/bruck.h"
#include "comm/rings/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What the caller wants ------------------------------------------------------------------- */

static int check_name(const char *what, const char *name, char out[KO_NAME])
{
	memset(out, 0, KO_NAME);
	if (!name)
		return 0;
	if (strlen(name) >= KO_NAME)
		return ko_fail(KOLO_ENOTSUP, "no %s called '%s'", what, name);
	memcpy(out, name, strlen(name));
	return 0;
}

/* This rank's wish for the links' slots, from the attributes or else the environment. Rank 0's wish
 * counts. */
static int choose_limits(const struct kolo_comm_attr *attr, struct ko_limits *out)
{
	int64_t nslots = attr->nslots, slot_len = (int64_t)attr->slot_len;

	if ((nslots == 0 && ko_env_get(KO_ENV_SLOTS, &nslots) < 0) ||
	    (slot_len == 0 && ko_env_get(KO_ENV_SLOT_LEN, &slot_len) < 0))
		return KOLO_EINVAL;
	if (nslots < 2 || nslots > KO_MAX_SLOTS)
		return ko_fail(KOLO_EINVAL, "%lld slots in a link: want 2 to %d", (long long)nslots,
			       KO_MAX_SLOTS);
	if (slot_len < KO_MIN_SLOT || slot_len > KO_MAX_SLOT || slot_len % KO_MIN_SLOT)
		return ko_fail(KOLO_EINVAL,
			       "slots of %lld bytes: want a multiple of 4096 up to 64 MiB",
			       (long long)slot_len);
	*out = (struct ko_limits){ .slot_len = (uint64_t)slot_len, .nslots = (uint32_t)nslots };
	if (attr->slot_len == 0 && !ko_env_is_set(KO_ENV_SLOT_LEN))
		out->slot_len = 0;
	return 0;
}

/* KOLO_SHAPE, or "". */
static const char *shape_of_env(void)
{
	const char *shape = getenv("KOLO_SHAPE");

	return shape ? shape : "";
}

/* This rank's wish for the order of additions. "": none, and no groups either. */
static int choose_order(const struct kolo_comm_attr *attr, char out[KO_NAME])
{
	const char *name = attr->order;
	enum ko_sums found;
	int rc = name ? 0 : ko_comm_order_of_env(&name);

	if (rc == 0 && !*name && (attr->group || *shape_of_env()))
		name = ko_sums_name(KO_SUMS_GRID);
	if (rc == 0)
		rc = check_name("order of additions", name, out);
	return rc == 0 && *out ? ko_sums_find(out, &found) : rc;
}

/* This rank's group: 1 + its number, or 0. The environment counts only for the order that has
 * groups: other communicators of the job may have another number of ranks. */
static int choose_group(const struct kolo_comm_attr *attr, const char *order, int32_t *out)
{
	const char *shape = shape_of_env();
	int group = 0, rc;

	if (attr->group > KO_MAX_RANKS)
		return ko_fail(KOLO_EINVAL, "group %llu: want 1 + a number below %d, or 0",
			       (unsigned long long)attr->group, KO_MAX_RANKS);
	*out = (int32_t)attr->group;
	if (*out || !*shape || strcmp(order, ko_sums_name(KO_SUMS_GRID)) != 0)
		return 0;
	rc = ko_shape_read(shape, attr->rank, attr->nranks, &group);
	*out = group + 1;
	return rc == 0 ? 0 : ko_fail(rc, "KOLO_SHAPE=%s: %s", shape, kolo_last_error());
}

static int choose_timeout(const struct kolo_comm_attr *attr, int *out_ms)
{
	int64_t seconds = attr->timeout_s;

	if (seconds == 0 && ko_env_get(KO_ENV_TIMEOUT, &seconds) < 0)
		return KOLO_EINVAL;
	return ko_timeout_check(seconds, out_ms);
}

static int check_attr(const struct kolo_comm_attr *attr)
{
	if (attr->nranks < 1 || attr->nranks > KO_MAX_RANKS || attr->rank < 0 ||
	    attr->rank >= attr->nranks)
		return ko_fail(KOLO_EINVAL,
			       "kolo_comm_create: rank %d of %d: want 0 <= rank < nranks <= %d",
			       attr->rank, attr->nranks, KO_MAX_RANKS);
	for (size_t i = 0; i < sizeof(attr->reserved) / sizeof(attr->reserved[0]); i++)
		if (attr->reserved[i])
			return ko_fail(
				KOLO_EINVAL,
				"kolo_comm_create: attr->reserved[%zu] is not zero; was the struct "
				"initialised?",
				i);
	return 0;
}

static int choose_log(const struct kolo_comm_attr *attr, struct ko_log *out)
{
	*out = (struct ko_log){ .fn = attr->log, .arg = attr->log_arg, .rank = -1 };
	out->fn_level = attr->log_level ? attr->log_level : KOLO_LOG_WARN;
	if ((int)attr->log_level < 0 || attr->log_level > KOLO_LOG_TRACE)
		return ko_fail(KOLO_EINVAL,
			       "kolo_comm_create: log_level %d: want one of enum kolo_log_level",
			       (int)attr->log_level);
	return 0;
}

/* Who this rank is and where it meets the others: from the attributes, or else the environment. */
static int choose_meeting(struct kolo_comm_attr *attr, const struct ko_log *log,
			  struct ko_meeting *meeting)
{
	if (!attr->id && attr->nranks == 0)
		return ko_launcher_read(&attr->rank, &attr->nranks, log, meeting);
	if (!attr->id)
		return ko_fail(KOLO_EINVAL,
			       "kolo_comm_create: attr->id is NULL; every rank needs the id that "
			       "kolo_id_create made");
	return ko_meeting_of_id(attr->id, meeting);
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Logs what was agreed, and why. */
static void log_choices(const struct kolo_comm *c)
{
	char ring[KO_TEXT / 2] = "";

	for (int k = 0; c->rank == 0 && k < c->nranks; k++) {
		size_t at = strlen(ring);
		int r = ko_ring_back(&c->ring, 0, -k);

		snprintf(ring + at, sizeof(ring) - at, "%d (%s, pid %d) -> ", r,
			 c->table[r].place.host, c->table[r].pid);
	}
	if (c->rank == 0)
		ko_log(&c->log, KOLO_LOG_INFO, "ring of %d: %s0", c->nranks, ring);
	if (c->edges.to)
		ko_log(&c->log, KOLO_LOG_INFO,
		       "edge %d -> %d: %s%s%s (%s), %u slots of %llu bytes as rank 0 says; %.1f GB/s with %s stores, "
		       "which measured best",
		       c->rank, ko_ring_next(&c->ring, c->rank), c->edges.to->ops->name,
		       *c->edges.to->through ? " through " : "", c->edges.to->through,
		       *c->table[0].transport ? "rank 0 asked for it"
					      : "the first in order that joins the two",
		       c->agreed.limits.nslots, (unsigned long long)c->agreed.limits.slot_len,
		       c->edges.to->bytes_per_ns, ko_stores_name(c->edges.to->writer.stores));
	if (c->rank == 0 && *ko_edges_slots_near(c))
		ko_log(&c->log, KOLO_LOG_INFO,
		       "slots between NUMA nodes lie near the %s, which measured better",
		       ko_edges_slots_near(c));
	if (c->rank == 0 && c->nranks > 1)
		ko_log(&c->log, KOLO_LOG_INFO,
		       "measured: a hop %.2f us (in a group %.2f, between leaders %.2f; 0: none), its bytes %.1f GB/s (in a group %.1f, of leaders by turns %.1f); a turn on the board %.2f us, long payloads %s at %.1f GB/s; reading another "
		       "rank's memory %.1f GB/s (0: not every rank may); all_reduce: board below %llu bytes, else ring; "
		       "but direct from %llu bytes on in memory of kolo_alloc, from %llu on in other memory",
		       c->agreed.costs.hop_ns / 1e3, c->agreed.costs.group_hop_ns / 1e3,
		       c->agreed.costs.rail_hop_ns / 1e3, c->agreed.costs.bytes_per_ns,
		       c->agreed.costs.group_bytes_per_ns, c->agreed.costs.lone_bytes_per_ns,
		       c->agreed.costs.turn_ns / 1e3, ko_board_way_name(c->agreed.costs.board_way),
		       c->agreed.costs.board_bytes_per_ns, c->agreed.costs.read_bytes_per_ns,
		       (unsigned long long)c->agreed.algorithms.any[KO_BOARD][KO_ALL_REDUCE].end,
		       (unsigned long long)c->agreed.algorithms.windows[KO_DIRECT][KO_ALL_REDUCE]
			       .begin,
		       (unsigned long long)c->agreed.algorithms.any[KO_DIRECT][KO_ALL_REDUCE]
			       .begin);
}

/* Opens the trace: one file for all ranks of a host. Its name is made of what they all know. */
static void open_trace(struct kolo_comm *c)
{
	const struct ko_entry *first = c->table, *mine = &c->table[c->rank];
	char name[128], who[160];

	while (!ko_place_same(&first->place, &mine->place))
		first++;
	/* A process may be rank 0 of several communicators. Their sockets have different names. */
	snprintf(name, sizeof(name), "kolo-%s-%d-%.*s", first->place.host, first->pid,
		 (int)first->socket_len - 1, first->socket + 1);
	snprintf(who, sizeof(who), "rank %d of %d (pid %d on %s)", c->rank, c->nranks, mine->pid,
		 mine->place.host);
	c->trace = ko_trace_open(name, who, &c->log);
}

/* How many ranks of this host there are for each processor. A wait spins when each can have one of
 * its own. */
static void find_share(struct kolo_comm *c)
{
	enum {
		SPINS = 100,  /* some microseconds, about as long as it takes to be woken */
		FAR_SPINS = 2 /* between hosts, where a try may be a system call, as a yield is */
	};
	uint64_t all[KO_CPU_WORDS] = { 0 };
	int cpus = 0;

	for (int r = 0; r < c->nranks; r++) {
		if (!ko_place_same(&c->table[r].place, &c->table[c->rank].place))
			continue;
		c->local_ranks++;
		for (int k = 0; k < KO_CPU_WORDS; k++)
			all[k] |= c->table[r].place.cpus[k];
	}
	for (int k = 0; k < KO_CPU_WORDS; k++)
		cpus += __builtin_popcountll(all[k]);
	/* No processors: they are not known */
	c->share = cpus && c->local_ranks > cpus ? (double)c->local_ranks / cpus : 1;
	c->most_spins = c->share > 1 ? 0 : c->local_ranks < c->nranks ? FAR_SPINS : SPINS;
}

/* The order of additions that rank 0 wants, and the shape if it has one. Without a wish it is the
 * grid where that makes more than one rail and more than one group of hosts, unless `forced`, the
 * algorithm that rank 0 named (NULL: none), can't do that. */
static int find_sums(struct kolo_comm *c, const struct ko_algorithm_ops *forced)
{
	const char *wish = c->table[0].order;
	bool can = !forced || forced->sums >> KO_SUMS_GRID & 1;
	int rc = *wish ? ko_sums_find(wish, &c->sums) : 0;

	if (rc == 0 && (*wish ? c->sums == KO_SUMS_GRID : can))
		rc = ko_boot_shape(c->table, c->nranks, &c->shape);
	if (*wish || (rc < 0 && rc != KOLO_ENOTSUP))
		return rc;
	if (c->shape.ngroups > 1 && c->shape.size > 1)
		c->sums = KO_SUMS_GRID;
	else
		ko_shape_free(&c->shape);
	return 0;
}

/* `forced` is the algorithm that rank 0 named; NULL: none. Some need memory that all ranks share,
 * and not all add in every order. */
static int check_algorithm(const struct kolo_comm *c, const struct ko_algorithm_ops *forced)
{
	if (forced && !(forced->sums >> c->sums & 1))
		return ko_fail(KOLO_ENOTSUP,
			       "rank %d: algorithm '%s' does not add in the order '%s'", c->rank,
			       forced->name, ko_sums_name(c->sums));
	if (!c->spread || !forced || forced->reach != KO_SHARED_MEMORY)
		return 0;
	return ko_fail(KOLO_ENOTSUP,
		       "rank %d: algorithm '%s' is for ranks of one host, and these are on several",
		       c->rank, forced->name);
}

/* Links of Bruck's all-gather are for exchanges alone. */
static int connect_bruck(struct kolo_comm *c, const struct ko_algorithm_ops *forced)
{
	return !forced || forced == ko_algorithm_table[KO_EXCHANGE] ? ko_bruck_connect(c) : 0;
}

int ko_comm_complete(struct kolo_comm *c, const struct kolo_comm *like, int64_t deadline)
{
	const struct ko_algorithm_ops *forced;
	int64_t lanes;
	int rc;

	if (ko_env_get(KO_ENV_LANES, &lanes) < 0)
		return KOLO_EINVAL;
	c->lanes->kept = (int)lanes;
	if ((rc = ko_algorithm_find(c->table[0].algorithm, &forced)) < 0 ||
	    (rc = find_sums(c, forced)) < 0)
		return rc;
	find_share(c);
	if ((rc = ko_comm_connect(c, deadline)) < 0 || (rc = check_algorithm(c, forced)) < 0 ||
	    (rc = ko_edges_connect(c, deadline)) < 0 || (rc = connect_bruck(c, forced)) < 0 ||
	    (rc = ko_rails_connect(c, deadline)) < 0 || (rc = ko_probe(c, like)) < 0)
		return rc;
	c->parent = NULL;
	ko_lifelines_made(c->lifelines);
	atomic_store_explicit(&c->roster->post[c->rank].complete, 1, memory_order_release);
	log_choices(c);
	open_trace(c);
	c->traced = c->trace || ko_log_wants(&c->log, KOLO_LOG_TRACE);
	return 0;
}

static int listen_for_hosts(void *lifelines, const union ko_net *here, struct ko_entry *mine)
{
	return ko_lifelines_listen(lifelines, here, mine);
}

/* *stop ends the waits when it becomes 1. */
static int create(const struct kolo_comm_attr *attr, const _Atomic int *stop,
		  struct kolo_comm **out)
{
	struct kolo_comm_attr wish = *attr;
	struct ko_progress progress = { wish.progress, wish.progress_arg, stop };
	struct ko_entry mine = { 0 };
	struct kolo_comm *c = NULL;
	struct ko_meeting meeting;
	struct ko_log log;
	const char *net;
	int64_t deadline;
	int rc, timeout_ms = 0;

	if ((rc = ko_log_check()) < 0 || (rc = ko_trace_check()) < 0 ||
	    (rc = choose_log(&wish, &log)) < 0 || (rc = choose_meeting(&wish, &log, &meeting)) < 0)
		return rc;
	mine.rank = wish.rank;
	mine.nranks = wish.nranks;
	if ((rc = check_attr(&wish)) < 0 || (rc = choose_timeout(&wish, &timeout_ms)) < 0 ||
	    (rc = choose_limits(&wish, &mine.limits)) < 0 ||
	    (rc = check_name("transport", wish.transport, mine.transport)) < 0 ||
	    (rc = check_name("algorithm", wish.algorithm, mine.algorithm)) < 0 ||
	    (rc = choose_order(&wish, mine.order)) < 0 ||
	    (rc = choose_group(&wish, mine.order, &mine.group)) < 0 ||
	    (rc = ko_transport_of_net(&net)) < 0 ||
	    (rc = check_name("transport", net, mine.net)) < 0 ||
	    (rc = ko_comm_start(timeout_ms, &log, progress, NULL, &mine, &c)) < 0)
		return rc;
	rc = ko_boot_join(&meeting, &mine, timeout_ms, &c->progress, listen_for_hosts, c->lifelines,
			  c->table);
	/* The deadline counts from here: the last rank had the whole timeout to come. */
	deadline = timeout_ms ? ko_now_ms() + timeout_ms : INT64_MAX;
	if (rc == 0)
		rc = ko_comm_complete(c, NULL, deadline);
	if (rc < 0) {
		ko_comm_give_up(c, rc);
		return rc;
	}
	c->progress.stop = NULL;
	*out = c;
	return 0;
}

int kolo_comm_create(const struct kolo_comm_attr *attr, struct kolo_comm **out)
{
	static const struct kolo_comm_attr nothing;
	struct ko_joining joining;
	int rc;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_create: out is NULL");
	*out = NULL;
	ko_joining_begin(&joining, attr ? attr->id : NULL);
	rc = create(attr ? attr : &nothing, &joining.stopped, out);
	ko_joining_end(&joining);
	return rc;
}
