/* The thread that watches what a communicator has recorded (watch). A stream that waits for a flag
 * has no deadline and notices no death. This thread does both, and then writes flags that let the
 * stream go on. See README.md. */
#include "cuda/gpu/watchdog.h"
#include "cuda/gpu/far.h"
#include "cuda/gpu/proxy.h"

#include "comm/base/clock.h"
#include "comm/core/wait.h"
#include "comm/sys/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	LOOK_US = 20000,  /* between looks at the others, while all is well */
	DRAIN_US = 100,   /* between writes that let a failed communicator's stream go on, while it
			     does */
	FAILED_US = 5000, /* while the thread has nothing to do, but a graph may be launched */
	SPIN_US = 100,    /* for which a proxy waits for the next parcel without sleeping, */
	PROXY_US = 1000,  /* and the longest that it sleeps */
	GRACE_MS = 1000,  /* for what a rank sent before it died or left, once nothing moves */
	PAUSE_MS = 1000,  /* this process did not run itself */
	DRAIN_MS = 5000   /* for a stream to do what was recorded, without waiting */
};

struct watch {
	int64_t since[KO_GPU_STREAMS]; /* of the wait that goes on on each stream */
	int64_t last;                  /* moment of the last look */
	int64_t moved,
		looked; /* us: moments of the last parcel and of the last look at the proxy */
};

/* ---- What streams are at --------------------------------------------------------------------- */

static uint32_t value_of(const struct ko_gpu_flag *flag)
{
	return atomic_load_explicit(&flag->value, memory_order_acquire);
}

/* The stage of one of a rank's streams; of other hosts nothing is seen. */
static uint32_t stage_of(const struct ko_gpu_comm *g, int rank, int stream)
{
	const struct ko_gpu_flags *in = ko_gpu_flags_of(g, rank, KO_GPU_IN);

	return in ? value_of(&in->where[stream].stage) : 0;
}

/* Does the caller's stream of `rank` wait for all, and has `other` not come yet? Between threads of
 * a process that shows only if they use flags. */
static bool meets(const struct ko_gpu_comm *g, int rank, int other)
{
	const struct ko_gpu_flags *in = ko_gpu_flags_of(g, rank, KO_GPU_IN);
	uint32_t stage = stage_of(g, rank, 0);
	bool seen = stage & KO_STAGE_FLAGS || g->process[other] != g->process[rank], here;

	if (rank == other || !seen || !(stage & (KO_STAGE_READY | KO_STAGE_DONE)))
		return false;
	here = value_of(stage & KO_STAGE_READY ? &in->ready[other] : &in->done[other]) &
	       KO_SLOT_FAILED;
	return !here && stage_of(g, rank, 0) == stage;
}

/* The other end of a lane whose slot a stream of `rank` waits for; -1: it does not wait. */
static int lane_waits_for(const struct ko_gpu_comm *g, int rank, uint32_t stage)
{
	int peer = (int)(stage / KO_STAGE_LANE_PEER % KO_STAGE_LANE_PEERS);
	int slot = (int)(stage / KO_STAGE_LANE_SLOT % KO_GPU_LANE_SLOTS);
	bool sends = stage & KO_STAGE_EMPTY;
	const struct ko_gpu_lane_board *board =
		ko_gpu_board_of(g, sends ? rank : peer, sends ? peer : rank, sends);
	uint32_t value = value_of(&board->slot[!!(stage & KO_STAGE_FLAGS)][slot]);

	return (sends ? value & KO_SLOT_TAKEN : !(value & KO_SLOT_FAILED)) ? peer : -1;
}

/* The rank that a stream of `rank` waits for at a slot; -1: none. */
static int slot_waits_for(const struct ko_gpu_comm *g, int rank, int stream)
{
	const struct ko_gpu_flags *in = ko_gpu_flags_of(g, rank, KO_GPU_IN), *out;
	uint32_t stage = stage_of(g, rank, stream);
	int ring = (int)(stage / KO_STAGE_RING & 3);
	uint32_t from = stage >> 8 & 255, to = stage >> 16 & 255;

	if (ring == KO_GPU_LANE)
		return lane_waits_for(g, rank, stage);
	if (stage & KO_STAGE_FULL && !(value_of(&in->slot[ring][from]) & KO_SLOT_FAILED))
		return ko_gpu_neighbour(g->comm, ring, rank, -1);
	if (stage & KO_STAGE_EMPTY) {
		int next = ko_gpu_neighbour(g->comm, ring, rank, 1);

		out = ko_gpu_is_staged(g, ring, rank) ? ko_gpu_flags_of(g, rank, KO_GPU_OUT)
						      : ko_gpu_flags_of(g, next, KO_GPU_IN);
		if (value_of(&out->slot[ring][to]) & KO_SLOT_TAKEN)
			return next;
	}
	return -1;
}

