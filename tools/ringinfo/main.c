/* ringinfo from start to end: reports this build, this machine and the ring of a job. Rank 0
 * prints. With -n or --probe and without a job it becomes `ringrun -n N ringinfo ...`. */
#include "tools/ringinfo/ringinfo.h"

#include <getopt.h>
#include <stdlib.h>

static const char help[] =
	"usage: ringinfo [-n N] [--probe] [--json]\n"
	"       ringinfo --environment [--json]\n"
	"\n"
	"Reports what this build of Kolo has, the machine, and the environment variables. In a job it also\n"
	"reports the order of the ring and what its ranks agreed on.\n"
	"\n"
	"  -n N       Start N ranks and report their ring. Each rank is on a core of its own if there are\n"
	"             enough cores. In a job that a launcher has started, ringinfo joins that job instead.\n"
	"  --probe    Measure the edges of the ring. Without -n and without a job, start one rank for each\n"
	"             core, at least 2 ranks.\n"
	"  --environment\n"
	"             Print only the environment variables. Join no job.\n"
	"  --json     Print one JSON object instead of text.\n"
	"  --help     Print this text.\n"
	"  --version  Print the version.\n"
	"\n"
	"The probe measures an edge by sending 8 MiB over it: its rate is the best of 6 times. Then 8 bytes\n"
	"go there and back: its latency is the best of 5 means of 200 times. The probe checks all bytes that\n"
	"arrive. It measures edges that share no rank at the same time. The rule for a slow edge:\n"
	"" SLOW_RULE ".\n"
	"\n"
	"Exit status:\n"
	"  0      Success.\n"
	"  1      The probe received wrong bytes.\n"
	"  2      The command line has a mistake.\n"
	"  3      Something failed. Standard error has the reason.\n"
	"  other  The status of ringrun: it could not start the ranks, or a rank was killed.\n"
	"\n"
	"Environment:\n"
	"  KOLO_*     See kolo-environment(7). ringinfo marks values that joining a job would refuse. It also\n"
	"             reports variables that begin with KOLO_ and are not Kolo's.\n"
	"\n"
	"Examples:\n"
	"  ringinfo --probe\n"
	"             Reports the machine, and the ring of one rank for each core with its edges measured.\n"
	"  mpirun -n 4 ringinfo --json\n"
	"             Reports the ring that this launcher makes, as JSON.\n";

static void parse_options(int argc, char **argv, struct options *o)
{
	/* PROBE and those after it have no letter. */
	enum { PROBE = 256, ENVIRONMENT, JSON, HELP, VERSION };
	static const struct option longs[] = {
		{ "probe", no_argument, NULL, PROBE },
		{ "environment", no_argument, NULL, ENVIRONMENT },
		{ "json", no_argument, NULL, JSON },
		{ "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "n:", longs, NULL)) >= 0) {
		switch (c) {
		case 'n':
			o->nranks = (int)tool_parse_number("ringinfo", "-n", optarg, 1, MAX_RANKS);
			break;
		case PROBE: o->probe = true; break;
		case ENVIRONMENT: o->environment = true; break;
		case JSON: o->json = true; break;
		case HELP: fputs(help, stdout); exit(EXIT_GOOD);
		case VERSION: tool_print_version("ringinfo"); break;
		default: fprintf(stderr, "See ringinfo --help.\n"); exit(EXIT_USAGE);
		}
	}
	if (o->environment && (o->nranks || o->probe)) {
		fprintf(stderr, "ringinfo: --environment: cannot be used with -n or --probe\n");
		exit(EXIT_USAGE);
	}
	if (optind < argc) {
		fprintf(stderr, "ringinfo: %s: not an option. See ringinfo --help.\n",
			argv[optind]);
		exit(EXIT_USAGE);
	}
}

/* A full disk is no success. */
static int end_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "ringinfo: the output could not be written: is the disk full?\n");
		return EXIT_FAILED;
	}
	return EXIT_GOOD;
}

static int print_environment(const struct options *o)
{
	(o->json ? print_environment_json : print_environment_text)(stdout);
	return end_output();
}

static int print_all(const struct options *o, const struct job *j)
{
	struct machine machine = { 0 };

	look_at_machine(&machine);
	(o->json ? print_json : print_text)(stdout, &machine, j);
	free_machine(&machine);
	return end_output();
}

static int run_in_job(const struct options *o, struct job *j)
{
	int rc = join_job(j);

	if (rc)
		return rc;
	if (o->nranks && o->nranks != j->nranks) {
		if (j->rank == 0)
			fprintf(stderr,
				"ringinfo: -n %d, but the job in the environment has %d ranks: leave out -n\n",
				o->nranks, j->nranks);
		return EXIT_USAGE;
	}
	if (o->probe && probe_edges(j) < 0) {
		fprintf(stderr, "ringinfo: rank %d: probing: %s\n", j->rank, kolo_last_error());
		return EXIT_FAILED;
	}
	/* What is wrong is rank 0's to return: a launcher may end the others when one fails, before
	 * it has printed. */
	if (j->rank != 0)
		return EXIT_GOOD;
	rc = print_all(o, j);
	return rc ? rc : count_wrong(j) ? EXIT_WRONG : EXIT_GOOD;
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	struct job job = { 0 };
	int rc;

	parse_options(argc, argv, &options);
	if (options.environment)
		return print_environment(&options);
	if (kolo_job_get(&job.environment) < 0) {
		fprintf(stderr, "ringinfo: looking for a job: %s\n", kolo_last_error());
		return EXIT_FAILED;
	}
	if (!job.environment.launcher) {
		if (options.nranks || options.probe)
			return tool_become_ringrun("ringinfo", argc, argv, options.nranks, "core");
		return print_all(&options, NULL);
	}
	rc = run_in_job(&options, &job);
	kolo_comm_destroy(job.comm);
	free(job.ranks);
	free(job.edges);
	return rc;
}
