/* ringrun's command line and its help. */
#include "tools/ringrun/options.h"

#include "tools/common/tool.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/texts.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What --help prints; the numbers are those of GRACE_MS. */
static const char help[] =
	"usage: ringrun [OPTIONS] PROGRAM [ARGS...]\n"
	"\n"
	"Starts the ranks of a job: on this host, or on the hosts of a hostfile. Each rank finds its number, the\n"
	"number of ranks and their meeting point in its environment. kolo_comm_create reads them there if its\n"
	"attr is NULL, and torch.distributed if its init_method is env://.\n"
	"\n"
	"  -n N           The number of ranks, from 1 to 65536. Without hosts all run here. With hosts they fill\n"
	"                 the slots in order. Default: one for each slot; without hosts, one for each GPU, or\n"
	"                 for each core if there is no GPU.\n"
	"\n"
	"Hosts:\n"
	"  -H, --hostfile FILE\n"
	"                 A line for each host: NAME slots=N. Lines that begin with # are left out. Default:\n"
	"                 /job/hostfile, if it is there and neither -n nor --host is given.\n"
	"  --host LIST    Hosts and slots, like a:2,b:2. Default of slots: 1.\n"
	"  -i, --include SPEC\n"
	"                 Use only these hosts and slots, like a@b:0,2 for all slots of a, and slots 0 and 2 of b.\n"
	"  -e, --exclude SPEC\n"
	"                 Use all but these.\n"
	"  --num_nodes N  Use the first N hosts.\n"
	"  --num_gpus N   Use the first N slots of each host. Also --num_accelerators.\n"
	"\n"
	"Reaching them:\n"
	"  --launcher NAME\n"
	"                 What starts an agent of ringrun on each host: ssh, pdsh, slurm, openmpi, mpich, impi or\n"
	"                 mvapich. Default: ssh. All but ssh and slurm need this directory on every host.\n"
	"  --launcher_args TEXT\n"
	"                 More words for the launcher's command.\n"
	"  --ssh_port N   The port of the hosts' sshd.\n"
	"  --force_multi  Use the launcher for this host too.\n"
	"  --no_ssh_check Do not limit the time until a host answers. Default: 60 s, and 10 s for ssh to connect.\n"
	"  --no_ssh       Reach no host: start the ranks of host --node_rank here. Do so on each host, with the same\n"
	"                 hosts and --master_addr.\n"
	"  --node_rank K  This host's number, from 0.\n"
	"  --master_addr ADDR\n"
	"                 The first host's address for the others. Default: the one that another host has reached.\n"
	"  --master_port N\n"
	"                 MASTER_PORT of the ranks. 0: any free port. Default: 29500, or any free port if it is taken.\n"
	"  --print-command\n"
	"                 Print what would be run where, and start nothing.\n"
	"  --check        Print what a job would find on each host, what is wrong with it, and the cure.\n"
	"\n"
	"Ranks:\n"
	"  -x NAME[=VALUE]\n"
	"                 Give the ranks this variable, also if ringrun would drop it. Ranks on other hosts get PATH,\n"
	"                 LD_LIBRARY_PATH and settings of Kolo, Python, NCCL, UCX, OpenMP and BLAS without it, and the\n"
	"                 lines of .deepspeed_env here and in the home folder.\n"
	"  --wdir DIR     Where the ranks begin. Default: this directory.\n"
	"  --module       PROGRAM is a Python module: python3 -u -m PROGRAM.\n"
	"  --no_python    Run PROGRAM as it is. Default: python3 -u for a *.py that is not executable.\n"
	"  --no_local_rank\n"
	"                 Do not give Python programs the option --local_rank=K.\n"
	"  --bind share   Bind each rank to its share of the cores. Neighbours in rank order get neighbouring\n"
	"                 cores. If there are fewer cores than ranks, bind nothing. This is the default.\n"
	"  --bind core    Bind each rank to one core. If there are fewer cores than ranks, bind nothing.\n"
	"  --bind none    Bind nothing.\n"
	"  --bind_cores_to_rank\n"
	"                 --bind share, and OMP_NUM_THREADS is the number of a rank's cores.\n"
	"  --bind_core_list LIST\n"
	"                 The cores to give away, like 0,2-5. Implies --bind_cores_to_rank.\n"
	"\n"
	"Output:\n"
	"  --tag          Begin every line of output with its rank, like [3].\n"
	"  --enable_each_rank_log DIR\n"
	"                 Write what rank K writes to DIR/TIME_rankK.log on its host instead.\n"
	"  --save_pid     Write the ids of the processes of each host to /tmp/ID.ringrun there, while they run. ID is\n"
	"                 the process that you started.\n"
	"  -v, --verbose  Say when each step of the start was done.\n"
	"  -q, --quiet    Do not say which hosts a slow start waits for.\n"
	"  --help         Print this text.\n"
	"  --version      Print the version.\n"
	"\n"
	"Standard input goes to rank 0. ringrun passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2\n"
	"on to all ranks. If a rank fails, the others have %d s to end by themselves. Then they get SIGTERM,\n"
	"and %d s later SIGKILL. With several hosts a SIGINT does the same. Whatever ends, nothing of the job stays\n"
	"on any host.\n"
	"\n"
	"Exit status:\n"
	"  0      All ranks returned 0.\n"
	"  125    ringrun itself failed, or lost a host.\n"
	"  126    PROGRAM could not be run.\n"
	"  127    PROGRAM was not found.\n"
	"  other  The status of the first rank that failed: 128 + N if signal N killed it.\n"
	"\n"
	"Environment:\n"
	"  KOLO_RANK, KOLO_NRANKS, KOLO_ID\n"
	"         ringrun sets these for every rank. See kolo-environment(7).\n"
	"  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT\n"
	"         And these, for programs that torchrun could start.\n"
	"  LOCAL_SIZE, CROSS_RANK, CROSS_SIZE, CUDA_VISIBLE_DEVICES\n"
	"         And these, as DeepSpeed does. CUDA_VISIBLE_DEVICES is left alone if hosts have no slots.\n"
	"\n"
	"Examples:\n"
	"  ringrun -n 4 ./program\n"
	"         Starts four ranks, each on a quarter of the cores.\n"
	"  ringrun -n 2 --tag sh -c 'echo $KOLO_RANK'\n"
	"         Prints [0] 0 and [1] 1, in any order.\n"
	"  ringrun --host a:2,b:2 ./program\n"
	"         Starts two ranks on a and two on b, through ssh.\n"
	"  ringrun --hostfile hosts --include a@b:0 train.py --deepspeed\n"
	"         Starts a Python program on all slots of a, and on slot 0 of b.\n";

