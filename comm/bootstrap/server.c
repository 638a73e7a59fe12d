/* Serves a meeting point on a thread of its own (ko_boot_serve), until all ranks have the table or
 * joining has failed. A connection that does not know the secret is dropped and logged; it ends
 * nothing. Ranks that know the secret and contradict each other end the job at once, with a text
 * that names them. */
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/bootstrap/wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	SILENT_MS = 10000, /* ms that a connection has to say hello */
	/* connections without a hello; if one more comes the oldest is dropped */
	MAX_STRANGERS = 64,
	LAST_MS = 500, /* ms, after a failure, for ranks that come just then */
	/* ms for which a connection is too young to be dropped: many ranks may start at once */
	YOUNG_MS = 1000,
};

/* One connection. joined: its hello has been accepted. */
struct guest {
	int fd, joined;
	size_t got; /* bytes of `hello` read so far */
	int64_t since;
	struct ko_boot_hello hello;
};

struct server {
	int listener;
	unsigned char secret[KO_SECRET], proof[KO_TOKEN];
	uint64_t tag;
	int nranks, joined;    /* nranks is 0 until the first rank has joined */
	struct guest **guests; /* nguests of them; there is room for `room` */
	struct pollfd *polls;  /* room + 1: the first is for the listener */
	size_t nguests, room;
	int code; /* not 0: joining has failed; all ranks get code and text */
	char text[KO_TEXT];
};

/* Ends the job with this cause. The first cause stays. */
static void fail(struct server *s, int code, const char *text)
{
	if (s->code)
		return;
	s->code = code;
	snprintf(s->text, sizeof(s->text), "%s", text);
	ko_log(NULL, KOLO_LOG_WARN, "boot: %s", text);
}

