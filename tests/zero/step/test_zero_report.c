/* What the engine says that it sends and holds, beside formulas and what the system counts:
 * exact. */
#include "tests/lib/t.h"
#include "kolo/kolo_zero.h"
#include "tests/zero/step/give.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 5 };

/* Multiples of 840, so that up to 8 ranks divide them. */
static const size_t shapes[TENSORS] = { 9, 1, 4, 1, 20 };

static size_t unit(void)
{
	const char *text =
		getenv("T_PARAMETERS"); /* about so many, for a model of a serious size */

	return text ? strtoull(text, NULL, 10) / 35 / 840 * 840 : 840;
}

static size_t all_elements(void)
{
	size_t n = 0;

	for (int i = 0; i < TENSORS; i++)
		n += shapes[i] * unit();
	return n;
}

static struct kolo_zero_config config_of(int stage, int accumulation, int overlap)
{
	struct kolo_zero_config c;

	kolo_zero_config_init(&c);
	c.stage = stage;
	c.accumulation = accumulation;
	c.overlap = overlap;
	return c;
}

static struct kolo_zero *create(struct kolo_comm *comm, const struct kolo_zero_config *c,
				enum kolo_type type)
{
	static const char *const names[TENSORS] = { "embedding", "a", "b", "c", "d" };
	struct kolo_zero_tensor tensors[TENSORS];
	struct kolo_zero *zero;

	for (int i = 0; i < TENSORS; i++)
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i], .shape = { shapes[i], unit() }, .ndims = 2, .type = type
		};
	CHECK(kolo_zero_create(comm, c, tensors, TENSORS, &zero) == 0);
	return zero;
}

static void use(struct kolo_zero *zero, int tensor)
{
	const void *p;

	CHECK(kolo_zero_use(zero, tensor, &p) == 0 && p);
}

static void release(struct kolo_zero *zero, int tensor)
{
	CHECK(kolo_zero_release(zero, tensor) == 0);
}

/* A micro-step of a model whose first tensor is also its last, and kept between its uses. */
static void micro_step(struct kolo_zero *zero, const void *gradient)
{
	CHECK(kolo_zero_forward(zero, 1) == 0);
	use(zero, 0);
	for (int i = 1; i < TENSORS; i++) {
		use(zero, i);
		release(zero, i);
	}
	use(zero, 0);
	release(zero, 0);
	release(zero, 0);
	CHECK(kolo_zero_backward(zero, 1) == 0);
	use(zero, 0);
	for (int i = TENSORS; i-- > 1;) {
		use(zero, i);
		CHECK(give(zero, i, gradient) == 0);
		release(zero, i);
	}
	use(zero, 0);
	CHECK(give(zero, 0, gradient) == 0);
	release(zero, 0);
	release(zero, 0);
	CHECK(kolo_zero_step(zero, NULL) == 0);
}

/* ---- Traffic --------------------------------------------------------------------------------- */

/* Times what P parameters are sent in an update, by the formulas of zero/README.md. */
static uint64_t formula(int stage, int accumulation)
{
	uint64_t a = (uint64_t)accumulation;

	return stage < 2 ? 2 : stage == 2 ? a + 1 : 3 * a;
}

static void count(struct kolo_comm *comm, int stage, int accumulation, int overlap,
		  enum kolo_type type)
{
	struct kolo_zero_config c = config_of(stage, accumulation, overlap);
	uint64_t nranks = (uint64_t)kolo_comm_nranks(comm), size = kolo_type_size(type);
	uint64_t once = all_elements() * size * (nranks - 1) / nranks;
	void *gradient = calloc(20 * unit(), size);
	struct kolo_zero_traffic traffic;
	struct kolo_zero *zero;

