/* What happens when ranks die, stop, leave or disagree, and when a link fails: the others return in
 * time, with an error that names the culprit. */
#include "comm/core/comm.h"
#include "tests/lib/t.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Killed and stopped ---------------------------------------------------------------------- */

struct accident {
	int victim, sig;
	size_t n;      /* floats */
	int timeout_s; /* 0: default */
	int within_ms; /* the others have returned */
	bool pairwise; /* in messages between all pairs, in the order of the tree */
	struct scene {
		_Atomic int started;  /* ranks that have done one operation */
		_Atomic int64_t when; /* it happened */
	} * scene;                    /* shared by all */
};

static void reduce_until_it_fails(struct t_rank *r)
{
	struct accident *a = r->arg;
	struct kolo_comm *c = t_comm_with(
		r, (struct kolo_comm_attr){ .timeout_s = a->timeout_s,
					    .order = a->pairwise ? "tree" : NULL,
					    .algorithm = a->pairwise ? "pairwise" : NULL });
	float *x = calloc(a->n, sizeof(*x));
	char name[32];
	int64_t now;
	int rc;

	CHECK(x != NULL);
	memset(x, 0, a->n * sizeof(*x));
	rc = kolo_all_reduce(c, x, x, a->n, KOLO_F32, KOLO_SUM, NULL);
	a->scene->started++;
	while (rc == 0)
		rc = kolo_all_reduce(c, x, x, a->n, KOLO_F32, KOLO_SUM, NULL);
	now = t_now_ms();
	snprintf(name, sizeof(name), "rank %d (pid", a->victim);
	CHECK(r->rank == a->victim || strstr(kolo_last_error(), name) == kolo_last_error());
	CHECK(r->rank == a->victim || rc == (a->sig == SIGKILL ? KOLO_EPEER : KOLO_ETIMEDOUT));
	CHECK(r->rank == a->victim || now - a->scene->when < a->within_ms);
	CHECK(kolo_comm_status(c) == rc);
	kolo_comm_destroy(c);
	free(x);
}

/* In the middle of the operations: `after_ms` after the first one. Returns how many milliseconds
 * later the last process had ended. */
static int have_accident(int nranks, struct accident a, int after_ms)
{
	int pids[T_MAX_RANKS], took;

	a.scene = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(a.scene != MAP_FAILED);
	t_start(nranks, reduce_until_it_fails, &a, pids);
	while (a.scene->started < nranks)
		usleep(1000);
	usleep((unsigned)after_ms * 1000);
	a.scene->when = t_now_ms();
	kill(pids[a.victim], a.sig);
	if (a.sig == SIGSTOP) { /* the others end; then it learns that it was given up */
		usleep((unsigned)a.within_ms * 1000);
		kill(pids[a.victim], SIGCONT);
	}
	t_wait(nranks, pids, a.sig == SIGKILL ? a.victim : -1);
	took = (int)(t_now_ms() - a.scene->when);
	munmap(a.scene, 4096);
	return took;
}

/* T_KILLS=50 T_KILL_MIB=128 is the long version; the default is quicker. */
static int setting(const char *name, int preset)
{
	return getenv(name) ? atoi(getenv(name)) : preset;
}

static void a_killed_rank_is_named_by_all_others_within_2_s(void **state)
{
	int kills = setting("T_KILLS", t_is_slow() ? 4 : 12);
	size_t n = (size_t)setting("T_KILL_MIB", 16) << 18;
	uint64_t seed = (uint64_t)getpid();
	int slowest = 0;

	(void)state;
	for (int i = 0; i < kills; i++) {
		struct accident a = { .victim = i % 4,
				      .sig = SIGKILL,
				      .n = n,
				      .within_ms = 2000,
				      .pairwise = i / 4 % 2 };

		int took = have_accident(4, a, (int)(t_random(&seed) % 300));

		slowest = took > slowest ? took : slowest;
	}
	printf("# %d ranks killed; the others had ended at most %d ms later\n", kills, slowest);
	fflush(stdout);
}

static void a_rank_killed_between_small_operations_is_named(void **state)
{
	struct accident a = { .sig = SIGKILL, .n = 3, .within_ms = 2000 };

	(void)state;
	for (int i = 0; i < 6; i++) {
		a.victim = i % 3;
		a.pairwise = i / 3;
		have_accident(3, a, 50);
	}
}

/* On the board root waits for ranks that it has no lifeline to, and those who have one wait for
 * nobody. */
