/* The picture of ringbench --plot, as a script for gnuplot. Bus bandwidth is on the left, algorithm
 * bandwidth on the right, with the same log axes and one legend. Everything is placed by the
 * pixel. */
#include "tools/common/gnuplot.h"
#include "tools/ringbench/plot.h"

#include <locale.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- Layout ---------------------------------------------------------------------------------- */

/* Pixels; LETTER is the mean width of one. */
enum {
	LEFT = 95,
	PANEL = 450,
	BETWEEN = 75,
	RIGHT = 25,
	TOP = 105,
	BOTTOM = 75,
	LEAST_HEIGHT = 400,
	ROWS = 32, /* of the legend */
	MOST_NAMED = 3 * ROWS,
	ENTRY_HEIGHT = 23,
	SAMPLE = 85, /* what gnuplot puts beside a legend's text */
	LETTER = 9,
	LABEL_ROOM = 100,
	TITLE_ROOM = 300,
};

struct layout {
	int width, height;
	int named;                     /* the first so many curves have a place in the legend */
	double xmin, xmax, ymin, ymax; /* of both panels */
	bool busbw;                    /* is there any? */
};

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

static void limit_label(const struct limit *limit, char *out, size_t room)
{
	snprintf(out, room, "%s, %g GB/s", limit->label, limit->gbs);
}

static void set_sizes(const struct plot *p, struct layout *l)
{
	int longest = 0, entries, columns;
	char text[LABEL_ROOM];

	l->named = p->ncurves < MOST_NAMED ? p->ncurves : MOST_NAMED;
	for (int i = 0; i < l->named; i++) {
		plot_label(p, plot_curve(p, i), text, sizeof(text));
		longest = max_int(longest, (int)strlen(text));
	}
	for (int i = 0; i < p->options->nlimits; i++) {
		limit_label(&p->options->limits[i], text, sizeof(text));
		longest = max_int(longest, (int)strlen(text));
	}
	entries = l->named + p->options->nlimits;
	columns = (entries + ROWS - 1) / ROWS;
	l->height = TOP + max_int(ENTRY_HEIGHT * (entries < ROWS ? entries : ROWS), LEAST_HEIGHT) +
		    BOTTOM;
	l->width = LEFT + PANEL + BETWEEN + PANEL + columns * (SAMPLE + longest * LETTER) + RIGHT;
}

/* The nearest of ..., 0.5, 1, 2, 5, 10, ... that is not above x. The factor forgives what log10 and
 * pow round. */
static double round_down(double x)
{
	double ten = pow(10, floor(log10(x * 1.000001)));

	return x * 1.000001 >= 5 * ten ? 5 * ten : x * 1.000001 >= 2 * ten ? 2 * ten : ten;
}

static double next_up(double x)
{
	return round_down(x * 2.5);
}

static void widen(double y, struct layout *l)
{
	l->ymin = fmin(l->ymin, y);
	l->ymax = fmax(l->ymax, y);
}

static void set_ranges(const struct plot *p, struct layout *l)
{
	double top;

	l->xmin = l->ymin = INFINITY;
	l->xmax = l->ymax = 0;
	for (int i = 0; i < p->ncurves; i++) {
		const struct curve *c = &p->curves[i];

		l->xmin = fmin(l->xmin, c->points[0].bytes);
		l->xmax = fmax(l->xmax, c->points[c->npoints - 1].bytes);
		for (size_t k = 0; k < c->npoints; k++) {
			widen(c->points[k].algbw, l);
			if (c->points[k].busbw > 0) {
				widen(c->points[k].busbw, l);
				l->busbw = true;
			}
		}
	}
	for (int i = 0; i < p->options->nlimits; i++)
		widen(p->options->limits[i].gbs, l);
	l->ymin = round_down(l->ymin);
	top = round_down(l->ymax);
	l->ymax = top * 1.000001 < l->ymax || top <= l->ymin ? next_up(top) : top;
}

/* ---- Script ---------------------------------------------------------------------------------- */

/* On a log axis there is no 0. */
static void write_number(FILE *out, double x)
{
	if (x > 0)
		fprintf(out, " %.9g", x);
	else
		fprintf(out, " NaN");
}

