/* Pipelines as data: idle time, buffers and messages by their formulas, DeepSpeed's order, and a
 * check that finds every fault. */
#include "kolo/kolo_parallel.h"
#include "tests/lib/t.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NSCHEDULES = KOLO_PIPELINE_ZB_H1 + 1, MOST_STAGES = 8 };

static void refuses(int rc, const char *text)
{
	if (rc != KOLO_EINVAL || !strstr(kolo_last_error(), text))
		printf("# gives %d: %s\n", rc, kolo_last_error());
	CHECK(rc == KOLO_EINVAL && strstr(kolo_last_error(), text));
}

/* ---- Formulas -------------------------------------------------------------------------------- */

static int count(const struct kolo_pipeline *p, int stages, enum kolo_action_type type)
{
	int sum = 0, n;

	for (int s = 0; s < stages; s++) {
		const struct kolo_action *list = kolo_pipeline_list(p, s, &n);

		for (int i = 0; i < n; i++)
			sum += list[i].type == type;
	}
	return sum;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static double idle_of(enum kolo_pipeline_schedule schedule, int stages,
		      const struct kolo_pipeline_times *t)
{
	double w = schedule == KOLO_PIPELINE_ZB_H1 ? -t->backward_weight : t->backward_weight;

	return (stages - 1) * (t->forward + t->backward_input + w);
}

static void check_buffers(const struct kolo_pipeline *p, enum kolo_pipeline_schedule schedule,
			  int stages, int micros)
{
	for (int s = 0; s < stages; s++) {
		int kept = kolo_pipeline_buffers(p, s);

		if (schedule == KOLO_PIPELINE_GPIPE)
			CHECK(kept == micros);
		if (schedule == KOLO_PIPELINE_1F1B)
			CHECK(kept == least(stages - s, micros));
		if (schedule == KOLO_PIPELINE_ZB_H1)
			CHECK(kept <= least(stages, micros));
	}
}

static void check_schedule(enum kolo_pipeline_schedule schedule, int stages, int chunks, int micros)
{
	static const struct kolo_pipeline_times times[] = { { 1, 1, 1, 0, { 0 } },
							    { 1, 1, 0.75, 0, { 0 } },
							    { 1, 1.25, 0.5, 0, { 0 } } };
	struct kolo_pipeline *p;
	int messages = stages > 1 ? (stages * chunks - 1) * micros : 0;

	CHECK(kolo_pipeline_create(schedule, stages, chunks, micros, &p) == 0);
	for (size_t k = 0; k < ARRAY_LEN(times); k++) {
		const struct kolo_pipeline_times *t = &times[k];
		struct kolo_pipeline_figures f;
		double each = t->forward + t->backward_input + t->backward_weight;
		double idle = idle_of(schedule, stages, t);

		CHECK(kolo_pipeline_estimate(p, t, &f) == 0);
		CHECK(f.busy == each * micros * chunks);
		/* With fewer micro-batches than stages ZB-H1 has nothing to fill the gaps with. */
		if (schedule != KOLO_PIPELINE_ZB_H1 || micros >= stages)
			CHECK(fabs(f.seconds - f.busy - idle) < 1e-9 * f.seconds);
		CHECK(fabs(f.idle_share - (f.seconds - f.busy) / f.seconds) < 1e-12);
		CHECK(fabs(f.bubble_ratio - (f.seconds - f.busy) / f.busy) < 1e-12);
	}
	check_buffers(p, schedule, stages, micros);
	for (int type = KOLO_ACTION_SEND_ACTIVATION; type <= KOLO_ACTION_RECV_GRADIENT; type++)
		CHECK(count(p, stages, (enum kolo_action_type)type) == messages);
	kolo_pipeline_destroy(p);
}

static void idle_time_buffers_and_messages_are_those_of_the_formulas(void **state)
{
	static const int micros[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };

	(void)state;
	for (int s = 0; s < NSCHEDULES; s++)
		for (int stages = 1; stages <= MOST_STAGES; stages++)
			for (size_t m = 0; m < ARRAY_LEN(micros); m++) {
				bool chunked = s == KOLO_PIPELINE_INTERLEAVED;

				for (int chunks = 1; chunks <= (chunked ? 3 : 1); chunks++)
					if (!chunked || micros[m] % stages == 0)
						check_schedule((enum kolo_pipeline_schedule)s,
							       stages, chunks, micros[m]);
			}
	check_schedule(KOLO_PIPELINE_1F1B, 64, 1, 128);
}

static void the_two_bubbles_are_told_apart(void **state)
{
	const struct kolo_pipeline_times times = { 1, 1, 0, 0, { 0 } };
	struct kolo_pipeline_figures f;
	struct kolo_pipeline *p;

	(void)state;
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 4, 1, 8, &p) == 0);
	CHECK(kolo_pipeline_estimate(p, &times, &f) == 0);
	CHECK(fabs(f.idle_share - 3.0 / 11) < 1e-12 && fabs(f.bubble_ratio - 3.0 / 8) < 1e-12);
	kolo_pipeline_destroy(p);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static void lists_are_printed(void **state)
{
	static const char *const want[] = {
		"0F0 {0SA0>1} {0RG0<1} 0F1 {0SA1>1} 0B0 {0RG1<1} 0B1",
		"{1RA0<0} 1F0 {1RA1<0} 1B0 {1SG0>0} 1F1 1B1 {1SG1>0}",
	};
	struct kolo_pipeline *p;
	char text[256], cut[12];

	(void)state;
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 2, 1, 2, &p) == 0);
	for (int s = 0; s < 2; s++) {
		CHECK(kolo_pipeline_text(p, s, text, sizeof(text)) == strlen(want[s]));
		CHECK(strcmp(text, want[s]) == 0);
	}
	CHECK(kolo_pipeline_text(p, 0, cut, sizeof(cut)) == strlen(want[0]));
	CHECK(strcmp(cut, "0F0 {0SA0>1") == 0);
	CHECK(kolo_pipeline_text(p, 2, text, sizeof(text)) == 0);
	CHECK(!kolo_pipeline_list(p, 2, NULL) && !kolo_pipeline_list(p, -1, NULL));
	CHECK(kolo_pipeline_buffers(p, 2) == 0);
	kolo_pipeline_destroy(p);
}

