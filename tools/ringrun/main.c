/* ringrun: one program in three roles. The ringrun that the user starts is the first one (head.c).
 * On each host an agent keeps the ranks (agent.c): on this host a child of the first ringrun, on
 * others what ssh or another launcher has started. Ranks are the agent's children. Who dies is
 * noticed at once by the process above and by the connection between the first ringrun and the
 * agent, so that nothing survives a `kill -9` of any of them. */
#include "tools/ringrun/agent/agent.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/head.h"
#include "tools/ringrun/options.h"
#include "tools/ringrun/plan.h"
#include "tools/ringrun/starters.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

/* What --print-command prints: for each host who starts its ranks, and which. */
static int print_commands(const struct plan *p)
{
	static struct starters s; /* what it has allocated is held until the process ends */

	for (int k = 0; k < p->hosts.n; k++) {
		char ranks[RANKS_TEXT];

		printf("# %s: %s%s\n", p->hosts.at[k].name, plan_ranks_text(&p->hosts.at[k], ranks),
		       p->here[k] ? ", started by ringrun itself" : "");
	}
	starters_init(&s, p);
	return starters_print(&s) < 0 ? EXIT_OWN : 0;
}

/* What is allocated lives as long as the process, so nothing is freed at its end. */
static _Noreturn void leave(int status)
{
	if (fflush(stdout) == 0)
		_exit(status);
	complain("writing to standard output");
	_exit(EXIT_OWN);
}

int main(int argc, char **argv)
{
	struct options options;
	struct plan plan;

	parse_options(argc, argv, &options);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how the ranks ended */
	signal(SIGPIPE, SIG_IGN); /* a reader that leaves is an error of that write */
	if (options.agent)
		leave(agent_start(options.agent, options.agent_node));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (plan_make(&options, &plan) < 0)
		leave(EXIT_OWN);
	leave(options.print_command ? print_commands(&plan) : head_run(&plan));
}
