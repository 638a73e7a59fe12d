/* Links through libfabric (ko_ofi_ops): finds a provider, and joins two ends. The library is loaded
 * when the first link needs it. Loading takes 0.2 s, because its providers look for their hardware;
 * and on one host it need not be installed. */
#include "comm/base/error.h"
#include "comm/sys/net.h"
#include "comm/transport/ofi/end.h"
#include "comm/transport/ofi/slots.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

/* What the receiver's address says; the sender's address is empty. */
struct ofi_address {
	uint64_t secret, slot_len, base, key;
	uint32_t nslots, writes;
	uint32_t ep_type, addr_format, name_len;
	char provider[40];
	unsigned char name[sizeof(((struct ofi_hello *)0)->name)];
};

_Static_assert(sizeof(struct ofi_address) <= sizeof(((struct ko_address *)0)->bytes), "it fits");

/* ---- The library ----------------------------------------------------------------------------- */

/* Loads the library. Libraries that it uses (psm) take over signals when they are loaded, to write
 * files if the program crashes. That is for the program to decide, so it gets its handlers back.
 * RTLD_NODELETE: code that a thread may still run must stay loaded. */
static void *load(const char *file)
{
	struct sigaction had[NSIG], now;
	void *handle;

	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &had[s]);
	handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &now) == 0 && now.sa_handler != had[s].sa_handler)
			sigaction(s, &had[s], NULL);
	return handle;
}

static int open_library(struct ofi_library *lib)
{
	static const char file[] = "libfabric.so.1";

	lib->handle = load(file);
	if (!lib->handle)
		return ko_fail(KOLO_ENOTSUP, "ofi: %s; install libfabric (package libfabric1)",
			       dlerror());
	*(void **)&lib->getinfo = dlsym(lib->handle, "fi_getinfo");
	*(void **)&lib->dupinfo = dlsym(lib->handle, "fi_dupinfo");
	*(void **)&lib->freeinfo = dlsym(lib->handle, "fi_freeinfo");
	*(void **)&lib->fabric = dlsym(lib->handle, "fi_fabric");
	*(void **)&lib->strerror = dlsym(lib->handle, "fi_strerror");
	if (!lib->getinfo || !lib->dupinfo || !lib->freeinfo || !lib->fabric || !lib->strerror)
		return ko_fail(KOLO_ENOTSUP, "ofi: %s is not libfabric", file);
	return 0;
}

/* ---- Providers ------------------------------------------------------------------------------- */

/* What to ask libfabric for, best first: fabrics with addresses of their own, then connections,
 * then the rest. Slots are written if the provider can report that to the receiver, else they are
 * sent. */
static const struct query {
	enum fi_ep_type type;
	bool ip, writes;
} queries[] = {
	{ FI_EP_RDM, false, true }, { FI_EP_RDM, false, false }, { FI_EP_MSG, true, true },
	{ FI_EP_MSG, true, false }, { FI_EP_RDM, true, true },   { FI_EP_RDM, true, false },
};

