/* Ledgers of memory and of traffic; see ledger.h. */
#include "trace/ledger.h"

#include <stdio.h>

const char *mem_cause_name(enum mem_cause cause) {
    static const char *const names[MEM_CAUSE_COUNT] = {"params",      "grads",    "optimizer",
                                                       "activations", "input",    "gathered output",
                                                       "comm",        "workspace"};
    return (unsigned)cause < MEM_CAUSE_COUNT ? names[cause] : "unknown";
}

void ledger_add(struct ledger *ledger, enum mem_cause cause, uint64_t bytes) {
    ledger->now[cause] += bytes;
    ledger->pieces[cause]++;
    ledger->total += bytes;
    if (ledger->now[cause] > ledger->peak[cause]) ledger->peak[cause] = ledger->now[cause];
    if (ledger->total > ledger->total_peak) {
        ledger->total_peak = ledger->total;
        for (int c = 0; c < MEM_CAUSE_COUNT; c++)
            ledger->at_peak[c] = ledger->now[c];
    }
}

void ledger_remove(struct ledger *ledger, enum mem_cause cause, uint64_t bytes) {
    ledger->now[cause] -= bytes;
    ledger->pieces[cause]--;
    ledger->total -= bytes;
}

/* The cause that holds most among those whose bit in `listed` is not set; -1 if none is left. */
static int next_largest(const struct ledger *ledger, unsigned listed) {
    int best = -1;
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        if (listed >> c & 1 || ledger->now[c] == 0) continue;
        if (best < 0 || ledger->now[c] > ledger->now[best]) best = c;
    }
    return best;
}

void ledger_describe(const struct ledger *ledger, char *text, size_t text_bytes) {
    unsigned listed = 0;
    size_t used = 0;
    if (text_bytes) text[0] = 0;
    for (int c; (c = next_largest(ledger, listed)) >= 0 && used < text_bytes; listed |= 1u << c) {
        char amount[32], tensors[32] = ""; /* one allocation each; other causes share a few */
        if (c == MEM_INPUT)
            snprintf(tensors, sizeof tensors, " in %d tensor%s", ledger->pieces[c],
                     ledger->pieces[c] == 1 ? "" : "s");
        int n = snprintf(text + used, text_bytes - used, "%s%s %s%s", used ? ", " : "",
                         mem_cause_name((enum mem_cause)c),
                         format_bytes(ledger->now[c], amount, sizeof amount), tensors);
        used += (size_t)n;
    }
    if (!listed) snprintf(text, text_bytes, "nothing");
}

static int is_link(int end) {
    return end >= 0 && end < LINK_COUNT;
}

void traffic_add(struct traffic *traffic, int source, int destination, uint64_t bytes) {
    if (!traffic || !is_link(source) || !is_link(destination)) return;
    __atomic_fetch_add(&traffic->bytes[source][destination], bytes, __ATOMIC_RELAXED);
}

void traffic_join(struct traffic *sum, const struct traffic *more) {
    for (int a = 0; a < LINK_COUNT; a++)
        for (int b = 0; b < LINK_COUNT; b++)
            sum->bytes[a][b] += __atomic_load_n(&more->bytes[a][b], __ATOMIC_RELAXED);
}

void traffic_leave(struct traffic *sum, const struct traffic *less) {
    for (int a = 0; a < LINK_COUNT; a++)
        for (int b = 0; b < LINK_COUNT; b++)
            sum->bytes[a][b] -= less->bytes[a][b];
}

uint64_t traffic_into(const struct traffic *traffic, int device) {
    uint64_t sum = 0;
    for (int other = 0; is_link(device) && other < LINK_COUNT; other++)
        if (other != device)
            sum += __atomic_load_n(&traffic->bytes[other][device], __ATOMIC_RELAXED);
    return sum;
}

uint64_t traffic_out_of(const struct traffic *traffic, int device) {
    uint64_t sum = 0;
    for (int other = 0; is_link(device) && other < LINK_COUNT; other++)
        if (other != device)
            sum += __atomic_load_n(&traffic->bytes[device][other], __ATOMIC_RELAXED);
    return sum;
}

/* From 999.5 on, %.3g would print 1e+03, so the next unit is used. */
char *format_bytes(uint64_t bytes, char *text, size_t text_bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    if (bytes < 1024) {
        snprintf(text, text_bytes, "%d B", (int)bytes);
        return text;
    }
    while (value >= 999.5) {
        value /= 1024;
        unit++;
    }
    snprintf(text, text_bytes, "%.3g %s", value, units[unit]);
    return text;
}
