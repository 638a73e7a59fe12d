/* Waits for another rank (ko_wait_for): spins, then gives the core away and looks around. Finds
 * disagreement, death and silence, and writes their error texts. */
#include "comm/core/wait.h"

#include "comm/base/clock.h"
#include "comm/sys/thread.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	SLEEP_FROM_US = 1000,     /* of waiting; before, it yields */
	MAX_SLEEP_US = 1000,      /* if no bell may end it */
	BELL_SLEEP_US = 8000,     /* if one does; a rank that rings just before is missed */
	FAR_SLEEP_US = 250,       /* at least, if what ends the wait may come from another host */
	PROGRESS_SLEEP_US = 100,  /* at most, if another library on the thread is to go on */
	PROGRESS_TURN_NS = 20000, /* at least, from one turn of that library to the next */
	LONG_YIELD_NS = 200000,   /* of a core that many others use */
	LOOK_MS = 10,             /* between looks at the lifelines, a system call each */
	SAY_MS = 100,             /* of waiting before other hosts learn that this rank waits */
	AGAIN_MS = 500,           /* until other hosts learn it again */
	STALE_MS = 2000,          /* after which news from another host is old */
	ARRIVE_MS = 1000,         /* for what a rank of another host sent before it died */
	CIRCLE_MS = 200,          /* until a circle of waits is believed */
	DIAL_MS = 500,  /* between checks of a rank without a lifeline, some system calls each */
	PAUSE_MS = 1000 /* between two looks at the clock: this process was not running */
};

/* A wait that has not ended at once. Times are ko_now_ms(), unless they are in ns. */
struct ko_wait_state {
	const struct ko_waiter *waiter;
	struct kolo_comm *comm;
	const struct ko_desc *desc;
	int peer;              /* the rank that is waited for */
	const char *transport; /* its name, for error texts */
	int64_t since_ns;      /* beginning of the wait; pauses of this process are added */
	int64_t last;          /* last look at the clock */
	int64_t looked;        /* last look at the lifelines */
	int64_t progressed;    /* in ns: last turn of another library, or the beginning */
	int64_t dialled;       /* last check of a rank without a lifeline */
	int64_t said;          /* other hosts learnt last that this rank waits; 0: not yet */
	int64_t missed;        /* a rank without a lifeline was first found to be gone; 0: never */
	int64_t circle;        /* since then all looks have found a circle; 0: the last has not */
	bool begun;            /* it has looked around */
};

/* The beginning of the wait by ko_now_ms(). */
static int64_t since_ms(const struct ko_wait_state *w)
{
	return w->since_ns / 1000000;
}

/* ---- Descriptions ---------------------------------------------------------------------------- */

enum { WHERE_TEXT = 160 };

/* What the rank is doing, by its post: "in #7 all_reduce(...)" or "in no operation since it
 * finished #6". */
static void describe_place(struct kolo_comm *c, int rank, char out[WHERE_TEXT])
{
	const struct ko_post *post = &c->roster->post[rank];
	uint64_t entered = atomic_load_explicit(&post->entered, memory_order_acquire);
	uint64_t finished = atomic_load_explicit(&post->finished, memory_order_acquire);
	char op[KO_DESC_TEXT];
	struct ko_desc desc;

	if (ko_roster_p2p(c->roster, rank, &desc))
		snprintf(out, WHERE_TEXT, "in %s", ko_desc_text(&desc, op));
	else if (entered > finished && ko_roster_desc(c->roster, rank, entered, &desc))
		snprintf(out, WHERE_TEXT, "in %s", ko_desc_text(&desc, op));
	else if (finished)
		snprintf(out, WHERE_TEXT, "in no operation since it finished #%" PRIu64, finished);
	else if (c->spread && !atomic_load_explicit(&post->beat, memory_order_relaxed))
		snprintf(out, WHERE_TEXT,
			 "in an operation that is not known here"); /* another host */
	else
		snprintf(out, WHERE_TEXT, "in no operation yet");
}

/* The letter of the process's state in /proc/PID/stat; 0: not readable. */
static char process_state(int pid)
{
	char path[40], stat[256], *end;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
	if (fd >= 0)
		close(fd);
	if (got <= 0)
		return 0;
	stat[got] = 0;
	end = strrchr(stat, ')'); /* the process's name before it may hold any character */
	return end && end[1] == ' ' ? end[2] : 0;
}

