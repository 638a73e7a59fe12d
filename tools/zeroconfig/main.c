/* zeroconfig: reads a DeepSpeed config and prints every key with its value. Remarks go to standard
 * error. */
#include "kolo/kolo_zero_config.h"
#include "tools/common/tool.h"

#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: zeroconfig [OPTIONS] FILE\n"
	"\n"
	"Reads a DeepSpeed config and prints what Kolo's engine makes of it. The output is a config too: each\n"
	"\"auto\" is replaced by its value, and every key that has an effect has its value. Standard error gets\n"
	"remarks on keys that need no action and on keys that do something unexpected.\n"
	"\n"
	"What the program would say:\n"
	"  -n, --nranks N        The number of ranks. Default: 1.\n"
	"  --hidden N            Elements in a hidden state. Sizes of buckets follow from it.\n"
	"  --micro-batch N       Samples of a rank in a micro-step.\n"
	"  --accumulation N      Micro-steps for each update.\n"
	"  --train-batch N       Samples of all ranks in an update.\n"
	"  --lr X                The learning rate. Default: 0.001.\n"
	"  --beta1 X, --beta2 X  Decay rates of Adam, Lion and Lamb. Default: 0.9, 0.999.\n"
	"  --eps X               The epsilon of Adam, Adagrad and Lamb. Default: 1e-8.\n"
	"  --weight-decay X      The weight decay. Default: 0.01.\n"
	"  --clip X              The largest norm of the gradient. Default: 1.\n"
	"  --warmup-steps N      Warm-up steps of a schedule. Default: 0.\n"
	"  --total-steps N       All steps of a schedule.\n"
	"  --type f32|f16|bf16   The type of the tensors. Default: f32.\n"
	"  --groups N            Groups of tensors, each with its own hyper-parameters. Default: 1.\n"
	"  --device              The tensors are on a device, and offload_optimizer and offload_param move\n"
	"                        state away from it. Without this option they are in host memory.\n"
	"\n"
	"Each \"auto\" in the config stands for the value of the option here.\n"
	"\n"
	"Other options:\n"
	"  -o, --output FILE     Write to this file instead of standard output.\n"
	"  --help                Print this text.\n"
	"  --version             Print the version.\n"
	"\n"
	"Exit status:\n"
	"  0      The config is good.\n"
	"  1      The config is wrong. Standard error has the line, the key and the mistake.\n"
	"  2      The command line has a mistake.\n"
	"  3      Something failed. Standard error has the reason.\n"
	"\n"
	"Examples:\n"
	"  zeroconfig -n 8 --micro-batch 4 --type bf16 ds_config.json\n"
	"         Reads the config of a Hugging Face trainer, for eight ranks.\n";

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
	fprintf(stderr, "zeroconfig: --type %s: must be f32, f16 or bf16\n", value);
	exit(EXIT_USAGE);
}

/* The name of the file to write, NULL: none. */
static const char *parse_options(int argc, char **argv, struct kolo_zero_model *m)
{
	/* They have no letter; the fields follow. */
	enum { TYPE = 256, DEVICE, HELP, VERSION, FIELD };
	struct option longs[NFIELDS + 6] = {
		{ "type", required_argument, NULL, TYPE },
		{ "output", required_argument, NULL, 'o' },
		{ "device", no_argument, NULL, DEVICE },
		{ "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
	};
	const char *output = NULL;
	int c;

	for (int i = 0; i < NFIELDS; i++)
		longs[5 + i] =
			(struct option){ fields[i].option, required_argument, NULL, FIELD + i };
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
		case HELP: fputs(help, stdout); exit(EXIT_GOOD);
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
		fprintf(stderr, "zeroconfig: name one FILE. See zeroconfig --help.\n");
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
