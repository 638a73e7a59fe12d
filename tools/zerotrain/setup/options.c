/* zerotrain's command line: its help, its options, and which of them go together. */
#include "tools/zerotrain/setup/options.h"
#include "kolo/kolo_zero.h"
#include "tools/common/grid.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/data/data.h"
#include "tools/zerotrain/math/kernels.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: ringrun -n N zerotrain --data FILE [OPTIONS]\n"
	"       zerotrain [-n N] --data FILE [OPTIONS]\n"
	"\n"
	"Trains a small GPT or Llama on a text with Kolo's ZeRO engine, then generates text with it.\n"
	"Without a launcher it starts itself through ringrun.\n"
	"\n"
	"It prints `step N loss X` during training. It also prints the loss of the last tenth of the text,\n"
	"which is not trained on. At the end it prints what --sample, --report and --plot ask for. A loss is\n"
	"in nats for each token: ln V, 5.55 of bytes, means that the model knows nothing. For the same number of ranks, losses\n"
	"are the same at every stage, with and without overlap, recomputing and offload. For the same number\n"
	"of replicas and the same --micro, given, they are the same for every --pp and --schedule, and with\n"
	"--exact for every --tp. A rank in an error text may be counted within its group: its pid tells which it\n"
	"is.\n"
	"\n"
	"The model:\n"
	"  --layers L            The number of blocks. Default: 5.\n"
	"  --dim D               Elements in a hidden state, a multiple of the number of heads. Default: 128.\n"
	"  --heads H             The number of attention heads. Default: 4.\n"
	"  --context C           The number of tokens that the model looks back to. Default: 128.\n"
	"  --model gpt2|llama    The kind. A Llama has turned queries and keys instead of learned places,\n"
	"                        RMSNorm, SwiGLU and no biases. Default: gpt2.\n"
	"  --ffn F               Columns inside the MLP. Default: 4 D; of a Llama 8/3 D, up to a multiple of 32.\n"
	"  --kv-heads K          Of a Llama: heads of keys and values, a divisor of H. Default: H.\n"
	"  --untied              Of a Llama: the head is a tensor of its own. Default: it is the embedding.\n"
	"  --norm-eps X          What normalization adds to the variance. Default: 1e-5.\n"
	"  --rope-theta X        Of a Llama: the base of turns. Default: 10000.\n"
	"  --dropout X           The share of activations that training drops. Default: 0.\n"
	"\n"
	"  --import DIR          Begin with a GPT-2 or a Llama in DIR, as transformers saves it: config.json and\n"
	"                        model.safetensors. They have the options above, and the number of tokens;\n"
	"                        --context may be less. Models of other tokens than bytes need --bpe or --tokens.\n"
	"  --export DIR          Write the model to DIR so that transformers loads it, at the end.\n"
	"\n"
	"Training:\n"
	"  --data FILE           The text: its bytes are the tokens.\n"
	"                        If its name ends in .jsonl, each line is a document: {\"text\": T}, or\n"
	"                        {\"prompt\": P, \"completion\": C}, of which the loss counts the completion.\n"
	"  --tokens              The file has tokens of 16 bits, the low byte first. Texts are then numbers.\n"
	"  --bpe DIR             Tokens are those of byte-pair encoding by DIR's vocab.json and merges.txt, with\n"
	"                        GPT-2's pattern of words. Data and texts are UTF-8.\n"
	"  --vocab V             With --tokens or --bpe: the tokens are those below V, 65536 at most. Default with\n"
	"                        --bpe: as many as vocab.json has.\n"
	"  --documents packed|padded\n"
	"                        The data is documents, which do not see each other: as many in a context as fit,\n"
	"                        or one. Places begin anew in each. Default for .jsonl: packed; else one stream.\n"
	"  --end-token N         What ends a document, and a text. Default: 0, or with --bpe <|endoftext|>.\n"
	"  --config DS.json      Read the engine's settings from this DeepSpeed config. If it has a value,\n"
	"                        that value is the default of --batch, --lr, --stage, --overlap,\n"
	"                        --precision, --tp, --pp, --micro, --offload-optimizer, --offload-param,\n"
	"                        --offload-ratio and --nvme-path.\n"
	"  --steps N             The number of updates, with those before a restart. 0: only a validation.\n"
	"                        Default: 500.\n"
	"  --batch B             Sequences of a rank in a micro-step. Default: 8.\n"
	"  --lr X                The learning rate. Default: 0.002. Without --config this is its maximum: it\n"
	"                        rises during a warm-up, then falls as a cosine to a tenth.\n"
	"  --seed K              The seed of weights, order of the text, and dropout. Default: 1.\n"
	"  --stage 0|1|2|3       The ZeRO stage. Default: 0.\n"
	"  --overlap on|off      Communicate while the model computes. Default: on.\n"
	"  --precision fp32|fp16|bf16\n"
	"                        The type of parameters and gradients. Default: fp32.\n"
	"  --products openblas|onednn\n"
	"                        Who computes products of matrices. Default: onednn on Intel processors with\n"
	"                        AVX-512, if zerotrain was built with it; else openblas.\n"
	"  --recompute none|block|N\n"
	"                        Keep the activations of all blocks, of one block, or of N blocks. The\n"
	"                        backward pass computes the others again. Default: none.\n"
	"\n"
	"Several ranks for one replica:\n"
	"  --tp T                Divide each layer over T ranks (tensor parallelism), on one host. Default: 1.\n"
	"  --sequence-parallel   With --tp: also divide the rows between layers.\n"
	"  --context-parallel R  Divide each sequence over R ranks, which have the same weights. A rank then has 1/R\n"
	"                        of the activations. 1: keep no square of attention. 2 R must divide C, and R the ranks\n"
	"                        that have the same weights. Not with --exact, documents and --cache off. Default:\n"
	"                        sequences are whole.\n"
	"  --context-by ring|ulysses\n"
	"                        With --context-parallel: keys and values go round these ranks, or each gets all\n"
	"                        places of some heads. Default: ring.\n"
	"  --pp P                Divide the blocks over P pipeline stages. Default: 1.\n"
	"  --micro M             The micro-batches of B sequences in an update; a pipeline has them under way\n"
	"                        at a time. Default: 1, or gradient_accumulation_steps of --config.\n"
	"  --schedule gpipe|1f1b|interleaved|zb-h1\n"
	"                        The order of forward and backward passes in a pipeline. Default: 1f1b.\n"
	"  --chunks V            With --schedule interleaved: the parts of the model in a stage. Default: 2.\n"
	"  --exact               Compute layers in segments, so that losses are the same for every --tp.\n"
	"\n"
	"Memory:\n"
	"  --device arena:SIZE[,BANDWIDTH]\n"
	"                        Keep the engine's and the model's memory in SIZE bytes of host memory that\n"
	"                        stand for a device's, like 256M. BANDWIDTH limits copies from and to it, in\n"
	"                        bytes per second, like 2G.\n"
	"  --device cuda[:N]     Keep the engine's memory on GPU number N. Default: 0. This GPT has no\n"
	"                        kernels for GPUs: the host computes it, on copies of what is on the GPU.\n"
	"  --offload-optimizer none|cpu|nvme\n"
	"                        Move the optimizer's state from the device to host memory (cpu) or to files\n"
	"                        (nvme). This needs stage 1, 2 or 3. Default: none.\n"
	"  --offload-param none|cpu|nvme\n"
	"                        Move a rank's parameter shards from the device to host memory (cpu) or to\n"
	"                        files (nvme). This needs stage 3. Default: none.\n"
	"  --nvme-path DIR       The folder of these files. nvme needs it, unless the config has it.\n"
	"  --offload-ratio X     The share of the optimizer's state that is offloaded, from 0 to 1.\n"
	"                        Default: 1.\n"
	"  --threads N           The number of threads that update state in host memory. Default: the number\n"
	"                        of cores that a rank has to itself, or 1.\n"
	"\n"
	"Checkpoints:\n"
	"  --save DIR            Write checkpoints to this folder. The last two of them are kept.\n"
	"  --save-every N        Updates between two checkpoints. The last update has one too. Default: 100.\n"
	"  --resume DIR          Continue from the newest checkpoint in DIR, with the same options.\n"
	"\n"
	"Texts:\n"
	"  --sample N            Generate N tokens of text at the end. When the context is full, its last half\n"
	"                        begins a new one.\n"
	"  --sample-every N      Also after each N updates. Default: 0, not.\n"
	"  --samples N           Texts that grow side by side. Default: 1.\n"
	"  --prompt TEXT         What they begin with. Default: the first token of the data, which is not printed.\n"
	"  --temperature X       0: take the likeliest token. Below 1 likely ones become likelier. Default: 0.8.\n"
	"  --top-k K             Draw from the K likeliest tokens. Default: 0, from all.\n"
	"  --top-p P             Draw from the fewest likely tokens that have a share of P. Default: 1.\n"
	"  --sample-seed K       The seed of what is drawn. Default: that of --seed.\n"
	"  --cache on|off        Keep keys and values, so that each place is computed once. Default: on.\n"
	"\n"
	"Output:\n"
	"  --print N             Updates between two lines. Default: 10.\n"
	"  --validate N          Updates between two validations. 0: only at the end. Default: 100.\n"
	"  --report              Print memory, traffic and time at the end.\n"
	"  --plot FILE           Draw losses over steps as .svg or .png. This needs the program gnuplot.\n"
	"  --log FILE            Write a row for each update, as .csv or .jsonl.\n"
	"  --timeline FILE       Write when each rank computed what in the last update, as .json for the trace\n"
	"                        viewers of browsers. This needs --micro, --schedule or --pp.\n"
	"\n"
	"Other options:\n"
	"  -n N                  The number of ranks to start without a launcher. Default: 1.\n"
	"  --help                Print this text.\n"
	"  --version             Print the version.\n"
	"\n"
	"Exit status:\n"
	"  0      Success.\n"
	"  1      The text, the config or the checkpoint cannot be used. Standard error has the reason.\n"
	"  2      The command line has a mistake.\n"
	"  3      Something failed. Standard error has the reason.\n"
	"\n"
	"Examples:\n"
	"  ringrun -n 2 zerotrain --data /usr/share/common-licenses/GPL-3 --sample 400\n"
	"         Trains on a license, and generates 400 bytes of a new one.\n"
	"  zerotrain --data TEXT --stage 3 --device arena:128M,2G --offload-optimizer cpu --report\n"
	"         Trains on a device of 128 MiB, with the optimizer's state in host memory at 2 GiB/s.\n";

