/* Lanes that go by the host (ko_gpu_far_move). */
#include "cuda/gpu/far.h"

#include "kolo/kolo_mailbox.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { SLOTS = KO_GPU_LANE_BANKS * KO_GPU_LANE_SLOTS };

/* The message that is on its way from or to each slot; NULL: none. */
struct requests {
	struct kolo_request *out[SLOTS], *in[SLOTS];
	uint32_t wanted[SLOTS]; /* elements that a stream waits for */
};

struct ko_gpu_far {
	struct kolo_mailbox *box;
	char *memory, *gpu_memory; /* slots of the lanes out and then in, by rank */
	size_t len;
	_Atomic int sending;      /* messages on their way */
	struct requests *request; /* by rank, nranks of them */
};

/* ---- Making ---------------------------------------------------------------------------------- */

size_t ko_gpu_far_len(const struct ko_gpu_comm *g)
{
	size_t unit = SLOTS * KO_GPU_ALIGN, len = g->arena / 2 / (size_t)g->comm->nranks;

	return len < unit ? unit : len / unit * unit;
}

static int make_memory(struct ko_gpu_comm *g, struct ko_gpu_far *far)
{
	size_t len = 2 * ko_gpu_far_len(g) * (size_t)g->comm->nranks;
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *there;
	int rc;

	far->request = calloc((size_t)g->comm->nranks, sizeof(*far->request));
	if (at == MAP_FAILED || !far->request)
		return ko_fail(KOLO_ENOMEM,
			       "rank %d: no memory for lanes (KOLO_CUDA_MEMORY, %zu bytes)",
			       g->comm->rank, len);
	far->memory = at;
	far->len = len;
	rc = g->driver->pin(g->gpu, at, len, &there);
	if (rc < 0)
		return ko_gpu_error(g, rc, "registering host memory");
	far->gpu_memory = there;
	return 0;
}

int ko_gpu_far_open(struct ko_gpu_comm *g)
{
	struct ko_gpu_far *far = calloc(1, sizeof(*far));
	int rc = far ? 0 : ko_fail(KOLO_ENOMEM, "rank %d: no memory for lanes", g->comm->rank);
	int made;

	g->far = far;
	made = kolo_mailbox_create(g->inner, far ? &far->box : &(struct kolo_mailbox *){ NULL });
	if (rc == 0)
		rc = made;
	return rc == 0 ? make_memory(g, far) : rc;
}

void ko_gpu_far_slots(const struct ko_gpu_comm *g, struct ko_gpu_lane *lane)
{
	size_t k = (size_t)(lane->sends ? 0 : g->comm->nranks) + (size_t)lane->peer;

	lane->host = g->far->memory + k * ko_gpu_far_len(g);
	lane->slots = g->far->gpu_memory + k * ko_gpu_far_len(g);
}

void ko_gpu_far_close(struct ko_gpu_comm *g)
{
	struct ko_gpu_far *far = g->far;

	if (!far)
		return;
	kolo_mailbox_destroy(far->box); /* with all that is on its way */
	if (far->gpu_memory)
		g->driver->unpin(g->gpu, far->memory);
	if (far->memory)
		munmap(far->memory, far->len);
	free(far->request);
	free(far);
	g->far = NULL;
}

/* What a flag says of a slot's elements. */
static size_t n_of(uint32_t what)
{
	return what & ((1u << KO_GPU_LANE_TYPE) - 1);
}

static enum kolo_type type_of(uint32_t what)
{
	return (enum kolo_type)(what >> KO_GPU_LANE_TYPE);
}

/* ---- Moving ---------------------------------------------------------------------------------- */

/* A failure of the mailbox is this communicator's. */
static void fail(struct ko_gpu_comm *g, int rc)
{
	ko_comm_fail(g->comm, rc, "%s", kolo_last_error());
}

static uint32_t value_of(const struct ko_gpu_flag *flag)
{
	return atomic_load_explicit(&flag->value, memory_order_acquire);
}

/* Is the message over? Then it is not in the slot any more. Returns 1, 0, or its failure. */
static int is_over(struct kolo_request **request, struct kolo_received *got)
{
	struct kolo_request *over = *request;
	int done = 0, rc;

	if (!over || (rc = kolo_request_test(over, &done)) < 0 || !done)
		return over ? rc : 0;
	*request = NULL;
	rc = kolo_request_wait(over, got);
	return rc < 0 ? rc : 1;
}

