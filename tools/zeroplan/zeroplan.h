/* What the files of zeroplan share. The library decides what fits (kolo_zero_plan_check); this
 * tool computes the times. */
#ifndef TOOLS_ZEROPLAN_ZEROPLAN_H
#define TOOLS_ZEROPLAN_ZEROPLAN_H

#include "kolo/kolo_parallel.h"
#include "kolo/kolo_zero_config.h"
#include "kolo/kolo_zero_device.h"
#include "tools/common/tool.h"

#include <stdbool.h>
#include <stdio.h>

/* Bandwidths of one rank while all others do the same. 0: not known. */
struct bandwidths {
	double ring;    /* bytes a second that it sends to its next, in all-reduces */
	double copy;    /* bytes a second between device and host, each way */
	double memory;  /* bytes a second that an update reads and writes in host memory, on all
			   threads of the rank */
	double device;  /* the same in the device's memory; 0: that is the host's */
	double disk;    /* bytes a second that are read or written */
	double compute; /* seconds of the model's own work in an update; 0: it does nothing */
	double cores;   /* that it has for messages and copies too; 0: others do these */
};

/* The fields by name, as --bandwidth wants them. */
struct bandwidth_name {
	const char *name;
	size_t offset;
};
enum { NBANDWIDTHS = 7 };
extern const struct bandwidth_name bandwidth_names[NBANDWIDTHS];

static inline double *bandwidth_at(struct bandwidths *b, int i)
{
	return (double *)((char *)b + bandwidth_names[i].offset);
}

/* ---- The command line ------------------------------------------------------------------------ */

enum { UNSET = -1, ALL_STAGES = 4 };

struct options {
	const char *config, *plot; /* NULL: not given */
	const char *nvme_path;     /* directory for files; NULL: that of the config, else /tmp */
	int nranks;
	int stage;           /* ALL_STAGES; UNSET: the config's, else all */
	enum kolo_type type; /* (enum kolo_type)UNSET: the config's, else KOLO_F32 */
	int batch;           /* of a rank and micro-step */
	int accumulation;    /* 0: the config's, else 1 */
	int optimizer;       /* UNSET: the config's, else AdamW */
	int at_optimizer,
		at_param;     /* enum kolo_zero_place; UNSET: the config's, else on the device */
	double offload_ratio; /* NaN: the config's, else 1 */
	size_t device_memory; /* 0: the model is in host memory */
	size_t host_memory;   /* 0: what there is */
	const char *tensors;  /* a file that lists them; NULL: by what follows */
	size_t parameters;    /* of a stack of square layers; 0: a GPT of the following */
	int layers, dim, heads, context, vocab; /* 0 beside these two, except dim */
	struct bandwidths bandwidths;           /* that are given */
	int tensor, pipe;                       /* sizes of the grid */
	int micros; /* of an update, through a pipeline; 0: no pipeline */
	enum kolo_pipeline_schedule schedule;
	int chunks;                            /* of a stage */
	int recompute;                         /* blocks of a segment; 0: all */
	bool sequence, scheduled, activations; /* scheduled: --schedule was given */
	bool measure, all, json;
};

/* Ends the process if the help or the version is asked for, or if something is wrong. */
void parse_options(int argc, char **argv, struct options *out);

/* "none", "cpu" or "nvme", as the options say it. */
const char *plan_place_name(enum kolo_zero_place place);

/* ---- Several ranks for a replica ------------------------------------------------------------- */

/* What the grid comes to, for the rank with most memory: of the stage that it is in. Without --tp,
 * --pp and --micro there is one stage, which has all. */
struct grid {
	int replicas; /* ranks with the same tensors */
	int stage;    /* of the rank that is planned */
	int chunks,
		*bounds; /* parts of a stage; [pipe * chunks + 1] the first block of each part */
	size_t activations, sums;          /* bytes: of the model, as zerotrain has them; the
					      embedding's, over micro-batches. 0: not asked for, or none */
	uint64_t tensor_bytes, pipe_bytes; /* that the rank sends in an update */
	double bubble_share, bubble_ratio; /* with as long a backward pass for inputs, and for
					      weights, as a forward pass */
	int kept;                          /* micro-batches that the stage keeps at most */
};

/* accumulation: micro-steps without a pipeline. 0, or an exit status after a message. free_grid in
 * any case. */
int plan_grid(const struct options *o, int accumulation, struct grid *out);
void free_grid(struct grid *g);

/* Whether the planned rank has a tensor of a GPT (tools/zerotrain/model/tensors.h). */
bool grid_has(const struct options *o, const struct grid *g, int tensor);

/* ---- The tensors ----------------------------------------------------------------------------- */

struct tensors {
	struct kolo_zero_tensor *list; /* with their names */
	int n;
	size_t parameters; /* elements of all of them */
	size_t trained;    /* those that are not frozen */
	char title[128];   /* what kind of model this is */
};

size_t tensor_elements(const struct kolo_zero_tensor *t);

/* Adds one to the list, with a copy of its name. 0, or an exit status after a message. */
int add_tensor(struct tensors *t, const struct kolo_zero_tensor *one, const char *name);

/* Reads a list. 0, or an exit status after a message. free_tensors in any case. */
int read_tensors(const char *path, enum kolo_type type, struct tensors *out);

/* Those of the planned rank. 0, or an exit status after a message. free_tensors in any case. */
int make_tensors(const struct options *o, const struct grid *g, enum kolo_type type,
		 struct tensors *out);
void free_tensors(struct tensors *t);

/* ---- A run and its settings ------------------------------------------------------------------ */