/* The options that take an integer, a text or a real number. */
static const struct tool_option fields[] = {
	{ "data", IN_TEXT, offsetof(struct options, data), 0, 0 },
	{ "config", IN_TEXT, offsetof(struct options, config), 0, 0 },
	{ "save", IN_TEXT, offsetof(struct options, save), 0, 0 },
	{ "resume", IN_TEXT, offsetof(struct options, resume), 0, 0 },
	{ "plot", IN_TEXT, offsetof(struct options, plot), 0, 0 },
	{ "log", IN_TEXT, offsetof(struct options, log), 0, 0 },
	{ "import", IN_TEXT, offsetof(struct options, import), 0, 0 },
	{ "bpe", IN_TEXT, offsetof(struct options, bpe), 0, 0 },
	{ "end-token", IN_INT, offsetof(struct options, end_token), 0, (1 << 16) - 1 },
	{ "export", IN_TEXT, offsetof(struct options, export), 0, 0 },
	{ "timeline", IN_TEXT, offsetof(struct options, timeline), 0, 0 },
	{ "tp", IN_INT, offsetof(struct options, tensor), 1, MAX_RANKS },
	{ "context-parallel", IN_INT, offsetof(struct options, spread_ranks), 1, MAX_RANKS },
	{ "pp", IN_INT, offsetof(struct options, pipe), 1, MAX_RANKS },
	{ "micro", IN_INT, offsetof(struct options, micros), 1, 1 << 12 },
	{ "chunks", IN_INT, offsetof(struct options, chunks), 1, 1000 },
	{ "ffn", IN_INT, offsetof(struct options, model.inner), 1, 1 << 16 },
	{ "kv-heads", IN_INT, offsetof(struct options, model.kv_heads), 1, 1 << 14 },
	{ "norm-eps", IN_DOUBLE, offsetof(struct options, model.eps), 0, 0 },
	{ "rope-theta", IN_DOUBLE, offsetof(struct options, model.theta), 0, 0 },
	{ "layers", IN_INT, offsetof(struct options, model.layers), 1, 1000 },
	{ "dim", IN_INT, offsetof(struct options, model.dim), 1, 1 << 14 },
	{ "vocab", IN_INT, offsetof(struct options, model.values), 2, 1 << 16 },
	{ "heads", IN_INT, offsetof(struct options, model.heads), 1, 1 << 14 },
	{ "context", IN_INT, offsetof(struct options, model.context), 1, 1 << 16 },
	{ "batch", IN_INT, offsetof(struct options, batch), 1, 1 << 16 },
	{ "stage", IN_INT, offsetof(struct options, stage), 0, 3 },
	{ "sample", IN_INT, offsetof(struct options, sample), 0, INT_MAX / 2 },
	{ "samples", IN_INT, offsetof(struct options, samples), 1, 1 << 12 },
	{ "sample-every", IN_LONG, offsetof(struct options, sample_every), 0, LONG_MAX },
	{ "sample-seed", IN_LONG, offsetof(struct options, sample_seed), 0, LONG_MAX },
	{ "prompt", IN_TEXT, offsetof(struct options, prompt), 0, 0 },
	{ "temperature", IN_DOUBLE, offsetof(struct options, temperature), 0, 0 },
	{ "top-k", IN_INT, offsetof(struct options, top_k), 0, INT_MAX },
	{ "top-p", IN_DOUBLE, offsetof(struct options, top_p), 0, 0 },
	{ "steps", IN_LONG, offsetof(struct options, steps), 0, 1L << 40 },
	{ "print", IN_LONG, offsetof(struct options, print), 1, LONG_MAX },
	{ "validate", IN_LONG, offsetof(struct options, validate), 0, LONG_MAX },
	{ "save-every", IN_LONG, offsetof(struct options, keep), 1, LONG_MAX },
	{ "seed", IN_LONG, offsetof(struct options, seed), 0, LONG_MAX },
	{ "lr", IN_DOUBLE, offsetof(struct options, lr), 0, 0 },
	{ "dropout", IN_DOUBLE, offsetof(struct options, dropout), 0, 0 },
	{ "nvme-path", IN_TEXT, offsetof(struct options, nvme_path), 0, 0 },
	{ "offload-ratio", IN_DOUBLE, offsetof(struct options, offload_ratio), 0, 0 },
	{ "threads", IN_INT, offsetof(struct options, threads), 1, 1 << 12 },
};
enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

