/* See log_run.h. */
#include "tests/zero/files/log_run.h"
#include "tests/zero/step/give.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TENSORS = 3, N = 21 };

/* A name with all that has to be escaped: quotes, control characters, bytes that are no UTF-8, an
 * emoji, a half of a pair. */
const char run_hostile[] =
	"\"quoted\" back\\slash\nnew\tline\x7f \xff\xc3( \xc0\x80 \xed\xa0\x80 \xf0\x9f\x94\xa5 \xc3\xa9 \x01";

struct run *run_create(void)
{
	struct run *r =
		mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(r != MAP_FAILED);
	r->attempts = 4;
	r->accumulation = 1;
	r->slow_rank = -1;
	kolo_zero_log_config_init(&r->config);
	strcpy(r->dir, "/tmp/kolo-log-XXXXXX");
	CHECK(mkdtemp(r->dir));
	snprintf(r->csv, sizeof(r->csv), "%s/log.csv", r->dir);
	snprintf(r->jsonl, sizeof(r->jsonl), "%s/log.jsonl", r->dir);
	return r;
}

void run_destroy(struct run *r)
{
	unlink(r->csv);
	unlink(r->jsonl);
	CHECK(rmdir(r->dir) == 0);
	munmap(r, sizeof(*r));
}

static void keep_line(const char *line, void *arg)
{
	struct run *r = arg;

	CHECK(r->nlines < MOST_LINES && strlen(line) < sizeof(r->lines[0]));
	r->line_of[r->nlines] = r->at;
	strcpy(r->lines[r->nlines++], line);
}

void run_prints(struct run *r, long steps_per_print)
{
	r->config.steps_per_print = steps_per_print;
	r->config.print = keep_line;
	r->config.print_arg = r;
}

static void refuse_line(const char *line, void *arg)
{
	(void)line, (void)arg;
	CHECK(!"lines are for rank 0");
}

struct kolo_zero *run_engine(const struct run *r, struct kolo_comm *comm)
{
	struct kolo_zero_tensor tensors[TENSORS] = {
		{ .name = "a", .shape = { N }, .ndims = 1, .type = KOLO_F32 },
		{ .name = run_hostile, .shape = { N }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "c", .shape = { N }, .ndims = 1, .type = KOLO_F32 },
	};
	struct kolo_zero_config c;
	struct kolo_zero *zero;

	kolo_zero_config_init(&c);
	c.stage = 2;
	c.accumulation = r->accumulation;
	c.contiguous = 0;
	CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
	return zero;
}

struct kolo_zero_log *run_log(const struct run *r, struct kolo_comm *comm,
			      const struct kolo_zero *zero)
{
	struct kolo_zero_log_config c = r->config;
	struct kolo_zero_log *log;

	if (kolo_comm_rank(comm) > 0)
		c.print = refuse_line;
	CHECK(kolo_zero_log_create(comm, zero, &c, &log) == 0);
	return log;
}

/* One micro-step, without what is logged of it. */
void run_micro_step(const struct run *r, struct kolo_zero *zero, int rank, int nranks, int attempt,
		    struct kolo_zero_result *out)
{
	bool last = rank == nranks - 1, bad = last && (r->bad >> attempt & 1),
	     nan = last && (r->nan >> attempt & 1);
	float gradient[N];

	CHECK(kolo_zero_forward(zero, 3) == 0);
	if (rank == r->slow_rank)
		usleep((useconds_t)r->slow_ms * 1000);
	CHECK(kolo_zero_backward(zero, nan ? NAN : 1 / 3.0 + attempt) == 0);
	for (int i = 0; i < TENSORS; i++) {
		int tensor = r->reversed && rank == 1 ? i : TENSORS - 1 - i;

		for (int k = 0; k < N; k++)
			gradient[k] = bad && tensor == 1 && k == 5 ? INFINITY
								   : 0.1f * (float)(k + attempt);
		CHECK(give(zero, tensor, gradient) == 0);
	}
	CHECK(kolo_zero_step(zero, out) == 0);
}

static void keep_peaks(struct run *r, const struct kolo_zero *zero, int rank)
{
	struct kolo_zero_memory m;

	for (int k = 0; kolo_zero_memory_get(zero, k, &m) == 0; k++) {
		CHECK(k < MEMORY_KINDS);
		r->peaks[rank][k] = (double)m.peak;
		if (rank > 0)
			continue;
		snprintf(r->kinds[k], sizeof(r->kinds[k]), "%s at %s", m.kind, m.place);
		r->nkinds = k + 1;
	}
}

void run_train(struct t_rank *t)
{
	struct run *r = t->arg;
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero *zero = run_engine(r, comm);
	struct kolo_zero_log *log = run_log(r, comm, zero);
	struct kolo_zero_result result;
	int64_t began = t_now_ms();

	for (int attempt = 0; attempt < r->attempts; attempt++) {
		if (t->rank == 0)
			r->at = attempt;
		for (int micro = 0; micro < r->accumulation; micro++) {
			run_micro_step(r, zero, t->rank, t->nranks, attempt, &result);
			CHECK(kolo_zero_log_step(log, &result) == 0);
		}
		if (t->rank > 0)
			continue;
		CHECK(result.skipped == (int)(r->bad >> attempt & 1));
		r->results[attempt] = result;
		r->samples[attempt] = (attempt ? r->samples[attempt - 1] : 0) +
				      (result.skipped ? 0 : result.samples);
		r->skipped[attempt] = (attempt ? r->skipped[attempt - 1] : 0) + result.skipped;
	}
	if (t->rank == 0)
		r->seconds = fmax(r->seconds, (double)(t_now_ms() - began) * 1e-3);
	keep_peaks(r, zero, t->rank);
	kolo_zero_log_destroy(log);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

/* ---- Reading --------------------------------------------------------------------------------- */

const char *run_value(const char *line, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = line; (at = strstr(at, name)); at++)
		if ((at == line || at[-1] == ' ') && at[len] == '=')
			return at + len + 1;
	return NULL;
}

double run_number(const char *line, const char *name)
{
	const char *value = run_value(line, name);

	CHECK(value);
	return strtod(value, NULL);
}

/* The end of a JSON string that begins here; of characters that may stand in it. */
static const char *skip_string(const char *s)
{
	CHECK(*s++ == '"');
	for (; *s != '"'; s++) {
		CHECK((unsigned char)*s >= ' ');
		s += *s == '\\';
	}
	return s + 1;
}

void run_check_grammar(const char *line)
{
	while (*line) {
		size_t len = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
		char *end;

		CHECK(len > 0 && line[len] == '=');
		line += len + 1;
		if (*line == '"') {
			line = skip_string(line);
		} else {
			strtod(line, &end);
			CHECK(end > line);
			line = end;
		}
		CHECK(*line == 0 || (*line++ == ' ' && *line));
	}
}
