/* Duet's memory and PyTorch's: see beside_pytorch.h. */
#include "report/beside_pytorch.h"

#include <math.h>

#include "report/text.h"

/* The device beside device 0 that holds most: of a small batch PyTorch gives some devices none.
 * Needs two devices. */
static int fullest_other(const struct beside_pytorch *run) {
    int most = 1;
    for (int d = 2; d < run->devices; d++)
        if (run->pytorch[d].total_peak > run->pytorch[most].total_peak) most = d;
    return most;
}

/* ---- in a sentence ---- */

/* What differs by less is left out. */
static const double WORTH_SAYING = 0.01;

static const char *word_of(int cause, int dp) {
    switch (cause) {
    case MEM_GRADS: return "gradients";
    case MEM_INPUT: return "batch";
    case MEM_GATHERED: return "outputs";
    case MEM_COMM: return dp ? "joined gradients" : "buckets and flags";
    default: return mem_cause_name((enum mem_cause)cause);
    }
}

/* Why PyTorch has more or less of it; "": nothing to say. */
static const char *why(int cause, int dp, int more) {
    switch (cause) {
    case MEM_INPUT: return dp ? " (scattered from the host)" : " (one at a time)";
    case MEM_ACTIVATIONS: return more ? " (what autograd saves)" : " (freed on the way back)";
    case MEM_GRADS:
        return !more ? " (made on the way back)"
               : dp  ? " (reduce_add_coalesced builds one more set)"
                     : "";
    case MEM_COMM: return dp ? "" : " (beside .grad, unless gradient_as_bucket_view=True)";
    default: return "";
    }
}

/* "11.1 MiB on device 0, 2.37 MiB less than Duet" */
static void held(struct text *text, const struct beside_pytorch *run, int device,
                 const char *where) {
    char is[32], by[32];
    double pytorch = (double)run->pytorch[device].total_peak,
           duet = (double)run->duet->device[device].memory.total_peak;
    text_add(text, "%s on %s, ", bytes_words(pytorch, is), where);
    if (fabs(pytorch - duet) < WORTH_SAYING * duet)
        text_add(text, "as much as Duet");
    else
        text_add(text, "%s %s than Duet", bytes_words(fabs(pytorch - duet), by),
                 pytorch > duet ? "more" : "less");
}

static void causes(struct text *text, const struct ledger *pytorch, const struct ledger *duet,
                   int dp) {
    int said = 0;
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        double by = (double)pytorch->at_peak[c] - (double)duet->at_peak[c];
        char bytes[32];
        if (fabs(by) < WORTH_SAYING * (double)duet->total_peak) continue;
        text_add(text, "%s %s %s%s", said++ ? "," : ":", word_of(c, dp), signed_bytes(by, bytes),
                 why(c, dp, by > 0));
    }
}

/* The sum of the gradients, which DataParallel makes when activations have gone. */
static void summed(struct text *text, const struct ledger *pytorch) {
    char bytes[32];
    if (pytorch->at_peak[MEM_GRADS] == pytorch->peak[MEM_GRADS]) return; /* was said */
    text_add(text, "; later reduce_add_coalesced builds one more set of gradients there, %s in all",
             bytes_words((double)pytorch->peak[MEM_GRADS], bytes));
}

void beside_pytorch_sentence(FILE *file, int width, const struct beside_pytorch *run, int details) {
    struct text text = {.used = 0};
    if (!run->duet || run->duet->devices != run->devices || run->devices < 2) return;
    int dp = run->duet->mode == MODE_DP;
    text_add(&text, "PyTorch's %s would hold ", dp ? "DataParallel" : "DDP");
    held(&text, run, 0, dp ? "device 0" : "each device");
    causes(&text, &run->pytorch[0], &run->duet->device[0].memory, dp);
    if (dp && details) summed(&text, &run->pytorch[0]);
    if (dp && details) text_add(&text, "; and ");
    if (dp && details) held(&text, run, fullest_other(run), "another at most");
    text_add(&text, " (computed; --as pytorch).");
    text_wrap(file, width, 0, 2, text.words);
}

/* ---- as a table ---- */

enum { NAME = 22, CELL = 14, COLUMNS = 4 };

struct sizes {
    uint64_t of[COLUMNS]; /* Duet: device 0, the fullest other; PyTorch likewise */
    char there[COLUMNS];
};

static void row(FILE *file, int indent, const char *name, const struct sizes *sizes) {
    int any = 0;
    for (int i = 0; i < COLUMNS; i++)
        any |= sizes->there[i] && sizes->of[i];
    if (!any) return;
    fprintf(file, "%*s%-*s", indent, "", NAME - indent, name);
    for (int i = 0; i < COLUMNS; i++) {
        char text[32] = "-";
        if (sizes->there[i] && sizes->of[i]) format_bytes(sizes->of[i], text, sizeof text);
        fprintf(file, "%*s", CELL, text);
    }
    fprintf(file, "\n");
}

/* The ledger of a column; NULL: there is none. */
static const struct ledger *ledger_of(const struct beside_pytorch *run, int column) {
    if (column % 2 && run->devices < 2) return NULL;
    int device = column % 2 ? fullest_other(run) : 0;
    if (column >= 2) return &run->pytorch[device];
    return run->duet ? &run->duet->device[device].memory : NULL;
}

/* cause MEM_CAUSE_COUNT: all together. */
static struct sizes sizes_of(const struct beside_pytorch *run, int cause) {
    struct sizes sizes = {.of = {0}};
    for (int i = 0; i < COLUMNS; i++) {
        const struct ledger *l = ledger_of(run, i);
        sizes.there[i] = l != NULL;
        if (l) sizes.of[i] = cause < MEM_CAUSE_COUNT ? l->at_peak[cause] : l->total_peak;
    }
    return sizes;
}

void beside_pytorch_table(FILE *file, const struct beside_pytorch *run) {
    char title[64];
    int other = run->devices > 1 ? fullest_other(run) : 0;
    if (!run->devices) return;
    snprintf(title, sizeof title, "%s at its peak", run->title);
    fprintf(file, "\n%-*s%*s%*s\n", NAME, title, 2 * CELL, "Duet", 2 * CELL, "PyTorch");
    fprintf(file, "%*s", NAME, "");
    for (int i = 0; i < COLUMNS; i++)
        fprintf(file, "%*s", CELL, i % 2 ? "the others" : "device 0");
    fprintf(file, "\n");
    struct sizes all = sizes_of(run, MEM_CAUSE_COUNT),
                 saved = {.of = {0, 0, run->saved[0], run->saved[other]},
                          .there = {0, 0, 1, run->devices > 1}};
    row(file, 0, "held", &all);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        struct sizes sizes = sizes_of(run, c);
        row(file, 2, mem_cause_name((enum mem_cause)c), &sizes);
    }
    row(file, 0, "saved by autograd", &saved);
}
