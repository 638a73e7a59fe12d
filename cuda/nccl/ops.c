/* The operations: each makes a struct kn_call of its arguments. */
#include "cuda/nccl/inside.h"

#include <stdlib.h>

static const enum kolo_type types[ncclNumTypes] = {
	[ncclInt8] = KOLO_I8,       [ncclUint8] = KOLO_U8,          [ncclInt32] = KOLO_I32,
	[ncclUint32] = KOLO_U32,    [ncclInt64] = KOLO_I64,         [ncclUint64] = KOLO_U64,
	[ncclFloat16] = KOLO_F16,   [ncclFloat32] = KOLO_F32,       [ncclFloat64] = KOLO_F64,
	[ncclBfloat16] = KOLO_BF16, [ncclFloat8e4m3] = KOLO_F8E4M3, [ncclFloat8e5m2] = KOLO_F8E5M2,
};

static const enum kolo_op ops[ncclNumOps] = {
	[ncclSum] = KOLO_SUM, [ncclProd] = KOLO_PROD, [ncclMax] = KOLO_MAX,
	[ncclMin] = KOLO_MIN, [ncclAvg] = KOLO_AVG,
};

/* ---- Checking -------------------------------------------------------------------------------- */

/* The number of the first op with a factor in device memory; those before have Kolo's number after
 * that of NCCL's own. */
enum { FACTORS = 1 << 24 };

/* Kolo's op; false: there is none of this number, or not yet. */
static bool find_op(int op, enum kolo_op *out)
{
	*out = op < ncclNumOps ? ops[op < 0 ? 0 : op] : (enum kolo_op)(op - ncclNumOps);
	return op >= 0 && (op < ncclNumOps || !kolo_op_name(*out));
}

/* Kolo's op of factor number `number`, as it is when the stream has come to this place. The thread
 * works with the communicator. */
static ncclResult_t read_factor(const struct kn_call *w, const char *function, int number,
				enum kolo_op *out)
{
	struct ncclComm *comm = w->comm;
	struct kn_factor f = { 0 };
	char value[8]; /* the longest type */
	ncclResult_t result;

	if ((size_t)number < comm->nfactors)
		f = comm->factors[number];
	if (!f.at || types[f.type] != w->type)
		return kn_fail(comm, ncclInvalidArgument,
			       "%s: the op is none of this communicator, or of another type",
			       function);
	result = kn_context_read(value, f.at, kolo_type_size(w->type), w->stream);
	return result == ncclSuccess
		       ? kn_result(comm, kolo_op_create_premul_sum(comm->kolo, value, w->type, out))
		       : result;
}

/* The communicator is held, and let go. */
static ncclResult_t call_with_factor(struct kn_call *w, const char *function, int number)
{
	ncclResult_t result, freed;
	void *before;

	result = kn_comm_enter(w->comm, &before);
	if (result == ncclSuccess) {
		result = read_factor(w, function, number, &w->op);
		kn_comm_leave(w->comm, before);
	}
	if (result == ncclSuccess && !kn_comm_hold(w->comm)) /* for the op */
		result = kn_fail(NULL, ncclRemoteError, "%s: the communicator was destroyed",
				 function);
	if (result != ncclSuccess) {
		kn_comm_let_go(w->comm);
		return result;
	}
	result = kn_group_call(w);
	freed = kn_group_free_op(w->comm, w->op);
	return result == ncclSuccess ? freed : result;
}

/* Checks type and op, and leaves the rest to Kolo. */
static ncclResult_t reduce(const char *function, enum kn_kind kind, const void *src, void *dst,
			   size_t n, ncclDataType_t type, int op, int root, ncclComm_t comm,
			   cudaStream_t stream)
{
	struct kn_call w = { .kind = kind,
			     .comm = comm,
			     .src = src,
			     .dst = dst,
			     .n = n,
			     .root = root,
			     .stream = stream };
	ncclResult_t result = kn_comm_check(comm, function);

	if (result != ncclSuccess)
		return result;
	if ((unsigned)type >= ncclNumTypes)
		result = kn_fail(comm, ncclInvalidArgument, "%s: %d is no type", function,
				 (int)type);
	else if (kn_comm_is_splitting(comm))
		result = kn_fail(comm, ncclInvalidArgument,
				 "%s: the communicator is being split: want ncclSuccess of "
				 "ncclCommGetAsyncError before",
				 function);
	else if (op < FACTORS && !find_op(op, &w.op))
		result = kn_fail(comm, ncclInvalidArgument, "%s: %d is no op", function, op);
	if (result != ncclSuccess || (n == 0 && kind != KN_SEND && kind != KN_RECV)) {
		kn_comm_let_go(comm);
		return result;
	}
	w.type = types[type];
	return op < FACTORS ? kn_group_call(&w) : call_with_factor(&w, function, op - FACTORS);
}

/* One without an op. */
static ncclResult_t move(const char *function, enum kn_kind kind, const void *src, void *dst,
			 size_t n, ncclDataType_t type, int root, ncclComm_t comm,
			 cudaStream_t stream)
{
	return reduce(function, kind, src, dst, n, type, ncclSum, root, comm, stream);
}

/* ---- The functions --------------------------------------------------------------------------- */

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t n, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return reduce("ncclAllReduce", KN_ALL_REDUCE, src, dst, n, type, (int)op, 0, comm, stream);
}

KN_TWIN(ncclAllReduce);

ncclResult_t ncclReduce(const void *src, void *dst, size_t n, ncclDataType_t type, ncclRedOp_t op,
			int root, ncclComm_t comm, cudaStream_t stream)
{
	return reduce("ncclReduce", KN_REDUCE, src, dst, n, type, (int)op, root, comm, stream);
}

