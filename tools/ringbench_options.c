/* ringbench's command line. */
#include "gnuplot.h"
#include "ringbench_plot.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool is_measured(const struct options *o, enum collective coll, bool in_place)
{
	return in_place ? o->in_place && collective_can_be_in_place(coll) : o->out_of_place;
}

static void usage(FILE *out)
{
	fprintf(out,
		"usage: ringbench [COLLECTIVE ... | all] [options]\n"
		"\n"
		"Times collectives, checks them against the sequential result, and compares the bytes that were\n"
		"sent with the model. COLLECTIVE: all_reduce (default), broadcast, reduce, reduce_scatter,\n"
		"all_gather, all_to_all, gather, scatter, send_recv, barrier; all: the first five. send_recv is\n"
		"messages to and fro between rank r and rank r + N/2: its time is half a round trip, the mean of 10.\n"
		"\n"
		"  -n N              start N ranks (default: one per core, at least 2), each on a core of its own\n"
		"                    where there are enough. In a job that a launcher has started, ringbench\n"
		"                    joins it instead\n"
		"  --threads         ranks are threads of one process; not in a job of a launcher\n"
		"  -b BYTES          smallest size (8); K, M, G mean 2^10, 2^20, 2^30. Sizes are of the whole\n"
		"                    vector: for reduce_scatter and all_to_all what a rank gives, for all_gather what\n"
		"                    it gets, for gather and scatter what root has, for send_recv a message; they are\n"
		"                    cut to whole elements (per rank), and left out where none fits\n"
		"  -e BYTES          largest size (128M)\n"
		"  -f FACTOR         from one size to the next (2)\n"
		"  -t TYPE|all       i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 (f32)\n"
		"  -o OP|all         sum prod min max avg (sum)\n"
		"  -r ROOT|all       for broadcast, reduce, gather and scatter (0)\n"
		"  -w N              operations before the clock starts (16: Kolo learns from the first\n"
		"                    ones how large results are best made), besides one to estimate -i\n"
		"  -i N              operations timed (default: as many as take about 0.1 s)\n"
		"  -c 0|1            check results (1)\n"
		"  --in-place, --out-of-place    only that one (default: both, where it can be in place)\n"
		"  --transport NAME  shm, verbs, tcp, or ofi: libfabric (default: the best)\n"
		"  --algorithm NAME  ring; board, exchange or direct where they can be (default: the best for each\n"
		"                    size)\n"
		"  --memory KIND     of the buffers: host; alloc: from kolo_alloc; cuda: of GPUs, with operations on a\n"
		"                    stream, and the time by the GPU's clock; cuda-registered: such, on which all\n"
		"                    ranks work directly (host)\n"
		"  --device LIST     GPUs that ranks go round, like 0,2; several ranks may share one (default: all)\n"
		"  --queue           leave operations to a queue and wait for it: the time is that of both\n"
		"  --in-flight K     the same with K operations before each wait; the time is a K-th (1). For\n"
		"                    send_recv: K messages one way in a group, then an answer; 1 / time is the\n"
		"                    message rate, algbw the bandwidth\n"
		"  -v                also print how links are written and which algorithm runs\n"
		"  --json FILE       one object per line and measurement; - for standard output\n"
		"  --csv FILE        likewise\n"
		"  --plot FILE       draw bandwidths over sizes, to FILE.svg or FILE.png; needs the program gnuplot\n"
#ifdef KO_HAVE_JANSSON
		"  --against FILE    draw what an earlier --json wrote to FILE too; up to 16 times\n"
#else
		"  --against is not in this build: it lacks the library jansson\n"
#endif
		"  --limit GBps[:LABEL]          draw a line there, beside busbw; up to 8 times\n"
		"  --help, --version\n"
		"\n"
		"Before each timed operation there is an untimed barrier; the slowest rank counts; the table shows\n"
		"the median. algbw = size / time; busbw = algbw x 2(N-1)/N for all_reduce, (N-1)/N for\n"
		"reduce_scatter, all_gather, all_to_all, gather and scatter, 1 for the others.\n"
		"\n"
		"Exit status:\n"
		"  0      all right\n"
		"  1      wrong results, or traffic that differs from the model\n"
		"  2      a mistake on the command line\n"
		"  3      a failure, with the reason on standard error\n"
		"  other  what ringrun returns when it could not start the ranks or one was killed\n"
		"\n"
		"Environment:\n"
		"  KOLO_*            as for every program that uses Kolo: kolo(7)\n"
		"\n"
		"Examples:\n"
		"  ringbench -n 2 -b 1M -e 64M -f 8\n"
		"                    all_reduce of 1, 8 and 64 MiB between two ranks\n"
		"  ringbench all -t all -o all -b 64K -e 64K\n"
		"                    every collective, type and op at one size\n");
}

static void mistake(const char *option, const char *value, const char *want)
{
	fprintf(stderr, "ringbench: %s %s: want %s\n", option, value, want);
	exit(EXIT_USAGE);
}

