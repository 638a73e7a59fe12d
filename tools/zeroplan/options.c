/* zeroplan's command line: its help, its options, and which of them go together. */
#include "tools/common/grid.h"
#include "tools/zeroplan/zeroplan.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct bandwidth_name bandwidth_names[NBANDWIDTHS] = {
	{ "ring", offsetof(struct bandwidths, ring) },
	{ "copy", offsetof(struct bandwidths, copy) },
	{ "memory", offsetof(struct bandwidths, memory) },
	{ "device", offsetof(struct bandwidths, device) },
	{ "disk", offsetof(struct bandwidths, disk) },
	{ "compute", offsetof(struct bandwidths, compute) },
	{ "cores", offsetof(struct bandwidths, cores) },
};

static const char help[] =
	"usage: zeroplan [OPTIONS]\n"
	"\n"
	"Reports what a training run with Kolo's ZeRO engine needs, before it is started. It prints the bytes\n"
	"of a rank by kind and place. It prints the bytes that an update sends, copies, reads and writes, and\n"
	"how long an update takes. Then it lists the settings that fit, the fastest first. zeroplan does not\n"
	"allocate memory of that size.\n"
	"\n"
	"The model:\n"
	"  --layers L            The number of blocks of a GPT with zerotrain's tensors. Default: 5.\n"
	"  --dim D               Elements in a hidden state, a multiple of the number of heads. Default: 128.\n"
	"  --heads H             The number of attention heads. Default: 4.\n"
	"  --context C           The number of tokens that the model looks back to. Default: 128.\n"
	"  --vocab V             The number of different tokens. Default: 256.\n"
	"  --parameters N        The number of parameters, like 125M or 1.5B. The model is then not a GPT. It\n"
	"                        has at least 12 equal square layers, each at most 8192 wide, and one vector\n"
	"                        with the rest. --dim then counts only for sizes that --config leaves to\n"
	"                        \"auto\".\n"
	"  --tensors FILE        The model has the tensors of this file. A line has a name and a shape, like\n"
	"                        \"h0.qkv 768x2304\"; \"frozen\" may follow. What follows a # is left out.\n"
	"\n"
	"The run:\n"
	"  -n N                  The number of ranks. Default: 1.\n"
	"  --config DS.json      Read the engine's settings from this DeepSpeed config. The defaults below\n"
	"                        are then those of the config.\n"
	"  --stage 0|1|2|3|all   The ZeRO stage. Default: all.\n"
	"  --precision fp32|fp16|bf16\n"
	"                        The type of parameters and gradients. Default: fp32.\n"
	"  --batch B             Samples of a rank in a micro-step. Activations depend on it; otherwise it\n"
	"                        counts only if --config has a batch of all ranks and leaves this one to\n"
	"                        \"auto\". Default: 1.\n"
	"  --accumulation A      Micro-steps for each update. Default: 1.\n"
	"  --optimizer NAME      adamw, adam, sgd, lion, adagrad or lamb. Default: adamw. sgd has momentum\n"
	"                        only if a config says so.\n"
	"  --offload-optimizer none|cpu|nvme\n"
	"                        Where masters and moments are, at stages 1 to 3. cpu needs --device-memory.\n"
	"                        Default: none.\n"
	"  --offload-param none|cpu|nvme\n"
	"                        Where parameter shards are, at stage 3. cpu needs --device-memory.\n"
	"                        Default: none.\n"
	"  --offload-ratio X     The share of the optimizer's state that is offloaded, from 0 to 1.\n"
	"                        Default: 1.\n"
	"  --nvme-path DIR       The folder of the files that nvme means. Default: /tmp.\n"
	"\n"
	"Several ranks for a replica of a GPT, as zerotrain has them. A rank of the stage that needs most\n"
	"memory is planned.\n"
	"  --tp T                Divide each layer over T ranks. Default: 1.\n"
	"  --sequence-parallel   With --tp: also divide the rows between layers.\n"
	"  --pp P                Divide the blocks over P pipeline stages. Default: 1.\n"
	"  --micro M             The micro-batches of --batch samples in an update, through a pipeline.\n"
	"                        Default: --accumulation.\n"
	"  --schedule gpipe|1f1b|interleaved|zb-h1\n"
	"                        The order of forward and backward passes in a pipeline. Default: 1f1b.\n"
	"  --chunks V            With --schedule interleaved: the parts of the model in a stage. Default: 2.\n"
	"  --recompute none|block|N\n"
	"                        Keep the activations of all blocks, of one block, or of N blocks. Default:\n"
	"                        none.\n"
	"  --activations         Count the model's activations, in float, without a grid too.\n"
	"\n"
	"The machine:\n"
	"  --device-memory SIZE  Memory of each rank's device, on which the model is computed, like 80G.\n"
	"                        K, M, G and T mean 2^10, 2^20, 2^30 and 2^40 bytes. Without this option the\n"
	"                        model is computed in host memory.\n"
	"  --host-memory SIZE    Host memory of each rank. Default: all of this machine's. If several ranks\n"
	"                        share the machine, divide it by their number.\n"
	"  --bandwidth NAME=X,...\n"
	"                        Speeds that the time of an update is computed from. The names are below.\n"
	"  --measure             Measure on this machine the speeds that --bandwidth does not have, except\n"
	"                        device and compute. At most 64 ranks.\n"
	"\n"
	"A bandwidth is what one rank has while the other ranks work too. It is a number of bytes per second,\n"
	"like 25e9 or 25G (10^9).\n"
	"\n"
	"Bandwidths:\n"
	"  ring                  What a rank sends to its next rank.\n"
	"  copy                  Copies between device and host, in each direction.\n"
	"  memory                The optimizer's pass over host memory, with all threads.\n"
	"  device                The optimizer's pass over the device's memory.\n"
	"  disk                  Files.\n"
	"  compute               Not a bandwidth: seconds that the model computes in an update.\n"
	"  cores                 Not a bandwidth: cores of a rank for messages and copies. Without it,\n"
	"                        something else does these, like a NIC.\n"
	"\n"
	"Output:\n"
	"  --all                 Also list the settings that do not fit, with the reason.\n"
	"  --json                Print one JSON object instead of text.\n"
	"  --plot FILE           Draw bytes by kind and place as .svg or .png. This needs the program\n"
	"                        gnuplot.\n"
	"  --help                Print this text.\n"
	"  --version             Print the version.\n"
	"\n"
	"Exit status:\n"
	"  0      It fits. With --stage all, at least one stage fits.\n"
	"  1      It does not fit. The output has what is missing and what would help.\n"
	"  2      The command line or the config has a mistake.\n"
	"  3      Something failed. Standard error has the reason.\n"
	"\n"
	"Examples:\n"
	"  zeroplan -n 8 --parameters 7B --precision bf16 --device-memory 24G --host-memory 64G\n"
	"         Lists stages and offloads that train seven billion parameters on eight devices.\n"
	"  zeroplan -n 2 --measure --stage 2 --offload-optimizer nvme --nvme-path /var/tmp\n"
	"         Plans zerotrain's own model on this machine, with its optimizer in files.\n";

