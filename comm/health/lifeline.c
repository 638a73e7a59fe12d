/* Sends and receives through lifelines (ko_lifelines_send, ko_lifelines_recv), notes ranks that are
 * gone (ko_lifelines_look), and closes (ko_lifelines_close). lifeline_connect.c makes lifelines. */
#include "comm/health/lifeline.h"

#include "comm/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- Finding one, and what failed ------------------------------------------------------------ */

struct ko_life *ko_life_find(struct ko_lifelines *ll, int rank)
{
	for (int k = 0; k < ll->n; k++)
		if (ll->life[k].rank == rank)
			return &ll->life[k];
	return NULL;
}

bool ko_lifelines_hear(struct ko_lifelines *ll, int rank)
{
	return ko_life_find(ll, rank) != NULL;
}

void ko_lifelines_keep(struct ko_lifelines *ll, struct ko_roster *roster, bool own)
{
	ll->roster = roster;
	ll->own = own;
}

void ko_lifelines_made(struct ko_lifelines *ll)
{
	ll->made = true;
	ll->parent = NULL;
}

int ko_life_lost(struct ko_lifelines *ll, int rank, const char *what)
{
	const struct ko_entry *e = &ll->table[rank];
	bool far = !ko_place_same(&ll->table[ll->rank].place, &e->place);
	char at[KO_NET_TEXT] = "a Unix socket";
	int err = errno;

	if (err == ECONNREFUSED || err == EPIPE || err == ECONNRESET)
		return ko_life_gone_early(ll, rank);
	if (err == EDESTADDRREQ)
		return ko_fail(
			KOLO_EUNREACH,
			"rank %d (on %s) can't reach rank %d (pid %d on %s): that rank is on another host, or in "
			"another container, and came to the meeting point by an address that only its own host "
			"reaches; set KOLO_ROOT=HOST:PORT for all ranks, with an address that all can reach",
			ll->rank, ll->table[ll->rank].place.host, rank, e->pid, e->place.host);
	if (far)
		ko_net_text(&e->place.net, at);
	return ko_fail(err == EAGAIN || err == ETIMEDOUT           ? KOLO_ETIMEDOUT
		       : err == EHOSTUNREACH || err == ENETUNREACH ? KOLO_EUNREACH
								   : KOLO_ESYS,
		       "rank %d: %s rank %d (pid %d on %s) through %s: %s", ll->rank, what, rank,
		       e->pid, e->place.host, at, strerror(err));
}

/* ---- What ranks tell each other -------------------------------------------------------------- */

/* Sends a message to all lifelines. A post goes only to ranks that were heard lately. A rank that
 * is in no call reads nothing, and its full connection would be taken for dead. A rank that waits
 * posts, so it is heard. */
static void send_all(struct ko_lifelines *ll, const struct ko_msg *msg)
{
	enum { MOST_UNREAD = 30 };

	for (int k = 0; k < ll->n; k++) {
		struct ko_life *life = &ll->life[k];

		if (life->state != KO_LIFE_UP ||
		    (msg->type == KO_MSG_POST && life->unread == MOST_UNREAD))
			continue;
		life->unread += msg->type == KO_MSG_POST;
		/* if this fails the rank is found to be gone later */
		ko_msg_send(life->fd, msg, -1);
	}
}

static void send_said(struct ko_lifelines *ll, const struct ko_said *said)
{
	struct ko_msg msg = { .type = KO_MSG_POST };

	memcpy(msg.bytes, said, sizeof(*said));
	send_all(ll, &msg);
}

void ko_lifelines_say(struct ko_lifelines *ll)
{
	struct ko_said said = ko_roster_say(ll->roster, ll->rank);

	send_said(ll, &said);
}

void ko_lifelines_fail(struct ko_lifelines *ll, int code, const char *text, bool later)
{
	struct ko_msg msg = { .type = KO_MSG_FAIL, .value = code, .seq = later };

	snprintf((char *)msg.bytes, sizeof(msg.bytes), "%s", text);
	send_all(ll, &msg);
}

