/* Sets up the grid, the tensor group and the pipeline. */
#include "tools/zerotrain/setup/parallel.h"
#include "tools/common/grid.h"
#include "tools/common/tool.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(const struct parallel *p, const char *doing, int status)
{
	fprintf(stderr, "zerotrain: rank %d: %s: %s\n", kolo_comm_rank(p->comm), doing,
		kolo_last_error());
	return status == KOLO_EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* Blocks are divided evenly: with 256 values embedding and head cost little beside one. */
static int divide(struct parallel *p, const struct options *o)
{
	int all = p->place.pipe_size * p->chunks, rc;
	int *bounds = calloc((size_t)all + 1, sizeof(*bounds));

	p->parts = calloc((size_t)p->chunks, sizeof(*p->parts));
	if (!bounds || !p->parts) {
		free(bounds);
		return kolo_error_set(KOLO_ENOMEM, "%d parts: out of memory", all);
	}
	rc = kolo_partition(KOLO_PARTITION_UNIFORM, NULL, o->model.layers, all, bounds);
	for (int c = 0; rc == 0 && c < p->chunks; c++) {
		int part = c * p->place.pipe_size + p->place.pipe;

		p->parts[c] = (struct part){
			.first = bounds[part],
			.end = bounds[part + 1],
			.buffers = p->pipeline ? kolo_pipeline_buffers(p->pipeline, part) : 1,
		};
	}
	free(bounds);
	return rc;
}

bool parallel_embeds(const struct parallel *p)
{
	return p->place.pipe == 0;
}

bool parallel_has_head(const struct parallel *p)
{
	return p->place.pipe == p->place.pipe_size - 1;
}

bool parallel_has(const struct parallel *p, const struct sizes *sizes, int tensor)
{
	for (int c = 0; c < p->chunks; c++)
		if (blocks_have(sizes, p->parts[c].first, p->parts[c].end, tensor))
			return true;
	return false;
}

/* ---- Open and close -------------------------------------------------------------------------- */

/* Of --context-parallel, as find_misfit. */
static bool find_context_misfit(const struct parallel *p, const struct options *o,
				struct grid_sizes s, char *out, size_t len)
{
	int n = o->spread_ranks, ranks = kolo_comm_nranks(p->comm) / (s.tensor * s.pipe);

	if (ranks % n)
		snprintf(
			out, len,
			"--context-parallel %d must divide the %d ranks that have the same weights",
			n, ranks);
	else if (o->model.context % (2 * n))
		snprintf(
			out, len,
			"--context-parallel %d: --context %d must be a multiple of %d, as each rank has two chunks of a sequence",
			n, o->model.context, 2 * n);
	else if (o->sequence && o->model.context / n % s.tensor)
		snprintf(
			out, len,
			"--sequence-parallel: --tp %d must divide the %d tokens that --context-parallel %d leaves a rank",
			s.tensor, o->model.context / n, n);
	else if (o->spread == ULYSSES && o->model.kv_heads / s.tensor % n)
		snprintf(
			out, len,
			"--context-by ulysses: --context-parallel %d must divide the %d heads of keys that a rank has: use ring",
			n, o->model.kv_heads / s.tensor);
	else if (o->exact)
		snprintf(
			out, len,
			"--exact with --context-parallel: parts of a sequence are added in an order of their own: leave one of them out");
	else if (o->sample && !o->cache)
		snprintf(
			out, len,
			"--cache off with --context-parallel: a text is computed whole, and this divides it: leave --cache out");
	else
		return false;
	return true;
}

/* Why the sizes do not fit, in out[len]. False: they do. */
static bool find_misfit(const struct parallel *p, const struct options *o, struct grid_sizes s,
			bool piped, char *out, size_t len)
{
	int parts = s.pipe * p->chunks;

	if (o->sequence && s.tensor == 1)
		snprintf(
			out, len,
			"--sequence-parallel: needs --tp 2 or more: it divides rows over these ranks");
	else if (o->model.heads % s.tensor || o->model.values % s.tensor)
		snprintf(out, len, "--tp %d must divide --heads %d and the %d values of a %s",
			 s.tensor, o->model.heads, o->model.values, o->tokens ? "token" : "byte");
	else if (o->model.kv_heads % s.tensor || o->model.inner % s.tensor)
		snprintf(out, len, "--tp %d must divide --kv-heads %d and --ffn %d", s.tensor,
			 o->model.kv_heads, o->model.inner);
	else if (o->exact && o->model.inner % segments_of(o))
		snprintf(out, len, "--exact: --ffn %d: must be a multiple of the %d segments",
			 o->model.inner, segments_of(o));
	else if (o->sequence && o->model.context % s.tensor)
		snprintf(
			out, len,
			"--sequence-parallel: --tp %d must divide --context %d, as each rank has equally many rows",
			s.tensor, o->model.context);
	else if (o->exact && segments_of(o) % s.tensor)
		snprintf(
			out, len,
			"--exact: %d heads of keys give %d segments, and --tp %d does not divide them",
			o->model.kv_heads, segments_of(o), s.tensor);
	else if (o->chunks > 1 && s.pipe == 1)
		snprintf(out, len, "--chunks %d: needs --pp 2 or more: one stage has all blocks",
			 o->chunks);
	else if (o->timeline && !piped)
		snprintf(
			out, len,
			"--timeline %s: needs --micro, --schedule or --pp: without a pipeline nothing is noted",
			o->timeline);
	else if (o->model.layers < parts)
		snprintf(out, len,
			 "--layers %d on %d stages of %d part%s: want at least a block for each",
			 o->model.layers, s.pipe, p->chunks, p->chunks > 1 ? "s" : "");
	else
		return o->spread_ranks != UNSET && find_context_misfit(p, o, s, out, len);
	return true;
}

/* Rank 0 says it, all leave. */
static int check_sizes(const struct parallel *p, const struct options *o, struct grid_sizes s,
		       bool piped)
{
	char text[512];

	if (!find_misfit(p, o, s, piped, text, sizeof(text)))
		return EXIT_GOOD;
	if (kolo_comm_rank(p->comm) == 0)
		fprintf(stderr, "zerotrain: %s\n", text);
	return EXIT_USAGE;
}

static int open_grid(struct parallel *p, struct grid_sizes sizes)
{
	int rc = kolo_grid_create(p->comm, sizes.tensor, sizes.pipe, &p->grid);

	if (rc == 0)
		p->place = *kolo_grid_here(p->grid);
	return rc;
}

/* Ranks of a context group follow each other on the data axis. */
static int open_context(struct parallel *p, const struct options *o)
{
	p->nparts = o->spread_ranks > 1 ? o->spread_ranks : 1;
	p->replicas = p->place.data_size / p->nparts;
	p->replica = p->place.data / p->nparts;
	p->part = p->place.data % p->nparts;
	return p->nparts > 1 ? kolo_comm_split(parallel_data(p), p->replica, p->part, &p->context)
			     : 0;
}

int parallel_open(struct kolo_comm *comm, const struct options *o, struct grid_sizes s,
		  struct parallel *p)
{
	bool piped = s.pipe > 1 || o->micros != UNSET || o->scheduled;
	int rc = 0;

	*p = (struct parallel){ .comm = comm,
				.micros = piped ? s.micros : 1,
				.chunks = tool_chunks(o->schedule, s.pipe, o->chunks) };
	p->place = (struct kolo_grid_place){ 1, kolo_comm_nranks(comm), 1,
					     0, kolo_comm_rank(comm),   0 };
	if ((rc = check_sizes(p, o, s, piped)))
		return rc;
	if ((piped || s.tensor > 1) && (rc = open_grid(p, s)) < 0)
		return failed(p, "--tp and --pp", rc);
	if ((rc = open_context(p, o)) < 0)
		return failed(p, "--context-parallel", rc);
	if (piped && (rc = kolo_pipeline_create(o->schedule, s.pipe, p->chunks, p->micros,
						&p->pipeline)) < 0)
		return failed(p, "--schedule", rc);
	if ((rc = divide(p, o)) < 0 ||
	    (rc = model_group(p->grid ? kolo_grid_comm(p->grid, KOLO_GRID_TENSOR) : NULL,
			      o->sequence, segments_of(o), &p->group)) < 0)
		return failed(p, "--tp", rc);
	return EXIT_GOOD;
}

int parallel_connect(struct parallel *p, size_t n)
{
	return p->pipeline ? kolo_pipeline_executor_create(kolo_grid_comm(p->grid, KOLO_GRID_PIPE),
							   p->pipeline, n, KOLO_F32, &p->executor)
			   : 0;
}

void parallel_close(struct parallel *p)
{
	kolo_pipeline_executor_destroy(p->executor);
	kolo_tp_destroy(p->group);
	kolo_comm_destroy(p->context);
	kolo_pipeline_destroy(p->pipeline);
	kolo_grid_destroy(p->grid);
	free(p->parts);
}

struct kolo_comm *parallel_data(const struct parallel *p)
{
	return p->grid ? kolo_grid_comm(p->grid, KOLO_GRID_DATA) : p->comm;
}
