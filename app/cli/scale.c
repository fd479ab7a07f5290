/* duet scale repeats one training on different numbers of devices and prints one table.
 *
 * Without options it reproduces the table of ConvNet's tutorial: MNIST, one epoch with Adadelta, a
 * global batch of 128 over 1, 2, 4 and 8 processes. With --batch-per-device and a list of rates it
 * does exercises 1 and 2 of d2l's chapter 13.5. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "cli/results/scale_table.h"
#include "data/dataset.h"

/* The learning rate of the tutorial. */
static const double TEXT_RATE = 0.5;

struct words {
    const struct duet_model *own;
    const char *devices, *lr; /* NULL: not given */
};

static const struct option scale_options[] = {
    {"--devices", "N1,N2,...", "the numbers of devices (default 1,2,4,8)", read_word,
     OPTION_AT(struct words, devices), NO_LIMITS, ALWAYS},
    {"--lr", "X1,X2,...", "the learning rates; each is tried on each number of devices", read_word,
     OPTION_AT(struct words, lr), NO_LIMITS, ALWAYS},
    OPTION_END};

static int help(const struct options *options, const struct duet_model *own) {
    say_text("usage: duet scale [options]\n\n"
             "Trains the same model on several numbers of devices, one after another, and prints "
             "seconds, speed-up, loss and accuracy of each, and whether their bits agree.\n\n");
    options_print(scale_options);
    say_text("\nand the options of duet train. With --batch-per-device the global batch grows with "
             "the devices; otherwise it stays the same. --mode is dp or ddp (default ddp). The "
             "default model is "
             "convnet, with --dataset mnist if it is installed, --optimizer adadelta --lr 0.5 "
             "--epochs 1 --batch-size 128; other models have the defaults of train.\n\n"
             "  duet scale\n"
             "      reproduce the MNIST tutorial's table for 1, 2, 4 and 8 processes\n"
             "  duet scale --model lenet --devices 1,2 --batch-per-device 256\n"
             "      exercise 1 of d2l 13.5: a batch k times larger\n"
             "  duet scale --model lenet --devices 1,2 --batch-per-device 256 --lr 0.1,0.2,0.4\n"
             "      exercise 2: accuracy by learning rate\n\n");
    run_options_help(options, own);
    return 0;
}

static int has_mnist(void) {
    struct dataset set;
    int found = !dataset_open(&set, "mnist", NULL, 1);
    if (found) dataset_free(&set);
    return found;
}

/* The defaults depend on the model, so the options are read twice: first to find the model, then on
 * top of its defaults. */
static int read_run(int argc, char **argv, struct options *o, struct run_config *run) {
    struct run_config first;
    const struct words *w = o->part[0].target;
    run_config_default(&first);
    snprintf(first.model.name, sizeof first.model.name, "convnet");
    run_config_own(&first, w->own);
    *first.data.name = 0;
    CHECK(run_options_read(o, argc, argv, &first));
    if (o->help) return OK;
    run_config_default(run);
    run_config_own(run, w->own);
    run->mode = MODE_DDP;
    if (!strcmp(first.model.name, "convnet")) {
        snprintf(run->model.name, sizeof run->model.name, "convnet");
        run->update.optimizer = OPTIMIZER_ADADELTA;
        run->epochs = 1;
        run->batch_size = TEXT_BATCH;
        if (!*first.data.name && !*first.data.folder && has_mnist())
            snprintf(run->data.name, sizeof run->data.name, "mnist");
    }
    return run_options_parse(o, argc, argv, run);
}

static int read_counts(const struct words *w, struct scale_config *c) {
    int64_t counts[SCALE_MOST];
    CHECK(parse_int_list("--devices", w->devices ? w->devices : "1,2,4,8", 1, MAX_DEVICES, counts,
                         SCALE_MOST, &c->device_counts));
    for (int i = 0; i < c->device_counts; i++) {
        c->devices[i] = (int)counts[i];
        for (int k = 0; k < i; k++)
            if (counts[k] == counts[i])
                return fail(ERR_USAGE, "--devices: %d: listed twice: give it once", c->devices[i]);
    }
    return OK;
}

static int read_rates(const struct words *w, struct scale_config *c) {
    int is_text =
        !strcmp(c->run.model.name, "convnet") && c->run.update.optimizer == OPTIMIZER_ADADELTA;
    c->lr[0] = is_text ? TEXT_RATE : c->run.update.lr;
    c->rates = 1;
    if (w->lr) CHECK(parse_number_list("--lr", w->lr, 0, 3.4e38, c->lr, SCALE_MOST, &c->rates));
    for (int i = 0; i < c->rates; i++)
        for (int k = 0; k < i; k++)
            if (c->lr[k] == c->lr[i])
                return fail(ERR_USAGE, "--lr: %g: listed twice: give it once", c->lr[i]);
    return OK;
}

static int read_words(int argc, char **argv, struct options *o, struct scale_config *c) {
    struct words *w = o->part[0].target;
    CHECK(read_run(argc, argv, o, &c->run));
    if (o->help) return OK;
    if (c->run.mode == MODE_SINGLE)
        return fail(ERR_USAGE, "--mode: single has one device: give dp or ddp");
    CHECK(read_counts(w, c));
    CHECK(read_rates(w, c));
    return OK;
}

/* ---- output ---- */

static void show_row(void *context, const struct scale *s, int row) {
    (void)context;
    scale_table_row(s, row);
    warn_of_run(s->rows[row].title, &s->rows[row].run);
}

static void write_row(struct json_writer *w, const struct scale *s, int i) {
    const struct scale_row *row = &s->rows[i];
    double seconds = text_seconds(s, i);
    results_run(w, row->name, row->title, NULL, &row->run);
    json_number(w, "batch_per_device", (double)row->run.batch_size / row->run.devices);
    json_number(w, "speed_up", row->speed_up);
    json_string(w, "bits", scale_bits_word(row));
    json_number(w, "published_seconds", seconds > 0 ? seconds : NAN);
    json_close(w);
}

static void write_rows(const void *what, struct json_writer *w) {
    const struct scale *s = what;
    json_array(w, "runs");
    for (int i = 0; i < s->count; i++)
        write_row(w, s, i);
    json_close(w);
}

int command_scale(int argc, char **argv, const struct duet_model *own) {
    struct words words = {.own = own};
    struct options options = {.command = "scale", .part = {{scale_options, &words}}};
    struct scale_config config = {.rates = 0};
    struct scale scale = {.count = 0};
    struct run_files files = {.config = NULL};
    struct page none = {.count = 0};
    struct job_result result = {.exit_status = 0};
    int code;
    CHECK_GOTO(read_words(argc, argv, &options, &config), code, done);
    if (options.help) return help(&options, own);
    CHECK_GOTO(scale_plan(&scale, &config), code, done);
    CHECK_GOTO(run_files_open(&files, &config.run), code, done);
    code = scale_run(&scale, show_row, NULL, &result);
    if (code && code != ERR_CHECK) goto done;
    /* The table is complete even if bits differ; the difference is then the error to report. */
    struct failures all = {0};
    failures_add(&all, code);
    scale_table_notes(&scale);
    failures_add(&all, run_files_write(&files, "scale", write_rows, &scale, &none));
    code = failures_end(&all);
done:
    run_files_abandon(&files);
    scale_free(&scale);
    int status = report_error(code);
    return code && result.exit_status ? result.exit_status : status;
}
