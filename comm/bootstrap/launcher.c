/* Reads the job from the environment (ko_launcher_read, kolo_job_get). Each launcher gives a
 * process its rank in variables of its own. It is a row of the table: the variables that it must
 * set, and how its ranks find a meeting point without an address.
 *
 * A launcher that may have started another one stands later in the table. KOLO_ID, KOLO_ROOT and
 * KOLO_JOB change where the ranks of any launcher meet. */
#include "comm/bootstrap/launcher.h"

#include "comm/base/error.h"
#include "comm/bootstrap/boot.h"
#include "comm/bootstrap/wire.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_OTHERS = 3, AGENT_PORTS = 16, MAX_JOB = 200 };

/* A launcher: how it describes a job. */
struct launcher {
	const char *name; /* its name in KOLO_LAUNCHER */
	const char *rank, *nranks;
	const char *others[MAX_OTHERS]; /* variables also needed, to find the meeting point */
	/* the variable with the number of ranks on this host; NULL: none */
	const char *local;
	/* any other launcher has priority: this is a resource manager, which may start launchers */
	bool outer;
	int (*meet)(struct ko_meeting *out);
};

/* ---- Reading --------------------------------------------------------------------------------- */

/* The variable's value; NULL if it is unset or empty. */
static const char *get(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

/* Appends to a text, which is cut if there is no more room. */
__attribute__((format(printf, 3, 4))) static void append(char *out, size_t room, const char *fmt,
							 ...)
{
	size_t at = strlen(out);
	va_list args;

	va_start(args, fmt);
	vsnprintf(out + at, room - at, fmt, args);
	va_end(args);
}

/* ---- Meeting points -------------------------------------------------------------------------- */

/* Ranks of one host meet at an abstract socket, whose name is derived from `identity`. Only
 * processes of the same user may use it. */
static void meet_by_name(struct ko_meeting *m, const char *identity)
{
	char text[1024];

	snprintf(text, sizeof(text), "%u/%s", (unsigned)geteuid(), identity);
	ko_boot_identify(m, text);
	snprintf(m->what, sizeof(m->what), "%s", identity);
	snprintf(m->name, sizeof(m->name), "kolo-%016llx%016llx",
		 (unsigned long long)ko_boot_hash(text, 300),
		 (unsigned long long)ko_boot_hash(text, 301));
	m->nports = 1;
}

/* For ranks started by hand: all processes of one terminal or script are one job, unless KOLO_JOB
 * says otherwise. */
static int meet_in_session(struct ko_meeting *m)
{
	char text[64];

	snprintf(text, sizeof(text), "the job of session %d", (int)getsid(0));
	meet_by_name(m, text);
	return 0;
}

/* torchrun's agent may use MASTER_PORT itself, so rank 0 takes the first free port from there
 * on. */
static int meet_at_master(struct ko_meeting *m)
{
	const char *host = get("MASTER_ADDR"), *port = get("MASTER_PORT"),
		   *run = get("TORCHELASTIC_RUN_ID");
	const char *restart = get("TORCHELASTIC_RESTART_COUNT");
	char text[512];

	snprintf(text, sizeof(text), "%s:%s %s %s", host, port, run ? run : "",
		 restart ? restart : "");
	ko_boot_identify(m, text);
	snprintf(m->what, sizeof(m->what), "MASTER_ADDR=%s MASTER_PORT=%s", host, port);
	if (ko_boot_number(port, 1, 65535, &m->port) < 0)
		return ko_fail(KOLO_EINVAL, "MASTER_PORT=%s: want a number in [1, 65535]", port);
	m->nports = m->port + AGENT_PORTS <= 65536 ? AGENT_PORTS : 65536 - m->port;
	snprintf(m->host, sizeof(m->host), "%s", host);
	return 0;
}

static int meet_openmpi(struct ko_meeting *m)
{
	/* a namespace is a number that may be used again */
	const char *dir = get("PMIX_SERVER_TMPDIR");
	char text[512];

	snprintf(text, sizeof(text), "Open MPI job %s in %s", get("PMIX_NAMESPACE"),
		 dir ? dir : "-");
	meet_by_name(m, text);
	return 0;
}

/* PMI names a job only in its protocol, which an MPI in this process may be using. On one host the
 * process that made PMI_FD's socket pair identifies the job as well. */
static int meet_pmi(struct ko_meeting *m)
{
	const char *job = get("PMI_JOBID"), *fd = get("PMI_FD");
	struct ucred server;
	socklen_t len = sizeof(server);
	char text[512];
	int number;

	if (job) {
		snprintf(text, sizeof(text), "PMI job %s", job);
	} else {
		if (!fd || ko_boot_number(fd, 0, INT_MAX, &number) < 0 ||
		    getsockopt(number, SOL_SOCKET, SO_PEERCRED, &server, &len) < 0 ||
		    server.pid <= 0)
			return ko_fail(
				KOLO_EINVAL,
				"PMI_FD=%s is no open local socket here, so this job has no name (a wrapper may have "
				"closed it); set KOLO_JOB to a text that no other job has, or KOLO_ROOT",
				fd ? fd : "(unset)");
		snprintf(text, sizeof(text), "PMI job of process %d", (int)server.pid);
	}
	meet_by_name(m, text);
	return 0;
}

static int meet_slurm(struct ko_meeting *m)
{
	char text[512];

	snprintf(text, sizeof(text), "Slurm step %s.%s", get("SLURM_JOB_ID"), get("SLURM_STEP_ID"));
	meet_by_name(m, text);
	return 0;
}

static int meet_by_id(struct ko_meeting *m, const char *hex)
{
	struct kolo_id id;
	size_t n = strlen(hex) == 2 * sizeof(id.bytes) ? sizeof(id.bytes) : 0, at;

	for (at = 0; at < n; at++) {
		const char pair[] = { hex[2 * at], hex[2 * at + 1], 0 };

		if (!isxdigit((unsigned char)pair[0]) || !isxdigit((unsigned char)pair[1]))
			break;
		id.bytes[at] = (unsigned char)strtoul(pair, NULL, 16);
	}
	if (!n || at < n)
		return ko_fail(
			KOLO_EINVAL,
			"KOLO_ID has %zu characters: want the %zu hex digits of an id (ringrun sets them)",
			strlen(hex), 2 * sizeof(id.bytes));
	return ko_meeting_of_id(&id, m);
}

/* ---- Launchers ------------------------------------------------------------------------------- */

static const struct launcher launchers[] = {
	{ "kolo", "KOLO_RANK", "KOLO_NRANKS", { NULL }, NULL, false, meet_in_session },
	{ "torchrun",
	  "RANK",
	  "WORLD_SIZE",
	  { "MASTER_ADDR", "MASTER_PORT" },
	  "LOCAL_WORLD_SIZE",
	  false,
	  meet_at_master },
	{ "openmpi",
	  "OMPI_COMM_WORLD_RANK",
	  "OMPI_COMM_WORLD_SIZE",
	  { "PMIX_NAMESPACE" },
	  "OMPI_COMM_WORLD_LOCAL_SIZE",
	  false,
	  meet_openmpi },
	{ "pmi", "PMI_RANK", "PMI_SIZE", { NULL }, "MPI_LOCALNRANKS", false, meet_pmi },
	{ "slurm",
	  "SLURM_PROCID",
	  "SLURM_STEP_NUM_TASKS",
	  { "SLURM_JOB_ID", "SLURM_STEP_ID" },
	  NULL,
	  true,
	  meet_slurm },
};
enum { NLAUNCHERS = sizeof(launchers) / sizeof(launchers[0]) };

/* Does the environment say where to meet? Then a launcher's `others` are not needed. */
static bool place_is_given(void)
{
	return get("KOLO_ID") || get("KOLO_ROOT") || get("KOLO_JOB");
}

/* The k-th variable that the launcher must set; NULL after the last. */
static const char *needed(const struct launcher *l, int k)
{
	if (k < 2)
		return k == 0 ? l->rank : l->nranks;
	return k - 2 < MAX_OTHERS && !place_is_given() ? l->others[k - 2] : NULL;
}

static bool is_complete(const struct launcher *l)
{
	for (int k = 0; needed(l, k); k++)
		if (!get(needed(l, k)))
			return false;
	return true;
}

static bool is_there(const struct launcher *l)
{
	return get(l->rank) || get(l->nranks);
}

/* Appends what is set and what is missing: "kolo: KOLO_RANK=1 without KOLO_NRANKS". */
static void describe(const struct launcher *l, char *out, size_t room)
{
	const char *missing = "";

	append(out, room, "%s%s:", *out ? "; " : "", l->name);
	for (int k = 0; needed(l, k); k++)
		if (get(needed(l, k)))
			append(out, room, " %s=%s", needed(l, k), get(needed(l, k)));
	for (int k = 0; needed(l, k); k++)
		if (!get(needed(l, k))) {
			append(out, room, "%s %s", *missing ? "," : " without", needed(l, k));
			missing = ",";
		}
}

static int fail_incomplete(const struct launcher *only)
{
	char found[KO_TEXT - 128] = "";

	for (int i = 0; i < NLAUNCHERS; i++)
		if (only ? only == &launchers[i] : is_there(&launchers[i]))
			describe(&launchers[i], found, sizeof(found));
	if (!*found)
		return ko_fail(
			KOLO_EINVAL,
			"no job in the environment: start the program with 'ringrun -n N PROGRAM' or another "
			"launcher (mpirun, mpiexec, srun, torchrun), or pass rank, nranks and id in the "
			"attributes");
	return ko_fail(KOLO_EINVAL, "half a job in the environment: %s", found);
}

static int read_ranks(const struct launcher *l, int *rank, int *nranks)
{
	if (ko_boot_number(get(l->nranks), 1, INT_MAX, nranks) < 0)
		return ko_fail(KOLO_EINVAL, "%s=%s: want a number from 1", l->nranks,
			       get(l->nranks));
	if (ko_boot_number(get(l->rank), 0, *nranks - 1, rank) < 0)
		return ko_fail(KOLO_EINVAL, "%s=%s: want a number in [0, %d] (%s=%d)", l->rank,
			       get(l->rank), *nranks - 1, l->nranks, *nranks);
	return 0;
}

static int choose_by_name(const char *name, const struct launcher **out)
{
	char known[128] = "";

	for (int i = 0; i < NLAUNCHERS; i++) {
		append(known, sizeof(known), "%s%s", i ? ", " : "", launchers[i].name);
		if (!strcmp(launchers[i].name, name)) {
			*out = &launchers[i];
			return is_complete(*out) ? 0 : fail_incomplete(*out);
		}
	}
	return ko_fail(KOLO_EINVAL, "KOLO_LAUNCHER=%s: want one of %s", name, known);
}

/* Two launchers that may have started each other must agree: which one is the inner one can't be
 * known. */
static int check_agreement(const struct launcher *a, const struct launcher *b)
{
	int rank_a, nranks_a, rank_b, nranks_b, rc;

	if ((rc = read_ranks(a, &rank_a, &nranks_a)) < 0 ||
	    (rc = read_ranks(b, &rank_b, &nranks_b)) < 0 ||
	    (rank_a == rank_b && nranks_a == nranks_b))
		return rc;
	return ko_fail(
		KOLO_EINVAL,
		"two jobs in the environment: %s=%d %s=%d, but %s=%d %s=%d; choose with KOLO_LAUNCHER=%s or "
		"KOLO_LAUNCHER=%s",
		a->rank, rank_a, a->nranks, nranks_a, b->rank, rank_b, b->nranks, nranks_b, a->name,
		b->name);
}

/* Chooses the launcher that counts. *out is NULL if there is no sign of any. */
static int choose(const struct launcher **out)
{
	const char *name = get("KOLO_LAUNCHER");
	bool half = false;
	int rc = 0;

	*out = NULL;
	if (name)
		return choose_by_name(name, out);
	if (is_there(&launchers[0])) { /* Kolo's own variables: no others count */
		*out = &launchers[0];
		return is_complete(*out) ? 0 : fail_incomplete(*out);
	}
	for (int i = 1; rc == 0 && i < NLAUNCHERS; i++) {
		const struct launcher *l = &launchers[i];

		/* a resource manager's batch script is no rank, so no half of a job either */
		half |= is_there(l) && !l->outer;
		if (is_complete(l) && !*out)
			*out = l;
		else if (is_complete(l) && !l->outer)
			rc = check_agreement(*out, l);
	}
	if (rc == 0 && !*out && half)
		rc = fail_incomplete(NULL);
	return rc;
}

/* A meeting point that is a name needs all ranks on one host. */
static int check_one_host(const struct launcher *l, int nranks)
{
	const char *text = l->local ? get(l->local) : NULL, *nodes = get("SLURM_STEP_NUM_NODES");
	int local;

	if (l->outer && nodes && strcmp(nodes, "1") != 0)
		return ko_fail(
			KOLO_ENOTSUP,
			"this job has %s hosts (SLURM_STEP_NUM_NODES): set KOLO_ROOT=HOST:PORT for all ranks, with an "
			"address of rank 0's host",
			nodes);
	if (text && ko_boot_number(text, 1, INT_MAX, &local) == 0 && local < nranks)
		return ko_fail(
			KOLO_ENOTSUP,
			"only %d of this job's %d ranks are on this host (%s): set KOLO_ROOT=HOST:PORT for all "
			"ranks, with an address of rank 0's host",
			local, nranks, l->local);
	return 0;
}

static int choose_place(const struct launcher *l, struct ko_meeting *out)
{
	const char *id = get("KOLO_ID"), *root = get("KOLO_ROOT"), *job = get("KOLO_JOB");
	char text[512];

	memset(out, 0, sizeof(*out));
	if (id && (root || job))
		return ko_fail(
			KOLO_EINVAL,
			"two meeting points in the environment: KOLO_ID and %s=%s; unset one of them",
			root ? "KOLO_ROOT" : "KOLO_JOB", root ? root : job);
	if (job && strlen(job) > MAX_JOB) /* texts that differ only after that would be one job */
		return ko_fail(KOLO_EINVAL, "KOLO_JOB has %zu characters: want at most %d",
			       strlen(job), MAX_JOB);
	if (id)
		return meet_by_id(out, id);
	if (root)
		return ko_meeting_at("KOLO_ROOT=", root, job ? job : "", out);
	if (!job)
		return l->meet(out);
	snprintf(text, sizeof(text), "KOLO_JOB=%s", job);
	meet_by_name(out, text);
	return 0;
}

int ko_launcher_read(int *rank, int *nranks, const struct ko_log *log, struct ko_meeting *out)
{
	const struct launcher *l;
	int rc = choose(&l);

	if (rc < 0)
		return rc;
	if (!l)
		return fail_incomplete(NULL);
	if ((rc = read_ranks(l, rank, nranks)) < 0 || (rc = choose_place(l, out)) < 0)
		return rc;
	ko_log(log, KOLO_LOG_INFO, "rank %d of %d as %s says (%s), meeting at %s", *rank, *nranks,
	       l->name, l->rank, out->what);
	return *out->name ? check_one_host(l, *nranks) : 0;
}

int kolo_job_get(struct kolo_job *out)
{
	const struct launcher *l;
	int rc;

	if (!out)
		return ko_fail(KOLO_EINVAL, "kolo_job_get: out is NULL");
	*out = (struct kolo_job){ 0 };
	rc = choose(&l);
	if (rc == 0 && l)
		rc = read_ranks(l, &out->rank, &out->nranks);
	if (rc == 0 && l)
		out->launcher = l->name;
	return rc;
}
