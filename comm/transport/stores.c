/* Times writes (ko_writer_start, ko_writer_stop) and judges by that which stores are best
 * (ko_writer_judge). */
#include "comm/transport/stores.h"

#include "comm/base/clock.h"

enum {
	TRIAL = 4 << 20, /* bytes: twice the memory that slots or payloads walk through */
	COUNT = 1 << 20, /* the last of them, which find the caches as they will be */
	SLOW = 4         /* writes in a row, so that one that was disturbed is none */
};

static const int64_t PAUSE_NS = 200000000, LONGEST_NS = 3200000000;

/* Ordinary stores are dropped if they take so many times as long as they may. */
static const double TOO_LONG = 1.5;

const char *ko_stores_name(enum ko_stores stores)
{
	return stores == KO_STREAMING ? "streaming" : "ordinary";
}

static void try_ordinary(struct ko_writer *w)
{
	w->stores = KO_ORDINARY;
	w->trial = TRIAL;
	w->best = w->last = 0;
	w->slow = 0;
}

static void stream(struct ko_writer *w, int64_t now, int64_t pause)
{
	w->stores = KO_STREAMING;
	w->trial = 0;
	w->pause_ns = pause < PAUSE_NS ? PAUSE_NS : pause < LONGEST_NS ? pause : LONGEST_NS;
	w->until_ns = now + w->pause_ns;
}

void ko_writer_set(struct ko_writer *w, enum ko_stores stores, double limit)
{
	*w = (struct ko_writer){ .limit = limit };
	if (stores == KO_STREAMING)
		stream(w, ko_now_ns(), PAUSE_NS);
	else
		try_ordinary(w);
}

void ko_writer_judge(struct ko_writer *w, int64_t now_ns)
{
	if (w->stores == KO_STREAMING) {
		if (now_ns > w->until_ns)
			try_ordinary(w);
	} else if (w->trial <= 0 && w->best > 0) {
		if (w->best > w->limit)
			stream(w, now_ns, 2 * w->pause_ns);
		else
			w->pause_ns = 0;
		w->best = 0;
	} else if (w->trial <= 0 && w->last > 0) {
		w->slow = w->last > TOO_LONG * w->limit ? w->slow + 1 : 0;
		if (w->slow >= SLOW)
			stream(w, now_ns, PAUSE_NS);
	}
	w->last = 0;
}

void ko_writer_note(struct ko_writer *w, size_t bytes, int64_t took_ns)
{
	w->last = (double)took_ns / (double)bytes;
	if (w->trial <= 0)
		return;
	if (w->trial <= COUNT && (w->best == 0 || w->last < w->best))
		w->best = w->last;
	w->trial -= (int64_t)bytes;
}

void ko_writer_start(struct ko_writer *w, size_t bytes)
{
	int64_t now = ko_now_ns();

	ko_writer_judge(w, now);
	w->seen = 0;
	w->bytes = bytes;
	w->began_ns = now;
}

void ko_writer_stop(struct ko_writer *w)
{
	ko_writer_note(w, w->bytes, ko_now_ns() - w->began_ns);
	w->began_ns = 0;
}
