/* Writes and reads the state file of a checkpoint (zero_state_write, zero_state_read).
 *
 * It has lines of words. The first word of a line says what the others are. The last line has the
 * hash of all lines before it. In names, %XX stands for a byte that is not a plain character, so
 * words have no spaces. */
#include "zero/checkpoint/state.h"

#include "zero/base/basics.h"
#include "zero/base/files.h"
#include "zero/base/growing.h"
#include "zero/checkpoint/checkpoint.h"
#include "zero/optim/kernels.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

/* ---- Writing --------------------------------------------------------------------------------- */

static void write_word(struct zero_growing *out, const char *word)
{
	for (; *word; word++) {
		unsigned char c = (unsigned char)*word;

		zero_growing_put(out, c > 0x20 && c < 0x7f && c != '%' ? "%c" : "%%%02X", c);
	}
}

/* Writes the bits, which are the same in every locale. */
static void write_double(struct zero_growing *out, double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	zero_growing_put(out, " %016" PRIx64, bits);
}

static void write_table(struct zero_growing *out, const char *name, const struct zero_table *table)
{
	zero_growing_put(out, "file %s %" PRIu64 " %016" PRIx64 " %" PRIu64 " %d\n", name,
			 table->header_len, table->header_sum, table->bytes, table->n);
	for (int i = 0; i < table->n; i++) {
		const struct zero_entry *e = &table->entries[i];

		zero_growing_put(out, "tensor ");
		write_word(out, e->name);
		zero_growing_put(out, " %s %016" PRIx64, kolo_type_name(e->type), e->sum);
		for (int d = 0; d < e->ndims; d++)
			zero_growing_put(out, " %zu", e->shape[d]);
		zero_growing_put(out, "\n");
	}
}

static void write_state(struct zero_growing *out, const struct zero_saved *s,
			const struct zero_table *tables)
{
	zero_growing_put(out,
			 "kolo-checkpoint %d\nstep %ld\nskipped %ld\nsamples %" PRIu64
			 "\nmicro_batch %" PRIu64 "\n",
			 FORMAT, s->step, s->skipped, s->samples, s->micro_batch);
	zero_growing_put(out, "loss_scale %d", s->scaler.adapts);
	write_double(out, s->scaler.scale);
	zero_growing_put(out, " %" PRId64 " %" PRId64 " %" PRId64 "\n", s->scaler.updates,
			 s->scaler.last_overflow, s->scaler.left);
	if (s->attempts != s->step + s->skipped)
		zero_growing_put(out, "attempts %ld\n", s->attempts);
	zero_growing_put(out, "optimizer %s\nlr %d", kolo_zero_optimizer_name(s->optimizer),
			 s->ngroups);
	for (int i = 0; i < s->ngroups; i++)
		write_double(out, s->lr[i]);
	zero_growing_put(out, "\nuser %" PRIu64 " %016" PRIx64 "\n", s->user_len, s->user_sum);
	for (int f = 0; f < ZERO_NFILES; f++)
		if (tables[f].n > 0)
			write_table(out, zero_file_names[f], &tables[f]);
}

