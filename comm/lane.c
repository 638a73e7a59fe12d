/* See lane.h. */
#include "lane.h"

#include "comm.h"
#include "far.h"
#include "shmem.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct ko_line) == 64, "a line is one transfer between cores");
_Static_assert(sizeof(struct ko_lane) <= KO_LANE_HEAD, "the slots start behind the lines");
_Static_assert(sizeof(struct ko_where) <= KO_LANE_SMALL, "an offer fits into a line");

uint64_t ko_lanes_len(int nranks)
{
	return nranks == 1 ? 0 : (uint64_t)nranks * (uint64_t)nranks * KO_LANE_LEN;
}

static int map_lane(struct kolo_comm *c, struct ko_lane_end *end)
{
	uint64_t from = (uint64_t)(end->sends ? c->rank : end->peer), nranks = (uint64_t)c->nranks;
	uint64_t to = (uint64_t)(end->sends ? end->peer : c->rank);
	void *memory;
	int rc = ko_shmem_map_part(c->lanes->fd, c->shared_len + (from * nranks + to) * KO_LANE_LEN,
				   KO_LANE_LEN, &memory);

	if (rc < 0)
		return rc;
	end->lane = memory;
	c->lanes->mapped += end->sends;
	return 0;
}

int ko_lane_find(struct kolo_comm *c, int peer, bool sends, struct ko_lane_end **out)
{
	struct ko_lanes *lanes = c->lanes;
	struct ko_lane_end *end;
	int rc = 0;

	if (!lanes->ends)
		lanes->ends = calloc(2 * (size_t)c->nranks, sizeof(*lanes->ends));
	if (!lanes->ends)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for lanes to %d ranks", c->rank, c->nranks);
	end = &lanes->ends[sends ? peer : c->nranks + peer];
	if (!end->lane && !end->far) {
		*end = (struct ko_lane_end){ .peer = peer, .sends = sends, .next = 1 };
		rc = c->spread ? ko_far_open(end) : map_lane(c, end);
		c->lanes->nfar += c->spread && sends;
	}
	end->used = ++lanes->uses;
	*out = end;
	return rc;
}

struct ko_line *ko_lane_line(const struct ko_lane_end *end)
{
	return &end->lane->line[end->next % KO_LANE_LINES];
}

bool ko_lane_is_taken(struct ko_lane_end *end, uint32_t line)
{
	/* Numbers wrap around; what is not taken yet is near. */
	if ((int32_t)(end->taken - line) >= 0)
		return true;
	/* Pairs with the release in ko_lane_take: it has read the line and the slot. */
	end->taken = atomic_load_explicit(&end->lane->taken, memory_order_acquire);
	return (int32_t)(end->taken - line) >= 0;
}

struct ko_line *ko_lane_acquire(struct ko_lane_end *end, bool with_slot)
{
	uint32_t room = with_slot ? KO_LANE_SLOTS : KO_LANE_LINES;

	return ko_lane_is_taken(end, end->next - room) ? ko_lane_line(end) : NULL;
}

void ko_lane_commit(struct ko_lane_end *end)
{
	/* Pairs with the acquire in ko_lane_peek. */
	atomic_store_explicit(&ko_lane_line(end)->number, end->next, memory_order_release);
	end->next++;
}

struct ko_line *ko_lane_peek(const struct ko_lane_end *end)
{
	struct ko_line *line = ko_lane_line(end);

	return atomic_load_explicit(&line->number, memory_order_acquire) == end->next ? line : NULL;
}

void ko_lane_take(struct ko_lane_end *end)
{
	atomic_store_explicit(&end->lane->taken, end->next, memory_order_release);
	end->next++;
}

char *ko_lane_slot(const struct ko_lane_end *end)
{
	return (char *)end->lane + KO_LANE_HEAD + end->next % KO_LANE_SLOTS * KO_LANE_SLOT;
}

/* Of the ends that send, have slots with memory, and nothing in them: the one that was not used for longest. */
static struct ko_lane_end *find_idle(const struct kolo_comm *c)
{
	struct ko_lane_end *idle = NULL;

	for (int r = 0; r < c->nranks; r++) {
		struct ko_lane_end *end = &c->lanes->ends[r];

		if (end->has_slots && !end->first && ko_lane_is_taken(end, end->next - 1) &&
		    (!idle || end->used < idle->used))
			idle = end;
	}
	return idle;
}

void ko_lanes_trim(struct kolo_comm *c)
{
	struct ko_lane_end *idle;

	while (c->lanes->with_slots > KO_LANES_KEPT && (idle = find_idle(c))) {
		madvise((char *)idle->lane + KO_LANE_HEAD, KO_LANE_LEN - KO_LANE_HEAD, MADV_REMOVE);
		idle->has_slots = false;
		c->lanes->with_slots--;
	}
}

void ko_lanes_close(struct kolo_comm *c)
{
	for (int k = 0; c->lanes->ends && k < 2 * c->nranks; k++)
		if (c->lanes->ends[k].lane)
			munmap(c->lanes->ends[k].lane, KO_LANE_LEN);
	free(c->lanes->ends);
	free(c->lanes->transfers);
	if (c->lanes->fd >= 0)
		close(c->lanes->fd);
}
