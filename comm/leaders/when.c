#include "comm/leaders/when.h"

#include "comm/leaders/trees.h"
#include "comm/rings/rails.h"

/* ---- Room ------------------------------------------------------------------------------------ */

/* Sums in the largest message of ko_led_gather. */
static int64_t largest_message(int64_t groups)
{
	int64_t far = 1;

	while (far * KO_LED_RADIX < groups)
		far *= KO_LED_RADIX;
	return far;
}

uint64_t ko_partials_room(const struct kolo_comm *c)
{
	uint64_t room = ko_led_memory(c);
	uint64_t spare = ko_rails_spare(&c->shape);

	return c->shape.ngroups > 1 && spare < room ? room - spare : 0;
}

/* Bytes from which on a broadcast is faster in a chain of slots, which all ranks work on at the
 * same time. */
static double chain_begin(const struct ko_costs *costs, int nranks)
{
	double others = (double)costs->rails - 1;
	double more = ko_log2_up(costs->groups) + others - 1; /* vectors in a row */
	double hops_ns = (nranks - 1) * costs->hop_ns -
			 ko_log2_up(costs->groups) * costs->rail_hop_ns -
			 ko_hops_of(others) * costs->group_hop_ns;
	double slots = (nranks - 2) * (double)costs->slot_bytes;
	double bytes = hops_ns * costs->bytes_per_ns / 2 + slots; /* that the chain takes longer */

	return more <= 0 ? 1e18 : bytes > 0 ? bytes / more : 0;
}

uint64_t ko_partials_end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	uint64_t room = costs->leaders_room;
	int64_t sums = costs->groups, values = costs->rails + 1; /* at the same place */

	(void)windows;
	if (coll == KO_REDUCE && room > KO_LED_TOGETHER) {
		room -= KO_LED_TOGETHER;
		sums = 2 + largest_message(costs->groups);
	}
	if (room == 0 || coll == KO_BARRIER || ko_coll_has_messages(coll))
		return 0;
	if (coll == KO_BROADCAST)
		return (uint64_t)chain_begin(costs, nranks);
	if (coll == KO_ALL_GATHER)
		return room + 1;
	return room / (uint64_t)(sums > values ? sums : values) + 1;
}

/* With two groups partials send as many bytes in fewer hops. */
uint64_t ko_center_end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	return coll == KO_ALL_REDUCE && costs->groups > 2
		       ? ko_partials_end(coll, costs, nranks, windows)
		       : 0;
}

/* Vectors beside the group's sum: values of a group, later elements of all groups, what is sent,
 * and what has come. */
static double vectors_of_shares(const struct ko_costs *costs)
{
	double later = 1 + (1 + ko_log2_up(costs->groups)) / 2.0, values = (double)costs->rails;

	return later > values ? later : values;
}

/* Two leaders have nothing to share. */
uint64_t ko_shares_end(enum ko_coll coll, const struct ko_costs *costs, int nranks, bool windows)
{
	(void)nranks, (void)windows;
	if (costs->leaders_room && coll == KO_ALL_TO_ALL)
		return costs->leaders_room / (uint64_t)(2 * costs->rails) + 1;
	if (costs->leaders_room == 0 || costs->groups == 2 || !ko_coll_reduces(coll))
		return 0;
	return (uint64_t)((double)costs->leaders_room / (1 + vectors_of_shares(costs))) + 1;
}

/* ---- Costs ----------------------------------------------------------------------------------- */

/* Vectors that each of a group's other ranks gives its leader, or gets from it. */
static double vectors_of_member(enum ko_coll coll, const struct ko_costs *costs)
{
	double block = 1 / (double)(costs->groups * costs->rails);

	switch (coll) {
	case KO_ALL_GATHER:
	case KO_REDUCE_SCATTER: return 1 + block;
	case KO_REDUCE:
	case KO_BROADCAST: return 1;
	default: return 2;
	}
}

/* With these hops between leaders, vectors that all of them send at the same time, and vectors of
 * one alone; and those into groups and out of them. */
static struct ko_estimate estimate(enum ko_coll coll, const struct ko_costs *costs, double hops,
				   double vectors, double alone)
{
	double others = (double)costs->rails - 1;
	double ways = coll == KO_REDUCE || coll == KO_BROADCAST ? 1 : 2;

	return (struct ko_estimate){
		hops * costs->rail_hop_ns + ways * ko_hops_of(others) * costs->group_hop_ns,
		2 * vectors / costs->bytes_per_ns + ko_lone_ns(costs, alone) +
			2 * others * vectors_of_member(coll, costs) / costs->group_bytes_per_ns
	};
}

struct ko_estimate ko_partials_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				    bool windows)
{
	double h = (double)costs->groups, hops = ko_log2_up(costs->groups), vectors = h - 1;

	(void)nranks, (void)windows;
	if (coll == KO_BROADCAST)
		vectors = hops;
	if (coll == KO_ALL_GATHER)
		vectors = (h - 1) / h;
	if (coll == KO_REDUCE)
		return estimate(coll, costs, ko_led_tree_of(costs).hops, 0,
				ko_in_a_row(costs, h - 1));
	return estimate(coll, costs, hops, vectors, 0);
}

struct ko_estimate ko_center_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				  bool windows)
{
	struct ko_led_tree t = ko_led_tree_of(costs);
	double gathered = ko_in_a_row(costs, (double)costs->groups - 1);

	(void)nranks, (void)windows;
	return estimate(coll, costs, 2 * t.hops, 0, gathered + t.vectors);
}

struct ko_estimate ko_shares_cost(enum ko_coll coll, const struct ko_costs *costs, int nranks,
				  bool windows)
{
	double h = (double)costs->groups, hops = ko_log2_up(costs->groups);

	(void)nranks, (void)windows;
	if (coll == KO_ALL_TO_ALL)
		return estimate(coll, costs, hops, hops / 2 * (double)costs->rails, 0);
	if (coll == KO_REDUCE_SCATTER)
		return estimate(coll, costs, hops, hops / 2, 0);
	if (coll == KO_REDUCE)
		return estimate(coll, costs, hops + ko_led_tree_of(costs).hops, hops / 2,
				ko_in_a_row(costs, h - 1) / h);
	return estimate(coll, costs, 2 * hops, hops / 2 + (h - 1) / h, 0);
}
