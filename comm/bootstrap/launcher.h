/* The job that the environment describes: which rank this process is, and where the ranks meet. */
#ifndef COMM_BOOTSTRAP_LAUNCHER_H
#define COMM_BOOTSTRAP_LAUNCHER_H

#include "comm/base/log.h"
#include "comm/bootstrap/entry.h"

/* Reads rank, nranks and the meeting point from the environment.
 *
 * Errors: KOLO_EINVAL if there is no job, half a job, or two jobs that contradict each other; the
 * text lists what was found and what is missing. KOLO_ENOTSUP if the ranks are on several hosts and
 * the launcher gives no address to meet at. */
int ko_launcher_read(int *rank, int *nranks, const struct ko_log *log, struct ko_meeting *out);

#endif
