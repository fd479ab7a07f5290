/* Reaches and prints the verdict: see verdict.h. */
#include "train/compare/verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/plain.h"
#include "base/text/text.h"
#include "train/compare/bits.h"

/* The relative difference of two losses that a reader of the two curves would see. */
static const double LOSS_APART = 0.01;

/* The hash in one column of a step's row: column p is the value of parameter p, column
 * parameters + p its gradient, column 2 * parameters + b buffer b. */
static uint64_t hash_at(const struct run_record *r, int device, int step, int column) {
    size_t width = 2 * (size_t)r->parameters + (size_t)r->buffers;
    return r->hashes[device][(size_t)step * width + (size_t)column];
}

/* The column of value p in a step's row; those after the parameters are buffers. */
static int value_column(const struct run_record *r, int p) {
    return p < r->parameters ? p : r->parameters + p;
}

/* The name of a parameter, or of a buffer: verdict.parameter numbers buffers after parameters. */
static const char *verdict_name(const struct run_record *r, int p) {
    return p < r->parameters ? r->names[p] : r->buffer_names[p - r->parameters];
}

/* Notes where a difference is. Returns 1. */
static int differs(struct verdict *v, int step, int parameter, int device, int in_gradient) {
    v->step = step;
    v->parameter = parameter;
    v->device = device;
    v->in_gradient = in_gradient;
    return 1;
}

/* Looks for the first difference between any device of run b and device 0 of run a: the single run,
 * or b itself. Returns 1 if there is one. Both runs must be hashed. */
static int first_difference(const struct run_record *a, const struct run_record *b,
                            struct verdict *v) {
    int steps = a->steps < b->steps ? a->steps : b->steps, values = b->parameters + b->buffers;
    for (int step = 0; step < steps; step++) {
        for (int d = 0; d < b->devices; d++)
            for (int p = 0; p < values; p++)
                if (hash_at(a, 0, step, value_column(a, p)) !=
                    hash_at(b, d, step, value_column(b, p)))
                    return differs(v, step, p, d, 0);
        for (int d = 0; d < b->devices; d++)
            for (int p = 0; record_has_grads(b, d) && p < b->parameters; p++)
                if (hash_at(a, 0, step, b->parameters + p) !=
                    hash_at(b, d, step, b->parameters + p))
                    return differs(v, step, p, d, 1);
    }
    if (a->steps != b->steps) return differs(v, steps, 0, 0, 0);
    for (int d = 0; d < b->devices; d++)
        for (int p = 0; p < values; p++)
            if (a->final_hashes[0][p] != b->final_hashes[d][p]) return differs(v, steps, p, d, 0);
    return 0;
}

/* The relative difference of two losses. Two NaNs are equal: both runs diverged alike. */
static double gap(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    return fabs(a - b) / fmax(fabs(a), fabs(b));
}

static void look_at_losses(const struct run_record *a, const struct run_record *b,
                           struct verdict *v) {
    int steps = a->steps < b->steps ? a->steps : b->steps;
    v->loss_apart_at = -1;
    for (int i = 0; i < steps; i++) {
        v->final_loss_gap = gap(a->losses[i], b->losses[i]);
        if (v->loss_apart_at < 0 && !(v->final_loss_gap <= LOSS_APART)) v->loss_apart_at = i;
    }
}

static int list_differs(struct verdict *v, const char *what, const double *a, const double *b,
                        int count) {
    for (int i = 0; a && b && i < count; i++) {
        if (!gap(a[i], b[i])) continue;
        v->result = what;
        v->step = i, v->values[0] = a[i], v->values[1] = b[i];
        return 1;
    }
    return 0;
}

/* If all hashes agree: the first loss, or the first accuracy, that does not. */
static int results_differ(const struct run_record *a, const struct run_record *b,
                          struct verdict *v) {
    int epochs = a->epoch_count < b->epoch_count ? a->epoch_count : b->epoch_count;
    return list_differs(v, "loss", a->losses, b->losses, v->steps) ||
           list_differs(v, "test accuracy", a->accuracy, b->accuracy, epochs) ||
           list_differs(v, "valid_loss", a->valid_loss, b->valid_loss, epochs);
}

