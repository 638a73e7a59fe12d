/* Reads the files of --against, which an earlier `ringbench --json` wrote: one object on a line. */
#include "tools/ringbench/plot.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const char *name, int line, const char *why)
{
	fprintf(stderr,
		"ringbench: --against %s, line %d: %s: the file must be one that ringbench --json wrote\n",
		name, line, why);
	return EXIT_FAILED;
}

/* null is 0. Beyond any machine there is no place on the axes. */
static bool take_bandwidth(const json_t *value, double *out)
{
	*out = json_is_null(value) ? 0 : json_number_value(value);
	return json_is_null(value) ||
	       (json_is_number(value) && (*out == 0 || (*out > 1e-12 && *out < 1e9)));
}

/* What the row points to belongs to the object. NULL, or what is wrong. */
static const char *unpack_row(json_t *object, struct plot_row *row, json_error_t *error)
{
	json_t *algbw, *busbw;
	json_int_t bytes;
	int in_place;

	if (json_unpack_ex(object, error, 0,
			   "{s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:b, s:I, s:o, s:o}",
			   "collective", &row->collective, "type", &row->type, "op", &row->op,
			   "root", &row->root, "ranks", &row->ranks, "transport", &row->transport,
			   "algorithm", &row->algorithm, "memory", &row->memory, "in_place",
			   &in_place, "bytes", &bytes, "algbw_GBs", &algbw, "busbw_GBs",
			   &busbw) < 0)
		return error->text;
	row->in_place = in_place;
	row->bytes = (double)bytes;
	if (bytes < 0 || row->ranks < 1)
		return "bytes below 0, or ranks below 1";
	if (!take_bandwidth(algbw, &row->algbw) || !take_bandwidth(busbw, &row->busbw))
		return "algbw_GBs or busbw_GBs is neither null nor 0 nor between 1e-12 and 1e9";
	return NULL;
}

static int add_line(struct plot *p, const char *name, const char *source, int number,
		    const char *text, size_t len)
{
	struct plot_row row = { .source = source };
	json_error_t error;
	json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	const char *wrong = object ? unpack_row(object, &row, &error) : error.text;

	if (!wrong)
		plot_add(p, &row);
	json_decref(object);
	return wrong ? refuse(name, number, wrong) : 0;
}

static int read_file(struct plot *p, const char *name, const char *source)
{
	FILE *f = fopen(name, "r");
	char *text = NULL;
	size_t room = 0;
	ssize_t len = 0;
	int rc = 0, number = 0;

	while (f && rc == 0 && (len = getline(&text, &room, f)) >= 0)
		rc = add_line(p, name, source, ++number, text, (size_t)len);
	if (!f || (rc == 0 && !feof(f))) {
		fprintf(stderr, "ringbench: --against %s: reading it: %s\n", name, strerror(errno));
		rc = EXIT_FAILED;
	} else if (rc == 0 && number == 0) {
		rc = refuse(name, 1, "the file is empty");
	}
	free(text);
	if (f)
		fclose(f);
	return rc;
}

static const char *last_part(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

/* The name of a file in the legend: its last part. If two files share that, the path as it was
 * given. */
int against_read(struct plot *p)
{
	const struct options *o = p->options;
	int rc = 0;

	for (int i = 0; rc == 0 && i < o->nagainst; i++) {
		const char *source = last_part(o->against[i]);

		for (int k = 0; k < o->nagainst; k++)
			if (k != i && strcmp(source, last_part(o->against[k])) == 0)
				source = o->against[i];
		rc = read_file(p, o->against[i], source);
	}
	p->nearlier = p->ncurves;
	return rc;
}
