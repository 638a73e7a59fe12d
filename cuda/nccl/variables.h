/* NCCL's environment variables, and what becomes of each here: variables.c does it, ringinfo tells
 * it. */
#ifndef CUDA_NCCL_VARIABLES_H
#define CUDA_NCCL_VARIABLES_H

#include <stdbool.h>
#include <string.h>

struct kn_variable {
	const char *name;
	const char *kolo; /* the variable of Kolo's that gets its value; NULL: none as it is */
	bool used;
	const char *help; /* what it does; or, if it is not used, why, or what to use */
};

/* One that Kolo has, too, with the same values. */
#define KN_SAME(name, kolo)                                                                        \
	{                                                                                          \
		name, kolo, true, kolo                                                             \
	}

static const struct kn_variable kn_variables[] = {
	{ "NCCL_DEBUG", NULL, true, "lines of Kolo's log: WARN, INFO or TRACE" },
	{ "NCCL_DEBUG_FILE", NULL, true, "where they go; %h is the host, %p the process" },
	{ "NCCL_CONF_FILE", NULL, true,
	  "a file with NAME=VALUE lines, in place of ~/.nccl.conf; /etc/nccl.conf comes after it" },
	{ "NCCL_COMM_ID", NULL, true, "HOST:PORT of rank 0: all ids are of this meeting point" },
	{ "NCCL_COMM_BLOCKING", NULL, true,
	  "1 or 0: communicators block, or not, whatever their configs say" },
	{ "NCCL_SOCKET_IFNAME", NULL, true, "KOLO_IFACE: the first interface that is up and fits" },
	{ "NCCL_NET", NULL, true, "Socket or IB: KOLO_NET=tcp or verbs" },
	{ "NCCL_IB_DISABLE", NULL, true, "1: KOLO_NET=tcp" },
	{ "NCCL_IB_HCA", NULL, true, "KOLO_VERBS_DEVICE: the active ports that fit, at most 4" },
	KN_SAME("NCCL_IB_GID_INDEX", "KOLO_VERBS_GID_INDEX"),
	KN_SAME("NCCL_IB_SL", "KOLO_VERBS_SL"),
	KN_SAME("NCCL_IB_TC", "KOLO_VERBS_TC"),
	KN_SAME("NCCL_IB_TIMEOUT", "KOLO_VERBS_TIMEOUT"),
	KN_SAME("NCCL_IB_RETRY_CNT", "KOLO_VERBS_RETRIES"),
	KN_SAME("NCCL_DMABUF_ENABLE", "KOLO_CUDA_DMABUF"),
	{ "NCCL_P2P_DISABLE", NULL, true, "1: KOLO_CUDA_P2P=0" },
	{ "NCCL_P2P_LEVEL", NULL, true,
	  "LOC or 0: KOLO_CUDA_P2P=0; GPUs that can't reach each other are found" },
	{ "NCCL_SHM_DISABLE", NULL, true,
	  "1, with NCCL_P2P_DISABLE=1: all bytes go over the transport between hosts" },
	{ "NCCL_ALGO", NULL, false, "an order of additions belongs to a communicator: KOLO_ORDER" },
	{ "NCCL_PROTO", NULL, false, "there is one protocol" },
	{ "NCCL_BUFFSIZE", NULL, false, "KOLO_CUDA_MEMORY says how much memory slots have" },
	{ "NCCL_NTHREADS", NULL, false, "kernels choose their threads" },
	{ "NCCL_MIN_CTAS", NULL, false, "kernels choose their blocks" },
	{ "NCCL_MAX_CTAS", NULL, false, "kernels choose their blocks" },
	{ "NCCL_MIN_NCHANNELS", NULL, false, "there are no channels" },
	{ "NCCL_MAX_NCHANNELS", NULL, false, "there are no channels" },
	{ "NCCL_CROSS_NIC", NULL, false, "rails are never crossed" },
	{ "NCCL_NSOCKS_PERTHREAD", NULL, false, "a link has one connection" },
	{ "NCCL_SOCKET_NTHREADS", NULL, false, "a link has one connection" },
	{ "NCCL_IB_QPS_PER_CONNECTION", NULL, false, "KOLO_VERBS_QPS says how many, at most 4" },
	{ "NCCL_NET_GDR_LEVEL", NULL, false, "KOLO_CUDA_DMABUF=0 keeps cards away from GPUs" },
	{ "NCCL_NET_PLUGIN", NULL, false, "there are no plugins; KOLO_NET has ofi" },
	{ "NCCL_TUNER_PLUGIN", NULL, false, "there are no plugins" },
	{ "NCCL_PROFILER_PLUGIN", NULL, false, "there are no plugins; KOLO_TRACE writes a trace" },
	{ "NCCL_TOPO_FILE", NULL, false, "the machine is asked" },
	{ "NCCL_NVLS_ENABLE", NULL, false, "switches add nothing here" },
	{ "NCCL_COLLNET_ENABLE", NULL, false, "switches add nothing here" },
	{ "NCCL_CUMEM_ENABLE", NULL, false, "memory is handed over as the GPU allows" },
	{ "NCCL_LAUNCH_MODE", NULL, false, "groups are recorded in one way" },
	{ "NCCL_DEBUG_SUBSYS", NULL, false, "the log has no parts" },
};

#undef KN_SAME

enum { KN_VARIABLES = sizeof(kn_variables) / sizeof(kn_variables[0]) };

/* The row of an entry of the environment, "NAME=VALUE"; NULL: it is none of NCCL's. */
static inline const struct kn_variable *kn_variable_of(const char *entry)
{
	static const struct kn_variable unknown = { "", NULL, false, "libnccl does not know it" };
	size_t len = strcspn(entry, "=");

	if (strncmp(entry, "NCCL_", 5) != 0)
		return NULL;
	for (int k = 0; k < KN_VARIABLES; k++)
		if (strlen(kn_variables[k].name) == len &&
		    memcmp(kn_variables[k].name, entry, len) == 0)
			return &kn_variables[k];
	return &unknown;
}

#endif
