/* Queues with a thread of their own (kolo_queue_create) and events (kolo_event_create). Each queue
 * has one mutex, held for some instructions only. A thread without work, or a caller that waits for
 * it, looks for it for some 50 us, and then sleeps on a condition. */
#include "comm/sys/queue.h"

#include "comm/base/clock.h"
#include "comm/base/fork.h"
#include "comm/sys/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A mark: recording an event puts one into the queue, after the work that is there. Each thread
 * that may still look at it holds it. */
struct mark {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int holders;
	struct ko_stream_mark *stream; /* says whether it is reached; NULL: `reached` does */
	_Atomic uint64_t reached;      /* 1: it is */
	unsigned generation;           /* of the process that made it (comm/base/fork.h) */
	/* the queue's failure when the mark was reached, if no wait had returned it before; 0:
	 * none */
	int code;
	char text[KO_TEXT];
};

struct kolo_event {
	pthread_mutex_t lock;
	struct mark *mark; /* the mark of the last record; NULL: never recorded */
};

struct item {
	ko_work_fn *run;
	_Alignas(16) char arg[KO_WORK_ARG];
};

struct threaded {
	struct kolo_queue queue;
	unsigned generation; /* of the process that made it (comm/base/fork.h) */
	pthread_mutex_t lock;
	pthread_cond_t filled, emptied;
	pthread_t worker;
	struct item *items; /* a ring buffer with room for `room` items, a power of two */
	size_t room;
	/* Counts of items; done <= begun <= put <= begun + room. They change under the lock;
	 * `put` and `done` are also looked at without it. */
	uint64_t begun;
	_Atomic uint64_t put, done;
	bool closing;
	int code; /* the first failure that no wait has returned yet; 0: none */
	char text[KO_TEXT];
};

enum { FIRST_ROOM = 64 };

/* ---- Work ------------------------------------------------------------------------------------ */

/* The thread of a queue is in the process that made it alone. */
static int check_process(unsigned generation, const char *what)
{
	return generation != ko_generation
		       ? ko_fail(KOLO_EINVAL,
				 "this process is a child of fork, and the %s belongs to its parent; use it there, "
				 "or make another one here",
				 what)
		       : 0;
}

static bool grow(struct threaded *q)
{
	size_t room = q->room ? 2 * q->room : FIRST_ROOM;
	struct item *items = malloc(room * sizeof(*items));

	if (!items)
		return false;
	for (uint64_t k = q->begun; k < q->put; k++)
		items[k % room] = q->items[k % q->room];
	free(q->items);
	q->items = items;
	q->room = room;
	return true;
}

int ko_queue_put(struct kolo_queue *queue, ko_work_fn *run, const void *arg, size_t len)
{
	struct threaded *q = (struct threaded *)queue;
	int rc = 0;

	if (queue->stream)
		return ko_fail(KOLO_ENOTSUP,
			       "this queue is a stream: want a queue of kolo_queue_create");
	rc = check_process(q->generation, "queue");
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&q->lock);
	if (q->put - q->begun == q->room && !grow(q)) {
		rc = ko_fail(KOLO_ENOMEM, "no memory for work in a queue that holds %zu", q->room);
	} else {
		struct item *item = &q->items[q->put++ % q->room];

		item->run = run;
		memcpy(item->arg, arg, len);
	}
	pthread_mutex_unlock(&q->lock);
	pthread_cond_signal(&q->filled); /* after the unlock: the thread needs the lock at once */
	return rc;
}

static void keep_failure(struct threaded *q, int code, const char *text)
{
	if (q->code != 0 || code == 0)
		return;
	q->code = code;
	memcpy(q->text, text, sizeof(q->text));
}

/* Linux's struct sched_attr. Its header can't be included together with <sched.h>. */
struct sched {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period; /* all in ns */
};

/* Asks the kernel for turns of 5 ms on a shared core; the usual is 3 ms. With that, Linux 6.12 and
 * later lets a caller that has slept in at once. Otherwise such a caller may wait for the end of
 * this thread's turn. A caller that computes all the time keeps its half of the core.
 *
 * It is a wish: a kernel that refuses it, or does not know it, changes nothing. */
static void take_long_turns(void)
{
	struct sched mine = { 0 };

	if (syscall(SYS_sched_getattr, 0, &mine, sizeof(mine), 0) < 0 || mine.policy != SCHED_OTHER)
		return;
	mine.runtime = 5000000;
	syscall(SYS_sched_setattr, 0, &mine, 0);
}

/* Looks whether the count comes to `want`, for LOOK_NS at most: a thread that sleeps takes
 * microseconds to wake, and as many from who wakes it. It gives the core away in between. If others
 * need the core it stops, unless it is to go on `beside` them: they may be what it waits for. */
