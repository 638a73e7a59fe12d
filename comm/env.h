/* The environment: one table of numbers, checked and printable. The variables that name a rank are in job.c. */
#ifndef KO_ENV_H
#define KO_ENV_H

#include "kolo/kolo.h"

enum ko_env_name { KO_ENV_TIMEOUT, KO_ENV_SLOTS, KO_ENV_SLOT_LEN, KO_ENV_COUNT };

/* The variable's value, or its default when it is unset or empty. Errors: KOLO_EINVAL, with the range. */
int ko_env_get(enum ko_env_name name, int64_t *out);

#endif
