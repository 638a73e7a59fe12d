/* Prints the plan as text: a column for each stage, then the settings that fit. */
#include "tools/zeroplan/zeroplan.h"

#include <math.h>
#include <string.h>

/* ---- Numbers --------------------------------------------------------------------------------- */

enum { NUMBER = 16 };

/* In the unit that suits it; "-": none at all. Returns out. */
static const char *write_bytes(char out[NUMBER], double bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	int unit = 0;

	for (; bytes >= 1000 && unit < 5; unit++)
		bytes /= 1024;
	if (bytes == 0)
		snprintf(out, NUMBER, "-");
	else
		snprintf(out, NUMBER, "%.*f %s", unit ? 2 : 0, bytes, units[unit]);
	return out;
}

static void print_bytes(FILE *out, double bytes)
{
	char text[NUMBER];

	fprintf(out, " %10s", write_bytes(text, bytes));
}

/* NaN: not known. */
static void print_seconds(FILE *out, double seconds)
{
	if (isnan(seconds))
		fprintf(out, "%11s", "?");
	else if (seconds == 0)
		fprintf(out, "%11s", "-");
	else
		fprintf(out, seconds < 1 ? " %7.3g ms" : " %7.3g s ",
			seconds < 1 ? seconds * 1e3 : seconds);
}

/* ---- What is asked --------------------------------------------------------------------------- */

/* What several ranks for a replica mean for the one that is planned. */
static void print_grid(FILE *out, const struct run *r)
{
	const struct options *o = r->options;
	const struct grid *g = &r->grid;

	if (o->tensor * o->pipe > 1)
		fprintf(out,
			"  tensor %d x data %d x pipe %d; this is a rank of stage %d, with %d %s\n",
			o->tensor, g->replicas, o->pipe, g->stage,
			g->bounds[g->stage + 1] - g->bounds[g->stage],
			g->chunks > 1 ? "blocks in its first part" : "blocks");
	if (o->micros && o->pipe > 1)
		fprintf(out,
			"  %d micro-batches by %s, of which it keeps %d; bubble: %.1f %% of the time, %.3f of the busy time\n",
			o->micros, kolo_pipeline_schedule_name(o->schedule), g->kept,
			100 * g->bubble_share, g->bubble_ratio);
}

static void print_request(FILE *out, const struct report *r)
{
	const struct options *o = r->run->options;
	const struct kolo_zero_config *c = &r->run->config;
	const struct setting *s = &r->asked[r->nasked - 1].setting;
	char text[NUMBER], more[NUMBER];

	fprintf(out, "%s\n  %zu parameters in %d tensors of %s\n", r->run->tensors.title,
		r->run->tensors.parameters, r->run->tensors.n, kolo_type_name(r->run->type));
	fprintf(out, "  %d rank%s, %s, %d micro-step%s for each update\n", o->nranks,
		o->nranks > 1 ? "s" : "", kolo_zero_optimizer_name(c->optimizer), c->accumulation,
		c->accumulation > 1 ? "s" : "");
	print_grid(out, r->run);
	fprintf(out, "  optimizer offloaded: %s", plan_place_name(s->optimizer));
	if (s->optimizer != KOLO_ZERO_ON_DEVICE)
		fprintf(out, ", %g of it", s->ratio);
	fprintf(out, "; parameters: %s\n", plan_place_name(s->param));
	if (o->device_memory)
		fprintf(out, "  memory of a rank: %s on the device",
			write_bytes(text, (double)o->device_memory));
	else
		fprintf(out, "  memory of a rank: no device, the model is in the host's");
	fprintf(out, "; host: %s\n",
		o->host_memory ? write_bytes(more, (double)o->host_memory)
			       : "what this machine has");
}

static void print_title(FILE *out, const struct report *r, const char *title)
{
	fprintf(out, "\n%-28s", title);
	for (int i = 0; i < r->nasked; i++)
		fprintf(out, "    stage %d", r->asked[i].setting.stage);
	fprintf(out, "\n");
}

static void print_total(FILE *out, const struct report *r, const char *title, size_t offset)
{
	fprintf(out, "  %-25s ", title);
	for (int i = 0; i < r->nasked; i++)
		print_bytes(out, (double)*(const size_t *)((const char *)&r->asked[i] + offset));
	fprintf(out, "\n");
}

