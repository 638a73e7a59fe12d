#include "tools/ringrun/base/facts.h"

#include "tools/ringrun/base/fields.h"

static const size_t numbers[] = {
	offsetof(struct facts, clock_us),     offsetof(struct facts, took_us),
	offsetof(struct facts, cores),        offsetof(struct facts, uid),
	offsetof(struct facts, memlock_kib),  offsetof(struct facts, nofile),
	offsetof(struct facts, nofile_max),   offsetof(struct facts, shm_mib),
	offsetof(struct facts, ptrace_scope), offsetof(struct facts, gpus),
	offsetof(struct facts, gpus_denied),  offsetof(struct facts, master_port),
	offsetof(struct facts, wdir),         offsetof(struct facts, program),
	offsetof(struct facts, port),
};
static const size_t texts[] = { offsetof(struct facts, hostname),
				offsetof(struct facts, name_address) };
static const size_t lists[] = { offsetof(struct facts, interfaces), offsetof(struct facts, rdma),
				offsetof(struct facts, variables) };
static const struct fields fields = {
	.numbers = numbers,
	.texts = texts,
	.lists = lists,
	.nnumbers = sizeof(numbers) / sizeof(numbers[0]),
	.ntexts = sizeof(texts) / sizeof(texts[0]),
	.nlists = sizeof(lists) / sizeof(lists[0]),
};

void facts_write(const struct facts *f, struct bytes *out)
{
	fields_write(&fields, f, out);
}

bool facts_read(struct facts *out, const char *data, size_t len)
{
	struct reader r = { .at = data, .end = data + len };

	fields_read(&fields, &r, out);
	return !r.bad;
}
