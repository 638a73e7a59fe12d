#include "tools/ringrun/agent/environment.h"

#include "tools/ringrun/base/processes.h"
#include "tools/ringrun/base/texts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Variables by which launchers tell a process its place. An agent that srun or mpirun has started
 * has them; a rank that kept them would believe to be a rank of that launcher's job. A name with
 * * at its end stands for all that begin so. */
static const char *const dropped[] = {
	/* another job of Kolo's */
	"KOLO_ID",
	"KOLO_ROOT",
	"KOLO_JOB",
	"KOLO_LAUNCHER",
	"KOLO_RANK",
	"KOLO_NRANKS",
	/* Slurm */
	"SLURM_*",
	"SLURMD_*",
	"SRUN_*",
	"SBATCH_*",
	/* Open MPI, PRRTE, PMIx */
	"OMPI_*",
	"ORTE_*",
	"PRTE_*",
	"PMIX_*",
	"OPAL_*",
	/* MPICH, Intel MPI, MVAPICH, PALS */
	"PMI_*",
	"PMI2_*",
	"HYDRA_*",
	"HYDI_*",
	"MPI_LOCALRANKID",
	"MPI_LOCALNRANKS",
	"MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
	"MV2_COMM_WORLD_*",
	"PALS_*",
	/* torchrun */
	"TORCHELASTIC_*",
	"GROUP_RANK",
	"GROUP_WORLD_SIZE",
	"ROLE_RANK",
	"ROLE_WORLD_SIZE",
	"ROLE_NAME",
};

/* What goes to other hosts without being asked for: the search paths, so that the same command runs
 * there, and settings of Kolo, Python, and what a program may link. A name with * at its end
 * stands for all that begin so. */
static const char *const exported[] = {
	"PATH",  "LD_LIBRARY_PATH", "KOLO_*", "PYTHON*",    "NCCL_*", "UCX_*",
	"MV2_*", "MLFLOW_*",        "OMP_*",  "OPENBLAS_*", "MKL_*",
};

static bool is_among(const char *variable, const char *const *names, size_t n)
{
	size_t len = strcspn(variable, "=");

	for (size_t i = 0; i < n; i++) {
		size_t name = strcspn(names[i], "*");

		if (names[i][name] ? len > name && strncmp(variable, names[i], name) == 0
				   : len == name && memcmp(variable, names[i], len) == 0)
			return true;
	}
	return false;
}

bool environment_drops(const char *variable)
{
	return is_among(variable, dropped, sizeof(dropped) / sizeof(dropped[0]));
}

/* ---- Exports --------------------------------------------------------------------------------- */

/* The lines NAME=VALUE of a file that DeepSpeed reads too. A file that isn't there has none. */
static int append_file(char ***list, const char *folder, const char *name)
{
	char path[4096], *line = NULL;
	size_t room = 0;
	int number = 0, rc = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file && (errno == ENOENT || access(folder, X_OK) < 0)) /* another user's home */
		return 0;
	if (!file) {
		complain(path);
		return -1;
	}
	while (rc == 0 && getline(&line, &room, file) >= 0) {
		const char *pair = line + strspn(line, " \t");

		number++;
		line[strcspn(line, "\r\n")] = 0;
		if (!*pair || *pair == '#')
			continue;
		if (strchr(pair, '=') && *pair != '=') {
			texts_add(list, "%s", pair);
		} else {
			rc = say("%s, line %d: '%s': want NAME=VALUE", path, number, pair);
		}
	}
	free(line);
	fclose(file);
	return rc;
}

static int append_wanted(char ***list, const char *text)
{
	const char *value = getenv(text);

	if (strchr(text, '='))
		texts_add(list, "%s", text);
	else if (value)
		texts_add(list, "%s=%s", text, value);
	else
		return say("-x %s: %s is not set here; set it, or give it a value: -x %s=VALUE",
			   text, text, text);
	return 0;
}

char **environment_to_export(char *const *wanted)
{
	const char *home = getenv("HOME"), *file = getenv("DS_ENV_FILE");
	char **list = need(calloc(1, sizeof(*list)));

	for (int i = 0; environ[i]; i++)
		if (is_among(environ[i], exported, sizeof(exported) / sizeof(exported[0])) &&
		    !environment_drops(environ[i]))
			texts_add(&list, "%s", environ[i]);
	file = file && *file ? file : ".deepspeed_env";
	if ((home && append_file(&list, home, file) < 0) || append_file(&list, ".", file) < 0)
		return NULL;
	for (int i = 0; wanted && wanted[i]; i++)
		if (append_wanted(&list, wanted[i]) < 0)
			return NULL;
	return list;
}

/* ---- On the rank's host ---------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static void drop(void)
{
	for (int i = 0; environ[i];) {
		char *name;

		if (!environment_drops(environ[i])) {
			i++;
			continue;
		}
		name = need(strndup(environ[i], strcspn(environ[i], "=")));
		unsetenv(name); /* closes the gap */
		free(name);
	}
}

static void set_pair(const char *pair)
{
	char *name = need(strdup(pair));
	size_t len = strcspn(name, "=");

	name[len] = 0;
	setenv(name, pair + len + 1, 1);
	free(name);
}

/* "0,1,3": all slots of this host. A rank finds its own there by LOCAL_RANK. */
static void set_devices(const struct job *job)
{
	struct bytes list = { 0 };
	char text[16];

	for (int i = 0; i < job->nslots; i++) {
		snprintf(text, sizeof(text), "%s%d", i ? "," : "", job->slots[i]);
		bytes_add(&list, text, strlen(text));
	}
	bytes_add(&list, "", 1);
	setenv("CUDA_VISIBLE_DEVICES", list.at, 1);
	bytes_free(&list);
}

void environment_of_host(const struct job *job, const struct meeting *meeting, int cores_of_a_rank)
{
	drop();
	for (int i = 0; job->environment[i]; i++)
		set_pair(job->environment[i]);
	setenv("KOLO_LAUNCHER", "kolo", 1);
	set_number("KOLO_NRANKS", job->nranks);
	if (meeting->id)
		setenv("KOLO_ID", meeting->id, 1);
	if (job->root)
		setenv("KOLO_ROOT", job->root, 1);
	set_number("WORLD_SIZE", job->nranks);
	set_number("LOCAL_WORLD_SIZE", job->nlocal);
	set_number("LOCAL_SIZE", job->nlocal);
	set_number("CROSS_RANK", job->node);
	set_number("CROSS_SIZE", job->nnodes);
	if (meeting->master) {
		setenv("MASTER_ADDR", meeting->master, 1);
		set_number("MASTER_PORT", meeting->port);
	}
	if (job->nslots)
		set_devices(job);
	if (job->omp && cores_of_a_rank > 0)
		set_number("OMP_NUM_THREADS", cores_of_a_rank);
}

void environment_of_rank(const struct job *job, int local_rank)
{
	set_number("KOLO_RANK", job->first + local_rank);
	set_number("RANK", job->first + local_rank);
	set_number("LOCAL_RANK", local_rank);
}
