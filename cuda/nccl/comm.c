/* Communicators: made by jobs (kn_job_do), used by one thread at a time (kn_comm_enter), ended by
 * jobs too, or aborted from any thread. */
#include "cuda/nccl/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
				   .blocking = blocking,
				   .holders = 1 };
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->changed, NULL);
	pthread_mutex_init(&comm->turn, NULL);
	pthread_mutex_lock(&all.lock);
	comm->next = all.first;
	all.first = comm;
	pthread_mutex_unlock(&all.lock);
	return comm;
}

/* With the lock of the list. NULL: it is not there. */
static struct ncclComm **find(const struct ncclComm *comm)
{
	struct ncclComm **at = &all.first;

	while (*at && *at != comm)
		at = &(*at)->next;
	return *at ? at : NULL;
}

bool kn_comm_hold(struct ncclComm *comm)
{
	bool found;

	pthread_mutex_lock(&all.lock);
	found = find(comm);
	if (found)
		comm->holders++;
	pthread_mutex_unlock(&all.lock);
	return found;
}

void kn_comm_let_go(struct ncclComm *comm)
{
	int left;

	pthread_mutex_lock(&all.lock);
	left = --comm->holders;
	pthread_mutex_unlock(&all.lock);
	if (left)
		return;
	pthread_mutex_destroy(&comm->lock);
	pthread_cond_destroy(&comm->changed);
	pthread_mutex_destroy(&comm->turn);
	free(comm);
}

bool kn_comm_take_out(struct ncclComm *comm)
{
	struct ncclComm **at;

	pthread_mutex_lock(&all.lock);
	at = find(comm);
	if (at)
		*at = comm->next;
	pthread_mutex_unlock(&all.lock);
	return at;
}

void kn_comm_end(struct ncclComm *comm)
{
	kn_queues_close(&comm->queues);
	free(comm->factors);
	kolo_comm_destroy(comm->kolo);
	comm->kolo = NULL;
	kn_comm_let_go(comm);
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
		kn_comm_end(comm);
}

/* ---- Who works with it ----------------------------------------------------------------------- */

