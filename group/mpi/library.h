/* MPI's functions, of a libmpi that is loaded when a job asks for it: so Duet, and whoever links
 * it, runs on machines without MPI, and a job of one machine does not wait for MPI's start. The
 * rest of group/mpi/ calls them through the table, as `net->mpi.Iallgather(...)`.
 *
 * Open MPI's handles of the world and of types are addresses in the library, so they are looked up
 * like functions, and the names that mpi.h has for them are not used. */
#ifndef GROUP_MPI_LIBRARY_H
#define GROUP_MPI_LIBRARY_H

#include <mpi.h>

// clang-format off
#define MPI_FUNCTIONS(X)                                                                           \
    X(Initialized) X(Finalized) X(Init_thread) X(Query_thread) X(Finalize) X(Error_string)         \
    X(Comm_rank) X(Comm_size) X(Comm_split) X(Comm_set_errhandler)                                 \
    X(Test) X(Testall) X(Testsome) X(Cancel) X(Get_count) X(Type_create_struct) X(Type_commit)     \
    X(Type_free) X(Isend) X(Irecv) X(Improbe) X(Imrecv) X(Ibarrier) X(Ibcast) X(Iallgather)        \
    X(Iallgatherv) X(Ialltoallv) X(Igatherv) X(Iscatterv) X(Iallreduce)
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

/* ERR_USAGE: there is no library, or another one. It stays loaded to the end of the process. */
int mpi_load(struct mpi *mpi);

#endif
