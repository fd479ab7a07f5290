/* Reads the data sets of a command once: see shared_data.h. */
#include "train/shared_data.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "data/shared_dataset.h"
#include "train/files/settings.h"

static int read_set(const struct run_config *c, struct dataset *set, int train) {
    struct dataset_config config = run_dataset(c);
    if (c->dry) return dataset_outline(set, &config, train);
    return dataset_make(set, &config, train);
}

static int *fd_of(struct run_config *config, int train) {
    return &config->data.fd[train ? 0 : 1];
}

static int share(struct run_config *config, int train) {
    struct dataset set;
    int fd;
    if (*fd_of(config, train)) return OK;
    CHECK(read_set(config, &set, train));
    CHECK(dataset_share(&set, &fd));
    *fd_of(config, train) = fd;
    return OK;
}

int shared_data_open(struct run_config *config) {
    int64_t start = now_ns();
    int code = share(config, 1);
    if (!code && run_evaluates(config)) code = share(config, 0);
    config->data.seconds += (double)(now_ns() - start) * 1e-9;
    if (code) shared_data_close(config);
    return code;
}

void shared_data_close(struct run_config *config) {
    for (int i = 0; i < 2; i++) {
        if (config->data.fd[i]) close(config->data.fd[i]);
        config->data.fd[i] = 0;
    }
}

int run_open_set(const struct run_config *config, struct dataset *set, int train) {
    int fd = config->data.fd[train ? 0 : 1];
    return fd ? dataset_map(set, fd) : read_set(config, set, train);
}

int shared_data_agree(struct comm *comm, const struct dataset *set) {
    uint64_t mine, all[MAX_DEVICES];
    if (!comm_is_spread(comm)) return OK;
    mine = settings_fingerprint(set) ^ (uint64_t)set->count;
    CHECK(comm_gather(comm, &mine, sizeof mine, all));
    for (int r = 1; r < comm_world_size(comm); r++)
        if (all[r] != all[0])
            return fail(ERR_USAGE,
                        "data: rank %d on %s reads different data from rank 0 on %s: copy the same "
                        "files to all machines",
                        r, comm_machine(comm, r), comm_machine(comm, 0));
    return OK;
}
