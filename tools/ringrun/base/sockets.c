#include "tools/ringrun/base/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Closes it and keeps errno. Returns -1. */
static int give_up(int fd)
{
	int err = errno;

	close(fd);
	errno = err;
	return -1;
}

static int listen_on(int family, int *port)
{
	union address at = { .any = { .sa_family = (sa_family_t)family } };
	socklen_t len = family == AF_INET6 ? sizeof(at.v6) : sizeof(at.v4);
	in_port_t *number = family == AF_INET6 ? &at.v6.sin6_port : &at.v4.sin_port;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1, no = 0;

	if (fd < 0)
		return -1;
	*number = htons((uint16_t)*port);
	/* Lingering connections of an earlier job must not block the port. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (family == AF_INET6) /* IPv4 too */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	if (bind(fd, &at.any, len) < 0 || listen(fd, SOMAXCONN) < 0 ||
	    getsockname(fd, &at.any, &len) < 0)
		return give_up(fd);
	*port = ntohs(*number);
	return fd;
}

int socket_listen(int *port)
{
	int fd = listen_on(AF_INET6, port);

	/* a host may have no IPv6, or no address of it */
	return fd < 0 && errno != EADDRINUSE ? listen_on(AF_INET, port) : fd;
}

int socket_begin_to_connect(const char *address, int port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char text[16];
	int fd, rc;

	snprintf(text, sizeof(text), "%d", port);
	if (getaddrinfo(address, text, &hints, &found) != 0) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = fd < 0 ? -1 : connect(fd, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return fd >= 0 && rc < 0 && errno != EINPROGRESS ? give_up(fd) : fd;
}
