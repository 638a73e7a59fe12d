/* The moves of a ring (ko_moves_now). An addition reads prev's slot and the own buffer, and writes
 * next's slot, in one pass. */
#include "comm/rings/moves.h"

#include "comm/rings/step.h"

/* A link knows offers by their place in the stream of slots. So a rank that gets no pieces must not
 * make one. */
void ko_offer(struct ko_run *run, void *dst)
{
	struct ko_link *to = run->comm->edges.to, *from = run->comm->edges.from;
	bool gets = run->desc.coll != KO_BROADCAST || run->comm->rank != run->desc.root;
	size_t len = run->plan.count * run->size;

	run->vector = dst;
	ko_link_begin(to);
	ko_link_begin(from);
	if (gets && !from->anywhere && ko_link_takes(from, dst, len))
		from->ops->rma->offer(from, dst, len);
}

/* Waits for the slots of a step, and does it. */
__attribute__((always_inline)) static inline int wait_and_do(struct ko_run *run,
							     const struct ko_edges *e,
							     const struct ko_step *s)
{
	struct ko_slot in, out;
	int rc = 0;

	if (s->in)
		rc = ko_wait_data(run, e, ko_step_place(s), ko_step_bytes(run, s), &in);
	if (rc == 0 && s->out)
		rc = ko_wait_room(run, e, &out);
	return rc < 0 ? rc : ko_step_do(run, e, s, &in, &out);
}

__attribute__((always_inline)) static inline int do_step(struct ko_run *run,
							 const struct ko_step *s)
{
	return wait_and_do(run, &run->comm->edges, s);
}

int ko_do_step(struct ko_run *run, const struct ko_edges *along, const struct ko_step *s)
{
	return wait_and_do(run, along, s);
}

int ko_send(struct ko_run *run, ko_fill_fn *fn, const void *src, const void *to, size_t n)
{
	const struct ko_part part = { src, (void *)to, n, 0 };

	return do_step(
		run, &(struct ko_step){
			     .out = true, .fill = fn, .stays = true, .parts = &part, .nparts = 1 });
}

int ko_add_and_pass(struct ko_run *run, const void *own, size_t n)
{
	const struct ko_part part = { own, NULL, n, 0 };

	return do_step(run, &(struct ko_step){ .in = true,
					       .out = true,
					       .combine = run->red.combine,
					       .parts = &part,
					       .nparts = 1 });
}

int ko_add_and_keep(struct ko_run *run, const void *own, void *dst, size_t n)
{
	const struct ko_part part = { own, dst, n, 0 };

	return do_step(run, &(struct ko_step){ .in = true,
					       .combine = run->red.combine,
					       .finish = run->red.finish,
					       .parts = &part,
					       .nparts = 1 });
}

int ko_add_keep_and_pass(struct ko_run *run, const void *own, void *dst, size_t n)
{
	const struct ko_part part = { own, dst, n, 0 };

	return do_step(run, &(struct ko_step){ .in = true,
					       .out = true,
					       .combine = run->red.combine,
					       .finish = run->red.finish,
					       .stays = true,
					       .parts = &part,
					       .nparts = 1 });
}

int ko_keep_and_pass(struct ko_run *run, void *dst, size_t n)
{
	const struct ko_part part = { NULL, dst, n, 0 };

	return do_step(
		run, &(struct ko_step){
			     .in = true, .out = true, .stays = true, .parts = &part, .nparts = 1 });
}

int ko_keep(struct ko_run *run, void *dst, size_t n)
{
	const struct ko_part part = { NULL, dst, n, 0 };

	return do_step(run, &(struct ko_step){ .in = true, .parts = &part, .nparts = 1 });
}

int ko_keep_own(struct ko_run *run, void *dst, const void *src, size_t n)
{
	ko_step_fill(run, run->stores, run->copy, dst, src, n);
	return 0;
}

int ko_drain(struct ko_run *run)
{
	const struct ko_edges *e = &run->comm->edges;

	return e->to ? ko_wait_sent(run, e) : 0;
}

const struct ko_moves ko_moves_now = {
	.send = ko_send,
	.add_and_pass = ko_add_and_pass,
	.add_and_keep = ko_add_and_keep,
	.add_keep_and_pass = ko_add_keep_and_pass,
	.keep_and_pass = ko_keep_and_pass,
	.keep = ko_keep,
	.keep_own = ko_keep_own,
	.step = ko_do_step,
};
