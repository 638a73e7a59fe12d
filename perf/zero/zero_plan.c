/* What an engine takes in fact, beside what zeroplan says of it (plan.py): LAYERS tensors of WIDTH
 * x WIDTH, each used forward and back one after the other, with gradients that are always the same.
 * Rank 0 prints one line of JSON: bytes by kind and place at most, the peak of the device without
 * the gradient, what crossed in an update, where its time went, and the median of that.
 *
 * usage: ringrun -n N zero_plan LAYERS WIDTH [NAME=VALUE...]
 *        stage, type (f32, f16, bf16), steps, device (bytes; 0: host memory), optimizer and param
 * (none, cpu, nvme), ratio, path */
#include "perf/perf.h"

#include <kolo/kolo_zero_device.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LAYERS = 1000, MOST_STEPS = 100, WARM_UP = 2 };

struct trial {
	int layers, width, steps;
	size_t budget;
	enum kolo_type type;
	struct kolo_zero_config config;
	struct kolo_zero_device *device;
	struct kolo_comm *comm;
	struct kolo_zero *zero;
	void *gradient;
	size_t gradient_len;
};

_Noreturn static void fail(const char *what)
{
	fprintf(stderr, "zero_plan: %s\n", what);
	exit(1);
}

static void check(int rc)
{
	if (rc < 0)
		fail(kolo_last_error());
}

/* ---- What is asked --------------------------------------------------------------------------- */

static int find(const char *value, const char *const names[3])
{
	for (int i = 0; i < 3; i++)
		if (strcmp(value, names[i]) == 0)
			return i;
	fail(value);
}

static void take(struct trial *t, const char *name, const char *value)
{
	static const char *const places[] = { "none", "cpu", "nvme" }, *const types[] = { "f32",
											  "f16",
											  "bf16" };
	static const enum kolo_type of[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
	struct kolo_zero_config *c = &t->config;

	if (strcmp(name, "stage") == 0)
		c->stage = atoi(value);
	else if (strcmp(name, "type") == 0)
		t->type = of[find(value, types)];
	else if (strcmp(name, "steps") == 0)
		t->steps = atoi(value);
	else if (strcmp(name, "device") == 0)
		t->budget = strtoull(value, NULL, 10);
	else if (strcmp(name, "optimizer") == 0)
		c->offload_optimizer.place = (enum kolo_zero_place)find(value, places);
	else if (strcmp(name, "param") == 0)
		c->offload_param.place = (enum kolo_zero_place)find(value, places);
	else if (strcmp(name, "ratio") == 0)
		c->offload_optimizer.ratio = strtod(value, NULL);
	else if (strcmp(name, "path") == 0)
		c->offload_optimizer.path = c->offload_param.path = value;
	else
		fail(name);
}

static void parse(int argc, char **argv, struct trial *t)
{
	*t = (struct trial){ .steps = 9, .type = KOLO_F32 };
	kolo_zero_config_init(&t->config);
	t->config.micro_batch = 1;
	if (argc < 3)
		fail("want LAYERS WIDTH [NAME=VALUE...]");
	t->layers = atoi(argv[1]);
	t->width = atoi(argv[2]);
	for (int i = 3; i < argc; i++) {
		char *equals = strchr(argv[i], '=');

		if (!equals)
			fail(argv[i]);
		*equals = 0;
		take(t, argv[i], equals + 1);
	}
	if (t->layers < 1 || t->layers > MOST_LAYERS || t->width < 1 || t->steps < 1 ||
	    t->steps > MOST_STEPS)
		fail("LAYERS, WIDTH or steps is out of range");
}

/* ---- The engine ------------------------------------------------------------------------------ */

/* The gradient lies in the device's memory as a model's would, but is not what the plan counts. */
static void open_device(struct trial *t)
{
	size_t page = 4096;

	t->gradient_len = (size_t)t->width * (size_t)t->width * kolo_type_size(t->type);
	t->gradient_len = (t->gradient_len + page - 1) / page * page;
	if (!t->budget) {
		t->gradient = calloc(1, t->gradient_len);
		if (!t->gradient)
			fail("out of memory");
		return;
	}
	check(kolo_zero_arena_open(t->budget + t->gradient_len, 0, &t->device));
	check(kolo_zero_device_alloc(t->device, t->gradient_len, "a gradient", &t->gradient));
	t->config.device = t->device;
}

static void open_engine(struct trial *t)
{
	static struct kolo_zero_tensor tensors[MOST_LAYERS];
	static char names[MOST_LAYERS][16];

	for (int i = 0; i < t->layers; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		tensors[i] =
			(struct kolo_zero_tensor){ .name = names[i],
						   .shape = { (size_t)t->width, (size_t)t->width },
						   .ndims = 2,
						   .type = t->type };
	}
	check(kolo_zero_create(t->comm, &t->config, tensors, t->layers, &t->zero));
}

static void use(struct trial *t, int tensor, const void *gradient)
{
	check(kolo_zero_use(t->zero, tensor, NULL));
	if (gradient)
		check(kolo_zero_gradient(t->zero, tensor, gradient));
	check(kolo_zero_release(t->zero, tensor));
}

static void step(struct trial *t)
{
	check(kolo_zero_forward(t->zero, 1));
	for (int i = 0; i < t->layers; i++)
		use(t, i, NULL);
	check(kolo_zero_backward(t->zero, 0));
	for (int i = t->layers; i-- > 0;)
		use(t, i, t->gradient);
	check(kolo_zero_step(t->zero, NULL));
}

/* ---- What it took ---------------------------------------------------------------------------- */

static void print_memory(const struct trial *t)
{
	struct kolo_zero_device_info info = { 0 };
	struct kolo_zero_memory m;

	printf("\"memory\": [");
	for (int i = 0; kolo_zero_memory_get(t->zero, i, &m) == 0; i++)
		printf("%s{\"kind\": \"%s\", \"place\": \"%s\", \"peak\": %zu, \"pinned\": %zu}",
		       i ? ", " : "", m.kind, m.place, m.peak, m.pinned);
	if (t->device)
		kolo_zero_device_get(t->device, &info);
	printf("], \"device_peak\": %zu", t->device ? info.peak - t->gradient_len : 0);
}

/* Of one update: the difference of two counts. */
static void print_traffic(const struct kolo_zero_traffic *before,
			  const struct kolo_zero_traffic *after, int steps)
{
	static const struct {
		const char *name;
		size_t offset;
	} rows[] = {
		{ "gradient_bytes", offsetof(struct kolo_zero_traffic, gradient_bytes) },
		{ "parameter_bytes", offsetof(struct kolo_zero_traffic, parameter_bytes) },
		{ "down_bytes", offsetof(struct kolo_zero_traffic, down_bytes) },
		{ "up_bytes", offsetof(struct kolo_zero_traffic, up_bytes) },
		{ "read_bytes", offsetof(struct kolo_zero_traffic, read_bytes) },
		{ "written_bytes", offsetof(struct kolo_zero_traffic, written_bytes) },
	};

	printf(", \"traffic\": {");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t x = *(const uint64_t *)((const char *)before + rows[i].offset);
		uint64_t y = *(const uint64_t *)((const char *)after + rows[i].offset);

		printf("%s\"%s\": %" PRIu64, i ? ", " : "", rows[i].name,
		       (y - x) / (uint64_t)steps);
	}
	printf("}");
}

