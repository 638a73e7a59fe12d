/* Tensor parallelism: a small net on 1 to 4 ranks has the loss and the gradients of one rank, with
 * segments bit for bit; gradients are those of finite differences; bytes; refusals. */
#include "kolo/kolo_parallel.h"
#include "tests/lib/t.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ids -> embedding -> column-parallel (3 fused) -> q k + v -> row-parallel -> + -> head -> loss.
 * `H` hidden, `V` vocabulary, `N` rows. */
enum { H = 12, V = 24, N = 36 };
enum { TABLE, MIX, MIX_BIAS, PROJECT, PROJECT_BIAS, GAIN, TENSORS };

/* A whole tensor, and which part of it a rank of T has: rows or columns of each of `fused`
 * matrices, or all. */
static const struct {
	size_t rows, columns, fused;
	enum { ROWS, COLUMNS, ALL } divided;
} tensors[TENSORS] = {
	[TABLE] = { V, H, 1, ROWS },        [MIX] = { 3 * H, H, 3, ROWS },
	[MIX_BIAS] = { 3 * H, 1, 3, ROWS }, [PROJECT] = { H, H, 1, COLUMNS },
	[PROJECT_BIAS] = { H, 1, 1, ALL },  [GAIN] = { H, 1, 1, ALL },
};

static size_t elements(int t)
{
	return tensors[t].rows * tensors[t].columns;
}

struct net {
	enum kolo_type type;
	size_t size, rank, elem;
	int sequence;
	struct kolo_tp *tp;
	char *w[TENSORS], *g[TENSORS]; /* this rank's parts */
	int32_t ids[N], targets[N];
	char *x, *scaled, *mixed, *dmixed, *heads, *dheads, *y, *logits, *dx;
	double loss;
};

/* ---- Numbers of either type ------------------------------------------------------------------ */

static double get(const struct net *n, const char *x, size_t i)
{
	return n->type == KOLO_F32 ? (double)((const float *)(const void *)x)[i]
				   : ((const double *)(const void *)x)[i];
}

static void put(const struct net *n, char *x, size_t i, double value)
{
	if (n->type == KOLO_F32)
		((float *)(void *)x)[i] = (float)value;
	else
		((double *)(void *)x)[i] = value;
}

static void product(void *arg, size_t m, size_t n, size_t k, const struct kolo_tp_matrix *a,
		    const struct kolo_tp_matrix *b, int add, void *c, size_t stride)
{
	const struct net *net = arg;

	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++) {
			double sum = 0;

			for (size_t l = 0; l < k; l++)
				sum += get(net, a->at,
					   a->transposed ? l * a->stride + i : i * a->stride + l) *
				       get(net, b->at,
					   b->transposed ? j * b->stride + l : l * b->stride + j);
			put(net, c, i * stride + j, sum + (add ? get(net, c, i * stride + j) : 0));
		}
}

/* The index in the whole tensor of a part's element. */
static size_t whole_index(int t, size_t size, size_t rank, size_t i)
{
	size_t rows = tensors[t].rows / tensors[t].fused, columns = tensors[t].columns;
	size_t own, fused, within;

	if (tensors[t].divided == ALL)
		return i;
	if (tensors[t].divided == COLUMNS) {
		own = columns / size;
		return i / own * columns + rank * own + i % own;
	}
	own = rows / size * columns;
	fused = i / own;
	within = i % own;
	return fused * rows * columns + rank * own + within;
}

static size_t part_elements(int t, size_t size)
{
	return tensors[t].divided == ALL ? elements(t) : elements(t) / size;
}

static double weight(int t, size_t i)
{
	unsigned x = (unsigned)(i * 16 + (size_t)t) * 2654435761u;

	x = (x ^ x >> 15) * 2246822519u;
	return (double)(x >> 8) / (1 << 24) - 0.5 + (t == GAIN);
}

/* ---- The net --------------------------------------------------------------------------------- */

static char *room(struct net *n, size_t count)
{
	char *x = calloc(count, n->elem);

	CHECK(x);
	return x;
}

