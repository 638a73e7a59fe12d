/* Posts what a rank does (ko_roster_enter), reads what others posted (ko_roster_desc), and keeps
 * the first cause of a failure (ko_roster_fail). */
#include "comm/health/roster.h"

#include "comm/base/clock.h"
#include "comm/reduce/reduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct ko_desc) == 3 * sizeof(uint64_t), "a descriptor is three words");

size_t ko_roster_len(int nranks)
{
	return sizeof(struct ko_roster) + (size_t)nranks * sizeof(struct ko_post);
}

/* A descriptor as words, each by a load of its own: a wide one would wait for the stores just
 * before. */
static void get_words(const struct ko_desc *desc, uint64_t words[3])
{
	words[0] = desc->seq;
	words[1] = desc->n;
	memcpy(&words[2], &desc->root, sizeof(words[2]));
}

void ko_roster_enter(struct ko_roster *roster, int rank, const struct ko_desc *desc)
{
	struct ko_post *post = &roster->post[rank];
	uint64_t words[3];

	get_words(desc, words);
	/* The words too are stored with release and read with acquire: a reader that sees one
	 * overwritten also sees that `entered` moved on. */
#pragma GCC unroll 3
	for (int i = 0; i < 3; i++)
		atomic_store_explicit(&post->history[desc->seq % KO_HISTORY][i], words[i],
				      memory_order_release);
	/* Pairs with the acquire in ko_roster_desc: who sees the number sees the descriptor. */
	atomic_store_explicit(&post->entered, desc->seq, memory_order_release);
}

void ko_roster_finish(struct ko_roster *roster, int rank, uint64_t seq)
{
	/* Pairs with the acquire that reads a dead rank's last operation: who sees the number sees
	 * what that rank sent. */
	atomic_store_explicit(&roster->post[rank].finished, seq, memory_order_release);
}

struct ko_said ko_roster_say(const struct ko_roster *roster, int rank)
{
	const struct ko_post *post = &roster->post[rank];
	uint64_t entered = atomic_load_explicit(&post->entered, memory_order_relaxed);
	struct ko_said said = {
		.finished = atomic_load_explicit(&post->finished, memory_order_relaxed),
		.waiting_for = ko_post_waits_for(post),
		.complete = atomic_load_explicit(&post->complete, memory_order_relaxed),
	};

	if (entered)
		ko_roster_desc(roster, rank, entered, &said.desc);
	if (entered > 1)
		ko_roster_desc(roster, rank, entered - 1, &said.before);
	return said;
}

void ko_roster_hear(struct ko_roster *roster, int rank, const struct ko_said *said)
{
	struct ko_post *post = &roster->post[rank];

	if (said->before.seq)
		ko_roster_enter(roster, rank, &said->before);
	if (said->desc.seq)
		ko_roster_enter(roster, rank, &said->desc);
	ko_roster_finish(roster, rank, said->finished);
	ko_post_wait_for(post, said->waiting_for);
	atomic_store_explicit(&post->complete, said->complete, memory_order_release);
	atomic_store_explicit(&post->beat, ko_now_ms(), memory_order_relaxed);
}

void ko_roster_post_p2p(struct ko_roster *roster, int rank, const struct ko_desc *desc)
{
	uint64_t words[3] = { 0 };

	if (desc)
		get_words(desc, words);
	for (int i = 0; i < 3; i++)
		atomic_store_explicit(&roster->post[rank].pair[i], words[i], memory_order_relaxed);
}

bool ko_roster_p2p(const struct ko_roster *roster, int rank, struct ko_desc *out)
{
	uint64_t words[3];

	/* Only for people: it does no harm if the words are of two descriptors. */
	for (int i = 0; i < 3; i++)
		words[i] = atomic_load_explicit(&roster->post[rank].pair[i], memory_order_relaxed);
	memcpy(out, words, sizeof(*out));
	return ko_desc_is_p2p(out);
}

bool ko_roster_desc(const struct ko_roster *roster, int rank, uint64_t seq, struct ko_desc *out)
{
	const struct ko_post *post = &roster->post[rank];
	uint64_t words[3];

	if (atomic_load_explicit(&post->entered, memory_order_acquire) < seq)
		return false;
	for (int i = 0; i < 3; i++)
		words[i] = atomic_load_explicit(&post->history[seq % KO_HISTORY][i],
						memory_order_acquire);
	memcpy(out, words, sizeof(*out));
	/* The words are whole if their writer has not come round to them since. A rank of another
	 * host has posted only some operations. */
	return out->seq == seq &&
	       atomic_load_explicit(&post->entered, memory_order_relaxed) < seq + KO_HISTORY - 1;
}

static const char *name_of_op(const struct ko_desc *desc)
{
	if (desc->op == KO_DESC_PREMUL)
		return "premul_sum";
	return desc->op == KO_DESC_MADE ? "its own op" : kolo_op_name((enum kolo_op)desc->op);
}

