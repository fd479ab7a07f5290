/* The calls of bench/group_perf.c by MPI, in the same columns. `make bench` builds a program that
 * says how to build this one, since MPI is not needed for anything else:
 *
 *     mpicc -DUSE_MPI -O2 -o mpi_group bench/mpi_group.c
 *     mpirun -n RANKS ./mpi_group [-b BYTES] [-e BYTES] [-c CALL] [-t SECONDS]
 */
#include <stdio.h>

#ifndef USE_MPI

int main(void) {
    fprintf(stderr, "mpi_group: built without MPI: mpicc -DUSE_MPI -O2 bench/mpi_group.c\n");
    return 1;
}

#else

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_TIMES = 5, MOST_TIMES = 2000 };
static const char *const calls[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                    "reduce_scatter", "all_to_all", "gather", "scatter",
                                    "send_recv",      "barrier"};
enum { CALLS = sizeof calls / sizeof *calls };

/* count: floats of the larger tensor of a rank. Broadcast is in place. */
static void make_call(const char *name, float *in, float *out, int count, int n, int rank) {
    MPI_Comm all = MPI_COMM_WORLD;
    int block = count / n;
    if (!strcmp(name, "all_reduce")) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, all);
    if (!strcmp(name, "broadcast")) MPI_Bcast(in, count, MPI_FLOAT, 0, all);
    if (!strcmp(name, "reduce")) MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, all);
    if (!strcmp(name, "all_gather"))
        MPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, all);
    if (!strcmp(name, "reduce_scatter"))
        MPI_Reduce_scatter_block(in, out, block, MPI_FLOAT, MPI_SUM, all);
    if (!strcmp(name, "all_to_all")) MPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, all);
    if (!strcmp(name, "gather")) MPI_Gather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, 0, all);
    if (!strcmp(name, "scatter")) MPI_Scatter(in, block, MPI_FLOAT, out, block, MPI_FLOAT, 0, all);
    if (!strcmp(name, "barrier")) MPI_Barrier(all);
    for (int turn = 0; turn < 2 && rank < 2 && !strcmp(name, "send_recv"); turn++)
        if (rank == turn)
            MPI_Send(in, count, MPI_FLOAT, 1 - rank, 0, all);
        else
            MPI_Recv(out, count, MPI_FLOAT, 1 - rank, 0, all, MPI_STATUS_IGNORE);
}

enum { PERIOD = 16 };

/* Element i of a rank's input, as in bench/group_perf.c. */
static float value(int rank, int i) {
    return (float)(1 + (3 * rank + i) % PERIOD);
}

static float sum(int n, int i) {
    float all = 0;
    for (int r = 0; r < n; r++)
        all += value(r, i);
    return all;
}

/* Element i of what `rank` gets; `block` floats in a block. 0: nothing. */
static float expected(const char *name, int n, int rank, int block, int i) {
    int from = block ? i / block : 0, mine = rank * block;
    if (!strcmp(name, "all_reduce")) return sum(n, i);
    if (!strcmp(name, "broadcast")) return value(0, i);
    if (!strcmp(name, "reduce")) return rank ? 0 : sum(n, i);
    if (!strcmp(name, "all_gather")) return value(from, i % block);
    if (!strcmp(name, "reduce_scatter")) return sum(n, mine + i);
    if (!strcmp(name, "all_to_all")) return value(from, mine + i % block);
    if (!strcmp(name, "gather")) return rank ? 0 : value(from, i % block);
    if (!strcmp(name, "scatter")) return value(0, mine + i);
    return rank < 2 ? value(1 - rank, i) : 0;
}

static int has_stack(const char *name) {
    return !strcmp(name, "all_gather") || !strcmp(name, "all_to_all") || !strcmp(name, "gather");
}

static void check(const char *name, const float *out, int count, int n, int rank) {
    float want[PERIOD];
    int wide = has_stack(name) || !strcmp(name, "reduce_scatter") || !strcmp(name, "scatter");
    int length = wide ? count / n : count;
    if (!strcmp(name, "barrier")) return;
    for (int block = 0; block < (has_stack(name) ? n : 1); block++, out += length)
        for (int i = 0; i < length; i++) {
            if (i < PERIOD) want[i] = expected(name, n, rank, count / n, block * length + i);
            if (out[i] == want[i % PERIOD]) continue;
            fprintf(stderr, "mpi_group: %s of %d: rank %d: element %d of block %d is %g, not %g\n",
                    name, count, rank, i, block, (double)out[i], (double)want[i % PERIOD]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a call's time in microseconds, of the slowest rank. */
static double time_call(const char *name, float *in, float *out, int count, double seconds) {
    static double times[MOST_TIMES];
    int n, rank, most = MOST_TIMES;
    double worst;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < count; i++) {
        in[i] = value(rank, i);
        out[i] = 0;
    }
    make_call(name, in, out, count, n, rank);
    check(name, strcmp(name, "broadcast") ? out : in, count, n, rank);
    for (int i = -1; i < most; i++) { /* the first one says how many there is time for */
        double start = MPI_Wtime();
        make_call(name, in, out, count, n, rank);
        double took = MPI_Wtime() - start;
        if (i >= 0) times[i] = took * 1e6;
        if (i >= 0) continue;
        MPI_Allreduce(&took, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (worst * most > seconds) most = (int)(seconds / worst);
        if (most < LEAST_TIMES) most = LEAST_TIMES;
    }
    qsort(times, (size_t)most, sizeof *times, by_time);
    MPI_Allreduce(&times[most / 2], &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return strcmp(name, "send_recv") ? worst : worst / 2;
}

int main(int argc, char **argv) {
    size_t from = 4, to = 16 << 20;
    double seconds = 0.2;
    const char *call = NULL;
    int n, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-b")) from = (size_t)atol(argv[i + 1]);
        if (!strcmp(argv[i], "-e")) to = (size_t)atol(argv[i + 1]);
        if (!strcmp(argv[i], "-c")) call = argv[i + 1];
        if (!strcmp(argv[i], "-t")) seconds = atof(argv[i + 1]);
    }
    float *in = malloc(to + 64), *out = malloc(to + 64);
    time_call(calls[CALLS - 1], in, out, 1, seconds); /* until the ranks have their places */
    if (rank == 0) printf("%-15s %3s %12s %12s\n", "call", "n", "bytes", "us");
    for (int k = 0; k < CALLS; k++)
        for (size_t bytes = from; bytes <= to; bytes *= 4) {
            if (call && strcmp(call, calls[k])) break;
            double us = time_call(calls[k], in, out, (int)(bytes / sizeof(float)), seconds);
            if (rank == 0) printf("%-15s %3d %12zu %12.2f\n", calls[k], n, bytes, us);
            if (rank == 0) fflush(stdout);
            if (!strcmp(calls[k], "barrier")) break;
        }
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}

#endif
