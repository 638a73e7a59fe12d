/* A training run: what the files around the training loop share. */
#ifndef TOOLS_ZEROTRAIN_RUN_H
#define TOOLS_ZEROTRAIN_RUN_H

#include "kolo/kolo_zero_log.h"
#include "tools/zerotrain/data.h"
#include "tools/zerotrain/engine.h"
#include "tools/zerotrain/model/model.h"

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
	struct data data;
	struct engine engine;
	struct model *model;
	struct kolo_zero_log *log; /* NULL: none is wanted */
	uint8_t *in, *targets;     /* [B, T] */
	uint64_t *keys;            /* [B] */
	uint64_t position; /* the sample that the next micro-step begins with, of all ranks; in
			      checkpoints */
	struct losses trained, validated;
	FILE *picture;  /* of --plot, on rank 0 */
	double seconds; /* that training took so far, */
	uint64_t bytes; /* and on how many all ranks trained in it */
};

/* Trains until options.steps. Returns an exit status, after a message if it failed. */
int train(struct run *r);

/* Checkpoints. Collective; returns an exit status, after a message if it failed. */
int save_run(struct run *r);
int resume_run(struct run *r);

/* What the options want at the end. Collective; returns an exit status, after a message if it
 * failed. */
int write_sample(struct run *r);
int print_report(struct run *r);

/* On rank 0. open_plot opens the file of --plot and looks for gnuplot, before training. draw_losses
 * draws what was printed. Both return an exit status. */
int open_plot(struct run *r);
int draw_losses(struct run *r);

#endif