static long number(const char *option, const char *value, long min, long max)
{
	return tool_parse_number("ringbench", option, value, min, max);
}

static size_t size(const char *option, const char *value)
{
	size_t bytes;
	const char *end = tool_read_bytes(value, &bytes);

	if (!end || *end)
		mistake(option, value, "a number of bytes, like 8, 64K or 1G");
	return bytes;
}

static void choose_type(const char *value, bool *types)
{
	bool any = false;

	for (int t = 0; t < VALUES_NTYPES; t++) {
		types[t] = !strcmp(value, "all") || !strcmp(value, kolo_type_name((enum kolo_type)t));
		any |= types[t];
	}
	if (!any)
		mistake("-t", value, "i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 or all");
}

static void choose_op(const char *value, bool *ops)
{
	bool any = false;

	for (int op = 0; op < VALUES_NOPS; op++) {
		ops[op] = !strcmp(value, "all") || !strcmp(value, kolo_op_name((enum kolo_op)op));
		any |= ops[op];
	}
	if (!any)
		mistake("-o", value, "sum prod min max avg or all");
}

static void choose_collective(const char *value, bool *collectives)
{
	bool any = false;

	for (int coll = 0; coll < NCOLLECTIVES; coll++) {
		bool hit = !strcmp(value, collective_name((enum collective)coll)) ||
			   (!strcmp(value, "all") && coll <= ALL_GATHER);

		collectives[coll] |= hit;
		any |= hit;
	}
	if (!any)
		mistake("COLLECTIVE", value,
			"all_reduce broadcast reduce reduce_scatter all_gather all_to_all gather scatter "
			"send_recv barrier or all");
}

static void add_against(struct options *o, const char *value)
{
	for (int i = 0; i < o->nagainst; i++)
		if (strcmp(o->against[i], value) == 0)
			mistake("--against", value, "each file once");
	if (o->nagainst == MAX_AGAINST)
		mistake("--against", value, "at most 16 files");
	o->against[o->nagainst++] = value;
}

static void add_limit(struct options *o, const char *value)
{
	char *end;
	double gbs = strtod(value, &end);

	if (end == value || !(gbs >= 1e-6 && gbs <= 1e9) || (*end && (*end != ':' || !end[1])))
		mistake("--limit", value, "GB/s from 1e-6 to 1e9, and a label if you like: 12.5 or 12.5:NIC");
	if (o->nlimits == MAX_LIMITS)
		mistake("--limit", value, "at most 8 of them");
	o->limits[o->nlimits++] = (struct limit){ gbs, *end ? end + 1 : "limit", value };
}

/* What has no letter. */
enum {
	IN_PLACE = 256,
	OUT_OF_PLACE,
	TRANSPORT,
	ALGORITHM,
	MEMORY_KIND,
	DEVICES,
	THREADS,
	QUEUE,
	IN_FLIGHT,
	JSON,
	CSV,
	PLOT,
	AGAINST,
	LIMIT,
	HELP,
	VERSION
};

static void take_option(struct options *o, int c)
{
	switch (c) {
	case 'n': o->nranks = (int)number("-n", optarg, 1, MAX_RANKS); break;
	case 'b': o->min = size("-b", optarg); break;
	case 'e': o->max = size("-e", optarg); break;
	case 'f': o->factor = (size_t)number("-f", optarg, 2, 1 << 30); break;
	case 't':
		choose_type(optarg, o->types);
		o->type_text = optarg;
		break;
	case 'o':
		choose_op(optarg, o->ops);
		o->op_text = optarg;
		break;
	case 'r':
		o->root_text = optarg;
		o->root = !strcmp(optarg, "all") ? -1 : (int)number("-r", optarg, 0, INT_MAX);
		break;
	case 'w': o->warmups = (int)number("-w", optarg, 0, INT_MAX); break;
	case 'i': o->iterations = (int)number("-i", optarg, 1, MAX_ITERATIONS); break;
	case 'c': o->check = number("-c", optarg, 0, 1); break;
	case 'v': o->verbose = true; break;
	case IN_PLACE: o->in_place = true; break;
	case OUT_OF_PLACE: o->out_of_place = true; break;
	case TRANSPORT: o->transport = optarg; break;
	case ALGORITHM: o->algorithm = optarg; break;
	case MEMORY_KIND:
		if (!memory_find(optarg, &o->memory))
			mistake("--memory", optarg, "host, alloc, cuda or cuda-registered");
		break;
	case DEVICES: o->devices = optarg; break;
	case THREADS: o->threads = true; break;
	case QUEUE: o->in_flight = o->in_flight ? o->in_flight : 1; break;
	case IN_FLIGHT: o->in_flight = (int)number("--in-flight", optarg, 1, MAX_IN_FLIGHT); break;
	case JSON: o->json = optarg; break;
	case CSV: o->csv = optarg; break;
	case PLOT: o->plot = optarg; break;
	case AGAINST: add_against(o, optarg); break;
	case LIMIT: add_limit(o, optarg); break;
	case HELP: usage(stdout); exit(EXIT_GOOD);
	case VERSION: tool_print_version("ringbench");
	default: fprintf(stderr, "See ringbench --help.\n"); exit(EXIT_USAGE);
	}
}