/* What is asked about: everything except what settings differ in. */
struct run {
	const struct options *options;
	struct kolo_zero_settings *settings; /* of --config; NULL */
	struct kolo_zero_group group;        /* where there is none */
	struct kolo_zero_config config;
	enum kolo_type type;
	struct tensors tensors;
	struct kolo_zero_device *device; /* NULL: host memory */
	struct bandwidths bandwidths;
	struct grid grid;
};

/* What settings differ in. */
struct setting {
	int stage;
	enum kolo_zero_place optimizer, param;
	double ratio; /* the share of the optimizer's state that is offloaded; 1 if nothing is */
};

/* Seconds of an update, by what takes them; NaN: the bandwidth is not known. */
struct seconds {
	double compute; /* the model */
	double bubble;  /* the pipeline is not full; */
	double tensor;  /* what the tensor group sends, which the model waits for; */
	double pipe;    /* what goes from stage to stage */
	double fill;    /* gradients into buckets, and out of them; */
	double unpack;  /* the same of updated parameters */
	double reduce, gather;
	double down, up;
	double update; /* the optimizer's pass, over host memory; */
	double home;   /* of elements on the device, if the device has a bandwidth of its own */
	double files;
	double total; /* of the update, in which some of them go on side by side */
};

enum { MOST_KINDS = 32, NPLACES = KOLO_ZERO_ON_NVME + 1 };

/* Bytes that a rank moves in an update. */
struct moved {
	struct kolo_zero_traffic engine;
	uint64_t tensor_bytes, pipe_bytes;
};

/* What a setting comes to, on rank 0, which has no less than any other. */
struct outcome {
	struct setting setting;
	int status;        /* 0, or KOLO_EINVAL if the engine has no such setting */
	bool fits;         /* else reason says why not */
	char reason[1024]; /* "" */
	char warning[320]; /* "" */
	struct kolo_zero_memory memory[MOST_KINDS];
	int nkinds;
	size_t bytes[NPLACES], pinned; /* of all kinds, at most; by place as memory names it */
	struct moved moved;
	struct seconds seconds;
};

/* "device", "host", "nvme": what kolo_zero_memory calls places. */
extern const char *const plan_place_words[NPLACES];

/* Prints the library's text of the error `rc`. An exit status. */
int plan_report_failure(int rc);

/* Asks the library. 0, or an exit status after a message. */
int plan_setting(const struct run *r, const struct setting *setting, struct outcome *out);

/* The settings that --stage, --offload... and --config ask for: one, or one for each stage. Returns
 * their number. */
int list_asked(const struct run *r, struct setting out[ALL_STAGES]);

/* All settings that are looked at for those that fit. Returns how many; out NULL: only counts. */
int list_settings(const struct run *r, struct setting *out);

/* Sorts: first the settings that fit, by their time. Then those without a known time and those that
 * do not fit, in the order of the list. */
void sort_outcomes(struct outcome *outcomes, int n);

/* ---- Time ------------------------------------------------------------------------------------ */

/* What time depends on, beside the setting and bandwidths. */
struct work {
	double own, all; /* elements of this rank's optimizer state, and of the model */
	double reduced;  /* elements of `all` that are copied out of buckets of gradients */
	double gathered; /* elements of `all` that are copied out of buckets of parameters */
	double used;     /* elements copied out of shards that are not offloaded, in an update */
	size_t size;     /* bytes of an element */
	struct kolo_zero_optimizer_info optimizer;
	bool overlap;
	bool device; /* else host memory is home */
	int accumulation;
	const struct moved *moved;
	double bubble_ratio; /* seconds that the pipeline waits for each in which it computes */
};

/* Computes the time by arithmetic alone. tools/zeroplan/README.md has the formula. */
struct seconds time_of(const struct work *w, const struct setting *s, const struct bandwidths *b);

/* The optimizer of a config that has at least one group. */
struct kolo_zero_optimizer_info optimizer_of(const struct kolo_zero_config *config);

/* Bytes that the optimizer's pass reads and writes for each element. */
double pass_bytes(const struct work *w);

/* ---- Measuring ------------------------------------------------------------------------------- */

/* Measures what is 0 in *out, except device and compute. It starts as many processes on this host
 * as there are ranks, which all do the same at the same time, with the optimizer of the config and
 * in its folder. Call it before any thread is started. Returns 0, or an exit status after a
 * message. */
int plan_measure(const struct options *o, const struct kolo_zero_config *config,
		 enum kolo_type type, struct bandwidths *out);

/* ---- Showing --------------------------------------------------------------------------------- */

struct report {
	const struct run *run;
	const struct outcome *asked;
	int nasked;
	const struct outcome *found; /* sorted; nfit of them fit */
	int nfound, nfit;
};

/* plan_list_kinds: the kinds of memory of all settings that are asked for, by name and place, each
 * once. peak_of: the largest number of bytes of one kind. */
int plan_list_kinds(const struct report *r, const struct kolo_zero_memory *out[MOST_KINDS]);
size_t peak_of(const struct outcome *o, const struct kolo_zero_memory *kind);

/* The rows of traffic and of time: the text for people, the name in JSON. */
struct row {
	const char *text, *name;
	size_t offset;
};
enum { NTRAFFIC = 8, NSECONDS = 14 };
extern const struct row traffic_rows[NTRAFFIC]; /* uint64_t in struct moved */
extern const struct row seconds_rows[NSECONDS]; /* double in struct seconds */

static inline uint64_t traffic_at(const struct moved *m, int i)
{
	return *(const uint64_t *)((const char *)m + traffic_rows[i].offset);
}

static inline double seconds_at(const struct seconds *s, int i)
{
	return *(const double *)((const char *)s + seconds_rows[i].offset);
}

void print_text(FILE *out, const struct report *r);
void print_json(FILE *out, const struct report *r);

/* Draws bytes by kind and place of what is asked. An exit status. */
int draw_plan(const struct report *r);

#endif
