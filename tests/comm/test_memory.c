/* Every allocation, mapping and socket fails once, at each constructor: an error comes back,
 * nothing is left allocated, and the other ranks neither hang nor crash. failing.c makes them
 * fail. */
#include "comm/sys/queue.h"
#include "kolo/kolo_zero_checkpoint.h"
#include "kolo/kolo_zero_log.h"
#include "tests/lib/failing.h"
#include "tests/lib/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Two ranks, one of which runs out -------------------------------------------------------- */

struct sweep {
	int victim;    /* -1: the id's thread */
	long k;        /* which call fails */
	long at_least; /* as many of them can */
	enum { CREATE, SPLIT, MESSAGES, TRAIN, LOG, SAVE } of;
	bool failed; /* out: the victim's call failed */
	struct kolo_id id;
};

struct part {
	struct sweep *sweep;
	int rank;
	pthread_t thread;
};

/* The victim gets an error and nothing else; the other one gets an error too, now or at the next
 * call. */
static void check_outcome(struct sweep *s, int rank, int rc, struct kolo_comm *c)
{
	if (rank == s->victim) {
		s->failed = rc < 0;
		CHECK(rc == 0 || rc == KOLO_ENOMEM || rc == KOLO_ESYS || rc == KOLO_EUNREACH);
		CHECK(kolo_last_error()[0] != 0 || rc == 0);
	}
	CHECK((c == NULL) == (rc < 0));
	if (c && s->victim >= 0) {
		rc = kolo_barrier(c, NULL);
		/* The cause is the victim's where it could still say it. */
		CHECK(rc == 0 || rc == KOLO_EPEER || rc == KOLO_ENOMEM || rc == KOLO_ESYS);
	}
	kolo_comm_destroy(c);
}

enum { N = 20000 };

/* A group with calls in both queues. */
static int leave_group(struct kolo_comm *c, const char *src, char *dst, struct kolo_queue *q[2])
{
	static const size_t counts[] = { N, N };
	int rc = kolo_group_begin(), ended;

	if (rc == 0)
		rc = kolo_all_gather_v(c, src, dst, counts, KOLO_U8, q[0]);
	if (rc == 0)
		rc = kolo_barrier(c, q[1]);
	if (rc < 0)
		kolo_comm_abort(c);
	ended = kolo_group_end();
	return rc < 0 ? rc : ended;
}

/* Small and large ones, counts, groups, and what queues do. */
static int exchange_messages(struct kolo_comm *c, int other)
{
	static char src[2][2 * N], dst[2][2 * N];
	static const size_t counts[] = { N, N };
	struct kolo_queue *q[2] = { NULL };
	char *from = src[other], *to = dst[other];
	int rc, ended;

	rc = kolo_queue_create(&q[0]);
	if (rc == 0)
		rc = kolo_queue_create(&q[1]);
	if (rc == 0)
		rc = kolo_all_to_all_v(c, from, counts, to, counts, KOLO_U8, NULL);
	if (rc == 0)
		rc = kolo_group_begin();
	if (rc == 0) {
		rc = kolo_send(c, from, N, KOLO_U8, other, NULL);
		if (rc == 0)
			rc = kolo_recv(c, to, N, KOLO_U8, other, NULL);
		if (rc == 0)
			rc = kolo_gather_v(c, from, N, to, counts, KOLO_U8, 0, NULL);
		if (rc < 0)
			kolo_comm_abort(c);
		ended = kolo_group_end();
		rc = rc < 0 ? rc : ended;
	}
	if (rc == 0)
		rc = leave_group(c, from, to, q);
	if (rc == 0)
		rc = kolo_barrier(c, q[0]);
	if (rc < 0)
		kolo_comm_abort(c);
	for (int k = 0; k < 2; k++) {
		ended = q[k] ? kolo_queue_wait(q[k]) : 0;
		rc = rc < 0 ? rc : ended;
		kolo_queue_destroy(q[k]);
	}
	return rc;
}

