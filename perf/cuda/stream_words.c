/* What cuda/README.md assumes of a GPU, tried one by one: words in host memory shared by processes
 * and threads, the order of data and words, graphs of them, what a stream that waits does to
 * others. Prints a line for each; ends with 1 where one does not hold. Uses the driver that
 * libkolo_cuda.so has, without Kolo around it. */
#include "cuda/driver/driver.h"

#include <cuda.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOPS = 500, LEN = 1 << 20, PATTERNS = 50, MOST_STREAMS = 48, PATIENCE_S = 60 };

ko_driver_fn kolo_cuda_driver;
static const struct ko_driver *d;
static int bad;

/* Words that all processes see, each in a cache line of its own. */
struct line {
	_Alignas(64) _Atomic uint32_t word;
};
static struct line *lines;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	printf("FAILED: %s: %s\n", what, d->text());
	exit(2);
}

static void must_cuda(CUresult rc, const char *what)
{
	const char *why = "unknown";

	if (rc == CUDA_SUCCESS)
		return;
	cuGetErrorString(rc, &why);
	printf("FAILED: %s: %s\n", what, why);
	exit(2);
}
#define MUST(call) must(call, #call)
#define CUDA(call) must_cuda(call, #call)

static void tell(bool holds, const char *fmt, double value)
{
	printf("%s ", holds ? "holds:" : "DOES NOT HOLD:");
	printf(fmt, value);
	printf("\n");
	fflush(stdout);
	bad |= !holds;
}

/* This process on the first GPU. */
struct side {
	struct ko_gpu *gpu;
	CUstream stream;
	char *words; /* as the GPU sees the lines */
};

static CUstream make_stream(void)
{
	CUstream s;

	CUDA(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static struct side open_side(void)
{
	struct side s;
	CUcontext context;
	CUdevice device;
	void *words;

	CUDA(cuInit(0));
	CUDA(cuDeviceGet(&device, 0));
	CUDA(cuDevicePrimaryCtxRetain(&context, device));
	CUDA(cuCtxSetCurrent(context));
	s.stream = make_stream();
	MUST(d->open(s.stream, &s.gpu));
	MUST(d->enter(s.gpu));
	MUST(d->pin(s.gpu, lines, 4096, &words));
	s.words = words;
	return s;
}

static struct ko_flag_op op(const struct side *s, enum ko_flag_kind kind, int line, uint32_t value)
{
	return (struct ko_flag_op){ kind, value, s->words + (size_t)line * sizeof(struct line) };
}

static void put_ops(const struct side *s, CUstream stream, struct ko_flag_op a, struct ko_flag_op b)
{
	const struct ko_flag_op ops[] = { a, b };

	MUST(d->flags(s->gpu, stream, ops, 2));
}

/* To and fro over lines 0 and 1: the first writes and waits, the second waits and writes. */
static void ping_pong(const struct side *s, CUstream stream, bool first)
{
	for (uint32_t k = 0; k < HOPS; k++) {
		uint32_t bit = 1 + k % 2; /* 1, 2, 1, ... */

		if (first)
			put_ops(s, stream, op(s, KO_FLAG_WRITE, 0, bit),
				op(s, KO_FLAG_SET, 1, bit));
		else
			put_ops(s, stream, op(s, KO_FLAG_SET, 0, bit),
				op(s, KO_FLAG_WRITE, 1, bit));
		if (k % 64 == 63)
			MUST(d->finish(s->gpu, stream));
	}
	MUST(d->finish(s->gpu, stream));
}

static void clear_lines(void)
{
	for (int k = 0; k < 64; k++)
		atomic_store(&lines[k].word, 0);
}

/* Runs fn in a process of its own; returns its id. */
static int fork_side(void (*fn)(int sock), int *sock)
{
	int socks[2], pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) < 0 || (pid = fork()) < 0) {
		perror("fork");
		exit(2);
	}
	if (pid == 0) {
		alarm(PATIENCE_S);
		close(socks[0]);
		fn(socks[1]);
		_exit(bad);
	}
	close(socks[1]);
	*sock = socks[0];
	return pid;
}

static void wait_side(int pid)
{
	int status = 0;

	waitpid(pid, &status, 0);
	bad |= status != 0;
}

static void step(int sock)
{
	char c = 0;

	if (write(sock, &c, 1) != 1 || read(sock, &c, 1) != 1)
		exit(2);
}

/* ---- Words ----------------------------------------------------------------------------------- */

static void be_first(int sock)
{
	struct side s = open_side();
	double begin;

	step(sock);
	begin = now_us();
	ping_pong(&s, s.stream, true);
	tell(true, "words join streams of two processes: %.1f us a hop",
	     (now_us() - begin) / HOPS / 2);
}

