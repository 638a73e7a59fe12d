/* The grid: places, groups, texts, and communicators along its axes. */
#include "kolo/kolo_parallel.h"
#include "tests/lib/t.h"

#include <stdlib.h>
#include <string.h>

static void places_and_groups_fit_together(void **state)
{
	int ranks[24];

	(void)state;
	for (int tensor = 1; tensor <= 4; tensor++)
		for (int pipe = 1; pipe <= 3; pipe++)
			for (int data = 1; data <= 2; data++)
				for (int r = 0; r < tensor * pipe * data; r++) {
					struct kolo_grid_place p;

					CHECK(kolo_grid_locate(tensor * pipe * data, tensor, pipe,
							       r, &p) == 0);
					CHECK(p.tensor_size == tensor && p.data_size == data &&
					      p.pipe_size == pipe);
					CHECK((p.pipe * data + p.data) * tensor + p.tensor == r);
					/* Each finds itself at its place. */
					CHECK(kolo_grid_group(&p, KOLO_GRID_TENSOR, ranks) ==
						      tensor &&
					      ranks[p.tensor] == r);
					CHECK(kolo_grid_group(&p, KOLO_GRID_DATA, ranks) == data &&
					      ranks[p.data] == r);
					CHECK(kolo_grid_group(&p, KOLO_GRID_PIPE, ranks) == pipe &&
					      ranks[p.pipe] == r);
				}
}

static void groups_are_printed(void **state)
{
	static const char want[] = "tensor: {0 1} {2 3} {4 5} {6 7} {8 9} {10 11}\n"
				   "data: {0 2} {1 3} {4 6} {5 7} {8 10} {9 11}\n"
				   "pipe: {0 4 8} {1 5 9} {2 6 10} {3 7 11}\n"
				   "tied: {0 8} {1 9} {2 10} {3 11}\n";
	struct kolo_grid_place p;
	char text[512], cut[20];

	(void)state;
	CHECK(kolo_grid_locate(12, 2, 3, 7, &p) == 0);
	CHECK(kolo_grid_text(&p, text, sizeof(text)) == strlen(want) && strcmp(text, want) == 0);
	CHECK(kolo_grid_text(&p, cut, sizeof(cut)) == strlen(want));
	CHECK(strlen(cut) == sizeof(cut) - 1 && strncmp(cut, want, sizeof(cut) - 1) == 0);
	CHECK(kolo_grid_text(&p, NULL, 0) == strlen(want));
	CHECK(kolo_grid_locate(2, 1, 1, 0, &p) == 0 && kolo_grid_text(&p, text, sizeof(text)) > 0);
	CHECK(strcmp(text, "tensor: {0} {1}\ndata: {0 1}\npipe: {0} {1}\n") == 0);
}

static void refuses(int rc, int want, const char *text)
{
	CHECK(rc == want && strstr(kolo_last_error(), text));
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
	struct kolo_grid_place p;

	(void)state;
	refuses(kolo_grid_locate(8, 3, 2, 0, &p), KOLO_EINVAL,
		"tensor 3 x pipe 2 needs a multiple of 6 ranks, and there are 8");
	refuses(kolo_grid_locate(8, 0, 2, 0, &p), KOLO_EINVAL,
		"tensor 0 x pipe 2: want at least 1 of each");
	refuses(kolo_grid_locate(8, 2, -2, 0, &p), KOLO_EINVAL, "tensor 2 x pipe -2");
	refuses(kolo_grid_locate(8, 16, 1, 0, &p), KOLO_EINVAL, "a multiple of 16");
	refuses(kolo_grid_locate(8, 1 << 30, 1 << 30, 0, &p), KOLO_EINVAL, "there are 8");
	refuses(kolo_grid_locate(8, 2, 2, 8, &p), KOLO_EINVAL, "rank 8 of 8");
}

static void use_axes(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_grid *grid;

	CHECK(kolo_grid_create(comm, 2, 2, &grid) == 0);
	for (int axis = KOLO_GRID_TENSOR; axis <= KOLO_GRID_TIED; axis++) {
		struct kolo_comm *c = kolo_grid_comm(grid, (enum kolo_grid_axis)axis);
		int ranks[8], got[8], n;

		n = kolo_grid_group(kolo_grid_here(grid), (enum kolo_grid_axis)axis, ranks);
		CHECK(c && kolo_comm_nranks(c) == n);
		CHECK(kolo_all_gather(c, &t->rank, got, 1, KOLO_I32, NULL) == 0);
		CHECK(memcmp(ranks, got, (size_t)n * sizeof(*got)) == 0);
	}
	CHECK(!kolo_grid_comm(grid, (enum kolo_grid_axis)9));
	kolo_grid_destroy(grid);

	/* One stage: no rank is tied to another. */
	CHECK(kolo_grid_create(comm, 1, 1, &grid) == 0);
	CHECK(!kolo_grid_comm(grid, KOLO_GRID_TIED));
	CHECK(kolo_comm_nranks(kolo_grid_comm(grid, KOLO_GRID_DATA)) == 8);
	kolo_grid_destroy(grid);

	refuses(kolo_grid_create(comm, 3, 1, &grid), KOLO_EINVAL, "a multiple of 3 ranks");
	CHECK(!grid);
	refuses(kolo_grid_create(comm, t->rank == 5 ? 3 : 2, 1, &grid), KOLO_EINVAL,
		"rank 5: a grid of tensor 3");
	refuses(kolo_grid_create(comm, 2, t->rank == 5 ? 4 : 2, &grid), KOLO_EMISMATCH,
		"rank 5 makes a grid of tensor 2 x pipe 4, and rank 0 one of 2 x 2");
	kolo_comm_destroy(comm);
}

static void each_axis_has_its_communicator(void **state)
{
	(void)state;
	t_processes(8, use_axes, NULL);
	kolo_grid_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(places_and_groups_fit_together),
	cmocka_unit_test(groups_are_printed),
	cmocka_unit_test(sizes_that_do_not_fit_are_refused),
	cmocka_unit_test(each_axis_has_its_communicator),
};

T_MAIN(tests)
