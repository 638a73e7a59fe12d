/* The command line of zeroplan. */
#include "zeroplan.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
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

static void list_options(FILE *out)
{
	fprintf(out,
		"The model:\n"
		"  --layers L            blocks of a GPT, which has zerotrain's tensors (5)\n"
		"  --dim D               elements in a hidden state, a multiple of the heads (128)\n"
		"  --heads H             (4)\n"
		"  --context C           tokens that it looks back to (128)\n"
		"  --vocab V             tokens that there are (256)\n"
		"  --parameters N        not a GPT but equal square layers, at least 12 and at most 8192 wide, and a\n"
		"                        vector of what is left; like 125M or 1.5B. Beside it --dim is only what\n"
		"                        sizes are made from that --config leaves to \"auto\"\n"
		"\n"
		"The run:\n"
		"  -n N                  ranks (1)\n"
		"  --stage 0|1|2|3|all   of ZeRO (all, or what --config says)\n"
		"  --precision fp32|fp16|bf16\n"
		"                        of parameters and gradients (fp32, or what --config says)\n"
		"  --batch B             samples of a rank and micro-step; of use only where --config has a batch for\n"
		"                        all and leaves that to \"auto\" (1)\n"
		"  --accumulation A      micro-steps for each update (1, or what --config says)\n"
		"  --optimizer NAME      adamw, adam, sgd, lion, adagrad or lamb (adamw, or what --config says;\n"
		"                        sgd has no momentum but in a config)\n"
		"  --offload-optimizer none|cpu|nvme\n"
		"                        where masters and moments are, at stages 1 to 3 (none, or what --config\n"
		"                        says); cpu, here and below, with --device-memory\n"
		"  --offload-param none|cpu|nvme\n"
		"                        where shards are, at stage 3 (none, or what --config says)\n"
		"  --offload-ratio X     the share of the optimizer's state that is there, from 0 to 1 (1, or what\n"
		"                        --config says)\n"
		"  --nvme-path DIR       where files are, with nvme (/tmp, or what --config says)\n"
		"  --config DS.json      settings of the engine from a DeepSpeed config\n"
		"\n"
		"The machine:\n"
		"  --device-memory SIZE  of each rank's device, which the model computes in, like 80G; without it\n"
		"                        that is the host's memory. K, M, G and T of sizes are 2^10, 2^20, ...\n"
		"  --host-memory SIZE    of each rank (all that this machine has: divide it where ranks share it)\n"
		"  --bandwidth NAME=X,...\n"
		"                        bytes a second, like 25e9 or 25G (10^9), of what one rank has while others\n"
		"                        work too: ring (sends to its next), copy (between device and host, each\n"
		"                        way), memory (of the optimizer's pass, all threads), device (the same in\n"
		"                        the device's memory), disk (files); and of another kind: compute (seconds\n"
		"                        of the model's work in an update), cores (that a rank has for messages\n"
		"                        and copies; without it others, like a NIC, do these)\n"
		"  --measure             measure here what --bandwidth does not say, but device and compute; at\n"
		"                        most 64 ranks\n"
		"\n");
}

static void usage(FILE *out)
{
	fprintf(out,
		"usage: zeroplan [OPTIONS]\n"
		"\n"
		"Says what a training run with Kolo's ZeRO engine needs before it is started: bytes of a rank by\n"
		"kind and place, bytes that it sends, copies, reads and writes for an update, and how long an\n"
		"update takes; then which settings fit, the fastest first. Nothing of that size is allocated.\n"
		"\n");
	list_options(out);
	fprintf(out,
		"What is shown:\n"
		"  --all                 settings that do not fit too, with the reason\n"
		"  --json                one object for programs\n"
		"  --plot FILE           bytes by kind and place, as .svg or .png (gnuplot)\n"
		"  --help, --version\n"
		"\n"
		"Exit status:\n"
		"  0      it fits; of --stage all one of the stages\n"
		"  1      it does not; what is missing and what would help is told\n"
		"  2      a mistake on the command line or in the config\n"
		"  3      a failure, with the reason on standard error\n"
		"\n"
		"Examples:\n"
		"  zeroplan -n 8 --parameters 7B --precision bf16 --device-memory 24G --host-memory 64G\n"
		"             which stages and offloads train seven billion parameters on eight devices\n"
		"  zeroplan -n 2 --measure --stage 2 --offload-optimizer nvme --nvme-path /var/tmp\n"
		"             zerotrain's own model here, with its optimizer in files\n");
}

/* ---- Values --------------------------------------------------------------------------------------------- */

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
	tool_refuse_option("zeroplan", option, value, "none, cpu or nvme");
}

static enum kolo_type parse_precision(const char *value)
{
	static const char *const names[] = { "fp32", "fp16", "bf16" };
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };

	for (int i = 0; i < 3; i++)
		if (strcmp(value, names[i]) == 0)
			return types[i];
	tool_refuse_option("zeroplan", "precision", value, "fp32, fp16 or bf16");
}

static int parse_optimizer(const char *value)
{
	const char *name;

	for (int i = 0; (name = kolo_zero_optimizer_name((enum kolo_zero_optimizer)i)); i++)
		if (strcasecmp(value, name) == 0)
			return i;
	tool_refuse_option("zeroplan", "optimizer", value, "adamw, adam, sgd, lion, adagrad or lamb");
}

