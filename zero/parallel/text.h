/* Texts into the caller's room, and actions as text. */
#ifndef ZERO_PARALLEL_TEXT_H
#define ZERO_PARALLEL_TEXT_H

#include "zero/parallel/lists.h"

/* Room for a text of which the beginning fits. */
struct zero_room {
	char *text;
	size_t len;
	size_t at; /* the length of the whole text so far */
};

void zero_room_put(struct zero_room *room, const char *text);
/* Ends the text with a 0. Returns the length of the whole text. */
size_t zero_room_end(struct zero_room *room);

enum { ZERO_ACTION_TEXT = 48 };

/* Writes "0F3" or "0SA3>1". Returns out. */
const char *zero_action_text(const struct kolo_action *a, char out[ZERO_ACTION_TEXT]);

#endif