static void usage(FILE *out)
{
	fprintf(out, help, GRACE_MS / 1000, GRACE_MS / 1000);
}

__attribute__((format(printf, 1, 2))) static _Noreturn void refuse(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsay(fmt, args);
	va_end(args);
	exit(EXIT_OWN);
}

static int parse_number(const char *option, const char *text, int min, int max)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (end == text || *end || n < min || n > max)
		refuse("%s %s: must be a number from %d to %d", option, text, min, max);
	return (int)n;
}

static enum binding parse_binding(const char *text)
{
	static const char *const names[] = {
		[BIND_NONE] = "none", [BIND_CORE] = "core", [BIND_SHARE] = "share"
	};

	for (int i = BIND_NONE; i <= BIND_SHARE; i++)
		if (strcmp(text, names[i]) == 0)
			return (enum binding)i;
	refuse("--bind %s: must be share, core or none", text);
}

static const char *const launcher_names[] = {
	[BY_SSH] = "ssh",         [BY_PDSH] = "pdsh",   [BY_SLURM] = "slurm",
	[BY_OPENMPI] = "openmpi", [BY_MPICH] = "mpich", [BY_IMPI] = "impi",
	[BY_MVAPICH] = "mvapich",
};

const char *launcher_name(enum launcher launcher)
{
	return launcher_names[launcher];
}

static enum launcher parse_launcher(const char *text)
{
	for (int i = 0; i < LAUNCHERS; i++)
		if (strcasecmp(text, launcher_names[i]) == 0)
			return (enum launcher)i;
	refuse("--launcher %s: must be ssh, pdsh, slurm, openmpi, mpich, impi or mvapich", text);
}

static void add_export(struct options *o, const char *text)
{
	if (*text == '=' || !*text)
		refuse("-x %s: want NAME or NAME=VALUE", text);
	texts_add(&o->exports, "%s", text);
}

/* Options without a letter. */
enum {
	HOST = 256,
	NUM_NODES,
	NUM_GPUS,
	LAUNCHER,
	LAUNCHER_ARGS,
	SSH_PORT,
	FORCE_MULTI,
	NO_SSH_CHECK,
	NO_SSH,
	NODE_RANK,
	MASTER_ADDR,
	MASTER_PORT,
	PRINT_COMMAND,
	CHECK,
	WDIR,
	MODULE,
	NO_PYTHON,
	NO_LOCAL_RANK,
	BIND,
	BIND_CORES,
	CORE_LIST,
	TAG,
	LOGS,
	SAVE_PID,
	AGENT,
	AGENT_NODE,
	HELP,
	VERSION,
	NOT_DONE,
};