/* ---- Values ---------------------------------------------------------------------------------- */

static const char *const places[NPLACES] = { "none", "cpu", "nvme" };

const char *plan_place_name(enum kolo_zero_place place)
{
	return places[place];
}

static int parse_place(const char *option, const char *value)
{
	for (int i = 0; i < NPLACES; i++)
		if (strcmp(value, places[i]) == 0)
			return i;
	tool_refuse_option("zeroplan", option, value, "must be none, cpu or nvme");
}

static enum kolo_type parse_precision(const char *value)
{
	static const char *const names[] = { "fp32", "fp16", "bf16" };
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };

	for (int i = 0; i < 3; i++)
		if (strcmp(value, names[i]) == 0)
			return types[i];
	tool_refuse_option("zeroplan", "precision", value, "must be fp32, fp16 or bf16");
}

static int parse_optimizer(const char *value)
{
	char want[256] = "must be one of";
	const char *name;

	for (int i = 0; (name = kolo_zero_optimizer_name((enum kolo_zero_optimizer)i)); i++) {
		size_t at = strlen(want);

		if (strcasecmp(value, name) == 0)
			return i;
		snprintf(want + at, sizeof(want) - at, "%s %s", i ? "," : "", name);
	}
	tool_refuse_option("zeroplan", "optimizer", value, want);
}

