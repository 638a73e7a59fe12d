/* What NCCL's environment variables ask for, in Kolo's words (kn_env_read), and the log
 * (NCCL_DEBUG). */
#include "cuda/nccl/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t done = PTHREAD_ONCE_INIT;
static FILE *file;
static enum kolo_log_level level;

/* The file of NCCL_DEBUG_FILE, in which %h is the host and %p the process. */
static FILE *open_file(const char *name)
{
	char path[4096], host[256] = "?";
	size_t at = 0;

	gethostname(host, sizeof(host) - 1);
	for (; *name && at < sizeof(path) - sizeof(host); name++) {
		if (name[0] == '%' && name[1] == 'h')
			at += (size_t)snprintf(path + at, sizeof(path) - at, "%s", host);
		else if (name[0] == '%' && name[1] == 'p')
			at += (size_t)snprintf(path + at, sizeof(path) - at, "%d", getpid());
		else
			path[at++] = *name;
		name += name[0] == '%' && (name[1] == 'h' || name[1] == 'p');
	}
	path[at] = 0;
	return fopen(path, "we");
}

static enum kolo_log_level level_of(const char *name)
{
	if (!name)
		return 0;
	if (strcasecmp(name, "WARN") == 0)
		return KOLO_LOG_WARN;
	if (strcasecmp(name, "INFO") == 0)
		return KOLO_LOG_INFO;
	return strcasecmp(name, "TRACE") == 0 ? KOLO_LOG_TRACE : 0;
}

void kn_log(void *arg, enum kolo_log_level of, const char *line)
{
	(void)arg;
	pthread_once(&done, kn_env_read);
	if (!level || of > level)
		return;
	fprintf(file, "kolo %d: %s\n", getpid(), line);
	fflush(file);
}

enum kolo_log_level kn_log_level(void)
{
	pthread_once(&done, kn_env_read);
	return level;
}

/* Says `to` = `value` if the variable is set and the user has not said it himself. A variable of
 * Kolo's own counts more. */
static void hand_on(const char *from, const char *to, const char *value)
{
	const char *asked = getenv(from);

	if (asked && *asked && !getenv(to))
		setenv(to, value ? value : asked, 0);
}

/* NCCL takes the beginnings of names, or, after =, whole ones; and after ^ those that are not to be
 * used. Kolo takes whole ones. */
static void hand_on_names(const char *from, const char *to)
{
	const char *asked = getenv(from);

	if (asked && *asked == '=')
		asked++;
	if (asked && *asked && *asked != '^' && !getenv(to))
		setenv(to, asked, 0);
}

static bool is_on(const char *name)
{
	const char *value = getenv(name);

	return value && strcmp(value, "0") != 0;
}

void kn_env_read(void)
{
	const char *name = getenv("NCCL_DEBUG_FILE");

	level = level_of(getenv("NCCL_DEBUG"));
	if (level && name && *name)
		file = open_file(name);
	if (!file)
		file = stdout;
	hand_on_names("NCCL_SOCKET_IFNAME", "KOLO_IFACE");
	hand_on_names("NCCL_IB_HCA", "KOLO_VERBS_DEVICE");
	hand_on("NCCL_IB_GID_INDEX", "KOLO_VERBS_GID_INDEX", NULL);
	if (is_on("NCCL_IB_DISABLE"))
		hand_on("NCCL_IB_DISABLE", "KOLO_NET", "tcp");
}

/* The environment is read once. NCCL's own does nothing either, by now. */
void ncclResetDebugInit(void)
{
}

KN_TWIN(ncclResetDebugInit);
