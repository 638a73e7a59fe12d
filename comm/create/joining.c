/* Ends calls of kolo_comm_create from another thread (kolo_id_abort): those that wait look at their
 * flag (ko_progress_stopped). */
#include "comm/create/joining.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

static struct {
	pthread_mutex_t lock;
	struct ko_joining *first;
} joinings = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- A child of fork has none of the threads that wait --------------------------------------- */

static void before_fork(void)
{
	pthread_mutex_lock(&joinings.lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&joinings.lock);
}

static void in_child(void)
{
	joinings.first = NULL;
	pthread_mutex_unlock(&joinings.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- The list -------------------------------------------------------------------------------- */

void ko_joining_begin(struct ko_joining *joining, const struct kolo_id *id)
{
	*joining = (struct ko_joining){ .id = id };
	if (!id)
		return;
	pthread_mutex_lock(&joinings.lock);
	joining->next = joinings.first;
	joinings.first = joining;
	pthread_mutex_unlock(&joinings.lock);
}

void ko_joining_end(struct ko_joining *joining)
{
	struct ko_joining **at = &joinings.first;

	if (!joining->id)
		return;
	pthread_mutex_lock(&joinings.lock);
	while (*at != joining)
		at = &(*at)->next;
	*at = joining->next;
	pthread_mutex_unlock(&joinings.lock);
}

void kolo_id_abort(const struct kolo_id *id)
{
	if (!id)
		return;
	pthread_mutex_lock(&joinings.lock);
	for (struct ko_joining *j = joinings.first; j; j = j->next)
		if (memcmp(j->id->bytes, id->bytes, sizeof(id->bytes)) == 0)
			atomic_store_explicit(&j->stopped, 1, memory_order_relaxed);
	pthread_mutex_unlock(&joinings.lock);
}
