/* Writes the last table of a page: the command, the machine and the versions. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "report/page/html.h"
#include "report/text.h"

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
    fact(file, "data", "%s: %d samples of %d x %d x %d for training, %d for testing, %d %s",
         r->dataset, r->train_samples, r->channels, r->height, r->width, r->test_samples,
         r->classes, r->computed ? "outputs" : "classes");
    fact(file, "batch", "%d samples over all devices%s", r->batch_size,
         r->passes > 1 ? ", several of them per update" : "");
    fact(file, "optimizer", "%s, learning rate %g", r->optimizer, r->lr);
    fact(file, "seed", "%" PRIu64, r->seed);
    if (r->virtual_devices) fact(file, "virtual devices", "%d", r->virtual_devices);
    if (r->computed)
        fact(file, "devices", "none: they were simulated, and nothing was computed");
    else if (r->gpus)
        fact(file, "devices", "%s, on %d GPU%s", r->kind, r->gpus, r->gpus > 1 ? "s" : "");
    else
        fact(file, "devices", "%s: emulated on %d core%s of the host", r->kind, r->cores,
             r->cores > 1 ? "s" : "");
}

int about_table(FILE *file, const struct page *page) {
    const struct origin *o = page->origin;
    const struct run_record *first = first_run(page);
    char memory[32];
    fprintf(file, "<div class=\"scroll\"><table class=\"facts\"><tbody>\n");
    fprintf(file, "<tr><th scope=\"row\">command</th><td><code>");
    for (int i = 0; i < o->word_count; i++) {
        struct text word = {""};
        add_word(&word, o->words[i]);
        fprintf(file, i ? " <span>" : "<span>"); /* else browsers would break lines within --word */
        html_text(file, word.words);
        fprintf(file, "</span>");
    }
    fprintf(file, "</code></td></tr>\n");
    if (first) put_run_facts(file, first);
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (r && *r->modelled)
            fact(file, "times", "%s, modelled: %s", page->run[i].title, r->modelled);
        else if (r && *r->choice)
            fact(file, "allreduce", "%s", r->choice);
    }
    fact(file, "Duet", "%s, built by %s, with %s", o->duet, o->compiler, o->cuda);
    fact(file, "host", "%s", o->host);
    fact(file, "system", "%s", o->system);
    fact(file, "processor", "%s%s%d core%s", o->cpu, *o->cpu ? ", " : "", o->cores,
         o->cores > 1 ? "s" : "");
    fact(file, "memory of the host", "%s", bytes_words((double)o->memory, memory));
    fact(file, "written", "%s", o->date);
    fprintf(file, "</tbody></table></div>\n");
    return OK;
}
