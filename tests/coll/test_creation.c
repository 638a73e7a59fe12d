/* Ranks that are stopped or killed while a communicator is made or split: each other rank gets an
 * error in time that names them, and no healthy rank. */
#include "tests/lib/t.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	CASES = 2000,     /* of the whole matrix: half of them kill */
	SHARE = 20,       /* 1 of so many is in the sample */
	WORKERS = 8,      /* cases at once; most of their time they wait */
	TIMEOUT_S = 2,    /* of the communicators */
	SLACK_MS = 2000,  /* after the timeout, or after a death */
	LATEST_US = 20000 /* after the ranks have begun */
};

/* Shared by the ranks of a case and the process that does the harm. */
struct scene {
	_Atomic int begun, failed; /* ranks that are about to call, that have returned an error */
	_Atomic int64_t when;      /* the harm was done */
	_Atomic int pids[T_MAX_RANKS];
};

struct harm {
	int nranks, victim, sig;
	bool split;   /* while the communicator is split; else while it is made */
	bool by_job;  /* made without an id: rank 0 serves the meeting point */
	uint64_t job; /* its name */
	const char *transport;
	int after_us;
	struct scene *scene;
};

static struct harm nth(uint64_t key)
{
	static const char *const transports[] = { "shm", "tcp" };
	uint64_t seed = key ^ t_seed() << 20;
	struct harm h = { .sig = key % 2 ? SIGKILL : SIGSTOP,
			  .split = key / 2 % 2,
			  .transport = transports[key / 4 % 2],
			  .nranks = 3 + (int)(key / 8 % 4),
			  .job = key };

	h.by_job = !h.split && key / 32 % 2;
	h.victim = (int)(t_random(&seed) % (uint64_t)h.nranks);
	h.after_us = (int)(t_random(&seed) % LATEST_US);
	return h;
}

/* Does the error say that the victim has not even joined? Then its process is not known. Rank 0 is
 * also missed if it does not serve its meeting point. */
static bool says_not_there(const struct harm *h)
{
	const char *text = kolo_last_error();
	char missing[32];

	snprintf(missing, sizeof(missing), "missing: %d.", h->victim);
	return strstr(text, missing) ||
	       (h->by_job && h->victim == 0 &&
		(strstr(text, "rank 0 did not answer") || strstr(text, "rank 0 does not answer")));
}

/* Is the error about the victim? It is the first process that the text names, or the rank that has
 * not even joined. */
static bool names_victim(const struct harm *h)
{
	const char *text = kolo_last_error(), *pid = strstr(text, "(pid ");

	if (pid)
		return atoi(pid + 5) == h->scene->pids[h->victim];
	return says_not_there(h) ||
	       (h->by_job && h->victim == 0 && strstr(text, "rank 0 ended before all"));
}

/* The environment says what a launcher would say that knows no more than the job's name. */
static void join_by_job(const struct t_rank *r, struct kolo_comm_attr *attr)
{
	const struct harm *h = r->arg;
	char text[64];

	snprintf(text, sizeof(text), "test_creation %d %" PRIu64, (int)getppid(), h->job);
	setenv("KOLO_JOB", text, 1);
	snprintf(text, sizeof(text), "%d", r->rank);
	setenv("KOLO_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", r->nranks);
	setenv("KOLO_NRANKS", text, 1);
	attr->id = NULL;
	attr->rank = attr->nranks = 0;
}

/* Makes the communicator, or splits one, and uses it until it fails. */
static int go_on_until_it_fails(struct t_rank *r, struct kolo_comm *parent, struct kolo_comm **out)
{
	const struct harm *h = r->arg;
	struct kolo_comm_attr attr = { .id = &r->id,
				       .rank = r->rank,
				       .nranks = r->nranks,
				       .timeout_s = TIMEOUT_S,
				       .transport = h->transport };
	int rc;

	if (h->by_job)
		join_by_job(r, &attr);
	rc = parent ? kolo_comm_split(parent, 0, 0, out) : kolo_comm_create(&attr, out);

	while (rc == 0)
		rc = kolo_barrier(*out, NULL);
	h->scene->failed++;
	return rc;
}

