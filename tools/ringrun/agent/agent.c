#include "tools/ringrun/agent/agent.h"

#include "kolo/kolo.h"
#include "tools/ringrun/agent/look.h"
#include "tools/ringrun/agent/ranks.h"
#include "tools/ringrun/base/join.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/texts.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	WINDOW = 262144, /* bytes of output on their way to the first ringrun's reader */
	WHY = 1024,
};

struct agent {
	struct wire wire;
	int signals;
	struct job job;
	struct ranks ranks;
	bool started;       /* the ranks */
	bool cleaned;       /* what they had left is ended */
	bool finished;      /* MSG_DONE is sent */
	int64_t window;     /* how many more bytes of output may be sent */
	struct bytes input; /* for rank 0, not written yet */
	bool input_ends;    /* after that */
	int64_t deadline;   /* when to go on with ending the ranks; 0: no need */
	int next_signal;    /* what they get then */
	struct pollfd *polls;
};

/* The first ringrun is gone, or the process above: nobody is left to tell. */
static _Noreturn void give_up(const struct agent *a)
{
	end_descendants();
	if (a->job.pid_file)
		unlink(a->job.pid_file);
	_exit(EXIT_OWN);
}

static void begin_to_end(struct agent *a)
{
	if (!a->deadline)
		a->deadline = now_ms() + GRACE_MS;
}

static void report_failure(struct agent *a, const char *why)
{
	wire_put(&a->wire, MSG_FAILED, 0, why, strlen(why) + 1);
	a->next_signal = SIGKILL;
	a->deadline = now_ms();
}

/* ---- The meeting point ----------------------------------------------------------------------- */

/* Chooses MASTER_PORT. Returns -1 if the one that was asked for is taken. */
static int choose_port(int asked)
{
	int port = asked < 0 ? DEFAULT_MASTER_PORT : asked;

	if (look_for_port(&port))
		return port;
	port = 0;
	return asked < 0 && look_for_port(&port) ? port : -1;
}

/* KOLO_IFACE decides where the id is served. Ranks of other hosts must reach it, so without the
 * user's own it is this address for a moment. */
static int create_id(const struct job *job, const char *address, struct kolo_id *out)
{
	const char *own = getenv("KOLO_IFACE");
	char numeric[NI_MAXHOST], *before = own ? need(strdup(own)) : NULL;
	struct addrinfo *found = NULL;
	int rc;

	for (int i = 0; !own && job->environment[i]; i++)
		if (strncmp(job->environment[i], "KOLO_IFACE=", 11) == 0)
			own = job->environment[i] + 11;
	if (!own && *address && getaddrinfo(address, NULL, NULL, &found) == 0 &&
	    getnameinfo(found->ai_addr, found->ai_addrlen, numeric, sizeof(numeric), NULL, 0,
			NI_NUMERICHOST) == 0)
		own = numeric;
	if (own)
		setenv("KOLO_IFACE", own, 1);
	rc = kolo_id_create(out);
	unsetenv("KOLO_IFACE");
	if (before)
		setenv("KOLO_IFACE", before, 1);
	free(before);
	if (found)
		freeaddrinfo(found);
	return rc;
}

