/* The functions that differ in a job on several machines, without shared memory; see network.h. */
#include "comm/network.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/environment.h"

/* ---- joining ---- */

int network_is_wanted(const struct network_ops *by, int *wanted) {
    const char *backend = getenv("DUET_BACKEND");
    struct job_rank self;
    *wanted = 0;
    if (backend && strcmp(backend, "mpi"))
        return fail(ERR_USAGE, "environment variable DUET_BACKEND: %s: give mpi, or leave it out",
                    backend);
    if (!environment_is_of_a_rank()) return OK;
    CHECK(read_job_rank_anywhere(&self, "start the ranks with mpirun"));
    *wanted = backend || (self.local_world < self.world && environment_is_of_mpi());
    if (!*wanted || by) return OK;
    return fail(ERR_USAGE,
                "%d of %d ranks are on this machine, and this Duet was built without MPI, which "
                "moves bytes between machines: install libopenmpi-dev and build it again",
                self.local_world, self.world);
}

/* The ranks' first message to each other. */
struct hello {
    char version[16], machine[MACHINE_NAME];
    /* The machine's boot id and the namespace of its shared memory. They distinguish two machines
     * with the same name, which MPI would take for one. */
    char boot[40];
    uint64_t memory;
};

static void fill_hello(struct hello *hello) {
    struct stat status;
    memset(hello, 0, sizeof *hello);
    snprintf(hello->version, sizeof hello->version, "%s", DUET_VERSION);
    gethostname(hello->machine, sizeof hello->machine - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(hello->boot, sizeof hello->boot, file)) *hello->boot = 0;
    if (file) fclose(file);
    if (!stat("/proc/self/ns/ipc", &status)) hello->memory = status.st_ino;
}

static int compare(const struct comm *comm, const struct hello *all) {
    for (int r = 1; r < comm->world; r++) {
        const struct hello *a = &all[0], *b = &all[r];
        if (strcmp(a->version, b->version))
            return fail(ERR_USAGE,
                        "rank 0 on %s runs Duet %s, and rank %d on %s runs %s: install the same on "
                        "all machines",
                        a->machine, a->version, r, b->machine, b->version);
        for (a = all; a < b; a++)
            if (!strcmp(a->machine, b->machine) &&
                (strcmp(a->boot, b->boot) || a->memory != b->memory))
                return fail(ERR_USAGE,
                            "ranks %d and %d are on two machines, which are both called %s: give "
                            "each a different name",
                            (int)(a - all), r, a->machine);
    }
    return OK;
}

static int greet(struct comm *comm) {
    struct hello mine, *all = calloc((size_t)comm->world, sizeof *all);
    struct wait wait;
    fill_hello(&mine);
    wait_start(&wait, comm, NULL);
    wait.reason.collective = "start of the job";
    comm->machines = calloc((size_t)comm->world, sizeof *comm->machines);
    if (!all || !comm->machines) {
        free(all);
        return fail(ERR_MEMORY, "communicator: out of host memory: free some memory");
    }
    int code = comm->by->gather(comm->network, &mine, sizeof mine, all, &wait);
    comm_distant_end(&wait);
    if (!code) code = compare(comm, all);
    for (int r = 0; !code && r < comm->world; r++)
        memcpy(comm->machines[r], all[r].machine, MACHINE_NAME);
    free(all);
    return code;
}

int network_open(struct comm *comm, const struct network_ops *by) {
    comm->by = by;
    CHECK(by->open(&comm->network, comm));
    return greet(comm);
}

void network_close(struct comm *comm) {
    if (!comm->network) return;
    comm->by->close(comm->network);
    comm->network = NULL;
    free(comm->machines);
}

/* ---- collectives ---- */

/* A collective that all ranks count, so that a wait knows which ranks have not begun it. */
static void begin_counted(struct comm *comm, struct wait *wait, const char *collective,
                          const char *what) {
    wait_start(wait, comm, NULL);
    wait->reason.collective = collective;
    wait->what = what;
    wait->barrier = 1;
    wait->target = ++comm->barriers;
    __atomic_store_n(&comm->board->cards[comm->rank].barriers, wait->target, __ATOMIC_RELEASE);
}

int network_barrier(struct comm *comm, const char *collective, const char *what) {
    struct wait wait;
    char here = 1, all[MAX_DEVICES];
    begin_counted(comm, &wait, collective, what);
    int code = comm->by->gather(comm->network, &here, sizeof here, all, &wait);
    comm_distant_end(&wait);
    return code;
}

