/* Registered memory: finding a buffer in it, and comparing the places that neighbours use
 * (ko_gpu_places_compare). */
#include "cuda/gpu/window.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Finding --------------------------------------------------------------------------------- */

static struct ko_gpu_window *window_with(const struct ko_gpu_comm *g, const void *buffer,
					 size_t len)
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

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Have all ranks registered something, and can they see each other's posts? The answer is the same
 * on all. */
static bool compares(const struct ko_gpu_comm *g)
{
	return g->last_window && !g->fixed;
}

/* Hashes all places into one number. So a difference that passed without notice shows later,
 * too. */
static uint64_t extend(uint64_t history, uint64_t seq, const struct ko_gpu_places *p)
{
	const uint64_t numbers[] = { seq, p->src.at, p->src.window, p->dst.at, p->dst.window };

	for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
		history = (history ^ numbers[k]) * 0x9e3779b97f4a7c15u;
		history ^= history >> 29;
	}
	return history;
}

void ko_gpu_places_post(struct ko_gpu_comm *g, uint64_t seq, const struct ko_gpu_places *mine)
{
	struct ko_gpu_post *post;

	if (!compares(g))
		return;
	post = ko_gpu_post_of(g, g->comm->rank, seq);
	g->history = extend(g->history, seq, mine);
	atomic_store(&post->seq, 0);
	atomic_store(&post->history, g->history);
	atomic_store(&post->src_at, mine->src.at);
	atomic_store(&post->dst_at, mine->dst.at);
	atomic_store(&post->src, mine->src.window);
	atomic_store(&post->dst, mine->dst.window);
	atomic_store(&post->seq, seq);
}

/* Reads a rank's post. false: the rank has not posted it, or has overwritten it. */
static bool hear(const struct ko_gpu_comm *g, int rank, uint64_t seq, struct ko_gpu_places *out,
		 uint64_t *history)
{
	struct ko_gpu_post *post = ko_gpu_post_of(g, rank, seq);

	if (atomic_load(&post->seq) != seq)
		return false;
	out->src = (struct ko_gpu_place){ atomic_load(&post->src_at), atomic_load(&post->src) };
	out->dst = (struct ko_gpu_place){ atomic_load(&post->dst_at), atomic_load(&post->dst) };
	*history = atomic_load(&post->history);
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
	uint64_t history;

	if (!hear(g, peer, desc->seq, &theirs, &history))
		return 0;
	if (same_place(theirs.src, mine->src) && same_place(theirs.dst, mine->dst))
		return history == g->history
			       ? 0
			       : ko_fail(KOLO_EMISMATCH,
					 "ranks disagree about registered memory: %s and %s had buffers in different places of it "
					 "in some operation before %s",
					 ko_comm_name(c, c->rank, me), ko_comm_name(c, peer, them),
					 ko_desc_text(desc, op));
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

	if (!compares(g))
		return 0;
	rc = compare_with(g, desc, mine, g->rings[KO_GPU_ALL].in.peer);
	return rc < 0 ? rc : compare_with(g, desc, mine, g->rings[KO_GPU_ALL].out.peer);
}

/* ---- The end --------------------------------------------------------------------------------- */

void ko_gpu_window_close(struct ko_gpu_comm *g, struct ko_gpu_window *w)
{
	for (int r = 0; w->mapped && r < g->comm->nranks; r++)
		g->driver->release(g->gpu, &w->mapped[r]);
	free(w->mapped);
	free(w->at);
	w->mapped = NULL;
	w->at = NULL;
}

void ko_gpu_windows_close(struct ko_gpu_comm *g)
{
	for (int k = 0; k < g->nwindows; k++)
		ko_gpu_window_close(g, &g->windows[k]);
	free(g->windows);
	g->windows = NULL;
	g->nwindows = 0;
}