/* Notes in the roster that a rank has done all its work and left. */
static void note_leaving(struct ko_lifelines *ll, int rank, uint64_t finished)
{
	struct ko_said said = ko_roster_say(ll->roster, rank);

	said.finished = finished;
	said.waiting_for = KO_NOBODY;
	said.complete = 1;
	ko_roster_hear(ll->roster, rank, &said);
}

/* Notes what a rank said: that it leaves, what it posted, or what has failed. A message that is too
 * late to matter is ignored. */
static void take_message(struct ko_lifelines *ll, struct ko_life *life, struct ko_msg *msg)
{
	struct ko_said said;

	msg->bytes[sizeof(msg->bytes) - 1] = 0;
	life->spoke = true;
	if (msg->type == KO_MSG_GOODBYE) {
		life->state = KO_LIFE_LEFT;
		life->code = msg->value < 0 ? msg->value : KOLO_EPEER;
		memcpy(life->why, msg->bytes, sizeof(life->why));
		if (ll->own && !life->why[0])
			note_leaving(ll, life->rank, msg->seq);
	} else if (msg->type == KO_MSG_POST) {
		memcpy(&said, msg->bytes, sizeof(said));
		if (said.waiting_for < 0 || said.waiting_for >= ll->table[ll->rank].nranks)
			said.waiting_for = KO_NOBODY;
		life->waits_for = said.waiting_for;
		life->heard = ko_now_ms();
		if (ll->own)
			ko_roster_hear(ll->roster, life->rank, &said);
	} else if (msg->type == KO_MSG_FAIL && ll->own && msg->value < 0 &&
		   ko_roster_fail(ll->roster, life->rank, msg->value, (const char *)msg->bytes,
				  msg->seq != 0)) {
		/* The first cause stays. Each rank passes it on. */
		ko_lifelines_fail(ll, msg->value, (const char *)msg->bytes, msg->seq != 0);
	}
}

static void hear(struct ko_lifelines *ll, struct ko_life *life)
{
	struct ko_msg msg;
	int fd;

	if (ko_msg_recv(life->fd, &msg, &fd) != KO_HEARD_MSG) {
		life->state = KO_LIFE_DEAD;
		return;
	}
	if (fd >= 0 && msg.type == KO_MSG_MEMORY && life->early < 0)
		life->early = fd;
	else if (fd >= 0)
		close(fd);
	life->unread = 0;
	take_message(ll, life, &msg);
}

static void note_gone(struct ko_lifelines *ll, struct ko_life *life)
{
	life->since = ko_now_ms();
	ll->gone++;
}

/* Is the next message a link's address? It stays for ko_lifelines_recv: a rank that is ahead sends
 * that of the next link while this one still waits for the link before. Does not block. */
static bool is_address(const struct ko_life *life)
{
	struct ko_msg msg;

	return recv(life->fd, &msg, sizeof(msg), MSG_PEEK | MSG_DONTWAIT) == sizeof(msg) &&
	       msg.type == KO_MSG_ADDRESS;
}

/* Is the next message one that nobody waits for by its type, or the end? Does not block. */
static bool has_news(const struct ko_life *life)
{
	struct ko_msg msg;
	ssize_t got = recv(life->fd, &msg, sizeof(msg), MSG_PEEK | MSG_DONTWAIT);

	if (got < (ssize_t)sizeof(msg)) /* nothing, a part of a message, or the end */
		return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
	return msg.type == KO_MSG_POST || msg.type == KO_MSG_FAIL || msg.type == KO_MSG_GOODBYE;
}

/* Reads what other ranks say while messages are waited for. Those stay. */
static void hear_news(struct ko_lifelines *ll)
{
	for (int k = 0; k < ll->n; k++) {
		struct ko_life *life = &ll->life[k];

		while (life->state == KO_LIFE_UP && has_news(life))
			hear(ll, life);
		if (life->state > KO_LIFE_UP && !life->since)
			note_gone(ll, life);
	}
}

/* ---- While the communicator or its memory is made -------------------------------------------- */

enum {
	SAY_AGAIN_MS = 500, /* between two words that this rank waits */
	HOLD_MS = 3000      /* after a deadline: for the report of a rank that knows the culprit */
};