/* Writes the arguments, for example "n=1024, f32, sum, root 3". */
static void describe_arguments(const struct ko_desc *desc, char *out, size_t len)
{
	const char *op = name_of_op(desc), *name = kolo_type_name((enum kolo_type)desc->type);
	bool has_op = ko_coll_reduces(desc->coll) && op, bytes = desc->type == KO_DESC_BYTES;
	uint64_t count = bytes ? desc->n & ((1ULL << KO_DESC_SIZE) - 1) : desc->n;
	char n[32] = "", counts[48] = "", root[24] = "", type[24];

	if (desc->how & KO_UNEVEN && desc->coll != KO_REDUCE_SCATTER && desc->coll != KO_ALL_GATHER)
		snprintf(n, sizeof(n), "any n"); /* each pair of ranks has its own n */
	else
		snprintf(n, sizeof(n), "n=%" PRIu64, count);
	if (bytes)
		snprintf(type, sizeof(type), "%u bytes each", (unsigned)(desc->n >> KO_DESC_SIZE));
	else
		snprintf(type, sizeof(type), "%s", name ? name : "?");
	if (ko_coll_has_root(desc->coll))
		snprintf(root, sizeof(root), ", root %d", desc->root);
	else if (desc->how & KO_UNEVEN && desc->root != -1)
		snprintf(counts, sizeof(counts), " in all, counts with hash %08x",
			 (uint32_t)desc->root);
	snprintf(out, len, "%s%s, %s%s%s%s", n, counts, type, has_op ? ", " : "", has_op ? op : "",
		 root);
}

const char *ko_desc_text(const struct ko_desc *desc, char out[KO_DESC_TEXT])
{
	const char *coll = ko_coll_name(desc->coll), *suffix = desc->how & KO_UNEVEN ? "_v" : "";
	const char *where = desc->how & KO_RECORDED ? " on a stream" : "";
	char arguments[KO_DESC_TEXT - 40];

	describe_arguments(desc, arguments, sizeof(arguments));
	if (desc->coll == KO_GROUP)
		snprintf(out, KO_DESC_TEXT, "a group of %" PRIu64 " sends and recvs", desc->n);
	else if (ko_desc_is_p2p(desc))
		snprintf(out, KO_DESC_TEXT, "%s(%s, peer %d)", coll, arguments, desc->root);
	else if (desc->seq == 0)
		snprintf(out, KO_DESC_TEXT, "the creation of its communicator");
	else if (desc->coll == KO_BARRIER)
		snprintf(out, KO_DESC_TEXT, "#%" PRIu64 " barrier%s", desc->seq, where);
	else if (desc->coll == KO_ALLOC)
		snprintf(out, KO_DESC_TEXT, "#%" PRIu64 " kolo_alloc of %" PRIu64 " bytes",
			 desc->seq, desc->n);
	else if (desc->coll == KO_FREE)
		snprintf(out, KO_DESC_TEXT,
			 "#%" PRIu64 " kolo_free of its kolo_alloc number %" PRIu64, desc->seq,
			 desc->n);
	else if (desc->coll == KO_REGISTER)
		snprintf(out, KO_DESC_TEXT, "#%" PRIu64 " kolo_cuda_register of %" PRIu64 " bytes",
			 desc->seq, desc->n);
	else if (desc->coll == KO_DEREGISTER)
		snprintf(out, KO_DESC_TEXT,
			 "#%" PRIu64 " kolo_cuda_deregister of its registration number %" PRIu64,
			 desc->seq, desc->n);
	else
		snprintf(out, KO_DESC_TEXT, "#%" PRIu64 " %s%s(%s)%s", desc->seq, coll, suffix,
			 arguments, where);
	return out;
}

uint64_t ko_desc_history(uint64_t history, const struct ko_desc *desc)
{
	uint64_t words[3];

	get_words(desc, words);
	history += words[0] * 0x9e3779b97f4a7c15 + words[1] * 0xd6e8feb86659fd93 +
		   words[2] * 0xa0761d6478bd642f;
	/* The finalizer of splitmix64: each input bit changes half of the output bits. */
	history = (history ^ history >> 30) * 0xbf58476d1ce4e5b9;
	history = (history ^ history >> 27) * 0x94d049bb133111eb;
	return history ^ history >> 31;
}

bool ko_roster_fail(struct ko_roster *roster, int rank, int code, const char *text, bool later)
{
	uint32_t none = KO_SOUND;

	if (!atomic_compare_exchange_strong_explicit(&roster->failed, &none,
						     KO_FAILING + (uint32_t)rank,
						     memory_order_relaxed, memory_order_relaxed))
		return false;
	roster->code = code;
	roster->later = later;
	snprintf(roster->text, sizeof(roster->text), "%s", text);
	/* Pairs with the acquire in ko_roster_cause. */
	atomic_store_explicit(&roster->failed, KO_FAILED, memory_order_release);
	return true;
}

bool ko_roster_complete(const struct ko_roster *roster, int rank)
{
	return atomic_load_explicit(&roster->post[rank].complete, memory_order_acquire);
}

bool ko_roster_failed_later(const struct ko_roster *roster)
{
	return atomic_load_explicit(&roster->failed, memory_order_acquire) == KO_FAILED &&
	       roster->later;
}

int ko_roster_report(const struct ko_roster *roster)
{
	/* ms: the writer needs nanoseconds, unless it was killed meanwhile */
	enum { PATIENCE_MS = 200 };
	uint32_t failed = atomic_load_explicit(&roster->failed, memory_order_acquire);

	for (int ms = 0; failed >= KO_FAILING && ms < PATIENCE_MS; ms++) {
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		failed = atomic_load_explicit(&roster->failed, memory_order_acquire);
	}
	if (failed >= KO_FAILING)
		return ko_fail(KOLO_EPEER,
			       "rank %u failed, and ended or stopped before it could say why",
			       failed - KO_FAILING);
	return ko_fail(roster->code, "%s", roster->text);
}
