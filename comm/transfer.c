/* See transfer.h. */
#include "transfer.h"

#include "far.h"
#include "learn.h"
#include "peer.h"
#include "watch.h"

#include <string.h>

/* ---- Pieces of what was offered ------------------------------------------------------------------------- */

enum { MIN_PIECE = 16 << 10, MAX_PIECE = 128 << 10, PIECES = 4 };

/* Both ends cut a message alike. */
static size_t piece_len(size_t bytes)
{
	size_t len = bytes / PIECES;

	return len < MIN_PIECE ? MIN_PIECE : len < MAX_PIECE ? len : MAX_PIECE;
}

static uint64_t npieces(size_t bytes)
{
	return (bytes + piece_len(bytes) - 1) / piece_len(bytes);
}

/* Takes the next pieces of the message, as many as are left and `most` at most; false when all are taken, and perhaps some
 * of the next message. */
static bool claim(const struct ko_lane_end *end, size_t bytes, uint64_t most, struct ko_claim *out)
{
	_Atomic uint64_t *claimed = &end->lane->claimed;
	uint64_t k = atomic_load_explicit(claimed, memory_order_relaxed), last = end->pieces + npieces(bytes);
	size_t len;

	do {
		if (k >= last)
			return false;
		out->pieces = last - k < most ? last - k : most;
	} while (!atomic_compare_exchange_weak_explicit(claimed, &k, k + out->pieces, memory_order_acquire,
							memory_order_relaxed));
	out->first = (size_t)(k - end->pieces) * piece_len(bytes);
	len = (size_t)out->pieces * piece_len(bytes);
	out->len = bytes - out->first < len ? bytes - out->first : len;
	return true;
}

/* Pairs with the acquire in is_copied: who sees the last piece counted sees all of the message. */
static void count_copied(const struct ko_lane_end *end, const struct ko_claim *claim)
{
	atomic_fetch_add_explicit(&end->lane->copied, claim->pieces, memory_order_release);
}

static bool is_copied(const struct ko_lane_end *end, size_t bytes)
{
	return atomic_load_explicit(&end->lane->copied, memory_order_acquire) - end->pieces >= npieces(bytes);
}

/* ---- Sending -------------------------------------------------------------------------------------------- */

/* How a step of a transfer ends; negative: an error. */
enum { STUCK, MOVED, DONE };

static void fill_line(const struct ko_run *run, const struct ko_transfer *t, struct ko_line *line,
		      enum ko_line_kind kind)
{
	line->tag = run->tag;
	line->n = t->n;
	line->kind = (uint8_t)kind;
	line->type = (uint8_t)t->type;
}

/* Is it large enough, and where the receiver can get at it? */
static bool can_offer(const struct ko_run *run, const struct ko_transfer *t, struct ko_where *where)
{
	struct kolo_comm *c = run->comm;
	const struct ko_algorithms *table = &c->algorithms;

	if (t->bytes < table->offer_begin && t->bytes < table->offer_window_begin)
		return false;
	*where = ko_window_find(c, t->buffer, t->bytes);
	if (where->window)
		return t->bytes >= table->offer_window_begin;
	return run->offers && t->bytes >= table->offer_begin && ko_peer_offers(c, t->buffer, t->bytes);
}

static int send_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_line *line = ko_lane_acquire(end, true);
	size_t rest = t->bytes - t->moved, len = rest < KO_LANE_SLOT ? rest : KO_LANE_SLOT;

	if (!line)
		return STUCK;
	run->comm->lanes->with_slots += !end->has_slots;
	end->has_slots = true;
	memcpy(ko_lane_slot(end), t->buffer + t->moved, len);
	fill_line(run, t, line, t->moved ? KO_LINE_MORE : KO_LINE_SLOT);
	t->line = end->next;
	ko_lane_commit(end);
	t->stage = KO_STAGE_SLOTS;
	t->moved += len;
	return t->moved == t->bytes ? DONE : MOVED;
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
	if (!can_offer(run, t, &where))
		return send_slot(run, end, t);
	memcpy(line->small, &where, sizeof(where));
	fill_line(run, t, line, KO_LINE_OFFERED);
	t->line = end->next;
	t->stage = KO_STAGE_OFFERED;
	ko_lane_commit(end);
	return MOVED;
}

/* Memory of `rank`, where this rank has mapped it; NULL: the kernel has to copy. Errors: KOLO_EMISMATCH. */
static int find_mapped(const struct ko_run *run, int rank, struct ko_where where, char **out)
{
	char them[KO_RANK_TEXT];

	*out = ko_window_at(run->comm, rank, where);
	if (*out || !where.window)
		return 0;
	return ko_fail(KOLO_EMISMATCH,
		       "%s has a message in memory of kolo_alloc that rank %d has given to kolo_free",
		       ko_comm_name(run->comm, rank, them), run->comm->rank);
}

