/* Each device writes the losses, hits and hashes of a step into a row of a log in its own memory,
 * and the host reads many rows at once. So a step never waits for the host.
 *
 * A row holds one sum of losses for each virtual device, in double. These sums are added in fold
 * order, so the loss of a step and the file of --log-loss have the same bits in all modes.
 *
 * A step of several passes has a row for each pass. The losses of a virtual device are first added
 * over the passes, like its gradients. The hashes are in the row of the last pass. */
#include "train/step_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fold.h"

/* Gathers `bytes` bytes of each rank on all ranks; `all` holds ranks * bytes. */
static int gather(struct session *s, const void *mine, size_t bytes, void *all) {
    if (s->ranks > 1) return comm_gather(s->comm, mine, bytes, all);
    memcpy(all, mine, bytes);
    return OK;
}

/* Columns in a row of the loss log that this process reads. */
static int columns(const struct session *s) {
    return s->device_count * s->segments_per_device;
}

/* ---- losses ---- */

/* The loss of one step, from its rows of all processes, the first of which is row `first` of
 * `rows`. The term of virtual device v belongs to device v mod W and its segment v / W. In DDP that
 * device is its own process; in single and DP one device has the columns of all devices,
 * device by device. */
static double step_loss(const struct session *s, const double *all, int rows, int first,
                        const struct logged_step *step) {
    double terms[MAX_DEVICES];
    int each = s->segments_per_device, total = each * s->devices;
    for (int v = 0; v < total; v++) {
        int device = v % s->devices, segment = v / s->devices;
        int process = s->ranks > 1 ? device : 0,
            column = s->ranks > 1 ? segment : device * each + segment;
        const double *cell = all +
                             ((size_t)process * (size_t)rows + (size_t)first) * (size_t)columns(s) +
                             (size_t)column;
        terms[v] = *cell;
        for (int pass = 1; pass < step->passes; pass++)
            terms[v] += cell[(size_t)pass * (size_t)columns(s)];
    }
    return fold_sum(terms, total);
}

static int grow_losses(struct run_record *r, int steps) {
    double *losses = realloc(r->losses, (size_t)(r->steps + steps) * sizeof *losses);
    if (!losses) return fail(ERR_MEMORY, "step log: out of host memory");
    r->losses = losses;
    return OK;
}

/* The losses in the first `rows` rows of all processes, for step_loss; the caller frees *all. */
static int gather_losses(struct session *s, int rows, double **all) {
    size_t count = (size_t)rows * (size_t)columns(s);
    double *mine = malloc(count * sizeof *mine);
    *all = malloc((size_t)s->ranks * count * sizeof **all);
    int code = mine && *all ? OK : fail(ERR_MEMORY, "step log: out of host memory");
    if (!code) code = replica_read_logs(s->replicas[s->output_device], rows, mine, NULL, NULL);
    if (!code) code = gather(s, mine, count * sizeof *mine, *all);
    free(mine);
    return code;
}

static int read_losses(struct session *s, const struct logged_step *steps, int steps_count) {
    int passes = s->config->update.passes, rows = steps_count * passes;
    double *all;
    int code = gather_losses(s, rows, &all);
    if (!code) code = grow_losses(s->record, steps_count);
    for (int i = 0; !code && i < steps_count; i++) {
        double loss = step_loss(s, all, rows, i * passes, &steps[i]) / steps[i].divisor;
        s->record->losses[s->record->steps + i] =
            isnan(loss) ? NAN : loss; /* NaNs of any sign become the same NaN */
    }
    free(all);
    return code;
}

