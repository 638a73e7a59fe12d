/* Kolo's engine with the tensors of a GPT: how it is set up, and how the model reaches its
 * weights. */
#ifndef TOOLS_ZEROTRAIN_ENGINE_H
#define TOOLS_ZEROTRAIN_ENGINE_H

#include "kolo/kolo_zero_config.h"
#include "tools/zerotrain/device.h"
#include "tools/zerotrain/model/tensors.h"

struct engine {
	struct device device;
	struct kolo_zero *zero;
	struct sizes sizes;
	enum kolo_type type;
	long steps_per_print; /* what a config wants of a log; without one 0 */
	int wall_clock, memory;
	char csv[4096], jsonl[4096]; /* "": none */
	int batch;                   /* samples of a micro-step on this rank */
	bool moves;                  /* something is on a device, or in files */
	/* Only if the model cannot use the engine's values as they are, else NULL: all values as
	 * float, each tensor's at its place; one tensor in 16 bits; one gradient in memory of a
	 * device that the host cannot write. */
	float *floats;
	size_t *places;
	uint16_t *halves;
	void *up;
	size_t floats_len, halves_len, up_len; /* bytes */
};

/* Sets up an engine of out->sizes as the options say, with first weights. Collective. Returns 0, or
 * an exit status after a message. Call engine_close in both cases. */
int engine_open(struct kolo_comm *comm, const struct options *o, struct engine *out);
void engine_close(struct engine *e);

/* The model's way to the engine's tensors. Its errors are statuses of Kolo's. */
struct weights engine_weights(struct engine *e);

/* Says on standard error what failed, with Kolo's reason. An exit status. */
int engine_failed(const struct kolo_comm *comm, const char *doing, int status);

#endif
