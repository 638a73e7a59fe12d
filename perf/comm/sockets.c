/* What a plain exchange over TCP takes: two processes on this host, each on a core of its own where
 * there are two, send so many bytes to each other at once, over one connection through the loopback
 * interface. Prints a line of JSON for each size: the median of the microseconds until both have
 * all.
 *
 * usage: sockets BYTES... */
#include "perf/perf.h"

#include <kolo/kolo.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_REPEATS = 200, PIECE = 256 << 10 };

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* The two ends of a connection; both stay blocking, transfers ask not to wait. */
static void connect_both(int ends[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 ||
	    listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&at, &len) < 0)
		fail("listening");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&at, len) < 0 ||
	    (ends[1] = accept(listener, NULL, NULL)) < 0)
		fail("connecting");
	for (int k = 0; k < 2; k++)
		setsockopt(ends[k], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	close(listener);
}

static size_t piece(size_t left)
{
	return left < PIECE ? left : PIECE;
}

static bool went(ssize_t got)
{
	if (got < 0 && errno != EAGAIN && errno != EINTR)
		fail("transferring");
	return got > 0;
}

/* All of `out` goes, all of `in` comes. */
static void exchange(int fd, const char *out, char *in, size_t bytes)
{
	size_t sent = 0, got = 0;

	while (sent < bytes || got < bytes) {
		ssize_t to =
			sent < bytes ? send(fd, out + sent, piece(bytes - sent), MSG_DONTWAIT) : 0;
		bool moved = went(to);
		ssize_t from;

		sent += moved ? (size_t)to : 0;
		from = got < bytes ? recv(fd, in + got, piece(bytes - got), MSG_DONTWAIT) : 0;
		if (went(from))
			got += (size_t)from;
		else if (!moved) {
			short out_too = sent < bytes ? POLLOUT : 0;

			poll(&(struct pollfd){ .fd = fd, .events = (short)(POLLIN | out_too) }, 1,
			     -1);
		}
	}
}

static void run(int rank, int fd, size_t bytes)
{
	int repeats = bytes > 1 << 20 ? 15 : MOST_REPEATS;
	char *in = malloc(bytes), *out = malloc(bytes);
	double times[MOST_REPEATS];

	if (!in || !out)
		fail("memory");
	memset(in, 1, bytes);
	memset(out, 2, bytes);
	exchange(fd, out, in, bytes);
	for (int k = 0; k < repeats; k++) {
		int64_t begin = ko_now_ns();

		exchange(fd, out, in, bytes);
		times[k] = (double)(ko_now_ns() - begin) / 1e3;
	}
	if (rank == 0)
		printf("{\"bytes\": %zu, \"in_place\": false, \"time_us\": %.2f}\n", bytes,
		       perf_median(times, repeats));
	free(in);
	free(out);
}

int main(int argc, char **argv)
{
	int ends[2], cpus[2], ncpus = kolo_cores(cpus, 2), rank, pid, status;
	cpu_set_t set;

	if (argc < 2) {
		fprintf(stderr, "usage: sockets BYTES...\n");
		return 2;
	}
	connect_both(ends);
	pid = fork();
	if (pid < 0)
		fail("fork");
	rank = pid == 0;
	close(ends[!rank]);
	CPU_ZERO(&set);
	CPU_SET((size_t)cpus[ncpus > 1 ? rank : 0], &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (int i = 1; i < argc; i++)
		run(rank, ends[rank], strtoull(argv[i], NULL, 10));
	if (rank == 1)
		return 0;
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}
