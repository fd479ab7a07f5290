/* Measures how fast a training step is on this machine for a user.
 *
 *     step_perf [--device auto|cpu|cuda] [--models lenet,convnet] [--batches 256,64,1024]
 *               [--devices 2,4] [--epochs 5] [--data-dir DIR] [--cuda-math own|library] [--tf32]
 *               [--json FILE]
 *
 * Each line is its own job, started and timed as in `duet train`: the time includes the loader, the
 * step and reading the losses, but not evaluation. Every model runs in mode single at each batch
 * size, and with the first one in DP and DDP on each of --devices. The first epoch warms up.
 * us/step is an epoch's time divided by its steps: the median over the other epochs, with the
 * shortest and the longest. `first step` is counted from the launch: processes, devices, contexts,
 * data.
 *
 * The results are checked: losses are finite and fall. LeNet starts from weights after 300 steps,
 * at a rate that keeps the loss falling. (With its own, 0.01 x randn, the loss hardly changes for
 * most of an epoch.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/json.h"
#include "bench/quantile.h"
#include "bench/step_options.h"
#include "models/model.h"
#include "train/job.h"

enum { EPOCH_PICTURES = 60000 };
/* The last losses may be at most this much of the first: a loss that stood still gave 0.998 on
 * 2,000 images. */
static const double FALL = 0.985;
/* The targets on one H200; shown next to the measurements, on any GPU. */
static const double EPOCH_SECONDS_MOST = 0.05, FIRST_STEP_SECONDS_MOST = 3;

struct measured {
    struct run_config config;
    char kind[16];
    double us, least_us, most_us; /* time of a step */
    double epoch_s, samples_s, first_step_s, loss_first, loss_last;
    int steps, train_samples;
    int code;
    char error[256];
};

/* ---- one run ---- */

/* The first epoch, which warms up, does not count. */
static void take_times(struct measured *m, const struct run_record *r) {
    int timed = r->epoch_count - 1, per_epoch = r->steps / r->epoch_count;
    double *s = r->epoch_seconds + 1;
    sort_values(s, (size_t)timed);
    m->epoch_s = timed % 2 ? s[timed / 2] : (s[timed / 2 - 1] + s[timed / 2]) / 2;
    m->us = m->epoch_s / per_epoch * 1e6;
    m->least_us = s[0] / per_epoch * 1e6;
    m->most_us = s[timed - 1] / per_epoch * 1e6;
    m->samples_s = (double)r->samples / r->epoch_count / m->epoch_s;
    m->first_step_s = r->first_step_seconds;
    m->steps = r->steps;
    snprintf(m->kind, sizeof m->kind, "%s", r->kind);
    m->train_samples = r->train_samples;
}

/* Compares means over an eighth of the steps, since single losses go up and down. */
static int check_losses(struct measured *m, const struct run_record *r) {
    int some = r->steps / 8 ? r->steps / 8 : 1;
    for (int i = 0; i < r->steps; i++)
        if (!isfinite(r->losses[i]))
            return fail(ERR_CHECK, "loss of step %d is %g", i, r->losses[i]);
    for (int i = 0; i < some; i++) {
        m->loss_first += r->losses[i] / some;
        m->loss_last += r->losses[r->steps - some + i] / some;
    }
    return m->loss_last < FALL * m->loss_first
               ? OK
               : fail(ERR_CHECK, "loss does not fall: %.4f at first, %.4f at last", m->loss_first,
                      m->loss_last);
}

static int measure(struct measured *m) {
    struct run_record record = {0};
    struct job_result result;
    int code = OK;
    CHECK_GOTO(run_config_check(&m->config), code, done);
    CHECK_GOTO(job_run(&m->config, &record, &result), code, done);
    take_times(m, &record);
    CHECK_GOTO(check_losses(m, &record), code, done);
done:
    m->code = code;
    if (code) snprintf(m->error, sizeof m->error, "%s", error_message());
    record_free(&record);
    return code;
}

