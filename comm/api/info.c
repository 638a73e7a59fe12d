/* What the library says of itself: the environment variables that it reads (kolo_env_get), and its
 * parts, with those that are missing (kolo_part_get). */
#include "comm/base/env.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/trace.h"
#include "comm/core/comm.h"
#include "comm/core/transports.h"
#include "comm/reduce/reduce.h"
#include "comm/transport/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files that use a variable check it. Where ranks meet is checked only when they meet. */
static int value_is_good(int index)
{
	const char *name;
	int64_t number;

	if (index == KO_ENV_NET)
		return ko_transport_of_net(&name) == 0;
	if (index == KO_ENV_ORDER)
		return ko_comm_order_of_env(&name) == 0;
	if (index == KO_ENV_LOG)
		return ko_log_check() == 0;
	if (index == KO_ENV_TRACE)
		return ko_trace_check() == 0;
	return ko_env_row(index)->choices || ko_env_get((enum ko_env_name)index, &number) == 0;
}

int kolo_env_get(int index, struct kolo_env_info *out)
{
	const struct ko_env *env = ko_env_row(index);

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_env_get: out is NULL");
	if (!env)
		return ko_fail(KOLO_EINVAL, "kolo_env_get: index %d: want 0 to %d", index,
			       KO_ENV_COUNT - 1);
	*out = (struct kolo_env_info){ .name = env->name,
				       .value = getenv(env->name),
				       .help = env->help,
				       .secret = env->secret,
				       .good = value_is_good(index) };
	if (env->choices) {
		snprintf(out->range, sizeof(out->range), "%s", env->choices);
	} else {
		snprintf(out->preset, sizeof(out->preset), "%" PRId64, env->preset);
		snprintf(out->range, sizeof(out->range), "%" PRId64 " to %" PRId64, env->min,
			 env->max);
	}
	return 0;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static void give_reason(struct kolo_part_info *part, const char *why)
{
	snprintf(part->reason, sizeof(part->reason), "%s", why);
}

static void look_at_nothing(struct kolo_part_info *part)
{
	give_reason(part, "not in this version");
}

/* A transport is built in if the table of transports has it. It is usable if an end of a link can
 * be opened on this machine. */
static void look_at_transport(struct kolo_part_info *part)
{
	static const struct ko_limits limits = { .slot_len = KO_MIN_SLOT, .nslots = 2 };
	struct ko_link *link = NULL;
	struct ko_place here;
	size_t i = 0;

	while (ko_transports[i] && strcmp(ko_transports[i]->name, part->name) != 0)
		i++;
	if (!ko_transports[i]) {
		give_reason(
			part,
			strcmp(part->name, "ofi") == 0
				? "not in this build: links through libfabric (package libfabric-dev)"
				: "not in this build: links through RDMA (package libibverbs-dev)");
		return;
	}
	part->built = 1;
	ko_place_get(&here);
	part->usable = ko_transports[i]->probe(&here, &here, true) == 0 &&
		       ko_link_open(ko_transports[i], KO_RECV, &here, &limits, &link) == 0;
	if (!part->usable)
		give_reason(part, kolo_last_error());
	ko_transports[i]->close(link, true);
}

static void look_at_hwloc(struct kolo_part_info *part)
{
#ifdef KO_HAVE_HWLOC
	part->built = part->usable = 1;
#else
	give_reason(part, "not in this build: cores are counted without it (package libhwloc-dev)");
#endif
}

/* The names of what ko_kernels_list gives, in its order. */
static const char *const kernels[] = { "plain", "avx2", "avx512" };

static void look_at_kernels(struct kolo_part_info *part)
{
	const struct ko_kernels *const *list = ko_kernels_list();
	size_t i = 0;

	while (list[i] && strcmp(kernels[i], part->name) != 0)
		i++;
	part->usable = list[i] != NULL;
#ifdef KO_HAVE_X86_KERNELS
	part->built = 1;
	if (!part->usable)
		give_reason(part, "this processor does not have the instructions");
#else
	part->built = part->usable;
	if (!part->built)
		give_reason(part, "for x86-64 only");
#endif
}

/* Each row's function finds kind and name filled in, all else zero. */
static const struct {
	const char *kind, *name;
	void (*look)(struct kolo_part_info *part);
} parts[] = {
	{ "transport", "shm", look_at_transport },   { "transport", "tcp", look_at_transport },
	{ "transport", "verbs", look_at_transport }, { "transport", "ofi", look_at_transport },
	{ "library", "hwloc", look_at_hwloc },       { "library", "cuda", look_at_nothing },
	{ "kernels", "plain", look_at_kernels },     { "kernels", "avx2", look_at_kernels },
	{ "kernels", "avx512", look_at_kernels },
};

int kolo_part_get(int index, struct kolo_part_info *out)
{
	const int count = sizeof(parts) / sizeof(parts[0]);

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_part_get: out is NULL");
	if (index < 0 || index >= count)
		return ko_fail(KOLO_EINVAL, "kolo_part_get: index %d: want 0 to %d", index,
			       count - 1);
	*out = (struct kolo_part_info){ .kind = parts[index].kind, .name = parts[index].name };
	parts[index].look(out);
	return 0;
}