/* Where the time of an update went, by the engine's own account. */
static void print_times(const struct kolo_zero_times *x, const struct kolo_zero_times *y, int steps)
{
	printf(", \"times\": {\"forward\": %.6f, \"backward\": %.6f, \"step\": %.6f, \"reduce\": %.6f, "
	       "\"gather\": %.6f, \"update\": %.6f, \"transfer\": %.6f}",
	       (y->forward - x->forward) / steps, (y->backward - x->backward) / steps,
	       (y->step - x->step) / steps, (y->reduce - x->reduce) / steps,
	       (y->gather - x->gather) / steps, (y->update - x->update) / steps,
	       (y->transfer - x->transfer) / steps);
}

static void measure(struct trial *t)
{
	struct kolo_zero_times first, last;
	struct kolo_zero_traffic before, after;
	double seconds[MOST_STEPS];
	int64_t begin, end;

	for (int i = 0; i < WARM_UP; i++)
		step(t);
	check(kolo_zero_traffic_get(t->zero, &before));
	kolo_zero_times_get(t->zero, &first);
	begin = ko_now_ns();
	for (int i = 0; i < t->steps; i++, begin = end) {
		step(t);
		end = ko_now_ns();
		seconds[i] = (double)(end - begin) * 1e-9;
	}
	kolo_zero_times_get(t->zero, &last);
	check(kolo_zero_traffic_get(t->zero, &after));
	if (kolo_comm_rank(t->comm) > 0)
		return;
	printf("{\"seconds\": %.9f, ", perf_median(seconds, t->steps));
	print_memory(t);
	print_traffic(&before, &after, t->steps);
	print_times(&first, &last, t->steps);
	printf("}\n");
}

int main(int argc, char **argv)
{
	struct trial t;

	parse(argc, argv, &t);
	check(kolo_comm_create(NULL, &t.comm));
	open_device(&t);
	open_engine(&t);
	measure(&t);
	kolo_zero_destroy(t.zero);
	if (t.device)
		kolo_zero_device_free(t.device, t.gradient, t.gradient_len);
	else
		free(t.gradient);
	kolo_zero_device_close(t.device);
	kolo_comm_destroy(t.comm);
	return 0;
}
