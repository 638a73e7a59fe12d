/* Reads options of grids. */
#include "tools/common/grid.h"
#include "tools/common/tool.h"

#include <string.h>

enum kolo_pipeline_schedule tool_parse_schedule(const char *tool, const char *value)
{
	const char *name;

	for (int i = 0; (name = kolo_pipeline_schedule_name((enum kolo_pipeline_schedule)i)); i++)
		if (strcmp(value, name) == 0)
			return (enum kolo_pipeline_schedule)i;
	tool_refuse_option(tool, "schedule", value, "must be gpipe, 1f1b, interleaved or zb-h1");
}

int tool_parse_recompute(const char *tool, const char *value)
{
	if (strcmp(value, "none") == 0)
		return 0;
	if (strcmp(value, "block") == 0)
		return 1;
	return (int)tool_parse_number(tool, "--recompute", value, 1, 1000);
}

int tool_chunks(enum kolo_pipeline_schedule schedule, int stages, int chunks)
{
	if (schedule != KOLO_PIPELINE_INTERLEAVED || stages == 1)
		return 1;
	return chunks > 0 ? chunks : 2;
}