	c.reduce_bucket = c.gather_bucket = 5000 / 840 * 840;
	zero = create(comm, &c, type);
	for (int step = 1; step <= 3; step++) {
		for (int micro = 0; micro < accumulation; micro++)
			micro_step(zero, gradient);
		CHECK(kolo_zero_traffic_get(zero, &traffic) == 0);
		CHECK(traffic.sent_bytes == (uint64_t)step * formula(stage, accumulation) * once);
		CHECK(traffic.sent_bytes == traffic.gradient_bytes + traffic.parameter_bytes);
		CHECK(traffic.padding_bytes == 0 && (nranks == 1 || traffic.control_bytes > 0));
	}
	kolo_zero_destroy(zero);
	free(gradient);
}

static void count_all(struct t_rank *t)
{
	struct kolo_comm *comm =
		t_comm_with(t, (struct kolo_comm_attr){ .algorithm = "ring", .transport = t->arg });

	for (int way = 0; way < 4 * 2 * 2 * 2; way += t_is_slowest() ? 5 : 1)
		count(comm, way % 4, way / 4 % 2 ? 4 : 1, way / 8 % 2,
		      way / 16 ? KOLO_F16 : KOLO_F32);
	kolo_comm_destroy(comm);
}

static void bytes_sent_equal_the_formulas(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= 4; nranks++)
		t_processes(nranks, count_all, NULL);
	if (!t_is_slow() && t_has_transport("ofi"))
		t_processes(2, count_all, "ofi");
	t_threads(t_is_slow() ? 3 : 8, count_all, NULL);
}

/* Tensors that the ranks do not divide: what is more than the tensors' own is padding, and said. */
static void count_padding(struct t_rank *t)
{
	struct kolo_zero_tensor tensors[2] = {
		{ .name = "a", .shape = { 10 }, .ndims = 1, .type = KOLO_F32 },
		{ .name = "b", .shape = { 5 }, .ndims = 1, .type = KOLO_F32 }
	};
	struct kolo_comm *comm = t_comm_with(t, (struct kolo_comm_attr){ .algorithm = "ring" });
	struct kolo_zero_config c = config_of(2, 1, 0);
	struct kolo_zero_traffic traffic;
	struct kolo_zero *zero;
	float gradient[10] = { 0 };

	CHECK(kolo_zero_create(comm, &c, tensors, 2, &zero) == 0);
	CHECK(kolo_zero_forward(zero, 1) == 0 && kolo_zero_backward(zero, 0) == 0);
	CHECK(give(zero, 0, gradient) == 0 && give(zero, 1, gradient) == 0);
	CHECK(kolo_zero_step(zero, NULL) == 0);
	CHECK(kolo_zero_traffic_get(zero, &traffic) == 0);
	/* Four ranks have chunks of 3 and 2: a bucket of 20 elements for 15. */
	CHECK(traffic.sent_bytes == 2 * 3 * 5 * sizeof(float));
	CHECK(traffic.padding_bytes == 2 * 5 * sizeof(float) * 3 / 4);
	CHECK(traffic.sent_bytes == traffic.gradient_bytes + traffic.parameter_bytes);
	kolo_zero_destroy(zero);
	kolo_comm_destroy(comm);
}

static void padding_is_counted_apart(void **state)
{
	(void)state;
	t_processes(4, count_padding, NULL);
}

/* Three parameter servers' clients: rank 0 sends and receives as much as all of them. */
static void count_server(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);
	struct kolo_zero_config c = config_of(0, 1, 0);
	uint64_t all = all_elements() * sizeof(float);
	void *gradient = calloc(20 * unit(), sizeof(float));
	struct kolo_zero_traffic traffic;
	struct kolo_zero *zero;

	c.parameter_server = 1;
	zero = create(comm, &c, KOLO_F32);
	micro_step(zero, gradient);
	CHECK(kolo_zero_traffic_get(zero, &traffic) == 0);
	CHECK(traffic.sent_bytes == (t->rank ? all : 3 * all));
	CHECK(traffic.sent_bytes == traffic.gradient_bytes + traffic.parameter_bytes);
	kolo_zero_destroy(zero);
	free(gradient);
	kolo_comm_destroy(comm);
}