static enum kolo_type parse_precision(const char *value)
{
	static const struct {
		const char *name;
		enum kolo_type type;
	} types[] = { { "fp32", KOLO_F32 }, { "fp16", KOLO_F16 }, { "bf16", KOLO_BF16 } };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(value, types[i].name) == 0)
			return types[i].type;
	tool_refuse_option("zerotrain", "precision", value, "must be fp32, fp16 or bf16");
}

static enum products parse_products(const char *value)
{
	if (strcmp(value, "openblas") == 0)
		return OPENBLAS;
	if (strcmp(value, "onednn") != 0)
		tool_refuse_option("zerotrain", "products", value, "must be openblas or onednn");
	if (!has_onednn())
		tool_refuse_option("zerotrain", "products", value,
				   "this zerotrain was built without oneDNN (package libdnnl-dev)");
	return ONEDNN;
}

static enum kind parse_kind(const char *value)
{
	if (strcmp(value, "gpt2") != 0 && strcmp(value, "llama") != 0)
		tool_refuse_option("zerotrain", "model", value, "must be gpt2 or llama");
	return strcmp(value, "llama") == 0 ? LLAMA : GPT2;
}

static enum spread parse_spread(const char *value)
{
	if (strcmp(value, "ring") != 0 && strcmp(value, "ulysses") != 0)
		tool_refuse_option("zerotrain", "context-by", value, "must be ring or ulysses");
	return strcmp(value, "ring") == 0 ? RING : ULYSSES;
}

