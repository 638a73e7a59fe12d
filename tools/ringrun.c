/* ringrun: starts N ranks of a program on this host.
 *
 * Two processes stand above the ranks. The one that the user sees only passes signals on. Its child, the keeper,
 * starts the ranks, watches them and serves their meeting point. The keeper adopts whatever its descendants leave
 * behind (it is a subreaper) and learns at once when the process above it dies, so nothing survives a `kill -9`
 * of either: the ranks themselves die with the keeper. */
#include "kolo/kolo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
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

enum {
	EXIT_OWN = 125,        /* ringrun itself failed */
	EXIT_CANNOT_RUN = 126, /* PROGRAM is there but can't be run */
	EXIT_NOT_FOUND = 127,
	GRACE_MS = 2000, /* when a rank has failed: for the others to say why, then again after SIGTERM */
	LINE = 4096,     /* longest tagged line; longer ones are broken */
};

struct options {
	int nranks;
	bool bind, tag;
	char **command;
};

/* One output of one rank on its way to ours, line by line. */
struct pipe_end {
	int fd, to, rank;
	size_t len;
	char line[LINE];
};

struct keeper {
	const struct options *options;
	pid_t *pids; /* by rank; 0 once it has ended */
	int running, npipes;
	struct pipe_end *pipes; /* two for each rank with --tag */
	int code;               /* of the first rank that failed */
	int64_t deadline;       /* when to go on with ending the others; 0: no need */
	int next_signal;        /* what they get then */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: ringrun -n N [--bind core|none] [--tag] PROGRAM [ARGS...]\n"
		"\n"
		"Starts N ranks of PROGRAM on this host, as kolo_comm_create(NULL, ...) finds them.\n"
		"\n"
		"  -n N           number of ranks\n"
		"  --bind core    each rank on a core of its own where there are enough (default)\n"
		"  --bind none    no binding\n"
		"  --tag          every line of output begins with its rank: [3] ...\n"
		"  --help, --version\n"
		"\n"
		"Standard input goes to rank 0. Signals are passed on to all ranks. When a rank fails, the others\n"
		"have %d s to end by themselves, get SIGTERM, and %d s later SIGKILL.\n"
		"\n"
		"Exit status: 0 when all ranks returned 0; else that of the first rank that failed, 128 + its\n"
		"signal if one killed it; 125 when ringrun itself failed, 126 when PROGRAM could not be run, 127\n"
		"when it was not found.\n",
		GRACE_MS / 1000, GRACE_MS / 1000);
}

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

/* ---- Ending processes ----------------------------------------------------------------------------------- */

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

static void kill_children(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		    parent_of(entry->d_name) == getpid())
			kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
	if (proc)
		closedir(proc);
}

/* Ends every descendant: the children of those that die become ours, until there are none. */
static void end_descendants(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
		if (pid > 0)
			continue;
		kill_children();
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

/* ---- A rank --------------------------------------------------------------------------------------------- */

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

/* In the child. cpu is -1 for no binding, out and err -1 for the keeper's own. */
static void become_rank(const struct options *o, int rank, pid_t keeper, int cpu, int out, int err)
{
	sigset_t none;
	cpu_set_t set;
	int null;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(EXIT_OWN); /* it died before the line above */
	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET((size_t)cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	null = rank > 0 ? open("/dev/null", O_RDONLY) : -1;
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	if (out >= 0) {
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
	}
	set_number("KOLO_RANK", rank);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(o->command[0], o->command);
	if (rank == 0)
		complain(o->command[0]);
	_exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static int start_rank(struct keeper *k, int rank, int cpu)
{
	int out[2] = { -1, -1 }, err[2] = { -1, -1 };
	pid_t self = getpid();

	if (k->options->tag && (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)) {
		complain("pipe");
		return -1;
	}
	k->pids[rank] = fork();
	if (k->pids[rank] == 0)
		become_rank(k->options, rank, self, cpu, out[1], err[1]);
	if (k->pids[rank] < 0) {
		complain("fork");
		k->pids[rank] = 0;
		return -1;
	}
	k->running++;
	if (k->options->tag) {
		close(out[1]);
		close(err[1]);
		k->pipes[k->npipes++] = (struct pipe_end){ .fd = out[0], .to = STDOUT_FILENO, .rank = rank };
		k->pipes[k->npipes++] = (struct pipe_end){ .fd = err[0], .to = STDERR_FILENO, .rank = rank };
	}
	return 0;
}

static int start_ranks(struct keeper *k)
{
	const struct options *o = k->options;
	int *cpus = calloc((size_t)o->nranks, sizeof(*cpus));
	bool bind = cpus && o->bind && kolo_cores(cpus, o->nranks) >= o->nranks;
	struct kolo_id id;
	int rc = 0;

	if (!cpus || kolo_id_create(&id) < 0) {
		fprintf(stderr, "ringrun: %s\n", cpus ? kolo_last_error() : "out of memory");
		free(cpus);
		return -1;
	}
	set_id(&id);
	set_number("KOLO_NRANKS", o->nranks);
	for (int rank = 0; rc == 0 && rank < o->nranks; rank++)
		rc = start_rank(k, rank, bind ? cpus[rank] : -1);
	free(cpus);
	return rc;
}

/* ---- Output --------------------------------------------------------------------------------------------- */

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

		if (put < 0 && errno != EINTR)
			return; /* nobody reads us any more */
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

/* ---- The keeper ----------------------------------------------------------------------------------------- */

static void signal_ranks(const struct keeper *k, int sig)
{
	for (int rank = 0; rank < k->options->nranks; rank++)
		if (k->pids[rank] > 0)
			kill(k->pids[rank], sig);
}

static void rank_ended(struct keeper *k, int rank, int status)
{
	int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

	k->pids[rank] = 0;
	k->running--;
	if (code == 0 || k->code)
		return;
	k->code = code;
	k->deadline = now_ms() + GRACE_MS;
	if (WIFSIGNALED(status))
		fprintf(stderr, "ringrun: rank %d was killed by signal %d (%s); ending the others\n", rank,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "ringrun: rank %d returned %d; ending the others\n", rank, code);
}

static void reap(struct keeper *k)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int rank = 0; rank < k->options->nranks; rank++)
			if (k->pids[rank] == pid)
				rank_ended(k, rank, status);
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
		end_descendants();
		_exit(EXIT_OWN);
	}
	if (sig == SIGCHLD)
		reap(k);
	else if (to_pass_on(info))
		signal_ranks(k, sig);
}

