/* Reads and writes safetensors. The header is read by jansson. */
#include "tools/zerotrain/foreign/safetensors.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef KO_HAVE_JANSSON
#include <jansson.h>

struct safetensors {
	const uint8_t *map;
	size_t len, data; /* bytes of the file, and of what comes before the tensors */
	json_t *header;
};

static int refuse(const char *path, const char *why)
{
	fprintf(stderr, "zerotrain: %s: %s: must be a file of safetensors\n", path, why);
	return EXIT_WRONG;
}

static int map_file(const char *path, struct safetensors *f)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map = MAP_FAILED;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 8) {
		f->len = (size_t)st.st_size;
		map = mmap(NULL, f->len, PROT_READ, MAP_PRIVATE, fd, 0);
	} else if (fd >= 0) {
		errno = ENODATA;
	}
	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED)
		return refuse(path, strerror(errno));
	f->map = map;
	return EXIT_GOOD;
}

static int read_header(const char *path, struct safetensors *f)
{
	json_error_t error;
	uint64_t len = 0;

	for (int i = 8; i-- > 0;)
		len = len << 8 | f->map[i];
	if (len > f->len - 8)
		return refuse(path, "its header is longer than the file");
	f->data = 8 + (size_t)len;
	f->header =
		json_loadb((const char *)f->map + 8, (size_t)len, JSON_REJECT_DUPLICATES, &error);
	return json_is_object(f->header) ? EXIT_GOOD : refuse(path, "its header is not JSON");
}

int safetensors_open(const char *path, struct safetensors **out)
{
	struct safetensors *f = *out = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return refuse(path, "out of memory");
	rc = map_file(path, f);
	return rc ? rc : read_header(path, f);
}

void safetensors_close(struct safetensors *f)
{
	if (!f)
		return;
	json_decref(f->header);
	if (f->map)
		munmap((void *)f->map, f->len);
	free(f);
}

static bool take_type(const char *text, enum kolo_type *out)
{
	static const struct {
		const char *name;
		enum kolo_type type;
	} types[] = { { "F32", KOLO_F32 }, { "F16", KOLO_F16 }, { "BF16", KOLO_BF16 } };

	for (size_t i = 0; text && i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(text, types[i].name) == 0) {
			*out = types[i].type;
			return true;
		}
	return false;
}

/* A number of the header that is not negative. */
static bool take_size(const json_t *number, size_t *out)
{
	*out = json_is_integer(number) && json_integer_value(number) >= 0
		       ? (size_t)json_integer_value(number)
		       : SIZE_MAX;
	return *out != SIZE_MAX;
}

bool safetensors_find(const struct safetensors *f, const char *name, struct stored *out)
{
	const json_t *entry = json_object_get(f->header, name);
	const json_t *shape = json_object_get(entry, "shape"),
		     *offsets = json_object_get(entry, "data_offsets");
	size_t begin, end, n = 1, room = f->len - f->data;

	out->ndims = (int)json_array_size(shape);
	if (!take_type(json_string_value(json_object_get(entry, "dtype")), &out->type) ||
	    out->ndims < 1 || out->ndims > 2 || !take_size(json_array_get(offsets, 0), &begin) ||
	    !take_size(json_array_get(offsets, 1), &end) || begin > end || end > room)
		return false;
	for (int d = 0; d < out->ndims; d++) {
		if (!take_size(json_array_get(shape, (size_t)d), &out->shape[d]) ||
		    out->shape[d] > room || (out->shape[d] && n > room / out->shape[d]))
			return false;
		n *= out->shape[d];
	}
	out->at = f->map + f->data + begin;
	return n <= room && n * kolo_type_size(out->type) == end - begin;
}
#else
int safetensors_open(const char *path, struct safetensors **out)
{
	*out = NULL;
	fprintf(stderr, "zerotrain: %s: this build reads no JSON: it lacks the library jansson\n",
		path);
	return EXIT_USAGE;
}

void safetensors_close(struct safetensors *f)
{
	(void)f;
}

bool safetensors_find(const struct safetensors *f, const char *name, struct stored *out)
{
	(void)f;
	(void)name;
	(void)out;
	return false;
}
#endif

float safetensors_value(const struct stored *t, size_t i)
{
	size_t size = kolo_type_size(t->type);
	char element[sizeof(float)];
	float value;

	memcpy(element, t->at + i * size, size);
	if (t->type == KOLO_F32) {
		memcpy(&value, element, size);
		return value;
	}
	kolo_cast(element, t->type, &value, KOLO_F32, 1, 1);
	return value;
}

int safetensors_begin(FILE *file, const struct described *tensors, int n)
{
	char *text = NULL;
	size_t len = 0, at = 0;
	FILE *header = open_memstream(&text, &len);
	uint8_t head[8];
	int rc;

	if (!header)
		return -1;
	/* transformers wants to know who wrote it. */
	fprintf(header, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (int i = 0; i < n; i++) {
		const struct described *t = &tensors[i];
		size_t bytes = t->shape[0] * (t->ndims > 1 ? t->shape[1] : 1) * sizeof(float);

		fprintf(header, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu", t->name, t->shape[0]);
		if (t->ndims > 1)
			fprintf(header, ",%zu", t->shape[1]);
		fprintf(header, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
		at += bytes;
	}
	fputc('}', header);
	while (ftell(header) % 8)
		fputc(' ', header);
	rc = fclose(header) ? -1 : 0;
	for (int i = 0; i < 8; i++)
		head[i] = (uint8_t)((uint64_t)len >> 8 * i);
	if (rc == 0 && (fwrite(head, 1, 8, file) != 8 || fwrite(text, 1, len, file) != len))
		rc = -1;
	free(text);
	return rc;
}
