/* The library's own threads. */
#ifndef COMM_SYS_THREAD_H
#define COMM_SYS_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts run(arg) on a new thread. It gets only the signals that it causes itself (SIGSEGV, SIGBUS,
 * SIGFPE, SIGILL). All others are for the program's threads. Returns 0 or an errno. */
int ko_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* Did ko_thread_start start the calling thread? */
bool ko_thread_is_own(void);

#endif
