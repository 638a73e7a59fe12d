/* Finds variables that begin with KOLO_ and that the library does not know, and those of NCCL. */
#include "tools/ringinfo/ringinfo.h"

#include "cuda/nccl/variables.h"

#include <string.h>
#include <unistd.h>

/* Is `name`, of `len` bytes, one that the library reads? */
static bool is_known(const char *name, size_t len)
{
	struct kolo_env_info info;

	for (int i = 0; kolo_env_get(i, &info) == 0; i++)
		if (strlen(info.name) == len && memcmp(info.name, name, len) == 0)
			return true;
	return false;
}

bool next_unknown(int *at, char *name, size_t room)
{
	for (const char *entry; (entry = environ[*at]) != NULL;) {
		size_t len = strcspn(entry, "=");

		++*at;
		if (strncmp(entry, "KOLO_", 5) == 0 && !is_known(entry, len)) {
			snprintf(name, room, "%.*s", (int)len, entry);
			return true;
		}
	}
	return false;
}

bool next_of_nccl(int *at, struct foreign *out)
{
	for (const char *entry; (entry = environ[*at]) != NULL;) {
		const struct kn_variable *v = kn_variable_of(entry);
		size_t len = strcspn(entry, "=");

		++*at;
		if (!v)
			continue;
		snprintf(out->name, sizeof(out->name), "%.*s", (int)len, entry);
		out->value = entry + len + (entry[len] == '=');
		out->used = v->used;
		out->help = v->help;
		return true;
	}
	return false;
}
