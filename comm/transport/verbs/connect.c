/* Links through RDMA verbs (ko_verbs_ops): makes an end, and joins two.
 *
 * A card drops packets for a queue pair that is not ready, without an error; they are sent again
 * after a second. So the sender makes all its rails ready, and waits. The receiver knocks: rail 0,
 * with a short timeout, sends an empty write, again and again, until the sender's card answers.
 * Then the receiver makes all its rails ready with the real timeout, and its first credits tell the
 * sender to go on. */
#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/transport/verbs/end.h"
#include "comm/transport/verbs/slots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

/* What the other end must know of a port. */
struct verbs_port {
	uint8_t gid[16];
	uint32_t key;
	uint32_t qpns[VERBS_QPS];
	uint16_t lid;
	uint8_t mtu, link_layer, gid_type, needs_grh, reserved[2];
};

struct verbs_address {
	uint64_t slot_len, base;
	uint32_t nslots, psn, nnics, nqps;
	struct verbs_port ports[VERBS_NICS];
};

_Static_assert(sizeof(struct verbs_address) <= sizeof(((struct ko_address *)0)->bytes), "it fits");

enum {
	PSN_MASK = 0xffffff,
	KNOCK_TIMEOUT = 10, /* exponent: 4 ms */
	/* an end that is silent for so long can't be reached, or is stopped */
	GIVE_UP_MS = 120 * 1000,
};

/* ---- Queue pairs ----------------------------------------------------------------------------- */

static int modify(const struct verbs_nic *nic, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		  int mask, const char *doing)
{
	int err = ibv_modify_qp(qp, attr, mask);

	return err ? ko_verbs_fail(nic, doing, err) : 0;
}

static int to_reset(const struct verbs_nic *nic, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return modify(nic, qp, &attr, IBV_QP_STATE, "resetting a queue pair");
}

static int to_init(const struct verbs_nic *nic, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = nic->port,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	return modify(nic, qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		      "setting up a queue pair");
}

/* The route to the other end. InfiniBand needs the global address only for other subnets, and if a
 * port asks for it. */
