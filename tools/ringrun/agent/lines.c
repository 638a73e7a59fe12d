#include "tools/ringrun/agent/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int lines_open(struct lines *l, int stream, int tag, struct bytes *tail)
{
	int fds[2];

	*l = (struct lines){ .fd = -1, .stream = stream, .tag = tag, .tail = tail };
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	fcntl(fds[0], F_SETFL, O_NONBLOCK); /* of this end alone: the rank's blocks */
	l->fd = fds[0];
	return fds[1];
}

void tail_add(struct bytes *tail, const char *text, size_t len)
{
	bytes_add(tail, text, len);
	if (tail->len > TAIL)
		bytes_drop(tail, tail->len - TAIL);
}

/* Sends the first `len` bytes of what is there, which are whole lines or all that will come. */
static size_t send_lines(struct lines *l, struct wire *w, size_t len)
{
	struct bytes tagged = { 0 };
	char head[32];
	size_t sent;

	tail_add(l->tail, l->part.at, len);
	for (size_t at = 0, line; l->tag >= 0 && at < len; at += line) {
		const char *end = memchr(l->part.at + at, '\n', len - at);

		line = end ? (size_t)(end - l->part.at) + 1 - at : len - at;
		bytes_add(&tagged, head, (size_t)snprintf(head, sizeof(head), "[%d] ", l->tag));
		bytes_add(&tagged, l->part.at + at, line);
		if (!end)
			bytes_add(&tagged, "\n", 1);
	}
	sent = l->tag >= 0 ? tagged.len : len;
	wire_put(w, MSG_OUTPUT, l->stream, l->tag >= 0 ? tagged.at : l->part.at, sent);
	bytes_free(&tagged);
	bytes_drop(&l->part, len);
	return sent;
}

size_t lines_pass_on(struct lines *l, struct wire *w)
{
	char chunk[LINE];
	ssize_t got = read(l->fd, chunk, sizeof(chunk));
	const char *last;
	size_t sent = 0;

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got > 0)
		bytes_add(&l->part, chunk, (size_t)got);
	last = l->part.len ? memrchr(l->part.at, '\n', l->part.len) : NULL;
	if (last)
		sent = send_lines(l, w, (size_t)(last - l->part.at) + 1);
	if (l->part.len >= LINE || (got <= 0 && l->part.len))
		sent += send_lines(l, w, l->part.len);
	if (got <= 0) {
		close(l->fd);
		l->fd = -1;
		bytes_free(&l->part);
	}
	return sent;
}
