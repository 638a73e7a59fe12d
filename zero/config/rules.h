/* The rules between keys. */
#ifndef ZERO_CONFIG_RULES_H
#define ZERO_CONFIG_RULES_H

struct zero_reading;

/* Sets the presets of the optimizer and the schedule, once their types are known. */
void zero_rules_begin(const struct zero_reading *r);
/* Applies the rules between keys, and completes config and groups. Errors: KOLO_EINVAL,
 * KOLO_ENOMEM. */
int zero_rules_end(const struct zero_reading *r);

#endif
