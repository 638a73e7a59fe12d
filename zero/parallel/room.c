/* Counts the boundary tensors of a stage (zero_rooms_of). */
#include "zero/parallel/room.h"

bool zero_input_of(const struct zero_pipeline_sizes *sizes, const struct kolo_action *a,
		   struct kolo_action *message)
{
	*message = (struct kolo_action){
		.type = a->type == KOLO_ACTION_FORWARD ? KOLO_ACTION_RECV_ACTIVATION
						       : KOLO_ACTION_RECV_GRADIENT,
		.part = a->part,
		.micro = a->micro,
	};
	return a->type != KOLO_ACTION_BACKWARD_WEIGHT &&
	       zero_has_message(sizes, message->type, a->part);
}

bool zero_output_of(const struct zero_pipeline_sizes *sizes, const struct kolo_action *a,
		    struct kolo_action *message)
{
	*message = (struct kolo_action){
		.type = a->type == KOLO_ACTION_FORWARD ? KOLO_ACTION_SEND_ACTIVATION
						       : KOLO_ACTION_SEND_GRADIENT,
		.part = a->part,
		.micro = a->micro,
	};
	return a->type != KOLO_ACTION_BACKWARD_WEIGHT &&
	       zero_has_message(sizes, message->type, a->part);
}

static void raise(int *most, int n)
{
	*most = n > *most ? n : *most;
}

struct zero_rooms zero_rooms_of(const struct zero_pipeline_sizes *sizes,
				const struct zero_list *list)
{
	struct zero_rooms rooms = { 0 };
	int unsent[ZERO_CHANNELS] = { 0 }, held[ZERO_CHANNELS] = { 0 };

	for (int i = 0; i < list->n; i++) {
		const struct kolo_action *a = &list->actions[i];
		struct kolo_action message;
		int channel = zero_channel(a->type);

		if (zero_is_message(a->type) && zero_is_send(a->type)) {
			unsent[channel]--;
		} else if (zero_is_message(a->type)) {
			raise(&rooms.receives[channel], ++held[channel]);
		} else if (zero_output_of(sizes, a, &message)) {
			channel = zero_channel(message.type);
			raise(&rooms.sends[channel], ++unsent[channel] + 1);
		}
		if (!zero_ends(a))
			continue;
		held[0] -= zero_has_message(sizes, KOLO_ACTION_RECV_ACTIVATION, a->part);
		held[1] -= zero_has_message(sizes, KOLO_ACTION_RECV_GRADIENT, a->part);
	}
	return rooms;
}
