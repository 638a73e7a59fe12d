/* See gpu.h. Each stream is a thread, its GPU's memory is shared memory, and kernels are the host's
 * loops, or the source of the GPU's, compiled for the host (gpu_zero_kernels.cc). It does what CUDA
 * promises about order, and no more. */
#include "tests/cuda/gpu.h"
#include "tests/cuda/gpu_zero_kernels.h"

#include "cuda/driver/driver.h"

#include "comm/base/error.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* GPUs that are found by their number, and how much memory they have, all of them together. */
enum { GPUS = 8, GPU_MEMORY = 256 << 20 };

struct ko_gpu {
	struct ko_gpu_info info;
};

/* A record of an event. In a graph it is reached again with each launch. */
struct node {
	atomic_int holders;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t reached; /* how often */
};

struct event {
	pthread_mutex_t lock;
	struct node *node; /* of its last record; NULL: none yet */
	uint64_t capture;  /* that it was last recorded in; 0: none */
};

struct item {
	enum { FLAGS, KERNEL, ZERO, SET, COPY, RECORD, AWAIT, CALL } kind;
	int nops;
	struct ko_flag_op ops[KO_DRIVER_OPS];
	struct ko_gpu_job job;
	struct kolo_zero_work work;
	void *to; /* `len` bytes of it become `value`, or a copy of those at `from` */
	const void *from;
	unsigned char value;
	size_t len;
	struct node *node;
	uint64_t number; /* RECORD: it is reached so often then. AWAIT: that it must be */
	void (*fn)(void *arg);
	void *arg;
};

struct list {
	struct item *items;
	size_t n, room;
};

struct t_stream {
	struct ko_gpu gpu;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled, emptied;
	struct list list; /* what it was given; the first `done` of it are */
	size_t done;
	bool closing;
	uint64_t capture;   /* what it is given goes into `graph` */
	bool begun_by_test; /* the capture; others have joined it by an event */
	struct list graph;
	struct t_stream *next; /* of all that are captured */
};

enum { MAX_BRANCHES = 16, MAX_NODES = 4096 };

/* What was captured from the stream where the capture began, and from those that joined it, each of
 * which has a stream here. A node is the record of an event in it. */
struct t_graph {
	struct list list[MAX_BRANCHES];
	struct t_stream *branch[MAX_BRANCHES];
	int nlists, nnodes;
	struct node *nodes[MAX_NODES];
	uint64_t launches;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct t_stream *captured;

enum { MAX_PINS = 1024, MAX_ALLOCATIONS = 4096 };

/* What the program and Kolo have of a GPU's memory, and of what host and GPUs both use; a child has
 * its parent's. */
static struct allocation {
	void *at;
	size_t len;
	int ordinal; /* of a GPU; SHARED */
	int fd;      /* of which it is a mapping; -1 */
} allocations[MAX_ALLOCATIONS];
static size_t nallocations;
static pthread_mutex_t allocation_lock = PTHREAD_MUTEX_INITIALIZER;

enum { SHARED = -1 };

static struct pinned {
	const struct ko_gpu *gpu;
	void *host;
	size_t len;
} pins[MAX_PINS];
static size_t npins;
static pthread_mutex_t pin_lock = PTHREAD_MUTEX_INITIALIZER; /* of both */

static _Thread_local char last_text[128];
static _Thread_local int depth;       /* of enter */
static _Thread_local int last_device; /* that a stream was made on, or that was chosen */
static atomic_long live, fail_at, calls, unlike;
static atomic_size_t in_use; /* of GPU_MEMORY; what is mapped twice counts twice */
static atomic_int slow_ms;   /* of a kernel */
static atomic_uint shaking;
static atomic_bool losing;    /* what is written to others' memory */
static atomic_bool apart;     /* other ranks' memory can't be reached */
static atomic_bool for_cards; /* memory is handed to them */
static atomic_ulong written; /* flags, and streams to their ends: the thread sanitizer does not know
				that two places are the same memory */
static _Atomic uint64_t captures;

/* ---- Failures -------------------------------------------------------------------------------- */

static int fail(int code, const char *text)
{
	snprintf(last_text, sizeof(last_text), "%s", text);
	return code;
}

/* Before each call that may fail. */
static int may_fail(void)
{
	long call = atomic_fetch_add(&calls, 1) + 1;

	return call == atomic_load(&fail_at) ? fail(KOLO_ESYS, "the test wants it to fail") : 0;
}

/* And that works on a GPU. */
static int may_fail_inside(void)
{
	return depth > 0 ? may_fail() : fail(KOLO_ESYS, "no GPU was entered on this thread");
}

long t_driver_fail(long k)
{
	atomic_store(&fail_at, k);
	return atomic_exchange(&calls, 0);
}

long t_driver_unlike(void)
{
	return atomic_exchange(&unlike, 0);
}

void t_driver_slow(int ms)
{
	atomic_store(&slow_ms, ms);
}

void t_driver_lose(bool lose)
{
	atomic_store(&losing, lose);
}

void t_driver_apart(bool yes)
{
	atomic_store(&apart, yes);
}

/* As may_fail_inside, of what reaches other ranks' memory. */
static int may_fail_to_reach(void)
{
	int rc = may_fail_inside();

	return rc == 0 && atomic_load(&apart) ? fail(KOLO_ENOTSUP, "no way to that GPU") : rc;
}

void t_driver_for_cards(bool yes)
{
	atomic_store(&for_cards, yes);
}

long t_driver_live(void)
{
	return atomic_load(&live);
}

static const char *text(void)
{
	return last_text;
}

/* ---- Doing it -------------------------------------------------------------------------------- */

void t_driver_shake(unsigned seed)
{
	atomic_store(&shaking, seed);
}

/* Now and then a stream loses time. */
static void shake(void)
{
	unsigned x = atomic_load(&shaking);

	if (!x)
		return;
	x = x * 1664525 + 1013904223;
	atomic_store(&shaking, x ? x : 1);
	if (x >> 28 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = (long)(x >> 12 & 0xffff) }, NULL);
	else if (x >> 28 < 4)
		sched_yield();
}

