/* ringbench's command line: its help, its options, and which of them go together. */
#include "tools/common/gnuplot.h"
#include "tools/ringbench/plot.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: ringbench [COLLECTIVE ... | all] [OPTIONS]\n"
	"\n"
	"Measures how fast collectives are. It also checks their results against a sequential computation,\n"
	"and compares the bytes that each rank sent with a model.\n"
	"\n"
	"COLLECTIVE is all_reduce, broadcast, reduce, reduce_scatter, all_gather, all_to_all, gather,\n"
	"scatter, send_recv or barrier. Default: all_reduce. The word all means the first five. send_recv\n"
	"sends messages back and forth between rank r and rank r + N/2. Its time is half a round trip, the\n"
	"mean of 10 round trips.\n"
	"\n"
	"Ranks:\n"
	"  -n N              Start N ranks. Default: one for each core, at least 2. Each rank is on a core of\n"
	"                    its own if there are enough cores. In a job that a launcher has started,\n"
	"                    ringbench joins that job instead.\n"
	"  --threads         Make the ranks threads of one process. This is not possible in the job of a\n"
	"                    launcher.\n"
	"\n"
	"What is measured:\n"
	"  -b BYTES          The smallest size. K, M and G mean 2^10, 2^20 and 2^30 bytes. Default: 8 bytes.\n"
	"                    The size is that of the whole vector; see below.\n"
	"  -e BYTES          The largest size. Default: 128 MiB.\n"
	"  -f FACTOR         The factor from one size to the next. Default: 2.\n"
	"  -t TYPE|all       The type of the elements: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64\n"
	"                    f8e4m3 f8e5m2 c64 c128 i32_i32 i64_i32 f32_i32 f64_i32. Default: f32.\n"
	"  -o OP|all         The operation: sum prod min max avg; of integer types also band bor bxor\n"
	"                    land lor lxor; of pairs, like f64_i32, minloc and maxloc. Default: sum.\n"
	"  -r ROOT|all       The root of broadcast, reduce, gather and scatter. Default: rank 0.\n"
	"  --in-place        Measure only in place. Default: in place and out of place, except collectives\n"
	"                    that cannot be in place.\n"
	"  --out-of-place    Measure only out of place.\n"
	"  --transport NAME  shm, verbs, tcp or ofi (libfabric). Default: the best.\n"
	"  --algorithm NAME  ring, board, slices, exchange, doubling, partials, center, shares, direct,\n"
	"                    pairwise or grid, for each size for which it is possible. Default: the best\n"
	"                    for each size.\n"
	"  --order NAME      The order in which elements are added: ring, tree (of rank numbers), or grid\n"
	"                    (in groups, then between them; KOLO_SHAPE).\n"
	"                    Default: KOLO_ORDER, or what suits hosts and ranks: see kolo.h.\n"
	"  --memory KIND     The memory of the buffers. Default: host. alloc is memory of kolo_alloc. cuda is\n"
	"                    memory of GPUs: operations are on a stream, and the GPU's clock measures them.\n"
	"                    cuda-registered is memory of GPUs on which all ranks work directly.\n"
	"  --device LIST     The numbers of the GPUs that ranks take in turn, like 0,2. Several ranks may\n"
	"                    share a GPU. Default: all GPUs.\n"
	"\n"
	"How it is measured:\n"
	"  -w N              The number of operations before the clock starts. One more is used to choose -i.\n"
	"                    During the first ones Kolo learns the best way to write large results.\n"
	"                    Default: 16.\n"
	"  -i N              The number of operations that are timed. Default: as many as take about 0.1 s.\n"
	"  -c 0|1            1: check the results. 0: do not. Default: 1.\n"
	"  --queue           Put operations into a queue and wait for it. The time is that of both steps.\n"
	"  --in-flight K     Put K operations into the queue before each wait. The time is that of all of\n"
	"                    them divided by K. Default: 1. send_recv instead sends K messages in one\n"
	"                    direction in a group, then gets an answer: 1 / time is the message rate, and\n"
	"                    algbw is the bandwidth.\n"
	"  --with-barrier    Time the barrier before each operation too. A rank that leaves the barrier early\n"
	"                    waits longer in the operation, so a faster barrier alone makes the operation\n"
	"                    look slower. The time of both does not have this error.\n"
	"  --common-start    Begin each operation at the same time on all ranks, and count from there. After\n"
	"                    the barrier they wait for the next whole number of 4 us on the host's clock.\n"
	"                    For ranks of one host, each with a processor.\n"
	"\n"
	"Output:\n"
	"  -v                Also print how links are written and which algorithm runs at which size.\n"
	"  --json FILE       Write one JSON object for each measurement, one on a line. The name - means\n"
	"                    standard output.\n"
	"  --csv FILE        Write one CSV line for each measurement. The name - means standard output.\n"
	"  --plot FILE       Draw bandwidth over size as .svg or .png. This needs the program gnuplot.\n"
