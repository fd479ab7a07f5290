/* Makes and frees an allreduce object. memory.c has the memory that the ranks share, and enqueue.c
 * has the calls. executor.h says how a call runs. */
#include "allreduce/allreduce.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/advice.h"
#include "allreduce/state.h"
#include "base/error.h"

struct allreduce_config allreduce_config_default(void) {
    struct allreduce_config config = {.algorithm = ALLREDUCE_AUTO, .plan = plan_config_default()};
    return config;
}

/* NULL: this build has none for the kind. */
static const struct executor_kind *executors_of(enum device_kind kind, const struct comm *comm) {
    switch (kind) {
    case DEVICE_HOST:
    case DEVICE_HOST_LATE:
    case DEVICE_DRY: return comm_is_spread(comm) ? comm_executors(comm) : &host_executors;
    case DEVICE_CUDA: return cuda_executors;
    }
    return NULL;
}

/* ---- the end ---- */

/* After a failure of the job (a code from comm_check, a sync or a call): everything on this rank's
 * streams that waits for a peer continues at once, so that the streams run empty and the process
 * can end. The sums are worthless. Waits for that for at most a second or two, and returns 1 if no
 * work of this object is pending any more. Only allreduce_free may follow, which does the same
 * itself if the job has failed. NULL is fine. */
static int allreduce_release(struct allreduce *ar) {
    return !ar || !ar->executor || !ar->ops->release || ar->ops->release(ar->executor);
}

/* `together`: all ranks have arrived here. `idle`: no work of this object is pending on a stream
 * any more; otherwise the memory that it may reach stays until the process ends. */
static void free_all(struct allreduce *ar, int together, int idle) {
    void *own = ar->slab.of[ar->ranks.rank];
    drop_plans(ar);
    if (ar->executor) ar->ops->close(ar->executor);
    while (ar->registrations) {
        struct registration *next = ar->registrations->next;
        if (idle) unmap_peers(ar, &ar->registrations->memory);
        free(ar->registrations);
        ar->registrations = next;
    }
    if (idle) unmap_peers(ar, &ar->slab);
    if (together) comm_barrier(ar->comm, "end of allreduce"); /* fails only if the job has failed */
    if (idle) device_free(ar->device, own);
    free(ar);
}

/* A mapping may be removed only when its rank has left its last call, and memory only when no
 * mapping is left: stream sync, barrier, unmap, barrier; then the owner may free. With CUDA's IPC a
 * peer may still be storing into what is unmapped here, hence the first barrier, which is this one;
 * the second is for the owner. A job that has failed skips both: dead ranks cannot arrive, and no
 * rank touches shared memory any more, because each of its waits has ended with an error or has
 * been released. */
static int leave_together(struct allreduce *ar) {
    if (ar->stream) CHECK(stream_sync(ar->stream));
    if (ar->ranks.n == 1) return OK;
    CHECK(comm_check(ar->comm));
    return comm_barrier(ar->comm, "end of allreduce");
}

void allreduce_free(struct allreduce *ar) {
    if (!ar) return;
    int code = leave_together(ar);
    free_all(ar, !code && ar->ranks.n > 1, code ? allreduce_release(ar) : 1);
}

/* ---- the beginning ---- */

static int init(struct allreduce *ar) {
    if (ar->config.algorithm == ALLREDUCE_MPI && ar->comm && !comm_is_spread(ar->comm))
        return fail(ERR_USAGE, "allreduce mpi: the ranks do not run over MPI: start them with "
                               "mpirun, on one machine with DUET_BACKEND=mpi, or " ADVICE_AUTO);
    if (!ar->kind)
        return fail(ERR_USAGE, "allreduce on %s: not built in: " ADVICE_CPU,
                    device_name(ar->device));
    CHECK(ar->ranks.n > 1 ? take_slab(ar) : choose_executor(ar, NULL));
    return ar->ops->open(&ar->executor, &ar->ranks);
}

int allreduce_init(struct allreduce **out, struct comm *comm, struct device *device,
                   const struct allreduce_config *config) {
    *out = NULL;
    struct allreduce *ar = calloc(1, sizeof *ar);
    if (!ar) return fail(ERR_MEMORY, "allreduce: out of host memory: free some");
    ar->config = config ? *config : allreduce_config_default();
    ar->comm = comm;
    ar->device = device;
    ar->kind = executors_of(device_config(device)->kind, comm);
    ar->ranks = (struct executor_ranks){
        .n = comm ? comm_world_size(comm) : 1,
        .rank = comm ? comm_rank(comm) : 0,
        .comm = comm,
        .device = device,
        .asked = ar->config.algorithm,
        .traffic = device_traffic_mutable(device),
    };
    ar->ranks.link[ar->ranks.rank] = device_index(device);
    ar->link = allreduce_link_host(ar->ranks.n);
    int code = init(ar);
    if (code)
        free_all(ar, 0, 1);
    else
        *out = ar;
    return code;
}

/* ---- texts for people ---- */

const char *allreduce_executor_name(const struct allreduce *ar) {
    return ar->ops->name;
}

void allreduce_libraries(enum device_kind device, char *text, size_t bytes) {
    const struct executor_kind *kind = executors_of(device, NULL);
    snprintf(text, bytes, "%s", "");
    if (kind && kind->libraries) kind->libraries(text, bytes);
}
