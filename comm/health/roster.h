/* The roster: shared memory in which each rank of a communicator posts what it is doing. The first
 * rank that meets a failure writes the cause there. So ranks find out that they disagree, which
 * rank all others wait for, and what went wrong elsewhere. Rank 0 makes the roster; all ranks map
 * it. */
#ifndef COMM_HEALTH_ROSTER_H
#define COMM_HEALTH_ROSTER_H

#include "comm/base/error.h"
#include "comm/plan/coll.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operation as one rank's caller gave it. If it is not equal on all ranks, they disagree. Posted
 * as three words. */
struct ko_desc {
	/* counts the communicator's operations from 1; 0: the communicator is being made */
	uint64_t seq;
	/* as the caller gave it; for uneven counts, their sum. Of KO_DESC_BYTES, the size of an
	 * element is in the bits from KO_DESC_SIZE on */
	uint64_t n;
	int32_t root; /* -1: none; for uneven counts, a hash of them */
	uint8_t coll; /* enum ko_coll */
	uint8_t type; /* enum kolo_type, or KO_DESC_BYTES */
	uint8_t op;   /* enum kolo_op, or KO_DESC_PREMUL or KO_DESC_MADE */
	uint8_t how;  /* enum ko_how values, or-ed */
};

/* Ops made at run time; a type of kolo_type_bytes, and where its size is. */
enum { KO_DESC_PREMUL = 0x80, KO_DESC_MADE = 0x81, KO_DESC_BYTES = 0x80, KO_DESC_SIZE = 48 };

/* KO_UNEVEN: called with counts. KO_RECORDED: recorded on a stream. */
enum ko_how { KO_UNEVEN = 1, KO_RECORDED = 2 };

/* How many of a rank's last operations can be looked up: more than the slots of a link let it run
 * ahead. */
enum { KO_HISTORY = 128 };

/* One rank's part of the roster. Only that rank writes it. */
struct ko_post {
	/* seq of the operation that it is in, or was in last; 0: none yet */
	_Alignas(64) _Atomic uint64_t entered;
	/* seq of the last operation of which it has done its part; <= entered */
	_Atomic uint64_t finished;
	_Atomic int64_t beat; /* ko_now_ms() when it last looked around while it waited */
	/* the rank that it has waited for for a while, plus 1, so that fresh memory, all zeros,
	 * means nobody. Only ko_post_waits_for and ko_post_wait_for use it */
	_Atomic int32_t waiting_for;
	_Atomic uint32_t complete; /* 1: it has made the communicator */
	/* Its measurement of reading prev's memory at `buffer`, where prev's token lies: ns, and
	 * bytes per ns. 0: some rank's memory can't be read. Rank 0 reads these a lap of the ring
	 * later */
	double read_ns, read_bytes_per_ns;
	uint64_t buffer;
	/* Its measurements of copying a slot that prev has filled, with each kind of stores. prev
	 * reads these a lap of the ring later */
	double keep_ns[2];
	_Atomic uint64_t history[KO_HISTORY][3];
	/* While it waits in something that ranks do in pairs: the descriptor of that; else zeros */
	_Atomic uint64_t pair[3];
};

enum ko_failed {
	KO_SOUND,  /* the communicator has not failed */
	KO_FAILED, /* it has failed: code and text can be read */
	KO_FAILING /* plus a rank: that rank is writing code and text */
};

struct ko_roster {
	/* enum ko_failed; KO_FAILING + the rank that is writing code and text */
	_Atomic uint32_t failed;
	int32_t code;
	/* the cause came from a rank that had made the communicator; others may be making it
	 * still */
	bool later;
	char text[KO_TEXT];
	struct ko_post post[]; /* by rank */
};

/* What a rank tells ranks of other hosts, which have rosters of their own. Plain bytes: ranks send
 * it to each other. */
