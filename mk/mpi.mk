# Builds with MPI if Open MPI's mpi.h is found; `make MPI=` builds without it. Only files in
# group/mpi/ include the header, and the library is loaded when a job on several machines needs it.
MPI ?= $(shell pkg-config --modversion ompi-c 2>/dev/null)
MPI_FLAGS := $(if $(MPI),$(patsubst -I%,-isystem %,$(shell pkg-config --cflags-only-I ompi-c)))
MPI_C := $(if $(MPI),$(filter-out %/absent.c,$(wildcard group/mpi/*.c)),group/mpi/absent.c)
$(MPI_C:%.c=$(H)/%.o): COMPILE += $(MPI_FLAGS)
$(MPI_C:%.c=$(H)/%.o): $(H)/mpi_found
