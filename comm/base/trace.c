/* Keeps events in memory (ko_trace_add) and appends them to the trace's file (ko_trace_close). It
 * also appends when the memory for events is full. The file is a JSON array, Chrome's trace event
 * format.
 *
 * A rank appends under a lock, so the array is complete after each append. A rank that dies in the
 * middle of one spoils the file. */
#include "comm/base/trace.h"

#include "comm/base/clock.h"
#include "comm/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	EVENTS = 8192,
	LINE = 64,
	MAX_FOLDER = 256,
	BUFFER = 2 << 20, /* more bytes than EVENTS events take, so all go out in one write */
	/* of 1 ms each: a lock held elsewhere delays an operation by 1 s at most */
	LOCK_TRIES = 1000
};

struct event {
	int64_t since, until; /* both in ns */
	uint64_t number;
	enum ko_trace_kind kind;
	char text[LINE];
};

struct ko_trace {
	const struct ko_log *log;
	char path[512], who[LINE];
	bool begun; /* the file has the row's name */
	/* the file could not be written: no more tries, each of which would delay an operation */
	bool lost;
	int n; /* how many events are not in the file yet */
	struct event events[EVENTS];
};

static const char *folder(void)
{
	const char *dir = getenv("KOLO_TRACE");

	return dir && *dir ? dir : NULL;
}

int ko_trace_check(void)
{
	const char *dir = folder();
	struct stat st;

	if (!dir)
		return 0;
	if (strlen(dir) > MAX_FOLDER)
		errno = ENAMETOOLONG;
	else if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
		errno = ENOTDIR;
	else if (access(dir, W_OK | X_OK) == 0)
		return 0;
	return ko_fail(KOLO_EINVAL, "KOLO_TRACE=%s: want a folder that can be written: %s", dir,
		       strerror(errno));
}

/* Copies `text` with '?' for each character that JSON would need escaped. */
static void copy_plain(char *out, size_t room, const char *text)
{
	size_t i = 0;

	for (; text[i] && i + 1 < room; i++)
		out[i] = text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\'
				 ? '?'
				 : text[i];
	out[i] = 0;
}

struct ko_trace *ko_trace_open(const char *name, const char *who, const struct ko_log *log)
{
	const char *dir = folder();
	struct ko_trace *t = dir ? calloc(1, sizeof(*t)) : NULL;

	if (dir && !t)
		ko_log(log, KOLO_LOG_WARN,
		       "no memory for a trace: this rank will be missing in it");
	if (!t)
		return NULL;
	t->log = log;
	snprintf(t->path, sizeof(t->path), "%s/%s.json", dir, name);
	copy_plain(t->who, sizeof(t->who), who);
	ko_log(log, KOLO_LOG_INFO, "tracing to %s (KOLO_TRACE)", t->path);
	return t;
}

static void write_event(FILE *f, int rank, const struct event *e)
{
	static const char *const names[] = {
		[KO_TRACE_OP] = "",
		[KO_TRACE_ROUND] = "round ",
		[KO_TRACE_DATA] = "wait for data from rank ",
		[KO_TRACE_ROOM] = "wait for room at rank ",
		[KO_TRACE_STEP] = "",
	};
	static const char *const categories[] = { "operation", "round", "wait", "wait", "step" };
	bool has_text = e->kind == KO_TRACE_OP || e->kind == KO_TRACE_STEP;
	int row = e->kind == KO_TRACE_STEP ? (int)e->number : 0;
	int64_t took = e->until - e->since;

	fprintf(f, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"cat\":\"%s\",\"name\":\"%s", rank, row,
		categories[e->kind], names[e->kind]);
	if (has_text)
		fputs(e->text, f);
	else
		fprintf(f, "%" PRIu64, e->number);
	fprintf(f, "\",\"ts\":%" PRId64 ".%03d,\"dur\":%" PRId64 ".%03d}", e->since / 1000,
		(int)(e->since % 1000), took / 1000, (int)(took % 1000));
}

/* Goes to the place of the next event: the end of the array, whose bracket is then overwritten. -1
 * if the file is no trace. */
static int find_end(FILE *f)
{
	static const char end[] = "\n]\n";
	char last[sizeof(end)] = "";
	long len = (long)strlen(end);

	if (fseek(f, 0, SEEK_END) == 0 && ftell(f) == 0)
		return fputs("[", f) < 0 ? -1 : 0;
	if (fseek(f, -len, SEEK_END) < 0 || fread(last, 1, (size_t)len, f) != (size_t)len ||
	    strcmp(last, end) != 0) {
		errno = EBADMSG; /* a stranger's file, or a rank died while it wrote */
		return -1;
	}
	return fseek(f, -len, SEEK_END);
}

/* Takes the file's lock. -1 if somebody holds it for 1 s. */
static int lock(int fd)
{
	for (int tries = 0; tries < LOCK_TRIES; tries++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return -1;
}

static void flush(struct ko_trace *t)
{
	int rank = t->log->rank,
	    fd = open(t->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *f = fd >= 0 && lock(fd) == 0 ? fdopen(fd, "r+") : NULL;
	bool good = f && setvbuf(f, NULL, _IOFBF, BUFFER) == 0 && find_end(f) == 0;

	if (good) {
		if (!t->begun)
			fprintf(f,
				"%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}},\n"
				"{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
				ftell(f) > 1 ? "," : "", rank, t->who, rank, rank);
		for (int i = 0; i < t->n; i++)
			write_event(f, rank, &t->events[i]);
		fputs("\n]\n", f);
		good = !ferror(f);
	}
	if (f)
		good = fclose(f) == 0 && good; /* this unlocks too */
	else if (fd >= 0)
		close(fd);
	if (!good) {
		ko_log(t->log, KOLO_LOG_WARN,
		       "the trace %s could not be written: %s; this rank's events are lost from here on",
		       t->path, strerror(errno));
		t->lost = true;
	}
	t->begun = true;
	t->n = 0;
}

void ko_trace_add(struct ko_trace *t, enum ko_trace_kind kind, int64_t since, uint64_t number,
		  const char *text)
{
	struct event *e;

	if (!t || t->lost)
		return;
	if (t->n == EVENTS)
		flush(t);
	e = &t->events[t->n++];
	*e = (struct event){ .since = since, .until = ko_now_ns(), .number = number, .kind = kind };
	if (text)
		copy_plain(e->text, sizeof(e->text), text);
}

void ko_trace_close(struct ko_trace *t)
{
	if (t && !t->lost)
		flush(t);
	free(t);
}
