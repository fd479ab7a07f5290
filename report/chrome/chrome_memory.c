/* Memory over time in a trace: a counter for each device, with a series for each cause. The samples
 * are those of the ledger, one for each allocation and each release (device/device.h). */
#include <string.h>

#include "report/chrome/chrome_writer.h"
#include "trace/ledger.h"

static void write_counter(struct writer *w, int64_t at_ns, const uint64_t *now,
                          const int *ever_held) {
    open_event(w, "C", 0, "memory");
    write_time(w, "ts", at_ns - w->zero_ns);
    json_object(&w->json, "args");
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        if (ever_held[c]) json_natural(&w->json, mem_cause_name((enum mem_cause)c), now[c]);
    json_close(&w->json);
    json_close(&w->json);
}

/* What came before the first span is the value at 0. Samples behind the last span are of the end of
 * the run, which the trace does not show. */
void write_memory(struct writer *w, int device) {
    const struct span_log *log = &w->run->run->memory;
    uint64_t now[MEM_CAUSE_COUNT] = {0};
    int ever_held[MEM_CAUSE_COUNT] = {0}, any = 0;
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (s->device != device || s->phase >= MEM_CAUSE_COUNT || s->start_ns > w->end_ns) continue;
        any = 1;
        if (s->bytes) ever_held[s->phase] = 1;
    }
    if (!any) return;
    int begun = 0;
    int64_t last = w->zero_ns;
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (s->device != device || s->phase >= MEM_CAUSE_COUNT || s->start_ns > w->end_ns) continue;
        if (s->start_ns > w->zero_ns && !begun++) write_counter(w, w->zero_ns, now, ever_held);
        now[s->phase] = s->bytes;
        if (s->start_ns <= w->zero_ns) continue;
        last = s->start_ns;
        write_counter(w, last, now, ever_held);
    }
    if (!begun) write_counter(w, w->zero_ns, now, ever_held);
    if (last < w->end_ns) write_counter(w, w->end_ns, now, ever_held);
}