/* What DeepSpeed's TrainSchedule does for 4 micro-batches on 2 stages, with its buffers, without
 * its loads, reductions and step. */
static const char *const golden[] = {
	"F0 SA0 F1 RG0 SA1 B0 F0 RG1 SA0 B1 F1 RG0 SA1 B0 RG1 B1",
	"RA0 F0 B0 SG0 RA1 F1 B1 SG1 RA0 F0 B0 SG0 RA1 F1 B1 SG1",
};

/* Words of the golden text that begin with one of these letters, or that have two of them. */
static void pick(const char *text, bool messages, char channel, char *out)
{
	*out = 0;
	for (const char *at = text; *at; at += strcspn(at, " "), at += *at == ' ') {
		bool message = at[1] == 'A' || at[1] == 'G';

		if (message == messages && (!messages || at[1] == channel))
			strncat(out, at, strcspn(at, " ") + 1);
	}
	if (*out && out[strlen(out) - 1] == ' ')
		out[strlen(out) - 1] = 0;
}

/* The same of a list: micro-batches modulo DeepSpeed's number of buffers. */
static void pick_list(const struct kolo_action *list, int n, bool messages, int channel, char *out)
{
	static const char *const letters[] = { "F", "B", "I", "W", "SA", "RA", "SG", "RG" };
	enum { BUFFERS = 2 };

	*out = 0;
	for (int i = 0; i < n; i++) {
		bool message = list[i].peer >= 0;

		if (message == messages &&
		    (!messages || (list[i].type >= KOLO_ACTION_SEND_GRADIENT) == channel))
			sprintf(out + strlen(out), "%s%s%d", *out ? " " : "", letters[list[i].type],
				list[i].micro % BUFFERS);
	}
}

