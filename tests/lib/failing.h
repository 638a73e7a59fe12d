/* Allocations, mappings, sockets and threads that fail when they are told to. The linker puts
 * failing.c's versions in front of the system's (--wrap; tests.mk has the list). */
#ifndef TESTS_LIB_FAILING_H
#define TESTS_LIB_FAILING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

extern _Thread_local long
	t_countdown; /* of this thread, a rank: at 1 the next call fails; 0: none does */
extern _Atomic long t_others_countdown; /* likewise of threads that are no ranks: an id's */
extern _Thread_local bool t_is_rank;
extern _Atomic long t_live; /* blocks allocated and not freed */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void __wrap_free(void *p);

#endif
