/* Checking the paths of a ring with a pattern (ko_gpu_path_check_run). The pattern is passed by
 * the same moves as elements are. */
#include "cuda/stream/path_check.h"
#include "cuda/gpu/watchdog.h"
#include "cuda/stream/moves.h"

#include "comm/core/wait.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- A pattern on its way -------------------------------------------------------------------- */

struct passing {
	struct ko_gpu_comm *g;
	bool watched; /* by the thread, which has the lifelines then */
};

static int try_reached(void *what)
{
	const struct passing *p = what;
	struct ko_gpu_comm *g = p->g;
	char them[KO_RANK_TEXT];
	int rc = g->driver->event_poll(g->gpu, g->last.event), k = 0;
	const struct ko_life *gone;

	if (rc != KO_EAGAIN)
		return rc < 0 ? ko_gpu_error(g, rc, "trying the path to another GPU") : 0;
	gone = p->watched ? NULL : ko_lifelines_gone(g->inner->lifelines, &k);
	return gone ? ko_fail(KOLO_EPEER, "%s died or left while the ranks joined their GPUs",
			      ko_comm_name(g->comm, gone->rank, them))
		    : KO_EAGAIN;
}

/* Waits until what was recorded is over, or the watching thread has let it go. */
static void outlast(struct ko_gpu_comm *g)
{
	enum { STEPS = 10000, STEP_US = 500 };

	for (int k = 0; k < STEPS && g->driver->event_poll(g->gpu, g->last.event) == KO_EAGAIN; k++)
		nanosleep(&(struct timespec){ .tv_nsec = STEP_US * 1000 }, NULL);
}

/* Sends this rank's pattern to next, and receives prev's. It fits a slot. Without `staged`: over
 * edges that are not staged, before the thread watches. With `staged`: over the others, after the
 * proxies have started. Blocks until it has come, or until nothing of it is under way any more. */
static int pass(struct ko_gpu_comm *g, const struct ko_gpu_path_check *check, bool staged)
{
	const char *src = check->memory.at;
	struct kolo_comm *c = staged ? g->comm : g->inner;
	struct ko_moves_tape m = {
		.tape = { .run = { .comm = c, .size = 1, .copy = ko_copy(KOLO_U8) },
			  .g = g,
			  .stream = check->stream }
	};
	struct ko_tape *t = &m.tape;
	struct passing passing = { g, staged };
	int rc;

	ko_roster_desc(c->roster, c->rank, c->sequence.seq, &t->run.desc);
	rc = ko_gpu_pass_on(&m, check->ring, src, (char *)check->memory.at + check->len, check->len,
			    staged);
	if (rc == 0)
		rc = ko_tape_end(t);
	if (rc == 0)
		rc = ko_tape_mark_last(g, check->stream, 0);
	if (rc == 0)
		rc = ko_wait(&t->run, check->ring->in.peer, "the GPU's stream", KO_TRACE_DATA,
			     try_reached, &passing);
	if (rc < 0) { /* the others wait for this rank's part */
		rc = ko_comm_fail(c, ko_tape_give_up(t, 0, rc), "%s", kolo_last_error());
		if (staged)
			outlast(g);
		else
			ko_gpu_let_go(g);
	}
	g->last.recorded = false;
	g->attached.sent = g->attached.received = 0; /* the program did not send these bytes */
	return rc;
}

/* ---- The check ------------------------------------------------------------------------------- */

int ko_gpu_path_check_prepare(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring, size_t len,
			      struct ko_gpu_path_check *t)
{
	const struct ko_driver *d = g->driver;
	int rc;

	t->ring = ring;
	t->len = len;
	t->bytes = malloc(2 * len);
	if (!t->bytes)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to check a path between GPUs",
			       g->comm->rank);
	for (size_t k = 0; k < len; k++) {
		t->bytes[k] = ko_gpu_path_pattern(g->comm->rank, k);
		t->bytes[len + k] = ko_gpu_path_pattern(ring->in.peer, k);
	}
	if ((rc = d->stream_create(g->gpu, &t->stream)) < 0 ||
	    (rc = d->alloc(g->gpu, 2 * len, &t->memory)) < 0 ||
	    (rc = d->put(g->gpu, t->memory.at, t->bytes, len)) < 0)
		return ko_gpu_error(g, rc, "memory to check a path");
	return 0;
}

int ko_gpu_path_check_run(struct ko_gpu_comm *g, const struct ko_gpu_path_check *t, bool staged)
{
	char *came = (char *)t->memory.at + t->len;
	int rc = pass(g, t, staged);

	if (rc == 0 && (rc = g->driver->get(g->gpu, t->bytes, came, t->len)) < 0)
		rc = ko_gpu_error(g, rc, "reading what a path brought");
	if (rc == 0 && staged == !!t->ring->in.staged &&
	    memcmp(t->bytes, t->bytes + t->len, t->len) != 0)
		rc = ko_gpu_path_lies(g, t->ring->in.peer, staged);
	return rc;
}

void ko_gpu_path_check_end(struct ko_gpu_comm *g, struct ko_gpu_path_check *t)
{
	if (t->stream)
		g->driver->stream_destroy(g->gpu, t->stream);
	g->driver->release(g->gpu, &t->memory);
	free(t->bytes);
}
