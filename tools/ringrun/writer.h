/* Writes what ranks have written to a descriptor of the user's, on a thread of its own: a reader
 * that stalls stalls the ranks' output and nothing else. */
#ifndef TOOLS_RINGRUN_WRITER_H
#define TOOLS_RINGRUN_WRITER_H

#include <stdbool.h>
#include <stddef.h>

struct writer;

/* `wake` is an eventfd, to which is written when something is done. Returns NULL after a message.
 */
struct writer *writer_open(int fd, int wake);

/* Gives it a copy of `len` bytes that came from `source`. Never blocks. */
void writer_put(struct writer *w, int source, const char *data, size_t len);

/* Takes one piece that has been written. Returns false if there is none. */
bool writer_take(struct writer *w, int *source, size_t *len);

/* Has everything been written? */
bool writer_is_done(struct writer *w);

/* errno of a write that failed; what comes after it is dropped. 0: none. */
int writer_error(struct writer *w);

#endif
