/* One rank of the jobs that test_hosts.py and test_verbs.py run on several hosts; sees the public
 * header only.
 *
 * usage: host_rank join | split | sweep | small | late | loop | tiny | abort | differ | silent |
 * leave | memory | bytes [TRANSPORT [STEP]]
 *
 * sweep tries each STEP-th type, from the first; without one all.
 *
 * Rank, size and meeting point come from the environment. A failure of the job is printed, and is
 * no failure of this program: it returns 0 unless it finds something wrong itself. */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 20000, SECONDS = 60, LARGE = 1 << 18 };

static struct kolo_comm *comm;
static int rank, nranks;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	printf("%s: %s\n", what, kolo_last_error());
	exit(3);
}

/* ---- The same bits as elsewhere -------------------------------------------------------------- */

static uint64_t hash;

static void mix(const void *bytes, size_t len)
{
	const unsigned char *b = bytes;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ b[i]) * 1099511628211u; /* FNV-1a */
}

/* Bits that are a finite number in every type. */
static void fill(unsigned char *x, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		x[i] = (unsigned char)(seed >> 33 & 0x3f);
	}
}

static void try_calls(enum kolo_type type, enum kolo_op op, size_t n, char *src, char *dst)
{
	size_t size = kolo_type_size(type), part = n / (size_t)nranks;
	int root = (int)n % nranks;

	must(kolo_all_reduce(comm, src, dst, n, type, op, NULL), "all_reduce");
	mix(dst, n * size);
	must(kolo_reduce_scatter(comm, src, dst, part, type, op, NULL), "reduce_scatter");
	mix(dst, part * size);
	memset(dst, 0, n * size);
	must(kolo_reduce(comm, src, dst, n, type, op, root, NULL), "reduce");
	mix(dst, n * size);
	must(kolo_broadcast(comm, src, dst, n, type, root, NULL), "broadcast");
	mix(dst, n * size);
	must(kolo_all_gather(comm, src, dst, part, type, NULL), "all_gather");
	mix(dst, part * (size_t)nranks * size);
}

/* Of bits and truth each integer type tries one op. */
static bool is_swept(int type, int op)
{
	const char *name = kolo_type_name((enum kolo_type)type);
	bool pair = strchr(name, '_'), integer = strchr("iu", name[0]) && !pair;

	if (pair || op == KOLO_MINLOC || op == KOLO_MAXLOC)
		return pair && (op == KOLO_MINLOC || op == KOLO_MAXLOC);
	if (name[0] == 'c') /* complex */
		return op == KOLO_SUM || op == KOLO_PROD || op == KOLO_AVG;
	return op <= KOLO_AVG || (integer && op == KOLO_BAND + type % 6);
}

static void sweep(int type_step)
{
	const size_t counts[] = { 0, 1, 13, 1009, MOST };
	char *src = malloc(16 * MOST), *dst = malloc(16 * MOST);
	struct kolo_stats stats;

	if (!src || !dst)
		exit(1);
	fill((unsigned char *)src, 16 * MOST, (uint64_t)rank + 1);
	for (int type = 0; kolo_type_size((enum kolo_type)type); type += type_step)
		for (int op = 0; kolo_op_name((enum kolo_op)op); op++)
			for (size_t k = 0;
			     is_swept(type, op) && k < sizeof(counts) / sizeof(counts[0]); k++)
				try_calls((enum kolo_type)type, (enum kolo_op)op, counts[k], src,
					  dst);
	must(kolo_barrier(comm, NULL), "barrier");
	must(kolo_comm_stats(comm, &stats), "stats");
	printf("rank %d hash %016llx to_next %s traffic %s\n", rank, (unsigned long long)hash,
	       stats.to_next.transport,
	       stats.sent_bytes == stats.model_sent_bytes &&
			       stats.received_bytes == stats.model_received_bytes
		       ? "ok"
		       : "differs");
	free(src);
	free(dst);
}

