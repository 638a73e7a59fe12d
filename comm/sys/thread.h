/* Threads of the library's own. */
#ifndef COMM_SYS_THREAD_H
#define COMM_SYS_THREAD_H

#include <pthread.h>

/* Starts run(arg) on a thread that gets no signals but those that it causes itself: others are for the program's own threads.
 * 0, or errno. */
int ko_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
