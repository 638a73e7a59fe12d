/* Prints how much memory, traffic and time the run took, and for what. */
#include "tools/common/tool.h"
#include "tools/zerotrain/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static double in_mb(uint64_t bytes)
{
	return (double)bytes / 1e6;
}

/* The most that any rank has. */
static int most_of(struct run *r, uint64_t *bytes)
{
	return kolo_all_reduce(r->comm, bytes, bytes, 1, KOLO_U64, KOLO_MAX, NULL);
}

/* Of a kind of memory; place and formula may be "". */
static int print_bytes(struct run *r, const char *kind, const char *place, const char *formula,
		       uint64_t bytes)
{
	int rc = most_of(r, &bytes);

	if (rc == 0 && r->rank == 0 && bytes)
		printf("  %-22s %10.2f MB%s%s%s%s\n", kind, in_mb(bytes), *place ? "  " : "", place,
		       *formula ? "  " : "", formula);
	return rc;
}

/* Where the model has its own memory. */
static const char *place_of_model(const struct run *r)
{
	const struct device *d = &r->engine.device;

	return !r->engine.moves ? "" : d->zero && !d->copied ? "device" : "host";
}

/* Prints what the engine holds. If there are several places, it names them. */
static int print_kinds(struct run *r)
{
	struct kolo_zero_memory memory;
	char place[32] = "";
	int rc = 0;

	for (int i = 0; rc == 0 && kolo_zero_memory_get(r->engine.zero, i, &memory) == 0; i++) {
		if (r->engine.moves)
			snprintf(place, sizeof(place), "%s%s", memory.place,
				 memory.pinned ? ", pinned" : "");
		rc = print_bytes(r, memory.kind, place, memory.formula, memory.peak);
	}
	return rc;
}

/* Buffers between stages, and segments of the tensor group. */
static int print_boundaries(struct run *r)
{
	struct kolo_pipeline_report pipe = { 0 };
	struct kolo_tp_report group;
	int rc;

	if (r->parallel.executor)
		kolo_pipeline_report_get(r->parallel.executor, &pipe);
	kolo_tp_report_get(r->parallel.group, &group);
	rc = print_bytes(r, "between stages", "", "", pipe.buffer_bytes);
	return rc < 0 ? rc : print_bytes(r, "sums of segments", "", "", group.memory_bytes);
}

static int print_memory(struct run *r)
{
	const struct engine *e = &r->engine;
	const char *place = place_of_model(r);
	struct rusage usage;
	int rc;

	if (r->rank == 0)
		printf("memory, at most, of the rank that has most (P parameters of e bytes, N ranks):\n");
	if ((rc = print_kinds(r)) < 0 ||
	    (rc = print_bytes(r, "activations", place, "",
			      model_memory(r->model) - model_cache(r->model))) < 0 ||
	    (rc = print_bytes(r, "keys and values", place, "2 L C D K / H / T floats for each text",
			      model_cache(r->model))) < 0 ||
	    (rc = print_bytes(r, "tensors as floats", place, "", e->floats_len + e->halves_len)) <
		    0 ||
	    (rc = print_bytes(r, "the embedding's sums", place, "", e->sums_n * sizeof(*e->sums))) <
		    0 ||
	    (rc = print_boundaries(r)) < 0 ||
	    (rc = print_bytes(r, "a gradient", "device", "", e->up_len)) < 0)
		return rc;
	getrusage(RUSAGE_SELF, &usage);
	return print_bytes(r, "resident", "", "", (uint64_t)usage.ru_maxrss * 1024);
}

static int print_device(struct run *r)
{
	struct kolo_zero_device_info info;
	int rc;

	if (!r->engine.device.zero)
		return 0;
	kolo_zero_device_get(r->engine.device.zero, &info);
	if (r->rank == 0)
		printf("device %s %s, of the rank that has most:\n", info.kind, info.name);
	if ((rc = print_bytes(r, "budget", "", "", info.budget)) < 0 ||
	    (rc = print_bytes(r, "used", "", "", info.used)) < 0 ||
	    (rc = print_bytes(r, "used at most", "", "", info.peak)) < 0)
		return rc;
	return print_bytes(r, "pinned, of the host's", "", "", info.pinned);
}

/* Between device and host, and of files: by the engine, and of the device by the model's copies
 * too. */
static void print_moves(const struct run *r, const struct kolo_zero_traffic *t, long steps)
{
	struct kolo_zero_device_info info = { .down_bytes = t->down_bytes,
					      .up_bytes = t->up_bytes };

	if (r->engine.device.zero)
		kolo_zero_device_get(r->engine.device.zero, &info);
	printf("moved by rank 0 in %ld updates:\n", steps);
	printf("  %-22s %10.2f MB\n", "down to the host", in_mb(t->down_bytes));
	printf("  %-22s %10.2f MB\n", "up to the device", in_mb(t->up_bytes));
	if (r->engine.device.copied)
		printf("  %-22s %10.2f MB down, %.2f MB up\n", "with the model's",
		       in_mb(info.down_bytes), in_mb(info.up_bytes));
	printf("  %-22s %10.2f MB\n", "read from files", in_mb(t->read_bytes));
	printf("  %-22s %10.2f MB\n", "written to files", in_mb(t->written_bytes));
}

