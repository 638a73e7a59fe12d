/* Finding the functions of libcuda, in the forms that functions.h names (ko_cuda_load), and turning
 * its failures into codes and texts. */
#include "cuda/libcuda/own.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct ko_libcuda ko_libcuda;

static _Thread_local char last_text[256];

int ko_cuda_fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(last_text, sizeof(last_text), fmt, args);
	va_end(args);
	return code;
}

/* Is it something that this machine does not have? Memory of a GPU that this one can't reach is an
 * invalid device to cuMemSetAccess. */
static bool is_lacking(CUresult result)
{
	return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NO_DEVICE ||
	       result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED ||
	       result == CUDA_ERROR_TOO_MANY_PEERS || result == CUDA_ERROR_INVALID_DEVICE;
}

int ko_cuda_check(CUresult result, const char *call)
{
	const char *why = NULL;

	if (result == CUDA_SUCCESS)
		return 0;
	ko_libcuda.cuGetErrorString(result, &why);
	return ko_cuda_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? KOLO_ENOMEM
			    : is_lacking(result)               ? KOLO_ENOTSUP
							       : KOLO_ESYS,
			    "%s: %s (%d)", call, why ? why : "unknown", (int)result);
}

struct wanted {
	const char *name;
	int since;
	void **out;
};

static int find_functions(PFN_cuGetProcAddress_v12000 get)
{
	const struct wanted all[] = {
#define F(name, since) { #name, since, (void **)&ko_libcuda.name },
#include "cuda/libcuda/functions.h"
#undef F
	};

	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
		CUdriverProcAddressQueryResult found;

		if (get(all[k].name, all[k].out, all[k].since, CU_GET_PROC_ADDRESS_DEFAULT,
			&found) != CUDA_SUCCESS ||
		    !*all[k].out)
			return ko_cuda_fail(
				KOLO_ENOTSUP,
				"the driver has no %s as of CUDA %d.%d: want a driver for CUDA 12 or later",
				all[k].name, all[k].since / 1000, all[k].since % 1000 / 10);
	}
	return 0;
}

static int load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	PFN_cuGetProcAddress_v12000 get;
	int rc;

	if (!library)
		return ko_cuda_fail(KOLO_ENOTSUP, "no NVIDIA driver on this machine: %s",
				    dlerror());
	get = (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
	if (!get)
		return ko_cuda_fail(
			KOLO_ENOTSUP,
			"libcuda.so.1 has no cuGetProcAddress_v2: want a driver for CUDA 12 or later");
	rc = find_functions(get);
	return rc < 0 ? rc : CU(cuInit, 0);
}

int ko_cuda_load(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool tried;
	static int code;
	static char why[sizeof(last_text)];
	int rc;

	pthread_mutex_lock(&lock);
	if (!tried) {
		code = load();
		memcpy(why, last_text, sizeof(why));
		tried = true;
	}
	rc = code;
	pthread_mutex_unlock(&lock);
	if (rc < 0)
		memcpy(last_text, why, sizeof(why));
	return rc;
}

int ko_cuda_load_module(CUmodule *out, const void *code)
{
	CUresult result = ko_libcuda.cuModuleLoadData(out, code);
	const char *why = NULL;

	if (result != CUDA_ERROR_NO_BINARY_FOR_GPU &&
	    result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION && result != CUDA_ERROR_INVALID_IMAGE)
		return ko_cuda_check(result, "cuModuleLoadData");
	ko_libcuda.cuGetErrorString(result, &why);
	return ko_cuda_fail(
		KOLO_ENOTSUP,
		"the kernels in libkolo_cuda.so, made by nvcc of CUDA %d.%d: %s: want a driver for CUDA %d or "
		"later, and the GPU among CUDA_ARCHS of make",
		CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, why ? why : "unknown",
		CUDA_VERSION / 1000);
}

int ko_cuda_attribute(const struct ko_gpu *gpu, CUdevice_attribute what)
{
	int value = 0;

	return ko_libcuda.cuDeviceGetAttribute(&value, what, gpu->device) == CUDA_SUCCESS ? value
											  : 0;
}

const char *ko_cuda_text(void)
{
	return last_text;
}
