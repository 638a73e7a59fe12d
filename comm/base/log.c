/* Writes log lines (ko_log) to the file or stream that KOLO_LOG names and to a callback. Nothing is
 * allocated here: longer texts are cut. */
#include "comm/base/log.h"

#include "comm/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = { "", "error", "warn", "info", "trace" };

/* The level that KOLO_LOG asks for; 0: none. *file is what follows the colon, or NULL. */
static int parse_log(const char *value, const char **file)
{
	size_t len = value ? strcspn(value, ":") : 0;

	*file = value && value[len] == ':' ? value + len + 1 : NULL;
	for (int level = KOLO_LOG_ERROR; level <= KOLO_LOG_TRACE; level++)
		if (strlen(names[level]) == len && !memcmp(names[level], value, len))
			return level;
	return 0;
}

int ko_log_check(void)
{
	const char *value = getenv("KOLO_LOG"), *file;
	FILE *f;

	if (!value || !*value)
		return 0;
	if (!parse_log(value, &file) || (file && !*file))
		return ko_fail(
			KOLO_EINVAL,
			"KOLO_LOG=%s: want error, warn, info or trace, then optionally :FILE",
			value);
	f = file ? fopen(file, "ae") : NULL;
	if (file && !f)
		return ko_fail(KOLO_EINVAL, "KOLO_LOG=%s: the file can't be written: %s", value,
			       strerror(errno));
	if (f)
		fclose(f);
	return 0;
}

int ko_log_wants(const struct ko_log *log, enum kolo_log_level level)
{
	const char *file;

	return (log && log->fn && log->fn_level >= level) ||
	       parse_log(getenv("KOLO_LOG"), &file) >= (int)level;
}

/* Writes "2026-01-31T12:00:00.123Z node7 712 rank 3 kolo info: text". One write, so that ranks do
 * not mix their lines. */
static void write_line(FILE *out, const struct ko_log *log, enum kolo_log_level level,
		       const char *text)
{
	char host[65] = "", when[32] = "", who[24] = "", line[KO_TEXT + 160];
	struct timespec now;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	gethostname(host, sizeof(host) - 1);
	if (log && log->rank >= 0)
		snprintf(who, sizeof(who), " rank %d", log->rank);
	snprintf(line, sizeof(line), "%s.%03ldZ %s %d%s kolo %s: %s\n", when, now.tv_nsec / 1000000,
		 host, (int)getpid(), who, names[level], text);
	fputs(line, out);
}

void ko_log(const struct ko_log *log, enum kolo_log_level level, const char *fmt, ...)
{
	char text[KO_TEXT];
	int saved = errno;
	const char *file;
	va_list args;
	FILE *out;

	if (!ko_log_wants(log, level))
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (log && log->fn && log->fn_level >= level)
		log->fn(log->arg, level, text);
	if (parse_log(getenv("KOLO_LOG"), &file) >= (int)level) {
		out = file ? fopen(file, "ae") : stderr;
		if (out)
			write_line(out, log, level, text);
		if (out && file)
			fclose(out);
	}
	errno = saved;
}
