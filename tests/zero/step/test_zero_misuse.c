/* What would train wrong without a word: stale reads, shared memory, gradients that are missing, a
 * stage 3 that saves nothing. Each is refused or counted, and named. */
#include "kolo/kolo_zero.h"
#include "tests/lib/t.h"
#include "tests/zero/step/give.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { A, B, C, FROZEN, TENSORS, N = 6 };

static const float ones[N] = { 1, 1, 1, 1, 1, 1 };

static bool says(int rc, int want, const char *text)
{
	return rc == want && strstr(kolo_last_error(), text);
}

static struct kolo_zero_config config_of(int stage, int overlap, int accumulation)
{
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.stage = stage;
	c.overlap = overlap;
	c.accumulation = accumulation;
	return c;
}

static void describe(struct kolo_zero_tensor *out)
{
	static const char *const names[TENSORS] = { "a", "b", "c", "frozen" };

	for (int i = 0; i < TENSORS; i++)
		out[i] = (struct kolo_zero_tensor){ .name = names[i],
						    .shape = { N },
						    .ndims = 1,
						    .type = KOLO_F32,
						    .frozen = i == FROZEN };
}

static struct kolo_zero *create(struct kolo_comm *comm, const struct kolo_zero_config *c)
{
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero *zero;

	describe(tensors);
	CHECK(kolo_zero_create(comm, c, tensors, TENSORS, &zero) == 0);
	return zero;
}

static void begin(struct kolo_zero *zero, size_t samples)
{
	CHECK(kolo_zero_forward(zero, samples) == 0 && kolo_zero_backward(zero, 0) == 0);
}

/* ---- Stale reads ----------------------------------------------------------------------------- */

