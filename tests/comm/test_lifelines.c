/* What a rank that is ahead sends while a communicator is made stays until it is waited for. */
#include "comm/base/clock.h"
#include "comm/health/lifeline.h"
#include "tests/lib/t.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { NRANKS = 2, FIRST = 11, SECOND = 12, LOOKS = 20 };

struct scene {
	struct ko_entry table[NRANKS];
	pthread_barrier_t all;
};

static struct ko_lifelines *join(struct scene *s, int rank)
{
	static const struct ko_log silent;
	static const struct ko_progress none;
	struct ko_lifelines *ll;
	int other = 1 - rank;

	s->table[rank] = (struct ko_entry){ .rank = rank, .nranks = NRANKS, .pid = getpid() };
	CHECK(ko_lifelines_open(rank, NRANKS, &silent, &none, NULL, &s->table[rank], &ll) == 0);
	pthread_barrier_wait(&s->all);
	CHECK(ko_lifelines_connect(ll, s->table, &other, 1, ko_now_ms() + 5000) == 0);
	return ll;
}

static void *send_two_addresses(void *arg)
{
	struct scene *s = arg;
	struct ko_lifelines *ll = join(s, 1);

	for (int value = FIRST; value <= SECOND; value++) {
		struct ko_msg msg = { .type = KO_MSG_ADDRESS, .value = value };

		CHECK(ko_lifelines_send(ll, 0, &msg, -1) == 0);
	}
	pthread_barrier_wait(&s->all); /* the other one has taken them */
	ko_lifelines_close(ll, 0, "");
	return NULL;
}

static void an_address_that_comes_early_stays(void **state)
{
	struct scene s = { 0 };
	struct ko_lifelines *ll;
	pthread_t ahead;
	struct ko_msg msg;
	int fd, k = 0;

	(void)state;
	pthread_barrier_init(&s.all, NULL, NRANKS);
	CHECK(pthread_create(&ahead, NULL, send_two_addresses, &s) == 0);
	ll = join(&s, 0);
	/* As it does while it waits for something else. */
	for (int i = 0; i < LOOKS; i++) {
		ko_lifelines_look(ll);
		usleep(1000);
	}
	CHECK(!ko_lifelines_gone(ll, &k));
	for (int value = FIRST; value <= SECOND; value++) {
		CHECK(ko_lifelines_recv(ll, 1, KO_MSG_ADDRESS, value, ko_now_ms() + 5000, &msg,
					&fd) == 0);
		CHECK(msg.value == value && fd == -1);
	}
	pthread_barrier_wait(&s.all);
	pthread_join(ahead, NULL);
	ko_lifelines_look(ll);
	CHECK(ko_lifelines_gone(ll, &k)); /* its goodbye was behind them */
	ko_lifelines_close(ll, 0, "");
	pthread_barrier_destroy(&s.all);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(an_address_that_comes_early_stays),
};

T_MAIN(tests)
