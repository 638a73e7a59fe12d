/* See moves.h. The reduction reads prev's slot and the own buffer and writes next's slot in one pass; there is
 * no scratch buffer. */
#include "moves.h"

#include "watch.h"

/* Tries before the core is given away: a few microseconds, about what it costs to be woken again. */
enum { SPINS = 100 };

typedef int try_fn(struct ko_link *link, struct ko_slot *out);

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Spins, then lets watch.c give the core away. */
static int wait_longer(struct ko_run *run, struct ko_link *link, int peer, try_fn *try, struct ko_slot *out)
{
	struct ko_watch watch;
	int rc = KO_EAGAIN;

	for (int spins = 0; rc == KO_EAGAIN && spins < SPINS; spins++) {
		relax();
		rc = try(link, out);
	}
	if (rc != KO_EAGAIN)
		return rc;
	ko_watch_begin(&watch, run->comm, &run->desc, peer, link->ops->name);
	while ((rc = try(link, out)) == KO_EAGAIN && (rc = ko_watch(&watch)) == 0)
		;
	ko_watch_end(&watch);
	return rc;
}

/* Every wait of a collective is here. */
static int wait_slot(struct ko_run *run, struct ko_link *link, int peer, try_fn *try, struct ko_slot *out)
{
	int rc = try(link, out);
	int64_t since;

	if (rc != KO_EAGAIN)
		return rc;
	since = run->since ? ko_trace_now() : 0;
	rc = wait_longer(run, link, peer, try, out);
	ko_trace_add(run->comm->trace, link->role == KO_RECV ? KO_TRACE_DATA : KO_TRACE_ROOM, since,
		     (uint64_t)peer, NULL);
	return rc;
}

/* The oldest slot from prev, which must be this operation's and hold n elements. */
static int wait_in(struct ko_run *run, struct ko_slot *in, size_t n)
{
	struct kolo_comm *c = run->comm;
	int prev = ko_ring_prev(c->rank, c->nranks);
	int rc = wait_slot(run, c->from_prev, prev, c->from_prev->ops->peek, in);

	if (rc < 0)
		return rc;
	if (in->tag != run->tag)
		return ko_watch_mismatch(c, &run->desc, prev, in->tag);
	if (in->len != n * run->size)
		return ko_fail(KOLO_ESYS,
			       "rank %d: the %s link from rank %d brought %zu bytes where %zu were due",
			       c->rank, c->from_prev->ops->name, prev, in->len, n * run->size);
	return 0;
}

/* A free slot to next. */
static int wait_out(struct ko_run *run, struct ko_slot *out)
{
	struct kolo_comm *c = run->comm;

	return wait_slot(run, c->to_next, ko_ring_next(c->rank, c->nranks), c->to_next->ops->acquire, out);
}

static int commit(struct ko_run *run, struct ko_slot *out, size_t n)
{
	struct ko_link *link = run->comm->to_next;

	out->len = n * run->size;
	out->tag = run->tag;
	return link->ops->commit(link, out);
}

static int release(struct ko_run *run)
{
	struct ko_link *link = run->comm->from_prev;

	return link->ops->release(link);
}

/* Nothing is computed for an empty piece, whose pointers may be NULL. */
static void fill(const struct ko_run *run, ko_fill_fn *fn, void *dst, const void *src, size_t n)
{
	if (n)
		fn(dst, src, n, &run->red.s);
}

static void combine(const struct ko_run *run, void *dst, const void *in, const void *own, size_t n)
{
	if (n)
		run->red.combine(dst, in, own, n, &run->red.s);
}

int ko_send(struct ko_run *run, ko_fill_fn *fn, const void *src, size_t n)
{
	struct ko_slot out;
	int rc = wait_out(run, &out);

	if (rc < 0)
		return rc;
	fill(run, fn, out.ptr, src, n);
	return commit(run, &out, n);
}

int ko_add_and_pass(struct ko_run *run, const void *own, size_t n)
{
	struct ko_slot in, out;
	int rc;

	if ((rc = wait_in(run, &in, n)) < 0 || (rc = wait_out(run, &out)) < 0)
		return rc;
	combine(run, out.ptr, in.ptr, own, n);
	if ((rc = commit(run, &out, n)) < 0)
		return rc;
	return release(run);
}

int ko_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n)
{
	struct ko_slot in;
	int rc = wait_in(run, &in, n);

	if (rc < 0)
		return rc;
	combine(run, dst, in.ptr, own, n);
	fill(run, run->red.finish, dst, dst, n);
	return release(run);
}

/* Passed on before it is kept: next waits for it. */
int ko_keep_and_pass(struct ko_run *run, void *dst, size_t n)
{
	struct ko_slot in, out;
	int rc;

	if ((rc = wait_in(run, &in, n)) < 0 || (rc = wait_out(run, &out)) < 0)
		return rc;
	fill(run, run->copy, out.ptr, in.ptr, n);
	if ((rc = commit(run, &out, n)) < 0)
		return rc;
	fill(run, run->copy, dst, in.ptr, n);
	return release(run);
}

int ko_keep(struct ko_run *run, void *dst, size_t n)
{
	struct ko_slot in;
	int rc = wait_in(run, &in, n);

	if (rc < 0)
		return rc;
	fill(run, run->copy, dst, in.ptr, n);
	return release(run);
}

static int try_drain(struct ko_link *link, struct ko_slot *out)
{
	(void)out;
	return link->ops->drain(link);
}

int ko_drain(struct ko_run *run)
{
	struct kolo_comm *c = run->comm;

	if (!c->to_next)
		return 0;
	return wait_slot(run, c->to_next, ko_ring_next(c->rank, c->nranks), try_drain, NULL);
}
