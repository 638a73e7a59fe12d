/* Random programs (nccl_program.h): bundles of steps, and splits between them. */
#include "tests/nccl/nccl_program.h"

#include <unistd.h>

enum { TURNS = 2 }; /* so often a captured bundle is launched */

/* ---- Bundles --------------------------------------------------------------------------------- */

struct bundle bundle_draw(uint64_t *seed, int nranks)
{
	struct bundle b = { .way = (int)(draw(seed) % WAYS), .n = 1 + (int)(draw(seed) % PARTS) };

	for (int k = 0; k < b.n; k++)
		b.steps[k] = step_draw(seed, nranks);
	return b;
}

/* The rank with the memory of a part. */
static struct rank part(const struct rank *r, int k)
{
	struct rank out = *r;

	out.src += (size_t)k * ROOM;
	out.dst += (size_t)k * ROOM;
	return out;
}

static void fill_parts(struct rank *ranks, int n, const struct bundle *b)
{
	for (int k = 0; k < b->n; k++)
		for (int i = 0; i < n; i++) {
			struct rank mine = part(&ranks[i], k);

			step_fill(&mine, &b->steps[k]);
		}
}

static void check_parts(struct rank *ranks, int n, const struct bundle *b)
{
	for (int i = 0; i < n; i++)
		finish(&ranks[i]);
	for (int k = 0; k < b->n; k++)
		for (int i = 0; i < n; i++) {
			struct rank mine = part(&ranks[i], k);

			step_check(&mine, &b->steps[k]);
		}
}

/* Step k of all ranks, in the memory of a part. One thread has a group for several. */
static void start_step(struct rank *ranks, int n, const struct step *s, int place)
{
	if (n > 1)
		MUST(ncclGroupStart());
	for (int i = 0; i < n; i++) {
		struct rank mine = part(&ranks[i], place);

		step_start(&mine, s);
	}
	if (n > 1)
		MUST(ncclGroupEnd());
}

static void start_steps(struct rank *ranks, int n, const struct bundle *b)
{
	for (int k = 0; k < b->n; k++)
		start_step(ranks, n, &b->steps[k], k);
}

/* The stream goes on after all that the other one has now. */
static void follow(void *event, cudaStream_t stream, cudaStream_t other)
{
	CHECK(cuEventRecord(event, other) == 0 && cuStreamWaitEvent(stream, event, 0) == 0);
}

/* The step's stream follows all others, or all others follow it. */
static void join_streams(struct rank *r, const struct step *s, void *event, bool others)
{
	cudaStream_t own = r->stream[s->stream];

	for (int k = 0; k < STREAMS; k++)
		if (k != s->stream)
			follow(event, others ? r->stream[k] : own, others ? own : r->stream[k]);
}

static void copy(uint8_t *to, const uint8_t *from, cudaStream_t stream)
{
	CHECK(cuMemcpyAsync((address)(uintptr_t)to, (address)(uintptr_t)from, ROOM, stream) == 0);
}

/* All steps work in the memory of one more part, so that events must keep them apart. Streams bring
 * what a step needs, and take away what it leaves. */
static void start_between_events(struct rank *ranks, int n, const struct bundle *b)
{
	void *events[MAX_RANKS];

	for (int i = 0; i < n; i++)
		CHECK(cuEventCreate(&events[i], 2) == 0);
	for (int k = 0; k < b->n; k++) {
		const struct step *s = &b->steps[k];

		for (int i = 0; i < n; i++) {
			struct rank from = part(&ranks[i], k), to = part(&ranks[i], PARTS);

			if (k > 0)
				join_streams(&ranks[i], &b->steps[k - 1], events[i], true);
			copy(to.src, from.src, to.stream[s->stream]);
			copy(to.dst, from.dst, to.stream[s->stream]);
			join_streams(&ranks[i], s, events[i], true);
		}
		start_step(ranks, n, s, PARTS);
		for (int i = 0; i < n; i++) {
			struct rank to = part(&ranks[i], k), from = part(&ranks[i], PARTS);

			join_streams(&ranks[i], s, events[i], false);
			copy(to.dst, from.dst, to.stream[s->stream]);
		}
	}
	for (int i = 0; i < n; i++)
		cuEventDestroy_v2(events[i]);
}

static void begin_capture(const struct rank *r, void *event)
{
	CHECK(cuStreamBeginCapture_v2(r->stream[0], 2) == 0);
	for (int k = 1; k < STREAMS; k++)
		follow(event, r->stream[k], r->stream[0]);
}

static void *end_capture(const struct rank *r, void *event)
{
	void *graph, *launched;

	for (int k = 1; k < STREAMS; k++)
		follow(event, r->stream[0], r->stream[k]);
	CHECK(cuStreamEndCapture(r->stream[0], &graph) == 0);
	CHECK(cuGraphInstantiateWithFlags(&launched, graph, 0) == 0);
	cuGraphDestroy(graph);
	return launched;
}

