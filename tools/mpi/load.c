/* Finds the MPI below (km_load): its functions, its handles, how it makes progress. */
#include "tools/mpi/inside.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct km_real km_real;
_Atomic int km_loaded;
enum km_mode km_mode;
long km_calls = -1;
bool km_share = true;
void (*km_mpi_progress)(void);

#ifdef OMPI_PREDEFINED_GLOBAL
#define S(symbol) void *km_at_##symbol;
#include "tools/mpi/symbols.h"
#undef S
static const char *const libraries[] = { "libmpi.so.40" };
#elif defined(MPI_ABI_VERSION)
static const char *const libraries[] = { "libmpi_abi.so.1" };
#else
static const char *const libraries[] = { "libmpi.so.12", "libmpich.so.12" };
#endif

/* Python loads an MPI for one extension alone, where the next object's names don't show it. */
static void *library(void)
{
	void *found = NULL;

	for (size_t k = 0; !found && k < sizeof(libraries) / sizeof(libraries[0]); k++)
		found = dlopen(libraries[k], RTLD_NOLOAD | RTLD_LAZY);
	return found;
}

static void find(void *in, const char *name, void *out)
{
	char pmpi[64];
	void *found;

	snprintf(pmpi, sizeof(pmpi), "PMPI_%s", name);
	found = dlsym(in, pmpi);
	memcpy(out, &found, sizeof(found));
}

#ifdef OMPI_PREDEFINED_GLOBAL
/* A program that names a handle may have the object itself, in place of the library's. */
static void *find_object(void *in, const char *symbol)
{
	void *found = dlsym(RTLD_DEFAULT, symbol);

	return found ? found : dlsym(in, symbol);
}
#endif

static void find_progress(void)
{
	static const char *const places[] = { "libopen-pal.so.40", "libopen-pal.so.80" };
	void *found = dlsym(RTLD_DEFAULT, "opal_progress");

	for (size_t k = 0; !found && k < sizeof(places) / sizeof(places[0]); k++) {
		void *in = dlopen(places[k], RTLD_NOLOAD | RTLD_LAZY);

		found = in ? dlsym(in, "opal_progress") : NULL;
	}
	memcpy(&km_mpi_progress, &found, sizeof(found));
}

/* What the program wants, or else what is usual. Bad values are told, and left. */
static void read_environment(void)
{
	static const char *const modes[] = { "off", "count", "on" };
	const char *mode = getenv("KOLO_MPI"), *calls = getenv("KOLO_MPI_CALLS"),
		   *share = getenv("KOLO_MPI_SHARE");
	char *end;

	km_mode = KM_ON;
	for (int k = 0; mode && k < 3; k++)
		if (strcmp(mode, modes[k]) == 0) {
			km_mode = (enum km_mode)k;
			mode = NULL;
		}
	if (mode && *mode)
		fprintf(stderr, "kolo_mpi: KOLO_MPI=%s: want on, count or off; it is on\n", mode);
	km_share = !share || strcmp(share, "off") != 0;
	if (km_share && share && *share && strcmp(share, "on") != 0)
		fprintf(stderr, "kolo_mpi: KOLO_MPI_SHARE=%s: want on or off; it is on\n", share);
	if (!calls || !*calls)
		return;
	km_calls = strtol(calls, &end, 10);
	if (*end || km_calls < 0) {
		fprintf(stderr, "kolo_mpi: KOLO_MPI_CALLS=%s: want a number; it is not set\n",
			calls);
		km_calls = -1;
	}
}

static void load(void)
{
	void *in = library();

	read_environment();
	if (!in) {
		fprintf(stderr,
			"kolo_mpi: a call of MPI, but no %s in this process: want KOLO_MPI_ABI as the "
			"program's MPI is\n",
			libraries[0]);
		abort();
	}
#define F(name) find(in, #name, &km_real.name);
#include "tools/mpi/functions.h"
#undef F
#ifdef OMPI_PREDEFINED_GLOBAL
#define S(symbol) km_at_##symbol = find_object(in, #symbol);
#include "tools/mpi/symbols.h"
#undef S
#endif
	find_progress();
	km_report_open(); /* and again when rank 0 has told what it wants */
	km_loaded = 1;
}

void km_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
}
