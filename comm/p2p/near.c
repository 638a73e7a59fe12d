/* Sends and receives messages through lines and slots in shared memory (ko_near_ops). A rendezvous
 * message is cut into pieces. Each end claims the next piece and copies it. */
#include "comm/p2p/near.h"

#include "comm/core/run.h"
#include "comm/memory/cma.h"
#include "comm/memory/window.h"
#include "comm/p2p/by_link.h"
#include "comm/reduce/reduce.h"
#include "comm/sys/shmem.h"

#include <string.h>
#include <sys/mman.h>

/* ---- Pieces of rendezvous messages ----------------------------------------------------------- */

enum { MIN_PIECE = 16 << 10, MAX_PIECE = 128 << 10, PIECES = 4 };

/* Both ends cut a message into the same pieces. */
static size_t piece_len(size_t bytes)
{
	size_t len = bytes / PIECES;

	return len < MIN_PIECE ? MIN_PIECE : len < MAX_PIECE ? len : MAX_PIECE;
}

static uint64_t npieces(size_t bytes)
{
	return (bytes + piece_len(bytes) - 1) / piece_len(bytes);
}

/* Claims the next pieces of the message, `most` at most. Returns false if none is left; then pieces
 * of the next message may be claimed already. */
static bool claim(const struct ko_lane_end *end, size_t bytes, uint64_t most, struct ko_claim *out)
{
	_Atomic uint64_t *claimed = &end->lane->claimed;
	uint64_t k = atomic_load_explicit(claimed, memory_order_relaxed),
		 last = end->pieces + npieces(bytes);
	size_t len;

	do {
		if (k >= last)
			return false;
		out->pieces = last - k < most ? last - k : most;
	} while (!atomic_compare_exchange_weak_explicit(
		claimed, &k, k + out->pieces, memory_order_acquire, memory_order_relaxed));
	out->first = (size_t)(k - end->pieces) * piece_len(bytes);
	len = (size_t)out->pieces * piece_len(bytes);
	out->len = bytes - out->first < len ? bytes - out->first : len;
	return true;
}

/* Pairs with the acquire in is_copied: an end that sees the last piece counted sees all bytes of
 * the message. */
static void count_copied(const struct ko_lane_end *end, const struct ko_claim *claim)
{
	atomic_fetch_add_explicit(&end->lane->copied, claim->pieces, memory_order_release);
}

static bool is_copied(const struct ko_lane_end *end, size_t bytes)
{
	return atomic_load_explicit(&end->lane->copied, memory_order_acquire) - end->pieces >=
	       npieces(bytes);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* What a step of a transfer returns. Negative: an error. */
enum { MOVED = 0, STUCK = KO_EAGAIN, DONE };

static void fill_line(const struct ko_run *run, const struct ko_transfer *t, struct ko_line *line,
		      enum ko_line_kind kind)
{
	line->tag = run->tag;
	line->n = t->n;
	line->kind = (uint8_t)kind;
	line->type = (uint8_t)t->type;
}

/* Does the message go by rendezvous: is it large enough, and can the receiver get at it? */
static bool goes_by_rndv(const struct ko_run *run, const struct ko_transfer *t,
			 struct ko_where *where)
{
	struct kolo_comm *c = run->comm;
	const struct ko_algorithms *table = &c->agreed.algorithms;

	if (t->bytes < table->rndv_begin && t->bytes < table->rndv_window_begin)
		return false;
	*where = ko_window_find(c, t->buffer, t->bytes);
	if (where->window)
		return t->bytes >= table->rndv_window_begin;
	return run->offers && t->bytes >= table->rndv_begin &&
	       ko_cma_offers(c, t->buffer, t->bytes);
}

static int send_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_line *line = ko_lane_acquire(end, true);
	size_t rest = t->bytes - t->moved, len = rest < KO_LANE_SLOT ? rest : KO_LANE_SLOT;

	if (!line)
		return STUCK;
	run->comm->lanes->with_slots += !end->has_slots;
	end->has_slots = true;
	ko_copy_bytes(ko_lane_slot(end), t->buffer + t->moved, len);
	fill_line(run, t, line, t->moved ? KO_LINE_MORE : KO_LINE_SLOT);
	t->line = end->next;
	ko_lane_commit(end);
	t->stage = KO_STAGE_SLOTS;
	t->moved += len;
	return t->moved == t->bytes ? DONE : MOVED;
}

