/* See spread.h. */
#include "train/spread.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/program_name.h"
#include "comm/comm.h"
#include "comm/environment.h"
#include "group/group.h"
#include "train/compare/bits.h"
#include "train/trainer.h"

int spread_begin(struct run_config *config) {
    struct job_rank self;
    int wanted;
    CHECK(network_is_wanted(network_by_mpi, &wanted));
    if (!wanted) return OK;
    CHECK(read_job_rank_anywhere(&self, "start the ranks with mpirun"));
    config->devices = self.world;
    config->spread = 1 + self.rank;
    return OK;
}

/* The ranks end with the one run over several machines. */
static int check_compare(const struct run_config *config) {
    struct run_config one = *config;
    unsigned both = 1U << MODE_DDP | 1U << MODE_FSDP;
    char why_not[128];
    if ((config->modes & both) == both)
        return fail(ERR_USAGE, "--modes: several machines run either ddp or fsdp: leave one out");
    one.mode = config->modes >> MODE_FSDP & 1 ? MODE_FSDP : MODE_DDP;
    if (bits_promised(&one, why_not, sizeof why_not)) return OK;
    return fail(ERR_USAGE,
                "compare over several machines: equal bits are not promised (%s), and lock step "
                "cannot replace them: remove the cause",
                why_not);
}

int spread_check(struct run_config *config, enum spread_command command) {
    struct job_rank self;
    if (!config->spread) return OK;
    CHECK(read_job_rank_anywhere(&self, ""));
    if (config->devices != self.world)
        return fail(ERR_USAGE,
                    "--devices: %d, and mpirun has started %d ranks, each with a device: leave it "
                    "out",
                    config->devices, self.world);
    if (command == SPREAD_TRAIN && !mode_has_ranks(config->mode))
        return fail(ERR_USAGE,
                    "--mode %s: it is one process, and mpirun has started %d: on several machines "
                    "give --mode ddp or fsdp",
                    mode_name(config->mode), self.world);
    if (*config->clock.gpu)
        return fail(ERR_USAGE,
                    "--gpu: its times are modelled in one process: leave mpirun out, and "
                    "give --devices and --nodes");
    if (command == SPREAD_COMPARE) CHECK(check_compare(config));
    config->quiet |= config->spread > 1;
    return OK;
}

/* One line for each cause: the rank that failed prints it; if it is gone, the first remaining rank
 * does. */
static _Noreturn void leave(struct comm *comm, int rank, int code, int in_use) {
    int speaks = code && (code != ERR_PEER || (comm && comm_speaks(comm)));
    const char *machine = comm ? comm_machine(comm, rank) : "", *text = error_with_options();
    char prefix[24]; /* the message already names the rank */
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "rank %d: ", rank);
    if (!strncmp(text, prefix, length)) text += length;
    if (speaks)
        fprintf(stderr, "%s: rank %d%s%s: %s\n", program_name(), rank, *machine ? " on " : "",
                machine, text);
    if (!in_use) comm_close(comm);
    fflush(NULL);
    _exit(error_exit_status(code));
}

/* All spans become rank 0's. Each machine counts its time from its own start, so they are shifted
 * by the difference of the clocks after one barrier. Collective. */
static int gather_spans(struct comm *comm, struct span_log *kept) {
    struct {
        int64_t now;
        size_t count;
    } mine = {0, kept->count}, its[MAX_DEVICES];
    size_t most = 0;
    int world = comm_world_size(comm), me = comm_rank(comm);
    CHECK(comm_barrier(comm, "clocks"));
    mine.now = now_ns();
    CHECK(comm_gather(comm, &mine, sizeof mine, its));
    for (int r = 0; r < world; r++)
        most = its[r].count > most ? its[r].count : most;
    struct span *all = calloc((size_t)world * most + 1, sizeof *all);
    if (!all) return fail(ERR_MEMORY, "spans of all ranks: out of host memory");
    if (kept->count) memcpy(all + (size_t)me * most, kept->spans, kept->count * sizeof *all);
    int code = comm_gather(comm, all + (size_t)me * most, most * sizeof *all, all);
    for (int r = 1; !code && !me && r < world; r++)
        for (size_t i = 0; i < its[r].count; i++) {
            struct span *span = &all[(size_t)r * most + i];
            span->start_ns -= its[r].now - its[0].now;
            span->end_ns -= its[r].now - its[0].now;
            span_add(kept, span);
        }
    free(all);
    return code;
}

int spread_run(const struct run_config *config, struct run_record *record,
               struct failures *unwritten, int *signal) {
    struct comm *comm = NULL;
    struct failures outcome;
    int in_use = 0, rank = config->spread - 1;
    if (config->stoppable) comm_keep_signals(SIG_BLOCK);
    struct comm_options options = {.timeout_s = config->timeout, .meet = 1, .by = network_by_mpi};
    int code = comm_open(&comm, &options);
    if (!code) code = trainer_run(config, comm, record, unwritten, &in_use);
    if (!code && run_keeps_spans(config)) code = gather_spans(comm, &record->kept);
    *signal = code ? 0 : comm_stop_signal(comm);
    if (comm) comm_abort(comm, code, error_message());
    if (rank > 0) leave(comm, rank, code, in_use);
    outcome = failures_of(code);
    if (!in_use) comm_close(comm);
    if (config->stoppable && !*signal) comm_keep_signals(SIG_UNBLOCK);
    return failures_end(&outcome);
}