#ifdef KO_HAVE_JANSSON
	"  --against FILE    Also draw what an earlier --json wrote to FILE. At most 16 files.\n"
#else
	"  --against FILE    This build does not have this option. It needs the library jansson.\n"
#endif
	"  --limit GBps[:LABEL]\n"
	"                    Draw a horizontal line at this bandwidth beside busbw. At most 8 lines.\n"
	"  --help            Print this text.\n"
	"  --version         Print the version.\n"
	"\n"
	"Sizes are cut to whole elements. Collectives that divide a vector among ranks get the same number\n"
	"of elements for each rank. A size that holds no element is left out.\n"
	"\n"
	"Size:\n"
	"  all_reduce, broadcast, reduce\n"
	"                    The vector of each rank.\n"
	"  reduce_scatter, all_to_all\n"
	"                    What each rank gives.\n"
	"  all_gather        What each rank gets.\n"
	"  gather, scatter   What root has.\n"
	"  send_recv         One message.\n"
	"\n"
	"Before each timed operation there is a barrier, which is not timed (but see --with-barrier and\n"
	"--common-start). The slowest rank counts, and the table shows the median.\n"
	"\n"
	"Bandwidths:\n"
	"  algbw             size / time\n"
	"  busbw             algbw x 2(N-1)/N for all_reduce. algbw x (N-1)/N for reduce_scatter, all_gather,\n"
	"                    all_to_all, gather and scatter. algbw for all others.\n"
	"\n"
	"Exit status:\n"
	"  0      Success.\n"
	"  1      Results are wrong, or traffic differs from the model.\n"
	"  2      The command line has a mistake.\n"
	"  3      Something failed. Standard error has the reason.\n"
	"  other  The status of ringrun: it could not start the ranks, or a rank was killed.\n"
	"\n"
	"Environment:\n"
	"  KOLO_*            See kolo-environment(7).\n"
	"\n"
	"Examples:\n"
	"  ringbench -n 2 -b 1M -e 64M -f 8\n"
	"                    Measures all_reduce of 1, 8 and 64 MiB between two ranks.\n"
	"  ringbench all -t all -o all -b 64K -e 64K\n"
	"                    Measures the first five collectives, with every type and operation, at 64 KiB.\n";

bool is_measured(const struct options *o, enum collective coll, bool in_place)
{
	return in_place ? o->in_place && collective_can_be_in_place(coll) : o->out_of_place;
}

static void mistake(const char *option, const char *value, const char *why)
{
	fprintf(stderr, "ringbench: %s %s: %s\n", option, value, why);
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
		mistake(option, value, "must be a number of bytes, like 8, 64K or 1G");
	return bytes;
}

static void choose_type(const char *value, bool *types)
{
	bool any = false;

	for (int t = 0; t < VALUES_NTYPES; t++) {
		types[t] =
			!strcmp(value, "all") || !strcmp(value, kolo_type_name((enum kolo_type)t));
		any |= types[t];
	}
	if (!any)
		mistake("-t", value,
			"must be i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 c64 c128 "
			"i32_i32 i64_i32 f32_i32 f64_i32 or all");
}

