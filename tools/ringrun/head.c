#include "tools/ringrun/head.h"

#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/command.h"
#include "tools/ringrun/inside.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	START_MS = 60000,                   /* until all agents must have answered */
	PROGRESS_MS = 5000,                 /* between lines that say which have not */
	STRANGERS_MS = 500,                 /* between looks for strangers that say nothing */
	INPUT_WINDOW = 65536,               /* bytes of input that may be on their way to rank 0 */
	END_MS = GRACE_MS + TERM_MS + 1500, /* for agents to end their ranks and say so */
};

/* " on b"; nothing if there is only this host. Returns out. */
enum { PLACE_TEXT = 300 };
static const char *place_text(const struct head *h, const struct peer *peer, char out[PLACE_TEXT])
{
	out[0] = 0;
	if (!h->plan->alone)
		snprintf(out, PLACE_TEXT, " on %s", peer->host->name);
	return out;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void end_agents(struct head *h)
{
	if (h->ending)
		return;
	h->ending = true;
	h->deadline = now_ms() + END_MS;
	for (int k = 0; k < h->peers.n; k++)
		wire_put(&h->peers.at[k].wire, MSG_END, 0, NULL, 0);
}

/* --check goes on without a host. */
static void do_without(struct head *h, struct peer *peer, const char *why)
{
	h->peers.awaited -= peer->state == AWAITED;
	peer->state = LOST;
	wire_close(&peer->wire);
	check_give_up(h->check, (int)(peer - h->peers.at), why, &h->peers);
	if (h->peers.awaited == 0)
		start_meeting_point(h);
}

static void lose(struct head *h, struct peer *peer, const char *why)
{
	char ranks[RANKS_TEXT], place[PLACE_TEXT];
	int status = 0;

	if (peer->state == DONE || peer->state == LOST)
		return;
	if (h->check) {
		do_without(h, peer, why);
		return;
	}
	peer->state = LOST;
	h->left -= peer->left;
	wire_close(&peer->wire);
	if (peer->here)
		waitpid(peer->here, &status, 0);
	if (WIFSIGNALED(status))
		outcome_note(
			&h->outcome, HOST_LOST, h->plan->alone ? exit_status(status) : EXIT_OWN,
			NULL, "the process that keeps the ranks%s was killed by signal %d (%s)",
			place_text(h, peer, place), WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		outcome_note(&h->outcome, HOST_LOST, EXIT_OWN, NULL,
			     "the agent%s, which keeps %s, is gone: %s; ending the others",
			     place_text(h, peer, place), plan_ranks_text(peer->host, ranks), why);
	peer->here = 0;
}

static void note_ended(struct head *h, struct peer *peer, const struct message *m)
{
	struct reader r = { .at = m->data, .end = m->data + m->len };
	int status = (int)get_number(&r), rank = (int)m->number;
	const char *tail = get_text(&r);
	char place[PLACE_TEXT];

	peer->left--;
	h->left--;
	tail = h->plan->alone && !h->plan->options->logs ? NULL : tail;
	place_text(h, peer, place);
	if (WIFSIGNALED(status))
		outcome_note(&h->outcome, RANK_KILLED, exit_status(status), tail,
			     "rank %d%s was killed by signal %d (%s); ending the others", rank,
			     place, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (status)
		outcome_note(&h->outcome, RANK_RETURNED, exit_status(status), tail,
			     "rank %d%s returned %d; ending the others", rank, place,
			     exit_status(status));
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void handle(struct head *h, struct peer *peer, const struct message *m)
{
	char place[PLACE_TEXT];

	switch (m->kind) {
	case MSG_SERVED:
		if (!h->started && !h->ending)
			start_ranks(h, m);
		break;
	case MSG_ENDED: note_ended(h, peer, m); break;
	case MSG_OUTPUT:
		writer_put(h->writers[m->number == STDERR_FILENO], (int)(peer - h->peers.at),
			   m->data, m->len);
		break;
	case MSG_TAKEN: h->input_window += m->number; break;
	case MSG_FAILED:
		outcome_note(&h->outcome, OWN, EXIT_OWN, NULL, "%s%.*s",
			     h->plan->alone ? "" : strcat(strcpy(place, peer->host->name), ": "),
			     (int)m->len, m->data);
		break;
	case MSG_DONE: peer->state = DONE; break;
	case MSG_FACTS:
	case MSG_REACHED:
		if (h->check)
			check_hear(h->check, (int)(peer - h->peers.at), m, &h->peers);
		break;
	default: break;
	}
}

static void hear(struct head *h, struct peer *peer)
{
	struct message m;
	int rc = wire_read(&peer->wire), err = errno, got;

	while ((got = wire_next(&peer->wire, &m)) > 0)
		handle(h, peer, &m);
	if (rc < 0)
		lose(h, peer, err ? strerror(err) : "its connection was closed");
	else if (got < 0)
		lose(h, peer, "it sent what is no message");
}

static void welcome(struct head *h, struct peer *peer)
{
	char ranks[RANKS_TEXT];

	start_tell(h, "%s has answered (%s), %d are awaited", peer->host->name,
		   plan_ranks_text(peer->host, ranks), h->peers.awaited);
	start_greet(h, peer);
	if (h->ending)
		wire_put(&peer->wire, MSG_END, 0, NULL, 0);
	else if (h->peers.awaited == 0)
		start_meeting_point(h);
	start_more(h);
}

static void note_failed_writes(struct head *h)
{
	for (int i = 0; i < 2; i++) {
		int err = writer_error(h->writers[i]);

		if (err)
			outcome_note(&h->outcome, OWN, EXIT_OWN, NULL,
				     "writing the ranks' output: %s", strerror(err));
	}
}

/* What has been written makes room for more from there. */
static void take_written(struct head *h)
{
	uint64_t count;
	size_t len;
	int source;

	if (read(h->wake, &count, sizeof(count)) < 0)
		return;
	for (int i = 0; i < 2; i++)
		while (writer_take(h->writers[i], &source, &len))
			wire_put(&h->peers.at[source].wire, MSG_WRITTEN, (int64_t)len, NULL, 0);
	note_failed_writes(h);
}

static void pass_input(struct head *h)
{
	char chunk[16384];
	ssize_t got = read(h->input, chunk, sizeof(chunk));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	wire_put(&h->peers.at[0].wire, MSG_INPUT, 0, chunk, got > 0 ? (size_t)got : 0);
	h->input_window -= got > 0 ? got : 0;
	if (got <= 0)
		h->input = -1;
}

/* A job in the background must not read from the terminal: that would stop it. */
static bool may_read_input(const struct head *h)
{
	return h->started && h->input >= 0 && h->input_window > 0 &&
	       (!isatty(h->input) || tcgetpgrp(h->input) == getpgrp());
}

/* ---- Processes and signals ------------------------------------------------------------------- */

/* What helps if a host has not answered. */
static const char *cure(const struct head *h, int status)
{
	if (!command_is_for_each_host(h->plan->options->launcher) || !WIFEXITED(status))
		return "";
	if (WEXITSTATUS(status) == 255)
		return "; `ssh HOST true` must work from here without a question";
	if (WEXITSTATUS(status) == EXIT_NOT_FOUND || WEXITSTATUS(status) == EXIT_CANNOT_RUN)
		return "; install this ringrun there at the same place, or start one that is in a folder of all hosts";
	return "";
}

static void note_starter_ended(struct head *h, struct starter *starter, int status)
{
	char text[STARTER_TEXT], how[64], why[STARTER_TEXT + 400];

	starter->pid = 0;
	starter_read(&h->starters, starter);
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(status));
	starter_text(&h->starters, starter, text);
	for (int i = 0; i < starter->n; i++) {
		struct peer *peer = &h->peers.at[h->starters.nodes[starter->first + i]];

		if (peer->state == AWAITED && h->check) {
			snprintf(why, sizeof(why), "%s %s: %.300s", text, how,
				 starter->last ? starter->last : "it said nothing");
			do_without(h, peer, why);
		} else if (peer->state == AWAITED) {
			outcome_note(&h->outcome, HOST_LOST, EXIT_OWN, NULL,
				     "%s %s before the agent on %s answered%s", text, how,
				     peer->host->name, cure(h, status));
		} else if (peer->state == JOINED) {
			outcome_note(&h->outcome, HOST_LOST, EXIT_OWN, NULL,
				     "%s %s while the agent on %s ran; ending the others", text,
				     how, peer->host->name);
		}
	}
}

static void reap(struct head *h)
{
	int status;

	for (int i = 0; i < h->starters.n; i++) {
		struct starter *starter = &h->starters.at[i];

		if (starter->pid > 0 && waitpid(starter->pid, &status, WNOHANG) == starter->pid)
			note_starter_ended(h, starter, status);
	}
}

static void pass_signal(struct head *h, const struct signalfd_siginfo *info)
{
	int sig = (int)info->ssi_signo;

	if (!h->started)
		outcome_note(&h->outcome, OWN, 128 + sig, NULL,
			     "ended by signal %d (%s) before the ranks ran", sig, strsignal(sig));
	for (int k = 0; k < h->peers.n; k++)
		if (!h->peers.at[k].here || sent_to_us_alone(info))
			wire_put(&h->peers.at[k].wire, MSG_SIGNAL, sig, NULL, 0);
	/* Ranks that end on it end soon; a reader of ours that has stalled is not waited for much
	 * longer. */
	if (sig != SIGUSR1 && sig != SIGUSR2)
		h->told_to_end = true;
	if (sig == SIGINT && !h->plan->alone)
		end_agents(h);
}

static void take_signals(struct head *h)
{
	struct signalfd_siginfo info;

	while (read(h->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(h);
		else if ((int)info.ssi_signo != orphaned())
			pass_signal(h, &info);
	}
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Hosts that have not answered in time. */
static void give_up_waiting(struct head *h)
{
	char text[AWAITED_TEXT];

	for (int k = 0; h->check && k < h->peers.n; k++)
		if (h->peers.at[k].state == AWAITED)
			do_without(h, &h->peers.at[k], "no answer in 60 s");
	if (!h->check)
		outcome_note(
			&h->outcome, OWN, EXIT_OWN, NULL,
			"%d of %d hosts have not answered in %d s: %s; try `ssh HOST true` by hand, "
			"or give them more time with --no_ssh_check",
			h->peers.awaited, h->peers.n, START_MS / 1000,
			peers_awaited_text(&h->peers, text));
}

static void check_start(struct head *h)
{
	char text[AWAITED_TEXT];
	int64_t now = now_ms();

	if (h->peers.awaited == 0 || h->ending)
		return;
	if (now - h->began > START_MS && !h->plan->options->no_ssh_check)
		give_up_waiting(h);
	if (h->peers.awaited && now >= h->next_progress && !h->plan->options->quiet)
		say("waiting for %d of %d hosts: %s", h->peers.awaited, h->peers.n,
		    peers_awaited_text(&h->peers, text));
	if (now >= h->next_progress)
		h->next_progress = now + PROGRESS_MS;
}

static void look_for_silent_hosts(struct head *h)
{
	int64_t now = now_ms();
	char why[64];

	if (now < h->next_look)
		return;
	h->next_look = now + CUT_OFF_MS; /* of one that answers in the meantime */
	snprintf(why, sizeof(why), "its host has not answered for %d s", CUT_OFF_MS / 1000);
	for (int k = 0; k < h->peers.n; k++) {
		struct peer *peer = &h->peers.at[k];
		int left = peer->state == JOINED ? cut_off_in(peer->wire.fd) : -1;

		if (left == 0)
			lose(h, peer, why);
		else if (left > 0 && now + left < h->next_look)
			h->next_look = now + left;
	}
}

static void check_time(struct head *h)
{
	look_for_silent_hosts(h);
	peers_drop_strangers(&h->peers, false);
	if (h->peers.refused && h->check && h->peers.refused->state == AWAITED)
		do_without(h, h->peers.refused, "it has another version of Kolo");
	else if (h->peers.refused)
		outcome_note(&h->outcome, OWN, EXIT_OWN, NULL, "an agent was refused");
	h->peers.refused = NULL;
	if (outcome_report(&h->outcome))
		end_agents(h);
	if (h->told_to_end && h->left == 0 && !h->deadline)
		h->deadline = now_ms() + GRACE_MS;
	check_start(h);
}

/* In how many ms there is something to do although nothing happens; -1: never. */
static int timeout(const struct head *h)
{
	int64_t until = h->deadline, now = now_ms();

	if (h->outcome.weight && !h->outcome.reported)
		until = h->outcome.decided;
	else if (h->peers.awaited && !h->ending)
		until = h->next_progress;
	if (h->peers.nstrangers && (until == 0 || until > now + STRANGERS_MS))
		until = now + STRANGERS_MS;
	if (!h->plan->alone && (until == 0 || until > h->next_look))
		until = h->next_look;
	return until == 0 ? -1 : until > now ? (int)(until - now) : 0;
}

enum { POLL_SIGNALS, POLL_WAKE, POLL_DOOR, POLL_INPUT, POLL_REST };

/* Returns how many strangers are in the list. */
static int wait_for_something(struct head *h)
{
	struct pollfd *at = h->polls + POLL_REST;
	int n;

	h->polls[POLL_SIGNALS] = (struct pollfd){ .fd = h->signals, .events = POLLIN };
	h->polls[POLL_WAKE] = (struct pollfd){ .fd = h->wake, .events = POLLIN };
	h->polls[POLL_DOOR] = (struct pollfd){ .fd = peers_door(&h->peers), .events = POLLIN };
	h->polls[POLL_INPUT] =
		(struct pollfd){ .fd = may_read_input(h) ? h->input : -1, .events = POLLIN };
	for (int k = 0; k < h->peers.n; k++) {
		const struct wire *w = &h->peers.at[k].wire;

		*at++ = (struct pollfd){ .fd = w->fd,
					 .events = (short)(POLLIN | (w->out.len ? POLLOUT : 0)) };
	}
	for (int i = 0; i < h->starters.n; i++)
		*at++ = (struct pollfd){ .fd = h->starters.at[i].err, .events = POLLIN };
	n = peers_strangers(&h->peers, at);
	poll(h->polls, (nfds_t)(at - h->polls + n), timeout(h));
	return n;
}

static void step(struct head *h)
{
	int strangers = wait_for_something(h), starters = h->starters.n;
	const struct pollfd *of_peers = h->polls + POLL_REST, *of_starters = of_peers + h->peers.n;
	struct peer *peer;

	for (int k = 0; k < h->peers.n; k++) {
		if (of_peers[k].fd >= 0 && of_peers[k].revents & POLLOUT)
			wire_flush(&h->peers.at[k].wire);
		if (of_peers[k].fd >= 0 && of_peers[k].revents & ~POLLOUT)
			hear(h, &h->peers.at[k]);
	}
	for (int i = 0; i < starters; i++)
		if (of_starters[i].fd >= 0 && of_starters[i].revents)
			starter_read(&h->starters, &h->starters.at[i]);
	if (h->polls[POLL_SIGNALS].revents)
		take_signals(h);
	if (h->polls[POLL_WAKE].revents)
		take_written(h);
	if (h->polls[POLL_INPUT].fd >= 0 && h->polls[POLL_INPUT].revents)
		pass_input(h);
	if ((peer = peers_hear(&h->peers, of_starters + starters, strangers)))
		welcome(h, peer);
	if (h->polls[POLL_DOOR].revents && h->peers.door.fd >= 0)
		peers_accept(&h->peers);
	check_time(h);
}

static bool is_over(const struct head *h)
{
	if (h->check && check_is_over(h->check))
		return true;
	for (int k = 0; k < h->peers.n; k++)
		if (h->peers.at[k].state == JOINED ||
		    (h->peers.at[k].state == AWAITED && !h->ending))
			return false;
	return true;
}

static bool is_late(const struct head *h)
{
	return h->deadline && now_ms() >= h->deadline;
}

/* Agents that did not say in time that their ranks have ended. */
static void name_late(struct head *h)
{
	for (int k = 0; k < h->peers.n; k++)
		if (h->peers.at[k].state == JOINED && h->ending)
			say("%s did not say in %d ms that its ranks have ended",
			    h->peers.at[k].host->name, END_MS);
	outcome_note(&h->outcome, OWN, EXIT_OWN, NULL, "not all ranks have ended in time");
}

/* Lets the agents go, waits a moment for what has started them, and kills the rest. */
static void close_all(struct head *h)
{
	int64_t until = now_ms() + GRACE_MS;
	bool some = true;

	door_close(&h->peers.door);
	peers_drop_strangers(&h->peers, true);
	starters_remove_file(&h->starters);
	for (int i = 0; i < h->starters.n; i++) /* their agents will not be needed */
		if (h->starters.at[i].pid > 0 && h->peers.awaited)
			kill(h->starters.at[i].pid, SIGTERM);
	for (int k = 0; k < h->peers.n; k++) {
		wire_close(&h->peers.at[k].wire);
		if (h->peers.at[k].here)
			waitpid(h->peers.at[k].here, NULL, 0);
	}
	while (some && now_ms() < until) {
		some = false;
		for (int i = 0; i < h->starters.n; i++) {
			struct starter *s = &h->starters.at[i];

			if (s->pid > 0 && waitpid(s->pid, NULL, WNOHANG) == s->pid)
				s->pid = 0;
			some |= s->pid > 0;
		}
		if (some)
			poll(NULL, 0, 5);
	}
	end_descendants();
}

static int leave(struct head *h)
{
	h->outcome.decided = 0;
	outcome_report(&h->outcome);
	close_all(h);
	return h->outcome.code;
}

int head_run(const struct plan *p)
{
	static struct head h; /* what it has allocated is held until the process ends */

	h = (struct head){ .plan = p, .input = -1, .input_window = INPUT_WINDOW };
	h.check = p->options->check ? check_open(p) : NULL;
	raise_descriptors();
	h.began = now_ms();
	h.next_progress = h.began + PROGRESS_MS;
	if (start_begin(&h) < 0) {
		outcome_note(&h.outcome, OWN, EXIT_OWN, NULL, "the job could not be started");
		return leave(&h);
	}
	while (!is_over(&h) && !is_late(&h))
		step(&h);
	if (h.check && !h.outcome.weight)
		h.outcome.code = check_report(h.check);
	if (!is_over(&h) && (!h.told_to_end || h.left > 0))
		name_late(&h);
	h.deadline = h.told_to_end ? now_ms() + GRACE_MS : 0;
	while (!is_late(&h) && !(writer_is_done(h.writers[0]) && writer_is_done(h.writers[1])))
		step(&h);
	note_failed_writes(&h); /* the last one may have failed after the last step */
	return leave(&h);
}
