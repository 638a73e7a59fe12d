/* Groups (ncclGroupStart, ncclGroupEnd): what this thread has left for the end of its group.
 * Without a group it is done at once. */
#include "cuda/nccl/inside.h"

#include <stdlib.h>

/* An op to be freed at the end of the group. */
struct op {
	struct op *next;
	struct ncclComm *comm;
	enum kolo_op op;
};

static _Thread_local struct group {
	int depth;
	struct kn_call *calls, **calls_end;
	struct kn_job *jobs, **jobs_end;
	struct op *ops;
} group;

/* ---- Operations ------------------------------------------------------------------------------ */

/* Puts the operation on its stream. The thread works with the communicator. */
static int put(const struct kn_call *w)
{
	struct kolo_comm *c = w->comm->kolo;
	struct kolo_queue *q;
	int rc = kn_queue_of(&w->comm->queues, w->stream, &q);

	if (rc < 0)
		return rc;
	switch (w->kind) {
	case KN_ALL_REDUCE: return kolo_all_reduce(c, w->src, w->dst, w->n, w->type, w->op, q);
	case KN_REDUCE: return kolo_reduce(c, w->src, w->dst, w->n, w->type, w->op, w->root, q);
	case KN_REDUCE_SCATTER:
		return kolo_reduce_scatter(c, w->src, w->dst, w->n, w->type, w->op, q);
	case KN_BROADCAST: return kolo_broadcast(c, w->src, w->dst, w->n, w->type, w->root, q);
	case KN_ALL_GATHER: return kolo_all_gather(c, w->src, w->dst, w->n, w->type, q);
	case KN_ALL_TO_ALL: return kolo_all_to_all(c, w->src, w->dst, w->n, w->type, q);
	case KN_GATHER: return kolo_gather(c, w->src, w->dst, w->n, w->type, w->root, q);
	case KN_SCATTER: return kolo_scatter(c, w->src, w->dst, w->n, w->type, w->root, q);
	case KN_SEND: return kolo_send(c, w->src, w->n, w->type, w->root, q);
	default: return kolo_recv(c, w->dst, w->n, w->type, w->root, q);
	}
}

static ncclResult_t do_one(const struct kn_call *call)
{
	void *before;
	ncclResult_t result = kn_comm_enter(call->comm, &before);

	if (result != ncclSuccess)
		return result;
	result = kn_result(call->comm, put(call));
	kn_comm_leave(call->comm, before);
	return result;
}

/* The communicator of the calls that comes after another one, by its address. NULL: none does. */
static struct ncclComm *next_comm(const struct kn_call *first, const struct ncclComm *last)
{
	struct ncclComm *found = NULL;

	for (const struct kn_call *call = first; call; call = call->next)
		if ((uintptr_t)call->comm > (uintptr_t)last &&
		    (!found || (uintptr_t)call->comm < (uintptr_t)found))
			found = call->comm;
	return found;
}

/* Does the calls with the communicators entered. */
static ncclResult_t do_entered(const struct kn_call *first)
{
	ncclResult_t result = kn_result(NULL, kolo_group_begin()), ended;

	for (const struct kn_call *call = first; call && result == ncclSuccess; call = call->next) {
		kn_context_use(call->comm->context);
		result = kn_result(call->comm, put(call));
	}
	ended = kn_result(first->comm, kolo_group_end());
	return result == ncclSuccess ? ended : result;
}

/* All communicators belong to this thread while the group is done. All threads enter them in one
 * order, so that none waits for another in a circle. */
static ncclResult_t do_calls(const struct kn_call *first)
{
	struct ncclComm *comm, *entered = NULL;
	void *before = NULL, *old;
	ncclResult_t result = ncclSuccess;

	while ((comm = next_comm(first, entered))) {
		result = kn_comm_enter(comm, &old);
		if (result != ncclSuccess)
			break;
		before = entered ? before : old;
		entered = comm;
	}
	if (result == ncclSuccess)
		result = do_entered(first);
	for (comm = next_comm(first, NULL); comm && (uintptr_t)comm <= (uintptr_t)entered;
	     comm = next_comm(first, comm))
		kn_comm_leave(comm, before);
	return result;
}

ncclResult_t kn_group_call(const struct kn_call *call)
{
	struct kn_call *copy;
	ncclResult_t result;

	if (!group.depth) {
		result = do_one(call);
		kn_comm_let_go(call->comm);
		return result;
	}
	copy = malloc(sizeof(*copy));
	if (!copy) {
		kn_comm_let_go(call->comm);
		return kn_fail(NULL, ncclSystemError, "no memory for a call of a group");
	}
	*copy = *call;
	copy->next = NULL;
	*(group.calls ? group.calls_end : &group.calls) = copy;
	group.calls_end = &copy->next;
	return ncclSuccess;
}

static ncclResult_t free_op(struct ncclComm *comm, enum kolo_op op)
{
	void *before;
	ncclResult_t result = kn_comm_enter(comm, &before);

	if (result == ncclSuccess) {
		result = kn_result(comm, kolo_op_destroy(comm->kolo, op));
		kn_comm_leave(comm, before);
	}
	kn_comm_let_go(comm);
	return result;
}