KN_TWIN(ncclReduce);

ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t n, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return reduce("ncclReduceScatter", KN_REDUCE_SCATTER, src, dst, n, type, (int)op, 0, comm,
		      stream);
}

KN_TWIN(ncclReduceScatter);

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t n, ncclDataType_t type, int root,
			   ncclComm_t comm, cudaStream_t stream)
{
	return move("ncclBroadcast", KN_BROADCAST, src, dst, n, type, root, comm, stream);
}

KN_TWIN(ncclBroadcast);

ncclResult_t ncclBcast(void *buffer, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
		       cudaStream_t stream)
{
	return move("ncclBcast", KN_BROADCAST, buffer, buffer, n, type, root, comm, stream);
}

KN_TWIN(ncclBcast);

ncclResult_t ncclAllGather(const void *src, void *dst, size_t n, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream)
{
	return move("ncclAllGather", KN_ALL_GATHER, src, dst, n, type, 0, comm, stream);
}

KN_TWIN(ncclAllGather);

ncclResult_t ncclAlltoAll(const void *src, void *dst, size_t n, ncclDataType_t type,
			  ncclComm_t comm, cudaStream_t stream)
{
	return move("ncclAlltoAll", KN_ALL_TO_ALL, src, dst, n, type, 0, comm, stream);
}

KN_TWIN(ncclAlltoAll);

ncclResult_t ncclGather(const void *src, void *dst, size_t n, ncclDataType_t type, int root,
			ncclComm_t comm, cudaStream_t stream)
{
	return move("ncclGather", KN_GATHER, src, dst, n, type, root, comm, stream);
}

KN_TWIN(ncclGather);

ncclResult_t ncclScatter(const void *src, void *dst, size_t n, ncclDataType_t type, int root,
			 ncclComm_t comm, cudaStream_t stream)
{
	return move("ncclScatter", KN_SCATTER, src, dst, n, type, root, comm, stream);
}

KN_TWIN(ncclScatter);

ncclResult_t ncclSend(const void *src, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return move("ncclSend", KN_SEND, src, NULL, n, type, peer, comm, stream);
}

KN_TWIN(ncclSend);

ncclResult_t ncclRecv(void *dst, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return move("ncclRecv", KN_RECV, NULL, dst, n, type, peer, comm, stream);
}

KN_TWIN(ncclRecv);

/* ---- Ops made at run time -------------------------------------------------------------------- */

/* Notes a factor in device memory. The thread works with the communicator. */
static ncclResult_t add_factor(struct ncclComm *comm, const void *at, ncclDataType_t type,
			       ncclRedOp_t *op)
{
	size_t k = 0;
	struct kn_factor *more;

	while (k < comm->nfactors && comm->factors[k].at)
		k++;
	if (k == comm->nfactors) {
		more = realloc(comm->factors, (k + 1) * sizeof(*more));
		if (!more)
			return kn_fail(comm, ncclSystemError, "no memory for an op");
		comm->factors = more;
		comm->nfactors++;
	}
	comm->factors[k] = (struct kn_factor){ at, type };
	*op = (ncclRedOp_t)(FACTORS + (int)k);
	return ncclSuccess;
}

/* With the communicator held. */
static ncclResult_t create_op(ncclRedOp_t *op, const void *scalar, ncclDataType_t type,
			      ncclScalarResidence_t residence, ncclComm_t comm)
{
	enum kolo_op made;
	ncclResult_t result;
	void *before;

	if (!op || !scalar || (unsigned)type >= ncclNumTypes)
		return kn_fail(comm, ncclInvalidArgument,
			       "ncclRedOpCreatePreMulSum: op and scalar must not be NULL, and type "
			       "%d must be one",
			       (int)type);
	result = kn_comm_enter(comm, &before);
	if (result != ncclSuccess)
		return result;
	if (residence == ncclScalarDevice) {
		result = add_factor(comm, scalar, type, op);
	} else {
		result = kn_result(
			comm, kolo_op_create_premul_sum(comm->kolo, scalar, types[type], &made));
		if (result == ncclSuccess)
			*op = (ncclRedOp_t)((int)made + ncclNumOps);
	}
	kn_comm_leave(comm, before);
	return result;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
				      ncclScalarResidence_t residence, ncclComm_t comm)
{
	ncclResult_t result = kn_comm_check(comm, "ncclRedOpCreatePreMulSum");

	if (result != ncclSuccess)
		return result;
	result = create_op(op, scalar, type, residence, comm);
	kn_comm_let_go(comm);
	return result;
}

KN_TWIN(ncclRedOpCreatePreMulSum);

/* The communicator is held, and let go. What uses the op has read its factor. */
static ncclResult_t remove_factor(struct ncclComm *comm, int number)
{
	void *before;
	ncclResult_t result = kn_comm_enter(comm, &before);

	if (result == ncclSuccess) {
		if ((size_t)number < comm->nfactors && comm->factors[number].at)
			comm->factors[number].at = NULL;
		else
			result =
				kn_fail(comm, ncclInvalidArgument,
					"ncclRedOpDestroy: no such op, or it was destroyed before");
		kn_comm_leave(comm, before);
	}
	kn_comm_let_go(comm);
	return result;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	ncclResult_t result = kn_comm_check(comm, "ncclRedOpDestroy");
	enum kolo_op made;

	if (result != ncclSuccess)
		return result;
	if ((int)op >= FACTORS)
		return remove_factor(comm, (int)op - FACTORS);
	if ((int)op >= ncclNumOps && find_op((int)op, &made))
		return kn_group_free_op(comm, made);
	kn_comm_let_go(comm);
	return kn_fail(NULL, ncclInvalidArgument, "ncclRedOpDestroy: %d was not made at run time",
		       (int)op);
}

KN_TWIN(ncclRedOpDestroy);
