/* Prints everything as text, in sections with titles, and within 80 columns if names permit. */
#include "tools/ringinfo/ringinfo.h"

#include <ctype.h>
#include <string.h>

/* ---- The library ----------------------------------------------------------------------------- */

/* The kernels that are used: the last that can be. */
static int find_used_kernels(void)
{
	struct kolo_part_info part;
	int used = -1;

	for (int i = 0; kolo_part_get(i, &part) == 0; i++)
		if (part.usable && strcmp(part.kind, "kernels") == 0)
			used = i;
	return used;
}

static void print_parts(FILE *out)
{
	struct kolo_part_info part;
	const char *kind = "";
	int used = find_used_kernels();

	for (int i = 0; kolo_part_get(i, &part) == 0; i++) {
		const char *answer = i == used     ? "yes, used"
				     : part.usable ? "yes"
				     : part.built  ? "not usable: "
						   : "no: ";

		fprintf(out, "  %-9s  %-9s  %s%s\n", strcmp(kind, part.kind) != 0 ? part.kind : "",
			part.name, answer, part.reason);
		kind = part.kind;
	}
}

/* What others wrote, in one line. Returns its width. */
static int print_plain(FILE *out, const char *text)
{
	int width = 0;

	for (; text[width]; width++)
		fputc(iscntrl((unsigned char)text[width]) ? '?' : text[width], out);
	return width;
}

static void print_value(FILE *out, const struct kolo_env_info *info)
{
	int width = print_plain(out, !info->value ? "unset" : info->secret ? "(set)" : info->value);

	fprintf(out, "%*s", width < 12 ? 12 - width : 0, "");
}

/* The text in lines of at most 80 columns, the first 6 of which are blank. */
static void print_wrapped(FILE *out, const char *text)
{
	enum { MOST = 74 };

	while (*text) {
		size_t len = strlen(text);

		if (len > MOST) /* no word is as long as a line */
			for (len = MOST; text[len] != ' '; len--)
				;
		fprintf(out, "      %.*s\n", (int)len, text);
		text += len + (text[len] == ' ');
	}
}

static void print_nccl(FILE *out)
{
	struct foreign v;
	bool first = true;

	for (int at = 0; next_of_nccl(&at, &v); first = false) {
		if (first)
			fprintf(out, "NCCL's variables, of which Kolo's libnccl.so.2 uses some\n");
		fprintf(out, "  ");
		print_plain(out, v.name);
		fprintf(out, "=");
		print_plain(out, v.value);
		fprintf(out, "  %s\n", v.used ? "used" : "not used");
		print_wrapped(out, v.help);
	}
}

void print_environment_text(FILE *out)
{
	struct kolo_env_info info;
	char name[128];

	fprintf(out, "Environment           value         default  range\n");
	for (int i = 0; kolo_env_get(i, &info) == 0; i++) {
		fprintf(out, "  %-20s  ", info.name); /* KOLO_VERBS_GID_INDEX */
		print_value(out, &info);
		fprintf(out, "  %-7s  %s\n", info.preset[0] ? info.preset : "-", info.range);
		print_wrapped(out, info.help);
		if (!info.good) {
			fprintf(out, "      REFUSED: ");
			print_plain(out, kolo_last_error());
			fprintf(out, "\n");
		}
	}
	for (int at = 0; next_unknown(&at, name, sizeof(name));) {
		fprintf(out, "  ");
		print_plain(out, name);
		fprintf(out, ": no variable of Kolo's; misspelt?\n");
	}
	print_nccl(out);
}

/* ---- The machine ----------------------------------------------------------------------------- */

static void print_node(FILE *out, const struct node *node, int depth)
{
	for (; node; node = node->next) {
		const char *between = node->detail[0] && node->cpus[0] ? "; cpus "
				      : node->cpus[0]                  ? "cpus "
								       : "";

		fprintf(out, "%*s", 2 * depth, "");
		if (node->count > 1)
			fprintf(out, "%d x ", node->count);
		fprintf(out, "%s%s%s", node->what, node->name[0] ? " " : "", node->name);
		if (node->detail[0] || node->cpus[0])
			fprintf(out, " (%s%s%s)", node->detail, between, node->cpus);
		fprintf(out, "\n");
		print_node(out, node->children, depth + 1);
	}
}

static void print_matrix(FILE *out, const struct matrix *m)
{
	int width = 0;

	for (int i = 0; i < m->n; i++)
		width = (int)strlen(m->labels[i]) > width ? (int)strlen(m->labels[i]) : width;
	fprintf(out, "  %s, from row to column in the order of the rows\n", m->name);
	for (int i = 0; i < m->n; i++) {
		fprintf(out, "    %-*s", width, m->labels[i]);
		for (int k = 0; k < m->n; k++)
			fprintf(out, " %5llu",
				(unsigned long long)
					m->values[(size_t)i * (size_t)m->n + (size_t)k]);
		fprintf(out, "\n");
	}
}

static void print_machine(FILE *out, const struct machine *m)
{
	fprintf(out, "\nMachine %s (%s)\n", m->root->name, m->root->detail);
	print_node(out, m->root->children, 1);
	for (const struct matrix *d = m->distances; d; d = d->next)
		print_matrix(out, d);
	if (m->note)
		fprintf(out, "  %s\n", m->note);
}