static bool is_ip(uint32_t format)
{
	return format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

/* Is this provider wanted? Unless the user names one, these are not: providers that reach one host
 * only, that are no better than tcp, or that other providers consist of. */
static bool is_wanted(const struct query *q, const char *forced, const struct fi_info *info)
{
	static const char *const unwanted[] = { "shm", "net", "sockets", "udp", "rstream", "hook" };
	const char *name = info->fabric_attr->prov_name;

	if (is_ip(info->addr_format) != q->ip)
		return false;
	for (size_t i = 0; !*forced && i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		if (strncmp(name, unwanted[i], strlen(unwanted[i])) == 0)
			return false;
	return *forced || !strchr(name, ';');
}

static struct fi_info *make_hints(const struct ofi_end *e, const struct query *q,
				  const char *provider)
{
	struct fi_info *hints = e->lib.dupinfo(NULL);

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | (q->writes ? FI_RMA | FI_WRITE | FI_REMOTE_WRITE : 0);
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	hints->ep_attr->type = q->type;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = hints->domain_attr->data_progress =
		FI_PROGRESS_MANUAL;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | (q->type == FI_EP_RDM ? FI_MR_ENDPOINT : 0);
	hints->domain_attr->cq_data_size = q->writes ? sizeof(uint32_t) : 0;
	hints->tx_attr->inject_size = sizeof(uint64_t);
	hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = q->writes ? 0 : FI_ORDER_SAS;
	hints->fabric_attr->prov_name = *provider ? strdup(provider) : NULL;
	return hints;
}

/* Asks libfabric. Returns the list of answers; NULL: none. */
static struct fi_info *ask(const struct ofi_end *e, const struct query *q, const char *provider,
			   const char *source, const struct ofi_address *peer)
{
	struct fi_info *hints = make_hints(e, q, provider), *found = NULL;

	if (!hints)
		return NULL;
	if (peer) {
		hints->addr_format = peer->addr_format;
		hints->dest_addr = q->type == FI_EP_MSG ? malloc(peer->name_len) : NULL;
		hints->dest_addrlen = hints->dest_addr ? peer->name_len : 0;
		if (hints->dest_addr)
			memcpy(hints->dest_addr, peer->name, peer->name_len);
	}
	if (e->lib.getinfo(FI_VERSION(1, 9), source, NULL, source ? FI_SOURCE : 0, hints, &found) <
	    0)
		found = NULL;
	e->lib.freeinfo(hints);
	return found;
}

/* ---- Making an end --------------------------------------------------------------------------- */

static int step_rc(struct ofi_end *e, const char *doing, int rc)
{
	return rc < 0 ? ko_fail(rc == -FI_ENOMEM ? KOLO_ENOMEM : KOLO_ESYS, "ofi (%s): %s: %s",
				e->info->fabric_attr->prov_name, doing, e->lib.strerror(-rc))
		      : 0;
}

/* Opens the endpoint on `info`, with or without a connection. */
static int open_endpoint(struct ofi_end *e, struct fi_info *info)
{
	int rc;

	if ((rc = step_rc(e, "fi_endpoint", fi_endpoint(e->domain, info, &e->ep, NULL))) < 0 ||
	    (e->eq && (rc = step_rc(e, "fi_ep_bind", fi_ep_bind(e->ep, &e->eq->fid, 0))) < 0) ||
	    (e->av && (rc = step_rc(e, "fi_ep_bind", fi_ep_bind(e->ep, &e->av->fid, 0))) < 0) ||
	    (rc = step_rc(e, "fi_ep_bind", fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV))) <
		    0)
		return rc;
	return step_rc(e, "fi_enable", fi_enable(e->ep));
}

static int register_memory(struct ofi_end *e)
{
	bool remote = e->writes && e->link.role == KO_RECV;
	uint64_t access =
		FI_SEND | FI_RECV | (e->writes ? FI_WRITE : 0) | (remote ? FI_REMOTE_WRITE : 0);
	int mode = e->info->domain_attr->mr_mode, rc;

	if (!remote && !(mode & FI_MR_LOCAL))
		return 0;
	rc = step_rc(e, "fi_mr_reg",
		     fi_mr_reg(e->domain, e->memory, e->len, access, 0, 1, 0, &e->mr, NULL));
	if (rc == 0 && mode & FI_MR_ENDPOINT) {
		rc = step_rc(e, "fi_mr_bind", fi_mr_bind(e->mr, &e->ep->fid, 0));
		if (rc == 0)
			rc = step_rc(e, "fi_mr_enable", fi_mr_enable(e->mr));
	}
	return rc;
}

static int open_fabric(struct ofi_end *e)
{
	struct fi_cq_attr cq = { .size = 4 * KO_MAX_SLOTS, .format = FI_CQ_FORMAT_DATA };
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 1 };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	bool connects = e->info->ep_attr->type == FI_EP_MSG;
	int rc;

	e->peer = FI_ADDR_UNSPEC;
	snprintf(e->link.through, sizeof(e->link.through), "%s", e->info->fabric_attr->prov_name);
	if ((rc = step_rc(e, "fi_fabric", e->lib.fabric(e->info->fabric_attr, &e->fabric, NULL))) <
		    0 ||
	    (rc = step_rc(e, "fi_domain", fi_domain(e->fabric, e->info, &e->domain, NULL))) < 0 ||
	    (rc = step_rc(e, "fi_cq_open", fi_cq_open(e->domain, &cq, &e->cq, NULL))) < 0)
		return rc;
	if (connects)
		return step_rc(e, "fi_eq_open", fi_eq_open(e->fabric, &eq, &e->eq, NULL));
	return step_rc(e, "fi_av_open", fi_av_open(e->domain, &av, &e->av, NULL));
}

