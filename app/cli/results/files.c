/* All files of a command's runs: see files.h. */
#include "cli/results/files.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/results/png.h"
#include "report/chrome/chrome_trace.h"
#include "report/text.h"

int run_files_open(struct run_files *o, const struct run_config *config) {
    o->config = config;
    CHECK(results_open(&o->results, config));
    if (*config->files.trace) CHECK(atomic_open(&o->trace, config->files.trace));
    return report_open(&o->report, config);
}

static int write_trace(struct atomic_file *file, const struct page *page) {
    struct trace_run runs[PAGE_RUNS];
    char title[PAGE_RUNS][192]; /* with the mark of modelled times */
    int count = 0;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *run = page->run[i].run;
        if (!run) continue;
        snprintf(title[count], sizeof *title, "%s%s%s", page->run[i].title,
                 *run->modelled ? ", modelled: " : "", run->modelled);
        runs[count] = (struct trace_run){.title = title[count], .run = run};
        count++;
    }
    return chrome_trace_write(file, file->name, runs, count);
}

/* Names every file, so that nobody looks for one. Where one of them is standard output, nothing
 * stands behind it there. */
static void say_written(const struct run_files *o) {
    const char *const names[] = {o->config->files.json, o->config->files.trace,
                                 o->config->files.report};
    struct text text = {.used = 0};
    int count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strncmp(names[i], "/dev/", 5)) return;
        if (*names[i]) text_add(&text, "%s %s", count++ ? "," : "written:", names[i]);
    }
    if (o->report.pictures)
        text_add(&text, "%s %s/*.svg (%d picture%s)%s",
                 count++ ? "," : "written:", o->config->files.pictures, o->report.pictures,
                 o->report.pictures > 1 ? "s" : "",
                 o->report.no_png ? "; " PNG_MISSING : ", and as *.png");
    if (count) text_wrap(stdout, text_width(stdout), 0, 2, text.words);
}

int run_files_write(struct run_files *o, const char *command, results_body *body, const void *what,
                    struct page *page) {
    struct failures all = {0};
    failures_add(&all, results_write(&o->results, command, body, what));
    failures_add(&all, write_trace(&o->trace, page));
    failures_add(&all, report_write(&o->report, page, command));
    if (!all.code && !o->config->quiet) say_written(o);
    return failures_end(&all);
}

void run_files_abandon(struct run_files *o) {
    results_abandon(&o->results);
    atomic_abandon(&o->trace);
    report_abandon(&o->report);
}
