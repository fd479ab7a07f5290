/* Writes all files of a command's runs: see files.h. */
#include "cli/results/files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "doctor/cuda/gpu.h"
#include "report/chrome/chrome_trace.h"
#include "report/text.h"

/* ---- JSON ---- */

static int find_origin(struct origin *origin) {
    char cuda[160];
    gpu_build(cuda, sizeof cuda);
    return origin_find(origin, cuda);
}

int results_start(struct json_writer *w, FILE *file, const char *command) {
    struct origin origin;
    int code = find_origin(&origin);
    if (!code) {
        json_start(w, file);
        json_object(w, NULL);
        origin_write(&origin, w, command);
    }
    origin_free(&origin);
    return code;
}

void results_run(struct json_writer *w, const char *name, const char *title,
                 const char *does_not_fit, const struct run_record *run) {
    int is_full = does_not_fit && *does_not_fit;
    json_object(w, NULL);
    json_string(w, "name", name);
    json_string(w, "title", title);
    if (is_full)
        json_string(w, "does_not_fit", does_not_fit);
    else
        json_null(w, "does_not_fit");
    if (!is_full) record_write_fields(run, w);
}

int results_end(struct json_writer *w, struct atomic_file *file) {
    json_close(w);
    CHECK(json_finish(w, file->name));
    return atomic_commit(file);
}

static int write_json(struct atomic_file *file, const char *command, results_body *body,
                      const void *what) {
    struct json_writer w;
    if (!file->file) return OK;
    CHECK(results_start(&w, file->file, command));
    body(what, &w);
    return results_end(&w, file);
}

/* ---- the page and the trace ---- */

static int write_page(struct run_files *o, const struct page *page) {
    if (!o->page.file) return OK;
    CHECK(page_write(o->page.file, page));
    return atomic_commit(&o->page);
}

static int write_report(struct run_files *o, struct page *page, const char *command) {
    struct failures all = {0};
    struct origin origin;
    if (!o->page.file && !o->pictures.folder) return OK;
    int code = find_origin(&origin);
    page->command = command;
    page->origin = &origin;
    if (!code) failures_add(&all, write_page(o, page));
    if (!code && o->pictures.folder) failures_add(&all, page_pictures(page, &o->pictures));
    origin_free(&origin);
    page->origin = NULL;
    return code ? code : failures_end(&all);
}

static int write_trace(struct atomic_file *file, const struct page *page) {
    struct trace_run runs[PAGE_RUNS];
    char title[PAGE_RUNS][192]; /* titles, with a mark on modelled times */
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

/* ---- all of them ---- */

int run_files_open(struct run_files *o, const struct run_config *config) {
    o->config = config;
    if (config->spread > 1) return OK; /* only rank 0 writes files */
    if (*config->files.json) CHECK(atomic_open(&o->json, config->files.json));
    if (*config->files.trace) CHECK(atomic_open(&o->trace, config->files.trace));
    if (*config->files.report) CHECK(atomic_open(&o->page, config->files.report));
    if (!*config->files.pictures) return OK;
    o->pictures.folder = config->files.pictures;
    return pictures_try(&o->pictures);
}

/* Names every file, so that nobody has to look for one. If one of them is standard output, nothing
 * is printed after it. */
static void say_written(const struct run_files *o) {
    const char *const names[] = {o->config->files.json, o->config->files.trace,
                                 o->config->files.report};
    struct text text = {""};
    int count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strncmp(names[i], "/dev/", 5)) return;
        if (*names[i]) text_add(&text, "%s %s", count++ ? "," : "written:", names[i]);
    }
    if (o->pictures.count)
        text_add(&text, "%s %s/*.svg (%d picture%s)%s",
                 count++ ? "," : "written:", o->pictures.folder, o->pictures.count,
                 o->pictures.count > 1 ? "s" : "",
                 o->pictures.no_png ? "; " PNG_MISSING : ", and as *.png");
    if (count) text_wrap(stdout, text_width(stdout), 0, 2, text.words);
}

int run_files_write(struct run_files *o, const char *command, results_body *body, const void *what,
                    struct page *page) {
    struct failures all = {0};
    failures_add(&all, write_json(&o->json, command, body, what));
    failures_add(&all, write_trace(&o->trace, page));
    failures_add(&all, write_report(o, page, command));
    if (!all.code && !o->config->quiet) say_written(o);
    return failures_end(&all);
}

void run_files_abandon(struct run_files *o) {
    atomic_abandon(&o->json);
    atomic_abandon(&o->trace);
    atomic_abandon(&o->page);
    if (o->pictures.made) rmdir(o->pictures.folder); /* keeps a folder that has a picture in it */
    o->pictures.made = 0;
}