static void choose_op(const char *value, bool *ops)
{
	bool any = false;

	for (int op = 0; op < VALUES_NOPS; op++) {
		ops[op] = !strcmp(value, "all") || !strcmp(value, kolo_op_name((enum kolo_op)op));
		any |= ops[op];
	}
	if (!any)
		mistake("-o", value,
			"must be sum prod min max avg band bor bxor land lor lxor minloc maxloc or all");
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
			"must be all_reduce broadcast reduce reduce_scatter all_gather all_to_all gather scatter "
			"send_recv barrier or all");
}

static void add_against(struct options *o, const char *value)
{
	for (int i = 0; i < o->nagainst; i++)
		if (strcmp(o->against[i], value) == 0)
			mistake("--against", value, "name each file only once");
	if (o->nagainst == MAX_AGAINST)
		mistake("--against", value, "give at most 16 files");
	o->against[o->nagainst++] = value;
}

static void add_limit(struct options *o, const char *value)
{
	char *end;
	double gbs = strtod(value, &end);

	if (end == value || !(gbs >= 1e-6 && gbs <= 1e9) || (*end && (*end != ':' || !end[1])))
		mistake("--limit", value,
			"must be GB/s from 1e-6 to 1e9, with a label or without: 12.5 or 12.5:NIC");
	if (o->nlimits == MAX_LIMITS)
		mistake("--limit", value, "give at most 8 limits");
	o->limits[o->nlimits++] = (struct limit){ gbs, *end ? end + 1 : "limit", value };
}

/* What has no letter. */
enum {
	IN_PLACE = 256,
	OUT_OF_PLACE,
	TRANSPORT,
	ALGORITHM,
	ORDER,
	MEMORY_KIND,
	DEVICES,
	THREADS,
	QUEUE,
	IN_FLIGHT,
	WITH_BARRIER,
	COMMON_START,
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
	case ORDER: o->order = optarg; break;
	case MEMORY_KIND:
		if (!memory_find(optarg, &o->memory))
			mistake("--memory", optarg, "must be host, alloc, cuda or cuda-registered");
		break;
	case DEVICES: o->devices = optarg; break;
	case THREADS: o->threads = true; break;
	case QUEUE: o->in_flight = o->in_flight ? o->in_flight : 1; break;
	case IN_FLIGHT: o->in_flight = (int)number("--in-flight", optarg, 1, MAX_IN_FLIGHT); break;
	case WITH_BARRIER: o->with_barrier = true; break;
	case COMMON_START: o->common_start = true; break;
	case JSON: o->json = optarg; break;
	case CSV: o->csv = optarg; break;
	case PLOT: o->plot = optarg; break;
	case AGAINST: add_against(o, optarg); break;
	case LIMIT: add_limit(o, optarg); break;
	case HELP: fputs(help, stdout); exit(EXIT_GOOD);
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
			fprintf(stderr,
				"ringbench: --%s and --%s cannot both write to %s: give each its own file\n",
				options[k], options[i], files[i]);
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
		mistake("-o", o->op_text, "needs a collective that reduces, like all_reduce");
	if (o->root_text && !has_root)
		mistake("-r", o->root_text, "needs broadcast, reduce, gather or scatter");
	if (o->type_text && !has_type)
		mistake("-t", o->type_text, "needs a collective that moves elements");
	for (int coll = 0; coll < NCOLLECTIVES; coll++)
		if (o->collectives[coll] && o->in_place && !o->out_of_place &&
		    !collective_can_be_in_place((enum collective)coll))
			mistake("--in-place", collective_name((enum collective)coll),
				"this collective cannot be in place: leave one of them out");
	if ((o->in_place || o->out_of_place) && !has_type)
		mistake(o->in_place ? "--in-place" : "--out-of-place", "barrier",
			"needs a collective that moves elements");
}

