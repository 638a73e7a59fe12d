/* Making lanes (ko_gpu_lanes_map, ko_gpu_lanes_list), and comparing what the two ends of a message
 * were called with (ko_gpu_lane_post). */
#include "cuda/gpu/lanes.h"
#include "cuda/gpu/far.h"
#include "cuda/gpu/map.h"
#include "cuda/gpu/threads.h"
#include "cuda/gpu/window.h"

#include <stdlib.h>

/* ---- Making ---------------------------------------------------------------------------------- */

enum { SLOTS = KO_GPU_LANE_BANKS * KO_GPU_LANE_SLOTS };

/* Bytes of the slots of one lane between GPUs: all lanes to a rank have KOLO_CUDA_MEMORY together,
 * or a little more if there are many. */
static size_t lane_len(const struct ko_gpu_comm *g)
{
	size_t unit = SLOTS * KO_GPU_ALIGN, len = g->arena / (size_t)g->local->nranks;

	return len < unit ? unit : len / unit * unit;
}

/* Those by events only if there are other ranks in this process. */
static int make_ways(struct ko_gpu_comm *g)
{
	struct ko_gpu_lanes *lanes = &g->lanes;
	bool events = false;
	int rc = 0;

	for (int r = 0; r < g->comm->nranks; r++)
		events = events || (r != g->comm->rank && g->marks[r]);
	for (int k = 0; rc == 0 && k < KO_GPU_WAYS_OF_KIND; k++) {
		rc = g->driver->stream_create(g->gpu, &lanes->ways[k]);
		if (rc == 0)
			rc = g->driver->stream_create(g->gpu, &lanes->captured_ways[k]);
		if (rc == 0 && events)
			rc = g->driver->stream_create(g->gpu,
						      &lanes->ways[KO_GPU_WAYS_OF_KIND + k]);
	}
	return rc < 0 ? ko_gpu_error(g, rc, "making a stream") : 0;
}

/* This rank's slots. */
static int make_slots(struct ko_gpu_comm *g)
{
	struct ko_gpu_memory *memory = &g->marks[g->comm->rank]->lanes;
	size_t len = lane_len(g) * (size_t)g->local->nranks;
	int rc = g->driver->alloc(g->gpu, len, memory);

	if (rc < 0)
		return ko_gpu_error(g, rc, "memory for slots of lanes (KOLO_CUDA_MEMORY)");
	g->lanes.window = (struct ko_gpu_window){ .mine = memory->at, .len = len };
	return ko_gpu_crossings_open(g);
}

int ko_gpu_lanes_map(struct ko_gpu_comm *g, struct kolo_comm *over)
{
	int rc = make_slots(g);

	rc = ko_gpu_map(g, over, &g->lanes.window, true, rc);
	if (rc == 0)
		rc = ko_gpu_check_paths(g, over);
	if (rc != KOLO_ENOTSUP)
		return rc;
	ko_log(&g->comm->log, KOLO_LOG_INFO, "messages on streams go by the host: %s",
	       kolo_last_error());
	ko_gpu_window_close(g, &g->lanes.window);
	g->lanes.far = true;
	return 0;
}

/* One end of the lane between this rank and `peer`. */
static struct ko_gpu_lane end_of(const struct ko_gpu_comm *g, int peer, bool sends)
{
	int me = g->comm->rank, from = sends ? me : peer, to = sends ? peer : me;
	struct ko_gpu_lane lane = { .peer = peer, .sends = sends };

	if (peer == me)
		return lane;
	lane.board = ko_gpu_board_of(g, from, to, sends);
	lane.gpu_board = ko_gpu_board_there(g, from, to, sends);
	lane.far = ko_gpu_is_far(g, from, to);
	if (lane.far) {
		lane.stride = ko_gpu_far_len(g) / SLOTS;
		ko_gpu_far_slots(g, &lane);
		return lane;
	}
	lane.stride = lane_len(g) / SLOTS;
	lane.slots = g->lanes.window.at[to] + (size_t)g->places[from] * lane_len(g);
	if (g->marks[peer])
		lane.crossing = &g->marks[to]->from[from];
	return lane;
}