/* ---- Disagreement ---------------------------------------------------------------------------- */

int ko_wait_compare(struct kolo_comm *c, const struct ko_desc *mine, int peer)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], my_op[KO_DESC_TEXT], their_op[KO_DESC_TEXT];
	struct ko_desc theirs;

	if (ko_desc_is_p2p(mine) || !ko_roster_desc(c->roster, peer, mine->seq, &theirs) ||
	    memcmp(&theirs, mine, sizeof(theirs)) == 0)
		return 0;
	return ko_fail(KOLO_EMISMATCH, "ranks disagree: %s called %s, %s called %s",
		       ko_comm_name(c, c->rank, me), ko_desc_text(mine, my_op),
		       ko_comm_name(c, peer, them), ko_desc_text(&theirs, their_op));
}

/* Compares the last operations of the two ranks too. The first one that differs is the cause: a
 * mismatch may pass without notice. */
static int compare_history(struct kolo_comm *c, const struct ko_desc *mine, int peer)
{
	struct ko_desc desc;
	int rc = 0;

	if (ko_desc_is_p2p(mine))
		return 0;
	for (uint64_t back = mine->seq < KO_HISTORY ? mine->seq : KO_HISTORY - 1;
	     rc == 0 && back-- > 0;)
		if (ko_roster_desc(c->roster, c->rank, mine->seq - back, &desc))
			rc = ko_wait_compare(c, &desc, peer);
	return rc;
}

/* Ranks of several hosts that disagree send each other what they were called with. */
static int ask_for_reason(struct kolo_comm *c, const struct ko_desc *mine, int peer)
{
	enum { TRIES = 100, STEP_MS = 10 };
	int rc = 0;

	ko_lifelines_say(c->lifelines);
	for (int k = 0; rc == 0 && k < TRIES; k++) {
		nanosleep(&(struct timespec){ .tv_nsec = STEP_MS * 1000000 }, NULL);
		ko_lifelines_look(c->lifelines);
		rc = compare_history(c, mine, peer);
		if (rc == 0)
			rc = ko_roster_cause(c->roster);
	}
	return rc;
}

int ko_wait_mismatch(struct kolo_comm *c, const struct ko_desc *mine, int peer, uint32_t tag)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];
	int rc = compare_history(c, mine, peer);

	if (rc == 0 && c->spread)
		rc = ask_for_reason(c, mine, peer);
	if (rc < 0)
		return rc;
	return ko_fail(KOLO_EMISMATCH,
		       "%s got a slot or cell (tag %08x) from %s that belongs to another operation",
		       ko_comm_name(c, c->rank, me), tag, ko_comm_name(c, peer, them));
}

/* ---- Death ----------------------------------------------------------------------------------- */

static int report_gone(struct kolo_comm *c, const struct ko_desc *desc, const struct ko_life *life)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT], where[WHERE_TEXT];

	describe_place(c, life->rank, where);
	if (desc->seq == 0 && life->why[0]) /* it says who is to blame, which may be another rank */
		return ko_fail(life->code, "%s", life->why);
	if (life->state == KO_LIFE_DEAD)
		return ko_fail(KOLO_EPEER, "%s died%s %s; noticed by %s in %s",
			       ko_comm_name(c, life->rank, them),
			       life->far ? " or can't be reached any more" : "", where,
			       ko_comm_name(c, c->rank, me), ko_desc_text(desc, op));
	if (life->why[0])
		return ko_fail(KOLO_EPEER, "%s gave up: %s; noticed by %s in %s",
			       ko_comm_name(c, life->rank, them), life->why,
			       ko_comm_name(c, c->rank, me), ko_desc_text(desc, op));
	return ko_fail(KOLO_EPEER, "%s left (kolo_comm_destroy), %s, while %s needs it for %s",
		       ko_comm_name(c, life->rank, them), where, ko_comm_name(c, c->rank, me),
		       ko_desc_text(desc, op));
}

/* Has the rank done its part of the operation? Then it does not matter that it is gone. */
static bool has_done(const struct kolo_comm *c, const struct ko_desc *desc, int rank)
{
	const struct ko_post *post = &c->roster->post[rank];

	if (desc->seq == 0)
		return ko_roster_complete(c->roster, rank);
	return atomic_load_explicit(&post->finished, memory_order_acquire) >= desc->seq;
}

bool ko_wait_needs(const struct ko_waiter *w, int rank)
{
	return w->needs ? w->needs(w->comm, rank) : !has_done(w->comm, w->desc, rank);
}

