/* The value of one key: checked, put into its place, and read back. */
#ifndef ZERO_CONFIG_VALUES_H
#define ZERO_CONFIG_VALUES_H

struct json_t;
struct zero_key;
struct zero_range;
struct zero_reading;
struct zero_settings;

enum {
	ZERO_SHOWN = 48,
	ZERO_NAMES = 256
}; /* bytes of a value, and of a list of names, in an error */

/* A value as an error shows it. Returns out. */
const char *zero_show(const struct json_t *value, char out[ZERO_SHOWN]);
/* What values a key may have, in words. Returns out. */
const char *zero_want(const struct zero_range *range, char out[ZERO_NAMES]);
/* Checks what was given for a key, and does what its role says. Errors: KOLO_EINVAL,
 * KOLO_ENOMEM. */
int zero_take(const struct zero_reading *r, int key);
/* The names of the keys in a section that the chosen types have. `section` ends with a dot. */
void zero_list_names(const struct zero_reading *r, const char *section, char out[ZERO_NAMES]);
/* The value in a key's place. If the key is one of groups: that of group number `group`. */
double zero_place_get(const struct zero_settings *settings, const struct zero_key *key, int group);
/* The text in a key's place. NULL: none. */
const char *zero_place_text(const struct zero_settings *settings, const struct zero_key *key);

#endif
