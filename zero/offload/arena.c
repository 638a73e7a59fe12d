/* An arena: host memory that stands for a device's (kolo_zero_arena_open).
 *
 * Its memory is mapped, and counted against a budget. Each direction has a thread that does copies
 * one after the other. With a bandwidth, each copy ends at a moment that follows from the moment of
 * the copy before. So the next copy makes up for a late one, and a busy lane has the set rate.
 * Everything except the lanes belongs to the caller's thread. */
#include "zero/base/basics.h"
#include "zero/base/memory.h"
#include "zero/base/threads.h"

#include "kolo/kolo_zero_device.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct copy {
	char *to;
	const char *from;
	size_t bytes;
	int64_t submitted; /* ns, as `moment` returns them */
};

struct lane {
	pthread_mutex_t lock;          /* guards everything except the last three members */
	pthread_cond_t filled, copied; /* put has grown or closing is set; done has grown */
	struct copy *copies;           /* a ring of `room` entries; room is a power of two */
	size_t room;
	uint64_t put, done; /* counts; put is the last ticket. done <= put <= done + room */
	uint64_t bytes;     /* copied in all */
	bool closing;
	bool started;
	pthread_t thread;
	double bandwidth; /* bytes a second; 0: no limit */
};

/* Memory that was given out. */
struct block {
	struct block *next;
	char *base;
	size_t len; /* whole pages */
	char what[48];
};

/* Host memory that was pinned: its bytes, and the whole pages that they are in. */
struct pin {
	struct pin *next;
	const void *host;
	size_t bytes;
	uintptr_t begin, end;
};

struct arena {
	struct kolo_zero_device device;
	char name[32];
	size_t page;
	size_t budget, used, peak; /* bytes; used <= peak <= budget. used: in all blocks */
	size_t pinned;             /* bytes of all pins; a page of several pins counts once */
	struct block *blocks;
	struct pin *pins;
	struct lane lanes[KOLO_ZERO_NLANES]; /* the lane COMPUTE has no thread */
};