/* Receiver: listens for the sender's connection. */
static int listen_there(struct ofi_end *e)
{
	int rc;

	if ((rc = step_rc(e, "fi_passive_ep", fi_passive_ep(e->fabric, e->info, &e->pep, NULL))) <
		    0 ||
	    (rc = step_rc(e, "fi_pep_bind", fi_pep_bind(e->pep, &e->eq->fid, 0))) < 0)
		return rc;
	return step_rc(e, "fi_listen", fi_listen(e->pep));
}

/* Posts a receive for the sender's hello, before those for slots: messages come in their order. */
static int await_hello(struct ofi_end *e)
{
	return step_rc(e, "posting a receive",
		       (int)fi_recv(e->ep, ofi_hello_of(e), sizeof(struct ofi_hello),
				    e->mr ? fi_mr_desc(e->mr) : NULL, FI_ADDR_UNSPEC,
				    &e->of_hello));
}

static void close_fabric(struct ofi_end *e)
{
	struct fid *const all[] = {
		e->ep ? &e->ep->fid : NULL,         e->pep ? &e->pep->fid : NULL,
		e->mr ? &e->mr->fid : NULL,         e->av ? &e->av->fid : NULL,
		e->cq ? &e->cq->fid : NULL,         e->eq ? &e->eq->fid : NULL,
		e->domain ? &e->domain->fid : NULL, e->fabric ? &e->fabric->fid : NULL
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			fi_close(all[i]);
	if (e->info)
		e->lib.freeinfo(e->info);
	e->ep = NULL;
	e->pep = NULL;
	e->mr = NULL;
	e->av = NULL;
	e->cq = NULL;
	e->eq = NULL;
	e->domain = NULL;
	e->fabric = NULL;
	e->info = NULL;
}

/* The receiver's part of open, with this provider. */
static int start_receiver(struct ofi_end *e, const struct fi_info *info)
{
	int rc;

	e->info = e->lib.dupinfo(info);
	if (!e->info)
		return ko_fail(KOLO_ENOMEM, "ofi: no memory for a link");
	if ((rc = open_fabric(e)) < 0)
		return rc;
	if (e->eq)
		return (rc = register_memory(e)) < 0 ? rc : listen_there(e);
	if ((rc = open_endpoint(e, e->info)) < 0 || (rc = register_memory(e)) < 0 ||
	    (rc = await_hello(e)) < 0)
		return rc;
	return ko_ofi_begin(e);
}

/* Takes the first provider that works, at the address where other hosts reach this rank. */
static int choose_provider(struct ofi_end *e, const struct ko_place *here)
{
	const char *forced = getenv("KOLO_OFI_PROVIDER");
	char source[KO_NET_TEXT] = "127.0.0.1";
	int rc = 1;

	forced = forced ? forced : "";
	if (here->net.any.sa_family)
		ko_net_text(&here->net, source);
	for (size_t i = 0; rc && i < sizeof(queries) / sizeof(queries[0]); i++) {
		const struct query *q = &queries[i];
		struct fi_info *list = ask(e, q, forced, q->ip ? source : NULL, NULL);

		for (struct fi_info *info = list; rc && info; info = info->next) {
			if (!is_wanted(q, forced, info))
				continue;
			e->writes = q->writes;
			rc = start_receiver(e, info);
			if (rc < 0)
				close_fabric(e);
		}
		if (list)
			e->lib.freeinfo(list);
	}
	if (rc <= 0)
		return rc;
	return ko_fail(KOLO_ENOTSUP,
		       "ofi: libfabric has no reliable endpoint%s%s at %s; see fi_info",
		       *forced ? " of KOLO_OFI_PROVIDER=" : "", forced, source);
}

static void close_link(struct ko_link *link, bool obsolete)
{
	struct ofi_end *e = (struct ofi_end *)link;

	(void)obsolete; /* this transport never waits in close */
	if (!e)
		return;
	if (e->cq && !e->broken)
		ko_ofi_reap(e); /* a connection that is closed with something unread is reset */
	close_fabric(e);
	if (e->memory)
		munmap(e->memory, e->len);
	if (e->lib.handle)
		dlclose(e->lib.handle);
	free(e);
}

static int open_link(enum ko_role role, const struct ko_place *here, const struct ko_limits *limits,
		     struct ko_link **out)
{
	struct ofi_end *e = calloc(1, sizeof(*e));
	int rc;

	*out = NULL;
	if (!e)
		return ko_fail(KOLO_ENOMEM, "ofi: no memory for a link");
	e->link.role = role;
	e->limits = *limits;
	e->len = ofi_slot_offset(e, limits->nslots);
	e->link.memory = e->len;
	e->memory = mmap(NULL, e->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->memory == MAP_FAILED)
		e->memory = NULL;
	if (!e->memory)
		rc = ko_fail(KOLO_ENOMEM, "ofi: no memory for %zu bytes of slots", e->len);
	else
		rc = open_library(&e->lib);
	if (rc == 0 && role == KO_RECV &&
	    getrandom(&e->secret, sizeof(e->secret), 0) != sizeof(e->secret))
		rc = ko_fail(KOLO_ESYS, "ofi: getrandom gave nothing");
	if (rc == 0 && role == KO_RECV)
		rc = choose_provider(e, here);
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
	struct ofi_end *e = (struct ofi_end *)link;
	struct ofi_address a = { .slot_len = e->limits.slot_len, .nslots = e->limits.nslots };
	size_t len = sizeof(a.name);
	int rc = 0;

	if (link->role == KO_RECV) {
		rc = step_rc(e, "fi_getname",
			     fi_getname(e->pep ? &e->pep->fid : &e->ep->fid, a.name, &len));
		a.secret = e->secret;
		a.writes = e->writes;
		a.base = e->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)e->memory : 0;
		a.key = e->mr ? fi_mr_key(e->mr) : 0;
		a.ep_type = e->info->ep_attr->type;
		a.addr_format = e->info->addr_format;
		a.name_len = (uint32_t)len;
		snprintf(a.provider, sizeof(a.provider), "%s", e->info->fabric_attr->prov_name);
	}
	*out = (struct ko_address){ .fd = -1 };
	memcpy(out->bytes, &a, sizeof(a));
	return rc;
}