static void one_f_one_b_is_deepspeeds(void **state)
{
	struct kolo_pipeline *p;

	(void)state;
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 2, 1, 4, &p) == 0);
	for (int s = 0; s < 2; s++) {
		char want[256], got[256];
		int n;
		const struct kolo_action *list = kolo_pipeline_list(p, s, &n);

		for (int kind = 0; kind < 3; kind++) {
			pick(golden[s], kind > 0, kind == 1 ? 'A' : 'G', want);
			pick_list(list, n, kind > 0, kind == 2, got);
			if (strcmp(want, got) != 0)
				printf("# stage %d: %s\n#      not %s\n", s, got, want);
			CHECK(strcmp(want, got) == 0);
		}
	}
	kolo_pipeline_destroy(p);
}

/* ---- Lists of others ------------------------------------------------------------------------- */

/* Lists that may be changed. */
struct lists {
	int stages, chunks, micros;
	struct kolo_action *lists[MOST_STAGES];
	int n[MOST_STAGES];
};

static void copy_lists(const struct kolo_pipeline *p, int stages, int chunks, int micros,
		       struct lists *out)
{
	*out = (struct lists){ .stages = stages, .chunks = chunks, .micros = micros };
	for (int s = 0; s < stages; s++) {
		const struct kolo_action *list = kolo_pipeline_list(p, s, &out->n[s]);

		out->lists[s] = calloc((size_t)out->n[s] + 1, sizeof(*list));
		CHECK(out->lists[s]);
		memcpy(out->lists[s], list, (size_t)out->n[s] * sizeof(*list));
	}
}

static void free_lists(struct lists *l)
{
	for (int s = 0; s < l->stages; s++)
		free(l->lists[s]);
}

static int check_lists(const struct lists *l)
{
	const struct kolo_action *lists[MOST_STAGES];

	for (int s = 0; s < l->stages; s++)
		lists[s] = l->lists[s];
	return kolo_pipeline_check(l->stages, l->chunks, l->micros, lists, l->n);
}

/* 1F1B as a program with separate calls would do it: receive, compute, send, each until it is done;
 * fused: what is sent and what is received between two computations goes together. */
static void make_blocking(int stages, int micros, bool fused, struct lists *out)
{
	*out = (struct lists){ .stages = stages, .chunks = 1, .micros = micros };
	for (int s = 0; s < stages; s++) {
		int ahead = least(stages - 1 - s, micros), done[2] = { 0 }, n = 0, group = 0;
		struct kolo_action *list = calloc((size_t)(6 * micros), sizeof(*list));

		CHECK(list);
		for (int i = 0; i < 2 * micros; i++) {
			bool back = done[0] == micros ||
				    (done[0] > ahead && (done[0] - ahead - done[1]) > 0);
			int micro = done[back]++;
			struct kolo_action a = {
				.part = s, .micro = micro, .peer = -1, .group = -1
			};
			struct kolo_action message = { .part = s, .micro = micro };

			a.type = back ? KOLO_ACTION_BACKWARD : KOLO_ACTION_FORWARD;
			a.buffer = micro % (ahead + 1);
			message.waits = 1;
			if (back ? s < stages - 1 : s > 0) {
				message.type = back ? KOLO_ACTION_RECV_GRADIENT
						    : KOLO_ACTION_RECV_ACTIVATION;
				message.peer = back ? s + 1 : s - 1;
				message.group = group++;
				list[n++] = message;
			}
			list[n++] = a;
			if (back ? s > 0 : s < stages - 1) {
				message.type = back ? KOLO_ACTION_SEND_GRADIENT
						    : KOLO_ACTION_SEND_ACTIVATION;
				message.peer = back ? s - 1 : s + 1;
				message.group = group++;
				message.waits = !fused;
				list[n++] = message;
			}
		}
		out->lists[s] = list;
		out->n[s] = n;
	}
}

