/* Mapping memory on all ranks (ko_gpu_map), and checking the paths between all GPUs of a host
 * (ko_gpu_check_paths).
 *
 * Descriptors of memory go round the ring, because a rank's lifelines lead to its neighbours. */
#include "cuda/gpu/map.h"
#include "cuda/gpu/window.h"

#include "comm/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What a rank says of its memory. Plain bytes. */
struct says {
	int32_t status;
	uint64_t at; /* for ranks of its process */
	struct ko_gpu_export memory;
};

/* A window that is being mapped. */
struct mapping {
	struct ko_gpu_comm *g;
	struct kolo_comm *over; /* the ranks that map it: all those of this host, or of g->comm */
	struct ko_gpu_window *window;
	struct says mine, *all; /* by rank of `over` */
	int fd;                 /* of this rank's memory, -1 */
};

/* The rank in g->comm of a rank of `over`. */
static int rank_of(const struct mapping *m, int k)
{
	int rank = 0;

	if (m->over->nranks == m->g->comm->nranks)
		return k;
	while (m->g->places[rank] != k)
		rank++;
	return rank;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Reports how this rank fared. What fails on one rank fails on all. */
static int agree(struct mapping *m, int status)
{
	char why[KO_TEXT], them[KO_RANK_TEXT];
	int rc;

	m->mine.status = status;
	snprintf(why, sizeof(why), "%s", kolo_last_error());
	rc = kolo_all_gather(m->over, &m->mine, m->all, sizeof(m->mine), KOLO_U8, NULL);
	if (rc == 0 && status < 0)
		rc = ko_fail(status, "%s", why);
	for (int k = 0; rc == 0 && k < m->over->nranks; k++)
		if (m->all[k].status < 0)
			rc = ko_fail(
				m->all[k].status,
				"mapping memory of all GPUs: %s could not take part (%s); its own error says why",
				ko_comm_name(m->g->comm, rank_of(m, k), them),
				kolo_strerror(m->all[k].status));
	return rc;
}

bool ko_gpu_reaches_all(const struct ko_gpu_comm *g)
{
	return g->comm->nranks > 1 && g->comm->nranks <= KO_GPU_PEERS && !g->fixed;
}

int ko_gpu_settle(struct ko_gpu_comm *g)
{
	int rc = g->last.recorded ? g->driver->event_finish(g->gpu, g->last.event) : 0;

	if (rc < 0)
		return ko_gpu_error(g, rc, "waiting for the stream");
	return ko_roster_cause(g->comm->roster);
}

/* This rank's memory, for the others. */
static int offer(struct mapping *m)
{
	struct ko_gpu_comm *g = m->g;
	struct ko_gpu_window *w = m->window;
	size_t nranks = (size_t)g->comm->nranks;
	int rc;

	w->at = calloc(nranks, sizeof(*w->at));
	w->mapped = calloc(nranks, sizeof(*w->mapped));
	if (!w->at || !w->mapped)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to register a buffer",
			       g->comm->rank);
	m->mine.at = (uintptr_t)w->mine;
	rc = g->driver->export(g->gpu, w->mine, w->len, &m->mine.memory, &m->fd);
	return rc < 0 ? ko_gpu_error(g, rc, "handing memory to other processes") : 0;
}

static int import(struct mapping *m, int k, int fd)
{
	struct ko_gpu_window *w = m->window;
	struct ko_gpu_comm *g = m->g;
	const struct says *its = &m->all[k];
	int rank = rank_of(m, k), rc;

	if (g->marks[rank]) { /* of this process */
		w->at[rank] = (char *)(uintptr_t)its->at;
		rc = g->driver->reach(g->gpu, w->at[rank], &its->memory);
	} else {
		rc = g->driver->import(g->gpu, &its->memory, fd, &w->mapped[rank]);
		w->at[rank] = (char *)w->mapped[rank].at + its->memory.offset;
	}
	return rc < 0 ? ko_gpu_error(g, rc, "mapping another rank's memory") : 0;
}

/* Sends this rank's descriptor to prev, then each one that comes from next, until all ranks have
 * all. One step at a time, because a lifeline keeps only one descriptor that nobody waits for
 * yet. */
static int import_all(struct mapping *m)
{
	struct kolo_comm *c = m->over;
	const struct ko_msg msg = { .type = KO_MSG_MEMORY };
	int64_t deadline = c->timeout_ms ? ko_now_ms() + c->timeout_ms : INT64_MAX;
	int rank = c->rank, fd = m->fd, failed = 0, rc = 0;

	m->fd = -1;
	m->window->at[m->g->comm->rank] = m->window->mine;
	for (int k = 1; rc == 0 && k < c->nranks; k++) {
		struct ko_msg in;
		int next = -1;

		rc = ko_lifelines_send(c->lifelines, ko_ring_back(&c->ring, c->rank, 1), &msg, fd);
		if (rc == 0)
			rc = ko_lifelines_recv(c->lifelines, ko_ring_next(&c->ring, c->rank),
					       KO_MSG_MEMORY, 0, deadline, &in, &next);
		close(fd);
		fd = next;
		rank = ko_ring_next(&c->ring, rank);
		if (rc < 0) /* others may wait for it */
			rc = ko_comm_fail(c, rc, "%s", kolo_last_error());
		if (rc == 0 && failed == 0)
			failed = import(m, rank, fd);
		if (rc == 0)
			rc = kolo_barrier(c, NULL);
	}
	if (fd >= 0)
		close(fd);
	return rc < 0 ? rc : failed;
}

