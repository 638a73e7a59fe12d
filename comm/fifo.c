/* See fifo.h. */
#include "fifo.h"

#include "error.h"
#include "mem.h"

_Static_assert(sizeof(struct ko_fifo) <= KO_FIFO_HEAD, "the slots start behind the lines");

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

/* Counts the slot and goes to the next. */
static void step(struct ko_fifo_end *end, size_t len)
{
	end->link.bytes += len;
	end->link.slots++;
	end->at = end->at + 1 == end->fifo->limits.nslots ? 0 : end->at + 1;
}

int ko_fifo_acquire(struct ko_link *link, struct ko_slot *out)
{
	struct ko_fifo_end *end = end_of(link);

	/* Pairs with the release in ko_fifo_release: the receiver has done with the slot's bytes. */
	if (atomic_load_explicit(&end->fifo->line[end->at].full, memory_order_acquire))
		return KO_EAGAIN;
	*out = (struct ko_slot){ .ptr = slot_at(end) };
	return 0;
}

int ko_fifo_commit(struct ko_link *link, const struct ko_slot *slot)
{
	struct ko_fifo_end *end = end_of(link);
	struct ko_fifo_line *line = &end->fifo->line[end->at];

	if (link->stores == KO_STREAMING)
		ko_stream_fence();
	line->tag = slot->tag;
	line->len = slot->len;
	/* Pairs with the acquire in ko_fifo_peek: who sees it full sees the slot's bytes, tag and length. */
	atomic_store_explicit(&line->full, 1, memory_order_release);
	step(end, slot->len);
	return 0;
}

int ko_fifo_peek(struct ko_link *link, struct ko_slot *out)
{
	struct ko_fifo_end *end = end_of(link);
	struct ko_fifo_line *line = &end->fifo->line[end->at];

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

/* What is committed or released lies in memory that both ends map: nothing is left to do. */
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
