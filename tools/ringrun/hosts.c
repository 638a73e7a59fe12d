#include "tools/ringrun/hosts.h"

#include "tools/common/tool.h"
#include "tools/ringrun/base/processes.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SLOTS = 4096 }; /* of one host: more is a mistyped number */

static struct host *find(const struct hosts *h, const char *name, size_t len)
{
	for (int i = 0; i < h->n; i++)
		if (strlen(h->at[i].name) == len && memcmp(h->at[i].name, name, len) == 0)
			return &h->at[i];
	return NULL;
}

static void set_slots(struct host *host, int nslots)
{
	host->slots = need(realloc(host->slots, ((size_t)nslots + 1) * sizeof(*host->slots)));
	for (int i = host->nslots; i < nslots; i++)
		host->slots[i] = i;
	host->nslots = nslots;
}

void hosts_add(struct hosts *h, const char *name, int len, int nslots, int line)
{
	struct host *host;

	h->at = need(realloc(h->at, ((size_t)h->n + 1) * sizeof(*h->at)));
	host = &h->at[h->n++];
	*host = (struct host){ .name = need(strndup(name, (size_t)len)), .line = line };
	set_slots(host, nslots);
}

/* Digits as a number from 0 to max; -1 if it is something else. *end is what follows. */
static int read_digits(const char *text, int max, const char **end)
{
	long value = 0;

	for (*end = text; isdigit((unsigned char)**end); ++*end)
		value = value > max ? value : 10 * value + (**end - '0');
	return *end == text || value > max ? -1 : (int)value;
}

/* A name goes into commands: as a word that begins with - it would be an option. */
static bool is_name(const char *name, size_t len)
{
	if (len == 0 || name[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("._-:@%", name[i]))
			return false;
	return true;
}

/* ---- Hostfile -------------------------------------------------------------------------------- */

static int read_line(struct hosts *h, const char *path, int number, const char *text)
{
	static const char want[] = "want NAME slots=N, like 'node7 slots=8'";
	size_t len = strcspn(text, " \t");
	const char *slots = text + len + strspn(text + len, " \t"), *end;
	const struct host *before = find(h, text, len);
	int n;

	if (strncmp(slots, "slots=", 6) != 0)
		return say("%s, line %d: '%s': %s", path, number, text, want);
	if (!is_name(text, len))
		return say("%s, line %d: '%.*s' is no name of a host: %s", path, number, (int)len,
			   text, want);
	n = read_digits(slots + 6, MAX_SLOTS, &end);
	if (n < 0 || (*end && !isspace((unsigned char)*end)))
		return say("%s, line %d: '%s': the number of slots must be from 1 to %d: %s", path,
			   number, slots, MAX_SLOTS, want);
	if (n == 0)
		return say("%s, line %d: %.*s has no slots: give it some, or begin the line with #",
			   path, number, (int)len, text);
	if (before)
		return say(
			"%s, line %d: %s is in line %d already: write it once, with all of its slots",
			path, number, before->name, before->line);
	hosts_add(h, text, (int)len, n, number);
	return 0;
}

/* Without blanks at both ends. */
static char *strip(char *line)
{
	size_t len;

	line += strspn(line, " \t\r\n");
	for (len = strlen(line); len && isspace((unsigned char)line[len - 1]); len--)
		line[len - 1] = 0;
	return line;
}

int hosts_read_file(struct hosts *h, const char *path)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	int number = 0, rc = 0;

	h->source = path;
	if (!file)
		return say("--hostfile %s: %s; correct the path, or name hosts with --host", path,
			   strerror(errno));
	while (rc == 0 && (errno = 0, getline(&line, &room, file) >= 0)) {
		const char *text = strip(line);

		number++;
		if (*text && *text != '#')
			rc = read_line(h, path, number, text);
	}
	if (rc == 0 && ferror(file))
		rc = say("--hostfile %s: %s", path, strerror(errno));
	free(line);
	fclose(file);
	if (rc == 0 && h->n == 0)
		rc = say("%s names no host: write a line for each, like 'node7 slots=8'", path);
	return rc;
}

/* ---- --host ---------------------------------------------------------------------------------- */

int hosts_read_list(struct hosts *h, const char *text)
{
	h->source = "--host";
	for (const char *at = text, *next;; at = next + 1) {
		size_t len = strcspn(at, ","), name;
		const char *end, *colon = memchr(at, ':', len);
		struct host *host;
		int n = 1;

		next = at + len;
		name = colon ? (size_t)(colon - at) : len;
		if (colon && ((n = read_digits(colon + 1, MAX_SLOTS, &end)) < 1 || end != next))
			return say("--host %s: '%.*s': want HOST or HOST:SLOTS, with 1 to %d slots",
				   text, (int)len, at, MAX_SLOTS);
		if (!is_name(at, name))
			return say(
				"--host %s: '%.*s' is no name of a host: want a list like a:2,b:2",
				text, (int)len, at);
		host = find(h, at, name);
		if (host && host->nslots + n > MAX_SLOTS)
			return say("--host %s: %s has more than %d slots in all", text, host->name,
				   MAX_SLOTS);
		if (host)
			set_slots(host, host->nslots + n);
		else
			hosts_add(h, at, (int)name, n, 0);
		if (!*next)
			return 0;
	}
}

/* ---- Filters --------------------------------------------------------------------------------- */

