// What programs see of NCCL's types, a line for each: of ours, or with T_NVIDIA of NVIDIA's header. Then
// our declarations of functions must agree with that too, or this does not compile.
#ifdef T_NVIDIA
#include <nccl.h>

#include <nccl_device.h>

struct ncclGinOutboxHandle; // which it declares for nvcc alone
struct ncclGinInboxA2AHandle;

extern "C" {
#include "cuda/nccl/device.h"
#include "cuda/nccl/functions.h"
}
#else
#include "cuda/nccl/types.h"
#endif

#include <cstddef>
#include <cstdio>

#define SIZE(type)        std::printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, name) std::printf("%s.%s %zu\n", #type, #name, offsetof(type, name))
#define VALUE(name)       std::printf("%s %d\n", #name, (int)name)

static void config()
{
	SIZE(ncclConfig_t);
	FIELD(ncclConfig_t, magic);
	FIELD(ncclConfig_t, version);
	FIELD(ncclConfig_t, blocking);
	FIELD(ncclConfig_t, cgaClusterSize);
	FIELD(ncclConfig_t, maxCTAs);
	FIELD(ncclConfig_t, netName);
	FIELD(ncclConfig_t, splitShare);
	FIELD(ncclConfig_t, commName);
	FIELD(ncclConfig_t, collnetEnable);
	FIELD(ncclConfig_t, nvlsCTAs);
	FIELD(ncclConfig_t, graphUsageMode);
	FIELD(ncclConfig_t, graphStreamOrdering);
}

static void others()
{
	SIZE(ncclUniqueId);
	SIZE(ncclResult_t);
	SIZE(ncclDataType_t);
	SIZE(ncclRedOp_t);
	SIZE(ncclSimInfo_t);
	FIELD(ncclSimInfo_t, estimatedTime);
	SIZE(ncclWaitSignalDesc_t);
	FIELD(ncclWaitSignalDesc_t, ctx);
	SIZE(ncclTeam_t);
	SIZE(ncclMultimemHandle_t);
	SIZE(ncclCommProperties_t);
	FIELD(ncclCommProperties_t, rank);
	FIELD(ncclCommProperties_t, nvmlDev);
	FIELD(ncclCommProperties_t, multimemSupport);
	FIELD(ncclCommProperties_t, ginType);
	FIELD(ncclCommProperties_t, nLsaTeams);
	FIELD(ncclCommProperties_t, railedGinType);
}

static void values()
{
	VALUE(ncclSuccess);
	VALUE(ncclRemoteError);
	VALUE(ncclInProgress);
	VALUE(ncclTimeout);
	VALUE(ncclInt8);
	VALUE(ncclUint64);
	VALUE(ncclFloat16);
	VALUE(ncclFloat32);
	VALUE(ncclFloat64);
	VALUE(ncclBfloat16);
	VALUE(ncclFloat8e4m3);
	VALUE(ncclFloat8e5m2);
	VALUE(ncclNumTypes);
	VALUE(ncclSum);
	VALUE(ncclProd);
	VALUE(ncclMax);
	VALUE(ncclMin);
	VALUE(ncclAvg);
	VALUE(ncclNumOps);
	VALUE(ncclMaxRedOp);
	VALUE(ncclScalarDevice);
	VALUE(ncclScalarHostImmediate);
	VALUE(ncclStatGpuMemTotal);
}

int main()
{
	config();
	others();
	values();
}
