/* The log of a training run: lines at the right steps, times and memory of the rank that has the
 * most, mistakes, and what it costs. Its files are test_zero_log_files.c's. */
#include "tests/zero/files/log_run.h"

#include <linux/seccomp.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Lines ----------------------------------------------------------------------------------- */

static void check_line(const struct run *r, int i, int attempt, bool overflow)
{
	const struct kolo_zero_result *result = &r->results[attempt];
	const char *line = r->lines[i];

	CHECK(i < r->nlines && r->line_of[i] == attempt);
	run_check_grammar(line);
	CHECK(run_number(line, "step") == (double)result->step);
	CHECK(run_number(line, "skipped") == (double)r->skipped[attempt]);
	CHECK(run_number(line, "loss_scale") == result->loss_scale);
	CHECK((run_value(line, "overflow") != NULL) == overflow);
	if (overflow)
		return;
	CHECK(fabs(run_number(line, "train_loss") - result->loss) <= 1e-5 * result->loss);
	CHECK(fabs(run_number(line, "norm") - result->norm) <= 1e-5 * result->norm ||
	      result->skipped);
	CHECK(run_number(line, "lr") == result->lr);
	CHECK(run_number(line, "samples") == (double)r->samples[attempt]);
	CHECK(run_number(line, "samples_per_second") > 0);
}

static void lines_come_at_the_steps_wanted_and_of_skipped_updates_at_once(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= 3; nranks++) {
		struct run *r = run_create();
		int i = 0;

		r->attempts = 10;
		r->accumulation = 2;
		r->bad = 1 << 1 | 1 << 5 | 1 << 6;
		run_prints(r, 3);
		t_processes(nranks, run_train, r);
		for (int attempt = 0; attempt < r->attempts; attempt++) {
			if (r->bad >> attempt & 1)
				check_line(r, i++, attempt, true);
			if ((attempt + 1) % 3 == 0)
				check_line(r, i++, attempt, false);
		}
		CHECK(i == r->nlines && i == 6);
		run_destroy(r);
	}
}

static void without_steps_per_print_only_skipped_updates_have_lines(void **state)
{
	struct run *r = run_create();

	(void)state;
	r->bad = 1 << 2;
	run_prints(r, 0);
	t_processes(2, run_train, r);
	CHECK(r->nlines == 1);
	check_line(r, 0, 2, true);
	CHECK(strstr(r->lines[0], "at index 5 is inf on rank 1, micro-step 0\""));
	run_destroy(r);
}

/* ---- Times and memory ------------------------------------------------------------------------ */

/* The line of that step which has name="of"; what has none is a failure. */
static const char *find_line(const struct run *r, long step, const char *name, const char *of)
{
	char want[64];

	snprintf(want, sizeof(want), "step=%ld %s=\"%s\" ", step, name, of);
	for (int i = 0; i < r->nlines; i++)
		if (strncmp(r->lines[i], want, strlen(want)) == 0)
			return r->lines[i];
	CHECK(!"there is such a line");
	return NULL;
}

static void who_is_slow_is_named_with_times_that_add_up(void **state)
{
	struct run *r = run_create();
	const char *forward, *reduce;
	double sum = 0;

	(void)state;
	r->attempts = 6;
	r->slow_rank = 2;
	r->slow_ms = 40;
	r->config.wall_clock = 1;
	run_prints(r, 3);
	t_processes(3, run_train, r);
	CHECK(r->nlines == 2 * (1 + 6));
	for (int i = 0; i < r->nlines; i++)
		run_check_grammar(r->lines[i]);
	for (long step = 3; step <= 6; step += 3) {
		forward = find_line(r, step, "time", "forward");
		reduce = find_line(r, step, "time", "reduce");
		CHECK(run_number(forward, "max_rank") == 2 &&
		      run_number(forward, "max_ms") >= r->slow_ms);
		CHECK(run_number(forward, "ms") < run_number(forward, "max_ms"));
		/* The others wait for it there. */
		CHECK(run_number(reduce, "max_rank") != 2 &&
		      run_number(reduce, "max_ms") >= r->slow_ms * 0.8);
		sum += 3 * run_number(forward, "ms");
		sum += 3 * run_number(find_line(r, step, "time", "backward"), "ms");
		sum += 3 * run_number(find_line(r, step, "time", "step"), "ms");
		find_line(r, step, "time", "gather");
		find_line(r, step, "time", "update");
	}
	/* The others wait for that rank in backward or step. */
	CHECK(sum >= 6 * r->slow_ms * 0.9 && sum <= r->seconds * 1e3 + 1);
	run_destroy(r);
}

