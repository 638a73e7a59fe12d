/* The executor: every schedule computes what one rank computes, bit for bit; bytes and buffers as
 * counted; failures name what was waited for. */
#include "kolo/kolo_parallel.h"
#include "tests/lib/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PARTS = 12, MOST_MICROS = 12 };

/* ---- A model --------------------------------------------------------------------------------- */

/* Part p: y = x w + m with a weight w[i] for each element, m of the micro-batch. The loss is the
 * sum of y of the last part. Sums of gradients of w depend on the order of micro-batches. */
struct model {
	int parts;
	size_t n;
	float *weights[MOST_PARTS];             /* of the parts that are here; NULL: elsewhere */
	float *gradients[MOST_PARTS];           /* of these */
	float *inputs[MOST_PARTS][MOST_MICROS]; /* by buffer */
	int micros[MOST_PARTS][MOST_MICROS];    /* in each buffer */
	float *outputs[MOST_MICROS];            /* of the last part */
	float *passed[MOST_PARTS][MOST_MICROS]; /* on one stage: what messages would carry */
	float *passed_back[MOST_PARTS][MOST_MICROS];
	const void *seen[MOST_PARTS][MOST_MICROS]; /* where each input was */
	int fail_at; /* the micro-batch of the middle part; -1: none */
	int how;     /* it fails */
};

enum { DIES, RETURNS, HANGS, LIES };

static float *floats(size_t n)
{
	float *x = calloc(n ? n : 1, sizeof(*x));

	CHECK(x);
	return x;
}

static void open_model(struct model *m, int parts, int stages, int stage, size_t n)
{
	*m = (struct model){ .parts = parts, .n = n, .fail_at = -1 };
	for (int p = stage; p < parts; p += stages) {
		m->weights[p] = floats(n);
		m->gradients[p] = floats(n);
		for (size_t i = 0; i < n; i++)
			m->weights[p][i] = 1 + (float)((i * 7 + (size_t)p * 3) % 11) / 13;
		for (int j = 0; j < MOST_MICROS; j++) {
			m->inputs[p][j] = floats(n);
			m->micros[p][j] = -1;
			m->passed[p][j] = stages == 1 ? floats(n) : NULL;
			m->passed_back[p][j] = stages == 1 ? floats(n) : NULL;
		}
	}
	for (int j = 0; j < MOST_MICROS; j++)
		m->outputs[j] = floats(n);
}

static void close_model(struct model *m)
{
	for (int p = 0; p < m->parts; p++) {
		free(m->weights[p]);
		free(m->gradients[p]);
		for (int j = 0; j < MOST_MICROS; j++) {
			free(m->inputs[p][j]);
			free(m->passed[p][j]);
			free(m->passed_back[p][j]);
		}
	}
	for (int j = 0; j < MOST_MICROS; j++)
		free(m->outputs[j]);
}

static int forward(struct model *m, const struct kolo_action *a,
		   const struct kolo_pipeline_tensors *t)
{
	int p = a->part, j = a->micro;
	bool here = m->passed[p][j] != NULL; /* one stage */
	float *kept = m->inputs[p][a->buffer], *out = t->output;
	const float *in = here && p ? m->passed[p - 1][j] : t->input;

	CHECK((t->input == NULL) == (p == 0 || here));
	CHECK((t->output == NULL) == (p == m->parts - 1 || here));
	CHECK(!t->output_gradient && !t->input_gradient);
	CHECK(m->micros[p][a->buffer] == -1); /* nobody keeps anything there */
	m->micros[p][a->buffer] = j;
	m->seen[p][j] = t->input;
	if (p == m->parts - 1)
		out = m->outputs[j];
	else if (here)
		out = m->passed[p][j];
	for (size_t i = 0; i < m->n; i++) {
		kept[i] = p ? in[i] : (float)(i % 5) + (float)j / 3;
		out[i] = kept[i] * m->weights[p][i] + (float)j;
	}
	return 0;
}

