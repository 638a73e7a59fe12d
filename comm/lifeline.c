/* See lifeline.h. Of two ranks the higher connects and the lower accepts. */
#include "lifeline.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	STEP_MS = 100,       /* how often a wait looks whether those it waits for are still there */
	SILENT_STRANGER = 2, /* seconds given to a connection to say who it is */
};

struct ko_lifelines {
	int rank;
	int listener;
	const struct ko_entry *table;
	unsigned char token[KO_TOKEN];
	int n, gone; /* lifelines, and those of them whose ranks have left or died */
	struct ko_life life[];
};

/* ---- Sockets -------------------------------------------------------------------------------------------- */

static void watch_process(struct ko_life *life)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	life->pidfd = -1;
	if (getsockopt(life->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.pid > 0 &&
	    cred.pid != getpid())
		life->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
}

/* One message, and a descriptor with it unless fd is -1. Does not block: a socket's buffer holds more messages than
 * are ever under way, so a full one means that something is very wrong at the other end. */
static int send_msg(int sock, const struct ko_msg *msg, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)msg, .iov_len = sizeof(*msg) };
	struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		header.msg_control = &control;
		header.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
		*cmsg = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS,
					  .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	}
	return sendmsg(sock, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*msg) ? 0 : KOLO_EPEER;
}

/* 1: a message; 0: end of file, or no message of ours. *fd is -1 when no descriptor came along. */
static int recv_msg(int sock, struct ko_msg *out, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = out, .iov_len = sizeof(*out) };
	struct msghdr header = { .msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *cmsg;
	ssize_t got;

	*fd = -1;
	do
		got = recvmsg(sock, &header, MSG_CMSG_CLOEXEC);
	/* A reset is told before what had arrived ahead of it. */
	while (got < 0 && (errno == EINTR || errno == ECONNRESET));
	if (got < 0)
		return 0;
	cmsg = CMSG_FIRSTHDR(&header);
	if (got > 0 && cmsg && cmsg->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(cmsg), sizeof(int));
	return got == sizeof(*out);
}

/* A connection to the rank's listener, or -1 with errno; ECONNREFUSED when nobody listens there any more. */
static int dial_rank(const struct ko_entry *to, int64_t deadline)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + to->socket_len);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	memcpy(name.sun_path, to->socket, to->socket_len);
	while (connect(fd, (struct sockaddr *)&name, len) < 0) {
		if ((errno != EAGAIN && errno != EINTR) || ko_now_ms() > deadline) {
			close(fd);
			return -1;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); /* its queue is full */
	}
	fcntl(fd, F_SETFL, 0); /* blocking again */
	return fd;
}

/* ---- Making them ---------------------------------------------------------------------------------------- */

/* Fills in who the rank's lifelines lead to; returns their number, nranks - 1 for rank 0 and at most 3 else. */
static int list_peers(int rank, int nranks, struct ko_life *life)
{
	int prev = (rank + nranks - 1) % nranks, next = (rank + 1) % nranks, n = 0;

	for (int r = 0; r < nranks; r++)
		if (r != rank && (rank == 0 || r == 0 || r == prev || r == next))
			life[n++] = (struct ko_life){ .rank = r, .fd = -1, .pidfd = -1 };
	return n;
}

/* Binds to a name of the kernel's choice. */
static int listen_for_peers(struct ko_lifelines *ll, struct ko_entry *mine)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(name);

	ll->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (ll->listener < 0 || bind(ll->listener, (struct sockaddr *)&name, sizeof(sa_family_t)) < 0 ||
	    listen(ll->listener, SOMAXCONN) < 0 ||
	    getsockname(ll->listener, (struct sockaddr *)&name, &len) < 0)
		return ko_fail(KOLO_ESYS, "rank %d: making a Unix socket: %s", ll->rank, strerror(errno));
	mine->socket_len = (uint32_t)(len - offsetof(struct sockaddr_un, sun_path));
	if (mine->socket_len > sizeof(mine->socket))
		return ko_fail(KOLO_ESYS, "rank %d: an abstract socket's name of %u bytes", ll->rank,
			       mine->socket_len);
	memcpy(mine->socket, name.sun_path, mine->socket_len);
	if (getrandom(ll->token, sizeof(ll->token), 0) != sizeof(ll->token))
		return ko_fail(KOLO_ESYS, "rank %d: getrandom: %s", ll->rank, strerror(errno));
	memcpy(mine->token, ll->token, sizeof(ll->token));
	return 0;
}