static void print_memory(FILE *out, const struct report *r)
{
	const struct kolo_zero_memory *kinds[MOST_KINDS];
	int n = plan_list_kinds(r, kinds);

	print_title(out, r, "Memory of a rank, at most");
	for (int k = 0; k < n; k++) {
		fprintf(out, "  %-18s %-6s ", kinds[k]->kind, kinds[k]->place);
		for (int i = 0; i < r->nasked; i++)
			print_bytes(out, (double)peak_of(&r->asked[i], kinds[k]));
		fprintf(out, "\n");
	}
	print_total(out, r, "all on the device",
		    offsetof(struct outcome, bytes[KOLO_ZERO_ON_DEVICE]));
	print_total(out, r, "all in host memory",
		    offsetof(struct outcome, bytes[KOLO_ZERO_ON_HOST]));
	print_total(out, r, "all in files", offsetof(struct outcome, bytes[KOLO_ZERO_ON_NVME]));
	print_total(out, r, "pinned", offsetof(struct outcome, pinned));
}

static void print_traffic(FILE *out, const struct report *r)
{
	print_title(out, r, "Bytes of a rank, an update");
	for (int k = 0; k < NTRAFFIC; k++) {
		fprintf(out, "  %-25s ", traffic_rows[k].text);
		for (int i = 0; i < r->nasked; i++)
			print_bytes(out, (double)traffic_at(&r->asked[i].moved, k));
		fprintf(out, "\n");
	}
}

static bool knows_time(const struct report *r)
{
	struct bandwidths b = r->run->bandwidths;

	for (int i = 0; i < NBANDWIDTHS; i++)
		if (*bandwidth_at(&b, i) > 0)
			return true;
	return false;
}

static void print_bandwidths(FILE *out, const struct report *r)
{
	struct bandwidths b = r->run->bandwidths;
	const char *between = "\n  --bandwidth ";

	for (int i = 0; i < NBANDWIDTHS; i++) {
		if (*bandwidth_at(&b, i) > 0) {
			fprintf(out, "%s%s=%.4g", between, bandwidth_names[i].name,
				*bandwidth_at(&b, i));
			between = ",";
		}
	}
	fprintf(out, "\n");
}

static void print_time(FILE *out, const struct report *r)
{
	print_title(out, r, "Time of an update");
	for (int k = 0; k < NSECONDS; k++) {
		fprintf(out, "  %-25s ", seconds_rows[k].text);
		for (int i = 0; i < r->nasked; i++)
			print_seconds(out, seconds_at(&r->asked[i].seconds, k));
		fprintf(out, "\n");
	}
}

static void print_answers(FILE *out, const struct report *r)
{
	fprintf(out, "\n%-28s", "Fits");
	for (int i = 0; i < r->nasked; i++)
		fprintf(out, "%11s", r->asked[i].fits ? "yes" : "no");
	fprintf(out, "\n");
	for (int i = 0; i < r->nasked; i++)
		if (!r->asked[i].fits)
			fprintf(out, "  stage %d: %s\n", r->asked[i].setting.stage,
				r->asked[i].reason);
	for (int i = 0; i < r->nasked; i++)
		if (*r->asked[i].warning)
			fprintf(out, "  note: %s\n", r->asked[i].warning);
}

/* ---- What fits ------------------------------------------------------------------------------- */

static void print_found(FILE *out, const struct outcome *o, bool timed)
{
	const struct setting *s = &o->setting;

	if (timed)
		print_seconds(out, o->seconds.total);
	fprintf(out, "  %5d  %-9s ", s->stage, plan_place_name(s->optimizer));
	if (s->optimizer == KOLO_ZERO_ON_DEVICE)
		fprintf(out, "%5s", "-");
	else
		fprintf(out, "%5g", s->ratio);
	fprintf(out, "  %-10s", plan_place_name(s->param));
	for (int p = 0; p < NPLACES; p++)
		print_bytes(out, (double)o->bytes[p]);
	fprintf(out, "\n");
	if (!o->fits)
		fprintf(out, "         no: %s\n", o->reason);
}

static void print_settings(FILE *out, const struct report *r)
{
	int n = r->run->options->all ? r->nfound : r->nfit;
	bool timed = knows_time(r);

	fprintf(out, "\n%d of %d settings fit%s%s\n", r->nfit, r->nfound,
		timed ? ", the fastest first" : "", n > r->nfit ? ", then those that do not" : "");
	if (n == 0) {
		fprintf(out,
			"  more ranks, more memory or a smaller model would help; --all says what is missing\n");
		return;
	}
	fprintf(out, "%s  %5s  %-9s %5s  %-10s %10s %10s %10s\n", timed ? "  an update" : "",
		"stage", "optimizer", "ratio", "parameters", "device", "host", "files");
	for (int i = 0; i < n; i++)
		print_found(out, &r->found[i], timed);
}

void print_text(FILE *out, const struct report *r)
{
	print_request(out, r);
	print_memory(out, r);
	print_traffic(out, r);
	if (knows_time(r)) {
		print_time(out, r);
		print_bandwidths(out, r);
	}
	print_answers(out, r);
	print_settings(out, r);
}
