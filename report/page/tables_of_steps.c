/* More tables of a page: steps of the timeline, curves, equality, buckets, and what ran. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "report/pictures/buckets.h"
#include "report/page/html.h"
#include "report/pictures/prints.h"
#include "report/page/tables.h"
#include "report/text.h"

static void open_row(FILE *file, const char *title) {
    fprintf(file, "<tr><th scope=\"row\">");
    html_text(file, title);
    fprintf(file, "</th>");
}

static void put_time(FILE *file, double ns, int i, const char *path, int d) {
    char words[32];
    fprintf(file, "<td>");
    put_number(file, ns, time_words(ns, words), i, "per_device.%d.%s", d, path);
    fprintf(file, "</td>");
}

void timeline_table(FILE *file, const struct page *page) {
    open_table(file, "the steps of each device",
               "run|device|median step|90th percentile|spread of the steps");
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        for (int d = 0; r && r->timed && d < r->devices; d++) {
            const struct device_record *x = &r->device[d];
            open_row(file, page->run[i].title);
            fprintf(file, "<td>%d</td>", d);
            put_time(file, (double)x->step_median_ns, i, "step_median_ns", d);
            put_time(file, (double)x->step_p90_ns, i, "step_p90_ns", d);
            put_time(file, (double)x->step_spread_ns, i, "step_spread_ns", d);
            fprintf(file, "</tr>\n");
        }
    }
    close_table(file);
}

/* Some steps of all runs; the JSON has every one. */
enum { LOSS_ROWS = 20 };

static void loss_rows(FILE *file, const struct page *page, int steps) {
    for (int k = 0, n = steps < LOSS_ROWS ? steps : LOSS_ROWS; k < n; k++) {
        int step = n > 1 ? (int)((int64_t)k * (steps - 1) / (n - 1)) : 0;
        fprintf(file, "<tr><th scope=\"row\">%d</th>", first_run(page)->first_step + step);
        for (int i = 0; i < page->count; i++) {
            const struct run_record *r = page->run[i].run;
            char words[32];
            if (!r) continue;
            fprintf(file, "<td>");
            if (step < r->steps) {
                snprintf(words, sizeof words, "%.9g", r->losses[step]);
                put_number(file, r->losses[step], words, i, "losses.%d", step);
            }
            fprintf(file, "</td>");
        }
        fprintf(file, "</tr>\n");
    }
}

/* What each epoch ended with: "accuracy" or "valid_loss", which are also their keys in the results.
 */
static void epoch_rows(FILE *file, const struct page *page, int epochs, const char *what) {
    int of_loss = !strcmp(what, "valid_loss");
    for (int k = 0; k < epochs; k++) {
        fprintf(file, "<tr><th scope=\"row\">%s after epoch %d</th>", what, k + 1);
        for (int i = 0; i < page->count; i++) {
            const struct run_record *r = page->run[i].run;
            char words[32];
            if (!r) continue;
            fprintf(file, "<td>");
            if (k < r->epoch_count && r->accuracy[k] >= 0 && (!of_loss || r->valid_loss)) {
                double value = of_loss ? r->valid_loss[k] : r->accuracy[k];
                snprintf(words, sizeof words, of_loss ? "%.6g" : "%.4f", value);
                put_number(file, value, words, i, "%s.%d", what, k);
            }
            fprintf(file, "</td>");
        }
        fprintf(file, "</tr>\n");
    }
}

void curve_table(FILE *file, const struct page *page) {
    char head[400] = "step";
    int steps = 0, epochs = 0;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (!r) continue;
        snprintf(head + strlen(head), sizeof head - strlen(head), "|%s", page->run[i].title);
        if (r->steps > steps) steps = r->steps;
        if (r->epoch_count > epochs) epochs = r->epoch_count;
    }
    open_table(file,
               steps > LOSS_ROWS ? "losses of some steps, and accuracies" : "losses and accuracies",
               head);
    loss_rows(file, page, steps);
    if (epochs > 100) epochs = 100;
    if (has_curves(page, 1)) epoch_rows(file, page, epochs, "accuracy");
    if (has_curves(page, 1)) epoch_rows(file, page, epochs, "valid_loss");
    close_table(file);
}

void equality_table(FILE *file, const struct page *page) {
    int steps[PRINTED_STEPS], n = steps_to_print(first_run(page), steps);
    open_table(file, "fingerprints of parameters and reduced gradients",
               "run|device|step|parameters before it|its gradients");
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        for (int d = 0; r && d < r->devices && is_hashed(r, d); d++)
            for (int k = 0; k < n && steps[k] < r->steps; k++) {
                open_row(file, page->run[i].title);
                fprintf(file, "<td>%d</td><td>%d</td><td><code>%08x</code></td><td>", d,
                        r->first_step + steps[k],
                        fingerprint(r, d, steps[k], 0, !(d && r->buffers_apart)));
                if (record_has_grads(r, d))
                    fprintf(file, "<code>%08x</code>", fingerprint(r, d, steps[k], 1, 0));
                else
                    fprintf(file, "on device 0 alone");
                fprintf(file, "</td></tr>\n");
            }
    }
    close_table(file);
}

