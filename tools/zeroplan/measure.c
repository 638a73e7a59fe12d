/* --measure: starts as many processes as ranks, which all measure the same bandwidth at the same
 * time. They find each other by an id, and return their results in memory that they share with
 * their parent. */
#include "tools/zeroplan/zeroplan.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 64, ROUNDS = 15 };

/* Elements of a rank in the small model, with at most MOST_OWN ranks. */
enum { NTENSORS = 8, OWN = 8 << 20, MOST_OWN = 8 };

/* What parent and children share. */
struct board {
	struct kolo_id id;         /* there when a rank reads its byte from the pipe */
	atomic_int failed;         /* the first rank that fails sets it, */
	char failure[512];         /* and says why: read when all have ended */
	struct bandwidths rates[]; /* of the ranks, each its own */
};

/* What a rank knows. */
struct meter {
	const struct kolo_zero_config *config;
	enum kolo_type type;
	struct bandwidths known; /* what is not 0 need not be measured */
	struct kolo_comm *comm;
	int rank, nranks;
	size_t elements; /* of each tensor of the small model */
	struct bandwidths *out;
};

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_of(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), ascending);
	return x[n / 2];
}

/* ---- One rank -------------------------------------------------------------------------------- */

/* Bytes a second that a rank sends in all-reduces. */
static int measure_ring(struct meter *m)
{
	enum { BYTES = 32 << 20 };
	size_t n = BYTES / kolo_type_size(m->type);
	double seconds[ROUNDS], bytes = 2.0 * BYTES * (m->nranks - 1) / m->nranks;
	void *buffer = calloc(1, BYTES);
	int rc = buffer ? 0
			: kolo_error_set(KOLO_ENOMEM, "an all-reduce of %d bytes: out of memory",
					 BYTES);

	for (int i = -1; rc == 0 && i < ROUNDS; i++) { /* one to warm up */
		double begin;

		rc = kolo_barrier(m->comm, NULL);
		begin = tool_now_us();
		if (rc == 0)
			rc = kolo_all_reduce(m->comm, buffer, buffer, n, m->type, KOLO_SUM, NULL);
		if (i >= 0)
			seconds[i] = (tool_now_us() - begin) * 1e-6;
	}
	free(buffer);
	if (rc == 0)
		m->out->ring = bytes / median_of(seconds, ROUNDS);
	return rc;
}

/* Bytes a second of a copy in memory. The first round finds pages. */
static int measure_copies(struct meter *m)
{
	enum { BYTES = 64 << 20 };
	char *memory = calloc(2, BYTES);
	double rates[ROUNDS];

	if (!memory)
		return kolo_error_set(KOLO_ENOMEM, "copying %d bytes: out of memory", BYTES);
	for (int i = 0; i < ROUNDS; i++) {
		double begin = tool_now_us();

		memcpy(memory + (i % 2 ? BYTES : 0), memory + (i % 2 ? 0 : BYTES), BYTES);
		rates[i] = BYTES / (tool_now_us() - begin) * 1e6;
	}
	free(memory);
	m->out->copy = median_of(rates, ROUNDS);
	return 0;
}

/* One micro-step and the update. */
static int take_step(struct kolo_zero *zero, int ntensors, const void *gradient)
{
	int rc = kolo_zero_forward(zero, 1);

	for (int i = 0; rc == 0 && i < ntensors; i++)
		if ((rc = kolo_zero_use(zero, i, NULL)) == 0)
			rc = kolo_zero_release(zero, i);
	if (rc == 0)
		rc = kolo_zero_backward(zero, 0);
	for (int i = 0; rc == 0 && i < ntensors; i++)
		rc = kolo_zero_gradient(zero, i, gradient);
	return rc == 0 ? kolo_zero_step(zero, NULL) : rc;
}