/* The line of memory of kind number k, which has its place in front where the kind has others
 * too. */
static const char *find_memory(const struct run *r, long step, int k)
{
	const char *at = strstr(r->kinds[k], " at ");
	size_t len = (size_t)(at - r->kinds[k]) + 4;
	char name[80];
	int n = 0;

	for (int other = 0; other < r->nkinds; other++)
		n += strncmp(r->kinds[other], r->kinds[k], len) == 0;
	snprintf(name, sizeof(name), "%s%s%.*s", n > 1 ? at + 4 : "", n > 1 ? " " : "",
		 (int)len - 4, r->kinds[k]);
	return find_line(r, step, "memory", name);
}

/* Rank 1 fills a bucket that is reduced last first: it needs one more. */
static void who_holds_most_is_named_with_each_kind_of_memory(void **state)
{
	struct run *r = run_create();

	(void)state;
	r->reversed = true;
	r->config.memory = 1;
	run_prints(r, 4);
	t_processes(3, run_train, r);
	CHECK(r->nkinds >= 6 && r->nlines == 1 + r->nkinds);
	for (int k = 0; k < r->nkinds; k++) {
		const char *line = find_memory(r, 4, k);
		int most = 0;

		run_check_grammar(line);
		for (int rank = 1; rank < 3; rank++)
			if (r->peaks[rank][k] > r->peaks[most][k])
				most = rank;
		CHECK(run_number(line, "peak") == r->peaks[0][k]);
		CHECK(run_number(line, "max_peak") == r->peaks[most][k]);
		CHECK(run_number(line, "max_rank") == most);
		CHECK(run_number(line, "bytes") <= run_number(line, "peak"));
	}
	CHECK(run_number(find_line(r, 4, "memory", "buckets"), "max_rank") == 1);
	run_destroy(r);
}

/* An engine that has several kinds of memory in several places, where a test says so. */
static const char *const spread[][2] = {
	{ "parameters", "device" }, { "moments", "device" },  { "moments", "host" },
	{ "moments", "nvme" },      { "gathered", "device" }, { "shards", "host" },
	{ "shards", "nvme" },       { "staging", "host" },
};
static bool is_spread;

int __real_kolo_zero_memory_get(const struct kolo_zero *zero, int index,
				struct kolo_zero_memory *out);
int __wrap_kolo_zero_memory_get(const struct kolo_zero *zero, int index,
				struct kolo_zero_memory *out);
int __wrap_kolo_zero_memory_get(const struct kolo_zero *zero, int index,
				struct kolo_zero_memory *out)
{
	if (!is_spread)
		return __real_kolo_zero_memory_get(zero, index, out);
	if (index < 0 || index >= (int)ARRAY_LEN(spread))
		return kolo_error_set(KOLO_EINVAL, "there is no such kind");
	*out = (struct kolo_zero_memory){
		.kind = spread[index][0],
		.place = spread[index][1],
		.bytes = 100 + (size_t)index,
		.peak = 200 + (size_t)index,
	};
	return 0;
}