/* The rank is gone; may something that it sent before still arrive? Across hosts that may come
 * after the news of its death, and messages may come after its goodbye. */
static bool may_still_come(const struct ko_life *life, const struct ko_waiter *waiter,
			   int64_t waits_since)
{
	int64_t since = waits_since > life->since ? waits_since : life->since;

	return waiter->comm->spread && !waiter->lost &&
	       (life->state == KO_LIFE_DEAD || waiter->needs) && ko_now_ms() - since < ARRIVE_MS;
}

/* Fails if a rank that is needed is gone. waits_since 0: the wait has not begun. */
static int check_gone(const struct ko_waiter *waiter, int64_t waits_since)
{
	struct kolo_comm *c = waiter->comm;
	const struct ko_life *life;

	for (int k = 0; (life = ko_lifelines_gone(c->lifelines, &k)); k++)
		if (ko_wait_needs(waiter, life->rank) && !may_still_come(life, waiter, waits_since))
			return report_gone(c, waiter->desc, life);
	return 0;
}

/* Fails if a rank without a lifeline to this one is needed and gone. */
static int check_peer(struct ko_wait_state *w, int peer)
{
	struct kolo_comm *c = w->comm;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT], where[WHERE_TEXT];
	int64_t now = ko_now_ms();

	if (!ko_wait_needs(w->waiter, peer) || !ko_lifelines_lost(c->lifelines, peer))
		return 0;
	if (!w->missed)
		w->missed = now;
	if (c->spread && !w->waiter->lost &&
	    now - w->missed < ARRIVE_MS) /* what it sent before may still arrive */
		return 0;
	describe_place(c, peer, where);
	return ko_fail(KOLO_EPEER, "%s died or left %s; noticed by %s in %s",
		       ko_comm_name(c, peer, them), where, ko_comm_name(c, c->rank, me),
		       ko_desc_text(w->desc, op));
}

/* Checks the peer, or all ranks if the operation has messages to or from several of them. */
static int check_peers(struct ko_wait_state *w)
{
	int rc = 0;

	if (!w->waiter->needs)
		return check_peer(w, w->peer);
	for (int r = 0; rc == 0 && r < w->comm->nranks; r++)
		if (r != w->comm->rank)
			rc = check_peer(w, r);
	return rc;
}

int ko_wait_hear(struct kolo_comm *c)
{
	if (c->spread && ko_now_ms() - c->looked_ms >= LOOK_MS) {
		c->looked_ms = ko_now_ms();
		ko_lifelines_look(c->lifelines);
	}
	return ko_roster_cause(c->roster);
}

int ko_wait_health(struct kolo_comm *c, const struct ko_desc *desc)
{
	int rc = ko_wait_hear(c), k = 0;

	if (rc == 0 && ko_lifelines_gone(c->lifelines, &k))
		rc = check_gone(&(struct ko_waiter){ .comm = c, .desc = desc }, 0);
	return rc;
}

int ko_wait_look(const struct ko_waiter *waiter)
{
	struct kolo_comm *c = waiter->comm;
	int64_t now = ko_now_ms();
	int rc = ko_roster_cause(c->roster);

	if (rc < 0 || now - c->looked_ms < LOOK_MS)
		return rc;
	c->looked_ms = now;
	ko_lifelines_look(c->lifelines);
	rc = ko_roster_cause(c->roster);
	return rc < 0 ? rc : check_gone(waiter, 0);
}

/* ---- Silence --------------------------------------------------------------------------------- */

enum { CIRCLE = -1, UNKNOWN = -2 };

/* Finds the rank to blame for a timeout. Follows who waits for whom, from the peer on, to the rank
 * that does not wait: all waits time out at about the same moment, and only that rank is to blame.
 * A rank that says it waits, but has not looked around for half the timeout, is stopped. CIRCLE:
 * all of them wait. UNKNOWN: across hosts a rank has news only from those that it has lifelines to.
 * Rank 0 has news from all. */
