/* Prints results as they come, on rank 0: the table, JSON and CSV. It also adds them to the
 * plot. */
#include "tools/ringbench/plot.h"

#include <stdlib.h>
#include <unistd.h>

static double busbw_factor(enum collective coll, int nranks)
{
	double share = (double)(nranks - 1) / nranks;

	if (coll == ALL_REDUCE)
		return 2 * share;
	return collective_is_per_rank(coll) ? share : 1;
}

void report_header(const struct bench *b)
{
	char host[65] = "", version[VERSION_TEXT];

	if (b->csv)
		fprintf(b->csv,
			"collective,type,op,root,ranks,transport,algorithm,ran,memory,in_flight,in_place,bytes,count,iterations,time_us,"
			"time_us_min,time_us_p99,algbw_GBs,busbw_GBs,wrong,sent_bytes,model_bytes,traffic_ok,with_barrier,order,common_start\n");
	if (!b->table)
		return;
	gethostname(host, sizeof(host) - 1);
	fprintf(b->table, "# ringbench, Kolo %s\n", tool_version_text(version));
	fprintf(b->table,
		"# %d ranks on %s (%ld processors), transport %s, algorithm %s, order %s, %llu slots of %llu KiB per link\n",
		b->nranks, host, sysconf(_SC_NPROCESSORS_ONLN), b->transport, b->algorithm,
		kolo_comm_order(b->comm), (unsigned long long)b->agreed.nslots,
		(unsigned long long)b->agreed.slot_len >> 10);
	fprintf(b->table,
		"# time: median of the slowest rank. sent, model: bytes per operation of the rank that sends most; a\n"
		"# '!' marks a rank whose traffic differs from the model. #wrong: elements that differ from the\n"
		"# sequential result.%s\n",
		b->options->check ? "" : " Not checked (-c 0).");
	if (b->gpu)
		fprintf(b->table,
			"# buffers on GPUs (rank 0: number %d, %s), %d on a stream at a time\n",
			gpu_number(b->gpu), gpu_name(b->gpu), b->options->in_flight);
	else if (b->options->in_flight)
		fprintf(b->table, "# %d in a queue at a time\n", b->options->in_flight);
	if (b->options->with_barrier)
		fprintf(b->table, "# time is that of a barrier and the operation after it\n");
	if (b->options->common_start)
		fprintf(b->table, "# time counts from when all ranks begin, by the host's clock\n");
}

/* A power of two as "32 KiB", else bytes. */
static const char *size_text(uint64_t bytes, char out[32])
{
	if (bytes >= 1024 && bytes % 1024 == 0)
		snprintf(out, 32, "%llu KiB", (unsigned long long)bytes >> 10);
	else
		snprintf(out, 32, "%llu B", (unsigned long long)bytes);
	return out;
}

static void print_choices(const struct bench *b, const struct kolo_link_stats *links)
{
	struct kolo_algorithm row;
	char size[32];

	for (int r = 0; b->nranks > 1 && r < b->nranks; r++)
		fprintf(b->table, "# link %d -> %d: %s, %s stores, %.2f GB/s one way\n", r,
			links[r].peer, links[r].transport, links[r].stores, links[r].rate);
	if (b->nranks > 1)
		fprintf(b->table, "# a hop takes %.2f us%s%s\n", b->agreed.hop_us,
			*b->agreed.slots_near ? "; slots between NUMA nodes lie near the " : "",
			b->agreed.slots_near);
	for (int i = 0; kolo_algorithm_get(b->comm, i, &row) == 0; i++) {
		fprintf(b->table, "# %-14s %-6s %-5s from %s", row.collective, row.name, row.memory,
			size_text(row.min_bytes, size));
		if (row.max_bytes != UINT64_MAX)
			fprintf(b->table, " to %s", size_text(row.max_bytes, size));
		fprintf(b->table, "\n");
	}
}

int report_choices(struct bench *b)
{
	struct kolo_link_stats *links;
	int rc;

	if (!b->options->verbose)
		return 0;
	links = calloc((size_t)b->nranks, sizeof(*links));
	if (!links)
		return KOLO_ENOMEM;
	rc = kolo_all_gather(b->comm, &b->agreed.to_next, links, sizeof(*links), KOLO_U8, NULL);
	if (rc == 0 && b->table)
		print_choices(b, links);
	free(links);
	return rc;
}