static void check_outputs(const struct options *o)
{
	const char *files[] = { o->json, o->csv, o->plot }, *options[] = { "json", "csv", "plot" };

	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < i; k++) {
			if (!files[i] || !files[k] || strcmp(files[i], files[k]) != 0)
				continue;
			fprintf(stderr, "ringbench: --%s and --%s can't both go to %s\n", options[k],
				options[i], files[i]);
			exit(EXIT_USAGE);
		}
	}
}

/* What was given and no collective uses is a mistake. */
static void check_used(const struct options *o)
{
	bool reduces = false, has_root = false, has_type = false;

	for (int coll = 0; coll < NCOLLECTIVES; coll++) {
		reduces |= o->collectives[coll] && collective_reduces((enum collective)coll);
		has_root |= o->collectives[coll] && collective_has_root((enum collective)coll);
		has_type |= o->collectives[coll] && coll != BARRIER;
	}
	if (o->op_text && !reduces)
		mistake("-o", o->op_text, "a collective that reduces beside it");
	if (o->root_text && !has_root)
		mistake("-r", o->root_text, "broadcast, reduce, gather or scatter beside it");
	if (o->type_text && !has_type)
		mistake("-t", o->type_text, "a collective that moves elements beside it");
	for (int coll = 0; coll < NCOLLECTIVES; coll++)
		if (o->collectives[coll] && o->in_place && !o->out_of_place &&
		    !collective_can_be_in_place((enum collective)coll))
			mistake("--in-place", collective_name((enum collective)coll),
				"a collective that can be done in place");
	if ((o->in_place || o->out_of_place) && !has_type)
		mistake(o->in_place ? "--in-place" : "--out-of-place", "barrier",
			"a collective that moves elements beside it");
}

static void check_memory(struct options *o)
{
	if (o->devices && !is_on_gpu(o))
		mistake("--device", o->devices, "--memory cuda beside it");
	for (int coll = 0; is_on_gpu(o) && coll < NCOLLECTIVES; coll++)
		if (o->collectives[coll] && coll == SEND_RECV)
			mistake("--memory", memory_name(o->memory),
				"collectives: messages don't run on streams yet");
	if (is_on_gpu(o) && o->in_flight == 0)
		o->in_flight = 1; /* a stream is a queue */
}

static void check_plot(const struct options *o)
{
	bool any = false;

	for (int coll = 0; coll < NCOLLECTIVES; coll++)
		any |= o->collectives[coll] && coll != BARRIER;
	if (!o->plot && (o->nagainst || o->nlimits))
		mistake(o->nagainst ? "--against" : "--limit",
			o->nagainst ? o->against[0] : o->limits[0].text,
			"--plot FILE too, where it is drawn");
	if (o->plot && !gnuplot_draws(o->plot))
		mistake("--plot", o->plot, "a name that ends in .svg or .png");
	if (o->plot && !any)
		mistake("--plot", o->plot, "a collective that has a bandwidth; a barrier moves no bytes");
}

void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "in-place", no_argument, NULL, IN_PLACE },
		{ "out-of-place", no_argument, NULL, OUT_OF_PLACE },
		{ "transport", required_argument, NULL, TRANSPORT },
		{ "algorithm", required_argument, NULL, ALGORITHM },
		{ "memory", required_argument, NULL, MEMORY_KIND },
		{ "device", required_argument, NULL, DEVICES },
		{ "threads", no_argument, NULL, THREADS },
		{ "queue", no_argument, NULL, QUEUE },
		{ "in-flight", required_argument, NULL, IN_FLIGHT },
		{ "json", required_argument, NULL, JSON },
		{ "csv", required_argument, NULL, CSV },
		{ "plot", required_argument, NULL, PLOT },
#ifdef KO_HAVE_JANSSON
		{ "against", required_argument, NULL, AGAINST },
#endif
		{ "limit", required_argument, NULL, LIMIT },
		{ "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct options){ .min = 8, .max = 128 << 20, .factor = 2, .warmups = 16, .check = true };
	o->types[KOLO_F32] = true;
	o->ops[KOLO_SUM] = true;
	while ((c = getopt_long(argc, argv, "n:b:e:f:t:o:r:w:i:c:v", longs, NULL)) >= 0)
		take_option(o, c);
	if (optind == argc)
		o->collectives[ALL_REDUCE] = true;
	while (optind < argc)
		choose_collective(argv[optind++], o->collectives);
	check_used(o);
	check_memory(o);
	if (o->in_place == o->out_of_place)
		o->in_place = o->out_of_place = true;
	check_plot(o);
	check_outputs(o);
	if (o->min > o->max) {
		fprintf(stderr, "ringbench: -b is above -e\n");
		exit(EXIT_USAGE);
	}
}