int zero_state_write(const struct zero_saved *state, const struct zero_table *tables, char **out,
		     size_t *len)
{
	struct zero_growing g = { 0 };

	write_state(&g, state, tables);
	if (!g.failed)
		zero_growing_put(&g, "end %016" PRIx64 "\n", zero_hash(ZERO_HASH, g.text, g.len));
	if (g.failed) {
		free(g.text);
		return kolo_error_set(KOLO_ENOMEM, "a state file: out of memory");
	}
	*out = g.text;
	*len = g.len;
	return 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads words, line by line. An error is reported once, at the end: if the hash is right, only
 * another version can have written the text. */
struct reader {
	char *line, *word; /* the rest of the text; the rest of its first line */
	bool good;
};

static char *next_word(struct reader *r)
{
	char *word = r->word ? strsep(&r->word, " ") : NULL;

	if (!word || !*word)
		r->good = false;
	return word && *word ? word : "";
}

/* Begins the next line, which must have this first word. */
static void begin_line(struct reader *r, const char *word)
{
	r->word = r->line ? strsep(&r->line, "\n") : NULL;
	if (strcmp(next_word(r), word) != 0)
		r->good = false;
}

static bool has_line(const struct reader *r, const char *word)
{
	size_t n = strlen(word);

	return r->line && strncmp(r->line, word, n) == 0 && r->line[n] == ' ';
}

static uint64_t next_number(struct reader *r, int base)
{
	char *word = next_word(r), *end;
	uint64_t x = strtoull(word, &end, base);

	r->good = r->good && *end == 0;
	return x;
}

static int64_t next_signed(struct reader *r)
{
	return (int64_t)next_number(r, 10);
}

/* How many there are of something, at least 1. */
static int next_count(struct reader *r)
{
	uint64_t x = next_number(r, 10);

	r->good = r->good && x > 0 && x < INT_MAX;
	return r->good ? (int)x : 0;
}

static double next_double(struct reader *r)
{
	uint64_t bits = next_number(r, 16);
	double x;

	memcpy(&x, &bits, sizeof(x));
	r->good = r->good && x >= 0 && x < __builtin_inf();
	return x;
}

/* Replaces each %XX of a word by its byte, in place. */
static char *next_name(struct reader *r)
{
	char *word = next_word(r), *to = word;
	unsigned code;

	for (char *from = word; *from; from++) {
		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2])) {
			r->good = false;
			break;
		}
		sscanf(from + 1, "%2X", &code);
		*to++ = (char)code;
		from += 2;
	}
	if (*word)
		*to = 0;
	return word;
}

static enum kolo_type next_type(struct reader *r)
{
	static const enum kolo_type types[] = { KOLO_F32, KOLO_F16, KOLO_BF16 };
	const char *word = next_word(r);

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(word, kolo_type_name(types[i])) == 0)
			return types[i];
	r->good = false;
	return KOLO_F32;
}

static int read_entry(struct reader *r, struct zero_entry *e, uint64_t offset)
{
	const char *name;

	begin_line(r, "tensor");
	name = next_name(r);
	e->name = malloc(strlen(name) + 1);
	if (!e->name)
		return kolo_error_set(KOLO_ENOMEM, "name of tensor '%s': out of memory", name);
	strcpy(e->name, name);
	e->tensor = -1;
	e->type = next_type(r);
	e->sum = next_number(r, 16);
	e->offset = offset;
	e->n = 1;
	while (r->good && r->word && e->ndims < KOLO_ZERO_DIMS) {
		e->shape[e->ndims] = next_number(r, 10);
		r->good = r->good && !__builtin_mul_overflow(e->n, e->shape[e->ndims], &e->n);
		e->ndims++;
	}
	r->good = r->good && !r->word;
	return 0;
}

static int read_table(struct reader *r, struct zero_table *tables)
{
	struct zero_table *table = NULL;
	const char *name;
	uint64_t offset = 0;
	int rc = 0, n;

	begin_line(r, "file");
	name = next_word(r);
	for (int f = 0; f < ZERO_NFILES; f++)
		if (strcmp(name, zero_file_names[f]) == 0)
			table = &tables[f];
	if (!table || table->entries) {
		r->good = false;
		return 0;
	}
	table->header_len = next_number(r, 10);
	table->header_sum = next_number(r, 16);
	table->bytes = next_number(r, 10);
	n = next_count(r);
	table->entries = r->good ? calloc((size_t)n, sizeof(*table->entries)) : NULL;
	if (r->good && !table->entries)
		return kolo_error_set(KOLO_ENOMEM, "%d tensors of %s: out of memory", n, name);
	for (; rc == 0 && r->good && table->n < n; table->n++) {
		rc = read_entry(r, &table->entries[table->n], offset);
		offset +=
			table->entries[table->n].n * kolo_type_size(table->entries[table->n].type);
	}
	r->good = r->good && offset == table->bytes;
	return rc;
}

