/* Errors: NCCL's codes and phrases, and Kolo's text behind them (ncclGetLastError). */
#include "cuda/nccl/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The process's last error: NCCL has one, and PyTorch asks for it on another thread. */
static struct {
	pthread_mutex_t lock;
	char text[KN_TEXT];
} last = { .lock = PTHREAD_MUTEX_INITIALIZER };

void kn_tell(const char *text)
{
	pthread_mutex_lock(&last.lock);
	snprintf(last.text, sizeof(last.text), "%s", text);
	pthread_mutex_unlock(&last.lock);
	kn_log(NULL, KOLO_LOG_WARN, text);
}

ncclResult_t kn_fail(struct ncclComm *comm, ncclResult_t result, const char *format, ...)
{
	char text[KN_TEXT];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	kn_tell(text);
	if (!comm)
		return result;
	pthread_mutex_lock(&comm->lock);
	memcpy(comm->text, text, sizeof(text));
	pthread_mutex_unlock(&comm->lock);
	return result;
}

/* What NCCL says where Kolo says this. Old programs don't know ncclTimeout. */
ncclResult_t kn_code(int rc)
{
	switch (rc) {
	case 0: return ncclSuccess;
	case KOLO_EINVAL: return ncclInvalidArgument;
	case KOLO_ENOTSUP:
	case KOLO_EMISMATCH: return ncclInvalidUsage;
	case KOLO_EUNREACH:
	case KOLO_ETIMEDOUT:
	case KOLO_EPEER:
	case KOLO_EABORTED: return ncclRemoteError;
	default: return ncclSystemError;
	}
}

ncclResult_t kn_result(struct ncclComm *comm, int rc)
{
	return rc == 0 ? ncclSuccess : kn_fail(comm, kn_code(rc), "%s", kolo_last_error());
}

const char *ncclGetErrorString(ncclResult_t result)
{
	/* The phrases that programs, and people, know. */
	static const char *const phrases[ncclNumResults] = {
		[ncclSuccess] = "no error",
		[ncclUnhandledCudaError] =
			"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
		[ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
		[ncclInternalError] = "internal error",
		[ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
		[ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
		[ncclRemoteError] = "remote process exited or there was a network error",
		[ncclInProgress] = "NCCL operation in progress",
		[ncclTimeout] = "timeout",
	};

	return result < ncclNumResults && phrases[result] ? phrases[result] : "unknown result code";
}

KN_TWIN(ncclGetErrorString);

void kn_last(char out[KN_TEXT])
{
	pthread_mutex_lock(&last.lock);
	memcpy(out, last.text, sizeof(last.text));
	pthread_mutex_unlock(&last.lock);
}
