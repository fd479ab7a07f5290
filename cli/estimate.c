/* duet estimate: the memory and the bytes of duet profile by arithmetic, without devices and data.
 * train/estimate.h says how. */
#include <stdio.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/results.h"
#include "cli/ways.h"
#include "report/findings.h"
#include "report/profile_table.h"
#include "report/text.h"
#include "train/compare.h"
#include "train/estimate.h"

enum { DEFAULT_STEPS = 50 }; /* as of profile */

static int write_json(struct atomic_file *file, const struct ways *ways) {
    struct json_writer w;
    if (!file->file) return OK;
    CHECK(results_start(&w, file->file, "estimate"));
    ways_write(ways, &w);
    return results_end(&w, file);
}

/* ERR_MEMORY: some way does not fit; the others are there all the same. */
static int estimate_ways(const struct run_config *config, struct ways *ways, int width) {
    struct run_config base = *config;
    const char *why = compare_leaves_out(config, MODE_DP);
    int full = -1;
    printf("%s on %s: computed, not measured: no device is opened and no data is read\n",
           config->model, config->dataset);
    if (why) printf("DP is left out: %s\n", why);
    for (int i = 0; i < WAYS; i++) {
        char title[WAY_TITLE];
        way_apply(i, &base);
        if (compare_leaves_out(config, base.mode)) continue;
        int code = estimate_run(&base, &ways->run[i]);
        if (code) fail(code, "%s: %s", way_name(i), error_message());
        if (code == ERR_MEMORY) {
            way_note_full(ways, full = i, width);
            continue;
        }
        CHECK(code);
        printf("\n");
        profile_table(stdout, width, way_title(i, config, title), &ways->run[i]);
    }
    return full < 0 ? OK : ERR_MEMORY;
}

static int show(const struct run_config *config, struct ways *ways) {
    int width = text_width(stdout);
    int code = estimate_ways(config, ways, width);
    if (code && code != ERR_MEMORY) return code;
    printf("\n");
    profile_findings(stdout, width,
                     &(struct profiled){way_run(ways, WAY_DP), way_run(ways, WAY_LOSS_IN_FORWARD),
                                        way_run(ways, WAY_DDP)});
    if (config->device_memory_count) ways_show_what_fits(ways, width);
    return OK;
}

int command_estimate(int argc, char **argv) {
    struct run_config config;
    struct ways *ways = NULL;
    struct atomic_file json = {0};
    int help = 0, code;
    run_config_default(&config);
    config.dry = 1;
    CHECK_GOTO(flags_parse_all_modes(argc, argv, &config, &help, "estimate"), code, done);
    if (help) return flags_help("estimate"), 0;
    CHECK_GOTO(run_config_check(&config), code, done);
    CHECK_GOTO(estimate_check(&config), code, done);
    if (!config.steps) config.steps = DEFAULT_STEPS;
    if (*config.json) CHECK_GOTO(atomic_open(&json, config.json), code, done);
    ways = ways_new();
    CHECK_GOTO(ways ? show(&config, ways) : ERR_MEMORY, code, done);
    code = write_json(&json, ways);
done:
    atomic_abandon(&json);
    ways_free(ways);
    return report_error(code);
}