static struct arena *arena_of(struct kolo_zero_device *device)
{
	return (struct arena *)device;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* PIECE: bytes between two looks at the clock. A thread that sleeps more often holds up the threads
 * that update. A step should take no longer than its update, which hides the copies. It took 1.2
 * times as long with pieces of 256 KiB, and 1.05 times with 1 MiB (perf/zero/zero_offload.c). */
enum { FIRST_ROOM = 64, PIECE = 1 << 20 };

/* ns. Nobody waits as long, and sums with it do not overflow. */
static const int64_t far_off = INT64_MAX / 4;

static int64_t moment(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Looks at the clock first: a sleep until a past moment still costs an interrupt, which is more
 * than a small copy costs. */
static void sleep_until(int64_t when)
{
	const struct timespec t = { .tv_sec = when / 1000000000, .tv_nsec = when % 1000000000 };

	while (moment() < when &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* The moment at which a copy of so many bytes ends that began at `start`. */
static int64_t end_of(int64_t start, size_t bytes, double bandwidth)
{
	double ns = ceil((double)bytes / bandwidth * 1e9);

	return ns < (double)(far_off - start) ? start + (int64_t)ns : far_off;
}

/* before: the moment at which the last copy had to end. Returns the moment for this one. */
static int64_t copy_paced(const struct copy *c, double bandwidth, int64_t before)
{
	int64_t start = c->submitted > before ? c->submitted : before;

	for (size_t at = 0; at < c->bytes;) {
		size_t n = zero_min(c->bytes - at, PIECE);

		memcpy(c->to + at, c->from + at, n);
		at += n;
		sleep_until(end_of(start, at, bandwidth));
	}
	return end_of(start, c->bytes, bandwidth);
}

static void *run_lane(void *arg)
{
	struct lane *lane = arg;
	int64_t before = 0;

	/* Sleeps then end on time. By default the system may end them 50 us late, together with
	 * others. */
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&lane->lock);
	for (;;) {
		struct copy c;

		while (lane->done == lane->put && !lane->closing)
			pthread_cond_wait(&lane->filled, &lane->lock);
		if (lane->done == lane->put)
			break;
		c = lane->copies[lane->done % lane->room];
		pthread_mutex_unlock(&lane->lock);
		if (lane->bandwidth > 0)
			before = copy_paced(&c, lane->bandwidth, before);
		else if (c.bytes)
			memcpy(c.to, c.from, c.bytes);
		pthread_mutex_lock(&lane->lock);
		lane->bytes += c.bytes;
		lane->done++;
		pthread_cond_broadcast(&lane->copied);
	}
	pthread_mutex_unlock(&lane->lock);
	return NULL;
}

static bool grow(struct lane *lane)
{
	size_t room = lane->room ? 2 * lane->room : FIRST_ROOM;
	struct copy *copies = malloc(room * sizeof(*copies));

	if (!copies)
		return false;
	for (uint64_t k = lane->done; k < lane->put; k++)
		copies[k % room] = lane->copies[k % lane->room];
	free(lane->copies);
	lane->copies = copies;
	lane->room = room;
	return true;
}

static int start_lane(struct lane *lane, const char *arena)
{
	int err;

	if (!grow(lane))
		return kolo_error_set(KOLO_ENOMEM, "%s: no memory for a queue of copies", arena);
	if ((err = zero_thread_start(&lane->thread, run_lane, lane)) != 0)
		return kolo_error_set(KOLO_ESYS, "%s: no thread for copies: %s", arena,
				      strerror(err));
	lane->started = true;
	return 0;
}

static void close_lane(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->closing = true;
	pthread_cond_signal(&lane->filled);
	pthread_mutex_unlock(&lane->lock);
	if (lane->started)
		pthread_join(lane->thread, NULL);
	pthread_mutex_destroy(&lane->lock);
	pthread_cond_destroy(&lane->filled);
	pthread_cond_destroy(&lane->copied);
	free(lane->copies);
}

/* Whether all these bytes are memory of this arena. A GPU's copies demand the same. */
static bool gave(const struct arena *a, const void *memory, size_t bytes)
{
	uintptr_t at = (uintptr_t)memory;

	for (const struct block *b = a->blocks; b; b = b->next) {
		uintptr_t base = (uintptr_t)b->base;

		if (at >= base && at - base < b->len)
			return bytes <= b->len - (at - base);
	}
	return bytes == 0;
}

static int check_lane(const struct arena *a, enum kolo_zero_lane lane)
{
	if (lane == KOLO_ZERO_DOWN || lane == KOLO_ZERO_UP)
		return 0;
	return kolo_error_set(KOLO_EINVAL,
			      "%s: a copy on lane %d: want KOLO_ZERO_DOWN or KOLO_ZERO_UP", a->name,
			      (int)lane);
}

static int arena_copy(struct kolo_zero_device *device, enum kolo_zero_lane number, void *to,
		      const void *from, size_t bytes, uint64_t *ticket)
{
	struct arena *a = arena_of(device);
	const void *own = number == KOLO_ZERO_UP ? to : from;
	struct lane *lane;
	int rc = check_lane(a, number);

	if (rc < 0)
		return rc;
	if (!gave(a, own, bytes))
		return kolo_error_set(
			KOLO_EINVAL,
			"%s: a copy %s of %zu bytes at %p, which are not memory of this device",
			a->name, number == KOLO_ZERO_UP ? "up" : "down", bytes, own);
	lane = &a->lanes[number];
	pthread_mutex_lock(&lane->lock);
	/* If the ring is full and cannot grow, the caller waits until a copy is done. */
	while (lane->put - lane->done == lane->room && !grow(lane))
		pthread_cond_wait(&lane->copied, &lane->lock);
	lane->copies[lane->put++ % lane->room] = (struct copy){ to, from, bytes, moment() };
	*ticket = lane->put;
	pthread_mutex_unlock(&lane->lock);
	pthread_cond_signal(&lane->filled); /* after unlocking: the thread needs the lock at once */
	return 0;
}

static int arena_wait(struct kolo_zero_device *device, enum kolo_zero_lane number, uint64_t ticket)
{
	struct arena *a = arena_of(device);
	struct lane *lane;
	uint64_t put;
	int rc;

	if (number == KOLO_ZERO_COMPUTE)
		return 0;
	if ((rc = check_lane(a, number)) < 0)
		return rc;
	lane = &a->lanes[number];
	pthread_mutex_lock(&lane->lock);
	put = lane->put;
	while (ticket <= put && lane->done < ticket)
		pthread_cond_wait(&lane->copied, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
	if (ticket > put)
		return kolo_error_set(
			KOLO_EINVAL, "%s: waiting for copy %llu of lane %d, which has had %llu",
			a->name, (unsigned long long)ticket, (int)number, (unsigned long long)put);
	return 0;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* SIZE_MAX if the sum overflows. */
static size_t round_to_pages(const struct arena *a, size_t bytes)
{
	size_t more = -bytes % a->page;

	return bytes > SIZE_MAX - more ? SIZE_MAX : bytes + more;
}

/* Zeroed memory; NULL with errno. */
static char *map_pages(size_t len)
{
	char *base = zero_map(len, PROT_READ | PROT_WRITE);

	if (!base)
		return NULL;
#ifdef MADV_POPULATE_WRITE /* all pages in one call; older systems map them one by one */
	if (madvise(base, len, MADV_POPULATE_WRITE) < 0 && errno == ENOMEM) {
		munmap(base, len);
		errno = ENOMEM;
		return NULL;
	}
#endif
	return base;
}

/* Refuses `bytes`, which take `len` bytes in whole pages: the budget has fewer left. */
static int refuse(const struct arena *a, size_t bytes, size_t len, const char *what)
{
	const struct block *largest = a->blocks;
	char in_use[160] = "nothing";

	for (const struct block *b = a->blocks; b; b = b->next)
		if (b->len > largest->len)
			largest = b;
	if (largest)
		snprintf(in_use, sizeof(in_use), "%zu bytes, the largest piece %zu for '%s'",
			 a->used, largest->len, largest->what);
	return kolo_error_set(
		KOLO_ENOMEM,
		"%s: %zu bytes for '%.60s' need %zu more than is left of the budget (in use: %s): "
		"want a larger one, or less in it",
		a->name, bytes, what, len - (a->budget - a->used), in_use);
}

static int arena_allocate(struct kolo_zero_device *device, size_t bytes, const char *what,
			  void **out)
{
	struct arena *a = arena_of(device);
	size_t len = round_to_pages(a, bytes ? bytes : 1); /* 0 bytes have an address too */
	struct block *b;

	*out = NULL;
	if (len > a->budget - a->used)
		return refuse(a, bytes, len, what);
	b = calloc(1, sizeof(*b));
	if (b)
		b->base = map_pages(len);
	if (!b || !b->base) {
		free(b);
		return kolo_error_set(KOLO_ENOMEM, "%s: the host has no %zu bytes for '%.60s': %s",
				      a->name, len, what, strerror(errno));
	}
	b->len = len;
	snprintf(b->what, sizeof(b->what), "%s", what);
	b->next = a->blocks;
	a->blocks = b;
	a->used += len;
	a->peak = a->used > a->peak ? a->used : a->peak;
	*out = b->base;
	return 0;
}

static void free_block(struct arena *a, struct block **at)
{
	struct block *b = *at;

	*at = b->next;
	a->used -= b->len;
	munmap(b->base, b->len);
	free(b);
}

static void arena_release(struct kolo_zero_device *device, void *memory, size_t bytes)
{
	struct arena *a = arena_of(device);
	struct block **at = &a->blocks;

	(void)bytes; /* the block has them */
	while (*at && (*at)->base != memory)
		at = &(*at)->next;
	if (*at)
		free_block(a, at);
}

/* ---- Pinned host memory ---------------------------------------------------------------------- */

static const struct pin *pin_at(const struct arena *a, uintptr_t page)
{
	const struct pin *p = a->pins;

	while (p && (page < p->begin || page >= p->end))
		p = p->next;
	return p;
}

/* Finds the next pages from *at on, before `end`, that no pin of the list has: [*at, *gap). Returns
 * false if there are none. Pins share pages, but the system does not count locks: one unlock is for
 * all of them. */
static bool next_gap(const struct arena *a, uintptr_t *at, uintptr_t end, uintptr_t *gap)
{
	const struct pin *p;

	while (*at < end && (p = pin_at(a, *at)))
		*at = p->end;
	*gap = end;
	for (p = a->pins; p; p = p->next)
		if (p->begin > *at && p->begin < *gap)
			*gap = p->begin;
	return *at < end;
}

static void unlock_gaps(struct arena *a, uintptr_t at, uintptr_t end)
{
	for (uintptr_t gap; next_gap(a, &at, end, &gap); at = gap) {
		munlock((const void *)at, gap - at);
		a->pinned -= gap - at;
	}
}

static int refuse_pin(const struct arena *a, size_t bytes, int err)
{
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_MEMLOCK, &limit);
	return kolo_error_set(
		KOLO_ESYS,
		"%s: locking %zu bytes of host memory beside %zu: %s; RLIMIT_MEMLOCK is %llu bytes: "
		"raise it (ulimit -l), or do without (\"pin_memory\": false)",
		a->name, bytes, a->pinned, strerror(err), (unsigned long long)limit.rlim_cur);
}

static int lock_gaps(struct arena *a, uintptr_t begin, uintptr_t end)
{
	uintptr_t at = begin, gap;

	for (; next_gap(a, &at, end, &gap); at = gap) {
		if (mlock((const void *)at, gap - at) < 0) {
			int err = errno;

			unlock_gaps(a, begin, at);
			return refuse_pin(a, gap - at, err);
		}
		a->pinned += gap - at;
	}
	return 0;
}

static int arena_pin(struct kolo_zero_device *device, void *host, size_t bytes)
{
	struct arena *a = arena_of(device);
	struct pin *p = calloc(1, sizeof(*p));
	uintptr_t begin, end;
	int rc;

	if (!p)
		return kolo_error_set(KOLO_ENOMEM, "%s: no memory to note what is locked", a->name);
	begin = (uintptr_t)host / a->page * a->page;
	end = ((uintptr_t)host + bytes + a->page - 1) / a->page * a->page;
	*p = (struct pin){
		.host = host, .bytes = bytes, .begin = begin, .end = bytes ? end : begin
	};
	if ((rc = lock_gaps(a, p->begin, p->end)) < 0) {
		free(p);
		return rc;
	}
	p->next = a->pins;
	a->pins = p;
	return 0;
}

static void free_pin(struct arena *a, struct pin **at)
{
	struct pin *p = *at;
	uintptr_t begin = p->begin, end = p->end;

	*at = p->next;
	free(p);
	unlock_gaps(a, begin, end);
}

static void arena_unpin(struct kolo_zero_device *device, void *host, size_t bytes)
{
	struct arena *a = arena_of(device);
	struct pin **at = &a->pins;

	while (*at && ((*at)->host != host || (*at)->bytes != bytes))
		at = &(*at)->next;
	if (*at)
		free_pin(a, at);
}

/* ---- The arena ------------------------------------------------------------------------------- */

static uint64_t copied_bytes(struct lane *lane)
{
	uint64_t bytes;

	pthread_mutex_lock(&lane->lock);
	bytes = lane->bytes;
	pthread_mutex_unlock(&lane->lock);
	return bytes;
}

static void arena_get(struct kolo_zero_device *device, struct kolo_zero_device_info *out)
{
	struct arena *a = arena_of(device);

	*out = (struct kolo_zero_device_info){ .kind = "arena",
					       .name = a->name,
					       .budget = a->budget,
					       .used = a->used,
					       .peak = a->peak,
					       .pinned = a->pinned,
					       .down_bytes =
						       copied_bytes(&a->lanes[KOLO_ZERO_DOWN]),
					       .up_bytes = copied_bytes(&a->lanes[KOLO_ZERO_UP]) };
}

static int arena_work(struct kolo_zero_device *device, const struct kolo_zero_work *work,
		      uint64_t *ticket)
{
	(void)work;
	(void)ticket;
	return kolo_error_set(KOLO_EINVAL, "%s: work in it is the host's (on_host)",
			      arena_of(device)->name);
}

static int arena_queue(struct kolo_zero_device *device, struct kolo_queue **out)
{
	(void)device;
	return kolo_queue_create(out);
}

static void arena_close(struct kolo_zero_device *device)
{
	struct arena *a = arena_of(device);

	for (int k = 0; k < KOLO_ZERO_NLANES; k++)
		close_lane(&a->lanes[k]);
	while (a->blocks)
		free_block(a, &a->blocks);
	while (a->pins)
		free_pin(a, &a->pins);
	free(a);
}

static const struct kolo_zero_device_ops arena_ops = {
	.on_host = 1,
	.get = arena_get,
	.allocate = arena_allocate,
	.release = arena_release,
	.pin = arena_pin,
	.unpin = arena_unpin,
	.copy = arena_copy,
	.work = arena_work,
	.wait = arena_wait,
	.queue = arena_queue,
	.close = arena_close,
};

static void name_arena(struct arena *a)
{
	static const char units[] = "KMGTPE";
	double size = (double)a->budget / 1024;
	int unit = 0;

	for (; size >= 1024; unit++)
		size /= 1024;
	snprintf(a->name, sizeof(a->name), "arena of %.1f %ciB", size, units[unit]);
}

int kolo_zero_arena_open(size_t budget, double bandwidth, struct kolo_zero_device **out)
{
	struct arena *a;
	int rc = 0;

	if (!out)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_arena_open: out is NULL");
	*out = NULL;
	if (budget == 0 || !(bandwidth >= 0))
		return kolo_error_set(
			KOLO_EINVAL,
			"kolo_zero_arena_open: a budget of %zu bytes with copies of %g bytes a second: want "
			"some bytes, and a rate that is not negative (0: as fast as they can)",
			budget, bandwidth);
	a = calloc(1, sizeof(*a));
	if (!a)
		return kolo_error_set(KOLO_ENOMEM, "kolo_zero_arena_open: no memory for an arena");
	a->device.ops = &arena_ops;
	a->budget = budget;
	a->page = (size_t)sysconf(_SC_PAGESIZE);
	name_arena(a);
	for (int k = 0; k < KOLO_ZERO_NLANES; k++) {
		pthread_mutex_init(&a->lanes[k].lock, NULL);
		pthread_cond_init(&a->lanes[k].filled, NULL);
		pthread_cond_init(&a->lanes[k].copied, NULL);
		a->lanes[k].bandwidth = bandwidth;
	}
	if ((rc = start_lane(&a->lanes[KOLO_ZERO_DOWN], a->name)) < 0 ||
	    (rc = start_lane(&a->lanes[KOLO_ZERO_UP], a->name)) < 0) {
		arena_close(&a->device);
		return rc;
	}
	*out = &a->device;
	return 0;
}
