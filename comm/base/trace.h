/* A trace of what a rank did when, for people: KOLO_TRACE=DIR writes a file for each communicator that
 * https://ui.perfetto.dev and chrome://tracing open, with a row per rank: operations, their rounds, and waits. */
#ifndef COMM_BASE_TRACE_H
#define COMM_BASE_TRACE_H

#include "comm/base/log.h"

#include <stdbool.h>
#include <stdint.h>

struct ko_trace; /* NULL where nothing is traced: the functions below do nothing then */

/* Is KOLO_TRACE a folder that can be written? Errors: KOLO_EINVAL. */
int ko_trace_check(void);

/* `name` is that of the communicator, the same on all its ranks, and becomes the file's; `who` is the row's. NULL
 * when KOLO_TRACE is unset or there is no memory, which is logged. */
struct ko_trace *ko_trace_open(const char *name, const char *who, const struct ko_log *log);

/* Something that took from `since` (ko_now_ns()) until now. `number` is the round, or the rank that was waited for; `text`, cut at 63
 * bytes, is an operation's and NULL else. */
enum ko_trace_kind { KO_TRACE_OP, KO_TRACE_ROUND, KO_TRACE_DATA, KO_TRACE_ROOM };
void ko_trace_add(struct ko_trace *t, enum ko_trace_kind kind, int64_t since, uint64_t number,
		  const char *text);

/* Writes what has not been written yet, behind what the other ranks wrote. What can't be written is logged. */
void ko_trace_close(struct ko_trace *t);

#endif
