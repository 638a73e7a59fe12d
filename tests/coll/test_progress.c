/* A rank that waits lets another library go on (struct kolo_comm_attr.progress): in operations, and
 * while communicators are made; on the thread that calls, and on no other. */
#include "tests/lib/t.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LATE_MS = 150 };

struct shared {
	_Atomic int called[2]; /* by rank */
	_Atomic int elsewhere; /* on another thread than the one that made the communicator */
	_Atomic int let_go;
};

struct other {
	struct shared *shared;
	int rank;
	pthread_t thread;
};

static void go_on(void *arg)
{
	struct other *o = arg;

	atomic_fetch_add(&o->shared->called[o->rank], 1);
	if (!pthread_equal(pthread_self(), o->thread))
		atomic_fetch_add(&o->shared->elsewhere, 1);
	if (o->rank == 0)
		atomic_store(&o->shared->let_go, 1);
}

static struct shared *share(void)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(s != MAP_FAILED);
	return s;
}

/* Rank 1 comes to each step late. It comes to the barrier only after rank 0, which waits there, has
 * let it go. */
static void be_late(struct t_rank *r)
{
	struct shared *s = r->arg;
	struct other other = { .shared = s, .rank = r->rank, .thread = pthread_self() };
	struct kolo_comm *c, *half;
	struct kolo_queue *q;
	int before;

	if (r->rank == 1)
		usleep(LATE_MS * 1000);
	c = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = T_PATIENCE / 2,
						    .progress = go_on,
						    .progress_arg = &other });
	CHECK(r->rank == 1 || atomic_load(&s->called[0]) > LATE_MS / 20);
	CHECK(kolo_barrier(c, NULL) == 0);
	if (r->rank == 1) {
		atomic_store(&s->let_go, 0);
		for (int64_t since = t_now_ms(); !atomic_load(&s->let_go); usleep(1000))
			CHECK(t_now_ms() - since < T_PATIENCE * 500);
	}
	CHECK(kolo_barrier(c, NULL) == 0);
	CHECK(kolo_comm_split(c, 0, -r->rank, &half) == 0);
	before = atomic_load(&s->called[0]);
	if (r->rank == 1)
		usleep(LATE_MS * 1000);
	CHECK(kolo_barrier(half, NULL) == 0);
	CHECK(r->rank == 1 || atomic_load(&s->called[0]) - before > LATE_MS / 20);
	/* A queue's thread is not the one that the other library knows. */
	CHECK(kolo_queue_create(&q) == 0);
	if (r->rank == 1)
		usleep(LATE_MS * 1000);
	CHECK(kolo_barrier(half, q) == 0 && kolo_queue_wait(q) == 0);
	CHECK(atomic_load(&s->elsewhere) == 0);
	kolo_queue_destroy(q);
	kolo_comm_destroy(half);
	kolo_comm_destroy(c);
}

static void another_library_goes_on_in_waits(void **state)
{
	struct shared *s = share();

	(void)state;
	t_processes(2, be_late, s);
	munmap(s, sizeof(*s));
}

static void threads_have_their_own(void **state)
{
	struct shared *s = share();

	(void)state;
	t_threads(2, be_late, s);
	munmap(s, sizeof(*s));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(another_library_goes_on_in_waits),
	cmocka_unit_test(threads_have_their_own),
};

T_MAIN(tests)
