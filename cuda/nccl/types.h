/* NCCL's types, as its version 2.30.7 has them: names, values and layouts. nccl.h of NVIDIA says
 * what they mean. */
#ifndef CUDA_NCCL_TYPES_H
#define CUDA_NCCL_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;

typedef struct {
	char internal[128];
} ncclUniqueId;

typedef enum {
	ncclSuccess,
	ncclUnhandledCudaError,
	ncclSystemError,
	ncclInternalError,
	ncclInvalidArgument,
	ncclInvalidUsage,
	ncclRemoteError,
	ncclInProgress,
	ncclTimeout,
	ncclNumResults
} ncclResult_t;

typedef enum {
	ncclInt8,
	ncclUint8,
	ncclInt32,
	ncclUint32,
	ncclInt64,
	ncclUint64,
	ncclFloat16,
	ncclFloat32,
	ncclFloat64,
	ncclBfloat16,
	ncclFloat8e4m3,
	ncclFloat8e5m2,
	ncclNumTypes
} ncclDataType_t;

typedef enum {
	ncclSum,
	ncclProd,
	ncclMax,
	ncclMin,
	ncclAvg,
	ncclNumOps, /* ops made at run time begin here */
	ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

enum { NCCL_UNDEF = INT32_MIN, NCCL_NOCOLOR = -1 };
#define NCCL_CONFIG_MAGIC 0xcafebeefu

/* A caller that was built with an older header has a shorter one; `size` says how long. */
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking; /* 0: calls may return ncclInProgress */
	int cgaClusterSize, minCTAs, maxCTAs;
	const char *netName;
	int splitShare, trafficClass;
	const char *commName;
	int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer;
	int nvlinkCentricSched, graphUsageMode, numRmaCtx, maxP2pPeers, graphStreamOrdering;
} ncclConfig_t;

typedef struct {
	size_t size;
	unsigned magic, version;
	float estimatedTime;
} ncclSimInfo_t;

typedef enum {
	ncclStatGpuMemSuspend,
	ncclStatGpuMemSuspended,
	ncclStatGpuMemPersist,
	ncclStatGpuMemTotal
} ncclCommMemStat_t;

typedef struct {
	int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

typedef struct ncclParamHandle *ncclParamHandle_t;

/* ---- The device API: what its functions on the host name ------------------------------------- */

typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle;
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;

typedef struct {
	int nRanks, rank, stride;
} ncclTeam_t;

typedef struct {
	void *mcBasePtr;
} ncclMultimemHandle_t;

typedef enum { NCCL_GIN_TYPE_NONE } ncclGinType_t;

/* As ncclConfig_t, it has a size. */
typedef struct {
	size_t size;
	unsigned magic, version;
	int rank, nRanks, cudaDev, nvmlDev;
	bool deviceApiSupport, multimemSupport;
	ncclGinType_t ginType;
	int nLsaTeams;
	bool hostRmaSupport;
	ncclGinType_t railedGinType;
} ncclCommProperties_t;

#endif
