#include "tools/ringrun/peers.h"

#include "tools/common/tool.h"
#include "tools/ringrun/agent/agent.h"
#include "tools/ringrun/base/processes.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	MAX_STRANGERS = 1024, /* at a time: more wait in the kernel's queue */
	MAX_HELLO = 4096,
	HELLO_MS = 10000, /* until a stranger must have said who it is */
};

struct stranger {
	struct wire wire;
	int64_t until;
};

/* ---- Agents on this host --------------------------------------------------------------------- */

/* A child that keeps the ranks of this host. It dies with us, and we adopt what it leaves. */
static int start_here(const struct peers *p, struct peer *peer)
{
	pid_t top = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	peer->here = fork();
	if (peer->here == 0) {
		struct wire wire;

		close(ends[0]);
		for (int k = 0; k < peer - p->at; k++) /* they would not see us close them */
			wire_close(&p->at[k].wire);
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		prctl(PR_SET_PDEATHSIG, orphaned());
		wire_init(&wire, ends[1], MAX_MESSAGE);
		_exit(getppid() == top ? agent_run(&wire) : EXIT_OWN);
	}
	close(ends[1]);
	wire_init(&peer->wire, ends[0], MAX_MESSAGE);
	if (peer->here < 0) {
		peer->here = 0;
		return -1;
	}
	peer->state = JOINED;
	return 0;
}

int peers_open(struct peers *p, const struct plan *plan)
{
	*p = (struct peers){ .plan = plan, .door.fd = -1, .n = plan->hosts.n };
	p->at = need(calloc((size_t)p->n, sizeof(*p->at)));
	p->strangers = need(calloc(MAX_STRANGERS, sizeof(*p->strangers)));
	for (int k = 0; k < p->n; k++) {
		const struct host *host = &plan->hosts.at[k];

		p->at[k] = (struct peer){ .host = host, .wire.fd = -1, .left = host->nranks };
		p->awaited += !plan->here[k];
	}
	for (int k = 0; k < p->n; k++) {
		if (plan->here[k] && start_here(p, &p->at[k]) < 0) {
			complain("starting the process that keeps the ranks");
			return -1;
		}
	}
	return p->awaited ? door_open(&p->door) : 0;
}

/* ---- Agents of other hosts ------------------------------------------------------------------- */

int peers_door(const struct peers *p)
{
	return p->nstrangers < MAX_STRANGERS ? p->door.fd : -1;
}

void peers_accept(struct peers *p)
{
	int fd;

	while (p->nstrangers < MAX_STRANGERS &&
	       (fd = accept4(p->door.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct stranger *s = &p->strangers[p->nstrangers++];

		set_up_connection(fd);
		wire_init(&s->wire, fd, MAX_HELLO);
		s->until = now_ms() + HELLO_MS;
	}
}

int peers_strangers(const struct peers *p, struct pollfd *out)
{
	for (int i = 0; i < p->nstrangers; i++)
		out[i] = (struct pollfd){ .fd = p->strangers[i].wire.fd, .events = POLLIN };
	return p->nstrangers;
}

/* The one that shows the secret becomes a peer; the wire goes with it. */
static struct peer *admit(struct peers *p, struct stranger *s, const struct message *m)
{
	char own[VERSION_TEXT];
	struct hello hello;
	struct peer *peer;

	if (!door_read_hello(&p->door, m, &hello))
		return NULL;
	peer = hello.node >= 0 && hello.node < p->n ? &p->at[hello.node] : NULL;
	p->refused = peer ? peer : &p->at[0];
	tool_version_text(own);
	if (strcmp(hello.version, own) != 0) {
		say("%s has Kolo %s, and this host has %s: install the same version on all hosts",
		    hello.name, hello.version, own);
		return NULL;
	}
	if (!peer || peer->state != AWAITED) {
		say("an agent on %s (host number %d) is %s", hello.name, hello.node,
		    peer ? "the second of that host" : "none of the job's");
		return NULL;
	}
	p->refused = NULL;
	door_answer(&p->door, &s->wire);
	peer->wire = s->wire;
	peer->wire.limit = MAX_MESSAGE;
	peer->state = JOINED;
	s->wire = (struct wire){ .fd = -1 };
	p->awaited--;
	return peer;
}

/* Closes the gap. */
static void drop_stranger(struct peers *p, int i)
{
	wire_close(&p->strangers[i].wire);
	p->strangers[i] = p->strangers[--p->nstrangers];
}

struct peer *peers_hear(struct peers *p, const struct pollfd *polls, int n)
{
	for (int i = n - 1; i >= 0; i--) { /* from the end: dropping one moves the last */
		struct stranger *s = &p->strangers[i];
		struct peer *peer = NULL;
		struct message m;
		int got;

		if (!polls[i].revents || polls[i].fd != s->wire.fd)
			continue;
		got = wire_read(&s->wire) < 0 ? -1 : wire_next(&s->wire, &m);
		if (got == 0)
			continue;
		if (got > 0)
			peer = admit(p, s, &m);
		drop_stranger(p, i);
		if (peer)
			return peer;
	}
	return NULL;
}

void peers_drop_strangers(struct peers *p, bool all)
{
	for (int i = p->nstrangers - 1; i >= 0; i--)
		if (all || now_ms() > p->strangers[i].until)
			drop_stranger(p, i);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static char *text_of(const struct sockaddr_storage *at, socklen_t len)
{
	char text[NI_MAXHOST] = "";

	getnameinfo((const struct sockaddr *)at, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
	return need(strdup(strncmp(text, "::ffff:", 7) == 0 ? text + 7 : text));
}

/* The first host is the one that agent 0 has come from. Where it is this host, it is the address
 * that another host's agent has come to. */
char *peers_master(const struct peers *p)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	if (p->plan->options->master_addr)
		return need(strdup(p->plan->options->master_addr));
	if (!p->at[0].here && getpeername(p->at[0].wire.fd, (struct sockaddr *)&at, &len) == 0)
		return text_of(&at, len);
	for (int k = 1; k < p->n; k++)
		if (!p->at[k].here &&
		    getsockname(p->at[k].wire.fd, (struct sockaddr *)&at, &len) == 0)
			return text_of(&at, len);
	return need(strdup("127.0.0.1"));
}

const char *peers_awaited_text(const struct peers *p, char out[AWAITED_TEXT])
{
	size_t at = 0;
	int named = 0;

	out[0] = 0;
	for (int k = 0; k < p->n && named < p->awaited; k++) {
		if (p->at[k].state != AWAITED)
			continue;
		if (at > AWAITED_TEXT / 2) {
			snprintf(out + at, AWAITED_TEXT - at, " and %d more", p->awaited - named);
			break;
		}
		at += (size_t)snprintf(out + at, AWAITED_TEXT - at, "%s%.150s", named ? ", " : "",
				       p->at[k].host->name);
		named++;
	}
	return out;
}
