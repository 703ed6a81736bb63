/* What bench/against_mpi.py compares `weft perf bcast` with: MPI_Bcast of 64 bytes and MPI_Gather of
   an acknowledgement from each process, again and again. Prints the median in nanoseconds. Not a part
   of the build: mpicc -O2 bench/mpi_bcast.c */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { warm_up = 1000, rounds = 20000, bytes = 64 };

static int by_size(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char** argv) {
    static double took[rounds];
    char body[bytes] = {0}, mine = 1, *all;
    int rank, size, i;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    all = malloc((size_t)size);
    if (!all) MPI_Abort(MPI_COMM_WORLD, 1);
    for (i = -warm_up; i < rounds; ++i) {
        const double begin = MPI_Wtime();
        MPI_Bcast(body, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
        MPI_Gather(&mine, 1, MPI_CHAR, all, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
        if (i >= 0) took[i] = MPI_Wtime() - begin;
    }
    if (rank == 0) {
        qsort(took, rounds, sizeof took[0], by_size);
        printf("%.0f\n", took[rounds / 2] * 1e9);
    }
    free(all);
    MPI_Finalize();
    return 0;
}
