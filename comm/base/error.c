/* The error text of each thread (ko_fail, kolo_last_error), the names of codes, and the version.
 * Nothing is allocated here, so that running out of memory can be reported too. */
#include "comm/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[KO_TEXT];

static int set_error(int code, const char *fmt, va_list args)
{
	/* Formatted in a buffer of its own: an argument may be the last error itself. */
	char text[KO_TEXT];
	int saved = errno;

	vsnprintf(text, sizeof(text), fmt, args);
	memcpy(last_error, text, sizeof(text));
	errno = saved;
	return code;
}

int ko_fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	code = set_error(code, fmt, args);
	va_end(args);
	return code;
}

int kolo_error_set(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	status = set_error(status, format, args);
	va_end(args);
	return status;
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
		[-KOLO_EOVERFLOW] = "overflow",
	};

	if (status > 0 || status <= -(int)(sizeof(text) / sizeof(text[0])))
		return "unknown status";
	return text[-status];
}

int kolo_version(void)
{
	return KOLO_VERSION_MAJOR * 10000 + KOLO_VERSION_MINOR * 100 + KOLO_VERSION_PATCH;
}
