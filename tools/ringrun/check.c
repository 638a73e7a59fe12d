#include "tools/ringrun/check.h"

#include "tools/ringrun/base/facts.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/texts.h"
#include "tools/ringrun/check_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL_PAIRS = 32 }; /* hosts; of more, each tries those at distances 1, 2, 4, .. */

struct check {
	const struct plan *plan;
	int n, no_facts, no_reach; /* hosts whose answers are missing */
	bool asked;                /* the second question */
	struct row *rows;
};

static int64_t wall_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

struct check *check_open(const struct plan *plan)
{
	struct check *c = need(calloc(1, sizeof(*c)));

	*c = (struct check){ .plan = plan, .n = plan->hosts.n, .no_facts = plan->hosts.n };
	c->no_reach = c->n;
	c->rows = need(calloc((size_t)c->n, sizeof(*c->rows)));
	for (int k = 0; k < c->n; k++)
		c->rows[k].host = &plan->hosts.at[k];
	return c;
}

void check_ask(struct check *c, int k, struct wire *w)
{
	struct job job = plan_job(c->plan, k);
	struct bytes text = { 0 };

	job_write(&job, &text);
	c->rows[k].asked_us = wall_us();
	wire_put(w, MSG_CHECK, c->rows[k].asked_us, text.at, text.len);
	bytes_free(&text);
}

static bool tries(const struct check *c, int from, int to)
{
	int distance = (to - from + c->n) % c->n;

	return distance > 0 && (c->n <= ALL_PAIRS || (distance & (distance - 1)) == 0);
}

/* "HOST ADDRESS PORT" for each address of each host that `from` tries. */
static char **places_for(const struct check *c, int from)
{
	char **places = need(calloc(1, sizeof(*places)));

	for (int to = 0; to < c->n; to++) {
		const struct row *row = &c->rows[to];

		for (int i = 0; row->answered && tries(c, from, to) && row->facts.interfaces[i];
		     i++) {
			const char *address = strchr(row->facts.interfaces[i], ' ') + 1;

			texts_add(&places, "%d %.*s %d", to, (int)strcspn(address, " "), address,
				  row->facts.port);
		}
	}
	return places;
}

/* Once all hosts have said where they listen. */
static void ask_to_reach(struct check *c, struct peers *peers)
{
	if (c->asked || c->no_facts > 0)
		return;
	c->asked = true;
	for (int k = 0; k < c->n; k++) {
		struct bytes text = { 0 };

		if (!c->rows[k].answered || c->rows[k].why)
			continue;
		c->rows[k].places = places_for(c, k);
		put_texts(&text, c->rows[k].places);
		wire_put(&peers->at[k].wire, MSG_REACH, 0, text.at, text.len);
		bytes_free(&text);
	}
}

void check_give_up(struct check *c, int k, const char *why, struct peers *peers)
{
	struct row *row = &c->rows[k];

	if (row->why || (row->answered && row->reached))
		return;
	row->why = need(strdup(why));
	c->no_facts -= !row->answered;
	c->no_reach--;
	ask_to_reach(c, peers);
}

void check_hear(struct check *c, int k, const struct message *m, struct peers *peers)
{
	struct row *row = &c->rows[k];
	struct reader r = { .at = m->data, .end = m->data + m->len };

	if (m->kind == MSG_FACTS && !row->answered && !row->why) {
		if (!facts_read(&row->facts, m->data, m->len)) {
			check_give_up(c, k, "its answer is damaged", peers);
		} else {
			row->answered = true;
			/* half of the way there and back */
			row->clock_us =
				row->facts.clock_us -
				(double)(wall_us() - row->asked_us - row->facts.took_us) / 2;
			c->no_facts--;
		}
	} else if (m->kind == MSG_REACHED && !row->reached && !row->why) {
		row->reached = get_texts(&r);
		c->no_reach--;
	}
	ask_to_reach(c, peers);
}

bool check_is_over(const struct check *c)
{
	return c->no_reach == 0;
}

/* ---- Reporting ------------------------------------------------------------------------------- */

/* "12 GiB", "64 MiB", "8192 KiB", "none" for no limit. Returns out. */
static const char *size_text(int64_t kib, char out[24])
{
	if (kib < 0)
		snprintf(out, 24, "no limit");
	else if (kib >= 10 << 20)
		snprintf(out, 24, "%lld GiB", (long long)(kib >> 20));
	else if (kib >= 10 << 10)
		snprintf(out, 24, "%lld MiB", (long long)(kib >> 10));
	else
		snprintf(out, 24, "%lld KiB", (long long)kib);
	return out;
}

