/* Making and ending communicators. Making one is: say who I am (boot.c; split.c has another way), connect the
 * lifelines, map the roster, connect the two links. What must be equal on all ranks is taken from rank 0's entry in
 * the table. */
#include "comm.h"

#include "clock.h"
#include "env.h"
#include "error.h"
#include "job.h"
#include "shmem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRACE_MS = 2000 }; /* between rank 0's deadline for the roster and that of those who wait for it */

/* ---- What the caller wants ------------------------------------------------------------------------------ */

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

/* The slots that rank 0 will decide on, from the attributes or else the environment. */
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
		return ko_fail(KOLO_EINVAL, "slots of %lld bytes: want a multiple of 4096 up to 64 MiB",
			       (long long)slot_len);
	*out = (struct ko_limits){ .slot_len = (uint64_t)slot_len, .nslots = (uint32_t)nslots };
	return 0;
}

static int choose_timeout(const struct kolo_comm_attr *attr, int *out_ms)
{
	int64_t seconds = attr->timeout_s;

	if (seconds == 0 && ko_env_get(KO_ENV_TIMEOUT, &seconds) < 0)
		return KOLO_EINVAL;
	if (seconds > 1000000)
		return ko_fail(KOLO_EINVAL, "a timeout of %lld s: want at most 1000000, or -1 for never",
			       (long long)seconds);
	*out_ms = seconds < 0 ? 0 : (int)seconds * 1000;
	return 0;
}

