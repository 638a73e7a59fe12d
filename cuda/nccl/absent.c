/* What NCCL has and this library does not: each says why, and does nothing. Programs that were
 * built for NCCL find all names. */
#include "cuda/nccl/inside.h"

#include "cuda/nccl/device.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

static const char
	no_device_api[] = "this library has no device API (NCCL's device communicators)",
	no_windows[] = "this library has no windows (symmetric memory)",
	no_growing[] =
		"a communicator gets no ranks, and none is revoked: abort it and make another",
	no_suspending[] = "memory of a communicator stays until it is destroyed",
	no_parameters[] = "this library has no such parameter; ringinfo lists its variables";

static ncclResult_t refuse(struct ncclComm *comm, const char *function, const char *why)
{
	ncclResult_t result = ncclInvalidUsage;

	if (comm && !kn_comm_hold(comm))
		return kn_fail(NULL, ncclInvalidArgument, "%s: the communicator was destroyed",
			       function);
	result = kn_fail(comm, result, "%s: %s", function, why);
	if (comm)
		kn_comm_let_go(comm);
	return result;
}

/* A function that refuses. */
#define ABSENT(name, comm, why, ...)                                                               \
	ncclResult_t name(__VA_ARGS__)                                                             \
	{                                                                                          \
		return refuse(comm, #name, why);                                                   \
	}                                                                                          \
	KN_TWIN(name)

/* ---- Communicators --------------------------------------------------------------------------- */

ABSENT(ncclCommRevoke, comm, no_growing, ncclComm_t comm, int flags);
ABSENT(ncclCommGetUniqueId, comm, no_growing, ncclComm_t comm, ncclUniqueId *id);
ABSENT(ncclCommGrow, comm, no_growing, ncclComm_t comm, int nranks, const ncclUniqueId *id,
       int rank, ncclComm_t *out, ncclConfig_t *config);
ABSENT(ncclCommSuspend, comm, no_suspending, ncclComm_t comm, int flags);
ABSENT(ncclCommResume, comm, no_suspending, ncclComm_t comm);
ABSENT(ncclCommMemStats, comm, no_suspending, ncclComm_t comm, ncclCommMemStat_t stat,
       uint64_t *value);

/* ---- Windows, and what one rank does to another's memory ------------------------------------- */

ABSENT(ncclWinGetUserPtr, comm, no_windows, ncclComm_t comm, ncclWindow_t window, void **out);
ABSENT(ncclPutSignal, comm, no_windows, const void *src, size_t n, ncclDataType_t type, int peer,
       ncclWindow_t window, size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
       cudaStream_t stream);
ABSENT(ncclSignal, comm, no_windows, int peer, int signal, int context, unsigned flags,
       ncclComm_t comm, cudaStream_t stream);
ABSENT(ncclWaitSignal, comm, no_windows, int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm,
       cudaStream_t stream);

/* ---- The device API -------------------------------------------------------------------------- */

ABSENT(ncclDevCommCreate, comm, no_device_api, ncclComm_t comm,
       const ncclDevCommRequirements_t *wanted, ncclDevComm_t *out);
ABSENT(ncclDevCommDestroy, comm, no_device_api, ncclComm_t comm, const ncclDevComm_t *made);
ABSENT(ncclGetLsaMultimemDevicePointer, NULL, no_device_api, ncclWindow_t window, size_t offset,
       void **out);
ABSENT(ncclGetLsaDevicePointer, NULL, no_device_api, ncclWindow_t window, size_t offset, int rank,
       void **out);
ABSENT(ncclGetPeerDevicePointer, NULL, no_device_api, ncclWindow_t window, size_t offset, int peer,
       void **out);

ABSENT(ncclGetMultimemDevicePointer, NULL, no_device_api, ncclWindow_t window, size_t offset,
       ncclMultimemHandle_t handle, void **out);
ABSENT(ncclGinBarrierCreateRequirement, comm, no_device_api, ncclComm_t comm, ncclTeam_t team,
       int n, ncclGinBarrierHandle_t *handle, ncclDevResourceRequirements_t *out);
ABSENT(ncclGinOutboxCreateRequirement, NULL, no_device_api, int blocks, int size,
       ncclGinOutboxHandle *handle, ncclDevResourceRequirements_t *out);
ABSENT(ncclGinInboxA2ACreateRequirement, NULL, no_device_api, ncclTeam_t peers, int blocks,
       int size, ncclGinInboxA2AHandle *handle, ncclDevResourceRequirements_t *out);
ABSENT(ncclLLA2ACreateRequirement, NULL, no_device_api, int blocks, int slots,
       ncclLLA2AHandle_t *handle, ncclDevResourceRequirements_t *out);
ABSENT(ncclLsaBarrierCreateRequirement, NULL, no_device_api, ncclTeam_t team, int n,
       ncclLsaBarrierHandle_t *handle, ncclDevResourceRequirements_t *out);

/* ---- Questions that have an answer ----------------------------------------------------------- */

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *out)
{
	ncclResult_t result = kn_comm_check(comm, "ncclCommQueryProperties");
	ncclCommProperties_t p;

	if (result != ncclSuccess)
		return result;
	kn_comm_let_go(comm); /* the caller does not destroy it meanwhile */
	if (!out || out->magic != NCCL_CONFIG_MAGIC)
		return kn_fail(NULL, ncclInvalidArgument,
			       "ncclCommQueryProperties: the properties were not initialized");
	p = (ncclCommProperties_t){ .size = out->size,
				    .magic = out->magic,
				    .version = out->version,
				    .rank = comm->rank,
				    .nRanks = comm->nranks,
				    .cudaDev = comm->device,
				    .nvmlDev = comm->device,
				    .nLsaTeams = comm->nranks };
	memcpy(out, &p, out->size < sizeof(p) ? out->size : sizeof(p));
	return ncclSuccess;
}

