/* Compares Duet's memory with PyTorch's: see beside_pytorch.h. */
#include "report/beside_pytorch.h"

#include <math.h>
#include <string.h>

#include "report/table.h"
#include "report/text.h"

/* The device other than 0 that holds most: in PyTorch some devices get nothing of a small batch.
 * Needs two devices. */
static int fullest_other(const struct beside_pytorch *run) {
    int most = 1;
    for (int d = 2; d < run->devices; d++)
        if (run->pytorch[d].total_peak > run->pytorch[most].total_peak) most = d;
    return most;
}

/* ---- in a sentence ---- */

/* Smaller differences are left out. */
static const double WORTH_SAYING = 0.01;

static const char *word_of(int cause, int dp) {
    switch (cause) {
    case MEM_GRADS: return "gradients";
    case MEM_INPUT: return "batch";
    case MEM_GATHERED: return "outputs";
    case MEM_COMM: return dp ? "gradients joined for the sum" : "buckets and flags";
    default: return mem_cause_name((enum mem_cause)cause);
    }
}

/* Why PyTorch has more or less of it; "": no reason to give. */
static const char *why(int cause, int dp, int more) {
    switch (cause) {
    case MEM_INPUT: return dp ? " (scattered from the host)" : " (one at a time)";
    case MEM_ACTIVATIONS: return more ? " (what autograd saves)" : " (freed during backward)";
    case MEM_GRADS:
        return !more ? " (made during backward)"
               : dp  ? " (reduce_add_coalesced builds one more set)"
                     : "";
    case MEM_COMM: return dp ? "" : " (in addition to .grad, unless gradient_as_bucket_view=True)";
    default: return "";
    }
}

/* "11.1 MiB on device 0, 2.37 MiB less than Duet" */
static void held(struct text *text, const struct beside_pytorch *run, const char *where) {
    char is[32], by[32];
    double pytorch = (double)run->pytorch[0].total_peak,
           duet = (double)run->duet->device[0].memory.total_peak;
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

void beside_pytorch_sentence(struct text *text, const struct beside_pytorch *run) {
    if (!run->duet || run->duet->devices != run->devices || run->devices < 2) return;
    int dp = run->duet->mode == MODE_DP;
    text_add(text, "PyTorch's %s would hold ", dp ? "DataParallel" : "DDP");
    held(text, run, dp ? "device 0" : "each device");
    causes(text, &run->pytorch[0], &run->duet->device[0].memory, dp);
    text_add(text, " (computed; --as pytorch).");
}

/* ---- as a table ---- */

enum { COLUMNS = 4 }; /* Duet: device 0, the fullest other device; PyTorch: the same */

/* The ledger of a column; NULL: there is none. */
static const struct ledger *ledger_of(const struct beside_pytorch *run, int column) {
    if (column % 2 && run->devices < 2) return NULL;
    int device = column % 2 ? fullest_other(run) : 0;
    if (column >= 2) return &run->pytorch[device];
    return run->duet ? &run->duet->device[device].memory : NULL;
}

/* cause MEM_CAUSE_COUNT: all together; a larger one: what autograd saves. */
static void bytes_row(struct table *t, const char *name, const struct beside_pytorch *run,
                      int cause) {
    struct table_row *row = table_add(t, ROW_WHERE_ANY, name);
    for (int i = 0; i < COLUMNS; i++) {
        const struct ledger *l = ledger_of(run, i);
        uint64_t bytes = !l                         ? 0
                         : cause < MEM_CAUSE_COUNT  ? l->at_peak[cause]
                         : cause == MEM_CAUSE_COUNT ? l->total_peak
                         : i < 2                    ? 0
                                                    : run->saved[i == 2 ? 0 : fullest_other(run)];
        strcpy(row->cell[i], "-");
        if (bytes) format_bytes(bytes, row->cell[i], TABLE_CELL);
    }
}

void beside_pytorch_table(FILE *file, const struct beside_pytorch *run) {
    struct table t = {.columns = COLUMNS,
                      .name_width = 22,
                      .value_width = 13,
                      .head = {"device 0", "the others", "device 0", "the others"}};
    char title[64];
    if (!run->devices) return;
    snprintf(title, sizeof title, "%s at its peak", run->title);
    fprintf(file, "\n%-22s%28s%28s\n", title, "Duet", "PyTorch");
    bytes_row(&t, "held", run, MEM_CAUSE_COUNT);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        char name[40];
        snprintf(name, sizeof name, "  %s", mem_cause_name((enum mem_cause)c));
        bytes_row(&t, name, run, c);
    }
    bytes_row(&t, "saved by autograd", run, MEM_CAUSE_COUNT + 1);
    table_print(file, TEXT_USUAL, &t);
}
