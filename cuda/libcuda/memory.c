/* Memory of GPUs: allocated, exported, imported, reached from another GPU; and host memory that is
 * pinned. Each function is the entry of driver.h with its name. */
#include "cuda/libcuda/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How another process gets memory: as a descriptor (cuMem), or as bytes (cudaIpc) if there is
 * none. */
enum { BY_DESCRIPTOR = 1, BY_HANDLE = 2 };

/* For the GPU of this number. */
static int allow(CUdeviceptr at, size_t len, int ordinal)
{
	const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						       .id = ordinal },
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return CU(cuMemSetAccess, at, len, &access, 1);
}

/* Gives memory an address here. */
static int map(struct ko_gpu *gpu, struct ko_gpu_memory *memory)
{
	CUdeviceptr at = 0;
	int rc = CU(cuMemAddressReserve, &at, memory->len, 0, 0, 0);

	if (rc < 0)
		return rc;
	rc = CU(cuMemMap, at, memory->len, 0, memory->handle, 0);
	if (rc < 0) {
		ko_libcuda.cuMemAddressFree(at, memory->len);
		return rc;
	}
	memory->at = (void *)(uintptr_t)at;
	rc = allow(at, memory->len, gpu->info.ordinal);
	if (rc < 0) {
		ko_libcuda.cuMemUnmap(at, memory->len);
		ko_libcuda.cuMemAddressFree(at, memory->len);
		memory->at = NULL;
	}
	return rc;
}

static CUmemAllocationProp properties(const struct ko_gpu *gpu)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->info.ordinal }
	};
}

/* Takes a part of the memory that CUDA keeps for this process, not a unit of its own. */
int ko_cuda_alloc_own(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out)
{
	CUdeviceptr at = 0;
	int rc = CU(cuMemAlloc, &at, len);

	(void)gpu;
	*out = (struct ko_gpu_memory){ .at = rc == 0 ? (void *)(uintptr_t)at : NULL, .len = len };
	return rc;
}

int ko_cuda_alloc(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out)
{
	const CUmemAllocationProp prop = properties(gpu);
	CUmemGenericAllocationHandle handle;
	size_t unit;
	int rc;

	if (!gpu->descriptors)
		return ko_cuda_alloc_own(gpu, len, out);
	if ((rc = CU(cuMemGetAllocationGranularity, &unit, &prop,
		     CU_MEM_ALLOC_GRANULARITY_MINIMUM)) < 0)
		return rc;
	len = (len + unit - 1) / unit * unit;
	if ((rc = CU(cuMemCreate, &handle, len, &prop, 0)) < 0)
		return rc;
	*out = (struct ko_gpu_memory){ .len = len, .handle = handle };
	rc = map(gpu, out);
	if (rc < 0)
		ko_libcuda.cuMemRelease(handle);
	return rc;
}

int ko_cuda_free_bytes(struct ko_gpu *gpu, size_t *out)
{
	size_t all;

	(void)gpu;
	return CU(cuMemGetInfo, out, &all);
}

/* How other processes can map it, if at all. */
static int find_kind(const void *at, unsigned *out)
{
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
				       CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES };
	unsigned long long types = 0;
	int capable = 0, rc;
	void *where[] = { &capable, &types };

	if ((rc = CU(cuPointerGetAttributes, 2, what, where, ko_cuda_address(at))) < 0)
		return rc;
	*out = types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? BY_DESCRIPTOR : BY_HANDLE;
	return capable || *out == BY_DESCRIPTOR
		       ? 0
		       : ko_cuda_fail(
				 KOLO_ENOTSUP,
				 "other processes can't map it: want memory of kolo_cuda_alloc, or of "
				 "cudaMalloc");
}

static int export_descriptor(CUdeviceptr base, int *fd)
{
	CUmemGenericAllocationHandle handle;
	int rc;

	if (ko_libcuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)base) !=
	    CUDA_SUCCESS)
		return ko_cuda_fail(
			KOLO_ENOTSUP,
			"it is of a pool, which other processes can't map: want memory of "
			"kolo_cuda_alloc, or of cudaMalloc");
	rc = CU(cuMemExportToShareableHandle, fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		0);
	ko_libcuda.cuMemRelease(handle);
	return rc;
}

