/* Reads a checkpoint: resume.h describes its contents. Each rank reads the file itself. */
#include "train/files/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/safetensors.h"
#include "base/text/parse.h"
#include "train/compare/bits.h"
#include "train/files/settings.h"

/* ---- its settings ---- */

static int check_version(const struct safetensors *file) {
    return checkpoint_check(file, "--resume",
                            "a file of --checkpoint, or --init-from for weights only");
}

/* Only rank 0 checks: all ranks have the same settings. */
static int check_settings(const struct session *s, const struct safetensors *file) {
    struct setting settings[SETTINGS_MOST];
    char why_not[160] = "bits were not promised when it was written";
    const char *promised = safetensors_text(file, "bits_promised");
    int any_way =
        promised && !strcmp(promised, "1") && bits_promised(s->config, why_not, sizeof why_not);
    if (!session_leads(s)) return OK;
    int count = settings_list(s, settings);
    for (int i = 0; i < count; i++) {
        const char *theirs = safetensors_text(file, settings[i].name);
        if (settings[i].of_way && any_way) continue;
        if (theirs && !strcmp(theirs, settings[i].text)) continue;
        return fail(ERR_USAGE,
                    "%s: %s: the checkpoint %s was written with %.200s%s%s: give that, or start "
                    "again from its weights with --init-from",
                    settings[i].name, settings[i].text, file->path, theirs ? theirs : "another one",
                    settings[i].of_way ? ", and the bits would differ: " : "",
                    settings[i].of_way ? why_not : "");
    }
    return OK;
}

/* The order in which gradients are added affects the bits in every mode. */
static int check_order(const struct session *s, const struct safetensors *file) {
    const char *theirs = safetensors_text(file, ORDER_OF_SUMS);
    char mine[SUM_ORDER_BYTES];
    bits_order_text(s->config, mine);
    if (!strcmp(theirs ? theirs : "", mine)) return OK;
    return fail(ERR_USAGE,
                "--allreduce: sums in the order of %s: the checkpoint %s was written with %.95s: "
                "give that, or start again from its weights with --init-from",
                *mine ? mine : "the fold", file->path, theirs ? theirs : "the fold");
}

/* Buckets are then cut in that order; if it is not an order of the parameters, that is refused
 * there. */
static int read_ready_order(struct session *s, const struct safetensors *file) {
    const char *text = safetensors_text(file, READY_ORDER);
    int count = s->model.param_count, used;
    if (!text) return OK;
    s->ready_order = calloc((size_t)count + 1, sizeof *s->ready_order);
    if (!s->ready_order) return fail(ERR_MEMORY, "--resume: out of host memory");
    for (int i = 0; i < count && sscanf(text, "%d %n", &s->ready_order[i], &used) == 1; i++)
        text += used;
    return OK;
}

static int read_step(struct session *s, const struct safetensors *file) {
    const char *text = safetensors_text(file, "step");
    int64_t step = 0;
    if (!text || parse_int("step", text, 1, INT32_MAX - 1, &step))
        return fail(ERR_FAILED, "--resume: %s: it does not say after which step it was written",
                    file->path);
    s->first_step = (int)step;
    return OK;
}

/* A folder that takes no checkpoint is noticed at once, not after the first N steps. */
static int try_checkpoint(const char *path) {
    struct atomic_file file = {0};
    int code = atomic_open(&file, path);
    atomic_abandon(&file);
    return code;
}

int resume_check_files(const struct run_config *config) {
    const char *path = *config->files.resume ? config->files.resume : run_weights(config);
    struct safetensors file = {0};
    int code = path && !config->dry ? safetensors_open(&file, path) : OK;
    if (!code && *config->files.resume) code = check_version(&file);
    safetensors_close(&file);
    CHECK(code);
    return *config->files.checkpoint ? try_checkpoint(config->files.checkpoint) : OK;
}

int resume_check(struct session *s) {
    const struct safetensors *file = &s->file;
    CHECK(check_version(file));
    CHECK(check_settings(s, file));
    CHECK(check_order(s, file));
    CHECK(read_ready_order(s, file));
    return read_step(s, file);
}

/* The file may have been replaced while the ranks read it. */
int resume_agree(struct session *s) {
    int all[MAX_DEVICES];
    if (s->ranks == 1) return OK;
    CHECK(comm_gather(s->comm, &s->first_step, sizeof s->first_step, all));
    for (int r = 1; r < s->ranks; r++)
        if (all[r] != all[0])
            return fail(ERR_FAILED,
                        "--resume: %s: rank %d read step %d, rank 0 step %d: it was replaced "
                        "meanwhile: start again",
                        s->config->files.resume, r, all[r], all[0]);
    return OK;
}