static enum packing parse_packing(const char *value)
{
	if (strcmp(value, "packed") != 0 && strcmp(value, "padded") != 0)
		tool_refuse_option("zerotrain", "documents", value, "must be packed or padded");
	return strcmp(value, "packed") == 0 ? PACKED : PADDED;
}

static int parse_switch(const char *option, const char *value)
{
	if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
		tool_refuse_option("zerotrain", option, value, "must be on or off");
	return strcmp(value, "on") == 0;
}

static struct device_option parse_device(const char *value)
{
	struct device_option d = { .kind = ARENA };
	const char *end = NULL;
	size_t bandwidth;

	if (strcmp(value, "cuda") == 0)
		return (struct device_option){ .kind = CUDA };
	if (strncmp(value, "cuda:", 5) == 0) {
		d.kind = CUDA;
		d.ordinal = (int)tool_parse_number("zerotrain", "--device cuda:", value + 5, 0,
						   1 << 10);
		return d;
	}
	if (strncmp(value, "arena:", 6) == 0)
		end = tool_read_bytes(value + 6, &d.budget);
	if (end && *end == ',' && (end = tool_read_bytes(end + 1, &bandwidth)))
		d.bandwidth = (double)bandwidth;
	if (!end || *end)
		tool_refuse_option(
			"zerotrain", "device", value,
			"must be arena:SIZE or arena:SIZE,BANDWIDTH, like arena:256M,2G, or cuda, or cuda:N");
	return d;
}

