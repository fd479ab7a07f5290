/* MPI's functions, from a libmpi that is loaded only when a job needs it. So Duet, and programs
 * that link it, run on machines without MPI, and a job on one machine does not wait for MPI to
 * start. The rest of group/mpi/ calls MPI through the table, as `net->mpi.Iallgather(...)`.
 *
 * Open MPI's handles for the world and for types are addresses in the library. So this code looks
 * them up like functions instead of using mpi.h's names. */
#ifndef GROUP_MPI_LIBRARY_H
#define GROUP_MPI_LIBRARY_H

#include <mpi.h>

// clang-format off
#define MPI_FUNCTIONS(X)                                                                           \
    X(Initialized) X(Finalized) X(Init_thread) X(Query_thread) X(Finalize) X(Error_string)         \
    X(Comm_rank) X(Comm_size) X(Comm_split) X(Comm_set_errhandler)                                 \
    X(Test) X(Cancel) X(Get_count) X(Type_create_struct) X(Type_commit) X(Type_free) X(Isend)      \
    X(Irecv) X(Improbe) X(Imrecv) X(Ibarrier) X(Ibcast) X(Iallgather) X(Iallgatherv) X(Ialltoallv) \
    X(Igatherv) X(Iscatterv) X(Iallreduce)
#define MPI_OBJECTS(X)                                                                             \
    X(MPI_Comm, world, "ompi_mpi_comm_world") X(MPI_Errhandler, returns, "ompi_mpi_errors_return") \
    X(MPI_Datatype, f32, "ompi_mpi_float") X(MPI_Datatype, byte, "ompi_mpi_byte")                  \
    X(MPI_Op, sum, "ompi_mpi_op_sum")
#define MPI_MEMBER(name) __typeof__(MPI_##name) *name;
#define MPI_OBJECT(type, name, symbol) type name;
// clang-format on

struct mpi {
    MPI_FUNCTIONS(MPI_MEMBER)
    MPI_OBJECTS(MPI_OBJECT)
};

/* Loads MPI, which stays loaded until the process ends. ERR_USAGE: no Open MPI was found. */
int mpi_load(struct mpi *mpi);

#endif
