/* zeroconfig: what a config in DeepSpeed's format comes to: every key with its value on standard output, remarks on standard
 * error. */
#include "kolo/kolo_zero_config.h"
#include "tool.h"

#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(FILE *out)
{
	fprintf(out,
		"usage: zeroconfig [OPTIONS] FILE\n"
		"\n"
		"Reads a DeepSpeed config and prints what Kolo's engine makes of it: a config in which \"auto\" is\n"
		"resolved and every key that has an effect has its value. Remarks, on keys that need nothing done or\n"
		"do something else than one may expect, go to standard error.\n"
		"\n"
		"What the program would say, and \"auto\" stands for:\n"
		"  -n, --nranks N        number of ranks (1)\n"
		"  --hidden N            elements in a hidden state, from which sizes of buckets follow\n"
		"  --micro-batch N       samples of a micro-step on a rank\n"
		"  --accumulation N      micro-steps for each update\n"
		"  --train-batch N       samples of an update on all ranks\n"
		"  --lr X                learning rate (0.001)\n"
		"  --beta1 X, --beta2 X  of Adam, Lion and Lamb (0.9, 0.999)\n"
		"  --eps X               of Adam, Adagrad and Lamb (1e-8)\n"
		"  --weight-decay X      (0.01)\n"
		"  --clip X              the largest norm of the gradient (1)\n"
		"  --warmup-steps N      of a schedule (0)\n"
		"  --total-steps N       of a schedule\n"
		"  --type f32|f16|bf16   of the tensors (f32)\n"
		"  --groups N            groups of tensors with hyper-parameters of their own (1)\n"
		"  --device              its tensors are on a device, which offload_optimizer and offload_param\n"
		"                        leave; without it they are in host memory\n"
		"\n"
		"Other options:\n"
		"  -o, --output FILE     write there instead\n"
		"  --help, --version\n"
		"\n"
		"Exit status:\n"
		"  0      the config is good\n"
		"  1      it is not; standard error has the line, the key, and what is wrong with it\n"
		"  2      a mistake on the command line\n"
		"  3      a failure, with the reason on standard error\n"
		"\n"
		"Examples:\n"
		"  zeroconfig -n 8 --micro-batch 4 --type bf16 ds_config.json\n"
		"             a config of a Hugging Face trainer, for eight ranks\n");
}

/* The options that set a number of the model description. */
static const struct tool_option fields[] = {
	{ "nranks", IN_INT, offsetof(struct kolo_zero_model, nranks), 1, MAX_RANKS },
	{ "hidden", IN_SIZE, offsetof(struct kolo_zero_model, hidden), 1, LONG_MAX },
	{ "micro-batch", IN_SIZE, offsetof(struct kolo_zero_model, micro_batch), 1, LONG_MAX },
	{ "accumulation", IN_INT, offsetof(struct kolo_zero_model, accumulation), 1, INT_MAX },
	{ "train-batch", IN_SIZE, offsetof(struct kolo_zero_model, train_batch), 1, LONG_MAX },
	{ "lr", IN_DOUBLE, offsetof(struct kolo_zero_model, lr), 0, 0 },
	{ "beta1", IN_DOUBLE, offsetof(struct kolo_zero_model, beta1), 0, 0 },
	{ "beta2", IN_DOUBLE, offsetof(struct kolo_zero_model, beta2), 0, 0 },
	{ "eps", IN_DOUBLE, offsetof(struct kolo_zero_model, eps), 0, 0 },
	{ "weight-decay", IN_DOUBLE, offsetof(struct kolo_zero_model, weight_decay), 0, 0 },
	{ "clip", IN_DOUBLE, offsetof(struct kolo_zero_model, clip), 0, 0 },
	{ "warmup-steps", IN_LONG, offsetof(struct kolo_zero_model, warmup_steps), 0, LONG_MAX },
	{ "total-steps", IN_LONG, offsetof(struct kolo_zero_model, total_steps), 1, LONG_MAX },
	{ "groups", IN_INT, offsetof(struct kolo_zero_model, ngroups), 1, 1 << 20 },
};
enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

static enum kolo_type parse_type(const char *value)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(value, kolo_type_name(types[i])) == 0)
			return types[i];
	fprintf(stderr, "zeroconfig: --type %s: want f32, f16 or bf16\n", value);
	exit(EXIT_USAGE);
}

/* The name of the file to write, NULL: none. */
static const char *parse_options(int argc, char **argv, struct kolo_zero_model *m)
{
	/* They have no letter; the fields follow. */
	enum { TYPE = 256, DEVICE, HELP, VERSION, FIELD };
	struct option longs[NFIELDS + 6] = {
		{ "type", required_argument, NULL, TYPE }, { "output", required_argument, NULL, 'o' },
		{ "device", no_argument, NULL, DEVICE },   { "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
	};
	const char *output = NULL;
	int c;

	for (int i = 0; i < NFIELDS; i++)
		longs[5 + i] = (struct option){ fields[i].option, required_argument, NULL, FIELD + i };
	while ((c = getopt_long(argc, argv, "n:o:", longs, NULL)) >= 0) {
		if (c >= FIELD) {
			tool_parse_field("zeroconfig", &fields[c - FIELD], optarg, m);
			continue;
		}
		switch (c) {
		case 'n': tool_parse_field("zeroconfig", &fields[0], optarg, m); break;
		case 'o': output = optarg; break;
		case TYPE: m->type = parse_type(optarg); break;
		case DEVICE: m->device = 1; break;
		case HELP: usage(stdout); exit(EXIT_GOOD);
		case VERSION: tool_print_version("zeroconfig"); break;
		default: fprintf(stderr, "See zeroconfig --help.\n"); exit(EXIT_USAGE);
		}
	}
	return output;
}

static int tell_failure(int status)
{
	fprintf(stderr, "zeroconfig: %s\n", kolo_last_error());
	return status == KOLO_EINVAL ? EXIT_WRONG : EXIT_FAILED;
}

static int put_text(const struct kolo_zero_settings *settings, const char *output)
{
	int rc = output ? kolo_zero_settings_write(settings, output) : 0;

	if (rc < 0)
		return tell_failure(rc);
	if (!output)
		fputs(kolo_zero_settings_text(settings), stdout);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "zeroconfig: the output could not be written: is the disk full?\n");
		return EXIT_FAILED;
	}
	return EXIT_GOOD;
}

int main(int argc, char **argv)
{
	struct kolo_zero_settings *settings;
	struct kolo_zero_model model;
	const char *output, *note;
	int rc;

	kolo_zero_model_init(&model);
	output = parse_options(argc, argv, &model);
	if (optind + 1 != argc) {
		fprintf(stderr, "zeroconfig: want one FILE. See zeroconfig --help.\n");
		return EXIT_USAGE;
	}
	if ((rc = kolo_zero_settings_read(argv[optind], &model, &settings)) < 0)
		return tell_failure(rc);
	for (int i = 0; (note = kolo_zero_settings_note(settings, i)); i++)
		fprintf(stderr, "zeroconfig: %s\n", note);
	rc = put_text(settings, output);
	kolo_zero_settings_destroy(settings);
	return rc;
}
