/* Describes a profile in sentences: see findings.h. */
#include "report/findings.h"

#include <math.h>
#include <string.h>

#include "report/machine.h"
#include "report/text.h"
#include "report/values.h"

/* The sentences, and how many there are. */
struct list {
    struct text *text;
    int count, details;
};

/* The next empty sentence, after those that were filled. */
static struct text *next(struct list *list) {
    list->count += *list->text[list->count].words && list->count < FINDINGS - 1;
    struct text *text = &list->text[list->count];
    text->words[0] = 0;
    return text;
}

static double peak_of(const struct run_record *r) {
    return device_value(r, 0, VALUE_PEAK, MEM_CAUSE_COUNT);
}

static double peak_of_others(const struct run_record *r) {
    return others_value(r, VALUE_PEAK, MEM_CAUSE_COUNT);
}

static double link_bytes(const struct run_record *r) {
    return device_value(r, 0, VALUE_LINKS, 0);
}

/* ---- device 0 of DP ---- */

/* What users ask about, as causes of memory. */
enum part { PART_OUTPUTS, PART_OPTIMIZER, PART_BATCH, PART_REDUCTION, PART_REST, PARTS };
static const char *const part_names[PARTS] = {"outputs", "optimizer", "batch", "reduction",
                                              "the rest (activations, workspace)"};

static enum part part_of_memory(int cause) {
    switch (cause) {
    case MEM_GATHERED: return PART_OUTPUTS;
    case MEM_OPTIMIZER: return PART_OPTIMIZER;
    case MEM_INPUT: return PART_BATCH;
    case MEM_GRADS:
    case MEM_COMM: return PART_REDUCTION;
    default: return PART_REST;
    }
}

/* The largest part, which is named first. */
static int largest_part(const double part[PARTS]) {
    int most = 0;
    for (int i = 1; i < PARTS; i++)
        if (fabs(part[i]) > fabs(part[most])) most = i;
    return most;
}

static void memory_excess(struct list *list, const struct run_record *dp) {
    double part[PARTS] = {0}, all = peak_of(dp) - peak_of_others(dp);
    struct text *text = next(list);
    char bytes[32];
    int causes = 0;
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        part[part_of_memory(c)] +=
            device_value(dp, 0, VALUE_PEAK, c) - others_value(dp, VALUE_PEAK, c);
    }
    if (fabs(all) < 0.5)
        text_add(text, "At its peak, device 0 of DP holds as much as the others on average");
    else
        text_add(text, "At its peak, device 0 of DP holds %s %s than the others on average",
                 bytes_words(fabs(all), bytes), all > 0 ? "more" : "less");
    for (int n = 0; n < PARTS; n++) {
        int i = largest_part(part);
        if (fabs(part[i]) < 0.5) break;
        text_add(text, "%s %s %s", causes++ ? "," : ":", part_names[i],
                 signed_bytes(part[i], bytes));
        if (all >= 1 && part[i] > 0) text_add(text, " (%.0f %%)", 100 * part[i] / all);
        part[i] = 0;
    }
    text_add(text, ".");
}

/* ---- what the other ways save ---- */

static void loss_in_forward(struct list *list, const struct run_record *dp,
                            const struct run_record *other) {
    char memory[32], moved[32];
    text_add(
        next(list),
        "With the loss in forward, device 0's peak changes by %s and its traffic by %s per step.",
        signed_bytes(peak_of(other) - peak_of(dp), memory),
        signed_bytes(link_bytes(other) - link_bytes(dp), moved));
}

/* "3.57 MiB less", "as much". */
static char *more_or_less(double bytes, char text[48]) {
    char amount[32];
    if (fabs(bytes) < 0.5) return strcpy(text, "as much");
    snprintf(text, 48, "%s %s", bytes_words(fabs(bytes), amount), bytes > 0 ? "more" : "less");
    return text;
}

static void ddp_saves(struct list *list, const struct run_record *dp,
                      const struct run_record *ddp) {
    struct text *text = next(list);
    char first[48], others[48], moved[48], moved_others[48];
    text_add(text,
             "With DDP instead of DP, device 0 holds %s and moves %s per step; every other device "
             "holds %s and moves %s.",
             more_or_less(peak_of(ddp) - peak_of(dp), first),
             more_or_less(link_bytes(ddp) - link_bytes(dp), moved),
             more_or_less(peak_of_others(ddp) - peak_of_others(dp), others),
             more_or_less(others_value(ddp, VALUE_LINKS, 0) - others_value(dp, VALUE_LINKS, 0),
                          moved_others));
}

/* What DDP does not save: each device holds what device 0 of DP holds. */
static void ddp_does_not_save(struct list *list, const struct run_record *ddp) {
    struct text *text = next(list);
    char state[32];
    double bytes = mean_value(ddp, 0, ddp->devices, VALUE_PEAK, MEM_OPTIMIZER);
    text_add(text, "In DDP every device holds all parameters and gradients");
    if (bytes > 0)
        text_add(text, ", and the state of %s: %s, which DP has on device 0 only", ddp->optimizer,
                 bytes_words(bytes, state));
    text_add(text, ".");
}