static const struct option longs[] = {
	{ "hostfile", required_argument, NULL, 'H' },
	{ "host", required_argument, NULL, HOST },
	{ "include", required_argument, NULL, 'i' },
	{ "exclude", required_argument, NULL, 'e' },
	{ "num_nodes", required_argument, NULL, NUM_NODES },
	{ "num_gpus", required_argument, NULL, NUM_GPUS },
	{ "num_accelerators", required_argument, NULL, NUM_GPUS },
	{ "launcher", required_argument, NULL, LAUNCHER },
	{ "launcher_args", required_argument, NULL, LAUNCHER_ARGS },
	{ "ssh_port", required_argument, NULL, SSH_PORT },
	{ "force_multi", no_argument, NULL, FORCE_MULTI },
	{ "no_ssh_check", no_argument, NULL, NO_SSH_CHECK },
	{ "no_ssh", no_argument, NULL, NO_SSH },
	{ "node_rank", required_argument, NULL, NODE_RANK },
	{ "master_addr", required_argument, NULL, MASTER_ADDR },
	{ "master_port", required_argument, NULL, MASTER_PORT },
	{ "print-command", no_argument, NULL, PRINT_COMMAND },
	{ "check", no_argument, NULL, CHECK },
	{ "wdir", required_argument, NULL, WDIR },
	{ "module", no_argument, NULL, MODULE },
	{ "no_python", no_argument, NULL, NO_PYTHON },
	{ "no_local_rank", no_argument, NULL, NO_LOCAL_RANK },
	{ "bind", required_argument, NULL, BIND },
	{ "bind_cores_to_rank", no_argument, NULL, BIND_CORES },
	{ "bind_core_list", required_argument, NULL, CORE_LIST },
	{ "tag", no_argument, NULL, TAG },
	{ "enable_each_rank_log", required_argument, NULL, LOGS },
	{ "save_pid", no_argument, NULL, SAVE_PID },
	{ "verbose", no_argument, NULL, 'v' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "agent", required_argument, NULL, AGENT },
	{ "node", required_argument, NULL, AGENT_NODE },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, VERSION },
	/* DeepSpeed's, which ringrun has not */
	{ "min_elastic_nodes", required_argument, NULL, NOT_DONE },
	{ "max_elastic_nodes", required_argument, NULL, NOT_DONE },
	{ "elastic_training", no_argument, NULL, NOT_DONE },
	{ "autotuning", required_argument, NULL, NOT_DONE },
	{ "venv_script", required_argument, NULL, NOT_DONE },
	{ "log_level", required_argument, NULL, NOT_DONE },
	{ NULL, 0, NULL, 0 },
};

static _Noreturn void refuse_not_done(const char *name)
{
	static const struct {
		const char *name, *instead;
	} cures[] = {
		{ "min_elastic_nodes", "the number of hosts is fixed when a job starts" },
		{ "max_elastic_nodes", "the number of hosts is fixed when a job starts" },
		{ "elastic_training", "the number of ranks is fixed when a job starts" },
		{ "autotuning", "zeroplan reports what settings need before a job starts" },
		{ "venv_script", "activate it before ringrun: PATH goes to all hosts" },
		{ "log_level", "use -v or -q" },
	};

	for (size_t i = 0; i < sizeof(cures) / sizeof(cures[0]); i++)
		if (strcmp(name, cures[i].name) == 0)
			refuse("--%s: ringrun does not have this option of DeepSpeed's: %s", name,
			       cures[i].instead);
	refuse("--%s is unknown", name);
}

/* Options that say which hosts. Returns false if c is none. */
static bool take_host_option(struct options *o, int c)
{
	switch (c) {
	case 'n': o->nranks = parse_number("-n", optarg, 1, MAX_RANKS); return true;
	case 'H': o->hostfile = optarg; return true;
	case HOST: o->host = optarg; return true;
	case 'i': o->include = optarg; return true;
	case 'e': o->exclude = optarg; return true;
	/* -1 is DeepSpeed's default, all, which scripts pass on */
	case NUM_NODES:
		o->num_nodes = strcmp(optarg, "-1")
				       ? parse_number("--num_nodes", optarg, 1, MAX_RANKS)
				       : 0;
		return true;
	case NUM_GPUS:
		o->num_gpus =
			strcmp(optarg, "-1") ? parse_number("--num_gpus", optarg, 1, MAX_RANKS) : 0;
		return true;
	default: return false;
	}
}