static void suffer(struct t_rank *r)
{
	const struct harm *h = r->arg;
	struct scene *s = h->scene;
	struct kolo_comm *parent = NULL, *c = NULL;
	bool died; /* after it had joined */
	int took, rc;

	if (h->split)
		parent = t_comm_with(r, (struct kolo_comm_attr){ .timeout_s = TIMEOUT_S,
								 .transport = h->transport });
	s->pids[r->rank] = getpid();
	s->begun++;
	while (s->begun < r->nranks)
		usleep(100);
	rc = go_on_until_it_fails(r, parent, &c);
	if (r->rank == h->victim)
		return;
	took = (int)(t_now_ms() - s->when);
	if (!names_victim(h))
		fprintf(stderr, "# rank %d of %d, %s over %s, rank %d got signal %d after %d us\n",
			r->rank, r->nranks,
			h->split    ? "split"
			: h->by_job ? "made by rank 0"
				    : "made",
			h->transport, h->victim, h->sig, h->after_us);
	CHECK(names_victim(h));
	died = h->sig == SIGKILL && !says_not_there(h);
	CHECK(rc == (died ? KOLO_EPEER : KOLO_ETIMEDOUT));
	CHECK(took < SLACK_MS + (died ? 0 : TIMEOUT_S * 1000));
	kolo_comm_destroy(c);
	kolo_comm_destroy(parent);
}

/* ---- A rank that gives up -------------------------------------------------------------------- */

static void *give_up(void *arg)
{
	struct t_rank *r = arg;
	const struct harm *h = r->arg;

	while (h->scene->begun < h->nranks)
		usleep(100);
	usleep((unsigned)h->after_us);
	h->scene->when = t_now_ms();
	kolo_id_abort(&r->id);
	return NULL;
}

/* The victim may be so early that it has not joined: then it is missed. Or too late: then it
 * leaves. */
static void give_up_while_joining(struct t_rank *r)
{
	const struct harm *h = r->arg;
	struct scene *s = h->scene;
	struct kolo_comm_attr attr = { .id = &r->id,
				       .rank = r->rank,
				       .nranks = r->nranks,
				       .timeout_s = r->rank == h->victim ? -1 : TIMEOUT_S,
				       .transport = h->transport };
	bool gives_up = r->rank == h->victim, missed;
	struct kolo_comm *c;
	pthread_t thread;
	int rc;

	s->pids[r->rank] = getpid();
	if (gives_up)
		CHECK(pthread_create(&thread, NULL, give_up, r) == 0);
	s->begun++;
	rc = kolo_comm_create(&attr, &c);
	if (gives_up) {
		pthread_join(thread, NULL);
		CHECK(rc == 0 ||
		      (rc == KOLO_EABORTED && strstr(kolo_last_error(), "kolo_id_abort")));
	}
	while (rc == 0 && !gives_up)
		rc = kolo_barrier(c, NULL);
	missed = rc == KOLO_ETIMEDOUT && says_not_there(h);
	CHECK(gives_up || missed || rc == KOLO_EABORTED || rc == KOLO_EPEER);
	CHECK(gives_up || names_victim(h));
	CHECK(t_now_ms() - s->when < SLACK_MS + (missed ? TIMEOUT_S * 1000 : 0));
	kolo_comm_destroy(c);
}

