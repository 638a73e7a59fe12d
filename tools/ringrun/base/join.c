#include "tools/ringrun/base/join.h"

#include "kolo/kolo.h"
#include "tools/common/tool.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	WIRE = 0x6b6f6c01,   /* of both ends: another number is another protocol or byte order */
	LINE_ROOM = 1 << 20, /* of the secret's line, which has the names of all hosts */
	CONNECT_MS = 3000,   /* for each address; the next may be the right one */
	ANSWER_MS = 30000,   /* of a first ringrun that is busy with many agents */
	READ_MS = 15000,     /* until the launcher has passed on the line */
};
static const char magic[] = "ringrun-1";

/* ---- The first ringrun ----------------------------------------------------------------------- */

static int make_secret(char out[SECRET])
{
	unsigned char bytes[(SECRET - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -1;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

int door_open(struct door *d)
{
	*d = (struct door){ 0 };
	d->fd = socket_listen(&d->port);
	if (d->fd >= 0 && make_secret(d->secret) == 0 && make_secret(d->proof) == 0)
		return 0;
	complain("opening a port for the agents");
	return -1;
}

void door_close(struct door *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

/* "10.0.0.1,192.168.0.1": the addresses of this host that another host may reach. Loopback comes
 * last, for an agent on this host. */
static void add_addresses(struct bytes *out)
{
	struct ifaddrs *list = NULL;
	char text[NI_MAXHOST];
	bool first = true;

	if (getifaddrs(&list) < 0)
		list = NULL;
	for (int loopback = 0; loopback < 2; loopback++)
		for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
			int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
			socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in)
							  : sizeof(struct sockaddr_in6);

			if ((family != AF_INET && family != AF_INET6) || !(i->ifa_flags & IFF_UP) ||
			    !!(i->ifa_flags & IFF_LOOPBACK) != loopback ||
			    getnameinfo(i->ifa_addr, len, text, sizeof(text), NULL, 0,
					NI_NUMERICHOST) ||
			    strchr(text, '%')) /* of one link only */
				continue;
			bytes_add(out, ",", !first);
			bytes_add(out, text, strlen(text));
			first = false;
		}
	freeifaddrs(list);
}

char *door_line(const struct door *d, int node, char *const *hosts)
{
	struct bytes line = { 0 };
	char head[128];

	bytes_add(&line, head,
		  (size_t)snprintf(head, sizeof(head), "%s %s %s %d %d ", magic, d->secret,
				   d->proof, node, d->port));
	add_addresses(&line);
	bytes_add(&line, " -", 2 * (size_t)!hosts[0]);
	for (int i = 0; hosts[i]; i++) {
		bytes_add(&line, i ? "," : " ", 1);
		bytes_add(&line, hosts[i], strlen(hosts[i]));
	}
	bytes_add(&line, "\n", 2);
	return line.at;
}

/* Takes the same time wherever they differ. */
static bool is_secret(const char *a, const char *b)
{
	unsigned char differs = strlen(a) != strlen(b);

	for (size_t i = 0; !differs && a[i]; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return !differs;
}

bool door_read_hello(const struct door *d, const struct message *m, struct hello *out)
{
	struct reader r = { .at = m->data, .end = m->data + m->len };

	if (m->kind != MSG_HELLO || m->number != WIRE || !is_secret(get_text(&r), d->secret))
		return false;
	out->node = (int)get_number(&r);
	out->name = get_text(&r);
	out->version = get_text(&r);
	return !r.bad;
}

void door_answer(const struct door *d, struct wire *w)
{
	wire_put(w, MSG_HELLO, WIRE, d->proof, sizeof(d->proof));
}

void set_up_connection(int fd)
{
	/* On a connection that is idle the kernel asks after 5, 8 and 11 s. */
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 5 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 3 },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			   sizeof(options[i].value));
}

/* The kernel's own limits won't do. Keepalive's begins again whenever something is sent, and
 * TCP_USER_TIMEOUT also ends a connection whose other end answers and has no room. That one is
 * asked ever more rarely: hence a number of questions that must have had no answer. */
int cut_off_in(int fd)
{
	enum { ASKED = 2, AGAIN_MS = 500 };
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return -1;
	if (info.tcpi_last_ack_recv < CUT_OFF_MS)
		return (int)(CUT_OFF_MS - info.tcpi_last_ack_recv);
	return info.tcpi_probes >= ASKED || info.tcpi_retransmits >= ASKED ? 0 : AGAIN_MS;
}

/* ---- The agent ------------------------------------------------------------------------------- */

/* Where the first ringrun is. The texts are in one piece of memory. */
struct place {
	char *secret, *proof, *addresses, *hosts;
	int node, port;
};

/* Byte by byte: what follows on standard input is not ours. */
static int read_line(int fd, char *out, size_t room)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	for (size_t at = 0; at < room; at++) {
		if (poll(&wait, 1, READ_MS) <= 0 || read(fd, out + at, 1) != 1)
			return -1;
		if (out[at] == '\n') {
			out[at] = 0;
			return 0;
		}
	}
	return -1;
}