/* What has failed. A failure after the communicator was made by some rank does not end its making
 * by others. */
static int check_failure(const struct ko_lifelines *ll)
{
	int rc = ll->parent ? ko_roster_cause(ll->parent) : 0;

	if (rc == 0 && ll->roster && (ll->made || !ko_roster_failed_later(ll->roster)))
		rc = ko_roster_cause(ll->roster);
	return rc;
}

/* Has the rank at the other end made the communicator? Then its end is no reason to give up. */
static bool had_made(const struct ko_lifelines *ll, const struct ko_life *life)
{
	return ll->roster &&
	       (ko_roster_complete(ll->roster, life->rank) || ko_roster_failed_later(ll->roster));
}

/* What a rank that has left gave up with; 0: nothing, or it has made the communicator. */
static int check_given_up(const struct ko_lifelines *ll)
{
	for (int k = 0; k < ll->n; k++) {
		const struct ko_life *life = &ll->life[k];

		if (life->state == KO_LIFE_LEFT && life->why[0] && !had_made(ll, life))
			return ko_fail(life->code, "%s", life->why);
	}
	return 0;
}

/* Reports what the rank did while the communicator or its memory was made. Returns `code`. */
static int report(const struct ko_lifelines *ll, int rank, int code, const char *what)
{
	const struct ko_entry *e = &ll->table[rank];

	return ko_fail(code, "rank %d: rank %d (pid %d on %s) %s", ll->rank, rank, e->pid,
		       e->place.host, what);
}

int ko_life_gone_early(struct ko_lifelines *ll, int rank)
{
	enum { HERE_MS = 200, ELSEWHERE_MS = 1500, STEP_MS = 5 };
	struct ko_life *life = ko_life_find(ll, rank);
	bool far = !ko_place_same(&ll->table[ll->rank].place, &ll->table[rank].place);
	int64_t until = ko_now_ms() + (far ? ELSEWHERE_MS : HERE_MS);
	int rc;

	/* A rank that knew of the lifeline would have said what it gave up with: it died. */
	do {
		hear_news(ll);
		if ((rc = check_failure(ll)) < 0 || (rc = check_given_up(ll)) < 0)
			return rc;
		if (life && life->spoke)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = STEP_MS * 1000000 }, NULL);
	} while (ko_now_ms() < until);
	return report(
		ll, rank, KOLO_EPEER,
		"ended or gave up before it had done its part in making the communicator or its memory; "
		"its own error says why");
}

/* Fails if a rank has given up, or died before it had made the communicator. */
static int check_others(struct ko_lifelines *ll)
{
	int rc = check_given_up(ll);

	for (int k = 0; rc == 0 && k < ll->n; k++)
		if (ll->life[k].state == KO_LIFE_DEAD && !had_made(ll, &ll->life[k]))
			rc = ko_life_gone_early(ll, ll->life[k].rank);
	return rc;
}

int ko_lifelines_stopped(const struct ko_lifelines *ll)
{
	const struct ko_entry *e = &ll->table[ll->rank];

	return ko_progress_stopped(ll->progress)
		       ? ko_fail(KOLO_EABORTED,
				 "rank %d (pid %d on %s) called kolo_id_abort while the "
				 "communicator was made",
				 e->rank, e->pid, e->place.host)
		       : 0;
}

static void post_wait(struct ko_lifelines *ll, int rank, int64_t now)
{
	struct ko_post *post = &ll->roster->post[ll->rank];

	atomic_store_explicit(&post->beat, now, memory_order_relaxed);
	ko_post_wait_for(post, rank);
}

int ko_life_step(struct ko_lifelines *ll, int rank)
{
	struct ko_said said = { .waiting_for = rank };
	int64_t now = ko_now_ms();
	int rc;

	if (ll->roster) {
		post_wait(ll, rank, now);
		said = ko_roster_say(ll->roster, ll->rank);
	}
	if (now - ll->said >= SAY_AGAIN_MS && (ll->own || !ll->made)) {
		ll->said = now;
		send_said(ll, &said);
	}
	if (ll->made)
		return check_failure(ll);
	hear_news(ll);
	if ((rc = ko_lifelines_stopped(ll)) == 0)
		rc = check_failure(ll);
	return rc < 0 ? rc : check_others(ll);
}

