/* A turn on the board: each rank that has something to give writes it into its cell, and the ranks
 * that need it wait for it. That takes one hop.
 *
 * A cell is written again only after all ranks have finished the operation that it was written for
 * last. If all ranks have read all cells in some operation since, this is known. Otherwise the
 * roster says so.
 *
 * Cells that the same operation wrote are not waited for. If it takes several turns, their payloads
 * have the same length. Before a rank gives in turn t it must know that all have what they need of
 * turn t - 2: for instance because all ranks give in each turn, and wait for all. */
#ifndef COMM_MEMORY_TURNS_H
#define COMM_MEMORY_TURNS_H

#include "comm/core/run.h"

/* Writes `len` bytes into this rank's cell or rooms, then more_len bytes: in all at most what the
 * turn has room for (ko_board_take_rooms). src and `more` may be NULL if they have no bytes. Blocks
 * while a cell is in use. Errors of all functions here: those of ko_wait. */
int ko_turn_give(struct ko_run *run, const void *src, size_t len, const void *more,
		 size_t more_len);

/* The same in two steps. ko_turn_open blocks until this rank's cells may be written.
 * ko_turn_publish gives what was written since to ko_board_payload. */
int ko_turn_open(struct ko_run *run);
void ko_turn_publish(struct ko_run *run);

/* Waits until `rank` has written its cell. */
int ko_turn_wait(struct ko_run *run, int rank);

/* Waits until all other ranks have written their cells. */
int ko_turn_wait_all(struct ko_run *run);

/* Waits until `rank` has finished the waiter's operation. */
int ko_turn_wait_finished(const struct ko_waiter *waiter, int rank);

/* Ends the turn for this rank, which must not read the others' cells of it any more. */
void ko_turn_end(struct ko_run *run);

#endif
