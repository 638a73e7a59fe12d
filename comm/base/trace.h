/* A trace of what a rank did when, for people. KOLO_TRACE names a folder, and each communicator
 * writes a file there. https://ui.perfetto.dev and chrome://tracing show it: a row for each rank,
 * with operations, their rounds, waits and steps. */
#ifndef COMM_BASE_TRACE_H
#define COMM_BASE_TRACE_H

#include "comm/base/log.h"

#include <stdbool.h>
#include <stdint.h>

struct ko_trace; /* NULL: nothing is traced, and the functions below do nothing */

/* Checks that KOLO_TRACE is unset or a folder that can be written. Errors: KOLO_EINVAL. */
int ko_trace_check(void);

/* Opens a trace. `name` is the communicator's name, equal on all its ranks: the file is called so.
 * `who` names this rank's row. `log` must outlive the trace.
 *
 * Returns NULL if KOLO_TRACE is unset. Returns NULL and logs a warning if there is no memory. */
struct ko_trace *ko_trace_open(const char *name, const char *who, const struct ko_log *log);

/* Adds an event that lasted from `since` (ko_now_ns()) until now. `number` is the round, or the
 * rank that this one waited for; of a step, the number of its track, which has a row of its own.
 * `text` names an operation or a step, and is cut at 63 bytes; it is NULL for the other kinds. */
enum ko_trace_kind { KO_TRACE_OP, KO_TRACE_ROUND, KO_TRACE_DATA, KO_TRACE_ROOM, KO_TRACE_STEP };
void ko_trace_add(struct ko_trace *t, enum ko_trace_kind kind, int64_t since, uint64_t number,
		  const char *text);

/* Appends the events that are not in the file yet, and frees. Logs what can't be written. */
void ko_trace_close(struct ko_trace *t);

#endif
