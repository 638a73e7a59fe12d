/* The public functions of mailboxes, but for those that wait (wait.c). */
#include "comm/mail/mail.h"

#include "comm/core/comm.h"
#include "comm/mail/wait.h"
#include "comm/sys/queue.h"

#include <stdlib.h>

/* ---- Mailboxes ------------------------------------------------------------------------------- */

int kolo_mailbox_create(struct kolo_comm *comm, struct kolo_mailbox **out)
{
	struct kolo_comm *own = NULL;
	struct kolo_mailbox *m;
	pthread_condattr_t clock;
	int rc;

	if (!comm || !out)
		return ko_fail(KOLO_EINVAL, "kolo_mailbox_create: comm and out must not be NULL");
	*out = NULL;
	/* A rank without this memory joins all the same: the others must not wait for it. */
	m = calloc(1, sizeof(*m) + (size_t)comm->nranks * sizeof(m->peers[0]));
	rc = kolo_comm_split(comm, 0, comm->rank, &own);
	if (rc == 0 && !m)
		rc = ko_comm_fail(own, KOLO_ENOMEM, "rank %d: no memory for a mailbox of %d ranks",
				  comm->rank, comm->nranks);
	if (rc < 0) {
		kolo_comm_destroy(own);
		free(m);
		return rc;
	}
	m->comm = own;
	m->parent = comm;
	own->mailbox = m;
	own->parent = comm->roster; /* its failure ends waits here */
	own->while_waiting = NULL;  /* ko_mail_move does that, with the lock */
	pthread_mutex_init(&m->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* as ko_now_ms */
	pthread_cond_init(&m->changed, &clock);
	pthread_condattr_destroy(&clock);
	*out = m;
	return 0;
}

static void free_notes(struct ko_mail_note *note)
{
	while (note) {
		struct ko_mail_note *next = note->next;

		free(note);
		note = next;
	}
}

void kolo_mailbox_destroy(struct kolo_mailbox *m)
{
	if (!m || ko_comm_check_process(m->comm, "kolo_mailbox_destroy") < 0)
		return;
	for (int r = 0; r < m->comm->nranks; r++) {
		if (m->peers[r].underway.first)
			ko_packet_leave(m->comm, r);
		free_notes(m->peers[r].notes);
	}
	ko_mail_forget(m);
	while (m->requests)
		ko_mail_free(m->requests);
	kolo_comm_destroy(m->comm);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

size_t kolo_mailbox_memory(struct kolo_mailbox *m)
{
	struct kolo_stats stats;
	size_t bytes = 0;

	if (!m)
		return 0;
	pthread_mutex_lock(&m->lock);
	if (kolo_comm_stats(m->comm, &stats) == 0)
		bytes = stats.memory_bytes + m->kept + sizeof(*m) +
			(size_t)m->comm->nranks * sizeof(m->peers[0]);
	pthread_mutex_unlock(&m->lock);
	return bytes;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* What a message is, as its caller says. */
struct message {
	struct kolo_mailbox *mailbox;
	const char *function; /* that was called */
	bool sends;
	void *buffer; /* only read if it sends */
	size_t n;
	enum kolo_type type;
	int peer, tag;
	struct kolo_received *got; /* NULL: nobody wants it */
};

static int check(const struct message *w)
{
	const struct kolo_comm *c = w->mailbox ? w->mailbox->comm : NULL;
	bool any_rank = !w->sends && w->peer == KOLO_ANY_RANK;
	bool any_tag = !w->sends && w->tag == KOLO_ANY_TAG;
	const char *also = w->sends ? "" : ", or -1 for any";

	if (!c)
		return ko_fail(KOLO_EINVAL, "%s: mailbox is NULL", w->function);
	if (!kolo_type_size(w->type) || ko_type_is_bytes(w->type) || (w->n && !w->buffer) ||
	    w->n > PTRDIFF_MAX / kolo_type_size(w->type))
		return ko_fail(
			KOLO_EINVAL,
			"rank %d: %s: n=%zu of type %d at %p: want a type of enum kolo_type, and a buffer",
			c->rank, w->function, w->n, (int)w->type, w->buffer);
	if (!any_rank && (w->peer < 0 || w->peer >= c->nranks))
		return ko_fail(KOLO_EINVAL, "rank %d: %s: peer %d: want 0 to %d%s", c->rank,
			       w->function, w->peer, c->nranks - 1, also);
	if (!any_tag && w->tag < 0)
		return ko_fail(KOLO_EINVAL, "rank %d: %s: tag %d: want 0 or more%s", c->rank,
			       w->function, w->tag, also);
	return ko_comm_check_process(c, w->function);
}

/* Starts a message, with the lock held. */
static int begin(struct kolo_mailbox *m, struct kolo_request *r)
{
	const struct ko_packet packet = {
		.kind = KO_MAIL_LONG, .n = r->n, .tag = r->tag, .type = (uint8_t)r->type
	};

	if (!r->sends)
		return ko_mail_receive(m, r);
	r->got = (struct kolo_received){ .peer = r->peer, .tag = r->tag, .n = r->n };
	if (r->peer != m->comm->rank) {
		ko_mail_append(&m->peers[r->peer].queued, r);
		return 0;
	}
	r->stage = KO_MAIL_UNDERWAY;
	return ko_mail_arrive(m, r->peer, &packet, NULL, r);
}

static int start(const struct message *w, struct kolo_request **out)
{
	struct kolo_mailbox *m = w->mailbox;
	struct kolo_request *r;
	int rc = check(w);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&m->lock);
	rc = ko_mail_cause(m);
	r = rc < 0 ? NULL : ko_mail_request(m);
	if (r) {
		r->sends = w->sends;
		r->buffer = w->buffer;
		r->n = w->n;
		r->bytes = w->n * kolo_type_size(w->type);
		r->type = w->type;
		r->peer = w->peer;
		r->tag = w->tag;
		rc = begin(m, r);
		if (rc < 0)
			ko_mail_free(r);
	} else if (rc == 0) {
		rc = KOLO_ENOMEM;
	}
	pthread_mutex_unlock(&m->lock);
	if (rc == 0) {
		ko_mail_push(m);
		*out = r;
	}
	return rc;
}

int kolo_isend(struct kolo_mailbox *mailbox, const void *src, size_t n, enum kolo_type type,
	       int peer, int tag, struct kolo_request **out)
{
	const struct message w = { mailbox, "kolo_isend", true, (void *)(uintptr_t)src, n, type,
				   peer,    tag,          NULL };

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_isend: out is NULL");
	*out = NULL;
	return start(&w, out);
}

int kolo_irecv(struct kolo_mailbox *mailbox, void *dst, size_t n, enum kolo_type type, int peer,
	       int tag, struct kolo_request **out)
{
	const struct message w = { mailbox, "kolo_irecv", false, dst, n, type, peer, tag, NULL };

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_irecv: out is NULL");
	*out = NULL;
	return start(&w, out);
}

int kolo_request_cancel(struct kolo_request *r)
{
	struct kolo_mailbox *m;
	int rc;

	if (!r)
		return ko_fail(KOLO_EINVAL, "kolo_request_cancel: request is NULL");
	m = r->mailbox;
	rc = ko_comm_check_process(m->comm, "kolo_request_cancel");
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&m->lock);
	if (!r->sends && ko_mail_cancel(m, r)) {
		ko_fail(KOLO_EABORTED, "rank %d: kolo_request_cancel took back a receive",
			m->comm->rank);
		ko_mail_refuse(r, KOLO_EABORTED);
		ko_mail_finish(r);
	}
	pthread_mutex_unlock(&m->lock);
	return 0;
}

/* ---- Whole, and in queues -------------------------------------------------------------------- */

static int pass(const struct message *w)
{
	struct kolo_request *r;
	int rc = start(w, &r);

	return rc < 0 ? rc : kolo_request_wait(r, w->got);
}

static int pass_in_turn(void *arg)
{
	struct message *w = *(struct message **)arg;
	int rc = pass(w);

	free(w);
	return rc;
}

/* Does it now, or leaves it to the queue. */
static int pass_or_leave(const struct message *w, struct kolo_queue *queue)
{
	struct message *copy;
	int rc = check(w);

	if (rc < 0 || !queue)
		return rc < 0 ? rc : pass(w);
	copy = malloc(sizeof(*copy));
	if (!copy)
		return ko_fail(KOLO_ENOMEM,
			       "rank %d: %s: no memory for a message that is done later",
			       w->mailbox->comm->rank, w->function);
	*copy = *w;
	rc = ko_queue_put(queue, pass_in_turn, &copy, sizeof(copy));
	if (rc < 0)
		free(copy);
	return rc;
}

int kolo_send_tag(struct kolo_mailbox *mailbox, const void *src, size_t n, enum kolo_type type,
		  int peer, int tag, struct kolo_queue *queue)
{
	const struct message w = {
		mailbox, "kolo_send_tag", true, (void *)(uintptr_t)src, n, type, peer, tag, NULL
	};

	return pass_or_leave(&w, queue);
}

int kolo_recv_tag(struct kolo_mailbox *mailbox, void *dst, size_t n, enum kolo_type type, int peer,
		  int tag, struct kolo_received *got, struct kolo_queue *queue)
{
	const struct message w = { mailbox, "kolo_recv_tag", false, dst, n, type, peer, tag, got };

	return pass_or_leave(&w, queue);
}
