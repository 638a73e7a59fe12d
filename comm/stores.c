/* See stores.h. */
#include "stores.h"

#include "clock.h"

enum {
	MIN_BITS = 20,  /* classes begin at 1 MiB, are powers of two, and the last one has no end */
	UNTIMED = 1,    /* first operations of a class: pages are touched for the first time */
	TRIALS = 4,     /* further ones, of both kinds by turns */
	AGAIN_EACH = 63 /* from then on one of so many tries the other kind: the machine may have changed */
};

static struct ko_trial *trial_of(struct ko_run *run)
{
	int class = 63 - __builtin_clzll((unsigned long long)run->written) - MIN_BITS;

	return &run->comm->trials[run->desc.coll][class < KO_TRIALS ? class : KO_TRIALS - 1];
}

void ko_stores_choose(struct ko_run *run, size_t len)
{
	struct ko_trial *trial;
	enum ko_stores better;

	run->stores = KO_ORDINARY;
	run->written = 0;
	if (len >> MIN_BITS == 0)
		return;
	run->written = len;
	trial = trial_of(run);
	better = trial->ns_per_byte[KO_STREAMING] < trial->ns_per_byte[KO_ORDINARY] ? KO_STREAMING
										    : KO_ORDINARY;
	if (trial->count < UNTIMED + TRIALS)
		run->stores = trial->count % 2 ? KO_STREAMING : KO_ORDINARY;
	else if (trial->count % AGAIN_EACH == 0)
		run->stores = better == KO_STREAMING ? KO_ORDINARY : KO_STREAMING;
	else
		run->stores = better;
	run->began_ns = ko_now_ns();
}

void ko_stores_learn(struct ko_run *run)
{
	struct ko_trial *trial;
	float took, *known;

	if (!run->written)
		return;
	trial = trial_of(run);
	if (trial->count++ < UNTIMED)
		return;
	took = (float)(ko_now_ns() - run->began_ns) / (float)run->written;
	known = &trial->ns_per_byte[run->stores];
	/* A better time counts at once. A worse one may be chance, and moves the estimate a little. */
	*known = *known == 0 || took < *known ? took : *known + (took - *known) / 8;
}
