/* A list of tensors (add_tensor), and its reader from the file of --tensors: a line for each with
 * its name, its shape, and "frozen" if it is. */
#include "tools/zeroplan/zeroplan.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS_BITS = 46 }; /* of a tensor, as kolo_zero_create takes them */

struct reader {
	const char *path;
	FILE *file;
	char *line;
	size_t room;
	int number; /* of the line, from 1 */
};

static int refuse_line(const struct reader *r, const char *word, const char *why)
{
	fprintf(stderr, "zeroplan: %s:%d: '%s' %s\n", r->path, r->number, word, why);
	return EXIT_USAGE;
}

static int fail(const struct reader *r)
{
	fprintf(stderr, "zeroplan: %s: %s\n", r->path, strerror(errno));
	return EXIT_FAILED;
}

size_t tensor_elements(const struct kolo_zero_tensor *t)
{
	size_t n = 1;

	for (int d = 0; d < t->ndims; d++)
		n *= t->shape[d];
	return n;
}

/* "768x2304" */
static int read_shape(const struct reader *r, const char *word, struct kolo_zero_tensor *t)
{
	static const char want[] = "is not a shape: want up to 8 numbers like 768 or 768x2304";
	const char *at = word;
	size_t n = 1;

	for (t->ndims = 0;; at++) {
		char *end;

		if (!isdigit((unsigned char)*at) || t->ndims == KOLO_ZERO_DIMS)
			return refuse_line(r, word, want);
		t->shape[t->ndims] = strtoull(at, &end, 10);
		if (t->shape[t->ndims] == 0 || __builtin_mul_overflow(n, t->shape[t->ndims], &n) ||
		    n > (size_t)1 << MOST_ELEMENTS_BITS)
			return refuse_line(r, word, "has no element, or more than 2^46");
		t->ndims++;
		at = end;
		if (!*at)
			return EXIT_GOOD;
		if (*at != 'x')
			return refuse_line(r, word, want);
	}
}

int add_tensor(struct tensors *t, const struct kolo_zero_tensor *one, const char *name)
{
	struct kolo_zero_tensor *list = realloc(t->list, ((size_t)t->n + 1) * sizeof(*t->list));

	if (list)
		t->list = list;
	if (!list || !(list[t->n] = *one, list[t->n].name = strdup(name))) {
		fprintf(stderr, "zeroplan: out of memory for a list of %d tensors\n", t->n + 1);
		return EXIT_FAILED;
	}
	t->n++;
	t->parameters += tensor_elements(one);
	t->trained += one->frozen ? 0 : tensor_elements(one);
	return EXIT_GOOD;
}

void free_tensors(struct tensors *t)
{
	for (int i = 0; i < t->n; i++)
		free((char *)t->list[i].name);
	free(t->list);
}

/* Blank lines and what follows a # are left out. */
static int read_line(const struct reader *r, enum kolo_type type, struct tensors *out)
{
	static const char blanks[] = " \t\r\n";
	struct kolo_zero_tensor t = { .type = type };
	char *rest, *name, *shape, *more;
	int rc;

	r->line[strcspn(r->line, "#")] = 0;
	name = strtok_r(r->line, blanks, &rest);
	if (!name)
		return EXIT_GOOD;
	shape = strtok_r(NULL, blanks, &rest);
	if (!shape)
		return refuse_line(r, name, "has no shape: want NAME SHAPE");
	if ((rc = read_shape(r, shape, &t)))
		return rc;
	if ((more = strtok_r(NULL, blanks, &rest))) {
		t.frozen = strcmp(more, "frozen") == 0;
		if (!t.frozen)
			return refuse_line(r, more, "must be frozen, or nothing");
		if ((more = strtok_r(NULL, blanks, &rest)))
			return refuse_line(r, more, "is too much: want NAME SHAPE frozen");
	}
	return add_tensor(out, &t, name);
}

static int read_all(struct reader *r, enum kolo_type type, struct tensors *out)
{
	int rc = EXIT_GOOD;

	errno = 0;
	while (rc == EXIT_GOOD && getline(&r->line, &r->room, r->file) >= 0) {
		r->number++;
		rc = read_line(r, type, out);
		errno = 0;
	}
	if (rc == EXIT_GOOD && errno)
		return fail(r);
	if (rc == EXIT_GOOD && out->n == 0) {
		fprintf(stderr, "zeroplan: %s: has no tensor\n", r->path);
		return EXIT_USAGE;
	}
	return rc;
}

int read_tensors(const char *path, enum kolo_type type, struct tensors *out)
{
	struct reader r = { .path = path, .file = fopen(path, "re") };
	int rc;

	if (!r.file)
		return fail(&r);
	rc = read_all(&r, type, out);
	snprintf(out->title, sizeof(out->title), "the tensors of %.100s", path);
	free(r.line);
	fclose(r.file);
	return rc;
}
