/* Reads the variables of torchrun, Duet's launcher and mpirun. */
#include "comm/environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/text/text.h"

/* PyTorch's name of a number, those of Open MPI and of MPICH, and last that of srun. */
static const char *const RANKS[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                                    NULL};
static const char *const WORLDS[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                     "SLURM_STEP_NUM_TASKS", NULL};
static const char *const LOCAL_RANKS[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "MPI_LOCALRANKID", "SLURM_LOCALID", NULL};
/* Of srun: "2(x3),1" are 2 tasks on each of the first three nodes and 1 on the fourth. */
static const char SRUN[] = "SLURM_STEP_NUM_TASKS", ON_NODES[] = "SLURM_STEP_TASKS_PER_NODE";
static const char *const LOCAL_WORLDS[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "MPI_LOCALNRANKS", NULL};

int environment_number(const char *name, int least, int most, int *out) {
    const char *text = getenv(name);
    if (!text) return OK;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most)
        return fail(ERR_USAGE, "environment variable %s: %s: expected a number from %d to %d", name,
                    text, least, most);
    *out = (int)value;
    return OK;
}

/* A step of several tasks; batch scripts and shells also set some of these names. */
static int is_of_srun(void) {
    const char *tasks = getenv(SRUN);
    return tasks && strcmp(tasks, "1");
}

/* The first of the names that is set; the first of all if none is. */
static const char *name_in_use(const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (getenv(names[i]) && (strncmp(names[i], "SLURM", 5) || is_of_srun())) return names[i];
    return names[0];
}

int environment_is_of_a_rank(void) {
    return getenv(name_in_use(RANKS)) || getenv(name_in_use(WORLDS));
}

/* The number for the node SLURM_NODEID in srun's list of tasks. */
static int read_tasks(const char *list, int *out) {
    int node = strchr(list, ',') ? MAX_DEVICES : 0; /* differing counts: the number is required */
    CHECK(environment_number("SLURM_NODEID", 0, MAX_DEVICES - 1, &node));
    for (const char *at = list; *at;) {
        int used = 0, nodes = 1;
        if (sscanf(at, "%d%n(x%d)%n", out, &used, &nodes, &used) < 1 || nodes < 1 ||
            (at[used] && at[used] != ','))
            break;
        if ((node -= nodes) < 0 && *out > 0 && *out <= MAX_DEVICES) return OK;
        at += used + (at[used] == ',');
    }
    return fail(ERR_USAGE,
                "environment variable %s: %s: it has no number of tasks for the node SLURM_NODEID: "
                "set LOCAL_WORLD_SIZE",
                ON_NODES, list);
}

int read_job_rank_anywhere(struct job_rank *out, const char *advice) {
    const char *const rank = name_in_use(RANKS), *const world = name_in_use(WORLDS);
    for (int i = 0; i < 2; i++)
        if (!getenv(i ? rank : world))
            return fail(ERR_USAGE, "environment variable %s: expected, but not set: %s",
                        i ? rank : world, advice);
    CHECK(environment_number(world, 1, MAX_DEVICES, &out->world));
    CHECK(environment_number(rank, 0, out->world - 1, &out->rank));
    out->local_rank = out->rank;
    out->local_world = out->world;
    CHECK(environment_number(name_in_use(LOCAL_RANKS), 0, MAX_DEVICES - 1, &out->local_rank));
    const char *local = name_in_use(LOCAL_WORLDS);
    if (!getenv(local) && is_of_srun() && getenv(ON_NODES))
        CHECK(read_tasks(getenv(ON_NODES), &out->local_world));
    return environment_number(local, 1, MAX_DEVICES, &out->local_world);
}

int environment_is_of_mpi(void) {
    return getenv("OMPI_COMM_WORLD_RANK") || getenv("PMIX_RANK") || is_of_srun();
}

int environment_is_of_a_later_rank(void) {
    const char *local = getenv(name_in_use(LOCAL_RANKS));
    return environment_is_of_mpi() && local && atoi(local) > 0;
}

int environment_for_programs(const struct job_rank *self) {
    const char *const names[] = {RANKS[0], WORLDS[0], LOCAL_RANKS[0], LOCAL_WORLDS[0]};
    const int numbers[] = {self->rank, self->world, self->local_rank, self->local_world};
    for (int i = 0; i < 4; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", numbers[i]);
        if (setenv(names[i], text, 0)) return fail(ERR_MEMORY, "out of host memory: free some");
    }
    return OK;
}

int read_job_rank(struct job_rank *out, const char *advice) {
    CHECK(read_job_rank_anywhere(out, advice));
    int here = out->local_world, all = out->world;
    if (here == all) return OK;
    return fail(ERR_USAGE,
                "environment variable %s: %d of %d ranks are on this machine: ranks of several "
                "machines are started with mpirun: mpirun -np %d --host MACHINE0:%d,MACHINE1:%d "
                "PROGRAM (docs/machines.md)",
                name_in_use(LOCAL_WORLDS), here, all, all, here, here);
}

void describe_job(char *text, size_t bytes, const char **address, const char **port) {
    /* Variables in which launchers pass a job's id; a job that torchrun restarts gets a new id. */
    static const char *const IDS[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                      "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"};
    *address = getenv("MASTER_ADDR");
    *port = getenv("MASTER_PORT");
    if (!*address) *address = "127.0.0.1";
    if (!*port) *port = "29500"; /* PyTorch's default */
    snprintf(text, bytes, "%s:%s", *address, *port);
    for (size_t i = 0; i < sizeof IDS / sizeof *IDS; i++)
        text_append(text, bytes, "/%s", getenv(IDS[i]) ? getenv(IDS[i]) : "");
}

int check_alone(void) {
    struct job_rank self;
    if (!environment_is_of_a_rank() || read_job_rank_anywhere(&self, "") || self.world == 1 ||
        process_has_mapped((const char *const[]){"/memfd:" JOB_MEMORY, "/libmpi", NULL}))
        return OK;
    return fail(ERR_USAGE,
                "devices: this is rank %d of %d that another program started, and it has joined no "
                "process group, so each rank would run the whole program: start it alone; a rank "
                "calls duet_group_init first, or opens its own device by duet_device_open",
                self.rank, self.world);
}
