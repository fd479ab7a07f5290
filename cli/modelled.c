/* duet estimate --gpu NAME[,NAME...]: what single, DP and DDP would cost on named GPUs, by the
 * modelled clock (clock/, train/modelled.h). Every table says that its times are modelled. */
#include "cli/modelled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/run_options.h"
#include "cli/ways.h"
#include "report/chrome/chrome_trace.h"
#include "report/text.h"
#include "train/compare.h"
#include "train/estimate.h"
#include "train/modelled.h"

enum { MOST_COUNTS = 8, MOST_LISTED = 16, MOST_TRACED = 8, UNCALIBRATED_ERROR = 30 };

struct words {
    const char *gpu, *machine, *link, *devices, *what_if, *trace; /* NULL: not given */
    enum clock_host host;
    int validate;
};

/* They go before those of runs that have the same names. */
static const struct option modelled_options[] = {
    OPTION_HEADING("times by the modelled clock (docs/clock.md)"),
    {"--gpu", "NAME[,NAME...]", "the GPUs, of those that duet devices --gpus lists", read_word,
     OPTION_AT(struct words, gpu), NO_LIMITS, ALWAYS},
    {"--machine", "NAME|FILE",
     "with --gpu: the machine that they are in (default pc-pcie4), or a file of your own",
     read_word, OPTION_AT(struct words, machine), NO_LIMITS, ALWAYS},
    {"--link", "NAME|GB/s,us", "with --gpu: GPUs around one switch, joined by this link", read_word,
     OPTION_AT(struct words, link), NO_LIMITS, ALWAYS},
    {"--host", "duet|pytorch", "with --gpu: who launches (default pytorch)", read_choice,
     OPTION_AT(struct words, host), NO_LIMITS, ALWAYS},
    {"--devices", "N1,N2,...", "with --gpu: the numbers of GPUs (default 1,2,4)", read_word,
     OPTION_AT(struct words, devices), NO_LIMITS, ALWAYS},
    {"--what-if", "KEY=X,...",
     "with --gpu: link, launch, compute and memory, each with a factor, as link=2x,launch=0; and "
     "gil=off",
     read_word, OPTION_AT(struct words, what_if), NO_LIMITS, ALWAYS},
    {"--trace", "FILE",
     "with --gpu: a timeline of DP and DDP on the last number of GPUs, which ui.perfetto.dev opens",
     read_word, OPTION_AT(struct words, trace), NO_LIMITS, ALWAYS},
    {"--validate", NULL, "published measurements beside what the clock says", read_on,
     OPTION_AT(struct words, validate), NO_LIMITS, ALWAYS},
    OPTION_END};

struct traced {
    struct modelled run;
    char title[96];
};

struct asked {
    struct hardware *hardware;
    const struct gpu_spec *gpu[MOST_LISTED];
    const struct machine *machine[MOST_LISTED];
    int gpus, machines, counts, devices[MOST_COUNTS];
    struct machine *linked; /* made of --link, owned */
    enum clock_host host;
    struct what_if what_if;
    struct run_config run;
    const char *path; /* of --trace; NULL: none */
    struct atomic_file trace;
    struct traced traced[MOST_TRACED];
    int traced_count;
};

int modelled_is_asked(int argc, char **argv) {
    static const char *const names[] = {"--gpu", "--machine", "--host", "--what-if", "--validate"};
    for (int i = 0; i < argc; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            size_t length = strlen(names[k]);
            if (!strncmp(argv[i], names[k], length) && (!argv[i][length] || argv[i][length] == '='))
                return 1;
        }
    return 0;
}

/* ---- hardware ---- */

/* The parts of a list; `each` reads one. */
static int read_list(struct asked *a, const char *text,
                     int (*each)(struct asked *a, const char *one)) {
    for (const char *at = text;; at++) {
        char one[HARDWARE_NAME];
        size_t length = strcspn(at, ",");
        if (length >= sizeof one)
            return fail(ERR_USAGE, "'%.60s': a name has at most %d letters", at, HARDWARE_NAME - 1);
        memcpy(one, at, length);
        one[length] = 0;
        CHECK(each(a, one));
        at += length;
        if (!*at) return OK;
    }
}

static int add_gpu(struct asked *a, const char *name) {
    if (a->gpus == MOST_LISTED) return fail(ERR_USAGE, "--gpu: at most %d at once", MOST_LISTED);
    return hardware_find_gpu(a->hardware, "--gpu", name, &a->gpu[a->gpus++]);
}

static int add_machine(struct asked *a, const char *name) {
    if (a->machines == MOST_LISTED)
        return fail(ERR_USAGE, "--machine: at most %d at once", MOST_LISTED);
    return hardware_find_machine(a->hardware, "--machine", name, &a->machine[a->machines++]);
}

