/* Sends and receives messages with descriptors (ko_msg_send, ko_msg_recv), and connects to the rank
 * that they go to (ko_msg_dial). */
#include "comm/health/msg.h"

#include "comm/base/clock.h"
#include "comm/sys/net.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int ko_msg_process(int sock, int *pidfd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*pidfd = -1;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return 0;
	if (cred.uid != geteuid())
		return KOLO_EUNREACH;
	if (cred.pid <= 0 || cred.pid == getpid())
		return 0;
	*pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	return *pidfd < 0 && errno == ESRCH ? KOLO_EPEER : 0;
}

int ko_msg_send(int sock, const struct ko_msg *msg, int fd)
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
	return sendmsg(sock, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*msg) ? 0 : -1;
}

/* The first descriptor that came with a message, or -1. Closes further ones. */
static int take_descriptor(struct msghdr *header)
{
	int first = -1, fd;

	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; CMSG_LEN(at + sizeof(fd)) <= cmsg->cmsg_len; at += sizeof(fd)) {
			memcpy(&fd, CMSG_DATA(cmsg) + at, sizeof(fd));
			if (first < 0)
				first = fd;
			else
				close(fd);
		}
	}
	return first;
}

enum ko_heard ko_msg_recv(int sock, struct ko_msg *out, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = out, .iov_len = sizeof(*out) };
	struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t got;

	do {
		header.msg_control = &control;
		header.msg_controllen = sizeof(control.bytes);
		got = recvmsg(sock, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		/* A reset is reported before the bytes that had arrived earlier. */
	} while (got < 0 && (errno == EINTR || errno == ECONNRESET));
	*fd = got < 0 ? -1 : take_descriptor(&header);
	if (got == sizeof(*out) && !(header.msg_flags & MSG_CTRUNC))
		return KO_HEARD_MSG;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return got == sizeof(*out) ? KO_HEARD_TRUNCATED : KO_HEARD_END;
}

static bool is_partial(int sock)
{
	struct ko_msg msg;
	ssize_t got = recv(sock, &msg, sizeof(msg), MSG_PEEK | MSG_DONTWAIT);

	return got > 0 && got < (ssize_t)sizeof(msg);
}

bool ko_msg_has_come(int sock)
{
	struct pollfd now = { .fd = sock, .events = POLLIN };

	return poll(&now, 1, 0) > 0 && !is_partial(sock);
}

void ko_msg_prepare(int sock)
{
	int whole = sizeof(struct ko_msg);

	setsockopt(sock, SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
	ko_net_keep_alive(sock);
}

/* Connects to another host; waits until the deadline, or not at all. */
static int dial_host(const struct ko_entry *to, bool wait, int64_t deadline)
{
	int fd;

	if (to->place.net.any.sa_family == 0) {
		errno = EDESTADDRREQ;
		return -1;
	}
	fd = wait ? ko_net_dial(&to->place.net, deadline) : ko_net_start(&to->place.net, NULL);
	if (fd >= 0)
		ko_msg_prepare(fd);
	return fd;
}

static int dial_here(const struct ko_entry *to, int64_t deadline)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + to->socket_len);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return -1;
	memcpy(name.sun_path, to->socket, to->socket_len);
	while (connect(fd, (struct sockaddr *)&name, len) < 0) {
		if ((errno != EAGAIN && errno != EINTR) || ko_now_ms() > deadline) {
			err = errno;
			close(fd);
			errno = err;
			return -1;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return fd;
}

int ko_msg_dial(const struct ko_entry *from, const struct ko_entry *to, int64_t deadline)
{
	return ko_place_same(&from->place, &to->place) ? dial_here(to, deadline)
						       : dial_host(to, true, deadline);
}

int ko_msg_start(const struct ko_entry *from, const struct ko_entry *to)
{
	return ko_place_same(&from->place, &to->place) ? dial_here(to, 0) : dial_host(to, false, 0);
}
