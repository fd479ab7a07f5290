/* duet doctor: checks this machine and prints each finding as a row of a table. */
#include <stdio.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/results.h"
#include "doctor/doctor.h"

static int help(void) {
    say(stdout,
        "usage: duet doctor [flags]\n\n"
        "Checks what Duet needs of this machine: memory, streams, copies between devices, the\n"
        "memory of other processes, every operation and allreduce against its reference, and a\n"
        "training step of three models.\n\n"
        "  --device auto|cpu|cuda  auto: emulated devices, and GPUs where there are any\n"
        "                          (default); cpu: emulated devices alone; cuda: GPUs, and that\n"
        "                          there is none counts as off\n"
        "  --quick                 use smaller blocks and fewer shapes\n"
        "  --tf32                  let GPUs round the inputs of products to tf32, and judge them\n"
        "                          by the bound of tf32\n"
        "  --timeout SECONDS       the deadline of each step of a check (default 60)\n"
        "  --seed S                the seed of all data (default: a new one, which is printed)\n"
        "  --json FILE             write the findings as JSON; /dev/stdout is standard output\n\n"
        "exit status: 0 nothing is off, 2 wrong usage, 3 something is off\n");
    return 0;
}

struct words {
    struct doctor_config config;
    const char *json; /* path of the JSON file; NULL: not asked for */
    int help;
};

/* By enum doctor_target. */
static const char *const target_names[] = {"auto", "cpu", "cuda"};
enum { TARGETS = sizeof target_names / sizeof *target_names };

static int read_target(const char *text, struct doctor_config *config) {
    for (int i = 0; i < TARGETS; i++) {
        if (strcmp(target_names[i], text)) continue;
        config->target = (enum doctor_target)i;
        return OK;
    }
    return unknown_value("--device", text, target_names, TARGETS);
}

static int read_value(struct words *w, const char *flag, const char *text) {
    int64_t seed;
    if (!strcmp(flag, "--device")) return read_target(text, &w->config);
    if (!strcmp(flag, "--timeout")) return parse_number(flag, text, 0.01, 1e6, &w->config.timeout);
    if (!strcmp(flag, "--seed")) {
        CHECK(parse_int(flag, text, 0, INT64_MAX, &seed));
        w->config.seed = (uint64_t)seed;
        return OK;
    }
    if (!*text) return fail(ERR_USAGE, "%s: the value is empty: give a file", flag);
    w->json = text;
    return OK;
}

static int read_words(int argc, char **argv, struct words *w) {
    static const char *const valued[] = {"--device", "--timeout", "--seed", "--json"};
    static const char *const known[] = {"--device", "--timeout", "--seed",
                                        "--json",   "--quick",   "--tf32"};
    for (int i = 0; i < argc; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s", argv[i]);
        char *value = strchr(word, '=') ? strchr(argv[i], '=') + 1 : NULL;
        if (value) *strchr(word, '=') = 0;
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return w->help = 1, OK;
        int *on = !strcmp(word, "--quick")  ? &w->config.quick
                  : !strcmp(word, "--tf32") ? &w->config.tf32
                                            : NULL;
        if (on && value)
            return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", word,
                        value);
        if (on) {
            *on = 1;
            continue;
        }
        size_t k = 0;
        while (k < sizeof valued / sizeof *valued && strcmp(valued[k], word))
            k++;
        if (k == sizeof valued / sizeof *valued)
            return unknown_flag(argv[i], known, sizeof known / sizeof *known, "duet doctor --help");
        if (!value && i + 1 == argc)
            return fail(ERR_USAGE, "%s: no value: see duet doctor --help", word);
        CHECK(read_value(w, valued[k], value ? value : argv[++i]));
    }
    return OK;
}

static void show(void *context, const struct finding *finding) {
    (void)context;
    finding_print(stdout, finding);
    fflush(stdout);
}

static int write_json(struct atomic_file *file, const struct words *w,
                      const struct findings *findings, double seconds) {
    struct json_writer j;
    if (!w->json) return OK;
    CHECK(results_start(&j, file->file, "doctor"));
    json_string(&j, "device", target_names[w->config.target]);
    json_natural(&j, "seed", w->config.seed);
    json_boolean(&j, "quick", w->config.quick);
    json_boolean(&j, "tf32", w->config.tf32);
    json_number(&j, "seconds", seconds);
    json_integer(&j, "off", findings_count(findings, FINDING_OFF));
    findings_json(findings, &j, "findings");
    return results_end(&j, file);
}

static int examine(const struct words *w, struct findings *findings) {
    struct atomic_file json = {0};
    int64_t start = now_ns();
    if (w->json) CHECK(atomic_open(&json, w->json));
    findings_print_head(stdout);
    int code = doctor_run(&w->config, findings, show, NULL);
    double seconds = (double)(now_ns() - start) * 1e-9;
    if (!code || code == ERR_CHECK) {
        printf("\n%d ok, %d off, %d not here; seed %llu; %.1f s\n",
               findings_count(findings, FINDING_OK), findings_count(findings, FINDING_OFF),
               findings_count(findings, FINDING_NOT_HERE), (unsigned long long)w->config.seed,
               seconds);
        fflush(stdout); /* before the line on stderr */
        /* If the file cannot be written either, what is off is the error to report. */
        char text[1024];
        snprintf(text, sizeof text, "%s", error_message());
        int written = write_json(&json, w, findings, seconds);
        code = code ? fail(code, "%s", text) : written;
    }
    atomic_abandon(&json);
    return code;
}

int command_doctor(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words w = {.config = doctor_config_default()};
    int code = read_words(argc, argv, &w);
    if (code) return report_error(code);
    if (w.help) return help();
    struct findings *findings = findings_new();
    code = findings ? examine(&w, findings)
                    : fail(ERR_MEMORY, "doctor: no memory for its findings: free some");
    findings_free(findings);
    return report_error(code);
}
