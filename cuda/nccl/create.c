/* The functions that make communicators and end them. Each makes a job of its arguments, which is
 * done at once, by a thread, or at the end of a group. */
#include "cuda/nccl/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- The functions that make one ------------------------------------------------------------- */

/* Does the caller want to wait? An older one has no such field. */
static ncclResult_t read_config(const ncclConfig_t *config, bool *blocking)
{
	*blocking = true;
	if (!config)
		return ncclSuccess;
	if (config->magic != NCCL_CONFIG_MAGIC)
		return kn_fail(NULL, ncclInvalidArgument,
			       "the config was not initialized (NCCL_CONFIG_INITIALIZER)");
	if (config->size < offsetof(ncclConfig_t, cgaClusterSize) || config->blocking == NCCL_UNDEF)
		return ncclSuccess;
	if (config->blocking != 0 && config->blocking != 1)
		return kn_fail(NULL, ncclInvalidArgument, "the config has blocking=%d: want 0 or 1",
			       config->blocking);
	*blocking = config->blocking;
	return ncclSuccess;
}

static ncclResult_t init_on(void *context, int device, ncclComm_t *out, int nranks,
			    const ncclUniqueId *id, int rank, bool blocking)
{
	struct kn_job job = { .kind = KN_INIT, .id = *id, .blocking = blocking };
	ncclResult_t result;

	if (nranks < 1 || rank < 0 || rank >= nranks)
		return kn_fail(NULL, ncclInvalidArgument, "rank %d of %d: want 0 <= rank < nranks",
			       rank, nranks);
	job.comm = kn_comm_new(context, device, rank, nranks, blocking);
	if (!job.comm)
		return kn_fail(NULL, ncclSystemError, "no memory for a communicator");
	*out = job.comm;
	result = kn_group_job(&job);
	if (result == ncclSuccess || result == ncclInProgress)
		return result;
	*out = NULL;
	if (kn_comm_take_out(job.comm))
		kn_comm_end(job.comm);
	return result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int nranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	void *context;
	bool blocking;
	int device;
	ncclResult_t result;

	if (!out)
		return kn_fail(NULL, ncclInvalidArgument, "ncclCommInitRank: comm is NULL");
	*out = NULL;
	kn_env_read();
	result = read_config(config, &blocking);
	if (result == ncclSuccess)
		result = kn_context_get(&context, &device);
	return result == ncclSuccess ? init_on(context, device, out, nranks, &id, rank, blocking)
				     : result;
}

KN_TWIN(ncclCommInitRankConfig);

ncclResult_t ncclCommInitRank(ncclComm_t *out, int nranks, ncclUniqueId id, int rank)
{
	return ncclCommInitRankConfig(out, nranks, id, rank, NULL);
}

KN_TWIN(ncclCommInitRank);

ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int nranks, int rank, int nids,
				      ncclUniqueId *ids, ncclConfig_t *config)
{
	if (nids < 1 || !ids)
		return kn_fail(NULL, ncclInvalidArgument,
			       "ncclCommInitRankScalable: want at least one id");
	return ncclCommInitRankConfig(out, nranks, ids[0], rank, config);
}

KN_TWIN(ncclCommInitRankScalable);

/* In a group of its own. What fails leaves none. */
static ncclResult_t init_all(ncclComm_t *out, int n, const int *devices, void *const *contexts)
{
	ncclUniqueId id;
	ncclResult_t result = ncclGetUniqueId(&id);

	ncclGroupStart();
	for (int k = 0; k < n && result == ncclSuccess; k++)
		result = init_on(contexts[k], devices ? devices[k] : k, &out[k], n, &id, k, true);
	if (result == ncclSuccess)
		result = ncclGroupEnd();
	else
		kn_group_cancel();
	for (int k = 0; k < n && result != ncclSuccess; k++) {
		if (out[k] && kn_comm_take_out(out[k]))
			kn_comm_end(out[k]);
		out[k] = NULL;
	}
	return result;
}

ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices)
{
	void **contexts;
	ncclResult_t result = ncclSuccess;

	if (!out || n < 1)
		return kn_fail(NULL, ncclInvalidArgument,
			       "ncclCommInitAll: comm must not be NULL, and n must be at least 1");
	memset(out, 0, (size_t)n * sizeof(*out));
	contexts = calloc((size_t)n, sizeof(*contexts));
	if (!contexts)
		return kn_fail(NULL, ncclSystemError, "no memory for %d communicators", n);
	for (int k = 0; k < n && result == ncclSuccess; k++)
		result = kn_context_of(devices ? devices[k] : k, &contexts[k]);
	if (result == ncclSuccess)
		result = init_all(out, n, devices, contexts);
	free(contexts);
	return result;
}

