/* What NCCL's environment variables ask for, in Kolo's words (kn_env_read), and the log
 * (NCCL_DEBUG). variables.h lists them. */
#include "cuda/nccl/inside.h"

#include "cuda/nccl/variables.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_once_t done = PTHREAD_ONCE_INIT;
static FILE *file;
static enum kolo_log_level level;
static const char *transport; /* of all communicators; NULL: Kolo's choice */

/* ---- The log --------------------------------------------------------------------------------- */

/* The file of NCCL_DEBUG_FILE, in which %h is the host and %p the process. */
static FILE *open_file(const char *name)
{
	char path[4096], host[256] = "?";
	size_t at = 0;

	gethostname(host, sizeof(host) - 1);
	for (; *name && at < sizeof(path) - sizeof(host); name++) {
		if (name[0] == '%' && name[1] == 'h')
			at += (size_t)snprintf(path + at, sizeof(path) - at, "%s", host);
		else if (name[0] == '%' && name[1] == 'p')
			at += (size_t)snprintf(path + at, sizeof(path) - at, "%d", getpid());
		else
			path[at++] = *name;
		name += name[0] == '%' && (name[1] == 'h' || name[1] == 'p');
	}
	path[at] = 0;
	return fopen(path, "we");
}

static enum kolo_log_level level_of(const char *name)
{
	if (!name)
		return 0;
	if (strcasecmp(name, "WARN") == 0)
		return KOLO_LOG_WARN;
	if (strcasecmp(name, "INFO") == 0)
		return KOLO_LOG_INFO;
	return strcasecmp(name, "TRACE") == 0 ? KOLO_LOG_TRACE : 0;
}

static void write_line(const char *line)
{
	if (!level)
		return;
	fprintf(file, "kolo %d: %s\n", getpid(), line);
	fflush(file);
}

__attribute__((format(printf, 2, 3))) static void note(enum kolo_log_level of, const char *format,
						       ...)
{
	char line[KN_TEXT];
	va_list args;

	if (of > level)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	write_line(line);
}

/* ---- Files of variables ---------------------------------------------------------------------- */

/* The text without blanks at both ends. It is cut there. */
static char *trimmed(char *text)
{
	char *end = text + strlen(text);

	while (isspace((unsigned char)*text))
		text++;
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = 0;
	return text;
}

/* Sets the variables of its lines NAME=VALUE that are not set. Lines that begin with # say
 * nothing. */
static void read_file(FILE *f)
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, f) >= 0) {
		char *name = trimmed(line), *equals = strchr(name, '=');

		if (*name == '#' || !equals)
			continue;
		*equals = 0;
		setenv(trimmed(name), trimmed(equals + 1), 0);
	}
	free(line);
	fclose(f);
}

/* Returns whether it is there. */
static bool read_named(const char *path)
{
	FILE *f = fopen(path, "re");

	if (f)
		read_file(f);
	return f;
}

/* Returns 0, or the errno of the file that NCCL_CONF_FILE names. */
static int read_files(void)
{
	const char *named = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
	char path[4096];
	int err = 0;

	if (named && *named) {
		err = read_named(named) ? 0 : errno;
	} else if (home) {
		snprintf(path, sizeof(path), "%s/.nccl.conf", home);
		read_named(path);
	}
	read_named("/etc/nccl.conf");
	return err;
}

/* ---- Interfaces and cards -------------------------------------------------------------------- */

/* Is the name in a list, by its beginning, or with `exact` all of it? */
static bool is_listed(const char *list, const char *name, bool exact)
{
	while (*list) {
		size_t len = strcspn(list, ",");

		if (len && strncmp(list, name, len) == 0 && (!exact || !name[len]))
			return true;
		list += len + (list[len] == ',');
	}
	return false;
}

/* Which names NCCL's variable means: those that are listed, after = by their whole names, after ^
 * all others. Without a list, all but those of containers and virtual machines, and lo. */
static bool is_meant(const char *asked, const char *name)
{
	bool others = *asked == '^', exact = *asked == '=' || (others && asked[1] == '=');

	if (!*asked)
		return !is_listed("lo,docker,virbr,veth", name, false);
	asked += others + exact;
	return is_listed(asked, name, exact) != others && (!others || strcmp(name, "lo") != 0);
}

/* The first interface that is up, has an address, and is meant. */
static void choose_interface(void)
{
	const char *asked = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all, *at;

	if (getenv("KOLO_IFACE") || getifaddrs(&all) < 0)
		return;
	for (at = all; at; at = at->ifa_next)
		if (at->ifa_addr && at->ifa_flags & IFF_UP && at->ifa_addr->sa_family == AF_INET &&
		    is_meant(asked ? asked : "", at->ifa_name))
			break;
	if (at)
		setenv("KOLO_IFACE", at->ifa_name, 0);
	else if (asked && *asked)
		note(KOLO_LOG_WARN,
		     "NCCL_SOCKET_IFNAME=%s names no interface that is up and has an address",
		     asked);
	freeifaddrs(all);
}

