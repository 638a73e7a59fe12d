/* Threads that work in host memory together. The split is static: a thread always touches the
 * memory that it touched first. Results never depend on the number of threads. */
#ifndef ZERO_BASE_THREADS_H
#define ZERO_BASE_THREADS_H

#include <pthread.h>

struct zero_threads;

/* Like pthread_create, without signals but for those that a thread causes itself: others are for
 * the program's own threads. */
int zero_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

/* n threads, the caller one of them. Where there are enough cores that the caller may use, and no
 * other process of this host has the same ones, each of the others is bound to one of its own. They
 * sleep while they have nothing to do. 0: as many as such cores, divided by `sharing`, the
 * processes of this host that have the same ones, this one included; at least 1. Errors:
 * KOLO_ENOMEM, KOLO_ESYS. */
int zero_threads_open(int n, int sharing, struct zero_threads **out);
/* NULL is allowed. */
void zero_threads_close(struct zero_threads *threads);

/* How many there are; 1 of NULL. */
int zero_threads_count(const struct zero_threads *threads);

/* Calls fn for the parts 0 to nparts - 1, each once, on the threads; the caller gets the first
 * ones. Returns when all are done. threads NULL: the caller does all. */
typedef void zero_part_fn(void *arg, int part);
void zero_threads_run(struct zero_threads *threads, int nparts, zero_part_fn *fn, void *arg);

#endif
