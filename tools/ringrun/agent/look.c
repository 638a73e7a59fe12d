#include "tools/ringrun/agent/look.h"

#include "kolo/kolo.h"
#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/sockets.h"
#include "tools/ringrun/base/texts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { REACH_MS = 2000, CLOCK_LIMIT_US = 2000000000, VERBS = 300 };

extern char **environ;

/* ---- Files ----------------------------------------------------------------------------------- */

/* The first line of a small file; "" if it can't be read. Returns out. */
static const char *read_text(const char *path, char *out, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, out, room - 1);

	if (fd >= 0)
		close(fd);
	out[got > 0 ? got : 0] = 0;
	out[strcspn(out, "\n")] = 0;
	return out;
}

static int read_number(const char *path)
{
	char text[32];

	return *read_text(path, text, sizeof(text)) ? atoi(text) : UNKNOWN;
}

/* Calls `visit` for each entry of a folder. */
static void for_each_entry(const char *folder,
			   void (*visit)(const char *folder, const char *name, void *arg),
			   void *arg)
{
	DIR *list = opendir(folder);
	struct dirent *entry;

	while (list && (entry = readdir(list)))
		if (entry->d_name[0] != '.')
			visit(folder, entry->d_name, arg);
	if (list)
		closedir(list);
}

/* ---- Network --------------------------------------------------------------------------------- */

static void list_interfaces(struct facts *f)
{
	struct ifaddrs *list = NULL;
	char text[NI_MAXHOST], path[64 + IF_NAMESIZE];

	if (getifaddrs(&list) < 0)
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in)
						  : sizeof(struct sockaddr_in6);

		if ((family != AF_INET && family != AF_INET6) || !(i->ifa_flags & IFF_UP) ||
		    (i->ifa_flags & IFF_LOOPBACK) ||
		    getnameinfo(i->ifa_addr, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ||
		    strchr(text, '%'))
			continue;
		snprintf(path, sizeof(path), "/sys/class/net/%s/speed", i->ifa_name);
		texts_add(&f->interfaces, "%s %s %d", i->ifa_name, text, read_number(path));
	}
	freeifaddrs(list);
}

/* What a program gets that asks for its own name: gloo and others offer this address to all hosts.
 */
static void find_name_address(struct facts *f)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found = NULL;
	char name[256] = "", text[NI_MAXHOST];

	gethostname(name, sizeof(name) - 1);
	f->hostname = need(strdup(name));
	if (getaddrinfo(name, NULL, &hints, &found) != 0)
		return;
	if (getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), NULL, 0,
			NI_NUMERICHOST) == 0)
		f->name_address = need(strdup(text));
	freeaddrinfo(found);
}

