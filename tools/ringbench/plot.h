/* ringbench --plot in three parts: measurements as curves (plot.c), those of earlier
 * files (against.c), and the picture (gnuplot.c). */
#ifndef TOOLS_RINGBENCH_PLOT_H
#define TOOLS_RINGBENCH_PLOT_H

#include "tools/ringbench/bench.h"

/* What makes curves differ, in the order in which titles and legends name it. */
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
	char *fields[NFIELDS]; /* as in the legend; "" if the measurement has no such field */
	struct point *points;  /* in the order of plot_add; ascending by bytes after plot_finish */
	size_t npoints;
	int style;  /* set by plot_finish; curves that differ in SOURCE and PLACE only share one */
	int source; /* set by plot_finish; a number for each SOURCE, in the order drawn */
};

struct plot {
	const struct options *options;
	struct curve *curves; /* ncurves of them; the first nearlier are from files */
	int ncurves, nearlier, nsources;
	int left_out; /* measurements without a bandwidth */
	bool no_memory;
};

/* Makes a plot without curves. 0, or EXIT_FAILED after a message. *out goes to plot_close in any
 * case. */
int plot_open(const struct options *o, struct plot **out);

/* Takes a measurement in, or counts it as left out. Without memory it sets no_memory. */
void plot_add(struct plot *p, const struct plot_row *row);

/* After the last plot_add: sorts the points and chooses the styles. Returns 0, or EXIT_FAILED after
 * a message if there is nothing to draw. */
int plot_finish(struct plot *p);
void plot_close(struct plot *p);

/* The i-th curve to draw: this run's first, then those of the files. */
const struct curve *plot_curve(const struct plot *p, int i);

/* Do curves that have the field differ in it? */
bool plot_varies(const struct plot *p, enum field field);

/* plot_label writes the fields that vary, for the legend. plot_title writes the others. What does
 * not fit into `room` is cut. */
void plot_label(const struct plot *p, const struct curve *c, char *out, size_t room);
void plot_title(const struct plot *p, char *out, size_t room);

/* against.c: adds the curves of all files of --against. Call it before any other
 * plot_add. Returns 0, or EXIT_FAILED after a message that names the file and the line. */
int against_read(struct plot *p);

/* gnuplot.c: draws into `out`, after plot_finish. 0, or EXIT_FAILED after a message. */
int plot_draw(const struct plot *p, FILE *out);

#endif