/* Copies a piece into the receiver's memory, when the receiver has said where. */
static int help(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct ko_lane *lane = end->lane;
	struct ko_claim mine;
	char *mapped;
	int rc;

	/* Pairs with the release in answer_offer. The answer stays until the message, and so this piece of it, is copied. */
	if (atomic_load_explicit(&lane->answered, memory_order_acquire) != t->line ||
	    !claim(end, t->bytes, 1, &mine))
		return STUCK;
	/* Once it has failed, the receiver uses that memory for other things. */
	if ((rc = ko_roster_cause(run->comm->roster)) < 0 ||
	    (rc = find_mapped(run, t->peer, lane->answer, &mapped)) < 0)
		return rc;
	if (mapped)
		memcpy(mapped + mine.first, t->buffer + mine.first, mine.len);
	else
		rc = ko_peer_write(run->comm, t->peer, lane->answer.at + mine.first, t->buffer + mine.first,
				   mine.len);
	if (rc == 0)
		count_copied(end, &mine);
	return rc < 0 ? rc : MOVED;
}

/* Puts messages into the lane, each after the other, as long as there is room: they need not wait for what was offered before
 * them. One slot at a time. */
static int post(struct ko_run *run, struct ko_lane_end *end)
{
	int moved = STUCK;

	while (end->unposted) {
		struct ko_transfer *t = end->unposted;
		int rc = t->stage == KO_STAGE_SLOTS ? send_slot(run, end, t) : begin_send(run, end, t);

		if (rc < 0)
			return rc;
		if (rc == STUCK)
			break;
		moved = MOVED;
		if (rc == DONE)
			t->stage = KO_STAGE_DONE;
		if (t->stage == KO_STAGE_SLOTS)
			break;
		end->unposted = t->next;
	}
	return moved;
}

/* Could it have been offered, and is it to be known what is better? Then either way is over when the receiver has it. */
static bool is_learnt(const struct ko_run *run, const struct ko_transfer *t)
{
	return run->reading && t->bytes > KO_LANE_SMALL && t->bytes >= run->comm->algorithms.offer_begin;
}

/* What is offered is copied in the order of the lane, so the first one that is not done is the one under way. */
static int advance_send(struct ko_run *run, struct ko_lane_end *end, bool may_help)
{
	int moved = post(run, end);

	if (moved < 0)
		return moved;
	while (end->first && end->first != end->unposted) {
		struct ko_transfer *t = end->first;

		if (t->stage == KO_STAGE_OFFERED) {
			if (!is_copied(end, t->bytes))
				break;
			end->pieces += npieces(t->bytes);
		} else if (is_learnt(run, t) && !ko_lane_is_taken(end, t->line)) {
			break;
		}
		run->comm->lanes->sent += t->bytes;
		end->first = t->next;
		moved = MOVED;
	}
	if (moved == STUCK && may_help && end->first && end->first->stage == KO_STAGE_OFFERED)
		return help(run, end, end->first);
	return moved;
}

/* ---- Receiving ------------------------------------------------------------------------------------------ */

int ko_transfer_mismatch(struct ko_run *run, const struct ko_transfer *t, uint32_t tag, uint64_t n,
			 uint32_t their_type)
{
	struct kolo_comm *c = run->comm;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT], op[KO_DESC_TEXT];
	const char *type = kolo_type_name((enum kolo_type)their_type);

	ko_comm_name(c, c->rank, me);
	ko_comm_name(c, t->peer, them);
	ko_desc_text(&run->desc, op);
	if (tag != run->tag && !ko_desc_is_pair(&run->desc))
		return ko_watch_mismatch(c, &run->desc, t->peer, tag);
	if (tag != run->tag)
		return ko_fail(KOLO_EMISMATCH,
			       "ranks disagree: %s, in %s, got a message of a collective from %s", me, op,
			       them);
	return ko_fail(KOLO_EMISMATCH,
		       "ranks disagree: %s sends n=%llu %s to %s, which waits for n=%zu %s in %s", them,
		       (unsigned long long)n, type ? type : "?", me, t->n, kolo_type_name(t->type), op);
}

static void copy_in(const struct ko_run *run, void *dst, const void *src, size_t len)
{
	if (run->stores == KO_STREAMING)
		ko_stream_copy(dst, src, len);
	else
		memcpy(dst, src, len);
}

static int recv_slot(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	size_t rest = t->bytes - t->moved, len = rest < KO_LANE_SLOT ? rest : KO_LANE_SLOT;

	if (!ko_lane_peek(end))
		return STUCK;
	copy_in(run, t->buffer + t->moved, ko_lane_slot(end), len);
	ko_lane_take(end);
	t->stage = KO_STAGE_SLOTS;
	t->moved += len;
	return t->moved == t->bytes ? DONE : MOVED;
}