bool look_for_port(int *port)
{
	int fd = socket_listen(port);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void look_for_others(char *const *places, struct bytes *out)
{
	int64_t until = now_ms() + REACH_MS;
	struct pollfd *polls;
	int n = 0, left = 0, *results;

	while (places[n])
		n++;
	polls = need(calloc((size_t)n + 1, sizeof(*polls)));
	results = need(calloc((size_t)n + 1, sizeof(*results)));
	for (int i = 0; i < n; i++) {
		char *text = need(strdup(places[i]));
		const char *address = strtok(text + strcspn(text, " ") + 1, " "),
			   *port = strtok(NULL, " ");

		polls[i].fd = socket_begin_to_connect(address, port ? atoi(port) : 0);
		polls[i].events = POLLOUT;
		results[i] = polls[i].fd < 0 ? errno : ETIMEDOUT;
		left += polls[i].fd >= 0;
		free(text);
	}
	while (left > 0 && now_ms() < until) {
		poll(polls, (nfds_t)n, (int)(until - now_ms()));
		for (int i = 0; i < n; i++) {
			socklen_t len = sizeof(results[i]);

			if (polls[i].fd < 0 || !polls[i].revents)
				continue;
			getsockopt(polls[i].fd, SOL_SOCKET, SO_ERROR, &results[i], &len);
			close(polls[i].fd);
			polls[i].fd = -1;
			left--;
		}
	}
	put_number(out, n);
	for (int i = 0; i < n; i++) {
		char text[64];

		if (polls[i].fd >= 0)
			close(polls[i].fd);
		snprintf(text, sizeof(text), "%d %d", atoi(places[i]), results[i]);
		put_text(out, text);
	}
	free(polls);
	free(results);
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* The uverbs device of an RDMA device is a folder with its name in there. */
static void find_uverbs(const char *folder, const char *name, void *arg)
{
	(void)folder;
	if (strncmp(name, "uverbs", 6) == 0)
		snprintf(arg, VERBS, "/dev/infiniband/%.200s", name);
}

static void add_rdma(const char *folder, const char *device, void *arg)
{
	struct facts *f = arg;
	char path[600], state[64], rate[64], verbs[VERBS] = "";

	snprintf(path, sizeof(path), "%s/%.200s/device/infiniband_verbs", folder, device);
	for_each_entry(path, find_uverbs, verbs);
	for (int port = 1; port <= 16; port++) {
		snprintf(path, sizeof(path), "%s/%.200s/ports/%d/state", folder, device, port);
		if (!*read_text(path, state, sizeof(state)))
			break;
		snprintf(path, sizeof(path), "%s/%.200s/ports/%d/rate", folder, device, port);
		read_text(path, rate, sizeof(rate));
		texts_add(&f->rdma, "%s %d %s %s %s", device, port,
			  strchr(state, ' ') ? strchr(state, ' ') + 1 : state,
			  *rate ? strtok(rate, " ") : "?",
			  *verbs && access(verbs, R_OK | W_OK) == 0 ? "allowed" : "denied");
	}
}

static void count_gpu(const char *folder, const char *name, void *arg)
{
	struct facts *f = arg;
	char path[32];

	(void)folder;
	(void)name;
	snprintf(path, sizeof(path), "/dev/nvidia%d", f->gpus++);
	f->gpus_denied += access(path, R_OK | W_OK) < 0;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static void read_limits(struct facts *f)
{
	struct rlimit limit;
	struct statvfs shm;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	f->memlock_kib = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >> 10 > INT32_MAX
				 ? UNKNOWN
				 : (int)(limit.rlim_cur >> 10);
	restore_descriptors(); /* as a rank would have them */
	getrlimit(RLIMIT_NOFILE, &limit);
	f->nofile = limit.rlim_cur > INT32_MAX ? INT32_MAX : (int)limit.rlim_cur;
	f->nofile_max = limit.rlim_max > INT32_MAX ? INT32_MAX : (int)limit.rlim_max;
	f->shm_mib = UNKNOWN;
	if (statvfs("/dev/shm", &shm) == 0 && access("/dev/shm", W_OK) == 0)
		f->shm_mib = (int)((uint64_t)shm.f_bavail * shm.f_frsize >> 20 & INT32_MAX);
	f->ptrace_scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
}

/* Variables that a login on this host sets, and that would decide about each job there. */
static void list_variables(const struct job *job, struct facts *f)
{
	static const char *const names[] = { "KOLO_",     "NCCL_", "UCX_",
					     "GLOO_",     "OMP_",  "CUDA_VISIBLE_DEVICES",
					     "MASTER_",   "RANK",  "WORLD_SIZE",
					     "LOCAL_RANK" };

	for (int i = 0; environ[i]; i++)
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			bool ours = false;

			for (int e = 0; job->environment[e]; e++)
				ours |= strcmp(job->environment[e], environ[i]) == 0;
			if (!ours && strncmp(environ[i], names[k], strlen(names[k])) == 0)
				texts_add(&f->variables, "%s", environ[i]);
		}
}

static int64_t wall_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void look_at_host(const struct job *job, int64_t asked_us, struct facts *out)
{
	int64_t begin = wall_us(), ahead = begin - asked_us;
	const char *program = job->command[0];
	int port = job->port > 0 ? job->port : 0;

	*out = (struct facts){ .cores = kolo_cores(NULL, 0), .uid = (int)geteuid() };
	ahead = ahead > CLOCK_LIMIT_US ? CLOCK_LIMIT_US : ahead;
	out->clock_us = (int)(ahead < -CLOCK_LIMIT_US ? -CLOCK_LIMIT_US : ahead);
	out->master_port = look_for_port(&port);
	list_variables(job, out);
	for (int i = 0; job->environment[i]; i++)
		if (strncmp(job->environment[i], "PATH=", 5) == 0)
			setenv("PATH", job->environment[i] + 5, 1);
	out->wdir = !job->wdir || chdir(job->wdir) == 0;
	out->program = !program ||
		       (strchr(program, '/') ? access(program, X_OK) == 0 : is_on_path(program));
	list_interfaces(out);
	find_name_address(out);
	for_each_entry("/sys/class/infiniband", add_rdma, out);
	for_each_entry("/proc/driver/nvidia/gpus", count_gpu, out);
	read_limits(out);
	socket_listen(&out->port); /* open until this process ends; nobody needs to accept */
	out->took_us = (int)(wall_us() - begin);
}