/* Has some type one of the ops, where one is needed? */
static void check_ops(const struct options *o)
{
	bool needed = false;

	for (int coll = 0; coll < NCOLLECTIVES; coll++)
		needed |= o->collectives[coll] && collective_reduces((enum collective)coll);
	if (!needed)
		return;
	for (int type = 0; type < VALUES_NTYPES; type++)
		for (int op = 0; op < VALUES_NOPS; op++)
			if (o->types[type] && o->ops[op] &&
			    values_has_op((enum kolo_type)type, (enum kolo_op)op))
				return;
	mistake("-o", o->op_text ? o->op_text : "sum",
		"is no op of this type: bits and truth are for integers (-t i32), minloc and maxloc for "
		"pairs (-t f64_i32)");
}

static void check_memory(struct options *o)
{
	if (o->devices && !is_on_gpu(o))
		mistake("--device", o->devices, "needs --memory cuda or --memory cuda-registered");
	if (is_on_gpu(o) && o->in_flight == 0)
		o->in_flight = 1; /* a stream is a queue */
}

/* One barrier comes before several operations of a queue, and before two messages. */
static void check_barrier(const struct options *o)
{
	if (o->common_start && is_on_gpu(o))
		mistake("--common-start", "--memory",
			"a GPU begins later than the call: leave one of them out");
	if (o->common_start && o->with_barrier)
		mistake("--common-start", "--with-barrier",
			"the time begins after the barrier or before it: leave one of them out");
	if (!o->with_barrier)
		return;
	if (o->in_flight)
		mistake("--with-barrier", is_on_gpu(o) ? "--memory" : "--queue",
			"each operation must have a barrier of its own: leave one of them out");
	if (o->collectives[SEND_RECV])
		mistake("--with-barrier", "send_recv",
			"this is timed by two messages at a time: leave one of them out");
	if (o->plot)
		mistake("--with-barrier", "--plot",
			"a plot has the times of operations alone: leave one of them out");
}

static void check_plot(const struct options *o)
{
	bool any = false;

	for (int coll = 0; coll < NCOLLECTIVES; coll++)
		any |= o->collectives[coll] && coll != BARRIER;
	if (!o->plot && (o->nagainst || o->nlimits))
		mistake(o->nagainst ? "--against" : "--limit",
			o->nagainst ? o->against[0] : o->limits[0].text,
			"needs --plot FILE, in which it is drawn");
	if (o->plot && !gnuplot_draws(o->plot))
		mistake("--plot", o->plot, "must be a name that ends in .svg or .png");
	if (o->plot && !any)
		mistake("--plot", o->plot,
			"needs a collective with a bandwidth: a barrier moves no bytes");
}

void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "in-place", no_argument, NULL, IN_PLACE },
		{ "out-of-place", no_argument, NULL, OUT_OF_PLACE },
		{ "transport", required_argument, NULL, TRANSPORT },
		{ "algorithm", required_argument, NULL, ALGORITHM },
		{ "order", required_argument, NULL, ORDER },
		{ "memory", required_argument, NULL, MEMORY_KIND },
		{ "device", required_argument, NULL, DEVICES },
		{ "threads", no_argument, NULL, THREADS },
		{ "queue", no_argument, NULL, QUEUE },
		{ "in-flight", required_argument, NULL, IN_FLIGHT },
		{ "with-barrier", no_argument, NULL, WITH_BARRIER },
		{ "common-start", no_argument, NULL, COMMON_START },
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

	*o = (struct options){
		.min = 8, .max = 128 << 20, .factor = 2, .warmups = 16, .check = true
	};
	o->types[KOLO_F32] = true;
	o->ops[KOLO_SUM] = true;
	while ((c = getopt_long(argc, argv, "n:b:e:f:t:o:r:w:i:c:v", longs, NULL)) >= 0)
		take_option(o, c);
	if (optind == argc)
		o->collectives[ALL_REDUCE] = true;
	while (optind < argc)
		choose_collective(argv[optind++], o->collectives);
	check_used(o);
	check_ops(o);
	check_memory(o);
	check_barrier(o);
	if (o->in_place == o->out_of_place)
		o->in_place = o->out_of_place = true;
	check_plot(o);
	check_outputs(o);
	if (o->min > o->max) {
		fprintf(stderr, "ringbench: -b %zu is above -e %zu: give the smallest size as -b\n",
			o->min, o->max);
		exit(EXIT_USAGE);
	}
}