int network_gather(struct comm *comm, const void *mine, size_t bytes, void *all) {
    struct wait wait;
    size_t sizes[MAX_DEVICES];
    begin_counted(comm, &wait, "gather", comm->gathers_for);
    int code = comm->by->gather(comm->network, &bytes, sizeof bytes, sizes, &wait);
    for (int r = 0; !code && r < comm->world; r++)
        if (sizes[r] != bytes)
            code = fail(
                ERR_USAGE,
                "rank %d: gather: rank %d sent %zu bytes, this rank %zu: all must send the same",
                comm->rank, r, sizes[r], bytes);
    if (!code && bytes) code = comm->by->gather(comm->network, mine, bytes, all, &wait);
    comm_distant_end(&wait);
    return code;
}

void comm_keep_signals(int how) {
    sigset_t asks;
    sigemptyset(&asks);
    sigaddset(&asks, SIGINT);
    sigaddset(&asks, SIGTERM);
    pthread_sigmask(how, &asks, NULL);
}

int network_look_for_stop(struct comm *comm, int *stop) {
    uint8_t mine, all[MAX_DEVICES] = {0};
    struct wait wait;
    sigset_t come;
    sigpending(&come);
    mine = sigismember(&come, SIGTERM) ? SIGTERM : sigismember(&come, SIGINT) ? SIGINT : 0;
    begin_counted(comm, &wait, "look for a stop", NULL);
    int code = comm->by->gather(comm->network, &mine, sizeof mine, all, &wait);
    comm_distant_end(&wait);
    for (int r = 0; r < comm->world; r++)
        if (all[r]) comm->board->asked = all[r];
    *stop = (int)comm->board->asked;
    return code;
}

int comm_stop_signal(const struct comm *comm) {
    return (int)comm->board->asked;
}

int comm_is_spread(const struct comm *comm) {
    return comm && comm->network;
}

const struct executor_kind *comm_executors(const struct comm *comm) {
    return comm_is_spread(comm) ? comm->by->executors : NULL;
}

const char *comm_machine(const struct comm *comm, int rank) {
    return comm->machines ? comm->machines[rank] : "";
}

int comm_speaks(const struct comm *comm) {
    const int64_t alive_ns = 1000000000;
    for (int r = 0; r < comm->rank; r++)
        if (now_ns() - __atomic_load_n(&comm->board->cards[r].heard_ns, __ATOMIC_RELAXED) <
            alive_ns)
            return 0;
    return 1;
}

/* ---- beats ---- */

/* Cards are written and read by several threads, word by word. */
static void copy_card(struct card *to, const struct card *from) {
    for (size_t i = 0; i < sizeof *to / sizeof(uint64_t); i++)
        __atomic_store_n((uint64_t *)to + i,
                         __atomic_load_n((const uint64_t *)from + i, __ATOMIC_ACQUIRE),
                         __ATOMIC_RELEASE);
}

void beat_of(const struct comm *comm, struct beat *beat) {
    const struct card *card = &comm->board->cards[comm->rank];
    /* read first: a rank that has left starts no further call */
    uint32_t left = __atomic_load_n(&card->left, __ATOMIC_ACQUIRE);
    memset(beat, 0, sizeof *beat);
    copy_card(&beat->card, card);
    beat->card.left = left;
    if (beat->card.since_ns) beat->card.since_ns = now_ns() - beat->card.since_ns;
    board_failure(comm->board, &beat->failure);
}

/* Clocks of two machines are unrelated, so a beat's time is its time of arrival. */
void beat_came(struct comm *comm, int rank, struct beat *beat) {
    struct card *card = &comm->board->cards[rank], *theirs = &beat->card;
    int64_t now = now_ns(), seen = __atomic_load_n(&card->beat_ns, __ATOMIC_RELAXED);
    theirs->beat_ns = theirs->beats == card->beats ? seen : now;
    if (theirs->since_ns) theirs->since_ns = now - theirs->since_ns;
    theirs->heard_ns = now;
    copy_card(card, theirs);
    if (beat->failure.state)
        board_abort(comm->board, beat->failure.rank, beat->failure.code, beat->failure.text);
}

void beat_missing(struct comm *comm, int rank, double seconds) {
    char text[BOARD_TEXT];
    snprintf(text, sizeof text,
             "rank %d on %s: no sign of life for %g s: its machine, its link or its process has "
             "stopped",
             rank, comm->machines ? comm->machines[rank] : "another machine", seconds);
    board_abort(comm->board, rank, ERR_PEER, text);
}
