/* The log of a training run (kolo_zero_log_step). It uses the engine's public functions alone.
 *
 * A row is an array of numbers, one for each column. It becomes a line, a row of the CSV file or a
 * JSON object. Times and speeds are differences between two marks. After create nothing is
 * allocated, and a step without a row or a line reads no clock. */
#include "kolo/kolo_zero_log.h"

#include "zero/base/basics.h"
#include "zero/log/file.h"
#include "zero/log/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A line has the columns before FORWARD. A row has all of them. */
enum column {
	STEP,
	SAMPLES,
	LOSS,
	LR,
	LOSS_SCALE,
	NORM,
	SKIPPED,
	SPEED,
	FORWARD,
	BACKWARD,
	REDUCE,
	UPDATE_STEP,
	GATHER,
	UPDATE,
	NCOLUMNS,
	NTIMES = NCOLUMNS - FORWARD,
};

static const char *const columns[NCOLUMNS] = {
	[STEP] = "step",
	[SAMPLES] = "samples",
	[LOSS] = "train_loss",
	[LR] = "lr",
	[LOSS_SCALE] = "loss_scale",
	[NORM] = "norm",
	[SKIPPED] = "skipped",
	[SPEED] = "samples_per_second",
	[FORWARD] = "elapsed_time_ms_forward",
	[BACKWARD] = "elapsed_time_ms_backward",
	[REDUCE] = "elapsed_time_ms_backward_allreduce",
	[UPDATE_STEP] = "elapsed_time_ms_step",
	[GATHER] = "elapsed_time_ms_gather",
	[UPDATE] = "elapsed_time_ms_update",
};

/* The names of the columns from FORWARD on, in lines. */
static const char *const times[NTIMES] = { "forward", "backward", "reduce",
					   "step",    "gather",   "update" };

enum {
	MOST_KINDS = 32,               /* kinds of memory, each counted at each of its places */
	NSHARES = NTIMES + MOST_KINDS, /* what a rank sends to rank 0: ms, and the most bytes */
};

/* Where training was at some time. */
struct mark {
	double when;          /* seconds of a clock that does not jump */
	double times[NTIMES]; /* seconds */
	uint64_t samples;     /* since the log was made */
	long attempts;        /* updates since then, skipped ones too */
};

struct kolo_zero_log {
	struct kolo_comm *comm;
	const struct kolo_zero *zero;
	/* print is NULL on ranks other than 0. Paths are not used. */
	struct kolo_zero_log_config config;
	struct zero_log_file csv, jsonl;
	locale_t numbers; /* with a decimal point */
	int nkinds;       /* of memory */
	double *shares;   /* on rank 0: NSHARES of each rank */
	uint64_t samples; /* as in a mark, until now */
	long attempts;    /* as in a mark, until now */
	struct mark row;  /* at the last row */
	struct mark line; /* at the last line */
};

/* ---- Rows ------------------------------------------------------------------------------------ */

static double read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void take_mark(const struct kolo_zero_log *log, struct mark *out)
{
	struct kolo_zero_times t;

	kolo_zero_times_get(log->zero, &t);
	*out = (struct mark){
		.when = read_clock(CLOCK_MONOTONIC),
		.times = { t.forward, t.backward, t.reduce, t.step, t.gather, t.update },
		.samples = log->samples,
		.attempts = log->attempts,
	};
}

static void fill_row(const struct kolo_zero_log *log, const struct kolo_zero_result *result,
		     const struct mark *since, const struct mark *now, double *row)
{
	struct kolo_zero_progress progress;

	kolo_zero_progress_get(log->zero, &progress);
	row[STEP] = (double)result->step;
	row[SAMPLES] = (double)progress.samples;
	row[LOSS] = result->loss;
	row[LR] = result->lr;
	row[LOSS_SCALE] = result->loss_scale;
	row[NORM] = result->norm;
	row[SKIPPED] = (double)progress.skipped;
	row[SPEED] = (double)(now->samples - since->samples) / (now->when - since->when);
	for (int i = 0; i < NTIMES; i++)
		row[FORWARD + i] = (now->times[i] - since->times[i]) * 1e3;
}

