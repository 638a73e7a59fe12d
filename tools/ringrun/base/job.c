#include "tools/ringrun/base/job.h"

#include "tools/ringrun/base/processes.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
enum {
	NNUMBERS = sizeof(numbers) / sizeof(numbers[0]),
	NTEXTS = sizeof(texts) / sizeof(texts[0]),
	NLISTS = sizeof(lists) / sizeof(lists[0]),
};

static void *member(const struct job *job, size_t offset)
{
	return (char *)job + offset;
}

void job_write(const struct job *job, struct bytes *out)
{
	for (int i = 0; i < NNUMBERS; i++)
		put_number(out, *(int *)member(job, numbers[i]));
	for (int i = 0; i < NTEXTS; i++) {
		const char *text = *(char **)member(job, texts[i]);

		put_number(out, text != NULL);
		put_text(out, text ? text : "");
	}
	for (int i = 0; i < NLISTS; i++)
		put_texts(out, *(char ***)member(job, lists[i]));
	for (int i = 0; i < job->nslots; i++)
		put_number(out, job->slots[i]);
}

bool job_read(struct job *out, const char *data, size_t len)
{
	struct reader r = { .at = data, .end = data + len };

	for (int i = 0; i < NNUMBERS; i++)
		*(int *)member(out, numbers[i]) = (int)get_number(&r);
	for (int i = 0; i < NTEXTS; i++) {
		bool there = get_number(&r);
		const char *text = get_text(&r);

		*(char **)member(out, texts[i]) = there ? need(strdup(text)) : NULL;
	}
	for (int i = 0; i < NLISTS; i++)
		*(char ***)member(out, lists[i]) = get_texts(&r);
	if (r.bad || out->nslots < 0 || (size_t)out->nslots > len)
		return false;
	out->slots = need(calloc((size_t)out->nslots + 1, sizeof(*out->slots)));
	for (int i = 0; i < out->nslots; i++)
		out->slots[i] = (int)get_number(&r);
	return !r.bad && out->nlocal > 0 && out->nranks >= out->nlocal && out->command[0];
}