static int check_attr(const struct kolo_comm_attr *attr)
{
	if (attr->nranks < 1 || attr->nranks > KO_MAX_RANKS || attr->rank < 0 || attr->rank >= attr->nranks)
		return ko_fail(KOLO_EINVAL, "kolo_comm_create: rank %d of %d: want 0 <= rank < nranks <= %d",
			       attr->rank, attr->nranks, KO_MAX_RANKS);
	for (size_t i = 0; i < sizeof(attr->reserved) / sizeof(attr->reserved[0]); i++)
		if (attr->reserved[i])
			return ko_fail(KOLO_EINVAL,
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
		return ko_fail(KOLO_EINVAL, "kolo_comm_create: log_level %d: want one of enum kolo_log_level",
			       (int)attr->log_level);
	return 0;
}

/* Who this rank is and where it meets the others: from the attributes, or else the environment. */
static int choose_job(struct kolo_comm_attr *attr, const struct ko_log *log, struct ko_meeting *meeting)
{
	if (!attr->id && attr->nranks == 0)
		return ko_job_read(&attr->rank, &attr->nranks, log, meeting);
	if (!attr->id)
		return ko_fail(KOLO_EINVAL,
			       "kolo_comm_create: attr->id is NULL; every rank needs the id that "
			       "kolo_id_create made");
	return ko_meeting_of_id(attr->id, meeting);
}

/* ---- Making --------------------------------------------------------------------------------------------- */

int ko_comm_start(int timeout_ms, const struct ko_log *log, const struct ko_roster *parent,
		  struct ko_entry *mine, struct kolo_comm **out)
{
	struct kolo_comm *c = calloc(1, sizeof(*c));
	int rank = mine->rank, nranks = mine->nranks, rc;

	*out = NULL;
	if (!c)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for a communicator", rank);
	c->rank = rank;
	c->nranks = nranks;
	c->timeout_ms = timeout_ms;
	c->log = *log;
	c->log.rank = rank;
	mine->pid = getpid();
	ko_place_get(&mine->place);
	c->table = calloc((size_t)nranks, sizeof(*c->table));
	if (!c->table)
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

/* Rank 0 makes the roster and hands it to everyone. */
static int share_roster(struct kolo_comm *c, int64_t deadline)
{
	size_t len = ko_roster_len(c->nranks);
	struct ko_msg msg = { .type = KO_MSG_ROSTER };
	void *memory = NULL;
	int fd = -1, rc;

	if (c->rank == 0) {
		rc = ko_shmem_create(len, &fd, &memory);
		for (int r = 1; rc == 0 && r < c->nranks; r++)
			rc = ko_lifelines_send(c->lifelines, r, &msg, fd);
	} else {
		/* When another rank keeps rank 0 waiting, rank 0 knows which: let it say so first. */
		int64_t later = deadline == INT64_MAX ? deadline : deadline + GRACE_MS;

		rc = ko_lifelines_recv(c->lifelines, 0, KO_MSG_ROSTER, 0, later, &msg, &fd);
		if (rc == 0)
			rc = ko_shmem_map(fd, len, &memory);
	}
	if (fd >= 0)
		close(fd);
	c->roster = memory;
	return rc;
}

static int send_address(struct kolo_comm *c, struct ko_link *link, int to)
{
	struct ko_msg msg = { .type = KO_MSG_ADDRESS, .value = (int)link->role };
	struct ko_address address;
	int rc = link->ops->address(link, &address);

	if (rc < 0)
		return rc;
	memcpy(msg.bytes, address.bytes, sizeof(address.bytes));
	return ko_lifelines_send(c->lifelines, to, &msg, address.fd);
}

/* Connects `link` to the end with role `theirs` at rank `from`. */
static int connect_end(struct kolo_comm *c, struct ko_link *link, int from, enum ko_role theirs,
		       int64_t deadline)
{
	struct ko_address address;
	struct ko_msg msg;
	int rc = ko_lifelines_recv(c->lifelines, from, KO_MSG_ADDRESS, (int)theirs, deadline, &msg,
				   &address.fd);

	if (rc < 0)
		return rc;
	memcpy(address.bytes, msg.bytes, sizeof(address.bytes));
	rc = link->ops->connect(link, &address);
	if (address.fd >= 0)
		close(address.fd);
	return rc;
}

/* Both links. Both ends of an edge send first and then wait, receivers' addresses before senders', so that two
 * ranks, who are each other's prev and next, don't mix them up. */
static int make_links(struct kolo_comm *c, int64_t deadline)
{
	int prev = ko_ring_prev(c->rank, c->nranks), next = ko_ring_next(c->rank, c->nranks);
	const struct ko_place *here = &c->table[c->rank].place;
	const struct ko_link_ops *in, *out;
	const char *name = c->table[0].transport;
	int rc;

	if (c->nranks == 1)
		return *name ? ko_link_choose(name, here, here, &in) : 0;
	if ((rc = ko_link_choose(name, &c->table[prev].place, here, &in)) < 0 ||
	    (rc = ko_link_choose(name, here, &c->table[next].place, &out)) < 0 ||
	    (rc = in->open(KO_RECV, &c->limits, &c->from_prev)) < 0 ||
	    (rc = out->open(KO_SEND, &c->limits, &c->to_next)) < 0 ||
	    (rc = send_address(c, c->from_prev, prev)) < 0 || (rc = send_address(c, c->to_next, next)) < 0 ||
	    (rc = connect_end(c, c->to_next, next, KO_RECV, deadline)) < 0)
		return rc;
	return connect_end(c, c->from_prev, prev, KO_SEND, deadline);
}

/* Lifelines and the roster reach the ranks of one machine. */
static int check_places(const struct kolo_comm *c)
{
	const struct ko_place *here = &c->table[c->rank].place;

	for (int r = 0; r < c->nranks; r++)
		if (strcmp(c->table[r].place.machine, here->machine) != 0)
			return ko_fail(
				KOLO_ENOTSUP,
				"rank %d is on %s, rank %d on %s; this version joins ranks of one host",
				c->rank, here->host, r, c->table[r].place.host);
	return 0;
}

/* What was agreed, and why. */
static void log_choices(const struct kolo_comm *c)
{
	char ring[KO_TEXT / 2] = "";

	for (int r = 0; c->rank == 0 && r < c->nranks; r++) {
		size_t at = strlen(ring);

		snprintf(ring + at, sizeof(ring) - at, "%d (%s, pid %d) -> ", r, c->table[r].place.host,
			 c->table[r].pid);
	}
	if (c->rank == 0)
		ko_log(&c->log, KOLO_LOG_INFO, "ring of %d: %s0", c->nranks, ring);
	if (c->to_next)
		ko_log(&c->log, KOLO_LOG_INFO,
		       "edge %d -> %d: %s (%s), %u slots of %llu bytes as rank 0 says; algorithm ring for all sizes, "
		       "the only one there is",
		       c->rank, ko_ring_next(c->rank, c->nranks), c->to_next->ops->name,
		       *c->table[0].transport ? "rank 0 asked for it"
					      : "the first in order that joins the two",
		       c->limits.nslots, (unsigned long long)c->limits.slot_len);
}

/* One file for the communicator: its name is made of what all ranks know. */
static void open_trace(struct kolo_comm *c)
{
	const struct ko_entry *first = &c->table[0], *mine = &c->table[c->rank];
	char name[128], who[160];

	/* A process may be rank 0 of several: its sockets' names tell them apart. */
	snprintf(name, sizeof(name), "kolo-%s-%d-%.*s", first->place.host, first->pid,
		 (int)first->socket_len - 1, first->socket + 1);
	snprintf(who, sizeof(who), "rank %d of %d (pid %d on %s)", c->rank, c->nranks, mine->pid,
		 mine->place.host);
	c->trace = ko_trace_open(name, who, &c->log);
}

int ko_comm_assemble(struct kolo_comm *c, int64_t deadline)
{
	const char *algorithm = c->table[0].algorithm;
	int rc;

	if (*algorithm && strcmp(algorithm, "ring") != 0)
		return ko_fail(KOLO_ENOTSUP, "no algorithm called '%.11s'; this build has: ring", algorithm);
	c->limits = c->table[0].limits;
	if ((rc = check_places(c)) < 0)
		return rc;
	rc = ko_lifelines_connect(c->lifelines, c->table, deadline);
	if (rc == 0)
		rc = share_roster(c, deadline);
	if (rc == 0)
		rc = make_links(c, deadline);
	if (rc == 0) {
		log_choices(c);
		open_trace(c);
		c->told = c->trace || ko_log_wants(&c->log, KOLO_LOG_TRACE);
	}
	return rc;
}

void ko_comm_give_up(struct kolo_comm *c, int code)
{
	char why[KO_TEXT];

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (c->roster)
		ko_roster_fail(c->roster, c->rank, code, why);
	ko_lifelines_close(c->lifelines, code, why);
	c->lifelines = NULL;
	kolo_comm_destroy(c);
	ko_fail(code, "%s", why);
}

int kolo_comm_create(const struct kolo_comm_attr *attr, struct kolo_comm **out)
{
	struct kolo_comm_attr job = { 0 };
	struct ko_entry mine = { 0 };
	struct kolo_comm *c = NULL;
	struct ko_meeting meeting;
	struct ko_log log;
	int64_t deadline;
	int rc, timeout_ms = 0;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_create: out is NULL");
	*out = NULL;
	if (attr)
		job = *attr;
	if ((rc = ko_log_check()) < 0 || (rc = ko_trace_check()) < 0 || (rc = choose_log(&job, &log)) < 0 ||
	    (rc = choose_job(&job, &log, &meeting)) < 0)
		return rc;
	mine.rank = job.rank;
	mine.nranks = job.nranks;
	if ((rc = check_attr(&job)) < 0 || (rc = choose_timeout(&job, &timeout_ms)) < 0 ||
	    (rc = choose_limits(&job, &mine.limits)) < 0 ||
	    (rc = check_name("transport", job.transport, mine.transport)) < 0 ||
	    (rc = check_name("algorithm", job.algorithm, mine.algorithm)) < 0 ||
	    (rc = ko_comm_start(timeout_ms, &log, NULL, &mine, &c)) < 0)
		return rc;
	rc = ko_boot_join(&meeting, &mine, timeout_ms, c->table);
	/* From here on: those who came last had the whole timeout to come. */
	deadline = timeout_ms ? ko_now_ms() + timeout_ms : INT64_MAX;
	if (rc == 0)
		rc = ko_comm_assemble(c, deadline);
	if (rc < 0) {
		ko_comm_give_up(c, rc);
		return rc;
	}
	*out = c;
	return 0;
}

/* ---- Ending --------------------------------------------------------------------------------------------- */

void kolo_comm_destroy(struct kolo_comm *c)
{
	int code = 0;

	if (!c)
		return;
	if (c->to_next)
		c->to_next->ops->close(c->to_next);
	if (c->from_prev)
		c->from_prev->ops->close(c->from_prev);
	if (c->roster) {
		code = ko_roster_cause(c->roster);
		munmap(c->roster, ko_roster_len(c->nranks));
	}
	ko_lifelines_close(c->lifelines, code, kolo_last_error());
	ko_trace_close(c->trace);
	free(c->table);
	free(c->premuls);
	free(c);
}

int ko_comm_fail(struct kolo_comm *c, int code, const char *fmt, ...)
{
	char text[KO_TEXT];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (ko_roster_fail(c->roster, c->rank, code, text))
		ko_log(&c->log, KOLO_LOG_ERROR, "%s", text);
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
	return s;
}

int kolo_comm_stats(const struct kolo_comm *comm, struct kolo_stats *out)
{
	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_comm_stats: comm and out must not be NULL");
	*out = (struct kolo_stats){
		.ops = comm->ops,
		.model_sent_bytes = comm->model.sent,
		.model_received_bytes = comm->model.received,
		.slot_len = comm->limits.slot_len,
		.nslots = comm->limits.nslots,
		.algorithm = "ring",
		.to_next = link_stats(comm->to_next, ko_ring_next(comm->rank, comm->nranks)),
		.from_prev = link_stats(comm->from_prev, ko_ring_prev(comm->rank, comm->nranks)),
	};
	out->sent_bytes = out->to_next.bytes;
	out->received_bytes = out->from_prev.bytes;
	out->memory_bytes = sizeof(*comm) + (size_t)comm->nranks * sizeof(*comm->table) +
			    (comm->from_prev ? comm->from_prev->memory : 0) +
			    (comm->rank == 0 ? ko_roster_len(comm->nranks) : 0);
	return 0;
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