/* ---- The job --------------------------------------------------------------------------------- */

/* A time in the unit that leaves at most 4 digits before the point: on a busy machine, what is
 * measured may be thousands of times too long. */
static void print_time(FILE *out, const char *before, double us)
{
	static const char *const units[] = { "us", "ms", "s" };
	int unit = 0;

	for (; unit < 2 && us >= 9999.95; unit++)
		us /= 1000;
	fprintf(out, "%s%.1f %s", before, us, units[unit]);
}

static void print_algorithms(FILE *out, const struct job *j)
{
	struct kolo_algorithm row;
	char range[48];

	fprintf(out, "\nAlgorithm (%s)   for such memory, and vectors of this many bytes\n",
		j->agreed.algorithm);
	fprintf(out, "  elements are added in the order: %s\n", j->order);
	if (j->nranks > 1)
		fprintf(out,
			"  a small message to the next rank takes %.2f us; expected times follow\n",
			j->agreed.hop_us);
	for (int i = 0; kolo_algorithm_get(j->comm, i, &row) == 0; i++) {
		bool ends = row.max_bytes != UINT64_MAX;
		double first = kolo_algorithm_time(j->comm, &row, row.min_bytes);

		if (ends)
			snprintf(range, sizeof(range), "%llu to %llu",
				 (unsigned long long)row.min_bytes,
				 (unsigned long long)row.max_bytes);
		else
			snprintf(range, sizeof(range), "%llu and more",
				 (unsigned long long)row.min_bytes);
		fprintf(out, "  %-14s  %-8s  %-5s  %s", row.collective, row.name, row.memory,
			range);
		if (first >= 0) {
			fprintf(out, "%*s", 20 - (int)strlen(range), "");
			print_time(out, "  ", first);
		}
		if (first >= 0 && ends)
			print_time(out, " to ", kolo_algorithm_time(j->comm, &row, row.max_bytes));
		fprintf(out, "\n");
	}
	if (j->nranks == 1)
		fprintf(out, "  none: one rank copies\n");
}

static void print_ring(FILE *out, const struct job *j)
{
	fprintf(out, "\nRing of %d rank%s (launcher: %s), %llu slots of %llu KiB per link\n",
		j->nranks, j->nranks > 1 ? "s" : "", j->environment.launcher,
		(unsigned long long)j->agreed.nslots, (unsigned long long)j->agreed.slot_len >> 10);
	fprintf(out, "  %5s  %5s  %-9s  %8s  %-10s  %s\n", "rank", "next", "transport", "pid",
		"cpus", "host");
	for (int r = 0; r < j->nranks; r++) {
		const struct rank_facts *f = &j->ranks[r];
		char next[16] = "-";

		if (f->next >= 0)
			snprintf(next, sizeof(next), "%d", f->next);
		fprintf(out, "  %5d  %5s  %-9s  %8d  %-10s  %s\n", r, next, f->transport, f->pid,
			f->cpus, f->host);
	}
	print_algorithms(out, j);
}

static void print_crowds(FILE *out, const struct job *j)
{
	for (int r = 0; r < j->nranks; r++) {
		int ranks = count_crowd(j, r), processors = j->ranks[r].processors;

		if (ranks)
			fprintf(out,
				"  %d ranks share %d processor%s: rates and latencies are the scheduler's too\n",
				ranks, processors, processors > 1 ? "s" : "");
	}
}

static void print_edges(FILE *out, const struct job *j)
{
	struct edge best = find_best(j->edges, j->nranks);

	fprintf(out, "\nEdges              GB/s         us   stores\n");
	for (int r = 0; r < j->nranks; r++) {
		const struct edge *e = &j->edges[r];

		fprintf(out, "  %5d -> %-5d %8.2f   %8.2f   %s%s", r, j->ranks[r].next, e->rate,
			e->latency, j->ranks[r].stores, edge_is_slow(e, &best) ? "  slow" : "");
		if (e->wrong)
			fprintf(out, "  WRONG: %llu words", (unsigned long long)e->wrong);
		fprintf(out, "\n");
	}
	fprintf(out, "  %-14s %8.2f   %8.2f\n  slow: %s\n", "best", best.rate, best.latency,
		SLOW_RULE);
	if (*j->agreed.slots_near)
		fprintf(out, "  slots between NUMA nodes lie near the %s, which measured better\n",
			j->agreed.slots_near);
	print_crowds(out, j);
}

static void print_job(FILE *out, const struct job *j)
{
	print_ring(out, j);
	if (j->edges)
		print_edges(out, j);
	else if (j->probed)
		fprintf(out, "\nEdges\n  none: one rank sends to nobody\n");
}

void print_text(FILE *out, const struct machine *m, const struct job *j)
{
	char version[VERSION_TEXT];

	fprintf(out, "Kolo %s\n", tool_version_text(version));
	print_parts(out);
	print_machine(out, m);
	if (j)
		print_job(out, j);
	fprintf(out, "\n");
	print_environment_text(out);
}
