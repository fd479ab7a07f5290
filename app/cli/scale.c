/* duet scale: the same training on several numbers of devices, as one table.
 *
 * Without options it makes the table of the text that ConvNet comes from: MNIST, one epoch by
 * Adadelta, a global batch of 128 over 1, 2, 4 and 8 processes. With --batch-per-device and a list
 * of rates it does exercises 1 and 2 of d2l's chapter 13.5. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/parse.h"
#include "base/text/plain.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "data/dataset.h"
#include "report/scale_table.h"
#include "report/table.h"
#include "report/text.h"
#include "train/compare/scale.h"

/* The text's training, and the seconds that it gives for one epoch on its own machine. */
enum { TEXT_BATCH = 128, TEXT_COUNTS = 4 };
static const double TEXT_RATE = 0.5;
static const struct {
    int devices;
    double seconds;
} text_runs[TEXT_COUNTS] = {{1, 30}, {2, 20}, {4, 15}, {8, 18}};

struct words {
    const struct duet_model *own;
    const char *devices, *lr; /* NULL: not given */
    int batch_per_device;     /* 0: not given */
};

static const struct option scale_options[] = {
    {"--devices", "N1,N2,...", "the numbers of devices (default 1,2,4,8)", read_word,
     OPTION_AT(struct words, devices), NO_LIMITS, ALWAYS},
    {"--lr", "X1,X2,...", "the learning rates; each is tried on each number of devices", read_word,
     OPTION_AT(struct words, lr), NO_LIMITS, ALWAYS},
    {"--batch-per-device", "B",
     "the batch of each device, so that the global batch grows with the devices (default: the "
     "global batch, --batch-size, stays)",
     read_int, OPTION_AT(struct words, batch_per_device), 1, LARGEST_BATCH, ALWAYS},
    OPTION_END};

