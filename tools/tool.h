/* What ringbench and ringinfo have in common: exit statuses, numbers on the command line, starting as a job. */
#ifndef TOOL_H
#define TOOL_H

enum exit_code { EXIT_GOOD, EXIT_WRONG, EXIT_USAGE, EXIT_FAILED };

/* What --version prints; leaves the process. */
_Noreturn void print_version(const char *tool);

/* `value` as a number from min to max; leaves the process with a message where it is something else. */
long parse_number(const char *tool, const char *option, const char *value, long min, long max);

/* Replaces this process by ringrun, which starts `nranks` of it with the same arguments; 0: one for each core, at
 * least 2. Returns an exit status, with the reason printed, where that can't be done. */
int become_ringrun(const char *tool, int argc, char **argv, int nranks);

#endif
