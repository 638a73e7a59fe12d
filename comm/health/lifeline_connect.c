/* Makes lifelines (ko_lifelines_open, ko_lifelines_connect) and takes calls. Of two ranks the
 * higher one connects and the lower one accepts. lifeline.c, which sends and receives, never calls
 * this file. */
#include "comm/health/lifeline.h"

#include "comm/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Making them ----------------------------------------------------------------------------- */

static bool is_among(const int *ranks, int n, int rank)
{
	for (int k = 0; k < n; k++)
		if (ranks[k] == rank)
			return true;
	return false;
}

/* Lists the ranks that lifelines lead to. */
static void list_peers(struct ko_lifelines *ll, int nranks, const int *neighbours, int n)
{
	int rank = ll->rank;

	for (int r = 0; r < nranks; r++)
		if (r != rank && (rank == 0 || r == 0 || is_among(neighbours, n, r)))
			ll->life[ll->n++] = (struct ko_life){
				.rank = r,
				.fd = -1,
				.pidfd = -1,
				.early = -1,
				.far = !ko_place_same(&ll->table[rank].place, &ll->table[r].place),
			};
}

/* Listens on a Unix socket whose abstract name the kernel chooses. */
static int listen_for_peers(struct ko_lifelines *ll, struct ko_entry *mine)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(name);

	ll->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (ll->listener < 0 ||
	    bind(ll->listener, (struct sockaddr *)&name, sizeof(sa_family_t)) < 0 ||
	    listen(ll->listener, SOMAXCONN) < 0 ||
	    getsockname(ll->listener, (struct sockaddr *)&name, &len) < 0)
		return ko_fail(KOLO_ESYS, "rank %d: making a Unix socket: %s", ll->rank,
			       strerror(errno));
	mine->socket_len = (uint32_t)(len - offsetof(struct sockaddr_un, sun_path));
	if (mine->socket_len > sizeof(mine->socket))
		return ko_fail(
			KOLO_ESYS,
			"rank %d: the name of an abstract socket has %u bytes, more than fit",
			ll->rank, mine->socket_len);
	memcpy(mine->socket, name.sun_path, mine->socket_len);
	if (getrandom(ll->token, sizeof(ll->token), 0) != sizeof(ll->token))
		return ko_fail(KOLO_ESYS, "rank %d: getrandom: %s", ll->rank, strerror(errno));
	memcpy(mine->token, ll->token, sizeof(ll->token));
	return 0;
}

int ko_lifelines_open(int rank, int nranks, const struct ko_log *log,
		      const struct ko_progress *progress, const struct ko_roster *parent,
		      struct ko_entry *mine, struct ko_lifelines **out)
{
	/* Rank 0 has one to each other rank. */
	size_t most =
		rank == 0 || nranks <= KO_LIFE_NEIGHBOURS ? (size_t)nranks : KO_LIFE_NEIGHBOURS + 1;
	struct ko_lifelines *ll = calloc(1, sizeof(*ll) + most * sizeof(ll->life[0]));
	int rc;

	*out = NULL;
	if (!ll)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %zu lifelines", rank, most);
	ll->rank = rank;
	ll->log = log;
	ll->progress = progress;
	ll->parent = parent;
	ll->listener = ll->far_listener = -1;
	rc = listen_for_peers(ll, mine);
	if (rc < 0) {
		ko_lifelines_close(ll, 0, "");
		return rc;
	}
	*out = ll;
	return 0;
}

int ko_lifelines_listen(struct ko_lifelines *ll, const union ko_net *here, struct ko_entry *mine)
{
	char at[KO_NET_TEXT];

	if (ko_net_is_loopback(here))
		return 0;
	mine->place.net = *here;
	ko_net_set_port(&mine->place.net, 0);
	ll->far_listener = ko_net_listen(&mine->place.net);
	return ll->far_listener < 0 ? ko_fail(KOLO_ESYS, "rank %d: opening a TCP port at %s: %s",
					      ll->rank, ko_net_text(here, at), strerror(errno))
				    : 0;
}

