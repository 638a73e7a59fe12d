/* The environment: one table of all variables of Kolo's own. ko_env_get reads those that are
 * numbers.
 *
 * The file that uses a text reads it:
 *   KOLO_LOG            comm/base/log.c
 *   KOLO_TRACE          comm/base/trace.c
 *   KOLO_IFACE          comm/sys/net.c
 *   KOLO_NET            comm/core/transports.c
 *   KOLO_ORDER          comm/core/comm.c
 *   KOLO_SHAPE          comm/create/create.c
 *   KOLO_OFI_PROVIDER   comm/transport/ofi/connect.c
 *   KOLO_VERBS_DEVICE   comm/transport/verbs/nic.c
 *   the others          comm/bootstrap/launcher.c, with the variables of other launchers */
#ifndef COMM_BASE_ENV_H
#define COMM_BASE_ENV_H

#include "kolo/kolo.h"

/* In the order in which people are shown them. */
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
	KO_ENV_ORDER,
	KO_ENV_SHAPE,
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
	KO_ENV_CUDA_P2P,
	KO_ENV_COUNT
};

struct ko_env {
	const char *name;
	int64_t preset, min, max; /* of a number: its default, and the limits of its values */
	int64_t multiple;         /* a number must be a multiple of this; 0: it may be any */
	const char *choices;      /* of a text: what it may be; NULL: the variable is a number */
	const char *help;
	int secret; /* 1: do not show its value to others */
};

/* Row `index` of the table. NULL unless 0 <= index < KO_ENV_COUNT. */
const struct ko_env *ko_env_row(int index);

/* Is the variable set, and not empty? */
int ko_env_is_set(enum ko_env_name name);

/* Reads a variable that is a number. *out is its value, or its default if it is unset or empty.
 *
 * Errors: KOLO_EINVAL if it is no number in range. The text names the range. */
int ko_env_get(enum ko_env_name name, int64_t *out);

#endif