int ko_lifelines_open(int rank, int nranks, struct ko_entry *mine, struct ko_lifelines **out)
{
	/* At most three, but for rank 0, which has one to everyone. */
	size_t most = rank == 0 || nranks < 4 ? (size_t)nranks : 4;
	struct ko_lifelines *ll = calloc(1, sizeof(*ll) + most * sizeof(ll->life[0]));
	int rc;

	*out = NULL;
	if (!ll)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %zu lifelines", rank, most);
	ll->rank = rank;
	ll->listener = -1;
	ll->n = list_peers(rank, nranks, ll->life);
	rc = listen_for_peers(ll, mine);
	if (rc < 0) {
		ko_lifelines_close(ll, 0, "");
		return rc;
	}
	*out = ll;
	return 0;
}

static struct ko_life *find(struct ko_lifelines *ll, int rank)
{
	for (int k = 0; k < ll->n; k++)
		if (ll->life[k].rank == rank)
			return &ll->life[k];
	return NULL;
}

static int gone_early(struct ko_lifelines *ll, int rank)
{
	const struct ko_entry *e = &ll->table[rank];

	return ko_fail(
		KOLO_EPEER,
		"rank %d: rank %d (pid %d on %s) ended or gave up while the communicator was being made; its own "
		"error says why",
		ll->rank, rank, e->pid, e->place.host);
}

static int call_lower(struct ko_lifelines *ll, struct ko_life *life, int64_t deadline)
{
	const struct ko_entry *to = &ll->table[life->rank];
	struct ko_msg hello = { .type = KO_MSG_HELLO, .value = ll->rank };

	life->fd = dial_rank(to, deadline);
	if (life->fd < 0 && errno == ECONNREFUSED)
		return gone_early(ll, life->rank);
	if (life->fd < 0)
		return ko_fail(KOLO_EUNREACH,
			       "rank %d on %s: connecting to rank %d on %s through a Unix socket: %s",
			       ll->rank, ll->table[ll->rank].place.host, life->rank, to->place.host,
			       strerror(errno));
	memcpy(hello.bytes, to->token, sizeof(to->token));
	if (send_msg(life->fd, &hello, -1) < 0)
		return gone_early(ll, life->rank);
	watch_process(life);
	life->state = KO_LIFE_UP;
	return 0;
}

/* Who is on this new connection: a higher rank with our token, or nobody (NULL). */
static struct ko_life *identify(struct ko_lifelines *ll, int fd)
{
	struct timeval patience = { .tv_sec = SILENT_STRANGER };
	struct ko_life *life;
	struct ko_msg hello;
	int extra;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (recv_msg(fd, &hello, &extra) != 1)
		return NULL;
	if (extra >= 0)
		close(extra);
	life = find(ll, hello.value);
	if (hello.type != KO_MSG_HELLO || memcmp(hello.bytes, ll->token, sizeof(ll->token)) != 0 || !life ||
	    life->state != KO_LIFE_NONE || life->rank < ll->rank) {
		ko_log(KO_LOG_WARN, "rank %d: dropped a connection that did not know this communicator",
		       ll->rank);
		return NULL;
	}
	return life;
}

static int count_missing(const struct ko_lifelines *ll)
{
	int missing = 0;

	for (int k = 0; k < ll->n; k++)
		missing += ll->life[k].state == KO_LIFE_NONE;
	return missing;
}

