/* ringrun's command line and its help. */
#include "tools/ringrun/ringrun.h"

#include "tools/common/tool.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What --help prints; the numbers are those of GRACE_MS. */
static const char help[] =
	"usage: ringrun -n N [--bind share|core|none] [--tag] PROGRAM [ARGS...]\n"
	"\n"
	"Starts N ranks of PROGRAM on this host. Each rank finds its number, the number of ranks and their\n"
	"meeting point in its environment. kolo_comm_create reads them there if its attr is NULL.\n"
	"\n"
	"  -n N           The number of ranks, from 1 to 65536.\n"
	"  --bind share   Bind each rank to its share of the cores. Neighbours in rank order get\n"
	"                 neighbouring cores. If there are fewer cores than ranks, bind nothing. This is the\n"
	"                 default.\n"
	"  --bind core    Bind each rank to one core. If there are fewer cores than ranks, bind nothing.\n"
	"  --bind none    Bind nothing.\n"
	"  --tag          Begin every line of output with its rank, like [3].\n"
	"  --help         Print this text.\n"
	"  --version      Print the version.\n"
	"\n"
	"Standard input goes to rank 0. ringrun passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2\n"
	"on to all ranks. If a rank fails, the others have %d s to end by themselves. Then they get SIGTERM,\n"
	"and %d s later SIGKILL.\n"
	"\n"
	"Exit status:\n"
	"  0      All ranks returned 0.\n"
	"  125    ringrun itself failed.\n"
	"  126    PROGRAM could not be run.\n"
	"  127    PROGRAM was not found.\n"
	"  other  The status of the first rank that failed: 128 + N if signal N killed it.\n"
	"\n"
	"Environment:\n"
	"  KOLO_RANK, KOLO_NRANKS, KOLO_ID\n"
	"         ringrun sets these for every rank. See kolo-environment(7).\n"
	"\n"
	"Examples:\n"
	"  ringrun -n 4 ./program\n"
	"         Starts four ranks, each on a quarter of the cores.\n"
	"  ringrun -n 2 --tag sh -c 'echo $KOLO_RANK'\n"
	"         Prints [0] 0 and [1] 1, in any order.\n";

static void usage(FILE *out)
{
	fprintf(out, help, GRACE_MS / 1000, GRACE_MS / 1000);
}

static int parse_nranks(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (end != text && *end == 0 && n >= 1 && n <= MAX_RANKS)
		return (int)n;
	fprintf(stderr, "ringrun: -n %s: must be a number of ranks from 1 to %d\n", text,
		MAX_RANKS);
	exit(EXIT_OWN);
}

static enum binding parse_binding(const char *text)
{
	static const char *const names[] = {
		[BIND_NONE] = "none", [BIND_CORE] = "core", [BIND_SHARE] = "share"
	};

	for (int i = BIND_NONE; i <= BIND_SHARE; i++)
		if (strcmp(text, names[i]) == 0)
			return (enum binding)i;
	fprintf(stderr, "ringrun: --bind %s: must be share, core or none\n", text);
	exit(EXIT_OWN);
}

void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "bind", required_argument, NULL, 'b' },
		{ "tag", no_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct options){ .bind = BIND_SHARE };
	while ((c = getopt_long(argc, argv, "+n:", longs, NULL)) >= 0) {
		switch (c) {
		case 'n': o->nranks = parse_nranks(optarg); break;
		case 'b': o->bind = parse_binding(optarg); break;
		case 't': o->tag = true; break;
		case 'h': usage(stdout); exit(0);
		case 'v': tool_print_version("ringrun"); break;
		default: usage(stderr); exit(EXIT_OWN);
		}
	}
	if (o->nranks && optind < argc) {
		o->command = argv + optind;
		return;
	}
	fprintf(stderr, "ringrun: %s is missing\n", o->nranks ? "PROGRAM" : "-n N");
	usage(stderr);
	exit(EXIT_OWN);
}
