/* duet estimate --gpu NAME predicts the cost of single, DP and DDP on GPUs of this name with the
 * modelled clock (clock/, train/estimate/modelled.h). Every table says that its times are
 * modelled. */
#include "cli/estimate/modelled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "clock/trust.h"
#include "cli/commands.h"
#include "cli/estimate/figures.h"
#include "cli/estimate/measured.h"
#include "cli/estimate/ways.h"
#include "cli/options/help.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "report/text.h"
#include "train/compare/compare.h"
#include "train/estimate/estimate.h"
#include "train/estimate/modelled.h"
#include "train/estimate/retime.h"
#include "train/shared_data.h"

enum { MOST_COUNTS = 8 };

/* What the words ask for, and what is shown. */
struct asked {
    const char *device_words, *measured_words; /* NULL: not given */
    int until;                                 /* 0: forward, 1: backward; -1: not given */
    int validate;
    struct run_config run; /* without the words of the clock */
    struct hardware *hardware;
    struct clock_config clock;
    int counts, devices[MOST_COUNTS];
    double measured_ms;
    int unmeasured;     /* 1: the table has a row without a comparable measurement */
    int full;           /* 1: the table has a row that does not fit the GPU's memory */
    int compares;       /* 1: the table has a speed-up over one GPU */
    int has_time[WAYS]; /* of the last row of each way */
    struct run_files files;
    struct json_writer writer; /* of --json, where that is open */
    /* The steps that --trace, --report and --pictures show. None was run, so models and batches may
     * be as large as on real machines. */
    struct modelled step[PAGE_RUNS];
    const char *title[PAGE_RUNS];
    int steps;
};
#define AT(member) OPTION_AT(struct asked, member)

/* These options come before options of runs with the same names. */
static const struct option modelled_options[] = {
    OPTION_HEADING("with --gpu"),
    {"--devices", "N1,N2,...", "the numbers of GPUs (default 1,2,4)", read_word, AT(device_words),
     NO_LIMITS, ALWAYS},
    {"--measured", "1:TIME",
     "the measured time of this batch on one such GPU, such as 1:118ms, to predict from", read_word,
     AT(measured_words), NO_LIMITS, ALWAYS},
    {"--until", "forward|backward",
     "where the step ends, for measurements that stop earlier (default: the optimizer)",
     read_choice, AT(until), NO_LIMITS, ALWAYS},
    {"--trace", "FILE", "a timeline of DP and DDP on the last number of GPUs, for ui.perfetto.dev",
     read_text, AT(run.files.trace), NO_LIMITS, ALWAYS},
    {"--report", "FILE",
     "an HTML page with the steps on the last number of GPUs: timeline, phases, memory, traffic",
     read_text, AT(run.files.report), NO_LIMITS, ALWAYS},
    {"--pictures", "DIR",
     "the pictures of that page, as SVG and, where rsvg-convert is installed, PNG", read_text,
     AT(run.files.pictures), NO_LIMITS, ALWAYS},
    OPTION_HEADING("without a run"),
    {"--validate", NULL,
     "compare the clock with published measurements; with --details each row has its command",
     read_on, AT(validate), NO_LIMITS, ALWAYS},
    OPTION_END};

int modelled_is_asked(int argc, char **argv) {
    static const char *const names[] = {"--gpu", "--validate", "--measured", "--until"};
    for (int i = 0; i < argc; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            size_t length = strlen(names[k]);
            if (!strncmp(argv[i], names[k], length) && (!argv[i][length] || argv[i][length] == '='))
                return 1;
        }
    return 0;
}

static struct run_config config_of(const struct asked *a, int way, int devices) {
    struct run_config c = a->run;
    way_apply(way, &c);
    c.devices = devices;
    if (way == WAY_SINGLE) c.dp.output_device = c.dp.sharded_reduce = 0; /* options of DP only */
    if (c.batch_per_device) c.batch_size = c.batch_per_device * devices;
    return c;
}