/* Sends what is in a slot, and empties the slot when that has gone. As is_over. */
static int send_slot(struct ko_gpu_comm *g, struct ko_gpu_lane *lane, int k)
{
	struct ko_gpu_flag *flag =
		ko_gpu_lane_flag(lane, k / KO_GPU_LANE_SLOTS, k % KO_GPU_LANE_SLOTS);
	struct kolo_request **request = &g->far->request[lane->peer].out[k];
	int rc;

	if (!*request && value_of(flag) == KO_SLOT_FULL) {
		uint32_t what = atomic_load_explicit(&flag->len, memory_order_relaxed);

		atomic_fetch_add(&g->far->sending, 1);
		rc = kolo_isend(g->far->box, lane->host + (size_t)k * lane->stride, n_of(what),
				type_of(what), lane->peer, k, request);
		return rc < 0 ? rc : 1;
	}
	rc = is_over(request, NULL);
	if (rc == 1) {
		/* Pairs with the stream's wait: what is in the slot is not needed any more. */
		atomic_store_explicit(&flag->value, KO_SLOT_EMPTY, memory_order_release);
		atomic_fetch_sub(&g->far->sending, 1);
	}
	return rc;
}

/* Receives into a slot after a stream has said what length it waits for. The slot is full when that
 * has come. As is_over. */
static int receive_slot(struct ko_gpu_comm *g, struct ko_gpu_lane *lane, int k)
{
	struct ko_gpu_flag *flag =
		ko_gpu_lane_flag(lane, k / KO_GPU_LANE_SLOTS, k % KO_GPU_LANE_SLOTS);
	struct requests *r = &g->far->request[lane->peer];
	struct kolo_received got;
	char me[KO_RANK_TEXT], them[KO_RANK_TEXT];
	int rc;

	if (!r->in[k]) {
		uint32_t what = atomic_load_explicit(&flag->len, memory_order_acquire);

		if (!what)
			return 0;
		atomic_store(&flag->len, 0); /* the stream writes it after this slot was full */
		r->wanted[k] = (uint32_t)n_of(what);
		rc = kolo_irecv(g->far->box, lane->host + (size_t)k * lane->stride,
				lane->stride / kolo_type_size(type_of(what)), type_of(what),
				lane->peer, k, &r->in[k]);
		return rc < 0 ? rc : 1;
	}
	rc = is_over(&r->in[k], &got);
	if (rc != 1)
		return rc;
	if (got.n != r->wanted[k])
		return ko_fail(
			KOLO_EMISMATCH,
			"%s got a part of a message of %zu elements from %s, and waits for one of %u: "
			"the two ends differ in n",
			ko_comm_name(g->comm, g->comm->rank, me), got.n,
			ko_comm_name(g->comm, lane->peer, them), r->wanted[k]);
	/* Pairs with the stream's wait: the bytes are there. */
	atomic_store_explicit(&flag->value, KO_SLOT_FULL, memory_order_release);
	return 1;
}

static int move_lanes(struct ko_gpu_comm *g, int peer)
{
	int moved = 0, rc = 0;

	for (int k = 0; rc >= 0 && k < SLOTS; k++) {
		rc = send_slot(g, &g->lanes.out[peer], k);
		moved |= rc;
		if (rc >= 0)
			rc = receive_slot(g, &g->lanes.in[peer], k);
		moved |= rc;
	}
	return rc < 0 ? rc : moved;
}

bool ko_gpu_far_move(struct ko_gpu_comm *g)
{
	int moved = 0, rc = 0;

	for (int r = 0; rc >= 0 && r < g->comm->nranks; r++) {
		if (!g->lanes.out[r].far)
			continue;
		rc = move_lanes(g, r);
		moved |= rc;
	}
	if (rc < 0)
		fail(g, rc);
	return moved;
}

bool ko_gpu_far_is_done(const struct ko_gpu_comm *g)
{
	for (int r = 0; r < g->comm->nranks; r++)
		for (int k = 0; g->lanes.out[r].far && k < SLOTS; k++)
			if (value_of(ko_gpu_lane_flag(&g->lanes.out[r], k / KO_GPU_LANE_SLOTS,
						      k % KO_GPU_LANE_SLOTS)) == KO_SLOT_FULL)
				return false;
	return atomic_load(&g->far->sending) == 0;
}
