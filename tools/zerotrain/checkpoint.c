/* Saves and loads checkpoints: those of the engine, with the place in the text and a description
 * of the run. */
#include "kolo/kolo_zero_checkpoint.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 512, KEPT = 2 };

/* What must be the same for the same losses to come. */
static void describe_run(const struct run *r, char *out, size_t room)
{
	const struct sizes *s = &r->engine.sizes;
	char vocab[96] = "", model[128] = "";

	if (r->options->tokens) /* or --bpe */
		snprintf(vocab, sizeof(vocab), " --tokens --vocab %d", s->values);
	if (s->kind == LLAMA)
		snprintf(model, sizeof(model), " --model llama --kv-heads %d --rope-theta %g%s",
			 s->kv_heads, s->theta, s->untied ? " --untied" : "");
	if (r->data.packing != NO_DOCUMENTS)
		snprintf(vocab + strlen(vocab), sizeof(vocab) - strlen(vocab),
			 " --documents %s --end-token %d",
			 r->data.packing == PACKED ? "packed" : "padded", r->end_token);
	if (s->kind == LLAMA || s->inner != 4 * s->dim || s->eps != 1e-5)
		snprintf(model + strlen(model), sizeof(model) - strlen(model),
			 " --ffn %d --norm-eps %g", s->inner, s->eps);
	snprintf(
		out, room,
		"--layers %d --dim %d --heads %d --context %d --dropout %.17g --batch %d --seed %" PRIu64
		"%s%s, text %016" PRIx64,
		s->layers, s->dim, s->heads, s->context, s->dropout, r->engine.batch, s->seed,
		vocab, model, data_fingerprint(&r->data));
}

int save_run(struct run *r)
{
	char user[ROOM];
	int len = snprintf(user, sizeof(user), "%" PRIu64 " ", r->position), rc;

	describe_run(r, user + len, sizeof(user) - (size_t)len);
	rc = kolo_zero_save(r->engine.zero, r->options->save, KEPT, user, strlen(user));
	return rc < 0 ? engine_failed(r->comm, "--save", rc) : EXIT_GOOD;
}

static int take_place(struct run *r, const char *user)
{
	char here[ROOM], *there;

	r->position = strtoull(user, &there, 10);
	describe_run(r, here, sizeof(here));
	if (*there == ' ' && strcmp(there + 1, here) == 0)
		return EXIT_GOOD;
	fprintf(stderr,
		"zerotrain: rank %d: --resume %s: the checkpoint is of another run: use the options and the "
		"text that it began with\n  there: %s\n  here:  %s\n",
		r->rank, r->options->resume, *there == ' ' ? there + 1 : "another program's", here);
	return EXIT_WRONG;
}

int resume_run(struct run *r)
{
	char user[ROOM] = "";
	size_t len = sizeof(user) - 1;
	struct kolo_zero_progress progress;
	int rc = kolo_zero_load(r->engine.zero, r->options->resume, KOLO_ZERO_LOAD_ALL, user, &len);

	if (rc < 0) {
		engine_failed(r->comm, "--resume", rc);
		fprintf(stderr,
			"zerotrain: --resume needs the options and the text that the run began with\n");
		return rc == KOLO_ENOMEM ? EXIT_FAILED : EXIT_WRONG;
	}
	if ((rc = take_place(r, user)))
		return rc;
	kolo_zero_progress_get(r->engine.zero, &progress);
	if (r->rank == 0)
		printf("resumed after step %ld%s\n", progress.step,
		       progress.step >= r->options->steps ? ": no update is left of --steps" : "");
	return EXIT_GOOD;
}
