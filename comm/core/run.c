/* Claims the communicator for an operation (ko_run_claim), posts it (ko_run_begin) and ends it
 * (ko_run_end). */
#include "comm/core/run.h"

#include "comm/base/clock.h"
#include "comm/base/fork.h"
#include "comm/core/wait.h"

int ko_run_claim(struct kolo_comm *c, enum ko_coll coll)
{
	if (c->generation == ko_generation &&
	    !atomic_exchange_explicit(&c->sequence.busy, true, memory_order_acquire))
		return 0;
	if (c->generation != ko_generation)
		return ko_comm_check_process(c, ko_coll_name((int)coll));
	return ko_fail(KOLO_EINVAL,
		       "rank %d: kolo_%s: another thread is in an operation on this communicator",
		       c->rank, ko_coll_name((int)coll));
}

/* Logs and traces the operation. */
static void record(const struct ko_run *run, int rc)
{
	struct kolo_comm *c = run->comm;
	char text[KO_DESC_TEXT];

	ko_desc_text(&run->desc, text);
	ko_log(&c->log, KOLO_LOG_TRACE, "%s: %s after %.1f us", text, kolo_strerror(rc),
	       (double)(ko_now_ns() - run->since) / 1e3);
	ko_trace_add(c->trace, KO_TRACE_OP, run->since, run->desc.seq, text);
}

int ko_run_begin_p2p(struct ko_run *run)
{
	if (run->comm->traced)
		run->since = ko_now_ns();
	return ko_wait_hear(run->comm);
}

int ko_run_begin(struct ko_run *run)
{
	struct kolo_comm *c = run->comm;

	if (c->traced)
		run->since = ko_now_ns();
	run->desc.seq = ++c->sequence.seq;
	c->sequence.history = ko_desc_history(c->sequence.history, &run->desc);
	run->tag = (uint32_t)c->sequence.history;
	ko_roster_enter(c->roster, c->rank, &run->desc);
	return ko_wait_health(c, &run->desc);
}

int ko_run_wait_longer(const struct ko_run *run, int peer, const char *transport,
		       enum ko_trace_kind kind, ko_try_fn *try, void *what)
{
	const struct ko_waiter waiter = ko_run_waiter(run);

	return ko_wait_longer(&waiter, peer, transport, kind, try, what);
}

int ko_run_end(struct ko_run *run, int rc)
{
	struct kolo_comm *c = run->comm;

	if (rc < 0) {
		rc = ko_comm_fail(c, rc, "%s", kolo_last_error());
	} else if (run->desc.seq) {
		ko_roster_finish(c->roster, c->rank, run->desc.seq);
		ko_bells_ring(c->bells, c->rank, c->nranks);
	}
	if (run->since)
		record(run, rc);
	ko_run_release(c);
	return rc;
}