static void print_row(const struct measured *m) {
    char mode[32];
    int many = m->config.mode != MODE_SINGLE;
    snprintf(mode, sizeof mode, many ? "%s x %d" : "%s", mode_title(m->config.mode),
             m->config.devices);
    printf("%-8s %-8s %5d  ", m->config.model.name, mode, m->config.batch_size);
    if (!m->steps)
        printf(" failed: %s\n", m->error);
    else
        printf("%11.1f %10.1f %10.1f %10.4f %11.0f %12.2f  %s\n", m->us, m->least_us, m->most_us,
               m->epoch_s, m->samples_s, m->first_step_s, m->code ? m->error : "falls");
    fflush(stdout);
}

/* ---- targets ---- */

struct target {
    const char *what;
    double most, measured; /* seconds; measured < 0: not part of this run */
};

/* Only GPUs have targets: an emulated device has the arithmetic of a core. */
static void find_targets(const struct measured *m, int runs, struct target targets[2]) {
    targets[0] =
        (struct target){"LeNet, batch 256, one device: training steps of an epoch of 60,000",
                        EPOCH_SECONDS_MOST, -1};
    targets[1] = (struct target){"launch to the end of the first step of 4 DDP ranks",
                                 FIRST_STEP_SECONDS_MOST, -1};
    for (int i = 0; i < runs; i++) {
        const struct run_config *c = &m[i].config;
        /* targets are for the defaults */
        if (c->tf32 || c->cuda_math == DEVICE_MATH_LIBRARY) continue;
        if (m[i].code || strcmp(m[i].kind, "cuda") || strcmp(c->model.name, "lenet") ||
            c->batch_size != 256)
            continue;
        if (c->mode == MODE_SINGLE && m[i].train_samples == EPOCH_PICTURES)
            targets[0].measured = m[i].epoch_s;
        if (c->mode == MODE_DDP && c->devices == 4) targets[1].measured = m[i].first_step_s;
    }
}

/* ---- the whole ---- */

static void write_run(struct json_writer *w, const struct measured *m) {
    json_object(w, NULL);
    json_string(w, "model", m->config.model.name);
    json_string(w, "mode", mode_name(m->config.mode));
    json_integer(w, "devices", run_devices(&m->config));
    json_integer(w, "batch_size", m->config.batch_size);
    json_string(w, "device_kind", m->kind);
    json_boolean(w, "tf32", m->config.tf32);
    json_string(w, "cuda_math", m->config.cuda_math == DEVICE_MATH_LIBRARY ? "library" : "own");
    json_number(w, "us_per_step", m->us);
    json_number(w, "us_per_step_least", m->least_us);
    json_number(w, "us_per_step_most", m->most_us);
    json_number(w, "epoch_seconds", m->epoch_s);
    json_number(w, "samples_per_second", m->samples_s);
    json_number(w, "first_step_seconds", m->first_step_s);
    json_integer(w, "train_samples", m->train_samples);
    json_integer(w, "steps", m->steps);
    json_number(w, "loss_first", m->loss_first);
    json_number(w, "loss_last", m->loss_last);
    if (m->code)
        json_string(w, "error", m->error);
    else
        json_null(w, "error");
    json_close(w);
}

static int write_json(const char *name, const struct measured *m, int runs) {
    struct atomic_file file = {0};
    struct json_writer w;
    struct target targets[2];
    CHECK(atomic_open(&file, name));
    json_start(&w, file.file);
    json_object(&w, NULL);
    json_array(&w, "runs");
    for (int i = 0; i < runs; i++)
        write_run(&w, &m[i]);
    json_close(&w);
    json_array(&w, "targets");
    find_targets(m, runs, targets);
    for (int t = 0; t < 2; t++) {
        if (targets[t].measured < 0) continue;
        json_object(&w, NULL);
        json_string(&w, "what", targets[t].what);
        json_number(&w, "most_seconds", targets[t].most);
        json_number(&w, "seconds", targets[t].measured);
        json_boolean(&w, "reached", targets[t].measured <= targets[t].most);
        json_close(&w);
    }
    json_close(&w);
    json_close(&w);
    int code = json_finish(&w, name);
    if (!code) code = atomic_commit(&file);
    atomic_abandon(&file);
    return code;
}