static void reduce_without_2(struct t_rank *r)
{
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = 20, .algorithm = "board" });
	int x = 1, rc;
	int64_t begin;

	CHECK(kolo_barrier(c, NULL) == 0);
	if (r->rank == 2)
		raise(SIGKILL);
	begin = t_now_ms();
	rc = kolo_reduce(c, &x, &x, 1, KOLO_I32, KOLO_SUM, 5, NULL);
	CHECK(rc == KOLO_EPEER || (rc == 0 && r->rank != 5));
	CHECK(rc == 0 || strstr(kolo_last_error(), "rank 2 (pid"));
	CHECK(t_now_ms() - begin < 2000);
	if (rc == 0 && r->rank != 5)
		usleep(1500000); /* stays, and does not look around */
	kolo_comm_destroy(c);
}

static void a_dead_rank_without_a_lifeline_is_named_too(void **state)
{
	int pids[6];

	(void)state;
	t_start(6, reduce_without_2, NULL, pids);
	t_wait(6, pids, 2);
}

static void a_stopped_rank_is_named_by_all_others_after_the_timeout(void **state)
{
	struct accident a = { .sig = SIGSTOP, .n = 1 << 20, .timeout_s = 2, .within_ms = 4000 };

	(void)state;
	for (a.victim = 0; a.victim < 4; a.victim += 2) {
		a.pairwise = a.victim == 2;
		have_accident(4, a, 50);
	}
}

/* Rank 0 is late, rank 2 is stopped: those who wait for rank 0 name rank 2. */
static void reduce_late_and_stopped(struct t_rank *r)
{
	_Atomic int *ready = r->arg;
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = 2 });
	int x = 1, rc;

	CHECK(kolo_barrier(c, NULL) == 0);
	++*ready;
	if (r->rank == 2)
		pause();
	if (r->rank == 0)
		usleep(4000000);
	rc = kolo_all_reduce(c, &x, &x, 1, KOLO_I32, KOLO_SUM, NULL);
	CHECK(rc == KOLO_ETIMEDOUT && strncmp(kolo_last_error(), "rank 2 (pid", 11) == 0);
	kolo_comm_destroy(c);
}

static void a_stopped_rank_is_named_rather_than_a_late_one(void **state)
{
	_Atomic int *ready =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int pids[3];

	(void)state;
	CHECK(ready != MAP_FAILED);
	t_start(3, reduce_late_and_stopped, ready, pids);
	while (*ready < 3)
		usleep(1000);
	kill(pids[2], SIGSTOP);
	t_wait(2, pids, -1);
	kill(pids[2], SIGKILL);
	t_wait(1, pids + 2, 0);
	munmap(ready, 4096);
}

static void late_by_a_second(struct t_rank *r)
{
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = 2 });

	CHECK(kolo_barrier(c, NULL) == 0);
	if (r->rank == 0)
		usleep(1500000); /* less than the timeout */
	CHECK(kolo_barrier(c, NULL) == 0);
	kolo_comm_destroy(c);
}

static void a_job_that_is_paused_as_a_whole_goes_on(void **state)
{
	int pids[3];

	(void)state;
	t_start(3, late_by_a_second, NULL, pids);
	usleep(500000);
	for (int i = 0; i < 3; i++)
		kill(pids[i], SIGSTOP);
	usleep(3000000);
	for (int i = 2; i >= 0; i--)
		kill(pids[i], SIGCONT);
	t_wait(3, pids, -1);
}

static void many_ahead(struct t_rank *r)
{
	struct kolo_comm *c =
		t_comm_with(r, (struct kolo_comm_attr){ .nslots = 64, .slot_len = 4096 });
	int x = 0, rc = 0;

	for (int i = 0; rc == 0 && i < 40; i++) {
		if (r->rank == 1 && i == 0)
			usleep(200000);
		rc = kolo_broadcast(c, &x, &x, r->rank == 1 && i == 3 ? 0 : 1, KOLO_I32, 0, NULL);
	}
	for (int i = 0; rc == 0 && i < 3; i++)
		rc = kolo_barrier(c, NULL);
	CHECK(rc == KOLO_EMISMATCH && strstr(kolo_last_error(), "n=1") &&
	      strstr(kolo_last_error(), "n=0"));
	kolo_comm_destroy(c);
}

static void both_sides_are_known_of_operations_long_gone(void **state)
{
	(void)state;
	t_processes(2, many_ahead, NULL);
}

/* ---- Not there ------------------------------------------------------------------------------- */

