/* Links through RDMA verbs: how slots move. See verbs_end.h for what lies where. */
#include "verbs.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "verbs_end.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Software that plays an RDMA card is slower than the kernel's TCP: it counts when it is asked for. */
static int probe_places(const struct ko_place *a, const struct ko_place *b, bool asked)
{
	const struct ko_place *less = a->rdma < b->rdma ? a : b;

	if (less->rdma == KO_RDMA_CARD || (less->rdma == KO_RDMA_SOFTWARE && asked))
		return 0;
	return ko_fail(KOLO_ENOTSUP, "verbs: no %s on %s is active; ibv_devinfo shows those there are",
		       asked ? "RDMA port" : "port of an RDMA card", less->host);
}

static struct verbs_end *end_of(struct ko_link *link)
{
	return (struct verbs_end *)link;
}

/* ---- What failed, in words ------------------------------------------------------------------------------ */

static const struct {
	enum ibv_wc_status status;
	const char *meaning;
} meanings[] = {
	{ IBV_WC_RETRY_EXC_ERR,
	  "the other end does not answer: its process or its host is gone, or the way to it is broken; check the cable, "
	  "the switch and the port there (ibv_devinfo), on RoCE also that packets of this MTU and priority get through" },
	{ IBV_WC_RNR_RETRY_EXC_ERR,
	  "the other end had nowhere to put it: it was stopped, or is another version" },
	{ IBV_WC_REM_ACCESS_ERR,
	  "the other end's card refused the write: the memory there is not registered any more" },
	{ IBV_WC_REM_INV_REQ_ERR,
	  "the other end's card did not understand the write: is it another version?" },
	{ IBV_WC_REM_OP_ERR, "the other end's card could not do it; see the kernel's log there" },
	{ IBV_WC_LOC_PROT_ERR, "this end's memory is not registered as it must be" },
	{ IBV_WC_WR_FLUSH_ERR, "the connection had failed, or was closed, before" },
	{ IBV_WC_FATAL_ERR, "the card has failed; see the kernel's log here (dmesg)" },
};

/* Keeps the first failure of the link. */
static int break_link(struct verbs_end *e, int code)
{
	if (!e->broken) {
		e->broken = code;
		snprintf(e->why, sizeof(e->why), "%s", kolo_last_error());
	}
	return ko_fail(e->broken, "%s", e->why);
}

static int fail_posting(struct verbs_end *e, const struct verbs_nic *nic, const char *doing, int err)
{
	return break_link(e, ko_verbs_fail(nic, doing, err));
}

static int fail_completion(struct verbs_end *e, const struct verbs_nic *nic, const struct ibv_wc *wc)
{
	const char *meaning = "see the kernel's log at both ends (dmesg)";
	struct ibv_port_attr now;

	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].status == wc->status)
			meaning = meanings[i].meaning;
	if (ibv_query_port(nic->context, nic->port, &now) == 0 && now.state != IBV_PORT_ACTIVE)
		meaning = "this port is down: check its cable and the switch";
	return break_link(e, ko_fail(KOLO_ESYS, "verbs (%s): %s: %s (%s)", nic->name,
				     e->link.role == KO_SEND ? "writing slots" : "taking slots", meaning,
				     ibv_wc_status_str(wc->status)));
}

/* ---- Posting -------------------------------------------------------------------------------------------- */

int ko_verbs_expect(struct verbs_end *e, uint64_t number)
{
	uint32_t rail = (uint32_t)(number % e->nrails);
	struct ibv_recv_wr wr = { .wr_id = number }, *bad;
	int err = ibv_post_recv(verbs_qp_of(e, rail), &wr, &bad);

	return err ? fail_posting(e, verbs_nic_of(e, rail), "posting a receive", err) : 0;
}

/* Sender: writes `len` bytes from `from` to the same place of the other end's memory; 0 bytes only ask for a completion
 * of what went before. `posted` comes back with it. */
static int post_write(struct verbs_end *e, uint32_t rail, const void *from, size_t len, bool signalled)
{
	struct verbs_nic *nic = verbs_nic_of(e, rail);
	struct ibv_sge sge = { (uintptr_t)from, (uint32_t)len, nic->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = e->posted[rail], .sg_list = &sge, .num_sge = len > 0 };
	int err;

	wr.opcode = len ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	wr.imm_data = htonl((uint32_t)(e->posted[rail] - 1));
	wr.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) | (len <= e->max_inline ? IBV_SEND_INLINE : 0);
	wr.wr.rdma.remote_addr = e->base + (uint64_t)((const char *)from - e->memory);
	wr.wr.rdma.rkey = e->keys[rail % e->nnics];
	err = ibv_post_send(verbs_qp_of(e, rail), &wr, &bad);
	return err ? fail_posting(e, nic, "writing a slot", err) : 0;
}