static int find_culprit(const struct ko_wait_state *w, int64_t now)
{
	const struct kolo_comm *c = w->comm;
	int64_t stale = now - (c->spread ? STALE_MS : c->timeout_ms / 2);
	bool making = w->desc->seq == 0;
	int rank = w->peer;

	for (int hops = 0; hops < c->nranks; hops++) {
		int next = ko_lifelines_waits_for(c->lifelines, rank, stale);
		bool posts =
			atomic_load_explicit(&c->roster->post[rank].beat, memory_order_relaxed);

		if (rank != c->rank && !ko_lifelines_hear(c->lifelines, rank) &&
		    (c->spread || (next < 0 && making && !posts)))
			return UNKNOWN;
		if (next < 0)
			return rank;
		rank = next;
	}
	return CIRCLE;
}

/* The state of the rank's process, if it is on this host: 'T' is stopped by a signal, 't' by a
 * debugger; else 0. */
static char state_of(const struct kolo_comm *c, int rank)
{
	bool here = ko_place_same(&c->table[rank].place, &c->table[c->rank].place);

	return here ? process_state(c->table[rank].pid) : 0;
}

/* The rank to blame, or a needed one whose process is stopped. On a machine that is overloaded
 * healthy ranks are late too, and waits change while they are followed. Debuggers and leak checkers
 * stop a process for a moment too, which is not meant. */
static int prefer_stopped(const struct ko_wait_state *w, int culprit)
{
	if (culprit >= 0 && state_of(w->comm, culprit) == 'T')
		return culprit;
	for (int r = 0; r < w->comm->nranks; r++)
		if (r != w->comm->rank && ko_wait_needs(w->waiter, r) &&
		    state_of(w->comm, r) == 'T')
			return r;
	return culprit;
}

static int report_silence(struct ko_wait_state *w, int64_t now)
{
	struct kolo_comm *c = w->comm;
	int culprit = prefer_stopped(w, find_culprit(w, now));
	int rank = culprit < 0 ? w->peer : culprit;
	char state = state_of(c, rank);
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT], where[WHERE_TEXT];

	/* Ranks that know the culprit report it first. */
	if (culprit == UNKNOWN && now - since_ms(w) < c->timeout_ms + STALE_MS)
		return 0;
	/* Waits are read one after the other, and what this rank waits for may have come
	 * meanwhile. A circle stays. */
	if (culprit != CIRCLE || !w->circle)
		w->circle = culprit == CIRCLE ? now : 0;
	if (culprit == CIRCLE && now - w->circle < CIRCLE_MS)
		return 0;
	describe_place(c, rank, where);
	return ko_fail(
		KOLO_ETIMEDOUT,
		"%s has kept the others waiting for %d s: it is %s%s%s; noticed by %s, waiting for rank %d "
		"through %s in %s. If it is only slow, raise KOLO_TIMEOUT",
		ko_comm_name(c, rank, them), c->timeout_ms / 1000, where,
		culprit == CIRCLE    ? ", and the ranks wait for each other in a circle"
		: culprit == UNKNOWN ? ", and may itself wait for a rank that is not known here"
				     : "",
		state == 'T' || state == 't'
			? ", and its process is stopped (SIGSTOP or a debugger)"
			: "",
		ko_comm_name(c, c->rank, me), w->peer, w->transport, ko_desc_text(w->desc, op));
}

/* Is it the making of the communicator? */
static bool is_making(const struct ko_desc *desc)
{
	return desc->seq == 0 && !ko_desc_is_p2p(desc);
}

/* ---- Looking around -------------------------------------------------------------------------- */

static void begin(struct ko_wait_state *w, const struct ko_waiter *waiter, int peer,
		  const char *transport)
{
	struct kolo_comm *c = waiter->comm;
	struct ko_post *post = &c->roster->post[c->rank];
	int64_t now_ns = ko_now_ns();

	*w = (struct ko_wait_state){ .waiter = waiter,
				     .comm = c,
				     .desc = waiter->desc,
				     .peer = peer,
				     .transport = transport,
				     .since_ns = now_ns };
	w->looked = w->dialled = w->last = since_ms(w);
	w->progressed = ko_progress_has(&c->progress) ? now_ns : 0;
	if (ko_desc_is_p2p(w->desc))
		ko_roster_post_p2p(c->roster, c->rank, w->desc);
	atomic_store_explicit(&post->beat, w->last, memory_order_relaxed);
	ko_post_wait_for(post, peer);
}

static void end(struct ko_wait_state *w)
{
	struct ko_post *post = &w->comm->roster->post[w->comm->rank];

	ko_post_wait_for(post, KO_NOBODY);
	if (ko_desc_is_p2p(w->desc))
		ko_roster_post_p2p(w->comm->roster, w->comm->rank, NULL);
	if (w->said)
		ko_lifelines_say(w->comm->lifelines);
}