/* Is a port of an RDMA card active? `path` is its folder in /sys. */
static bool is_active(const char *path)
{
	char name[4096], text[32] = "";
	FILE *f;

	snprintf(name, sizeof(name), "%s/state", path);
	f = fopen(name, "re");
	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		*text = 0;
	fclose(f);
	return strstr(text, "ACTIVE");
}

enum { CARDS = 4 }; /* as many as Kolo takes */

/* The active ports that NCCL_IB_HCA means, as NAME:PORT. */
static void choose_cards(void)
{
	const char *asked = getenv("NCCL_IB_HCA");
	char chosen[1024] = "", name[256];
	glob_t ports;
	int n = 0;

	if (!asked || !*asked || getenv("KOLO_VERBS_DEVICE") ||
	    glob("/sys/class/infiniband/*/ports/*", 0, NULL, &ports) != 0)
		return;
	for (size_t k = 0; k < ports.gl_pathc && n < CARDS; k++) {
		const char *path = ports.gl_pathv[k], *port = strrchr(path, '/') + 1;
		const char *card = path + strlen("/sys/class/infiniband/");
		size_t at = strlen(chosen);

		snprintf(name, sizeof(name), "%.*s:%s", (int)strcspn(card, "/"), card, port);
		if (!is_active(path) || !is_meant(asked, name))
			continue;
		snprintf(chosen + at, sizeof(chosen) - at, "%s%s", n++ ? "," : "", name);
	}
	globfree(&ports);
	if (n)
		setenv("KOLO_VERBS_DEVICE", chosen, 0);
	else
		note(KOLO_LOG_WARN, "NCCL_IB_HCA=%s names no active port of an RDMA card", asked);
}

/* ---- All of them ----------------------------------------------------------------------------- */

static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value && *value;
}

static bool is(const char *name, const char *value)
{
	return is_set(name) && strcasecmp(getenv(name), value) == 0;
}

static bool is_on(const char *name)
{
	return is_set(name) && !is(name, "0");
}

/* A variable of Kolo's own counts more: it stays as it is. */
static void choose_paths(void)
{
	bool apart = is_on("NCCL_P2P_DISABLE") || is("NCCL_P2P_LEVEL", "LOC") ||
		     is("NCCL_P2P_LEVEL", "0");

	if (is_on("NCCL_IB_DISABLE") || is("NCCL_NET", "Socket"))
		setenv("KOLO_NET", "tcp", 0);
	else if (is("NCCL_NET", "IB"))
		setenv("KOLO_NET", "verbs", 0);
	else if (is_set("NCCL_NET"))
		note(KOLO_LOG_WARN, "NCCL_NET=%s is not used: want Socket or IB",
		     getenv("NCCL_NET"));
	if (apart)
		setenv("KOLO_CUDA_P2P", "0", 0);
	if (apart && is_on("NCCL_SHM_DISABLE"))
		transport = is_set("KOLO_NET") ? getenv("KOLO_NET") : "tcp";
}

/* Hands on those that Kolo has, too. Notes those that are not used. */
static void hand_on(void)
{
	for (char **at = environ; *at; at++) {
		const struct kn_variable *v = kn_variable_of(*at);

		if (v && !v->used)
			note(KOLO_LOG_INFO, "%s is not used: %s", *at, v->help);
	}
	for (int k = 0; k < KN_VARIABLES; k++)
		if (kn_variables[k].kolo && is_set(kn_variables[k].name))
			setenv(kn_variables[k].kolo, getenv(kn_variables[k].name), 0);
}

static void read_all(void)
{
	int err = read_files();
	const char *name = getenv("NCCL_DEBUG_FILE");

	level = level_of(getenv("NCCL_DEBUG"));
	if (level && name && *name)
		file = open_file(name);
	if (!file)
		file = stdout;
	if (err)
		note(KOLO_LOG_WARN, "NCCL_CONF_FILE=%s: %s", getenv("NCCL_CONF_FILE"),
		     strerror(err));
	choose_interface();
	choose_cards();
	choose_paths();
	hand_on();
}

const char *kn_env_transport(void)
{
	kn_env_read();
	return transport;
}

enum kolo_log_level kn_env_read(void)
{
	pthread_once(&done, read_all);
	return level;
}

void kn_log(void *arg, enum kolo_log_level of, const char *line)
{
	(void)arg;
	if (of <= kn_env_read())
		write_line(line);
}

/* The environment is read once. NCCL's own does nothing either, by now. */
void ncclResetDebugInit(void)
{
}

KN_TWIN(ncclResetDebugInit);
