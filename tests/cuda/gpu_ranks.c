/* See gpu_ranks.h. */
#include "tests/cuda/gpu_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *transport;
int group_size;

struct rank start(struct t_rank *r, struct kolo_comm_attr attr)
{
	struct rank me = { .stream = t_stream_create(r->rank % 2) };

	attr.transport = transport;
	if (group_size > 0)
		attr.group = (uint64_t)(r->rank / group_size) + 1;
	else if (group_size < 0)
		attr.group = (uint64_t)(r->rank % (r->nranks / -group_size)) + 1;
	if (group_size)
		attr.order = "grid";
	t_gpu_use();
	me.c = t_comm_with(r, attr);
	CHECK(kolo_cuda_queue_create(t_stream_handle(me.stream), &me.q) == 0);
	return me;
}

struct rank start_small(struct t_rank *r)
{
	setenv("KOLO_CUDA_MEMORY", "65536", 1);
	return start(r, (struct kolo_comm_attr){ .slot_len = 4096, .timeout_s = T_PATIENCE / 2 });
}

void end(struct rank *me)
{
	kolo_comm_destroy(me->c);
	kolo_queue_destroy(me->q);
	t_stream_destroy(me->stream);
}

void for_every_number_of_ranks(t_rank_fn *fn)
{
	for (int n = 1; n <= MAX_RANKS; n++) {
		if (n > 3 && t_is_slow())
			continue;
		t_processes(n, fn, NULL);
		t_threads(n, fn, NULL);
	}
}

struct thread {
	struct t_rank rank;
	t_rank_fn *fn;
};

static void *run_thread(void *arg)
{
	struct thread *t = arg;

	t->fn(&t->rank);
	return NULL;
}

static void two_threads(struct t_rank *r)
{
	t_rank_fn *const *fn = r->arg;
	struct thread threads[2];
	pthread_t ids[2];

	for (int k = 0; k < 2; k++) {
		/* 0, 2 and 1, 3; or neighbours */
		threads[k] = (struct thread){ *r, *fn };
		threads[k].rank.nranks = 2 * r->nranks;
		threads[k].rank.rank = r->nranks == 2 ? r->rank + 2 * k : 2 * r->rank + k;
		CHECK(pthread_create(&ids[k], NULL, run_thread, &threads[k]) == 0);
	}
	for (int k = 0; k < 2; k++)
		pthread_join(ids[k], NULL);
}

void for_ranks_of_both_kinds(t_rank_fn *fn)
{
	t_processes(2, two_threads, &fn);
	if (!t_is_slow())
		t_processes(3, two_threads, &fn);
}

void for_every_proxy(t_rank_fn *fn, void *arg)
{
	static const char *const names[] = { "shm", "tcp", "ofi" };

	for (size_t k = 0; k < ARRAY_LEN(names); k++) {
		if (!t_has_transport(names[k]) || (k != 1 && t_is_slowest()))
			continue;
		transport = names[k];
		t_processes(k == 0 ? 3 : 2, fn, arg);
		if (k == 1 && !t_is_slow())
			t_processes(4, fn, arg);
	}
	transport = "shm";
	t_threads(3, fn, arg);
	transport = NULL;
}

void for_every_shape(t_rank_fn *fn, void *arg)
{
	static const struct {
		int nranks, group_size;
		bool threads, seldom;
		const char *transport;
	} cases[] = {
		{ 4, 2, false, false, NULL },  { 4, 2, true, true, NULL },
		{ 6, -3, false, true, NULL },  { 6, -2, true, true, NULL },
		{ 3, 1, false, true, NULL },   { 3, 3, false, true, NULL },
		{ 4, 2, false, false, "shm" }, { 4, -2, true, true, "shm" },
		{ 6, 3, false, true, "tcp" },
	};

	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		if (cases[k].seldom && t_is_slow())
			continue;
		group_size = cases[k].group_size;
		transport = cases[k].transport;
		(cases[k].threads ? t_threads : t_processes)(cases[k].nranks, fn, arg);
	}
	transport = NULL;
	group_size = 2;
	for_ranks_of_both_kinds(fn);
	group_size = 0;
}

void shake(unsigned seed)
{
#ifdef T_PLAIN
	(void)seed;
#else
	t_driver_shake(seed);
#endif
}

void wait_for_failure(struct rank *me, int code, const char *culprit)
{
	int64_t began = t_now_ms();
	char name[32];
	int rc;

	rc = kolo_queue_wait(me->q);
	CHECK(rc == code);
	snprintf(name, sizeof(name), "%s", culprit);
	CHECK(strstr(kolo_last_error(), name) != NULL);
	CHECK(t_now_ms() - began < (code == KOLO_ETIMEDOUT ? TIMEOUT_S * 1000 + 3000 : 4000));
	CHECK(kolo_comm_status(me->c) == code);
	CHECK(kolo_barrier(me->c, me->q) == code && kolo_barrier(me->c, NULL) == code);
}

void scale(void *arg)
{
	const struct own_work *w = arg;

	usleep(w->delay_us);
	for (int i = 0; i < CELLS; i++)
		w->x[i] = w->x[i] * w->factor % 1000003;
}

void produce_and_consume(const struct rank *me, const struct t_rank *r, int steps, long *device)
{
	struct own_work *work = calloc((size_t)2 * (size_t)steps, sizeof(*work));
	long *x = t_gpu_alloc(CELLS * sizeof(*x)), want[MAX_RANKS], sum;
	long *where = device ? device : x;
	uint64_t seed = 3 + (uint64_t)r->rank;

	/* CUDA may keep who registers memory waiting for streams of its process. */
	CHECK(work && kolo_barrier(me->c, NULL) == 0);
	for (int i = 0; i < CELLS; i++)
		x[i] = r->rank + 1;
	for (int k = 0; k < r->nranks; k++)
		want[k] = k + 1;
	for (int s = 0; s < steps; s++) {
		for (int k = 0; k < 2; k++)
			work[2 * s + k] = (struct own_work){ x, k ? 2 : r->rank + 2,
							     t_random(&seed) % 8 ? 0 : 300 };
		t_stream_run(me->stream, scale, &work[2 * s]);
		if (device)
			t_stream_copy(me->stream, device, x, CELLS * sizeof(*x));
		CHECK(kolo_all_reduce(me->c, where, where, CELLS, KOLO_I64, KOLO_SUM, me->q) == 0);
		if (device)
			t_stream_copy(me->stream, x, device, CELLS * sizeof(*x));
		t_stream_run(me->stream, scale, &work[2 * s + 1]);
		sum = 0;
		for (int k = 0; k < r->nranks; k++)
			sum += want[k] * (k + 2) % 1000003;
		for (int k = 0; k < r->nranks; k++)
			want[k] = sum * 2 % 1000003;
	}
	CHECK(kolo_queue_wait(me->q) == 0);
	for (int i = 0; i < CELLS; i++)
		CHECK(x[i] == want[r->rank]);
	t_gpu_free(x);
	free(work);
}