static void be_second(int sock)
{
	struct side s = open_side();

	step(sock);
	ping_pong(&s, s.stream, false);
}

static void relay_steps(int a, int b)
{
	char c;

	if (read(a, &c, 1) != 1 || read(b, &c, 1) != 1 || write(a, &c, 1) != 1 ||
	    write(b, &c, 1) != 1)
		exit(2);
}

static void two_processes(void (*one)(int sock), void (*other)(int sock))
{
	int a, b, first, second;

	clear_lines();
	first = fork_side(one, &a);
	second = fork_side(other, &b);
	relay_steps(a, b);
	wait_side(first);
	wait_side(second);
	close(a);
	close(b);
}

/* ---- Data before words, in memory of the other process --------------------------------------- */

static void send_fd(int sock, int fd, const void *bytes, size_t len)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { (void *)bytes, len };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(sock, &m, 0) != (ssize_t)len)
		exit(2);
}

static int recv_fd(int sock, void *bytes, size_t len)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { bytes, len };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(sock, &m, 0) != (ssize_t)len || !CMSG_FIRSTHDR(&m))
		exit(2);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void fill(unsigned char *x, int k)
{
	for (int i = 0; i < LEN; i++)
		x[i] = (unsigned char)((i ^ i >> 8) + k);
}

static struct ko_gpu_job copy_of(void *out, const void *own)
{
	return (struct ko_gpu_job){
		.nins = 1, .ins = { own }, .nouts = 1, .outs = { out }, .n = LEN, .type = KOLO_U8
	};
}

/* Memory that is handed over as a handle (cudaIpc), not as a descriptor (cuMem). */
static bool as_handle;

/* Owns the memory, waits for line 0, copies it out, and says so in line 1. */
static void receive_patterns(int sock)
{
	struct side s = open_side();
	struct ko_gpu_memory memory, own;
	struct ko_gpu_export export;
	unsigned char *got = malloc(LEN), *want = malloc(LEN);
	int fd, wrong = 0;

	MUST((as_handle ? d->alloc_own : d->alloc)(s.gpu, LEN, &memory));
	MUST(d->alloc(s.gpu, LEN, &own));
	MUST(d->export(s.gpu, memory.at, LEN, &export, &fd));
	send_fd(sock, fd, &export, sizeof(export));
	for (int k = 0; k < PATTERNS; k++) {
		struct ko_flag_op full = op(&s, KO_FLAG_SET, 0, 1),
				  empty = op(&s, KO_FLAG_WRITE, 0, 0);
		struct ko_gpu_job job = copy_of(own.at, memory.at);

		MUST(d->flags(s.gpu, s.stream, &full, 1));
		MUST(d->compute(s.gpu, s.stream, &job));
		MUST(d->flags(s.gpu, s.stream, &empty, 1));
		MUST(d->finish(s.gpu, s.stream));
		MUST(d->get(s.gpu, got, own.at, LEN));
		fill(want, k);
		wrong += memcmp(got, want, LEN) != 0;
	}
	tell(wrong == 0,
	     as_handle
		     ? "the same of memory that came by cudaIpc: %.0f wrong"
		     : "what a kernel wrote into memory of another process (cuMem) is there after the word: %.0f wrong",
	     wrong);
	free(got);
	free(want);
}

static void send_patterns(int sock)
{
	struct side s = open_side();
	struct ko_gpu_memory memory, own;
	struct ko_gpu_export export;
	unsigned char *x = malloc(LEN);
	int fd = recv_fd(sock, &export, sizeof(export));

	MUST(d->import(s.gpu, &export, fd, &memory));
	MUST(d->alloc(s.gpu, LEN, &own));
	for (int k = 0; k < PATTERNS; k++) {
		struct ko_flag_op empty = op(&s, KO_FLAG_CLEARED, 0, 1),
				  full = op(&s, KO_FLAG_WRITE, 0, 1);
		struct ko_gpu_job job = copy_of(memory.at, own.at);

		fill(x, k);
		MUST(d->finish(s.gpu, s.stream));
		MUST(d->put(s.gpu, own.at, x, LEN));
		MUST(d->flags(s.gpu, s.stream, &empty, 1));
		MUST(d->compute(s.gpu, s.stream, &job));
		MUST(d->flags(s.gpu, s.stream, &full, 1));
	}
	MUST(d->finish(s.gpu, s.stream));
	free(x);
}

static void data_before_words(void)
{
	int a, b, first, second, fd;
	struct ko_gpu_export export;

	clear_lines();
	first = fork_side(receive_patterns, &a);
	second = fork_side(send_patterns, &b);
	fd = recv_fd(a, &export, sizeof(export));
	send_fd(b, fd, &export, sizeof(export));
	wait_side(first);
	wait_side(second);
}

/* ---- Graphs, and streams that wait ----------------------------------------------------------- */