/* Of the tensor group, the context group and the pipeline. */
static void print_links(const struct run *r)
{
	const struct engine *e = &r->engine;
	const struct parallel *p = e->parallel;
	struct kolo_pipeline_report pipe;
	struct kolo_tp_report group;
	struct model_around around;

	kolo_tp_report_get(p->group, &group);
	if (p->place.tensor_size > 1)
		printf("  %-22s %10.2f MB in %" PRIu64 " sums and %" PRIu64
		       " gathers; a ring would send %.2f MB\n",
		       "tensor group", in_mb(group.sent_bytes), group.reductions, group.gathers,
		       in_mb(group.model_sent_bytes));
	model_around_get(r->model, &around);
	if (p->nparts > 1)
		printf("  %-22s %10.2f MB; it waited %.2f s for what came\n", "context group",
		       in_mb(around.sent_bytes), around.waited_us / 1e6);
	if (p->place.pipe_size == 1)
		return;
	kolo_pipeline_report_get(p->executor, &pipe);
	printf("  %-22s %10.2f MB\n", "pipeline", in_mb(pipe.sent_bytes));
	if (e->tied_bytes)
		printf("  %-22s %10.2f MB\n", "tied embedding", in_mb(e->tied_bytes));
}

static int print_traffic(struct run *r, long steps)
{
	struct kolo_zero_traffic t;
	int rc = kolo_zero_traffic_get(r->engine.zero, &t);

	if (rc < 0 || r->rank != 0)
		return rc;
	printf("sent by rank 0 in %ld updates:\n", steps);
	printf("  %-22s %10.2f MB in %" PRIu64 " reductions\n", "gradients",
	       in_mb(t.gradient_bytes), t.reductions);
	printf("  %-22s %10.2f MB in %" PRIu64 " gathers\n", "parameters", in_mb(t.parameter_bytes),
	       t.gathers);
	printf("  %-22s %10.2f MB\n", "control", in_mb(t.control_bytes));
	print_links(r);
	if (r->engine.moves)
		print_moves(r, &t, steps);
	return 0;
}

static void print_times(const struct run *r)
{
	struct kolo_zero_times t;

	kolo_zero_times_get(r->engine.zero, &t);
	printf("time of rank 0: %.2f s of training, validation and checkpoints; %.0f tokens/s of all ranks\n",
	       r->seconds, (double)r->tokens / fmax(r->seconds, 1e-6));
	if (r->sampled)
		printf("  %-22s %10.2f s: %" PRIu64 " tokens, %.0f tokens/s\n", "generating",
		       r->sampled_us / 1e6, r->sampled, (double)r->sampled / r->sampled_us * 1e6);
	/* To the engine a pipeline is one forward pass. */
	if (r->parallel.pipeline) {
		t.forward = r->forward_us / 1e6;
		t.backward = (r->backward_us + r->weights_us) / 1e6;
	}
	printf("  %-22s %10.2f s\n", "forward", t.forward);
	printf("  %-22s %10.2f s\n", "backward", t.backward);
	printf("  %-22s %10.2f s\n", "step", t.step);
	printf("  %-22s %10.2f s\n", "of it waiting to reduce", t.reduce);
	printf("  %-22s %10.2f s\n", "of it waiting to gather", t.gather);
	if (r->engine.moves)
		printf("  %-22s %10.2f s\n", "of it waiting to move", t.transfer);
}

/* ---- Bubbles --------------------------------------------------------------------------------- */

/* What the schedule has with the times that parts took on average, and messages that take none. */
static int estimate(struct run *r, double *sums, struct kolo_pipeline_figures *out)
{
	const struct parallel *p = &r->parallel;
	double parts = (double)r->updates * p->micros * p->chunks * r->nranks * 1e6;
	struct kolo_pipeline_times times = {
		.forward = sums[0] / parts,
		.backward_input = sums[1] / parts,
		.backward_weight = sums[2] / parts,
	};

	return kolo_pipeline_estimate(p->pipeline, &times, out);
}

/* Both definitions of the bubble, as measured and as the schedule has them. */
static int print_bubble(struct run *r)
{
	double sums[] = { r->forward_us, r->backward_us, r->weights_us }, us = r->piped_us, busy;
	struct kolo_pipeline_figures figures;
	int rc;

	if (r->parallel.place.pipe_size == 1)
		return 0;
	if ((rc = kolo_all_reduce(r->comm, sums, sums, 3, KOLO_F64, KOLO_SUM, NULL)) < 0 ||
	    (rc = kolo_all_reduce(r->comm, &us, &us, 1, KOLO_F64, KOLO_MAX, NULL)) < 0 ||
	    (rc = estimate(r, sums, &figures)) < 0 || r->rank != 0)
		return rc;
	busy = (sums[0] + sums[1] + sums[2]) / r->nranks / us;
	printf("bubble of the pipeline in %ld updates:\n", r->updates);
	printf("  %-22s %10.1f %% of stages' time; %.3f of the time in which they compute\n",
	       "measured", 100 * (1 - busy), 1 / busy - 1);
	printf("  %-22s %10.1f %%; %.3f\n", "of the schedule", 100 * figures.idle_share,
	       figures.bubble_ratio);
	return 0;
}

int print_report(struct run *r)
{
	int rc;

	if (r->rank == 0)
		printf("\n");
	if ((rc = print_memory(r)) < 0 || (rc = print_device(r)) < 0 ||
	    (rc = print_traffic(r, (long)r->trained.n)) < 0 || (rc = print_bubble(r)) < 0)
		return engine_failed(r->comm, "--report", rc);
	if (r->rank == 0)
		print_times(r);
	return EXIT_GOOD;
}