static void group_header(const struct bench *b, const char *title)
{
	fprintf(b->table, "  %-61s", title);
}

void report_collective(const struct bench *b, enum collective coll)
{
	int places = 0;

	if (!b->table)
		return;
	fprintf(b->table, "#\n# %-42s", collective_name(coll));
	for (int in_place = 0; in_place <= 1; in_place++) {
		if (is_measured(b->options, coll, in_place))
			group_header(b, in_place ? "in place" : "out of place");
		places += is_measured(b->options, coll, in_place);
	}
	fprintf(b->table, "\n# %11s %11s %7s %5s %4s", "size", "count", "type", "op", "root");
	for (int i = 0; i < places; i++)
		fprintf(b->table, "  %10s %8s %8s %7s %11s %11s ", "time", "algbw", "busbw",
			"#wrong", "sent", "model");
	fprintf(b->table, "\n# %11s %11s %7s %5s %4s", "(B)", "(elements)", "", "", "");
	for (int i = 0; i < places; i++)
		fprintf(b->table, "  %10s %8s %8s %7s %11s %11s ", "(us)", "(GB/s)", "(GB/s)", "",
			"(B)", "(B)");
	fprintf(b->table, "\n");
	fflush(b->table);
}

void report_job(const struct bench *b, const struct job *j)
{
	char root[16] = "-";

	if (b->progress)
		fprintf(stderr, "\r\033[K%s %s %s %zu bytes ...", collective_name(j->coll),
			kolo_type_name(j->type),
			collective_reduces(j->coll) ? kolo_op_name(j->op) : "", j->bytes);
	if (!b->table)
		return;
	if (collective_has_root(j->coll))
		snprintf(root, sizeof(root), "%d", j->root);
	fprintf(b->table, "  %11zu %11zu %7s %5s %4s", j->bytes, j->n, kolo_type_name(j->type),
		collective_reduces(j->coll) ? kolo_op_name(j->op) : "-", root);
	fflush(b->table); /* a person sees what is being measured */
}

static uint64_t most(const uint64_t *x, int n)
{
	uint64_t m = 0;

	for (int i = 0; i < n; i++)
		m = x[i] > m ? x[i] : m;
	return m;
}

/* GB/s; 0 for no bytes. */
static double algbw(const struct job *j, const struct result *r)
{
	return r->median_us > 0 ? (double)j->bytes / r->median_us / 1e3 : 0;
}

static const char *op_name(const struct job *j)
{
	return collective_reduces(j->coll) ? kolo_op_name(j->op) : "none";
}

static void report_table(const struct bench *b, const struct job *j, const struct result *r)
{
	char wrong[24] = "-";

	if (b->options->check)
		snprintf(wrong, sizeof(wrong), "%llu", (unsigned long long)r->wrong);
	fprintf(b->table, "  %10.2f %8.2f %8.2f %7s %11llu %11llu%c", r->median_us, algbw(j, r),
		algbw(j, r) * busbw_factor(j->coll, b->nranks), wrong,
		(unsigned long long)most(r->sent, b->nranks),
		(unsigned long long)most(r->model, b->nranks), r->traffic_ok ? ' ' : '!');
}

static void write_list(FILE *out, const uint64_t *x, int n, char between)
{
	fprintf(out, "%llu", (unsigned long long)x[0]);
	for (int i = 1; i < n; i++)
		fprintf(out, "%c%llu", between, (unsigned long long)x[i]);
}

