/* The functions of NCCL's device API that are called on the host. */
#ifndef CUDA_NCCL_DEVICE_H
#define CUDA_NCCL_DEVICE_H

#pragma GCC visibility push(default)

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *out);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *wanted,
			       ncclDevComm_t *out);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *made);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **out);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
					  ncclMultimemHandle_t handle, void **out);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void **out);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **out);
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclLLA2ACalcSlots(int elements, int size);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int n,
					     ncclGinBarrierHandle_t *handle,
					     ncclDevResourceRequirements_t *out);
ncclResult_t ncclGinOutboxCreateRequirement(int blocks, int size, ncclGinOutboxHandle *handle,
					    ncclDevResourceRequirements_t *out);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int blocks, int size,
					      ncclGinInboxA2AHandle *handle,
					      ncclDevResourceRequirements_t *out);
ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, ncclLLA2AHandle_t *handle,
					ncclDevResourceRequirements_t *out);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int n, ncclLsaBarrierHandle_t *handle,
					     ncclDevResourceRequirements_t *out);

#pragma GCC visibility pop

#endif
