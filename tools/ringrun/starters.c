#include "tools/ringrun/starters.h"

#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void starters_init(struct starters *s, const struct plan *p)
{
	*s = (struct starters){ .plan = p, .file_kept = -1 };
	s->nodes = need(calloc((size_t)p->hosts.n, sizeof(*s->nodes)));
	s->at = need(calloc((size_t)p->hosts.n, sizeof(*s->at)));
	for (int k = 0; k < p->hosts.n; k++)
		if (!p->here[k])
			s->nodes[s->nnodes++] = k;
}

static enum launcher launcher_of(const struct starters *s)
{
	return s->plan->options->launcher;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* A child that waits for the end of the pipe, which comes when this process closes it or is killed.
 */
static int keep_file(const char *path)
{
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	child = fork();
	if (child == 0) {
		char byte;

		for (int fd = 0; fd < sysconf(_SC_OPEN_MAX); fd++)
			if (fd != fds[0])
				close(fd); /* whoever waits for their end must not wait for this
					      process */
		while (read(fds[0], &byte, 1) < 0 && errno == EINTR)
			;
		unlink(path);
		_exit(0);
	}
	close(fds[0]);
	if (child < 0)
		close(fds[1]);
	return child < 0 ? -1 : fds[1];
}

int starters_make_file(struct starters *s, const char *line)
{
	char here[4096];
	uint64_t number;
	int fd;

	if (!getcwd(here, sizeof(here)) ||
	    getrandom(&number, sizeof(number), 0) != sizeof(number) ||
	    asprintf(&s->file, "%s/.ringrun-%016llx", here, (unsigned long long)number) < 0) {
		complain("naming a file for the agents");
		return -1;
	}
	fd = open(s->file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	s->file_kept = fd < 0 ? -1 : keep_file(s->file);
	if (s->file_kept >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) &&
	    close(fd) == 0)
		return 0;
	return say(
		"%s, which %s's agents must read: %s; start in a folder that you may write to and all "
		"hosts have, or use --launcher ssh",
		s->file, launcher_name(launcher_of(s)), strerror(errno));
}

void starters_remove_file(struct starters *s)
{
	if (s->file)
		unlink(s->file);
	if (s->file_kept >= 0)
		close(s->file_kept);
	s->file_kept = -1;
}

/* ---- Starting -------------------------------------------------------------------------------- */

static int next_count(const struct starters *s)
{
	return command_is_for_each_host(launcher_of(s)) ? 1 : s->nnodes - s->next;
}

/* In the child, in a group of its own: a ^C at the terminal is for ringrun, which passes it on. */
static _Noreturn void become_launcher(const struct command *c, int in, int err)
{
	sigset_t none;

	setpgid(0, 0);
	dup2(in, STDIN_FILENO);
	dup2(err, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	if (c->variable)
		putenv(c->variable);
	restore_descriptors();
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(c->words[0], c->words);
	complain(c->words[0]);
	_exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static int spawn(struct starter *starter, const struct command *c, const char *line)
{
	int in[2], err[2];
	pid_t self = getpid();
	size_t len = strlen(line);

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		return -1;
	starter->pid = fork();
	if (starter->pid == 0) {
		die_with(self);
		become_launcher(c, in[0], err[1]);
	}
	close(in[0]);
	close(err[1]);
	if (starter->pid > 0 && write(in[1], line, len) != (ssize_t)len)
		errno = EPIPE; /* it has ended: that shows by itself */
	close(in[1]);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	starter->err = err[0];
	return starter->pid < 0 ? -1 : 0;
}

int starters_start_next(struct starters *s, const char *line)
{
	struct starter *starter = &s->at[s->n];
	struct command c;
	int rc;

	*starter = (struct starter){ .first = s->next, .n = next_count(s), .err = -1 };
	if (command_make(s->plan, s->nodes + s->next, starter->n, s->file ? s->file : "-", &c) < 0)
		return -1;
	s->n++;
	s->next += starter->n;
	rc = spawn(starter, &c, s->file ? "" : line);
	if (rc < 0)
		complain(c.words[0]);
	command_free(&c);
	return rc;
}

/* ---- What they say --------------------------------------------------------------------------- */

const char *starter_text(const struct starters *s, const struct starter *starter,
			 char out[STARTER_TEXT])
{
	const char *name = launcher_name(launcher_of(s));

	if (command_is_for_each_host(launcher_of(s)))
		snprintf(out, STARTER_TEXT, "%s to %s", name,
			 s->plan->hosts.at[s->nodes[starter->first]].name);
	else
		snprintf(out, STARTER_TEXT, "the launcher %s", name);
	return out;
}

static void print_line(const struct starters *s, struct starter *starter, const char *text,
		       size_t len)
{
	static const char own[] = "ringrun: ";
	const char *from = command_is_for_each_host(launcher_of(s))
				   ? s->plan->hosts.at[s->nodes[starter->first]].name
				   : launcher_name(launcher_of(s));

	if (len >= sizeof(own) - 1 && memcmp(text, own, sizeof(own) - 1) == 0) {
		text += sizeof(own) - 1;
		len -= sizeof(own) - 1;
	}
	while (len && (text[len - 1] == '\r' || text[len - 1] == '\n'))
		len--;
	if (len == 0)
		return;
	say("%s: %.*s", from, (int)len, text);
	free(starter->last);
	starter->last = need(strndup(text, len));
}

void starter_read(struct starters *s, struct starter *starter)
{
	char chunk[4096], *end;
	ssize_t got;

	while (starter->err >= 0 && (got = read(starter->err, chunk, sizeof(chunk))) != 0) {
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got < 0)
			break;
		bytes_add(&starter->part, chunk, (size_t)got);
		while ((end = memchr(starter->part.at, '\n', starter->part.len))) {
			size_t line = (size_t)(end - starter->part.at) + 1;

			print_line(s, starter, starter->part.at, line);
			bytes_drop(&starter->part, line);
		}
	}
	if (starter->err < 0)
		return;
	print_line(s, starter, starter->part.at, starter->part.len);
	bytes_free(&starter->part);
	close(starter->err);
	starter->err = -1;
}

int starters_print(struct starters *s)
{
	bool file = !command_passes_input(launcher_of(s));
	struct command c;

	if (s->nnodes && file)
		puts("# .ringrun-ID stands for a file that only this user may read, which has the secret; it is\n"
		     "# removed when all agents have answered");
	else if (s->nnodes)
		puts("# standard input: a line with this host's addresses and the secret");
	while (s->next < s->nnodes) {
		int n = next_count(s);

		if (command_make(s->plan, s->nodes + s->next, n, file ? ".ringrun-ID" : "-", &c) <
		    0)
			return -1;
		command_print(&c, stdout);
		command_free(&c);
		s->next += n;
	}
	return 0;
}