static void print_row(const struct row *row)
{
	const struct facts *f = &row->facts;
	char ranks[RANKS_TEXT], memlock[24], shm[24], scope[16] = "none";

	printf("%-20s %-16s ", row->host->name, plan_ranks_text(row->host, ranks));
	if (!row->answered) {
		printf("no answer\n");
		return;
	}
	if (f->ptrace_scope != UNKNOWN)
		snprintf(scope, sizeof(scope), "%d", f->ptrace_scope);
	printf("%5d %4d  %-9s %7d/%-8d %-9s %6s %+11.1f  %s\n", f->cores, f->gpus,
	       size_text(f->memlock_kib, memlock), f->nofile, f->nofile_max,
	       f->shm_mib == UNKNOWN ? "none" : size_text((int64_t)f->shm_mib << 10, shm), scope,
	       row->clock_us / 1e3, f->rdma[0] ? "" : "none");
	for (int i = 0; f->rdma[i]; i++)
		printf("%115s %s\n", "", f->rdma[i]);
}

/* How many hosts have tried this address of host `to`, and how many have reached it. */
static void count_reached(const struct check *c, int to, const char *address, int *tried,
			  int *reached)
{
	char place[400];

	*tried = *reached = 0;
	snprintf(place, sizeof(place), "%d %s %d", to, address, c->rows[to].facts.port);
	for (int k = 0; k < c->n; k++)
		for (int i = 0; c->rows[k].reached && c->rows[k].reached[i] && c->rows[k].places[i];
		     i++)
			if (strcmp(c->rows[k].places[i], place) == 0) {
				++*tried;
				*reached += atoi(strchr(c->rows[k].reached[i], ' ')) == 0;
			}
}

static void print_network(const struct check *c, int k)
{
	const struct row *row = &c->rows[k];

	for (int i = 0; row->answered && row->facts.interfaces[i]; i++) {
		char name[32], address[64], rate[32] = "unknown";
		int mbit = 0, tried, reached;

		if (sscanf(row->facts.interfaces[i], "%31s %63s %d", name, address, &mbit) != 3)
			continue;
		if (mbit > 0)
			snprintf(rate, sizeof(rate), "%g Gbit/s", mbit / 1e3);
		count_reached(c, k, address, &tried, &reached);
		printf("%-20s %-16s %-40s %-12s", row->host->name, name, address, rate);
		if (tried)
			printf(" %d of %d\n", reached, tried);
		else
			printf(" no other host\n");
	}
}

/* Does host `from` reach host `to` at one of its addresses? UNKNOWN if it has not tried. */
static int reaches(const struct check *c, int from, int to)
{
	const struct row *row = &c->rows[from];
	int found = UNKNOWN;

	for (int i = 0; row->reached && row->reached[i] && row->places[i]; i++)
		if (atoi(row->places[i]) == to && found != 1)
			found = atoi(strchr(row->reached[i], ' ')) == 0;
	return found;
}

static int report_unreached(const struct check *c)
{
	int wrong = 0;

	for (int from = 0; from < c->n; from++)
		for (int to = 0; to < c->n; to++)
			if (reaches(c, from, to) == 0) {
				print_finding(
					c->rows[from].host->name, true,
					"let the hosts of a job connect to each other at any port (firewall), or "
					"route between their networks",
					"reaches %s at none of its addresses",
					c->rows[to].host->name);
				wrong++;
			}
	return wrong;
}

int check_report(const struct check *c)
{
	int wrong = 0;

	printf("%-20s %-16s %5s %4s  %-9s %16s %-9s %6s %11s  %s\n", "host", "ranks", "cores",
	       "GPUs", "memlock", "nofile/max", "/dev/shm", "ptrace", "clock (ms)", "RDMA");
	for (int k = 0; k < c->n; k++)
		print_row(&c->rows[k]);
	printf("\n%-20s %-16s %-40s %-12s %s\n", "host", "interface", "address", "rate",
	       "reached by others");
	for (int k = 0; k < c->n; k++)
		print_network(c, k);
	putchar('\n');
	for (int k = 0; k < c->n; k++)
		wrong += check_rules(c->plan, c->rows, k);
	wrong += report_unreached(c);
	printf("%s\n", wrong ? "A job on these hosts would fail or suffer: see above."
			     : "Nothing is wrong with these hosts.");
	return wrong > 0;
}
