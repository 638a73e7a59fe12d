/* With which stores this rank writes slots and long payloads, which another rank reads. That is
 * measured when the communicator is made. It may change: a virtual machine is moved to other cores,
 * or something disturbed the measurement. So a writer times some of what it writes (why: D197 in
 * comm/DECISIONS.md). */
#ifndef COMM_TRANSPORT_STORES_H
#define COMM_TRANSPORT_STORES_H

#include "comm/reduce/reduce.h"

#include <stddef.h>
#include <stdint.h>

/* It may change at any time, and the reader need not know. */
enum ko_stores { KO_ORDINARY, KO_STREAMING };

/* One per link or board. Times are in ns per byte. */
struct ko_writer {
	enum ko_stores stores;
	double limit; /* what ordinary stores may take; 0: the stores never change */
	/* Ordinary stores on trial: bytes to go, and the least time among the last of them; 0:
	 * none */
	int64_t trial;
	double best;
	double last;                /* what was timed last, and not judged yet; 0: nothing */
	int slow;                   /* writes in a row that were timed and slow */
	size_t seen;                /* bytes of long writes since one was timed */
	int64_t pause_ns, until_ns; /* of streaming stores, before the next trial */
	int64_t began_ns;           /* a write is being timed; 0: none */
	size_t bytes;               /* it has so many */
};

/* From now on these are the stores, with this limit. */
void ko_writer_set(struct ko_writer *w, enum ko_stores stores, double limit);

/* Judges what was noted since the last call, at this time: may change w->stores. */
void ko_writer_judge(struct ko_writer *w, int64_t now_ns);

/* Notes what a write took. */
void ko_writer_note(struct ko_writer *w, size_t bytes, int64_t took_ns);

/* These two do that for a write that begins and ends now. */
void ko_writer_start(struct ko_writer *w, size_t bytes);
void ko_writer_stop(struct ko_writer *w);

/* Begins a write of so many bytes, and nothing else. What was written before has been handed over:
 * w->stores may change here. */
static inline void ko_writer_begin(struct ko_writer *w, size_t bytes)
{
	enum { LONG = 16 << 10, EACH = 512 << 10 };

	if (bytes < LONG || w->limit <= 0)
		return;
	w->seen += bytes;
	if (w->trial > 0 || w->seen >= EACH)
		ko_writer_start(w, bytes);
}

static inline void ko_writer_end(struct ko_writer *w)
{
	if (w->began_ns)
		ko_writer_stop(w);
}

/* Copies with these stores. The buffers must not overlap. Streaming ones want ko_stream_fence
 * before the bytes are handed over. */
static inline void ko_stores_copy(enum ko_stores stores, void *out, const void *src, size_t len)
{
	if (stores == KO_STREAMING)
		ko_stream_copy(out, src, len);
	else
		ko_copy_bytes(out, src, len);
}

/* "ordinary" or "streaming". */
const char *ko_stores_name(enum ko_stores stores);

#endif
