/* Memory of GPUs, and registering it. NCCL's ncclCommRegister is local, Kolo's a collective. So a
 * buffer that is registered here is a buffer like any other. */
#include "cuda/nccl/inside.h"

#include <stdlib.h>

ncclResult_t ncclMemAlloc(void **out, size_t size)
{
	struct kolo_queue *queue;
	void *context, *before;
	int device, rc;
	ncclResult_t result;

	if (!out)
		return kn_fail(NULL, ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
	*out = NULL;
	result = size ? kn_context_get(&context, &device) : ncclSuccess;
	if (result != ncclSuccess || size == 0)
		return result;
	before = kn_context_use(context);
	rc = kolo_cuda_queue_create(NULL, &queue);
	if (rc == 0) {
		rc = kolo_cuda_alloc(queue, size, out);
		kolo_queue_destroy(queue);
	}
	kn_context_use(before);
	return kn_result(NULL, rc);
}

KN_TWIN(ncclMemAlloc);

ncclResult_t ncclMemFree(void *memory)
{
	return kn_result(NULL, kolo_cuda_free(memory));
}

KN_TWIN(ncclMemFree);

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
	ncclResult_t result = kn_comm_check(comm, "ncclCommRegister");

	(void)buffer;
	(void)size;
	if (result != ncclSuccess)
		return result;
	kn_comm_let_go(comm);
	if (!handle || !(*handle = malloc(1)))
		return kn_fail(NULL, ncclInvalidArgument, "ncclCommRegister: handle is NULL");
	return ncclSuccess;
}

KN_TWIN(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	ncclResult_t result = kn_comm_check(comm, "ncclCommDeregister");

	if (result == ncclSuccess)
		kn_comm_let_go(comm);
	free(handle);
	return result;
}

KN_TWIN(ncclCommDeregister);

/* No window: NCCL's answer where symmetric memory can't be had. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *out,
				    int flags)
{
	ncclResult_t result = kn_comm_check(comm, "ncclCommWindowRegister");

	(void)buffer;
	(void)size;
	(void)flags;
	if (result != ncclSuccess)
		return result;
	kn_comm_let_go(comm);
	if (!out)
		return kn_fail(NULL, ncclInvalidArgument, "ncclCommWindowRegister: win is NULL");
	*out = NULL;
	return ncclSuccess;
}

KN_TWIN(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
	ncclResult_t result = kn_comm_check(comm, "ncclCommWindowDeregister");

	(void)window;
	if (result == ncclSuccess)
		kn_comm_let_go(comm);
	return result;
}

KN_TWIN(ncclCommWindowDeregister);