KN_TWIN(ncclCommQueryProperties);

ncclTeam_t ncclTeamWorld(ncclComm_t comm)
{
	return comm ? (ncclTeam_t){ comm->nranks, comm->rank, 1 } : (ncclTeam_t){ 0, 0, 1 };
}

KN_TWIN(ncclTeamWorld);

/* No rank reaches another one's memory by the device API. */
ncclTeam_t ncclTeamLsa(ncclComm_t comm)
{
	return (ncclTeam_t){ 1, 0, 1 };
}

KN_TWIN(ncclTeamLsa);

ncclTeam_t ncclTeamRail(ncclComm_t comm)
{
	return ncclTeamWorld(comm);
}

KN_TWIN(ncclTeamRail);

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank)
{
	return (comm ? comm->rank : 0) + (rank - team.rank) * team.stride;
}

KN_TWIN(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank)
{
	return (rank - team.rank) * team.stride;
}

KN_TWIN(ncclTeamRankToLsa);

/* Of a buffer that can't be had. */
int ncclLLA2ACalcSlots(int elements, int size)
{
	return 0;
}

KN_TWIN(ncclLLA2ACalcSlots);

/* ---- Parameters ------------------------------------------------------------------------------ */

ABSENT(ncclParamBind, NULL, no_parameters, ncclParamHandle_t *out, const char *key);
ABSENT(ncclParamGetI8, NULL, no_parameters, ncclParamHandle_t handle, int8_t *out);
ABSENT(ncclParamGetI16, NULL, no_parameters, ncclParamHandle_t handle, int16_t *out);
ABSENT(ncclParamGetI32, NULL, no_parameters, ncclParamHandle_t handle, int32_t *out);
ABSENT(ncclParamGetI64, NULL, no_parameters, ncclParamHandle_t handle, int64_t *out);
ABSENT(ncclParamGetU8, NULL, no_parameters, ncclParamHandle_t handle, uint8_t *out);
ABSENT(ncclParamGetU16, NULL, no_parameters, ncclParamHandle_t handle, uint16_t *out);
ABSENT(ncclParamGetU32, NULL, no_parameters, ncclParamHandle_t handle, uint32_t *out);
ABSENT(ncclParamGetU64, NULL, no_parameters, ncclParamHandle_t handle, uint64_t *out);
ABSENT(ncclParamGetStr, NULL, no_parameters, ncclParamHandle_t handle, const char **out);
ABSENT(ncclParamGet, NULL, no_parameters, ncclParamHandle_t handle, void *out, int room, int *len);
ABSENT(ncclParamGetParameter, NULL, no_parameters, const char *key, const char **value, int *len);

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *n)
{
	static const char *none;

	if (!table || !n)
		return kn_fail(NULL, ncclInvalidArgument,
			       "ncclParamGetAllParameterKeys: no argument may be NULL");
	*table = &none;
	*n = 0;
	return ncclSuccess;
}

KN_TWIN(ncclParamGetAllParameterKeys);

void ncclParamDumpAll(void)
{
}

KN_TWIN(ncclParamDumpAll);