static int connect_lifeline(struct ko_lifelines *ll, struct ko_life *life, int fd)
{
	life->fd = fd;
	life->state = KO_LIFE_UP;
	if (life->far)
		return 0;
	switch (ko_msg_process(fd, &life->pidfd)) {
	case 0: return 0;
	case KOLO_EPEER: return ko_life_gone_early(ll, life->rank);
	default:
		return ko_fail(KOLO_EUNREACH,
			       "rank %d and rank %d (pid %d on %s) belong to different users",
			       ll->rank, life->rank, ll->table[life->rank].pid,
			       ll->table[life->rank].place.host);
	}
}

static int dial_lower(struct ko_lifelines *ll, struct ko_life *life, int64_t deadline)
{
	const struct ko_entry *to = &ll->table[life->rank];
	struct ko_msg hello = { .type = KO_MSG_HELLO, .value = ll->rank };
	int fd = ko_msg_dial(&ll->table[ll->rank], to, deadline), rc;

	if (fd < 0)
		return ko_life_lost(ll, life->rank, "connecting to");
	rc = connect_lifeline(ll, life, fd);
	if (rc < 0)
		return rc;
	memcpy(hello.bytes, to->token, sizeof(to->token));
	return ko_msg_send(fd, &hello, -1) < 0 ? ko_life_lost(ll, life->rank, "greeting") : 0;
}

/* ---- Taking calls ---------------------------------------------------------------------------- */

static void forget_stranger(struct ko_lifelines *ll, int k)
{
	ll->nstrangers--;
	memmove(&ll->strangers[k], &ll->strangers[k + 1],
		(size_t)(ll->nstrangers - k) * sizeof(int));
}

/* Keeps a call until somebody takes it. */
static int keep_call(struct ko_lifelines *ll, struct ko_incoming call)
{
	struct ko_incoming *more = realloc(ll->calls, ((size_t)ll->ncalls + 1) * sizeof(*more));

	if (!more) {
		close(call.fd);
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for rank %d's call", ll->rank,
			       call.rank);
	}
	ll->calls = more;
	ll->calls[ll->ncalls++] = call;
	return 0;
}

/* The stranger's socket can be read: it becomes a lifeline or a call, or it is dropped. */
static int identify(struct ko_lifelines *ll, int k)
{
	int fd = ll->strangers[k], extra;
	struct ko_life *life = NULL;
	struct ko_msg hello;

	if (!ko_msg_has_come(fd))
		return 0;
	forget_stranger(ll, k);
	if (ko_msg_recv(fd, &hello, &extra) != KO_HEARD_MSG) {
		close(fd); /* a rank only checked whether this one still listens */
		return 0;
	}
	if (extra >= 0)
		close(extra);
	if (memcmp(hello.bytes, ll->token, sizeof(ll->token)) == 0) {
		if (hello.type == KO_MSG_DIAL && hello.value >= 0 &&
		    hello.value < ll->table[ll->rank].nranks)
			return keep_call(ll, (struct ko_incoming){ hello.value, fd, hello.seq });
		if (hello.type == KO_MSG_HELLO)
			life = ko_life_find(ll, hello.value);
	}
	if (life && life->state == KO_LIFE_NONE && life->rank > ll->rank)
		return connect_lifeline(ll, life, fd);
	ko_log(ll->log, KOLO_LOG_WARN, "dropped a connection without this communicator's token");
	close(fd);
	return 0;
}

/* Identifies the strangers that can be read. Waits up to `ms` for one of them or a new connection.
 * *idle: nothing happened. */