/* Options that say how hosts are reached. */
static bool take_reach_option(struct options *o, int c)
{
	switch (c) {
	case LAUNCHER: o->launcher = parse_launcher(optarg); return true;
	case LAUNCHER_ARGS: o->launcher_args = optarg; return true;
	case SSH_PORT: o->ssh_port = parse_number("--ssh_port", optarg, 1, 65535); return true;
	case FORCE_MULTI: o->force_multi = true; return true;
	case NO_SSH_CHECK: o->no_ssh_check = true; return true;
	case NO_SSH: o->no_ssh = true; return true;
	case NODE_RANK:
		o->node_rank = parse_number("--node_rank", optarg, 0, MAX_RANKS);
		return true;
	case MASTER_ADDR: o->master_addr = optarg; return true;
	case MASTER_PORT:
		o->master_port = parse_number("--master_port", optarg, 0, 65535);
		return true;
	case AGENT: o->agent = optarg; return true;
	case AGENT_NODE: o->agent_node = parse_number("--node", optarg, 0, MAX_RANKS); return true;
	default: return false;
	}
}

/* Options that say how ranks run, and what else ringrun does. */
static bool take_run_option(struct options *o, int c)
{
	switch (c) {
	case 'x': add_export(o, optarg); return true;
	case WDIR: o->wdir = optarg; return true;
	case MODULE: o->module = true; return true;
	case NO_PYTHON: o->no_python = true; return true;
	case NO_LOCAL_RANK: o->no_local_rank = true; return true;
	case BIND: o->bind = parse_binding(optarg); return true;
	case CORE_LIST:
		o->core_list = optarg;
		o->omp = true;
		return true;
	case BIND_CORES: o->omp = true; return true;
	case TAG: o->tag = true; return true;
	case LOGS: o->logs = optarg; return true;
	case SAVE_PID: o->save_pid = true; return true;
	case PRINT_COMMAND: o->print_command = true; return true;
	case CHECK: o->check = true; return true;
	case 'v': o->verbose = true; return true;
	case 'q': o->quiet = true; return true;
	default: return false;
	}
}

/* Scripts pass on DeepSpeed's defaults, which are empty. */
static void drop_empty(struct options *o)
{
	const char **texts[] = { &o->hostfile, &o->include, &o->exclude, &o->master_addr,
				 &o->launcher_args };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (*texts[i] && !**texts[i])
			*texts[i] = NULL;
}

/* Refuses options that contradict each other. */
static void check_options(const struct options *o)
{
	bool filtered = o->include || o->exclude;

	if (o->hostfile && o->host)
		refuse("--hostfile and --host both name hosts: give one of them");
	if (o->include && o->exclude)
		refuse("--include and --exclude contradict each other: give one of them");
	if (filtered && (o->num_nodes || o->num_gpus))
		refuse("%s and --%s both choose among the hosts' slots: give one of them",
		       o->include ? "--include" : "--exclude",
		       o->num_nodes ? "num_nodes" : "num_gpus");
	if (o->module && o->no_python)
		refuse("--module and --no_python contradict each other: a module needs python3");
	if (o->no_ssh && o->node_rank < 0)
		refuse("--no_ssh needs --node_rank: which of the hosts this is, from 0");
	if (o->no_ssh && !o->master_addr)
		refuse("--no_ssh needs --master_addr: an address of the first host for all others");
	if (o->no_ssh && o->master_port == 0)
		refuse("--no_ssh needs a --master_port that all hosts know, not 0");
	if (o->no_ssh && o->force_multi)
		refuse("--no_ssh and --force_multi contradict each other");
	if (o->node_rank >= 0 && !o->no_ssh)
		refuse("--node_rank needs --no_ssh: otherwise one ringrun starts all hosts");
	if (o->ssh_port && (o->launcher == BY_SLURM || o->launcher == BY_IMPI ||
			    o->launcher == BY_MPICH || o->launcher == BY_MVAPICH))
		refuse("--ssh_port: %s's own configuration has the port",
		       launcher_name(o->launcher));
	if (o->quiet && o->verbose)
		refuse("-q and -v contradict each other");
	if (o->omp && o->bind != BIND_SHARE)
		refuse("--bind_cores_to_rank gives each rank its share of the cores: leave out --bind");
}

void parse_options(int argc, char **argv, struct options *o)
{
	int c, which = 0;

	argv[0] = "ringrun"; /* getopt's messages begin with it */
	*o = (struct options){
		.bind = BIND_SHARE, .node_rank = -1, .master_port = -1, .agent_node = -1
	};
	while ((c = getopt_long(argc, argv, "+n:H:i:e:x:vq", longs, &which)) >= 0) {
		if (take_host_option(o, c) || take_reach_option(o, c) || take_run_option(o, c))
			continue;
		switch (c) {
		case HELP: usage(stdout); exit(0);
		case VERSION: tool_print_version("ringrun");
		case NOT_DONE: refuse_not_done(longs[which].name);
		default: fputs("ringrun: --help lists the options\n", stderr); exit(EXIT_OWN);
		}
	}
	drop_empty(o);
	check_options(o);
	if (optind < argc)
		o->command = argv + optind;
	else if (!o->check && !o->agent)
		refuse("PROGRAM is missing; --help lists the options");
}