static void blocking_1f1b_is_a_deadlock_and_fused_pairs_are_not(void **state)
{
	static const int sizes[] = { 2, 3, 4, 8 };

	(void)state;
	for (size_t p = 0; p < ARRAY_LEN(sizes); p++)
		for (int micros = 1; micros <= 8; micros++)
			for (int fused = 0; fused < 2; fused++) {
				struct lists l;

				make_blocking(sizes[p], micros, fused, &l);
				if (fused || micros == 1)
					CHECK(check_lists(&l) == 0);
				else
					refuses(check_lists(&l), "deadlock: stage");
				free_lists(&l);
			}
}

/* Two messages in a group are told apart by their order alone. */
static void messages_that_arrive_in_another_order_are_refused(void **state)
{
	const struct kolo_action first[] = {
		{ KOLO_ACTION_FORWARD, 0, 0, 0, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_FORWARD, 0, 1, 1, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_SEND_ACTIVATION, 0, 0, 0, 1, 0, 0, { 0 } },
		{ KOLO_ACTION_SEND_ACTIVATION, 0, 1, 0, 1, 0, 0, { 0 } },
		{ KOLO_ACTION_RECV_GRADIENT, 0, 0, 0, 1, 1, 0, { 0 } },
		{ KOLO_ACTION_BACKWARD, 0, 0, 0, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_RECV_GRADIENT, 0, 1, 0, 1, 2, 0, { 0 } },
		{ KOLO_ACTION_BACKWARD, 0, 1, 1, -1, -1, 0, { 0 } },
	};
	const struct kolo_action second[] = {
		{ KOLO_ACTION_RECV_ACTIVATION, 1, 0, 0, 0, 0, 0, { 0 } },
		{ KOLO_ACTION_RECV_ACTIVATION, 1, 1, 0, 0, 0, 0, { 0 } },
		{ KOLO_ACTION_FORWARD, 1, 0, 0, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_BACKWARD, 1, 0, 0, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_SEND_GRADIENT, 1, 0, 0, 0, 1, 0, { 0 } },
		{ KOLO_ACTION_FORWARD, 1, 1, 0, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_BACKWARD, 1, 1, 0, -1, -1, 0, { 0 } },
		{ KOLO_ACTION_SEND_GRADIENT, 1, 1, 0, 0, 2, 0, { 0 } },
	};
	struct kolo_action turned[ARRAY_LEN(first)];
	const struct kolo_action *lists[] = { first, second };
	const int lengths[] = { ARRAY_LEN(first), ARRAY_LEN(second) };

	(void)state;
	CHECK(kolo_pipeline_check(2, 1, 2, lists, lengths) == 0);
	memcpy(turned, first, sizeof(turned));
	turned[2].micro = 1;
	turned[3].micro = 0;
	lists[0] = turned;
	refuses(kolo_pipeline_check(2, 1, 2, lists, lengths),
		"stage 0, action 3 (0SA0>1): stage 1 receives it in action 0, before what is sent earlier");
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void remove_action(struct lists *l, int s, int i)
{
	memmove(&l->lists[s][i], &l->lists[s][i + 1],
		(size_t)(l->n[s] - i - 1) * sizeof(*l->lists[s]));
	l->n[s]--;
}

static void swap(struct kolo_action *a, struct kolo_action *b)
{
	struct kolo_action kept = *a;

	*a = *b;
	*b = kept;
}

/* The action of this type, of a part and micro-batch, in a list; -1: none. */
static int find(const struct lists *l, int s, enum kolo_action_type type,
		const struct kolo_action *of)
{
	for (int i = 0; i < l->n[s]; i++)
		if (l->lists[s][i].type == type && l->lists[s][i].part == of->part &&
		    l->lists[s][i].micro == of->micro)
			return i;
	return -1;
}

/* Moves what comes last of two actions before the first one. */
static bool turn_round(struct lists *l, int s, int i, int k)
{
	if (i < 0 || k < 0)
		return false;
	swap(&l->lists[s][i], &l->lists[s][k]);
	return true;
}

static bool turn_round_work(struct lists *l, int s, int i)
{
	const struct kolo_action *a = &l->lists[s][i];
	int forward = find(l, s, KOLO_ACTION_FORWARD, a);
	int receive = find(l, s, KOLO_ACTION_RECV_ACTIVATION, a);
	int send = find(l, s, KOLO_ACTION_SEND_GRADIENT, a);
	int back = find(l, s, KOLO_ACTION_BACKWARD, a);

	if (back < 0)
		back = find(l, s, KOLO_ACTION_BACKWARD_INPUT, a);
	switch (a->micro % 3) {
	case 0: return turn_round(l, s, forward, back);
	case 1: return turn_round(l, s, receive, forward);
	default: return turn_round(l, s, back, send);
	}
}

/* Two sends of a queue, or two receives, in the other order: of neighbours in time, without what
 * they belong to. */
static bool turn_round_messages(struct lists *l, int s, int i)
{
	struct kolo_action *a = &l->lists[s][i];

	for (int k = i + 1; a->peer >= 0 && k < l->n[s]; k++)
		if (l->lists[s][k].type == a->type) {
			int micro = a->micro, part = a->part;

			a->micro = l->lists[s][k].micro;
			a->part = l->lists[s][k].part;
			l->lists[s][k].micro = micro;
			l->lists[s][k].part = part;
			return true;
		}
	return false;
}

/* Puts a fault in; false: this action can't have it. */
static bool spoil(struct lists *l, int kind, int s, int i, uint64_t *seed)
{
	struct kolo_action *a = &l->lists[s][i];
	int other = 1 + (int)(t_random(seed) % 5);

	switch (kind) {
	case 0: remove_action(l, s, i); return true;
	case 1: /* once more; calloc has left room for one */
		l->lists[s][l->n[s]++] = *a;
		return true;
	case 2: a->micro = (a->micro + other) % (l->micros + 1); return other % (l->micros + 1);
	case 3: a->part += t_random(seed) % 2 ? other : -other; return true;
	case 4: a->type = (enum kolo_action_type)((a->type + (unsigned)other) % 8); return true;
	case 5: a->peer += other; return true;
	case 6: a->buffer += l->micros; return true;
	case 7: a->group = -1 - (a->peer < 0) * other; return true;
	case 8: a->waits = 2 + other; return true;
	case 9: a->reserved[other % 2] = 1; return true;
	case 10: return turn_round_work(l, s, i);
	case 11: return turn_round_messages(l, s, i);
	case 12: /* the backward of another buffer than the forward */
		if (a->type != KOLO_ACTION_BACKWARD && a->type != KOLO_ACTION_BACKWARD_INPUT)
			return false;
		a->buffer = (a->buffer + 1) % l->micros;
		return l->micros > 1;
	default: /* a stage that is silent */ l->n[s] = 0; return true;
	}
}

static void the_check_refuses_10000_random_faults(void **state)
{
	enum { FAULTS = 10000, KINDS = 14 };
	int found[KINDS] = { 0 };
	uint64_t seed = t_seed();

	(void)state;
	for (int faults = 0; faults < FAULTS;) {
		enum kolo_pipeline_schedule schedule =
			(enum kolo_pipeline_schedule)(t_random(&seed) % NSCHEDULES);
		int stages = 1 + (int)(t_random(&seed) % 4), chunks = 1;
		int micros = stages * (1 + (int)(t_random(&seed) % 3));
		int kind = (int)(t_random(&seed) % KINDS), s, i;
		struct kolo_pipeline *p;
		struct lists l;

		if (schedule == KOLO_PIPELINE_INTERLEAVED)
			chunks = 1 + (int)(t_random(&seed) % 3);
		CHECK(kolo_pipeline_create(schedule, stages, chunks, micros, &p) == 0);
		copy_lists(p, stages, chunks, micros, &l);
		CHECK(check_lists(&l) == 0);
		s = (int)(t_random(&seed) % (uint64_t)stages);
		i = (int)(t_random(&seed) % (uint64_t)l.n[s]);
		if (spoil(&l, kind, s, i, &seed)) {
			int rc = check_lists(&l);
			char text[4096];

			kolo_pipeline_text(p, s, text, sizeof(text));
			if (rc != KOLO_EINVAL)
				printf("# fault %d at action %d of stage %d is not found: %s\n",
				       kind, i, s, text);
			CHECK(rc == KOLO_EINVAL && strstr(kolo_last_error(), "stage"));
			found[kind]++;
			faults++;
		}
		free_lists(&l);
		kolo_pipeline_destroy(p);
	}
	for (int k = 0; k < KINDS; k++)
		CHECK(found[k] > 20);
}

static void mistakes_are_told(void **state)
{
	const struct kolo_pipeline_times bad = { 1, -1, 1, 0, { 0 } }, good = { 1, 1, 1, 0, { 0 } };
	const struct kolo_pipeline_times huge = { 1e308, 1e308, 1, 0, { 0 } };
	const struct kolo_pipeline_times later = { 1, 1, 1, 0, { 1 } };
	const struct kolo_action *no_list = NULL;
	const int one = 1, less = -1;
	struct kolo_pipeline_figures f;
	struct kolo_pipeline *p;

	(void)state;
	refuses(kolo_pipeline_create(KOLO_PIPELINE_INTERLEAVED, 4, 2, 6, &p),
		"needs a multiple of 4 micro-batches for 4 stages, and there are 6");
	CHECK(!p);
	refuses(kolo_pipeline_create(KOLO_PIPELINE_1F1B, 4, 2, 8, &p),
		"the schedule 1f1b has one chunk on each stage, not 2");
	refuses(kolo_pipeline_create((enum kolo_pipeline_schedule)7, 1, 1, 1, &p),
		"no pipeline schedule 7");
	refuses(kolo_pipeline_create(KOLO_PIPELINE_GPIPE, 0, 1, 1, &p), "0 stages");
	refuses(kolo_pipeline_create(KOLO_PIPELINE_GPIPE, 1, 1, -3, &p), "-3 micro-batches");
	refuses(kolo_pipeline_create(KOLO_PIPELINE_GPIPE, 60000, 1, 60000, &p), "at most");
	refuses(kolo_pipeline_create(KOLO_PIPELINE_INTERLEAVED, 65536, 65536, 65536, &p),
		"at most");
	refuses(kolo_pipeline_create(KOLO_PIPELINE_GPIPE, 1, 1, 1, NULL), "without out");
	refuses(kolo_pipeline_from(1, 1, 1, NULL, NULL, &p), "without lists");
	refuses(kolo_pipeline_from(1, 1, 1, &no_list, &one, &p), "a list of 1 actions at NULL");
	refuses(kolo_pipeline_from(1, 1, 1, &no_list, &less, &p), "a list of -1 actions");
	CHECK(kolo_pipeline_create(KOLO_PIPELINE_GPIPE, 1, 1, 1, &p) == 0);
	refuses(kolo_pipeline_estimate(p, &bad, &f), "-1 is not finite and at least 0");
	refuses(kolo_pipeline_estimate(p, NULL, &f), "times of a pipeline");
	refuses(kolo_pipeline_estimate(p, &huge, &f), "together they are infinite");
	refuses(kolo_pipeline_estimate(p, &later, &f), "reserved is not zero");
	refuses(kolo_pipeline_estimate(NULL, &good, &f), "no pipeline");
	kolo_pipeline_destroy(p);
	kolo_pipeline_destroy(NULL);
	CHECK(strcmp(kolo_pipeline_schedule_name(KOLO_PIPELINE_ZB_H1), "zb-h1") == 0);
	CHECK(!kolo_pipeline_schedule_name((enum kolo_pipeline_schedule)NSCHEDULES));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(idle_time_buffers_and_messages_are_those_of_the_formulas),
	cmocka_unit_test(the_two_bubbles_are_told_apart),
	cmocka_unit_test(lists_are_printed),
	cmocka_unit_test(one_f_one_b_is_deepspeeds),
	cmocka_unit_test(blocking_1f1b_is_a_deadlock_and_fused_pairs_are_not),
	cmocka_unit_test(messages_that_arrive_in_another_order_are_refused),
	cmocka_unit_test(the_check_refuses_10000_random_faults),
	cmocka_unit_test(mistakes_are_told),
};

T_MAIN(tests)