/* How many bytes of one vector went to next, and how many in all. */
static void small(void)
{
	float x[2] = { 1, 2 };
	struct kolo_stats stats;

	must(kolo_all_reduce(comm, x, x, 2, KOLO_F32, KOLO_SUM, NULL), "all_reduce");
	must(kolo_comm_stats(comm, &stats), "stats");
	printf("rank %d sum %g, %llu bytes to next, %llu in all, %llu exchanges\n", rank, x[0],
	       (unsigned long long)stats.to_next.bytes, (unsigned long long)stats.sent_bytes,
	       (unsigned long long)stats.exchange_ops);
}

/* One rank comes late to the last all-reduce, after which everyone leaves at once. */
static void late(void)
{
	float x[2] = { 1, 2 };

	for (int k = 0; k < 20; k++) {
		if (k == 19 && rank == nranks - 1)
			usleep(700 * 1000);
		x[0] = 1;
		must(kolo_all_reduce(comm, x, x, 2, KOLO_F32, KOLO_SUM, NULL), "all_reduce");
	}
	printf("rank %d sum %g\n", rank, x[0]);
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Sums until that fails, and says how; `act` does something once, in the tenth of them. */
static void loop(size_t n, void (*act)(void))
{
	double begin = now();
	float *x = calloc(n, sizeof(*x));
	int rc = 0;

	if (!x)
		exit(1);
	for (int k = 0; rc == 0 && now() - begin < SECONDS; k++) {
		if (k == 10) {
			printf("rank %d runs\n", rank);
			fflush(stdout);
			if (act)
				act();
		}
		rc = kolo_all_reduce(comm, x, x, n, KOLO_F32, KOLO_SUM, NULL);
	}
	printf("rank %d at %.3f: %s: %s\n", rank, now(), kolo_strerror(rc),
	       rc ? kolo_last_error() : "");
	fflush(stdout); /* leaving may take long after a failure */
	free(x);
}

static void abort_one(void)
{
	if (rank == 1)
		kolo_comm_abort(comm);
}

static void differ(void)
{
	float x[100] = { 0 };

	if (rank == 1)
		kolo_all_reduce(comm, x, x, 100, KOLO_F32, KOLO_MAX, NULL);
}

static void fall_silent(void)
{
	if (rank == 1)
		sleep(SECONDS);
}

static void leave(void)
{
	if (rank != 1)
		return;
	kolo_comm_destroy(comm);
	exit(0);
}

/* ---- Memory and bytes ------------------------------------------------------------------------ */

static void use_memory(void)
{
	void *memory = NULL;

	must(kolo_alloc(comm, 100000, &memory), "kolo_alloc");
	memset(memory, 1, 100000);
	must(kolo_all_reduce(comm, memory, memory, 100000, KOLO_U8, KOLO_SUM, NULL), "all_reduce");
	printf("rank %d: sum %d\n", rank, ((unsigned char *)memory)[99999]);
	must(kolo_free(comm, memory), "kolo_free");
}

/* What the communicator takes after small and large operations. */
static void count_memory(void)
{
	enum { N = 1 << 20 };
	size_t each = N / (size_t)nranks;
	float *x = calloc(N, sizeof(*x)), *y = calloc(N, sizeof(*y));
	struct kolo_stats s;

	if (!x || !y)
		exit(1);
	for (size_t n = 2; n <= N; n *= 8) {
		size_t part = n < each ? n : each;

		must(kolo_barrier(comm, NULL), "barrier");
		must(kolo_all_reduce(comm, x, y, n, KOLO_F32, KOLO_SUM, NULL), "all_reduce");
		must(kolo_reduce(comm, x, y, n, KOLO_F32, KOLO_SUM, 0, NULL), "reduce");
		must(kolo_broadcast(comm, x, y, n, KOLO_F32, 0, NULL), "broadcast");
		must(kolo_all_gather(comm, x, y, part, KOLO_F32, NULL), "all_gather");
		must(kolo_reduce_scatter(comm, x, y, part, KOLO_F32, KOLO_SUM, NULL), "scatter");
	}
	must(kolo_comm_stats(comm, &s), "stats");
	printf("rank %d has %llu of %d\n", rank, (unsigned long long)s.memory_bytes,
	       KOLO_DEFAULT_MEMORY);
	free(x);
	free(y);
}

/* All ranks the other way round, and the ranks of a host, of which there are two. */
static void split(void)
{
	struct kolo_comm *all, *host;
	int64_t x = 1 << rank, y[8] = { 0 };

	must(kolo_comm_split(comm, 0, -rank, &all), "split");
	must(kolo_all_reduce(all, &x, &x, 1, KOLO_I64, KOLO_SUM, NULL), "all_reduce");
	must(kolo_comm_split(comm, rank / 2, 0, &host), "split");
	must(kolo_all_to_all(host, y, y + 4, 1, KOLO_I64, NULL), "all_to_all");
	printf("rank %d is %d of %d, sum %lld; here %d, then %d\n", rank, kolo_comm_rank(all),
	       kolo_comm_nranks(all), (long long)x, kolo_comm_local_ranks(all),
	       kolo_comm_local_ranks(host));
	kolo_comm_destroy(host);
	kolo_comm_destroy(all);
}

static void join(void)
{
	must(kolo_barrier(comm, NULL), "barrier");
	printf("rank %d joined\n", rank);
}

/* An all-reduce of 64 MiB; the interface's counts before and after are this network namespace's. */
static uint64_t bytes_sent(void)
{
	char line[512], name[64];
	unsigned long long sent, all = 0;
	FILE *f = fopen("/proc/net/dev", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, " %63[^:]: %*u %*u %*u %*u %*u %*u %*u %*u %llu", name, &sent) ==
			    2 &&
		    strcmp(name, "lo") != 0)
			all += sent;
	if (f)
		fclose(f);
	return all;
}