/* Tells other hosts, now and then, what this rank waits for. While the communicator is made, ranks
 * of this host may not have its roster yet. */
static void say(struct ko_wait_state *w, int64_t now)
{
	if ((!w->comm->spread && w->desc->seq) || now - since_ms(w) < SAY_MS ||
	    now - w->said < AGAIN_MS)
		return;
	w->said = now;
	ko_lifelines_say(w->comm->lifelines);
}

int ko_wait_spins(int spins, int most, int64_t yield_ns)
{
	enum { TURN_NS = 500000 };

	if (yield_ns > KO_ALONE_NS && yield_ns < TURN_NS)
		return spins / 2;
	return spins < most / 2 ? 2 * spins + 1 : most;
}

/* How long it took matters where a wait spins or other hosts may end it. Elsewhere two looks at the
 * clock would make each change of ranks longer. */
static void yield(struct kolo_comm *c)
{
	if (!c->most_spins && !c->spread) {
		sched_yield();
		return;
	}
	c->yield_ns = ko_yield();
	c->spins = ko_wait_spins(c->spins, c->most_spins, c->yield_ns);
}

/* Does the peer ring this rank's bell? Of messages the wait may be for any of several ranks. */
static bool hears_bell(const struct ko_wait_state *w)
{
	const struct kolo_comm *c = w->comm;

	return !c->spread || (!w->waiter->needs &&
			      ko_place_same(&c->table[w->peer].place, &c->table[c->rank].place));
}

/* Yields at first: another rank may only need this core. Later sleeps until the peer wakes it, but
 * for no longer than a sixteenth of the time waited so far. So a sleep that nobody ends makes the
 * wait hardly longer, and a long wait costs little. Other hosts wake nobody, and a sleep ends some
 * 50 us late: short ones are not worth it then, unless so many others use this core that a yield
 * takes as long. */
static void give_core_away(const struct ko_wait_state *w, int64_t waited_us)
{
	struct kolo_comm *c = w->comm;
	int64_t us = waited_us / 16, most = hears_bell(w) ? BELL_SLEEP_US : MAX_SLEEP_US;

	if (ko_progress_has(&c->progress))
		most = PROGRESS_SLEEP_US;
	if (waited_us < SLEEP_FROM_US ||
	    (us < FAR_SLEEP_US && c->spread && c->yield_ns < LONG_YIELD_NS))
		yield(c);
	else
		ko_bells_sleep(c->bells, c->rank, w->peer, w->waiter->needs != NULL,
			       us < most ? us : most);
}

/* Not each time: the other library may give the core away too, and what this rank waits for is
 * often there after the first time. */
static void make_progress(struct ko_wait_state *w)
{
	int64_t now;

	if (!ko_progress_has(&w->comm->progress))
		return;
	now = ko_now_ns();
	if (now - w->progressed < PROGRESS_TURN_NS)
		return;
	ko_progress_make(&w->comm->progress);
	w->progressed = now;
}

/* Gives the core away for a moment and looks around. Returns 0: go on waiting; or an error. */
static int look_around(struct ko_wait_state *w)
{
	struct kolo_comm *c = w->comm;
	int64_t now_ns = w->begun ? ko_now_ns() : w->since_ns, now = now_ns / 1000000;
	int rc;

	w->begun = true;
	/* This process was stopped, suspended or starved, and perhaps all ranks with it. That time
	 * is nobody's fault. */
	if (now - w->last > PAUSE_MS)
		w->since_ns += (now - w->last) * 1000000;
	w->last = now;
	atomic_store_explicit(&c->roster->post[c->rank].beat, now, memory_order_relaxed);
	give_core_away(w, (now_ns - w->since_ns) / 1000);
	make_progress(w);
	/* A rank that is still making the communicator goes on. The cause first: what is asked
	 * before it may change until then. */
	if ((rc = ko_roster_cause(c->roster)) < 0 &&
	    (!is_making(w->desc) || !ko_roster_failed_later(c->roster)))
		return rc;
	if ((rc = ko_wait_compare(c, w->desc, w->peer)) < 0)
		return rc;
	say(w, now);
	if (now - w->looked >= LOOK_MS) {
		w->looked = now;
		ko_lifelines_look(c->lifelines);
		if ((rc = ko_lifelines_stopped(c->lifelines)) < 0 ||
		    (c->while_waiting && (rc = c->while_waiting(c)) < 0))
			return rc;
		if ((rc = check_gone(w->waiter, since_ms(w))) < 0 ||
		    (rc = compare_history(c, w->desc, w->peer)) < 0 ||
		    (c->parent && (rc = ko_roster_cause(c->parent)) < 0))
			return rc;
	}
	if (now - w->dialled >= DIAL_MS) {
		w->dialled = now;
		if ((rc = check_peers(w)) < 0)
			return rc;
	}
	if (c->timeout_ms && now - since_ms(w) >= c->timeout_ms)
		return report_silence(w, now);
	return 0;
}

