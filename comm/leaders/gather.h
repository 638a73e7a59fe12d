/* Elements of groups in messages, and Bruck's all-gather of them between leaders. */
#ifndef COMM_LEADERS_GATHER_H
#define COMM_LEADERS_GATHER_H

#include "comm/leaders/led.h"

/* A message of the entries from `first` on, before `end`; in place two, if groups begin anew
 * between them. */
void ko_led_add_entries(struct ko_led *p, int rank, bool sends, char *entries, int first, int end);

/* Every leader gets all entries: each hop doubles what it has. In place: entries are in dst, and
 * the group's other ranks get them there (ko_led_get_all). Errors: those of ko_leaders_do. */
int ko_led_gather_all(struct ko_led *p, char *entries);
int ko_led_get_all(struct ko_led *p, char *dst);

/* What leaders send each other for that. */
void ko_led_count_gather_all(const struct ko_led *p, struct ko_model *m);

#endif
