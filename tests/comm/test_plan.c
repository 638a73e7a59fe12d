/* The ring's arithmetic, tried for every rank, step, round and many counts. */
#include "comm/coll/algorithms.h"
#include "comm/coll/doubling.h"
#include "comm/coll/ring.h"
#include "comm/leaders/when.h"
#include "comm/plan/plan.h"
#include "comm/plan/shape.h"
#include "tests/lib/t.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 9, MAX_COUNT = 60 };

static struct ko_plan made(enum ko_coll coll, size_t n, size_t size, int nranks, size_t slot_len)
{
	struct ko_plan p;

	ko_plan_make(&p, coll, n, size, nranks, slot_len);
	return p;
}

static void pieces_tile_every_block(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= MAX_RANKS; nranks++) {
		for (size_t n = 0; n <= MAX_COUNT; n++) {
			for (size_t slot = 1; slot <= 8; slot++) {
				struct ko_plan p = made(KO_ALL_REDUCE, n, 1, nranks, slot);
				size_t at = 0;

				CHECK(p.rounds >= 1 && p.slice <= slot &&
				      p.rounds * p.slice >= p.block);
				for (int b = 0; b < nranks; b++) {
					CHECK(ko_plan_block(&p, b).first == at);
					for (size_t round = 0; round < p.rounds; round++) {
						struct ko_piece q = ko_plan_piece(&p, b, round);

						CHECK(q.n == 0 || q.first == at);
						CHECK(q.n <= p.slice);
						at += q.n;
					}
					CHECK(at ==
					      ko_plan_block(&p, b).first + ko_plan_block(&p, b).n);
				}
				CHECK(at == n);
			}
		}
	}
}

static size_t packets_of(const struct ko_plan *p, size_t packet)
{
	return p->rounds * ((p->slice + packet - 1) / packet);
}

static void slices_are_cut_into_fewer_packets_and_never_get_longer(void **state)
{
	bool was_cut = false;

	(void)state;
	for (size_t n = 1; n <= 200; n++)
		for (size_t slot = 1; slot <= 40; slot++)
			for (size_t packet = 1; packet <= 20; packet++) {
				struct ko_plan p = made(KO_BROADCAST, n, 1, 2, slot), q = p;

				ko_plan_in_packets(&q, 1, packet);
				CHECK(q.slice <= p.slice && q.rounds * q.slice >= q.block);
				CHECK(packets_of(&q, packet) <= packets_of(&p, packet));
				CHECK(q.rounds == p.rounds ||
				      packets_of(&q, packet) < packets_of(&p, packet));
				was_cut = was_cut || q.rounds > p.rounds;
			}
	CHECK(was_cut);
}

static void uneven_blocks_are_tiled_too(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (int try = 0; try < 2000; try++) {
		int nranks = 1 + (int)(t_random(&seed) % MAX_RANKS);
		size_t firsts[MAX_RANKS + 1] = { 0 }, slot = 1 + t_random(&seed) % 8, largest = 0;
		struct ko_plan p;

		for (int b = 0; b < nranks; b++) {
			size_t n = t_random(&seed) % 3 ? t_random(&seed) % 20 : 0;

			firsts[b + 1] = firsts[b] + n;
			largest = n > largest ? n : largest;
		}
		p = ko_plan_make_uneven(firsts, 1, nranks, slot);
		CHECK(p.count == firsts[nranks] && p.block == largest && p.rounds >= 1 &&
		      p.slice <= slot);
		for (int b = 0; b < nranks; b++) {
			size_t at = firsts[b];

			for (size_t round = 0; round < p.rounds; round++) {
				struct ko_piece q = ko_plan_piece(&p, b, round);

				CHECK(q.n == 0 || q.first == at);
				CHECK(q.n <= p.slice);
				at += q.n;
			}
			CHECK(at == firsts[b + 1]);
		}
	}
}

static void a_broken_plan_is_refused(void **state)
{
	size_t firsts[] = { 0, 40, 40, 100 }, slot = 64;
	const struct ko_plan even = made(KO_ALL_REDUCE, 100, 4, 3, slot),
			     uneven = ko_plan_make_uneven(firsts, 4, 3, slot);
	const struct ko_plan broken[] = {
		{ even.count, even.block, even.slice, 0, NULL },
		{ even.count, even.block, even.slice, even.rounds - 1, NULL },
		{ even.count, even.block, slot / 4 + 1, even.rounds, NULL },
		{ even.count, even.block - 1, even.slice, even.rounds, NULL },
		{ 3 * even.block + 1, even.block, even.slice, even.rounds, NULL },
		{ even.block - 1, even.block, even.slice, even.rounds, NULL },
		{ uneven.count + 1, uneven.block, uneven.slice, uneven.rounds, firsts },
		{ uneven.count, uneven.block - 1, uneven.slice, uneven.rounds, firsts },
		{ uneven.count, uneven.block + 1, uneven.slice, uneven.rounds, firsts },
	};

	(void)state;
	CHECK(ko_plan_is_valid(&even, 4, 3, slot) && ko_plan_is_valid(&uneven, 4, 3, slot));
	for (size_t k = 0; k < ARRAY_LEN(broken); k++)
		CHECK(!ko_plan_is_valid(&broken[k], 4, 3, slot));
	firsts[2] = 39;
	CHECK(!ko_plan_is_valid(&uneven, 4, 3, slot));
	firsts[2] = 40;
	firsts[0] = 1;
	CHECK(!ko_plan_is_valid(&uneven, 4, 3, slot));
}

static void counts_beyond_32_bits_tile_too(void **state)
{
	size_t n = ((size_t)5 << 32) + 3, at = 0;
	struct ko_plan p = made(KO_ALL_REDUCE, n, 8, 7, 256 << 10);

	(void)state;
	for (int b = 0; b < 7; b++) {
		struct ko_piece last = ko_plan_piece(&p, b, p.rounds - 1),
				whole = ko_plan_block(&p, b);

		CHECK(whole.first == at);
		CHECK(last.first + last.n == whole.first + whole.n && last.n <= p.slice);
		at += whole.n;
	}
	CHECK(at == n);
	CHECK(made(KO_ALL_GATHER, n, 1, 4, 4096).count == 4 * n);
}

