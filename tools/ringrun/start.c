/* The first part of the first ringrun: agents, the meeting point, ranks. */
#include "kolo/kolo.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/texts.h"
#include "tools/ringrun/command.h"
#include "tools/ringrun/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FANOUT = 64 }; /* starters whose agent has not answered yet */

void start_tell(const struct head *h, const char *fmt, ...)
{
	char text[512];
	va_list args;

	if (!h->plan->options->verbose)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	say("%.3f s: %s", (double)(now_ms() - h->began) / 1e3, text);
}

static void send_job(const struct head *h, struct peer *peer)
{
	struct job job = plan_job(h->plan, (int)(peer - h->peers.at));
	struct bytes text = { 0 };
	char *pid_file = NULL;

	job.input = job.first == 0 && !peer->here;
	if (h->plan->options->save_pid && asprintf(&pid_file, "/tmp/%d.ringrun", (int)getpid()) < 0)
		pid_file = need(NULL);
	job.pid_file = pid_file;
	job_write(&job, &text);
	wire_put(&peer->wire, MSG_JOB, 0, text.at, text.len);
	bytes_free(&text);
	free(pid_file);
}

void start_greet(const struct head *h, struct peer *peer)
{
	if (h->check)
		check_ask(h->check, (int)(peer - h->peers.at), &peer->wire);
	else
		send_job(h, peer);
}

void start_meeting_point(struct head *h)
{
	const char *address;

	door_close(&h->peers.door);
	peers_drop_strangers(&h->peers, true);
	starters_remove_file(&h->starters);
	if (h->check)
		return;
	h->master = peers_master(&h->peers);
	address = h->peers.n > 1 ? h->master : "";
	start_tell(h, "all %d agents have answered; the first host is %s", h->peers.n, h->master);
	wire_put(&h->peers.at[0].wire, MSG_SERVE, 0, address, strlen(address) + 1);
}

void start_ranks(struct head *h, const struct message *served)
{
	char hex[2 * sizeof(struct kolo_id) + 1] = "";
	struct bytes text = { 0 };

	for (size_t i = 0; i < served->len && i < sizeof(struct kolo_id); i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned char)served->data[i]);
	put_text(&text, hex);
	put_text(&text, h->master);
	for (int k = 0; k < h->peers.n; k++)
		wire_put(&h->peers.at[k].wire, MSG_START, served->number, text.at, text.len);
	bytes_free(&text);
	h->started = true;
	h->input = h->peers.at[0].here ? -1 : STDIN_FILENO;
	start_tell(h, "told the agents to start %d ranks", h->plan->nranks);
}

/* ssh for each host gets a line with that host's number; others start all agents with one line. */
void start_more(struct head *h)
{
	const struct options *o = h->plan->options;
	bool each = command_is_for_each_host(o->launcher);
	int asked = h->starters.next;

	while (!h->ending && h->starters.next < h->starters.nnodes &&
	       h->starters.next - (h->starters.nnodes - h->peers.awaited) < FANOUT) {
		char *none[] = { NULL };
		int node = h->starters.nodes[h->starters.next];
		char *line = each ? door_line(&h->peers.door, node, none) : h->line;

		if (starters_start_next(&h->starters, line) < 0) {
			outcome_note(&h->outcome, OWN, EXIT_OWN, NULL,
				     "no more agents can be started");
			break;
		}
		if (each)
			free(line);
	}
	if (asked < h->starters.next && h->starters.next == h->starters.nnodes)
		start_tell(h, "asked for an agent on each of %d hosts through %s",
			   h->starters.nnodes, launcher_name(o->launcher));
}

static int make_line_for_all(struct head *h)
{
	char **hosts = NULL;

	for (int i = 0; i < h->starters.nnodes; i++) {
		int node = h->starters.nodes[i];

		texts_add(&hosts, "%d=%s", node, h->peers.at[node].host->name);
	}
	h->line = door_line(&h->peers.door, -1, hosts);
	texts_free(hosts);
	if (command_passes_input(h->plan->options->launcher))
		return 0;
	return starters_make_file(&h->starters, h->line);
}

int start_begin(struct head *h)
{
	for (int k = 0; k < h->plan->hosts.n; k++)
		h->left += h->plan->hosts.at[k].nranks;
	starters_init(&h->starters, h->plan);
	h->signals = open_signals(); /* before a child may end */
	if (peers_open(&h->peers, h->plan) < 0 || h->signals < 0)
		return -1;
	h->polls = need(calloc(4 + 2 * (size_t)h->peers.n + 2048, sizeof(*h->polls)));
	h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->wake < 0 || !(h->writers[0] = writer_open(STDOUT_FILENO, h->wake)) ||
	    !(h->writers[1] = writer_open(STDERR_FILENO, h->wake)))
		return -1;
	if (h->starters.nnodes && !command_is_for_each_host(h->plan->options->launcher) &&
	    make_line_for_all(h) < 0)
		return -1;
	for (int k = 0; k < h->peers.n; k++)
		if (h->peers.at[k].here)
			start_greet(h, &h->peers.at[k]);
	start_more(h);
	if (h->peers.awaited == 0)
		start_meeting_point(h);
	return 0;
}
