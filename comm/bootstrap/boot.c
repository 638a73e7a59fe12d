/* Joins a meeting point (ko_boot_join), and makes the ring of the ranks that have joined
 * (ko_boot_ring). server.c is the serving side; wire.h has what both sides say. */
#include "comm/bootstrap/boot.h"

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/bootstrap/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GRACE_MS = 1000 }; /* ms in which the server's answer may still arrive */

/* The connection to the server. */
struct server {
	int fd;
	/* the process that made the id; -1: it can't be seen. Needed because a child of it may keep
	 * its socket open */
	int pidfd;
	int64_t deadline;
	const struct ko_meeting *m;
	int rank; /* this one's */
	const struct ko_progress *progress;
};

/* The server's name, for error texts. */
static const char *server_name(const struct ko_meeting *m)
{
	return m->by_rank_0 ? "rank 0" : "the process that made the id";
}

/* The connection has ended. */
static int fail_ended(const struct server *s)
{
	return ko_fail(
		KOLO_EPEER,
		"%s ended before all ranks had joined, or it did not accept this rank's secret",
		server_name(s->m));
}

/* Reads `len` bytes from the server. */
static int read_all(const struct server *s, void *to, size_t len)
{
	for (size_t at = 0; at < len;) {
		struct pollfd polls[2] = { { .fd = s->fd, .events = POLLIN },
					   { .fd = s->pidfd, .events = POLLIN } };
		ssize_t got = 0;

		if (ko_now_ms() > s->deadline)
			return ko_fail(KOLO_ETIMEDOUT, "%s does not answer at %s; is it stopped?",
				       server_name(s->m), s->m->what);
		if (ko_progress_stopped(s->progress))
			return ko_boot_stopped(s->rank);
		if (ko_progress_poll(s->progress, polls, 2, 100) <= 0)
			continue;
		if (polls[0].revents)
			got = recv(s->fd, (char *)to + at, len - at, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return fail_ended(s);
		at += (size_t)got;
	}
	return 0;
}

static int read_table(const struct server *s, struct ko_entry *table, int nranks)
{
	int rc = read_all(s, table, (size_t)nranks * sizeof(*table));

	for (int r = 0; rc == 0 && r < nranks; r++)
		if (!ko_boot_check(&table[r]) || table[r].rank != r || table[r].nranks != nranks)
			rc = ko_fail(KOLO_ESYS,
				     "%s sent a table of ranks in which row %d makes no sense",
				     server_name(s->m), r);
	return rc;
}

static int talk(const struct server *s, const struct ko_entry *mine, int timeout_ms,
		struct ko_entry *table)
{
	struct ko_boot_hello hello = { .magic = KO_BOOT_MAGIC,
				       .version = KO_BOOT_VERSION,
				       .size = sizeof(hello),
				       .timeout_ms = timeout_ms,
				       .entry = *mine };
	struct ko_boot_reply reply;
	int rc;

	memcpy(hello.secret, s->m->secret, sizeof(hello.secret));
	if (send(s->fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
		return fail_ended(s);
	rc = read_all(s, &reply, sizeof(reply));
	if (rc < 0)
		return rc;
	reply.text[sizeof(reply.text) - 1] = 0;
	if (reply.magic != KO_BOOT_MAGIC ||
	    memcmp(reply.proof, s->m->proof, sizeof(reply.proof)) != 0 || reply.code > 0)
		return ko_fail(KOLO_EUNREACH,
			       s->m->by_rank_0
				       ? "the process that answers at %s is not this job's rank 0"
				       : "the process that answers at %s did not make this id",
			       s->m->what);
	return reply.code < 0 ? ko_fail(reply.code, "%s", reply.text)
			      : read_table(s, table, mine->nranks);
}

/* Opens the process that made the id. *pidfd is -1 if that is this process, or it can't be seen. */
static int open_maker(const struct ko_meeting *m, int *pidfd)
{
	if (!m->pidns || m->pidns != ko_boot_pidns() || m->pid == getpid())
		return 0;
	*pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	if (*pidfd < 0 && errno == ESRCH)
		return ko_fail(
			KOLO_EPEER,
			"the process that made the id (pid %d) ended before all ranks had joined",
			m->pid);
	return 0;
}

/* Calls `reached` with the address from which this rank reached the server, if it is TCP. */
static int tell_address(const struct server *s, ko_boot_reached_fn *reached, void *arg,
			struct ko_entry *mine)
{
	union ko_net here = { 0 };
	socklen_t len = sizeof(here);

	if (*s->m->name || getsockname(s->fd, &here.any, &len) < 0)
		return 0;
	return reached(arg, &here, mine);
}

int ko_boot_join(const struct ko_meeting *m, struct ko_entry *mine, int timeout_ms,
		 const struct ko_progress *progress, ko_boot_reached_fn *reached, void *arg,
		 struct ko_entry *table)
{
	struct server s = { -1, -1, INT64_MAX, m, mine->rank, progress };
	int rc, listener;

	if (m->by_rank_0 && mine->rank == 0 &&
	    ((rc = ko_boot_listen(m, &listener)) < 0 || (rc = ko_boot_serve(m, listener)) < 0))
		return rc;
	if (timeout_ms)
		s.deadline = ko_now_ms() + timeout_ms;
	rc = open_maker(m, &s.pidfd);
	if (rc == 0)
		rc = ko_boot_dial(m, mine->rank, s.pidfd, s.deadline, progress, &s.fd);
	/* the server ends a wait that is too long and names the missing ranks; this deadline is
	 * later */
	if (timeout_ms)
		s.deadline = ko_now_ms() + timeout_ms + GRACE_MS;
	if (rc == 0)
		rc = tell_address(&s, reached, arg, mine);
	if (rc == 0)
		rc = talk(&s, mine, timeout_ms, table);
	if (s.fd >= 0)
		close(s.fd);
	if (s.pidfd >= 0)
		close(s.pidfd);
	return rc;
}

/* ---- Ring and shape -------------------------------------------------------------------------- */

/* Orders ranks by host, and by number within a host. */
static int by_machine(const void *a, const void *b)
{
	const struct ko_entry *x = *(const struct ko_entry *const *)a,
			      *y = *(const struct ko_entry *const *)b;
	int order = strcmp(x->place.machine, y->place.machine);

	return order ? order : x->rank - y->rank;
}

/* host[r] becomes the lowest rank on the host of rank r. */
static int find_hosts(const struct ko_entry *table, int nranks, int *host)
{
	const struct ko_entry **order = malloc((size_t)nranks * sizeof(*order));

	if (!order)
		return ko_fail(KOLO_ENOMEM, "no memory for the hosts of %d ranks", nranks);
	for (int r = 0; r < nranks; r++)
		order[r] = &table[r];
	qsort(order, (size_t)nranks, sizeof(*order), by_machine);
	for (int k = 0; k < nranks; k++) {
		bool same = k > 0 && ko_place_same(&order[k]->place, &order[k - 1]->place);

		host[order[k]->rank] = same ? host[order[k - 1]->rank] : order[k]->rank;
	}
	free(order);
	return 0;
}

static bool share_host(const struct ko_entry *table, int nranks)
{
	int r = 1;

	while (r < nranks && ko_place_same(&table[0].place, &table[r].place))
		r++;
	return r >= nranks;
}

int ko_boot_ring(const struct ko_entry *table, int nranks, struct ko_ring *out)
{
	int rc, *host;

	if (share_host(table, nranks))
		return ko_ring_make(NULL, nranks, out);
	host = malloc((size_t)nranks * sizeof(*host));
	rc = host ? find_hosts(table, nranks, host)
		  : ko_fail(KOLO_ENOMEM, "no memory for the hosts of %d ranks", nranks);
	if (rc == 0)
		rc = ko_ring_make(host, nranks, out);
	free(host);
	return rc;
}

/* The groups that ranks name, or else their hosts. */
static int find_groups(const struct ko_entry *table, int nranks, int *group)
{
	if (table[0].group == 0)
		return find_hosts(table, nranks, group);
	for (int r = 0; r < nranks; r++)
		group[r] = table[r].group;
	return 0;
}

int ko_boot_shape(const struct ko_entry *table, int nranks, struct ko_shape *out)
{
	int *group, rc;

	for (int r = 1; r < nranks; r++)
		if (!table[r].group != !table[0].group)
			return ko_fail(
				KOLO_EINVAL,
				"rank %d says to which group it belongs, and rank %d does not: "
				"KOLO_SHAPE and attr->group must be set on all ranks or none",
				table[r].group ? r : 0, table[r].group ? 0 : r);
	group = malloc((size_t)nranks * sizeof(*group));
	rc = group ? find_groups(table, nranks, group)
		   : ko_fail(KOLO_ENOMEM, "no memory for the groups of %d ranks", nranks);
	if (rc == 0)
		rc = ko_shape_make(group, nranks, out);
	free(group);
	return rc;
}