static void serve(struct agent *a, const char *address)
{
	int port = a->job.root ? a->job.port : choose_port(a->job.port);
	char why[WHY];
	struct kolo_id id;

	if (a->job.root) {
		port = port < 0 ? DEFAULT_MASTER_PORT : port; /* all hosts must agree */
		wire_put(&a->wire, MSG_SERVED, port, NULL, 0);
	} else if (port < 0) {
		snprintf(why, sizeof(why),
			 "--master_port %d: %s; choose another port, or 0 for any that is free",
			 a->job.port,
			 errno == EADDRINUSE ? "another program listens there" : strerror(errno));
		report_failure(a, why);
	} else if (create_id(&a->job, address, &id) < 0) {
		report_failure(a, kolo_last_error());
	} else {
		wire_put(&a->wire, MSG_SERVED, port, &id, sizeof(id));
	}
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

static void start(struct agent *a, const struct message *m)
{
	struct reader r = { .at = m->data, .end = m->data + m->len };
	const char *id = get_text(&r), *master = get_text(&r);
	struct meeting meeting = { .id = *id ? id : NULL,
				   .master = *master ? master : NULL,
				   .port = (int)m->number };
	char why[WHY];

	a->started = true;
	if (ranks_start(&a->ranks, &a->job, &meeting, why, sizeof(why)) < 0)
		report_failure(a, why);
	if (a->job.pid_file) {
		FILE *file = fopen(a->job.pid_file, "wxe");

		for (int i = 0; file && i < a->job.nlocal; i++)
			fprintf(file, "%d %d\n", a->job.first + i, (int)a->ranks.at[i].pid);
		if (file)
			fclose(file);
		else
			say("--save_pid: %s: %s", a->job.pid_file, strerror(errno));
	}
}

static void pass_on(struct agent *a, struct lines *l)
{
	if (l->fd >= 0)
		a->window -= (int64_t)lines_pass_on(l, &a->wire);
}

static void report_ended(struct agent *a, int local, int wait_status)
{
	struct bytes text = { 0 };
	char *tail;

	for (int i = 0; wait_status && i < 2; i++)
		pass_on(a, &a->ranks.at[local].out[i]);
	tail = ranks_last_lines(&a->ranks, local);
	put_number(&text, wait_status);
	put_text(&text, wait_status ? tail : "");
	wire_put(&a->wire, MSG_ENDED, a->job.first + local, text.at, text.len);
	bytes_free(&text);
	free(tail);
	if (wait_status)
		begin_to_end(a);
}

static void reap(struct agent *a)
{
	int local, wait_status;

	while (ranks_reap(&a->ranks, &local, &wait_status))
		if (local >= 0)
			report_ended(a, local, wait_status);
}

/* ---- Input ----------------------------------------------------------------------------------- */

static void write_input(struct agent *a)
{
	ssize_t put = a->input.len ? write(a->ranks.input, a->input.at, a->input.len) : 0;

	if (put > 0) {
		bytes_drop(&a->input, (size_t)put);
		wire_put(&a->wire, MSG_TAKEN, put, NULL, 0);
	}
	if ((put < 0 && errno != EAGAIN && errno != EINTR) ||
	    (a->input_ends && a->input.len == 0)) {
		close(a->ranks.input); /* all is there, or rank 0 reads no more */
		a->ranks.input = -1;
	}
}

/* ---- --check --------------------------------------------------------------------------------- */

static void check(struct agent *a, const struct message *m)
{
	struct bytes text = { 0 };
	static struct facts facts; /* what it has allocated is held until the process ends */

	if (!job_read(&a->job, m->data, m->len)) {
		report_failure(a, "the description of the job is damaged");
		return;
	}
	look_at_host(&a->job, m->number, &facts);
	facts_write(&facts, &text);
	wire_put(&a->wire, MSG_FACTS, 0, text.at, text.len);
	bytes_free(&text);
}

static void try_others(struct agent *a, const struct message *m)
{
	struct reader r = { .at = m->data, .end = m->data + m->len };
	char **places = get_texts(&r);
	struct bytes text = { 0 };

	look_for_others(places, &text);
	wire_put(&a->wire, MSG_REACHED, 0, text.at, text.len);
	bytes_free(&text);
	texts_free(places);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void handle(struct agent *a, const struct message *m)
{
	switch (m->kind) {
	case MSG_JOB:
		if (!job_read(&a->job, m->data, m->len))
			report_failure(a, "the description of the job is damaged");
		break;
	case MSG_CHECK: check(a, m); break;
	case MSG_REACH: try_others(a, m); break;
	case MSG_SERVE: serve(a, m->len ? m->data : ""); break;
	case MSG_START: start(a, m); break;
	case MSG_WRITTEN: a->window += m->number; break;
	case MSG_INPUT:
		bytes_add(&a->input, m->data, m->len);
		a->input_ends |= m->len == 0;
		break;
	case MSG_SIGNAL: ranks_signal(&a->ranks, (int)m->number); break;
	case MSG_END:
		if (a->started)
			begin_to_end(a);
		a->started = true;
		break;
	default: break;
	}
}

static void handle_all(struct agent *a)
{
	struct message m;
	int got;

	while ((got = wire_next(&a->wire, &m)) > 0)
		handle(a, &m);
	if (got < 0)
		give_up(a);
}

static void take_signals(struct agent *a)
{
	struct signalfd_siginfo info;

	while (read(a->signals, &info, sizeof(info)) == sizeof(info)) {
		if ((int)info.ssi_signo == orphaned()) {
			wire_close(&a->wire); /* tells the first ringrun, before what follows */
			give_up(a);
		}
		if (info.ssi_signo == SIGCHLD)
			reap(a);
		else if (sent_to_us_alone(&info))
			ranks_signal(&a->ranks, (int)info.ssi_signo);
	}
}

/* What can be waited for: the first two always, then rank 0's input and the ranks' outputs. */
enum { POLL_SIGNALS, POLL_WIRE, POLL_INPUT, POLL_LINES };

/* In how many ms there is something to do although nothing happens; -1: never. */
static int timeout(const struct agent *a)
{
	int64_t left = a->deadline - now_ms();
	int quiet = cut_off_in(a->wire.fd);

	if (!a->deadline || a->finished || (quiet >= 0 && quiet < left))
		return quiet;
	return left > 0 ? (int)left : 0;
}

static void wait_for_something(struct agent *a)
{
	struct pollfd *polls = a->polls;
	int n = a->ranks.at ? a->job.nlocal : 0;

	polls[POLL_SIGNALS] = (struct pollfd){ .fd = a->signals, .events = POLLIN };
	polls[POLL_WIRE] =
		(struct pollfd){ .fd = a->wire.fd,
				 .events = (short)(POLLIN | (a->wire.out.len ? POLLOUT : 0)) };
	polls[POLL_INPUT] =
		(struct pollfd){ .fd = n && (a->input.len || a->input_ends) ? a->ranks.input : -1,
				 .events = POLLOUT };
	for (int i = 0; i < 2 * n; i++)
		polls[POLL_LINES + i] =
			(struct pollfd){ .fd = a->window > 0 ? a->ranks.at[i / 2].out[i % 2].fd
							     : -1,
					 .events = POLLIN };
	poll(polls, (nfds_t)(POLL_LINES + 2 * n), timeout(a));
}

static void handle_polls(struct agent *a)
{
	const struct pollfd *polls = a->polls;
	int n = a->ranks.at ? a->job.nlocal : 0; /* before a message starts them */

	if (polls[POLL_SIGNALS].revents)
		take_signals(a);
	if (polls[POLL_INPUT].fd >= 0 && polls[POLL_INPUT].revents)
		write_input(a);
	for (int i = 0; i < 2 * n; i++)
		if (polls[POLL_LINES + i].fd >= 0 && polls[POLL_LINES + i].revents && a->window > 0)
			pass_on(a, &a->ranks.at[i / 2].out[i % 2]);
	if (polls[POLL_WIRE].revents & POLLOUT)
		wire_flush(&a->wire);
	if (polls[POLL_WIRE].revents & ~POLLOUT) {
		if (wire_read(&a->wire) < 0)
			give_up(a);
		handle_all(a);
	}
	if (cut_off_in(a->wire.fd) == 0)
		give_up(a);
	if (a->deadline && !a->finished && now_ms() >= a->deadline) {
		ranks_signal(&a->ranks, a->next_signal);
		a->next_signal = SIGKILL;
		a->deadline = now_ms() + TERM_MS;
	}
}

static bool all_is_passed_on(const struct agent *a)
{
	for (int i = 0; a->ranks.at && i < 2 * a->job.nlocal; i++)
		if (a->ranks.at[i / 2].out[i % 2].fd >= 0)
			return false;
	return true;
}

/* What may not be killed is another user's, and may hold the pipes for ever. */
static void stop_reading(struct agent *a)
{
	for (int i = 0; a->ranks.at && i < 2 * a->job.nlocal; i++) {
		struct lines *l = &a->ranks.at[i / 2].out[i % 2];

		pass_on(a, l);
		if (l->fd >= 0)
			close(l->fd);
		l->fd = -1;
	}
}

/* Once all ranks have ended: ends what they leave, and tells when nothing more will come. */
static void finish(struct agent *a)
{
	if (!a->started || a->ranks.running > 0 || a->finished)
		return;
	if (!a->cleaned && !end_descendants())
		stop_reading(a);
	a->cleaned = true;
	a->finished = all_is_passed_on(a);
	if (a->finished && a->job.pid_file)
		unlink(a->job.pid_file);
	if (a->finished)
		wire_put(&a->wire, MSG_DONE, 0, NULL, 0);
}

int agent_run(const struct wire *wire)
{
	struct agent a = { .window = WINDOW, .next_signal = SIGTERM, .ranks.input = -1 };

	a.signals = open_signals();
	if (a.signals < 0) {
		complain("opening a signalfd");
		return EXIT_OWN;
	}
	raise_descriptors();
	a.wire = *wire;
	handle_all(&a); /* what came with the first ringrun's proof: it may be the end */
	for (;;) {      /* until the first ringrun closes: give_up */
		size_t n = (size_t)POLL_LINES + 2 * (size_t)a.job.nlocal;

		finish(&a);
		a.polls = need(realloc(a.polls, n * sizeof(*a.polls)));
		wait_for_something(&a);
		handle_polls(&a);
	}
}

/* ---- Started by something else --------------------------------------------------------------- */

/* Waits for the process that keeps the ranks, and passes signals on to it. Ends what it leaves. */
static void stand_above(pid_t keeper, int signals)
{
	struct pollfd wait = { .fd = signals, .events = POLLIN };
	struct signalfd_siginfo info;

	while (waitpid(keeper, NULL, WNOHANG) == 0) {
		poll(&wait, 1, -1);
		while (read(signals, &info, sizeof(info)) == sizeof(info))
			if (info.ssi_signo != SIGCHLD && sent_to_us_alone(&info))
				kill(keeper, (int)info.ssi_signo);
	}
	end_descendants(); /* what the keeper has left is ours now */
}

int agent_start(const char *where, int node)
{
	pid_t top = getpid(), keeper;
	struct wire wire;
	int signals;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (join_first(where, node, &wire) < 0)
		return EXIT_OWN;
	signals = open_signals();
	keeper = signals < 0 ? -1 : fork();
	if (keeper < 0) {
		complain("starting the process that keeps the ranks");
		return EXIT_OWN;
	}
	if (keeper == 0) {
		close(signals);
		setsid(); /* a launcher may kill the group of what it has started: not this too */
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		prctl(PR_SET_PDEATHSIG, orphaned());
		return getppid() == top ? agent_run(&wire) : EXIT_OWN;
	}
	wire_close(&wire);
	stand_above(keeper, signals);
	return 0;
}