int ko_cuda_export(struct ko_gpu *gpu, const void *at, size_t len, struct ko_gpu_export *out,
		   int *fd)
{
	CUdeviceptr base;
	unsigned kind;
	size_t all;
	int rc = find_kind(at, &kind);

	(void)gpu;
	if (rc < 0 || (rc = CU(cuMemGetAddressRange, &base, &all, ko_cuda_address(at))) < 0)
		return rc;
	*out = (struct ko_gpu_export){ .len = all,
				       .offset = ko_cuda_address(at) - base,
				       .kind = kind };
	if (len > all - out->offset)
		return ko_cuda_fail(KOLO_ENOTSUP, "it lies in several allocations: want one");
	if (kind == BY_DESCRIPTOR)
		return export_descriptor(base, fd);
	_Static_assert(sizeof(CUipcMemHandle) <= sizeof(out->bytes), "a handle fits");
	*fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* nothing: the bytes are all */
	return *fd < 0 ? ko_cuda_fail(KOLO_ESYS, "/dev/null can't be opened")
		       : CU(cuIpcGetMemHandle, (CUipcMemHandle *)out->bytes, base);
}

int ko_cuda_import(struct ko_gpu *gpu, const struct ko_gpu_export *memory, int fd,
		   struct ko_gpu_memory *out)
{
	CUmemGenericAllocationHandle handle;
	CUipcMemHandle bytes;
	CUdeviceptr at;
	int rc;