static int send_part(struct ko_run *run, struct ko_transfer *t)
{
	int rc = ko_link_send_part(run, t);

	return rc == 0 && t->moved == t->bytes ? DONE : rc;
}

/* Is part of it in slots, of the lane or the link? */
static bool is_in_slots(const struct ko_transfer *t)
{
	return t->stage == KO_STAGE_SLOTS || t->stage == KO_STAGE_LINK;
}

static int begin_send(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_line *line = ko_lane_acquire(end, false);
	struct ko_where where;

	if (!line)
		return STUCK;
	if (t->bytes <= KO_LANE_SMALL) {
		if (t->bytes)
			memcpy(line->small, t->buffer, t->bytes);
		fill_line(run, t, line, KO_LINE_SMALL);
		ko_lane_commit(end);
		return DONE;
	}
	if (goes_by_rndv(run, t, &where)) {
		memcpy(line->small, &where, sizeof(where));
		fill_line(run, t, line, KO_LINE_RNDV);
		t->stage = KO_STAGE_RNDV;
	} else if (ko_link_carries(run, t)) {
		fill_line(run, t, line, KO_LINE_LINK);
		t->stage = KO_STAGE_LINK;
		t->by_link = true;
	} else {
		return send_slot(run, end, t);
	}
	t->line = end->next;
	ko_lane_commit(end);
	return MOVED;
}

static int step_send(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	switch (t->stage) {
	case KO_STAGE_SLOTS: return send_slot(run, end, t);
	case KO_STAGE_LINK: return send_part(run, t);
	default: return begin_send(run, end, t);
	}
}

/* Finds the address in this process of a buffer of `rank`. NULL: it is in no window, and the kernel
 * has to copy. Errors: KOLO_EMISMATCH. */
static int find_mapped(const struct ko_run *run, int rank, struct ko_where where, char **out)
{
	char them[KO_RANK_TEXT];

	*out = ko_window_at(run->comm, rank, where);
	if (*out || !where.window)
		return 0;
	return ko_fail(
		KOLO_EMISMATCH,
		"%s has a message in memory of kolo_alloc that rank %d has given to kolo_free",
		ko_comm_name(run->comm, rank, them), run->comm->rank);
}

/* Sender: copies a piece into the receiver's buffer, if the receiver has said where that is. */
static int help(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_lane *lane = end->lane;
	struct ko_claim mine;
	char *mapped;
	int rc;

	/* Pairs with the release in answer_rndv. The answer stays until all of the message is
	 * copied. */
	if (atomic_load_explicit(&lane->answered, memory_order_acquire) != t->line ||
	    !claim(end, t->bytes, 1, &mine))
		return STUCK;
	/* After a failure the receiver may use that memory for other things. */
	if ((rc = ko_roster_cause(run->comm->roster)) < 0 ||
	    (rc = find_mapped(run, t->peer, lane->answer, &mapped)) < 0)
		return rc;
	if (mapped)
		ko_copy_bytes(mapped + mine.first, t->buffer + mine.first, mine.len);
	else
		rc = ko_cma_write(run->comm, t->peer, lane->answer.at + mine.first,
				  t->buffer + mine.first, mine.len);
	if (rc == 0)
		count_copied(end, &mine);
	return rc < 0 ? rc : MOVED;
}

/* Puts messages into the lane, one after the other, while there is room. They need not wait for
 * rendezvous messages before them. A message fills all slots that are free, but not those that
 * become free meanwhile: other lanes have waited. */
static int post(struct ko_run *run, struct ko_lane_end *end)
{
	int moved = STUCK, slots = 0;

	while (end->unposted) {
		struct ko_transfer *t = end->unposted;
		int rc = step_send(run, end, t);

		if (rc < 0)
			return rc;
		if (rc == STUCK)
			break;
		moved = MOVED;
		if (rc == DONE)
			t->stage = KO_STAGE_DONE;
		if (!is_in_slots(t))
			end->unposted = t->next;
		else if (++slots == KO_LANE_SLOTS)
			break;
	}
	return moved;
}