/* If this program is cut off, all measurements until then are printed. */
struct report {
    const char *json; /* the file, "": none */
    const struct measured *all;
    int told[2]; /* 1: the target was printed */
    int code;    /* the first failure to write */
};

/* Prints a target the moment it is known, and writes the JSON anew. `last` was measured last. */
static void tell(struct report *r, const struct measured *last) {
    struct target targets[2];
    int runs = (int)(last - r->all) + 1;
    find_targets(r->all, runs, targets);
    for (int t = 0; t < 2; t++) {
        if (targets[t].measured < 0 || r->told[t]) continue;
        printf("target: %s | at most %g s | %.4f s | %s\n", targets[t].what, targets[t].most,
               targets[t].measured,
               targets[t].measured <= targets[t].most ? "reached" : "not reached");
        fflush(stdout);
        r->told[t] = 1;
    }
    if (*r->json) CHECK_KEEP(write_json(r->json, r->all, runs), r->code);
}

/* Measures one line of the table. */
static void measure_one(struct measured *m, const struct run_config *config,
                        struct report *report) {
    *m = (struct measured){.config = *config};
    measure(m);
    print_row(m);
    tell(report, m);
}

/* Mode single at every batch; then DP and DDP on each number of devices, at the first batch. */
static int measure_model(const struct options *o, const char *model, struct measured *m,
                         struct report *report) {
    int runs = 0;
    struct run_config config = o->base;
    snprintf(config.model.name, sizeof config.model.name, "%s", model);
    /* LeNet's own initial weights let the signal fade; the other models' do not. */
    if (!strcmp(model, "lenet"))
        snprintf(config.model.init_from, sizeof config.model.init_from,
                 "tests/golden/lenet_300.safetensors");
    for (int b = 0; b < o->batch_count; b++) {
        config.batch_size = (int)o->batches[b];
        measure_one(m + runs++, &config, report);
    }
    config.batch_size = (int)o->batches[0];
    for (int d = 0; d < o->device_count && o->devices[d]; d++)
        for (config.mode = MODE_DP; config.mode <= MODE_DDP; config.mode++) {
            config.devices = (int)o->devices[d];
            measure_one(m + runs++, &config, report);
        }
    return runs;
}

static int run(int argc, char **argv) {
    struct options o;
    static const int MOST = LIST * (LIST + 2 * LIST);
    struct measured *m = NULL;
    struct report report = {.json = o.json};
    int code = OK, runs = 0;
    CHECK(parse_options(argc, argv, &o));
    m = calloc((size_t)MOST, sizeof *m);
    report.all = m;
    if (!m) return fail(ERR_MEMORY, "out of host memory");
    printf(
        "# %d epochs, the first warms up; time of a step: median of the others, least, most%s%s\n",
        o.base.epochs, o.base.cuda_math == DEVICE_MATH_LIBRARY ? "; linear layers by cuBLAS" : "",
        o.base.tf32 ? "; tf32" : "");
    printf("# model  mode     batch     us/step      least       most    epoch s   "
           "samples/s first step s  loss\n");
    for (int i = 0; i < o.model_count; i++)
        runs += measure_model(&o, o.models[i], m + runs, &report);
    code = report.code;
    for (int i = 0; i < runs && !code; i++)
        if (m[i].code)
            code = fail(m[i].code, "%s, %s: %s", m[i].config.model.name,
                        mode_title(m[i].config.mode), m[i].error);
    free(m);
    return code;
}

int main(int argc, char **argv) {
    /* this process is a rank of a run */
    if (argc > 1 && !strcmp(argv[1], "job")) return job_main(argc - 2, argv + 2, NULL);
    int code = run(argc, argv);
    if (code) fprintf(stderr, "step_perf: %s\n", error_message());
    return error_exit_status(code);
}
