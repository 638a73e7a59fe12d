/* Prints everything as one JSON object. tools/zeroplan/README.md lists its fields. */
#include "tools/common/json.h"
#include "tools/zeroplan/zeroplan.h"

#include <inttypes.h>
#include <math.h>

/* null: not known. */
static void put_number(FILE *out, const char *name, double x, bool known)
{
	if (known)
		fprintf(out, "\"%s\": %.17g", name, x);
	else
		fprintf(out, "\"%s\": null", name);
}

static void put_field(FILE *out, const char *name, const char *value)
{
	fprintf(out, "\"%s\": ", name);
	tool_put_json_text(out, value);
}

static void put_request(FILE *out, const struct report *r)
{
	const struct options *o = r->run->options;
	const struct kolo_zero_config *c = &r->run->config;
	struct bandwidths b = r->run->bandwidths;

	fprintf(out, " ");
	put_field(out, "model", r->run->tensors.title);
	fprintf(out, ", \"parameters\": %zu, \"tensors\": %d,\n ", r->run->tensors.parameters,
		r->run->tensors.n);
	fprintf(out, "\"ranks\": %d, \"accumulation\": %d, ", o->nranks, c->accumulation);
	fprintf(out,
		"\"tensor\": %d, \"data\": %d, \"pipe\": %d, \"pipe_stage\": %d, \"micro_batches\": %d, \"kept\": %d,\n ",
		o->tensor, r->run->grid.replicas, o->pipe, r->run->grid.stage, o->micros,
		r->run->grid.kept);
	fprintf(out, "\"bubble_share\": %.17g, \"bubble_ratio\": %.17g,\n ",
		r->run->grid.bubble_share, r->run->grid.bubble_ratio);
	put_field(out, "type", kolo_type_name(r->run->type));
	fprintf(out, ", ");
	put_field(out, "optimizer", kolo_zero_optimizer_name(c->optimizer));
	fprintf(out, ",\n ");
	put_number(out, "device_memory", (double)o->device_memory, o->device_memory > 0);
	fprintf(out, ", ");
	put_number(out, "host_memory", (double)o->host_memory, o->host_memory > 0);
	fprintf(out, ",\n \"bandwidth\": {");
	for (int i = 0; i < NBANDWIDTHS; i++) {
		fprintf(out, "%s", i ? ", " : "");
		put_number(out, bandwidth_names[i].name, *bandwidth_at(&b, i),
			   *bandwidth_at(&b, i) > 0);
	}
	fprintf(out, "}");
}

static void put_memory(FILE *out, const struct outcome *o)
{
	fprintf(out, ",\n   \"memory\": [");
	for (int i = 0; i < o->nkinds; i++) {
		const struct kolo_zero_memory *m = &o->memory[i];

		fprintf(out, "%s\n    {", i ? "," : "");
		put_field(out, "kind", m->kind);
		fprintf(out, ", ");
		put_field(out, "place", m->place);
		fprintf(out, ", \"bytes\": %zu, \"peak\": %zu, \"pinned\": %zu, ", m->bytes,
			m->peak, m->pinned);
		put_field(out, "formula", m->formula);
		fprintf(out, "}");
	}
	fprintf(out, "]");
}

static void put_outcome(FILE *out, const struct outcome *o)
{
	const struct setting *s = &o->setting;

	fprintf(out,
		"{\"stage\": %d, \"offload_optimizer\": \"%s\", \"ratio\": %g, \"offload_param\": \"%s\", ",
		s->stage, plan_place_name(s->optimizer), s->ratio, plan_place_name(s->param));
	fprintf(out, "\"fits\": %s, ", o->fits ? "true" : "false");
	put_field(out, "reason", o->reason);
	fprintf(out, ", ");
	put_field(out, "warning", o->warning);
	fprintf(out, ",\n   ");
	for (int p = 0; p < NPLACES; p++)
		fprintf(out, "\"%s_bytes\": %zu, ", plan_place_words[p], o->bytes[p]);
	fprintf(out, "\"pinned_bytes\": %zu,\n   ", o->pinned);
	put_number(out, "seconds", o->seconds.total, !isnan(o->seconds.total));
}

static void put_asked(FILE *out, const struct outcome *o)
{
	put_outcome(out, o);
	put_memory(out, o);
	fprintf(out, ",\n   \"traffic\": {");
	for (int i = 0; i < NTRAFFIC; i++)
		fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", traffic_rows[i].name,
			traffic_at(&o->moved, i));
	fprintf(out, "},\n   \"time\": {");
	for (int i = 0; i < NSECONDS; i++) {
		double x = seconds_at(&o->seconds, i);

		fprintf(out, "%s", i ? ", " : "");
		put_number(out, seconds_rows[i].name, x, !isnan(x));
	}
	fprintf(out, "}}");
}

void print_json(FILE *out, const struct report *r)
{
	int n = r->run->options->all ? r->nfound : r->nfit;

	fprintf(out, "{\n");
	put_request(out, r);
	fprintf(out, ",\n \"asked\": [");
	for (int i = 0; i < r->nasked; i++) {
		fprintf(out, "%s\n  ", i ? "," : "");
		put_asked(out, &r->asked[i]);
	}
	fprintf(out, "],\n \"settings\": [");
	for (int i = 0; i < n; i++) {
		fprintf(out, "%s\n  ", i ? "," : "");
		put_outcome(out, &r->found[i]);
		fprintf(out, "}");
	}
	fprintf(out, "]\n}\n");
}