static int first_not_finite(const struct run_record *a, const struct run_record *b) {
    int first = record_not_finite(a, NULL), other = record_not_finite(b, NULL);
    return first < 0 || (other >= 0 && other < first) ? other : first;
}

/* 1: the difference comes after both losses became non-finite, at the same step. A sum of two NaNs
 * has the bits of either, as the processor chooses. */
static int behind_the_end(const struct run_record *a, const struct run_record *b,
                          const struct verdict *v) {
    int end = record_not_finite(a, NULL);
    return end >= 0 && end == record_not_finite(b, NULL) && v->step >= end - a->first_step;
}

int verdict_judge(const struct run_record *a, const struct run_record *b, struct verdict *v) {
    *v = (struct verdict){.bits_apart_at = -1, .loss_apart_at = -1, .steps = b->steps};
    v->not_finite_at = first_not_finite(a, b);
    look_at_losses(a, b, v);
    int different = first_difference(a, b, v) && !behind_the_end(a, b, v);
    v->bits_apart_at = different ? v->step : -1;
    if (!bits_promised_between(a, b, v->why_not, sizeof v->why_not)) {
        v->kind = VERDICT_DIFFERENT;
        return v->among_replicas = first_difference(b, b, v); /* true of every algorithm */
    }
    if (!different) different = results_differ(a, b, v);
    v->kind = different ? VERDICT_DIFFERENT : VERDICT_EQUAL;
    return 1;
}

static void print_drift(FILE *file, const struct verdict *v) {
    if (v->bits_apart_at < 0) {
        fprintf(file, "  here the bits agree all the same, at every step\n");
        return;
    }
    fprintf(file, "  bits apart since step %d; losses ", v->bits_apart_at);
    if (v->loss_apart_at < 0)
        fprintf(file, "within 1 %% to the end (%.2g at the last)\n", v->final_loss_gap);
    else
        fprintf(file,
                "more than 1 %% apart since step %d\n"
                "  (%.2g at the last): SGD amplifies the last bit\n",
                v->loss_apart_at, v->final_loss_gap);
}

char *verdict_difference(const struct verdict *v, const struct run_record *run,
                         char text[VERDICT_WORDS]) {
    if (v->result)
        snprintf(text, VERDICT_WORDS, "the %s %s %d is %.9g, not %.9g", v->result,
                 strcmp(v->result, "loss") ? "after epoch" : "of step", v->step, v->values[1],
                 v->values[0]);
    else
        snprintf(text, VERDICT_WORDS, "step %d: the %s of %.100s on device %d", v->step,
                 v->in_gradient || v->kind == VERDICT_BEYOND ? "gradient" : "value",
                 verdict_name(run, v->parameter), v->device);
    return text;
}

/* Why DDP differs if its last step left parameters without a gradient. */
static void print_unreduced(FILE *file, int width, const struct run_record *b) {
    if (!*b->unreduced) return;
    text_say(file, width, 2, 4,
             "the last step gave no gradient to some parameters (%s), so DDP has not averaged "
             "their buckets: give --find-unused-parameters",
             b->unreduced);
}

static void print_equal(FILE *file, int width, const struct verdict *v, const char *x,
                        const char *y, const struct run_record *b) {
    if (v->not_finite_at >= 0) {
        text_say(file, width, 0, 2,
                 "%s = %s: identical to the bit, but the loss is not finite since step %d: from "
                 "there on this proves nothing",
                 y, x, v->not_finite_at);
        return;
    }
    fprintf(file,
            "%s = %s: identical to the bit after %d step%s\n"
            "  (every loss, parameter%s and reduced gradient, every step, every device)\n",
            y, x, v->steps, v->steps == 1 ? "" : "s", b->buffers ? ", buffer" : "");
    if (!*b->sum_order) return;
    text_say(file, width, 2, 2,
             "gradients are added in the order of %s; for that, one device holds a "
             "parameter's gradients of all segments at once",
             b->sum_order);
}

