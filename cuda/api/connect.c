/* Joining the GPUs of a communicator's ranks, and leaving them (ko_gpu_connect).
 *
 * Joining is done in steps. After each step all ranks report how they fared (agree). So a step that
 * fails on one rank fails on all. */
#include "cuda/api/connect.h"
#include "cuda/gpu/far.h"
#include "cuda/gpu/lanes.h"
#include "cuda/gpu/proxy.h"
#include "cuda/gpu/staged.h"
#include "cuda/gpu/threads.h"
#include "cuda/gpu/uses.h"
#include "cuda/gpu/watchdog.h"
#include "cuda/gpu/window.h"
#include "cuda/stream/path_check.h"

#include "comm/base/clock.h"
#include "comm/base/env.h"
#include "comm/memory/window.h"
#include "comm/rings/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a rank says of itself in each step. Plain bytes. */
struct says {
	int32_t status, pid;
	uint64_t pidns; /* in this namespace of process ids */
	uint64_t arena, pair, marks;
	int32_t device; /* 1: it has slots that cards read or write */
	int32_t far;    /* 1: it has lanes that go by the host */
	int32_t apart;  /* 1: it wants everything to go by the host */
	struct ko_gpu_export memory;
};

/* ---- Telling each other ---------------------------------------------------------------------- */

static struct says say(const struct ko_gpu_comm *g, int status)
{
	struct says s = { .status = status, .pid = getpid(), .arena = g->arena };
	struct stat st;

	for (int k = 0; k < KO_GPU_RINGS; k++)
		if (g->rings[k].in.device || g->rings[k].out.device)
			s.device = 1;
	if (stat("/proc/self/ns/pid", &st) == 0)
		s.pidns = st.st_ino;
	return s;
}

/* Reports to all ranks how this one fared, and fails on all if it failed on one. all[nranks]. */
static int agree(struct ko_gpu_comm *g, struct kolo_comm *over, const struct says *mine,
		 struct says *all)
{
	char why[KO_TEXT], them[KO_RANK_TEXT];
	int rc;

	snprintf(why, sizeof(why), "%s", kolo_last_error());
	rc = kolo_all_gather(over, mine, all, sizeof(*mine), KOLO_U8, NULL);
	if (rc == 0 && mine->status < 0)
		rc = ko_fail(mine->status, "%s", why);
	for (int r = 0; rc == 0 && r < g->comm->nranks; r++)
		if (all[r].status < 0)
			rc = ko_fail(
				all[r].status,
				"%s could not join its GPU to the others' (%s); its own error says why",
				ko_comm_name(g->comm, r, them), kolo_strerror(all[r].status));
	return rc;
}

/* Is it, in the table of a step that failed, that GPUs can't reach each other? All ranks look at
 * the first one that failed. */
static bool are_out_of_reach(const struct ko_gpu_comm *g, const struct says *all)
{
	int r = 0;

	while (r < g->comm->nranks && all[r].status == 0)
		r++;
	return r < g->comm->nranks && all[r].status == KOLO_ENOTSUP;
}