/* Says where the message shall go, so that the sender can help, if it can get there. */
static void answer_offer(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	struct kolo_comm *c = run->comm;
	struct ko_lane *lane = end->lane;
	struct ko_where where = ko_window_find(c, t->buffer, t->bytes);

	if (!where.window && (c->costs.read_bytes_per_ns <= 0 || !ko_peer_offers(c, t->buffer, t->bytes)))
		return;
	lane->answer = where;
	/* Pairs with the acquire in help. */
	atomic_store_explicit(&lane->answered, end->next, memory_order_release);
}

/* Pieces that the receiver takes at a time. At first a half of a small message, before the sender knows where it shall go:
 * the sender, who would write what the receiver has in its caches, is slower. Much where the sender has as much to do
 * itself, as it receives from this rank. */
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
		return ko_transfer_mismatch(run, t, line->tag, line->n, line->type);
	if (line->kind == KO_LINE_SLOT)
		return recv_slot(run, end, t);
	if (line->kind == KO_LINE_OFFERED) {
		memcpy(&t->there, line->small, sizeof(t->there));
		claim(end, t->bytes, share(run, t, true), &t->mine);
		answer_offer(run, end, t);
		t->stage = KO_STAGE_OFFERED;
	} else if (t->bytes) {
		memcpy(t->buffer, line->small, t->bytes);
	}
	ko_lane_take(end);
	return t->stage == KO_STAGE_OFFERED ? MOVED : DONE;
}

/* Copies pieces out of the sender's memory. */
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
		copy_in(run, t->buffer + mine.first, mapped + mine.first, mine.len);
	else
		rc = ko_peer_read(run->comm, t->peer, t->there.at + mine.first, t->buffer + mine.first,
				  mine.len);
	if (rc == 0)
		count_copied(end, &mine);
	return rc < 0 ? rc : MOVED;
}

static int step_recv(struct ko_run *run, struct ko_lane_end *end, struct ko_transfer *t)
{
	switch (t->stage) {
	case KO_STAGE_WAITING: return begin_recv(run, end, t);
	case KO_STAGE_SLOTS: return recv_slot(run, end, t);
	default:
		if (!is_copied(end, t->bytes))
			return fetch(run, end, t);
		end->pieces += npieces(t->bytes);
		return DONE;
	}
}

/* One message after the other, as long as they come in one step. */
static int advance_recv(struct ko_run *run, struct ko_lane_end *end)
{
	int rc = DONE, moved = STUCK;

	while (end->first && rc == DONE) {
		rc = step_recv(run, end, end->first);
		if (rc < 0)
			return rc;
		if (rc == DONE) {
			run->comm->lanes->received += end->first->bytes;
			end->first = end->first->next;
		}
		if (rc != STUCK)
			moved = MOVED;
	}
	return moved;
}

/* ---- One loop for all ---------------------------------------------------------------------------------- */

static int advance_far(struct ko_run *run, struct ko_lane_end *end)
{
	int rc = ko_far_advance(run, end);

	return rc < 0 ? rc : rc == 0 ? MOVED : STUCK;
}

/* A step, STUCK or MOVED, of each lane with something to do; those that have nothing left leave the list. */
static int step_all(struct ko_run *run, bool may_help)
{
	struct ko_lane_end **link = &run->comm->lanes->busy;
	int moved = STUCK;

	while (*link) {
		struct ko_lane_end *end = *link;
		int rc = end->far     ? advance_far(run, end)
			 : end->sends ? advance_send(run, end, may_help)
				      : advance_recv(run, end);

		if (rc < 0)
			return rc;
		if (rc == MOVED)
			moved = MOVED;
		if (end->first)
			link = &end->busy;
		else
			*link = end->busy;
	}
	return moved;
}

/* Others are helped by who has nothing of its own to do: where all send to all, calls that read and calls that write the
 * same processes hold each other up. */
static int try_all(void *what)
{
	struct ko_run *run = what;
	int rc = step_all(run, false), heard = 0;

	if (rc == STUCK && !run->comm->spread)
		rc = step_all(run, true);
	if (rc >= 0 && run->comm->while_waiting)
		heard = run->comm->while_waiting(run->comm);
	if (rc < 0 || heard < 0)
		return rc < 0 ? rc : heard;
	if (rc == STUCK)
		return KO_EAGAIN;
	ko_roster_ring(run->comm->roster, run->comm->rank, run->comm->nranks);
	return 0;
}

