/* Places as turns (rotary embeddings): the query and the key of a place are turned, pair by pair,
 * by angles that grow with it, so that their product depends on how far apart two places are. Pair
 * i of a head is its elements i and i + D / H / 2; it turns by theta^(-2 i / (D / H)) for each
 * place. */
#include "tools/zerotrain/model/inside.h"

#include <math.h>

/* Angles are rounded to float, as in those programs that such models come from. */
void fill_turns(struct model *m)
{
	size_t half = m->own.head / 2;

	for (size_t place = 0; m->turns && place < (size_t)m->sizes.context; place++)
		for (size_t i = 0; i < half; i++) {
			float speed = (float)pow(theta_of(&m->sizes),
						 -2.0 * (double)i / (double)m->own.head);
			float angle = (float)place * speed;

			m->turns[place * m->own.head + i] = (real)cos((double)angle);
			m->turns[place * m->own.head + half + i] = (real)sin((double)angle);
		}
}

void turn_rows(const struct model *m, real *qkv, real sign)
{
	size_t each = m->own.heads / m->own.kv_heads, pairs = m->own.head / 2;

	for (size_t r = 0; m->turns && r < m->now->rows; r++, qkv += m->own.pitch) {
		const real *turn = m->turns + place_of(m, r) * m->own.head;

		/* A head of keys follows its queries. */
		for (size_t h = 0; h < m->own.kv_heads; h++)
			for (size_t i = 0; i <= each; i++)
				m->loops->rotate(qkv + (h * (each + 2) + i) * m->own.head, turn,
						 sign, pairs);
	}
}
