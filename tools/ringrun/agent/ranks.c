#include "tools/ringrun/agent/ranks.h"

#include "kolo/kolo.h"
#include "tools/ringrun/base/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Cores ----------------------------------------------------------------------------------- */

/* The cores that ranks may be bound to, in the order of kolo_cores. n is 0 if ranks are not to be
 * bound. */
struct cores {
	int n, cpus[CPU_SETSIZE];
};

/* Reads "0,2-5" into the set. Returns false if it is something else. */
static bool read_core_list(const char *text, cpu_set_t *out)
{
	CPU_ZERO(out);
	for (char *end = NULL;; text = end + 1) {
		long first = strtol(text, &end, 10), last = first;

		if (end == text)
			return false;
		if (*end == '-') {
			text = end + 1;
			last = strtol(text, &end, 10);
		}
		if (end == text || first < 0 || last < first || last >= CPU_SETSIZE ||
		    (*end && *end != ','))
			return false;
		for (long cpu = first; cpu <= last; cpu++)
			CPU_SET((size_t)cpu, out);
		if (!*end)
			return true;
	}
}

static int find_cores(const struct job *job, struct cores *out, char *why, size_t room)
{
	cpu_set_t wanted, before;

	out->n = 0;
	if (job->bind == BIND_NONE)
		return 0;
	if (job->cores) {
		sched_getaffinity(0, sizeof(before), &before);
		if (!read_core_list(job->cores, &wanted)) {
			snprintf(why, room, "--bind_core_list %s: want a list like 0,2-5",
				 job->cores);
			return -1;
		}
		if (sched_setaffinity(0, sizeof(wanted), &wanted) < 0) {
			snprintf(why, room,
				 "--bind_core_list %s: none of these cores may be used here",
				 job->cores);
			return -1;
		}
	}
	out->n = kolo_cores(out->cpus, CPU_SETSIZE);
	if (out->n > CPU_SETSIZE)
		out->n = CPU_SETSIZE;
	if (job->cores)
		sched_setaffinity(0, sizeof(before), &before);
	if (out->n < job->nlocal)
		out->n = 0;
	return 0;
}

/* In the child. Ranks get what follows each other in the list, in which cores that share caches are
 * neighbours. */
