#include "tools/ringrun/base/wire.h"

#include "tools/ringrun/base/processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct header {
	uint32_t kind, len;
	int64_t number;
};

/* ---- Bytes ----------------------------------------------------------------------------------- */

static void reserve(struct bytes *b, size_t more)
{
	if (b->room - b->len >= more)
		return;
	b->room = b->len + more + b->len / 2;
	b->at = need(realloc(b->at, b->room));
}

void bytes_add(struct bytes *b, const void *from, size_t len)
{
	if (len == 0)
		return;
	reserve(b, len);
	memcpy(b->at + b->len, from, len);
	b->len += len;
}

void bytes_drop(struct bytes *b, size_t len)
{
	if (len)
		memmove(b->at, b->at + len, b->len - len);
	b->len -= len;
}

void bytes_free(struct bytes *b)
{
	free(b->at);
	*b = (struct bytes){ 0 };
}

void put_number(struct bytes *b, int64_t value)
{
	bytes_add(b, &value, sizeof(value));
}

void put_text(struct bytes *b, const char *text)
{
	bytes_add(b, text, strlen(text) + 1);
}

void put_texts(struct bytes *b, char *const *texts)
{
	int n = 0;

	while (texts && texts[n])
		n++;
	put_number(b, n);
	for (int i = 0; i < n; i++)
		put_text(b, texts[i]);
}

int64_t get_number(struct reader *r)
{
	int64_t value = 0;

	if (r->bad || (size_t)(r->end - r->at) < sizeof(value)) {
		r->bad = true;
		return 0;
	}
	memcpy(&value, r->at, sizeof(value));
	r->at += sizeof(value);
	return value;
}

const char *get_text(struct reader *r)
{
	const char *text = r->at, *stop = r->bad ? NULL : memchr(text, 0, (size_t)(r->end - text));

	if (!stop) {
		r->bad = true;
		return "";
	}
	r->at = stop + 1;
	return text;
}

char **get_texts(struct reader *r)
{
	int64_t n = get_number(r);
	char **texts;

	if (n < 0 || n > r->end - r->at) { /* each takes a byte at least */
		r->bad = true;
		n = 0;
	}
	texts = need(calloc((size_t)n + 1, sizeof(*texts)));
	for (int64_t i = 0; i < n; i++)
		texts[i] = need(strdup(get_text(r)));
	return texts;
}

/* ---- Wire ------------------------------------------------------------------------------------ */

void wire_init(struct wire *w, int fd, size_t limit)
{
	*w = (struct wire){ .fd = fd, .limit = limit };
}

void wire_close(struct wire *w)
{
	if (w->fd >= 0)
		close(w->fd);
	bytes_free(&w->in);
	bytes_free(&w->out);
	w->fd = -1;
	w->read = 0;
}

int wire_read(struct wire *w)
{
	enum { CHUNK = 65536 };
	ssize_t got;

	bytes_drop(&w->in, w->read);
	w->read = 0;
	reserve(&w->in, CHUNK);
	got = recv(w->fd, w->in.at + w->in.len, CHUNK, MSG_DONTWAIT);
	if (got > 0) {
		w->in.len += (size_t)got;
		return 0;
	}
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	errno = got == 0 ? 0 : errno;
	return -1;
}

int wire_next(struct wire *w, struct message *out)
{
	size_t left = w->in.len - w->read;
	struct header h;

	if (left < sizeof(h))
		return 0;
	memcpy(&h, w->in.at + w->read, sizeof(h));
	if (h.kind >= MSG_KINDS || h.len > w->limit)
		return -1;
	if (left - sizeof(h) < h.len)
		return 0;
	*out = (struct message){ .kind = (enum kind)h.kind,
				 .number = h.number,
				 .data = w->in.at + w->read + sizeof(h),
				 .len = h.len };
	w->read += sizeof(h) + h.len;
	return 1;
}

void wire_put(struct wire *w, enum kind kind, int64_t number, const void *data, size_t len)
{
	struct header h = { .kind = (uint32_t)kind, .len = (uint32_t)len, .number = number };

	if (w->fd < 0)
		return;
	bytes_add(&w->out, &h, sizeof(h));
	bytes_add(&w->out, data, len);
	wire_flush(w);
}

void wire_flush(struct wire *w)
{
	size_t sent = 0;

	while (w->fd >= 0 && sent < w->out.len) {
		ssize_t put = send(w->fd, w->out.at + sent, w->out.len - sent,
				   MSG_DONTWAIT | MSG_NOSIGNAL);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			break;
		sent += (size_t)put;
	}
	bytes_drop(&w->out, sent);
}
