/* Tests a session that cannot be closed completely: a replica's thread that did not return
 * continues later, and everything that it uses must still exist. */
#include "train/session.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/launch.h"
#include "tests/app/train/config.h"
#include "tests/models/values.h"
#include "train/trainer.h"

struct gate {
    atomic_int open, fired; /* fired: gradients that the lost thread has made */
};

/* The hook of replica 1's tape: its thread stands here until the gate opens. */
static int wait_at_gate(void *context, int index) {
    struct gate *gate = context;
    (void)index;
    while (!gate->open)
        usleep(1000);
    gate->fired++;
    return OK;
}

static void open_session(struct session *s, struct run_config *config, struct run_record *record,
                         enum run_mode mode) {
    put_data(16, 4);
    *config = config_on_cpu(mode, "lenet");
    config->batch_size = 8;
    config->data.workers = 0;
    config->timeout = 0.1; /* DP gives its threads 5 s more */
    cr_assert_eq(session_open(s, config, NULL, record), OK, "%s", error_message());
}

CliTest(session, a_lost_thread_keeps_what_it_uses, 60) {
    /* static, as all that a lost thread may reach: no leak to be reported */
    static struct run_config config;
    static struct run_record record;
    static struct session s;
    static struct gate gate;
    struct batch *batch;
    open_session(&s, &config, &record, MODE_DP);
    tape_set_hook(s.replicas[1]->tape, wait_at_gate, &gate);
    cr_assert_eq(loader_start_epoch(s.train_loader, 0, 0), OK, "%s", error_message());
    cr_assert_eq(loader_next(s.train_loader, &batch), OK, "%s", error_message());
    static struct step_block step = {.weight = 0.125f, .learning_rate = 0.1f, .first_update = 1};
    cr_assert_eq(s.strategy->step(&s, &step, batch), ERR_TIMEOUT, "%s", error_message());
    cr_assert(strstr(error_message(), "Caught TimeoutError in replica 1"), "%s", error_message());

    cr_assert_eq(session_close(&s), 0, "a thread is lost: nothing may be given back");
    void *memory;
    cr_assert_eq(device_alloc(s.device[1], &memory, 1024, MEM_WORKSPACE), OK, "%s",
                 error_message());
    gate.open = 1; /* the thread continues with its backward, on its device */
    for (int i = 0; i < 20000 && gate.fired < s.model.param_count; i++)
        usleep(1000);
    cr_assert_eq(gate.fired, s.model.param_count, "the thread has not made its gradients");
    usleep(50000);
    cr_assert_eq(stream_sync(device_compute(s.device[1])), OK, "%s", error_message());
}

CliTest(session, closes_whole_otherwise, 60) {
    static const enum run_mode modes[] = {MODE_SINGLE, MODE_DP};
    for (int i = 0; i < 2; i++) {
        struct run_config config;
        struct run_record record = {0};
        struct session s = {0};
        open_session(&s, &config, &record, modes[i]);
        cr_assert_eq(session_close(&s), 1);
        cr_assert_null(s.device[0]);
        cr_assert_eq(session_close(&s), 1, "twice");
        record_free(&record);
    }
}

/* ---- the trainer counts updates ---- */

static struct run_config adam_config(enum run_mode mode) {
    struct run_config config = config_on_cpu(mode, "mlp");
    config.update.optimizer = OPTIMIZER_ADAM;
    config.update.lr = 0.01;
    config.batch_size = 8, config.epochs = 3; /* of two batches */
    return config;
}

/* Adam's step depends on the number of steps before it: those that the trainer makes are those
 * made here by hand. */
static void train_by_hand(const struct run_config *config, struct run_record *record,
                          struct session *s) {
    struct batch *batch;
    cr_assert_eq(session_open(s, config, NULL, record), OK, "%s", error_message());
    for (int i = 0; i < 6; i++) {
        struct step_block step = {.step = (uint64_t)i, .weight = 1.0f / 8};
        optimizer_schedule(&step, &s->replicas[0]->config.update, 0.01, i);
        if (i % 2 == 0)
            cr_assert_eq(loader_start_epoch(s->train_loader, i / 2, 0), OK, "%s", error_message());
        cr_assert_eq(loader_next(s->train_loader, &batch), OK, "%s", error_message());
        cr_assert_eq(s->strategy->step(s, &step, batch), OK, "%s", error_message());
        cr_assert_eq(stream_sync(device_compute(s->device[0])), OK, "%s", error_message());
        loader_release(s->train_loader, batch);
    }
}