static void wait_for_something(struct keeper *k, int signals, struct pollfd *polls)
{
	int64_t left = k->deadline ? k->deadline - now_ms() : -1;
	struct signalfd_siginfo info;

	polls[0] = (struct pollfd){ .fd = signals, .events = POLLIN };
	for (int i = 0; i < k->npipes; i++)
		polls[i + 1] = (struct pollfd){ .fd = k->pipes[i].fd, .events = POLLIN };
	poll(polls, (nfds_t)k->npipes + 1, k->deadline ? (int)(left > 0 ? left : 0) : -1);
	for (int i = 0; i < k->npipes; i++)
		if (polls[i + 1].revents)
			pump(&k->pipes[i]);
	while (read(signals, &info, sizeof(info)) == sizeof(info))
		handle_signal(k, &info);
	if (k->deadline && now_ms() >= k->deadline) {
		signal_ranks(k, k->next_signal);
		k->next_signal = SIGKILL;
		k->deadline = now_ms() + GRACE_MS;
	}
}

/* What the ranks wrote before they ended. A descendant that lives on may keep a pipe open: don't wait for it. */
static void drain_pipes(struct keeper *k)
{
	for (int i = 0; i < k->npipes; i++) {
		struct pollfd ready = { .fd = k->pipes[i].fd, .events = POLLIN };

		while (k->pipes[i].fd >= 0 && poll(&ready, 1, 0) > 0)
			pump(&k->pipes[i]);
	}
}

static int keep(const struct options *o, int signals)
{
	size_t n = (size_t)o->nranks;
	struct keeper k = { .options = o, .next_signal = SIGTERM };
	struct pollfd *polls = calloc(2 * n + 1, sizeof(*polls));

	k.pids = calloc(n, sizeof(*k.pids));
	k.pipes = o->tag ? calloc(2 * n, sizeof(*k.pipes)) : NULL;
	if (!polls || !k.pids || (o->tag && !k.pipes)) {
		complain("starting");
		k.code = EXIT_OWN;
	} else if (start_ranks(&k) < 0) {
		k.code = EXIT_OWN;
		signal_ranks(&k, SIGKILL);
	}
	while (k.running > 0)
		wait_for_something(&k, signals, polls);
	drain_pipes(&k);
	end_descendants();
	free(polls);
	free(k.pids);
	free(k.pipes);
	return k.code;
}

/* ---- The process that the user sees --------------------------------------------------------------------- */

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
	end_descendants(); /* those of a keeper that was killed are ours now */
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "bind", required_argument, NULL, 'b' },
		{ "tag", no_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	char *end;
	int c;

	*o = (struct options){ .bind = true };
	while ((c = getopt_long(argc, argv, "+n:", longs, NULL)) >= 0) {
		switch (c) {
		case 'n':
			o->nranks = (int)strtol(optarg, &end, 10);
			if (*end || o->nranks < 1 || o->nranks > 100000) {
				fprintf(stderr, "ringrun: -n %s: want a number of ranks from 1\n", optarg);
				return EXIT_OWN;
			}
			break;
		case 'b':
			o->bind = strcmp(optarg, "core") == 0;
			if (!o->bind && strcmp(optarg, "none") != 0) {
				fprintf(stderr, "ringrun: --bind %s: want core or none\n", optarg);
				return EXIT_OWN;
			}
			break;
		case 't': o->tag = true; break;
		case 'h': usage(stdout); exit(0);
		case 'v':
			printf("ringrun (Kolo) %d.%d.%d\n", kolo_version() / 10000,
			       kolo_version() / 100 % 100, kolo_version() % 100);
			exit(0);
		default: usage(stderr); return EXIT_OWN;
		}
	}
	if (o->nranks && optind < argc) {
		o->command = argv + optind;
		return 0;
	}
	fprintf(stderr, "ringrun: %s is missing\n", o->nranks ? "PROGRAM" : "-n N");
	usage(stderr);
	return EXIT_OWN;
}

int main(int argc, char **argv)
{
	struct options options;
	int rc = parse(argc, argv, &options), signals;
	pid_t top = getpid(), keeper;

	if (rc)
		return rc;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signals = open_signals();
	keeper = signals < 0 ? -1 : fork();
	if (keeper < 0) {
		complain("starting");
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