/* Sender: the record that was just filled goes out. Half of those that may be under way share a completion. */
static int post_record(struct verbs_end *e)
{
	struct verbs_head *head = verbs_head_at(e, e->at);
	uint32_t rail = (uint32_t)(e->committed % e->nrails);
	bool signalled = ++e->unsignalled[rail] >= VERBS_RECORDS / 2 / e->nrails;

	if (signalled)
		e->unsignalled[rail] = 0;
	e->posted[rail] = e->committed + 1;
	return post_write(e, rail, head, sizeof(*head) + head->len, signalled);
}

/* Receiver: the word is read where it lies when it is not inline; a later value is as good. */
static int post_credits(struct verbs_end *e)
{
	struct verbs_nic *nic = &e->nics[0];
	struct ibv_sge sge = { (uintptr_t)e->memory, sizeof(uint64_t), nic->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	bool signalled = ++e->credits_flying % (VERBS_CREDITS / 2) == 0;
	int err;

	atomic_store_explicit(verbs_credit_word(e), e->told + 1, memory_order_relaxed);
	wr.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
			(sizeof(uint64_t) <= e->max_inline ? IBV_SEND_INLINE : 0);
	wr.wr.rdma.remote_addr = e->base;
	wr.wr.rdma.rkey = e->keys[0];
	err = ibv_post_send(nic->qps[0], &wr, &bad);
	return err ? fail_posting(e, nic, "writing credits", err) : 0;
}

/* The receives come first: whoever is told may write at once. */
int ko_verbs_tell(struct verbs_end *e)
{
	int rc = 0;

	if (e->credits_flying == VERBS_CREDITS)
		return 0; /* until some are known to be gone */
	for (; rc == 0 && e->told < e->released; e->told++)
		rc = ko_verbs_expect(e, e->told + VERBS_RECORDS);
	e->told_at = e->at;
	return rc < 0 ? rc : post_credits(e);
}

/* ---- Completions ---------------------------------------------------------------------------------------- */

static int take(struct verbs_end *e, const struct verbs_nic *nic, const struct ibv_wc *wc)
{
	uint32_t number;

	if (wc->status != IBV_WC_SUCCESS)
		return fail_completion(e, nic, wc);
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		number = ntohl(wc->imm_data);
		if (number - (uint32_t)e->released >= VERBS_RECORDS)
			return break_link(e,
					  ko_fail(KOLO_ESYS, "verbs (%s): notice of slot %u where %u was due",
						  nic->name, number, (uint32_t)e->released));
		e->has_arrived[number % VERBS_RECORDS] = true;
	} else if (e->link.role == KO_SEND) {
		e->retired[(wc->wr_id - 1) % e->nrails] = wc->wr_id;
	} else {
		e->credits_flying -= VERBS_CREDITS / 2;
	}
	return 0;
}

/* Takes what has come. 0, or what the link failed with. */
static int reap(struct verbs_end *e)
{
	enum { MANY = 16 };
	struct ibv_wc wcs[MANY];
	int got, rc = 0;

	if (e->broken)
		return ko_fail(e->broken, "%s", e->why);
	for (uint32_t n = 0; rc == 0 && n < e->nnics; n++) {
		do {
			got = ibv_poll_cq(e->nics[n].cq, MANY, wcs);
			for (int i = 0; rc == 0 && i < got; i++)
				rc = take(e, &e->nics[n], &wcs[i]);
		} while (rc == 0 && got == MANY);
		if (rc == 0 && got < 0)
			rc = fail_posting(e, &e->nics[n], "polling for completions", EIO);
	}
	return rc;
}

/* ---- The table's entries -------------------------------------------------------------------------------- */

/* On to the next record, which never wraps: it begins where the largest one fits. */
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

/* The card writes the word at any time. One of which not all bytes are written yet is out of bounds or too small. */
static void read_credits(struct verbs_end *e)
{
	uint64_t word = atomic_load_explicit(verbs_credit_word(e), memory_order_acquire);

	if (word - 1 > e->credited && word - 1 <= e->committed)
		e->credited = word - 1;
}

