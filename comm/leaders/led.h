/* An operation that leaders of groups (leaders.h) do for them: where its elements are, and how
 * values of a group and sums of groups are added up.
 *
 * Elements are in the order of *places*: groups, and numbers in them. If groups are of successive
 * ranks, this is the vector's own order. */
#ifndef COMM_LEADERS_LED_H
#define COMM_LEADERS_LED_H

#include "comm/leaders/leaders.h"

enum {
	KO_LED_RADIX = 8,
	/* bytes of sums that root's leader gets at a time, if not only one */
	KO_LED_TOGETHER = 16 << 10,
};

enum ko_led_kind { KO_LED_PARTIALS, KO_LED_CENTER, KO_LED_SHARES };

/* An operation under way. */
struct ko_led {
	struct ko_run *run;
	struct ko_leaders l;
	struct ko_plan plan; /* a reduce has a block for each rank, too */
	enum ko_led_kind kind;
	size_t shares;      /* of a group's elements, at most; 0: leaders exchange whole sums */
	ko_combine_fn *add; /* of sums */
	size_t *firsts;     /* the first element of each group, by place; NULL: see ko_led_first */
	char **at;          /* where shares are */
	char *messages;     /* to pack shares in, and after that those that have come */
	char *sum;          /* of the group, by place */
	char *sums; /* whole ones of this group and those after it; of an all_to_all, shares */
	/* of the group's other ranks, by number, until they are added; then what is between
	 * leaders. What is after `sum` may be at the same place */
	char *values;
	const char *own; /* the leader's own values, of a reduction */
	int radix;       /* of the tree to root's leader, or from it */
	/* of an all-gather: groups' elements come to their places in dst, and go on from there to
	 * the group's other ranks while the next ones come */
	bool in_place;
};

static inline enum ko_coll ko_led_coll(const struct ko_led *p)
{
	return (enum ko_coll)p->run->desc.coll;
}

static inline char *ko_led_at(const struct ko_led *p, char *base, size_t element)
{
	return base + element * p->run->size;
}

/* The least k with 2^k >= n. */
static inline int ko_log2_up(int64_t n)
{
	int log = 0;

	while ((int64_t)1 << log < n)
		log++;
	return log;
}

/* Finds out where everything is, in the room for the sums of rails or in the scratch. */
struct ko_led ko_led_describe(struct ko_run *run, enum ko_led_kind kind);

/* Bytes of that room. */
size_t ko_led_memory(const struct kolo_comm *c);

/* Bytes that a leader needs of it to share out sums. */
size_t ko_led_memory_for_shares(const struct ko_run *run);

/* A rank's block of the vector, by its group and its number there. */
struct ko_piece ko_led_block(const struct ko_led *p, int group, int number);

/* The first element of a group's blocks, by place; and how many they have. Of an all_to_all: of a
 * share. */
size_t ko_led_first(const struct ko_led *p, int group);
size_t ko_led_count(const struct ko_led *p, int group);

/* Leaders exchange entries: of this group, of the one after it, and so on round to the one before
 * it. An entry is a group's sum of the vector, or a group's elements. Returns the first element of
 * entry k. */
size_t ko_led_entry(const struct ko_led *p, int k);

/* How many groups this one comes after root's. */
int ko_led_after_root(const struct ko_led *p);

/* Adds up the values of the group, into `sum`. */
void ko_led_add_group(const struct ko_led *p);

/* Adds up a group's elements, from the sum of the group after it round to its own; of a reduce,
 * after root's group round to that. NULL: the result takes the place of the first one. Returns
 * where it is. */
char *ko_led_add_sums(const struct ko_led *p, int group, char *to);

/* A group's elements go where they belong in dst. */
void ko_led_place(const struct ko_led *p, int group, const char *elements, void *dst);

#endif
