/* A rank of perf/comm/start.py: joins, and prints when, in us of the clock that all hosts of one
 * machine share. */
#include "kolo/kolo.h"

#include <stdio.h>
#include <time.h>

int main(void)
{
	struct kolo_comm *comm;
	struct timespec t;

	if (kolo_comm_create(NULL, &comm) < 0) {
		fprintf(stderr, "join: %s\n", kolo_last_error());
		return 1;
	}
	clock_gettime(CLOCK_REALTIME, &t);
	printf("joined %lld\n", (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
	kolo_comm_destroy(comm);
	return 0;
}
