/* Communicators: made by jobs (kn_job_do), used by one thread at a time (kn_comm_enter), ended by
 * jobs too, or aborted from any thread. */
#include "cuda/nccl/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 22809 }; /* whose semantics these are */

/* All that were made and not destroyed. */
static struct {
	pthread_mutex_t lock;
	struct ncclComm *first;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- One ------------------------------------------------------------------------------------- */

/* In the list of all. */
struct ncclComm *kn_comm_new(void *context, int device, int rank, int nranks, bool blocking)
{
	struct ncclComm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
	*comm = (struct ncclComm){ .context = context,
				   .device = device,
				   .rank = rank,
				   .nranks = nranks,
				   .blocking = blocking };
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->changed, NULL);
	pthread_mutex_init(&comm->turn, NULL);
	pthread_mutex_lock(&all.lock);
	comm->next = all.first;
	all.first = comm;
	pthread_mutex_unlock(&all.lock);
	return comm;
}

/* Takes it out of the list of all. false: it is not there. */
bool kn_comm_take_out(struct ncclComm *comm)
{
	struct ncclComm **at;
	bool found;

	pthread_mutex_lock(&all.lock);
	for (at = &all.first; *at && *at != comm; at = &(*at)->next)
		;
	found = *at;
	if (found)
		*at = comm->next;
	pthread_mutex_unlock(&all.lock);
	return found;
}

void kn_comm_free(struct ncclComm *comm)
{
	kn_queues_close(&comm->queues);
	kolo_comm_destroy(comm->kolo);
	pthread_mutex_destroy(&comm->lock);
	pthread_cond_destroy(&comm->changed);
	pthread_mutex_destroy(&comm->turn);
	free(comm);
}

void kn_comm_set_state(struct ncclComm *comm, enum kn_state state, ncclResult_t result)
{
	bool dropped;

	pthread_mutex_lock(&comm->lock);
	comm->state = state;
	comm->result = result;
	dropped = comm->dropped;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	if (dropped)
		kn_comm_free(comm);
}

/* ---- Who works with it ----------------------------------------------------------------------- */

ncclResult_t kn_comm_check(struct ncclComm *comm, const char *function)
{
	enum kn_state state;
	ncclResult_t result;

	if (!comm)
		return kn_fail(NULL, ncclInvalidArgument, "%s: the communicator is NULL", function);
	pthread_mutex_lock(&comm->lock);
	state = comm->state;
	result = comm->result;
	pthread_mutex_unlock(&comm->lock);
	switch (state) {
	case KN_READY: return ncclSuccess;
	case KN_MAKING:
		return kn_fail(comm, ncclInvalidArgument,
			       "%s: the communicator is being made: want ncclSuccess of "
			       "ncclCommGetAsyncError before",
			       function);
	case KN_FAILED: return result;
	default:
		return kn_fail(comm, ncclInvalidUsage, "%s: the communicator was finalized",
			       function);
	}
}

ncclResult_t kn_comm_enter(struct ncclComm *comm, void **before)
{
	bool aborted;

	pthread_mutex_lock(&comm->lock);
	aborted = comm->aborted;
	comm->calls += !aborted;
	pthread_mutex_unlock(&comm->lock);
	if (aborted)
		return kn_fail(NULL, ncclRemoteError, "the communicator was aborted");
	pthread_mutex_lock(&comm->turn);
	*before = kn_context_use(comm->context);
	return ncclSuccess;
}

