/* Reads the environment. Values are taken when a communicator is made, never later. */
#include "env.h"

#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct env {
	const char *name;
	int64_t preset, min, max;
	const char *help;
};

static const struct env table[KO_ENV_COUNT] = {
	[KO_ENV_TIMEOUT] = { "KOLO_TIMEOUT", 300, 0, 1000000,
			     "seconds until a silent rank is given up; 0: never" },
	[KO_ENV_SLOTS] = { "KOLO_SLOTS", 4, 2, 64, "slots in a link" },
	[KO_ENV_SLOT_LEN] = { "KOLO_SLOT_LEN", 256 << 10, 4096, 64 << 20,
			      "bytes of a slot, a multiple of 4096" },
};

/* All of `text` as a decimal number within [min, max]. */
static int parse_number(const char *text, int64_t min, int64_t max, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return errno == 0 && end != text && *end == 0 && *out >= min && *out <= max ? 0 : KOLO_EINVAL;
}

int ko_env_get(enum ko_env_name name, int64_t *out)
{
	const struct env *env = &table[name];
	const char *text = getenv(env->name);

	*out = env->preset;
	if (!text || !*text)
		return 0;
	if (parse_number(text, env->min, env->max, out) < 0)
		return ko_fail(KOLO_EINVAL, "%s=%s: want a number in [%" PRId64 ", %" PRId64 "] (%s)",
			       env->name, text, env->min, env->max, env->help);
	return 0;
}
