/* ringbench from start to end: joins the job, opens the outputs, allocates the buffers, and loops
 * over collectives, types, operations, roots and sizes. Without a job it becomes `ringrun -n N
 * ringbench ...`. */
#include "tools/common/gnuplot.h"
#include "tools/ringbench/plot.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Starting -------------------------------------------------------------------------------- */

static int fail(const struct bench *b, const char *what)
{
	if (b->comm)
		fprintf(stderr, "ringbench: rank %d: %s: %s\n", b->rank, what, kolo_last_error());
	else /* which rank this is, the error knows better than we */
		fprintf(stderr, "ringbench: %s: %s\n", what, kolo_last_error());
	return EXIT_FAILED;
}

static FILE *open_output(const char *name)
{
	FILE *f;

	if (!name || strcmp(name, "-") == 0)
		return name ? stdout : NULL;
	f = fopen(name, "w");
	if (!f)
		fprintf(stderr, "ringbench: opening %s: %s\n", name, strerror(errno));
	return f;
}

/* Rank 0, before anything is measured: reads the earlier files, and looks for gnuplot. */
static int open_plot(struct bench *b)
{
	int rc = plot_open(b->options, &b->plot);

#ifdef KO_HAVE_JANSSON
	if (rc == 0)
		rc = against_read(b->plot);
#endif
	return rc ? rc : gnuplot_look("ringbench", b->options->plot);
}

static int draw_plot(struct bench *b)
{
	int rc = plot_finish(b->plot);

	return rc ? rc : plot_draw(b->plot, b->picture);
}

/* A table on standard output unless that is taken. Earlier files are read before any output
 * replaces them. */
static int open_files(struct bench *b)
{
	const struct options *o = b->options;
	bool taken = (o->json && strcmp(o->json, "-") == 0) || (o->csv && strcmp(o->csv, "-") == 0);
	int rc;

	if (o->plot && (rc = open_plot(b)))
		return rc;
	b->table = taken ? NULL : stdout;
	b->progress = isatty(STDERR_FILENO) && (taken || !isatty(STDOUT_FILENO));
	b->json = open_output(o->json);
	b->csv = open_output(o->csv);
	b->picture = open_output(o->plot);
	return (o->json && !b->json) || (o->csv && !b->csv) || (o->plot && !b->picture)
		       ? EXIT_FAILED
		       : 0;
}

/* Rank 0 writes. The others learn whether it can, so that only its message is seen. */
static int open_outputs(struct bench *b)
{
	int32_t rc = b->rank == 0 ? open_files(b) : 0;

	if (kolo_broadcast(b->comm, &rc, &rc, 1, KOLO_I32, 0, NULL) < 0)
		return fail(b, "opening outputs");
	return rc;
}

/* A full disk is no success. */
static int close_outputs(struct bench *b)
{
	FILE *outputs[] = { b->table, b->json, b->csv, b->picture };
	int rc = 0;

	for (int i = 0; i < 4; i++) {
		if (!outputs[i])
			continue;
		if (fflush(outputs[i]) != 0 || ferror(outputs[i])) {
			fprintf(stderr,
				"ringbench: results could not be written: is the disk full?\n");
			rc = EXIT_FAILED;
		}
		if (outputs[i] != stdout)
			fclose(outputs[i]);
	}
	return rc;
}

/* On the queue's GPU, which the others reach. */
static int allocate_registered(struct bench *b, size_t room)
{
	void **out[] = { (void **)&b->gpu_src, (void **)&b->gpu_dst };

	for (int k = 0; k < 2; k++) {
		if (kolo_cuda_alloc(b->queue, room, out[k]) < 0)
			return fail(b, "allocating buffers");
		if (gpu_zero(b->gpu, *out[k], room) < 0)
			return EXIT_FAILED;
		if (kolo_cuda_register(b->comm, b->queue, *out[k], room) < 0)
			return fail(b, "registering buffers");
	}
	return 0;
}

