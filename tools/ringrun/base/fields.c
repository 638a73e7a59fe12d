#include "tools/ringrun/base/fields.h"

#include "tools/ringrun/base/processes.h"

#include <string.h>

static void *member(const void *of, size_t offset)
{
	return (char *)of + offset;
}

void fields_write(const struct fields *f, const void *from, struct bytes *out)
{
	for (size_t i = 0; i < f->nnumbers; i++)
		put_number(out, *(int *)member(from, f->numbers[i]));
	for (size_t i = 0; i < f->ntexts; i++) {
		const char *text = *(char **)member(from, f->texts[i]);

		put_number(out, text != NULL);
		put_text(out, text ? text : "");
	}
	for (size_t i = 0; i < f->nlists; i++)
		put_texts(out, *(char ***)member(from, f->lists[i]));
}

void fields_read(const struct fields *f, struct reader *r, void *to)
{
	for (size_t i = 0; i < f->nnumbers; i++)
		*(int *)member(to, f->numbers[i]) = (int)get_number(r);
	for (size_t i = 0; i < f->ntexts; i++) {
		bool there = get_number(r);
		const char *text = get_text(r);

		*(char **)member(to, f->texts[i]) = there ? need(strdup(text)) : NULL;
	}
	for (size_t i = 0; i < f->nlists; i++)
		*(char ***)member(to, f->lists[i]) = get_texts(r);
}