static void report_json(const struct bench *b, const struct job *j, bool in_place,
			const struct result *r)
{
	fprintf(b->json,
		"{\"collective\": \"%s\", \"type\": \"%s\", \"op\": \"%s\", \"root\": %d, \"ranks\": %d, "
		"\"transport\": \"%s\", \"algorithm\": \"%s\", \"ran\": \"%s\", \"memory\": \"%s\", \"in_flight\": %d, \"in_place\": %s, "
		"\"bytes\": %zu, "
		"\"count\": %zu, \"iterations\": %d, \"time_us\": %.3f, \"time_us_min\": %.3f, \"time_us_p99\": %.3f, "
		"\"algbw_GBs\": %.6f, \"busbw_GBs\": %.6f, ",
		collective_name(j->coll), kolo_type_name(j->type), op_name(j), j->root, b->nranks,
		b->transport, b->algorithm, r->ran, memory_name(b->options->memory),
		b->options->in_flight, in_place ? "true" : "false", j->bytes, j->n, r->iterations,
		r->median_us, r->min_us, r->p99_us, algbw(j, r),
		algbw(j, r) * busbw_factor(j->coll, b->nranks));
	if (b->options->check)
		fprintf(b->json, "\"wrong\": %llu, ", (unsigned long long)r->wrong);
	else
		fprintf(b->json, "\"wrong\": null, ");
	fprintf(b->json, "\"sent_bytes\": [");
	write_list(b->json, r->sent, b->nranks, ',');
	fprintf(b->json, "], \"model_bytes\": [");
	write_list(b->json, r->model, b->nranks, ',');
	fprintf(b->json, "], \"traffic_ok\": %s, \"with_barrier\": %s, \"order\": \"%s\", ",
		r->traffic_ok ? "true" : "false", b->options->with_barrier ? "true" : "false",
		kolo_comm_order(b->comm));
	fprintf(b->json, "\"common_start\": %s}\n", b->options->common_start ? "true" : "false");
	fflush(b->json);
}

static void report_csv(const struct bench *b, const struct job *j, bool in_place,
		       const struct result *r)
{
	fprintf(b->csv, "%s,%s,%s,%d,%d,%s,%s,%s,%s,%d,%d,%zu,%zu,%d,%.3f,%.3f,%.3f,%.6f,%.6f,",
		collective_name(j->coll), kolo_type_name(j->type), op_name(j), j->root, b->nranks,
		b->transport, b->algorithm, r->ran, memory_name(b->options->memory),
		b->options->in_flight, in_place, j->bytes, j->n, r->iterations, r->median_us,
		r->min_us, r->p99_us, algbw(j, r), algbw(j, r) * busbw_factor(j->coll, b->nranks));
	if (b->options->check)
		fprintf(b->csv, "%llu", (unsigned long long)r->wrong);
	fprintf(b->csv, ",");
	write_list(b->csv, r->sent, b->nranks, ';');
	fprintf(b->csv, ",");
	write_list(b->csv, r->model, b->nranks, ';');
	fprintf(b->csv, ",%d,%d,%s,%d\n", r->traffic_ok, b->options->with_barrier,
		kolo_comm_order(b->comm), b->options->common_start);
	fflush(b->csv);
}

static void report_plot(const struct bench *b, const struct job *j, bool in_place,
			const struct result *r)
{
	struct plot_row row = {
		.source = "this run",
		.collective = collective_name(j->coll),
		.type = kolo_type_name(j->type),
		.op = op_name(j),
		.transport = b->transport,
		.algorithm = b->algorithm,
		.memory = memory_name(b->options->memory),
		.root = j->root,
		.ranks = b->nranks,
		.in_place = in_place,
		.bytes = (double)j->bytes,
		.algbw = algbw(j, r),
		.busbw = algbw(j, r) * busbw_factor(j->coll, b->nranks),
	};

	plot_add(b->plot, &row);
}

void report_result(const struct bench *b, const struct job *j, bool in_place,
		   const struct result *r)
{
	if (b->table)
		report_table(b, j, r);
	if (b->json)
		report_json(b, j, in_place, r);
	if (b->csv)
		report_csv(b, j, in_place, r);
	if (b->plot)
		report_plot(b, j, in_place, r);
}

void report_end_of_row(const struct bench *b)
{
	if (!b->table)
		return;
	fprintf(b->table, "\n");
	fflush(b->table);
}

void report_left_out(const struct bench *b, enum collective coll)
{
	if (b->table)
		fprintf(b->table,
			"# %s is left out: no size holds an element of the chosen types%s\n",
			collective_name(coll),
			coll == SEND_RECV && b->nranks == 1 ? ", and there is no other rank"
			: collective_is_per_rank(coll)      ? " for each rank"
							    : "");
}

void report_footer(const struct bench *b, uint64_t wrong, bool traffic_ok)
{
	if (b->progress)
		fprintf(stderr, "\r\033[K");
	if (!b->table)
		return;
	fprintf(b->table, "#\n# %llu wrong elements%s; traffic %s\n", (unsigned long long)wrong,
		b->options->check ? "" : " (not checked)",
		traffic_ok ? "as the model says" : "DIFFERS FROM THE MODEL");
}
