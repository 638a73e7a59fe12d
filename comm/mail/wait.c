/* Waits for a request (kolo_request_wait) or looks (kolo_request_test). Of the threads that wait,
 * one drives. */
#include "comm/mail/wait.h"

#include "comm/base/clock.h"
#include "comm/core/run.h"
#include "comm/p2p/lane.h"

#include <time.h>

/* What a thread that drives waits for. */
struct drive {
	struct ko_run run; /* `comm`, `desc` and `needs` alone */
	struct kolo_mailbox *mailbox;
	const struct kolo_request *request;
	int64_t until; /* ko_now_ms() when it waits no longer; INT64_MAX: never */
	int failed;    /* the rank whose lane has failed; -1: none */
};

static bool needs(const struct kolo_comm *c, int rank)
{
	struct kolo_mailbox *m = c->mailbox;
	bool needed;

	pthread_mutex_lock(&m->lock);
	needed = ko_mail_needs(m, rank);
	pthread_mutex_unlock(&m->lock);
	return needed;
}

/* What a request is, for error texts. */
static struct ko_desc describe(const struct kolo_request *r)
{
	return (struct ko_desc){ .n = r->n,
				 .root = r->peer,
				 .coll = r->sends ? KO_SEND_TO : KO_RECV_FROM,
				 .type = (uint8_t)r->type };
}

static struct drive make_drive(struct kolo_request *r, int64_t until)
{
	struct kolo_mailbox *m = r->mailbox;

	return (struct drive){ .run = { .comm = m->comm, .desc = describe(r), .needs = needs },
			       .mailbox = m,
			       .request = r,
			       .until = until,
			       .failed = -1 };
}

static bool is_late(int64_t until)
{
	return until != INT64_MAX && ko_now_ms() >= until;
}

/* For ko_wait_for: 0 if something has moved, or the request is over. */
static int try(void *what)
{
	struct drive *d = what;
	int rc;

	pthread_mutex_lock(&d->mailbox->lock);
	rc = ko_mail_move(d->mailbox, true, &d->failed);
	if (rc == KO_EAGAIN && (d->request->stage == KO_MAIL_OVER || is_late(d->until)))
		rc = 0;
	pthread_mutex_unlock(&d->mailbox->lock);
	return rc;
}

/* The mailbox fails, on all ranks. Returns the code of the cause. */
static int fail(struct drive *d, int code)
{
	struct kolo_comm *c = d->run.comm;

	if (d->failed >= 0)
		code = c->lanes->ops->explain(&d->run, code);
	return ko_comm_fail(c, code, "%s", kolo_last_error());
}

/* Waits as the thread that drives, without the lock. */
static int drive(struct kolo_request *r, int64_t until)
{
	struct drive d = make_drive(r, until);
	struct kolo_comm *c = d.run.comm;
	int peer = r->peer >= 0 ? r->peer : (c->rank + 1) % c->nranks, rc;
	bool over = false;

	c->timeout_ms = d.mailbox->parent->timeout_ms;
	do {
		rc = ko_wait(&d.run, peer, "a mailbox", KO_TRACE_DATA, try, &d);
		pthread_mutex_lock(&d.mailbox->lock);
		over = r->stage == KO_MAIL_OVER || is_late(until);
		pthread_mutex_unlock(&d.mailbox->lock);
		/* While something moves all the time, nothing else notices a failure. */
		if (rc == 0 && !over)
			rc = ko_wait_hear(c);
	} while (rc == 0 && !over);
	return rc < 0 ? fail(&d, rc) : 0;
}

void ko_mail_push(struct kolo_mailbox *m)
{
	int failed;

	pthread_mutex_lock(&m->lock);
	/* Of an error the next wait hears: the lane that has failed fails again. */
	ko_mail_move(m, !m->driven, &failed);
	pthread_mutex_unlock(&m->lock);
}

