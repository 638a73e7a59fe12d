/* Shares: each leader gets all groups' sums of its own group's elements, in Bruck's all-to-all.
 * Share k is at first for the group k after this one, and at the end from the group k before it. */
#ifndef COMM_LEADERS_SHARES_H
#define COMM_LEADERS_SHARES_H

#include "comm/leaders/led.h"

/* Adds up what the group's ranks gave, and shares it out. Errors: those of ko_leaders_do. */
int ko_led_share_out(struct ko_led *p);

/* Shares that are in their places come where they belong. Errors: those of ko_leaders_do. */
int ko_led_exchange_shares(struct ko_led *p);

/* What leaders send each other for that. */
void ko_led_count_shares(const struct ko_led *p, struct ko_model *m);

#endif