/* Of ranks that run on hosts of these names, a letter each. */
static struct ko_ring ring_of(const char *hosts)
{
	int nranks = (int)strlen(hosts);
	int host[MAX_RANKS];
	struct ko_ring ring;

	for (int r = 0; r < nranks; r++)
		host[r] = (int)(strchr(hosts, hosts[r]) - hosts);
	CHECK(ko_ring_make(host, nranks, &ring) == 0 && ring.nranks == nranks);
	return ring;
}

/* Every other rank on another host, or all on one. */
static struct ko_ring make_ring(int nranks, bool mixed)
{
	char hosts[MAX_RANKS + 1] = "";

	for (int r = 0; r < nranks; r++)
		hosts[r] = mixed && r % 2 ? 'b' : 'a';
	return ring_of(hosts);
}

static void ranks_of_a_host_stand_together(void **state)
{
	static const struct {
		const char *hosts;
		int ranks[8]; /* as they stand; two zeros: by their numbers */
	} trials[] = {
		{ "a", { 0 } },
		{ "aaaa", { 0 } },
		{ "abc", { 0 } },
		{ "aabb", { 0 } },
		{ "abba", { 0 } },
		{ "bbaacc", { 0 } },
		{ "abab", { 0, 2, 1, 3 } },
		{ "abcabc", { 0, 3, 1, 4, 2, 5 } },
		{ "abacad", { 0, 2, 4, 1, 3, 5 } },
		{ "cbabcca", { 0, 4, 5, 1, 3, 2, 6 } },
	};

	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(trials); t++) {
		struct ko_ring ring = ring_of(trials[t].hosts);
		bool by_number = trials[t].ranks[1] == 0;

		CHECK(by_number == (ring.places == NULL));
		for (int k = 0; k < ring.nranks; k++) {
			int rank = by_number ? k : trials[t].ranks[k];

			CHECK(ko_ring_place(&ring, rank) == k &&
			      ko_ring_back(&ring, 0, -k) == rank);
			CHECK(ko_ring_distance(&ring, 0, rank) == k);
			CHECK(ko_ring_next(&ring, ko_ring_prev(&ring, rank)) == rank);
			CHECK(ko_ring_back(&ring, rank, k) == 0 &&
			      ko_ring_back(&ring, rank, ring.nranks) == rank);
		}
		ko_ring_free(&ring);
	}
}

static void ranks_of_one_host_stand_by_number(void **state)
{
	struct ko_ring ring;

	(void)state;
	CHECK(ko_ring_make(NULL, 5, &ring) == 0 && ring.nranks == 5 && !ring.places);
}

/* Symbolic ranks: in flight is the list of those that have added to a block so far. */
static void every_block_is_added_from_after_its_owner_round_to_it(void **state)
{
	(void)state;
	for (int nranks = 2; nranks <= MAX_RANKS; nranks++) {
		struct ko_ring ring = make_ring(nranks, false);

		for (int owner = 0; owner < nranks; owner++) {
			for (int step = 1; step <= nranks; step++) {
				int rank = (owner + step) % nranks;
				/* The last step handles the own block, which is step 0 (or
				 * nranks). */
				CHECK(ko_ring_back(&ring, rank, step) == owner);
			}
			/* In an all-gather the owner sends first, and next handles the block one
			 * step later. */
			for (int step = 0; step < nranks; step++)
				CHECK(ko_ring_back(&ring, (owner + step) % nranks, step) == owner);
		}
	}
}

/* What a rank sends in a round of reduce-scatter and all-gather, step by step. */
static size_t count_sent(const struct ko_plan *p, enum ko_coll coll, int rank,
			 const struct ko_ring *ring)
{
	int nranks = ring->nranks;
	size_t sent = 0;

	for (size_t round = 0; round < p->rounds; round++) {
		for (int step = 1; coll != KO_ALL_GATHER && step < nranks; step++)
			sent += ko_plan_piece(p, ko_ring_back(ring, rank, step), round).n;
		for (int step = 0; coll != KO_REDUCE_SCATTER && step < nranks - 1; step++)
			sent += ko_plan_piece(p, ko_ring_back(ring, rank, step), round).n;
	}
	return sent;
}

static void check_models(const struct ko_ring *ring, enum ko_coll coll)
{
	for (size_t n = 0; n <= MAX_COUNT; n++) {
		struct ko_plan p = made(coll, n, 1, ring->nranks, 4);

		for (int rank = 0; rank < ring->nranks; rank++) {
			struct ko_model m = ko_ring_model(&p, coll, rank, ring, 0);
			struct ko_model of_next =
				ko_ring_model(&p, coll, ko_ring_next(ring, rank), ring, 0);

			CHECK(m.sent == count_sent(&p, coll, rank, ring) &&
			      m.sent == of_next.received);
		}
	}
}

static void the_model_is_what_the_steps_add_up_to(void **state)
{
	static const enum ko_coll colls[] = { KO_REDUCE_SCATTER, KO_ALL_GATHER, KO_ALL_REDUCE };

	(void)state;
	for (int nranks = 1; nranks <= MAX_RANKS; nranks++) {
		for (int mixed = 0; mixed < 2; mixed++) {
			struct ko_ring ring = make_ring(nranks, mixed);

			for (size_t c = 0; c < ARRAY_LEN(colls); c++)
				check_models(&ring, colls[c]);
			ko_ring_free(&ring);
		}
	}
}

static void an_all_reduce_sends_2k_n_minus_1_over_n(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= MAX_RANKS; nranks++) {
		size_t k = 1000 * (size_t)nranks;
		struct ko_plan p = made(KO_ALL_REDUCE, k, 4, nranks, 4096);
		struct ko_ring ring = make_ring(nranks, false);

		for (int rank = 0; rank < nranks; rank++)
			CHECK(ko_ring_model(&p, KO_ALL_REDUCE, rank, &ring, 0).sent ==
			      2 * k * (size_t)(nranks - 1) / (size_t)nranks);
	}
}

