/* Finds the server of a meeting point (ko_boot_dial). It tries all candidates at once, and again
 * and again, until one greets with the right tag. Candidates are all addresses of the host with all
 * ports that may be meant.
 *
 * So an interface is used if the server can be reached through it. A port of another program does
 * no harm. And rank 0 may start last. */
#include "comm/base/clock.h"
#include "comm/bootstrap/wire.h"
#include "comm/sys/net.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { AGAIN_MS = 50 }; /* ms between two tries */

struct candidate {
	union {
		union ko_net net;
		struct sockaddr_un name;
		struct sockaddr any;
	} to;
	socklen_t len;
	int fd, connected;
	int err;       /* errno of the last try; 0: none failed */
	int64_t since; /* ko_now_ms() when the last try began */
	size_t got;
	struct ko_boot_greeting greeting;
};

struct search {
	const struct ko_meeting *m;
	union ko_net from[KO_NET_MAX]; /* the addresses of KOLO_IFACE, `nfrom` of them */
	int nfrom;
	struct candidate *candidates;
	struct pollfd *polls; /* n + 1: the last one is for the process that made the id */
	int n;
	const struct ko_progress *progress;
};

static void hang_up(struct candidate *c, int err)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->connected = 0;
	c->got = 0;
	c->err = err;
}

/* If KOLO_IFACE is set, connections leave from its addresses. A candidate of a family that it lacks
 * is not tried. Returns an errno. */
static int leave_from(const struct search *s, const struct candidate *c)
{
	for (int i = 0; i < s->nfrom; i++)
		if (s->from[i].any.sa_family == c->to.any.sa_family)
			return bind(c->fd, &s->from[i].any, ko_net_len(&s->from[i])) < 0 ? errno
											 : 0;
	return s->nfrom && c->to.any.sa_family != AF_UNIX ? EAFNOSUPPORT : 0;
}

/* Checks that the socket of a named meeting point belongs to this user: anybody may take such a
 * name. */
static int check_user(const struct search *s, const struct candidate *c)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (c->to.any.sa_family != AF_UNIX ||
	    getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid == geteuid())
		return 0;
	return ko_fail(
		KOLO_EUNREACH,
		"the meeting point of %s (abstract socket @%s) is in use by process %d of user %d, not of "
		"this user; choose another meeting point for all ranks with KOLO_JOB or KOLO_ROOT",
		s->m->what, s->m->name, (int)cred.pid, (int)cred.uid);
}

/* Is the connection one to itself? If nobody serves a port of this host, connect may use that very
 * port as its own. */
static bool is_own_end(const struct candidate *c)
{
	union ko_net here, there;
	socklen_t here_len = sizeof(here), there_len = sizeof(there);

	return c->to.any.sa_family != AF_UNIX && getsockname(c->fd, &here.any, &here_len) == 0 &&
	       getpeername(c->fd, &there.any, &there_len) == 0 && ko_net_same(&here, &there) &&
	       ko_net_port(&here) == ko_net_port(&there);
}

static int take_connection(const struct search *s, struct candidate *c)
{
	const struct linger at_once = { .l_onoff = 1 };

	c->connected = 1;
	if (!is_own_end(c))
		return check_user(s, c);
	/* frees the port at once: it is rank 0's */
	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	hang_up(c, ECONNREFUSED);
	return 0;
}

static int begin(const struct search *s, struct candidate *c)
{
	int err;

	c->since = ko_now_ms();
	c->fd = socket(c->to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = c->fd < 0 ? errno : leave_from(s, c);
	if (err == 0 && connect(c->fd, &c->to.any, c->len) < 0)
		err = errno;
	if (err == EMFILE || err == ENFILE || err == ENOMEM)
		return ko_fail(KOLO_ESYS, "connecting to %s: %s", s->m->what, strerror(err));
	if (err == 0)
		return take_connection(s, c);
	if (err != EINPROGRESS && err != EINTR)
		hang_up(c, err);
	return 0;
}

/* The candidate's socket is ready. 1: it is the server; 0: not yet, or not this time; else an
 * error. */
static int look_at(const struct search *s, struct candidate *c)
{
	int err = 0, rc;
	socklen_t len = sizeof(err);
	ssize_t got;

	if (!c->connected) {
		if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err) {
			hang_up(c, err);
			return 0;
		}
		if ((rc = take_connection(s, c)) < 0 || c->fd < 0)
			return rc;
	}
	got = recv(c->fd, (char *)&c->greeting + c->got, sizeof(c->greeting) - c->got, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got <= 0) {
		hang_up(c, got < 0 ? errno : ECONNRESET);
		return 0;
	}
	c->got += (size_t)got;
	if (c->got < sizeof(c->greeting))
		return 0;
	if (c->greeting.magic == KO_BOOT_MAGIC && c->greeting.tag == s->m->tag)
		return 1;
	hang_up(c, EPROTO);
	return 0;
}

