/* The verdict in three sentences: do the modes train the same model, how long does a step take, and
 * what does device 0 hold. Then what was not measured, where something was not. */
#include "report/page/words.h"

#include <math.h>
#include <string.h>

#include "report/machine.h"
#include "report/values.h"

/* ---- titles ---- */

/* "DP", "DP with the loss in forward": a title as a part of a sentence, in which a comma would cut
 * it off. `on`: said behind the mode. */
static void add_title(struct text *text, const char *title, const char *on) {
    const char *rest = strstr(title, ", ");
    if (rest)
        text_add(text, "%.*s%s with the %s", (int)(rest - title), title, on, rest + 2);
    else
        text_add(text, "%s%s", title, on);
}

/* ---- the model ---- */

static int count_judged(const struct page *page, enum page_judgement judged) {
    int n = 0;
    for (int i = 0; i < page->count; i++)
        n += page->run[i].judged == judged;
    return n;
}

static void list_titles(struct text *text, const struct page *page, enum page_judgement judged) {
    int all = count_judged(page, judged), n = 0;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].judged == judged)
            text_add(text, "%s%s", n++ ? n == all ? " and " : ", " : "", page->run[i].title);
}

static void say_training(struct text *text, const struct run_record *r) {
    double accuracy = record_last_accuracy(r);
    if (r->computed) {
        text_add(text,
                 "Nothing was trained: a step of the model %s on the data set %s was followed on "
                 "devices that compute nothing.",
                 r->model, r->dataset);
        return;
    }
    text_add(text, "The model %s was trained on the data set %s for %d step%s", r->model,
             r->dataset, r->steps, r->steps == 1 ? "" : "s");
    if (r->steps) text_add(text, ", to a loss of %.4g", r->losses[r->steps - 1]);
    if (accuracy >= 0) text_add(text, " and a test accuracy of %.4f", accuracy);
    text_add(text, ".");
}

/* One sentence, also where the verdicts on two runs differ. */
static void say_equality(struct text *text, const struct page *page) {
    const struct run_record *first = first_run(page);
    int equal = count_judged(page, PAGE_EQUAL), within = count_judged(page, PAGE_WITHIN),
        apart = count_judged(page, PAGE_APART);
    if (!equal && !within && !apart) {
        say_training(text, first);
        return;
    }
    if (equal) {
        list_titles(text, page, PAGE_EQUAL);
        text_add(text,
                 " trained the very same model as %s: every parameter and every reduced "
                 "gradient was identical to the bit in all %d steps",
                 mode_title(first->mode), first->steps);
        int since = record_not_finite(first, NULL);
        if (since >= 0)
            text_add(
                text,
                ", but the loss is not finite since step %d, from where on this proves nothing",
                since);
    }
    if (within) {
        text_add(text, equal ? "; " : "");
        list_titles(text, page, PAGE_WITHIN);
        text_add(text,
                 " agreed with %s in lock step within the bound on rounding, where equal "
                 "bits are not promised",
                 mode_title(first->mode));
    }
    if (apart) {
        text_add(text, equal || within ? "; " : "");
        list_titles(text, page, PAGE_APART);
        text_add(text, " did not train the same model as %s", mode_title(first->mode));
    }
    text_add(text, ".");
}

/* ---- the time ---- */

/* Devices that share cores are not what they would be with one each. */
static void say_sharing(struct text *text, const struct page *page) {
    const struct run_record *first = first_run(page);
    int shared = record_shared(first), devices = most_devices(page);
    if (shared && devices > shared)
        text_add(text, "; but the %d devices share %d %s%s, so this is not what as many GPUs do",
                 devices, shared, first->gpus ? "GPU" : "core", shared > 1 ? "s" : "");
}

/* Nor is a machine with something else to do. */
static void say_busy(struct text *text, const struct page *page) {
    struct text busy = {.used = 0};
    int count = 0;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run) count += add_busy(&busy, count, page->run[i].title, page->run[i].run);
    if (count) text_add(text, "; %s", busy.words);
}

