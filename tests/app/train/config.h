#ifndef TESTS_TRAIN_CONFIG_H
#define TESTS_TRAIN_CONFIG_H

#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"
#include "train/run.h"

/* A quiet run of this model on emulated devices, with the data set of put_data. */
static inline struct run_config config_on_cpu(enum run_mode mode, const char *model) {
    struct run_config config;
    run_config_default(&config);
    config.mode = mode;
    config.quiet = 1;
    snprintf(config.device, sizeof config.device, "cpu");
    snprintf(config.model.name, sizeof config.model.name, "%s", model);
    snprintf(config.data.folder, sizeof config.data.folder, "d");
    return config;
}

#endif
