/* What every file may ask of a communicator: its ranks and their names (ko_comm_name), and its
 * failure (ko_comm_fail). */
#include "comm/core/comm.h"

#include "comm/base/error.h"
#include "comm/base/fork.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Failing --------------------------------------------------------------------------------- */

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
	char name[KO_RANK_TEXT], why[KO_TEXT];

	/* A copy: it is the place that the new text goes to. */
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	if (comm && comm->generation == ko_generation)
		ko_comm_fail(comm, KOLO_EABORTED, "%s called kolo_comm_abort%s%s",
			     ko_comm_name(comm, comm->rank, name), *why ? ", after: " : "", why);
}

void kolo_comm_log(const struct kolo_comm *comm, enum kolo_log_level level, const char *line)
{
	if (comm && line && level >= KOLO_LOG_ERROR && level <= KOLO_LOG_TRACE)
		ko_log(&comm->log, level, "%s", line);
}

int kolo_comm_status(struct kolo_comm *comm)
{
	return comm ? ko_roster_cause(comm->roster)
		    : ko_fail(KOLO_EINVAL, "kolo_comm_status: comm is NULL");
}

int ko_timeout_check(int64_t seconds, int *out_ms)
{
	if (seconds > 1000000)
		return ko_fail(KOLO_EINVAL,
			       "a timeout of %lld s: want at most 1000000, or -1 for never",
			       (long long)seconds);
	*out_ms = seconds < 0 ? 0 : (int)seconds * 1000;
	return 0;
}

int kolo_timeout_set(struct kolo_comm *comm, int seconds)
{
	int rc, ms = 0;

	if (!comm || seconds == 0)
		return ko_fail(
			KOLO_EINVAL,
			"kolo_timeout_set: comm must not be NULL, and the timeout not 0: -1 for never");
	if ((rc = ko_timeout_check(seconds, &ms)) < 0)
		return rc;
	comm->timeout_ms = ms;
	return 0;
}

int ko_comm_check_process(const struct kolo_comm *c, const char *function)
{
	if (c->generation == ko_generation)
		return 0;
	return ko_fail(
		KOLO_EINVAL,
		"rank %d: %s: this process is a child of fork, and the communicator belongs to process %d, "
		"which made it; use it there, or make another one here",
		c->rank, function, c->table[c->rank].pid);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

int kolo_comm_rank(const struct kolo_comm *comm)
{
	return comm->rank;
}

int kolo_comm_nranks(const struct kolo_comm *comm)
{
	return comm->nranks;
}

int kolo_comm_local_ranks(const struct kolo_comm *comm)
{
	return comm->local_ranks;
}

const char *kolo_comm_order(const struct kolo_comm *comm)
{
	return ko_sums_name(comm->sums);
}

int kolo_comm_groups(const struct kolo_comm *comm)
{
	return comm->shape.ngroups;
}

int kolo_comm_group_rank(const struct kolo_comm *comm, int group, int number)
{
	const struct ko_shape *s = &comm->shape;

	return group >= 0 && group < s->ngroups && number >= 0 && number < s->size
		       ? ko_shape_rank(s, group, number)
		       : -1;
}

bool ko_comm_is_here(const struct kolo_comm *c, int rank)
{
	return ko_place_same(&c->table[rank].place, &c->table[c->rank].place);
}

const char *ko_comm_name(const struct kolo_comm *c, int rank, char out[KO_RANK_TEXT])
{
	snprintf(out, KO_RANK_TEXT, "rank %d (pid %d on %s)", rank, c->table[rank].pid,
		 c->table[rank].place.host);
	return out;
}

int ko_comm_order_of_env(const char **out)
{
	enum ko_sums found;

	*out = getenv("KOLO_ORDER");
	if (!*out)
		*out = "";
	return !**out || ko_sums_find(*out, &found) == 0
		       ? 0
		       : ko_fail(KOLO_EINVAL, "KOLO_ORDER=%s: %s", *out, kolo_last_error());
}