/* What a filter names: for host k, marks[k][i] if slot i of it is named. */
typedef bool marks[MAX_SLOTS];

static int mark_slot(const struct hosts *h, const struct host *host, const char *option,
		     const char *text, int slot, bool *mark)
{
	for (int i = 0; i < host->nslots; i++)
		if (host->slots[i] == slot) {
			mark[i] = true;
			return 0;
		}
	return say("%s %s: %s has no slot %d: %s gives it %d (0 to %d)", option, text, host->name,
		   slot, h->source, host->nslots, host->nslots - 1);
}

/* Finds a host by its name without user@, which filters can't have. */
static const struct host *find_plain(const struct hosts *h, const char *name, size_t len)
{
	for (int i = 0; i < h->n; i++) {
		const char *at = strrchr(h->at[i].name, '@'), *plain = at ? at + 1 : h->at[i].name;

		if (strlen(plain) == len && memcmp(plain, name, len) == 0)
			return &h->at[i];
	}
	return NULL;
}

/* One NAME[:SLOT[,SLOT ..]] of a filter. */
static int mark_host(const struct hosts *h, const char *option, const char *text, const char *at,
		     size_t len, marks *out)
{
	/* an address of IPv6 has colons of its own */
	const struct host *host = find_plain(h, at, len);
	const char *colon = host ? NULL : memrchr(at, ':', len), *stop = at + len, *end;
	size_t name = colon ? (size_t)(colon - at) : len;
	bool *mark;

	host = host ? host : find_plain(h, at, name);
	if (!host)
		return say(
			"%s %s: %s has no host '%.*s': want names that are there, with @ between "
			"them, and :0,2 for some slots",
			option, text, h->source, (int)name, at);
	mark = out[host - h->at];
	if (!colon) {
		memset(mark, 1, (size_t)host->nslots);
		return 0;
	}
	for (at = colon + 1;; at = end + 1) {
		int slot = read_digits(at, MAX_SLOTS, &end);

		if (slot < 0 || end > stop || (end < stop && *end != ','))
			return say(
				"%s %s: '%.*s' is no list of slots: want HOST:0,2 and @ between hosts",
				option, text, (int)(stop - colon - 1), colon + 1);
		if (mark_slot(h, host, option, text, slot, mark) < 0)
			return -1;
		if (end == stop)
			return 0;
	}
}

/* Keeps the slots whose mark is `keep`, and the hosts that have one. */
static int filter(struct hosts *h, const char *option, const char *text, bool keep)
{
	marks *all = need(calloc((size_t)h->n, sizeof(*all)));
	int rc = 0, hosts = 0;

	for (const char *at = text; rc == 0;) {
		size_t len = strcspn(at, "@");

		rc = mark_host(h, option, text, at, len, all);
		if (!at[len])
			break;
		at += len + 1;
	}
	for (int i = 0; rc == 0 && i < h->n; i++) {
		struct host *host = &h->at[i];
		int slots = 0;

		for (int s = 0; s < host->nslots; s++)
			if (all[i][s] == keep)
				host->slots[slots++] = host->slots[s];
		host->nslots = slots;
		if (slots)
			h->at[hosts++] = *host;
	}
	free(all);
	if (rc < 0)
		return -1;
	h->n = hosts;
	return hosts ? 0 : say("%s %s: no host is left of %s", option, text, h->source);
}

int hosts_include(struct hosts *h, const char *option, const char *text)
{
	return filter(h, option, text, true);
}

int hosts_exclude(struct hosts *h, const char *text)
{
	return filter(h, "--exclude", text, false);
}

int hosts_keep_nodes(struct hosts *h, int n)
{
	if (n > h->n)
		return say("--num_nodes %d: %s has only %d host%s", n, h->source, h->n,
			   h->n == 1 ? "" : "s");
	h->n = n;
	return 0;
}

int hosts_keep_slots(struct hosts *h, int n)
{
	for (int i = 0; i < h->n; i++) {
		const struct host *host = &h->at[i];

		if (n > host->nslots && host->line)
			return say(
				"--num_gpus %d: %s, line %d: %s has slots=%d: raise it, or ask for less",
				n, h->source, host->line, host->name, host->nslots);
		if (n > host->nslots)
			return say("--num_gpus %d: %s gives %s only %d slots", n, h->source,
				   host->name, host->nslots);
	}
	for (int i = 0; i < h->n; i++)
		h->at[i].nslots = n;
	return 0;
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

int hosts_place(struct hosts *h, int nranks)
{
	int slots = 0, next = 0;

	for (int i = 0; i < h->n; i++)
		slots += h->at[i].nslots;
	if (nranks > slots)
		return say("-n %d: %s has %d slots in all: give it more, or ask for less", nranks,
			   h->source, slots);
	if (slots > MAX_RANKS && nranks == 0)
		return say("%s has %d slots in all: at most %d ranks are possible", h->source,
			   slots, MAX_RANKS);
	for (int i = 0; i < h->n; i++) {
		struct host *host = &h->at[i];
		int left = nranks ? nranks - next : host->nslots;

		host->first = next;
		host->nranks = left < host->nslots ? left : host->nslots;
		next += host->nranks;
		if (host->nranks == 0) { /* no rank is left for it, nor for those that follow */
			h->n = i;
			break;
		}
	}
	return next;
}
