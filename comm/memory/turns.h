/* A turn on the board: each rank that has something to give writes it into its cell; who needs it waits for it. One hop.
 *
 * A cell is written again once all ranks have finished the operation that it was last written for: most often that
 * follows from an operation in which everybody read everybody's cell; otherwise the roster says it. */
#ifndef COMM_MEMORY_TURNS_H
#define COMM_MEMORY_TURNS_H

#include "comm/core/run.h"

/* Writes `len` bytes, at most ko_board_room, into this rank's cell; src may be NULL where len is 0. Blocks while the cell
 * is in use. Errors here and below: those of ko_wait. */
int ko_turn_give(struct ko_run *run, const void *src, size_t len);

/* The same of two parts, one behind the other. */
int ko_turn_give_two(struct ko_run *run, const void *src, size_t len, const void *more, size_t more_len);

/* Waits for the cell of `rank`. */
int ko_turn_wait(struct ko_run *run, int rank);

/* Waits for everyone's cell. */
int ko_turn_wait_all(struct ko_run *run);

/* Waits until `rank` has finished the waiter's operation. */
int ko_turn_wait_finished(const struct ko_waiter *waiter, int rank);

/* The turn is over for this rank: what it waited for is not to be read any more. */
void ko_turn_end(struct ko_run *run);

#endif
