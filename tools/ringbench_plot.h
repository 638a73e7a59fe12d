/* ringbench --plot: measurements as curves (ringbench_plot.c), those of earlier files (ringbench_against.c), and the
 * picture (ringbench_gnuplot.c). */
#ifndef RINGBENCH_PLOT_H
#define RINGBENCH_PLOT_H

#include "ringbench.h"

/* What tells one curve from another, in the order in which titles and legends name it. */
enum field { SOURCE, COLLECTIVE_NAME, TYPE, OP, ROOT, PLACE, RANKS, LINK, METHOD, MEMORY, NFIELDS };

/* One measurement, named as in JSON. Bandwidths in GB/s; 0: none. */
struct plot_row {
	const char *source; /* what the legend calls its file, or "this run" */
	const char *collective, *type, *op, *transport, *algorithm, *memory;
	int root, ranks;
	bool in_place;
	double bytes, algbw, busbw;
};

struct point {
	double bytes, algbw, busbw; /* algbw > 0 */
};

struct curve {
	char *fields[NFIELDS]; /* as the legend says them; "" where the measurement has no such thing */
	struct point *points;  /* in the order of plot_add; ascending by bytes after plot_finish */
	size_t npoints;
	int style;  /* set by plot_draw; curves that differ in SOURCE and PLACE only share one */
	int source; /* likewise; a number for each SOURCE, in the order drawn */
};

struct plot {
	const struct options *options;
	struct curve *curves; /* ncurves of them; the first nearlier are from files */
	int ncurves, nearlier, nsources;
	int left_out; /* measurements without a bandwidth */
	bool no_memory;
};

/* Rank 0, before anything is measured: reads the earlier files and looks for gnuplot. 0, or EXIT_FAILED after a
 * message. *out goes to plot_close in any case. */
int plot_open(const struct options *o, struct plot **out);

/* Takes a measurement in, or counts it as left out. Without memory it sets no_memory. */
void plot_add(struct plot *p, const struct plot_row *row);

/* Draws into `out`; after the last plot_add. 0, or EXIT_FAILED after a message. */
int plot_draw(struct plot *p, FILE *out);
void plot_close(struct plot *p);

/* The i-th curve to draw: this run's first, then those of the files. */
const struct curve *plot_curve(const struct plot *p, int i);

/* Do curves that have the field differ in it? */
bool plot_varies(const struct plot *p, enum field field);

/* The fields that vary, for the legend; those that don't, for the title. What is too long for `room` is cut. */
void plot_label(const struct plot *p, const struct curve *c, char *out, size_t room);
void plot_title(const struct plot *p, char *out, size_t room);

/* Adds what `ringbench --json name` wrote, as `source`. 0, or EXIT_FAILED after a message that names the line. */
int against_read(struct plot *p, const char *name, const char *source);

/* 0, or EXIT_FAILED after a message. */
int draw_plot(const struct plot *p, FILE *out);

#endif