/* Is the time of the message to be learnt, of those that could go by rendezvous? Then it is over
 * when the receiver has it, in slots too. */
static bool is_learnt(const struct ko_run *run, const struct ko_transfer *t)
{
	return run->reading && t->bytes > KO_LANE_SMALL &&
	       t->bytes >= run->comm->agreed.algorithms.rndv_begin;
}

/* Rendezvous messages are copied in the order of the lane. So the first one that is not done is the
 * one under way. */
static int advance_send(struct ko_run *run, struct ko_lane_end *end, bool may_help)
{
	int moved = post(run, end);

	if (moved < 0)
		return moved;
	while (end->first && end->first != end->unposted) {
		struct ko_transfer *t = end->first;

		if (t->stage == KO_STAGE_RNDV) {
			if (!is_copied(end, t->bytes))
				break;
			end->pieces += npieces(t->bytes);
		} else if (is_learnt(run, t) && !ko_lane_is_taken(end, t->line)) {
			break;
		}
		if (!t->by_link)
			run->comm->lanes->sent += t->bytes;
		end->first = t->next;
		moved = MOVED;
	}
	if (moved == STUCK && may_help && end->first && end->first->stage == KO_STAGE_RNDV)
		return help(run, end, end->first);
	return moved;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static int recv_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	size_t rest = t->bytes - t->moved, len = rest < KO_LANE_SLOT ? rest : KO_LANE_SLOT;

	if (!ko_lane_peek(end))
		return STUCK;
	ko_run_copy(run, t->buffer + t->moved, ko_lane_slot(end), len);
	ko_lane_take(end);
	t->stage = KO_STAGE_SLOTS;
	t->moved += len;
	return t->moved == t->bytes ? DONE : MOVED;
}

/* The line stays until all of the message has come: then the sender may learn from the time. */
static int recv_part(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	int rc = ko_link_recv_part(run, t);

	if (rc != 0 || t->moved < t->bytes)
		return rc;
	ko_lane_take(end);
	return DONE;
}

/* Receiver: says where the message shall go, so that the sender can copy pieces too. Says nothing
 * if the sender can't get at that. */
static void answer_rndv(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct kolo_comm *c = run->comm;
	struct ko_lane *lane = end->lane;
	struct ko_where where = ko_window_find(c, t->buffer, t->bytes);

	if (!where.window &&
	    (c->agreed.costs.read_bytes_per_ns <= 0 || !ko_cma_offers(c, t->buffer, t->bytes)))
		return;
	lane->answer = where;
	/* Pairs with the acquire in help. */
	atomic_store_explicit(&lane->answered, end->next, memory_order_release);
}

/* How many pieces the receiver claims at a time. At first half of a small message, before the
 * sender knows where it shall go: the sender is slower, since it would write what the receiver has
 * in its caches. Many, if the sender is busy because it receives from this rank too. */
static uint64_t share(const struct ko_run *run, const struct ko_transfer *t, bool first)
{
	bool both_ways = run->comm->lanes->ends[t->peer].first;

	return both_ways ? 8 * PIECES : first ? PIECES / 2 : 1;
}

static int begin_recv(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	const struct ko_line *line = ko_lane_peek(end);

	if (!line)
		return STUCK;
	if (line->tag != run->tag || line->n != t->n || line->type != t->type)
		return ko_lane_mismatch(run, t, line->tag, line->n, line->type);
	if (line->kind == KO_LINE_SLOT)
		return recv_slot(run, end, t);
	if (line->kind == KO_LINE_LINK) {
		t->stage = KO_STAGE_LINK;
		t->by_link = true;
		return MOVED;
	}
	if (line->kind == KO_LINE_RNDV) {
		memcpy(&t->there, line->small, sizeof(t->there));
		claim(end, t->bytes, share(run, t, true), &t->mine);
		answer_rndv(run, end, t);
		t->stage = KO_STAGE_RNDV;
	} else if (t->bytes) {
		memcpy(t->buffer, line->small, t->bytes);
	}
	ko_lane_take(end);
	return t->stage == KO_STAGE_RNDV ? MOVED : DONE;
}

