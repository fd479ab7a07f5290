/* Writes the whole document: see page.h. */
#include "report/page/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/page/html.h"
#include "report/pictures/collective.h"
#include "report/findings.h"

static void put_start(FILE *file, const struct page *page) {
    const struct run_record *r = first_run(page);
    struct text title = {""};
    text_add(&title, "Duet %s", page->command);
    if (r) text_add(&title, ": %s on %s", r->model, r->dataset);
    if (most_devices(page) > 1) text_add(&title, ", %d devices", most_devices(page));
    html_start(file, title.words);
}

/* ---- the sections ---- */

/* What is missing and why, and how far a stopped run got. */
static void put_gaps(FILE *file, const struct page *page) {
    if (page->stopped)
        put_paragraph(file, "warning", "Stopped early: %s. What follows was measured until then.",
                      page->stopped);
    for (int i = 0; i < page->count; i++) {
        const struct page_run *one = &page->run[i];
        if (!one->run)
            put_paragraph(file, "warning", "%s is missing: %s", one->title,
                          one->missing ? one->missing : "it was not run");
        else if (one->run->spans_lost)
            put_paragraph(
                file, "warning",
                "%s: %lld spans were lost because host memory ran out, so its times have gaps.",
                one->title, (long long)one->run->spans_lost);
        if (one->run && !one->run->steps)
            put_paragraph(file, "warning", "%s made no step.", one->title);
        int step = one->run ? record_not_finite(one->run, NULL) : -1;
        if (step >= 0)
            put_paragraph(file, "warning", "%s: the loss is not finite since step %d.", one->title,
                          step);
    }
}

static void put_training(FILE *file, const struct run_record *r) {
    struct text text = {""};
    double accuracy = record_last_accuracy(r);
    if (r->computed) {
        put_paragraph(file, "",
                      "Nothing was trained: this is one step of the model %s on the data set %s, "
                      "followed on devices that compute nothing.",
                      r->model, r->dataset);
        return;
    }
    text_add(&text, "The model %s was trained on the data set %s for %d step%s", r->model,
             r->dataset, r->steps, r->steps == 1 ? "" : "s");
    if (r->steps) text_add(&text, ", to a loss of %.4g", r->losses[r->steps - 1]);
    if (accuracy >= 0) text_add(&text, " and a test accuracy of %.4f", accuracy);
    put_paragraph(file, "", "%s.", text.words);
}

/* Whether the runs trained the same model, in the words of the command. */
static void put_equality(FILE *file, const struct page *page) {
    static const char *const classes[] = {"", "equal", "within", "apart"};
    int judged = 0;
    for (int i = 0; i < page->count; i++) {
        if (page->run[i].judged == PAGE_NOT_JUDGED || !page->run[i].verdict) continue;
        put_paragraph(file, classes[page->run[i].judged], "%s", page->run[i].verdict);
        judged++;
    }
    if (!judged) put_training(file, first_run(page));
    if (!judged && page->stopped && page->count > 1)
        put_paragraph(file, "", "The command ended before two runs could be compared.");
}

/* The run in that mode, not the one with the loss in forward; NULL: there is none. */
static const struct run_record *plain(const struct page *page, enum run_mode mode) {
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (r && r->steps && r->mode == mode && !r->loss_in_forward) return r;
    }
    return NULL;
}

/* What `duet profile` says about the same runs. */
static void put_findings(FILE *file, const struct page *page) {
    const struct profiled runs = {.dp = plain(page, MODE_DP), .ddp = plain(page, MODE_DDP)};
    struct text sentences[FINDINGS];
    int count = profile_findings(&runs, sentences);
    if (count) fprintf(file, "<ol class=\"verdict\">\n");
    for (int i = 0; i < count; i++) {
        fprintf(file, "<li>");
        html_text(file, sentences[i].words);
        fprintf(file, "</li>\n");
    }
    if (count) fprintf(file, "</ol>\n");
}

static int put_verdict(FILE *file, const struct page *page) {
    const struct run_record *first = first_run(page);
    put_gaps(file, page);
    if (first) {
        put_equality(file, page);
        put_findings(file, page);
        if (*first->modelled)
            put_paragraph(file, "",
                          "All times on this page are modelled, with the errors given under What "
                          "ran. Memory, traffic and collectives are those of Duet, while the times "
                          "are those of PyTorch with NCCL.");
        summary_table(file, page);
    } else {
        put_paragraph(file, "", "Nothing was measured: no run finished.");
    }
    return OK;
}

static int put_timeline(FILE *file, const struct page *page) {
    if (!has_timeline(page)) {
        put_paragraph(file, "", "No spans of a step were recorded.");
        return OK;
    }
    put_paragraph(file, "",
                  "What each device did in %s. All runs share one time axis. In a dotted box a "
                  "device waits for others; where only a line is left, it is idle. The lanes below "
                  "a device show its communication and its copies of the next batch.",
                  *first_run(page)->modelled ? "one step of the modelled clock"
                                             : "one typical step");
    CHECK(put_figure(file, page, draw_timeline, 0, "A box is the kernels or copies of a phase."));
    return OK;
}

static int put_memory(FILE *file, const struct page *page) {
    put_paragraph(file, "", "What each device held at its peak, counted at every allocation.");
    CHECK(put_figure(file, page, draw_memory, 0,
                     "Memory of each device at its peak, in bytes, by cause."));
    return OK;
}

