/* Checks of what must be true of an engine, as comm/base/check.h has them for communicators. Only
 * DEBUG builds have them (make DEBUG=1, and all flavours with a sanitizer). */
#ifndef ZERO_BASE_CHECK_H
#define ZERO_BASE_CHECK_H

/* If `ok` is false, prints `text` on standard error and ends the process with abort(). Other builds
 * do not evaluate `ok`. */
#ifdef KO_DEBUG
#undef NDEBUG
#include <assert.h>
#define zero_check(ok, text) assert((ok) && (text))
#else
#define zero_check(ok, text) ((void)0)
#endif

#endif
