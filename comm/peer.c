/* See peer.h. */
#include "peer.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Bytes read at `at`, or -1 with errno. */
static ssize_t read_some(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len)
{
	struct iovec here = { .iov_base = out, .iov_len = len };
	struct iovec there = { .iov_base = (void *)(uintptr_t)at, .iov_len = len };

	return process_vm_readv(c->table[rank].pid, &here, 1, &there, 1, 0);
}

bool ko_peer_readable(const struct kolo_comm *c, int rank, uint64_t at, uint64_t secret)
{
	uint64_t found = ~secret;

	return read_some(c, rank, at, &found, sizeof(found)) == sizeof(found) && found == secret;
}

bool ko_peer_offers(struct kolo_comm *c, const void *buffer, size_t len)
{
	uint64_t first = (uintptr_t)buffer;
	char byte;

	/* Most programs pass the same buffers over and over. */
	for (int k = 0; k < KO_OFFERED; k++)
		if (first >= c->offered[k].first && len <= c->offered[k].len &&
		    first - c->offered[k].first <= c->offered[k].len - len)
			return true;
	if (len == 0 || read_some(c, c->rank, first, &byte, 1) != 1 ||
	    read_some(c, c->rank, first + len - 1, &byte, 1) != 1)
		return false;
	c->offered[c->noffered++ % KO_OFFERED] = (struct ko_range){ first, len };
	return true;
}

int ko_peer_read(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];

	for (size_t done = 0; done < len;) {
		ssize_t got = read_some(c, rank, at + done, (char *)out + done, len - done);

		if (got > 0)
			done += (size_t)got;
		else if (got < 0 && errno == ESRCH)
			return ko_fail(KOLO_EPEER, "%s ended while %s read its memory",
				       ko_comm_name(c, rank, them), ko_comm_name(c, c->rank, me));
		else if (got == 0 || errno != EINTR)
			return ko_fail(
				KOLO_ESYS, "%s: reading %zu bytes at %#llx of %s (process_vm_readv): %s",
				ko_comm_name(c, c->rank, me), len - done, (unsigned long long)(at + done),
				ko_comm_name(c, rank, them), got == 0 ? "nothing came" : strerror(errno));
	}
	return 0;
}
