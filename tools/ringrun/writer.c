#include "tools/ringrun/writer.h"

#include "tools/ringrun/base/processes.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct piece {
	struct piece *next;
	int source;
	size_t len;
	char data[];
};

struct queue {
	struct piece *first, **last;
};

struct writer {
	int fd, wake;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t more;
	struct queue waiting, written;
	int error;
};

static void append(struct queue *q, struct piece *p)
{
	p->next = NULL;
	*q->last = p;
	q->last = &p->next;
}

static struct piece *take(struct queue *q)
{
	struct piece *p = q->first;

	if (p && !(q->first = p->next))
		q->last = &q->first;
	return p;
}

/* How much to write at once: whole lines, and no more than a pipe takes in one piece. Then nothing
 * comes between that another one writes to it, as after 2>&1. A longer line is written alone. */
static size_t lines_at_once(const char *data, size_t len)
{
	const char *end;

	if (len <= PIPE_BUF)
		return len;
	end = memrchr(data, '\n', PIPE_BUF);
	if (!end)
		end = memchr(data + PIPE_BUF, '\n', len - PIPE_BUF);
	return end ? (size_t)(end - data) + 1 : len;
}

/* Returns 0, or errno. */
static int write_all(int fd, const char *data, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t put = write(fd, data + at, lines_at_once(data + at, len - at));

		if (put < 0 && errno == EAGAIN)
			poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
		else if (put < 0 && errno != EINTR)
			return errno;
		at += put > 0 ? (size_t)put : 0;
	}
	return 0;
}

static void *run(void *arg)
{
	struct writer *w = arg;
	uint64_t one = 1;

	for (;;) {
		struct piece *p;
		int error;

		pthread_mutex_lock(&w->lock);
		while (!(p = w->waiting.first))
			pthread_cond_wait(&w->more, &w->lock);
		error = w->error;
		pthread_mutex_unlock(&w->lock);
		error = error ? error : write_all(w->fd, p->data, p->len);
		pthread_mutex_lock(&w->lock);
		append(&w->written, take(&w->waiting)); /* is not done before it is written */
		w->error = error;
		pthread_mutex_unlock(&w->lock);
		if (write(w->wake, &one, sizeof(one)) < 0)
			return NULL;
	}
}

struct writer *writer_open(int fd, int wake)
{
	struct writer *w = need(calloc(1, sizeof(*w)));
	pthread_t thread;

	w->fd = fd;
	w->wake = wake;
	w->waiting.last = &w->waiting.first;
	w->written.last = &w->written.first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	if ((errno = pthread_create(&thread, NULL, run, w)) == 0) {
		pthread_detach(thread);
		return w;
	}
	complain("starting a thread that writes");
	free(w);
	return NULL;
}

void writer_put(struct writer *w, int source, const char *data, size_t len)
{
	struct piece *p = need(malloc(sizeof(*p) + len));

	*p = (struct piece){ .source = source, .len = len };
	memcpy(p->data, data, len);
	pthread_mutex_lock(&w->lock);
	append(&w->waiting, p);
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
}

bool writer_take(struct writer *w, int *source, size_t *len)
{
	struct piece *p;

	pthread_mutex_lock(&w->lock);
	p = take(&w->written);
	pthread_mutex_unlock(&w->lock);
	if (!p)
		return false;
	*source = p->source;
	*len = p->len;
	free(p);
	return true;
}

bool writer_is_done(struct writer *w)
{
	bool done;

	pthread_mutex_lock(&w->lock);
	done = !w->waiting.first;
	pthread_mutex_unlock(&w->lock);
	return done;
}

int writer_error(struct writer *w)
{
	int error;

	pthread_mutex_lock(&w->lock);
	error = w->error;
	pthread_mutex_unlock(&w->lock);
	return error;
}
