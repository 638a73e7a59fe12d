/* One rank of the jobs with sends and recvs that test_hosts.py and test_verbs.py run on several
 * hosts; sees the public header only.
 *
 * usage: host_pairs all | random | tags | full | many | last | differ | loop | tagloop
 *                   [TRANSPORT]
 *
 * Rank, size and meeting point come from the environment. Returns 1 where it gets other bytes than
 * were sent; a failure of the job is printed, and is no failure of this program. */
#include <kolo/kolo_mailbox.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 60, LARGE = 3 << 20, STEPS = 120, MESSAGES = 24 };

static struct kolo_comm *comm;
static int rank, nranks;

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	printf("rank %d: %s: %s: %s\n", rank, what, kolo_strerror(rc), kolo_last_error());
	fflush(stdout); /* leaving may take long after a failure */
	kolo_comm_destroy(comm);
	exit(0);
}

static uint64_t step(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static unsigned char *room(size_t len)
{
	unsigned char *memory = malloc(len ? len : 1);

	if (!memory)
		exit(2);
	return memory;
}

/* What message `seed` has at i. */
static unsigned char byte_of(uint64_t seed, size_t i)
{
	return (unsigned char)((seed * 2654435761u + i * 40503u) >> 7);
}

static void fill(unsigned char *x, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		x[i] = byte_of(seed, i);
}

static void check(const unsigned char *x, size_t len, uint64_t seed, const char *what)
{
	for (size_t i = 0; i < len; i++) {
		if (x[i] == byte_of(seed, i))
			continue;
		printf("rank %d: %s: byte %zu of %zu is wrong\n", rank, what, i, len);
		exit(1);
	}
}

/* ---- Everything once ------------------------------------------------------------------------- */

/* Each sends before it receives, without a group: small messages do not wait for their receiver. */
static void cross(void)
{
	unsigned char out[100], in[100];
	int peer = rank ^ 1;

	if (peer >= nranks)
		return;
	for (uint64_t k = 0; k < 10; k++) {
		fill(out, sizeof(out), k + (uint64_t)rank);
		must(kolo_send(comm, out, sizeof(out), KOLO_U8, peer, NULL), "send");
		must(kolo_recv(comm, in, sizeof(in), KOLO_U8, peer, NULL), "recv");
		check(in, sizeof(in), k + (uint64_t)peer, "crossed");
	}
}

/* A message of each length to each rank and from each, itself as well. */
static void exchange(size_t n)
{
	unsigned char *src = room(n * (size_t)nranks), *dst = room(n * (size_t)nranks);

	for (int r = 0; r < nranks; r++)
		fill(src + (size_t)r * n, n, (uint64_t)(rank * nranks + r));
	memset(dst, 0, n * (size_t)nranks);
	must(kolo_all_to_all(comm, src, dst, n, KOLO_U8, NULL), "all_to_all");
	for (int r = 0; r < nranks; r++)
		check(dst + (size_t)r * n, n, (uint64_t)(r * nranks + rank), "all_to_all");
	memset(dst, 0, n * (size_t)nranks);
	must(kolo_scatter(comm, src, dst, n, KOLO_U8, nranks - 1, NULL), "scatter");
	check(dst, n, (uint64_t)((nranks - 1) * nranks + rank), "scatter");
	must(kolo_gather(comm, src + (size_t)rank * n, dst, n, KOLO_U8, 1 % nranks, NULL),
	     "gather");
	for (int r = 0; r < nranks && rank == 1 % nranks; r++)
		check(dst + (size_t)r * n, n, (uint64_t)(r * nranks + r), "gather");
	free(src);
	free(dst);
}

static void try_all(void)
{
	const size_t lengths[] = { 1, 0, 40, 16383, 16384, 65536, 100001, LARGE };
	struct kolo_stats stats;

	cross();
	for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
		exchange(lengths[k]);
	must(kolo_comm_stats(comm, &stats), "stats");
	printf("rank %d: right, traffic %s\n", rank,
	       stats.sent_bytes == stats.model_sent_bytes &&
			       stats.received_bytes == stats.model_received_bytes
		       ? "ok"
		       : "differs");
}

static int count_descriptors(void)
{
	DIR *fds = opendir("/proc/self/fd");
	int count = 0;

	while (fds && readdir(fds))
		count++;
	if (fds)
		closedir(fds);
	return count;
}

/* From rank 0 to everyone, and then among all, again and again: more lanes than are kept. */
static void try_many(void)
{
	int before = count_descriptors(), more;
	unsigned char x = 0;

	for (int r = 1; r < nranks; r++) {
		if (rank == 0)
			must(kolo_send(comm, &x, 1, KOLO_U8, r, NULL), "send");
		if (rank == r)
			must(kolo_recv(comm, &x, 1, KOLO_U8, 0, NULL), "recv");
	}
	more = count_descriptors() - before;
	must(kolo_barrier(comm, NULL), "barrier");
	for (int k = 0; k < 3; k++)
		exchange(1000);
	cross();
	printf("rank %d: right, %d descriptors more\n", rank, more);
}

/* ---- At random ------------------------------------------------------------------------------- */

struct message {
	int from, to;
	size_t n;
	uint64_t seed;
	unsigned char *in;
};

static size_t random_length(uint64_t *seed)
{
	switch (step(seed) % 8) {
	case 0: return 0;
	case 1: return step(seed) % 20;
	case 2: return step(seed) % 1000000;
	default: return step(seed) % 40000;
	}
}

/* Makes the call for a message at either end. */
static unsigned char *begin(struct message *m, bool sends)
{
	unsigned char *memory = room(m->n);

	if (sends) {
		fill(memory, m->n, m->seed);
		must(kolo_send(comm, memory, m->n, KOLO_U8, m->to, NULL), "send");
	} else {
		m->in = memory;
		must(kolo_recv(comm, memory, m->n, KOLO_U8, m->from, NULL), "recv");
	}
	return memory;
}

/* A group of messages between any ranks, and then something that all do. */
static void random_step(uint64_t *seed)
{
	struct message all[MESSAGES];
	unsigned char *used[2 * MESSAGES];
	size_t count = 1 + step(seed) % MESSAGES, nused = 0;
	double sum = rank;

	for (size_t k = 0; k < count; k++) {
		all[k] = (struct message){ .from = (int)(step(seed) % (uint64_t)nranks),
					   .to = (int)(step(seed) % (uint64_t)nranks),
					   .n = random_length(seed) };
		all[k].seed = step(seed);
	}
	must(kolo_group_begin(), "group_begin");
	for (size_t k = 0; k < count; k++) {
		if (all[k].to == rank)
			used[nused++] = begin(&all[k], false);
		if (all[k].from == rank)
			used[nused++] = begin(&all[k], true);
	}
	must(kolo_group_end(), "group_end");
	for (size_t k = 0; k < count; k++)
		if (all[k].to == rank)
			check(all[k].in, all[k].n, all[k].seed, "group");
	while (nused)
		free(used[--nused]);
	if (step(seed) % 4 == 0)
		exchange(random_length(seed) % 5000);
	if (step(seed) % 4 == 0)
		must(kolo_all_reduce(comm, &sum, &sum, 1, KOLO_F64, KOLO_SUM, NULL), "all_reduce");
	if (step(seed) % 8 == (uint64_t)rank)
		usleep((useconds_t)(step(seed) % 3000));
}

static void try_random(void)
{
	uint64_t seed = 20;

	for (int k = 0; k < STEPS; k++) {
		uint64_t mine = seed + (uint64_t)k;

		random_step(&mine);
	}
	printf("rank %d: right\n", rank);
}

/* ---- With tags ------------------------------------------------------------------------------- */

/* Sends and receives of all messages at once, the receives in the reverse order of the tags. */
static void try_tags(void)
{
	enum { EACH = 12, ALL = 1 << 10 };
	struct kolo_request *requests[ALL];
	unsigned char *memory[ALL];
	struct kolo_mailbox *box;
	size_t n[EACH] = { 0, 1, 100, 8000, 9000, 70000 }, count = 0;
	uint64_t seed = 33;

	for (size_t k = 6; k < EACH; k++)
		n[k] = random_length(&seed);
	must(kolo_mailbox_create(comm, &box), "mailbox");
	for (int r = 0; r < nranks; r++) {
		for (int k = 0; k < EACH; k++, count++) {
			memory[count] = room(n[k]);
			fill(memory[count], n[k], (uint64_t)(rank * EACH + k));
			must(kolo_isend(box, memory[count], n[k], KOLO_U8, r, k, &requests[count]),
			     "isend");
		}
	}
	must(kolo_barrier(comm, NULL), "barrier"); /* what is kept is kept */
	for (int r = 0; r < nranks; r++) {
		for (int k = EACH - 1; k >= 0; k--) {
			unsigned char *in = room(n[k]);
			struct kolo_received got;

			must(kolo_recv_tag(box, in, n[k], KOLO_U8, k % 2 ? r : KOLO_ANY_RANK, k,
					   &got, NULL),
			     "recv_tag");
			check(in, n[k], (uint64_t)(got.peer * EACH + k), "tags");
			free(in);
		}
	}
	while (count--) {
		must(kolo_request_wait(requests[count], NULL), "request_wait");
		free(memory[count]);
	}
	must(kolo_barrier(comm, NULL), "barrier");
	kolo_mailbox_destroy(box);
	printf("rank %d: right\n", rank);
}

/* Sends to rank 1 while that reads nothing, more each time, until the sockets are full: of what
 * rank 0 has announced, some is still here when nothing more is queued. */
static void announce(struct kolo_mailbox *box, unsigned char *x, int count)
{
	struct kolo_request **requests = calloc((size_t)count, sizeof(*requests));
	int done;

	for (int k = 0; k < count && rank == 0; k++)
		must(kolo_isend(box, x + k, 1, KOLO_U8, 1, k, &requests[k]), "isend");
	must(rank == 0 ? kolo_request_test(requests[0], &done) : 0, "request_test");
	must(kolo_barrier(comm, NULL), "barrier");
	for (int k = count - 1; k >= 0 && rank == 1; k--) {
		unsigned char in;

		must(kolo_recv_tag(box, &in, 1, KOLO_U8, 0, k, NULL, NULL), "recv_tag");
		check(&in, 1, 7 + (uint64_t)k, "full");
	}
	for (int k = count - 1; k >= 0 && rank == 0; k--)
		must(kolo_request_wait(requests[k], NULL), "request_wait");
	free(requests);
}

static void fill_sockets(void)
{
	enum { KEPT = 2000, MOST = 700, STEP = 3 };
	struct kolo_request *kept[KEPT];
	struct kolo_mailbox *box;
	unsigned char x[MOST];

	for (int k = 0; k < MOST; k++)
		fill(x + k, 1, 7 + (uint64_t)k);
	must(kolo_mailbox_create(comm, &box), "mailbox");
	/* From here on rank 0 announces all that it sends: rank 1 keeps as much as it may. */
	for (int k = 0; k < KEPT && rank == 0; k++)
		must(kolo_isend(box, x, 1, KOLO_U8, 1, MOST + k, &kept[k]), "isend");
	if (rank == 1)
		must(kolo_recv_tag(box, x, 1, KOLO_U8, 0, MOST + KEPT - 1, NULL, NULL), "recv_tag");
	else if (rank == 0)
		must(kolo_request_wait(kept[KEPT - 1], NULL), "request_wait");
	for (int count = 1; count < MOST; count += STEP)
		announce(box, x, count);
	must(kolo_barrier(comm, NULL), "barrier");
	kolo_mailbox_destroy(box); /* with what is kept */
	printf("rank %d: right\n", rank);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* What a rank sent last arrives after it has left. */
static void send_last(void)
{
	unsigned char x[5000];

	for (int k = 0; k < 20; k++) {
		fill(x, sizeof(x), (uint64_t)k);
		if (rank == 1)
			must(kolo_send(comm, x, sizeof(x), KOLO_U8, 0, NULL), "send");
		if (rank == 0)
			must(kolo_recv(comm, x, sizeof(x), KOLO_U8, 1, NULL), "recv");
		if (rank == 0 && k == 0)
			usleep(500000);
		if (rank == 0)
			check(x, sizeof(x), (uint64_t)k, "last");
	}
	printf("rank %d: right\n", rank);
}

static void differ(void)
{
	unsigned char x[10] = { 0 };

	if (rank == 0)
		must(kolo_send(comm, x, 9, KOLO_U8, nranks - 1, NULL), "send");
	if (rank == nranks - 1)
		must(kolo_recv(comm, x, 10, KOLO_U8, 0, NULL), "recv");
	must(kolo_barrier(comm, NULL), "barrier");
}

/* To and from the rank opposite, until that fails. */
static void loop(void)
{
	time_t until = time(NULL) + SECONDS;
	int peer = (rank + nranks / 2) % nranks;
	unsigned char *out = room(LARGE), *in = room(LARGE);

	fill(out, LARGE, 1);
	for (int k = 0; time(NULL) < until; k++) {
		if (k == 10) {
			printf("rank %d runs\n", rank);
			fflush(stdout);
		}
		kolo_group_begin();
		must(kolo_send(comm, out, LARGE, KOLO_U8, peer, NULL), "send");
		must(kolo_recv(comm, in, LARGE, KOLO_U8, peer, NULL), "recv");
		must(kolo_group_end(), "group_end");
	}
	free(out);
	free(in);
}

/* The same with tags, until that fails. */
static void loop_with_tags(void)
{
	time_t until = time(NULL) + SECONDS;
	int peer = (rank + nranks / 2) % nranks;
	unsigned char *out = room(LARGE), *in = room(LARGE);
	struct kolo_request *request;
	struct kolo_mailbox *box;

	must(kolo_mailbox_create(comm, &box), "mailbox");
	for (int k = 0; time(NULL) < until; k++) {
		if (k == 10) {
			printf("rank %d runs\n", rank);
			fflush(stdout);
		}
		must(kolo_isend(box, out, LARGE, KOLO_U8, peer, k, &request), "isend");
		must(kolo_recv_tag(box, in, LARGE, KOLO_U8, peer, k, NULL, NULL), "recv_tag");
		must(kolo_request_wait(request, NULL), "request_wait");
	}
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = {
		{ "all", try_all },    { "random", try_random },      { "many", try_many },
		{ "last", send_last }, { "differ", differ },          { "loop", loop },
		{ "tags", try_tags },  { "tagloop", loop_with_tags }, { "full", fill_sockets }
	};
	struct kolo_comm_attr attr = { .transport = argc > 2 && *argv[2] ? argv[2] : NULL };

	for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); k++) {
		if (argc < 2 || strcmp(argv[1], modes[k].name) != 0)
			continue;
		must(kolo_comm_create(&attr, &comm), "no communicator");
		rank = kolo_comm_rank(comm);
		nranks = kolo_comm_nranks(comm);
		modes[k].run();
		kolo_comm_destroy(comm);
		return 0;
	}
	return 2;
}