static void write_data(FILE *out, const struct plot *p)
{
	for (int i = 0; i < p->ncurves; i++) {
		const struct curve *c = plot_curve(p, i);

		fprintf(out, "$curve%d << end\n", i);
		for (size_t k = 0; k < c->npoints; k++) {
			fprintf(out, "%.0f", c->points[k].bytes);
			write_number(out, c->points[k].algbw);
			write_number(out, c->points[k].busbw);
			fputc('\n', out);
		}
		fprintf(out, "end\n");
	}
}

/* Powers of two, named; few enough to stand side by side. */
static void write_xtics(FILE *out, const struct layout *l)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	int first = (int)floor(log2(l->xmin)), last = (int)ceil(log2(l->xmax)), step;

	if (first == last) { /* one size */
		first -= first > 0;
		last++;
	}
	step = (last - first + 6) / 7;
	fprintf(out, "set xrange [%g:%g]\nset xtics (", ldexp(0.8, first), ldexp(1.25, last));
	for (int e = first; e <= last; e += step)
		fprintf(out, "%s'%d %s' %.0f", e > first ? ", " : "", 1 << e % 10, units[e / 10],
			ldexp(1, e));
	fprintf(out, ")\n");
}

/* 1, 2 and 5 of each decade; over many decades only the 1 has its number. The range is a little
 * wider, for gnuplot drops ticks that its logarithms round out of it. */
static void write_ytics(FILE *out, const struct layout *l)
{
	bool many = l->ymax / l->ymin > 1000;

	fprintf(out, "set yrange [%g:%g]\nset ytics (", l->ymin * 0.999, l->ymax * 1.001);
	for (double y = l->ymin; y <= l->ymax * 1.01; y = next_up(y)) {
		bool named = !many || fabs(log10(y) - round(log10(y))) < 0.01;

		fprintf(out, "%s'", y > l->ymin ? ", " : "");
		if (named)
			fprintf(out, "%g", y);
		fprintf(out, "' %g %d", y, !named);
	}
	fprintf(out, ")\n");
}

static void processor(char *out, size_t room)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	struct utsname machine;
	char line[256];
	int at = 0;

	uname(&machine);
	snprintf(out, room, "%s", machine.machine);
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "model name : %n", &at) == 0 && at > 0) {
			snprintf(out, room, "%.*s", (int)strcspn(line + at, "\n"), line + at);
			break;
		}
	}
	if (f)
		fclose(f);
}

static void write_titles(FILE *out, const struct plot *p, const struct layout *l)
{
	char text[TITLE_ROOM], model[TITLE_ROOM / 2], date[16], version[VERSION_TEXT];
	time_t now = time(NULL);

	plot_title(p, text, sizeof(text));
	fprintf(out, "set label 1 ");
	gnuplot_write_quoted(out, text);
	fprintf(out, " at screen %g,%g left font ',%d'\n", (double)LEFT / l->width,
		1 - 28.0 / l->height, gnuplot_title_size(p->options->plot));
	processor(model, sizeof(model));
	strftime(date, sizeof(date), "%Y-%m-%d", localtime(&now));
	snprintf(text, sizeof(text),
		 "%s%s, %ld processors; Kolo %s; %s; median of the slowest rank",
		 p->nearlier ? "this run: " : "", model, sysconf(_SC_NPROCESSORS_ONLN),
		 tool_version_text(version), date);
	fprintf(out, "set label 2 ");
	gnuplot_write_quoted(out, text);
	fprintf(out, " at screen %g,%g left textcolor '#555555'\n", (double)LEFT / l->width,
		1 - 52.0 / l->height);
}

/* Colours of Okabe and Ito's palette, which colour-blind people can distinguish. Its yellow is left
 * out: it is hard to see on white. */
static const char *const colours[] = { "#0072B2", "#D55E00", "#009E73", "#CC79A7",
				       "#56B4E9", "#E69F00", "#000000" };

/* gnuplot's numbers of a filled shape and the same one hollow: circle, square, triangle, diamond,
 * triangle on its tip, pentagon. Six, so that with seven colours 42 styles come before one
 * returns. */
static const int shapes[][2] = { { 7, 6 }, { 5, 4 }, { 9, 8 }, { 13, 12 }, { 11, 10 }, { 15, 14 } };

enum { NCOLOURS = sizeof(colours) / sizeof(*colours), NSHAPES = sizeof(shapes) / sizeof(*shapes) };

/* In place is hollow if out of place is drawn too, and dashed if there is one source. Each source
 * has its own dashes and shapes. So a curve has the same colour in each. */