static void stays_away(struct t_rank *r)
{
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = 3 });

	CHECK(kolo_barrier(c, NULL) == 0);
	if (r->rank == 2) {
		usleep(4500000); /* computes */
		CHECK(kolo_barrier(c, NULL) == KOLO_ETIMEDOUT);
	} else {
		CHECK(kolo_barrier(c, NULL) == KOLO_ETIMEDOUT);
	}
	CHECK(strstr(kolo_last_error(), "rank 2 (pid") == kolo_last_error());
	CHECK(strstr(kolo_last_error(), "in no operation since it finished #1") != NULL);
	kolo_comm_destroy(c);
}

static void a_rank_that_does_not_come_is_named_after_the_timeout(void **state)
{
	(void)state;
	t_processes(5, stays_away, NULL);
}

static void leaves(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);

	CHECK(kolo_barrier(c, NULL) == 0);
	if (r->rank != 1) {
		CHECK(kolo_barrier(c, NULL) == KOLO_EPEER);
		CHECK(strstr(kolo_last_error(), "rank 1 (pid") == kolo_last_error());
		CHECK(strstr(kolo_last_error(), "left") != NULL);
	}
	kolo_comm_destroy(c);
	if (r->rank == 1)
		usleep(500000); /* the process lives on: it is the goodbye that they heard */
}

static void a_rank_that_leaves_early_is_named(void **state)
{
	(void)state;
	t_processes(4, leaves, NULL);
}

static void leaves_when_done(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	char x[20000] = { 0 };

	/* The root is done first and goes; its data stays. */
	usleep(r->rank == 0 ? 0 : 100000);
	CHECK(kolo_broadcast(c, x, x, 4000 * 3, KOLO_U8, 0, NULL) == 0);
	if (r->rank == 0)
		_exit(0); /* without a goodbye, even */
	kolo_comm_destroy(c);
}

static void a_rank_that_dies_after_its_part_harms_nobody(void **state)
{
	(void)state;
	t_processes(3, leaves_when_done, NULL);
}

static void forks_and_dies(struct t_rank *r)
{
	struct kolo_comm *c = t_comm(r);
	int64_t before = t_now_ms();

	if (r->rank == 1) {
		if (fork() == 0) {
			sleep(3); /* holds a copy of every socket */
			_exit(0);
		}
		_exit(0);
	}
	CHECK(kolo_barrier(c, NULL) == KOLO_EPEER && strstr(kolo_last_error(), "rank 1") != NULL);
	CHECK(t_now_ms() - before < 2000);
	kolo_comm_destroy(c);
}

static void a_dead_ranks_child_does_not_keep_it_alive(void **state)
{
	(void)state;
	t_processes(3, forks_and_dies, NULL);
}

/* ---- Disagreement ---------------------------------------------------------------------------- */

struct dispute {
	const char *what, *mine, *theirs; /* texts that the error has */
	int (*usual)(struct kolo_comm *c, void *x);
	int (*odd)(struct kolo_comm *c, void *x); /* what rank 1 calls */
};

static int small_sum(struct kolo_comm *c, void *x)
{
	return kolo_all_reduce(c, x, x, 10, KOLO_F32, KOLO_SUM, NULL);
}

static int small_sum_of_11(struct kolo_comm *c, void *x)
{
	return kolo_all_reduce(c, x, x, 11, KOLO_F32, KOLO_SUM, NULL);
}

static int small_max(struct kolo_comm *c, void *x)
{
	return kolo_all_reduce(c, x, x, 10, KOLO_F32, KOLO_MAX, NULL);
}

static int small_sum_of_i32(struct kolo_comm *c, void *x)
{
	return kolo_all_reduce(c, x, x, 10, KOLO_I32, KOLO_SUM, NULL);
}

static int large_sum(struct kolo_comm *c, void *x)
{
	return kolo_all_reduce(c, x, x, 1000000, KOLO_F32, KOLO_SUM, NULL);
}

static int large_sum_plus_1(struct kolo_comm *c, void *x)
{
	return kolo_all_reduce(c, x, x, 1000001, KOLO_F32, KOLO_SUM, NULL);
}

static int barrier(struct kolo_comm *c, void *x)
{
	(void)x;
	return kolo_barrier(c, NULL);
}

static int from_0(struct kolo_comm *c, void *x)
{
	return kolo_broadcast(c, x, x, 10, KOLO_F32, 0, NULL);
}

