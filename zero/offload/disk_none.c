/* Files for state in a build without liburing: zero_disk_open refuses, so there is never a file. */
#include "zero/offload/disk.h"

#include "zero/base/basics.h"

static int refuse(void)
{
	return kolo_error_set(
		KOLO_ENOTSUP,
		"this build of Kolo keeps no offloaded state in files: it lacks the library liburing (package liburing-dev; make deps)");
}

int zero_disk_open(const struct zero_disk_attr *attr, struct zero_disk **out)
{
	(void)attr;
	*out = NULL;
	return refuse();
}

void zero_disk_close(struct zero_disk *disk)
{
	(void)disk;
}

int zero_disk_read(struct zero_disk *disk, int i, uint64_t offset, size_t len)
{
	(void)disk, (void)i, (void)offset, (void)len;
	return refuse();
}

int zero_disk_write(struct zero_disk *disk, int i, uint64_t offset, size_t len)
{
	(void)disk, (void)i, (void)offset, (void)len;
	return refuse();
}

int zero_disk_wait(struct zero_disk *disk, int i)
{
	(void)disk, (void)i;
	return refuse();
}

int zero_disk_check(const struct zero_disk *disk)
{
	(void)disk;
	return refuse();
}

void zero_disk_counts(const struct zero_disk *disk, uint64_t *read_bytes, uint64_t *written_bytes)
{
	(void)disk;
	*read_bytes = *written_bytes = 0;
}