static int parse_place(const char *option, const char *value)
{
	static const char *const names[] = { [KOLO_ZERO_ON_DEVICE] = "none",
					     [KOLO_ZERO_ON_HOST] = "cpu",
					     [KOLO_ZERO_ON_NVME] = "nvme" };

	for (int i = KOLO_ZERO_ON_DEVICE; i <= KOLO_ZERO_ON_NVME; i++)
		if (strcmp(value, names[i]) == 0)
			return i;
	tool_refuse_option("zerotrain", option, value, "must be none, cpu or nvme");
}

/* Without a device there is one place less. */
static void check_places(const struct options *o)
{
	static const char *const why = "needs --device: without one everything is in host memory";
	char text[32];

	if (o->device.kind == HOST_MEMORY && o->offload_optimizer == KOLO_ZERO_ON_HOST)
		tool_refuse_option("zerotrain", "offload-optimizer", "cpu", why);
	if (o->device.kind == HOST_MEMORY && o->offload_param == KOLO_ZERO_ON_HOST)
		tool_refuse_option("zerotrain", "offload-param", "cpu", why);
	snprintf(text, sizeof(text), "%g", o->offload_ratio);
	if (!isnan(o->offload_ratio) && !(o->offload_ratio >= 0 && o->offload_ratio <= 1))
		tool_refuse_option("zerotrain", "offload-ratio", text,
				   "must be a number from 0 to 1");
}

static void check_documents(const struct options *o)
{
	if (o->end_token != UNSET && o->packing == NO_DOCUMENTS)
		fprintf(stderr, "zerotrain: --end-token %d: needs --documents packed|padded\n",
			o->end_token);
	else if (o->packing != NO_DOCUMENTS && o->tokens && !o->bpe && o->end_token == UNSET)
		fprintf(stderr,
			"zerotrain: --documents: needs --end-token N with --tokens: which token ends them\n");
	else if (o->tokens && !o->bpe && data_is_jsonl(o->data))
		fprintf(stderr,
			"zerotrain: --tokens with --data %s: its lines are text: leave --tokens out, or use --bpe\n",
			o->data);
	else if (o->packing != NO_DOCUMENTS && o->end_token >= o->model.values)
		fprintf(stderr, "zerotrain: --end-token %d: must be below --vocab %d\n",
			o->end_token, o->model.values);
	else if (o->packing != NO_DOCUMENTS && o->spread_ranks != UNSET)
		fprintf(stderr,
			"zerotrain: --context-parallel with documents: these are not divided over ranks: leave one of them out\n");
	else
		return;
	exit(EXIT_USAGE);
}

