/* Reads and writes any bytes of a file of state (zero_disk_get, zero_disk_put). The file is read
 * and written in whole sectors, so what lies beside the wanted bytes is read before it is
 * written. */
#include "zero/offload/disk_bytes.h"

#include "zero/base/basics.h"
#include "zero/offload/disk.h"

#include <string.h>

enum { SECTOR = 4096 };

/* The whole sectors around a place: as many as the buffer holds. */
struct window {
	uint64_t first;
	size_t len;         /* of the sectors */
	size_t skip, bytes; /* before the wanted bytes; of the wanted bytes that are in them */
};

static struct window window_at(uint64_t offset, size_t bytes, size_t room)
{
	struct window w = { .first = offset / SECTOR * SECTOR };

	w.skip = (size_t)(offset - w.first);
	w.bytes = zero_min(bytes, room - w.skip);
	w.len = (w.skip + w.bytes + SECTOR - 1) / SECTOR * SECTOR;
	return w;
}

static int fill_window(struct zero_disk *disk, const struct window *w)
{
	int rc = zero_disk_read(disk, 0, w->first, w->len);

	return rc == 0 ? zero_disk_wait(disk, 0) : rc;
}

int zero_disk_get(struct zero_disk *disk, char *buffer, size_t len, uint64_t offset, void *out,
		  size_t bytes)
{
	int rc = 0;

	for (size_t done = 0; rc == 0 && done < bytes;) {
		struct window w = window_at(offset + done, bytes - done, len);

		rc = fill_window(disk, &w);
		if (rc == 0)
			memcpy((char *)out + done, buffer + w.skip, w.bytes);
		done += w.bytes;
	}
	return rc;
}

int zero_disk_put(struct zero_disk *disk, char *buffer, size_t len, uint64_t offset,
		  const void *from, size_t bytes)
{
	int rc = 0;

	for (size_t done = 0; rc == 0 && done < bytes;) {
		struct window w = window_at(offset + done, bytes - done, len);

		if (w.bytes < w.len)
			rc = fill_window(disk, &w);
		if (rc < 0)
			return rc;
		memcpy(buffer + w.skip, (const char *)from + done, w.bytes);
		rc = zero_disk_write(disk, 0, w.first, w.len);
		if (rc == 0)
			rc = zero_disk_wait(disk, 0);
		done += w.bytes;
	}
	return rc;
}