static int parse_stage(const char *value)
{
	return strcmp(value, "all") == 0
		       ? ALL_STAGES
		       : (int)tool_parse_number("zeroplan", "--stage", value, 0, 3);
}

/* A positive number with a power of 1000; NaN: it is none. */
static double parse_decimal(const char *text, const char *units)
{
	char *end;
	const char *unit;
	double x = strtod(text, &end);

	if (end == text || !(x > 0))
		return NAN;
	if (*end && (unit = strchr(units, *end))) {
		x *= pow(1000, (double)(unit - units) + 1);
		end++;
	}
	return *end || !isfinite(x) ? NAN : x;
}

static size_t parse_parameters(const char *value)
{
	double x = parse_decimal(value, "KMBT");

	if (!(x >= 1 && x <= 1e13))
		tool_refuse_option("zeroplan", "parameters", value,
				   "must be a number from 1 to 10T, like 125M or 1.5B");
	return (size_t)llround(x);
}

static size_t parse_bytes(const char *option, const char *value)
{
	size_t bytes;
	const char *end = tool_read_bytes(value, &bytes);

	if (!end || *end)
		tool_refuse_option("zeroplan", option, value,
				   "must be a number of bytes, like 8, 64K, 1G or 2T");
	return bytes;
}

/* "ring=25e9,copy=12G" */
static void parse_bandwidths(const char *value, struct bandwidths *out)
{
	static const char why[] =
		"must be NAME=NUMBER,... with the names ring, copy, memory, device, disk, compute, cores";
	char text[512], *rest = text, *part;

	if ((size_t)snprintf(text, sizeof(text), "%s", value) >= sizeof(text))
		tool_refuse_option("zeroplan", "bandwidth", value, "must be shorter");
	while ((part = strsep(&rest, ","))) {
		char *equals = strchr(part, '=');
		double *at = NULL, x = equals ? parse_decimal(equals + 1, "KMGT") : NAN;

		if (equals)
			*equals = 0;
		for (int i = 0; i < NBANDWIDTHS; i++)
			if (strcmp(part, bandwidth_names[i].name) == 0)
				at = bandwidth_at(out, i);
		if (!at || isnan(x))
			tool_refuse_option("zeroplan", "bandwidth", value, why);
		*at = x;
	}
}

/* ---- All of it ------------------------------------------------------------------------------- */

static const struct tool_option fields[] = {
	{ "config", IN_TEXT, offsetof(struct options, config), 0, 0 },
	{ "tensors", IN_TEXT, offsetof(struct options, tensors), 0, 0 },
	{ "plot", IN_TEXT, offsetof(struct options, plot), 0, 0 },
	{ "nvme-path", IN_TEXT, offsetof(struct options, nvme_path), 0, 0 },
	{ "layers", IN_INT, offsetof(struct options, layers), 1, 10000 },
	{ "dim", IN_INT, offsetof(struct options, dim), 1, 1 << 20 },
	{ "heads", IN_INT, offsetof(struct options, heads), 1, 1 << 20 },
	{ "context", IN_INT, offsetof(struct options, context), 1, 1 << 24 },
	{ "vocab", IN_INT, offsetof(struct options, vocab), 1, 1 << 28 },
	{ "batch", IN_INT, offsetof(struct options, batch), 1, INT_MAX },
	{ "tp", IN_INT, offsetof(struct options, tensor), 1, MAX_RANKS },
	{ "pp", IN_INT, offsetof(struct options, pipe), 1, MAX_RANKS },
	{ "micro", IN_INT, offsetof(struct options, micros), 1, 1 << 12 },
	{ "chunks", IN_INT, offsetof(struct options, chunks), 1, 1000 },
	{ "accumulation", IN_INT, offsetof(struct options, accumulation), 1, INT_MAX },
	{ "offload-ratio", IN_DOUBLE, offsetof(struct options, offload_ratio), 0, 0 },
};
enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

