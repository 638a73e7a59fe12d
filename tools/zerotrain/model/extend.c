/* Texts that grow: which row is which place, and attention to the places that were computed
 * before. */
#include "tools/zerotrain/model/inside.h"
#include "tools/zerotrain/model/model.h"

#include <string.h>

/* ---- Rows ------------------------------------------------------------------------------------ */

/* With segments each text has a tile, in which a place has the row of its number. */
static bool in_tiles(const struct model *m)
{
	return m->sizes.segments > 0;
}

static size_t rows_of_piece(const struct model *m, const struct piece *piece)
{
	return in_tiles(m) && piece->count ? PIECE : (size_t)piece->count;
}

size_t model_grown(const struct model *m, const struct piece *pieces)
{
	size_t size = m->sizes.tensor_size > 1 ? (size_t)m->sizes.tensor_size : 1, n = 0, first;

	for (int i = 0; i < m->sizes.texts; i++)
		n += rows_of_piece(m, &pieces[i]);
	/* With sequence parallelism each rank of the group has equally many. */
	if (kolo_tp_rows(m->group, size, &first) == size)
		size = 1;
	return (n + size - 1) / size * size;
}

void place_pieces(struct model *m, const struct piece *pieces)
{
	struct grown *g = &m->grown;
	size_t rows = model_grown(m, pieces), row = 0;

	g->pieces = pieces;
	memset(g->ids, 0, rows * sizeof(*g->ids));
	memset(g->places, 0, rows * sizeof(*g->places));
	for (int i = 0; i < m->sizes.texts; row += rows_of_piece(m, &pieces[i++])) {
		const struct piece *p = &pieces[i];

		g->row_of[i] = (int)row + (in_tiles(m) ? p->first % PIECE : 0);
		for (int k = 0; k < p->count; k++) {
			g->ids[g->row_of[i] + k] = p->in[k];
			g->places[g->row_of[i] + k] = p->first + k;
		}
	}
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* The keys, or the values, of a text's places in a block: rows of kv_width. */
static real *kept_of(const struct model *m, real *all, int block, int text)
{
	size_t places = whole_pieces(m), before = 0;

	for (int p = 0; &m->parts[p] != m->part; p++)
		before += (size_t)(m->parts[p].is.end - m->parts[p].is.first);
	before += (size_t)(block - m->part->is.first);
	return all + (before * (size_t)m->sizes.texts + (size_t)text) * places * m->own.kv_width;
}

/* Keeps the keys and values of a piece. */
static void keep(struct model *m, const struct piece *p, const real *qkv, real *keys, real *values)
{
	size_t w = m->own.head, at = (size_t)p->first * m->own.kv_width,
	       each = m->own.heads / m->own.kv_heads;

	for (int k = 0; k < p->count; k++, qkv += m->own.pitch)
		for (size_t h = 0; h < m->own.kv_heads; h++, at += w) {
			struct columns from = columns_of(&m->own, h * each);

			memcpy(keys + at, qkv + from.k, w * sizeof(*keys));
			memcpy(values + at, qkv + from.v, w * sizeof(*values));
		}
}

/* One head of rows that are places `first` and the next ones. */
static void attend_head(const struct model *m, const real *q, size_t rows, size_t first,
			const real *keys, const real *values, real *shares, real *y)
{
	size_t seen = first + rows;

	multiply(rows, seen, m->own.head, 1, (struct matrix){ q, m->own.pitch, false },
		 (struct matrix){ keys, m->own.kv_width, true }, 0, shares, seen);
	m->loops->softmax(shares, rows, first, seen, m->own.factor);
	multiply(rows, m->own.head, seen, 1, (struct matrix){ shares, seen, false },
		 (struct matrix){ values, m->own.kv_width, false }, 0, y, m->own.width);
}

void attend_grown(struct model *m, int block, const struct slot *s)
{
	const struct grown *g = m->now->grown;
	size_t each = m->own.heads / m->own.kv_heads;

	for (int i = 0; i < m->sizes.texts; i++) {
		const struct piece *p = &g->pieces[i];
		real *keys = kept_of(m, m->keys, block, i);
		real *values = kept_of(m, m->values_kept, block, i);
		size_t rows = rows_of_piece(m, p), row = (size_t)g->row_of[i];
		size_t first = (size_t)p->first, back = in_tiles(m) ? first % PIECE : 0;

		if (p->count == 0)
			continue;
		keep(m, p, s->qkv + row * m->own.pitch, keys, values);
		for (size_t h = 0; h < m->own.heads; h++) {
			size_t of_kv = h / each * m->own.head;

			attend_head(m,
				    s->qkv + (row - back) * m->own.pitch + columns_of(&m->own, h).q,
				    rows, first - back, keys + of_kv, values + of_kv, s->shares,
				    s->heads + (row - back) * m->own.width + h * m->own.head);
		}
	}
}