struct ko_said {
	struct ko_desc desc;   /* the operation that it is in, or was in last; seq 0: none */
	struct ko_desc before; /* the operation before that; seq 0: none */
	uint64_t finished;
	int32_t waiting_for; /* the rank that it has waited for for a while, or KO_NOBODY */
	uint32_t complete;
};

enum { KO_NOBODY = -1 };

/* The rank that the post's rank has waited for for a while, or KO_NOBODY. */
static inline int32_t ko_post_waits_for(const struct ko_post *post)
{
	return atomic_load_explicit(&post->waiting_for, memory_order_relaxed) - 1;
}

/* Posts that the post's rank waits for `peer`, or for KO_NOBODY. */
static inline void ko_post_wait_for(struct ko_post *post, int32_t peer)
{
	atomic_store_explicit(&post->waiting_for, peer + 1, memory_order_relaxed);
}

/* Reads the post of `rank` (ko_roster_say), and writes what another rank has said into its post
 * (ko_roster_hear). */
struct ko_said ko_roster_say(const struct ko_roster *roster, int rank);
void ko_roster_hear(struct ko_roster *roster, int rank, const struct ko_said *said);

size_t ko_roster_len(int nranks);

/* Posts that `rank` starts an operation (enter), or has done its part of it (finish). */
void ko_roster_enter(struct ko_roster *roster, int rank, const struct ko_desc *desc);
void ko_roster_finish(struct ko_roster *roster, int rank, uint64_t seq);

/* Posts that `rank` waits in something that ranks do in pairs. desc NULL: it no longer does. */
void ko_roster_post_p2p(struct ko_roster *roster, int rank, const struct ko_desc *desc);

/* Reads what ko_roster_post_p2p posted. False: `rank` is in nothing of that kind, or has not waited
 * in it for a while. */
bool ko_roster_p2p(const struct ko_roster *roster, int rank, struct ko_desc *out);

/* Reads what `rank` posted for its operation `seq`. False: it has not come there yet, or it is too
 * long ago. */
bool ko_roster_desc(const struct ko_roster *roster, int rank, uint64_t seq, struct ko_desc *out);

/* Is it something between two ranks, which the others need not know of? */
static inline bool ko_desc_is_p2p(const struct ko_desc *desc)
{
	return desc->coll >= KO_SEND_TO;
}

/* Writes for example "#7 all_reduce(n=1024, f32, sum)". Returns out. */
enum { KO_DESC_TEXT = 128 };
const char *ko_desc_text(const struct ko_desc *desc, char out[KO_DESC_TEXT]);

/* Hashes a rank's operations into one number: `history` covers those before (0 at first), and
 * `desc` is the next. If two ranks disagree about any operation, their numbers very probably differ
 * from then on, in each half of the bits. */
uint64_t ko_desc_history(uint64_t history, const struct ko_desc *desc);

/* Writes the cause of the communicator's failure, for `rank`. later: the cause came after the rank
 * at fault had made the communicator. False: a cause was there already. From any thread. */
bool ko_roster_fail(struct ko_roster *roster, int rank, int code, const char *text, bool later);

/* Has `rank` made its communicator? */
bool ko_roster_complete(const struct ko_roster *roster, int rank);

/* Has the communicator failed by what a rank did after it had made it? Other ranks may still be
 * making it. */
bool ko_roster_failed_later(const struct ko_roster *roster);

/* The code of the communicator's failure. Its text becomes the calling thread's error text. From
 * any thread. ko_roster_cause returns 0 if it has not failed; ko_roster_report is for one that has,
 * and waits until the cause is written. */
int ko_roster_report(const struct ko_roster *roster);
static inline int ko_roster_cause(const struct ko_roster *roster)
{
	/* Pairs with the release in ko_roster_fail: whoever sees the failure may read its cause. */
	return atomic_load_explicit(&roster->failed, memory_order_acquire) == KO_SOUND
		       ? 0
		       : ko_roster_report(roster);
}

#endif
