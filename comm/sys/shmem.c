/* Makes (ko_shmem_create) and maps (ko_shmem_map) sealed memfds, and moves their pages. */
#include "comm/sys/shmem.h"

#include "comm/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int map(int fd, uint64_t first, size_t len, bool now, void **out)
{
	*out = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | (now ? MAP_POPULATE : 0), fd,
		    (off_t)first);
	if (*out != MAP_FAILED)
		return 0;
	*out = NULL;
	return ko_fail(errno == ENOMEM ? KOLO_ENOMEM : KOLO_ESYS,
		       "mapping %zu bytes of shared memory: %s", len, strerror(errno));
}

int ko_shmem_create(uint64_t len, size_t mapped, bool now, int *fd, void **out)
{
	struct rlimit limit;
	int rc;

	*out = NULL;
	*fd = -1;
	/* Checked first: beyond the limit the kernel does not refuse, it ends the process
	 * (SIGXFSZ). */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < len)
		return ko_fail(
			KOLO_ESYS,
			"%llu bytes of shared memory are more than the limit for files (ulimit -f): %llu",
			(unsigned long long)len, (unsigned long long)limit.rlim_cur);
	*fd = memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return ko_fail(KOLO_ESYS, "memfd_create: %s", strerror(errno));
	if (ftruncate(*fd, (off_t)len) < 0 || fcntl(*fd, F_ADD_SEALS, SEALS) < 0)
		rc = ko_fail(errno == ENOMEM ? KOLO_ENOMEM : KOLO_ESYS,
			     "sizing %llu bytes of shared memory: %s", (unsigned long long)len,
			     strerror(errno));
	else
		rc = map(*fd, 0, mapped, now, out);
	if (rc < 0) {
		close(*fd);
		*fd = -1;
	}
	return rc;
}

int ko_shmem_map(int fd, uint64_t len, size_t mapped, bool now, void **out)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	*out = NULL;
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size < 0 ||
	    (uint64_t)st.st_size != len)
		return ko_fail(
			KOLO_ESYS,
			"the shared memory that was handed over is not the %llu sealed bytes expected",
			(unsigned long long)len);
	return map(fd, 0, mapped, now, out);
}

int ko_shmem_map_part(int fd, uint64_t first, size_t len, void **out)
{
	return map(fd, first, len, false, out);
}

void ko_shmem_forget(void *memory, size_t len)
{
	/* A kernel that can't do this leaves the pages where they are. */
	(void)madvise(memory, len, MADV_REMOVE);
}

int ko_shmem_touch(void *memory, size_t len)
{
	/* A kernel that does not know this request allocates each page when it is touched. */
	if (madvise(memory, len, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return 0;
	return ko_fail(KOLO_ENOMEM, "getting %zu bytes of shared memory: %s", len, strerror(errno));
}
