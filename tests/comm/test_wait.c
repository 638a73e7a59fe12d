/* Who sleeps over another rank is woken by it, and by nobody else. A wait tries less often where
 * others poll on its core. */
#include "tests/lib/t.h"
#include "comm/core/wait.h"
#include "comm/health/bells.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NRANKS = 3, TIMES = 20, MOST_US = 900000 };

/* Rank 1 waits for rank 2, over and over. */
static void *sleep_often(void *arg)
{
	for (int k = 0; k < TIMES; k++)
		ko_bells_sleep(arg, 1, 2, false, MOST_US);
	return NULL;
}

/* Nobody is asked to be quick: to sleep the time out just once in ten would already take longer. */
static void a_sleeper_is_woken_by_the_one_it_waits_for(void **state)
{
	size_t len = ko_bells_len(NRANKS);
	struct ko_bells *bells = aligned_alloc(64, len);
	int64_t begin = t_now_ms();
	uint32_t rung = 0;
	pthread_t sleeper;

	(void)state;
	CHECK(bells);
	memset(bells, 0, len);
	CHECK(pthread_create(&sleeper, NULL, sleep_often, bells) == 0);
	for (int k = 0; k < TIMES; k++) {
		while (atomic_load(&bells->sleepers) == 0 ||
		       atomic_load(&bells->at[1].rung) == rung) {
			if (t_now_ms() - begin > TIMES * MOST_US / 1000 / 2)
				break;
			usleep(1000);
			ko_bells_ring(bells, 0, NRANKS); /* another one, whom nobody waits for */
			CHECK(atomic_load(&bells->at[1].rung) == rung);
			ko_bells_ring(bells, 2, NRANKS);
			if (atomic_load(&bells->at[1].rung) != rung)
				break;
		}
		rung = atomic_load(&bells->at[1].rung);
	}
	pthread_join(sleeper, NULL);
	CHECK(t_now_ms() - begin < TIMES * MOST_US / 1000 / 2);
	CHECK(atomic_load(&bells->sleepers) == 0);
	free(bells);
}

/* Yields in turn, all of the same length. */
static int spins_after(int yields, int spins, int most, int64_t yield_ns)
{
	while (yields-- > 0)
		spins = ko_wait_spins(spins, most, yield_ns);
	return spins;
}

static void waits_spin_where_nobody_else_polls(void **state)
{
	enum { MOST = 100, ALONE_NS = 300, SHARED_NS = 20000, TAKEN_NS = 3000000 };

	(void)state;
	CHECK(spins_after(7, 0, MOST, ALONE_NS) == MOST);
	CHECK(spins_after(100, MOST, MOST, ALONE_NS) == MOST);
	CHECK(spins_after(1, MOST, MOST, SHARED_NS) == MOST / 2);
	CHECK(spins_after(7, MOST, MOST, SHARED_NS) == 0);
	CHECK(spins_after(7, 0, MOST, TAKEN_NS) == MOST);
	/* more ranks on this host than processors */
	CHECK(spins_after(7, 0, 0, ALONE_NS) == 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_sleeper_is_woken_by_the_one_it_waits_for),
	cmocka_unit_test(waits_spin_where_nobody_else_polls),
};

T_MAIN(tests)
