/* Random bytes for who serves a meeting point: libFuzzer calls it, with the address sanitizer
 * looking on (make fuzz). The first byte chooses what is put right before the rest is read:
 * nothing, the words that all versions share, or all but the entry, so that every check is
 * reached. */
#include "comm/bootstrap/server.c"

#include <fcntl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NOTHING, HEAD, SECRET, KINDS };

/* The stranger's bytes, put right as far as `kind` says. */
static size_t make_bytes(const uint8_t *data, size_t size, int kind, struct ko_boot_hello *out)
{
	size_t len = size < sizeof(*out) ? size : sizeof(*out);

	memset(out, 0, sizeof(*out));
	memcpy(out, data, len);
	if (kind == NOTHING)
		return len;
	out->magic = KO_BOOT_MAGIC;
	out->version = KO_BOOT_VERSION;
	out->size = sizeof(*out);
	if (kind == SECRET)
		memset(out->secret, 0, sizeof(out->secret));
	return sizeof(*out);
}

/* A rank that is there already, for the next one to contradict. */
static void seat_another(struct server *s)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		abort();
	g->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	g->hello.entry.nranks = 2;
	s->guests[s->nguests++] = g;
	seat(s, g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server *s = calloc(1, sizeof(*s));
	struct ko_boot_hello hello;
	struct guest *g = calloc(1, sizeof(*g));
	int ends[2], kind = size ? data[0] % KINDS : NOTHING;
	bool another = size && data[0] >= 128, stays = true;
	size_t len = make_bytes(data + (size > 0), size - (size > 0), kind, &hello), half = len / 2;

	if (!s || !g || make_room(s) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
		abort();
	s->listener = -1;
	if (another)
		seat_another(s);
	g->fd = ends[0];
	s->guests[s->nguests++] = g;
	/* In two pieces, as a network may bring them. */
	for (int k = 0; k < 2 && stays; k++) {
		size_t at = k ? half : 0, n = k ? len - half : half;

		stays = n == 0 || (write(ends[1], (char *)&hello + at, n) == (ssize_t)n &&
				   hear_guest(s, g) == 0);
	}
	if (!stays)
		drop(s, s->nguests - 1);
	check_time(s);
	if (s->code || s->joined == s->nranks)
		send_tables(s);
	close(ends[1]);
	free_server(s);
	return 0;
}