/* Does any stream of `rank` wait for `other`? */
static bool waits(const struct ko_gpu_comm *g, int rank, int other)
{
	bool does = meets(g, rank, other);

	for (int k = 0; k < KO_GPU_STREAMS; k++)
		does = does || slot_waits_for(g, rank, k) == other;
	return does;
}

/* Returns one rank that a stream of `rank` waits for. -1: none is known. */
static int stream_waits_for(const struct ko_gpu_comm *g, int rank, int stream)
{
	int peer = slot_waits_for(g, rank, stream);

	for (int r = 0; peer < 0 && stream == 0 && r < g->comm->nranks; r++)
		if (meets(g, rank, r))
			peer = r;
	return peer;
}

static int waits_for(const struct ko_gpu_comm *g, int rank)
{
	int peer = -1;

	for (int k = 0; peer < 0 && k < KO_GPU_STREAMS; k++)
		peer = stream_waits_for(g, rank, k);
	return peer;
}

/* Is a stream of `rank` in an operation? */
static bool is_busy(const struct ko_gpu_comm *g, int rank)
{
	bool busy = false;

	for (int k = 0; k < KO_GPU_STREAMS; k++)
		busy = busy || stage_of(g, rank, k);
	return busy;
}

/* Follows all waits from rank to rank, and returns a rank that waits for nobody; -1: there is none.
 */
static int search(const struct ko_gpu_comm *g, int rank, bool *seen)
{
	int culprit = -1;
	bool waits = false;

	seen[rank] = true;
	for (int k = 0; culprit < 0 && k < KO_GPU_STREAMS; k++) {
		int peer = stream_waits_for(g, rank, k);

		waits = waits || peer >= 0;
		if (peer >= 0 && !seen[peer])
			culprit = search(g, peer, seen);
	}
	return waits ? culprit : rank;
}

/* The rank to blame if this one waits for `rank`. *circle: all that are waited for wait too. */
static int find_culprit(const struct ko_gpu_comm *g, int rank, bool *circle)
{
	bool *seen = calloc((size_t)g->comm->nranks, sizeof(*seen));
	int culprit = seen ? search(g, rank, seen) : rank;

	free(seen);
	*circle = culprit < 0;
	return culprit < 0 ? rank : culprit;
}

/* ---- Failures -------------------------------------------------------------------------------- */

static const char *last_operation(struct ko_gpu_comm *g, char out[KO_DESC_TEXT])
{
	struct ko_desc desc;

	pthread_mutex_lock(&g->lock);
	desc = g->desc;
	pthread_mutex_unlock(&g->lock);
	return ko_desc_text(&desc, out);
}

static void report_silence(struct ko_gpu_comm *g, int peer)
{
	struct kolo_comm *c = g->comm;
	bool circle;
	int culprit = find_culprit(g, peer, &circle);
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT];
	bool here = ko_gpu_flags_of(g, culprit, KO_GPU_IN), idle = !is_busy(g, culprit);

	ko_comm_fail(
		c, KOLO_ETIMEDOUT,
		"%s has kept the others waiting for %d s: its stream %s; noticed by %s, whose stream waits for rank "
		"%d, in %s or a graph with operations before it. If it is only slow, raise KOLO_TIMEOUT",
		ko_comm_name(c, culprit, them), c->timeout_ms / 1000,
		circle  ? "waits for another one, and the ranks wait for each other in a circle"
		: !here ? "has not done its part" /* what it is at is not seen from another host */
		: idle  ? "has not come to the operation"
		       : "is in an operation and waits for nobody there (a kernel that runs, or its process is stopped)",
		ko_comm_name(c, c->rank, me), peer, last_operation(g, op));
}