static void do_flag(const struct ko_flag_op *op)
{
	_Atomic uint32_t *flag = op->flag;
	unsigned tries = 0;

	if (op->kind == KO_FLAG_WRITE) {
		atomic_fetch_add_explicit(&written, 1, memory_order_release);
		atomic_store_explicit(flag, op->value, memory_order_release);
		return;
	}
	while (!(atomic_load_explicit(flag, memory_order_acquire) & op->value) ==
	       (op->kind == KO_FLAG_SET)) {
		if (++tries < 100)
			sched_yield();
		else
			nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	atomic_load_explicit(&written, memory_order_acquire);
}

/* Several places are combined beside them: any of them may be written. */
static void do_kernel(const struct ko_gpu_job *j)
{
	const struct ko_kernels *k = ko_kernels_list()[0];
	size_t len = j->n * kolo_type_size(j->type);
	int ms = atomic_load(&slow_ms);
	ko_fill_fn *const *first;
	void *z;

	if (j->unless && atomic_load((const _Atomic uint32_t *)j->unless))
		return;
	if (ms)
		nanosleep(
			&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L },
			NULL);
	z = malloc(len);
	if (!z)
		abort();
	first = !j->scales ? k->copy : ko_is_logical(j->how) ? k->truth : k->scale;
	first[j->type](z, j->ins[0], j->n, &j->s);
	for (int i = 1; i < j->nins; i++)
		k->combine[j->type][j->how](z, z, j->ins[i], j->n, &j->s);
	if (j->divides)
		k->divide[j->type](z, z, j->n, &j->s);
	for (int i = 0; i < j->nouts; i++)
		memcpy(j->outs[i], z, len);
	free(z);
}

static void let_go(struct node *node)
{
	if (node && atomic_fetch_sub(&node->holders, 1) == 1)
		free(node);
}

static void reach_node(struct node *node, uint64_t number)
{
	pthread_mutex_lock(&node->lock);
	node->reached = number;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	let_go(node);
}

static void await_node(struct node *node, uint64_t number)
{
	pthread_mutex_lock(&node->lock);
	while (node->reached < number)
		pthread_cond_wait(&node->changed, &node->lock);
	pthread_mutex_unlock(&node->lock);
	let_go(node);
}