static void backward(struct model *m, const struct kolo_action *a,
		     const struct kolo_pipeline_tensors *t)
{
	bool inputs = a->type != KOLO_ACTION_BACKWARD_WEIGHT;
	bool weights = a->type != KOLO_ACTION_BACKWARD_INPUT;
	int p = a->part, j = a->micro;
	bool here = m->passed[p][j] != NULL, last = p == m->parts - 1;
	const float *kept = m->inputs[p][a->buffer];
	const float *back = last ? NULL : here ? m->passed_back[p + 1][j] : t->output_gradient;
	float *out = here ? m->passed_back[p][j] : t->input_gradient;

	CHECK((t->output_gradient == NULL) == (last || here));
	CHECK((t->input_gradient == NULL) == (p == 0 || here || !inputs));
	CHECK(m->micros[p][a->buffer] == j && t->input == m->seen[p][j]);
	if (t->input) /* it is still there */
		CHECK(memcmp(t->input, kept, m->n * sizeof(*kept)) == 0);
	for (size_t i = 0; i < m->n; i++) {
		float g = back ? back[i] : 1;

		if (inputs && p)
			out[i] = g * m->weights[p][i];
		if (weights)
			m->gradients[p][i] += g * kept[i];
	}
	if (weights)
		m->micros[p][a->buffer] = -1;
}

static int compute(void *arg, const struct kolo_action *a, const struct kolo_pipeline_tensors *t)
{
	struct model *m = arg;

	if (a->type == KOLO_ACTION_FORWARD && a->micro == m->fail_at) {
		if (m->how == DIES)
			_exit(0);
		if (m->how == RETURNS)
			return kolo_error_set(KOLO_EOVERFLOW, "the loss is not finite");
		if (m->how == LIES)
			return 7;
		sleep(5);
	}
	if (a->type == KOLO_ACTION_FORWARD)
		return forward(m, a, t);
	backward(m, a, t);
	return 0;
}

/* ---- The same bits --------------------------------------------------------------------------- */

/* What one rank computes, micro-batch after micro-batch. */
static void reference(struct model *m, int micros, int batches)
{
	struct kolo_pipeline_tensors none = { 0 };

	for (int b = 0; b < batches; b++)
		for (int j = 0; j < micros; j++) {
			struct kolo_action a = { .micro = j };

			for (a.part = 0; a.part < m->parts; a.part++)
				CHECK(forward(m, &a, &none) == 0);
			a.type = KOLO_ACTION_BACKWARD;
			for (a.part = m->parts; a.part-- > 0;)
				backward(m, &a, &none);
		}
}

static uint64_t sends_of(const struct kolo_pipeline *p, int stage)
{
	uint64_t sum = 0;
	int n;
	const struct kolo_action *list = kolo_pipeline_list(p, stage, &n);

	for (int i = 0; i < n; i++)
		sum += list[i].type == KOLO_ACTION_SEND_ACTIVATION ||
		       list[i].type == KOLO_ACTION_SEND_GRADIENT;
	return sum;
}

static void run_one(struct kolo_comm *comm, enum kolo_pipeline_schedule schedule, int chunks,
		    int micros, size_t n)
{
	enum { BATCHES = 2 };
	int stages = kolo_comm_nranks(comm), stage = kolo_comm_rank(comm), parts = stages * chunks;
	struct kolo_pipeline_executor *e;
	struct kolo_pipeline_report report;
	struct kolo_pipeline *p;
	struct model here, whole;

	open_model(&here, parts, stages, stage, n);
	open_model(&whole, parts, 1, 0, n);
	reference(&whole, micros, BATCHES);
	CHECK(kolo_pipeline_create(schedule, stages, chunks, micros, &p) == 0);
	CHECK(kolo_pipeline_executor_create(comm, p, n, KOLO_F32, &e) == 0);
	for (int b = 0; b < BATCHES; b++)
		CHECK(kolo_pipeline_run(e, compute, &here) == 0);
	for (int part = stage; part < parts; part += stages)
		CHECK(memcmp(here.gradients[part], whole.gradients[part], n * sizeof(float)) == 0);
	for (int j = 0; j < micros && stage == stages - 1; j++)
		CHECK(memcmp(here.outputs[j], whole.outputs[j], n * sizeof(float)) == 0);
	kolo_pipeline_report_get(e, &report);
	CHECK(report.sent_bytes == BATCHES * sends_of(p, stage) * n * sizeof(float));
	CHECK(report.buffer_bytes == (size_t)report.buffers * n * sizeof(float));
	CHECK(report.compute >= 0 && report.wait >= 0);
	kolo_pipeline_executor_destroy(e);
	kolo_pipeline_destroy(p);
	close_model(&here);
	close_model(&whole);
}