static int from_1(struct kolo_comm *c, void *x)
{
	return kolo_broadcast(c, x, x, 10, KOLO_F32, 1, NULL);
}

/* Round the ring, and all of it fits into slots: root does not wait. */
static int two_slots_from_1(struct kolo_comm *c, void *x)
{
	return kolo_broadcast(c, x, x, 100000, KOLO_F32, 1, NULL);
}

static int large_from_0(struct kolo_comm *c, void *x)
{
	return kolo_broadcast(c, x, x, 1000000, KOLO_F32, 0, NULL);
}

static int nothing_from_0(struct kolo_comm *c, void *x)
{
	return kolo_broadcast(c, x, x, 0, KOLO_F32, 0, NULL);
}

static int large_to_1(struct kolo_comm *c, void *x)
{
	return kolo_reduce(c, x, x, 1000000, KOLO_F32, KOLO_SUM, 1, NULL);
}

static const struct dispute disputes[] = {
	{ "count, small", "n=10", "n=11", small_sum, small_sum_of_11 },
	{ "count, large", "n=1000000", "n=1000001", large_sum, large_sum_plus_1 },
	{ "small and large", "n=10,", "n=1000000", small_sum, large_sum },
	{ "op", "sum", "max", small_sum, small_max },
	{ "type", "f32", "i32", small_sum, small_sum_of_i32 },
	{ "root", "root 0", "root 1", from_0, from_1 },
	{ "count of a broadcast", "n=1000000", "n=0", large_from_0, nothing_from_0 },
	{ "board and ring, nobody waits", "root 0", "root 1", from_0, two_slots_from_1 },
	{ "collective, small", "all_reduce", "barrier", small_sum, barrier },
	{ "collective, large", "all_reduce", "reduce", large_sum, large_to_1 },
	{ "broadcast and barrier", "broadcast", "barrier", from_0, barrier },
	{ "large broadcast and all_reduce", "broadcast", "all_reduce", large_from_0, large_sum },
};

static void disagree(struct t_rank *r)
{
	const struct dispute *d = r->arg;
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = 20 });
	float *x = calloc(1000001, sizeof(*x));
	int rc;

	CHECK(x != NULL);
	/* A rank that is slow to leave the barrier may learn there already that the others have
	 * fallen out. */
	rc = kolo_barrier(c, NULL);
	if (rc == 0)
		rc = r->rank == 1 ? d->odd(c, x) : d->usual(c, x);
	/* Who had done its part learns it at a later call, as soon as it needs the others. */
	for (int i = 0; rc == 0 && i < 3; i++)
		rc = kolo_barrier(c, NULL);
	CHECK(rc == KOLO_EMISMATCH);
	CHECK(strstr(kolo_last_error(), d->mine) && strstr(kolo_last_error(), d->theirs));
	CHECK(strstr(kolo_last_error(), "rank 1 (pid") != NULL);
	kolo_comm_destroy(c);
	free(x);
}

static void ranks_that_disagree_are_told_both_sides(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(disputes); i++) {
		printf("# disagreement about: %s\n", disputes[i].what);
		fflush(stdout);
		for (int n = 2; n <= 4; n++)
			t_processes(n, disagree, (void *)&disputes[i]);
	}
}

/* ---- A link that fails ----------------------------------------------------------------------- */

/* A link around a link: the call number `fail_at` fails (or loses bytes), others are delayed now
 * and then. */
struct faulty {
	struct ko_link link;
	struct ko_link *inner;
	long calls, fail_at;
	bool truncates; /* a slot, rather than failing */
};

static int meddle(struct ko_link *link)
{
	struct faulty *f = (struct faulty *)link;

	if (++f->calls == f->fail_at && !f->truncates)
		return ko_fail(KOLO_ESYS, "injected at call %ld", f->calls);
	if (f->calls % 5 == 0)
		usleep(200);
	return 0;
}

static int faulty_acquire(struct ko_link *link, struct ko_slot *out)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;
	int rc = meddle(link);

	return rc < 0 ? rc : inner->ops->acquire(inner, out);
}

static int faulty_commit(struct ko_link *link, const struct ko_slot *slot)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;
	int rc = meddle(link);

	struct ko_slot sent = *slot;

	if (((struct faulty *)link)->truncates && slot->len > 4)
		sent.len -= 4;
	return rc < 0 ? rc : inner->ops->commit(inner, &sent);
}

static int faulty_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;
	int rc = meddle(link);

	return rc < 0 ? rc : inner->ops->peek(inner, into, len, out);
}