static int read_asked(struct asked *a) {
    int64_t counts[MOST_COUNTS];
    CHECK(clock_choose(&a->run.clock, &a->hardware, &a->clock));
    CHECK(measured_read(a->measured_words, &a->measured_ms));
    if (a->measured_words && *a->run.clock.what_if)
        return fail(ERR_USAGE, "--measured and --what-if: the time was measured on the unchanged "
                               "machine: leave one of them out");
    a->clock.last_phase = a->until < 0 ? PHASE_NONE : a->until ? PHASE_ALLREDUCE : PHASE_GATHER;
    *a->run.clock.gpu = 0; /* estimates themselves have no times */
    CHECK(estimate_prepare(&a->run));
    CHECK(parse_int_list("--devices", a->device_words ? a->device_words : "1,2,4", 1, MAX_DEVICES,
                         counts, MOST_COUNTS, &a->counts));
    for (int i = 0; i < a->counts; i++) {
        a->devices[i] = (int)counts[i];
        const struct run_config c = config_of(a, WAY_DDP, a->devices[i]);
        CHECK(run_config_check(&c));
        CHECK(retime_fits(&c, a->clock.machine));
    }
    if (a->run.clock.nodes > 1 && a->run.modes >> MODE_FSDP & 1)
        return fail(ERR_USAGE, "--nodes: what FSDP holds on several machines is not known: leave "
                               "fsdp out of --modes");
    if (a->run.as_pytorch)
        return fail(ERR_USAGE,
                    "--as: no effect with --gpu, whose table shows what PyTorch would hold: "
                    "leave it out");
    if (run_keeps_spans(&a->run) && a->run.clock.nodes > 1)
        return fail(ERR_USAGE, "--nodes: --trace, --report and --pictures show the steps of one "
                               "machine: leave it out");
    CHECK(run_files_open(&a->files, &a->run));
    if (!a->files.json.file) return OK;
    CHECK(results_start(&a->writer, a->files.json.file, "estimate"));
    json_array(&a->writer, "modelled");
    return OK;
}

/* ---- the table ---- */

/* Takes *m over, with the clock's times. title: static storage. */
static int keep_step(struct asked *a, struct modelled *m, const char *title) {
    struct run_record *r = m->record;
    r->timed = 1;
    CHECK(retime_put(r, m, &a->clock, 1));
    for (int d = 0; d < r->devices; d++)
        r->device[d].memory.capacity = (uint64_t)(figures_gib(&a->run, &a->clock) * 0x1p30);
    a->title[a->steps] = title;
    a->step[a->steps++] = *m;
    memset(m, 0, sizeof *m);
    return OK;
}

static int write_steps(struct asked *a) {
    struct page page = {.count = a->steps};
    for (int i = 0; i < a->steps; i++)
        page.run[i] = (struct page_run){.title = a->title[i], .run = a->step[i].record};
    return run_files_write(&a->files, "estimate", NULL, NULL, &page);
}

static int model_way(struct asked *a, int way, int devices, double *single_rate, int phases) {
    struct run_config c = config_of(a, way, devices);
    struct modelled m = {.record = NULL};
    struct clock_config *clock = &a->clock;
    struct clock_result result;
    retime_one_node(&c, clock);
    int code = run_config_check(&c);
    if (!code) code = modelled_open(&m, &c);
    if (!code) code = modelled_time(&m, clock, &result, NULL);
    if (!code && phases && a->has_time[way]) figures_show_phases(&c, &m, clock, way, &result);
    if (!code && !phases) {
        struct figures f = figures_of(&c, &m, clock, way, &result, single_rate);
        figures_print(&f);
        a->full |= f.is_full | f.others_are_full | f.pytorch_is_full;
        a->compares |= f.speed_up > 0 && devices > 1;
        a->has_time[way] = f.ms > 0;
        a->unmeasured |= f.is_unmeasured;
        if (a->files.json.file) figures_write(&a->writer, &f, clock);
    }
    if (!code && phases && run_keeps_spans(&a->run)) code = keep_step(a, &m, way_name(way));
    modelled_close(&m);
    return code;
}

static int model_all(struct asked *a, int phases) {
    double single_rate = 0;
    for (int i = 0; i < a->counts; i++)
        for (int way = 0; way < WAYS; way++) {
            struct run_config c = config_of(a, way, a->devices[i]);
            /* on one GPU show single, or what --modes names without it */
            if (a->devices[i] > 1 ? way == WAY_SINGLE
                                  : way != WAY_SINGLE && a->run.modes >> MODE_SINGLE & 1)
                continue;
            if (compare_leaves_out(&c, c.mode)) continue;
            if (phases && (i + 1 < a->counts || way == WAY_LOSS_IN_FORWARD)) continue;
            CHECK(model_way(a, way, a->devices[i], &single_rate, phases));
        }
    return OK;
}