/* Times and speeds have six digits: they are no more exact. */
static void put_cell(const struct kolo_zero_log *log, struct zero_text *t, enum column column,
		     double value)
{
	zero_text_number(t, log->numbers, value, column < SPEED);
}

static int append_csv(struct kolo_zero_log *log, const double *row)
{
	struct zero_text line = { 0 };

	for (int i = 0; i < NCOLUMNS; i++) {
		put_cell(log, &line, (enum column)i, row[i]);
		zero_text_put(&line, "%c", i + 1 < NCOLUMNS ? ',' : '\n');
	}
	return zero_log_file_append(&log->csv, &line);
}

static int append_jsonl(struct kolo_zero_log *log, const double *row,
			const struct kolo_zero_result *result)
{
	struct zero_text line = { 0 };

	zero_text_put(&line, "{\"time\":");
	zero_text_number(&line, log->numbers, read_clock(CLOCK_REALTIME), true);
	for (int i = 0; i < NCOLUMNS; i++) {
		zero_text_put(&line, ",\"%s\":", columns[i]);
		if (__builtin_isfinite(row[i]))
			put_cell(log, &line, (enum column)i, row[i]);
		else
			zero_text_put(&line, "null");
	}
	zero_text_put(&line, ",\"overflow\":");
	if (result->skipped)
		zero_text_quoted(&line, result->overflow);
	else
		zero_text_put(&line, "null");
	zero_text_put(&line, "}\n");
	return zero_log_file_append(&log->jsonl, &line);
}

