/* See stack.h. */
#include "tests/zero/offload/stack.h"

#include "tests/lib/t.h"

#include <stdlib.h>
#include <string.h>

/* More than a block in a rank's part, a bit more than some, less than one, and one element. */
static const size_t sizes[STACK_TENSORS] = { 40961, 8192, 1, 333, 17000, 5000 };
static const char *const names[STACK_TENSORS] = {
	"wide", "even", "one", "short", "long", "frozen"
};

size_t stack_size(int tensor)
{
	return sizes[tensor];
}

int stack_create(struct kolo_comm *comm, const struct kolo_zero_config *config, enum kolo_type type,
		 struct kolo_zero **out)
{
	struct kolo_zero_tensor tensors[STACK_TENSORS];
	float values[1024];
	int rc;

	for (int i = 0; i < STACK_TENSORS; i++)
		tensors[i] = (struct kolo_zero_tensor){
			.name = names[i],
			.shape = { sizes[i] },
			.ndims = 1,
			.type = type,
			.frozen = i == STACK_TENSORS - 1,
			.group = config->ngroups > 1 ? i % 2 : 0,
		};
	rc = kolo_zero_create(comm, config, tensors, STACK_TENSORS, out);
	for (int t = 0; rc == 0 && t < STACK_TENSORS; t++)
		for (size_t first = 0, n; rc == 0 && first < sizes[t]; first += n) {
			n = sizes[t] - first < 1024 ? sizes[t] - first : 1024;
			for (size_t i = 0; i < n; i++)
				values[i] = (float)((first + i) * 37 % 1009) / 1009.0f - 0.4f;
			rc = kolo_zero_set(*out, t, first, n, values);
		}
	return rc;
}

/* As many gradients as the tensor has elements, in host memory. */
static void make_gradient(const struct kolo_zero_config *config, int tensor, enum kolo_type type,
			  const void *values, int rank, int step, char *out)
{
	size_t size = kolo_type_size(type);
	float scale = config->loss_scale > 0 ? (float)config->loss_scale : 1;
	float x[256], g[256];

	for (size_t first = 0, n; first < sizes[tensor]; first += n) {
		n = sizes[tensor] - first < 256 ? sizes[tensor] - first : 256;
		CHECK(kolo_cast((const char *)values + first * size, type, x, KOLO_F32, n, 1) == 0);
		for (size_t i = 0; i < n; i++) {
			uint32_t noise = (uint32_t)(first + i) * 2654435761u +
					 (uint32_t)step * 40503u + (uint32_t)rank * 9176u +
					 (uint32_t)tensor * 77u;

			noise ^= noise >> 15;
			g[i] = scale * (0.25f * x[i] + (float)(noise % 2001) / 8000.0f - 0.125f);
		}
		CHECK(kolo_cast(g, KOLO_F32, out + first * size, type, n, 1) == 0);
	}
}

/* Where the model computes: memory for a gradient there, and of the host for what can't be computed
 * there. */
struct places {
	struct kolo_zero_device *device;
	bool on_host;
	void *gradient;
	char *values, *made; /* where not on_host */
};

static void open_places(const struct kolo_zero_config *config, struct places *out)
{
	size_t bytes = sizes[0] * sizeof(float);

	*out = (struct places){ .device = config->device };
	out->on_host = !out->device || out->device->ops->on_host;
	if (out->device)
		CHECK(kolo_zero_device_alloc(out->device, bytes, "the model's gradient",
					     &out->gradient) == 0);
	else
		out->gradient = malloc(bytes);
	out->values = malloc(bytes);
	out->made = malloc(bytes);
	CHECK(out->gradient && out->values && out->made);
}

static void close_places(struct places *p)
{
	if (p->device)
		kolo_zero_device_free(p->device, p->gradient, sizes[0] * sizeof(float));
	else
		free(p->gradient);
	free(p->values);
	free(p->made);
}

/* A tensor's values to the host, its gradient made there, and that to where the model computes. */
static void compute(struct places *p, const struct kolo_zero_config *config, int tensor,
		    enum kolo_type type, const void *values, int rank, int step)
{
	size_t bytes = sizes[tensor] * kolo_type_size(type);

	if (p->on_host) {
		make_gradient(config, tensor, type, values, rank, step, p->gradient);
		return;
	}
	CHECK(kolo_zero_device_copy(p->device, KOLO_ZERO_DOWN, p->values, values, bytes) == 0);
	make_gradient(config, tensor, type, p->values, rank, step, p->made);
	CHECK(kolo_zero_device_copy(p->device, KOLO_ZERO_UP, p->gradient, p->made, bytes) == 0);
}

int stack_step(struct kolo_zero *zero, const struct kolo_zero_config *config, enum kolo_type type,
	       int rank, int micro_step, struct kolo_zero_result *out)
{
	struct kolo_zero_result result;
	struct places places;
	const void *values;
	int rc = kolo_zero_forward(zero, 1);

	open_places(config, &places);
	for (int t = 0; rc == 0 && t < STACK_TENSORS; t++)
		if ((rc = kolo_zero_use(zero, t, &values)) == 0)
			rc = kolo_zero_release(zero, t);
	if (rc == 0)
		rc = kolo_zero_backward(zero, 1.0 / (1 + micro_step));
	for (int t = STACK_TENSORS; rc == 0 && t-- > 0;) {
		if ((rc = kolo_zero_use(zero, t, &values)) < 0)
			break;
		compute(&places, config, t, type, values, rank, micro_step);
		if (t < STACK_TENSORS - 1)
			rc = kolo_zero_gradient(zero, t, places.gradient);
		if (rc == 0)
			rc = kolo_zero_release(zero, t);
	}
	close_places(&places);
	return rc < 0 ? rc : kolo_zero_step(zero, out ? out : &result);
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	return hash;
}

uint64_t stack_hash(struct kolo_zero *zero, struct kolo_zero_device *device, enum kolo_type type)
{
	float *masters = malloc(sizes[0] * sizeof(*masters));
	bool on_host = !device || device->ops->on_host;
	uint64_t hash = 14695981039346656037u;
	const void *values;

	CHECK(masters);
	for (int t = 0; t < STACK_TENSORS; t++) {
		CHECK(kolo_zero_use(zero, t, &values) == 0);
		if (!on_host) {
			CHECK(kolo_zero_device_copy(device, KOLO_ZERO_DOWN, masters, values,
						    sizes[t] * kolo_type_size(type)) == 0);
			values = masters;
		}
		hash = mix(hash, values, sizes[t] * kolo_type_size(type));
		CHECK(kolo_zero_release(zero, t) == 0);
		CHECK(kolo_zero_get(zero, t, masters) == 0);
		hash = mix(hash, masters, sizes[t] * sizeof(*masters));
	}
	free(masters);
	return hash;
}
