/* Requests: made (ko_mail_request), in lists, over (ko_mail_finish), freed. */
#include "comm/mail/mail.h"

#include "comm/core/comm.h"

#include <stdlib.h>
#include <string.h>

void ko_mail_append(struct ko_mail_list *list, struct kolo_request *r)
{
	r->next = NULL;
	if (list->first)
		list->last->next = r;
	else
		list->first = r;
	list->last = r;
}

bool ko_mail_remove(struct ko_mail_list *list, const struct kolo_request *r)
{
	struct kolo_request *before = NULL, *at = list->first;

	for (; at && at != r; at = at->next)
		before = at;
	if (!at)
		return false;
	if (before)
		before->next = at->next;
	else
		list->first = at->next;
	if (list->last == at)
		list->last = before;
	return true;
}

/* Counts a receive that is not matched, by the rank that it waits for. */
static void count(struct kolo_mailbox *m, const struct kolo_request *r, int by)
{
	*(r->peer == KOLO_ANY_RANK ? &m->anyones : &m->peers[r->peer].awaited) += by;
}

void ko_mail_await(struct kolo_mailbox *m, struct kolo_request *r)
{
	ko_mail_append(&m->receives, r);
	count(m, r, 1);
}

bool ko_mail_cancel(struct kolo_mailbox *m, struct kolo_request *r)
{
	if (!ko_mail_remove(&m->receives, r))
		return false;
	count(m, r, -1);
	return true;
}

int ko_mail_cause(const struct kolo_mailbox *m)
{
	int rc = ko_roster_cause(m->comm->roster);

	return rc < 0 ? rc : ko_roster_cause(m->parent->roster);
}

struct kolo_request *ko_mail_request(struct kolo_mailbox *m)
{
	struct kolo_request *r = calloc(1, sizeof(*r));

	if (!r) {
		ko_fail(KOLO_ENOMEM, "rank %d: no memory for a request", m->comm->rank);
		return NULL;
	}
	r->mailbox = m;
	r->older = m->requests;
	if (m->requests)
		m->requests->newer = r;
	m->requests = r;
	m->kept += sizeof(*r);
	return r;
}

/* Takes a request that is not over, since the mailbox has failed, out of the lists of a rank. */
static void unlist(struct ko_mail_peer *p, const struct kolo_request *r)
{
	if (ko_mail_remove(&p->queued, r) || ko_mail_remove(&p->underway, r) ||
	    ko_mail_remove(&p->matched, r) || ko_mail_remove(&p->leaving, r))
		return;
	for (struct ko_mail_note *note = p->notes; note; note = note->next)
		if (note->then == r)
			note->then = NULL;
}

static void unlist_all(struct kolo_mailbox *m, struct kolo_request *r)
{
	if (!r->sends && ko_mail_cancel(m, r))
		return;
	for (int peer = 0; peer < m->comm->nranks; peer++)
		unlist(&m->peers[peer], r);
	for (struct ko_arrived *a = m->arrived; a; a = a->next)
		if (a->own == r)
			a->own = NULL;
}

void ko_mail_free(struct kolo_request *r)
{
	struct kolo_mailbox *m = r->mailbox;

	if (r->stage != KO_MAIL_OVER)
		unlist_all(m, r);
	if (r->newer)
		r->newer->older = r->older;
	else
		m->requests = r->older;
	if (r->older)
		r->older->newer = r->newer;
	m->kept -= sizeof(*r);
	free(r->text);
	free(r);
}

void ko_mail_refuse(struct kolo_request *r, int code)
{
	r->code = code;
	r->text = strdup(kolo_last_error());
}

void ko_mail_finish(struct kolo_request *r)
{
	r->stage = KO_MAIL_OVER;
	if (r->mailbox->sleepers)
		pthread_cond_broadcast(&r->mailbox->changed);
}
