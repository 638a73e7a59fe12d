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

static int parse_id(const char *hex, struct kolo_id *out)
{
	static const char digits[] = "0123456789abcdef";

	if (strlen(hex) != 2 * sizeof(out->bytes))
		return KOLO_EINVAL;
	for (size_t i = 0; i < sizeof(out->bytes); i++) {
		const char *high = strchr(digits, hex[2 * i]), *low = strchr(digits, hex[2 * i + 1]);

		if (!high || !low)
			return KOLO_EINVAL;
		out->bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
	}
	return 0;
}

int ko_env_job(struct kolo_comm_attr *attr, struct kolo_id *id)
{
	const char *rank = getenv("KOLO_RANK"), *nranks = getenv("KOLO_NRANKS"), *hex = getenv("KOLO_ID");
	int64_t r = 0, n = 0;

	if (!rank && !nranks && !hex)
		return ko_fail(KOLO_EINVAL,
			       "no job in the environment: start the program with "
			       "'ringrun -n N PROGRAM', or pass rank, nranks and id in the attributes");
	if (!rank || !nranks || !hex)
		return ko_fail(
			KOLO_EINVAL,
			"half a job in the environment: KOLO_RANK=%s KOLO_NRANKS=%s KOLO_ID %s; all three "
			"are needed (ringrun sets them)",
			rank ? rank : "(unset)", nranks ? nranks : "(unset)", hex ? "set" : "(unset)");
	if (parse_number(nranks, 1, INT_MAX, &n) < 0)
		return ko_fail(KOLO_EINVAL, "KOLO_NRANKS=%s: want a number from 1", nranks);
	if (parse_number(rank, 0, n - 1, &r) < 0)
		return ko_fail(KOLO_EINVAL,
			       "KOLO_RANK=%s: want a number in [0, %" PRId64 "] (KOLO_NRANKS=%s)", rank,
			       n - 1, nranks);
	if (parse_id(hex, id) < 0)
		return ko_fail(KOLO_EINVAL,
			       "KOLO_ID has %zu characters: want the %zu hex digits that ringrun set",
			       strlen(hex), 2 * sizeof(id->bytes));
	attr->id = id;
	attr->rank = (int)r;
	attr->nranks = (int)n;
	return 0;
}