static int allocate_on_gpu(struct bench *b, size_t room)
{
	if (b->options->memory == REGISTERED)
		return allocate_registered(b, room);
	b->gpu_src = gpu_alloc(b->gpu, room);
	b->gpu_dst = gpu_alloc(b->gpu, room);
	if (b->gpu_src && b->gpu_dst)
		return 0;
	fprintf(stderr,
		"ringbench: rank %d: out of memory for two buffers of %zu bytes on GPU %d: use a smaller -e\n",
		b->rank, room, gpu_number(b->gpu));
	return EXIT_FAILED;
}

static int allocate(struct bench *b)
{
	/* A vector is never larger than this: sizes are cut to whole elements. */
	size_t room = b->options->max + 64;

	b->times = malloc(MAX_ITERATIONS * sizeof(*b->times));
	if (b->options->memory == ALLOC) {
		void *src, *dst;

		if (kolo_alloc(b->comm, room, &src) < 0 || kolo_alloc(b->comm, room, &dst) < 0)
			return fail(b, "allocating buffers");
		b->src = src;
		b->dst = dst;
	} else {
		b->src = malloc(room);
		b->dst = malloc(room);
	}
	if (!b->src || !b->dst || !b->times) {
		fprintf(stderr,
			"ringbench: rank %d: out of memory for two buffers of %zu bytes: use a smaller -e\n",
			b->rank, room);
		return EXIT_FAILED;
	}
	/* Touched now, not while the clock runs. */
	memset(b->src, 0, room);
	memset(b->dst, 0, room);
	return b->gpu ? allocate_on_gpu(b, room) : 0;
}

/* The queue that --queue asks for, or the GPU's stream. */
static int make_queue(struct bench *b)
{
	int rc = 0;

	if (b->gpu)
		rc = kolo_cuda_queue_create(gpu_stream(b->gpu), &b->queue);
	else if (b->options->in_flight)
		rc = kolo_queue_create(&b->queue);
	if (rc == 0 && b->gpu)
		rc = kolo_cuda_connect(b->comm, b->queue);
	return rc < 0 ? fail(b, "creating a queue") : 0;
}

/* ---- The loops ------------------------------------------------------------------------------- */

struct verdict {
	uint64_t wrong;
	bool traffic_ok;
	int jobs; /* measured */
};

static int run_job(struct bench *b, const struct job *j, struct verdict *verdict)
{
	struct result r = { 0 };
	int rc = 0;

	r.sent = calloc(2 * (size_t)b->nranks, sizeof(*r.sent));
	if (!r.sent)
		return KOLO_ENOMEM;
	r.model = r.sent + b->nranks;
	report_job(b, j);
	for (int in_place = 0; rc == 0 && in_place <= 1; in_place++) {
		if (!is_measured(b->options, j->coll, in_place))
			continue;
		rc = measure(b, j, in_place, &r);
		if (rc == 0)
			report_result(b, j, in_place, &r);
		verdict->wrong += r.wrong;
		verdict->traffic_ok &= r.traffic_ok;
	}
	report_end_of_row(b);
	verdict->jobs++;
	free(r.sent);
	return rc;
}

/* All sizes of one collective, type, op and root. */
static int run_sizes(struct bench *b, struct job j, struct verdict *verdict)
{
	const struct options *o = b->options;
	size_t element = kolo_type_size(j.type), last = SIZE_MAX;
	bool per_rank = collective_is_per_rank(j.coll);
	int rc = 0;

	if (j.coll == SEND_RECV && b->nranks == 1)
		return 0;
	for (size_t size = o->min; rc == 0 && size <= o->max; size *= o->factor) {
		j.n = size / element / (per_rank ? (size_t)b->nranks : 1);
		if (j.coll == BARRIER)
			j.n = 0;
		j.bytes = j.n * element * (per_rank ? (size_t)b->nranks : 1);
		if (j.n != last && (j.n > 0 || j.coll == BARRIER))
			rc = run_job(b, &j, verdict);
		last = j.n;
		if (size > SIZE_MAX / o->factor)
			break;
	}
	return rc;
}