void ko_life_waited(struct ko_lifelines *ll)
{
	if (ll->roster)
		post_wait(ll, KO_NOBODY, ko_now_ms());
}

int ko_lifelines_waits_for(struct ko_lifelines *ll, int rank, int64_t stale)
{
	const struct ko_post *post = ll->roster ? &ll->roster->post[rank] : NULL;
	const struct ko_life *life = ko_life_find(ll, rank);

	if (post && ko_post_waits_for(post) >= 0 &&
	    atomic_load_explicit(&post->beat, memory_order_relaxed) >= stale)
		return ko_post_waits_for(post);
	return life && life->heard >= stale && life->heard ? life->waits_for : KO_NOBODY;
}

/* Is it known here that the rank, which does not say that it waits, is silent? What it says may be
 * behind a message that nobody has taken yet. */
static bool is_silent(struct ko_lifelines *ll, int rank)
{
	const struct ko_life *life = ko_life_find(ll, rank);

	if (life)
		return !ko_msg_has_come(life->fd);
	return ll->roster && !ll->own &&
	       atomic_load_explicit(&ll->roster->post[rank].beat, memory_order_relaxed);
}

/* Finds the rank to blame if `rank` is silent at the deadline: follows who waits for whom. *known:
 * it is this one. If not, a rank that waits for it may report it. */
static int find_silent(struct ko_lifelines *ll, int rank, bool *known)
{
	int64_t stale = ko_now_ms() - KO_LIFE_SILENT_MS;
	int nranks = ll->table[ll->rank].nranks, peer = rank;

	for (int hops = 0; hops < nranks; hops++) {
		int next = ko_lifelines_waits_for(ll, rank, stale);

		*known = next < 0 && is_silent(ll, rank);
		if (next < 0)
			return rank;
		rank = next;
	}
	*known = false;
	return peer;
}

/* ---- Using them ------------------------------------------------------------------------------ */

int ko_lifelines_send(struct ko_lifelines *ll, int rank, const struct ko_msg *msg, int fd)
{
	return ko_msg_send(ko_life_find(ll, rank)->fd, msg, fd) < 0
		       ? ko_life_lost(ll, rank, "sending to")
		       : 0;
}

/* Waits until the lifeline can be read. */
static int wait_readable(struct ko_lifelines *ll, const struct ko_life *life, int64_t deadline)
{
	struct pollfd polls[2] = { { .fd = life->fd, .events = POLLIN },
				   { .fd = life->pidfd, .events = POLLIN } };
	int rc = 0, silent;
	bool known;

	while (rc == 0 && ko_progress_poll(ll->progress, polls, 2, KO_LIFE_STEP_MS) <= 0) {
		rc = ko_life_step(ll, life->rank);
		if (rc < 0 || ko_now_ms() <= deadline)
			continue;
		silent = find_silent(ll, life->rank, &known);
		if (known || ko_now_ms() > deadline + HOLD_MS)
			rc = report(
				ll, silent, KOLO_ETIMEDOUT,
				"fell silent while the ranks made the communicator or its memory; is it "
				"stopped?");
	}
	ko_life_waited(ll);
	if (rc < 0)
		return rc;
	return polls[0].revents ? 0 : ko_life_gone_early(ll, life->rank);
}

/* Handles a post or a failure that comes while another message is waited for. *rc becomes the
 * failure, if it is one. False: the message is neither. */
static bool pass_over(struct ko_lifelines *ll, struct ko_life *life, struct ko_msg *msg, int *rc)
{
	if (msg->type != KO_MSG_POST && msg->type != KO_MSG_FAIL)
		return false;
	life->unread = 0;
	take_message(ll, life, msg);
	*rc = check_failure(ll);
	return *rc == 0;
}

