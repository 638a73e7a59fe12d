/* Links through shared memory (ko_shm_ops). The receiver makes the fifo and hands its descriptor to
 * the sender; fifo.c moves slots. That both ends map the same memory is checked: the receiver
 * writes a secret into it, and also tells it in its address. The sender must read the same. */
#include "comm/transport/shm.h"

#include "comm/base/error.h"
#include "comm/sys/shmem.h"
#include "comm/transport/fifo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

struct shm_link {
	struct ko_fifo_end end; /* must be first */
	struct ko_limits limits;
	size_t len; /* bytes mapped at end.fifo */
	int fd;     /* the receiver's, for its address; the sender has -1 */
};

/* What the receiver's address says; the sender's address is empty. */
struct shm_address {
	uint64_t secret, len;
};

static int probe_places(const struct ko_place *a, const struct ko_place *b, bool asked)
{
	(void)asked;
	if (!ko_place_same(a, b))
		return ko_fail(KOLO_ENOTSUP,
			       "shm can't join %s and %s: they are different machines", a->host,
			       b->host);
	return 0;
}

/* The receiver's part of open: memory with an empty fifo in it. */
static int make_fifo(struct shm_link *shm)
{
	uint64_t secret;
	void *memory;
	int rc;

	if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret))
		return ko_fail(KOLO_ESYS, "getrandom: %s", strerror(errno));
	rc = ko_shmem_create(shm->len, shm->len, true, &shm->fd, &memory);
	if (rc < 0)
		return rc;
	shm->end.fifo = memory;
	shm->end.link.memory = shm->len;
	ko_fifo_init(shm->end.fifo, &shm->limits, secret);
	return 0;
}

static void close_link(struct ko_link *link, bool obsolete)
{
	struct shm_link *shm = (struct shm_link *)link;

	(void)obsolete; /* this transport never waits in close */
	if (!shm)
		return;
	if (shm->end.fifo)
		munmap(shm->end.fifo, shm->len);
	if (shm->fd >= 0)
		close(shm->fd);
	free(shm);
}

static int open_link(enum ko_role role, const struct ko_place *here, const struct ko_limits *limits,
		     struct ko_link **out)
{
	struct shm_link *shm = calloc(1, sizeof(*shm));
	int rc = 0;

	(void)here;
	*out = NULL;
	if (!shm)
		return ko_fail(KOLO_ENOMEM, "shm: no memory for a link");
	shm->end.link.role = role;
	shm->limits = *limits;
	shm->len = ko_fifo_len(limits);
	shm->fd = -1;
	if (role == KO_RECV)
		rc = make_fifo(shm);
	if (rc < 0) {
		close_link(&shm->end.link, true);
		return rc;
	}
	*out = &shm->end.link;
	return 0;
}

static int address_link(struct ko_link *link, struct ko_address *out)
{
	struct shm_link *shm = (struct shm_link *)link;
	struct shm_address address = { 0 };

	*out = (struct ko_address){ .fd = shm->fd };
	if (link->role == KO_RECV)
		address = (struct shm_address){ .secret = shm->end.fifo->secret, .len = shm->len };
	memcpy(out->bytes, &address, sizeof(address));
	return 0;
}

static int connect_link(struct ko_link *link, const struct ko_address *peer)
{
	struct shm_link *shm = (struct shm_link *)link;
	struct shm_address address;
	void *memory;
	int rc;

	if (link->role == KO_RECV)
		return 0;
	memcpy(&address, peer->bytes, sizeof(address));
	if (address.len != shm->len)
		return ko_fail(KOLO_EMISMATCH,
			       "shm: the receiver's link has %llu bytes, the sender's %zu",
			       (unsigned long long)address.len, shm->len);
	rc = ko_shmem_map(peer->fd, shm->len, shm->len, true, &memory);
	if (rc < 0)
		return rc;
	shm->end.fifo = memory;
	if (shm->end.fifo->secret != address.secret)
		return ko_fail(KOLO_EUNREACH, "shm: the memory handed over is not the receiver's");
	return 0;
}

const struct ko_link_ops ko_shm_ops = {
	.name = "shm",
	.probe = probe_places,
	.open = open_link,
	.address = address_link,
	.connect = connect_link,
	.acquire = ko_fifo_acquire,
	.commit = ko_fifo_commit,
	.peek = ko_fifo_peek,
	.release = ko_fifo_release,
	.progress = ko_fifo_progress,
	.drain = ko_fifo_drain,
	.close = close_link,
	.settle = ko_fifo_settle,
};
