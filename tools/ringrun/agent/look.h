/* Looks at this host for --check: what a job would find, and which of the other hosts it reaches.
 */
#ifndef TOOLS_RINGRUN_AGENT_LOOK_H
#define TOOLS_RINGRUN_AGENT_LOOK_H

#include "tools/ringrun/base/facts.h"
#include "tools/ringrun/base/job.h"

/* Fills *out, and opens a port that the other hosts try to reach. `asked_us` is the first ringrun's
 * clock. */
void look_at_host(const struct job *job, int64_t asked_us, struct facts *out);

/* Tries all of `places` at once, each "HOST ADDRESS PORT". Appends a text for each: its number, and
 * 0 or errno. Blocks for at most 2 s. */
void look_for_others(char *const *places, struct bytes *out);

/* Is nobody listening on this port of this host? 0 stands for any; then *port becomes one. */
bool look_for_port(int *port);

#endif