static void look_out(const _Atomic uint64_t *count, uint64_t want, bool beside)
{
	enum { LOOK_NS = 50000, LOOKS = 2 };
	int64_t end = ko_now_ns() + LOOK_NS;

	do {
		for (int k = 0; k < LOOKS; k++) {
			if (atomic_load_explicit(count, memory_order_relaxed) >= want)
				return;
			ko_relax();
		}
	} while ((ko_yield() <= KO_ALONE_NS || beside) && ko_now_ns() < end);
}

static void *work(void *arg)
{
	struct threaded *q = arg;

	take_long_turns();
	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct item item;
		int rc;

		if (q->begun == q->put && !q->closing) {
			pthread_mutex_unlock(&q->lock);
			look_out(&q->put, q->begun + 1, false);
			pthread_mutex_lock(&q->lock);
		}
		while (q->begun == q->put && !q->closing)
			pthread_cond_wait(&q->filled, &q->lock);
		if (q->begun == q->put)
			break;
		item = q->items[q->begun++ % q->room];
		pthread_mutex_unlock(&q->lock);
		rc = item.run(item.arg);
		pthread_mutex_lock(&q->lock);
		keep_failure(q, rc, kolo_last_error());
		q->done++;
		pthread_cond_broadcast(&q->emptied);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static void free_queue(struct threaded *q)
{
	pthread_mutex_destroy(&q->lock);
	pthread_cond_destroy(&q->filled);
	pthread_cond_destroy(&q->emptied);
	free(q->items);
	free(q);
}

int kolo_queue_create(struct kolo_queue **out)
{
	pthread_mutexattr_t adaptive; /* what is done under the lock is short */
	struct threaded *q;
	int err;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_queue_create: out is NULL");
	*out = NULL;
	q = calloc(1, sizeof(*q));
	if (!q || !grow(q)) {
		free(q);
		return ko_fail(KOLO_ENOMEM, "kolo_queue_create: no memory for a queue");
	}
	q->generation = ko_generation;
	pthread_mutexattr_init(&adaptive);
	pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&q->lock, &adaptive);
	pthread_mutexattr_destroy(&adaptive);
	pthread_cond_init(&q->filled, NULL);
	pthread_cond_init(&q->emptied, NULL);
	err = ko_thread_start(&q->worker, work, q);
	if (err) {
		free_queue(q);
		return ko_fail(KOLO_ESYS, "kolo_queue_create: no thread for a queue: %s",
			       strerror(err));
	}
	*out = &q->queue;
	return 0;
}

void kolo_queue_destroy(struct kolo_queue *queue)
{
	struct threaded *q = (struct threaded *)queue;

	if (!queue)
		return;
	if (queue->stream) {
		queue->stream->destroy(queue);
		return;
	}
	if (q->generation != ko_generation)
		return;
	pthread_mutex_lock(&q->lock);
	q->closing = true;
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->worker, NULL);
	free_queue(q);
}

