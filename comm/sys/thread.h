/* The library's own threads, and how a thread waits without sleeping. */
#ifndef COMM_SYS_THREAD_H
#define COMM_SYS_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts run(arg) on a new thread. It gets only the signals that it causes itself (SIGSEGV, SIGBUS,
 * SIGFPE, SIGILL). All others are for the program's threads. Returns 0 or an errno. */
int ko_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* Did ko_thread_start start the calling thread? */
bool ko_thread_is_own(void);

/* Tells the processor that this is a loop that waits. */
static inline void ko_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* How many calls of ko_relax take about so many ns: at least 1. Processors differ; it measures
 * that, in some microseconds. */
int ko_relaxes_in(int64_t ns);

/* Gives the core to another thread that wants it. Returns for how long, in ns. */
int64_t ko_yield(void);

enum { KO_ALONE_NS = 1000 }; /* most of a yield that nobody used: it takes 200 to 400 */

#endif
