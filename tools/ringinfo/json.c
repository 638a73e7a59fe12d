/* Prints everything as one JSON object. tools/ringinfo/README.md lists its fields. */
#include "tools/common/json.h"
#include "tools/ringinfo/ringinfo.h"

/* ---- Values ---------------------------------------------------------------------------------- */

static void put_field(FILE *out, const char *name, const char *value)
{
	fprintf(out, ", \"%s\": ", name);
	tool_put_json_text(out, value);
}

static const char *truth(bool x)
{
	return x ? "true" : "false";
}

/* What stands before the element number i of a list. */
static const char *separator(int i)
{
	return i ? ",\n  " : "\n  ";
}

/* ---- The library ----------------------------------------------------------------------------- */

static void put_parts(FILE *out)
{
	struct kolo_part_info part;

	fprintf(out, " \"parts\": [");
	for (int i = 0; kolo_part_get(i, &part) == 0; i++) {
		fprintf(out, "%s{\"built\": %s, \"usable\": %s", separator(i), truth(part.built),
			truth(part.usable));
		put_field(out, "kind", part.kind);
		put_field(out, "name", part.name);
		put_field(out, "reason", part.reason);
		fprintf(out, "}");
	}
	fprintf(out, "],\n");
}

static void put_environment(FILE *out)
{
	struct kolo_env_info info;
	struct foreign foreign;
	char name[128];

	fprintf(out, " \"environment\": [");
	for (int i = 0; kolo_env_get(i, &info) == 0; i++) {
		fprintf(out, "%s{\"set\": %s, \"good\": %s", separator(i),
			truth(info.value != NULL), truth(info.good));
		put_field(out, "name", info.name);
		put_field(out, "value", info.secret ? NULL : info.value);
		put_field(out, "default", info.preset[0] ? info.preset : NULL);
		put_field(out, "range", info.range);
		put_field(out, "help", info.help);
		fprintf(out, "}");
	}
	fprintf(out, "],\n \"unknown\": [");
	for (int at = 0, n = 0; next_unknown(&at, name, sizeof(name)); n++) {
		fprintf(out, "%s", n ? ", " : "");
		tool_put_json_text(out, name);
	}
	fprintf(out, "],\n \"nccl\": [");
	for (int at = 0, n = 0; next_of_nccl(&at, &foreign); n++) {
		fprintf(out, "%s{\"used\": %s", separator(n), truth(foreign.used));
		put_field(out, "name", foreign.name);
		put_field(out, "value", foreign.value);
		put_field(out, "help", foreign.help);
		fprintf(out, "}");
	}
	fprintf(out, "]");
}

/* ---- The machine ----------------------------------------------------------------------------- */

static void put_nodes(FILE *out, const struct node *node)
{
	for (const struct node *first = node; node; node = node->next) {
		fprintf(out, "%s{\"count\": %d", node == first ? "" : ", ", node->count);
		put_field(out, "what", node->what);
		put_field(out, "name", node->name);
		put_field(out, "detail", node->detail);
		put_field(out, "cpus", node->cpus);
		fprintf(out, ", \"children\": [");
		put_nodes(out, node->children);
		fprintf(out, "]}");
	}
}

static void put_matrix(FILE *out, const struct matrix *m)
{
	fprintf(out, "{\"between\": [");
	for (int i = 0; i < m->n; i++) {
		fprintf(out, "%s", i ? ", " : "");
		tool_put_json_text(out, m->labels[i]);
	}
	fprintf(out, "]");
	put_field(out, "name", m->name);
	fprintf(out, ", \"values\": [");
	for (int i = 0; i < m->n * m->n; i++)
		fprintf(out, "%s%llu%s",
			i % m->n ? ", "
			: i      ? ", ["
				 : "[",
			(unsigned long long)m->values[i], (i + 1) % m->n ? "" : "]");
	fprintf(out, "]}");
}

static void put_machine(FILE *out, const struct machine *m)
{
	int n = 0;

	fprintf(out, " \"machine\": ");
	put_nodes(out, m->root);
	fprintf(out, ",\n \"distances\": [");
	for (const struct matrix *d = m->distances; d; d = d->next) {
		fprintf(out, "%s", separator(n++));
		put_matrix(out, d);
	}
	fprintf(out, "],\n");
}

/* ---- The job --------------------------------------------------------------------------------- */

