/* Errors: a function returns the code, and writes the text once, where it first sees the cause. */
#ifndef COMM_BASE_ERROR_H
#define COMM_BASE_ERROR_H

#include "kolo/kolo.h"

enum {
	KO_EAGAIN = 1, /* "not yet, try again": internal, never returned to a user */
	KO_TEXT = 512, /* bytes of an error text with its final 0; longer texts are cut */
};

/* Writes the calling thread's error text. Returns `code`. Keeps errno. */
int ko_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
