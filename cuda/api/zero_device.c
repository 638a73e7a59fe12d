/* A CUDA GPU as a device of kolo_zero_device.h (kolo_zero_cuda_open).
 *
 * Each lane is a stream with a ring of events, one for each ticket that may still be waited for.
 * Each piece of work is one kernel (zero_kernels.cu). It uses CUDA through driver.h alone. */
#include "cuda/driver/driver.h"

#include "comm/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Tickets of a lane that are not done. To get one more the caller waits for the oldest. CUDA itself
 * takes some 1000 launches. */
enum { RING = 128 };

struct lane {
	void *stream;
	void *events[RING];    /* that of ticket t is number t % RING */
	uint64_t issued, done; /* done <= issued <= done + RING */
};

/* Memory of the GPU that was not released. */
struct piece {
	struct piece *next;
	struct ko_gpu_memory memory;
};

/* Pages of host memory that are pinned, and where the GPU sees them. */
struct pin {
	struct pin *next;
	uintptr_t host;
	size_t len;
	char *gpu;
};

struct gpu_device {
	struct kolo_zero_device device; /* first */
	const struct ko_driver *driver;
	struct ko_gpu *gpu;
	char name[128];
	struct kolo_zero_device_info info;
	struct lane lanes[KOLO_ZERO_NLANES];
	void *before; /* event: what is on COMPUTE when a copy is put on its lane */
	struct piece *pieces;
	struct pin *pins;
};