/* Sender: prepares the first message to a receiver without a connection. */
static int say_hello(struct ofi_end *e, const struct ofi_address *a)
{
	struct ofi_hello *hello = ofi_hello_of(e);
	size_t len = sizeof(hello->name);
	int rc;

	if (fi_av_insert(e->av, a->name, 1, &e->peer, 0, NULL) != 1)
		return ko_fail(KOLO_EUNREACH,
			       "ofi (%s): the receiver's address is not one of this provider",
			       a->provider);
	hello->secret = e->secret;
	rc = step_rc(e, "fi_getname", fi_getname(&e->ep->fid, hello->name, &len));
	hello->len = len;
	return rc;
}

static int start_sender(struct ofi_end *e, const struct ofi_address *a)
{
	struct query q = { (enum fi_ep_type)a->ep_type, is_ip(a->addr_format), a->writes };
	struct fi_info *list = ask(e, &q, a->provider, NULL, a);
	int rc;

	e->info = list ? e->lib.dupinfo(list) : NULL;
	if (list)
		e->lib.freeinfo(list);
	if (!e->info)
		return ko_fail(
			KOLO_EUNREACH,
			"ofi: the receiver uses the provider %s, which can't reach it from here; "
			"KOLO_OFI_PROVIDER at the receiver says which to use",
			a->provider);
	e->writes = a->writes;
	e->secret = a->secret;
	e->base = a->base;
	e->key = a->key;
	if ((rc = open_fabric(e)) < 0 || (rc = open_endpoint(e, e->info)) < 0 ||
	    (rc = register_memory(e)) < 0 || (rc = ko_ofi_begin(e)) < 0)
		return rc;
	if (!e->eq)
		return say_hello(e, a);
	return step_rc(e, "fi_connect", fi_connect(e->ep, a->name, &e->secret, sizeof(e->secret)));
}

/* Receiver: a connection is requested. It is rejected if the caller does not know the secret. */
static int take_request(struct ofi_end *e, struct fi_info *info, const void *data, size_t len)
{
	int rc;

	if (e->ep || len < sizeof(e->secret) || memcmp(data, &e->secret, sizeof(e->secret)) != 0) {
		fi_reject(e->pep, info->handle, NULL, 0);
		e->lib.freeinfo(info);
		return KO_EAGAIN;
	}
	rc = open_endpoint(e, info);
	e->lib.freeinfo(info);
	if (rc == 0)
		rc = ko_ofi_begin(e);
	if (rc == 0)
		rc = step_rc(e, "fi_accept", fi_accept(e->ep, NULL, 0));
	return rc < 0 ? rc : KO_EAGAIN;
}