int ko_lifelines_recv(struct ko_lifelines *ll, int rank, enum ko_msg_type type, int value,
		      int64_t deadline, struct ko_msg *out, int *fd)
{
	struct ko_life *life = ko_life_find(ll, rank);
	enum ko_heard heard;
	int rc;

	*fd = -1;
	if (type == KO_MSG_MEMORY && life->early >= 0) {
		*fd = life->early;
		life->early = -1;
		return 0;
	}
	do {
		if ((rc = wait_readable(ll, life, deadline)) < 0)
			return rc;
		heard = ko_msg_recv(life->fd, out, fd);
	} while (heard == KO_HEARD_MSG && pass_over(ll, life, out, &rc));
	if (rc < 0)
		return rc;
	life->spoke = life->spoke || heard == KO_HEARD_MSG;
	if (heard == KO_HEARD_MSG && out->type == type && out->value == value)
		return 0;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	if (heard == KO_HEARD_TRUNCATED)
		return ko_fail(
			KOLO_ESYS,
			"rank %d: no free file descriptor (ulimit -n) for the one that rank %d sent",
			ll->rank, rank);
	if (heard == KO_HEARD_END)
		return ko_life_gone_early(ll, rank);
	if (out->type != KO_MSG_GOODBYE)
		return ko_fail(
			KOLO_ESYS,
			"rank %d: rank %d sent a message of type %u, but type %d was expected",
			ll->rank, rank, out->type, (int)type);
	out->bytes[sizeof(out->bytes) - 1] = 0;
	return out->bytes[0] ? ko_fail(out->value < 0 ? out->value : KOLO_EPEER, "%s",
				       (const char *)out->bytes)
			     : ko_life_gone_early(ll, rank);
}

/* Takes everything that a rank has said up to now. */
static void look_at(struct ko_lifelines *ll, struct ko_life *life)
{
	/* The second one too: a process may be dead while a child that it forked keeps its socket
	 * open. */
	struct pollfd now[2] = { { .fd = life->fd, .events = POLLIN },
				 { .fd = life->pidfd, .events = POLLIN } };

	while (life->state == KO_LIFE_UP && poll(now, 2, 0) > 0) {
		if (life->far && now[0].revents == POLLIN && !ko_msg_has_come(life->fd))
			return;
		if (now[0].revents && is_address(life))
			return;
		if (now[0].revents)
			hear(ll, life);
		else
			life->state = KO_LIFE_DEAD;
	}
	if (life->state != KO_LIFE_UP)
		note_gone(ll, life);
}

void ko_lifelines_look(struct ko_lifelines *ll)
{
	for (int k = 0; k < ll->n; k++)
		if (ll->life[k].state == KO_LIFE_UP)
			look_at(ll, &ll->life[k]);
}

const struct ko_life *ko_lifelines_gone(const struct ko_lifelines *ll, int *k)
{
	for (; ll->gone && *k < ll->n; ++*k)
		if (ll->life[*k].state != KO_LIFE_UP)
			return &ll->life[*k];
	return NULL;
}

void ko_lifelines_close(struct ko_lifelines *ll, int code, const char *text)
{
	struct ko_msg goodbye = { .type = KO_MSG_GOODBYE, .value = code };
	char unread[sizeof(goodbye)];

	if (!ll)
		return;
	snprintf((char *)goodbye.bytes, sizeof(goodbye.bytes), "%s", code ? text : "");
	if (ll->own)
		goodbye.seq = ko_roster_say(ll->roster, ll->rank).finished;
	for (int k = 0; k < ll->n; k++) {
		struct ko_life *life = &ll->life[k];

		if (life->early >= 0)
			close(life->early);
		if (life->fd < 0)
			continue;
		ko_msg_send(life->fd, &goodbye, -1);
		while (life->far && recv(life->fd, unread, sizeof(unread), MSG_DONTWAIT) > 0)
			/* unread bytes would turn the close into a reset, which may overtake the
			 * goodbye */
			;
		close(life->fd);
		if (life->pidfd >= 0)
			close(life->pidfd);
	}
	for (int k = 0; k < ll->nstrangers; k++)
		close(ll->strangers[k]);
	for (int k = 0; k < ll->ncalls; k++)
		close(ll->calls[k].fd);
	free(ll->calls);
	if (ll->listener >= 0)
		close(ll->listener);
	if (ll->far_listener >= 0)
		close(ll->far_listener);
	free(ll);
}