static void open_net(struct net *n, struct kolo_comm *comm, enum kolo_type type, int sequence,
		     int segments)
{
	struct kolo_tp_config c = { .type = type,
				    .sequence = sequence,
				    .segments = segments,
				    .product = product,
				    .arg = n };

	*n = (struct net){ .type = type,
			   .size = comm ? (size_t)kolo_comm_nranks(comm) : 1,
			   .rank = comm ? (size_t)kolo_comm_rank(comm) : 0,
			   .elem = kolo_type_size(type),
			   .sequence = sequence };
	CHECK(kolo_tp_create(comm, &c, &n->tp) == 0);
	for (int t = 0; t < TENSORS; t++) {
		n->w[t] = room(n, part_elements(t, n->size));
		n->g[t] = room(n, part_elements(t, n->size));
		for (size_t i = 0; i < part_elements(t, n->size); i++)
			put(n, n->w[t], i, weight(t, whole_index(t, n->size, n->rank, i)));
	}
	for (int r = 0; r < N; r++) {
		n->ids[r] = (r * 7 + 3) % V;
		n->targets[r] = r % 4 == 2 ? KOLO_TP_UNCOUNTED : (r * 5 + 1) % V;
	}
	n->x = room(n, N * H);
	n->scaled = room(n, N * H);
	n->y = room(n, N * H);
	n->dx = room(n, N * H);
	n->mixed = room(n, 3 * N * H / n->size);
	n->dmixed = room(n, 3 * N * H / n->size);
	n->heads = room(n, N * H / n->size);
	n->dheads = room(n, N * H / n->size);
	n->logits = room(n, N * V / n->size);
}

static void close_net(struct net *n)
{
	kolo_tp_destroy(n->tp);
	for (int t = 0; t < TENSORS; t++) {
		free(n->w[t]);
		free(n->g[t]);
	}
	free(n->x);
	free(n->scaled);
	free(n->y);
	free(n->dx);
	free(n->mixed);
	free(n->dmixed);
	free(n->heads);
	free(n->dheads);
	free(n->logits);
}

static struct kolo_tp_layer mix_layer(const struct net *n)
{
	return (struct kolo_tp_layer){ .rows = N, .in = H, .out = 3 * H / n->size, .fused = 3 };
}

static struct kolo_tp_layer project_layer(const struct net *n)
{
	return (struct kolo_tp_layer){ .rows = N, .in = H / n->size, .out = H };
}

static struct kolo_tp_layer head_layer(const struct net *n)
{
	return (struct kolo_tp_layer){ .rows = N, .in = H, .out = V / n->size };
}

/* heads = q k + v */
static void mix(struct net *n)
{
	size_t w = H / n->size;

	for (size_t r = 0; r < N; r++)
		for (size_t j = 0; j < w; j++) {
			size_t q = r * 3 * w + j;

			put(n, n->heads, r * w + j,
			    get(n, n->mixed, q) * get(n, n->mixed, q + w) +
				    get(n, n->mixed, q + 2 * w));
		}
}

static void mix_back(struct net *n)
{
	size_t w = H / n->size;

	for (size_t r = 0; r < N; r++)
		for (size_t j = 0; j < w; j++) {
			size_t q = r * 3 * w + j;
			double d = get(n, n->dheads, r * w + j);

			put(n, n->dmixed, q, d * get(n, n->mixed, q + w));
			put(n, n->dmixed, q + w, d * get(n, n->mixed, q));
			put(n, n->dmixed, q + 2 * w, d);
		}
}

static void sum_rows(struct net *n, const char *x, size_t rows, size_t columns, char *out)
{
	for (size_t j = 0; j < columns; j++) {
		double sum = 0;

		for (size_t r = 0; r < rows; r++)
			sum += get(n, x, r * columns + j);
		put(n, out, j, sum);
	}
}