/* An engine that needs all kinds of memory, and two steps of it. */
static int train(struct kolo_comm *c)
{
	static const float gradient[8] = { 1 };
	struct kolo_zero_tensor tensors[2] = {
		{ .name = "a", .shape = { 8 }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "b", .shape = { 5 }, .ndims = 1, .type = KOLO_BF16 }
	};
	struct kolo_zero_config config;
	struct kolo_zero *z = NULL;
	int rc;

	kolo_zero_config_init(&config);
	config.stage = 3;
	config.persistence = 6;
	config.optimizer = KOLO_ZERO_LAMB;
	config.reduce_bucket = 1024;
	rc = kolo_zero_create(c, &config, tensors, 2, &z);
	CHECK((z == NULL) == (rc < 0));
	for (int step = 0; step < 2 && rc == 0; step++) {
		rc = kolo_zero_forward(z, 1);
		for (int i = 0; i < 2 && rc == 0; i++) {
			rc = kolo_zero_use(z, i, NULL);
			if (rc == 0)
				rc = kolo_zero_release(z, i);
		}
		if (rc == 0)
			rc = kolo_zero_backward(z, 0);
		/* The first to be reduced comes last: one more buffer. */
		for (int i = 0; i < 2 && rc == 0; i++)
			rc = kolo_zero_gradient(z, i, gradient);
		if (rc == 0)
			rc = kolo_zero_step(z, NULL);
	}
	kolo_zero_destroy(z);
	return rc;
}

static void ignore_line(const char *line, void *arg)
{
	(void)line, (void)arg;
}

/* A log with all that it can have, one row, and the lines of one update. */
static int keep_log(struct kolo_comm *c, struct kolo_zero *z)
{
	const struct kolo_zero_result result = { .updated = 1, .step = 1 };
	struct kolo_zero_log_config config;
	struct kolo_zero_log *log = NULL;
	int rc;

	kolo_zero_log_config_init(&config);
	config.steps_per_print = config.wall_clock = config.memory = 1;
	config.print = ignore_line;
	config.csv = config.jsonl = "/dev/null";
	rc = kolo_zero_log_create(c, z, &config, &log);
	CHECK((log == NULL) == (rc < 0));
	if (rc == 0)
		rc = kolo_zero_log_step(log, &result);
	kolo_zero_log_destroy(log);
	return rc;
}

static char directory[] = "/tmp/kolo-test-XXXXXX";

/* A checkpoint of each process's own, there and back, and weights in another type. */
static int keep_checkpoint(struct kolo_comm *c, struct kolo_zero *z)
{
	char path[100], file[100], user[8];
	size_t len = sizeof(user);
	int rc;

	(void)c;
	snprintf(path, sizeof(path), "%s/%d", directory, (int)getpid());
	snprintf(file, sizeof(file), "%s/%d.safetensors", directory, (int)getpid());
	rc = kolo_zero_save(z, path, 1, "user", 4);
	if (rc == 0)
		rc = kolo_zero_export(z, file, KOLO_BF16);
	if (rc == 0)
		rc = kolo_zero_load(z, path, KOLO_ZERO_LOAD_ALL, user, &len);
	return rc;
}

/* The engine itself does not fail. */
static int with_engine(struct kolo_comm *c, int (*fn)(struct kolo_comm *, struct kolo_zero *))
{
	long k = t_countdown;
	char name[5000]; /* texts with it grow several times */
	struct kolo_zero_tensor tensor = { .name = name, .type = KOLO_F32 };
	struct kolo_zero_config config;
	struct kolo_zero *z;
	int rc;

	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = 0;
	kolo_zero_config_init(&config);
	t_countdown = 0;
	CHECK(kolo_zero_create(c, &config, &tensor, 1, &z) == 0);
	CHECK(kolo_barrier(c, NULL) ==
	      0); /* before one of them fails, and the others' part in this with it */
	t_countdown = k;
	rc = fn(c, z);
	t_countdown = 0;
	kolo_zero_destroy(z);
	return rc;
}

/* The victim has the error of what failed, the other one that or what it saw of it. */
static void check_training(struct sweep *s, int rank, int rc)
{
	bool own = rc == KOLO_ENOMEM || rc == KOLO_ESYS || rc == KOLO_EUNREACH;
	bool seen = rc == KOLO_EPEER || rc == KOLO_EABORTED || rc == KOLO_EMISMATCH;

	CHECK(rc == 0 || own || (seen && rank != s->victim));
	if (rank == s->victim)
		s->failed = rc < 0;
}