/* Long options without a letter; the fields follow. */
enum {
	STAGE = 256,
	PRECISION,
	OPTIMIZER,
	OFFLOAD_OPTIMIZER,
	OFFLOAD_PARAM,
	PARAMETERS,
	DEVICE_MEMORY,
	HOST_MEMORY,
	BANDWIDTH,
	SCHEDULE,
	SEQUENCE,
	RECOMPUTE,
	ACTIVATIONS,
	MEASURE,
	ALL,
	JSON,
	HELP,
	VERSION,
	FIELD
};

static const struct option named[] = {
	{ "stage", required_argument, NULL, STAGE },
	{ "precision", required_argument, NULL, PRECISION },
	{ "optimizer", required_argument, NULL, OPTIMIZER },
	{ "offload-optimizer", required_argument, NULL, OFFLOAD_OPTIMIZER },
	{ "offload-param", required_argument, NULL, OFFLOAD_PARAM },
	{ "parameters", required_argument, NULL, PARAMETERS },
	{ "device-memory", required_argument, NULL, DEVICE_MEMORY },
	{ "host-memory", required_argument, NULL, HOST_MEMORY },
	{ "bandwidth", required_argument, NULL, BANDWIDTH },
	{ "schedule", required_argument, NULL, SCHEDULE },
	{ "sequence-parallel", no_argument, NULL, SEQUENCE },
	{ "recompute", required_argument, NULL, RECOMPUTE },
	{ "activations", no_argument, NULL, ACTIVATIONS },
	{ "measure", no_argument, NULL, MEASURE },
	{ "all", no_argument, NULL, ALL },
	{ "json", no_argument, NULL, JSON },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, VERSION },
};
enum { NNAMED = sizeof(named) / sizeof(named[0]) };

static void take_option(int c, const char *value, struct options *o)
{
	switch (c) {
	case 'n': o->nranks = (int)tool_parse_number("zeroplan", "-n", value, 1, MAX_RANKS); break;
	case STAGE: o->stage = parse_stage(value); break;
	case PRECISION: o->type = parse_precision(value); break;
	case OPTIMIZER: o->optimizer = parse_optimizer(value); break;
	case OFFLOAD_OPTIMIZER: o->at_optimizer = parse_place("offload-optimizer", value); break;
	case OFFLOAD_PARAM: o->at_param = parse_place("offload-param", value); break;
	case PARAMETERS: o->parameters = parse_parameters(value); break;
	case DEVICE_MEMORY: o->device_memory = parse_bytes("device-memory", value); break;
	case HOST_MEMORY: o->host_memory = parse_bytes("host-memory", value); break;
	case BANDWIDTH: parse_bandwidths(value, &o->bandwidths); break;
	case SCHEDULE:
		o->schedule = tool_parse_schedule("zeroplan", value);
		o->scheduled = true;
		break;
	case SEQUENCE: o->sequence = true; break;
	case RECOMPUTE:
		o->recompute = tool_parse_recompute("zeroplan", value);
		o->activations = true;
		break;
	case ACTIVATIONS: o->activations = true; break;
	case MEASURE: o->measure = true; break;
	case ALL: o->all = true; break;
	case JSON: o->json = true; break;
	case HELP: fputs(help, stdout); exit(EXIT_GOOD);
	case VERSION: tool_print_version("zeroplan"); break;
	default: fprintf(stderr, "See zeroplan --help.\n"); exit(EXIT_USAGE);
	}
}

