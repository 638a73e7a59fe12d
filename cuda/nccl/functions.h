/* NCCL's functions, as its version 2.30.7 has them. nccl.h of NVIDIA says what they do. The types
 * are those of types.h, or of NVIDIA's header: a test compiles this file with that one. */
#ifndef CUDA_NCCL_FUNCTIONS_H
#define CUDA_NCCL_FUNCTIONS_H

#pragma GCC visibility push(default)

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *out);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
void ncclResetDebugInit(void);

ncclResult_t ncclCommInitRank(ncclComm_t *out, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int nranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int nranks, int rank, int nids,
				      ncclUniqueId *ids, ncclConfig_t *config);
ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
			   ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *out);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *out);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *out);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
				      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t ncclAllReduce(const void *src, void *dst, size_t n, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *src, void *dst, size_t n, ncclDataType_t type, ncclRedOp_t op,
			int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t n, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *src, void *dst, size_t n, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void *buffer, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
		       cudaStream_t stream);
ncclResult_t ncclAllGather(const void *src, void *dst, size_t n, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *src, void *dst, size_t n, ncclDataType_t type,
			  ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void *src, void *dst, size_t n, ncclDataType_t type, int root,
			ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void *src, void *dst, size_t n, ncclDataType_t type, int root,
			 ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *src, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream);
ncclResult_t ncclRecv(void *dst, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream);

ncclResult_t ncclMemAlloc(void **out, size_t size);
ncclResult_t ncclMemFree(void *memory);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *out,
				    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

ncclResult_t ncclCommShrink(ncclComm_t comm, int *ranks, int n, ncclComm_t *out,
			    ncclConfig_t *config, int flags);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
			  ncclComm_t *out, ncclConfig_t *config);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **out);
ncclResult_t ncclPutSignal(const void *src, size_t n, ncclDataType_t type, int peer,
			   ncclWindow_t window, size_t offset, int signal, int context,
			   unsigned flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
			cudaStream_t stream);
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm,
			    cudaStream_t stream);

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key);
ncclResult_t ncclParamGetI8(ncclParamHandle_t handle, int8_t *out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t handle, int16_t *out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t handle, int32_t *out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t handle, int64_t *out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t handle, uint8_t *out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t handle, uint16_t *out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t handle, uint32_t *out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t handle, uint64_t *out);
ncclResult_t ncclParamGetStr(ncclParamHandle_t handle, const char **out);
ncclResult_t ncclParamGet(ncclParamHandle_t handle, void *out, int room, int *len);
ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *len);
ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *n);
void ncclParamDumpAll(void);

#pragma GCC visibility pop

#endif
