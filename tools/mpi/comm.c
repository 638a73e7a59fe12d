/* What belongs to a communicator of MPI (km_enter): when it tries to join a ring, and its end. */
#include "tools/mpi/inside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_TRY = 16 }; /* collectives; then after twice as many, and so on */

static struct km_comms all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int key = MPI_KEYVAL_INVALID;

_Atomic unsigned km_freed;
_Thread_local struct km_last km_last;

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

static void add_up(struct km_comm *to, const struct km_comm *c)
{
	for (int k = 0; k < KM_NCALLS; k++) {
		to->tally[k].calls += c->tally[k].calls;
		to->tally[k].taken += c->tally[k].taken;
		to->tally[k].could += c->tally[k].could;
		to->tally[k].bytes += c->tally[k].bytes;
		to->tally[k].ns += c->tally[k].ns;
	}
	to->nfreed++;
}

/* From the list of those that are there to that of those that were freed. With the lock. */
static void keep_tally(struct km_comm *c)
{
	struct km_comm **at, *to;

	for (at = &all.first; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	for (to = all.freed; to; to = to->next)
		if (to->size == c->size && to->joined == c->joined && to->why == c->why)
			break;
	if (to) {
		add_up(to, c);
		free(c);
		return;
	}
	c->nfreed = 1;
	c->next = all.freed;
	all.freed = c;
}

/* The communicator goes; on other ranks perhaps later. So nothing here waits for them. */
static int drop(MPI_Comm comm, int keyval, void *value, void *extra)
{
	struct km_comm *c = value;

	(void)comm, (void)keyval, (void)extra;
	km_freed++;
	km_own_close(c);
	km_leave_ring(c->ring);
	c->ring = NULL;
	c->kolo = NULL;
	pthread_mutex_lock(&lock);
	keep_tally(c);
	pthread_mutex_unlock(&lock);
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
	c->due = km_calls >= 0 ? km_calls : FIRST_TRY;
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

/* ---- Calls ----------------------------------------------------------------------------------- */

struct km_comm *km_enter_ringless(struct km_comm *c)
{
	if (!c->why && km_mode == KM_ON && c->calls++ == c->due) {
		c->due *= 2;
		km_try_to_join(c);
	}
	return c->kolo || km_timed || !c->why ? c : NULL;
}

struct km_comm *km_enter_other(MPI_Comm comm)
{
	struct km_comm *c;

	km_ready();
	c = km_mode == KM_OFF ? NULL : find(comm);
	if (!c)
		return NULL;
	km_last = (struct km_last){ comm, km_freed, c };
	return c->kolo ? c : km_enter_ringless(c);
}

void km_leave_all(void)
{
	pthread_mutex_lock(&lock);
	for (struct km_comm *c = all.first; c; c = c->next) {
		km_own_close(c);
		c->kolo = NULL;
		c->why = "MPI ends";
	}
	pthread_mutex_unlock(&lock);
	km_end_rings();
}

int km_fail(struct km_comm *c, enum km_call call)
{
	if (!c->told)
		fprintf(stderr, "kolo_mpi: MPI_%s on %s, rank %d: %s\n", km_call_name(call),
			*c->name ? c->name : "a communicator", c->rank, kolo_last_error());
	c->told = true;
	km_real.Comm_call_errhandler(c->comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}
