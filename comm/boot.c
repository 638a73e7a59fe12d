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

/* `len` bytes from the server. */
static int read_all(int fd, void *to, size_t len, int64_t deadline)
{
	for (size_t at = 0; at < len;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&wait, 1, 100) <= 0) {
			if (ko_now_ms() > deadline)
				return ko_fail(KOLO_ETIMEDOUT,
					       "the id's maker does not answer; is it stopped?");
			continue;
		}
		got = recv(fd, (char *)to + at, len - at, 0);
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

static int talk(int fd, const struct ko_boot_id *id, const struct ko_entry *mine, int timeout_ms,
		struct ko_entry *table)
{
	struct ko_boot_hello hello = { .magic = KO_BOOT_MAGIC,
				       .version = KO_BOOT_VERSION,
				       .size = sizeof(hello),
				       .timeout_ms = timeout_ms,
				       .entry = *mine };
	int64_t deadline = timeout_ms ? ko_now_ms() + timeout_ms + GRACE_MS : INT64_MAX;
	struct ko_boot_reply reply;
	int rc;

	memcpy(hello.secret, id->secret, sizeof(hello.secret));
	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
		return ko_fail(KOLO_EUNREACH, "the process that made the id hung up: %s", strerror(errno));
	rc = read_all(fd, &reply, sizeof(reply), deadline);
	if (rc < 0)
		return rc;
	reply.text[sizeof(reply.text) - 1] = 0;
	if (reply.magic != KO_BOOT_MAGIC || reply.code > 0)
		return ko_fail(KOLO_EUNREACH, "who answers at %s:%u is not Kolo", id->host, id->port);
	if (reply.code < 0)
		return ko_fail(reply.code, "%s", reply.text);
	return read_all(fd, table, (size_t)mine->nranks * sizeof(*table), deadline);
}

int ko_boot_join(const struct kolo_id *id, const struct ko_entry *mine, int timeout_ms,
		 struct ko_entry *table)
{
	struct ko_boot_id layout;
	int fd = -1, rc;

	memcpy(&layout, id, sizeof(layout));
	if (layout.magic != KO_BOOT_ID_MAGIC)
		return ko_fail(KOLO_EINVAL, "rank %d: these 128 bytes are no id made by kolo_id_create",
			       mine->rank);
	rc = dial_server(&layout, &fd);
	if (rc == 0)
		rc = talk(fd, &layout, mine, timeout_ms, table);
	if (fd >= 0)
		close(fd);
	return rc;
}
