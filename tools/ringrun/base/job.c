#include "tools/ringrun/base/job.h"

#include "tools/ringrun/base/fields.h"
#include "tools/ringrun/base/processes.h"

#include <stddef.h>
#include <stdlib.h>

/* The members that are a number, a text, or a list of texts. */
static const size_t numbers[] = {
	offsetof(struct job, node),          offsetof(struct job, nnodes),
	offsetof(struct job, nranks),        offsetof(struct job, first),
	offsetof(struct job, nlocal),        offsetof(struct job, nslots),
	offsetof(struct job, bind),          offsetof(struct job, omp),
	offsetof(struct job, relay),         offsetof(struct job, tag),
	offsetof(struct job, input),         offsetof(struct job, local_rank_option),
	offsetof(struct job, local_rank_at), offsetof(struct job, port),
};
static const size_t texts[] = {
	offsetof(struct job, host), offsetof(struct job, wdir), offsetof(struct job, cores),
	offsetof(struct job, logs), offsetof(struct job, root), offsetof(struct job, pid_file),
};
static const size_t lists[] = { offsetof(struct job, command), offsetof(struct job, environment) };
static const struct fields fields = {
	.numbers = numbers,
	.texts = texts,
	.lists = lists,
	.nnumbers = sizeof(numbers) / sizeof(numbers[0]),
	.ntexts = sizeof(texts) / sizeof(texts[0]),
	.nlists = sizeof(lists) / sizeof(lists[0]),
};

void job_write(const struct job *job, struct bytes *out)
{
	fields_write(&fields, job, out);
	for (int i = 0; i < job->nslots; i++)
		put_number(out, job->slots[i]);
}

bool job_read(struct job *out, const char *data, size_t len)
{
	struct reader r = { .at = data, .end = data + len };

	fields_read(&fields, &r, out);
	if (r.bad || out->nslots < 0 || (size_t)out->nslots > len)
		return false;
	out->slots = need(calloc((size_t)out->nslots + 1, sizeof(*out->slots)));
	for (int i = 0; i < out->nslots; i++)
		out->slots[i] = (int)get_number(&r);
	return !r.bad && out->nlocal > 0 && out->nranks >= out->nlocal;
}