static int read_groups(struct reader *r, struct zero_saved *s)
{
	begin_line(r, "lr");
	s->ngroups = next_count(r);
	s->lr = r->good ? calloc((size_t)s->ngroups, sizeof(*s->lr)) : NULL;
	if (r->good && !s->lr)
		return kolo_error_set(KOLO_ENOMEM, "%d learning rates: out of memory", s->ngroups);
	for (int i = 0; r->good && i < s->ngroups; i++)
		s->lr[i] = next_double(r);
	return 0;
}

static void read_optimizer(struct reader *r, struct zero_saved *s)
{
	const char *name;
	int optimizer = 0;

	begin_line(r, "optimizer");
	name = next_word(r);
	while (optimizer < ZERO_NOPTIMIZERS &&
	       strcmp(name, kolo_zero_optimizer_name((enum kolo_zero_optimizer)optimizer)) != 0)
		optimizer++;
	r->good = r->good && optimizer < ZERO_NOPTIMIZERS;
	s->optimizer = (enum kolo_zero_optimizer)optimizer;
}

static int read_state(struct reader *r, struct zero_saved *s, struct zero_table *tables)
{
	int rc;

	begin_line(r, "kolo-checkpoint");
	r->good = next_number(r, 10) == FORMAT && r->good;
	begin_line(r, "step");
	s->step = (long)next_signed(r);
	begin_line(r, "skipped");
	s->skipped = (long)next_signed(r);
	begin_line(r, "samples");
	s->samples = next_number(r, 10);
	begin_line(r, "micro_batch");
	s->micro_batch = next_number(r, 10);
	begin_line(r, "loss_scale");
	s->scaler.adapts = next_number(r, 10) == 1;
	s->scaler.scale = next_double(r);
	s->scaler.updates = next_signed(r);
	s->scaler.last_overflow = next_signed(r);
	s->scaler.left = next_signed(r);
	s->attempts = s->step + s->skipped;
	if (has_line(r, "attempts")) {
		begin_line(r, "attempts");
		s->attempts = (long)next_signed(r);
	}
	read_optimizer(r, s);
	if ((rc = read_groups(r, s)) < 0)
		return rc;
	begin_line(r, "user");
	s->user_len = next_number(r, 10);
	s->user_sum = next_number(r, 16);
	r->good = r->good && s->step >= 0 && (!s->scaler.adapts || s->scaler.left > 0);
	while (rc == 0 && r->good && has_line(r, "file"))
		rc = read_table(r, tables);
	return rc;
}

/* The length of what comes before the last line, "end HASH". 0 if the hash is wrong. */
static size_t check_end(const char *text, size_t len)
{
	const char *end = NULL;
	char expected[32];

	if (len == 0 || text[len - 1] != '\n' || strlen(text) != len)
		return 0;
	for (const char *line = text; (line = strstr(line, "\nend ")); line++)
		end = line + 1;
	if (!end)
		return 0;
	snprintf(expected, sizeof(expected), "end %016" PRIx64 "\n",
		 zero_hash(ZERO_HASH, text, (size_t)(end - text)));
	return strcmp(end, expected) == 0 ? (size_t)(end - text) : 0;
}

int zero_state_read(const char *text, size_t len, const char *path, struct zero_saved *state,
		    struct zero_table *tables)
{
	size_t checked = check_end(text, len);
	struct reader r = { .good = true };
	char *copy;
	int rc;

	if (!checked)
		return kolo_error_set(
			KOLO_ESYS,
			"%s: damaged: it does not match the checksum in its last line; load an earlier checkpoint",
			zero_path_end(path));
	copy = r.line = malloc(checked + 1);
	if (!copy)
		return kolo_error_set(KOLO_ENOMEM, "%s: %zu bytes: out of memory",
				      zero_path_end(path), checked);
	memcpy(copy, text, checked);
	copy[checked] = 0;
	rc = read_state(&r, state, tables);
	free(copy);
	if (rc == 0 && !r.good)
		return kolo_error_set(KOLO_ESYS,
				      "%s: written by another version of Kolo than this one",
				      zero_path_end(path));
	return rc;
}