static void a_kind_in_several_places_has_a_line_for_each(void **state)
{
	static const char *const names[] = { "parameters",   "device moments", "host moments",
					     "nvme moments", "gathered",       "host shards",
					     "nvme shards",  "staging" };
	struct run *r = run_create();

	(void)state;
	is_spread = true;
	r->config.memory = 1;
	run_prints(r, 4);
	t_processes(2, run_train, r);
	CHECK(r->nlines == 1 + (int)ARRAY_LEN(names));
	for (size_t k = 0; k < ARRAY_LEN(names); k++) {
		const char *line = find_line(r, 4, "memory", names[k]);

		run_check_grammar(line);
		CHECK(run_number(line, "bytes") == 100 + (double)k &&
		      run_number(line, "max_peak") == 200 + (double)k);
	}
	is_spread = false;
	run_destroy(r);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

static void lose_communicator(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct kolo_zero_log *log = run_log(r, comm, zero);
	struct kolo_zero_result result;

	for (int attempt = 0; attempt < 3; attempt++) {
		run_micro_step(r, zero, t->rank, t->nranks, attempt, &result);
		if (t->rank == 1 && attempt == 1)
			kolo_comm_abort(comm);
		CHECK(kolo_zero_log_step(log, &result) == (attempt ? KOLO_EABORTED : 0));
		CHECK(result.updated);
	}
	kolo_zero_log_destroy(log);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_failed_communicator_costs_the_breakdown_and_nothing_else(void **state)
{
	struct run *r = run_create();

	(void)state;
	r->config.wall_clock = 1;
	run_prints(r, 1);
	t_processes(2, lose_communicator, r);
	CHECK(r->nlines == 7 + 1 + 1 && run_number(r->lines[8], "step") == 3);
	run_destroy(r);
}

static void refuse(struct kolo_comm *comm, const struct kolo_zero *zero,
		   const struct kolo_zero_log_config *c, int status, const char *text)
{
	struct kolo_zero_log *log = (struct kolo_zero_log *)&status;

	CHECK(kolo_zero_log_create(comm, zero, c, &log) == status && !log);
	CHECK(strstr(kolo_last_error(), text));
}

static void be_wrong(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct kolo_zero_log_config good = r->config, c = good;
	struct kolo_zero_result result = { .updated = 1 };
	struct kolo_zero_log *log;

	CHECK(kolo_zero_log_create(NULL, zero, &c, &log) == KOLO_EINVAL && !log);
	CHECK(kolo_zero_log_create(comm, zero, &c, NULL) == KOLO_EINVAL);
	refuse(comm, NULL, &c, KOLO_EINVAL, "rank 0: the engine");
	refuse(comm, zero, NULL, KOLO_EINVAL, "NULL");
	c.steps_per_print = -1;
	refuse(comm, zero, &c, KOLO_EINVAL, "steps_per_print is -1");
	c = good;
	c.wall_clock = 2;
	refuse(comm, zero, &c, KOLO_EINVAL, "wall_clock and memory are 2 and 0");
	c.wall_clock = 0;
	c.memory = -1;
	refuse(comm, zero, &c, KOLO_EINVAL, "0 and -1");
	c.memory = 0;
	c.reserved[7] = 1;
	refuse(comm, zero, &c, KOLO_EINVAL, "reserved");
	/* One alone is wrong, and all are told. */
	c.reserved[7] = t->rank == 1;
	refuse(comm, zero, &c, KOLO_EINVAL, "rank 1: config.reserved");
	c = good;
	c.steps_per_print = t->rank == 2 ? 7 : 5;
	refuse(comm, zero, &c, KOLO_EMISMATCH,
	       t->rank == 2 ? "7, 0 and 0 on rank 2" : "not the same");
	c.steps_per_print = 5;
	c.memory = t->rank != 2;
	refuse(comm, zero, &c, KOLO_EMISMATCH, "memory");

	CHECK(kolo_zero_log_create(comm, zero, &good, &log) == 0);
	CHECK(kolo_zero_log_step(NULL, &result) == KOLO_EINVAL);
	CHECK(kolo_zero_log_step(log, NULL) == KOLO_EINVAL);
	CHECK(kolo_zero_log_step(log, &result) == 0);
	kolo_zero_log_destroy(log);
	kolo_zero_log_destroy(NULL);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void wrong_arguments_of_one_rank_are_told_to_all(void **state)
{
	struct run *r = run_create();

	(void)state;
	t_processes(3, be_wrong, r);
	run_destroy(r);
}

/* ---- What it costs, and where it runs -------------------------------------------------------- */

struct loop {
	struct kolo_zero_log *log;
	volatile bool done;
};

/* In a thread that may do nothing but read, write and end. */
static void *log_without_calls(void *arg)
{
	struct loop *loop = arg;
	struct kolo_zero_result result = { .updated = 1, .step = 1, .samples = 8 };

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) < 0)
		return NULL;
	for (int i = 0; i < 100000; i++)
		if (kolo_zero_log_step(loop->log, &result) < 0)
			break;
	loop->done = true;
	syscall(SYS_exit, 0);
	return NULL;
}

static void log_often(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct loop loop = { .log = run_log(r, comm, zero) };
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, log_without_calls, &loop) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(loop.done);
	kolo_zero_log_destroy(loop.log);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void steps_without_a_line_make_no_system_call(void **state)
{
	struct run *r;

	(void)state;
	if (t_is_slow())
		skip(); /* sanitizers make calls of their own */
	r = run_create();
	r->config.wall_clock = r->config.memory = 1;
	run_prints(r, 2);
	t_processes(1, log_often, r);
	CHECK(r->nlines == 0);
	run_destroy(r);
}

/* A locale that writes 0,5, made for this test. */
static bool make_locale(const char *dir)
{
	char command[256];

	snprintf(command, sizeof(command), "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
		 dir);
	return setenv("LOCPATH", dir, 1) == 0 && system(command) == 0;
}

static void train_in_german(struct t_rank *t)
{
	char text[8];

	CHECK(setlocale(LC_ALL, "de_DE.UTF-8"));
	snprintf(text, sizeof(text), "%.1f", 0.5);
	CHECK(strcmp(text, "0,5") == 0);
	run_train(t);
	/* The thread's own is as it was. */
	CHECK(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
}

static void numbers_have_points_where_the_locale_has_commas(void **state)
{
	struct run *r = run_create();
	char command[128];
	bool made = make_locale(r->dir);
	FILE *f;

	(void)state;
	r->config.csv = r->csv;
	run_prints(r, 4);
	if (made) {
		t_processes(1, train_in_german, r);
		CHECK(r->nlines == 1 && !strchr(r->lines[0], ','));
		CHECK(fabs(run_number(r->lines[0], "train_loss") - (3 + 1 / 3.0)) < 1e-4);
		f = fopen(r->csv, "r");
		CHECK(f && fscanf(f, "%*s 1,3,0.3333333333333333,0.001,%*s 2,6,1.333333333333333%c",
				  command) == 1);
		fclose(f);
	}
	snprintf(command, sizeof(command), "rm -rf %s/de_DE.UTF-8", r->dir);
	CHECK(system(command) == 0);
	run_destroy(r);
	if (!made)
		skip(); /* no localedef, or none of its sources */
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(lines_come_at_the_steps_wanted_and_of_skipped_updates_at_once),
	cmocka_unit_test(without_steps_per_print_only_skipped_updates_have_lines),
	cmocka_unit_test(who_is_slow_is_named_with_times_that_add_up),
	cmocka_unit_test(who_holds_most_is_named_with_each_kind_of_memory),
	cmocka_unit_test(a_kind_in_several_places_has_a_line_for_each),
	cmocka_unit_test(a_failed_communicator_costs_the_breakdown_and_nothing_else),
	cmocka_unit_test(wrong_arguments_of_one_rank_are_told_to_all),
	cmocka_unit_test(steps_without_a_line_make_no_system_call),
	cmocka_unit_test(numbers_have_points_where_the_locale_has_commas),
};

T_MAIN(tests)
