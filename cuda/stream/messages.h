/* Messages on streams: sends, recvs, and the collectives that consist of messages, through lanes
 * (cuda/gpu/lanes.h).
 *
 * Messages that are recorded together don't wait for each other, except those of one lane. If there
 * is one lane, they go on the caller's stream. Several go on Kolo's own streams, which begin after
 * what the caller's stream has done and join it again. Sends and recvs have different ones. */
#ifndef CUDA_STREAM_MESSAGES_H
#define CUDA_STREAM_MESSAGES_H

#include "cuda/stream/tape.h"

#include "comm/core/call.h"

/* Records the messages of all calls together. The caller ends the tape. Blocks while other ranks of
 * this process have not recorded their ends. Errors: KOLO_EMISMATCH (the two ends differ in n or
 * type; a message to this rank itself has one end only), KOLO_ENOMEM, those of ko_tape_flush. */
int ko_gpu_messages(struct ko_tape *t, const struct ko_call *const *calls, size_t count);

/* Is a message to or from `rank` being recorded? For struct ko_run's `needs`. */
bool ko_gpu_messages_need(const struct kolo_comm *c, int rank);

#endif
