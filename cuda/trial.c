/* See trial.h. */
#include "trial.h"
#include "record.h"

#include <stdlib.h>
#include <string.h>

int ko_gpu_trial_prepare(struct ko_gpu_comm *g, size_t len, struct ko_gpu_trial *t)
{
	const struct ko_driver *d = g->driver;
	int rc;

	t->len = len;
	t->bytes = malloc(2 * len);
	if (!t->bytes)
		return ko_fail(KOLO_ENOMEM, "rank %d: no memory to check a path between GPUs", g->comm->rank);
	for (size_t k = 0; k < len; k++) {
		t->bytes[k] = ko_gpu_pattern(g->comm->rank, k);
		t->bytes[len + k] = ko_gpu_pattern(g->in.peer, k);
	}
	if ((rc = d->stream_create(g->gpu, &t->stream)) < 0 ||
	    (rc = d->alloc(g->gpu, 2 * len, &t->memory)) < 0 ||
	    (rc = d->put(g->gpu, t->memory.at, t->bytes, len)) < 0)
		return ko_gpu_error(g, rc, "memory to check a path");
	return 0;
}

int ko_gpu_trial_run(struct ko_gpu_comm *g, const struct ko_gpu_trial *t, bool staged)
{
	char *came = (char *)t->memory.at + t->len;
	int rc = ko_gpu_pass(g, t->stream, t->memory.at, came, t->len, staged);

	if (rc == 0 && (rc = g->driver->get(g->gpu, t->bytes, came, t->len)) < 0)
		rc = ko_gpu_error(g, rc, "reading what a path brought");
	if (rc == 0 && staged == !!g->in.room && memcmp(t->bytes, t->bytes + t->len, t->len) != 0)
		rc = ko_gpu_path_lies(g, g->in.peer, staged);
	return rc;
}

void ko_gpu_trial_end(struct ko_gpu_comm *g, struct ko_gpu_trial *t)
{
	if (t->stream)
		g->driver->stream_destroy(g->gpu, t->stream);
	g->driver->release(g->gpu, &t->memory);
	free(t->bytes);
}
