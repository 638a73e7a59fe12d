#include "tools/ringrun/command.h"

#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/texts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wordexp.h>

static void add_all(char ***w, const char *const *words)
{
	for (; *words; words++)
		texts_add(w, "%s", *words);
}

/* The user's --launcher_args, read as a shell would, without running anything. */
static int add_user_words(char ***w, const char *text)
{
	wordexp_t found;

	if (!text)
		return 0;
	if (wordexp(text, &found, WRDE_NOCMD) != 0)
		return say(
			"--launcher_args %s: a shell could not read these as words: close its quotes",
			text);
	for (size_t i = 0; i < found.we_wordc; i++)
		texts_add(w, "%s", found.we_wordv[i]);
	wordfree(&found);
	return 0;
}

/* ---- Quoting --------------------------------------------------------------------------------- */

static bool is_plain(const char *word)
{
	for (const char *c = word; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("@%+=:,./-_", *c))
			return false;
	return *word;
}

/* Appends the word as a shell reads it. */
static void add_quoted(struct bytes *out, const char *word)
{
	if (is_plain(word)) {
		bytes_add(out, word, strlen(word));
		return;
	}
	bytes_add(out, "'", 1);
	for (const char *c = word; *c; c++)
		bytes_add(out, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
	bytes_add(out, "'", 1);
}

void command_print(const struct command *c, FILE *out)
{
	struct bytes line = { 0 };

	if (c->variable) { /* NAME='VALUE' */
		size_t name = strcspn(c->variable, "=") + 1;

		bytes_add(&line, c->variable, name);
		add_quoted(&line, c->variable + name);
		bytes_add(&line, " ", 1);
	}
	for (int i = 0; c->words[i]; i++) {
		bytes_add(&line, " ", i > 0);
		add_quoted(&line, c->words[i]);
	}
	fprintf(out, "%.*s\n", (int)line.len, line.at);
	bytes_free(&line);
}

/* ---- The agent's part ------------------------------------------------------------------------ */

static const char *own_path(void)
{
	static char path[4096];
	ssize_t len = path[0] ? 0 : readlink("/proc/self/exe", path, sizeof(path) - 1);

	return len < 0 ? "ringrun" : path;
}

/* For what passes its last word to a shell on the host. */
static void add_agent_line(char ***w, const char *file, const char *node)
{
	struct bytes line = { 0 };

	bytes_add(&line, "exec ", 5);
	add_quoted(&line, own_path());
	bytes_add(&line, " --agent ", 9);
	add_quoted(&line, file);
	if (node) {
		bytes_add(&line, " --node ", 8);
		bytes_add(&line, node, strlen(node));
	}
	bytes_add(&line, "", 1);
	texts_add(w, "%s", line.at);
	bytes_free(&line);
}

static void add_agent_words(char ***w, const char *file)
{
	add_all(w, (const char *const[]){ own_path(), "--agent", file, NULL });
}

static void add_hosts(char ***w, const struct plan *p, const int *nodes, int n, const char *after)
{
	struct bytes list = { 0 };

	for (int i = 0; i < n; i++) {
		const char *name = p->hosts.at[nodes[i]].name;

		bytes_add(&list, ",", i > 0);
		bytes_add(&list, name, strlen(name));
		bytes_add(&list, after, strlen(after));
	}
	bytes_add(&list, "", 1);
	texts_add(w, "%s", list.at);
	bytes_free(&list);
}

/* The first of the names that PATH has, else the last one. */
static const char *find_program(const char *const *names)
{
	while (names[1] && !is_on_path(*names))
		names++;
	return *names;
}

/* ---- Launchers ------------------------------------------------------------------------------- */

static int make_ssh(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	const struct options *o = p->options;

	(void)n;
	texts_add(w, "%s", "ssh");
	if (add_user_words(w, o->launcher_args) < 0) /* the first -o counts */
		return -1;
	add_all(w, (const char *const[]){ "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", NULL });
	if (!o->no_ssh_check) /* 10 s to connect, and 15 s if the host is cut off later */
		add_all(w, (const char *const[]){ "-o", "ConnectTimeout=10", "-o",
						  "ServerAliveInterval=5", "-o",
						  "ServerAliveCountMax=2", NULL });
	if (o->ssh_port) {
		texts_add(w, "%s", "-p");
		texts_add(w, "%d", o->ssh_port);
	}
	texts_add(w, "%s", p->hosts.at[nodes[0]].name);
	add_agent_line(w, file, NULL);
	return 0;
}

/* pdsh starts as many at a time as -f says, and these must be all: each runs as long as the job. It
 * replaces %n by the number of the host in its list. */
static int make_pdsh(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	const struct options *o = p->options;

	add_all(w, (const char *const[]){ "pdsh", "-R", "ssh", "-S", "-f", NULL });
	texts_add(w, "%d", n);
	texts_add(w, "%s", "-w");
	add_hosts(w, p, nodes, n, "");
	if (add_user_words(w, o->launcher_args) < 0)
		return -1;
	add_agent_line(w, file, "%n");
	return 0;
}

/* The agents must have all cores, which they give to ranks. srun gives its input to all tasks. */
static int make_slurm(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	add_all(w, (const char *const[]){ "srun", "-N", NULL });
	texts_add(w, "%d", n);
	texts_add(w, "%s", "-n");
	texts_add(w, "%d", n);
	add_all(w, (const char *const[]){ "--ntasks-per-node=1", "--cpu-bind=none", "-K0", "-w",
					  NULL });
	add_hosts(w, p, nodes, n, "");
	if (add_user_words(w, p->options->launcher_args) < 0)
		return -1;
	add_agent_words(w, file);
	return 0;
}

static int make_openmpi(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	const struct options *o = p->options;
	char args[64];

	texts_add(w, "%s", find_program((const char *const[]){ "mpirun.openmpi", "mpirun", NULL }));
	texts_add(w, "%s", "-n");
	texts_add(w, "%d", n);
	add_all(w, (const char *const[]){ "--map-by", "ppr:1:node", "--bind-to", "none", "--host",
					  NULL });
	add_hosts(w, p, nodes, n, ":1");
	if (o->ssh_port) {
		snprintf(args, sizeof(args), "-p %d", o->ssh_port);
		add_all(w, (const char *const[]){ "--mca", "plm_rsh_args", args, NULL });
	}
	if (add_user_words(w, o->launcher_args) < 0)
		return -1;
	add_agent_words(w, file);
	return 0;
}

/* MPICH, Intel MPI and MVAPICH start by Hydra, whose options they share. */
static int make_hydra(const struct plan *p, const int *nodes, int n, const char *file, char ***w,
		      const char *const *programs, const char *const *own)
{
	texts_add(w, "%s", find_program(programs));
	texts_add(w, "%s", "-n");
	texts_add(w, "%d", n);
	add_all(w, (const char *const[]){ "-ppn", "1", "-hosts", NULL });
	add_hosts(w, p, nodes, n, "");
	add_all(w, own);
	if (add_user_words(w, p->options->launcher_args) < 0)
		return -1;
	add_agent_words(w, file);
	return 0;
}

static int make_mpich(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	return make_hydra(
		p, nodes, n, file, w,
		(const char *const[]){ "mpiexec.mpich", "mpiexec.hydra", "mpiexec", NULL },
		(const char *const[]){ "-bind-to", "none", NULL });
}

static int make_impi(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	return make_hydra(p, nodes, n, file, w,
			  (const char *const[]){ "mpiexec.hydra", "mpirun", NULL },
			  (const char *const[]){ "-genv", "I_MPI_PIN", "0", NULL });
}

static int make_mvapich(const struct plan *p, const int *nodes, int n, const char *file, char ***w)
{
	return make_hydra(p, nodes, n, file, w, (const char *const[]){ "mpirun", NULL },
			  (const char *const[]){ "-env", "MV2_ENABLE_AFFINITY", "0", NULL });
}

static const struct {
	bool each, input;
	int (*make)(const struct plan *p, const int *nodes, int n, const char *file, char ***w);
} launchers[LAUNCHERS] = {
	[BY_SSH] = { true, true, make_ssh },
	[BY_PDSH] = { false, false, make_pdsh },
	[BY_SLURM] = { false, true, make_slurm },
	[BY_OPENMPI] = { false, false, make_openmpi },
	[BY_MPICH] = { false, false, make_mpich },
	[BY_IMPI] = { false, false, make_impi },
	[BY_MVAPICH] = { false, false, make_mvapich },
};

void command_free(struct command *c)
{
	texts_free(c->words);
	free(c->variable);
}

bool command_is_for_each_host(enum launcher launcher)
{
	return launchers[launcher].each;
}

bool command_passes_input(enum launcher launcher)
{
	return launchers[launcher].input;
}

int command_make(const struct plan *p, const int *nodes, int n, const char *file,
		 struct command *out)
{
	const struct options *o = p->options;

	*out = (struct command){ 0 };
	if (o->launcher == BY_PDSH && o->ssh_port && /* it has no option for this */
	    asprintf(&out->variable, "PDSH_SSH_ARGS_APPEND=-p %d", o->ssh_port) < 0)
		out->variable = need(NULL);
	return launchers[o->launcher].make(p, nodes, n, file, &out->words);
}
