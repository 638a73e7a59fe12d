/* What a communicator has on its GPU: its errors, where its flags and posts lie, and questions that
 * are answered from that alone. */
#include "cuda/gpu/gpu.h"

struct ko_gpu_comm *ko_gpu_of(struct kolo_comm *comm)
{
	return (struct ko_gpu_comm *)comm->attached;
}

int ko_gpu_error(const struct ko_gpu_comm *g, int code, const char *what)
{
	const struct ko_gpu_info *info = g->gpu ? g->driver->info(g->gpu) : NULL;
	char me[KO_RANK_TEXT];

	return ko_fail(code, "%s: GPU %d (%s at %s): %s: %s",
		       ko_comm_name(g->comm, g->comm->rank, me), info ? info->ordinal : -1,
		       info ? info->name : "none", info ? info->bus : "?", what, g->driver->text());
}

int ko_gpu_neighbour(const struct kolo_comm *c, int ring, int rank, int steps)
{
	int group, rail;

	if (ring == KO_GPU_ALL)
		return ko_ring_back(&c->ring, rank, -steps);
	group = ko_shape_group(&c->shape, rank);
	rail = ko_shape_rail(&c->shape, rank);
	return ring == KO_GPU_GROUP ? ko_shape_rank(&c->shape, group, rail + steps)
				    : ko_shape_rank(&c->shape, group + steps, rail);
}

bool ko_gpu_is_staged(const struct ko_gpu_comm *g, int ring, int rank)
{
	const struct kolo_comm *c = g->comm;
	int next = ko_gpu_neighbour(c, ring, rank, 1);

	return g->apart || !ko_place_same(&c->table[rank].place, &c->table[next].place);
}

static size_t flags_at(const struct ko_gpu_comm *g, int rank, int end)
{
	return (size_t)g->places[rank] * g->flags_len + (size_t)end * KO_GPU_FLAGS_LEN;
}

struct ko_gpu_flags *ko_gpu_flags_of(const struct ko_gpu_comm *g, int rank, int end)
{
	return g->places[rank] < 0 ? NULL : (void *)(g->flags + flags_at(g, rank, end));
}

char *ko_gpu_flags_there(const struct ko_gpu_comm *g, int rank, int end)
{
	return g->gpu_flags + flags_at(g, rank, end);
}

bool ko_gpu_is_far(const struct ko_gpu_comm *g, int a, int b)
{
	return g->lanes.far || g->apart || g->places[a] < 0 || g->places[b] < 0;
}

static size_t board_at(const struct ko_gpu_comm *g, int from, int to, bool sends)
{
	bool own = sends && ko_gpu_is_far(g, from, to);
	int rank = own ? from : to, k = own ? g->comm->nranks + to : from;

	return flags_at(g, rank, 0) + KO_GPU_SHARED + (size_t)k * sizeof(struct ko_gpu_lane_board);
}

struct ko_gpu_lane_board *ko_gpu_board_of(const struct ko_gpu_comm *g, int from, int to, bool sends)
{
	return (void *)(g->flags + board_at(g, from, to, sends));
}

char *ko_gpu_board_there(const struct ko_gpu_comm *g, int from, int to, bool sends)
{
	return g->gpu_flags + board_at(g, from, to, sends);
}

size_t ko_gpu_shared_len(int nranks)
{
	return KO_GPU_SHARED + 2 * (size_t)nranks * sizeof(struct ko_gpu_lane_board);
}

struct ko_gpu_post *ko_gpu_post_of(const struct ko_gpu_comm *g, int rank, uint64_t seq)
{
	struct ko_gpu_post *posts = (void *)(g->flags + flags_at(g, rank, KO_GPU_ENDS));

	return &posts[seq % KO_GPU_POSTS];
}

bool ko_gpu_may_release(const struct ko_gpu_comm *g)
{
	bool alone = true;

	for (int r = 0; g->marks && r < g->comm->nranks; r++)
		alone = alone && (r == g->comm->rank || !g->marks[r]);
	return alone || ko_roster_cause(g->comm->roster) == 0;
}

size_t ko_gpu_path_check_len(const struct ko_gpu_comm *g, const struct ko_gpu_ring *ring)
{
	return ((size_t)g->inner->agreed.limits.nslots + 2) * ring->over_len;
}

int ko_gpu_path_lies(const struct ko_gpu_comm *g, int rank, bool staged)
{
	char them[KO_RANK_TEXT];

	return ko_fail(
		KOLO_ESYS,
		"rank %d: what %s wrote into this GPU's memory, or has in its own, did not arrive as it was: the path "
		"between the two GPUs lies. Access control (ACS) or an IOMMU between %s does that: turn it off, or %s",
		g->comm->rank, ko_comm_name(g->comm, rank, them),
		staged ? "a GPU and its card" : "them",
		staged ? "keep cards away from GPU memory (KOLO_CUDA_DMABUF=0)"
		       : "let them go through host memory (KOLO_CUDA_P2P=0)");
}
