/* ringrun from start to end. The process that the user sees only passes signals on. Its child, the
 * keeper, starts the ranks, watches them and serves their meeting point. As a subreaper the keeper
 * adopts what its descendants leave. It notices at once if the process above it dies, and the ranks
 * die with the keeper: nothing survives a `kill -9` of either. */
#include "tools/ringrun/ringrun.h"

#include "kolo/kolo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 4096 }; /* longest tagged line; longer ones are broken */

/* One output of one rank on its way to ours, line by line. */
struct pipe_end {
	int fd, to, rank;
	size_t len;
	char line[LINE];
};

struct keeper {
	const struct options *options;
	pid_t *pids; /* by rank; 0 once it has ended */
	int running;
	pid_t tagger;     /* passes on what the ranks write, with --tag; 0 once it has ended */
	int *ends;        /* with --tag: what the ranks write to, out and err of each */
	int code;         /* of the first rank that failed */
	bool told_to_end; /* by a signal */
	int64_t deadline; /* when to go on with ending the others; 0: no need */
	int next_signal;  /* what they get then */
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void complain(const char *what)
{
	fprintf(stderr, "ringrun: %s: %s\n", what, strerror(errno));
}

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

/* Kills all children except `spared`. Returns how many are not gone yet. */
static int kill_children(pid_t spared)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	while (proc && (entry = readdir(proc))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid <= 0 || pid == spared || parent_of(entry->d_name) != getpid())
			continue;
		kill(pid, SIGKILL);
		n += waitpid(pid, NULL, WNOHANG) != pid;
	}
	if (proc)
		closedir(proc);
	return n;
}

/* Ends every descendant except `spared`. The children of those that die become ours, until there
 * are none. Returns false if some may not be killed, because they are another user's: these are
 * given up after a while. */
static bool end_descendants(pid_t spared)
{
	int64_t deadline = now_ms() + GRACE_MS;
	int left;

	while ((left = kill_children(spared)) > 0 && now_ms() < deadline)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return left == 0;
}

/* ---- A rank ---------------------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static void set_id(const struct kolo_id *id)
{
	char hex[2 * sizeof(id->bytes) + 1];

	for (size_t i = 0; i < sizeof(id->bytes); i++)
		snprintf(hex + 2 * i, 3, "%02x", id->bytes[i]);
	setenv("KOLO_ID", hex, 1);
}

/* In a child of the keeper: it must not outlive it. */
static void die_with(pid_t keeper)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(EXIT_OWN); /* it died before the line above */
}

/* The cores that ranks may be bound to, in the order of kolo_cores. n is 0 if ranks are not to be
 * bound. */
struct cores {
	int n, cpus[CPU_SETSIZE];
};

/* In the child. Ranks get what follows each other in the list, in which cores that share caches are
 * neighbours. */