static struct gpu_device *of(struct kolo_zero_device *device)
{
	return (struct gpu_device *)device;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static const char *const lane_names[KOLO_ZERO_NLANES] = { "work", "copies down", "copies up" };

static const char *const work_names[] = {
	[KOLO_ZERO_WORK_CAST] = "cast",     [KOLO_ZERO_WORK_ADD] = "add",
	[KOLO_ZERO_WORK_CLEAR] = "clear",   [KOLO_ZERO_WORK_SQUARES] = "squares",
	[KOLO_ZERO_WORK_UPDATE] = "update", [KOLO_ZERO_WORK_LAMB] = "Lamb's moments",
	[KOLO_ZERO_WORK_DIGITS] = "digits",
};

/* The error: what was tried, and what the driver said. */
static int driver_failed(const struct gpu_device *d, int code, const char *what, size_t n,
			 const char *unit)
{
	return ko_fail(code, "%s: %s of %zu %s: %s", d->name, what, n, unit, d->driver->text());
}

static int enter(const struct gpu_device *d)
{
	int rc = d->driver->enter(d->gpu);

	return rc < 0 ? ko_fail(rc, "%s: entering its context: %s", d->name, d->driver->text()) : 0;
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

/* Until this ticket is done. The GPU is entered. */
static int finish_ticket(struct gpu_device *d, enum kolo_zero_lane lane, uint64_t ticket)
{
	struct lane *l = &d->lanes[lane];
	int rc;

	if (ticket <= l->done)
		return 0;
	rc = d->driver->event_finish(d->gpu, l->events[ticket % RING]);
	if (rc < 0)
		return ko_fail(rc, "%s: waiting for %s, number %llu: %s", d->name, lane_names[lane],
			       (unsigned long long)ticket, d->driver->text());
	l->done = ticket;
	return 0;
}

/* Room for one more ticket. */
static int make_room(struct gpu_device *d, enum kolo_zero_lane lane)
{
	struct lane *l = &d->lanes[lane];

	return l->issued - l->done < RING ? 0 : finish_ticket(d, lane, l->issued - RING + 1);
}

/* Gives a number to what was put on the lane last. */
static int issue(struct gpu_device *d, enum kolo_zero_lane lane, uint64_t *ticket)
{
	struct lane *l = &d->lanes[lane];
	int rc = d->driver->event_record(d->gpu, l->events[(l->issued + 1) % RING], l->stream);

	if (rc < 0)
		return ko_fail(rc, "%s: an event after %s: %s", d->name, lane_names[lane],
			       d->driver->text());
	*ticket = ++l->issued;
	return 0;
}

static int wait_ticket(struct kolo_zero_device *device, enum kolo_zero_lane lane, uint64_t ticket)
{
	struct gpu_device *d = of(device);
	int rc;

	if (lane >= KOLO_ZERO_NLANES || ticket > d->lanes[lane].issued)
		return ko_fail(KOLO_EINVAL,
			       "%s: waiting for number %llu of lane %d, which has no such", d->name,
			       (unsigned long long)ticket, (int)lane);
	if (ticket <= d->lanes[lane].done)
		return 0;
	if ((rc = enter(d)) < 0)
		return rc;
	rc = finish_ticket(d, lane, ticket);
	d->driver->leave(d->gpu);
	return rc;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Lets the lane wait for all that COMPUTE has, including collectives of its queue. */
static int follow_work(struct gpu_device *d, enum kolo_zero_lane lane)
{
	int rc = d->driver->event_record(d->gpu, d->before, d->lanes[KOLO_ZERO_COMPUTE].stream);

	if (rc == 0)
		rc = d->driver->event_await(d->gpu, d->lanes[lane].stream, d->before);
	return rc < 0 ? ko_fail(rc, "%s: %s after work: %s", d->name, lane_names[lane],
				d->driver->text())
		      : 0;
}

/* How many bytes from `host` on are all in one pin, or all in none. CUDA copies no others at
 * once. */
static size_t alike(const struct gpu_device *d, const void *host, size_t bytes)
{
	uintptr_t at = (uintptr_t)host;

	for (const struct pin *p = d->pins; p; p = p->next) {
		size_t within = at >= p->host ? p->len - (at - p->host) : p->host - at;

		if (at < p->host + p->len && within < bytes)
			bytes = within;
	}
	return bytes;
}

static int put_copy(struct gpu_device *d, enum kolo_zero_lane lane, void *to, const void *from,
		    size_t bytes)
{
	bool down = lane == KOLO_ZERO_DOWN;
	int rc = 0;

	for (size_t at = 0, n; rc == 0 && at < bytes; at += n) {
		n = alike(d, down ? (char *)to + at : (const char *)from + at, bytes - at);
		rc = d->driver->copy(d->gpu, d->lanes[lane].stream, (char *)to + at,
				     (const char *)from + at, n);
	}
	if (rc < 0)
		return driver_failed(d, rc, down ? "a copy down" : "a copy up", bytes, "bytes");
	*(down ? &d->info.down_bytes : &d->info.up_bytes) += bytes;
	return 0;
}

static int copy(struct kolo_zero_device *device, enum kolo_zero_lane lane, void *to,
		const void *from, size_t bytes, uint64_t *ticket)
{
	struct gpu_device *d = of(device);
	int rc;

	if (lane != KOLO_ZERO_DOWN && lane != KOLO_ZERO_UP)
		return ko_fail(KOLO_EINVAL,
			       "%s: a copy on lane %d: want KOLO_ZERO_DOWN or KOLO_ZERO_UP",
			       d->name, (int)lane);
	if ((rc = enter(d)) < 0)
		return rc;
	if ((rc = make_room(d, lane)) == 0 && (rc = follow_work(d, lane)) == 0 &&
	    (rc = put_copy(d, lane, to, from, bytes)) == 0)
		rc = issue(d, lane, ticket);
	d->driver->leave(d->gpu);
	return rc;
}

/* ---- Work ------------------------------------------------------------------------------------ */

static size_t size_of(enum kolo_type type)
{
	return type == KOLO_F32 ? 4 : type == KOLO_F16 || type == KOLO_BF16 ? 2 : 0;
}

static int check_type(const struct gpu_device *d, const struct kolo_zero_work *work,
		      const char *name, enum kolo_type type)
{
	return size_of(type) ? 0
			     : ko_fail(KOLO_EINVAL, "%s: %s: %s is %s: want f32, f16 or bf16",
				       d->name, work_names[work->kind], name, kolo_type_name(type));
}

/* Types, and the optimizer: a kernel is looked up by them. */
static int check_work(const struct gpu_device *d, const struct kolo_zero_work *work)
{
	enum kolo_zero_work_kind kind = work->kind;
	bool reads = kind == KOLO_ZERO_WORK_UPDATE ? work->optimizer != KOLO_ZERO_LAMB
						   : kind != KOLO_ZERO_WORK_CLEAR;
	bool writes = kind == KOLO_ZERO_WORK_CAST || kind == KOLO_ZERO_WORK_ADD ||
		      kind == KOLO_ZERO_WORK_CLEAR || (kind == KOLO_ZERO_WORK_UPDATE && work->to);
	int rc = 0;

	if (kind > KOLO_ZERO_WORK_DIGITS ||
	    (kind == KOLO_ZERO_WORK_UPDATE && !kolo_zero_optimizer_name(work->optimizer)))
		return ko_fail(KOLO_EINVAL,
			       "%s: work of kind %d with optimizer %d: there is no such", d->name,
			       (int)kind, (int)work->optimizer);
	if (reads)
		rc = check_type(d, work, "from", work->from_type);
	if (rc == 0 && writes)
		rc = check_type(d, work, "to", work->to_type);
	if (rc == 0 && kind == KOLO_ZERO_WORK_ADD && work->to_type != KOLO_F32)
		rc = ko_fail(KOLO_EINVAL, "%s: add: to is %s: want f32", d->name,
			     kolo_type_name(work->to_type));
	return rc;
}

/* Where the GPU sees host memory that a kernel writes; NULL: not all of it was pinned. */
static void *seen(const struct gpu_device *d, const void *host, size_t len)
{
	uintptr_t at = (uintptr_t)host;

	for (const struct pin *p = d->pins; p; p = p->next)
		if (at >= p->host && at - p->host <= p->len && len <= p->len - (at - p->host))
			return p->gpu + (at - p->host);
	return NULL;
}

static int not_pinned(const struct gpu_device *d, const struct kolo_zero_work *work,
		      const char *name)
{
	return ko_fail(KOLO_EINVAL,
		       "%s: %s: %s is not in host memory that was pinned on this device", d->name,
		       work_names[work->kind], name);
}

/* Finds bad and sums as the GPU sees them. A kernel that wrote to other host memory would end all
 * work on the GPU. */
static int find_results(const struct gpu_device *d, const struct kolo_zero_work *work,
			uint32_t **bad, double **sums)
{
	size_t blocks = work->n / KOLO_ZERO_BLOCK + (work->n % KOLO_ZERO_BLOCK != 0);
	size_t nsums = work->kind == KOLO_ZERO_WORK_SQUARES  ? blocks
		       : work->kind == KOLO_ZERO_WORK_LAMB   ? 2 * blocks
		       : work->kind == KOLO_ZERO_WORK_DIGITS ? 4 * blocks
							     : 0;
	bool notices = work->kind == KOLO_ZERO_WORK_CAST || work->kind == KOLO_ZERO_WORK_ADD;

	*bad = NULL;
	*sums = NULL;
	if (notices && work->bad && !(*bad = seen(d, work->bad, sizeof(**bad))))
		return not_pinned(d, work, "bad");
	if (nsums && !(*sums = seen(d, work->sums, nsums * sizeof(**sums))))
		return not_pinned(d, work, "sums");
	return 0;
}

static int put_work(struct gpu_device *d, const struct kolo_zero_work *work)
{
	void *stream = d->lanes[KOLO_ZERO_COMPUTE].stream;
	int rc = 0;

	if (work->n && work->kind == KOLO_ZERO_WORK_CLEAR)
		rc = d->driver->clear(d->gpu, stream, work->to, work->n * size_of(work->to_type));
	else if (work->n)
		rc = d->driver->zero(d->gpu, stream, work);
	return rc < 0 ? driver_failed(d, rc, work_names[work->kind], work->n, "elements") : 0;
}

static int work(struct kolo_zero_device *device, const struct kolo_zero_work *wanted,
		uint64_t *ticket)
{
	struct gpu_device *d = of(device);
	struct kolo_zero_work w = *wanted;
	int rc;

	if ((rc = check_work(d, wanted)) < 0 ||
	    (rc = find_results(d, wanted, &w.bad, &w.sums)) < 0 || (rc = enter(d)) < 0)
		return rc;
	if ((rc = make_room(d, KOLO_ZERO_COMPUTE)) == 0 && (rc = put_work(d, &w)) == 0)
		rc = issue(d, KOLO_ZERO_COMPUTE, ticket);
	d->driver->leave(d->gpu);
	return rc;
}

static int make_queue(struct kolo_zero_device *device, struct kolo_queue **out)
{
	return kolo_cuda_queue_create(of(device)->lanes[KOLO_ZERO_COMPUTE].stream, out);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void get(struct kolo_zero_device *device, struct kolo_zero_device_info *out)
{
	*out = of(device)->info;
}

/* Allocates on the GPU, which is entered. Zeroes after the copies up, which are over sooner than
 * work. */
static int make_piece(struct gpu_device *d, size_t bytes, const char *what,
		      struct ko_gpu_memory *out)
{
	void *stream = d->lanes[KOLO_ZERO_UP].stream;
	int rc = d->driver->alloc_own(d->gpu, bytes, out);

	if (rc < 0)
		return ko_fail(
			rc,
			"%s: %zu bytes for '%s', which the budget has (%zu, %zu of them in use): %s",
			d->name, bytes, what, d->info.budget, d->info.used, d->driver->text());
	if ((rc = d->driver->clear(d->gpu, stream, out->at, bytes)) < 0 ||
	    (rc = d->driver->finish(d->gpu, stream)) < 0) {
		ko_fail(rc, "%s: clearing %zu bytes for '%s': %s", d->name, bytes, what,
			d->driver->text());
		d->driver->release(d->gpu, out);
	}
	return rc;
}

static int allocate(struct kolo_zero_device *device, size_t bytes, const char *what, void **out)
{
	struct gpu_device *d = of(device);
	size_t left = d->info.budget - d->info.used;
	struct piece *piece;
	int rc;

	*out = NULL;
	if (bytes == 0)
		return 0;
	if (bytes > left)
		return ko_fail(
			KOLO_ENOMEM,
			"%s: %zu bytes for '%s': %zu more than are left of the budget of %zu (%zu in use)",
			d->name, bytes, what, bytes - left, d->info.budget, d->info.used);
	piece = calloc(1, sizeof(*piece));
	if (!piece)
		return ko_fail(KOLO_ENOMEM, "%s: %zu bytes for '%s': no memory on the host",
			       d->name, bytes, what);
	if ((rc = enter(d)) == 0) {
		rc = make_piece(d, bytes, what, &piece->memory);
		d->driver->leave(d->gpu);
	}
	if (rc < 0) {
		free(piece);
		return rc;
	}
	piece->next = d->pieces;
	d->pieces = piece;
	d->info.used += bytes;
	d->info.peak = d->info.used > d->info.peak ? d->info.used : d->info.peak;
	*out = piece->memory.at;
	return 0;
}

static void release(struct kolo_zero_device *device, void *memory, size_t bytes)
{
	struct gpu_device *d = of(device);
	struct piece **at = &d->pieces, *piece;

	while (*at && (*at)->memory.at != memory)
		at = &(*at)->next;
	if (!memory || !*at || enter(d) < 0)
		return;
	piece = *at;
	*at = piece->next;
	d->driver->release(d->gpu, &piece->memory);
	d->driver->leave(d->gpu);
	d->info.used -= bytes;
	free(piece);
}

/* Whole pages around these bytes. */
static struct pin pages_of(const void *host, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)host / page * page;
	uintptr_t end = ((uintptr_t)host + bytes + page - 1) / page * page;

	return (struct pin){ .host = first, .len = end - first };
}

static int pin(struct kolo_zero_device *device, void *host, size_t bytes)
{
	struct gpu_device *d = of(device);
	struct pin pages = pages_of(host, bytes), *p = malloc(sizeof(*p));
	void *gpu = NULL;
	int rc;

	if (!p)
		return ko_fail(KOLO_ENOMEM, "%s: pinning %zu bytes: no memory for their place",
			       d->name, bytes);
	if ((rc = enter(d)) == 0) {
		rc = d->driver->pin(d->gpu, (void *)pages.host, pages.len, &gpu);
		if (rc < 0)
			rc = ko_fail(
				KOLO_ESYS,
				"%s: pinning %zu bytes of host memory beside %zu: %s: want less, "
				"and memory of which nothing is pinned yet",
				d->name, pages.len, d->info.pinned, d->driver->text());
		d->driver->leave(d->gpu);
	}
	if (rc < 0) {
		free(p);
		return rc;
	}
	*p = (struct pin){ d->pins, pages.host, pages.len, gpu };
	d->pins = p;
	d->info.pinned += pages.len;
	return 0;
}

static void unpin(struct kolo_zero_device *device, void *host, size_t bytes)
{
	struct gpu_device *d = of(device);
	struct pin pages = pages_of(host, bytes), **at = &d->pins, *p;

	while (*at && (*at)->host != pages.host)
		at = &(*at)->next;
	if (!*at || enter(d) < 0)
		return;
	p = *at;
	*at = p->next;
	d->driver->unpin(d->gpu, (void *)p->host);
	d->driver->leave(d->gpu);
	d->info.pinned -= p->len;
	free(p);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_lanes(struct gpu_device *d)
{
	int rc = d->driver->event_create(d->gpu, &d->before);

	for (int k = 0; rc == 0 && k < KOLO_ZERO_NLANES; k++) {
		struct lane *l = &d->lanes[k];

		rc = d->driver->stream_create(d->gpu, &l->stream);
		for (int e = 0; rc == 0 && e < RING; e++)
			rc = d->driver->event_create(d->gpu, &l->events[e]);
	}
	return rc;
}

/* Of lanes that may be half open. */
static void close_lanes(struct gpu_device *d)
{
	for (int k = 0; k < KOLO_ZERO_NLANES; k++)
		if (d->lanes[k].stream)
			d->driver->finish(d->gpu, d->lanes[k].stream);
	for (int k = 0; k < KOLO_ZERO_NLANES; k++) {
		for (int e = 0; e < RING && d->lanes[k].events[e]; e++)
			d->driver->event_destroy(d->gpu, d->lanes[k].events[e]);
		if (d->lanes[k].stream)
			d->driver->stream_destroy(d->gpu, d->lanes[k].stream);
	}
	if (d->before)
		d->driver->event_destroy(d->gpu, d->before);
}

static void close_device(struct kolo_zero_device *device)
{
	struct gpu_device *d = of(device);

	if (d->gpu && d->driver->enter(d->gpu) == 0) {
		close_lanes(d);
		for (struct piece *p = d->pieces; p; p = p->next)
			d->driver->release(d->gpu, &p->memory);
		for (struct pin *p = d->pins; p; p = p->next)
			d->driver->unpin(d->gpu, (void *)p->host);
		d->driver->leave(d->gpu);
	}
	for (struct piece *p = d->pieces, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	for (struct pin *p = d->pins, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	if (d->gpu)
		d->driver->close(d->gpu);
	free(d);
}

static void describe(struct gpu_device *d, size_t budget)
{
	const struct ko_gpu_info *info = d->driver->info(d->gpu);

	snprintf(d->name, sizeof(d->name), "GPU %d (%s, %s)", info->ordinal, info->name, info->bus);
	d->info =
		(struct kolo_zero_device_info){ .kind = "cuda", .name = d->name, .budget = budget };
}

/* What it takes for itself is not part of the budget. */
static int open_device(struct gpu_device *d, int ordinal)
{
	size_t left = 0;
	int rc;

	if ((rc = d->driver->open_number(ordinal, &d->gpu)) < 0) {
		d->gpu = NULL;
		return rc;
	}
	if ((rc = d->driver->enter(d->gpu)) < 0)
		return rc;
	if ((rc = open_lanes(d)) == 0 && (rc = d->driver->free_bytes(d->gpu, &left)) == 0)
		describe(d, left);
	d->driver->leave(d->gpu);
	return rc;
}

int kolo_zero_cuda_open(int ordinal, struct kolo_zero_device **out)
{
	static const struct kolo_zero_device_ops ops = {
		.get = get,
		.allocate = allocate,
		.release = release,
		.pin = pin,
		.unpin = unpin,
		.copy = copy,
		.work = work,
		.wait = wait_ticket,
		.queue = make_queue,
		.close = close_device,
	};
	const struct ko_driver *driver;
	struct gpu_device *d;
	int rc;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_zero_cuda_open: out is NULL");
	*out = NULL;
	if ((rc = ko_driver_get(&driver)) < 0)
		return ko_fail(rc, "kolo_zero_cuda_open: GPU %d: %s", ordinal, kolo_last_error());
	d = calloc(1, sizeof(*d));
	if (!d)
		return ko_fail(KOLO_ENOMEM, "kolo_zero_cuda_open: GPU %d: no memory on the host",
			       ordinal);
	d->device.ops = &ops;
	d->driver = driver;
	if ((rc = open_device(d, ordinal)) < 0) {
		ko_fail(rc, "kolo_zero_cuda_open: GPU %d: %s", ordinal, driver->text());
		close_device(&d->device);
		return rc;
	}
	*out = &d->device;
	return 0;
}