static int faulty_release(struct ko_link *link)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;
	int rc = meddle(link);

	return rc < 0 ? rc : inner->ops->release(inner);
}

static int faulty_progress(struct ko_link *link)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;

	return inner->ops->progress(inner);
}

static int faulty_drain(struct ko_link *link)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;
	int rc = meddle(link);

	return rc < 0 ? rc : inner->ops->drain(inner);
}

static void faulty_close(struct ko_link *link, bool obsolete)
{
	struct ko_link *inner = ((struct faulty *)link)->inner;

	inner->ops->close(inner, obsolete);
}

static const struct ko_link_ops faulty_ops = {
	.name = "faulty",
	.acquire = faulty_acquire,
	.commit = faulty_commit,
	.peek = faulty_peek,
	.release = faulty_release,
	.progress = faulty_progress,
	.drain = faulty_drain,
	.close = faulty_close,
};

struct injection {
	bool receiving;
	long fail_at;
	bool truncates;
};

static void run_over_faulty_link(struct t_rank *r)
{
	const struct injection *i = r->arg;
	struct kolo_comm *c = t_comm_with(r, (struct kolo_comm_attr){ .slot_len = 4096,
								      .timeout_s = T_PATIENCE / 2,
								      .algorithm = "ring" });
	struct ko_link **place = i->receiving ? &c->edges.from : &c->edges.to;
	struct faulty f = { .link = { .ops = &faulty_ops },
			    .inner = *place,
			    .fail_at = i->fail_at,
			    .truncates = i->truncates };
	int x[3000], rc;

	for (int k = 0; k < 3000; k++)
		x[k] = k;
	if (r->rank == 1)
		*place = &f.link;
	rc = kolo_all_reduce(c, x, x, 3000, KOLO_I32, KOLO_SUM, NULL);
	if (rc == 0)
		rc = kolo_barrier(c, NULL);
	CHECK(rc == 0 || (rc == KOLO_ESYS &&
			  strstr(kolo_last_error(), i->truncates ? "bytes where" : "injected")));
	/* Everyone or nobody: the barrier after it sees to that. */
	for (int k = 0; rc == 0 && k < 3000; k++)
		CHECK(x[k] == 3 * k);
	CHECK(kolo_comm_status(c) == rc);
	CHECK((rc == 0) == (i->fail_at > 1000));
	kolo_comm_destroy(c);
}

static void a_link_that_fails_at_any_call_fails_all_ranks(void **state)
{
	(void)state;
	for (int receiving = 0; receiving <= 1; receiving++) {
		for (long k = 1; k <= 8; k++) {
			struct injection i = { receiving, k, false };

			t_threads(3, run_over_faulty_link, &i);
		}
	}
}

static void a_link_that_loses_bytes_fails_all_ranks(void **state)
{
	struct injection i = { .truncates = true };

	(void)state;
	t_threads(3, run_over_faulty_link, &i);
}

static void a_link_that_delays_changes_nothing(void **state)
{
	struct injection never = { false, 1000000, false };

	(void)state;
	t_threads(3, run_over_faulty_link, &never);
	never.receiving = true;
	t_threads(3, run_over_faulty_link, &never);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_killed_rank_is_named_by_all_others_within_2_s),
	cmocka_unit_test(a_rank_killed_between_small_operations_is_named),
	cmocka_unit_test(a_dead_rank_without_a_lifeline_is_named_too),
	cmocka_unit_test(a_stopped_rank_is_named_by_all_others_after_the_timeout),
	cmocka_unit_test(a_stopped_rank_is_named_rather_than_a_late_one),
	cmocka_unit_test(a_job_that_is_paused_as_a_whole_goes_on),
	cmocka_unit_test(both_sides_are_known_of_operations_long_gone),
	cmocka_unit_test(a_rank_that_does_not_come_is_named_after_the_timeout),
	cmocka_unit_test(a_rank_that_leaves_early_is_named),
	cmocka_unit_test(a_rank_that_dies_after_its_part_harms_nobody),
	cmocka_unit_test(a_dead_ranks_child_does_not_keep_it_alive),
	cmocka_unit_test(ranks_that_disagree_are_told_both_sides),
	cmocka_unit_test(a_link_that_fails_at_any_call_fails_all_ranks),
	cmocka_unit_test(a_link_that_loses_bytes_fails_all_ranks),
	cmocka_unit_test(a_link_that_delays_changes_nothing),
};

T_MAIN(tests)
