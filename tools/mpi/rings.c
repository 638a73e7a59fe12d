/* Kolo's communicators, the rings (km_try_to_join). Communicators of MPI with the same ranks in the
 * same order share one. It stays for a while when the last of them is freed, since the next may
 * come. */
#include "tools/mpi/inside.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	JOIN_S = 60, /* all ranks are there when they join */
	MOST_IDLE = 8,
	ENOUGH = 128, /* collectives that are worth a join, which takes 1 to 10 ms */
};

struct km_ring {
	struct kolo_comm *kolo;
	MPI_Comm own; /* for progress; MPI_COMM_NULL: not needed */
	uint64_t tag; /* the same on all its ranks, and no other ring's; 0: none may share it */
	int *world;   /* its n ranks' numbers in MPI_COMM_WORLD */
	int n;
	int uses; /* communicators of MPI */
	struct km_ring *next;
};

static struct km_ring *rings; /* the newest first */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- One ring -------------------------------------------------------------------------------- */

static uint64_t hash(const void *bytes, size_t len)
{
	uint64_t sum = 14695981039346656037ULL;

	for (size_t k = 0; k < len; k++)
		sum = (sum ^ ((const unsigned char *)bytes)[k]) * 1099511628211ULL;
	return sum;
}

/* Kolo waits, and MPI goes on. */
static void go_on(void *arg)
{
	const struct km_ring *r = arg;
	int flag;

	if (km_mpi_progress)
		km_mpi_progress();
	else if (r->own != MPI_COMM_NULL)
		km_real.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, r->own, &flag, MPI_STATUS_IGNORE);
}

static void end_ring(struct km_ring *r)
{
	kolo_comm_destroy(r->kolo);
	r->kolo = NULL;
	if (r->own != MPI_COMM_NULL)
		km_real.Comm_free(&r->own);
}

static void free_ring(struct km_ring *r)
{
	end_ring(r);
	free(r->world);
	free(r);
}

/* The ranks' numbers in MPI_COMM_WORLD; NULL: some rank is from elsewhere, or there is no memory.
 */
static int *world_ranks(MPI_Comm comm, int n)
{
	int *own = malloc((size_t)n * sizeof(*own)), *world = malloc((size_t)n * sizeof(*world));
	MPI_Group group, all;
	bool good = false;

	if (own && world && km_real.Comm_group(comm, &group) == MPI_SUCCESS) {
		for (int r = 0; r < n; r++)
			own[r] = r;
		if (km_real.Comm_group(MPI_COMM_WORLD, &all) == MPI_SUCCESS) {
			good = km_real.Group_translate_ranks(group, n, own, all, world) ==
			       MPI_SUCCESS;
			km_real.Group_free(&all);
		}
		km_real.Group_free(&group);
	}
	for (int r = 0; good && r < n; r++)
		good = world[r] != MPI_UNDEFINED;
	free(own);
	if (!good) {
		free(world);
		return NULL;
	}
	return world;
}

/* ---- Sharing --------------------------------------------------------------------------------- */

/* With threads two communicators may be in use at a time; then each has its own ring. */
static bool may_share(void)
{
	int level;

	return km_share && km_real.Query_thread(&level) == MPI_SUCCESS &&
	       level < MPI_THREAD_MULTIPLE;
}

/* The newest ring of these ranks, with one more use. */
static struct km_ring *take_known(const int *world, int n)
{
	struct km_ring *r;

	pthread_mutex_lock(&lock);
	for (r = rings; r; r = r->next)
		if (r->tag && r->n == n &&
		    memcmp(r->world, world, (size_t)n * sizeof(*world)) == 0 &&
		    kolo_comm_status(r->kolo) == 0)
			break;
	if (r)
		r->uses++;
	pthread_mutex_unlock(&lock);
	return r;
}

/* Of the rings that nobody uses, the newest MOST_IDLE stay. With the lock. */
static void drop_old(void)
{
	int idle = 0;

	for (struct km_ring *r, **at = &rings; (r = *at);) {
		if (r->uses || (r->tag && idle++ < MOST_IDLE)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		free_ring(r);
	}
}

void km_leave_ring(struct km_ring *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&lock);
	r->uses--;
	if (kolo_comm_status(r->kolo) != 0)
		r->tag = 0;
	drop_old();
	pthread_mutex_unlock(&lock);
}

void km_end_rings(void)
{
	pthread_mutex_lock(&lock);
	for (struct km_ring *r = rings; r; r = r->next)
		end_ring(r);
	pthread_mutex_unlock(&lock);
}

/* ---- Joining --------------------------------------------------------------------------------- */