/* Seconds of the optimizer's pass, as the engine counts them. */
static int time_pass(struct kolo_zero *zero, int ntensors, size_t n, enum kolo_type type,
		     double *out)
{
	double seconds[ROUNDS] = { 0 };
	void *gradient = calloc(n, kolo_type_size(type));
	int rc = gradient ? 0
			  : kolo_error_set(KOLO_ENOMEM, "a gradient of %zu elements: out of memory",
					   n);

	for (int i = -1; rc == 0 && i < ROUNDS; i++) {
		struct kolo_zero_times before, after;

		kolo_zero_times_get(zero, &before);
		rc = take_step(zero, ntensors, gradient);
		kolo_zero_times_get(zero, &after);
		if (i >= 0)
			seconds[i] = after.update - before.update;
	}
	free(gradient);
	*out = median_of(seconds, ROUNDS);
	return rc;
}

/* A small model through the engine itself, whose state no cache holds; *seconds are those of the
 * optimizer's pass. Bytes of files that it reads and writes in an update are *files. */
static int measure_engine(struct meter *m, enum kolo_zero_place place, double *seconds,
			  double *files)
{
	int ranks = m->nranks < MOST_OWN ? m->nranks : MOST_OWN, rc;
	struct kolo_zero_config config = *m->config;
	struct kolo_zero_tensor tensors[NTENSORS];
	struct kolo_zero_traffic traffic = { 0 };
	char names[NTENSORS][16];
	struct kolo_zero *zero;

	m->elements = (size_t)OWN / NTENSORS * (size_t)ranks;
	config.stage = 1;
	config.accumulation = 1;
	config.overlap = 0;
	config.micro_batch = 1;
	config.parameter_server = 0;
	config.host_budget = 0; /* that is the other model's */
	config.offload_optimizer.place = place;
	config.offload_optimizer.ratio = 1;
	config.offload_param.place = KOLO_ZERO_ON_DEVICE;
	for (int i = 0; i < NTENSORS; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { m->elements }, .ndims = 1, .type = m->type
		};
	}
	if ((rc = kolo_zero_create(m->comm, &config, tensors, NTENSORS, &zero)) < 0)
		return rc;
	rc = time_pass(zero, NTENSORS, m->elements, m->type, seconds);
	if (rc == 0)
		rc = kolo_zero_traffic_get(zero, &traffic);
	kolo_zero_destroy(zero);
	*files = (double)(traffic.read_bytes + traffic.written_bytes) / (ROUNDS + 1);
	return rc;
}

static int measure_memory(struct meter *m)
{
	struct work work = { .size = kolo_type_size(m->type),
			     .optimizer = optimizer_of(m->config),
			     .accumulation = 1 };
	double seconds, files;
	int rc = measure_engine(m, KOLO_ZERO_ON_DEVICE, &seconds, &files);

	if (rc == 0)
		m->out->memory =
			pass_bytes(&work) * (double)m->elements * NTENSORS / m->nranks / seconds;
	return rc;
}

/* Stays unknown in a build that has no files for state. */
static int measure_files(struct meter *m)
{
	double seconds, files;
	int rc = measure_engine(m, KOLO_ZERO_ON_NVME, &seconds, &files);

	if (rc == 0)
		m->out->disk = files / seconds;
	return rc == KOLO_ENOTSUP ? 0 : rc;
}

static int measure_rank(struct meter *m, const struct kolo_id *id)
{
	struct kolo_comm_attr attr = { .id = id, .rank = m->rank, .nranks = m->nranks };
	int rc = kolo_comm_create(&attr, &m->comm);

	if (rc == 0 && m->nranks > 1 && m->known.ring == 0)
		rc = measure_ring(m);
	if (rc == 0 && m->known.memory == 0)
		rc = measure_memory(m);
	if (rc == 0 && m->known.copy == 0 && (rc = kolo_barrier(m->comm, NULL)) == 0)
		rc = measure_copies(m);
	if (rc == 0 && m->known.disk == 0)
		rc = measure_files(m);
	if (rc == 0) /* no rank leaves while others measure */
		rc = kolo_barrier(m->comm, NULL);
	return rc;
}

