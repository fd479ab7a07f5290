/* duet doctor checks this machine and prints each finding as a row of a table. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/text.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "cli/results/files.h"
#include "doctor/doctor.h"

struct words {
    struct doctor_config config;
    const char *json; /* path of the JSON file; NULL: not asked for */
    int details;
    /* Consecutive passed checks of one subject share a line: "cpu: 96 checks". */
    char subject[CHECK_NAME_BYTES];
    int ok;
};

/* Indexed by enum doctor_target. */
static const char *const target_names[] = {"auto", "cpu", "cuda"};

#define AT(member) OPTION_AT(struct words, member)
static const struct option doctor_options[] = {
    {"--device", "auto|cpu|cuda",
     "auto: emulated devices, and GPUs if there are any (default); cpu: emulated devices only; "
     "cuda: GPUs only, at least one",
     read_choice, AT(config.target), NO_LIMITS, ALWAYS},
    {"--quick", NULL, "use smaller blocks and fewer shapes", read_on, AT(config.quick), NO_LIMITS,
     ALWAYS},
    {"--tf32", NULL,
     "let GPUs round the inputs of products to tf32, and judge them by the TF32 bound", read_on,
     AT(config.tf32), NO_LIMITS, ALWAYS},
    {"--timeout", "SECONDS", "the deadline of each step of a check (default 60)", read_number,
     AT(config.timeout), 0.01, 1e6, ALWAYS},
    {"--seed", "S", "the seed for all data (default: a new one, which is printed)", read_seed,
     AT(config.seed), NO_LIMITS, ALWAYS},
    {"--details", NULL, "print every finding with its bound and the reason for the bound", read_on,
     AT(details), NO_LIMITS, ALWAYS},
    {"--json", "FILE", "write the findings as JSON; /dev/stdout is standard output", read_word,
     AT(json), NO_LIMITS, ALWAYS},
    OPTION_END};

static int help(void) {
    say_text("usage: duet doctor [options]\n\n"
             "Checks what Duet needs from this machine: memory, streams, copies between devices, "
             "the memory of other processes, every operation and allreduce against its reference, "
             "and a training step of three models.\n\n");
    options_print(doctor_options);
    say_text("\nexit status: 0 all checks passed, 2 wrong usage, 3 a check failed\n");
    return 0;
}

/* "cpu" from "cpu: relu forward", "cpu(0)" from "cpu(0) -> cpu(1)"; "" from facts of the
 * machine. */
static void subject_of(const struct finding *finding, char subject[CHECK_NAME_BYTES]) {
    size_t length = strcspn(finding->check, ": ");
    int is_check = finding->check[length] == ':' || !strncmp(finding->check + length, " ->", 3);
    snprintf(subject, CHECK_NAME_BYTES, "%.*s", is_check ? (int)length : 0, finding->check);
}

static void show_subject(struct words *w) {
    if (w->ok) printf("%-36s  ok        %d check%s\n", w->subject, w->ok, w->ok > 1 ? "s" : "");
    w->ok = 0;
}

/* Facts about the machine, and failed checks, get their own rows at once. */
static void show(void *context, const struct finding *finding) {
    struct words *w = context;
    char subject[CHECK_NAME_BYTES];
    subject_of(finding, subject);
    if (strcmp(subject, w->subject)) show_subject(w);
    strcpy(w->subject, subject);
    if (w->details || !*subject || finding->state == FINDING_OFF)
        finding_print(stdout, finding, text_width(stdout), w->details);
    else if (finding->state == FINDING_OK)
        w->ok++;
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

static int examine(struct words *w, struct findings *findings) {
    struct atomic_file json = {0};
    int64_t start = now_ns();
    if (w->json) CHECK(atomic_open(&json, w->json));
    int code = doctor_run(&w->config, findings, show, w);
    double seconds = (double)(now_ns() - start) * 1e-9;
    if (!code || code == ERR_CHECK) {
        show_subject(w);
        printf("\n%d ok, %d off, %d not here; seed %llu; %.1f s\n",
               findings_count(findings, FINDING_OK), findings_count(findings, FINDING_OFF),
               findings_count(findings, FINDING_NOT_HERE), (unsigned long long)w->config.seed,
               seconds);
        fflush(stdout); /* so that it precedes the line on stderr */
        /* If the file cannot be written either, the failed check is the error to report. */
        struct failures first = {0};
        failures_add(&first, code);
        int written = write_json(&json, w, findings, seconds);
        code = code ? failures_end(&first) : written;
    }
    atomic_abandon(&json);
    return code;
}

int command_doctor(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words w = {.config = doctor_config_default()};
    struct options options = {.command = "doctor", .part = {{doctor_options, &w}}};
    int code = options_read(&options, argc, argv);
    if (code) return report_error(code);
    if (options.help) return help();
    struct findings *findings = findings_new();
    code = findings ? examine(&w, findings)
                    : fail(ERR_MEMORY, "doctor: out of memory for its findings: free some");
    findings_free(findings);
    return report_error(code);
}