static void write_style(FILE *out, const struct plot *p, const struct curve *c)
{
	bool hollow = plot_varies(p, PLACE) && strcmp(c->fields[PLACE], "in place") == 0;
	int dash = p->nsources > 1 ? c->source : hollow;
	int shape = p->nsources > 1 ? c->source + c->style / NCOLOURS * p->nsources : c->style;

	fprintf(out, "with linespoints lc rgb '%s' lw 1.8 dt %d pt %d",
		colours[c->style % NCOLOURS], dash + 1, shapes[shape % NSHAPES][hollow]);
}

/* The legend is that of the panel on the right, where every curve has a point. */
static void write_panel(FILE *out, const struct plot *p, const struct layout *l, bool right)
{
	const char *between = "plot ";
	char text[LABEL_ROOM];
	int left = right ? LEFT + PANEL + BETWEEN : LEFT;

	fprintf(out, "set lmargin at screen %g\nset rmargin at screen %g\n",
		(double)left / l->width, (double)(left + PANEL) / l->width);
	fprintf(out, "set title '%s' offset 0,-0.4\n",
		right ? "algbw: size / time" : "busbw: what a link carries");
	for (int i = 0; i < p->ncurves; i++) {
		plot_label(p, plot_curve(p, i), text, sizeof(text));
		fprintf(out, "%s$curve%d using 1:%d title ", between, i, right ? 2 : 3);
		gnuplot_write_quoted(out, i < l->named ? text : "");
		fputc(' ', out);
		write_style(out, p, plot_curve(p, i));
		between = ", \\\n\t";
	}
	for (int i = 0; i < p->options->nlimits; i++) {
		const struct limit *limit = &p->options->limits[i];

		/* Limits are of links: on the right they have their entry in the legend only. */
		fprintf(out, "%s", between);
		write_number(out, right ? 0 : limit->gbs);
		fprintf(out, " title ");
		limit_label(limit, text, sizeof(text));
		gnuplot_write_quoted(out, text);
		fprintf(out, " with lines lc rgb '#666666' lw 1.8 dt %d", i % 3 + 3);
	}
	fprintf(out, "\n");
}

static void write_script(FILE *out, const struct plot *p, const struct layout *l)
{
	gnuplot_write_terminal(out, p->options->plot, l->width, l->height);
	write_data(out, p);
	fprintf(out, "set logscale xy\n");
	write_xtics(out, l);
	write_ytics(out, l);
	fprintf(out,
		"set border 3 lc rgb '#555555'\nset tics nomirror scale 0.5,0.3\n"
		"set grid xtics ytics mytics lt 1 lw 0.7 lc rgb '#cccccc', lt 1 lw 0.5 lc rgb '#e8e8e8'\n"
		"set xlabel 'message size (of the whole vector)'\nset ylabel 'GB/s (10⁹ bytes per second)'\n"
		"set tmargin at screen %g\nset bmargin at screen %g\nset multiplot\nunset key\n",
		1 - (double)TOP / l->height, (double)BOTTOM / l->height);
	write_titles(out, p, l);
	if (!l->busbw)
		fprintf(out,
			"set label 3 'none: a single rank uses no link' at graph 0.5,0.5 center\n");
	write_panel(out, p, l, false);
	fprintf(out,
		"unset label\nunset ylabel\nset key at screen %g,%g left top Left reverse vertical maxrows %d samplen 3 "
		"noautotitle\n",
		(double)(LEFT + PANEL + BETWEEN + PANEL + 10) / l->width,
		1 - (double)TOP / l->height, ROWS);
	write_panel(out, p, l, true);
	fprintf(out, "unset multiplot\n");
}

/* ---- Picture --------------------------------------------------------------------------------- */

static void write_plot(FILE *script, const char *name, const void *arg)
{
	struct layout layout = { .busbw = false };
	const struct plot *p = arg;

	set_sizes(p, &layout);
	set_ranges(p, &layout);
	write_script(script, p, &layout);
	if (layout.named < p->ncurves)
		fprintf(stderr,
			"ringbench: --plot %s: the legend names the first %d of %d curves\n", name,
			layout.named, p->ncurves);
}

int plot_draw(const struct plot *p, FILE *out)
{
	setlocale(LC_CTYPE, "C.UTF-8"); /* for gnuplot_write_quoted */
	return gnuplot_run("ringbench", p->options->plot, write_plot, p, out);
}
