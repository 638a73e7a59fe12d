/* See boot.h. This file is the joining side, boot_server.c the serving side, boot_wire.h what they say. */
#include "boot.h"

#include "boot_wire.h"
#include "clock.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	GRACE_MS = 2000
}; /* the server ends a wait that is too long, and says who is missing; this comes after */

static int dial_server(const struct ko_boot_id *id, int *out)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(id->port) };

	if (inet_pton(AF_INET, id->host, &to.sin_addr) != 1)
		return ko_fail(KOLO_EINVAL, "the id's address is '%.63s'", id->host);
	*out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*out < 0)
		return ko_fail(KOLO_ESYS, "socket: %s", strerror(errno));
	while (connect(*out, (struct sockaddr *)&to, sizeof(to)) < 0) {
		if (errno == EISCONN)
			break; /* it went on behind the EINTR */
		if (errno == EINTR || errno == EALREADY)
			continue;
		return ko_fail(
			KOLO_EUNREACH,
			"nobody serves this id at %s:%u (%s): the process that made it has ended, or the id was "
			"used already",
			id->host, id->port, strerror(errno));
	}
	return 0;
}

uint64_t ko_boot_pidns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) < 0 ? 0 : (uint64_t)st.st_ino;
}

bool ko_boot_check(struct ko_entry *e)
{
	e->place.host[sizeof(e->place.host) - 1] = 0;
	e->place.machine[sizeof(e->place.machine) - 1] = 0;
	e->transport[sizeof(e->transport) - 1] = 0;
	e->algorithm[sizeof(e->algorithm) - 1] = 0;
	return e->nranks >= 1 && e->nranks <= KO_MAX_RANKS && e->rank >= 0 && e->rank < e->nranks &&
	       e->socket_len <= sizeof(e->socket) && e->limits.nslots >= 2 &&
	       e->limits.nslots <= KO_MAX_SLOTS && e->limits.slot_len >= KO_MIN_SLOT &&
	       e->limits.slot_len <= KO_MAX_SLOT;
}

/* A conversation with who serves the id. */
struct server {
	int fd;
	int pidfd; /* the id's maker, whose socket a child of it may keep open; -1 where it can't be seen */
	int64_t deadline;
};

/* `len` bytes from the server. */
static int read_all(const struct server *s, void *to, size_t len)
{
	for (size_t at = 0; at < len;) {
		struct pollfd polls[2] = { { .fd = s->fd, .events = POLLIN },
					   { .fd = s->pidfd, .events = POLLIN } };
		ssize_t got = 0;

		if (poll(polls, 2, 100) <= 0) {
			if (ko_now_ms() > s->deadline)
				return ko_fail(KOLO_ETIMEDOUT,
					       "the id's maker does not answer; is it stopped?");
			continue;
		}
		if (polls[0].revents)
			got = recv(s->fd, (char *)to + at, len - at, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return ko_fail(
				KOLO_EPEER,
				"the process that made the id ended before all ranks had joined, or it "
				"did not accept this id's secret");
		at += (size_t)got;
	}
	return 0;
}

static int read_table(const struct server *s, struct ko_entry *table, int nranks)
{
	int rc = read_all(s, table, (size_t)nranks * sizeof(*table));

	for (int r = 0; rc == 0 && r < nranks; r++)
		if (!ko_boot_check(&table[r]) || table[r].rank != r || table[r].nranks != nranks)
			rc = ko_fail(KOLO_ESYS, "the id's maker sent a table whose row %d makes no sense", r);
	return rc;
}

static int talk(const struct server *s, const struct ko_boot_id *id, const struct ko_entry *mine,
		int timeout_ms, struct ko_entry *table)
{
	struct ko_boot_hello hello = { .magic = KO_BOOT_MAGIC,
				       .version = KO_BOOT_VERSION,
				       .size = sizeof(hello),
				       .timeout_ms = timeout_ms,
				       .entry = *mine };
	struct ko_boot_reply reply;
	int rc;

	memcpy(hello.secret, id->secret, sizeof(hello.secret));
	if (send(s->fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
		return ko_fail(KOLO_EUNREACH, "the process that made the id hung up: %s", strerror(errno));
	rc = read_all(s, &reply, sizeof(reply));
	if (rc < 0)
		return rc;
	reply.text[sizeof(reply.text) - 1] = 0;
	if (reply.magic != KO_BOOT_MAGIC || memcmp(reply.proof, id->proof, sizeof(reply.proof)) != 0 ||
	    reply.code > 0)
		return ko_fail(KOLO_EUNREACH, "who answers at %s:%u did not make this id", id->host,
			       id->port);
	return reply.code < 0 ? ko_fail(reply.code, "%s", reply.text) : read_table(s, table, mine->nranks);
}

/* *pidfd is -1 where the maker is this process or can't be seen. */
static int open_maker(const struct ko_boot_id *id, int *pidfd)
{
	if (id->pidns != ko_boot_pidns() || id->pid == getpid())
		return 0;
	*pidfd = (int)syscall(SYS_pidfd_open, id->pid, 0);
	if (*pidfd < 0 && errno == ESRCH)
		return ko_fail(KOLO_EPEER,
			       "the process that made the id (pid %d) ended before all ranks had joined",
			       id->pid);
	return 0;
}

int ko_boot_join(const struct kolo_id *id, const struct ko_entry *mine, int timeout_ms,
		 struct ko_entry *table)
{
	struct server s = { .fd = -1, .pidfd = -1, .deadline = INT64_MAX };
	struct ko_boot_id layout;
	int rc;

	memcpy(&layout, id, sizeof(layout));
	layout.host[sizeof(layout.host) - 1] = 0;
	if (layout.magic != KO_BOOT_ID_MAGIC)
		return ko_fail(KOLO_EINVAL, "rank %d: these 128 bytes are no id made by kolo_id_create",
			       mine->rank);
	if (timeout_ms)
		s.deadline = ko_now_ms() + timeout_ms + GRACE_MS;
	rc = open_maker(&layout, &s.pidfd);
	if (rc == 0)
		rc = dial_server(&layout, &s.fd);
	if (rc == 0)
		rc = talk(&s, &layout, mine, timeout_ms, table);
	if (s.fd >= 0)
		close(s.fd);
	if (s.pidfd >= 0)
		close(s.pidfd);
	return rc;
}
