/* Writes actions (zero_action_text) and lists (kolo_pipeline_text) as text. */
#include "zero/parallel/text.h"

#include <stdio.h>

void zero_room_put(struct zero_room *room, const char *text)
{
	for (; *text; text++, room->at++)
		if (room->at + 1 < room->len)
			room->text[room->at] = *text;
}

size_t zero_room_end(struct zero_room *room)
{
	if (room->len)
		room->text[room->at < room->len ? room->at : room->len - 1] = 0;
	return room->at;
}

const char *zero_action_text(const struct kolo_action *a, char out[ZERO_ACTION_TEXT])
{
	static const char *const letters[] = { "F", "B", "I", "W", "SA", "RA", "SG", "RG" };
	bool known = (unsigned)a->type < sizeof(letters) / sizeof(letters[0]);

	if (known && zero_is_message(a->type))
		snprintf(out, ZERO_ACTION_TEXT, "%d%s%d%c%d", a->part, letters[a->type], a->micro,
			 zero_is_send(a->type) ? '>' : '<', a->peer);
	else
		snprintf(out, ZERO_ACTION_TEXT, "%d%s%d", a->part, known ? letters[a->type] : "?",
			 a->micro);
	return out;
}

size_t kolo_pipeline_text(const struct kolo_pipeline *p, int stage, char *out, size_t len)
{
	struct zero_room room = { out, len, 0 };
	const struct kolo_action *list;
	char text[ZERO_ACTION_TEXT];
	int n;

	if (!p || stage < 0 || stage >= p->sizes.stages)
		return 0;
	list = p->lists[stage].actions;
	n = p->lists[stage].n;
	for (int i = 0; i < n; i++) {
		bool message = zero_is_message(list[i].type);
		bool opens = zero_begins_group(&p->lists[stage], i);
		bool closes = message && (i == n - 1 || list[i + 1].group != list[i].group);

		zero_room_put(&room, i ? " " : "");
		zero_room_put(&room, opens ? "{" : "");
		zero_room_put(&room, zero_action_text(&list[i], text));
		zero_room_put(&room, closes ? "}" : "");
		zero_room_put(&room, closes && list[i].waits ? "!" : "");
	}
	return zero_room_end(&room);
}