static void count_bytes(void)
{
	enum { N = 16 << 20 };
	float *x = calloc(N, sizeof(*x));
	uint64_t before;

	if (!x)
		exit(1);
	must(kolo_barrier(comm, NULL), "barrier");
	before = bytes_sent();
	must(kolo_all_reduce(comm, x, x, N, KOLO_F32, KOLO_SUM, NULL), "all_reduce");
	must(kolo_barrier(comm, NULL), "barrier");
	printf("rank %d sent %llu\n", rank, (unsigned long long)(bytes_sent() - before));
	free(x);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct kolo_comm_attr attr = { .transport = argc > 2 ? argv[2] : NULL };
	int step = argc > 3 ? atoi(argv[3]) : 1, rc = kolo_comm_create(&attr, &comm);

	if (step < 1)
		return 2;
	if (rc < 0) {
		printf("no communicator: %s: %s\n", kolo_strerror(rc), kolo_last_error());
		return 0;
	}
	rank = kolo_comm_rank(comm);
	nranks = kolo_comm_nranks(comm);
	if (strcmp(what, "join") == 0)
		join();
	else if (strcmp(what, "split") == 0)
		split();
	else if (strcmp(what, "sweep") == 0)
		sweep(step);
	else if (strcmp(what, "loop") == 0)
		loop(LARGE, NULL);
	else if (strcmp(what, "tiny") == 0)
		loop(2, NULL);
	else if (strcmp(what, "small") == 0)
		small();
	else if (strcmp(what, "late") == 0)
		late();
	else if (strcmp(what, "abort") == 0)
		loop(LARGE, abort_one);
	else if (strcmp(what, "differ") == 0)
		loop(LARGE, differ);
	else if (strcmp(what, "silent") == 0)
		loop(LARGE, fall_silent);
	else if (strcmp(what, "leave") == 0)
		loop(LARGE, leave);
	else if (strcmp(what, "memory") == 0)
		use_memory();
	else if (strcmp(what, "footprint") == 0)
		count_memory();
	else if (strcmp(what, "bytes") == 0)
		count_bytes();
	else
		return 2;
	kolo_comm_destroy(comm);
	return 0;
}