/* Takes in all connections that are waiting; returns how many lifelines are still missing. Errors: KOLO_ESYS. */
static int accept_waiting(struct ko_lifelines *ll)
{
	int fd;

	while ((fd = accept4(ll->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		struct ko_life *life = identify(ll, fd);

		if (!life) {
			close(fd);
			continue;
		}
		life->fd = fd;
		life->state = KO_LIFE_UP;
		watch_process(life);
	}
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
		return ko_fail(KOLO_ESYS,
			       "rank %d: accepting a lifeline: %s; rank 0 needs two descriptors for each "
			       "other rank (ulimit -n)",
			       ll->rank, strerror(errno));
	return count_missing(ll);
}

static int missing_late(struct ko_lifelines *ll)
{
	char missing[128] = "";

	for (int k = 0; k < ll->n; k++) {
		size_t at = strlen(missing);

		if (ll->life[k].state == KO_LIFE_NONE)
			snprintf(missing + at, sizeof(missing) - at, " %d", ll->life[k].rank);
	}
	return ko_fail(
		KOLO_ETIMEDOUT,
		"rank %d: these ranks joined but did not connect in time:%s; are they stopped or starved?",
		ll->rank, missing);
}

/* Someone missing whose listener is closed has ended, unless it connected and went on just before. */
static int check_missing(struct ko_lifelines *ll)
{
	for (int k = 0; k < ll->n; k++) {
		int fd, missing;

		if (ll->life[k].state != KO_LIFE_NONE)
			continue;
		fd = dial_rank(&ll->table[ll->life[k].rank], 0);
		if (fd >= 0)
			close(fd);
		if (fd >= 0 || errno != ECONNREFUSED)
			continue;
		missing = accept_waiting(ll);
		if (missing < 0)
			return missing;
		if (ll->life[k].state == KO_LIFE_NONE)
			return gone_early(ll, ll->life[k].rank);
	}
	return 0;
}

/* Waits for those that connect to us. */
static int accept_higher(struct ko_lifelines *ll, int64_t deadline)
{
	int missing, rc;

	while ((missing = accept_waiting(ll)) > 0) {
		struct pollfd wait = { .fd = ll->listener, .events = POLLIN };

		if (poll(&wait, 1, STEP_MS) > 0)
			continue;
		if ((rc = check_missing(ll)) < 0)
			return rc;
		if (ko_now_ms() > deadline && count_missing(ll) > 0)
			return missing_late(ll);
	}
	return missing;
}

int ko_lifelines_connect(struct ko_lifelines *ll, const struct ko_entry *table, int64_t deadline)
{
	int rc = 0;

	ll->table = table;
	for (int k = 0; rc == 0 && k < ll->n; k++)
		if (ll->life[k].rank < ll->rank)
			rc = call_lower(ll, &ll->life[k], deadline);
	return rc < 0 ? rc : accept_higher(ll, deadline);
}

/* ---- Using them ----------------------------------------------------------------------------------------- */

int ko_lifelines_send(struct ko_lifelines *ll, int rank, const struct ko_msg *msg, int fd)
{
	struct ko_life *life = find(ll, rank);

	return life && life->fd >= 0 && send_msg(life->fd, msg, fd) == 0 ? 0 : gone_early(ll, rank);
}

int ko_lifelines_recv(struct ko_lifelines *ll, int rank, enum ko_msg_type type, int value, int64_t deadline,
		      struct ko_msg *out, int *fd)
{
	struct ko_life *life = find(ll, rank);
	struct pollfd wait = { .fd = life->fd, .events = POLLIN };

	*fd = -1;
	while (poll(&wait, 1, STEP_MS) <= 0)
		if (ko_now_ms() > deadline)
			return ko_fail(KOLO_ETIMEDOUT,
				       "rank %d: rank %d (pid %d on %s) fell silent while the communicator "
				       "was being made; is it stopped?",
				       ll->rank, rank, ll->table[rank].pid, ll->table[rank].place.host);
	if (recv_msg(life->fd, out, fd) != 1)
		return gone_early(ll, rank);
	if (out->type == type && out->value == value)
		return 0;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	if (out->type != KO_MSG_GOODBYE)
		return ko_fail(KOLO_ESYS, "rank %d: rank %d sent message %u where %d was due", ll->rank, rank,
			       out->type, (int)type);
	out->bytes[sizeof(out->bytes) - 1] = 0;
	return out->bytes[0] ? ko_fail(out->value, "%s", (const char *)out->bytes) : gone_early(ll, rank);
}

/* The socket says goodbye, end of file, or something that comes too late to matter. */
static void hear_goodbye(struct ko_life *life)
{
	struct ko_msg msg;
	int fd;

	if (recv_msg(life->fd, &msg, &fd) != 1) {
		life->state = KO_LIFE_DEAD;
		return;
	}
	if (fd >= 0)
		close(fd);
	if (msg.type != KO_MSG_GOODBYE)
		return;
	life->state = KO_LIFE_LEFT;
	memcpy(life->why, msg.bytes, sizeof(life->why));
	life->why[sizeof(life->why) - 1] = 0;
}

void ko_lifelines_look(struct ko_lifelines *ll)
{
	for (int k = 0; k < ll->n; k++) {
		struct ko_life *life = &ll->life[k];
		/* A process may be dead and its socket alive, in a child that it had forked; hence the second. */
		struct pollfd now[2] = { { .fd = life->fd, .events = POLLIN },
					 { .fd = life->pidfd, .events = POLLIN } };

		if (life->state != KO_LIFE_UP || poll(now, 2, 0) <= 0)
			continue;
		if (now[0].revents)
			hear_goodbye(life);
		else
			life->state = KO_LIFE_DEAD;
		ll->gone += life->state != KO_LIFE_UP;
	}
}

const struct ko_life *ko_lifelines_gone(const struct ko_lifelines *ll, int *k)
{
	for (; ll->gone && *k < ll->n; ++*k)
		if (ll->life[*k].state != KO_LIFE_UP)
			return &ll->life[*k];
	return NULL;
}

void ko_lifelines_close(struct ko_lifelines *ll, int code, const char *text)
{
	struct ko_msg goodbye = { .type = KO_MSG_GOODBYE, .value = code };

	if (!ll)
		return;
	snprintf((char *)goodbye.bytes, sizeof(goodbye.bytes), "%s", code ? text : "");
	for (int k = 0; k < ll->n; k++) {
		struct ko_life *life = &ll->life[k];

		if (life->fd < 0)
			continue;
		send_msg(life->fd, &goodbye, -1);
		close(life->fd);
		if (life->pidfd >= 0)
			close(life->pidfd);
	}
	if (ll->listener >= 0)
		close(ll->listener);
	free(ll);
}