static void do_item(const struct item *item)
{
	shake();
	switch (item->kind) {
	case FLAGS:
		for (int k = 0; k < item->nops; k++)
			do_flag(&item->ops[k]);
		break;
	case KERNEL: do_kernel(&item->job); break;
	case ZERO: t_zero_launch(&item->work); break;
	case SET: memset(item->to, item->value, item->len); break;
	case COPY: memcpy(item->to, item->from, item->len); break;
	case RECORD: reach_node(item->node, item->number); break;
	case AWAIT: await_node(item->node, item->number); break;
	case CALL: item->fn(item->arg); break;
	}
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void append(struct list *list, const struct item *item)
{
	if (list->n == list->room) {
		list->room = list->room ? 2 * list->room : 64;
		list->items = realloc(list->items, list->room * sizeof(*item));
		if (!list->items)
			abort();
	}
	list->items[list->n++] = *item;
}

static void *work(void *arg)
{
	struct t_stream *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct item item;

		while (s->done == s->list.n && !s->closing)
			pthread_cond_wait(&s->filled, &s->lock);
		if (s->done == s->list.n)
			break;
		item = s->list.items[s->done];
		pthread_mutex_unlock(&s->lock);
		do_item(&item);
		pthread_mutex_lock(&s->lock);
		if (++s->done == s->list.n)
			s->done = s->list.n = 0;
		pthread_cond_broadcast(&s->emptied);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* For the stream to do: it holds the node until then. */
static void give(struct t_stream *s, const struct item *item)
{
	if (item->node)
		atomic_fetch_add(&item->node->holders, 1);
	pthread_mutex_lock(&s->lock);
	append(&s->list, item);
	pthread_cond_signal(&s->filled);
	pthread_mutex_unlock(&s->lock);
}

/* What the program or Kolo puts on the stream. */
static void put_item(struct t_stream *s, const struct item *item)
{
	bool later;

	pthread_mutex_lock(&s->lock);
	later = s->capture;
	if (later)
		append(&s->graph, item);
	pthread_mutex_unlock(&s->lock);
	if (!later)
		give(s, item);
}

bool t_stream_is_idle(struct t_stream *s)
{
	bool idle;

	pthread_mutex_lock(&s->lock);
	idle = s->list.n == 0;
	pthread_mutex_unlock(&s->lock);
	return idle;
}

static void describe(struct ko_gpu *gpu, int number)
{
	gpu->info = (struct ko_gpu_info){ .name = "made of threads", .ordinal = number };
	snprintf(gpu->info.bus, sizeof(gpu->info.bus), "0000:%02x:00.0", number);
}

struct t_stream *t_stream_create(int device)
{
	struct t_stream *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	describe(&s->gpu, device);
	last_device = device;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->filled, NULL);
	pthread_cond_init(&s->emptied, NULL);
	if (pthread_create(&s->thread, NULL, work, s))
		abort();
	return s;
}

void t_stream_destroy(struct t_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_cond_signal(&s->filled);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	free(s->list.items);
	free(s);
}

void t_stream_run(struct t_stream *s, void (*fn)(void *arg), void *arg)
{
	put_item(s, &(struct item){ .kind = CALL, .fn = fn, .arg = arg });
}

void t_stream_copy(struct t_stream *s, void *to, const void *from, size_t len)
{
	put_item(s, &(struct item){ .kind = COPY, .to = to, .from = from, .len = len });
}

void t_stream_set(struct t_stream *s, void *to, unsigned char value, size_t len)
{
	put_item(s, &(struct item){ .kind = SET, .to = to, .value = value, .len = len });
}

void t_gpu_copy(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}

void t_stream_finish(struct t_stream *s)
{
	pthread_mutex_lock(&s->lock);
	while (s->list.n)
		pthread_cond_wait(&s->emptied, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

static void begin_capture(struct t_stream *s, uint64_t capture, bool by_test)
{
	pthread_mutex_lock(&s->lock);
	s->capture = capture;
	s->begun_by_test = by_test;
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_lock(&capture_lock);
	s->next = captured;
	captured = s;
	pthread_mutex_unlock(&capture_lock);
}

void t_capture_begin(struct t_stream *s)
{
	begin_capture(s, atomic_fetch_add(&captures, 1) + 1, true);
}

/* Moves what was captured from a stream into the graph. */
static void take_branch(struct t_graph *g, struct t_stream *s)
{
	int k = s->begun_by_test ? 0 : g->nlists++;

	if (k == MAX_BRANCHES)
		abort();
	pthread_mutex_lock(&s->lock);
	g->list[k] = s->graph;
	s->graph = (struct list){ 0 };
	s->capture = 0;
	pthread_mutex_unlock(&s->lock);
	if (k > 0)
		g->branch[k] = t_stream_create(s->gpu.info.ordinal);
	for (size_t i = 0; i < g->list[k].n; i++) {
		const struct item *item = &g->list[k].items[i];

		if (item->kind != RECORD)
			continue;
		if (g->nnodes == MAX_NODES)
			abort();
		g->nodes[g->nnodes++] = item->node;
	}
}

struct t_graph *t_capture_end(struct t_stream *s)
{
	struct t_graph *g = calloc(1, sizeof(*g));
	struct t_stream **at = &captured, *one;
	uint64_t capture = s->capture;

	if (!g)
		abort();
	g->nlists = 1;
	pthread_mutex_lock(&capture_lock);
	while ((one = *at)) {
		if (one->capture != capture) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		take_branch(g, one);
	}
	pthread_mutex_unlock(&capture_lock);
	return g;
}

void t_graph_launch(struct t_graph *g, struct t_stream *s)
{
	g->launches++;
	for (int k = 0; k < g->nlists; k++)
		for (size_t i = 0; i < g->list[k].n; i++) {
			struct item *item = &g->list[k].items[i];

			item->number = g->launches; /* if it has a node */
			give(k ? g->branch[k] : s, item);
		}
}

void t_graph_destroy(struct t_graph *g)
{
	for (int k = 0; k < g->nlists; k++) {
		if (k > 0)
			t_stream_destroy(g->branch[k]);
		free(g->list[k].items);
	}
	for (int k = 0; k < g->nnodes; k++)
		let_go(g->nodes[k]);
	free(g);
}

static uint64_t capture_of(struct t_stream *s)
{
	uint64_t capture;

	pthread_mutex_lock(&s->lock);
	capture = s->capture;
	pthread_mutex_unlock(&s->lock);
	return capture;
}

unsigned long long t_stream_capture(struct t_stream *s)
{
	return capture_of(s);
}

/* Is some stream in this capture? */
static bool is_open(uint64_t capture)
{
	bool found = false;

	pthread_mutex_lock(&capture_lock);
	for (struct t_stream *s = captured; s; s = s->next)
		found = found || s->capture == capture;
	pthread_mutex_unlock(&capture_lock);
	return found;
}

/* ---- Default streams ------------------------------------------------------------------------- */

static struct t_stream *defaults[GPUS];
static pid_t default_pid; /* whose they are: a child does not have its parent's threads */
static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;

void t_device_choose(int device)
{
	last_device = device;
}

struct t_stream *t_stream_default(int device)
{
	struct t_stream *s;

	pthread_mutex_lock(&default_lock);
	if (default_pid != getpid())
		memset(defaults, 0, sizeof(defaults));
	default_pid = getpid();
	if (!defaults[device])
		defaults[device] = t_stream_create(device);
	s = defaults[device];
	pthread_mutex_unlock(&default_lock);
	return s;
}

/* The stream that a GPU's driver is given: NULL is the default one. */
static struct t_stream *stream_of(const struct ko_gpu *gpu, void *stream)
{
	return stream ? stream : t_stream_default(gpu->info.ordinal);
}

/* ---- The driver's table ---------------------------------------------------------------------- */

static int open_gpu(void *stream, struct ko_gpu **out)
{
	struct t_stream *s = stream ? stream : t_stream_default(last_device);

	if (may_fail() < 0)
		return KOLO_ESYS;
	*out = malloc(sizeof(**out));
	if (!*out)
		return fail(KOLO_ENOMEM, "no memory");
	**out = s->gpu;
	atomic_fetch_add(&live, 1);
	return 0;
}

static int open_number(int number, struct ko_gpu **out)
{
	char why[64];

	snprintf(why, sizeof(why), "this process has GPUs 0 to %d", GPUS - 1);
	if (number < 0 || number >= GPUS)
		return fail(KOLO_ENOTSUP, why);
	if (may_fail() < 0)
		return KOLO_ESYS;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return fail(KOLO_ENOMEM, "no memory");
	describe(*out, number);
	atomic_fetch_add(&live, 1);
	return 0;
}

static void close_gpu(struct ko_gpu *gpu)
{
	free(gpu);
	atomic_fetch_sub(&live, 1);
}

static const struct ko_gpu_info *info(const struct ko_gpu *gpu)
{
	return &gpu->info;
}

static bool same(const struct ko_gpu *a, const struct ko_gpu *b)
{
	return memcmp(&a->info, &b->info, sizeof(a->info)) == 0;
}

static int enter(struct ko_gpu *gpu)
{
	(void)gpu;
	depth++;
	return 0;
}

static void leave(struct ko_gpu *gpu)
{
	(void)gpu;
	depth--;
}

static void note_memory(void *at, size_t len, int ordinal, int fd)
{
	pthread_mutex_lock(&allocation_lock);
	if (nallocations == MAX_ALLOCATIONS)
		abort();
	allocations[nallocations++] = (struct allocation){ at, len, ordinal, fd };
	pthread_mutex_unlock(&allocation_lock);
}

static void forget_memory(const void *at)
{
	size_t k = 0;

	pthread_mutex_lock(&allocation_lock);
	while (k < nallocations && allocations[k].at != at)
		k++;
	if (k == nallocations)
		abort();
	allocations[k] = allocations[--nallocations];
	pthread_mutex_unlock(&allocation_lock);
}

static int map_memory(int ordinal, int fd, size_t len, int flags, struct ko_gpu_memory *out)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (at == MAP_FAILED)
		return fail(KOLO_ENOMEM, strerror(errno));
	*out = (struct ko_gpu_memory){ .at = at, .len = len, .handle = (uint64_t)fd };
	atomic_fetch_add(&live, 1);
	atomic_fetch_add(&in_use, len);
	note_memory(at, len, ordinal, fd);
	return 0;
}

static int make_memory(int ordinal, size_t len, struct ko_gpu_memory *out)
{
	int fd = memfd_create("gpu", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)len) < 0)
		return fail(KOLO_ENOMEM, strerror(errno));
	return map_memory(ordinal, fd, len, MAP_SHARED, out);
}