static void run_all(struct t_rank *t)
{
	static const int micros[] = { 1, 2, 3, 8 };
	struct kolo_comm *comm = t_comm(t);
	unsigned key = (unsigned)t->nranks;

	for (int s = 0; s <= KOLO_PIPELINE_ZB_H1; s++)
		for (size_t k = 0; k < ARRAY_LEN(micros); k++)
			for (int chunks = 1; chunks <= 3; chunks++) {
				bool chunked = s == KOLO_PIPELINE_INTERLEAVED;
				int m = chunked ? micros[k] / 2 * t->nranks : micros[k];

				if ((chunks > 1 && !chunked) || m < 1 || m > MOST_MICROS)
					continue;
				/* Above 256 KiB a message waits for its receiver (rendezvous). */
				run_one(comm, (enum kolo_pipeline_schedule)s, chunks, m,
					t_sampled(key++, 4) ? 70001 : 100);
			}
	run_one(comm, KOLO_PIPELINE_1F1B, 1, 2, 0);
	kolo_comm_destroy(comm);
}

static void every_schedule_has_the_bits_of_one_rank(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= 4; nranks++)
		if (nranks == 3 || !t_is_slowest())
			t_processes(nranks, run_all, NULL);
	t_threads(2, run_all, NULL);
}

/* ---- Failures -------------------------------------------------------------------------------- */

struct failure {
	int how;
	enum kolo_pipeline_schedule schedule;
};

static void fail_in_the_middle(struct t_rank *t)
{
	const struct failure *f = t->arg;
	struct kolo_comm *comm = t_comm_with(t, (struct kolo_comm_attr){ .timeout_s = 2 });
	struct kolo_pipeline_executor *e;
	struct kolo_pipeline *p;
	struct model m;
	const char *text;
	int rc, wants[3];

	open_model(&m, 3, 3, t->rank, 50);
	if (t->rank == 1) {
		m.fail_at = 2;
		m.how = f->how;
	}
	CHECK(kolo_pipeline_create(f->schedule, 3, 1, 4, &p) == 0);
	CHECK(kolo_pipeline_executor_create(comm, p, 50, KOLO_F32, &e) == 0);
	rc = kolo_pipeline_run(e, compute, &m);
	text = kolo_last_error();
	if (t->rank == 1 && f->how == RETURNS)
		CHECK(rc == KOLO_EOVERFLOW && strcmp(text, "the loss is not finite") == 0);
	if (t->rank == 1 && f->how == LIES)
		CHECK(rc == KOLO_EINVAL && strstr(text, "compute returned 7"));
	if (t->rank == 1 && f->how == HANGS)
		_exit(0);
	if (t->rank == 2) {
		CHECK(rc == (f->how == DIES    ? KOLO_EPEER
			     : f->how == HANGS ? KOLO_ETIMEDOUT
					       : KOLO_EABORTED));
		/* What stage 1 has sent may still be on its way. */
		CHECK(sscanf(text,
			     "stage 2, action %*d (2F%d), waits for the activation of micro-batch %d of stage %d: ",
			     &wants[0], &wants[1], &wants[2]) == 3);
		CHECK(wants[0] == wants[1] && wants[1] <= 2 && wants[2] == 1);
		CHECK(strstr(text, "rank 1"));
	}
	if (t->rank == 0)
		CHECK(rc < 0 && strstr(text, "stage 0, action ") &&
		      strstr(text, "waits for the gradient of micro-batch ") &&
		      strstr(text, " of stage 1: ") && strstr(text, "rank 1"));
	rc = kolo_pipeline_run(e, compute, &m);
	CHECK(rc == KOLO_EINVAL && strstr(kolo_last_error(), "an earlier run has failed: "));
	kolo_pipeline_executor_destroy(e);
	kolo_pipeline_destroy(p);
	close_model(&m);
	kolo_comm_destroy(comm);
}