/* A goodbye, or a death, may overtake bytes that were sent before it through a proxy. */
static bool may_still_come(const struct ko_gpu_comm *g, const struct ko_life *life,
			   const struct watch *w)
{
	int64_t since = life->since > w->moved / 1000 ? life->since : w->moved / 1000;

	return g->proxies && ko_now_ms() - since < GRACE_MS;
}

static void report_gone(struct ko_gpu_comm *g, const struct ko_life *life)
{
	struct kolo_comm *c = g->comm;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT];

	ko_comm_fail(
		c, KOLO_EPEER,
		"%s %s while the stream of %s waits for it, in %s or a graph with operations before it",
		ko_comm_name(c, life->rank, them),
		life->state == KO_LIFE_DEAD ? "died" : "left (kolo_comm_destroy)",
		ko_comm_name(c, c->rank, me), last_operation(g, op));
}

/* Fails the communicator if this rank's stream waits for a rank that died or left. */
static void check_gone(struct ko_gpu_comm *g, const struct watch *w)
{
	int me = g->comm->rank;
	const struct ko_life *life;

	ko_lifelines_look(g->inner->lifelines);
	for (int k = 0; (life = ko_lifelines_gone(g->inner->lifelines, &k)); k++)
		if (waits(g, me, life->rank) && !may_still_come(g, life, w))
			report_gone(g, life);
}

/* ---- Letting go ------------------------------------------------------------------------------ */

static void fail_flags(struct ko_gpu_flag *flags, int n)
{
	for (int k = 0; k < n; k++)
		atomic_store_explicit(&flags[k].value, KO_SLOT_FAILED, memory_order_release);
}

/* Writes the flags that this rank's stream waits for, and those of its neighbours' streams, whose
 * communicator has failed too. It is done again and again, because streams write these flags
 * themselves. */
static void let_pass(struct ko_gpu_comm *g)
{
	if (!g->own)
		return;
	/* This comes before any wait ends, so the kernels of other ranks leave this one's memory
	 * alone too. */
	for (int r = 0; r < g->comm->nranks; r++)
		if (g->places[r] >= 0)
			fail_flags(&ko_gpu_flags_of(g, r, KO_GPU_IN)->failed, 1);
	for (int k = 0; k < KO_GPU_RINGS; k++) {
		const struct ko_gpu_ring *ring = &g->rings[k];

		if (ring->in.flags)
			fail_flags(ring->in.flags, KO_GPU_SLOTS);
		if (ring->out.flags)
			fail_flags(ring->out.flags, KO_GPU_SLOTS);
	}
	for (int r = 0; r < g->comm->nranks; r++) {
		if (r == g->comm->rank)
			continue;
		fail_flags(ko_gpu_board_of(g, r, g->comm->rank, false)->slot[0],
			   KO_GPU_LANE_BANKS * KO_GPU_LANE_SLOTS);
		fail_flags(ko_gpu_board_of(g, g->comm->rank, r, true)->slot[0],
			   KO_GPU_LANE_BANKS * KO_GPU_LANE_SLOTS);
	}
	fail_flags(g->own->ready, KO_GPU_PEERS);
	fail_flags(g->own->done, KO_GPU_PEERS);
}

