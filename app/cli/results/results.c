/* The files of --json: see results.h. */
#include "cli/results/results.h"

#include "base/error.h"
#include "doctor/cuda/gpu.h"
#include "report/origin.h"

int results_start(struct json_writer *w, FILE *file, const char *command) {
    struct origin origin;
    char cuda[160];
    gpu_build(cuda, sizeof cuda);
    int code = origin_find(&origin, cuda);
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

int results_open(struct results_files *files, const struct run_config *config) {
    if (*config->files.json) CHECK(atomic_open(&files->json, config->files.json));
    return OK;
}

static int write_json(struct atomic_file *file, const char *command, results_body *body,
                      const void *what) {
    struct json_writer w;
    CHECK(results_start(&w, file->file, command));
    body(what, &w);
    return results_end(&w, file);
}

int results_write(struct results_files *files, const char *command, results_body *body,
                  const void *what) {
    return files->json.file ? write_json(&files->json, command, body, what) : OK;
}

void results_abandon(struct results_files *files) {
    atomic_abandon(&files->json);
}
