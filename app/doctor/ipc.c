/* Memory of another process, as collectives use it: two ranks, one device each. Both export a
 * block, import the other's and copy it to a block of their own, at the same time. Where a
 * container does not share its IPC namespace, or the processes belong to different users, the
 * driver refuses this: its error text then is the finding. */
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "doctor/pattern.h"
#include "doctor/ranks.h"

enum { WORLD = 2, POISON = 0xa5 };

struct testbed {
    struct doctor *d;
    struct comm *comm;
    int rank, peer;
    struct device *device;
    size_t bytes;
    char *own;           /* device memory: the block that is exported */
    char *other;         /* device memory: where the peer's block is copied to */
    unsigned char *host; /* pinned */
    void *imported;
};

static uint64_t seed_of(const struct testbed *bed, int rank) {
    return bed->d->config.seed + 7 + (uint64_t)rank;
}

/* The stream is synchronised before the handle is sent: the peer must find all of the pattern. */
static int offer(struct testbed *bed, struct memory_handle handles[WORLD], int fds[WORLD]) {
    struct stream *stream = device_compute(bed->device);
    struct memory_handle mine;
    int fd;
    pattern_fill(bed->host, bed->bytes, seed_of(bed, bed->rank));
    CHECK(copy_to_device(stream, bed->own, bed->host, bed->bytes));
    CHECK(stream_sync(stream));
    CHECK(device_export(bed->device, bed->own, &mine, &fd));
    return comm_exchange(bed->comm, &mine, sizeof mine, fd, handles, fds);
}

static int fetch(struct testbed *bed, struct rank_task *task) {
    struct stream *stream = device_compute(bed->device);
    char size[32];
    memset(bed->host, POISON, bed->bytes);
    CHECK(copy_imported(stream, bed->other, bed->imported, bed->peer, bed->bytes));
    CHECK(copy_to_host(stream, bed->host, bed->other, bed->bytes));
    CHECK(stream_sync(stream));
    size_t good = pattern_check(bed->host, bed->bytes, seed_of(bed, bed->peer));
    format_bytes(bed->bytes, size, sizeof size);
    if (good == bed->bytes)
        rank_note(bed->comm, task, 0, FINDING_OK, "%s copied, equal", size);
    else
        rank_note(bed->comm, task, 0, FINDING_OFF, "byte %zu of %s is the first wrong one%s", good,
                  size, bed->d->kind == DEVICE_CUDA ? ": " P2P_IS_BROKEN : "");
    return OK;
}

/* Opens the peer's memory and takes it over. GPUs without peer access are no fault: DDP goes
 * through host memory there. */
static int open_and_fetch(struct testbed *bed, struct rank_task *task,
                          const struct memory_handle *handle, int fd) {
    if (!device_reaches(bed->device, handle)) {
        rank_note(bed->comm, task, 0, FINDING_NOT_HERE,
                  "no peer access between these GPUs: DDP goes through host memory");
        return OK;
    }
    CHECK(device_import(bed->device, handle, fd, &bed->imported));
    return fetch(bed, task);
}

static int work(struct testbed *bed, struct rank_task *task) {
    struct memory_handle handles[WORLD];
    int fds[WORLD] = {-1, -1}, code;
    CHECK(doctor_open(bed->d, bed->rank, 2 * (uint64_t)bed->bytes, 0, &bed->device));
    CHECK(device_alloc(bed->device, (void **)&bed->own, bed->bytes, MEM_COMM));
    CHECK(device_alloc(bed->device, (void **)&bed->other, bed->bytes, MEM_COMM));
    CHECK(device_host_alloc(bed->device, (void **)&bed->host, bed->bytes));
    CHECK(offer(bed, handles, fds));
    code = open_and_fetch(bed, task, &handles[bed->peer], fds[bed->peer]);
    for (int r = 0; r < WORLD; r++)
        if (fds[r] >= 0) close(fds[r]);
    if (code) return code;
    CHECK(comm_barrier(bed->comm, "end of copies"));
    if (bed->imported) device_unimport(bed->device, bed->imported);
    return comm_barrier(bed->comm, "end of imports"); /* a block is freed after its last import */
}

int ipc_rank(struct doctor *d, struct comm *comm, struct rank_task *task) {
    struct testbed bed = {
        .d = d, .comm = comm, .rank = comm_rank(comm), .bytes = doctor_block(d) / 4};
    d->devices = WORLD;
    bed.peer = 1 - bed.rank;
    int code = work(&bed, task);
    if (bed.device) device_host_free(bed.device, bed.host);
    device_close(bed.device);
    return code;
}

int check_ipc(struct doctor *d, int first) {
    static const char *const names[WORLD] = {"rank 0 opens memory of rank 1",
                                             "rank 1 opens memory of rank 0"};
    static const char bound[] = "every byte equal, both ways at once";
    if (first > 0) return OK;
    doctor_step(d, 0, "%s: memory of another process", doctor_kind_name(d));
    struct rank_task *task = rank_task_new(d, WORK_IPC);
    if (!task) return fail(ERR_MEMORY, "doctor: no memory to share with ranks: free some memory");
    int code = ranks_run(d, WORLD, task, ipc_rank);
    for (int r = 0; r < WORLD && !code; r++) {
        char name[CHECK_NAME_BYTES];
        const struct rank_finding *found = &task->found[0][r];
        snprintf(name, sizeof name, "%s: %s", doctor_kind_name(d), names[r]);
        note(d, found->done ? found->state : FINDING_OFF, name, bound, "%s",
             found->done ? found->text : "the rank reported nothing");
    }
    rank_task_free(task);
    return code;
}
