/* Does the steps of several tracks (ko_tracks_do): those that can be done now, by turns; and if
 * there are none, waits until there is one. */
#include "comm/rings/tracks.h"

#include "comm/base/check.h"
#include "comm/base/clock.h"

#include <stdio.h>

struct drive {
	struct ko_run *run;
	struct ko_track *tracks;
	int n;
	const struct ko_track *awaited;
	struct ko_broken failed; /* link NULL: none */
};

/* Does the track wait for another rank? */
static bool waits(const struct ko_track *t)
{
	return t->state == KO_TRACK_DATA || t->state == KO_TRACK_ROOM;
}

static int peer_of(const struct ko_track *t)
{
	return t->state == KO_TRACK_DATA ? t->edges->prev : t->edges->next;
}

static struct ko_link *link_of(const struct ko_track *t)
{
	return t->state == KO_TRACK_DATA ? t->edges->from : t->edges->to;
}

/* For error texts: the interface or card of a rail says more than the transport. */
static const char *name_of(const struct ko_link *link)
{
	return *link->through ? link->through : link->ops->name;
}

static int note_failure(struct drive *d, const struct ko_link *link, int peer, bool beside, int rc)
{
	d->failed = (struct ko_broken){
		.link = link,
		.peer = peer,
		.awaited = d->awaited ? peer_of(d->awaited) : peer,
		.beside = beside,
	};
	return rc;
}

/* Are the slots of the step there? KO_EAGAIN: one is not, and t->state says which. */
static int find_slots(struct drive *d, struct ko_track *t, struct ko_slot *in, struct ko_slot *out)
{
	const struct ko_step *s = &t->step;
	struct ko_link *from = t->edges->from, *to = t->edges->to;
	int rc = 0;

	t->state = KO_TRACK_DATA;
	if (s->in)
		rc = from->ops->peek(from, ko_step_place(s), ko_step_bytes(d->run, s), in);
	if (rc)
		return rc < 0 ? note_failure(d, from, t->edges->prev, false, rc) : rc;
	t->state = KO_TRACK_ROOM;
	if (s->out)
		rc = to->ops->acquire(to, out);
	return rc < 0 ? note_failure(d, to, t->edges->next, false, rc) : rc;
}

/* Traces the step. In row 0 are the rank's operations and waits. */
static void record(const struct drive *d, const struct ko_track *t)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%s:", t->name);

	if (t->step.in)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " from rank %d", t->edges->prev);
	if (t->step.out)
		snprintf(text + n, sizeof(text) - (size_t)n, " to rank %d", t->edges->next);
	ko_trace_add(d->run->comm->trace, KO_TRACE_STEP, t->since, (uint64_t)(t - d->tracks) + 1,
		     text);
}

/* Does the track's next step if it can be done now. Returns 0: done; KO_EAGAIN: t->state says why
 * not; or an error. */
static int advance(struct drive *d, struct ko_track *t)
{
	struct ko_slot in, out;
	int rc;

	if (!waits(t)) {
		t->state = t->next(t);
		t->since = d->run->since ? ko_now_ns() : 0;
	}
	if (t->state == KO_TRACK_HELD || t->state == KO_TRACK_OVER)
		return KO_EAGAIN;
	rc = find_slots(d, t, &in, &out);
	if (rc == 0 && t->step.in)
		rc = ko_check_slot(d->run, t->edges, ko_step_bytes(d->run, &t->step), &in);
	if (rc == 0)
		rc = ko_step_do(d->run, t->edges, &t->step, &in, &out);
	if (rc)
		return rc;
	if (t->since)
		record(d, t);
	t->state = KO_TRACK_GOES;
	t->done(t);
	return 0;
}

/* Advances a link of which nothing is awaited. It matters as long as its rank does. */
static int advance_link(struct drive *d, struct ko_link *link, int peer)
{
	const struct ko_waiter waiter = ko_run_waiter(d->run);
	int rc = link ? link->ops->progress(link) : 0;

	return rc == 0 || !ko_wait_needs(&waiter, peer) ? 0 : note_failure(d, link, peer, true, rc);
}

static int advance_links(struct drive *d, const struct ko_track *t)
{
	const struct ko_edges *e = t->edges;
	int rc = t->state == KO_TRACK_DATA ? 0 : advance_link(d, e->from, e->prev);

	return rc == 0 && t->state != KO_TRACK_ROOM ? advance_link(d, e->to, e->next) : rc;
}

/* Can a step be done? */
static int try_tracks(void *what)
{
	struct drive *d = what;
	struct ko_slot in, out;
	int rc = KO_EAGAIN;

	for (int k = 0; rc == KO_EAGAIN && k < d->n; k++) {
		struct ko_track *t = &d->tracks[k];

		if (waits(t))
			rc = find_slots(d, t, &in, &out);
	}
	for (int k = 0; rc == KO_EAGAIN && k < d->n; k++) {
		int beside = advance_links(d, &d->tracks[k]);

		if (beside < 0)
			rc = beside;
	}
	return rc;
}

/* Waits until a track has a step that can be done. The wait is posted for the first one that waits
 * for another rank: what holds the others comes from it in the end. */
static int wait_for_step(struct drive *d)
{
	enum ko_trace_kind kind;
	int rc;

	d->awaited = NULL;
	for (int k = d->n; k-- > 0;)
		if (waits(&d->tracks[k]))
			d->awaited = &d->tracks[k];
	ko_check(d->awaited, "a track waits for another rank");
	kind = d->awaited->state == KO_TRACK_DATA ? KO_TRACE_DATA : KO_TRACE_ROOM;
	do {
		d->failed.link = NULL;
		rc = ko_wait(d->run, peer_of(d->awaited), name_of(link_of(d->awaited)), kind,
			     try_tracks, d);
		if (d->failed.link && rc < 0)
			rc = ko_slot_failed(d->run, &d->failed, rc);
	} while (rc == KO_EAGAIN);
	d->awaited = NULL;
	return rc;
}

/* Gives each track a turn. *over: none of them has a step left. Returns 0: a step was done;
 * KO_EAGAIN: none can be; or an error. */
static int take_turns(struct drive *d, bool *over)
{
	int rc = KO_EAGAIN;

	*over = true;
	for (int k = 0; k < d->n; k++) {
		int one = advance(d, &d->tracks[k]);

		if (one < 0)
			return d->failed.link ? ko_slot_failed(d->run, &d->failed, one) : one;
		rc = one == 0 ? 0 : rc;
		*over = *over && d->tracks[k].state == KO_TRACK_OVER;
	}
	return rc;
}

int ko_tracks_do(struct ko_run *run, struct ko_track *tracks, int n)
{
	struct drive d = { .run = run, .tracks = tracks, .n = n };
	bool over = false;
	int rc = 0;

	while (rc == 0 && !over) {
		rc = take_turns(&d, &over);
		if (rc == KO_EAGAIN)
			rc = over ? 0 : wait_for_step(&d);
	}
	return rc;
}
