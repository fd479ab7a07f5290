/* duet estimate --gpu NAME[,NAME...] predicts the cost of single, DP and DDP on named GPUs with the
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
#include "cli/estimate/what_if.h"
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

struct words {
    const char *devices, *measured; /* NULL: not given */
    int until;                      /* 0: forward, 1: backward; -1: not given */
    struct run_paths files;
    int validate;
};

/* They go before those of runs that have the same names. */
static const struct option modelled_options[] = {
    OPTION_HEADING("with --gpu"),
    {"--devices", "N1,N2,...", "the numbers of GPUs (default 1,2,4)", read_word,
     OPTION_AT(struct words, devices), NO_LIMITS, ALWAYS},
    {"--measured", "1:TIME",
     "the measured time of this batch on one such GPU, such as 1:118ms, to predict from; a second "
     "batch's time may follow: 1:118ms,1x64:230ms",
     read_word, OPTION_AT(struct words, measured), NO_LIMITS, ALWAYS},
    {"--until", "forward|backward",
     "where the step ends, for measurements that stop earlier (default: the optimizer)",
     read_choice, OPTION_AT(struct words, until), NO_LIMITS, ALWAYS},
    {"--trace", "FILE", "a timeline of DP and DDP on the last number of GPUs, for ui.perfetto.dev",
     read_text, OPTION_AT(struct words, files.trace), NO_LIMITS, ALWAYS},
    {"--report", "FILE",
     "an HTML page with the steps on the last number of GPUs: timeline, phases, memory, traffic",
     read_text, OPTION_AT(struct words, files.report), NO_LIMITS, ALWAYS},
    {"--pictures", "DIR",
     "the pictures of that page, as SVG and, where rsvg-convert is installed, PNG", read_text,
     OPTION_AT(struct words, files.pictures), NO_LIMITS, ALWAYS},
    OPTION_HEADING("without a run"),
    {"--validate", NULL,
     "compare the clock with published measurements; with --details each row has its command",
     read_on, OPTION_AT(struct words, validate), NO_LIMITS, ALWAYS},
    OPTION_END};

/* The files, and the steps that --trace, --report and --pictures show. None was run, so models and
 * batches may be as large as on real machines. */
struct shown_steps {
    struct run_config names; /* of the files */
    struct run_files files;
    struct modelled run[PAGE_RUNS];
    const char *title[PAGE_RUNS];
    int count;
};

struct asked {
    struct clock_choice choice;
    int counts, devices[MOST_COUNTS];
    struct run_config run; /* without the words of the clock */
    struct measured measured;
    enum phase last;    /* of the step; PHASE_NONE: it is a whole one */
    int unmeasured;     /* 1: the table has a row without a comparable measurement */
    int full;           /* 1: the table has a row that does not fit the GPU's memory */
    int compares;       /* 1: the table has a speed-up over one GPU */
    int has_time[WAYS]; /* of the last row of each way */
    struct shown_steps steps;
    struct json_writer writer; /* of --json, where that is open */
};

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

static int is_shown(const struct shown_steps *s) {
    return *s->names.files.trace || *s->names.files.report || *s->names.files.pictures;
}

static int open_files(struct asked *a, const struct run_paths *files) {
    int pairs = a->choice.gpus * a->choice.machines;
    a->steps.names.files = *files;
    snprintf(a->steps.names.files.json, sizeof files->json, "%s", a->run.files.json);
    if (is_shown(&a->steps) && (pairs > 1 || a->run.clock.nodes > 1))
        return fail(ERR_USAGE, "--trace, --report, --pictures: they show the steps of one GPU on "
                               "one machine: give one of each, and no --nodes");
    return run_files_open(&a->steps.files, &a->steps.names);
}

static struct run_config config_of(const struct asked *a, int way, int devices) {
    struct run_config c = a->run;
    way_apply(way, &c);
    c.devices = devices;
    if (way == WAY_SINGLE) c.dp.output_device = c.dp.sharded_reduce = 0; /* of DP alone */
    if (c.batch_per_device) c.batch_size = c.batch_per_device * devices;
    return c;
}