static void a_failure_names_what_was_waited_for(void **state)
{
	(void)state;
	for (int how = DIES; how <= LIES; how++) {
		struct failure f = { how, how % 2 ? KOLO_PIPELINE_GPIPE : KOLO_PIPELINE_1F1B };

		t_processes(3, fail_in_the_middle, &f);
	}
}

/* Fails in the last backward of all. */
static int fail_last(void *arg, const struct kolo_action *a, const struct kolo_pipeline_tensors *t)
{
	if (a->part == 0 && a->type == KOLO_ACTION_BACKWARD && a->micro == 1)
		return kolo_error_set(KOLO_EOVERFLOW, "too late");
	return compute(arg, a, t);
}

static void fail_at_the_end(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_pipeline_executor *e;
	struct kolo_pipeline *p;
	struct model m;
	int rc;

	open_model(&m, 2, 2, t->rank, 10);
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 2, 1, 2, &p) == 0);
	CHECK(kolo_pipeline_executor_create(comm, p, 10, KOLO_F32, &e) == 0);
	rc = kolo_pipeline_run(e, fail_last, &m);
	if (t->rank == 0)
		CHECK(rc == KOLO_EOVERFLOW && strcmp(kolo_last_error(), "too late") == 0);
	else /* its list has ended by then */
		CHECK(rc == KOLO_EABORTED &&
		      strstr(kolo_last_error(),
			     "stage 1, at its end, waits for the other stages: ") &&
		      strstr(kolo_last_error(), "rank 0"));
	kolo_pipeline_executor_destroy(e);
	kolo_pipeline_destroy(p);
	close_model(&m);
	kolo_comm_destroy(comm);
}

static void a_stage_that_fails_last_fails_the_others_too(void **state)
{
	(void)state;
	t_processes(2, fail_at_the_end, NULL);
}

static void mistake(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_pipeline_executor *e;
	struct kolo_pipeline *p, *other;

	CHECK(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 3, 1, 4, &p) == 0);
	CHECK(kolo_pipeline_executor_create(comm, p, 8, KOLO_F32, &e) == KOLO_EINVAL && !e);
	CHECK(strstr(kolo_last_error(), "a pipeline of 3 stages on a communicator of 2 ranks"));
	kolo_pipeline_destroy(p);
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 2, 1, 4, &p) == 0);
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_GPIPE, 2, 1, 4, &other) == 0);
	CHECK(kolo_pipeline_executor_create(comm, t->rank ? p : other, 8, KOLO_F32, &e) ==
	      KOLO_EMISMATCH);
	CHECK(strstr(kolo_last_error(), "stage 1 has another pipeline"));
	CHECK(kolo_pipeline_executor_create(comm, p, t->rank ? 8 : 9, KOLO_F32, &e) ==
	      KOLO_EMISMATCH);
	CHECK(kolo_pipeline_executor_create(comm, p, 8, (enum kolo_type)77, &e) == KOLO_EINVAL);
	CHECK(kolo_pipeline_executor_create(comm, NULL, 8, KOLO_F32, &e) == KOLO_EINVAL);
	CHECK(kolo_pipeline_executor_create(NULL, p, 8, KOLO_F32, &e) == KOLO_EINVAL);
	CHECK(kolo_pipeline_run(NULL, compute, NULL) == KOLO_EINVAL);
	kolo_pipeline_executor_destroy(NULL);
	kolo_pipeline_destroy(p);
	kolo_pipeline_destroy(other);
	kolo_comm_destroy(comm);
}

static void mistakes_are_told(void **state)
{
	(void)state;
	t_processes(2, mistake, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_schedule_has_the_bits_of_one_rank),
	cmocka_unit_test(a_failure_names_what_was_waited_for),
	cmocka_unit_test(a_stage_that_fails_last_fails_the_others_too),
	cmocka_unit_test(mistakes_are_told),
};

T_MAIN(tests)
