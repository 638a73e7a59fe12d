#include "tools/ringrun/base/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void complain(const char *what)
{
	fprintf(stderr, "ringrun: %s: %s\n", what, strerror(errno));
}

int vsay(const char *fmt, va_list args)
{
	fputs("ringrun: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	return -1;
}

int say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsay(fmt, args);
	va_end(args);
	return -1;
}

bool is_on_path(const char *name)
{
	const char *path = getenv("PATH");
	char file[4096];

	for (const char *at = path ? path : ""; *at; at += strcspn(at, ":"), at += *at == ':') {
		snprintf(file, sizeof(file), "%.*s/%s", (int)strcspn(at, ":"), at, name);
		if (access(file, X_OK) == 0)
			return true;
	}
	return false;
}

void *need(void *p)
{
	if (p)
		return p;
	fputs("ringrun: out of memory\n", stderr);
	exit(EXIT_OWN);
}

/* Until processes that were killed must be gone. 2 s were once too few on a busy machine, and one
 * that waits for a disk may never end. */
enum { STUCK_MS = 20000 };

/* ---- Ending processes ------------------------------------------------------------------------ */

/* The parent of a process, 0 when it is gone. */
static pid_t parent_of(const char *pid)
{
	char path[64], stat[512], *end;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
	if (fd >= 0)
		close(fd);
	if (got <= 0)
		return 0;
	stat[got] = 0;
	end = strrchr(stat, ')'); /* the name before it may hold anything */
	return end ? (pid_t)strtol(end + 3, NULL, 10) : 0;
}

/* Kills all children. Returns how many there were: those that are gone now may have left children,
 * which this has not seen. *foreign is how many of them may not be killed. */
static int kill_children(int *foreign)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	*foreign = 0;
	while (proc && (entry = readdir(proc))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid <= 0 || parent_of(entry->d_name) != getpid())
			continue;
		*foreign += kill(pid, SIGKILL) < 0 && errno == EPERM;
		waitpid(pid, NULL, WNOHANG);
		n++;
	}
	if (proc)
		closedir(proc);
	return n;
}

bool end_descendants(void)
{
	int64_t began = now_ms();
	int left, foreign;

	while ((left = kill_children(&foreign)) > 0 &&
	       now_ms() - began < (left == foreign ? GRACE_MS : STUCK_MS))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return left == 0;
}

void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_OWN); /* it died before the line above */
}

static struct rlimit before;

void raise_descriptors(void)
{
	struct rlimit all;

	if (before.rlim_max || getrlimit(RLIMIT_NOFILE, &before) < 0)
		return;
	all = before;
	all.rlim_cur = all.rlim_max;
	setrlimit(RLIMIT_NOFILE, &all);
}

void restore_descriptors(void)
{
	if (before.rlim_max)
		setrlimit(RLIMIT_NOFILE, &before);
}

/* ---- Signals --------------------------------------------------------------------------------- */

/* Signals that ringrun passes on to the ranks. */
static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

int orphaned(void)
{
	return SIGRTMIN;
}

int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&set, passed_on[i]);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, orphaned());
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool sent_to_us_alone(const struct signalfd_siginfo *info)
{
	return info->ssi_code <= 0;
}

int exit_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}