static int run_ops(struct bench *b, struct job j, struct verdict *verdict)
{
	const struct options *o = b->options;
	int first = o->root < 0 ? 0 : o->root, last = o->root < 0 ? b->nranks - 1 : o->root, rc = 0;

	if (!collective_has_root(j.coll))
		first = last = -1;
	for (int op = 0; rc == 0 && op < VALUES_NOPS; op++) {
		if (collective_reduces(j.coll)
			    ? !o->ops[op] || !values_has_op(j.type, (enum kolo_op)op)
			    : op > 0)
			continue;
		j.op = (enum kolo_op)op;
		for (j.root = first; rc == 0 && j.root <= last; j.root++)
			rc = run_sizes(b, j, verdict);
	}
	return rc;
}

static int run_all(struct bench *b, struct verdict *verdict)
{
	const struct options *o = b->options;
	struct job j = { .coll = ALL_REDUCE };
	int rc = 0, before;

	for (int coll = 0; rc == 0 && coll < NCOLLECTIVES; coll++) {
		if (!o->collectives[coll])
			continue;
		before = verdict->jobs;
		j.coll = (enum collective)coll;
		report_collective(b, j.coll);
		for (int type = 0; rc == 0 && type < VALUES_NTYPES; type++) {
			j.type = (enum kolo_type)type;
			if (coll == BARRIER ? type == KOLO_U8 : o->types[type])
				rc = run_ops(b, j, verdict);
		}
		if (rc == 0 && verdict->jobs == before)
			report_left_out(b, j.coll);
	}
	return rc;
}

/* Can all ranks wait for the same time at once? */
static bool have_clock_and_processors(const struct bench *b)
{
	return kolo_comm_local_ranks(b->comm) == b->nranks &&
	       b->nranks <= sysconf(_SC_NPROCESSORS_ONLN);
}

/* Do the options go with the job? All ranks find the same; one says it. */
static int check_fit(const struct bench *b)
{
	const struct options *o = b->options;

	if (o->nranks && o->nranks != b->nranks) {
		if (b->rank == 0)
			fprintf(stderr,
				"ringbench: -n %d, but the job in the environment has %d ranks: leave out -n\n",
				o->nranks, b->nranks);
		return EXIT_USAGE;
	}
	if (o->root >= b->nranks) {
		if (b->rank == 0)
			fprintf(stderr, "ringbench: -r %d: must be below the number of ranks, %d\n",
				o->root, b->nranks);
		return EXIT_USAGE;
	}
	if (o->common_start && !have_clock_and_processors(b)) {
		if (b->rank == 0)
			fprintf(stderr,
				"ringbench: --common-start: all %d ranks must be on one host, with a processor each; %d are on rank 0's, which has %ld: leave it out\n",
				b->nranks, kolo_comm_local_ranks(b->comm),
				sysconf(_SC_NPROCESSORS_ONLN));
		return EXIT_USAGE;
	}
	return 0;
}

/* Gathers the order of the ring: each rank knows its own next. */
static int learn_ring(struct bench *b)
{
	int32_t next = b->nranks == 1 ? 0 : b->agreed.to_next.peer;

	b->next = malloc((size_t)b->nranks * sizeof(*b->next));
	if (!b->next) {
		fprintf(stderr, "ringbench: out of memory for a ring of %d ranks\n", b->nranks);
		return EXIT_FAILED;
	}
	return kolo_all_gather(b->comm, &next, b->next, 1, KOLO_I32, NULL) < 0
		       ? fail(b, "learning the ring")
		       : 0;
}

