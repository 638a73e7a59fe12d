/* The roster: shared memory in which every rank of a communicator posts what it is doing, and the first that
 * meets a failure writes why. It is how ranks find out that they disagree, whom everyone waits for, and what went
 * wrong elsewhere. Rank 0 makes it; all ranks map it. */
#ifndef COMM_HEALTH_ROSTER_H
#define COMM_HEALTH_ROSTER_H

#include "comm/base/error.h"
#include "comm/plan/coll.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank was asked to do. Equal on all ranks, or they disagree. Posted as three words. */
struct ko_desc {
	uint64_t seq; /* counts the communicator's operations from 1; 0: it is being made */
	uint64_t n;   /* as the caller gave it; of counts their sum */
	int32_t root; /* -1 where there is none; of counts a hash */
	uint8_t coll; /* enum ko_coll */
	uint8_t type; /* enum kolo_type */
	uint8_t op;   /* enum kolo_op, KO_OP_PREMUL for ops made at run time */
	uint8_t how;  /* enum ko_how, several of them */
};

enum { KO_OP_PREMUL = 0x80 };

/* Called with counts; recorded on a stream. */
enum ko_how { KO_UNEVEN = 1, KO_RECORDED = 2 };

/* Operations back that a rank's descriptors can be looked up: more than the slots of a link let it run ahead. */
enum { KO_HISTORY = 128 };

/* One rank's lines. Written by that rank alone. */
struct ko_post {
	/* seq of the operation it is in, or was in last; 0: none yet */
	_Alignas(64) _Atomic uint64_t entered;
	_Atomic uint64_t finished;   /* seq of the last one it has done its part of; <= entered */
	_Atomic int64_t beat;        /* ko_now_ms() of its last look around while waiting */
	_Atomic int32_t waiting_for; /* 1 + the rank it has been waiting for for a while; 0: nobody */
	_Atomic uint32_t complete;   /* 1: its communicator is made */
	_Atomic uint32_t any;        /* 1: it waits for others, too: whoever does something wakes it */
	_Atomic uint32_t bell;       /* a futex: it may sleep on it until the one it waits for rings */
	/* What it has measured of reading what prev has at `buffer`, where its token lies; 0 where not everyone's can be
	 * read. Rank 0 reads them a lap of the ring later */
	double read_ns, read_bytes_per_ns;
	uint64_t buffer;
	_Atomic uint64_t history[KO_HISTORY][3];
	/* While it waits in something that ranks do in pairs: the descriptor of that; else zero */
	_Atomic uint64_t pair[3];
};

struct ko_roster {
	_Atomic uint32_t
		failed; /* 0: no; 1: code and text can be read; 2 + rank: that rank is writing them */
	int32_t code;
	bool later; /* a rank that had made the communicator did it; others may be making it still */
	char text[KO_TEXT];
	_Alignas(64) _Atomic uint32_t sleepers; /* ranks that wait for their bell; hardly ever written */
	struct ko_post post[];                  /* by rank */
};

/* What a rank tells those of other hosts, which have a roster of their own. Plain bytes: it travels. */
struct ko_said {
	struct ko_desc desc; /* of the operation that it is in, or was in last; seq 0: none, here and below */
	struct ko_desc before; /* of the one before that */
	uint64_t finished;
	int32_t waiting_for;
	uint32_t complete;
};

/* What this rank's post says; and what another one's says from now on. */
struct ko_said ko_roster_say(const struct ko_roster *roster, int rank);
void ko_roster_hear(struct ko_roster *roster, int rank, const struct ko_said *said);

size_t ko_roster_len(int nranks);

/* `rank` starts the operation, and has done its part of it. */
void ko_roster_enter(struct ko_roster *roster, int rank, const struct ko_desc *desc);
void ko_roster_finish(struct ko_roster *roster, int rank, uint64_t seq);

/* `rank` waits in something that ranks do in pairs, NULL: not any more. */
void ko_roster_post_p2p(struct ko_roster *roster, int rank, const struct ko_desc *desc);

/* What that is; false when it is not in one, or has not waited in it for a while. */
bool ko_roster_p2p(const struct ko_roster *roster, int rank, struct ko_desc *out);

/* `rank` has done what others may wait for; who sleeps over it is woken. */
void ko_roster_wake(struct ko_roster *roster, int rank, int nranks);
static inline void ko_roster_ring(struct ko_roster *roster, int rank, int nranks)
{
	if (atomic_load_explicit(&roster->sleepers, memory_order_relaxed))
		ko_roster_wake(roster, rank, nranks);
}

/* `rank` sleeps until the one it waits for rings, but for `us` microseconds at most, less than a second. */
void ko_roster_sleep(struct ko_roster *roster, int rank, int64_t us);

/* What `rank` posted for its operation `seq`; false when it has not come there or it is too long ago. */
bool ko_roster_desc(const struct ko_roster *roster, int rank, uint64_t seq, struct ko_desc *out);

/* Is it something that two ranks do with each other, and the others need not know of? */
static inline bool ko_desc_is_p2p(const struct ko_desc *desc)
{
	return desc->coll >= KO_SEND_TO;
}

/* "#7 all_reduce(n=1024, f32, sum)". Returns out. */
enum { KO_DESC_TEXT = 128 };
const char *ko_desc_text(const struct ko_desc *desc, char out[KO_DESC_TEXT]);

/* The history of a rank's operations in a number: `history` of those before, 0 at first, and one more. Two ranks that
 * disagree about any of them have, in all likelihood, different ones from then on, in each half of the bits. */
uint64_t ko_desc_history(uint64_t history, const struct ko_desc *desc);

/* `rank` writes the cause of the communicator's failure, and whether that came after the rank at fault had made it; false
 * when one was there already. From any thread. */
bool ko_roster_fail(struct ko_roster *roster, int rank, int code, const char *text, bool later);

/* Has `rank` made its communicator? */
bool ko_roster_complete(const struct ko_roster *roster, int rank);

/* Has the communicator failed by what a rank did after it had made it? Others may still be making it. */
bool ko_roster_failed_later(const struct ko_roster *roster);

/* 0, or the code of the failure, with its text as the calling thread's error. From any thread. */
int ko_roster_cause(const struct ko_roster *roster);

#endif