/* `status` says how this rank has fared before. What fails leaves nothing mapped. */
static int map_window(struct mapping *m, bool shared, int status)
{
	int rc = agree(m, status == 0 && shared ? offer(m) : status);

	if (rc == 0 && shared)
		rc = agree(m, import_all(m));
	if (m->fd >= 0)
		close(m->fd);
	if (rc < 0)
		ko_gpu_window_close(m->g, m->window);
	return rc;
}

/* Room for what the ranks say. */
static int begin(struct mapping *m)
{
	m->fd = -1;
	m->all = calloc((size_t)m->over->nranks, sizeof(*m->all));
	if (m->all)
		return 0;
	/* the others wait in the next step */
	return ko_comm_fail(m->over, KOLO_ENOMEM, "rank %d: no memory to map other GPUs' memory",
			    m->g->comm->rank);
}

int ko_gpu_map(struct ko_gpu_comm *g, struct kolo_comm *over, struct ko_gpu_window *w, bool shared,
	       int status)
{
	struct mapping m = { .g = g, .over = over, .window = w };
	int rc = begin(&m);

	if (rc == 0)
		rc = map_window(&m, shared, status);
	free(m.all);
	return rc;
}

/* ---- Trying the paths ------------------------------------------------------------------------ */

enum { CHECKED = 16 << 10 };

/* Memory to check the paths: this rank's pattern, what each rank writes here, and what this rank
 * reads from each. */
static size_t check_len(const struct kolo_comm *c)
{
	return (size_t)(2 * c->nranks + 1) * CHECKED;
}

static size_t written_by(int rank)
{
	return (size_t)(1 + rank) * CHECKED;
}

static size_t read_of(const struct kolo_comm *c, int rank)
{
	return (size_t)(1 + c->nranks + rank) * CHECKED;
}

static int make_check_memory(struct ko_gpu_comm *g, struct ko_gpu_memory *out)
{
	unsigned char bytes[CHECKED];
	int rc = g->driver->alloc(g->gpu, check_len(g->comm), out);

	for (size_t k = 0; k < CHECKED; k++)
		bytes[k] = ko_gpu_path_pattern(g->comm->rank, k);
	if (rc == 0)
		rc = g->driver->put(g->gpu, out->at, bytes, CHECKED);
	return rc < 0 ? ko_gpu_error(g, rc, "memory to try paths") : 0;
}

static int copy(struct ko_gpu_comm *g, void *stream, void *to, const void *from)
{
	const struct ko_gpu_job job = { .n = CHECKED,
					.type = KOLO_U8,
					.nins = 1,
					.ins = { from },
					.nouts = 1,
					.outs = { to } };

	return g->driver->compute(g->gpu, stream, &job);
}

/* Writes to all other ranks' memory, and reads what they have. */
static int write_and_read(struct ko_gpu_comm *g, const struct ko_gpu_window *w)
{
	const struct kolo_comm *c = g->comm;
	void *stream;
	int rc = g->driver->stream_create(g->gpu, &stream), failed;

	if (rc < 0)
		return ko_gpu_error(g, rc, "making a stream");
	for (int r = 0; rc == 0 && r < c->nranks; r++) {
		if (r == c->rank || !w->at[r])
			continue;
		rc = copy(g, stream, w->at[r] + written_by(c->rank), w->mine);
		if (rc == 0)
			rc = copy(g, stream, w->mine + read_of(c, r), w->at[r]);
	}
	if (rc < 0)
		ko_gpu_error(g, rc, "trying paths to other GPUs");
	failed = g->driver->finish(g->gpu, stream); /* in any case: the memory goes */
	if (rc == 0 && failed < 0)
		rc = ko_gpu_error(g, failed, "trying paths to other GPUs");
	g->driver->stream_destroy(g->gpu, stream);
	return rc;
}

static int compare_copy(struct ko_gpu_comm *g, const char *from, int rank)
{
	unsigned char bytes[CHECKED];
	int rc = g->driver->get(g->gpu, bytes, from, CHECKED);

	if (rc < 0)
		return ko_gpu_error(g, rc, "reading what a path brought");
	for (size_t k = 0; k < CHECKED; k++)
		if (bytes[k] != ko_gpu_path_pattern(rank, k))
			return ko_gpu_path_lies(g, rank, false);
	return 0;
}

static int compare_copies(struct ko_gpu_comm *g, const struct ko_gpu_window *w)
{
	const struct kolo_comm *c = g->comm;
	int rc = 0;

	for (int r = 0; rc == 0 && r < c->nranks; r++) {
		if (r == c->rank || !w->at[r])
			continue;
		rc = compare_copy(g, w->mine + written_by(r), r);
		if (rc == 0)
			rc = compare_copy(g, w->mine + read_of(c, r), r);
	}
	return rc;
}

int ko_gpu_check_paths(struct ko_gpu_comm *g, struct kolo_comm *over)
{
	struct ko_gpu_memory memory = { 0 };
	int rc = make_check_memory(g, &memory);
	struct ko_gpu_window w = { .mine = memory.at, .len = check_len(g->comm) };
	struct mapping m = { .g = g, .over = over, .window = &w };
	int failed = begin(&m);

	rc = failed < 0 ? failed : map_window(&m, true, rc);
	if (rc == 0) {
		rc = agree(&m, write_and_read(g, &w));
		if (rc == 0)
			rc = agree(&m, compare_copies(g, &w));
		ko_gpu_window_close(g, &w);
		if (ko_roster_cause(over->roster) == 0) /* no rank has it mapped any more */
			rc = agree(&m, rc);
	}
	if (ko_gpu_may_release(g))
		g->driver->release(g->gpu, &memory);
	free(m.all);
	return rc;
}