static void print_different(FILE *file, int width, const struct verdict *v, const char *x,
                            const char *y, const struct run_record *b) {
    char words[VERDICT_WORDS];
    text_say(file, width, 0, 2, "%s != %s: first difference%s%s", y,
             v->among_replicas ? "its own device 0" : x, v->result ? ": " : " at ",
             verdict_difference(v, b, words));
    print_unreduced(file, width, b);
}

/* Where equal bits are not promised: the gradients of the first step, and the drift after it. */
static void print_distance(FILE *file, int width, const struct verdict *v, const char *x,
                           const char *y, const struct run_record *b) {
    int is_within = v->kind == VERDICT_WITHIN;
    if (v->steps == 0)
        fprintf(file, "%s ? %s: no step does the same work in both: no gradients were compared\n",
                y, x);
    else
        fprintf(file,
                "%s %s %s: %s in the first step:\n"
                "  gradients differ by at most %.2g (relative L2), allowed %.2g\n",
                y, is_within ? "~" : "!=", x,
                is_within ? "agree within rounding" : "differ beyond rounding", v->worst, v->bound);
    if (!is_within)
        fprintf(file, "  beyond the bound: the gradient of %s%s\n", PLAIN(b->names[v->parameter]),
                isfinite(v->worst) ? "" : " is not finite: try a smaller --lr");
    if (!is_within) print_unreduced(file, width, b);
    if (v->not_finite_at >= 0)
        fprintf(file,
                "  the loss is not finite since step %d: from there on gradients cannot\n"
                "  agree\n",
                v->not_finite_at);
    text_say(file, width, 2, 4, "equal bits are not promised: %s", v->why_not);
    print_drift(file, v);
}

void verdict_print(FILE *file, int width, const struct verdict *v, const struct run_record *a,
                   const struct run_record *b) {
    const char *x = mode_title(a->mode), *y = mode_title(b->mode);
    switch (v->kind) {
    case VERDICT_EQUAL: print_equal(file, width, v, x, y, b); break;
    case VERDICT_DIFFERENT: print_different(file, width, v, x, y, b); break;
    case VERDICT_WITHIN:
    case VERDICT_BEYOND: print_distance(file, width, v, x, y, b); break;
    }
}

void verdict_json(struct json_writer *w, const char *key, const struct verdict *v,
                  const struct run_record *b) {
    static const char *const kinds[] = {"identical", "different", "within bound", "beyond bound"};
    json_object(w, key);
    json_string(w, "verdict", kinds[v->kind]);
    json_integer(w, "steps", v->steps);
    json_index_or_null(w, "not_finite_at_step", v->not_finite_at);
    int at_one = v->kind == VERDICT_DIFFERENT || v->kind == VERDICT_BEYOND;
    json_index_or_null(w, "step", at_one ? v->step : -1);
    int of_hash = at_one && !v->result;
    json_string_or_null(w, "parameter", of_hash ? verdict_name(b, v->parameter) : "");
    json_index_or_null(w, "device", of_hash ? v->device : -1);
    json_string_or_null(w, "what",
                        !at_one          ? ""
                        : v->result      ? v->result
                        : v->in_gradient ? "gradient"
                                         : "value");
    json_boolean(w, "among_replicas", at_one && v->among_replicas);
    int in_lockstep = *v->why_not != 0;
    json_string_or_null(w, "bits_not_promised_because", v->why_not);
    json_number(w, "lockstep_distance", in_lockstep ? v->worst : NAN);
    json_number(w, "lockstep_bound", in_lockstep ? v->bound : NAN);
    json_index_or_null(w, "bits_apart_at_step", in_lockstep ? v->bits_apart_at : -1);
    json_index_or_null(w, "losses_apart_at_step", in_lockstep ? v->loss_apart_at : -1);
    json_number(w, "final_loss_gap", in_lockstep ? v->final_loss_gap : NAN);
    json_close(w);
}
