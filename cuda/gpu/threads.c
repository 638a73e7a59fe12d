/* Edges and marks between ranks of one process (ko_gpu_pair_open, ko_gpu_marks_open). Lists of this
 * process are where ranks find each other's. */
#include "cuda/gpu/threads.h"

#include <stdlib.h>

/* ---- Edges ----------------------------------------------------------------------------------- */

static int make_events(struct ko_gpu_comm *g, void **events, int n)
{
	int rc = 0;

	for (int k = 0; rc == 0 && k < n; k++)
		rc = g->driver->event_create(g->gpu, &events[k]);
	return rc < 0 ? ko_gpu_error(g, rc, "making an event") : 0;
}

/* Those that were made. */
static void destroy_events(const struct ko_gpu_comm *g, void **events, int n)
{
	for (int k = 0; k < n; k++)
		if (events[k])
			g->driver->event_destroy(g->gpu, events[k]);
}

/* Pairs of this process whose senders have not come. A receiver sends the address of its pair, and
 * the sender finds it here. */
static struct {
	pthread_mutex_t lock;
	struct ko_gpu_pair *first;
} offered = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void offer_pair(struct ko_gpu_pair *pair)
{
	pthread_mutex_lock(&offered.lock);
	pair->next = offered.first;
	offered.first = pair;
	pthread_mutex_unlock(&offered.lock);
}

/* Takes it out of the list. NULL: it is not there. */
static struct ko_gpu_pair *take_pair(uint64_t address)
{
	struct ko_gpu_pair **at, *found;

	pthread_mutex_lock(&offered.lock);
	for (at = &offered.first; *at && (uintptr_t)*at != address; at = &(*at)->next)
		;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&offered.lock);
	return found;
}

/* The receiver's part. */
int ko_gpu_pair_open(struct ko_gpu_comm *g, struct ko_gpu_link *in)
{
	struct ko_gpu_pair *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for an edge between threads",
			       g->comm->rank);
	atomic_store(&pair->holders, 1);
	pair->memory = in->memory; /* the pair's from here on */
	in->pair = pair;
	offer_pair(pair);
	return make_events(g, pair->empty, KO_GPU_SLOTS);
}

/* The sender's part of an edge inside this process. */
int ko_gpu_pair_join(struct ko_gpu_comm *g, struct ko_gpu_link *out, uint64_t address,
		     const struct ko_gpu_export *slots)
{
	struct ko_gpu_pair *pair = take_pair(address);
	int rc;

	if (!pair)
		return ko_fail(KOLO_ESYS,
			       "rank %d: rank %d says that it is in this process, and is not",
			       g->comm->rank, out->peer);
	atomic_fetch_add(&pair->holders, 1);
	out->pair = pair;
	out->memory = pair->memory;
	rc = g->driver->reach(g->gpu, pair->memory.at, slots);
	if (rc < 0)
		return ko_gpu_error(
			g, rc,
			"reaching the memory of the next rank's GPU (KOLO_CUDA_P2P=0 does without)");
	return make_events(g, pair->full, KO_GPU_SLOTS);
}

/* The last to leave frees the pair. The other rank may still have to record a wait for an event in
 * it. */
void ko_gpu_pair_let_go(struct ko_gpu_comm *g, struct ko_gpu_link *link)
{
	struct ko_gpu_pair *pair = link->pair;

	link->pair = NULL;
	if (pair)
		take_pair((uintptr_t)pair); /* in case no rank has come */
	if (!pair || atomic_fetch_sub(&pair->holders, 1) > 1)
		return;
	g->driver->release(g->gpu, &pair->memory);
	destroy_events(g, pair->full, KO_GPU_SLOTS);
	destroy_events(g, pair->empty, KO_GPU_SLOTS);
	free(pair);
}

/* ---- Marks ----------------------------------------------------------------------------------- */

/* All of this process. */
static struct {
	pthread_mutex_t lock;
	struct ko_gpu_marks *first;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

int ko_gpu_marks_open(struct ko_gpu_comm *g)
{
	struct ko_gpu_marks *marks = calloc(1, sizeof(*marks));
	int rc;

	if (!marks)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for what its stream tells threads",
			       g->comm->rank);
	marks->holders = 1;
	pthread_mutex_lock(&kept.lock);
	marks->next = kept.first;
	kept.first = marks;
	pthread_mutex_unlock(&kept.lock);
	g->marks[g->comm->rank] = marks;
	rc = make_events(g, &marks->ready.event, 1);
	return rc == 0 ? make_events(g, &marks->done.event, 1) : rc;
}

int ko_gpu_crossings_open(struct ko_gpu_comm *g)
{
	struct ko_gpu_marks *marks = g->marks[g->comm->rank];
	int rc = 0;

	marks->nranks = g->comm->nranks;
	marks->from = calloc((size_t)marks->nranks, sizeof(*marks->from));
	if (!marks->from)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for lanes between threads",
			       g->comm->rank);
	for (int r = 0; rc == 0 && r < marks->nranks; r++)
		if (r != g->comm->rank && g->marks[r])
			rc = make_events(g, marks->from[r].empty, KO_GPU_LANE_SLOTS);
	return rc;
}

int ko_gpu_crossings_join(struct ko_gpu_comm *g)
{
	int rc = 0;

	for (int r = 0; rc == 0 && r < g->comm->nranks; r++)
		if (r != g->comm->rank && g->marks[r])
			rc = make_events(g, g->marks[r]->from[g->comm->rank].full,
					 KO_GPU_LANE_SLOTS);
	return rc;
}

int ko_gpu_marks_join(struct ko_gpu_comm *g, int rank, uint64_t address)
{
	struct ko_gpu_marks *marks;

	pthread_mutex_lock(&kept.lock);
	for (marks = kept.first; marks && (uintptr_t)marks != address; marks = marks->next)
		;
	if (marks)
		marks->holders++;
	pthread_mutex_unlock(&kept.lock);
	g->marks[rank] = marks;
	return marks ? 0
		     : ko_fail(KOLO_ESYS,
			       "rank %d: rank %d says that it is in this process, and is not",
			       g->comm->rank, rank);
}

static void let_go_of_marks(const struct ko_gpu_comm *g, struct ko_gpu_marks *marks)
{
	struct ko_gpu_marks **at;
	bool last;

	pthread_mutex_lock(&kept.lock);
	last = --marks->holders == 0;
	for (at = &kept.first; last && *at != marks; at = &(*at)->next)
		;
	if (last)
		*at = marks->next;
	pthread_mutex_unlock(&kept.lock);
	if (!last)
		return;
	destroy_events(g, &marks->ready.event, 1);
	destroy_events(g, &marks->done.event, 1);
	for (int r = 0; marks->from && r < marks->nranks; r++) {
		destroy_events(g, marks->from[r].full, KO_GPU_LANE_SLOTS);
		destroy_events(g, marks->from[r].empty, KO_GPU_LANE_SLOTS);
	}
	g->driver->release(g->gpu, &marks->lanes);
	free(marks->from);
	free(marks);
}

void ko_gpu_marks_let_go(struct ko_gpu_comm *g)
{
	for (int r = 0; g->marks && r < g->comm->nranks; r++)
		if (g->marks[r])
			let_go_of_marks(g, g->marks[r]);
	free(g->marks);
	g->marks = NULL;
}