KN_TWIN(ncclCommInitAll);

/* The caller holds the parent, and gives that away. */
static ncclResult_t split(struct kn_job *job, ncclComm_t *out)
{
	struct ncclComm *parent = job->parent;
	ncclResult_t result;

	if (job->color != NCCL_NOCOLOR) {
		job->comm = kn_comm_new(parent->context, parent->device, -1, 0, job->blocking);
		if (!job->comm) {
			kn_comm_let_go(parent);
			return kn_fail(NULL, ncclSystemError, "no memory for a communicator");
		}
	}
	*out = job->comm;
	job->number = kn_comm_begin_split(parent);
	result = kn_group_job(job);
	if (result == ncclSuccess || result == ncclInProgress)
		return result;
	*out = NULL;
	if (job->comm && kn_comm_take_out(job->comm))
		kn_comm_end(job->comm);
	return result;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out,
			   ncclConfig_t *config)
{
	struct kn_job job = { .kind = KN_SPLIT, .parent = parent, .color = color, .key = key };
	ncclResult_t result = kn_comm_check(parent, "ncclCommSplit");

	if (result != ncclSuccess)
		return result;
	if (!out || (color < 0 && color != NCCL_NOCOLOR))
		result = kn_fail(parent, ncclInvalidArgument,
				 "ncclCommSplit: newcomm must not be NULL, and color %d must be 0 "
				 "or more, or NCCL_SPLIT_NOCOLOR",
				 color);
	if (result == ncclSuccess)
		result = read_config(config, &job.blocking);
	if (result != ncclSuccess) {
		kn_comm_let_go(parent);
		return result;
	}
	*out = NULL;
	if (!config)
		job.blocking = parent->blocking;
	return split(&job, out);
}

KN_TWIN(ncclCommSplit);

/* ---- The functions that end one -------------------------------------------------------------- */

/* What was recorded goes on; ncclCommDestroy waits for it. The program may have destroyed the
 * streams by now. */
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	ncclResult_t result = kn_comm_check(comm, "ncclCommFinalize");

	if (result != ncclSuccess)
		return result;
	kn_comm_set_state(comm, KN_FINALIZED, ncclSuccess);
	kn_comm_let_go(comm);
	return ncclSuccess;
}

KN_TWIN(ncclCommFinalize);

static ncclResult_t end(ncclComm_t comm, const char *function, bool abort)
{
	struct kn_job job = { .kind = KN_DESTROY, .comm = comm, .blocking = true };
	bool dropped;

	if (!comm)
		return ncclSuccess;
	if (!kn_comm_take_out(comm))
		return kn_fail(NULL, ncclInvalidArgument,
			       "%s: %p is no communicator, or was destroyed before", function,
			       (void *)comm);
	pthread_mutex_lock(&comm->lock);
	dropped = comm->dropped = comm->state == KN_MAKING;
	comm->closed = comm->closed || abort || dropped;
	if (abort && comm->kolo && !dropped)
		kolo_comm_abort(comm->kolo);
	pthread_mutex_unlock(&comm->lock);
	return dropped ? ncclSuccess : kn_group_job(&job);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	return end(comm, "ncclCommDestroy", false);
}

KN_TWIN(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	return end(comm, "ncclCommAbort", true);
}

KN_TWIN(ncclCommAbort);
