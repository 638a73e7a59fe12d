/* Makes the header of a safetensors file (zero_safetensors_header): 8 bytes with its length, then
 * JSON that names each tensor's type, shape and place. Spaces pad it, so that the data begins on a
 * page. The format: https://github.com/huggingface/safetensors */
#include "zero/checkpoint/safetensors.h"

#include "zero/base/basics.h"
#include "zero/base/growing.h"
#include "zero/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static const char *dtype_of(enum kolo_type type)
{
	return type == KOLO_F32 ? "F32" : type == KOLO_F16 ? "F16" : "BF16";
}

static int write_name(struct zero_growing *out, const char *name)
{
	const unsigned char *s = (const unsigned char *)name;
	size_t n;

	if (strcmp(name, "__metadata__") == 0)
		return kolo_error_set(KOLO_EINVAL,
				      "tensor '%s': a name that safetensors keeps for other things",
				      name);
	for (; *s; s += n) {
		if ((n = zero_character_len((const char *)s)) == 0)
			return kolo_error_set(
				KOLO_EINVAL,
				"tensor '%s': its name is no UTF-8, which safetensors wants; byte %zu is 0x%02x",
				name, (size_t)(s - (const unsigned char *)name), *s);
		if (*s < 0x20 || *s == 0x7f)
			zero_growing_put(out, "\\u%04x", *s);
		else
			zero_growing_put(out, "%s%.*s", *s == '"' || *s == '\\' ? "\\" : "", (int)n,
					 (const char *)s);
	}
	return 0;
}

static int write_entry(struct zero_growing *out, const struct zero_entry *e)
{
	int rc;

	zero_growing_put(out, ",\"");
	rc = write_name(out, e->name);
	zero_growing_put(out, "\":{\"dtype\":\"%s\",\"shape\":[", dtype_of(e->type));
	for (int d = 0; d < e->ndims; d++)
		zero_growing_put(out, "%s%zu", d ? "," : "", e->shape[d]);
	zero_growing_put(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)e->offset,
			 (unsigned long long)(e->offset + e->n * kolo_type_size(e->type)));
	return rc;
}

static int write_header(struct zero_growing *out, const struct zero_table *table, long step)
{
	int rc = 0;

	zero_growing_put(out, "        "); /* its length, which is filled in at the end */
	zero_growing_put(
		out, "{\"__metadata__\":{\"format\":\"pt\",\"writer\":\"kolo\",\"step\":\"%ld\"}",
		step);
	for (int i = 0; rc == 0 && i < table->n; i++)
		rc = write_entry(out, &table->entries[i]);
	zero_growing_put(out, "}");
	zero_growing_put(out, "%*s", (int)(-out->len % PAGE), "");
	return rc;
}

int zero_safetensors_header(struct zero_table *table, long step, char **out)
{
	struct zero_growing g = { 0 };
	int rc = write_header(&g, table, step);

	if (rc == 0 && g.failed)
		rc = kolo_error_set(KOLO_ENOMEM, "a header of %d tensors: out of memory", table->n);
	if (rc < 0) {
		free(g.text);
		return rc;
	}
	for (int i = 0; i < 8; i++)
		g.text[i] = (char)((g.len - 8) >> 8 * i);
	table->header_len = g.len;
	table->header_sum = zero_hash(ZERO_HASH, g.text, g.len);
	*out = g.text;
	return 0;
}