/* What a GPT has, and its default. */
static const struct {
	const char *name;
	size_t offset;
	int usual;
} shape[] = {
	{ "layers", offsetof(struct options, layers), 5 },
	{ "dim", offsetof(struct options, dim), 128 },
	{ "heads", offsetof(struct options, heads), 4 },
	{ "context", offsetof(struct options, context), 128 },
	{ "vocab", offsetof(struct options, vocab), 256 },
};

static void complete_shape(struct options *o)
{
	const char *instead = o->tensors ? "tensors" : "parameters";

	if (o->tensors && o->parameters) {
		fprintf(stderr, "zeroplan: --tensors and --parameters: want one of the two\n");
		exit(EXIT_USAGE);
	}
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		int *x = (int *)((char *)o + shape[i].offset);

		if (!o->parameters && !o->tensors) {
			*x = *x ? *x : shape[i].usual;
		} else if (*x && x != &o->dim) {
			fprintf(stderr,
				"zeroplan: --%s %d: cannot be used with --%s, which is not a GPT\n",
				shape[i].name, *x, instead);
			exit(EXIT_USAGE);
		}
	}
	if (o->parameters || o->tensors || o->dim % o->heads == 0)
		return;
	fprintf(stderr,
		"zeroplan: --dim %d must be a multiple of --heads %d: all heads have the same size\n",
		o->dim, o->heads);
	exit(EXIT_USAGE);
}

static void check_options(const struct options *o)
{
	static const char *const why =
		"needs --device-memory: without a device everything is in host memory";
	char text[32];

	snprintf(text, sizeof(text), "%g", o->offload_ratio);
	if (!isnan(o->offload_ratio) && !(o->offload_ratio >= 0 && o->offload_ratio <= 1))
		tool_refuse_option("zeroplan", "offload-ratio", text,
				   "must be a number from 0 to 1");
	if (!o->device_memory && o->at_optimizer == KOLO_ZERO_ON_HOST)
		tool_refuse_option("zeroplan", "offload-optimizer", "cpu", why);
	if (!o->device_memory && o->at_param == KOLO_ZERO_ON_HOST)
		tool_refuse_option("zeroplan", "offload-param", "cpu", why);
	if (!o->device_memory && o->bandwidths.device > 0) {
		fprintf(stderr,
			"zeroplan: --bandwidth device: needs --device-memory: without it there is no device\n");
		exit(EXIT_USAGE);
	}
	if (o->activations && (o->parameters || o->tensors)) {
		fprintf(stderr,
			"zeroplan: options of grids, --recompute and --activations: need a GPT, whose layers are known: leave out --%s\n",
			o->tensors ? "tensors" : "parameters");
		exit(EXIT_USAGE);
	}
}

void parse_options(int argc, char **argv, struct options *o)
{
	struct option longs[NNAMED + NFIELDS + 1] = { 0 };
	int c;

	*o = (struct options){
		.nranks = 1,
		.batch = 1,
		.tensor = 1,
		.pipe = 1,
		.schedule = KOLO_PIPELINE_1F1B,
		.stage = UNSET,
		.type = (enum kolo_type)UNSET,
		.optimizer = UNSET,
		.at_optimizer = UNSET,
		.at_param = UNSET,
		.offload_ratio = NAN,
	};
	memcpy(longs, named, sizeof(named));
	for (int i = 0; i < NFIELDS; i++)
		longs[NNAMED + i] =
			(struct option){ fields[i].option, required_argument, NULL, FIELD + i };
	while ((c = getopt_long(argc, argv, "n:", longs, NULL)) >= 0) {
		if (c >= FIELD)
			tool_parse_field("zeroplan", &fields[c - FIELD], optarg, o);
		else
			take_option(c, optarg, o);
	}
	if (optind < argc) {
		fprintf(stderr, "zeroplan: %s: not an option. See zeroplan --help.\n",
			argv[optind]);
		exit(EXIT_USAGE);
	}
	if (o->tensor > 1 || o->pipe > 1 || o->micros || o->scheduled || o->sequence || o->chunks)
		o->activations = true;
	complete_shape(o);
	check_options(o);
}
