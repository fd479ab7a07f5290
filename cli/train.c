/* duet train: one run, one way. Single and DP train in this process; DDP is a job of one process per
 * device. */
#include <stdio.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "train/job.h"
#include "train/trainer.h"

static void describe(const struct run_config *config) {
    int w = run_devices(config), v = run_virtual_devices(config);
    char virtual[16] = "off";
    if (config->quiet) return;
    if (v) snprintf(virtual, sizeof virtual, "%d", v);
    printf("%s: %s on %s, batch global %d = %g per device x %d, lr %g, virtual devices %s\n",
           mode_title(config->mode), config->model, config->dataset, config->batch_size,
           (double)config->batch_size / w, w, config->lr, virtual);
    fflush(stdout);
}

int command_train(int argc, char **argv) {
    struct run_config config;
    struct run_record record = {0};
    struct job_result result;
    int help, code, in_use = 0;
    run_config_default(&config);
    CHECK_GOTO(flags_parse(argc, argv, &config, &help), code, done);
    if (help) return flags_help("train"), 0;
    CHECK_GOTO(run_config_check(&config), code, done);
    describe(&config);
    if (config.mode == MODE_DDP) {
        code = job_run(&config, NULL, 0, NULL, &result);
        if (code) return report_error(code), result.exit_status;
    } else {
        code = trainer_run(&config, NULL, NULL, 0, &record, &in_use);
    }
done:
    record_free(&record);
    int status = report_error(code);
    if (in_use) job_leave(status);
    return status;
}
