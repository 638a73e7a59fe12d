/* Documents as lines of JSON. */
#include "tools/common/tool.h"
#include "tools/zerotrain/data/documents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KO_HAVE_JANSSON
#include <jansson.h>

/* A line of a file. */
struct line {
	const char *path;
	size_t number;
};

static int refuse(const struct line *l, const char *why)
{
	fprintf(stderr, "zerotrain: --data %s: line %zu: %s\n", l->path, l->number, why);
	return EXIT_WRONG;
}

/* The tokens of a text, which count or not. */
static int add_text(const struct line *l, const struct tokenizer *t, const json_t *text,
		    bool counted, struct documents *out)
{
	size_t len = json_string_length(text), bad;
	token *tokens = malloc((len + 1) * sizeof(*tokens));
	long n = tokens ? tokenize(t, json_string_value(text), len, tokens, &bad) : -1;
	bool good = n >= 0 && documents_add(out, tokens, (size_t)n, counted);

	free(tokens);
	if (n == -2)
		return refuse(l, "has a byte that --bpe has no token for");
	return good ? EXIT_GOOD : refuse(l, "out of memory");
}

static int add_line(const struct line *l, const struct tokenizer *t, const json_t *object,
		    size_t context, struct documents *out)
{
	const json_t *text = json_object_get(object, "text"),
		     *prompt = json_object_get(object, "prompt"),
		     *completion = json_object_get(object, "completion");
	token end = (token)t->end;
	size_t first = out->ntokens;
	int rc = EXIT_GOOD;

	if (!json_is_string(text) && !(json_is_string(prompt) && json_is_string(completion)))
		return refuse(l, "must be {\"text\": T}, or {\"prompt\": P, \"completion\": C}");
	if (json_is_string(text))
		rc = add_text(l, t, text, true, out);
	else if ((rc = add_text(l, t, prompt, false, out)) == EXIT_GOOD)
		rc = add_text(l, t, completion, true, out);
	if (rc == EXIT_GOOD &&
	    (!documents_add(out, &end, 1, true) || !documents_end(out, first, context)))
		rc = refuse(l, "out of memory");
	return rc;
}

int jsonl_read(const char *path, const struct tokenizer *t, size_t context, struct documents *out)
{
	struct line l = { path, 0 };
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	int rc = EXIT_GOOD;

	if (!f) {
		fprintf(stderr, "zerotrain: --data %s: %s\n", path, strerror(errno));
		return EXIT_WRONG;
	}
	while (rc == EXIT_GOOD && (len = getline(&text, &room, f)) > 0) {
		const char *mark = "\xef\xbb\xbf"; /* with which some programs begin UTF-8 */
		size_t skipped = l.number++ == 0 && strncmp(text, mark, 3) == 0 ? 3 : 0;
		json_error_t error;
		json_t *object;

		if (strspn(text + skipped, " \t\r\n") == (size_t)len - skipped)
			continue;
		object = json_loadb(text + skipped, (size_t)len - skipped, JSON_ALLOW_NUL, &error);
		rc = object ? add_line(&l, t, object, context, out) : refuse(&l, error.text);
		json_decref(object);
	}
	if (rc == EXIT_GOOD && ferror(f)) {
		l.number++;
		rc = refuse(&l, strerror(errno));
	}
	free(text);
	fclose(f);
	return rc;
}
#else
int jsonl_read(const char *path, const struct tokenizer *t, size_t context, struct documents *out)
{
	(void)t;
	(void)context;
	(void)out;
	fprintf(stderr,
		"zerotrain: --data %s: this build reads no JSON: it lacks the library jansson\n",
		path);
	return EXIT_USAGE;
}
#endif