	*out = (struct ko_gpu_memory){ .len = memory->len, .mapped = true };
	if (memory->kind == BY_HANDLE) {
		memcpy(&bytes, memory->bytes, sizeof(bytes));
		rc = CU(cuIpcOpenMemHandle, &at, bytes, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		out->at = rc == 0 ? (void *)(uintptr_t)at : NULL;
		return rc;
	}
	if (memory->kind != BY_DESCRIPTOR)
		return ko_cuda_fail(KOLO_ENOTSUP,
				    "memory of kind %u, which this driver does not know",
				    memory->kind);
	rc = CU(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (rc < 0)
		return rc;
	out->handle = handle;
	rc = map(gpu, out);
	if (rc < 0)
		ko_libcuda.cuMemRelease(handle);
	return rc;
}

void ko_cuda_release(struct ko_gpu *gpu, struct ko_gpu_memory *memory)
{
	CUdeviceptr at = ko_cuda_address(memory->at);

	(void)gpu;
	if (memory->at && memory->handle) {
		ko_libcuda.cuMemUnmap(at, memory->len);
		ko_libcuda.cuMemAddressFree(at, memory->len);
		ko_libcuda.cuMemRelease(memory->handle);
	} else if (memory->at && memory->mapped) {
		ko_libcuda.cuIpcCloseMemHandle(at);
	} else if (memory->at) {
		ko_libcuda.cuMemFree(at);
	}
	*memory = (struct ko_gpu_memory){ 0 };
}

/* Of memory by address: whose GPU's it is, and which context's. */
static int find_owner(const void *at, CUdevice *device, CUcontext *context)
{
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_CONTEXT };
	int ordinal = 0;
	void *where[] = { &ordinal, context };
	int rc = CU(cuPointerGetAttributes, 2, what, where, ko_cuda_address(at));

	return rc < 0 ? rc : CU(cuDeviceGet, device, ordinal);
}

/* It does not look up what the owner has exported: the owner's context would have to be entered. */
int ko_cuda_reach(struct ko_gpu *gpu, const void *at, const struct ko_gpu_export *memory)
{
	bool own_context = memory->kind == BY_HANDLE; /* only if that GPU has access */
	CUcontext context = NULL;
	CUdevice owner;
	CUresult result;
	int can = 0, rc = find_owner(at, &owner, &context);

	if (rc < 0 || (gpu->device == owner && (!own_context || context == gpu->context)))
		return rc;
	if (gpu->device == owner)
		return ko_cuda_fail(KOLO_ENOTSUP, "another context of GPU %d has that memory",
				    owner);
	if ((rc = CU(cuDeviceCanAccessPeer, &can, gpu->device, owner)) < 0)
		return rc;
	if (!can)
		return ko_cuda_fail(KOLO_ENOTSUP, "GPU %d can't reach the memory of GPU %d",
				    gpu->info.ordinal, owner);
	if (!own_context)
		return allow(ko_cuda_address(at) - memory->offset, memory->len, gpu->info.ordinal);
	result = ko_libcuda.cuCtxEnablePeerAccess(context, 0);
	return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
		       ? 0
		       : ko_cuda_check(result, "cuCtxEnablePeerAccess");
}

/* Does the GPU itself see what cards write, in order, without a flush? */
static bool is_ordered(const struct ko_gpu *gpu)
{
	return ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
	       CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

int ko_cuda_dmabuf(struct ko_gpu *gpu, const struct ko_gpu_memory *memory, int *fd)
{
	int flushes =
		ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);

	if (!ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) ||
	    !ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED))
		return ko_cuda_fail(KOLO_ENOTSUP, "its driver hands no memory to cards (dmabuf)");
	if (!is_ordered(gpu) && !(flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST))
		return ko_cuda_fail(KOLO_ENOTSUP,
				    "what cards write to its memory can't be flushed");
	return CU(cuMemGetHandleForAddressRange, fd, ko_cuda_address(memory->at), memory->len,
		  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

int ko_cuda_flush(struct ko_gpu *gpu)
{
	return is_ordered(gpu) ? 0
			       : CU(cuFlushGPUDirectRDMAWrites,
				    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
				    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
}

int ko_cuda_pin(struct ko_gpu *gpu, void *host, size_t len, void **out)
{
	CUdeviceptr at = 0;
	int rc = CU(cuMemHostRegister, host, len,
		    CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);

	(void)gpu;
	if (rc < 0)
		return rc;
	rc = CU(cuMemHostGetDevicePointer, &at, host, 0);
	if (rc < 0)
		ko_libcuda.cuMemHostUnregister(host);
	*out = (void *)(uintptr_t)at;
	return rc;
}

void ko_cuda_unpin(struct ko_gpu *gpu, void *host)
{
	(void)gpu;
	ko_libcuda.cuMemHostUnregister(host);
}

/* Not on the default stream: that would disturb captures of streams that wait for it. */
int ko_cuda_put(struct ko_gpu *gpu, void *to, const void *from, size_t len)
{
	int rc = CU(cuMemcpyAsync, ko_cuda_address(to), ko_cuda_address(from), len, gpu->copies);

	return rc < 0 ? rc : CU(cuStreamSynchronize, gpu->copies);
}

/* Has this process memory at that address? */
static bool is_mapped(const void *p)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char resident;

	return mincore((void *)((uintptr_t)p / page * page), 1, &resident) == 0;
}

/* CUDA returns 0 for all attributes of memory that it does not know. Some GPUs can use all memory
 * of the process. */
int ko_cuda_pointer(struct ko_gpu *gpu, const void *memory, struct kolo_cuda_pointer *out)
{
	unsigned type = 0;
	int managed = 0, ordinal = -1, rc;
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	void *where[] = { &type, &managed, &ordinal };

	if ((rc = CU(cuPointerGetAttributes, 3, what, where, ko_cuda_address(memory))) < 0)
		return rc;
	if (type == 0) {
		out->kind = KOLO_CUDA_ORDINARY;
		out->usable =
			ko_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) != 0 &&
			is_mapped(memory);
	} else if (managed) {
		out->kind = KOLO_CUDA_MANAGED;
		out->usable = 1;
	} else if (type == CU_MEMORYTYPE_HOST) {
		out->kind = KOLO_CUDA_REGISTERED;
		out->usable =
			ko_cuda_attribute(
				gpu, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) !=
			0;
	} else {
		out->kind = KOLO_CUDA_DEVICE;
		out->device = ordinal;
		out->usable = ordinal == gpu->info.ordinal;
	}
	return 0;
}
