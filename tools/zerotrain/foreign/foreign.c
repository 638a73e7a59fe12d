/* Reads and writes the tensors of models of others. */
#include "tools/zerotrain/foreign/foreign.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading --------------------------------------------------------------------------------- */

/* Older files of GPT-2 leave out the first part of names. */
static bool find(const struct foreign *f, const struct described *d, struct stored *out)
{
	const char *prefix = "transformer.";
	size_t len = strlen(prefix);

	return safetensors_find(f->file, d->name, out) ||
	       (strncmp(d->name, prefix, len) == 0 &&
		safetensors_find(f->file, d->name + len, out));
}

/* A context may be shorter than the file's: then the first places are used. */
static bool fits(const struct stored *s, const struct described *d, bool longer)
{
	return s->ndims == d->ndims &&
	       (s->shape[0] == d->shape[0] || (longer && s->shape[0] > d->shape[0])) &&
	       (d->ndims == 1 || s->shape[1] == d->shape[1]);
}

static int check_tensor(const struct foreign *f, int tensor, int part)
{
	struct described d = foreign_describe(&f->sizes, tensor, part);
	struct stored s;

	if (!find(f, &d, &s)) {
		fprintf(stderr,
			"zerotrain: %s/model.safetensors: has no tensor '%s' of type F32, F16 or BF16, or not all of it: is the file cut?\n",
			f->folder, d.name);
		return EXIT_WRONG;
	}
	if (fits(&s, &d, tensor == PLACES))
		return EXIT_GOOD;
	fprintf(stderr,
		"zerotrain: %s/model.safetensors: tensor '%s' is [%zu%s%zu], and config.json makes it [%zu%s%zu]\n",
		f->folder, d.name, s.shape[0], s.ndims > 1 ? ", " : "] of ",
		s.ndims > 1 ? s.shape[1] : 1, d.shape[0], d.ndims > 1 ? ", " : "] of ",
		d.ndims > 1 ? d.shape[1] : 1);
	return EXIT_WRONG;
}

int foreign_open(const char *folder, const struct sizes *sizes, struct foreign *f)
{
	char path[4096];
	int rc;

	*f = (struct foreign){ .folder = folder, .sizes = *sizes };
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	rc = safetensors_open(path, &f->file);
	for (int t = 0; rc == EXIT_GOOD && t < tensor_count(sizes); t++)
		for (int p = 0; rc == EXIT_GOOD && p < foreign_parts(sizes, t); p++)
			rc = check_tensor(f, t, p);
	return rc;
}

void foreign_close(struct foreign *f)
{
	safetensors_close(f->file);
	f->file = NULL;
}

void foreign_values(const struct foreign *f, const struct sizes *part, int tensor, size_t first,
		    size_t n, float *out)
{
	struct tensor_shape whole = foreign_whole(&f->sizes, tensor);
	struct stored from[MOST_PARTS];

	for (int p = 0; p < foreign_parts(&f->sizes, tensor); p++) {
		struct described d = foreign_describe(&f->sizes, tensor, p);

		if (!find(f, &d, &from[p]))
			return; /* which foreign_open has refused */
	}
	for (size_t i = 0; i < n; i++) {
		struct spot spot = foreign_locate(&f->sizes, tensor, &whole,
						  whole_index(part, tensor, first + i));

		out[i] = safetensors_value(&from[spot.part], spot.at);
	}
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int failed(const char *path)
{
	fprintf(stderr, "zerotrain: %s: cannot be written: %s\n", path, strerror(errno));
	return EXIT_FAILED;
}

/* Whether a file that is there can be written over. */
static int check_file(const char *folder, const char *name)
{
	char path[4096];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (stat(path, &st) < 0)
		return errno == ENOENT ? EXIT_GOOD : failed(path);
	if (S_ISDIR(st.st_mode))
		errno = EISDIR;
	return !S_ISDIR(st.st_mode) && access(path, W_OK) == 0 ? EXIT_GOOD : failed(path);
}

int foreign_make_folder(const char *folder)
{
	bool made = mkdir(folder, 0777) == 0 || errno == EEXIST;
	int rc;

	if (!made || access(folder, W_OK | X_OK) < 0)
		return failed(folder);
	rc = check_file(folder, "config.json");
	return rc ? rc : check_file(folder, "model.safetensors");
}

int foreign_create(const char *folder, const struct sizes *s, FILE **out)
{
	int n = 0;
	struct described *all = calloc((size_t)tensor_count(s) * MOST_PARTS, sizeof(*all));
	char path[4096];

	*out = NULL;
	if (!all)
		return failed(folder);
	for (int t = 0; t < tensor_count(s); t++)
		for (int p = 0; p < foreign_parts(s, t); p++)
			all[n++] = foreign_describe(s, t, p);
	snprintf(path, sizeof(path), "%s/config.json", folder);
	if (foreign_write_sizes(folder, s) < 0) {
		free(all);
		return failed(path);
	}
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	if ((*out = fopen(path, "we")) && safetensors_begin(*out, all, n) == 0)
		n = 0;
	free(all);
	return n ? failed(path) : EXIT_GOOD;
}

static size_t elements_of(const struct described *d)
{
	return d->shape[0] * (d->ndims > 1 ? d->shape[1] : 1);
}

int foreign_write(FILE *file, const struct sizes *s, int tensor, const float *values)
{
	struct tensor_shape whole = foreign_whole(s, tensor);
	size_t begins[MOST_PARTS], n = 0, written;
	float *theirs;

	for (int p = 0; p < foreign_parts(s, tensor); p++) {
		struct described d = foreign_describe(s, tensor, p);

		begins[p] = n;
		n += elements_of(&d);
	}
	if (!(theirs = malloc(n * sizeof(*theirs))))
		return -1;
	for (size_t i = 0; i < n; i++) {
		struct spot spot = foreign_locate(s, tensor, &whole, i);

		theirs[begins[spot.part] + spot.at] = values[i];
	}
	written = fwrite(theirs, sizeof(*theirs), n, file);
	free(theirs);
	return written == n ? 0 : -1;
}