static void broadcast_and_reduce_are_chains(void **state)
{
	struct ko_plan p = made(KO_BROADCAST, 100, 4, 5, 4096);
	struct ko_ring ring = make_ring(5, true); /* 0, 2, 4, 1, 3 */

	(void)state;
	for (int root = 0; root < 5; root++) {
		for (int rank = 0; rank < 5; rank++) {
			struct ko_model b = ko_ring_model(&p, KO_BROADCAST, rank, &ring, root);
			struct ko_model r = ko_ring_model(&p, KO_REDUCE, rank, &ring, root);

			CHECK(b.sent == (rank == ko_ring_prev(&ring, root) ? 0 : 100) &&
			      b.received == (rank == root ? 0 : 100));
			CHECK(r.sent == (rank == root ? 0 : 100) &&
			      r.received == (rank == ko_ring_next(&ring, root) ? 0 : 100));
		}
	}
	ko_ring_free(&ring);
}

static struct ko_algorithms decide(const char *name, const struct ko_costs *costs, int nranks)
{
	struct ko_algorithms t;

	ko_algorithm_decide(ko_algorithm_table, name, costs, nranks, KO_SUMS_RING, &t);
	return t;
}

/* The board saves hops and costs bytes: it is chosen up to where the one outweighs the other. */
static void the_table_follows_from_costs(void **state)
{
	struct ko_costs slow_hops = { .board_room = 4096,
				      .hop_ns = 1e6,
				      .bytes_per_ns = 10,
				      .turn_ns = 1e6,
				      .share = 1 },
			few_bytes = { .board_room = 4096,
				      .hop_ns = 100,
				      .bytes_per_ns = 10,
				      .turn_ns = 100,
				      .share = 1 };
	struct ko_algorithms t;

	(void)state;
	t = decide("", &slow_hops, 8);
	for (int coll = KO_BARRIER + 1; coll < KO_NCOLLS; coll++)
		CHECK(t.any[KO_BOARD][coll].end == (coll == KO_ALL_GATHER ? 8 * 4096 : 4096) + 1);
	/* A turn saved, and one for 4096 * 8 / 9 bytes; for each byte (8 - 2.75) more that cross,
	 * and (7 - 7/8) that are added up: 100 / (5.25 / 10 + 6.125 / 15 - 100 * 9 / 8 / 4096). */
	t = decide("", &few_bytes, 8);
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 111 &&
	      t.any[KO_SLICES][KO_ALL_REDUCE].end == 2 * 4096 * 8 / 9 + 1 &&
	      t.any[KO_BOARD][KO_BROADCAST].end == 4097 && t.any[KO_SLICES][KO_BROADCAST].end == 0);
	/* No bytes more that cross, half of them added up: (2 * 100 - 100) / (0.5 / 15). */
	t = decide("", &few_bytes, 2);
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 3001 &&
	      t.any[KO_BOARD][KO_REDUCE_SCATTER].end == 4097);
	few_bytes.turn_ns = 150;
	t = decide("", &few_bytes, 2);
	CHECK(t.any[KO_BOARD][KO_REDUCE_SCATTER].end == 0);
	few_bytes.turn_ns = 100;
	few_bytes.board_bytes_per_ns = 20; /* 2 / 20 + 0.5 / 15 < 2 / 10 */
	t = decide("", &few_bytes, 2);
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 4097);
	few_bytes.board_bytes_per_ns = 0;
	t = decide("ring", &slow_hops, 8);
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 0 && t.any[KO_BOARD][KO_BARRIER].end == 0);
	t = decide("board", &few_bytes, 8);
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 4097);
	t = decide("", &slow_hops, 1);
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 0);
}

/* Ranks that share processors give them away in each hop, so what takes few turns lasts longer. */
static void shared_processors_want_few_turns(void **state)
{
	struct ko_costs costs = { .board_room = 4096,
				  .hop_ns = 4000,
				  .bytes_per_ns = 1,
				  .turn_ns = 4000,
				  .read_ns = 1000,
				  .read_bytes_per_ns = 1,
				  .share = 4 };
	struct ko_algorithms t;

	(void)state;
	t = decide("", &costs, 8);
	CHECK(t.any[KO_BOARD][KO_BROADCAST].end == 4097 &&
	      t.any[KO_SLICES][KO_BROADCAST].end == 4 * 4096 + 1);
	CHECK(t.any[KO_SLICES][KO_REDUCE_SCATTER].end == 4096 + 1);
	CHECK(t.any[KO_SLICES][KO_ALL_GATHER].end == UINT64_MAX);
	/* To read takes four times as long: of each byte 4 ns, and in slices 2 and a turn for each
	 * 4 KiB. */
	CHECK(t.any[KO_DIRECT][KO_BROADCAST].begin == 4 * 4096 + 1);
	costs.share = 1;
	t = decide("", &costs, 8);
	CHECK(t.any[KO_DIRECT][KO_BROADCAST].begin == 4097);
	CHECK(t.any[KO_SLICES][KO_BROADCAST].end == 0 &&
	      t.any[KO_SLICES][KO_REDUCE_SCATTER].end == 0);
	t = decide("", &costs, 2); /* a ring of two takes as many hops */
	CHECK(t.any[KO_SLICES][KO_ALL_REDUCE].end == 0);
	costs.board_room = 40; /* a few bytes of each part */
	t = decide("slices", &costs, 300);
	CHECK(t.any[KO_SLICES][KO_ALL_REDUCE].end == 0);
}

/* The sizes at which board and slices take as long, as measured on an Intel Xeon: some 24 KiB for 4
 * ranks, 8 KiB for 8. Well below and above that the better one runs. */
