/* Queues that are CUDA streams: the functions of kolo_cuda.h, except for registering and allocating
 * memory. An operation with such a queue is recorded during its call (record, record_messages). */
#include "cuda/api/stream.h"
#include "cuda/api/connect.h"
#include "cuda/gpu/uses.h"
#include "cuda/stream/record.h"

#include "comm/api/group.h"

#include "kolo/kolo_cuda.h"

#include <stdlib.h>

#define PER_THREAD ((struct CUstream_st *)2) /* CU_STREAM_PER_THREAD */

struct ko_stream *ko_stream_of(struct kolo_queue *queue)
{
	return queue && queue->stream ? (struct ko_stream *)queue : NULL;
}

/* Is the queue on the GPU that the communicator has joined? */
static int check_gpu(const struct ko_stream *s, const struct ko_gpu_comm *g)
{
	const struct ko_gpu_info *mine = s->driver->info(s->gpu), *joined = s->driver->info(g->gpu);

	if (s->driver->same(s->gpu, g->gpu))
		return 0;
	return ko_fail(
		KOLO_EINVAL,
		"rank %d: a queue on GPU %d (%s), where this communicator has used GPU %d (%s), or another context, before: want "
		"queues of one context for each communicator",
		g->comm->rank, mine->ordinal, mine->bus, joined->ordinal, joined->bus);
}

int ko_stream_join(struct ko_stream *s, struct kolo_comm *comm, struct ko_gpu_comm **out)
{
	int rc = ko_gpu_of(comm) ? 0 : ko_gpu_connect(comm, s->stream);

	*out = ko_gpu_of(comm);
	if (rc == 0)
		rc = check_gpu(s, *out);
	if (rc == 0 && (rc = ko_gpu_use(*out, s->uses)) < 0) /* the others wait for this rank */
		rc = ko_comm_fail(comm, rc, "%s", kolo_last_error());
	return rc;
}

int ko_stream_ask(const struct ko_stream *s, const void *pointer, struct kolo_cuda_pointer *out)
{
	int rc = s->driver->enter(s->gpu);

	*out = (struct kolo_cuda_pointer){ .device = -1 };
	if (rc == 0) {
		rc = s->driver->pointer(s->gpu, pointer, out);
		s->driver->leave(s->gpu);
	}
	return rc < 0 ? ko_fail(rc, "GPU %d: asking what memory %p is: %s",
				s->driver->info(s->gpu)->ordinal, pointer, s->driver->text())
		      : 0;
}

static int check_pointer(const struct ko_stream *s, const struct ko_call *call, const char *name,
			 const void *pointer)
{
	struct kolo_cuda_pointer p;
	int rc = ko_stream_ask(s, pointer, &p);

	if (rc < 0 || p.usable)
		return rc;
	return ko_fail(
		KOLO_EINVAL,
		"rank %d: kolo_%s: %s (%p) is %s, which GPU %d can't use: want its own memory, managed, or registered "
		"with CUDA",
		call->comm->rank, ko_coll_name((int)call->coll), name, pointer,
		p.kind == KOLO_CUDA_DEVICE ? "another GPU's memory" : "ordinary memory",
		s->driver->info(s->gpu)->ordinal);
}

/* Those that this rank reads and writes. */
static int check_pointers(const struct ko_stream *s, const struct ko_call *call)
{
	bool root = call->comm->rank == call->root;
	bool src = call->src && ((call->coll != KO_BROADCAST && call->coll != KO_SCATTER) || root);
	bool dst = call->dst && ((call->coll != KO_REDUCE && call->coll != KO_GATHER) || root);
	int rc = 0;

	if (call->coll == KO_BARRIER || (call->n == 0 && !call->uneven))
		return 0;
	if (src)
		rc = check_pointer(s, call, "src", call->src);
	return rc == 0 && dst ? check_pointer(s, call, "dst", call->dst) : rc;
}

/* The pointers of a call, whose other ranks wait for this one. */
static int check_call(const struct ko_stream *s, const struct ko_call *call)
{
	int rc = check_pointers(s, call);

	return rc < 0 && rc != KOLO_EINVAL ? ko_comm_fail(call->comm, rc, "rank %d: %s",
							  call->comm->rank, kolo_last_error())
					   : rc;
}

