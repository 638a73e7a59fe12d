/* Finds variables that begin with KOLO_ and that the library does not know. */
#include "tools/ringinfo/ringinfo.h"

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
