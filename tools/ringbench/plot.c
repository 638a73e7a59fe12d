/* ringbench --plot: collects measurements as curves, and names them. A curve has all measurements
 * that differ only in their size. The title has what all curves share, the legend what differs. */
#include "tools/ringbench/plot.h"

#include <stdlib.h>
#include <string.h>

/* ---- Curves ---------------------------------------------------------------------------------- */

static const char *unless_none(const char *text)
{
	return strcmp(text, "none") == 0 ? "" : text;
}

static bool fill_fields(const struct plot_row *row, char *out[NFIELDS])
{
	char root[32] = "", ranks[32], memory[64];
	const char *texts[NFIELDS] = {
		[SOURCE] = row->source,
		[COLLECTIVE_NAME] = row->collective,
		[TYPE] = row->type,
		[OP] = unless_none(row->op),
		[ROOT] = root,
		[PLACE] = row->in_place ? "in place" : "out of place",
		[RANKS] = ranks,
		[LINK] = unless_none(row->transport),
		[METHOD] = row->algorithm,
		[MEMORY] = memory,
	};
	bool all = true;

	if (row->root >= 0)
		snprintf(root, sizeof(root), "root %d", row->root);
	snprintf(ranks, sizeof(ranks), "%d rank%s", row->ranks, row->ranks == 1 ? "" : "s");
	snprintf(memory, sizeof(memory), "%s memory", row->memory);
	for (int i = 0; i < NFIELDS; i++)
		all &= (out[i] = strdup(texts[i])) != NULL;
	return all;
}

static void free_curve(struct curve *c)
{
	for (int i = 0; i < NFIELDS; i++)
		free(c->fields[i]);
	free(c->points);
}

static bool differ(const struct curve *a, const struct curve *b, enum field field)
{
	return strcmp(a->fields[field], b->fields[field]) != 0;
}

/* Whether all fields are equal, except those whose bit is set in `ignored`. */
static bool alike(const struct curve *a, const struct curve *b, unsigned ignored)
{
	for (int i = 0; i < NFIELDS; i++)
		if (differ(a, b, (enum field)i) && !(ignored >> i & 1))
			return false;
	return true;
}

/* The curve that the measurement belongs to, made if need be. NULL: no memory. */
static struct curve *find_curve(struct plot *p, const struct plot_row *row)
{
	struct curve new = { .npoints = 0 }, *curves = NULL;

	if (fill_fields(row, new.fields)) {
		for (int i = 0; i < p->ncurves; i++) {
			if (alike(&p->curves[i], &new, 0)) {
				free_curve(&new);
				return &p->curves[i];
			}
		}
		curves = realloc(p->curves, ((size_t)p->ncurves + 1) * sizeof(*curves));
	}
	if (!curves) {
		free_curve(&new);
		return NULL;
	}
	p->curves = curves;
	curves[p->ncurves] = new;
	return &curves[p->ncurves++];
}

void plot_add(struct plot *p, const struct plot_row *row)
{
	struct point *points = NULL;
	struct curve *c;

	if (!(row->bytes > 0 && row->algbw > 0)) {
		p->left_out++;
		return;
	}
	c = find_curve(p, row);
	if (c)
		points = realloc(c->points, (c->npoints + 1) * sizeof(*points));
	if (!points) {
		p->no_memory = true;
		return;
	}
	c->points = points;
	points[c->npoints++] = (struct point){ row->bytes, row->algbw, row->busbw };
}

/* ---- Names ----------------------------------------------------------------------------------- */

const struct curve *plot_curve(const struct plot *p, int i)
{
	return &p->curves[(p->nearlier + i) % p->ncurves];
}

/* What the first curve that has the field says; "" when none has. */
static const char *first_text(const struct plot *p, enum field field)
{
	for (int i = 0; i < p->ncurves; i++)
		if (*p->curves[i].fields[field])
			return p->curves[i].fields[field];
	return "";
}

bool plot_varies(const struct plot *p, enum field field)
{
	const char *first = first_text(p, field);

	for (int i = 0; i < p->ncurves; i++) {
		const char *text = p->curves[i].fields[field];

		if (*text && strcmp(text, first) != 0)
			return true;
	}
	return false;
}

static void append(char *out, size_t room, const char *between, const char *text)
{
	size_t len = strlen(out);

	snprintf(out + len, room - len, "%s%s", len ? between : "", text);
}

void plot_label(const struct plot *p, const struct curve *c, char *out, size_t room)
{
	const char *between = plot_varies(p, SOURCE) ? ": " : " ";

	*out = 0;
	for (int i = 0; i < NFIELDS; i++) {
		if (!*c->fields[i] || !plot_varies(p, (enum field)i))
			continue;
		append(out, room, between, c->fields[i]);
		if (i > SOURCE)
			between = " ";
	}
	if (!*out) /* nothing varies: there is one curve */
		append(out, room, "", c->fields[COLLECTIVE_NAME]);
}

void plot_title(const struct plot *p, char *out, size_t room)
{
	const char *between = ": ";

	snprintf(out, room, "ringbench");
	for (int i = COLLECTIVE_NAME; i < NFIELDS; i++) {
		if (!*first_text(p, (enum field)i) || plot_varies(p, (enum field)i))
			continue;
		append(out, room, between, first_text(p, (enum field)i));
		between = ", ";
	}
}

/* ---- From plot_open to plot_close ------------------------------------------------------------ */

static int no_memory(void)
{
	fprintf(stderr, "ringbench: --plot: out of memory for the curves\n");
	return EXIT_FAILED;
}

int plot_open(const struct options *o, struct plot **out)
{
	struct plot *p = *out = calloc(1, sizeof(*p));

	if (!p)
		return no_memory();
	p->options = o;
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	double x = ((const struct point *)a)->bytes, y = ((const struct point *)b)->bytes;

	return (x > y) - (x < y);
}

/* A style for a measurement, without its place and source; and a number for each source. */
static void choose_styles(struct plot *p)
{
	int next = 0;

	p->nsources = 0;
	for (int i = 0; i < p->ncurves; i++) {
		struct curve *c = &p->curves[(p->nearlier + i) % p->ncurves];

		c->style = c->source = -1;
		for (int k = 0; k < i; k++) {
			const struct curve *before = plot_curve(p, k);

			if (alike(c, before, 1u << PLACE | 1u << SOURCE))
				c->style = before->style;
			if (!differ(c, before, SOURCE))
				c->source = before->source;
		}
		if (c->style < 0)
			c->style = next++;
		if (c->source < 0)
			c->source = p->nsources++;
	}
}

int plot_finish(struct plot *p)
{
	if (p->no_memory)
		return no_memory();
	if (p->left_out)
		fprintf(stderr,
			"ringbench: --plot %s: measurements left out for having no bandwidth (barriers, 0 "
			"bytes, null): %d\n",
			p->options->plot, p->left_out);
	if (p->ncurves == 0) {
		fprintf(stderr,
			"ringbench: --plot %s: nothing was measured that has a bandwidth: no picture\n",
			p->options->plot);
		return EXIT_FAILED;
	}
	for (int i = 0; i < p->ncurves; i++)
		qsort(p->curves[i].points, p->curves[i].npoints, sizeof(struct point), by_bytes);
	choose_styles(p);
	return 0;
}

void plot_close(struct plot *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->ncurves; i++)
		free_curve(&p->curves[i]);
	free(p->curves);
	free(p);
}
