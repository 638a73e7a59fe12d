/* The rows that all ways to show a plan share. */
#include "tools/zeroplan/zeroplan.h"

#include <string.h>

const struct row traffic_rows[NTRAFFIC] = {
	{ "gradients sent", "gradient_bytes", offsetof(struct moved, engine.gradient_bytes) },
	{ "parameters sent", "parameter_bytes", offsetof(struct moved, engine.parameter_bytes) },
	{ "in the tensor group", "tensor_bytes", offsetof(struct moved, tensor_bytes) },
	{ "to other stages", "pipe_bytes", offsetof(struct moved, pipe_bytes) },
	{ "from device to host", "down_bytes", offsetof(struct moved, engine.down_bytes) },
	{ "from host to device", "up_bytes", offsetof(struct moved, engine.up_bytes) },
	{ "read from files", "read_bytes", offsetof(struct moved, engine.read_bytes) },
	{ "written to files", "written_bytes", offsetof(struct moved, engine.written_bytes) },
};

const struct row seconds_rows[NSECONDS] = {
	{ "the model", "compute", offsetof(struct seconds, compute) },
	{ "bubble of the pipeline", "bubble", offsetof(struct seconds, bubble) },
	{ "in the tensor group", "tensor", offsetof(struct seconds, tensor) },
	{ "to other stages", "pipe", offsetof(struct seconds, pipe) },
	{ "gradients in buckets", "fill", offsetof(struct seconds, fill) },
	{ "parameters in buckets", "unpack", offsetof(struct seconds, unpack) },
	{ "sending gradients", "reduce", offsetof(struct seconds, reduce) },
	{ "sending parameters", "gather", offsetof(struct seconds, gather) },
	{ "from device to host", "down", offsetof(struct seconds, down) },
	{ "from host to device", "up", offsetof(struct seconds, up) },
	{ "the optimizer", "update", offsetof(struct seconds, update) },
	{ "the optimizer on the device", "home", offsetof(struct seconds, home) },
	{ "files", "files", offsetof(struct seconds, files) },
	{ "all, some side by side", "total", offsetof(struct seconds, total) },
};

static bool is_same(const struct kolo_zero_memory *a, const struct kolo_zero_memory *b)
{
	return strcmp(a->kind, b->kind) == 0 && strcmp(a->place, b->place) == 0;
}

int plan_list_kinds(const struct report *r, const struct kolo_zero_memory *out[MOST_KINDS])
{
	int n = 0, k;

	for (int i = 0; i < r->nasked; i++) {
		for (int m = 0; m < r->asked[i].nkinds; m++) {
			const struct kolo_zero_memory *kind = &r->asked[i].memory[m];

			for (k = 0; k < n && !is_same(out[k], kind); k++)
				;
			if (k == n && n < MOST_KINDS && kind->peak)
				out[n++] = kind;
		}
	}
	return n;
}

size_t peak_of(const struct outcome *o, const struct kolo_zero_memory *kind)
{
	for (int m = 0; m < o->nkinds; m++)
		if (is_same(&o->memory[m], kind))
			return o->memory[m].peak;
	return 0;
}