/* Starts new tries, waits up to AGAIN_MS, and looks at what has come. 1: *out is the connection to
 * the server; 0: not yet; else an error. */
static int try_all(const struct search *s, int maker, int *out)
{
	for (int i = 0; i < s->n; i++) {
		struct candidate *c = &s->candidates[i];
		int rc = c->fd < 0 && ko_now_ms() - c->since >= AGAIN_MS ? begin(s, c) : 0;

		if (rc < 0)
			return rc;
		s->polls[i].fd = c->fd;
		s->polls[i].events = c->connected ? POLLIN : POLLOUT;
	}
	s->polls[s->n] = (struct pollfd){ .fd = maker, .events = POLLIN };
	if (ko_progress_poll(s->progress, s->polls, (nfds_t)s->n + 1, AGAIN_MS) <= 0)
		return 0;
	for (int i = 0; i < s->n; i++) {
		struct candidate *c = &s->candidates[i];
		int rc = c->fd >= 0 && s->polls[i].revents ? look_at(s, c) : 0;

		if (rc > 0) {
			*out = c->fd;
			c->fd = -1;
		}
		if (rc)
			return rc;
	}
	if (s->polls[s->n].revents)
		return ko_fail(KOLO_EPEER,
			       "the process that made the id ended before all ranks had joined");
	return 0;
}

static int list_candidates(struct search *s)
{
	const struct ko_meeting *m = s->m;
	union ko_net at[KO_NET_MAX];
	int n = 1, rc;

	if (!*m->name && ((rc = ko_net_iface(s->from, &s->nfrom)) < 0 ||
			  (rc = ko_net_resolve(m->host, at, &n)) < 0))
		return rc;
	s->candidates = calloc((size_t)(n * m->nports), sizeof(*s->candidates));
	s->polls = calloc((size_t)(n * m->nports) + 1, sizeof(*s->polls));
	if (!s->candidates || !s->polls)
		return ko_fail(KOLO_ENOMEM, "no memory to look for %s", m->what);
	for (int port = 0; port < m->nports; port++)
		for (int i = 0; i < n; i++) {
			struct candidate *c = &s->candidates[s->n++];

			c->fd = -1;
			if (*m->name) {
				c->len = ko_boot_address(m, &c->to.name);
				continue;
			}
			c->to.net = at[i];
			ko_net_set_port(&c->to.net, (uint16_t)(m->port + port));
			c->len = ko_net_len(&at[i]);
		}
	return 0;
}

static const char *say_reason(int err)
{
	switch (err) {
	case 0: return "a process there took the connection and said nothing";
	case EPROTO: return "another program or another job answers there";
	default: return strerror(err);
	}
}

/* Gives up on an id that nobody serves: nobody ever will. */
static int check_id(const struct search *s)
{
	const struct candidate *c = &s->candidates[0];

	if (s->m->by_rank_0 || c->fd >= 0 || c->err == 0 || c->err == EAGAIN)
		return 0;
	if (c->err == EPROTO)
		return ko_fail(KOLO_EUNREACH, "the process that answers at %s did not make this id",
			       s->m->what);
	if (c->err != ECONNREFUSED && c->err != ECONNRESET)
		return ko_fail(
			KOLO_EUNREACH,
			"this id's address, %s, can't be reached from here (%s); is the loopback interface up, or "
			"KOLO_IFACE the same for all ranks?",
			s->m->what, strerror(c->err));
	return ko_fail(
		KOLO_EUNREACH,
		"nobody serves this id at %s (%s): the process that made it has ended, or the id was "
		"used already",
		s->m->what, strerror(c->err));
}

int ko_boot_dial(const struct ko_meeting *m, int rank, int maker, int64_t deadline,
		 const struct ko_progress *progress, int *out)
{
	struct search s = { .m = m, .progress = progress };
	int rc = list_candidates(&s);

	while (rc == 0) {
		rc = try_all(&s, maker, out);
		if (rc == 0)
			rc = check_id(&s);
		if (rc == 0 && ko_progress_stopped(progress))
			rc = ko_boot_stopped(rank);
		if (rc == 0 && ko_now_ms() > deadline)
			rc = ko_fail(
				KOLO_ETIMEDOUT,
				"rank %d: rank 0 did not answer at %s within the timeout (%s). Was it started, and do all "
				"ranks have the same environment?",
				rank, m->what, say_reason(s.candidates[0].err));
	}
	for (int i = 0; s.candidates && i < s.n; i++)
		hang_up(&s.candidates[i], 0);
	free(s.candidates);
	free(s.polls);
	return rc < 0 ? rc : 0;
}