static int alloc(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out)
{
	int rc = may_fail_inside();

	return rc < 0 ? rc : make_memory(gpu->info.ordinal, len, out);
}

/* Bytes of it are not 0 before they are cleared. */
static int alloc_own(struct ko_gpu *gpu, size_t len, struct ko_gpu_memory *out)
{
	int rc;

	if (len > GPU_MEMORY - atomic_load(&in_use))
		return fail(KOLO_ENOMEM, "the GPU has less");
	rc = alloc(gpu, len, out);
	if (rc == 0)
		memset(out->at, 0xa5, len < 4096 ? len : 4096);
	return rc;
}

static int free_bytes(struct ko_gpu *gpu, size_t *out)
{
	(void)gpu;
	*out = GPU_MEMORY - atomic_load(&in_use);
	return may_fail_inside();
}

static int export_memory(struct ko_gpu *gpu, const void *at, size_t len, struct ko_gpu_export *out,
			 int *fd)
{
	int rc = may_fail_inside();

	(void)gpu;
	if (rc < 0)
		return rc;
	*fd = -1;
	pthread_mutex_lock(&allocation_lock);
	for (size_t k = 0; k < nallocations; k++) {
		const struct allocation *a = &allocations[k];
		size_t offset = (uintptr_t)at - (uintptr_t)a->at;

		if (offset >= a->len || len > a->len - offset || a->fd < 0)
			continue;
		*out = (struct ko_gpu_export){ .len = a->len, .offset = offset, .kind = 1 };
		*fd = dup(a->fd);
	}
	pthread_mutex_unlock(&allocation_lock);
	return *fd < 0 ? fail(KOLO_ENOTSUP, "not one allocation of the GPU's") : 0;
}

