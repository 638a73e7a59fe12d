/* Errors: the code travels up as the return value, the text is written once, where the cause is first seen. */
#ifndef COMM_BASE_ERROR_H
#define COMM_BASE_ERROR_H

#include "kolo/kolo.h"

enum {
	KO_EAGAIN = 1, /* internal, never reaches a user: not yet, try again */
	KO_TEXT = 512, /* bytes of an error text, the final 0 included; longer ones are cut */
};

/* Writes the calling thread's error text and returns `code`. Keeps errno. */
int ko_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
