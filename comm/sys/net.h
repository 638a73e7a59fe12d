/* TCP: names to addresses, the interface that KOLO_IFACE names, listening and connecting. Functions
 * may block only where they say so. */
#ifndef COMM_SYS_NET_H
#define COMM_SYS_NET_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { KO_NET_MAX = 8, KO_NET_TEXT = INET6_ADDRSTRLEN };

/* An IPv4 or IPv6 address with a port. */
union ko_net {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Finds at most KO_NET_MAX addresses of `host`, a name or a number, in the resolver's order. May
 * ask name servers, and blocks then. Asks up to three times if they fail for the moment.
 *
 * Errors: KOLO_EUNREACH, with the resolver's reason. */
int ko_net_resolve(const char *host, union ko_net out[KO_NET_MAX], int *n);

/* Finds the addresses of the first interface that KOLO_IFACE lists. An interface may also be given
 * by one of its addresses. *n is 0 if KOLO_IFACE is unset.
 *
 * Errors: KOLO_EINVAL if there is no such interface, or it has no address; the text lists the
 * interfaces. */
int ko_net_iface(union ko_net out[KO_NET_MAX], int *n);

/* An interface, and one of its addresses. */
struct ko_iface {
	char name[IF_NAMESIZE]; /* "": none, so that the kernel chooses */
	union ko_net at;
};

/* Finds the interface of rail `k`: number k in KOLO_IFACE, which starts again at its end. Its name
 * is
 * "" unless KOLO_IFACE lists several. The same errors. */
int ko_net_rail(int k, struct ko_iface *out);

/* Does the kernel's TCP wait between the packets that it sends (congestion control bbr)? Errors:
 * KOLO_ESYS, if there are no more descriptors or no memory. */
int ko_net_paces(bool *out);

/* Does KOLO_IFACE list several interfaces? */
bool ko_net_names_rails(void);

/* Bytes that have left through the interface, and have come through it, modulo 2^32. Returns -1 if
 * they are not known. */
int ko_net_carried(const char *name, uint32_t *out, uint32_t *in);

/* Opens a listening, non-blocking socket on `at`. If the port is 0, the kernel chooses one and `at`
 * gets it. Returns the socket, or -1 with errno. */
int ko_net_listen(union ko_net *at);

/* Starts to connect to `to` without waiting, through the interface `by` alone (NULL, or without a
 * name: the kernel's choice). Returns a non-blocking socket, or -1 with errno. */
int ko_net_start(const union ko_net *to, const struct ko_iface *by);

/* Is the connection made? Waits `ms` milliseconds at most. 1: yes; 0: not yet; -1 with errno: it
 * failed. */
int ko_net_is_through(int fd, int ms);

/* Connects to `to`, and waits until `deadline` (ko_now_ms()) at most. Returns a non-blocking
 * socket, or -1 with errno (EAGAIN: the deadline has passed). */
int ko_net_dial(const union ko_net *to, int64_t deadline);

/* Makes small messages leave at once (TCP_NODELAY). */
void ko_net_hurry(int fd);

/* From now on the kernel acknowledges a small message that was read with bytes that go back, with
 * the next one, or after 40 ms. This is not permanent (tcp(7), TCP_QUICKACK). */
void ko_net_acknowledge_later(int fd);

/* Does what ko_net_hurry does. The kernel also reports a connection as broken if the other host is
 * silent for about 20 s. Bytes that nobody reads for 20 s count as silence too. */
void ko_net_keep_alive(int fd);

/* Is it an address that only its own host can reach? */
int ko_net_is_loopback(const union ko_net *a);

socklen_t ko_net_len(const union ko_net *a);
uint16_t ko_net_port(const union ko_net *a);
void ko_net_set_port(union ko_net *a, uint16_t port);

/* Writes the address as a number, without the port, into `out`. Returns out. */
const char *ko_net_text(const union ko_net *a, char out[KO_NET_TEXT]);

/* Are the addresses equal? Ports do not count. */
int ko_net_same(const union ko_net *a, const union ko_net *b);

#endif
