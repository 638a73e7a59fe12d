/* Reads and writes other processes' memory (ko_cma_read, ko_cma_write), and finds out whether this
 * is possible (ko_cma_reachable, ko_cma_offers). */
#include "comm/memory/cma.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Returns the bytes read at `at`, or -1 with errno. */
static ssize_t read_some(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len)
{
	struct iovec here = { .iov_base = out, .iov_len = len };
	struct iovec there = { .iov_base = (void *)(uintptr_t)at, .iov_len = len };

	return process_vm_readv(c->table[rank].pid, &here, 1, &there, 1, 0);
}

bool ko_cma_reachable(const struct kolo_comm *c, int rank, uint64_t at, uint64_t secret)
{
	uint64_t found = ~secret;
	struct iovec here = { .iov_base = &secret, .iov_len = sizeof(secret) };
	struct iovec there = { .iov_base = (void *)(uintptr_t)at, .iov_len = sizeof(secret) };

	return read_some(c, rank, at, &found, sizeof(found)) == sizeof(found) && found == secret &&
	       process_vm_writev(c->table[rank].pid, &here, 1, &there, 1, 0) == sizeof(secret);
}

bool ko_cma_offers(struct kolo_comm *c, const void *buffer, size_t len)
{
	struct ko_readable *known = c->readable;
	uint64_t first = (uintptr_t)buffer;
	char byte;

	/* Most programs pass the same buffers over and over. */
	for (const struct ko_range *r = known->ranges; r < known->ranges + KO_READABLE; r++)
		if (first >= r->first && len <= r->len && first - r->first <= r->len - len)
			return true;
	if (len == 0)
		return true;
	if (read_some(c, c->rank, first, &byte, 1) != 1 ||
	    read_some(c, c->rank, first + len - 1, &byte, 1) != 1)
		return false;
	known->ranges[known->asked++ % KO_READABLE] = (struct ko_range){ first, len };
	return true;
}

/* A system call that moves bytes between this process and another one, and its words in errors. */
struct mover {
	ssize_t (*call)(pid_t pid, const struct iovec *here, unsigned long nhere,
			const struct iovec *there, unsigned long nthere, unsigned long flags);
	const char *name, *doing, *did;
};

static int move_all(const struct kolo_comm *c, int rank, uint64_t at, char *here, size_t len,
		    const struct mover *mover)
{
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];

	for (size_t done = 0; done < len;) {
		struct iovec mine = { .iov_base = here + done, .iov_len = len - done };
		struct iovec theirs = { .iov_base = (void *)(uintptr_t)(at + done),
					.iov_len = len - done };
		ssize_t got = mover->call(c->table[rank].pid, &mine, 1, &theirs, 1, 0);

		if (got > 0)
			done += (size_t)got;
		else if (got < 0 && errno == ESRCH)
			return ko_fail(KOLO_EPEER, "%s ended while %s %s its memory",
				       ko_comm_name(c, rank, them), ko_comm_name(c, c->rank, me),
				       mover->did);
		else if (got == 0 || errno != EINTR)
			return ko_fail(KOLO_ESYS, "%s: %s %zu bytes at %#llx of %s (%s): %s",
				       ko_comm_name(c, c->rank, me), mover->doing, len - done,
				       (unsigned long long)(at + done), ko_comm_name(c, rank, them),
				       mover->name,
				       got == 0 ? "no bytes were moved" : strerror(errno));
	}
	return 0;
}

int ko_cma_read(const struct kolo_comm *c, int rank, uint64_t at, void *out, size_t len)
{
	static const struct mover reader = { process_vm_readv, "process_vm_readv", "reading",
					     "read" };

	return move_all(c, rank, at, out, len, &reader);
}

int ko_cma_write(const struct kolo_comm *c, int rank, uint64_t at, const void *src, size_t len)
{
	static const struct mover writer = { process_vm_writev, "process_vm_writev", "writing",
					     "wrote" };
	int rc = ko_roster_cause(c->roster);

	return rc < 0 ? rc : move_all(c, rank, at, (char *)(uintptr_t)src, len, &writer);
}