/* ---- Waiting: every wait for another rank is here -------------------------------------------- */

/* A rank that has left after it was done may have sent what is waited for just before: then there
 * is no trouble. Returns what `try` returns, or the trouble again if nothing has come. */
static int try_once_more(int trouble, ko_try_fn *try, void *what)
{
	char why[KO_TEXT];
	int rc;

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	rc = try(what);
	return rc == KO_EAGAIN ? ko_fail(trouble, "%s", why) : rc;
}

/* Tries as often as a wait spins. */
static int spin(const struct ko_waiter *waiter, ko_try_fn *try, void *what)
{
	int rc = KO_EAGAIN;

	for (int spins = 0; rc == KO_EAGAIN && spins < waiter->comm->spins; spins++) {
		ko_relax();
		rc = try(what);
	}
	return rc;
}

/* After a try: spins, then posts that it waits, and looks around now and then. Each time takes half
 * a microsecond, and what comes meanwhile is seen that much later: so it spins again in between. */
static int keep_trying(const struct ko_waiter *waiter, int peer, const char *transport,
		       ko_try_fn *try, void *what)
{
	struct ko_wait_state state;
	int rc = spin(waiter, try, what), trouble = 0;

	if (rc != KO_EAGAIN)
		return rc;
	begin(&state, waiter, peer, transport);
	do {
		trouble = look_around(&state);
	} while (trouble == 0 && (rc = try(what)) == KO_EAGAIN &&
		 (rc = spin(waiter, try, what)) == KO_EAGAIN);
	/* Making a communicator and messages don't fail for what has just come. */
	if (trouble < 0 && (waiter->desc->seq == 0 || waiter->needs))
		rc = try_once_more(trouble, try, what);
	else if (rc == KO_EAGAIN)
		rc = trouble;
	/* After trouble the wait stays posted until the failure is. Otherwise a rank that looks in
	 * between would see that this one waits for nobody, and blame it. */
	if (trouble == 0 || rc != trouble)
		end(&state);
	return rc;
}

int ko_wait_longer(const struct ko_waiter *waiter, int peer, const char *transport,
		   enum ko_trace_kind kind, ko_try_fn *try, void *what)
{
	int64_t since = waiter->since ? ko_now_ns() : 0;
	int rc = keep_trying(waiter, peer, transport, try, what);

	if (since)
		ko_trace_add(waiter->comm->trace, kind, since, (uint64_t)peer, NULL);
	return rc;
}

int ko_wait_for(const struct ko_waiter *waiter, int peer, const char *transport,
		enum ko_trace_kind kind, ko_try_fn *try, void *what)
{
	int rc = try(what);

	return rc == KO_EAGAIN ? ko_wait_longer(waiter, peer, transport, kind, try, what) : rc;
}

/* A wait for another rank's report, until a time (ko_now_ms()). */
struct patience {
	const struct ko_waiter *waiter;
	int other;
	int64_t until;
};

static int try_later(void *what)
{
	const struct patience *p = what;

	return ko_now_ms() < p->until && ko_wait_needs(p->waiter, p->other) ? KO_EAGAIN : 0;
}

int ko_wait_for_cause(const struct ko_waiter *waiter, int peer, int other, const char *transport)
{
	enum { HERE_MS = 200, ELSEWHERE_MS = 1500 };
	const struct kolo_comm *c = waiter->comm;
	int patience = c->spread ? ELSEWHERE_MS : HERE_MS, half = c->timeout_ms / 2;
	struct patience p = { waiter, other,
			      ko_now_ms() + (half && half < patience ? half : patience) };
	struct ko_waiter lost = *waiter;

	lost.lost = true;
	return ko_wait_for(&lost, peer, transport, KO_TRACE_DATA, try_later, &p);
}