/* ---- which is faster ---- */

/* Device 0's work while the other devices sleep. */
static double alone_ns(const struct run_record *r) {
    const struct device_record *d = &r->device[0];
    double alone = (double)(d->busy_ns - d->phase_ns[PHASE_FORWARD] - d->phase_ns[PHASE_BACKWARD]);
    /* with the loss in forward all devices compute it in parallel */
    if (r->loss_in_forward) alone -= (double)d->phase_ns[PHASE_LOSS];
    return record_per_step(r, alone);
}

/* Why it is faster: the times that only the other one has. */
static void why(struct text *text, const struct run_record *dp, const struct run_record *ddp) {
    text_add(
        text,
        " In DP, device 0 works %.3f ms per step while the others sleep, and then waits %.3f ms "
        "for them; in DDP, a rank waits %.3f ms for allreduce.",
        alone_ns(dp) * 1e-6, device_value(dp, 0, VALUE_WAIT, 0) * 1e-6,
        mean_value(ddp, 0, ddp->devices, VALUE_WAIT, 0) * 1e-6);
}

/* Three steps have two lengths, from start to start. Fewer steps have no spread, so nobody could
 * see whether a difference between two runs is chance. */
enum { STEPS_TO_JUDGE = 3 };

static void which_is_faster(struct list *list, const struct run_record *dp,
                            const struct run_record *ddp) {
    const struct device_record *a = &dp->device[0], *b = &ddp->device[0];
    double spread = hypot((double)a->step_spread_ns, (double)b->step_spread_ns) * 1e-6;
    double dp_ms = (double)a->step_median_ns * 1e-6, ddp_ms = (double)b->step_median_ns * 1e-6;
    struct text *text = next(list);
    int modelled = *dp->modelled != 0; /* every step takes the same time */
    int shared = record_shared(dp);
    if (!modelled && (dp->steps < STEPS_TO_JUDGE || ddp->steps < STEPS_TO_JUDGE)) return;
    if (!a->step_median_ns || !b->step_median_ns) return; /* no times were measured */
    if (shared) {
        text_add(
            text,
            "%d devices share %d %s%s, so times show no winner: compare bytes and memory, and "
            "predict times of GPUs with duet estimate --gpu. Median steps are %.2f ms (DP) and "
            "%.2f ms (DDP).",
            dp->devices, shared, dp->gpus ? "GPU" : "core", shared > 1 ? "s" : "", dp_ms, ddp_ms);
        return;
    }
    if (fabs(dp_ms - ddp_ms) <= spread)
        text_add(text,
                 "No clear winner: median steps are %.2f ms (DP) and %.2f ms (DDP), but steps vary "
                 "by %.2f ms.",
                 dp_ms, ddp_ms, spread);
    else {
        text_add(text, "%s is faster: its %s step takes %.2f ms, that of %s %.2f ms",
                 dp_ms > ddp_ms ? "DDP" : "DP", modelled ? "modelled" : "median",
                 fmin(dp_ms, ddp_ms), dp_ms > ddp_ms ? "DP" : "DDP", fmax(dp_ms, ddp_ms));
        if (!modelled) text_add(text, " (spread %.2f ms)", spread);
        text_add(text, ".");
    }
    if (list->details || !modelled) why(text, dp, ddp); /* otherwise add_load says this */
    text = next(list);
    add_busy(text, add_busy(text, 0, "DP", dp), "DDP", ddp);
    if (*text->words) *text->words = 'T', text_add(text, ": do not trust these times.");
}

/* The answer first; `details` adds what stands behind it. */
static void say_all(struct list *list, const struct profiled *runs) {
    const struct run_record *dp = runs->dp, *ddp = runs->ddp;
    if (dp && ddp) which_is_faster(list, dp, ddp);
    add_load(next(list), dp, ddp); /* how busy modelled GPUs are */
    if (dp) memory_excess(list, dp);
    if (dp) beside_pytorch_sentence(next(list), &runs->dp_beside);
    if (dp && list->details && runs->loss_in_forward)
        loss_in_forward(list, dp, runs->loss_in_forward);
    if (dp && ddp) ddp_saves(list, dp, ddp);
    if (ddp && list->details) ddp_does_not_save(list, ddp);
    if (ddp && list->details) beside_pytorch_sentence(next(list), &runs->ddp_beside);
}

int profile_findings(const struct profiled *runs, struct text sentences[FINDINGS]) {
    struct list list = {sentences, 0, runs->details};
    const struct run_record *any = runs->dp ? runs->dp : runs->ddp;
    sentences->words[0] = 0;
    if (any && any->devices > 1) say_all(&list, runs);
    next(&list);
    return list.count;
}

void profile_findings_print(FILE *file, int width, const struct profiled *runs) {
    struct text sentences[FINDINGS];
    const struct run_record *any = runs->dp ? runs->dp : runs->ddp;
    int count = profile_findings(runs, sentences);
    if (runs->details && count)
        text_wrap(file, width, 0, 2,
                  any->computed ? "what this means (all of it computed)" : "what this means");
    for (int i = 0; i < count; i++)
        text_wrap(file, width, 0, 2, sentences[i].words);
}
