/* What several ranks for a replica come to: the stage with most memory, its activations as
 * zerotrain has them, and the bytes that its tensor group and the pipeline send. kolo_parallel.h
 * has the formulas of both. */
#include "tools/common/grid.h"
#include "tools/zeroplan/zeroplan.h"
#include "tools/zerotrain/model/tensors.h"

#include <stdlib.h>

/* Rows of attention that are computed together (QUERIES in tools/zerotrain/model/inside.h). */
enum { QUERIES = 32 };

#define MOST_BYTES ((size_t)1 << 62) /* what is more is shown as this, and fits nowhere */

/* The sizes that all formulas have, as model.h has their letters. */
struct letters {
	double n, own, d, t, size, wide, shares, values; /* N, O, D, T, G, D / G, H T / G, V / G */
};

static struct letters letters_of(const struct options *o)
{
	double size = o->tensor, n = (double)o->batch * o->context;

	return (struct letters){
		.n = n,
		.own = o->sequence ? n / size : n,
		.d = o->dim,
		.t = o->context,
		.size = size,
		.wide = o->dim / size,
		.shares = o->heads / size * o->context,
		.values = o->vocab / size,
	};
}

static bool is_first(const struct grid *g)
{
	return g->stage == 0;
}

static bool is_last(const struct options *o, const struct grid *g)
{
	return g->stage == o->pipe - 1;
}

/* The part of the model that chunk number `chunk` of the stage is. */
static int part_of(const struct options *o, const struct grid *g, int chunk)
{
	return chunk * o->pipe + g->stage;
}

