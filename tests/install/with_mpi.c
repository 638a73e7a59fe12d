/* Kolo and MPI side by side in one process: the id goes to all ranks by MPI_Bcast, then all-reduces
 * of both alternate on the same integers and must agree. tests/install/mpi.sh builds and starts it
 * with each MPI there is. */
#include <kolo/kolo.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { N = 5000, ROUNDS = 20 };

static int die(const char *what, const char *text)
{
	fprintf(stderr, "%s: %s\n", what, text);
	return MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A communicator of the ranks of MPI_COMM_WORLD, in their order. */
static struct kolo_comm *join(int rank, int nranks)
{
	struct kolo_comm_attr attr = { .rank = rank, .nranks = nranks, .timeout_s = 30 };
	struct kolo_comm *comm;
	struct kolo_id id;

	if (rank == 0 && kolo_id_create(&id) < 0)
		die("kolo_id_create", kolo_last_error());
	MPI_Bcast(id.bytes, sizeof(id.bytes), MPI_UNSIGNED_CHAR, 0, MPI_COMM_WORLD);
	attr.id = &id;
	if (kolo_comm_create(&attr, &comm) < 0)
		die("kolo_comm_create", kolo_last_error());
	return comm;
}

/* Sum and maximum in turn, by both; each round starts from the sums of the one before. */
static void alternate(struct kolo_comm *comm, int rank, int *by_mpi, int *by_kolo)
{
	for (int i = 0; i < N; i++)
		by_mpi[i] = by_kolo[i] = (rank + 1) * (i + 1);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Allreduce(MPI_IN_PLACE, by_mpi, N, MPI_INT, round % 2 ? MPI_MAX : MPI_SUM,
			      MPI_COMM_WORLD);
		if (kolo_all_reduce(comm, by_kolo, by_kolo, N, KOLO_I32,
				    round % 2 ? KOLO_MAX : KOLO_SUM, NULL) < 0)
			die("kolo_all_reduce", kolo_last_error());
		if (memcmp(by_mpi, by_kolo, N * sizeof(int)) != 0)
			die("the results", "Kolo and MPI disagree");
		for (int i = 0; i < N; i++)
			by_mpi[i] = by_kolo[i] = by_mpi[i] % 1000 + rank;
	}
}

int main(int argc, char **argv)
{
	static int by_mpi[N], by_kolo[N];
	struct kolo_comm *comm;
	int rank, nranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	comm = join(rank, nranks);
	alternate(comm, rank, by_mpi, by_kolo);
	printf("rank %d of %d: %d rounds agree\n", kolo_comm_rank(comm), kolo_comm_nranks(comm),
	       ROUNDS);
	kolo_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
