/* One rank of jobs on streams of test_hosts.py and test_verbs.py: GPUs made of threads (gpu.h), on
 * several hosts.
 *
 * usage: host_gpu same | loop | differ
 *
 * same: collectives and messages on a stream have the bits that they have without, twice as calls
 * and three times as a graph. loop: goes on until it fails. differ: the last rank calls with
 * another count. With T_CARDS=1 cards read and write the GPUs' memory. Rank, size and meeting point
 * come from the environment. A failure of the job is printed, and is none of this program's. */
#include "tests/cuda/gpu.h"

#include <kolo/kolo_cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 30011, TIMES = 3, SECONDS = 60 };

static struct kolo_comm *comm;
static struct kolo_queue *queue;
static struct t_stream *stream;
static int rank, nranks;

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	printf("%s: %s\n", what, kolo_last_error());
	exit(3);
}

#ifdef KO_HAVE_VERBS
struct ibv_mr;
struct ibv_pd;
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *memory, size_t len, uint64_t at,
			       unsigned access);
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t at,
					int fd, int access);

/* A GPU that is made of threads has its memory where the host has it, and no dmabuf. With
 * T_CARDS=lie the card has other memory there, and with T_CARDS=miswrite where it writes. */
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t at,
					int fd, int access)
{
	void *memory = (void *)(uintptr_t)at;

	(void)offset;
	(void)fd;
	if (strcmp(getenv("T_CARDS"), "lie") == 0 ||
	    (strcmp(getenv("T_CARDS"), "miswrite") == 0 && access != 0))
		memory =
			mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : ibv_reg_mr_iova(pd, memory, len, at, (unsigned)access);
}
#endif

static void sequence(float *x, float *y, float *z, struct kolo_queue *q)
{
	must(kolo_all_reduce(comm, x, y, N, KOLO_F32, KOLO_SUM, q), "all_reduce");
	must(kolo_reduce_scatter(comm, y, z, N / (size_t)nranks, KOLO_F32, KOLO_AVG, q),
	     "reduce_scatter");
	must(kolo_all_gather(comm, z, y, N / (size_t)nranks, KOLO_F32, q), "all_gather");
	must(kolo_reduce(comm, y, z, N, KOLO_F32, KOLO_SUM, nranks - 1, q), "reduce");
	must(kolo_broadcast(comm, z, y, N, KOLO_F32, nranks - 1, q), "broadcast");
	must(kolo_all_to_all(comm, y, z, N / (size_t)nranks, KOLO_F32, q), "all_to_all");
	must(kolo_group_begin(), "group");
	must(kolo_send(comm, z, N, KOLO_F32, (rank + 1) % nranks, q), "send");
	must(kolo_recv(comm, y, N, KOLO_F32, (rank + nranks - 1) % nranks, q), "recv");
	must(kolo_group_end(), "group");
	must(kolo_barrier(comm, q), "barrier");
}

/* Between hosts registered memory is memory like other memory. */
static int try_registered(const float *x, float *want)
{
	float *memory;
	int bad;

	must(kolo_cuda_alloc(queue, N * sizeof(*memory), (void **)&memory), "memory");
	must(kolo_cuda_register(comm, queue, memory, N * sizeof(*memory)), "registering");
	t_gpu_copy(memory, x, N * sizeof(*x));
	for (int k = 0; k < TIMES; k++)
		must(kolo_all_reduce(comm, memory, memory, N, KOLO_F32, k ? KOLO_MAX : KOLO_SUM,
				     queue),
		     "all_reduce");
	must(kolo_all_reduce(comm, x, want, N, KOLO_F32, KOLO_SUM, NULL), "all_reduce");
	must(kolo_queue_wait(queue), "waiting");
	bad = memcmp(memory, want, N * sizeof(*want)) != 0;
	must(kolo_cuda_deregister(comm, memory), "deregistering");
	must(kolo_cuda_free(memory), "freeing");
	return bad;
}

static int same(float *x, float *y, float *z)
{
	float *want = calloc(N, sizeof(*want)), *scratch = calloc(N, sizeof(*scratch));
	struct kolo_stats stats;
	struct t_graph *graph;
	int bad = 0;

	must(kolo_cuda_connect(comm, queue), "connect");
	t_capture_begin(stream);
	sequence(x, y, z, queue);
	graph = t_capture_end(stream);
	for (int k = 0; k < 2 + TIMES; k++) {
		for (int i = 0; i < N; i++)
			x[i] = 1 / (float)(i % 1000 + rank + k + 1);
		if (k < 2)
			sequence(x, y, z, queue);
		else
			t_graph_launch(graph, stream);
		must(kolo_queue_wait(queue), "waiting");
		sequence(x, want, scratch, NULL);
		bad += memcmp(y, want, N * sizeof(*y)) != 0;
	}
	bad += try_registered(x, want);
	must(kolo_comm_stats(comm, &stats), "stats");
	t_graph_destroy(graph);
	printf("rank %d of %d: %d wrong, traffic %s\n", rank, nranks, bad,
	       stats.sent_bytes == stats.model_sent_bytes ? "ok" : "wrong");
	free(want);
	free(scratch);
	return bad != 0;
}

static int loop(float *x, float *y)
{
	must(kolo_all_reduce(comm, x, y, N, KOLO_F32, KOLO_SUM, queue), "all_reduce");
	must(kolo_queue_wait(queue), "waiting");
	printf("rank %d runs\n", rank);
	fflush(stdout);
	for (int k = 0; k < SECONDS * 1000; k++) {
		if (kolo_all_reduce(comm, x, y, N, KOLO_F32, KOLO_SUM, queue) < 0 ||
		    kolo_queue_wait(queue) < 0) {
			printf("it fails: %s\n", kolo_last_error());
			return 0;
		}
		usleep(1000);
	}
	return 1;
}

static int differ(float *x, float *y)
{
	must(kolo_all_reduce(comm, x, y, rank == nranks - 1 ? N : N - 1, KOLO_F32, KOLO_SUM, queue),
	     "all_reduce");
	must(kolo_queue_wait(queue), "waiting");
	must(kolo_barrier(comm, queue), "barrier");
	must(kolo_queue_wait(queue), "waiting");
	return 1;
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	struct kolo_comm_attr attr = { .algorithm = getenv("T_ALGORITHM") };
	float *x, *y, *z;
	int rc;

	must(kolo_comm_create(&attr, &comm), "joining");
	rank = kolo_comm_rank(comm);
	nranks = kolo_comm_nranks(comm);
	t_gpu_use();
	t_driver_for_cards(getenv("T_CARDS") != NULL);
	stream = t_stream_create(rank % 2);
	must(kolo_cuda_queue_create(t_stream_handle(stream), &queue), "a queue");
	x = t_gpu_alloc(N * sizeof(*x));
	y = t_gpu_alloc(N * sizeof(*y));
	z = t_gpu_alloc(N * sizeof(*z));
	rc = strcmp(what, "same") == 0     ? same(x, y, z)
	     : strcmp(what, "loop") == 0   ? loop(x, y)
	     : strcmp(what, "differ") == 0 ? differ(x, y)
					   : 2;
	kolo_comm_destroy(comm);
	kolo_queue_destroy(queue);
	t_stream_destroy(stream);
	t_gpu_free(x);
	t_gpu_free(y);
	t_gpu_free(z);
	return rc;
}
