/* The table of environment variables (ko_env_row), and reading a number (ko_env_get). Variables are
 * read when a communicator is made, never later. `help` is the text of kolo-environment(7): plain
 * sentences, the last one without its period. */
#include "comm/base/env.h"

#include "comm/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static const struct ko_env table[KO_ENV_COUNT] = {
	[KO_ENV_TIMEOUT] = { "KOLO_TIMEOUT", 300, 0, 1000000,
			     .help = "Seconds for which a rank that others wait for may be silent; "
				     "then they fail. 0: no limit" },
	[KO_ENV_SLOTS] = { "KOLO_SLOTS", 7, 2, 64,
			   .help = "Slots in each link. Rank 0's value counts" },
	[KO_ENV_SLOT_LEN] = { "KOLO_SLOT_LEN", 256 << 10, 4096, 64 << 20, 4096,
			      .help = "Bytes of a slot, a multiple of 4096. Unset: 256 KiB. Or 120 KiB "
				      "if TCP between hosts waits between packets (congestion "
				      "control bbr), and the order is not grid. Rank 0's value "
				      "counts" },
	[KO_ENV_LOG] = { "KOLO_LOG", .choices = "error|warn|info|trace[:FILE]",
			 .help = "The highest level that is logged, one line each, appended to "
				 "FILE or written to standard error. Unset: nothing is logged" },
	[KO_ENV_TRACE] = { "KOLO_TRACE", .choices = "a folder",
			   .help = "Each communicator writes a trace into this folder, for "
				   "https://ui.perfetto.dev. Unset: no traces" },
	[KO_ENV_RANK] = { "KOLO_RANK", .choices = "0 to KOLO_NRANKS - 1",
			  .help = "The number of this rank. ringrun sets it; you may also set "
				  "it by hand" },
	[KO_ENV_NRANKS] = { "KOLO_NRANKS", .choices = "1 to 65536",
			    .help = "The number of ranks. ringrun sets it; you may also set it by "
				    "hand" },
	[KO_ENV_ID] = { "KOLO_ID", .choices = "256 hex digits",
			.help = "The id of the meeting point where the ranks of a job find "
				"each other. ringrun sets it",
			.secret = 1 },
	[KO_ENV_ROOT] = { "KOLO_ROOT", .choices = "HOST:PORT or [IPv6]:PORT",
			  .help = "The TCP address where the ranks of a job find each other. "
				  "Rank 0 listens there" },
	/* Secret: whoever of the same user knows it can join a job that meets at KOLO_ROOT. */
	[KO_ENV_JOB] = { "KOLO_JOB", .choices = "up to 200 characters",
			 .help = "The name by which the ranks of a job on one host find each "
				 "other. No other job of this user may have it",
			 .secret = 1 },
	[KO_ENV_LAUNCHER] = { "KOLO_LAUNCHER", .choices = "kolo|torchrun|openmpi|pmi|slurm",
			      .help = "The launcher whose variables count if several are set. Unset: "
				      "the innermost one; if that is not clear, they must agree" },
	[KO_ENV_IFACE] = { "KOLO_IFACE", .choices = "NAME_OR_IP[,NAME_OR_IP]...",
			   .help = "The network interface for KOLO_ROOT, MASTER_ADDR and ids: the first. "
				   "Several: the order grid gives each rail one. Unset: the one on the way to "
				   "the meeting point; ids are for one host" },
	[KO_ENV_NET] = { "KOLO_NET", .choices = "verbs|tcp|ofi",
			 .help = "The transport between hosts: verbs (RDMA), tcp, or ofi "
				 "(libfabric). Unset: verbs if both hosts have an RDMA card, "
				 "else tcp. Rank 0's value counts" },
	[KO_ENV_ORDER] = { "KOLO_ORDER", .choices = "ring|tree|grid",
			   .help = "The order in which elements of the ranks are added: ring; the "
				   "balanced tree over rank numbers; or grid, in groups and then "
				   "between groups. Unset: grid if there are several hosts of equally many "
				   "ranks, and more than one on each; else ring. Rank 0's value counts" },
	[KO_ENV_SHAPE] = { "KOLO_SHAPE", .choices = "GROUPSxRANKS",
			   .help = "The groups of the order grid: so many, of so many successive ranks "
				   "each. The same for all ranks. Chooses that order if KOLO_ORDER is unset. "
				   "Unset: the ranks of a host are a group" },
	[KO_ENV_LANES] = { "KOLO_LANES", 256, 1, 65536,
			   .help = "Connections to ranks of other hosts that a rank keeps open "
				   "for its sends while they are idle" },
	[KO_ENV_OFI_PROVIDER] = { "KOLO_OFI_PROVIDER", .choices = "the name of a provider",
				  .help = "The libfabric provider of links from other hosts to this rank; "
					  "fi_info -l lists them. Unset: the best that works" },
	[KO_ENV_VERBS_DEVICE] = { "KOLO_VERBS_DEVICE", .choices = "NAME[:PORT][,NAME[:PORT]]...",
				  .help = "RDMA ports that verbs links of this rank share their bytes "
					  "between, 4 at most; in the order grid each rail has one of them, "
					  "in turn. Unset: the fastest ports near this rank" },
	[KO_ENV_VERBS_QPS] = { "KOLO_VERBS_QPS", 1, 1, 4,
			       .help = "RDMA connections (queue pairs) of a verbs link on each port. "
				       "If its two ends differ, the smaller value counts" },
	[KO_ENV_VERBS_GID_INDEX] = { "KOLO_VERBS_GID_INDEX", -1, -1, 255,
				     .help = "Which of a port's addresses (GIDs) verbs links use. "
					     "ibv_devinfo -v lists them. -1: Kolo chooses" },
	[KO_ENV_VERBS_SL] = { "KOLO_VERBS_SL", 0, 0, 15,
			      .help = "The service level of verbs links" },
	[KO_ENV_VERBS_TC] = { "KOLO_VERBS_TC", 0, 0, 255,
			      .help = "The traffic class of verbs links" },
	[KO_ENV_VERBS_TIMEOUT] = { "KOLO_VERBS_TIMEOUT", 18, 1, 31,
				   .help = "The exponent T: verbs links send a packet again after "
					   "4.096 us * 2^T without an acknowledgement. 18 is 1.07 s" },
	[KO_ENV_VERBS_RETRIES] = { "KOLO_VERBS_RETRIES", 7, 0, 7,
				   .help = "How many times verbs links send a packet again before the link "
					   "has failed" },
	[KO_ENV_CUDA_MEMORY] = { "KOLO_CUDA_MEMORY", 32 << 20, 64 << 10, (int64_t)4 << 30, 64 << 10,
				 .help = "Bytes of each GPU's memory for the slots of a communicator "
					 "with CUDA streams, a multiple of 65536. Rank 0's value counts" },
	[KO_ENV_CUDA_DMABUF] = { "KOLO_CUDA_DMABUF", 1, 0, 1,
				 .help = "1: slots between hosts lie in this rank's GPU if its RDMA "
					 "cards can use them there. 0: they lie in host memory" },
	[KO_ENV_CUDA_P2P] = { "KOLO_CUDA_P2P", 1, 0, 1,
			      .help = "1: GPUs of a host reach each other's memory, if all of a "
				      "communicator can. 0: bytes between them go through host memory. "
				      "Rank 0's value counts" },
};

const struct ko_env *ko_env_row(int index)
{
	return index >= 0 && index < KO_ENV_COUNT ? &table[index] : NULL;
}

/* Parses all of `text` as a decimal number in [min, max]. 0 or KOLO_EINVAL. */
static int parse_number(const char *text, int64_t min, int64_t max, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return errno == 0 && end != text && *end == 0 && *out >= min && *out <= max ? 0
										    : KOLO_EINVAL;
}

int ko_env_is_set(enum ko_env_name name)
{
	const char *text = getenv(table[name].name);

	return text && *text;
}

int ko_env_get(enum ko_env_name name, int64_t *out)
{
	const struct ko_env *env = &table[name];
	const char *text = getenv(env->name);

	*out = env->preset;
	if (!ko_env_is_set(name))
		return 0;
	if (parse_number(text, env->min, env->max, out) < 0 ||
	    (env->multiple && *out % env->multiple))
		return ko_fail(KOLO_EINVAL,
			       "%s=%s: want a number in [%" PRId64 ", %" PRId64 "]. %s.", env->name,
			       text, env->min, env->max, env->help);
	return 0;
}
