/* See window.h. Descriptors of memory go round the ring: a rank's lifelines lead to its neighbours. */
#include "window.h"
#include "stream.h"

#include "../comm/call.h"
#include "../comm/clock.h"
#include "../comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Finding -------------------------------------------------------------------------------------------- */

static struct ko_gpu_window *window_with(const struct ko_gpu_comm *g, const void *buffer, size_t len)
{
	for (int k = 0; k < g->nwindows; k++) {
		struct ko_gpu_window *w = &g->windows[k];
		size_t before = (uintptr_t)buffer - (uintptr_t)w->mine;

		if (before <= w->len && len <= w->len - before)
			return w;
	}
	return NULL;
}

struct ko_gpu_place ko_gpu_window_find(const struct ko_gpu_comm *g, const void *buffer, size_t len)
{
	const struct ko_gpu_window *w = window_with(g, buffer, len);

	return w && w->at ? (struct ko_gpu_place){ (size_t)((const char *)buffer - w->mine), w->id }
			  : (struct ko_gpu_place){ 0 };
}

char *ko_gpu_window_at(const struct ko_gpu_comm *g, int rank, struct ko_gpu_place place)
{
	for (int k = 0; k < g->nwindows; k++)
		if (g->windows[k].id == place.window)
			return g->windows[k].at[rank] + place.at;
	return NULL;
}

/* ---- Comparing ------------------------------------------------------------------------------------------ */

void ko_gpu_places_post(const struct ko_gpu_comm *g, uint64_t seq, const struct ko_gpu_places *mine)
{
	struct ko_gpu_post *post;

	if (g->last_window == 0) /* the same on all ranks */
		return;
	post = ko_gpu_post_of(g, g->comm->rank, seq);
	atomic_store(&post->seq, 0);
	atomic_store(&post->src_at, mine->src.at);
	atomic_store(&post->dst_at, mine->dst.at);
	atomic_store(&post->src, mine->src.window);
	atomic_store(&post->dst, mine->dst.window);
	atomic_store(&post->seq, seq);
}

/* false: the rank has not posted it, or it is too long ago. */
static bool hear(const struct ko_gpu_comm *g, int rank, uint64_t seq, struct ko_gpu_places *out)
{
	struct ko_gpu_post *post = ko_gpu_post_of(g, rank, seq);

	if (atomic_load(&post->seq) != seq)
		return false;
	out->src = (struct ko_gpu_place){ atomic_load(&post->src_at), atomic_load(&post->src) };
	out->dst = (struct ko_gpu_place){ atomic_load(&post->dst_at), atomic_load(&post->dst) };
	return atomic_load(&post->seq) == seq;
}

enum { PLACES_TEXT = 160 };

static const char *describe(const struct ko_gpu_places *p, char out[PLACES_TEXT])
{
	static const char format[] = "%s at byte %llu of registration %u";
	unsigned long long src = p->src.at, dst = p->dst.at;
	int n = 0;

	if (!p->src.window && !p->dst.window)
		return "buffers that are not all registered";
	if (p->src.window)
		n = snprintf(out, PLACES_TEXT, format, "src", src, p->src.window);
	if (p->dst.window)
		snprintf(out + n, (size_t)(PLACES_TEXT - n), format, n ? " and dst" : "dst", dst,
			 p->dst.window);
	return out;
}

static bool same_place(struct ko_gpu_place a, struct ko_gpu_place b)
{
	return a.window == b.window && a.at == b.at;
}

static int compare_with(const struct ko_gpu_comm *g, const struct ko_desc *desc,
			const struct ko_gpu_places *mine, int peer)
{
	const struct kolo_comm *c = g->comm;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT];
	char my_places[PLACES_TEXT], their_places[PLACES_TEXT];
	struct ko_gpu_places theirs;

	if (!hear(g, peer, desc->seq, &theirs) ||
	    (same_place(theirs.src, mine->src) && same_place(theirs.dst, mine->dst)))
		return 0;
	return ko_fail(
		KOLO_EMISMATCH,
		"ranks disagree about registered memory in %s: %s called with %s, %s with %s: want the same place of "
		"the same registration on all ranks, or buffers that are not registered on all",
		ko_desc_text(desc, op), ko_comm_name(c, c->rank, me), describe(mine, my_places),
		ko_comm_name(c, peer, them), describe(&theirs, their_places));
}

int ko_gpu_places_compare(const struct ko_gpu_comm *g, const struct ko_desc *desc,
			  const struct ko_gpu_places *mine)
{
	int rc;

	if (g->last_window == 0)
		return 0;
	rc = compare_with(g, desc, mine, g->in.peer);
	return rc < 0 ? rc : compare_with(g, desc, mine, g->out.peer);
}

/* ---- The end -------------------------------------------------------------------------------------------- */

void ko_gpu_window_close(struct ko_gpu_comm *g, struct ko_gpu_window *w)
{
	for (int r = 0; w->mapped && r < g->comm->nranks; r++)
		g->driver->release(g->gpu, &w->mapped[r]);
	free(w->mapped);
	free(w->at);
}

void ko_gpu_windows_close(struct ko_gpu_comm *g)
{
	for (int k = 0; k < g->nwindows; k++)
		ko_gpu_window_close(g, &g->windows[k]);
	free(g->windows);
	g->windows = NULL;
	g->nwindows = 0;
}