int kolo_queue_wait(struct kolo_queue *queue)
{
	struct threaded *q = (struct threaded *)queue;
	uint64_t until;
	int rc;

	if (!queue)
		return ko_fail(KOLO_EINVAL, "kolo_queue_wait: queue is NULL");
	if (queue->stream)
		return queue->stream->wait(queue);
	rc = check_process(q->generation, "queue");
	if (rc < 0)
		return rc;
	until = q->put;
	look_out(&q->done, until, true);
	pthread_mutex_lock(&q->lock);
	while (q->done < until)
		pthread_cond_wait(&q->emptied, &q->lock);
	rc = q->code ? ko_fail(q->code, "%s", q->text) : 0;
	q->code = 0;
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

static struct mark *make_mark(void)
{
	struct mark *mark = calloc(1, sizeof(*mark));

	if (mark) {
		pthread_mutex_init(&mark->lock, NULL);
		pthread_cond_init(&mark->changed, NULL);
		mark->holders = 1;
		mark->generation = ko_generation;
	}
	return mark;
}

static struct mark *hold(struct mark *mark)
{
	pthread_mutex_lock(&mark->lock);
	mark->holders++;
	pthread_mutex_unlock(&mark->lock);
	return mark;
}

static void let_go(struct mark *mark)
{
	int left;

	if (!mark)
		return;
	pthread_mutex_lock(&mark->lock);
	left = --mark->holders;
	pthread_mutex_unlock(&mark->lock);
	if (left)
		return;
	if (mark->stream)
		mark->stream->free(mark->stream);
	pthread_mutex_destroy(&mark->lock);
	pthread_cond_destroy(&mark->changed);
	free(mark);
}

/* Blocks until the mark is reached. Returns the failure that it carries, or 0. */
static int wait_mark(struct mark *mark)
{
	int rc = check_process(mark->generation, "event");

	if (rc < 0)
		return rc;
	if (mark->stream)
		return mark->stream->finish(mark->stream);
	look_out(&mark->reached, 1, true);
	pthread_mutex_lock(&mark->lock);
	while (!mark->reached)
		pthread_cond_wait(&mark->changed, &mark->lock);
	rc = mark->code ? ko_fail(mark->code, "%s", mark->text) : 0;
	pthread_mutex_unlock(&mark->lock);
	return rc;
}

/* The argument of the work that an event puts into a queue: to reach a mark (kolo_event_record), or
 * to wait for one (kolo_queue_wait_event). */
struct mark_work {
	struct threaded *queue;
	struct mark *mark;
};

static int reach_mark(void *arg)
{
	const struct mark_work *w = arg;
	struct mark *mark = w->mark;

	pthread_mutex_lock(&w->queue->lock);
	pthread_mutex_lock(&mark->lock);
	mark->code = w->queue->code;
	memcpy(mark->text, w->queue->text, sizeof(mark->text));
	mark->reached = 1;
	pthread_cond_broadcast(&mark->changed);
	pthread_mutex_unlock(&mark->lock);
	pthread_mutex_unlock(&w->queue->lock);
	let_go(mark);
	return 0;
}

static int await_mark(void *arg)
{
	const struct mark_work *w = arg;
	int rc = wait_mark(w->mark);

	let_go(w->mark);
	return rc;
}

/* Puts the mark into the queue, which holds the mark until the work is done. */
static int put_mark(struct kolo_queue *queue, ko_work_fn *run, struct mark *mark)
{
	const struct mark_work w = { (struct threaded *)queue, hold(mark) };
	int rc = ko_queue_put(queue, run, &w, sizeof(w));

	if (rc < 0)
		let_go(mark);
	return rc;
}

/* ---- Events ---------------------------------------------------------------------------------- */

int kolo_event_create(struct kolo_event **out)
{
	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_event_create: out is NULL");
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return ko_fail(KOLO_ENOMEM, "kolo_event_create: no memory for an event");
	pthread_mutex_init(&(*out)->lock, NULL);
	return 0;
}

void kolo_event_destroy(struct kolo_event *event)
{
	if (!event)
		return;
	let_go(event->mark);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

int kolo_event_record(struct kolo_event *event, struct kolo_queue *queue)
{
	struct mark *mark, *before;
	int rc;

	if (!event || !queue)
		return ko_fail(KOLO_EINVAL, "kolo_event_record: event and queue must not be NULL");
	mark = make_mark();
	if (!mark)
		return ko_fail(KOLO_ENOMEM, "kolo_event_record: no memory for a mark");
	rc = queue->stream ? queue->stream->mark(queue, &mark->stream)
			   : put_mark(queue, reach_mark, mark);
	if (rc < 0) {
		let_go(mark);
		return rc;
	}
	pthread_mutex_lock(&event->lock);
	before = event->mark;
	event->mark = mark;
	pthread_mutex_unlock(&event->lock);
	let_go(before);
	return 0;
}

/* The mark of the event's last record, held for the caller. NULL: never recorded. */
static struct mark *mark_of(struct kolo_event *event)
{
	struct mark *mark;

	pthread_mutex_lock(&event->lock);
	mark = event->mark ? hold(event->mark) : NULL;
	pthread_mutex_unlock(&event->lock);
	return mark;
}

int kolo_event_query(struct kolo_event *event, int *done)
{
	struct mark *mark;
	int rc = 0;

	if (!event || !done)
		return ko_fail(KOLO_EINVAL, "kolo_event_query: event and done must not be NULL");
	*done = 1;
	mark = mark_of(event);
	if (!mark)
		return 0;
	if (mark->stream) {
		rc = mark->stream->poll(mark->stream);
		*done = rc != KO_EAGAIN;
	} else {
		pthread_mutex_lock(&mark->lock);
		*done = mark->reached != 0;
		pthread_mutex_unlock(&mark->lock);
	}
	let_go(mark);
	return rc < 0 ? rc : 0;
}

int kolo_event_wait(struct kolo_event *event)
{
	struct mark *mark;
	int rc = 0;

	if (!event)
		return ko_fail(KOLO_EINVAL, "kolo_event_wait: event is NULL");
	mark = mark_of(event);
	if (mark)
		rc = wait_mark(mark);
	let_go(mark);
	return rc;
}

int kolo_queue_wait_event(struct kolo_queue *queue, struct kolo_event *event)
{
	struct mark *mark;
	int rc = 0;

	if (!queue || !event)
		return ko_fail(KOLO_EINVAL,
			       "kolo_queue_wait_event: queue and event must not be NULL");
	mark = mark_of(event);
	if (mark && !queue->stream)
		rc = put_mark(queue, await_mark, mark);
	else if (mark)
		rc = mark->stream ? queue->stream->await(queue, mark->stream) : wait_mark(mark);
	let_go(mark);
	return rc;
}