static void slices_begin_where_a_turn_more_is_worth_it(void **state)
{
	struct ko_costs costs = { .board_room = 64 << 10,
				  .hop_ns = 1150,
				  .bytes_per_ns = 6,
				  .turn_ns = 1840,
				  .board_bytes_per_ns = 14.6,
				  .share = 2 };
	struct ko_sizes on_board;

	(void)state;
	on_board = decide("", &costs, 4).any[KO_BOARD][KO_ALL_REDUCE];
	CHECK(ko_sizes_have(on_board, 8 << 10) && !ko_sizes_have(on_board, 48 << 10));
	costs.turn_ns = 3300;
	costs.share = 4;
	on_board = decide("", &costs, 8).any[KO_BOARD][KO_ALL_REDUCE];
	CHECK(ko_sizes_have(on_board, 4 << 10) && !ko_sizes_have(on_board, 16 << 10));
}

/* Without shared memory there is no board; an exchange saves hops and costs bytes. */
static void a_network_has_exchanges_instead(void **state)
{
	struct ko_costs costs = { .board_room = 4096,
				  .hop_ns = 1000,
				  .bytes_per_ns = 2,
				  .turn_ns = 1,
				  .read_ns = 1,
				  .read_bytes_per_ns = 100,
				  .share = 1,
				  .network = true,
				  .exchange_room = 65536,
				  .exchange_hops = 3,
				  .group = 1 };
	struct ko_algorithms t;

	(void)state;
	t = decide("", &costs, 4);
	CHECK(t.any[KO_DOUBLING][KO_BARRIER].end == 1); /* 2 steps instead of 3 hops */
	CHECK(t.any[KO_DOUBLING][KO_ALL_REDUCE].end == 0);
	CHECK(t.any[KO_EXCHANGE][KO_ALL_REDUCE].end == 2000); /* 3 * 1000 * 2 / (6 - 3) */
	CHECK(t.any[KO_EXCHANGE][KO_BARRIER].end == 0 &&
	      t.any[KO_EXCHANGE][KO_BROADCAST].end == 0); /* as many hops */
	for (int coll = KO_BARRIER; coll < KO_NCOLLS; coll++)
		CHECK(t.any[KO_BOARD][coll].end == 0 &&
		      t.any[KO_DIRECT][coll].begin == UINT64_MAX &&
		      t.windows[KO_DIRECT][coll].begin == UINT64_MAX);
	CHECK(t.rndv_begin == UINT64_MAX && t.rndv_window_begin == UINT64_MAX);
	costs.exchange_hops = 2; /* with shortcuts */
	t = decide("", &costs, 4);
	CHECK(t.any[KO_EXCHANGE][KO_ALL_REDUCE].end == 2667); /* 4 * 1000 * 2 / (6 - 3) */
	CHECK(t.any[KO_EXCHANGE][KO_BARRIER].end == 1 && t.any[KO_EXCHANGE][KO_BROADCAST].end == 0);
	costs.exchange_hops = 1;
	t = decide("", &costs, 2); /* no bytes more */
	CHECK(t.any[KO_EXCHANGE][KO_ALL_REDUCE].end == 65537);
	t = decide("ring", &costs, 2);
	CHECK(t.any[KO_EXCHANGE][KO_ALL_REDUCE].end == 0);
	costs.network = false;
	t = decide("", &costs, 2);
	CHECK(t.any[KO_EXCHANGE][KO_ALL_REDUCE].end == 0 && t.any[KO_BOARD][KO_ALL_REDUCE].end > 0);
	t = decide("exchange", &costs, 2);
	CHECK(t.any[KO_EXCHANGE][KO_ALL_REDUCE].end == 65537 &&
	      t.any[KO_BOARD][KO_ALL_REDUCE].end == 0 && t.any[KO_BOARD][KO_BARRIER].end == 0);
}

static const struct ko_costs two_near = { .board_room = 4096,
					  .hop_ns = 128,
					  .bytes_per_ns = 8,
					  .turn_ns = 128,
					  .read_ns = 512,
					  .read_bytes_per_ns = 16,
					  .share = 1,
					  .lane_bytes = 2048 };

/* Directly costs a hop or a system call more than the board, and fewer bytes than any. */
static void large_ones_are_read_where_they_are(void **state)
{
	struct ko_costs costs = two_near;
	struct ko_algorithms t;

	(void)state;
	t = decide("", &costs, 2);
	CHECK(t.windows[KO_DIRECT][KO_BROADCAST].begin == 1024); /* 128 / (2 - 1) * 8 */
	CHECK(t.any[KO_DIRECT][KO_BROADCAST].begin == 3414);     /* 640 / (2/8 - 1/16) */
	CHECK(t.any[KO_BOARD][KO_BROADCAST].end == 4097);        /* where they don't read */
	CHECK(t.windows[KO_DIRECT][KO_BARRIER].begin == UINT64_MAX &&
	      t.any[KO_DIRECT][KO_BARRIER].begin == UINT64_MAX);
	CHECK(t.rndv_window_begin == 1024 &&
	      t.rndv_begin == 2049); /* what fills the lane waits anyway */
	costs.lane_bytes = 8192;
	t = decide("", &costs, 2);
	CHECK(t.rndv_window_begin == 1024 && t.rndv_begin == 5120); /* 640 / (1.5/8 - 1/16) */
	costs.lane_slot_bytes = 2048;
	t = decide("", &costs, 2);
	CHECK(t.rndv_begin == 5120);
	costs.lane_slot_bytes = 4096; /* one slot: nothing is read while the rest is written */
	t = decide("", &costs, 2);
	CHECK(t.rndv_begin == 3414); /* 640 / (2/8 - 1/16) */
	costs.share = 2;
	t = decide("", &costs, 2);
	CHECK(t.rndv_window_begin == 1024 && t.rndv_begin == 8193);
	costs.read_bytes_per_ns = 0; /* forbidden */
	t = decide("", &costs, 2);
	CHECK(t.any[KO_DIRECT][KO_BROADCAST].begin == UINT64_MAX &&
	      t.any[KO_BOARD][KO_BROADCAST].end == 4097);
	t = decide("direct", &costs, 2);
	CHECK(t.windows[KO_DIRECT][KO_REDUCE].begin == 1 &&
	      t.any[KO_DIRECT][KO_REDUCE].begin == UINT64_MAX && !t.any[KO_BOARD][KO_REDUCE].end);
	CHECK(t.any[KO_BOARD][KO_BARRIER].end == 1);
	t = decide("ring", &costs, 2);
	CHECK(t.windows[KO_DIRECT][KO_REDUCE].begin == UINT64_MAX &&
	      t.any[KO_DIRECT][KO_REDUCE].begin == UINT64_MAX);
}