static int import(struct ko_gpu *gpu, const struct ko_gpu_export *memory, int fd,
		  struct ko_gpu_memory *out)
{
	int rc = may_fail_to_reach(), own;

	if (rc < 0)
		return rc;
	own = dup(fd);
	if (own < 0 || memory->kind != 1)
		return fail(KOLO_ESYS, "no descriptor of memory");
	rc = map_memory(gpu->info.ordinal, own, memory->len,
			atomic_load(&losing) ? MAP_PRIVATE : MAP_SHARED, out);
	out->mapped = true;
	return rc;
}

static void release(struct ko_gpu *gpu, struct ko_gpu_memory *memory)
{
	(void)gpu;
	if (!memory->at)
		return;
	forget_memory(memory->at);
	munmap(memory->at, memory->len);
	atomic_fetch_sub(&in_use, memory->len);
	close((int)memory->handle);
	*memory = (struct ko_gpu_memory){ 0 };
	atomic_fetch_sub(&live, 1);
}

static int reach(struct ko_gpu *gpu, const void *at, const struct ko_gpu_export *memory)
{
	(void)gpu, (void)at, (void)memory;
	return may_fail_to_reach();
}

/* Whether some of the bytes, but not all, are pinned at once, which CUDA does not copy; with the
 * lock. */