bool grid_has(const struct options *o, const struct grid *g, int tensor)
{
	struct sizes sizes = { .layers = o->layers };

	for (int c = 0; g->bounds && c < g->chunks; c++) {
		const int *bounds = &g->bounds[part_of(o, g, c)];

		if (blocks_have(&sizes, bounds[0], bounds[1], tensor))
			return true;
	}
	return !g->bounds && tensor_is_there(&sizes, tensor); /* no grid: all */
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Floats that zerotrain keeps of a block (take_slot in tools/zerotrain/model/memory.c). */
static double slot_floats(const struct options *o, const struct letters *l)
{
	double floats = 4 * l->own + 2 * l->n * l->d + l->own * l->d;

	floats += l->n * (12 * l->wide + l->shares);
	if (o->schedule == KOLO_PIPELINE_ZB_H1 && o->micros)
		floats += l->n * (7 * l->wide + 2 * l->d);
	return floats;
}

/* Floats of a batch in a part. */
static double kept_floats(const struct options *o, const struct letters *l, int first, int end)
{
	int blocks = end - first, segment = o->recompute, segments;
	double floats;

	segment = segment && segment < blocks ? segment : blocks;
	segments = (blocks + segment - 1) / segment;
	/* The input of each block of a segment, and of each segment: a later stage's first one is
	 * between stages. */
	floats = segment * slot_floats(o, l) +
		 (segment - 1 + segments - (first > 0)) * l->own * l->d;
	if (end == o->layers)
		floats += l->own * (l->d + 2) + l->n * (l->d + l->values);
	return floats;
}

static double scratch_floats(const struct letters *l)
{
	return l->n + l->own * l->d + l->n * l->d + 4 * l->n * l->wide + QUERIES * l->t +
	       4 * l->d * l->wide + 4 * l->d + l->values * l->d + l->t * l->d + 2 * l->d;
}

static size_t elements_of(const struct options *o, const struct grid *g)
{
	struct sizes sizes = { .layers = o->layers,
			       .values = o->vocab,
			       .dim = o->dim,
			       .heads = o->heads,
			       .context = o->context,
			       .tensor_size = o->tensor };
	size_t elements = 0;

	for (int i = 0; i < tensor_count(&sizes); i++)
		if (grid_has(o, g, i))
			elements += tensor_shape_of(&sizes, i).n;
	return elements;
}

/* No more than numbers of bytes can be. */
static size_t limit_bytes(double bytes)
{
	return bytes < (double)MOST_BYTES ? (size_t)bytes : MOST_BYTES;
}

static void plan_memory(const struct options *o, const struct kolo_pipeline *p, struct grid *g)
{
	struct letters l = letters_of(o);
	double floats = scratch_floats(&l);

	g->kept = 0;
	for (int c = 0; c < g->chunks; c++) {
		int part = part_of(o, g, c), buffers = p ? kolo_pipeline_buffers(p, part) : 1;

		floats += buffers * kept_floats(o, &l, g->bounds[part], g->bounds[part + 1]);
		g->kept += buffers;
	}
	g->activations = limit_bytes(floats * sizeof(float));
	/* The embedding's gradients, and the head's. */
	if (p)
		g->sums =
			limit_bytes((is_first(g) + is_last(o, g)) * l.values * l.d * sizeof(float));
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Of a micro-batch, in units of (G - 1) / G bytes. */
static double group_bytes(const struct options *o, const struct grid *g)
{
	struct letters l = letters_of(o);
	double matrix = l.n * l.d * sizeof(float), norms = 0, bytes = 0;
	int blocks = 0;

	for (int c = 0; c < g->chunks; c++)
		blocks += g->bounds[part_of(o, g, c) + 1] - g->bounds[part_of(o, g, c)];
	norms = 2 * blocks + is_last(o, g);
	bytes = 8 * blocks * matrix;
	if (is_first(g))
		bytes += 2 * matrix;
	if (is_last(o, g))
		bytes += 2 * matrix + 6.0 * 8 * l.n;
	/* Sums of the gradients of gains, biases and places */
	if (o->sequence)
		bytes += 2.0 * sizeof(float) * (2.0 * l.d * norms + (is_first(g) ? l.t * l.d : 0));
	return bytes;
}

static void plan_bytes(const struct options *o, int accumulation, struct grid *g)
{
	struct letters l = letters_of(o);
	int micros = o->micros ? o->micros : accumulation, sends = 0;

	if (o->tensor > 1)
		g->tensor_bytes =
			limit_bytes(micros * group_bytes(o, g) * (o->tensor - 1) / o->tensor);
	/* Each part sends its output to the next, and a gradient to the one before. */
	for (int c = 0; o->pipe > 1 && c < g->chunks; c++) {
		int part = part_of(o, g, c);

		sends += (part > 0) + (part < o->pipe * g->chunks - 1);
	}
	g->pipe_bytes = limit_bytes((double)micros * sends * l.own * l.d * sizeof(float));
}

/* ---- The stage ------------------------------------------------------------------------------- */

/* Stage 0 of ZeRO with Adam, beside activations: enough to find the stage with most. */
static size_t weight_of(const struct options *o, const struct grid *g)
{
	size_t elements = elements_of(o, g), sums = o->micros > 1 ? 4 * elements : 0;

	return g->activations + g->sums + sums + 16 * elements / (size_t)g->replicas;
}

static int refuse(const char *what)
{
	fprintf(stderr, "zeroplan: %s: %s\n", what, kolo_last_error());
	return EXIT_USAGE;
}

static int check_sizes(const struct options *o)
{
	if (o->activations && (o->heads % o->tensor || o->vocab % o->tensor))
		fprintf(stderr, "zeroplan: --tp %d must divide --heads %d and --vocab %d\n",
			o->tensor, o->heads, o->vocab);
	else if (o->sequence && (o->tensor == 1 || o->context % o->tensor))
		fprintf(stderr,
			"zeroplan: --sequence-parallel: needs a --tp of 2 or more (%d) that divides --context %d\n",
			o->tensor, o->context);
	else if (o->chunks && o->schedule != KOLO_PIPELINE_INTERLEAVED)
		fprintf(stderr,
			"zeroplan: --chunks %d: needs --schedule interleaved: other schedules have one part in each stage\n",
			o->chunks);
	else
		return EXIT_GOOD;
	return EXIT_USAGE;
}

static int divide_blocks(const struct options *o, struct grid *g)
{
	int parts = o->pipe * g->chunks;

	if (o->layers < parts) {
		fprintf(stderr,
			"zeroplan: --layers %d in %d parts of a pipeline: want at least a block for each\n",
			o->layers, parts);
		return EXIT_USAGE;
	}
	g->bounds = calloc((size_t)parts + 1, sizeof(*g->bounds));
	if (!g->bounds || kolo_partition(KOLO_PARTITION_UNIFORM, NULL, o->layers, parts, g->bounds))
		return EXIT_FAILED;
	return EXIT_GOOD;
}

static void choose_stage(const struct options *o, const struct kolo_pipeline *p, struct grid *g)
{
	size_t most = 0;
	int best = 0;

	for (g->stage = 0; g->stage < o->pipe; g->stage++) {
		plan_memory(o, p, g);
		if (weight_of(o, g) > most) {
			most = weight_of(o, g);
			best = g->stage;
		}
	}
	g->stage = best;
	plan_memory(o, p, g);
}

static void plan_bubble(const struct kolo_pipeline *p, struct grid *g)
{
	const struct kolo_pipeline_times times = { 1, 1, 1, 0, { 0 } };
	struct kolo_pipeline_figures figures;

	if (kolo_pipeline_estimate(p, &times, &figures) < 0)
		return;
	g->bubble_share = figures.idle_share;
	g->bubble_ratio = figures.bubble_ratio;
}

int plan_grid(const struct options *o, int accumulation, struct grid *g)
{
	struct kolo_grid_place place;
	struct kolo_pipeline *p = NULL;
	int rc = check_sizes(o);

	*g = (struct grid){ .chunks = tool_chunks(o->schedule, o->pipe, o->chunks) };
	if (rc)
		return rc;
	if (kolo_grid_locate(o->nranks, o->tensor, o->pipe, 0, &place) < 0)
		return refuse("--tp and --pp");
	g->replicas = place.data_size;
	if (!o->activations)
		return EXIT_GOOD;
	if (o->micros && kolo_pipeline_create(o->schedule, o->pipe, g->chunks, o->micros, &p) < 0)
		return refuse("--schedule");
	rc = divide_blocks(o, g);
	if (rc == EXIT_GOOD) {
		choose_stage(o, p, g);
		plan_bytes(o, accumulation, g);
	}
	if (rc == EXIT_GOOD && p)
		plan_bubble(p, g);
	kolo_pipeline_destroy(p);
	return rc;
}

void free_grid(struct grid *g)
{
	free(g->bounds);
}