/* What both ranks of two write stays on the board while an all-gather would not read it where it
 * is; what one of them only reads is sent as a message as soon as a broadcast would read it. */
static void parts_leave_the_board_earlier_where_one_side_only_reads(void **state)
{
	struct ko_costs costs = two_near;
	struct ko_algorithms t;

	(void)state;
	costs.board_room = 1 << 15;
	t = decide("", &costs, 2);
	CHECK(t.parts_end == t.any[KO_DIRECT][KO_ALL_GATHER].begin);
	CHECK(t.parts_end == 10923); /* 1024 / (1/8 - 1/32) */
	CHECK(t.any[KO_DIRECT][KO_BROADCAST].begin == 3414);
	CHECK(t.rooted_end == 2 * 3414); /* half of it moves */
	CHECK(ko_parts_end(&t, KO_ALL_TO_ALL) == t.parts_end &&
	      ko_parts_end(&t, KO_GATHER) == t.rooted_end &&
	      ko_parts_end(&t, KO_SCATTER) == t.rooted_end);
	costs.share = 2;
	t = decide("", &costs, 2);
	CHECK(t.rooted_end == ko_min_size(t.parts_end, t.any[KO_DIRECT][KO_ALL_GATHER].begin));
	costs.share = 1;
	costs.board_few_bytes_per_ns = 4; /* some KiB cost more on the board than longer payloads */
	costs.hop_ns = 1024;              /* and the ring is no choice */
	t = decide("", &costs, 2);
	CHECK(t.parts_end == 4682);                          /* 1024 / (1/4 - 1/32) */
	CHECK(t.any[KO_DIRECT][KO_BROADCAST].begin == 1463); /* 640 / (2/4 - 1/16) */
	costs.board_few_bytes_per_ns = 0;
	costs.hop_ns = 128;
	costs.board_room = 1 << 20;
	costs.read_bytes_per_ns = 64.0 / 7;
	costs.board_bytes_per_ns = 16;
	t = decide("", &costs, 2);
	CHECK(t.parts_end == 1024 * 128); /* 1024 / (1/16 - 7/128) */
	costs.read_bytes_per_ns = 0;      /* forbidden */
	t = decide("", &costs, 2);
	CHECK(t.parts_end == (1 << 20) + 1 && t.rooted_end == t.parts_end);
}

/* Is the row a choice for costs, with buffers in windows or not, and for so many bytes? */
static bool can_do(const struct ko_algorithm_ops *row, const struct ko_costs *costs,
		   enum ko_coll coll, enum ko_sums sums, bool windows, uint64_t bytes)
{
	bool fits = row->reach == KO_ANYWHERE || (row->reach == KO_NETWORK) == costs->network;
	bool right = !ko_coll_reduces(coll) || row->sums >> sums & 1;
	const struct ko_algorithm_ops *rest = ko_algorithm_table[ko_algorithm_rest(coll, sums)];

	/* What is tried first has no end: it must stay better than the row that has none either. */
	if (row->agree &&
	    row->cost(coll, costs, 8, windows).slope > rest->cost(coll, costs, 8, false).slope)
		return false;
	return fits && right && bytes < row->end(coll, costs, 8, windows && row->agree);
}

static double time_of(const struct ko_algorithm_ops *row, const struct ko_costs *costs,
		      enum ko_coll coll, bool windows, uint64_t bytes)
{
	struct ko_estimate e = row->cost(coll, costs, 8, windows && row->agree);

	return e.fixed + e.slope * (double)bytes;
}

/* The row that runs, as ko_algorithm_decide says. */
static const struct ko_algorithm_ops *chosen(const struct ko_algorithms *t, enum ko_coll coll,
					     enum ko_sums sums, bool windows, uint64_t bytes)
{
	for (int k = 0; k < KO_NALGORITHMS; k++)
		if (ko_algorithm_table[k]->agree &&
		    ko_sizes_have(windows ? t->windows[k][coll] : t->any[k][coll], bytes))
			return ko_algorithm_table[k];
	for (int k = 1; k < KO_NALGORITHMS; k++)
		if (!ko_algorithm_table[k]->agree && ko_sizes_have(t->any[k][coll], bytes))
			return ko_algorithm_table[k];
	return ko_algorithm_table[ko_algorithm_rest(coll, sums)];
}

static void check_cheapest(const struct ko_costs *costs, enum ko_coll coll, enum ko_sums sums,
			   bool windows)
{
	struct ko_algorithms t;

	/* Longer plain memory is read in any case. */
	uint64_t end = windows || costs->share > 1 ? 1 << 20 : 128 << 10;

	ko_algorithm_decide(ko_algorithm_table, "", costs, 8, sums, &t);
	for (uint64_t bytes = 8; bytes < end; bytes += bytes / 8) {
		const struct ko_algorithm_ops *row = chosen(&t, coll, sums, windows, bytes);
		double least = time_of(row, costs, coll, windows, bytes);

		for (int k = 0; k < KO_NALGORITHMS; k++)
			CHECK(!can_do(ko_algorithm_table[k], costs, coll, sums, windows, bytes) ||
			      least <= time_of(ko_algorithm_table[k], costs, coll, windows, bytes) *
					       (1 + 1e-9));
	}
}

