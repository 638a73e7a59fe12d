/* The TCP sockets of all roles. */
#ifndef TOOLS_RINGRUN_BASE_SOCKETS_H
#define TOOLS_RINGRUN_BASE_SOCKETS_H

/* Listens on all addresses of this host, at *port, or at any free port if that is 0: then *port
 * becomes it. Does not block. Returns the descriptor, or -1 with errno. */
int socket_listen(int *port);

/* Begins to connect to a numeric address, without waiting. Returns the descriptor, which can be
 * written to once it is connected or has failed (SO_ERROR), or -1 with errno. */
int socket_begin_to_connect(const char *address, int port);

#endif
