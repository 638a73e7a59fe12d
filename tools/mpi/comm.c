/* What belongs to a communicator of MPI (km_enter): when it joins a communicator of Kolo's, and how
 * that ends. */
#include "tools/mpi/inside.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOIN_S = 60 }; /* all ranks are there when they join */

static struct km_comms all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int key = MPI_KEYVAL_INVALID;
static _Atomic unsigned freed; /* communicators: handles may come again */

/* The thread's last communicator: most calls are on one. */
static _Thread_local struct {
	MPI_Comm comm;
	unsigned freed;
	struct km_comm *c;
} last;

struct km_comms *km_comms_lock(void)
{
	pthread_mutex_lock(&lock);
	return &all;
}

void km_comms_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* ---- The attribute --------------------------------------------------------------------------- */

/* A copy of a communicator has nothing of the first. */
static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *out, int *flag)
{
	(void)comm, (void)keyval, (void)extra, (void)value, (void)out;
	*flag = 0;
	return MPI_SUCCESS;
}

static void close_own(struct km_comm *c)
{
	if (c->own != MPI_COMM_NULL)
		km_real.Comm_free(&c->own);
}

/* The communicator goes; on other ranks perhaps later. So nothing here waits for them. */
static int drop(MPI_Comm comm, int keyval, void *value, void *extra)
{
	struct km_comm *c = value, **at;

	(void)comm, (void)keyval, (void)extra;
	freed++;
	kolo_comm_destroy(c->kolo);
	close_own(c);
	pthread_mutex_lock(&lock);
	for (at = &all.first; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	all.nfreed++;
	for (int k = 0; k < KM_NCALLS; k++) {
		all.freed.tally[k].calls += c->tally[k].calls;
		all.freed.tally[k].taken += c->tally[k].taken;
		all.freed.tally[k].bytes += c->tally[k].bytes;
		all.freed.tally[k].ns += c->tally[k].ns;
	}
	pthread_mutex_unlock(&lock);
	free(c);
	return MPI_SUCCESS;
}

/* With the lock. */
static int make_key(void)
{
	return key == MPI_KEYVAL_INVALID ? km_real.Comm_create_keyval(copy, drop, &key, NULL)
					 : MPI_SUCCESS;
}

static struct km_comm *make(MPI_Comm comm)
{
	struct km_comm *c = calloc(1, sizeof(*c));
	int len, inter = 0;

	if (!c)
		return NULL;
	c->comm = comm;
	c->own = MPI_COMM_NULL;
	pthread_mutex_lock(&lock);
	if (make_key() != MPI_SUCCESS || km_real.Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
	    km_real.Comm_rank(comm, &c->rank) != MPI_SUCCESS ||
	    km_real.Comm_size(comm, &c->size) != MPI_SUCCESS ||
	    km_real.Comm_get_name(comm, c->name, &len) != MPI_SUCCESS ||
	    km_real.Comm_set_attr(comm, key, c) != MPI_SUCCESS) {
		pthread_mutex_unlock(&lock);
		free(c);
		return NULL;
	}
	c->why = inter ? "it joins two groups" : c->size == 1 ? "it has one rank" : NULL;
	c->next = all.first;
	all.first = c;
	pthread_mutex_unlock(&lock);
	return c;
}

static struct km_comm *find(MPI_Comm comm)
{
	struct km_comm *c = NULL;
	int there = 0;

	if (comm == MPI_COMM_NULL)
		return NULL;
	if (key != MPI_KEYVAL_INVALID &&
	    km_real.Comm_get_attr(comm, key, &c, &there) != MPI_SUCCESS)
		return NULL;
	return there ? c : make(comm);
}

/* ---- Joining --------------------------------------------------------------------------------- */

/* Kolo waits, and MPI goes on. */
static void go_on(void *arg)
{
	const struct km_comm *c = arg;
	int flag;

	if (km_mpi_progress)
		km_mpi_progress();
	else if (c->own != MPI_COMM_NULL)
		km_real.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->own, &flag, MPI_STATUS_IGNORE);
}

/* A number for this host, until it boots again. */
static uint64_t host_number(void)
{
	char id[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(id));
	uint64_t hash = 14695981039346656037ULL;

	if (fd >= 0)
		close(fd);
	for (ssize_t k = 0; k < n; k++)
		hash = (hash ^ (unsigned char)id[k]) * 1099511628211ULL;
	return hash;
}

/* NULL: they are on one host, or know how to reach each other. */
static const char *check_hosts(struct km_comm *c)
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

static void join_kolo(struct km_comm *c, struct hello *hello)
{
	const struct kolo_comm_attr attr = { .id = &hello->id,
					     .rank = c->rank,
					     .nranks = c->size,
					     .timeout_s = JOIN_S,
					     .progress = go_on,
					     .progress_arg = c };

	if (!hello->ok || kolo_comm_create(&attr, &c->kolo) < 0 ||
	    kolo_timeout_set(c->kolo, -1) < 0)
		fprintf(stderr, "kolo_mpi: rank %d of %s can't join: %s\n", c->rank, c->name,
			kolo_last_error());
}

/* All ranks are in the same collective. Whatever fails, they stay together with MPI. */
static void join(struct km_comm *c)
{
	struct hello hello = { .ok = 1 };
	int mine, ok = 0;

	c->why = "MPI failed while it joined";
	if (km_real.Barrier(c->comm) != MPI_SUCCESS || (c->why = check_hosts(c)))
		return;
	c->why = "MPI failed while it joined";
	if (!km_mpi_progress && km_real.Comm_dup(c->comm, &c->own) != MPI_SUCCESS)
		return;
	if (c->rank == 0 && kolo_id_create(&hello.id) < 0)
		hello.ok = 0;
	if (km_real.Bcast(&hello, sizeof(hello), MPI_BYTE, 0, c->comm) != MPI_SUCCESS)
		return;
	join_kolo(c, &hello);
	mine = c->kolo && km_packs_plainly();
	if (km_real.Allreduce(&mine, &ok, 1, MPI_INT, MPI_MIN, c->comm) == MPI_SUCCESS)
		c->why = ok ? NULL : "a rank could not join (see above)";
	if (c->why) {
		kolo_comm_destroy(c->kolo);
		c->kolo = NULL;
	}
}

/* ---- Calls ----------------------------------------------------------------------------------- */

struct km_comm *km_enter(MPI_Comm comm)
{
	struct km_comm *c = last.c;

	if (!c || last.comm != comm || last.freed != freed) {
		c = find(comm);
		if (!c)
			return NULL;
		last.comm = comm;
		last.freed = freed;
		last.c = c;
	}
	if (!c->kolo && !c->why && km_mode == KM_ON && c->calls++ >= km_calls)
		join(c);
	return c;
}

void km_leave_all(void)
{
	pthread_mutex_lock(&lock);
	for (struct km_comm *c = all.first; c; c = c->next) {
		kolo_comm_destroy(c->kolo);
		c->kolo = NULL;
		c->why = "MPI ends";
		close_own(c);
	}
	pthread_mutex_unlock(&lock);
}

int km_result(struct km_comm *c, enum km_call call, int rc)
{
	if (rc == 0)
		return MPI_SUCCESS;
	if (!c->told)
		fprintf(stderr, "kolo_mpi: MPI_%s on %s, rank %d: %s\n", km_call_name(call),
			*c->name ? c->name : "a communicator", c->rank, kolo_last_error());
	c->told = true;
	km_real.Comm_call_errhandler(c->comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}
