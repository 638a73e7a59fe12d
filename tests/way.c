/* Runs one operation many times, and writes what runs in a single one of them: the counters of gcov
 * (tests/way). It sees public headers alone, so that it is the same whatever the library looks like
 * inside. */
#include <kolo/kolo.h>
#include <kolo/kolo_zero.h>
#include <kolo/kolo_zero_config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM = 200, BETWEEN = 20, MIB = 1 << 20, TENSORS = 2, ELEMENTS = 1000 };

/* Of libgcov: zeroes the counters, and writes them below GCOV_PREFIX. */
void __gcov_reset(void);
void __gcov_dump(void);

static struct kolo_comm *comm;
static struct kolo_zero *zero;
static float src[MIB / sizeof(float)], dst[MIB / sizeof(float)];

static void check(int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "way: %s: %s\n", what, kolo_last_error());
		_exit(1);
	}
}

static void all_reduce(size_t len)
{
	check(kolo_all_reduce(comm, src, dst, len / sizeof(float), KOLO_F32, KOLO_SUM, NULL),
	      "all_reduce");
}

static void small_all_reduce(void)
{
	all_reduce(8);
}

static void large_all_reduce(void)
{
	all_reduce(MIB);
}

/* A message to the other rank, and the answer. */
static void message(size_t len)
{
	int rank = kolo_comm_rank(comm);

	for (int i = 0; i < 2; i++)
		if (i == rank)
			check(kolo_send(comm, src, len, KOLO_U8, !rank, NULL), "send");
		else
			check(kolo_recv(comm, dst, len, KOLO_U8, !rank, NULL), "recv");
}

static void small_message(void)
{
	message(8);
}

static void large_message(void)
{
	message(MIB);
}

static void make_engine(void)
{
	struct kolo_zero_tensor tensors[TENSORS] = {
		{ .name = "first", .shape = { ELEMENTS }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "second", .shape = { ELEMENTS }, .ndims = 1, .type = KOLO_F32 },
	};
	struct kolo_zero_config config;

	kolo_zero_config_init(&config);
	config.stage = 2;
	check(kolo_zero_create(comm, &config, tensors, TENSORS, &zero), "create");
}

static void use_tensors(void)
{
	for (int i = 0; i < TENSORS; i++) {
		check(kolo_zero_use(zero, i, NULL), "use");
		check(kolo_zero_release(zero, i), "release");
	}
}

/* The last uses wait for the gathers, which would go on beside the next step otherwise. */
static void gradient(void)
{
	check(kolo_zero_forward(zero, 1), "forward");
	use_tensors();
	check(kolo_zero_backward(zero, 1), "backward");
	for (int i = TENSORS - 1; i >= 0; i--)
		check(kolo_zero_gradient(zero, i, src), "gradient");
	check(kolo_zero_step(zero, NULL), "step");
	use_tensors();
}

static void config(void)
{
	struct kolo_zero_settings *settings;
	struct kolo_zero_model model;

	kolo_zero_model_init(&model);
	check(kolo_zero_settings_parse("{\"train_micro_batch_size_per_gpu\": 1}", &model,
				       &settings),
	      "config");
	kolo_zero_settings_destroy(settings);
}

static const struct way {
	const char *name;
	void (*operation)(void);
	const char *algorithm; /* of the communicator; NULL: the best */
	void (*prepare)(void); /* may be NULL */
} ways[] = {
	{ .name = "all_reduce", .operation = large_all_reduce },
	{ .name = "all_reduce_ring", .operation = large_all_reduce, .algorithm = "ring" },
	{ .name = "all_reduce_direct", .operation = large_all_reduce, .algorithm = "direct" },
	{ .name = "all_reduce_8", .operation = small_all_reduce },
	{ .name = "message_8", .operation = small_message },
	{ .name = "message_1m", .operation = large_message },
	{ .name = "gradient", .operation = gradient, .prepare = make_engine },
	{ .name = "config", .operation = config },
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static struct kolo_stats stats(void)
{
	struct kolo_stats out;

	check(kolo_comm_stats(comm, &out), "stats");
	return out;
}

/* The algorithm of the last operation, if comm had one that has a choice. */
static const char *algorithm_since(struct kolo_stats was)
{
	struct kolo_stats is = stats();

	if (is.ring_ops > was.ring_ops)
		return "ring";
	if (is.board_ops > was.board_ops)
		return "board";
	if (is.direct_ops > was.direct_ops)
		return "direct";
	return is.exchange_ops > was.exchange_ops ? "exchange" : "-";
}

static void repeat(const struct way *way, int n)
{
	for (int i = 0; i < n; i++)
		way->operation();
}

/* The rank whose operations are counted: each sample goes to a folder of its own, its algorithm to
 * standard output. */
static void count(const struct way *way, const char *folder, int samples)
{
	char prefix[4096];

	for (int i = 0; i < samples; i++) {
		struct kolo_stats was = stats();

		snprintf(prefix, sizeof(prefix), "%s/%d", folder, i);
		setenv("GCOV_PREFIX", prefix, 1);
		__gcov_reset();
		way->operation();
		__gcov_dump();
		printf("%s\n", algorithm_since(was));
		repeat(way, BETWEEN);
	}
}

static void run(const struct way *way, const struct kolo_id *id, int rank, const char *folder,
		int samples)
{
	struct kolo_comm_attr attr = {
		.id = id, .rank = rank, .nranks = 2, .algorithm = way->algorithm
	};

	check(kolo_comm_create(&attr, &comm), "comm_create");
	if (way->prepare)
		way->prepare();
	repeat(way, WARM);
	if (rank == 0)
		count(way, folder, samples);
	else
		repeat(way, samples * (1 + BETWEEN));
	fflush(stdout);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
	_exit(0); /* not exit, which would write counters once more */
}

/* Rank 0 is a child, in which nothing has run before; rank 1, another one, makes the meeting
 * point. */
static int run_ranks(const struct way *way, const char *folder, int samples)
{
	int pipes[2], status, bad = 0;
	struct kolo_id id;

	if (pipe(pipes) < 0)
		return 1;
	if (fork() == 0) {
		close(pipes[1]);
		if (read(pipes[0], &id, sizeof(id)) != sizeof(id))
			_exit(1);
		run(way, &id, 0, folder, samples);
	}
	close(pipes[0]);
	if (fork() == 0) {
		check(kolo_id_create(&id), "id_create");
		if (write(pipes[1], &id, sizeof(id)) != sizeof(id))
			_exit(1);
		run(way, &id, 1, folder, samples);
	}
	close(pipes[1]);
	while (wait(&status) > 0)
		bad |= status;
	return bad ? 1 : 0;
}

/* Without arguments: the names of the ways. */
int main(int argc, char **argv)
{
	for (int i = 0; i < WAYS; i++)
		if (argc == 1)
			printf("%s\n", ways[i].name);
		else if (argc == 4 && strcmp(ways[i].name, argv[1]) == 0)
			_exit(run_ranks(&ways[i], argv[2], atoi(argv[3])));
	return argc != 1;
}
