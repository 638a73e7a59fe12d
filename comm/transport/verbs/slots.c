/* Moves slots through RDMA verbs (ko_verbs_acquire to ko_verbs_drain), and handles lent memory
 * (ko_verbs_lend, ko_verbs_offer). end.h says what lies where in memory. */
#include "comm/transport/verbs/end.h"

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/reduce/reduce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct verbs_end *end_of(struct ko_link *link)
{
	return (struct verbs_end *)link;
}

/* ---- What failed, in words ------------------------------------------------------------------- */

static const struct {
	enum ibv_wc_status status;
	const char *meaning;
} meanings[] = {
	{ IBV_WC_RETRY_EXC_ERR,
	  "the other end does not answer: its process or its host is gone, or the way to it is broken; check the cable, "
	  "the switch and the port there (ibv_devinfo), on RoCE also that packets of this MTU and priority get through" },
	{ IBV_WC_RNR_RETRY_EXC_ERR,
	  "the other end had no receive for it: it was stopped, or is another version" },
	{ IBV_WC_REM_ACCESS_ERR,
	  "the other end's card refused the write: the memory there is not registered any more" },
	{ IBV_WC_REM_INV_REQ_ERR,
	  "the other end's card did not understand the write: is it another version?" },
	{ IBV_WC_REM_OP_ERR,
	  "the other end's card could not do the write; see the kernel's log there (dmesg)" },
	{ IBV_WC_LOC_PROT_ERR, "this end's memory is not registered for this access" },
	{ IBV_WC_WR_FLUSH_ERR, "the connection had failed, or was closed, before" },
	{ IBV_WC_FATAL_ERR, "the card has failed; see the kernel's log here (dmesg)" },
};

/* Keeps the link's first failure; the error text is the calling thread's. */
static int break_link(struct verbs_end *e, int code)
{
	if (!e->broken) {
		e->broken = code;
		snprintf(e->why, sizeof(e->why), "%s", kolo_last_error());
	}
	return ko_fail(e->broken, "%s", e->why);
}

static int fail_posting(struct verbs_end *e, const struct verbs_nic *nic, const char *doing,
			int err)
{
	return break_link(e, ko_verbs_fail(nic, doing, err));
}

static int fail_completion(struct verbs_end *e, const struct verbs_nic *nic,
			   const struct ibv_wc *wc)
{
	const char *meaning = "see the kernel's log at both ends (dmesg)";
	struct ibv_port_attr now;

	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].status == wc->status)
			meaning = meanings[i].meaning;
	if (ibv_query_port(nic->context, nic->port, &now) == 0 && now.state != IBV_PORT_ACTIVE)
		meaning = "this port is down: check its cable and the switch";
	return break_link(e, ko_fail(KOLO_ESYS, "verbs (%s): %s: %s (%s)", nic->name,
				     e->link.role == KO_SEND ? "writing slots" : "taking slots",
				     meaning, ibv_wc_status_str(wc->status)));
}

/* ---- Posting --------------------------------------------------------------------------------- */

int ko_verbs_expect(struct verbs_end *e, uint64_t number)
{
	uint32_t rail = (uint32_t)(number % e->nrails);
	struct ibv_recv_wr wr = { .wr_id = number }, *bad;
	int err = ibv_post_recv(verbs_qp_of(e, rail), &wr, &bad);

	return err ? fail_posting(e, verbs_nic_of(e, rail), "posting a receive", err) : 0;
}

/* Sender: writes a record to the same place of the other end's memory. It is in n pieces here; n =
 * 0 only asks for a completion of earlier writes. The completion carries `posted`. device: a piece
 * is in a device's memory, which only the card may read. */
static int post_write(struct verbs_end *e, uint32_t rail, struct ibv_sge *pieces, int n,
		      bool signalled, bool device)
{
	struct ibv_send_wr *bad, wr = { .wr_id = e->posted[rail], .sg_list = pieces, .num_sge = n };
	size_t len = 0;
	int err;

	wr.opcode = n ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	wr.imm_data = htonl((uint32_t)(e->posted[rail] - 1));
	wr.wr.rdma.remote_addr = e->base + (n ? pieces[0].addr - (uintptr_t)e->memory : 0);
	wr.wr.rdma.rkey = e->keys[rail % e->nnics];
	for (int i = 0; i < n; i++)
		len += pieces[i].length;
	wr.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
			(n && !device && len <= e->max_inline ? IBV_SEND_INLINE : 0);
	err = ibv_post_send(verbs_qp_of(e, rail), &wr, &bad);
	return err ? fail_posting(e, verbs_nic_of(e, rail), "writing a slot", err) : 0;
}