/* The life of a child. */
_Noreturn static void be_rank(struct meter *m, struct board *board, int pipe)
{
	char byte;
	char who[32] = "";
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(pipe, &byte, 1) != 1) /* there is no id, or no parent */
		_exit(EXIT_FAILED);
	rc = measure_rank(m, &board->id);
	if (strncmp(kolo_last_error(), "rank ", strlen("rank ")) != 0) /* some say so themselves */
		snprintf(who, sizeof(who), "rank %d: ", m->rank);
	if (rc < 0 && !atomic_exchange(&board->failed, 1))
		snprintf(board->failure, sizeof(board->failure), "%s%s", who, kolo_last_error());
	kolo_comm_destroy(m->comm);
	_exit(rc < 0 ? EXIT_FAILED : EXIT_GOOD);
}

/* ---- All ranks ------------------------------------------------------------------------------- */

/* Children that wait at the pipe. Returns how many there are. */
static int start_ranks(struct meter *m, struct board *board, const int pipe[2], pid_t *pids)
{
	for (m->rank = 0; m->rank < m->nranks; m->rank++) {
		m->out = &board->rates[m->rank];
		pids[m->rank] = fork();
		if (pids[m->rank] < 0)
			return m->rank;
		if (pids[m->rank] == 0) {
			close(pipe[1]);
			be_rank(m, board, pipe[0]);
		}
	}
	return m->nranks;
}

/* A byte for each of them, when the id is there. 0, or a status. */
static int let_go(struct board *board, int pipe, int n)
{
	int rc = kolo_id_create(&board->id);

	for (int i = 0; rc == 0 && i < n; i++)
		if (write(pipe, "", 1) != 1)
			rc = kolo_error_set(KOLO_ESYS, "starting to measure: %s", strerror(errno));
	return rc;
}

static bool wait_for(const pid_t *pids, int n)
{
	bool good = true;
	int status;

	for (int i = 0; i < n; i++) {
		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		good &= status == 0;
	}
	return good;
}

/* 0, or a status. */
static int run_ranks(struct meter *m, struct board *board)
{
	pid_t pids[MOST_RANKS];
	int ends[2], n, rc = 0;

	if (pipe(ends) < 0)
		return kolo_error_set(KOLO_ESYS, "starting to measure: %s", strerror(errno));
	n = start_ranks(m, board, ends, pids);
	if (n < m->nranks)
		rc = kolo_error_set(KOLO_ESYS, "starting a rank to measure: %s", strerror(errno));
	else
		rc = let_go(board, ends[1], n);
	close(ends[0]);
	close(ends[1]);
	if (!wait_for(pids, n) && rc == 0)
		rc = kolo_error_set(KOLO_ESYS, "%s",
				    board->failure[0] ? board->failure : "a rank ended too early");
	return rc;
}

/* What the slowest rank has. */
static void keep_slowest(const struct meter *m, struct board *board, struct bandwidths *out)
{
	for (int i = 0; i < NBANDWIDTHS; i++) {
		double slowest = *bandwidth_at(&board->rates[0], i);

		for (int r = 1; r < m->nranks; r++)
			slowest = fmin(slowest, *bandwidth_at(&board->rates[r], i));
		if (*bandwidth_at(out, i) == 0)
			*bandwidth_at(out, i) = slowest;
	}
	if (out->cores == 0)
		out->cores = (double)kolo_cores(NULL, 0) / m->nranks;
}

int plan_measure(const struct options *o, const struct kolo_zero_config *config,
		 enum kolo_type type, struct bandwidths *out)
{
	struct meter m = { .config = config, .type = type, .known = *out, .nranks = o->nranks };
	size_t len = sizeof(struct board) + (size_t)o->nranks * sizeof(struct bandwidths);
	struct board *board;
	int rc;

	if (o->nranks > MOST_RANKS) {
		fprintf(stderr,
			"zeroplan: --measure: %d ranks are more than it can start, %d: give --bandwidth instead\n",
			o->nranks, MOST_RANKS);
		return EXIT_USAGE;
	}
	board = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		fprintf(stderr, "zeroplan: --measure: sharing %zu bytes of memory: %s\n", len,
			strerror(errno));
		return EXIT_FAILED;
	}
	rc = run_ranks(&m, board);
	if (rc == 0)
		keep_slowest(&m, board, out);
	munmap(board, len);
	if (rc == 0)
		return EXIT_GOOD;
	fprintf(stderr, "zeroplan: --measure: %s\n", kolo_last_error());
	return EXIT_FAILED;
}
