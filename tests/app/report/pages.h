/* Makes pages from handmade runs for the tests of reports; no command could make them so fast. */
#ifndef TESTS_REPORT_PAGES_H
#define TESTS_REPORT_PAGES_H

#include "report/page/page.h"
#include "tests/app/report/records.h"

/* Spans of one step on every device: forward, backward, and in DDP two allreduces, the first of
 * which overlaps half with backward, and the second with nothing. Times in microseconds. */
static inline void add_spans(struct run_record *r, int step) {
    int64_t zero = 1000000000 + (int64_t)step * 100000;
    span_log_init(&r->kept, 1);
    for (int d = 0; d < r->devices; d++) {
        struct span s = {.step = step, .device = (int16_t)d};
        s.phase = PHASE_FORWARD, strcpy(s.name, "<b>conv</b> forward");
        s.start_ns = zero, s.end_ns = zero + 30000, span_add(&r->kept, &s);
        s.phase = PHASE_BACKWARD, strcpy(s.name, "conv backward");
        s.start_ns = zero + 30000, s.end_ns = zero + 60000, span_add(&r->kept, &s);
        if (r->mode != MODE_DDP) continue;
        s.lane = LANE_COMM, s.phase = PHASE_ALLREDUCE, s.bytes = 4096;
        strcpy(s.name, "allreduce bucket 0");
        s.start_ns = zero + 50000, s.end_ns = zero + 70000, span_add(&r->kept, &s);
        strcpy(s.name, "allreduce bucket 1");
        s.start_ns = zero + 70000, s.end_ns = zero + 80000, span_add(&r->kept, &s);
    }
}

/* Bytes over every link of DP's star, or of DDP's ring. */
static inline void add_traffic(struct run_record *r) {
    r->traffic = calloc(1, sizeof *r->traffic);
    for (int d = 0; d < r->devices; d++) {
        traffic_add(r->traffic, LINK_HOST, d, 1000);
        if (r->mode == MODE_DDP) traffic_add(r->traffic, d, (d + 1) % r->devices, 5000);
        if (r->mode == MODE_DP && d) traffic_add(r->traffic, 0, d, 3000);
        if (r->mode == MODE_DP && d) traffic_add(r->traffic, d, 0, 2000);
    }
}

static inline struct run_record full_record(enum run_mode mode, int devices) {
    struct run_record r = make(mode, devices);
    r.timed = 1;
    strcpy(r.model, "<i>m</i>"), strcpy(r.dataset, "a&b\"'");
    add_spans(&r, 7);
    add_traffic(&r);
    if (mode == MODE_DP && devices > 1) {
        static const enum phase moved[] = {PHASE_SCATTER, PHASE_REPLICATE, PHASE_GATHER,
                                           PHASE_SCATTER_GRAD, PHASE_REDUCE};
        for (int k = 0; k < 5; k++)
            r.device[0].phase_bytes[moved[k]] = (uint64_t)(1000 * (k + 1));
        r.parameter_count = 110000;
    }
    if (mode == MODE_DDP && devices > 1) {
        r.bucket_count = 2;
        r.bucket_bytes = calloc(2, sizeof *r.bucket_bytes);
        r.bucket_bytes[0] = 400000, r.bucket_bytes[1] = 40000;
        r.bucket_algorithm_count = 2;
        r.bucket_algorithms = calloc(2, sizeof *r.bucket_algorithms);
        r.bucket_algorithms[0] = strdup("ring"), r.bucket_algorithms[1] = strdup("direct");
        strcpy(r.choice, "ring: asked for by name");
    }
    return r;
}

/* The page as text, which the caller frees. */
static inline char *page_text(struct page *page, size_t *bytes) {
    static struct origin origin;
    static char *words[] = {"duet", "train", "--data-dir", "</script><script>alert(1)</script>"};
    static char *text; /* static: gcc thinks that the caller writes to a local one */
    FILE *file = open_memstream(&text, bytes);
    origin = (struct origin){.words = words, .word_count = 4, .cores = 2, .memory = 1 << 30};
    strcpy(origin.date, "2026-03-01T12:30:05Z"), strcpy(origin.duet, "0.1.0");
    strcpy(origin.cpu, "a <cpu> & more");
    page->origin = &origin;
    page->command = "train";
    cr_assert_eq(page_write(file, page), OK, "%s", error_message());
    fclose(file);
    return text;
}

#endif
