/* The files of a training run's log: what is read back equals the results, restarts, full disks,
 * and files that are none of its. */
#include "tests/zero/files/log_run.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading --------------------------------------------------------------------------------- */

/* A file as lines, all of which have their ends. */
static int read_lines(const char *path, char lines[MOST_LINES][LINE])
{
	FILE *f = fopen(path, "r");
	int n = 0;

	CHECK(f);
	while (fgets(lines[n], sizeof(lines[n]), f)) {
		CHECK(strchr(lines[n], '\n'));
		*strchr(lines[n], '\n') = 0;
		CHECK(++n < MOST_LINES);
	}
	fclose(f);
	return n;
}

static char lines[MOST_LINES][LINE];

static const char *const names[] = {
	"step",
	"samples",
	"train_loss",
	"lr",
	"loss_scale",
	"norm",
	"skipped",
	"samples_per_second",
	"elapsed_time_ms_forward",
	"elapsed_time_ms_backward",
	"elapsed_time_ms_backward_allreduce",
	"elapsed_time_ms_step",
	"elapsed_time_ms_gather",
	"elapsed_time_ms_update",
};
enum { NAMES = ARRAY_LEN(names), EXACT = 7 };

/* The same, where null of a JSON line stands for what is not finite. */
static bool same(double read, double value, bool json)
{
	return read == value || (isnan(read) && (isnan(value) || (json && isinf(value))));
}

static void check_row(const struct run *r, int attempt, const double *row, bool json)
{
	const struct kolo_zero_result *result = &r->results[attempt];
	double exact[EXACT] = { (double)result->step,
				(double)r->samples[attempt],
				result->loss,
				result->lr,
				result->loss_scale,
				result->norm,
				(double)r->skipped[attempt] };

	for (int i = 0; i < EXACT; i++)
		CHECK(same(row[i], exact[i], json));
	for (int i = EXACT; i < NAMES; i++)
		CHECK(row[i] >= 0 && (i == EXACT || row[i] <= r->seconds * 1e3 + 1));
}

static void check_csv(const struct run *r, int times)
{
	char header[512] = "";

	CHECK(read_lines(r->csv, lines) == 1 + times * r->attempts);
	for (int i = 0; i < NAMES; i++)
		strcat(strcat(header, i ? "," : ""), names[i]);
	CHECK(strcmp(lines[0], header) == 0);
	for (int k = 0; k < times * r->attempts; k++) {
		double row[NAMES];
		char *at = lines[1 + k];

		for (int i = 0; i < NAMES; i++) {
			row[i] = strtod(at, &at);
			CHECK(*at++ == (i + 1 < NAMES ? ',' : 0));
		}
		check_row(r, k % r->attempts, row, false);
	}
}

static void check_jsonl(const struct run *r, int times)
{
	CHECK(read_lines(r->jsonl, lines) == times * r->attempts);
	for (int k = 0; k < times * r->attempts; k++) {
		const char *overflow = strstr(lines[k], ",\"overflow\":");
		double row[NAMES];

		for (int i = 0; i < NAMES; i++) {
			char key[64];
			const char *at;

			snprintf(key, sizeof(key), "\"%s\":", names[i]);
			CHECK((at = strstr(lines[k], key)));
			row[i] = strncmp(at + strlen(key), "null", 4)
					 ? strtod(at + strlen(key), NULL)
					 : NAN;
		}
		check_row(r, k % r->attempts, row, true);
		CHECK(overflow && (overflow[12] == '"') == r->results[k % r->attempts].skipped);
	}
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Every number comes back as the same double; what is not finite as nan, inf or null. */
static void rows_read_back_are_the_results(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= 3; nranks++) {
		struct run *r = run_create();

		r->attempts = 9;
		r->accumulation = nranks;
		r->bad = 1 << 3 | 1 << 4;
		r->nan = 1 << 6;
		r->config.csv = r->csv;
		r->config.jsonl = r->jsonl;
		t_processes(nranks, run_train, r);
		CHECK(isnan(r->results[6].loss) && !isfinite(r->results[3].norm));
		check_csv(r, 1);
		check_jsonl(r, 1);
		run_destroy(r);
	}
}

/* Another parser's opinion: strict JSON in UTF-8, and the text is the tensor's name again, but for
 * what is no UTF-8. */
static const char reader[] =
	"import json, re, sys\n"
	"def refuse(text): raise ValueError(text)\n"
	"rows = [json.loads(l, parse_constant=refuse) for l in open(sys.argv[1], encoding=\"utf-8\", newline=\"\\n\")]\n"
	"name = re.sub(\"\\ufffd+\", \"\\ufffd\", open(sys.argv[2], \"rb\").read().decode(errors=\"replace\"))\n"
	"texts = [re.sub(\"\\ufffd+\", \"\\ufffd\", r[\"overflow\"]) for r in rows if r[\"overflow\"] is not None]\n"
	"assert len(rows) == 4 and len(texts) == 2, rows\n"
	"assert all(name in t for t in texts), texts\n"
	"assert rows[2][\"train_loss\"] is None, rows\n"
	"assert len(set(tuple(r) for r in rows)) == 1 and len(rows[0]) == 16, rows\n"
	"assert all(a[\"time\"] <= b[\"time\"] for a, b in zip(rows, rows[1:])) and rows[0][\"time\"] > 1.7e9, rows\n";