static void forward(struct net *n, double factor)
{
	struct kolo_tp_layer l = mix_layer(n);
	size_t first, own = kolo_tp_rows(n->tp, N, &first);

	CHECK(kolo_tp_embedding_forward(n->tp, n->w[TABLE], V, n->ids, N, H, n->x) == 0);
	for (size_t i = first * H; i < (first + own) * H; i++) /* a gain, on own rows */
		put(n, n->scaled, i, get(n, n->x, i) * get(n, n->w[GAIN], i % H));
	CHECK(kolo_tp_column_forward(n->tp, &l, n->scaled, n->w[MIX], n->w[MIX_BIAS], n->mixed) ==
	      0);
	mix(n);
	l = project_layer(n);
	CHECK(kolo_tp_row_forward(n->tp, &l, n->heads, n->w[PROJECT], n->w[PROJECT_BIAS], n->y) ==
	      0);
	for (size_t i = first * H; i < (first + own) * H; i++)
		put(n, n->y, i, get(n, n->y, i) + get(n, n->x, i));
	l = head_layer(n);
	CHECK(kolo_tp_column_forward(n->tp, &l, n->y, n->w[TABLE], NULL, n->logits) == 0);
	CHECK(kolo_tp_cross_entropy(n->tp, n->logits, V, n->targets, N, factor, &n->loss) == 0);
}

