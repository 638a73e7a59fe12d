/* Finding the driver (ko_driver_get). libkolo_cuda.so is built if nvcc is there. It is looked for
 * beside libkolo, beside a program that contains libkolo, and where the system looks for libraries.
 * It is loaded once and stays. */
#include "cuda/driver/driver.h"

#include "comm/base/error.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libkolo_cuda.so.0"

static _Atomic(const struct ko_driver *) driver;

/* The folder of the file that this code is in, with a slash. "" if it is unknown. */
static void own_folder(char *out, size_t len)
{
	static const char here;
	Dl_info info;
	char *slash;

	*out = 0;
	if (!dladdr(&here, &info) || !info.dli_fname || strlen(info.dli_fname) >= len)
		return;
	strcpy(out, info.dli_fname);
	slash = strrchr(out, '/');
	if (slash)
		slash[1] = 0;
	else
		*out = 0;
}

static void *open_library(void)
{
	static const char *const beside[] = { "", "../lib/", NULL };
	char folder[3072], path[4096];
	void *library = NULL;

	own_folder(folder, sizeof(folder));
	for (int k = 0; !library && *folder && beside[k]; k++) {
		snprintf(path, sizeof(path), "%s%s%s", folder, beside[k], LIBRARY);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static int load(const struct ko_driver **out)
{
	void *library = open_library();
	ko_driver_fn *get;

	if (!library)
		return ko_fail(KOLO_ENOTSUP,
			       "CUDA needs %s, which is built where nvcc is (make says so) and "
			       "belongs beside libkolo: %s",
			       LIBRARY, dlerror());
	get = (ko_driver_fn *)dlsym(library, KO_DRIVER_SYMBOL);
	if (!get || get()->version != KO_DRIVER_VERSION)
		return ko_fail(KOLO_ENOTSUP,
			       "%s is of another version of Kolo than libkolo: install both anew",
			       LIBRARY);
	*out = get();
	return 0;
}

int ko_driver_get(const struct ko_driver **out)
{
	int rc = 0;

	*out = atomic_load_explicit(&driver, memory_order_acquire);
	if (*out)
		return 0;
	rc = load(out); /* a thread that comes at the same time finds the same */
	if (rc == 0)
		atomic_store_explicit(&driver, *out, memory_order_release);
	return rc;
}

void ko_driver_use(const struct ko_driver *other)
{
	atomic_store_explicit(&driver, other, memory_order_release);
}