static void json_lines_are_valid_whatever_a_tensor_is_called(void **state)
{
	struct run *r = run_create();
	char command[4096], path[96];
	FILE *f;

	(void)state;
	if (system("command -v python3 >/dev/null") != 0)
		skip();
	r->bad = 1 << 1 | 1 << 3;
	r->nan = 1 << 2;
	r->config.jsonl = r->jsonl;
	run_prints(r, 0);
	t_processes(2, run_train, r);
	snprintf(path, sizeof(path), "%s/name", r->dir);
	CHECK((f = fopen(path, "w")) && fputs(run_hostile, f) >= 0 && fclose(f) == 0);
	snprintf(command, sizeof(command), "python3 -B -c '%s' %s %s", reader, r->jsonl, path);
	CHECK(system(command) == 0);
	unlink(path);
	/* A line has the same text as the object. */
	CHECK(r->nlines == 2 && read_lines(r->jsonl, lines) == 4);
	run_check_grammar(r->lines[0]);
	CHECK(strstr(lines[1], run_value(r->lines[0], "overflow")));
	run_destroy(r);
}

static void append(const char *path, const char *text)
{
	FILE *f = fopen(path, "a");

	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* A crash of the machine left half a line in between. */
static void a_run_that_is_started_again_goes_on_in_the_files(void **state)
{
	struct run *r = run_create();

	(void)state;
	r->bad = 1 << 2;
	r->config.csv = r->csv;
	r->config.jsonl = r->jsonl;
	/* Of what a header or an object begins with, too. */
	append(r->csv, "step,samples,tr");
	append(r->jsonl, "{\"ti");
	for (int times = 1; times <= 3; times++) {
		t_processes(2, run_train, r);
		check_csv(r, times);
		check_jsonl(r, times);
		append(r->csv, "17,1.");
		append(r->jsonl, "{\"time\":17");
	}
	run_destroy(r);
}

/* ---- Files that can't be written ------------------------------------------------------------- */

/* All ranks have the same error, with rank 0's text. */
struct refusal {
	struct run *run;
	const char *csv, *jsonl, *want;
	int status;
};

static void be_refused(struct t_rank *t)
{
	struct refusal *f = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(f->run, comm);
	struct kolo_zero_log_config c = { .csv = t->rank ? NULL : f->csv,
					  .jsonl = t->rank ? NULL : f->jsonl };
	struct kolo_zero_log *log = (struct kolo_zero_log *)&c;

	CHECK(kolo_zero_log_create(comm, zero, &c, &log) == f->status && !log);
	CHECK(strstr(kolo_last_error(), "rank 0") &&
	      strstr(kolo_last_error(), f->csv ? f->csv : f->jsonl));
	CHECK(strstr(kolo_last_error(), f->want));
	/* Nothing else has happened. */
	CHECK(kolo_barrier(comm, NULL) == 0);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static rlim_t size_of(const char *path)
{
	struct stat st;

	CHECK(stat(path, &st) == 0);
	return (rlim_t)st.st_size;
}

static void files_that_are_not_a_logs_are_refused_and_left_alone(void **state)
{
	struct run *r = run_create();
	struct refusal f = { r, r->csv, NULL, "begins with something else", KOLO_EINVAL };

	(void)state;
	append(r->csv, "step,samples,train_loss\n1,2,3\nhalf");
	t_processes(2, be_refused, &f);
	CHECK(size_of(r->csv) == strlen("step,samples,train_loss\n1,2,3\nhalf"));
	unlink(r->csv);

	/* One column more than there are. */
	for (int i = 0; i < NAMES; i++) {
		append(r->csv, names[i]);
		append(r->csv, ",");
	}
	append(r->csv, "more\n");
	t_processes(2, be_refused, &f);

	f = (struct refusal){ r, NULL, r->jsonl, "begins with something else", KOLO_EINVAL };
	append(r->jsonl, "{\"a\": 1,\n \"b\": 2}\n");
	t_processes(2, be_refused, &f);
	CHECK(read_lines(r->jsonl, lines) == 2 && strcmp(lines[1], " \"b\": 2}") == 0);
	run_destroy(r);
}

static void folders_that_are_missing_and_paths_that_are_no_files_are_told_to_all_ranks(void **state)
{
	struct run *r = run_create();
	char missing[128];
	struct refusal cases[] = {
		{ r, missing, NULL, "No such file or directory", KOLO_ESYS },
		{ r, NULL, missing, "No such file or directory", KOLO_ESYS },
		{ r, r->dir, NULL, "Is a directory", KOLO_ESYS },
		{ r, "/dev/full", NULL, "No space left on device", KOLO_ESYS },
	};

	(void)state;
	snprintf(missing, sizeof(missing), "%s/missing/log", r->dir);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		t_processes(3, be_refused, &cases[i]);
	run_destroy(r);
}

/* The second file is full always; the first one, and lines, have everything. */
static void log_to_full_disk(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct kolo_zero_log *log = run_log(r, comm, zero);
	struct kolo_zero_result result;

	for (int attempt = 0; attempt < r->attempts; attempt++) {
		run_micro_step(r, zero, t->rank, t->nranks, attempt, &result);
		CHECK(kolo_zero_log_step(log, &result) == (t->rank ? 0 : KOLO_ESYS));
		CHECK(t->rank || strstr(kolo_last_error(),
					"/dev/full: a line could not be written: No space left"));
		CHECK(result.updated && result.step == attempt + 1);
	}
	kolo_zero_log_destroy(log);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_full_disk_costs_rows_and_nothing_else(void **state)
{
	struct run *r = run_create();

	(void)state;
	r->config.csv = r->csv;
	r->config.jsonl = "/dev/full";
	r->config.wall_clock = 1;
	run_prints(r, 1);
	t_processes(2, log_to_full_disk, r);
	CHECK(r->nlines == 4 * 7 && read_lines(r->csv, lines) == 1 + 4);
	run_destroy(r);
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = bytes;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Room ends in the middle of a row, twice, and then there is some again. */
static void log_half_lines(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct kolo_zero_log *log = run_log(r, comm, zero);
	struct kolo_zero_result result;

	signal(SIGXFSZ, SIG_IGN);
	for (int attempt = 0; attempt < 6; attempt++) {
		bool full = attempt == 2 || attempt == 3;
		rlim_t csv = size_of(r->csv);
		int rc;

		run_micro_step(r, zero, t->rank, t->nranks, attempt, &result);
		if (full)
			limit_files(csv + 20);
		rc = kolo_zero_log_step(log, &result);
		limit_files(RLIM_INFINITY);
		CHECK(rc == (full ? KOLO_ESYS : 0));
		CHECK(!full ||
		      (strstr(kolo_last_error(), "File too large") && size_of(r->csv) == csv));
	}
	kolo_zero_log_destroy(log);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void half_a_line_is_taken_back_and_rows_come_again_when_there_is_room(void **state)
{
	struct run *r = run_create();
	const int steps[] = { 1, 2, 5, 6 };

	(void)state;
	r->config.csv = r->csv;
	t_processes(1, log_half_lines, r);
	CHECK(read_lines(r->csv, lines) == 1 + 4);
	for (int i = 0; i < 4; i++)
		CHECK(atoi(lines[1 + i]) == steps[i]);
	run_destroy(r);
}

/* A file system of two pages, of which a row fills the last one. */
static void log_to_small_disk(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct kolo_zero_result result;
	struct kolo_zero_log *log;
	int full = 0, last = 0;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", r->dir, "tmpfs", 0, "size=8k") < 0) {
		printf("# not tested on a real disk: no mounts here: %s\n", strerror(errno));
	} else {
		char filler[96];

		snprintf(filler, sizeof(filler), "%s/filler", r->dir);
		append(filler, "x");
		log = run_log(r, comm, zero);
		for (int attempt = 0; attempt < 200 && full < 3; attempt++) {
			run_micro_step(r, zero, 0, 1, attempt % 8, &result);
			last = kolo_zero_log_step(log, &result);
			full += last == KOLO_ESYS;
			CHECK(last == 0 || strstr(kolo_last_error(), "No space left on device"));
		}
		CHECK(full == 3 && unlink(filler) == 0);
		CHECK(kolo_zero_log_step(log, &result) == 0);
		kolo_zero_log_destroy(log);
		CHECK(read_lines(r->csv, lines) == 1 + (int)result.step - full + 1);
		CHECK(umount2(r->dir, MNT_DETACH) == 0);
	}
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void on_a_disk_of_its_own_that_runs_full_too(void **state)
{
	struct run *r = run_create();

	(void)state;
	r->config.csv = r->csv;
	t_processes(1, log_to_small_disk, r);
	run_destroy(r);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(rows_read_back_are_the_results),
	cmocka_unit_test(json_lines_are_valid_whatever_a_tensor_is_called),
	cmocka_unit_test(a_run_that_is_started_again_goes_on_in_the_files),
	cmocka_unit_test(files_that_are_not_a_logs_are_refused_and_left_alone),
	cmocka_unit_test(
		folders_that_are_missing_and_paths_that_are_no_files_are_told_to_all_ranks),
	cmocka_unit_test(a_full_disk_costs_rows_and_nothing_else),
	cmocka_unit_test(half_a_line_is_taken_back_and_rows_come_again_when_there_is_room),
	cmocka_unit_test(on_a_disk_of_its_own_that_runs_full_too),
};

T_MAIN(tests)
