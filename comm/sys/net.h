/* TCP addresses: names to numbers, the interface that KOLO_IFACE names, and listening. Blocking calls all. */
#ifndef COMM_SYS_NET_H
#define COMM_SYS_NET_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

enum { KO_NET_MAX = 8, KO_NET_TEXT = INET6_ADDRSTRLEN };

/* An IPv4 or IPv6 address with a port. */
union ko_net {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* At most KO_NET_MAX addresses of `host`, a name or a number, in the resolver's order. May ask name servers.
 * Errors: KOLO_EUNREACH, with the resolver's reason. */
int ko_net_resolve(const char *host, union ko_net out[KO_NET_MAX], int *n);

/* The addresses of the interface that KOLO_IFACE names (or the one address that it is); *n is 0 when it is unset.
 * Errors: KOLO_EINVAL when there is no such interface or it has no address, with those that there are. */
int ko_net_iface(union ko_net out[KO_NET_MAX], int *n);

/* A listening socket, non-blocking, on `at`, whose port may be 0; `at` gets the port. -1 with errno. */
int ko_net_listen(union ko_net *at);

/* A connection to `to` that is under way; non-blocking. -1 with errno. */
int ko_net_start(const union ko_net *to);

/* Is it through? 1; 0: not yet; -1 with errno: it failed. Waits for `ms`. */
int ko_net_is_through(int fd, int ms);

/* A connection to `to`, made by the deadline (ko_now_ms()); non-blocking. -1 with errno. */
int ko_net_dial(const union ko_net *to, int64_t deadline);

/* Small messages go at once. */
void ko_net_hurry(int fd);

/* The same, and a silent host is noticed within 20 s or so; what is sent must be read within that time, too: the kernel
 * counts a peer that doesn't as silent. */
void ko_net_keep_alive(int fd);

/* Is it an address that only its own host reaches? */
int ko_net_is_loopback(const union ko_net *a);

socklen_t ko_net_len(const union ko_net *a);
uint16_t ko_net_port(const union ko_net *a);
void ko_net_set_port(union ko_net *a, uint16_t port);

/* The number without the port. */
const char *ko_net_text(const union ko_net *a, char out[KO_NET_TEXT]);

/* Same address, whatever the ports. */
int ko_net_same(const union ko_net *a, const union ko_net *b);

#endif