static int append_rows(struct kolo_zero_log *log, const struct kolo_zero_result *result,
		       const struct mark *now)
{
	double row[NCOLUMNS];
	int rc = 0, more = 0;

	fill_row(log, result, &log->row, now, row);
	log->row = *now;
	if (log->csv.fd >= 0)
		rc = append_csv(log, row);
	if (log->jsonl.fd >= 0)
		more = append_jsonl(log, row, result);
	return more < 0 ? more : rc;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static void print_overflow(const struct kolo_zero_log *log, const struct kolo_zero_result *result,
			   long skipped)
{
	struct zero_text line = { 0 };

	zero_text_put(&line, "step=%ld skipped=%ld loss_scale=", result->step, skipped);
	zero_text_number(&line, log->numbers, result->loss_scale, false);
	zero_text_put(&line, " overflow=");
	zero_text_quoted(&line, result->overflow);
	log->config.print(line.bytes, log->config.print_arg);
}

static void print_row(const struct kolo_zero_log *log, const struct kolo_zero_result *result,
		      const struct mark *now)
{
	struct zero_text line = { 0 };
	double row[NCOLUMNS];

	fill_row(log, result, &log->line, now, row);
	for (int i = 0; i < FORWARD; i++) {
		zero_text_put(&line, "%s%s=", i ? " " : "", columns[i]);
		zero_text_number(&line, log->numbers, row[i], false);
	}
	log->config.print(line.bytes, log->config.print_arg);
}

/* Gathers the shares of every rank on rank 0. */
static int gather_shares(const struct kolo_zero_log *log, const struct mark *now)
{
	double own[NSHARES] = { 0 };
	struct kolo_zero_memory m;

	for (int i = 0; i < NTIMES; i++)
		own[i] = (now->times[i] - log->line.times[i]) * 1e3 /
			 (double)(now->attempts - log->line.attempts);
	for (int k = 0; k < log->nkinds; k++)
		if (kolo_zero_memory_get(log->zero, k, &m) == 0)
			own[NTIMES + k] = (double)m.peak;
	return kolo_gather(log->comm, own, log->shares, NSHARES, KOLO_F64, 0, NULL);
}

/* Appends name=value of the rank with the most of a share. Of equal ranks it is the first one. */
static void put_most(const struct kolo_zero_log *log, struct zero_text *t, const char *name,
		     int share)
{
	int most = 0;

	for (int r = 1; r < kolo_comm_nranks(log->comm); r++)
		if (log->shares[r * NSHARES + share] > log->shares[most * NSHARES + share])
			most = r;
	zero_text_put(t, " %s=", name);
	zero_text_number(t, log->numbers, log->shares[most * NSHARES + share], false);
	zero_text_put(t, " max_rank=%d", most);
}

static void print_times(const struct kolo_zero_log *log, long step)
{
	for (int i = 0; i < NTIMES; i++) {
		struct zero_text line = { 0 };

		zero_text_put(&line, "step=%ld time=\"%s\" ms=", step, times[i]);
		zero_text_number(&line, log->numbers, log->shares[i], false);
		put_most(log, &line, "max_ms", i);
		log->config.print(line.bytes, log->config.print_arg);
	}
}

/* A kind in several places has a line for each place, which then names the place. */
static bool is_in_several_places(const struct kolo_zero_log *log, const char *kind)
{
	struct kolo_zero_memory m;
	int n = 0;

	for (int k = 0; k < log->nkinds && kolo_zero_memory_get(log->zero, k, &m) == 0; k++)
		n += strcmp(m.kind, kind) == 0;
	return n > 1;
}

static void print_memory(const struct kolo_zero_log *log, long step)
{
	struct kolo_zero_memory m;

	for (int k = 0; k < log->nkinds && kolo_zero_memory_get(log->zero, k, &m) == 0; k++) {
		struct zero_text line = { 0 };
		bool several = is_in_several_places(log, m.kind);

		zero_text_put(&line, "step=%ld memory=\"%s%s%s\" bytes=%zu peak=%zu", step,
			      several ? m.place : "", several ? " " : "", m.kind, m.bytes, m.peak);
		put_most(log, &line, "max_peak", NTIMES + k);
		log->config.print(line.bytes, log->config.print_arg);
	}
}

static int print_lines(struct kolo_zero_log *log, const struct kolo_zero_result *result,
		       const struct mark *now)
{
	const struct kolo_zero_log_config *c = &log->config;
	int rc = c->wall_clock || c->memory ? gather_shares(log, now) : 0;

	if (c->print)
		print_row(log, result, now);
	if (c->print && c->wall_clock && rc == 0)
		print_times(log, result->step);
	if (c->print && c->memory && rc == 0)
		print_memory(log, result->step);
	log->line = *now;
	return rc;
}

int kolo_zero_log_step(struct kolo_zero_log *log, const struct kolo_zero_result *result)
{
	struct kolo_zero_progress progress;
	bool writes, prints;
	struct mark now;
	int rc = 0, more = 0;

	if (!log || !result)
		return kolo_error_set(KOLO_EINVAL, "the log, or the result for it, is NULL");
	if (!result->updated && !result->skipped)
		return 0;
	log->attempts++;
	log->samples += result->samples;
	kolo_zero_progress_get(log->zero, &progress);
	if (result->skipped && log->config.print)
		print_overflow(log, result, progress.skipped);
	writes = log->csv.fd >= 0 || log->jsonl.fd >= 0;
	prints = log->config.steps_per_print &&
		 (result->step + progress.skipped) % log->config.steps_per_print == 0;
	if (writes || prints)
		take_mark(log, &now);
	if (writes)
		rc = append_rows(log, result, &now);
	if (prints)
		more = print_lines(log, result, &now);
	return more < 0 ? more : rc;
}

/* ---- Making it ------------------------------------------------------------------------------- */

void kolo_zero_log_config_init(struct kolo_zero_log_config *out)
{
	memset(out, 0, sizeof(*out));
}

static int check_arguments(const struct kolo_zero *zero, const struct kolo_zero_log_config *c)
{
	if (!zero || !c)
		return kolo_error_set(KOLO_EINVAL, "the engine, or the config of its log, is NULL");
	if (c->steps_per_print < 0)
		return kolo_error_set(KOLO_EINVAL,
				      "config.steps_per_print is %ld, and must be at least 0",
				      c->steps_per_print);
	if ((c->wall_clock | 1) != 1 || (c->memory | 1) != 1)
		return kolo_error_set(
			KOLO_EINVAL,
			"config.wall_clock and memory are %d and %d, and must be 0 or 1",
			c->wall_clock, c->memory);
	for (size_t i = 0; i < sizeof(c->reserved) / sizeof(c->reserved[0]); i++)
		if (c->reserved[i])
			return kolo_error_set(
				KOLO_EINVAL,
				"config.reserved is not zero: use kolo_zero_log_config_init");
	return 0;
}

static int open_files(struct kolo_zero_log *log, const struct kolo_zero_log_config *c)
{
	struct zero_text header = { 0 }, begin = { 0 };
	int rc = 0;

	for (int i = 0; i < NCOLUMNS; i++)
		zero_text_put(&header, "%s%c", columns[i], i + 1 < NCOLUMNS ? ',' : '\n');
	zero_text_put(&begin, "{\"time\":");
	if (c->csv)
		rc = zero_log_file_open(&log->csv, c->csv, &header);
	if (rc == 0 && c->jsonl)
		rc = zero_log_file_open(&log->jsonl, c->jsonl, &begin);
	return rc;
}

/* Makes this rank's part. After a failure *out has what was made, for kolo_zero_log_destroy. */
static int make_log(struct kolo_comm *comm, const struct kolo_zero *zero,
		    const struct kolo_zero_log_config *c, struct kolo_zero_log **out)
{
	struct kolo_zero_log *log = *out = calloc(1, sizeof(*log));
	struct kolo_zero_memory m;

	if (!log)
		return kolo_error_set(KOLO_ENOMEM, "a log: out of memory");
	log->comm = comm;
	log->zero = zero;
	log->config = *c;
	log->csv.fd = log->jsonl.fd = -1;
	while (log->nkinds < MOST_KINDS && kolo_zero_memory_get(zero, log->nkinds, &m) == 0)
		log->nkinds++;
	if (kolo_comm_rank(comm) > 0) {
		log->config.print = NULL;
		return 0;
	}
	log->numbers = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	log->shares = calloc((size_t)kolo_comm_nranks(comm) * NSHARES, sizeof(*log->shares));
	if (!log->numbers || !log->shares)
		return kolo_error_set(KOLO_ENOMEM, "a log of %d ranks: out of memory",
				      kolo_comm_nranks(comm));
	return open_files(log, c);
}

/* If one rank failed, all fail, with its text. All fail too if settings differ that decide when the
 * ranks meet in a gather. */
static int agree(struct kolo_comm *comm, const struct kolo_zero_log_config *c, int status)
{
	int rc = zero_share_failure(comm, status);
	int64_t own[4], least[4];

	if (rc < 0)
		return rc;
	own[0] = c->steps_per_print;
	own[1] = 2 * c->wall_clock + c->memory;
	own[2] = -own[0];
	own[3] = -own[1];
	rc = kolo_all_reduce(comm, own, least, 4, KOLO_I64, KOLO_MIN, NULL);
	/* The least of -x is minus the most of x. */
	if (rc == 0 && (least[0] != -least[2] || least[1] != -least[3]))
		return kolo_error_set(
			KOLO_EMISMATCH,
			"logs: config.steps_per_print, wall_clock or memory is not the same on all ranks; %ld, %d and %d on rank %d",
			c->steps_per_print, c->wall_clock, c->memory, kolo_comm_rank(comm));
	return rc;
}

int kolo_zero_log_create(struct kolo_comm *comm, const struct kolo_zero *zero,
			 const struct kolo_zero_log_config *config, struct kolo_zero_log **out)
{
	struct kolo_zero_log *log = NULL;
	int rc;

	if (out)
		*out = NULL;
	if (!comm || !out)
		return kolo_error_set(KOLO_EINVAL,
				      "a log's communicator, or the place for the log, is NULL");
	rc = check_arguments(zero, config);
	if (rc == 0)
		rc = make_log(comm, zero, config, &log);
	rc = agree(comm, config, rc);
	if (rc < 0) {
		kolo_zero_log_destroy(log);
		return rc;
	}
	take_mark(log, &log->row);
	log->line = log->row;
	*out = log;
	return 0;
}

void kolo_zero_log_destroy(struct kolo_zero_log *log)
{
	if (!log)
		return;
	zero_log_file_close(&log->csv);
	zero_log_file_close(&log->jsonl);
	free(log->shares);
	if (log->numbers)
		freelocale(log->numbers);
	free(log);
}