static int put_in_lane(struct ko_run *run, struct ko_transfer *t)
{
	struct kolo_comm *c = run->comm;
	struct ko_lane_end *end;
	int rc = ko_lane_find(c, t->peer, t->sends, &end);

	if (rc < 0)
		return rc;
	/* Not the line: the receiver may be looking at it. */
	if (end->lane && t->sends && !end->first && t->bytes > KO_LANE_SMALL && t->bytes <= KO_EXPECT_ONE_WAY)
		ko_expect_to_write(ko_lane_slot(end), t->bytes);
	if (end->first) {
		end->last->next = t;
	} else {
		end->first = end->unposted = t;
		end->busy = c->lanes->busy;
		c->lanes->busy = end;
	}
	end->last = t;
	return 0;
}

/* The next transfer to this rank itself, or from it, from `t` on. */
static struct ko_transfer *next_own(const struct ko_run *run, struct ko_transfer *t,
				    const struct ko_transfer *end, bool sends)
{
	while (t < end && (t->peer != run->comm->rank || t->sends != sends))
		t++;
	return t;
}

/* In a group what is sent and what is received may overlap. */
static void copy_part(const struct ko_run *run, char *dst, const char *src, size_t len)
{
	bool overlap = dst < src + len && src < dst + len;

	if (overlap)
		memmove(dst, src, len);
	else
		copy_in(run, dst, src, len);
}

/* What this rank has for itself: the first send is for the first recv, and so on. */
static int copy_own(struct ko_run *run, struct ko_transfer *all, size_t count)
{
	struct ko_transfer *end = all + count;
	struct ko_transfer *from = next_own(run, all, end, true), *to = next_own(run, all, end, false);
	struct kolo_comm *c = run->comm;

	while (from < end && to < end) {
		if (from->n != to->n || from->type != to->type)
			return ko_fail(KOLO_EMISMATCH,
				       "rank %d sends n=%zu %s to itself, and waits for n=%zu %s", c->rank,
				       from->n, kolo_type_name(from->type), to->n, kolo_type_name(to->type));
		if (to->bytes && to->buffer != from->buffer)
			copy_part(run, to->buffer, from->buffer, to->bytes);
		from = next_own(run, from + 1, end, true);
		to = next_own(run, to + 1, end, false);
	}
	if (from < end || to < end)
		return ko_fail(KOLO_EMISMATCH, "rank %d: a group has a %s itself without the other end",
			       c->rank, from < end ? "send to" : "recv from");
	return 0;
}

bool ko_transfers_need(const struct ko_run *run, int rank)
{
	const struct ko_lanes *lanes = run->comm->lanes;

	return lanes->ends && (lanes->ends[rank].first || lanes->ends[run->comm->nranks + rank].first);
}

/* How it shall be done, where there is a choice. */
static void decide(struct ko_run *run, const struct ko_transfer *all, size_t count)
{
	struct kolo_comm *c = run->comm;
	size_t large = 0, sent = 0, received = 0;

	for (size_t k = 0; k < count; k++) {
		const struct ko_transfer *t = &all[k];

		*(t->sends ? &sent : &received) += t->bytes;
		if (t->sends && t->peer != c->rank && t->bytes >= c->algorithms.offer_begin &&
		    !ko_window_find(c, t->buffer, t->bytes).window)
			large += t->bytes;
	}
	run->offers = true;
	if (c->algorithms.must_read)
		large = 0;
	if (large || received >= KO_LEARN_STORES)
		ko_learn_messages(run, large, sent, received);
}

int ko_transfers_do(struct ko_run *run, struct ko_transfer *all, size_t count)
{
	struct ko_lanes *lanes = run->comm->lanes;
	bool own = false;
	int rc = 0;

	for (size_t k = 0; k < count; k++)
		all[k].bytes = all[k].n * kolo_type_size(all[k].type);
	if (!run->comm->spread)
		decide(run, all, count);
	for (size_t k = 0; rc == 0 && k < count; k++) {
		if (all[k].peer != run->comm->rank)
			rc = put_in_lane(run, &all[k]);
		own = own || all[k].peer == run->comm->rank;
	}
	if (rc == 0)
		rc = try_all(run); /* others need not wait while this rank copies its own */
	if (rc >= 0)
		rc = own ? copy_own(run, all, count) : 0;
	/* Where they move all the time, nothing else would notice that the communicator has failed. */
	while (rc == 0 && lanes->busy && (rc = ko_watch_hear(run->comm)) == 0)
		rc = ko_wait(run, lanes->busy->peer, "a lane", KO_TRACE_DATA, try_all, run);
	if (rc < 0)
		rc = ko_far_explain(run, rc);
	for (; lanes->busy; lanes->busy = lanes->busy->busy) /* where it failed */
		lanes->busy->first = NULL;
	if (run->stores == KO_STREAMING)
		ko_stream_fence();
	if (rc == 0)
		ko_learn(run);
	if (lanes->with_slots > KO_LANES_KEPT)
		ko_lanes_trim(run->comm);
	if (rc == 0 && lanes->nfar > lanes->kept)
		ko_far_trim(run->comm);
	return rc;
}