/* Not all ranks take part in a send or recv, so it can't join the GPUs. */
static int check_joined(const struct ko_call *call)
{
	if (ko_gpu_of(call->comm))
		return 0;
	return ko_fail(
		KOLO_EINVAL,
		"rank %d: kolo_%s on a stream: this communicator has not joined its GPUs: want a call of "
		"kolo_cuda_connect on all ranks before, or a collective with a stream",
		call->comm->rank, ko_coll_name((int)call->coll));
}

/* Checks a send or recv, and adds its stream to those of the others. */
static int add_message(struct ko_gpu_calls *calls, const struct ko_call *call)
{
	struct ko_stream *s = ko_stream_of(call->queue);
	struct ko_gpu_comm *g;
	size_t k = 0;
	int rc = check_joined(call);

	if (rc == 0)
		rc = check_call(s, call);
	if (rc == 0)
		rc = ko_stream_join(s, call->comm, &g);
	while (k < calls->nstreams && calls->streams[k] != s->stream)
		k++;
	if (k == calls->nstreams)
		calls->streams[calls->nstreams++] = s->stream;
	return rc;
}

static int record_messages(const struct ko_call *const *all, size_t count)
{
	struct ko_gpu_calls calls = { .all = all, .n = count };
	void *one;
	int rc = 0;

	calls.streams = count == 1 ? &one : malloc(count * sizeof(void *));
	if (!calls.streams)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory for %zu sends and recvs",
			       all[0]->comm->rank, count);
	for (size_t k = 0; rc == 0 && k < count; k++)
		rc = add_message(&calls, all[k]);
	if (rc == 0)
		rc = ko_gpu_record_messages(ko_gpu_of(all[0]->comm), &calls);
	if (count > 1)
		free(calls.streams);
	return rc;
}

static int record(struct kolo_queue *q, const struct ko_call *call, const struct ko_reducer *red)
{
	struct ko_stream *s = ko_stream_of(q);
	struct ko_gpu_comm *g;
	int rc;

	if (ko_coll_is_message(call->coll))
		return record_messages(&call, 1);
	rc = check_call(s, call);
	if (rc == 0)
		rc = ko_stream_join(s, call->comm, &g);
	return rc < 0 ? rc : ko_gpu_record(g, s->stream, call, red);
}

static bool is_same(const struct kolo_queue *a, const struct kolo_queue *b)
{
	const struct ko_stream *s = (const struct ko_stream *)a,
			       *other = (const struct ko_stream *)b;

	return s->stream == other->stream && s->driver->same(s->gpu, other->gpu);
}

static int wait_stream(struct kolo_queue *q)
{
	struct ko_stream *s = ko_stream_of(q);
	int rc = s->driver->enter(s->gpu);

	if (rc == 0) {
		rc = s->driver->finish(s->gpu, s->stream);
		s->driver->leave(s->gpu);
	}
	if (rc < 0)
		return ko_fail(rc, "kolo_queue_wait: GPU %d: waiting for a stream: %s",
			       s->driver->info(s->gpu)->ordinal, s->driver->text());
	return ko_gpu_uses_failure(s->uses);
}

/* ---- Events of kolo.h ------------------------------------------------------------------------ */

/* A place on a stream, an event of the driver's. It holds the queue's GPU. */
struct mark {
	struct ko_stream_mark mark; /* first */
	struct ko_stream *s;
	void *event;
};

static int mark_error(const struct ko_stream *s, int rc)
{
	return ko_fail(rc, "GPU %d: an event on a stream: %s", s->driver->info(s->gpu)->ordinal,
		       s->driver->text());
}

static int poll_mark(struct ko_stream_mark *mark)
{
	const struct mark *m = (const struct mark *)mark;
	int rc = m->s->driver->enter(m->s->gpu);

	if (rc == 0) {
		rc = m->s->driver->event_poll(m->s->gpu, m->event);
		m->s->driver->leave(m->s->gpu);
	}
	return rc < 0 ? mark_error(m->s, rc) : rc;
}

static int finish_mark(struct ko_stream_mark *mark)
{
	const struct mark *m = (const struct mark *)mark;
	int rc = m->s->driver->enter(m->s->gpu);

	if (rc == 0) {
		rc = m->s->driver->event_finish(m->s->gpu, m->event);
		m->s->driver->leave(m->s->gpu);
	}
	return rc < 0 ? mark_error(m->s, rc) : 0;
}

static void let_go(struct ko_stream *s)
{
	if (atomic_fetch_sub(&s->holders, 1) > 1)
		return;
	if (s->gpu)
		s->driver->close(s->gpu);
	if (s->uses)
		ko_gpu_uses_let_go(s->uses);
	free(s);
}

