/* A step of a ring: what a rank does with one slot in from prev, or one slot out to next, or both.
 * A slot may have several pieces of the vector, one after the other. The moves (moves.h) are steps
 * of one piece that block; tracks (tracks.h) are lists of steps that do not. */
#ifndef COMM_RINGS_STEP_H
#define COMM_RINGS_STEP_H

#include "comm/rings/slots.h"

/* One piece: this rank's own elements, and where the result is kept. NULL: there are none, or it is
 * not kept. What is only sent is not kept either; then `keep` is its place in the vector, for
 * links that know where next has the same one. */
struct ko_part {
	const void *own;
	void *keep;
	size_t n;
	size_t first; /* the element of the vector that it begins with, for moves that record */
};

struct ko_step {
	bool in, out; /* does a slot come in, or go out? */
	/* With a slot in: the result is combine(in, own), or what comes in if combine is NULL.
	 * Without one: fill(own) */
	ko_fill_fn *fill;
	ko_combine_fn *combine;
	ko_fill_fn *finish; /* is then made of the result; NULL: nothing */
	bool stays;         /* own and keep do not change until the run is drained */
	bool read_next;     /* this rank soon reads what it keeps: it had better be in cache */
	const struct ko_part *parts;
	int nparts;
};

static inline size_t ko_step_bytes(const struct ko_run *run, const struct ko_step *s)
{
	size_t n = 0;

	for (int k = 0; k < s->nparts; k++)
		n += s->parts[k].n;
	return n * run->size;
}

/* The place where the link from prev may put what comes in. NULL: it has none. */
static inline void *ko_step_place(const struct ko_step *s)
{
	return s->nparts == 1 && !s->combine ? s->parts[0].keep : NULL;
}

/* dst = fn(src). The pointers of an empty piece may be NULL. */
static inline void ko_step_fill(const struct ko_run *run, enum ko_stores stores, ko_fill_fn *fn,
				void *dst, const void *src, size_t n)
{
	if (n && stores == KO_STREAMING && dst != src && fn == run->copy)
		ko_stream_copy(dst, src, n * run->size);
	else if (n && stores == KO_STREAMING && dst != src)
		ko_stream_fill(fn, dst, src, n, run->size, &run->red.s);
	else if (n)
		fn(dst, src, n, &run->red.s);
}

static inline void ko_step_combine(const struct ko_run *run, const struct ko_step *s,
				   enum ko_stores stores, void *dst, const void *in,
				   const void *own, size_t n)
{
	if (n && stores == KO_STREAMING && dst != own)
		ko_stream_combine(s->combine, dst, in, own, n, run->size, &run->red.s);
	else if (n)
		s->combine(dst, in, own, n, &run->red.s);
}

/* The place of a piece in the vector that next gets: 1 + its offset in bytes. 0: it has none. */
static inline size_t ko_step_belongs(const struct ko_run *run, const void *to)
{
	return run->vector && to ? 1 + (size_t)((const char *)to - run->vector) : 0;
}

/* If the link takes the result's bytes from where they stay: that place. Else NULL. */
static inline void *ko_step_taken(const struct ko_run *run, const struct ko_edges *e,
				  const struct ko_step *s)
{
	const struct ko_part *p = s->parts;
	const void *place = s->in ? p->keep : s->fill == run->copy ? p->own : NULL;

	return s->out && s->stays && s->nparts == 1 && place &&
			       ko_link_takes(e->to, place, p->n * run->size)
		       ? (void *)place
		       : NULL;
}

static inline enum ko_stores ko_step_stores(const struct ko_run *run, const struct ko_step *s)
{
	return s->read_next ? KO_ORDINARY : run->stores;
}

/* Writes the results into the slot out, or to where they are kept. */
static inline void ko_step_compute(const struct ko_run *run, const struct ko_edges *e,
				   const struct ko_step *s, const void *taken, const char *in,
				   char *out)
{
	enum ko_stores stores = ko_step_stores(run, s);

	if (s->out)
		stores = taken ? KO_ORDINARY : e->to->writer.stores;
	for (int k = 0; k < s->nparts; k++) {
		const struct ko_part *p = &s->parts[k];
		char *to = s->out ? out : p->keep;

		if (s->in && s->combine)
			ko_step_combine(run, s, stores, to, in, p->own, p->n);
		else if (s->in || !taken)
			ko_step_fill(run, stores, s->in ? run->copy : s->fill, to,
				     s->in ? in : p->own, p->n);
		if (s->finish)
			ko_step_fill(run, KO_ORDINARY, s->finish, to, to, p->n);
		in += s->in ? p->n * run->size : 0;
		out += s->out ? p->n * run->size : 0;
	}
}

/* Copies results that went to next to where they are kept. */
static inline void ko_step_keep(const struct ko_run *run, const struct ko_step *s, const char *from)
{
	for (int k = 0; k < s->nparts; k++) {
		const struct ko_part *p = &s->parts[k];

		if (p->keep)
			ko_step_fill(run, ko_step_stores(run, s), run->copy, p->keep, from, p->n);
		from += p->n * run->size;
	}
}

/* Does the step with the slots, which are there. Results are sent on before they are kept, because
 * next waits for them. They stay in the slot out until this rank acquires that slot again. Errors:
 * those of ko_hand_over and ko_give_back. */
__attribute__((always_inline)) static inline int ko_step_do(struct ko_run *run,
							    const struct ko_edges *e,
							    const struct ko_step *s,
							    const struct ko_slot *in,
							    struct ko_slot *out)
{
	void *taken = ko_step_taken(run, e, s);
	bool copies = s->in && s->out && !taken;
	bool fills = s->out && !s->in && !taken && s->fill == run->copy;
	int rc = 0;

	if (taken)
		out->ptr = taken;
	if (fills)
		ko_writer_begin(&e->to->writer, ko_step_bytes(run, s));
	ko_step_compute(run, e, s, taken, s->in ? in->ptr : NULL, s->out ? out->ptr : NULL);
	if (s->out) {
		ko_writer_end(&e->to->writer);
		out->belongs = ko_step_belongs(run, s->nparts == 1 ? s->parts[0].keep : NULL);
		rc = ko_hand_over(run, e, out, ko_step_bytes(run, s));
	}
	if (rc == 0 && copies && !s->combine)
		ko_step_keep(run, s, in->ptr);
	if (rc == 0 && s->in)
		rc = ko_give_back(run, e);
	if (rc == 0 && copies && s->combine)
		ko_step_keep(run, s, out->ptr);
	return rc;
}

#endif