static int help(const struct options *options, const struct duet_model *own) {
    say_text("usage: duet scale [options]\n\n"
             "Trains the same model on several numbers of devices, one after another, and prints "
             "seconds, speed-up, loss and accuracy of each, and whether the bits are equal.\n\n");
    options_print(scale_options);
    say_text(
        "\nand the options of duet train. --mode is dp or ddp (default ddp). The default model is "
        "convnet, with --dataset mnist if it is installed, --optimizer adadelta --lr 0.5 "
        "--epochs 1 --batch-size 128; other models have the defaults of train.\n\n"
        "  duet scale\n"
        "      a text's table of 1, 2, 4 and 8 processes\n"
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

/* The defaults depend on the model, so the options are read twice: to learn the model, and then
 * over its defaults. */
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
                return fail(ERR_USAGE, "--devices: %d: it is in the list twice: give it once",
                            c->devices[i]);
    }
    c->batch_per_device = w->batch_per_device;
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
                return fail(ERR_USAGE, "--lr: %g: it is in the list twice: give it once", c->lr[i]);
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

/* The text's seconds are beside a run that does what the text's does. */
static double published(const struct scale *s, const struct run_record *r) {
    const struct run_config *c = &s->config.run;
    if (strcmp(r->model, "convnet") || r->mode != MODE_DDP || r->batch_size != TEXT_BATCH ||
        r->epochs != 1 || c->steps || c->update.optimizer != OPTIMIZER_ADADELTA ||
        r->train_samples != 60000)
        return 0;
    for (int i = 0; i < TEXT_COUNTS; i++)
        if (text_runs[i].devices == r->devices) return text_runs[i].seconds;
    return 0;
}

/* 1 if other rows do the same work as this one, and so are compared with it. */
static int is_compared_with(const struct scale *s, int row) {
    for (int i = row + 1; i < s->count; i++)
        if (s->rows[i].first == row) return 1;
    return 0;
}

static struct scale_line line_of(const struct scale *s, int row) {
    static const char *const bits[] = {"first", "equal", "DIFFER", "-"};
    const struct scale_row *r = &s->rows[row];
    int alone = r->bits == SCALE_BITS_FIRST && !is_compared_with(s, row);
    return (struct scale_line){&r->run, r->speed_up, alone ? "-" : bits[r->bits],
                               published(s, &r->run)};
}

static void show_row(void *context, const struct scale *s, int row) {
    const struct run_record *r = &s->rows[row].run;
    struct scale_line line = line_of(s, row);
    char title[48];
    int *with_text = context;
    if (row == 0) {
        *with_text = line.published > 0;
        printf("%s on %s, %s, ", PLAIN(r->model), PLAIN(r->dataset), r->optimizer);
        if (s->config.run.steps)
            printf("at most %d steps", s->config.run.steps);
        else
            printf("%d epoch%s", r->epochs, r->epochs > 1 ? "s" : "");
        printf(", %s, %s devices\n%s%s%s\n", mode_title(r->mode), r->kind,
               *r->modelled ? "times modelled: " : "", r->modelled, *r->modelled ? "\n" : "");
        scale_table_head(stdout, *with_text);
    }
    scale_table_line(stdout, &line, *with_text);
    fflush(stdout);
    snprintf(title, sizeof title, "%d device%s, lr %g", r->devices, r->devices == 1 ? "" : "s",
             r->lr);
    warn_of_run(title, r);
}

/* Why a row has no word about bits; NULL: it has one. */
static const char *why_no_bits(const struct scale *s, int row) {
    const struct scale_row *r = &s->rows[row];
    if (r->bits == SCALE_BITS_FIRST && !is_compared_with(s, row))
        return "no other run has the same batch and learning rate";
    if (r->bits != SCALE_BITS_NOT_PROMISED) return NULL;
    return r->verdict.not_finite_at >= 0 ? "losses that are not finite prove nothing"
                                         : r->verdict.why_not;
}

/* Each reason once, with the first row that it belongs to. */
static void show_why_no_bits(const struct scale *s) {
    for (int i = 0; i < s->count; i++) {
        const char *why = why_no_bits(s, i), *before = NULL;
        struct text text = {.used = 0};
        for (int k = 0; why && k < i; k++)
            if ((before = why_no_bits(s, k)) && !strcmp(before, why)) why = NULL;
        if (!why) continue;
        text_add(&text, "bits of %d device%s, lr %g: -: %s", s->rows[i].run.devices,
                 s->rows[i].run.devices > 1 ? "s" : "", s->rows[i].run.lr, why);
        text_wrap(stdout, text_width(stdout), 0, 2, text.words);
    }
}

/* What the table cannot say. */
static void show_notes(const struct scale *s, const struct scale_line *lines, int with_text) {
    int equal = 0, compared = 0;
    for (int i = 0; i < s->count; i++) {
        equal += s->rows[i].bits == SCALE_BITS_EQUAL;
        compared += s->rows[i].first != i;
    }
    printf("\n");
    if (equal)
        printf("%d run%s equal to the first with the same batch and rate to the bit, at\n"
               "every step on every device\n",
               equal, equal > 1 ? "s are" : " is");
    if (compared)
        show_why_no_bits(s);
    else
        printf("bits: no two runs have the same batch and learning rate\n");
    scale_sharing(stdout, lines, s->count, usable_cores());
    if (with_text)
        printf("text: seconds on the machine of the text that this model comes from\n"
               "(28 to 30 with 1 process)\n");
    scale_best_rates(stdout, lines, s->count);
    fflush(stdout);
}

static void write_row(struct json_writer *w, const struct scale_line *line) {
    const struct run_record *r = line->run;
    char name[SCALE_NAME], title[64];
    scale_run_name(name, r->devices, r->lr);
    snprintf(title, sizeof title, "%d device%s, lr %g", r->devices, r->devices > 1 ? "s" : "",
             r->lr);
    results_run(w, name, title, NULL, r);
    json_number(w, "batch_per_device", (double)r->batch_size / r->devices);
    json_number(w, "speed_up", line->speed_up);
    json_string(w, "bits", line->bits);
    json_number(w, "published_seconds", line->published ? line->published : NAN);
    json_close(w);
}

static int write_json(struct atomic_file *file, const struct scale *s,
                      const struct scale_line *lines) {
    struct json_writer w;
    if (!file->file) return OK;
    CHECK(results_start(&w, file->file, "scale"));
    json_array(&w, "runs");
    for (int i = 0; i < s->count; i++)
        write_row(&w, &lines[i]);
    json_close(&w);
    return results_end(&w, file);
}

static int finish(const struct scale *s, int with_text, struct atomic_file *json) {
    struct scale_line lines[SCALE_ROWS];
    for (int i = 0; i < s->count; i++)
        lines[i] = line_of(s, i);
    show_notes(s, lines, with_text);
    return write_json(json, s, lines);
}

int command_scale(int argc, char **argv, const struct duet_model *own) {
    struct words words = {.own = own};
    struct options options = {.command = "scale", .part = {{scale_options, &words}}};
    struct scale_config config = {.rates = 0};
    struct scale scale = {.count = 0};
    struct atomic_file json = {0};
    struct job_result result = {.exit_status = 0};
    int with_text = 0, code;
    CHECK_GOTO(read_words(argc, argv, &options, &config), code, done);
    if (options.help) return help(&options, own);
    CHECK_GOTO(scale_plan(&scale, &config), code, done);
    if (*config.run.files.json) CHECK_GOTO(atomic_open(&json, config.run.files.json), code, done);
    code = scale_run(&scale, show_row, &with_text, &result);
    if (code && code != ERR_CHECK) goto done;
    /* The table is whole also where bits differ, which stays the error to report. */
    struct failures all = {0};
    failures_add(&all, code);
    failures_add(&all, finish(&scale, with_text, &json));
    code = failures_end(&all);
done:
    atomic_abandon(&json);
    scale_free(&scale);
    int status = report_error(code);
    return code && result.exit_status ? result.exit_status : status;
}
