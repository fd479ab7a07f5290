/* A session that cannot be closed whole: a replica's thread that did not come back goes on later, and everything it
 * works on must still be there. */
#include "train/session.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/cli_data.h"
#include "tests/cli_run.h"

struct gate {
    atomic_int open, fired; /* fired: gradients that the lost thread has made */
};

/* The hook of replica 1's tape: its thread stands here until the gate opens. */
static int wait_at_gate(void *context, int index) {
    struct gate *gate = context;
    (void)index;
    while (!gate->open) usleep(1000);
    gate->fired++;
    return OK;
}

static void open_session(struct session *s, struct run_config *config, struct run_record *record, enum run_mode mode) {
    put_data(16, 4);
    run_config_default(config);
    config->mode = mode;
    config->batch_size = 8;
    config->quiet = 1;
    config->timeout = 0.1; /* DP gives its threads 5 s more */
    snprintf(config->device, sizeof config->device, "cpu");
    snprintf(config->data_dir, sizeof config->data_dir, "d");
    cr_assert_eq(session_open(s, config, NULL, NULL, 0, record), OK, "%s", error_message());
}

Test(session, a_lost_thread_keeps_what_it_uses, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    static struct run_config config; /* static, as all that a lost thread may reach: no leak to be reported */
    static struct run_record record;
    static struct session s;
    static struct gate gate;
    struct loaded_batch *batch;
    open_session(&s, &config, &record, MODE_DP);
    tape_set_hook(s.replicas[1]->tape, wait_at_gate, &gate);
    cr_assert_eq(loader_start_epoch(s.train_loader, 0, 0), OK, "%s", error_message());
    cr_assert_eq(loader_next(s.train_loader, &batch), OK, "%s", error_message());
    static struct step_block step = {.weight = 0.125f, .learning_rate = 0.1f, .first_update = 1};
    cr_assert_eq(s.strategy->step(&s, &step, batch), ERR_TIMEOUT, "%s", error_message());
    cr_assert(strstr(error_message(), "Caught TimeoutError in replica 1"), "%s", error_message());

    cr_assert_eq(session_close(&s), 0, "a thread is lost: nothing may be given back");
    void *memory;
    cr_assert_eq(device_alloc(s.device[1], &memory, 1024, MEM_WORKSPACE), OK, "%s", error_message());
    gate.open = 1; /* it goes on: the rest of its backward, on its device */
    for (int i = 0; i < 20000 && gate.fired < s.model.param_count; i++) usleep(1000);
    cr_assert_eq(gate.fired, s.model.param_count, "the thread has not made its gradients");
    usleep(50000);
    cr_assert_eq(stream_sync(device_compute(s.device[1])), OK, "%s", error_message());
}

Test(session, closes_whole_otherwise, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
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