static void the_cheapest_runs_at_every_size(void **state)
{
	static const double hops[] = { 60, 1000, 33333.3 }, turns[] = { 0.5, 1, 2 },
			    rates[] = { 0.1, 3.7, 55 };

	(void)state;
	for (int i = 0; i < 3 * 3 * 3 * 2 * 3 * 2; i++) {
		struct ko_costs costs = { .hop_ns = hops[i % 3],
					  .turn_ns = turns[i / 3 % 3] * hops[i % 3],
					  .bytes_per_ns = rates[i / 9 % 3],
					  .read_ns = 300,
					  .read_bytes_per_ns = rates[i / 9 % 3] * (i / 54 % 3),
					  .share = i / 3 % 2 ? 1 : 2,
					  .network = i / 162,
					  .board_room = 4096,
					  .exchange_room = 65536,
					  .exchange_hops = i / 27 % 2 ? 3 : 7,
					  .group = 1 + i / 54 % 2,
					  .group_room = 65536 };

		for (int coll = KO_BARRIER + 1; coll < KO_NCOLLS; coll++)
			for (int windows = 0; windows <= 1; windows++)
				for (int sums = 0; sums < KO_NSUMS; sums++)
					check_cheapest(&costs, (enum ko_coll)coll,
						       (enum ko_sums)sums, windows);
	}
}

static void rows_are_complete_and_found_by_name(void **state)
{
	const struct ko_algorithm_ops *found;

	(void)state;
	for (int k = 0; k < KO_NALGORITHMS; k++) {
		const struct ko_algorithm_ops *row = ko_algorithm_table[k];

		CHECK(row->name && *row->name && row->what && *row->what && row->sums);
		CHECK(row->end && row->cost && row->takes && row->run && row->model);
		CHECK(ko_algorithm_find(row->name, &found) == 0 && found == row);
	}
	CHECK(ko_algorithm_find("", &found) == 0 && !found);
	CHECK(ko_algorithm_find("magic", &found) == KOLO_ENOTSUP &&
	      strcmp(kolo_last_error(),
		     "no algorithm called 'magic'; this build has: ring, board, slices, exchange, doubling, partials, center, shares, direct, pairwise, grid") ==
		      0);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static void check_shape(const int *group, int nranks, int ngroups, const int *ranks)
{
	struct ko_shape s;

	CHECK(ko_shape_make(group, nranks, &s) == 0);
	CHECK(s.ngroups == ngroups && s.ngroups * s.size == nranks);
	for (int k = 0; k < nranks; k++) {
		CHECK(ko_shape_rank(&s, k / s.size, k % s.size) == ranks[k]);
		CHECK(ko_shape_group(&s, ranks[k]) == k / s.size);
		CHECK(ko_shape_rail(&s, ranks[k]) == k % s.size);
	}
	/* Up to a turn below 0 and above. */
	CHECK(ko_shape_rank(&s, -1, -1) == ranks[nranks - 1]);
	CHECK(ko_shape_rank(&s, -s.ngroups, -s.size) == ranks[0]);
	CHECK(ko_shape_rank(&s, s.ngroups, s.size) == ranks[0]);
	ko_shape_free(&s);
	CHECK(!s.ranks && s.size == 0);
}

static void groups_are_in_order_of_number_and_ranks_too(void **state)
{
	(void)state;
	check_shape((int[]){ 0, 0, 1, 1, 2, 2 }, 6, 3, (int[]){ 0, 1, 2, 3, 4, 5 });
	check_shape((int[]){ 7, 3, 7, 3 }, 4, 2, (int[]){ 1, 3, 0, 2 });
	check_shape((int[]){ 5, 4, 3 }, 3, 3, (int[]){ 2, 1, 0 });
	check_shape((int[]){ 1, 1, 1 }, 3, 1, (int[]){ 0, 1, 2 });
	check_shape((int[]){ 9 }, 1, 1, (int[]){ 0 });
}

static void groups_of_different_sizes_are_refused(void **state)
{
	struct ko_shape s;

	(void)state;
	CHECK(ko_shape_make((int[]){ 2, 1, 2, 2, 1, 3, 3, 3 }, 8, &s) == KOLO_ENOTSUP && !s.ranks);
	CHECK(strcmp(kolo_last_error(),
		     "the order 'grid' needs groups (hosts) of equally many ranks: that of rank 1 "
		     "has 2, that of rank 0 has 3") == 0);
}

static void shapes_are_read(void **state)
{
	static const char *const bad[] = { "2x2",   "6",    "6x",  "x6", "0x6",  "-2x-3",
					   "2x3x1", "2x3 ", "3,2", "",   "12x1", "4x1" };
	int group;

	(void)state;
	for (int r = 0; r < 6; r++) {
		CHECK(ko_shape_read("2x3", r, 6, &group) == 0 && group == r / 3);
		CHECK(ko_shape_read("6x1", r, 6, &group) == 0 && group == r);
		CHECK(ko_shape_read("1x6", r, 6, &group) == 0 && group == 0);
	}
	for (size_t k = 0; k < ARRAY_LEN(bad); k++)
		CHECK(ko_shape_read(bad[k], 0, 6, &group) == KOLO_EINVAL);
}

/* ---- The tree -------------------------------------------------------------------------------- */

/* Appends the sum of ranks [first, first + n), as its definition says, in brackets. */
static char *write_tree(char *out, int first, int n)
{
	int half = 1;

	if (n == 1)
		return out + sprintf(out, "%d", first);
	while (half * 2 < n)
		half *= 2;
	out = write_tree(out + sprintf(out, "("), first, half);
	out = write_tree(out + sprintf(out, "+"), first + half, n - half);
	return out + sprintf(out, ")");
}

static void a_stack_adds_up_the_tree(void **state)
{
	enum { MOST = 140, ROOM = 2000, HEIGHT = 8 };
	static char stack[HEIGHT][ROOM], want[ROOM], sum[ROOM];

	(void)state;
	for (int n = 1; n <= MOST; n++) {
		int height = 0;

		for (int r = 0; r < n; r++) {
			CHECK(height < ko_tree_height(n));
			snprintf(stack[height++], ROOM, "%d", r);
			for (int k = ko_tree_joins(r + 1, n); k > 0; k--) {
				CHECK(height-- > 1);
				CHECK(snprintf(sum, ROOM, "(%s+%s)", stack[height - 1],
					       stack[height]) < ROOM);
				memcpy(stack[height - 1], sum, ROOM);
			}
		}
		write_tree(want, 0, n);
		CHECK(height == 1 && strcmp(stack[0], want) == 0);
	}
	CHECK(ko_tree_height(65536) == 17);
}

/* Sums are written as their brackets. Whoever sends is the one that is waited for, and everyone
 * ends with the tree, after as many steps as log2(n), rounded up. */
static void doubling_gives_everyone_the_tree(void **state)
{
	enum { MOST = 40, ROOM = 400 };
	static char sums[MOST][ROOM], next[MOST][ROOM], want[ROOM];

	(void)state;
	for (int n = 1; n <= MOST; n++) {
		for (int me = 0; me < n; me++)
			snprintf(sums[me], ROOM, "%d", me);
		for (int half = 1; half < n; half *= 2) {
			int sent = 0, awaited = 0;

			memcpy(next, sums, sizeof(next));
			for (int me = 0; me < n; me++) {
				struct ko_partners p = ko_doubling_partners(me, n, half);

				if (p.from < 0)
					continue;
				awaited++;
				sent += p.n;
				for (int k = 0; k < p.n; k++)
					CHECK(ko_doubling_partners(p.to + k * p.step, n, half)
						      .from == me);
				CHECK(snprintf(next[me], ROOM, "(%s+%s)",
					       sums[p.is_left ? me : p.from],
					       sums[p.is_left ? p.from : me]) < ROOM);
			}
			CHECK(sent == awaited);
			memcpy(sums, next, sizeof(sums));
		}
		write_tree(want, 0, n);
		for (int me = 0; me < n; me++)
			CHECK(strcmp(sums[me], want) == 0);
	}
}

/* Each but root sends once, to the one that waits for it at that distance; root has the tree. */
static void doubling_brings_the_tree_to_root(void **state)
{
	enum { MOST = 33, ROOM = 400 };
	static char sums[MOST][ROOM], sum[ROOM], want[ROOM];

	(void)state;
	for (int i = 1; i < MOST * MOST; i++) {
		int n = i / MOST + 1, root = i % MOST, at;

		for (int me = 0; me < n; me++)
			snprintf(sums[me], ROOM, "%d", me);
		for (int k = 0; root < n && k < n * 6; k++) {
			int half = 1 << k / n, me = k % n,
			    to = ko_doubling_parent(me, n, root, &at);
			struct ko_partners p;

			if (to < 0 || at != half)
				continue;
			p = ko_doubling_partners(to, n, half);
			CHECK(p.from == me);
			ko_doubling_parent(to, n, root, &at);
			CHECK(half < at);
			CHECK(snprintf(sum, ROOM, "(%s+%s)", sums[p.is_left ? to : me],
				       sums[p.is_left ? me : to]) < ROOM);
			memcpy(sums[to], sum, ROOM);
		}
		write_tree(want, 0, n);
		CHECK(root >= n || strcmp(sums[root], want) == 0);
	}
}

/* Rows that don't add as a tree don't run; pairwise does what no other row does. */
static void reductions_as_a_tree_are_never_left_to_the_ring(void **state)
{
	static const char *const names[] = { "",         "board",  "slices",  "exchange",
					     "doubling", "direct", "pairwise" };
	struct ko_costs costs = { .hop_ns = 1000,
				  .turn_ns = 1000,
				  .bytes_per_ns = 1,
				  .share = 1,
				  .board_room = 4096,
				  .exchange_room = 4096,
				  .exchange_hops = 3,
				  .group = 2,
				  .group_room = 4096 };
	struct ko_algorithms t;

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(names) * 2; k++) {
		costs.network = k % 2;
		ko_algorithm_decide(ko_algorithm_table, names[k / 2], &costs, 8, KO_SUMS_TREE, &t);
		for (int coll = KO_BROADCAST; coll < KO_NCOLLS; coll++) {
			bool adds = ko_coll_reduces(coll);

			CHECK((t.any[KO_RING][coll].end == 0) == adds);
			CHECK((t.any[KO_PAIRWISE][coll].end == UINT64_MAX) == adds);
			CHECK(adds || t.any[KO_PAIRWISE][coll].end == 0);
		}
	}
	CHECK(t.any[KO_BOARD][KO_ALL_REDUCE].end == 0);
}