/* Handles the next event of the connection. */
static int read_event(struct ofi_end *e)
{
	enum { MOST_DATA = 256 };
	_Alignas(struct fi_eq_cm_entry) unsigned char
		event[sizeof(struct fi_eq_cm_entry) + MOST_DATA];
	const struct fi_eq_cm_entry *cm = (const void *)event;
	struct fi_eq_err_entry err = { 0 };
	uint32_t what;
	ssize_t got = fi_eq_read(e->eq, &what, event, sizeof(event), 0);

	if (got == -FI_EAGAIN)
		return KO_EAGAIN;
	if (got == -FI_EAVAIL && fi_eq_readerr(e->eq, &err, 0) >= 0)
		return ko_ofi_fail(e, "connecting", err.err);
	if (got < 0)
		return ko_ofi_fail(e, "connecting", (int)-got);
	if (what == FI_CONNREQ)
		return take_request(e, cm->info, cm->data, (size_t)got - sizeof(*cm));
	if (what == FI_SHUTDOWN)
		return ko_ofi_fail(e, "connecting", FI_ECONNABORTED);
	return what == FI_CONNECTED && cm->fid == &e->ep->fid ? 0 : KO_EAGAIN;
}

/* Without connections: the receiver waits for the hello, the sender until it has sent it. */
static int exchange_hello(struct ofi_end *e)
{
	struct ofi_hello *hello = ofi_hello_of(e);
	int rc;

	if (e->link.role == KO_SEND && hello->len) {
		ssize_t sent = fi_send(e->ep, hello, sizeof(*hello),
				       e->mr ? fi_mr_desc(e->mr) : NULL, e->peer, &e->of_hello);

		if (sent < 0 && sent != -FI_EAGAIN)
			return ko_ofi_fail(e, "sending a hello", (int)-sent);
		hello->len = sent == 0 ? 0 : hello->len;
	}
	rc = ko_ofi_reap(e);
	if (rc < 0 || e->state != OFI_JOINED)
		return rc < 0 ? rc : KO_EAGAIN;
	if (e->link.role == KO_SEND)
		return 0;
	if (hello->secret != e->secret)
		return ko_fail(KOLO_EUNREACH, "ofi (%s): a stranger sent the first message",
			       e->info->fabric_attr->prov_name);
	return fi_av_insert(e->av, hello->name, 1, &e->peer, 0, NULL) == 1
		       ? 0
		       : ko_ofi_fail(e, "taking the sender's address", FI_EINVAL);
}

static int connect_link(struct ko_link *link, const struct ko_address *peer)
{
	struct ofi_end *e = (struct ofi_end *)link;
	struct ofi_address a;
	int rc = 0;

	memcpy(&a, peer->bytes, sizeof(a));
	a.provider[sizeof(a.provider) - 1] = 0;
	if (e->state == OFI_APART && (a.slot_len != e->limits.slot_len ||
				      a.nslots != e->limits.nslots || a.name_len > sizeof(a.name)))
		return ko_fail(KOLO_EMISMATCH,
			       "ofi: the other end has %u slots of %llu bytes, this one %u of %llu",
			       a.nslots, (unsigned long long)a.slot_len, e->limits.nslots,
			       (unsigned long long)e->limits.slot_len);
	if (e->state == OFI_APART && link->role == KO_SEND)
		rc = start_sender(e, &a);
	if (rc < 0)
		return rc;
	if (e->state == OFI_APART)
		e->state = OFI_JOINING;
	rc = e->eq ? read_event(e) : exchange_hello(e);
	if (rc == 0)
		e->state = OFI_JOINED;
	return rc;
}

/* ---- The transport --------------------------------------------------------------------------- */

static int probe_places(const struct ko_place *a, const struct ko_place *b, bool asked)
{
	(void)a;
	(void)asked;
	(void)b; /* connecting shows whether they can reach each other */
	return 0;
}

const struct ko_link_ops ko_ofi_ops = {
	.name = "ofi",
	.probe = probe_places,
	.open = open_link,
	.address = address_link,
	.connect = connect_link,
	.acquire = ko_ofi_acquire,
	.commit = ko_ofi_commit,
	.peek = ko_ofi_peek,
	.release = ko_ofi_release,
	.progress = ko_ofi_progress,
	.drain = ko_ofi_drain,
	.close = close_link,
};
