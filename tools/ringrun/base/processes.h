/* What all roles of ringrun do with processes: the clock, signals, and ending what lies below. */
#ifndef TOOLS_RINGRUN_BASE_PROCESSES_H
#define TOOLS_RINGRUN_BASE_PROCESSES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/types.h>

enum {
	EXIT_OWN = 125,        /* ringrun itself failed */
	EXIT_CANNOT_RUN = 126, /* PROGRAM exists and can't be run */
	EXIT_NOT_FOUND = 127,
	GRACE_MS = 2000, /* when a rank has failed: for the others to say why */
	TERM_MS = 1500,  /* then, between SIGTERM and SIGKILL */
};

int64_t now_ms(void);

/* Writes "ringrun: WHAT: " and the text of errno to stderr. */
void complain(const char *what);

/* Returns p, or leaves the process with EXIT_OWN if it is NULL: no memory. */
void *need(void *p);

/* Writes "ringrun: ", the text and a newline to stderr. Returns -1, for those who return on it. */
__attribute__((format(printf, 1, 2))) int say(const char *fmt, ...);
int vsay(const char *fmt, va_list args);

/* Is there a program of this name in a folder of PATH? */
bool is_on_path(const char *name);

/* Kills every descendant. The children of those that die become this process's (it is a
 * subreaper), until there are none. Returns false if some may not be killed, because they are
 * another user's: these are given up after a while. */
bool end_descendants(void);

/* In a child: it must not outlive this parent, which started it. */
void die_with(pid_t parent);

/* Blocks the signals that ringrun passes on, SIGCHLD and orphaned(), and opens a descriptor that
 * reads them. A child must open its own. Returns -1 on failure. */
int open_signals(void);

/* What the kernel sends a process that asked for it when the process above it dies. */
int orphaned(void);

/* Was this signal sent to this process alone? What came from a terminal went to the whole
 * foreground group. */
bool sent_to_us_alone(const struct signalfd_siginfo *info);

/* Lets this process have as many descriptors as it may. A child that becomes a program of the
 * user's takes that back. */
void raise_descriptors(void);
void restore_descriptors(void);

/* The status that a shell would give: 128 + N after signal N. */
int exit_status(int wait_status);

#endif