void ko_gpu_let_go(struct ko_gpu_comm *g)
{
	int64_t until = ko_now_ms() + DRAIN_MS;

	while (ko_now_ms() < until && g->driver->event_poll(g->gpu, g->last.event) == KO_EAGAIN) {
		let_pass(g);
		nanosleep(&(struct timespec){ .tv_nsec = DRAIN_US * 1000 }, NULL);
	}
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* Fails the communicator if one of this rank's streams has waited too long. */
static void check_silence(struct ko_gpu_comm *g, struct watch *w)
{
	int64_t now = ko_now_ms(), paused = now - w->last > PAUSE_MS ? now - w->last : 0;
	int late = -1;

	w->last = now;
	for (int k = 0; k < KO_GPU_STREAMS; k++) {
		bool looked = atomic_exchange(&g->own->where[k].looked.value, 1);
		int peer = stream_waits_for(g, g->comm->rank, k);

		w->since[k] = peer < 0 || !looked ? now : w->since[k] + paused;
		if (g->comm->timeout_ms && now - w->since[k] >= g->comm->timeout_ms)
			late = peer;
	}
	if (late >= 0)
		report_silence(g, late);
}

/* Ranks of other hosts report failures over the inner communicator's lifelines. */
static void hear(struct ko_gpu_comm *g)
{
	int code = g->comm->spread ? ko_wait_hear(g->inner) : 0;

	if (code < 0)
		ko_comm_fail(g->comm, code, "%s", kolo_last_error());
}

/* Looks around once. Returns how many us to sleep then. */
static int look(struct ko_gpu_comm *g, struct watch *w)
{
	int code = ko_roster_cause(g->comm->roster);

	if (code == 0) {
		hear(g);
		check_gone(g, w);
		check_silence(g, w);
		for (int k = 0; k < KO_GPU_RINGS; k++)
			if (g->rings[k].proxy)
				ko_gpu_proxy_check(g, &g->rings[k], waits_for(g, g->comm->rank));
		return ko_roster_cause(g->comm->roster) < 0 ? 0 : LOOK_US;
	}
	if (g->comm->spread) /* those of other hosts hear it over its lifelines */
		ko_comm_fail(g->inner, code, "%s", kolo_last_error());
	let_pass(g);
	return is_busy(g, g->comm->rank) ? DRAIN_US : FAILED_US;
}

/* Sleeps until the next look. false: the thread is to end. */
static bool wait_turn(struct ko_gpu_comm *g, int us)
{
	struct timespec until;
	bool closing;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)us * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&g->lock);
	while (!g->closing && !g->joined)
		pthread_cond_wait(&g->changed, &g->lock);
	if (!g->closing && us > 0)
		pthread_cond_timedwait(&g->changed, &g->lock, &until);
	closing = g->closing;
	pthread_mutex_unlock(&g->lock);
	if (us == 0)
		sched_yield();
	return !closing;
}

/* Moves what can be moved. Returns false if nothing was. */
static bool move_all(struct ko_gpu_comm *g)
{
	bool moved = g->far && ko_gpu_far_move(g);

	for (int k = 0; k < KO_GPU_RINGS; k++)
		if (g->rings[k].proxy && ko_gpu_proxy_move(g, &g->rings[k]))
			moved = true;
	return moved;
}

/* Moves what can be moved, and looks around from time to time. Returns how many us to sleep then: a
 * sixteenth of the time that nothing has moved, at most 1000. */
static int run_proxy(struct ko_gpu_comm *g, struct watch *w)
{
	int64_t now = ko_now_ns() / 1000, idle;
	int us = LOOK_US;

	if (ko_roster_cause(g->comm->roster) < 0)
		return look(g, w);
	if (move_all(g))
		w->moved = now;
	if (now - w->looked >= LOOK_US) {
		w->looked = now;
		us = look(g, w);
	}
	idle = (now - w->moved) / 16;
	us = us < PROXY_US ? us : PROXY_US;
	return idle * 16 < SPIN_US ? 0 : idle < us ? (int)idle : us;
}

static void *watch(void *arg)
{
	struct ko_gpu_comm *g = arg;
	struct watch w = { .last = ko_now_ms(), .moved = ko_now_ns() / 1000 };
	int us = 0;

	for (int k = 0; k < KO_GPU_STREAMS; k++)
		w.since[k] = w.last;
	while (wait_turn(g, us))
		us = g->proxies ? run_proxy(g, &w) : look(g, &w);
	return NULL;
}

int ko_gpu_watch(struct ko_gpu_comm *g)
{
	int err = ko_thread_start(&g->thread, watch, g);

	g->watched = err == 0;
	return err ? ko_fail(KOLO_ESYS, "rank %d: no thread to watch over a GPU: %s", g->comm->rank,
			     strerror(err))
		   : 0;
}

void ko_gpu_unwatch(struct ko_gpu_comm *g)
{
	if (!g->watched)
		return;
	pthread_mutex_lock(&g->lock);
	g->closing = true;
	pthread_cond_signal(&g->changed);
	pthread_mutex_unlock(&g->lock);
	pthread_join(g->thread, NULL);
	g->watched = false;
}