/* The run in that mode, not the one with the loss in forward; NULL: there is none. */
static const struct run_record *plain(const struct page *page, enum run_mode mode) {
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (r && r->steps && r->mode == mode && !r->loss_in_forward) return r;
    }
    return NULL;
}

/* As duet profile says it: the median; where it is not known, the mean. */
static double step_ns(const struct run_record *r, int is_median) {
    return is_median ? (double)r->device[0].step_median_ns : r->training_seconds / r->steps * 1e9;
}

static void say_time(struct text *text, const struct page *page) {
    const struct run_record *first = first_run(page);
    double one = record_images_per_second(first);
    int n = 0, has_medians = 1;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && !page->run[i].run->device[0].step_median_ns) has_medians = 0;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        char words[32], on[32] = "";
        if (!r || !r->steps) continue;
        text_add(text, "%s %s in ",
                 n             ? ","
                 : has_medians ? "The median step took"
                               : "A step took",
                 time_words(step_ns(r, has_medians), words));
        if (r->devices > 1) snprintf(on, sizeof on, " on %d devices", r->devices);
        add_title(text, page->run[i].title, on);
        if (n++ && first->mode == MODE_SINGLE && one > 0)
            text_add(text, " (%.2f times the speed)",
                     has_medians ? step_ns(first, 1) / step_ns(r, 1)
                                 : record_images_per_second(r) / one);
    }
    if (!n) {
        text_add(text, "No step was done, so there are no times.");
        return;
    }
    if (*first->modelled) {
        struct text load = {.used = 0};
        add_load(&load, plain(page, MODE_DP), plain(page, MODE_DDP));
        text_add(text, " (all times on this page are modelled: %s).%s%s", first->modelled,
                 load.used ? " " : "", load.words);
    } else {
        say_sharing(text, page);
        say_busy(text, page);
        text_add(text, ".");
    }
}

/* ---- the memory ---- */

/* A difference smaller than this is not worth a sentence; the table has it. */
static const double SAME = 0.01;

/* The cause that device 0 holds most of over the others. */
static int worst_cause(const struct run_record *r, double *excess) {
    int worst = 0;
    *excess = 0;
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        double more = device_value(r, 0, VALUE_PEAK, c) - others_value(r, VALUE_PEAK, c);
        if (more > *excess) *excess = more, worst = c;
    }
    return worst;
}

static void say_memory(struct text *text, const struct page *page) {
    int n = 0;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        char first[32], others[32], more[32];
        double excess;
        if (!r) continue;
        text_add(text, "%s", n++ ? "; " : "");
        bytes_words((double)r->device[0].memory.total_peak, first);
        if (r->devices < 2) {
            add_title(text, page->run[i].title, "");
            text_add(text, " needs %s", first);
            continue;
        }
        double rest = others_value(r, VALUE_PEAK, MEM_CAUSE_COUNT),
               mine = device_value(r, 0, VALUE_PEAK, MEM_CAUSE_COUNT);
        bytes_words(rest, others);
        if (fabs(mine - rest) < SAME * mine) {
            text_add(text, "each device of ");
            add_title(text, page->run[i].title, "");
            text_add(text, " holds %s at its peak", first);
            continue;
        }
        int cause = worst_cause(r, &excess);
        text_add(text, "device 0 of ");
        add_title(text, page->run[i].title, "");
        text_add(text, " holds %s at its peak and each other one %s", first, others);
        if (mine > rest && excess >= 1)
            text_add(text, ", above all because of %s (%s)", mem_cause_name((enum mem_cause)cause),
                     signed_bytes(excess, more));
    }
    if (n) text_add(text, ".");
    for (char *at = text->words; *at; at++)
        if (at == text->words && *at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
}

void verdict_words(const struct page *page, struct text sentence[3]) {
    memset(sentence, 0, 3 * sizeof *sentence);
    if (!first_run(page)) {
        text_add(&sentence[0], "Nothing was measured: no run came to its end.");
        return;
    }
    say_equality(&sentence[0], page);
    say_time(&sentence[1], page);
    say_memory(&sentence[2], page);
}
