/* Draws the picture of --plot: losses over steps. */
#include "tools/common/gnuplot.h"
#include "tools/common/tool.h"
#include "tools/zerotrain/run.h"

#include <errno.h>
#include <locale.h>
#include <string.h>

enum { WIDTH = 900, HEIGHT = 560 };

int open_plot(struct run *r)
{
	const char *name = r->options->plot;

	if (!gnuplot_draws(name)) {
		fprintf(stderr, "zerotrain: --plot %s: must be a name that ends in .svg or .png\n",
			name);
		return EXIT_USAGE;
	}
	if (gnuplot_look("zerotrain", name))
		return EXIT_FAILED;
	r->picture = fopen(name, "wb");
	if (r->picture)
		return EXIT_GOOD;
	fprintf(stderr, "zerotrain: --plot %s: opening it: %s\n", name, strerror(errno));
	return EXIT_FAILED;
}

static void write_losses(FILE *out, const char *name, const struct losses *l)
{
	fprintf(out, "$%s << end\n", name);
	for (size_t i = 0; i < l->n; i++)
		fprintf(out, "%ld %.9g\n", l->at[i].step, l->at[i].value);
	fprintf(out, "end\n");
}

static void write_title(FILE *out, const struct run *r)
{
	const struct sizes *s = &r->engine.sizes;
	char text[256];

	snprintf(text, sizeof(text), "GPT of %d blocks, %d wide, %s, %d ranks, on %.150s",
		 s->layers, s->dim, kolo_type_name(r->engine.type), r->nranks, r->options->data);
	fprintf(out, "set title ");
	gnuplot_write_quoted(out, text);
	fprintf(out, " font ',%d'\n", gnuplot_title_size(r->options->plot));
}

/* What is printed is the loss of one batch, which jumps; a mean over some of them lies on it. */
static void write_plot(FILE *out, const char *name, const void *arg)
{
	const struct run *r = arg;

	gnuplot_write_terminal(out, name, WIDTH, HEIGHT);
	write_losses(out, "trained", &r->trained);
	write_losses(out, "validated", &r->validated);
	write_title(out, r);
	fprintf(out, "set xrange [%ld:%ld]\n", r->trained.at[0].step - 1, r->options->steps);
	fprintf(out,
		"set border 3 lc rgb '#555555'\nset tics nomirror scale 0.5,0.3\n"
		"set grid lt 1 lw 0.7 lc rgb '#cccccc'\nset xlabel 'step'\nset yrange [0:*]\n"
		"set ylabel 'loss (nats for each token)'\nset key top right\n"
		"plot $trained using 1:2 title 'each batch' with lines lc rgb '#9ec9e8' lw 1, \\\n"
		"\t$trained using 1:2 smooth sbezier title 'training, smoothed' with lines lc rgb '#0072B2' "
		"lw 2, \\\n"
		"\t$validated using 1:2 title 'validation' with linespoints lc rgb '#D55E00' lw 2 pt 7\n");
}

int draw_losses(struct run *r)
{
	int rc;

	if (r->trained.n == 0) {
		fprintf(stderr, "zerotrain: --plot %s: nothing was trained: no picture\n",
			r->options->plot);
		return EXIT_WRONG;
	}
	setlocale(LC_CTYPE, "C.UTF-8"); /* for gnuplot_write_quoted */
	rc = gnuplot_run("zerotrain", r->options->plot, write_plot, r, r->picture);
	if (rc == EXIT_GOOD && fflush(r->picture) != 0) {
		fprintf(stderr, "zerotrain: --plot %s: writing it: %s\n", r->options->plot,
			strerror(errno));
		rc = EXIT_FAILED;
	}
	return rc;
}
