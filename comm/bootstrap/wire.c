/* What both sides of a meeting point need: a check of entries from outside (ko_boot_check), the
 * namespace of process ids, the address of an abstract socket, what is derived from a text that
 * all ranks know (ko_boot_identify). Calls no other file of this folder. */
#include "comm/bootstrap/wire.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

uint64_t ko_boot_pidns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) < 0 ? 0 : (uint64_t)st.st_ino;
}

bool ko_boot_check(struct ko_entry *e)
{
	e->place.host[sizeof(e->place.host) - 1] = 0;
	e->place.machine[sizeof(e->place.machine) - 1] = 0;
	e->transport[sizeof(e->transport) - 1] = 0;
	e->algorithm[sizeof(e->algorithm) - 1] = 0;
	e->net[sizeof(e->net) - 1] = 0;
	e->order[sizeof(e->order) - 1] = 0;
	e->place.iface[0] = 0; /* each rank's own affair, as the rail is */
	e->place.rail_plus_1 = 0;
	return e->nranks >= 1 && e->nranks <= KO_MAX_RANKS && e->rank >= 0 && e->rank < e->nranks &&
	       e->socket_len <= sizeof(e->socket) &&
	       (e->place.net.any.sa_family == 0 || e->place.net.any.sa_family == AF_INET ||
		e->place.net.any.sa_family == AF_INET6) &&
	       e->limits.nslots >= 2 && e->limits.nslots <= KO_MAX_SLOTS &&
	       (!e->limits.slot_len ||
		(e->limits.slot_len >= KO_MIN_SLOT && e->limits.slot_len <= KO_MAX_SLOT));
}

int ko_boot_number(const char *text, long min, long max, int *out)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	*out = (int)value;
	return errno == 0 && isdigit((unsigned char)*text) && *end == 0 && value >= min &&
			       value <= max
		       ? 0
		       : KOLO_EINVAL;
}

uint64_t ko_boot_hash(const char *text, uint64_t salt)
{
	uint64_t h = 0xcbf29ce484222325u ^ salt;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	return h ^ h >> 29;
}

static void fill(unsigned char *out, size_t len, const char *identity, uint64_t salt)
{
	for (size_t at = 0; at < len; at += 8) {
		uint64_t word = ko_boot_hash(identity, ++salt);

		memcpy(out + at, &word, 8);
	}
}

void ko_boot_identify(struct ko_meeting *m, const char *identity)
{
	m->by_rank_0 = true;
	m->tag = ko_boot_hash(identity, 0);
	fill(m->secret, sizeof(m->secret), identity, 100);
	fill(m->proof, sizeof(m->proof), identity, 200);
}

int ko_boot_stopped(int rank)
{
	return ko_fail(KOLO_EABORTED, "rank %d called kolo_id_abort before all ranks had joined",
		       rank);
}

unsigned ko_boot_address(const struct ko_meeting *m, struct sockaddr_un *out)
{
	size_t len = strlen(m->name);

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	memcpy(out->sun_path + 1, m->name, len);
	return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}