static bool is_mixed(const void *p, size_t len)
{
	uintptr_t begin = (uintptr_t)p, end = begin + len;

	for (size_t k = 0; k < npins; k++) {
		uintptr_t first = (uintptr_t)pins[k].host, last = first + pins[k].len;

		if (begin < last && first < end && (begin < first || end > last))
			return true;
	}
	return false;
}

static int dmabuf(struct ko_gpu *gpu, const struct ko_gpu_memory *memory, int *fd)
{
	int rc = may_fail_inside();

	(void)gpu;
	if (rc < 0 || !atomic_load(&for_cards))
		return rc < 0 ? rc : fail(KOLO_ENOTSUP, "no card reads or writes threads");
	*fd = dup((int)memory->handle);
	return *fd < 0 ? fail(KOLO_ESYS, strerror(errno)) : 0;
}

static int flush(struct ko_gpu *gpu)
{
	(void)gpu;
	return may_fail_inside();
}

static int pin(struct ko_gpu *gpu, void *host, size_t len, void **out)
{
	int rc = may_fail_inside();

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&pin_lock);
	if (npins == MAX_PINS)
		abort();
	pins[npins++] = (struct pinned){ gpu, host, len };
	pthread_mutex_unlock(&pin_lock);
	*out = host;
	atomic_fetch_add(&live, 1);
	return 0;
}

static void unpin(struct ko_gpu *gpu, void *host)
{
	size_t k = 0;

	pthread_mutex_lock(&pin_lock);
	while (k < npins && (pins[k].gpu != gpu || pins[k].host != host))
		k++;
	if (k == npins)
		abort();
	pins[k] = pins[--npins];
	pthread_mutex_unlock(&pin_lock);
	atomic_fetch_sub(&live, 1);
}

static int pointer(struct ko_gpu *gpu, const void *memory, struct kolo_cuda_pointer *out)
{
	*out = (struct kolo_cuda_pointer){ .kind = KOLO_CUDA_ORDINARY, .device = -1 };
	pthread_mutex_lock(&allocation_lock);
	for (size_t k = 0; k < nallocations; k++) {
		const struct allocation *a = &allocations[k];

		if ((uintptr_t)memory - (uintptr_t)a->at >= a->len)
			continue;
		out->kind = a->ordinal == SHARED ? KOLO_CUDA_MANAGED : KOLO_CUDA_DEVICE;
		out->device = a->ordinal == SHARED ? -1 : a->ordinal;
		out->usable = a->ordinal == SHARED || a->ordinal == gpu->info.ordinal;
	}
	pthread_mutex_unlock(&allocation_lock);
	return may_fail_inside();
}

static int flags(struct ko_gpu *gpu, void *stream, const struct ko_flag_op *ops, int n)
{
	struct item item = { .kind = FLAGS, .nops = n };
	int rc = may_fail_inside();

	if (rc < 0)
		return rc;
	if (n > KO_DRIVER_OPS)
		return fail(KOLO_ESYS, "too many ops");
	memcpy(item.ops, ops, (size_t)n * sizeof(*ops));
	put_item(stream_of(gpu, stream), &item);
	return 0;
}

/* Do all the job's places lie as far after a multiple of 16 bytes? */
static bool are_alike(const struct ko_gpu_job *j)
{
	uintptr_t first = (uintptr_t)j->outs[0];
	bool alike = true;

	for (int k = 0; k < j->nins; k++)
		alike = alike && ((uintptr_t)j->ins[k] - first) % 16 == 0;
	for (int k = 1; k < j->nouts; k++)
		alike = alike && ((uintptr_t)j->outs[k] - first) % 16 == 0;
	return alike;
}