static void work_on_giving_up(int worker, void *arg)
{
	uint64_t cases = 0;
	int pids[T_MAX_RANKS];

	(void)arg;
	for (uint64_t key = 0; key < CASES; key += 2) {
		struct harm h = nth(key);

		if (!t_sampled(key / 2, SHARE) || cases++ % WORKERS != (uint64_t)worker)
			continue;
		h.by_job = false;
		h.scene = mmap(NULL, sizeof(*h.scene), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		CHECK(h.scene != MAP_FAILED);
		t_start(h.nranks, give_up_while_joining, &h, pids);
		t_wait(h.nranks, pids, -1);
		munmap(h.scene, sizeof(*h.scene));
	}
}

static void a_rank_may_give_up_while_ranks_join(void **state)
{
	(void)state;
	t_workers(WORKERS, work_on_giving_up, NULL);
}

/* The first time may be before the call, which that does not end. */
static void *give_up_until_it_fails(void *arg)
{
	struct t_rank *r = arg;
	struct scene *s = ((const struct harm *)r->arg)->scene;

	usleep(1000);
	while (!s->failed) {
		s->when = t_now_ms();
		kolo_id_abort(&r->id);
		for (int ms = 0; ms < 2 * SLACK_MS && !s->failed; ms++)
			usleep(1000);
	}
	return NULL;
}

/* The other rank never comes. An abort of another id does nothing. */
static void wait_in_vain(struct t_rank *r)
{
	struct kolo_comm_attr attr = { .id = &r->id, .nranks = 2, .timeout_s = -1 };
	struct scene s = { 0 };
	struct harm h = { .scene = &s };
	struct kolo_id other = { { 0 } };
	struct kolo_comm *c;
	pthread_t thread;

	r->arg = &h;
	kolo_id_abort(NULL);
	kolo_id_abort(&other);
	kolo_id_abort(&r->id); /* before the call */
	CHECK(pthread_create(&thread, NULL, give_up_until_it_fails, r) == 0);
	CHECK(kolo_comm_create(&attr, &c) == KOLO_EABORTED && !c);
	s.failed++;
	CHECK(strstr(kolo_last_error(), "rank 0 called kolo_id_abort before all ranks"));
	CHECK(t_now_ms() - s.when < SLACK_MS);
	pthread_join(thread, NULL);
}

static void a_rank_that_waits_for_one_that_never_comes_gives_up(void **state)
{
	(void)state;
	t_processes(1, wait_in_vain, NULL);
}

/* ---- One that is stopped or killed ----------------------------------------------------------- */

static void do_harm(struct harm h)
{
	int pids[T_MAX_RANKS];

	h.scene = mmap(NULL, sizeof(*h.scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	CHECK(h.scene != MAP_FAILED);
	t_start(h.nranks, suffer, &h, pids);
	while (h.scene->begun < h.nranks)
		usleep(100);
	usleep((unsigned)h.after_us);
	h.scene->when = t_now_ms();
	kill(pids[h.victim], h.sig);
	while (h.sig == SIGSTOP && h.scene->failed < h.nranks - 1 &&
	       t_now_ms() - h.scene->when < TIMEOUT_S * 1000 + SLACK_MS)
		usleep(1000);
	kill(pids[h.victim], SIGKILL);
	t_wait(h.nranks, pids, h.victim);
	munmap(h.scene, sizeof(*h.scene));
}

static void work(int worker, void *sig)
{
	uint64_t cases = 0;

	for (uint64_t key = 0; key < CASES; key++)
		if (nth(key).sig == *(int *)sig && t_sampled(key / 2, SHARE) &&
		    cases++ % WORKERS == (uint64_t)worker)
			do_harm(nth(key));
}

static void a_rank_stopped_while_ranks_join_is_named_by_all_others(void **state)
{
	int sig = SIGSTOP;

	(void)state;
	t_workers(WORKERS, work, &sig);
}

static void a_rank_killed_while_ranks_join_is_named_by_all_others(void **state)
{
	int sig = SIGKILL;

	(void)state;
	t_workers(WORKERS, work, &sig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_rank_stopped_while_ranks_join_is_named_by_all_others),
	cmocka_unit_test(a_rank_killed_while_ranks_join_is_named_by_all_others),
	cmocka_unit_test(a_rank_may_give_up_while_ranks_join),
	cmocka_unit_test(a_rank_that_waits_for_one_that_never_comes_gives_up),
};

T_MAIN(tests)