ncclResult_t kn_group_free_op(struct ncclComm *comm, enum kolo_op op)
{
	struct op *later;

	if (!group.depth)
		return free_op(comm, op);
	later = malloc(sizeof(*later));
	if (!later) {
		kn_comm_let_go(comm);
		return kn_fail(NULL, ncclSystemError, "no memory for a call of a group");
	}
	*later = (struct op){ group.ops, comm, op };
	group.ops = later;
	return ncclSuccess;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static void *run(void *arg)
{
	kn_job_do(arg);
	return NULL;
}

static void *run_alone(void *arg)
{
	kn_job_do(arg);
	free(arg);
	return NULL;
}

/* Gives the job to a thread that nobody waits for. */
static ncclResult_t leave(struct kn_job *job)
{
	struct kn_job *copy = malloc(sizeof(*copy));
	pthread_attr_t detached;
	pthread_t thread;
	int err;

	if (!copy)
		return kn_job_drop(job, kn_fail(NULL, ncclSystemError, "no memory for a thread"));
	*copy = *job;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &detached, run_alone, copy);
	pthread_attr_destroy(&detached);
	if (err == 0)
		return ncclInProgress;
	free(copy);
	return kn_job_drop(job, kn_fail(NULL, ncclSystemError, "no thread for a communicator"));
}

static void start(struct kn_job *job)
{
	if (!job->blocking)
		job->result = leave(job);
	else if (pthread_create(&job->thread, NULL, run, job) == 0)
		job->joinable = true;
	else
		job->lost = true;
}

/* Those that block are done together, a thread for each but the first. */
static ncclResult_t do_jobs(struct kn_job *first)
{
	ncclResult_t result = ncclSuccess;

	for (struct kn_job *job = first->blocking ? first->next : first; job; job = job->next)
		start(job);
	if (first->blocking)
		kn_job_do(first);
	for (struct kn_job *job = first; job; job = job->next) {
		if (job->joinable)
			pthread_join(job->thread, NULL);
		else if (job->lost)
			kn_job_drop(job,
				    kn_fail(NULL, ncclSystemError, "no thread for a communicator"));
		if (result == ncclSuccess || result == ncclInProgress)
			result = job->result == ncclSuccess ? result : job->result;
	}
	return result;
}

ncclResult_t kn_group_job(const struct kn_job *job)
{
	struct kn_job *copy, now = *job;

	if (!group.depth) {
		now.next = NULL;
		return do_jobs(&now);
	}
	copy = malloc(sizeof(*copy));
	if (!copy)
		return kn_job_drop(
			&now, kn_fail(NULL, ncclSystemError, "no memory for a call of a group"));
	*copy = *job;
	copy->next = NULL;
	*(group.jobs ? group.jobs_end : &group.jobs) = copy;
	group.jobs_end = &copy->next;
	return ncclSuccess;
}

/* ---- The functions --------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

KN_TWIN(ncclGroupStart);

/* After the calls, and before a job that ends a communicator. */
static void free_calls(struct group *g)
{
	while (g->calls) {
		struct kn_call *call = g->calls;

		g->calls = call->next;
		kn_comm_let_go(call->comm);
		free(call);
	}
	while (g->ops) {
		struct op *op = g->ops;

		g->ops = op->next;
		free_op(op->comm, op->op);
		free(op);
	}
}

static void free_jobs(struct group *g)
{
	while (g->jobs) {
		struct kn_job *job = g->jobs;

		g->jobs = job->next;
		free(job);
	}
}

void kn_group_cancel(void)
{
	struct group mine = group;

	group = (struct group){ 0 };
	free_calls(&mine);
	for (struct kn_job *job = mine.jobs; job; job = job->next)
		kn_job_drop(job, ncclInvalidUsage);
	free_jobs(&mine);
}

/* Ends the group of this thread, which the caller has from then on. false: it goes on, or there is
 * none. */
static ncclResult_t take_group(struct group *out, const char *function, bool *over)
{
	*over = false;
	if (group.depth == 0)
		return kn_fail(NULL, ncclInvalidUsage, "%s: there is no ncclGroupStart before it",
			       function);
	*over = --group.depth == 0;
	if (*over) {
		*out = group;
		group = (struct group){ 0 };
	}
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	struct group mine;
	bool over;
	ncclResult_t result = take_group(&mine, "ncclGroupEnd", &over), jobs;

	if (!over)
		return result;
	if (mine.calls)
		result = do_calls(mine.calls);
	free_calls(&mine);
	if (mine.jobs) {
		jobs = do_jobs(mine.jobs);
		result = result == ncclSuccess ? jobs : result;
	}
	free_jobs(&mine);
	return result;
}

KN_TWIN(ncclGroupEnd);

/* No time is estimated. The group is dropped, as NCCL does; communicators that it was to end are
 * ended. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
	struct group mine;
	bool over;
	ncclResult_t result = take_group(&mine, "ncclGroupSimulateEnd", &over);

	if (!over)
		return result;
	free_calls(&mine);
	if (mine.jobs)
		result = do_jobs(mine.jobs);
	free_jobs(&mine);
	if (info)
		info->estimatedTime = -1;
	return result == ncclSuccess ? kn_fail(NULL, ncclInvalidUsage,
					       "ncclGroupSimulateEnd: no time is estimated")
				     : result;
}

KN_TWIN(ncclGroupSimulateEnd);