static void replay_words(const struct side *s)
{
	struct ko_flag_op wait = op(s, KO_FLAG_SET, 2, 1), done = op(s, KO_FLAG_WRITE, 3, 1);
	CUgraphExec exec;
	CUgraph graph;
	int right = 0;

	clear_lines();
	CUDA(cuStreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(d->flags(s->gpu, s->stream, &wait, 1));
	MUST(d->flags(s->gpu, s->stream, &done, 1));
	CUDA(cuStreamEndCapture(s->stream, &graph));
	CUDA(cuGraphInstantiate(&exec, graph, 0));
	for (int k = 0; k < 3; k++) {
		atomic_store(&lines[2].word, 0);
		atomic_store(&lines[3].word, 0);
		CUDA(cuGraphLaunch(exec, s->stream));
		usleep(20000);
		right += atomic_load(&lines[3].word) == 0; /* it waits */
		atomic_store(&lines[2].word, 1);
		MUST(d->finish(s->gpu, s->stream));
		right += atomic_load(&lines[3].word) == 1;
	}
	tell(right == 6,
	     "a graph of a wait and a write is replayed three times, and waits each time: %.0f of 6",
	     right);
}

/* So many streams wait for line 4; can another one, made last, write it? */
static bool another_gets_through(const struct side *s, CUstream *streams, int n)
{
	struct ko_flag_op wait = op(s, KO_FLAG_SET, 4, 1), write = op(s, KO_FLAG_WRITE, 4, 1);
	double begin;

	atomic_store(&lines[4].word, 0);
	for (int k = 0; k < n; k++)
		MUST(d->flags(s->gpu, streams[k], &wait, 1));
	MUST(d->flags(s->gpu, streams[n], &write, 1));
	for (begin = now_us(); now_us() - begin < 500e3 && !atomic_load(&lines[4].word);)
		usleep(1000);
	if (atomic_load(&lines[4].word))
		return true;
	atomic_store(&lines[4].word, 1); /* the host lets them go */
	return false;
}

static void streams_that_wait(const struct side *s)
{
	CUstream streams[MOST_STREAMS + 1];
	int through = 0;

	for (int k = 0; k <= MOST_STREAMS; k++)
		streams[k] = make_stream();
	for (int n = 1; n <= MOST_STREAMS; n++) {
		if (another_gets_through(s, streams, n))
			through = n;
		for (int k = 0; k <= n; k++)
			MUST(d->finish(s->gpu, streams[k]));
		if (through < n)
			break;
	}
	tell(true,
	     "a stream gets through beside %.0f of the same process that wait for its word (words are for graphs there)",
	     through);
}

static double kernel_us(const struct side *s, CUstream stream, void *a, void *b)
{
	struct ko_gpu_job job = copy_of(a, b);
	double begin = now_us();

	for (int k = 0; k < 20; k++) {
		MUST(d->compute(s->gpu, stream, &job));
		MUST(d->finish(s->gpu, stream));
	}
	return (now_us() - begin) / 20;
}

static void block_for_a_second(int sock)
{
	struct side s = open_side();
	struct ko_flag_op wait = op(&s, KO_FLAG_SET, 5, 1);

	MUST(d->flags(s.gpu, s.stream, &wait, 1));
	step(sock);
	MUST(d->finish(s.gpu, s.stream));
}

static void beside_one_that_waits(int sock)
{
	struct side s = open_side();
	struct ko_gpu_memory a, b;
	double alone, beside;

	MUST(d->alloc(s.gpu, LEN, &a));
	MUST(d->alloc(s.gpu, LEN, &b));
	kernel_us(&s, s.stream, a.at, b.at);
	step(sock);
	beside = kernel_us(&s, s.stream, a.at, b.at);
	atomic_store(&lines[5].word, 1);
	usleep(200000);
	alone = kernel_us(&s, s.stream, a.at, b.at);
	tell(beside < 20 * alone + 1000,
	     "a stream that waits in one process costs a kernel of another one %.1f times its time",
	     beside / alone);
}

static void alone(int sock)
{
	struct side s = open_side();

	(void)sock;
	replay_words(&s);
	streams_that_wait(&s);
}

int main(void)
{
	int fd = memfd_create("words", MFD_CLOEXEC), sock;

	if (access("/dev/nvidiactl", F_OK) != 0) {
		printf("stream_words: skipped: no GPU here (/dev/nvidiactl)\n");
		return 0;
	}
	d = kolo_cuda_driver();
	if (fd < 0 || ftruncate(fd, 4096) < 0 ||
	    (lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	two_processes(be_first, be_second);
	data_before_words();
	as_handle = true;
	data_before_words();
	wait_side(fork_side(alone, &sock));
	two_processes(block_for_a_second, beside_one_that_waits);
	return bad;
}