static void bind_rank(const struct options *o, int rank, const struct cores *cores)
{
	int all = o->bind == BIND_CORE ? o->nranks : cores->n; /* that are given away */
	cpu_set_t set;

	if (cores->n < o->nranks)
		return;
	CPU_ZERO(&set);
	for (int i = rank * all / o->nranks; i < (rank + 1) * all / o->nranks; i++)
		CPU_SET((size_t)cores->cpus[i], &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* In the child. ends are what it writes to, NULL for the keeper's own. */
static void become_rank(const struct options *o, int rank, const struct cores *cores,
			const int *ends)
{
	sigset_t none;
	int null, err;

	bind_rank(o, rank, cores);
	null = rank > 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	if (ends) {
		dup2(ends[0], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
	}
	set_number("KOLO_RANK", rank);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(o->command[0], o->command);
	err = errno;
	if (rank == 0)
		complain(o->command[0]);
	_exit(err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static int start_ranks(struct keeper *k)
{
	const struct options *o = k->options;
	pid_t self = getpid();
	static const char *const stale[] = { "KOLO_LAUNCHER", "KOLO_ROOT",
					     "KOLO_JOB" }; /* another job's */
	struct cores cores = { 0 };
	struct kolo_id id;

	if (kolo_id_create(&id) < 0) {
		fprintf(stderr, "ringrun: %s\n", kolo_last_error());
		return -1;
	}
	if (o->bind != BIND_NONE)
		cores.n = kolo_cores(cores.cpus, CPU_SETSIZE);
	if (cores.n > CPU_SETSIZE)
		cores.n = CPU_SETSIZE;
	set_id(&id);
	set_number("KOLO_NRANKS", o->nranks);
	for (size_t i = 0; i < sizeof(stale) / sizeof(stale[0]); i++)
		unsetenv(stale[i]);
	for (int rank = 0; rank < o->nranks; rank++) {
		k->pids[rank] = fork();
		if (k->pids[rank] == 0) {
			die_with(self);
			become_rank(o, rank, &cores, k->ends ? k->ends + 2 * rank : NULL);
		}
		if (k->pids[rank] < 0) {
			complain("starting a rank");
			k->pids[rank] = 0;
			break;
		}
		k->running++;
	}
	return k->running == o->nranks ? 0 : -1;
}

/* ---- The tagger: a process of its own, so that a reader who stalls stalls the ranks' output and
 * nothing else - */

static void write_line(struct pipe_end *p, size_t len)
{
	char tagged[LINE + 32];
	int head = snprintf(tagged, sizeof(tagged), "[%d] ", p->rank);
	size_t total = (size_t)head + len;

	memcpy(tagged + head, p->line, len);
	if (len == 0 || p->line[len - 1] != '\n')
		tagged[total++] = '\n';
	for (size_t at = 0; at < total;) {
		ssize_t put = write(p->to, tagged + at, total - at);

		if (put < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){ .fd = p->to, .events = POLLOUT }, 1, -1);
		} else if (put < 0 && errno != EINTR) {
			complain("writing a rank's output");
			_exit(EXIT_OWN);
		}
		at += put > 0 ? (size_t)put : 0;
	}
	memmove(p->line, p->line + len, p->len - len);
	p->len -= len;
}

/* Passes on what has come; at the end of file the rest too. */
static void pump(struct pipe_end *p)
{
	ssize_t got = read(p->fd, p->line + p->len, sizeof(p->line) - p->len);
	char *end;

	if (got < 0 && errno == EINTR)
		return;
	if (got > 0)
		p->len += (size_t)got;
	while ((end = memchr(p->line, '\n', p->len)))
		write_line(p, (size_t)(end - p->line) + 1);
	if (p->len == sizeof(p->line) || (got <= 0 && p->len))
		write_line(p, p->len);
	if (got <= 0) {
		close(p->fd);
		p->fd = -1;
	}
}

/* Runs until no process has the other ends any more. */
static void tag_lines(struct pipe_end *pipes, int n)
{
	struct pollfd *polls = calloc((size_t)n, sizeof(*polls));
	int open = n;

	if (!polls)
		_exit(EXIT_OWN);
	while (open > 0) {
		for (int i = 0; i < n; i++)
			polls[i] = (struct pollfd){ .fd = pipes[i].fd, .events = POLLIN };
		poll(polls, (nfds_t)n, -1);
		open = 0;
		for (int i = 0; i < n; i++) {
			if (polls[i].revents)
				pump(&pipes[i]);
			open += pipes[i].fd >= 0;
		}
	}
	free(polls);
	_exit(0);
}

static void close_ends(struct keeper *k)
{
	for (int i = 0; k->ends && i < 2 * k->options->nranks; i++)
		if (k->ends[i] >= 0)
			close(k->ends[i]);
	free(k->ends);
	k->ends = NULL;
}

/* Opens the ranks' outputs, and starts the process that reads them. */
static int start_tagger(struct keeper *k)
{
	int n = 2 * k->options->nranks, fds[2];
	struct pipe_end *pipes = calloc((size_t)n, sizeof(*pipes));
	pid_t self = getpid();

	k->ends = calloc((size_t)n, sizeof(*k->ends));
	for (int i = 0; pipes && k->ends && i < n; i++) {
		if (pipe2(fds, O_CLOEXEC) < 0) {
			complain(
				"opening a pipe (--tag needs four descriptors for each rank: raise ulimit -n)");
			_exit(EXIT_OWN);
		}
		pipes[i] = (struct pipe_end){ .fd = fds[0],
					      .to = i % 2 ? STDERR_FILENO : STDOUT_FILENO,
					      .rank = i / 2 };
		k->ends[i] = fds[1];
	}
	k->tagger = pipes && k->ends ? fork() : -1;
	if (k->tagger == 0) {
		die_with(self);
		close_ends(k);
		tag_lines(pipes, n);
	}
	for (int i = 0; pipes && i < n; i++)
		close(pipes[i].fd);
	free(pipes);
	if (k->tagger > 0)
		return 0;
	k->tagger = 0;
	complain("starting the process that tags output");
	return -1;
}

/* ---- The keeper ------------------------------------------------------------------------------ */

static void signal_ranks(const struct keeper *k, int sig)
{
	for (int rank = 0; rank < k->options->nranks; rank++)
		if (k->pids[rank] > 0)
			kill(k->pids[rank], sig);
	if (k->running == 0 && k->tagger > 0 && sig == SIGKILL)
		kill(k->tagger, sig);
}

/* The first failure decides about the exit status. */
static void report_failure(struct keeper *k, int rank, int status)
{
	k->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	k->deadline = now_ms() + GRACE_MS;
	if (WIFSIGNALED(status))
		fprintf(stderr,
			"ringrun: rank %d was killed by signal %d (%s); ending the others\n", rank,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "ringrun: rank %d returned %d; ending the others\n", rank, k->code);
}

static int find_rank(const struct keeper *k, pid_t pid)
{
	for (int rank = 0; rank < k->options->nranks; rank++)
		if (k->pids[rank] == pid)
			return rank;
	return -1;
}

/* Takes the children that have ended. If several ranks ended since the last look, their order is
 * unknown. Then a killed rank is more likely the cause than one that returned. */
static void reap(struct keeper *k)
{
	int status, first = -1, first_status = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		int rank = find_rank(k, pid);

		if (pid == k->tagger) {
			k->tagger = 0;
			if (status && !k->code)
				k->code = EXIT_OWN; /* what the ranks wrote is lost */
		}
		if (rank < 0)
			continue;
		k->pids[rank] = 0;
		k->running--;
		if (status && (first < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(first_status)))) {
			first = rank;
			first_status = status;
		}
	}
	if (first >= 0 && !k->code)
		report_failure(k, first, first_status);
}

/* Signals that the keeper and the process above it pass on. */
static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* What the kernel sends the keeper when the process above it dies. */
static int orphaned(void)
{
	return SIGRTMIN;
}

static int open_signals(void)
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

/* What came from a terminal went to the whole foreground group, the ranks included. */
static bool to_pass_on(const struct signalfd_siginfo *info)
{
	return info->ssi_code <= 0;
}

static void handle_signal(struct keeper *k, const struct signalfd_siginfo *info)
{
	int sig = (int)info->ssi_signo;

	if (sig == orphaned()) {
		end_descendants(0);
		_exit(EXIT_OWN);
	}
	if (sig == SIGCHLD) {
		reap(k);
		return;
	}
	if (to_pass_on(info))
		signal_ranks(k, sig);
	/* Ranks that end on it end soon; a reader of ours that has stalled is not waited for much
	 * longer. */
	if (sig != SIGUSR1 && sig != SIGUSR2)
		k->told_to_end = true;
	if (k->told_to_end && k->running == 0 && !k->deadline)
		k->deadline = now_ms() + GRACE_MS;
}

static void wait_for_something(struct keeper *k, int signals)
{
	int64_t left = k->deadline ? k->deadline - now_ms() : -1;
	struct pollfd wait = { .fd = signals, .events = POLLIN };
	struct signalfd_siginfo info;

	poll(&wait, 1, k->deadline ? (int)(left > 0 ? left : 0) : -1);
	while (read(signals, &info, sizeof(info)) == sizeof(info))
		handle_signal(k, &info);
	if (k->deadline && now_ms() >= k->deadline) {
		signal_ranks(k, k->next_signal);
		k->next_signal = SIGKILL;
		k->deadline = now_ms() + GRACE_MS;
	}
}

static int keep(const struct options *o, int signals)
{
	struct keeper k = { .options = o, .next_signal = SIGTERM };

	k.pids = calloc((size_t)o->nranks, sizeof(*k.pids));
	if (!k.pids || (o->tag && start_tagger(&k) < 0) || start_ranks(&k) < 0) {
		k.code = EXIT_OWN;
		k.next_signal = SIGKILL;
		k.deadline = now_ms();
	}
	close_ends(&k);
	while (k.running > 0)
		wait_for_something(&k, signals);
	if (!end_descendants(k.tagger))
		k.told_to_end = true; /* what is left may hold the tagger's pipes for ever */
	/* The tagger ends when it has passed on everything. */
	k.next_signal = SIGKILL;
	k.deadline = k.told_to_end ? now_ms() + GRACE_MS : 0;
	while (k.tagger > 0)
		wait_for_something(&k, signals);
	free(k.pids);
	return k.code;
}

/* ---- The process that the user sees ---------------------------------------------------------- */

static int stand_above(pid_t keeper, int signals)
{
	struct pollfd wait = { .fd = signals, .events = POLLIN };
	struct signalfd_siginfo info;
	int status;

	while (waitpid(keeper, &status, WNOHANG) == 0) {
		poll(&wait, 1, -1);
		while (read(signals, &info, sizeof(info)) == sizeof(info))
			if (info.ssi_signo != SIGCHLD && to_pass_on(&info))
				kill(keeper, (int)info.ssi_signo);
	}
	if (WIFSIGNALED(status))
		end_descendants(0); /* the keeper's are ours now */
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	struct options options;
	pid_t top = getpid(), keeper;
	int signals;

	parse_options(argc, argv, &options);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how the ranks ended */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signals = open_signals();
	keeper = signals < 0 ? -1 : fork();
	if (keeper < 0) {
		complain("starting the process that keeps the ranks");
		return EXIT_OWN;
	}
	if (keeper > 0)
		return stand_above(keeper, signals);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, orphaned());
	close(signals); /* a signalfd reads its opener's signals */
	signals = open_signals();
	if (getppid() != top || signals < 0)
		return EXIT_OWN;
	return keep(&options, signals);
}