/* A machine whose GPUs are joined by one kind of link, through a switch. */
static int add_link(struct asked *a, const char *text) {
    const struct link_spec *known = NULL;
    const struct machine *pc = NULL;
    double numbers[2];
    int count = 0;
    CHECK(hardware_find_machine(a->hardware, "--machine", "pc-pcie4", &pc));
    struct machine *m = a->linked = calloc(1, sizeof *m);
    if (!m) return fail(ERR_MEMORY, "--link: no host memory");
    *m = *pc;
    if (strchr("0123456789.", *text)) {
        CHECK(parse_number_list("--link", text, 1e-6, 1e6, numbers, 2, &count));
        if (count != 2)
            return fail(ERR_USAGE, "--link: '%.40s': give GB/s and microseconds, as 12,5", text);
    } else {
        CHECK(hardware_find_link(a->hardware, "--link", text, &known));
    }
    snprintf(m->name, sizeof m->name, "%.23s", text);
    m->gpus = MAX_DEVICES;
    m->net.links = 0;
    for (int g = 0; g < MAX_DEVICES; g++)
        m->net.link[m->net.links++] =
            (struct net_link){.a = g,
                              .b = NET_HOST + 1,
                              .gbs = known ? known->gbs : numbers[0],
                              .us = (known ? known->us : numbers[1]) / 2}; /* two to a peer */
    m->net.link[m->net.links++] = (struct net_link){.a = NET_HOST + 1, .b = NET_HOST, .gbs = 80};
    a->machine[a->machines++] = m;
    return OK;
}

/* A file of the user's own adds to the table; its last machine is taken. */
static int read_machines(struct asked *a, const struct words *w) {
    const char *text = w->machine ? w->machine : w->link ? "" : "pc-pcie4";
    int is_file = strchr(text, '/') || strchr(text, '.') || (*text && !access(text, R_OK));
    CHECK(hardware_open(&a->hardware, is_file ? text : NULL));
    if (w->machine && w->link)
        return fail(ERR_USAGE, "--link: --machine %s has its own links: give one of the two", text);
    if (w->link) return add_link(a, w->link);
    if (!is_file) return read_list(a, text, add_machine);
    for (int i = 0; hardware_machine(a->hardware, i); i++)
        a->machine[0] = hardware_machine(a->hardware, i);
    a->machines = 1;
    return OK;
}

static int read_what_if(struct asked *a, const char *text) {
    static const char *const known[] = {"link", "launch", "compute", "memory", "gil"};
    double *number[] = {&a->what_if.link, &a->what_if.launch, &a->what_if.compute,
                        &a->what_if.memory};
    for (const char *at = text;; at++) {
        char key[32] = "", value[32] = "";
        size_t length = strcspn(at, ","), k = 0;
        if (sscanf(at, "%31[^=,]=%31[^,]", key, value) < 2)
            return fail(ERR_USAGE, "--what-if: '%.40s': give KEY=X, as link=2x,launch=0,gil=off",
                        at);
        while (k < 5 && strcmp(key, known[k]))
            k++;
        if (k == 5) return unknown_value("--what-if", key, known, 5);
        if (k == 4) {
            if (strcmp(value, "off") && strcmp(value, "on"))
                return fail(ERR_USAGE, "--what-if: gil=%s: give on or off", value);
            a->what_if.no_gil = !strcmp(value, "off");
        } else {
            if (strlen(value) > 1 && value[strlen(value) - 1] == 'x') value[strlen(value) - 1] = 0;
            CHECK(parse_number("--what-if", value, k == 1 ? 0 : 0.001, 1000, number[k]));
        }
        at += length;
        if (!*at) return OK;
    }
}

static int read_asked(struct asked *a, const struct words *w) {
    int64_t counts[MOST_COUNTS];
    a->what_if = what_if_none();
    if (!w->gpu)
        return fail(ERR_USAGE, "--gpu: it is missing: give a name that duet devices --gpus lists");
    CHECK(read_machines(a, w));
    CHECK(read_list(a, w->gpu, add_gpu));
    CHECK(parse_int_list("--devices", w->devices ? w->devices : "1,2,4", 1, MAX_DEVICES, counts,
                         MOST_COUNTS, &a->counts));
    for (int i = 0; i < a->counts; i++)
        a->devices[i] = (int)counts[i];
    for (int i = 0; i < a->counts; i++)
        for (int k = 0; k < a->machines; k++)
            if (a->devices[i] > a->machine[k]->gpus)
                return fail(ERR_USAGE, "--devices: %d: machine %s has %d GPUs: give at most that",
                            a->devices[i], a->machine[k]->name, a->machine[k]->gpus);
    a->host = w->host;
    if (w->what_if) CHECK(read_what_if(a, w->what_if));
    if (*a->run.json || *a->run.csv || *a->run.report || *a->run.pictures)
        return fail(ERR_USAGE,
                    "--json, --csv, --report, --pictures: modelled times are printed, and "
                    "written by --trace alone: leave it out");
    if (a->run.model_options.params)
        return fail(ERR_USAGE, "--params: kernels are not known by numbers: give --model");
    CHECK(estimate_prepare(&a->run));
    a->path = w->trace;
    return w->trace ? atomic_open(&a->trace, w->trace) : OK;
}