static bool same_process(const struct says *a, const struct says *b)
{
	return a->pid == b->pid && a->pidns == b->pidns;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The GPU, and how much of it slots may take. */
static int open_gpu(struct ko_gpu_comm *g, void *stream)
{
	int64_t arena;
	int rc = g->driver->open(stream, &g->gpu);

	if (rc < 0)
		return ko_fail(rc, "rank %d: no GPU for a queue from a stream: %s", g->comm->rank,
			       g->driver->text());
	if ((rc = ko_env_get(KO_ENV_CUDA_MEMORY, &arena)) < 0)
		return rc;
	g->arena = (size_t)arena;
	if ((rc = g->driver->enter(g->gpu)) == 0) {
		if ((rc = g->driver->event_create(g->gpu, &g->last.event)) == 0)
			rc = g->driver->event_create(g->gpu, &g->captured.event);
		g->driver->leave(g->gpu);
	}
	return rc < 0 ? ko_gpu_error(g, rc, "making an event") : 0;
}

/* Makes the slots that prev or its proxy writes, and a pair for threads of this process. If the
 * edge to next is staged, also the slots for that. */
static int make_slots(struct ko_gpu_comm *g, struct ko_gpu_ring *ring, const struct says *all)
{
	bool staged = ko_gpu_is_staged(g, ring->kind, ring->in.peer);
	int rc = 0;

	if (staged)
		rc = ko_gpu_staged_make(g, ring, &ring->in);
	else if ((rc = g->driver->alloc(g->gpu, g->arena, &ring->in.memory)) < 0)
		ko_gpu_error(g, rc, "memory for slots (KOLO_CUDA_MEMORY)");
	if (rc == 0 && ko_gpu_is_staged(g, ring->kind, g->comm->rank))
		rc = ko_gpu_staged_make(g, ring, &ring->out);
	if (rc == 0 && (ring->in.staged || ring->out.staged))
		rc = ko_gpu_proxy_open(g, ring);
	return rc == 0 && !staged && same_process(&all[g->comm->rank], &all[ring->in.peer])
		       ? ko_gpu_pair_open(g, &ring->in)
		       : rc;
}

/* The word in which kernels note that the communicator has failed. */
static int make_note(struct ko_gpu_comm *g)
{
	const uint32_t none = 0;
	int rc = g->driver->alloc(g->gpu, sizeof(none), &g->noted);

	if (rc == 0)
		rc = g->driver->put(g->gpu, g->noted.at, &none, sizeof(none));
	return rc < 0 ? ko_gpu_error(g, rc, "memory for a word") : 0;
}

/* This rank's slots, flags and events. */
static int make_own(struct ko_gpu_comm *g, const struct says *all)
{
	const struct ko_window *window = &g->local->windows->all[0];
	const struct ko_driver *d = g->driver;
	void *at;
	int rc;

	for (int k = 0; k < 2 * KO_GPU_STREAMS; k++)
		if ((rc = d->event_create(g->gpu, &g->pace[k / 2].event[k % 2])) < 0)
			return ko_gpu_error(g, rc, "making an event");
	for (int k = 0; k < KO_GPU_RINGS; k++)
		if (g->rings[k].over && (rc = make_slots(g, &g->rings[k], all)) < 0)
			return rc;
	if (g->comm->rails && (rc = d->alloc(g->gpu, g->arena, &g->sums)) < 0)
		return ko_gpu_error(g, rc, "memory for sums (KOLO_CUDA_MEMORY)");
	if ((rc = make_note(g)) < 0)
		return rc;
	if ((rc = d->pin(g->gpu, window->memory, window->part_len * (size_t)g->local->nranks,
			 &at)) < 0)
		return ko_gpu_error(g, rc, "registering host memory");
	g->flags = window->memory;
	g->flags_len = window->part_len;
	g->gpu_flags = at;
	return ko_gpu_marks_open(g);
}

/* To prev, which writes into the slots. */
static int hand_over(struct ko_gpu_comm *g, const struct ko_gpu_link *in, int fd)
{
	const struct ko_msg msg = { .type = KO_MSG_MEMORY };

	return ko_lifelines_send(g->inner->lifelines, in->peer, &msg, fd);
}

static int take_over(struct ko_gpu_comm *g, struct ko_gpu_link *out,
		     const struct ko_gpu_export *memory)
{
	int64_t deadline = g->comm->timeout_ms ? ko_now_ms() + g->comm->timeout_ms : INT64_MAX;
	struct ko_msg msg;
	int fd, rc;

	rc = ko_lifelines_recv(g->inner->lifelines, out->peer, KO_MSG_MEMORY, 0, deadline, &msg,
			       &fd);
	if (rc < 0)
		return rc;
	rc = g->driver->import(g->gpu, memory, fd, &out->memory);
	if (fd >= 0)
		close(fd);
	return rc < 0 ? ko_gpu_error(
				g, rc,
				"mapping the slots of the next rank's GPU (KOLO_CUDA_P2P=0 does without)")
		      : 0;
}

/* An edge has the receiver's flags. Each end of a staged edge has its own. */
static void set_flags(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	int rank = g->comm->rank, owner = ring->out.staged ? rank : ring->out.peer;
	int end = ring->out.staged ? KO_GPU_OUT : KO_GPU_IN;
	size_t at = offsetof(struct ko_gpu_flags, slot) +
		    (size_t)ring->kind * KO_GPU_SLOTS * sizeof(struct ko_gpu_flag);

	ring->in.flags = g->own->slot[ring->kind];
	ring->in.gpu_flags = g->gpu_own + at;
	ring->out.flags = ko_gpu_flags_of(g, owner, end)->slot[ring->kind];
	ring->out.gpu_flags = ko_gpu_flags_there(g, owner, end) + at;
}

/* Checks the paths of a ring's staged edges, or of its others. A collective. If it fails before
 * anything is sent, the communicator `over` is as it was. */
static int check_ring(struct ko_gpu_comm *g, const struct ko_gpu_ring *ring, struct kolo_comm *over,
		      struct says *all, bool staged)
{
	enum { LEN = 64 << 10 };
	struct ko_gpu_path_check t = { 0 };
	struct says mine =
		say(g, ko_gpu_path_check_prepare(
			       g, ring, staged ? ko_gpu_path_check_len(g, ring) : LEN, &t));
	int rc = agree(g, over, &mine, all);

	if (rc == 0) {
		mine = say(g, ko_gpu_path_check_run(g, &t, staged));
		rc = agree(g, over, &mine, all);
	}
	ko_gpu_path_check_end(g, &t);
	return rc;
}

static int check_paths(struct ko_gpu_comm *g, struct kolo_comm *over, struct says *all, bool staged)
{
	int rc = 0;

	for (int k = 0; rc == 0 && k < KO_GPU_RINGS; k++)
		if (g->rings[k].over)
			rc = check_ring(g, &g->rings[k], over, all, staged);
	return rc;
}

/* Finds the slots of next, from what all ranks have reported. */
static int join_next(struct ko_gpu_comm *g, struct ko_gpu_ring *ring, const struct says *all,
		     int fd)
{
	const struct says *me = &all[g->comm->rank], *next = &all[ring->out.peer];
	int rc = 0;

	set_flags(g, ring);
	if (fd >= 0 && !ring->in.pair)
		rc = hand_over(g, &ring->in, fd);
	if (rc == 0 && !ring->out.staged)
		rc = same_process(me, next)
			     ? ko_gpu_pair_join(g, &ring->out, next->pair, &next->memory)
			     : take_over(g, &ring->out, &next->memory);
	return rc;
}

/* Joins the slots of a ring. One ring after the other, because a lifeline keeps only one descriptor
 * that nobody waits for yet. */
static int join_ring(struct ko_gpu_comm *g, struct ko_gpu_ring *ring, struct says *all)
{
	struct says mine = say(g, 0);
	int fd = -1, rc;

	if (!ring->in.staged && (mine.status = g->driver->export(g->gpu, ring->in.memory.at,
								 g->arena, &mine.memory, &fd)) < 0)
		ko_gpu_error(g, mine.status, "handing memory to another process");
	mine.pair = (uintptr_t)ring->in.pair;
	rc = agree(g, g->inner, &mine, all);
	if (rc == 0) {
		mine = say(g, join_next(g, ring, all, fd));
		rc = agree(g, g->inner, &mine, all);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

static int join_rings(struct ko_gpu_comm *g, struct says *all)
{
	int rc = 0;

	g->own = ko_gpu_flags_of(g, g->comm->rank, KO_GPU_IN);
	g->gpu_own = ko_gpu_flags_there(g, g->comm->rank, KO_GPU_IN);
	for (int k = 0; rc == 0 && k < KO_GPU_RINGS; k++)
		if (g->rings[k].over)
			rc = join_ring(g, &g->rings[k], all);
	return rc;
}

/* Finds the marks of this process's threads. */
static int join_marks(struct ko_gpu_comm *g, const struct says *all)
{
	int rc = 0;

	for (int r = 0; rc == 0 && r < g->comm->nranks; r++)
		if (r != g->comm->rank && g->process[r] == g->process[g->comm->rank])
			rc = ko_gpu_marks_join(g, r, all[r].marks);
	return rc;
}

/* Makes the lanes. */
static int join_lanes(struct ko_gpu_comm *g, struct says *all)
{
	bool near = g->local->nranks > 1 && !g->apart, far = !near;
	struct says mine = say(g, near ? ko_gpu_lanes_map(g, g->local) : 0);
	int rc;

	mine.far = g->comm->spread || !near || g->lanes.far;
	rc = agree(g, g->inner, &mine, all);
	for (int r = 0; r < g->comm->nranks; r++)
		far = far || all[r].far;
	if (rc == 0 && far) {
		g->proxies = true;
		mine = say(g, ko_gpu_far_open(g));
		rc = agree(g, g->inner, &mine, all);
	}
	if (rc == 0) {
		mine = say(g, ko_gpu_lanes_list(g));
		rc = agree(g, g->inner, &mine, all);
	}
	return rc;
}

/* Finds the process of each rank of this host, as the first rank in it. Process ids of other hosts
 * may be the same. */
static void find_processes(struct ko_gpu_comm *g, const struct says *all)
{
	for (int r = 0; r < g->comm->nranks; r++) {
		int first = 0;

		while (first < r && (g->places[first] < 0 || !same_process(&all[first], &all[r])))
			first++;
		g->process[r] = g->places[r] < 0 ? r : first;
	}
}

/* The steps, once there is a communicator to take them in. *again: GPUs can't reach each other, so
 * that they must be joined apart. */
static int join(struct ko_gpu_comm *g, void *stream, struct says *all, bool *again)
{
	struct kolo_comm *c = g->comm;
	struct says mine = say(g, open_gpu(g, stream));
	void *page;
	int rc, entered;

	mine.apart = g->apart;
	if ((rc = agree(g, g->inner, &mine, all)) < 0)
		return rc;
	g->apart = all[0].apart;
	/* Elements have all of what was asked for: what lengths they have is often a power of
	 * two. */
	g->arena = all[0].arena + (size_t)KO_GPU_SLOTS * KO_GPU_ALIGN;
	for (int k = 0; k < KO_GPU_RINGS; k++)
		for (int r = 0; g->rings[k].over && r < c->nranks; r++)
			g->fixed = g->fixed || ko_gpu_is_staged(g, k, r);
	if ((rc = kolo_alloc(g->local, ko_gpu_shared_len(c->nranks), &page)) < 0)
		return rc;
	entered = g->driver->enter(g->gpu);
	mine = say(g, entered < 0 ? ko_gpu_error(g, entered, "working on it") : make_own(g, all));
	mine.marks = (uintptr_t)g->marks[c->rank];
	find_processes(g, all);
	rc = agree(g, g->inner, &mine, all);
	if (rc == 0) {
		mine = say(g, join_marks(g, all));
		rc = agree(g, g->inner, &mine, all);
	}
	if (rc == 0) {
		rc = join_rings(g, all);
		*again = rc < 0 && !g->apart && are_out_of_reach(g, all);
	}
	if (rc == 0)
		rc = check_paths(g, g->inner, all, false);
	if (rc == 0)
		rc = join_lanes(g, all);
	for (int r = 0; r < c->nranks; r++)
		g->cards = g->cards || all[r].device;
	if (rc == 0) { /* from here on the inner communicator is the thread's that watches */
		mine = say(g, ko_gpu_watch(g));
		rc = agree(g, g->inner, &mine, all);
	}
	if (entered == 0)
		g->driver->leave(g->gpu);
	return rc;
}

/* The inner communicator, and that of this host. */
static int make_communicators(struct ko_gpu_comm *g)
{
	struct kolo_comm *c = g->comm;
	/* The one of this host adds nothing, so any order will do that the algorithm asked for has.
	 */
	const char *order = *c->table[0].algorithm ? NULL : "ring";
	int color = -1, rc, n = 0;

	g->places = malloc((size_t)c->nranks * sizeof(*g->places));
	g->process = calloc((size_t)c->nranks, sizeof(*g->process));
	g->marks = calloc((size_t)c->nranks, sizeof(*g->marks));
	if (!g->places || !g->process || !g->marks) /* the others wait in the next step */
		return ko_comm_fail(c, KOLO_ENOMEM, "rank %d: no memory to join %d GPUs", c->rank,
				    c->nranks);
	for (int r = 0; r < c->nranks; r++) {
		bool here = ko_place_same(&c->table[r].place, &c->table[c->rank].place);

		g->places[r] = here ? n++ : -1;
		if (here && color < 0)
			color = r;
	}
	if ((rc = kolo_comm_split(c, 0, c->rank, &g->inner)) < 0)
		return rc;
	g->local = g->inner;
	return c->spread ? kolo_comm_split_order(c, color, c->rank, order, &g->local) : 0;
}

/* The rings that this rank stands in, with its neighbours there. */
static void find_rings(struct ko_gpu_comm *g)
{
	const struct kolo_comm *inner = g->inner;
	const struct ko_edges *over[KO_GPU_RINGS] = { [KO_GPU_ALL] = &inner->edges };

	if (inner->rails) {
		over[KO_GPU_GROUP] = inner->rails->group.to ? &inner->rails->group : NULL;
		over[KO_GPU_RAIL] = inner->rails->rail.to ? &inner->rails->rail : NULL;
	}
	for (int k = 0; k < KO_GPU_RINGS; k++) {
		struct ko_gpu_ring *ring = &g->rings[k];

		ring->kind = k;
		ring->over = over[k];
		if (!over[k])
			continue;
		ring->over_len = k == KO_GPU_ALL     ? inner->agreed.limits.slot_len
				 : k == KO_GPU_GROUP ? inner->rails->group_slot
						     : inner->rails->rail_slot;
		ring->in.peer = ko_gpu_neighbour(g->comm, k, g->comm->rank, -1);
		ring->out.peer = ko_gpu_neighbour(g->comm, k, g->comm->rank, 1);
	}
}

/* From here on the thread watches. */
static void let_it_watch(struct ko_gpu_comm *g)
{
	pthread_mutex_lock(&g->lock);
	g->joined = true;
	pthread_cond_signal(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

/* Checks slots that cards read and write. By now the proxies work, and have the inner
 * communicator. */
static int check_cards(struct ko_gpu_comm *g, struct says *all)
{
	int rc;

	if (!g->cards)
		return 0;
	if ((rc = g->driver->enter(g->gpu)) < 0)
		return ko_comm_fail(g->comm, ko_gpu_error(g, rc, "working on it"), "%s",
				    kolo_last_error());
	rc = check_paths(g, g->comm, all, true);
	g->driver->leave(g->gpu);
	return rc;
}

static int join_all(struct ko_gpu_comm *g, void *stream, bool *again)
{
	struct kolo_comm *c = g->comm;
	struct says *all;
	int rc;

	if (c->nranks == 1) {
		g->joined = true;
		return open_gpu(g, stream);
	}
	if ((rc = make_communicators(g)) < 0)
		return rc;
	find_rings(g);
	all = calloc((size_t)c->nranks, sizeof(*all));
	if (!all) /* the others wait in the next step */
		rc = ko_comm_fail(g->inner, KOLO_ENOMEM, "rank %d: no memory to join %d GPUs",
				  c->rank, c->nranks);
	else
		rc = join(g, stream, all, again);
	if (rc == 0) {
		let_it_watch(g);
		rc = check_cards(g, all);
	}
	free(all);
	return rc;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Is all done that was recorded? Of a graph that was launched and has not begun nothing is
 * known. */
static bool is_idle(const struct ko_gpu_comm *g)
{
	int rc = g->last.recorded ? g->driver->event_poll(g->gpu, g->last.event) : 0;

	if (rc < 0) /* the GPU has failed, and does nothing any more */
		return true;
	for (int k = 0; g->own && k < KO_GPU_STREAMS; k++)
		if (atomic_load_explicit(&g->own->where[k].stage.value, memory_order_acquire))
			return false;
	if (g->far && g->lanes.out && !ko_gpu_far_is_done(g) &&
	    ko_roster_cause(g->comm->roster) == 0)
		return false;
	for (int k = 0; k < KO_GPU_RINGS; k++)
		if (g->rings[k].proxy && !ko_gpu_proxy_is_done(&g->rings[k]) &&
		    ko_roster_cause(g->comm->roster) == 0)
			return false;
	return rc == 0;
}

/* Waits for that. A healthy communicator becomes idle by itself, or fails after its timeout. The
 * watching thread lets a failed one go on. false: the stream did not end, and its memory is still
 * in use. */
static bool wait_until_idle(struct ko_gpu_comm *g)
{
	enum { PATIENCE_MS = 10000, STEP_MS = 1 };
	int64_t began = ko_now_ms();
	int failed_ms = 0;

	while (!is_idle(g) && failed_ms < PATIENCE_MS) {
		sleep_ms(STEP_MS);
		if (g->far && g->comm->timeout_ms && ko_now_ms() - began >= g->comm->timeout_ms &&
		    ko_roster_cause(g->comm->roster) == 0)
			ko_comm_fail(
				g->comm, KOLO_ETIMEDOUT,
				"rank %d: nobody has received what it sent on a stream for %d s, "
				"while it waits to leave (kolo_comm_destroy)",
				g->comm->rank, g->comm->timeout_ms / 1000);
		failed_ms += !g->joined || ko_roster_cause(g->comm->roster) < 0 ? STEP_MS : 0;
	}
	return failed_ms < PATIENCE_MS;
}

static void free_ring(struct ko_gpu_comm *g, struct ko_gpu_ring *ring)
{
	if (ring->out.memory.mapped)
		g->driver->release(g->gpu, &ring->out.memory);
	ko_gpu_proxy_close(ring);
	ko_gpu_staged_free(g, ring, &ring->out);
	ko_gpu_staged_free(g, ring, &ring->in);
	if (!ring->in.pair)
		g->driver->release(g->gpu, &ring->in.memory);
	ko_gpu_pair_let_go(g, &ring->out);
	ko_gpu_pair_let_go(g, &ring->in);
}

static void free_memory(struct ko_gpu_comm *g)
{
	const struct ko_driver *d = g->driver;
	void *events[] = { g->last.event, g->captured.event };

	ko_gpu_windows_close(g);
	ko_gpu_lanes_close(g);
	ko_gpu_far_close(g);
	for (int k = 0; k < KO_GPU_RINGS; k++)
		free_ring(g, &g->rings[k]);
	d->release(g->gpu, &g->sums);
	d->release(g->gpu, &g->noted);
	ko_gpu_marks_let_go(g);
	for (int k = 0; k < 2 * KO_GPU_STREAMS; k++)
		if (g->pace[k / 2].event[k % 2])
			d->event_destroy(g->gpu, g->pace[k / 2].event[k % 2]);
	for (size_t k = 0; k < sizeof(events) / sizeof(events[0]); k++)
		if (events[k])
			d->event_destroy(g->gpu, events[k]);
	free(g->messages);
	if (g->gpu_flags)
		d->unpin(g->gpu, g->flags);
}

/* Leaves what is not idle, or can't be reached any more, to the process. */
static void disconnect(struct ko_gpu_comm *g)
{
	bool idle = !g->gpu;

	if (g->gpu && g->driver->enter(g->gpu) == 0) {
		idle = wait_until_idle(g);
		ko_gpu_unwatch(g);
		if (idle)
			free_memory(g);
		g->driver->leave(g->gpu);
	}
	ko_gpu_unwatch(g);
	if (idle) {
		if (g->local != g->inner)
			kolo_comm_destroy(g->local);
		kolo_comm_destroy(g->inner);
		free(g->places);
		free(g->process);
		free(g->marks);
	}
	ko_gpu_use_no_more(g);
	if (idle && g->gpu)
		g->driver->close(g->gpu);
	pthread_mutex_destroy(&g->lock);
	pthread_cond_destroy(&g->changed);
	free(g);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void close_attached(struct ko_attached *attached)
{
	disconnect((struct ko_gpu_comm *)attached);
}

static int connect_gpus(struct kolo_comm *comm, void *stream, bool apart, bool *again)
{
	struct ko_gpu_comm *g = calloc(1, sizeof(*g));
	pthread_condattr_t attr;
	char why[KO_TEXT];
	bool held;
	int rc;

	*again = false;
	if (!g) /* the others wait for this rank */
		return ko_comm_fail(comm, KOLO_ENOMEM, "rank %d: no memory to join GPUs",
				    comm->rank);
	g->attached.close = close_attached;
	g->comm = comm;
	g->apart = apart || *comm->table[0].transport;
	pthread_mutex_init(&g->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&g->changed, &attr);
	pthread_condattr_destroy(&attr);
	held = ko_order_hold(comm->order);
	if ((rc = ko_driver_get(&g->driver)) == 0)
		rc = join_all(g, stream, again);
	ko_order_unhold(comm->order, held);
	if (rc == 0) {
		comm->attached = &g->attached;
		return 0;
	}
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	disconnect(g);
	return ko_fail(rc, "%s", why);
}

int ko_gpu_connect(struct kolo_comm *comm, void *stream)
{
	int64_t reach;
	bool again;
	int rc = ko_env_get(KO_ENV_CUDA_P2P, &reach);

	if (rc < 0) /* the others wait for this rank */
		return ko_comm_fail(comm, rc, "%s", kolo_last_error());
	rc = connect_gpus(comm, stream, !reach, &again);
	if (!again)
		return rc;
	ko_log(&comm->log, KOLO_LOG_WARN,
	       "bytes between GPUs go through host memory, because some can't reach each other: %s",
	       kolo_last_error());
	return connect_gpus(comm, stream, true, &again);
}
