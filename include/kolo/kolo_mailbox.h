/* Messages with tags, as in MPI: they match by rank and tag, may come in any order, and don't wait
 * for collectives or for each other.
 *
 * kolo_send and kolo_recv of kolo.h have their place in the order of a communicator. Messages of a
 * mailbox have none. They are apart from everything else that the communicator does.
 *
 * - A message matches a receive with the same tag that names its sender, or KOLO_ANY_RANK or
 *   KOLO_ANY_TAG. Messages that match the same receive are received in the order in which their
 *   sender sent them. Receives that match the same message get it in the order of their calls.
 * - Any thread may use a mailbox at any time, and several may at the same time.
 * - kolo_isend and kolo_irecv return at once. Messages move on in every call on the mailbox that
 *   waits or tests, for whatever request. On one host a long message needs only its receiver to
 *   move. Between hosts it needs both ends to wait or test. A queue can do the waiting
 *   (kolo_send_tag, kolo_recv_tag).
 * - Buffers are in host memory.
 *
 * Memory: a mailbox has what a communicator has (kolo.h). In addition a rank keeps messages that
 * have come and match no receive yet: at most KOLO_MAILBOX_KEPT bytes from each other rank. A
 * sender whose messages fill that keeps later ones in its own buffers until they match. So nothing
 * is lost, and no other message is held up. kolo_mailbox_memory counts it all. */
#ifndef KOLO_MAILBOX_H
#define KOLO_MAILBOX_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define KOLO_ANY_RANK     (-1)
#define KOLO_ANY_TAG      (-1)
#define KOLO_MAILBOX_KEPT (64 << 10)

struct kolo_mailbox; /* one rank's end of the messages with tags of a communicator's ranks */
struct kolo_request; /* one message that is sent or received */

/* What a receive has got. A send fills in its own arguments. */
struct kolo_received {
	int peer;             /* the rank that sent it; of a send: its receiver */
	int tag;              /* of the message */
	size_t n;             /* elements of the message */
	uint64_t reserved[2]; /* zero */
};

/* Makes a mailbox for the ranks of `comm`. A collective over comm: every rank calls it in the same
 * place between its collectives. Blocks. A communicator may have several mailboxes; messages of one
 * are not seen by others. If comm fails, so does the mailbox. The timeout is that of comm. The
 * caller gives *out to kolo_mailbox_destroy, before it destroys comm.
 *
 * Errors: those of kolo_comm_split. Then *out is NULL. */
int kolo_mailbox_create(struct kolo_comm *comm, struct kolo_mailbox **out);

/* Leaves a mailbox and frees it, with all its requests. Their messages may be lost, except short
 * ones whose send is done. It does not wait for other ranks: a rank that still needs this one gets
 * KOLO_EPEER. NULL is allowed. No other call on the mailbox may be running or follow. */
void kolo_mailbox_destroy(struct kolo_mailbox *mailbox);

/* Starts to send n elements to rank `peer`. The request is done when src may be written again: a
 * short message when it is on its way, a long one when it has been received. peer may be this rank.
 * tag is 0 or more. The caller gives *out to kolo_request_wait. Never blocks.
 *
 * Errors: KOLO_EINVAL, KOLO_ENOMEM, or what the mailbox has failed with. */
int kolo_isend(struct kolo_mailbox *mailbox, const void *src, size_t n, enum kolo_type type,
	       int peer, int tag, struct kolo_request **out);

/* Starts to receive a message of up to n elements from rank `peer` or KOLO_ANY_RANK, with this tag
 * or KOLO_ANY_TAG. The request is done when dst may be read. The caller gives *out to
 * kolo_request_wait. Never blocks.
 *
 * Errors: those of kolo_isend. */
int kolo_irecv(struct kolo_mailbox *mailbox, void *dst, size_t n, enum kolo_type type, int peer,
	       int tag, struct kolo_request **out);

/* Moves messages on as far as possible, and reports whether this one is done: *done becomes 1 or 0.
 * A request that has failed is done, too. Never blocks.
 *
 * Errors: KOLO_EINVAL. */
int kolo_request_test(struct kolo_request *request, int *done);

/* Does what kolo_request_test does, but blocks until the request is done, or `ms` milliseconds at
 * most.
 *
 * Errors: KOLO_EINVAL. */
int kolo_request_poll(struct kolo_request *request, int ms, int *done);

/* Blocks until the request is done, and frees it. `got` may be NULL.
 *
 * Errors:
 * - KOLO_EMISMATCH: the message has another type or more elements than the receive. It is dropped,
 *   its send is done, and the mailbox still works.
 * - KOLO_EABORTED: kolo_request_cancel came first, or some rank called kolo_comm_abort on the
 *   communicator.
 * - KOLO_EPEER, KOLO_ETIMEDOUT, KOLO_ENOMEM, KOLO_ESYS: the mailbox has failed on all ranks and
 *   stays failed. A receive from KOLO_ANY_RANK fails if any rank dies that this one notices. */
int kolo_request_wait(struct kolo_request *request, struct kolo_received *got);

/* Takes back a receive that no message has matched yet: it is done, with KOLO_EABORTED. Otherwise,
 * and for a send, it does nothing: the request goes on. The caller still calls kolo_request_wait.
 * Never blocks.
 *
 * Errors: KOLO_EINVAL. */
int kolo_request_cancel(struct kolo_request *request);

/* Sends n elements to rank `peer` with a tag. With `queue` NULL it blocks until src may be written
 * again. Otherwise the queue does it in its turn: the message starts when the queue comes to it,
 * and the queue goes on when it is done. Messages in two queues don't wait for each other, so they
 * may cross.
 *
 * Errors: those of kolo_isend and kolo_request_wait; KOLO_ENOTSUP if the queue is a stream. */
int kolo_send_tag(struct kolo_mailbox *mailbox, const void *src, size_t n, enum kolo_type type,
		  int peer, int tag, struct kolo_queue *queue);

/* Receives a message of up to n elements, as kolo_irecv does. With `queue` NULL it blocks until dst
 * may be read. Otherwise the queue does it in its turn, as in kolo_send_tag. `got` may be NULL. It
 * must stay valid until the operation is done.
 *
 * Errors: those of kolo_send_tag. */
int kolo_recv_tag(struct kolo_mailbox *mailbox, void *dst, size_t n, enum kolo_type type, int peer,
		  int tag, struct kolo_received *got, struct kolo_queue *queue);

/* The bytes that this rank has allocated for the mailbox: what its communicator has, lanes to other
 * ranks, requests, and messages that have come and match no receive yet. Never fails. */
size_t kolo_mailbox_memory(struct kolo_mailbox *mailbox);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