static void put_time(FILE *out, const char *name, double us)
{
	if (us < 0)
		fprintf(out, ", \"%s\": null", name);
	else
		fprintf(out, ", \"%s\": %.3f", name, us);
}

/* Expected times of the range's first and last size; null: there are none. */
static void put_times(FILE *out, const struct job *j, const struct kolo_algorithm *row)
{
	double first = kolo_algorithm_time(j->comm, row, row->min_bytes);
	double last = row->max_bytes == UINT64_MAX
			      ? -1
			      : kolo_algorithm_time(j->comm, row, row->max_bytes);

	put_time(out, "min_us", first);
	put_time(out, "max_us", last);
}

static void put_algorithms(FILE *out, const struct job *j)
{
	struct kolo_algorithm row;

	for (int i = 0; kolo_algorithm_get(j->comm, i, &row) == 0; i++) {
		fprintf(out, "%s{\"min_bytes\": %llu, \"max_bytes\": ", separator(i),
			(unsigned long long)row.min_bytes);
		if (row.max_bytes == UINT64_MAX)
			fprintf(out, "null");
		else
			fprintf(out, "%llu", (unsigned long long)row.max_bytes);
		put_field(out, "collective", row.collective);
		put_field(out, "algorithm", row.name);
		put_field(out, "memory", row.memory);
		put_times(out, j, &row);
		fprintf(out, "}");
	}
}

static void put_ring(FILE *out, const struct job *j)
{
	fprintf(out,
		" \"ring\": {\"launcher\": \"%s\", \"nranks\": %d, \"nslots\": %llu, \"slot_len\": %llu,\n"
		"  \"algorithms\": [",
		j->environment.launcher, j->nranks, (unsigned long long)j->agreed.nslots,
		(unsigned long long)j->agreed.slot_len);
	put_algorithms(out, j);
	fprintf(out, "],\n  \"hop_us\": %.3f", j->agreed.hop_us);
	put_field(out, "order", j->order);
	put_field(out, "slots_near", j->agreed.slots_near);
	fprintf(out, ", \"ranks\": [");
	for (int r = 0; r < j->nranks; r++) {
		const struct rank_facts *f = &j->ranks[r];

		fprintf(out, "%s{\"rank\": %d, \"next\": %d, \"pid\": %d, \"processors\": %d",
			separator(r), r, f->next, f->pid, f->processors);
		put_field(out, "transport", f->transport);
		put_field(out, "stores", f->stores);
		put_field(out, "cpus", f->cpus);
		put_field(out, "host", f->host);
		fprintf(out, "}");
	}
	fprintf(out, "]},\n");
}

static void put_edges(FILE *out, const struct job *j)
{
	struct edge best = { 0 };

	fprintf(out, " \"probe\": {\"slow_rule\": \"" SLOW_RULE "\", ");
	if (j->edges) {
		best = find_best(j->edges, j->nranks);
		fprintf(out, "\"best_GBs\": %.6f, \"best_us\": %.3f", best.rate, best.latency);
	} else {
		fprintf(out, "\"best_GBs\": null, \"best_us\": null");
	}
	fprintf(out, ", \"edges\": [");
	for (int r = 0; j->edges && r < j->nranks; r++) {
		const struct edge *e = &j->edges[r];

		fprintf(out,
			"%s{\"from\": %d, \"to\": %d, \"rate_GBs\": %.6f, \"latency_us\": %.3f, \"wrong\": %llu, "
			"\"slow\": %s}",
			separator(r), r, j->ranks[r].next, e->rate, e->latency,
			(unsigned long long)e->wrong, truth(edge_is_slow(e, &best)));
	}
	fprintf(out, "]},\n");
}

void print_json(FILE *out, const struct machine *m, const struct job *j)
{
	char version[VERSION_TEXT];

	fprintf(out, "{\"version\": \"%s\",\n", tool_version_text(version));
	put_parts(out);
	put_machine(out, m);
	if (j)
		put_ring(out, j);
	else
		fprintf(out, " \"ring\": null,\n");
	if (j && j->probed)
		put_edges(out, j);
	else
		fprintf(out, " \"probe\": null,\n");
	put_environment(out);
	fprintf(out, "}\n");
}

void print_environment_json(FILE *out)
{
	fprintf(out, "{");
	put_environment(out);
	fprintf(out, "}\n");
}
