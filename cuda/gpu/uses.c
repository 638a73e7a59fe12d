/* Which communicators a queue has been used with (ko_gpu_uses_failure). The roster is asked after
 * the stream is done. On one host a rank that fails writes its cause there before any stream goes
 * on. */
#include "cuda/gpu/uses.h"

#include "comm/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct ko_gpu_uses *ko_gpu_uses_create(void)
{
	struct ko_gpu_uses *uses = calloc(1, sizeof(*uses));

	if (uses) {
		pthread_mutex_init(&uses->lock, NULL);
		uses->holders = 1;
	}
	return uses;
}

void ko_gpu_uses_let_go(struct ko_gpu_uses *uses)
{
	int left;

	pthread_mutex_lock(&uses->lock);
	left = --uses->holders;
	pthread_mutex_unlock(&uses->lock);
	if (left)
		return;
	pthread_mutex_destroy(&uses->lock);
	free(uses->use);
	free(uses);
}

/* Adds it to the queue's list. false: no memory. */
static bool add_use(struct ko_gpu_uses *uses, struct ko_gpu_comm *g)
{
	struct ko_gpu_use *more;

	pthread_mutex_lock(&uses->lock);
	more = realloc(uses->use, ((size_t)uses->n + 1) * sizeof(*more));
	if (more) {
		uses->use = more;
		uses->use[uses->n++] = (struct ko_gpu_use){ .g = g };
		uses->holders++;
	}
	pthread_mutex_unlock(&uses->lock);
	return more;
}

int ko_gpu_use(struct ko_gpu_comm *g, struct ko_gpu_uses *uses)
{
	struct ko_gpu_uses **more;

	for (int k = 0; k < g->nuses; k++)
		if (g->uses[k] == uses)
			return 0;
	more = realloc(g->uses, ((size_t)g->nuses + 1) * sizeof(struct ko_gpu_uses *));
	if (more)
		g->uses = more;
	if (!more || !add_use(uses, g))
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to remember a queue",
			       g->comm->rank);
	g->uses[g->nuses++] = uses;
	return 0;
}

/* With the lock. */
static void keep_failure(struct ko_gpu_uses *uses, struct ko_gpu_use *use)
{
	int code = use->told ? 0 : ko_roster_cause(use->g->comm->roster);

	if (code == 0)
		return;
	use->told = true;
	if (uses->code)
		return;
	uses->code = code;
	snprintf(uses->text, sizeof(uses->text), "%s", kolo_last_error());
}

static void remove_use(struct ko_gpu_uses *uses, const struct ko_gpu_comm *g)
{
	int k = 0;

	pthread_mutex_lock(&uses->lock);
	while (uses->use[k].g != g)
		k++;
	keep_failure(uses, &uses->use[k]);
	uses->use[k] = uses->use[--uses->n];
	pthread_mutex_unlock(&uses->lock);
	ko_gpu_uses_let_go(uses);
}

void ko_gpu_use_no_more(struct ko_gpu_comm *g)
{
	for (int k = 0; k < g->nuses; k++)
		remove_use(g->uses[k], g);
	free(g->uses);
	g->uses = NULL;
	g->nuses = 0;
}

/* With several hosts each rank has a roster of its own, and hears of a failure over lifelines. A
 * neighbour that has heard lets this rank's stream go, which may be sooner: then the cause is still
 * on its way to the thread that watches. */
static void await_cause(struct ko_gpu_comm *g)
{
	enum { PATIENCE_MS = 5000, STEP_US = 500 };
	int64_t until = ko_now_ms() + PATIENCE_MS;

	while (g->own && atomic_load_explicit(&g->own->failed.value, memory_order_acquire) &&
	       ko_roster_cause(g->comm->roster) == 0) {
		if (ko_now_ms() > until) {
			ko_comm_fail(
				g->comm, KOLO_EPEER,
				"rank %d: its stream was let go by a rank of its host whose communicator has failed, and the cause did not come",
				g->comm->rank);
			return;
		}
		nanosleep(&(struct timespec){ .tv_nsec = STEP_US * 1000 }, NULL);
	}
}

int ko_gpu_uses_failure(struct ko_gpu_uses *uses)
{
	int rc = 0;

	pthread_mutex_lock(&uses->lock);
	for (int k = 0; k < uses->n; k++) {
		if (!uses->use[k].told)
			await_cause(uses->use[k].g);
		keep_failure(uses, &uses->use[k]);
	}
	if (uses->code)
		rc = ko_fail(uses->code, "%s", uses->text);
	uses->code = 0;
	pthread_mutex_unlock(&uses->lock);
	return rc;
}