/* ---- the table ---- */

static struct run_config config_of(const struct asked *a, int way, int devices) {
    struct run_config c = a->run;
    way_apply(way, &c);
    c.devices = devices;
    if (c.batch_per_device) c.batch_size = c.batch_per_device * devices;
    return c;
}

static double expected_error(const struct clock_config *clock) {
    const struct machine *m = clock->machine;
    return m->error && !strcmp(m->gpu, clock->gpu->name) ? m->error : UNCALIBRATED_ERROR;
}

static double part(int64_t ns, int64_t of) {
    return of ? 100.0 * (double)ns / (double)of : 0;
}

static void print_row(const struct modelled *m, const struct clock_config *clock, int way,
                      const struct clock_result *r, double *single_rate) {
    double ms = (double)r->step_ns * 1e-6, rate = m->record->batch_size / ms * 1e3;
    uint64_t most = 0;
    int64_t others = 0;
    char memory[32], speed[16] = "-", busy[16] = "-";
    for (int d = 0; d < m->record->devices; d++) {
        uint64_t peak = m->record->device[d].memory.total_peak;
        if (peak > most) most = peak;
        if (d) others += r->busy_ns[d];
    }
    if (way == WAY_SINGLE) *single_rate = rate;
    if (*single_rate > 0) snprintf(speed, sizeof speed, "%.2fx", rate / *single_rate);
    if (r->devices > 1)
        snprintf(busy, sizeof busy, "%.0f %%", part(others / (r->devices - 1), r->step_ns));
    printf("%3d %-16s%9.2f +-%2.0f %% %9.0f %8s %5.0f %% %6s %9s%s\n", m->record->devices,
           way == WAY_LOSS_IN_FORWARD ? "DP, loss in fwd" : way_name(way), ms,
           expected_error(clock), rate, speed, part(r->busy_ns[0], r->step_ns), busy,
           format_bytes(most, memory, sizeof memory),
           (double)most > clock->gpu->gib * 0x1p30 ? " too much" : "");
}

static void print_phases(const struct modelled *m, const struct clock_config *clock, int way,
                         const struct clock_result *r, int width) {
    struct text text = {.used = 0};
    text_add(&text, "%d %s, ms on GPU 0:", m->record->devices, way_name(way));
    for (int p = 1; p < PHASE_COUNT; p++) {
        struct modelled_bounds b = modelled_bounds(m, clock, (enum phase)p);
        if (r->phase_ns[0][p] < 1000) continue;
        text_add(&text, " %s %.2f", phase_name((enum phase)p), (double)r->phase_ns[0][p] * 1e-6);
        if (b.flops + b.memory + b.launches > 0)
            text_add(&text, " (%s),",
                     b.flops > b.memory && b.flops > b.launches ? "flops"
                     : b.memory > b.launches                    ? "memory"
                                                                : "launches");
        else
            text_add(&text, " (link),");
    }
    if (r->comm_ns[0])
        text_add(&text, " sums %.2f, of which backward does not hide %.2f,",
                 (double)r->comm_ns[0] * 1e-6, (double)r->comm_wait_ns[0] * 1e-6);
    text_add(&text, " idle %.2f of %.2f", (double)(r->step_ns - r->busy_ns[0]) * 1e-6,
             (double)r->step_ns * 1e-6);
    text_wrap(stdout, width, 2, 4, text.words);
}

/* Keeps a run for --trace, with its modelled spans. */
static void keep(struct asked *a, struct modelled *m, const struct clock_config *clock, int way,
                 struct span_log *spans) {
    struct traced *t = &a->traced[a->traced_count++];
    span_log_free(&m->record->kept);
    m->record->kept = *spans;
    t->run = *m;
    snprintf(t->title, sizeof t->title, "%s, modelled: %d x %s, %s", way_name(way),
             m->record->devices, clock->gpu->name, clock->machine->name);
    *m = (struct modelled){.record = NULL};
    *spans = (struct span_log){.on = 0};
}