/* In the ring, which what was released left free, and in the rail's queue. What was released has arrived, so the card
 * does not need its bytes: a packet that is sent again because its acknowledgement was lost is not written again (C9-105
 * in the InfiniBand specification). */
static bool has_room(const struct verbs_end *e)
{
	uint64_t free = e->credited ? e->ends[(e->credited - 1) % VERBS_RECORDS] : 0;

	return e->committed - e->credited < VERBS_RECORDS && e->at + e->most <= free + e->ring_len &&
	       e->committed - e->retired[e->committed % e->nrails] < 2 * VERBS_RECORDS;
}

static int acquire_slot(struct ko_link *link, struct ko_slot *out)
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

static int commit_slot(struct ko_link *link, const struct ko_slot *slot)
{
	struct verbs_end *e = end_of(link);

	if (link->stores == KO_STREAMING)
		ko_stream_fence();
	*verbs_head_at(e, e->at) = (struct verbs_head){ slot->len, slot->tag, (uint32_t)e->committed };
	if (!e->broken)
		post_record(e);
	step(e, slot->len);
	e->ends[e->committed++ % VERBS_RECORDS] = e->at;
	return 0;
}

/* What has arrived can be used, whatever happened to the link since. */
static int peek_slot(struct ko_link *link, struct ko_slot *out)
{
	struct verbs_end *e = end_of(link);
	const struct verbs_head *head = verbs_head_at(e, e->at);
	const bool *here = &e->has_arrived[e->released % VERBS_RECORDS];
	int rc = *here ? 0 : reap(e);

	if (!*here)
		return rc < 0 ? rc : KO_EAGAIN;
	if (head->number != (uint32_t)e->released || head->len > e->limits.slot_len)
		return ko_fail(KOLO_ESYS, "verbs (%s): slot %u of %llu bytes came where %u was due",
			       link->through, head->number, (unsigned long long)head->len,
			       (uint32_t)e->released);
	*out = (struct ko_slot){ .ptr = verbs_slot_at(e, e->at), .len = head->len, .tag = head->tag };
	return 0;
}

/* The sender is told when half of the ring or of the records are free again. */
static int release_slot(struct ko_link *link)
{
	struct verbs_end *e = end_of(link);

	e->has_arrived[e->released++ % VERBS_RECORDS] = false;
	step(e, verbs_head_at(e, e->at)->len);
	if (!e->broken &&
	    (e->released - e->told >= VERBS_RECORDS / 2 || e->at - e->told_at >= e->ring_len / 2))
		ko_verbs_tell(e);
	return 0;
}

static int progress_link(struct ko_link *link)
{
	struct verbs_end *e = end_of(link);
	int rc = reap(e);

	return rc == 0 && link->role == KO_RECV && e->told < e->released ? ko_verbs_tell(e) : rc;
}

/* Cards need no calls to deliver what was posted. */
static int drain_link(struct ko_link *link)
{
	struct verbs_end *e = end_of(link);

	return e->broken ? ko_fail(e->broken, "%s", e->why) : 0;
}

static bool has_retired(const struct verbs_end *e)
{
	for (uint32_t r = 0; r < e->nrails; r++)
		if (e->retired[r] < e->posted[r])
			return false;
	return true;
}

void ko_verbs_linger(struct verbs_end *e)
{
	enum { LINGER_MS = 2000 }; /* a lost packet is sent again after about a second */
	int64_t deadline = ko_now_ms() + LINGER_MS;
	int rc = 0;

	for (uint32_t r = 0; rc == 0 && r < e->nrails; r++)
		if (e->unsignalled[r])
			rc = post_write(e, r, e->memory, 0, true);
	while (rc == 0 && !has_retired(e) && ko_now_ms() < deadline) {
		rc = reap(e);
		sched_yield();
	}
}

const struct ko_link_ops ko_verbs_ops = {
	.name = "verbs",
	.probe = probe_places,
	.open = ko_verbs_open,
	.address = ko_verbs_address,
	.connect = ko_verbs_connect,
	.acquire = acquire_slot,
	.commit = commit_slot,
	.peek = peek_slot,
	.release = release_slot,
	.progress = progress_link,
	.drain = drain_link,
	.close = ko_verbs_close,
};
