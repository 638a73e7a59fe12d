/* How ranks that know only a meeting point find each other. One process serves the meeting point:
 * the one that made the id, or rank 0 if the environment says where to meet (launcher.h). Every
 * rank connects, shows the secret and says who it is. When the last rank has come, each gets the
 * table of all ranks. Then the meeting point is closed, and ranks talk to each other directly
 * (lifeline.h). */
#ifndef COMM_BOOTSTRAP_BOOT_H
#define COMM_BOOTSTRAP_BOOT_H

#include "comm/bootstrap/entry.h"
#include "comm/plan/ring.h"
#include "comm/plan/shape.h"
#include "comm/sys/progress.h"

/* Reads the meeting point from an id. Errors: KOLO_EINVAL: it is no id. */
int ko_meeting_of_id(const struct kolo_id *id, struct ko_meeting *out);

/* The meeting point at an address of rank 0's host: "10.0.0.7:5000", "node7:5000" or "[::1]:5000".
 * Jobs with different texts `job` don't meet. Texts of errors name it by `what` and the address.
 * Errors: KOLO_EINVAL: it is no such address. */
int ko_meeting_at(const char *what, const char *address, const char *job, struct ko_meeting *out);

/* Called when a TCP meeting point has been reached from the address `here`, before the others are
 * told of *mine. An error ends the joining. */
typedef int ko_boot_reached_fn(void *arg, const union ko_net *here, struct ko_entry *mine);

/* Joins the meeting point, and fills table[0..nranks) in the order of ranks. If this rank serves
 * the point, it starts that first. Calls `reached` with `arg` if the point is a TCP one. Blocks
 * until all ranks have joined, or for timeout_ms milliseconds (0: without limit), and calls
 * `progress` meanwhile.
 *
 * Errors:
 *   KOLO_EINVAL      ranks contradict each other
 *   KOLO_EUNREACH    nobody serves the point, or its port is taken
 *   KOLO_ETIMEDOUT   some ranks did not come; the text names them
 *   KOLO_EPEER       a rank or the server has ended
 *   KOLO_EABORTED    another thread has called kolo_id_abort
 *   KOLO_ENOTSUP     a rank uses another version of Kolo
 *   KOLO_ESYS */
int ko_boot_join(const struct ko_meeting *m, struct ko_entry *mine, int timeout_ms,
		 const struct ko_progress *progress, ko_boot_reached_fn *reached, void *arg,
		 struct ko_entry *table);

/* Makes the ring of the table's ranks, from the hosts where they run. The caller frees it with
 * ko_ring_free. Takes time n log n. Errors: KOLO_ENOMEM. */
int ko_boot_ring(const struct ko_entry *table, int nranks, struct ko_ring *out);

/* Makes the shape of the table's ranks: of the groups that they name, or else of the hosts where
 * they run. The caller frees it with ko_shape_free. Takes time n log n. Errors: KOLO_EINVAL if some
 * ranks name a group and others do not; those of ko_shape_make. */
int ko_boot_shape(const struct ko_entry *table, int nranks, struct ko_shape *out);

#endif