int ko_gpu_lanes_list(struct ko_gpu_comm *g)
{
	size_t nranks = (size_t)g->comm->nranks;
	int rc = make_ways(g);

	g->lanes.out = calloc(nranks, sizeof(*g->lanes.out));
	g->lanes.in = calloc(nranks, sizeof(*g->lanes.in));
	if (!g->lanes.out || !g->lanes.in)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for lanes", g->comm->rank);
	for (int r = 0; r < g->comm->nranks; r++) {
		g->lanes.out[r] = end_of(g, r, true);
		g->lanes.in[r] = end_of(g, r, false);
	}
	return rc == 0 && g->lanes.window.at ? ko_gpu_crossings_join(g) : rc;
}

void ko_gpu_lanes_close(struct ko_gpu_comm *g)
{
	struct ko_gpu_lanes *lanes = &g->lanes;

	ko_gpu_window_close(g, &lanes->window);
	for (int k = 0; k < KO_GPU_WAYS; k++)
		if (lanes->ways[k])
			g->driver->stream_destroy(g->gpu, lanes->ways[k]);
	for (int k = 0; k < KO_GPU_WAYS_OF_KIND; k++)
		if (lanes->captured_ways[k])
			g->driver->stream_destroy(g->gpu, lanes->captured_ways[k]);
	free(lanes->out);
	free(lanes->in);
	*lanes = (struct ko_gpu_lanes){ 0 };
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static void post(struct ko_gpu_lane_post *at, uint64_t number, uint64_t history, size_t n,
		 enum kolo_type type)
{
	atomic_store(&at->number, 0);
	atomic_store(&at->n, n);
	atomic_store(&at->type, (uint64_t)type);
	atomic_store(&at->history, history);
	atomic_store(&at->number, number);
}

/* What the other end said of a message. */
struct heard {
	uint64_t n, type, history;
};

/* Has it posted message `number`? */
static bool hear(const struct ko_gpu_lane_post *at, uint64_t number, struct heard *out)
{
	if (atomic_load(&at->number) != number)
		return false;
	out->n = atomic_load(&at->n);
	out->type = atomic_load(&at->type);
	out->history = atomic_load(&at->history);
	return atomic_load(&at->number) == number;
}

/* A difference that passed without notice, because one end was far ahead, shows in a later post. */
static uint64_t extend(uint64_t history, size_t n, enum kolo_type type)
{
	history = (history ^ n) * 0x9e3779b97f4a7c15u;
	history = (history ^ history >> 29 ^ (uint64_t)type) * 0x9e3779b97f4a7c15u;
	return history ^ history >> 32;
}

int ko_gpu_lane_post(struct ko_gpu_comm *g, struct ko_gpu_lane *lane, int bank, size_t n,
		     enum kolo_type type)
{
	uint64_t number = ++lane->messages[bank];
	uint64_t history = lane->history[bank] = extend(lane->history[bank], n, type);
	size_t at = number % KO_GPU_LANE_POSTS;
	struct ko_gpu_lane_post *sent = &lane->board->sent[bank][at];
	struct ko_gpu_lane_post *got = &lane->board->received[bank][at];
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];
	struct heard theirs;

	post(lane->sends ? sent : got, number, history, n, type);
	/* Of two ends at least one sees the other's post, if they are not too far apart. */
	if (!hear(lane->sends ? got : sent, number, &theirs) || theirs.history == history)
		return 0;
	ko_comm_name(g->comm, g->comm->rank, me);
	ko_comm_name(g->comm, lane->peer, them);
	if (theirs.n == n && theirs.type == (uint64_t)type)
		return ko_fail(
			KOLO_EMISMATCH,
			"%s and %s disagree on n or type of one of the %llu messages that the "
			"one sent to the other on streams",
			me, them, (unsigned long long)number - 1);
	return ko_fail(KOLO_EMISMATCH, "%s %s %zu elements of %s, and %s %s %llu of %s", me,
		       lane->sends ? "sends" : "receives", n, kolo_type_name(type), them,
		       lane->sends ? "receives" : "sends", (unsigned long long)theirs.n,
		       kolo_type_name((enum kolo_type)theirs.type));
}