static int parse_stage(const char *value)
{
	return strcmp(value, "all") == 0 ? ALL_STAGES
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
				   "a number from 1 to 10T, like 125M or 1.5B");
	return (size_t)llround(x);
}

static size_t parse_bytes(const char *option, const char *value)
{
	size_t bytes;
	const char *end = tool_read_bytes(value, &bytes);

	if (!end || *end)
		tool_refuse_option("zeroplan", option, value, "a number of bytes, like 8, 64K, 1G or 2T");
	return bytes;
}

/* "ring=25e9,copy=12G" */
static void parse_bandwidths(const char *value, struct bandwidths *out)
{
	static const char want[] =
		"NAME=NUMBER,... with the names ring, copy, memory, device, disk, compute, cores";
	char text[512], *rest = text, *part;

	if ((size_t)snprintf(text, sizeof(text), "%s", value) >= sizeof(text))
		tool_refuse_option("zeroplan", "bandwidth", value, "something shorter");
	while ((part = strsep(&rest, ","))) {
		char *equals = strchr(part, '=');
		double *at = NULL, x = equals ? parse_decimal(equals + 1, "KMGT") : NAN;

		if (equals)
			*equals = 0;
		for (int i = 0; i < NBANDWIDTHS; i++)
			if (strcmp(part, bandwidth_names[i].name) == 0)
				at = bandwidth_at(out, i);
		if (!at || isnan(x))
			tool_refuse_option("zeroplan", "bandwidth", value, want);
		*at = x;
	}
}

/* ---- All of it ------------------------------------------------------------------------------------------ */

static const struct tool_option fields[] = {
	{ "config", IN_TEXT, offsetof(struct options, config), 0, 0 },
	{ "plot", IN_TEXT, offsetof(struct options, plot), 0, 0 },
	{ "nvme-path", IN_TEXT, offsetof(struct options, nvme_path), 0, 0 },
	{ "layers", IN_INT, offsetof(struct options, layers), 1, 10000 },
	{ "dim", IN_INT, offsetof(struct options, dim), 1, 1 << 20 },
	{ "heads", IN_INT, offsetof(struct options, heads), 1, 1 << 20 },
	{ "context", IN_INT, offsetof(struct options, context), 1, 1 << 24 },
	{ "vocab", IN_INT, offsetof(struct options, vocab), 1, 1 << 28 },
	{ "batch", IN_INT, offsetof(struct options, batch), 1, INT_MAX },
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
	case MEASURE: o->measure = true; break;
	case ALL: o->all = true; break;
	case JSON: o->json = true; break;
	case HELP: usage(stdout); exit(EXIT_GOOD);
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
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		int *x = (int *)((char *)o + shape[i].offset);

		if (!o->parameters) {
			*x = *x ? *x : shape[i].usual;
		} else if (*x && x != &o->dim) {
			fprintf(stderr,
				"zeroplan: --%s %d: want no --parameters beside it, which is not a GPT\n",
				shape[i].name, *x);
			exit(EXIT_USAGE);
		}
	}
	if (o->parameters || o->dim % o->heads == 0)
		return;
	fprintf(stderr, "zeroplan: --dim %d is no multiple of --heads %d: each head has as many elements\n",
		o->dim, o->heads);
	exit(EXIT_USAGE);
}

static void check_options(const struct options *o)
{
	static const char *const want =
		"--device-memory beside it: without a device everything is in host memory";
	char text[32];

	snprintf(text, sizeof(text), "%g", o->offload_ratio);
	if (!isnan(o->offload_ratio) && !(o->offload_ratio >= 0 && o->offload_ratio <= 1))
		tool_refuse_option("zeroplan", "offload-ratio", text, "a number from 0 to 1");
	if (!o->device_memory && o->at_optimizer == KOLO_ZERO_ON_HOST)
		tool_refuse_option("zeroplan", "offload-optimizer", "cpu", want);
	if (!o->device_memory && o->at_param == KOLO_ZERO_ON_HOST)
		tool_refuse_option("zeroplan", "offload-param", "cpu", want);
	if (!o->device_memory && o->bandwidths.device > 0) {
		fprintf(stderr,
			"zeroplan: --bandwidth device: want --device-memory too: without it there is no device\n");
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
		.stage = UNSET,
		.type = (enum kolo_type)UNSET,
		.optimizer = UNSET,
		.at_optimizer = UNSET,
		.at_param = UNSET,
		.offload_ratio = NAN,
	};
	memcpy(longs, named, sizeof(named));
	for (int i = 0; i < NFIELDS; i++)
		longs[NNAMED + i] = (struct option){ fields[i].option, required_argument, NULL, FIELD + i };
	while ((c = getopt_long(argc, argv, "n:", longs, NULL)) >= 0) {
		if (c >= FIELD)
			tool_parse_field("zeroplan", &fields[c - FIELD], optarg, o);
		else
			take_option(c, optarg, o);
	}
	if (optind < argc) {
		fprintf(stderr, "zeroplan: %s: want options only\n", argv[optind]);
		exit(EXIT_USAGE);
	}
	complete_shape(o);
	check_options(o);
}