static void *run_part(void *arg)
{
	struct part *p = arg;
	struct sweep *s = p->sweep;
	struct kolo_comm_attr attr = {
		.id = &s->id, .rank = p->rank, .nranks = 2, .timeout_s = 1, .slot_len = 4096
	};
	struct kolo_comm *c = NULL, *child = NULL;
	int rc;

	t_is_rank = true;
	if (s->of == CREATE) {
		t_countdown = p->rank == s->victim ? s->k : 0;
		rc = kolo_comm_create(&attr, &c);
		t_countdown = 0;
		check_outcome(s, p->rank, rc, c);
		return NULL;
	}
	CHECK(kolo_comm_create(&attr, &c) == 0);
	t_countdown = p->rank == s->victim ? s->k : 0;
	if (s->of == MESSAGES) {
		rc = exchange_messages(c, 1 - p->rank);
		t_countdown = 0;
		if (rc < 0) /* the other one waits for what this one can't do */
			kolo_comm_abort(c);
		CHECK(rc == 0 || rc == KOLO_ENOMEM || rc == KOLO_ESYS ||
		      (rc == KOLO_EABORTED && p->rank != s->victim));
		if (p->rank == s->victim)
			s->failed = rc < 0;
		kolo_comm_destroy(c);
		return NULL;
	}
	if (s->of == TRAIN || s->of == LOG || s->of == SAVE) {
		rc = s->of == TRAIN ? train(c)
				    : with_engine(c, s->of == LOG ? keep_log : keep_checkpoint);
		t_countdown = 0;
		check_training(s, p->rank, rc);
		kolo_comm_destroy(c);
		return NULL;
	}
	rc = kolo_comm_split(c, 0, 0, &child);
	t_countdown = 0;
	check_outcome(s, p->rank, rc, child);
	kolo_comm_destroy(c);
	return NULL;
}

/* Everything is freed, by an id's thread a moment later. */
static void check_nothing_left(long before)
{
	for (int ms = 0; t_live != before && ms < 5000; ms++)
		usleep(1000);
	CHECK(t_live == before);
}

static bool run_sweep(struct sweep *s)
{
	struct part parts[2];
	long before = t_live;

	CHECK(kolo_id_create(&s->id) == 0);
	if (s->victim < 0)
		atomic_store(&t_others_countdown, s->k);
	for (int r = 0; r < 2; r++) {
		parts[r] = (struct part){ .sweep = s, .rank = r };
		CHECK(__real_pthread_create(&parts[r].thread, NULL, run_part, &parts[r]) == 0);
	}
	for (int r = 0; r < 2; r++)
		pthread_join(parts[r].thread, NULL);
	if (s->victim < 0)
		s->failed = atomic_exchange(&t_others_countdown, 0) <= 0;
	check_nothing_left(before);
	return s->failed;
}

/* Every AT_ONCE-th call from this rank's on; where programs are slow, a third of those. */
static void sweep_part(struct t_rank *r)
{
	const int share = t_is_slow() && !t_is_long() ? 3 : 1, step = r->nranks * share;
	const int first = 1 + r->rank + r->nranks * (int)(t_seed() % (unsigned)share);
	struct sweep s = *(const struct sweep *)r->arg;

	for (s.k = first; run_sweep(&s); s.k += step)
		CHECK(s.k < 200);
	CHECK(s.k > s.at_least); /* something was there to fail */
}

/* In several processes, since most of the time they wait for timeouts. */
static void sweep_all(int victim, int of, long at_least)
{
	enum { AT_ONCE = 4 };
	struct sweep s = { .victim = victim, .of = of, .at_least = at_least };

	t_processes(AT_ONCE, sweep_part, &s);
}

static void create_survives_every_failure(void **state)
{
	(void)state;
	sweep_all(0, CREATE, 6);
	sweep_all(1, CREATE, 6);
}

static void split_survives_every_failure(void **state)
{
	(void)state;
	sweep_all(0, SPLIT, 6);
	sweep_all(1, SPLIT, 6);
}

static void messages_survive_every_failure(void **state)
{
	(void)state;
	sweep_all(0, MESSAGES, 15);
	sweep_all(1, MESSAGES, 15);
}

static void engines_survive_every_failure(void **state)
{
	(void)state;
	sweep_all(0, TRAIN, 40);
	sweep_all(1, TRAIN, 40);
}

static void checkpoints_survive_every_failure(void **state)
{
	char remove[100];

	(void)state;
	CHECK(mkdtemp(directory) != NULL);
	sweep_all(0, SAVE, 30);
	sweep_all(1, SAVE, 20);
	snprintf(remove, sizeof(remove), "rm -r %s", directory);
	CHECK(system(remove) == 0);
}

