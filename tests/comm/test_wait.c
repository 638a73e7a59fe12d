/* Who sleeps over another rank is woken by it, and by nobody else. */
#include "tests/lib/t.h"
#include "comm/health/roster.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NRANKS = 3, TIMES = 20, MOST_US = 900000 };

/* Rank 1 waits for rank 2, over and over. */
static void *sleep_often(void *arg)
{
	struct ko_roster *roster = arg;

	ko_post_wait_for(&roster->post[1], 2);
	for (int k = 0; k < TIMES; k++)
		ko_roster_sleep(roster, 1, MOST_US);
	return NULL;
}

/* Nobody is asked to be quick: to sleep the time out just once in ten would already take longer. */
static void a_sleeper_is_woken_by_the_one_it_waits_for(void **state)
{
	size_t len = (ko_roster_len(NRANKS) + 63) / 64 * 64;
	struct ko_roster *roster = aligned_alloc(64, len);
	int64_t begin = t_now_ms();
	uint32_t bell = 0;
	pthread_t sleeper;

	(void)state;
	CHECK(roster);
	memset(roster, 0, len);
	CHECK(pthread_create(&sleeper, NULL, sleep_often, roster) == 0);
	for (int k = 0; k < TIMES; k++) {
		while (atomic_load(&roster->sleepers) == 0 ||
		       atomic_load(&roster->post[1].bell) == bell) {
			if (t_now_ms() - begin > TIMES * MOST_US / 1000 / 2)
				break;
			usleep(1000);
			ko_roster_ring(roster, 0, NRANKS); /* another one, whom nobody waits for */
			CHECK(atomic_load(&roster->post[1].bell) == bell);
			ko_roster_ring(roster, 2, NRANKS);
			if (atomic_load(&roster->post[1].bell) != bell)
				break;
		}
		bell = atomic_load(&roster->post[1].bell);
	}
	pthread_join(sleeper, NULL);
	CHECK(t_now_ms() - begin < TIMES * MOST_US / 1000 / 2);
	CHECK(atomic_load(&roster->sleepers) == 0);
	free(roster);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_sleeper_is_woken_by_the_one_it_waits_for),
};

T_MAIN(tests)