/* Receiver: copies pieces out of the sender's buffer. */
static int fetch(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_claim mine = t->mine;
	char *mapped;
	int rc;

	if (!mine.pieces && !claim(end, t->bytes, share(run, t, false), &mine))
		return STUCK;
	t->mine.pieces = 0;
	if ((rc = find_mapped(run, t->peer, t->there, &mapped)) < 0)
		return rc;
	if (mapped)
		ko_run_copy(run, t->buffer + mine.first, mapped + mine.first, mine.len);
	else
		rc = ko_cma_read(run->comm, t->peer, t->there.at + mine.first,
				 t->buffer + mine.first, mine.len);
	if (rc == 0)
		count_copied(end, &mine);
	return rc < 0 ? rc : MOVED;
}

static int step_recv(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	switch (t->stage) {
	case KO_STAGE_WAITING: return begin_recv(run, end, t);
	case KO_STAGE_SLOTS: return recv_slot(run, end, t);
	case KO_STAGE_LINK: return recv_part(run, end, t);
	default:
		if (!is_copied(end, t->bytes))
			return fetch(run, end, t);
		end->pieces += npieces(t->bytes);
		return DONE;
	}
}

/* Takes a step, or of a message in slots all that have come; no more than a lane has, because other
 * lanes wait. */
static int recv_some(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	int rc = step_recv(run, end, t), moved = rc;

	for (int slots = 1; rc == MOVED && is_in_slots(t) && slots < KO_LANE_SLOTS; slots++)
		moved = (rc = step_recv(run, end, t)) == STUCK ? MOVED : rc;
	return moved;
}

/* Receives one message after the other, while each comes at once. */
static int advance_recv(struct ko_run *run, struct ko_lane_end *end)
{
	int rc = DONE, moved = STUCK;

	while (end->first && rc == DONE) {
		rc = recv_some(run, end, end->first);
		if (rc < 0)
			return rc;
		if (rc == DONE) {
			if (!end->first->by_link)
				run->comm->lanes->received += end->first->bytes;
			end->first = end->first->next;
		}
		if (rc != STUCK)
			moved = MOVED;
	}
	return moved;
}

static int near_advance(struct ko_run *run, struct ko_lane_end *end, bool may_help)
{
	return end->sends ? advance_send(run, end, may_help) : advance_recv(run, end);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static int near_open(struct kolo_comm *c, struct ko_lane_end *end)
{
	uint64_t from = (uint64_t)(end->sends ? c->rank : end->peer), nranks = (uint64_t)c->nranks;
	uint64_t to = (uint64_t)(end->sends ? end->peer : c->rank);
	void *memory;
	int rc = ko_shmem_map_part(c->lanes->fd, c->shared_len + (from * nranks + to) * KO_LANE_LEN,
				   KO_LANE_LEN, &memory);

	if (rc < 0)
		return rc;
	end->lane = memory;
	return 0;
}

/* Finds the sending end that was used longest ago, of those whose slots have memory and are
 * empty. */
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

static void near_trim(struct kolo_comm *c)
{
	struct ko_lane_end *idle;

	while (c->lanes->with_slots > KO_LANES_KEPT && (idle = find_idle(c))) {
		madvise((char *)idle->lane + KO_LANE_HEAD, KO_LANE_LEN - KO_LANE_HEAD, MADV_REMOVE);
		idle->has_slots = false;
		c->lanes->with_slots--;
	}
}

/* Memory that two ranks share counts for the sender. */
static size_t near_memory(const struct ko_lane_end *end)
{
	if (!end->lane || !end->sends)
		return 0;
	return end->has_slots ? KO_LANE_LEN : KO_LANE_HEAD;
}

static void near_close(struct ko_lane_end *end, bool failed)
{
	(void)failed;
	if (end->lane)
		munmap(end->lane, KO_LANE_LEN);
}

/* The text says all that is known. */
static int near_explain(struct ko_run *run, int code)
{
	(void)run;
	return code;
}

const struct ko_lane_ops ko_near_ops = {
	.open = near_open,
	.advance = near_advance,
	.explain = near_explain,
	.trim = near_trim,
	.memory = near_memory,
	.close = near_close,
};