static void answer(const struct server *s, const struct guest *g, int code, const char *text,
		   const struct ko_entry *table, int nranks)
{
	struct ko_boot_reply reply = { .magic = KO_BOOT_MAGIC, .code = code };
	struct timeval patience = { .tv_sec = 10 };

	snprintf(reply.text, sizeof(reply.text), "%s", text);
	memcpy(reply.proof, s->proof, sizeof(reply.proof));
	setsockopt(g->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (send(g->fd, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply))
		return;
	if (table && send(g->fd, table, (size_t)nranks * sizeof(*table), MSG_NOSIGNAL) < 0)
		ko_log(NULL, KOLO_LOG_WARN, "boot: rank %d went away before it got the table",
		       g->hello.entry.rank);
}

static void drop(struct server *s, size_t i)
{
	char rest[256];

	/* Shutdown ends the connection even if a child that was forked meanwhile holds the socket.
	 * Unread bytes would turn the close into a reset, which overtakes an answer. A guest that
	 * sends more than this may get a reset. */
	shutdown(s->guests[i]->fd, SHUT_WR);
	for (int k = 0; k < 64 && recv(s->guests[i]->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; k++)
		;
	close(s->guests[i]->fd);
	free(s->guests[i]);
	s->guests[i] = s->guests[--s->nguests];
}

/* ---- One hello ------------------------------------------------------------------------------- */

static int equal_secrets(const unsigned char *a, const unsigned char *b)
{
	unsigned char diff = 0;

	for (int i = 0; i < KO_SECRET; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}

static const struct ko_entry *find_rank(const struct server *s, int rank)
{
	for (size_t i = 0; i < s->nguests; i++)
		if (s->guests[i]->joined && s->guests[i]->hello.entry.rank == rank)
			return &s->guests[i]->hello.entry;
	return NULL;
}

static const struct ko_entry *any_rank(const struct server *s)
{
	for (size_t i = 0; i < s->nguests; i++)
		if (s->guests[i]->joined)
			return &s->guests[i]->hello.entry;
	return NULL;
}

/* Gives a guest that knows the secret its place. If it contradicts another rank, the job ends. */
static void seat(struct server *s, struct guest *g)
{
	const struct ko_entry *e = &g->hello.entry, *other = any_rank(s);
	char text[KO_TEXT];

	if (other && other->nranks != e->nranks) {
		snprintf(
			text, sizeof(text),
			"rank %d (pid %d on %s) says the job has %d ranks, but rank %d (pid %d on %s) says %d",
			e->rank, e->pid, e->place.host, e->nranks, other->rank, other->pid,
			other->place.host, other->nranks);
		fail(s, KOLO_EINVAL, text);
	} else if ((other = find_rank(s, e->rank))) {
		snprintf(text, sizeof(text),
			 "two processes say they are rank %d: pid %d on %s and pid %d on %s",
			 e->rank, other->pid, other->place.host, e->pid, e->place.host);
		fail(s, KOLO_EINVAL, text);
	} else {
		s->nranks = e->nranks;
		s->joined++;
	}
	g->joined = 1;
	g->since = ko_now_ms();
}

/* Checks what a guest has said so far. -1: drop the guest. */
static int consider(struct server *s, struct guest *g)
{
	const struct ko_boot_hello *h = &g->hello;
	char text[KO_TEXT];

	if (g->got < offsetof(struct ko_boot_hello, secret))
		return 0;
	if (h->magic != KO_BOOT_MAGIC) {
		ko_log(NULL, KOLO_LOG_WARN, "boot: dropped a connection that does not speak Kolo");
		return -1;
	}
	if (h->version != KO_BOOT_VERSION || h->size != sizeof(*h)) {
		snprintf(
			text, sizeof(text),
			"a rank uses version %u of Kolo's boot protocol, but the meeting point is served with version "
			"%d: use the same Kolo for all ranks",
			h->version, KO_BOOT_VERSION);
		ko_log(NULL, KOLO_LOG_WARN, "boot: dropped: %s", text);
		answer(s, g, KOLO_ENOTSUP, text, NULL, 0);
		return -1;
	}
	if (g->got < sizeof(*h))
		return 0;
	if (!equal_secrets(h->secret, s->secret) || !ko_boot_check(&g->hello.entry)) {
		ko_log(NULL, KOLO_LOG_WARN,
		       "boot: dropped a connection that does not know the id's secret");
		return -1;
	}
	seat(s, g);
	return 0;
}

/* The guest's socket can be read. -1: drop the guest. */
static int hear_guest(struct server *s, struct guest *g)
{
	char extra;
	ssize_t got;

	if (g->joined) {
		char text[KO_TEXT];

		if (recv(g->fd, &extra, 1, MSG_DONTWAIT) != 0)
			return 0;
		snprintf(text, sizeof(text),
			 "rank %d (pid %d on %s) ended or gave up before all ranks had joined",
			 g->hello.entry.rank, g->hello.entry.pid, g->hello.entry.place.host);
		fail(s, KOLO_EPEER, text);
		return -1;
	}
	got = recv(g->fd, (char *)&g->hello + g->got, sizeof(g->hello) - g->got, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got <= 0) {
		ko_log(NULL, KOLO_LOG_WARN, "boot: a connection ended without a hello");
		return -1;
	}
	g->got += (size_t)got;
	return consider(s, g);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static int make_room(struct server *s)
{
	size_t room = s->room ? 2 * s->room : 16;
	struct guest **guests;
	struct pollfd *polls;

	if (s->nguests < s->room)
		return 0;
	guests = realloc(s->guests, room * sizeof(struct guest *));
	if (guests)
		s->guests = guests;
	polls = realloc(s->polls, (room + 1) * sizeof(*polls));
	if (polls)
		s->polls = polls;
	if (!guests || !polls)
		return KOLO_ENOMEM;
	s->room = room;
	return 0;
}

/* Drops the stranger that has been silent longest, if there are too many. */
static void limit_strangers(struct server *s)
{
	size_t oldest = 0, strangers = 0;

	for (size_t i = 0; i < s->nguests; i++) {
		if (s->guests[i]->joined)
			continue;
		if (strangers++ == 0 || s->guests[i]->since < s->guests[oldest]->since)
			oldest = i;
	}
	if (strangers < MAX_STRANGERS || ko_now_ms() - s->guests[oldest]->since < YOUNG_MS)
		return;
	ko_log(NULL, KOLO_LOG_WARN, "boot: dropped a silent connection: there were too many");
	drop(s, oldest);
}

/* Does the connection come from this user? Anybody on the host may connect to an abstract
 * socket. */
static bool same_user(int fd)
{
	struct sockaddr_storage at;
	socklen_t at_len = sizeof(at), len = sizeof(struct ucred);
	struct ucred cred;

	if (getsockname(fd, (struct sockaddr *)&at, &at_len) < 0 || at.ss_family != AF_UNIX)
		return true;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == geteuid();
}

static void welcome(struct server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
	struct ko_boot_greeting greeting = { .magic = KO_BOOT_MAGIC, .tag = s->tag };
	struct guest *g;

	if (fd < 0) {
		/* Probably out of descriptors. The connection stays in the queue, so wait before
		 * the next try. */
		if (errno != EAGAIN)
			ko_log(NULL, KOLO_LOG_WARN, "boot: accept: %s", strerror(errno));
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		return;
	}
	if (!same_user(fd)) {
		ko_log(NULL, KOLO_LOG_WARN, "boot: dropped a connection of another user");
		close(fd);
		return;
	}
	limit_strangers(s);
	send(fd, &greeting, sizeof(greeting),
	     MSG_NOSIGNAL | MSG_DONTWAIT); /* if this fails, the end of the connection shows next */
	g = make_room(s) == 0 ? calloc(1, sizeof(*g)) : NULL;
	if (!g) {
		ko_log(NULL, KOLO_LOG_WARN, "boot: dropped a connection: out of memory");
		close(fd);
		return;
	}
	*g = (struct guest){ .fd = fd, .since = ko_now_ms() };
	s->guests[s->nguests++] = g;
}

/* Writes the ranks that are missing, "3, 5 and 2 more". */
static void list_missing(const struct server *s, char *out, size_t room)
{
	int shown = 0;

	out[0] = 0;
	for (int r = 0; r < s->nranks && shown < 16; r++) {
		size_t at = strlen(out);

		if (!find_rank(s, r))
			snprintf(out + at, room - at, "%s%d", shown++ ? ", " : "", r);
	}
	if (s->nranks - s->joined > shown)
		snprintf(out + strlen(out), room - strlen(out), " and %d more",
			 s->nranks - s->joined - shown);
}

/* Drops strangers that say nothing. Ends the job if a rank has waited too long. */
static void check_time(struct server *s)
{
	int64_t now = ko_now_ms();

	for (size_t i = s->nguests; i-- > 0;) {
		const struct guest *g = s->guests[i];
		char missing[128], text[KO_TEXT];

		if (!g->joined && now - g->since > SILENT_MS) {
			ko_log(NULL, KOLO_LOG_WARN,
			       "boot: dropped a connection that said nothing for %d s",
			       SILENT_MS / 1000);
			drop(s, i);
		} else if (g->joined && g->hello.timeout_ms &&
			   now - g->since > g->hello.timeout_ms) {
			list_missing(s, missing, sizeof(missing));
			snprintf(
				text, sizeof(text),
				"rank %d waited %d s for all %d ranks to join; missing: %s. Were they started, with the same "
				"meeting point?",
				g->hello.entry.rank, g->hello.timeout_ms / 1000, s->nranks,
				missing);
			fail(s, KOLO_ETIMEDOUT, text);
			return;
		}
	}
}

/* Is there something to wait for? After a failure, ranks that have not said hello yet may still
 * come, to get the cause. */
static bool go_on(const struct server *s, int64_t *until)
{
	int heard = 0, dead = s->code == KOLO_EPEER;

	if (s->code == 0)
		return s->nranks == 0 || s->joined < s->nranks;
	if (*until == 0)
		*until = ko_now_ms() + LAST_MS;
	for (size_t i = 0; i < s->nguests; i++)
		heard += s->guests[i]->joined;
	return ko_now_ms() < *until && heard < s->nranks - dead;
}

/* Serves until all have joined, or s->code is the cause why not. */
static void gather(struct server *s)
{
	int64_t until = 0;

	while (go_on(s, &until)) {
		size_t n = s->nguests;

		s->polls[0] = (struct pollfd){ .fd = s->listener, .events = POLLIN };
		for (size_t i = 0; i < n; i++)
			s->polls[i + 1] =
				(struct pollfd){ .fd = s->guests[i]->fd, .events = POLLIN };
		/* Without guests nothing can time out: sleep until somebody connects. */
		poll(s->polls, n + 1, n || s->code ? 100 : -1);
		/* From the last guest down: a dropped guest's place goes to the last one, which has
		 * been looked at. */
		for (size_t i = n; i-- > 0;)
			if (s->polls[i + 1].revents && hear_guest(s, s->guests[i]) < 0)
				drop(s, i);
		if (s->polls[0].revents)
			welcome(s);
		check_time(s);
	}
}

static void send_tables(struct server *s)
{
	struct ko_entry *table = s->code ? NULL : calloc((size_t)s->nranks, sizeof(*table));

	if (!s->code && !table)
		fail(s, KOLO_ENOMEM, "no memory for the table of ranks where they meet");
	for (size_t i = 0; table && i < s->nguests; i++)
		if (s->guests[i]->joined)
			table[s->guests[i]->hello.entry.rank] = s->guests[i]->hello.entry;
	/* This process's own rank comes last: once it has the table, it may end the process, and
	 * this thread too. */
	for (int own = 0; own < 2; own++)
		for (size_t i = 0; i < s->nguests; i++)
			if (s->guests[i]->joined &&
			    own == (s->guests[i]->hello.entry.pid == getpid()))
				answer(s, s->guests[i], s->code, s->text, table, s->nranks);
	free(table);
}

static void free_server(struct server *s)
{
	if (s->listener >= 0)
		close(s->listener);
	while (s->nguests)
		drop(s, s->nguests - 1);
	free(s->guests);
	free(s->polls);
	free(s);
}

static void *serve(void *arg)
{
	struct server *s = arg;

	gather(s);
	/* Closed first, and shut down for children that were forked meanwhile: a rank that comes
	 * now learns at once that it is too late. */
	shutdown(s->listener, SHUT_RDWR);
	close(s->listener);
	s->listener = -1;
	send_tables(s);
	free_server(s);
	return NULL;
}

/* ---- Starting it ----------------------------------------------------------------------------- */

/* Starts the thread that serves, without signals: those are for the program's threads. */
static int start_thread(struct server *s)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, &attr, serve, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return err ? ko_fail(KOLO_ESYS, "starting the thread that serves the meeting point: %s",
			     strerror(err))
		   : 0;
}

int ko_boot_serve(const struct ko_meeting *m, int listener)
{
	struct server *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		close(listener);
		return ko_fail(KOLO_ENOMEM, "no memory to serve %s", m->what);
	}
	s->listener = listener;
	s->tag = m->tag;
	memcpy(s->secret, m->secret, sizeof(s->secret));
	memcpy(s->proof, m->proof, sizeof(s->proof));
	rc = make_room(s) < 0 ? ko_fail(KOLO_ENOMEM, "no memory to serve %s", m->what)
			      : start_thread(s);
	if (rc < 0)
		free_server(s);
	return rc;
}
