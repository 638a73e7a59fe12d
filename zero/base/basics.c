/* Hashes, the clock, UTF-8, and one outcome for all ranks: zero_share_failure takes one all-reduce,
 * and a broadcast if a rank failed. */
#include "zero/base/basics.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t zero_hash(uint64_t hash, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	return hash;
}

double zero_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

size_t zero_character_len(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80                  ? 1
		   : s[0] < 0xc2 || s[0] > 0xf4 ? 0
						: 2 + (s[0] >= 0xe0) + (s[0] >= 0xf0);

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Too long a form, one half of a UTF-16 pair, or beyond U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

int zero_share_failure(struct kolo_comm *comm, int rc)
{
	struct {
		int32_t rc;
		char text[508];
	} failure = { .rc = rc };
	int64_t nranks = kolo_comm_nranks(comm), first = rc < 0 ? kolo_comm_rank(comm) : nranks;
	char who[32];
	int sent, len;

	if (rc < 0)
		snprintf(failure.text, sizeof(failure.text), "%s", kolo_last_error());
	sent = kolo_all_reduce(comm, &first, &first, 1, KOLO_I64, KOLO_MIN, NULL);
	if (sent < 0 || first == nranks)
		return sent;
	sent = kolo_broadcast(comm, &failure, &failure, sizeof(failure), KOLO_U8, (int)first, NULL);
	if (sent < 0)
		return sent;
	len = snprintf(who, sizeof(who), "rank %d: ", (int)first);
	/* Some texts name the rank themselves. */
	return kolo_error_set(failure.rc, "%s%s", who,
			      failure.text +
				      (strncmp(failure.text, who, (size_t)len) == 0 ? len : 0));
}