static int read_asked(struct asked *a, const struct words *w) {
    int64_t counts[MOST_COUNTS];
    CHECK(clock_choose(&a->choice, &a->run.clock));
    CHECK(measured_read(&a->measured, w->measured, a->choice.gpus * a->choice.machines > 1));
    if (w->measured && *a->run.clock.what_if)
        return fail(ERR_USAGE, "--measured and --what-if: a measured time is of the unchanged "
                               "machine: leave one of them out");
    a->last = w->until < 0 ? PHASE_NONE : w->until ? PHASE_ALLREDUCE : PHASE_GATHER;
    *a->run.clock.gpu = 0; /* estimates themselves have no times */
    CHECK(estimate_prepare(&a->run));
    CHECK(parse_int_list("--devices", w->devices ? w->devices : "1,2,4", 1, MAX_DEVICES, counts,
                         MOST_COUNTS, &a->counts));
    for (int i = 0; i < a->counts; i++) {
        a->devices[i] = (int)counts[i];
        const struct run_config c = config_of(a, WAY_DDP, a->devices[i]);
        CHECK(run_config_check(&c));
        for (int k = 0; k < a->choice.machines; k++)
            CHECK(retime_fits(&c, a->choice.machine[k]));
    }
    if (a->run.clock.nodes > 1 && a->run.modes >> MODE_FSDP & 1)
        return fail(ERR_USAGE, "--nodes: what FSDP holds on several machines is not known: leave "
                               "fsdp out of --modes");
    if (a->run.as_pytorch)
        return fail(ERR_USAGE,
                    "--as: no effect with --gpu, whose table shows what PyTorch would hold: "
                    "leave it out");
    CHECK(open_files(a, &w->files));
    if (!a->steps.files.json.file) return OK;
    CHECK(results_start(&a->writer, a->steps.files.json.file, "estimate"));
    json_array(&a->writer, "modelled");
    return OK;
}

/* ---- the table ---- */

/* Takes *m over, with the times of *clock. title: static storage. */
static int keep_step(struct shown_steps *s, struct modelled *m, struct clock_config *clock,
                     const char *title) {
    struct run_record *r = m->record;
    r->timed = 1;
    CHECK(retime_put(r, m, clock, 1));
    for (int d = 0; d < r->devices; d++)
        r->device[d].memory.capacity = (uint64_t)(clock->gpu->gib * 0x1p30);
    s->title[s->count] = title;
    s->run[s->count++] = *m;
    memset(m, 0, sizeof *m);
    return OK;
}

static int write_steps(struct shown_steps *s) {
    struct page page = {.count = s->count};
    for (int i = 0; i < s->count; i++)
        page.run[i] = (struct page_run){.title = s->title[i], .run = s->run[i].record};
    return run_files_write(&s->files, "estimate", NULL, NULL, &page);
}

static int model_way(struct asked *a, struct clock_config *clock, int way, int devices,
                     double *single_rate, int phases) {
    struct run_config c = config_of(a, way, devices);
    struct modelled m = {.record = NULL};
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
        if (a->steps.files.json.file) figures_write(&a->writer, &f, clock);
    }
    if (!code && phases && is_shown(&a->steps))
        code = keep_step(&a->steps, &m, clock, way_name(way));
    modelled_close(&m);
    return code;
}

static int model_all(struct asked *a, struct clock_config *clock, int phases) {
    double single_rate = 0;
    for (int i = 0; i < a->counts; i++)
        for (int way = 0; way < WAYS; way++) {
            struct run_config c = config_of(a, way, a->devices[i]);
            /* one GPU is single, or without it what --modes says */
            if (a->devices[i] > 1 ? way == WAY_SINGLE
                                  : way != WAY_SINGLE && a->run.modes >> MODE_SINGLE & 1)
                continue;
            if (compare_leaves_out(&c, c.mode)) continue;
            if (phases && (i + 1 < a->counts || way == WAY_LOSS_IN_FORWARD)) continue;
            CHECK(model_way(a, clock, way, a->devices[i], &single_rate, phases));
        }
    return OK;
}

static void add_names(struct text *text, const struct asked *a) {
    for (int g = 0; g < a->choice.gpus; g++)
        text_add(text, "%s%s (%.0f GiB)", g ? ", " : "", a->choice.gpu[g]->name,
                 a->choice.gpu[g]->gib);
    for (int m = 0; m < (a->choice.is_default ? a->choice.gpus : a->choice.machines); m++) {
        int first = 0; /* the GPUs of one PCIe have the same default machine */
        while (a->choice.machine[first] != a->choice.machine[m])
            first++;
        if (first == m) text_add(text, "%s%s", m ? ", " : "; ", a->choice.machine[m]->name);
    }
}

