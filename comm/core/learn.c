/* Chooses between two ways by the times of earlier operations (ko_learn_stores, ko_learn_to_read,
 * ko_learn_messages) and notes the time of each operation (ko_learn). */
#include "comm/core/learn.h"

#include "comm/base/clock.h"

enum {
	/* Classes of size are powers of two. The first one begins at 2^BITS bytes; the last one has
	 * no end. */
	STORES_BITS = 20,
	READ_BITS = 13,
	/* Operations in a row that go the same way. The first ones find the caches as the other way
	 * has left them. */
	STORES_TURN = 3,
	READ_TURN = 6 /* twice STORES_TURN: has a turn of either kind of stores */
};

static int class_of(size_t bytes, int bits)
{
	int class = 63 - __builtin_clzll((unsigned long long)bytes | 1) - bits;

	return class < 0 ? 0 : class < KO_SAMPLES ? class : KO_SAMPLES - 1;
}

/* Does an operation belong to a turn that tries the slower way again? One begins after 24
 * operations, because the first turns may have met noise. Others come now and then, because the
 * machine may have changed; more seldom if they are dear. */
static bool is_again(const struct ko_sample *t, unsigned turn, bool is_dear)
{
	enum { SOON = 24, EACH = 96, SELDOM = 384 }; /* whole turns */
	unsigned each = is_dear ? SELDOM : EACH;

	return (t->count >= SOON && t->count < SOON + turn) || t->count % each < turn;
}

int ko_sample_choose(const struct ko_sample *t, unsigned turn)
{
	int better = t->ns_per_byte[1] < t->ns_per_byte[0];
	float fast = t->ns_per_byte[better], slow = t->ns_per_byte[!better];

	if (t->count < 2 * turn)
		return t->count >= turn;
	if (!is_again(t, turn, slow > 3 * fast))
		return better;
	/* Its first operation has shown enough if it is still a quarter slower. */
	return t->count % turn && slow > 1.25F * fast ? better : !better;
}

void ko_sample_note(struct ko_sample *t, int way, float ns_per_byte)
{
	float *known = &t->ns_per_byte[way], worse = ns_per_byte - *known;

	t->count++;
	if (*known == 0 || worse < 0)
		*known = ns_per_byte;
	else
		*known += (worse < *known / 4 ? worse : *known / 4) / 8;
}

void ko_learn_find(struct ko_run *run)
{
	struct ko_tuning *tuning = run->comm->tuning;
	const struct ko_desc *desc = &run->desc;
	size_t bytes = run->plan.count * run->size;

	run->writings = tuning->writing[desc->coll][class_of(bytes, STORES_BITS)];
	run->readings = tuning->reading[desc->coll][class_of(bytes, READ_BITS)];
	if (desc->coll == KO_BROADCAST)
		run->decider = ko_ring_prev(&run->comm->ring, desc->root);
	else
		run->decider = desc->coll == KO_REDUCE ? desc->root : 0;
}

bool ko_learn_to_read(const struct ko_run *run, bool in_place)
{
	return ko_sample_choose(&run->readings[in_place], READ_TURN);
}

void ko_learn_stores(struct ko_run *run)
{
	run->stores = KO_ORDINARY;
	if (run->written < KO_LEARN_STORES || run->way == KO_BY_CMA)
		return;
	run->writing = &run->writings[run->way == KO_BY_WINDOW];
	run->stores = ko_sample_choose(run->writing, STORES_TURN) ? KO_STREAMING : KO_ORDINARY;
	if (!run->began_ns)
		run->began_ns = ko_now_ns();
}

void ko_learn_messages(struct ko_run *run, size_t large, size_t sent, size_t received)
{
	run->size = 1; /* costs are counted by bytes */
	run->plan.count = sent + received;
	run->written = received;
	ko_learn_find(run);
	if (large) {
		run->reading = &run->readings[false];
		run->offers = ko_sample_choose(run->reading, READ_TURN);
		run->way = run->offers ? KO_BY_CMA : KO_NO_WAY;
		run->began_ns = ko_now_ns();
	}
	ko_learn_stores(run);
}

void ko_learn(struct ko_run *run)
{
	float ns_per_byte =
		(float)(ko_now_ns() - run->began_ns) / (float)(run->plan.count * run->size);

	if (run->reading)
		ko_sample_note(run->reading, run->way == KO_BY_CMA, ns_per_byte);
	if (run->writing)
		ko_sample_note(run->writing, run->stores == KO_STREAMING, ns_per_byte);
}
