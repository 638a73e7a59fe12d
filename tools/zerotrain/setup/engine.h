/* Kolo's engine with the tensors of a GPT: how it is set up, and how the model reaches its
 * weights. */
#ifndef TOOLS_ZEROTRAIN_SETUP_ENGINE_H
#define TOOLS_ZEROTRAIN_SETUP_ENGINE_H

#include "kolo/kolo_zero_config.h"
#include "tools/zerotrain/setup/device.h"
#include "tools/zerotrain/setup/parallel.h"

struct engine {
	struct device device;
	struct kolo_zero *zero;
	const struct parallel *parallel;
	int *numbers; /* the engine's number of each tensor that this rank has */
	struct sizes sizes;
	enum kolo_type type;
	long steps_per_print; /* what a config wants of a log; without one 0 */
	int wall_clock, memory;
	char csv[4096], jsonl[4096]; /* "": none */
	int batch;                   /* samples of a micro-step, or a micro-batch, on this rank */
	bool moves;                  /* something is on a device, or in files */
	/* Only if the model cannot use the engine's values as they are, else NULL: all values as
	 * float, each tensor's at its place; one tensor in 16 bits; one gradient in memory of a
	 * device that the host cannot write. */
	float *floats;
	size_t *places;
	uint16_t *halves;
	void *up;
	size_t floats_len, halves_len, up_len; /* bytes */
	/* With a pipeline: gradients of the embedding are added up over micro-batches here, and on
	 * the one stage that has both ends the head's behind them. NULL: neither is here */
	float *sums;
	size_t sums_n;
	uint64_t tied_bytes; /* of the embedding's gradient, that this rank sent */
};

/* Sets up an engine of out->sizes as the options say, with first weights, and the ranks around it.
 * Collective. Returns 0, or an exit status after a message. Call engine_close in both cases, and
 * parallel_close after it. */
int engine_open(struct kolo_comm *comm, const struct options *o, struct parallel *parallel,
		struct engine *out);
void engine_close(struct engine *e);

/* Says on standard error what failed, with Kolo's reason. An exit status. */
int engine_failed(const struct kolo_comm *comm, const char *doing, int status);

/* ---- Weights (weights.c) --------------------------------------------------------------------- */

/* Memory for tensors as the model needs them, and for sums. Returns an error of Kolo's. */
int weights_open(struct engine *e);
void weights_close(struct engine *e);

/* The model's way to the engine's tensors. Its errors are statuses of Kolo's. */
struct weights engine_weights(struct engine *e);

/* Uses all tensors, so that stage 3 gathers them once, and releases them. Collective; errors of
 * Kolo's. */
int weights_hold(struct engine *e);
int weights_release(struct engine *e);

/* Around a pipeline's batch, before kolo_zero_step: begin uses all tensors, so that stage 3 gathers
 * them once. end adds up the gradients of the embedding's two ends, reports them, and releases all
 * tensors. Collective; errors of Kolo's. */
int weights_begin(struct engine *e);
int weights_end(struct engine *e);

#endif
