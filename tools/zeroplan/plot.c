/* Draws the picture of --plot: for each stage and place a bar of bytes, with the kinds stacked. */
#include "tools/common/gnuplot.h"
#include "tools/zeroplan/zeroplan.h"

#include <errno.h>
#include <locale.h>
#include <string.h>

enum { WIDTH = 1000, HEIGHT = 560 };

/* What is drawn: the names of kinds, and the places that anything is in. */
struct picture {
	const struct report *report;
	const char *kinds[MOST_KINDS];
	int nkinds;
	int places[NPLACES], nplaces;
	double unit; /* bytes */
	const char *unit_name;
};

static void look_at(const struct report *r, struct picture *p)
{
	const struct kolo_zero_memory *kinds[MOST_KINDS];
	int n = plan_list_kinds(r, kinds), k;

	*p = (struct picture){ .report = r, .unit = 1 << 20, .unit_name = "MiB" };
	for (int i = 0; i < n; i++) {
		for (k = 0; k < p->nkinds && strcmp(p->kinds[k], kinds[i]->kind) != 0; k++)
			;
		if (k == p->nkinds)
			p->kinds[p->nkinds++] = kinds[i]->kind;
	}
	for (int place = 0; place < NPLACES; place++) {
		size_t most = 0;

		for (int i = 0; i < r->nasked; i++)
			most = r->asked[i].bytes[place] > most ? r->asked[i].bytes[place] : most;
		if (most)
			p->places[p->nplaces++] = place;
		if (most >= 1 << 30) {
			p->unit = 1 << 30;
			p->unit_name = "GiB";
		}
	}
}

static double bytes_of(const struct outcome *o, const char *kind, const char *place)
{
	double bytes = 0;

	for (int m = 0; m < o->nkinds; m++)
		if (strcmp(o->memory[m].kind, kind) == 0 && strcmp(o->memory[m].place, place) == 0)
			bytes += (double)o->memory[m].peak;
	return bytes;
}

/* A row for each bar: its place, and its kinds. Stages are 1 apart. */
static void write_bars(FILE *out, const struct picture *p)
{
	const struct report *r = p->report;

	fprintf(out, "$bars << end\n");
	for (int i = 0; i < r->nasked; i++) {
		for (int j = 0; j < p->nplaces; j++) {
			fprintf(out, "%g", i + (j - (p->nplaces - 1) / 2.0) * 0.3);
			for (int k = 0; k < p->nkinds; k++)
				fprintf(out, " %.6g",
					bytes_of(&r->asked[i], p->kinds[k],
						 plan_place_words[p->places[j]]) /
						p->unit);
			fprintf(out, "\n");
		}
	}
	fprintf(out, "end\n");
}

static void write_names(FILE *out, const struct picture *p)
{
	const struct report *r = p->report;

	fprintf(out, "set xtics (");
	for (int i = 0; i < r->nasked; i++) {
		for (int j = 0; j < p->nplaces; j++)
			fprintf(out, "%s'%s' %g", i || j ? ", " : "",
				plan_place_words[p->places[j]],
				i + (j - (p->nplaces - 1) / 2.0) * 0.3);
	}
	fprintf(out, ")\n");
	for (int i = 0; i < r->nasked; i++)
		fprintf(out, "set label 'stage %d%s' at first %d, graph 0 offset 0,-2.2 center\n",
			r->asked[i].setting.stage, r->asked[i].fits ? "" : ": does not fit", i);
}

static void write_title(FILE *out, const char *name, const struct run *run)
{
	char text[256];

	snprintf(text, sizeof(text), "%s, %s, %s, %d rank%s", run->tensors.title,
		 kolo_type_name(run->type), kolo_zero_optimizer_name(run->config.optimizer),
		 run->options->nranks, run->options->nranks > 1 ? "s" : "");
	fprintf(out, "set title ");
	gnuplot_write_quoted(out, text);
	fprintf(out, " font ',%d'\n", gnuplot_title_size(name));
}

/* Kind k lies on the sum of those before it; what a device has is a line. */
static void write_stacks(FILE *out, const struct picture *p)
{
	static const char *const colours[] = { "#0072B2", "#D55E00", "#009E73", "#CC79A7",
					       "#E69F00", "#56B4E9", "#F0E442", "#7F7F7F",
					       "#8C564B", "#9467BD", "#17BECF", "#BCBD22" };
	enum { NCOLOURS = sizeof(colours) / sizeof(colours[0]) };
	double budget = (double)p->report->run->options->device_memory / p->unit;

	fprintf(out, "plot ");
	for (int k = p->nkinds; k-- > 0;) {
		fprintf(out, "$bars using 1:(sum [c=2:%d] column(c)) title ", k + 2);
		gnuplot_write_quoted(out, p->kinds[k]);
		fprintf(out, " with boxes fs solid 1 noborder lc rgb '%s'%s", colours[k % NCOLOURS],
			k > 0 ? ", \\\n\t" : "");
	}
	if (budget > 0)
		fprintf(out,
			", \\\n\t%.6g title 'device memory' with lines lw 2 dt 2 lc rgb '#555555'",
			budget);
	fprintf(out, "\n");
}

static void write_plot(FILE *out, const char *name, const void *arg)
{
	struct picture p;

	look_at(arg, &p);
	gnuplot_write_terminal(out, name, WIDTH, HEIGHT);
	write_bars(out, &p);
	write_title(out, name, p.report->run);
	write_names(out, &p);
	fprintf(out,
		"set border 3 lc rgb '#555555'\nset tics nomirror scale 0.5,0.3\nset boxwidth 0.26\n"
		"set grid y lt 1 lw 0.7 lc rgb '#cccccc'\nset xrange [-0.6:%d.6]\nset yrange [0:*]\n"
		"set bmargin 4\nset ylabel '%s of a rank, at most'\nset key outside right top\n",
		p.report->nasked - 1, p.unit_name);
	write_stacks(out, &p);
}

int draw_plan(const struct report *r)
{
	const char *name = r->run->options->plot;
	FILE *picture = fopen(name, "wb");
	int rc;

	if (!picture) {
		fprintf(stderr, "zeroplan: --plot %s: opening it: %s\n", name, strerror(errno));
		return EXIT_FAILED;
	}
	setlocale(LC_CTYPE, "C.UTF-8"); /* for gnuplot_write_quoted */
	rc = gnuplot_run("zeroplan", name, write_plot, r, picture);
	if (fclose(picture) != 0 && rc == EXIT_GOOD) {
		fprintf(stderr, "zeroplan: --plot %s: writing it: %s\n", name, strerror(errno));
		rc = EXIT_FAILED;
	}
	return rc;
}
