/* What kolo-mpi adds to a call, in nanoseconds: 8 bytes are summed by Kolo's own call and by
 * MPI_Allreduce on Kolo, in turns; and a call that stays with MPI is made as programs make it, and
 * at the MPI itself. The median of 21 turns, on the rank where it is least.
 *
 * usage: mpirun -n N kolo-mpi mpi_overhead LIBRARY   (the MPI's, as libmpi.so.40) */
#include <mpi.h>

#include "kolo/kolo.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 21, CALLS = 20000 };

static struct kolo_comm *kolo;
static int (*real)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

enum way { OWN, TAKEN, DIRECT, LEFT, NWAYS };

/* Nanoseconds of one call. */
static double turn(enum way way)
{
	double x = 1, y, since;

	MPI_Barrier(MPI_COMM_WORLD);
	since = MPI_Wtime();
	for (int k = 0; k < CALLS; k++)
		switch (way) {
		case OWN: kolo_all_reduce(kolo, &x, &y, 1, KOLO_F64, KOLO_SUM, NULL); break;
		case TAKEN: MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
		case DIRECT: real(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF); break;
		default: MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
		}
	return (MPI_Wtime() - since) * 1e9 / CALLS;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *of)
{
	qsort(of, TURNS, sizeof(*of), ascending);
	return of[TURNS / 2];
}

static void join(int rank, int nranks)
{
	struct kolo_comm_attr attr = { .rank = rank, .nranks = nranks };
	struct kolo_id id;

	if (rank == 0 && kolo_id_create(&id) < 0)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
	attr.id = &id;
	if (kolo_comm_create(&attr, &kolo) < 0) {
		fprintf(stderr, "mpi_overhead: %s\n", kolo_last_error());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

int main(int argc, char **argv)
{
	double of[NWAYS][TURNS], mine[NWAYS], least[NWAYS];
	void *found, *in = argc > 1 ? dlopen(argv[1], RTLD_NOLOAD | RTLD_LAZY) : NULL;
	int rank, nranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	if (!in || !(found = dlsym(in, "PMPI_Allreduce")))
		MPI_Abort(MPI_COMM_WORLD, 1);
	memcpy(&real, &found, sizeof(real));
	join(rank, nranks);
	for (enum way way = 0; way < NWAYS; way++)
		turn(way);
	for (int k = 0; k < TURNS; k++)
		for (enum way way = 0; way < NWAYS; way++)
			of[way][k] = turn(way);
	for (enum way way = 0; way < NWAYS; way++)
		mine[way] = median(of[way]);
	MPI_Allreduce(mine, least, NWAYS, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
	if (rank == 0)
		printf("all-reduce of 8 bytes: %.0f ns, through MPI_Allreduce %.0f; "
		       "a call left to MPI: %.0f ns, without kolo-mpi %.0f\n",
		       least[OWN], least[TAKEN], least[LEFT], least[DIRECT]);
	kolo_comm_destroy(kolo);
	MPI_Finalize();
	return 0;
}
