/* What the files of ringbench share. They include Kolo's headers and files of this folder only. */
#ifndef TOOLS_RINGBENCH_BENCH_H
#define TOOLS_RINGBENCH_BENCH_H

#include "kolo/kolo.h"
#include "tools/common/tool.h"
#include "tools/common/values.h"
#include "tools/ringbench/cuda.h"
#include "tools/ringbench/names.h"

#include <stdbool.h>
#include <stdio.h>

/* A horizontal line in the plot. */
struct limit {
	double gbs;
	const char *label, *text; /* text: as it was typed */
};

enum { MAX_AGAINST = 16, MAX_LIMITS = 8 };

struct options {
	bool collectives[NCOLLECTIVES];
	bool types[VALUES_NTYPES], ops[VALUES_NOPS];
	int root; /* -1: all */
	int nranks;
	size_t min, max, factor; /* bytes */
	int warmups, iterations; /* iterations 0: for about 0.1 s */
	int in_flight;           /* operations in a queue at a time; 0: no queue */
	bool check, in_place, out_of_place, verbose, threads;
	bool with_barrier;   /* the time of an operation includes the barrier before it */
	bool common_start;   /* it counts from a time that all ranks wait for */
	enum memory memory;  /* of the buffers */
	const char *devices; /* GPUs that ranks go round; NULL: all */
	const char *transport, *algorithm, *order, *json, *csv, *plot;
	const char *type_text, *op_text, *root_text; /* as they were typed; NULL: not given */
	const char *against[MAX_AGAINST];            /* files of earlier runs */
	struct limit limits[MAX_LIMITS];
	int nagainst, nlimits;
};

static inline bool is_on_gpu(const struct options *o)
{
	return o->memory >= CUDA;
}

/* One line of the table. */
struct job {
	enum collective coll;
	enum kolo_type type;
	enum kolo_op op;
	int root;
	size_t n;     /* elements, as the call counts them */
	size_t bytes; /* of the whole vector: the size that bandwidths refer to */
};

struct result {
	int iterations; /* each of as many operations as are in flight */
	double median_us, min_us,
		p99_us;         /* of an operation, over iterations, of the slowest rank */
	uint64_t wrong;         /* elements, of all ranks */
	uint64_t *sent, *model; /* bytes per operation, by rank */
	bool traffic_ok;
	const char *ran; /* the algorithm that ran, most of the time; "none" for one rank */
};

/* This process's part in the job. */
struct bench {
	struct kolo_comm *comm;
	struct kolo_queue
		*queue; /* NULL: operations are done in the call. With a GPU: its stream */
	const struct options *options;
	const struct kolo_id *id; /* of a job of threads; NULL: the environment says */
	int rank, nranks;
	int32_t *next;                      /* of each rank, in the ring */
	char *src, *dst;                    /* each with room for the largest size */
	struct gpu *gpu;                    /* NULL: calls use src and dst */
	char *gpu_src, *gpu_dst;            /* else calls use these */
	double *times;                      /* MAX_ITERATIONS of them */
	FILE *table, *json, *csv, *picture; /* rank 0's; NULL: none */
	struct plot *plot; /* rank 0's; drawn into `picture` at the end; NULL: none */
	bool progress;     /* say on standard error what is being measured: a terminal that shows no
			      table */
	const char *transport, *algorithm;
	struct kolo_stats agreed; /* as the communicator began */
};

enum { MAX_ITERATIONS = 100000, MAX_IN_FLIGHT = 10000 };

/* Fills *o from the command line; leaves the process for --help, --version and mistakes. */
void parse_options(int argc, char **argv, struct options *o);

/* Is the collective measured there? Some have no way of being done in place. */
bool is_measured(const struct options *o, enum collective coll, bool in_place);

/* The places of the call's src and dst. In place both are in dst. */
const void *job_src(const struct bench *b, const struct job *j, bool in_place);
void *job_dst(const struct bench *b, const struct job *j);

/* Writes this rank's pattern into the memory that the call reads, and something else into the
 * memory that it writes. */
void fill_buffers(const struct bench *b, const struct job *j, bool in_place);

/* Elements of this rank's result that differ from the sequential one. -1: no memory. */
int64_t count_wrong(const struct bench *b, const struct job *j);

/* The communicator's table has it for vectors of this many bytes. */
const char *algorithm_in_table(const struct bench *b, enum collective coll, size_t bytes);

/* The rank that this one exchanges messages with in send_recv; -1: none. */
int partner(const struct bench *b);

/* The algorithms. */
enum way {
	RING,
	BOARD,
	SLICES,
	DIRECT,
	EXCHANGE,
	DOUBLING,
	PAIRWISE,
	PARTIALS,
	CENTER,
	SHARES,
	GRID,
	NWAYS
};

/* What this rank has sent, and how many collectives it has done by each algorithm. */
struct counts {
	uint64_t sent, model; /* bytes; model: by the library's formulas */
	uint64_t ops[NWAYS];
};

/* model_bytes: what this rank sends for the job if it ran as often by each algorithm as s counts.
 * pair_bytes: what it sends for a collective that consists of messages; in send_recv, what a rank
 * sends with one message. */
uint64_t pair_bytes(const struct bench *b, const struct job *j);
uint64_t model_bytes(const struct bench *b, const struct job *j, bool in_place,
		     const struct counts *s);

/* Runs the job: check, warm up, time. 0 or a kolo_status. */
int measure(struct bench *b, const struct job *j, bool in_place, struct result *out);

/* Rank 0's output. A row is begun with the job and gets one or two results. */
void report_header(const struct bench *b);

/* With -v: the links and the table of algorithms. On all ranks. 0 or a kolo_status. */
int report_choices(struct bench *b);

void report_collective(const struct bench *b, enum collective coll);
void report_job(const struct bench *b, const struct job *j);
void report_result(const struct bench *b, const struct job *j, bool in_place,
		   const struct result *r);
void report_end_of_row(const struct bench *b);
void report_left_out(const struct bench *b, enum collective coll); /* it had no row */
void report_footer(const struct bench *b, uint64_t wrong, bool traffic_ok);

#endif