static void bind_rank(const struct job *job, int local, const struct cores *cores)
{
	int all = job->bind == BIND_CORE ? job->nlocal : cores->n; /* that are given away */
	cpu_set_t set;

	if (cores->n == 0)
		return;
	CPU_ZERO(&set);
	for (int i = local * all / job->nlocal; i < (local + 1) * all / job->nlocal; i++)
		CPU_SET((size_t)cores->cpus[i], &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* What a rank gets as descriptors 0, 1 and 2; -1: the agent's own. */
struct ends {
	int fd[3];
};

static int open_log(struct rank *rank, const struct job *job, int number)
{
	time_t now = time(NULL);
	char when[32];
	struct tm tm;

	strftime(when, sizeof(when), "%Y%m%d%H%M%S", localtime_r(&now, &tm));
	if (asprintf(&rank->log, "%s/%s_rank%d.log", job->logs, when, number) < 0)
		rank->log = need(NULL);
	return open(rank->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
}

/* Opens where a rank reads and writes. Returns -1 with errno. */
static int open_ends(struct ranks *r, int local, struct ends *out)
{
	const struct job *job = r->job;
	struct rank *rank = &r->at[local];
	int number = job->first + local, fds[2];

	*out = (struct ends){ { -1, -1, -1 } };
	if (number > 0 && (out->fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
		return -1;
	if (number == 0 && job->input) {
		if (pipe2(fds, O_CLOEXEC) < 0)
			return -1;
		out->fd[0] = fds[0];
		r->input = fds[1];
		fcntl(r->input, F_SETFL, O_NONBLOCK);
	}
	if (job->logs) {
		out->fd[1] = open_log(rank, job, number);
		out->fd[2] = out->fd[1] < 0 ? -1 : fcntl(out->fd[1], F_DUPFD_CLOEXEC, 3);
		return out->fd[2] < 0 ? -1 : 0;
	}
	for (int i = 0; job->relay && i < 2; i++) {
		out->fd[1 + i] =
			lines_open(&rank->out[i], 1 + i, job->tag ? number : -1, &rank->tail);
		if (out->fd[1 + i] < 0)
			return -1;
	}
	return 0;
}

static void close_ends(const struct ends *e)
{
	for (int i = 0; i < 3; i++)
		if (e->fd[i] >= 0)
			close(e->fd[i]);
}

/* The command of a rank: with --local_rank=K where a Python program expects it. */
static char **command_of(const struct job *job, int local)
{
	int n = 0;
	char **words, *option;

	if (!job->local_rank_option)
		return job->command;
	while (job->command[n])
		n++;
	words = need(calloc((size_t)n + 2, sizeof(*words)));
	if (asprintf(&option, "--local_rank=%d", local) < 0)
		option = need(NULL);
	for (int i = 0, to = 0; i < n; i++) {
		words[to++] = job->command[i];
		if (i == job->local_rank_at)
			words[to++] = option;
	}
	return words;
}

/* In the child. */
static _Noreturn void become_rank(const struct job *job, int local, const struct cores *cores,
				  const struct ends *ends)
{
	char **command = command_of(job, local);
	sigset_t none;
	int err;

	bind_rank(job, local, cores);
	for (int i = 0; i < 3; i++)
		if (ends->fd[i] >= 0)
			dup2(ends->fd[i], i);
	environment_of_rank(job, local);
	restore_descriptors();
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(command[0], command);
	err = errno;
	if (local == 0)
		complain(command[0]);
	_exit(err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static int start_rank(struct ranks *r, int local, const struct cores *cores)
{
	struct ends ends;
	pid_t self = getpid();

	if (open_ends(r, local, &ends) < 0)
		return -1;
	r->at[local].pid = fork();
	if (r->at[local].pid == 0) {
		die_with(self);
		become_rank(r->job, local, cores, &ends);
	}
	close_ends(&ends);
	if (r->at[local].pid < 0) {
		r->at[local].pid = 0;
		return -1;
	}
	r->running++;
	return 0;
}

/* Sets errno if it is none. */
static bool is_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Makes the folder for log files; the one above it must be there. */
static int prepare(const struct job *job, char *why, size_t room)
{
	if (job->wdir && chdir(job->wdir) < 0) {
		snprintf(why, room, "--wdir %s: %s", job->wdir, strerror(errno));
		return -1;
	}
	if (job->logs && mkdir(job->logs, 0777) < 0 &&
	    (errno != EEXIST || !is_folder(job->logs) || access(job->logs, W_OK | X_OK) < 0)) {
		snprintf(why, room, "--enable_each_rank_log %s: %s", job->logs, strerror(errno));
		return -1;
	}
	return 0;
}

int ranks_start(struct ranks *r, const struct job *job, const struct meeting *meeting, char *why,
		size_t room)
{
	struct cores cores;

	*r = (struct ranks){ .job = job, .input = -1 };
	r->at = need(calloc((size_t)job->nlocal, sizeof(*r->at)));
	for (int i = 0; i < job->nlocal; i++)
		r->at[i].out[0].fd = r->at[i].out[1].fd = -1;
	if (prepare(job, why, room) < 0 || find_cores(job, &cores, why, room) < 0)
		return -1;
	environment_of_host(job, meeting, cores.n / job->nlocal);
	for (int local = 0; local < job->nlocal; local++)
		if (start_rank(r, local, &cores) < 0) {
			snprintf(why, room, "starting rank %d: %s%s", job->first + local,
				 strerror(errno),
				 errno == EMFILE
					 ? " (raise ulimit -n: each rank needs 2 descriptors here)"
					 : "");
			return -1;
		}
	return 0;
}

/* ---- Watching -------------------------------------------------------------------------------- */

void ranks_signal(const struct ranks *r, int sig)
{
	for (int i = 0; r->at && i < r->job->nlocal; i++)
		if (r->at[i].pid > 0)
			kill(r->at[i].pid, sig);
}

bool ranks_reap(struct ranks *r, int *local, int *wait_status)
{
	pid_t pid = waitpid(-1, wait_status, WNOHANG);

	*local = -1;
	if (pid <= 0)
		return false;
	for (int i = 0; r->at && i < r->job->nlocal; i++)
		if (r->at[i].pid == pid) {
			r->at[i].pid = 0;
			r->running--;
			*local = i;
		}
	return true;
}

char *ranks_last_lines(const struct ranks *r, int local)
{
	const struct rank *rank = &r->at[local];
	int fd = rank->log ? open(rank->log, O_RDONLY | O_CLOEXEC) : -1;
	char *text = need(calloc(1, TAIL + 1));
	ssize_t got;

	if (!rank->log && rank->tail.len)
		memcpy(text, rank->tail.at, rank->tail.len);
	if (fd < 0)
		return text;
	if (lseek(fd, -TAIL, SEEK_END) < 0)
		lseek(fd, 0, SEEK_SET);
	got = read(fd, text, TAIL);
	text[got > 0 ? got : 0] = 0;
	close(fd);
	return text;
}