void bucket_table(FILE *file, const struct page *page) {
    int i = index_of_ddp(page);
    const struct run_record *r = page->run[i].run;
    struct bucket_time times[MOST_BUCKETS];
    int buckets = bucket_times(r, times);
    open_table(file, "time and size of each bucket",
               "bucket|size|bytes moved by a device|calls seen|overlapped|exposed");
    for (int b = 0; b < buckets; b++) {
        char words[32];
        if (!times[b].calls) continue;
        fprintf(file, "<tr><th scope=\"row\">%d</th><td>", b);
        if (b < r->bucket_count)
            put_number(file, bucket_bytes(r, b), bytes_words(bucket_bytes(r, b), words), i,
                       "bucket_sizes.%d", b);
        fprintf(file, "</td><td>%s</td><td>%d</td>", bytes_words(times[b].bytes, words),
                times[b].calls);
        fprintf(file, "<td>%s</td>", time_words(times[b].overlapped_ns, words));
        fprintf(file, "<td>%s</td></tr>\n", time_words(times[b].exposed_ns, words));
    }
    close_table(file);
}

/* ---- what ran ---- */

__attribute__((format(printf, 3, 4))) static void fact(FILE *file, const char *name,
                                                       const char *format, ...) {
    char text[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!*text) return;
    fprintf(file, "<tr><th scope=\"row\">%s</th><td>", name);
    html_text(file, text);
    fprintf(file, "</td></tr>\n");
}

/* A word as a shell would take it. */
static void add_word(struct text *text, const char *word) {
    int plain = *word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789-_=./,:+@%") == strlen(word);
    text_add(text, text->used ? " " : "");
    if (plain) {
        text_add(text, "%s", word);
        return;
    }
    text_add(text, "'");
    for (; *word; word++)
        text_add(text, *word == '\'' ? "'\\''" : "%c", *word);
    text_add(text, "'");
}

static void put_run_facts(FILE *file, const struct run_record *r) {
    char frozen[48] = "";
    if (r->trainable_count < r->parameter_count)
        snprintf(frozen, sizeof frozen, ", %zu of them trainable", r->trainable_count);
    fact(file, "model", "%s, %zu parameters in %d tensors%s", r->model, r->parameter_count,
         r->parameters, frozen);
    fact(file, "data", "%s: %d samples of %d x %d x %d for training, %d for testing, %d classes",
         r->dataset, r->train_samples, r->channels, r->height, r->width, r->test_samples,
         r->classes);
    fact(file, "batch", "%d samples over all devices%s", r->batch_size,
         r->passes > 1 ? ", several of them an update" : "");
    fact(file, "optimizer", "%s, learning rate %g", r->optimizer, r->lr);
    fact(file, "seed", "%" PRIu64, r->seed);
    if (r->virtual_devices) fact(file, "virtual devices", "%d", r->virtual_devices);
    if (r->computed)
        fact(file, "devices", "none: they were imagined, and nothing was computed");
    else if (r->gpus)
        fact(file, "devices", "%s, on %d GPU%s", r->kind, r->gpus, r->gpus > 1 ? "s" : "");
    else
        fact(file, "devices", "%s: emulated on %d core%s of the host", r->kind, r->cores,
             r->cores > 1 ? "s" : "");
    if (*r->modelled) fact(file, "times", "modelled: %s", r->modelled);
}

void about_table(FILE *file, const struct page *page) {
    const struct origin *o = page->origin;
    const struct run_record *first = first_run(page);
    struct text line = {.used = 0};
    char memory[32];
    for (int i = 0; i < o->word_count; i++)
        add_word(&line, o->words[i]);
    fprintf(file, "<div class=\"scroll\"><table class=\"facts\"><tbody>\n");
    fprintf(file, "<tr><th scope=\"row\">command</th><td><code>");
    for (char *at = line.words; *at;) {
        size_t n = strcspn(at, " ");
        int more = at[n] == ' ';
        at[n] = 0;
        fprintf(file, "<span>"); /* a browser would break a line within --word too */
        html_text(file, at);
        fprintf(file, more ? "</span> " : "</span>");
        at += n + (size_t)more;
    }
    fprintf(file, "</code></td></tr>\n");
    if (first) put_run_facts(file, first);
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && *page->run[i].run->choice)
            fact(file, "allreduce", "%s", page->run[i].run->choice);
    fact(file, "Duet", "%s, built by %s%s%s", o->duet, o->compiler, *o->cuda ? ", with CUDA " : "",
         o->cuda);
    fact(file, "libraries", "%s", o->libraries);
    fact(file, "host", "%s", o->host);
    fact(file, "system", "%s", o->system);
    fact(file, "processor", "%s%s%d core%s", o->cpu, *o->cpu ? ", " : "", o->cores,
         o->cores > 1 ? "s" : "");
    fact(file, "memory of the host", "%s", bytes_words((double)o->memory, memory));
    fact(file, "written", "%s", o->date);
    fprintf(file, "</tbody></table></div>\n");
}