static void free_mark(struct ko_stream_mark *mark)
{
	struct mark *m = (struct mark *)mark;

	if (m->event && m->s->driver->enter(m->s->gpu) == 0) {
		m->s->driver->event_destroy(m->s->gpu, m->event);
		m->s->driver->leave(m->s->gpu);
	}
	let_go(m->s);
	free(m);
}

static int mark_stream(struct kolo_queue *q, struct ko_stream_mark **out)
{
	struct ko_stream *s = ko_stream_of(q);
	struct mark *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return ko_fail(KOLO_ENOMEM, "kolo_event_record: no memory for an event");
	atomic_fetch_add(&s->holders, 1);
	*m = (struct mark){ .mark = { poll_mark, finish_mark, free_mark }, .s = s };
	rc = s->driver->enter(s->gpu);
	if (rc == 0) {
		rc = s->driver->event_create(s->gpu, &m->event);
		if (rc == 0)
			rc = s->driver->event_record(s->gpu, m->event, s->stream);
		s->driver->leave(s->gpu);
	}
	if (rc < 0) {
		rc = mark_error(s, rc);
		free_mark(&m->mark);
		return rc;
	}
	*out = &m->mark;
	return 0;
}

static int await_mark(struct kolo_queue *q, struct ko_stream_mark *mark)
{
	const struct mark *m = (const struct mark *)mark;
	struct ko_stream *s = ko_stream_of(q);
	int rc = s->driver->enter(s->gpu);

	if (rc == 0) {
		rc = s->driver->event_await(s->gpu, s->stream, m->event);
		s->driver->leave(s->gpu);
	}
	return rc < 0 ? mark_error(s, rc) : 0;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static void destroy_stream(struct kolo_queue *q)
{
	let_go(ko_stream_of(q));
}
int kolo_cuda_queue_create(struct CUstream_st *stream, struct kolo_queue **out)
{
	static const struct ko_stream_ops ops = { .record = record,
						  .messages = record_messages,
						  .mark = mark_stream,
						  .await = await_mark,
						  .same = is_same,
						  .wait = wait_stream,
						  .destroy = destroy_stream };
	const struct ko_driver *driver;
	struct ko_stream *s;
	int rc;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_cuda_queue_create: out is NULL");
	*out = NULL;
	if (stream == PER_THREAD) /* each thread has another one, and groups use several */
		return ko_fail(KOLO_EINVAL,
			       "kolo_cuda_queue_create: the default stream of each thread "
			       "(cudaStreamPerThread): want a stream of the program's own");
	if ((rc = ko_driver_get(&driver)) < 0)
		return rc;
	s = calloc(1, sizeof(*s));
	if (s)
		s->uses = ko_gpu_uses_create();
	if (!s || !s->uses) {
		free(s);
		return ko_fail(KOLO_ENOMEM, "kolo_cuda_queue_create: no memory for a queue");
	}
	s->queue.stream = &ops;
	atomic_store(&s->holders, 1);
	s->driver = driver;
	s->stream = stream;
	rc = driver->open(stream, &s->gpu);
	if (rc < 0) {
		rc = ko_fail(rc, "kolo_cuda_queue_create: %s", driver->text());
		s->gpu = NULL;
		destroy_stream(&s->queue);
		return rc;
	}
	*out = &s->queue;
	return 0;
}

int kolo_cuda_connect(struct kolo_comm *comm, struct kolo_queue *queue)
{
	struct ko_stream *s = ko_stream_of(queue);
	struct ko_gpu_comm *g;
	int rc;

	if (!comm || !s)
		return ko_fail(
			KOLO_EINVAL,
			"kolo_cuda_connect: comm must not be NULL, and queue must be from kolo_cuda_queue_create");
	if ((rc = ko_group_refuse(comm, "kolo_cuda_connect")) < 0)
		return rc;
	ko_order_settle(comm->order);
	return ko_stream_join(s, comm, &g);
}

int kolo_cuda_pointer_get(struct kolo_queue *queue, const void *pointer,
			  struct kolo_cuda_pointer *out)
{
	struct ko_stream *s = ko_stream_of(queue);

	if (!s || !out)
		return ko_fail(
			KOLO_EINVAL,
			"kolo_cuda_pointer_get: out must not be NULL, and queue must be from "
			"kolo_cuda_queue_create");
	return ko_stream_ask(s, pointer, out);
}
