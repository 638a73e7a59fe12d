/* Counts forks (ko_generation). */
#include "comm/base/fork.h"

#include <pthread.h>

unsigned ko_generation;

static void count_fork(void)
{
	ko_generation++;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}