/* What does not go together, whatever the sizes of the grid. */
static void check_grid(const struct options *o)
{
	if (o->chunks != UNSET && o->schedule != KOLO_PIPELINE_INTERLEAVED)
		fprintf(stderr,
			"zerotrain: --chunks %d: needs --schedule interleaved: other schedules have one part in each stage\n",
			o->chunks);
	else if (o->spread != UNSPREAD && o->spread_ranks == UNSET)
		fprintf(stderr, "zerotrain: --context-by: needs --context-parallel R\n");
	else if (o->spread == ULYSSES && o->spread_ranks == 1)
		fprintf(stderr,
			"zerotrain: --context-by ulysses: needs --context-parallel 2 or more: it exchanges heads between ranks\n");
	else if (o->schedule == KOLO_PIPELINE_ZB_H1 && o->recompute &&
		 o->recompute < o->model.layers)
		fprintf(stderr,
			"zerotrain: --schedule zb-h1 with --recompute: its backward pass for weights needs the activations once more: leave one of them out\n");
	else
		return;
	exit(EXIT_USAGE);
}

static void check_texts(const struct options *o)
{
	char text[32];

	snprintf(text, sizeof(text), "%g", o->temperature);
	if (!(o->temperature >= 0 && o->temperature <= 1e6))
		tool_refuse_option("zerotrain", "temperature", text,
				   "must be a number from 0 to 1e6");
	snprintf(text, sizeof(text), "%g", o->top_p);
	if (!(o->top_p > 0 && o->top_p <= 1))
		tool_refuse_option("zerotrain", "top-p", text, "must be a number above 0, up to 1");
	if (o->prompt && !*o->prompt)
		tool_refuse_option("zerotrain", "prompt", "", "must have a token to begin with");
	if (o->sample)
		return;
	if (o->sample_every || o->samples > 1 || o->prompt) {
		fprintf(stderr, "zerotrain: --%s: needs --sample N: without it there is no text\n",
			o->sample_every  ? "sample-every"
			: o->samples > 1 ? "samples"
					 : "prompt");
		exit(EXIT_USAGE);
	}
}

static void check_options(const struct options *o)
{
	char text[32];

	if (!o->data) {
		fprintf(stderr,
			"zerotrain: --data FILE is missing: name a text to train on. See zerotrain --help.\n");
		exit(EXIT_USAGE);
	}
	snprintf(text, sizeof(text), "%g", o->dropout);
	if (!(o->dropout >= 0 && o->dropout < 1))
		tool_refuse_option("zerotrain", "dropout", text,
				   "must be a number from 0 to less than 1");
	snprintf(text, sizeof(text), "%g", o->lr);
	if (!isnan(o->lr) && !(o->lr > 0 && o->lr < 1))
		tool_refuse_option("zerotrain", "lr", text, "must be a number between 0 and 1");
	if (o->import && o->resume) {
		fprintf(stderr,
			"zerotrain: --import with --resume: a checkpoint has all weights: leave one of them out\n");
		exit(EXIT_USAGE);
	}
	check_places(o);
	check_documents(o);
	check_grid(o);
	check_texts(o);
}

/* Long options without a letter; the fields follow. */
enum {
	OVERLAP = 256,
	CACHE,
	PRECISION,
	PRODUCTS,
	RECOMPUTE,
	DEVICE,
	OPTIMIZER,
	PARAM,
	SCHEDULE,
	SEQUENCE,
	CONTEXT_BY,
	DOCUMENTS,
	EXACT,
	TOKENS,
	MODEL,
	UNTIED,
	REPORT,
	HELP,
	VERSION,
	FIELD
};

static const struct option named[] = {
	{ "overlap", required_argument, NULL, OVERLAP },
	{ "cache", required_argument, NULL, CACHE },
	{ "precision", required_argument, NULL, PRECISION },
	{ "products", required_argument, NULL, PRODUCTS },
	{ "recompute", required_argument, NULL, RECOMPUTE },
	{ "device", required_argument, NULL, DEVICE },
	{ "offload-optimizer", required_argument, NULL, OPTIMIZER },
	{ "offload-param", required_argument, NULL, PARAM },
	{ "schedule", required_argument, NULL, SCHEDULE },
	{ "context-by", required_argument, NULL, CONTEXT_BY },
	{ "documents", required_argument, NULL, DOCUMENTS },
	{ "sequence-parallel", no_argument, NULL, SEQUENCE },
	{ "exact", no_argument, NULL, EXACT },
	{ "tokens", no_argument, NULL, TOKENS },
	{ "model", required_argument, NULL, MODEL },
	{ "untied", no_argument, NULL, UNTIED },
	{ "report", no_argument, NULL, REPORT },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, VERSION },
};
enum { NNAMED = sizeof(named) / sizeof(named[0]) };

