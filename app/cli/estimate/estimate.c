/* duet estimate computes the memory and traffic that duet profile measures, without devices and
 * data. train/estimate/estimate.h says how. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/estimate/modelled.h"
#include "cli/estimate/ways.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "report/findings.h"
#include "report/profile_table.h"
#include "report/text.h"
#include "train/compare/compare.h"
#include "train/estimate/estimate.h"
#include "train/estimate/max_batch.h"

enum { DEFAULT_STEPS = 50 }; /* the same as in profile */

/* 1: for pictures of this size, a model of this name usually has another stem. */
static int is_of_small_pictures(const struct run_config *config) {
    enum { SMALL = 64 };
    return !strcmp(config->model.name, "resnet18") && !config->model.options.own &&
           config->model.options.sample.height > SMALL;
}

static void print_head(const struct run_config *config, int width) {
    const char *why = compare_leaves_out(config, MODE_DP);
    const struct model_options *o = &config->model.options;
    struct text text = {""};
    char size[32], shape[SAMPLE_SHAPE_BYTES], outputs[32];
    if (o->tokens)
        snprintf(outputs, sizeof outputs, "%d x %d", o->tokens, o->token_classes);
    else
        snprintf(outputs, sizeof outputs, "%d", o->classes);
    if (o->params) {
        text_add(&text,
                 "a model of %lld parameters, as tensors of at most 2^20, and %lld elements of "
                 "buffers; a sample of %s has %s outputs and leaves %s for backward",
                 (long long)o->params, (long long)o->buffers, sample_shape_text(&o->sample, shape),
                 outputs, format_bytes(o->activation_bytes, size, sizeof size));
        if (!o->activation_bytes) text_add(&text, " (set by --activations)");
    } else {
        ways_add_model(&text, config);
        text_add(&text, " on %s", config->data.name);
    }
    text_add(&text, ": computed, not measured: no device is opened and no data is read");
    if (is_of_small_pictures(config))
        text_add(&text, ". resnet18 is the chapter's, for small images: its stem has no pooling; "
                        "torchvision's is --model torchvision-resnet18");
    text_wrap(stdout, width, 0, 2, text.words);
    if (why && config->modes >> MODE_DP & 1)
        text_say(stdout, width, 0, 2, "DP is left out: %s", why);
}

/* ERR_MEMORY: some mode does not fit; the results of the others are kept. */
static int estimate_ways(const struct run_config *config, struct ways *ways, int width) {
    struct run_config base = *config;
    int full = -1, has_head = 0;
    for (int i = 0; i < WAYS; i++) {
        way_apply(i, &base);
        if (compare_leaves_out(config, base.mode)) continue;
        int code = estimate_run(&base, &ways->run[i]);
        if (code) fail(code, "%s: %s", way_name(i), error_message());
        if (code && code != ERR_MEMORY) return code; /* there is only the error to report */
        if (!has_head++) print_head(config, width);
        if (code == ERR_MEMORY) {
            way_note_full(ways, full = i, &base, width);
            continue;
        }
    }
    return full < 0 ? OK : ERR_MEMORY;
}

/* The least memory that each device must have. A step may need a little more, since memory is
 * allocated in pieces; --device-memory tries a size. */
static void show_needs(const struct ways *ways, int width, int details) {
    struct text text = {""};
    char peak[32];
    int n = 0;
    text_add(&text, "At its peak a device holds at most");
    for (int i = 0; i < WAYS; i++) {
        const struct run_record *r = way_run(ways, i);
        uint64_t most = r ? record_peak(r, 0, r->devices - 1) : 0;
        if (r)
            text_add(&text, "%s %s %s", n++ ? ";" : "", way_name(i),
                     format_bytes(most, peak, sizeof peak));
    }
    text_add(&text, ".");
    if (details)
        text_add(&text, " Memory of a GPU's driver, its libraries and PyTorch's caching "
                        "allocator is not included.");
    if (n) text_wrap(stdout, width, 0, 2, text.words);
}

/* Single and DP with the loss in forward are details, unless nothing else fits. */
static void show_tables(const struct run_config *config, const struct ways *ways, int width) {
    int brief = !config->details && (way_run(ways, WAY_DP) || way_run(ways, WAY_DDP));
    int shown[WAYS] = {[WAY_DP] = 1, [WAY_DDP] = 1, [WAY_FSDP] = 1};
    for (int i = 0; i < WAYS; i++) {
        char title[WAY_TITLE];
        if (!way_run(ways, i) || (brief && !shown[i])) continue;
        printf("\n");
        profile_table(stdout, width, way_title(i, config, title), way_run(ways, i),
                      config->details);
    }
    if (brief) printf("\n--details: single, DP with the loss in forward, all rows\n");
}

static int show_largest(const struct run_config *config, int width) {
    struct text text = {""};
    struct run_config c = *config;
    text_add(&text, "The largest global batch that fits:");
    for (int i = 0, n = 0; i < WAYS; i++) {
        struct max_batch found;
        way_apply(i, &c);
        if (compare_leaves_out(config, c.mode)) continue;
        CHECK(max_batch_find(&c, c.batch_size, &found));
        text_add(&text, "%s %s %d%s", n++ ? ";" : "", way_name(i), found.batch,
                 found.next ? "" : ", all samples");
    }
    text_add(&text, ".");
    text_wrap(stdout, width, 0, 2, text.words);
    return OK;
}

static int show(const struct run_config *config, struct ways *ways) {
    int width = text_width(stdout);
    int code = estimate_ways(config, ways, width);
    if (code && code != ERR_MEMORY) return code;
    CHECK(ways_count_as_pytorch(ways, config));
    show_needs(ways, width, config->details);
    if (config->device_memory_count) {
        ways_show_what_fits(ways, config, width);
        CHECK(show_largest(config, width));
    }
    const struct profiled profiled = ways_profiled(ways, config->details);
    profile_findings_print(stdout, width, &profiled);
    show_tables(config, ways, width);
    ways_show_beside_pytorch(ways, config);
    return OK;
}

int command_estimate(int argc, char **argv, const struct duet_model *own) {
    if (modelled_is_asked(argc, argv)) return command_modelled(argc, argv, own);
    struct options options = {.command = "estimate"};
    struct run_config config;
    struct ways *ways = NULL;
    struct run_files files = {.config = NULL};
    int code;
    run_config_default(&config);
    run_config_own(&config, own);
    config.dry = 1;
    CHECK_GOTO(run_options_parse(&options, argc, argv, &config), code, done);
    if (options.help) return command_usage(&options, own), modelled_help(), 0;
    CHECK_GOTO(estimate_prepare(&config), code, done);
    CHECK_GOTO(run_config_check(&config), code, done);
    if (!config.steps) config.steps = DEFAULT_STEPS;
    CHECK_GOTO(run_files_open(&files, &config), code, done);
    ways = ways_new(&config);
    CHECK_GOTO(ways ? show(&config, ways) : ERR_MEMORY, code, done);
    struct page none = {.count = 0}; /* nothing ran, so there is nothing to show */
    code = run_files_write(&files, "estimate", ways_write, ways, &none);
done:
    run_files_abandon(&files);
    ways_free(ways);
    return report_error(code);
}