/* `halves`: inputs first, weights in a second call. */
static void backward(struct net *n, bool halves)
{
	struct kolo_tp_layer head = head_layer(n), project = project_layer(n),
			     mixing = mix_layer(n);
	size_t first, own = kolo_tp_rows(n->tp, N, &first);
	size_t segments = kolo_tp_row_segments(n->tp);
	char *dy = room(n, N * H), *kept = room(n, N * H), *gains;

	CHECK(kolo_tp_column_backward(n->tp, &head, n->y, n->w[TABLE], n->logits, dy,
				      halves ? NULL : n->g[TABLE]) == 0);
	if (halves)
		CHECK(kolo_tp_column_backward(n->tp, &head, n->y, NULL, n->logits, NULL,
					      n->g[TABLE]) == 0);
	memcpy(kept, dy, N * H * n->elem);
	CHECK(kolo_tp_row_backward(n->tp, &project, n->heads, n->w[PROJECT], dy, n->dheads,
				   halves ? NULL : n->g[PROJECT]) == 0);
	if (halves)
		CHECK(kolo_tp_row_backward(n->tp, &project, n->heads, NULL, dy, NULL,
					   n->g[PROJECT]) == 0);
	sum_rows(n, dy, N, H, n->g[PROJECT_BIAS]);
	mix_back(n);
	CHECK(kolo_tp_column_backward(n->tp, &mixing, n->scaled, n->w[MIX], n->dmixed, n->dx,
				      n->g[MIX]) == 0);
	sum_rows(n, n->dmixed, N, mixing.out, n->g[MIX_BIAS]);
	gains = room(n, segments * H);
	for (size_t s = 0; s < segments; s++)
		for (size_t r = s * own / segments; r < (s + 1) * own / segments; r++)
			for (size_t j = 0; j < H; j++) {
				size_t i = (first + r) * H + j, at = s * H + j;
				double d = get(n, n->dx, i);

				put(n, gains, at, get(n, gains, at) + d * get(n, n->x, i));
				put(n, n->dx, i, d * get(n, n->w[GAIN], j) + get(n, kept, i));
			}
	CHECK(kolo_tp_sum(n->tp, gains, H) == 0);
	memcpy(n->g[GAIN], gains, H * n->elem);
	free(gains);
	CHECK(kolo_tp_embedding_backward(n->tp, V, n->ids, N, H, n->dx, n->g[TABLE]) == 0);
	free(dy);
	free(kept);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* The gradients of one rank, whose parts are whole, beside this rank's. */
static double worst_difference(const struct net *n, const struct net *one, int t)
{
	double worst = 0;

	for (size_t i = 0; i < part_elements(t, n->size); i++)
		worst = fmax(worst, fabs(get(n, n->g[t], i) -
					 get(one, one->g[t], whole_index(t, n->size, n->rank, i))));
	return worst;
}

static void compare(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	int power = (t->nranks & (t->nranks - 1)) == 0;

	for (int way = 0; way < 16; way++) {
		enum kolo_type type = way & 1 ? KOLO_F32 : KOLO_F64;
		int sequence = way >> 1 & 1, segments = way >> 2 & 1 ? 4 : 0;
		double close = segments ? 0 : type == KOLO_F32 ? 1e-5 : 1e-13;
		struct net n, one;

		if (segments && !power)
			continue;
		open_net(&n, comm, type, sequence, segments);
		open_net(&one, NULL, type, 0, segments);
		forward(&n, 2);
		forward(&one, 2);
		CHECK(fabs(n.loss - one.loss) <= close * N);
		backward(&n, way >> 3);
		backward(&one, false);
		for (int k = 0; k < TENSORS; k++)
			CHECK(worst_difference(&n, &one, k) <= close);
		close_net(&n);
		close_net(&one);
	}
	kolo_comm_destroy(comm);
}

static void parts_have_the_bits_of_one_rank(void **state)
{
	(void)state;
	for (int n = 2; n <= 4; n++)
		t_processes(n, compare, NULL);
}

static void gradients_are_those_of_differences(void **state)
{
	const double step = 1e-5;
	struct net n;

	(void)state;
	for (int segments = 0; segments <= 4; segments += 4) {
		open_net(&n, NULL, KOLO_F64, 0, segments);
		forward(&n, 3);
		backward(&n, false);
		for (int t = 0; t < TENSORS; t++)
			for (size_t i = 0; i < elements(t); i += 5) {
				double before = get(&n, n.w[t], i), up, want = get(&n, n.g[t], i);

				put(&n, n.w[t], i, before + step);
				forward(&n, 3);
				up = n.loss;
				put(&n, n.w[t], i, before - step);
				forward(&n, 3);
				CHECK(fabs(3 * (up - n.loss) / (2 * step) - want) < 1e-6);
				put(&n, n.w[t], i, before);
			}
		close_net(&n);
	}
}

/* As the header has them, of one rank. */
static void count_bytes(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm_with(t, (struct kolo_comm_attr){ .algorithm = "ring" });
	uint64_t share = (uint64_t)(t->nranks - 1), whole = 8 * N * H * share / (uint64_t)t->nranks;
	uint64_t loss = 6 * 8 * N * share / (uint64_t)t->nranks;

	for (int sequence = 0; sequence < 2; sequence++) {
		/* A gain's gradient: a ring sends pieces of it */
		uint64_t gain = sequence ? 2 * 8 * H * share / (uint64_t)t->nranks : 0;
		struct kolo_tp_report before, after;
		struct net n;

		open_net(&n, comm, KOLO_F64, sequence, 0);
		kolo_tp_report_get(n.tp, &before);
		forward(&n, 1);
		backward(&n, false);
		kolo_tp_report_get(n.tp, &after);
		/* Two layers 8 halves, embedding 2, and the head 2: with sequence parallelism too.
		 */
		CHECK(after.model_sent_bytes == 8 * whole + loss + gain);
		CHECK(after.sent_bytes - before.sent_bytes == after.model_sent_bytes);
		CHECK(after.gathers == (sequence ? 4 : 0));
		CHECK(after.reductions == (sequence ? 7 : 6));
		close_net(&n);
	}
	kolo_comm_destroy(comm);
}

static void bytes_are_those_of_the_formulas(void **state)
{
	(void)state;
	for (int n = 2; n <= 4; n++)
		t_processes(n, count_bytes, NULL);
}

static void refused(int rc, int status, const char *text)
{
	CHECK(rc == status && strstr(kolo_last_error(), text));
}

static void what_does_not_fit_is_refused(void **state)
{
	struct kolo_tp_config c = { .type = KOLO_F32, .product = product, .segments = 3 };
	struct kolo_tp_layer l = { .rows = 4, .in = 6, .out = 6 };
	int32_t ids[] = { 0, 23, 24, -1 };
	float x[4 * V] = { 0 }, w[4 * V], y[4 * V];
	struct net n = { .type = KOLO_F32, .elem = 4 };
	double loss;

	(void)state;
	refused(kolo_tp_create(NULL, &c, &n.tp), KOLO_EINVAL, "in 3 segments: want a power of two");
	c.segments = 0;
	c.type = KOLO_BF16;
	refused(kolo_tp_create(NULL, &c, &n.tp), KOLO_EINVAL, "type bf16");
	c.type = KOLO_F32;
	c.product = NULL;
	refused(kolo_tp_create(NULL, &c, &n.tp), KOLO_EINVAL, "config.product");
	CHECK(!n.tp);
	c.product = product;
	c.sequence = 2;
	refused(kolo_tp_create(NULL, &c, &n.tp), KOLO_EINVAL, "config.sequence 2: want 0 or 1");
	c.sequence = 0;
	c.reserved[1] = 1;
	refused(kolo_tp_create(NULL, &c, &n.tp), KOLO_EINVAL, "config.reserved");
	c = (struct kolo_tp_config){ KOLO_F32, 0, 4, product, &n, { 0 } };
	CHECK(kolo_tp_create(NULL, &c, &n.tp) == 0);
	refused(kolo_tp_column_forward(n.tp, &l, x, w, NULL, y), KOLO_EINVAL,
		"column-parallel layer of 6 outputs on this rank, in 4 segments");
	refused(kolo_tp_row_forward(n.tp, &l, x, w, NULL, y), KOLO_EINVAL,
		"row-parallel layer of 6 inputs");
	l = (struct kolo_tp_layer){ .rows = 4, .in = 8, .out = 8, .fused = 3 };
	refused(kolo_tp_column_forward(n.tp, &l, x, w, NULL, y), KOLO_EINVAL,
		"of 8 outputs on this rank, of 3 fused layers: want a multiple of them");
	refused(kolo_tp_row_forward(n.tp, &l, x, w, NULL, y), KOLO_EINVAL,
		"only a column-parallel one can be");
	l.reserved[0] = 1;
	refused(kolo_tp_row_forward(n.tp, &l, x, w, NULL, y), KOLO_EINVAL, "reserved words");
	refused(kolo_tp_embedding_forward(n.tp, w, V, ids, 4, 1, y), KOLO_EINVAL,
		"id 2 is 24, and the vocabulary has 0 to 23");
	refused(kolo_tp_embedding_backward(n.tp, V, ids + 3, 1, 1, y, w), KOLO_EINVAL,
		"id 0 is -1");
	refused(kolo_tp_embedding_forward(n.tp, w, V + 1, ids, 2, 1, y), KOLO_EINVAL,
		"a vocabulary of 25 on 1 ranks with segments: want a multiple of 4");
	refused(kolo_tp_cross_entropy(n.tp, x, V, ids, 4, 1, &loss), KOLO_EINVAL, "target 2 is 24");
	ids[2] = -2;
	refused(kolo_tp_cross_entropy(n.tp, x, V, ids, 4, 1, &loss), KOLO_EINVAL, "target 2 is -2");
	kolo_tp_destroy(n.tp);
	kolo_tp_destroy(NULL);
}

static void refuse_on_ranks(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_tp_config c = { .type = KOLO_F32, .product = product, .sequence = 1 };
	struct kolo_tp_layer l = { .rows = 7, .in = 2, .out = 2 };
	float x[14] = { 0 }, w[4] = { 0 }, y[14];
	struct net n = { .type = KOLO_F32, .elem = 4 };

	c.arg = &n;
	c.segments = 2 * t->rank;
	refused(kolo_tp_create(comm, &c, &n.tp), KOLO_EMISMATCH, "and another rank has not");
	c.segments = t->rank ? 2 : 1; /* one rank alone sees that its own do not fit */
	refused(kolo_tp_create(comm, &c, &n.tp), KOLO_EINVAL, "rank 0");
	c.segments = 0;
	CHECK(kolo_tp_create(comm, &c, &n.tp) == 0);
	refused(kolo_tp_column_forward(n.tp, &l, x, w, NULL, y), KOLO_EINVAL,
		"7 rows with sequence parallelism on 2 ranks");
	refused(kolo_tp_gather(n.tp, x, 7, 2), KOLO_EINVAL, "7 rows on 2 ranks");
	refused(kolo_tp_reduce(n.tp, x, 7, 2), KOLO_EINVAL, "7 rows on 2 ranks");
	kolo_tp_destroy(n.tp);
	kolo_comm_destroy(comm);
}

static void ranks_that_disagree_are_refused(void **state)
{
	(void)state;
	t_processes(2, refuse_on_ranks, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(parts_have_the_bits_of_one_rank),
	cmocka_unit_test(gradients_are_those_of_differences),
	cmocka_unit_test(bytes_are_those_of_the_formulas),
	cmocka_unit_test(what_does_not_fit_is_refused),
	cmocka_unit_test(ranks_that_disagree_are_refused),
};

T_MAIN(tests)
