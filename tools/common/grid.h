/* Options of the tools that know of grids: zerotrain, zeroplan. */
#ifndef TOOLS_COMMON_GRID_H
#define TOOLS_COMMON_GRID_H

#include "kolo/kolo_parallel.h"

/* The value of --schedule. If it is none, prints a message and leaves the process. */
enum kolo_pipeline_schedule tool_parse_schedule(const char *tool, const char *value);

/* The value of --recompute: blocks of a segment, 0 for none. Likewise. */
int tool_parse_recompute(const char *tool, const char *value);

/* The parts of a stage: what --chunks says, if it is above 0, else what the schedule has. */
int tool_chunks(enum kolo_pipeline_schedule schedule, int stages, int chunks);

#endif
