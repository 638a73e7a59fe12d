/* Rendezvous: how ranks that know nothing but a meeting point find each other. One process serves it: the maker of
 * the id, or rank 0 where a launcher's environment says where to meet (job.h). Every rank connects, shows the
 * secret, says who it is, and gets the table of all ranks when the last has come. After that the point is closed
 * and the ranks talk to each other directly (lifeline.h). */
#ifndef COMM_BOOTSTRAP_BOOT_H
#define COMM_BOOTSTRAP_BOOT_H

#include "comm/bootstrap/entry.h"
#include "comm/plan/ring.h"

/* The meeting point that an id names. Errors: KOLO_EINVAL (not an id). */
int ko_meeting_of_id(const struct kolo_id *id, struct ko_meeting *out);

/* Called when the meeting point has been reached, from the address `here`, before the others are told of *mine. Errors:
 * end the joining. */
typedef int ko_boot_reached_fn(void *arg, const union ko_net *here, struct ko_entry *mine);

/* Joins the meeting point, which is served first if that is this rank's part, and fills table[0..nranks) by rank;
 * `reached` is called with arg where that is a TCP one. Blocks until all have joined or timeout_ms have passed (0:
 * never). Errors: KOLO_EINVAL (ranks that contradict each other), KOLO_EUNREACH (nobody serves it, the port is taken), KOLO_ETIMEDOUT (names the missing), KOLO_EPEER,
 * KOLO_ENOTSUP (another version), KOLO_ESYS. */
int ko_boot_join(const struct ko_meeting *m, struct ko_entry *mine, int timeout_ms,
		 ko_boot_reached_fn *reached, void *arg, struct ko_entry *table);

/* The ring of the ranks of a table, by the hosts where they run. The caller frees it. Takes time n log n. Errors: KOLO_ENOMEM. */
int ko_boot_ring(const struct ko_entry *table, int nranks, struct ko_ring *out);

#endif
