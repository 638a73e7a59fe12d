/* The environment: one table of all of Kolo's own variables. The numbers are read here; the texts by those who follow
 * them: KOLO_LOG in log.c, KOLO_TRACE in trace.c, KOLO_IFACE in net.c,
 * KOLO_NET in transports.c, KOLO_OFI_PROVIDER in ofi_connect.c, KOLO_VERBS_DEVICE in verbs_nic.c, the others, with the launchers' own, in job.c. */
#ifndef COMM_BASE_ENV_H
#define COMM_BASE_ENV_H

#include "kolo/kolo.h"

/* In the order in which people are shown them. The numbers are read with ko_env_get. */
enum ko_env_name {
	KO_ENV_TIMEOUT,
	KO_ENV_SLOTS,
	KO_ENV_SLOT_LEN,
	KO_ENV_LOG,
	KO_ENV_TRACE,
	KO_ENV_RANK,
	KO_ENV_NRANKS,
	KO_ENV_ID,
	KO_ENV_ROOT,
	KO_ENV_JOB,
	KO_ENV_LAUNCHER,
	KO_ENV_IFACE,
	KO_ENV_NET,
	KO_ENV_LANES,
	KO_ENV_OFI_PROVIDER,
	KO_ENV_VERBS_DEVICE,
	KO_ENV_VERBS_QPS,
	KO_ENV_VERBS_GID_INDEX,
	KO_ENV_VERBS_SL,
	KO_ENV_VERBS_TC,
	KO_ENV_VERBS_TIMEOUT,
	KO_ENV_VERBS_RETRIES,
	KO_ENV_CUDA_MEMORY,
	KO_ENV_CUDA_DMABUF,
	KO_ENV_COUNT
};

struct ko_env {
	const char *name;
	int64_t preset, min, max; /* of a number */
	int64_t multiple;         /* that it must be of; 0: of any */
	const char *choices;      /* what a text may be; NULL: this is a number */
	const char *help;
	int secret; /* its value is not for other people's eyes */
};

/* The table's row, 0 <= index < KO_ENV_COUNT; NULL outside. */
const struct ko_env *ko_env_row(int index);

/* The variable's value, or its default when it is unset or empty. Errors: KOLO_EINVAL, with the range. */
int ko_env_get(enum ko_env_name name, int64_t *out);

#endif
