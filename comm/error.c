/* The error text of a thread, and the log. Both are bounded: nothing is allocated here, so that an error can be
 * reported when memory is what is missing. */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char last_error[KO_TEXT];

int ko_fail(int code, const char *fmt, ...)
{
	/* Formatted aside: an argument may be the last error itself. */
	char text[KO_TEXT];
	int saved = errno;
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	memcpy(last_error, text, sizeof(text));
	errno = saved;
	return code;
}

const char *kolo_last_error(void)
{
	return last_error;
}

const char *kolo_strerror(int status)
{
	static const char *const text[] = {
		[-KOLO_OK] = "success",
		[-KOLO_EINVAL] = "invalid argument",
		[-KOLO_ENOMEM] = "out of memory",
		[-KOLO_ENOTSUP] = "not supported",
		[-KOLO_EUNREACH] = "rank unreachable",
		[-KOLO_ETIMEDOUT] = "timed out",
		[-KOLO_EPEER] = "rank died or left",
		[-KOLO_EMISMATCH] = "ranks disagree about the operation",
		[-KOLO_ESYS] = "system error",
		[-KOLO_EABORTED] = "aborted",
	};

	if (status > 0 || status <= -(int)(sizeof(text) / sizeof(text[0])))
		return "unknown status";
	return text[-status];
}

int kolo_version(void)
{
	return KOLO_VERSION_MAJOR * 10000 + KOLO_VERSION_MINOR * 100 + KOLO_VERSION_PATCH;
}

/* The level that KOLO_LOG asks for, 0 for none; *file is what follows the colon, NULL where nothing does. */
static int parse_log(const char *value, const char **file)
{
	static const char *const names[] = { "", "error", "warn", "info" };
	size_t len = value ? strcspn(value, ":") : 0;

	*file = value && value[len] == ':' ? value + len + 1 : NULL;
	for (int level = KO_LOG_ERROR; level <= KO_LOG_INFO; level++)
		if (strlen(names[level]) == len && !memcmp(names[level], value, len))
			return level;
	return 0;
}

int ko_log_check(void)
{
	const char *value = getenv("KOLO_LOG"), *file;

	if (!value || !*value || parse_log(value, &file))
		return 0;
	return ko_fail(KOLO_EINVAL, "KOLO_LOG=%s: want error, warn or info, then optionally :FILE", value);
}

void ko_log(enum ko_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "", "error", "warn", "info" };
	char host[65] = "", when[32] = "", text[KO_TEXT];
	int saved = errno;
	struct timespec now;
	struct tm tm;
	const char *file;
	va_list args;
	FILE *out;

	if ((int)level > parse_log(getenv("KOLO_LOG"), &file))
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	gethostname(host, sizeof(host) - 1);
	out = file ? fopen(file, "ae") : stderr;
	if (out) {
		fprintf(out, "%s.%03ldZ %s %d kolo %s: %s\n", when, now.tv_nsec / 1000000, host,
			(int)getpid(), names[level], text);
		if (file)
			fclose(out);
	}
	errno = saved;
}