static void run_captured(struct rank *ranks, int n, struct bundle b)
{
	void *events[MAX_RANKS], *graphs[MAX_RANKS];

	for (int i = 0; i < n; i++) {
		CHECK(cuEventCreate(&events[i], 2) == 0);
		begin_capture(&ranks[i], events[i]);
	}
	start_steps(ranks, n, &b);
	for (int i = 0; i < n; i++)
		graphs[i] = end_capture(&ranks[i], events[i]);
	for (int turn = 0; turn < TURNS; turn++) {
		for (int k = 0; k < b.n; k++)
			b.steps[k].turn = (uint64_t)turn;
		fill_parts(ranks, n, &b);
		for (int i = 0; i < n; i++)
			CHECK(cuGraphLaunch(graphs[i], ranks[i].stream[0]) == 0);
		check_parts(ranks, n, &b);
	}
	for (int i = 0; i < n; i++) {
		cuGraphExecDestroy(graphs[i]);
		cuEventDestroy_v2(events[i]);
	}
}

void bundle_run(struct rank *ranks, int n, const struct bundle *b)
{
	if (b->way == CAPTURED) {
		run_captured(ranks, n, *b);
		return;
	}
	fill_parts(ranks, n, b);
	if (b->way == GROUPED)
		MUST(ncclGroupStart());
	if (b->way == EVENTS)
		start_between_events(ranks, n, b);
	else
		start_steps(ranks, n, b);
	if (b->way == GROUPED)
		MUST(ncclGroupEnd());
	check_parts(ranks, n, b);
}

/* ---- Programs -------------------------------------------------------------------------------- */

static int run_bundles(struct rank *r, uint64_t *seed)
{
	struct bundle b = bundle_draw(seed, r->nranks);

	bundle_run(r, 1, &b);
	return b.n;
}

void await(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;

	while (state == ncclInProgress) {
		MUST(ncclCommGetAsyncError(comm, &state));
		usleep(500);
	}
	must(state, "the communicator", __FILE__, __LINE__);
}

/* Into two parts, which do other things; some ranks are in none. */
static void run_split(struct rank *r, uint64_t seed)
{
	enum { BUNDLES = 3, COLORS = 3 };
	struct rank half = *r;
	int colors[MAX_RANKS], color;
	ncclResult_t result;

	for (int k = 0; k < r->nranks; k++)
		colors[k] = (int)(draw(&seed) % COLORS) - 1;
	color = colors[r->rank];
	result = ncclCommSplit(r->comm, color, draw(&seed) % 2 ? r->rank : -r->rank, &half.comm,
			       NULL);
	CHECK(result == ncclSuccess || (result == ncclInProgress && !r->blocks));
	CHECK(!half.comm == (color < 0));
	await(r->comm);
	if (color < 0)
		return;
	await(half.comm);
	MUST(ncclCommCount(half.comm, &half.nranks));
	MUST(ncclCommUserRank(half.comm, &half.rank));
	seed += (uint64_t)color;
	for (int k = 0; k < BUNDLES; k++)
		run_bundles(&half, &seed);
	MUST(ncclCommDestroy(half.comm));
}

enum { SPLITS = 60 }; /* one after so many bundles */

void run_program(struct rank *r, uint64_t seed)
{
	int steps = number("T_STEPS", 150);

	for (int done = 0; done < steps;) {
		done += run_bundles(r, &seed);
		if (draw(&seed) % SPLITS == 0)
			run_split(r, draw(&seed));
	}
}

/* The ranks with a color, in the order that the split gives them. Returns how many. */
static int gather_part(const struct rank *halves, const int *colors, int nranks, int color,
		       struct rank *out)
{
	int n = 0;

	for (int k = 0; k < nranks; k++)
		if (colors[k] == color) {
			out[n] = halves[k];
			out[n].rank = n;
			n++;
		}
	for (int k = 0; k < n; k++)
		out[k].nranks = n;
	return n;
}

static void split_all(struct rank *ranks, int nranks, uint64_t seed)
{
	struct rank halves[MAX_RANKS], part[MAX_RANKS];
	int colors[MAX_RANKS];

	for (int k = 0; k < nranks; k++)
		colors[k] = (int)(draw(&seed) % 2);
	MUST(ncclGroupStart());
	for (int k = 0; k < nranks; k++) {
		halves[k] = ranks[k];
		MUST(ncclCommSplit(ranks[k].comm, colors[k], k, &halves[k].comm, NULL));
	}
	MUST(ncclGroupEnd());
	for (int color = 0; color < 2; color++) {
		int n = gather_part(halves, colors, nranks, color, part);

		for (int k = 0; n && k < PARTS; k++) {
			struct bundle b = bundle_draw(&seed, n);

			bundle_run(part, n, &b);
		}
	}
	MUST(ncclGroupStart());
	for (int k = 0; k < nranks; k++)
		MUST(ncclCommDestroy(halves[k].comm));
	MUST(ncclGroupEnd());
}

void run_all_program(struct rank *ranks, int nranks, uint64_t seed)
{
	int steps = number("T_STEPS", 150);

	for (int done = 0; done < steps;) {
		struct bundle b = bundle_draw(&seed, nranks);

		bundle_run(ranks, nranks, &b);
		done += b.n;
		if (draw(&seed) % SPLITS == 0)
			split_all(ranks, nranks, draw(&seed));
	}
}