static struct ibv_ah_attr way_to(const struct verbs_end *e, const struct verbs_nic *nic,
				 const struct verbs_port *peer)
{
	bool same_subnet = memcmp(peer->gid, nic->gid.gid.raw, sizeof(uint64_t)) == 0;
	bool global = peer->link_layer == IBV_LINK_LAYER_ETHERNET || !same_subnet ||
		      peer->needs_grh || nic->attr.flags & IBV_QPF_GRH_REQUIRED;
	struct ibv_ah_attr ah = { .dlid = peer->lid,
				  .sl = (uint8_t)e->settings.sl,
				  .port_num = nic->port,
				  .is_global = global };

	memcpy(ah.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	ah.grh.sgid_index = (uint8_t)nic->gid.gid_index;
	ah.grh.hop_limit = 255;
	ah.grh.traffic_class = (uint8_t)e->settings.traffic_class;
	return ah;
}

static int to_rtr(const struct verbs_end *e, const struct verbs_nic *nic, struct ibv_qp *qp,
		  const struct verbs_port *peer, uint32_t qpn, uint32_t psn)
{
	/* 0.64 ms; never needed, because receives are posted before credits */
	enum { RNR_TIMER = 12 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .dest_qp_num = qpn,
				    .rq_psn = psn,
				    .min_rnr_timer = RNR_TIMER,
				    .ah_attr = way_to(e, nic, peer) };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	attr.path_mtu =
		nic->attr.active_mtu < peer->mtu ? nic->attr.active_mtu : (enum ibv_mtu)peer->mtu;
	return modify(nic, qp, &attr, mask,
		      "finding the way to the other end's port (KOLO_NET=tcp works without RDMA)");
}

static int to_rts(const struct verbs_end *e, const struct verbs_nic *nic, struct ibv_qp *qp,
		  uint32_t psn, int64_t timeout)
{
	enum { FOREVER = 7 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = psn,
				    .timeout = (uint8_t)timeout,
				    .retry_cnt = (uint8_t)e->settings.retries,
				    .rnr_retry = FOREVER };

	return modify(nic, qp, &attr,
		      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		      "setting up a queue pair for sending");
}

/* Makes a rail ready, from any state. `psn` is the number of its first packet. */
static int raise_rail(struct verbs_end *e, const struct verbs_address *a, uint32_t rail,
		      uint32_t psn, int64_t timeout)
{
	const struct verbs_nic *nic = verbs_nic_of(e, rail);
	const struct verbs_port *peer = &a->ports[rail % e->nnics];
	struct ibv_qp *qp = verbs_qp_of(e, rail);
	int rc;

	if ((rc = to_reset(nic, qp)) < 0 || (rc = to_init(nic, qp)) < 0 ||
	    (rc = to_rtr(e, nic, qp, peer, peer->qpns[rail / e->nnics], a->psn)) < 0)
		return rc;
	return to_rts(e, nic, qp, psn & PSN_MASK, timeout);
}

static int raise_rails(struct verbs_end *e, const struct verbs_address *a, uint32_t psn)
{
	int rc = 0;

	for (uint32_t r = 0; rc == 0 && r < e->nrails; r++)
		rc = raise_rail(e, a, r, psn, e->settings.timeout);
	return rc;
}

/* ---- Making an end --------------------------------------------------------------------------- */

/* Makes a queue pair whose work requests have as much room for bytes as the card gives, up to a
 * small slot. */
static int make_qp(struct verbs_end *e, struct verbs_nic *nic, struct ibv_qp **out)
{
	static const uint32_t inlines[] = { 512, 256, 128, 64, 0 };
	struct ibv_qp_init_attr attr = { .send_cq = nic->cq,
					 .recv_cq = nic->cq,
					 .qp_type = IBV_QPT_RC };

	for (size_t i = 0; !*out && i < sizeof(inlines) / sizeof(inlines[0]); i++) {
		attr.cap = (struct ibv_qp_cap){ .max_send_wr = 4 * VERBS_RECORDS + VERBS_CREDITS,
						.max_recv_wr = VERBS_RECORDS,
						.max_send_sge = 2,
						.max_recv_sge = 1,
						.max_inline_data = inlines[i] };
		*out = ibv_create_qp(nic->pd, &attr);
	}
	if (!*out)
		return ko_verbs_fail(nic, "making a queue pair", errno);
	if (attr.cap.max_inline_data < e->max_inline)
		e->max_inline = attr.cap.max_inline_data;
	return to_init(nic, *out);
}

static int prepare_nic(struct verbs_end *e, struct verbs_nic *nic)
{
	/* Room for completions of records that arrived or were sent; and if a queue pair fails, of
	 * all its work requests, signalled or not. */
	int ncqe = (int)e->nqps * (5 * VERBS_RECORDS + VERBS_CREDITS), rc = 0;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	/* A record's bytes may come in any order before its completion. Credits may not: nothing
	 * completes them at the receiving card. */
	if (e->link.role == KO_RECV)
		access |= IBV_ACCESS_RELAXED_ORDERING;

	nic->pd = ibv_alloc_pd(nic->context);
	if (!nic->pd)
		return ko_verbs_fail(nic, "making a protection domain", errno);
	nic->cq = ibv_create_cq(nic->context, ncqe, NULL, NULL, 0);
	if (!nic->cq)
		return ko_verbs_fail(nic, "making a completion queue", errno);
	nic->mr = ibv_reg_mr(nic->pd, e->memory, e->len, access);
	if (!nic->mr)
		return ko_verbs_fail(nic, "registering slots", errno);
	for (uint32_t q = 0; rc == 0 && q < e->nqps; q++)
		rc = make_qp(e, nic, &nic->qps[q]);
	return rc;
}

static int prepare(struct verbs_end *e, const struct ko_place *here)
{
	int rc;

	if (getrandom(&e->psn, sizeof(e->psn), 0) != sizeof(e->psn))
		return ko_fail(KOLO_ESYS, "verbs: getrandom gave nothing");
	e->psn &= PSN_MASK;
	e->max_inline = UINT32_MAX;
	if ((rc = ko_verbs_settings(&e->settings)) < 0 || (rc = ko_verbs_open_nics(e, here)) < 0)
		return rc;
	e->nqps = (uint32_t)e->settings.nqps;
	for (uint32_t n = 0; rc == 0 && n < e->nnics; n++) {
		size_t at = strlen(e->link.through), room = sizeof(e->link.through) - at;

		rc = prepare_nic(e, &e->nics[n]);
		snprintf(e->link.through + at, room, "%s%s", n ? "," : "", e->nics[n].name);
	}
	return rc;
}

static void close_nic(struct verbs_nic *nic)
{
	for (int q = 0; q < VERBS_QPS; q++)
		if (nic->qps[q])
			ibv_destroy_qp(nic->qps[q]);
	if (nic->mr)
		ibv_dereg_mr(nic->mr);
	if (nic->cq)
		ibv_destroy_cq(nic->cq);
	if (nic->pd)
		ibv_dealloc_pd(nic->pd);
	if (nic->context)
		ibv_close_device(nic->context);
}

static void close_link(struct ko_link *link, bool obsolete)
{
	struct verbs_end *e = (struct verbs_end *)link;

	if (!e)
		return;
	if (link->role == KO_SEND && e->state == VERBS_JOINED && !e->broken && !obsolete)
		ko_verbs_linger(e);
	ko_verbs_take_all_back(e);
	for (int n = 0; n < VERBS_NICS; n++)
		close_nic(&e->nics[n]);
	if (e->memory)
		munmap(e->memory, e->len);
	free(e);
}

static int open_link(enum ko_role role, const struct ko_place *here, const struct ko_limits *limits,
		     struct ko_link **out)
{
	struct verbs_end *e = calloc(1, sizeof(*e));
	int rc;

	*out = NULL;
	if (!e)
		return ko_fail(KOLO_ENOMEM, "verbs: no memory for a link");
	e->link.role = role;
	e->limits = *limits;
	e->most = VERBS_GAP + limits->slot_len;
	e->ring_len = (limits->nslots + 1) * e->most;
	e->len = VERBS_RING + e->ring_len;
	e->link.memory = e->len;
	e->memory = mmap(NULL, e->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->memory == MAP_FAILED)
		e->memory = NULL;
	rc = e->memory ? prepare(e, here)
		       : ko_fail(KOLO_ENOMEM, "verbs: no memory for %zu bytes of slots", e->len);
	if (rc < 0) {
		close_link(&e->link, true);
		return rc;
	}
	*out = &e->link;
	return 0;
}

/* ---- Joining --------------------------------------------------------------------------------- */

static int address_link(struct ko_link *link, struct ko_address *out)
{
	const struct verbs_end *e = (const struct verbs_end *)link;
	struct verbs_address a = { .slot_len = e->limits.slot_len,
				   .base = (uintptr_t)e->memory,
				   .nslots = e->limits.nslots,
				   .psn = e->psn,
				   .nnics = e->nnics,
				   .nqps = e->nqps };

	for (uint32_t n = 0; n < e->nnics; n++) {
		const struct verbs_nic *nic = &e->nics[n];
		struct verbs_port *p = &a.ports[n];

		*p = (struct verbs_port){ .key = nic->mr->rkey,
					  .lid = nic->attr.lid,
					  .mtu = (uint8_t)nic->attr.active_mtu,
					  .link_layer = nic->attr.link_layer,
					  .gid_type = (uint8_t)nic->gid.gid_type,
					  .needs_grh =
						  (nic->attr.flags & IBV_QPF_GRH_REQUIRED) != 0 };
		memcpy(p->gid, nic->gid.gid.raw, sizeof(p->gid));
		for (uint32_t q = 0; q < e->nqps; q++)
			p->qpns[q] = nic->qps[q]->qp_num;
	}
	*out = (struct ko_address){ .fd = -1 };
	memcpy(out->bytes, &a, sizeof(a));
	return 0;
}

static const char *network_of(unsigned link_layer, unsigned gid_type, const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (link_layer != IBV_LINK_LAYER_ETHERNET)
		return "InfiniBand";
	if (gid_type != IBV_GID_TYPE_ROCE_V2)
		return "RoCE version 1";
	return memcmp(gid, mapped, sizeof(mapped)) == 0 ? "RoCE over IPv4" : "RoCE over IPv6";
}

/* Both ends check both addresses, and come to the same result. */
static int check_address(struct verbs_end *e, const struct verbs_address *a)
{
	if (a->nnics - 1 >= VERBS_NICS || a->nqps - 1 >= VERBS_QPS)
		return ko_fail(KOLO_EMISMATCH,
			       "verbs: the other end has %u ports with %u queue pairs each",
			       a->nnics, a->nqps);
	if (a->slot_len != e->limits.slot_len || a->nslots != e->limits.nslots)
		return ko_fail(
			KOLO_EMISMATCH,
			"verbs: the other end has %u slots of %llu bytes, this one %u of %llu",
			a->nslots, (unsigned long long)a->slot_len, e->limits.nslots,
			(unsigned long long)e->limits.slot_len);
	e->nnics = a->nnics < e->nnics ? a->nnics : e->nnics;
	e->nqps = a->nqps < e->nqps ? a->nqps : e->nqps;
	e->nrails = e->nnics * e->nqps;
	for (uint32_t n = 0; n < e->nnics; n++) {
		const char *mine = network_of(e->nics[n].attr.link_layer, e->nics[n].gid.gid_type,
					      e->nics[n].gid.gid.raw);
		const char *theirs =
			network_of(a->ports[n].link_layer, a->ports[n].gid_type, a->ports[n].gid);

		if (strcmp(mine, theirs) != 0)
			return ko_fail(
				KOLO_EMISMATCH,
				"verbs (%s): this port uses %s, but the other end's port uses %s; choose ports that "
				"match with KOLO_VERBS_DEVICE or KOLO_VERBS_GID_INDEX",
				e->nics[n].name, mine, theirs);
		e->keys[n] = a->ports[n].key;
	}
	e->base = a->base;
	return 0;
}

static int start(struct verbs_end *e, const struct verbs_address *a)
{
	int rc = check_address(e, a);

	e->give_up_ms = ko_now_ms() + GIVE_UP_MS;
	e->state = e->link.role == KO_SEND ? VERBS_WAITING : VERBS_KNOCKING;
	if (rc == 0 && e->link.role == KO_SEND)
		rc = raise_rails(e, a, e->psn);
	return rc < 0 ? rc : KO_EAGAIN;
}

/* Receiver: sends an empty write, to see whether the sender's card answers. */
static int knock(struct verbs_end *e, const struct verbs_address *a)
{
	struct ibv_send_wr *bad,
		wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
	int rc = raise_rail(e, a, 0, e->psn, KNOCK_TIMEOUT), err;

	if (rc < 0)
		return rc;
	wr.wr.rdma.remote_addr = e->base;
	wr.wr.rdma.rkey = e->keys[0];
	err = ibv_post_send(e->nics[0].qps[0], &wr, &bad);
	if (err)
		return ko_verbs_fail(&e->nics[0], "knocking", err);
	e->state = VERBS_WAITING;
	return KO_EAGAIN;
}

/* Receiver: the sender's card has answered. Its next packet on rail 0 is not the first one. */
static int let_in(struct verbs_end *e, const struct verbs_address *a)
{
	int rc = raise_rails(e, a, e->psn + 1);

	for (uint64_t n = 0; rc == 0 && n < VERBS_RECORDS; n++)
		rc = ko_verbs_expect(e, n);
	return rc < 0 ? rc : ko_verbs_tell(e);
}

/* Receiver: waits for the answer to its knock. Sender: waits for credits. */
static int wait_for_answer(struct verbs_end *e, const struct verbs_address *a)
{
	struct ibv_wc wc;

	if (e->link.role == KO_SEND)
		return atomic_load_explicit(verbs_credit_word(e), memory_order_acquire) ? 0
											: KO_EAGAIN;
	if (ibv_poll_cq(e->nics[0].cq, 1, &wc) != 1)
		return KO_EAGAIN;
	if (wc.status == IBV_WC_SUCCESS)
		return let_in(e, a);
	e->state = VERBS_KNOCKING;
	return KO_EAGAIN;
}

static int (*const steps[])(struct verbs_end *e, const struct verbs_address *a) = {
	[VERBS_APART] = start,
	[VERBS_KNOCKING] = knock,
	[VERBS_WAITING] = wait_for_answer,
};

static int connect_link(struct ko_link *link, const struct ko_address *peer)
{
	struct verbs_end *e = (struct verbs_end *)link;
	struct verbs_address a;
	int rc;

	memcpy(&a, peer->bytes, sizeof(a));
	rc = steps[e->state](e, &a);
	if (rc == 0)
		e->state = VERBS_JOINED;
	if (rc == KO_EAGAIN && ko_now_ms() > e->give_up_ms)
		return ko_fail(
			KOLO_EUNREACH,
			"verbs (%s): no answer from the other end's port for %d s: its process is stopped, or the "
			"two ports are not on one network. KOLO_VERBS_DEVICE chooses others; KOLO_NET=tcp "
			"works without RDMA",
			e->nics[0].name, GIVE_UP_MS / 1000);
	return rc;
}

/* ---- The transport --------------------------------------------------------------------------- */

/* Can RDMA join the two places? Software that acts as an RDMA card is slower than the
 * kernel's TCP. So it counts only if the user asks for it. */
static int probe_places(const struct ko_place *a, const struct ko_place *b, bool asked)
{
	const struct ko_place *less = a->rdma < b->rdma ? a : b;

	if (less->rdma == KO_RDMA_CARD || (less->rdma == KO_RDMA_SOFTWARE && asked))
		return 0;
	return ko_fail(KOLO_ENOTSUP, "verbs: no active %s on %s",
		       asked ? "RDMA port" : "port of an RDMA card", less->host);
}

static const struct ko_rma_ops rma_ops = {
	.lend = ko_verbs_lend,
	.lend_device = ko_verbs_lend_device,
	.offer = ko_verbs_offer,
	.take_back = ko_verbs_take_back,
};

const struct ko_link_ops ko_verbs_ops = {
	.name = "verbs",
	.probe = probe_places,
	.open = open_link,
	.address = address_link,
	.connect = connect_link,
	.acquire = ko_verbs_acquire,
	.commit = ko_verbs_commit,
	.peek = ko_verbs_peek,
	.release = ko_verbs_release,
	.progress = ko_verbs_progress,
	.drain = ko_verbs_drain,
	.close = close_link,
	.rma = &rma_ops,
};