static void take_option(int c, const char *value, struct options *o)
{
	switch (c) {
	case 'n': o->nranks = (int)tool_parse_number("zerotrain", "-n", value, 1, MAX_RANKS); break;
	case OVERLAP: o->overlap = parse_switch("overlap", value); break;
	case CACHE: o->cache = parse_switch("cache", value); break;
	case PRECISION: o->type = parse_precision(value); break;
	case PRODUCTS: o->products = parse_products(value); break;
	case RECOMPUTE: o->recompute = tool_parse_recompute("zerotrain", value); break;
	case DEVICE: o->device = parse_device(value); break;
	case OPTIMIZER: o->offload_optimizer = parse_place("offload-optimizer", value); break;
	case PARAM: o->offload_param = parse_place("offload-param", value); break;
	case SCHEDULE:
		o->schedule = tool_parse_schedule("zerotrain", value);
		o->scheduled = true;
		break;
	case SEQUENCE: o->sequence = true; break;
	case DOCUMENTS: o->packing = parse_packing(value); break;
	case CONTEXT_BY: o->spread = parse_spread(value); break;
	case EXACT: o->exact = true; break;
	case TOKENS: o->tokens = true; break;
	case MODEL: o->model.kind = parse_kind(value); break;
	case UNTIED: o->model.untied = true; break;
	case REPORT: o->report = true; break;
	case HELP: fputs(help, stdout); exit(EXIT_GOOD);
	case VERSION: tool_print_version("zerotrain"); break;
	default: fprintf(stderr, "See zerotrain --help.\n"); exit(EXIT_USAGE);
	}
}

static void parse_all(int argc, char **argv, struct options *o)
{
	struct option longs[NNAMED + NFIELDS + 1] = { 0 };
	int c;

	memcpy(longs, named, sizeof(named));
	for (int i = 0; i < NFIELDS; i++)
		longs[NNAMED + i] =
			(struct option){ fields[i].option, required_argument, NULL, FIELD + i };
	while ((c = getopt_long(argc, argv, "n:", longs, NULL)) >= 0) {
		if (c >= FIELD)
			tool_parse_field("zerotrain", &fields[c - FIELD], optarg, o);
		else
			take_option(c, optarg, o);
	}
}

void options_parse(int argc, char **argv, struct options *o)
{
	*o = (struct options){
		.nranks = 1,
		.stage = UNSET,
		.overlap = UNSET,
		.offload_optimizer = UNSET,
		.offload_param = UNSET,
		.offload_ratio = NAN,
		.threads = UNSET,
		.type = (enum kolo_type)UNSET,
		.products = best_products(),
		.model = { .kind = (enum kind)UNSET,
			   .layers = UNSET,
			   .dim = UNSET,
			   .heads = UNSET,
			   .context = UNSET,
			   .values = UNSET,
			   .kv_heads = UNSET,
			   .inner = UNSET,
			   .eps = NAN,
			   .theta = NAN },
		.batch = UNSET,
		.tensor = UNSET,
		.pipe = UNSET,
		.micros = UNSET,
		.spread_ranks = UNSET,
		.end_token = UNSET,
		.schedule = KOLO_PIPELINE_1F1B,
		.chunks = UNSET,
		.steps = 500,
		.print = 10,
		.validate = 100,
		.keep = 100,
		.seed = 1,
		.samples = 1,
		.sample_seed = UNSET,
		.cache = true,
		.temperature = 0.8,
		.top_p = 1,
		.lr = NAN,
	};
	parse_all(argc, argv, o);
	if (optind < argc) {
		fprintf(stderr, "zerotrain: %s: not an option. See zerotrain --help.\n",
			argv[optind]);
		exit(EXIT_USAGE);
	}
	if (o->data && data_is_jsonl(o->data) && o->packing == NO_DOCUMENTS)
		o->packing = PACKED;
	o->tokens = o->tokens || o->bpe;
	sizes_take(o);
	check_options(o);
	if (o->spread_ranks != UNSET && o->spread == UNSPREAD)
		o->spread = RING;
}