static int hear_strangers(struct ko_lifelines *ll, int ms, bool *idle)
{
	struct pollfd polls[KO_LIFE_STRANGERS + 2];
	int n = ll->nstrangers, rc = 0;

	for (int k = 0; k < n; k++)
		polls[k] = (struct pollfd){ .fd = ll->strangers[k], .events = POLLIN };
	polls[n] = (struct pollfd){ .fd = ll->listener, .events = POLLIN };
	polls[n + 1] = (struct pollfd){ .fd = ll->far_listener, .events = POLLIN };
	*idle = ko_progress_poll(ll->progress, polls, (nfds_t)n + 2, ms) <= 0;
	for (int k = n; !*idle && rc == 0 && k-- > 0;)
		if (polls[k].revents)
			rc = identify(ll, k);
	return rc;
}

static int accept_at(struct ko_lifelines *ll, int listener)
{
	int fd, rc = 0;
	bool idle;

	while (rc == 0 && (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (listener == ll->far_listener)
			ko_msg_prepare(fd);
		if (ll->nstrangers == KO_LIFE_STRANGERS) {
			close(ll->strangers[0]);
			forget_stranger(ll, 0);
		}
		ll->strangers[ll->nstrangers++] = fd;
		rc = hear_strangers(ll, 0, &idle);
	}
	/* Other errors concern one connection, which is gone. */
	if (rc < 0 || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM))
		return rc;
	return ko_fail(
		KOLO_ESYS,
		"rank %d: accepting a lifeline: %s; rank 0 needs two descriptors for each other rank (ulimit -n)",
		ll->rank, strerror(errno));
}

/* Accepts all connections that are waiting. */
static int accept_waiting(struct ko_lifelines *ll)
{
	int rc = accept_at(ll, ll->listener);

	return rc == 0 && ll->far_listener >= 0 ? accept_at(ll, ll->far_listener) : rc;
}

static int count_missing(const struct ko_lifelines *ll)
{
	int missing = 0;

	for (int k = 0; k < ll->n; k++)
		missing += ll->life[k].state == KO_LIFE_NONE;
	return missing;
}

/* The first rank that has not connected. */
static int first_missing(const struct ko_lifelines *ll)
{
	int k = 0;

	while (ll->life[k].state != KO_LIFE_NONE)
		k++;
	return ll->life[k].rank;
}

/* Rank 0 connects to all, so while one is missing it waits and says so. If it says nothing it is
 * stopped, and the missing ranks may wait for what it has to tell them. If it has gone on, it has
 * told them. */
static bool is_rank_0_silent(struct ko_lifelines *ll)
{
	return ll->rank > 0 && !ko_msg_has_come(ko_life_find(ll, 0)->fd) &&
	       ko_lifelines_waits_for(ll, 0, ko_now_ms() - KO_LIFE_SILENT_MS) == KO_NOBODY;
}

static int report_missing(struct ko_lifelines *ll)
{
	bool silent = is_rank_0_silent(ll);
	int rank = silent ? 0 : first_missing(ll), others = count_missing(ll) - 1;
	char more[40] = "";

	if (!silent && others)
		snprintf(more, sizeof(more), " (and %d more)", others);
	return ko_fail(
		KOLO_ETIMEDOUT,
		"rank %d: rank %d (pid %d on %s)%s joined but did not connect in time; is it stopped or "
		"starved?",
		ll->rank, rank, ll->table[rank].pid, ll->table[rank].place.host, more);
}

/* Has the process of a missing rank ended? Nobody listens then, unless a child holds its socket. */
static bool has_ended(const struct ko_lifelines *ll, const struct ko_entry *e)
{
	/* ms for an answer from another host; without an answer nothing is known */
	enum { FAR_MS = 50 };
	const struct ko_entry *here = &ll->table[ll->rank];
	bool far = !ko_place_same(&here->place, &e->place);
	int fd = ko_msg_dial(here, e, far ? ko_now_ms() + FAR_MS : 0), pidfd = -1;
	bool ended =
		fd < 0 ? errno == ECONNREFUSED : !far && ko_msg_process(fd, &pidfd) == KOLO_EPEER;
	/* if pidfd is -1, poll ignores it */
	struct pollfd dead = { .fd = pidfd, .events = POLLIN };

	ended = ended || poll(&dead, 1, 0) > 0;
	if (fd >= 0)
		close(fd);
	if (pidfd >= 0)
		close(pidfd);
	return ended;
}