/* The lent memory that these bytes are in. */
static const struct verbs_lent *find_lent(const struct verbs_end *e, const char *bytes)
{
	const struct ko_lent *l = e->link.lent;

	while (bytes < l->memory || bytes >= l->memory + l->len)
		l = l->next;
	return (const struct verbs_lent *)l;
}

/* How many records share a completion: half of those that may be under way. */
static uint32_t batch_of(const struct verbs_end *e)
{
	return e->limits.single ? 1 : VERBS_RECORDS / 2 / e->nrails;
}

/* Sender: writes bytes to their place in the offered vector. */
static int post_bytes(struct verbs_end *e, uint32_t rail, struct ibv_sge *bytes, size_t belongs)
{
	struct ibv_send_wr *bad,
		wr = { .sg_list = bytes, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	int err;

	wr.wr.rdma.remote_addr = e->offer.base + belongs - 1;
	wr.wr.rdma.rkey = e->offer.keys[rail % e->nnics];
	err = ibv_post_send(verbs_qp_of(e, rail), &wr, &bad);
	return err ? fail_posting(e, verbs_nic_of(e, rail), "writing to offered memory", err) : 0;
}

/* Sender: sends the record that was just filled. If its bytes are not in the ring it gets a
 * completion of its own, because drain waits for that. */
static int post_record(struct verbs_end *e, const struct ko_slot *slot, bool offered)
{
	struct verbs_head *head = verbs_head_at(e, e->at);
	uint32_t rail = (uint32_t)(e->committed % e->nrails), len = (uint32_t)slot->len;
	struct ibv_sge pieces[2] = {
		{ (uintptr_t)head, (uint32_t)sizeof(*head), verbs_nic_of(e, rail)->mr->lkey },
		{ (uintptr_t)slot->ptr, len, verbs_nic_of(e, rail)->mr->lkey },
	};
	bool borrowed = len > 0 && slot->ptr != verbs_slot_at(e, e->at);
	bool signalled = ++e->unsignalled[rail] >= batch_of(e) || borrowed, device = false;
	int rc;

	e->posted[rail] = e->committed + 1;
	if (borrowed) {
		const struct verbs_lent *lent = find_lent(e, slot->ptr);

		pieces[1].lkey = lent->mrs[rail % e->nnics]->lkey;
		device = lent->lent.device;
		e->borrowed[rail] = e->posted[rail];
	}
	if (signalled)
		e->unsignalled[rail] = 0;
	if (offered) { /* the two writes arrive in this order too */
		rc = post_bytes(e, rail, &pieces[1], slot->belongs);
		return rc < 0 ? rc : post_write(e, rail, pieces, 1, signalled, false);
	}
	if (!borrowed)
		pieces[0].length += len;
	return post_write(e, rail, pieces, borrowed ? 2 : 1, signalled, device);
}

/* Receiver: writes a piece of its own memory to the same place of the sender's. If it is not
 * inline, the card reads it later: a later value is as good. */
static int post_word(struct verbs_end *e, const char *at, uint32_t len, const char *doing)
{
	struct verbs_nic *nic = &e->nics[0];
	struct ibv_sge sge = { (uintptr_t)at, len, nic->mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	bool signalled = ++e->credits_flying % (VERBS_CREDITS / 2) == 0;
	int err;

	wr.send_flags =
		(signalled ? IBV_SEND_SIGNALED : 0) | (len <= e->max_inline ? IBV_SEND_INLINE : 0);
	wr.wr.rdma.remote_addr = e->base + (uint64_t)(at - e->memory);
	wr.wr.rdma.rkey = e->keys[0];
	err = ibv_post_send(nic->qps[0], &wr, &bad);
	return err ? fail_posting(e, nic, doing, err) : 0;
}

static int post_credits(struct verbs_end *e)
{
	atomic_store_explicit(verbs_credit_word(e), e->told + 1, memory_order_relaxed);
	return post_word(e, e->memory, sizeof(uint64_t), "writing credits");
}

/* The receives come first: a sender that is told may write at once. */
int ko_verbs_tell(struct verbs_end *e)
{
	int rc = 0;

	if (e->credits_flying == VERBS_CREDITS)
		return 0; /* later, when some are known to be done */
	for (; rc == 0 && e->told < e->released; e->told++)
		rc = ko_verbs_expect(e, e->told + VERBS_RECORDS);
	e->told_at = e->at;
	return rc < 0 ? rc : post_credits(e);
}

/* ---- Completions ----------------------------------------------------------------------------- */

static int take(struct verbs_end *e, const struct verbs_nic *nic, const struct ibv_wc *wc)
{
	uint32_t number;

	if (wc->status != IBV_WC_SUCCESS)
		return fail_completion(e, nic, wc);
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		number = ntohl(wc->imm_data);
		if (number - (uint32_t)e->released >= VERBS_RECORDS)
			return break_link(
				e,
				ko_fail(KOLO_ESYS,
					"verbs (%s): slot %u was announced, but slot %u was expected",
					nic->name, number, (uint32_t)e->released));
		e->has_arrived[number % VERBS_RECORDS] = true;
	} else if (e->link.role == KO_SEND) {
		e->retired[(wc->wr_id - 1) % e->nrails] = wc->wr_id;
	} else {
		e->credits_flying -= VERBS_CREDITS / 2;
	}
	return 0;
}

static int reap_nic(struct verbs_end *e, const struct verbs_nic *nic)
{
	enum { MANY = 16 };
	struct ibv_wc wcs[MANY];
	int got, rc = 0;

	do {
		got = ibv_poll_cq(nic->cq, MANY, wcs);
		for (int i = 0; i < got; i++) {
			int failed = take(e, nic, &wcs[i]);

			rc = rc < 0 ? rc : failed;
		}
	} while (got == MANY);
	return got < 0 ? fail_posting(e, nic, "polling for completions", EIO) : rc;
}

/* Handles all completions that have come, even if the link has failed: one rail may have what
 * another one has not. 0, or the link's failure. */
static int reap(struct verbs_end *e)
{
	for (uint32_t n = 0; n < e->nnics; n++)
		reap_nic(e, &e->nics[n]);
	return e->broken ? ko_fail(e->broken, "%s", e->why) : 0;
}

/* ---- The table's entries --------------------------------------------------------------------- */

/* Goes on to the next record. A record never wraps: it begins where the largest one fits. */
static void step(struct verbs_end *e, size_t len)
{
	uint64_t rest;

	e->link.bytes += len;
	e->link.slots++;
	e->at += VERBS_GAP + (len + VERBS_GAP - 1) / VERBS_GAP * VERBS_GAP;
	rest = e->ring_len - e->at % e->ring_len;
	if (rest < e->most)
		e->at += rest;
}

/* Reads the credits, which the card writes at any time. A word of which not all bytes are written
 * yet is too large or too small, and is ignored. */
static void read_credits(struct verbs_end *e)
{
	uint64_t word = atomic_load_explicit(verbs_credit_word(e), memory_order_acquire);

	if (word - 1 > e->credited && word - 1 <= e->committed)
		e->credited = word - 1;
}

/* Is there room in the ring and in the rail's queue? The ring is free up to what was released. The
 * card does not need those bytes again: it has arrived. A packet that is sent again because its
 * acknowledgement was lost is not written again (C9-105 in the InfiniBand specification). */
static bool has_room(const struct verbs_end *e)
{
	uint64_t free = e->credited ? e->ends[(e->credited - 1) % VERBS_RECORDS] : 0;

	return e->committed - e->credited < VERBS_RECORDS &&
	       e->at + e->most <= free + e->ring_len &&
	       e->committed - e->retired[e->committed % e->nrails] < 2 * VERBS_RECORDS;
}

int ko_verbs_acquire(struct ko_link *link, struct ko_slot *out)
{
	struct verbs_end *e = end_of(link);
	int rc = 0;

	if (e->broken)
		return ko_fail(e->broken, "%s", e->why);
	read_credits(e);
	if (!has_room(e))
		rc = reap(e);
	if (rc < 0)
		return rc;
	if (!has_room(e))
		return KO_EAGAIN;
	*out = (struct ko_slot){ .ptr = verbs_slot_at(e, e->at) };
	return 0;
}

static uint64_t check_of(const struct verbs_offer *offer)
{
	uint64_t words[offsetof(struct verbs_offer, check) / sizeof(uint64_t)], check = 1;

	memcpy(words, offer, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		check = (check ^ words[i]) * 0x9e3779b97f4a7c15u;
	return check;
}

/* Sender: has the receiver offered memory where the slot belongs? The card writes the offer at any
 * time. */
static bool is_offered(struct verbs_end *e, const struct ko_slot *slot)
{
	const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)verbs_offer_at(e);
	uint64_t words[sizeof(e->offer) / sizeof(uint64_t)];
	struct verbs_offer now;

	if (!slot->belongs || slot->len < KO_LENT_MIN)
		return false;
	if (e->offer.began != e->link.began || !e->offer.check) {
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			words[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
		memcpy(&now, words, sizeof(now));
		if (now.began != e->link.began || now.check != check_of(&now))
			return false;
		e->offer = now;
	}
	return slot->belongs - 1 <= e->offer.len && slot->len <= e->offer.len - (slot->belongs - 1);
}

int ko_verbs_commit(struct ko_link *link, const struct ko_slot *slot)
{
	struct verbs_end *e = end_of(link);
	bool offered = is_offered(e, slot);

	if (link->writer.stores == KO_STREAMING)
		ko_stream_fence();
	*verbs_head_at(e, e->at) =
		(struct verbs_head){ (uint32_t)slot->len, slot->tag, (uint32_t)e->committed,
				     offered, slot->belongs };
	if (!e->broken)
		post_record(e, slot, offered);
	step(e, slot->len);
	e->ends[e->committed++ % VERBS_RECORDS] = e->at;
	return 0;
}

/* Are half of the ring or of the records free again? */
static bool should_tell(const struct verbs_end *e)
{
	return e->released - e->told >= VERBS_RECORDS / 2 || e->at - e->told_at >= e->ring_len / 2;
}

/* A slot that has arrived can be used, even if the link has failed since. If the sender could not
 * be told earlier what is free, it is told now: this rank may wait for that sender. */
int ko_verbs_peek(struct ko_link *link, void *into, size_t len, struct ko_slot *out)
{
	struct verbs_end *e = end_of(link);
	const struct verbs_head *head = verbs_head_at(e, e->at);
	const bool *here = &e->has_arrived[e->released % VERBS_RECORDS];
	int rc = *here ? 0 : reap(e);

	(void)into;
	(void)len;
	if (!*here && rc == 0 && should_tell(e))
		rc = ko_verbs_tell(e);
	if (!*here)
		return rc < 0 ? rc : KO_EAGAIN;
	if (head->number != (uint32_t)e->released || head->len > e->limits.slot_len ||
	    (head->offered && (head->belongs == 0 || head->belongs + head->len > e->offer.len + 1)))
		return ko_fail(KOLO_ESYS,
			       "verbs (%s): slot %u of %u bytes came, but slot %u was expected",
			       link->through, head->number, head->len, (uint32_t)e->released);
	*out = (struct ko_slot){ .ptr = head->offered ? (char *)e->offer.base + head->belongs - 1
						      : verbs_slot_at(e, e->at),
				 .len = head->len,
				 .tag = head->tag };
	return 0;
}

int ko_verbs_release(struct ko_link *link)
{
	struct verbs_end *e = end_of(link);

	e->has_arrived[e->released++ % VERBS_RECORDS] = false;
	step(e, verbs_head_at(e, e->at)->len);
	if (!e->broken && should_tell(e))
		ko_verbs_tell(e);
	return 0;
}

int ko_verbs_progress(struct ko_link *link)
{
	struct verbs_end *e = end_of(link);
	int rc = reap(e);

	return rc == 0 && link->role == KO_RECV && e->told < e->released ? ko_verbs_tell(e) : rc;
}

/* Has each rail retired its records up to until[rail]? */
static bool has_retired(const struct verbs_end *e, const uint64_t until[VERBS_RAILS])
{
	for (uint32_t r = 0; r < e->nrails; r++)
		if (e->retired[r] < until[r])
			return false;
	return true;
}

/* Cards deliver what was posted without calls. So this waits only for bytes outside the ring, which
 * are the caller's again afterwards. */
int ko_verbs_drain(struct ko_link *link)
{
	struct verbs_end *e = end_of(link);
	int rc = 0;

	if (e->broken || !has_retired(e, e->borrowed))
		rc = reap(e);
	return rc < 0 || has_retired(e, e->borrowed) ? rc : KO_EAGAIN;
}

void ko_verbs_linger(struct verbs_end *e)
{
	enum { LINGER_MS = 5000 }; /* ms: a lost packet is sent again after 1 to 4 s */
	int64_t deadline = ko_now_ms() + LINGER_MS;
	int rc = 0;

	read_credits(e);
	if (e->credited == e->committed)
		return;
	for (uint32_t r = 0; rc == 0 && r < e->nrails; r++)
		if (e->unsignalled[r])
			rc = post_write(e, r, NULL, 0, true, false);
	while (rc == 0 && !has_retired(e, e->posted) && ko_now_ms() < deadline) {
		rc = reap(e);
		sched_yield();
	}
}

/* ---- Memory of others ------------------------------------------------------------------------ */

static void unregister(struct verbs_lent *lent)
{
	for (int n = 0; n < VERBS_NICS; n++)
		if (lent->mrs[n])
			ibv_dereg_mr(lent->mrs[n]);
	free(lent);
}

/* Registers memory; fd is -1 for ordinary memory. */
static struct ibv_mr *register_memory(const struct verbs_end *e, struct ibv_pd *pd, void *memory,
				      size_t len, int fd, uint64_t offset)
{
	int access = e->link.role == KO_RECV ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;

	return fd < 0 ? ibv_reg_mr(pd, memory, len, access)
		      : ibv_reg_dmabuf_mr(pd, offset, len, (uintptr_t)memory, fd, access);
}

static int lend(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset)
{
	struct verbs_end *e = end_of(link);
	struct verbs_lent *lent = calloc(1, sizeof(*lent));

	if (!lent)
		return ko_fail(KOLO_ENOMEM, "verbs: no memory for the list of lent memory");
	lent->lent = (struct ko_lent){ link->lent, memory, len, fd >= 0 };
	for (uint32_t n = 0; n < e->nnics; n++) {
		lent->mrs[n] = register_memory(e, e->nics[n].pd, memory, len, fd, offset);
		if (!lent->mrs[n]) {
			const char *doing = fd < 0 ? "registering memory"
						   : "registering a device's memory (dmabuf)";
			int rc = ko_verbs_fail(&e->nics[n], doing, errno);

			unregister(lent);
			return rc;
		}
	}
	link->lent = &lent->lent;
	return 0;
}

int ko_verbs_lend(struct ko_link *link, void *memory, size_t len)
{
	return lend(link, memory, len, -1, 0);
}

int ko_verbs_lend_device(struct ko_link *link, void *memory, size_t len, int fd, uint64_t offset)
{
	return lend(link, memory, len, fd, offset);
}

void ko_verbs_take_back(struct ko_link *link, void *memory)
{
	for (struct ko_lent **at = &link->lent; *at; at = &(*at)->next) {
		struct ko_lent *lent = *at;

		if (lent->memory != memory)
			continue;
		*at = lent->next;
		unregister((struct verbs_lent *)lent);
		return;
	}
}

void ko_verbs_offer(struct ko_link *link, void *vector, size_t len)
{
	struct verbs_end *e = end_of(link);
	const struct verbs_lent *lent = find_lent(e, vector);
	struct verbs_offer offer = { .base = (uintptr_t)vector, .len = len, .began = link->began };

	if (e->credits_flying == VERBS_CREDITS)
		reap(e);
	if (e->broken || e->credits_flying == VERBS_CREDITS)
		return;
	for (uint32_t n = 0; n < e->nnics; n++)
		offer.keys[n] = lent->mrs[n]->rkey;
	offer.check = check_of(&offer);
	e->offer = offer;
	memcpy(verbs_offer_at(e), &offer, sizeof(offer));
	post_word(e, verbs_offer_at(e), sizeof(offer), "writing an offer");
}

void ko_verbs_take_all_back(struct verbs_end *e)
{
	while (e->link.lent)
		ko_verbs_take_back(&e->link, (void *)e->link.lent->memory);
}
