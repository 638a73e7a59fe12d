/* Messages between the first ringrun and its agents, on a stream socket that never blocks. A
 * message is a header and `len` bytes. Both ends are the same version on the same kind of machine,
 * which the first message shows, so that numbers travel as they are in memory. */
#ifndef TOOLS_RINGRUN_BASE_WIRE_H
#define TOOLS_RINGRUN_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a message says. `number` is the header's. */
enum kind {
	MSG_HELLO,  /* agent: the secret, who it is */
	MSG_JOB,    /* head: what to do (struct job) */
	MSG_SERVE,  /* head, to the first host's: make the meeting point; the address to serve it at
		     */
	MSG_SERVED, /* agent: the id and the port for MASTER_PORT (number) */
	MSG_START,  /* head: start the ranks; id, master address and port */
	MSG_ENDED,  /* agent: a rank has ended; number is the rank */
	MSG_OUTPUT, /* agent: whole lines for standard output (number 1) or standard error (2) */
	MSG_WRITTEN, /* head: `number` bytes of output have been written, so that as many may come
		      */
	MSG_INPUT,   /* head: bytes for rank 0's standard input; none: its end */
	MSG_TAKEN,   /* agent: rank 0 took `number` bytes of input */
	MSG_SIGNAL,  /* head: send this signal to the ranks */
	MSG_END,     /* head: end the ranks */
	MSG_FAILED,  /* agent: it can't do its part; the text says why */
	MSG_DONE,    /* agent: nothing of the job is left on its host */
	MSG_CHECK,   /* head, with --check: the job, and its time (number, in us) */
	MSG_FACTS,   /* agent: what it found on its host (struct facts) */
	MSG_REACH,   /* head: where the others listen */
	MSG_REACHED, /* agent: which of these it has reached */
	MSG_KINDS,
};

enum { MAX_MESSAGE = 1 << 24 };

/* Bytes that grow. Leaves the process if there is no memory. */
struct bytes {
	char *at;
	size_t len, room;
};

void bytes_add(struct bytes *b, const void *from, size_t len);
void bytes_drop(struct bytes *b, size_t len); /* from the beginning */
void bytes_free(struct bytes *b);

/* Numbers and texts, one after another, and how to read them again. A reader that finds less than
 * it asks for becomes bad, and gives 0 and "" from then on. */
void put_number(struct bytes *b, int64_t value);
void put_text(struct bytes *b, const char *text);
void put_texts(struct bytes *b, char *const *texts); /* ends with NULL */

struct reader {
	const char *at, *end;
	bool bad;
};
int64_t get_number(struct reader *r);
const char *get_text(struct reader *r); /* in the message: valid as long as that is */
char **get_texts(
	struct reader *r); /* ends with NULL; the caller frees what it gets and each text */

struct message {
	enum kind kind;
	int64_t number;
	const char *data; /* in the wire: valid until the next wire_read */
	size_t len;
};

struct wire {
	int fd; /* -1: none, or closed */
	struct bytes in, out;
	size_t read;  /* of `in`, by wire_next */
	size_t limit; /* the longest message that is taken */
};

void wire_init(struct wire *w, int fd, size_t limit);
void wire_close(struct wire *w);

/* Takes what has come. Returns 0, or -1 with errno when the other end is gone (0: it closed). */
int wire_read(struct wire *w);

/* The next whole message of what has come. Returns 1, 0 if there is none, or -1 if this is no
 * message. */
int wire_next(struct wire *w, struct message *out);

/* Appends a message; wire_flush sends what the socket takes. Neither blocks. A failure to send
 * shows when the wire is read. */
void wire_put(struct wire *w, enum kind kind, int64_t number, const void *data, size_t len);
void wire_flush(struct wire *w);

#endif