static void a_parameter_server_sends_for_all(void **state)
{
	(void)state;
	t_processes(4, count_server, NULL);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Bytes of a parameter by kind, of P of them over N ranks: parameters, gradients, masters,
 * moments. */
static void expected_bytes(int stage, int accumulation, size_t size, size_t nranks, size_t *out)
{
	size_t p = all_elements(), shard = p / nranks;

	out[0] = (stage == 3 ? shard : p) * size;
	out[1] = accumulation > 1 ? (stage < 2 ? p : shard) * 4 : (stage == 0 ? p : shard) * size;
	out[2] = size == 4 ? 0 : (stage ? shard : p) * 4;
	out[3] = (stage ? shard : p) * 8;
}

/* The most that was resident since the last call with `reset`, in bytes; 0 where the system does
 * not tell. */
static size_t most_resident(bool reset)
{
	FILE *f = fopen(reset ? "/proc/self/clear_refs" : "/proc/self/status", reset ? "w" : "r");
	char line[256];
	size_t kib = 0;

	if (f && reset)
		fputs("5", f);
	while (f && !reset && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %zu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

/* What is resident besides what the report says may be so much: communicators, pages half used,
 * tables. */
static void check_resident(size_t before, size_t report, const char *what)
{
	size_t growth = most_resident(false) - before, more = report / 20 + (16 << 20);

	if (t_is_slow())
		return;
	if (growth > report + more || growth + more < report)
		printf("# %s: %zu bytes resident more, %zu in the report\n", what, growth, report);
	CHECK(growth <= report + more && growth + more >= report);
}

static void hold(struct kolo_comm *comm, int stage, int accumulation, enum kolo_type type)
{
	struct kolo_zero_config c = config_of(stage, accumulation, 1);
	size_t size = kolo_type_size(type), expected[4], report = 0, before;
	void *gradient = malloc(20 * unit() * size);
	struct kolo_zero_memory m;
	struct kolo_zero *zero;
	char what[64];

	memset(gradient, 0, 20 * unit() * size);
	most_resident(true);
	before = most_resident(false);
	zero = create(comm, &c, type);
	for (int micro = 0; micro < 2 * accumulation; micro++)
		micro_step(zero, gradient);
	expected_bytes(stage, accumulation, size, (size_t)kolo_comm_nranks(comm), expected);
	for (int k = 0; kolo_zero_memory_get(zero, k, &m) == 0; k++) {
		CHECK(*m.kind && *m.formula);
		CHECK(k >= 4 || m.bytes == expected[k]);
		CHECK(k == 5 ? m.peak <= m.expected : m.bytes == m.expected);
		CHECK(k != 5 || ((m.bytes > 0) == (stage == 3) && m.bytes <= m.peak));
		report += m.peak;
	}
	snprintf(what, sizeof(what), "stage %d, %s, rank %d of %d", stage, kolo_type_name(type),
		 kolo_comm_rank(comm), kolo_comm_nranks(comm));
	check_resident(before, report, what);
	kolo_zero_destroy(zero);
	free(gradient);
}

static void hold_all(struct t_rank *t)
{
	struct kolo_comm *comm = t_comm(t);

	for (int way = 0; way < 4 * 2 * 2; way++)
		hold(comm, way % 4, way / 4 % 2 ? 2 : 1, way / 8 ? KOLO_BF16 : KOLO_F32);
	kolo_comm_destroy(comm);
}

static void memory_equals_the_formulas_and_what_is_resident(void **state)
{
	(void)state;
	for (int nranks = 1; nranks <= (t_is_slow() ? 4 : 8); nranks++)
		if (nranks == 3 || !t_is_slowest())
			t_processes(nranks, hold_all, NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(bytes_sent_equal_the_formulas),
	cmocka_unit_test(padding_is_counted_apart),
	cmocka_unit_test(a_parameter_server_sends_for_all),
	cmocka_unit_test(memory_equals_the_formulas_and_what_is_resident),
};

T_MAIN(tests)