static int put_traffic(FILE *file, const struct page *page) {
    int any = 0;
    put_paragraph(file, "",
                  "Bytes per step from device to device, counted at every copy. DP sends "
                  "everything through one device, DDP does not. Thicker arrows carry more bytes; "
                  "all runs have one scale.");
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (!r || r->devices < 2 || !has_traffic(page, i)) continue;
        if (any && r->loss_in_forward) continue; /* the same star, with thinner arrows */
        if (!any++) fprintf(file, "<div class=\"pair\">\n");
        CHECK(put_figure(file, page, draw_links, i, page->run[i].title));
    }
    if (any)
        fprintf(file, "</div>\n");
    else
        put_paragraph(file, "", "Nothing moved between devices.");
    return OK;
}

static int put_phases(FILE *file, const struct page *page) {
    if (has_phases(page)) {
        put_paragraph(file, "",
                      "The time of each phase, the mean over all steps. Busy times are %s.",
                      *first_run(page)->modelled ? "those of the modelled clock"
                      : first_run(page)->gpus
                          ? "wall times of the GPU"
                          : "CPU times of emulated devices; if these share cores, waits are in the "
                            "tables only");
        CHECK(put_figure(file, page, draw_phases, 0, "Milliseconds per step, by phase."));
    } else {
        put_paragraph(file, "", "No times by phase were measured.");
    }
    device_tables(file, page);
    return OK;
}

static int put_curves(FILE *file, const struct page *page) {
    if (has_curves(page, 0)) {
        fprintf(file, "<div>\n");
        if (has_chart(page, 0))
            CHECK(put_figure(file, page, draw_loss, 0,
                             "The loss of each step. Equal curves overlap; the last is thinnest."));
        if (has_chart(page, 1))
            CHECK(put_figure(file, page, draw_accuracy, 0,
                             "Accuracy on the test set after each epoch."));
        fprintf(file, "</div>\n");
    } else {
        put_paragraph(file, "",
                      first_run(page) && first_run(page)->computed
                          ? "Nothing was trained, so there is no loss."
                          : "There is no finite loss to draw.");
    }
    return OK;
}

/* How DDP sums its largest bucket. */
static int put_allreduce(FILE *file, const struct page *page) {
    struct hops hops;
    struct text text = {""};
    char size[32];
    int instead, index = index_of_ddp(page);
    const struct run_record *r = page->run[index].run;
    int bucket = largest_bucket_of(r);
    CHECK(hops_of_bucket(r, bucket, &hops, &instead));
    fprintf(file, "<div class=\"part\"><h3>");
    html_text(file, page->run[index].title);
    fprintf(file, "</h3>\n");
    bytes_words(bucket < r->bucket_count ? (double)r->bucket_bytes[bucket] : 0, size);
    text_add(&text,
             "Every step sums %d bucket%s of gradients over %d ranks. The picture shows that of "
             "%s, with the algorithm %s.",
             r->bucket_count, r->bucket_count == 1 ? "" : "s", r->devices, size,
             bucket_algorithm(r, bucket));
    put_paragraph(
        file, "", "%s It is drawn from the plan that all ranks run; it is not measured.%s",
        text.words,
        instead ? " The hops inside the library are unknown; a ring is drawn instead." : "");
    hops_free(&hops);
    CHECK(put_figure(file, page, draw_collective, 0,
                     "Rows are ranks, columns are chunks. A stripe is the term of one rank, a full "
                     "cell the sum of all. Cells that a hop wrote are underlined."));
    fprintf(file, "</div>\n");
    return OK;
}

static int put_collectives(FILE *file, const struct page *page) {
    if (has_collective(page))
        CHECK(put_allreduce(file, page));
    else
        put_paragraph(file, "", "No run of DDP over several devices was measured.");
    return OK;
}

/* ---- the page ---- */

static const struct {
    const char *id, *name, *title; /* name: in the navigation */
    int (*put)(FILE *file, const struct page *page);
} sections[] = {{"verdict", "Verdict", "Verdict", put_verdict},
                {"timelines", "Timeline", "Timeline", put_timeline},
                {"memory", "Memory", "Memory by cause", put_memory},
                {"traffic", "Traffic", "Traffic", put_traffic},
                {"phases", "Time", "Time by phase", put_phases},
                {"curves", "Loss", "Loss", put_curves},
                {"collective", "Collectives", "Collectives, hop by hop", put_collectives},
                {"about", "What ran", "What ran", about_table}};
enum { SECTIONS = sizeof sections / sizeof *sections };

int page_write(FILE *file, const struct page *page) {
    put_start(file, page);
    fprintf(file, "<nav aria-label=\"Sections\"><ul>");
    for (int i = 0; i < SECTIONS; i++)
        fprintf(file, "<li><a href=\"#%s\">%s</a></li>", sections[i].id, sections[i].name);
    fprintf(file, "</ul></nav>\n<main>\n");
    for (int i = 0; i < SECTIONS; i++) {
        const char *id = sections[i].id, *title = sections[i].title;
        if (sections[i].put == put_curves && has_chart(page, 1)) title = "Loss and accuracy";
        fprintf(file, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n", id, id);
        fprintf(file, "<h2 id=\"%s-title\">%s</h2>\n", id, title);
        CHECK(sections[i].put(file, page));
        fprintf(file, "</section>\n");
    }
    fprintf(file, "</main>\n</body>\n</html>\n");
    return OK;
}