static void print_head(const struct asked *a, int width) {
    struct text text = {.used = 0};
    const struct run_config *c = &a->run;
    char each[48], share[32], changes[CLOCK_MARK] = "";
    const char *slow = NULL; /* a GPU without tensor cores */
    int all = 1;
    for (int m = 0; m < a->choice.machines; m++)
        for (int g = 0; g < a->choice.gpus; g++) {
            struct clock_config clock = clock_chosen(&a->choice, g, m);
            all &= trust_is_calibrated(&clock);
            if (clock.gpu->half == 0) slow = clock.gpu->name;
        }
    snprintf(each, sizeof each, c->batch_per_device ? "%d samples per GPU" : "global batch %d",
             c->batch_per_device ? c->batch_per_device : c->batch_size);
    clock_add_what_if(&a->choice.what_if, changes, sizeof changes);
    text_add(&text, "modelled: ");
    add_names(&text, a);
    text_add(&text, ": ");
    ways_add_model(&text, c);
    text_add(&text,
             ", %s, %s, host pytorch%s: times of the modelled clock (docs/clock.md); no GPU was "
             "measured",
             each, optimizer_name(c->update.optimizer), changes);
    if (c->clock.precision)
        text_add(&text, "; precision %s", clock_precision_name(c->clock.precision));
    if (c->clock.precision == CLOCK_AMP) text_add(&text, ", while runs of Duet compute in float32");
    if (c->clock.precision == CLOCK_AMP && slow)
        text_add(&text, "; %s has no tensor cores, so amp saves memory traffic only", slow);
    if (c->model.options.params)
        text_add(&text, "; transfers and the update only: the other kernels of a model given by "
                        "numbers are unknown");
    if (c->clock.nodes > 1) text_add(&text, "; several GPUs: on %d such machines", c->clock.nodes);
    if (a->last)
        text_add(&text, "; no %s",
                 a->last == PHASE_GATHER ? "loss, no backward, no optimizer" : "optimizer");
    for (int i = 0; i < a->counts; i++)
        if (!c->batch_per_device && c->batch_size % a->devices[i])
            text_add(&text, "; %d GPUs get %s each", a->devices[i],
                     share_words(c->batch_size, a->devices[i], 0, share));
    if (!all) text_add(&text, "; not calibrated for this GPU on this machine");
    text_wrap(stdout, width, 0, 2, text.words);
}

/* One table; the phases of a step below it, where it has one kind of hardware. */
static int show(struct asked *a) {
    int width = text_width(stdout), several = a->choice.machines * a->choice.gpus > 1;
    struct run_config last = config_of(a, WAY_DDP, a->devices[a->counts - 1]);
    struct run_config one = config_of(a, WAY_SINGLE, 1);
    struct dataset set;
    struct clock_config first = clock_chosen(&a->choice, 0, 0);
    first.last_phase = a->last;
    CHECK(run_open_set(&one, &set, 1)); /* no head stands before an error */
    dataset_free(&set);
    CHECK(measured_give(&a->measured, &one, &first));
    print_head(a, width);
    if (*a->measured.doubt) text_wrap(stdout, width, 0, 2, a->measured.doubt);
    if (!several) CHECK(what_if_show(&last, &first, width));
    figures_head(a->run.model.options.params > 0);
    for (int m = 0; m < a->choice.machines; m++)
        for (int g = 0; g < a->choice.gpus; g++) {
            struct clock_config clock = clock_chosen(&a->choice, g, m);
            clock.last_phase = a->last;
            clock.given = first.given, clock.given_error = first.given_error;
            if (several) {
                printf("%s, %s\n", clock.gpu->name, clock.machine->name);
                CHECK(what_if_show(&last, &clock, width));
            }
            CHECK(model_all(a, &clock, 0));
            if (!several) CHECK(model_all(a, &clock, 1));
        }
    if (a->unmeasured)
        text_wrap(stdout, width, 0, 2,
                  "50 %: no measurement of this kind of model, in this mode and precision, on such "
                  "a machine and host: expect a factor of 1.5");
    if (a->compares) printf("speed-up: over one GPU with a batch of %d\n", one.batch_size);
    if (!several && !a->run.model.options.params)
        text_wrap(
            stdout, width, 0, 2,
            "in brackets: what bounds the phase: arithmetic (flops), memory, launches or link");
    if (a->full)
        text_wrap(stdout, width, 0, 2, "!: more than the GPU's memory, so no step would run");
    text_wrap(stdout, width, 0, 2,
              "max batch: the largest global batch that fits into the GPU's memory");
    if (a->steps.files.json.file) {
        json_close(&a->writer);
        CHECK(results_end(&a->writer, &a->steps.files.json));
    }
    return write_steps(&a->steps);
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
    struct words w = {.until = -1};
    struct options options = {.command = "estimate", .part = {{modelled_options, &w}}};
    struct asked *a = calloc(1, sizeof *a);
    int code;
    if (!a) return report_error(fail(ERR_MEMORY, "estimate: out of host memory"));
    run_config_default(&a->run);
    run_config_own(&a->run, own);
    a->run.dry = 1;
    CHECK_GOTO(run_options_parse(&options, argc, argv, &a->run), code, done);
    if (options.help) {
        command_usage(&options, own);
        modelled_help();
    } else if (w.validate) {
        CHECK_GOTO(refuse_beside_validate(&options), code, done);
        code = modelled_validate(a->run.details);
    } else {
        CHECK_GOTO(read_asked(a, &w), code, done);
        code = show(a);
    }
done:
    run_files_abandon(&a->steps.files);
    for (int i = 0; i < a->steps.count; i++)
        modelled_close(&a->steps.run[i]);
    clock_choice_free(&a->choice);
    free(a);
    return report_error(code);
}
