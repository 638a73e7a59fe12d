/* Moves slots in shared memory (ko_fifo_acquire to ko_fifo_drain), and moves their memory to
 * another NUMA node (ko_fifo_settle). */
#include "comm/transport/fifo.h"

#include "comm/base/error.h"
#include "comm/reduce/reduce.h"
#include "comm/sys/shmem.h"

_Static_assert(sizeof(struct ko_fifo) <= KO_FIFO_HEAD, "the slots start after the lines");

size_t ko_fifo_len(const struct ko_limits *limits)
{
	return KO_FIFO_HEAD + limits->nslots * limits->slot_len;
}

void ko_fifo_init(struct ko_fifo *fifo, const struct ko_limits *limits, uint64_t secret)
{
	fifo->limits = *limits;
	fifo->secret = secret;
}

static struct ko_fifo_end *end_of(struct ko_link *link)
{
	return (struct ko_fifo_end *)link;
}

static void *slot_at(const struct ko_fifo_end *end)
{
	return (char *)end->fifo + KO_FIFO_HEAD + end->at * end->fifo->limits.slot_len;
}

/* Counts the slot, and goes on to the next. */
static void step(struct ko_fifo_end *end, size_t len)
{
	end->link.bytes += len;
	end->link.slots++;
	end->at = end->at + 1 == end->fifo->limits.nslots ? 0 : end->at + 1;
}

int ko_fifo_acquire(struct ko_link *link, struct ko_slot *out)
{
	struct ko_fifo_end *end = end_of(link);

	/* Pairs with the release in ko_fifo_release: the receiver has finished with the slot's
	 * bytes. */
	if (atomic_load_explicit(&end->fifo->line[end->at].full, memory_order_acquire))
		return KO_EAGAIN;
	*out = (struct ko_slot){ .ptr = slot_at(end) };
	return 0;
}

int ko_fifo_commit(struct ko_link *link, const struct ko_slot *slot)
{
	struct ko_fifo_end *end = end_of(link);
	struct ko_fifo_line *line = &end->fifo->line[end->at];

	if (link->writer.stores == KO_STREAMING)
		ko_stream_fence();
	line->tag = slot->tag;
	line->len = slot->len;
	/* Pairs with the acquire in ko_fifo_peek: who sees `full` sees the slot's bytes, tag and
	 * length. */
	atomic_store_explicit(&line->full, 1, memory_order_release);
	step(end, slot->len);
	return 0;
}

int ko_fifo_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out)
{
	struct ko_fifo_end *end = end_of(link);
	struct ko_fifo_line *line = &end->fifo->line[end->at];

	(void)into;
	(void)len;
	if (!atomic_load_explicit(&line->full, memory_order_acquire))
		return KO_EAGAIN;
	*out = (struct ko_slot){ .ptr = slot_at(end), .len = line->len, .tag = line->tag };
	return 0;
}

int ko_fifo_release(struct ko_link *link)
{
	struct ko_fifo_end *end = end_of(link);
	struct ko_fifo_line *line = &end->fifo->line[end->at];
	size_t len = line->len;

	atomic_store_explicit(&line->full, 0, memory_order_release);
	step(end, len);
	return 0;
}

/* Both ends map the memory, so there is nothing to do for what was committed or released. */
int ko_fifo_progress(struct ko_link *link)
{
	(void)link;
	return 0;
}

int ko_fifo_drain(struct ko_link *link)
{
	(void)link;
	return 0;
}

/* Gets the slots' memory anew, near the caller. Neither end may use it meanwhile. */
static int move_slots(const struct ko_fifo_end *end)
{
	char *slots = (char *)end->fifo + KO_FIFO_HEAD;
	size_t len = ko_fifo_len(&end->fifo->limits) - KO_FIFO_HEAD;

	ko_shmem_forget(slots, len);
	return ko_shmem_touch(slots, len);
}

static bool is_empty(const struct ko_fifo *fifo)
{
	uint32_t i = 0;

	while (i < fifo->limits.nslots &&
	       !atomic_load_explicit(&fifo->line[i].full, memory_order_acquire))
		i++;
	return i == fifo->limits.nslots;
}

/* Nothing is sent before this is over. So the receiver does not look at slots, and has a part only
 * if the slots move to it. */
int ko_fifo_settle(struct ko_link *link, enum ko_role near)
{
	const struct ko_fifo_end *end = end_of(link);
	_Atomic uint32_t *settling = &end->fifo->settling;
	uint32_t state = atomic_load_explicit(settling, memory_order_acquire);
	int rc;

	if (link->role == KO_RECV) {
		if (near == KO_SEND)
			return 0;
		if (state != KO_EMPTIED)
			return KO_EAGAIN;
		rc = move_slots(end);
		atomic_store_explicit(settling, KO_MOVED, memory_order_release);
		return rc;
	}
	if (!is_empty(end->fifo))
		return KO_EAGAIN;
	if (near == KO_SEND)
		return move_slots(end);
	if (state == KO_EMPTIED)
		return KO_EAGAIN;
	atomic_store_explicit(settling, state == KO_MOVED ? KO_SETTLED : KO_EMPTIED,
			      memory_order_release);
	return state == KO_MOVED ? 0 : KO_EAGAIN;
}