static void logs_survive_every_failure(void **state)
{
	(void)state;
	sweep_all(0, LOG, 4);
	sweep_all(1, LOG, 1);
}

static void an_ids_thread_survives_every_failure(void **state)
{
	(void)state;
	sweep_all(-1, CREATE, 2);
}

static void id_create_survives_every_failure(void **state)
{
	struct kolo_id id;
	long before = t_live;
	int rc;

	(void)state;
	t_is_rank = true;
	for (long k = 1; k < 100; k++) {
		t_countdown = k;
		rc = kolo_id_create(&id);
		if (rc == 0)
			break;
		CHECK(rc == KOLO_ENOMEM || rc == KOLO_ESYS);
		CHECK(t_live == before);
	}
	CHECK(rc == 0 && t_countdown > 0);
	t_countdown = 0;
	t_is_rank = false;
}

static void an_op_survives_having_no_memory(void **state)
{
	struct kolo_comm_attr attr = { .nranks = 1 };
	struct kolo_comm *c = NULL;
	struct kolo_id id;
	enum kolo_op op;
	float f = 2, x = 3;
	long before = t_live;

	(void)state;
	attr.id = &id;
	CHECK(kolo_id_create(&id) == 0 && kolo_comm_create(&attr, &c) == 0);
	t_is_rank = true;
	t_countdown = 1;
	CHECK(kolo_op_create_premul_sum(c, &f, KOLO_F32, &op) == KOLO_ENOMEM);
	t_countdown = 0;
	CHECK(kolo_op_create_premul_sum(c, &f, KOLO_F32, &op) == 0);
	CHECK(kolo_all_reduce(c, &x, &x, 1, KOLO_F32, op, NULL) == 0 && x == 6);
	t_is_rank = false;
	kolo_comm_destroy(c);
	check_nothing_left(before); /* the id's thread is a moment behind */
}

static int wait_for_flag(void *arg)
{
	_Atomic bool *flag = *(_Atomic bool **)arg;

	while (!*flag)
		usleep(1000);
	return 0;
}

/* A queue and an event, and more records than a queue has room for at first; its thread is busy
 * meanwhile. */
static int make_and_fill(void)
{
	enum { RECORDS = 70 };
	_Atomic bool free_to_go = false, *flag = &free_to_go;
	struct kolo_queue *q = NULL;
	struct kolo_event *e = NULL;
	int rc = kolo_queue_create(&q), done;

	CHECK((q == NULL) == (rc < 0));
	if (rc == 0)
		rc = kolo_event_create(&e);
	CHECK((e == NULL) == (rc < 0));
	if (rc == 0)
		rc = ko_queue_put(q, wait_for_flag, &flag, sizeof(flag));
	for (int k = 0; rc == 0 && k < RECORDS; k++)
		rc = k % 2 ? kolo_queue_wait_event(q, e) : kolo_event_record(e, q);
	free_to_go = true;
	if (q)
		CHECK(kolo_queue_wait(q) == 0);
	if (e)
		CHECK(kolo_event_query(e, &done) == 0 && done);
	kolo_event_destroy(e);
	kolo_queue_destroy(q);
	return rc;
}

static void queues_survive_every_failure(void **state)
{
	long before = t_live;
	int rc = -1;

	(void)state;
	t_is_rank = true;
	for (long k = 1; rc < 0; k++) {
		CHECK(k < 200);
		t_countdown = k;
		rc = make_and_fill();
		CHECK(rc == 0 || rc == KOLO_ENOMEM || rc == KOLO_ESYS);
		CHECK(t_live == before);
	}
	CHECK(t_countdown > 0);
	t_countdown = 0;
	t_is_rank = false;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(queues_survive_every_failure),
	cmocka_unit_test(create_survives_every_failure),
	cmocka_unit_test(split_survives_every_failure),
	cmocka_unit_test(messages_survive_every_failure),
	cmocka_unit_test(engines_survive_every_failure),
	cmocka_unit_test(checkpoints_survive_every_failure),
	cmocka_unit_test(logs_survive_every_failure),
	cmocka_unit_test(an_ids_thread_survives_every_failure),
	cmocka_unit_test(an_op_survives_having_no_memory),
	cmocka_unit_test(id_create_survives_every_failure),
};

T_MAIN(tests)
