/* zerotrain's options. */
#ifndef TOOLS_ZEROTRAIN_SETUP_OPTIONS_H
#define TOOLS_ZEROTRAIN_SETUP_OPTIONS_H

#include "kolo/kolo_parallel.h"
#include "tools/zerotrain/data/documents.h"
#include "tools/zerotrain/math/products.h"
#include "tools/zerotrain/model/tensors.h"

enum { UNSET = -1 };

/* What --device stands for. */
struct device_option {
	enum { HOST_MEMORY, ARENA, CUDA } kind;
	size_t budget;    /* bytes of an arena, */
	double bandwidth; /* and bytes a second that are copied from and to it; 0: as fast as it
			   * can */
	int ordinal;      /* of a GPU */
};

struct options {
	/* NULL: not given */
	const char *data, *config, *save, *resume, *plot, *log, *timeline, *prompt, *import,
		*export;
	int nranks;          /* ranks to start if no launcher did */
	int stage, overlap;  /* UNSET: the config's */
	enum kolo_type type; /* (enum kolo_type)UNSET: the config's */
	enum products products;
	struct sizes model; /* kind, and all sizes that a whole model has */
	bool tokens;        /* they are not bytes, but 16 bits of the data, or by a tokenizer: */
	const char *bpe;    /* its folder; NULL: none */
	enum packing packing;
	int end_token; /* of documents; UNSET: that of the tokenizer, or 0 */
	struct device_option device;
	int offload_optimizer, offload_param; /* enum kolo_zero_place; UNSET: the config's */
	const char *nvme_path;                /* NULL: the config's */
	double offload_ratio;                 /* NaN: the config's */
	int threads;                          /* UNSET: as many as the engine takes */
	int batch;        /* of a rank and micro-step; UNSET: the config's, else as the help says */
	int recompute;    /* blocks of a segment; 0: all */
	int tensor, pipe; /* sizes of the grid; UNSET: the config's, or 1 */
	int micros;       /* micro-batches of an update; UNSET: the config's, or 1 */
	enum kolo_pipeline_schedule schedule;
	bool scheduled;     /* --schedule was given */
	int chunks;         /* of a stage; UNSET: as the schedule has it */
	int spread_ranks;   /* of --context-parallel; UNSET: not given */
	enum spread spread; /* how, if it was */
	bool sequence, exact;
	long steps, print, validate, keep; /* updates in all, from line to line, from validation to
					      validation, from checkpoint to */
	int sample, samples;               /* tokens of a text, and texts */
	long sample_every;                 /* updates from text to text; 0: only at the end */
	bool cache;                        /* of keys and values */
	double temperature, top_p;
	int top_k; /* 0: all */
	bool report;
	long seed, sample_seed; /* UNSET: as seed */
	double lr;              /* NaN: the config's, else DEFAULT_LR */
	double dropout;
};

enum { DEFAULT_BATCH = 8, BYTE_VALUES = 256 };
#define DEFAULT_LR 0.002

/* The segments of layers that --exact stands for: up to 8, as many as the number of heads has as a
 * power of two; of a LLAMA that of keys. 0 without it. */
int segments_of(const struct options *o);

/* Completes the sizes of the model: those of --import, or what was given, or the defaults. Ends the
 * process if they do not go together (sizes.c). */
void sizes_take(struct options *o);

/* Ends the process if the help or the version is asked for, or if something is wrong. */
void options_parse(int argc, char **argv, struct options *out);

#endif
