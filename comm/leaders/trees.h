/* Trees of leaders, to root's leader and from it, and what they cost. */
#ifndef COMM_LEADERS_TREES_H
#define COMM_LEADERS_TREES_H

#include "comm/leaders/led.h"

/* Hops of a step in which a leader has messages from or to `n` others. They come together: each of
 * them takes about a quarter of a hop. */
double ko_hops_of(double n);

/* If bytes count, messages of a leader from or to `n` others take as long as so many in a row. */
double ko_in_a_row(const struct ko_costs *costs, double n);

/* The time of so many bytes that one leader gets or sends while the others wait. */
double ko_lone_ns(const struct ko_costs *costs, double bytes);

/* A tree in which leaders have up to KO_LED_RADIX - 1 others on each level: its hops, and vectors
 * that one after the other go through it if each leader gets the same one. */
struct ko_led_tree {
	double hops, vectors;
};

struct ko_led_tree ko_led_tree_of(const struct ko_costs *costs);

/* Root's leader gets all entries. Errors: those of ko_leaders_do. */
int ko_led_gather(struct ko_led *p, char *entries);

/* Root's leader adds up whole sums as they come, from the group after its own round to that.
 * Errors: those of ko_leaders_do. */
int ko_led_add_as_they_come(struct ko_led *p, void *dst);

/* Root's leader has dst; all other leaders get it. Errors: those of ko_leaders_do. */
int ko_led_spread(struct ko_led *p, char *dst);

/* What leaders send each other for a gather, and for a spread. */
void ko_led_count_gather(const struct ko_led *p, struct ko_model *m);
void ko_led_count_spread(struct ko_led *p, struct ko_model *m);

#endif
