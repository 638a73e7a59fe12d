/* Checks of what must be true whatever callers and other ranks do: equations between the members of
 * a struct. Only DEBUG builds have them (make DEBUG=1, and all flavours with a sanitizer). */
#ifndef COMM_BASE_CHECK_H
#define COMM_BASE_CHECK_H

/* If `ok` is false, prints `text` on standard error and ends the process with abort(). Other builds
 * do not evaluate `ok`. */
#ifdef KO_DEBUG
#undef NDEBUG
#include <assert.h>
#define ko_check(ok, text) assert((ok) && (text))
#else
#define ko_check(ok, text) ((void)0)
#endif

#endif