static void read_stale(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int way = 0; way < 4 * 2; way++) {
		struct kolo_zero_config c = config_of(way % 4, way / 4, 2);
		struct kolo_zero *zero = create(comm, &c);

		begin(zero, 1);
		CHECK(says(
			kolo_zero_gradient(zero, A, ones), KOLO_EINVAL,
			"step 1: gradient of tensor 'a' without kolo_zero_use since the last update"));
		CHECK(give(zero, A, ones) == 0 && kolo_zero_step(zero, NULL) == 0);
		/* The second micro-step reads what the first one has read. */
		begin(zero, 1);
		CHECK(kolo_zero_gradient(zero, A, ones) == 0);
		CHECK(kolo_zero_step(zero, NULL) == 0);
		begin(zero, 1);
		CHECK(says(kolo_zero_gradient(zero, A, ones), KOLO_EINVAL,
			   "step 2: gradient of tensor 'a' without kolo_zero_use"));
		CHECK(kolo_zero_step(zero, NULL) == 0);
		/* Without a sample nothing was read. */
		begin(zero, 0);
		CHECK(kolo_zero_gradient(zero, A, NULL) == 0 && kolo_zero_step(zero, NULL) == 0);
		/* An evaluation before the update's first micro-step is a use. */
		CHECK(kolo_zero_use(zero, A, NULL) == 0 && kolo_zero_release(zero, A) == 0);
		begin(zero, 1);
		CHECK(kolo_zero_gradient(zero, A, ones) == 0 && kolo_zero_step(zero, NULL) == 0);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void a_gradient_without_a_use_since_the_last_update_is_refused(void **state)
{
	(void)state;
	t_processes(1, read_stale, NULL);
	t_processes(2, read_stale, NULL);
}

/* ---- Shared memory --------------------------------------------------------------------------- */

static void share_memory(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero *zero;
	float memory[TENSORS * N] = { 0 };

	for (int stage = 0; stage < 4; stage++) {
		struct kolo_zero_config c = config_of(stage, 1, 1);

		describe(tensors);
		for (int i = 0; i < TENSORS; i++)
			tensors[i].data = memory + i * N;
		CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
		kolo_zero_destroy(zero);
		/* One rank's mistake is told on all. */
		tensors[B].data = memory + B * N + (t->rank == t->nranks - 1);
		CHECK(says(kolo_zero_create(comm, &c, tensors, TENSORS, &zero), KOLO_EINVAL,
			   "tensors 'b' and 'c' share memory"));
		tensors[B].data = memory;
		CHECK(says(kolo_zero_create(comm, &c, tensors, TENSORS, &zero), KOLO_EINVAL,
			   "share memory: list it once; what is used in two places is one tensor"));
	}
	kolo_comm_destroy(comm);
}

static void tensors_that_share_memory_are_refused(void **state)
{
	(void)state;
	t_processes(2, share_memory, NULL);
}

/* ---- Missing gradients ----------------------------------------------------------------------- */

/* An update of two micro-steps on three ranks, of which the last has samples only in the second
 * one. All give a; none gives b, or all do if `good`; rank 1 gives c once less, or as often. */
static int update(struct kolo_zero *zero, int rank, bool good, struct kolo_zero_result *out)
{
	int rc = 0;

	for (int micro = 0; rc == 0 && micro < 2; micro++) {
		size_t samples = rank < 2 || micro == 1;

		CHECK(kolo_zero_forward(zero, samples) == 0);
		for (int i = 0; i < TENSORS; i++)
			CHECK(kolo_zero_use(zero, i, NULL) == 0 && kolo_zero_release(zero, i) == 0);
		CHECK(kolo_zero_backward(zero, 0) == 0);
		/* Stage 3 wants a call on all ranks where one rank makes it. */
		CHECK(kolo_zero_gradient(zero, A, samples ? ones : NULL) == 0);
		CHECK(!good || kolo_zero_gradient(zero, B, samples ? ones : NULL) == 0);
		if (good || rank != 1 || micro == 1)
			CHECK(kolo_zero_gradient(zero, C, samples ? ones : NULL) == 0);
		rc = kolo_zero_step(zero, out);
	}
	return rc;
}

static void miss(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int way = 0; way < 4 * 2; way++) {
		struct kolo_zero_config c = config_of(way % 4, way / 4, 2);
		struct kolo_zero_progress progress;
		struct kolo_zero_result r;
		struct kolo_zero *zero;
		float before[N], after[N];

		zero = create(comm, &c);
		CHECK(update(zero, t->rank, true, &r) == 0 && r.updated);
		CHECK(r.missing == 0 && r.partial == 0);
		CHECK(update(zero, t->rank, false, &r) == 0 && r.updated);
		CHECK(r.missing == 1 && r.partial == 1);
		kolo_zero_destroy(zero);

		c.strict = 1;
		zero = create(comm, &c);
		CHECK(kolo_zero_get(zero, A, before) == 0);
		CHECK(says(update(zero, t->rank, false, &r), KOLO_EINVAL,
			   "step 1: no rank gave a gradient of tensor 'b' (1 more"));
		CHECK(r.missing == 1 && r.partial == 1 && !r.updated && !r.skipped && r.step == 0);
		CHECK(kolo_zero_get(zero, A, after) == 0 && !memcmp(before, after, sizeof(after)));
		CHECK(update(zero, t->rank, true, &r) == 0 && r.updated && r.step == 1);
		kolo_zero_progress_get(zero, &progress);
		CHECK(progress.step == 1 && progress.skipped == 0 && progress.attempts == 2);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void missing_gradients_are_counted_and_refused_if_strict(void **state)
{
	(void)state;
	t_processes(3, miss, NULL);
}

/* c alone is not given by rank 1, so its rank is named. */
static void name_the_rank(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(1, 1, 1);
	struct kolo_zero *zero;

	c.strict = 1;
	zero = create(comm, &c);
	begin(zero, 1);
	for (int i = 0; i < FROZEN; i++)
		CHECK(i == C && t->rank == 1 ? true : give(zero, i, ones) == 0);
	CHECK(says(
		kolo_zero_step(zero, NULL), KOLO_EINVAL,
		"rank 1 gave fewer gradients of tensor 'c' than micro-steps with samples (0 more"));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void the_rank_without_a_gradient_is_named(void **state)
{
	(void)state;
	t_processes(3, name_the_rank, NULL);
}

/* Updates without a sample, and skipped ones, are attempts. */
static void try(struct t_rank *t)
{
	static const float nan_first[N] = { (float)__builtin_nan("") };
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(2, 1, 1);
	struct kolo_zero *zero = create(comm, &c);
	struct kolo_zero_progress p;
	struct kolo_zero_result r;

	for (int i = 0; i < 3; i++) {
		begin(zero, i != 1);
		CHECK(give(zero, A, i == 2 ? nan_first : ones) == 0);
		CHECK(kolo_zero_step(zero, &r) == 0);
		CHECK(r.updated == (i == 0) && r.skipped == (i == 2));
		/* Without a sample on any rank nothing is missing. */
		CHECK(r.missing == (i == 1 ? 0 : 2) && r.partial == 0);
	}
	kolo_zero_progress_get(zero, &p);
	CHECK(p.step == 1 && p.skipped == 1 && p.attempts == 3);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void progress_counts_attempts(void **state)
{
	(void)state;
	t_processes(2, try, NULL);
}

/* ---- Whose address --------------------------------------------------------------------------- */

static const struct kolo_zero *trapping;

static void say_whose(int signal, siginfo_t *info, void *context)
{
	int tensor = -1;
	const char *name = kolo_zero_tensor_at(trapping, info->si_addr, &tensor);

	(void)signal, (void)context;
	_exit(name && strcmp(name, "b") == 0 ? tensor : 99);
}

/* What a handler says of a touch, in a process of its own. */
static int whose(const struct kolo_zero *zero, const void *address)
{
	struct sigaction action = { .sa_sigaction = say_whose, .sa_flags = SA_SIGINFO };
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		trapping = zero;
		sigaction(SIGSEGV, &action, NULL);
		_exit(*(const volatile char *)address ? 98 : 97);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void find_tensors(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	float values[N] = { 0 };

	for (int stage = 0; stage < 4; stage++) {
		struct kolo_zero_config c = config_of(stage, 1, 1);
		struct kolo_zero_tensor tensors[TENSORS];
		struct kolo_zero *zero;
		const void *p;
		int tensor = -1;

		describe(tensors);
		tensors[C].data = values;
		CHECK(kolo_zero_create(comm, &c, tensors, TENSORS, &zero) == 0);
		CHECK(kolo_zero_use(zero, B, &p) == 0 && kolo_zero_release(zero, B) == 0);
		CHECK(strcmp(kolo_zero_tensor_at(zero, p, NULL), "b") == 0);
		CHECK(kolo_zero_tensor_at(zero, (const float *)p + N - 1, &tensor) && tensor == B);
		CHECK(!kolo_zero_tensor_at(zero, &tensor, NULL));
		CHECK(!kolo_zero_tensor_at(zero, NULL, NULL));
		CHECK((kolo_zero_tensor_at(zero, values, &tensor) != NULL) == (stage < 3));
		CHECK(tensor == (stage < 3 ? C : B));
		if (stage == 3 && !t_is_slow()) /* sanitizers have their own handler */
			CHECK(whose(zero, p) == B);
		kolo_zero_destroy(zero);
	}
	kolo_comm_destroy(comm);
}

static void a_handler_learns_which_tensor_was_touched(void **state)
{
	(void)state;
	t_processes(2, find_tensors, NULL);
}

/* ---- A stage 3 that saves nothing ------------------------------------------------------------ */

enum { LAYERS = 16, LAYER = 4096 };

struct heard {
	int n;
	char line[512];
};

static void hear(void *arg, enum kolo_log_level level, const char *line)
{
	struct heard *h = arg;

	CHECK(level == KOLO_LOG_WARN);
	strncpy(h->line, line, sizeof(h->line) - 1);
	h->n++;
}

static void warn(struct t_rank *t)
{
	static const struct {
		int stage, layers;
		size_t prefetch;
		const char *text; /* NULL: nothing is wrong */
	} ways[] = {
		{ 3, LAYERS, (size_t)4 << 20, "a smaller prefetch saves memory" },
		{ 3, LAYERS, LAYER, NULL },
		{ 3, 1, 0, "the largest tensor '0' has 4096" },
		{ 2, LAYERS, (size_t)4 << 20, NULL },
	};
	struct heard heard = { 0 };
	struct kolo_comm *comm =
		t_comm_with(t, (struct kolo_comm_attr){ .log = hear, .log_arg = &heard });
	struct kolo_zero_tensor tensors[LAYERS];
	char names[LAYERS][8];

	for (int i = 0; i < LAYERS; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { LAYER }, .ndims = 1, .type = KOLO_F32
		};
	}
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct kolo_zero_config c = config_of(ways[w].stage, 1, 1);
		struct kolo_zero_plan *plan;
		struct kolo_zero *zero;
		const char *text, *planned;

		c.prefetch = ways[w].prefetch;
		heard.n = 0;
		CHECK(kolo_zero_create(comm, &c, tensors, ways[w].layers, &zero) == 0);
		CHECK(kolo_zero_plan_create(&c, tensors, ways[w].layers, t->rank, t->nranks,
					    &plan) == 0);
		text = kolo_zero_warning(zero);
		planned = kolo_zero_plan_warning(plan);
		CHECK(!text == !ways[w].text && !planned == !ways[w].text);
		CHECK(!text || (strstr(text, ways[w].text) && strcmp(text, planned) == 0));
		CHECK(heard.n == (text && t->rank == 0));
		CHECK(!heard.n || strcmp(heard.line, text) == 0);
		kolo_zero_plan_destroy(plan);
		kolo_zero_destroy(zero);
	}
	CHECK(!kolo_zero_warning(NULL) && !kolo_zero_plan_warning(NULL));
	kolo_comm_destroy(comm);
}

static void a_stage_3_that_gathers_what_it_saves_is_warned_of(void **state)
{
	(void)state;
	t_processes(4, warn, NULL);
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Rank 1 leaves in the second update; the others learn in which step, and at which tensor. */
static void leave(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(3, 0, 1);
	struct kolo_zero *zero = create(comm, &c);

	begin(zero, 1);
	for (int i = 0; i < FROZEN; i++)
		CHECK(give(zero, i, ones) == 0);
	CHECK(kolo_zero_step(zero, NULL) == 0);
	begin(zero, 1);
	CHECK(give(zero, A, ones) == 0);
	if (t->rank == 1)
		_exit(0);
	CHECK(says(kolo_zero_use(zero, B, NULL), KOLO_EPEER, "step 2, tensor 'b': "));
	CHECK(says(kolo_zero_release(zero, A), KOLO_EPEER, "step 2, tensor 'b': "));
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void a_failure_names_step_and_tensor(void **state)
{
	(void)state;
	t_processes(2, leave, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_gradient_without_a_use_since_the_last_update_is_refused),
	cmocka_unit_test(tensors_that_share_memory_are_refused),
	cmocka_unit_test(missing_gradients_are_counted_and_refused_if_strict),
	cmocka_unit_test(the_rank_without_a_gradient_is_named),
	cmocka_unit_test(progress_counts_attempts),
	cmocka_unit_test(a_handler_learns_which_tensor_was_touched),
	cmocka_unit_test(a_stage_3_that_gathers_what_it_saves_is_warned_of),
	cmocka_unit_test(a_failure_names_step_and_tensor),
};

T_MAIN(tests)