static int compute(struct ko_gpu *gpu, void *stream, const struct ko_gpu_job *job)
{
	int rc = may_fail_inside();

	if (rc == 0) {
		atomic_fetch_add(&unlike, !are_alike(job));
		put_item(stream_of(gpu, stream), &(struct item){ .kind = KERNEL, .job = *job });
	}
	return rc;
}

static int zero(struct ko_gpu *gpu, void *stream, const struct kolo_zero_work *work)
{
	int rc = may_fail_inside();

	if (rc == 0)
		put_item(stream_of(gpu, stream), &(struct item){ .kind = ZERO, .work = *work });
	return rc;
}

static int clear(struct ko_gpu *gpu, void *stream, void *memory, size_t len)
{
	int rc = may_fail_inside();

	if (rc == 0)
		put_item(stream_of(gpu, stream),
			 &(struct item){ .kind = SET, .to = memory, .len = len });
	return rc;
}

static int copy(struct ko_gpu *gpu, void *stream, void *to, const void *from, size_t len)
{
	int rc = may_fail_inside();
	bool mixed;

	(void)gpu;
	pthread_mutex_lock(&pin_lock);
	mixed = is_mixed(to, len) || is_mixed(from, len);
	pthread_mutex_unlock(&pin_lock);
	if (rc == 0 && mixed)
		rc = fail(KOLO_ESYS, "a copy of memory of which some is pinned");
	if (rc == 0)
		put_item(stream,
			 &(struct item){ .kind = COPY, .to = to, .from = from, .len = len });
	return rc;
}

static int event_create(struct ko_gpu *gpu, void **out)
{
	struct event *e;
	int rc = may_fail_inside();

	(void)gpu;
	if (rc < 0)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return fail(KOLO_ENOMEM, "no memory");
	pthread_mutex_init(&e->lock, NULL);
	atomic_fetch_add(&live, 1);
	*out = e;
	return 0;
}

static void event_destroy(struct ko_gpu *gpu, void *event)
{
	struct event *e = event;

	(void)gpu;
	let_go(e->node);
	free(e);
	atomic_fetch_sub(&live, 1);
}

static int event_record(struct ko_gpu *gpu, void *event, void *stream)
{
	struct event *e = event;
	struct node *node;
	struct t_stream *s = stream_of(gpu, stream);
	uint64_t capture = capture_of(s);
	int rc = may_fail_inside();

	if (rc < 0)
		return rc;
	node = calloc(1, sizeof(*node));
	if (!node)
		abort();
	pthread_mutex_init(&node->lock, NULL);
	pthread_cond_init(&node->changed, NULL);
	atomic_store(&node->holders, capture ? 2 : 1); /* the event, and the graph */
	put_item(s, &(struct item){ .kind = RECORD, .node = node, .number = 1 });
	pthread_mutex_lock(&e->lock);
	let_go(e->node);
	e->node = node;
	e->capture = capture;
	pthread_mutex_unlock(&e->lock);
	return 0;
}

/* Its last record, which the caller lets go. NULL: there is none. */
static struct node *node_of(struct event *e, uint64_t *capture)
{
	struct node *node;

	pthread_mutex_lock(&e->lock);
	node = e->node;
	if (node)
		atomic_fetch_add(&node->holders, 1);
	*capture = e->capture;
	pthread_mutex_unlock(&e->lock);
	return node;
}

/* CUDA forbids to wait for what a capture has not recorded, and for what another one has. A stream
 * that is not captured joins the capture of what it waits for. */
static int event_await(struct ko_gpu *gpu, void *stream, void *event)
{
	struct t_stream *s = stream_of(gpu, stream);
	uint64_t capture = capture_of(s), its;
	int rc = may_fail_inside();
	struct node *node;

	if (rc < 0)
		return rc;
	node = node_of(event, &its);
	if (!capture && its && is_open(its))
		begin_capture(s, its, false);
	else if (its != capture)
		rc = fail(KOLO_ESYS, "an event from outside of the capture, or from another one");
	if (rc == 0 && node)
		put_item(s, &(struct item){ .kind = AWAIT, .node = node, .number = 1 });
	let_go(node);
	return rc;
}