/* What a communicator in this state answers. */
static ncclResult_t answer(struct ncclComm *comm, enum kn_state state, ncclResult_t result,
			   const char *function)
{
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

ncclResult_t kn_comm_check(struct ncclComm *comm, const char *function)
{
	enum kn_state state;
	ncclResult_t result;

	if (!comm || !kn_comm_hold(comm))
		return kn_fail(NULL, ncclInvalidArgument,
			       "%s: the communicator is NULL, or was destroyed", function);
	pthread_mutex_lock(&comm->lock);
	state = comm->state;
	result = comm->result;
	pthread_mutex_unlock(&comm->lock);
	result = answer(comm, state, result, function);
	if (result != ncclSuccess)
		kn_comm_let_go(comm);
	return result;
}

ncclResult_t kn_comm_enter(struct ncclComm *comm, void **before)
{
	bool closed;

	pthread_mutex_lock(&comm->lock);
	closed = comm->closed;
	comm->calls += !closed;
	pthread_mutex_unlock(&comm->lock);
	if (closed)
		return kn_fail(NULL, ncclRemoteError, "the communicator was aborted or destroyed");
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
	int rc = kolo_cuda_queue_create(NULL, &queue); /* of the current context */

	if (rc < 0)
		return rc;
	rc = kolo_cuda_connect(comm->kolo, queue);
	kolo_queue_destroy(queue);
	return rc;
}

/* From here on it can be aborted. */
static void adopt(struct ncclComm *comm, struct kolo_comm *made)
{
	pthread_mutex_lock(&comm->lock);
	comm->joins = false;
	comm->kolo = made;
	if (comm->dropped)
		kolo_comm_abort(made);
	pthread_mutex_unlock(&comm->lock);
}

/* A rank that is late is waited for, as NCCL does: the timeout is off, unless KOLO_TIMEOUT is set.
 * A rank that dies is noticed all the same. */
static ncclResult_t make(struct ncclComm *comm, const struct kolo_id *id)
{
	const char *timeout = getenv("KOLO_TIMEOUT");
	struct kolo_comm_attr attr = { .rank = comm->rank,
				       .nranks = comm->nranks,
				       .timeout_s = timeout && *timeout ? 0 : -1,
				       .transport = kn_env_transport(),
				       .log = kn_env_read() ? kn_log : NULL,
				       .log_level = kn_env_read(),
				       .id = id };
	struct kolo_comm *made;
	bool dropped;
	int rc;

	pthread_mutex_lock(&comm->lock);
	dropped = comm->dropped; /* before it began: nobody would end the wait */
	comm->id = *id;
	comm->joins = !dropped;
	pthread_mutex_unlock(&comm->lock);
	if (dropped)
		return kn_fail(comm, ncclRemoteError,
			       "rank %d: the communicator was aborted before it was made",
			       comm->rank);
	rc = kolo_comm_create(&attr, &made);
	adopt(comm, made);
	return kn_result(comm, rc < 0 ? rc : connect_gpus(comm));
}

/* Repeats it: the call that it ends may be about to begin. */
void kn_comm_stop_making(struct ncclComm *comm)
{
	enum { STEP_NS = 1000000 };
	bool joins;

	do {
		pthread_mutex_lock(&comm->lock);
		joins = comm->joins;
		if (joins)
			kolo_id_abort(&comm->id);
		else if (comm->state == KN_MAKING)
			kolo_comm_abort(comm->kolo);
		pthread_mutex_unlock(&comm->lock);
		if (joins)
			nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
	} while (joins);
}

static int split(struct kn_job *job)
{
	struct kolo_comm *made = NULL;
	int rc = kolo_comm_split(job->parent->kolo, job->color, job->key, &made);

	if (!job->comm)
		return rc;
	adopt(job->comm, made);
	if (rc < 0)
		return rc;
	job->comm->rank = kolo_comm_rank(made);
	job->comm->nranks = kolo_comm_nranks(made);
	return connect_gpus(job->comm);
}

/* Waits until no other thread is in a call, and ends it. */
static void destroy(struct ncclComm *comm)
{
	void *before = kn_context_use(comm->context);

	pthread_mutex_lock(&comm->lock);
	comm->closed = true;
	while (comm->calls)
		pthread_cond_wait(&comm->changed, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
	kn_comm_end(comm);
	kn_context_use(before);
}

/* The first of the ranks that are left makes an id and sends it to the others. */
static ncclResult_t shrink(struct kn_job *job)
{
	struct kolo_comm *parent = job->parent->kolo;
	int rank = kolo_comm_rank(parent), place = 0, rc;
	struct kolo_id id;

	while (job->left[place] != rank)
		place++;
	rc = place ? kolo_recv(parent, &id, sizeof(id), KOLO_U8, job->left[0], NULL)
		   : kolo_id_create(&id);
	for (int k = 1; rc == 0 && place == 0 && k < job->nleft; k++)
		rc = kolo_send(parent, &id, sizeof(id), KOLO_U8, job->left[k], NULL);
	if (rc < 0)
		return kn_result(job->comm, rc);
	job->comm->rank = place;
	job->comm->nranks = job->nleft;
	return make(job->comm, &id);
}

unsigned kn_comm_begin_split(struct ncclComm *parent)
{
	unsigned number;

	pthread_mutex_lock(&parent->lock);
	parent->calls++;
	number = parent->begun++;
	pthread_mutex_unlock(&parent->lock);
	return number;
}

bool kn_comm_is_splitting(struct ncclComm *comm)
{
	bool splits;

	pthread_mutex_lock(&comm->lock);
	splits = !comm->blocking && comm->begun != comm->over;
	pthread_mutex_unlock(&comm->lock);
	return splits;
}

/* All ranks split in the same order, so the threads of two splits must not overtake each other. */
static void wait_for_splits(struct ncclComm *parent, unsigned number)
{
	pthread_mutex_lock(&parent->lock);
	while (parent->over != number)
		pthread_cond_wait(&parent->changed, &parent->lock);
	pthread_mutex_unlock(&parent->lock);
}

static void end_split(struct ncclComm *parent)
{
	pthread_mutex_lock(&parent->lock);
	parent->calls--;
	parent->over++;
	pthread_cond_broadcast(&parent->changed);
	pthread_mutex_unlock(&parent->lock);
	kn_comm_let_go(parent);
}

static void do_split(struct kn_job *job)
{
	void *before;

	wait_for_splits(job->parent, job->number);
	job->result = kn_comm_enter(job->parent, &before);
	if (job->result == ncclSuccess) {
		job->result = job->kind == KN_SHRINK
				      ? shrink(job)
				      : kn_result(job->comm ? job->comm : job->parent, split(job));
		kn_comm_leave(job->parent, before);
	}
	end_split(job->parent);
}

static void do_init(struct kn_job *job)
{
	void *before = kn_context_use(job->comm->context);
	struct kolo_id id;

	memcpy(id.bytes, job->id.internal, sizeof(id.bytes));
	job->result = make(job->comm, &id);
	kn_context_use(before);
}

void kn_job_do(struct kn_job *job)
{
	struct ncclComm *comm = job->comm;

	job->result = ncclSuccess;
	switch (job->kind) {
	case KN_DESTROY: destroy(comm); return;
	case KN_SPLIT:
	case KN_SHRINK: do_split(job); break;
	default: do_init(job); break;
	}
	if (comm)
		kn_comm_set_state(comm, job->result == ncclSuccess ? KN_READY : KN_FAILED,
				  job->result);
	free(job->left);
}

ncclResult_t kn_job_drop(struct kn_job *job, ncclResult_t result)
{
	job->result = result;
	if (job->kind == KN_DESTROY) {
		destroy(job->comm);
		return result;
	}
	free(job->left);
	if (job->kind == KN_SPLIT || job->kind == KN_SHRINK) {
		wait_for_splits(job->parent, job->number);
		end_split(job->parent);
	}
	if (job->comm)
		kn_comm_set_state(job->comm, KN_FAILED, result);
	return result;
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* With the lock. The first time that it is seen, a failure is the process's last error. */
static ncclResult_t state_of(struct ncclComm *comm)
{
	int rc = 0;

	if (comm->state == KN_MAKING || (!comm->blocking && comm->begun != comm->over))
		return ncclInProgress;
	if (comm->result != ncclSuccess || comm->closed || (rc = kolo_comm_status(comm->kolo)) == 0)
		return comm->result;
	if (!comm->told) {
		snprintf(comm->text, sizeof(comm->text), "%s", kolo_last_error());
		kn_tell(comm->text);
	}
	comm->told = true;
	return kn_code(rc);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
	if (!comm || !out || !kn_comm_hold(comm))
		return kn_fail(
			NULL, ncclInvalidArgument,
			"ncclCommGetAsyncError: comm and asyncError must not be NULL, nor comm "
			"destroyed");
	pthread_mutex_lock(&comm->lock);
	*out = state_of(comm);
	pthread_mutex_unlock(&comm->lock);
	kn_comm_let_go(comm);
	return ncclSuccess;
}

KN_TWIN(ncclCommGetAsyncError);

const char *ncclGetLastError(ncclComm_t comm)
{
	static _Thread_local char copy[KN_TEXT];

	if (!comm || !kn_comm_hold(comm)) {
		kn_last(copy);
		return copy;
	}
	pthread_mutex_lock(&comm->lock);
	memcpy(copy, comm->text, sizeof(copy));
	pthread_mutex_unlock(&comm->lock);
	kn_comm_let_go(comm);
	return copy;
}

KN_TWIN(ncclGetLastError);

/* Reports a number of a communicator that is made. */
static ncclResult_t tell(struct ncclComm *comm, const char *function, const int *number, int *out)
{
	ncclResult_t result = ncclSuccess;

	if (!comm || !out || !kn_comm_hold(comm))
		return kn_fail(NULL, ncclInvalidArgument,
			       "%s: no argument may be NULL, nor the communicator destroyed",
			       function);
	pthread_mutex_lock(&comm->lock);
	if (comm->state == KN_MAKING)
		result = ncclInProgress;
	else
		*out = *number;
	pthread_mutex_unlock(&comm->lock);
	kn_comm_let_go(comm);
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
	const char *address;
	struct kolo_id id;
	ncclResult_t result;

	if (!out)
		return kn_fail(NULL, ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
	kn_env_read();
	address = getenv("NCCL_COMM_ID");
	result = kn_result(NULL,
			   address && *address ? kolo_id_at(address, &id) : kolo_id_create(&id));
	if (result == ncclSuccess)
		memcpy(out->internal, id.bytes, sizeof(out->internal));
	return result;
}

KN_TWIN(ncclGetUniqueId);
