/* What all rooms need: errors with a checked format, sizes, a hash, a clock, UTF-8, one outcome for
 * all ranks. */
#ifndef ZERO_BASE_BASICS_H
#define ZERO_BASE_BASICS_H

#include "kolo/kolo.h"

/* The public declaration, with its format checked here. */
int kolo_error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline size_t zero_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t zero_max(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* FNV-1a, on from `hash`: a byte that differs always shows. */
#define ZERO_HASH 14695981039346656037u
uint64_t zero_hash(uint64_t hash, const void *bytes, size_t len);

/* Seconds since some fixed time. */
double zero_now(void);

/* Bytes of the character in UTF-8 that text begins with; 0: it is none. */
size_t zero_character_len(const char *text);

/* Collective. If `rc` of any rank is an error, all return the error of the first such rank, with
 * its number and text. Otherwise returns 0. Other errors: those of the collectives. */
int zero_share_failure(struct kolo_comm *comm, int rc);

#endif
