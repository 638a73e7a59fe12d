/* The functions that make communicators and end them. Each makes a job of its arguments, which is
 * done at once, by a thread, or at the end of a group. */
#include "cuda/nccl/inside.h"

#include <stdlib.h>

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
		kn_comm_free(job.comm);
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
	kn_log_level(); /* reads the environment */
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

ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices)
{
	ncclUniqueId id;
	ncclResult_t result, ended;

	if (!out || n < 1)
		return kn_fail(NULL, ncclInvalidArgument,
			       "ncclCommInitAll: comm must not be NULL, and n must be at least 1");
	result = ncclGetUniqueId(&id);
	if (result != ncclSuccess)
		return result;
	ncclGroupStart();
	for (int k = 0; k < n && result == ncclSuccess; k++) {
		int device = devices ? devices[k] : k;
		void *context;

		result = kn_context_of(device, &context);
		if (result == ncclSuccess)
			result = init_on(context, device, &out[k], n, &id, k, true);
	}
	ended = ncclGroupEnd();
	return result == ncclSuccess ? ended : result;
}

KN_TWIN(ncclCommInitAll);

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out,
			   ncclConfig_t *config)
{
	struct kn_job job = { .kind = KN_SPLIT, .parent = parent, .color = color, .key = key };
	ncclResult_t result = kn_comm_check(parent, "ncclCommSplit");

	if (result != ncclSuccess)
		return result;
	if (!out || (color < 0 && color != NCCL_NOCOLOR))
		return kn_fail(parent, ncclInvalidArgument,
			       "ncclCommSplit: newcomm must not be NULL, and color %d must be 0 or "
			       "more, or NCCL_SPLIT_NOCOLOR",
			       color);
	*out = NULL;
	result = read_config(config, &job.blocking);
	if (result != ncclSuccess)
		return result;
	if (!config)
		job.blocking = parent->blocking;
	if (color != NCCL_NOCOLOR) {
		job.comm = kn_comm_new(parent->context, parent->device, -1, 0, job.blocking);
		if (!job.comm)
			return kn_fail(parent, ncclSystemError, "no memory for a communicator");
	}
	*out = job.comm;
	kn_comm_count_split(parent, 1);
	result = kn_group_job(&job);
	if (result == ncclSuccess || result == ncclInProgress)
		return result;
	*out = NULL;
	if (job.comm && kn_comm_take_out(job.comm))
		kn_comm_free(job.comm);
	return result;
}

KN_TWIN(ncclCommSplit);

/* ---- The functions that end one -------------------------------------------------------------- */

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	struct kn_job job = { .kind = KN_FINALIZE, .comm = comm };
	ncclResult_t result = kn_comm_check(comm, "ncclCommFinalize");

	if (result != ncclSuccess)
		return result;
	job.blocking = comm->blocking;
	kn_comm_set_state(comm, KN_FINALIZING, ncclSuccess);
	return kn_group_job(&job);
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
	comm->aborted = comm->aborted || abort;
	dropped = comm->dropped = comm->state == KN_MAKING;
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
