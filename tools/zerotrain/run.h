/* A training run: what the files around the training loop share. */
#ifndef TOOLS_ZEROTRAIN_RUN_H
#define TOOLS_ZEROTRAIN_RUN_H

#include "kolo/kolo_zero_log.h"
#include "tools/zerotrain/data/data.h"
#include "tools/zerotrain/math/kernels.h"
#include "tools/zerotrain/model/model.h"
#include "tools/zerotrain/setup/engine.h"
#include "tools/zerotrain/timeline.h"

#include <stdio.h>

/* The loss of an update or a validation, for the plot. */
struct loss {
	long step;
	double value;
};

/* Losses as they come, as long as there is memory for them. */
struct losses {
	struct loss *at;
	size_t n, room;
};

struct run {
	const struct options *options;
	struct kolo_comm *comm;
	int rank, nranks;
	char kernels[KERNELS_TEXT]; /* what choose_kernels said */
	struct data data;
	struct parallel parallel;
	struct engine engine;
	struct model *model;
	struct kolo_zero_log *log; /* NULL: none is wanted */
	struct batch *batches;     /* of each micro-batch: parts of the next five */
	token *in, *targets;       /* [M, B, T] */
	uint64_t *keys;            /* [M, B] */
	uint8_t *counted;          /* [M, B, T], and */
	int32_t *begins;           /* [M, B, T] of documents; else NULL */
	double *shares;            /* [M] of each micro-batch in the loss */
	struct bpe *bpe;           /* of --bpe; NULL: none */
	int end_token;             /* of documents and texts; -1: nothing ends them */
	float *input, *output; /* with several stages: a boundary tensor each, for pass_stages */
	struct timeline timeline;
	uint64_t position; /* the sample that the next micro-step begins with, of all ranks; in
			      checkpoints */
	struct losses trained, validated;
	FILE *picture; /* of --plot, on rank 0 */
	/* What pipelines took, in microseconds: from first to last action, and computing: forward,
	 * and backward for both or for inputs, and for weights */
	double piped_us, forward_us, backward_us, weights_us;
	long updates;      /* in which they did */
	double sampled_us; /* that generating took, */
	uint64_t sampled;  /* and how many tokens came of it */
	double seconds;    /* that training took so far, */
	uint64_t tokens;   /* and on how many all ranks trained in it */
};

/* Trains until options.steps. Returns an exit status, after a message if it failed. */
int train(struct run *r);

/* The mean loss of all micro-batches in r->batches, on the last stage, and their gradients, times
 * scale, which the engine gets as they come. Collective; errors of Kolo's. */
int run_pipeline(struct run *r, double scale, double *loss);

/* Computes one of this rank's parts of the model. input and output are NULL at the ends. */
typedef int compute_part_fn(struct run *r, int part, const float *input, float *output, void *arg);

/* Computes all parts once, each with what the one before it gives, of `rows` rows. Collective over
 * the ranks of a replica; errors of Kolo's. */
int pass_stages(struct run *r, size_t rows, compute_part_fn *compute, void *arg);

/* So of a batch. The loss is the last stage's. */
int run_forward(struct run *r, const struct batch *batch, double *loss);

/* A text that grows. The model sees its tokens from number `begin` on. */
struct text {
	token *tokens;
	size_t len, begin;
	size_t known; /* places from begin on whose keys and values the model has */
	bool ended;   /* by an end token, its last one */
};

/* The logits [texts, V] of the token after each of options.samples texts, on all ranks. A text that
 * is longer than the context begins at its last half from now on. Overwrites r->in. Collective over
 * the ranks of a replica; errors of Kolo's. */
int predict(struct run *r, struct text *texts, real *logits);

/* Checkpoints. Collective; returns an exit status, after a message if it failed. */
int save_run(struct run *r);
int resume_run(struct run *r);

/* What the options want at the end. Collective; returns an exit status, after a message if it
 * failed. */
int write_sample(struct run *r);
int export_run(struct run *r);
int print_report(struct run *r);

/* Whether the options' prompt is one. An exit status, after a message if it is not. */
int check_prompt(const struct run *r);

/* On rank 0. open_plot opens the file of --plot and looks for gnuplot, before training. draw_losses
 * draws what was printed. Both return an exit status. */
int open_plot(struct run *r);
int draw_losses(struct run *r);

#endif