static int run(struct bench *b)
{
	struct kolo_comm_attr attr = { .transport = b->options->transport,
				       .algorithm = b->options->algorithm,
				       .order = b->options->order,
				       .id = b->id,
				       .rank = b->rank,
				       .nranks = b->nranks };
	struct verdict verdict = { .traffic_ok = true };
	int rc;

	if (kolo_comm_create(&attr, &b->comm) < 0 || kolo_comm_stats(b->comm, &b->agreed) < 0)
		return fail(b, "joining the job");
	b->rank = kolo_comm_rank(b->comm);
	b->nranks = kolo_comm_nranks(b->comm);
	b->transport = b->nranks > 1 ? b->agreed.to_next.transport : "none";
	b->algorithm = b->agreed.algorithm;
	if ((rc = check_fit(b)))
		return rc;
	if (is_on_gpu(b->options) && !(b->gpu = gpu_open(b->rank, b->options->devices)))
		return EXIT_FAILED;
	if ((rc = learn_ring(b)) || (rc = open_outputs(b)) || (rc = make_queue(b)) ||
	    (rc = allocate(b)))
		return rc;
	report_header(b);
	if (report_choices(b) < 0 || run_all(b, &verdict) < 0)
		return fail(b, "measuring");
	if (verdict.jobs == 0) {
		if (b->rank == 0)
			fprintf(stderr,
				"ringbench: nothing was measured: sizes from %zu to %zu bytes hold no element of the chosen "
				"types%s: use a larger -e\n",
				b->options->min, b->options->max,
				b->nranks > 1 ? " for each rank" : "");
		return EXIT_USAGE;
	}
	report_footer(b, verdict.wrong, verdict.traffic_ok);
	rc = b->plot ? draw_plot(b) : EXIT_GOOD;
	return verdict.wrong || !verdict.traffic_ok ? EXIT_WRONG : rc;
}

/* All of a rank's part; its exit status. */
static int be_rank(struct bench *b)
{
	int rc = run(b);

	if (b->options->memory != ALLOC) {
		free(b->src);
		free(b->dst);
	}
	kolo_comm_destroy(b->comm);
	if (b->options->memory == REGISTERED) {
		kolo_cuda_free(b->gpu_src);
		kolo_cuda_free(b->gpu_dst);
	}
	kolo_queue_destroy(b->queue);
	gpu_close(b->gpu);
	free(b->next);
	free(b->times);
	plot_close(b->plot);
	return close_outputs(b) ? EXIT_FAILED : rc;
}

/* ---- Ranks as threads ------------------------------------------------------------------------ */

struct rank_thread {
	struct bench bench;
	pthread_t thread;
};

/* A rank that fails ends the others, as ringrun does. */
static void *be_thread(void *arg)
{
	struct rank_thread *t = arg;
	int rc = be_rank(&t->bench);

	if (rc == EXIT_FAILED || rc == EXIT_USAGE)
		exit(rc);
	return (void *)(intptr_t)rc;
}

static int start_thread(struct rank_thread *t, const struct options *o, const struct kolo_id *id,
			int rank, int n)
{
	int err;

	t->bench = (struct bench){ .options = o, .id = id, .rank = rank, .nranks = n };
	err = pthread_create(&t->thread, NULL, be_thread, t);
	if (err)
		fprintf(stderr, "ringbench: starting a thread for rank %d: %s\n", rank,
			strerror(err));
	return err;
}

static int run_threads(const struct options *o)
{
	int n = o->nranks                 ? o->nranks
		: kolo_cores(NULL, 0) > 2 ? kolo_cores(NULL, 0)
					  : 2,
	    worst = 0;
	struct rank_thread *threads = calloc((size_t)n, sizeof(*threads));
	struct bench none = { .options = o };
	struct kolo_id id;

	if (!threads || kolo_id_create(&id) < 0) {
		free(threads);
		return fail(&none, "creating an id");
	}
	for (int r = 0; r < n; r++)
		if (start_thread(&threads[r], o, &id, r, n))
			exit(EXIT_FAILED); /* those that run wait for it */
	for (int r = 0; r < n; r++) {
		void *rc;

		pthread_join(threads[r].thread, &rc);
		worst = (int)(intptr_t)rc > worst ? (int)(intptr_t)rc : worst;
	}
	free(threads);
	return worst;
}

int main(int argc, char **argv)
{
	struct options options;
	struct bench bench = { .options = &options };
	struct kolo_job job;

	parse_options(argc, argv, &options);
	if (kolo_job_get(&job) < 0)
		return fail(&bench, "looking for a job");
	if (options.threads && job.launcher) {
		fprintf(stderr,
			"ringbench: --threads: cannot be used in a job of %s: start ringbench without a launcher\n",
			job.launcher);
		return EXIT_USAGE;
	}
	if (options.threads)
		return run_threads(&options);
	if (!job.launcher)
		return tool_become_ringrun("ringbench", argc, argv, options.nranks, "core");
	return be_rank(&bench);
}