void kn_comm_leave(struct ncclComm *comm, void *before)
{
	kn_context_use(before);
	pthread_mutex_unlock(&comm->turn);
	pthread_mutex_lock(&comm->lock);
	comm->calls--;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Joins the GPUs of a communicator of Kolo's. */
static int connect_gpus(struct ncclComm *comm)
{
	struct kolo_queue *queue;
	int rc = kn_queue_of(&comm->queues, NULL, &queue); /* that of the current context */

	return rc < 0 ? rc : kolo_cuda_connect(comm->kolo, queue);
}

/* A rank that is late is waited for, as NCCL does: the timeout is off, unless KOLO_TIMEOUT is set.
 * A rank that dies is noticed all the same. */
static int make(struct ncclComm *comm, const ncclUniqueId *id)
{
	const char *p2p = getenv("NCCL_P2P_DISABLE"), *timeout = getenv("KOLO_TIMEOUT");
	struct kolo_comm_attr attr = { .rank = comm->rank,
				       .nranks = comm->nranks,
				       .timeout_s = timeout && *timeout ? 0 : -1,
				       .log = kn_log_level() ? kn_log : NULL,
				       .log_level = kn_log_level() };
	struct kolo_id bytes;
	int rc;

	if (p2p && *p2p && strcmp(p2p, "0") != 0)
		attr.transport = "shm";
	memcpy(bytes.bytes, id->internal, sizeof(bytes.bytes));
	attr.id = &bytes;
	rc = kolo_comm_create(&attr, &comm->kolo);
	return rc < 0 ? rc : connect_gpus(comm);
}

static int split(struct kn_job *job)
{
	struct kolo_comm *made = NULL;
	int rc = kolo_comm_split(job->parent->kolo, job->color, job->key, &made);

	if (!job->comm)
		return rc;
	job->comm->kolo = made;
	if (rc < 0)
		return rc;
	job->comm->rank = kolo_comm_rank(made);
	job->comm->nranks = kolo_comm_nranks(made);
	return connect_gpus(job->comm);
}

/* Waits until no other thread is in a call. */
static void wait_for_calls(struct ncclComm *comm)
{
	pthread_mutex_lock(&comm->lock);
	while (comm->calls || comm->state == KN_FINALIZING)
		pthread_cond_wait(&comm->changed, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
}

static void begin_destroy(struct ncclComm *comm)
{
	void *before = kn_context_use(comm->context);

	wait_for_calls(comm);
	kn_comm_free(comm);
	kn_context_use(before);
}

/* The parent stays until a split is over. */
void kn_comm_count_split(struct ncclComm *parent, int by)
{
	pthread_mutex_lock(&parent->lock);
	parent->calls += by;
	parent->splits += by;
	pthread_cond_broadcast(&parent->changed);
	pthread_mutex_unlock(&parent->lock);
}

static void do_split(struct kn_job *job)
{
	void *before;

	job->result = kn_comm_enter(job->parent, &before);
	if (job->result == ncclSuccess) {
		job->result = kn_result(job->comm ? job->comm : job->parent, split(job));
		kn_comm_leave(job->parent, before);
	}
	kn_comm_count_split(job->parent, -1);
}

void kn_job_do(struct kn_job *job)
{
	struct ncclComm *comm = job->comm;
	void *before;

	if (job->kind == KN_DESTROY) {
		begin_destroy(comm);
		job->result = ncclSuccess;
		return;
	}
	if (job->kind == KN_SPLIT) {
		do_split(job);
	} else {
		before = kn_context_use(comm->context);
		job->result = kn_result(comm, job->kind == KN_INIT ? make(comm, &job->id)
								   : kn_queues_wait(&comm->queues));
		kn_context_use(before);
	}
	if (!comm)
		return;
	if (job->result != ncclSuccess)
		kn_comm_set_state(comm, KN_FAILED, job->result);
	else
		kn_comm_set_state(comm, job->kind == KN_FINALIZE ? KN_FINALIZED : KN_READY,
				  ncclSuccess);
}

ncclResult_t kn_job_drop(struct kn_job *job, ncclResult_t result)
{
	job->result = result;
	if (job->kind == KN_SPLIT)
		kn_comm_count_split(job->parent, -1);
	if (job->comm && job->kind != KN_DESTROY)
		kn_comm_set_state(job->comm, KN_FAILED, result);
	return result;
}

/* ---- Questions ------------------------------------------------------------------------------- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
	int rc;

	if (!comm || !out)
		return kn_fail(NULL, ncclInvalidArgument,
			       "ncclCommGetAsyncError: comm and asyncError must not be NULL");
	pthread_mutex_lock(&comm->lock);
	*out = comm->result;
	if (comm->state == KN_MAKING || comm->state == KN_FINALIZING || comm->splits) {
		*out = ncclInProgress;
	} else if (*out == ncclSuccess && (rc = kolo_comm_status(comm->kolo)) < 0) {
		*out = kn_code(rc);
		snprintf(comm->text, sizeof(comm->text), "%s", kolo_last_error());
	}
	pthread_mutex_unlock(&comm->lock);
	return ncclSuccess;
}

KN_TWIN(ncclCommGetAsyncError);

/* Reports a number of a communicator that is made. */
static ncclResult_t tell(struct ncclComm *comm, const char *function, const int *number, int *out)
{
	ncclResult_t result = ncclSuccess;

	if (!comm || !out)
		return kn_fail(NULL, ncclInvalidArgument, "%s: no argument may be NULL", function);
	pthread_mutex_lock(&comm->lock);
	if (comm->state == KN_MAKING)
		result = ncclInProgress;
	else
		*out = *number;
	pthread_mutex_unlock(&comm->lock);
	return result;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *out)
{
	return tell(comm, "ncclCommCount", comm ? &comm->nranks : NULL, out);
}

KN_TWIN(ncclCommCount);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *out)
{
	return tell(comm, "ncclCommUserRank", comm ? &comm->rank : NULL, out);
}

KN_TWIN(ncclCommUserRank);

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *out)
{
	return tell(comm, "ncclCommCuDevice", comm ? &comm->device : NULL, out);
}

KN_TWIN(ncclCommCuDevice);

ncclResult_t ncclGetVersion(int *version)
{
	const char *asked = getenv("KOLO_NCCL_VERSION");
	int number = asked ? atoi(asked) : 0;

	if (!version)
		return kn_fail(NULL, ncclInvalidArgument, "ncclGetVersion: version is NULL");
	*version = number > 0 ? number : VERSION;
	return ncclSuccess;
}

KN_TWIN(ncclGetVersion);

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
	struct kolo_id id;
	ncclResult_t result;

	if (!out)
		return kn_fail(NULL, ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
	kn_log_level(); /* reads the environment */
	result = kn_result(NULL, kolo_id_create(&id));
	if (result == ncclSuccess)
		memcpy(out->internal, id.bytes, sizeof(out->internal));
	return result;
}

KN_TWIN(ncclGetUniqueId);