static int event_poll(struct ko_gpu *gpu, void *event)
{
	uint64_t capture;
	struct node *node;
	int rc = 0;

	(void)gpu;
	if (depth == 0)
		return fail(KOLO_ESYS, "no GPU was entered on this thread");
	node = node_of(event, &capture);
	if (capture)
		rc = fail(KOLO_ESYS, "an event that a capture has recorded");
	else if (node) {
		pthread_mutex_lock(&node->lock);
		rc = node->reached ? 0 : KO_EAGAIN;
		pthread_mutex_unlock(&node->lock);
	}
	let_go(node);
	return rc;
}

static int event_finish(struct ko_gpu *gpu, void *event)
{
	uint64_t capture;
	struct node *node;
	int rc = may_fail_inside();

	(void)gpu;
	if (rc < 0)
		return rc;
	node = node_of(event, &capture);
	if (capture)
		rc = fail(KOLO_ESYS, "an event that a capture has recorded");
	if (!node || capture)
		let_go(node);
	else
		await_node(node, 1);
	return rc;
}

static int stream_create(struct ko_gpu *gpu, void **out)
{
	int rc = may_fail_inside();

	if (rc < 0)
		return rc;
	*out = t_stream_create(gpu->info.ordinal);
	atomic_fetch_add(&live, 1);
	return 0;
}

static void stream_destroy(struct ko_gpu *gpu, void *stream)
{
	(void)gpu;
	t_stream_destroy(stream);
	atomic_fetch_sub(&live, 1);
}

static int capture(struct ko_gpu *gpu, void *stream, uint64_t *out)
{
	*out = capture_of(stream_of(gpu, stream));
	return may_fail_inside();
}

static int finish(struct ko_gpu *gpu, void *stream)
{
	struct t_stream *s = stream_of(gpu, stream);

	if (capture_of(s))
		return fail(KOLO_ESYS, "the stream is captured");
	t_stream_finish(s);
	atomic_fetch_add_explicit(&written, 1, memory_order_release);
	return may_fail_inside();
}

static int put(struct ko_gpu *gpu, void *to, const void *host, size_t len)
{
	(void)gpu;
	memcpy(to, host, len);
	return may_fail_inside();
}

static int get(struct ko_gpu *gpu, void *host, const void *from, size_t len)
{
	(void)gpu;
	atomic_load_explicit(&written, memory_order_acquire);
	memcpy(host, from, len);
	return may_fail_inside();
}

static const struct ko_driver driver = {
	.version = KO_DRIVER_VERSION,
	.text = text,
	.open = open_gpu,
	.open_number = open_number,
	.close = close_gpu,
	.info = info,
	.same = same,
	.enter = enter,
	.leave = leave,
	.free_bytes = free_bytes,
	.alloc = alloc,
	.alloc_own = alloc_own,
	.export = export_memory,
	.import = import,
	.release = release,
	.reach = reach,
	.dmabuf = dmabuf,
	.flush = flush,
	.pin = pin,
	.unpin = unpin,
	.pointer = pointer,
	.flags = flags,
	.compute = compute,
	.zero = zero,
	.clear = clear,
	.copy = copy,
	.event_create = event_create,
	.event_destroy = event_destroy,
	.event_record = event_record,
	.event_await = event_await,
	.event_poll = event_poll,
	.event_finish = event_finish,
	.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.capture = capture,
	.finish = finish,
	.put = put,
	.get = get,
};

void t_gpu_use(void)
{
	ko_driver_use(&driver);
}

struct CUstream_st *t_stream_handle(struct t_stream *s)
{
	return (struct CUstream_st *)s;
}

void *t_gpu_alloc(size_t len)
{
	void *memory = aligned_alloc(256, (len + 255) / 256 * 256);

	if (!memory)
		abort();
	memset(memory, 0, len);
	note_memory(memory, len, SHARED, -1);
	return memory;
}

void t_gpu_free(void *memory)
{
	forget_memory(memory);
	free(memory);
}

void *t_device_alloc(size_t len)
{
	struct ko_gpu_memory memory;

	if (make_memory(last_device, len, &memory) < 0)
		abort();
	return memory.at;
}

void t_device_free(void *memory)
{
	struct ko_gpu_memory m = { .at = memory };

	pthread_mutex_lock(&allocation_lock);
	for (size_t k = 0; k < nallocations; k++)
		if (allocations[k].at == memory) {
			m.len = allocations[k].len;
			m.handle = (uint64_t)allocations[k].fd;
		}
	pthread_mutex_unlock(&allocation_lock);
	release(NULL, &m);
}