static int model_way(struct asked *a, struct clock_config *clock, int way, int devices,
                     double *single_rate, int phases) {
    struct run_config c = config_of(a, way, devices);
    struct modelled m = {.record = NULL};
    struct span_log spans;
    struct clock_result *result = calloc(1, sizeof *result);
    int code = result ? run_config_check(&c) : fail(ERR_MEMORY, "estimate: no host memory");
    span_log_init(&spans, 1);
    if (!code) code = modelled_open(&m, &c);
    if (!code) code = modelled_time(&m, clock, result, &spans);
    if (!code && phases) print_phases(&m, clock, way, result, text_width(stdout));
    if (!code && !phases) print_row(&m, clock, way, result, single_rate);
    if (!code && phases && a->path && a->traced_count < MOST_TRACED)
        keep(a, &m, clock, way, &spans);
    span_log_free(&spans);
    modelled_close(&m);
    free(result);
    return code;
}

static int model_all(struct asked *a, struct clock_config *clock, int phases) {
    double single_rate = 0;
    for (int i = 0; i < a->counts; i++)
        for (int way = 0; way < WAYS; way++) {
            struct run_config c = config_of(a, way, a->devices[i]);
            if ((a->devices[i] == 1) != (way == WAY_SINGLE)) continue;
            if (compare_leaves_out(&c, c.mode)) continue;
            if (phases && (i + 1 < a->counts || way == WAY_LOSS_IN_FORWARD)) continue;
            CHECK(model_way(a, clock, way, a->devices[i], &single_rate, phases));
        }
    return OK;
}

static void print_head(const struct asked *a, const struct clock_config *clock, int width) {
    struct text text = {.used = 0};
    const struct run_config *c = &a->run;
    char each[48];
    snprintf(each, sizeof each, c->batch_per_device ? "%d samples a GPU" : "global batch %d",
             c->batch_per_device ? c->batch_per_device : c->batch_size);
    text_add(&text,
             "modelled: %s, %s: %s, %s, host %s: times of the modelled clock "
             "(docs/clock.md), measured on no GPU",
             clock->gpu->name, clock->machine->name, c->model, each,
             a->host == CLOCK_DUET ? "duet" : "pytorch");
    if (expected_error(clock) == UNCALIBRATED_ERROR)
        text_add(&text, "; not calibrated for this GPU on this machine");
    text_wrap(stdout, width, 0, 2, text.words);
    printf("%-20s%9s %6s %9s %8s %7s %6s %9s\n", "GPUs", "ms a step", "", "samples/s", "speed-up",
           "GPU 0", "others", "memory");
}

static int write_trace(struct asked *a) {
    struct trace_run runs[MOST_TRACED];
    for (int i = 0; i < a->traced_count; i++)
        runs[i] = (struct trace_run){a->traced[i].title, a->traced[i].run.record};
    return chrome_trace_write(&a->trace, a->path, runs, a->traced_count);
}

static int show(struct asked *a) {
    int width = text_width(stdout), first = 1;
    for (int m = 0; m < a->machines; m++)
        for (int g = 0; g < a->gpus; g++) {
            struct clock_config clock = {
                .gpu = a->gpu[g], .machine = a->machine[m], .host = a->host, .what_if = a->what_if};
            if (!first) printf("\n");
            first = 0;
            print_head(a, &clock, width);
            CHECK(model_all(a, &clock, 0));
            CHECK(model_all(a, &clock, 1));
        }
    return write_trace(a);
}

void modelled_help(void) {
    options_print(modelled_options);
}

int command_modelled(int argc, char **argv, const struct duet_model *own) {
    struct words w = {.host = CLOCK_PYTORCH};
    struct options options = {.command = "estimate", .part = {{modelled_options, &w}}};
    struct asked *a = calloc(1, sizeof *a);
    int code;
    if (!a) return report_error(fail(ERR_MEMORY, "estimate: no host memory"));
    run_config_default(&a->run);
    run_config_own(&a->run, own);
    a->run.dry = 1;
    CHECK_GOTO(run_options_parse(&options, argc, argv, &a->run), code, done);
    if (options.help) {
        command_usage(&options, own);
        modelled_help();
    } else if (w.validate) {
        code = modelled_validate();
    } else {
        CHECK_GOTO(read_asked(a, &w), code, done);
        code = show(a);
    }
done:
    atomic_abandon(&a->trace);
    for (int i = 0; i < a->traced_count; i++)
        modelled_close(&a->traced[i].run);
    hardware_free(a->hardware);
    free(a->linked);
    free(a);
    return report_error(code);
}