/* A number for this host, until it boots again; containers with a network of their own are hosts.
 */
static uint64_t host_number(void)
{
	char id[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(id));
	struct stat net = { 0 };

	if (fd >= 0)
		close(fd);
	if (stat("/proc/self/ns/net", &net) < 0)
		net.st_ino = 0;
	return hash(id, n < 0 ? 0 : (size_t)n) ^ net.st_ino;
}

/* NULL: they are on one host, or know how to reach each other. */
static const char *check_hosts(const struct km_comm *c)
{
	const char *iface = getenv("KOLO_IFACE");
	uint64_t host = host_number();
	uint64_t mine[3] = { host, ~host, iface && *iface }, least[3];

	if (km_real.Allreduce(mine, least, 3, MPI_UINT64_T, MPI_MIN, c->comm) != MPI_SUCCESS)
		return "MPI failed";
	return least[0] == ~least[1] || least[2]
		       ? NULL
		       : "its ranks are on several hosts, and KOLO_IFACE is not set on all";
}

/* What rank 0 tells the others. */
struct hello {
	struct kolo_id id;
	int ok;
};

static void make_kolo(struct km_ring *r, const struct km_comm *c, struct hello *hello)
{
	const struct kolo_comm_attr attr = { .id = &hello->id,
					     .rank = c->rank,
					     .nranks = c->size,
					     .timeout_s = JOIN_S,
					     .progress = go_on,
					     .progress_arg = r };

	if (!hello->ok || kolo_comm_create(&attr, &r->kolo) < 0 ||
	    kolo_timeout_set(r->kolo, -1) < 0)
		fprintf(stderr, "kolo_mpi: rank %d of %s can't join: %s\n", c->rank, c->name,
			kolo_last_error());
}

/* All ranks are in the same collective. Returns NULL, or why they stay with MPI: all of them do. */
static const char *make_ring(struct km_ring *r, const struct km_comm *c)
{
	struct hello hello = { .ok = 1 };
	const char *why = check_hosts(c);
	int mine, ok = 0;

	if (why)
		return why;
	why = "MPI failed while it joined";
	if (!km_mpi_progress && km_real.Comm_dup(c->comm, &r->own) != MPI_SUCCESS)
		return why;
	if (c->rank == 0 && kolo_id_create(&hello.id) < 0)
		hello.ok = 0;
	if (km_real.Bcast(&hello, sizeof(hello), MPI_BYTE, 0, c->comm) != MPI_SUCCESS)
		return why;
	make_kolo(r, c, &hello);
	mine = r->kolo && km_packs_plainly();
	if (km_real.Allreduce(&mine, &ok, 1, MPI_INT, MPI_MIN, c->comm) != MPI_SUCCESS)
		return why;
	r->tag = hash(&hello.id, sizeof(hello.id)) | 1;
	return ok ? NULL : "a rank could not join (see above)";
}

static void use_ring(struct km_comm *c, struct km_ring *r)
{
	c->ring = r;
	c->kolo = r->kolo;
	c->joined = true;
}

/* Takes `world`. */
static void join(struct km_comm *c, int *world)
{
	struct km_ring *r = calloc(1, sizeof(*r));

	if (!r) { /* the others would wait for it */
		fprintf(stderr, "kolo_mpi: rank %d of %s: out of memory\n", c->rank, c->name);
		abort();
	}
	*r = (struct km_ring){ .own = MPI_COMM_NULL, .world = world, .n = c->size, .uses = 1 };
	c->why = make_ring(r, c);
	if (c->why) {
		free_ring(r);
		return;
	}
	if (!world || !may_share())
		r->tag = 0;
	use_ring(c, r);
	pthread_mutex_lock(&lock);
	r->next = rings;
	rings = r;
	pthread_mutex_unlock(&lock);
}

void km_try_to_join(struct km_comm *c)
{
	int *world = world_ranks(c->comm, c->size);
	struct km_ring *known = world && may_share() ? take_known(world, c->size) : NULL;
	uint64_t tag = known ? known->tag : 0;
	uint64_t mine[3] = { tag, ~tag, c->weight }, least[3];
	bool same;

	if (km_real.Allreduce(mine, least, 3, MPI_UINT64_T, MPI_MIN, c->comm) != MPI_SUCCESS) {
		c->why = "MPI failed before it joined";
		least[0] = 0;
	}
	same = least[0] && least[0] == ~least[1];
	if (same)
		use_ring(c, known);
	else
		km_leave_ring(known);
	if (!same && !c->why && (km_calls >= 0 || least[2] >= ENOUGH))
		join(c, world);
	else
		free(world);
}
