/* A program starts its own ranks: copies of its process (fork), under the launcher of comm/. A rank
 * leaves its error text in memory that the parent shares, so that the parent can return it, as
 * torch.multiprocessing.spawn raises the child's exception. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"
#include "base/system_error.h"
#include "comm/environment.h"
#include "comm/launch.h"
#include "duet.h"
#include "group/group.h"

struct spawn {
    int (*work)(int rank, void *context);
    void *context;
    struct failures *outcomes; /* by rank; shared with the ranks */
};

/* Runs in a rank, whose number the launcher has put into the environment. A text from before the
 * fork is not this rank's. */
static int run_rank(void *argument) {
    struct spawn *s = argument;
    const char *number = getenv("RANK");
    fail(OK, "%s", "");
    int rank = number ? atoi(number) : 0, code = s->work(rank, s->context);
    if (code < 0 || code > ERR_PEER) code = ERR_FAILED;
    s->outcomes[rank] = failures_of(code);
    return error_exit_status(code);
}

/* 1 if this process has a device open. Its memory is shared with a fork, and its threads are not.
 * The process's mappings show it: memory of an emulated device, or of a GPU. */
static int has_device(void) {
    return process_has_mapped(
        (const char *const[]){"/memfd:duet-device", "/memfd:" JOB_MEMORY, "/dev/nvidia", NULL});
}

/* The rank whose failure is reported: `first`, unless it only saw that a peer had ended or left:
 * then a rank with another reason is the cause. A wrong argument is always the rank's own cause. */
static int guilty_rank(const struct spawn *s, int n, int first) {
    int saw = s->outcomes[first].code;
    if (saw != ERR_FAILED && saw != ERR_PEER) return first;
    for (int r = 0; r < n; r++) {
        int code = s->outcomes[r].code;
        if (s->outcomes[r].text[0] && (code == ERR_USAGE || (saw == ERR_PEER && code != ERR_PEER)))
            return r;
    }
    return first;
}

static int launch_them(struct spawn *s, int n) {
    struct launch launch = {.world_size = n, .entry = run_rank, .context = s};
    struct launch_result result;
    int code = launch_ranks(&launch, &result);
    if (!code || result.rank < 0 || result.rank >= n) return code;
    int rank = guilty_rank(s, n, result.rank);
    const struct failures *first = &s->outcomes[rank];
    if (!first->code) return code;
    if (!first->text[0]) return first->code; /* the launcher's message stays */
    char prefix[24];
    snprintf(prefix, sizeof prefix, "rank %d: ", rank);
    return fail(first->code, "%s%s", strncmp(first->text, prefix, strlen(prefix)) ? prefix : "",
                first->text);
}

/* This process is the rank. As in a rank that the launcher forked, memory of a job is mapped while
 * `work` runs: has_device and check_alone look for it. */
static int run_here(const struct spawn *s, int rank) {
    const size_t page = 4096;
    int fd = memfd_create(JOB_MEMORY, MFD_CLOEXEC);
    void *mark = fd < 0 ? MAP_FAILED : mmap(NULL, page, PROT_NONE, MAP_PRIVATE, fd, 0);
    if (fd >= 0) close(fd);
    if (mark == MAP_FAILED) return fail_system(errno, "spawn: %zu bytes of memory", page);
    int code = s->work(rank, s->context);
    munmap(mark, page);
    return code;
}

int duet_spawn(int n, int (*work)(int rank, void *context), void *context) {
    struct spawn s = {.work = work, .context = context};
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "spawn: %d ranks: give 1 to %d", n, MAX_DEVICES);
    if (!work) return fail(ERR_USAGE, "spawn: no function was given");
    if (has_device())
        return fail(ERR_USAGE,
                    "spawn: this process has a device open, or a group: spawn before that, "
                    "and open it in each rank");
    if (environment_is_of_a_rank()) { /* `duet run` or mpirun has started the ranks */
        struct job_rank self;
        CHECK(read_job_rank_anywhere(&self, "start the program by duet run, torchrun or mpirun"));
        CHECK(environment_for_programs(&self));
        return run_here(&s, self.rank);
    }
    size_t bytes = (size_t)n * sizeof *s.outcomes;
    s.outcomes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s.outcomes == MAP_FAILED)
        return fail_system(errno, "spawn: %zu bytes of shared memory", bytes);
    int code = launch_them(&s, n);
    munmap(s.outcomes, bytes);
    return code;
}