static void print_head(const struct asked *a, int width) {
    struct text text = {""};
    const struct run_config *c = &a->run;
    const struct gpu_spec *gpu = a->clock.gpu;
    char each[48], share[32], changes[CLOCK_MARK] = "";
    snprintf(each, sizeof each, c->batch_per_device ? "%d samples per GPU" : "global batch %d",
             c->batch_per_device ? c->batch_per_device : c->batch_size);
    clock_add_what_if(&a->clock.what_if, changes, sizeof changes);
    text_add(&text, "modelled: %s (%.4g GiB); %s: ", gpu->name, figures_gib(c, &a->clock),
             a->clock.machine->name);
    ways_add_model(&text, c);
    text_add(&text,
             ", %s, %s, host pytorch%s: times of the modelled clock (docs/clock.md); no GPU was "
             "measured",
             each, optimizer_name(c->update.optimizer), changes);
    if (c->clock.precision)
        text_add(&text, "; precision %s", clock_precision_name(c->clock.precision));
    if (c->clock.precision == CLOCK_AMP) text_add(&text, ", while runs of Duet compute in float32");
    if (c->clock.precision == CLOCK_AMP && gpu->half == 0)
        text_add(&text, "; %s has no tensor cores, so amp saves memory traffic only", gpu->name);
    if (c->model.options.params)
        text_add(&text, "; transfers and the update only: the other kernels of a model given by "
                        "numbers are unknown");
    if (c->clock.nodes > 1) text_add(&text, "; several GPUs: on %d such machines", c->clock.nodes);
    if (a->clock.last_phase)
        text_add(&text, "; no %s",
                 a->clock.last_phase == PHASE_GATHER ? "loss, no backward, no optimizer"
                                                     : "optimizer");
    for (int i = 0; i < a->counts; i++)
        if (!c->batch_per_device && c->batch_size % a->devices[i])
            text_add(&text, "; %d GPUs get %s each", a->devices[i],
                     share_words(c->batch_size, a->devices[i], 0, share));
    if (!trust_is_calibrated(&a->clock))
        text_add(&text, "; not calibrated for this GPU on this machine");
    text_wrap(stdout, width, 0, 2, text.words);
}

/* One table, and the phases of a step below it. */
static int show(struct asked *a) {
    int width = text_width(stdout);
    struct run_config one = config_of(a, WAY_SINGLE, 1);
    char doubt[MEASURED_DOUBT];
    struct dataset set;
    CHECK(run_open_set(&one, &set, 1)); /* no head stands before an error */
    dataset_free(&set);
    CHECK(measured_give(a->measured_ms, &one, &a->clock, doubt));
    print_head(a, width);
    if (*doubt) text_wrap(stdout, width, 0, 2, doubt);
    figures_head(a->run.model.options.params > 0);
    CHECK(model_all(a, 0));
    CHECK(model_all(a, 1));
    if (a->unmeasured)
        text_wrap(stdout, width, 0, 2,
                  "50 %: no measurement of this kind of model, in this mode and precision, on such "
                  "a machine and host: expect a factor of 1.5");
    if (a->compares) printf("speed-up: over one GPU with a batch of %d\n", one.batch_size);
    if (!a->run.model.options.params)
        text_wrap(
            stdout, width, 0, 2,
            "in brackets: what bounds the phase: arithmetic (flops), memory, launches or link");
    if (a->full)
        text_wrap(stdout, width, 0, 2, "!: more than the GPU's memory, so no step would run");
    text_wrap(stdout, width, 0, 2,
              "max batch: the largest global batch that fits into the GPU's memory");
    if (a->files.json.file) {
        json_close(&a->writer);
        CHECK(results_end(&a->writer, &a->files.json));
    }
    return write_steps(a);
}

void modelled_help(void) {
    options_print(modelled_options);
}

static int refuse_beside_validate(const struct options *o) {
    for (int part = 0; part < 2; part++)
        for (int i = 0; o->part[part].rows[i].help; i++) {
            const char *name = o->part[part].rows[i].name;
            if (o->given[part][i] && strcmp(name, "--validate") && strcmp(name, "--details"))
                return fail(ERR_USAGE,
                            "--validate: compares all published rows, each on its own GPU: "
                            "leave %s out",
                            name);
        }
    return OK;
}

int command_modelled(int argc, char **argv, const struct duet_model *own) {
    struct asked *a = calloc(1, sizeof *a);
    struct options options = {.command = "estimate", .part = {{modelled_options, a}}};
    int code;
    if (!a) return report_error(fail(ERR_MEMORY, "estimate: out of host memory"));
    a->until = -1;
    run_config_default(&a->run);
    run_config_own(&a->run, own);
    a->run.dry = 1;
    CHECK_GOTO(run_options_parse(&options, argc, argv, &a->run), code, done);
    if (options.help) {
        command_usage(&options, own);
        modelled_help();
    } else if (a->validate) {
        CHECK_GOTO(refuse_beside_validate(&options), code, done);
        code = modelled_validate(a->run.details);
    } else {
        CHECK_GOTO(read_asked(a), code, done);
        code = show(a);
    }
done:
    run_files_abandon(&a->files);
    for (int i = 0; i < a->steps; i++)
        modelled_close(&a->step[i]);
    hardware_free(a->hardware);
    free(a);
    return report_error(code);
}