bool ko_lifelines_lost(struct ko_lifelines *ll, int rank)
{
	return rank != ll->rank && !ko_lifelines_hear(ll, rank) && has_ended(ll, &ll->table[rank]);
}

/* A missing rank that has ended will not come, unless it connected just before. */
static int check_missing(struct ko_lifelines *ll)
{
	int rc;

	for (int k = 0; k < ll->n; k++) {
		if (ll->life[k].state != KO_LIFE_NONE ||
		    !has_ended(ll, &ll->table[ll->life[k].rank]))
			continue;
		if ((rc = accept_waiting(ll)) < 0)
			return rc;
		if (ll->life[k].state == KO_LIFE_NONE)
			return ko_life_gone_early(ll, ll->life[k].rank);
	}
	return 0;
}

/* Waits until all higher ranks have connected. */
static int accept_higher(struct ko_lifelines *ll, int64_t deadline)
{
	bool idle;
	int rc;

	while ((rc = accept_waiting(ll)) == 0 && count_missing(ll) > 0) {
		if ((rc = hear_strangers(ll, KO_LIFE_STEP_MS, &idle)) < 0 ||
		    (idle && count_missing(ll) > 0 &&
		     ((rc = ko_life_step(ll, first_missing(ll))) < 0 ||
		      (rc = check_missing(ll)) < 0)))
			return rc;
		if (ko_now_ms() > deadline && count_missing(ll) > 0)
			return report_missing(ll);
	}
	return rc;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

int ko_lifelines_dial(struct ko_lifelines *ll, int rank, uint64_t lanes, int *fd)
{
	const struct ko_entry *to = &ll->table[rank];
	struct ko_msg hello = { .type = KO_MSG_DIAL, .value = ll->rank, .seq = lanes };
	int through, rc = 0;

	if (*fd < 0)
		*fd = ko_msg_start(&ll->table[ll->rank], to);
	through = *fd < 0 ? -1 : ko_net_is_through(*fd, 0);
	if (through == 0)
		return KO_EAGAIN;
	memcpy(hello.bytes, to->token, sizeof(to->token));
	if (through < 0 || ko_msg_send(*fd, &hello, -1) < 0)
		rc = errno == EAGAIN || errno == ECONNREFUSED || errno == EPIPE ||
				     errno == ECONNRESET
			     ? KO_EAGAIN
			     : ko_life_lost(ll, rank, "calling");
	if (rc && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return rc;
}

int ko_lifelines_listen_for_calls(struct ko_lifelines *ll)
{
	bool idle;
	int rc = hear_strangers(ll, 0, &idle);

	return rc < 0 || idle ? rc : accept_waiting(ll);
}

bool ko_lifelines_answer(struct ko_lifelines *ll, struct ko_incoming *out)
{
	if (!ll->ncalls)
		return false;
	*out = ll->calls[0];
	ll->ncalls--;
	memmove(&ll->calls[0], &ll->calls[1], (size_t)ll->ncalls * sizeof(ll->calls[0]));
	return true;
}

void ko_lifelines_give_up(struct ko_lifelines *ll, int code, const char *text)
{
	if (ll && ll->table)
		accept_waiting(ll);
	ko_lifelines_close(ll, code, text);
}

int ko_lifelines_connect(struct ko_lifelines *ll, const struct ko_entry *table,
			 const int *neighbours, int n, int64_t deadline)
{
	int rc = 0;

	ll->table = table;
	list_peers(ll, table[ll->rank].nranks, neighbours, n);
	for (int k = 0; rc == 0 && k < ll->n; k++)
		if (ll->life[k].rank < ll->rank)
			rc = dial_lower(ll, &ll->life[k], deadline);
	return rc < 0 ? rc : accept_higher(ll, deadline);
}
