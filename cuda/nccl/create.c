/* The functions that make communicators and end them. Each makes a job of its arguments, which is
 * done at once, by a thread, or at the end of a group. */
#include "cuda/nccl/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The functions that make one ------------------------------------------------------------- */

/* Notes a field that the caller set and that means nothing here. An older caller does not have
 * it. */
static void note_field(const ncclConfig_t *config, size_t at, const char *name)
{
	char line[128];
	int value;

	if (config->size < at + sizeof(value))
		return;
	memcpy(&value, (const char *)config + at, sizeof(value));
	if (value == NCCL_UNDEF)
		return;
	snprintf(line, sizeof(line), "the config's %s=%d is not used", name, value);
	kn_log(NULL, KOLO_LOG_INFO, line);
}

static void note_fields(const ncclConfig_t *config)
{
#define FIELD(name)                                                                                \
	{                                                                                          \
		offsetof(ncclConfig_t, name), #name                                                \
	}
	static const struct {
		size_t at;
		const char *name;
	} fields[] = { FIELD(cgaClusterSize),
		       FIELD(minCTAs),
		       FIELD(maxCTAs),
		       FIELD(splitShare),
		       FIELD(trafficClass),
		       FIELD(collnetEnable),
		       FIELD(CTAPolicy),
		       FIELD(shrinkShare),
		       FIELD(nvlsCTAs),
		       FIELD(nChannelsPerNetPeer),
		       FIELD(nvlinkCentricSched),
		       FIELD(graphUsageMode),
		       FIELD(numRmaCtx),
		       FIELD(maxP2pPeers),
		       FIELD(graphStreamOrdering) };
#undef FIELD

	for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); k++)
		note_field(config, fields[k].at, fields[k].name);
	if (config->size > offsetof(ncclConfig_t, netName) && config->netName)
		kn_log(NULL, KOLO_LOG_INFO,
		       "the config's netName is not used: NCCL_NET or KOLO_NET choose");
}

/* Does the caller want to wait? An older one has no such field. NCCL_COMM_BLOCKING counts more. */
static ncclResult_t read_config(const ncclConfig_t *config, bool *blocking)
{
	const char *asked = getenv("NCCL_COMM_BLOCKING");
	bool always = asked && *asked;

	*blocking = !always || strcmp(asked, "0") != 0;
	if (!config)
		return ncclSuccess;
	if (config->magic != NCCL_CONFIG_MAGIC)
		return kn_fail(NULL, ncclInvalidArgument,
			       "the config was not initialized (NCCL_CONFIG_INITIALIZER)");
	note_fields(config);
	if (config->size < offsetof(ncclConfig_t, cgaClusterSize) || config->blocking == NCCL_UNDEF)
		return ncclSuccess;
	if (config->blocking != 0 && config->blocking != 1)
		return kn_fail(NULL, ncclInvalidArgument, "the config has blocking=%d: want 0 or 1",
			       config->blocking);
	if (!always)
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

/* Splits or shrinks, after its arguments were `checked`. The caller holds the parent, and gives
 * that away. */
static ncclResult_t split(struct kn_job *job, ncclComm_t *out, const ncclConfig_t *config,
			  ncclResult_t checked)
{
	struct ncclComm *parent = job->parent;
	ncclResult_t result = checked;

	if (result == ncclSuccess)
		result = read_config(config, &job->blocking);
	if (!config)
		job->blocking = parent->blocking;
	if (result == ncclSuccess && job->color != NCCL_NOCOLOR) {
		job->comm = kn_comm_new(parent->context, parent->device, -1, 0, job->blocking);
		if (!job->comm)
			result = kn_fail(parent, ncclSystemError, "no memory for a communicator");
	}
	if (result != ncclSuccess) {
		free(job->left);
		kn_comm_let_go(parent);
		return result;
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
	else
		*out = NULL;
	return split(&job, out, config, result);
}

KN_TWIN(ncclCommSplit);

/* The parent's ranks that are not excluded. NULL: no memory. */
static int *list_left(int nranks, const int *excluded, int n, int *nleft)
{
	int *left = malloc((size_t)nranks * sizeof(*left));

	*nleft = 0;
	for (int r = 0; left && r < nranks; r++) {
		int k = 0;

		while (k < n && excluded[k] != r)
			k++;
		if (k == n)
			left[(*nleft)++] = r;
	}
	return left;
}

static ncclResult_t check_excluded(ncclComm_t parent, const int *excluded, int n)
{
	if (!excluded || n < 1 || n >= parent->nranks)
		return kn_fail(parent, ncclInvalidArgument,
			       "ncclCommShrink: %d of %d ranks are excluded: want 1 to %d of them, "
			       "in a list",
			       n, parent->nranks, parent->nranks - 1);
	for (int k = 0; k < n; k++)
		if (excluded[k] < 0 || excluded[k] >= parent->nranks || excluded[k] == parent->rank)
			return kn_fail(
				parent, ncclInvalidArgument,
				"ncclCommShrink: rank %d excludes rank %d: want ranks from 0 "
				"to %d, and not the caller's",
				parent->rank, excluded[k], parent->nranks - 1);
	if (kolo_comm_status(parent->kolo) < 0)
		return kn_fail(
			parent, ncclInvalidUsage,
			"ncclCommShrink: the communicator has failed, and ranks that are left "
			"can't find each other through it; make one with ncclCommInitRank: %s",
			kolo_last_error());
	return ncclSuccess;
}

/* The excluded ranks don't call it. Work of the parent that has begun goes on, also with
 * NCCL_SHRINK_ABORT: whoever wants it to end aborts the parent afterwards. */
ncclResult_t ncclCommShrink(ncclComm_t parent, int *excluded, int n, ncclComm_t *out,
			    ncclConfig_t *config, int flags)
{
	struct kn_job job = { .kind = KN_SHRINK, .parent = parent };
	ncclResult_t result = kn_comm_check(parent, "ncclCommShrink");

	(void)flags;
	if (result != ncclSuccess)
		return result;
	result = out ? check_excluded(parent, excluded, n)
		     : kn_fail(parent, ncclInvalidArgument, "ncclCommShrink: newcomm is NULL");
	if (result == ncclSuccess) {
		*out = NULL;
		job.left = list_left(parent->nranks, excluded, n, &job.nleft);
		if (!job.left)
			result = kn_fail(parent, ncclSystemError, "no memory for a list of ranks");
	}
	return split(&job, out, config, result);
}

KN_TWIN(ncclCommShrink);

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
	bool held, dropped;

	if (!comm)
		return ncclSuccess;
	/* Besides what the list held: the thread that makes it may end it. */
	held = kn_comm_hold(comm);
	if (!held || !kn_comm_take_out(comm)) {
		if (held)
			kn_comm_let_go(comm);
		return kn_fail(NULL, ncclInvalidArgument,
			       "%s: %p is no communicator, or was destroyed before", function,
			       (void *)comm);
	}
	pthread_mutex_lock(&comm->lock);
	dropped = comm->dropped = comm->state == KN_MAKING;
	comm->closed = comm->closed || abort || dropped;
	if (abort && comm->kolo && !dropped)
		kolo_comm_abort(comm->kolo);
	pthread_mutex_unlock(&comm->lock);
	if (dropped)
		kn_comm_stop_making(comm);
	kn_comm_let_go(comm);
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
