/* All files of a command's runs: see files.h. */
#include "cli/results/files.h"

#include <stdio.h>

#include "base/error.h"
#include "report/chrome/chrome_trace.h"

int run_files_open(struct run_files *o, const struct run_config *config) {
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

int run_files_write(struct run_files *o, const char *command, results_body *body, const void *what,
                    struct page *page) {
    struct failures all = {0};
    failures_add(&all, results_write(&o->results, command, body, what));
    failures_add(&all, write_trace(&o->trace, page));
    failures_add(&all, report_write(&o->report, page, command));
    return failures_end(&all);
}

void run_files_abandon(struct run_files *o) {
    results_abandon(&o->results);
    atomic_abandon(&o->trace);
    report_abandon(&o->report);
}
