/* What all tools share: exit statuses, numbers on the command line, the clock, and starting as a
 * job. */
#ifndef TOOLS_COMMON_TOOL_H
#define TOOLS_COMMON_TOOL_H

#include <stddef.h>

enum exit_code { EXIT_GOOD, EXIT_WRONG, EXIT_USAGE, EXIT_FAILED };

enum { MAX_RANKS = 65536 }; /* kolo_comm_create has no more */

/* "0.1.0": the library's version. Returns out. */
enum { VERSION_TEXT = 16 };
const char *tool_version_text(char out[VERSION_TEXT]);

/* Microseconds of the machine's monotonic clock. */
double tool_now_us(void);

/* What --version prints; leaves the process. */
_Noreturn void tool_print_version(const char *tool);

/* Leaves the process with "TOOL: --OPTION VALUE: WHY", which is what it must be or needs. */
_Noreturn void tool_refuse_option(const char *tool, const char *option, const char *value,
				  const char *why);

/* `value` as a number from min to max. If it is something else, prints a message and leaves the
 * process. */
long tool_parse_number(const char *tool, const char *option, const char *value, long min, long max);

/* Reads a number of bytes from the beginning of `text`, like 8, 64K or 1G (units of 2^10 to 2^40,
 * T). Returns where the number ends. Returns NULL if there is none, or if it is 0. */
const char *tool_read_bytes(const char *text, size_t *out);

/* An option of a long name that sets a member of a struct. */
enum tool_slot { IN_INT, IN_LONG, IN_SIZE, IN_DOUBLE, IN_TEXT };
struct tool_option {
	const char *option;
	enum tool_slot slot;
	size_t offset; /* of the member */
	long min, max; /* of integers */
};

/* Puts `value` into the member of *out. If it is not valid, prints a message and leaves the
 * process. */
void tool_parse_field(const char *tool, const struct tool_option *field, const char *value,
		      void *out);

/* Replaces this process by ringrun, which starts `nranks` of it with the same arguments. 0 ranks
 * mean one for each core, at least 2. `bind` is the value of ringrun's --bind: "core" for a tool
 * that measures. Returns only on failure: an exit status, after a message. */
int tool_become_ringrun(const char *tool, int argc, char **argv, int nranks, char *bind);

#endif
