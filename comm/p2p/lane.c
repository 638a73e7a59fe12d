/* What all lanes have in common (ko_lane_find, ko_lane_mismatch), and the lines and slots of near
 * lanes (ko_lane_acquire to ko_lane_take). */
#include "comm/p2p/lane.h"

#include "comm/base/check.h"
#include "comm/core/run.h"
#include "comm/core/wait.h"

#include <stdlib.h>
#include <unistd.h>

_Static_assert(sizeof(struct ko_line) == 64, "a line is one transfer between cores");
_Static_assert(sizeof(struct ko_lane) <= KO_LANE_HEAD, "the slots start after the lines");
_Static_assert(sizeof(struct ko_where) <= KO_LANE_SMALL,
	       "where a rendezvous message lies fits into a line");

uint64_t ko_lanes_len(int nranks)
{
	return nranks == 1 ? 0 : (uint64_t)nranks * (uint64_t)nranks * KO_LANE_LEN;
}

int ko_lane_find(struct kolo_comm *c, int peer, bool sends, struct ko_lane_end **out)
{
	struct ko_lanes *lanes = c->lanes;
	struct ko_lane_end *end;
	int rc = 0;

	if (!lanes->ends)
		lanes->ends = calloc(2 * (size_t)c->nranks, sizeof(*lanes->ends));
	if (!lanes->ends)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for lanes to %d ranks", c->rank,
			       c->nranks);
	end = &lanes->ends[sends ? peer : c->nranks + peer];
	if (!end->lane && !end->far) {
		*end = (struct ko_lane_end){ .peer = peer, .sends = sends, .next = 1 };
		rc = lanes->ops->open(c, end);
	}
	ko_check(rc < 0 || ko_lane_is_valid(end), "a lane before a transfer");
	end->used = ++lanes->uses;
	*out = end;
	return rc;
}

bool ko_lane_is_valid(const struct ko_lane_end *end)
{
	const struct ko_lane *lane = end->lane;
	uint32_t taken, last = end->next - 1; /* numbers wrap around: only differences count */
	uint64_t copied;

	if (!lane)
		return true;
	taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
	/* Before `claimed`, which the other end may raise meanwhile. */
	copied = atomic_load_explicit(&lane->copied, memory_order_acquire);
	if (end->pieces > copied ||
	    copied > atomic_load_explicit(&lane->claimed, memory_order_relaxed))
		return false;
	if (!end->sends)
		return taken == last;
	return last - taken <= last - end->taken && last - end->taken <= KO_LANE_LINES;
}

struct ko_line *ko_lane_line(const struct ko_lane_end *end)
{
	return &end->lane->line[end->next % KO_LANE_LINES];
}

bool ko_lane_is_taken(struct ko_lane_end *end, uint32_t line)
{
	/* Numbers wrap around. At most 32 lines are not taken, so the difference is small. */
	if ((int32_t)(end->taken - line) >= 0)
		return true;
	/* Pairs with the release in ko_lane_take: the receiver has read the line and the slot. */
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
	ko_check(ko_lane_is_valid(end), "a lane after a line was sent");
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
	ko_check(ko_lane_is_valid(end), "a lane after a line was taken");
}

char *ko_lane_slot(const struct ko_lane_end *end)
{
	return (char *)end->lane + KO_LANE_HEAD + end->next % KO_LANE_SLOTS * KO_LANE_SLOT;
}

int ko_lane_mismatch(struct ko_run *run, const struct ko_transfer *t, uint32_t tag, uint64_t n,
		     uint32_t their_type)
{
	struct kolo_comm *c = run->comm;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT];
	const char *type = kolo_type_name((enum kolo_type)their_type);

	ko_comm_name(c, c->rank, me);
	ko_comm_name(c, t->peer, them);
	ko_desc_text(&run->desc, op);
	if (tag != run->tag && !ko_desc_is_p2p(&run->desc))
		return ko_wait_mismatch(c, &run->desc, t->peer, tag);
	if (tag != run->tag)
		return ko_fail(KOLO_EMISMATCH,
			       "ranks disagree: %s, in %s, got a message of a collective from %s",
			       me, op, them);
	return ko_fail(KOLO_EMISMATCH,
		       "ranks disagree: %s sends n=%llu %s to %s, which waits for n=%zu %s in %s",
		       them, (unsigned long long)n, type ? type : "?", me, t->n,
		       kolo_type_name(t->type), op);
}

size_t ko_lanes_memory(const struct kolo_comm *c)
{
	const struct ko_lanes *lanes = c->lanes;
	size_t bytes = 0;

	for (int k = 0; lanes->ends && k < 2 * c->nranks; k++)
		bytes += lanes->ops->memory(&lanes->ends[k]);
	return bytes;
}

void ko_lanes_close(struct kolo_comm *c, bool failed)
{
	struct ko_lanes *lanes = c->lanes;

	for (int k = 0; lanes->ends && k < 2 * c->nranks; k++) {
		ko_check(failed || ko_lane_is_valid(&lanes->ends[k]), "a lane after all transfers");
		lanes->ops->close(&lanes->ends[k], failed);
	}
	free(lanes->ends);
	free(lanes->transfers);
	if (lanes->fd >= 0)
		close(lanes->fd);
}