/* From here on this thread drives, without the lock. */
static void take_wheel(struct kolo_mailbox *m)
{
	m->driven = true;
	pthread_mutex_unlock(&m->lock);
}

/* It has the lock again, and another thread may drive. */
static void leave_wheel(struct kolo_mailbox *m)
{
	pthread_mutex_lock(&m->lock);
	m->driven = false;
	if (m->sleepers)
		pthread_cond_broadcast(&m->changed);
}

/* Sleeps, with the lock held, until `changed` is signalled, or `until` at most. */
static void sleep_until(struct kolo_mailbox *m, int64_t until)
{
	const struct timespec at = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };

	m->sleepers++;
	if (until == INT64_MAX)
		pthread_cond_wait(&m->changed, &m->lock);
	else
		pthread_cond_timedwait(&m->changed, &m->lock, &at);
	m->sleepers--;
}

/* Waits, with the lock held, until the request is over or the mailbox has failed, or until then. */
static int wait_locked(struct kolo_request *r, int64_t until)
{
	struct kolo_mailbox *m = r->mailbox;
	int rc = 0;

	while (r->stage != KO_MAIL_OVER && rc == 0 && !is_late(until)) {
		rc = ko_mail_cause(m);
		if (rc < 0)
			break;
		if (m->driven) {
			sleep_until(m, until);
			continue;
		}
		take_wheel(m);
		rc = drive(r, until);
		leave_wheel(m);
	}
	return r->stage == KO_MAIL_OVER ? 0 : rc;
}

int kolo_request_wait(struct kolo_request *r, struct kolo_received *got)
{
	struct kolo_mailbox *m;
	int rc;

	if (!r)
		return ko_fail(KOLO_EINVAL, "kolo_request_wait: request is NULL");
	m = r->mailbox;
	rc = ko_comm_check_process(m->comm, "kolo_request_wait");
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&m->lock);
	rc = wait_locked(r, INT64_MAX);
	if (rc == 0 && r->code)
		rc = ko_fail(r->code, "%s", r->text ? r->text : kolo_strerror(r->code));
	if (rc == 0 && got)
		*got = r->got;
	ko_mail_free(r);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

/* Drives for a moment, without the lock. */
static void look(struct kolo_request *r)
{
	struct drive d = make_drive(r, INT64_MAX);
	const struct ko_waiter waiter = ko_run_waiter(&d.run);
	int rc = try(&d);

	if (rc >= 0)
		rc = ko_wait_look(&waiter);
	if (rc < 0)
		fail(&d, rc);
}

static int check(struct kolo_request *r, const int *done, const char *function)
{
	if (!r || !done)
		return ko_fail(KOLO_EINVAL, "%s: request and done must not be NULL", function);
	return ko_comm_check_process(r->mailbox->comm, function);
}

int kolo_request_test(struct kolo_request *r, int *done)
{
	struct kolo_mailbox *m;
	int rc = check(r, done, "kolo_request_test");

	if (rc < 0)
		return rc;
	m = r->mailbox;
	pthread_mutex_lock(&m->lock);
	if (r->stage != KO_MAIL_OVER && !m->driven && ko_mail_cause(m) == 0) {
		take_wheel(m);
		look(r);
		leave_wheel(m);
	}
	*done = r->stage == KO_MAIL_OVER || ko_mail_cause(m) < 0;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

int kolo_request_poll(struct kolo_request *r, int ms, int *done)
{
	struct kolo_mailbox *m;
	int rc;

	if (ms <= 0)
		return kolo_request_test(r, done);
	rc = check(r, done, "kolo_request_poll");
	if (rc < 0)
		return rc;
	m = r->mailbox;
	pthread_mutex_lock(&m->lock);
	wait_locked(r, ko_now_ms() + ms);
	*done = r->stage == KO_MAIL_OVER || ko_mail_cause(m) < 0;
	pthread_mutex_unlock(&m->lock);
	return 0;
}