/* Few hops for short vectors, few bytes for long ones; and leaders need room. */
static void leaders_exchange_whole_sums_or_share_out(void **state)
{
	enum { GROUPS = 8, RAILS = 2, N = GROUPS * RAILS };
	struct ko_costs costs = { .hop_ns = 1000,
				  .group_hop_ns = 1000,
				  .rail_hop_ns = 1000,
				  .bytes_per_ns = 1,
				  .group_bytes_per_ns = 1,
				  .lone_bytes_per_ns = 1,
				  .group = 1,
				  .groups = GROUPS,
				  .rails = RAILS,
				  .network = true,
				  .slot_bytes = 1 << 18 };
	struct kolo_comm c = { .nranks = N, .shape = { .ngroups = GROUPS, .size = RAILS } };
	struct ko_algorithms t;

	(void)state;
	costs.leaders_room = ko_partials_room(&c);
	CHECK(costs.leaders_room == KO_SCRATCH - (2 * GROUPS + 1) * 8 - 2 * N * KO_MAX_SIZE);
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_GRID, &t);
	/* 5, 8 and 16 hops; 18, 8.75 and 3.75 crossings */
	CHECK(t.any[KO_PARTIALS][KO_ALL_REDUCE].end == 325);
	CHECK(t.any[KO_SHARES][KO_ALL_REDUCE].end == 1600);
	CHECK(t.any[KO_CENTER][KO_ALL_REDUCE].end == 44); /* 1000 / (32 - 8.75): partials run */
	/* 5, 5 and 8 hops; 16.125, 5.125 and 1.875 crossings */
	CHECK(t.any[KO_PARTIALS][KO_REDUCE_SCATTER].end == 0);
	CHECK(t.any[KO_SHARES][KO_REDUCE_SCATTER].end == 924);
	CHECK(t.any[KO_PARTIALS][KO_BARRIER].end == 0 && t.any[KO_SHARES][KO_BARRIER].end == 0);
	/* 4 hops and 8 crossings; in a chain 15, and 2 and those of 14 slots */
	CHECK(t.any[KO_PARTIALS][KO_BROADCAST].end == (11000 / 2 + 14 * (1 << 18)) / 3);
	CHECK(t.any[KO_SHARES][KO_BROADCAST].end == 0);
	CHECK(t.any[KO_GRID][KO_BROADCAST].end == UINT64_MAX);
	/* 3.5 and 6.5 hops; 16 and 6.75 crossings, or 10 and 6 */
	CHECK(t.any[KO_PARTIALS][KO_REDUCE].end == 325);
	/* Hosts that share processors: 7 hops, and 14 crossings of one leader alone beside 4 */
	costs.lone_bytes_per_ns = 10;
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_GRID, &t);
	CHECK(t.any[KO_PARTIALS][KO_ALL_REDUCE].end == 179); /* 2000 / (18 - 6.8) */
	CHECK(t.any[KO_CENTER][KO_ALL_REDUCE].end == 2951);  /* 9000 / (6.8 - 3.75) */
	CHECK(t.any[KO_CENTER][KO_REDUCE_SCATTER].end == 0);
	costs.lone_bytes_per_ns = 1;
	costs.by_processors = true;
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_GRID, &t);
	CHECK(t.any[KO_PARTIALS][KO_REDUCE].end == 750);
	costs.one_card = true;
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_GRID, &t);
	CHECK(t.any[KO_GRID][KO_BROADCAST].end == 0 && t.any[KO_GRID][KO_REDUCE].end > 0);
	/* 8 and 5 hops; 1.875 and 10 crossings */
	CHECK(t.led_end == 370 && t.parts_end == 0);
	costs.group_hop_ns = 100; /* 3 hops between leaders and 2 in groups, or 7 and 1 */
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_GRID, &t);
	CHECK(t.any[KO_SHARES][KO_REDUCE_SCATTER].end == 1200); /* 3900 / (5.125 - 1.875) */
	costs.group_bytes_per_ns = 10;
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_GRID, &t);
	CHECK(t.any[KO_SHARES][KO_REDUCE_SCATTER].end == 2916); /* 3900 / (3.2125 - 1.875) */
	ko_algorithm_decide(ko_algorithm_table, "partials", &costs, N, KO_SUMS_GRID, &t);
	CHECK(t.led_end == 0);
	CHECK(t.any[KO_PARTIALS][KO_ALL_REDUCE].end == costs.leaders_room / GROUPS + 1);
	CHECK(t.any[KO_PARTIALS][KO_ALL_GATHER].end == costs.leaders_room + 1);
	/* its own sum, the result, and 16 KiB or one of the others */
	CHECK(t.any[KO_PARTIALS][KO_REDUCE].end == (costs.leaders_room - (16 << 10)) / 3 + 1);
	ko_algorithm_decide(ko_algorithm_table, "shares", &costs, N, KO_SUMS_GRID, &t);
	/* its sum; elements of all, and messages of half as many: one sent, and one from each hop
	 */
	CHECK(t.any[KO_SHARES][KO_ALL_REDUCE].end == costs.leaders_room / 4 + 1);
	CHECK(t.led_end == costs.leaders_room / (2 * RAILS) + 1);
	ko_algorithm_decide(ko_algorithm_table, "", &costs, N, KO_SUMS_TREE, &t);
	CHECK(t.any[KO_PARTIALS][KO_ALL_REDUCE].end == 0);
	CHECK(t.any[KO_SHARES][KO_ALL_REDUCE].end == 0);
	c.shape.ngroups = 40000; /* their first elements alone fill the scratch */
	CHECK(ko_partials_room(&c) == 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(leaders_exchange_whole_sums_or_share_out),
	cmocka_unit_test(groups_are_in_order_of_number_and_ranks_too),
	cmocka_unit_test(groups_of_different_sizes_are_refused),
	cmocka_unit_test(shapes_are_read),
	cmocka_unit_test(a_stack_adds_up_the_tree),
	cmocka_unit_test(doubling_gives_everyone_the_tree),
	cmocka_unit_test(doubling_brings_the_tree_to_root),
	cmocka_unit_test(reductions_as_a_tree_are_never_left_to_the_ring),
	cmocka_unit_test(a_network_has_exchanges_instead),
	cmocka_unit_test(large_ones_are_read_where_they_are),
	cmocka_unit_test(parts_leave_the_board_earlier_where_one_side_only_reads),
	cmocka_unit_test(rows_are_complete_and_found_by_name),
	cmocka_unit_test(the_cheapest_runs_at_every_size),
	cmocka_unit_test(the_table_follows_from_costs),
	cmocka_unit_test(shared_processors_want_few_turns),
	cmocka_unit_test(slices_begin_where_a_turn_more_is_worth_it),
	cmocka_unit_test(pieces_tile_every_block),
	cmocka_unit_test(slices_are_cut_into_fewer_packets_and_never_get_longer),
	cmocka_unit_test(uneven_blocks_are_tiled_too),
	cmocka_unit_test(a_broken_plan_is_refused),
	cmocka_unit_test(counts_beyond_32_bits_tile_too),
	cmocka_unit_test(ranks_of_a_host_stand_together),
	cmocka_unit_test(ranks_of_one_host_stand_by_number),
	cmocka_unit_test(every_block_is_added_from_after_its_owner_round_to_it),
	cmocka_unit_test(the_model_is_what_the_steps_add_up_to),
	cmocka_unit_test(an_all_reduce_sends_2k_n_minus_1_over_n),
	cmocka_unit_test(broadcast_and_reduce_are_chains),
};

T_MAIN(tests)