CliTest(session, the_trainer_counts_updates, 60) {
    static const enum run_mode modes[] = {MODE_SINGLE, MODE_DP};
    put_data(16, 4);
    for (int i = 0; i < 2; i++) {
        struct run_config config = adam_config(modes[i]);
        struct run_record record = {0}, by_hand = {0};
        struct session s = {0};
        float **want = NULL;
        struct failures unwritten = {0};
        int in_use;
        train_by_hand(&config, &by_hand, &s);
        snprintf(config.files.save, sizeof config.files.save, "w");
        cr_assert_eq(trainer_run(&config, NULL, &record, &unwritten, &in_use), OK, "%s",
                     error_message());
        cr_assert_eq(values_load(&s.model, "w", &want, NULL), OK, "%s", error_message());
        for (int p = 0; p < s.model.param_count; p++) {
            size_t count = s.replicas[0]->params->set.param[p].count;
            float *got = malloc(count * sizeof *got);
            cr_assert_eq(param_read_value(&s.replicas[0]->params->set, p, got), OK, "%s",
                         error_message());
            cr_assert(!memcmp(got, want[p], count * sizeof *got), "%s: %s", mode_name(modes[i]),
                      s.model.params[p].name);
            free(got);
        }
        model_values_free(want);
        cr_assert_eq(session_close(&s), 1);
        record_free(&record), record_free(&by_hand);
    }
}

/* ---- ranks that find different devices ---- */

static void (*make_different)(struct run_config *config, int rank);

static int one_rank(void *context) {
    struct run_config config = *(struct run_config *)context;
    struct run_record record = {0};
    struct comm *comm;
    struct failures unwritten = {0};
    int in_use, code = comm_open(&comm, NULL);
    if (code) return 1;
    make_different(&config, comm_rank(comm));
    code = trainer_run(&config, comm, &record, &unwritten, &in_use);
    comm_abort(comm, code, error_message());
    comm_close(comm);
    record_free(&record);
    return error_exit_status(code);
}

static int run_ranks(void (*different)(struct run_config *, int), const char *device) {
    struct run_config config = config_on_cpu(MODE_DDP, "mlp");
    put_data(16, 4);
    config.devices = 3;
    config.batch_size = 12;
    config.epochs = 1;
    config.timeout = 20;
    config.model.options.hidden_count = 1, config.model.options.hidden[0] = 4;
    snprintf(config.device, sizeof config.device, "%s", device);
    make_different = different;
    struct launch launch = {.world_size = 3, .entry = one_rank, .context = &config};
    struct launch_result result;
    return launch_ranks(&launch, &result);
}

static void all_alike(struct run_config *config, int rank) {
    (void)config, (void)rank;
}

static void rank_1_is_late(struct run_config *config, int rank) {
    config->late = rank == 1;
}

static void rank_2_sees_no_gpu(struct run_config *config, int rank) {
    (void)config;
    setenv("EMULATED_GPUS", rank == 2 ? "0" : "2", 1);
}

static void rank_1_sees_one_gpu(struct run_config *config, int rank) {
    (void)config;
    setenv("EMULATED_GPUS", rank == 1 ? "1" : "2", 1);
}

static void differ(void (*different)(struct run_config *, int), const char *device,
                   const char *words) {
    cr_assert_eq(run_ranks(different, device), ERR_FAILED, "%s", error_message());
    cr_assert(strstr(error_message(), words), "%s", error_message());
}

/* Emulated devices are alike, whatever their pace. */
CliTest(session, ranks_on_emulated_devices, 60) {
    cr_assert_eq(run_ranks(all_alike, "cpu"), OK, "%s", error_message());
    cr_assert_eq(run_ranks(rank_1_is_late, "cpu"), OK, "%s", error_message());
}

/* auto is decided by each rank for itself. */
CliTest(session, ranks_must_find_the_same_gpus, 120) {
#ifndef CUDA_EMULATION
    cr_skip_test("needs GPUs that can be hidden from a rank: make EMULATION=1");
#endif
    differ(rank_2_sees_no_gpu, "auto", "devices: rank 2 finds no GPU, rank 0 2 GPUs");
    differ(rank_1_sees_one_gpu, "auto", "devices: rank 1 finds 1 GPU, rank 0 2 GPUs");
}