int step_log_tests(struct session *s, int rows, int64_t *hits, double *loss) {
    const struct logged_step batch = {.passes = 1};
    double *losses;
    int64_t mine = 0, all[MAX_DEVICES], log[LOG_ROWS * MAX_DEVICES];
    struct replica *logged = s->replicas[s->output_device];
    int width = logged->config.log_segments;
    CHECK(replica_read_logs(logged, rows, NULL, log, NULL));
    for (int row = 0; row < rows; row++)
        for (int c = 0; c < width; c++)
            mine += log[row * width + c];
    CHECK(gather(s, &mine, sizeof mine, all));
    for (int k = 0; k < s->ranks; k++)
        *hits += all[k];
    int code = gather_losses(s, rows, &losses);
    for (int row = 0; !code && row < rows; row++)
        *loss += step_loss(s, losses, rows, row, &batch);
    free(losses);
    return code;
}

/* ---- hashes ---- */

/* Appends the hashes of one device to the record: for each step, the row of its last pass. */
static int append_hashes(struct session *s, int device, const uint64_t *from,
                         const struct logged_step *steps, int count, size_t width) {
    struct run_record *r = s->record;
    size_t passes = (size_t)s->config->update.passes, bytes = width * sizeof *from;
    uint64_t *grown = realloc(r->hashes[device], (size_t)(r->steps + count) * bytes);
    if (!grown) return fail(ERR_MEMORY, "step log: out of host memory");
    r->hashes[device] = grown;
    for (size_t i = 0; i < (size_t)count; i++) {
        size_t row = i * passes + (size_t)steps[i].passes - 1;
        memcpy(grown + ((size_t)r->steps + i) * width, from + row * width, bytes);
    }
    return OK;
}

/* Reads the rows of every device of this process, gathers those of all ranks and appends them to
 * the record. */
static int read_hashes(struct session *s, const struct logged_step *steps, int count) {
    int rows = count * s->config->update.passes;
    size_t width = (size_t)model_hashes(&s->model), bytes = (size_t)rows * width * sizeof(uint64_t);
    uint64_t *mine = malloc(bytes), *all = malloc((size_t)s->ranks * bytes);
    int code = mine && all ? OK : fail(ERR_MEMORY, "step log: out of host memory");
    for (int i = 0; !code && i < s->device_count; i++) {
        code = replica_read_logs(s->replicas[i], rows, NULL, NULL, mine);
        if (!code) code = gather(s, mine, bytes, all);
        for (int k = 0; !code && k < s->ranks; k++)
            code = append_hashes(s, s->ranks > 1 ? k : i, all + (size_t)k * (size_t)rows * width,
                                 steps, count, width);
    }
    free(mine);
    free(all);
    return code;
}

int step_log_read(struct session *s, const struct logged_step *steps, int count) {
    if (!count) return OK;
    CHECK(read_losses(s, steps, count));
    if (s->config->hashes) CHECK(read_hashes(s, steps, count));
    s->record->steps += count;
    return OK;
}

int step_log_final(struct session *s) {
    struct step_block step = {.row = 0};
    size_t count = (size_t)s->model.param_count, buffers = (size_t)s->model.buffer_count,
           bytes = (count + buffers) * sizeof(uint64_t);
    if (!s->config->hashes) return OK;
    uint64_t *row = malloc((2 * count + buffers) * sizeof *row + 1),
             *all = malloc((size_t)s->ranks * bytes + 1);
    int code = row && all ? OK : fail(ERR_MEMORY, "step log: out of host memory");
    if (!code) code = s->strategy->hash_values(s, &step);
    for (int i = 0; !code && i < s->device_count; i++) {
        if (!code) code = replica_read_logs(s->replicas[i], 1, NULL, NULL, row);
        /* without gradients, the buffers follow the values */
        memmove(row + count, row + 2 * count, buffers * sizeof *row);
        if (!code) code = gather(s, row, bytes, all);
        for (int k = 0; !code && k < s->ranks; k++) {
            uint64_t *final = s->record->final_hashes[s->ranks > 1 ? k : i] = malloc(bytes + 1);
            if (!final)
                code = fail(ERR_MEMORY, "step log: out of host memory");
            else
                memcpy(final, all + (size_t)k * (count + buffers), bytes);
        }
    }
    free(row);
    free(all);
    return code;
}
