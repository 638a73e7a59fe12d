/* Reads the environment. Values are taken when a communicator is made, never later. */
#include "comm/base/env.h"

#include "comm/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static const struct ko_env table[KO_ENV_COUNT] = {
	[KO_ENV_TIMEOUT] = { "KOLO_TIMEOUT", 300, 0, 1000000,
			     .help = "seconds until a silent rank is given up; 0: never" },
	[KO_ENV_SLOTS] = { "KOLO_SLOTS", 4, 2, 64, .help = "slots in a link; rank 0's value counts" },
	[KO_ENV_SLOT_LEN] = { "KOLO_SLOT_LEN", 256 << 10, 4096, 64 << 20, 4096,
			      .help = "bytes of a slot, a multiple of 4096; rank 0's value counts" },
	[KO_ENV_LOG] = { "KOLO_LOG", .choices = "error|warn|info|trace[:FILE]",
			 .help = "what is logged, a line each; without :FILE to standard error" },
	[KO_ENV_TRACE] = { "KOLO_TRACE", .choices = "a folder",
			   .help = "each communicator leaves a file there that ui.perfetto.dev shows" },
	[KO_ENV_RANK] = { "KOLO_RANK", .choices = "0 to KOLO_NRANKS - 1",
			  .help = "this rank; set by ringrun, or by hand" },
	[KO_ENV_NRANKS] = { "KOLO_NRANKS", .choices = "1 to 65536",
			    .help = "how many ranks there are; set by ringrun, or by hand" },
	[KO_ENV_ID] = { "KOLO_ID", .choices = "256 hex digits", .help = "where ranks meet; set by ringrun",
			.secret = 1 },
	[KO_ENV_ROOT] = { "KOLO_ROOT", .choices = "HOST:PORT or [IPv6]:PORT",
			  .help = "where ranks meet, served by rank 0" },
	/* Nobody who knows it is kept out of a job that meets at KOLO_ROOT. */
	[KO_ENV_JOB] = { "KOLO_JOB", .choices = "up to 200 characters",
			 .help = "where ranks of one host meet; no other job of this user has the same",
			 .secret = 1 },
	[KO_ENV_LAUNCHER] = { "KOLO_LAUNCHER", .choices = "kolo|torchrun|openmpi|pmi|slurm",
			      .help = "which variables count where several launchers' are set" },
	[KO_ENV_IFACE] = { "KOLO_IFACE", .choices = "a name or an address",
			   .help = "the network interface for KOLO_ROOT, MASTER_ADDR and ids" },
	[KO_ENV_NET] = { "KOLO_NET", .choices = "verbs|tcp|ofi",
			 .help = "the transport between hosts; rank 0's value counts" },
	[KO_ENV_LANES] = { "KOLO_LANES", 256, 1, 65536,
			   .help = "connections for sends to other ranks that stay open idle" },
	[KO_ENV_OFI_PROVIDER] = { "KOLO_OFI_PROVIDER", .choices = "a provider of libfabric",
				  .help = "what edges between hosts that end at this rank use" },
	[KO_ENV_VERBS_DEVICE] = { "KOLO_VERBS_DEVICE", .choices = "NAME[:PORT],...",
				  .help = "ports of RDMA cards that share the bytes of verbs links" },
	[KO_ENV_VERBS_QPS] = { "KOLO_VERBS_QPS", 1, 1, 4,
			       .help = "connections (queue pairs) on each port; the lesser of both ends" },
	[KO_ENV_VERBS_GID_INDEX] = { "KOLO_VERBS_GID_INDEX", -1, -1, 255,
				     .help = "which of a port's addresses (GIDs); -1: choose" },
	[KO_ENV_VERBS_SL] = { "KOLO_VERBS_SL", 0, 0, 15, .help = "service level of verbs links" },
	[KO_ENV_VERBS_TC] = { "KOLO_VERBS_TC", 0, 0, 255, .help = "traffic class of verbs links" },
	[KO_ENV_VERBS_TIMEOUT] = { "KOLO_VERBS_TIMEOUT", 18, 1, 31,
				   .help = "T: a packet is sent again after 4.096 us * 2^T" },
	[KO_ENV_VERBS_RETRIES] = { "KOLO_VERBS_RETRIES", 7, 0, 7,
				   .help = "so many times before a verbs link has failed" },
	[KO_ENV_CUDA_MEMORY] = { "KOLO_CUDA_MEMORY", 32 << 20, 64 << 10, (int64_t)4 << 30, 64 << 10,
				 .help = "bytes of a GPU's memory for a communicator's slots; rank 0's value counts" },
	[KO_ENV_CUDA_DMABUF] = { "KOLO_CUDA_DMABUF", 1, 0, 1,
				 .help = "1: RDMA cards read and write slots in this rank's GPU, where they can" },
};

const struct ko_env *ko_env_row(int index)
{
	return index >= 0 && index < KO_ENV_COUNT ? &table[index] : NULL;
}

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
	const struct ko_env *env = &table[name];
	const char *text = getenv(env->name);

	*out = env->preset;
	if (!text || !*text)
		return 0;
	if (parse_number(text, env->min, env->max, out) < 0 || (env->multiple && *out % env->multiple))
		return ko_fail(KOLO_EINVAL, "%s=%s: want a number in [%" PRId64 ", %" PRId64 "] (%s)",
			       env->name, text, env->min, env->max, env->help);
	return 0;
}
