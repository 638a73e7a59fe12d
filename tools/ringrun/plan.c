#include "tools/ringrun/plan.h"

#include "kolo/kolo.h"
#include "tools/ringrun/agent/environment.h"
#include "tools/ringrun/base/processes.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char default_hostfile[] = "/job/hostfile";

/* ---- This host ------------------------------------------------------------------------------- */

/* How many GPUs the driver has, whatever this process may see of them. */
static int count_gpus(void)
{
	DIR *folder = opendir("/proc/driver/nvidia/gpus");
	struct dirent *entry;
	int n = 0;

	while (folder && (entry = readdir(folder)))
		n += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return n;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (!a || !b || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		      &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* Does the name stand for an address of this host? */
static bool has_address_of(const char *name)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	struct ifaddrs *own = NULL;
	bool here = false;

	if (getaddrinfo(name, NULL, &hints, &found) == 0 && getifaddrs(&own) == 0)
		for (const struct addrinfo *a = found; a && !here; a = a->ai_next)
			for (const struct ifaddrs *i = own; i && !here; i = i->ifa_next)
				here = same_address(a->ai_addr, i->ifa_addr);
	if (found)
		freeaddrinfo(found);
	freeifaddrs(own);
	return here;
}

static bool is_here(const char *name)
{
	char own[256] = "";

	gethostname(own, sizeof(own) - 1);
	if (strcmp(name, "localhost") == 0 || strcmp(name, own) == 0)
		return true;
	return !strchr(name, '@') && has_address_of(name); /* user@host may be another user */
}

/* ---- Hosts ----------------------------------------------------------------------------------- */

/* CUDA_VISIBLE_DEVICES chooses among this host's slots, unless an option does. */
static int apply_visible_devices(struct plan *p, const char *visible)
{
	const struct options *o = p->options;
	char *filter;
	int rc;

	if (o->include || o->exclude || o->num_nodes || o->num_gpus) {
		say("CUDA_VISIBLE_DEVICES=%s is ignored: options choose the slots", visible);
		return 0;
	}
	if (asprintf(&filter, "localhost:%s", visible) < 0)
		filter = need(NULL);
	rc = hosts_include(&p->hosts, "CUDA_VISIBLE_DEVICES stands for --include", filter);
	free(filter);
	return rc;
}

/* How many devices CUDA_VISIBLE_DEVICES leaves if it does not number them: names of devices stay as
 * they are, and nothing or -1 hides all. */
static int count_named(const char *visible)
{
	int n = 1;

	if (!*visible || *visible == '-')
		return 0;
	for (; *visible; visible++)
		n += *visible == ',';
	return n;
}

/* Without a list of hosts: all GPUs of this one, or its cores. */
static int use_this_host(struct plan *p)
{
	const struct options *o = p->options;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	bool numbered = visible && *visible && !visible[strspn(visible, "0123456789,")];
	bool chosen = o->num_gpus || o->include || o->exclude;
	int gpus = count_gpus(), slots;

	if (gpus && visible && !numbered && !chosen)
		gpus = count_named(visible);
	p->hosts.source = "this host";
	p->devices = chosen || (gpus > 0 && (!visible || numbered));
	slots = gpus ? gpus : kolo_cores(NULL, 0);
	hosts_add(&p->hosts, "localhost", 9, o->num_gpus ? o->num_gpus : slots, 0);
	return numbered && p->devices ? apply_visible_devices(p, visible) : 0;
}

static int choose_slots(struct plan *p)
{
	const struct options *o = p->options;
	int rc = 0;

	if (o->include)
		rc = hosts_include(&p->hosts, "--include", o->include);
	if (rc == 0 && o->exclude)
		rc = hosts_exclude(&p->hosts, o->exclude);
	if (rc == 0 && o->num_nodes)
		rc = hosts_keep_nodes(&p->hosts, o->num_nodes);
	if (rc == 0 && o->num_gpus)
		rc = hosts_keep_slots(&p->hosts, o->num_gpus);
	return rc;
}

/* Any number of ranks on this host, which are no slots. */
static void use_ranks_alone(struct plan *p)
{
	p->hosts.source = "this host";
	hosts_add(&p->hosts, "localhost", 9, 0, 0);
	p->hosts.at[0].nranks = p->options->nranks;
	p->nranks = p->options->nranks;
}

static int choose_hosts(struct plan *p)
{
	const struct options *o = p->options;
	bool by_slots = o->num_gpus || o->include || o->exclude;
	bool by_default =
		!o->hostfile && !o->host && !o->nranks && access(default_hostfile, F_OK) == 0;
	int rc = 0;

	p->devices = true;
	if (o->host) {
		rc = hosts_read_list(&p->hosts, o->host);
	} else if (o->hostfile || by_default) {
		rc = hosts_read_file(&p->hosts, by_default ? default_hostfile : o->hostfile);
	} else if (o->nranks && !by_slots) {
		use_ranks_alone(p);
		p->devices = false;
		return choose_slots(p);
	} else {
		rc = use_this_host(p);
	}
	if (rc == 0 && choose_slots(p) == 0)
		p->nranks = hosts_place(&p->hosts, o->nranks);
	return rc == 0 && p->nranks > 0 ? 0 : -1;
}

/* ---- Command --------------------------------------------------------------------------------- */

/* Is PROGRAM a Python file of the folder where the ranks begin? *executable: it has a first line of
 * its own that says what runs it. */
static bool is_python(const struct options *o, bool *executable)
{
	const char *name = o->command[0], *suffix = strrchr(name, '.');
	bool below = *name != '/' && o->wdir;
	char path[4096];

	if (o->no_python || !suffix || strcmp(suffix, ".py") != 0)
		return false;
	snprintf(path, sizeof(path), "%s%s%s", below ? o->wdir : "", below ? "/" : "", name);
	*executable = access(path, X_OK) == 0;
	return access(path, F_OK) == 0;
}

/* python3 -u [-m] before a Python program, as `deepspeed` does. */
static void make_command(struct plan *p)
{
	const struct options *o = p->options;
	bool executable = false, python;
	int n = 0, to = 0;

	p->local_rank_at = -1;
	if (!o->command)
		return;
	while (o->command[n])
		n++;
	p->command = need(calloc((size_t)n + 4, sizeof(*p->command)));
	python = o->module || is_python(o, &executable);
	if (python && !executable) {
		p->command[to++] = "python3";
		p->command[to++] = "-u";
		if (o->module)
			p->command[to++] = "-m";
		p->local_rank_at = o->no_local_rank ? -1 : to;
	}
	memcpy(p->command + to, o->command, (size_t)n * sizeof(*p->command));
	/* train.py is looked for on PATH, and is meant to be the one here */
	if (executable && !strchr(o->command[0], '/') &&
	    asprintf(&p->command[0], "./%s", o->command[0]) < 0)
		p->command[0] = need(NULL);
}

/* --no_ssh: leaves only the host that this one is. No connection joins the hosts, so the ranks meet
 * at a port of the first one that all know: beside MASTER_PORT, which rank 0's program may use. */
static int keep_own_host(struct plan *p)
{
	const struct options *o = p->options;
	int port = o->master_port < 0 ? DEFAULT_MASTER_PORT : o->master_port;
	bool six = strchr(o->master_addr, ':');

	if (o->node_rank >= p->hosts.n) {
		return say("--node_rank %d: the hosts of %s are numbered from 0 to %d",
			   o->node_rank, p->hosts.source, p->hosts.n - 1);
	}
	p->node = o->node_rank;
	p->hosts.at[0] = p->hosts.at[o->node_rank];
	p->hosts.n = 1;
	if (asprintf(&p->root, "%s%s%s:%d", six ? "[" : "", o->master_addr, six ? "]" : "",
		     port < 65535 ? port + 1 : port - 1) < 0)
		p->root = need(NULL);
	return 0;
}

/* Two names of this host are a mistake: its cores and devices would be given away twice. */
static int check_here(const struct plan *p)
{
	int first = -1;

	for (int k = 0; k < p->hosts.n; k++) {
		if (p->here[k] && first >= 0) {
			return say("%s: %s and %s are both this host: write it once, with all "
				   "of its slots",
				   p->hosts.source, p->hosts.at[first].name, p->hosts.at[k].name);
		}
		first = p->here[k] ? k : first;
	}
	return 0;
}

int plan_make(const struct options *o, struct plan *p)
{
	char here[4096];

	*p = (struct plan){ .options = o };
	if (choose_hosts(p) < 0 || !(p->export = environment_to_export(o->exports)))
		return -1;
	p->nnodes = p->hosts.n;
	if (o->no_ssh && keep_own_host(p) < 0)
		return -1;
	p->here = need(calloc((size_t)p->hosts.n, sizeof(*p->here)));
	for (int k = 0; k < p->hosts.n; k++) /* may ask a name server */
		p->here[k] = o->no_ssh || (!o->force_multi && is_here(p->hosts.at[k].name));
	if (check_here(p) < 0)
		return -1;
	p->alone = p->hosts.n == 1 && p->here[0];
	make_command(p);
	if (p->alone && !o->wdir)
		return 0;
	if (o->wdir && (*o->wdir == '/' || p->alone)) {
		p->wdir = need(strdup(o->wdir));
		return 0;
	}
	if (!getcwd(here, sizeof(here))) {
		complain("finding this directory");
		return -1;
	}
	if (asprintf(&p->wdir, "%s%s%s", here, o->wdir ? "/" : "", o->wdir ? o->wdir : "") < 0)
		p->wdir = need(NULL);
	return 0;
}

struct job plan_job(const struct plan *p, int k)
{
	const struct options *o = p->options;
	const struct host *host = &p->hosts.at[k];
	struct job job = {
		.host = p->alone ? NULL : host->name,
		.node = p->node + k,
		.nnodes = p->nnodes,
		.nranks = p->nranks,
		.first = host->first,
		.nlocal = host->nranks,
		.nslots = p->devices ? host->nranks : 0,
		.slots = host->slots,
		.command = p->command,
		.environment = p->export,
		.wdir = p->wdir,
		.bind = (int)o->bind,
		.cores = (char *)o->core_list,
		.omp = o->omp,
		.relay = o->tag || !p->alone,
		.tag = o->tag,
		.local_rank_option = p->local_rank_at >= 0,
		.local_rank_at = p->local_rank_at,
		.logs = (char *)o->logs,
		.root = p->root,
		.port = o->master_port,
	};

	return job;
}

const char *plan_ranks_text(const struct host *host, char out[RANKS_TEXT])
{
	if (host->nranks == 1)
		snprintf(out, RANKS_TEXT, "rank %d", host->first);
	else
		snprintf(out, RANKS_TEXT, "ranks %d to %d", host->first,
			 host->first + host->nranks - 1);
	return out;
}
