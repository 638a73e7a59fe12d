/* The job that the environment describes: which rank this process is, and where the ranks meet. */
#ifndef COMM_BOOTSTRAP_LAUNCHER_H
#define COMM_BOOTSTRAP_LAUNCHER_H

#include "comm/base/log.h"
#include "comm/bootstrap/entry.h"

/* rank, nranks and the meeting point. Errors: KOLO_EINVAL (no job, half a job, two jobs that contradict each other;
 * the text lists what was found and what is missing), KOLO_ENOTSUP (ranks on several hosts). */
int ko_launcher_read(int *rank, int *nranks, const struct ko_log *log, struct ko_meeting *out);

#endif
