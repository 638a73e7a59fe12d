/* What zero/offload/disk.h asks of who uses a file: which copies may be on their way at a time. No
 * disk has to be as slow for it to show. The functions are wrapped (tests.mk); what was started and
 * not waited for is listed. */
#include "tests/lib/t.h"
#include "zero/offload/disk.h"

enum { MOST = 4096 };

struct started {
	const struct zero_disk *disk; /* NULL: free */
	int buffer;
	bool write;
	uint64_t offset;
	size_t len;
};

static struct started all[MOST];

int __real_zero_disk_read(struct zero_disk *disk, int i, uint64_t offset, size_t len);
int __real_zero_disk_write(struct zero_disk *disk, int i, uint64_t offset, size_t len);
int __real_zero_disk_wait(struct zero_disk *disk, int i);
void __real_zero_disk_close(struct zero_disk *disk);
int __wrap_zero_disk_read(struct zero_disk *disk, int i, uint64_t offset, size_t len);
int __wrap_zero_disk_write(struct zero_disk *disk, int i, uint64_t offset, size_t len);
int __wrap_zero_disk_wait(struct zero_disk *disk, int i);
void __wrap_zero_disk_close(struct zero_disk *disk);

/* Nothing is on its way in the buffer, nor anything to the same place, nor from it where this is a
 * write. */
static void note(const struct started *s)
{
	struct started *idle = NULL;

	for (int k = 0; k < MOST; k++) {
		struct started *other = &all[k];
		bool same_place = other->offset < s->offset + s->len &&
				  s->offset < other->offset + other->len;

		if (!other->disk && !idle)
			idle = other;
		if (other->disk != s->disk)
			continue;
		CHECK(other->buffer != s->buffer);
		CHECK(!same_place || (!other->write && !s->write));
	}
	CHECK(idle);
	*idle = *s;
}

/* buffer -1: all. */
static void forget(const struct zero_disk *disk, int buffer)
{
	for (int k = 0; k < MOST; k++)
		if (all[k].disk == disk && (buffer < 0 || all[k].buffer == buffer))
			all[k] = (struct started){ 0 };
}

int __wrap_zero_disk_read(struct zero_disk *disk, int i, uint64_t offset, size_t len)
{
	note(&(struct started){ disk, i, false, offset, len });
	return __real_zero_disk_read(disk, i, offset, len);
}

int __wrap_zero_disk_write(struct zero_disk *disk, int i, uint64_t offset, size_t len)
{
	note(&(struct started){ disk, i, true, offset, len });
	return __real_zero_disk_write(disk, i, offset, len);
}

int __wrap_zero_disk_wait(struct zero_disk *disk, int i)
{
	forget(disk, i);
	return __real_zero_disk_wait(disk, i);
}

void __wrap_zero_disk_close(struct zero_disk *disk)
{
	forget(disk, -1);
	__real_zero_disk_close(disk);
}