/* Only this user may have written the file, and nobody else may read it. */
static int open_file(const char *path)
{
	struct stat s;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char own[256] = "";

	if (fd < 0) {
		int err = errno;

		gethostname(own, sizeof(own) - 1); /* not all launchers say whose line it is */
		return say(
			"reading %s, which the first ringrun has written, on %s: %s; this launcher passes "
			"on no input, so the folder must be on all hosts: start in one that is, or use --launcher "
			"ssh",
			path, own, strerror(err));
	}
	if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() &&
	    (s.st_mode & 077) == 0)
		return fd;
	say("%s is not a file that only this user may read", path);
	close(fd);
	return -1;
}

static int read_place(const char *where, struct place *out)
{
	bool input = strcmp(where, "-") == 0;
	char *line = need(malloc(LINE_ROOM)), *words[7];
	int fd = input ? STDIN_FILENO : open_file(where), n = 0, rc;

	if (fd < 0)
		return -1;
	rc = read_line(fd, line, LINE_ROOM);
	if (!input)
		close(fd);
	for (char *word = rc < 0 ? NULL : strtok(line, " "); word && n < 7;
	     word = strtok(NULL, " "))
		words[n++] = word;
	if (n != 7 || strcmp(words[0], magic) != 0) {
		return say(
			"--agent is for ringrun itself: it got no line of the first ringrun on %s",
			input ? "standard input" : where);
	}
	*out = (struct place){ .secret = words[1],
			       .proof = words[2],
			       .node = atoi(words[3]),
			       .port = atoi(words[4]),
			       .addresses = words[5],
			       .hosts = words[6] };
	return 0;
}

/* The variables in which launchers that start one process on each host number these. */
static int number_of_environment(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
					     "PMI_RANK", "PMIX_RANK" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return -1;
}

/* The host's number, by its place in the launcher's list. Slurm numbers hosts in an order of its
 * own: there the name counts. */
static int find_node(const char *hosts, int place)
{
	const char *own = getenv("SLURMD_NODENAME");

	place = place >= 0 ? place : number_of_environment();
	for (const char *at = hosts; *at; place--) {
		size_t len = strcspn(at, ","), number = strcspn(at, "=") + 1;

		if (own ? strlen(own) == len - number && memcmp(at + number, own, len - number) == 0
			: place == 0)
			return atoi(at);
		at += len + (at[len] == ',');
	}
	return -1;
}

static int connect_to(const char *address, int port)
{
	struct pollfd wait = { .fd = socket_begin_to_connect(address, port), .events = POLLOUT };
	int err = ETIMEDOUT;
	socklen_t len = sizeof(err);

	if (wait.fd < 0)
		return -1;
	if (poll(&wait, 1, CONNECT_MS) == 1)
		getsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err == 0)
		return wait.fd;
	close(wait.fd);
	errno = err;
	return -1;
}

/* ssh says by which address the first ringrun has come: that one is tried first. */
static int connect_first(struct place *p)
{
	const char *by_ssh = getenv("SSH_CONNECTION");
	char *first = by_ssh ? need(strndup(by_ssh, strcspn(by_ssh, " "))) : NULL;
	char *list = need(strdup(p->addresses));
	int fd = first ? connect_to(first, p->port) : -1;

	for (char *at = strtok(list, ","); fd < 0 && at; at = strtok(NULL, ","))
		fd = connect_to(at, p->port);
	if (fd < 0)
		say("the first ringrun can't be reached from here at port %d of %s (last: %s); let its "
		    "host accept connections from the hosts of its jobs (firewall), or start from a host that "
		    "they reach",
		    p->port, p->addresses, strerror(errno));
	free(list);
	free(first);
	return fd;
}

/* Waits for the first message, which is the proof. */
static int check_proof(struct wire *w, const char *proof)
{
	struct pollfd wait = { .fd = w->fd, .events = POLLIN };
	int64_t until = now_ms() + ANSWER_MS;
	struct message m;

	for (;;) {
		int got = wire_next(w, &m), left = cut_off_in(w->fd);

		if (got > 0)
			return m.kind == MSG_HELLO && m.len == strlen(proof) + 1 &&
					       !m.data[m.len - 1] && is_secret(m.data, proof)
				       ? 0
				       : -1;
		if (got < 0 || left <= 0 || now_ms() > until || poll(&wait, 1, left) < 0 ||
		    wire_read(w) < 0)
			return -1;
	}
}

int join_first(const char *where, int node, struct wire *out)
{
	char version[VERSION_TEXT], name[256] = "";
	struct bytes hello = { 0 };
	struct place p = { 0 };
	int fd;

	if (read_place(where, &p) < 0 || (fd = connect_first(&p)) < 0)
		return -1;
	set_up_connection(fd);
	gethostname(name, sizeof(name) - 1);
	put_text(&hello, p.secret);
	put_number(&hello, p.node >= 0 ? p.node : find_node(p.hosts, node));
	put_text(&hello, name);
	put_text(&hello, tool_version_text(version));
	wire_init(out, fd, MAX_MESSAGE);
	wire_put(out, MSG_HELLO, WIRE, hello.at, hello.len);
	bytes_free(&hello);
	if (check_proof(out, p.proof) == 0)
		return 0;
	fputs("ringrun: the first ringrun did not accept this host: see what it says\n", stderr);
	wire_close(out);
	return -1;
}
